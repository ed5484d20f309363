/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hash: SHA-256, MD5 and HMAC-SHA256 (owner of OpenSSL's digest headers).
 *
 * Why:     ids, table digests, grants and request signatures use them; bulk bytes use
 *          common/crc.h, which costs a fifteenth.
 * Promise: 1   the time of cairn_equal_secret does not depend on where two values differ.
 *          2   no digest allocates, so none can fail (K07).
 * Limits:  daemons, the cli and libcairn_http only; libcairn.so does not link OpenSSL.
 * Threads: stateless; a struct cairn_sha256 belongs to its caller.
 * Next:    store/keys/sigv4.h, api/wire/rights.h.
 */
#pragma once

#include "common/base.h"

#define CAIRN_SHA256_BYTES 32
#define CAIRN_MD5_BYTES 16

struct cairn_sha256 {
    uint64_t state[16]; /* OpenSSL's SHA256_CTX */
};
void cairn_sha256_init(struct cairn_sha256 *sha);
void cairn_sha256_update(struct cairn_sha256 *sha, const void *data, size_t size);
void cairn_sha256_final(struct cairn_sha256 *sha, uint8_t ret_digest[CAIRN_SHA256_BYTES]);
void cairn_sha256_release(struct cairn_sha256 *sha);
void cairn_sha256_of(struct cairn_view data, uint8_t ret_digest[CAIRN_SHA256_BYTES]);
void cairn_md5_of(struct cairn_view data, uint8_t ret_digest[CAIRN_MD5_BYTES]);
void cairn_hmac_sha256(struct cairn_view key, struct cairn_view data,
                       uint8_t ret_mac[CAIRN_SHA256_BYTES]);
bool cairn_equal_secret(const void *a, const void *b, size_t size);
void cairn_wipe(void *data, size_t size);
