/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base: borrowed bytes, clean-up at scope end, checked arithmetic and broken promises.
 *
 * Why:     every other file needs these. After a bug of its own a daemon must end, since it may
 *          lose a checkpoint; a library must not end the trainer, which loses more.
 * Promise: 1   CAIRN_AUTO(x) releases on every way out of the scope; a zeroed struct is a valid
 *              released one.
 *          2   checked arithmetic reports overflow and never wraps.
 *          3   closing at scope end a descriptor that is no longer open aborts dev builds.
 *          4   a broken assert ends the process; a broken promise ends a daemon and, in libcairn,
 *              makes every later call CAIRN_BROKEN.
 * Limits:  GNU C11 (cleanup attribute, overflow builtins). Input is parsed or refused, never
 *          asserted.
 * Threads: stateless; a promise may be broken on any thread.
 * Next:    common/error.h; client/promise.c; docs/style.md, Errors.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CAIRN_KIB (UINT64_C(1) << 10)
#define CAIRN_MIB (UINT64_C(1) << 20)
#define CAIRN_GIB (UINT64_C(1) << 30)

/* The unit of checksums and of verified reads. Stored: see docs/format.md. */
#define CAIRN_BLOCK_BYTES CAIRN_MIB

#define CAIRN_MUST_USE __attribute__((warn_unused_result))
#define CAIRN_PRINTF(format_index, first) __attribute__((format(printf, format_index, first)))
#define CAIRN_EXPORT __attribute__((visibility("default")))
#define CAIRN_UNUSED __attribute__((unused))
#define CAIRN_TEXT_(x) #x
#define CAIRN_TEXT(x) CAIRN_TEXT_(x)
#define CAIRN_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#ifndef __FILE_NAME__
#define __FILE_NAME__ __FILE__
#endif

/* Borrowed bytes: not necessarily NUL-terminated, not kept after the call. */
struct cairn_view {
    const void *data;
    size_t size;
};
#define CAIRN_VIEW(text) ((struct cairn_view){(text), sizeof(text) - 1})
static inline struct cairn_view cairn_view_of(const char *text) {
    return (struct cairn_view){text, strlen(text)};
}

/* CAIRN_AUTO(buf) body = {0};  calls cairn_buf_release(&body) at scope end. */
#define CAIRN_AUTO(type) __attribute__((cleanup(cairn_##type##_release))) struct cairn_##type
/* CAIRN_RELEASED(release_call) struct call call = {0};  the same for a type of one file. */
#define CAIRN_RELEASED(release) __attribute__((cleanup(release)))
/* CAIRN_AUTO_PTR(thing) p = NULL;  calls cairn_thing_free(p) at scope end. */
#define CAIRN_AUTO_PTR(type) __attribute__((cleanup(cairn_##type##_free_at))) struct cairn_##type *
#define CAIRN_DEFINE_AUTO_PTR(type)                                                                \
    static inline void cairn_##type##_free_at(struct cairn_##type **pointer) {                     \
        if (*pointer) cairn_##type##_free(*pointer);                                               \
    }                                                                                              \
    struct cairn_auto_semicolon_
/* Moves a pointer out of a scope that would free it. */
#define CAIRN_TAKE(pointer)                                                                        \
    __extension__({                                                                                \
        __typeof__(pointer) cairn_taken = (pointer);                                               \
        (pointer) = NULL;                                                                          \
        cairn_taken;                                                                               \
    })
static inline void cairn_heap_free_at(void *pointer) {
    extern void free(void *);
    free(*(void **)pointer);
}
#define CAIRN_AUTO_HEAP __attribute__((cleanup(cairn_heap_free_at)))
/* base.h#3: a second close would close a descriptor that another thread has opened under the same
 * number since. Builds that check locks notice, unless the number is in use again. */
static inline void cairn_fd_close_at(int *fd) {
    extern int close(int);
    int saved = errno;
    bool closed = *fd < 0 || close(*fd) == 0 || errno != EBADF;
#ifdef CAIRN_DEBUG_LOCKS
    if (!closed) __builtin_trap();
#endif
    (void)closed;
    errno = saved;
}
#define CAIRN_AUTO_FD __attribute__((cleanup(cairn_fd_close_at))) int

#define cairn_add_overflows(a, b, ret) __builtin_add_overflow((a), (b), (ret))
#define cairn_mul_overflows(a, b, ret) __builtin_mul_overflow((a), (b), (ret))
static inline uint64_t cairn_round_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}
static inline uint64_t cairn_div_up(uint64_t value, uint64_t unit) {
    return value / unit + (value % unit != 0);
}
static inline uint64_t cairn_min_u64(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}
static inline uint64_t cairn_max_u64(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

#define CAIRN_ORIGIN __FILE_NAME__ ":" CAIRN_TEXT(__LINE__)

/* ---- bugs of our own ---- */

/* For bugs of Cairn, in code that libcairn does not link: ends the process. */
#define CAIRN_ASSERT(condition)                                                                    \
    do {                                                                                           \
        if (__builtin_expect(!(condition), 0))                                                     \
            cairn_assert_failed(#condition, __FILE_NAME__, __LINE__);                              \
    } while (0)
_Noreturn void cairn_assert_failed(const char *condition, const char *file, int line);
/* For bugs of Cairn, in code that libcairn links: notes the place, runs the statement after the
 * condition (mostly a return; (void)0 where continuing is harmless) and makes every later call of
 * the library CAIRN_BROKEN. In daemons and tests it ends the process. */
#define CAIRN_PROMISE(condition, ...)                                                              \
    do {                                                                                           \
        if (__builtin_expect(!(condition), 0)) {                                                   \
            cairn_promise_broken(#condition, CAIRN_ORIGIN);                                        \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)
/* common/base.c ends the process; client/promise.c, in libcairn only, notes the first call. */
void cairn_promise_broken(const char *condition, const char *origin);
/* Place of the first broken promise, as "file.c:12: a > b"; NULL if none broke. */
const char *cairn_promise_place(void);
