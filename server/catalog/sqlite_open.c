/* SPDX-License-Identifier: Apache-2.0 */
/* One connection: opened with the settings that the promises rest on, statements kept by the
 * address of their text; see sqlite.h. */
#include "server/catalog/sqlite.h"

#include <stdarg.h>
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

static enum cairn_code fail_sqlite(struct cairn_srv_tx *tx, int result, const char *what,
                                   struct cairn_error *err) {
    return cairn_fail(err, code_of(result), "catalog: %s: %s", what,
                      tx->db ? sqlite3_errmsg(tx->db) : sqlite3_errstr(result));
}

enum cairn_code cairn_srv_sqlite_exec(struct cairn_srv_tx *tx, const char *sql,
                                      struct cairn_error *err) {
    int result = sqlite3_exec(tx->db, sql, NULL, NULL, NULL);
    if (result != SQLITE_OK) return fail_sqlite(tx, result, "statement", err);
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
    if (result != SQLITE_ROW) return fail_sqlite(tx, result, sql, err);
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
    if (result != SQLITE_OK) code = fail_sqlite(tx, result, path, err);
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

/* ---- statements ---- */

/* A statement that is not in use by an outer loop; a second user of one text gets its own. */
static enum cairn_code prepare(struct cairn_srv_tx *tx, const char *sql, sqlite3_stmt **ret,
                               struct cairn_error *err) {
    size_t room = CAIRN_SRV_STATEMENTS_MAX;
    for (size_t i = 0; i < CAIRN_SRV_STATEMENTS_MAX; i++) {
        if (tx->kept[i].sql == sql && !tx->kept[i].busy) {
            tx->kept[i].busy = true;
            *ret = tx->kept[i].statement;
            return CAIRN_OK;
        }
        if (!tx->kept[i].busy && (room == CAIRN_SRV_STATEMENTS_MAX || !tx->kept[i].sql)) room = i;
    }
    /* More loops inside each other than statements are kept is a bug of ours. */
    CAIRN_ASSERT(room < CAIRN_SRV_STATEMENTS_MAX);
    sqlite3_finalize(tx->kept[room].statement);
    tx->kept[room].sql = NULL;
    tx->kept[room].statement = NULL;
    sqlite3_stmt *statement = NULL;
    int result = sqlite3_prepare_v3(tx->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, NULL);
    if (result != SQLITE_OK) return fail_sqlite(tx, result, sql, err);
    tx->kept[room].sql = sql;
    tx->kept[room].statement = statement;
    tx->kept[room].busy = true;
    *ret = statement;
    return CAIRN_OK;
}

static void give_back(struct cairn_srv_tx *tx, sqlite3_stmt *statement) {
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    for (size_t i = 0; i < CAIRN_SRV_STATEMENTS_MAX; i++) {
        if (tx->kept[i].statement == statement) tx->kept[i].busy = false;
    }
}

static int bind_one(sqlite3_stmt *statement, int index, char type, va_list *arguments) {
    if (type == 'i') return sqlite3_bind_int64(statement, index, va_arg(*arguments, int64_t));
    if (type == 't') {
        const char *text = va_arg(*arguments, const char *);
        return sqlite3_bind_text(statement, index, text, -1, SQLITE_STATIC);
    }
    CAIRN_ASSERT(type == 'b');
    struct cairn_view view = va_arg(*arguments, struct cairn_view);
    if (!view.data) return sqlite3_bind_null(statement, index);
    return sqlite3_bind_blob64(statement, index, view.data, view.size, SQLITE_STATIC);
}

static enum cairn_code start(struct cairn_srv_tx *tx, struct cairn_srv_rows *ret,
                             struct cairn_error *err, const char *sql, const char *types,
                             va_list *arguments) {
    sqlite3_stmt *statement = NULL;
    CAIRN_TRY(prepare(tx, sql, &statement, err));
    for (int i = 0; types[i]; i++) {
        int result = bind_one(statement, i + 1, types[i], arguments);
        if (result == SQLITE_OK) continue;
        enum cairn_code code = fail_sqlite(tx, result, sql, err);
        give_back(tx, statement);
        return code;
    }
    *ret = (struct cairn_srv_rows){statement, tx};
    return CAIRN_OK;
}

enum cairn_code cairn_srv_sql_open(struct cairn_srv_tx *tx, struct cairn_srv_rows *ret,
                                   struct cairn_error *err, const char *sql, const char *types,
                                   ...) {
    va_list arguments;
    va_start(arguments, types);
    enum cairn_code code = start(tx, ret, err, sql, types, &arguments);
    va_end(arguments);
    return code;
}

enum cairn_code cairn_srv_rows_next(struct cairn_srv_rows *rows, bool *ret_more,
                                    struct cairn_error *err) {
    int result = sqlite3_step(rows->statement);
    if (result != SQLITE_ROW && result != SQLITE_DONE)
        return fail_sqlite(rows->tx, result, sqlite3_sql(rows->statement), err);
    *ret_more = result == SQLITE_ROW;
    return CAIRN_OK;
}

void cairn_srv_rows_release(struct cairn_srv_rows *rows) {
    if (rows->statement) give_back(rows->tx, rows->statement);
    rows->statement = NULL;
}

bool cairn_srv_rows_null(const struct cairn_srv_rows *rows, int column) {
    return sqlite3_column_type(rows->statement, column) == SQLITE_NULL;
}

int64_t cairn_srv_rows_i64(const struct cairn_srv_rows *rows, int column) {
    return sqlite3_column_int64(rows->statement, column);
}

const char *cairn_srv_rows_text(const struct cairn_srv_rows *rows, int column) {
    const unsigned char *text = sqlite3_column_text(rows->statement, column);
    return text ? (const char *)text : "";
}

struct cairn_view cairn_srv_rows_blob(const struct cairn_srv_rows *rows, int column) {
    const void *data = sqlite3_column_blob(rows->statement, column);
    return (struct cairn_view){data, (size_t)sqlite3_column_bytes(rows->statement, column)};
}

enum cairn_code cairn_srv_sql_run(struct cairn_srv_tx *tx, uint64_t *ret_changed,
                                  struct cairn_error *err, const char *sql, const char *types,
                                  ...) {
    CAIRN_AUTO(srv_rows) rows = {0};
    va_list arguments;
    va_start(arguments, types);
    enum cairn_code code = start(tx, &rows, err, sql, types, &arguments);
    va_end(arguments);
    if (code) return code;
    bool more = false;
    CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
    if (ret_changed) *ret_changed = (uint64_t)sqlite3_changes64(tx->db);
    return CAIRN_OK;
}

enum cairn_code cairn_srv_sql_number(struct cairn_srv_tx *tx, bool *ret_found, int64_t *ret,
                                     struct cairn_error *err, const char *sql, const char *types,
                                     ...) {
    CAIRN_AUTO(srv_rows) rows = {0};
    va_list arguments;
    va_start(arguments, types);
    enum cairn_code code = start(tx, &rows, err, sql, types, &arguments);
    va_end(arguments);
    if (code) return code;
    bool more = false;
    CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
    if (more) *ret = cairn_srv_rows_i64(&rows, 0);
    *ret_found = more;
    return CAIRN_OK;
}
