/* SPDX-License-Identifier: Apache-2.0 */
/* OpenSSL's digest functions, which use the caller's memory; EVP would allocate. */
#define OPENSSL_API_COMPAT 0x10100000L
#include "common/hash/hash.h"

#include <openssl/crypto.h>
#include <openssl/md5.h>
#include <openssl/sha.h>
#include <string.h>

#define HMAC_BLOCK_BYTES 64

_Static_assert(sizeof(SHA256_CTX) <= sizeof(struct cairn_sha256), "the state fits");
_Static_assert(_Alignof(SHA256_CTX) <= _Alignof(struct cairn_sha256), "and is aligned");

static SHA256_CTX *context_of(struct cairn_sha256 *sha) {
    return (SHA256_CTX *)(void *)sha->state;
}

void cairn_sha256_init(struct cairn_sha256 *sha) {
    int done = SHA256_Init(context_of(sha));
    CAIRN_ASSERT(done == 1);
}

void cairn_sha256_update(struct cairn_sha256 *sha, const void *data, size_t size) {
    if (size == 0) return;
    int done = SHA256_Update(context_of(sha), data, size);
    CAIRN_ASSERT(done == 1);
}

void cairn_sha256_final(struct cairn_sha256 *sha, uint8_t ret_digest[CAIRN_SHA256_BYTES]) {
    int done = SHA256_Final(ret_digest, context_of(sha));
    CAIRN_ASSERT(done == 1);
    cairn_sha256_release(sha);
}

void cairn_sha256_release(struct cairn_sha256 *sha) {
    cairn_wipe(sha->state, sizeof sha->state);
}

void cairn_sha256_of(struct cairn_view data, uint8_t ret_digest[CAIRN_SHA256_BYTES]) {
    struct cairn_sha256 sha;
    cairn_sha256_init(&sha);
    cairn_sha256_update(&sha, data.data, data.size);
    cairn_sha256_final(&sha, ret_digest);
}

void cairn_md5_of(struct cairn_view data, uint8_t ret_digest[CAIRN_MD5_BYTES]) {
    MD5_CTX context;
    int done = MD5_Init(&context);
    CAIRN_ASSERT(done == 1);
    if (data.size) done = MD5_Update(&context, data.data, data.size);
    CAIRN_ASSERT(done == 1);
    done = MD5_Final(ret_digest, &context);
    CAIRN_ASSERT(done == 1);
}

/* RFC 2104: the key, zero-filled to a block, is xored with one byte for the inner and another for
 * the outer digest; a key longer than a block is replaced by its digest. */
static void begin_mixed(struct cairn_sha256 *sha, const uint8_t key[HMAC_BLOCK_BYTES],
                        uint8_t mix) {
    uint8_t block[HMAC_BLOCK_BYTES];
    for (size_t i = 0; i < sizeof block; i++) block[i] = key[i] ^ mix;
    cairn_sha256_init(sha);
    cairn_sha256_update(sha, block, sizeof block);
    cairn_wipe(block, sizeof block);
}

void cairn_hmac_sha256(struct cairn_view key, struct cairn_view data,
                       uint8_t ret_mac[CAIRN_SHA256_BYTES]) {
    struct cairn_sha256 sha;
    uint8_t block[HMAC_BLOCK_BYTES] = {0}, inner[CAIRN_SHA256_BYTES];
    if (key.size > sizeof block)
        cairn_sha256_of(key, block);
    else if (key.size)
        memcpy(block, key.data, key.size);
    begin_mixed(&sha, block, 0x36);
    cairn_sha256_update(&sha, data.data, data.size);
    cairn_sha256_final(&sha, inner);
    begin_mixed(&sha, block, 0x5c);
    cairn_sha256_update(&sha, inner, sizeof inner);
    cairn_sha256_final(&sha, ret_mac);
    cairn_wipe(block, sizeof block);
}

bool cairn_equal_secret(const void *a, const void *b, size_t size) {
    return CRYPTO_memcmp(a, b, size) == 0;
}

void cairn_wipe(void *data, size_t size) {
    OPENSSL_cleanse(data, size);
}
