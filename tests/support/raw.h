/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raw: one TCP connection, byte by byte.
 *
 * Why:     what an HTTP client would never send is what a server must be tested with.
 * Promise: 1   everything has a time-out; a test never hangs on its peer.
 * Limits:  replies of 1 MiB.
 * Threads: one owner.
 * Next:    tests/server/test_http.c.
 */
#pragma once

#include "common/buf.h"

struct cairn_raw {
    int fd;
};
bool cairn_raw_open(struct cairn_raw *raw, uint16_t port);
void cairn_raw_release(struct cairn_raw *raw);
/* False when the peer has closed or reset. */
bool cairn_raw_send(struct cairn_raw *raw, const void *data, size_t size);
bool cairn_raw_text(struct cairn_raw *raw, const char *text);
/* Bytes up to and with the end of one reply (by its Content-Length; without: until the end).
 * Returns its status, 0 when the peer closed without one, -1 when nothing came in wait_ms. */
int cairn_raw_reply(struct cairn_raw *raw, uint32_t wait_ms, struct cairn_buf *ret);
/* Appends what comes next, at least a byte; false at the end or after wait_ms. */
bool cairn_raw_more(struct cairn_raw *raw, uint32_t wait_ms, struct cairn_buf *ret);
/* Did the peer close (or reset) within wait_ms? */
bool cairn_raw_closed(struct cairn_raw *raw, uint32_t wait_ms);
/* The port of this end. */
uint16_t cairn_raw_port(const struct cairn_raw *raw);
/* A connection as the system sees it from one side; false: there is none. */
struct cairn_raw_queues {
    unsigned sending, unread; /* bytes in the queues of that side */
    unsigned timer;           /* 2: keep-alive */
};
bool cairn_raw_queues(uint16_t from, uint16_t to, struct cairn_raw_queues *ret);
/* How many connections the server at that port holds open, also those whose peer has gone. */
unsigned cairn_raw_held(uint16_t server);
/* The server at that port has read all that anybody of this machine has sent there. */
bool cairn_raw_all_read(uint16_t server);
/* Opens one and asks for a stream of events, behind the one of that number (0: from now on). */
bool cairn_raw_ask_events(struct cairn_raw *raw, uint16_t port, const char *path, uint64_t after);
/* Appends what comes until the text is there. */
bool cairn_raw_until(struct cairn_raw *raw, struct cairn_buf *got, const char *text,
                     uint32_t within_ms);
/* Send one request on a connection of its own; the status of its reply, as above. */
int cairn_raw_exchange(uint16_t port, const void *request, size_t size, struct cairn_buf *ret);
