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

static const struct cli_flag rm_flags[] = {
    {"yes", 'y', CLI_SWITCH, CLI_AT(yes), 0, NULL, "Do not ask."},
    {"run", 0, CLI_SWITCH, CLI_AT(whole_run), 0, NULL,
     "The run with all that it has; asks for its name."},
    {"confirm", 0, CLI_TEXT, CLI_AT(confirm), 0, "NAME",
     "With --run: the run's name, where nobody can be asked."},
    {"dry-run", 'n', CLI_SWITCH, CLI_AT(dry_run), 0, NULL,
     "With --run: show what would go, and nothing else."},
    {"detach", 0, CLI_SWITCH, CLI_AT(detach), 0, NULL,
     "With --run: return once it has begun; cairn operation shows how far it is."},
};

/* store: named in the output; "": none. */
static enum cairn_code print_result(const struct cli *cli, const json_t *json, const char *what,
                                    const char *store, struct cairn_error *err) {
    if (cli->output != CLI_TABLE) return cli_print_version(cli, json, err);
    CLI_READ(version_row, version, json, err);
    printf("%s %s%s%s\n", version.version, what, *store ? " " : "", store);
    return cli_flush(err);
}

/* `latest` means another version after each removal: without a terminal to ask it needs --yes. */
static enum cairn_code check_named(const struct cli *cli, const char *argument,
                                   const struct cli_ref *ref, struct cairn_error *err) {
    if (cli->yes || isatty(STDIN_FILENO) || strcmp(ref->version, "latest") != 0) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "%s means another checkpoint after that: name its step or its id, or say "
                      "--yes",
                      argument);
}

static enum cairn_code confirm_rm(const struct cli *cli,
                                  const struct cairn_msg_version_row *version,
                                  struct cairn_error *err) {
    if (cli->yes || !isatty(STDIN_FILENO)) return CAIRN_OK;
    fprintf(stderr, "%s: step %llu, %s, %s %s. Into the trash? [y/N] ", version->version,
            (unsigned long long)version->step, cli_size(version->bytes).text, version->state,
            version->committed_at ? version->committed_at : "");
    if (cli_says_yes()) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CANCELLED, "%s was left where it is", cli->arguments[0]);
}

/* Prints what is freed and requires the run's name, typed or by --confirm. */
static enum cairn_code confirm_run(const struct cli *cli, const struct cli_ref *run,
                                   const json_t *plan, struct cairn_error *err) {
    char name[CAIRN_NAME_BYTES_MAX + 2] = "";
    cli_note_of("run {project}/{run}: {versions#checkpoint} of {bytes:size} go into the "
                "trash, {open#open save} be given up",
                plan);
    if (cli->confirm) {
        (void)cairn_text_copy(name, sizeof name, cli->confirm);
    } else if (isatty(STDIN_FILENO)) {
        fprintf(stderr, "Type %s to put all of it into the trash: ", run->name.run);
        if (fgets(name, sizeof name, stdin)) name[strcspn(name, "\n")] = '\0';
    } else {
        return cairn_fail(err, CAIRN_INVALID, "say --confirm %s to remove the run", run->name.run);
    }
    if (!strcmp(name, run->name.run)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CANCELLED,
                      "%s/%s was left as it is: its name is %s, without the project, not \"%s\"",
                      run->name.project, run->name.run, run->name.run, cairn_short(name).text);
}

static enum cairn_code print_removed(const struct cli *cli, const json_t *operation,
                                     struct cairn_error *err) {
    CLI_READ(operation_row, row, operation, err);
    CLI_READ(run_removed, done, row.result, err);
    if (cli->output != CLI_TABLE) {
        CAIRN_AUTO_JSON json_t *answer =
            json_pack("{s:s, s:s, s:I, s:I, s:I, s:s}", "project", row.project, "run", row.run,
                      "removed", (json_int_t)done.removed, "bytes", (json_int_t)done.bytes,
                      "aborted", (json_int_t)done.aborted, "operation", row.id);
        return cli_print_reply(cli, answer, err);
    }
    cli_tell("{project}/{run} is removed: {result.removed#checkpoint} of {result.bytes:size} "
             "in the trash, {result.aborted#open save} given up; cairn undelete of one brings "
             "it back",
             operation);
    return cli_flush(err);
}

