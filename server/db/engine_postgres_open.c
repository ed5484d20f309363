/* SPDX-License-Identifier: Apache-2.0 */
/* Connection settings, session start and schema; see engine_postgres.h. */

#include <ctype.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/file.h"
#include "common/hash/hash.h"
#include "common/hooks.h"
#include "server/db/engine_postgres.h"

#define MIGRATION_ANSWER_MS (60 * 60 * 1000)

/* This program's class of advisory locks; the second number stands for the schema. */
#define LOCK_CLASS "1667330670"
#define TAKE_LOCK "SELECT pg_advisory_xact_lock(" LOCK_CLASS ", hashtext(current_schema()))"
/* All writing sessions share this lock; a copy takes it exclusively. */
#define USE_LOCK "(" USE_CLASS ", hashtext(current_schema()))"
#define USE_CLASS "1667330671"
#define LAST_ONE_MS 5000 /* sessions of a killed server linger for a moment */
#define PAUSE_MS 100
#define MIGRATION_LOCK_TEXT "90s" /* time for another server's migration */

const struct srv_statement srv_postgres_take_lock = {"lock", "", TAKE_LOCK};
const struct srv_statement srv_postgres_read_position = {"read_position", "",
                                                         "SELECT position FROM cairn_catalog"};

/* Works for the same role without more rights. A transaction takes about a second, so a session
 * that has waited five for its server is ended; its server repeats its changes. */
const struct srv_statement srv_postgres_end_holder = {
    "end_holder", "",
    "SELECT pg_terminate_backend(a.pid) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid "
    "WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.granted AND l.database = (SELECT oid "
    "FROM pg_database WHERE datname = current_database()) AND l.classid = " LOCK_CLASS
    " AND l.objid = CAST(CAST(hashtext(current_schema()) AS BIGINT) & 4294967295 AS OID) AND "
    "a.wait_event_type = 'Client' AND a.state <> 'idle' AND a.xact_start < now() - INTERVAL "
    "'" SRV_POSTGRES_STOPPED_TEXT "'"};

bool srv_postgres_knows(const char *where) {
    return cairn_text_starts(where, "postgresql://") || cairn_text_starts(where, "postgres://");
}

/* Settings are displayed, and arguments are visible to every user of the machine. */
static enum cairn_code refuse_password(const char *url, struct cairn_error *err) {
    const char *user = strstr(url, "://") + 3;
    const char *at = memchr(user, '@', strcspn(user, "/?"));
    if (!strstr(url, "password=") && !(at && memchr(user, ':', (size_t)(at - user))))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "catalog holds a password: put it into a file that catalog-password-file "
                      "names, or into libpq's own (~/.pgpass, or the one that PGPASSFILE names)");
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

enum cairn_code srv_postgres_take(const char *where, void **ret_place, struct cairn_error *err) {
    CAIRN_TRY(refuse_password(where, err));
    CAIRN_TRY(refuse_malformed(where, err));
    struct srv_postgres_place *place = calloc(1, sizeof(*place));
    if (place) place->url = strdup(where);
    if (!place || !place->url) {
        free(place);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the catalog");
    }
    cairn_uuid_random(place->server);
    *ret_place = place;
    return CAIRN_OK;
}

void srv_postgres_leave(void *place) {
    free(((struct srv_postgres_place *)place)->url);
    free(place);
}

/* Defaults for libpq; the URI, the environment and a service file take precedence. */
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

static const char *password_file; /* set before threads start */

void srv_postgres_password_from(const char *path) {
    password_file = path && *path ? path : NULL;
}

static enum cairn_code dial(const char *url, PGconn **ret, struct cairn_error *err) {
    const char *keywords[CAIRN_COUNT(defaults) + 5] = {0};
    const char *values[CAIRN_COUNT(defaults) + 5] = {0};
    CAIRN_AUTO(buf) password = {.limit = 4096};
    size_t count = 0;
    for (size_t i = 0; i < CAIRN_COUNT(defaults); i++) {
        if (!is_left_open(url, i)) continue;
        keywords[count] = defaults[i].keyword;
        values[count++] = defaults[i].value;
    }
    if (password_file) {
        enum cairn_code code = cairn_file_load_secret_line(password_file, &password, err);
        if (code) return cairn_within(err, code, "catalog-password-file");
        keywords[count] = "password";
        values[count++] = password.data;
    }
    keywords[count] = "dbname";
    values[count++] = url;
    keywords[count] = "client_encoding";
    values[count++] = "UTF8";
    keywords[count] = "fallback_application_name";
    values[count++] = "cairn-server";
    *ret = PQconnectdbParams(keywords, values, 1);
    if (password.data) cairn_wipe(password.data, password.size);
    return CAIRN_OK;
}

