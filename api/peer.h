/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer: how the uploader of one node shows another that it may have what it asks for.
 *
 * Why:     nodes that hold one attempt pass bytes to each other; nobody else may have them, and
 *          neither side knows the key by which the server signs grants.
 * Promise: 1   both sides hold the attempt's grant, which the server signed and gave to its nodes
 *              alone: what is derived from it is the key of a MAC over the request. Neither grant
 *              nor key is sent.
 *          2   the MAC covers who asks, who is asked, method, path, range and length of the body,
 *              so that it is good for this request to this node alone; asked again it gives the
 *              same bytes, which whoever could copy it has seen.
 *          3   parse takes one spelling; check compares in constant time.
 *          4   an answer carries a MAC under the same key over its status, the length of its body,
 *              the nonce that this one request has drawn, and the request's own MAC: only a holder
 *              of the grant can say "200", to this request and not again to a later one.
 * Limits:  CAIRN_PEER_RIGHT_BYTES_MAX; bytes are not hidden from who reads the wire.
 * Threads: stateless.
 * Next:    uploader/port/; docs/peers.md.
 */
#pragma once

#include "api/grant.h"
#include "common/hash/hash.h"

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
