/* SPDX-License-Identifier: Apache-2.0 */
/* The watchers' threads, and saves that a rank of this node has abandoned. */
#include "uploader/server/watch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/digest.h"
#include "api/messages.h"
#include "common/log.h"
#include "common/rule.h"
#include "common/text.h"
#include "common/tracing.h"
#include "uploader/metrics.h"
#include "uploader/saves/begin.h"
#include "uploader/server/calls.h"
#include "uploader/server/inside.h"

#define IDLE_MS 1000       /* a watcher looks by itself, too */
#define OWN_WAIT_MS 2000   /* of a poll while there are watchers enough */
#define SHARED_WAIT_MS 100 /* while versions take turns */
#define FAILED_PAUSE_MS 500

/* ---- the versions that wait ---- */

static bool is_watched(const struct cairn_up_watch *watch, const char *version) {
    for (size_t i = 0; i < CAIRN_UP_WATCHERS; i++) {
        if (!strcmp(watch->watchers[i].version, version)) return true;
    }
    return false;
}

/* How many versions wait; the one for this watcher is copied when nobody else has it. */
static bool is_due(const struct cairn_up_save *save) {
    if (save->held) return false;
    return cairn_up_save_state_awaits_end(&save->state) || cairn_up_save_awaits_decision(save);
}

static size_t choose(struct cairn_up_watch *watch, struct cairn_up_watcher *watcher) {
    struct cairn_up *up = watch->up;
    CAIRN_HOLD(&up->lock);
    size_t waiting = 0;
    struct cairn_up_save *chosen = NULL;
    watcher->version[0] = '\0';
    watcher->is_new = watcher->decides = false;
    for (size_t i = 0; i < up->locked.save_count; i++) {
        struct cairn_up_save *save = up->locked.saves[i];
        if (!is_due(save)) continue;
        waiting++;
        if (is_watched(watch, save->place.id.text)) continue;
        if (!chosen || save->polled_ms < chosen->polled_ms) chosen = save;
    }
    if (!chosen) return waiting;
    /* One that a watcher has just left for a moment, between two polls, is no news. */
    watcher->is_new = true;
    for (size_t i = 0; i < up->locked.save_count; i++) {
        struct cairn_up_save *save = up->locked.saves[i];
        if (strcmp(save->place.id.text, chosen->place.id.text) != 0) continue;
        watcher->is_new &= !save->polled_ms;
        watcher->decides |= cairn_up_save_awaits_decision(save);
        save->polled_ms = cairn_mono_ms();
    }
    (void)cairn_text_copy(watcher->version, sizeof(watcher->version), chosen->place.id.text);
    (void)cairn_text_copy(watcher->run_text, sizeof(watcher->run_text), chosen->attempt->run_text);
    (void)cairn_text_copy(watcher->grant, sizeof(watcher->grant), chosen->attempt->text);
    cairn_up_save_trace(chosen, &watcher->trace);
    return waiting;
}

static void forget_choice(struct cairn_up_watcher *watcher) {
    CAIRN_HOLD(&watcher->watch->up->lock);
    watcher->version[0] = '\0';
}

static void unknown_version(struct cairn_up *up, const char *version) {
    CAIRN_HOLD(&up->lock);
    for (size_t i = 0; i < up->locked.save_count; i++) {
        struct cairn_up_save *save = up->locked.saves[i];
        if (!strcmp(save->place.id.text, version)) cairn_up_save_report_again_locked(up, save);
    }
    cairn_up_outcome_forgotten_locked(up, version, NULL);
}

/* ---- polling ---- */

