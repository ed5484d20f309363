/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_sqlite: the catalog in one file, by SQLite: its connections and the statements kept there.
 *
 * Why:     opening, settings and the statement cache are the same for the writer and the readers.
 * Promise: 1   the writer is WAL with synchronous=FULL, read back and asserted; a reader is opened
 *              READONLY, so that it can neither write nor checkpoint.
 *          2   one process: a lock on catalog.lock is held from take to leave (engine.h#4).
 * Limits:  128 statements are kept per connection.
 * Threads: a connection belongs to one thread at a time.
 * Next:    server/db/engine.h; server/db/engine_sqlite_open.c for the settings.
 */
#pragma once

#include <sqlite3.h>

#include "common/trace.h"
#include "server/db/engine.h"

struct cairn_srv_sqlite_check;
#define CAIRN_SRV_STATEMENTS_MAX 128
#define CAIRN_SRV_SQLITE_LOG_BYTES (64 * 1024 * 1024) /* catalog.db-wal, once nobody reads in it */
#define CAIRN_SRV_SQLITE_MEMORY ":memory:" /* as a place: gone with its one connection */

struct cairn_srv_sqlite {
    struct cairn_srv_tx tx;
    sqlite3 *db;
    uint64_t restart_ms; /* of the writer: when it may wait for looks again */
    struct {
        const char *sql;
        sqlite3_stmt *statement;
        bool busy;
    } kept[CAIRN_SRV_STATEMENTS_MAX];
};
static inline struct cairn_srv_sqlite *cairn_srv_sqlite_of(struct cairn_srv_tx *tx) {
    return (struct cairn_srv_sqlite *)tx; /* its first member */
}

enum cairn_code cairn_srv_sqlite_open(const char *path, bool read_only, struct cairn_srv_tx **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_sqlite_free(struct cairn_srv_tx *tx);
enum cairn_code cairn_srv_sqlite_fail(struct cairn_srv_tx *tx, int result, const char *what,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Plain statements without parameters, several of them allowed. */
enum cairn_code cairn_srv_sqlite_exec(struct cairn_srv_tx *tx, const char *sql,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* The first column of a PRAGMA's first row, as text; and that it is what it must be. */
enum cairn_code cairn_srv_sqlite_ask(struct cairn_srv_tx *tx, const char *sql, char ret[32],
                                     struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_sqlite_demand(struct cairn_srv_tx *tx, const char *sql,
                                        const char *wanted,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* As in engine.h: take, leave, migrate. */
enum cairn_code cairn_srv_sqlite_take(const char *where, void **ret_place,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_sqlite_leave(void *place);
enum cairn_code cairn_srv_sqlite_migrate(struct cairn_srv_tx *tx, struct cairn_srv_migrated *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
struct cairn_srv_sqlite_place {
    char path[1024];
    char server[CAIRN_UUID_TEXT_BYTES];
    int lock_fd; /* -1: in memory */
    bool clean;  /* the file is as the last server left it that ended well */
    struct cairn_srv_sqlite_check *check; /* NULL: not begun */
};

/* engine_sqlite_check.c: before the first connection; with the writer; after the last one. */
void cairn_srv_sqlite_check_begin(struct cairn_srv_sqlite_place *place);
enum cairn_code cairn_srv_sqlite_check(struct cairn_srv_sqlite_place *place,
                                       struct cairn_srv_tx *writer,
                                       struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_sqlite_check_end(struct cairn_srv_sqlite_place *place);
/* As in engine.h. */
enum cairn_srv_checked cairn_srv_sqlite_checked(const void *place,
                                                char ret[CAIRN_SRV_CHECKED_BYTES]);

uint64_t cairn_srv_sqlite_log_bytes(const void *place);

/* engine_sqlite_backup.c; as in engine.h. */
bool cairn_srv_sqlite_is_there(const char *where);
enum cairn_code cairn_srv_sqlite_backup(const char *where, const char *file,
                                        struct cairn_srv_backup *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* engine_sqlite_load.c; as in engine.h. */
enum cairn_code cairn_srv_sqlite_load(struct cairn_srv_tx *tx, const struct cairn_srv_table *table,
                                      struct cairn_view rows,
                                      struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_sqlite_loaded(struct cairn_srv_tx *tx,
                                        const struct cairn_srv_table *table,
                                        struct cairn_error *err) CAIRN_MUST_USE;
