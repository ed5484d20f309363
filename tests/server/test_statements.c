/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=postgresql races="full: as server/notify and server/servers" */
/* Every statement's plan, over a catalog with rows of every kind: by an index, by the right one; on
 * both engines. */
#include "server/db/engine_postgres.h"
#include "server/ledger/rows.h"
#include "tests/server/world.h"

/* Tables that grow with runs and versions; the others hold a row, or what is shown to a person. */
static const char *const growing[] = {
    "runs",           "attempts",   "attempt_ranks", "versions",      "version_ranks",
    "version_groups", "shards",     "tables",        "layouts",       "nodes",
    "set_aside",      "tombstones", "policies",      "aliases",       "metrics",
    "read_leases",    "events",     "operations",    "project_usage", "project_quotas",
    "usage_days"};

/* Indexes that hold only what still has to be done, so that all of it may be walked. */
static const char *const short_indexes[] = {
    "versions_waiting",      "versions_dead",   "versions_again", "versions_unrecorded",
    "operations_unfinished", "layouts_leaving", "layouts_kept",   "versions_annotated"};

/* What is meant to see each row. */
static const struct {
    const char *statement, *why;
} walks[] = {
    {"runs_names", "after a start each run is compared with the store once; hourly, temporaries"},
    {"runs_count", "over an index, once a sweep: is there a run that was not compared yet?"},
    {"runs_any", "the first row ends it"},
    {"runs_last_commits", "at a scrape, where metrics-runs-max asks for it"},
    {"attempt_copy_owed", "after a start, and where a copy of an attempt's record was late"},
    {"attempt_newest_recorded", "the first row of an index by time ends it"},
    {"event_first", "the first row of its index ends it"},
    {"event_last", "the first row of its index ends it"},
    {"versions_kinds", "once a minute at most: how many are there of each kind?"},
    {"nodes_count", "over an index, once a sweep: are there more rows than may be?"},
    {"nodes_drop_oldest", "over an index, as many as are too many"},
    {"operations_drop_many", "likewise, of those that have ended"},
    {"said_aliases", "all that people have said, where there are events, once a minute"},
    {"said_policies", "likewise"},
    {"said_quotas", "likewise"},
    {"said_runs", "likewise"},
    {"usage_days_note", "every ten minutes, a row for each project"},
    {"usage_days_drop", "likewise, thirty rows for each"},
    {"shards_drop_left", "after a start and hourly, rows of open versions and what a death left"},
    {"ranks_drop_left", "likewise"},
    {"groups_drop_left", "likewise"},
};

