/* SPDX-License-Identifier: Apache-2.0 */
/* Where the database is, how a session with it begins, and its schema; see engine_postgres.h. */
#include <stdio.h>
#include <stdlib.h>

#include "common/buf.h"
#include "common/id.h"
#include "common/text.h"
#include "server/catalog/dialect.h"
#include "server/catalog/engine_postgres.h"

#define MIGRATION_ANSWER_MS (60 * 60 * 1000)

/* Ours, among the advisory locks of a database; the second number is the schema's name. */
#define LOCK_CLASS "1667330670"

/* ---- the place ---- */

bool cairn_srv_postgres_knows(const char *where) {
    return cairn_text_starts(where, "postgresql://") || cairn_text_starts(where, "postgres://");
}

/* Settings are shown to people, and arguments to everybody on the machine. */
static enum cairn_code refuse_password(const char *url, struct cairn_error *err) {
    const char *user = strstr(url, "://") + 3;
    const char *at = memchr(user, '@', strcspn(user, "/?"));
    if (!strstr(url, "password=") && !(at && memchr(user, ':', (size_t)(at - user))))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "catalog holds a password: put it into a password file (~/.pgpass, or the "
                      "one that PGPASSFILE names), which libpq reads by itself");
}

static enum cairn_code refuse_malformed(const char *url, struct cairn_error *err) {
    char *said = NULL;
    PQconninfoOption *options = PQconninfoParse(url, &said);
    enum cairn_code code = CAIRN_OK;
    if (!options)
        code = cairn_fail(err, CAIRN_INVALID, "catalog: %.*s",
                          (int)(said ? strcspn(said, "\n") : 9), said ? said : "no memory");
    PQconninfoFree(options);
    PQfreemem(said);
    return code;
}

enum cairn_code cairn_srv_postgres_take(const char *where, void **ret_place,
                                        struct cairn_error *err) {
    CAIRN_TRY(refuse_password(where, err));
    CAIRN_TRY(refuse_malformed(where, err));
    struct cairn_srv_postgres_place *place = calloc(1, sizeof(*place));
    if (place) place->url = strdup(where);
    if (!place || !place->url) {
        free(place);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the catalog");
    }
    cairn_uuid_random(place->writer);
    *ret_place = place;
    return CAIRN_OK;
}

void cairn_srv_postgres_leave(void *place) {
    free(((struct cairn_srv_postgres_place *)place)->url);
    free(place);
}

/* ---- a session ---- */

/* What libpq would otherwise leave open; its own sources (the URI, the environment, a service) go
 * before these. */
static const struct {
    const char *keyword, *variable, *value;
} defaults[] = {
    {"connect_timeout", "PGCONNECT_TIMEOUT", "5"},
    {"target_session_attrs", "PGTARGETSESSIONATTRS", "read-write"},
    {"keepalives_idle", NULL, "10"},
    {"keepalives_interval", NULL, "5"},
    {"keepalives_count", NULL, "3"},
    {"tcp_user_timeout", NULL, "20000"},
};

static bool is_left_open(const char *url, size_t i) {
    if (strstr(url, defaults[i].keyword) || strstr(url, "service=") || getenv("PGSERVICE"))
        return false;
    return !defaults[i].variable || !getenv(defaults[i].variable);
}

static PGconn *dial(const char *url) {
    const char *keywords[CAIRN_COUNT(defaults) + 4] = {0};
    const char *values[CAIRN_COUNT(defaults) + 4] = {0};
    size_t count = 0;
    for (size_t i = 0; i < CAIRN_COUNT(defaults); i++) {
        if (!is_left_open(url, i)) continue;
        keywords[count] = defaults[i].keyword;
        values[count++] = defaults[i].value;
    }
    keywords[count] = "dbname";
    values[count++] = url;
    keywords[count] = "client_encoding";
    values[count++] = "UTF8";
    keywords[count] = "fallback_application_name";
    values[count++] = "cairn-server";
    return PQconnectdbParams(keywords, values, 1);
}

/* Plans are made once, loops over indexes as SQLite's, whatever the statistics say of tables that
 * were small when they were last looked at: tests/server/test_statements.c looks at them. A
 * server that was stopped in a transaction does not hold it for ever, and one whose machine is gone
 * is noticed. */
static const char session[] =
    "SET statement_timeout = '30s'; SET lock_timeout = '5s';"
    "SET idle_in_transaction_session_timeout = '60s';"
    "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3;"
    "SET standard_conforming_strings = on; SET plan_cache_mode = force_generic_plan;"
    "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;"
    "SET jit = off;";

