/* SPDX-License-Identifier: Apache-2.0 */
/* Transactions over one session, what becomes of a COMMIT whose answer was lost, and rows; see
 * engine_postgres.h. */
#include "server/db/engine_postgres.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/buf.h"
#include "common/clock.h"
#include "server/db/sql.h"

#define PAUSE_MS 200 /* between two tries to reach a database that is away */

static const char *describe(const void *place) {
    return ((const struct cairn_srv_postgres_place *)place)->url;
}

static const char *server_of(const void *place) {
    return ((const struct cairn_srv_postgres_place *)place)->server;
}

static bool behind(const void *place) {
    return ((const struct cairn_srv_postgres_place *)place)->behind;
}

static bool shared(const void *place) {
    return ((const struct cairn_srv_postgres_place *)place)->shared;
}

/* ---- transactions ---- */

/* As all others, these are prepared: they go ahead of what follows without being waited for. */
static const struct cairn_srv_statement begin_a_look = {
    "begin", "", "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"};
static const struct cairn_srv_statement begin_a_change = {
    "begin", "", "BEGIN TRANSACTION ISOLATION LEVEL READ COMMITTED READ WRITE"};
static const struct cairn_srv_statement note_batch = {
    "note_batch", "ti",
    "INSERT INTO servers(server, batch) VALUES(?1, ?2) ON CONFLICT(server) DO UPDATE SET batch = "
    "?2"};
static const struct cairn_srv_statement read_batch = {
    "read_batch", "ti", "SELECT 1 FROM servers WHERE server = ?1 AND batch = ?2"};
static const struct cairn_srv_statement count_position = {
    "count_position", "i",
    "UPDATE cairn_catalog SET position = position + 1 WHERE schema = ?1 RETURNING position"};
static const struct cairn_srv_statement commit_it = {"commit", "", "COMMIT"};
static const struct cairn_srv_statement undo_all = {"rollback", "", "ROLLBACK"};
static const struct cairn_srv_statement set_savepoint = {"savepoint", "", "SAVEPOINT change"};
static const struct cairn_srv_statement keep_it = {"keep", "", "RELEASE SAVEPOINT change"};
static const struct cairn_srv_statement undo_it = {"undo", "", "ROLLBACK TO SAVEPOINT change"};

static enum cairn_code begin_read(struct cairn_srv_tx *tx, struct cairn_error *err) {
    struct cairn_srv_postgres *own = cairn_srv_postgres_of(tx);
    if (cairn_srv_postgres_is_lost(own)) CAIRN_TRY(cairn_srv_postgres_reconnect(own, err));
    CAIRN_TRY(cairn_srv_postgres_send(own, &begin_a_look, NULL, err));
    return cairn_srv_postgres_send_position(own, false, &cairn_srv_postgres_read_position, NULL,
                                            err);
}

void cairn_srv_postgres_note_seen(struct cairn_srv_postgres_place *place, uint64_t position) {
    uint64_t seen = place->seen;
    while (seen < position && !atomic_compare_exchange_weak(&place->seen, &seen, position)) {
    }
}

static void rollback(struct cairn_srv_tx *tx) {
    struct cairn_srv_postgres *own = cairn_srv_postgres_of(tx);
    cairn_srv_postgres_expect_no_more(own);
    if (!own->conn) return;
    if (own->ahead_count) (void)!cairn_srv_postgres_hear(own, NULL, NULL);
    if (!own->conn || PQtransactionStatus(own->conn) == PQTRANS_IDLE) return;
    (void)!cairn_srv_postgres_query(own, &undo_all, NULL, NULL, NULL);
}

/* A look changed nothing, so how it ends is all the same, and nobody waits for it. But where it has
 * asked nothing, its position was not heard, and the next look would take that for its own: older
 * than what was seen meanwhile, as if the database had gone back (engine_postgres.h#6). */
static void end_read(struct cairn_srv_tx *tx) {
    struct cairn_srv_postgres *own = cairn_srv_postgres_of(tx);
    if (!own->conn) return;
    cairn_srv_postgres_expect_no_more(own);
    if (own->ahead_count) (void)!cairn_srv_postgres_hear(own, NULL, NULL);
    if (!own->conn) return;
    if (own->position) cairn_srv_postgres_note_seen(own->place, own->position);
    if (cairn_srv_postgres_send(own, &undo_all, NULL, NULL) ||
        cairn_srv_postgres_leave_to_it(own, NULL))
        cairn_srv_postgres_drop(own);
}

