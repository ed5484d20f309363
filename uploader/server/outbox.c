/* SPDX-License-Identifier: Apache-2.0 */
/* A pass looks at every attempt: due begins in one request, then per version the fails, then seals
 * and registrations in one request. Saves in trouble are sent alone. The thread of lists polls the
 * server for the longest waiting save and relays ranges and digests. */
#include "uploader/server/outbox.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/text.h"
#include "uploader/mail.h"
#include "uploader/server/calls.h"
#include "uploader/server/watch.h"

#define PAUSE_MS_MIN 200
#define PAUSE_MS_MAX 30000

/* A proxy's statuses for a request that it blocks for good: errors of the API never come here. */
static bool is_forbidden_form(int status) {
    return status == 400 || status == 405 || status == 411 || status == 413 || status == 414 ||
           status == 415 || status == 431;
}

/* True for failures inside the server, and of a proxy that will repeat its answer. */
static bool is_trouble(const struct cairn_error *why) {
    int status = why->http_status;
    bool failed = status >= 500 && status != 502 && status != 503 && status != 504;
    return failed || is_forbidden_form(status);
}

bool cairn_up_server_fails(struct cairn_up *up, const struct cairn_error *why) {
    if (why->http_status) return true;
    CAIRN_HOLD(&up->lock);
    bool is_first = !up->locked.server_away_logged;
    up->locked.server_away_logged = true;
    return is_first;
}

void cairn_up_server_answers(struct cairn_up *up) {
    CAIRN_HOLD(&up->lock);
    up->locked.server_away_logged = false;
}

/* Notes a failed request for this save alone. */
static void trouble_add_locked(struct cairn_up_save *save, const struct cairn_error *why) {
    struct cairn_up_trouble *trouble = &save->trouble;
    uint64_t pause_ms = PAUSE_MS_MIN;
    for (uint32_t i = 0; i < trouble->tries && pause_ms < PAUSE_MS_MAX; i++) pause_ms *= 2;
    trouble->next_ms = cairn_mono_ms() + cairn_min_u64(pause_ms, PAUSE_MS_MAX);
    trouble->why = *why;
    if (++trouble->tries != CAIRN_UP_TROUBLE_TRIES) return;
    cairn_log(ERROR, "save.server_fails",
              "run=%s step=%" PRIu64 " rank=%u version=%s tries=%u cause=\"%s\"",
              save->attempt->run_text, save->place.step, save->rank, save->place.id.text,
              trouble->tries, why->message);
}

bool cairn_up_trouble_is_long_locked(const struct cairn_up_save *save) {
    return save->trouble.tries >= CAIRN_UP_TROUBLE_TRIES;
}

#define BACKOFF_MS_MIN 50
#define BACKOFF_MS_MAX 5000
#define LOOK_MS 1000
#define CALL_TIMEOUT_MS 10000

struct cairn_up_outbox {
    struct cairn_up *up;
    struct cairn_rest *rest;
    struct cairn_up_thread thread;
    struct cairn_late late;
};

static bool is_due(const struct cairn_up_save *save, enum cairn_up_report kind) {
    return !save->held && cairn_up_save_state_report_due(&save->state) == kind &&
           !(save->trouble.tries && cairn_mono_ms() < save->trouble.next_ms);
}

/* Q9: reports the rank's earlier journaled saves first. Trouble of another step is ignored. */
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

/* Collects due begins of one attempt that this pass has not visited yet. */
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

/* Finds the next due save by entry after `after`; returns its attempt and version in *ret. */
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

/* CAIRN_OK also after trouble, which has its own pauses. */
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
    if (save && code == CAIRN_OK) {
        if (cairn_up_trouble_is_long_locked(save))
            cairn_log(INFO, "save.server_took",
                      "run=%s step=%" PRIu64 " rank=%u version=%s tries=%u",
                      save->attempt->run_text, save->place.step, save->rank, save->place.id.text,
                      save->trouble.tries);
        save->trouble = (struct cairn_up_trouble){0};
    }
    if (code == CAIRN_OK || !is_trouble(&why)) return cairn_pass(err, code, &why);
    if (save) trouble_add_locked(save, &why);
    return CAIRN_OK;
}

