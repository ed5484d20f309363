/* SPDX-License-Identifier: Apache-2.0 */
/* Parses and signs the texts of grants, tokens and peers' rights. */
#include "api/wire/rights.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/text.h"

#define MAC_HEX_BYTES (2 * CAIRN_SHA256_BYTES)

static bool is_hex(struct cairn_view text, size_t size) {
    if (text.size != size) return false;
    for (size_t i = 0; i < size; i++) {
        char c = ((const char *)text.data)[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
    }
    return true;
}

/* Splits the text after `start` at each ':'; false unless there are exactly `count` fields. */
static bool cut_fields(const char *text, const char *start, struct cairn_view *ret_fields,
                       int count) {
    if (!cairn_text_starts(text, start)) return false;
    const char *from = text + strlen(start);
    for (int i = 0; i < count; i++) {
        const char *to = strchr(from, ':');
        if ((to == NULL) != (i == count - 1)) return false;
        size_t size = to ? (size_t)(to - from) : strlen(from);
        ret_fields[i] = (struct cairn_view){from, size};
        from += size + 1;
    }
    return true;
}

static bool read_run(struct cairn_view field, struct cairn_run_name *ret) {
    char run[2 * CAIRN_NAME_BYTES_MAX + 2] = "";
    if (field.size >= sizeof run) return false;
    memcpy(run, field.data, field.size);
    return cairn_run_name_parse(run, ret, NULL) == CAIRN_OK;
}

/* ---- grants ---- */

#define GRANT_START "cairn1:"

enum { GRANT_STORE, GRANT_RUN, GRANT_ATTEMPT, GRANT_NONCE, GRANT_MAC, GRANT_FIELDS };

/* Prints the signed part: all but ":<hmac>". */
static size_t print_grant(const struct cairn_grant *grant, char ret_text[CAIRN_GRANT_BYTES_MAX]) {
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
    size_t size = print_grant(grant, ret_text);
    ret_text[size] = ':';
    mac_hex((struct cairn_view){ret_text, size}, key, ret_text + size + 1);
}

static bool read_grant(const struct cairn_view fields[GRANT_FIELDS], struct cairn_grant *ret) {
    if (!cairn_uuid_text_valid(fields[GRANT_STORE])) return false;
    if (!read_run(fields[GRANT_RUN], &ret->name)) return false;
    if (cairn_parse_u64(fields[GRANT_ATTEMPT], &ret->attempt, NULL) != CAIRN_OK) return false;
    if (!is_hex(fields[GRANT_NONCE], CAIRN_NONCE_TEXT_BYTES - 1)) return false;
    if (!is_hex(fields[GRANT_MAC], MAC_HEX_BYTES)) return false;
    memcpy(ret->store_uuid, fields[GRANT_STORE].data, CAIRN_UUID_TEXT_BYTES - 1);
    memcpy(ret->nonce, fields[GRANT_NONCE].data, CAIRN_NONCE_TEXT_BYTES - 1);
    return true;
}

/* *ret_body_size: size of the text before ":<hmac>". */
static bool parse_grant(const char *text, struct cairn_grant *ret, size_t *ret_body_size) {
    struct cairn_view fields[GRANT_FIELDS];
    if (strnlen(text, CAIRN_GRANT_BYTES_MAX) == CAIRN_GRANT_BYTES_MAX) return false;
    if (!cut_fields(text, GRANT_START, fields, GRANT_FIELDS) || !read_grant(fields, ret))
        return false;
    /* Accepts the canonical spelling only: "007" is no attempt number. */
    char body[CAIRN_GRANT_BYTES_MAX];
    *ret_body_size = (size_t)((const char *)fields[GRANT_MAC].data - text) - 1;
    size_t size = print_grant(ret, body);
    return size == *ret_body_size && memcmp(body, text, size) == 0;
}

/* Errors never quote the text, which is a right to write. */
enum cairn_code cairn_grant_parse(const char *text, struct cairn_grant *ret,
                                  struct cairn_error *err) {
    struct cairn_grant grant = {0};
    size_t body_size;
    if (!parse_grant(text, &grant, &body_size))
        return cairn_fail(err, CAIRN_INVALID, "malformed grant");
    *ret = grant;
    return CAIRN_OK;
}

enum cairn_code cairn_grant_check(const char *text, const uint8_t key[CAIRN_GRANT_KEY_BYTES],
                                  struct cairn_grant *ret, struct cairn_error *err) {
    struct cairn_grant grant = {0};
    size_t body_size;
    if (!parse_grant(text, &grant, &body_size))
        return cairn_fail(err, CAIRN_INVALID, "malformed grant");
    char hex[MAC_HEX_BYTES + 1];
    mac_hex((struct cairn_view){text, body_size}, key, hex);
    bool equal = cairn_equal_secret(hex, text + body_size + 1, MAC_HEX_BYTES);
    cairn_wipe(hex, sizeof hex);
    if (!equal)
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "the grant was not signed by this server's key (attempt %llu of %s/%s)",
                          (unsigned long long)grant.attempt, grant.name.project, grant.name.run);
    *ret = grant;
    return CAIRN_OK;
}

