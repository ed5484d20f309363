/* SPDX-License-Identifier: Apache-2.0 */
/* Asked of SQLite, which keeps its schema as rows; see tables.h. */
#include "server/db/tables.h"

#include <stdlib.h>

#include "common/array.h"
#include "common/text.h"
#include "server/db/engine_sqlite.h"

#define TABLES_MAX 256

static const struct cairn_srv_statement all_tables = {
    "tables", "",
    "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' AND name NOT "
    "IN ('servers', 'leases') ORDER BY rowid"}; /* those are about processes */
static const struct cairn_srv_statement all_columns = {
    "columns", "t", "SELECT name, type, pk FROM pragma_table_info(?1) ORDER BY cid"};

static char type_of(const char *declared) {
    return !strcmp(declared, "INTEGER") ? 'i' : !strcmp(declared, "TEXT") ? 't' : 'b';
}

static void add_table_column(struct cairn_srv_table *table, const struct cairn_srv_rows *row) {
    size_t number = table->column_count++, place = (size_t)cairn_srv_rows_i64(row, 2);
    CAIRN_ASSERT(number < CAIRN_SRV_COLUMNS_MAX);
    CAIRN_ASSERT(place <= CAIRN_SRV_KEY_MAX);
    (void)cairn_text_copy(table->columns[number], sizeof(table->columns[number]),
                          cairn_srv_rows_text(row, 0));
    table->types[number] = type_of(cairn_srv_rows_text(row, 1));
    if (!place) return;
    table->key[place - 1] = number;
    if (place > table->key_count) table->key_count = place;
}

static enum cairn_code read_columns(struct cairn_srv_tx *tx, struct cairn_srv_table *table,
                                    struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, &all_columns, SQL_T(table->name)));
    for (bool more = true;;) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) break;
        add_table_column(table, &rows);
    }
    CAIRN_ASSERT(table->key_count > 0); /* a row without a name could not be compared */
    return CAIRN_OK;
}

static enum cairn_code read_tables(struct cairn_srv_tables *tables, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tables->tx, &rows, err, &all_tables));
    for (bool more = true;;) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) return CAIRN_OK;
        CAIRN_TRY(CAIRN_ARRAY_ROOM(tables->at, tables->count, tables->capacity, TABLES_MAX,
                                   "tables", err));
        struct cairn_srv_table *table = &tables->at[tables->count++];
        *table = (struct cairn_srv_table){0};
        (void)cairn_text_copy(table->name, sizeof(table->name), cairn_srv_rows_text(&rows, 0));
        CAIRN_TRY(read_columns(tables->tx, table, err));
    }
}

enum cairn_code cairn_srv_tables_read(struct cairn_srv_tables *ret, struct cairn_error *err) {
    const struct cairn_srv_engine *engine = &cairn_srv_engine_sqlite;
    struct cairn_srv_tables tables = {0};
    struct cairn_srv_migrated none;
    enum cairn_code code = engine->take(CAIRN_SRV_SQLITE_MEMORY, &tables.place, err);
    if (!code) code = engine->connect(tables.place, false, &tables.tx, err);
    if (!code) code = engine->migrate(tables.tx, &none, err);
    if (!code) code = read_tables(&tables, err);
    if (code)
        cairn_srv_tables_release(&tables);
    else
        *ret = tables;
    return code;
}

void cairn_srv_tables_release(struct cairn_srv_tables *tables) {
    if (tables->tx) cairn_srv_engine_sqlite.disconnect(tables->tx);
    if (tables->place) cairn_srv_engine_sqlite.leave(tables->place);
    free(tables->at);
    *tables = (struct cairn_srv_tables){0};
}