/* outbox.h#3: a failed batch may have one bad save, so each is sent alone. */
static enum cairn_code report_batch(struct cairn_up_batch *batch, enum cairn_up_report kind,
                                    struct cairn_error *err) {
    if (kind == CAIRN_UP_REPORT_FAIL) /* a fail of one save, even without a batch */
        return report_alone(batch, batch->due->entry, kind, &batch->unreachable, err);
    if (batch->count == 1)
        return report_alone(batch, batch->entries[0], kind, &batch->unreachable, err);
    enum cairn_code result = report(batch, kind, err);
    if (result == CAIRN_OK || !is_trouble(err)) return result;
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

/* Sends all due reports of one kind; a failed one is skipped until the next pass. */
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
        if (code != CAIRN_OK && batch.unreachable) return code; /* the others would wait, too */
    }
    return result;
}

/* True once the first heartbeat ended, whose answer names the catalog (Q19). */
static bool has_begun(struct cairn_up *up) {
    CAIRN_HOLD(&up->lock);
    return up->locked.beaten;
}

/* CAIRN_OK: all due reports were answered. */
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

/* True when a save in trouble awaits its retry. */
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

/* Tells ranks that wait for a commit whether the server answers; any answer counts. */
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
            /* answers may have made more reports due */
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
    cairn_up_wakeup_raise(&up->outbox_work); /* a starting outbox looks by itself */
    enum cairn_code code = cairn_up_rest_new(up, CALL_TIMEOUT_MS, &outbox->rest, err);
    if (code != CAIRN_OK) {
        cairn_up_outbox_free(outbox);
        return code;
    }
    *ret = outbox;
    return CAIRN_OK;
}

enum cairn_code cairn_up_outbox_start(struct cairn_up_outbox *outbox, struct cairn_error *err) {
    return cairn_up_thread_start(&outbox->thread, outbox_main, outbox, "the outbox", err);
}

void cairn_up_outbox_stop(struct cairn_up_outbox *outbox) {
    if (!outbox || !outbox->thread.started) return;
    cairn_up_wakeup_stop(&outbox->up->outbox_work);
    cairn_up_thread_join(&outbox->thread);
}

void cairn_up_outbox_free(struct cairn_up_outbox *outbox) {
    if (!outbox) return;
    cairn_up_outbox_stop(outbox);
    if (outbox->rest) cairn_rest_free(outbox->rest);
    free(outbox);
}

/* ---- lists that differ ---- */

#define GROUP_BYTES 257
#define TRAINER_MS 2000 /* until the trainer answers, the server is polled less often */

struct cairn_up_held {
    uint64_t until_ms, next_ms; /* mono clock: the deadline; the next poll */
    enum cairn_up_end end;
    struct cairn_error why;
    uint32_t from, to; /* the server's last range; to 0: none yet */
    char group[GROUP_BYTES];
    bool looked; /* the trainer's digests and tensor are not yet sent */
    char digests[513], tensor[CAIRN_TENSOR_NAME_BYTES_MAX + 1];
};
struct cairn_up_lists {
    struct cairn_up *up;
    struct cairn_rest *rest;
    pthread_t thread;
    bool started;
};
struct question {
    uint64_t entry;
    char path[2 * CAIRN_NAME_BYTES_MAX + CAIRN_VERSION_ID_BYTES + 64];
    char grant[CAIRN_GRANT_BYTES_MAX];
    json_t *body; /* owned */
};

static bool can_look(const struct cairn_up_save *save) {
    size_t index;
    const json_t *split;
    json_array_foreach(json_object_get(save->begin, "splits"), index, split)
        if (json_is_true(json_object_get(split, "finer"))) return true;
    return false;
}