static enum cairn_code poll_version(struct cairn_up_watcher *watcher, uint64_t wait_ms,
                                    struct cairn_error *err) {
    struct cairn_up *up = watcher->watch->up;
    CAIRN_AUTO_JSON json_t *reply = NULL;
    CAIRN_AUTO(buf) path = {0};
    CAIRN_TRY(cairn_buf_printf(&path, err, "/v1/runs/%s/checkpoints/%s?for=%s",
                               watcher->run_text, watcher->version,
                               watcher->decides ? "decided" : "committed"));
    CAIRN_TRY(cairn_rest_set_grant(watcher->rest, watcher->grant, err));
    cairn_trace_set(&watcher->trace);
    enum cairn_code code =
        cairn_rest_wait(watcher->rest, path.data, (uint32_t)wait_ms, &reply, err);
    cairn_trace_set(NULL);
    code = cairn_up_heard(watcher->rest, code, err);
    if (code == CAIRN_OK) {
        struct cairn_up_version_status found;
        cairn_up_version_status_read(reply, &found);
        bool decided = watcher->decides && cairn_up_version_decided(reply);
        CAIRN_HOLD(&up->lock);
        cairn_up_outcome_version_locked(up, watcher->version, &found);
        if (decided) cairn_up_outcome_decided_locked(up, watcher->version);
        cairn_up_outcome_forgotten_locked(up, watcher->version, &found);
        return CAIRN_OK;
    }
    enum cairn_up_refusal refusal = cairn_up_refusal_of(code, err->http_status, false);
    if (refusal == CAIRN_UP_UNKNOWN) {
        unknown_version(up, watcher->version);
        return CAIRN_OK;
    }
    if (refusal != CAIRN_UP_ENDED) return code;
    /* Only what was committed can be deleted. */
    struct cairn_up_version_status found = {
        .state = code == CAIRN_DELETED ? "deleting" : "aborting", .why = *err};
    CAIRN_HOLD(&up->lock);
    cairn_up_outcome_version_locked(up, watcher->version, &found);
    return CAIRN_OK;
}

/* Until time is up or somebody poked since *pokes; false: stop. */
static bool pause_watch(struct cairn_up_watch *watch, uint64_t ms, bool backing_off,
                        uint64_t *pokes) {
    CAIRN_HOLD(&watch->lock);
    uint64_t until_ms = cairn_mono_ms() + ms;
    while (ms && !watch->locked.stopping && (backing_off || watch->locked.pokes == *pokes)) {
        if (!cairn_condition_wait(&watch->stop, &watch->lock, until_ms)) break;
    }
    *pokes = watch->locked.pokes;
    return !watch->locked.stopping;
}

void cairn_up_watch_poke(struct cairn_up_watch *watch) {
    if (!watch) return;
    CAIRN_HOLD(&watch->lock);
    watch->locked.pokes++;
    cairn_late_ring(&watch->bell);
    cairn_condition_broadcast(&watch->stop);
}

static void *watcher_main(void *argument) {
    struct cairn_up_watcher *watcher = argument;
    struct cairn_late late = {0};
    uint64_t pause_ms = 0, pokes = 0, from_ms = cairn_mono_ms();
    bool failed = false;
    while (pause_watch(watcher->watch, pause_ms, failed, &pokes)) {
        uint64_t now_ms = cairn_mono_ms();
        late.timed_out = pause_ms == IDLE_MS && now_ms >= from_ms + IDLE_MS;
        if (cairn_late_before(&late, &watcher->watch->bell, now_ms))
            cairn_up_metrics_late(watcher->watch->up->metrics, CAIRN_UP_WAIT_WATCHERS);
        size_t waiting = choose(watcher->watch, watcher);
        cairn_late_after(&late, &watcher->watch->bell, watcher->is_new, now_ms);
        from_ms = now_ms;
        pause_ms = IDLE_MS;
        failed = false;
        if (!watcher->version[0]) continue;
        struct cairn_error error = {0};
        bool own = waiting <= CAIRN_UP_WATCHERS; /* each version has a watcher */
        failed = poll_version(watcher, own ? OWN_WAIT_MS : SHARED_WAIT_MS, &error) != CAIRN_OK;
        pause_ms = failed ? FAILED_PAUSE_MS : 0; /* the outbox says that the server is away */
        forget_choice(watcher);
    }
    return NULL;
}

/* ---- heartbeat ---- */

