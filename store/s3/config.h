/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config: URL, options, environment and profile, turned into one checked set of settings.
 *
 * Why:     where a request goes is decided once and in one place, so that nothing later can send
 *          a signed request anywhere else. Stores of one program may lie in several S3s, so the
 *          text that names a store can say where it is.
 * Promise: 1   an endpoint with a user, a query, another scheme than http(s), an address of a
 *              metadata service, or http to another machine (unless allowed) is refused.
 *          2   urls are built from the checked endpoint, the bucket and the encoded key alone.
 *          3   with a profile in the store's URL, endpoint, region, certificates and the source of
 *              keys are that profile's and the URL's: neither an option nor a variable of the
 *              environment sends its keys elsewhere, or others' keys to its endpoint.
 *          4   a name in a URL that store/s3/url.def has not, or one that is there twice, is
 *              CAIRN_INVALID with that name and the list of the known ones; so are an empty value,
 *              a bad escape and a byte that no such value holds. Values are percent-decoded; bucket
 *              and prefix are taken as they stand.
 *          5   no error holds a value of a URL, or what stands before an '@': either may be a
 *              secret that somebody has put there by mistake.
 * Limits:  hosts of 255 bytes; URLs of 1,000 bytes; prefixes of 256.
 * Threads: immutable after init.
 * Next:    store/s3/url.def, store/s3/request.c.
 */
#pragma once

#include "common/error.h"
#include "store/keys/credentials.h"
#include "store/s3/s3.h"

struct cairn_s3_config {
    struct cairn_store_s3_options options; /* texts owned by `owned` */
    char *owned[16];
    size_t owned_count;
    char **interfaces;
    char bucket[256], prefix[512]; /* prefix is "" or ends with '/' */
    const char *query;             /* the options of the URL, as given; NULL: none */
    char region[64];
    char scheme[8], host[300], base_path[256]; /* host with port; base_path "" or "/x" */
    bool is_aws;                               /* the endpoint follows the region */
    struct cairn_aws_switches switches;        /* of AWS's own endpoints */
    bool by_path;
    bool profile_alone;        /* promise 3; options.profile is that of the URL */
    bool checksum_if_required; /* AWS's switch says so, and no setting says otherwise */
    const char *sts_endpoint;  /* with it: the profile's, in `owned`; NULL: AWS's */
};
/* The host for a region goes here; same as config->host where the endpoint was given. */
struct cairn_s3_host {
    char text[400];
};
enum cairn_code cairn_s3_config_init(struct cairn_s3_config *config, const char *url,
                                     const struct cairn_store_s3_options *options,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Of settings and of a URL; no value is in the error (config.h#5). NULL and "": not given. */
enum cairn_code cairn_s3_encryption_check(const char *sse, const char *key,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Of settings: words that are known, and no ACL that shows objects to everybody. */
enum cairn_code cairn_s3_sharing_check(const char *acl, const char *request_payer,
                                       struct cairn_error *err) CAIRN_MUST_USE;
void cairn_s3_config_release(struct cairn_s3_config *config);
void cairn_s3_config_host(const struct cairn_s3_config *config, const char *region,
                          struct cairn_s3_host *ret);
/* Decoded path of a key of ours (without the prefix); key NULL: of the bucket. */
enum cairn_code cairn_s3_config_path(const struct cairn_s3_config *config, const char *key,
                                     struct cairn_buf *ret, struct cairn_error *err) CAIRN_MUST_USE;

/* The place of a word among words; count where it is none of them. */
static inline size_t cairn_s3_place_of(const char *word, const char *const *words, size_t count) {
    size_t i = 0;
    while (i < count && strcmp(word, words[i]) != 0) i++;
    return i;
}

/* ---- s3://bucket/prefix?name=value&..., taken apart ---- */

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
