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

static const struct cli_flag ls_flags[] = {
    {"limit", 'n', CLI_COUNT, CLI_AT(limit), 0, "N", "At most N; default 100."},
    {"store", 0, CLI_TEXT, CLI_AT(store), 0, "URL",
     "List the store itself, without a server: a folder or s3://bucket/prefix."},
    {"state", 0, CLI_TEXT, CLI_AT(state), 0, "STATE",
     "Only versions in this state: open, committed, aborting, deleting."},
    {"label", 'l', CLI_TEXT, CLI_AT(selector), 0, "SELECTOR",
     "Only what has these labels, as team=nlp,tier!=tmp,kept,!old; of runs, too."},
    {"step-ge", 0, CLI_NUMBER, CLI_AT(step_ge), 0, "STEP", "From this step on."},
    {"step-lt", 0, CLI_NUMBER, CLI_AT(step_lt), CLI_AT(step_lt_given), "STEP", "Below this step."},
    {"attempt", 0, CLI_NUMBER, CLI_AT(attempt), CLI_AT(attempt_given), "N",
     "Only of this attempt."},
    {"since", 0, CLI_TEXT, CLI_AT(since_time), 0, "TIME",
     "Committed since then, as 2026-03-02T10:14:07Z; begun, if not committed."},
    {"trashed", 0, CLI_TEXT, CLI_AT(trashed), 0, "BOOL",
     "true: only what is in the trash; false: only what is not."},
};