static enum cairn_code remove_run(const struct cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *seen = NULL, *begun = NULL, *ended = NULL;
    struct cairn_msg_run_removal plan = {0};
    struct cairn_msg_operation_row row = {0};
    struct cli_ref run;
    char tail[CAIRN_NAME_BYTES_MAX + 20];
    CAIRN_TRY(cli_ref_run("rm --run", cli->arguments[0], &run, err));
    if (cli->argument_count != 1)
        return cairn_fail(err, CAIRN_INVALID, "rm --run takes one run at a time");
    struct cli_call call = {.method = "DELETE", .tail = "?dry_run=true"};
    CAIRN_TRY(cli_ask(cli, &run, call, CAIRN_MESSAGE_run_removal, &seen, &plan, err));
    if (cli->dry_run && cli->output != CLI_TABLE) return cli_print_reply(cli, seen, err);
    if (cli->dry_run) {
        cli_tell("{project}/{run}: {versions#checkpoint} of {bytes:size} would go into the "
                 "trash, {open#open save} be given up; nothing was changed (--dry-run)",
                 seen);
        if (plan.code) cli_tell("just now it would be refused, {code}: {detail}", seen);
        return cli_flush(err);
    }
    CAIRN_TRY(confirm_run(cli, &run, seen, err));
    snprintf(tail, sizeof tail, "?confirm=%s", run.name.run);
    call.tail = tail;
    CAIRN_TRY(cli_ask(cli, &run, call, CAIRN_MESSAGE_operation_row, &begun, &row, err));
    if (cli->detach && cli->output != CLI_TABLE) return cli_print_reply(cli, begun, err);
    if (cli->detach) {
        printf("%s is being removed: cairn operation wait %s\n", cli->arguments[0], row.id);
        return cli_flush(err);
    }
    CAIRN_TRY(cli_operation_follow(cli, "rm", row.id, &ended, err));
    return print_removed(cli, ended, err);
}

static enum cairn_code remove_one(struct cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *found = NULL, *removed = NULL;
    struct cairn_msg_version_row version = {0};
    struct cli_ref ref;
    CAIRN_TRY(cli_ref_checkpoint(cli->arguments[0], &ref, err));
    CAIRN_TRY(cli_get(cli, &ref, "", CAIRN_MESSAGE_version_row, &found, &version, err));
    CAIRN_TRY(confirm_rm(cli, &version, err));
    (void)cairn_text_copy(ref.version, sizeof ref.version, version.version);
    CAIRN_TRY(cli_call(cli, &ref, (struct cli_call){.method = "DELETE"}, &removed, err));
    return print_result(cli, removed, "is in the trash; cairn undelete brings it back", "", err);
}

/* Removes versions in order; the first failure ends it. Arguments that can name no version, or no
 * certain one, are refused before the first removal. */
static enum cairn_code run_rm(struct cli *cli, struct cairn_error *err) {
    if (cli->whole_run) return remove_run(cli, err);
    if (cli->confirm || cli->dry_run || cli->detach)
        return cairn_fail(err, CAIRN_INVALID, "--%s is for --run",
                          cli->confirm   ? "confirm"
                          : cli->dry_run ? "dry-run"
                                         : "detach");
    for (size_t i = 0; i < cli->argument_count; i++) {
        struct cli_ref ref;
        CAIRN_TRY(cli_ref_checkpoint(cli->arguments[i], &ref, err));
        CAIRN_TRY(check_named(cli, cli->arguments[i], &ref, err));
    }
    for (size_t i = 0; i < cli->argument_count; i++) {
        struct cli one = *cli;
        one.arguments[0] = cli->arguments[i];
        one.argument_count = 1;
        CAIRN_TRY(remove_one(&one, err));
    }
    return CAIRN_OK;
}

static enum cairn_code run_undelete(struct cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *version = NULL;
    struct cli_ref ref;
    CAIRN_TRY(cli_ref_checkpoint(cli->arguments[0], &ref, err));
    if (!strcmp(ref.version, "latest"))
        return cairn_fail(err, CAIRN_INVALID,
                          "latest is never in the trash: name the step or the id that cairn ls "
                          "%s/%s --json shows as trashed",
                          ref.name.project, ref.name.run);
    struct cli_call undelete = {.method = "POST", .tail = "/undelete"};
    CAIRN_TRY(cli_call(cli, &ref, undelete, &version, err));
    return print_result(cli, version, "is back", "", err);
}

const struct cli_verb cli_verb_rm = {
    CLI_VERB(rm),
    .synopsis = "cairn rm [flags] project/run@step...",
    .purpose = "Move checkpoints, or a whole run, to the trash.",
    .examples = "  cairn rm llm/7b@1200 llm/7b@ckpt_...\n"
                "  cairn rm llm/7b --run --dry-run\n  cairn rm llm/7b --run --confirm 7b\n",
    CLI_TAKES(rm_flags, 1, CLI_ARGUMENTS_MAX),
};
const struct cli_verb cli_verb_undelete = {
    CLI_VERB(undelete),
    .synopsis = "cairn undelete [flags] project/run@ckpt_...",
    .purpose = "Bring a checkpoint back from the trash.",
    .examples = "  cairn undelete llm/7b@ckpt_...\n  cairn undelete llm/7b@1200\n"
                "  cairn undelete llm/7b@1200 --json\n",
    CLI_ARGUMENTS(1, 1),
};

#define WAIT_DEFAULT_MS 3600000
#define LOOK_MS 200

