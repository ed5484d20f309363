/* SPDX-License-Identifier: Apache-2.0 */
/*
 * webhooks: events are told to receivers over HTTP, signed, until they have taken them.
 *
 * Why:     a program that reacts to a checkpoint (an evaluation, a chat, a mirror) wants to be
 *          called, and must not miss one because it or the server was away.
 * Promise: W01  each event that a webhook wants is delivered at least once, in the order of the
 *               numbers, over restarts and kill -9 of the server; it has the same id each time.
 *          W02  one that is not taken (no answer, or another status than 2xx) is tried again with
 *               growing pauses; after webhook-give-up it is a dead letter, shown and kept, and the
 *               next one is tried.
 *          W03  a receiver that is away or slow holds up no other one.
 *          W04  of several servers over one catalog one tells a webhook at a time.
 *          W05  events that were trimmed before they could be told are counted, and logged.
 *          P16  the body is signed (HMAC-SHA256 over id, time and body); no secret, path or query
 *               of a receiver is logged, answered or put into an error.
 * Limits:  CAIRN_SRV_WEBHOOKS_MAX webhooks, a thread and a connection each; one event of it is
 *          under way at a time, for 10 s at most; redirects are not followed.
 * Threads: one of its own for each webhook; the rest on any.
 * Next:    server/events/webhook_file.h, server/ledger/events.h, server/events/webhook_calls.c.
 */
#pragma once

#include "server/events/webhook_file.h"
#include "server/server.h"

/* Loads the file; *ret is there also where it has none. Nothing is told yet. */
enum cairn_code cairn_srv_webhooks_new(struct cairn_srv *server, struct cairn_srv_webhooks **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_webhooks_start(struct cairn_srv_webhooks *webhooks,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Reads the file again; one that cannot be read changes nothing, and is logged. */
void cairn_srv_webhooks_reload(struct cairn_srv_webhooks *webhooks);
void cairn_srv_webhooks_free(struct cairn_srv_webhooks *webhooks); /* stops; NULL is fine */
/* Look now: a letter is to be tried once more. */
void cairn_srv_webhooks_wake(struct cairn_srv_webhooks *webhooks, const char *name);
/* NULL: no webhook here has that name. */
const struct cairn_srv_webhook *cairn_srv_webhooks_find(const struct cairn_srv_webhooks *webhooks,
                                                        const char *name);
const struct cairn_srv_webhook_file *
cairn_srv_webhooks_file(const struct cairn_srv_webhooks *webhooks);
/* After so many tries of one event have failed; bits are random. */
uint64_t cairn_srv_webhook_pause_ms(uint64_t failures, uint64_t longest_ms, uint64_t bits);
