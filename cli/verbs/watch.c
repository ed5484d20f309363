/* SPDX-License-Identifier: Apache-2.0 */
/* cairn watch: what happens to a checkpoint, a run, a project or all, as it happens, and how far
 * open saves are. */
#include <poll.h>
#include <stdio.h>

#include "cli/shell/output.h"
#include "cli/shell/patience.h"
#include "cli/verbs/watch_view.h"
#include "common/clock.h"
#include "common/text.h"

#define TERMINAL_EVERY_MS 1000
#define LINE_EVERY_MS 5000
#define AGAIN_MS 500 /* while no server answers, and until the run is there */
#define PAGE 1000

static const struct cairn_cli_flag watch_flags[] = {
    {"until", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(until), 0, "EVENT",
     "End with it: committed, aborted, any event's name, or idle: nothing is being saved."},
    {"every", 0, CAIRN_CLI_TIME, CAIRN_CLI_AT(every_ms), 0, "TIME",
     "How often to look how far saves are: 1s on a terminal, else 5s."},
};

struct watch {
    struct cairn_cli *cli;
    struct cairn_cli_scope scope;
    struct cairn_cli_ref ref; /* of the run, where there is one */
    struct cairn_cli_watch_view view;
    struct cairn_cli_watched watched;
    uint64_t deadline, every_ms, looked_ms, since;
    bool since_known, answered, away, seen; /* seen: what --until waits for */
    struct cairn_error ended; /* its code: the version came to another end */
};

/* ---- what is meant ---- */

static const char *const event_names[] = {
#define EVENT(id, name, kept, about, meaning) name,
#include "api/events.def"
#undef EVENT
};

/* "committed" is short for "checkpoint.committed". */
static bool is_event(const char *word, const char *name) {
    static const char of_checkpoints[] = "checkpoint.";
    if (!strcmp(word, name)) return true;
    return cairn_text_starts(name, of_checkpoints) &&
           !strcmp(word, name + sizeof of_checkpoints - 1);
}

static enum cairn_code check_until(const char *word, struct cairn_error *err) {
    if (!word || !strcmp(word, "idle")) return CAIRN_OK;
    for (size_t i = 0; i < CAIRN_COUNT(event_names); i++)
        if (is_event(word, event_names[i])) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "--until takes committed, aborted, idle or an event's name, not %s", word);
}

/* An alias or `latest` is what it means now. */
static enum cairn_code resolve(struct watch *watch, const char *version, struct cairn_error *err) {
    struct cairn_cli_scope *scope = &watch->scope;
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_msg_version_row row = {0};
    scope->step_given = cairn_parse_u64(cairn_view_of(version), &scope->step, NULL) == CAIRN_OK;
    if (scope->step_given) return CAIRN_OK;
    (void)cairn_text_copy(scope->version, sizeof scope->version, version);
    if (cairn_text_starts(version, "ckpt_")) return CAIRN_OK;
    struct cairn_cli_ref ref = watch->ref;
    (void)cairn_text_copy(ref.version, sizeof ref.version, version);
    CAIRN_TRY(cairn_cli_call(watch->cli, &ref, (struct cairn_cli_call){0}, &json, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_version_row, json, &row, err));
    (void)cairn_text_copy(scope->version, sizeof scope->version, row.version);
    return CAIRN_OK;
}

static enum cairn_code read_scope(struct watch *watch, struct cairn_error *err) {
    const char *text = watch->cli->argument_count ? watch->cli->arguments[0] : "";
    struct cairn_cli_scope *scope = &watch->scope;
    if (!*text) return CAIRN_OK;
    if (!strchr(text, '/')) { /* a project: the same characters as a run's name */
        char run[2 * CAIRN_NAME_BYTES_MAX + 4];
        struct cairn_cli_ref ref;
        snprintf(run, sizeof run, "%s/x", text);
        if (strchr(text, '@') || cairn_cli_ref_parse(run, &ref, err))
            return cairn_fail(err, CAIRN_INVALID, "\"%.80s\" is neither a project nor a run", text);
        (void)cairn_text_copy(scope->project, sizeof scope->project, text);
        return CAIRN_OK;
    }
    CAIRN_TRY(cairn_cli_ref_parse(text, &watch->ref, err));
    char version[sizeof watch->ref.version];
    memcpy(version, watch->ref.version, sizeof version);
    watch->ref.version[0] = '\0';
    (void)cairn_text_copy(scope->project, sizeof scope->project, watch->ref.name.project);
    (void)cairn_text_copy(scope->run, sizeof scope->run, watch->ref.name.run);
    return version[0] ? resolve(watch, version, err) : CAIRN_OK;
}

