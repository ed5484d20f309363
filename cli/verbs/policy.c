/* SPDX-License-Identifier: Apache-2.0 */
/* cairn policy get|set|unset|test: the retention policy of a run, of a project, of the server. */
#include <stdio.h>
#include <unistd.h>

#include "cli/shell/options.h"
#include "cli/shell/output.h"
#include "cli/verbs/keep.h"
#include "common/encode.h"
#include "common/text.h"

#define SAVES_MAX 10000
#define RUNS_LOOKED_AT_MAX 200 /* that are looked at before a policy of many is set */

static const struct cairn_cli_flag policy_flags[] = {
    CAIRN_CLI_KEEP_FLAGS,
    {"keep-all", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(keep_all), 0, NULL,
     "Of set: no rule, so nothing goes, whatever the project says."},
    {"yes", 'y', CAIRN_CLI_SWITCH, CAIRN_CLI_AT(yes), 0, NULL, "Of set: do not ask."},
    {"copies", 0, CAIRN_CLI_TEXTS, CAIRN_CLI_AT(copies), 0, "STORE:RULE",
     "Of set: what lies in which store: archive:every:1000,main:last:3."},
    {"partner-copies", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(partner_copies), 0, "0|1",
     "Of set: 1, what a node stages is also kept by another one until the store has it."},
    {"saves", 0, CAIRN_CLI_COUNT, CAIRN_CLI_AT(saves), 0, "N",
     "Of test: as if N more had been saved."},
    {"every", 0, CAIRN_CLI_COUNT, CAIRN_CLI_AT(steps), 0, "STEPS",
     "Of test: one each so many steps."},
    {"after", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(after), 0, "TIME",
     "Of test: one each so much time; default 1h."},
};

/* "" the server's, "llm" a project's, "llm/7b" a run's. */
static enum cairn_code policy_path(const char *target, struct cairn_buf *ret,
                                   struct cairn_error *err) {
    struct cairn_cli_ref run;
    if (!target) return cairn_buf_append_text(ret, "/v1/retention", err);
    if (strchr(target, '/')) {
        CAIRN_TRY(cairn_cli_ref_run("policy", target, &run, err));
        return cairn_cli_path(&run, "/retention", ret, err);
    }
    if (!cairn_name_valid(cairn_view_of(target)))
        return cairn_fail(err, CAIRN_INVALID,
                          "\"%s\": name a project or project/run; "
                          "without one it is the server's policy",
                          target);
    return cairn_buf_printf(ret, err, "/v1/projects/%s/retention", target);
}

static enum cairn_code ask_policy(const struct cairn_cli *cli, const char *method,
                                  const json_t *body, struct cairn_error *err) {
    CAIRN_AUTO_PTR(rest) rest = NULL;
    CAIRN_AUTO_JSON json_t *reply = NULL;
    CAIRN_AUTO(buf) path = {0};
    struct cairn_msg_retention row = {0};
    CAIRN_TRY(policy_path(cli->arguments[1], &path, err));
    CAIRN_TRY(cairn_cli_connect(cli, &rest, err));
    CAIRN_TRY(cairn_rest_call(rest, method, path.data, body, 0, &reply, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_retention, reply, &row, err));
    if (cli->output != CAIRN_CLI_TABLE)
        return cairn_cli_print_json(reply, cli->output == CAIRN_CLI_JSON, err);
    const char *where = row.from ? row.from : "nowhere";
    printf("%s (of the %s)\n", row.text, row.from ? where : "server: there is none");
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

/* The newest step of the run, from which the assumed saves go on. */
static enum cairn_code newest_step(const struct cairn_cli *cli, const struct cairn_cli_ref *run,
                                   uint64_t *ret, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    struct cairn_msg_run_row row = {0};
    struct cairn_msg_run_latest latest = {0};
    CAIRN_TRY(cairn_cli_call(cli, run, (struct cairn_cli_call){0}, &reply, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_run_row, reply, &row, err));
    if (row.latest)
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_run_latest, row.latest, &latest, err));
    *ret = latest.step;
    return CAIRN_OK;
}

