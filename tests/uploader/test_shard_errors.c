/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of the store's refusals. */
#include "uploader/saves/save.h"

#include "tests/harness.h"

TEST(of_each_shard_and_part_the_last_error_is_kept_and_counted) { /* save.h#6 */
    struct cairn_up_errors errors = {0};
    cairn_up_errors_add(&errors, "a", 1, "503", 10);
    cairn_up_errors_add(&errors, "a", 2, "500", 20);
    cairn_up_errors_add(&errors, "b", 1, "403", 30);
    cairn_up_errors_add(&errors, "a", 1, "timeout", 40);
    EXPECT_EQ_U64(errors.count, 3);
    const struct cairn_up_shard_error *newest = &errors.items[0];
    EXPECT_EQ_TEXT(newest->shard, "a");
    EXPECT_EQ_U64(newest->part, 1);
    EXPECT_EQ_TEXT(newest->text, "timeout");
    EXPECT_ALL_U64(newest->tries, 2, newest->at_ms, 40);
    EXPECT_EQ_TEXT(errors.items[1].shard, "b");
    EXPECT_ALL_U64(errors.items[2].part, 2, errors.items[2].tries, 1);
}

TEST(the_error_that_is_longest_ago_makes_room) { /* save.h#6 */
    struct cairn_up_errors errors = {0};
    for (uint32_t part = 1; part <= 9; part++) {
        cairn_up_errors_add(&errors, "a", part, "503", part);
        if (part == 5) cairn_up_errors_add(&errors, "a", 2, "503", part); /* of before: it stays */
    }
    EXPECT_EQ_U64(errors.count, CAIRN_UP_ERRORS_MAX);
    for (uint32_t i = 0; i < CAIRN_UP_ERRORS_MAX; i++) EXPECT_EQ_U64(errors.items[i].part, 9 - i);
}

TEST(long_texts_are_cut_on_a_border_of_utf_8) {
    struct cairn_up_errors errors = {0};
    char text[700];
    memset(text, 'x', sizeof(text));
    snprintf(text + 198, sizeof(text) - 198, "\xc3\xa4 and more");
    cairn_up_errors_add(&errors, text, 1, text, 1);
    cairn_up_errors_add(&errors, text, 1, text, 2); /* the same shard, though its name was cut */
    EXPECT_EQ_U64(errors.count, 1);
    EXPECT(strlen(errors.items[0].shard) < sizeof(errors.items[0].shard));
    EXPECT((unsigned char)errors.items[0].text[strlen(errors.items[0].text) - 1] < 0x80);
}