/* Waited for: what follows knows that it has the lock, and settle that a transaction which it does
 * not find has ended. */
static enum cairn_code begin_change(struct cairn_srv_postgres *own, struct cairn_error *err) {
    own->batch++;
    own->notify_count = 0;
    own->tx.undone = (struct cairn_error){0};
    const struct cairn_srv_value values[] = {SQL_T(own->place->server), SQL_I(own->batch)};
    const struct cairn_srv_value schema[] = {SQL_I(cairn_srv_catalog_schema())};
    CAIRN_TRY(cairn_srv_postgres_send(own, &begin_a_change, NULL, err));
    CAIRN_TRY(cairn_srv_postgres_send(own, &cairn_srv_postgres_take_lock, NULL, err));
    CAIRN_TRY(cairn_srv_postgres_send(own, &note_batch, values, err));
    CAIRN_TRY(cairn_srv_postgres_send_position(own, true, &count_position, schema, err));
    enum cairn_code code = cairn_srv_postgres_hear(own, NULL, err);
    if (code == CAIRN_CATALOG_BEHIND) cairn_srv_postgres_drop(own); /* engine_postgres.h#7 */
    return code;
}

/* engine_postgres.h#2; false: nobody who holds the lock waits for its server. */
static bool end_holder(struct cairn_srv_postgres *own) {
    PGresult *ended = NULL;
    rollback(&own->tx);
    if (!own->conn ||
        cairn_srv_postgres_query(own, &cairn_srv_postgres_end_holder, NULL, &ended, NULL))
        return false;
    bool found = PQntuples(ended) > 0;
    PQclear(ended);
    return found;
}

static enum cairn_code begin_write(struct cairn_srv_tx *tx, struct cairn_error *err) {
    struct cairn_srv_postgres *own = cairn_srv_postgres_of(tx);
    if (cairn_srv_postgres_is_lost(own)) CAIRN_TRY(cairn_srv_postgres_reconnect(own, err));
    struct cairn_error why = {0};
    enum cairn_code code = begin_change(own, &why);
    if (code == CAIRN_BUSY && end_holder(own)) return begin_change(own, err);
    if (code && err) *err = why;
    return code;
}

/* Was it done? The transaction had the lock, so it has ended when another one gets it. */
static enum cairn_code look_for_batch(struct cairn_srv_postgres *own, bool *ret_done,
                                      struct cairn_error *err) {
    const struct cairn_srv_value values[] = {SQL_T(own->place->server), SQL_I(own->batch)};
    PGresult *found = NULL;
    if (!own->conn) CAIRN_TRY(cairn_srv_postgres_reconnect(own, err));
    CAIRN_TRY(cairn_srv_postgres_send(own, &begin_a_change, NULL, err));
    CAIRN_TRY(cairn_srv_postgres_send(own, &cairn_srv_postgres_take_lock, NULL, err));
    CAIRN_TRY(cairn_srv_postgres_query(own, &read_batch, values, &found, err));
    *ret_done = PQntuples(found) > 0;
    PQclear(found);
    return CAIRN_OK;
}

static enum cairn_code settle(struct cairn_srv_postgres *own, const struct cairn_error *lost,
                              struct cairn_error *err) {
    uint64_t until_ms = cairn_deadline_in(&cairn_clock_real, CAIRN_SRV_POSTGRES_SETTLE_MS);
    struct cairn_error why = *lost;
    bool done = false;
    while (look_for_batch(own, &done, &why)) {
        rollback(&own->tx);
        if (!cairn_deadline_left_ms(&cairn_clock_real, until_ms))
            return cairn_fail(err, CAIRN_UNAVAILABLE,
                              "catalog: the answer to COMMIT was lost and the database cannot be "
                              "asked, so it is not known whether it was done: %s",
                              why.message);
        (void)poll(NULL, 0, PAUSE_MS);
    }
    rollback(&own->tx);
    if (done) return CAIRN_OK;
    return cairn_fail(err, CAIRN_UNAVAILABLE, "catalog: the connection was lost before COMMIT: %s",
                      lost->message);
}

