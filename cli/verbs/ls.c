/* SPDX-License-Identifier: Apache-2.0 */
/* cairn ls: lists runs or one run's checkpoints; du: their sizes; lineage: their origin. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/bucket/bucket.h"
#include "cli/shell/output.h"
#include "common/text.h"

#define LIMIT_DEFAULT 100
#define STATES_MAX 8
#define CELL_NAMES_BYTES 100 /* of aliases in a table */

static const struct cairn_cli_flag ls_flags[] = {
    {"limit", 'n', CAIRN_CLI_COUNT, CAIRN_CLI_AT(limit), 0, "N", "At most N; default 100."},
    {"store", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(store), 0, "URL",
     "List the store itself, without a server: a folder or s3://bucket/prefix."},
    {"state", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(state), 0, "STATE",
     "Only versions in this state: open, committed, aborting, deleting."},
    {"label", 'l', CAIRN_CLI_TEXT, CAIRN_CLI_AT(selector), 0, "SELECTOR",
     "Only what has these labels, as team=nlp,tier!=tmp,kept,!old; of runs, too."},
    {"step-ge", 0, CAIRN_CLI_NUMBER, CAIRN_CLI_AT(step_ge), 0, "STEP", "From this step on."},
    {"step-lt", 0, CAIRN_CLI_NUMBER, CAIRN_CLI_AT(step_lt), CAIRN_CLI_AT(step_lt_given), "STEP",
     "Below this step."},
    {"attempt", 0, CAIRN_CLI_NUMBER, CAIRN_CLI_AT(attempt), CAIRN_CLI_AT(attempt_given), "N",
     "Only of this attempt."},
    {"since", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(since_time), 0, "TIME",
     "Committed since then, as 2026-03-02T10:14:07Z; begun, if not committed."},
    {"trashed", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(trashed), 0, "BOOL",
     "true: only what is in the trash; false: only what is not."},
};

static void cell_shards(const union cairn_cli_row *row, char *ret, size_t capacity) {
    unsigned long long shards = row->version.shards, registered = row->version.shards_registered;
    if (!strcmp(row->version.state, "open"))
        snprintf(ret, capacity, "%llu/%llu", registered, shards);
    else
        snprintf(ret, capacity, "%llu", shards);
}
static void cell_saved(const union cairn_cli_row *row, char *ret, size_t capacity) {
    const char *time =
        row->version.committed_at ? row->version.committed_at : row->version.created_at;
    snprintf(ret, capacity, "%s", time ? time : "");
}
/* Committed versions with tensors, by layout and shard count: whether some shards are opaque. */
static json_t *opaque_in_part;

static void key_of(const struct cairn_msg_version_row *version, char ret[96]) {
    snprintf(ret, 96, "%.64s %llu", version->layout, (unsigned long long)version->shards);
}

static const char *opaque_text(const struct cairn_msg_version_row *version) {
    char key[96];
    if (strcmp(version->state, "committed") != 0) return "";
    if (!version->layout) return "opaque";
    key_of(version, key);
    return json_is_true(json_object_get(opaque_in_part, key)) ? "opaque-in-part" : "";
}

/* The run's best version by its policy's first metric, as "best(eval_loss=1.93)". */
static struct { char version[CAIRN_VERSION_ID_BYTES], text[160]; } best;

