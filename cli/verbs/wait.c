/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for saves and operations: cairn wait, until a checkpoint is in the state of --for, never
 * can be, or the run has a newer one; operation; resume; abort.
 *
 * Promise: 1   an ended operation is printed and decides the exit: its own code if it failed,
 *              CAIRN_CANCELLED if cancelled or interrupted, CAIRN_TIMEOUT after --timeout (10
 *              minutes by default).
 */

#include <inttypes.h>
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

static const struct cairn_cli_flag operation_flags[] = {
    {"limit", 'n', CAIRN_CLI_COUNT, CAIRN_CLI_AT(limit), 0, "N",
     "Of ls: how many, the newest first (100 by default)."},
};

static void cell_run(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s/%s", row->operation.project, row->operation.run);
}
static void cell_progress(const union cairn_cli_row *row, char *ret, size_t capacity) {
    struct cairn_msg_operation_progress at = {0};
    *ret = '\0';
    if (cairn_msg_operation_progress_read(row->operation.progress, "", &at, NULL) || !at.total)
        return;
    char done[24], total[24];
    if (strcmp(at.unit, "bytes") != 0) {
        snprintf(ret, capacity, "%" PRIu64 " of %" PRIu64 " %s", at.done, at.total, at.unit);
        return;
    }
    cairn_cli_size(at.done, done);
    cairn_cli_size(at.total, total);
    snprintf(ret, capacity, "%s of %s", done, total);
}
static void cell_why(const union cairn_cli_row *row, char *ret, size_t capacity) {
    struct cairn_error why = {0};
    *ret = '\0';
    if (!row->operation.problem) return;
    cairn_failure_get(row->operation.problem, "detail", &why);
    snprintf(ret, capacity, "%s", why.message);
}
static const struct cairn_cli_column operation_columns[] = {
    CAIRN_CLI_FIELD("OPERATION", operation, id),
    CAIRN_CLI_FIELD("KIND", operation, kind),
    CAIRN_CLI_CELL("RUN", cell_run),
    CAIRN_CLI_FIELD("STATE", operation, state),
    CAIRN_CLI_RIGHT_CELL("PROGRESS", cell_progress),
    CAIRN_CLI_CELL("WHY", cell_why),
};
static const struct cairn_cli_table operation_table =
    CAIRN_CLI_ROWS(operation_row, operation_columns, 0, CAIRN_CLI_FIELD(NULL, operation, id));

/* Whether text is an operation's id and no run. */
static bool is_operation(const char *text) {
    return cairn_text_starts(text, "op_") && !strchr(text, '/');
}

static enum cairn_code ask_operation(const struct cairn_cli *cli, const char *id,
                                     const char *method, struct cairn_cli_patience *patience,
                                     json_t **ret, struct cairn_error *err) {
    char tail[100];
    if (strlen(id) > 64 || !id[0] || id[strspn(id, "abcdefghijklmnopqrstuvwxyz_0123456789")])
        return cairn_fail(err, CAIRN_INVALID, "\"%.80s\" is no operation: they begin with op_", id);
    snprintf(tail, sizeof tail, "/operations/%s", id);
    struct cairn_cli_call call = {.method = method, .tail = tail};
    if (!patience) return cairn_cli_call(cli, NULL, call, ret, err);
    call.wait_ms = CAIRN_CLI_LONG_POLL_MS;
    return cairn_cli_patient_call(patience, cli, NULL, call, ret, err);
}

static enum cairn_code wait_for_operation(struct cairn_cli *cli, const char *id,
                                          struct cairn_error *err) {
    struct cairn_cli_patience patience = {.deadline = cairn_cli_begin_wait(cli, WAIT_DEFAULT_MS)};
    for (;;) {
        CAIRN_AUTO_JSON json_t *json = NULL;
        struct cairn_msg_operation_row row = {0};
        uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, patience.deadline);
        CAIRN_TRY(ask_operation(cli, id, NULL, &patience, &json, err));
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_operation_row, json, &row, err));
        bool over = strcmp(row.state, "queued") != 0 && strcmp(row.state, "running") != 0;
        if (!over && left_ms) continue;
        CAIRN_TRY(cairn_cli_print_one(cli, json, &operation_table, err));
        return over ? cairn_cli_operation_end(&row, err)
                    : cairn_fail(err, CAIRN_TIMEOUT, "%s is %s yet", row.id, row.state);
    }
}

