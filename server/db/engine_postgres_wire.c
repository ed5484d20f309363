/* SPDX-License-Identifier: Apache-2.0 */
/* Sends commands without waiting, in libpq's pipeline, and receives results together: a change
 * waits for the network only as often as it reads. Each wait is bounded. See engine_postgres.h. */

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "server/db/engine_postgres.h"

/* Types of parameters (PostgreSQL's pg_type.h; they never change). */
#define OID_BYTEA 17
#define OID_INT8 20
#define OID_TEXT 25

/* Maps SQLSTATE to our codes. */
static const struct {
    const char *begins;
    enum cairn_code code;
} states[] = {
    {"53100", CAIRN_NO_SPACE}, {"53200", CAIRN_NO_MEMORY}, {"53", CAIRN_UNAVAILABLE},
    {"40", CAIRN_BUSY},        {"55P03", CAIRN_BUSY},      {"57014", CAIRN_BUSY},
    {"57", CAIRN_UNAVAILABLE}, {"08", CAIRN_UNAVAILABLE},  {"25006", CAIRN_UNAVAILABLE},
    {"25P03", CAIRN_BUSY},     {"58030", CAIRN_IO},        {"XX001", CAIRN_CORRUPT},
    {"XX002", CAIRN_CORRUPT},  {"42501", CAIRN_FORBIDDEN}, {"28", CAIRN_FORBIDDEN},
    {"54", CAIRN_TOO_LARGE},   {"22021", CAIRN_INVALID},
};

static enum cairn_code code_of(const char *state) {
    for (size_t i = 0; state && i < CAIRN_COUNT(states); i++)
        if (!strncmp(state, states[i].begins, strlen(states[i].begins))) return states[i].code;
    return state ? CAIRN_INTERNAL : CAIRN_UNAVAILABLE;
}

enum cairn_code srv_postgres_fail(const PGconn *conn, const PGresult *result, const char *what,
                                  struct cairn_error *err) {
    const char *state = result ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
    const char *said = result ? PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY) : NULL;
    if (!said) said = conn ? PQerrorMessage(conn) : "no memory";
    return cairn_fail(err, code_of(state), "catalog: %s: %.*s", what, (int)strcspn(said, "\n"),
                      said);
}

void srv_postgres_drop(struct srv_postgres *own) {
    if (own->conn) PQfinish(own->conn);
    own->conn = NULL;
    own->kept_count = 0;
    own->ahead_count = own->kept_ahead = 0;
    own->unended_bytes = 0;
    srv_postgres_expect_no_more(own);
}

static enum cairn_code lost(struct srv_postgres *own, const char *what, struct cairn_error *err) {
    enum cairn_code code =
        own->conn ? srv_postgres_fail(own->conn, NULL, what, err)
                  : cairn_fail(err, CAIRN_UNAVAILABLE, "catalog: %s: the connection is lost", what);
    srv_postgres_drop(own);
    return code;
}

/* Waits until a result is ready and all output is sent. */
static enum cairn_code wait_for_result(struct srv_postgres *own, uint64_t until_ms,
                                       struct cairn_error *err) {
    for (;;) {
        int left = PQflush(own->conn);
        if (left < 0) return lost(own, "sending", err);
        if (!left && !PQisBusy(own->conn)) return CAIRN_OK;
        uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, until_ms);
        short events = (short)(left ? POLLIN | POLLOUT : POLLIN);
        struct pollfd fd = {.fd = PQsocket(own->conn), .events = events};
        int ready = left_ms ? poll(&fd, 1, (int)left_ms) : 0;
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) {
            srv_postgres_drop(own);
            return cairn_fail(err, CAIRN_UNAVAILABLE, "catalog: no answer within %" PRIu64 " s",
                              own->answer_ms / 1000);
        }
        if (fd.revents & ~POLLOUT && !PQconsumeInput(own->conn)) return lost(own, "receiving", err);
    }
}

bool srv_postgres_is_lost(struct srv_postgres *own) {
    if (!own->conn) return true;
    struct pollfd fd = {.fd = PQsocket(own->conn), .events = POLLIN | POLLRDHUP};
    bool said = poll(&fd, 1, 0) > 0 && (!PQconsumeInput(own->conn) || fd.revents & ~POLLIN);
    return said || PQstatus(own->conn) != CONNECTION_OK;
}

