/* SPDX-License-Identifier: Apache-2.0 */
/*
 * token: the text of a bearer token.
 *
 * Why:     the server makes it and must know it again without keeping it.
 * Promise: 1   a token is "cairn_", its id of 16 hex digits, "_", and 256 random bits as 64 hex
 *              digits; who knows the id knows nothing of the rest.
 * Limits:  -
 * Threads: stateless.
 * Next:    api/scope.h, server/access/access.h.
 */
#pragma once

#include "common/hash/hash.h"

#define CAIRN_TOKEN_ID_BYTES 17
#define CAIRN_TOKEN_TEXT_BYTES (6 + 16 + 1 + 64 + 1)

/* What is kept of a token: enough to know it again, not enough to make it. */
struct cairn_token_key {
    char id[CAIRN_TOKEN_ID_BYTES];
    uint8_t digest[CAIRN_SHA256_BYTES]; /* of the whole text */
};
/* A new one. The text is to be wiped after use. */
void cairn_token_make(void (*random)(void *ret_data, size_t size),
                      char ret_text[CAIRN_TOKEN_TEXT_BYTES], struct cairn_token_key *ret_key);
/* The same one of the same bytes; they are to be secret. */
#define CAIRN_TOKEN_SEED_BYTES 40
void cairn_token_make_of(const uint8_t seed[CAIRN_TOKEN_SEED_BYTES],
                         char ret_text[CAIRN_TOKEN_TEXT_BYTES], struct cairn_token_key *ret_key);
/* False: it is none. */
bool cairn_token_read(struct cairn_view text, struct cairn_token_key *ret);
