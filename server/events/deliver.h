/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deliver: delivers events to webhooks over HTTP, signed, with retries.
 *
 * Why:     a program that reacts to a checkpoint (an evaluation, a chat, a mirror) wants to be
 *          called, and must not miss an event because it or the server was down.
 * Promise: W01  each selected event is delivered at least once, in the order of the numbers, across
 *               restarts and kill -9 of the server, with the same id each time.
 *          W02  an event that is not accepted (no answer, or a status other than 2xx) is retried
 *               with growing pauses; after webhook-give-up it becomes a dead letter, kept and
 *               shown, and the next event is tried.
 *          W03  a receiver that is down or slow delays no other.
 *          W04  of several servers over one catalog, one delivers to a webhook at a time.
 *          W05  events trimmed before delivery are counted and logged.
 *          P16  the body is signed (HMAC-SHA256 over id, time and body); a receiver's secret, path
 *               and query appear in no log, answer or error. A file with secrets that everybody can
 *               read is refused.
 *          1    an invalid member, event or secret in the file is reported with its place; the
 *               server does not start with such a file.
 * Limits:  32 webhooks, a thread and a connection each; one event in flight for each, at most 10 s;
 *          redirects are not followed.
 * Threads: one for each webhook; the functions on any.
 * Next:    server/events/deliver.c, server/ledger/events.h; docs/webhooks.md.
 */
#pragma once

#include "server/server.h"

/* Loads the file without starting threads; *ret is set also if there is no file. */
enum cairn_code srv_webhooks_new(struct srv *server, struct srv_webhooks **ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code srv_webhooks_start(struct srv_webhooks *webhooks,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Loads the file again; an invalid file is logged and changes nothing. */
void srv_webhooks_reload(struct srv_webhooks *webhooks);
void srv_webhooks_free(struct srv_webhooks *webhooks); /* stops; accepts NULL */
