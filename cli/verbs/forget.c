/* SPDX-License-Identifier: Apache-2.0 */
/* cairn forget: what a policy removes of a run is shown first, and that and nothing else goes into
 * the trash when somebody says so. */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/keep.h"
#include "cli/output.h"
#include "common/text.h"

static const struct cairn_cli_flag flags[] = {
    CAIRN_CLI_KEEP_FLAGS,
    {"dry-run", 'n', CAIRN_CLI_SWITCH, CAIRN_CLI_AT(dry_run), 0, NULL,
     "Show what would go; change nothing."},
    {"allow-empty", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(allow_empty), 0, NULL,
     "Not even the newest is kept; no rule keeps nothing."},
    {"yes", 'y', CAIRN_CLI_SWITCH, CAIRN_CLI_AT(yes), 0, NULL, "Do not ask."},
};

static json_t *body_of(const struct cairn_cli *cli, json_t *policy, const char *plan_etag) {
    return json_pack("{s:b, s:O*, s:s*}", "allow_empty", cli->allow_empty, "policy", policy,
                     "plan_etag", plan_etag);
}

/* A run without a rule loses nothing, which is not what was asked for. */
static enum cairn_code judge(const struct cairn_cli *cli,
                             const struct cairn_msg_retention_plan *plan, const json_t *json,
                             struct cairn_error *err) {
    const json_t *keep = json_object_get(json_object_get(json, "policy"), "keep");
    if (cli->allow_empty || json_object_size(keep)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CONFLICT,
                      "%s has no policy (%s): name rules, as --keep-last 3, or set one with cairn "
                      "policy set",
                      cli->arguments[0], plan->text);
}

static enum cairn_code confirm(const struct cairn_cli *cli,
                               const struct cairn_msg_retention_plan *plan,
                               struct cairn_error *err) {
    char answer[8] = "";
    if (cli->yes) return CAIRN_OK;
    if (!isatty(STDIN_FILENO))
        return cairn_fail(err, CAIRN_INVALID,
                          "%" PRIu64
                          " checkpoints would go into the trash: say --yes, or --dry-run",
                          plan->remove);
    fprintf(stderr, "%" PRIu64 " checkpoints into the trash? [y/N] ", plan->remove);
    if (fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y'))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_CANCELLED, "nothing of %s was changed", cli->arguments[0]);
}

/* The server removes at most so many a call; the rest has a tag of its own. */
static enum cairn_code apply(const struct cairn_cli *cli, const struct cairn_cli_ref *run,
                             json_t *policy, const char *plan_etag, uint64_t *ret_removed,
                             struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    for (uint64_t left = 1; left;) {
        struct cairn_msg_retention_applied applied = {0};
        CAIRN_AUTO_JSON json_t *body = body_of(cli, policy, plan_etag);
        struct cairn_cli_call call = {
            .method = "POST", .tail = "/retention/apply", .body = body, .timeout_ms = 600000};
        json_t *answer = NULL;
        CAIRN_TRY(cairn_cli_call(cli, run, call, &answer, err));
        json_decref(reply);
        reply = answer;
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_retention_applied, reply, &applied, err));
        *ret_removed += applied.removed;
        left = applied.removed ? applied.left : 0;
        plan_etag = applied.plan_etag;
    }
    return CAIRN_OK;
}

static enum cairn_code show(const struct cairn_cli *cli, const struct cairn_cli_ref *run,
                            json_t *plan, uint64_t removed, const char *tail,
                            struct cairn_error *err) {
    if (cli->output == CAIRN_CLI_TABLE) return cairn_cli_keep_print(run, plan, tail, err);
    if (json_object_set_new(plan, "removed", json_integer((json_int_t)removed)))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    return cairn_cli_print_json(plan, cli->output == CAIRN_CLI_JSON, err);
}

static enum cairn_code run_forget(struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *policy = NULL, *plan = NULL;
    struct cairn_msg_retention_plan row = {0};
    struct cairn_cli_ref run;
    uint64_t removed = 0;
    CAIRN_TRY(cairn_cli_ref_run("forget", cli->arguments[0], &run, err));
    CAIRN_TRY(cairn_cli_keep_policy(cli, &policy, err));
    CAIRN_TRY(cairn_cli_keep_preview(cli, &run, body_of(cli, policy, NULL), &plan, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_retention_plan, plan, &row, err));
    CAIRN_TRY(judge(cli, &row, plan, err));
    bool is_table = cli->output == CAIRN_CLI_TABLE;
    if (cli->dry_run) return show(cli, &run, plan, 0, "nothing was changed (--dry-run)", err);
    if (is_table) CAIRN_TRY(show(cli, &run, plan, 0, "", err));
    if (row.remove) {
        CAIRN_TRY(confirm(cli, &row, err));
        CAIRN_TRY(apply(cli, &run, policy, row.plan_etag, &removed, err));
    }
    if (!is_table) return show(cli, &run, plan, removed, "", err);
    printf("%" PRIu64 " in the trash\n", removed);
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

const struct cairn_cli_verb cairn_cli_verb_forget = {
    .name = "forget",
    .synopsis = "cairn forget [flags] project/run",
    .purpose = "Show what a policy removes of a run, and remove that.",
    .examples = "  cairn forget llm/7b --dry-run\n"
                "  cairn forget llm/7b --keep-last 3 --keep-every-steps 1000\n"
                "  cairn forget llm/7b --keep-best 1:eval_loss:min --keep-within 6h --yes\n",
    .flags = flags,
    .flag_count = CAIRN_COUNT(flags),
    .arguments_min = 1,
    .arguments_max = 1,
    .run = run_forget,
};