static void cell_flags(const union cairn_cli_row *row, char *ret, size_t capacity) {
    const struct cairn_msg_version_row *version = &row->version;
    const struct cairn_short reason = cairn_short(version->reason ? version->reason : "");
    char names[CELL_NAMES_BYTES], damage[CELL_NAMES_BYTES];
    cairn_cli_words(version->aliases, " ", names, sizeof names);
    cairn_cli_damage_words(version->copies, damage, sizeof damage);
    const char *words[] = {damage,
                           version->latest ? "latest" : "",
                           !strcmp(version->version, best.version) ? best.text : "",
                           names,
                           version->pinned ? "pinned" : "",
                           version->superseded ? "superseded" : "",
                           version->trashed ? "trashed" : "",
                           opaque_text(version),
                           reason.text};
    ret[0] = '\0';
    for (size_t i = 0; i < CAIRN_COUNT(words); i++)
        if (*words[i]) cairn_cli_add(ret, capacity, " ", "%s", words[i]);
}
static void cell_labels(const union cairn_cli_row *row, char *ret, size_t capacity) {
    cairn_cli_pairs(row->version.labels, ",", ret, capacity);
}
static const struct cairn_cli_column version_columns[] = {
    CAIRN_CLI_FIELD("STEP", version, step),       CAIRN_CLI_FIELD("STATE", version, state),
    CAIRN_CLI_RIGHT_CELL("SHARDS", cell_shards),  CAIRN_CLI_BYTES("SIZE", version, bytes),
    CAIRN_CLI_FIELD("ATTEMPT", version, attempt), CAIRN_CLI_CELL("SAVED", cell_saved),
    CAIRN_CLI_CELL("FLAGS", cell_flags),          CAIRN_CLI_FIELD("RANKS", version, world_size),
    CAIRN_CLI_FIELD("VERSION", version, version), CAIRN_CLI_CELL("LABELS", cell_labels),
};
/* project/run@version */
static void version_name(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s/%s@%s", row->version.project, row->version.run,
             row->version.version);
}
static const struct cairn_cli_table version_table =
    CAIRN_CLI_ROWS(version_row, version_columns, 3, CAIRN_CLI_CELL(NULL, version_name));

static void cell_run(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s/%s", row->run.project, row->run.run);
}
static void cell_latest(const union cairn_cli_row *row, char *ret, size_t capacity) {
    struct cairn_msg_run_latest latest = {0};
    snprintf(ret, capacity, "-");
    if (row->run.latest && !cairn_msg_run_latest_read(row->run.latest, "", &latest, NULL))
        snprintf(ret, capacity, "%llu", (unsigned long long)latest.step);
}
static const struct cairn_cli_column run_columns[] = {
    CAIRN_CLI_CELL("RUN", cell_run),          CAIRN_CLI_FIELD("COMMITTED", run, committed),
    CAIRN_CLI_BYTES("SIZE", run, bytes),      CAIRN_CLI_RIGHT_CELL("LATEST", cell_latest),
    CAIRN_CLI_FIELD("ATTEMPT", run, attempt),
};
static const struct cairn_cli_table run_table =
    CAIRN_CLI_ROWS(run_row, run_columns, 0, CAIRN_CLI_CELL(NULL, cell_run));

/* ---- filters ---- */

/* Named as the server's filters; runs support fewer. */
static enum cairn_code add_filter(const char *name, const char *value, struct cairn_buf *path,
                                  struct cairn_error *err) {
    if (!value) return CAIRN_OK;
    CAIRN_TRY(cairn_buf_printf(path, err, "%c%s=", strchr(path->data, '?') ? '&' : '?', name));
    return cairn_percent_encode(cairn_view_of(value), false, path, err);
}

static enum cairn_code add_number(const char *name, uint64_t value, bool given,
                                  struct cairn_buf *path, struct cairn_error *err) {
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    return add_filter(name, given ? text : NULL, path, err);
}

/* The first given flag that filters versions and needs the server; NULL: none. */
static const char *version_filter_of(const struct cairn_cli *cli) {
    if (cli->trashed) return "--trashed";
    if (cli->since_time) return "--since";
    if (cli->attempt_given) return "--attempt";
    if (cli->step_ge) return "--step-ge";
    return cli->step_lt_given ? "--step-lt" : NULL;
}

static enum cairn_code add_filters(const struct cairn_cli *cli, struct cairn_buf *path,
                                   struct cairn_error *err) {
    CAIRN_TRY(add_filter("state", cli->state, path, err));
    CAIRN_TRY(add_filter("l", cli->selector, path, err));
    CAIRN_TRY(add_filter("trashed", cli->trashed, path, err));
    CAIRN_TRY(add_filter("since", cli->since_time, path, err));
    CAIRN_TRY(add_number("attempt", cli->attempt, cli->attempt_given, path, err));
    CAIRN_TRY(add_number("step_ge", cli->step_ge, cli->step_ge > 0, path, err));
    return add_number("step_lt", cli->step_lt, cli->step_lt_given, path, err);
}

