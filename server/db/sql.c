/* SPDX-License-Identifier: Apache-2.0 */
/* The statement tables, calls into the engine, lists, and single values; see sql.h. */
#include "server/db/sql.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/db/engine.h"
#include "server/db/predicates.h"

const struct srv_statement srv_statements[] = {
#define STATEMENT(name, types, sql) {#name, types, sql},
#include "server/db/statements.def"
#undef STATEMENT
};
const size_t srv_statement_count = CAIRN_COUNT(srv_statements);

const struct srv_migration srv_migrations[] = {
#define MIGRATION(number, sql) {number, sql},
#include "server/db/migrations.def"
#undef MIGRATION
};
const size_t srv_migration_count = CAIRN_COUNT(srv_migrations);

unsigned srv_catalog_schema(void) {
    return srv_migrations[srv_migration_count - 1].number;
}

static void collect(struct srv_value ret[SRV_PARAMETERS_MAX], const struct srv_statement *statement,
                    va_list *arguments) {
    for (size_t i = 0; statement->types[i]; i++) {
        CAIRN_ASSERT(i < SRV_PARAMETERS_MAX);
        ret[i] = va_arg(*arguments, struct srv_value);
        CAIRN_ASSERT(ret[i].type == statement->types[i]); /* sql.h#1 */
    }
}

/* Passes the code on; a failure of the database itself is kept for the end of the look. */
static enum cairn_code noted(struct srv_tx *tx, enum cairn_code code,
                             const struct cairn_error *err) {
    if ((code != CAIRN_IO && code != CAIRN_UNAVAILABLE) || tx->broken.code) return code;
    if (err) tx->broken = *err;
    return err ? code : cairn_fail(&tx->broken, code, "catalog: a query failed");
}

/* The call's code; `arguments` in it are the values behind `statement`. */
#define WITH_VALUES(call)                                                                          \
    __extension__({                                                                                \
        va_list arguments;                                                                         \
        va_start(arguments, statement);                                                            \
        enum cairn_code called = (call);                                                           \
        va_end(arguments);                                                                         \
        called;                                                                                    \
    })

static enum cairn_code start(struct srv_tx *tx, struct srv_rows *ret, struct cairn_error *err,
                             const struct srv_statement *statement, va_list *arguments) {
    struct srv_value values[SRV_PARAMETERS_MAX];
    void *running = NULL;
    collect(values, statement, arguments);
    CAIRN_TRY(noted(tx, tx->engine->start(tx, statement, values, &running, err), err));
    *ret = (struct srv_rows){running, tx};
    return CAIRN_OK;
}

static enum cairn_code first(struct srv_tx *tx, struct srv_rows *ret, bool *ret_found,
                             struct cairn_error *err, const struct srv_statement *statement,
                             va_list *arguments) {
    CAIRN_TRY(start(tx, ret, err, statement, arguments));
    return srv_rows_next(ret, ret_found, err);
}

enum cairn_code srv_sql_open(struct srv_tx *tx, struct srv_rows *ret, struct cairn_error *err,
                             const struct srv_statement *statement, ...) {
    return WITH_VALUES(start(tx, ret, err, statement, &arguments));
}

enum cairn_code srv_sql_first(struct srv_tx *tx, struct srv_rows *ret, bool *ret_found,
                              struct cairn_error *err, const struct srv_statement *statement, ...) {
    return WITH_VALUES(first(tx, ret, ret_found, err, statement, &arguments));
}

enum cairn_code srv_rows_next(struct srv_rows *rows, bool *ret_more, struct cairn_error *err) {
    return noted(rows->tx, rows->tx->engine->next(rows->tx, rows->running, ret_more, err), err);
}

void srv_rows_release(struct srv_rows *rows) {
    if (rows->running) rows->tx->engine->finish(rows->tx, rows->running);
    rows->running = NULL;
}

bool srv_rows_null(const struct srv_rows *rows, int column) {
    return rows->tx->engine->is_null(rows->running, column);
}

int64_t srv_rows_i64(const struct srv_rows *rows, int column) {
    return rows->tx->engine->number(rows->running, column);
}

const char *srv_rows_text(const struct srv_rows *rows, int column) {
    return rows->tx->engine->text(rows->running, column);
}

struct cairn_view srv_rows_blob(const struct srv_rows *rows, int column) {
    return rows->tx->engine->bytes(rows->running, column);
}

