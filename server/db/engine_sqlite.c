/* SPDX-License-Identifier: Apache-2.0 */
/* The SQLite engine: file lock, connections and their settings, schema, transactions, and prepared
 * statements cached by their text's address; see engine.h and engine_sqlite.h. */
#include "server/db/engine_sqlite.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/file.h"
#include "common/hooks.h"
#include "common/log.h"
#include "common/process.h"
#include "server/db/copy.h"

#define BUSY_MS 5000
#define CHECKPOINT_PAGES 1000 /* SQLite's default */
#define LOG_PAGES (SRV_SQLITE_LOG_BYTES / 4096)
#define RESTART_EVERY_MS 5000 /* reads then delay a change for at most RESTART_WAIT_MS */
#define RESTART_WAIT_MS 100

struct srv_sqlite_check;
struct srv_sqlite_place {
    char path[1024];
    char server[CAIRN_UUID_TEXT_BYTES];
    int lock_fd;                    /* -1: in memory */
    bool clean;                     /* the file is unchanged since a clean stop */
    struct srv_sqlite_check *check; /* NULL: not started */
};

static sqlite3 *db_of(struct srv_tx *tx) {
    return srv_sqlite_of(tx)->db;
}

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

static enum cairn_code sqlite_failure(struct srv_tx *tx, int result, const char *what,
                                      struct cairn_error *err) {
    sqlite3 *db = srv_sqlite_of(tx)->db;
    return cairn_fail(err, code_of(result), "catalog: %s: %s", what,
                      db ? sqlite3_errmsg(db) : sqlite3_errstr(result));
}

enum cairn_code srv_sqlite_exec(struct srv_tx *tx, const char *sql, struct cairn_error *err) {
    int result = sqlite3_exec(srv_sqlite_of(tx)->db, sql, NULL, NULL, NULL);
    if (result != SQLITE_OK) return sqlite_failure(tx, result, "statement", err);
    return CAIRN_OK;
}

enum cairn_code srv_sqlite_ask(struct srv_tx *tx, const char *sql, char ret[32],
                               struct cairn_error *err) {
    sqlite3_stmt *statement = NULL;
    int result = sqlite3_prepare_v2(srv_sqlite_of(tx)->db, sql, -1, &statement, NULL);
    if (result == SQLITE_OK) result = sqlite3_step(statement);
    const unsigned char *text = result == SQLITE_ROW ? sqlite3_column_text(statement, 0) : NULL;
    snprintf(ret, 32, "%s", text ? (const char *)text : "");
    sqlite3_finalize(statement);
    if (result != SQLITE_ROW) return sqlite_failure(tx, result, sql, err);
    return CAIRN_OK;
}

static enum cairn_code demand(struct srv_tx *tx, const char *sql, const char *wanted,
                              struct cairn_error *err) {
    char got[32];
    CAIRN_TRY(srv_sqlite_ask(tx, sql, got, err));
    if (strcmp(got, wanted))
        return cairn_fail(err, CAIRN_UNSUPPORTED, "catalog: %s is \"%s\", it must be \"%s\"", sql,
                          got, wanted);
    return CAIRN_OK;
}

/* Beyond CHECKPOINT_PAGES each commit copies the log into the file; the log restarts when no read
 * uses it. Overlapping reads can prevent that for ever, so beyond LOG_PAGES the writer waits for
 * them, briefly and rarely; journal_size_limit truncates the file then. The next commit retries. */
