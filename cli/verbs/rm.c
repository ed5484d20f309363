/* SPDX-License-Identifier: Apache-2.0 */
/* cairn rm and undelete: into the trash and back; promote and demote: a copy in another store. rm
 * resolves the reference, asks on a terminal and removes by id, because each removal changes what
 * `latest` means. Removing a run is a server operation, which is followed. */

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/shell/output.h"
#include "common/clock.h"
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

/* store: named in the output; "": none. */
static enum cairn_code print_result(const struct cairn_cli *cli, const json_t *json,
                                    const char *what, const char *store, struct cairn_error *err) {
    struct cairn_msg_version_row version = {0};
    if (cli->output != CAIRN_CLI_TABLE) return cairn_cli_print_version(cli, json, err);
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_version_row, json, &version, err));
    printf("%s %s%s%s\n", version.version, what, *store ? " " : "", store);
    return cairn_cli_flush(err);
}

static enum cairn_code confirm_rm(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                  const struct cairn_msg_version_row *version,
                                  struct cairn_error *err) {
    char size[24];
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
    if (cairn_cli_says_yes()) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CANCELLED, "%s was left where it is", cli->arguments[0]);
}

static enum cairn_code look_at_run(const struct cairn_cli *cli, const struct cairn_cli_ref *run,
                                   json_t **ret, struct cairn_msg_run_removal *ret_plan,
                                   struct cairn_error *err) {
    struct cairn_cli_call call = {.method = "DELETE", .tail = "?dry_run=true"};
    return cairn_cli_ask(cli, run, call, CAIRN_MESSAGE_run_removal, ret, ret_plan, err);
}

static enum cairn_code print_plan(const struct cairn_cli *cli, const json_t *json,
                                  const struct cairn_msg_run_removal *plan,
                                  struct cairn_error *err) {
    char size[24];
    if (cli->output != CAIRN_CLI_TABLE) return cairn_cli_print_reply(cli, json, err);
    cairn_cli_size(plan->bytes, size);
    printf("%s/%s: %s of %s would go into the trash, %s be given up; nothing was changed "
           "(--dry-run)\n",
           plan->project, plan->run,
           cairn_cli_counted(plan->versions, "checkpoint", "checkpoints").text, size,
           cairn_cli_counted(plan->open, "open save", "open saves").text);
    if (plan->code) printf("just now it would be refused, %s: %s\n", plan->code, plan->detail);
    return cairn_cli_flush(err);
}

/* Prints what is freed and requires the run's name, typed or by --confirm. */
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
        return cairn_cli_print_reply(cli, answer, err);
    }
    cairn_cli_size(done.bytes, size);
    printf("%s/%s is removed: %s of %s in the trash, %s given up; cairn undelete of one brings it "
           "back\n",
           row.project, row.run, cairn_cli_counted(done.removed, "checkpoint", "checkpoints").text,
           size, cairn_cli_counted(done.aborted, "open save", "open saves").text);
    return cairn_cli_flush(err);
}

static enum cairn_code print_begun(const struct cairn_cli *cli, const json_t *operation,
                                   const char *id, struct cairn_error *err) {
    if (cli->output != CAIRN_CLI_TABLE) return cairn_cli_print_reply(cli, operation, err);
    printf("%s is being removed: cairn operation wait %s\n", cli->arguments[0], id);
    return cairn_cli_flush(err);
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
    CAIRN_TRY(cairn_cli_ask(cli, &run, call, CAIRN_MESSAGE_operation_row, &begun, &row, err));
    if (cli->detach) return print_begun(cli, begun, row.id, err);
    CAIRN_TRY(cairn_cli_operation_follow(cli, "rm", row.id, &ended, err));
    return print_removed(cli, ended, err);
}

