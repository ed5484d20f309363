/* SPDX-License-Identifier: Apache-2.0 */

#include "tests/harness.h"

TEST(appended_bytes_are_kept_and_followed_by_a_nul, err) { /* buf.h#2 */
    WITH_OK(buf, buf, cairn_buf_append(&buf, NULL, 0, &err));
    EXPECT_EQ_TEXT(buf.data, "");
    REQUIRE_OK(cairn_buf_append(&buf, "a\0b", 3, &err));
    REQUIRE_OK(cairn_buf_append_text(&buf, "cd", &err));
    REQUIRE_OK(cairn_buf_printf(&buf, &err, "-%05d-%s", 42, "x"));
    EXPECT_EQ_U64(buf.size, 13);
    EXPECT(!memcmp(buf.data, "a\0bcd-00042-x", 14));
    cairn_buf_clear(&buf);
    EXPECT_EQ_U64(buf.size, 0);
    EXPECT_EQ_TEXT(buf.data, "");
}

TEST(integers_are_little_endian_both_ways, err) {
    WITH_OK(buf, buf, cairn_buf_append_u32le(&buf, 0x01020304u, &err));
    REQUIRE_OK(cairn_buf_append_u64le(&buf, UINT64_C(0x1112131415161718), &err));
    REQUIRE(buf.size == 12);
    EXPECT(!memcmp(buf.data, "\4\3\2\1\x18\x17\x16\x15\x14\x13\x12\x11", 12));
    EXPECT_EQ_U64(cairn_load_u32le(buf.data), 0x01020304u);
    EXPECT_EQ_U64(cairn_load_u64le(buf.data + 4), UINT64_C(0x1112131415161718));
}

TEST(the_limit_itself_fits_and_one_more_changes_nothing, err) { /* buf.h#1 */
    CAIRN_AUTO(buf) buf = {.limit = 100};
    char text[101];
    memset(text, 'x', sizeof(text));
    REQUIRE_OK(cairn_buf_append(&buf, text, 100, &err));
    EXPECT_EQ_U64(buf.size, 100);
    EXPECT(buf.capacity <= 101);
    EXPECT_CODE(cairn_buf_append(&buf, "y", 1, &err), CAIRN_TOO_LARGE);
    EXPECT_CODE(cairn_buf_printf(&buf, &err, "%d", 1), CAIRN_TOO_LARGE);
    EXPECT_CODE(cairn_buf_append_u32le(&buf, 1, &err), CAIRN_TOO_LARGE);
    EXPECT_ALL_U64(buf.size, 100, strlen(buf.data), 100);
    REQUIRE_OK(cairn_buf_append(&buf, "", 0, &err));
    cairn_buf_clear(&buf);
    REQUIRE_OK(cairn_buf_append(&buf, text, 100, &err));
    CAIRN_AUTO(buf) empty = {.limit = 100};
    EXPECT_CODE(cairn_buf_append(&empty, text, 101, &err), CAIRN_TOO_LARGE);
    EXPECT(empty.data == NULL);
}

TEST(printed_text_is_whole_whatever_room_there_was) {
    for (size_t before = 0; before < 200; before++)
        for (int size = 0; size < 140; size += 23) {
            CAIRN_AUTO(buf) buf = {.limit = 300};
            struct cairn_error err = {0};
            char text[200];
            memset(text, 'x', sizeof(text));
            REQUIRE_OK(cairn_buf_append(&buf, text, before, &err));
            if (before % 2) REQUIRE_OK(cairn_buf_reserve(&buf, 80, &err)); /* some is written */
            enum cairn_code code = cairn_buf_printf(&buf, &err, "<%*d>", size + 1, 7);
            bool fits = before + (size_t)size + 3 <= 300;
            EXPECT_CODE(code, fits ? CAIRN_OK : CAIRN_TOO_LARGE);
            EXPECT_EQ_U64(buf.size, before + (fits ? (size_t)size + 3 : 0));
            EXPECT_EQ_U64(strlen(buf.data), buf.size); /* promise 2 holds after a refusal, too */
            if (fits) EXPECT_EQ_TEXT(buf.data + buf.size - 2, "7>");
        }
}

TEST(a_size_that_overflows_is_too_large, err) {
    CAIRN_AUTO(buf) buf = {.limit = SIZE_MAX};
    REQUIRE_OK(cairn_buf_append_text(&buf, "x", &err));
    EXPECT_CODE(cairn_buf_reserve(&buf, SIZE_MAX, &err), CAIRN_TOO_LARGE);
    EXPECT_CODE(cairn_buf_reserve(&buf, SIZE_MAX - 1, &err), CAIRN_TOO_LARGE);
    EXPECT_EQ_TEXT(buf.data, "x");
}

TEST(the_default_limit_is_16_mib, err) {
    WITH_OK(buf, buf, cairn_buf_reserve(&buf, 16 * CAIRN_MIB, &err));
    EXPECT_CODE(cairn_buf_reserve(&buf, 16 * CAIRN_MIB + 1, &err), CAIRN_TOO_LARGE);
}

TEST(many_small_appends_reallocate_seldom, err) {
    CAIRN_AUTO(buf) buf = {0};
    unsigned moves = 0;
    for (unsigned i = 0; i < 100000; i++) {
        size_t before = buf.capacity;
        REQUIRE_OK(cairn_buf_append(&buf, "0123456789", 10, &err));
        moves += buf.capacity != before;
    }
    EXPECT_EQ_U64(buf.size, 1000000);
    EXPECT(moves < 20);
}

TEST(a_zeroed_and_a_twice_released_buffer_are_both_released, err) { /* base.h#1 */
    struct cairn_buf buf = {.limit = 7};
    cairn_buf_release(&buf);
    cairn_buf_clear(&buf);
    REQUIRE_OK(cairn_buf_append_text(&buf, "x", &err));
    cairn_buf_release(&buf);
    cairn_buf_release(&buf);
    EXPECT(buf.data == NULL && buf.size == 0 && buf.capacity == 0 && buf.limit == 7);
}
