/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rights: grants to write, bearer tokens, and the MACs between uploaders of an attempt.
 *
 * Why:     an uploader works for hours without the server, for trainers that may be gone; it needs
 *          a right that is checked without a login and that a newer attempt revokes. The server
 *          must recognise the tokens it made without storing them. Nodes of one attempt pass bytes
 *          to each other and to nobody else, and do not have the key that signs grants.
 * Promise: 1   a grant is "cairn1:<store uuid>:<project>/<run>:<attempt>:<nonce>:<hmac hex>"; check
 *              accepts only grants that this key signed, in constant time.
 *          2   parse reads a grant's fields without the key; it proves nothing.
 *          3   a token is "cairn_", its id of 16 hex digits, "_", and 256 random bits as 64 hex
 *              digits; the id reveals nothing of the rest.
 *          4   peers both hold the attempt's grant, which the server signed and gave to its nodes
 *              only: the key of a MAC over the request is derived from it. Neither grant nor key
 *              is sent.
 *          5   the MAC covers both nodes, method, path, range and length of the body, so it is
 *              valid for this request to this node only; a replay gets the same bytes, which an
 *              eavesdropper has seen already.
 *          6   a peer's right is parsed in one spelling, and checked in constant time.
 *          7   an answer carries a MAC under the same key over its status, the length of its body,
 *              the random nonce of the request, and the request's own MAC: only a holder of the
 *              grant can answer "200", and only to this request.
 * Limits:  CAIRN_GRANT_BYTES_MAX, CAIRN_PEER_RIGHT_BYTES_MAX; bytes between peers are not
 *          encrypted.
 * Threads: stateless.
 * Next:    rules Q2-Q6 of docs/protocol.md; server/access/access.h; uploader/port/, docs/peers.md.
 */
#pragma once

#include "api/documents/keys.h"
#include "common/hash/hash.h"

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

/* ---- tokens ---- */

#define CAIRN_TOKEN_ID_BYTES 17
#define CAIRN_TOKEN_TEXT_BYTES (6 + 16 + 1 + 64 + 1)

/* The stored part of a token: enough to recognise it, not enough to make it. */
struct cairn_token_key {
    char id[CAIRN_TOKEN_ID_BYTES];
    uint8_t digest[CAIRN_SHA256_BYTES]; /* of the whole text */
};
/* Makes a new token. Wipe the text after use. */
void cairn_token_make(void (*random)(void *ret_data, size_t size),
                      char ret_text[CAIRN_TOKEN_TEXT_BYTES], struct cairn_token_key *ret_key);
/* Makes the token determined by a secret seed. */
#define CAIRN_TOKEN_SEED_BYTES 40
void cairn_token_make_of(const uint8_t seed[CAIRN_TOKEN_SEED_BYTES],
                         char ret_text[CAIRN_TOKEN_TEXT_BYTES], struct cairn_token_key *ret_key);
/* False: malformed. */
bool cairn_token_read(struct cairn_view text, struct cairn_token_key *ret);

/* ---- peers ---- */

#define CAIRN_PEER_KEY_BYTES CAIRN_SHA256_BYTES
#define CAIRN_PEER_RIGHT_BYTES_MAX 512
#define CAIRN_PEER_SCHEME "Cairn-Peer "

/* The fields of the Authorization header. */
struct cairn_peer_right {
    struct cairn_run_name run;
    uint64_t attempt;
    char from[CAIRN_NAME_BYTES_MAX + 1]; /* the requesting node */
    uint8_t mac[CAIRN_SHA256_BYTES];
};
/* The signed parts of a request. */
struct cairn_peer_request {
    const char *to; /* the node that receives it */
    const char *method, *path;
    const char *range; /* "bytes=0-9"; "": none */
    uint64_t body_bytes;
};
void cairn_peer_key(const char *grant_text, uint8_t ret_key[CAIRN_PEER_KEY_BYTES]);
/* Sets right->mac; ret_text is the whole header value. */
void cairn_peer_sign(struct cairn_peer_right *right, const struct cairn_peer_request *request,
                     const uint8_t key[CAIRN_PEER_KEY_BYTES],
                     char ret_text[CAIRN_PEER_RIGHT_BYTES_MAX]);
enum cairn_code cairn_peer_parse(const char *text, struct cairn_peer_right *ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;
bool cairn_peer_check(const struct cairn_peer_right *right,
                      const struct cairn_peer_request *request,
                      const uint8_t key[CAIRN_PEER_KEY_BYTES]);

/* Headers of request and answer; values in hex. */
#define CAIRN_PEER_NONCE_HEADER "Cairn-Nonce"
#define CAIRN_PEER_ANSWER_HEADER "Cairn-Answer"
#define CAIRN_PEER_NONCE_TEXT_BYTES 33
#define CAIRN_PEER_ANSWER_TEXT_BYTES (2 * CAIRN_SHA256_BYTES + 1)

struct cairn_peer_answer {
    int status;
    uint64_t body_bytes;
    const char *nonce; /* the request's: 32 digits */
};
/* right: that of the request, with its mac. */
void cairn_peer_answer_sign(const struct cairn_peer_right *right,
                            const struct cairn_peer_answer *answer,
                            const uint8_t key[CAIRN_PEER_KEY_BYTES],
                            char ret_text[CAIRN_PEER_ANSWER_TEXT_BYTES]);
bool cairn_peer_answer_check(const struct cairn_peer_right *right,
                             const struct cairn_peer_answer *answer,
                             const uint8_t key[CAIRN_PEER_KEY_BYTES], struct cairn_view text);
