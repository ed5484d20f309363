/* SPDX-License-Identifier: Apache-2.0 */
/* Answers by their `id`, events by the sink. */
#include "client/session/dispatch.h"

/* False: no call waits for this answer. */
static bool take_answer(struct cairn_session *session, struct cairn_frame *frame, uint64_t id) {
    struct cairn_client_pending *pending;
    LIST_FOREACH(pending, &session->locked.pending, place)
        if (pending->id == id) break;
    if (!pending) return false;
    LIST_REMOVE(pending, place);
    if (pending->on_answer) pending->on_answer(pending->subject, frame);
    pending->answer = *frame;
    *frame = (struct cairn_frame){0};
    pending->done = true;
    return true;
}

bool cairn_client_dispatch(struct cairn_session *session, struct cairn_frame *frame) {
    uint64_t id = 0;
    bool fine = true;
    session->locked.received_ms = cairn_mono_ms();
    const char *uuid = cairn_client_text_of(frame->message, "session");
    bool ours = !uuid || strcmp(uuid, session->uuid) == 0 ||
                strcmp(uuid, session->locked.welcome_uuid) == 0; /* K11 */
    if (cairn_client_u64_of(frame->message, "id", &id)) {
        if (!take_answer(session, frame, id)) session->sink->answer(session, frame, id);
    } else if (ours) {
        fine = session->sink->event(session, frame);
    }
    cairn_client_changed(session);
    return fine;
}

void cairn_client_link_ended(struct cairn_session *session) {
    struct cairn_client_pending *pending;
    struct cairn_client_message *message;
    while ((pending = LIST_FIRST(&session->locked.pending))) {
        LIST_REMOVE(pending, place);
        pending->code = CAIRN_UPLOADER_GONE;
        pending->done = true;
    }
    while ((message = STAILQ_FIRST(&session->locked.queue))) {
        STAILQ_REMOVE_HEAD(&session->locked.queue, place);
        cairn_client_message_free(message);
    }
    session->sink->link_ended(session);
    session->locked.state = CAIRN_CLIENT_AWAY;
    session->locked.cut = false;
    session->locked.away_since_ms = cairn_mono_ms();
    cairn_client_changed(session);
}
