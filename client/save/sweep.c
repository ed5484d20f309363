/* SPDX-License-Identifier: Apache-2.0 */
/* The session's list of saves: entries are removed when neither caller nor uploader needs them. */
#include "client/save/sweep.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/save/fail.h"
#include "client/save/known.h"
#include "client/save/look.h"
#include "client/save/poll.h"
#include "client/save/stager.h"
#include "client/save/stale.h"
#include "common/hooks.h"

#define CLOSE_WAIT_MS 10000

static void destroy(struct cairn_save *save) {
    if (!save) return;
    cairn_client_save_drop_pieces(save);
    cairn_client_stager_free(save->handed_over);
    cairn_client_stager_free(save->kept);
    cairn_client_save_fd_close(save);
    for (size_t i = 0; i < save->sent_count; i++) free(save->sent[i].name);
    free(save->sent);
    free(save->waits_for);
    cairn_client_lists_drop(save);
    cairn_pieces_free(save->last);
    free(save->last_sources);
    json_decref(save->begin);
    json_decref(save->labels);
    json_decref(save->meta);
    free(save);
}

void cairn_client_saves_sweep(struct cairn_session *session) {
    struct cairn_save *save, *next;
    for (save = TAILQ_FIRST(&session->saves->all); save; save = next) {
        enum cairn_client_phase phase = save->state.phase;
        bool done =
            save->freed && !save->finishing && !save->behind.busy &&
            (phase == CAIRN_CLIENT_PHASE_COMMITTED ||
             (phase == CAIRN_CLIENT_PHASE_FAILED && (save->problem_returned || !CAIRN_RULE(Q43))));
        next = TAILQ_NEXT(save, place);
        if (!done) continue;
        TAILQ_REMOVE(&session->saves->all, save, place);
        destroy(save);
    }
}

/* Nobody has the handle any more: a save that is not copied is given up, and no source is read when
 * it returns. True: a thread has the save still, and its pieces. The lock is not held. */
static bool leave_behind(struct cairn_save *save) {
    struct cairn_session *session = save->session;
    struct cairn_error why = {0};
    struct cairn_client_failed failed = {0};
    cairn_lock_take(&session->lock);
    bool given_up = cairn_client_save_reads(save) && !cairn_client_save_over(save);
    if (given_up) {
        failed = cairn_client_failed_of(save);
        (void)cairn_fail(&why, CAIRN_CANCELLED, "freed before it was copied");
        cairn_client_save_end(save, &why);
        save->problem_returned = true;
        cairn_client_changed(session);
    }
    while (cairn_client_save_reads(save))
        (void)cairn_condition_wait(&session->changed, &session->lock, UINT64_MAX);
    bool goes_on = save->behind.busy;
    cairn_lock_give(&session->lock);
    if (given_up) cairn_client_report_add(session, &failed, &why);
    return goes_on;
}

void cairn_save_free(struct cairn_save *save) {
    if (!save) return;
    struct cairn_session *session = save->session;
    if (!session) {
        destroy(save);
        return;
    }
    if (session->pid != getpid()) return; /* the parent's; its memory goes with the child */
    cairn_lock_take(&session->lock);
    bool busy = save->user.depth > 0;
    save->user.end = busy ? cairn_save_free : NULL; /* the end of that call frees it */
    cairn_lock_give(&session->lock);
    if (busy) return;
    bool behind = leave_behind(save);
    if (!behind) cairn_client_save_drop_pieces(save);
    cairn_lock_take(&session->lock);
    bool handed_over = save->handed_over || save->finishing ||
                       behind; /* goes on without the handle, as a sealed one */
    bool unsealed = save->state.reached < CAIRN_CLIENT_REACHED_STAGED && !handed_over &&
                    !cairn_client_save_over(save);
    struct cairn_client_failed failed = {0};
    struct cairn_error why = {0};
    if (unsealed) {
        failed = cairn_client_failed_of(save);
        (void)cairn_fail(&why, CAIRN_CANCELLED, "freed before it was staged");
        cairn_client_save_end(save, &why);
        save->problem_returned = true;
    }
    if (!handed_over) cairn_client_save_give(save);
    save->freed = true;
    struct cairn_pieces *last = CAIRN_TAKE(save->last); /* nobody can ask for it any more */
    cairn_client_save_fd_close(save);
    cairn_client_saves_sweep(session);
    cairn_lock_give(&session->lock);
    cairn_pieces_free(last);
    if (unsealed) cairn_client_report_add(session, &failed, &why);
}

/* ---- with the session ---- */

enum cairn_code cairn_client_saves_new(struct cairn_session *session, struct cairn_error *err) {
    session->saves = calloc(1, sizeof *session->saves);
    if (!session->saves) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a session");
    TAILQ_INIT(&session->saves->all);
    TAILQ_INIT(&session->saves->reports);
    return CAIRN_OK;
}

