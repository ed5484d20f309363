/* SPDX-License-Identifier: Apache-2.0 */
/* cairn du: where the bytes are: of each run, of one run by what its checkpoints are, or of runs in
 * which nothing happens any more, with the command that removes each. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/shell/output.h"
#include "cli/shell/sizes.h"
#include "common/text.h"

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

/* "llm/7b" of a run, "trash" of what its checkpoints are. */
static void row_name(const json_t *row, char *ret, size_t capacity) {
    const char *run = json_string_value(json_object_get(row, "run"));
    if (run)
        snprintf(ret, capacity, "%s/%s", json_string_value(json_object_get(row, "project")), run);
    else
        snprintf(ret, capacity, "%s", json_string_value(json_object_get(row, "state")));
}

static enum cairn_code print_usage(const struct cairn_cli *cli, const char *title,
                                   const json_t *rows, struct cairn_error *err) {
    size_t index = 0;
    json_t *row = NULL;
    if (cli->output == CAIRN_CLI_JSON) return cairn_cli_print_json(rows, true, err);
    if (cli->output == CAIRN_CLI_TABLE) printf("%10s  %7s  %s\n", "SIZE", "COUNT", title);
    json_array_foreach((json_t *)(uintptr_t)rows, index, row) {
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
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

/* ---- runs, the largest first ---- */

static int by_bytes(const void *a, const void *b) {
    json_int_t of_a = json_integer_value(json_object_get(*(json_t *const *)a, "bytes"));
    json_int_t of_b = json_integer_value(json_object_get(*(json_t *const *)b, "bytes"));
    return of_a > of_b ? -1 : of_a < of_b;
}

/* ret_sorted: malloc'd, and borrowed from runs. */
static enum cairn_code runs_by_bytes(const struct cairn_cli *cli, json_t *runs,
                                     json_t ***ret_sorted, size_t *ret_count,
                                     struct cairn_error *err) {
    CAIRN_TRY(cairn_cli_list(cli, "/v1/runs", ITEMS_MAX, runs, NULL, err));
    size_t count = json_array_size(runs);
    json_t **sorted = calloc(count + 1, sizeof(*sorted));
    if (!sorted) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
    for (size_t i = 0; i < count; i++) sorted[i] = json_array_get(runs, i);
    qsort(sorted, count, sizeof(*sorted), by_bytes);
    *ret_sorted = sorted;
    *ret_count = count;
    return CAIRN_OK;
}

/* What costs and is counted in no run; who may not ask for the whole store is told nothing. */
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
        if (json_array_append_new(
                rows, json_pack("{s:s, s:s, s:I, s:I}", "project", run.project, "run", run.run,
                                "count", (json_int_t)run.committed, "bytes",
                                (json_int_t)run.bytes)))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
    }
    CAIRN_TRY(print_usage(cli, "RUN", rows, err));
    tell_not_freed(cli);
    return CAIRN_OK;
}

/* ---- runs in which nothing happens any more ---- */

static enum cairn_code add_idle(const struct cairn_cli *cli, const struct cairn_msg_run_row *run,
                                json_t *rows, uint64_t *bytes, struct cairn_error *err) {
    char command[2 * CAIRN_NAME_BYTES_MAX + 20];
    /* None while it is being saved to, and of an older server: it is not for us to guess. */
    if (run->idle_s == CAIRN_MESSAGE_NONE || run->idle_s < cli->idle_ms / 1000) return CAIRN_OK;
    snprintf(command, sizeof command, "cairn rm --run %s/%s", run->project, run->run);
    *bytes += run->bytes;
    if (!json_array_append_new(
            rows, json_pack("{s:s, s:s, s:I, s:I, s:s?, s:I, s:s}", "project", run->project, "run",
                            run->run, "count", (json_int_t)run->committed, "bytes",
                            (json_int_t)run->bytes, "last_commit_at", run->last_commit_at,
                            "idle_s", (json_int_t)run->idle_s, "remove", command)))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
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
    size_t count = 0, index = 0;
    json_t *row = NULL;
    CAIRN_TRY(runs_by_bytes(cli, runs, &sorted, &count, err));
    for (size_t i = 0; i < count; i++) {
        struct cairn_msg_run_row run = {.idle_s = CAIRN_MESSAGE_NONE};
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_run_row, sorted[i], &run, err));
        CAIRN_TRY(add_idle(cli, &run, rows, &bytes, err));
    }
    if (cli->output != CAIRN_CLI_TABLE) return print_usage(cli, "RUN", rows, err);
    printf("%10s  %7s  %8s  %s\n", "SIZE", "COUNT", "IDLE", "REMOVED BY");
    json_array_foreach(rows, index, row) print_idle(row);
    cairn_cli_size(bytes, size);
    cairn_cli_note("%zu of %zu runs, %s", json_array_size(rows), count, size);
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

