/* SPDX-License-Identifier: Apache-2.0 */
/* Generated SQL, the walks over both databases, and packing; see copy_page.h. */
#include "server/db/copy_page.h"

#include <endian.h>
#include <stdlib.h>

#include "server/db/copy.h"
#include "server/db/engine_sqlite.h"

#define PAGE_BYTES (4 * CAIRN_MIB)
#define FIRST_ROWS 64

struct srv_copy_texts {
    struct cairn_buf texts[5];
    struct srv_statement first, after, last, count, clear;
    char types[SRV_KEY_MAX + 2]; /* of `after`: key columns and row limit */
};

static enum cairn_code put_key(const struct srv_table *table, const char *behind_each,
                               struct cairn_buf *sql, struct cairn_error *err) {
    for (size_t i = 0; i < table->key_count; i++)
        CAIRN_TRY(cairn_buf_printf(sql, err, "%s%s%s", i ? ", " : "", table->columns[table->key[i]],
                                   behind_each));
    return CAIRN_OK;
}

static enum cairn_code put_after(const struct srv_table *table, struct cairn_buf *sql,
                                 struct cairn_error *err) {
    CAIRN_TRY(cairn_buf_append_text(sql, " WHERE (", err));
    CAIRN_TRY(put_key(table, "", sql, err));
    CAIRN_TRY(cairn_buf_append_text(sql, ") > (", err));
    for (size_t i = 0; i < table->key_count; i++)
        CAIRN_TRY(cairn_buf_printf(sql, err, "%s?%zu", i ? ", " : "", i + 1));
    return cairn_buf_append_text(sql, ")", err);
}

static enum cairn_code put_select(const struct srv_table *table, bool after, bool backwards,
                                  struct cairn_buf *sql, struct cairn_error *err) {
    CAIRN_TRY(cairn_buf_append_text(sql, "SELECT ", err));
    for (size_t i = 0; i < table->column_count; i++)
        CAIRN_TRY(cairn_buf_printf(sql, err, "%s%s", i ? ", " : "", table->columns[i]));
    CAIRN_TRY(cairn_buf_printf(sql, err, " FROM %s", table->name));
    if (after) CAIRN_TRY(put_after(table, sql, err));
    CAIRN_TRY(cairn_buf_append_text(sql, " ORDER BY ", err));
    CAIRN_TRY(put_key(table, backwards ? " DESC" : "", sql, err));
    if (backwards) return cairn_buf_append_text(sql, " LIMIT 1", err);
    return cairn_buf_printf(sql, err, " LIMIT ?%zu", after ? table->key_count + 1 : 1);
}

static enum cairn_code make_texts(const struct srv_table *table, struct srv_copy_texts *ret,
                                  struct cairn_error *err) {
    CAIRN_TRY(put_select(table, false, false, &ret->texts[0], err));
    CAIRN_TRY(put_select(table, true, false, &ret->texts[1], err));
    CAIRN_TRY(put_select(table, false, true, &ret->texts[2], err));
    CAIRN_TRY(cairn_buf_printf(&ret->texts[3], err, "SELECT count(*) FROM %s", table->name));
    CAIRN_TRY(cairn_buf_printf(&ret->texts[4], err, "DELETE FROM %s", table->name));
    for (size_t i = 0; i < table->key_count; i++) ret->types[i] = table->types[table->key[i]];
    ret->types[table->key_count] = 'i';
    ret->first = (struct srv_statement){table->name, "i", ret->texts[0].data};
    ret->after = (struct srv_statement){table->name, ret->types, ret->texts[1].data};
    ret->last = (struct srv_statement){table->name, "", ret->texts[2].data};
    ret->count = (struct srv_statement){table->name, "", ret->texts[3].data};
    ret->clear = (struct srv_statement){table->name, "", ret->texts[4].data};
    return CAIRN_OK;
}