/* Plans are fixed once, nested loops over indexes as in SQLite, whatever statistics say about
 * formerly small tables; tests/server/test_statements.c checks them. Time-outs end the transaction
 * of a stopped server, and detect one whose machine is gone. */
static const char session[] =
    "SET statement_timeout = '30s'; SET lock_timeout = '" SRV_POSTGRES_LOCK_TEXT "';"
    "SET idle_in_transaction_session_timeout = '60s';"
    "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3;"
    "SET standard_conforming_strings = on; SET plan_cache_mode = force_generic_plan;"
    "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;"
    "SET jit = off; SET client_min_messages = warning;";

/* engine_postgres.h#2: all other servers wait for a changing transaction. */
static const char bounded[] =
    "SET idle_in_transaction_session_timeout = '" SRV_POSTGRES_STOPPED_TEXT "'";

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

/* Text of the first column of the first row. */
static enum cairn_code ask(struct srv_postgres *own, const char *sql, char ret[64],
                           struct cairn_error *err) {
    PGresult *result = NULL;
    CAIRN_TRY(srv_postgres_exec(own, sql, &result, err));
    snprintf(ret, 64, "%s", PQntuples(result) ? PQgetvalue(result, 0, 0) : "");
    PQclear(result);
    return CAIRN_OK;
}

static enum cairn_code demand_all(struct srv_postgres *own, struct cairn_error *err) {
    char said[64];
    for (size_t i = 0; i < CAIRN_COUNT(demands); i++) {
        CAIRN_TRY(ask(own, demands[i].ask, said, err));
        if (!strcmp(said, demands[i].bad))
            return cairn_fail(err, CAIRN_UNSUPPORTED,
                              "the catalog cannot be kept in %s by the role %s: %s",
                              own->place->url, PQuser(own->conn), demands[i].why);
    }
    /* D02: keeps the operator's setting if it is durable. */
    CAIRN_TRY(ask(own, "SELECT current_setting('synchronous_commit')", said, err));
    if (strcmp(said, "off") != 0) return CAIRN_OK;
    return srv_postgres_exec(own, "SET synchronous_commit = on", NULL, err);
}

/* ---- remedies for a failed connection ---- */

/* Matches libpq's words, or the database's before authentication, in English only. */
static const struct {
    const char *said, *remedy;
} remedies[] = {
    {"session is read-only", "name the primary, or all hosts with commas between"},
    {"service", "see the file that PGSERVICEFILE names, or ~/.pg_service.conf"},
    {"database \"", "create it, or name another one in the setting catalog"},
    {"role \"", "create it, or name another one in the setting catalog"},
    {"too many clients", "raise max_connections"},
    {"remaining connection slots", "raise max_connections"},
    {"No such file or directory", "is it running, and is this its socket?"},
    {"Connection refused", "is it running, and are these its host and port?"},
    {"could not translate host name", "is it running, and is this its host?"},
    {"timeout expired", "is it running, and can it be reached from here?"},
};

static const char password[] = "see the password file (PGPASSFILE, or ~/.pgpass; its mode is 0600)";

static const char *remedy_for(const PGconn *conn, const char *said) {
    if (PQconnectionNeedsPassword(conn) || PQconnectionUsedPassword(conn)) return password;
    for (size_t i = 0; i < CAIRN_COUNT(remedies); i++)
        if (strstr(said, remedies[i].said)) return remedies[i].remedy;
    return NULL;
}

static enum cairn_code explain_no_connection(const PGconn *conn, struct cairn_error *err) {
    if (!conn) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a catalog connection");
    const char *said = PQerrorMessage(conn), *remedy = remedy_for(conn, said);
    return cairn_fail(err, CAIRN_UNAVAILABLE, "catalog: %.*s%s%s", (int)strcspn(said, "\n"), said,
                      remedy ? ": " : "", remedy ? remedy : "");
}

static enum cairn_code refuse_old_release(const PGconn *conn, struct cairn_error *err) {
    int release = PQserverVersion(conn) / 10000;
    if (release >= SRV_POSTGRES_RELEASE_MIN) return CAIRN_OK;
    return cairn_fail(err, CAIRN_UNSUPPORTED,
                      "the catalog's database is PostgreSQL %s: install %d or newer",
                      PQparameterStatus(conn, "server_version"), SRV_POSTGRES_RELEASE_MIN);
}

