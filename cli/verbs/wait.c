/* SPDX-License-Identifier: Apache-2.0 */
/* cairn wait: until a checkpoint is what --for says, or can no longer be, or the time is over;
 * until the run has a newer one; until an operation has ended. */
#include <poll.h>
#include <stdio.h>

#include "cli/output.h"
#include "cli/verbs/operation.h"
#include "common/clock.h"
#include "common/text.h"

#define TIMEOUT_DEFAULT_MS 600000
#define LONG_POLL_MS 30000 /* below the time after which proxies close an idle connection */
#define RETRY_MS 500       /* while there is no such checkpoint */
#define LOOK_MS 1000       /* at what the server does not hold an answer for */
#define GOALS "begun, staged, durable, committed, aborted, promoted:STORE, trashed, deleted or gone"

static const struct cairn_cli_flag flags[] = {
    {"for", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(wait_for), 0, "STATE",
     "committed (the default), or begun, staged, durable, aborted, promoted:STORE, trashed, "
     "deleted, gone."},
    {"newer-than", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(newer_than), 0, "STEP|ID",
     "Of a run: until its latest checkpoint is of a later step, or another than this version."},
};

/* ---- what is waited for ---- */

enum outcome { NOT_YET, REACHED, NEVER };
struct look {
    struct cairn_msg_version_row version; /* of json */
    json_t *json;                         /* NULL: it was never seen */
    const char *store;                    /* of promoted */
    bool deleted, gone;
};
struct goal {
    const char *name;
    enum outcome (*judge)(const struct look *look);
    bool removal; /* of what has to be there first */
};

static bool is_in(const struct look *look, const char *state) {
    return look->json && !strcmp(look->version.state, state);
}

static bool is_given_up(const struct look *look) {
    return look->json && !is_in(look, "open") && !is_in(look, "committed");
}

static enum outcome judge_begun(const struct look *look) {
    return look->json ? REACHED : NOT_YET;
}

/* What its ranks have handed over is what training may forget of it. */
static enum outcome judge_staged(const struct look *look) {
    if (is_given_up(look) || look->deleted) return NEVER;
    bool sealed = look->version.ranks_sealed >= look->version.world_size;
    return is_in(look, "committed") || sealed ? REACHED : NOT_YET;
}

static enum outcome judge_durable(const struct look *look) {
    enum outcome staged = judge_staged(look);
    bool stored = look->version.shards_registered >= look->version.shards;
    return staged != REACHED || is_in(look, "committed") || stored ? staged : NOT_YET;
}

static enum outcome judge_committed(const struct look *look) {
    if (is_given_up(look) || look->deleted) return NEVER;
    return is_in(look, "committed") ? REACHED : NOT_YET;
}

static enum outcome judge_aborted(const struct look *look) {
    if (is_in(look, "committed") || look->deleted) return NEVER;
    return is_given_up(look) ? REACHED : NOT_YET;
}

static enum outcome judge_promoted(const struct look *look) {
    size_t index = 0;
    json_t *item = NULL;
    if (is_given_up(look) || look->deleted) return NEVER;
    json_array_foreach((json_t *)(uintptr_t)look->version.copies, index, item) {
        struct cairn_msg_copy_row copy = {0};
        if (cairn_msg_copy_row_read(item, "", &copy, NULL)) continue;
        if (!strcmp(copy.store, look->store) && !strcmp(copy.state, "whole")) return REACHED;
    }
    return NOT_YET;
}

static enum outcome judge_trashed(const struct look *look) {
    if (is_given_up(look)) return NEVER;
    return look->deleted || look->version.trashed ? REACHED : NOT_YET;
}

static enum outcome judge_deleted(const struct look *look) {
    if (is_given_up(look)) return NEVER;
    return look->deleted ? REACHED : NOT_YET;
}

/* Also of what was given up: its objects go as well. */
static enum outcome judge_gone(const struct look *look) {
    return look->gone || is_in(look, "gone") ? REACHED : NOT_YET;
}

