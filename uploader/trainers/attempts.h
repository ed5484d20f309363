/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attempts: the right to save, asked of the server by a helper thread; and memory to save from.
 *
 * Why:     a trainer that opens and one that comes again after the uploader's restart ask the
 *          server the same question.
 * Promise: Q2  the call names the newest attempt that was seen (`after`), and is made again when
 *              another was opened in between, within the caller's wait.
 *          Q5  the grant is in the journal before anybody hears of it.
 *          G   ranks of this node that open the same attempt ask in one call: one thread waits.
 * Limits:  one per session at a time.
 * Threads: a call is owned by the helper, then by the socket's thread.
 * Next:    uploader/trainers/session.c.
 */
#pragma once

#include "uploader/mail.h"
#include "uploader/trainers/session.h"

void cairn_up_attempt_calls_free(struct cairn_up *up); /* at the end of the process */
/* Q51: how long the answer to one call is waited for, of a trainer that waits for left_ms more: a
 * server lets no call wait for longer than a minute, so later there is no answer to come. */
uint32_t cairn_up_attempt_call_timeout_ms(uint64_t left_ms);
