/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Over a new link: the slabs and every save that is not over are offered, then the copies that were
 * made while no uploader was there are staged and sealed.
 */
#include "client/save/offer.h"

#include <stdlib.h>

#include "client/save/begun.h"
#include "client/save/fail.h"
#include "client/save/stager.h"
#include "client/save/sweep.h"
#include "client/session/alone.h"
#include "client/session/process.h"
#include "common/hooks.h"

/* Q41: the owner of a generation is the save that still needs its bytes; a durable save needs
 * none. */
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

/* Its caller waits for the seal of rank 0, or may. The lock is held. */
static bool awaits_decision(const struct cairn_save *save) {
    return save->follows && !save->decided && !cairn_client_save_over(save) &&
           save->state.reached < CAIRN_CLIENT_REACHED_STAGED && !save->seal_sent;
}

/* A save whose `begin` was not answered has no number and is left out. The lock is held. */
static json_t *offered_saves(struct cairn_session *session) {
    json_t *saves = json_array();
    struct cairn_save *save;
    TAILQ_FOREACH(save, &session->saves->all, place) {
        /* The next uploader numbers on from the highest offered save, so a save that is left out
         * must not keep a number that may be given again. */
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

/* A save that was cancelled after its seal. It keeps its number where the uploader has it, so that
 * its failure is reported as `fail`. */
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

static void take_state(struct cairn_save *save, const char *state, bool sealed) {
    struct cairn_error why = {0};
    if (save->state.phase == CAIRN_CLIENT_PHASE_CANCELLED) {
        take_cancelled(save, state);
        return;
    }
    bool ended = strcmp(state, "ended") == 0; /* the uploader asks the server; a verdict follows */
    if (sealed || ended) cairn_client_save_event(save, CAIRN_CLIENT_EVENT_SEAL);
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
        /* One that is not sealed is begun again when it is staged. */
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

/* `owners` names the save for which the uploader holds each generation. One with owner 0 is free,
 * and no `free` is sent for it. */
static void take_generations(struct cairn_session *session, const json_t *owners) {
    for (uint32_t i = 0; i < session->slab_count; i++) {
        struct cairn_client_generation *at = &session->saves->generations[i];
        json_int_t owner = json_integer_value(json_array_get(owners, i));
        at->lent = owner > 0;
        at->owner = at->lent ? (uint64_t)owner : at->held ? at->held->owner : 0;
    }
}

/* A failure is reported as `fail` where this uploader has the save, else as `count`. A report of a
 * save that turned out to be committed is dropped. The lock is held. */
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
    /* No other thread changes them: the session is not up (client/save/reserve.c). */
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

/* ---- copies that were handed over to this thread ---- */

static struct cairn_client_stager *take_handed_over(struct cairn_session *session) {
    CAIRN_HOLD(&session->lock);
    struct cairn_save *save;
    TAILQ_FOREACH(save, &session->saves->all, place) {
        if (!save->handed_over) continue;
        CAIRN_PROMISE(!save->finishing, return NULL); /* by one thread, one at a time */
        save->finishing = true;
        return CAIRN_TAKE(save->handed_over);
    }
    return NULL;
}

static bool link_ended(enum cairn_code code) {
    return code == CAIRN_UPLOADER_GONE || code == CAIRN_TIMEOUT || code == CAIRN_CANCELLED;
}

/* True: the save failed here, which must be reported. The lock is held. */
static bool settle_handed_over(struct cairn_save *save, enum cairn_code code,
                               struct cairn_error *why) {
    bool failed = code && !cairn_client_save_over(save);
    (void)cairn_within(why, code, "staged while the uploader was away");
    if (failed) cairn_client_save_end(save, why);
    if (!code) cairn_client_save_event(save, CAIRN_CLIENT_EVENT_SEAL);
    cairn_client_save_give(save);
    return failed;
}

/* alone: over a link that no other thread uses yet. */
static enum cairn_code finish_handed_over(struct cairn_client_stager *stager, bool alone,
                                          uint64_t deadline_ms, struct cairn_error *err) {
    struct cairn_save *save = stager->save;
    struct cairn_session *session = stager->session;
    struct cairn_error why = {0};
    stager->alone = alone;
    stager->epoch = 0;
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

/* One that this uploader does not know would not hear of the seal of rank 0. It is the session's
 * thread's until begin_again() is over: `finishing` keeps it. */
static struct cairn_save *take_unbegun(struct cairn_session *session) {
    CAIRN_HOLD(&session->lock);
    struct cairn_save *save;
    TAILQ_FOREACH(save, &session->saves->all, place) {
        if (save->id || !awaits_decision(save) || save->finishing || save->freed ||
            save->state.phase != CAIRN_CLIENT_PHASE_COUNTED)
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
    if (!code && save->freed) /* meanwhile: cairn_save_free has left it to this thread */
        code = cairn_fail(&why, CAIRN_CANCELLED, "freed before it was staged");
    bool fails = code && !link_ended(code) && !cairn_client_save_over(save);
    if (fails) failed = cairn_client_failed_of(save);
    if (fails) cairn_client_save_end(save, &why);
    if (fails && save->freed) save->problem_returned = true; /* by nobody else */
    save->finishing = false;
    cairn_client_saves_sweep(session);
    cairn_lock_give(&session->lock);
    if (fails) cairn_client_report_add(session, &failed, &why);
    if (err && link_ended(code)) *err = why;
    return link_ended(code) ? code : CAIRN_OK;
}

enum cairn_code cairn_client_offer(struct cairn_session *session, uint64_t deadline_ms,
                                   struct cairn_error *err) {
    CAIRN_TRY(offer(session, deadline_ms, err));
    for (struct cairn_client_stager *stager; (stager = take_handed_over(session));)
        CAIRN_TRY(finish_handed_over(stager, true, deadline_ms, err));
    for (struct cairn_save *save; (save = take_unbegun(session));)
        CAIRN_TRY(begin_again(save, deadline_ms, err));
    return CAIRN_OK;
}

void cairn_client_finish(struct cairn_session *session) {
    uint64_t deadline_ms = cairn_client_deadline(session, 0);
    enum cairn_code code = CAIRN_OK;
    if (!session->saves) return; /* it is read_only */
    for (struct cairn_client_stager *stager; !code && (stager = take_handed_over(session));)
        code = finish_handed_over(stager, false, deadline_ms, NULL);
}
