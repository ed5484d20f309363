/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attempts: grants for attempts, requested by a helper thread; and memory for saves.
 *
 * Why:     new trainers and those that reconnect after a restart send the server the same request.
 * Promise: Q2  the call names the newest attempt seen (`after`), and is repeated when another was
 *              opened in between, within the caller's timeout.
 *          Q5  the grant is journaled before any answer has it.
 *          G   ranks of this node that open the same attempt share one call: one thread waits.
 * Limits:  one per session at a time.
 * Threads: a call is owned by the helper, then by the socket's thread.
 * Next:    uploader/trainers/session.c.
 */
#pragma once

#include "uploader/mail.h"
#include "uploader/trainers/session.h"

void cairn_up_attempt_calls_free(struct cairn_up *up); /* at the end of the process */
/* Q51: a call's timeout for a trainer that waits left_ms, at most the server's minute. */
uint32_t cairn_up_attempt_call_timeout_ms(uint64_t left_ms);
