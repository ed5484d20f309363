/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for saves and operations: cairn wait, until a checkpoint is in the state of --for, never
 * can be, or the run has a newer one; operation; resume; abort.
 *
 * Promise: 1   an ended operation is printed and decides the exit: its own code if it failed,
 *              CAIRN_CANCELLED if cancelled or interrupted, CAIRN_TIMEOUT after --timeout (10
 *              minutes by default).
 */

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "api/wire/messages.h"
#include "api/wire/words.h"
#include "cli/shell/output.h"
#include "common/clock.h"
#include "common/text.h"

/* ---- operation ls|show|wait|cancel ---- */

/* Imports, exports, copies and removals by the server. */

#define LIST_DEFAULT 100
#define WAIT_DEFAULT_MS 600000

static const struct cli_flag operation_flags[] = {
    {"limit", 'n', CLI_COUNT, CLI_AT(limit), 0, "N",
     "Of ls: how many, the newest first (100 by default)."},
};

static void cell_progress(const json_t *item, char *ret, size_t capacity) {
    struct cairn_msg_operation_progress at = {0};
    const json_t *progress = json_object_get(item, "progress");
    *ret = '\0';
    if (cairn_msg_operation_progress_read(progress, "", &at, NULL) || !at.total) return;
    cli_format(strcmp(at.unit, "bytes") ? "{done} of {total} {unit}"
                                        : "{done:size} of {total:size}",
               progress, ret, capacity);
}
static void cell_why(const json_t *item, char *ret, size_t capacity) {
    const json_t *problem = json_object_get(item, "problem");
    struct cairn_error why = {0};
    if (json_is_object(problem)) cairn_failure_get(problem, "detail", &why);
    snprintf(ret, capacity, "%s", why.message);
}
static const struct cli_table operation_table = {
    CAIRN_MESSAGE_operation_row,
    .name = "{id}",
    .columns = {{"OPERATION", .text = "{id}"},
                {"KIND", .text = "{kind}"},
                {"RUN", .text = "{project}/{run}"},
                {"STATE", .text = "{state}"},
                {"PROGRESS", .cell = cell_progress, .kind = CLI_RIGHT},
                {"WHY", .cell = cell_why}},
};

static enum cairn_code ask_operation(const struct cli *cli, const char *id, const char *method,
                                     struct cli_patience *patience, json_t **ret,
                                     struct cairn_error *err) {
    char tail[100];
    if (strlen(id) > 64 || !id[0] || id[strspn(id, "abcdefghijklmnopqrstuvwxyz_0123456789")])
        return cairn_fail(err, CAIRN_INVALID, "\"%.80s\" is no operation: they begin with op_", id);
    snprintf(tail, sizeof tail, "/operations/%s", id);
    struct cli_call call = {.method = method, .tail = tail};
    if (!patience) return cli_call(cli, NULL, call, ret, err);
    call.wait_ms = CLI_LONG_POLL_MS;
    return cli_patient_call(patience, cli, NULL, call, ret, err);
}

static enum cairn_code wait_for_operation(struct cli *cli, const char *id,
                                          struct cairn_error *err) {
    struct cli_patience patience = {.deadline = cli_begin_wait(cli, WAIT_DEFAULT_MS)};
    for (;;) {
        CAIRN_AUTO_JSON json_t *json = NULL;
        uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, patience.deadline);
        CAIRN_TRY(ask_operation(cli, id, NULL, &patience, &json, err));
        CLI_READ(operation_row, row, json, err);
        bool over = strcmp(row.state, "queued") != 0 && strcmp(row.state, "running") != 0;
        if (!over && left_ms) continue;
        CAIRN_TRY(cli_print_one(cli, json, &operation_table, err));
        return over ? cli_operation_end(&row, err)
                    : cairn_fail(err, CAIRN_TIMEOUT, "%s is %s yet", row.id, row.state);
    }
}

