/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: races="full: as server/save" */
/* The catalog's file: who may write to it, and what happens when it is locked, full or damaged
 * (D01-D05). */

#include "tests/server/world.h"

struct text {
    char value[64];
    const char *sql;
};

static enum cairn_code read_text(struct srv_tx *tx, void *argument, struct cairn_error *why) {
    struct text *text = argument;
    const struct srv_statement statement = {"test", "", text->sql};
    SRV_AUTO(rows) rows = {0};
    CAIRN_TRY(srv_sql_open(tx, &rows, why, &statement));
    bool more = false;
    CAIRN_TRY(srv_rows_next(&rows, &more, why));
    snprintf(text->value, sizeof(text->value), "%s", more ? srv_rows_text(&rows, 0) : "");
    return CAIRN_OK;
}

static enum cairn_code run_text(struct srv_tx *tx, void *argument, struct cairn_error *why) {
    const struct srv_statement statement = {"test", "", argument};
    return srv_sql_run(tx, NULL, why, &statement);
}

static uint64_t size_of(const char *folder, const char *name) {
    struct stat status;
    const char *path = TEXT("%s/%s", folder, name);
    return stat(path, &status) ? 0 : (uint64_t)status.st_size;
}

TEST(d01_no_reader_of_the_catalog_can_checkpoint_or_write, err) { /* D01, R6 */
    CATALOG(catalog, cairn_test_folder());
    static char add[] = "INSERT INTO meta(name, value) VALUES('a', 'b')";
    EXPECT_CODE(srv_catalog_write(catalog, run_text, add, &err), CAIRN_OK);
    uint64_t wal = size_of(cairn_test_folder(), "catalog.db-wal");
    uint64_t main_file = size_of(cairn_test_folder(), "catalog.db");
    EXPECT(wal > 0);
    static char checkpoint[] = "PRAGMA wal_checkpoint(TRUNCATE)";
    static char update[] = "UPDATE meta SET value = 'c'";
    (void)!look_by(catalog, run_text, checkpoint, &err);
    EXPECT(look_by(catalog, run_text, update, &err) != CAIRN_OK);
    EXPECT_EQ_U64(size_of(cairn_test_folder(), "catalog.db-wal"), wal);
    EXPECT_EQ_U64(size_of(cairn_test_folder(), "catalog.db"), main_file);
}

TEST(d02_the_writer_syncs_each_commit_as_its_pragmas_say, err) { /* D02, P2 */
    CATALOG(catalog, cairn_test_folder());
    struct text synchronous = {.sql = "PRAGMA synchronous"}, mode = {.sql = "PRAGMA journal_mode"};
    EXPECT_CODE(srv_catalog_write(catalog, read_text, &synchronous, &err), CAIRN_OK);
    EXPECT_CODE(srv_catalog_write(catalog, read_text, &mode, &err), CAIRN_OK);
    EXPECT_EQ_TEXT(synchronous.value, "2"); /* FULL */
    EXPECT_EQ_TEXT(mode.value, "wal");
}

/* ---- D03 ---- */

#define ROWS 400

static bool copy_file(const char *from, const char *to) {
    CAIRN_AUTO(buf) bytes = {.limit = 64 * CAIRN_MIB};
    return !cairn_file_load(from, &bytes, NULL) &&
           !cairn_file_replace(to, cairn_buf_view(&bytes), 0600, NULL);
}

#define FOLDER(name, ...)                                                                          \
    const char *name = TEXT("%s/%s", cairn_test_folder(), TEXT(__VA_ARGS__));                      \
    REQUIRE(!cairn_dir_make(name, 0700, NULL))

static bool copy_catalog(const char *from, const char *to, bool log) {
    return copy_file(TEXT("%s/catalog.db", from), TEXT("%s/catalog.db", to)) &&
           (!log || copy_file(TEXT("%s/catalog.db-wal", from), TEXT("%s/catalog.db-wal", to)));
}

/* A catalog of ROWS rows in `folder`, with what was not checkpointed in its WAL when `live`. */
static bool make_catalog(const char *folder, const char *copy, bool live) {
    struct cairn_error err = {0};
    struct srv_catalog *catalog = NULL;
    if (srv_catalog_open(folder, &catalog, &err)) return false;
    bool ok = !srv_catalog_write(
        catalog, run_text,
        TEXT("WITH RECURSIVE k(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < %d) "
             "INSERT INTO meta(name, value) SELECT 'row-' || i, hex(zeroblob(100)) FROM k",
             ROWS),
        &err);
    if (!live) srv_catalog_free(catalog);
    ok &= copy_catalog(folder, copy, live);
    if (live) srv_catalog_free(catalog);
    return ok;
}