static enum cairn_code check_store(const struct cairn_cli *cli, struct cairn_error *err) {
    const char *filter = cli->selector ? "--label" : version_filter_of(cli);
    if (!cli->store) return CAIRN_OK;
    if (cli->state && strcmp(cli->state, "committed") != 0)
        return cairn_fail(err, CAIRN_INVALID,
                          "--store lists committed checkpoints; those that are %s are known to the "
                          "server alone: leave --store out",
                          cli->state);
    if (!filter) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "%s is known to the server alone: leave --store out",
                      filter);
}

static enum cairn_code list_runs(const struct cairn_cli *cli, uint64_t limit, json_t *items,
                                 struct cairn_error *err) {
    CAIRN_AUTO(buf) tail = {0};
    if (cli->store) return cairn_cli_stored_runs(cli, limit, items, err);
    CAIRN_TRY(cairn_buf_append_text(&tail, "/runs", err));
    CAIRN_TRY(add_filter("l", cli->selector, &tail, err));
    return cairn_cli_list(cli, NULL, tail.data, limit, items, NULL, err);
}

static enum cairn_code list_versions(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                     uint64_t limit, json_t *items, bool *ret_more,
                                     struct cairn_error *err) {
    CAIRN_AUTO(buf) tail = {0};
    if (cli->store) return cairn_cli_stored_versions(cli, &ref->name, limit, items, err);
    CAIRN_TRY(cairn_buf_append_text(&tail, "/checkpoints", err));
    CAIRN_TRY(add_filters(cli, &tail, err));
    return cairn_cli_list(cli, ref, tail.data, limit, items, ret_more, err);
}

static enum cairn_code ask_opaque(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                  bool *ret, struct cairn_error *err) {
    if (cli->store) {
        struct cairn_cli_stored stored = {0};
        enum cairn_code code = cairn_cli_stored_version(cli, ref, &stored, err);
        *ret = !code && cairn_cli_opaque_count(stored.shards) > 0;
        cairn_cli_stored_release(&stored);
        return code;
    }
    CAIRN_AUTO_JSON json_t *shards = json_array();
    CAIRN_TRY(cairn_cli_list(cli, ref, "/shards?content=opaque", 1, shards, NULL, err));
    *ret = json_array_size(shards) > 0;
    return CAIRN_OK;
}

/* For the FLAGS column, one request per layout. Errors set no flag: `verify` reports damage. */
static void note_opaque(const struct cairn_cli *cli, const struct cairn_run_name *name,
                        const json_t *items) {
    const json_t *item = NULL;
    opaque_in_part = json_object();
    for (size_t i = 0; (item = json_array_get(items, i)); i++) {
        struct cairn_msg_version_row version = {0};
        struct cairn_cli_ref ref = {.name = *name};
        char key[96];
        bool opaque = false;
        if (cairn_msg_version_row_read(item, "", &version, NULL) || !version.layout ||
            strcmp(version.state, "committed") != 0)
            continue;
        key_of(&version, key);
        if (json_object_get(opaque_in_part, key)) continue;
        cairn_text_copy(ref.version, sizeof ref.version, version.version);
        if (ask_opaque(cli, &ref, &opaque, NULL) == CAIRN_OK)
            (void)!json_object_set_new(opaque_in_part, key, json_boolean(opaque));
    }
}

