/* SPDX-License-Identifier: Apache-2.0 */
/*
 * idempotency: what callers named with the header Idempotency-Key, and what was made for them.
 *
 * Why:     who got no answer to a POST sends it again; what each call makes anew (a token, an
 *          operation that has ended meanwhile) would be there twice.
 * Promise: 1   of two calls of one caller with the same key the second one makes nothing and is
 *              answered with what the first one made: the row stands in the same transaction.
 *          2   the same key with another method, path or body is CAIRN_KEY_REUSED, and nothing
 *              happens.
 *          3   one caller's keys are nothing to another one.
 * Limits:  CAIRN_SRV_IDEMPOTENCY_KEPT_MS, and the newest CAIRN_SRV_IDEMPOTENCY_MAX of a caller.
 * Threads: inside a transaction.
 * Next:    server/db/actor.h, server/handle.c.
 */
#pragma once

#include "common/hash.h"
#include "server/db/sql.h"

#define CAIRN_SRV_IDEMPOTENCY_KEPT_MS (INT64_C(24) * 3600 * 1000)
#define CAIRN_SRV_IDEMPOTENCY_MAX 1000
#define CAIRN_SRV_IDEMPOTENCY_KEY_MAX 255
#define CAIRN_SRV_SUBJECT_BYTES 128

/* Of a request; the texts are the request's. */
struct cairn_srv_idempotency {
    const char *caller, *key;
    uint8_t digest[CAIRN_SHA256_BYTES]; /* of method, path and body */
};

/* What was made with the key of the call that makes this change; "" where it has none, or nothing
 * was made yet. */
enum cairn_code cairn_srv_idempotency_find(struct cairn_srv_tx *tx,
                                           char ret_subject[CAIRN_SRV_SUBJECT_BYTES],
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* This is made with it; nothing where the call has no key. */
enum cairn_code cairn_srv_idempotency_keep(struct cairn_srv_tx *tx, const char *subject,
                                           struct cairn_error *err) CAIRN_MUST_USE;