static enum cairn_code list_operations(const struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *items = json_array();
    bool more = false;
    CAIRN_TRY(cairn_cli_list(cli, NULL, "/operations", cli->limit ? cli->limit : LIST_DEFAULT,
                             items, &more, err));
    CAIRN_TRY(cairn_cli_print(cli, items, &operation_table, err));
    if (more) cairn_cli_note("there are older ones: --limit");
    return CAIRN_OK;
}

static enum cairn_code run_operation(struct cairn_cli *cli, struct cairn_error *err) {
    const char *what = cli->arguments[0];
    CAIRN_AUTO_JSON json_t *json = NULL;
    bool lists = !strcmp(what, "ls"), waits = !strcmp(what, "wait");
    bool cancels = !strcmp(what, "cancel");
    if ((!lists && !waits && !cancels && strcmp(what, "show") != 0) ||
        cli->argument_count != (lists ? 1 : 2))
        return cairn_fail(err, CAIRN_INVALID,
                          "cairn operation ls, or cairn operation show|wait|cancel ID");
    if (lists) return list_operations(cli, err);
    if (waits) return wait_for_operation(cli, cli->arguments[1], err);
    CAIRN_TRY(ask_operation(cli, cli->arguments[1], cancels ? "DELETE" : NULL, NULL, &json, err));
    return cairn_cli_print_one(cli, json, &operation_table, err);
}

const struct cairn_cli_verb cairn_cli_verb_operation = {
    .name = "operation",
    .synopsis = "cairn operation ls|show|wait|cancel [flags] [ID]",
    .purpose = "What the server does for somebody, as imports: how far it is, and its end.",
    .examples = "  cairn operation ls\n"
                "  cairn operation wait op_01a2... --timeout 1h\n"
                "  cairn operation cancel op_01a2...\n",
    CAIRN_CLI_FLAGS(operation_flags),
    CAIRN_CLI_ARGUMENTS(1, 2),
    .run = run_operation,
};

#define RETRY_MS 500 /* if the server does not long-poll for a missing version */

static const struct cairn_cli_flag wait_flags[] = {
    {"for", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(wait_for), 0, "STATE",
     "committed (the default), or begun, decided, staged, durable, aborted, promoted:STORE, "
     "trashed, deleted, gone."},
    {"newer-than", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(newer_than), 0, "STEP|ID",
     "Of a run: until its latest checkpoint is of a later step, or another than this version."},
};

/* ---- the awaited version ---- */

struct look {
    struct cairn_awaited what;
    struct cairn_cli_patience patience;
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

static enum cairn_code ask_version(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                   struct look *look, json_t **ret, struct cairn_error *err) {
    char tail[80], word[16];
    snprintf(tail, sizeof tail, "?for=%s%s%s", word_of(look, word), look->what.store[0] ? ":" : "",
             look->what.store);
    struct cairn_cli_call call = {.tail = tail, .wait_ms = CAIRN_CLI_LONG_POLL_MS};
    return cairn_cli_patient_call(&look->patience, cli, ref, call, ret, err);
}

/* CAIRN_NOT_YET: no such version yet. */
static enum cairn_code look_once(const struct cairn_cli *cli, struct cairn_cli_ref *ref,
                                 struct look *look, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    enum cairn_code code = ask_version(cli, ref, look, &json, err);
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
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_version_row, look->json, &look->version, err));
    code = cairn_outcome_parse(look->version.awaited ? look->version.awaited : "", &look->outcome,
                               err);
    if (code) return cairn_within(err, code, "the server's answer");
    /* From now on by id: a step or name may mean another version. */
    if (look->what.state != CAIRN_AWAITED_COMMITTED)
        (void)cairn_text_copy(ref->version, sizeof ref->version, look->version.version);
    return CAIRN_OK;
}

static enum cairn_code say_never(const struct cairn_cli *cli, const struct look *look,
                                 struct cairn_error *err) {
    const char *what = cli->arguments[0];
    char buffer[16];
    const char *word = word_of(look, buffer);
    if (look->deleted)
        return cairn_fail(err, CAIRN_DELETED, "%s was deleted and will not be %s", what, word);
    if (is_in(look, "committed"))
        return cairn_fail(err, CAIRN_ALREADY_COMMITTED, "%s is committed and will not be %s", what,
                          word);
    return cairn_fail(err, CAIRN_ABORTED, "%s is %s and will not be %s: %s", what,
                      look->version.state, word,
                      look->version.reason ? look->version.reason : "no reason is given");
}

