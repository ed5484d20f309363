/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness.h"

#include <signal.h>
#include <sys/wait.h>

TEST(a_failure_carries_its_code_message_and_place) {
    struct cairn_error err = {0};
    EXPECT(cairn_fail(&err, CAIRN_CORRUPT, "part %u: expected %s", 17u, "ab") == CAIRN_CORRUPT);
    EXPECT_EQ_U64(err.code, CAIRN_CORRUPT);
    EXPECT_EQ_U64(err.os_errno, 0);
    EXPECT_EQ_TEXT(err.message, "part 17: expected ab");
    EXPECT(!strncmp(err.origin, "test_error.c:", strlen("test_error.c:")));
}

TEST(a_failure_without_a_struct_still_returns_its_code) {
    EXPECT(cairn_fail(NULL, CAIRN_BUSY, "nobody listens") == CAIRN_BUSY);
    EXPECT(cairn_within(NULL, CAIRN_BUSY, "step 9") == CAIRN_BUSY);
}

TEST(context_is_put_in_front_and_the_code_is_kept) { /* E4 */
    struct cairn_error err = {0};
    enum cairn_code code = cairn_fail(&err, CAIRN_CORRUPT, "expected 1, got 2");
    code = cairn_within(&err, code, "part %d", 17);
    code = cairn_within(&err, code, "step %d", 900);
    EXPECT_EQ_U64(code, CAIRN_CORRUPT);
    EXPECT_EQ_U64(err.code, CAIRN_CORRUPT);
    EXPECT_EQ_TEXT(err.message, "step 900: part 17: expected 1, got 2");
}

TEST(success_leaves_the_struct_as_it_was) { /* E2 */
    struct cairn_error err = {.code = CAIRN_BUSY, .message = "before"};
    EXPECT_EQ_U64(cairn_within(&err, CAIRN_OK, "step 9"), CAIRN_OK);
    EXPECT_EQ_TEXT(err.message, "before");
}

TEST(a_system_failure_names_the_errno_and_keeps_it) { /* E5 */
    struct cairn_error err = {0};
    errno = ENOENT;
    EXPECT_EQ_U64(cairn_fail_errno(&err, "open %s", "/nowhere"), CAIRN_IO);
    EXPECT_EQ_U64(err.os_errno, ENOENT);
    EXPECT_EQ_U64(errno, ENOENT);
    EXPECT_EQ_TEXT(err.message, "open /nowhere: No such file or directory");
    EXPECT_EQ_U64(cairn_code_from_errno(ENOSPC), CAIRN_NO_SPACE);
    EXPECT_EQ_U64(cairn_code_from_errno(EDQUOT), CAIRN_NO_SPACE);
    EXPECT_EQ_U64(cairn_code_from_errno(ENOMEM), CAIRN_NO_MEMORY);
    EXPECT_EQ_U64(cairn_code_from_errno(EIO), CAIRN_IO);
}

TEST(a_long_message_ends_in_dots_at_319_bytes) {
    struct cairn_error err = {0};
    char text[400];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    cairn_fail(&err, CAIRN_IO, "%.319s", text);
    EXPECT_EQ_U64(strlen(err.message), 319);
    EXPECT(err.message[318] == 'x');
    cairn_fail(&err, CAIRN_IO, "%s", text);
    EXPECT_EQ_U64(strlen(err.message), 319);
    EXPECT_EQ_TEXT(err.message + 315, "x...");
    cairn_within(&err, CAIRN_IO, "step");
    EXPECT_EQ_U64(strlen(err.message), 319);
    EXPECT(!strncmp(err.message, "step: xx", 8));
    EXPECT_EQ_TEXT(err.message + 316, "...");
}

TEST(a_cut_never_leaves_half_a_character) {
    struct cairn_error err = {0};
    for (size_t before = 300; before < 320; before++) {
        char text[400] = "";
        memset(text, 'x', before);
        for (size_t i = before; i + 3 < sizeof(text); i += 3) memcpy(text + i, "\xe2\x82\xac", 4);
        cairn_fail(&err, CAIRN_IO, "%s", text);
        size_t size = strlen(err.message);
        REQUIRE(size >= 3 && size <= 319);
        EXPECT_EQ_TEXT(err.message + size - 3, "...");
        EXPECT((size - 3 - cairn_min_u64(before, size - 3)) % 3 == 0);
    }
}

TEST(a_message_is_one_line_whatever_it_was_given) {
    struct cairn_error err = {0};
    cairn_fail(&err, CAIRN_STORE, "the store said: %s", "no\r\nSet-Cookie: a\x1b[2J\x7f");
    EXPECT_EQ_TEXT(err.message, "the store said: no  Set-Cookie: a [2J ");
}

TEST(a_message_may_be_made_of_the_struct_it_replaces) {
    struct cairn_error err = {0};
    cairn_fail(&err, CAIRN_IO, "inner");
    cairn_fail(&err, CAIRN_STORE, "outer (%s)", err.message);
    EXPECT_EQ_TEXT(err.message, "outer (inner)");
    cairn_within(&err, CAIRN_STORE, "again %s", err.message);
    EXPECT_EQ_TEXT(err.message, "again outer (inner): outer (inner)");
}

TEST(every_code_is_found_by_its_slug) {
    for (unsigned i = 0; i < CAIRN_CODE_COUNT; i++) {
        const struct cairn_code_info *info = cairn_code_info((enum cairn_code)i);
        EXPECT_EQ_U64(cairn_code_from_slug(info->slug), i);
        EXPECT(info->http_status >= 200 && info->http_status < 600);
        EXPECT(info->meaning[strlen(info->meaning) - 1] == '.');
    }
    EXPECT_EQ_TEXT(cairn_code_info(CAIRN_STALE_ATTEMPT)->name, "STALE_ATTEMPT");
    EXPECT_EQ_TEXT(cairn_code_info(CAIRN_STALE_ATTEMPT)->slug, "stale-attempt");
}

TEST(an_unknown_slug_or_number_is_an_internal_error) {
    EXPECT_EQ_U64(cairn_code_from_slug("no-such-slug"), CAIRN_INTERNAL);
    EXPECT_EQ_U64(cairn_code_from_slug(""), CAIRN_INTERNAL);
    EXPECT_EQ_U64(cairn_code_from_slug(NULL), CAIRN_INTERNAL);
    EXPECT_EQ_TEXT(cairn_code_info((enum cairn_code)200)->name, "INTERNAL");
}

static void break_a_promise(void *argument) {
    CAIRN_ASSERT(argument != NULL);
}

TEST(a_broken_promise_prints_one_line_and_aborts) {
    char text[256];
    int status = cairn_test_in_child(break_a_promise, NULL, text, sizeof(text));
    EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    EXPECT(strstr(text, "test_error.c:") != NULL);
    EXPECT(strstr(text, "broken promise: argument != NULL\n") != NULL);
    EXPECT(WIFEXITED(cairn_test_in_child(break_a_promise, text, NULL, 0)));
}