static const struct goal goals[] = {
    {"begun", judge_begun, false},         {"staged", judge_staged, false},
    {"durable", judge_durable, false},     {"committed", judge_committed, false},
    {"aborted", judge_aborted, false},     {"promoted", judge_promoted, false},
    {"trashed", judge_trashed, true},      {"deleted", judge_deleted, true},
    {"gone", judge_gone, true},
};

static enum cairn_code find_goal(const char *text, const struct goal **ret, struct look *look,
                                 struct cairn_error *err) {
    const char *colon = strchr(text, ':');
    size_t size = colon ? (size_t)(colon - text) : strlen(text);
    for (size_t i = 0; i < CAIRN_COUNT(goals); i++) {
        bool named = strlen(goals[i].name) == size && !memcmp(goals[i].name, text, size);
        bool of_store = goals[i].judge == judge_promoted;
        if (!named || of_store != (colon && colon[1])) continue;
        look->store = of_store ? colon + 1 : NULL;
        *ret = &goals[i];
        return CAIRN_OK;
    }
    return cairn_fail(err, CAIRN_INVALID, "--for takes " GOALS ", not %.64s", text);
}

/* ---- looking ---- */

static enum cairn_code ask(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                           const struct goal *goal, uint64_t left_ms, json_t **ret,
                           struct cairn_error *err) {
    struct cairn_cli_call call = {0};
    if (goal->judge == judge_committed)
        call = (struct cairn_cli_call){.tail = "?for=committed",
                                       .wait_ms = (uint32_t)cairn_min_u64(left_ms, LONG_POLL_MS)};
    return cairn_cli_call(cli, ref, call, ret, err);
}

/* What is deleted is no answer of its own any more; its history is kept for longer. */
static enum cairn_code look_for_its_end(const struct cairn_cli *cli,
                                        const struct cairn_cli_ref *ref, struct look *look,
                                        struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    size_t index = 0;
    json_t *item = NULL;
    struct cairn_cli_call call = {.tail = "/events?limit=1000"};
    enum cairn_code code = cairn_cli_call(cli, ref, call, &reply, err);
    look->gone = code == CAIRN_NOT_FOUND; /* its row is trimmed by now */
    if (code) return look->gone ? CAIRN_OK : code;
    json_array_foreach(json_object_get(reply, "items"), index, item) {
        struct cairn_msg_event_row event = {0};
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_event_row, item, &event, err));
        look->gone |= !strcmp(event.event, "checkpoint.gone");
    }
    return CAIRN_OK;
}

/* CAIRN_NOT_FOUND: there is none yet, or, of a removal, none at all. */
static enum cairn_code look_once(const struct cairn_cli *cli, struct cairn_cli_ref *ref,
                                 const struct goal *goal, uint64_t left_ms, struct look *look,
                                 struct cairn_error *err) {
    json_t *json = NULL;
    enum cairn_code code = ask(cli, ref, goal, left_ms, &json, err);
    if (code == CAIRN_NOT_FOUND && look->json) look->gone = look->deleted = true;
    if (code == CAIRN_DELETED) look->deleted = true;
    if (look->deleted && goal->judge == judge_gone && !look->gone)
        return look_for_its_end(cli, ref, look, err);
    if (look->deleted) return CAIRN_OK;
    CAIRN_TRY(code);
    json_decref(look->json);
    look->json = json;
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_version_row, json, &look->version, err));
    /* A step or a name may mean another version when this one goes. */
    if (goal->judge != judge_committed)
        (void)cairn_text_copy(ref->version, sizeof ref->version, look->version.version);
    return CAIRN_OK;
}

static enum cairn_code say_never(const struct cairn_cli *cli, const struct goal *goal,
                                 const struct look *look, struct cairn_error *err) {
    const char *what = cli->arguments[0];
    if (look->deleted)
        return cairn_fail(err, CAIRN_DELETED, "%s was deleted and will not be %s", what,
                          goal->name);
    if (is_in(look, "committed"))
        return cairn_fail(err, CAIRN_ALREADY_COMMITTED, "%s is committed and will not be %s", what,
                          goal->name);
    return cairn_fail(err, CAIRN_ABORTED, "%s is %s and will not be %s: %s", what,
                      look->version.state, goal->name,
                      look->version.reason ? look->version.reason : "no reason is given");
}

