/* SPDX-License-Identifier: Apache-2.0 */
/*
 * error: the code a caller acts on and the sentence a person reads.
 *
 * Why:     checkpoints fail on worker threads, hours after the call that started them; a
 *          thread-local or global last error would be read on the wrong thread.
 * Promise: 1   the return value alone decides control flow; CAIRN_OK is 0.
 *          2   the struct is untouched on success, filled on failure, and may be NULL.
 *          3   failing allocates nothing.
 *          4   message and request_id are valid UTF-8 without control characters, whatever names
 *              and replies they quote: other bytes appear as \xNN.
 *          5   run, step and rank of a failure travel in the struct's copies (cairn_error_about).
 * Limits:  messages are one line of at most 319 bytes. A longer message loses its middle ("..."),
 *          long names first; its beginning says where it failed and its end what to do.
 * Threads: a struct belongs to its caller; the functions here only read constant tables.
 * Next:    cairn/codes.h for every code; cairn/cairn.h for the calls that return them.
 */
#ifndef CAIRN_ERROR_H
#define CAIRN_ERROR_H

#include <stdint.h>

#include <cairn/codes.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/* Layout is frozen for a major version of the library. */
struct cairn_error {
    enum cairn_code code;
    int os_errno;        /* 0: the operating system was not involved */
    int http_status;     /* 0: no reply arrived */
    const char *origin;  /* file:line of the first failure; static storage */
    char request_id[48]; /* the store's request id, for its operator; may be empty */
    char message[320];   /* one line, outermost context first */
};

/* What the failed call was about, as far as it is known. */
struct cairn_error_about {
    char run[258]; /* "project/run"; "": unknown */
    uint64_t step;
    uint32_t rank;
    int has_step, has_rank; /* 0: unknown, and the field above is 0 */
};
/* Returns 1, or 0 if nothing is known, as of a message of more than 287 bytes, which needs that
 * room. *ret is written in both cases. err is a struct that a call of this process filled, or a
 * copy of it. */
int cairn_error_about(const struct cairn_error *err, struct cairn_error_about *ret);

/* A code's meaning; static storage, never NULL. */
struct cairn_code_info {
    const char *name;    /* "STALE_ATTEMPT" */
    const char *slug;    /* "stale-attempt": the `code` of a problem+json body */
    int http_status;     /* the status the server answers with */
    int retryable;       /* 1: the same call may succeed later without a change */
    int exit_status;     /* exit status of `cairn` */
    const char *meaning; /* one sentence for a person */
};

const struct cairn_code_info *cairn_code_info(enum cairn_code code);

/* Iterates over the codes, for other languages: index is the code's number; NULL past the last. */
const struct cairn_code_info *cairn_code_at(unsigned index);

/* The code of a slug; CAIRN_INTERNAL for an unknown slug. */
enum cairn_code cairn_code_from_slug(const char *slug);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
