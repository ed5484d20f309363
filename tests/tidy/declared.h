/* SPDX-License-Identifier: Apache-2.0 */
/*
 * declared: functions that a header declares and a source of another name defines.
 *
 * Why:     who reads a call looks for the function in the source that its header is named after.
 * Promise: 1   x.h declares what x.c defines, or a source of its folder whose name begins with x_
 *              (one subject in several files). The private headers inside.h, of a room, and
 *              x_inside.h, of the sources whose names begin with x, declare what any of theirs
 *              defines. A second definition elsewhere (of a test's world) is free.
 *          2   include/cairn/ is for users of the library and follows its own order.
 * Limits:  CAIRN_TIDY_FUNCTIONS_MAX functions. A name that a macro puts together is not seen; weak
 *          ones are not looked for.
 * Threads: one owner.
 * Next:    test_declared.c.
 */
#pragma once

#include "tests/tidy/rules.h"

#define CAIRN_TIDY_FUNCTIONS_MAX 4096

struct cairn_tidy_declared;
struct cairn_tidy_declared *cairn_tidy_declared_new(void);
void cairn_tidy_declared_free(struct cairn_tidy_declared *declared);
/* A source or a header of the product. */
void cairn_tidy_declared_add(struct cairn_tidy_declared *declared,
                             const struct cairn_tidy_file *file);
/* After all were added; how many declarations were seen. */
size_t cairn_tidy_declared_find(const struct cairn_tidy_declared *declared,
                                struct cairn_buf *found);