/* Until the next one is due; false: stop. */
static bool wait_beat(struct cairn_up_watch *watch, uint64_t last_ms) {
    CAIRN_HOLD(&watch->lock);
    while (!watch->locked.stopping) {
        uint64_t period_ms =
            watch->locked.hurrying ? CAIRN_UP_HURRY_MS : watch->up->settings.heartbeat_ms;
        if (watch->locked.beat_now || cairn_mono_ms() >= last_ms + period_ms) break;
        (void)cairn_condition_wait(&watch->stop, &watch->lock, last_ms + period_ms);
    }
    watch->locked.beat_now = false;
    return !watch->locked.stopping;
}

void cairn_up_watch_beat(struct cairn_up_watch *watch) {
    if (!watch) return;
    CAIRN_HOLD(&watch->lock);
    watch->locked.beat_now = true;
    cairn_condition_broadcast(&watch->stop);
}

static void *heart_main(void *argument) {
    struct cairn_up_watch *watch = argument;
    uint64_t last_ms = 0;
    pthread_setname_np(pthread_self(), "heart"); /* for top, and for tests that count its turns */
    while (wait_beat(watch, last_ms)) {
        last_ms = cairn_mono_ms();
        cairn_up_heartbeat(watch, false);
    }
    cairn_up_heartbeat(watch, true); /* what is left is said before the silence */
    return NULL;
}

void cairn_up_watch_hurry(struct cairn_up_watch *watch, bool begins) {
    CAIRN_HOLD(&watch->lock);
    if (begins)
        watch->locked.hurrying++;
    else
        watch->locked.hurrying--;
    cairn_condition_broadcast(&watch->stop);
}

/* ---- life ---- */

enum cairn_code cairn_up_watch_new(struct cairn_up *up, struct cairn_up_watch **ret,
                                   struct cairn_error *err) {
    struct cairn_up_watch *watch = calloc(1, sizeof(*watch));
    if (!watch) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the watchers");
    watch->up = up;
    cairn_lock_init(&watch->lock, CAIRN_LOCK_uploader_watch);
    cairn_condition_init(&watch->stop);
    struct cairn_rest_options options = {.url = up->settings.server,
                                         .token = up->token,
                                         .token_file = up->settings.token_file,
                                         .ca_bundle = up->settings.ca_file,
                                         .timeout_ms = 10000,
                                         .seen = &up->servers_seen};
    enum cairn_code code = cairn_rest_new(&options, &watch->rest, err);
    for (size_t i = 0; code == CAIRN_OK && i < CAIRN_UP_WATCHERS; i++) {
        watch->watchers[i].watch = watch;
        code = cairn_rest_new(&options, &watch->watchers[i].rest, err);
    }
    if (code != CAIRN_OK) {
        cairn_up_watch_free(watch);
        return code;
    }
    *ret = watch;
    return CAIRN_OK;
}

enum cairn_code cairn_up_watch_start(struct cairn_up_watch *watch, struct cairn_error *err) {
    if (pthread_create(&watch->thread, NULL, heart_main, watch))
        return cairn_fail(err, CAIRN_INTERNAL, "no thread for the heartbeat");
    watch->started = true;
    for (size_t i = 0; i < CAIRN_UP_WATCHERS; i++) {
        struct cairn_up_watcher *watcher = &watch->watchers[i];
        if (pthread_create(&watcher->thread, NULL, watcher_main, watcher))
            return cairn_fail(err, CAIRN_INTERNAL, "no thread for a watcher");
        watcher->started = true;
    }
    return CAIRN_OK;
}

void cairn_up_watch_stop(struct cairn_up_watch *watch) {
    if (!watch) return;
    cairn_lock_take(&watch->lock);
    watch->locked.stopping = true;
    cairn_condition_broadcast(&watch->stop);
    cairn_lock_give(&watch->lock);
    if (watch->started) pthread_join(watch->thread, NULL);
    watch->started = false;
    for (size_t i = 0; i < CAIRN_UP_WATCHERS; i++) {
        if (watch->watchers[i].started) pthread_join(watch->watchers[i].thread, NULL);
        watch->watchers[i].started = false;
    }
}