static enum cairn_code say_late(const struct cairn_cli *cli, const struct look *look,
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

static enum cairn_code wait_for(const struct cairn_cli *cli, struct cairn_cli_ref *ref,
                                struct look *look, struct cairn_error *err) {
    for (;;) {
        uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, look->patience.deadline);
        enum cairn_code code = look_once(cli, ref, look, err);
        if (code && code != CAIRN_NOT_YET) return code;
        enum cairn_outcome outcome = code ? CAIRN_OUTCOME_NOT_YET : look->outcome;
        if (outcome == CAIRN_OUTCOME_NEVER) return say_never(cli, look, err);
        if (outcome == CAIRN_OUTCOME_REACHED) break;
        if (!left_ms) return say_late(cli, look, err);
        if (code) (void)poll(NULL, 0, (int)cairn_min_u64(left_ms, RETRY_MS));
    }
    if (is_deleted(look)) return CAIRN_OK;
    json_object_del(look->json, "awaited"); /* printed as by `show` */
    return cairn_cli_print_version(cli, look->json, err);
}

/* ---- waiting for the next version ---- */

static enum cairn_code wait_newer(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                  struct cairn_cli_patience *patience, struct cairn_error *err) {
    char tail[120];
    snprintf(tail, sizeof tail, "?newer_than=%s", cli->newer_than);
    for (;;) {
        CAIRN_AUTO_JSON json_t *json = NULL;
        uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, patience->deadline);
        struct cairn_cli_call call = {.tail = tail, .wait_ms = CAIRN_CLI_LONG_POLL_MS};
        enum cairn_code code = cairn_cli_patient_call(patience, cli, ref, call, &json, err);
        if (!code) return cairn_cli_print_version(cli, json, err);
        if (code != CAIRN_NOT_YET) return code;
        if (!left_ms)
            return cairn_fail(err, CAIRN_TIMEOUT, "%s has no checkpoint newer than %s yet",
                              cli->arguments[0], cli->newer_than);
    }
}

static enum cairn_code check_newer(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                   struct cairn_error *err) {
    const char *text = cli->newer_than;
    if (strcmp(ref->version, "latest"))
        return cairn_fail(err, CAIRN_INVALID, "--newer-than: name the run alone, or run@latest");
    if (*text && strlen(text) < 64 && !text[strspn(text, "0123456789abcdefghijklmnopqrstuvwxyz_-")])
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "--newer-than takes a step or a version id");
}

static enum cairn_code run_wait(struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_ref ref;
    struct look look = {0};
    enum cairn_code said =
        cairn_awaited_parse(cli->wait_for ? cli->wait_for : "committed", &look.what, err);
    if (said) return cairn_within(err, said, "--for");
    if (is_operation(cli->arguments[0])) {
        if (cli->wait_for || cli->newer_than)
            return cairn_fail(err, CAIRN_INVALID, "an operation is waited for to its end alone");
        return wait_for_operation(cli, cli->arguments[0], err);
    }
    CAIRN_TRY(cairn_cli_ref_latest(cli, &ref, err));
    look.patience.deadline = cairn_cli_begin_wait(cli, WAIT_DEFAULT_MS);
    if (cli->newer_than) CAIRN_TRY(check_newer(cli, &ref, err));
    if (cli->newer_than) return wait_newer(cli, &ref, &look.patience, err);
    enum cairn_code code = wait_for(cli, &ref, &look, err);
    json_decref(look.json);
    return code;
}

const struct cairn_cli_verb cairn_cli_verb_wait = {
    .name = "wait",
    .synopsis = "cairn wait [flags] project/run[@step]|OPERATION",
    .purpose = "Wait until a checkpoint is committed, or what --for says, or for the next one.",
    .examples = "  cairn wait llm/7b@1200 --timeout 10min\n"
                "  cairn wait llm/7b@1200 --for promoted:archive\n"
                "  cairn wait llm/7b --newer-than 1200 --json\n",
    CAIRN_CLI_FLAGS(wait_flags),
    CAIRN_CLI_ARGUMENTS(1, 1),
    .run = run_wait,
};

/* ---- resume: the step from which a restarted job continues ---- */

static const struct cairn_cli_flag resume_flags[] = {
    {"or-none", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(or_none), 0, NULL,
     "Status 0 and no output for a run of a known project that has no checkpoint yet."},
};

