/* SPDX-License-Identifier: Apache-2.0 */
/* The statement tables, calls into the engine, lists, and single values; see sql.h. */
#include "server/db/sql.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/buf.h"
#include "server/db/engine.h"
#include "server/db/predicates.h"

const struct cairn_srv_statement cairn_srv_statements[] = {
#define STATEMENT(name, types, sql) {#name, types, sql},
#include "server/db/statements.def"
#undef STATEMENT
};
const size_t cairn_srv_statement_count = CAIRN_COUNT(cairn_srv_statements);

const struct cairn_srv_migration cairn_srv_migrations[] = {
#define MIGRATION(number, sql) {number, sql},
#include "server/db/migrations.def"
#undef MIGRATION
};
const size_t cairn_srv_migration_count = CAIRN_COUNT(cairn_srv_migrations);

unsigned cairn_srv_catalog_schema(void) {
    return cairn_srv_migrations[cairn_srv_migration_count - 1].number;
}

static void collect(struct cairn_srv_value ret[CAIRN_SRV_PARAMETERS_MAX],
                    const struct cairn_srv_statement *statement, va_list *arguments) {
    for (size_t i = 0; statement->types[i]; i++) {
        CAIRN_ASSERT(i < CAIRN_SRV_PARAMETERS_MAX);
        ret[i] = va_arg(*arguments, struct cairn_srv_value);
        CAIRN_ASSERT(ret[i].type == statement->types[i]); /* sql.h#1 */
    }
}

