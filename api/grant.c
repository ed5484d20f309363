/* SPDX-License-Identifier: Apache-2.0 */
/* grant: text in, fields out; and back, with the server's key. */
#include "api/grant.h"

#include <stdio.h>

#include "common/hash/hash.h"
#include "common/text.h"

#define GRANT_START "cairn1:"
#define MAC_HEX_BYTES (2 * CAIRN_SHA256_BYTES)

enum { FIELD_STORE, FIELD_RUN, FIELD_ATTEMPT, FIELD_NONCE, FIELD_MAC, FIELD_COUNT };

/* Everything that is signed: all but ":<hmac>". */
static size_t body_print(const struct cairn_grant *grant, char ret_text[CAIRN_GRANT_BYTES_MAX]) {
    int size = snprintf(ret_text, CAIRN_GRANT_BYTES_MAX, GRANT_START "%s:%s/%s:%llu:%s",
                        grant->store_uuid, grant->name.project, grant->name.run,
                        (unsigned long long)grant->attempt, grant->nonce);
    CAIRN_ASSERT(size > 0);
    CAIRN_ASSERT((size_t)size + 1 + MAC_HEX_BYTES < CAIRN_GRANT_BYTES_MAX);
    return (size_t)size;
}

static void mac_hex(struct cairn_view body, const uint8_t key[CAIRN_GRANT_KEY_BYTES],
                    char ret_hex[MAC_HEX_BYTES + 1]) {
    uint8_t mac[CAIRN_SHA256_BYTES];
    cairn_hmac_sha256((struct cairn_view){key, CAIRN_GRANT_KEY_BYTES}, body, mac);
    cairn_hex_encode(mac, sizeof mac, ret_hex);
    cairn_wipe(mac, sizeof mac);
}

void cairn_grant_sign(const struct cairn_grant *grant, const uint8_t key[CAIRN_GRANT_KEY_BYTES],
                      char ret_text[CAIRN_GRANT_BYTES_MAX]) {
    size_t size = body_print(grant, ret_text);
    ret_text[size] = ':';
    mac_hex((struct cairn_view){ret_text, size}, key, ret_text + size + 1);
}

/* Cuts the text behind its start at each ':'; there are exactly FIELD_COUNT pieces or it fails. */
static bool fields_cut(const char *text, struct cairn_view ret_fields[FIELD_COUNT]) {
    if (strnlen(text, CAIRN_GRANT_BYTES_MAX) == CAIRN_GRANT_BYTES_MAX) return false;
    if (!cairn_text_starts(text, GRANT_START)) return false;
    const char *from = text + sizeof GRANT_START - 1;
    for (int i = 0; i < FIELD_COUNT; i++) {
        const char *to = strchr(from, ':');
        if ((to == NULL) != (i == FIELD_COUNT - 1)) return false;
        size_t size = to ? (size_t)(to - from) : strlen(from);
        ret_fields[i] = (struct cairn_view){from, size};
        from += size + 1;
    }
    return true;
}

static bool is_hex(struct cairn_view text, size_t size) {
    if (text.size != size) return false;
    for (size_t i = 0; i < size; i++) {
        char c = ((const char *)text.data)[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
    }
    return true;
}

static bool fields_read(const struct cairn_view fields[FIELD_COUNT], struct cairn_grant *ret) {
    char run[2 * CAIRN_NAME_BYTES_MAX + 2] = "";
    if (!cairn_uuid_text_valid(fields[FIELD_STORE])) return false;
    if (fields[FIELD_RUN].size >= sizeof run) return false;
    memcpy(run, fields[FIELD_RUN].data, fields[FIELD_RUN].size);
    if (cairn_run_name_parse(run, &ret->name, NULL) != CAIRN_OK) return false;
    if (cairn_parse_u64(fields[FIELD_ATTEMPT], &ret->attempt, NULL) != CAIRN_OK) return false;
    if (!is_hex(fields[FIELD_NONCE], CAIRN_NONCE_TEXT_BYTES - 1)) return false;
    if (!is_hex(fields[FIELD_MAC], MAC_HEX_BYTES)) return false;
    memcpy(ret->store_uuid, fields[FIELD_STORE].data, CAIRN_UUID_TEXT_BYTES - 1);
    memcpy(ret->nonce, fields[FIELD_NONCE].data, CAIRN_NONCE_TEXT_BYTES - 1);
    return true;
}

/* *ret_body_size: how much of the text stands before ":<hmac>". */
static bool parse(const char *text, struct cairn_grant *ret, size_t *ret_body_size) {
    struct cairn_view fields[FIELD_COUNT];
    if (!fields_cut(text, fields) || !fields_read(fields, ret)) return false;
    /* Only the one spelling is taken: "007" is no attempt number. */
    char body[CAIRN_GRANT_BYTES_MAX];
    *ret_body_size = (size_t)((const char *)fields[FIELD_MAC].data - text) - 1;
    size_t size = body_print(ret, body);
    return size == *ret_body_size && memcmp(body, text, size) == 0;
}

/* The text is a right to write: it is never shown. */
enum cairn_code cairn_grant_parse(const char *text, struct cairn_grant *ret,
                                  struct cairn_error *err) {
    struct cairn_grant grant = {0};
    size_t body_size;
    if (!parse(text, &grant, &body_size)) return cairn_fail(err, CAIRN_INVALID, "malformed grant");
    *ret = grant;
    return CAIRN_OK;
}

enum cairn_code cairn_grant_check(const char *text, const uint8_t key[CAIRN_GRANT_KEY_BYTES],
                                  struct cairn_grant *ret, struct cairn_error *err) {
    struct cairn_grant grant = {0};
    size_t body_size;
    if (!parse(text, &grant, &body_size)) return cairn_fail(err, CAIRN_INVALID, "malformed grant");
    char hex[MAC_HEX_BYTES + 1];
    mac_hex((struct cairn_view){text, body_size}, key, hex);
    bool equal = cairn_equal_secret(hex, text + body_size + 1, MAC_HEX_BYTES);
    cairn_wipe(hex, sizeof hex);
    if (!equal) {
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "the grant was not signed by this server's key (attempt %llu of %s/%s)",
                          (unsigned long long)grant.attempt, grant.name.project, grant.name.run);
    }
    *ret = grant;
    return CAIRN_OK;
}