static enum cairn_code run_operation(struct cli *cli, struct cairn_error *err) {
    const char *what = cli->arguments[0];
    CAIRN_AUTO_JSON json_t *json = NULL;
    bool lists = !strcmp(what, "ls"), waits = !strcmp(what, "wait");
    bool cancels = !strcmp(what, "cancel");
    if ((!lists && !waits && !cancels && strcmp(what, "show") != 0) ||
        cli->argument_count != (lists ? 1 : 2))
        return cairn_fail(err, CAIRN_INVALID,
                          "cairn operation ls, or cairn operation show|wait|cancel ID");
    if (lists) {
        CAIRN_AUTO_JSON json_t *items = json_array();
        bool more = false;
        CAIRN_TRY(cli_list(cli, NULL, "/operations", cli->limit ? cli->limit : LIST_DEFAULT, items,
                           &more, err));
        CAIRN_TRY(cli_print(cli, items, &operation_table, err));
        if (more) cli_note("there are older ones: --limit");
        return CAIRN_OK;
    }
    if (waits) return wait_for_operation(cli, cli->arguments[1], err);
    CAIRN_TRY(ask_operation(cli, cli->arguments[1], cancels ? "DELETE" : NULL, NULL, &json, err));
    return cli_print_one(cli, json, &operation_table, err);
}

const struct cli_verb cli_verb_operation = {
    CLI_VERB(operation),
    .synopsis = "cairn operation ls|show|wait|cancel [flags] [ID]",
    .purpose = "Long work of the server, such as an import: its progress and its result.",
    .examples = "  cairn operation ls\n"
                "  cairn operation wait op_01a2... --timeout 1h\n"
                "  cairn operation cancel op_01a2...\n",
    CLI_TAKES(operation_flags, 1, 2),
};

#define RETRY_MS 500 /* if the server does not long-poll for a missing version */

static const struct cli_flag wait_flags[] = {
    {"for", 0, CLI_TEXT, CLI_AT(wait_for), 0, "STATE",
     "committed (the default), or begun, decided, staged, durable, aborted, promoted:STORE, "
     "trashed, deleted, gone."},
    {"newer-than", 0, CLI_TEXT, CLI_AT(newer_than), 0, "STEP|ID",
     "Of a run: until its latest checkpoint is of a later step, or another than this version."},
};

/* ---- the awaited version ---- */

struct look {
    struct cairn_awaited what;
    struct cli_patience patience;
    struct cairn_msg_version_row version; /* points into json */
    enum cairn_outcome outcome;           /* read from json */
    json_t *json;                         /* NULL: never seen */
    bool deleted;                         /* deleted, or its row has been removed */
};

static bool is_in(const struct look *look, const char *state) {
    return look->json && !strcmp(look->version.state, state);
}

/* Nothing is left to print. */
static bool is_deleted(const struct look *look) {
    bool over = is_in(look, "deleting") || is_in(look, "gone");
    return look->deleted || (over && look->version.committed_at);
}

/* The awaited state, as "promoted". */
static const char *word_of(const struct look *look, char ret[16]) {
    struct cairn_view word = cairn_awaited_word(look->what.state);
    snprintf(ret, 16, "%.*s", (int)word.size, (const char *)word.data);
    return ret;
}

