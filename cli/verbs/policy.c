/* SPDX-License-Identifier: Apache-2.0 */
/* Retention: cairn policy get|set|unset|test for a run, a project or the server; cairn forget. Both
 * take rules as flags and show a plan first: kept checkpoints with reasons, removed ones' sizes. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/wire/policy.h"
#include "cli/shell/output.h"
#include "common/buf.h"
#include "common/text.h"

#define KEEP(name, kind, field, value, help)                                                       \
    { name, 0, CLI_##kind, CLI_AT(field), 0, value, help }
#define KEEP_N(name, id, help) KEEP("keep-" name, COUNT, keep_numbers[CAIRN_KEEP_##id], "N", help)
#define KEEP_FLAGS                                                                                 \
    KEEP_N("last", LAST, "Keep the newest N."), KEEP_N("first", FIRST, "Keep the oldest N."),      \
        KEEP_N("every-steps", EVERY_STEPS, "Keep every step that N divides."),                     \
        KEEP_N("hourly", HOURLY, "Keep one of each of the last N hours that hold one."),           \
        KEEP_N("daily", DAILY, "The same of days (UTC)."),                                         \
        KEEP_N("weekly", WEEKLY, "The same of weeks, from Monday on."),                            \
        KEEP_N("monthly", MONTHLY, "The same of months."),                                         \
        KEEP("keep-within", TEXT, keep_within, "TIME",                                             \
             "Keep what was committed at most this long before the newest, e.g. 6h."),             \
        KEEP("keep-best", TEXTS, keep_best, "RULES",                                               \
             "Keep the best by a metric: 1:eval_loss:min, more with commas or given again."),      \
        KEEP("unmeasured-grace", TEXT, unmeasured_grace, "TIME",                                   \
             "How long --keep-best keeps what lacks the metric, from its commit; default 24h."),   \
        KEEP("force", SWITCH, force, NULL, "Take a metric that no checkpoint has."),               \
        KEEP("keep-labels", TEXTS, keep_labels, "LABELS",                                          \
             "Keep what all of these choose, e.g. team=nlp,tier!=tmp; given again: or these.")

#define CHECKPOINTS_MAX 1000 /* whose metric names are fetched */

static enum cairn_code read_best(const char *text, struct cairn_policy *policy,
                                 struct cairn_error *err) {
    while (text) {
        const char *comma = strchr(text, ',');
        struct cairn_view one = {text, comma ? (size_t)(comma - text) : strlen(text)};
        if (policy->best_count == CAIRN_POLICY_BEST_MAX)
            return cairn_fail(err, CAIRN_INVALID, "--keep-best: more than %d metrics",
                              CAIRN_POLICY_BEST_MAX);
        enum cairn_code code =
            cairn_policy_best_parse(one, &policy->best[policy->best_count++], err);
        if (code) return cairn_within(err, code, "--keep-best %s", text);
        text = comma ? comma + 1 : NULL;
    }
    return CAIRN_OK;
}

/* *ret: the policy given by flags; NULL: none given. */
static enum cairn_code policy_of_flags(const struct cli *cli, json_t **ret,
                                       struct cairn_error *err) {
    struct cairn_policy policy = {0};
    enum cairn_code code = CAIRN_OK;
    memcpy(policy.numbers, cli->keep_numbers, sizeof policy.numbers);
    for (size_t i = 0; i < cli->keep_best.count; i++)
        CAIRN_TRY(read_best(cli->keep_best.items[i], &policy, err));
    if (cli->keep_within)
        code = cairn_policy_within_parse(cairn_view_of(cli->keep_within), &policy, err);
    if (code) return cairn_within(err, code, "--keep-within");
    for (size_t i = 0; i < cli->keep_labels.count; i++) /* at most CAIRN_POLICY_LABELS_MAX */
        CAIRN_TRY(cairn_selector_parse(cairn_view_of(cli->keep_labels.items[i]),
                                       &policy.labels[policy.labels_count++], err));
    if (cli->unmeasured_grace)
        code =
            cairn_policy_unmeasured_grace_parse(cairn_view_of(cli->unmeasured_grace), &policy, err);
    if (code) return cairn_within(err, code, "--unmeasured-grace");
    for (size_t i = 0; !code && i < cli->copies.count; i++)
        code = cairn_policy_copies_parse(cairn_view_of(cli->copies.items[i]), &policy, err);
    if (code) return cairn_within(err, code, "--copies");
    if (cli->partner_copies)
        code = cairn_policy_partner_copies_parse(cairn_view_of(cli->partner_copies), &policy, err);
    if (code) return cairn_within(err, code, "--partner-copies");
    *ret = NULL;
    bool nothing =
        cairn_policy_empty(&policy) && !policy.copies_count && !policy.says_partner_copies;
    return nothing ? CAIRN_OK : cairn_policy_json(&policy, ret, err);
}

