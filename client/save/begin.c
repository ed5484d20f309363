/* SPDX-License-Identifier: Apache-2.0 */
/* Begin a save: count it, ask the uploader, take a generation. */
#include <inttypes.h>
#include <stdlib.h>

#include "client/save/begun.h"
#include "client/save/fail.h"
#include "client/save/late.h"
#include "client/save/known.h"
#include "client/save/sweep.h"
#include "client/session/options.h"
#include "client/session/process.h"

#define SKIP_WAIT_MS 1000
#define BEGIN_TRIES 3

/* A generation that nobody writes and no uploader reads. The lock is held. */
static bool generation_take_free(struct cairn_save *save) {
    struct cairn_session *session = save->session;
    for (uint32_t i = 0; i < session->slab_count && !session->saves->reserving; i++) {
        struct cairn_client_generation *at = &session->saves->generations[i];
        if (at->held || at->lent) continue;
        CAIRN_PROMISE(save->generation < 0, return false); /* else the one before stays held */
        at->held = save;
        at->owner = save->owner;
        save->generation = (int)i;
        return true;
    }
    return false;
}

/* Waits for a change; the error of a timeout says what holds the generations. The lock is held. */
static enum cairn_code generation_await(struct cairn_session *session, uint64_t deadline_ms,
                                        struct cairn_error *err) {
    enum cairn_code code = cairn_client_pause(session, deadline_ms, err);
    if (code != CAIRN_TIMEOUT) return code;
    if (session->saves->reserving)
        return cairn_fail(err, code, "memory for saves is being reserved");
    for (uint32_t i = 0; i < session->slab_count; i++) {
        const struct cairn_client_generation *at = &session->saves->generations[i];
        if (at->held && at->held->parked)
            return cairn_fail(err, code,
                              "step %" PRIu64 " was copied and neither sealed nor freed; it holds "
                              "the memory",
                              at->held->step);
        if (at->held && at->held->state.phase == CAIRN_CLIENT_PHASE_COUNTED)
            return cairn_fail(err, code,
                              "step %" PRIu64 " was begun and neither staged nor freed; it holds "
                              "the memory",
                              at->held->step);
    }
    return cairn_fail(err, code, "%u of %u slab generations are still being sent",
                      session->slab_count, session->slab_count);
}

/* Q14: the wait is for this rank's own generations, and a verdict about the save ends it. The lock
 * is held. */
static enum cairn_code generation_take(struct cairn_save *save, uint64_t deadline_ms,
                                       struct cairn_error *err) {
    struct cairn_session *session = save->session;
    for (;;) {
        uint32_t epoch = 0;
        if (cairn_client_save_over(save) || generation_take_free(save)) return CAIRN_OK;
        if (!session->slab_count && !session->saves->reserving) return CAIRN_OK; /* it has none */
        if (session->locked.state != CAIRN_CLIENT_UP)
            CAIRN_TRY(cairn_client_reach_next(session, deadline_ms, &epoch, err));
        else
            CAIRN_TRY(generation_await(session, deadline_ms, err));
    }
}

/* A save whose description was refused and that was not staged, where no generation is free; else
 * NULL. The lock is held. */
static struct cairn_save *left_behind(struct cairn_session *session) {
    struct cairn_save *found = NULL;
    for (uint32_t i = 0; i < session->slab_count; i++) {
        struct cairn_client_generation *at = &session->saves->generations[i];
        if (!at->held && !at->lent) return NULL; /* there is room without it */
        if (at->held && at->held->misused && at->held->state.phase == CAIRN_CLIENT_PHASE_COUNTED)
            found = at->held;
    }
    return found;
}

/* Ends the save of left_behind() and reports its failure, so that the save of for_step gets its
 * generation. */
static void generation_reclaim(struct cairn_session *session, uint64_t for_step) {
    struct cairn_error why = {0};
    struct cairn_client_failed failed = {0};
    cairn_lock_take(&session->lock);
    struct cairn_save *left = left_behind(session);
    if (left) {
        (void)cairn_fail(&why, CAIRN_CANCELLED,
                         "a call on it had failed, it was not staged, and step %" PRIu64
                         " needed its memory",
                         for_step);
        failed = cairn_client_failed_of(left);
        cairn_client_save_end(left, &why);
    }
    cairn_lock_give(&session->lock);
    if (left) cairn_client_report_add(session, &failed, &why);
}

static bool earlier_unsent(const struct cairn_save *save) {
    const struct cairn_save *at;
    TAILQ_FOREACH(at, &save->session->saves->all, place)
        if (at != save && cairn_client_save_under_way(at)) return true;
    return false;
}

/* Q11: the server decides `skip` for all ranks by what it knows. This rank waits up to SKIP_WAIT_MS
 * for its own earlier saves, and skips where no generation of its own is free then. The lock is
 * held. */
static enum cairn_code skip_wait(struct cairn_save *save, struct cairn_error *err) {
    struct cairn_session *session = save->session;
    uint64_t until_ms = cairn_mono_ms() + SKIP_WAIT_MS;
    enum cairn_code code = CAIRN_OK;
    while (!cairn_client_save_over(save) && earlier_unsent(save) && !code)
        code = cairn_client_pause(session, until_ms, err);
    if (code == CAIRN_INTERRUPTED) return code;
    if (generation_take(save, cairn_mono_ms(), NULL) == CAIRN_OK) return CAIRN_OK;
    return cairn_fail(err, CAIRN_SKIPPED, "an earlier save is still being sent");
}