static enum cairn_code make_all_texts(struct srv_copy_end *end, struct cairn_error *err) {
    end->texts = calloc(end->tables->count, sizeof(*end->texts));
    if (!end->texts) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for statements");
    for (size_t i = 0; i < end->tables->count; i++)
        CAIRN_TRY(make_texts(&end->tables->at[i], &end->texts[i], err));
    return CAIRN_OK;
}

static enum cairn_code open_connections(const char *where, struct srv_copy_end *end,
                                        struct cairn_error *err) {
    struct srv_migrated migrated;
    CAIRN_TRY(end->engine->take(where, &end->place, err));
    end->called = end->engine->describe(end->place);
    CAIRN_TRY(end->engine->connect(end->place, false, &end->writer, err));
    CAIRN_TRY(end->engine->alone(end->writer, err));
    CAIRN_TRY(end->engine->migrate(end->writer, &migrated, err));
    return end->engine->connect(end->place, true, &end->reader, err);
}

enum cairn_code srv_copy_end_open(const char *where, bool is_source,
                                  const struct srv_tables *tables, struct srv_copy_end *ret,
                                  struct cairn_error *err) {
    *ret = (struct srv_copy_end){.engine = srv_engine_of(where), .tables = tables};
    if (is_source && !ret->engine->is_there(where))
        return cairn_fail(err, CAIRN_NOT_FOUND, "%s holds no catalog", where);
    enum cairn_code code = open_connections(where, ret, err);
    return code ? code : make_all_texts(ret, err);
}

enum cairn_code srv_copy_end_of(const struct srv_tables *tables, struct srv_copy_end *ret,
                                struct cairn_error *err) {
    *ret = (struct srv_copy_end){.engine = tables->tx->engine,
                                 .place = tables->place,
                                 .writer = tables->tx,
                                 .reader = tables->tx,
                                 .tables = tables,
                                 .called = "a new catalog"};
    return make_all_texts(ret, err);
}

void srv_copy_end_close(struct srv_copy_end *end) {
    bool borrowed = end->tables && end->place == end->tables->place;
    if (end->reader && !borrowed) end->engine->disconnect(end->reader);
    if (end->writer && !borrowed) end->engine->disconnect(end->writer);
    if (end->place && !borrowed) end->engine->leave(end->place);
    for (size_t i = 0; end->texts && i < end->tables->count; i++)
        for (size_t k = 0; k < CAIRN_COUNT(end->texts[i].texts); k++)
            cairn_buf_release(&end->texts[i].texts[k]);
    free(end->texts);
    *end = (struct srv_copy_end){0};
}

void srv_pack_release(struct srv_pack *pack) {
    cairn_buf_release(&pack->bytes);
    pack->rows = 0;
}

static void clear_pack(struct srv_pack *pack) {
    cairn_buf_clear(&pack->bytes);
    pack->rows = 0;
}

static enum cairn_code add_value(struct srv_pack *pack, const void *data, size_t size,
                                 struct cairn_error *err) {
    uint32_t length = htobe32((uint32_t)size);
    CAIRN_TRY(cairn_buf_append(&pack->bytes, &length, sizeof(length), err));
    return size ? cairn_buf_append(&pack->bytes, data, size, err) : CAIRN_OK;
}

static enum cairn_code add_null(struct srv_pack *pack, struct cairn_error *err) {
    uint32_t null = UINT32_MAX;
    return cairn_buf_append(&pack->bytes, &null, sizeof(null), err);
}

static enum cairn_code add_column(struct srv_pack *pack, char type, const struct srv_rows *row,
                                  int column, struct cairn_error *err) {
    if (srv_rows_null(row, column)) return add_null(pack, err);
    if (type == 'i') {
        uint64_t number = htobe64((uint64_t)srv_rows_i64(row, column));
        return add_value(pack, &number, sizeof(number), err);
    }
    struct cairn_view value =
        type == 't' ? cairn_view_of(srv_rows_text(row, column)) : srv_rows_blob(row, column);
    return add_value(pack, value.data, value.size, err);
}

