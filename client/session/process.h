/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process: what belongs to the process and not to one session: its nonce, how often it has begun
 * each step, and the descriptors that a forked child must not keep.
 *
 * Why:     a session may be closed and opened again under the same job; its counts must go on, or
 *          two saves of one step would get one version id. And a forked data loader that keeps the
 *          socket would hide the trainer's death from the uploader.
 * Promise: Q2c  the nonce is drawn once per process and again in a forked child.
 *          Q8c  count never gives one number twice for the same attempt, rank and step. An attempt
 *              is recognised by its nonce: numbers repeat from one server to another.
 *          K10a  descriptors that are watched are closed in a forked child.
 * Limits:  256 descriptors are watched; further ones are inherited by children.
 * Threads: any thread; one mutex of its own, held for look-ups only and across fork, so that the
 *          child finds it free.
 * Next:    client/session/session.h.
 */
#pragma once

#include "common/error.h"
#include "common/id.h"

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
void cairn_client_process_watch(int fd);
/* Before the descriptor is closed by its owner. */
void cairn_client_process_unwatch(int fd);
