/* SPDX-License-Identifier: Apache-2.0 */
/* Milestones of a save, and failures that came in the background. */
#include <inttypes.h>
#include <unistd.h>

#include "client/save/sweep.h"

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

static void take_notice(struct cairn_error *notice, struct cairn_error *err) {
    if (err) *err = *notice;
    *notice = (struct cairn_error){0};
}

enum cairn_code cairn_session_problem(struct cairn_session *session, struct cairn_error *err) {
    CAIRN_TRY(cairn_client_enter(session, err));
    CAIRN_HOLD(&session->lock);
    for (struct cairn_save *save = session->saves->first; save; save = save->next) {
        if (!save->problem.code || save->told) continue;
        enum cairn_code code = cairn_client_save_problem(save, err);
        cairn_client_saves_sweep(session);
        return code;
    }
    for (struct cairn_save *save = session->saves->first; save; save = save->next) {
        if (!save->notice.code || cairn_client_save_over(save)) continue;
        take_notice(&save->notice, err);
        return cairn_client_save_named(save, CAIRN_UNAVAILABLE, err);
    }
    if (!session->saves->notice.code) return CAIRN_OK;
    take_notice(&session->saves->notice, err);
    return cairn_within(err, CAIRN_UNAVAILABLE, "%s rank %u", session->run, session->rank);
}

void cairn_save_status(const struct cairn_save *save, struct cairn_save_status *ret) {
    struct cairn_session *session = save->session;
    bool lock = session && session->pid == getpid();
    if (lock) cairn_lock_take(&session->lock);
    *ret = (struct cairn_save_status){.step = save->step,
                                      .reached = (enum cairn_milestone)save->state.reached,
                                      .total_bytes = save->total_bytes,
                                      .durable_bytes = save->durable_bytes,
                                      .stall_us = save->stall_us};
    memcpy(ret->version, save->version, sizeof ret->version);
    if (lock) cairn_lock_give(&session->lock);
}
