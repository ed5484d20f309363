/* SPDX-License-Identifier: Apache-2.0 */
/* The saves' callbacks for the session (struct cairn_client_sink): uploader events about saves and
 * their memory, and the offer over a new link. */
#include "client/save/save.h"

#include <stdlib.h>

#include "api/wire/messages.h"
#include "client/save/split.h"
#include "client/save/stager.h"
#include "client/session/process.h"
#include "client/session/wire.h"
#include "common/hooks.h"

static void take_verdict(struct cairn_save *save, const json_t *message) {
    struct cairn_msg_verdict told = {0};
    if (cairn_msg_verdict_read(message, "", &told, NULL) != CAIRN_OK) return;
    if (strcmp(told.state, "committed") == 0) {
        cairn_client_save_event(save, CAIRN_CLIENT_EVENT_COMMIT);
        return;
    }
    struct cairn_error why = {0};
    cairn_failure_get(message, "message", &why);
    if (!why.code) why.code = strcmp(told.state, "skipped") == 0 ? CAIRN_SKIPPED : CAIRN_ABORTED;
    if (!why.message[0]) (void)cairn_fail(&why, why.code, "%s", told.state);
    cairn_client_save_end(save, &why);
}

/* Q41: `free` counts only if its owner matches the generation's. */
static void take_free(struct cairn_session *session, const json_t *message) {
    struct cairn_msg_free told = {0};
    if (cairn_msg_free_read(message, "", &told, NULL) != CAIRN_OK ||
        told.slab >= session->slab_count)
        return;
    struct cairn_client_generation *at = &session->saves->generations[told.slab];
    if (at->owner != told.owner) return;
    at->lent = false;
    if (!at->held) at->owner = 0;
}

/* A node's problem ends with `code` "ok". An absent server delays only the commit, so only a
 * timed-out wait for the commit mentions it. */
static void take_problem(struct cairn_session *session, struct cairn_save *save,
                         const json_t *message) {
    struct cairn_msg_problem told = {.about = ""};
    struct cairn_client_saves *all = session->saves;
    struct cairn_error why = {0};
    if (cairn_msg_problem_read(message, "", &told, NULL) != CAIRN_OK) return;
    if (!save && told.save) return; /* the save was freed */
    cairn_failure_get(message, "message", &why);
    bool server = !save && strcmp(told.about, "server") == 0;
    struct cairn_client_trouble *trouble = save     ? &save->trouble
                                           : server ? &all->server
                                                    : &all->store;
    if (!trouble->why.code) trouble->since_ms = cairn_mono_ms();
    trouble->why = why;
    if (!server) *(save ? &save->notice : &all->notice) = why;
}

static void take_released(struct cairn_save *save, const json_t *message) {
    struct cairn_msg_released told = {0};
    if (cairn_msg_released_read(message, "", &told, NULL) != CAIRN_OK) return;
    save->sent_bytes += told.bytes; /* files may be sent before the save is staged */
    save->link_us += told.link_us;
    save->store_us += told.store_us;
    if (told.shard >= save->sent_count) return;
    struct cairn_client_sent *sent = &save->sent[told.shard];
    sent->released_bytes = cairn_min_u64(sent->released_bytes + told.bytes, sent->bytes);
}

static void take_durable(struct cairn_save *save, const json_t *message) {
    CAIRN_UNUSED const json_t *no_more = message;
    cairn_client_save_event(save, CAIRN_CLIENT_EVENT_DURABLE);
}

static void take_partnered(struct cairn_save *save, const json_t *message) {
    CAIRN_UNUSED const json_t *no_more = message;
    save->partnered = true;
    cairn_client_save_changed(save);
}

static void take_decided(struct cairn_save *save, const json_t *message) {
    CAIRN_UNUSED const json_t *no_more = message;
    save->decided = true;
    cairn_client_save_changed(save);
}

/* Events about one save; ignored for a freed save. */
static const struct {
    const char *name;
    void (*take)(struct cairn_save *save, const json_t *message);
} events[] = {{"released", take_released},   {"durable", take_durable},
              {"partnered", take_partnered}, {"decided", take_decided},
              {"look", cairn_client_look},   {"verdict", take_verdict}};