/* ---- tokens ---- */

#define ID_BYTES 8
#define SECRET_BYTES 32
#define TOKEN_START "cairn_"

_Static_assert(ID_BYTES + SECRET_BYTES == CAIRN_TOKEN_SEED_BYTES, "the seed is both");

void cairn_token_make_of(const uint8_t seed[CAIRN_TOKEN_SEED_BYTES],
                         char ret_text[CAIRN_TOKEN_TEXT_BYTES], struct cairn_token_key *ret_key) {
    char hex[2 * SECRET_BYTES + 1];
    cairn_hex_encode(seed, ID_BYTES, ret_key->id);
    cairn_hex_encode(seed + ID_BYTES, SECRET_BYTES, hex);
    snprintf(ret_text, CAIRN_TOKEN_TEXT_BYTES, TOKEN_START "%s_%s", ret_key->id, hex);
    cairn_sha256_of(cairn_view_of(ret_text), ret_key->digest);
    cairn_wipe(hex, sizeof(hex));
}

void cairn_token_make(void (*random)(void *ret_data, size_t size),
                      char ret_text[CAIRN_TOKEN_TEXT_BYTES], struct cairn_token_key *ret_key) {
    uint8_t seed[CAIRN_TOKEN_SEED_BYTES];
    random(seed, sizeof(seed));
    cairn_token_make_of(seed, ret_text, ret_key);
    cairn_wipe(seed, sizeof(seed));
}

bool cairn_token_read(struct cairn_view text, struct cairn_token_key *ret) {
    const char *at = text.data;
    size_t size = sizeof(TOKEN_START) - 1;
    *ret = (struct cairn_token_key){0};
    if (text.size != CAIRN_TOKEN_TEXT_BYTES - 1 || memcmp(at, TOKEN_START, size) != 0) return false;
    at += size;
    struct cairn_view id = {at, 2 * ID_BYTES}, secret = {at + 2 * ID_BYTES + 1, 2 * SECRET_BYTES};
    if (!is_hex(id, id.size) || at[id.size] != '_' || !is_hex(secret, secret.size)) return false;
    memcpy(ret->id, at, 2 * ID_BYTES);
    cairn_sha256_of(text, ret->digest);
    return true;
}

/* ---- peers: "Cairn-Peer <project>/<run>:<attempt>:<node>:<mac hex>" ---- */

#define SIGNED_BYTES_MAX 4096

enum { PEER_RUN, PEER_ATTEMPT, PEER_FROM, PEER_MAC, PEER_FIELDS };

void cairn_peer_key(const char *grant_text, uint8_t ret_key[CAIRN_PEER_KEY_BYTES]) {
    cairn_hmac_sha256(cairn_view_of(grant_text), CAIRN_VIEW("cairn-peer1"), ret_key);
}

static void sign_text(const char *text, int size, size_t capacity,
                      const uint8_t key[CAIRN_PEER_KEY_BYTES], uint8_t ret[CAIRN_SHA256_BYTES]) {
    CAIRN_ASSERT(size > 0);
    CAIRN_ASSERT((size_t)size < capacity);
    cairn_hmac_sha256((struct cairn_view){key, CAIRN_PEER_KEY_BYTES},
                      (struct cairn_view){text, (size_t)size}, ret);
}

/* No field may hold a line end, so the signed lines are unambiguous. */
static void make_mac(const struct cairn_peer_right *right, const struct cairn_peer_request *request,
                     const uint8_t key[CAIRN_PEER_KEY_BYTES], uint8_t ret[CAIRN_SHA256_BYTES]) {
    char text[SIGNED_BYTES_MAX];
    int size =
        snprintf(text, sizeof(text), "%s\n%s\n%s\n%" PRIu64 "\n%s/%s\n%" PRIu64 "\n%s\n%s\n",
                 request->method, request->path, request->range, request->body_bytes,
                 right->run.project, right->run.run, right->attempt, right->from, request->to);
    sign_text(text, size, sizeof(text), key, ret);
}

