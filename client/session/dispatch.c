/* SPDX-License-Identifier: Apache-2.0 */
/* Frames go to the call that waits for them, or to the sink. */
#include "client/session/dispatch.h"

/* An answer to a call; false: none waits for it. */
static bool take_answer(struct cairn_session *session, struct cairn_frame *frame, uint64_t id) {
    struct cairn_client_request *request;
    LIST_FOREACH(request, &session->locked.requests, place)
        if (request->id == id) break;
    if (!request) return false;
    LIST_REMOVE(request, place);
    if (request->hear) request->hear(request->subject, frame);
    request->answer = *frame;
    *frame = (struct cairn_frame){0};
    request->done = true;
    return true;
}

bool cairn_client_dispatch(struct cairn_session *session, struct cairn_frame *frame) {
    uint64_t id = 0;
    bool fine = true;
    session->locked.heard_ms = cairn_mono_ms();
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

void cairn_client_link_lost(struct cairn_session *session) {
    struct cairn_client_request *request;
    struct cairn_client_message *message;
    while ((request = LIST_FIRST(&session->locked.requests))) {
        LIST_REMOVE(request, place);
        request->code = CAIRN_UPLOADER_GONE;
        request->done = true;
    }
    while ((message = STAILQ_FIRST(&session->locked.queue))) {
        STAILQ_REMOVE_HEAD(&session->locked.queue, place);
        cairn_client_message_free(message);
    }
    session->sink->lost(session);
    session->locked.state = CAIRN_CLIENT_AWAY;
    session->locked.away_since_ms = cairn_mono_ms();
    cairn_client_changed(session);
}