/* Opens; true when it was refused, or all rows or none (never a part) are there. */
static bool whole_or_refused(const char *folder, bool *ret_refused) {
    struct cairn_error err = {0};
    struct srv_catalog *catalog = NULL;
    *ret_refused = srv_catalog_open(folder, &catalog, &err) != CAIRN_OK;
    if (*ret_refused) return true;
    struct text count = {.sql = "SELECT count(*) FROM meta WHERE length(value) = 200"};
    bool read = !look_by(catalog, read_text, &count, &err);
    srv_catalog_free(catalog);
    return read && (!strcmp(count.value, "400") || !strcmp(count.value, "0"));
}

TEST(d03_a_wal_that_was_torn_anywhere_is_recovered_or_refused_never_half_used) { /* D03 */
    FOLDER(live, "live");
    FOLDER(copy, "copy");
    uint64_t state = cairn_test_seed();
    size_t refused_count = 0, whole = 0;
    REQUIRE(make_catalog(live, copy, true));
    uint64_t size = size_of(copy, "catalog.db-wal");
    REQUIRE(size > 4096);
    for (int i = 0; i < 40; i++) {
        bool refused = false;
        FOLDER(one, "one-%d", i);
        REQUIRE(copy_catalog(copy, one, true));
        const char *to = TEXT("%s/catalog.db-wal", one);
        uint64_t at = cairn_test_random(&state) % size;
        if (i % 2) {
            REQUIRE(!truncate(to, (off_t)at));
        } else {
            CAIRN_AUTO_FD fd = open(to, O_WRONLY | O_CLOEXEC);
            uint8_t noise[512];
            hand_fill(noise, sizeof(noise), cairn_test_random(&state));
            REQUIRE(pwrite(fd, noise, sizeof(noise), (off_t)at) == (ssize_t)sizeof(noise));
        }
        cairn_test_check(whole_or_refused(one, &refused), __FILE__, __LINE__, "%s at %llu of %llu",
                         i % 2 ? "torn" : "noise", (unsigned long long)at,
                         (unsigned long long)size);
        refused_count += refused;
        whole += !refused;
    }
    printf("    %zu recovered, %zu refused\n", whole, refused_count);
}

/* The index of a WAL is made anew by whoever comes first: what lies there counts for nothing. */
TEST(d03_an_index_of_the_wal_that_is_gone_or_noise_costs_no_row) {
    FOLDER(live, "live");
    FOLDER(copy, "copy");
    REQUIRE(make_catalog(live, copy, true));
    /* 0: there is none */
    EACH_OF(size_t, number, 0, 1, 32768, 65536) {
        static uint8_t noise[65536];
        struct cairn_error err = {0};
        struct srv_catalog *catalog = NULL;
        struct text count = {.sql = "SELECT count(*) FROM meta WHERE length(value) = 200"};
        FOLDER(one, "shm-%zu", AT_OF(number));
        REQUIRE(copy_catalog(copy, one, true));
        const char *to = TEXT("%s/catalog.db-shm", one);
        hand_fill(noise, sizeof(noise), AT_OF(number));
        struct cairn_view index = {noise, number};
        if (number) REQUIRE(!cairn_file_replace(to, index, 0600, NULL));
        REQUIRE(!srv_catalog_open(one, &catalog, &err));
        EXPECT_CODE(look_by(catalog, read_text, &count, &err), CAIRN_OK);
        EXPECT_EQ_TEXT(count.value, "400");
        srv_catalog_free(catalog);
    }
}