/* For the FLAGS column; a run whose policy names no metric has no best version. */
static void note_best(const struct cairn_cli *cli, const struct cairn_run_name *name) {
    CAIRN_AUTO_JSON json_t *json = NULL, *holds = NULL;
    struct cairn_cli_ref ref = {.name = *name};
    struct cairn_msg_version_row version = {0};
    struct cairn_msg_retention retention = {0};
    struct cairn_cli_call policy = {.tail = "/retention"};
    best.version[0] = '\0';
    if (cairn_cli_call(cli, &ref, policy, &holds, NULL) ||
        cairn_cli_reply_read(CAIRN_MESSAGE_retention, holds, &retention, NULL))
        return;
    const json_t *rule =
        json_array_get(json_object_get(json_object_get(retention.policy, "keep"), "best"), 0);
    const char *metric = json_string_value(json_object_get(rule, "metric"));
    cairn_text_copy(ref.version, sizeof ref.version, "best");
    if (!metric || cairn_cli_call(cli, &ref, (struct cairn_cli_call){0}, &json, NULL) ||
        cairn_cli_reply_read(CAIRN_MESSAGE_version_row, json, &version, NULL))
        return;
    cairn_text_copy(best.version, sizeof best.version, version.version);
    snprintf(best.text, sizeof best.text, "best(%s=%s)", cairn_short(metric).text,
             cairn_real(json_number_value(json_object_get(version.metrics, metric))).text);
}

/* "3 committed: 8.6 MiB; 1 open: 2.9 MiB" of the table's rows. */
static enum cairn_code print_sums(const json_t *items, uint64_t limit, bool more,
                                  struct cairn_error *err) {
    static const char trash[] = "in the trash";
    struct {
        const char *what;
        uint64_t count, bytes;
    } sums[STATES_MAX] = {{0}};
    size_t states = 0;
    const json_t *item = NULL;
    for (size_t at = 0; (item = json_array_get(items, at)); at++) {
        struct cairn_msg_version_row version = {0};
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_version_row, item, &version, err));
        const char *what = version.trashed ? trash : version.state;
        size_t i = 0;
        while (i < states && strcmp(sums[i].what, what) != 0) i++;
        if (i == STATES_MAX) continue;
        if (i == states) sums[states++].what = what;
        sums[i].count++;
        sums[i].bytes += version.bytes;
    }
    for (size_t i = 0; i < states; i++) {
        char size[24];
        cairn_cli_size(sums[i].bytes, size);
        printf("%s%llu %s: %s", i ? "; " : "", (unsigned long long)sums[i].count, sums[i].what,
               size);
    }
    if (more) printf("; there are more than %llu: --limit", (unsigned long long)limit);
    if (states) puts("");
    return cairn_cli_flush(err);
}

static enum cairn_code run_ls(struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *items = json_array();
    bool more = false;
    uint64_t limit = cli->limit ? cli->limit : LIMIT_DEFAULT;
    const char *filter = cli->state ? "--state" : version_filter_of(cli);
    if (!cli->argument_count && filter)
        return cairn_fail(err, CAIRN_INVALID, "%s goes with a run: cairn ls project/run %s%s%s",
                          filter, filter, cli->state ? " " : "", cli->state ? cli->state : "");
    CAIRN_TRY(check_store(cli, err));
    if (!cli->argument_count) {
        CAIRN_TRY(list_runs(cli, limit, items, err));
        return cairn_cli_print(cli, items, &run_table, err);
    }
    struct cairn_cli_ref ref;
    CAIRN_TRY(cairn_cli_ref_parse(cli->arguments[0], &ref, err));
    if (ref.version[0])
        return cairn_fail(err, CAIRN_INVALID, "ls lists a run; for one checkpoint: cairn show %s",
                          cli->arguments[0]);
    CAIRN_TRY(list_versions(cli, &ref, limit, items, &more, err));
    bool table = cli->output == CAIRN_CLI_TABLE;
    if (table) note_opaque(cli, &ref.name, items);
    if (table && !cli->store) note_best(cli, &ref.name);
    enum cairn_code code = cairn_cli_print(cli, items, &version_table, err);
    json_decref(opaque_in_part);
    opaque_in_part = NULL;
    if (code == CAIRN_OK && table) code = print_sums(items, limit, more, err);
    if (code == CAIRN_OK) cairn_cli_spark_versions(items);
    return code;
}