bool cairn_up_lists_hold_locked(struct cairn_up *up, struct cairn_up_save *save,
                                enum cairn_up_end end, const struct cairn_error *why) {
    if (save->held) return true;
    if (why->code != CAIRN_BEGIN_DIFFERS || !up->lists || !up->lists->started ||
        up->locked.ending || !save->conn || !can_look(save))
        return false;
    save->held = calloc(1, sizeof *save->held);
    if (!save->held) return false;
    save->held->until_ms = cairn_mono_ms() + CAIRN_UP_LISTS_HOLD_MS;
    save->held->end = end;
    save->held->why = *why;
    cairn_condition_broadcast(&up->changed);
    return true;
}

/* Ends a held save. reason: NULL or the server's present reason. The save may be freed. */
static void release(struct cairn_up *up, struct cairn_up_save *save, const char *reason) {
    struct cairn_error why = save->held->why;
    if (reason && reason[0]) (void)cairn_text_copy(why.message, sizeof why.message, reason);
    cairn_up_save_end_locked(up, save, save->held->end, &why);
}

void cairn_up_lists_looked(struct cairn_up *up, uint64_t conn,
                           const struct cairn_msg_looked *told) {
    CAIRN_HOLD(&up->lock);
    struct cairn_up_save *save = cairn_up_save_of_locked(up, conn, told->save);
    struct cairn_up_held *held = save ? save->held : NULL;
    if (!held || held->from != told->from || held->to != told->to ||
        strcmp(held->group, told->group) != 0)
        return;
    (void)cairn_text_copy(held->digests, sizeof held->digests, told->digests ? told->digests : "");
    (void)cairn_text_copy(held->tensor, sizeof held->tensor, told->tensor ? told->tensor : "");
    held->looked = true;
    held->next_ms = 0;
    cairn_condition_broadcast(&up->changed);
}

/* Picks the save that has waited longest; ends saves whose wait is over. */
static struct cairn_up_save *choose_held(struct cairn_up *up, uint64_t now_ms) {
    struct cairn_up_save *chosen = NULL;
    for (size_t i = up->locked.save_count; i-- > 0;) {
        if (i >= up->locked.save_count) continue;
        struct cairn_up_save *save = up->locked.saves[i];
        if (!save->held || save->state.phase == CAIRN_UP_PHASE_OVER) continue;
        if (now_ms >= save->held->until_ms)
            release(up, save, NULL);
        else if (!chosen || save->held->next_ms < chosen->held->next_ms)
            chosen = save;
    }
    return chosen;
}

/* False: the process stops. */
static bool await_question(struct cairn_up *up, struct question *ret) {
    CAIRN_HOLD(&up->lock);
    while (!up->locked.ending) {
        uint64_t now_ms = cairn_mono_ms();
        struct cairn_up_save *save = choose_held(up, now_ms);
        if (save && now_ms >= save->held->next_ms) {
            struct cairn_up_held *held = save->held;
            CAIRN_AUTO_JSON json_t *look =
                held->looked
                    ? CAIRN_PACK(list_look, .group = held->group, .from = held->from,
                                 .to = held->to, .digests = held->digests[0] ? held->digests : NULL,
                                 .tensor = held->tensor[0] ? held->tensor : NULL)
                    : NULL;
            *ret = (struct question){.entry = save->entry,
                                     .body = CAIRN_PACK(lists_look, .grant = save->attempt->text,
                                                        .node = up->places.node, .rank = save->rank,
                                                        .look = look)};
            snprintf(ret->path, sizeof ret->path, "/v1/runs/%s/checkpoints/%s/lists",
                     save->attempt->run_text, save->place.id.text);
            (void)cairn_text_copy(ret->grant, sizeof ret->grant, save->attempt->text);
            held->next_ms = cairn_mono_ms() + CAIRN_UP_LISTS_EVERY_MS;
            return true;
        }
        uint64_t until_ms = save ? save->held->next_ms : UINT64_MAX;
        (void)cairn_condition_wait(&up->changed, &up->lock, until_ms);
    }
    return false;
}