static enum cairn_code remove_one(struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *found = NULL, *removed = NULL;
    struct cairn_msg_version_row version = {0};
    struct cairn_cli_ref ref;
    CAIRN_TRY(cairn_cli_ref_checkpoint(cli->arguments[0], &ref, err));
    CAIRN_TRY(cairn_cli_get(cli, &ref, "", CAIRN_MESSAGE_version_row, &found, &version, err));
    CAIRN_TRY(confirm_rm(cli, &ref, &version, err));
    (void)cairn_text_copy(ref.version, sizeof ref.version, version.version);
    CAIRN_TRY(
        cairn_cli_call(cli, &ref, (struct cairn_cli_call){.method = "DELETE"}, &removed, err));
    return print_result(cli, removed, "is in the trash; cairn undelete brings it back", "", err);
}

/* Removes versions in order; the first failure ends it. */
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
    CAIRN_TRY(cairn_cli_ref_checkpoint(cli->arguments[0], &ref, err));
    if (!strcmp(ref.version, "latest"))
        return cairn_fail(err, CAIRN_INVALID,
                          "latest is never in the trash: name the step or the id that cairn ls "
                          "%s/%s --json shows as trashed",
                          ref.name.project, ref.name.run);
    struct cairn_cli_call undelete = {.method = "POST", .tail = "/undelete"};
    CAIRN_TRY(cairn_cli_call(cli, &ref, undelete, &version, err));
    return print_result(cli, version, "is back", "", err);
}

const struct cairn_cli_verb cairn_cli_verb_rm = {
    .name = "rm",
    .synopsis = "cairn rm [flags] project/run@step...",
    .purpose = "Put checkpoints, or a run with all that it has, into the trash.",
    .examples = "  cairn rm llm/7b@1200 llm/7b@ckpt_...\n"
                "  cairn rm llm/7b --run --dry-run\n  cairn rm llm/7b --run --confirm 7b\n",
    CAIRN_CLI_FLAGS(rm_flags),
    CAIRN_CLI_ARGUMENTS(1, CAIRN_CLI_ARGUMENTS_MAX),
    .run = run_rm,
};
const struct cairn_cli_verb cairn_cli_verb_undelete = {
    .name = "undelete",
    .synopsis = "cairn undelete [flags] project/run@ckpt_...",
    .purpose = "Bring a checkpoint back from the trash.",
    .examples = "  cairn undelete llm/7b@ckpt_...\n  cairn undelete llm/7b@1200\n"
                "  cairn undelete llm/7b@1200 --json\n",
    CAIRN_CLI_ARGUMENTS(1, 1),
    .run = run_undelete,
};

#define WAIT_DEFAULT_MS 3600000
#define LOOK_MS 200

static const struct cairn_cli_flag promote_flags[] = {
    {"to", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(to), 0, "STORE",
     "The store, by its name in the server's setting `stores`; or main."},
    {"detach", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(detach), 0, NULL,
     "Return once it has begun; cairn operation shows how far it is."},
};
static const struct cairn_cli_flag demote_flags[] = {
    {"from", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(from), 0, "STORE",
     "The store, by its name in the server's setting `stores`; or main."},
    {"detach", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(detach), 0, NULL,
     "Return once it is to be removed; the server goes on."},
};

static enum cairn_code post_copy(struct cairn_cli *cli, struct cairn_cli_ref *ref, const char *verb,
                                 const char *word, const char *store, json_t **ret,
                                 struct cairn_error *err) {
    if (!store) return cairn_fail(err, CAIRN_INVALID, "cairn %s wants --%s STORE", verb, word);
    CAIRN_TRY(cairn_cli_ref_latest(cli, ref, err));
    char tail[16];
    snprintf(tail, sizeof tail, "/%s", verb);
    CAIRN_AUTO_JSON json_t *body = json_pack("{s:s}", word, store);
    if (!body) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the call");
    struct cairn_cli_call call = {.method = "POST", .tail = tail, .body = body};
    return cairn_cli_call(cli, ref, call, ret, err);
}

/* ---- promote ---- */

