/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens as texts; see token.h. */
#include "api/token.h"

#include <stdio.h>

#include "common/encode.h"

#define ID_BYTES 8
#define SECRET_BYTES 32
static const char start[] = "cairn_";

static void digest_of(struct cairn_view text, struct cairn_token_key *ret) {
    cairn_sha256_of(text, ret->digest);
}

void cairn_token_make(void (*random)(void *ret_data, size_t size),
                      char ret_text[CAIRN_TOKEN_TEXT_BYTES], struct cairn_token_key *ret_key) {
    uint8_t id[ID_BYTES], secret[SECRET_BYTES];
    char hex[2 * SECRET_BYTES + 1];
    random(id, sizeof(id));
    random(secret, sizeof(secret));
    cairn_hex_encode(id, sizeof(id), ret_key->id);
    cairn_hex_encode(secret, sizeof(secret), hex);
    snprintf(ret_text, CAIRN_TOKEN_TEXT_BYTES, "%s%s_%s", start, ret_key->id, hex);
    digest_of(cairn_view_of(ret_text), ret_key);
    cairn_wipe(secret, sizeof(secret));
    cairn_wipe(hex, sizeof(hex));
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
