/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deaf: kept connections whose peer has gone without a word; for this room alone.
 *
 * Why:     a machine that lost its power and a gateway that forgot a connection send neither FIN
 *          nor RST. The first request on such a connection waits until its own deadline, and so
 *          does the first one on the next.
 * Promise: 1   a request on a kept connection that has had no acknowledgement since it began,
 *              after CAIRN_HTTP_DEAF_US and two retransmissions, is sent once more on a new one.
 *          2   one whose bytes were acknowledged is left alone, however long its reply takes.
 * Limits:  TCP alone. Once for each request, as for a kept connection that the peer has closed.
 * Threads: the engine's owner.
 * Next:    common/http/http.c.
 */
#pragma once

#include "common/http/inside.h"

#define CAIRN_HTTP_DEAF_US 1000000

/* When this transfer is to be looked at, mono clock; UINT64_MAX: never. */
uint64_t cairn_http_deaf_due_us(const struct cairn_http_transfer *transfer);
/* A transfer that is due: true when it must go on elsewhere. */
bool cairn_http_deaf_look(struct cairn_http_transfer *transfer);

/* libcurl names no socket of a request that is under way, so those that it opens and closes are
 * noted, and one is known again by its port. */
void cairn_http_deaf_add(struct cairn_http_engine *engine, int fd);
void cairn_http_deaf_remove(struct cairn_http_engine *engine, int fd);
