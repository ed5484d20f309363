/* SPDX-License-Identifier: Apache-2.0 */
/* The journal alone: what comes back, what a torn tail costs, what damage is refused. */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "common/log.h"
#include "tests/harness.h"
#include "uploader/journal.h"

struct seen {
    char text[4096];
    size_t count;
};

static enum cairn_code note(void *owner, const struct cairn_up_replayed *record,
                            struct cairn_error *err) {
    (void)err;
    struct seen *seen = owner;
    size_t used = strlen(seen->text);
    snprintf(seen->text + used, sizeof(seen->text) - used, "%" PRIu64 ":%s:%.*s ", record->entry,
             record->name, (int)record->blob.size, (const char *)record->blob.data);
    seen->count++;
    return CAIRN_OK;
}

static const char *journal_path(void) {
    static char path[300];
    snprintf(path, sizeof(path), "%s/j", cairn_test_folder());
    cairn_log_start("test", CAIRN_LOG_ERROR, STDERR_FILENO);
    return path;
}

static enum cairn_code open_journal(struct cairn_up_journal **ret, struct seen *seen,
                                    struct cairn_error *err) {
    struct cairn_up_journal_options options = {.path = journal_path(),
                                               .node = "n1",
                                               .replay = note,
                                               .owner = seen,
                                               .rewrite_bytes = 64 * CAIRN_KIB};
    *seen = (struct seen){0};
    return cairn_up_journal_open(&options, ret, err);
}

static enum cairn_code add(struct cairn_up_journal *journal, uint64_t entry, const char *name,
                           const char *blob, bool closes, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *message = json_pack("{s:s}", "t", name);
    struct cairn_up_record record = {
        .entry = entry, .closes = closes, .message = message, .blob = {blob, strlen(blob)}};
    return cairn_up_journal_append(journal, &record, 1, err);
}

TEST(open_entries_come_back_in_order_and_closed_ones_do_not) /* J2, J4 */
{
    struct cairn_up_journal *journal = NULL;
    struct cairn_error err = {0};
    struct seen seen;
    REQUIRE_OK(open_journal(&journal, &seen, &err));
    EXPECT_EQ_U64(seen.count, 0);
    uint64_t one = cairn_up_journal_entry_new(journal), two = cairn_up_journal_entry_new(journal);
    REQUIRE_OK(add(journal, one, "begin", "", false, &err));
    REQUIRE_OK(add(journal, two, "begin", "x", false, &err));
    REQUIRE_OK(add(journal, one, "seal", "table", false, &err));
    REQUIRE_OK(add(journal, two, "over", "", true, &err));
    EXPECT_EQ_U64(cairn_up_journal_live_count(journal), 1);
    cairn_up_journal_free(journal);
    REQUIRE_OK(open_journal(&journal, &seen, &err));
    EXPECT_EQ_TEXT(seen.text, "1:begin: 1:seal:table ");
    EXPECT(cairn_up_journal_entry_new(journal) > one);
    cairn_up_journal_free(journal);
}

TEST(a_torn_tail_is_cut_off_wherever_it_is_torn) /* J2 */
{
    struct cairn_up_journal *journal = NULL;
    struct cairn_error err = {0};
    struct seen seen;
    REQUIRE_OK(open_journal(&journal, &seen, &err));
    uint64_t entry = cairn_up_journal_entry_new(journal);
    REQUIRE_OK(add(journal, entry, "begin", "", false, &err));
    uint64_t whole = cairn_up_journal_bytes(journal);
    REQUIRE_OK(add(journal, entry, "seal", "0123456789", false, &err));
    uint64_t all = cairn_up_journal_bytes(journal);
    cairn_up_journal_free(journal);
    CAIRN_AUTO(buf) bytes = {0};
    REQUIRE_OK(cairn_file_load(journal_path(), &bytes, &err));
    for (uint64_t cut = whole; cut < all; cut++) {
        REQUIRE_OK(cairn_file_replace(journal_path(), (struct cairn_view){bytes.data, (size_t)cut},
                                      0600, &err));
        REQUIRE_OK(open_journal(&journal, &seen, &err));
        EXPECT_EQ_TEXT(seen.text, "1:begin: ");
        EXPECT_EQ_U64(cairn_up_journal_bytes(journal), whole);
        cairn_up_journal_free(journal);
    }
}

TEST(a_flipped_bit_before_a_whole_record_refuses_the_journal) /* J2, N03 */
{
    struct cairn_up_journal *journal = NULL;
    struct cairn_error err = {0};
    struct seen seen;
    REQUIRE_OK(open_journal(&journal, &seen, &err));
    uint64_t entry = cairn_up_journal_entry_new(journal), from = cairn_up_journal_bytes(journal);
    REQUIRE_OK(add(journal, entry, "begin", "abc", false, &err));
    uint64_t end = cairn_up_journal_bytes(journal);
    REQUIRE_OK(add(journal, entry, "seal", "", false, &err));
    cairn_up_journal_free(journal);
    CAIRN_AUTO(buf) bytes = {0};
    REQUIRE_OK(cairn_file_load(journal_path(), &bytes, &err));
    for (uint64_t at = from; at < end; at++) {
        bytes.data[at] ^= 0x10;
        REQUIRE_OK(cairn_file_replace(journal_path(), cairn_buf_view(&bytes), 0600, &err));
        bytes.data[at] ^= 0x10;
        EXPECT_CODE(open_journal(&journal, &seen, &err), CAIRN_CORRUPT);
    }
    EXPECT(strstr(err.message, "offset") != NULL);
}