static bool take_event(struct cairn_session *session, const struct cairn_frame *frame) {
    uint64_t id = 0;
    bool named = cairn_client_u64_of(frame->message, "save", &id);
    struct cairn_save *save = named ? cairn_client_save_find(session, id) : NULL;
    bool is_free = strcmp(frame->name, "free") == 0;
    bool is_problem = strcmp(frame->name, "problem") == 0;
    if (is_free) take_free(session, frame->message);
    if (is_problem) take_problem(session, save, frame->message);
    for (size_t i = 0; i < CAIRN_COUNT(events); i++) {
        if (strcmp(events[i].name, frame->name) != 0) continue;
        if (save) events[i].take(save, frame->message);
        return true;
    }
    return is_free || is_problem;
}

/* ---- the offer over a new link: slabs, and every save that is not over ---- */

/* Q41: a generation's owner is the save that still needs its bytes; a durable save needs none. */
static uint64_t owner_of(const struct cairn_session *session, uint32_t generation) {
    const struct cairn_save *save;
    TAILQ_FOREACH(save, &session->saves->all, place)
        if (cairn_client_save_owns(save, generation)) return save->owner;
    return 0;
}

static json_t *offered_slabs(const struct cairn_session *session) {
    json_t *slabs = json_array();
    for (uint32_t i = 0; i < session->slab_count; i++) {
        const struct cairn_slab *slab = &session->slabs[i];
        json_array_append_new(slabs, CAIRN_PACK(offer_slab, .bytes = slab->size_bytes,
                                                .device = slab->device, .inode = slab->inode,
                                                .owner = owner_of(session, i)));
    }
    return slabs;
}

/* The caller waits, or may wait, for rank 0's seal, also after its own. The lock is held. */
static bool awaits_decision(const struct cairn_save *save) {
    return save->follows && !save->decided && !cairn_client_save_over(save);
}

/* Omits saves whose `begin` was not answered: they have no id. The lock is held. */
static json_t *offered_saves(struct cairn_session *session) {
    json_t *saves = json_array();
    struct cairn_save *save;
    TAILQ_FOREACH(save, &session->saves->all, place) {
        /* The next uploader continues from the highest offered id, so an omitted save must not keep
         * an id that may be given again. */
        bool cancelled = save->state.phase == CAIRN_CLIENT_PHASE_CANCELLED && CAIRN_RULE(Q44);
        bool over = cairn_client_save_over(save) && !cancelled;
        if (over && CAIRN_RULE(Q43)) save->id = save->owner = 0;
        if (over || !save->id) continue;
        bool owns = save->generation >= 0 &&
                    (cairn_client_save_owns(save, (uint32_t)save->generation) || !CAIRN_RULE(Q41));
        uint32_t slab = owns ? (uint32_t)save->generation : (uint32_t)CAIRN_MESSAGE_NONE;
        json_array_append_new(
            saves, CAIRN_PACK(offer_save, .save = (uint32_t)save->id, .slab = slab,
                              .version = save->version, .step = save->step, .n = save->n,
                              .sealed = save->state.reached >= CAIRN_CLIENT_REACHED_STAGED ||
                                        save->seal_sent,
                              .follow = awaits_decision(save)));
    }
    return saves;
}

static json_t *offer_message(struct cairn_session *session) {
    CAIRN_HOLD(&session->lock);
    CAIRN_AUTO_JSON json_t *slabs = offered_slabs(session), *saves = offered_saves(session);
    CAIRN_AUTO_JSON json_t *counts = cairn_client_process_counts(session->rank);
    return CAIRN_PACK(offer, .attempt = session->attempt, .nonce = session->nonce,
                      .job = session->job, .resume = session->resume,
                      .incarnation = session->incarnation, .slabs = slabs, .saves = saves,
                      .counts = counts, .session = session->uuid, .run = session->run,
                      .rank = session->rank, .proc = session->proc,
                      .bytes = session->bytes ? session->bytes + CAIRN_CLIENT_HEADER_BYTES : 0);
}

/* For a save cancelled after its seal. It keeps its id if the uploader knows it, so that its
 * failure is reported as `fail`. */
static void take_cancelled(struct cairn_save *save, const char *state) {
    bool committed = strcmp(state, "committed") == 0;
    if (!committed && (strcmp(state, "continues") == 0 || strcmp(state, "durable") == 0 ||
                       strcmp(state, "ended") == 0))
        return;
    save->id = save->owner = 0;
    cairn_client_save_event(save,
                            committed ? CAIRN_CLIENT_EVENT_COMMIT : CAIRN_CLIENT_EVENT_ANSWER);
}