/* POST /retention/preview; take_body may be NULL. */
static enum cairn_code preview(const struct cli *cli, const struct cli_ref *run, json_t *take_body,
                               json_t **ret, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *body = take_body;
    struct cli_call preview = {.method = "POST", .tail = "/retention/preview", .body = body};
    return cli_call(cli, run, preview, ret, err);
}

/* Whether a `best` rule keeps a checkpoint by this metric: then some checkpoint has it. */
static bool has_metric(const json_t *plan, const char *metric) {
    CAIRN_JSON_EACH(version, json_object_get(plan, "versions")) {
        CAIRN_JSON_EACH(reason, json_object_get(version, "reasons")) {
            const char *rule = json_string_value(json_object_get(reason, "rule"));
            const char *of = json_string_value(json_object_get(reason, "metric"));
            if (rule && of && !strcmp(rule, "best") && !strcmp(of, metric)) return true;
        }
    }
    return false;
}

/* Adds the metrics' names of the run's newest checkpoints to the object `known`. */
static enum cairn_code add_metrics(const struct cli *cli, const struct cli_ref *run, json_t *known,
                                   struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *items = json_array();
    json_t *value = NULL;
    const char *name = NULL;
    CAIRN_TRY(cli_list(cli, run, "/checkpoints", CHECKPOINTS_MAX, items, NULL, err));
    CAIRN_JSON_EACH(item, items)
        json_object_foreach(json_object_get(item, "metrics"), name, value)
            json_object_set_new(known, name, json_true());
    return CAIRN_OK;
}

/* of: "acme/run", or "any run of acme". */
static enum cairn_code no_metric(const char *of, const char *metric, const json_t *known,
                                 struct cairn_error *err) {
    CAIRN_AUTO(buf) there = {.limit = 512};
    json_t *value = NULL;
    const char *name = NULL;
    json_object_foreach((json_t *)(uintptr_t)known, name, value)
        CAIRN_TRY(cairn_buf_printf(&there, err, "%s%s", there.size ? ", " : "", name));
    return cairn_fail(err, CAIRN_INVALID,
                      "no checkpoint of %s has the metric %s (there are: %s); --force takes the "
                      "rule all the same",
                      of, metric, there.size ? there.data : "none yet");
}

/* CAIRN_INVALID, listing the existing metrics, if a rule names a metric that no checkpoint has.
 * Skipped with --force and for runs without checkpoints. */
static enum cairn_code check_metrics(const struct cli *cli, const struct cli_ref *run,
                                     const json_t *plan, struct cairn_error *err) {
    const json_t *keep = json_object_get(json_object_get(plan, "policy"), "keep");
    char of[2 * CAIRN_NAME_BYTES_MAX + 2];
    json_t *best = NULL;
    bool any = json_integer_value(json_object_get(plan, "keep")) +
                   json_integer_value(json_object_get(plan, "remove")) >
               0;
    if (cli->force || !any) return CAIRN_OK;
    for (size_t i = 0; (best = json_array_get(json_object_get(keep, "best"), i)); i++) {
        const char *metric = json_string_value(json_object_get(best, "metric"));
        if (!metric || has_metric(plan, metric)) continue;
        CAIRN_AUTO_JSON json_t *known = json_object();
        CAIRN_TRY(add_metrics(cli, run, known, err));
        snprintf(of, sizeof of, "%s/%s", run->name.project, run->name.run);
        return no_metric(of, metric, known, err);
    }
    return CAIRN_OK;
}