/* CAIRN_NOT_YET: no such version yet. */
static enum cairn_code look_once(const struct cli *cli, struct cli_ref *ref, struct look *look,
                                 struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    char tail[80], word[16];
    snprintf(tail, sizeof tail, "?for=%s%s%s", word_of(look, word), look->what.store[0] ? ":" : "",
             look->what.store);
    struct cli_call call = {.tail = tail, .wait_ms = CLI_LONG_POLL_MS};
    enum cairn_code code = cli_patient_call(&look->patience, cli, ref, call, &json, err);
    bool none = code == CAIRN_NOT_FOUND || code == CAIRN_NOT_YET;
    bool trimmed = none && look->json; /* the row was removed after the deletion */
    look->deleted = code == CAIRN_DELETED || trimmed;
    if (look->deleted)
        look->outcome = cairn_awaited_is_removal(look->what.state) ? CAIRN_OUTCOME_REACHED
                                                                   : CAIRN_OUTCOME_NEVER;
    if (look->deleted) return CAIRN_OK;
    CAIRN_TRY(code);
    json_decref(look->json);
    look->json = CAIRN_TAKE(json);
    look->version = (struct cairn_msg_version_row){0};
    CAIRN_TRY(cli_reply_read(CAIRN_MESSAGE_version_row, look->json, &look->version, err));
    code = cairn_outcome_parse(look->version.awaited ? look->version.awaited : "", &look->outcome,
                               err);
    if (code) return cairn_within(err, code, "the server's answer");
    /* From now on by id: a step or name may mean another version. */
    if (look->what.state != CAIRN_AWAITED_COMMITTED)
        (void)cairn_text_copy(ref->version, sizeof ref->version, look->version.version);
    return CAIRN_OK;
}

static enum cairn_code say_late(const struct cli *cli, const struct look *look,
                                struct cairn_error *err) {
    const char *what = cli->arguments[0];
    const struct cairn_msg_version_row *version = &look->version;
    char word[16];
    if (!look->json)
        return cairn_fail(err, CAIRN_TIMEOUT,
                          "there is no checkpoint %s, and none was begun while waiting", what);
    if (is_in(look, "open"))
        return cairn_fail(
            err, CAIRN_TIMEOUT,
            "%s is still open; ranks sealed: %llu of %llu, shards registered: %llu of "
            "%llu",
            what, (unsigned long long)version->ranks_sealed,
            (unsigned long long)version->world_size, (unsigned long long)version->shards_registered,
            (unsigned long long)version->shards);
    return cairn_fail(err, CAIRN_TIMEOUT, "%s is %s and not %s yet", what,
                      is_deleted(look) ? "deleted" : version->state, word_of(look, word));
}

static enum cairn_code wait_for(const struct cli *cli, struct cli_ref *ref, struct look *look,
                                struct cairn_error *err) {
    for (;;) {
        uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, look->patience.deadline);
        enum cairn_code code = look_once(cli, ref, look, err);
        if (code && code != CAIRN_NOT_YET) return code;
        enum cairn_outcome outcome = code ? CAIRN_OUTCOME_NOT_YET : look->outcome;
        if (outcome == CAIRN_OUTCOME_NEVER) {
            const char *what = cli->arguments[0];
            char buffer[16];
            const char *word = word_of(look, buffer);
            if (look->deleted)
                return cairn_fail(err, CAIRN_DELETED, "%s was deleted and will not be %s", what,
                                  word);
            if (is_in(look, "committed"))
                return cairn_fail(err, CAIRN_ALREADY_COMMITTED,
                                  "%s is committed and will not be %s", what, word);
            return cairn_fail(err, CAIRN_ABORTED, "%s is %s and will not be %s: %s", what,
                              look->version.state, word,
                              look->version.reason ? look->version.reason : "no reason is given");
        }
        if (outcome == CAIRN_OUTCOME_REACHED) break;
        if (!left_ms) return say_late(cli, look, err);
        if (code) (void)poll(NULL, 0, (int)cairn_min_u64(left_ms, RETRY_MS));
    }
    if (is_deleted(look)) return CAIRN_OK;
    json_object_del(look->json, "awaited"); /* printed as by `show` */
    return cli_print_version(cli, look->json, err);
}

/* ---- waiting for the next version ---- */

static enum cairn_code check_newer_than(const struct cli *cli, const struct cli_ref *ref,
                                        struct cairn_error *err) {
    const char *text = cli->newer_than;
    if (strcmp(ref->version, "latest"))
        return cairn_fail(err, CAIRN_INVALID, "--newer-than: name the run alone, or run@latest");
    if (*text && strlen(text) < 64 && !text[strspn(text, "0123456789abcdefghijklmnopqrstuvwxyz_-")])
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "--newer-than takes a step or a version id");
}

