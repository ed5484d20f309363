/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config: merges URL, options, environment and profile into one checked set of settings.
 *
 * Why:     one place decides where requests go, so that nothing later can send a signed request
 *          elsewhere. A program's stores may lie in several S3s.
 * Promise: 1   an endpoint with a user, a query, another scheme than http(s), a metadata service's
 *              address, or http to another machine (unless allowed) is refused.
 *          2   urls are built from the checked endpoint, the bucket and the encoded key alone.
 *          3   with a profile in the store's URL, endpoint, region, certificates and keys come from
 *              that profile and the URL only: no option or variable sends its keys elsewhere, or
 *              other keys to its endpoint.
 *          4   an unknown or repeated option in a URL is CAIRN_INVALID with its name and the list
 *              of known ones (store/s3/url.def); so are an empty value, a bad escape and an
 *              impossible byte. Values are percent-decoded; bucket and prefix are not.
 *          5   no error holds a value of a URL, or text before an '@': either may be a secret.
 * Limits:  hosts of 255 bytes; URLs of 1,000 bytes; prefixes of 256.
 * Threads: immutable after init.
 * Next:    store/s3/url.def, store/s3/request.c.
 */
#pragma once

#include "common/error.h"
#include "store/keys/credentials.h"
#include "store/s3/s3.h"

struct cairn_s3_config {
    struct cairn_store_s3_options options; /* texts live in `owned` */
    char *owned[16];
    size_t owned_count;
    char **interfaces;
    char bucket[256], prefix[512]; /* prefix is "" or ends with '/' */
    const char *query;             /* the URL's options, as given; NULL: none */
    char region[64];
    char scheme[8], host[300], base_path[256]; /* host with port; base_path "" or "/x" */
    bool is_aws;                               /* the endpoint follows the region */
    struct cairn_aws_switches switches;        /* for AWS's own endpoints */
    bool by_path;
    bool profile_alone;        /* promise 3; options.profile is the URL's */
    bool checksum_if_required; /* AWS's switch says "when_required", and no setting overrides it */
    const char *sts_endpoint;  /* with profile_alone: the profile's, in `owned`; NULL: AWS's */
};
/* Receives the host for a region; config->host where the endpoint was given. */
struct cairn_s3_host {
    char text[400];
};
enum cairn_code cairn_s3_config_init(struct cairn_s3_config *config, const char *url,
                                     const struct cairn_store_s3_options *options,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Checks settings or URL options; the error holds no value (config.h#5). NULL and "": not given. */
enum cairn_code cairn_s3_encryption_check(const char *sse, const char *key,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Checks settings: known words only, and no ACL that makes objects public. */
enum cairn_code cairn_s3_sharing_check(const char *acl, const char *request_payer,
                                       struct cairn_error *err) CAIRN_MUST_USE;
void cairn_s3_config_release(struct cairn_s3_config *config);
void cairn_s3_config_host(const struct cairn_s3_config *config, const char *region,
                          struct cairn_s3_host *ret);
/* Decoded path of one of our keys (without the prefix); key NULL: of the bucket. */
enum cairn_code cairn_s3_config_path(const struct cairn_s3_config *config, const char *key,
                                     struct cairn_buf *ret, struct cairn_error *err) CAIRN_MUST_USE;

/* Index of word in words; count if absent. */
static inline size_t cairn_s3_place_of(const char *word, const char *const *words, size_t count) {
    size_t i = 0;
    while (i < count && strcmp(word, words[i]) != 0) i++;
    return i;
}

/* ---- parsing s3://bucket/prefix?name=value&... ---- */

#define CAIRN_S3_URL_BYTES_MAX 1000

struct cairn_s3_url {
    char bucket[256], prefix[512]; /* prefix is "" or ends with '/' */
    const char *query;             /* points into the parsed text; "": none */
#define OPTION(name, bytes, what) char name[bytes + 1];
#include "store/s3/url.def"
#undef OPTION
};
/* Parses an s3:// URL; a value of "" was not given. */
enum cairn_code cairn_s3_url_parse(const char *text, struct cairn_s3_url *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Length of the part of an s3:// URL before its options and their '?'. */
size_t cairn_s3_url_place_size(const char *text);