/* "last 1/2, best 1/1 by eval_loss (1.931), pinned" */
static enum cairn_code reasons_text(const json_t *reasons, char *ret, size_t capacity,
                                    struct cairn_error *err) {
    *ret = '\0';
    CAIRN_JSON_EACH(json, reasons) {
        char one[400];
        CLI_READ(retention_reason, reason, json, err);
        cli_format(strcmp(reason.rule, "best")
                       ? "{rule}[ {place}/{of}][ by {metric}][ {labels}]"
                       : "{rule}[ {place}/{of}][ by {metric} ({value})][ {labels}]",
                   json, one, sizeof one);
        cli_add(ret, capacity, ", ", "%s", one);
    }
    cli_clean(ret);
    return CAIRN_OK;
}

static enum cairn_code print_version(const json_t *json, struct cairn_error *err) {
    char why[600];
    CLI_READ(retention_version, version, json, err);
    CAIRN_TRY(reasons_text(version.reasons, why, sizeof why, err));
    bool removed = !strcmp(version.fate, "remove"), kept = !strcmp(version.fate, "keep");
    printf("%-7s %9" PRIu64 "  %10s  %s%s\n",
           removed ? "REMOVE"
           : kept  ? "KEEP"
                   : "SKIP",
           version.step, cli_size(version.bytes).text, removed ? "-" : why,
           version.version || version.committed_at == NULL ? "" : " (assumed)");
    return CAIRN_OK;
}

/* Prints policy, checkpoints and sums; tail ends the last line. */
static enum cairn_code print_plan(const struct cli_ref *run, const json_t *plan, const char *tail,
                                  struct cairn_error *err) {
    char grace[24];
    CLI_READ(retention_plan, row, plan, err);
    printf("Policy (run %s/%s, %" PRIu64 " committed): %s\n", run->name.project, run->name.run,
           row.keep + row.remove, row.text);
    CAIRN_JSON_EACH(version, row.versions) CAIRN_TRY(print_version(version, err));
    cairn_duration_text(row.trash_grace_ms, grace);
    printf("keep %" PRIu64 ", remove %" PRIu64 ": %s after %s in the trash (undo: cairn undelete)",
           row.keep, row.remove, cli_size(row.remove_bytes).text, grace);
    printf("%s%s\n", *tail ? "; " : "", tail);
    return cli_flush(err);
}

#define SAVES_MAX 10000
#define RUNS_LOOKED_AT_MAX 200 /* before a policy of many runs is set */

static const struct cli_flag policy_flags[] = {
    KEEP_FLAGS,
    {"keep-all", 0, CLI_SWITCH, CLI_AT(keep_all), 0, NULL,
     "Of set: no rule, so nothing goes, whatever the project says."},
    {"yes", 'y', CLI_SWITCH, CLI_AT(yes), 0, NULL, "Of set: do not ask."},
    {"copies", 0, CLI_TEXTS, CLI_AT(copies), 0, "STORE:RULE",
     "Of set: what lies in which store: archive:every:1000,main:last:3."},
    {"partner-copies", 0, CLI_TEXT, CLI_AT(partner_copies), 0, "0|1",
     "Of set: 1, what a node stages is also kept by another one until the store has it."},
    {"saves", 0, CLI_COUNT, CLI_AT(saves), 0, "N", "Of test: as if N more had been saved."},
    {"every", 0, CLI_COUNT, CLI_AT(steps), 0, "STEPS", "Of test: one each so many steps."},
    {"after", 0, CLI_TEXT, CLI_AT(after), 0, "TIME", "Of test: one each so much time; default 1h."},
};

/* "": the server's, "llm": a project's, "llm/7b": a run's. */
static enum cairn_code policy_path(const char *target, struct cairn_buf *ret,
                                   struct cairn_error *err) {
    struct cli_ref run;
    if (!target) return cairn_buf_append_text(ret, "/v1/retention", err);
    if (strchr(target, '/')) {
        CAIRN_TRY(cli_ref_run("policy", target, &run, err));
        return cli_path(&run, "/retention", ret, err);
    }
    if (!cairn_name_valid(cairn_view_of(target)))
        return cairn_fail(err, CAIRN_INVALID,
                          "\"%s\": name a project or project/run; "
                          "without one it is the server's policy",
                          target);
    return cairn_buf_printf(ret, err, "/v1/projects/%s/retention", target);
}

