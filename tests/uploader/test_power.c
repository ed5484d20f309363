/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: races="full: as uploader/journal" */
/* What the journal has acknowledged is there after a power cut. */
#include "tests/support/power.h"

#include "common/log.h"
#include "tests/harness.h"
#include "uploader/journal/journal.h"

#define RECORDS 60
#define REWRITE_BYTES (4 * CAIRN_KIB)
#define REWRITE_WAIT_MS 40 /* a rewrite comes after the answer */

struct seen {
    uint64_t last;
    size_t count;
};

static enum cairn_code note(void *owner, const struct cairn_up_replayed *record,
                            struct cairn_error *err) {
    (void)err;
    struct seen *seen = owner;
    seen->last = record->entry;
    seen->count++;
    return CAIRN_OK;
}

static enum cairn_code open_at(const char *folder, struct seen *seen, struct cairn_up_journal **ret,
                               struct cairn_error *err) {
    char path[500];
    snprintf(path, sizeof(path), "%s/journal", folder);
    struct cairn_up_journal_options options = {
        .path = path, .node = "n1", .replay = note, .owner = seen, .rewrite_bytes = REWRITE_BYTES};
    return cairn_up_journal_open(&options, ret, err);
}

static bool was_rewritten(struct cairn_up_journal *journal, uint64_t bytes_before) {
    for (int waited = 0; waited < REWRITE_WAIT_MS; waited++) {
        uint64_t bytes = cairn_up_journal_bytes(journal);
        if (bytes < bytes_before) return true;
        if (bytes <= REWRITE_BYTES) return false;
        cairn_test_pause_ms(1); /* step of a poll */
    }
    return false;
}

/* Two in three entries are closed again, so that the journal is rewritten on the way. */
TEST(an_acknowledged_record_is_there_after_a_power_cut, err) { /* journal.h#3, journal.h#4 */
    struct cairn_up_journal *journal = NULL;
    struct seen seen = {0};
    static char blob[200];
    cairn_log_start("test", CAIRN_LOG_ERROR, 2);
    const char *folder = TEXT("%s/journal", cairn_test_folder());
    REQUIRE(mkdir(folder, 0700) == 0);
    POWER_RECORDED();
    REQUIRE_OK(open_at(folder, &seen, &journal, &err));
    uint64_t open_entries = 0, newest = 0, rewrites = 0;
    for (uint64_t i = 0; i < RECORDS; i++) {
        uint64_t entry = cairn_up_journal_entry_new(journal);
        uint64_t bytes_before = cairn_up_journal_bytes(journal);
        CAIRN_AUTO_JSON json_t *message = json_pack("{s:s}", "t", "begin");
        struct cairn_up_record record = {
            .entry = entry, .message = message, .blob = {blob, sizeof(blob)}};
        REQUIRE_OK(cairn_up_journal_append(journal, &record, 1, &err));
        record.closes = true;
        if (i % 3) REQUIRE_OK(cairn_up_journal_append(journal, &record, 1, &err));
        if (!(i % 3)) {
            open_entries++;
            newest = entry;
        }
        bool rewritten = was_rewritten(journal, bytes_before);
        rewrites += rewritten;
        if (i % 10 && !rewritten) continue;
        const char *image = TEXT("%s/image-%" PRIu64, cairn_test_folder(), i);
        REQUIRE(cairn_power_cut(folder, image));
        struct cairn_up_journal *after = NULL;
        struct seen found = {0};
        EXPECT_CODE(open_at(image, &found, &after, &err), CAIRN_OK);
        EXPECT_EQ_U64(found.count, open_entries);
        EXPECT_EQ_U64(found.last, newest);
        cairn_up_journal_free(after);
    }
    EXPECT(rewrites > 0);
    cairn_up_journal_free(journal);
}
