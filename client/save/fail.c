/* SPDX-License-Identifier: Apache-2.0 */
/* Failures of saves in this process, and their reports to the uploader (Q8). */
#include "client/save/fail.h"

#include <inttypes.h>
#include <stdlib.h>

#include "api/wire/messages.h"

/* ---- reports ---- */

void cairn_client_report_free(struct cairn_client_report *report) {
    if (report) json_decref(report->of.begin);
    free(report);
}

/* With the options of the begin: the server compares them with those of the other ranks (Q10), and
 * would name a difference in place of the reason. */
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
    json_t *message =
        report->of.save
            ? CAIRN_PACK(fail, .save = (uint32_t)report->of.save, CAIRN_PACK_WHY(why, reason))
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
            report->request = 0; /* with the next one, or the next link */
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

static void settle_cancel(struct cairn_session *session, const struct cairn_client_report *report,
                          enum cairn_code code) {
    enum cairn_client_event event =
        code == CAIRN_ALREADY_COMMITTED ? CAIRN_CLIENT_EVENT_COMMIT : CAIRN_CLIENT_EVENT_ANSWER;
    struct cairn_save *save;
    TAILQ_FOREACH(save, &session->saves->all, place)
        if (save->state.phase == CAIRN_CLIENT_PHASE_CANCELLED && save->step == report->of.step &&
            save->n == report->of.n)
            cairn_client_save_event(save, event);
}

/* `ok`: the uploader has journaled the failure. A final refusal ends the report, too; after a
 * retryable one it is sent again with the next report, or over the next link. */
bool cairn_client_reports_answered(struct cairn_session *session, const struct cairn_frame *frame,
                                   uint64_t id) {
    struct cairn_client_report *report;
    TAILQ_FOREACH(report, &session->saves->reports, place)
        if (report->request == id) break;
    if (!report) return false;
    enum cairn_code code = cairn_client_answer_check(frame, "ok", NULL);
    if (code && cairn_code_info(code)->retryable) {
        report->request = 0;
        return true;
    }
    settle_cancel(session, report, code);
    TAILQ_REMOVE(&session->saves->reports, report, place);
    cairn_client_report_free(report);
    return true;
}

/* ---- giving it up ---- */

bool cairn_client_save_give_up(struct cairn_save *save, const struct cairn_error *why,
                               bool behind) {
    if (!cairn_client_save_close(save, why, behind)) return false;
    cairn_lock_take(&save->session->lock);
    if (save->id && (save->state.reached >= CAIRN_CLIENT_REACHED_STAGED || save->seal_sent))
        cairn_client_save_event(save, CAIRN_CLIENT_EVENT_CANCEL);
    struct cairn_client_failed failed = cairn_client_failed_of(save);
    cairn_lock_give(&save->session->lock);
    /* The other ranks hear of a cancelled save; that a signal caused it concerns this one. */
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
    /* The save was over before, and its verdict explains the error. Where the uploader answers
     * `not-found`, it has sent the verdict before that answer (docs/socket.md). */
    CAIRN_HOLD(&save->session->lock);
    bool committed = save->state.phase == CAIRN_CLIENT_PHASE_COMMITTED;
    return committed ? cairn_client_save_named(save, code, err)
                     : cairn_client_save_problem(save, err);
}

/* The save ends as by an event of the uploader: whoever copies it finds that out, and gives its
 * generation back. */
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
        failed = cairn_client_failed_of(save);
        bool copying = (save->state.phase == CAIRN_CLIENT_PHASE_COPYING && !save->parked) ||
                       save->finishing;
        cairn_client_save_end(save, &why);
        save->problem_returned = true;
        if (!copying) cairn_client_save_give(save);
        if (id && sealed) cairn_client_save_event(save, CAIRN_CLIENT_EVENT_CANCEL);
        cairn_client_changed(session);
    }
    cairn_lock_give(&session->lock);
    if (committed)
        return cairn_fail(err, CAIRN_ALREADY_COMMITTED, "%s step %" PRIu64 " is committed",
                          session->run, save->step);
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
    if (committed)
        return cairn_fail(err, CAIRN_ALREADY_COMMITTED, "%s step %" PRIu64 " is committed",
                          session->run, save->step);
    if (over) return CAIRN_OK;
    const struct cairn_client_request request = {
        CAIRN_CLIENT_REQUEST(fail, .save = (uint32_t)id, CAIRN_PACK_WHY(&why, reason)),
        .deadline_ms = cairn_client_deadline(session, 0)};
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
        return cairn_within(err, code, "%s step %" PRIu64, session->run, save->step);
    }
    if (code == CAIRN_OK) {
        (void)cairn_client_save_close(save, &why, false);
        return CAIRN_OK;
    }
    /* Q8: the session's thread reports it until an uploader has journaled it. */
    (void)cairn_client_save_fail(save, CAIRN_CANCELLED, &why);
    if (!id) (void)cairn_fail(err, code, "the uploader at %s is away", session->socket);
    return cairn_within(err, code,
                        "%s step %" PRIu64 ": the uploader is told again when it is back",
                        session->run, save->step);
}
