/* SPDX-License-Identifier: Apache-2.0 */
#include "common/hash/hash.h"

#include "tests/harness.h"

static const char *hex_of(const uint8_t *data, size_t size) {
    static char text[2 * CAIRN_SHA256_BYTES + 1];
    cairn_hex_encode(data, size, text);
    return text;
}

TEST(sha256_gives_the_known_answers_of_fips_180) {
    static const char *const pairs[][2] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };
    for (size_t i = 0; i < CAIRN_COUNT(pairs); i++) {
        uint8_t digest[CAIRN_SHA256_BYTES];
        cairn_sha256_of(cairn_view_of(pairs[i][0]), digest);
        EXPECT_EQ_TEXT(hex_of(digest, sizeof(digest)), pairs[i][1]);
    }
}

TEST(sha256_in_pieces_equals_sha256_at_once) {
    CAIRN_AUTO(sha256) sha = {0};
    uint8_t digest[CAIRN_SHA256_BYTES];
    char piece[1000];
    memset(piece, 'a', sizeof(piece));
    cairn_sha256_init(&sha);
    for (unsigned i = 0; i < 1000; i++) cairn_sha256_update(&sha, piece, sizeof(piece));
    cairn_sha256_update(&sha, NULL, 0);
    cairn_sha256_final(&sha, digest);
    EXPECT_EQ_TEXT(hex_of(digest, sizeof(digest)),
                   "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(an_unfinished_sha256_is_released) {
    struct cairn_sha256 sha = {0};
    cairn_sha256_release(&sha);
    cairn_sha256_init(&sha);
    cairn_sha256_update(&sha, "x", 1);
    cairn_sha256_release(&sha);
    EXPECT_EQ_U64(sha.state[0], 0);
}

TEST(md5_gives_the_known_answers_of_rfc_1321) {
    static const char *const pairs[][2] = {
        {"", "d41d8cd98f00b204e9800998ecf8427e"},
        {"abc", "900150983cd24fb0d6963f7d28e17f72"},
        {"message digest", "f96b697d7cb7938d525a2f31aaf161d0"},
        {"12345678901234567890123456789012345678901234567890123456789012345678901234567890",
         "57edf4a22be3c955ac49da2e2107b67a"},
    };
    for (size_t i = 0; i < CAIRN_COUNT(pairs); i++) {
        uint8_t digest[CAIRN_MD5_BYTES];
        cairn_md5_of(cairn_view_of(pairs[i][0]), digest);
        EXPECT_EQ_TEXT(hex_of(digest, sizeof(digest)), pairs[i][1]);
    }
}

TEST(hmac_sha256_gives_the_known_answers_of_rfc_4231) {
    uint8_t key[131], data[50], mac[CAIRN_SHA256_BYTES];
    memset(key, 0x0b, 20);
    cairn_hmac_sha256((struct cairn_view){key, 20}, CAIRN_VIEW("Hi There"), mac);
    EXPECT_EQ_TEXT(hex_of(mac, sizeof(mac)),
                   "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    cairn_hmac_sha256(CAIRN_VIEW("Jefe"), CAIRN_VIEW("what do ya want for nothing?"), mac);
    EXPECT_EQ_TEXT(hex_of(mac, sizeof(mac)),
                   "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof(key));
    memset(data, 0xdd, sizeof(data));
    cairn_hmac_sha256((struct cairn_view){key, 20}, (struct cairn_view){data, 50}, mac);
    EXPECT_EQ_TEXT(hex_of(mac, sizeof(mac)),
                   "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
    cairn_hmac_sha256((struct cairn_view){key, 131},
                      CAIRN_VIEW("Test Using Larger Than Block-Size Key - Hash Key First"), mac);
    EXPECT_EQ_TEXT(hex_of(mac, sizeof(mac)),
                   "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(hmac_of_an_empty_key_and_text_is_not_that_of_the_call_before) {
    uint8_t mac[CAIRN_SHA256_BYTES];
    struct cairn_view nothing = {0};
    cairn_hmac_sha256(CAIRN_VIEW("other"), CAIRN_VIEW("other"), mac);
    cairn_hmac_sha256(nothing, nothing, mac);
    EXPECT_EQ_TEXT(hex_of(mac, sizeof(mac)),
                   "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST(secrets_are_equal_only_when_every_byte_is) { /* hash.h#1: the value, not the time */
    uint8_t a[32] = {0}, b[32] = {0};
    EXPECT(cairn_equal_secret(a, b, sizeof(a)));
    EXPECT(cairn_equal_secret(a, b, 0));
    for (size_t i = 0; i < sizeof(a); i++) {
        b[i] = 0x80;
        EXPECT(!cairn_equal_secret(a, b, sizeof(a)));
        b[i] = 0;
    }
}

TEST(wiped_bytes_are_zero) {
    uint8_t key[16];
    memset(key, 7, sizeof(key));
    cairn_wipe(key, sizeof(key));
    EXPECT(!memcmp(key, (uint8_t[16]){0}, sizeof(key)));
}
