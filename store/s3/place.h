/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place: is it a store in S3, and where do its requests go?
 *
 * Why:     doctor and errors name the endpoint that is really asked.
 * Promise: 1   what is told is what requests use now, after a region was corrected.
 * Limits:  none of its own.
 * Threads: any.
 * Next:    store/s3/config.h.
 */
#pragma once

#include "common/http/http.h"
#include "store/s3/s3.h"

/* Where requests go: a bucket's name is in the host where addressing is "virtual". Any thread. */
struct cairn_store_s3_place {
    char endpoint[700], region[64];
    const char *addressing; /* "path", "virtual" */
};
bool cairn_store_s3_place(struct cairn_store *store, struct cairn_store_s3_place *ret);
/* Of the last request that got no reply. */
enum cairn_http_tls_fault cairn_store_s3_tls_fault(struct cairn_store *store);
