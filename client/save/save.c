/* SPDX-License-Identifier: Apache-2.0 */
/* A save's phases, problem and place in the session's list. Only cairn_save_fail waits. */
#include "client/save/save.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/save/arrange.h"
#include "client/save/split.h"
#include "client/save/stager.h"
#include "client/session/process.h"
#include "common/hooks.h"

#define CLOSE_WAIT_MS 10000

/* ---- phases: the table of client/save/state.def ---- */

static const struct {
    enum cairn_client_phase from;
    enum cairn_client_event event;
    enum cairn_client_phase to;
    enum cairn_client_reached reached;
} moves[] = {
#define MOVE(from, event, to, reached, why)                                                        \
    {CAIRN_CLIENT_PHASE_##from, CAIRN_CLIENT_EVENT_##event, CAIRN_CLIENT_PHASE_##to,               \
     CAIRN_CLIENT_REACHED_##reached},
#include "client/save/state.def"
#undef MOVE
};

_Static_assert((int)CAIRN_CLIENT_REACHED_STAGED == (int)CAIRN_STAGED &&
                   (int)CAIRN_CLIENT_REACHED_DURABLE == (int)CAIRN_DURABLE &&
                   (int)CAIRN_CLIENT_REACHED_COMMITTED == (int)CAIRN_COMMITTED,
               "one order of milestones");

bool cairn_client_save_state_move(struct cairn_client_save_state *save,
                                  enum cairn_client_event event) {
    for (size_t i = 0; i < CAIRN_COUNT(moves); i++) {
        if (moves[i].from != save->phase || moves[i].event != event) continue;
        save->phase = moves[i].to;
        if (save->reached < moves[i].reached) save->reached = moves[i].reached;
        return true;
    }
    return false;
}

bool cairn_client_save_state_is_over(const struct cairn_client_save_state *save) {
    return save->phase == CAIRN_CLIENT_PHASE_COMMITTED ||
           save->phase == CAIRN_CLIENT_PHASE_CANCELLED || save->phase == CAIRN_CLIENT_PHASE_FAILED;
}

bool cairn_client_save_state_is_unsent(const struct cairn_client_save_state *save) {
    return save->phase == CAIRN_CLIENT_PHASE_STAGED && save->reached < CAIRN_CLIENT_REACHED_DURABLE;
}

/* ---- moves, generation, problem ---- */

struct cairn_save *cairn_client_save_find(struct cairn_session *session, uint64_t id) {
    struct cairn_save *save;
    TAILQ_FOREACH(save, &session->saves->all, place)
        if (id && save->id == id) break;
    return save;
}

bool cairn_client_save_over(const struct cairn_save *save) {
    return cairn_client_save_state_is_over(&save->state);
}

/* No `begin` of the save can reach an uploader any more (Q12c); idempotent. */
static void settle_begin(const struct cairn_save *save) {
    const struct cairn_client_counter counter = {save->session->nonce, save->session->rank};
    cairn_client_process_settle(&counter, save->step, save->n);
}

/* No uploader needs their bytes again. */
static void drop_streams(struct cairn_save *save) {
    for (size_t i = 0; i < save->stream_count; i++) {
        struct cairn_client_memory *stream = &save->streams[i];
        cairn_client_process_unwatch(stream->fd);
        close(stream->fd);
        free(stream->shard);
        free(stream->crcs);
    }
    if (save->session && save->session->saves)
        save->session->saves->stream_count -= save->stream_count;
    free(CAIRN_TAKE(save->streams));
    save->stream_count = save->stream_capacity = 0;
}

void cairn_client_save_event(struct cairn_save *save, enum cairn_client_event event) {
    bool described = save->state.phase == CAIRN_CLIENT_PHASE_COUNTED || save->parked;
    enum cairn_client_reached before = save->state.reached;
    if (!cairn_client_save_state_move(&save->state, event)) return;
    CAIRN_PROMISE(save->state.reached >= before, (void)0); /* save.h#3 */
    if (save->state.reached >= CAIRN_CLIENT_REACHED_DURABLE) {
        save->sent_bytes = save->total_bytes;
        if (!save->durable_ms) save->durable_ms = cairn_mono_ms();
    }
    if (save->state.phase == CAIRN_CLIENT_PHASE_COMMITTED)
        save->problem = (struct cairn_error){0}; /* Q40: the handle ends committed */
    CAIRN_PROMISE(!cairn_client_save_over(save) || save->problem.code ||
                      save->state.phase == CAIRN_CLIENT_PHASE_COMMITTED,
                  (void)0); /* save.h#1 */
    if (cairn_client_save_over(save)) settle_begin(save);
    if (cairn_client_save_over(save) || save->state.reached >= CAIRN_CLIENT_REACHED_DURABLE)
        drop_streams(save);
    if (cairn_client_save_over(save) || save->state.reached > before)
        cairn_client_save_changed(save);
    /* A copying thread releases the generation itself; an unstaged save, or one that waits for its
     * seal, has no such thread. */
    if (described && cairn_client_save_over(save)) cairn_client_save_give(save);
}

void cairn_client_save_changed(struct cairn_save *save) {
    if (save->changed) return;
    save->changed = true;
    if (save->fd >= 0) (void)!eventfd_write(save->fd, 1);
}

void cairn_client_save_end(struct cairn_save *save, const struct cairn_error *why) {
    if (cairn_client_save_over(save)) return;
    save->problem = *why;
    CAIRN_PROMISE(why->code, save->problem.code = CAIRN_BROKEN);
    /* cairn_save_wait returns UPLOADER_GONE for repeatable waits; this save is over. */
    if (why->code == CAIRN_UPLOADER_GONE) save->problem.code = CAIRN_SOURCE_GONE;
    cairn_client_save_event(save, CAIRN_CLIENT_EVENT_FAIL);
}

void cairn_client_save_drop_pieces(struct cairn_save *save) {
    size_t first = save->known ? save->known->count : 0;
    for (size_t i = first; i < save->piece_count; i++) free(save->pieces[i].strided);
    for (size_t i = 0; i < save->raw_count; i++) free(save->raws[i].name);
    for (size_t i = 0; i < save->owned_count; i++) free(save->owned[i]);
    free(save->owned);
    save->owned = NULL;
    save->owned_count = save->owned_capacity = 0;
    if (save->known)
        cairn_client_known_give(save->known, save->pieces);
    else
        cairn_client_array_give(save->pieces, save->piece_capacity);
    cairn_pieces_free(CAIRN_TAKE(save->known));
    cairn_client_texts_release(&save->texts);
    free(CAIRN_TAKE(save->sources));
    free(save->raws);
    cairn_shard_names_release(&save->raw_names);
    cairn_client_shares_release(&save->shares);
    save->pieces = NULL;
    save->raws = NULL;
    save->piece_count = save->piece_capacity = save->raw_count = save->raw_capacity = 0;
    save->source_count = 0;
}

void cairn_client_save_retire_pieces(struct cairn_save *save) {
    cairn_lock_take(&save->session->lock);
    bool wanted = !save->freed && !save->last && save->piece_count + save->raw_count > 0;
    cairn_lock_give(&save->session->lock);
    struct cairn_pieces *last = wanted ? cairn_client_known_of(save) : NULL;
    const void **sources = last ? CAIRN_TAKE(save->sources) : NULL;
    cairn_client_save_drop_pieces(save);
    if (!last) return;
    CAIRN_HOLD(&save->session->lock);
    save->last = last;
    save->last_sources = sources;
}

void cairn_client_save_give(struct cairn_save *save) {
    if (save->generation < 0) return;
    CAIRN_PROMISE((uint32_t)save->generation < save->session->slab_count, return );
    struct cairn_client_generation *own = &save->session->saves->generations[save->generation];
    if (own->held == save) own->held = NULL;
    if (!own->held && !own->lent) own->owner = 0;
    cairn_client_changed(save->session);
}

bool cairn_client_save_owns(const struct cairn_save *save, uint32_t generation) {
    const struct cairn_client_generation *at = &save->session->saves->generations[generation];
    enum cairn_client_phase phase = save->state.phase;
    bool needed = phase == CAIRN_CLIENT_PHASE_COPYING || phase == CAIRN_CLIENT_PHASE_COPIED ||
                  cairn_client_save_state_is_unsent(&save->state);
    return needed && save->generation == (int)generation && save->owner && at->owner == save->owner;
}

enum cairn_code cairn_client_save_enter(struct cairn_save *save, struct cairn_error *err) {
    if (!save) return cairn_fail(err, CAIRN_INVALID, "no save");
    if (!save->session)
        return cairn_fail(err, CAIRN_INVALID, "step %" PRIu64 ": its session is closed",
                          save->step);
    return cairn_client_enter(save->session, err);
}

enum cairn_code cairn_client_save_visit(struct cairn_save *save, struct cairn_error *err) {
    CAIRN_TRY(cairn_client_save_enter(save, err));
    CAIRN_HOLD(&save->session->lock);
    save->visitors++;
    return CAIRN_OK;
}

void cairn_client_save_unvisit_at(struct cairn_save **save) {
    struct cairn_session *session = (*save)->session;
    cairn_lock_take(&session->lock);
    if (!--(*save)->visitors && (*save)->freed) cairn_client_saves_sweep(session);
    cairn_lock_give(&session->lock);
    cairn_client_leave(session);
}

enum cairn_code cairn_client_save_take(struct cairn_save *save, struct cairn_error *err) {
    CAIRN_TRY(cairn_client_save_enter(save, err));
    struct cairn_session *session = save->session;
    cairn_lock_take(&session->lock);
    bool taken = save->user.depth && !pthread_equal(save->user.thread, pthread_self());
    if (!taken) {
        save->user.thread = pthread_self();
        save->user.depth++;
    }
    cairn_lock_give(&session->lock);
    if (!taken) return CAIRN_OK;
    cairn_client_leave(session);
    return CAIRN_CLIENT_REFUSE(save, err,
                               "another thread is in a call on this save's handle; one at a time "
                               "may be (but for cairn_save_cancel, _status and _poll)");
}

void cairn_client_save_untake_at(struct cairn_save **save) {
    struct cairn_session *session = (*save)->session;
    cairn_lock_take(&session->lock);
    void (*end)(struct cairn_save * ended) = --(*save)->user.depth ? NULL : (*save)->user.end;
    cairn_lock_give(&session->lock);
    if (end) end(*save);
    cairn_client_leave(session);
}

enum cairn_code cairn_client_save_about(const struct cairn_save *save, enum cairn_code code,
                                        struct cairn_error *err) {
    const struct cairn_error_subject subject = {.run = save->session->run_number,
                                                .has_step = true,
                                                .step = save->step,
                                                .has_rank = true,
                                                .rank = save->session->rank};
    if (code) cairn_error_note(err, &subject);
    return code;
}

struct cairn_client_stall cairn_client_stall_begin(struct cairn_save *save) {
    bool outer = save->user.depth == 1; /* this thread's alone until it leaves the call */
    return (struct cairn_client_stall){save, outer ? cairn_mono_us() : 0};
}

void cairn_client_stall_end(struct cairn_client_stall *stall) {
    if (stall->since_us) stall->save->stall_us += cairn_mono_us() - stall->since_us;
}

enum cairn_code cairn_client_save_describable(struct cairn_save *save, struct cairn_error *err) {
    CAIRN_HOLD(&save->session->lock);
    if (cairn_client_save_over(save) && save->problem.code)
        return cairn_client_save_problem(save, err);
    if (save->state.phase != CAIRN_CLIENT_PHASE_COUNTED && !save->kept)
        return CAIRN_CLIENT_REFUSE(
            save, err, "it was staged already, and takes nothing more; begin another save");
    return CAIRN_OK;
}

enum cairn_code cairn_client_save_named(const struct cairn_save *save, enum cairn_code code,
                                        struct cairn_error *err) {
    char which[24] = "";
    if (save->n > 1) snprintf(which, sizeof which, " n %u", save->n);
    (void)cairn_within(err, code, "%s step %" PRIu64 " rank %u%s", save->session->run, save->step,
                       save->session->rank, which);
    return cairn_client_save_about(save, code, err);
}

enum cairn_code cairn_client_save_problem(struct cairn_save *save, struct cairn_error *err) {
    save->problem_returned = true;
    if (err) *err = save->problem;
    return cairn_client_save_named(save, save->problem.code, err);
}

static bool close_save(struct cairn_save *save, const struct cairn_error *why, bool behind) {
    cairn_lock_take(&save->session->lock);
    bool open = !cairn_client_save_over(save), other = save->behind.busy && !behind;
    cairn_client_save_end(save, why);
    if (!behind) save->problem_returned = true;
    if (!other) cairn_client_save_give(save); /* else its thread does, once it notices */
    if (other) cairn_client_changed(save->session);
    cairn_lock_give(&save->session->lock);
    if (!other) cairn_client_save_retire_pieces(save);
    return open;
}

bool cairn_client_save_reads(const struct cairn_save *save) {
    return save->behind.inside || (save->behind.reads && !cairn_client_save_over(save));
}

bool cairn_client_save_under_way(const struct cairn_save *save) {
    return save->behind.busy || cairn_client_save_state_is_unsent(&save->state);
}

void cairn_client_save_sealed(struct cairn_save *save) {
    cairn_lock_take(&save->session->lock);
    cairn_client_save_event(save, CAIRN_CLIENT_EVENT_SEAL);
    CAIRN_PROMISE(save->state.reached >= CAIRN_CLIENT_REACHED_STAGED ||
                      cairn_client_save_over(save),
                  (void)0);
    cairn_client_save_give(save);
    cairn_lock_give(&save->session->lock);
    cairn_client_save_retire_pieces(save);
}

/* ---- reports of failures (Q8) ---- */

void cairn_client_report_free(struct cairn_client_report *report) {
    if (report) json_decref(report->of.begin);
    free(report);
}

/* Includes the begin's options: the server compares them with other ranks' (Q10), and would report
 * a difference instead of the reason. */
static json_t *count_message(const struct cairn_client_report *report) {
    const struct cairn_error *why = &report->why;
    const struct cairn_client_failed *of = &report->of;
    struct cairn_msg_begin begin = {0};
    if (!of->begin || cairn_msg_begin_read(of->begin, "", &begin, NULL) != CAIRN_OK)
        return CAIRN_PACK(count, .step = of->step, .n = of->n, CAIRN_PACK_WHY(why, reason));
    return CAIRN_PACK(count, .step = of->step, .n = of->n, CAIRN_PACK_WHY(why, reason),
                      .on_exists = begin.on_exists, .skip = begin.skip, .format = begin.format,
                      .labels = begin.labels, .meta = begin.meta, .splits = begin.splits);
}

static json_t *report_message(const struct cairn_client_report *report) {
    const struct cairn_error *why = &report->why;
    json_t *message = report->of.save ? CAIRN_PACK(fail, .save = (uint32_t)report->of.save,
                                                   CAIRN_PACK_WHY(why, reason))
                                      : count_message(report);
    if (!json_object_set_new(message, "id", json_integer((json_int_t)report->request)))
        return message;
    json_decref(message);
    return NULL;
}

void cairn_client_reports_send(struct cairn_session *session) {
    struct cairn_client_report *report;
    TAILQ_FOREACH(report, &session->saves->reports, place) {
        struct cairn_client_message *message = NULL;
        if (report->request || session->locked.state != CAIRN_CLIENT_UP) continue;
        report->request = session->next_id++;
        CAIRN_AUTO_JSON json_t *body = report_message(report);
        if (body && cairn_client_message_new(body, (struct cairn_view){0}, NULL, 0, &message,
                                             NULL) == CAIRN_OK)
            cairn_client_enqueue(session, message);
        else
            report->request = 0; /* retried with the next report, or over the next link */
    }
}

struct cairn_client_failed cairn_client_failed_of(const struct cairn_save *save) {
    return (struct cairn_client_failed){save->id, save->step, save->n, json_incref(save->begin)};
}

void cairn_client_report_add(struct cairn_session *session,
                             const struct cairn_client_failed *take_failed,
                             const struct cairn_error *why) {
    struct cairn_client_report *report = calloc(1, sizeof *report);
    if (!report) {
        json_decref(take_failed->begin);
        return;
    }
    report->of = *take_failed;
    report->why = *why;
    cairn_lock_take(&session->lock);
    TAILQ_INSERT_TAIL(&session->saves->reports, report, place);
    cairn_client_reports_send(session);
    cairn_lock_give(&session->lock);
    cairn_client_wake(session);
}

void cairn_client_reports_unsent(struct cairn_session *session) {
    struct cairn_client_report *report;
    TAILQ_FOREACH(report, &session->saves->reports, place) report->request = 0;
}

/* `ok`: the uploader has journaled the failure. A final refusal also ends the report; after a
 * retryable one it is sent again with the next report, or over the next link. */
void cairn_client_reports_answered(struct cairn_session *session, const struct cairn_frame *frame,
                                   uint64_t id) {
    struct cairn_client_report *report;
    struct cairn_save *save;
    TAILQ_FOREACH(report, &session->saves->reports, place)
        if (report->request == id) break;
    if (!report) return; /* no report has this id */
    enum cairn_code code = cairn_client_answer_check(frame, "ok", NULL);
    if (code && cairn_code_info(code)->retryable) {
        report->request = 0;
        return;
    }
    enum cairn_client_event event =
        code == CAIRN_ALREADY_COMMITTED ? CAIRN_CLIENT_EVENT_COMMIT : CAIRN_CLIENT_EVENT_ANSWER;
    TAILQ_FOREACH(save, &session->saves->all, place)
        if (save->state.phase == CAIRN_CLIENT_PHASE_CANCELLED && save->step == report->of.step &&
            save->n == report->of.n)
            cairn_client_save_event(save, event);
    TAILQ_REMOVE(&session->saves->reports, report, place);
    cairn_client_report_free(report);
}

/* ---- giving a save up ---- */

bool cairn_client_save_give_up(struct cairn_save *save, const struct cairn_error *why,
                               bool behind) {
    if (!close_save(save, why, behind)) return false;
    cairn_lock_take(&save->session->lock);
    if (save->id && (save->state.reached >= CAIRN_CLIENT_REACHED_STAGED || save->seal_sent))
        cairn_client_save_event(save, CAIRN_CLIENT_EVENT_CANCEL);
    struct cairn_client_failed failed = cairn_client_failed_of(save);
    cairn_lock_give(&save->session->lock);
    /* Other ranks are told of a cancelled save; the signal concerns only this rank. */
    struct cairn_error told = *why;
    if (told.code == CAIRN_INTERRUPTED) told.code = CAIRN_CANCELLED;
    cairn_client_report_add(save->session, &failed, &told);
    return true;
}

enum cairn_code cairn_client_save_fail(struct cairn_save *save, enum cairn_code code,
                                       struct cairn_error *err) {
    struct cairn_error own = {.code = code}, *why = err ? err : &own;
    if (cairn_client_save_give_up(save, why, false))
        return cairn_client_save_named(save, code, err);
    /* The save was over, and its verdict explains the error. An uploader that answers `not-found`
     * has sent the verdict before (docs/socket.md). */
    CAIRN_HOLD(&save->session->lock);
    bool committed = save->state.phase == CAIRN_CLIENT_PHASE_COMMITTED;
    return committed ? cairn_client_save_named(save, code, err)
                     : cairn_client_save_problem(save, err);
}

static enum cairn_code refuse_committed(const struct cairn_save *save, struct cairn_error *err) {
    return cairn_client_save_about(save,
                                   cairn_fail(err, CAIRN_ALREADY_COMMITTED,
                                              "%s step %" PRIu64 " is committed",
                                              save->session->run, save->step),
                                   err);
}

/* Ends the save for its caller, so no later call returns the problem. Returns what to report to the
 * uploader. The lock is held. */
static struct cairn_client_failed end_for_caller(struct cairn_save *save,
                                                 const struct cairn_error *why) {
    struct cairn_client_failed failed = cairn_client_failed_of(save);
    cairn_client_save_end(save, why);
    save->problem_returned = true;
    return failed;
}

/* Ends the save as an uploader's event would: the copying thread releases its generation. */
enum cairn_code cairn_save_cancel(struct cairn_save *save, const char *reason,
                                  struct cairn_error *err) {
    CAIRN_CLIENT_SAVE_CALL(save, err);
    struct cairn_session *session = save->session;
    struct cairn_error why = {0};
    (void)cairn_fail(&why, CAIRN_CANCELLED, "%s", reason && reason[0] ? reason : "cancelled");
    cairn_lock_take(&session->lock);
    bool committed = save->state.phase == CAIRN_CLIENT_PHASE_COMMITTED;
    bool over = cairn_client_save_over(save);
    bool sealed = save->state.reached >= CAIRN_CLIENT_REACHED_STAGED || save->seal_sent;
    uint64_t id = save->id;
    struct cairn_client_failed failed = {0};
    if (!over) {
        bool copying =
            (save->state.phase == CAIRN_CLIENT_PHASE_COPYING && !save->parked) || save->finishing;
        failed = end_for_caller(save, &why);
        if (!copying) cairn_client_save_give(save);
        if (id && sealed) cairn_client_save_event(save, CAIRN_CLIENT_EVENT_CANCEL);
        cairn_client_changed(session);
    }
    cairn_lock_give(&session->lock);
    if (committed) return refuse_committed(save, err);
    if (!over) cairn_client_report_add(session, &failed, &why);
    return CAIRN_OK;
}

enum cairn_code cairn_save_fail(struct cairn_save *save, const char *reason,
                                struct cairn_error *err) {
    CAIRN_CLIENT_SAVE_OWN_CALL(save, err);
    struct cairn_session *session = save->session;
    struct cairn_error why = {0};
    (void)cairn_fail(&why, CAIRN_CANCELLED, "%s", reason && reason[0] ? reason : "given up");
    cairn_lock_take(&session->lock);
    bool committed = save->state.phase == CAIRN_CLIENT_PHASE_COMMITTED;
    bool over = cairn_client_save_over(save);
    uint64_t id = save->id;
    cairn_lock_give(&session->lock);
    if (committed) return refuse_committed(save, err);
    if (over) return CAIRN_OK;
    const struct cairn_client_request request = {
        CAIRN_CLIENT_REQUEST(fail, .save = (uint32_t)id, CAIRN_PACK_WHY(&why, reason)),
        .goes_on = true, .deadline_ms = cairn_client_deadline(session, 0)};
    enum cairn_code code =
        id ? cairn_client_call(session, &request, NULL, err) : CAIRN_UPLOADER_GONE;
    if (!id) json_decref(request.take_message);
    if (code == CAIRN_NOT_FOUND) {
        CAIRN_HOLD(&session->lock);
        if (save->state.phase == CAIRN_CLIENT_PHASE_FAILED)
            return CAIRN_OK; /* it was over before */
        if (save->state.phase == CAIRN_CLIENT_PHASE_COMMITTED)
            code = cairn_fail(err, CAIRN_ALREADY_COMMITTED, "it is committed");
    }
    if (code == CAIRN_ALREADY_COMMITTED) {
        CAIRN_HOLD(&session->lock);
        cairn_client_save_event(save, CAIRN_CLIENT_EVENT_COMMIT);
        (void)cairn_within(err, code, "%s step %" PRIu64, session->run, save->step);
        return cairn_client_save_about(save, code, err);
    }
    if (code == CAIRN_OK) {
        (void)close_save(save, &why, false);
        return CAIRN_OK;
    }
    /* Q8: the session's thread reports it until an uploader has journaled it. */
    (void)cairn_client_save_fail(save, CAIRN_CANCELLED, &why);
    if (!id) (void)cairn_fail(err, code, "the uploader at %s is away", session->socket);
    (void)cairn_within(err, code, "%s step %" PRIu64 ": the uploader is told again when it is back",
                       session->run, save->step);
    return cairn_client_save_about(save, code, err);
}

/* ---- the session's list ---- */

static void close_fd(struct cairn_save *save) {
    if (save->fd >= 0) close(save->fd);
    save->fd = -1;
}

static void destroy(struct cairn_save *save) {
    if (!save) return;
    cairn_client_save_drop_pieces(save);
    cairn_client_stager_free(save->handed_over);
    cairn_client_stager_free(save->kept);
    close_fd(save);
    drop_streams(save);
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
            save->freed && !save->visitors && !save->finishing && !save->offering &&
            !save->behind.busy && !save->late_stage.id &&
            (phase == CAIRN_CLIENT_PHASE_COMMITTED ||
             (phase == CAIRN_CLIENT_PHASE_FAILED && (save->problem_returned || !CAIRN_RULE(Q43))));
        next = TAILQ_NEXT(save, place);
        if (!done) continue;
        TAILQ_REMOVE(&session->saves->all, save, place);
        destroy(save);
    }
}