static void take_seen(struct cairn_up *up, struct cairn_up_save *save,
                      const struct cairn_msg_lists_seen *seen) {
    struct cairn_up_held *held = save->held;
    bool party = save->rank == seen->first || save->rank == seen->second;
    bool news =
        held->from != seen->from || held->to != seen->to || strcmp(held->group, seen->group) != 0;
    held->looked = false;
    if (!news) return;
    held->from = (uint32_t)seen->from;
    held->to = (uint32_t)seen->to;
    (void)cairn_text_copy(held->group, sizeof held->group, seen->group);
    held->until_ms = cairn_mono_ms() + CAIRN_UP_LISTS_HOLD_MS;
    if (party) {
        held->next_ms = cairn_mono_ms() + TRAINER_MS;
        cairn_up_mail_post(up->mail, save->conn,
                           CAIRN_PACK(look, .save = save->number, .group = held->group,
                                      .from = held->from, .to = held->to));
    }
}

static bool is_open(const struct cairn_msg_lists_seen *seen) {
    return !seen->settled && seen->group && seen->from < seen->to && seen->to <= UINT32_MAX;
}

static void ask_about_list(struct cairn_up_lists *lists, const struct question *question) {
    struct cairn_up *up = lists->up;
    CAIRN_AUTO_JSON json_t *reply = NULL;
    struct cairn_msg_lists_seen seen = {0};
    struct cairn_error why = {0};
    enum cairn_code code = cairn_rest_set_grant(lists->rest, question->grant, &why);
    if (!code)
        code =
            cairn_rest_call(lists->rest, "POST", question->path, question->body, 0, &reply, &why);
    code = cairn_up_heard(lists->rest, code, &why);
    if (!code) code = cairn_msg_lists_seen_read(reply, "", &seen, &why);
    CAIRN_HOLD(&up->lock);
    struct cairn_up_save *save = cairn_up_save_find_locked(up, question->entry);
    if (!save || !save->held || save->state.phase == CAIRN_UP_PHASE_OVER) return;
    if (code || !save->conn || !is_open(&seen))
        release(up, save, code ? NULL : seen.reason);
    else
        take_seen(up, save, &seen);
}

static void *lists_main(void *argument) {
    struct cairn_up_lists *lists = argument;
    struct question question;
    while (await_question(lists->up, &question)) {
        ask_about_list(lists, &question);
        json_decref(question.body);
    }
    return NULL;
}

enum cairn_code cairn_up_lists_new(struct cairn_up *up, struct cairn_up_lists **ret,
                                   struct cairn_error *err) {
    struct cairn_up_lists *lists = calloc(1, sizeof *lists);
    if (!lists) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to look at lists");
    lists->up = up;
    enum cairn_code code = cairn_up_rest_new(up, CAIRN_UP_LISTS_HOLD_MS, &lists->rest, err);
    if (code)
        free(lists);
    else
        *ret = lists;
    return code;
}

enum cairn_code cairn_up_lists_start(struct cairn_up_lists *lists, struct cairn_error *err) {
    if (pthread_create(&lists->thread, NULL, lists_main, lists))
        return cairn_fail(err, CAIRN_INTERNAL, "no thread to look at lists");
    CAIRN_HOLD(&lists->up->lock);
    lists->started = true;
    return CAIRN_OK;
}

void cairn_up_lists_stop(struct cairn_up_lists *lists) {
    if (!lists || !lists->started) return;
    pthread_join(lists->thread, NULL);
    CAIRN_HOLD(&lists->up->lock);
    lists->started = false;
}

void cairn_up_lists_free(struct cairn_up_lists *lists) {
    if (!lists) return;
    cairn_rest_free(lists->rest);
    free(lists);
}
