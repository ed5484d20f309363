/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a copy into a table of PostgreSQL: one transaction with one COPY, outside of libpq's
 * pipeline, in which there is none; see engine.h. */
#include <poll.h>

#include "common/buf.h"
#include "common/clock.h"
#include "server/db/engine_postgres.h"
#include "server/db/pack.h"

/* What COPY's binary form has around its rows: signature, flags, no extension; no further row. */
static const char head[] = "PGCOPY\n\377\r\n\0\0\0\0\0\0\0\0";
#define HEAD_BYTES 19
static const char tail[2] = {'\377', '\377'};

static enum cairn_code lost(struct cairn_srv_postgres *own, const char *what,
                            struct cairn_error *err) {
    enum cairn_code code = cairn_srv_postgres_fail(own->conn, NULL, what, err);
    cairn_srv_postgres_drop(own);
    return code;
}

/* libpq takes all that is given, or says that it would have to wait. */
static enum cairn_code put(struct cairn_srv_postgres *own, struct cairn_view bytes, bool is_end,
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

static enum cairn_code send_rows(struct cairn_srv_postgres *own, struct cairn_view rows,
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

/* What became of a command; all of its results are taken. */
static enum cairn_code hear(struct cairn_srv_postgres *own, ExecStatusType wanted,
                            struct cairn_error *err) {
    enum cairn_code code = CAIRN_OK;
    for (;;) {
        CAIRN_TRY(cairn_srv_postgres_wait(own, code ? NULL : err));
        PGresult *result = PQgetResult(own->conn);
        if (!result) return code;
        ExecStatusType status = PQresultStatus(result);
        if (!code && status != wanted)
            code = cairn_srv_postgres_fail(own->conn, result, "COPY", err);
        PQclear(result);
        if (status == PGRES_COPY_IN) return code; /* it goes on until the rows' end is sent */
    }
}

static enum cairn_code copy_in(struct cairn_srv_postgres *own, const struct cairn_srv_table *table,
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

/* Pipeline mode is left, and entered again whatever happened in between. */
static enum cairn_code
outside(struct cairn_srv_postgres *own,
        enum cairn_code (*work)(struct cairn_srv_postgres *own, const struct cairn_srv_table *table,
                                struct cairn_view rows, struct cairn_error *err),
        const struct cairn_srv_table *table, struct cairn_view rows, struct cairn_error *err) {
    CAIRN_ASSERT(own->ahead_count == 0);
    if (!own->conn) return cairn_fail(err, CAIRN_UNAVAILABLE, "catalog: the connection was lost");
    if (!PQexitPipelineMode(own->conn)) return lost(own, "pipeline", err);
    enum cairn_code code = work(own, table, rows, err);
    if (own->conn && !PQenterPipelineMode(own->conn) && !code) code = lost(own, "pipeline", err);
    return code;
}

static enum cairn_code load_all(struct cairn_srv_postgres *own, const struct cairn_srv_table *table,
                                struct cairn_view rows, struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_postgres_exec(own, "BEGIN; SET LOCAL statement_timeout = 0", NULL, err));
    enum cairn_code code = copy_in(own, table, rows, err);
    if (!code) return cairn_srv_postgres_exec(own, "COMMIT", NULL, err);
    if (own->conn) (void)!cairn_srv_postgres_exec(own, "ROLLBACK", NULL, NULL);
    return cairn_within(err, code, "table %s", table->name);
}

/* Only a connection tells, and a look at what is in it. */
bool cairn_srv_postgres_is_there(const char *where) {
    (void)where;
    return true;
}

enum cairn_code cairn_srv_postgres_load(struct cairn_srv_tx *tx,
                                        const struct cairn_srv_table *table, struct cairn_view rows,
                                        struct cairn_error *err) {
    return outside(cairn_srv_postgres_of(tx), load_all, table, rows, err);
}

/* The next number of an identity is its sequence's, which COPY does not raise. */
static enum cairn_code raise_identity(struct cairn_srv_postgres *own,
                                      const struct cairn_srv_table *table, struct cairn_view none,
                                      struct cairn_error *err) {
    (void)none;
    const char *column = table->columns[table->key[0]];
    CAIRN_AUTO(buf) sql = {0};
    CAIRN_TRY(cairn_buf_printf(
        &sql, err,
        "SELECT setval(s, greatest((SELECT coalesce(max(%s), 0) FROM %s), 1)) FROM (SELECT "
        "pg_get_serial_sequence('%s', '%s') AS s) q WHERE s IS NOT NULL",
        column, table->name, table->name, column));
    return cairn_srv_postgres_exec(own, sql.data, NULL, err);
}

enum cairn_code cairn_srv_postgres_loaded(struct cairn_srv_tx *tx,
                                          const struct cairn_srv_table *table,
                                          struct cairn_error *err) {
    if (table->key_count != 1 || table->types[table->key[0]] != 'i') return CAIRN_OK;
    return outside(cairn_srv_postgres_of(tx), raise_identity, table, (struct cairn_view){0}, err);
}