static enum cairn_code begin_row(struct srv_pack *pack, const struct srv_table *table,
                                 struct cairn_error *err) {
    uint16_t count = htobe16((uint16_t)table->column_count);
    pack->bytes.limit = SRV_PACK_BYTES_MAX;
    return cairn_buf_append(&pack->bytes, &count, sizeof(count), err);
}

/* Packs a row with this text key and nulls. */
static enum cairn_code add_key_row(struct srv_pack *pack, const struct srv_table *table,
                                   const char *key, struct cairn_error *err) {
    CAIRN_TRY(begin_row(pack, table, err));
    for (size_t i = 0; i < table->column_count; i++) {
        bool is_key = i == table->key[0];
        CAIRN_TRY(is_key ? add_value(pack, key, strlen(key), err) : add_null(pack, err));
    }
    pack->rows++;
    return CAIRN_OK;
}

static const void *take(struct srv_unpacked *at, size_t size) {
    const char *taken = at->left.data;
    CAIRN_ASSERT(size <= at->left.size); /* bytes that this program packed */
    at->left = (struct cairn_view){taken + size, at->left.size - size};
    return taken;
}

bool srv_unpack(struct srv_unpacked *at) {
    if (!at->left.size) return false;
    uint16_t count;
    const char *begin = at->left.data;
    memcpy(&count, take(at, sizeof(count)), sizeof(count));
    at->column_count = be16toh(count);
    CAIRN_ASSERT(at->column_count <= SRV_COLUMNS_MAX);
    for (size_t i = 0; i < at->column_count; i++) {
        uint32_t size;
        memcpy(&size, take(at, sizeof(size)), sizeof(size));
        size = be32toh(size);
        bool null = size == UINT32_MAX;
        at->columns[i] = (struct cairn_view){0};
        if (!null) at->columns[i] = (struct cairn_view){take(at, size), size};
    }
    at->row = (struct cairn_view){begin, (size_t)((const char *)at->left.data - begin)};
    return true;
}

int64_t srv_unpacked_number(const struct srv_unpacked *at, size_t column) {
    uint64_t number;
    CAIRN_ASSERT(at->columns[column].size == sizeof(number));
    memcpy(&number, at->columns[column].data, sizeof(number));
    return (int64_t)be64toh(number);
}

