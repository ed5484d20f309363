/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: the places keys come from; for this room alone.
 *
 * Why:     five sources with one shape can be tried in order and renewed alike.
 * Promise: 1   *ret_found stays false when a source is not configured; then nothing was asked.
 *          2   a source that is configured and fails says which one and why, without a value.
 * Limits:  as in store/keys/credentials.h; a source takes at most 5 s an answer, a program 60 s.
 * Threads: stateless; called by one thread at a time per provider.
 * Next:    store/keys/credentials.c.
 */
#pragma once

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

/* ---- STS ---- */

/* What AssumeRoleWithWebIdentity needs. */
struct cairn_web_identity {
    const char *role_arn, *token_file;
    const char *session_name; /* NULL: "cairn" */
};
enum cairn_code cairn_credentials_assume(const struct cairn_credentials_options *options,
                                         const struct cairn_web_identity *identity,
                                         struct cairn_credentials *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* What AssumeRole needs. NULL: not said. */
struct cairn_role {
    const char *arn, *session_name, *external_id, *duration_s;
};
/* by: the keys that may assume it. */
enum cairn_code cairn_credentials_assume_role(const struct cairn_credentials_options *options,
                                              const struct cairn_role *role,
                                              const struct cairn_credentials *by,
                                              struct cairn_credentials *ret,
                                              struct cairn_error *err) CAIRN_MUST_USE;

/* ---- programs ---- */

/* Runs the command, which prints keys as AWS's "credential_process" does. No shell is asked; quotes
 * and backslashes part words as in one. timeout_ms 0: 60 s. */
enum cairn_code cairn_credentials_process(const char *command, uint32_t timeout_ms,
                                          struct cairn_credentials *ret,
                                          struct cairn_error *err) CAIRN_MUST_USE;
