/* SPDX-License-Identifier: Apache-2.0 */
/*
 * intake: the body of a request, received with its digests and its faults.
 *
 * Why:     benches send gigabytes here; each byte is looked at once, while it is in the cache.
 * Promise: 1   what was received is what is stored: a byte that a rule flips is flipped before any
 *              digest sees it.
 * Limits:  S3F_BODY_BYTES_MAX.
 * Threads: the connection's.
 * Next:    ops.h for what is done with it.
 */
#pragma once

#include "tests/support/s3fault/server.h"

#define S3F_BODY_BYTES_MAX (6 * CAIRN_GIB)

struct s3f_intake {
    struct s3f_body *body; /* the caller's reference; NULL when none was sent or kept */
    uint64_t received;
    char sha256[65]; /* "" when it was not asked for */
    enum {
        S3F_WHOLE,
        S3F_LEFT,  /* the peer went away */
        S3F_ENDED, /* a rule ended the connection */
        S3F_EARLY, /* a rule wants the answer now */
    } end;
};
/* False: there is no memory for it; nothing was received. */
bool s3f_take_in(struct s3f_connection *connection, const struct s3f_request *request,
                 const struct s3f_plan *plan, struct s3f_intake *ret);
/* Holds the body what its request says of it? False: reply says what does not. */
bool s3f_body_holds(struct s3f_server *server, const struct s3f_request *request,
                    const struct s3f_intake *intake, struct s3f_reply *reply);
/* base64 of four bytes, high byte first; ret_text holds 9 bytes. */
void s3f_checksum_text(uint32_t crc32c, char ret_text[16]);
