/* SPDX-License-Identifier: Apache-2.0 */
/* cairn abort: a save that is under way, or that will never end, is given up. */
#include <stdio.h>
#include <unistd.h>

#include "cli/shell/output.h"
#include "common/text.h"

static const struct cairn_cli_flag abort_flags[] = {
    {"reason", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(reason), 0, "TEXT",
     "Why; its ranks are told, and it stays with the checkpoint."},
    {"yes", 'y', CAIRN_CLI_SWITCH, CAIRN_CLI_AT(yes), 0, NULL, "Do not ask."},
};

static enum cairn_code confirm_abort(const struct cairn_cli *cli,
                                     const struct cairn_msg_version_row *version,
                                     struct cairn_error *err) {
    char answer[8] = "";
    if (cli->yes || !isatty(STDIN_FILENO)) return CAIRN_OK;
    fprintf(stderr, "%s: step %llu, %llu of %llu ranks sealed. Give it up? [y/N] ",
            version->version, (unsigned long long)version->step,
            (unsigned long long)version->ranks_sealed, (unsigned long long)version->world_size);
    if (fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y'))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_CANCELLED, "%s goes on", cli->arguments[0]);
}

/* By its id: a step may mean another version by then. */
static enum cairn_code run_abort(struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *found = NULL, *body = NULL, *said = NULL;
    struct cairn_msg_version_row version = {0};
    struct cairn_cli_ref ref;
    CAIRN_TRY(cairn_cli_ref_parse(cli->arguments[0], &ref, err));
    if (!ref.version[0])
        return cairn_fail(err, CAIRN_INVALID, "name the save: %s@step", cli->arguments[0]);
    CAIRN_TRY(cairn_cli_call(cli, &ref, (struct cairn_cli_call){0}, &found, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_version_row, found, &version, err));
    if (!strcmp(version.state, "committed"))
        return cairn_fail(err, CAIRN_CONFLICT, "%s is committed; cairn rm puts it into the trash",
                          version.version);
    CAIRN_TRY(confirm_abort(cli, &version, err));
    (void)cairn_text_copy(ref.version, sizeof ref.version, version.version);
    body = json_pack("{s:s}", "reason", cli->reason ? cli->reason : "given up by cairn abort");
    if (!body) return cairn_fail(err, CAIRN_INVALID, "--reason is no UTF-8");
    struct cairn_cli_call call = {.method = "POST", .tail = "/abort", .body = body};
    CAIRN_TRY(cairn_cli_call(cli, &ref, call, &said, err));
    if (cli->output == CAIRN_CLI_JSON || cli->output == CAIRN_CLI_JSONL)
        return cairn_cli_print_json(said, cli->output == CAIRN_CLI_JSON, err);
    if (cli->output == CAIRN_CLI_NAME)
        puts(version.version);
    else
        printf("%s (step %llu) is given up\n", version.version, (unsigned long long)version.step);
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

const struct cairn_cli_verb cairn_cli_verb_abort = {
    .name = "abort",
    .synopsis = "cairn abort [flags] project/run@step",
    .purpose = "Give up a save that is under way, or that will never end.",
    .examples = "  cairn abort llm/7b@1400\n  cairn abort llm/7b@1400 --reason \"node lost\"\n"
                "  cairn abort llm/7b@ckpt_... --yes --json\n",
    .flags = abort_flags,
    .flag_count = CAIRN_COUNT(abort_flags),
    .arguments_min = 1,
    .arguments_max = 1,
    .run = run_abort,
};
