/* SPDX-License-Identifier: Apache-2.0 */
/* The file and its lock, one connection: opened with the settings that the promises rest on, and
 * brought to this program's schema; see engine_sqlite.h. */
#include "server/db/engine_sqlite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/file.h"
#include "common/hooks.h"
#include "server/db/copy.h"
#include "server/db/sql.h"

#define BUSY_MS 5000
#define CHECKPOINT_PAGES 1000 /* SQLite's own */
#define LOG_PAGES (CAIRN_SRV_SQLITE_LOG_BYTES / 4096)
#define RESTART_EVERY_MS 5000 /* the longest that looks cost a change then is RESTART_WAIT_MS */
#define RESTART_WAIT_MS 100

static enum cairn_code code_of(int result) {
    switch (result & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return CAIRN_BUSY;
    case SQLITE_FULL:
        return CAIRN_NO_SPACE;
    case SQLITE_NOMEM:
        return CAIRN_NO_MEMORY;
    case SQLITE_IOERR:
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
        return CAIRN_IO;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return CAIRN_CORRUPT;
    case SQLITE_TOOBIG:
        return CAIRN_TOO_LARGE;
    default:
        return CAIRN_INTERNAL;
    }
}

enum cairn_code cairn_srv_sqlite_fail(struct cairn_srv_tx *tx, int result, const char *what,
                                      struct cairn_error *err) {
    sqlite3 *db = cairn_srv_sqlite_of(tx)->db;
    return cairn_fail(err, code_of(result), "catalog: %s: %s", what,
                      db ? sqlite3_errmsg(db) : sqlite3_errstr(result));
}

enum cairn_code cairn_srv_sqlite_exec(struct cairn_srv_tx *tx, const char *sql,
                                      struct cairn_error *err) {
    int result = sqlite3_exec(cairn_srv_sqlite_of(tx)->db, sql, NULL, NULL, NULL);
    if (result != SQLITE_OK) return cairn_srv_sqlite_fail(tx, result, "statement", err);
    return CAIRN_OK;
}

enum cairn_code cairn_srv_sqlite_ask(struct cairn_srv_tx *tx, const char *sql, char ret[32],
                                     struct cairn_error *err) {
    sqlite3_stmt *statement = NULL;
    int result = sqlite3_prepare_v2(cairn_srv_sqlite_of(tx)->db, sql, -1, &statement, NULL);
    if (result == SQLITE_OK) result = sqlite3_step(statement);
    const unsigned char *text = result == SQLITE_ROW ? sqlite3_column_text(statement, 0) : NULL;
    snprintf(ret, 32, "%s", text ? (const char *)text : "");
    sqlite3_finalize(statement);
    if (result != SQLITE_ROW) return cairn_srv_sqlite_fail(tx, result, sql, err);
    return CAIRN_OK;
}

enum cairn_code cairn_srv_sqlite_demand(struct cairn_srv_tx *tx, const char *sql,
                                        const char *wanted, struct cairn_error *err) {
    char got[32];
    CAIRN_TRY(cairn_srv_sqlite_ask(tx, sql, got, err));
    if (strcmp(got, wanted))
        return cairn_fail(err, CAIRN_UNSUPPORTED, "catalog: %s is \"%s\", it must be \"%s\"", sql,
                          got, wanted);
    return CAIRN_OK;
}

/* The log is copied into the file at each commit beyond CHECKPOINT_PAGES, and begun anew when no
 * look reads in it. Looks that overlap keep it from that for ever, so beyond LOG_PAGES the writer
 * waits for them, shortly and now and then; journal_size_limit cuts the file when it is begun anew.
 * What fails here is tried again with the next commit. */