static enum cairn_code ask_policy(const struct cli *cli, const char *method, const json_t *body,
                                  struct cairn_error *err) {
    CAIRN_AUTO_PTR(rest) rest = NULL;
    CAIRN_AUTO_JSON json_t *reply = NULL;
    CAIRN_AUTO(buf) path = {0};
    CAIRN_TRY(policy_path(cli->arguments[1], &path, err));
    CAIRN_TRY(cli_connect(cli, &rest, err));
    CAIRN_TRY(cairn_rest_call(rest, method, path.data, body, 0, &reply, err));
    CLI_READ(retention, row, reply, err);
    if (cli->output != CLI_TABLE) return cli_print_reply(cli, reply, err);
    const char *where = row.from ? row.from : "nowhere";
    printf("%s (of the %s)\n", row.text, row.from ? where : "server: there is none");
    return cli_flush(err);
}

/* The run's newest step; assumed saves follow it. */
static enum cairn_code newest_step(const struct cli *cli, const struct cli_ref *run, uint64_t *ret,
                                   struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    struct cairn_msg_run_row row = {0};
    struct cairn_msg_run_latest latest = {0};
    CAIRN_TRY(cli_get(cli, run, "", CAIRN_MESSAGE_run_row, &reply, &row, err));
    if (row.latest) CAIRN_TRY(cli_reply_read(CAIRN_MESSAGE_run_latest, row.latest, &latest, err));
    *ret = latest.step;
    return CAIRN_OK;
}

/* The plan after one more save, as the next commit would apply it. */
static enum cairn_code plan_next(const struct cli *cli, const struct cli_ref *run, uint64_t step,
                                 json_t *policy, json_t **ret_plan, struct cairn_error *err) {
    json_t *body = json_pack("{s:O, s:[{s:I, s:i}]}", "policy", policy, "assume", "step",
                             (json_int_t)(step + 1), "after_s", 1);
    CAIRN_TRY(preview(cli, run, body, ret_plan, err));
    return check_metrics(cli, run, *ret_plan, err);
}

static enum cairn_code show_next(const struct cli *cli, json_t *policy, uint64_t *ret_remove,
                                 struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *plan = NULL;
    struct cli_ref run;
    uint64_t step = 0;
    CAIRN_TRY(cli_ref_run("policy", cli->arguments[1], &run, err));
    CAIRN_TRY(newest_step(cli, &run, &step, err));
    CAIRN_TRY(plan_next(cli, &run, step, policy, &plan, err));
    CLI_READ(retention_plan, row, plan, err);
    *ret_remove = row.remove;
    if (!row.remove || cli->output != CLI_TABLE) return CAIRN_OK;
    return print_plan(&run, plan, "as of the next commit", err);
}

/* ---- policies of projects and of the server: the runs that they would affect ---- */

struct runs {
    uint64_t remove;
    bool fits;     /* some run has the rules' metrics */
    json_t *known; /* names of metrics of the runs without them; owned; NULL: there is none */
};

static void release_runs(struct runs *runs) {
    json_decref(runs->known);
}

/* Precedence: the run's policy, its project's, the server's. */
static enum cairn_code is_meant(const struct cli *cli, const struct cli_ref *run, bool *ret,
                                struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    struct cairn_msg_retention row = {0};
    bool of_project = cli->arguments[1] != NULL;
    CAIRN_TRY(cli_get(cli, run, "/retention", CAIRN_MESSAGE_retention, &reply, &row, err));
    const char *from = row.from ? row.from : "server";
    *ret = strcmp(from, "run") != 0 && (of_project || strcmp(from, "project") != 0);
    return CAIRN_OK;
}

static enum cairn_code look_at_run(const struct cli *cli, const json_t *item, json_t *policy,
                                   struct runs *runs, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *plan = NULL;
    struct cairn_msg_run_latest latest = {0};
    struct cairn_error why = {0};
    struct cli_ref run = {0};
    bool meant = false;
    CLI_READ(run_row, row, item, err);
    if (!row.latest) return CAIRN_OK;
    CAIRN_TRY(cli_reply_read(CAIRN_MESSAGE_run_latest, row.latest, &latest, err));
    cairn_text_copy(run.name.project, sizeof run.name.project, row.project);
    cairn_text_copy(run.name.run, sizeof run.name.run, row.run);
    CAIRN_TRY(is_meant(cli, &run, &meant, err));
    if (!meant) return CAIRN_OK;
    enum cairn_code code = plan_next(cli, &run, latest.step, policy, &plan, &why);
    if (code == CAIRN_INVALID && plan) { /* another run may have the metric */
        if (!runs->known) runs->known = json_object();
        return add_metrics(cli, &run, runs->known, err);
    }
    if (code) return cairn_pass(err, code, &why);
    runs->fits = true;
    CLI_READ(retention_plan, told, plan, err);
    runs->remove += told.remove;
    if (told.remove && cli->output == CLI_TABLE)
        printf("%s/%s: %llu of %s would go into the trash with its next commit\n", row.project,
               row.run, (unsigned long long)told.remove,
               cairn_counted(told.keep + told.remove, "checkpoint").text);
    return CAIRN_OK;
}

