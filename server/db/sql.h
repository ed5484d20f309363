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

#include "common/text.h"
#include "server/db/catalog.h"

#define SRV_PARAMETERS_MAX 16

struct srv_statement {
    const char *name;
    const char *types; /* of ?1, ?2, ...: i = integer, t = text or null, b = bytes or null */
    const char *sql;
};
/* The schema number in --version and /version. */
unsigned srv_catalog_schema(void);
extern const struct srv_statement srv_statements[];
extern const size_t srv_statement_count;

enum srv_statement_number {
#define STATEMENT(name, types, sql) SRV_STATEMENT_##name,
#include "server/db/statements.def"
#undef STATEMENT
};
#define SQL(name) (&srv_statements[SRV_STATEMENT_##name])

struct srv_value {
    char type;
    int64_t number;
    const char *text;
    struct cairn_view bytes;
};
#define SQL_I(value) ((struct srv_value){.type = 'i', .number = (int64_t)(value)})
#define SQL_T(value) ((struct srv_value){.type = 't', .text = (value)})  /* NULL: null */
#define SQL_B(value) ((struct srv_value){.type = 'b', .bytes = (value)}) /* no data: null */

#define SQL_D(digest) ((struct srv_value){.type = 'b', .bytes = {(digest), 32}})

/* Takes the statement's parameters in order: SQL_I, SQL_T, SQL_B, SQL_D. With ret_changed NULL a
 * failure may surface in a later statement of the same change, or at its end. */
enum cairn_code srv_sql_run(struct srv_tx *tx, uint64_t *ret_changed, struct cairn_error *err,
                            const struct srv_statement *statement, ...) CAIRN_MUST_USE;
/* Announces a query with its values: over a network, all expected queries are waited for together.
 * A change in between makes it run again; beyond SRV_EXPECTED_MAX it runs alone. */
#define SRV_EXPECTED_MAX 256
enum cairn_code srv_sql_expect(struct srv_tx *tx, struct cairn_error *err,
                               const struct srv_statement *statement, ...) CAIRN_MUST_USE;
/* True when there is a row. */
enum cairn_code srv_sql_found(struct srv_tx *tx, bool *ret, struct cairn_error *err,
                              const struct srv_statement *statement, ...) CAIRN_MUST_USE;

/* Rows of a query: SQL_OPEN; SQL_EACH; getters. */
struct srv_rows {
    void *running;
    struct srv_tx *tx;
};
enum cairn_code srv_sql_open(struct srv_tx *tx, struct srv_rows *ret, struct cairn_error *err,
                             const struct srv_statement *statement, ...) CAIRN_MUST_USE;
/* Opens and moves to the first row; *ret_found false when there is none. */
enum cairn_code srv_sql_first(struct srv_tx *tx, struct srv_rows *ret, bool *ret_found,
                              struct cairn_error *err, const struct srv_statement *statement,
                              ...) CAIRN_MUST_USE;
enum cairn_code srv_rows_next(struct srv_rows *rows, bool *ret_more,
                              struct cairn_error *err) CAIRN_MUST_USE;
/* Declare the rows, to be released at the end of the scope, and open them. */
#define SQL_OPEN(name, tx, err, ...) SRV_GET(rows, name, srv_sql_open(tx, &name, err, __VA_ARGS__))
#define SQL_FIRST(name, ret_found, tx, err, ...)                                                   \
    SRV_GET(rows, name, srv_sql_first(tx, &name, ret_found, err, __VA_ARGS__))
/* Runs its body for each row; a failure of the database returns its code from the function. */
#define SQL_EACH(rows, err)                                                                        \
    for (bool cairn_more = false; __extension__({                                                  \
             CAIRN_TRY(srv_rows_next((rows), &cairn_more, (err)));                                 \
             cairn_more;                                                                           \
         });)
void srv_rows_release(struct srv_rows *rows);
bool srv_rows_null(const struct srv_rows *rows, int column);
int64_t srv_rows_i64(const struct srv_rows *rows, int column);
static inline uint64_t srv_rows_u64(const struct srv_rows *rows, int column) {
    return (uint64_t)srv_rows_i64(rows, column);
}
/* "" for null; valid until the next row. */
const char *srv_rows_text(const struct srv_rows *rows, int column);
struct cairn_view srv_rows_blob(const struct srv_rows *rows, int column);
#define SQL_COPY(array, rows, column)                                                              \
    (void)cairn_text_copy(array, sizeof(array), srv_rows_text(rows, column))

/* Rows by a table (server/ledger/rows.def): where each column goes in a struct. */
struct srv_field {
    char kind;
    uint16_t at, size;
};
struct srv_fields {
    const struct srv_field *at;
    size_t count;
};
/* From that column on. False: no memory for a text on the heap; the other members are set. */
bool srv_rows_take(const struct srv_rows *rows, int column, struct srv_fields fields, void *ret);
/* The first row, without members that live until the next one; *ret_found false, and ret
 * unchanged, when there is none. */
enum cairn_code srv_sql_row(struct srv_tx *tx, struct srv_fields fields, void *ret, bool *ret_found,
                            struct cairn_error *err, const struct srv_statement *statement,
                            ...) CAIRN_MUST_USE;
/* The text in the first column of the first row; "" when there is none. */
#define SQL_INTO(array) (array), sizeof(array)
enum cairn_code srv_sql_text(struct srv_tx *tx, char *ret, size_t capacity, struct cairn_error *err,
                             const struct srv_statement *statement, ...) CAIRN_MUST_USE;
/* The number there; 0 when there is none. */
enum cairn_code srv_sql_u64(struct srv_tx *tx, uint64_t *ret, struct cairn_error *err,
                            const struct srv_statement *statement, ...) CAIRN_MUST_USE;
