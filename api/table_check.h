/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table_check: what a single tensor and a single fragment must satisfy.
 *
 * Why:     the builder and the opener of tables refuse the same rows in the same words.
 * Promise: 1   what passes has a known type and kind, a size without overflow, and fragments inside
 *              their tensor.
 * Limits:  as api/table.h. Names are checked by the caller.
 * Threads: stateless.
 * Next:    api/table.c, api/table_build.c.
 */
#pragma once

#include "api/table.h"

/* The rules of one row, shared by the builder and the opener. Numbers of dimension count, dtype and
 * kind are checked here too; names are not. */
enum cairn_code cairn_tensor_check(const struct cairn_tensor *tensor,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* *ret_bytes: what the fragment's elements take. An empty one is CAIRN_OK with 0 bytes. */
enum cairn_code cairn_fragment_check(const struct cairn_tensor *tensor,
                                     const struct cairn_fragment *fragment, uint64_t *ret_bytes,
                                     struct cairn_error *err) CAIRN_MUST_USE;
