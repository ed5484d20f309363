/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rights: texts that let somebody do something: grants to write, bearer tokens, and the proof of
 * one node's uploader to another's.
 *
 * Why:     an uploader works for hours while the server is away, for trainers that may be gone; it
 *          needs a right that is checked without a login and that a newer attempt makes void. The
 *          server makes a token and must know it again without keeping it. Nodes that hold one
 *          attempt pass bytes to each other; nobody else may have them, and neither side knows the
 *          key by which the server signs grants.
 * Promise: 1   a grant is "cairn1:<store uuid>:<project>/<run>:<attempt>:<nonce>:<hmac hex>"; check
 *              takes nothing that this key did not sign, in constant time.
 *          2   parse reads a grant's fields without the key; it proves nothing.
 *          3   a token is "cairn_", its id of 16 hex digits, "_", and 256 random bits as 64 hex
 *              digits; who knows the id knows nothing of the rest.
 *          4   peers both hold the attempt's grant, which the server signed and gave to its nodes
 *              alone: what is derived from it is the key of a MAC over the request. Neither grant
 *              nor key is sent.
 *          5   the MAC covers who asks, who is asked, method, path, range and length of the body,
 *              so that it is good for this request to this node alone; asked again it gives the
 *              same bytes, which whoever could copy it has seen.
 *          6   a peer's right is parsed in one spelling, and checked in constant time.
 *          7   an answer carries a MAC under the same key over its status, the length of its body,
 *              the nonce that this one request has drawn, and the request's own MAC: only a holder
 *              of the grant can say "200", to this request and not again to a later one.
 * Limits:  CAIRN_GRANT_BYTES_MAX, CAIRN_PEER_RIGHT_BYTES_MAX; bytes between peers are not hidden
 *          from who reads the wire.
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

/* ---- peers ---- */

#define CAIRN_PEER_KEY_BYTES CAIRN_SHA256_BYTES
#define CAIRN_PEER_RIGHT_BYTES_MAX 512
#define CAIRN_PEER_SCHEME "Cairn-Peer "

/* What the header Authorization says. */
struct cairn_peer_right {
    struct cairn_run_name run;
    uint64_t attempt;
    char from[CAIRN_NAME_BYTES_MAX + 1]; /* the node that asks */
    uint8_t mac[CAIRN_SHA256_BYTES];
};
/* What is asked. */
struct cairn_peer_request {
    const char *to; /* the node that is asked */
    const char *method, *path;
    const char *range; /* "bytes=0-9"; "" for none */
    uint64_t body_bytes;
};
void cairn_peer_key(const char *grant_text, uint8_t ret_key[CAIRN_PEER_KEY_BYTES]);
/* right->mac is made; ret_text is the whole value of the header. */
void cairn_peer_sign(struct cairn_peer_right *right, const struct cairn_peer_request *request,
                     const uint8_t key[CAIRN_PEER_KEY_BYTES],
                     char ret_text[CAIRN_PEER_RIGHT_BYTES_MAX]);
enum cairn_code cairn_peer_parse(const char *text, struct cairn_peer_right *ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;
bool cairn_peer_check(const struct cairn_peer_right *right,
                      const struct cairn_peer_request *request,
                      const uint8_t key[CAIRN_PEER_KEY_BYTES]);

/* Headers of request and answer, with their values in hex. */
#define CAIRN_PEER_NONCE_HEADER "Cairn-Nonce"
#define CAIRN_PEER_ANSWER_HEADER "Cairn-Answer"
#define CAIRN_PEER_NONCE_TEXT_BYTES 33
#define CAIRN_PEER_ANSWER_TEXT_BYTES (2 * CAIRN_SHA256_BYTES + 1)

struct cairn_peer_answer {
    int status;
    uint64_t body_bytes;
    const char *nonce; /* of the request: 32 digits */
};
/* right: the request's, with its mac. */
void cairn_peer_answer_sign(const struct cairn_peer_right *right,
                            const struct cairn_peer_answer *answer,
                            const uint8_t key[CAIRN_PEER_KEY_BYTES],
                            char ret_text[CAIRN_PEER_ANSWER_TEXT_BYTES]);
bool cairn_peer_answer_check(const struct cairn_peer_right *right,
                             const struct cairn_peer_answer *answer,
                             const uint8_t key[CAIRN_PEER_KEY_BYTES], struct cairn_view text);
