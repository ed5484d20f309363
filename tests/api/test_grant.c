/* SPDX-License-Identifier: Apache-2.0 */
#include "api/wire/rights.h"

#include "tests/api/mutate.h"
#include "tests/harness.h"

static const uint8_t key[CAIRN_GRANT_KEY_BYTES] = "a key of exactly thirty-two byte";
static const struct cairn_grant grant = {
    .store_uuid = "01234567-89ab-4def-8123-456789abcdef",
    .name = {"llm", "7b"},
    .attempt = 12,
    .nonce = "00112233445566778899aabbccddeeff",
};

TEST(a_signed_grant_is_taken_back_field_by_field) {
    char text[CAIRN_GRANT_BYTES_MAX];
    struct cairn_grant back;
    struct cairn_error err = {0};
    cairn_grant_sign(&grant, key, text);
    EXPECT(strncmp(text, "cairn1:01234567-89ab-4def-8123-456789abcdef:llm/7b:12:", 54) == 0);
    REQUIRE_OK(cairn_grant_check(text, key, &back, &err));
    EXPECT_EQ_TEXT(back.store_uuid, grant.store_uuid);
    EXPECT_EQ_TEXT(back.name.run, "7b");
    EXPECT_EQ_TEXT(back.nonce, grant.nonce);
    EXPECT_EQ_U64(back.attempt, 12);
}

TEST(another_key_or_another_attempt_does_not_pass) {
    char text[CAIRN_GRANT_BYTES_MAX];
    uint8_t other[CAIRN_GRANT_KEY_BYTES] = {1};
    struct cairn_grant back = {0};
    struct cairn_error err = {0};
    cairn_grant_sign(&grant, key, text);
    EXPECT_CODE(cairn_grant_check(text, other, &back, &err), CAIRN_FORBIDDEN);
    *strstr(text, ":12:") = ':';
    memcpy(strstr(text, ":12:"), ":13:", 4);
    EXPECT_CODE(cairn_grant_check(text, key, &back, &err), CAIRN_FORBIDDEN);
    EXPECT_EQ_U64(back.attempt, 0);
    EXPECT_CODE(cairn_grant_parse(text, &back, &err), CAIRN_OK); /* proves nothing */
    EXPECT_EQ_U64(back.attempt, 13);
}

TEST(only_one_spelling_of_a_grant_exists) {
    struct cairn_grant back;
    struct cairn_error err = {0};
    char text[CAIRN_GRANT_BYTES_MAX + 80], longer[CAIRN_GRANT_BYTES_MAX + 80];
    cairn_grant_sign(&grant, key, text);
    static const char *const edits[][2] = {
        {":12:", ":012:"},    {":12:", ":+12:"},        {":12:", ": 12:"},
        {"cairn1", "cairn2"}, {"llm/7b", "llm"},        {"llm/7b", "llm/7b/x"},
        {":12:", ":12::"},    {"00112233", "0011223X"}, {"00112233", "00112233:"}};
    for (size_t i = 0; i < CAIRN_COUNT(edits); i++) {
        const char *at = strstr(text, edits[i][0]);
        snprintf(longer, sizeof longer, "%.*s%s%s", (int)(at - text), text, edits[i][1],
                 at + strlen(edits[i][0]));
        EXPECT_CODE(cairn_grant_parse(longer, &back, &err), CAIRN_INVALID);
    }
    EXPECT(strstr(err.message, "7b") == NULL); /* a malformed grant is never shown */
}

static void judge(struct cairn_view input, void *context) {
    char *text = calloc(input.size + 1, 1);
    struct cairn_grant back;
    memcpy(text, input.data, input.size);
    bool equal = !strcmp(text, context);
    EXPECT((cairn_grant_check(text, key, &back, NULL) == CAIRN_OK) == equal);
    (void)!cairn_grant_parse(text, &back, NULL);
    free(text);
}

TEST(no_damaged_grant_passes) {
    char text[CAIRN_GRANT_BYTES_MAX];
    cairn_grant_sign(&grant, key, text);
    cairn_mutate_cut(cairn_view_of(text), judge, text);
    cairn_mutate_many(cairn_view_of(text), 10000, judge, text);
}