/* Each rule's metric may be that of another run. */
static enum cairn_code check_known(const char *project, const json_t *policy, const json_t *known,
                                   struct cairn_error *err) {
    char of[CAIRN_NAME_BYTES_MAX + 16] = "any run";
    if (project) snprintf(of, sizeof of, "any run of %s", project);
    CAIRN_JSON_EACH(best, json_object_get(json_object_get(policy, "keep"), "best")) {
        const char *metric = json_string_value(json_object_get(best, "metric"));
        if (metric && !json_object_get(known, metric)) return no_metric(of, metric, known, err);
    }
    return CAIRN_OK;
}

static enum cairn_code show_runs(const struct cli *cli, json_t *policy, uint64_t *ret_remove,
                                 struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *items = json_array();
    CAIRN_AUTO(buf) path = {0};
    CAIRN_RELEASED(release_runs) struct runs runs = {0};
    bool more = false;
    const char *project = cli->arguments[1];
    if (project && !cairn_name_valid(cairn_view_of(project)))
        return policy_path(project, &path, err);
    CAIRN_TRY(cairn_buf_printf(&path, err, "/runs%s%s", project ? "?project=" : "",
                               project ? project : ""));
    CAIRN_TRY(cli_list(cli, NULL, path.data, RUNS_LOOKED_AT_MAX, items, &more, err));
    CAIRN_JSON_EACH(item, items) CAIRN_TRY(look_at_run(cli, item, policy, &runs, err));
    if (runs.known && !runs.fits) CAIRN_TRY(check_known(project, policy, runs.known, err));
    if (more)
        cli_note("note: only the first %d runs were looked at; `cairn policy test RUN` shows "
                 "what it means for another one",
                 RUNS_LOOKED_AT_MAX);
    *ret_remove = runs.remove;
    return CAIRN_OK;
}

static enum cairn_code confirm_policy(const struct cli *cli, uint64_t remove,
                                      struct cairn_error *err) {
    const char *target = cli->arguments[1];
    if (!remove || cli->yes || !isatty(STDIN_FILENO)) return CAIRN_OK;
    fprintf(stderr, "%s would go into the trash with the next commit%s. Set it? [y/N] ",
            cairn_counted(remove, "checkpoint").text,
            target && strchr(target, '/') ? "" : " of each run");
    if (cli_says_yes()) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CANCELLED, "the policy of %s was not changed",
                      target ? target : "the server");
}

static enum cairn_code set_policy(const struct cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *policy = NULL;
    CAIRN_TRY(policy_of_flags(cli, &policy, err));
    if (!policy && !cli->keep_all)
        return cairn_fail(err, CAIRN_INVALID,
                          "name what is kept, as --keep-last 3; --keep-all keeps everything, and "
                          "`cairn policy unset` leaves it to the project or the server");
    if (policy && cli->keep_all)
        return cairn_fail(err, CAIRN_INVALID, "--keep-all goes with no other rule");
    if (!policy) policy = json_pack("{s:{}}", "keep");
    uint64_t remove = 0;
    if (cli->arguments[1] && strchr(cli->arguments[1], '/'))
        CAIRN_TRY(show_next(cli, policy, &remove, err));
    else
        CAIRN_TRY(show_runs(cli, policy, &remove, err));
    CAIRN_TRY(confirm_policy(cli, remove, err));
    return ask_policy(cli, "PUT", policy, err);
}

