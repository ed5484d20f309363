/* SPDX-License-Identifier: Apache-2.0 */
/* cairn resume: the step that a restarted job goes on from. */
#include <stdio.h>

#include "cli/shell/output.h"

static const struct cairn_cli_flag resume_flags[] = {
    {"or-none", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(or_none), 0, NULL,
     "Status 0 and no output for a run of a known project that has no checkpoint yet."},
};

/* A run without a checkpoint: a first run where the project is known, else a mistyped name. */
static enum cairn_code print_none(const struct cairn_cli *cli, const struct cairn_cli_ref *asked,
                                  const struct cairn_error *why, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *runs = json_array();
    CAIRN_AUTO(buf) path = {0};
    CAIRN_TRY(cairn_buf_printf(&path, err, "/v1/runs?project=%s", asked->name.project));
    CAIRN_TRY(cairn_cli_list(cli, path.data, 1, runs, NULL, err));
    if (!json_array_size(runs))
        return cairn_fail(err, CAIRN_NOT_FOUND, "the server knows no project %s",
                          asked->name.project);
    if (!cli->or_none) {
        if (err) *err = *why;
        return CAIRN_NOT_FOUND;
    }
    if (cli->output == CAIRN_CLI_JSON || cli->output == CAIRN_CLI_JSONL) puts("null");
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

static enum cairn_code run_resume(struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_msg_version_row version = {0};
    struct cairn_cli_ref ref;
    struct cairn_error why = {0};
    CAIRN_TRY(cairn_cli_ref_latest(cli, &ref, err));
    if (strcmp(ref.version, "latest") != 0)
        return cairn_cli_ref_run("resume", cli->arguments[0], &ref, err);
    enum cairn_code code = cairn_cli_call(cli, &ref, (struct cairn_cli_call){0}, &json, &why);
    if (code == CAIRN_NOT_FOUND) return print_none(cli, &ref, &why, err);
    if (code && err) *err = why;
    CAIRN_TRY(code);
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_version_row, json, &version, err));
    char damage[200];
    cairn_cli_damage_words(version.copies, damage, sizeof damage);
    if (damage[0])
        cairn_cli_note("cairn: note: step %llu is %s: cairn verify %s/%s@%llu --repair",
                       (unsigned long long)version.step, damage, version.project, version.run,
                       (unsigned long long)version.step);
    if (cli->output != CAIRN_CLI_TABLE) return cairn_cli_print_version(cli, json, err);
    printf("%llu\n", (unsigned long long)version.step);
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

const struct cairn_cli_verb cairn_cli_verb_resume = {
    .name = "resume",
    .synopsis = "cairn resume [flags] project/run",
    .purpose = "Print the step that a restarted job would go on from.",
    .examples = "  cairn resume llm/7b\n  cairn resume llm/7b --output name\n"
                "  STEP=$(cairn resume llm/7b --or-none) || exit   (empty: a first run)\n",
    .flags = resume_flags,
    .flag_count = CAIRN_COUNT(resume_flags),
    .arguments_min = 1,
    .arguments_max = 1,
    .run = run_resume,
};