/* What the run's next commit would remove: with one more save behind its newest step. */
static enum cairn_code plan_next(const struct cairn_cli *cli, const struct cairn_cli_ref *run,
                                 uint64_t step, json_t *policy, json_t **ret_plan,
                                 struct cairn_error *err) {
    json_t *body = json_pack("{s:O, s:[{s:I, s:i}]}", "policy", policy, "assume", "step",
                             (json_int_t)(step + 1), "after_s", 1);
    CAIRN_TRY(cairn_cli_keep_preview(cli, run, body, ret_plan, err));
    return cairn_cli_keep_check(cli, run, *ret_plan, err);
}

static enum cairn_code show_next(const struct cairn_cli *cli, json_t *policy, uint64_t *ret_remove,
                                 struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *plan = NULL;
    struct cairn_cli_ref run;
    struct cairn_msg_retention_plan row = {0};
    uint64_t step = 0;
    CAIRN_TRY(cairn_cli_ref_run("policy", cli->arguments[1], &run, err));
    CAIRN_TRY(newest_step(cli, &run, &step, err));
    CAIRN_TRY(plan_next(cli, &run, step, policy, &plan, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_retention_plan, plan, &row, err));
    *ret_remove = row.remove;
    if (!row.remove || cli->output != CAIRN_CLI_TABLE) return CAIRN_OK;
    return cairn_cli_keep_print(&run, plan, "as of the next commit", err);
}

/* ---- a policy of a project or of the server, and the runs for which it would hold ---- */

struct runs {
    uint64_t remove;
    bool fits;                /* some run has the metrics of its rules */
    struct cairn_error wrong; /* the first one that has not; CAIRN_OK: none */
};

/* A run's own policy comes before its project's, and that before the server's. */
static enum cairn_code is_meant(const struct cairn_cli *cli, const struct cairn_cli_ref *run,
                                bool *ret, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    struct cairn_msg_retention row = {0};
    bool of_project = cli->arguments[1] != NULL;
    CAIRN_TRY(cairn_cli_call(cli, run, (struct cairn_cli_call){.tail = "/retention"}, &reply, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_retention, reply, &row, err));
    const char *from = row.from ? row.from : "server";
    *ret = strcmp(from, "run") != 0 && (of_project || strcmp(from, "project") != 0);
    return CAIRN_OK;
}

static enum cairn_code look_at_run(const struct cairn_cli *cli, const json_t *item, json_t *policy,
                                   struct runs *runs, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *plan = NULL;
    struct cairn_msg_run_row row = {0};
    struct cairn_msg_run_latest latest = {0};
    struct cairn_msg_retention_plan told = {0};
    struct cairn_error why = {0};
    struct cairn_cli_ref run = {0};
    bool meant = false;
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_run_row, item, &row, err));
    if (!row.latest) return CAIRN_OK;
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_run_latest, row.latest, &latest, err));
    cairn_text_copy(run.name.project, sizeof run.name.project, row.project);
    cairn_text_copy(run.name.run, sizeof run.name.run, row.run);
    CAIRN_TRY(is_meant(cli, &run, &meant, err));
    if (!meant) return CAIRN_OK;
    enum cairn_code code = plan_next(cli, &run, latest.step, policy, &plan, &why);
    if (code == CAIRN_INVALID && plan) { /* another run may have the metric */
        if (!runs->wrong.code) runs->wrong = why;
        return CAIRN_OK;
    }
    if (code) {
        *err = why;
        return code;
    }
    runs->fits = true;
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_retention_plan, plan, &told, err));
    runs->remove += told.remove;
    if (told.remove && cli->output == CAIRN_CLI_TABLE)
        printf("%s/%s: %llu of %s would go into the trash with its next commit\n", row.project,
               row.run, (unsigned long long)told.remove,
               cairn_cli_counted(told.keep + told.remove, "checkpoint", "checkpoints").text);
    return CAIRN_OK;
}

