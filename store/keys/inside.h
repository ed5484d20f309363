/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: the sources of keys; for this room alone.
 *
 * Why:     five sources with one shape can be tried in order and renewed alike.
 * Promise: 1   *ret_found stays false when a source is not configured; then nothing was sent.
 *          2   the error of a configured source names the source and the cause, without a value.
 * Limits:  as in store/keys/credentials.h; at most 5 s an answer, 60 s a program; answers of 256
 *          KiB with CAIRN_CREDENTIALS_HEADERS_MAX headers.
 * Threads: stateless; called by one thread at a time per provider.
 * Next:    store/keys/credentials.c.
 */
#pragma once

#include "common/json.h"
#include "store/keys/credentials.h"

typedef enum cairn_code cairn_credentials_loader(const struct cairn_credentials_options *options,
                                                 struct cairn_credentials *ret, bool *ret_found,
                                                 struct cairn_error *err);
struct cairn_credentials_source {
    const char *advice; /* what to do when a store calls the keys expired; mostly "" */
    cairn_credentials_loader *load;
};
cairn_credentials_loader cairn_credentials_environment, cairn_credentials_profile,
    cairn_credentials_web_identity, cairn_credentials_container, cairn_credentials_metadata;

/* ---- one request to a source of keys, and the forms of its answer ---- */

#define CAIRN_CREDENTIALS_ANSWER_BYTES_MAX (256 * CAIRN_KIB)
#define CAIRN_CREDENTIALS_ANSWER_MS 5000
#define CAIRN_CREDENTIALS_HEADERS_MAX 8

/* Overwrites the buffer before freeing it. */
void cairn_credentials_wipe(struct cairn_buf *buf);
#define CAIRN_SECRET_BUF __attribute__((cleanup(cairn_credentials_wipe))) struct cairn_buf

struct cairn_credentials_call {
    const char *source; /* for errors */
    const char *method, *url;
    const char *headers[CAIRN_CREDENTIALS_HEADERS_MAX];
    size_t header_count;
    struct cairn_view body;
    uint32_t ms;
    const char *ca_bundle;
    /* results */
    int status;    /* 0: no reply */
    bool reached;  /* a connection was made */
    char date[64]; /* the reply's Date; "" for none */
};
/* CAIRN_OK: status 200 with a whole body; else the error names the source. No error holds an
 * answer's bytes; of an error document it has the code only. */
enum cairn_code cairn_credentials_fetch(struct cairn_credentials_call *call, struct cairn_buf *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Keeps "name: value" in line, which must outlive the call. */
enum cairn_code cairn_credentials_add_header(struct cairn_credentials_call *call,
                                             struct cairn_buf *line, const char *name,
                                             const char *value,
                                             struct cairn_error *err) CAIRN_MUST_USE;
/* True for https, and for http to this machine and AWS's addresses for it. */
bool cairn_credentials_may_go_to(const char *url);
/* Loads a file with one token; trailing white space is dropped. */
enum cairn_code cairn_credentials_load_token(const char *path, struct cairn_buf *ret,
                                             struct cairn_error *err) CAIRN_MUST_USE;
/* Like cairn_json_parse, but errors do not quote the text. */
enum cairn_code cairn_credentials_parse(struct cairn_view text, json_t **ret_json,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* {"AccessKeyId": ..., "SecretAccessKey": ..., token_name: ..., "Expiration": ...} */
enum cairn_code cairn_credentials_take_json(const json_t *json, const char *token_name,
                                            struct cairn_credentials *ret,
                                            struct cairn_error *err) CAIRN_MUST_USE;
