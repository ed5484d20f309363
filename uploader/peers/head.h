/* SPDX-License-Identifier: Apache-2.0 */
/*
 * head: the head of one request of a peer, read strictly.
 *
 * Why:     a port that other machines reach takes one spelling of what it understands, so that
 *          nothing is read in two ways by it and by whatever stands before it.
 * Promise: 1   HTTP/1.1 with Host, GET or PUT, a path of unreserved characters, one range
 *              "bytes=FIRST-LAST", a Content-Length in digits; each of these headers once.
 *          2   line ends are CRLF; a space before a colon, a folded line, a control character and
 *              any transfer coding are refused.
 *          3   a refusal is the status to answer; nothing behind a refused head is read.
 * Limits:  CAIRN_UP_HEAD_BYTES_MAX and CAIRN_UP_HEAD_LINES_MAX lines.
 * Threads: stateless.
 * Next:    uploader/peers/port.h.
 */
#pragma once

#include "common/error.h"

#define CAIRN_UP_HEAD_BYTES_MAX 8192
#define CAIRN_UP_HEAD_LINES_MAX 32
#define CAIRN_UP_PATH_BYTES_MAX 1024

struct cairn_up_head {
    char method[8];
    char path[CAIRN_UP_PATH_BYTES_MAX];
    char range[64];  /* as it came; "" for none */
    char right[512]; /* the value of Authorization; "" for none */
    char nonce[33];  /* of Cairn-Nonce: 32 hex digits; "" for none */
    uint64_t first, last;
    bool has_range, has_body, closes;
    uint64_t body_bytes;
};
/* text ends with the empty line. 0, or the status of the refusal. */
int cairn_up_head_read(struct cairn_view text, struct cairn_up_head *ret);
