/* SPDX-License-Identifier: Apache-2.0 */
/* peer: "Cairn-Peer <project>/<run>:<attempt>:<node>:<mac hex>". */
#include "api/peer.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/text.h"

#define KEY_TEXT "cairn-peer1"
#define MAC_HEX_BYTES (2 * CAIRN_SHA256_BYTES)
#define SIGNED_BYTES_MAX 4096

enum { FIELD_RUN, FIELD_ATTEMPT, FIELD_FROM, FIELD_MAC, FIELD_COUNT };

void cairn_peer_key(const char *grant_text, uint8_t ret_key[CAIRN_PEER_KEY_BYTES]) {
    cairn_hmac_sha256(cairn_view_of(grant_text), cairn_view_of(KEY_TEXT), ret_key);
}

/* No field may hold a line end, so lines cannot be told apart in two ways. */
static void make_mac(const struct cairn_peer_right *right, const struct cairn_peer_request *request,
                     const uint8_t key[CAIRN_PEER_KEY_BYTES], uint8_t ret[CAIRN_SHA256_BYTES]) {
    char text[SIGNED_BYTES_MAX];
    int size = snprintf(text, sizeof(text),
                        "%s\n%s\n%s\n%" PRIu64 "\n%s/%s\n%" PRIu64 "\n%s\n%s\n", request->method,
                        request->path, request->range, request->body_bytes, right->run.project,
                        right->run.run, right->attempt, right->from, request->to);
    CAIRN_ASSERT(size > 0);
    CAIRN_ASSERT((size_t)size < sizeof(text));
    cairn_hmac_sha256((struct cairn_view){key, CAIRN_PEER_KEY_BYTES},
                      (struct cairn_view){text, (size_t)size}, ret);
}

void cairn_peer_sign(struct cairn_peer_right *right, const struct cairn_peer_request *request,
                     const uint8_t key[CAIRN_PEER_KEY_BYTES],
                     char ret_text[CAIRN_PEER_RIGHT_BYTES_MAX]) {
    char hex[MAC_HEX_BYTES + 1];
    make_mac(right, request, key, right->mac);
    cairn_hex_encode(right->mac, sizeof(right->mac), hex);
    int size = snprintf(ret_text, CAIRN_PEER_RIGHT_BYTES_MAX,
                        CAIRN_PEER_SCHEME "%s/%s:%" PRIu64 ":%s:%s", right->run.project,
                        right->run.run, right->attempt, right->from, hex);
    CAIRN_ASSERT(size > 0);
    CAIRN_ASSERT(size < CAIRN_PEER_RIGHT_BYTES_MAX);
}

static bool cut(const char *text, struct cairn_view ret_fields[FIELD_COUNT]) {
    if (!cairn_text_starts(text, CAIRN_PEER_SCHEME)) return false;
    const char *from = text + sizeof(CAIRN_PEER_SCHEME) - 1;
    for (int i = 0; i < FIELD_COUNT; i++) {
        const char *to = strchr(from, ':');
        if ((to == NULL) != (i == FIELD_COUNT - 1)) return false;
        size_t size = to ? (size_t)(to - from) : strlen(from);
        ret_fields[i] = (struct cairn_view){from, size};
        from += size + 1;
    }
    return true;
}

static bool read_fields(const struct cairn_view fields[FIELD_COUNT],
                        struct cairn_peer_right *ret) {
    char run[2 * CAIRN_NAME_BYTES_MAX + 2] = "", number[24];
    if (fields[FIELD_RUN].size >= sizeof(run)) return false;
    memcpy(run, fields[FIELD_RUN].data, fields[FIELD_RUN].size);
    if (cairn_run_name_parse(run, &ret->run, NULL)) return false;
    if (cairn_parse_u64(fields[FIELD_ATTEMPT], &ret->attempt, NULL)) return false;
    int digits = snprintf(number, sizeof(number), "%" PRIu64, ret->attempt);
    if (digits < 0 || (size_t)digits != fields[FIELD_ATTEMPT].size) return false; /* "007" */
    if (!cairn_name_valid(fields[FIELD_FROM]) || fields[FIELD_FROM].size >= sizeof(ret->from))
        return false;
    memcpy(ret->from, fields[FIELD_FROM].data, fields[FIELD_FROM].size);
    return !cairn_hex_decode(fields[FIELD_MAC], ret->mac, sizeof(ret->mac), NULL);
}

enum cairn_code cairn_peer_parse(const char *text, struct cairn_peer_right *ret,
                                 struct cairn_error *err) {
    struct cairn_view fields[FIELD_COUNT];
    struct cairn_peer_right right = {0};
    if (strnlen(text, CAIRN_PEER_RIGHT_BYTES_MAX) == CAIRN_PEER_RIGHT_BYTES_MAX ||
        !cut(text, fields) || !read_fields(fields, &right))
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

/* ---- answers ---- */

/* No method is called "answer", so no request's MAC is one of these. */
static void make_answer_mac(const struct cairn_peer_right *right,
                            const struct cairn_peer_answer *answer,
                            const uint8_t key[CAIRN_PEER_KEY_BYTES],
                            uint8_t ret[CAIRN_SHA256_BYTES]) {
    char text[512], request[MAC_HEX_BYTES + 1];
    cairn_hex_encode(right->mac, sizeof(right->mac), request);
    int size = snprintf(text, sizeof(text), "answer\n%d\n%" PRIu64 "\n%s\n%s\n", answer->status,
                        answer->body_bytes, answer->nonce, request);
    CAIRN_ASSERT(size > 0);
    CAIRN_ASSERT((size_t)size < sizeof(text));
    cairn_hmac_sha256((struct cairn_view){key, CAIRN_PEER_KEY_BYTES},
                      (struct cairn_view){text, (size_t)size}, ret);
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
