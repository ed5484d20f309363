/* SPDX-License-Identifier: Apache-2.0 */
/* cairn rm and undelete: into the trash and back. rm looks the version up, asks on a terminal, and
 * removes it by its id: `latest` means another one after each removal. */
#include <stdio.h>
#include <unistd.h>

#include "cli/output.h"
#include "common/text.h"

static const struct cairn_cli_flag rm_flags[] = {
    {"yes", 'y', CAIRN_CLI_SWITCH, CAIRN_CLI_AT(yes), 0, NULL, "Do not ask."},
};

static enum cairn_code read_ref(const struct cairn_cli *cli, struct cairn_cli_ref *ret,
                                struct cairn_error *err) {
    CAIRN_TRY(cairn_cli_ref_parse(cli->arguments[0], ret, err));
    if (ret->version[0]) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "name the checkpoint: %s@step", cli->arguments[0]);
}

static enum cairn_code print_result(const struct cairn_cli *cli, const json_t *json,
                                    const char *what, struct cairn_error *err) {
    struct cairn_msg_version_row version = {0};
    if (cli->output != CAIRN_CLI_TABLE) return cairn_cli_print_version(cli, json, err);
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_version_row, json, &version, err));
    printf("%s %s\n", version.version, what);
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

static enum cairn_code confirm(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                               const struct cairn_msg_version_row *version,
                               struct cairn_error *err) {
    char size[24], answer[8] = "";
    if (cli->yes) return CAIRN_OK;
    if (!isatty(STDIN_FILENO)) {
        if (strcmp(ref->version, "latest") != 0) return CAIRN_OK;
        return cairn_fail(err, CAIRN_INVALID,
                          "%s is %s just now and another one after that: name its step or its id, "
                          "or say --yes",
                          cli->arguments[0], version->version);
    }
    cairn_size_text(version->bytes, size);
    fprintf(stderr, "%s: step %llu, %s, %s %s. Into the trash? [y/N] ", version->version,
            (unsigned long long)version->step, size, version->state,
            version->committed_at ? version->committed_at : "");
    if (fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y'))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_CANCELLED, "%s was left where it is", cli->arguments[0]);
}

static enum cairn_code run_rm(struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *found = NULL, *removed = NULL;
    struct cairn_msg_version_row version = {0};
    struct cairn_cli_ref ref;
    CAIRN_TRY(read_ref(cli, &ref, err));
    CAIRN_TRY(cairn_cli_call(cli, &ref, (struct cairn_cli_call){0}, &found, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_version_row, found, &version, err));
    CAIRN_TRY(confirm(cli, &ref, &version, err));
    (void)cairn_text_copy(ref.version, sizeof ref.version, version.version);
    CAIRN_TRY(
        cairn_cli_call(cli, &ref, (struct cairn_cli_call){.method = "DELETE"}, &removed, err));
    return print_result(cli, removed, "is in the trash; cairn undelete brings it back", err);
}

static enum cairn_code run_undelete(struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *version = NULL;
    struct cairn_cli_ref ref;
    CAIRN_TRY(read_ref(cli, &ref, err));
    if (!strcmp(ref.version, "latest"))
        return cairn_fail(err, CAIRN_INVALID,
                          "latest is never in the trash: name the step or the id that cairn ls "
                          "%s/%s --json shows as trashed",
                          ref.name.project, ref.name.run);
    struct cairn_cli_call undelete = {.method = "POST", .tail = "/undelete"};
    CAIRN_TRY(cairn_cli_call(cli, &ref, undelete, &version, err));
    return print_result(cli, version, "is back", err);
}

const struct cairn_cli_verb cairn_cli_verb_rm = {
    .name = "rm",
    .synopsis = "cairn rm [flags] project/run@step",
    .purpose = "Put a checkpoint into the trash.",
    .examples =
        "  cairn rm llm/7b@1200\n  cairn rm llm/7b@ckpt_...\n  cairn rm llm/7b@latest --yes\n",
    .flags = rm_flags,
    .flag_count = CAIRN_COUNT(rm_flags),
    .arguments_min = 1,
    .arguments_max = 1,
    .run = run_rm,
};
const struct cairn_cli_verb cairn_cli_verb_undelete = {
    .name = "undelete",
    .synopsis = "cairn undelete [flags] project/run@ckpt_...",
    .purpose = "Bring a checkpoint back from the trash.",
    .examples = "  cairn undelete llm/7b@ckpt_...\n  cairn undelete llm/7b@1200\n"
                "  cairn undelete llm/7b@1200 --json\n",
    .arguments_min = 1,
    .arguments_max = 1,
    .run = run_undelete,
};
