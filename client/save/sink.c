/* SPDX-License-Identifier: Apache-2.0 */
/* Events of the uploader about saves and their memory. */
#include "client/save/sink.h"

#include "api/wire/messages.h"
#include "client/save/fail.h"
#include "client/save/look.h"
#include "client/save/offer.h"
#include "client/save/poll.h"
#include "client/save/sweep.h"

static void verdict(struct cairn_save *save, const json_t *message) {
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

/* Q41: `free` counts only with the owner that the generation has here. */
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

static void take_trouble(struct cairn_client_trouble *trouble, const struct cairn_error *why) {
    if (!trouble->why.code) trouble->since_ms = cairn_mono_ms();
    trouble->why = *why;
}

/* A problem of the node is forgotten when it is over (`code` "ok"). An absent server delays nothing
 * but the commit: only a wait for the commit that times out says so. */
static void take_problem(struct cairn_session *session, struct cairn_save *save,
                         const json_t *message) {
    struct cairn_msg_problem told = {.about = ""};
    struct cairn_client_saves *all = session->saves;
    struct cairn_error why = {0};
    if (cairn_msg_problem_read(message, "", &told, NULL) != CAIRN_OK) return;
    if (!save && told.save) return; /* of a save that was freed */
    cairn_failure_get(message, "message", &why);
    bool server = !save && strcmp(told.about, "server") == 0;
    take_trouble(save ? &save->trouble : server ? &all->server : &all->store, &why);
    if (!server) *(save ? &save->notice : &all->notice) = why;
}

static void take_released(struct cairn_save *save, const json_t *message) {
    struct cairn_msg_released told = {0};
    if (cairn_msg_released_read(message, "", &told, NULL) != CAIRN_OK) return;
    save->sent_bytes += told.bytes; /* of files also before the save is staged */
    save->link_us += told.link_us;
    save->store_us += told.store_us;
    if (told.shard >= save->sent_count) return;
    struct cairn_client_sent *sent = &save->sent[told.shard];
    sent->released_bytes = cairn_min_u64(sent->released_bytes + told.bytes, sent->bytes);
}

static bool take_event(struct cairn_session *session, const struct cairn_frame *frame) {
    uint64_t id = 0;
    if (strcmp(frame->name, "free") == 0) {
        take_free(session, frame->message);
        return true;
    }
    struct cairn_save *save = cairn_client_u64_of(frame->message, "save", &id)
                                  ? cairn_client_save_find(session, id)
                                  : NULL;
    if (strcmp(frame->name, "released") == 0) {
        if (save) take_released(save, frame->message);
        return true;
    }
    if (strcmp(frame->name, "durable") == 0) {
        if (save) cairn_client_save_event(save, CAIRN_CLIENT_EVENT_DURABLE);
        return true;
    }
    bool partnered = strcmp(frame->name, "partnered") == 0;
    if (partnered || strcmp(frame->name, "decided") == 0) {
        if (save) {
            *(partnered ? &save->partnered : &save->decided) = true;
            cairn_client_save_changed(save);
        }
        cairn_client_changed(session);
        return true;
    }
    if (strcmp(frame->name, "problem") == 0) {
        take_problem(session, save, frame->message);
        return true;
    }
    if (strcmp(frame->name, "look") == 0) {
        if (save) cairn_client_look(save, frame->message);
        return true;
    }
    if (strcmp(frame->name, "verdict") != 0) return false;
    if (save) verdict(save, frame->message);
    return true;
}

static bool on_event(struct cairn_session *session, const struct cairn_frame *frame) {
    bool known = take_event(session, frame);
    cairn_client_saves_sweep(session);
    return known;
}

static void on_answer(struct cairn_session *session, const struct cairn_frame *frame, uint64_t id) {
    (void)cairn_client_reports_answered(session, frame, id); /* else nobody waits for it any more */
}

static void on_link_ended(struct cairn_session *session) {
    if (!session->saves) return;
    cairn_client_reports_unsent(session);
    cairn_client_saves_changed(session);
}

static void on_up(struct cairn_session *session) {
    cairn_client_reports_send(session);
    cairn_client_saves_changed(session);
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

const struct cairn_client_sink cairn_client_saves_sink = {.event = on_event,
                                                          .answer = on_answer,
                                                          .link_ended = on_link_ended,
                                                          .offer = cairn_client_offer,
                                                          .up = on_up,
                                                          .notice = on_notice,
                                                          .finish = cairn_client_finish,
                                                          .refused = on_refused};