static const struct {
    const char *ask, *bad, *why;
} demands[] = {
    {"SELECT current_setting('fsync')", "off",
     "fsync is off, so a power cut would lose commits: set it to on"},
    {"SELECT current_setting('full_page_writes')", "off",
     "full_page_writes is off, so a power cut would damage pages: set it to on"},
    {"SELECT pg_is_in_recovery()::text", "true", "it is a standby: name the primary"},
    {"SELECT coalesce(current_schema(), '')", "",
     "search_path names no schema that is there for it: create one, or GRANT USAGE ON SCHEMA"},
    {"SELECT CASE current_setting('server_encoding') WHEN 'UTF8' THEN 'good' ELSE 'bad' END", "bad",
     "the database's encoding is not UTF8: create one with ENCODING 'UTF8'"},
    {"SELECT (to_regclass('cairn_catalog') IS NOT NULL OR"
     " has_schema_privilege(current_schema(), 'CREATE'))::text",
     "false", "the role may not create tables: GRANT CREATE ON SCHEMA"},
    {"SELECT coalesce(bool_and(has_table_privilege(c.oid, 'SELECT') AND"
     " has_table_privilege(c.oid, 'INSERT') AND has_table_privilege(c.oid, 'UPDATE') AND"
     " has_table_privilege(c.oid, 'DELETE')), true)::text FROM pg_class c JOIN pg_namespace n"
     " ON n.oid = c.relnamespace WHERE n.nspname = current_schema() AND c.relkind = 'r'",
     "false",
     "the role may not change its tables: GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN"
     " SCHEMA"},
};

/* The first column of the first row, as text. */
static enum cairn_code ask(struct cairn_srv_postgres *own, const char *sql, char ret[64],
                           struct cairn_error *err) {
    PGresult *result = NULL;
    CAIRN_TRY(cairn_srv_postgres_exec(own, sql, &result, err));
    snprintf(ret, 64, "%s", PQntuples(result) ? PQgetvalue(result, 0, 0) : "");
    PQclear(result);
    return CAIRN_OK;
}

static enum cairn_code demand_all(struct cairn_srv_postgres *own, struct cairn_error *err) {
    char said[64];
    for (size_t i = 0; i < CAIRN_COUNT(demands); i++) {
        CAIRN_TRY(ask(own, demands[i].ask, said, err));
        if (!strcmp(said, demands[i].bad))
            return cairn_fail(err, CAIRN_UNSUPPORTED,
                              "the catalog cannot be kept in %s by the role %s: %s",
                              own->place->url, PQuser(own->conn), demands[i].why);
    }
    /* D02: what the operator chose is kept, as long as it is durable. */
    CAIRN_TRY(ask(own, "SELECT current_setting('synchronous_commit')", said, err));
    if (strcmp(said, "off") != 0) return CAIRN_OK;
    return cairn_srv_postgres_exec(own, "SET synchronous_commit = on", NULL, err);
}

/* As long as the session lives: whoever waits here waits for one that has not ended yet. */
static enum cairn_code take_lock(struct cairn_srv_postgres *own, struct cairn_error *err) {
    struct cairn_error why = {0};
    enum cairn_code code = cairn_srv_postgres_exec(
        own, "SELECT pg_advisory_lock(" LOCK_CLASS ", hashtext(current_schema()))", NULL, &why);
    if (code == CAIRN_BUSY)
        return cairn_fail(err, CAIRN_CONFLICT, "another cairn-server uses this catalog: %s",
                          own->place->url);
    if (code && err) *err = why;
    return code;
}

static enum cairn_code begin_session(struct cairn_srv_postgres *own, struct cairn_error *err) {
    own->conn = dial(own->place->url);
    if (!own->conn || PQstatus(own->conn) != CONNECTION_OK)
        return cairn_srv_postgres_explain(own->conn, err);
    CAIRN_TRY(cairn_srv_postgres_release(own->conn, err));
    if (PQsetnonblocking(own->conn, 1))
        return cairn_srv_postgres_fail(own->conn, NULL, own->place->url, err);
    CAIRN_TRY(cairn_srv_postgres_exec(own, session, NULL, err));
    if (!own->read_only) {
        CAIRN_TRY(demand_all(own, err));
        CAIRN_TRY(take_lock(own, err));
    }
    if (!PQenterPipelineMode(own->conn))
        return cairn_srv_postgres_fail(own->conn, NULL, "pipeline", err);
    return CAIRN_OK;
}

enum cairn_code cairn_srv_postgres_connect(void *place, bool read_only, struct cairn_srv_tx **ret,
                                           struct cairn_error *err) {
    struct cairn_srv_postgres *own = calloc(1, sizeof(*own));
    if (!own) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a catalog connection");
    own->tx.engine = &cairn_srv_engine_postgres;
    own->place = place;
    own->read_only = read_only;
    own->answer_ms = CAIRN_SRV_POSTGRES_ANSWER_MS;
    enum cairn_code code = begin_session(own, err);
    if (code)
        cairn_srv_postgres_disconnect(&own->tx);
    else
        *ret = &own->tx;
    return code;
}

