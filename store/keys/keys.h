/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys: one set of keys: filled, checked, wiped.
 *
 * Why:     every source of keys fills the same struct and must refuse the same bytes.
 * Promise: 1   an access key id or a token that could change a header is CAIRN_INVALID.
 *          2   release wipes secret and token.
 * Limits:  255 bytes an id, 256 a secret.
 * Threads: stateless.
 * Next:    store/keys/credentials.h.
 */
#pragma once

#include "store/keys/credentials.h"

void cairn_credentials_release(struct cairn_credentials *credentials);

/* NULL when unset or empty. */
const char *cairn_credentials_variable(const char *name);
enum cairn_code cairn_credentials_set(struct cairn_credentials *ret, const char *access_key,
                                      const char *secret, const char *token,
                                      struct cairn_error *err) CAIRN_MUST_USE;