static int compare_bytes(struct cairn_view a, struct cairn_view b) {
    int order = memcmp(a.data, b.data, a.size < b.size ? a.size : b.size);
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

int srv_unpacked_compare(const struct srv_table *table, const struct srv_unpacked *a,
                         const struct srv_unpacked *b) {
    for (size_t i = 0; i < table->key_count; i++) {
        size_t column = table->key[i];
        int order = 0;
        if (table->types[column] == 'i') {
            int64_t left = srv_unpacked_number(a, column);
            int64_t right = srv_unpacked_number(b, column);
            order = (left > right) - (left < right);
        } else {
            order = compare_bytes(a->columns[column], b->columns[column]);
        }
        if (order) return order;
    }
    return 0;
}

void srv_copy_cursor_release(struct srv_copy_cursor *at) {
    srv_pack_release(&at->page);
    cairn_buf_release(&at->key);
}

static enum cairn_code read_rows(struct srv_tx *tx, const struct srv_table *table,
                                 const struct srv_statement *statement,
                                 const struct srv_value *values, struct srv_pack *ret,
                                 struct cairn_error *err) {
    SRV_AUTO(rows) rows = {.tx = tx};
    CAIRN_TRY(tx->engine->start(tx, statement, values, &rows.running, err));
    SQL_EACH(&rows, err) {
        CAIRN_TRY(begin_row(ret, table, err));
        for (size_t i = 0; i < table->column_count; i++)
            CAIRN_TRY(add_column(ret, table->types[i], &rows, (int)i, err));
        ret->rows++;
    }
    return CAIRN_OK;
}

/* One read per page: no process writes the source, and only copied rows of the target are read. */
static enum cairn_code look(struct srv_copy_end *end, size_t table,
                            const struct srv_statement *statement, const struct srv_value *values,
                            struct srv_pack *ret, struct cairn_error *err) {
    CAIRN_TRY(end->engine->begin_read(end->reader, err));
    enum cairn_code code =
        read_rows(end->reader, &end->tables->at[table], statement, values, ret, err);
    end->engine->end_read(end->reader);
    return code
               ? cairn_within(err, code, "table %s of %s", end->tables->at[table].name, end->called)
               : CAIRN_OK;
}

/* Sets key columns as parameters; texts are copied, since they must end with a NUL. */
static enum cairn_code set_key(const struct srv_table *table, const struct cairn_buf *key,
                               struct srv_value *values, struct cairn_buf *texts,
                               struct cairn_error *err) {
    struct srv_unpacked row = {.left = cairn_buf_view(key)};
    size_t at[SRV_KEY_MAX] = {0};
    bool is_row = srv_unpack(&row);
    CAIRN_ASSERT(is_row);
    for (size_t i = 0; i < table->key_count; i++) {
        struct cairn_view value = row.columns[table->key[i]];
        char type = table->types[table->key[i]];
        values[i] = (struct srv_value){.type = type, .bytes = value};
        if (type == 'i') values[i].number = srv_unpacked_number(&row, table->key[i]);
        if (type != 't') continue;
        at[i] = texts->size;
        CAIRN_TRY(cairn_buf_append(texts, value.data, value.size, err));
        CAIRN_TRY(cairn_buf_append(texts, "", 1, err));
    }
    for (size_t i = 0; i < table->key_count; i++)
        if (values[i].type == 't') values[i].text = texts->data + at[i];
    return CAIRN_OK;
}

/* The next page begins after this page's last row; its length depends on this page's size. */
static enum cairn_code step(struct srv_copy_cursor *at, struct cairn_error *err) {
    struct srv_unpacked row = {.left = cairn_buf_view(&at->page.bytes)};
    if (!at->page.rows) return CAIRN_OK;
    while (srv_unpack(&row)) continue;
    at->begun = true;
    cairn_buf_clear(&at->key);
    at->key.limit = SRV_PACK_BYTES_MAX;
    CAIRN_TRY(cairn_buf_append(&at->key, row.row.data, row.row.size, err));
    uint64_t fit = PAGE_BYTES / (at->page.bytes.size / at->page.rows + 1) + 1;
    uint64_t grown = cairn_min_u64(4 * at->page.rows, SRV_COPY_ROWS_MAX);
    at->rows_next = cairn_min_u64(fit, cairn_max_u64(grown, FIRST_ROWS));
    return CAIRN_OK;
}

enum cairn_code srv_copy_page(struct srv_copy_end *end, size_t table, struct srv_copy_cursor *at,
                              struct cairn_error *err) {
    const struct srv_table *of = &end->tables->at[table];
    const struct srv_copy_texts *texts = &end->texts[table];
    struct srv_value values[SRV_KEY_MAX + 1];
    CAIRN_AUTO(buf) held = {.limit = SRV_PACK_BYTES_MAX};
    size_t count = at->begun ? of->key_count : 0;
    if (at->begun) CAIRN_TRY(set_key(of, &at->key, values, &held, err));
    values[count] = SQL_I(at->rows_next ? at->rows_next : FIRST_ROWS);
    clear_pack(&at->page);
    CAIRN_TRY(look(end, table, at->begun ? &texts->after : &texts->first, values, &at->page, err));
    return step(at, err);
}

enum cairn_code srv_copy_last(struct srv_copy_end *end, size_t table, struct srv_copy_cursor *at,
                              struct cairn_error *err) {
    clear_pack(&at->page);
    CAIRN_TRY(look(end, table, &end->texts[table].last, NULL, &at->page, err));
    return step(at, err);
}

enum cairn_code srv_copy_behind(struct srv_copy_end *end, size_t table, const char *key,
                                struct srv_copy_cursor *at, struct cairn_error *err) {
    const struct srv_table *of = &end->tables->at[table];
    CAIRN_ASSERT(of->key_count == 1 && of->types[of->key[0]] == 't');
    clear_pack(&at->page);
    CAIRN_TRY(add_key_row(&at->page, of, key, err));
    return step(at, err);
}

enum cairn_code srv_copy_count(struct srv_copy_end *end, size_t table, uint64_t *ret,
                               struct cairn_error *err) {
    bool found = false;
    int64_t count = 0;
    CAIRN_TRY(end->engine->begin_read(end->reader, err));
    enum cairn_code code =
        srv_sql_number(end->reader, &found, &count, err, &end->texts[table].count);
    end->engine->end_read(end->reader);
    *ret = (uint64_t)count;
    return code;
}

enum cairn_code srv_copy_clear(struct srv_copy_end *end, size_t table, struct cairn_error *err) {
    return srv_sql_run(end->writer, NULL, err, &end->texts[table].clear);
}

/* Read from SQLite, which has its schema as rows. */

#define TABLES_MAX 256

static const struct srv_statement all_tables = {
    "tables", "",
    "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' AND name NOT "
    "IN ('servers', 'leases') ORDER BY rowid"}; /* these describe processes */
static const struct srv_statement all_columns = {
    "columns", "t", "SELECT name, type, pk FROM pragma_table_info(?1) ORDER BY cid"};

static char type_of(const char *declared) {
    return !strcmp(declared, "INTEGER") ? 'i' : !strcmp(declared, "TEXT") ? 't' : 'b';
}

static void add_table_column(struct srv_table *table, const struct srv_rows *row) {
    size_t number = table->column_count++, place = (size_t)srv_rows_i64(row, 2);
    CAIRN_ASSERT(number < SRV_COLUMNS_MAX);
    CAIRN_ASSERT(place <= SRV_KEY_MAX);
    (void)cairn_text_copy(table->columns[number], sizeof(table->columns[number]),
                          srv_rows_text(row, 0));
    table->types[number] = type_of(srv_rows_text(row, 1));
    if (!place) return;
    table->key[place - 1] = number;
    if (place > table->key_count) table->key_count = place;
}

static enum cairn_code read_columns(struct srv_tx *tx, struct srv_table *table,
                                    struct cairn_error *err) {
    SQL_OPEN(rows, tx, err, &all_columns, SQL_T(table->name));
    SQL_EACH(&rows, err) add_table_column(table, &rows);
    CAIRN_ASSERT(table->key_count > 0); /* rows without a key cannot be compared */
    return CAIRN_OK;
}

static enum cairn_code read_tables(struct srv_tables *tables, struct cairn_error *err) {
    SQL_OPEN(rows, tables->tx, err, &all_tables);
    SQL_EACH(&rows, err) {
        CAIRN_TRY(CAIRN_ARRAY_ROOM(tables->at, tables->count, tables->capacity, TABLES_MAX,
                                   "tables", err));
        struct srv_table *table = &tables->at[tables->count++];
        *table = (struct srv_table){0};
        (void)cairn_text_copy(table->name, sizeof(table->name), srv_rows_text(&rows, 0));
        CAIRN_TRY(read_columns(tables->tx, table, err));
    }
    return CAIRN_OK;
}

enum cairn_code srv_tables_read(struct srv_tables *ret, struct cairn_error *err) {
    const struct srv_engine *engine = &srv_engine_sqlite;
    struct srv_tables tables = {0};
    struct srv_migrated none;
    enum cairn_code code = engine->take(SRV_SQLITE_MEMORY, &tables.place, err);
    if (!code) code = engine->connect(tables.place, false, &tables.tx, err);
    if (!code) code = engine->migrate(tables.tx, &none, err);
    if (!code) code = read_tables(&tables, err);
    if (code)
        srv_tables_release(&tables);
    else
        *ret = tables;
    return code;
}

void srv_tables_release(struct srv_tables *tables) {
    if (tables->tx) srv_engine_sqlite.disconnect(tables->tx);
    if (tables->place) srv_engine_sqlite.leave(tables->place);
    free(tables->at);
    *tables = (struct srv_tables){0};
}