static const struct cli_flag promote_flags[] = {
    {"to", 0, CLI_TEXT, CLI_AT(to), 0, "STORE",
     "The store, by its name in the server's setting `stores`; or main."},
    {"detach", 0, CLI_SWITCH, CLI_AT(detach), 0, NULL,
     "Return once it has begun; cairn operation shows how far it is."},
};
static const struct cli_flag demote_flags[] = {
    {"from", 0, CLI_TEXT, CLI_AT(from), 0, "STORE",
     "The store, by its name in the server's setting `stores`; or main."},
    {"detach", 0, CLI_SWITCH, CLI_AT(detach), 0, NULL,
     "Return once it is to be removed; the server goes on."},
};

/* What promote or demote posts, and of which checkpoint. */
static enum cairn_code copy_wish(const struct cli *cli, const char *word, const char *store,
                                 struct cli_ref *ret_ref, json_t **ret_body,
                                 struct cairn_error *err) {
    if (!store)
        return cairn_fail(err, CAIRN_INVALID, "cairn %s wants --%s STORE",
                          !strcmp(word, "to") ? "promote" : "demote", word);
    CAIRN_TRY(cli_ref_latest(cli, ret_ref, err));
    *ret_body = json_pack("{s:s}", word, store);
    return *ret_body ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the call");
}

/* ---- promote ---- */

static enum cairn_code run_promote(struct cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *body = NULL, *operation = NULL, *version = NULL;
    struct cli_ref ref;
    CAIRN_TRY(copy_wish(cli, "to", cli->to, &ref, &body, err));
    struct cli_call call = {.method = "POST", .tail = "/promote", .body = body};
    if (cli->detach)
        CAIRN_TRY(cli_call(cli, &ref, call, &operation, err));
    else
        CAIRN_TRY(cli_operation_run(cli, "promote", &ref, call, &operation, err));
    CLI_READ(operation_row, row, operation, err);
    const char *id = json_string_value(json_object_get(row.request, "version"));
    /* The id, because `latest` may have moved. */
    if (id) (void)cairn_text_copy(ref.version, sizeof ref.version, id);
    cli->timeout_ms = 0; /* --timeout applied to the wait */
    CAIRN_TRY(cli_call(cli, &ref, (struct cli_call){0}, &version, err));
    return print_result(cli, version, cli->detach ? "is being copied to" : "is whole in", cli->to,
                        err);
}

/* ---- demote ---- */

/* The copy's state in the store; NULL: no copy there. */
static const char *state_in(const json_t *version, const char *store) {
    struct cairn_msg_version_row row = {0};
    if (cairn_msg_version_row_read(version, "", &row, NULL)) return NULL;
    CAIRN_JSON_EACH(item, row.copies) {
        struct cairn_msg_copy_row copy = {0};
        if (!cairn_msg_copy_row_read(item, "", &copy, NULL) && !strcmp(copy.store, store))
            return copy.state;
    }
    return NULL;
}

static enum cairn_code run_demote(struct cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *body = NULL, *version = NULL;
    struct cli_ref ref;
    CAIRN_TRY(copy_wish(cli, "from", cli->from, &ref, &body, err));
    struct cli_call call = {.method = "POST", .tail = "/demote", .body = body};
    CAIRN_TRY(cli_call(cli, &ref, call, &version, err));
    CLI_READ(version_row, row, version, err);
    (void)cairn_text_copy(ref.version, sizeof ref.version, row.version);
    struct cli_patience patience = {.deadline = cli_begin_wait(cli, WAIT_DEFAULT_MS),
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
        CAIRN_TRY(cli_patient_call(&patience, cli, &ref, (struct cli_call){0}, &version, err));
    }
    return print_result(cli, version, cli->detach ? "is being removed from" : "is no longer in",
                        cli->from, err);
}

const struct cli_verb cli_verb_promote = {
    CLI_VERB(promote),
    .synopsis = "cairn promote [flags] project/run[@step|@latest|@ckpt_...]",
    .purpose = "Copy a checkpoint to a further store of the server.",
    .examples = "  cairn promote llm/7b@1200 --to archive\n"
                "  cairn promote llm/7b --to archive --detach\n"
                "  cairn promote llm/7b@best --to main --json\n",
    CLI_TAKES(promote_flags, 1, 1),
    .surplus = "to",
};
const struct cli_verb cli_verb_demote = {
    CLI_VERB(demote),
    .synopsis = "cairn demote [flags] project/run[@step|@latest|@ckpt_...]",
    .purpose = "Remove a checkpoint's copy from one store; never the last one.",
    .examples = "  cairn demote llm/7b@1200 --from main\n"
                "  cairn demote llm/7b@1200 --from archive --detach\n"
                "  cairn demote llm/7b@ckpt_... --from main --json\n",
    CLI_TAKES(demote_flags, 1, 1),
    .surplus = "from",
};
