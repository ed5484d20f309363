/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread and its order of work. A pass looks at every attempt; for each: begins that are due in
 * one request, then per version the fails, then seals and registrations in one request. Requests
 * are built under the lock and sent without it; answers are applied to what is still there.
 */
#include "uploader/server/outbox.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/hooks.h"
#include "common/log.h"
#include "common/text.h"
#include "uploader/metrics.h"
#include "uploader/server/calls.h"
#include "uploader/server/trouble.h"
#include "uploader/server/watch.h"

#define BACKOFF_MS_MIN 50
#define BACKOFF_MS_MAX 5000
#define LOOK_MS 1000
#define CALL_TIMEOUT_MS 10000

struct cairn_up_outbox {
    struct cairn_up *up;
    struct cairn_rest *rest;
    pthread_t thread;
    bool started;
    struct cairn_late late;
};

/* ---- what is due ---- */

static bool is_due(const struct cairn_up_save *save, enum cairn_up_report kind) {
    return !save->held && cairn_up_save_state_report_due(&save->state) == kind &&
           !cairn_up_trouble_pauses_locked(save);
}

/* Q9: what was journaled earlier by the same rank is told first. Another step is not kept waiting
 * for one that the server cannot take. */
static bool waits_for_earlier(struct cairn_up *up, const struct cairn_up_save *save) {
    for (size_t i = 0; i < up->locked.save_count; i++) {
        const struct cairn_up_save *at = up->locked.saves[i];
        if (at->entry >= save->entry) return false;
        if (at->attempt != save->attempt || at->rank != save->rank ||
            !cairn_up_save_state_end_is_unreported(&at->state))
            continue;
        if (at->place.step == save->place.step || !cairn_up_trouble_is_long_locked(at)) return true;
    }
    return false;
}

/* Fills the begins that are due for one attempt that was not looked at in this pass. */
static void gather_begins(struct cairn_up *up, const struct cairn_up_attempt *attempt,
                          struct cairn_up_batch *batch) {
    for (size_t i = 0; i < up->locked.save_count; i++) {
        struct cairn_up_save *save = up->locked.saves[i];
        if (save->attempt != attempt || !is_due(save, CAIRN_UP_REPORT_BEGIN)) continue;
        if (waits_for_earlier(up, save)) continue;
        if (batch->count == CAIRN_COUNT(batch->entries)) return;
        batch->entries[batch->count++] = save->entry;
    }
}

static void gather_version(struct cairn_up *up, const char *version, struct cairn_up_batch *batch) {
    for (size_t i = 0; i < up->locked.save_count; i++) {
        struct cairn_up_save *save = up->locked.saves[i];
        if (strcmp(save->place.id.text, version) != 0 || !is_due(save, CAIRN_UP_REPORT_SHARDS))
            continue;
        if (batch->count == CAIRN_COUNT(batch->entries)) return;
        batch->entries[batch->count++] = save->entry;
    }
}

/* ---- one pass ---- */

/* The next save, by entry, that is due after `after`; its attempt and version are in *ret. */
static bool next_due(struct cairn_up *up, uint64_t after, enum cairn_up_report kind,
                     struct cairn_up_due_save *ret) {
    CAIRN_HOLD(&up->lock);
    for (size_t i = 0; i < up->locked.save_count; i++) {
        struct cairn_up_save *save = up->locked.saves[i];
        if (save->entry <= after || !is_due(save, kind)) continue;
        if (kind == CAIRN_UP_REPORT_BEGIN && waits_for_earlier(up, save)) continue;
        cairn_up_due_fill(save, ret);
        return true;
    }
    return false;
}

static void gather(struct cairn_up *up, const struct cairn_up_due_save *due,
                   enum cairn_up_report kind, struct cairn_up_batch *batch) {
    CAIRN_HOLD(&up->lock);
    batch->count = 0;
    const struct cairn_up_save *save = cairn_up_save_find_locked(up, due->entry);
    if (save && kind == CAIRN_UP_REPORT_BEGIN) gather_begins(up, save->attempt, batch);
    if (save && kind == CAIRN_UP_REPORT_SHARDS) gather_version(up, due->version, batch);
}

static enum cairn_code report(struct cairn_up_batch *batch, enum cairn_up_report kind,
                              struct cairn_error *err) {
    return kind == CAIRN_UP_REPORT_BEGIN  ? cairn_up_report_begins(batch, err)
           : kind == CAIRN_UP_REPORT_FAIL ? cairn_up_report_fail(batch, err)
                                          : cairn_up_report_shards(batch, err);
}