TEST(one_process_holds_a_journal_and_one_node_owns_it) /* J5, Q15 */
{
    struct cairn_up_journal *journal = NULL, *second = NULL;
    struct cairn_error err = {0};
    struct seen seen;
    REQUIRE_OK(open_journal(&journal, &seen, &err));
    EXPECT_CODE(open_journal(&second, &seen, &err), CAIRN_CONFLICT);
    cairn_up_journal_free(journal);
    struct cairn_up_journal_options options = {.path = journal_path(), .node = "n2"};
    EXPECT_CODE(cairn_up_journal_open(&options, &second, &err), CAIRN_CONFLICT);
    EXPECT(strstr(err.message, "n1") != NULL);
}

TEST(a_journal_of_dead_entries_is_rewritten) /* J4 */
{
    struct cairn_up_journal *journal = NULL;
    struct cairn_error err = {0};
    struct seen seen;
    CAIRN_AUTO(buf) big = {0};
    for (int i = 0; i < 500; i++) REQUIRE_OK(cairn_buf_append_text(&big, "0123456789", &err));
    REQUIRE_OK(open_journal(&journal, &seen, &err));
    uint64_t kept = cairn_up_journal_entry_new(journal);
    REQUIRE_OK(add(journal, kept, "begin", "keep", false, &err));
    for (int i = 0; i < 40; i++) {
        uint64_t entry = cairn_up_journal_entry_new(journal);
        REQUIRE_OK(add(journal, entry, "begin", big.data, false, &err));
        REQUIRE_OK(add(journal, entry, "over", "", true, &err));
    }
    EXPECT(cairn_up_journal_bytes(journal) < 70 * CAIRN_KIB);
    cairn_up_journal_free(journal);
    REQUIRE_OK(open_journal(&journal, &seen, &err));
    EXPECT_EQ_TEXT(seen.text, "1:begin:keep ");
    cairn_up_journal_free(journal);
}

struct counted {
    _Atomic int done;
    enum cairn_code code;
};
static void count(void *owner, enum cairn_code code, const struct cairn_error *why) {
    (void)why;
    struct counted *counted = owner;
    counted->code = code;
    counted->done++;
}

TEST(posted_records_are_done_in_order_and_before_a_later_append_returns) /* J1 */
{
    struct cairn_up_journal *journal = NULL;
    struct cairn_error err = {0};
    struct seen seen;
    struct counted counted = {0};
    REQUIRE_OK(open_journal(&journal, &seen, &err));
    uint64_t entry = cairn_up_journal_entry_new(journal);
    CAIRN_AUTO_JSON json_t *message = json_pack("{s:s}", "t", "begin");
    struct cairn_up_record record = {.entry = entry, .message = message};
    for (int i = 0; i < 100; i++)
        REQUIRE_OK(cairn_up_journal_post(journal, &record, 1, count, &counted, &err));
    REQUIRE_OK(cairn_up_journal_post(journal, &record, 1, NULL, NULL, &err));
    cairn_up_journal_free(journal);
    EXPECT_EQ_U64(counted.done, 100);
    EXPECT(counted.code == CAIRN_OK);
    REQUIRE_OK(open_journal(&journal, &seen, &err));
    EXPECT_EQ_U64(seen.count, 101);
    cairn_up_journal_free(journal);
}

TEST(a_full_disk_fails_the_batch_and_not_the_journal) /* J3, K09 */
{
    struct cairn_up_journal *journal = NULL;
    struct cairn_error err = {0};
    struct seen seen;
    REQUIRE_OK(open_journal(&journal, &seen, &err));
    uint64_t entry = cairn_up_journal_entry_new(journal);
    REQUIRE_OK(add(journal, entry, "begin", "a", false, &err));
    struct rlimit before, tight;
    getrlimit(RLIMIT_FSIZE, &before);
    tight = (struct rlimit){cairn_up_journal_bytes(journal) + 20, before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &tight);
    enum cairn_code code = add(journal, entry, "seal", "0123456789", false, &err);
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT(code != CAIRN_OK);
    REQUIRE_OK(add(journal, entry, "seal", "b", false, &err));
    cairn_up_journal_free(journal);
    REQUIRE_OK(open_journal(&journal, &seen, &err));
    EXPECT_EQ_TEXT(seen.text, "1:begin:a 1:seal:b ");
    cairn_up_journal_free(journal);
}