static enum cairn_code show_runs(const struct cairn_cli *cli, json_t *policy, uint64_t *ret_remove,
                                 struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *items = json_array();
    CAIRN_AUTO(buf) path = {0};
    struct runs runs = {0};
    bool more = false;
    size_t index = 0;
    json_t *item = NULL;
    const char *project = cli->arguments[1];
    if (project && !cairn_name_valid(cairn_view_of(project)))
        return policy_path(project, &path, err);
    CAIRN_TRY(cairn_buf_printf(&path, err, "/v1/runs%s%s", project ? "?project=" : "",
                               project ? project : ""));
    CAIRN_TRY(cairn_cli_list(cli, path.data, RUNS_LOOKED_AT_MAX, items, &more, err));
    json_array_foreach(items, index, item) CAIRN_TRY(look_at_run(cli, item, policy, &runs, err));
    if (runs.wrong.code && !runs.fits) {
        *err = runs.wrong;
        return runs.wrong.code;
    }
    if (more)
        cairn_cli_note("note: only the first %d runs were looked at; `cairn policy test RUN` shows "
                       "what it means for another one",
                       RUNS_LOOKED_AT_MAX);
    *ret_remove = runs.remove;
    return CAIRN_OK;
}

static enum cairn_code confirm_policy(const struct cairn_cli *cli, uint64_t remove,
                                      struct cairn_error *err) {
    char answer[8] = "";
    const char *target = cli->arguments[1];
    if (!remove || cli->yes || !isatty(STDIN_FILENO)) return CAIRN_OK;
    fprintf(stderr, "%s would go into the trash with the next commit%s. Set it? [y/N] ",
            cairn_cli_counted(remove, "checkpoint", "checkpoints").text,
            target && strchr(target, '/') ? "" : " of each run");
    if (fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y'))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_CANCELLED, "the policy of %s was not changed",
                      target ? target : "the server");
}

static enum cairn_code set_policy(const struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *policy = NULL;
    CAIRN_TRY(cairn_cli_keep_policy(cli, &policy, err));
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

static enum cairn_code test_policy(const struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *policy = NULL, *assume = json_array(), *plan = NULL;
    struct cairn_cli_ref run;
    uint64_t step = 0, after_ms = 0;
    if (!cli->arguments[1])
        return cairn_fail(err, CAIRN_INVALID, "name the run: cairn policy test project/run");
    CAIRN_TRY(cairn_cli_ref_run("policy", cli->arguments[1], &run, err));
    CAIRN_TRY(cairn_cli_keep_policy(cli, &policy, err));
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
    CAIRN_TRY(cairn_cli_keep_preview(cli, &run, body, &plan, err));
    if (cli->output != CAIRN_CLI_TABLE)
        return cairn_cli_print_json(plan, cli->output == CAIRN_CLI_JSON, err);
    return cairn_cli_keep_print(&run, plan, "nothing was changed", err);
}

static enum cairn_code run_policy(struct cairn_cli *cli, struct cairn_error *err) {
    const char *what = cli->arguments[0];
    if (!strcmp(what, "get")) return ask_policy(cli, "GET", NULL, err);
    if (!strcmp(what, "set")) return set_policy(cli, err);
    if (!strcmp(what, "unset")) return ask_policy(cli, "DELETE", NULL, err);
    if (!strcmp(what, "test")) return test_policy(cli, err);
    return cairn_fail(err, CAIRN_INVALID, "cairn policy get, set, unset or test, not \"%s\"", what);
}

const struct cairn_cli_verb cairn_cli_verb_policy = {
    .name = "policy",
    .synopsis = "cairn policy get|set|unset|test [flags] [project[/run]]",
    .purpose = "Which checkpoints a run, a project or the server keeps.",
    .examples = "  cairn policy set llm/7b --keep-last 3 --keep-every-steps 1000\n"
                "  cairn policy test llm/7b --keep-daily 7 --saves 100 --every 50 --after 20min\n"
                "  cairn policy get llm/7b\n",
    .flags = policy_flags,
    .flag_count = CAIRN_COUNT(policy_flags),
    .arguments_min = 1,
    .arguments_max = 2,
    .run = run_policy,
};
