/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=postgresql */
/* A catalog copied into another: every kind of value, ended at every moment, with a row that
 * differs, and what is refused. Targets are databases of PostgreSQL where it is installed. */

#include <endian.h>

#include "tests/server/world.h"

#define ROWS 700 /* of each table; several pages */
#define UUID "11111111-2222-4333-8444-555555555555"

/* ---- a catalog full of values ---- */

struct cairn_filled {
    char folder[300];
    uint64_t random, number; /* a number that no other value has */
    uint64_t row;
};

static void put_raw(struct cairn_buf *row, const void *data, size_t size) {
    if (cairn_buf_append(row, data, size, NULL)) abort();
}

static void put_value(struct cairn_buf *row, const void *data, size_t size) {
    uint32_t length = htobe32((uint32_t)size);
    put_raw(row, &length, sizeof(length));
    put_raw(row, data, size);
}

static void put_number(struct cairn_buf *row, int64_t number) {
    uint64_t value = htobe64((uint64_t)number);
    put_value(row, &value, sizeof(value));
}

static void put_null(struct cairn_buf *row) {
    uint32_t null = UINT32_MAX;
    put_raw(row, &null, sizeof(null));
}

static int64_t some_number(struct cairn_filled *filled) {
    static const int64_t edges[] = {0, 1, -1, INT64_MAX, INT64_MIN, INT64_C(1) << 53, 4294967296};
    uint64_t drawn = cairn_test_random(&filled->random);
    return drawn % 3 ? (int64_t)cairn_test_random(&filled->random)
                     : edges[drawn / 3 % CAIRN_COUNT(edges)];
}

static void put_text(struct cairn_filled *filled, struct cairn_buf *row, bool unique) {
    static const char *const texts[] = {"",
                                        "'",
                                        "\"",
                                        "it's \\N \\. \\\\",
                                        "tab\tline\nreturn\rend",
                                        "$1 ?1 %s",
                                        "NULL",
                                        "h\xc3\xa4user \xe2\x82\xac \xf0\x9f\x97\xbb",
                                        "\x01\x1f\x7f",
                                        "[{\"a\": null}]",
                                        " blank "};
    const char *text = texts[cairn_test_random(&filled->random) % CAIRN_COUNT(texts)];
    if (unique) text = TEXT("%s%llu", text, (unsigned long long)filled->number++);
    put_value(row, text, strlen(text));
}

/* Digests are short; tables and checksums are not. */
static void put_bytes(struct cairn_filled *filled, struct cairn_buf *row, bool unique, bool large) {
    uint8_t bytes[5000];
    size_t size = cairn_test_random(&filled->random) % 40;
    if (large && cairn_test_random(&filled->random) % 50 == 0) size = sizeof(bytes);
    for (size_t i = 0; i < size; i++) bytes[i] = (uint8_t)cairn_test_random(&filled->random);
    if (unique) memcpy(bytes, &filled->number, sizeof(filled->number));
    if (unique) filled->number++;
    put_value(row, bytes, unique && size < 8 ? 8 : size);
}

static bool may_be_null(const char *column) {
    EACH_TEXT(text, "trashed_tick", "layout", "layout_writer", "reason", "manifest_sha256",
              "resume_version", "blocks")
        if (!strcmp(column, text)) return true;
    return false;
}

static bool in_key(const struct srv_table *table, size_t column) {
    for (size_t i = 0; i < table->key_count; i++)
        if (table->key[i] == column) return true;
    return false;
}

/* Rows refer to row 1, 2, ... of runs and of versions, whose texts are made again from there. */
static void put_column(struct cairn_filled *filled, const struct srv_table *table, size_t i,
                       struct cairn_buf *row) {
    const char *column = table->columns[i];
    const char *version =
        TEXT("%s%llu", filled->row % 2 ? "v'\xc3\xa4" : "V\"", (unsigned long long)filled->row);
    if (may_be_null(column) && cairn_test_random(&filled->random) % 2)
        put_null(row);
    else if (!strcmp(column, "run_id") || !strcmp(column, "seq"))
        put_number(row, (int64_t)filled->row + 1);
    else if (!strcmp(column, "version"))
        put_value(row, version, strlen(version));
    else if (table->types[i] == 'i')
        put_number(row, some_number(filled));
    else if (table->types[i] == 't')
        put_text(filled, row, in_key(table, i) || !strcmp(column, "job") || !strcmp(column, "run"));
    else
        put_bytes(filled, row, in_key(table, i),
                  !strcmp(column, "bytes") || !strcmp(column, "blocks"));
}