struct row {
    const char *statement, *index;
};
/* The hot ones, by name of their index. */
static const struct row wanted[] = {
    {"version_latest", "versions_shown"},
    {"run_totals", "versions_committed"},
    {"run_removal", "versions_kept"},
    {"versions_to_remove", "versions_kept"},
    {"run_owes_record", "versions_unrecorded"},
    {"versions_live_falling", "versions_live"},
    {"versions_live_rising", "versions_live"},
    {"versions_scan_live_falling", "versions_live"},
    {"versions_scan_live_rising", "versions_live"},
    {"versions_scan_committed_falling", "versions_committed"},
    {"versions_scan_committed_rising", "versions_committed"},
    {"versions_scan_deleting_falling", "versions_deleting"},
    {"versions_scan_deleting_rising", "versions_deleting"},
    {"versions_scan_aborting_falling", "versions_aborting"},
    {"versions_scan_aborting_rising", "versions_aborting"},
    {"versions_scan_gone_falling", "versions_gone"},
    {"versions_scan_gone_rising", "versions_gone"},
    {"versions_scan_trashed_falling", "versions_trashed"},
    {"versions_scan_trashed_rising", "versions_trashed"},
    {"versions_scan_kept_falling", "versions_kept"},
    {"versions_scan_kept_rising", "versions_kept"},
    {"versions_gone_falling", "versions_gone"},
    {"versions_committed_falling", "versions_committed"},
    {"versions_open_of_attempt", "versions_open"},
    {"versions_open_of_run", "versions_open"},
    {"version_unfinished", "versions_open"},
    {"versions_open", "versions_waiting"},
    {"versions_dead", "versions_dead"},
    {"versions_to_sweep_again", "versions_again"},
    {"versions_trashed", "versions_trash"},
    {"versions_over", "versions_over"},
    {"nodes_drop_silent", "nodes_silent"},
    {"attempt_unrecorded", "attempts_unrecorded"},
    {"version_of_step", "versions_step"},
    {"versions_steps_falling", "versions_step"},
    {"versions_steps_rising", "versions_step"},
    {"version_whole", "shards_due"},
    {"versions_to_retain", "versions_ordered"},
    {"versions_to_retain_of_line", "versions_ordered"},
    {"usage_recount", "versions_live"},
    {"metric_smallest", "metrics_smallest"},
    {"metric_largest", "metrics_largest"},
    {"aliases_of_version", "aliases_version"},
    {"read_lease_holds", "read_leases_version"},
    {"read_leases_trim", "read_leases_until"},
    {"shards_of_rank", "shards_rank"},
    {"events_of_run", "events_run"},
    {"events_newest_of_run", "events_run"},
    {"events_of_version", "events_version"},
    {"events_newest_of_version", "events_version"},
    {"shards_count_of_rank", "shards_rank"},
    {"shards_missing", "shards_due"},
    {"shards_page_of_rank", "shards_rank"},
    {"tables_drop_unused", "tables_used"},

    {"attempt_newest_recorded", "attempts_recorded"},
    {"member_first_ended", "attempt_ranks_ended"},
    {"member_gone", "attempt_ranks_ended"},
    {"layout_of_writer", "layouts_writer"},
    {"said_versions", "versions_annotated"},
    {"operation_same", "operations_unfinished"},
    {"operation_of_run", "operations_unfinished"},
    {"operations_unfinished", "operations_unfinished"},
    {"operations_drop_old", "operations_ended"},
    {"operations_drop_many", "operations_ended"},
};

static const char fill[] =
    "WITH RECURSIVE i(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM i WHERE x < 60) INSERT INTO "
    "runs(project, run, labels, created_ms) SELECT 'p' || x % 3, 'r' || x, '{}', x FROM i;"
    "INSERT INTO attempts(run_id, attempt, nonce, job, world_size, resume, superseded, recorded, "
    "created_ms) SELECT run_id, 1, 'n', 'j', 4, 'latest', '[]', run_id % 2, run_id FROM runs;"
    "INSERT INTO attempt_ranks(run_id, attempt, rank, proc, node, ended) SELECT run_id, 1, "
    "run_id % 4, 'p', 'node' || run_id, run_id % 7 = 0 FROM runs;"
    "INSERT INTO nodes(node, uploader, last_tick, last_ms) SELECT 'node' || run_id, '{}', 1, 1 "
    "FROM "
    "runs;"
    "WITH RECURSIVE i(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM i WHERE x < 3000) INSERT INTO "
    "versions(version, run_id, attempt, step, n, nonce, state, recorded, superseded, trashed_tick, "
    "world_size, on_exists, skip, format, labels, meta, layout, layout_writer, created_ms, "
    "opened_tick, sweeps) SELECT 'v' || x, 1 + x % 60, 1, x, 1, 'n', x % 5, x % 11 > 0, x % 3 = 0, "
    "CASE WHEN x % 13 = 0 THEN x END, 4, 0, 0, 'f', '{}', '{}', CAST('d' || x % 60 AS BLOB), 'w', "
    "1, x, x % 6 "
    "FROM i;"
    "INSERT INTO version_ranks(version, rank, node, sealed, digest) SELECT version, step % 4, 'n', "
    "step % 2, x'64' FROM versions WHERE state = 0;"
    "INSERT INTO version_groups(version, name, digest, rank) SELECT version, 'g', 'd', 0 FROM "
    "versions WHERE state = 0;"
    "INSERT INTO shards(version, name, rank, registered, size) SELECT version, 's' || step, "
    "step % 4, step % 2, 1 FROM versions WHERE state = 0;"
    "INSERT INTO layouts(run_id, digest, writer, unused_tick, deleted) SELECT run_id, "
    "CAST('d' || run_id AS BLOB), 'w', run_id % 3, run_id % 3 FROM runs;"
    "INSERT INTO tables(digest, bytes, used_tick) SELECT CAST('d' || run_id AS BLOB), x'62', "
    "run_id FROM runs;"
    "INSERT INTO aliases(run_id, alias, version, changed_ms) SELECT run_id, 'a' || step, version, "
    "1 FROM versions WHERE state = 1;"
    "INSERT INTO metrics(run_id, metric, ordered, attempt, step, n, version) SELECT run_id, 'm', "
    "step % 7, attempt, step, n, version FROM versions WHERE state = 1;"
    "INSERT INTO read_leases(lease, version, job, until_tick, since_ms) SELECT version, version, "
    "'j', step, 1 FROM versions WHERE state = 1;"
    "INSERT INTO project_usage(project, versions, bytes) SELECT 'q' || run_id, 1, 1 FROM runs;"
    "INSERT INTO usage_days(project, day, versions, bytes) SELECT 'q' || run_id % 40, run_id, 1, "
    "1 FROM runs;"
    "INSERT INTO project_quotas(project, versions_max, bytes_max) SELECT 'q' || run_id, 1, 1 FROM "
    "runs;"
    "INSERT INTO policies(project, run, policy) SELECT project, run, '{}' FROM runs;"
    "INSERT INTO events(seq, at_ms, tick, event, project, run, version, step, attempt, code, "
    "reason, who, origin) SELECT step, 1, step, 'e', 'p', 'r' || (step % 60), version, step, 1, 0, "
    "'', '', '' FROM versions;"
    "INSERT INTO operations(operation, kind, project, run, request, who, created_ms, phase, done, "
    "total, cancel, ended_ms, ended_tick) SELECT version, 'import', 'p', 'r', '{}', '', 1, "
    "step % 3, 0, 0, 0, 0, CASE WHEN step % 50 = 0 THEN 0 ELSE step END FROM versions;"
    "INSERT INTO set_aside(object, cause, at_ms) SELECT 'o' || run_id, 'c', 1 FROM runs;";

