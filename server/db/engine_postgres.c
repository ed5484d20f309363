/* SPDX-License-Identifier: Apache-2.0 */
/* Transactions over one session, lost answers to COMMIT, and rows; see engine_postgres.h. */
#include "server/db/engine_postgres.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "server/db/copy_page.h"

#define PAUSE_MS 200 /* between attempts to reach the database */

static const char *describe(const void *place) {
    return ((const struct srv_postgres_place *)place)->url;
}

static const char *server_of(const void *place) {
    return ((const struct srv_postgres_place *)place)->server;
}

static bool behind(const void *place) {
    return ((const struct srv_postgres_place *)place)->behind;
}

static bool shared(const void *place) {
    return ((const struct srv_postgres_place *)place)->shared;
}

static void note_seen(struct srv_postgres_place *place, uint64_t position) {
    uint64_t seen = place->seen;
    while (seen < position && !atomic_compare_exchange_weak(&place->seen, &seen, position)) {
    }
}

/* ---- notifications ----
 *
 * NOTIFY in a change's transaction, and the listening session; see catalog.h. Each catalog of a
 * database has a channel named by its schema's number. The payload is the sender, the position of
 * its transaction, and keys, in hexadecimal. */

#define ALIVE_ANSWER_MS 5000
#define CHANNEL                                                                                    \
    "SELECT 'cairn_' || CAST(oid AS TEXT) FROM pg_namespace WHERE nspname = current_schema()"

static const struct srv_statement notify_others = {"tell", "t",
                                                   "SELECT pg_notify((" CHANNEL "), ?1)"};

void srv_postgres_notify(struct srv_tx *tx, uint64_t key) {
    struct srv_postgres *own = srv_postgres_of(tx);
    CAIRN_ASSERT(!own->read_only);
    for (size_t i = 0; i < own->notify_count; i++)
        if (own->notify[i] == key) return;
    if (key != SRV_NOTIFY_ALL && own->notify_count < SRV_POSTGRES_NOTIFY_MAX) {
        own->notify[own->notify_count++] = key;
        return;
    }
    own->notify[0] = SRV_NOTIFY_ALL;
    if (!own->notify_count) own->notify_count = 1;
}

/* Skips NOTIFY while no other server has ever changed this catalog: a listening server has joined
 * by a change, which this transaction's position shows (engine_postgres.h#6). */
static enum cairn_code send_notify(struct srv_postgres *own, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {0};
    if (!own->notify_count || !own->place->shared) return CAIRN_OK;
    bool all = own->notify[0] == SRV_NOTIFY_ALL;
    CAIRN_TRY(cairn_buf_printf(&text, err, "%s %" PRIx64, own->place->server, own->position));
    for (size_t i = 0; i < (all ? 1 : own->notify_count); i++)
        CAIRN_TRY(cairn_buf_printf(&text, err, " %" PRIx64, own->notify[i]));
    const struct srv_value values[] = {SQL_T(text.data)};
    return srv_postgres_send(own, &notify_others, values, err);
}

/* Leaves the pipeline, in which libpq cannot run these statements. */
static enum cairn_code begin_to_listen(struct srv_postgres *own, struct cairn_error *err) {
    char sql[120];
    PGresult *result = NULL;
    own->answer_ms = ALIVE_ANSWER_MS;
    if (!PQexitPipelineMode(own->conn)) return srv_postgres_fail(own->conn, NULL, "pipeline", err);
    /* A listener that does not read blocks the whole database's queue. */
    CAIRN_TRY(srv_postgres_exec(
        own, "SET tcp_user_timeout = '20s'; SET application_name = 'cairn-listen'", NULL, err));
    CAIRN_TRY(srv_postgres_exec(own, CHANNEL, &result, err));
    snprintf(sql, sizeof(sql), "LISTEN %s", PQntuples(result) ? PQgetvalue(result, 0, 0) : "cairn");
    PQclear(result);
    return srv_postgres_exec(own, sql, NULL, err);
}

