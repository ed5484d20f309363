/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process: per-process state: the nonce, how often each step was begun, which begins are settled,
 * and descriptors that a forked child must close.
 *
 * Why:     a session may be closed and reopened under the same job; its counts must continue, or
 *          two saves of one step would get the same version id. And a forked data loader that keeps
 *          the socket would hide the trainer's death from the uploader.
 * Promise: Q2c  the nonce is drawn once per process, and again in a forked child.
 *          Q8c  count never returns the same number twice for one attempt, rank and step. The nonce
 *               identifies an attempt: attempt numbers repeat between servers.
 *          Q12c counts omits begins that may still reach an uploader: a begin is settled when its
 *               save is over or its session closed.
 *          K10a watched descriptors are closed in a forked child.
 * Limits:  256 watched descriptors; children inherit further ones. counts keeps the last
 *          CAIRN_CLIENT_REPORTED_STEPS_MAX steps of the last CAIRN_CLIENT_REPORTED_ATTEMPTS_MAX
 *          attempts.
 * Threads: any thread; one mutex, held for look-ups and across fork, so that the child finds it
 *          free.
 * Next:    client/session/session.h.
 */
#pragma once

#include "common/error.h"
#include "common/json.h"
#include "common/trace.h"

#define CAIRN_CLIENT_REPORTED_STEPS_MAX 1024
#define CAIRN_CLIENT_REPORTED_ATTEMPTS_MAX 4

void cairn_client_process_nonce(char ret_text[CAIRN_UUID_TEXT_BYTES]);
/* Identifies a counter; the text is copied. */
struct cairn_client_counter {
    const char *nonce; /* of the attempt */
    uint32_t rank;
};
/* The step's next n, from 1. Fails only with CAIRN_NO_MEMORY. */
enum cairn_code cairn_client_process_count(const struct cairn_client_counter *counter,
                                           uint64_t step, uint32_t *ret_n,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* The begin can no longer reach an uploader, except as a failure report. Idempotent. */
void cairn_client_process_settle(const struct cairn_client_counter *counter, uint64_t step,
                                 uint32_t n);
/* Field `counts` of `attempt` and `offer` (Q12), by attempt nonce: {nonce: [[step, n], ...]}, the
 * newest step last; or NULL. */
json_t *cairn_client_process_counts(uint32_t rank);
/* Returns a pidfd of this process, readable at its end; the caller closes it. -1: the kernel or
 * container does not support it. */
int cairn_client_process_fd(void);
void cairn_client_process_watch(int fd);
/* Call before the owner closes the descriptor. */
void cairn_client_process_unwatch(int fd);