static enum cairn_code say_late(const struct cairn_cli *cli, const struct goal *goal,
                                const struct look *look, struct cairn_error *err) {
    const char *what = cli->arguments[0];
    const struct cairn_msg_version_row *version = &look->version;
    if (!look->json && !look->deleted)
        return cairn_fail(err, CAIRN_TIMEOUT,
                          "there is no checkpoint %s, and none was begun while waiting", what);
    if (is_in(look, "open") && !look->deleted)
        return cairn_fail(
            err, CAIRN_TIMEOUT,
            "%s is still open; ranks sealed: %llu of %llu, shards registered: %llu of "
            "%llu",
            what, (unsigned long long)version->ranks_sealed,
            (unsigned long long)version->world_size, (unsigned long long)version->shards_registered,
            (unsigned long long)version->shards);
    return cairn_fail(err, CAIRN_TIMEOUT, "%s is %s and not %s yet", what,
                      look->deleted ? "deleted" : version->state, goal->name);
}

static enum cairn_code wait_for(const struct cairn_cli *cli, struct cairn_cli_ref *ref,
                                const struct goal *goal, uint64_t deadline, struct look *look,
                                struct cairn_error *err) {
    for (;;) {
        uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, deadline);
        enum cairn_code code = look_once(cli, ref, goal, left_ms, look, err);
        if (code == CAIRN_NOT_FOUND && goal->removal) return code;
        if (code && code != CAIRN_NOT_FOUND) return code; /* of that one it may be begun yet */
        enum outcome outcome = code ? NOT_YET : goal->judge(look);
        if (outcome == NEVER) return say_never(cli, goal, look, err);
        if (outcome == REACHED) break;
        if (!left_ms) return say_late(cli, goal, look, err);
        if (code || goal->judge != judge_committed)
            (void)poll(NULL, 0, (int)cairn_min_u64(left_ms, code ? RETRY_MS : LOOK_MS));
    }
    if (look->deleted) return CAIRN_OK; /* nothing of it can be printed any more */
    return cairn_cli_print_version(cli, look->json, err);
}

/* ---- the next one ---- */

static enum cairn_code wait_newer(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                  uint64_t deadline, struct cairn_error *err) {
    char tail[120];
    snprintf(tail, sizeof tail, "?newer_than=%s", cli->newer_than);
    for (;;) {
        CAIRN_AUTO_JSON json_t *json = NULL;
        uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, deadline);
        struct cairn_cli_call call = {.tail = tail,
                                      .wait_ms = (uint32_t)cairn_min_u64(left_ms, LONG_POLL_MS)};
        enum cairn_code code = cairn_cli_call(cli, ref, call, &json, err);
        if (!code) return cairn_cli_print_version(cli, json, err);
        if (code != CAIRN_NOT_FOUND) return code;
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
    const struct goal *goal = NULL;
    CAIRN_TRY(find_goal(cli->wait_for ? cli->wait_for : "committed", &goal, &look, err));
    if (cairn_cli_is_operation(cli->arguments[0])) {
        if (cli->wait_for || cli->newer_than)
            return cairn_fail(err, CAIRN_INVALID, "an operation is waited for to its end alone");
        return cairn_cli_operation_wait(cli, cli->arguments[0], err);
    }
    CAIRN_TRY(cairn_cli_ref_latest(cli, &ref, err));
    uint64_t timeout_ms = cli->timeout_ms ? cli->timeout_ms : TIMEOUT_DEFAULT_MS;
    uint64_t deadline = cairn_deadline_in(&cairn_clock_real, timeout_ms);
    cli->timeout_ms = 0; /* of the whole wait, not of each request */
    if (cli->newer_than) CAIRN_TRY(check_newer(cli, &ref, err));
    if (cli->newer_than) return wait_newer(cli, &ref, deadline, err);
    enum cairn_code code = wait_for(cli, &ref, goal, deadline, &look, err);
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
