/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grant: the text, signed by the server, by which an attempt may write (a capability).
 *
 * Why:     an uploader works for hours while the server is away, for trainers that may be gone; it
 *          needs a right that is checked without a login and that a newer attempt makes void.
 * Promise: 1   text is "cairn1:<store uuid>:<project>/<run>:<attempt>:<nonce>:<hmac hex>"; check
 *              takes nothing that this key did not sign, in constant time.
 *          2   parse reads the fields without the key; it proves nothing.
 * Limits:  CAIRN_GRANT_BYTES_MAX.
 * Threads: stateless.
 * Next:    protocol rules Q2-Q6 in docs/protocol.md.
 */
#pragma once

#include "api/keys.h"

#define CAIRN_GRANT_BYTES_MAX 512
#define CAIRN_GRANT_KEY_BYTES 32

struct cairn_grant {
    char store_uuid[CAIRN_UUID_TEXT_BYTES];
    struct cairn_run_name name;
    uint64_t attempt;
    char nonce[CAIRN_NONCE_TEXT_BYTES];
};
void cairn_grant_sign(const struct cairn_grant *grant, const uint8_t key[CAIRN_GRANT_KEY_BYTES],
                      char ret_text[CAIRN_GRANT_BYTES_MAX]);
enum cairn_code cairn_grant_parse(const char *text, struct cairn_grant *ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_grant_check(const char *text, const uint8_t key[CAIRN_GRANT_KEY_BYTES],
                                  struct cairn_grant *ret, struct cairn_error *err) CAIRN_MUST_USE;