static enum cairn_code listen_at(void *place, struct srv_tx **ret, struct cairn_error *err) {
    struct srv_tx *tx = NULL;
    CAIRN_TRY(srv_postgres_connect(place, true, &tx, err));
    enum cairn_code code = begin_to_listen(srv_postgres_of(tx), err);
    if (code)
        srv_postgres_disconnect(tx);
    else
        *ret = tx;
    return code;
}

static void read_notify(struct srv_postgres_place *place, const char *said,
                        void (*heard)(void *owner, uint64_t key), void *owner) {
    size_t size = strcspn(said, " ");
    /* catalog.h#8 */
    if (size == strlen(place->server) && !memcmp(said, place->server, size)) return;
    place->shared = true;
    const char *at = strchr(said, ' ');
    if (!at) return;
    /* Committed there, so a database without it has gone back (engine_postgres.h#6). */
    note_seen(place, strtoull(at + 1, NULL, 16));
    while ((at = strchr(at + 1, ' '))) heard(owner, strtoull(at + 1, NULL, 16));
}

static enum cairn_code listen_for(struct srv_tx *tx, int wake_fd, uint32_t wait_ms,
                                  void (*heard)(void *owner, uint64_t key), void *owner,
                                  struct cairn_error *err) {
    struct srv_postgres *own = srv_postgres_of(tx);
    PGnotify *said = NULL;
    if (!own->conn) return cairn_fail(err, CAIRN_UNAVAILABLE, "catalog: the session is lost");
    struct pollfd fds[2] = {{.fd = PQsocket(own->conn), .events = POLLIN},
                            {.fd = wake_fd, .events = POLLIN}};
    int ready = poll(fds, 2, (int)wait_ms);
    if (ready < 0 && errno != EINTR) return cairn_fail_errno(err, "poll");
    if (!ready) CAIRN_TRY(srv_postgres_exec(own, "SELECT 1", NULL, err));
    if (!PQconsumeInput(own->conn)) return srv_postgres_fail(own->conn, NULL, "listening", err);
    while ((said = PQnotifies(own->conn))) {
        read_notify(own->place, said->extra, heard, owner);
        PQfreemem(said);
    }
    return CAIRN_OK;
}

/* Prepared, so they are sent ahead of later commands without a wait. */
static const struct srv_statement begin_a_look = {
    "begin", "", "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"};
static const struct srv_statement begin_a_change = {
    "begin", "", "BEGIN TRANSACTION ISOLATION LEVEL READ COMMITTED READ WRITE"};
static const struct srv_statement note_batch = {
    "note_batch", "ti",
    "INSERT INTO servers(server, batch) VALUES(?1, ?2) ON CONFLICT(server) DO UPDATE SET batch = "
    "?2"};
static const struct srv_statement read_batch = {
    "read_batch", "ti", "SELECT 1 FROM servers WHERE server = ?1 AND batch = ?2"};
static const struct srv_statement count_position = {
    "count_position", "i",
    "UPDATE cairn_catalog SET position = position + 1 WHERE schema = ?1 RETURNING position"};
static const struct srv_statement commit_it = {"commit", "", "COMMIT"};
static const struct srv_statement undo_all = {"rollback", "", "ROLLBACK"};
static const struct srv_statement set_savepoint = {"savepoint", "", "SAVEPOINT change"};
static const struct srv_statement keep_it = {"keep", "", "RELEASE SAVEPOINT change"};
static const struct srv_statement undo_it = {"undo", "", "ROLLBACK TO SAVEPOINT change"};

static enum cairn_code begin_read(struct srv_tx *tx, struct cairn_error *err) {
    struct srv_postgres *own = srv_postgres_of(tx);
    if (srv_postgres_is_lost(own)) CAIRN_TRY(srv_postgres_reconnect(own, err));
    CAIRN_TRY(srv_postgres_send(own, &begin_a_look, NULL, err));
    return srv_postgres_send_position(own, false, &srv_postgres_read_position, NULL, err);
}

static void rollback(struct srv_tx *tx) {
    struct srv_postgres *own = srv_postgres_of(tx);
    srv_postgres_expect_no_more(own);
    if (!own->conn) return;
    if (own->ahead_count) (void)!srv_postgres_hear(own, NULL, NULL);
    if (!own->conn || PQtransactionStatus(own->conn) == PQTRANS_IDLE) return;
    (void)!srv_postgres_query(own, &undo_all, NULL, NULL, NULL);
}

