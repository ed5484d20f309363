/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sigv4: AWS Signature Version 4, in three stages that tests inspect one by one.
 *
 * Why:     a wrong signature says only "403"; separate stages let a test name the wrong one.
 * Promise: 1   names and values arrive decoded and are encoded once, so the signed text is what
 *              cairn_sigv4_path and _query put into the URL. Paths are not normalised: "//", "."
 *              and ".." are parts of an S3 key.
 *          2   a query is ordered by encoded name, then value; headers by name, equal names joined
 *              in order.
 *          3   the signing key is derived once per day, region and credential.
 *          4   no stage puts a secret into an error.
 * Limits:  CAIRN_SIGV4_PAIRS_MAX headers and as many parameters; presigned for 1 s to 7 days.
 * Threads: one owner per signer; the stages are stateless.
 * Next:    store/keys/credentials.h for the keys; docs of AWS, "Create a signed AWS API request".
 */
#pragma once

#include "common/buf.h"
#include "common/hash/hash.h"
#include "store/secret.h"

#define CAIRN_SIGV4_PAIRS_MAX 40
#define CAIRN_SIGV4_TIME_BYTES 17            /* "20130524T000000Z" */
#define CAIRN_SIGV4_SECRET_KEY_BYTES_MAX 256 /* AWS's have 40 */
#define CAIRN_SIGV4_UNSIGNED "UNSIGNED-PAYLOAD"
#define CAIRN_SIGV4_EXPIRES_S_MAX 604800

struct cairn_sigv4_pair {
    const char *name, *value; /* decoded; a header's name in any case */
};
struct cairn_sigv4_request {
    const char *method;
    const char *path; /* decoded, begins with '/' */
    const struct cairn_sigv4_pair *query;
    size_t query_count;
    const struct cairn_sigv4_pair *headers; /* to be signed; must include host */
    size_t header_count;
    const char *payload; /* SHA-256 of the body in hex, or CAIRN_SIGV4_UNSIGNED */
};
struct cairn_sigv4_scope {
    char time[CAIRN_SIGV4_TIME_BYTES];
    const char *region, *service;
};

void cairn_sigv4_time(int64_t wall_ms, char ret_text[CAIRN_SIGV4_TIME_BYTES]);
/* Stage 1. ret_names gets "host;x-amz-date", ret_canonical the whole text. */
enum cairn_code cairn_sigv4_canonical(const struct cairn_sigv4_request *request,
                                      struct cairn_buf *ret_canonical, struct cairn_buf *ret_names,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Stage 2. */
enum cairn_code cairn_sigv4_string_to_sign(const struct cairn_sigv4_scope *scope,
                                           struct cairn_view canonical, struct cairn_buf *ret,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* Stage 3. */
void cairn_sigv4_key(const struct cairn_sigv4_scope *scope, struct cairn_view secret,
                     uint8_t ret_key[CAIRN_SHA256_BYTES]);
void cairn_sigv4_signature(const uint8_t key[CAIRN_SHA256_BYTES], struct cairn_view string_to_sign,
                           char ret_hex[2 * CAIRN_SHA256_BYTES + 1]);

/* Path and query as in the URL; the query without '?', in canonical order. */
enum cairn_code cairn_sigv4_path(const char *path, struct cairn_buf *ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_sigv4_query(const struct cairn_sigv4_pair *pairs, size_t count,
                                  struct cairn_buf *ret, struct cairn_error *err) CAIRN_MUST_USE;

struct cairn_sigv4_signer {
    char access_key[256];
    struct cairn_secret secret, token; /* token may be empty */
    char region[64], service[32];
    char day[9]; /* of the cached key; "" for none */
    uint8_t key[CAIRN_SHA256_BYTES];
};
void cairn_sigv4_signer_release(struct cairn_sigv4_signer *signer);
/* The Authorization header. Needs headers host, x-amz-date (`time`), any x-amz-security-token. */
enum cairn_code cairn_sigv4_authorize(struct cairn_sigv4_signer *signer, const char *time,
                                      const struct cairn_sigv4_request *request,
                                      struct cairn_buf *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* The query of a presigned URL, signature last. request->query has the caller's parameters. */
enum cairn_code cairn_sigv4_presign(struct cairn_sigv4_signer *signer, const char *time,
                                    uint32_t expires_s, const struct cairn_sigv4_request *request,
                                    struct cairn_buf *ret, struct cairn_error *err) CAIRN_MUST_USE;