static void fail_unknown(const struct cairn_session *session, struct cairn_error *ret) {
    const char *before = session->locked.renamed, *node = session->locked.node;
    if (!before[0])
        (void)cairn_fail(ret, CAIRN_SOURCE_GONE,
                         "the uploader came back without its journal and does not know the save");
    else
        (void)cairn_fail(ret, CAIRN_SOURCE_GONE,
                         "the uploader was of node %s and is of node %s now, so that it has "
                         "another journal and does not know the save; the setting node keeps a "
                         "node's name where its host name changes",
                         before, node);
}

/* The uploader has every byte, or had it before the save was over. */
static void mark_streams_sent(struct cairn_save *save) {
    for (size_t i = 0; i < save->stream_count; i++)
        save->streams[i].epoch = save->session->locked.epoch + 1; /* as find_unsent compares */
}

static void take_state(struct cairn_save *save, const char *state, bool sealed) {
    struct cairn_error why = {0};
    if (save->state.phase == CAIRN_CLIENT_PHASE_CANCELLED) {
        take_cancelled(save, state);
        return;
    }
    bool ended = strcmp(state, "ended") == 0; /* the uploader asks the server; a verdict follows */
    if (sealed || ended) cairn_client_save_event(save, CAIRN_CLIENT_EVENT_SEAL);
    if (ended || strcmp(state, "durable") == 0) mark_streams_sent(save);
    if (ended || strcmp(state, "continues") == 0) return;
    if (strcmp(state, "durable") == 0) {
        cairn_client_save_event(save, CAIRN_CLIENT_EVENT_DURABLE);
        return;
    }
    if (strcmp(state, "committed") == 0) {
        cairn_client_save_event(save, CAIRN_CLIENT_EVENT_COMMIT);
        return;
    }
    if (strcmp(state, "unknown") == 0) {
        save->id = save->owner = 0;
        /* An unsealed save is begun again when it is staged. */
        if (save->state.reached < CAIRN_CLIENT_REACHED_STAGED) return;
        fail_unknown(save->session, &why);
        cairn_client_save_end(save, &why);
        return;
    }
    enum cairn_code code = strcmp(state, "skipped") == 0  ? CAIRN_SKIPPED
                           : strcmp(state, "failed") == 0 ? CAIRN_SOURCE_GONE
                                                          : CAIRN_ABORTED;
    (void)cairn_fail(&why, code, "the uploader was restarted; the save is %.32s", state);
    cairn_client_save_end(save, &why);
}

/* `owners` has each generation's owner at the uploader. 0: free, and no `free` follows. */
static void take_generations(struct cairn_session *session, const json_t *owners) {
    for (uint32_t i = 0; i < session->slab_count; i++) {
        struct cairn_client_generation *at = &session->saves->generations[i];
        json_int_t owner = json_integer_value(json_array_get(owners, i));
        at->lent = owner > 0;
        at->owner = at->lent ? (uint64_t)owner : at->held ? at->held->owner : 0;
    }
}

/* Reports a failure as `fail` if this uploader has the save, else as `count`; drops the report of a
 * save that was committed after all. The lock is held. */
static void take_reports(struct cairn_session *session) {
    struct cairn_client_report *report, *next;
    for (report = TAILQ_FIRST(&session->saves->reports); report; report = next) {
        const struct cairn_save *save;
        bool committed = false;
        next = TAILQ_NEXT(report, place);
        report->of.save = 0;
        TAILQ_FOREACH(save, &session->saves->all, place) {
            if (save->step != report->of.step || save->n != report->of.n) continue;
            if (save->state.phase == CAIRN_CLIENT_PHASE_CANCELLED && CAIRN_RULE(Q44))
                report->of.save = save->id;
            committed = save->state.phase == CAIRN_CLIENT_PHASE_COMMITTED;
        }
        if (!committed) continue;
        TAILQ_REMOVE(&session->saves->reports, report, place);
        cairn_client_report_free(report);
    }
}

static void take_offered(struct cairn_session *session, const struct cairn_msg_offered *offered) {
    for (size_t i = 0; i < json_array_size(offered->saves); i++) {
        struct cairn_msg_offered_save told = {0};
        if (cairn_msg_offered_save_read(json_array_get(offered->saves, i), "/saves", &told, NULL))
            continue;
        struct cairn_save *save = cairn_client_save_find(session, told.save);
        if (save) take_state(save, told.state, told.sealed);
    }
    take_generations(session, offered->owners);
    take_reports(session);
}