/* ---- detection of other products ---- */

/* Names in version(). PostgreSQL with additions (Citus, Aurora, EDB's) is not listed. */
static const struct {
    const char *said, *name;
} lookalikes[] = {
    {"CockroachDB", "CockroachDB"}, {"-YB-", "YugabyteDB"},         {"Yugabyte", "YugabyteDB"},
    {"Redshift", "Redshift"},       {"Materialize", "Materialize"}, {"RisingWave", "RisingWave"},
    {"Greenplum", "Greenplum"},     {"CrateDB", "CrateDB"},         {"QuestDB", "QuestDB"},
};

static enum cairn_code refuse_lookalike(const struct srv_postgres *own, const char *version,
                                        const char *lacks, struct cairn_error *err) {
    const char *name = NULL;
    for (size_t i = 0; i < CAIRN_COUNT(lookalikes) && !name; i++)
        if (strstr(version, lookalikes[i].said)) name = lookalikes[i].name;
    if (!name && !lacks) return CAIRN_OK;
    return cairn_fail(err, CAIRN_UNSUPPORTED,
                      "the catalog cannot be kept in %s: it is %s%.60s%s, which speaks "
                      "PostgreSQL's protocol and lacks %s: name a database of PostgreSQL 14 or "
                      "newer",
                      cairn_short(own->place->url).text, name ? name : "\"", name ? "" : version,
                      name ? "" : "\"",
                      lacks ? lacks
                            : "notifications (LISTEN, NOTIFY) or advisory locks of sessions");
}

/* A session receives its own notifications at the end of the transaction. */
static enum cairn_code hears_itself(struct srv_postgres *own, bool *ret, struct cairn_error *err) {
    struct cairn_error why = {0};
    PGnotify *said = NULL;
    *ret = false;
    enum cairn_code code = srv_postgres_exec(own, "LISTEN cairn_probe", NULL, &why);
    if (!code) code = srv_postgres_exec(own, "SELECT pg_notify('cairn_probe', '')", NULL, &why);
    if (code == CAIRN_UNAVAILABLE && err) *err = why;
    if (code) return code == CAIRN_UNAVAILABLE ? code : CAIRN_OK;
    if (!PQconsumeInput(own->conn)) return srv_postgres_fail(own->conn, NULL, "NOTIFY", err);
    while ((said = PQnotifies(own->conn))) {
        *ret = true;
        PQfreemem(said);
    }
    return srv_postgres_exec(own, "UNLISTEN cairn_probe", NULL, err);
}

/* engine_postgres.h#8. Checks the name first: some products reject later session settings. */
static enum cairn_code demand_postgres(struct srv_postgres *own, char ret_version[64],
                                       struct cairn_error *err) {
    CAIRN_TRY(ask(own, "SELECT version()", ret_version, err));
    return refuse_lookalike(own, ret_version, NULL, err);
}

/* Call while holding take_use's lock. */
static enum cairn_code demand_means(struct srv_postgres *own, const char *version,
                                    struct cairn_error *err) {
    char held[64];
    bool hears = false;
    CAIRN_TRY(ask(own,
                  "SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory' AND granted AND "
                  "pid = pg_backend_pid()",
                  held, err));
    if (!strcmp(held, "0"))
        return refuse_lookalike(own, version, "advisory locks of sessions (pg_locks)", err);
    CAIRN_TRY(hears_itself(own, &hears, err));
    if (!hears) return refuse_lookalike(own, version, "notifications (LISTEN, NOTIFY)", err);
    own->place->proved = true;
    return CAIRN_OK;
}

/* The copy waits no longer than sessions of a dead process linger. */
static enum cairn_code take_use(struct srv_postgres *own, const char *sql, const char *why,
                                struct cairn_error *err) {
    uint64_t until_ms = cairn_deadline_in(&cairn_clock_real, LAST_ONE_MS);
    char said[64] = "";
    for (;;) {
        CAIRN_TRY(ask(own, sql, said, err));
        if (!strcmp(said, "true")) return CAIRN_OK;
        if (!cairn_deadline_left_ms(&cairn_clock_real, until_ms))
            return cairn_fail(err, CAIRN_CONFLICT, "%s: %s", why, own->place->url);
        (void)poll(NULL, 0, PAUSE_MS);
    }
}