static enum cairn_code run_wait(struct cli *cli, struct cairn_error *err) {
    struct cli_ref ref;
    struct look look = {0};
    enum cairn_code said =
        cairn_awaited_parse(cli->wait_for ? cli->wait_for : "committed", &look.what, err);
    if (said) return cairn_within(err, said, "--for");
    if (cairn_text_starts(cli->arguments[0], "op_") && !strchr(cli->arguments[0], '/')) {
        if (cli->wait_for || cli->newer_than)
            return cairn_fail(err, CAIRN_INVALID, "an operation is waited for to its end alone");
        return wait_for_operation(cli, cli->arguments[0], err);
    }
    CAIRN_TRY(cli_ref_latest(cli, &ref, err));
    look.patience.deadline = cli_begin_wait(cli, WAIT_DEFAULT_MS);
    if (cli->newer_than) CAIRN_TRY(check_newer_than(cli, &ref, err));
    if (cli->newer_than) {
        char tail[120];
        snprintf(tail, sizeof tail, "?newer_than=%s", cli->newer_than);
        for (;;) {
            CAIRN_AUTO_JSON json_t *json = NULL;
            uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, look.patience.deadline);
            struct cli_call call = {.tail = tail, .wait_ms = CLI_LONG_POLL_MS};
            enum cairn_code code = cli_patient_call(&look.patience, cli, &ref, call, &json, err);
            if (!code) return cli_print_version(cli, json, err);
            if (code != CAIRN_NOT_YET) return code;
            if (!left_ms)
                return cairn_fail(err, CAIRN_TIMEOUT, "%s has no checkpoint newer than %s yet",
                                  cli->arguments[0], cli->newer_than);
        }
    }
    enum cairn_code code = wait_for(cli, &ref, &look, err);
    json_decref(look.json);
    return code;
}

const struct cli_verb cli_verb_wait = {
    CLI_VERB(wait),
    .synopsis = "cairn wait [flags] project/run[@step]|OPERATION",
    .purpose = "Wait until a checkpoint is committed, or what --for says, or for the next one.",
    .examples = "  cairn wait llm/7b@1200 --timeout 10min\n"
                "  cairn wait llm/7b@1200 --for promoted:archive\n"
                "  cairn wait llm/7b --newer-than 1200 --json\n",
    CLI_TAKES(wait_flags, 1, 1),
    .surplus = "for",
};

/* ---- resume: the step from which a restarted job continues ---- */

static const struct cli_flag resume_flags[] = {
    {"or-none", 0, CLI_SWITCH, CLI_AT(or_none), 0, NULL,
     "Status 0 and no output for a run of a known project that has no checkpoint yet."},
};

static enum cairn_code run_resume(struct cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_msg_version_row version = {0};
    struct cli_ref ref;
    struct cairn_error why = {0};
    CAIRN_TRY(cli_ref_latest(cli, &ref, err));
    if (strcmp(ref.version, "latest") != 0)
        return cli_ref_run("resume", cli->arguments[0], &ref, err);
    enum cairn_code code = cli_call(cli, &ref, (struct cli_call){0}, &json, &why);
    if (code == CAIRN_NOT_FOUND) {
        /* A run without a checkpoint: a first run if the project exists, else probably a typo. */
        CAIRN_AUTO_JSON json_t *runs = json_array();
        CAIRN_AUTO(buf) path = {0};
        CAIRN_TRY(cairn_buf_printf(&path, err, "/runs?project=%s", ref.name.project));
        CAIRN_TRY(cli_list(cli, NULL, path.data, 1, runs, NULL, err));
        if (!json_array_size(runs))
            return cairn_fail(err, CAIRN_NOT_FOUND, "the server knows no project %s",
                              ref.name.project);
        if (!cli->or_none) return cairn_pass(err, CAIRN_NOT_FOUND, &why);
        if (cli_wants_json(cli)) puts("null");
        return cli_flush(err);
    }
    CAIRN_TRY(cairn_pass(err, code, &why));
    CAIRN_TRY(cli_reply_read(CAIRN_MESSAGE_version_row, json, &version, err));
    char damage[200];
    cli_damage_words(version.copies, damage, sizeof damage);
    if (damage[0])
        cli_note("cairn: note: step %llu is %s: cairn verify %s/%s@%llu --repair",
                 (unsigned long long)version.step, damage, version.project, version.run,
                 (unsigned long long)version.step);
    if (cli->output != CLI_TABLE) return cli_print_version(cli, json, err);
    printf("%llu\n", (unsigned long long)version.step);
    return cli_flush(err);
}

