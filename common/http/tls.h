/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tls: gathers what OpenSSL writes, for links (common/http/link.h) over TLS.
 *
 * Why:     OpenSSL hands each record of 16 KiB to the kernel by itself and reads each in two calls;
 *          that is half of the CPU time of an upload over TLS. Gathered, 16 records go at once.
 * Promise: 1   records leave in the order OpenSSL made them, and none is dropped.
 *          2   a connection whose TLS is not this program's OpenSSL is left as it is.
 *          3   after the connection is given up nothing more is sent, no close_notify either.
 * Limits:  CAIRN_HTTP_TLS_BYTES a connection in each direction.
 * Threads: the engine's owner.
 * Next:    common/http/link.c.
 */
#pragma once

#include <curl/curl.h>

#include "common/base.h"

#define CAIRN_HTTP_TLS_BYTES (256 * CAIRN_KIB)

struct cairn_http_tls; /* belongs to the connection and ends with it */

/* Before the handshake. */
void cairn_http_tls_prepare(CURL *easy);
/* After it, while libcurl still holds the connection (CURLOPT_PREREQFUNCTION). NULL: left as it
 * is. Nothing may be written before _connected. */
struct cairn_http_tls *cairn_http_tls_gather(CURL *easy);
void cairn_http_tls_connected(struct cairn_http_tls *tls, int fd);
/* 0: all was sent. EAGAIN: not yet. Otherwise the errno of the connection's end. */
int cairn_http_tls_flush(struct cairn_http_tls *tls);
/* How much is with the kernel so far; whether more is to go. */
uint64_t cairn_http_tls_sent(const struct cairn_http_tls *tls);
bool cairn_http_tls_pending(const struct cairn_http_tls *tls);