const struct cairn_cli_verb cairn_cli_verb_ls = {
    .name = "ls",
    .chapter = "See what there is",
    .synopsis = "cairn ls [flags] [project/run]",
    .purpose = "List runs, or the checkpoints of one run, what was saved last first.",
    .examples = "  cairn ls\n"
                "  cairn ls llm/7b --label tier=keep --step-ge 1000\n"
                "  cairn ls llm/7b --store ./cairn/store   (no server needed)\n",
    CAIRN_CLI_FLAGS(ls_flags),
    CAIRN_CLI_ARGUMENTS(0, 1),
    .run = run_ls,
};

/* du: sizes of runs or of one run's states; idle runs with the commands that remove them. */

#define ITEMS_MAX 1000000
#define DAY_S 86400

static const struct cairn_cli_flag du_flags[] = {
    {"idle", 0, CAIRN_CLI_TIME, CAIRN_CLI_AT(idle_ms), CAIRN_CLI_AT(idle_given), "TIME",
     "Runs without a commit and an attempt for that long, as 30d, and what removes them."},
};

static void print_usage_line(const char *name, uint64_t count, uint64_t bytes) {
    char size[24], text[300];
    cairn_cli_size(bytes, size);
    snprintf(text, sizeof text, "%s", name);
    cairn_cli_clean(text);
    printf("%10s  %7" PRIu64 "  %s\n", size, count, text);
}

/* "llm/7b" of a run, "trash" of a state. */
static void row_name(const json_t *row, char *ret, size_t capacity) {
    const char *run = json_string_value(json_object_get(row, "run"));
    if (run)
        snprintf(ret, capacity, "%s/%s", json_string_value(json_object_get(row, "project")), run);
    else
        snprintf(ret, capacity, "%s", json_string_value(json_object_get(row, "state")));
}

static enum cairn_code print_usage(const struct cairn_cli *cli, const char *title,
                                   const json_t *rows, struct cairn_error *err) {
    json_t *row = NULL;
    if (cli->output == CAIRN_CLI_JSON) return cairn_cli_print_json(rows, true, err);
    if (cli->output == CAIRN_CLI_TABLE) printf("%10s  %7s  %s\n", "SIZE", "COUNT", title);
    for (size_t i = 0; (row = json_array_get(rows, i)); i++) {
        char name[2 * CAIRN_NAME_BYTES_MAX + 2];
        row_name(row, name, sizeof name);
        if (cli->output == CAIRN_CLI_JSONL)
            CAIRN_TRY(cairn_cli_print_json(row, false, err));
        else if (cli->output == CAIRN_CLI_NAME)
            puts(name);
        else
            print_usage_line(name, (uint64_t)json_integer_value(json_object_get(row, "count")),
                             (uint64_t)json_integer_value(json_object_get(row, "bytes")));
    }
    return cairn_cli_flush(err);
}

/* ---- runs, largest first ---- */

static int by_bytes(const void *a, const void *b) {
    json_int_t of_a = json_integer_value(json_object_get(*(json_t *const *)a, "bytes"));
    json_int_t of_b = json_integer_value(json_object_get(*(json_t *const *)b, "bytes"));
    return of_a > of_b ? -1 : of_a < of_b;
}

/* *ret_sorted: malloc'd, items borrowed from runs. */
static enum cairn_code runs_by_bytes(const struct cairn_cli *cli, json_t *runs,
                                     json_t ***ret_sorted, size_t *ret_count,
                                     struct cairn_error *err) {
    CAIRN_TRY(cairn_cli_list(cli, NULL, "/runs", ITEMS_MAX, runs, NULL, err));
    size_t count = json_array_size(runs);
    json_t **sorted = calloc(count + 1, sizeof(*sorted));
    if (!sorted) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
    for (size_t i = 0; i < count; i++) sorted[i] = json_array_get(runs, i);
    qsort(sorted, count, sizeof(*sorted), by_bytes);
    *ret_sorted = sorted;
    *ret_count = count;
    return CAIRN_OK;
}