/* ---- expected queries ----
 *
 * Sent together, so that a change waits for the network once for all of them. See engine.h#5. */

struct srv_postgres_expected {
    const struct srv_statement *statement; /* NULL: its rows were taken, or it failed */
    struct cairn_buf values;
    PGresult *result; /* NULL: not received yet */
};

static enum cairn_code write_value(struct cairn_buf *ret, const struct srv_value *value,
                                   struct cairn_error *err) {
    struct cairn_view bytes = value->bytes;
    if (value->type == 'i') return cairn_buf_append_u64le(ret, (uint64_t)value->number, err);
    if (value->type == 't') bytes = (struct cairn_view){0};
    if (value->type == 't' && value->text) bytes = cairn_view_of(value->text);
    CAIRN_TRY(cairn_buf_append_u64le(ret, bytes.data ? bytes.size : UINT64_MAX, err));
    return bytes.size ? cairn_buf_append(ret, bytes.data, bytes.size, err) : CAIRN_OK;
}

static enum cairn_code write_values(struct cairn_buf *ret, const struct srv_statement *statement,
                                    const struct srv_value *values, struct cairn_error *err) {
    cairn_buf_clear(ret);
    for (size_t i = 0; statement->types[i]; i++) CAIRN_TRY(write_value(ret, &values[i], err));
    return CAIRN_OK;
}

enum cairn_code srv_postgres_expect(struct srv_tx *tx, const struct srv_statement *statement,
                                    const struct srv_value *values, struct cairn_error *err) {
    struct srv_postgres *own = srv_postgres_of(tx);
    CAIRN_ASSERT(srv_postgres_only_looks(statement));
    if (own->expected_count == SRV_EXPECTED_MAX) return CAIRN_OK;
    if (!own->expected) own->expected = calloc(SRV_EXPECTED_MAX, sizeof(*own->expected));
    if (!own->expected) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for queries");
    struct srv_postgres_expected *one = &own->expected[own->expected_count];
    CAIRN_TRY(write_values(&one->values, statement, values, err));
    CAIRN_TRY(srv_postgres_send(own, statement, values, err));
    own->ahead[own->ahead_count - 1] = 'e';
    one->statement = statement;
    one->result = NULL;
    own->expected_count++;
    if (own->unended_bytes < SRV_POSTGRES_UNENDED_BYTES) return CAIRN_OK;
    return srv_postgres_leave_to_it(own, err);
}

/* Stores the next expected query's result; not good: drops it. */
static void hear_expected(struct srv_postgres *own, PGresult *take_result, bool good) {
    CAIRN_ASSERT(own->expected_heard < own->expected_count);
    struct srv_postgres_expected *one = &own->expected[own->expected_heard++];
    if (!good) {
        PQclear(take_result);
        one->statement = NULL;
        return;
    }
    one->result = take_result;
}

void srv_postgres_expect_no_more(struct srv_postgres *own) {
    for (size_t i = 0; i < own->ahead_count; i++)
        if (own->ahead[i] == 'e') own->ahead[i] = 'c'; /* received like a command, and dropped */
    for (size_t i = 0; i < own->expected_count; i++) {
        PQclear(own->expected[i].result);
        own->expected[i].result = NULL;
    }
    own->expected_count = own->expected_heard = own->expected_next = 0;
}

/* Mostly used in the order in which they were sent. */
static struct srv_postgres_expected *find(struct srv_postgres *own,
                                          const struct srv_statement *statement,
                                          const struct cairn_buf *values) {
    for (size_t i = 0; i < own->expected_count; i++) {
        size_t at = (own->expected_next + i) % own->expected_count;
        struct srv_postgres_expected *one = &own->expected[at];
        if (one->statement != statement || one->values.size != values->size ||
            (values->size && memcmp(one->values.data, values->data, values->size)))
            continue;
        own->expected_next = at + 1;
        return one;
    }
    return NULL;
}