/* CAIRN_OK also when the server failed at it: it has pauses of its own then. */
static enum cairn_code report_alone(const struct cairn_up_batch *batch, uint64_t entry,
                                    enum cairn_up_report kind, bool *ret_unreachable,
                                    struct cairn_error *err) {
    struct cairn_up_batch single = {
        .up = batch->up, .rest = batch->rest, .due = batch->due, .entries = {entry}, .count = 1};
    struct cairn_error why = {0};
    enum cairn_code code = report(&single, kind, &why);
    *ret_unreachable = code != CAIRN_OK && single.unreachable;
    CAIRN_HOLD(&batch->up->lock);
    struct cairn_up_save *save = cairn_up_save_find_locked(batch->up, entry);
    if (save && code == CAIRN_OK) cairn_up_trouble_end_locked(save);
    if (code == CAIRN_OK || !cairn_up_is_trouble(&why)) {
        if (err) *err = why;
        return code;
    }
    if (save) cairn_up_trouble_add_locked(save, &why);
    return CAIRN_OK;
}

/* trouble.h#1: where the server fails at a batch, that may be for one of its saves. */
static enum cairn_code report_batch(struct cairn_up_batch *batch, enum cairn_up_report kind,
                                    struct cairn_error *err) {
    if (kind == CAIRN_UP_REPORT_FAIL) /* one save, also where nothing was gathered */
        return report_alone(batch, batch->due->entry, kind, &batch->unreachable, err);
    if (batch->count == 1)
        return report_alone(batch, batch->entries[0], kind, &batch->unreachable, err);
    enum cairn_code result = report(batch, kind, err);
    if (result == CAIRN_OK || !cairn_up_is_trouble(err)) return result;
    result = CAIRN_OK;
    for (size_t i = 0; i < batch->count && !batch->unreachable; i++) {
        struct cairn_error why = {0};
        enum cairn_code code =
            report_alone(batch, batch->entries[i], kind, &batch->unreachable, &why);
        if (code != CAIRN_OK) *err = why;
        if (code != CAIRN_OK) result = code;
    }
    return result;
}

/* All of one kind once; a save that was answered is due no more, one that could not be told is
 * passed over until the next pass. */
static enum cairn_code pass_kind(struct cairn_up_outbox *outbox, enum cairn_up_report kind,
                                 bool *ret_did, struct cairn_error *err) {
    struct cairn_up *up = outbox->up;
    struct cairn_up_due_save due = {0};
    enum cairn_code result = CAIRN_OK;
    uint64_t after = 0;
    while (next_due(up, after, kind, &due)) {
        after = due.entry;
        struct cairn_up_batch batch = {.up = up, .rest = outbox->rest, .due = &due};
        gather(up, &due, kind, &batch);
        struct cairn_error why = {0};
        enum cairn_code code = report_batch(&batch, kind, &why);
        if (code != CAIRN_OK && err) *err = why;
        if (code == CAIRN_OK) {
            *ret_did = true;
            cairn_up_watch_poke(up->watch); /* the next answer of this pass may take seconds */
        } else {
            result = code;
        }
        if (code != CAIRN_OK && batch.unreachable) return code; /* the others would wait as long */
    }
    return result;
}

/* Nothing is told before the first heartbeat is over: one that is answered says to which catalog
 * (Q19), and otherwise nothing need be told twice. */
static bool has_begun(struct cairn_up *up) {
    CAIRN_HOLD(&up->lock);
    return up->locked.beaten;
}

/* CAIRN_OK: everything that was due was answered. */
static enum cairn_code pass(struct cairn_up_outbox *outbox, bool *ret_did,
                            struct cairn_error *err) {
    static const enum cairn_up_report kinds[] = {CAIRN_UP_REPORT_BEGIN, CAIRN_UP_REPORT_FAIL,
                                                 CAIRN_UP_REPORT_SHARDS};
    enum cairn_code result = CAIRN_OK;
    if (!has_begun(outbox->up)) return CAIRN_OK;
    for (size_t i = 0; i < CAIRN_COUNT(kinds); i++) {
        enum cairn_code code = pass_kind(outbox, kinds[i], ret_did, err);
        if (code != CAIRN_OK) result = code;
    }
    return result;
}

/* ---- the thread ---- */

/* Something comes by time alone: the server failed at it. */
static bool is_paused(struct cairn_up *up) {
    CAIRN_HOLD(&up->lock);
    for (size_t i = 0; i < up->locked.save_count; i++)
        if (up->locked.saves[i]->trouble.tries) return true;
    return false;
}

