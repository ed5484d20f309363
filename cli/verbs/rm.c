/* SPDX-License-Identifier: Apache-2.0 */
/* cairn rm and undelete: into the trash and back. rm looks the version up, asks on a terminal, and
 * removes it by its id: `latest` means another one after each removal. */
#include <stdio.h>
#include <unistd.h>

#include "cli/output.h"
#include "cli/sizes.h"
#include "common/text.h"

static const struct cairn_cli_flag rm_flags[] = {
    {"yes", 'y', CAIRN_CLI_SWITCH, CAIRN_CLI_AT(yes), 0, NULL, "Do not ask."},
    {"run", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(whole_run), 0, NULL,
     "The run with all that it has; asks for its name."},
    {"confirm", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(confirm), 0, "NAME",
     "With --run: the run's name, where nobody can be asked."},
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
    cairn_cli_size(version->bytes, size);
    fprintf(stderr, "%s: step %llu, %s, %s %s. Into the trash? [y/N] ", version->version,
            (unsigned long long)version->step, size, version->state,
            version->committed_at ? version->committed_at : "");
    if (fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y'))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_CANCELLED, "%s was left where it is", cli->arguments[0]);
}

/* ---- a run ---- */

/* What it frees is shown, and its name is to be typed, as it was or as a flag. */
static enum cairn_code confirm_run(const struct cairn_cli *cli, const struct cairn_cli_ref *run,
                                   char ret[CAIRN_NAME_BYTES_MAX + 2], struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_msg_run_row row = {0};
    char size[24];
    CAIRN_TRY(cairn_cli_call(cli, run, (struct cairn_cli_call){0}, &json, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_run_row, json, &row, err));
    cairn_cli_size(row.bytes, size);
    cairn_cli_note("run %s/%s: %llu committed, %s, and what is open is given up", run->name.project,
                   run->name.run, (unsigned long long)row.committed, size);
    ret[0] = '\0';
    if (cli->confirm) {
        (void)cairn_text_copy(ret, CAIRN_NAME_BYTES_MAX + 2, cli->confirm);
    } else if (isatty(STDIN_FILENO)) {
        fprintf(stderr, "Type %s to put all of it into the trash: ", run->name.run);
        if (fgets(ret, CAIRN_NAME_BYTES_MAX + 2, stdin)) ret[strcspn(ret, "\n")] = '\0';
    } else {
        return cairn_fail(err, CAIRN_INVALID, "say --confirm %s to remove the run", run->name.run);
    }
    if (!strcmp(ret, run->name.run)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CANCELLED, "%s/%s was left as it is: its name is another",
                      run->name.project, run->name.run);
}

static enum cairn_code remove_run(const struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_ref run;
    char name[CAIRN_NAME_BYTES_MAX + 2], tail[CAIRN_NAME_BYTES_MAX + 20];
    uint64_t removed = 0, bytes = 0, left = 1;
    CAIRN_TRY(cairn_cli_ref_run("rm --run", cli->arguments[0], &run, err));
    if (cli->argument_count != 1)
        return cairn_fail(err, CAIRN_INVALID, "rm --run takes one run at a time");
    CAIRN_TRY(confirm_run(cli, &run, name, err));
    snprintf(tail, sizeof tail, "?confirm=%s", name);
    while (left) {
        CAIRN_AUTO_JSON json_t *json = NULL;
        struct cairn_msg_run_removed done = {0};
        struct cairn_cli_call call = {.method = "DELETE", .tail = tail, .timeout_ms = 600000};
        CAIRN_TRY(cairn_cli_call(cli, &run, call, &json, err));
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_run_removed, json, &done, err));
        removed += done.removed;
        bytes += done.bytes;
        left = done.left;
    }
    if (cli->output != CAIRN_CLI_TABLE) {
        CAIRN_AUTO_JSON json_t *answer =
            json_pack("{s:s, s:s, s:I, s:I}", "project", run.name.project, "run", run.name.run,
                      "removed", (json_int_t)removed, "bytes", (json_int_t)bytes);
        return cairn_cli_print_json(answer, cli->output == CAIRN_CLI_JSON, err);
    }
    printf("%s/%s is removed; cairn undelete of one of its %llu checkpoints brings it back\n",
           run.name.project, run.name.run, (unsigned long long)removed);
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

/* ---- checkpoints ---- */

static enum cairn_code remove_one(struct cairn_cli *cli, struct cairn_error *err) {
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

/* Several are removed one after the other; the first that cannot go ends it. */
static enum cairn_code run_rm(struct cairn_cli *cli, struct cairn_error *err) {
    if (cli->whole_run) return remove_run(cli, err);
    if (cli->confirm) return cairn_fail(err, CAIRN_INVALID, "--confirm is for --run");
    for (size_t i = 0; i < cli->argument_count; i++) {
        struct cairn_cli one = *cli;
        one.arguments[0] = cli->arguments[i];
        one.argument_count = 1;
        CAIRN_TRY(remove_one(&one, err));
    }
    return CAIRN_OK;
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
    .synopsis = "cairn rm [flags] project/run@step...",
    .purpose = "Put checkpoints, or a run with all that it has, into the trash.",
    .examples =
        "  cairn rm llm/7b@1200\n  cairn rm llm/7b@100 llm/7b@200 llm/7b@ckpt_...\n"
        "  cairn rm llm/7b --run --confirm 7b\n",
    .flags = rm_flags,
    .flag_count = CAIRN_COUNT(rm_flags),
    .arguments_min = 1,
    .arguments_max = CAIRN_CLI_ARGUMENTS_MAX,
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
