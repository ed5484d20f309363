/* SPDX-License-Identifier: Apache-2.0 */
/* Damage inside the journal concerns the entries whose records it took, and no other (Q45,
 * journal.h#2). */
#include "common/log.h"
#include "tests/harness.h"
#include "uploader/journal/format.h"

#define ENTRIES 24
#define RECORDS_MAX 400 /* of one entry */
#define GROUPS_MAX 600
#define GROUP_ENTRIES 4

struct note {
    uint32_t value; /* checksum of the record's name and blob */
    size_t group;
};
struct notes {
    struct note items[RECORDS_MAX];
    size_t count;
    bool closed, damaged;
};
/* A journal, and what was written into it. */
struct made {
    struct cairn_buf bytes;
    size_t group_count;
    struct {
        uint64_t from, end;
        uint64_t entries[GROUP_ENTRIES];
        size_t count;
    } groups[GROUPS_MAX]; /* the first one is the header */
    struct notes notes[ENTRIES + 1];
};
static void cairn_made_release(struct made *made) {
    cairn_buf_release(&made->bytes);
}

struct told {
    struct notes notes[ENTRIES + 1];
    bool strange; /* an entry that nobody made, or a record after the word that some are lost */
};

static uint32_t value_of(const char *name, struct cairn_view blob) {
    return cairn_crc32c(cairn_crc32c(0, name, strlen(name)), blob.data, blob.size);
}

static enum cairn_code hear(void *owner, const struct cairn_up_replayed *record,
                            struct cairn_error *err) {
    (void)err;
    struct told *told = owner;
    struct notes *notes = &told->notes[record->entry <= ENTRIES ? record->entry : 0];
    told->strange |= notes == told->notes || notes->damaged || notes->count == RECORDS_MAX;
    if (!strcmp(record->name, CAIRN_UP_RECORD_DAMAGED))
        notes->damaged = true;
    else if (notes->count < RECORDS_MAX)
        notes->items[notes->count++].value = value_of(record->name, record->blob);
    return CAIRN_OK;
}

static const char *journal_path(void) {
    static char path[300];
    snprintf(path, sizeof(path), "%s/j", cairn_test_folder());
    return path;
}

static enum cairn_code open_as(const char *node, struct told *told, struct cairn_up_journal **ret,
                               struct cairn_error *err) {
    static int nowhere = -1; /* hundreds of damaged journals are said here */
    if (nowhere < 0) nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    cairn_log_start("test", CAIRN_LOG_ERROR, nowhere);
    struct cairn_up_journal_options options = {
        .path = journal_path(), .node = node, .replay = hear, .owner = told};
    if (told) *told = (struct told){0};
    if (!told) options.replay = NULL;
    return cairn_up_journal_open(&options, ret, err);
}

/* ---- making one ---- */

struct maker {
    struct made *made;
    struct cairn_up_journal *journal;
    uint64_t random;
};

/* One group with a record for each of these entries. */
static bool put(struct maker *maker, const uint64_t *entries, size_t count, bool closes) {
    struct made *made = maker->made;
    struct cairn_up_record records[GROUP_ENTRIES];
    static char blobs[GROUP_ENTRIES][300];
    struct cairn_error err = {0};
    CAIRN_AUTO_JSON json_t *message = json_pack("{s:s}", "t", closes ? "over" : "step");
    for (size_t i = 0; i < count; i++) {
        size_t size = cairn_test_random(&maker->random) % sizeof(blobs[0]);
        for (size_t k = 0; k < size; k++) blobs[i][k] = (char)cairn_test_random(&maker->random);
        records[i] = (struct cairn_up_record){
            .entry = entries[i], .closes = closes, .message = message, .blob = {blobs[i], size}};
        struct notes *notes = &made->notes[entries[i]];
        notes->closed |= closes;
        if (notes->count == RECORDS_MAX) return false;
        notes->items[notes->count++] =
            (struct note){value_of("step", records[i].blob), made->group_count};
        made->groups[made->group_count].entries[i] = entries[i];
    }
    made->groups[made->group_count].count = count;
    made->groups[made->group_count].from = cairn_up_journal_bytes(maker->journal);
    bool done = cairn_up_journal_append(maker->journal, records, count, &err) == CAIRN_OK;
    made->groups[made->group_count++].end = cairn_up_journal_bytes(maker->journal);
    return done;
}

