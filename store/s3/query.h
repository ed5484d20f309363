/* SPDX-License-Identifier: Apache-2.0 */
/*
 * query: one question to a bucket about itself, without retries.
 *
 * Why:     doctor looks at lifecycle, versioning and object lock, which no store's request reads.
 * Promise: 1   any answer is CAIRN_OK with its status; only a lost one fails.
 * Limits:  as store/s3/s3.h; one request.
 * Threads: any.
 * Next:    store/s3/bucket.h reads the answer.
 */
#pragma once

#include "store/s3/s3.h"

/* What a bucket says of itself: GET of its "lifecycle", "versioning" or "object-lock", tried once.
 * CAIRN_OK: there was an answer, of any status. */
struct cairn_store_s3_answer {
    int status;
    bool has_clock;
    int64_t clock_ahead_ms; /* the store's Date before ours, to a second */
    struct cairn_buf document;
};
enum cairn_code cairn_store_s3_query(struct cairn_store *store, const char *subresource,
                                     struct cairn_store_s3_answer *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
