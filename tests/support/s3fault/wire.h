/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire: one connection as bytes, plain or TLS, which can be cut and slowed at any byte.
 *
 * Why:     no HTTP library lets a test end a reply with RST after its 17th byte.
 * Promise: 1   reset ends the connection with RST, finish with FIN after all that was sent.
 *          2   a bytes-per-second cap holds for each direction of this connection, another one for
 *              what all connections together send.
 * Limits:  a receive waits 120 s.
 * Threads: one owner.
 * Next:    message.h for what the bytes say.
 */
#pragma once

#include <openssl/ssl.h>
#include <sys/types.h>

#include "common/error.h"

#define S3F_HEAD_BYTES_MAX (64 * CAIRN_KIB)

struct s3f_cap {
    uint64_t bytes_per_s;
    _Atomic uint64_t owed_until_us;
};
struct s3f_wire {
    int fd;
    SSL *ssl; /* NULL: plain */
    uint64_t cap_bytes_per_s;
    struct s3f_cap *all;       /* of all connections together, for what is sent; NULL: none */
    uint64_t owed_until_us[2]; /* when what was received and sent so far would be through */
    char *buffer;              /* S3F_HEAD_BYTES_MAX: bytes that came beyond a head */
    size_t buffer_from, buffer_size;
    uint64_t sent_bytes; /* handed to the kernel */
};

/* 0: ended; negative: broken. What stands in the buffer comes first. */
ssize_t s3f_wire_receive(struct s3f_wire *wire, void *to, size_t size);
/* Read on into the buffer; false when it is full, ended or broken. */
bool s3f_wire_fill(struct s3f_wire *wire);
bool s3f_wire_send(struct s3f_wire *wire, const void *data, size_t size, bool more);
/* Wait while the peer is there; ms 0 = until it goes away (at most ten minutes). False: it went. */
bool s3f_wire_hold(struct s3f_wire *wire, uint32_t ms);
void s3f_wire_reset(struct s3f_wire *wire);
/* politely: TLS says that this is the end, as a whole reply wants it. */
void s3f_wire_finish(struct s3f_wire *wire, bool politely);