static int after_commit(void *owner, sqlite3 *db, const char *name, int pages) {
    struct srv_sqlite *own = owner;
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

static enum cairn_code bound_log(struct srv_tx *tx, struct cairn_error *err) {
    struct srv_sqlite *own = srv_sqlite_of(tx);
    char sql[64];
    snprintf(sql, sizeof(sql), "PRAGMA journal_size_limit=%d", SRV_SQLITE_LOG_BYTES);
    CAIRN_TRY(srv_sqlite_exec(tx, sql, err));
    (void)sqlite3_wal_hook(own->db, after_commit, own);
    return CAIRN_OK;
}

static enum cairn_code set_up_writer(struct srv_tx *tx, bool in_memory, struct cairn_error *err) {
    CAIRN_TRY(demand(tx, "PRAGMA journal_mode=WAL", in_memory ? "memory" : "wal", err));
    CAIRN_TRY(srv_sqlite_exec(tx, "PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;", err));
    /* D02: 2 is FULL. With NORMAL a power cut takes acknowledged commits with it. */
    CAIRN_TRY(demand(tx, "PRAGMA synchronous", "2", err));
    return bound_log(tx, err);
}

enum cairn_code srv_sqlite_open(const char *path, bool read_only, struct srv_tx **ret,
                                struct cairn_error *err) {
    struct srv_sqlite *own = calloc(1, sizeof(*own));
    if (!own) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a catalog connection");
    struct srv_tx *tx = &own->tx;
    tx->engine = &srv_engine_sqlite;
    int flags = read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    int result = sqlite3_open_v2(path, &own->db, flags | SQLITE_OPEN_NOMUTEX, NULL);
    enum cairn_code code = CAIRN_OK;
    if (result != SQLITE_OK) code = sqlite_failure(tx, result, path, err);
    if (!code) {
        sqlite3_busy_timeout(own->db, BUSY_MS);
        sqlite3_extended_result_codes(own->db, 1);
        code = srv_sqlite_exec(tx, "PRAGMA trusted_schema=OFF; PRAGMA temp_store=MEMORY;", err);
    }
    if (!code && !read_only) code = set_up_writer(tx, !strcmp(path, SRV_SQLITE_MEMORY), err);
    if (code) {
        srv_sqlite_free(tx);
        return code;
    }
    *ret = tx;
    return CAIRN_OK;
}

void srv_sqlite_free(struct srv_tx *tx) {
    struct srv_sqlite *own = srv_sqlite_of(tx);
    for (size_t i = 0; i < SRV_STATEMENTS_MAX; i++) sqlite3_finalize(own->kept[i].statement);
    sqlite3_close(own->db);
    free(own);
}

static uint64_t log_bytes(const void *place) {
    const struct srv_sqlite_place *own = place;
    char path[1100];
    struct stat status;
    snprintf(path, sizeof(path), "%s-wal", own->path);
    return stat(path, &status) ? 0 : (uint64_t)status.st_size;
}

/* ---- integrity check ----
 *
 * A small file is checked before use. A large one takes half a minute from a cold disk: after a
 * clean stop it is trusted while file, size and time are unchanged; otherwise a thread with its own
 * connection checks it while calls are answered. */

#define BESIDE_BYTES (64 * 1024 * 1024) /* larger files are checked in the background */
#define STOP_EVERY 10000                /* SQLite steps: a fraction of a second */

enum state { STATE_OK, STATE_RUNS, STATE_STOPPED, STATE_DAMAGED };
struct srv_sqlite_check {
    const struct srv_sqlite_place *place;
    struct cairn_thread thread;
    uint64_t began_ms;
    _Atomic enum state state;
    _Atomic bool stopping;
    char text[200]; /* of the damage: written before the state */
};

static void stamp_path(const struct srv_sqlite_place *place, char ret[1100]) {
    snprintf(ret, 1100, "%.*s.clean", 1000, place->path);
}

/* "": not the file of a clean stop. */
static void stamp_text(const struct srv_sqlite_place *place, char ret[128]) {
    struct stat status;
    *ret = '\0';
    if (stat(place->path, &status) || log_bytes(place)) return;
    snprintf(ret, 128, "%" PRIu64 " %" PRIu64 " %" PRIu64 ".%09ld\n", (uint64_t)status.st_ino,
             (uint64_t)status.st_size, (uint64_t)status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
}

/* Deletes the stamp: it is valid for one start. */
static bool take_stamp(const struct srv_sqlite_place *place) {
    char path[1100], wanted[128];
    CAIRN_AUTO(buf) found = {.limit = 128};
    struct cairn_error unused = {0};
    stamp_path(place, path);
    stamp_text(place, wanted);
    if (cairn_file_load(path, &found, &unused)) return false;
    (void)unlink(path);
    return wanted[0] && found.size == strlen(wanted) && !memcmp(found.data, wanted, found.size);
}

static void leave_stamp(const struct srv_sqlite_place *place) {
    char path[1100], text[128];
    struct cairn_error why = {0};
    stamp_path(place, path);
    stamp_text(place, text);
    if (text[0] && cairn_file_replace(path, cairn_view_of(text), 0600, &why))
        cairn_log(INFO, "catalog.stop_not_noted", "cause=\"%s\"", why.message);
}

static int asked_to_stop(void *owner) {
    const struct srv_sqlite_check *check = owner;
    return check->stopping;
}

static enum cairn_code read_through(struct srv_sqlite_check *check, struct cairn_error *err) {
    struct srv_tx *tx = NULL;
    CAIRN_TRY(srv_sqlite_open(check->place->path, true, &tx, err));
    sqlite3_progress_handler(srv_sqlite_of(tx)->db, STOP_EVERY, asked_to_stop, check);
    enum cairn_code code = demand(tx, "PRAGMA quick_check(1)", "ok", err);
    srv_sqlite_free(tx);
    return code;
}

static void check_file(struct cairn_thread *thread, void *owner) {
    struct srv_sqlite_check *check = owner;
    struct cairn_error why = {0};
    (void)thread;
    enum cairn_code code = read_through(check, &why);
    bool damaged = code == CAIRN_UNSUPPORTED || code == CAIRN_CORRUPT;
    if (damaged)
        cairn_log(ERROR, "catalog.damaged", "path=%s cause=\"%s\"", check->place->path,
                  why.message);
    else
        cairn_log(INFO, "catalog.read_through", "path=%s ms=%" PRIu64 "%s", check->place->path,
                  cairn_mono_ms() - check->began_ms, code ? " whole=unknown" : "");
    (void)cairn_text_copy(check->text, sizeof(check->text), why.message);
    check->state = damaged ? STATE_DAMAGED : code ? STATE_STOPPED : STATE_OK;
}

static enum cairn_code check_place(struct srv_sqlite_place *place, struct srv_tx *writer,
                                   struct cairn_error *err) {
    struct stat status = {0};
    bool in_memory = !strcmp(place->path, SRV_SQLITE_MEMORY);
    bool large = !in_memory && !stat(place->path, &status) && status.st_size >= BESIDE_BYTES;
    bool clean = !in_memory && place->clean;
    if (!large) CAIRN_TRY(demand(writer, "PRAGMA quick_check(1)", "ok", err));
    struct srv_sqlite_check *check = calloc(1, sizeof(*check));
    if (!check) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a check of the catalog");
    check->place = place;
    check->began_ms = cairn_mono_ms();
    place->check = check;
    if (!large || clean) return CAIRN_OK;
    check->state = STATE_RUNS;
    check->thread =
        (struct cairn_thread){.name = "catalog-check", .run = check_file, .owner = check};
    return cairn_thread_start(&check->thread, err);
}

static void begin_check(struct srv_sqlite_place *place) {
    place->clean = take_stamp(place);
}

static void end_check(struct srv_sqlite_place *place) {
    struct srv_sqlite_check *check = place->check;
    if (!check) return;
    check->stopping = true;
    cairn_thread_stop(&check->thread);
    if (check->state == STATE_OK && place->lock_fd >= 0) leave_stamp(place);
    free(check);
    place->check = NULL;
}

static enum srv_checked checked(const void *place, char ret[SRV_CHECKED_BYTES]) {
    const struct srv_sqlite_check *check = ((const struct srv_sqlite_place *)place)->check;
    enum state state = check ? check->state : STATE_OK;
    const char *text = "ok";
    if (state == STATE_DAMAGED) {
        snprintf(ret, SRV_CHECKED_BYTES,
                 "the file is damaged, nothing is written to it any more: restore a backup, or "
                 "make it again from the stores (docs/catalog.md): %s",
                 check->text);
        return SRV_CHECKED_DAMAGED;
    }
    if (state == STATE_RUNS)
        text = "the file is being read through, since the last stop was no clean one";
    else if (state == STATE_STOPPED)
        text = "the file could not be read through, see the log";
    (void)cairn_text_copy(ret, SRV_CHECKED_BYTES, text);
    return state == STATE_OK ? SRV_CHECKED_OK : SRV_CHECKED_NOT_YET;
}

/* ---- backup of one state into a file, while a server changes the catalog ----
 *
 * SQLite's backup API copies page by page and restarts whenever another connection has changed the
 * database, so under a server it never ends. VACUUM INTO reads in one transaction. The log cannot
 * shrink meanwhile; after_commit bounds it afterwards. */

#define PART ".part"

static bool is_there(const char *where) {
    char path[1024];
    snprintf(path, sizeof(path), "%.900s/catalog.db", where);
    return access(path, F_OK) == 0;
}

/* Copies over a connection that can neither write nor checkpoint (S1). */
static enum cairn_code copy_into(const char *path, const char *part, struct cairn_error *err) {
    struct srv_tx *tx = NULL;
    CAIRN_TRY(srv_sqlite_open(path, true, &tx, err));
    sqlite3_stmt *statement = NULL;
    sqlite3 *db = srv_sqlite_of(tx)->db;
    int result = sqlite3_prepare_v2(db, "VACUUM INTO ?1", -1, &statement, NULL);
    if (result == SQLITE_OK) result = sqlite3_bind_text(statement, 1, part, -1, SQLITE_STATIC);
    if (result == SQLITE_OK) result = sqlite3_step(statement);
    enum cairn_code code = CAIRN_OK;
    if (result != SQLITE_DONE) code = sqlite_failure(tx, result, part, err);
    sqlite3_finalize(statement);
    srv_sqlite_free(tx);
    return code;
}

/* Reads the backup back: an unread backup is no backup. */
static enum cairn_code look_at(const char *part, struct srv_backup *ret, struct cairn_error *err) {
    struct srv_tx *tx = NULL;
    char text[32] = "";
    CAIRN_TRY(srv_sqlite_open(part, true, &tx, err));
    enum cairn_code code = demand(tx, "PRAGMA quick_check(1)", "ok", err);
    if (code) code = cairn_within(err, CAIRN_CORRUPT, "the copy");
    if (!code) code = srv_sqlite_ask(tx, "PRAGMA user_version", text, err);
    ret->schema = (unsigned)strtoul(text, NULL, 10);
    srv_sqlite_free(tx);
    return code;
}

/* Overwrites the rest of an interrupted backup; leaves a running one alone. */
static enum cairn_code take_part(int dir_fd, const char *part, int *ret_fd,
                                 struct cairn_error *err) {
    CAIRN_AUTO_FD fd = openat(dir_fd, part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return cairn_fail_errno(err, "open %s", part);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        return cairn_fail(err, CAIRN_CONFLICT, "%s: another backup is writing there", part);
    if (ftruncate(fd, 0) != 0) return cairn_fail_errno(err, "empty %s", part);
    *ret_fd = fd;
    fd = -1;
    return CAIRN_OK;
}

static enum cairn_code write_part(const char *path, int fd, const char *part,
                                  struct srv_backup *ret, struct cairn_error *err) {
    struct stat status;
    CAIRN_TRY(copy_into(path, part, err));
    CAIRN_TRY(look_at(part, ret, err));
    if (fsync(fd) != 0 || fstat(fd, &status) != 0) return cairn_fail_errno(err, "sync %s", part);
    ret->bytes = (uint64_t)status.st_size;
    return CAIRN_OK;
}

static enum cairn_code backup(const char *where, const char *file, struct srv_backup *ret,
                              struct cairn_error *err) {
    char path[1024], part[PATH_MAX], folder[PATH_MAX];
    const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file;
    size_t folder_size = slash ? (size_t)(slash - file) + 1 : 1;
    snprintf(path, sizeof(path), "%.900s/catalog.db", where);
    if (!is_there(where))
        return cairn_fail(err, CAIRN_NOT_FOUND, "there is no catalog in %s", where);
    if (!*name || folder_size >= sizeof(folder) ||
        (size_t)snprintf(part, sizeof(part), "%s" PART, file) >= sizeof(part))
        return cairn_fail(err, CAIRN_INVALID, "FILE: want the name of a file, not %.200s", file);
    snprintf(folder, sizeof(folder), "%.*s", (int)folder_size, slash ? file : ".");
    CAIRN_AUTO_FD dir_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0) return cairn_fail_errno(err, "%s", folder);
    if (!faccessat(dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW))
        return cairn_fail(err, CAIRN_CONFLICT, "%s is already there: name another file", file);
    CAIRN_AUTO_FD fd = -1;
    const char *part_name = part + (name - file);
    CAIRN_TRY(take_part(dir_fd, part_name, &fd, err));
    enum cairn_code code = write_part(path, fd, part, ret, err);
    if (!code) code = cairn_file_publish(dir_fd, part_name, name, err);
    if (code) (void)unlinkat(dir_fd, part_name, 0);
    return code;
}

/* D06: WAL needs shared memory, which a network file system does not provide. */
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

static enum cairn_code take_folder(const char *folder, struct srv_sqlite_place *place,
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

static void leave(void *place) {
    struct srv_sqlite_place *own = place;
    end_check(own);
    if (own->lock_fd >= 0) close(own->lock_fd);
    free(own);
}

static enum cairn_code take(const char *where, void **ret_place, struct cairn_error *err) {
    struct srv_sqlite_place *place = calloc(1, sizeof(*place));
    if (!place) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the catalog");
    place->lock_fd = -1;
    cairn_uuid_random(place->server);
    enum cairn_code code = CAIRN_OK;
    if (strcmp(where, SRV_SQLITE_MEMORY) != 0)
        code = take_folder(where, place, err);
    else
        snprintf(place->path, sizeof(place->path), "%s", where);
    if (code)
        leave(place);
    else
        *ret_place = place;
    if (!code && place->lock_fd >= 0) begin_check(place);
    return code;
}

static enum cairn_code run_migrations(struct srv_tx *tx, unsigned from, struct cairn_error *err) {
    for (size_t i = 0; i < srv_migration_count; i++) {
        if (srv_migrations[i].number <= from) continue;
        enum cairn_code code = srv_sqlite_exec(tx, srv_migrations[i].sql, err);
        if (code) return cairn_within(err, code, "migration %u", srv_migrations[i].number);
        CAIRN_CRASHPOINT("server.catalog.migrated");
    }
    char sql[64];
    snprintf(sql, sizeof(sql), "PRAGMA user_version=%u", srv_catalog_schema());
    return srv_sqlite_exec(tx, sql, err);
}

/* catalog-schema-<number>.db beside the catalog: the file with which a release of that schema
 * starts. Replaces an earlier one of the same schema. False: the catalog is no file. */
static bool path_before(struct srv_tx *tx, unsigned long schema, char folder[1024],
                        char ret[1100]) {
    const char *path = sqlite3_db_filename(srv_sqlite_of(tx)->db, "main");
    const char *slash = path ? strrchr(path, '/') : NULL;
    if (!slash || (size_t)(slash - path) >= 1000) return false;
    snprintf(folder, 1024, "%.*s", (int)(slash - path), path);
    snprintf(ret, 1100, "%s/catalog-schema-%lu.db", folder, schema);
    return true;
}

static enum cairn_code copy_before(struct srv_tx *tx, unsigned long schema, char ret[1100],
                                   struct cairn_error *err) {
    char folder[1024];
    struct srv_backup made;
    if (!path_before(tx, schema, folder, ret)) return CAIRN_OK;
    if (unlink(ret) && errno != ENOENT) return cairn_fail_errno(err, "removing %s", ret);
    enum cairn_code code = backup(folder, ret, &made, err);
    if (!code) return code;
    return cairn_within(err, code, "the copy of the catalog before it is migrated");
}

static enum cairn_code refuse_newer(struct srv_tx *tx, unsigned long found,
                                    struct cairn_error *err) {
    char folder[1024], before[1100];
    unsigned own = srv_catalog_schema();
    bool kept = path_before(tx, own, folder, before) && !access(before, F_OK);
    return cairn_fail(err, CAIRN_UNSUPPORTED,
                      "the catalog has schema %lu; this program knows up to %u: start the release "
                      "that wrote it, or a newer one%s%s%s",
                      found, own, kept ? ", or go back to " : "",
                      kept ? strrchr(before, '/') + 1 : "",
                      kept ? " beside it (docs/upgrade.md)" : "");
}

static enum cairn_code migrate(struct srv_tx *tx, struct srv_migrated *ret,
                               struct cairn_error *err) {
    char text[32];
    *ret = (struct srv_migrated){0};
    CAIRN_TRY(srv_sqlite_ask(tx, "PRAGMA user_version", text, err));
    unsigned long found = strtoul(text, NULL, 10);
    if (found > srv_catalog_schema()) return refuse_newer(tx, found, err);
    if (found == srv_catalog_schema()) return CAIRN_OK;
    if (found) CAIRN_TRY(copy_before(tx, found, ret->before, err));
    CAIRN_TRY(srv_sqlite_exec(tx, "BEGIN IMMEDIATE", err));
    enum cairn_code code = run_migrations(tx, (unsigned)found, err);
    if (!code) code = srv_sqlite_exec(tx, "COMMIT", err);
    if (code) (void)sqlite3_exec(srv_sqlite_of(tx)->db, "ROLLBACK", NULL, NULL, NULL);
    if (!code) ret->from = (unsigned)found;
    return code;
}

/* ---- loading a copy: one transaction, one INSERT bound anew for each row ---- */

/* Version keys are random, so each row touches other pages of a dozen indexes. */
#define LOAD_CACHE "PRAGMA cache_size=-262144"

static enum cairn_code prepare_insert(struct srv_tx *tx, const struct srv_table *table,
                                      sqlite3_stmt **ret, struct cairn_error *err) {
    CAIRN_AUTO(buf) sql = {0};
    CAIRN_TRY(cairn_buf_printf(&sql, err, "INSERT INTO %s(", table->name));
    for (size_t i = 0; i < table->column_count; i++)
        CAIRN_TRY(cairn_buf_printf(&sql, err, "%s%s", i ? ", " : "", table->columns[i]));
    for (size_t i = 0; i < table->column_count; i++)
        CAIRN_TRY(cairn_buf_append_text(&sql, i ? ", ?" : ") VALUES(?", err));
    CAIRN_TRY(cairn_buf_append_text(&sql, ")", err));
    int result = sqlite3_prepare_v2(srv_sqlite_of(tx)->db, sql.data, -1, ret, NULL);
    return result == SQLITE_OK ? CAIRN_OK : sqlite_failure(tx, result, table->name, err);
}

static int bind_column(sqlite3_stmt *statement, const struct srv_table *table,
                       const struct srv_unpacked *row, size_t i) {
    struct cairn_view value = row->columns[i];
    int place = (int)i + 1;
    if (!value.data) return sqlite3_bind_null(statement, place);
    if (table->types[i] == 'i')
        return sqlite3_bind_int64(statement, place, srv_unpacked_number(row, i));
    if (table->types[i] == 't')
        return sqlite3_bind_text64(statement, place, value.data, value.size, SQLITE_STATIC,
                                   SQLITE_UTF8);
    return sqlite3_bind_blob64(statement, place, value.data, value.size, SQLITE_STATIC);
}

static enum cairn_code insert_all(struct srv_tx *tx, const struct srv_table *table,
                                  struct cairn_view rows, struct cairn_error *err) {
    sqlite3_stmt *statement = NULL;
    struct srv_unpacked row = {.left = rows};
    CAIRN_TRY(prepare_insert(tx, table, &statement, err));
    int result = SQLITE_DONE;
    while (result == SQLITE_DONE && srv_unpack(&row)) {
        CAIRN_ASSERT(row.column_count == table->column_count);
        result = SQLITE_OK;
        for (size_t i = 0; i < row.column_count && result == SQLITE_OK; i++)
            result = bind_column(statement, table, &row, i);
        if (result == SQLITE_OK) result = sqlite3_step(statement);
        (void)sqlite3_reset(statement);
    }
    enum cairn_code code =
        result == SQLITE_DONE ? CAIRN_OK : sqlite_failure(tx, result, table->name, err);
    sqlite3_finalize(statement);
    return code;
}

static enum cairn_code load(struct srv_tx *tx, const struct srv_table *table,
                            struct cairn_view rows, struct cairn_error *err) {
    CAIRN_TRY(srv_sqlite_exec(tx, LOAD_CACHE, err));
    CAIRN_TRY(tx->engine->begin_write(tx, err));
    enum cairn_code code = insert_all(tx, table, rows, err);
    if (!code) code = tx->engine->commit(tx, err);
    if (code) tx->engine->rollback(tx);
    return code;
}

/* Nothing to do: a new rowid is one more than the largest. */
static enum cairn_code loaded(struct srv_tx *tx, const struct srv_table *table,
                              struct cairn_error *err) {
    (void)tx, (void)table, (void)err;
    return CAIRN_OK;
}

/* SQLite is the last engine: any other place is a folder. */
static bool knows(const char *where) {
    (void)where;
    return true;
}

static const char *describe(const void *place) {
    return ((const struct srv_sqlite_place *)place)->path;
}

static const char *server_of(const void *place) {
    return ((const struct srv_sqlite_place *)place)->server;
}

/* Only one process uses the file, and a restored file never replaces it under a running server. */
static bool behind(const void *place) {
    (void)place;
    return false;
}

static bool shared(const void *place) {
    (void)place;
    return false;
}

static enum cairn_code lives(struct srv_tx *tx, const char *server, bool *ret,
                             struct cairn_error *err) {
    (void)tx, (void)server, (void)err;
    *ret = false;
    return CAIRN_OK;
}

static enum cairn_code join(struct srv_tx *tx, bool lasting, bool *ret_others,
                            struct cairn_error *err) {
    (void)tx, (void)lasting, (void)err;
    *ret_others = false;
    return CAIRN_OK;
}

/* The place's lock already excludes other processes. */
static enum cairn_code alone(struct srv_tx *tx, struct cairn_error *err) {
    (void)tx, (void)err;
    return CAIRN_OK;
}

static enum cairn_code connect_to(void *place, bool read_only, struct srv_tx **ret,
                                  struct cairn_error *err) {
    struct srv_tx *tx = NULL;
    CAIRN_TRY(srv_sqlite_open(describe(place), read_only, &tx, err));
    enum cairn_code code = read_only ? CAIRN_OK : check_place(place, tx, err);
    if (code)
        srv_sqlite_free(tx);
    else
        *ret = tx;
    return code;
}

static enum cairn_code begin_read(struct srv_tx *tx, struct cairn_error *err) {
    return srv_sqlite_exec(tx, "BEGIN", err);
}

static void end_read(struct srv_tx *tx) {
    (void)sqlite3_exec(db_of(tx), "COMMIT", NULL, NULL, NULL);
}

static enum cairn_code begin_write(struct srv_tx *tx, struct cairn_error *err) {
    return srv_sqlite_exec(tx, "BEGIN IMMEDIATE", err);
}

static enum cairn_code commit(struct srv_tx *tx, struct cairn_error *err) {
    return srv_sqlite_exec(tx, "COMMIT", err);
}

static void rollback(struct srv_tx *tx) {
    (void)sqlite3_exec(db_of(tx), "ROLLBACK", NULL, NULL, NULL);
}

/* A full disk, an I/O error and lack of memory undo the whole transaction. */
static bool is_open(struct srv_tx *tx) {
    return !sqlite3_get_autocommit(db_of(tx));
}

static enum cairn_code savepoint(struct srv_tx *tx, struct cairn_error *err) {
    return srv_sqlite_exec(tx, "SAVEPOINT change", err);
}

static enum cairn_code keep(struct srv_tx *tx, struct cairn_error *err) {
    return srv_sqlite_exec(tx, "RELEASE change", err);
}

static void undo(struct srv_tx *tx) {
    (void)sqlite3_exec(db_of(tx), "ROLLBACK TO change; RELEASE change", NULL, NULL, NULL);
}

/* Returns a statement that no outer loop uses; a second user of one text gets another. */
static enum cairn_code prepare(struct srv_tx *tx, const char *sql, sqlite3_stmt **ret,
                               struct cairn_error *err) {
    struct srv_sqlite *own = srv_sqlite_of(tx);
    size_t room = SRV_STATEMENTS_MAX;
    for (size_t i = 0; i < SRV_STATEMENTS_MAX; i++) {
        if (own->kept[i].sql == sql && !own->kept[i].busy) {
            own->kept[i].busy = true;
            *ret = own->kept[i].statement;
            return CAIRN_OK;
        }
        if (!own->kept[i].busy && (room == SRV_STATEMENTS_MAX || !own->kept[i].sql)) room = i;
    }
    /* more nested loops than cached statements is our bug */
    CAIRN_ASSERT(room < SRV_STATEMENTS_MAX);
    sqlite3_finalize(own->kept[room].statement);
    own->kept[room].sql = NULL;
    own->kept[room].statement = NULL;
    sqlite3_stmt *statement = NULL;
    int result = sqlite3_prepare_v3(own->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, NULL);
    if (result != SQLITE_OK) return sqlite_failure(tx, result, sql, err);
    own->kept[room].sql = sql;
    own->kept[room].statement = statement;
    own->kept[room].busy = true;
    *ret = statement;
    return CAIRN_OK;
}

static void finish(struct srv_tx *tx, void *running) {
    struct srv_sqlite *own = srv_sqlite_of(tx);
    sqlite3_reset(running);
    sqlite3_clear_bindings(running);
    for (size_t i = 0; i < SRV_STATEMENTS_MAX; i++) {
        if (own->kept[i].statement == running) own->kept[i].busy = false;
    }
}

static int bind(sqlite3_stmt *statement, int index, const struct srv_value *value) {
    switch (value->type) {
    case 'i':
        return sqlite3_bind_int64(statement, index, value->number);
    case 't':
        return sqlite3_bind_text(statement, index, value->text, -1, SQLITE_STATIC);
    default:
        if (!value->bytes.data) return sqlite3_bind_null(statement, index);
        return sqlite3_bind_blob64(statement, index, value->bytes.data, value->bytes.size,
                                   SQLITE_STATIC);
    }
}

static enum cairn_code start(struct srv_tx *tx, const struct srv_statement *statement,
                             const struct srv_value *values, void **ret_running,
                             struct cairn_error *err) {
    sqlite3_stmt *prepared = NULL;
    CAIRN_TRY(prepare(tx, statement->sql, &prepared, err));
    for (int i = 0; statement->types[i]; i++) {
        int result = bind(prepared, i + 1, &values[i]);
        if (result == SQLITE_OK) continue;
        enum cairn_code code = sqlite_failure(tx, result, statement->name, err);
        finish(tx, prepared);
        return code;
    }
    *ret_running = prepared;
    return CAIRN_OK;
}

static enum cairn_code next(struct srv_tx *tx, void *running, bool *ret_more,
                            struct cairn_error *err) {
    int result = sqlite3_step(running);
    if (result != SQLITE_ROW && result != SQLITE_DONE)
        return sqlite_failure(tx, result, sqlite3_sql(running), err);
    *ret_more = result == SQLITE_ROW;
    return CAIRN_OK;
}

static enum cairn_code run(struct srv_tx *tx, const struct srv_statement *statement,
                           const struct srv_value *values, uint64_t *ret_changed,
                           struct cairn_error *err) {
    void *running = NULL;
    bool more = false;
    CAIRN_TRY(start(tx, statement, values, &running, err));
    enum cairn_code code = next(tx, running, &more, err);
    if (!code && ret_changed) *ret_changed = (uint64_t)sqlite3_changes64(db_of(tx));
    finish(tx, running);
    return code;
}

static bool is_null(void *running, int column) {
    return sqlite3_column_type(running, column) == SQLITE_NULL;
}

static int64_t number(void *running, int column) {
    return sqlite3_column_int64(running, column);
}

static const char *text(void *running, int column) {
    const unsigned char *found = sqlite3_column_text(running, column);
    return found ? (const char *)found : "";
}

static struct cairn_view bytes(void *running, int column) {
    const void *data = sqlite3_column_blob(running, column);
    return (struct cairn_view){data, (size_t)sqlite3_column_bytes(running, column)};
}

const struct srv_engine srv_engine_sqlite = {
    .name = "sqlite",
    .knows = knows,
    .take = take,
    .leave = leave,
    .describe = describe,
    .server = server_of,
    .behind = behind,
    .join = join,
    .shared = shared,
    .lives = lives,
    .connect = connect_to,
    .disconnect = srv_sqlite_free,
    .migrate = migrate,
    .begin_read = begin_read,
    .end_read = end_read,
    .begin_write = begin_write,
    .commit = commit,
    .rollback = rollback,
    .is_open = is_open,
    .savepoint = savepoint,
    .keep = keep,
    .undo = undo,
    .run = run,
    .start = start,
    .next = next,
    .finish = finish,
    .is_null = is_null,
    .number = number,
    .text = text,
    .bytes = bytes,
    .in_folder = true,
    .is_there = is_there,
    .alone = alone,
    .load = load,
    .loaded = loaded,
    .backup = backup,
    .log_bytes = log_bytes,
    .checked = checked,
};