enum cairn_code srv_postgres_alone(struct srv_tx *tx, struct cairn_error *err) {
    struct srv_postgres *own = srv_postgres_of(tx);
    if (!PQexitPipelineMode(own->conn)) return srv_postgres_fail(own->conn, NULL, "pipeline", err);
    enum cairn_code code = take_use(own, "SELECT pg_try_advisory_lock" USE_LOCK "::text",
                                    "another cairn-server uses this catalog", err);
    if (!code && !PQenterPipelineMode(own->conn))
        code = srv_postgres_fail(own->conn, NULL, "pipeline", err);
    return code;
}

static enum cairn_code begin_session(struct srv_postgres *own, struct cairn_error *err) {
    char version[64] = "";
    bool proves = !own->read_only && !own->place->proved;
    CAIRN_TRY(dial(own->place->url, &own->conn, err));
    if (!own->conn || PQstatus(own->conn) != CONNECTION_OK)
        return explain_no_connection(own->conn, err);
    if (PQsetnonblocking(own->conn, 1))
        return srv_postgres_fail(own->conn, NULL, own->place->url, err);
    if (proves) CAIRN_TRY(demand_postgres(own, version, err));
    CAIRN_TRY(refuse_old_release(own->conn, err));
    CAIRN_TRY(srv_postgres_exec(own, session, NULL, err));
    if (!own->read_only) {
        CAIRN_TRY(demand_all(own, err));
        CAIRN_TRY(srv_postgres_exec(own, bounded, NULL, err));
        CAIRN_TRY(take_use(own, "SELECT pg_try_advisory_lock_shared" USE_LOCK "::text",
                           "this catalog is being copied", err));
        if (proves) CAIRN_TRY(demand_means(own, version, err));
    }
    if (!PQenterPipelineMode(own->conn)) return srv_postgres_fail(own->conn, NULL, "pipeline", err);
    return CAIRN_OK;
}

enum cairn_code srv_postgres_connect(void *place, bool read_only, struct srv_tx **ret,
                                     struct cairn_error *err) {
    struct srv_postgres *own = calloc(1, sizeof(*own));
    if (!own) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a catalog connection");
    own->tx.engine = &srv_engine_postgres;
    own->place = place;
    own->read_only = read_only;
    own->answer_ms = SRV_POSTGRES_ANSWER_MS;
    enum cairn_code code = begin_session(own, err);
    if (code)
        srv_postgres_disconnect(&own->tx);
    else
        *ret = &own->tx;
    return code;
}

void srv_postgres_disconnect(struct srv_tx *tx) {
    struct srv_postgres *own = srv_postgres_of(tx);
    srv_postgres_drop(own);
    srv_postgres_expected_release(own);
    free(own);
}

/* A session lock by catalog and server name (engine_postgres.h#7). */
static const struct srv_statement live = {
    "live", "t",
    "SELECT pg_try_advisory_lock(hashtext('cairn ' || current_schema()), hashtext(?1))"};
static const struct srv_statement others_live = {
    "others_live", "t",
    "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND granted AND database "
    "= (SELECT oid FROM pg_database WHERE datname = current_database()) AND classid = "
    "CAST(CAST(hashtext('cairn ' || current_schema()) AS BIGINT) & 4294967295 AS OID) AND objid <> "
    "CAST(CAST(hashtext(?1) AS BIGINT) & 4294967295 AS OID)"};

enum cairn_code srv_postgres_join(struct srv_tx *tx, bool lasting, bool *ret_others,
                                  struct cairn_error *err) {
    struct srv_postgres *own = srv_postgres_of(tx);
    const struct srv_value values[] = {SQL_T(own->place->server)};
    PGresult *result = NULL;
    if (lasting) CAIRN_TRY(srv_postgres_send(own, &live, values, err));
    CAIRN_TRY(srv_postgres_query(own, &others_live, values, &result, err));
    *ret_others = PQntuples(result) > 0;
    PQclear(result);
    own->place->joined |= lasting;
    own->place->shared |= *ret_others;
    if (lasting) srv_postgres_notify(tx, SRV_NOTIFY_ALL); /* announces the new server */
    return CAIRN_OK;
}

