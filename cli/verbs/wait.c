/* SPDX-License-Identifier: Apache-2.0 */
/* cairn wait: until a checkpoint is what --for says, or can no longer be, or the time is over;
 * until the run has a newer one; until an operation has ended. */
#include <poll.h>
#include <stdio.h>

#include "api/wire/words.h"
#include "cli/output.h"
#include "cli/patience.h"
#include "cli/verbs/operation.h"
#include "common/clock.h"
#include "common/text.h"

#define TIMEOUT_DEFAULT_MS 600000
#define RETRY_MS 500       /* where the server does not hold the answer that there is none */

static const struct cairn_cli_flag flags[] = {
    {"for", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(wait_for), 0, "STATE",
     "committed (the default), or begun, decided, staged, durable, aborted, promoted:STORE, "
     "trashed, deleted, gone."},
    {"newer-than", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(newer_than), 0, "STEP|ID",
     "Of a run: until its latest checkpoint is of a later step, or another than this version."},
};

/* ---- what is waited for ---- */

struct look {
    struct cairn_awaited what;
    struct cairn_cli_patience patience;
    struct cairn_msg_version_row version; /* of json */
    enum cairn_outcome outcome;           /* of json */
    json_t *json;                         /* NULL: it was never seen */
    bool deleted;                         /* the answer was that, or its row is gone by now */
};

static bool is_in(const struct look *look, const char *state) {
    return look->json && !strcmp(look->version.state, state);
}

/* Nothing of it can be printed any more. */
static bool is_deleted(const struct look *look) {
    bool over = is_in(look, "deleting") || is_in(look, "gone");
    return look->deleted || (over && look->version.committed_at);
}

/* "promoted" */
static const char *word_of(const struct look *look, char ret[16]) {
    struct cairn_view word = cairn_awaited_word(look->what.state);
    snprintf(ret, 16, "%.*s", (int)word.size, (const char *)word.data);
    return ret;
}

/* ---- looking ---- */

static enum cairn_code ask(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                           struct look *look, json_t **ret, struct cairn_error *err) {
    char tail[80], word[16];
    snprintf(tail, sizeof tail, "?for=%s%s%s", word_of(look, word), look->what.store[0] ? ":" : "",
             look->what.store);
    struct cairn_cli_call call = {.tail = tail, .wait_ms = CAIRN_CLI_LONG_POLL_MS};
    return cairn_cli_patient_call(&look->patience, cli, ref, call, ret, err);
}

/* CAIRN_NOT_YET: the run has none yet. */
static enum cairn_code look_once(const struct cairn_cli *cli, struct cairn_cli_ref *ref,
                                 struct look *look, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    enum cairn_code code = ask(cli, ref, look, &json, err);
    bool none = code == CAIRN_NOT_FOUND || code == CAIRN_NOT_YET;
    bool trimmed = none && look->json; /* its row, long after it is gone */
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
    /* A step or a name may mean another version when this one goes. */
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
    json_object_del(look->json, "awaited"); /* it is printed as `show` prints it */
    return cairn_cli_print_version(cli, look->json, err);
}

/* ---- the next one ---- */

static enum cairn_code wait_newer(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                  struct cairn_cli_patience *patience,
                                  struct cairn_error *err) {
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

static enum cairn_code run(struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_ref ref;
    struct look look = {0};
    enum cairn_code said =
        cairn_awaited_parse(cli->wait_for ? cli->wait_for : "committed", &look.what, err);
    if (said) return cairn_within(err, said, "--for");
    if (cairn_cli_is_operation(cli->arguments[0])) {
        if (cli->wait_for || cli->newer_than)
            return cairn_fail(err, CAIRN_INVALID, "an operation is waited for to its end alone");
        return cairn_cli_operation_wait(cli, cli->arguments[0], err);
    }
    CAIRN_TRY(cairn_cli_ref_latest(cli, &ref, err));
    uint64_t timeout_ms = cli->timeout_ms ? cli->timeout_ms : TIMEOUT_DEFAULT_MS;
    look.patience.deadline = cairn_deadline_in(&cairn_clock_real, timeout_ms);
    cli->timeout_ms = 0; /* of the whole wait, not of each request */
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
    .flags = flags,
    .flag_count = CAIRN_COUNT(flags),
    .arguments_min = 1,
    .arguments_max = 1,
    .run = run,
};
