/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kept: answers that are given again as they are, on the event loop.
 *
 * Why:     `latest` is asked by every node of every job again and again, and is the same until the
 *          catalog changes: a look, its JSON and two switches of threads for each cost five times
 *          what sending the bytes does.
 * Promise: 1   an answer is given again only while the catalog has the number of changes that it
 *              had before it was looked at, so it is never older than an acknowledged change.
 *          2   nobody gets one who was not judged by his own token, for this path, just before.
 *          3   none is kept, nor given, where other servers change the same catalog, or while
 *              anything is frozen (Q36).
 * Limits:  CAIRN_SRV_KEPT_MAX answers without a query, of 16 KiB at most; a newer one takes the
 *          place of an older one of the same hash.
 * Threads: any event loop; locked by server_kept.
 * Next:    server/http/reply.c keeps them, server/http/http.c gives them.
 */
#pragma once

#include "server/http/inside.h"

#define CAIRN_SRV_KEPT_MAX 512

enum cairn_code cairn_srv_kept_new(struct cairn_srv_kept **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_kept_free(struct cairn_srv_kept *kept); /* NULL is fine; no event loop runs */
/* After `response` was made of exchange->reply and was queued. true: the caller's reference of it
 * is the table's now. */
bool cairn_srv_kept_keep(const struct cairn_srv_exchange *exchange, struct MHD_Response *response,
                         uint64_t body_bytes);
/* false: it has to be asked for. */
bool cairn_srv_kept_give(const struct cairn_srv_exchange *exchange, enum MHD_Result *ret,
                         uint64_t *ret_body_bytes);
