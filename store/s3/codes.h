/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codes: what an error code of a store means to Cairn.
 *
 * Why:     the words of a dozen kinds of stores must lead to one policy each.
 * Promise: 1   an unknown code is judged by its HTTP status.
 * Limits:  one table; no state.
 * Threads: constants.
 * Next:    store/s3/reply.c.
 */
#pragma once

#include "common/error.h"

enum cairn_s3_policy {
    CAIRN_S3_FINAL,     /* repeating changes nothing                    */
    CAIRN_S3_REPEAT,    /* the store failed                             */
    CAIRN_S3_ALTERED,   /* the body, or its checksum, arrived altered   */
    CAIRN_S3_SLOW_DOWN, /* the store wants less                         */
    CAIRN_S3_KEYS,      /* the keys have ended                          */
    CAIRN_S3_CLOCK,     /* our clock is off                             */
    CAIRN_S3_REGION,    /* the bucket is in another region              */
    CAIRN_S3_FEATURE,   /* it does not know something that was asked for */
};
struct cairn_s3_meaning {
    const char *name; /* of the store's code; NULL when judged by status */
    enum cairn_code code;
    enum cairn_s3_policy policy;
};
/* name may be "". */
struct cairn_s3_meaning cairn_s3_meaning_of(const char *name, int status);