enum cairn_code srv_postgres_take_expected(struct srv_postgres *own,
                                           const struct srv_statement *statement,
                                           const struct srv_value *values, PGresult **ret,
                                           struct cairn_error *err) {
    CAIRN_AUTO(buf) written = {0};
    *ret = NULL;
    if (!own->expected_count) return CAIRN_OK;
    CAIRN_TRY(write_values(&written, statement, values, err));
    struct srv_postgres_expected *one = find(own, statement, &written);
    if (!one) return CAIRN_OK;
    if (!one->result) CAIRN_TRY(srv_postgres_hear(own, NULL, err));
    *ret = CAIRN_TAKE(one->result);
    one->statement = NULL;
    return CAIRN_OK;
}

void srv_postgres_expected_release(struct srv_postgres *own) {
    srv_postgres_expect_no_more(own);
    for (size_t i = 0; own->expected && i < SRV_EXPECTED_MAX; i++)
        cairn_buf_release(&own->expected[i].values);
    free(own->expected);
    own->expected = NULL;
}

bool srv_postgres_only_looks(const struct srv_statement *statement) {
    return !strncmp(statement->sql, "SELECT ", strlen("SELECT "));
}

static bool is_good(const PGresult *result) {
    ExecStatusType status = PQresultStatus(result);
    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

/* engine_postgres.h#6: the read that detects a lower position fails; later reads are answered. */
static enum cairn_code note_position(struct srv_postgres *own, bool counts, const PGresult *result,
                                     struct cairn_error *err) {
    uint64_t wide = 0;
    if (!PQntuples(result))
        return cairn_fail(err, CAIRN_UNAVAILABLE,
                          "catalog: its schema is no longer %u: a server of another release has "
                          "migrated it, so start that release here, too",
                          srv_catalog_schema());
    memcpy(&wide, PQgetvalue(result, 0, 0), sizeof(wide));
    own->position = __builtin_bswap64(wide);
    uint64_t committed = own->position - counts;
    bool known = own->place->behind;
    /* This process's writing thread may have committed a change without recording it here yet. */
    uint64_t mine = own->place->mine;
    if (mine && (counts ? committed != mine : committed > mine + 1)) own->place->shared = true;
    if (committed >= own->since && (own->read_only || !known)) return CAIRN_OK;
    own->place->behind = true;
    if (known && own->read_only) return CAIRN_OK;
    return cairn_fail(
        err, CAIRN_CATALOG_BEHIND,
        "catalog: the database has gone back to change %llu, and this server has seen "
        "change %llu: it was restored, or a standby without the newest commits took "
        "over",
        (unsigned long long)committed, (unsigned long long)own->place->seen);
}

/* Takes the result of the oldest unanswered command; NULL follows a command's result. */
static enum cairn_code take_result(struct srv_postgres *own, char kind, PGresult **ret,
                                   struct cairn_error *err) {
    uint64_t until_ms = cairn_deadline_in(&cairn_clock_real, own->answer_ms);
    CAIRN_TRY(wait_for_result(own, until_ms, err));
    PGresult *result = PQgetResult(own->conn);
    if (!result) return lost(own, "no result", err);
    if (kind != 's') {
        PGresult *end = NULL;
        enum cairn_code code = wait_for_result(own, until_ms, err);
        if (!code && (end = PQgetResult(own->conn))) {
            PQclear(end);
            code = lost(own, "a second result", err);
        }
        if (code) PQclear(result);
        if (code) return code;
    }
    *ret = result;
    return CAIRN_OK;
}

enum cairn_code srv_postgres_hear(struct srv_postgres *own, PGresult **ret,
                                  struct cairn_error *err) {
    if (!own->conn || !PQpipelineSync(own->conn)) return lost(own, "sending", err);
    own->ahead[own->ahead_count++] = 's';
    PGresult *last = NULL;
    enum cairn_code first = CAIRN_OK;
    size_t count = own->ahead_count;
    for (size_t i = 0; i < count; i++) {
        PGresult *result = NULL;
        struct cairn_error why = {0};
        enum cairn_code code = take_result(own, own->ahead[i], &result, &why);
        if (!code && own->ahead[i] != 's' && !is_good(result) && !first)
            code = srv_postgres_fail(own->conn, result, "statement", &why);
        if (!code && strchr("pn", own->ahead[i]) && is_good(result))
            code = note_position(own, own->ahead[i] == 'n', result, &why);
        if (code && !first && err) *err = why;
        if (code && !first && i < own->kept_ahead) own->tx.undone = why;
        if (code && !first) first = code;
        if (own->ahead[i] == 'e' && result) {
            hear_expected(own, result, is_good(result));
        } else if (own->ahead[i] == 's' || !result) {
            PQclear(result);
        } else {
            PQclear(last);
            last = result;
        }
        if (!own->conn) break;
    }
    own->ahead_count = own->kept_ahead = 0;
    own->unended_bytes = 0;
    if (!first && ret)
        *ret = last;
    else
        PQclear(last);
    return first;
}

struct parameters {
    Oid types[SRV_PARAMETERS_MAX];
    const char *values[SRV_PARAMETERS_MAX];
    int sizes[SRV_PARAMETERS_MAX], formats[SRV_PARAMETERS_MAX], count;
    uint64_t numbers[SRV_PARAMETERS_MAX]; /* most significant byte first */
};

static void set_types(struct parameters *parameters, const char *types) {
    for (; types[parameters->count]; parameters->count++) {
        char type = types[parameters->count];
        parameters->types[parameters->count] = type == 'i'   ? OID_INT8
                                               : type == 't' ? OID_TEXT
                                                             : OID_BYTEA;
        parameters->formats[parameters->count] = 1; /* binary */
    }
}

static void set_values(struct parameters *parameters, const struct srv_value *values) {
    for (int i = 0; i < parameters->count; i++) {
        const struct srv_value *value = &values[i];
        if (value->type == 'i') {
            parameters->numbers[i] = __builtin_bswap64((uint64_t)value->number);
            parameters->values[i] = (const char *)&parameters->numbers[i];
            parameters->sizes[i] = sizeof(parameters->numbers[i]);
        } else if (value->type == 't') {
            parameters->values[i] = value->text;
            parameters->sizes[i] = value->text ? (int)strlen(value->text) : 0;
        } else {
            parameters->values[i] = value->bytes.data;
            parameters->sizes[i] = (int)value->bytes.size;
        }
    }
}

/* Prepares once a session; *ret is its number, KEPT_MAX when all numbers are used. */
static enum cairn_code prepare(struct srv_postgres *own, const struct srv_statement *statement,
                               const struct parameters *parameters, size_t *ret,
                               struct cairn_error *err) {
    for (size_t i = 0; i < own->kept_count; i++) {
        if (own->kept[i] != statement->sql) continue;
        *ret = i;
        return CAIRN_OK;
    }
    *ret = own->kept_count;
    if (own->kept_count == SRV_POSTGRES_KEPT_MAX) return CAIRN_OK;
    CAIRN_AUTO(buf) sql = {0};
    char name[24];
    snprintf(name, sizeof(name), "c%zu", own->kept_count);
    CAIRN_TRY(srv_dialect_statement(statement->sql, &sql, err));
    /* Receives earlier results first: a failure there is not this statement's. */
    if (own->ahead_count) CAIRN_TRY(srv_postgres_hear(own, NULL, err));
    if (!own->conn ||
        !PQsendPrepare(own->conn, name, sql.data, parameters->count, parameters->types))
        return lost(own, statement->name, err);
    own->ahead[own->ahead_count++] = 'c';
    enum cairn_code code = srv_postgres_hear(own, NULL, err);
    if (code) return cairn_within(err, code, "%s", statement->name);
    own->kept[own->kept_count++] = statement->sql;
    return CAIRN_OK;
}

static uint64_t bytes_of(const struct parameters *parameters) {
    uint64_t all = 0;
    for (int i = 0; i < parameters->count; i++) all += (uint64_t)parameters->sizes[i];
    return all;
}

/* The database counts idle-in-transaction time until a whole message has arrived. Sending a large
 * one may take longer, so this statement precedes it; if the server stops in the middle, another
 * server ends its session (engine_postgres.h#2). */
static const struct srv_statement not_idle = {"not_idle", "", "SELECT 1"};

enum cairn_code srv_postgres_send(struct srv_postgres *own, const struct srv_statement *statement,
                                  const struct srv_value *values, struct cairn_error *err) {
    struct parameters parameters = {0};
    size_t number = 0;
    set_types(&parameters, statement->types);
    set_values(&parameters, values);
    if (!own->conn) return lost(own, statement->name, err);
    if (own->ahead_count >= SRV_POSTGRES_AHEAD_MAX) CAIRN_TRY(srv_postgres_hear(own, NULL, err));
    CAIRN_TRY(prepare(own, statement, &parameters, &number, err));
    if (bytes_of(&parameters) >= SRV_POSTGRES_LARGE_BYTES)
        CAIRN_TRY(srv_postgres_send(own, &not_idle, NULL, err));
    bool sent = false;
    if (number < SRV_POSTGRES_KEPT_MAX) {
        char name[24];
        snprintf(name, sizeof(name), "c%zu", number);
        sent = PQsendQueryPrepared(own->conn, name, parameters.count, parameters.values,
                                   parameters.sizes, parameters.formats, 1);
    } else {
        CAIRN_AUTO(buf) sql = {0};
        CAIRN_TRY(srv_dialect_statement(statement->sql, &sql, err));
        sent = PQsendQueryParams(own->conn, sql.data, parameters.count, parameters.types,
                                 parameters.values, parameters.sizes, parameters.formats, 1);
    }
    if (!sent) return lost(own, statement->name, err);
    own->ahead[own->ahead_count++] = 'c';
    own->unended_bytes += bytes_of(&parameters);
    return CAIRN_OK;
}

enum cairn_code srv_postgres_send_position(struct srv_postgres *own, bool counts,
                                           const struct srv_statement *statement,
                                           const struct srv_value *values,
                                           struct cairn_error *err) {
    own->position = 0;
    own->since = own->place->seen;
    CAIRN_TRY(srv_postgres_send(own, statement, values, err));
    own->ahead[own->ahead_count - 1] = counts ? 'n' : 'p';
    return CAIRN_OK;
}

enum cairn_code srv_postgres_leave_to_it(struct srv_postgres *own, struct cairn_error *err) {
    if (!own->conn || !PQpipelineSync(own->conn)) return lost(own, "sending", err);
    own->ahead[own->ahead_count++] = 's';
    own->unended_bytes = 0;
    return PQflush(own->conn) < 0 ? lost(own, "sending", err) : CAIRN_OK;
}

enum cairn_code srv_postgres_query(struct srv_postgres *own, const struct srv_statement *statement,
                                   const struct srv_value *values, PGresult **ret,
                                   struct cairn_error *err) {
    CAIRN_TRY(srv_postgres_send(own, statement, values, err));
    enum cairn_code code = srv_postgres_hear(own, ret, err);
    return code ? cairn_within(err, code, "%s", statement->name) : CAIRN_OK;
}

enum cairn_code srv_postgres_exec(struct srv_postgres *own, const char *sql, PGresult **ret,
                                  struct cairn_error *err) {
    if (!PQsendQuery(own->conn, sql)) return lost(own, "sending", err);
    uint64_t until_ms = cairn_deadline_in(&cairn_clock_real, own->answer_ms);
    enum cairn_code first = CAIRN_OK;
    PGresult *last = NULL;
    for (;;) {
        enum cairn_code code = wait_for_result(own, until_ms, first ? NULL : err);
        PGresult *result = code ? NULL : PQgetResult(own->conn);
        if (code && !first) first = code;
        if (!result) break;
        if (!first && !is_good(result))
            first = srv_postgres_fail(own->conn, result, "statement", err);
        PQclear(last);
        last = result;
    }
    if (!first && ret)
        *ret = last;
    else
        PQclear(last);
    return first;
}

enum cairn_code srv_postgres_wait(struct srv_postgres *own, struct cairn_error *err) {
    uint64_t until_ms = cairn_deadline_in(&cairn_clock_real, own->answer_ms);
    return wait_for_result(own, until_ms, err);
}