/* A run without a checkpoint: a first run if the project exists, else probably a typo. */
static enum cairn_code print_none(const struct cairn_cli *cli, const struct cairn_cli_ref *asked,
                                  const struct cairn_error *why, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *runs = json_array();
    CAIRN_AUTO(buf) path = {0};
    CAIRN_TRY(cairn_buf_printf(&path, err, "/runs?project=%s", asked->name.project));
    CAIRN_TRY(cairn_cli_list(cli, NULL, path.data, 1, runs, NULL, err));
    if (!json_array_size(runs))
        return cairn_fail(err, CAIRN_NOT_FOUND, "the server knows no project %s",
                          asked->name.project);
    if (!cli->or_none) {
        if (err) *err = *why;
        return CAIRN_NOT_FOUND;
    }
    if (cairn_cli_wants_json(cli)) puts("null");
    return cairn_cli_flush(err);
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
    return cairn_cli_flush(err);
}

const struct cairn_cli_verb cairn_cli_verb_resume = {
    .name = "resume",
    .synopsis = "cairn resume [flags] project/run",
    .purpose = "Print the step that a restarted job would go on from.",
    .examples = "  cairn resume llm/7b\n  cairn resume llm/7b --output name\n"
                "  STEP=$(cairn resume llm/7b --or-none) || exit   (empty: a first run)\n",
    CAIRN_CLI_FLAGS(resume_flags),
    CAIRN_CLI_ARGUMENTS(1, 1),
    .run = run_resume,
};

/* ---- abort: gives up a save ---- */

static const struct cairn_cli_flag abort_flags[] = {
    {"reason", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(reason), 0, "TEXT",
     "Why; its ranks are told, and it stays with the checkpoint."},
    {"yes", 'y', CAIRN_CLI_SWITCH, CAIRN_CLI_AT(yes), 0, NULL, "Do not ask."},
};

static enum cairn_code confirm_abort(const struct cairn_cli *cli,
                                     const struct cairn_msg_version_row *version,
                                     struct cairn_error *err) {
    if (cli->yes || !isatty(STDIN_FILENO)) return CAIRN_OK;
    fprintf(stderr, "%s: step %llu, %llu of %llu ranks sealed. Give it up? [y/N] ",
            version->version, (unsigned long long)version->step,
            (unsigned long long)version->ranks_sealed, (unsigned long long)version->world_size);
    if (cairn_cli_says_yes()) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CANCELLED, "%s goes on", cli->arguments[0]);
}

/* Aborts by id, because a step may mean another version later. */
static enum cairn_code run_abort(struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *found = NULL, *body = NULL, *said = NULL;
    struct cairn_msg_version_row version = {0};
    struct cairn_cli_ref ref;
    CAIRN_TRY(cairn_cli_ref_parse(cli->arguments[0], &ref, err));
    if (!ref.version[0])
        return cairn_fail(err, CAIRN_INVALID, "name the save: %s@step", cli->arguments[0]);
    CAIRN_TRY(cairn_cli_get(cli, &ref, "", CAIRN_MESSAGE_version_row, &found, &version, err));
    if (!strcmp(version.state, "committed"))
        return cairn_fail(err, CAIRN_CONFLICT, "%s is committed; cairn rm puts it into the trash",
                          version.version);
    CAIRN_TRY(confirm_abort(cli, &version, err));
    (void)cairn_text_copy(ref.version, sizeof ref.version, version.version);
    body = json_pack("{s:s}", "reason", cli->reason ? cli->reason : "given up by cairn abort");
    if (!body) return cairn_fail(err, CAIRN_INVALID, "--reason is no UTF-8");
    struct cairn_cli_call call = {.method = "POST", .tail = "/abort", .body = body};
    CAIRN_TRY(cairn_cli_call(cli, &ref, call, &said, err));
    if (cairn_cli_wants_json(cli)) return cairn_cli_print_reply(cli, said, err);
    if (cli->output == CAIRN_CLI_NAME)
        puts(version.version);
    else
        printf("%s (step %llu) is given up\n", version.version, (unsigned long long)version.step);
    return cairn_cli_flush(err);
}

const struct cairn_cli_verb cairn_cli_verb_abort = {
    .name = "abort",
    .synopsis = "cairn abort [flags] project/run@step",
    .purpose = "Give up a save that is under way, or that will never end.",
    .examples = "  cairn abort llm/7b@1400\n  cairn abort llm/7b@1400 --reason \"node lost\"\n"
                "  cairn abort llm/7b@ckpt_... --yes --json\n",
    CAIRN_CLI_FLAGS(abort_flags),
    CAIRN_CLI_ARGUMENTS(1, 1),
    .run = run_abort,
};