static enum cairn_code offer(struct cairn_session *session, uint64_t deadline_ms,
                             struct cairn_error *err) {
    CAIRN_AUTO(frame) answer = {0};
    int fds[CAIRN_CLIENT_GENERATIONS_MAX];
    /* No other thread changes the slabs: the session is not up (client/save/begin.c). */
    for (uint32_t i = 0; i < session->slab_count; i++) fds[i] = session->slabs[i].fd;
    const struct cairn_client_request request = {.take_message = offer_message(session),
                                                 .fds = fds,
                                                 .fd_count = session->slab_count,
                                                 .wanted = cairn_client_wanted(CAIRN_MESSAGE_offer),
                                                 .deadline_ms = deadline_ms};
    CAIRN_TRY(cairn_client_call_alone(session, &request, &answer, err));
    struct cairn_msg_offered offered = {0};
    if (cairn_msg_offered_read(answer.message, "", &offered, err) != CAIRN_OK)
        return cairn_fail(err, CAIRN_PROTOCOL, "offered without saves and owners");
    CAIRN_HOLD(&session->lock);
    take_offered(session, &offered);
    return CAIRN_OK;
}

/* ---- copies handed over to the session's thread ---- */

static struct cairn_client_stager *take_handed_over(struct cairn_session *session) {
    CAIRN_HOLD(&session->lock);
    struct cairn_save *save;
    TAILQ_FOREACH(save, &session->saves->all, place) {
        if (!save->handed_over) continue;
        CAIRN_PROMISE(!save->finishing, return NULL); /* one thread finishes one save at a time */
        save->finishing = true;
        return CAIRN_TAKE(save->handed_over);
    }
    return NULL;
}

static bool link_ended(enum cairn_code code) {
    return code == CAIRN_UPLOADER_GONE || code == CAIRN_TIMEOUT || code == CAIRN_CANCELLED;
}

/* ---- streams in memory of their own ---- */

/* The new uploader has none of them. */
static void note_unsent(struct cairn_session *session) {
    CAIRN_HOLD(&session->lock);
    struct cairn_save *save;
    TAILQ_FOREACH(save, &session->saves->all, place)
        for (size_t i = 0; i < save->stream_count; i++) save->streams[i].epoch = 0;
}

/* The new uploader may need the bytes of any save that is not durable; one of an older release
 * takes them as files, before the seal. The lock is held. */
static struct cairn_save *find_unsent(struct cairn_session *session) {
    struct cairn_save *save;
    bool files = session->locked.version < CAIRN_CLIENT_VERSION_OF_STREAMS;
    TAILQ_FOREACH(save, &session->saves->all, place) {
        bool sealed = save->state.reached >= CAIRN_CLIENT_REACHED_STAGED || save->seal_sent;
        if (!save->id || cairn_client_save_over(save) || (files && sealed)) continue;
        for (size_t i = 0; i < save->stream_count; i++)
            if (save->streams[i].epoch != session->locked.epoch + 1) return save;
    }
    return NULL;
}

/* Ends a save whose streams the new uploader refuses, and reports it. */
static void give_up(struct cairn_save *save, struct cairn_error *why) {
    struct cairn_session *session = save->session;
    struct cairn_client_failed failed = {0};
    cairn_lock_take(&session->lock);
    bool fails = !cairn_client_save_over(save);
    if (fails) {
        bool sealed = save->state.reached >= CAIRN_CLIENT_REACHED_STAGED || save->seal_sent;
        failed = cairn_client_failed_of(save);
        cairn_client_save_end(save, why);
        if (sealed) cairn_client_save_event(save, CAIRN_CLIENT_EVENT_CANCEL);
    }
    cairn_lock_give(&session->lock);
    if (fails) cairn_client_report_add(session, &failed, why);
}