void cairn_up_watch_free(struct cairn_up_watch *watch) {
    if (!watch) return;
    cairn_up_watch_stop(watch);
    for (size_t i = 0; i < CAIRN_UP_WATCHERS; i++) {
        if (watch->watchers[i].rest) cairn_rest_free(watch->watchers[i].rest);
    }
    if (watch->rest) cairn_rest_free(watch->rest);
    cairn_condition_release(&watch->stop);
    cairn_lock_release(&watch->lock);
    free(watch);
}

/* ---- abandoned saves ---- */

static bool is_of(const struct cairn_up_attempt *attempt, const struct cairn_msg_brief *open) {
    const struct cairn_grant *grant = &attempt->grant;
    struct cairn_version_origin origin = {
        .name = grant->name, .attempt = grant->attempt, .step = open->step, .n = open->n};
    struct cairn_version_id id;
    (void)cairn_text_copy(origin.nonce, sizeof(origin.nonce), grant->nonce);
    cairn_version_id_make(&origin, &id);
    return !strcmp(id.text, open->version);
}

static bool was_missed(const struct cairn_up_missed *missed, const struct cairn_msg_brief *open,
                       uint32_t rank) {
    for (size_t i = 0; i < missed->count; i++)
        if (missed->at[i].rank == rank && !strcmp(missed->at[i].version, open->version))
            return true;
    return false;
}

static void note(struct cairn_up_missed *missed, const struct cairn_msg_brief *open,
                 uint32_t rank) {
    if (missed->count == CAIRN_COUNT(missed->at)) return;
    if (!cairn_text_copy(missed->at[missed->count].version,
                         sizeof(missed->at[missed->count].version), open->version))
        return;
    missed->at[missed->count++].rank = rank;
}

void cairn_up_abandoned_unreported(uint64_t step, uint32_t n, const struct cairn_error *why) {
    cairn_log(WARN, "session.abandoned", "step=%" PRIu64 " n=%u cause=\"%s\"", step, n,
              why->message);
}

static void fail(struct cairn_up *up, struct cairn_up_attempt *attempt,
                 const struct cairn_up_counted *counted, const struct cairn_msg_brief *open) {
    const struct cairn_up_begin begin = {.attempt = attempt,
                                         .rank = counted->rank,
                                         .world_size = counted->world_size,
                                         .step = open->step,
                                         .n = open->n};
    struct cairn_error why = {0}, error = {0};
    (void)cairn_fail(&why, CAIRN_CANCELLED, "the rank went on without this save");
    cairn_log(WARN, "save.missed", "run=%s step=%" PRIu64 " n=%u rank=%u version=%s",
              attempt->run_text, open->step, open->n, counted->rank, open->version);
    if (cairn_up_save_abandoned_locked(up, &begin, &why, &error) != CAIRN_OK)
        cairn_up_abandoned_unreported(open->step, open->n, &error);
}

static void look(struct cairn_up *up, const struct cairn_msg_brief *open,
                 const struct cairn_up_missed *before, struct cairn_up_missed *now) {
    struct cairn_up_attempt *attempt = up->locked.attempts;
    while (attempt && (!attempt->counted || !is_of(attempt, open))) attempt = attempt->next;
    if (!attempt || attempt->stale || attempt->foreign.code != CAIRN_OK) return;
    for (const struct cairn_up_counted *at = attempt->counted; at; at = at->next) {
        if (cairn_up_counted_of(at, open->step) < open->n) continue;
        if (cairn_up_save_known_locked(up, open->version, at->rank)) continue;
        if (was_missed(before, open, at->rank))
            fail(up, attempt, at, open);
        else
            note(now, open, at->rank);
    }
}

void cairn_up_abandoned_look(struct cairn_up *up, const json_t *versions,
                             struct cairn_up_missed *missed) {
    struct cairn_up_missed now = {.count = 0};
    CAIRN_HOLD(&up->lock);
    for (size_t i = 0; CAIRN_RULE(Q12) && i < json_array_size(versions); i++) {
        struct cairn_msg_brief open = {0};
        if (cairn_msg_brief_read(json_array_get(versions, i), "/versions", &open, NULL) ||
            strcmp(open.state, "open") != 0 || !open.n)
            continue;
        look(up, &open, missed, &now);
    }
    *missed = now;
}