static bool is_of_version(const struct watch *watch) {
    return watch->scope.step_given || watch->scope.version[0];
}

/* ---- events ---- */

/* The one version that is watched has an end of its own. */
static void judge_event(struct watch *watch, const struct cairn_msg_event_row *row) {
    const char *until = watch->cli->until;
    if (until ? is_event(until, row->event)
              : is_of_version(watch) && is_event("committed", row->event)) {
        watch->seen = true;
        return;
    }
    if (!is_of_version(watch) || (!is_event("aborted", row->event) &&
                                  !is_event("gone", row->event)))
        return;
    (void)cairn_fail(&watch->ended, CAIRN_ABORTED, "%s: %s%s%s", watch->cli->arguments[0],
                     row->event, row->reason && row->reason[0] ? ": " : "",
                     row->reason ? row->reason : "");
}

static enum cairn_code take_events(struct watch *watch, const json_t *items,
                                   struct cairn_error *err) {
    size_t index = 0;
    json_t *item = NULL;
    json_array_foreach(items, index, item) {
        struct cairn_msg_event_row row = {0};
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_event_row, item, &row, err));
        if (!cairn_cli_scope_has(&watch->scope, row.project, row.run, row.version, row.step))
            continue;
        CAIRN_TRY(cairn_cli_watch_view_event(&watch->view, item, err));
        watch->looked_ms = 0; /* how far saves are has changed, too */
        judge_event(watch, &row);
        if (watch->seen || watch->ended.code) return CAIRN_OK;
    }
    return CAIRN_OK;
}

/* What has happened since, at most wait_ms later; the first time, only from where to go on. */
static enum cairn_code read_events(struct watch *watch, uint64_t wait_ms, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_msg_event_page page = {0};
    char tail[80] = "/events?limit=1";
    struct cairn_cli_call call = {.tail = tail};
    if (watch->since_known) {
        snprintf(tail, sizeof tail, "/events?limit=%d&since=%llu", PAGE,
                 (unsigned long long)watch->since);
        call.wait_ms = (uint32_t)cairn_max_u64(cairn_min_u64(wait_ms, CAIRN_CLI_LONG_POLL_MS), 1);
    }
    const struct cairn_cli_ref *of = watch->scope.run[0] ? &watch->ref : NULL;
    CAIRN_TRY(cairn_cli_call(watch->cli, of, call, &json, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_event_page, json, &page, err));
    if (watch->since_known) CAIRN_TRY(take_events(watch, page.items, err));
    watch->since = page.since;
    watch->since_known = true;
    return CAIRN_OK;
}

/* ---- how it is ---- */

/* A version that came to its end before it was watched: there will be no event. */
static enum cairn_code look_at_end(struct watch *watch, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_msg_version_row row = {0};
    struct cairn_cli_ref ref = watch->ref;
    const char *until = watch->cli->until;
    if (!is_of_version(watch) || (until && !is_event(until, "checkpoint.committed")))
        return CAIRN_OK;
    if (watch->scope.step_given)
        snprintf(ref.version, sizeof ref.version, "%llu", (unsigned long long)watch->scope.step);
    else
        (void)cairn_text_copy(ref.version, sizeof ref.version, watch->scope.version);
    enum cairn_code code = cairn_cli_version_or_failed(watch->cli, &ref, &json, err);
    if (code == CAIRN_NOT_FOUND && watch->scope.step_given) return CAIRN_OK;
    CAIRN_TRY(code);
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_version_row, json, &row, err));
    if (!strcmp(row.state, "committed")) {
        watch->seen = true;
        return CAIRN_OK;
    }
    if (strcmp(row.state, "open") != 0)
        (void)cairn_fail(&watch->ended, CAIRN_ABORTED, "%s is %s: %s", watch->cli->arguments[0],
                         row.state, row.reason ? row.reason : "no reason is given");
    return CAIRN_OK;
}

