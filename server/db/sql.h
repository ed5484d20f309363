/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql: the catalog's statements by name, their rows and lists, and single values of the catalog.
 *
 * Why:     with every statement in one table (statements.def) a test can check its plan. A list is
 *          read whole before use, since a row changed during the read may be returned twice or not
 *          at all. Catalog time stops while no server runs (Q34); a catalog must know its store
 *          (Q35).
 * Promise: 1   a value whose type differs from the statement's parameter type is an assert.
 *          2   a statement is prepared once a connection and kept.
 *          Q34  catalog time is one row, raised by compare-and-set.
 *          3   reading a list replaces its previous content.
 *          4   at most `limit` rows are read; the next round reads the rest.
 * Limits:  64 MiB a value; 16 parameters; 128 prepared statements; a statement's text lives as long
 *          as the process; lists as long as the caller says.
 * Threads: inside a transaction; a list belongs to its caller.
 * Next:    server/db/statements.def, server/db/predicates.h, server/db/engine.h,
 *          server/guard/identity.h.
 */
#pragma once

#include "api/documents/keys.h"
#include "common/text.h"
#include "common/trace.h"
#include "server/db/catalog.h"

#define CAIRN_SRV_PARAMETERS_MAX 16

struct cairn_srv_statement {
    const char *name;
    const char *types; /* of ?1, ?2, ...: i = integer, t = text or null, b = bytes or null */
    const char *sql;
};
/* The schema number in --version and /version. */
unsigned cairn_srv_catalog_schema(void);
extern const struct cairn_srv_statement cairn_srv_statements[];
extern const size_t cairn_srv_statement_count;

enum cairn_srv_statement_number {
#define STATEMENT(name, types, sql) CAIRN_SRV_STATEMENT_##name,
#include "server/db/statements.def"
#undef STATEMENT
};
#define SQL(name) (&cairn_srv_statements[CAIRN_SRV_STATEMENT_##name])

struct cairn_srv_value {
    char type;
    int64_t number;
    const char *text;
    struct cairn_view bytes;
};
#define SQL_I(value) ((struct cairn_srv_value){.type = 'i', .number = (int64_t)(value)})
#define SQL_T(value) ((struct cairn_srv_value){.type = 't', .text = (value)})  /* NULL: null */
#define SQL_B(value) ((struct cairn_srv_value){.type = 'b', .bytes = (value)}) /* no data: null */

#define SQL_D(digest) ((struct cairn_srv_value){.type = 'b', .bytes = {(digest), 32}})

/* Takes the statement's parameters in order: SQL_I, SQL_T, SQL_B, SQL_D. With ret_changed NULL a
 * failure may surface in a later statement of the same change, or at its end. */
enum cairn_code cairn_srv_sql_run(struct cairn_srv_tx *tx, uint64_t *ret_changed,
                                  struct cairn_error *err,
                                  const struct cairn_srv_statement *statement, ...) CAIRN_MUST_USE;
/* Announces a query with its values: over a network, all expected queries are waited for together.
 * A change in between makes it run again; beyond CAIRN_SRV_EXPECTED_MAX it runs alone. */
#define CAIRN_SRV_EXPECTED_MAX 256
enum cairn_code cairn_srv_sql_expect(struct cairn_srv_tx *tx, struct cairn_error *err,
                                     const struct cairn_srv_statement *statement,
                                     ...) CAIRN_MUST_USE;
/* True when there is a row. */
enum cairn_code cairn_srv_sql_found(struct cairn_srv_tx *tx, bool *ret, struct cairn_error *err,
                                    const struct cairn_srv_statement *statement,
                                    ...) CAIRN_MUST_USE;

/* Rows of a query: CAIRN_AUTO(srv_rows) rows = {0}; open; while next sets more; getters. */
struct cairn_srv_rows {
    void *running;
    struct cairn_srv_tx *tx;
};
enum cairn_code cairn_srv_sql_open(struct cairn_srv_tx *tx, struct cairn_srv_rows *ret,
                                   struct cairn_error *err,
                                   const struct cairn_srv_statement *statement, ...) CAIRN_MUST_USE;
