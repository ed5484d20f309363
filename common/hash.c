/* SPDX-License-Identifier: Apache-2.0 */
/* Failures of OpenSSL here are lack of memory or a broken installation: nothing to go on with. */
#include "common/hash.h"

#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

void cairn_sha256_init(struct cairn_sha256 *sha) {
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    CAIRN_ASSERT(context != NULL);
    int done = EVP_DigestInit_ex(context, EVP_sha256(), NULL);
    CAIRN_ASSERT(done == 1);
    sha->state = context;
}

void cairn_sha256_update(struct cairn_sha256 *sha, const void *data, size_t size) {
    if (size == 0) return;
    int done = EVP_DigestUpdate(sha->state, data, size);
    CAIRN_ASSERT(done == 1);
}

void cairn_sha256_final(struct cairn_sha256 *sha, uint8_t ret_digest[CAIRN_SHA256_BYTES]) {
    unsigned size = 0;
    int done = EVP_DigestFinal_ex(sha->state, ret_digest, &size);
    CAIRN_ASSERT(done == 1);
    CAIRN_ASSERT(size == CAIRN_SHA256_BYTES);
    cairn_sha256_release(sha);
}

void cairn_sha256_release(struct cairn_sha256 *sha) {
    EVP_MD_CTX_free(sha->state);
    sha->state = NULL;
}

static void digest_of(struct cairn_view data, const EVP_MD *kind, uint8_t *ret_digest) {
    unsigned size = 0;
    int done = EVP_Digest(data.size ? data.data : "", data.size, ret_digest, &size, kind, NULL);
    CAIRN_ASSERT(done == 1);
}

void cairn_sha256_of(struct cairn_view data, uint8_t ret_digest[CAIRN_SHA256_BYTES]) {
    digest_of(data, EVP_sha256(), ret_digest);
}

void cairn_md5_of(struct cairn_view data, uint8_t ret_digest[CAIRN_MD5_BYTES]) {
    digest_of(data, EVP_md5(), ret_digest);
}

void cairn_hmac_sha256(struct cairn_view key, struct cairn_view data,
                       uint8_t ret_mac[CAIRN_SHA256_BYTES]) {
    CAIRN_ASSERT(key.size <= INT_MAX);
    unsigned size = 0;
    /* OpenSSL refuses NULL as a text, even of no bytes. */
    const uint8_t *text = data.size ? data.data : (const uint8_t *)"";
    const void *made = HMAC(EVP_sha256(), key.data, (int)key.size, text, data.size, ret_mac, &size);
    CAIRN_ASSERT(made != NULL);
    CAIRN_ASSERT(size == CAIRN_SHA256_BYTES);
}

bool cairn_equal_secret(const void *a, const void *b, size_t size) {
    return CRYPTO_memcmp(a, b, size) == 0;
}

void cairn_wipe(void *data, size_t size) {
    OPENSSL_cleanse(data, size);
}