static bool fill_table(struct cairn_filled *filled, struct srv_tx *tx,
                       const struct srv_table *table) {
    CAIRN_AUTO(buf) rows = {.limit = 64 * CAIRN_MIB};
    struct cairn_error err = {0};
    if (!strcmp(table->name, "ticks")) return true; /* one row, from the beginning */
    for (filled->row = 0; filled->row < ROWS; filled->row++) {
        uint16_t count = htobe16((uint16_t)table->column_count);
        put_raw(&rows, &count, sizeof(count));
        for (size_t i = 0; i < table->column_count; i++) put_column(filled, table, i, &rows);
    }
    if (tx->engine->load(tx, table, cairn_buf_view(&rows), &err) == CAIRN_OK) return true;
    fprintf(stderr, "%s: %s\n", table->name, err.message);
    return false;
}

static enum cairn_code put_uuid(struct srv_tx *tx, void *argument, struct cairn_error *err) {
    return srv_sql_run(tx, NULL, err, SQL(meta_put), SQL_T("store_uuid"),
                       SQL_T((const char *)argument));
}

/* As a server of that store has left it, but empty. */
static bool make_catalog(const char *where, const char *uuid) {
    struct cairn_error err = {0};
    struct srv_catalog *catalog = NULL;
    char *text = TEXT("%s", uuid);
    enum cairn_code code = srv_catalog_open(where, &catalog, &err);
    if (!code) code = srv_catalog_write(catalog, put_uuid, text, &err);
    if (catalog) srv_catalog_free(catalog);
    if (code) fprintf(stderr, "%s: %s\n", where, err.message);
    return code == CAIRN_OK;
}

static bool fill_catalog(struct cairn_filled *filled, const char *name) {
    struct cairn_error err = {0};
    struct srv_tables tables = {0};
    void *place = NULL;
    struct srv_tx *tx = NULL;
    snprintf(filled->folder, sizeof(filled->folder), "%s/%s", cairn_test_folder(), name);
    filled->random = cairn_test_seed();
    bool good = make_catalog(filled->folder, UUID) && srv_tables_read(&tables, &err) == CAIRN_OK &&
                srv_engine_sqlite.take(filled->folder, &place, &err) == CAIRN_OK &&
                srv_engine_sqlite.connect(place, false, &tx, &err) == CAIRN_OK;
    for (size_t i = 0; good && i < tables.count; i++) good = fill_table(filled, tx, &tables.at[i]);
    if (tx) srv_engine_sqlite.disconnect(tx);
    if (place) srv_engine_sqlite.leave(place);
    srv_tables_release(&tables);
    return good;
}

/* ---- places ---- */

/* A new one: a database, or a folder where there is no PostgreSQL. */
static bool new_target(char ret[300]) {
    static int number;
    if (!cairn_postgres_missing()) return cairn_postgres_catalog(ret, 300);
    snprintf(ret, 300, "%s/target-%d", cairn_test_folder(), number++);
    return true;
}

static bool run_sql(const char *where, const char *sql) {
    if (strstr(where, "://")) return cairn_postgres_run(where, sql);
    sqlite3 *db = NULL;
    bool good = sqlite3_open(TEXT("%s/catalog.db", where), &db) == SQLITE_OK &&
                sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK;
    sqlite3_close(db);
    return good;
}

static int64_t number_of(sqlite3 *db, const char *sql) {
    sqlite3_stmt *statement = NULL;
    int64_t number = -1;
    if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK &&
        sqlite3_step(statement) == SQLITE_ROW)
        number = sqlite3_column_int64(statement, 0);
    else
        fprintf(stderr, "%s: %s\n", sql, sqlite3_errmsg(db));
    sqlite3_finalize(statement);
    return number;
}