static enum cairn_code start(struct cairn_srv_tx *tx, struct cairn_srv_rows *ret,
                             struct cairn_error *err, const struct cairn_srv_statement *statement,
                             va_list *arguments) {
    struct cairn_srv_value values[CAIRN_SRV_PARAMETERS_MAX];
    void *running = NULL;
    collect(values, statement, arguments);
    CAIRN_TRY(tx->engine->start(tx, statement, values, &running, err));
    *ret = (struct cairn_srv_rows){running, tx};
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

enum cairn_code cairn_srv_sql_first(struct cairn_srv_tx *tx, struct cairn_srv_rows *ret,
                                    bool *ret_found, struct cairn_error *err,
                                    const struct cairn_srv_statement *statement, ...) {
    va_list arguments;
    va_start(arguments, statement);
    enum cairn_code code = start(tx, ret, err, statement, &arguments);
    va_end(arguments);
    return code ? code : cairn_srv_rows_next(ret, ret_found, err);
}

enum cairn_code cairn_srv_rows_next(struct cairn_srv_rows *rows, bool *ret_more,
                                    struct cairn_error *err) {
    return rows->tx->engine->next(rows->tx, rows->running, ret_more, err);
}

void cairn_srv_rows_release(struct cairn_srv_rows *rows) {
    if (rows->running) rows->tx->engine->finish(rows->tx, rows->running);
    rows->running = NULL;
}

bool cairn_srv_rows_null(const struct cairn_srv_rows *rows, int column) {
    return rows->tx->engine->is_null(rows->running, column);
}

int64_t cairn_srv_rows_i64(const struct cairn_srv_rows *rows, int column) {
    return rows->tx->engine->number(rows->running, column);
}

const char *cairn_srv_rows_text(const struct cairn_srv_rows *rows, int column) {
    return rows->tx->engine->text(rows->running, column);
}

struct cairn_view cairn_srv_rows_blob(const struct cairn_srv_rows *rows, int column) {
    return rows->tx->engine->bytes(rows->running, column);
}

enum cairn_code cairn_srv_sql_run(struct cairn_srv_tx *tx, uint64_t *ret_changed,
                                  struct cairn_error *err,
                                  const struct cairn_srv_statement *statement, ...) {
    struct cairn_srv_value values[CAIRN_SRV_PARAMETERS_MAX];
    va_list arguments;
    va_start(arguments, statement);
    collect(values, statement, &arguments);
    va_end(arguments);
    return tx->engine->run(tx, statement, values, ret_changed, err);
}

enum cairn_code cairn_srv_sql_expect(struct cairn_srv_tx *tx, struct cairn_error *err,
                                     const struct cairn_srv_statement *statement, ...) {
    struct cairn_srv_value values[CAIRN_SRV_PARAMETERS_MAX];
    va_list arguments;
    va_start(arguments, statement);
    collect(values, statement, &arguments);
    va_end(arguments);
    return tx->engine->expect ? tx->engine->expect(tx, statement, values, err) : CAIRN_OK;
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

static enum cairn_code get_tick(struct cairn_srv_tx *tx, int64_t *ret, struct cairn_error *err) {
    bool found = false;
    CAIRN_TRY(cairn_srv_sql_number(tx, &found, ret, err, SQL(tick)));
    CAIRN_ASSERT(found); /* the first migration made the row */
    return CAIRN_OK;
}

uint64_t cairn_srv_tick(struct cairn_srv_tx *tx) {
    int64_t value = 0;
    return get_tick(tx, &value, NULL) ? 0 : (uint64_t)value;
}

enum cairn_code cairn_srv_value_get(struct cairn_srv_tx *tx, const char *name, char *ret,
                                    size_t capacity, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    bool more = false;
    CAIRN_TRY(cairn_srv_sql_first(tx, &rows, &more, err, SQL(meta_get), SQL_T(name)));
    (void)cairn_text_copy(ret, capacity, more ? cairn_srv_rows_text(&rows, 0) : "");
    return CAIRN_OK;
}

enum cairn_code cairn_srv_store_seen_get(struct cairn_srv_tx *tx, struct cairn_srv_store_seen *ret,
                                         struct cairn_error *err) {
    char number[32];
    CAIRN_TRY(cairn_srv_value_get(tx, "store_uuid", ret->uuid, sizeof(ret->uuid), err));
    CAIRN_TRY(cairn_srv_value_get(tx, "generation", number, sizeof(number), err));
    ret->generation = strtoull(number, NULL, 10);
    return CAIRN_OK;
}

enum cairn_code cairn_srv_store_seen_put(struct cairn_srv_tx *tx,
                                         const struct cairn_srv_store_seen *seen,
                                         struct cairn_error *err) {
    char number[32];
    snprintf(number, sizeof(number), "%" PRIu64, seen->generation);
    CAIRN_TRY(cairn_srv_value_put(tx, "store_uuid", seen->uuid, err));
    return cairn_srv_value_put(tx, "generation", number, err);
}

#define ITEMS_MAX 100000000

void cairn_srv_ids_release(struct cairn_srv_ids *ids) {
    free(ids->ids);
    *ids = (struct cairn_srv_ids){0};
}

enum cairn_code cairn_srv_ids_add(struct cairn_srv_ids *ids, const struct cairn_version_id *id,
                                  struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(ids->ids, ids->count, ids->capacity, ITEMS_MAX, "versions", err));
    ids->ids[ids->count++] = *id;
    return CAIRN_OK;
}

enum cairn_code cairn_srv_ids_read(struct cairn_srv_rows *rows, size_t limit,
                                   struct cairn_srv_ids *ret, struct cairn_error *err) {
    bool more = true;
    ret->count = 0;
    while (ret->count < limit) {
        CAIRN_TRY(cairn_srv_rows_next(rows, &more, err));
        if (!more) break;
        struct cairn_version_id id;
        SQL_COPY(id.text, rows, 0);
        CAIRN_TRY(cairn_srv_ids_add(ret, &id, err));
    }
    return CAIRN_OK;
}

void cairn_srv_rows_name(const struct cairn_srv_rows *rows, int column,
                         struct cairn_run_name *ret) {
    SQL_COPY(ret->project, rows, column);
    SQL_COPY(ret->run, rows, column + 1);
}

void cairn_srv_run_names_release(struct cairn_srv_run_names *names) {
    free(names->names);
    *names = (struct cairn_srv_run_names){0};
}

enum cairn_code cairn_srv_run_names_read(struct cairn_srv_rows *rows, size_t limit,
                                         struct cairn_srv_run_names *ret, struct cairn_error *err) {
    bool more = true;
    for (ret->count = 0; ret->count < limit; ret->count++) {
        CAIRN_TRY(cairn_srv_rows_next(rows, &more, err));
        if (!more) break;
        CAIRN_TRY(CAIRN_ARRAY_ROOM(ret->names, ret->count, ret->capacity, ITEMS_MAX, "runs", err));
        struct cairn_run_name *name = &ret->names[ret->count];
        cairn_srv_rows_name(rows, 0, name);
    }
    return CAIRN_OK;
}
