/* SPDX-License-Identifier: Apache-2.0 */
/*
 * operations: rows of background operations.
 *
 * Why:     an import takes an hour; its caller polls any server, also after the first has stopped.
 * Promise: 1   an operation ends once; an ended one is not changed.
 *          2   of equal unfinished operations only one exists.
 * Limits:  CAIRN_SRV_OPERATION_TEXT_MAX of a request, a result and a problem each.
 * Threads: inside a transaction.
 * Next:    server/operations/operations.h, server/operations/run.c.
 */
#pragma once

#include "server/db/sql.h"

#define CAIRN_SRV_OPERATION_BYTES 36 /* "op_", 12 digits of time, 20 random ones, NUL */
#define CAIRN_SRV_OPERATION_TEXT_MAX 65536

enum cairn_srv_operation_state {
    CAIRN_SRV_OPERATION_QUEUED,
    CAIRN_SRV_OPERATION_RUNNING,
    CAIRN_SRV_OPERATION_DONE,
    CAIRN_SRV_OPERATION_FAILED,
    CAIRN_SRV_OPERATION_CANCELLED,
    CAIRN_SRV_OPERATION_INTERRUPTED, /* its server stopped */
};
const char *cairn_srv_operation_state_text(enum cairn_srv_operation_state state);

struct cairn_srv_operation {
    char id[CAIRN_SRV_OPERATION_BYTES];
    char kind[16];
    struct cairn_run_name name;
    enum cairn_srv_operation_state state;
    uint64_t done, total;
    bool cancel; /* cancelling was requested */
    char who[160];
    int64_t created_ms, ended_ms;
    struct cairn_buf request, result, problem; /* JSON; empty: none */
};
void cairn_srv_operation_release(struct cairn_srv_operation *operation);
bool cairn_srv_operation_is_over(const struct cairn_srv_operation *operation);
/* A new id, which sorts after earlier ones. */
void cairn_srv_operation_name(int64_t wall_ms, void (*random)(void *ret_data, size_t size),
                              char ret[CAIRN_SRV_OPERATION_BYTES]);

/* id, kind, name, request, who and created_ms are set. If an unfinished one of that kind, run and
 * request exists, returns its id instead, with *ret_made false. alone: whatever its request. */
enum cairn_code cairn_srv_operation_put(struct cairn_srv_tx *tx,
                                        struct cairn_srv_operation *operation, bool alone,
                                        bool *ret_made, struct cairn_error *err) CAIRN_MUST_USE;
/* An unfinished one of that kind and run; "": none. */
enum cairn_code cairn_srv_operation_of_run(struct cairn_srv_tx *tx, const char *kind,
                                           const struct cairn_run_name *name,
                                           char ret_id[CAIRN_SRV_OPERATION_BYTES],
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* CAIRN_NOT_FOUND: unknown id. */
enum cairn_code cairn_srv_operation_get(struct cairn_srv_tx *tx, const char *id,
                                        struct cairn_srv_operation *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* *ret_started false: no longer queued. */
enum cairn_code cairn_srv_operation_start(struct cairn_srv_tx *tx, const char *id,
                                          bool *ret_started,
                                          struct cairn_error *err) CAIRN_MUST_USE;
CAIRN_SRV_WORD cairn_srv_operation_move_on(struct cairn_srv_tx *tx, const char *id, uint64_t done,
                                           uint64_t total, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(operation_move_on), SQL_T(id), SQL_I(done),
                             SQL_I(total));
}
/* Requests the end of a running operation; its server polls the flag. */
enum cairn_code cairn_srv_operation_cancel(struct cairn_srv_tx *tx, const char *id,
                                           struct cairn_error *err) CAIRN_MUST_USE;
struct cairn_srv_operation_end {
    enum cairn_srv_operation_state state;
    const char *result, *problem; /* NULL: none */
    int64_t wall_ms;
};
enum cairn_code cairn_srv_operation_end(struct cairn_srv_tx *tx, const char *id,
                                        const struct cairn_srv_operation_end *end,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Ids of unfinished operations; the caller frees. */
enum cairn_code cairn_srv_operations_unfinished(struct cairn_srv_tx *tx,
                                                char (**ret)[CAIRN_SRV_OPERATION_BYTES],
                                                size_t *ret_count,
                                                struct cairn_error *err) CAIRN_MUST_USE;
/* `limit` ids before that one, newest first. */
enum cairn_code
cairn_srv_operations_each(struct cairn_srv_tx *tx, const char *before, uint64_t limit,
                          enum cairn_code (*each)(const struct cairn_srv_operation *operation,
                                                  void *owner, struct cairn_error *err),
                          void *owner, struct cairn_error *err) CAIRN_MUST_USE;
/* Drops operations that ended before that tick, and all but the newest `keep`; 1,000 a call. */
enum cairn_code cairn_srv_operations_trim(struct cairn_srv_tx *tx, uint64_t before_tick,
                                          uint64_t keep, struct cairn_error *err) CAIRN_MUST_USE;
