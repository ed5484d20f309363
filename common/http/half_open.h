/* SPDX-License-Identifier: Apache-2.0 */
/*
 * half_open: kept connections whose peer has gone, without a FIN or in the middle of a body; for
 * this room alone.
 *
 * Why:     a machine that lost its power and a gateway that forgot a connection send neither FIN
 *          nor RST. The first request on such a connection waits until its own deadline, and so
 *          does the first one on the next.
 * Promise: 1   a request on a kept connection that has had no acknowledgement since it began is
 *              sent once more on a new one, after CAIRN_HTTP_HALF_OPEN_US and two retransmissions.
 *          2   so is one whose peer has sent its FIN and no reply before the body was taken whole.
 *          3   any other whose bytes were acknowledged is left alone, however long its reply takes.
 * Limits:  TCP alone. Once for each request, as for a kept connection that the peer has closed.
 * Threads: the engine's owner.
 * Next:    common/http/http.c.
 */
#pragma once

#include "common/http/inside.h"

#define CAIRN_HTTP_HALF_OPEN_US 1000000

/* When this transfer is to be looked at, mono clock; UINT64_MAX: never. */
uint64_t cairn_http_half_open_due_us(const struct cairn_http_transfer *transfer);
/* A transfer that is due: true when it must go on elsewhere. */
bool cairn_http_half_open_check(struct cairn_http_transfer *transfer);

/* libcurl names no socket of a request that is under way, so those that it opens and closes are
 * noted, and one is known again by its port. */
void cairn_http_half_open_add(struct cairn_http_engine *engine, int fd);
void cairn_http_half_open_remove(struct cairn_http_engine *engine, int fd);
