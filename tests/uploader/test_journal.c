/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* The journal alone: what comes back, what a torn tail costs, what damage is refused. */
#include <sys/resource.h>

#include "common/log.h"
#include "tests/harness.h"
#include "uploader/journal/format.h"

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

static void close_journal(struct cairn_up_journal **journal) {
    cairn_up_journal_free(*journal);
    *journal = NULL;
}

static enum cairn_code reopen_journal(struct cairn_up_journal **journal, struct seen *seen,
                                      struct cairn_error *err) {
    close_journal(journal);
    return open_journal(journal, seen, err);
}

/* `journal`, what it `seen` of its records, and `err`, of this scope. */
#define JOURNAL()                                                                                  \
    __attribute__((cleanup(close_journal))) struct cairn_up_journal *journal = NULL;               \
    struct cairn_error err = {0};                                                                  \
    struct seen seen;                                                                              \
    REQUIRE_OK(open_journal(&journal, &seen, &err))

static enum cairn_code add(struct cairn_up_journal *journal, uint64_t entry, const char *name,
                           const char *blob, bool closes, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *message = json_pack("{s:s}", "t", name);
    struct cairn_up_record record = {
        .entry = entry, .closes = closes, .message = message, .blob = {blob, strlen(blob)}};
    return cairn_up_journal_append(journal, &record, 1, err);
}

TEST(open_entries_come_back_in_order_and_closed_ones_do_not) { /* journal.h#2, journal.h#4 */
    JOURNAL();
    EXPECT_EQ_U64(seen.count, 0);
    uint64_t one = cairn_up_journal_entry_new(journal), two = cairn_up_journal_entry_new(journal);
    REQUIRE_OK(add(journal, one, "begin", "", false, &err));
    REQUIRE_OK(add(journal, two, "begin", "x", false, &err));
    REQUIRE_OK(add(journal, one, "seal", "table", false, &err));
    REQUIRE_OK(add(journal, two, "over", "", true, &err));
    EXPECT_EQ_U64(cairn_up_journal_live_count(journal), 1);
    REQUIRE_OK(reopen_journal(&journal, &seen, &err));
    EXPECT_EQ_TEXT(seen.text, "1:begin: 1:seal:table ");
    EXPECT(cairn_up_journal_entry_new(journal) > one);
}

TEST(of_records_of_which_one_could_not_be_made_none_is_written) {
    JOURNAL();
    uint64_t one = cairn_up_journal_entry_new(journal);
    CAIRN_AUTO_JSON json_t *message = json_pack("{s:s}", "t", "begin");
    struct cairn_up_record records[] = {{.entry = one, .message = message}, {.entry = one}};
    EXPECT_CODE(cairn_up_journal_append(journal, records, 2, &err), CAIRN_NO_MEMORY);
    EXPECT_CODE(cairn_up_journal_post(journal, records, 2, NULL, NULL, &err), CAIRN_NO_MEMORY);
    REQUIRE_OK(add(journal, one, "seal", "", false, &err));
    REQUIRE_OK(reopen_journal(&journal, &seen, &err));
    EXPECT_EQ_TEXT(seen.text, "1:seal: ");
}

TEST(a_torn_tail_is_cut_off_wherever_it_is_torn) { /* journal.h#2 */
    JOURNAL();
    uint64_t entry = cairn_up_journal_entry_new(journal);
    REQUIRE_OK(add(journal, entry, "begin", "", false, &err));
    uint64_t whole = cairn_up_journal_bytes(journal);
    REQUIRE_OK(add(journal, entry, "seal", "0123456789", false, &err));
    uint64_t all = cairn_up_journal_bytes(journal);
    close_journal(&journal);
    CAIRN_AUTO(buf) bytes = {0};
    REQUIRE_OK(cairn_file_load(journal_path(), &bytes, &err));
    for (uint64_t cut = whole; cut < all; cut++) {
        REQUIRE_OK(cairn_file_replace(journal_path(), (struct cairn_view){bytes.data, (size_t)cut},
                                      0600, &err));
        REQUIRE_OK(open_journal(&journal, &seen, &err));
        EXPECT_EQ_TEXT(seen.text, "1:begin: ");
        EXPECT_EQ_U64(cairn_up_journal_bytes(journal), whole);
        close_journal(&journal);
    }
}

