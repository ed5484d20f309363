/* SPDX-License-Identifier: Apache-2.0 */
/* Formats of lines and cells, word by word; and a table that names what its rows do not have. */
#include "cli/shell/output.h"

#include <jansson.h>

#include "tests/harness.h"

static struct cairn_error err;
static char text[200];

/* The format's text of this object. */
static const char *put(const char *format, const char *json) {
    CAIRN_AUTO_JSON json_t *item = json_loads(json, 0, NULL);
    if (!EXPECT(item)) return NULL;
    cli_format(format, item, text, sizeof text);
    return text;
}

TEST(members_stand_in_the_text_and_dots_go_into_objects) {
    EXPECT_EQ_TEXT(put("{a}/{b.c}: {d}", "{\"a\":\"x\",\"b\":{\"c\":7},\"d\":0.5}"), "x/7: 0.5");
    EXPECT_EQ_TEXT(put("{a}/{b.c}", "{\"a\":null}"), "/");
}

TEST(the_first_alternative_that_is_there_is_told) {
    const char *format = "{a|b|=none}";
    EXPECT_EQ_TEXT(put(format, "{\"a\":\"x\",\"b\":\"y\"}"), "x");
    EXPECT_EQ_TEXT(put(format, "{\"a\":\"\",\"b\":0}"), "0");
    EXPECT_EQ_TEXT(put(format, "{\"a\":null}"), "none");
}

TEST(a_true_member_chooses_its_words) {
    EXPECT_EQ_TEXT(put("{a? is on|= is off}", "{\"a\":true}"), " is on");
    EXPECT_EQ_TEXT(put("{a? is on|= is off}", "{\"a\":false}"), " is off");
    EXPECT_EQ_TEXT(put("{a?yes|b}", "{\"a\":false,\"b\":\"no\"}"), "no");
}

TEST(a_group_is_left_out_unless_all_its_members_are_there) {
    const char *format = "x[ {a}[/{b}]] y";
    EXPECT_EQ_TEXT(put(format, "{\"a\":\"p\",\"b\":\"r\"}"), "x p/r y");
    EXPECT_EQ_TEXT(put(format, "{\"a\":\"p\"}"), "x p y");
    EXPECT_EQ_TEXT(put(format, "{\"b\":\"r\"}"), "x y");
    EXPECT_EQ_TEXT(put("[{a:if}{b} left]", "{\"a\":1,\"b\":0}"), "0 left");
    EXPECT_EQ_TEXT(put("[{a:if}{b} left]", "{\"a\":0,\"b\":0}"), "");
    EXPECT_EQ_TEXT(put("[{a:if}{b} left]", "{\"a\":false,\"b\":0}"), "");
}

TEST(numbers_have_their_noun_and_bytes_their_unit) {
    EXPECT_EQ_TEXT(put("{n#shard}", "{\"n\":1}"), "1 shard");
    EXPECT_EQ_TEXT(put("{n#shard}", "{\"n\":0}"), "0 shards");
    EXPECT_EQ_TEXT(put("{n#is/are}", "{\"n\":1}"), "1 is");
    EXPECT_EQ_TEXT(put("{n#is/are}", "{\"n\":2}"), "2 are");
    EXPECT_EQ_TEXT(put("{n:size} {n:rate}", "{\"n\":1536}"), "1.5 KiB 1.5 KiB/s");
    EXPECT_EQ_TEXT(put("{n:size}", "{\"n\":0}"), "0 B");
    EXPECT_EQ_TEXT(put("{n:some|=-}", "{\"n\":0}"), "-");
}

TEST(lists_are_told_with_commas) {
    const char *json = "{\"words\":[\"a\",\"b\"],\"labels\":{\"tier\":\"keep\"},\"none\":[]}";
    EXPECT_EQ_TEXT(put("{words:list} {words:packed}", json), "a, b a,b");
    EXPECT_EQ_TEXT(put("{labels:packed}[ {none:list}]", json), "tier=keep");
}

TEST(cells_are_filled_up_on_the_side_that_is_named) {
    EXPECT_EQ_TEXT(put("{a>5}|{a<5}|{n:size>7}", "{\"a\":\"abc\",\"n\":1}"), "  abc|abc  |    1 B");
    EXPECT_EQ_TEXT(put("{a>2}", "{\"a\":\"abc\"}"), "abc");
}

static void print_misnamed(void *ignored) {
    static const struct cli_table table = {CAIRN_MESSAGE_run_row, .name = "{run}",
                                           .columns = {{"RUN", .text = "{run}/{tide}"}}};
    const struct cli cli = {.output = CLI_TABLE};
    CAIRN_AUTO_JSON json_t *none = json_array();
    (void)ignored;
    (void)!cli_print(&cli, none, &table, &err);
}

TEST(a_table_that_names_what_its_rows_lack_stops_the_program) {
    int status = cairn_test_in_child(print_misnamed, NULL, text, sizeof text);
    EXPECT(WIFSIGNALED(status));
}
