/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
#include "common/trace.h"

#include "common/log.h"
#include "tests/harness.h"

#define ID "0af7651916cd43dd8448eb211c80319c"
#define PARENT "b7ad6b7169203331"

TEST(a_traceparent_of_version_00_is_taken_with_its_flags) { /* trace.h#1 */
    struct cairn_trace trace;
    REQUIRE(cairn_trace_parse(CAIRN_VIEW("00-" ID "-" PARENT "-01"), &trace));
    EXPECT_ALL_TEXT(trace.id, ID, trace.parent, PARENT);
    EXPECT_EQ_U64(trace.flags, 1);
}

TEST(a_later_version_is_read_as_far_as_version_00_goes) {
    EACH_TEXT(text, "01-" ID "-" PARENT "-00", "cc-" ID "-" PARENT "-01-more",
              "fe-" ID "-" PARENT "-ff-") {
        struct cairn_trace trace;
        cairn_test_check(cairn_trace_parse(cairn_view_of(text), &trace), __FILE__, __LINE__,
                         "%s is taken", text);
    }
}

TEST(what_is_no_traceparent_is_ignored) { /* trace.h#1 */
    EACH_TEXT(text, "", "00", "00-" ID "-" PARENT, "00-" ID "-" PARENT "-0",
              "00-" ID "-" PARENT "-01-",                            /* version 00 ends there */
              "00-" ID "-" PARENT "-01 ", "ff-" ID "-" PARENT "-01", /* no version */
              "0x-" ID "-" PARENT "-01",
              "cc-" ID "-" PARENT "-01.x", /* what is added begins with a dash */
              "00-00000000000000000000000000000000-" PARENT "-01", "00-" ID "-0000000000000000-01",
              "00-0AF7651916CD43DD8448EB211C80319C-" PARENT "-01", /* upper case */
              "00-" ID "-" PARENT "-0G", "00_" ID "-" PARENT "-01", "00-" ID "_" PARENT "-01",
              "00-" ID "-" PARENT "_01", "00-0af7651916cd43dd8448eb211c80319-c" PARENT "-01") {
        struct cairn_trace trace = {.id = "x"};
        cairn_test_check(!cairn_trace_parse(cairn_view_of(text), &trace), __FILE__, __LINE__,
                         "\"%s\" is ignored", text);
        EXPECT_EQ_TEXT(trace.id, "");
    }
}

TEST(what_is_passed_on_has_the_same_trace_and_another_parent_each_time) { /* trace.h#2 */
    struct cairn_trace trace, passed, again;
    char header[CAIRN_TRACE_HEADER_BYTES];
    const char *value = header + strlen("traceparent: ");
    cairn_trace_header(header);
    EXPECT_EQ_TEXT(header, "");
    REQUIRE(cairn_trace_parse(CAIRN_VIEW("00-" ID "-" PARENT "-ff"), &trace));
    cairn_trace_set(&trace);
    cairn_trace_header(header);
    EXPECT(!strncmp(header, "traceparent: 00-", 16));
    EXPECT(cairn_trace_parse(cairn_view_of(value), &passed));
    cairn_trace_header(header);
    EXPECT(cairn_trace_parse(cairn_view_of(value), &again));
    cairn_trace_set(NULL);
    EXPECT_EQ_TEXT(passed.id, ID);
    EXPECT_EQ_U64(passed.flags, CAIRN_TRACE_SAMPLED);
    EXPECT(strcmp(passed.parent, PARENT) != 0);
    EXPECT(strcmp(passed.parent, again.parent) != 0);
}

TEST(all_who_work_on_a_version_share_its_trace) {
    struct cairn_trace trace;
    cairn_trace_of_version("ckpt_5b2164b1-0bac-85fc-a51d-c51bbc8797d9", &trace);
    EXPECT_EQ_TEXT(trace.id, "5b2164b10bac85fca51dc51bbc8797d9");
    EXPECT_EQ_U64(trace.flags, 0);
    EACH_TEXT(text, "", "latest", "ckpt_", "ckpt_5b2164b1-0bac-85fc-a51d",
              "ckpt_5b2164b1-0bac-85fc-a51d-c51bbc8797d9a",
              "ckpt_5b2164b1-0bac-85fc-a51d-c51bbc8797dX") {
        cairn_trace_of_version(text, &trace);
        EXPECT_EQ_TEXT(trace.id, "");
    }
}

TEST(a_line_that_is_logged_for_a_trace_names_it_and_others_do_not) { /* trace.h#3 */
    struct cairn_trace trace;
    const char *path = TEXT("%s/log", cairn_test_folder());
    FILE *file = fopen(path, "w+");
    REQUIRE(file != NULL);
    cairn_log_start("test", CAIRN_LOG_INFO, fileno(file));
    (void)cairn_trace_parse(CAIRN_VIEW("00-" ID "-" PARENT "-00"), &trace);
    cairn_trace_set(&trace);
    cairn_log(INFO, "test.traced", "a=%d", 1);
    cairn_trace_set(NULL);
    cairn_log(INFO, "test.untraced", "b=%d", 2);
    cairn_log_start("test", CAIRN_LOG_ERROR, -1);
    fclose(file);
    WITH(buf, text, cairn_file_load(path, &text, NULL) == CAIRN_OK);
    EXPECT_HAS(text.data, " INFO test.traced trace=" ID " a=1\n", " INFO test.untraced b=2\n");
}