/* groups: of records; the last entry is begun in the last of them, which no test damages. */
static bool make(struct made *ret, size_t groups, uint64_t seed) {
    struct cairn_error err = {0};
    struct maker maker = {.made = ret, .random = seed};
    (void)unlink(journal_path());
    if (open_as("n1", NULL, &maker.journal, &err) != CAIRN_OK) return false;
    for (size_t i = 1; i <= ENTRIES; i++) (void)cairn_up_journal_entry_new(maker.journal);
    ret->groups[0].end = cairn_up_journal_bytes(maker.journal);
    ret->group_count = 1;
    bool done = true;
    size_t closed = 0;
    while (done && ret->group_count <= groups) {
        uint64_t entries[GROUP_ENTRIES];
        size_t count = 0, wanted = 1 + cairn_test_random(&maker.random) % GROUP_ENTRIES;
        uint64_t first = 1 + cairn_test_random(&maker.random) % (ENTRIES - 1);
        for (uint64_t k = 0; k < wanted; k++) {
            uint64_t entry = 1 + (first - 1 + k) % (ENTRIES - 1);
            if (!ret->notes[entry].closed) entries[count++] = entry;
        }
        bool closes = closed < ENTRIES / 2 && cairn_test_random(&maker.random) % 20 == 0;
        if (count) done = put(&maker, entries, count, closes);
        closed += closes ? count : 0;
    }
    const uint64_t last = ENTRIES;
    done &= put(&maker, &last, 1, false);
    cairn_up_journal_free(maker.journal);
    return done && cairn_file_load(journal_path(), &ret->bytes, &err) == CAIRN_OK;
}

/* ---- comparing ---- */

static bool touches(const struct made *made, size_t group, uint64_t entry) {
    for (size_t i = 0; i < made->groups[group].count; i++)
        if (made->groups[group].entries[i] == entry) return true;
    return false;
}

/* All records but those of the groups that were hit, in order, as they were. */
static bool is_what_is_left(const struct notes *made, const struct notes *told, const bool *hit) {
    size_t at = 0;
    for (size_t i = 0; i < made->count; i++) {
        if (hit[made->items[i].group]) continue;
        if (at == told->count || told->items[at++].value != made->items[i].value) return false;
    }
    return at == told->count;
}

/* all: so much is lost that nobody can say whom it concerned. */
static bool fits(const struct made *made, const struct told *told, const bool *hit, bool all) {
    if (told->strange) return false;
    for (uint64_t entry = 1; entry <= ENTRIES; entry++) {
        const struct notes *was = &made->notes[entry], *is = &told->notes[entry];
        bool concerned = false;
        for (size_t i = 1; i < made->group_count; i++)
            concerned |= hit[i] && touches(made, i, entry);
        if (was->closed && !is->count && !is->damaged) continue;
        bool lost = concerned || (all && is->damaged);
        if ((was->closed && !all) || is->damaged != lost || !is_what_is_left(was, is, hit))
            return false;
    }
    return true;
}

/* The journal with these bytes instead; what comes back, now and then also the time after. */
static bool comes_back(const struct made *made, const bool *hit, bool all) {
    static struct told told;
    static int calls;
    int times = calls++ % 8 ? 1 : 2;
    struct cairn_error err = {0};
    if (cairn_file_replace(journal_path(), cairn_buf_view(&made->bytes), 0600, &err) != CAIRN_OK)
        return false;
    for (int i = 0; i < times; i++) {
        struct cairn_up_journal *journal = NULL;
        if (open_as("n1", &told, &journal, &err) != CAIRN_OK) {
            printf("  %s\n", err.message);
            return false;
        }
        bool fresh = cairn_up_journal_entry_new(journal) > ENTRIES;
        cairn_up_journal_free(journal);
        if (!fresh || !fits(made, &told, hit, all)) return false;
    }
    return true;
}

/* Marks what a change of [from, end) hits. The last group is a torn tail when it is hit, so it is
 * left alone; false when it would be. */
static bool mark(const struct made *made, uint64_t from, uint64_t end, bool *hit) {
    if (end > made->groups[made->group_count - 1].from) return false;
    for (size_t i = 0; i < made->group_count; i++)
        hit[i] |= from < made->groups[i].end && end > made->groups[i].from;
    return true;
}