TEST(d03_a_page_of_noise_in_the_catalog_is_refused_at_start) { /* D03, R6 */
    FOLDER(live, "live");
    FOLDER(copy, "copy");
    REQUIRE(make_catalog(live, copy, false));
    uint64_t pages = size_of(copy, "catalog.db") / 4096, state = cairn_test_seed();
    size_t refused_count = 0;
    for (uint64_t page = 0; page < pages; page++) {
        bool refused = false;
        FOLDER(one, "page-%llu", (unsigned long long)page);
        REQUIRE(copy_catalog(copy, one, false));
        const char *to = TEXT("%s/catalog.db", one);
        CAIRN_AUTO_FD fd = open(to, O_WRONLY | O_CLOEXEC);
        uint8_t noise[4096];
        for (size_t k = 0; k < sizeof(noise); k++) noise[k] = (uint8_t)cairn_test_random(&state);
        REQUIRE(pwrite(fd, noise, sizeof(noise), (off_t)(page * 4096)) == (ssize_t)sizeof(noise));
        cairn_test_check(whole_or_refused(one, &refused), __FILE__, __LINE__, "page %llu",
                         (unsigned long long)page);
        refused_count += refused;
    }
    printf("    %zu of %llu pages refused\n", refused_count, (unsigned long long)pages);
    EXPECT_EQ_U64(refused_count, pages);
}

/* ---- D04 ---- */

#define err world.err

TEST(d04_a_shell_that_holds_the_catalog_makes_writes_busy_and_reads_go_on) { /* D04 */
    struct cairn_hand next;
    JOB(1);
    SAVED(save, 1);
    struct srv_tx *shell = NULL;
    REQUIRE_OK(srv_sqlite_open(TEXT("%s/catalog.db", world.data_path), false, &shell, &err));
    REQUIRE_OK(srv_sqlite_exec(shell, "BEGIN IMMEDIATE", &err));
    EXPECT_CODE(hand_open(&world, &next, "j2", 1, "latest", 1), CAIRN_BUSY); /* and it ends */
    ASK("GET", WORLD_RUN "/checkpoints/latest", NULL);
    REQUIRE_OK(srv_sqlite_exec(shell, "ROLLBACK", &err));
    srv_sqlite_free(shell);
    REQUIRE_OK(hand_open(&world, &next, "j2", 1, "latest", 1));
    REQUIRE_OK(hand_save_all(&next, 2, 1, "error", 10, &save));
}

/* ---- D05 ---- */

TEST(d05_a_full_catalog_refuses_writes_by_name_and_still_reads) { /* D05, K09 */
    JOB_INSIDE(1);
    SAVED(save, 1);
    BEGUN(late, 2);
    REQUIRE(world_sql(&world, "PRAGMA max_page_count = 1")); /* what it has, and no more */
    /* Until a page is needed, free space inside the pages is used up. */
    enum cairn_code code = CAIRN_OK;
    for (int i = 0; i < 2000 && !code; i++) {
        json_t *body = hand_begin_body(&hand, 1000 + (uint64_t)i, 1, 0, "error");
        code = world_call(&world, "POST", WORLD_RUN "/checkpoints", body, NULL);
    }
    EXPECT_CODE(code, CAIRN_NO_SPACE);
    EXPECT_GET(WORLD_RUN "/checkpoints/latest", "version", save.id.text);
    GOT(ready, "/readyz");
    EXPECT_EQ_U64(world.inside.status, 503);
    EXPECT(strstr(world_text(json_object_get(ready, "checks"), "catalog"), "no-space"));
    inside_pass(&world.inside, MINUTE_MS); /* sweeps go on trying */
    REQUIRE(world_sql(&world, "PRAGMA max_page_count = 1000000"));
    /* Everything that was under way goes on. */
    REQUIRE_OK(hand_put(&late, "x", 0, CAIRN_VIEW("1234")));
    EXPECT_WAITED(&late, "state", "committed");
    GOT(again, "/readyz");
    EXPECT_EQ_U64(world.inside.status, 200);
}

#undef err

/* A begin whose meta takes `size` bytes: some need a page, some do not. */
static enum cairn_code begin_with(struct cairn_hand *hand, uint64_t step, size_t size,
                                  struct cairn_hand_save *save) {
    char text[8001];
    memset(text, 'm', size);
    text[size] = 0;
    json_t *body = hand_begin_body(hand, step, 1, 0, "error");
    json_object_set_new(body, "meta", json_pack("{s:s}", "text", text));
    CAIRN_AUTO_JSON json_t *reply = NULL;
    return hand_begin_by(hand, body, save, &reply);
}

#define err world.err