/* Waits for no answer. But a read without queries never received its position, which the next read
 * would take for its own, as if the database had gone back (engine_postgres.h#6). */
static void end_read(struct srv_tx *tx) {
    struct srv_postgres *own = srv_postgres_of(tx);
    if (!own->conn) return;
    srv_postgres_expect_no_more(own);
    if (own->ahead_count) (void)!srv_postgres_hear(own, NULL, NULL);
    if (!own->conn) return;
    if (own->position) note_seen(own->place, own->position);
    if (srv_postgres_send(own, &undo_all, NULL, NULL) || srv_postgres_leave_to_it(own, NULL))
        srv_postgres_drop(own);
}

/* Waits for the answer: later commands rely on the lock; so does settle. */
static enum cairn_code begin_change(struct srv_postgres *own, struct cairn_error *err) {
    own->batch++;
    own->notify_count = 0;
    own->tx.undone = (struct cairn_error){0};
    const struct srv_value values[] = {SQL_T(own->place->server), SQL_I(own->batch)};
    const struct srv_value schema[] = {SQL_I(srv_catalog_schema())};
    CAIRN_TRY(srv_postgres_send(own, &begin_a_change, NULL, err));
    CAIRN_TRY(srv_postgres_send(own, &srv_postgres_take_lock, NULL, err));
    CAIRN_TRY(srv_postgres_send(own, &note_batch, values, err));
    CAIRN_TRY(srv_postgres_send_position(own, true, &count_position, schema, err));
    enum cairn_code code = srv_postgres_hear(own, NULL, err);
    if (code == CAIRN_CATALOG_BEHIND) srv_postgres_drop(own); /* engine_postgres.h#7 */
    return code;
}

/* engine_postgres.h#2; false: no holder of the lock is waiting for its server. */
static bool end_holder(struct srv_postgres *own) {
    PGresult *ended = NULL;
    rollback(&own->tx);
    if (!own->conn || srv_postgres_query(own, &srv_postgres_end_holder, NULL, &ended, NULL))
        return false;
    bool found = PQntuples(ended) > 0;
    PQclear(ended);
    return found;
}

static enum cairn_code begin_write(struct srv_tx *tx, struct cairn_error *err) {
    struct srv_postgres *own = srv_postgres_of(tx);
    if (srv_postgres_is_lost(own)) CAIRN_TRY(srv_postgres_reconnect(own, err));
    struct cairn_error why = {0};
    enum cairn_code code = begin_change(own, &why);
    if (code == CAIRN_BUSY && end_holder(own)) return begin_change(own, err);
    return cairn_pass(err, code, &why);
}

/* True if the batch was committed: its transaction has ended once this one gets the lock. */
static enum cairn_code look_for_batch(struct srv_postgres *own, bool *ret_done,
                                      struct cairn_error *err) {
    const struct srv_value values[] = {SQL_T(own->place->server), SQL_I(own->batch)};
    PGresult *found = NULL;
    if (!own->conn) CAIRN_TRY(srv_postgres_reconnect(own, err));
    CAIRN_TRY(srv_postgres_send(own, &begin_a_change, NULL, err));
    CAIRN_TRY(srv_postgres_send(own, &srv_postgres_take_lock, NULL, err));
    CAIRN_TRY(srv_postgres_query(own, &read_batch, values, &found, err));
    *ret_done = PQntuples(found) > 0;
    PQclear(found);
    return CAIRN_OK;
}