enum cairn_code srv_postgres_lives(struct srv_tx *tx, const char *server, bool *ret,
                                   struct cairn_error *err) {
    static const struct srv_statement look = {
        "lives", "t",
        "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND granted AND "
        "database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND classid = "
        "CAST(CAST(hashtext('cairn ' || current_schema()) AS BIGINT) & 4294967295 AS OID) AND "
        "objid = CAST(CAST(hashtext(?1) AS BIGINT) & 4294967295 AS OID)"};
    const struct srv_value values[] = {SQL_T(server)};
    PGresult *result = NULL;
    CAIRN_TRY(srv_postgres_query(srv_postgres_of(tx), &look, values, &result, err));
    *ret = PQntuples(result) > 0;
    PQclear(result);
    return CAIRN_OK;
}

/* A restored session takes its lock only in the catalog that it joined. */
static enum cairn_code live_on(struct srv_postgres *own, struct cairn_error *err) {
    const struct srv_value values[] = {SQL_T(own->place->server)};
    if (own->read_only || !own->place->joined) return CAIRN_OK;
    if (own->place->behind)
        return cairn_fail(err, CAIRN_CATALOG_BEHIND,
                          "catalog: the database has gone back: start this server again");
    CAIRN_TRY(srv_postgres_send_position(own, false, &srv_postgres_read_position, NULL, err));
    CAIRN_TRY(srv_postgres_hear(own, NULL, err));
    return srv_postgres_query(own, &live, values, NULL, err);
}

enum cairn_code srv_postgres_reconnect(struct srv_postgres *own, struct cairn_error *err) {
    srv_postgres_drop(own);
    enum cairn_code code = begin_session(own, err);
    if (!code) code = live_on(own, err);
    if (code) srv_postgres_drop(own);
    return code;
}

/* One row: schema number and catalog position (engine_postgres.h#6). */
static const char first_table[] =
    "CREATE TABLE IF NOT EXISTS cairn_catalog(one BIGINT PRIMARY KEY CHECK(one = 1),"
    "  schema BIGINT NOT NULL);"
    "INSERT INTO cairn_catalog(one, schema) VALUES(1, 0) ON CONFLICT DO NOTHING;"
    "ALTER TABLE cairn_catalog ADD COLUMN IF NOT EXISTS position BIGINT NOT NULL DEFAULT 0;"
    "ALTER TABLE cairn_catalog DROP COLUMN IF EXISTS writer, DROP COLUMN IF EXISTS batch;";

static enum cairn_code run_step(struct srv_postgres *own, const struct srv_migration *step,
                                struct cairn_error *err) {
    CAIRN_AUTO(buf) sql = {0};
    CAIRN_TRY(srv_dialect_schema(step->sql, &sql, err));
    CAIRN_TRY(srv_postgres_exec(own, sql.data, NULL, err));
    CAIRN_CRASHPOINT("server.catalog.migrated");
    cairn_buf_clear(&sql);
    CAIRN_TRY(cairn_buf_printf(&sql, err, "UPDATE cairn_catalog SET schema = %u", step->number));
    return srv_postgres_exec(own, sql.data, NULL, err);
}

/* Two servers may start at once: each step checks again, under the catalog's lock. */
static enum cairn_code begin_alone(struct srv_postgres *own, struct cairn_error *err) {
    struct cairn_error why = {0};
    enum cairn_code code = srv_postgres_exec(
        own,
        "BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = '" MIGRATION_LOCK_TEXT
        "'; SET LOCAL idle_in_transaction_session_timeout = 0; " TAKE_LOCK,
        NULL, &why);
    if (code == CAIRN_BUSY)
        return cairn_fail(
            err, CAIRN_CONFLICT,
            "another cairn-server holds this catalog for longer than " MIGRATION_LOCK_TEXT
            ": one of an older release that shares it with "
            "nobody, or one that migrates it: %s",
            own->place->url);
    return cairn_pass(err, code, &why);
}

static enum cairn_code end_alone(struct srv_postgres *own, enum cairn_code code,
                                 struct cairn_error *err) {
    if (!code) return srv_postgres_exec(own, "COMMIT", NULL, err);
    if (own->conn) (void)!srv_postgres_exec(own, "ROLLBACK", NULL, NULL);
    return code;
}

static enum cairn_code run_migrations(struct srv_postgres *own, struct cairn_error *err) {
    char said[64] = "";
    for (size_t i = 0; i < srv_migration_count; i++) {
        const struct srv_migration *step = &srv_migrations[i];
        CAIRN_TRY(ask(own, "SELECT schema FROM cairn_catalog", said, err));
        if (step->number <= strtoul(said, NULL, 10)) continue;
        enum cairn_code code = begin_alone(own, err);
        if (!code) code = ask(own, "SELECT schema FROM cairn_catalog", said, err);
        if (!code && step->number > strtoul(said, NULL, 10)) code = run_step(own, step, err);
        code = end_alone(own, code, err);
        if (code) return cairn_within(err, code, "migration %u", step->number);
    }
    return CAIRN_OK;
}

