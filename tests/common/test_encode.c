/* SPDX-License-Identifier: Apache-2.0 */

#include "tests/harness.h"

TEST(hex_round_trips_and_is_lower_case, err) {
    char text[9];
    uint8_t bytes[4];
    cairn_hex_encode("\x00\x9f\xff\x10", 4, text);
    EXPECT_EQ_TEXT(text, "009fff10");
    REQUIRE_OK(cairn_hex_decode(CAIRN_VIEW("009fff10"), bytes, 4, &err));
    EXPECT(!memcmp(bytes, "\x00\x9f\xff\x10", 4));
    cairn_hex_encode("", 0, text);
    EXPECT_EQ_TEXT(text, "");
    REQUIRE_OK(cairn_hex_decode(CAIRN_VIEW(""), bytes, 0, &err));
}

TEST(hex_that_was_not_written_by_us_is_refused, err) { /* text.h#4 */
    EACH_TEXT(one, "", "009fff1", "009fff100", "009FFF10", "009fff1g", "0x9fff10", " 09fff10",
              "009fff1 ", "009fff1/", "009fff1:", "009fff1`") {
        uint8_t bytes[4] = "abcd";
        EXPECT_CODE(cairn_hex_decode(cairn_view_of(one), bytes, 4, &err), CAIRN_INVALID);
        EXPECT(!memcmp(bytes, "abcd", 4));
    }
}

TEST(base64_gives_the_known_answers_of_rfc_4648, err) {
    static const char *const pairs[][2] = {
        {"", ""},
        {"f", "Zg=="},
        {"fo", "Zm8="},
        {"foo", "Zm9v"},
        {"foob", "Zm9vYg=="},
        {"fooba", "Zm9vYmE="},
        {"foobar", "Zm9vYmFy"},
        {"\xfb\xff\xfe", "+//+"},
    };
    for (size_t i = 0; i < CAIRN_COUNT(pairs); i++) {
        WITH_OK(buf, text, cairn_base64_encode(cairn_view_of(pairs[i][0]), &text, &err));
        EXPECT_EQ_TEXT(text.data, pairs[i][1]);
        WITH_OK(buf, data, cairn_base64_decode(cairn_view_of(pairs[i][1]), &data, &err));
        EXPECT_EQ_TEXT(data.data, pairs[i][0]);
        EXPECT_EQ_U64(data.size, strlen(pairs[i][0]));
    }
}

TEST(base64_that_was_not_written_by_us_is_refused_and_changes_nothing, err) { /* text.h#4 */
    WITH_OK(buf, data, cairn_buf_append_text(&data, "kept", &err));
    EACH_TEXT(one, "Zg", "Zg=", "Z===", "====", "Zh==", "Zm9=", "Zm-v", "Zm_v", "Zm9\n", "Zg==Zm9v",
              "Zm9vZ=9v", "Z=9v") {
        EXPECT_CODE(cairn_base64_decode(cairn_view_of(one), &data, &err), CAIRN_INVALID);
        EXPECT_EQ_TEXT(data.data, "kept");
        EXPECT_EQ_U64(data.size, 4);
    }
}

TEST(random_bytes_survive_base64_and_hex, err) {
    uint64_t state = cairn_test_seed();
    for (size_t size = 0; size < 300; size++) {
        uint8_t bytes[300], back[300];
        char hex[601];
        for (size_t i = 0; i < size; i++) bytes[i] = (uint8_t)cairn_test_random(&state);
        struct cairn_view view = {bytes, size};
        WITH_OK(buf, text, cairn_base64_encode(view, &text, &err));
        WITH_OK(buf, data, cairn_base64_decode(cairn_buf_view(&text), &data, &err));
        EXPECT(data.size == size && !memcmp(data.data, bytes, size));
        cairn_hex_encode(bytes, size, hex);
        REQUIRE_OK(cairn_hex_decode(cairn_view_of(hex), back, size, &err));
        EXPECT(!memcmp(back, bytes, size));
    }
}

TEST(percent_encoding_leaves_only_unreserved_bytes, err) {
    WITH_OK(buf, text,
            cairn_percent_encode(CAIRN_VIEW("aZ09-._~ /+%\xc3\xa9"), false, &text, &err));
    EXPECT_EQ_TEXT(text.data, "aZ09-._~%20%2F%2B%25%C3%A9");
    cairn_buf_clear(&text);
    REQUIRE_OK(cairn_percent_encode(CAIRN_VIEW("a/b c"), true, &text, &err));
    EXPECT_EQ_TEXT(text.data, "a/b%20c");
}

TEST(percent_decoding_takes_both_cases_and_keeps_the_plus, err) {
    WITH_OK(buf, text, cairn_percent_decode(CAIRN_VIEW("a%2fb%2Fc+d%61%C3%a9"), &text, &err));
    EXPECT_EQ_TEXT(text.data, "a/b/c+da\xc3\xa9");
}

TEST(bad_escapes_and_nul_bytes_are_refused_and_change_nothing, err) {
    WITH_OK(buf, text, cairn_buf_append_text(&text, "kept", &err));
    EACH_TEXT(one, "%", "a%2", "%g0", "%0g", "%%20", "% 20", "%00", "a%00b", "%-1", "%u0041",
              "ok%2") {
        EXPECT_CODE(cairn_percent_decode(cairn_view_of(one), &text, &err), CAIRN_INVALID);
        EXPECT_EQ_TEXT(text.data, "kept");
    }
    EXPECT_CODE(cairn_percent_decode(CAIRN_VIEW("a\0b"), &text, &err), CAIRN_INVALID);
    EXPECT_EQ_U64(text.size, 4);
}

TEST(an_escape_at_the_very_end_does_not_read_past_the_view, err) {
    CAIRN_AUTO(buf) text = {0};
    /* The bytes behind the view would make a good escape. */
    EXPECT_CODE(cairn_percent_decode((struct cairn_view){"a%41", 3}, &text, &err), CAIRN_INVALID);
    REQUIRE_OK(cairn_percent_decode((struct cairn_view){"a%41", 4}, &text, &err));
    EXPECT_EQ_TEXT(text.data, "aA");
}

TEST(well_formed_utf8_is_told_from_the_rest) {
    EACH_TEXT(one, "", "plain", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
              "\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf")
        EXPECT(cairn_utf8_valid(cairn_view_of(one)));
    EACH_TEXT(name, "\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc2", "\xc2\xc2", "\xe0\x80\x80",
              "\xe0\x9f\xbf", "\xe2\x82", "\xed\xa0\x80", "\xed\xbf\xbf", "\xf0\x80\x80\x80",
              "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xfe", "\xff",
              "ok\xe2\x28\xa1")
        EXPECT(!cairn_utf8_valid(cairn_view_of(name)));
    /* At each place of a text of each size: eight bytes are looked at at once. */
    for (size_t size = 2; size < 40; size++)
        for (size_t at = 0; at + 1 < size; at++) {
            char text[41];
            memset(text, 'a', sizeof text);
            text[size] = 0;
            text[at] = '\xc3';
            EXPECT(!cairn_utf8_valid(cairn_view_of(text)));
            text[at + 1] = '\xbc';
            EXPECT(cairn_utf8_valid(cairn_view_of(text)));
            text[at] = 'a';
            EXPECT(!cairn_utf8_valid(cairn_view_of(text)));
        }
}