TEST(d05_a_save_goes_on_from_whatever_page_the_catalog_ran_out_at) { /* D05, K09 */
    INSIDE();
    struct cairn_hand hand;
    struct cairn_hand_save save;
    uint64_t after = 0, state = cairn_test_seed();
    size_t refused = 0;
    for (int room = 0; room < 60; room++) {
        size_t size = cairn_test_random(&state) % 8000;
        const char *job = TEXT("job-%d", room);
        /* Takes what is free, so that soon a new page is needed. */
        REQUIRE(world_sql(&world, "INSERT INTO meta(name, value) SELECT 'ballast-' || "
                                  "random(), hex(randomblob(abs(random()) % 20000))"));
        REQUIRE(
            world_sql(&world, TEXT("PRAGMA max_page_count = %llu",
                                   (unsigned long long)world_count(&world, "PRAGMA page_count") +
                                       cairn_test_random(&state) % 3)));
        enum cairn_code code = hand_open(&world, &hand, job, after, "latest", 1);
        if (!code) code = begin_with(&hand, 1 + (uint64_t)room, size, &save);
        CAIRN_AUTO_JSON json_t *shard = NULL;
        if (!code) {
            shard = hand_shard(&save, "x", 0, CAIRN_VIEW("1234"));
            code = hand_send(&save, json_pack("[O]", shard),
                             json_pack("[o]", hand_seal(0, NULL, "x", 4)), NULL);
        }
        inside_round(&world.inside); /* the commit meets it, too */
        EXPECT(code == CAIRN_OK || code == CAIRN_NO_SPACE);
        refused += code != CAIRN_OK;
        REQUIRE(world_sql(&world, "PRAGMA max_page_count = 1000000"));
        /* The same calls again, as uploaders repeat them: all idempotent, and now it commits. */
        REQUIRE_OK(hand_open(&world, &hand, job, after, "latest", 1));
        after = hand.attempt;
        REQUIRE_OK(begin_with(&hand, 1 + (uint64_t)room, size, &save));
        if (!shard) shard = hand_shard(&save, "x", 0, CAIRN_VIEW("1234"));
        REQUIRE_OK(hand_send(&save, json_pack("[O]", shard),
                             json_pack("[o]", hand_seal(0, NULL, "x", 4)), NULL));
        inside_pass(&world.inside, MINUTE_MS);
        EXPECT_WAITED(&save, "state", "committed");
        EXPECT_GET(WORLD_RUN "/checkpoints/latest", "version", save.id.text);
    }
    printf("    %zu of 60 met it\n", refused);
    EXPECT(refused > 5);
}

/* The disk under the catalog: from the n-th write on it gives nothing but this error. */
static struct {
    int error; /* 0: it works */
    unsigned after, failed;
    ssize_t (*write)(int, const void *, size_t, off_t);
} disk;

static ssize_t write_or_fail(int fd, const void *from, size_t size, off_t at) {
    if (!disk.error || disk.after) {
        disk.after -= disk.after > 0;
        return disk.write(fd, from, size, at);
    }
    disk.failed++;
    errno = disk.error;
    return -1;
}

/* The name that SQLite calls it by depends on how it was built. */
static const char *name_of_pwrite(sqlite3_vfs *vfs) {
    EACH_TEXT(text, "pwrite64", "pwrite")
        if (vfs->xGetSystemCall(vfs, text)) return text;
    return NULL;
}

/* One save, as far as it gets: attempt, begin, registration, commit. Its shard is put once. */
static enum cairn_code save_on(struct cairn_hand *hand, const char *job, uint64_t after,
                               uint64_t step, struct cairn_hand_save *save, json_t **shard) {
    struct cairn_world *world = hand->world;
    CAIRN_TRY(hand_open(world, hand, job, after, "latest", 1));
    CAIRN_TRY(begin_with(hand, step, 3000, save));
    if (!*shard) *shard = hand_shard(save, "x", 0, CAIRN_VIEW("1234"));
    enum cairn_code code = hand_send(save, json_pack("[O]", *shard),
                                     json_pack("[o]", hand_seal(0, NULL, "x", 4)), NULL);
    inside_round(&world->inside);
    return code;
}

static void expect_latest(struct cairn_world *world, const char *version, bool or_later) {
    CAIRN_AUTO_JSON json_t *latest = NULL;
    EXPECT(!world_call(world, "GET", WORLD_RUN "/checkpoints/latest", NULL, &latest));
    EXPECT(or_later || !strcmp(world_text(latest, "version"), version));
    EXPECT_EQ_TEXT(world_text(latest, "state"), "committed");
}