/* Opens and moves to the first row; *ret_found false when there is none. */
enum cairn_code cairn_srv_sql_first(struct cairn_srv_tx *tx, struct cairn_srv_rows *ret,
                                    bool *ret_found, struct cairn_error *err,
                                    const struct cairn_srv_statement *statement,
                                    ...) CAIRN_MUST_USE;
enum cairn_code cairn_srv_rows_next(struct cairn_srv_rows *rows, bool *ret_more,
                                    struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_rows_release(struct cairn_srv_rows *rows);
bool cairn_srv_rows_null(const struct cairn_srv_rows *rows, int column);
int64_t cairn_srv_rows_i64(const struct cairn_srv_rows *rows, int column);
static inline uint64_t cairn_srv_rows_u64(const struct cairn_srv_rows *rows, int column) {
    return (uint64_t)cairn_srv_rows_i64(rows, column);
}
/* "" for null; valid until the next row. */
const char *cairn_srv_rows_text(const struct cairn_srv_rows *rows, int column);
struct cairn_view cairn_srv_rows_blob(const struct cairn_srv_rows *rows, int column);
#define SQL_COPY(array, rows, column)                                                              \
    (void)cairn_text_copy(array, sizeof(array), cairn_srv_rows_text(rows, column))
/* The first column of the first row; *ret_found false when there is none. */
enum cairn_code cairn_srv_sql_number(struct cairn_srv_tx *tx, bool *ret_found, int64_t *ret,
                                     struct cairn_error *err,
                                     const struct cairn_srv_statement *statement,
                                     ...) CAIRN_MUST_USE;

/* Prefix of inline functions in headers that run one statement. */
#define CAIRN_SRV_WORD static inline CAIRN_MUST_USE enum cairn_code

CAIRN_SRV_WORD cairn_srv_tick_expect(struct cairn_srv_tx *tx, struct cairn_error *err) {
    return cairn_srv_sql_expect(tx, err, SQL(tick));
}
uint64_t cairn_srv_tick(struct cairn_srv_tx *tx); /* catalog time in ms; 0 when unreadable */
/* Raises catalog time by step_ms, from the seen_ms read in this change. */
CAIRN_SRV_WORD cairn_srv_tick_raise(struct cairn_srv_tx *tx, uint64_t seen_ms, uint64_t step_ms,
                                    struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(tick_raise), SQL_I(step_ms), SQL_I(seen_ms));
}

/* One text by its name; "" if unset. */
enum cairn_code cairn_srv_value_get(struct cairn_srv_tx *tx, const char *name, char *ret,
                                    size_t capacity, struct cairn_error *err) CAIRN_MUST_USE;
CAIRN_SRV_WORD cairn_srv_value_put(struct cairn_srv_tx *tx, const char *name, const char *value,
                                   struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(meta_put), SQL_T(name), SQL_T(value));
}

struct cairn_srv_store_seen {
    char uuid[CAIRN_UUID_TEXT_BYTES]; /* "" in a new catalog */
    uint64_t generation;
};
enum cairn_code cairn_srv_store_seen_get(struct cairn_srv_tx *tx, struct cairn_srv_store_seen *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_store_seen_put(struct cairn_srv_tx *tx,
                                         const struct cairn_srv_store_seen *seen,
                                         struct cairn_error *err) CAIRN_MUST_USE;

#define CAIRN_SRV_ALL SIZE_MAX

struct cairn_srv_ids {
    struct cairn_version_id *ids;
    size_t count, capacity;
};
void cairn_srv_ids_release(struct cairn_srv_ids *ids);
enum cairn_code cairn_srv_ids_add(struct cairn_srv_ids *ids, const struct cairn_version_id *id,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Reads the first column of each row. */
enum cairn_code cairn_srv_ids_read(struct cairn_srv_rows *rows, size_t limit,
                                   struct cairn_srv_ids *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;

/* Project and run from this column and the next. */
void cairn_srv_rows_name(const struct cairn_srv_rows *rows, int column, struct cairn_run_name *ret);
struct cairn_srv_run_names {
    struct cairn_run_name *names;
    size_t count, capacity;
};
void cairn_srv_run_names_release(struct cairn_srv_run_names *names);
/* Reads project and run, the first two columns of each row. */
enum cairn_code cairn_srv_run_names_read(struct cairn_srv_rows *rows, size_t limit,
                                         struct cairn_srv_run_names *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
