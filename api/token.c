/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens as texts; see token.h. */
#include "api/token.h"

#include <stdio.h>

#include "common/text.h"

#define ID_BYTES 8
#define SECRET_BYTES 32
static const char start[] = "cairn_";

static void digest_of(struct cairn_view text, struct cairn_token_key *ret) {
    cairn_sha256_of(text, ret->digest);
}

_Static_assert(ID_BYTES + SECRET_BYTES == CAIRN_TOKEN_SEED_BYTES, "the seed is both");

void cairn_token_make_of(const uint8_t seed[CAIRN_TOKEN_SEED_BYTES],
                         char ret_text[CAIRN_TOKEN_TEXT_BYTES], struct cairn_token_key *ret_key) {
    char hex[2 * SECRET_BYTES + 1];
    cairn_hex_encode(seed, ID_BYTES, ret_key->id);
    cairn_hex_encode(seed + ID_BYTES, SECRET_BYTES, hex);
    snprintf(ret_text, CAIRN_TOKEN_TEXT_BYTES, "%s%s_%s", start, ret_key->id, hex);
    digest_of(cairn_view_of(ret_text), ret_key);
    cairn_wipe(hex, sizeof(hex));
}

void cairn_token_make(void (*random)(void *ret_data, size_t size),
                      char ret_text[CAIRN_TOKEN_TEXT_BYTES], struct cairn_token_key *ret_key) {
    uint8_t seed[CAIRN_TOKEN_SEED_BYTES];
    random(seed, sizeof(seed));
    cairn_token_make_of(seed, ret_text, ret_key);
    cairn_wipe(seed, sizeof(seed));
}

static bool is_hex(const char *text, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (!(text[i] >= '0' && text[i] <= '9') && !(text[i] >= 'a' && text[i] <= 'f'))
            return false;
    return true;
}

bool cairn_token_read(struct cairn_view text, struct cairn_token_key *ret) {
    const char *at = text.data;
    size_t size = sizeof(start) - 1;
    *ret = (struct cairn_token_key){0};
    if (text.size != CAIRN_TOKEN_TEXT_BYTES - 1 || memcmp(at, start, size) != 0) return false;
    at += size;
    if (!is_hex(at, 2 * ID_BYTES) || at[2 * ID_BYTES] != '_' ||
        !is_hex(at + 2 * ID_BYTES + 1, 2 * SECRET_BYTES))
        return false;
    memcpy(ret->id, at, 2 * ID_BYTES);
    digest_of(text, ret);
    return true;
}