/* Not CAIRN_OK: the link ended, or is to be made anew. */
static enum cairn_code send_streams(struct cairn_session *session, uint64_t deadline_ms,
                                    struct cairn_error *err) {
    for (;;) {
        struct cairn_error why = {0};
        cairn_lock_take(&session->lock);
        struct cairn_save *save = find_unsent(session);
        if (save) save->offering = true;
        cairn_lock_give(&session->lock);
        if (!save) return CAIRN_OK;
        enum cairn_code code = cairn_client_streams_send(save, 0, true, deadline_ms, &why);
        /* A lack of descriptors or memory here passes: the whole offer is repeated. */
        bool ended = link_ended(code) || code == CAIRN_NO_MEMORY || (code && why.os_errno);
        if (code && !ended) give_up(save, &why);
        cairn_lock_take(&session->lock);
        save->offering = false;
        cairn_client_saves_sweep(session);
        cairn_lock_give(&session->lock);
        if (ended && err) *err = why;
        if (ended) return code;
    }
}

/* ---- copies handed over, and saves that follow ---- */

/* True: the save failed here and must be reported. The lock is held. */
static bool settle_handed_over(struct cairn_save *save, enum cairn_code code,
                               struct cairn_error *why) {
    bool failed = code && !cairn_client_save_over(save);
    (void)cairn_within(why, code, "staged while the uploader was away");
    if (failed) cairn_client_save_end(save, why);
    if (!code) cairn_client_save_event(save, CAIRN_CLIENT_EVENT_SEAL);
    cairn_client_save_give(save);
    return failed;
}

/* alone: over a link that this thread has exclusively. */
static enum cairn_code finish_handed_over(struct cairn_client_stager *stager, bool alone,
                                          uint64_t deadline_ms, struct cairn_error *err) {
    struct cairn_save *save = stager->save;
    struct cairn_session *session = stager->session;
    struct cairn_error why = {0};
    stager->alone = alone;
    enum cairn_code code = cairn_client_stager_send_all(stager, deadline_ms, &why);
    cairn_lock_take(&session->lock);
    bool over = cairn_client_save_over(save);
    bool later = link_ended(code) && !over;
    bool failed = !later && settle_handed_over(save, code, &why);
    struct cairn_client_failed report = {0};
    if (failed) report = cairn_client_failed_of(save);
    save->finishing = false;
    CAIRN_PROMISE(!save->handed_over, (void)0);
    if (later) save->handed_over = stager;
    cairn_lock_give(&session->lock);
    if (failed) cairn_client_report_add(session, &report, &why);
    if (!later) cairn_client_stager_free(stager);
    if (later && err) *err = why;
    return later ? code : CAIRN_OK;
}

/* ---- saves that follow ---- */

/* Finds a follower that this uploader does not know, which would miss rank 0's seal. `finishing`
 * reserves it for the session's thread until begin_again() returns. */
static struct cairn_save *take_unbegun(struct cairn_session *session) {
    CAIRN_HOLD(&session->lock);
    struct cairn_save *save;
    TAILQ_FOREACH(save, &session->saves->all, place) {
        /* Its caller makes the begin without the lock, and sets `follows` when it is whole. */
        if (save->state.phase != CAIRN_CLIENT_PHASE_COUNTED || save->id || save->finishing ||
            save->freed || !awaits_decision(save))
            continue;
        save->finishing = true;
        return save;
    }
    return NULL;
}

static enum cairn_code begin_again(struct cairn_save *save, uint64_t deadline_ms,
                                   struct cairn_error *err) {
    struct cairn_session *session = save->session;
    struct cairn_error why = {0};
    struct cairn_client_failed failed = {0};
    enum cairn_code code = cairn_client_save_begin_again(save, 0, true, deadline_ms, &why);
    cairn_lock_take(&session->lock);
    if (!code && save->freed) /* cairn_save_free left the save to this thread */
        code = cairn_fail(&why, CAIRN_CANCELLED, "freed before it was staged");
    bool fails = code && !link_ended(code) && !cairn_client_save_over(save);
    if (fails) failed = cairn_client_failed_of(save);
    if (fails) cairn_client_save_end(save, &why);
    if (fails && save->freed) save->problem_returned = true; /* no other call can return it */
    save->finishing = false;
    cairn_client_saves_sweep(session);
    cairn_lock_give(&session->lock);
    if (fails) cairn_client_report_add(session, &failed, &why);
    if (err && link_ended(code)) *err = why;
    return link_ended(code) ? code : CAIRN_OK;
}

/* Offers, sends streams again, then stages and seals the copies made without an uploader. Not
 * CAIRN_OK: the link ended, and the rest waits for the next one; or the uploader refused the
 * offer. */