static enum cairn_code test_policy(const struct cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *policy = NULL, *assume = json_array(), *plan = NULL;
    struct cli_ref run;
    uint64_t step = 0, after_ms = 0;
    if (!cli->arguments[1])
        return cairn_fail(err, CAIRN_INVALID, "name the run: cairn policy test project/run");
    CAIRN_TRY(cli_ref_run("policy", cli->arguments[1], &run, err));
    CAIRN_TRY(policy_of_flags(cli, &policy, err));
    if (cli->saves > SAVES_MAX)
        return cairn_fail(err, CAIRN_INVALID, "--saves: at most %d", SAVES_MAX);
    if (cli->saves) CAIRN_TRY(newest_step(cli, &run, &step, err));
    enum cairn_code code =
        cairn_parse_duration(cairn_view_of(cli->after ? cli->after : "1h"), &after_ms, err);
    if (code) return cairn_within(err, code, "--after");
    if (after_ms % 1000) return cairn_fail(err, CAIRN_INVALID, "--after: wanted whole seconds");
    for (uint64_t i = 1; i <= cli->saves; i++) {
        json_int_t at = (json_int_t)(step + i * (cli->steps ? cli->steps : 1));
        if (json_array_append_new(assume, json_pack("{s:I, s:I}", "step", at, "after_s",
                                                    (json_int_t)(after_ms / 1000))))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for assumed saves");
    }
    json_t *body = json_pack("{s:O*, s:O}", "policy", policy, "assume", assume);
    CAIRN_TRY(preview(cli, &run, body, &plan, err));
    if (cli->output != CLI_TABLE) return cli_print_reply(cli, plan, err);
    return print_plan(&run, plan, "nothing was changed", err);
}

static enum cairn_code run_policy(struct cli *cli, struct cairn_error *err) {
    const char *what = cli->arguments[0];
    if (!strcmp(what, "get")) return ask_policy(cli, "GET", NULL, err);
    if (!strcmp(what, "set")) return set_policy(cli, err);
    if (!strcmp(what, "unset")) return ask_policy(cli, "DELETE", NULL, err);
    if (!strcmp(what, "test")) return test_policy(cli, err);
    return cairn_fail(err, CAIRN_INVALID, "cairn policy get, set, unset or test, not \"%s\"", what);
}

const struct cli_verb cli_verb_policy = {
    CLI_VERB(policy),
    .chapter = "Say what stays",
    .synopsis = "cairn policy get|set|unset|test [flags] [project[/run]]",
    .purpose = "Show or set the retention policy of a run, a project or the server.",
    .examples = "  cairn policy set llm/7b --keep-last 3 --keep-every-steps 1000\n"
                "  cairn policy test llm/7b --keep-daily 7 --saves 100 --every 50 --after 20min\n"
                "  cairn policy get llm/7b\n",
    CLI_TAKES(policy_flags, 1, 2),
};

/* forget: shows what the policy would remove, run by run; if confirmed, trashes exactly that. */

#define RUNS_FORGOTTEN_MAX 10000 /* of whole projects */

static const struct cli_flag forget_flags[] = {
    KEEP_FLAGS,
    {"dry-run", 'n', CLI_SWITCH, CLI_AT(dry_run), 0, NULL, "Show what would go; change nothing."},
    {"allow-empty", 0, CLI_SWITCH, CLI_AT(allow_empty), 0, NULL,
     "Not even the newest is kept; no rule keeps nothing."},
    {"yes", 'y', CLI_SWITCH, CLI_AT(yes), 0, NULL, "Do not ask."},
};

static json_t *body_of(const struct cli *cli, json_t *policy, const char *plan_etag) {
    return json_pack("{s:b, s:O*, s:s*}", "allow_empty", cli->allow_empty, "policy", policy,
                     "plan_etag", plan_etag);
}

struct forgotten {
    struct cli_ref run;
    json_t *plan;
    struct cairn_msg_retention_plan row; /* points into plan */
    uint64_t removed;
};
struct forgetting {
    struct cli *cli;
    json_t *policy; /* NULL: each run's own */
    struct forgotten *items;
    size_t count, capacity;
    uint64_t remove, removed;
};

static enum cairn_code add_run(struct forgetting *all, const char *text, struct cairn_error *err) {
    CAIRN_TRY(
        CAIRN_ARRAY_ROOM(all->items, all->count, all->capacity, RUNS_FORGOTTEN_MAX, "runs", err));
    struct forgotten *one = &all->items[all->count];
    *one = (struct forgotten){0};
    CAIRN_TRY(cli_ref_run("forget", text, &one->run, err));
    for (size_t i = 0; i < all->count; i++) { /* skips duplicates */
        const struct cairn_run_name *name = &all->items[i].run.name;
        if (!strcmp(name->project, one->run.name.project) && !strcmp(name->run, one->run.name.run))
            return CAIRN_OK;
    }
    all->count++;
    return CAIRN_OK;
}