void cairn_client_saves_clear(struct cairn_session *session) {
    struct cairn_client_report *report;
    struct cairn_save *save;
    while ((report = TAILQ_FIRST(&session->saves->reports))) {
        TAILQ_REMOVE(&session->saves->reports, report, place);
        cairn_client_report_free(report);
    }
    while ((save = TAILQ_FIRST(&session->saves->all))) {
        TAILQ_REMOVE(&session->saves->all, save, place);
        cairn_client_save_settle(save);
        cairn_client_save_changed(save);
        save->session = NULL;
        if (save->freed) destroy(save);
    }
    if (session->saves->kept) cairn_client_arrangement_release(session->saves->kept);
    free(session->saves->kept);
    cairn_client_stale_release(&session->saves->stale);
    *session->saves = (struct cairn_client_saves){0};
    TAILQ_INIT(&session->saves->all);
    TAILQ_INIT(&session->saves->reports);
}

void cairn_client_saves_free(struct cairn_session *session) {
    if (!session->saves) return;
    cairn_client_saves_clear(session);
    free(session->saves);
    session->saves = NULL;
}

/* A copy that is not durable, and a failure that is not reported, need an uploader: one that is
 * away is given a while to come back and take the offer. */
static bool needs_uploader(const struct cairn_session *session) {
    const struct cairn_save *save;
    if (!TAILQ_EMPTY(&session->saves->reports)) return true;
    TAILQ_FOREACH(save, &session->saves->all, place)
        if (save->state.phase == CAIRN_CLIENT_PHASE_COPIED ||
            cairn_client_save_state_is_unsent(&save->state))
            return true;
    return false;
}

/* A copy that no uploader knows waits for the one after an uploader that is stopping. */
static bool untold(const struct cairn_session *session) {
    const struct cairn_save *save;
    TAILQ_FOREACH(save, &session->saves->all, place)
        if (save->state.phase == CAIRN_CLIENT_PHASE_COPIED) return true;
    return false;
}

/* The lock is held. */
static void give_up(struct cairn_session *session) {
    struct cairn_error why = {0};
    struct cairn_save *save;
    (void)cairn_fail(&why, CAIRN_CANCELLED, "the session was closed before it was copied");
    TAILQ_FOREACH(save, &session->saves->all, place)
        if (save->behind.reads) cairn_client_save_end(save, &why);
}

/* Before the session ends: wait for the threads. Those that read sources at the deadline, or when a
 * signal comes, have their saves given up. False: a signal came. */
static bool settle_behind(struct cairn_session *session, uint64_t deadline_ms) {
    enum cairn_code code = CAIRN_OK;
    struct cairn_save *save;
    CAIRN_HOLD(&session->lock);
    TAILQ_FOREACH(save, &session->saves->all, place) save->behind.fenced = true;
    cairn_client_changed(session);
    while (session->saves->behind_count && !code)
        code = cairn_client_pause(session, deadline_ms, NULL);
    if (!code) return true;
    give_up(session);
    cairn_client_changed(session);
    return code != CAIRN_INTERRUPTED;
}

bool cairn_client_saves_settle(struct cairn_session *session, uint64_t deadline_ms) {
    uint64_t until_ms = cairn_min_u64(deadline_ms, cairn_mono_ms() + CLOSE_WAIT_MS);
    enum cairn_code code = CAIRN_OK;
    bool signalled = !settle_behind(session, deadline_ms);
    CAIRN_HOLD(&session->lock);
    cairn_client_reports_send(session);
    while (!signalled && (session->locked.state == CAIRN_CLIENT_AWAY || untold(session)
                              ? needs_uploader(session)
                              : !TAILQ_EMPTY(&session->saves->reports)))
        if (session->locked.state == CAIRN_CLIENT_REFUSED ||
            (code = cairn_client_pause(session, until_ms, NULL)) != CAIRN_OK)
            break;
    session->locked.leaving = true;
    return !signalled && code != CAIRN_INTERRUPTED;
}

enum cairn_code cairn_client_saves_last_problem(struct cairn_session *session, bool gone,
                                                struct cairn_error *err) {
    CAIRN_HOLD(&session->lock);
    struct cairn_save *save;
    TAILQ_FOREACH(save, &session->saves->all, place)
        if (save->problem.code && !save->problem_returned)
            return cairn_client_save_problem(save, err);
    if (!(gone || untold(session)) || !needs_uploader(session)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_UPLOADER_GONE,
                      "%s rank %u: the uploader at %s did not come back; what was staged and is "
                      "not durable ends with this process",
                      session->run, session->rank, session->socket);
}