/* For a freed handle: gives up a save that is not copied; returns once no source is read. True: a
 * thread still has the save and its pieces. The lock is not held. */
static bool leave_behind(struct cairn_save *save) {
    struct cairn_session *session = save->session;
    struct cairn_error why = {0};
    struct cairn_client_failed failed = {0};
    cairn_lock_take(&session->lock);
    bool given_up = cairn_client_save_reads(save) && !cairn_client_save_over(save);
    if (given_up) {
        (void)cairn_fail(&why, CAIRN_CANCELLED, "freed before it was copied");
        failed = end_for_caller(save, &why);
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
    if (session->pid != getpid()) return; /* the parent's; its memory ends with the child */
    cairn_lock_take(&session->lock);
    bool busy = save->user.depth > 0;
    save->user.end = busy ? cairn_save_free : NULL; /* the running call frees it */
    cairn_lock_give(&session->lock);
    if (busy) return;
    bool behind = leave_behind(save);
    if (!behind) cairn_client_save_drop_pieces(save);
    cairn_lock_take(&session->lock);
    bool handed_over = save->handed_over || save->finishing ||
                       behind; /* continues without its handle, like a sealed save */
    bool unsealed = save->state.reached < CAIRN_CLIENT_REACHED_STAGED && !handed_over &&
                    !cairn_client_save_over(save);
    struct cairn_client_failed failed = {0};
    struct cairn_error why = {0};
    if (unsealed) {
        (void)cairn_fail(&why, CAIRN_CANCELLED, "freed before it was staged");
        failed = end_for_caller(save, &why);
    }
    if (!handed_over) cairn_client_save_give(save);
    save->freed = true;
    struct cairn_pieces *last = CAIRN_TAKE(save->last); /* no call can request it any more */
    close_fd(save);
    cairn_client_saves_sweep(session);
    cairn_lock_give(&session->lock);
    cairn_pieces_free(last);
    if (unsealed) cairn_client_report_add(session, &failed, &why);
}

/* ---- the session's start and end ---- */

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
        settle_begin(save);
        cairn_client_save_changed(save);
        drop_streams(save);
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

/* True: an unsent copy or unreported failure needs an uploader, which gets time to return. */
static bool needs_uploader(const struct cairn_session *session) {
    const struct cairn_save *save;
    if (!TAILQ_EMPTY(&session->saves->reports)) return true;
    TAILQ_FOREACH(save, &session->saves->all, place)
        if (save->state.phase == CAIRN_CLIENT_PHASE_COPIED ||
            cairn_client_save_state_is_unsent(&save->state))
            return true;
    return false;
}

/* True: a copy is unknown to the stopping uploader and waits for the next one. */
static bool untold(const struct cairn_session *session) {
    const struct cairn_save *save;
    TAILQ_FOREACH(save, &session->saves->all, place)
        if (save->state.phase == CAIRN_CLIENT_PHASE_COPIED) return true;
    return false;
}

/* Before the session ends: waits for the copying threads. At the deadline, or after a signal, gives
 * up saves whose sources are still read. False: a signal came. */
static bool settle_behind(struct cairn_session *session, uint64_t deadline_ms) {
    enum cairn_code code = CAIRN_OK;
    struct cairn_save *save;
    CAIRN_HOLD(&session->lock);
    TAILQ_FOREACH(save, &session->saves->all, place) save->behind.fenced = true;
    cairn_client_changed(session);
    while (session->saves->behind_count && !code)
        code = cairn_client_pause(session, deadline_ms, NULL);
    if (!code) return true;
    struct cairn_error why = {0};
    (void)cairn_fail(&why, CAIRN_CANCELLED, "the session was closed before it was copied");
    TAILQ_FOREACH(save, &session->saves->all, place)
        if (save->behind.reads) cairn_client_save_end(save, &why);
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
    gone =
        gone && !session->locked.silent_since_ms; /* it has what is sealed, and goes on with it */
    if (!(gone || untold(session)) || !needs_uploader(session)) return CAIRN_OK;
    (void)cairn_fail(err, CAIRN_UPLOADER_GONE,
                     "%s rank %u: the uploader at %s did not come back; what was staged and is "
                     "not durable ends with this process",
                     session->run, session->rank, session->socket);
    return cairn_client_about(session, CAIRN_UPLOADER_GONE, err);
}