/* Only when needed: it requires the tables' owner and locks other servers out. */
static enum cairn_code make_first_table(struct srv_postgres *own, struct cairn_error *err) {
    char said[64] = "";
    CAIRN_TRY(ask(own,
                  "SELECT count(*)::text FROM pg_attribute WHERE attrelid = "
                  "to_regclass('cairn_catalog') AND attname = 'position'",
                  said, err));
    return strcmp(said, "0") ? CAIRN_OK : srv_postgres_exec(own, first_table, NULL, err);
}

static enum cairn_code bring_up(struct srv_postgres *own, unsigned *ret_from,
                                struct cairn_error *err) {
    char said[64] = "";
    enum cairn_code code = begin_alone(own, err);
    if (!code) code = make_first_table(own, err);
    if (!code) code = ask(own, "SELECT schema FROM cairn_catalog", said, err);
    CAIRN_TRY(end_alone(own, code, err));
    unsigned long found = strtoul(said, NULL, 10);
    if (found > srv_catalog_schema())
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "the catalog has schema %lu; this program knows up to %u: start the "
                          "release that wrote it, or a newer one",
                          found, srv_catalog_schema());
    CAIRN_TRY(run_migrations(own, err));
    *ret_from = found < srv_catalog_schema() ? (unsigned)found : 0;
    return CAIRN_OK;
}

enum cairn_code srv_postgres_migrate(struct srv_tx *tx, struct srv_migrated *ret,
                                     struct cairn_error *err) {
    struct srv_postgres *own = srv_postgres_of(tx);
    *ret = (struct srv_migrated){0};
    if (!PQexitPipelineMode(own->conn)) return srv_postgres_fail(own->conn, NULL, "pipeline", err);
    own->answer_ms = MIGRATION_ANSWER_MS;
    enum cairn_code code = bring_up(own, &ret->from, err);
    own->answer_ms = SRV_POSTGRES_ANSWER_MS;
    if (!code && !PQenterPipelineMode(own->conn))
        code = srv_postgres_fail(own->conn, NULL, "pipeline", err);
    return code;
}

/* ---- translation to PostgreSQL: one pass over the text, outside of quotes ---- */

/* The first match counts, so longer ones come first. */
static const struct {
    const char *from, *to;
} words[] = {
    {"INTEGER PRIMARY KEY", "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY"},
    {"INTEGER", "BIGINT"},
    {"BLOB", "BYTEA"},
    {"TEXT", "TEXT COLLATE \"C\""},
    {"STRICT, WITHOUT ROWID", ""},
    {"STRICT", ""},
};

static bool in_word(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

/* Index of the row that matches at `at`; CAIRN_COUNT(words): none. */
static size_t word_at(const char *sql, const char *at) {
    if (at > sql && in_word(at[-1])) return CAIRN_COUNT(words);
    for (size_t i = 0; i < CAIRN_COUNT(words); i++) {
        size_t size = strlen(words[i].from);
        if (!strncmp(at, words[i].from, size) && !in_word(at[size])) return i;
    }
    return CAIRN_COUNT(words);
}

enum cairn_code srv_dialect_statement(const char *sql, struct cairn_buf *ret,
                                      struct cairn_error *err) {
    bool quoted = false;
    for (const char *at = sql; *at; at++) {
        if (*at == '\'') quoted = !quoted;
        bool parameter = !quoted && *at == '?' && isdigit((unsigned char)at[1]);
        CAIRN_TRY(cairn_buf_append(ret, parameter ? "$" : at, 1, err));
    }
    return CAIRN_OK;
}

enum cairn_code srv_dialect_schema(const char *sql, struct cairn_buf *ret,
                                   struct cairn_error *err) {
    bool quoted = false;
    for (const char *at = sql; *at;) {
        if (*at == '\'') quoted = !quoted;
        size_t i = quoted ? CAIRN_COUNT(words) : word_at(sql, at);
        if (i < CAIRN_COUNT(words)) {
            CAIRN_TRY(cairn_buf_append_text(ret, words[i].to, err));
            at += strlen(words[i].from);
        } else {
            CAIRN_TRY(cairn_buf_append(ret, at++, 1, err));
        }
    }
    return CAIRN_OK;
}