static enum cairn_code add_project(struct forgetting *all, const char *project,
                                   struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *items = json_array();
    char path[CAIRN_NAME_BYTES_MAX + 32], text[2 * CAIRN_NAME_BYTES_MAX + 2];
    bool more = false;
    if (!cairn_name_valid(cairn_view_of(project)))
        return cairn_fail(err, CAIRN_INVALID, "\"%.64s\" is neither project/run nor a project",
                          project);
    snprintf(path, sizeof path, "/runs?project=%s", project);
    CAIRN_TRY(cli_list(all->cli, NULL, path, RUNS_FORGOTTEN_MAX, items, &more, err));
    if (more || !json_array_size(items))
        return cairn_fail(err, more ? CAIRN_TOO_LARGE : CAIRN_NOT_FOUND,
                          more ? "%s has more than 10000 runs: name some" : "%s has no run",
                          project);
    CAIRN_JSON_EACH(item, items) {
        CLI_READ(run_row, row, item, err);
        snprintf(text, sizeof text, "%s/%s", row.project, row.run);
        CAIRN_TRY(add_run(all, text, err));
    }
    return CAIRN_OK;
}

static enum cairn_code look_at(struct forgetting *all, struct forgotten *one,
                               struct cairn_error *err) {
    json_t *body = body_of(all->cli, all->policy, NULL);
    CAIRN_TRY(preview(all->cli, &one->run, body, &one->plan, err));
    CAIRN_TRY(cli_reply_read(CAIRN_MESSAGE_retention_plan, one->plan, &one->row, err));
    all->remove += one->row.remove;
    return all->policy ? check_metrics(all->cli, &one->run, one->plan, err) : CAIRN_OK;
}

static bool has_rule(const struct forgetting *all, const struct forgotten *one) {
    const json_t *keep = json_object_get(json_object_get(one->plan, "policy"), "keep");
    return all->cli->allow_empty || json_object_size(keep);
}

/* A run without a rule loses nothing: an error if it is the only run, else a note. */
static enum cairn_code check_ruled(const struct forgetting *all, struct cairn_error *err) {
    const struct forgotten *none = NULL;
    size_t ruled = 0;
    for (size_t i = 0; i < all->count; i++) {
        const struct forgotten *one = &all->items[i];
        ruled += has_rule(all, one);
        if (has_rule(all, one)) continue;
        none = one;
        if (all->count > 1)
            cli_note("%s/%s has no policy: nothing of it goes", one->run.name.project,
                     one->run.name.run);
    }
    if (ruled || !none) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CONFLICT,
                      "%s has no policy (%s): name rules, as --keep-last 3, or set one with cairn "
                      "policy set",
                      all->cli->arguments[0], none->row.text);
}

static enum cairn_code confirm_forget(const struct forgetting *all, struct cairn_error *err) {
    char of[48] = "";
    const struct cairn_counted what = cairn_counted(all->remove, "checkpoint");
    if (all->cli->yes) return CAIRN_OK;
    if (all->count > 1) snprintf(of, sizeof of, " of %zu runs", all->count);
    if (!isatty(STDIN_FILENO))
        return cairn_fail(err, CAIRN_INVALID,
                          "%s%s would go into the trash: say --yes, or --dry-run", what.text, of);
    fprintf(stderr, "%s%s into the trash? [y/N] ", what.text, of);
    if (cli_says_yes()) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CANCELLED, "nothing of %s was changed", all->cli->arguments[0]);
}

/* The server removes a limited number per call; the next plan has a new ETag. */
static enum cairn_code apply_plan(const struct cli *cli, const struct cli_ref *run, json_t *policy,
                                  const char *plan_etag, uint64_t *ret_removed,
                                  struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    for (uint64_t left = 1; left;) {
        CAIRN_AUTO_JSON json_t *body = body_of(cli, policy, plan_etag);
        struct cli_call call = {
            .method = "POST", .tail = "/retention/apply", .body = body, .timeout_ms = 600000};
        json_t *answer = NULL;
        CAIRN_TRY(cli_call(cli, run, call, &answer, err));
        json_decref(reply);
        reply = answer;
        CLI_READ(retention_applied, applied, reply, err);
        *ret_removed += applied.removed;
        left = applied.removed ? applied.left : 0;
        plan_etag = applied.plan_etag;
    }
    return CAIRN_OK;
}