void cairn_peer_sign(struct cairn_peer_right *right, const struct cairn_peer_request *request,
                     const uint8_t key[CAIRN_PEER_KEY_BYTES],
                     char ret_text[CAIRN_PEER_RIGHT_BYTES_MAX]) {
    char hex[MAC_HEX_BYTES + 1];
    make_mac(right, request, key, right->mac);
    cairn_hex_encode(right->mac, sizeof(right->mac), hex);
    int size =
        snprintf(ret_text, CAIRN_PEER_RIGHT_BYTES_MAX, CAIRN_PEER_SCHEME "%s/%s:%" PRIu64 ":%s:%s",
                 right->run.project, right->run.run, right->attempt, right->from, hex);
    CAIRN_ASSERT(size > 0);
    CAIRN_ASSERT(size < CAIRN_PEER_RIGHT_BYTES_MAX);
}

static bool read_right(const struct cairn_view fields[PEER_FIELDS], struct cairn_peer_right *ret) {
    char number[24];
    if (!read_run(fields[PEER_RUN], &ret->run)) return false;
    if (cairn_parse_u64(fields[PEER_ATTEMPT], &ret->attempt, NULL)) return false;
    int digits = snprintf(number, sizeof(number), "%" PRIu64, ret->attempt);
    if (digits < 0 || (size_t)digits != fields[PEER_ATTEMPT].size) return false; /* "007" */
    if (!cairn_name_valid(fields[PEER_FROM]) || fields[PEER_FROM].size >= sizeof(ret->from))
        return false;
    memcpy(ret->from, fields[PEER_FROM].data, fields[PEER_FROM].size);
    return !cairn_hex_decode(fields[PEER_MAC], ret->mac, sizeof(ret->mac), NULL);
}

enum cairn_code cairn_peer_parse(const char *text, struct cairn_peer_right *ret,
                                 struct cairn_error *err) {
    struct cairn_view fields[PEER_FIELDS];
    struct cairn_peer_right right = {0};
    if (strnlen(text, CAIRN_PEER_RIGHT_BYTES_MAX) == CAIRN_PEER_RIGHT_BYTES_MAX ||
        !cut_fields(text, CAIRN_PEER_SCHEME, fields, PEER_FIELDS) || !read_right(fields, &right))
        return cairn_fail(err, CAIRN_INVALID, "malformed right of a peer");
    *ret = right;
    return CAIRN_OK;
}

bool cairn_peer_check(const struct cairn_peer_right *right,
                      const struct cairn_peer_request *request,
                      const uint8_t key[CAIRN_PEER_KEY_BYTES]) {
    uint8_t mac[CAIRN_SHA256_BYTES];
    make_mac(right, request, key, mac);
    return cairn_equal_secret(mac, right->mac, sizeof(mac));
}

/* No method is called "answer", so a request's MAC never equals an answer's. */
static void make_answer_mac(const struct cairn_peer_right *right,
                            const struct cairn_peer_answer *answer,
                            const uint8_t key[CAIRN_PEER_KEY_BYTES],
                            uint8_t ret[CAIRN_SHA256_BYTES]) {
    char text[512], request[MAC_HEX_BYTES + 1];
    cairn_hex_encode(right->mac, sizeof(right->mac), request);
    int size = snprintf(text, sizeof(text), "answer\n%d\n%" PRIu64 "\n%s\n%s\n", answer->status,
                        answer->body_bytes, answer->nonce, request);
    sign_text(text, size, sizeof(text), key, ret);
}

void cairn_peer_answer_sign(const struct cairn_peer_right *right,
                            const struct cairn_peer_answer *answer,
                            const uint8_t key[CAIRN_PEER_KEY_BYTES],
                            char ret_text[CAIRN_PEER_ANSWER_TEXT_BYTES]) {
    uint8_t mac[CAIRN_SHA256_BYTES];
    make_answer_mac(right, answer, key, mac);
    cairn_hex_encode(mac, sizeof(mac), ret_text);
}

bool cairn_peer_answer_check(const struct cairn_peer_right *right,
                             const struct cairn_peer_answer *answer,
                             const uint8_t key[CAIRN_PEER_KEY_BYTES], struct cairn_view text) {
    uint8_t mac[CAIRN_SHA256_BYTES], said[CAIRN_SHA256_BYTES];
    make_answer_mac(right, answer, key, mac);
    return !cairn_hex_decode(text, said, sizeof(said), NULL) &&
           cairn_equal_secret(mac, said, sizeof(mac));
}