static enum cairn_code commit(struct cairn_srv_tx *tx, struct cairn_error *err) {
    struct cairn_srv_postgres *own = cairn_srv_postgres_of(tx);
    struct cairn_error why = {0};
    PGresult *result = NULL;
    enum cairn_code code = cairn_srv_postgres_send_notify(own, &why);
    if (!code) code = cairn_srv_postgres_query(own, &commit_it, NULL, &result, &why);
    /* COMMIT of a transaction in which something failed is answered by ROLLBACK. */
    bool done = !code && !strcmp(PQcmdStatus(result), "COMMIT");
    PQclear(result);
    if (!done && !own->conn) {
        CAIRN_TRY(settle(own, &why, err));
        done = true;
    }
    if (done) cairn_srv_postgres_note_seen(own->place, own->position);
    if (done) own->place->mine = own->position;
    if (done) return CAIRN_OK;
    if (!code) return cairn_fail(err, CAIRN_INTERNAL, "catalog: COMMIT was answered by ROLLBACK");
    if (err) *err = why;
    return code;
}

static bool is_open(struct cairn_srv_tx *tx) {
    struct cairn_srv_postgres *own = cairn_srv_postgres_of(tx);
    if (tx->undone.code || !own->conn || PQstatus(own->conn) != CONNECTION_OK) return false;
    return own->ahead_count || PQtransactionStatus(own->conn) != PQTRANS_IDLE;
}

static enum cairn_code savepoint(struct cairn_srv_tx *tx, struct cairn_error *err) {
    struct cairn_srv_postgres *own = cairn_srv_postgres_of(tx);
    own->notify_before = own->notify_count;
    return cairn_srv_postgres_send(own, &set_savepoint, NULL, err);
}

/* Not waited for: what was sent ahead is heard with the next change's looks, or with COMMIT. Where
 * some of it fails then, nothing of the transaction stays (engine.h#2). */
static enum cairn_code keep(struct cairn_srv_tx *tx, struct cairn_error *err) {
    struct cairn_srv_postgres *own = cairn_srv_postgres_of(tx);
    cairn_srv_postgres_expect_no_more(own);
    CAIRN_TRY(cairn_srv_postgres_send(own, &keep_it, NULL, err));
    own->kept_ahead = own->ahead_count;
    return CAIRN_OK;
}

static void undo(struct cairn_srv_tx *tx) {
    struct cairn_srv_postgres *own = cairn_srv_postgres_of(tx);
    own->notify_count = own->notify_before;
    cairn_srv_postgres_expect_no_more(own);
    if (own->conn && own->ahead_count) (void)!cairn_srv_postgres_hear(own, NULL, NULL);
    if (tx->undone.code) return; /* the savepoint may be an earlier change's */
    enum cairn_code code = cairn_srv_postgres_query(own, &undo_it, NULL, NULL, NULL);
    if (!code) code = cairn_srv_postgres_query(own, &keep_it, NULL, NULL, NULL);
    if (code) cairn_srv_postgres_drop(own); /* is_open says so */
}

/* ---- rows ---- */

struct running {
    PGresult *result;
    int row;
    char text[24]; /* of a number that is asked for as text */
};

/* Types of results (pg_type.h); tests/server/test_statements.c sees that there are no others. */
#define OID_BOOL 16
#define OID_INT8 20
#define OID_INT4 23

static enum cairn_code start(struct cairn_srv_tx *tx, const struct cairn_srv_statement *statement,
                             const struct cairn_srv_value *values, void **ret_running,
                             struct cairn_error *err) {
    struct running *running = calloc(1, sizeof(*running));
    if (!running) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a result");
    running->row = -1;
    struct cairn_srv_postgres *own = cairn_srv_postgres_of(tx);
    if (!cairn_srv_postgres_only_looks(statement)) cairn_srv_postgres_expect_no_more(own);
    enum cairn_code code =
        cairn_srv_postgres_take_expected(own, statement, values, &running->result, err);
    if (!code && !running->result)
        code = cairn_srv_postgres_query(own, statement, values, &running->result, err);
    if (code) {
        free(running);
        return code;
    }
    *ret_running = running;
    return CAIRN_OK;
}