struct place {
    struct srv_tx *tx;
    char path[400];
};

static bool open_catalog(struct place *place, bool analysed) {
    struct cairn_error err = {0};
    struct srv_catalog *catalog = NULL;
    const char *folder = TEXT("%s/%s", cairn_test_folder(), analysed ? "with" : "without");
    snprintf(place->path, sizeof(place->path), "%s/catalog.db", folder);
    if (srv_catalog_open(folder, &catalog, &err)) return false;
    srv_catalog_free(catalog);
    bool good = !srv_sqlite_open(place->path, false, &place->tx, &err) &&
                !srv_sqlite_exec(place->tx, fill, &err) &&
                (!analysed || !srv_sqlite_exec(place->tx, "ANALYZE", &err));
    if (!good) fprintf(stderr, "%s\n", err.message);
    if (!good && place->tx) srv_sqlite_free(place->tx);
    return good;
}

static bool names(const char *const *list, size_t count, const char *text, size_t size) {
    for (size_t i = 0; i < count; i++)
        if (strlen(list[i]) == size && !strncmp(list[i], text, size)) return true;
    return false;
}

/* The table behind an alias of one letter, from the statement's text: " versions v ". */
static bool table_grows(const char *sql, const char *alias, size_t size) {
    if (names(growing, CAIRN_COUNT(growing), alias, size)) return true;
    for (size_t i = 0; i < CAIRN_COUNT(growing); i++) {
        const char *text = TEXT(" %s %.*s ", growing[i], (int)size, alias);
        if (strstr(sql, text)) return true;
    }
    return false;
}

static bool is_walk(const char *statement) {
    for (size_t i = 0; i < CAIRN_COUNT(walks); i++)
        if (!strcmp(walks[i].statement, statement)) return true;
    return false;
}

/* "SCAN v", "SCAN runs USING COVERING INDEX sqlite_autoindex_runs_1", "SEARCH v USING INDEX ..." */
static bool line_is_bad(const struct srv_statement *statement, const char *line) {
    if (strncmp(line, "SCAN ", 5)) return strstr(line, "AUTOMATIC") != NULL;
    const char *table = line + 5, *index = strstr(line, "INDEX ");
    if (!table_grows(statement->sql, table, strcspn(table, " "))) return false;
    if (index &&
        names(short_indexes, CAIRN_COUNT(short_indexes), index + 6, strcspn(index + 6, " ")))
        return false;
    return !is_walk(statement->name);
}