/* Rows that one file has and the other has not, of all tables, found by SQLite itself. */
static int64_t differences(const char *a, const char *b) {
    struct cairn_error err = {0};
    struct srv_tables tables = {0};
    sqlite3 *db = NULL;
    int64_t found = 0;
    const char *path = TEXT("%s/catalog.db", a);
    if (srv_tables_read(&tables, &err) || sqlite3_open(path, &db) != SQLITE_OK ||
        sqlite3_exec(db, TEXT("ATTACH '%s/catalog.db' AS other", b), NULL, NULL, NULL) != SQLITE_OK)
        found = -1;
    for (size_t i = 0; found == 0 && i < tables.count; i++) {
        const char *name = tables.at[i].name;
        found = number_of(
            db,
            TEXT(
                "SELECT (SELECT count(*) FROM (SELECT * FROM main.%s EXCEPT SELECT * FROM "
                "other.%s)) + (SELECT count(*) FROM (SELECT * FROM other.%s EXCEPT SELECT * FROM "
                "main.%s)) + abs((SELECT count(*) FROM main.%s) - (SELECT count(*) FROM other.%s))",
                name, name, name, name, name, name));
    }
    sqlite3_close(db);
    srv_tables_release(&tables);
    return found;
}

static enum cairn_code copy(const char *from, const char *to, struct srv_copied *ret,
                            struct cairn_error *err) {
    struct srv_copy_options options = {.from = from, .to = to};
    return srv_copy(&options, ret, err);
}