static enum cairn_code run(struct srv_tx *tx, uint64_t *ret_changed, struct cairn_error *err,
                           const struct srv_statement *statement, va_list *arguments) {
    struct srv_value values[SRV_PARAMETERS_MAX];
    collect(values, statement, arguments);
    return noted(tx, tx->engine->run(tx, statement, values, ret_changed, err), err);
}

enum cairn_code srv_sql_run(struct srv_tx *tx, uint64_t *ret_changed, struct cairn_error *err,
                            const struct srv_statement *statement, ...) {
    return WITH_VALUES(run(tx, ret_changed, err, statement, &arguments));
}

enum cairn_code srv_sql_changed(struct srv_tx *tx, bool *ret, struct cairn_error *err,
                                const struct srv_statement *statement, ...) {
    uint64_t changed = 0;
    enum cairn_code code = WITH_VALUES(run(tx, &changed, err, statement, &arguments));
    if (!code) *ret = changed > 0;
    return code;
}

enum cairn_code srv_sql_expect(struct srv_tx *tx, struct cairn_error *err,
                               const struct srv_statement *statement, ...) {
    struct srv_value values[SRV_PARAMETERS_MAX];
    va_list arguments;
    va_start(arguments, statement);
    collect(values, statement, &arguments);
    va_end(arguments);
    return tx->engine->expect ? noted(tx, tx->engine->expect(tx, statement, values, err), err)
                              : CAIRN_OK;
}

enum cairn_code srv_sql_number(struct srv_tx *tx, bool *ret_found, int64_t *ret,
                               struct cairn_error *err, const struct srv_statement *statement,
                               ...) {
    SRV_AUTO(rows) rows = {0};
    bool found = false;
    enum cairn_code code = WITH_VALUES(first(tx, &rows, &found, err, statement, &arguments));
    if (!code && found && ret) *ret = srv_rows_i64(&rows, 0);
    if (!code) *ret_found = found;
    return code;
}

enum cairn_code srv_sql_u64(struct srv_tx *tx, uint64_t *ret, struct cairn_error *err,
                            const struct srv_statement *statement, ...) {
    SRV_AUTO(rows) rows = {0};
    bool found = false;
    enum cairn_code code = WITH_VALUES(first(tx, &rows, &found, err, statement, &arguments));
    if (!code) *ret = found ? srv_rows_u64(&rows, 0) : 0;
    return code;
}

enum cairn_code srv_sql_text(struct srv_tx *tx, char *ret, size_t capacity, struct cairn_error *err,
                             const struct srv_statement *statement, ...) {
    SRV_AUTO(rows) rows = {0};
    bool found = false;
    enum cairn_code code = WITH_VALUES(first(tx, &rows, &found, err, statement, &arguments));
    if (!code) (void)cairn_text_copy(ret, capacity, found ? srv_rows_text(&rows, 0) : "");
    return code;
}

enum cairn_code srv_sql_row(struct srv_tx *tx, struct srv_fields fields, void *ret, bool *ret_found,
                            struct cairn_error *err, const struct srv_statement *statement, ...) {
    SRV_AUTO(rows) rows = {0};
    enum cairn_code code = WITH_VALUES(first(tx, &rows, ret_found, err, statement, &arguments));
    if (code || !*ret_found || srv_rows_take(&rows, 0, fields, ret)) return code;
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a row");
}

static void take_number(int64_t number, size_t size, void *to) {
    if (size == sizeof(bool)) *(bool *)to = number != 0;
    if (size == sizeof(uint32_t)) *(uint32_t *)to = (uint32_t)number;
    if (size == sizeof(int64_t)) *(int64_t *)to = number;
}

bool srv_rows_take(const struct srv_rows *rows, int column, struct srv_fields fields, void *ret) {
    bool good = true;
    for (size_t i = 0; i < fields.count; i++) {
        const struct srv_field *field = &fields.at[i];
        void *to = (char *)ret + field->at;
        struct cairn_view bytes = {0};
        const char *text = "";
        if (strchr("vd#", field->kind)) bytes = srv_rows_blob(rows, column);
        if (strchr("top", field->kind)) text = srv_rows_text(rows, column);
        if (field->kind == 'n') take_number(srv_rows_i64(rows, column), field->size, to);
        if (field->kind == 't') (void)cairn_text_copy(to, field->size, text);
        if (field->kind == 'o') good &= (*(char **)to = strdup(text)) != NULL;
        if (field->kind == 'p') *(const char **)to = text;
        if (field->kind == 'v') *(struct cairn_view *)to = bytes;
        if (field->kind == 'd' && bytes.size == 32) memcpy(to, bytes.data, 32);
        if (field->kind == '#') *(bool *)to = bytes.size == 32;
        if (field->kind == '?') *(bool *)to = !srv_rows_null(rows, column);
        column += field->kind != '#' && field->kind != '?';
    }
    return good;
}

