/* SPDX-License-Identifier: Apache-2.0 */
/*
 * send: bytes of a source as the answer to a GET or HEAD, with its conditions and its range.
 *
 * Why:     a shard's data and a tensor's are answered by one rule (RFC 9110), and wait for the same
 *          slots.
 * Promise: 1   If-Match, If-None-Match, then Range with If-Range, in this order; a range that
 *              cannot be served is CAIRN_RANGE with Content-Range: bytes *, a slash and the size.
 *          2   more readers than slots take turns: the request waits for at most 20 s, then it is
 *              CAIRN_BUSY.
 * Limits:  one range a request.
 * Threads: one pool thread.
 * Next:    server/reads/range.h, server/reads/stream.h.
 */
#pragma once

#include "server/http/request.h"
#include "server/reads/source.h"

/* tag: its ETag, with quotes; what: what it is of, for people. */
enum cairn_code cairn_srv_send(struct cairn_srv_request *request, struct cairn_srv_reply *reply,
                               struct cairn_srv_source *take_source, const char *what,
                               const char *tag, struct cairn_error *err) CAIRN_MUST_USE;