/* Runs a statement; *ret: it has changed a row. */
enum cairn_code srv_sql_changed(struct srv_tx *tx, bool *ret, struct cairn_error *err,
                                const struct srv_statement *statement, ...) CAIRN_MUST_USE;
/* The number there; *ret_found false when there is none. */
enum cairn_code srv_sql_number(struct srv_tx *tx, bool *ret_found, int64_t *ret,
                               struct cairn_error *err, const struct srv_statement *statement,
                               ...) CAIRN_MUST_USE;

/* Prefix of inline functions of few statements in headers. */
#define SRV_WORD static inline CAIRN_MUST_USE enum cairn_code
/* Words of one statement: name, parameters, statement, its values. For instance
 *
 *     SRV_FINDS(rank_sealed, (const char *version, uint64_t rank),
 *                     rank_sealed, SQL_T(version), SQL_I(rank));
 *
 * defines srv_rank_sealed(tx, version, rank, bool *ret, err): true when there is a row.
 *   RUNS      runs the statement                  FINDS    bool *ret: there is a row
 *   CHANGES   bool *ret: it has changed a row     READS_ID *ret: the first row's version; "": none
 *   OPENS     *ret: the rows                      EXPECTS  announces the query */
#define SRV_UNPACK(...) __VA_ARGS__
#define SRV_WORD_OF(name, parameters, call)                                                        \
    SRV_WORD srv_##name(struct srv_tx *tx, SRV_UNPACK parameters, struct cairn_error *err) {       \
        return call;                                                                               \
    }                                                                                              \
    struct srv_tx
#define SRV_RUNS(name, parameters, statement, ...)                                                 \
    SRV_WORD_OF(name, parameters, srv_sql_run(tx, NULL, err, SQL(statement), __VA_ARGS__))
#define SRV_EXPECTS(name, parameters, statement, ...)                                              \
    SRV_WORD_OF(name, parameters, srv_sql_expect(tx, err, SQL(statement), __VA_ARGS__))
#define SRV_FINDS(name, parameters, statement, ...)                                                \
    SRV_WORD_OF(name, (SRV_UNPACK parameters, bool *ret),                                          \
                srv_sql_found(tx, ret, err, SQL(statement), __VA_ARGS__))
#define SRV_CHANGES(name, parameters, statement, ...)                                              \
    SRV_WORD_OF(name, (SRV_UNPACK parameters, bool *ret),                                          \
                srv_sql_changed(tx, ret, err, SQL(statement), __VA_ARGS__))
#define SRV_OPENS(name, parameters, statement, ...)                                                \
    SRV_WORD_OF(name, (SRV_UNPACK parameters, struct srv_rows * ret),                              \
                srv_sql_open(tx, ret, err, SQL(statement), __VA_ARGS__))
#define SRV_READS_ID(name, parameters, statement, ...)                                             \
    SRV_WORD_OF(name, (SRV_UNPACK parameters, struct cairn_version_id * ret),                      \
                srv_sql_text(tx, SQL_INTO(ret->text), err, SQL(statement), __VA_ARGS__))

SRV_WORD srv_tick_expect(struct srv_tx *tx, struct cairn_error *err) {
    return srv_sql_expect(tx, err, SQL(tick));
}
uint64_t srv_tick(struct srv_tx *tx); /* catalog time in ms; 0 when unreadable */
/* Raises catalog time by step_ms, from the seen_ms read in this change. */
SRV_RUNS(tick_raise, (uint64_t seen_ms, uint64_t step_ms), tick_raise, SQL_I(step_ms),
         SQL_I(seen_ms));

/* One text by its name; "" if unset. */
enum cairn_code srv_value_get(struct srv_tx *tx, const char *name, char *ret, size_t capacity,
                              struct cairn_error *err) CAIRN_MUST_USE;
SRV_RUNS(value_put, (const char *name, const char *value), meta_put, SQL_T(name), SQL_T(value));

struct srv_store_seen {
    char uuid[CAIRN_UUID_TEXT_BYTES]; /* "" in a new catalog */
    uint64_t generation;
};
enum cairn_code srv_store_seen_get(struct srv_tx *tx, struct srv_store_seen *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code srv_store_seen_put(struct srv_tx *tx, const struct srv_store_seen *seen,
                                   struct cairn_error *err) CAIRN_MUST_USE;

#define SRV_ALL SIZE_MAX

struct srv_ids {
    struct cairn_version_id *ids;
    size_t count, capacity;
};
void srv_ids_release(struct srv_ids *ids);
enum cairn_code srv_ids_add(struct srv_ids *ids, const struct cairn_version_id *id,
                            struct cairn_error *err) CAIRN_MUST_USE;
/* Reads the first column of each row. */
enum cairn_code srv_sql_ids(struct srv_tx *tx, size_t limit, struct srv_ids *ret,
                            struct cairn_error *err, const struct srv_statement *statement,
                            ...) CAIRN_MUST_USE;
enum cairn_code srv_ids_read(struct srv_rows *rows, size_t limit, struct srv_ids *ret,
                             struct cairn_error *err) CAIRN_MUST_USE;

/* Project and run from this column and the next. */
void srv_rows_name(const struct srv_rows *rows, int column, struct cairn_run_name *ret);
struct srv_run_names {
    struct cairn_run_name *names;
    size_t count, capacity;
};
void srv_run_names_release(struct srv_run_names *names);
/* Reads project and run, the first two columns of each row. */
enum cairn_code srv_run_names_read(struct srv_rows *rows, size_t limit, struct srv_run_names *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;

/* Whether this thread has a look (catalog.h#10). */
bool *srv_sql_looking(void);