static enum cairn_code look_at_saves(struct watch *watch, struct cairn_error *err) {
    CAIRN_TRY(cairn_cli_watched_look(watch->cli, &watch->scope, &watch->watched, err));
    watch->looked_ms = cairn_mono_ms();
    CAIRN_TRY(cairn_cli_watch_view_saves(&watch->view, &watch->watched, err));
    const char *until = watch->cli->until;
    watch->seen |= until && !strcmp(until, "idle") && !watch->watched.save_count;
    return CAIRN_OK;
}

static enum cairn_code one_round(struct watch *watch, struct cairn_error *err) {
    bool first = !watch->since_known;
    uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, watch->deadline);
    uint64_t since_ms = cairn_mono_ms() - watch->looked_ms;
    uint64_t wait_ms = since_ms < watch->every_ms ? watch->every_ms - since_ms : 0;
    CAIRN_TRY(read_events(watch, cairn_min_u64(wait_ms, left_ms), err));
    if (watch->seen || watch->ended.code) return CAIRN_OK;
    if (first) CAIRN_TRY(look_at_end(watch, err));
    if (!first && cairn_mono_ms() - watch->looked_ms < watch->every_ms) return CAIRN_OK;
    return look_at_saves(watch, err);
}

/* A server that is away is waited for, and what it tells then goes on behind the last event; from
 * one that has trimmed that, from now on. */
static enum cairn_code judge_failure(struct watch *watch, enum cairn_code code,
                                     struct cairn_error *why) {
    char text[400];
    uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, watch->deadline);
    bool expired = code == CAIRN_CURSOR_EXPIRED;
    bool away = cairn_cli_failure_passes(watch->answered, code, why);
    if (!expired && !away) return code;
    snprintf(text, sizeof text, "%s%s", expired ? "some events are lost: " : "", why->message);
    if (!watch->away) cairn_cli_watch_view_note(&watch->view, text);
    watch->away = !expired;
    watch->since_known &= !expired;
    (void)poll(NULL, 0, (int)cairn_min_u64(left_ms, AGAIN_MS));
    return CAIRN_OK;
}

static enum cairn_code follow(struct watch *watch, struct cairn_error *err) {
    while (!watch->seen && !watch->ended.code) {
        struct cairn_error why = {0};
        enum cairn_code code = one_round(watch, &why);
        if (!code && watch->away) cairn_cli_watch_view_note(&watch->view, "it answers again");
        if (!code) {
            watch->answered = true;
            watch->away = false;
        } else if (judge_failure(watch, code, &why)) {
            if (err) *err = why;
            return code;
        }
        if (watch->seen || watch->ended.code ||
            cairn_deadline_left_ms(&cairn_clock_real, watch->deadline))
            continue;
        if (!watch->cli->until && !is_of_version(watch)) return CAIRN_OK;
        return cairn_fail(err, CAIRN_TIMEOUT, "%s was not seen in time",
                          watch->cli->until ? watch->cli->until : "the end of this save");
    }
    if (watch->seen) return CAIRN_OK;
    if (err) *err = watch->ended;
    return watch->ended.code;
}

static enum cairn_code run_watch(struct cairn_cli *cli, struct cairn_error *err) {
    struct watch watch = {.cli = cli};
    CAIRN_TRY(check_until(cli->until, err));
    watch.deadline = cli->timeout_ms ? cairn_deadline_in(&cairn_clock_real, cli->timeout_ms)
                                     : UINT64_MAX;
    cli->timeout_ms = 0; /* of the whole watch, not of each request */
    CAIRN_TRY(read_scope(&watch, err));
    cairn_cli_watch_view_init(&watch.view, cli);
    watch.every_ms = cli->every_ms         ? cli->every_ms
                     : watch.view.terminal ? TERMINAL_EVERY_MS
                                           : LINE_EVERY_MS;
    enum cairn_code code = follow(&watch, err);
    cairn_cli_watched_release(&watch.watched);
    return code;
}

const struct cairn_cli_verb cairn_cli_verb_watch = {
    .name = "watch",
    .synopsis = "cairn watch [flags] [project[/run[@step]]]",
    .purpose = "Follow what happens, and how far saves are, as it happens.",
    .examples = "  cairn watch llm/7b@1400\n"
                "  cairn watch llm/7b --until committed --timeout 10min\n"
                "  cairn watch llm --json\n",
    .flags = watch_flags,
    .flag_count = CAIRN_COUNT(watch_flags),
    .arguments_max = 1,
    .run = run_watch,
};