enum cairn_code srv_sql_found(struct srv_tx *tx, bool *ret, struct cairn_error *err,
                              const struct srv_statement *statement, ...) {
    SRV_AUTO(rows) rows = {0};
    return WITH_VALUES(first(tx, &rows, ret, err, statement, &arguments));
}

static enum cairn_code get_tick(struct srv_tx *tx, int64_t *ret, struct cairn_error *err) {
    bool found = false;
    CAIRN_TRY(srv_sql_number(tx, &found, ret, err, SQL(tick)));
    CAIRN_ASSERT(found); /* the first migration made the row */
    return CAIRN_OK;
}

uint64_t srv_tick(struct srv_tx *tx) {
    int64_t value = 0;
    return get_tick(tx, &value, NULL) ? 0 : (uint64_t)value;
}

enum cairn_code srv_value_get(struct srv_tx *tx, const char *name, char *ret, size_t capacity,
                              struct cairn_error *err) {
    return srv_sql_text(tx, ret, capacity, err, SQL(meta_get), SQL_T(name));
}

enum cairn_code srv_store_seen_get(struct srv_tx *tx, struct srv_store_seen *ret,
                                   struct cairn_error *err) {
    char number[32];
    CAIRN_TRY(srv_value_get(tx, "store_uuid", ret->uuid, sizeof(ret->uuid), err));
    CAIRN_TRY(srv_value_get(tx, "generation", number, sizeof(number), err));
    ret->generation = strtoull(number, NULL, 10);
    return CAIRN_OK;
}

enum cairn_code srv_store_seen_put(struct srv_tx *tx, const struct srv_store_seen *seen,
                                   struct cairn_error *err) {
    char number[32];
    snprintf(number, sizeof(number), "%" PRIu64, seen->generation);
    CAIRN_TRY(srv_value_put(tx, "store_uuid", seen->uuid, err));
    return srv_value_put(tx, "generation", number, err);
}

#define ITEMS_MAX 100000000

void srv_ids_release(struct srv_ids *ids) {
    free(ids->ids);
    *ids = (struct srv_ids){0};
}

enum cairn_code srv_ids_add(struct srv_ids *ids, const struct cairn_version_id *id,
                            struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(ids->ids, ids->count, ids->capacity, ITEMS_MAX, "versions", err));
    ids->ids[ids->count++] = *id;
    return CAIRN_OK;
}

enum cairn_code srv_ids_read(struct srv_rows *rows, size_t limit, struct srv_ids *ret,
                             struct cairn_error *err) {
    bool more = true;
    ret->count = 0;
    while (ret->count < limit) {
        CAIRN_TRY(srv_rows_next(rows, &more, err));
        if (!more) break;
        struct cairn_version_id id;
        SQL_COPY(id.text, rows, 0);
        CAIRN_TRY(srv_ids_add(ret, &id, err));
    }
    return CAIRN_OK;
}

enum cairn_code srv_sql_ids(struct srv_tx *tx, size_t limit, struct srv_ids *ret,
                            struct cairn_error *err, const struct srv_statement *statement, ...) {
    SRV_AUTO(rows) rows = {0};
    enum cairn_code code = WITH_VALUES(start(tx, &rows, err, statement, &arguments));
    return code ? code : srv_ids_read(&rows, limit, ret, err);
}

void srv_rows_name(const struct srv_rows *rows, int column, struct cairn_run_name *ret) {
    SQL_COPY(ret->project, rows, column);
    SQL_COPY(ret->run, rows, column + 1);
}

void srv_run_names_release(struct srv_run_names *names) {
    free(names->names);
    *names = (struct srv_run_names){0};
}

enum cairn_code srv_run_names_read(struct srv_rows *rows, size_t limit, struct srv_run_names *ret,
                                   struct cairn_error *err) {
    bool more = true;
    for (ret->count = 0; ret->count < limit; ret->count++) {
        CAIRN_TRY(srv_rows_next(rows, &more, err));
        if (!more) break;
        CAIRN_TRY(CAIRN_ARRAY_ROOM(ret->names, ret->count, ret->capacity, ITEMS_MAX, "runs", err));
        struct cairn_run_name *name = &ret->names[ret->count];
        srv_rows_name(rows, 0, name);
    }
    return CAIRN_OK;
}

bool *srv_sql_looking(void) {
    static _Thread_local bool looking;
    return &looking;
}
