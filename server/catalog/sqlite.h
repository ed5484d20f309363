/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sqlite: one SQLite connection and the statements prepared on it.
 *
 * Why:     opening, settings and the statement cache are the same for the writer and the readers.
 * Promise: 1   the writer is WAL with synchronous=FULL, read back and asserted; a reader is opened
 *              READONLY, so that it can neither write nor checkpoint.
 * Limits:  128 statements are kept per connection.
 * Threads: a connection belongs to one thread at a time.
 * Next:    server/catalog/sqlite.c for who takes which connection when.
 */
#pragma once

#include <sqlite3.h>

#include "common/error.h"

#define CAIRN_SRV_STATEMENTS_MAX 128
#define CAIRN_SRV_SQLITE_MEMORY ":memory:" /* as a path: gone with its connection */

struct cairn_srv_tx {
    sqlite3 *db;
    struct {
        const char *sql;
        sqlite3_stmt *statement;
        bool busy;
    } kept[CAIRN_SRV_STATEMENTS_MAX];
    struct cairn_srv_tx *next; /* of the idle readers */
};

enum cairn_code cairn_srv_sqlite_open(const char *path, bool read_only, struct cairn_srv_tx **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_sqlite_free(struct cairn_srv_tx *tx);
enum cairn_code cairn_srv_sqlite_fail(struct cairn_srv_tx *tx, int result, const char *what,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Plain statements without parameters, several of them allowed. */
enum cairn_code cairn_srv_sqlite_exec(struct cairn_srv_tx *tx, const char *sql,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Bring an empty or older catalog to this program's schema; refuses a newer one. */
enum cairn_code cairn_srv_sqlite_migrate(struct cairn_srv_tx *tx,
                                         struct cairn_error *err) CAIRN_MUST_USE;