static void cell_shards(const json_t *item, char *ret, size_t capacity) {
    const char *state = json_string_value(json_object_get(item, "state"));
    cli_format(state && !strcmp(state, "open") ? "{shards_registered}/{shards}" : "{shards}", item,
               ret, capacity);
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

static void cell_flags(const json_t *item, char *ret, size_t capacity) {
    struct cairn_msg_version_row version = {0};
    char names[CELL_NAMES_BYTES], damage[CELL_NAMES_BYTES];
    ret[0] = '\0';
    if (cairn_msg_version_row_read(item, "", &version, NULL)) return;
    const struct cairn_short reason = cairn_short(version.reason ? version.reason : "");
    names[0] = '\0';
    CAIRN_JSON_EACH(alias, version.aliases)
        cli_add(names, sizeof names, " ", "%s",
                json_is_string(alias) ? json_string_value(alias) : "");
    cli_damage_words(version.copies, damage, sizeof damage);
    const char *words[] = {damage,
                           version.latest ? "latest" : "",
                           !strcmp(version.version, best.version) ? best.text : "",
                           names,
                           version.pinned ? "pinned" : "",
                           version.superseded ? "superseded" : "",
                           version.trashed ? "trashed" : "",
                           opaque_text(&version),
                           reason.text};
    for (size_t i = 0; i < CAIRN_COUNT(words); i++)
        if (*words[i]) cli_add(ret, capacity, " ", "%s", words[i]);
}
static const struct cli_table version_table = {
    CAIRN_MESSAGE_version_row,
    .name = "{project}/{run}@{version}",
    .columns = {{"STEP", .text = "{step}", CLI_RIGHT},
                {"STATE", .text = "{state}"},
                {"SHARDS", .cell = cell_shards, .kind = CLI_RIGHT},
                {"SIZE", .text = "{bytes:size}", CLI_RIGHT},
                {"ATTEMPT", .text = "{attempt}", CLI_RIGHT},
                {"SAVED", .text = "{committed_at|created_at}"},
                {"FLAGS", .cell = cell_flags},
                {"RANKS", .text = "{world_size}", CLI_RIGHT | CLI_WIDE},
                {"VERSION", .text = "{version}", CLI_WIDE},
                {"LABELS", .text = "{labels:packed}", CLI_WIDE}},
};
static const struct cli_table run_table = {
    CAIRN_MESSAGE_run_row,
    .name = "{project}/{run}",
    .columns = {{"RUN", .text = "{project}/{run}"},
                {"COMMITTED", .text = "{committed}", CLI_RIGHT},
                {"SIZE", .text = "{bytes:size}", CLI_RIGHT},
                {"LATEST", .text = "{latest.step|=-}", CLI_RIGHT},
                {"ATTEMPT", .text = "{attempt}", CLI_RIGHT}},
};

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
static const char *version_filter_of(const struct cli *cli) {
    if (cli->trashed) return "--trashed";
    if (cli->since_time) return "--since";
    if (cli->attempt_given) return "--attempt";
    if (cli->step_ge) return "--step-ge";
    return cli->step_lt_given ? "--step-lt" : NULL;
}

static enum cairn_code check_store(const struct cli *cli, struct cairn_error *err) {
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

static enum cairn_code list_runs(const struct cli *cli, uint64_t limit, json_t *items,
                                 struct cairn_error *err) {
    CAIRN_AUTO(buf) tail = {0};
    if (cli->store) return cli_stored_runs(cli, limit, items, err);
    CAIRN_TRY(cairn_buf_append_text(&tail, "/runs", err));
    CAIRN_TRY(add_filter("l", cli->selector, &tail, err));
    return cli_list(cli, NULL, tail.data, limit, items, NULL, err);
}

static enum cairn_code list_versions(const struct cli *cli, const struct cli_ref *ref,
                                     uint64_t limit, json_t *items, bool *ret_more,
                                     struct cairn_error *err) {
    CAIRN_AUTO(buf) tail = {0};
    if (cli->store) return cli_stored_versions(cli, &ref->name, limit, items, err);
    CAIRN_TRY(cairn_buf_append_text(&tail, "/checkpoints", err));
    CAIRN_TRY(add_filter("state", cli->state, &tail, err));
    CAIRN_TRY(add_filter("l", cli->selector, &tail, err));
    CAIRN_TRY(add_filter("trashed", cli->trashed, &tail, err));
    CAIRN_TRY(add_filter("since", cli->since_time, &tail, err));
    CAIRN_TRY(add_number("attempt", cli->attempt, cli->attempt_given, &tail, err));
    CAIRN_TRY(add_number("step_ge", cli->step_ge, cli->step_ge > 0, &tail, err));
    CAIRN_TRY(add_number("step_lt", cli->step_lt, cli->step_lt_given, &tail, err));
    return cli_list(cli, ref, tail.data, limit, items, ret_more, err);
}

static enum cairn_code ask_opaque(const struct cli *cli, const struct cli_ref *ref, bool *ret,
                                  struct cairn_error *err) {
    if (cli->store) {
        struct cli_stored stored = {0};
        enum cairn_code code = cli_stored_version(cli, ref, &stored, err);
        *ret = !code && cli_opaque_count(stored.shards) > 0;
        cli_stored_release(&stored);
        return code;
    }
    CAIRN_AUTO_JSON json_t *shards = json_array();
    CAIRN_TRY(cli_list(cli, ref, "/shards?content=opaque", 1, shards, NULL, err));
    *ret = json_array_size(shards) > 0;
    return CAIRN_OK;
}

/* For the FLAGS column, one request per layout. Errors set no flag: `verify` reports damage. */
static void note_opaque(const struct cli *cli, const struct cairn_run_name *name,
                        const json_t *items) {
    opaque_in_part = json_object();
    CAIRN_JSON_EACH(item, items) {
        struct cairn_msg_version_row version = {0};
        struct cli_ref ref = {.name = *name};
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
static void note_best(const struct cli *cli, const struct cairn_run_name *name) {
    CAIRN_AUTO_JSON json_t *json = NULL, *holds = NULL;
    struct cli_ref ref = {.name = *name};
    struct cairn_msg_version_row version = {0};
    struct cairn_msg_retention retention = {0};
    struct cli_call policy = {.tail = "/retention"};
    best.version[0] = '\0';
    if (cli_call(cli, &ref, policy, &holds, NULL) ||
        cli_reply_read(CAIRN_MESSAGE_retention, holds, &retention, NULL))
        return;
    const json_t *rule =
        json_array_get(json_object_get(json_object_get(retention.policy, "keep"), "best"), 0);
    const char *metric = json_string_value(json_object_get(rule, "metric"));
    cairn_text_copy(ref.version, sizeof ref.version, "best");
    if (!metric || cli_call(cli, &ref, (struct cli_call){0}, &json, NULL) ||
        cli_reply_read(CAIRN_MESSAGE_version_row, json, &version, NULL))
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
    CAIRN_JSON_EACH(item, items) {
        CLI_READ(version_row, version, item, err);
        const char *what = version.trashed ? trash : version.state;
        size_t i = 0;
        while (i < states && strcmp(sums[i].what, what) != 0) i++;
        if (i == STATES_MAX) continue;
        if (i == states) sums[states++].what = what;
        sums[i].count++;
        sums[i].bytes += version.bytes;
    }
    for (size_t i = 0; i < states; i++)
        printf("%s%llu %s: %s", i ? "; " : "", (unsigned long long)sums[i].count, sums[i].what,
               cli_size(sums[i].bytes).text);
    if (more) printf("; there are more than %llu: --limit", (unsigned long long)limit);
    if (states) puts("");
    return cli_flush(err);
}

static enum cairn_code run_ls(struct cli *cli, struct cairn_error *err) {
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
        return cli_print(cli, items, &run_table, err);
    }
    struct cli_ref ref;
    CAIRN_TRY(cli_ref_parse(cli->arguments[0], &ref, err));
    if (ref.version[0])
        return cairn_fail(err, CAIRN_INVALID, "ls lists a run; for one checkpoint: cairn show %s",
                          cli->arguments[0]);
    CAIRN_TRY(list_versions(cli, &ref, limit, items, &more, err));
    bool table = cli->output == CLI_TABLE;
    if (table) note_opaque(cli, &ref.name, items);
    if (table && !cli->store) note_best(cli, &ref.name);
    enum cairn_code code = cli_print(cli, items, &version_table, err);
    json_decref(opaque_in_part);
    opaque_in_part = NULL;
    if (code == CAIRN_OK && table) code = print_sums(items, limit, more, err);
    if (code == CAIRN_OK) cli_spark_versions(items);
    return code;
}

const struct cli_verb cli_verb_ls = {
    CLI_VERB(ls),
    .chapter = "See what there is",
    .synopsis = "cairn ls [flags] [project/run]",
    .purpose = "List runs, or the checkpoints of one run, the latest saved first.",
    .examples = "  cairn ls\n"
                "  cairn ls llm/7b --label tier=keep --step-ge 1000\n"
                "  cairn ls llm/7b --store ./cairn/store   (no server needed)\n",
    CLI_TAKES(ls_flags, 0, 1),
};

/* du: sizes of runs or of one run's states; idle runs with the commands that remove them. */

#define ITEMS_MAX 1000000
#define DAY_S 86400

static const struct cli_flag du_flags[] = {
    {"idle", 0, CLI_TIME, CLI_AT(idle_ms), CLI_AT(idle_given), "TIME",
     "Runs without a commit and an attempt for that long, as 30d, and what removes them."},
};

static const struct cli_table usage_table = {
    .name = "[{project}/{run}]{state}",
    .line = "{bytes:size>10}  {count>7}  [{project}/{run}]{state}",
};

static enum cairn_code print_usage(const struct cli *cli, const char *title, const json_t *rows,
                                   struct cairn_error *err) {
    if (cli->output == CLI_TABLE) printf("%10s  %7s  %s\n", "SIZE", "COUNT", title);
    return cli_print(cli, rows, &usage_table, err);
}

/* ---- runs, largest first ---- */

static int by_bytes(const void *a, const void *b) {
    json_int_t of_a = json_integer_value(json_object_get(*(json_t *const *)a, "bytes"));
    json_int_t of_b = json_integer_value(json_object_get(*(json_t *const *)b, "bytes"));
    return of_a > of_b ? -1 : of_a < of_b;
}

/* *ret_sorted: malloc'd, items borrowed from runs. */
static enum cairn_code runs_by_bytes(const struct cli *cli, json_t *runs, json_t ***ret_sorted,
                                     size_t *ret_count, struct cairn_error *err) {
    CAIRN_TRY(cli_list(cli, NULL, "/runs", ITEMS_MAX, runs, NULL, err));
    size_t count = json_array_size(runs);
    json_t **sorted = calloc(count + 1, sizeof(*sorted));
    if (!sorted) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
    for (size_t i = 0; i < count; i++) sorted[i] = json_array_get(runs, i);
    qsort(sorted, count, sizeof(*sorted), by_bytes);
    *ret_sorted = sorted;
    *ret_count = count;
    return CAIRN_OK;
}

static enum cairn_code du_runs(const struct cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *runs = json_array(), *rows = json_array();
    CAIRN_AUTO_HEAP json_t **sorted = NULL;
    size_t count = 0;
    CAIRN_TRY(runs_by_bytes(cli, runs, &sorted, &count, err));
    for (size_t i = 0; i < count; i++) {
        CLI_READ(run_row, run, sorted[i], err);
        json_t *row = json_pack("{s:s, s:s, s:I, s:I}", "project", run.project, "run", run.run,
                                "count", (json_int_t)run.committed, "bytes", (json_int_t)run.bytes);
        CAIRN_TRY(cli_list_add(rows, row, err));
    }
    CAIRN_TRY(print_usage(cli, "RUN", rows, err));
    /* Bytes outside all runs; silent if the token may not ask for the whole store. */
    const struct cli_call call = {.tail = "/gc"};
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_msg_gc gc = {0};
    struct cairn_error unused = {0};
    if (cli->output == CLI_TABLE &&
        !cli_ask(cli, NULL, call, CAIRN_MESSAGE_gc, &json, &gc, &unused))
        cli_note_of(CLI_KEPT_BYTES, json);
    return CAIRN_OK;
}

/* ---- idle runs ---- */

static enum cairn_code add_idle(const struct cli *cli, const struct cairn_msg_run_row *run,
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
    return cli_list_add(rows, row, err);
}

static void print_idle(const json_t *row) {
    char idle[24], command[300];
    uint64_t seconds = (uint64_t)json_integer_value(json_object_get(row, "idle_s"));
    cairn_duration_text(seconds * 1000, idle);
    if (seconds >= 2 * DAY_S) snprintf(idle, sizeof idle, "%" PRIu64 "d", seconds / DAY_S);
    snprintf(command, sizeof command, "%s", json_string_value(json_object_get(row, "remove")));
    cli_clean(command);
    printf("%10s  %7" PRIu64 "  %8s  %s\n",
           cli_size((uint64_t)json_integer_value(json_object_get(row, "bytes"))).text,
           (uint64_t)json_integer_value(json_object_get(row, "count")), idle, command);
}

static enum cairn_code du_idle(const struct cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *runs = json_array(), *rows = json_array();
    CAIRN_AUTO_HEAP json_t **sorted = NULL;
    uint64_t bytes = 0;
    size_t count = 0;
    json_t *row = NULL;
    CAIRN_TRY(runs_by_bytes(cli, runs, &sorted, &count, err));
    for (size_t i = 0; i < count; i++) {
        struct cairn_msg_run_row run = {.idle_s = CAIRN_MESSAGE_NONE};
        CAIRN_TRY(cli_reply_read(CAIRN_MESSAGE_run_row, sorted[i], &run, err));
        CAIRN_TRY(add_idle(cli, &run, rows, &bytes, err));
    }
    if (cli->output != CLI_TABLE) return print_usage(cli, "RUN", rows, err);
    printf("%10s  %7s  %8s  %s\n", "SIZE", "COUNT", "IDLE", "REMOVED BY");
    for (size_t index = 0; (row = json_array_get(rows, index)); index++) print_idle(row);
    cli_note("%zu of %zu runs, %s", json_array_size(rows), count, cli_size(bytes).text);
    return cli_flush(err);
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
    return cli_list_add(rows, row, err);
}

/* Deleted versions' bytes; omitted if the token may not list them for all runs. */
static enum cairn_code add_not_freed(const struct cli *cli, const struct cli_ref *run, json_t *rows,
                                     struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *all = json_array();
    struct cairn_error unused = {0};
    uint64_t count = 0, bytes = 0;
    if (cli_list(cli, NULL, "/not-freed", ITEMS_MAX, all, NULL, &unused)) return CAIRN_OK;
    CAIRN_JSON_EACH(json, all) {
        CLI_READ(not_freed_row, kept, json, err);
        if (strcmp(kept.project, run->name.project) != 0 || strcmp(kept.run, run->name.run) != 0 ||
            strcmp(kept.state, "gone") != 0)
            continue;
        count++;
        bytes += kept.bytes;
    }
    return add_kind("not freed", count, bytes, rows, err);
}

static enum cairn_code du_run(const struct cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *versions = json_array(), *rows = json_array();
    struct cli_ref run;
    uint64_t counts[CAIRN_COUNT(kinds)] = {0}, bytes[CAIRN_COUNT(kinds)] = {0};
    CAIRN_TRY(cli_ref_run("du", cli->arguments[0], &run, err));
    CAIRN_TRY(cli_list(cli, &run, "/checkpoints", ITEMS_MAX, versions, NULL, err));
    CAIRN_JSON_EACH(json, versions) {
        CLI_READ(version_row, version, json, err);
        counts[kind_of(&version)]++;
        bytes[kind_of(&version)] += version.bytes;
    }
    for (size_t i = 0; i < CAIRN_COUNT(kinds); i++)
        CAIRN_TRY(add_kind(kinds[i], counts[i], bytes[i], rows, err));
    CAIRN_TRY(add_not_freed(cli, &run, rows, err));
    return print_usage(cli, "STATE", rows, err);
}

static enum cairn_code run_du(struct cli *cli, struct cairn_error *err) {
    if (cli->idle_given && cli->argument_count)
        return cairn_fail(err, CAIRN_INVALID,
                          "--idle lists runs: name none; cairn show %s says when it was saved to",
                          cli->arguments[0]);
    if (cli->idle_given) return du_idle(cli, err);
    return cli->argument_count ? du_run(cli, err) : du_runs(cli, err);
}

const struct cli_verb cli_verb_du = {
    CLI_VERB(du),
    .synopsis = "cairn du [flags] [project/run]",
    .purpose = "Show how many bytes projects and runs store.",
    .examples = "  cairn du\n  cairn du llm/7b\n  cairn du --idle 30d\n",
    CLI_TAKES(du_flags, 0, 1),
};

/* lineage: shows a checkpoint's ancestors, or records where a run began. */

static const struct cli_flag lineage_flags[] = {
    {"from", 0, CLI_TEXT, CLI_AT(from), 0, "RUN@STEP",
     "Say that this run began from that checkpoint; none takes it back."},
};

static enum cairn_code run_lineage(struct cli *cli, struct cairn_error *err) {
    struct cli_ref ref;
    if (cli->from) {
        CAIRN_TRY(cli_ref_run("lineage --from", cli->arguments[0], &ref, err));
        CAIRN_AUTO_JSON json_t *body = NULL, *reply = NULL;
        struct cli_ref from;
        char text[400] = "";
        bool none = !strcmp(cli->from, "none");
        if (!none) {
            CAIRN_TRY(cli_ref_parse(cli->from, &from, err));
            snprintf(text, sizeof text, "%s/%s@%s", from.name.project, from.name.run,
                     from.version[0] ? from.version : "latest");
        }
        body = json_pack("{s:s?}", "from", none ? NULL : text);
        if (!body) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a change");
        struct cli_call call = {.method = "PATCH", .body = body, .if_match = "*"};
        CAIRN_TRY(cli_call(cli, &ref, call, &reply, err));
        if (cli->output == CLI_JSON) return cli_print_json(reply, true, err);
        printf("%s/%s %s%s\n", ref.name.project, ref.name.run,
               none ? "says no more what it began from" : "began from ", text);
        return cli_flush(err);
    }
    CAIRN_TRY(cli_ref_latest(cli, &ref, err));
    CAIRN_AUTO_JSON json_t *reply = NULL;
    struct cairn_msg_lineage chain = {0};
    char line[1000];
    CAIRN_TRY(cli_get(cli, &ref, "/lineage", CAIRN_MESSAGE_lineage, &reply, &chain, err));
    if (cli->output == CLI_JSON) return cli_print_json(chain.items, true, err);
    CAIRN_JSON_EACH(item, chain.items) {
        CLI_READ(lineage_row, row, item, err);
        const char *by = !row.by                     ? ""
                         : !strcmp(row.by, "resume") ? "resumed from  "
                                                     : "began from    ";
        cli_format("{project}/{run}@{step}  {version}  attempt {attempt}[ of job {job}]  "
                   "{committed_at|state|=(forgotten)}",
                   item, line, sizeof line);
        if (cli->output == CLI_JSONL)
            CAIRN_TRY(cli_print_json(item, false, err));
        else if (cli->output == CLI_NAME)
            puts(row.version);
        else
            printf("%s%s\n", by, line);
    }
    if (chain.more && cli->output == CLI_TABLE) puts("... and further back");
    return cli_flush(err);
}

const struct cli_verb cli_verb_lineage = {
    CLI_VERB(lineage),
    .synopsis = "cairn lineage [flags] project/run[@step]",
    .purpose = "Show the checkpoints from which a checkpoint was trained, also across runs.",
    .examples = "  cairn lineage llm/7b@1200\n  cairn lineage llm/7b@prod --json\n"
                "  cairn lineage llm/7b-chat --from llm/7b@1200\n",
    CLI_TAKES(lineage_flags, 1, 1),
};
