/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a copy into a table of SQLite: one transaction, one INSERT that is bound anew for each
 * row; see engine.h. */
#include <stdio.h>

#include "common/buf.h"
#include "server/db/engine_sqlite.h"
#include "server/db/pack.h"

/* Keys of versions are random, so each row touches other pages of a dozen indexes. */
#define LOAD_CACHE "PRAGMA cache_size=-262144"

static enum cairn_code prepare(struct cairn_srv_tx *tx, const struct cairn_srv_table *table,
                               sqlite3_stmt **ret, struct cairn_error *err) {
    CAIRN_AUTO(buf) sql = {0};
    CAIRN_TRY(cairn_buf_printf(&sql, err, "INSERT INTO %s(", table->name));
    for (size_t i = 0; i < table->column_count; i++)
        CAIRN_TRY(cairn_buf_printf(&sql, err, "%s%s", i ? ", " : "", table->columns[i]));
    for (size_t i = 0; i < table->column_count; i++)
        CAIRN_TRY(cairn_buf_append_text(&sql, i ? ", ?" : ") VALUES(?", err));
    CAIRN_TRY(cairn_buf_append_text(&sql, ")", err));
    int result = sqlite3_prepare_v2(cairn_srv_sqlite_of(tx)->db, sql.data, -1, ret, NULL);
    return result == SQLITE_OK ? CAIRN_OK : cairn_srv_sqlite_fail(tx, result, table->name, err);
}

static int bind(sqlite3_stmt *statement, const struct cairn_srv_table *table,
                const struct cairn_srv_unpacked *row, size_t i) {
    struct cairn_view value = row->columns[i];
    int place = (int)i + 1;
    if (!value.data) return sqlite3_bind_null(statement, place);
    if (table->types[i] == 'i')
        return sqlite3_bind_int64(statement, place, cairn_srv_unpacked_number(row, i));
    if (table->types[i] == 't')
        return sqlite3_bind_text64(statement, place, value.data, value.size, SQLITE_STATIC,
                                   SQLITE_UTF8);
    return sqlite3_bind_blob64(statement, place, value.data, value.size, SQLITE_STATIC);
}

static enum cairn_code insert_all(struct cairn_srv_tx *tx, const struct cairn_srv_table *table,
                                  struct cairn_view rows, struct cairn_error *err) {
    sqlite3_stmt *statement = NULL;
    struct cairn_srv_unpacked row = {.left = rows};
    CAIRN_TRY(prepare(tx, table, &statement, err));
    int result = SQLITE_DONE;
    while (result == SQLITE_DONE && cairn_srv_unpack(&row)) {
        CAIRN_ASSERT(row.column_count == table->column_count);
        result = SQLITE_OK;
        for (size_t i = 0; i < row.column_count && result == SQLITE_OK; i++)
            result = bind(statement, table, &row, i);
        if (result == SQLITE_OK) result = sqlite3_step(statement);
        (void)sqlite3_reset(statement);
    }
    enum cairn_code code =
        result == SQLITE_DONE ? CAIRN_OK : cairn_srv_sqlite_fail(tx, result, table->name, err);
    sqlite3_finalize(statement);
    return code;
}

enum cairn_code cairn_srv_sqlite_load(struct cairn_srv_tx *tx, const struct cairn_srv_table *table,
                                      struct cairn_view rows, struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_sqlite_exec(tx, LOAD_CACHE, err));
    CAIRN_TRY(tx->engine->begin_write(tx, err));
    enum cairn_code code = insert_all(tx, table, rows, err);
    if (!code) code = tx->engine->commit(tx, err);
    if (code) tx->engine->rollback(tx);
    return code;
}

/* A rowid is one more than the largest. */
enum cairn_code cairn_srv_sqlite_loaded(struct cairn_srv_tx *tx,
                                        const struct cairn_srv_table *table,
                                        struct cairn_error *err) {
    (void)tx, (void)table, (void)err;
    return CAIRN_OK;
}