static bool plan_of(struct srv_tx *tx, const struct srv_statement *statement,
                    struct cairn_buf *ret) {
    struct cairn_error err = {0};
    CAIRN_AUTO(buf) text = {0};
    sqlite3 *db = srv_sqlite_of(tx)->db;
    sqlite3_stmt *prepared = NULL;
    bool good = !cairn_buf_printf(&text, &err, "EXPLAIN QUERY PLAN %s", statement->sql) &&
                sqlite3_prepare_v2(db, text.data, -1, &prepared, NULL) == SQLITE_OK;
    if (good && sqlite3_bind_parameter_count(prepared) != (int)strlen(statement->types)) {
        fprintf(stderr, "%s: %d parameters, types \"%s\"\n", statement->name,
                sqlite3_bind_parameter_count(prepared), statement->types);
        good = false;
    }
    while (good && sqlite3_step(prepared) == SQLITE_ROW)
        good = !cairn_buf_printf(ret, &err, "%s\n", (const char *)sqlite3_column_text(prepared, 3));
    if (!good) fprintf(stderr, "%s: %s\n", statement->name, sqlite3_errmsg(db));
    sqlite3_finalize(prepared);
    return good;
}

static const char *wanted_index(const char *statement) {
    for (size_t i = 0; i < CAIRN_COUNT(wanted); i++)
        if (!strcmp(wanted[i].statement, statement)) return wanted[i].index;
    return NULL;
}

static void look_at(struct srv_tx *tx, const struct srv_statement *statement) {
    CAIRN_AUTO(buf) plan = {0};
    bool bad = !EXPECT(plan_of(tx, statement, &plan));
    const char *index = wanted_index(statement->name);
    if (index && (!plan.size || !strstr(plan.data, index))) {
        fprintf(stderr, "%s: not by %s:\n%s", statement->name, index, plan.size ? plan.data : "");
        bad = true;
    }
    char *rest = plan.data;
    for (char *line = NULL; plan.size && (line = strsep(&rest, "\n"));) {
        if (line_is_bad(statement, line)) {
            fprintf(stderr, "%s: %s\n", statement->name, line);
            bad = true;
        }
    }
    EXPECT(!bad);
}

static void look_at_all(bool analysed) {
    struct place place = {0};
    REQUIRE(open_catalog(&place, analysed));
    for (size_t i = 0; i < srv_statement_count; i++) look_at(place.tx, &srv_statements[i]);
    srv_sqlite_free(place.tx);
}

CASE(no_statement_scans_a_table_that_grows_and_hot_ones_use_their_index, look_at_all(false));
CASE(plans_are_the_same_when_the_catalog_was_analysed, look_at_all(true));

/* ---- rows ---- */

static int columns_of(struct srv_fields fields) {
    int columns = 0;
    for (size_t i = 0; i < fields.count; i++) columns += !strchr("?#", fields.at[i].kind);
    return columns;
}