/* cairn-server --copy-catalog; its exit status, minus the signal that ended it. */
static int run_copy(const char *from, const char *to, const char *crash, uint32_t kill_after_ms) {
    struct cairn_error err = {0};
    struct cairn_daemon daemon = {0};
    struct cairn_daemon_options options = {
        .program = "cairn-server",
        .folder = cairn_test_folder(),
        .args = (const char *const[]){"--copy-catalog", from, to, NULL},
        .env = (const char *const[]){TEXT("CAIRN_CRASH_AT=%s", crash ? crash : ""), NULL},
        .no_port = true};
    if (!crash) options.env = NULL;
    if (cairn_daemon_start(&options, &daemon, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return -1000;
    }
    if (!cairn_daemon_ended(&daemon, kill_after_ms ? kill_after_ms : 120000))
        (void)cairn_daemon_stop(&daemon, SIGKILL, HANG_MS);
    return WIFEXITED(daemon.status) ? WEXITSTATUS(daemon.status) : -WTERMSIG(daemon.status);
}

/* ---- what is copied ---- */

TEST(a_copy_there_and_back_is_the_same_in_every_kind_of_value, err) { /* copy.h#3 */
    struct cairn_filled filled = {0};
    struct srv_copied there, back;
    char target[300];
    const char *home = TEXT("%s/home", cairn_test_folder());
    REQUIRE(fill_catalog(&filled, "source"));
    REQUIRE(new_target(target));
    REQUIRE_OK(copy(filled.folder, target, &there, &err));
    EXPECT(there.rows > 10 * ROWS && there.rows_found == 0);
    REQUIRE_OK(copy(target, home, &back, &err));
    REQUIRE(there.table_count == back.table_count);
    for (size_t i = 0; i < there.table_count; i++) {
        EXPECT_EQ_U64(there.tables[i].rows, back.tables[i].rows);
        EXPECT(!memcmp(there.tables[i].sha256, back.tables[i].sha256, CAIRN_SHA256_BYTES));
    }
    EXPECT_EQ_U64(differences(filled.folder, home), 0);
}

TEST(a_server_goes_on_where_its_catalog_was_copied_to_and_numbers_runs_on) {
    struct cairn_hand hand;
    struct cairn_hand_save save;
    char target[300];
    CAIRN_AUTO_JSON json_t *runs = NULL;
    if (cairn_postgres_missing()) SKIP(cairn_postgres_missing());
    if (cairn_postgres_wanted()) SKIP("the copy begins in SQLite");
    WORLD();
    REQUIRE(hand_open(&world, &hand, "j1", 0, "latest", 1) == CAIRN_OK);
    REQUIRE(hand_save_all(&hand, 1, 1, "error", 10, &save) == CAIRN_OK);
    REQUIRE(new_target(target));
    EXPECT_EQ_U64(run_copy(world.data_path, target, NULL, 0), 6); /* the server runs */
    (void)cairn_daemon_stop(&world.server, SIGTERM, HANG_MS);
    REQUIRE(run_copy(world.data_path, target, NULL, 0) == 0);
    REQUIRE(world_restart(&world, WORLD_ARGS(TEXT("--catalog=%s", target)), NULL));
    REQUIRE(hand_save_all(&hand, 2, 1, "error", 10, &save) == CAIRN_OK);
    EXPECT(world_call(&world, "PUT", "/v1/runs/other/run", NULL, NULL) == CAIRN_OK);
    EXPECT(world_call(&world, "GET", "/v1/runs", NULL, &runs) == CAIRN_OK);
    EXPECT_EQ_U64(json_array_size(json_object_get(runs, "items")), 2);
    /* The file that it came from is older than the store now, and a server says so. */
    REQUIRE(world_restart(&world, NULL, NULL));
    EXPECT(world_call(&world, "GET", "/v1/runs", NULL, NULL) == CAIRN_CATALOG_BEHIND);
}

TEST(grant_key_goes_along_from_folder_to_folder, err) { /* copy.h#9 */
    struct stat status;
    const char *from = TEXT("%s/from", cairn_test_folder());
    const char *to = TEXT("%s/to", cairn_test_folder());
    const char *path = TEXT("%s/grant.key", from);
    REQUIRE(make_catalog(from, UUID));
    REQUIRE_OK(
        cairn_file_replace(path, CAIRN_VIEW("thirty-two bytes of a signing key"), 0600, &err));
    REQUIRE(run_copy(from, to, NULL, 0) == 0);
    path = TEXT("%s/grant.key", to);
    WITH_OK(buf, key, cairn_file_load(path, &key, &err));
    EXPECT_EQ_TEXT(key.data, "thirty-two bytes of a signing key");
    EXPECT(stat(path, &status) == 0 && (status.st_mode & 0777) == 0600);
}

/* ---- ended in the middle ---- */

/* Neither by a server's start nor by --migrate. */
static void expect_no_server(const char *where) {
    struct cairn_error err = {0};
    struct srv_catalog *catalog = NULL;
    REQUIRE_OK(srv_catalog_open(where, &catalog, &err));
    EXPECT_FAILS(srv_copy_is_over(catalog, &err), CAIRN_CONFLICT, "a copy that was not finished");
    srv_catalog_free(catalog);
}

TEST(a_copy_that_was_killed_goes_on_and_no_server_starts_before_its_end, err) { /* copy.h#2 */
    static const char *const points[] = {"server.copy.after_page", "server.copy.after_page:9",
                                         "server.copy.after_page:20", "server.copy.before_end",
                                         "server.copy.after_end"};
    struct cairn_filled filled = {0};
    struct srv_copied copied;
    char target[300];
    const char *home = TEXT("%s/home", cairn_test_folder());
    REQUIRE(fill_catalog(&filled, "source"));
    REQUIRE(new_target(target));
    for (size_t i = 0; i < CAIRN_COUNT(points); i++) { /* each goes on where the one before died */
        EXPECT_EQ_U64(run_copy(filled.folder, target, points[i], 0), -SIGKILL);
        if (i + 1 < CAIRN_COUNT(points)) expect_no_server(target); /* copy.h#4 */
    }
    REQUIRE_OK(copy(filled.folder, target, &copied, &err));
    EXPECT_EQ_U64(copied.rows_found, copied.rows);
    REQUIRE_OK(copy(target, home, &copied, &err));
    EXPECT_EQ_U64(differences(filled.folder, home), 0);
}

TEST(a_copy_that_is_killed_again_and_again_at_any_time_ends, err) { /* copy.h#2 */
    struct cairn_filled filled = {0};
    struct srv_copied copied;
    uint64_t random = cairn_test_seed();
    char target[300];
    int status = -1, killed = 0;
    const char *home = TEXT("%s/home", cairn_test_folder());
    REQUIRE(fill_catalog(&filled, "source"));
    REQUIRE(new_target(target));
    for (uint32_t i = 0; i < 40 && status; i++) {
        uint32_t ms = 50 + (uint32_t)(cairn_test_random(&random) % (100u << i / 4));
        status = run_copy(filled.folder, target, NULL, ms);
        EXPECT(status == 0 || status == -SIGKILL);
        killed += status == -SIGKILL;
    }
    REQUIRE(status == 0);
    EXPECT(killed > 0);
    REQUIRE_OK(copy(target, home, &copied, &err));
    EXPECT_EQ_U64(differences(filled.folder, home), 0);
}

/* ---- a row that differs ---- */

TEST(a_difference_in_one_row_is_found_and_named) { /* copy.h#3 */
    struct cairn_filled filled = {0};
    struct srv_copied copied;
    char target[300];
    REQUIRE(fill_catalog(&filled, "source"));
    REQUIRE(run_sql(filled.folder, "UPDATE nodes SET last_ms = 3; UPDATE ticks SET value = 1"));
    REQUIRE(new_target(target));
    REQUIRE(run_copy(filled.folder, target, "server.copy.before_end", 0) == -SIGKILL);
    EACH(it, FIELDS(const char *sql, *undo, *names[3]),
         {"UPDATE nodes SET last_ms = last_ms + 1 WHERE node = (SELECT max(node) FROM nodes)",
          "UPDATE nodes SET last_ms = last_ms - 1 WHERE node = (SELECT max(node) FROM nodes)",
          {"table nodes", "row with node", "last_ms is"}},
         {"UPDATE ticks SET value = 7",
          "UPDATE ticks SET value = 1",
          {"table ticks", "row with one 1", "value is 1 in the source and 7 in the target"}},
         {"UPDATE tables SET used_tick = 5, bytes = NULL WHERE 1 = 0; DELETE FROM set_aside WHERE "
          "object = (SELECT min(object) FROM set_aside)",
          NULL,
          {"table set_aside", "the row with object", "and not in"}}) {
        struct cairn_error err = {0};
        REQUIRE(run_sql(target, it->sql));
        EXPECT_CODE(copy(filled.folder, target, &copied, &err), CAIRN_CORRUPT);
        for (size_t k = 0; k < CAIRN_COUNT(it->names); k++)
            if (!strstr(err.message, it->names[k])) EXPECT_EQ_TEXT(err.message, it->names[k]);
        expect_no_server(target);
        if (it->undo) REQUIRE(run_sql(target, it->undo));
    }
    EXPECT_EQ_U64(run_copy(filled.folder, target, NULL, 0), 7);
}

TEST(a_row_that_the_target_has_and_the_source_lacks_is_found, err) { /* copy.h#3 */
    struct cairn_filled filled = {0};
    struct srv_copied copied;
    char target[300];
    REQUIRE(fill_catalog(&filled, "source"));
    REQUIRE(new_target(target));
    REQUIRE(run_copy(filled.folder, target, "server.copy.before_end", 0) == -SIGKILL);
    REQUIRE(run_sql(target, "INSERT INTO set_aside VALUES('~~~', 'planted', 1)"));
    EXPECT_FAILS(copy(filled.folder, target, &copied, &err), CAIRN_CORRUPT,
                 "table set_aside: the row with object \"~~~\" is in");
}

/* ---- what is refused ---- */

static void expect_refused(const char *from, const char *to, enum cairn_code wanted,
                           const char *why) {
    struct cairn_error err = {0};
    struct srv_copied copied;
    EXPECT_CODE(copy(from, to, &copied, &err), wanted);
    if (!strstr(err.message, why)) EXPECT_EQ_TEXT(err.message, why);
}

TEST(a_catalog_that_is_in_use_absent_or_not_empty_is_refused, err) { /* copy.h#1, copy.h#2 */
    struct srv_catalog *catalog = NULL;
    char target[300];
    const char *from = TEXT("%s/from", cairn_test_folder());
    const char *other = TEXT("%s/other", cairn_test_folder());
    const char *absent = TEXT("%s/absent", cairn_test_folder());
    REQUIRE(make_catalog(from, UUID) && make_catalog(other, "another") && new_target(target));
    expect_refused(from, from, CAIRN_INVALID, "the same catalog");
    expect_refused(absent, target, CAIRN_NOT_FOUND, "holds no catalog");
    EXPECT(access(absent, F_OK) != 0); /* nothing is made of a slip of the keyboard */
    REQUIRE_OK(srv_catalog_open(from, &catalog, &err));
    expect_refused(from, target, CAIRN_CONFLICT, "another cairn-server uses this catalog");
    srv_catalog_free(catalog);
    REQUIRE_OK(srv_catalog_open(target, &catalog, &err));
    expect_refused(from, target, CAIRN_CONFLICT, "another cairn-server uses this catalog");
    srv_catalog_free(catalog);
    expect_refused(target, other, CAIRN_NOT_FOUND, "holds no catalog that a server has used");
    expect_refused(from, other, CAIRN_CONFLICT, "is not empty (table meta)");
    REQUIRE(run_copy(from, target, "server.copy.before_end", 0) == -SIGKILL);
    expect_refused(other, target, CAIRN_CONFLICT, "a part of a copy of another catalog");
    expect_refused(target, absent, CAIRN_CONFLICT, "is itself a copy that was not finished");
}
