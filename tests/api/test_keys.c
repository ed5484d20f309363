/* SPDX-License-Identifier: Apache-2.0 */
#include "api/documents/keys.h"

#include "tests/api/mutate.h"

#define ID "ckpt_01234567-89ab-8def-8123-456789abcdef"
#define NONCE "00112233445566778899aabbccddeeff"

static bool shard_good(const char *name) {
    return cairn_shard_name_check(cairn_view_of(name), NULL) == CAIRN_OK;
}

TEST(run_names_are_plain_and_never_climb) {
    EACH_TEXT(text, "a", "7b-pretrain", "A.b_c-d", "0")
        EXPECT(cairn_name_valid(cairn_view_of(text)));
    EACH_TEXT(one, "", ".a", "-a", "_a", "a..b", "a/b", "a b", "\xc3\xa4", "a\n")
        EXPECT(!cairn_name_valid(cairn_view_of(one)));
    char longest[CAIRN_NAME_BYTES_MAX + 2];
    memset(longest, 'x', sizeof longest);
    EXPECT(cairn_name_valid((struct cairn_view){longest, CAIRN_NAME_BYTES_MAX}));
    EXPECT(!cairn_name_valid((struct cairn_view){longest, CAIRN_NAME_BYTES_MAX + 1}));
    EXPECT(!cairn_name_valid((struct cairn_view){"a\0b", 3}));
}