TEST(d05_a_catalog_whose_disk_fails_at_any_write_refuses_by_name_reads_and_loses_nothing) /* K09 */
{
    NEED_SQLITE;
    CAIRN_AUTO(world) world = {.inside = {.on_disk = true}};
    struct cairn_hand hand = {.world = &world};
    struct cairn_hand_save save;
    uint64_t after = 0, step = 1;
    unsigned met = 0;
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
    const char *name = name_of_pwrite(vfs);
    REQUIRE(name != NULL);
    *(sqlite3_syscall_ptr *)&disk.write = vfs->xGetSystemCall(vfs, name);
    REQUIRE(vfs->xSetSystemCall(vfs, name, (sqlite3_syscall_ptr)write_or_fail) == SQLITE_OK);
    REQUIRE(world_start_inside(&world, NULL));
    CAIRN_AUTO_JSON json_t *first = NULL;
    REQUIRE_OK(save_on(&hand, "job-0", after, step, &save, &first));
    after = hand.attempt;
    expect_latest(&world, save.id.text, false);
    do {
        CAIRN_AUTO_JSON json_t *shard = NULL;
        const char *job = TEXT("job-%llu", (unsigned long long)++step);
        const char *before = TEXT("%s", save.id.text);
        disk.failed = 0;
        disk.after = met;
        disk.error = met % 2 ? EIO : EROFS;
        enum cairn_code code = save_on(&hand, job, after, step, &save, &shard);
        EXPECT(code == CAIRN_OK || code == CAIRN_IO);
        if (code) EXPECT(strstr(err.message, "catalog: "));
        expect_latest(&world, before, !code);
        disk.error = 0;
        /* The same calls again, as uploaders repeat them. */
        REQUIRE_OK(save_on(&hand, job, after, step, &save, &shard));
        after = hand.attempt;
        inside_pass(&world.inside, MINUTE_MS);
        expect_latest(&world, save.id.text, false);
    } while (disk.failed && ++met < 200);
    printf("    %u writes of a save failed\n", met);
    EXPECT(met > 10);
    (void)vfs->xSetSystemCall(vfs, name, NULL);
}

TEST(d05_a_catalog_that_may_not_be_written_any_more_refuses_by_name_and_still_reads) { /* D05 */
    NEED_SQLITE;
    CAIRN_AUTO(world) world = {.inside = {.on_disk = true}};
    struct cairn_hand hand = {.world = &world};
    struct cairn_hand_save save, next;
    CAIRN_AUTO_JSON json_t *shard = NULL;
    REQUIRE(world_start_inside(&world, NULL));
    REQUIRE_OK(save_on(&hand, "job-1", 0, 1, &save, &shard));
    REQUIRE(world_sql(&world, "PRAGMA query_only = 1"));
    EXPECT_FAILS(begin_with(&hand, 2, 100, &next), CAIRN_IO, "catalog: ");
    expect_latest(&world, save.id.text, false);
    GOT(ready, "/readyz");
    EXPECT_EQ_U64(world.inside.status, 503);
}

#undef err

/* Changes that queue while the first of them holds the writing thread share one commit. */
struct gate {
    struct srv_catalog *catalog;
    _Atomic int queued, open, held;
    _Atomic int ids[3]; /* threads that are about to queue */
    enum cairn_code codes[3];
};
struct queued {
    struct gate *gate;
    int number;
};

static enum cairn_code hold(struct srv_tx *tx, void *argument, struct cairn_error *why) {
    struct gate *gate = argument;
    (void)tx, (void)why;
    gate->held = true;
    (void)COMES(gate->open);
    return CAIRN_OK;
}

static const struct srv_statement large = {
    "large", "", "INSERT INTO meta(name, value) VALUES('big', hex(zeroblob(500000)))"};
static const struct srv_statement small = {"small", "t",
                                           "INSERT INTO meta(name, value) VALUES(?1, '')"};

static enum cairn_code change(struct srv_tx *tx, void *argument, struct cairn_error *why) {
    const struct queued *queued = argument;
    if (queued->number == 1) /* more than the file may grow to */
        return srv_sql_run(tx, NULL, why, &large);
    return srv_sql_run(tx, NULL, why, &small, SQL_T(queued->number ? "after" : "before"));
}