/* ---- one run by what its checkpoints are ---- */

static const char *const kinds[] = {"committed", "superseded", "trash", "open",
                                    "aborting",  "deleting",   "other"};

static size_t kind_of(const struct cairn_msg_version_row *version) {
    const char *name = version->trashed ? "trash" : version->state;
    if (!strcmp(name, "committed") && version->superseded) name = "superseded";
    size_t kind = 0;
    while (kind + 1 < CAIRN_COUNT(kinds) && strcmp(kinds[kind], name) != 0) kind++;
    return kind;
}

/* Of deleted versions of the run; who may not list those of all runs sees none. */
static enum cairn_code add_not_freed(const struct cairn_cli *cli, const struct cairn_cli_ref *run,
                                     json_t *rows, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *all = json_array();
    struct cairn_error unused = {0};
    uint64_t count = 0, bytes = 0;
    size_t index = 0;
    json_t *json = NULL;
    if (cairn_cli_list(cli, "/v1/not-freed", ITEMS_MAX, all, NULL, &unused)) return CAIRN_OK;
    json_array_foreach(all, index, json) {
        struct cairn_msg_not_freed_row kept = {0};
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_not_freed_row, json, &kept, err));
        if (strcmp(kept.project, run->name.project) != 0 || strcmp(kept.run, run->name.run) != 0 ||
            strcmp(kept.state, "gone") != 0)
            continue;
        count++;
        bytes += kept.bytes;
    }
    if (!count || !json_array_append_new(rows, json_pack("{s:s, s:I, s:I}", "state", "not freed",
                                                         "count", (json_int_t)count, "bytes",
                                                         (json_int_t)bytes)))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
}

static enum cairn_code du_run(const struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *versions = json_array(), *rows = json_array();
    CAIRN_AUTO(buf) path = {0};
    struct cairn_cli_ref run;
    uint64_t counts[CAIRN_COUNT(kinds)] = {0}, bytes[CAIRN_COUNT(kinds)] = {0};
    size_t index = 0;
    json_t *json = NULL;
    CAIRN_TRY(cairn_cli_ref_run("du", cli->arguments[0], &run, err));
    CAIRN_TRY(cairn_cli_path(&run, "/checkpoints", &path, err));
    CAIRN_TRY(cairn_cli_list(cli, path.data, ITEMS_MAX, versions, NULL, err));
    json_array_foreach(versions, index, json) {
        struct cairn_msg_version_row version = {0};
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_version_row, json, &version, err));
        counts[kind_of(&version)]++;
        bytes[kind_of(&version)] += version.bytes;
    }
    for (size_t i = 0; i < CAIRN_COUNT(kinds); i++)
        if (counts[i] && json_array_append_new(rows, json_pack("{s:s, s:I, s:I}", "state", kinds[i],
                                                               "count", (json_int_t)counts[i],
                                                               "bytes", (json_int_t)bytes[i])))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
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
    .flags = du_flags,
    .flag_count = CAIRN_COUNT(du_flags),
    .arguments_max = 1,
    .run = run_du,
};
