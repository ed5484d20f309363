/* SPDX-License-Identifier: Apache-2.0 */
/* cairn rm and undelete: into the trash and back. rm looks the version up, asks on a terminal, and
 * removes it by its id: `latest` means another one after each removal. A run goes as an operation
 * of the server, which is followed. */
#include <stdio.h>
#include <unistd.h>

#include "cli/shell/operation_follow.h"
#include "cli/shell/output.h"
#include "cli/shell/sizes.h"
#include "common/text.h"

static const struct cairn_cli_flag rm_flags[] = {
    {"yes", 'y', CAIRN_CLI_SWITCH, CAIRN_CLI_AT(yes), 0, NULL, "Do not ask."},
    {"run", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(whole_run), 0, NULL,
     "The run with all that it has; asks for its name."},
    {"confirm", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(confirm), 0, "NAME",
     "With --run: the run's name, where nobody can be asked."},
    {"dry-run", 'n', CAIRN_CLI_SWITCH, CAIRN_CLI_AT(dry_run), 0, NULL,
     "With --run: show what would go, and nothing else."},
    {"detach", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(detach), 0, NULL,
     "With --run: return once it has begun; cairn operation shows how far it is."},
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

static enum cairn_code confirm_rm(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
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
static enum cairn_code look_at_run(const struct cairn_cli *cli, const struct cairn_cli_ref *run,
                                   json_t **ret, struct cairn_msg_run_removal *ret_plan,
                                   struct cairn_error *err) {
    struct cairn_cli_call call = {.method = "DELETE", .tail = "?dry_run=true"};
    CAIRN_TRY(cairn_cli_call(cli, run, call, ret, err));
    return cairn_cli_reply_read(CAIRN_MESSAGE_run_removal, *ret, ret_plan, err);
}

static enum cairn_code print_plan(const struct cairn_cli *cli, const json_t *json,
                                  const struct cairn_msg_run_removal *plan,
                                  struct cairn_error *err) {
    char size[24];
    if (cli->output != CAIRN_CLI_TABLE)
        return cairn_cli_print_json(json, cli->output == CAIRN_CLI_JSON, err);
    cairn_cli_size(plan->bytes, size);
    printf("%s/%s: %s of %s would go into the trash, %s be given up; nothing was changed "
           "(--dry-run)\n",
           plan->project, plan->run,
           cairn_cli_counted(plan->versions, "checkpoint", "checkpoints").text, size,
           cairn_cli_counted(plan->open, "open save", "open saves").text);
    if (plan->code) printf("just now it would be refused, %s: %s\n", plan->code, plan->detail);
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

/* What it frees is shown, and its name is to be typed, as it was or as a flag. */
static enum cairn_code confirm_run(const struct cairn_cli *cli, const struct cairn_cli_ref *run,
                                   const struct cairn_msg_run_removal *plan,
                                   struct cairn_error *err) {
    char size[24], name[CAIRN_NAME_BYTES_MAX + 2] = "";
    cairn_cli_size(plan->bytes, size);
    cairn_cli_note("run %s/%s: %s of %s go into the trash, %s be given up", run->name.project,
                   run->name.run,
                   cairn_cli_counted(plan->versions, "checkpoint", "checkpoints").text, size,
                   cairn_cli_counted(plan->open, "open save", "open saves").text);
    if (cli->confirm) {
        (void)cairn_text_copy(name, sizeof name, cli->confirm);
    } else if (isatty(STDIN_FILENO)) {
        fprintf(stderr, "Type %s to put all of it into the trash: ", run->name.run);
        if (fgets(name, sizeof name, stdin)) name[strcspn(name, "\n")] = '\0';
    } else {
        return cairn_fail(err, CAIRN_INVALID, "say --confirm %s to remove the run", run->name.run);
    }
    if (!strcmp(name, run->name.run)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CANCELLED, "%s/%s was left as it is: its name is another",
                      run->name.project, run->name.run);
}

static enum cairn_code print_removed(const struct cairn_cli *cli, const json_t *operation,
                                     struct cairn_error *err) {
    struct cairn_msg_operation_row row = {0};
    struct cairn_msg_run_removed done = {0};
    char size[24];
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_operation_row, operation, &row, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_run_removed, row.result, &done, err));
    if (cli->output != CAIRN_CLI_TABLE) {
        CAIRN_AUTO_JSON json_t *answer =
            json_pack("{s:s, s:s, s:I, s:I, s:I, s:s}", "project", row.project, "run", row.run,
                      "removed", (json_int_t)done.removed, "bytes", (json_int_t)done.bytes,
                      "aborted", (json_int_t)done.aborted, "operation", row.id);
        return cairn_cli_print_json(answer, cli->output == CAIRN_CLI_JSON, err);
    }
    cairn_cli_size(done.bytes, size);
    printf("%s/%s is removed: %s of %s in the trash, %s given up; cairn undelete of one brings it "
           "back\n",
           row.project, row.run,
           cairn_cli_counted(done.removed, "checkpoint", "checkpoints").text, size,
           cairn_cli_counted(done.aborted, "open save", "open saves").text);
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

static enum cairn_code print_begun(const struct cairn_cli *cli, const json_t *operation,
                                   const char *id, struct cairn_error *err) {
    if (cli->output != CAIRN_CLI_TABLE)
        return cairn_cli_print_json(operation, cli->output == CAIRN_CLI_JSON, err);
    printf("%s is being removed: cairn operation wait %s\n", cli->arguments[0], id);
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

static enum cairn_code remove_run(const struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *seen = NULL, *begun = NULL, *ended = NULL;
    struct cairn_msg_run_removal plan = {0};
    struct cairn_msg_operation_row row = {0};
    struct cairn_cli_ref run;
    char tail[CAIRN_NAME_BYTES_MAX + 20];
    CAIRN_TRY(cairn_cli_ref_run("rm --run", cli->arguments[0], &run, err));
    if (cli->argument_count != 1)
        return cairn_fail(err, CAIRN_INVALID, "rm --run takes one run at a time");
    CAIRN_TRY(look_at_run(cli, &run, &seen, &plan, err));
    if (cli->dry_run) return print_plan(cli, seen, &plan, err);
    CAIRN_TRY(confirm_run(cli, &run, &plan, err));
    snprintf(tail, sizeof tail, "?confirm=%s", run.name.run);
    struct cairn_cli_call call = {.method = "DELETE", .tail = tail};
    CAIRN_TRY(cairn_cli_call(cli, &run, call, &begun, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_operation_row, begun, &row, err));
    if (cli->detach) return print_begun(cli, begun, row.id, err);
    CAIRN_TRY(cairn_cli_operation_follow(cli, "rm", row.id, &ended, err));
    return print_removed(cli, ended, err);
}

/* ---- checkpoints ---- */

static enum cairn_code remove_one(struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *found = NULL, *removed = NULL;
    struct cairn_msg_version_row version = {0};
    struct cairn_cli_ref ref;
    CAIRN_TRY(read_ref(cli, &ref, err));
    CAIRN_TRY(cairn_cli_call(cli, &ref, (struct cairn_cli_call){0}, &found, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_version_row, found, &version, err));
    CAIRN_TRY(confirm_rm(cli, &ref, &version, err));
    (void)cairn_text_copy(ref.version, sizeof ref.version, version.version);
    CAIRN_TRY(
        cairn_cli_call(cli, &ref, (struct cairn_cli_call){.method = "DELETE"}, &removed, err));
    return print_result(cli, removed, "is in the trash; cairn undelete brings it back", err);
}

/* Several are removed one after the other; the first that cannot go ends it. */
static enum cairn_code run_rm(struct cairn_cli *cli, struct cairn_error *err) {
    if (cli->whole_run) return remove_run(cli, err);
    if (cli->confirm || cli->dry_run || cli->detach)
        return cairn_fail(err, CAIRN_INVALID, "--%s is for --run",
                          cli->confirm   ? "confirm"
                          : cli->dry_run ? "dry-run"
                                         : "detach");
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
        "  cairn rm llm/7b@1200 llm/7b@ckpt_...\n"
        "  cairn rm llm/7b --run --dry-run\n  cairn rm llm/7b --run --confirm 7b\n",
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
