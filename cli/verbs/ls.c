/* SPDX-License-Identifier: Apache-2.0 */
/* cairn ls: runs, or the checkpoints of one run. */
#include <stdio.h>

#include "cli/bucket/stored.h"
#include "cli/shell/output.h"
#include "cli/shell/said.h"
#include "cli/shell/sizes.h"
#include "common/encode.h"
#include "common/text.h"
#include "common/utf8.h"

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

static void cell_step(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%llu", (unsigned long long)row->version.step);
}
static void cell_version(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->version.version);
}
static void cell_state(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->version.state);
}
static void cell_shards(const union cairn_cli_row *row, char *ret, size_t capacity) {
    unsigned long long shards = row->version.shards, registered = row->version.shards_registered;
    if (!strcmp(row->version.state, "open"))
        snprintf(ret, capacity, "%llu/%llu", registered, shards);
    else
        snprintf(ret, capacity, "%llu", shards);
}
static void cell_version_size(const union cairn_cli_row *row, char *ret, size_t capacity) {
    char text[24];
    cairn_cli_size(row->version.bytes, text);
    snprintf(ret, capacity, "%s", text);
}
static void cell_version_attempt(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%llu", (unsigned long long)row->version.attempt);
}
static void cell_saved(const union cairn_cli_row *row, char *ret, size_t capacity) {
    const char *time =
        row->version.committed_at ? row->version.committed_at : row->version.created_at;
    snprintf(ret, capacity, "%s", time ? time : "");
}
/* Committed versions with tensors, by layout and number of shards: are there opaque ones, too? */
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

/* The best version by what the policy names first, as "best(eval_loss=1.93)". */
static struct {
    char version[CAIRN_VERSION_ID_BYTES], text[160];
} best;

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
    size_t used = 0;
    ret[0] = '\0';
    for (size_t i = 0; i < CAIRN_COUNT(words); i++)
        if (*words[i] && used < capacity)
            used +=
                (size_t)snprintf(ret + used, capacity - used, "%s%s", used ? " " : "", words[i]);
}
static void cell_ranks(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%llu", (unsigned long long)row->version.world_size);
}
static void cell_labels(const union cairn_cli_row *row, char *ret, size_t capacity) {
    cairn_cli_pairs(row->version.labels, ",", ret, capacity);
}
/* What a wide table has besides stands behind. */
static const struct cairn_cli_column version_columns[] = {
    {"STEP", true, cell_step},
    {"STATE", false, cell_state},
    {"SHARDS", true, cell_shards},
    {"SIZE", true, cell_version_size},
    {"ATTEMPT", true, cell_version_attempt},
    {"SAVED", false, cell_saved},
    {"FLAGS", false, cell_flags},
    {"RANKS", true, cell_ranks},
    {"VERSION", false, cell_version},
    {"LABELS", false, cell_labels},
};
#define WIDE_COLUMNS 3
/* As commands take it. */
static void version_name(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s/%s@%s", row->version.project, row->version.run,
             row->version.version);
}
static const struct cairn_cli_table version_table = {CAIRN_MESSAGE_version_row, version_columns,
                                                     CAIRN_COUNT(version_columns) - WIDE_COLUMNS,
                                                     version_name, NULL};
static const struct cairn_cli_table version_wide_table = {
    CAIRN_MESSAGE_version_row, version_columns, CAIRN_COUNT(version_columns), version_name, NULL};

static void cell_run(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s/%s", row->run.project, row->run.run);
}
static void cell_committed(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%llu", (unsigned long long)row->run.committed);
}
static void cell_run_size(const union cairn_cli_row *row, char *ret, size_t capacity) {
    char text[24];
    cairn_cli_size(row->run.bytes, text);
    snprintf(ret, capacity, "%s", text);
}
static void cell_latest(const union cairn_cli_row *row, char *ret, size_t capacity) {
    struct cairn_msg_run_latest latest = {0};
    snprintf(ret, capacity, "-");
    if (row->run.latest && !cairn_msg_run_latest_read(row->run.latest, "", &latest, NULL))
        snprintf(ret, capacity, "%llu", (unsigned long long)latest.step);
}
static void cell_run_attempt(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%llu", (unsigned long long)row->run.attempt);
}
static const struct cairn_cli_column run_columns[] = {
    {"RUN", false, cell_run},
    {"COMMITTED", true, cell_committed},
    {"SIZE", true, cell_run_size},
    {"LATEST", true, cell_latest},
    {"ATTEMPT", true, cell_run_attempt},
};
static const struct cairn_cli_table run_table = {CAIRN_MESSAGE_run_row, run_columns,
                                                 CAIRN_COUNT(run_columns), cell_run, NULL};