static void *run_holder(void *argument) {
    struct gate *gate = argument;
    (void)!srv_catalog_write(gate->catalog, hold, gate, NULL);
    return NULL;
}

static void *run_queued(void *argument) {
    struct queued *queued = argument;
    struct gate *gate = queued->gate;
    (void)COMES(gate->queued == queued->number);
    gate->ids[queued->number] = gettid();
    struct cairn_error why = {0};
    gate->codes[queued->number] = srv_catalog_write(gate->catalog, change, queued, &why);
    return NULL;
}

TEST(a_change_that_fails_for_want_of_space_says_the_truth_about_its_neighbours, err) { /* D05, D1 */
    struct gate gate = {0};
    REQUIRE_OK(srv_catalog_open(cairn_test_folder(), &gate.catalog, &err));
    static char limit[] = "PRAGMA max_page_count = 60";
    EXPECT_CODE(srv_catalog_write(gate.catalog, run_text, limit, &err), CAIRN_OK);
    pthread_t holder, threads[3];
    struct queued queued[3];
    REQUIRE(!pthread_create(&holder, NULL, run_holder, &gate));
    REQUIRE_AWAIT(gate.held);
    for (int i = 0; i < 3; i++) {
        queued[i] = (struct queued){&gate, i};
        REQUIRE(!pthread_create(&threads[i], NULL, run_queued, &queued[i]));
        REQUIRE_AWAIT(gate.ids[i] && cairn_test_thread_sleeps(gate.ids[i])); /* it is queued */
        gate.queued++;
    }
    gate.open = 1;
    pthread_join(holder, NULL);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    EXPECT(gate.codes[1] == CAIRN_NO_SPACE);
    static const char *const sql[] = {"SELECT count(*) FROM meta WHERE name = 'before'",
                                      "SELECT count(*) FROM meta WHERE name = 'big'",
                                      "SELECT count(*) FROM meta WHERE name = 'after'"};
    for (int i = 0; i < 3; i++) {
        struct text there = {.sql = sql[i]};
        EXPECT_CODE(look_by(gate.catalog, read_text, &there, &err), CAIRN_OK);
        cairn_test_check(!strcmp(there.value, gate.codes[i] ? "0" : "1"), __FILE__, __LINE__,
                         "change %d was answered %s, and %s rows of it are there", i,
                         cairn_code_info(gate.codes[i])->name, there.value);
    }
    srv_catalog_free(gate.catalog);
}

/* ---- the log beside the file ---- */

/* Of a transaction of ours: where it reads, the log cannot be begun anew. */
static bool hold_log(struct srv_tx **ret) {
    struct cairn_error err = {0};
    const char *path = TEXT("%s/catalog.db", cairn_test_folder());
    return !srv_sqlite_open(path, true, ret, &err) &&
           !srv_sqlite_exec(*ret, "BEGIN; SELECT count(*) FROM meta", &err);
}

TEST(a_log_that_a_reader_let_grow_is_cut_once_the_reader_has_gone) { /* promises.md, What grows */
    struct cairn_error err = {0};
    struct srv_tx *reader = NULL;
    static char much[] = "INSERT OR REPLACE INTO meta(name, value) VALUES('much', "
                         "hex(randomblob(2000000)))";
    static char little[] = "INSERT OR REPLACE INTO meta(name, value) VALUES('small', 'b')";
    CATALOG(catalog, cairn_test_folder());
    REQUIRE(hold_log(&reader));
    for (int i = 0; i < 20; i++) REQUIRE_OK(srv_catalog_write(catalog, run_text, much, &err));
    EXPECT(size_of(cairn_test_folder(), "catalog.db-wal") > SRV_SQLITE_LOG_BYTES);
    EXPECT_EQ_U64(srv_catalog_log_bytes(catalog), size_of(cairn_test_folder(), "catalog.db-wal"));
    REQUIRE_OK(srv_sqlite_exec(reader, "COMMIT", &err));
    srv_sqlite_free(reader);
    for (int i = 0; i < 3; i++) /* one copies what is left, the next begins anew */
        REQUIRE_OK(srv_catalog_write(catalog, run_text, little, &err));
    EXPECT(srv_catalog_log_bytes(catalog) <= SRV_SQLITE_LOG_BYTES);
}
