/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: the places keys come from; for this room alone.
 *
 * Why:     five sources with one shape can be tried in order and renewed alike.
 * Promise: 1   *ret_found stays false when a source is not configured; then nothing was asked.
 *          2   a source that is configured and fails says which one and why, without a value.
 * Limits:  as in store/keys/credentials.h; a source takes at most 5 s an answer, a program 60 s;
 *          answers of 256 KiB with CAIRN_CREDENTIALS_HEADERS_MAX headers.
 * Threads: stateless; called by one thread at a time per provider.
 * Next:    store/keys/credentials.c.
 */
#pragma once

#include "common/json.h"
#include "store/keys/credentials.h"

struct cairn_credentials_source {
    const char *advice; /* what a person can do when a store calls its keys ended; "" mostly */
    enum cairn_code (*load)(const struct cairn_credentials_options *options,
                            struct cairn_credentials *ret, bool *ret_found,
                            struct cairn_error *err);
};
enum cairn_code cairn_credentials_environment(const struct cairn_credentials_options *options,
                                              struct cairn_credentials *ret, bool *ret_found,
                                              struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_credentials_profile(const struct cairn_credentials_options *options,
                                          struct cairn_credentials *ret, bool *ret_found,
                                          struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_credentials_web_identity(const struct cairn_credentials_options *options,
                                               struct cairn_credentials *ret, bool *ret_found,
                                               struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_credentials_container(const struct cairn_credentials_options *options,
                                            struct cairn_credentials *ret, bool *ret_found,
                                            struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_credentials_metadata(const struct cairn_credentials_options *options,
                                           struct cairn_credentials *ret, bool *ret_found,
                                           struct cairn_error *err) CAIRN_MUST_USE;

/* ---- one question to a source of keys, and the forms of its answer ---- */

#define CAIRN_CREDENTIALS_ANSWER_BYTES_MAX (256 * CAIRN_KIB)
#define CAIRN_CREDENTIALS_ANSWER_MS 5000
#define CAIRN_CREDENTIALS_HEADERS_MAX 8

/* A buffer that is overwritten before its memory is given back. */
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
    /* set by _fetch */
    int status;    /* 0: no reply */
    bool reached;  /* a connection was made */
    char date[64]; /* what the reply says of its clock; "" when nothing */
};
/* CAIRN_OK is status 200 with a whole body; anything else names the source. An answer's bytes are
 * in no error; of an error document its code alone is told. */
enum cairn_code cairn_credentials_fetch(struct cairn_credentials_call *call, struct cairn_buf *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* line keeps "name: value" and must outlive the call. */
enum cairn_code cairn_credentials_add_header(struct cairn_credentials_call *call,
                                             struct cairn_buf *line, const char *name,
                                             const char *value,
                                             struct cairn_error *err) CAIRN_MUST_USE;
/* https; or http where nobody else can listen: this machine and the addresses AWS gives to it. */
bool cairn_credentials_may_go_to(const char *url);
/* A file with one token; white space at its end is no part of it. */
enum cairn_code cairn_credentials_load_token(const char *path, struct cairn_buf *ret,
                                             struct cairn_error *err) CAIRN_MUST_USE;
/* Like cairn_json_parse, without the words at which it stopped. */
enum cairn_code cairn_credentials_parse(struct cairn_view text, json_t **ret_json,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* {"AccessKeyId": ..., "SecretAccessKey": ..., token_name: ..., "Expiration": ...} */
enum cairn_code cairn_credentials_take_json(const json_t *json, const char *token_name,
                                            struct cairn_credentials *ret,
                                            struct cairn_error *err) CAIRN_MUST_USE;