static enum cairn_code settle(struct srv_postgres *own, const struct cairn_error *lost,
                              struct cairn_error *err) {
    uint64_t until_ms = cairn_deadline_in(&cairn_clock_real, SRV_POSTGRES_SETTLE_MS);
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

static enum cairn_code commit(struct srv_tx *tx, struct cairn_error *err) {
    struct srv_postgres *own = srv_postgres_of(tx);
    struct cairn_error why = {0};
    PGresult *result = NULL;
    enum cairn_code code = send_notify(own, &why);
    if (!code) code = srv_postgres_query(own, &commit_it, NULL, &result, &why);
    /* PostgreSQL answers COMMIT of a failed transaction with ROLLBACK. */
    bool done = !code && !strcmp(PQcmdStatus(result), "COMMIT");
    PQclear(result);
    if (!done && !own->conn) {
        CAIRN_TRY(settle(own, &why, err));
        done = true;
    }
    if (done) note_seen(own->place, own->position);
    if (done) own->place->mine = own->position;
    if (done) return CAIRN_OK;
    if (!code) return cairn_fail(err, CAIRN_INTERNAL, "catalog: COMMIT was answered by ROLLBACK");
    return cairn_pass(err, code, &why);
}

static bool is_open(struct srv_tx *tx) {
    struct srv_postgres *own = srv_postgres_of(tx);
    if (tx->undone.code || !own->conn || PQstatus(own->conn) != CONNECTION_OK) return false;
    return own->ahead_count || PQtransactionStatus(own->conn) != PQTRANS_IDLE;
}

static enum cairn_code savepoint(struct srv_tx *tx, struct cairn_error *err) {
    struct srv_postgres *own = srv_postgres_of(tx);
    own->notify_before = own->notify_count;
    return srv_postgres_send(own, &set_savepoint, NULL, err);
}

/* Results arrive with a later read or COMMIT; a failure undoes the transaction (engine.h#2). */
static enum cairn_code keep(struct srv_tx *tx, struct cairn_error *err) {
    struct srv_postgres *own = srv_postgres_of(tx);
    srv_postgres_expect_no_more(own);
    CAIRN_TRY(srv_postgres_send(own, &keep_it, NULL, err));
    own->kept_ahead = own->ahead_count;
    return CAIRN_OK;
}

static void undo(struct srv_tx *tx) {
    struct srv_postgres *own = srv_postgres_of(tx);
    own->notify_count = own->notify_before;
    srv_postgres_expect_no_more(own);
    if (own->conn && own->ahead_count) (void)!srv_postgres_hear(own, NULL, NULL);
    if (tx->undone.code) return; /* the savepoint may belong to an earlier change */
    enum cairn_code code = srv_postgres_query(own, &undo_it, NULL, NULL, NULL);
    if (!code) code = srv_postgres_query(own, &keep_it, NULL, NULL, NULL);
    if (code) srv_postgres_drop(own); /* is_open reports it */
}

struct running {
    PGresult *result;
    int row;
    char text[24]; /* a number requested as text */
};

/* Result types (pg_type.h); tests/server/test_statements.c checks that there are no others. */
#define OID_BOOL 16
#define OID_INT8 20
#define OID_INT4 23

static enum cairn_code start(struct srv_tx *tx, const struct srv_statement *statement,
                             const struct srv_value *values, void **ret_running,
                             struct cairn_error *err) {
    struct running *running = calloc(1, sizeof(*running));
    if (!running) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a result");
    running->row = -1;
    struct srv_postgres *own = srv_postgres_of(tx);
    if (!srv_postgres_only_looks(statement)) srv_postgres_expect_no_more(own);
    enum cairn_code code =
        srv_postgres_take_expected(own, statement, values, &running->result, err);
    if (!code && !running->result)
        code = srv_postgres_query(own, statement, values, &running->result, err);
    if (code) {
        free(running);
        return code;
    }
    *ret_running = running;
    return CAIRN_OK;
}

static enum cairn_code next(struct srv_tx *tx, void *argument, bool *ret_more,
                            struct cairn_error *err) {
    struct running *running = argument;
    (void)tx, (void)err;
    *ret_more = ++running->row < PQntuples(running->result);
    return CAIRN_OK;
}

static void finish(struct srv_tx *tx, void *argument) {
    struct running *running = argument;
    (void)tx;
    PQclear(running->result);
    free(running);
}

static enum cairn_code run(struct srv_tx *tx, const struct srv_statement *statement,
                           const struct srv_value *values, uint64_t *ret_changed,
                           struct cairn_error *err) {
    struct srv_postgres *own = srv_postgres_of(tx);
    srv_postgres_expect_no_more(own);
    if (!ret_changed) {
        CAIRN_TRY(srv_postgres_send(own, statement, values, err));
        if (own->unended_bytes < SRV_POSTGRES_UNENDED_BYTES) return CAIRN_OK;
        return srv_postgres_leave_to_it(own, err);
    }
    PGresult *result = NULL;
    CAIRN_TRY(srv_postgres_query(own, statement, values, &result, err));
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

/* ---- COPY: one transaction with one COPY, outside of the pipeline ---- */

/* Frame of COPY's binary format: signature, flags, no extension; end marker. */
static const char head[] = "PGCOPY\n\377\r\n\0\0\0\0\0\0\0\0";
#define HEAD_BYTES 19
static const char tail[2] = {'\377', '\377'};

static enum cairn_code lost(struct srv_postgres *own, const char *what, struct cairn_error *err) {
    enum cairn_code code = srv_postgres_fail(own->conn, NULL, what, err);
    srv_postgres_drop(own);
    return code;
}

/* libpq takes all bytes, or reports that it would block. */
static enum cairn_code put(struct srv_postgres *own, struct cairn_view bytes, bool is_end,
                           struct cairn_error *err) {
    uint64_t until_ms = cairn_deadline_in(&cairn_clock_real, own->answer_ms);
    for (;;) {
        int taken = is_end ? PQputCopyEnd(own->conn, NULL)
                           : PQputCopyData(own->conn, bytes.data, (int)bytes.size);
        if (taken > 0) return CAIRN_OK;
        uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, until_ms);
        struct pollfd fd = {.fd = PQsocket(own->conn), .events = POLLIN | POLLOUT};
        if (taken < 0 || !left_ms || poll(&fd, 1, (int)left_ms) < 0 || PQflush(own->conn) < 0 ||
            !PQconsumeInput(own->conn))
            return lost(own, "sending rows", err);
    }
}

static enum cairn_code send_rows(struct srv_postgres *own, struct cairn_view rows,
                                 struct cairn_error *err) {
    const size_t most = CAIRN_MIB;
    CAIRN_TRY(put(own, (struct cairn_view){head, HEAD_BYTES}, false, err));
    for (size_t at = 0; at < rows.size; at += most) {
        size_t size = rows.size - at < most ? rows.size - at : most;
        CAIRN_TRY(put(own, (struct cairn_view){(const char *)rows.data + at, size}, false, err));
    }
    CAIRN_TRY(put(own, (struct cairn_view){tail, sizeof(tail)}, false, err));
    return put(own, (struct cairn_view){0}, true, err);
}

/* Receives all results of a command. */
static enum cairn_code hear(struct srv_postgres *own, ExecStatusType wanted,
                            struct cairn_error *err) {
    enum cairn_code code = CAIRN_OK;
    for (;;) {
        CAIRN_TRY(srv_postgres_wait(own, code ? NULL : err));
        PGresult *result = PQgetResult(own->conn);
        if (!result) return code;
        ExecStatusType status = PQresultStatus(result);
        if (!code && status != wanted) code = srv_postgres_fail(own->conn, result, "COPY", err);
        PQclear(result);
        if (status == PGRES_COPY_IN) return code; /* lasts until the end of the rows */
    }
}

static enum cairn_code copy_in(struct srv_postgres *own, const struct srv_table *table,
                               struct cairn_view rows, struct cairn_error *err) {
    CAIRN_AUTO(buf) sql = {0};
    CAIRN_TRY(cairn_buf_printf(&sql, err, "COPY %s(", table->name));
    for (size_t i = 0; i < table->column_count; i++)
        CAIRN_TRY(cairn_buf_printf(&sql, err, "%s%s", i ? ", " : "", table->columns[i]));
    CAIRN_TRY(cairn_buf_append_text(&sql, ") FROM STDIN WITH (FORMAT binary)", err));
    if (!PQsendQuery(own->conn, sql.data)) return lost(own, "COPY", err);
    CAIRN_TRY(hear(own, PGRES_COPY_IN, err));
    CAIRN_TRY(send_rows(own, rows, err));
    return hear(own, PGRES_COMMAND_OK, err);
}

/* Leaves pipeline mode, and returns to it whatever happens. */
static enum cairn_code
outside(struct srv_postgres *own,
        enum cairn_code (*work)(struct srv_postgres *own, const struct srv_table *table,
                                struct cairn_view rows, struct cairn_error *err),
        const struct srv_table *table, struct cairn_view rows, struct cairn_error *err) {
    CAIRN_ASSERT(own->ahead_count == 0);
    if (!own->conn) return cairn_fail(err, CAIRN_UNAVAILABLE, "catalog: the connection was lost");
    if (!PQexitPipelineMode(own->conn)) return lost(own, "pipeline", err);
    enum cairn_code code = work(own, table, rows, err);
    if (own->conn && !PQenterPipelineMode(own->conn) && !code) code = lost(own, "pipeline", err);
    return code;
}

static enum cairn_code load_all(struct srv_postgres *own, const struct srv_table *table,
                                struct cairn_view rows, struct cairn_error *err) {
    CAIRN_TRY(srv_postgres_exec(own, "BEGIN; SET LOCAL statement_timeout = 0", NULL, err));
    enum cairn_code code = copy_in(own, table, rows, err);
    if (!code) return srv_postgres_exec(own, "COMMIT", NULL, err);
    if (own->conn) (void)!srv_postgres_exec(own, "ROLLBACK", NULL, NULL);
    return cairn_within(err, code, "table %s", table->name);
}

/* Only a connection and a query can tell. */
static bool is_there(const char *where) {
    (void)where;
    return true;
}

static enum cairn_code load(struct srv_tx *tx, const struct srv_table *table,
                            struct cairn_view rows, struct cairn_error *err) {
    return outside(srv_postgres_of(tx), load_all, table, rows, err);
}

/* COPY does not advance the sequence of an identity column. */
static enum cairn_code raise_identity(struct srv_postgres *own, const struct srv_table *table,
                                      struct cairn_view none, struct cairn_error *err) {
    (void)none;
    const char *column = table->columns[table->key[0]];
    CAIRN_AUTO(buf) sql = {0};
    CAIRN_TRY(cairn_buf_printf(
        &sql, err,
        "SELECT setval(s, greatest((SELECT coalesce(max(%s), 0) FROM %s), 1)) FROM (SELECT "
        "pg_get_serial_sequence('%s', '%s') AS s) q WHERE s IS NOT NULL",
        column, table->name, table->name, column));
    return srv_postgres_exec(own, sql.data, NULL, err);
}

static enum cairn_code loaded(struct srv_tx *tx, const struct srv_table *table,
                              struct cairn_error *err) {
    if (table->key_count != 1 || table->types[table->key[0]] != 'i') return CAIRN_OK;
    return outside(srv_postgres_of(tx), raise_identity, table, (struct cairn_view){0}, err);
}

const struct srv_engine srv_engine_postgres = {
    .name = "postgresql",
    .knows = srv_postgres_knows,
    .take = srv_postgres_take,
    .leave = srv_postgres_leave,
    .describe = describe,
    .server = server_of,
    .behind = behind,
    .join = srv_postgres_join,
    .shareable = true,
    .shared = shared,
    .lives = srv_postgres_lives,
    .connect = srv_postgres_connect,
    .disconnect = srv_postgres_disconnect,
    .migrate = srv_postgres_migrate,
    .begin_read = begin_read,
    .end_read = end_read,
    .begin_write = begin_write,
    .commit = commit,
    .rollback = rollback,
    .is_open = is_open,
    .savepoint = savepoint,
    .keep = keep,
    .undo = undo,
    .expect = srv_postgres_expect,
    .run = run,
    .start = start,
    .next = next,
    .finish = finish,
    .is_null = is_null,
    .number = number,
    .text = text,
    .bytes = bytes,
    .notify = srv_postgres_notify,
    .listen = listen_at,
    .listen_for = listen_for,
    .is_there = is_there,
    .alone = srv_postgres_alone,
    .load = load,
    .loaded = loaded,
};