/* Bytes outside all runs; silent if the token may not ask for the whole store. */
static void tell_not_freed(const struct cairn_cli *cli) {
    const struct cairn_cli_call call = {.tail = "/gc"};
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_msg_gc gc = {0};
    struct cairn_error unused = {0};
    char size[24];
    if (cli->output != CAIRN_CLI_TABLE || cairn_cli_call(cli, NULL, call, &json, &unused) ||
        cairn_cli_reply_read(CAIRN_MESSAGE_gc, json, &gc, &unused) || !gc.not_freed)
        return;
    cairn_cli_size(gc.not_freed_bytes, size);
    cairn_cli_note("kept by the store: %s of %s; cairn gc --not-freed says why", size,
                   cairn_cli_counted(gc.not_freed, "deleted version", "deleted versions").text);
}

static enum cairn_code du_runs(const struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *runs = json_array(), *rows = json_array();
    CAIRN_AUTO_HEAP json_t **sorted = NULL;
    size_t count = 0;
    CAIRN_TRY(runs_by_bytes(cli, runs, &sorted, &count, err));
    for (size_t i = 0; i < count; i++) {
        struct cairn_msg_run_row run = {0};
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_run_row, sorted[i], &run, err));
        json_t *row = json_pack("{s:s, s:s, s:I, s:I}", "project", run.project, "run", run.run,
                                "count", (json_int_t)run.committed, "bytes", (json_int_t)run.bytes);
        CAIRN_TRY(cairn_cli_list_add(rows, row, err));
    }
    CAIRN_TRY(print_usage(cli, "RUN", rows, err));
    tell_not_freed(cli);
    return CAIRN_OK;
}

/* ---- idle runs ---- */

static enum cairn_code add_idle(const struct cairn_cli *cli, const struct cairn_msg_run_row *run,
                                json_t *rows, uint64_t *bytes, struct cairn_error *err) {
    char command[2 * CAIRN_NAME_BYTES_MAX + 20];
    /* None while a save is open, nor without idle_s (older servers). */
    if (run->idle_s == CAIRN_MESSAGE_NONE || run->idle_s < cli->idle_ms / 1000) return CAIRN_OK;
    snprintf(command, sizeof command, "cairn rm --run %s/%s", run->project, run->run);
    *bytes += run->bytes;
    json_t *row = json_pack("{s:s, s:s, s:I, s:I, s:s?, s:I, s:s}", "project", run->project, "run",
                            run->run, "count", (json_int_t)run->committed, "bytes",
                            (json_int_t)run->bytes, "last_commit_at", run->last_commit_at, "idle_s",
                            (json_int_t)run->idle_s, "remove", command);
    return cairn_cli_list_add(rows, row, err);
}

static void print_idle(const json_t *row) {
    char size[24], idle[24], command[300];
    uint64_t seconds = (uint64_t)json_integer_value(json_object_get(row, "idle_s"));
    cairn_cli_size((uint64_t)json_integer_value(json_object_get(row, "bytes")), size);
    cairn_duration_text(seconds * 1000, idle);
    if (seconds >= 2 * DAY_S) snprintf(idle, sizeof idle, "%" PRIu64 "d", seconds / DAY_S);
    snprintf(command, sizeof command, "%s", json_string_value(json_object_get(row, "remove")));
    cairn_cli_clean(command);
    printf("%10s  %7" PRIu64 "  %8s  %s\n", size,
           (uint64_t)json_integer_value(json_object_get(row, "count")), idle, command);
}

static enum cairn_code du_idle(const struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *runs = json_array(), *rows = json_array();
    CAIRN_AUTO_HEAP json_t **sorted = NULL;
    uint64_t bytes = 0;
    char size[24];
    size_t count = 0;
    json_t *row = NULL;
    CAIRN_TRY(runs_by_bytes(cli, runs, &sorted, &count, err));
    for (size_t i = 0; i < count; i++) {
        struct cairn_msg_run_row run = {.idle_s = CAIRN_MESSAGE_NONE};
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_run_row, sorted[i], &run, err));
        CAIRN_TRY(add_idle(cli, &run, rows, &bytes, err));
    }
    if (cli->output != CAIRN_CLI_TABLE) return print_usage(cli, "RUN", rows, err);
    printf("%10s  %7s  %8s  %s\n", "SIZE", "COUNT", "IDLE", "REMOVED BY");
    for (size_t index = 0; (row = json_array_get(rows, index)); index++) print_idle(row);
    cairn_cli_size(bytes, size);
    cairn_cli_note("%zu of %zu runs, %s", json_array_size(rows), count, size);
    return cairn_cli_flush(err);
}