const struct cli_verb cli_verb_resume = {
    CLI_VERB(resume),
    .synopsis = "cairn resume [flags] project/run",
    .purpose = "Print the step from which a restarted job would resume.",
    .examples = "  cairn resume llm/7b\n  cairn resume llm/7b --output name\n"
                "  STEP=$(cairn resume llm/7b --or-none) || exit   (empty: a first run)\n",
    CLI_TAKES(resume_flags, 1, 1),
};

/* ---- abort: gives up a save ---- */

static const struct cli_flag abort_flags[] = {
    {"reason", 0, CLI_TEXT, CLI_AT(reason), 0, "TEXT",
     "Why; its ranks are told, and it stays with the checkpoint."},
    {"yes", 'y', CLI_SWITCH, CLI_AT(yes), 0, NULL, "Do not ask."},
};

static enum cairn_code confirm_abort(const struct cli *cli,
                                     const struct cairn_msg_version_row *version,
                                     struct cairn_error *err) {
    if (cli->yes || !isatty(STDIN_FILENO)) return CAIRN_OK;
    fprintf(stderr, "%s: step %llu, %llu of %llu ranks sealed. Give it up? [y/N] ",
            version->version, (unsigned long long)version->step,
            (unsigned long long)version->ranks_sealed, (unsigned long long)version->world_size);
    if (cli_says_yes()) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CANCELLED, "%s goes on", cli->arguments[0]);
}

/* Aborts by id, because a step may mean another version later. */
static enum cairn_code run_abort(struct cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *found = NULL, *body = NULL, *said = NULL;
    struct cairn_msg_version_row version = {0};
    struct cli_ref ref;
    CAIRN_TRY(cli_ref_parse(cli->arguments[0], &ref, err));
    if (!ref.version[0])
        return cairn_fail(err, CAIRN_INVALID, "name the save: %s@step", cli->arguments[0]);
    CAIRN_TRY(cli_get(cli, &ref, "", CAIRN_MESSAGE_version_row, &found, &version, err));
    if (!strcmp(version.state, "committed"))
        return cairn_fail(err, CAIRN_CONFLICT, "%s is committed; cairn rm puts it into the trash",
                          version.version);
    CAIRN_TRY(confirm_abort(cli, &version, err));
    (void)cairn_text_copy(ref.version, sizeof ref.version, version.version);
    body = json_pack("{s:s}", "reason", cli->reason ? cli->reason : "given up by cairn abort");
    if (!body) return cairn_fail(err, CAIRN_INVALID, "--reason is no UTF-8");
    struct cli_call call = {.method = "POST", .tail = "/abort", .body = body};
    CAIRN_TRY(cli_call(cli, &ref, call, &said, err));
    if (cli_wants_json(cli)) return cli_print_reply(cli, said, err);
    if (cli->output == CLI_NAME)
        puts(version.version);
    else
        printf("%s (step %llu) is given up\n", version.version, (unsigned long long)version.step);
    return cli_flush(err);
}

const struct cli_verb cli_verb_abort = {
    CLI_VERB(abort),
    .synopsis = "cairn abort [flags] project/run@step",
    .purpose = "Abort an unfinished save.",
    .examples = "  cairn abort llm/7b@1400\n  cairn abort llm/7b@1400 --reason \"node lost\"\n"
                "  cairn abort llm/7b@ckpt_... --yes --json\n",
    CLI_TAKES(abort_flags, 1, 1),
};
