/* SPDX-License-Identifier: Apache-2.0 */
/*
 * assert: what becomes of a bug of our own.
 *
 * Why:     a daemon that goes on after a broken promise may lose a checkpoint; a trainer that is
 *          ended by a library loses more.
 * Promise: 1   a broken assert ends the process; a broken promise ends a daemon and, in libcairn,
 *              makes every later call CAIRN_BROKEN.
 * Limits:  never for input: that is parsed or refused.
 * Threads: any.
 * Next:    common/assert.c, client/promise.c; docs/style.md, Errors.
 */
#pragma once

/* For our own bugs only, in what libcairn does not link: it ends the process. */
#define CAIRN_ASSERT(condition)                                                                    \
    do {                                                                                           \
        if (__builtin_expect(!(condition), 0))                                                     \
            cairn_assert_failed(#condition, __FILE_NAME__, __LINE__);                              \
    } while (0)
_Noreturn void cairn_assert_failed(const char *condition, const char *file, int line);
/* For our own bugs only, in what libcairn links, which ends no trainer: the place is noted, what
 * stands behind the condition is carried out (mostly a return; (void)0 where going on harms
 * nobody), and every later call of the library is CAIRN_BROKEN. Daemons and tests end here, too. */
#define CAIRN_PROMISE(condition, ...)                                                              \
    do {                                                                                           \
        if (__builtin_expect(!(condition), 0)) {                                                   \
            cairn_promise_broken(#condition, CAIRN_ORIGIN);                                        \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)
/* common/assert.c: ends the process. client/promise.c, in libcairn alone: notes the first one. */
void cairn_promise_broken(const char *condition, const char *origin);
/* "file.c:12: a > b", or NULL: none was broken. */
const char *cairn_promise_place(void);
