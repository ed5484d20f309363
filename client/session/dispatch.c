/* SPDX-License-Identifier: Apache-2.0 */
/* Frames go to the call that waits for them, or to the sink. */
#include "client/session/dispatch.h"

/* An answer to a call; false: none waits for it. */
static bool take_answer(struct cairn_session *session, struct cairn_frame *frame, uint64_t id) {
    struct cairn_client_request **at = &session->locked.requests;
    while (*at && (*at)->id != id) at = &(*at)->next;
    if (!*at) return false;
    struct cairn_client_request *request = *at;
    *at = request->next;
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
    for (struct cairn_client_request *at = session->locked.requests; at; at = at->next) {
        at->code = CAIRN_UPLOADER_GONE;
        at->done = true;
    }
    session->locked.requests = NULL;
    while (session->locked.first) {
        struct cairn_client_message *message = session->locked.first;
        session->locked.first = message->next;
        cairn_client_message_free(message);
    }
    session->locked.last = NULL;
    session->sink->lost(session);
    session->locked.state = CAIRN_CLIENT_AWAY;
    session->locked.away_since_ms = cairn_mono_ms();
    cairn_client_changed(session);
}