static bool survives_bytes(struct made *made, uint64_t from, uint64_t end, int value) {
    static char kept[16 * CAIRN_KIB];
    bool hit[GROUPS_MAX] = {0};
    if (end - from > sizeof(kept) || !mark(made, from, end, hit)) return true;
    memcpy(kept, made->bytes.data + from, end - from);
    for (uint64_t at = from; at < end; at++)
        made->bytes.data[at] = (char)(value < 0 ? made->bytes.data[at] ^ (1 << (at % 8)) : value);
    bool same = !memcmp(kept, made->bytes.data + from, end - from);
    bool done = same || comes_back(made, hit, false);
    memcpy(made->bytes.data + from, kept, end - from);
    return done;
}

/* ---- tests ---- */

static struct made made; /* too large for the stack */

static bool made_with(size_t groups, uint64_t seed) {
    cairn_made_release(&made);
    made = (struct made){0};
    return make(&made, groups, seed);
}

/* Damage to a group of entries that are closed later on concerns nobody. */
static size_t group_of_an_open_entry(void) {
    for (size_t group = 15; group < 40; group++)
        for (size_t i = 0; i < made.groups[group].count; i++)
            if (!made.notes[made.groups[group].entries[i]].closed) return group;
    return SIZE_MAX;
}

/* Q45, journal.h#2, N03 */
TEST(v29_a_bit_in_the_middle_costs_the_entries_of_its_group_and_no_other) {
    REQUIRE(made_with(40, 1));
    bool none[GROUPS_MAX] = {0};
    REQUIRE(comes_back(&made, none, false));
    size_t middle = group_of_an_open_entry();
    REQUIRE(middle < 40);
    for (uint64_t at = made.groups[middle].from; at < made.groups[middle].end; at++)
        REQUIRE(survives_bytes(&made, at, at + 1, -1));
    const char *path = TEXT("%s.damaged", journal_path());
    EXPECT(access(path, R_OK) == 0);
}

TEST(v29_a_lost_page_or_sector_costs_the_entries_of_its_groups_and_no_other) { /* Q45 */
    REQUIRE(made_with(80, 2));
    for (uint64_t at = 0; at < made.bytes.size; at += 512) {
        REQUIRE(survives_bytes(&made, at, at + 512, 0));
        REQUIRE(survives_bytes(&made, at, at + 4096, 0));
        REQUIRE(survives_bytes(&made, at, at + 4096, 0x5a));
    }
}

TEST(v29_several_damaged_places_cost_what_each_of_them_concerns) { /* Q45 */
    REQUIRE(made_with(60, 3));
    static const size_t groups[] = {5, 6, 7, 20, 22, 23, 58};
    bool hit[GROUPS_MAX] = {0};
    for (size_t i = 0; i < CAIRN_COUNT(groups); i++) {
        made.bytes.data[made.groups[groups[i]].from + 9 * (i % 2) + 3] ^= 4;
        hit[groups[i]] = true;
        REQUIRE(comes_back(&made, hit, false));
    }
}

TEST(v29_a_damaged_header_costs_nothing, err) { /* Q45 */
    REQUIRE(made_with(10, 4));
    for (uint64_t at = 0; at < made.groups[0].end; at++)
        REQUIRE(survives_bytes(&made, at, at + 1, -1));
    struct cairn_up_journal *journal = NULL;
    made.bytes.data[40] ^= 1;
    REQUIRE_OK(cairn_file_replace(journal_path(), cairn_buf_view(&made.bytes), 0600, &err));
    EXPECT_CODE(open_as("n2", NULL, &journal, &err), CAIRN_CONFLICT);
}

TEST(v29_random_damage_never_gives_a_wrong_record_and_takes_no_other_entry) { /* Q45 */
    uint64_t random = cairn_test_seed();
    for (int round = 0; round < 12; round++) {
        REQUIRE(made_with(50 + (size_t)cairn_test_random(&random) % 30, random));
        for (int i = 0; i < 20; i++) {
            bool hit[GROUPS_MAX] = {0};
            CAIRN_AUTO(buf) kept = {0};
            struct cairn_error err = {0};
            REQUIRE_OK(cairn_buf_append(&kept, made.bytes.data, made.bytes.size, &err));
            for (uint64_t flips = 1 + cairn_test_random(&random) % 8; flips; flips--) {
                uint64_t at = cairn_test_random(&random) % made.bytes.size;
                if (!mark(&made, at, at + 1, hit)) continue;
                made.bytes.data[at] =
                    (char)(kept.data[at] ^ (1 << (cairn_test_random(&random) % 8)));
            }
            REQUIRE(comes_back(&made, hit, false));
            memcpy(made.bytes.data, kept.data, kept.size);
        }
    }
}