TEST(one_process_holds_a_journal_and_one_node_owns_it) { /* journal.h#5, Q15 */
    JOURNAL();
    struct cairn_up_journal *second = NULL;
    EXPECT_CODE(open_journal(&second, &seen, &err), CAIRN_CONFLICT);
    close_journal(&journal);
    struct cairn_up_journal_options options = {.path = journal_path(), .node = "n2"};
    EXPECT_FAILS(cairn_up_journal_open(&options, &second, &err), CAIRN_CONFLICT, "n1");
}

TEST(a_journal_of_dead_entries_is_rewritten) { /* journal.h#4 */
    JOURNAL();
    CAIRN_AUTO(buf) big = {0};
    for (int i = 0; i < 500; i++) REQUIRE_OK(cairn_buf_append_text(&big, "0123456789", &err));
    uint64_t kept = cairn_up_journal_entry_new(journal);
    REQUIRE_OK(add(journal, kept, "begin", "keep", false, &err));
    for (int i = 0; i < 40; i++) {
        uint64_t entry = cairn_up_journal_entry_new(journal);
        REQUIRE_OK(add(journal, entry, "begin", big.data, false, &err));
        REQUIRE_OK(add(journal, entry, "over", "", true, &err));
    }
    EXPECT(cairn_up_journal_bytes(journal) < 70 * CAIRN_KIB);
    REQUIRE_OK(reopen_journal(&journal, &seen, &err));
    EXPECT_EQ_TEXT(seen.text, "1:begin:keep ");
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

TEST(posted_records_are_done_in_order_and_before_a_later_append_returns) { /* journal.h#1 */
    JOURNAL();
    struct counted counted = {0};
    uint64_t entry = cairn_up_journal_entry_new(journal);
    CAIRN_AUTO_JSON json_t *message = json_pack("{s:s}", "t", "begin");
    struct cairn_up_record record = {.entry = entry, .message = message};
    for (int i = 0; i < 100; i++)
        REQUIRE_OK(cairn_up_journal_post(journal, &record, 1, count, &counted, &err));
    REQUIRE_OK(cairn_up_journal_post(journal, &record, 1, NULL, NULL, &err));
    close_journal(&journal);
    EXPECT_EQ_U64(counted.done, 100);
    EXPECT(counted.code == CAIRN_OK);
    REQUIRE_OK(open_journal(&journal, &seen, &err));
    EXPECT_EQ_U64(seen.count, 101);
}

static struct rlimit size_limit(uint64_t bytes) {
    struct rlimit before, tight;
    getrlimit(RLIMIT_FSIZE, &before);
    tight = (struct rlimit){bytes, before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &tight);
    return before;
}

struct losing {
    struct rlimit before;
    char text[256];
};

/* The disk has room again as soon as the first record is lost. */
static void note_lost(void *owner, uint64_t entry, const struct cairn_error *why) {
    (void)why;
    struct losing *losing = owner;
    size_t used = strlen(losing->text);
    snprintf(losing->text + used, sizeof(losing->text) - used, "lost:%" PRIu64 " ", entry);
    setrlimit(RLIMIT_FSIZE, &losing->before);
}

static void note_done(void *owner, enum cairn_code code, const struct cairn_error *why) {
    (void)why;
    *(enum cairn_code *)owner = code;
}

/* journal.h#3, journal.h#6, K09, Q45 */
TEST(v29_a_record_that_was_not_written_breaks_its_entry_and_no_other, err) {
    struct cairn_up_journal *journal = NULL;
    struct seen seen = {0};
    struct losing losing = {0};
    struct cairn_up_journal_options options = {
        .path = journal_path(), .node = "n1", .lost = note_lost, .lost_owner = &losing};
    REQUIRE_OK(cairn_up_journal_open(&options, &journal, &err));
    uint64_t entry = cairn_up_journal_entry_new(journal);
    uint64_t other = cairn_up_journal_entry_new(journal);
    REQUIRE_OK(add(journal, entry, "begin", "a", false, &err));
    losing.before = size_limit(cairn_up_journal_bytes(journal) + 20);
    enum cairn_code stage = CAIRN_OK, seal = CAIRN_OK, begin = CAIRN_PROTOCOL;
    CAIRN_AUTO_JSON json_t *message = json_pack("{s:s}", "t", "x");
    struct cairn_up_record record = {.entry = entry, .message = message};
    struct cairn_up_record third = {.entry = other, .message = message};
    REQUIRE_OK(cairn_up_journal_post(journal, &record, 1, note_done, &stage, &err));
    cairn_test_pause_ms(200); /* pause of a stand-in: the full disk has the group of that record */
    REQUIRE_OK(cairn_up_journal_post(journal, &record, 1, note_done, &seal, &err));
    REQUIRE_OK(cairn_up_journal_post(journal, &third, 1, note_done, &begin, &err));
    REQUIRE_OK(add(journal, other, "stage", "c", false, &err)); /* once there is room */
    EXPECT(add(journal, entry, "seal", "b", false, &err) != CAIRN_OK);
    EXPECT(strstr(err.message, "earlier record") != NULL);
    cairn_up_journal_free(journal); /* after that, everybody was told */
    EXPECT(stage != CAIRN_OK);
    EXPECT(seal != CAIRN_OK); /* although it could have been written */
    EXPECT(begin == CAIRN_OK);
    EXPECT_EQ_TEXT(losing.text, "lost:1 ");
    REQUIRE_OK(open_journal(&journal, &seen, &err));
    EXPECT_EQ_TEXT(seen.text, "1:begin:a 2:x: 2:stage:c ");
    cairn_up_journal_free(journal);
}

static void *lift_limit(void *owner) {
    cairn_test_pause_ms(300); /* pause of a stand-in: a disk that is full for so long */
    setrlimit(RLIMIT_FSIZE, owner);
    return NULL;
}

TEST(v29_a_disk_that_is_full_for_300_ms_loses_no_record) { /* Q45 */
    JOURNAL();
    pthread_t thread;
    uint64_t entry = cairn_up_journal_entry_new(journal);
    REQUIRE_OK(add(journal, entry, "begin", "a", false, &err));
    struct rlimit before = size_limit(cairn_up_journal_bytes(journal) + 20);
    REQUIRE(pthread_create(&thread, NULL, lift_limit, &before) == 0);
    enum cairn_code code = add(journal, entry, "seal", "0123456789", false, &err);
    pthread_join(thread, NULL);
    EXPECT(code == CAIRN_OK);
    REQUIRE_OK(reopen_journal(&journal, &seen, &err));
    EXPECT_EQ_TEXT(seen.text, "1:begin:a 1:seal:0123456789 ");
}

/* After a power cut the later blocks of the last group may be there and the first ones not. */
TEST(v29_a_torn_group_is_cut_off_whichever_of_its_bytes_are_missing) { /* journal.h#2, Q45 */
    JOURNAL();
    uint64_t entry = cairn_up_journal_entry_new(journal);
    REQUIRE_OK(add(journal, entry, "begin", "", false, &err));
    uint64_t whole = cairn_up_journal_bytes(journal);
    CAIRN_AUTO_JSON json_t *first = json_pack("{s:s}", "t", "blocks");
    CAIRN_AUTO_JSON json_t *second = json_pack("{s:s}", "t", "seal");
    struct cairn_up_record records[2] = {{.entry = entry, .message = first},
                                         {.entry = entry, .message = second}};
    REQUIRE_OK(cairn_up_journal_append(journal, records, 2, &err));
    uint64_t all = cairn_up_journal_bytes(journal);
    close_journal(&journal);
    CAIRN_AUTO(buf) bytes = {0};
    REQUIRE_OK(cairn_file_load(journal_path(), &bytes, &err));
    for (uint64_t hole = whole; hole < all; hole += 7) {
        CAIRN_AUTO(buf) torn = {0};
        REQUIRE_OK(cairn_buf_append(&torn, bytes.data, bytes.size, &err));
        memset(torn.data + hole, 0, (size_t)cairn_min_u64(16, all - hole));
        REQUIRE_OK(cairn_file_replace(journal_path(), cairn_buf_view(&torn), 0600, &err));
        REQUIRE_OK(open_journal(&journal, &seen, &err));
        EXPECT_EQ_TEXT(seen.text, "1:begin: ");
        close_journal(&journal);
    }
}

/* A whole group at the end of a journal of n1, of another file or node in its head. */
static bool append_group(const struct cairn_buf *file, uint32_t file_more, uint32_t node_more,
                         struct cairn_error *err) {
    struct cairn_up_head head = {0}, last = {0};
    struct cairn_up_touches touches = {0};
    CAIRN_AUTO(buf) records = {0}, all = {0};
    CAIRN_AUTO_JSON json_t *message = json_pack("{s:s}", "t", "strange");
    struct cairn_up_record record = {.entry = 1, .message = message};
    for (uint64_t at = 0; cairn_up_head_after(cairn_buf_view(file), at, NULL, 0, &at, &head);
         at += head.bytes)
        last = head;
    if (!last.sequence || cairn_up_record_encode(&record, &records, err)) return false;
    last.id.file += file_more;
    last.id.node_crc += node_more;
    last.covers_from = ++last.sequence;
    last.size = records.size;
    last.records_crc = cairn_crc32c(0, records.data, records.size);
    last.count = 0;
    return !cairn_buf_append(&all, file->data, file->size, err) &&
           !cairn_up_head_encode(&last, &touches, &all, err) &&
           !cairn_buf_append(&all, records.data, records.size, err) &&
           !cairn_file_replace(journal_path(), cairn_buf_view(&all), 0600, err);
}

TEST(a_group_of_another_file_or_node_is_no_group_of_the_journal) { /* format.h#6, Q15 */
    JOURNAL();
    CAIRN_AUTO(buf) bytes = {0};
    uint64_t entry = cairn_up_journal_entry_new(journal);
    REQUIRE_OK(add(journal, entry, "begin", "", false, &err));
    close_journal(&journal);
    REQUIRE_OK(cairn_file_load(journal_path(), &bytes, &err));
    EACH(row, FIELDS(uint32_t file, node; const char *text), {0, 0, "1:begin: 1:strange: "},
         {1, 0, "1:begin: "}, {0, 1, "1:begin: "}) {
        REQUIRE(append_group(&bytes, row->file, row->node, &err));
        REQUIRE_OK(open_journal(&journal, &seen, &err));
        EXPECT_EQ_TEXT(seen.text, row->text);
        close_journal(&journal);
    }
}

/* Its first group, which names the node, is damaged; the next ones have a checksum of the name. */
TEST(a_damaged_journal_of_another_node_is_refused) { /* Q15, Q45 */
    JOURNAL();
    CAIRN_AUTO(buf) bytes = {0};
    uint64_t entry = cairn_up_journal_entry_new(journal);
    REQUIRE_OK(add(journal, entry, "begin", "", false, &err));
    REQUIRE_OK(add(journal, entry, "seal", "", false, &err));
    close_journal(&journal);
    REQUIRE_OK(cairn_file_load(journal_path(), &bytes, &err));
    bytes.data[0] ^= 0x55;
    REQUIRE_OK(cairn_file_replace(journal_path(), cairn_buf_view(&bytes), 0600, &err));
    struct cairn_up_journal_options other = {.path = journal_path(), .node = "n2"};
    EXPECT_CODE(cairn_up_journal_open(&other, &journal, &err), CAIRN_CONFLICT);
    REQUIRE_OK(open_journal(&journal, &seen, &err));
    EXPECT(strstr(seen.text, "1:seal:") != NULL);
}

TEST(a_journal_of_the_format_before_is_read_and_written_anew, err) {
    struct cairn_up_journal *journal = NULL;
    struct seen seen;
    CAIRN_AUTO(buf) old = {0};
    CAIRN_AUTO_JSON json_t *header =
        json_pack("{s:s, s:i, s:s}", "t", "journal", "format", 1, "node", "n1");
    CAIRN_AUTO_JSON json_t *begin = json_pack("{s:s}", "t", "begin");
    struct cairn_up_record records[2] = {{.message = header}, {.entry = 5, .message = begin}};
    REQUIRE_OK(cairn_up_record_encode(&records[0], &old, &err));
    REQUIRE_OK(cairn_up_record_encode(&records[1], &old, &err));
    REQUIRE_OK(cairn_file_replace(journal_path(), cairn_buf_view(&old), 0600, &err));
    for (int i = 0; i < 2; i++) {
        REQUIRE_OK(open_journal(&journal, &seen, &err));
        EXPECT_EQ_TEXT(seen.text, "5:begin: ");
        EXPECT(cairn_up_journal_entry_new(journal) > 5);
        close_journal(&journal);
    }
    CAIRN_AUTO(buf) now = {0};
    REQUIRE_OK(cairn_file_load(journal_path(), &now, &err));
    EXPECT(memcmp(now.data, "CRG2", 4) == 0);
}

TEST(a_journal_of_a_later_format_is_of_a_newer_release_and_left_as_it_is, err) { /* P15 */
    struct cairn_up_journal *journal = NULL;
    struct seen seen;
    CAIRN_AUTO(buf) later = {0}, after = {0}, records = {0};
    uint8_t head[CAIRN_UP_GROUP2_HEAD_BYTES];
    CAIRN_AUTO_JSON json_t *header =
        json_pack("{s:s, s:i, s:s}", "t", "journal", "format", 99, "node", "n1");
    struct cairn_up_record record = {.message = header};
    REQUIRE_OK(cairn_up_record_encode(&record, &records, &err));
    cairn_up_group2_head(1, 7, cairn_buf_view(&records), head);
    REQUIRE_OK(cairn_buf_append(&later, head, sizeof(head), &err));
    REQUIRE_OK(cairn_buf_append(&later, records.data, records.size, &err));
    REQUIRE_OK(cairn_buf_append(&later, "CRG9 and what it writes", 23, &err));
    REQUIRE_OK(cairn_file_replace(journal_path(), cairn_buf_view(&later), 0600, &err));
    EXPECT_CODE(open_journal(&journal, &seen, &err), CAIRN_UNSUPPORTED);
    EXPECT(strstr(err.message, "written by a newer release") && strstr(err.message, "99"));
    REQUIRE_OK(cairn_file_load(journal_path(), &after, &err));
    EXPECT(after.size == later.size && !memcmp(after.data, later.data, later.size));
}

/* ---- notes: records that nobody waits for ---- */

/* Groups of the file, that of its header left out. */
static size_t groups_of(const char *path) {
    struct cairn_error err = {0};
    CAIRN_AUTO(buf) bytes = {0};
    struct cairn_up_head head;
    size_t count = 0;
    if (cairn_file_load(path, &bytes, &err) != CAIRN_OK) return SIZE_MAX;
    for (uint64_t offset = 0;
         cairn_up_head_after(cairn_buf_view(&bytes), offset, NULL, 0, &offset, &head);
         offset += head.bytes)
        count++;
    return count;
}

static enum cairn_code add_note(struct cairn_up_journal *journal, uint64_t entry, const char *name,
                                struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *message = json_pack("{s:s}", "t", name);
    struct cairn_up_record record = {.entry = entry, .message = message};
    return cairn_up_journal_post(journal, &record, 1, NULL, NULL, err);
}

/* A machine that is busy may write a note before the seal comes, but not each of fifty. */
TEST(a_record_that_nobody_waits_for_shares_the_sync_of_the_next_one) {
    JOURNAL();
    uint64_t entry = cairn_up_journal_entry_new(journal);
    for (int i = 0; i < 50; i++) {
        REQUIRE_OK(add_note(journal, entry, "stage", &err));
        cairn_test_pause_ms(1); /* pause of a stand-in: a trainer between two messages */
        REQUIRE_OK(add(journal, entry, "seal", "", false, &err));
    }
    close_journal(&journal);
    size_t groups = groups_of(journal_path());
    EXPECT(groups >= 50);
    EXPECT(groups < 100);
    REQUIRE_OK(open_journal(&journal, &seen, &err));
    EXPECT_EQ_U64(seen.count, 100);
}

/* The first while the thread looks by itself, the second when it has long gone to sleep. */
TEST(a_record_that_nobody_waits_for_is_written_soon_also_when_no_other_comes) {
    JOURNAL();
    uint64_t entry = cairn_up_journal_entry_new(journal);
    REQUIRE_OK(add(journal, entry, "begin", "", false, &err));
    for (int i = 0; i < 3; i++) {
        uint64_t before = cairn_up_journal_bytes(journal);
        REQUIRE_OK(add_note(journal, entry, "part", &err));
        EXPECT(AWAIT(cairn_up_journal_bytes(journal) > before));
        cairn_test_pause_ms(100); /* pause of a stand-in: a trainer that has nothing to say */
    }
}

/* Without the hurry it lies for 10 ms each time; a busy machine need be quick only once. */
TEST(a_record_that_nobody_waits_for_is_written_at_once_where_somebody_hurries) {
    JOURNAL();
    bool soon = false;
    uint64_t entry = cairn_up_journal_entry_new(journal);
    for (int i = 0; i < 100 && !soon; i++) {
        cairn_test_pause_ms(30); /* pause of a stand-in: a trainer that has nothing to say */
        size_t before = groups_of(journal_path());
        uint64_t since_us = cairn_mono_us();
        REQUIRE_OK(add_note(journal, entry, "fail", &err));
        cairn_up_journal_hurry(journal);
        while (groups_of(journal_path()) == before && cairn_mono_us() < since_us + 10000000)
            continue;
        soon = cairn_mono_us() < since_us + 8000;
    }
    EXPECT(soon);
}
