/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deliver: events are told to webhooks over HTTP, signed, until they have taken them.
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
 *               of a receiver is logged, answered or put into an error. A file with secrets that
 *               everybody can read is refused.
 *          1    a member, an event or a secret of the file that is none is named with its place;
 *               the server does not start with such a file.
 * Limits:  32 webhooks, a thread and a connection each; one event of it is under way at a time, for
 *          10 s at most; redirects are not followed.
 * Threads: one of its own for each webhook; the rest on any.
 * Next:    server/events/deliver.c, server/ledger/events.h; docs/webhooks.md.
 */
#pragma once

#include "server/server.h"

/* Loads the file; *ret is there also where it has none. Nothing is told yet. */
enum cairn_code cairn_srv_webhooks_new(struct cairn_srv *server, struct cairn_srv_webhooks **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_webhooks_start(struct cairn_srv_webhooks *webhooks,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Reads the file again; one that cannot be read changes nothing, and is logged. */
void cairn_srv_webhooks_reload(struct cairn_srv_webhooks *webhooks);
void cairn_srv_webhooks_free(struct cairn_srv_webhooks *webhooks); /* stops; NULL is fine */