TEST(v29_when_more_is_lost_than_a_head_remembers_all_that_was_open_is_concerned) { /* Q45 */
    REQUIRE(made_with(200, 5));
    bool hit[GROUPS_MAX] = {0};
    uint64_t from = made.groups[50].from, end = made.groups[150].end;
    REQUIRE(mark(&made, from, end, hit));
    memset(made.bytes.data + from, 0, end - from);
    EXPECT(comes_back(&made, hit, true));
}

/* Groups of an older file, of higher sequences, lie behind the end of this one. */
TEST(v29_what_an_older_file_left_behind_the_end_is_no_group, err) { /* Q45, journal.h#2 */
    CAIRN_AUTO(buf) old = {0};
    bool none[GROUPS_MAX] = {0};
    REQUIRE(made_with(60, 6));
    REQUIRE_OK(cairn_buf_append(&old, made.bytes.data, made.bytes.size, &err));
    REQUIRE(made_with(10, 7));
    REQUIRE(old.size > made.bytes.size);
    REQUIRE_OK(cairn_buf_append(&made.bytes, old.data + made.bytes.size, old.size - made.bytes.size,
                                &err));
    EXPECT(comes_back(&made, none, false));
}

/* ---- the formats before ---- */

static bool put2(struct cairn_buf *file, uint64_t sequence, uint64_t entry, json_t *take_message) {
    CAIRN_AUTO_JSON json_t *message = take_message;
    CAIRN_AUTO(buf) bytes = {0};
    struct cairn_error err = {0};
    struct cairn_up_record record = {.entry = entry, .message = message};
    uint8_t head[CAIRN_UP_GROUP2_HEAD_BYTES];
    if (cairn_up_record_encode(&record, &bytes, &err) != CAIRN_OK) return false;
    cairn_up_group2_head(sequence, 0, cairn_buf_view(&bytes), head);
    return cairn_buf_append(file, head, sizeof(head), &err) == CAIRN_OK &&
           cairn_buf_append(file, bytes.data, bytes.size, &err) == CAIRN_OK;
}

static bool make2(struct cairn_buf *ret) {
    json_t *header = json_pack("{s:s, s:i, s:s}", "t", "journal", "format", 2, "node", "n1");
    return put2(ret, 1, 0, header) && put2(ret, 2, 5, json_pack("{s:s}", "t", "begin")) &&
           put2(ret, 3, 6, json_pack("{s:s}", "t", "begin"));
}

TEST(a_journal_of_format_2_is_read_and_written_anew, err) { /* P15 */
    static struct told told;
    struct cairn_up_journal *journal = NULL;
    CAIRN_AUTO(buf) file = {0}, now = {0};
    REQUIRE(make2(&file));
    REQUIRE_OK(cairn_file_replace(journal_path(), cairn_buf_view(&file), 0600, &err));
    for (int i = 0; i < 2; i++) {
        REQUIRE_OK(open_as("n1", &told, &journal, &err));
        EXPECT(told.notes[5].count == 1 && told.notes[6].count == 1);
        cairn_up_journal_free(journal);
    }
    REQUIRE_OK(cairn_file_load(journal_path(), &now, &err));
    struct cairn_up_group2 first;
    REQUIRE(cairn_up_group2_at(cairn_buf_view(&now), 0, &first)); /* programs before read this */
    EXPECT(memmem(first.records.data, first.records.size, "\"format\":4", 10) != NULL);
}

TEST(a_damaged_journal_of_format_2_is_refused_by_its_offset, err) { /* journal.h#2, N03 */
    struct cairn_up_journal *journal = NULL;
    CAIRN_AUTO(buf) file = {0};
    REQUIRE(make2(&file));
    file.data[file.size / 2] ^= 1;
    REQUIRE_OK(cairn_file_replace(journal_path(), cairn_buf_view(&file), 0600, &err));
    EXPECT_FAILS(open_as("n1", NULL, &journal, &err), CAIRN_CORRUPT, "offset");
}