/* `begin` is repeated when the link ends before its answer: the same n is the same begin (Q8). An
 * uploader that stays away fails it within CAIRN_CLIENT_GONE_MS. */
static enum cairn_code ask_begin(struct cairn_save *save, uint64_t deadline_ms,
                                 struct cairn_error *err) {
    enum cairn_code code = CAIRN_UPLOADER_GONE;
    for (int tries = 0; tries < BEGIN_TRIES && code == CAIRN_UPLOADER_GONE; tries++)
        code = cairn_client_save_begin_again(save, 0, false, deadline_ms, err);
    return code;
}

/* Q43: a version needs every rank, so a rank that failed here would fail the step for all. Where no
 * uploader takes the begin, a save that has a generation, or needs none, goes on, and `begin` is
 * sent to the next uploader together with `stage` (client/save/stage.c). An uploader that is
 * stopping gives generations back meanwhile, so its end and its successor are waited for. The lock
 * is held. */
static enum cairn_code begin_without(struct cairn_save *save, enum cairn_code code,
                                     bool *ret_later) {
    struct cairn_session *session = save->session;
    if (code != CAIRN_UPLOADER_GONE) return code;
    if (!session->attempt) return code; /* a renewal failed: there is no attempt to save in */
    bool needs_none = !session->slab_count && !session->saves->reserving;
    *ret_later = generation_take_free(save) || needs_none;
    return *ret_later || cairn_client_stopping(session) ? CAIRN_OK : code;
}

static enum cairn_code begin(struct cairn_save *save, const struct cairn_save_options *options,
                             struct cairn_error *err) {
    struct cairn_session *session = save->session;
    uint64_t deadline_ms = cairn_client_deadline(session, options->timeout_ms);
    save->progress = options->progress;
    save->progress_owner = options->progress_owner;
    save->verify_sources = options->verify_sources != 0;
    CAIRN_TRY(cairn_client_begin_body(save, options, err));
    generation_reclaim(session, save->step);
    enum cairn_code code = ask_begin(save, deadline_ms, err);
    CAIRN_HOLD(&session->lock);
    bool later = false;
    CAIRN_TRY(begin_without(save, code, &later));
    if (later) return CAIRN_OK;
    struct cairn_client_late late;
    cairn_client_late_look(save, &late);
    uint64_t waits_us = cairn_mono_us();
    bool waits = session->slab_count || session->saves->reserving;
    if (waits && options->skip) CAIRN_TRY(skip_wait(save, err));
    if (waits && !options->skip) CAIRN_TRY(generation_take(save, deadline_ms, err));
    save->wait_us = cairn_mono_us() - waits_us;
    cairn_client_late_note(save, &late);
    if (cairn_client_save_over(save)) {
        if (err) *err = save->problem;
        return save->problem.code;
    }
    return CAIRN_OK;
}

static struct cairn_save *save_new(struct cairn_session *session, uint64_t step, uint32_t n) {
    struct cairn_save *save = calloc(1, sizeof *save);
    if (!save) return NULL;
    save->session = session;
    save->step = step;
    save->n = n;
    save->generation = -1;
    save->fd = -1;
    save->number = cairn_client_known_number();
    CAIRN_HOLD(&session->lock);
    TAILQ_INSERT_TAIL(&session->saves->all, save, place);
    return save;
}

enum cairn_code cairn_save_begin(struct cairn_session *session, uint64_t step,
                                 const struct cairn_save_options *options, struct cairn_save **ret,
                                 struct cairn_error *err) {
    struct cairn_save_options own_options;
    uint64_t started_us = cairn_mono_us();
    uint32_t n = 0;
    CAIRN_CLIENT_CALL(session, err);
    CAIRN_CLIENT_RET(ret, err);
    CAIRN_TRY(CAIRN_CLIENT_OPTIONS(options, &own_options, err));
    if (session->read_only)
        return cairn_fail(err, CAIRN_INVALID, "%s: the session was opened read_only", session->run);
    if (step > CAIRN_STEP_MAX)
        return cairn_fail(err, CAIRN_INVALID, "step %" PRIu64 ": the largest is %" PRIu64, step,
                          CAIRN_STEP_MAX);
    struct cairn_error own = {0};
    if (!err) err = &own;
    const struct cairn_client_counter counter = {session->nonce, session->rank};
    CAIRN_TRY(cairn_client_process_count(&counter, step, &n, err));
    struct cairn_save *save = save_new(session, step, n);
    if (!save) {
        const struct cairn_client_failed failed = {.step = step, .n = n};
        (void)cairn_fail(err, CAIRN_NO_MEMORY, "step %" PRIu64 ": no memory for a save", step);
        cairn_client_process_settle(&counter, step, n);
        cairn_client_report_add(session, &failed, err);
        return CAIRN_NO_MEMORY;
    }
    enum cairn_code code = begin(save, &own_options, err);
    save->stall_us = cairn_mono_us() - started_us;
    if (code) {
        code = cairn_client_save_fail(save, code, err);
        cairn_save_free(save);
        return code;
    }
    *ret = save;
    return CAIRN_OK;
}
