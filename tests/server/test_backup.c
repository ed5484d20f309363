/* SPDX-License-Identifier: Apache-2.0 */
/* A catalog is backed up while its server changes it: one state of it, whole, in a file. */
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/file.h"
#include "server/db/copy.h"
#include "tests/server/world.h"

#define BACKUPS 3
#define FILLED 60000 /* rows: a copy of them is under way while several changes are made */

static struct cairn_error err;

/* cairn-server --backup-catalog, not waited for. */
static bool begin(const char *from, const char *file, struct cairn_daemon *ret) {
    struct cairn_daemon_options options = {
        .program = "cairn-server",
        .folder = cairn_test_folder(),
        .args = (const char *const[]){"--backup-catalog", from, file, NULL},
        .no_port = true};
    return !cairn_daemon_start(&options, ret, &err);
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
    char path[400];
    sqlite3 *db = NULL;
    snprintf(path, sizeof(path), "%s/catalog.db", data_path);
    bool good = sqlite3_open(path, &db) == SQLITE_OK;
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
    char path[100];
    snprintf(path, sizeof(path), "/v1/runs/llm/r%llu", (unsigned long long)*made);
    enum cairn_code code = cairn_world_call(world, "PUT", path, json_object(), NULL);
    *made += !code;
    return code;
}

TEST(a_backup_of_a_catalog_that_changes_all_the_time_ends_and_is_one_state_of_it) {
    NEED_SQLITE;
    CAIRN_AUTO(world) world = {0};
    uint64_t made = 0, during = 0;
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    (void)cairn_daemon_stop(&world.server, SIGTERM, 20000);
    REQUIRE(fill(world.data_path));
    REQUIRE(cairn_world_restart(&world, NULL, NULL));
    for (int i = 0; i < BACKUPS; i++) {
        struct cairn_daemon backup = {0};
        char file[400];
        uint64_t before = made;
        snprintf(file, sizeof(file), "%s/backup-%d.db", world.folder, i);
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
    CAIRN_AUTO(world) world = {0};
    uint64_t made = 0;
    char file[400], catalog[400];
    struct cairn_srv_backup backup;
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    REQUIRE(make_run(&world, &made) == CAIRN_OK && make_run(&world, &made) == CAIRN_OK);
    snprintf(file, sizeof(file), "%s/backup.db", world.folder);
    REQUIRE_OK(cairn_srv_backup(world.data_path, file, &backup, &err));
    EXPECT_EQ_U64(backup.schema, cairn_srv_catalog_schema());
    REQUIRE(cairn_world_lose_catalog(&world));
    snprintf(catalog, sizeof(catalog), "%s/catalog.db", world.data_path);
    REQUIRE(!rename(file, catalog));
    REQUIRE(cairn_world_restart(&world, NULL, NULL));
    EXPECT_CODE(cairn_world_call(&world, "GET", "/v1/runs/llm/r1", NULL, NULL), CAIRN_OK);
}

TEST(a_backup_writes_over_no_file_and_takes_what_one_that_was_ended_left) {
    NEED_SQLITE;
    CAIRN_AUTO(world) world = {0};
    struct cairn_srv_backup backup;
    struct cairn_daemon other = {0};
    char file[400], part[410], nowhere[400];
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    snprintf(file, sizeof(file), "%s/backup.db", world.folder);
    snprintf(part, sizeof(part), "%s.part", file);
    snprintf(nowhere, sizeof(nowhere), "%s/none", world.folder);
    EXPECT_CODE(cairn_srv_backup(nowhere, file, &backup, &err), CAIRN_NOT_FOUND);
    REQUIRE_OK(cairn_file_replace(part, cairn_view_of("the rest of another"), 0600, &err));
    REQUIRE_OK(cairn_srv_backup(world.data_path, file, &backup, &err));
    EXPECT(access(part, F_OK) != 0 && backup.bytes > 4096);
    EXPECT_CODE(cairn_srv_backup(world.data_path, file, &backup, &err), CAIRN_CONFLICT);
    EXPECT(strstr(err.message, "already there"));
    REQUIRE(begin(world.data_path, file, &other));
    EXPECT_EQ_U64((uint64_t)end(&other), 6);
    EXPECT_CODE(cairn_srv_backup("postgresql://db/cairn", part, &backup, &err), CAIRN_UNSUPPORTED);
    EXPECT(strstr(err.message, "pg_dump"));
}