/* False: stop. */
static bool wait_for_work(struct cairn_up_outbox *outbox, uint64_t pause_ms) {
    uint64_t until_ms = cairn_mono_ms() + (pause_ms ? pause_ms : LOOK_MS);
    bool timed = pause_ms || is_paused(outbox->up);
    bool goes_on = cairn_up_wakeup_wait(&outbox->up->outbox_work, until_ms, pause_ms != 0);
    outbox->late.timed_out = !timed && cairn_mono_ms() >= until_ms;
    return goes_on;
}

/* For the ranks that wait for a commit. Any answer says that it is there. */
static void note_away(struct cairn_up *up, enum cairn_code code, const struct cairn_error *why) {
    bool away = code != CAIRN_OK && why->http_status == 0;
    if (!away) cairn_up_server_answers(up);
    CAIRN_HOLD(&up->lock);
    if (away && !up->locked.server_away[0]) up->locked.server_away_since_ms = cairn_mono_ms();
    (void)cairn_text_copy(up->locked.server_away, sizeof(up->locked.server_away),
                          away ? why->message : "");
}

static void *outbox_main(void *argument) {
    struct cairn_up_outbox *outbox = argument;
    uint64_t pause_ms = 0;
    bool complained = false;
    pthread_setname_np(pthread_self(), "outbox");
    while (wait_for_work(outbox, pause_ms)) {
        struct cairn_error error = {0};
        bool did = false;
        const struct cairn_late_bell *bell = &outbox->up->outbox_work.bell;
        if (cairn_late_before(&outbox->late, bell, cairn_mono_ms()))
            cairn_up_metrics_late(outbox->up->metrics, CAIRN_UP_WAIT_OUTBOX);
        enum cairn_code code = pass(outbox, &did, &error);
        cairn_late_after(&outbox->late, bell, did, cairn_mono_ms());
        if (code != CAIRN_OK || did) note_away(outbox->up, code, &error);
        if (code == CAIRN_OK) {
            if (complained)
                cairn_log(INFO, "outbox.heard_again", "server=%s", outbox->up->settings.server);
            complained = false;
            pause_ms = 0;
            /* answers may have made more due */
            if (did) cairn_up_wakeup_raise(&outbox->up->outbox_work);
            continue;
        }
        if (!complained && cairn_up_server_fails(outbox->up, &error))
            cairn_log(WARN, "outbox.waiting", "server=%s cause=\"%s\"", outbox->up->settings.server,
                      error.message);
        complained = true;
        pause_ms = pause_ms && !did ? cairn_min_u64(BACKOFF_MS_MAX, pause_ms * 2) : BACKOFF_MS_MIN;
    }
    return NULL;
}

enum cairn_code cairn_up_outbox_new(struct cairn_up *up, struct cairn_up_outbox **ret,
                                    struct cairn_error *err) {
    struct cairn_up_outbox *outbox = calloc(1, sizeof(*outbox));
    if (!outbox) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the outbox");
    outbox->up = up;
    cairn_up_wakeup_raise(&up->outbox_work); /* it looks by itself when it starts */
    struct cairn_rest_options options = {.url = up->settings.server,
                                         .token = up->token,
                                         .token_file = up->settings.token_file,
                                         .ca_bundle = up->settings.ca_file,
                                         .timeout_ms = CALL_TIMEOUT_MS,
                                         .seen = &up->servers_seen};
    enum cairn_code code = cairn_rest_new(&options, &outbox->rest, err);
    if (code != CAIRN_OK) {
        cairn_up_outbox_free(outbox);
        return code;
    }
    *ret = outbox;
    return CAIRN_OK;
}

enum cairn_code cairn_up_outbox_start(struct cairn_up_outbox *outbox, struct cairn_error *err) {
    if (pthread_create(&outbox->thread, NULL, outbox_main, outbox))
        return cairn_fail(err, CAIRN_INTERNAL, "no thread for the outbox");
    outbox->started = true;
    return CAIRN_OK;
}

void cairn_up_outbox_stop(struct cairn_up_outbox *outbox) {
    if (!outbox || !outbox->started) return;
    cairn_up_wakeup_stop(&outbox->up->outbox_work);
    pthread_join(outbox->thread, NULL);
    outbox->started = false;
}

void cairn_up_outbox_free(struct cairn_up_outbox *outbox) {
    if (!outbox) return;
    cairn_up_outbox_stop(outbox);
    if (outbox->rest) cairn_rest_free(outbox->rest);
    free(outbox);
}