static int after_commit(void *owner, sqlite3 *db, const char *name, int pages) {
    struct cairn_srv_sqlite *own = owner;
    uint64_t now_ms = cairn_mono_ms();
    if (pages >= CHECKPOINT_PAGES)
        (void)sqlite3_wal_checkpoint_v2(db, name, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    if (pages < LOG_PAGES || now_ms < own->restart_ms) return SQLITE_OK;
    own->restart_ms = now_ms + RESTART_EVERY_MS;
    sqlite3_busy_timeout(db, RESTART_WAIT_MS);
    (void)sqlite3_wal_checkpoint_v2(db, name, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    sqlite3_busy_timeout(db, BUSY_MS);
    return SQLITE_OK;
}

static enum cairn_code bound_log(struct cairn_srv_tx *tx, struct cairn_error *err) {
    struct cairn_srv_sqlite *own = cairn_srv_sqlite_of(tx);
    char sql[64];
    snprintf(sql, sizeof(sql), "PRAGMA journal_size_limit=%d", CAIRN_SRV_SQLITE_LOG_BYTES);
    CAIRN_TRY(cairn_srv_sqlite_exec(tx, sql, err));
    (void)sqlite3_wal_hook(own->db, after_commit, own);
    return CAIRN_OK;
}

static enum cairn_code set_up_writer(struct cairn_srv_tx *tx, bool in_memory,
                                     struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_sqlite_demand(tx, "PRAGMA journal_mode=WAL",
                                      in_memory ? "memory" : "wal", err));
    CAIRN_TRY(cairn_srv_sqlite_exec(tx, "PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;", err));
    /* D02: 2 is FULL. With NORMAL a power cut takes acknowledged commits with it. */
    CAIRN_TRY(cairn_srv_sqlite_demand(tx, "PRAGMA synchronous", "2", err));
    return bound_log(tx, err);
}

enum cairn_code cairn_srv_sqlite_open(const char *path, bool read_only, struct cairn_srv_tx **ret,
                                      struct cairn_error *err) {
    struct cairn_srv_sqlite *own = calloc(1, sizeof(*own));
    if (!own) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a catalog connection");
    struct cairn_srv_tx *tx = &own->tx;
    tx->engine = &cairn_srv_engine_sqlite;
    int flags = read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    int result = sqlite3_open_v2(path, &own->db, flags | SQLITE_OPEN_NOMUTEX, NULL);
    enum cairn_code code = CAIRN_OK;
    if (result != SQLITE_OK) code = cairn_srv_sqlite_fail(tx, result, path, err);
    if (!code) {
        sqlite3_busy_timeout(own->db, BUSY_MS);
        sqlite3_extended_result_codes(own->db, 1);
        code =
            cairn_srv_sqlite_exec(tx, "PRAGMA trusted_schema=OFF; PRAGMA temp_store=MEMORY;", err);
    }
    if (!code && !read_only) code = set_up_writer(tx, !strcmp(path, CAIRN_SRV_SQLITE_MEMORY), err);
    if (code) {
        cairn_srv_sqlite_free(tx);
        return code;
    }
    *ret = tx;
    return CAIRN_OK;
}

void cairn_srv_sqlite_free(struct cairn_srv_tx *tx) {
    struct cairn_srv_sqlite *own = cairn_srv_sqlite_of(tx);
    for (size_t i = 0; i < CAIRN_SRV_STATEMENTS_MAX; i++) sqlite3_finalize(own->kept[i].statement);
    sqlite3_close(own->db);
    free(own);
}

/* ---- the file ---- */

/* D06: WAL needs memory that both sides share, which a network file system does not give. */
static enum cairn_code refuse_network(const char *folder, struct cairn_error *err) {
    CAIRN_AUTO_FD fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return cairn_fail_errno(err, "%s", folder);
    const char *kind = cairn_file_network_fs(fd);
    if (kind)
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "%s is on %s: the catalog needs a local disk (setting data-dir)", folder,
                          kind);
    return CAIRN_OK;
}

static enum cairn_code take_folder(const char *folder, struct cairn_srv_sqlite_place *place,
                                   struct cairn_error *err) {
    CAIRN_TRY(cairn_dir_make(folder, 0700, err));
    CAIRN_TRY(refuse_network(folder, err));
    char lock_path[1024];
    snprintf(lock_path, sizeof(lock_path), "%.900s/catalog.lock", folder);
    snprintf(place->path, sizeof(place->path), "%.900s/catalog.db", folder);
    enum cairn_code code = cairn_file_lock(lock_path, &place->lock_fd, err);
    if (code == CAIRN_CONFLICT)
        return cairn_within(err, code,
                            "another cairn-server uses this catalog, and servers share "
                            "one in PostgreSQL alone (setting catalog)");
    if (code) return code;
    return CAIRN_OK;
}

enum cairn_code cairn_srv_sqlite_take(const char *where, void **ret_place,
                                      struct cairn_error *err) {
    struct cairn_srv_sqlite_place *place = calloc(1, sizeof(*place));
    if (!place) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the catalog");
    place->lock_fd = -1;
    cairn_uuid_random(place->server);
    enum cairn_code code = CAIRN_OK;
    if (strcmp(where, CAIRN_SRV_SQLITE_MEMORY) != 0)
        code = take_folder(where, place, err);
    else
        snprintf(place->path, sizeof(place->path), "%s", where);
    if (code)
        cairn_srv_sqlite_leave(place);
    else
        *ret_place = place;
    if (!code && place->lock_fd >= 0) cairn_srv_sqlite_check_begin(place);
    return code;
}

