/* SPDX-License-Identifier: Apache-2.0 */
/*
 * error: how Cairn's own code reports failures, adds context and passes them on.
 *
 * Why:     a failure message must name its step, shard and part; four helpers do that, and there
 *          is no fifth way.
 * Promise: 1   cairn_fail sets code and message; cairn_within puts context in front of the
 *              message, and sets and returns the new code.
 *          2   os_errno is the errno at the time of cairn_fail_errno, and its text is appended
 *              and never cut; EMFILE and ENFILE also name the limit.
 *          3   the context of one cairn_within takes at most 96 bytes; it is shortened in its
 *              middle, down to 40, before the cause is cut.
 *          4   a message that is too long is also cut in its middle: its end, the advice, stays.
 *          5   run, step and rank that were noted stay when context is added, and are exact where
 *              the text has cut them; a text that needs their room has it.
 * Limits:  as in cairn/error.h; 1,024 runs a process. include/cairn/error.h#4 holds here: messages
 *          are valid JSON text.
 * Threads: the struct belongs to its caller.
 * Next:    cairn/error.h for the public half.
 */
#pragma once

#include <cairn/error.h>

#include "common/base.h"

/* Fill *err (which may be NULL) and return code. */
enum cairn_code cairn_fail_at(struct cairn_error *err, enum cairn_code code, int os_errno,
                              const char *origin, const char *format, ...) CAIRN_PRINTF(5, 6);
/* Puts "context: " in front of err->message, sets err->code and returns it. */
enum cairn_code cairn_within(struct cairn_error *err, enum cairn_code code, const char *format, ...)
    CAIRN_PRINTF(3, 4);
/* Passes on a failure that was kept aside: *err = *why, unless code is CAIRN_OK. Returns code. */
static inline enum cairn_code cairn_pass(struct cairn_error *err, enum cairn_code code,
                                         const struct cairn_error *why) {
    if (code && err) *err = *why;
    return code;
}

/* Notes the store's id of the request, from a header or a body. */
void cairn_error_request_id(struct cairn_error *err, const char *request_id);

/* What a failure is about. It travels in the last bytes of err->message, behind the text, because
 * the struct's layout is frozen; the text of such a message is shorter. */
struct cairn_error_subject {
    uint16_t run; /* from cairn_error_run; 0: unknown */
    bool has_step, has_rank;
    uint64_t step;
    uint32_t rank;
};
/* A number for the run's name, which stays for the life of the process; 0: there are too many. */
uint16_t cairn_error_run(const char *run);
/* Adds the known fields to those noted before. err may be NULL. */
void cairn_error_note(struct cairn_error *err, const struct cairn_error_subject *subject);

#define cairn_fail(err, code, ...) cairn_fail_at((err), (code), 0, CAIRN_ORIGIN, __VA_ARGS__)
/* Appends strerror(errno). ENOSPC, EDQUOT, EFBIG are CAIRN_NO_SPACE, EMFILE, ENFILE CAIRN_BUSY. */
#define cairn_fail_errno(err, ...)                                                                 \
    cairn_fail_at((err), cairn_code_from_errno(errno), errno, CAIRN_ORIGIN, __VA_ARGS__)
enum cairn_code cairn_code_from_errno(int os_errno);

#define CAIRN_TRY(expression)                                                                      \
    do {                                                                                           \
        enum cairn_code cairn_try_code = (expression);                                             \
        if (cairn_try_code != CAIRN_OK) return cairn_try_code;                                     \
    } while (0)