TEST(every_row_of_the_table_has_a_member_for_each_column_of_its_statement) { /* rows.h#1 */
    static const struct {
        const char *name;
        enum srv_statement_number statement;
        int from;
        struct srv_fields (*fields)(void);
    } rows[] = {
#define ROWS(name, type, statement, from, ...)                                                     \
    {#name, SRV_STATEMENT_##statement, from, srv_fields_##name},
#include "server/ledger/rows.def"
#undef ROWS
    };
    struct place place = {0};
    REQUIRE(open_catalog(&place, false));
    for (size_t i = 0; i < CAIRN_COUNT(rows); i++) {
        const char *sql = srv_statements[rows[i].statement].sql;
        sqlite3_stmt *prepared = NULL;
        sqlite3 *db = srv_sqlite_of(place.tx)->db;
        if (!EXPECT(sqlite3_prepare_v2(db, sql, -1, &prepared, NULL) == SQLITE_OK)) continue;
        int told = rows[i].from + columns_of(rows[i].fields());
        cairn_test_check(told == sqlite3_column_count(prepared), __FILE__, __LINE__,
                         "row %s: %d columns, its statement has %d", rows[i].name, told,
                         sqlite3_column_count(prepared));
        sqlite3_finalize(prepared);
    }
    srv_sqlite_free(place.tx);
}

/* ---- PostgreSQL ---- */

/* The same rows, where truths are no numbers. */
static const char fill_postgres[] =
    "INSERT INTO runs(project, run, labels, created_ms) SELECT 'p' || x % 3, 'r' || x, '{}', x "
    "FROM generate_series(1, 60) x;"
    "INSERT INTO attempts(run_id, attempt, nonce, job, world_size, resume, superseded, recorded, "
    "created_ms) SELECT run_id, 1, 'n', 'j', 4, 'latest', '[]', run_id % 2, run_id FROM runs;"
    "INSERT INTO attempt_ranks(run_id, attempt, rank, proc, node, ended) SELECT run_id, 1, "
    "run_id % 4, 'p', 'node' || run_id, (run_id % 7 = 0)::int FROM runs;"
    "INSERT INTO nodes(node, uploader, last_tick, last_ms) SELECT 'node' || run_id, '{}', 1, 1 "
    "FROM runs;"
    "INSERT INTO versions(version, run_id, attempt, step, n, nonce, state, recorded, superseded, "
    "trashed_tick, world_size, on_exists, skip, format, labels, meta, layout, layout_writer, "
    "created_ms, opened_tick, sweeps) SELECT 'v' || x, 1 + x % 60, 1, x, 1, 'n', x % 5, "
    "(x % 11 > 0)::int, (x % 3 = 0)::int, CASE WHEN x % 13 = 0 THEN x END, 4, 0, 0, 'f', '{}', "
    "'{}', convert_to('d' || x % 60, 'UTF8'), 'w', 1, x, x % 6 FROM generate_series(1, 3000) x;"
    "INSERT INTO version_ranks(version, rank, node, sealed, digest) SELECT version, step % 4, 'n', "
    "step % 2, 'd' FROM versions WHERE state = 0;"
    "INSERT INTO version_groups(version, name, digest, rank) SELECT version, 'g', 'd', 0 FROM "
    "versions WHERE state = 0;"
    "INSERT INTO shards(version, name, rank, registered, size) SELECT version, 's' || step, "
    "step % 4, step % 2, 1 FROM versions WHERE state = 0;"
    "INSERT INTO layouts(run_id, digest, writer, unused_tick, deleted) SELECT run_id, "
    "convert_to('d' || run_id, 'UTF8'), 'w', run_id % 3, run_id % 3 FROM runs;"
    "INSERT INTO tables(digest, bytes, used_tick) SELECT convert_to('d' || run_id, 'UTF8'), 'b', "
    "run_id FROM runs;"
    "INSERT INTO events(seq, at_ms, tick, event, project, run, version, step, attempt, code, "
    "reason, who, origin) SELECT step, 1, step, 'e', 'p', 'r' || (step % 60), version, step, 1, 0, "
    "'', '', '' FROM versions;"
    "INSERT INTO set_aside(object, cause, at_ms) SELECT 'o' || run_id, 'c', 1 FROM runs;"
    "INSERT INTO read_leases(lease, version, job, until_tick, since_ms) SELECT version || i, "
    "version, 'j', step, 1 FROM versions, generate_series(1, 5) i WHERE state = 1;"
    "ANALYZE";

/* A session with the settings that the server's have. */
static PGconn *open_postgres(struct srv_tx **ret) {
    char url[300];
    void *place = NULL;
    struct cairn_error err = {0};
    struct srv_catalog *catalog = NULL;
    if (!cairn_postgres_catalog(url, sizeof(url))) return NULL;
    if (srv_catalog_open(url, &catalog, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return NULL;
    }
    srv_catalog_free(catalog);
    if (!cairn_postgres_run(url, fill_postgres)) return NULL;
    if (srv_postgres_take(url, &place, &err)) return NULL;
    enum cairn_code code = srv_postgres_connect(place, true, ret, &err);
    srv_postgres_leave(place);
    if (code) return NULL;
    PGconn *conn = srv_postgres_of(*ret)->conn;
    return PQexitPipelineMode(conn) && !PQsetnonblocking(conn, 0) ? conn : NULL;
}

/* What the engine can read: truths, integers, texts, bytes. */
static bool result_is_good(PGconn *conn, const struct srv_statement *statement) {
    PGresult *told = PQdescribePrepared(conn, statement->name);
    bool ret = PQnparams(told) == (int)strlen(statement->types);
    for (int i = 0; i < PQnfields(told); i++) {
        bool known = false;
        EACH_OF(Oid, one, 16, 17, 20, 23, 25) known |= PQftype(told, i) == one;
        if (known) continue;
        fprintf(stderr, "%s: column %d has type %u\n", statement->name, i, PQftype(told, i));
        ret = false;
    }
    PQclear(told);
    return ret;
}

static bool plan_of_postgres(PGconn *conn, const struct srv_statement *statement,
                             struct cairn_buf *ret) {
    struct cairn_error err = {0};
    CAIRN_AUTO(buf) text = {0}, ask = {0};
    bool good = !srv_dialect_statement(statement->sql, &text, &err);
    Oid types[SRV_PARAMETERS_MAX];
    int count = (int)strlen(statement->types);
    for (int i = 0; i < count; i++)
        types[i] = statement->types[i] == 'i' ? 20 : statement->types[i] == 't' ? 25 : 17;
    PGresult *result = PQprepare(conn, statement->name, text.data, count, types);
    good = good && PQresultStatus(result) == PGRES_COMMAND_OK && result_is_good(conn, statement);
    PQclear(result);
    good = good && !cairn_buf_printf(&ask, &err, "EXPLAIN (COSTS OFF) EXECUTE %s%s",
                                     statement->name, count ? "(" : "");
    for (int i = 0; good && i < count; i++)
        good = !cairn_buf_append_text(&ask, i + 1 < count ? "NULL, " : "NULL)", &err);
    result = good ? PQexec(conn, ask.data) : NULL;
    for (int i = 0; i < PQntuples(result); i++)
        good = good && !cairn_buf_printf(ret, &err, "%s\n", PQgetvalue(result, i, 0));
    good = good && PQntuples(result) > 0;
    PQclear(result);
    if (!good) fprintf(stderr, "%s: %s\n", statement->name, PQerrorMessage(conn));
    return good;
}

/* "Seq Scan on runs", or "Index Scan using runs_pkey on runs" without an "Index Cond" below it. */
static bool step_is_bad(const struct srv_statement *statement, const char *line,
                        const char *below) {
    const char *scan = strstr(line, " Scan "), *table = strstr(line, " on ");
    if (!scan || !table || strstr(line, "Bitmap Heap") || is_walk(statement->name)) return false;
    bool by_index = strstr(line, "Index") != NULL;
    const char *index = strstr(line, " using ");
    if (index) index += strlen(" using ");
    if (strstr(line, "Bitmap Index Scan")) index = table + strlen(" on ");
    if (by_index && strstr(below, "Index Cond")) return false;
    if (index && names(short_indexes, CAIRN_COUNT(short_indexes), index, strcspn(index, " ")))
        return false;
    table += strlen(" on ");
    return names(growing, CAIRN_COUNT(growing), table, strcspn(table, " ")) || table == index;
}

static void look_at_postgres(PGconn *conn, const struct srv_statement *statement) {
    CAIRN_AUTO(buf) plan = {0};
    bool bad = !EXPECT(plan_of_postgres(conn, statement, &plan));
    const char *index = wanted_index(statement->name);
    if (index && (!plan.size || !strstr(plan.data, index))) {
        fprintf(stderr, "%s: not by %s:\n%s", statement->name, index, plan.size ? plan.data : "");
        bad = true;
    }
    char *rest = plan.data, none[] = "";
    for (char *line = NULL; plan.size && (line = strsep(&rest, "\n"));) {
        char *below = rest ? rest : none;
        if (!step_is_bad(statement, line, TEXT("%.*s", (int)strcspn(below, "\n"), below))) continue;
        fprintf(stderr, "%s: %s\n", statement->name, line);
        bad = true;
    }
    EXPECT(!bad);
}

TEST(no_statement_scans_a_table_that_grows_in_postgresql_and_types_are_known) {
    if (cairn_postgres_missing()) SKIP(cairn_postgres_missing());
    struct srv_tx *tx = NULL;
    PGconn *conn = open_postgres(&tx);
    REQUIRE(conn);
    for (size_t i = 0; i < srv_statement_count; i++) look_at_postgres(conn, &srv_statements[i]);
    srv_postgres_disconnect(tx);
}

/* ---- the schema before ---- */

/* A catalog as an earlier release left it, with these rows. */
static bool make_earlier(unsigned schema, const char *rows) {
    struct cairn_error err = {0};
    struct srv_tx *tx = NULL;
    const char *path = TEXT("%s/catalog.db", cairn_test_folder());
    if (srv_sqlite_open(path, false, &tx, &err)) return false;
    enum cairn_code code = CAIRN_OK;
    for (size_t i = 0; i < srv_migration_count && !code; i++)
        if (srv_migrations[i].number <= schema)
            code = srv_sqlite_exec(tx, srv_migrations[i].sql, &err);
    if (!code) code = srv_sqlite_exec(tx, TEXT("PRAGMA user_version=%u;%s", schema, rows), &err);
    if (code) fprintf(stderr, "%s\n", err.message);
    srv_sqlite_free(tx);
    return !code;
}

struct asked {
    const char *sql;
    int64_t number;
};

static enum cairn_code ask_number(struct srv_tx *tx, void *argument, struct cairn_error *err) {
    struct asked *asked = argument;
    const struct srv_statement statement = {"test", "", asked->sql};
    bool found = false;
    return srv_sql_number(tx, &found, &asked->number, err, &statement);
}

/* What the catalog answers once it was opened, and so migrated. */
static int64_t number_when_open(const char *sql) {
    struct cairn_error err = {0};
    struct asked asked = {sql, -1};
    AUTO_CATALOG catalog = NULL;
    if (srv_catalog_open(cairn_test_folder(), &catalog, &err) ||
        look_by(catalog, ask_number, &asked, &err))
        fprintf(stderr, "%s\n", err.message);
    return asked.number;
}

TEST(seals_of_a_catalog_of_schema_4_are_counted_when_it_is_opened) {
    REQUIRE(make_earlier(
        4, "INSERT INTO runs(run_id, project, run, labels, created_ms) VALUES(1, 'p', 'r', "
           "'{}', 1);"
           "INSERT INTO versions(version, run_id, attempt, step, n, nonce, state, "
           "world_size, on_exists, skip, format, labels, meta, created_ms, opened_tick) "
           "VALUES('v', 1, 1, 1, 1, 'n', 0, 3, 0, 0, 'f', '{}', '{}', 1, 1);"
           "INSERT INTO version_ranks(version, rank, node, sealed) VALUES('v', 0, 'n', 1), "
           "('v', 1, 'n', 0), ('v', 2, 'n', 1);"));
    EXPECT_EQ_U64(number_when_open("SELECT ranks_sealed FROM versions WHERE version = 'v'"), 2);
}

static unsigned schema_of(const char *path) {
    struct cairn_error err = {0};
    struct srv_tx *tx = NULL;
    char text[32] = "";
    if (srv_sqlite_open(path, true, &tx, &err)) return 0;
    enum cairn_code code = srv_sqlite_ask(tx, "PRAGMA user_version", text, &err);
    srv_sqlite_free(tx);
    return code ? 0 : (unsigned)strtoul(text, NULL, 10);
}

TEST(a_catalog_is_copied_before_it_is_migrated_and_the_copy_is_what_it_was, err) {
    struct srv_catalog *catalog = NULL;
    struct stat status;
    const char *path = TEXT("%s/catalog.db", cairn_test_folder());
    const char *before = TEXT("%s/catalog-schema-4.db", cairn_test_folder());
    for (int life = 0; life < 2; life++) { /* the second: after a way back */
        REQUIRE(make_earlier(4, ""));
        REQUIRE_OK(srv_catalog_open(cairn_test_folder(), &catalog, &err));
        EXPECT_EQ_U64(srv_catalog_migrated(catalog)->from, 4);
        EXPECT_EQ_TEXT(srv_catalog_migrated(catalog)->before, before);
        srv_catalog_free(catalog);
        EXPECT_ALL_U64(schema_of(path), srv_catalog_schema(), schema_of(before), 4);
        REQUIRE(!stat(before, &status));
        EXPECT_EQ_U64(status.st_mode & 0777, 0600);
        REQUIRE_OK(srv_catalog_open(cairn_test_folder(), &catalog, &err));
        EXPECT_EQ_U64(srv_catalog_migrated(catalog)->from, 0);
        srv_catalog_free(catalog);
        REQUIRE(!unlink(path));
    }
}

TEST(a_catalog_of_a_newer_release_is_refused_and_the_copy_to_go_back_to_is_named, err) {
    struct srv_catalog *catalog = NULL;
    struct srv_tx *tx = NULL;
    const char *path = TEXT("%s/catalog.db", cairn_test_folder());
    REQUIRE(make_earlier(4, ""));
    REQUIRE_OK(srv_sqlite_open(path, false, &tx, &err));
    EXPECT_CODE(srv_sqlite_exec(tx, "PRAGMA user_version=9999", &err), CAIRN_OK);
    srv_sqlite_free(tx);
    EXPECT_CODE(srv_catalog_open(cairn_test_folder(), &catalog, &err), CAIRN_UNSUPPORTED);
    EXPECT(strstr(err.message, "schema 9999") && !strstr(err.message, "go back"));
    REQUIRE_OK(cairn_file_replace(
        TEXT("%s/catalog-schema-%u.db", cairn_test_folder(), srv_catalog_schema()),
        CAIRN_VIEW("any"), 0600, &err));
    EXPECT_FAILS(srv_catalog_open(cairn_test_folder(), &catalog, &err), CAIRN_UNSUPPORTED,
                 "go back to catalog-schema-");
}

static enum cairn_code latest_step(struct srv_tx *tx, void *argument, struct cairn_error *err) {
    struct cairn_version_id id;
    bool found = false;
    return srv_latest(tx, 1, &found, &id, argument, err);
}

TEST(what_is_latest_in_a_catalog_of_schema_33_is_so_when_it_is_opened, err) {
    uint64_t step = 0;
    REQUIRE(make_earlier(
        33, "INSERT INTO runs(run_id, project, run, labels, created_ms) VALUES(1, 'p', 'r', "
            "'{}', 1);"
            "WITH RECURSIVE i(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM i WHERE x < 3) INSERT "
            "INTO versions(version, run_id, attempt, step, n, nonce, state, recorded, world_size, "
            "on_exists, skip, format, labels, meta, created_ms, opened_tick) SELECT 'v' || x, 1, "
            "x, 1000 - 100 * x, 1, 'n', 1, 1, 1, 0, 0, 'f', '{}', '{}', 1, 1 FROM i;"));
    CATALOG(catalog, cairn_test_folder());
    EXPECT_CODE(look_by(catalog, latest_step, &step, &err), CAIRN_OK);
    EXPECT_EQ_U64(step, 700); /* of the newest attempt, though it is the lowest */
}

TEST(what_projects_of_a_catalog_of_schema_18_take_up_is_counted_when_it_is_opened) {
    /* v0 open, v1 committed, v2 deleting, v3 aborting, v4 gone */
    REQUIRE(make_earlier(
        18, "INSERT INTO runs(run_id, project, run, labels, created_ms) VALUES(1, 'p', 'r', "
            "'{}', 1), (2, 'p', 's', '{}', 1), (3, 'q', 'r', '{}', 1);"
            "WITH RECURSIVE i(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM i WHERE x < 4) INSERT "
            "INTO versions(version, run_id, attempt, step, n, nonce, state, bytes, world_size, "
            "on_exists, skip, format, labels, meta, created_ms, opened_tick) SELECT 'v' || x, 1 + "
            "x % 2, 1, x, 1, 'n', x, 100, 3, 0, 0, 'f', '{}', '{}', 1, 1 FROM i;"
            "INSERT INTO shards(version, name, rank, sealed, size) VALUES('v0', 'a', 0, 1, 7), "
            "('v0', 'b', 1, 0, 1000), ('v3', 'a', 0, 1, 50);"));
    EXPECT_EQ_U64(number_when_open("SELECT versions * 1000000 + bytes FROM project_usage WHERE "
                                   "project = 'p'"),
                  3000257);
}

TEST(every_name_of_an_index_or_a_walk_is_a_statement) {
    for (size_t i = 0; i < CAIRN_COUNT(wanted) + CAIRN_COUNT(walks); i++) {
        size_t count = CAIRN_COUNT(wanted);
        const char *name = i < count ? wanted[i].statement : walks[i - count].statement;
        size_t found = 0;
        for (size_t j = 0; j < srv_statement_count; j++)
            found += !strcmp(srv_statements[j].name, name);
        if (!EXPECT(found == 1)) fprintf(stderr, "%s\n", name);
    }
}