void cairn_srv_sqlite_leave(void *place) {
    struct cairn_srv_sqlite_place *own = place;
    cairn_srv_sqlite_check_end(own);
    if (own->lock_fd >= 0) close(own->lock_fd);
    free(own);
}

uint64_t cairn_srv_sqlite_log_bytes(const void *place) {
    const struct cairn_srv_sqlite_place *own = place;
    char path[1100];
    struct stat status;
    snprintf(path, sizeof(path), "%s-wal", own->path);
    return stat(path, &status) ? 0 : (uint64_t)status.st_size;
}

/* ---- the schema ---- */

static enum cairn_code run_migrations(struct cairn_srv_tx *tx, unsigned from,
                                      struct cairn_error *err) {
    for (size_t i = 0; i < cairn_srv_migration_count; i++) {
        if (cairn_srv_migrations[i].number <= from) continue;
        enum cairn_code code = cairn_srv_sqlite_exec(tx, cairn_srv_migrations[i].sql, err);
        if (code) return cairn_within(err, code, "migration %u", cairn_srv_migrations[i].number);
        CAIRN_CRASHPOINT("server.catalog.migrated");
    }
    char sql[64];
    snprintf(sql, sizeof(sql), "PRAGMA user_version=%u", cairn_srv_catalog_schema());
    return cairn_srv_sqlite_exec(tx, sql, err);
}

/* catalog-schema-<number>.db beside the catalog: what a release that knows that schema starts on.
 * One of an earlier migration from the same schema is replaced. False: the catalog is no file. */
static bool path_before(struct cairn_srv_tx *tx, unsigned long schema, char folder[1024],
                        char ret[1100]) {
    const char *path = sqlite3_db_filename(cairn_srv_sqlite_of(tx)->db, "main");
    const char *slash = path ? strrchr(path, '/') : NULL;
    if (!slash || (size_t)(slash - path) >= 1000) return false;
    snprintf(folder, 1024, "%.*s", (int)(slash - path), path);
    snprintf(ret, 1100, "%s/catalog-schema-%lu.db", folder, schema);
    return true;
}

static enum cairn_code copy_before(struct cairn_srv_tx *tx, unsigned long schema, char ret[1100],
                                   struct cairn_error *err) {
    char folder[1024];
    struct cairn_srv_backup backup;
    if (!path_before(tx, schema, folder, ret)) return CAIRN_OK;
    if (unlink(ret) && errno != ENOENT) return cairn_fail_errno(err, "removing %s", ret);
    enum cairn_code code = cairn_srv_sqlite_backup(folder, ret, &backup, err);
    if (!code) return code;
    return cairn_within(err, code, "the copy of the catalog before it is migrated");
}

static enum cairn_code refuse_newer(struct cairn_srv_tx *tx, unsigned long found,
                                    struct cairn_error *err) {
    char folder[1024], before[1100];
    unsigned own = cairn_srv_catalog_schema();
    bool kept = path_before(tx, own, folder, before) && !access(before, F_OK);
    return cairn_fail(err, CAIRN_UNSUPPORTED,
                      "the catalog has schema %lu; this program knows up to %u: start the release "
                      "that wrote it, or a newer one%s%s%s",
                      found, own, kept ? ", or go back to " : "",
                      kept ? strrchr(before, '/') + 1 : "",
                      kept ? " beside it (docs/upgrade.md)" : "");
}

enum cairn_code cairn_srv_sqlite_migrate(struct cairn_srv_tx *tx, struct cairn_srv_migrated *ret,
                                         struct cairn_error *err) {
    char text[32];
    *ret = (struct cairn_srv_migrated){0};
    CAIRN_TRY(cairn_srv_sqlite_ask(tx, "PRAGMA user_version", text, err));
    unsigned long found = strtoul(text, NULL, 10);
    if (found > cairn_srv_catalog_schema()) return refuse_newer(tx, found, err);
    if (found == cairn_srv_catalog_schema()) return CAIRN_OK;
    if (found) CAIRN_TRY(copy_before(tx, found, ret->before, err));
    CAIRN_TRY(cairn_srv_sqlite_exec(tx, "BEGIN IMMEDIATE", err));
    enum cairn_code code = run_migrations(tx, (unsigned)found, err);
    if (!code) code = cairn_srv_sqlite_exec(tx, "COMMIT", err);
    if (code) (void)sqlite3_exec(cairn_srv_sqlite_of(tx)->db, "ROLLBACK", NULL, NULL, NULL);
    if (!code) ret->from = (unsigned)found;
    return code;
}
