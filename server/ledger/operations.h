/* SPDX-License-Identifier: Apache-2.0 */
/*
 * operations: rows of background operations.
 *
 * Why:     an import takes an hour; its caller polls any server, also after the first has stopped.
 * Promise: 1   an operation ends once; an ended one is not changed.
 *          2   of equal unfinished operations only one exists.
 * Limits:  SRV_OPERATION_TEXT_MAX of a request, a result and a problem each.
 * Threads: inside a transaction.
 * Next:    server/operations/operations.h, server/operations/run.c.
 */
#pragma once

#include "server/db/sql.h"

#define SRV_OPERATION_BYTES 36 /* "op_", 12 digits of time, 20 random ones, NUL */
#define SRV_OPERATION_TEXT_MAX 65536

enum srv_operation_state {
    SRV_OPERATION_QUEUED,
    SRV_OPERATION_RUNNING,
    SRV_OPERATION_DONE,
    SRV_OPERATION_FAILED,
    SRV_OPERATION_CANCELLED,
    SRV_OPERATION_INTERRUPTED, /* its server stopped */
};
const char *srv_operation_state_text(enum srv_operation_state state);

struct srv_operation {
    char id[SRV_OPERATION_BYTES];
    char kind[16];
    struct cairn_run_name name;
    enum srv_operation_state state;
    uint64_t done, total;
    bool cancel; /* cancelling was requested */
    char who[160];
    int64_t created_ms, ended_ms;
    struct cairn_buf request, result, problem; /* JSON; empty: none */
};
void srv_operation_release(struct srv_operation *operation);
bool srv_operation_is_over(const struct srv_operation *operation);
/* A new id, which sorts after earlier ones. */
void srv_operation_name(int64_t wall_ms, void (*random)(void *ret_data, size_t size),
                        char ret[SRV_OPERATION_BYTES]);

/* id, kind, name, request, who and created_ms are set. If an unfinished one of that kind, run and
 * request exists, returns its id instead, with *ret_made false. alone: whatever its request. */
enum cairn_code srv_operation_put(struct srv_tx *tx, struct srv_operation *operation, bool alone,
                                  bool *ret_made, struct cairn_error *err) CAIRN_MUST_USE;
/* An unfinished one of that kind and run; "": none. */
SRV_WORD srv_operation_of_run(struct srv_tx *tx, const char *kind,
                              const struct cairn_run_name *name, char ret_id[SRV_OPERATION_BYTES],
                              struct cairn_error *err) {
    return srv_sql_text(tx, ret_id, SRV_OPERATION_BYTES, err, SQL(operation_of_run), SQL_T(kind),
                        SQL_T(name->project), SQL_T(name->run));
}
/* CAIRN_NOT_FOUND: unknown id. */
enum cairn_code srv_operation_get(struct srv_tx *tx, const char *id, struct srv_operation *ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* *ret_started false: no longer queued. */
SRV_CHANGES(operation_start, (const char *id), operation_start, SQL_T(id));
SRV_RUNS(operation_move_on, (const char *id, uint64_t done, uint64_t total), operation_move_on,
         SQL_T(id), SQL_I(done), SQL_I(total));
/* Requests the end of a running operation; its server polls the flag. */
enum cairn_code srv_operation_cancel(struct srv_tx *tx, const char *id,
                                     struct cairn_error *err) CAIRN_MUST_USE;
struct srv_operation_end {
    enum srv_operation_state state;
    const char *result, *problem; /* NULL: none */
    int64_t wall_ms;
};
enum cairn_code srv_operation_end(struct srv_tx *tx, const char *id,
                                  const struct srv_operation_end *end,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Ids of unfinished operations; the caller frees. */
enum cairn_code srv_operations_unfinished(struct srv_tx *tx, char (**ret)[SRV_OPERATION_BYTES],
                                          size_t *ret_count,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Rows of `limit` operations before that id, newest first. */
SRV_OPENS(operations_open, (const char *before, uint64_t limit), operations_page, SQL_T(before),
          SQL_I(limit));
enum cairn_code srv_operation_row(const struct srv_rows *rows, struct srv_operation *ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Drops operations that ended before that tick, and all but the newest `keep`; 1,000 a call. */
SRV_WORD srv_operations_trim(struct srv_tx *tx, uint64_t before_tick, uint64_t keep,
                             struct cairn_error *err) {
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(operations_drop_old), SQL_I(before_tick)));
    return srv_sql_run(tx, NULL, err, SQL(operations_drop_many), SQL_I(keep));
}
