/* SPDX-License-Identifier: Apache-2.0 */
/* A catalog is backed up while its server changes it: one state of it, whole, in a file. */

#include "tests/server/world.h"

#define BACKUPS 3
#define FILLED 60000 /* rows: a copy of them is under way while several changes are made */

static struct cairn_error err;

/* cairn-server --backup-catalog, not waited for. file NULL: from is the only argument. */
static bool begin_in(const char *variable, const char *from, const char *file,
                     struct cairn_daemon *ret) {
    struct cairn_daemon_options options = {
        .program = "cairn-server",
        .folder = cairn_test_folder(),
        .args = (const char *const[]){"--backup-catalog", from, file, NULL},
        .env = (const char *const[]){variable, NULL},
        .no_port = true};
    return !cairn_daemon_start(&options, ret, &err);
}

static bool begin(const char *from, const char *file, struct cairn_daemon *ret) {
    return begin_in(NULL, from, file, ret);
}

static int end(struct cairn_daemon *backup) {
    (void)cairn_daemon_ended(backup, UINT32_MAX);
    return WIFEXITED(backup->status) ? WEXITSTATUS(backup->status) : -WTERMSIG(backup->status);
}

static int64_t number(const char *file, const char *sql) {
    sqlite3 *db = NULL;
    sqlite3_stmt *statement = NULL;
    int64_t ret = -1;
    if (sqlite3_open_v2(file, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK &&
        sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK &&
        sqlite3_step(statement) == SQLITE_ROW)
        ret = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return ret;
}

/* Rows that take their time; of a server that is stopped. */
static bool fill(const char *data_path) {
    sqlite3 *db = NULL;
    bool good = sqlite3_open(TEXT("%s/catalog.db", data_path), &db) == SQLITE_OK;
    char *sql = sqlite3_mprintf("CREATE TABLE filled(number INTEGER PRIMARY KEY, value BLOB);"
                                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n "
                                "WHERE i < %d) INSERT INTO filled SELECT i, zeroblob(900) FROM n;",
                                FILLED);
    good = good && sql && sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK;
    sqlite3_free(sql);
    sqlite3_close(db);
    return good;
}

static enum cairn_code make_run(struct cairn_world *world, uint64_t *made) {
    enum cairn_code code = world_call(
        world, "PUT", TEXT("/v1/runs/llm/r%llu", (unsigned long long)*made), json_object(), NULL);
    *made += !code;
    return code;
}

TEST(a_backup_of_a_catalog_that_changes_all_the_time_ends_and_is_one_state_of_it) {
    NEED_SQLITE;
    uint64_t made = 0, during = 0;
    WORLD();
    (void)cairn_daemon_stop(&world.server, SIGTERM, HANG_MS);
    REQUIRE(fill(world.data_path));
    REQUIRE(world_restart(&world, NULL, NULL));
    for (int i = 0; i < BACKUPS; i++) {
        struct cairn_daemon backup = {0};
        uint64_t before = made;
        const char *file = TEXT("%s/backup-%d.db", world.folder, i);
        REQUIRE(begin(world.data_path, file, &backup));
        while (!cairn_daemon_ended(&backup, 0)) REQUIRE(make_run(&world, &made) == CAIRN_OK);
        during += made - before;
        EXPECT(WIFEXITED(backup.status) && WEXITSTATUS(backup.status) == 0);
        /* each run is made together with its event: a copy of two moments has one without */
        int64_t runs = number(file, "SELECT count(*) FROM runs");
        EXPECT(runs >= (int64_t)before && runs <= (int64_t)made);
        EXPECT(number(file, "SELECT count(*) FROM events WHERE event = 'run.created'") == runs);
        EXPECT_EQ_U64((uint64_t)number(file, "SELECT count(*) FROM filled"), FILLED);
        struct stat status;
        EXPECT(!stat(file, &status) && (status.st_mode & 0777) == 0600);
    }
    EXPECT(during > BACKUPS); /* else nothing changed while it was copied */
}

TEST(a_server_starts_on_a_backup_and_has_what_was_committed_by_then) {
    NEED_SQLITE;
    uint64_t made = 0;
    struct srv_backup backup;
    WORLD();
    REQUIRE(make_run(&world, &made) == CAIRN_OK && make_run(&world, &made) == CAIRN_OK);
    const char *file = TEXT("%s/backup.db", world.folder);
    REQUIRE_OK(srv_backup(world.data_path, file, &backup, &err));
    EXPECT_EQ_U64(backup.schema, srv_catalog_schema());
    REQUIRE(world_lose_catalog(&world));
    REQUIRE(!rename(file, TEXT("%s/catalog.db", world.data_path)));
    REQUIRE(world_restart(&world, NULL, NULL));
    EXPECT_CODE(world_call(&world, "GET", "/v1/runs/llm/r1", NULL, NULL), CAIRN_OK);
}

TEST(a_backup_writes_over_no_file_and_takes_what_one_that_was_ended_left) {
    NEED_SQLITE;
    struct srv_backup backup;
    struct cairn_daemon other = {0};
    WORLD();
    const char *file = TEXT("%s/backup.db", world.folder);
    const char *part = TEXT("%s.part", file);
    EXPECT_CODE(srv_backup(TEXT("%s/none", world.folder), file, &backup, &err), CAIRN_NOT_FOUND);
    REQUIRE_OK(cairn_file_replace(part, cairn_view_of("the rest of another"), 0600, &err));
    REQUIRE_OK(srv_backup(world.data_path, file, &backup, &err));
    EXPECT(access(part, F_OK) != 0 && backup.bytes > 4096);
    EXPECT_FAILS(srv_backup(world.data_path, file, &backup, &err), CAIRN_CONFLICT, "already there");
    REQUIRE(begin(world.data_path, file, &other));
    EXPECT_EQ_U64((uint64_t)end(&other), 6);
    EXPECT_FAILS(srv_backup("postgresql://db/cairn", part, &backup, &err), CAIRN_UNSUPPORTED,
                 "pg_dump");
}

TEST(a_backup_without_a_data_dir_is_of_the_folder_that_a_server_without_flags_takes) {
    NEED_SQLITE;
    uint64_t made = 0;
    WORLD();
    REQUIRE(make_run(&world, &made) == CAIRN_OK);
    const char *config = TEXT("%s/server.conf", world.folder);
    const char *line = TEXT("data_dir = %s\n", world.data_path);
    REQUIRE_OK(cairn_file_replace(config, cairn_view_of(line), 0600, &err));
    const char *const variables[] = {TEXT("CAIRN_DATA_DIR=%s", world.data_path),
                                     TEXT("CAIRN_CONFIG=%s", config),
                                     "CAIRN_CATALOG=postgresql://db/cairn"};
    for (size_t i = 0; i < CAIRN_COUNT(variables); i++) {
        struct cairn_daemon backup = {0};
        const char *file = TEXT("%s/backup-%zu.db", world.folder, i);
        bool of_folder = i < 2;
        REQUIRE(begin_in(variables[i], file, NULL, &backup));
        EXPECT_EQ_U64((uint64_t)end(&backup), of_folder ? 0 : 2);
        EXPECT(of_folder == (number(file, "SELECT count(*) FROM runs") == 1));
        EXPECT(of_folder || cairn_daemon_logged(&backup, "PostgreSQL's own tools"));
    }
}
