/* SPDX-License-Identifier: Apache-2.0 */
/* One connection: opened with the settings that the promises rest on, and brought to this
 * program's schema; see sqlite.h. */
#include "server/catalog/sqlite.h"

#include <stdio.h>
#include <stdlib.h>

#include "server/catalog/catalog.h"

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
    return cairn_fail(err, code_of(result), "catalog: %s: %s", what,
                      tx->db ? sqlite3_errmsg(tx->db) : sqlite3_errstr(result));
}

enum cairn_code cairn_srv_sqlite_exec(struct cairn_srv_tx *tx, const char *sql,
                                      struct cairn_error *err) {
    int result = sqlite3_exec(tx->db, sql, NULL, NULL, NULL);
    if (result != SQLITE_OK) return cairn_srv_sqlite_fail(tx, result, "statement", err);
    return CAIRN_OK;
}

/* The first column of a PRAGMA's first row, as text. */
static enum cairn_code ask(struct cairn_srv_tx *tx, const char *sql, char ret[32],
                           struct cairn_error *err) {
    sqlite3_stmt *statement = NULL;
    int result = sqlite3_prepare_v2(tx->db, sql, -1, &statement, NULL);
    if (result == SQLITE_OK) result = sqlite3_step(statement);
    const unsigned char *text = result == SQLITE_ROW ? sqlite3_column_text(statement, 0) : NULL;
    snprintf(ret, 32, "%s", text ? (const char *)text : "");
    sqlite3_finalize(statement);
    if (result != SQLITE_ROW) return cairn_srv_sqlite_fail(tx, result, sql, err);
    return CAIRN_OK;
}

static enum cairn_code demand(struct cairn_srv_tx *tx, const char *sql, const char *wanted,
                              struct cairn_error *err) {
    char got[32];
    CAIRN_TRY(ask(tx, sql, got, err));
    if (strcmp(got, wanted))
        return cairn_fail(err, CAIRN_UNSUPPORTED, "catalog: %s is \"%s\", it must be \"%s\"", sql,
                          got, wanted);
    return CAIRN_OK;
}

static enum cairn_code set_up_writer(struct cairn_srv_tx *tx, bool in_memory,
                                     struct cairn_error *err) {
    CAIRN_TRY(demand(tx, "PRAGMA journal_mode=WAL", in_memory ? "memory" : "wal", err));
    CAIRN_TRY(cairn_srv_sqlite_exec(tx, "PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;", err));
    /* D02: 2 is FULL. With NORMAL a power cut takes acknowledged commits with it. */
    CAIRN_TRY(demand(tx, "PRAGMA synchronous", "2", err));
    return demand(tx, "PRAGMA quick_check(1)", "ok", err);
}

enum cairn_code cairn_srv_sqlite_open(const char *path, bool read_only, struct cairn_srv_tx **ret,
                                      struct cairn_error *err) {
    struct cairn_srv_tx *tx = calloc(1, sizeof(*tx));
    if (!tx) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a catalog connection");
    int flags = read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    int result = sqlite3_open_v2(path, &tx->db, flags | SQLITE_OPEN_NOMUTEX, NULL);
    enum cairn_code code = CAIRN_OK;
    if (result != SQLITE_OK) code = cairn_srv_sqlite_fail(tx, result, path, err);
    if (!code) {
        sqlite3_busy_timeout(tx->db, 5000);
        sqlite3_extended_result_codes(tx->db, 1);
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
    for (size_t i = 0; i < CAIRN_SRV_STATEMENTS_MAX; i++) sqlite3_finalize(tx->kept[i].statement);
    sqlite3_close(tx->db);
    free(tx);
}

struct migration {
    unsigned number;
    const char *sql;
};
static const struct migration migrations[] = {
#define MIGRATION(number, sql) {number, sql},
#include "server/catalog/migrations.def"
#undef MIGRATION
};

unsigned cairn_srv_catalog_schema(void) {
    return migrations[CAIRN_COUNT(migrations) - 1].number;
}

static enum cairn_code run_migrations(struct cairn_srv_tx *tx, unsigned from,
                                      struct cairn_error *err) {
    for (size_t i = 0; i < CAIRN_COUNT(migrations); i++) {
        if (migrations[i].number <= from) continue;
        enum cairn_code code = cairn_srv_sqlite_exec(tx, migrations[i].sql, err);
        if (code) return cairn_within(err, code, "migration %u", migrations[i].number);
    }
    char sql[64];
    snprintf(sql, sizeof(sql), "PRAGMA user_version=%u", cairn_srv_catalog_schema());
    return cairn_srv_sqlite_exec(tx, sql, err);
}

enum cairn_code cairn_srv_sqlite_migrate(struct cairn_srv_tx *tx, struct cairn_error *err) {
    char text[32];
    CAIRN_TRY(ask(tx, "PRAGMA user_version", text, err));
    unsigned long found = strtoul(text, NULL, 10);
    if (found > cairn_srv_catalog_schema())
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "the catalog has schema %lu; this program knows up to %u", found,
                          cairn_srv_catalog_schema());
    if (found == cairn_srv_catalog_schema()) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_sqlite_exec(tx, "BEGIN IMMEDIATE", err));
    enum cairn_code code = run_migrations(tx, (unsigned)found, err);
    if (!code) code = cairn_srv_sqlite_exec(tx, "COMMIT", err);
    if (code) (void)sqlite3_exec(tx->db, "ROLLBACK", NULL, NULL, NULL);
    return code;
}
