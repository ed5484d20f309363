/* SPDX-License-Identifier: Apache-2.0 */
#include "common/trace.h"

#include "tests/harness.h"

TEST(random_bytes_fill_the_whole_and_nothing_more) {
    static uint8_t bytes[5000];
    unsigned counts[256] = {0};
    cairn_random(bytes, 4999);
    EXPECT_EQ_U64(bytes[4999], 0);
    cairn_random(bytes, 0);
    for (size_t i = 0; i < 4999; i++) counts[bytes[i]]++;
    /* 4,999 draws of 256 values: a value that misses or comes 80 times is one run in 10^6. */
    unsigned missing = 0, most = 0;
    for (size_t i = 0; i < 256; i++) {
        missing += counts[i] == 0;
        if (counts[i] > most) most = counts[i];
    }
    EXPECT(missing == 0 && most < 80);
}

TEST(random_uuids_are_version_4_and_never_repeat) {
    static char seen[1000][CAIRN_UUID_TEXT_BYTES];
    for (size_t i = 0; i < CAIRN_COUNT(seen); i++) {
        cairn_uuid_random(seen[i]);
        EXPECT(cairn_uuid_text_valid(cairn_view_of(seen[i])));
        EXPECT(seen[i][14] == '4' && strchr("89ab", seen[i][19]) != NULL);
        for (size_t j = 0; j < i; j++) {
            if (!strcmp(seen[i], seen[j])) EXPECT_EQ_U64(i, j);
        }
    }
}

static void print_uuid(void *argument) {
    char text[CAIRN_UUID_TEXT_BYTES];
    (void)argument;
    cairn_uuid_random(text);
    fputs(text, stderr);
}

TEST(a_forked_child_draws_other_ids_than_its_parent) {
    char child[64], other[64], mine[CAIRN_UUID_TEXT_BYTES];
    cairn_test_in_child(print_uuid, NULL, child, sizeof(child));
    cairn_test_in_child(print_uuid, NULL, other, sizeof(other));
    cairn_uuid_random(mine);
    EXPECT_EQ_U64(strlen(child), 36);
    EXPECT(strcmp(child, mine) != 0);
    EXPECT(strcmp(child, other) != 0);
}

TEST(a_digest_gives_always_the_same_uuid_of_version_8) {
    uint8_t digest[16];
    char text[CAIRN_UUID_TEXT_BYTES];
    for (uint8_t i = 0; i < 16; i++) digest[i] = (uint8_t)(i * 0x11);
    cairn_uuid_from_digest(digest, text);
    EXPECT_EQ_TEXT(text, "00112233-4455-8677-8899-aabbccddeeff");
    memset(digest, 0xff, sizeof(digest));
    cairn_uuid_from_digest(digest, text);
    EXPECT_EQ_TEXT(text, "ffffffff-ffff-8fff-bfff-ffffffffffff");
}

TEST(only_lower_case_canonical_text_is_a_uuid) {
    EXPECT(cairn_uuid_text_valid(CAIRN_VIEW("00112233-4455-8677-8899-aabbccddeeff")));
    EACH_TEXT(text, "", "00112233-4455-8677-8899-aabbccddeef",
              "00112233-4455-8677-8899-aabbccddeeff0", "00112233-4455-8677-8899-AABBCCDDEEFF",
              "0011223304455-8677-8899-aabbccddeeff", "00112233-4455-8677-8899-aabbccddeefg",
              "00112233-4455-8677-8899--abbccddeeff", "{0112233-4455-8677-8899-aabbccddeeff") {
        EXPECT(!cairn_uuid_text_valid(cairn_view_of(text)));
    }
}
