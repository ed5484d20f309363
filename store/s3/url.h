/* SPDX-License-Identifier: Apache-2.0 */
/*
 * url: s3://bucket/prefix?name=value&..., taken apart.
 *
 * Why:     stores of one program may lie in several S3s, so where each of them is must be sayable
 *          in the one text that names it.
 * Promise: 1   a name that store/s3/url.def has not, or one that is there twice, is CAIRN_INVALID
 *              with that name and the list of the known ones; so are an empty value, a bad escape
 *              and a byte that no such value holds.
 *          2   values are percent-decoded; bucket and prefix are taken as they stand.
 *          3   no error holds a value, or what stands before an '@': either may be a secret that
 *              somebody has put there by mistake.
 * Limits:  1,000 bytes; prefixes of 256.
 * Threads: values.
 * Next:    store/s3/url.def, store/s3/config.h.
 */
#pragma once

#include "common/error.h"

#define CAIRN_S3_URL_BYTES_MAX 1000

struct cairn_s3_url {
    char bucket[256], prefix[512]; /* prefix is "" or ends with '/' */
    const char *query;             /* of the text that was parsed; "": none */
#define OPTION(name, bytes, what) char name[bytes + 1];
#include "store/s3/url.def"
#undef OPTION
};
/* A value of it that is "" was not given. */
enum cairn_code cairn_s3_url_parse(const char *text, struct cairn_s3_url *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* How many bytes of an s3:// URL name the place; behind them stand its options, with their '?'. */
size_t cairn_s3_url_place_size(const char *text);
