/* SPDX-License-Identifier: Apache-2.0 */
/*
 * credentials_source: the places keys come from; for store/credentials*.c alone.
 *
 * Why:     five sources with one shape can be tried in order and renewed alike.
 * Promise: S1  *ret_found stays false when a source is not configured; then nothing was asked.
 *          S2  a source that is configured and fails says which one and why, without a value.
 * Limits:  as in store/credentials.h; a source takes at most 5 s an answer.
 * Threads: stateless; called by one thread at a time per provider.
 * Next:    store/credentials.c.
 */
#pragma once

#include "store/credentials.h"

struct cairn_credentials_source {
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

/* What AssumeRoleWithWebIdentity needs. */
struct cairn_web_identity {
    const char *role_arn, *token_file;
    const char *session_name; /* NULL: "cairn" */
};
enum cairn_code cairn_credentials_assume(const struct cairn_credentials_options *options,
                                         const struct cairn_web_identity *identity,
                                         struct cairn_credentials *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* NULL when unset or empty. */
const char *cairn_credentials_variable(const char *name);
enum cairn_code cairn_credentials_set(struct cairn_credentials *ret, const char *access_key,
                                      const char *secret, const char *token,
                                      struct cairn_error *err) CAIRN_MUST_USE;