/* A run whose plan has changed is skipped, and the others continue. */
static enum cairn_code apply_all(struct forgetting *all, struct cairn_error *err) {
    struct cairn_error first = {0};
    size_t failed = 0;
    for (size_t i = 0; i < all->count; i++) {
        struct forgotten *one = &all->items[i];
        struct cairn_error why = {0};
        if (!one->row.remove) continue;
        enum cairn_code code =
            apply_plan(all->cli, &one->run, all->policy, one->row.plan_etag, &one->removed, &why);
        all->removed += one->removed;
        if (code && all->count == 1) *err = why;
        if (code && all->count == 1) return code;
        if (!code) continue;
        cli_note("%s/%s: %s", one->run.name.project, one->run.name.run, why.message);
        if (!failed++) first = why;
    }
    if (!failed) return CAIRN_OK;
    return cairn_fail(err, first.code, "of %zu of %zu runs not all went that was shown", failed,
                      all->count);
}

static enum cairn_code show_json(const struct forgetting *all, struct cairn_error *err) {
    bool pretty = all->cli->output == CLI_JSON, several = all->count > 1;
    CAIRN_AUTO_JSON json_t *list = json_array();
    bool whole = list != NULL;
    for (size_t i = 0; whole && i < all->count; i++) {
        const struct forgotten *one = &all->items[i];
        json_t *removed = json_integer((json_int_t)one->removed);
        whole &= !json_object_set_new(one->plan, "removed", removed);
        if (several)
            whole &=
                !json_object_set_new(one->plan, "project", json_string(one->run.name.project)) &&
                !json_object_set_new(one->plan, "run", json_string(one->run.name.run));
        whole &= !json_array_append(list, one->plan);
    }
    if (!whole) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    if (several && pretty) return cli_print_json(list, true, err);
    for (size_t i = 0; i < all->count; i++)
        CAIRN_TRY(cli_print_json(all->items[i].plan, pretty, err));
    return CAIRN_OK;
}

static enum cairn_code forget(struct forgetting *all, struct cairn_error *err) {
    const struct cli *cli = all->cli;
    bool is_table = cli->output == CLI_TABLE;
    enum cairn_code code = CAIRN_OK;
    for (size_t i = 0; i < all->cli->argument_count; i++) {
        const char *text = all->cli->arguments[i];
        CAIRN_TRY(strchr(text, '/') ? add_run(all, text, err) : add_project(all, text, err));
    }
    for (size_t i = 0; i < all->count; i++) CAIRN_TRY(look_at(all, &all->items[i], err));
    CAIRN_TRY(check_ruled(all, err));
    const char *end = cli->dry_run ? "nothing was changed (--dry-run)" : "";
    for (size_t i = 0; is_table && i < all->count; i++)
        CAIRN_TRY(print_plan(&all->items[i].run, all->items[i].plan, end, err));
    if (all->remove && !cli->dry_run) CAIRN_TRY(confirm_forget(all, err));
    if (all->remove && !cli->dry_run) code = apply_all(all, err);
    if (code && all->count == 1) return code;
    if (!is_table) CAIRN_TRY(show_json(all, code ? NULL : err));
    if (is_table && !cli->dry_run) printf("%" PRIu64 " in the trash\n", all->removed);
    if (fflush(stdout) && !code) return cairn_fail_errno(err, "standard output");
    return code;
}

static enum cairn_code run_forget(struct cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *policy = NULL;
    CAIRN_TRY(policy_of_flags(cli, &policy, err));
    struct forgetting all = {.cli = cli, .policy = policy};
    enum cairn_code code = forget(&all, err);
    for (size_t i = 0; i < all.count; i++) json_decref(all.items[i].plan);
    free(all.items);
    return code;
}

const struct cli_verb cli_verb_forget = {
    CLI_VERB(forget),
    .synopsis = "cairn forget [flags] project/run|project ...",
    .purpose = "Show which checkpoints of runs a policy would remove, and remove them.",
    .examples = "  cairn forget llm/7b --dry-run\n"
                "  cairn forget llm/7b --keep-last 3 --keep-every-steps 1000\n"
                "  cairn forget llm vision/vit --keep-last 1 --yes\n",
    CLI_TAKES(forget_flags, 1, CLI_ARGUMENTS_MAX),
};