/* ---- one run by checkpoint state ---- */

static const char *const kinds[] = {"committed", "superseded", "trash", "open",
                                    "aborting",  "deleting",   "other"};

static size_t kind_of(const struct cairn_msg_version_row *version) {
    const char *name = version->trashed ? "trash" : version->state;
    if (!strcmp(name, "committed") && version->superseded) name = "superseded";
    size_t kind = 0;
    while (kind + 1 < CAIRN_COUNT(kinds) && strcmp(kinds[kind], name) != 0) kind++;
    return kind;
}

static enum cairn_code add_kind(const char *kind, uint64_t count, uint64_t bytes, json_t *rows,
                                struct cairn_error *err) {
    if (!count) return CAIRN_OK;
    json_t *row = json_pack("{s:s, s:I, s:I}", "state", kind, "count", (json_int_t)count, "bytes",
                            (json_int_t)bytes);
    return cairn_cli_list_add(rows, row, err);
}

/* Deleted versions' bytes; omitted if the token may not list them for all runs. */
static enum cairn_code add_not_freed(const struct cairn_cli *cli, const struct cairn_cli_ref *run,
                                     json_t *rows, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *all = json_array();
    struct cairn_error unused = {0};
    uint64_t count = 0, bytes = 0;
    json_t *json = NULL;
    if (cairn_cli_list(cli, NULL, "/not-freed", ITEMS_MAX, all, NULL, &unused)) return CAIRN_OK;
    for (size_t i = 0; (json = json_array_get(all, i)); i++) {
        struct cairn_msg_not_freed_row kept = {0};
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_not_freed_row, json, &kept, err));
        if (strcmp(kept.project, run->name.project) != 0 || strcmp(kept.run, run->name.run) != 0 ||
            strcmp(kept.state, "gone") != 0)
            continue;
        count++;
        bytes += kept.bytes;
    }
    return add_kind("not freed", count, bytes, rows, err);
}

static enum cairn_code du_run(const struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *versions = json_array(), *rows = json_array();
    struct cairn_cli_ref run;
    uint64_t counts[CAIRN_COUNT(kinds)] = {0}, bytes[CAIRN_COUNT(kinds)] = {0};
    json_t *json = NULL;
    CAIRN_TRY(cairn_cli_ref_run("du", cli->arguments[0], &run, err));
    CAIRN_TRY(cairn_cli_list(cli, &run, "/checkpoints", ITEMS_MAX, versions, NULL, err));
    for (size_t index = 0; (json = json_array_get(versions, index)); index++) {
        struct cairn_msg_version_row version = {0};
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_version_row, json, &version, err));
        counts[kind_of(&version)]++;
        bytes[kind_of(&version)] += version.bytes;
    }
    for (size_t i = 0; i < CAIRN_COUNT(kinds); i++)
        CAIRN_TRY(add_kind(kinds[i], counts[i], bytes[i], rows, err));
    CAIRN_TRY(add_not_freed(cli, &run, rows, err));
    return print_usage(cli, "STATE", rows, err);
}

static enum cairn_code run_du(struct cairn_cli *cli, struct cairn_error *err) {
    if (cli->idle_given && cli->argument_count)
        return cairn_fail(err, CAIRN_INVALID,
                          "--idle lists runs: name none; cairn show %s says when it was saved to",
                          cli->arguments[0]);
    if (cli->idle_given) return du_idle(cli, err);
    return cli->argument_count ? du_run(cli, err) : du_runs(cli, err);
}

const struct cairn_cli_verb cairn_cli_verb_du = {
    .name = "du",
    .synopsis = "cairn du [flags] [project/run]",
    .purpose = "Where the bytes are.",
    .examples = "  cairn du\n  cairn du llm/7b\n  cairn du --idle 30d\n",
    CAIRN_CLI_FLAGS(du_flags),
    CAIRN_CLI_ARGUMENTS(0, 1),
    .run = run_du,
};

