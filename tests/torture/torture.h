/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torture: an operation runs with its 1st allocation failing, then its 2nd, until none fails.
 *
 * Why:     every line that handles a failed allocation runs at least once (K07); without this, none
 *          ever does, and the first machine that is out of memory finds the faults.
 * Promise: 1   each failure ends with CAIRN_NO_MEMORY and a message, or the operation does without
 *              that memory; nothing leaks (LeakSanitizer), nothing crashes, and the same operation
 *              works right afterwards.
 *          2   Cairn's own allocations fail, libraries' do not. jansson's do in the JSON test, with
 *              short texts: jansson 2.14 writes through NULL when it cannot grow a long one.
 * Limits:  allocations of the thread that runs the operation; those of other threads pass.
 * Threads: main thread only.
 * Next:    test_formats.c, test_parts.c; the linker's --wrap gives the allocator's names.
 */
#pragma once

#include "common/error.h"
#include "common/log.h"
#include "tests/harness.h"

typedef enum cairn_code cairn_torture_operation(void *context, struct cairn_error *err);
/* Checks torture.h#1 for each allocation; an operation cleans up after itself whatever it returns.
 * */
void cairn_torture(const char *name, cairn_torture_operation *operation, void *context);
/* The same where a failure may come back under another code, too (a server's own answer, say). */
void cairn_torture_loosely(const char *name, cairn_torture_operation *operation, void *context);
