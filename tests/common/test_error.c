/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness.h"

#include <sys/resource.h>

TEST(a_failure_carries_its_code_message_and_place, err) {
    EXPECT(cairn_fail(&err, CAIRN_CORRUPT, "part %u: expected %s", 17u, "ab") == CAIRN_CORRUPT);
    EXPECT_ALL_U64(err.code, CAIRN_CORRUPT, (uint64_t)err.os_errno, 0);
    EXPECT_EQ_TEXT(err.message, "part 17: expected ab");
    EXPECT(!strncmp(err.origin, "test_error.c:", strlen("test_error.c:")));
}

TEST(a_failure_without_a_struct_still_returns_its_code) {
    EXPECT(cairn_fail(NULL, CAIRN_BUSY, "nobody listens") == CAIRN_BUSY);
    EXPECT(cairn_within(NULL, CAIRN_BUSY, "step 9") == CAIRN_BUSY);
}

TEST(context_is_put_in_front_and_the_code_is_kept, err) { /* common/error.h#1 */
    enum cairn_code code = cairn_fail(&err, CAIRN_CORRUPT, "expected 1, got 2");
    code = cairn_within(&err, code, "part %d", 17);
    code = cairn_within(&err, code, "step %d", 900);
    EXPECT_ALL_U64(code, CAIRN_CORRUPT, err.code, CAIRN_CORRUPT);
    EXPECT_EQ_TEXT(err.message, "step 900: part 17: expected 1, got 2");
}

TEST(a_context_may_say_what_the_failure_is_where_it_is_handled, err) { /* common/error.h#1 */
    (void)cairn_fail(&err, CAIRN_TABLE_INVALID, "cut");
    EXPECT_EQ_U64(cairn_within(&err, CAIRN_CORRUPT, "it is no layout"), CAIRN_CORRUPT);
    EXPECT_EQ_U64(err.code, CAIRN_CORRUPT);
    EXPECT_EQ_TEXT(err.message, "it is no layout: cut");
}

TEST(success_leaves_the_struct_as_it_was) { /* include/cairn/error.h#2 */
    struct cairn_error err = {.code = CAIRN_BUSY, .message = "before"};
    EXPECT_EQ_U64(cairn_within(&err, CAIRN_OK, "step 9"), CAIRN_OK);
    EXPECT_EQ_TEXT(err.message, "before");
}

TEST(k08_a_lack_of_descriptors_names_the_limit_and_is_worth_another_try) { /* common/error.h#2 */
    struct cairn_error err = {0};
    struct rlimit limit = {0};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    const char *number = TEXT("may have %llu;", (unsigned long long)limit.rlim_cur);
    errno = EMFILE;
    EXPECT_EQ_U64(cairn_fail_errno(&err, "open %s", "/somewhere"), CAIRN_BUSY);
    EXPECT(strstr(err.message, "RLIMIT_NOFILE") && strstr(err.message, number));
    EXPECT(cairn_code_info(err.code)->retryable);
    errno = ENFILE;
    EXPECT_EQ_U64(cairn_fail_errno(&err, "open %s", "/somewhere"), CAIRN_BUSY);
    EXPECT(strstr(err.message, "fs.file-max"));
}

TEST(a_system_failure_names_the_errno_and_keeps_it, err) { /* common/error.h#2 */
    errno = ENOENT;
    EXPECT_EQ_U64(cairn_fail_errno(&err, "open %s", "/nowhere"), CAIRN_IO);
    EXPECT(err.os_errno == ENOENT && errno == ENOENT);
    EXPECT_EQ_TEXT(err.message, "open /nowhere: No such file or directory");
    EXPECT_ALL_U64(cairn_code_from_errno(ENOSPC), CAIRN_NO_SPACE, cairn_code_from_errno(EDQUOT),
                   CAIRN_NO_SPACE, cairn_code_from_errno(ENOMEM), CAIRN_NO_MEMORY,
                   cairn_code_from_errno(EIO), CAIRN_IO);
}

