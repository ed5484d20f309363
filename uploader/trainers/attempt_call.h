/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attempt_call: the right to save, asked of the server by a helper thread.
 *
 * Why:     a trainer that opens and one that comes again after the uploader's restart ask the
 *          server the same question.
 * Promise: Q2  the call names the newest attempt that was seen (`after`), and is made again when
 *              another was opened in between, within the caller's wait.
 *          Q5  the grant is in the journal before anybody hears of it.
 *          G   ranks of this node that open the same attempt ask in one call: one thread waits.
 * Limits:  one per session at a time.
 * Threads: owned by the helper, then by the socket's thread.
 * Next:    attempt_call.c.
 */
#pragma once

#include "uploader/mail.h"
#include "uploader/trainers/session.h"

struct cairn_up_attempt_call {
    struct cairn_up_attempt_call *next; /* in the same request, or waiting for the next one */
    struct cairn_up *up;
    struct cairn_up_mail_item item;
    uint64_t conn;
    int64_t request;
    char run_text[2 * CAIRN_NAME_BYTES_MAX + 2];
    uint32_t rank, world_size;
    char *job, *resume, *incarnation; /* owned; incarnation "": none is known */
    char proc[CAIRN_UUID_TEXT_BYTES];
    int process; /* as the session's; owned */
    char process_name[CAIRN_UP_PROCESS_BYTES];
    uint64_t wait_ms, answer_by_ms; /* as cairn_up_answer_by_ms() */
    json_t *counts; /* owned; what the process has counted (Q12), or NULL */
    /* the answer */
    enum cairn_code code;
    struct cairn_error error;
    char grant[CAIRN_GRANT_BYTES_MAX];
    bool found;
    uint64_t resume_step;
    char resume_version[CAIRN_VERSION_ID_BYTES];
    char *weights;                    /* owned; NULL: equal */
    struct cairn_up_attempt *attempt; /* one use of it */
    uint64_t entry;                   /* in the journal */
};
struct cairn_up_attempt_call *cairn_up_attempt_call_new(const struct cairn_up_session *session,
                                                        const char *job, const char *resume,
                                                        const char *incarnation);
void cairn_up_attempt_call_free(struct cairn_up_attempt_call *call);
/* The request that is under way for all calls that ask the same; later ones go with the next. */
struct cairn_up_attempt_batch;
void cairn_up_attempt_calls_free(struct cairn_up *up); /* at the end of the process */
/* Q51: how long the answer to one call is waited for, of a trainer that waits for left_ms more: a
 * server lets no call wait for longer than a minute, so later there is no answer to come. */
uint32_t cairn_up_attempt_call_timeout_ms(uint64_t left_ms);
/* Ask the server for all of a chain, of one attempt; fills grant and resume of each. */
enum cairn_code cairn_up_attempt_call_send(struct cairn_up_helper *helper,
                                           struct cairn_up_attempt_call *call,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* Journal it, join the attempt, fence older ones. */
enum cairn_code cairn_up_attempt_call_settle(struct cairn_up_attempt_call *call,
                                             struct cairn_error *err) CAIRN_MUST_USE;
/* Q12: how far the process says that its count has got, once the session has its attempt. */
void cairn_up_attempt_call_counts(const struct cairn_up_attempt_call *call,
                                  struct cairn_up_session *session);
/* The session has its attempt. Takes over one use of the attempt and the entry. */
void cairn_up_attempt_call_adopt(struct cairn_up_session *session,
                                 struct cairn_up_attempt *take_attempt, uint64_t take_entry);
/* The trainer went away meanwhile. */
void cairn_up_attempt_call_abandon(struct cairn_up_attempt_call *call);