/* ---- which of them ---- */

/* As the server's filters are called; those of runs are fewer. */
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

/* A flag that is about versions and is known to the server alone; NULL: none was given. */
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
    CAIRN_AUTO(buf) path = {0};
    if (cli->store) return cairn_cli_stored_runs(cli, limit, items, err);
    CAIRN_TRY(cairn_buf_printf(&path, err, "/v1/runs"));
    CAIRN_TRY(add_filter("l", cli->selector, &path, err));
    return cairn_cli_list(cli, path.data, limit, items, NULL, err);
}

static enum cairn_code list_versions(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                     uint64_t limit, json_t *items, bool *ret_more,
                                     struct cairn_error *err) {
    CAIRN_AUTO(buf) path = {0};
    if (cli->store) return cairn_cli_stored_versions(cli, &ref->name, limit, items, err);
    CAIRN_TRY(cairn_cli_path(ref, "/checkpoints", &path, err));
    CAIRN_TRY(add_filters(cli, &path, err));
    return cairn_cli_list(cli, path.data, limit, items, ret_more, err);
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
    CAIRN_AUTO(buf) path = {0};
    CAIRN_AUTO_JSON json_t *shards = json_array();
    CAIRN_TRY(cairn_cli_path(ref, "/shards?content=opaque", &path, err));
    CAIRN_TRY(cairn_cli_list(cli, path.data, 1, shards, NULL, err));
    *ret = json_array_size(shards) > 0;
    return CAIRN_OK;
}

/* For the flags: one question for each layout. A version whose answer fails has no such flag; a
 * damaged one is verify's to tell. */
static void note_opaque(const struct cairn_cli *cli, const struct cairn_run_name *name,
                        const json_t *items) {
    size_t at = 0;
    const json_t *item = NULL;
    opaque_in_part = json_object();
    json_array_foreach(items, at, item) {
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

/* For the flags, too: a run whose policy names no metric has no best one. */
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
    const json_t *rule = json_array_get(
        json_object_get(json_object_get(retention.policy, "keep"), "best"), 0);
    const char *metric = json_string_value(json_object_get(rule, "metric"));
    cairn_text_copy(ref.version, sizeof ref.version, "best");
    if (!metric || cairn_cli_call(cli, &ref, (struct cairn_cli_call){0}, &json, NULL) ||
        cairn_cli_reply_read(CAIRN_MESSAGE_version_row, json, &version, NULL))
        return;
    cairn_text_copy(best.version, sizeof best.version, version.version);
    snprintf(best.text, sizeof best.text, "best(%s=%s)", cairn_short(metric).text,
             cairn_real(json_number_value(json_object_get(version.metrics, metric))).text);
}

/* "3 committed: 8.6 MiB; 1 open: 2.9 MiB", of what the table shows. */
static enum cairn_code print_sums(const json_t *items, uint64_t limit, bool more,
                                  struct cairn_error *err) {
    static const char trash[] = "in the trash";
    struct {
        const char *what;
        uint64_t count, bytes;
    } sums[STATES_MAX] = {{0}};
    size_t at = 0, states = 0;
    const json_t *item = NULL;
    json_array_foreach(items, at, item) {
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
    if (more)
        printf("; there are more than %llu: --limit", (unsigned long long)limit);
    if (states) puts("");
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
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
    enum cairn_code code =
        cairn_cli_print(cli, items, cli->wide ? &version_wide_table : &version_table, err);
    json_decref(opaque_in_part);
    opaque_in_part = NULL;
    if (code == CAIRN_OK && table) code = print_sums(items, limit, more, err);
    if (code == CAIRN_OK) cairn_cli_spark_versions(items);
    return code;
}

const struct cairn_cli_verb cairn_cli_verb_ls = {
    .name = "ls",
    .synopsis = "cairn ls [flags] [project/run]",
    .purpose = "List runs, or the checkpoints of one run, what was saved last first.",
    .examples = "  cairn ls\n"
                "  cairn ls llm/7b --label tier=keep --step-ge 1000\n"
                "  cairn ls llm/7b --store ./cairn/store   (no server needed)\n",
    .flags = ls_flags,
    .flag_count = CAIRN_COUNT(ls_flags),
    .arguments_max = 1,
    .run = run_ls,
};