void cairn_srv_postgres_disconnect(struct cairn_srv_tx *tx) {
    struct cairn_srv_postgres *own = cairn_srv_postgres_of(tx);
    cairn_srv_postgres_drop(own);
    free(own);
}

/* What was in memory of a server does not go on where another one wrote in between. */
static enum cairn_code still_ours(struct cairn_srv_postgres *own, struct cairn_error *err) {
    static const struct cairn_srv_statement look = {
        "writer", "t", "SELECT 1 FROM cairn_catalog WHERE writer = ?1"};
    const struct cairn_srv_value values[] = {SQL_T(own->place->writer)};
    PGresult *result = NULL;
    CAIRN_TRY(cairn_srv_postgres_ask(own, &look, values, &result, err));
    bool ours = PQntuples(result) > 0;
    PQclear(result);
    if (ours) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CONFLICT,
                      "another cairn-server has written to this catalog since the connection to it "
                      "was lost: start this one again");
}

enum cairn_code cairn_srv_postgres_reconnect(struct cairn_srv_postgres *own,
                                             struct cairn_error *err) {
    cairn_srv_postgres_drop(own);
    enum cairn_code code = begin_session(own, err);
    if (!code && !own->read_only) code = still_ours(own, err);
    if (code) cairn_srv_postgres_drop(own);
    return code;
}

/* ---- the schema ---- */

/* One row: the schema's number, and who wrote last (engine_postgres.h#3). */
static const char first_table[] =
    "CREATE TABLE cairn_catalog(one BIGINT PRIMARY KEY CHECK(one = 1), schema BIGINT NOT NULL,"
    "  writer TEXT NOT NULL, batch BIGINT NOT NULL);"
    "INSERT INTO cairn_catalog VALUES(1, 0, '', 0);";

static enum cairn_code run_step(struct cairn_srv_postgres *own,
                                const struct cairn_srv_migration *step, struct cairn_error *err) {
    CAIRN_AUTO(buf) sql = {0};
    CAIRN_TRY(cairn_srv_dialect_schema(step->sql, &sql, err));
    CAIRN_TRY(cairn_srv_postgres_exec(own, sql.data, NULL, err));
    cairn_buf_clear(&sql);
    CAIRN_TRY(
        cairn_buf_printf(&sql, err, "UPDATE cairn_catalog SET schema = %u", step->number));
    return cairn_srv_postgres_exec(own, sql.data, NULL, err);
}

static enum cairn_code run_migrations(struct cairn_srv_postgres *own, unsigned long from,
                                      struct cairn_error *err) {
    for (size_t i = 0; i < cairn_srv_migration_count; i++) {
        const struct cairn_srv_migration *step = &cairn_srv_migrations[i];
        if (step->number <= from) continue;
        CAIRN_TRY(
            cairn_srv_postgres_exec(own, "BEGIN; SET LOCAL statement_timeout = 0", NULL, err));
        enum cairn_code code = run_step(own, step, err);
        if (!code) code = cairn_srv_postgres_exec(own, "COMMIT", NULL, err);
        if (!code) continue;
        if (own->conn) (void)!cairn_srv_postgres_exec(own, "ROLLBACK", NULL, NULL);
        return cairn_within(err, code, "migration %u", step->number);
    }
    return CAIRN_OK;
}

static enum cairn_code bring_up(struct cairn_srv_postgres *own, struct cairn_error *err) {
    char said[64], sql[160];
    CAIRN_TRY(ask(own, "SELECT to_regclass('cairn_catalog')::text", said, err));
    if (!said[0]) CAIRN_TRY(cairn_srv_postgres_exec(own, first_table, NULL, err));
    CAIRN_TRY(ask(own, "SELECT schema FROM cairn_catalog", said, err));
    unsigned long found = strtoul(said, NULL, 10);
    if (found > cairn_srv_catalog_schema())
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "the catalog has schema %lu; this program knows up to %u: start the "
                          "release that wrote it, or a newer one",
                          found, cairn_srv_catalog_schema());
    CAIRN_TRY(run_migrations(own, found, err));
    snprintf(sql, sizeof(sql), "UPDATE cairn_catalog SET writer = '%s', batch = 0",
             own->place->writer);
    return cairn_srv_postgres_exec(own, sql, NULL, err);
}

enum cairn_code cairn_srv_postgres_migrate(struct cairn_srv_tx *tx, struct cairn_error *err) {
    struct cairn_srv_postgres *own = cairn_srv_postgres_of(tx);
    if (!PQexitPipelineMode(own->conn))
        return cairn_srv_postgres_fail(own->conn, NULL, "pipeline", err);
    own->answer_ms = MIGRATION_ANSWER_MS;
    enum cairn_code code = bring_up(own, err);
    own->answer_ms = CAIRN_SRV_POSTGRES_ANSWER_MS;
    if (!code && !PQenterPipelineMode(own->conn))
        code = cairn_srv_postgres_fail(own->conn, NULL, "pipeline", err);
    return code;
}