static enum cairn_code next(struct cairn_srv_tx *tx, void *argument, bool *ret_more,
                            struct cairn_error *err) {
    struct running *running = argument;
    (void)tx, (void)err;
    *ret_more = ++running->row < PQntuples(running->result);
    return CAIRN_OK;
}

static void finish(struct cairn_srv_tx *tx, void *argument) {
    struct running *running = argument;
    (void)tx;
    PQclear(running->result);
    free(running);
}

static enum cairn_code run(struct cairn_srv_tx *tx, const struct cairn_srv_statement *statement,
                           const struct cairn_srv_value *values, uint64_t *ret_changed,
                           struct cairn_error *err) {
    struct cairn_srv_postgres *own = cairn_srv_postgres_of(tx);
    cairn_srv_postgres_expect_no_more(own);
    if (!ret_changed) {
        CAIRN_TRY(cairn_srv_postgres_send(own, statement, values, err));
        if (own->unended_bytes < CAIRN_SRV_POSTGRES_UNENDED_BYTES) return CAIRN_OK;
        return cairn_srv_postgres_leave_to_it(own, err);
    }
    PGresult *result = NULL;
    CAIRN_TRY(cairn_srv_postgres_query(own, statement, values, &result, err));
    *ret_changed = strtoull(PQcmdTuples(result), NULL, 10);
    PQclear(result);
    return CAIRN_OK;
}

static bool is_null(void *argument, int column) {
    struct running *running = argument;
    return PQgetisnull(running->result, running->row, column);
}

static int64_t number(void *argument, int column) {
    struct running *running = argument;
    if (is_null(running, column)) return 0;
    const char *value = PQgetvalue(running->result, running->row, column);
    uint64_t wide = 0;
    uint32_t narrow = 0;
    switch (PQftype(running->result, column)) {
    case OID_BOOL:
        return value[0];
    case OID_INT4:
        memcpy(&narrow, value, sizeof(narrow));
        return (int32_t)__builtin_bswap32(narrow);
    case OID_INT8:
        memcpy(&wide, value, sizeof(wide));
        return (int64_t)__builtin_bswap64(wide);
    default:
        return strtoll(value, NULL, 10);
    }
}

static const char *text(void *argument, int column) {
    struct running *running = argument;
    Oid type = PQftype(running->result, column);
    if (is_null(running, column)) return "";
    if (type != OID_BOOL && type != OID_INT4 && type != OID_INT8)
        return PQgetvalue(running->result, running->row, column);
    snprintf(running->text, sizeof(running->text), "%lld", (long long)number(running, column));
    return running->text;
}

static struct cairn_view bytes(void *argument, int column) {
    struct running *running = argument;
    if (is_null(running, column)) return (struct cairn_view){NULL, 0};
    return (struct cairn_view){PQgetvalue(running->result, running->row, column),
                               (size_t)PQgetlength(running->result, running->row, column)};
}

const struct cairn_srv_engine cairn_srv_engine_postgres = {
    .name = "postgresql",
    .knows = cairn_srv_postgres_knows,
    .take = cairn_srv_postgres_take,
    .leave = cairn_srv_postgres_leave,
    .describe = describe,
    .server = server_of,
    .behind = behind,
    .join = cairn_srv_postgres_join,
    .shareable = true,
    .shared = shared,
    .lives = cairn_srv_postgres_lives,
    .connect = cairn_srv_postgres_connect,
    .disconnect = cairn_srv_postgres_disconnect,
    .migrate = cairn_srv_postgres_migrate,
    .begin_read = begin_read,
    .end_read = end_read,
    .begin_write = begin_write,
    .commit = commit,
    .rollback = rollback,
    .is_open = is_open,
    .savepoint = savepoint,
    .keep = keep,
    .undo = undo,
    .expect = cairn_srv_postgres_expect,
    .run = run,
    .start = start,
    .next = next,
    .finish = finish,
    .is_null = is_null,
    .number = number,
    .text = text,
    .bytes = bytes,
    .notify = cairn_srv_postgres_notify,
    .listen = cairn_srv_postgres_listen,
    .listen_for = cairn_srv_postgres_listen_for,
    .is_there = cairn_srv_postgres_is_there,
    .alone = cairn_srv_postgres_alone,
    .load = cairn_srv_postgres_load,
    .loaded = cairn_srv_postgres_loaded,
};
