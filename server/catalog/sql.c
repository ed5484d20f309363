/* SPDX-License-Identifier: Apache-2.0 */
/* Statements on one SQLite connection, prepared once and kept by the address of their text; see
 * sql.h. */
#include "server/catalog/sql.h"

#include <stdarg.h>

#include "server/catalog/predicates.h"
#include "server/catalog/sqlite.h"

const struct cairn_srv_statement cairn_srv_statements[] = {
#define STATEMENT(name, types, sql) {#name, types, sql},
#include "server/catalog/statements.def"
#undef STATEMENT
};
const size_t cairn_srv_statement_count = CAIRN_COUNT(cairn_srv_statements);

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
    if (result != SQLITE_OK) return cairn_srv_sqlite_fail(tx, result, sql, err);
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

static int bind(sqlite3_stmt *statement, int index, const struct cairn_srv_value *value) {
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

static enum cairn_code start(struct cairn_srv_tx *tx, struct cairn_srv_rows *ret,
                             struct cairn_error *err, const struct cairn_srv_statement *statement,
                             va_list *arguments) {
    sqlite3_stmt *prepared = NULL;
    CAIRN_TRY(prepare(tx, statement->sql, &prepared, err));
    for (int i = 0; statement->types[i]; i++) {
        struct cairn_srv_value value = va_arg(*arguments, struct cairn_srv_value);
        CAIRN_ASSERT(value.type == statement->types[i]); /* sql.h#1 */
        int result = bind(prepared, i + 1, &value);
        if (result == SQLITE_OK) continue;
        enum cairn_code code = cairn_srv_sqlite_fail(tx, result, statement->name, err);
        give_back(tx, prepared);
        return code;
    }
    *ret = (struct cairn_srv_rows){prepared, tx};
    return CAIRN_OK;
}

enum cairn_code cairn_srv_sql_open(struct cairn_srv_tx *tx, struct cairn_srv_rows *ret,
                                   struct cairn_error *err,
                                   const struct cairn_srv_statement *statement, ...) {
    va_list arguments;
    va_start(arguments, statement);
    enum cairn_code code = start(tx, ret, err, statement, &arguments);
    va_end(arguments);
    return code;
}

enum cairn_code cairn_srv_rows_next(struct cairn_srv_rows *rows, bool *ret_more,
                                    struct cairn_error *err) {
    int result = sqlite3_step(rows->statement);
    if (result != SQLITE_ROW && result != SQLITE_DONE)
        return cairn_srv_sqlite_fail(rows->tx, result, sqlite3_sql(rows->statement), err);
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
                                  struct cairn_error *err,
                                  const struct cairn_srv_statement *statement, ...) {
    CAIRN_AUTO(srv_rows) rows = {0};
    va_list arguments;
    va_start(arguments, statement);
    enum cairn_code code = start(tx, &rows, err, statement, &arguments);
    va_end(arguments);
    if (code) return code;
    bool more = false;
    CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
    if (ret_changed) *ret_changed = (uint64_t)sqlite3_changes64(tx->db);
    return CAIRN_OK;
}

enum cairn_code cairn_srv_sql_number(struct cairn_srv_tx *tx, bool *ret_found, int64_t *ret,
                                     struct cairn_error *err,
                                     const struct cairn_srv_statement *statement, ...) {
    CAIRN_AUTO(srv_rows) rows = {0};
    va_list arguments;
    va_start(arguments, statement);
    enum cairn_code code = start(tx, &rows, err, statement, &arguments);
    va_end(arguments);
    if (code) return code;
    bool more = false;
    CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
    if (more && ret) *ret = cairn_srv_rows_i64(&rows, 0);
    *ret_found = more;
    return CAIRN_OK;
}

enum cairn_code cairn_srv_sql_found(struct cairn_srv_tx *tx, bool *ret, struct cairn_error *err,
                                    const struct cairn_srv_statement *statement, ...) {
    CAIRN_AUTO(srv_rows) rows = {0};
    va_list arguments;
    va_start(arguments, statement);
    enum cairn_code code = start(tx, &rows, err, statement, &arguments);
    va_end(arguments);
    return code ? code : cairn_srv_rows_next(&rows, ret, err);
}