static enum cairn_code offer_all(struct cairn_session *session, uint64_t deadline_ms,
                                 struct cairn_error *err) {
    note_unsent(session);
    CAIRN_TRY(offer(session, deadline_ms, err));
    CAIRN_TRY(send_streams(session, deadline_ms, err));
    for (struct cairn_client_stager *stager; (stager = take_handed_over(session));)
        CAIRN_TRY(finish_handed_over(stager, true, deadline_ms, err));
    for (struct cairn_save *save; (save = take_unbegun(session));)
        CAIRN_TRY(begin_again(save, deadline_ms, err));
    return CAIRN_OK;
}

/* Finishes copies handed over after offer_all, or to a silent uploader; other threads already use
 * the link, so the session's thread must go on reading. */
static void *finish_all(void *owner) {
    struct cairn_session *session = owner;
    for (bool again = true; again;) {
        uint64_t deadline_ms = cairn_client_deadline(session, 0);
        enum cairn_code code = CAIRN_OK;
        for (struct cairn_client_stager *stager; !code && (stager = take_handed_over(session));)
            code = finish_handed_over(stager, false, deadline_ms, NULL);
        CAIRN_HOLD(&session->lock);
        again = session->saves->finish_again || code == CAIRN_TIMEOUT;
        again = again && session->locked.state == CAIRN_CLIENT_UP && !session->locked.stop;
        session->saves->finish_again = false;
        session->saves->finishing = again;
    }
    cairn_client_leave(session);
    return NULL;
}

static void on_finish(struct cairn_session *session) {
    const struct cairn_save *save;
    bool any = false;
    if (!session->saves) return; /* read_only */
    cairn_lock_take(&session->lock);
    TAILQ_FOREACH(save, &session->saves->all, place) any = any || save->handed_over;
    bool starts = any && !session->saves->finishing;
    session->saves->finish_again = session->saves->finishing;
    session->saves->finishing = session->saves->finishing || starts;
    cairn_lock_give(&session->lock);
    if (!starts || cairn_client_detached(session, finish_all, session)) return;
    CAIRN_HOLD(&session->lock); /* no thread: the next link, or silence, tries again */
    session->saves->finishing = false;
}

/* ---- the session's callbacks ---- */

static bool on_event(struct cairn_session *session, const struct cairn_frame *frame) {
    bool known = take_event(session, frame);
    cairn_client_saves_sweep(session);
    return known;
}

/* Notifies all unfinished saves that the uploader went away or came back. The lock is held. */
static void note_all_changed(struct cairn_session *session) {
    struct cairn_save *save;
    TAILQ_FOREACH(save, &session->saves->all, place)
        if (!cairn_client_save_over(save)) cairn_client_save_changed(save);
}

/* An answer that no call awaits: to a report, or to a call that went on without it. */
static void on_answer(struct cairn_session *session, const struct cairn_frame *frame, uint64_t id) {
    struct cairn_save *save;
    if (!session->saves) return;
    TAILQ_FOREACH(save, &session->saves->all, place) {
        if (save->late_begin.id == id) cairn_client_save_begun_late(save, frame);
        if (save->late_stage.id == id) cairn_client_save_staged_late(save, frame);
    }
    cairn_client_reports_answered(session, frame, id);
    cairn_client_saves_sweep(session);
}

static void on_link_ended(struct cairn_session *session) {
    struct cairn_save *save;
    if (!session->saves) return;
    TAILQ_FOREACH(save, &session->saves->all, place)
        save->late_begin = save->late_stage = (struct cairn_client_late){0};
    cairn_client_reports_unsent(session);
    note_all_changed(session);
}

static void on_up(struct cairn_session *session) {
    cairn_client_reports_send(session);
    note_all_changed(session);
    cairn_client_saves_sweep(session);
}

static void on_refused(struct cairn_session *session) {
    struct cairn_save *save;
    TAILQ_FOREACH(save, &session->saves->all, place)
        cairn_client_save_end(save, &session->locked.refusal);
    cairn_client_saves_sweep(session);
}

static void on_notice(struct cairn_session *session, const struct cairn_error *why) {
    if (!session->saves->notice.code) session->saves->notice = *why;
}

const struct cairn_client_sink cairn_client_saves_sink = {
    .event = on_event,
    .answer = on_answer,
    .link_ended = on_link_ended,
    .offer = offer_all,
    .up = on_up,
    .notice = on_notice,
    .finish = on_finish,
    .refused = on_refused,
};
