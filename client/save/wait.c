/* SPDX-License-Identifier: Apache-2.0 */
/* Milestones of a save, giving it up, and failures that came in the background. */
#include <inttypes.h>

#include "client/save/save.h"

static bool is_reached(const struct cairn_save *save, enum cairn_milestone milestone) {
    return (enum cairn_milestone)save->state.reached >= milestone;
}

static const char *milestone_text(enum cairn_milestone milestone) {
    if (milestone == CAIRN_STAGED) return "staged";
    return milestone == CAIRN_DURABLE ? "durable" : "committed";
}

/* The lock is held. */
static enum cairn_code wait_until(struct cairn_save *save, enum cairn_milestone milestone,
                                  uint64_t deadline_ms, struct cairn_error *err) {
    struct cairn_session *session = save->session;
    for (;;) {
        uint32_t epoch = 0;
        if (is_reached(save, milestone)) return CAIRN_OK;
        if (save->problem.code) return cairn_client_save_problem(save, err);
        enum cairn_code code = CAIRN_OK;
        if (session->locked.state != CAIRN_CLIENT_UP)
            code = cairn_client_reach(session, deadline_ms, &epoch, err);
        else if (cairn_mono_ms() >= deadline_ms)
            code = cairn_fail(err, CAIRN_TIMEOUT, "not %s yet", milestone_text(milestone));
        else
            cairn_condition_wait(&session->changed, &session->lock, deadline_ms);
        if (code && !is_reached(save, milestone) && !save->problem.code)
            return cairn_client_save_named(save, code, err);
    }
}

enum cairn_code cairn_save_wait(struct cairn_save *save, enum cairn_milestone milestone,
                                uint32_t timeout_ms, struct cairn_error *err) {
    CAIRN_TRY(cairn_client_save_enter(save, err));
    if (milestone < CAIRN_STAGED || milestone > CAIRN_COMMITTED)
        return cairn_fail(err, CAIRN_INVALID, "no such milestone: %d", (int)milestone);
    CAIRN_HOLD(&save->session->lock);
    if (save->state.phase == CAIRN_CLIENT_PHASE_COUNTED)
        return cairn_fail(err, CAIRN_INVALID, "%s step %" PRIu64 ": nothing was staged yet",
                          save->session->run, save->step);
    return wait_until(save, milestone, cairn_client_deadline(save->session, timeout_ms), err);
}

enum cairn_code cairn_save_fail(struct cairn_save *save, const char *reason,
                                struct cairn_error *err) {
    CAIRN_TRY(cairn_client_save_enter(save, err));
    struct cairn_session *session = save->session;
    struct cairn_error why = {0};
    (void)cairn_fail(&why, CAIRN_CANCELLED, "%s", reason && reason[0] ? reason : "given up");
    cairn_lock_take(&session->lock);
    bool committed = save->state.phase == CAIRN_CLIENT_PHASE_COMMITTED;
    bool over = cairn_client_save_over(save);
    uint64_t id = save->id;
    cairn_lock_give(&session->lock);
    if (committed)
        return cairn_fail(err, CAIRN_ALREADY_COMMITTED, "%s step %" PRIu64 " is committed",
                          session->run, save->step);
    if (over) return CAIRN_OK;
    const struct cairn_client_ask ask = {.take_message = cairn_client_fail_message(id, &why),
                                         .wanted = "ok",
                                         .deadline_ms = cairn_client_deadline(session, 0)};
    enum cairn_code code = id ? cairn_client_call(session, &ask, NULL, err) : CAIRN_UPLOADER_GONE;
    if (!id) json_decref(ask.take_message);
    if (code == CAIRN_ALREADY_COMMITTED) {
        CAIRN_HOLD(&session->lock);
        cairn_client_save_event(save, CAIRN_CLIENT_EVENT_COMMIT);
        return cairn_within(err, code, "%s step %" PRIu64, session->run, save->step);
    }
    if (code == CAIRN_OK) {
        (void)cairn_client_save_close(save, &why);
        return CAIRN_OK;
    }
    /* Q8: told again in the background. */
    (void)cairn_client_save_fail(save, CAIRN_CANCELLED, &why);
    return cairn_fail(err, code, "%s step %" PRIu64 ": the uploader is told again when it is back",
                      session->run, save->step);
}

static void take_notice(struct cairn_error *notice, struct cairn_error *err) {
    if (err) *err = *notice;
    *notice = (struct cairn_error){0};
}

enum cairn_code cairn_session_problem(struct cairn_session *session, struct cairn_error *err) {
    CAIRN_TRY(cairn_client_enter(session, err));
    CAIRN_HOLD(&session->lock);
    for (struct cairn_save *save = session->locked.saves; save; save = save->next) {
        if (!save->problem.code || save->told) continue;
        enum cairn_code code = cairn_client_save_problem(save, err);
        cairn_client_saves_sweep(session);
        return code;
    }
    for (struct cairn_save *save = session->locked.saves; save; save = save->next) {
        if (!save->notice.code || cairn_client_save_over(save)) continue;
        take_notice(&save->notice, err);
        return cairn_client_save_named(save, CAIRN_UNAVAILABLE, err);
    }
    if (!session->locked.notice.code) return CAIRN_OK;
    take_notice(&session->locked.notice, err);
    return cairn_within(err, CAIRN_UNAVAILABLE, "%s rank %u", session->run, session->rank);
}
