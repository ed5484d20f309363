/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_sqlite: the catalog in one SQLite file: connections and their prepared statements.
 *
 * Why:     opening, settings and the statement cache are the same for the writer and the readers.
 * Promise: 1   the writer is WAL with synchronous=FULL, read back and asserted; a reader is opened
 *              READONLY, so that it can neither write nor checkpoint.
 *          2   one process: a lock on catalog.lock is held from take to leave (engine.h#4).
 * Limits:  128 prepared statements a connection.
 * Threads: a connection belongs to one thread at a time.
 * Next:    server/db/engine.h; server/db/engine_sqlite.c for the settings.
 */
#pragma once

#include <sqlite3.h>

#include "server/db/engine.h"

#define SRV_STATEMENTS_MAX 128
#define SRV_SQLITE_LOG_BYTES (64 * 1024 * 1024) /* catalog.db-wal without readers */
#define SRV_SQLITE_MEMORY ":memory:"            /* gone with its one connection */

struct srv_sqlite {
    struct srv_tx tx;
    sqlite3 *db;
    uint64_t restart_ms; /* of the writer: next time to wait for reads */
    struct {
        const char *sql;
        sqlite3_stmt *statement;
        bool busy;
    } kept[SRV_STATEMENTS_MAX];
};
static inline struct srv_sqlite *srv_sqlite_of(struct srv_tx *tx) {
    return (struct srv_sqlite *)tx;
}

enum cairn_code srv_sqlite_open(const char *path, bool read_only, struct srv_tx **ret,
                                struct cairn_error *err) CAIRN_MUST_USE;
void srv_sqlite_free(struct srv_tx *tx);
/* Runs plain statements without parameters, several allowed. */
enum cairn_code srv_sqlite_exec(struct srv_tx *tx, const char *sql,
                                struct cairn_error *err) CAIRN_MUST_USE;
/* Text of the first column of a PRAGMA's first row. */
enum cairn_code srv_sqlite_ask(struct srv_tx *tx, const char *sql, char ret[32],
                               struct cairn_error *err) CAIRN_MUST_USE;