static enum cairn_code run_promote(struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *begun = NULL, *version = NULL;
    struct cairn_msg_operation_row row = {0};
    struct cairn_cli_ref ref;
    CAIRN_TRY(post_copy(cli, &ref, "promote", "to", cli->to, &begun, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_operation_row, begun, &row, err));
    const char *id = json_string_value(json_object_get(row.request, "version"));
    /* The id, because `latest` may have moved. */
    if (id) (void)cairn_text_copy(ref.version, sizeof ref.version, id);
    if (!cli->detach) CAIRN_TRY(cairn_cli_operation_follow(cli, "promote", row.id, NULL, err));
    cli->timeout_ms = 0; /* --timeout applied to the wait */
    CAIRN_TRY(cairn_cli_call(cli, &ref, (struct cairn_cli_call){0}, &version, err));
    return print_result(cli, version, cli->detach ? "is being copied to" : "is whole in", cli->to,
                        err);
}

/* ---- demote ---- */

/* The copy's state in the store; NULL: no copy there. */
static const char *state_in(const json_t *version, const char *store) {
    struct cairn_msg_version_row row = {0};
    const json_t *item = NULL;
    if (cairn_msg_version_row_read(version, "", &row, NULL)) return NULL;
    for (size_t i = 0; (item = json_array_get(row.copies, i)); i++) {
        struct cairn_msg_copy_row copy = {0};
        if (!cairn_msg_copy_row_read(item, "", &copy, NULL) && !strcmp(copy.store, store))
            return copy.state;
    }
    return NULL;
}

static enum cairn_code run_demote(struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *version = NULL;
    struct cairn_msg_version_row row = {0};
    struct cairn_cli_ref ref;
    CAIRN_TRY(post_copy(cli, &ref, "demote", "from", cli->from, &version, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_version_row, version, &row, err));
    (void)cairn_text_copy(ref.version, sizeof ref.version, row.version);
    struct cairn_cli_patience patience = {.deadline = cairn_cli_begin_wait(cli, WAIT_DEFAULT_MS),
                                          .answered = true};
    for (const char *state; !cli->detach && (state = state_in(version, cli->from));) {
        if (!strcmp(state, "whole"))
            return cairn_fail(err, CAIRN_IN_USE,
                              "the copy in %s stays: the others were found damaged meanwhile; "
                              "cairn verify --repair mends them",
                              cli->from);
        if (!cairn_deadline_left_ms(&cairn_clock_real, patience.deadline))
            return cairn_fail(err, CAIRN_TIMEOUT,
                              "the copy in %s is not removed yet; the server "
                              "goes on",
                              cli->from);
        (void)poll(NULL, 0, LOOK_MS);
        json_decref(version);
        version = NULL;
        CAIRN_TRY(cairn_cli_patient_call(&patience, cli, &ref, (struct cairn_cli_call){0}, &version,
                                         err));
    }
    return print_result(cli, version, cli->detach ? "is being removed from" : "is no longer in",
                        cli->from, err);
}

const struct cairn_cli_verb cairn_cli_verb_promote = {
    .name = "promote",
    .synopsis = "cairn promote [flags] project/run[@step|@latest|@ckpt_...]",
    .purpose = "Copy a checkpoint to a further store of the server.",
    .examples = "  cairn promote llm/7b@1200 --to archive\n"
                "  cairn promote llm/7b --to archive --detach\n"
                "  cairn promote llm/7b@best --to main --json\n",
    CAIRN_CLI_FLAGS(promote_flags),
    CAIRN_CLI_ARGUMENTS(1, 1),
    .run = run_promote,
};
const struct cairn_cli_verb cairn_cli_verb_demote = {
    .name = "demote",
    .synopsis = "cairn demote [flags] project/run[@step|@latest|@ckpt_...]",
    .purpose = "Remove a checkpoint's copy from one store; never the last one.",
    .examples = "  cairn demote llm/7b@1200 --from main\n"
                "  cairn demote llm/7b@1200 --from archive --detach\n"
                "  cairn demote llm/7b@ckpt_... --from main --json\n",
    CAIRN_CLI_FLAGS(demote_flags),
    CAIRN_CLI_ARGUMENTS(1, 1),
    .run = run_demote,
};