TEST(a_run_is_two_names_with_one_slash, err) {
    struct cairn_run_name name;
    REQUIRE_OK(cairn_run_name_parse("llm/7b", &name, &err));
    EXPECT_ALL_TEXT(name.project, "llm", name.run, "7b");
    EXPECT_CODE(cairn_run_name_parse("llm", &name, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_run_name_parse("llm/7b/x", &name, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_run_name_parse("/7b", &name, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_run_name_parse("llm/..", &name, &err), CAIRN_INVALID);
}

TEST(shard_names_stay_in_their_folder) {
    EXPECT(shard_good("rank-00003.safetensors"));
    EXPECT(shard_good("a/b/c.pt"));
    EXPECT(shard_good("\xc3\xa4 b%2f\xf0\x9f\x98\x80"));
    EXPECT(shard_good("..."));
    EACH_TEXT(text, "", "/a", "a/", "a//b", ".", "a/..", "../a", "a/./b", "a\\b", "a\nb", "a\x7f",
              "\xc0\xaf", "\xed\xa0\x80", "\xff", "a/../b")
        EXPECT(!shard_good(text));
    EXPECT(cairn_shard_name_check((struct cairn_view){"a\0b", 3}, NULL) != CAIRN_OK);
    char longest[CAIRN_SHARD_NAME_BYTES_MAX + 2] = "";
    memset(longest, 'x', sizeof longest - 1);
    EXPECT(!shard_good(longest)); /* one component of 513 */
    longest[200] = longest[401] = '/';
    EXPECT(!shard_good(longest));
    longest[CAIRN_SHARD_NAME_BYTES_MAX] = '\0';
    EXPECT(shard_good(longest));
    longest[200] = 'x';
    EXPECT(!shard_good(longest)); /* a component of 401 */
}

TEST(a_version_id_is_a_pure_function_of_its_origin) {
    struct cairn_version_origin origin = {{"llm", "7b"}, 3, NONCE, 1200, 1};
    struct cairn_version_id id, again, other;
    cairn_version_id_make(&origin, &id);
    cairn_version_id_make(&origin, &again);
    EXPECT_EQ_TEXT(id.text, again.text);
    EXPECT(cairn_version_id_valid(cairn_view_of(id.text)));
    /* Made with hashlib and uuid of Python from the text that docs/format.md gives. */
    EXPECT_EQ_TEXT(id.text, "ckpt_fe9860ed-0c87-8806-b915-3cc543870491");
    origin.n = 2;
    cairn_version_id_make(&origin, &other);
    EXPECT(strcmp(id.text, other.text) != 0);
    origin.n = 1;
    origin.nonce[0] = '1';
    cairn_version_id_make(&origin, &other);
    EXPECT(strcmp(id.text, other.text) != 0);
}

TEST(keys_are_what_the_format_page_says) {
    struct cairn_version_place place = {{"llm", "7b"}, 1200, {ID}};
    struct cairn_key key;
    uint8_t digest[32] = {0xab};
    cairn_key_store_json(&key);
    EXPECT_EQ_TEXT(key.text, ".cairn/store.json");
    cairn_key_attempt(&place.name, 7, &key);
    EXPECT_EQ_TEXT(key.text, "llm/7b/attempts/000000000007.json");
    cairn_key_layout(&place.name, digest, &place.id, &key);
    EXPECT_EQ_TEXT(key.text, "llm/7b/layouts/"
                             "ab00000000000000000000000000000000000000000000000000000000000000-"
                             "0123456789ab8def.layout");
    cairn_key_version_prefix(&place, &key);
    EXPECT_EQ_TEXT(key.text, "llm/7b/000000001200/" ID "/");
    cairn_key_shard(&place, CAIRN_VIEW("a/b"), &key);
    EXPECT_EQ_TEXT(key.text, "llm/7b/000000001200/" ID "/data/a/b");
    cairn_key_manifest(&place, &key);
    EXPECT_EQ_TEXT(key.text, "llm/7b/000000001200/" ID "/manifest.json");
    cairn_key_checksums(&place, &key);
    EXPECT_EQ_TEXT(key.text, "llm/7b/000000001200/" ID "/checksums.bin");
    cairn_key_committed(&place, &key);
    EXPECT_EQ_TEXT(key.text, "llm/7b/000000001200/" ID "/committed.json");
}

TEST(marks_are_told_from_everything_else_below_a_version) {
    struct cairn_version_place place = {{"llm", "7b"}, 1200, {ID}};
    struct cairn_key key;
    cairn_key_trashed(&place, &key);
    EXPECT(cairn_key_is_mark(key.text));
    cairn_key_superseded(&place, 12, &key);
    EXPECT(cairn_key_is_mark(key.text));
    cairn_key_committed(&place, &key);
    EXPECT(!cairn_key_is_mark(key.text));
    cairn_key_shard(&place, CAIRN_VIEW("trashed.json"), &key);
    EXPECT(!cairn_key_is_mark(key.text));
    EXPECT(!cairn_key_is_mark("llm/7b/attempts/000000000012.json"));
    EXPECT(!cairn_key_is_mark("llm/7b/000000001200/" ID "/superseded-12.json"));
    EXPECT(!cairn_key_is_mark("trashed.json"));
}

TEST(the_longest_names_make_a_key_that_fits) {
    struct cairn_version_place place = {.step = CAIRN_STEP_MAX, .id = {ID}};
    struct cairn_key key;
    char shard[CAIRN_SHARD_NAME_BYTES_MAX];
    memset(place.name.project, 'p', CAIRN_NAME_BYTES_MAX);
    memset(place.name.run, 'r', CAIRN_NAME_BYTES_MAX);
    memset(shard, 's', sizeof shard);
    shard[200] = shard[400] = '/';
    cairn_key_shard(&place, (struct cairn_view){shard, sizeof shard}, &key);
    EXPECT(strlen(key.text) < CAIRN_KEY_BYTES_MAX);
    EXPECT_EQ_U64(strlen(key.text), 128 + 1 + 128 + 1 + 12 + 1 + 41 + 6 + 512);
}

static void judge_shard_name(struct cairn_view input, void *context) {
    uint32_t *good = context;
    if (cairn_shard_name_check(input, NULL) == CAIRN_OK) (*good)++;
    (void)cairn_version_id_valid(input);
    (void)cairn_name_valid(input);
}

TEST(damaged_names_never_read_outside) {
    uint32_t good = 0;
    struct cairn_view name = CAIRN_VIEW("rank-00003/opt\xc3\xa4.pt");
    cairn_mutate_cut(name, judge_shard_name, &good);
    cairn_mutate_many(name, 10000, judge_shard_name, &good);
    cairn_mutate_many(CAIRN_VIEW(ID), 10000, judge_shard_name, &good);
    EXPECT(good > 0);
}
