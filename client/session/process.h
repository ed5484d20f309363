/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process: what belongs to the process and not to one session: its nonce, how often it has begun
 * each step, which of those begins are settled, and the descriptors that a forked child must not
 * keep.
 *
 * Why:     a session may be closed and opened again under the same job; its counts must go on, or
 *          two saves of one step would get one version id. And a forked data loader that keeps the
 *          socket would hide the trainer's death from the uploader.
 * Promise: Q2c  the nonce is drawn once per process and again in a forked child.
 *          Q8c  count never gives one number twice for the same attempt, rank and step. An attempt
 *              is recognised by its nonce: numbers repeat from one server to another.
 *          Q12c  counts has no begin that may still reach an uploader: one is settled when its
 *              save is over or its session closed.
 *          K10a  descriptors that are watched are closed in a forked child.
 * Limits:  256 descriptors are watched; further ones are inherited by children. counts has the
 *          last CAIRN_CLIENT_REPORTED_STEPS_MAX steps of the last
 *          CAIRN_CLIENT_REPORTED_ATTEMPTS_MAX attempts.
 * Threads: any thread; one mutex of its own, held for look-ups only and across fork, so that the
 *          child finds it free.
 * Next:    client/session/session.h.
 */
#pragma once

#include "common/error.h"
#include "common/json.h"
#include "common/trace.h"

#define CAIRN_CLIENT_REPORTED_STEPS_MAX 1024
#define CAIRN_CLIENT_REPORTED_ATTEMPTS_MAX 4

void cairn_client_process_nonce(char ret_text[CAIRN_UUID_TEXT_BYTES]);
/* Which counter; the text is copied. */
struct cairn_client_counter {
    const char *nonce; /* of the attempt */
    uint32_t rank;
};
/* The next n of this step, from 1. Only CAIRN_NO_MEMORY fails. */
enum cairn_code cairn_client_process_count(const struct cairn_client_counter *counter,
                                           uint64_t step, uint32_t *ret_n,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* That begin reaches no uploader any more, but for the report of its failure. Idempotent. */
void cairn_client_process_settle(const struct cairn_client_counter *counter, uint64_t step,
                                 uint32_t n);
/* The field `counts` of `attempt` and `offer` (Q12), by the nonces of attempts:
 * {nonce: [[step, n], ...]}, the newest step last; or NULL. */
json_t *cairn_client_process_counts(uint32_t rank);
/* A descriptor of this process, readable with its end, for the caller to close; -1: this kernel, or
 * this container, has none. */
int cairn_client_process_fd(void);
void cairn_client_process_watch(int fd);
/* Before the descriptor is closed by its owner. */
void cairn_client_process_unwatch(int fd);