TEST(a_long_message_loses_its_middle_and_keeps_what_is_to_be_done, err) { /* common/error.h#4 */
    char text[400], longer[1000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    cairn_fail(&err, CAIRN_IO, "%.319s", text);
    EXPECT_EQ_U64(strlen(err.message), 319);
    EXPECT(err.message[318] == 'x');
    cairn_fail(&err, CAIRN_IO, "rank 7: %s; set `bytes` to 5 GiB", text);
    EXPECT(strlen(err.message) <= 319 && strlen(err.message) >= 313);
    EXPECT(!strncmp(err.message, "rank 7: xx", 10) && strstr(err.message, "x...x") != NULL);
    EXPECT_EQ_TEXT(err.message + strlen(err.message) - 24, "xx; set `bytes` to 5 GiB");
    for (int depth = 0; depth < 5; depth++) {
        cairn_within(&err, CAIRN_IO, "step");
        EXPECT(!strncmp(err.message, "step: ", 6));
        EXPECT(strlen(err.message) <= 319);
        EXPECT_EQ_TEXT(err.message + strlen(err.message) - 24, "xx; set `bytes` to 5 GiB");
    }
    memset(longer, 'y', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    cairn_fail(&err, CAIRN_IO, "%s: %s; ask again", longer, longer);
    EXPECT_EQ_TEXT(err.message + strlen(err.message) - 14, "yyy; ask again");
}

/* Valid UTF-8 of one line, of at most 319 bytes. */
static bool is_message(const char *text) {
    for (const char *at = text; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f) return false;
    return strlen(text) <= 319 && cairn_utf8_valid(cairn_view_of(text));
}

/* Characters of 1 to 4 bytes in every order, whatever stands before them. */
static void fill_mixed(char *text, size_t capacity, size_t before, unsigned shift) {
    static const char *const characters[] = {"a", "\xc3\xa9", "\xe6\xa4\x9c", "\xf0\x9f\x9a\xa2"};
    size_t used = before;
    memset(text, 'x', before);
    for (unsigned i = shift; used + 4 < capacity; i++) {
        const char *one = characters[i % CAIRN_COUNT(characters)];
        memcpy(text + used, one, strlen(one));
        used += strlen(one);
    }
    text[used] = '\0';
}

TEST(a_cut_at_any_place_of_any_character_leaves_valid_text) { /* include/cairn/error.h#4 */
    for (size_t before = 0; before < 330; before++) {
        for (unsigned shift = 0; shift < 4; shift++) {
            struct cairn_error err = {0};
            char text[700];
            fill_mixed(text, sizeof(text), before, shift);
            cairn_fail(&err, CAIRN_IO, "%s", text);
            size_t size = strlen(err.message);
            if (!is_message(err.message) || size < 313) EXPECT_EQ_TEXT(err.message, "whole");
            const char *dots = strstr(err.message, "...");
            if (!EXPECT(dots != NULL)) return;
            size_t first = (size_t)(dots - err.message), last = size - first - 3;
            EXPECT(!strncmp(err.message, text, first));
            EXPECT(!strcmp(dots + 3, text + strlen(text) - last));
            /* What a format cut in half shows as bytes, not as broken text. */
            cairn_fail(&err, CAIRN_IO, "%.*s: no", (int)before, text + shift);
            EXPECT(is_message(err.message));
        }
    }
}

TEST(any_bytes_make_a_valid_message) { /* include/cairn/error.h#4 */
    uint64_t random = cairn_test_seed();
    for (int i = 0; i < 20000; i++) {
        struct cairn_error err = {0};
        char text[700];
        size_t size = cairn_test_random(&random) % (sizeof(text) - 1);
        for (size_t k = 0; k < size; k++) {
            uint64_t drawn = cairn_test_random(&random);
            text[k] = (char)(drawn % 4 ? 1 + (drawn >> 8) % 255 : 0x80 + (drawn >> 8) % 64);
        }
        text[size] = '\0';
        cairn_fail(&err, CAIRN_STORE, "%s", text);
        cairn_error_request_id(&err, text);
        EXPECT(is_message(err.message) && is_message(err.request_id));
        cairn_within(&err, CAIRN_STORE, "%s", text);
        if (!EXPECT(is_message(err.message))) return;
    }
}

TEST(a_name_is_shortened_in_its_middle_before_the_cause_is_cut) { /* common/error.h#3 */
    for (size_t before = 0; before < 700; before++) {
        struct cairn_error err = {0};
        char name[705];
        fill_mixed(name, sizeof(name), before, (unsigned)before % 4);
        cairn_fail(&err, CAIRN_FORBIDDEN, "403 AccessDenied: the key may not write here");
        cairn_within(&err, CAIRN_FORBIDDEN, "shard %s", name);
        cairn_within(&err, CAIRN_FORBIDDEN, "rank %u of step %d", 7u, 900);
        EXPECT(is_message(err.message));
        EXPECT(strstr(err.message, ": 403 AccessDenied: the key may not write here") != NULL);
        EXPECT(!strncmp(err.message, "rank 7 of step 900: shard ", 26));
        struct cairn_short shorter = cairn_short(name);
        EXPECT(strlen(shorter.text) <= 96 && strlen(shorter.text) >= 90);
        EXPECT(cairn_utf8_valid(cairn_view_of(shorter.text)));
    }
    EXPECT_EQ_TEXT(cairn_short("weights.bin").text, "weights.bin");
}

TEST(a_context_gives_way_down_to_40_bytes_before_the_cause_is_cut, err) { /* common/error.h#3 */
    char cause[400], name[200];
    memset(cause, 'c', sizeof(cause) - 1);
    cause[sizeof(cause) - 1] = '\0';
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    cairn_fail(&err, CAIRN_IO, "%s", cause);
    cairn_within(&err, CAIRN_IO, "%s", name);
    EXPECT_EQ_U64(strlen(err.message), 319);
    EXPECT(err.message[39] == 'n' && err.message[40] == ':');
    EXPECT(!strncmp(err.message + 18, "...", 3));
    cairn_fail(&err, CAIRN_IO, "%.250s", cause);
    cairn_within(&err, CAIRN_IO, "%s", name);
    EXPECT_EQ_U64(strlen(err.message), 319);
    EXPECT(!strncmp(err.message + 67, ": ccc", 5)); /* all of the cause is there */
    cairn_fail(&err, CAIRN_IO, "no");
    cairn_within(&err, CAIRN_IO, "%s", name);
    EXPECT_EQ_U64(strlen(err.message), 96 + 4);
}

TEST(what_the_system_said_is_never_cut, err) { /* common/error.h#2 */
    char path[400];
    memset(path, 'p', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    for (int length = 0; length < 399; length += 7) {
        errno = EIO;
        cairn_fail_errno(&err, "write %.*s", length, path);
        for (int depth = 0; depth < 5; depth++) {
            size_t size = strlen(err.message), end = strlen(": Input/output error");
            REQUIRE(size <= 319 && size > end);
            EXPECT_EQ_TEXT(err.message + size - end, ": Input/output error");
            cairn_within(&err, CAIRN_IO, "shard %d of %.60s", depth, path);
        }
    }
}

TEST(b07_a_message_is_one_line_whatever_it_was_given, err) {
    cairn_fail(&err, CAIRN_STORE, "the store said: %s",
               "no\r\nSet-Cookie: a\x1b[2J\x7f \xc2\x9b \xff");
    EXPECT_EQ_TEXT(err.message, "the store said: no\\x0d\\x0aSet-Cookie: a\\x1b[2J\\x7f "
                                "\\xc2\\x9b \\xff");
}

TEST(a_message_may_be_made_of_the_struct_it_replaces, err) {
    cairn_fail(&err, CAIRN_IO, "inner");
    cairn_fail(&err, CAIRN_STORE, "outer (%s)", err.message);
    EXPECT_EQ_TEXT(err.message, "outer (inner)");
    cairn_within(&err, CAIRN_STORE, "again %s", err.message);
    EXPECT_EQ_TEXT(err.message, "again outer (inner): outer (inner)");
}

/* ---- what a failure is about ---- */

static struct cairn_error_about about_of(const struct cairn_error *err) {
    struct cairn_error_about about;
    (void)cairn_error_about(err, &about);
    return about;
}

TEST(what_was_noted_is_exact_where_the_text_is_cut_and_stays_with_context_and_copies)
/* common/error.h#5 */
{
    struct cairn_error err = {0};
    char run[258];
    memset(run, 'r', 250);
    memcpy(run, "llm/", 4);
    run[250] = 0;
    struct cairn_error_subject subject = {.run = cairn_error_run(run), .has_rank = true};
    EXPECT(subject.run && cairn_error_run(run) == subject.run);
    EXPECT(cairn_error_run("llm/7b") != subject.run);
    cairn_fail(&err, CAIRN_NO_SPACE, "tensor w: make room, then save again");
    cairn_error_note(&err, &subject);
    EXPECT(!about_of(&err).has_step);
    subject = (struct cairn_error_subject){.has_step = true, .step = UINT64_MAX};
    cairn_error_note(&err, &subject);
    cairn_within(&err, CAIRN_NO_SPACE, "context of %s", run); /* cut */
    const struct cairn_error copy = err;
    const struct cairn_error_about about = about_of(&copy);
    EXPECT_EQ_TEXT(about.run, run);
    EXPECT(about.has_step && about.has_rank);
    EXPECT_ALL_U64(about.step, UINT64_MAX, about.rank, 0);
    EXPECT(cairn_utf8_valid(cairn_view_of(copy.message)));
    EXPECT(!strncmp(copy.message, "context of", 10));
    EXPECT(strstr(copy.message, "make room, then save again") != NULL);
    /* The next failure in the same struct begins anew. */
    cairn_fail(&err, CAIRN_BUSY, "another");
    EXPECT(!about_of(&err).run[0] && !about_of(&err).has_step && !about_of(&err).has_rank);
}

TEST(a_text_that_needs_the_room_of_what_was_noted_is_not_cut_for_it, err) {
    const struct cairn_error_subject subject = {.has_step = true, .step = 7};
    char name[290];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    cairn_fail(&err, CAIRN_NO_SPACE, "%s!", name);
    cairn_error_note(&err, &subject);
    EXPECT_EQ_U64(strlen(err.message), 290);
    EXPECT(!about_of(&err).has_step);
    cairn_fail(&err, CAIRN_NO_SPACE, "%.270s!", name);
    cairn_error_note(&err, &subject);
    EXPECT(about_of(&err).has_step);
    cairn_within(&err, CAIRN_NO_SPACE, "some more context");
    EXPECT_EQ_U64(strlen(err.message), 290);
    EXPECT(!about_of(&err).has_step);
}

TEST(what_was_never_noted_is_unknown_and_a_text_of_any_length_is_no_note, err) {
    struct cairn_error_about about;
    for (size_t size = 0; size < sizeof err.message; size++) {
        memset(err.message, 'x', sizeof err.message);
        err.message[size] = 0;
        EXPECT_EQ_U64(cairn_error_about(&err, &about), 0);
    }
    cairn_error_note(NULL, &(const struct cairn_error_subject){.has_step = true});
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

TEST(the_codes_are_a_table_that_is_read_by_index_until_it_ends) {
    unsigned count = 0;
    while (cairn_code_at(count)) count++;
    EXPECT_EQ_U64(count, CAIRN_CODE_COUNT);
    EXPECT(cairn_code_at(CAIRN_SKIPPED) == cairn_code_info(CAIRN_SKIPPED));
    EXPECT(!cairn_code_at(UINT32_MAX));
}

TEST(an_unknown_slug_or_number_is_an_internal_error) {
    EXPECT_ALL_U64(cairn_code_from_slug("no-such-slug"), CAIRN_INTERNAL, cairn_code_from_slug(""),
                   CAIRN_INTERNAL, cairn_code_from_slug(NULL), CAIRN_INTERNAL);
    EXPECT_EQ_TEXT(cairn_code_info((enum cairn_code)200)->name, "INTERNAL");
}

static void break_a_promise(void *argument) {
    CAIRN_ASSERT(argument != NULL);
}

TEST(a_broken_promise_prints_one_line_and_aborts) {
    char text[256];
    int status = cairn_test_in_child(break_a_promise, NULL, text, sizeof(text));
    EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    EXPECT_HAS(text, "test_error.c:", "broken promise: argument != NULL\n");
    EXPECT(WIFEXITED(cairn_test_in_child(break_a_promise, text, NULL, 0)));
}
