/* SPDX-License-Identifier: Apache-2.0 */
/*
 * direct: one request and its reply over a link, without a copy; for this room alone.
 *
 * Why:     parts of uploads and ranges of restores are nearly all the bytes that Cairn moves, and
 *          they lie in memory that is known beforehand.
 * Promise: 1   body bytes go from the caller's memory to the kernel (or to OpenSSL), and a body of
 *              known length from the kernel into the caller's memory.
 *          2   what is not HTTP/1.0 or 1.1 as RFC 9112 writes it is CAIRN_PROTOCOL: a line end, a
 *              length, a chunk or a coding that could be read in two ways.
 *          3   a link is kept only when request and reply both went over it whole and nothing
 *              more; otherwise it is dropped.
 *          4   a kept link that turns out to be dead before the first byte of a reply is replaced
 *              once, by a new one (request->starts tells).
 *          5   a reply that refuses (300 and above) ends the request at once, body sent or not, and
 *              is found even when the peer has reset the connection behind it.
 * Limits:  lines of CAIRN_HTTP_LINK_INPUT_BYTES; no Unix socket, no HEAD, no 100-continue.
 * Threads: the engine's owner.
 * Next:    common/http/http.c runs it.
 */
#pragma once

#include "common/http/link.h"

/* Checks the request and writes its head. */
enum cairn_code cairn_http_direct_prepare(struct cairn_http_transfer *transfer,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* On a kept link or a new one. */
enum cairn_code cairn_http_direct_start(struct cairn_http_transfer *transfer,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* On a new link, where its kept one is dead (direct.h#4); false: it may not, and goes on as it is.
 * */
bool cairn_http_direct_replace(struct cairn_http_transfer *transfer);
/* Moves what can be moved now; may end the request. */
void cairn_http_direct_step(struct cairn_http_transfer *transfer);
/* What its link waits for, in CURL_WAIT_ flags; not to send while the pace forbids it. */
short cairn_http_direct_events(const struct cairn_http_transfer *transfer);
/* When a paced request may go on, mono clock; UINT64_MAX: it waits for its link alone. */
uint64_t cairn_http_direct_due_us(const struct cairn_http_transfer *transfer);
/* The peer took bytes since the last look though none was handed over: it is slow, not dead. */
bool cairn_http_direct_drains(struct cairn_http_transfer *transfer);
