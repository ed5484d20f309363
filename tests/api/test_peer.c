/* SPDX-License-Identifier: Apache-2.0 */
#include "api/wire/rights.h"

#include "tests/harness.h"

static const uint8_t server_key[CAIRN_GRANT_KEY_BYTES] = "a key of exactly thirty-two byte";

static void make_key(uint64_t attempt, uint8_t ret[CAIRN_PEER_KEY_BYTES]) {
    struct cairn_grant grant = {.store_uuid = "01234567-89ab-4def-8123-456789abcdef",
                                .name = {"llm", "7b"},
                                .attempt = attempt,
                                .nonce = "00112233445566778899aabbccddeeff"};
    char text[CAIRN_GRANT_BYTES_MAX];
    cairn_grant_sign(&grant, server_key, text);
    cairn_peer_key(text, ret);
}

static const struct cairn_peer_request request = {
    .to = "node-b", .method = "GET", .path = "/v1/x", .range = "bytes=0-9", .body_bytes = 3};

static void sign(char ret[CAIRN_PEER_RIGHT_BYTES_MAX]) {
    uint8_t key[CAIRN_PEER_KEY_BYTES];
    struct cairn_peer_right right = {.run = {"llm", "7b"}, .attempt = 12, .from = "node-a"};
    make_key(12, key);
    cairn_peer_sign(&right, &request, key, ret);
}

TEST(a_signed_request_is_taken_back_field_by_field) {
    uint8_t key[CAIRN_PEER_KEY_BYTES];
    char text[CAIRN_PEER_RIGHT_BYTES_MAX];
    struct cairn_peer_right back = {0};
    struct cairn_error err = {0};
    sign(text);
    EXPECT(strncmp(text, "Cairn-Peer llm/7b:12:node-a:", 28) == 0);
    REQUIRE_OK(cairn_peer_parse(text, &back, &err));
    EXPECT_EQ_TEXT(back.run.project, "llm");
    EXPECT_EQ_TEXT(back.from, "node-a");
    EXPECT_EQ_U64(back.attempt, 12);
    make_key(12, key);
    EXPECT(cairn_peer_check(&back, &request, key));
}

TEST(a_right_is_good_for_its_request_to_its_node_under_its_attempt_alone) {
    uint8_t key[CAIRN_PEER_KEY_BYTES], other[CAIRN_PEER_KEY_BYTES];
    char text[CAIRN_PEER_RIGHT_BYTES_MAX];
    struct cairn_peer_right back = {0};
    struct cairn_error err = {0};
    sign(text);
    REQUIRE_OK(cairn_peer_parse(text, &back, &err));
    make_key(12, key);
    make_key(13, other);
    EXPECT(!cairn_peer_check(&back, &request, other));
    struct cairn_peer_request changed[5] = {request, request, request, request, request};
    changed[0].to = "node-c";
    changed[1].method = "PUT";
    changed[2].path = "/v1/y";
    changed[3].range = "bytes=0-8";
    changed[4].body_bytes = 4;
    for (size_t i = 0; i < CAIRN_COUNT(changed); i++)
        EXPECT(!cairn_peer_check(&back, &changed[i], key));
    struct cairn_peer_right posed = back;
    memcpy(posed.from, "node-x", 7);
    EXPECT(!cairn_peer_check(&posed, &request, key));
    posed = back;
    posed.attempt = 11;
    EXPECT(!cairn_peer_check(&posed, &request, key));
}

TEST(only_one_spelling_of_a_right_exists) {
    struct cairn_peer_right back;
    struct cairn_error err = {0};
    char text[CAIRN_PEER_RIGHT_BYTES_MAX], longer[2 * CAIRN_PEER_RIGHT_BYTES_MAX];
    sign(text);
    static const char *const edits[][2] = {
        {":12:", ":012:"},       {":12:", ":+12:"},
        {":12:", ": 12:"},       {"Cairn-Peer ", "Bearer "},
        {"llm/7b", "llm"},       {":12:", ":12::"},
        {"node-a:", "node-a:X"}, {"node-a", "-"},
        {"node-a", "no/de"},     {"Cairn-Peer ", "Cairn-Peer  "}};
    for (size_t i = 0; i < CAIRN_COUNT(edits); i++) {
        const char *at = strstr(text, edits[i][0]);
        snprintf(longer, sizeof(longer), "%.*s%s%s", (int)(at - text), text, edits[i][1],
                 at + strlen(edits[i][0]));
        EXPECT_CODE(cairn_peer_parse(longer, &back, &err), CAIRN_INVALID);
    }
    EXPECT_CODE(cairn_peer_parse("", &back, &err), CAIRN_INVALID);
}

TEST(an_answer_is_proven_for_its_status_length_nonce_and_request_alone) {
    uint8_t key[CAIRN_PEER_KEY_BYTES], other[CAIRN_PEER_KEY_BYTES];
    char right_text[CAIRN_PEER_RIGHT_BYTES_MAX], text[CAIRN_PEER_ANSWER_TEXT_BYTES];
    struct cairn_peer_right right = {0};
    struct cairn_error err = {0};
    const struct cairn_peer_answer answer = {200, 5, "00112233445566778899aabbccddeeff"};
    sign(right_text);
    REQUIRE_OK(cairn_peer_parse(right_text, &right, &err));
    make_key(12, key);
    make_key(13, other);
    cairn_peer_answer_sign(&right, &answer, key, text);
    EXPECT(cairn_peer_answer_check(&right, &answer, key, cairn_view_of(text)));
    EXPECT(!cairn_peer_answer_check(&right, &answer, other, cairn_view_of(text)));
    struct cairn_peer_answer changed[3] = {answer, answer, answer};
    changed[0].status = 206;
    changed[1].body_bytes = 4;
    changed[2].nonce = "00112233445566778899aabbccddeefe";
    for (size_t i = 0; i < CAIRN_COUNT(changed); i++)
        EXPECT(!cairn_peer_answer_check(&right, &changed[i], key, cairn_view_of(text)));
    EXPECT(!cairn_peer_answer_check(&right, &answer, key, cairn_view_of("")));
    right.mac[0] ^= 1;
    EXPECT(!cairn_peer_answer_check(&right, &answer, key, cairn_view_of(text)));
}