/* lineage: shows a checkpoint's ancestors, or records where a run began. */

static const struct cairn_cli_flag lineage_flags[] = {
    {"from", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(from), 0, "RUN@STEP",
     "Say that this run began from that checkpoint; none takes it back."},
};

static void print_item(const struct cairn_msg_lineage_row *row) {
    printf("%s%s/%s@%llu  %s  attempt %llu%s%s  %s\n",
           !row->by                     ? ""
           : !strcmp(row->by, "resume") ? "resumed from  "
                                        : "began from    ",
           row->project, row->run, (unsigned long long)row->step, row->version,
           (unsigned long long)row->attempt, row->job ? " of job " : "", row->job ? row->job : "",
           row->committed_at ? row->committed_at
           : row->state      ? row->state
                             : "(forgotten)");
}

static enum cairn_code show_lineage(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                    struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    struct cairn_msg_lineage chain = {0};
    json_t *item = NULL;
    CAIRN_TRY(cairn_cli_get(cli, ref, "/lineage", CAIRN_MESSAGE_lineage, &reply, &chain, err));
    if (cli->output == CAIRN_CLI_JSON) return cairn_cli_print_json(chain.items, true, err);
    for (size_t i = 0; (item = json_array_get(chain.items, i)); i++) {
        struct cairn_msg_lineage_row row = {0};
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_lineage_row, item, &row, err));
        if (cli->output == CAIRN_CLI_JSONL)
            CAIRN_TRY(cairn_cli_print_json(item, false, err));
        else if (cli->output == CAIRN_CLI_NAME)
            puts(row.version);
        else
            print_item(&row);
    }
    if (chain.more && cli->output == CAIRN_CLI_TABLE) puts("... and further back");
    return cairn_cli_flush(err);
}

static enum cairn_code set_lineage(const struct cairn_cli *cli, const struct cairn_cli_ref *run,
                                   struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *body = NULL, *reply = NULL;
    struct cairn_cli_ref from;
    char text[400] = "";
    bool none = !strcmp(cli->from, "none");
    if (!none) {
        CAIRN_TRY(cairn_cli_ref_parse(cli->from, &from, err));
        snprintf(text, sizeof text, "%s/%s@%s", from.name.project, from.name.run,
                 from.version[0] ? from.version : "latest");
    }
    body = json_pack("{s:s?}", "from", none ? NULL : text);
    if (!body) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a change");
    struct cairn_cli_call call = {.method = "PATCH", .body = body, .if_match = "*"};
    CAIRN_TRY(cairn_cli_call(cli, run, call, &reply, err));
    if (cli->output == CAIRN_CLI_JSON) return cairn_cli_print_json(reply, true, err);
    printf("%s/%s %s%s\n", run->name.project, run->name.run,
           none ? "says no more what it began from" : "began from ", text);
    return cairn_cli_flush(err);
}

static enum cairn_code run_lineage(struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_ref ref;
    if (cli->from) {
        CAIRN_TRY(cairn_cli_ref_run("lineage --from", cli->arguments[0], &ref, err));
        return set_lineage(cli, &ref, err);
    }
    CAIRN_TRY(cairn_cli_ref_latest(cli, &ref, err));
    return show_lineage(cli, &ref, err);
}

const struct cairn_cli_verb cairn_cli_verb_lineage = {
    .name = "lineage",
    .synopsis = "cairn lineage [flags] project/run[@step]",
    .purpose = "What a checkpoint was trained from, attempt by attempt and across runs.",
    .examples = "  cairn lineage llm/7b@1200\n  cairn lineage llm/7b@prod --json\n"
                "  cairn lineage llm/7b-chat --from llm/7b@1200\n",
    CAIRN_CLI_FLAGS(lineage_flags),
    CAIRN_CLI_ARGUMENTS(1, 1),
    .run = run_lineage,
};
