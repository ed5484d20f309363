/* SPDX-License-Identifier: Apache-2.0 */
/* upload: makes a table of uploader/state/upload.def. */
#include "uploader/state/upload.h"

static const struct move {
    enum cairn_up_upload_phase from;
    enum cairn_up_upload_event event;
    enum cairn_up_upload_phase to;
    enum cairn_up_upload_due due;
} moves[] = {
#define MOVE(from, event, to, due, why)                                                            \
    {CAIRN_UP_UPLOAD_##from, CAIRN_UP_UPLOAD_EVENT_##event, CAIRN_UP_UPLOAD_##to,                  \
     CAIRN_UP_UPLOAD_DUE_##due},
#include "uploader/state/upload.def"
#undef MOVE
};

static const struct move *move_of(enum cairn_up_upload_phase upload,
                                  enum cairn_up_upload_event event) {
    for (size_t i = 0; i < CAIRN_COUNT(moves); i++)
        if (moves[i].from == upload && moves[i].event == event) return &moves[i];
    return NULL;
}

bool cairn_up_upload_state_admits(enum cairn_up_upload_phase upload,
                                  enum cairn_up_upload_event event) {
    return move_of(upload, event) != NULL;
}

enum cairn_up_upload_due cairn_up_upload_state_move(enum cairn_up_upload_phase *upload,
                                                    enum cairn_up_upload_event event) {
    const struct move *move = move_of(*upload, event);
    CAIRN_ASSERT(move != NULL);
    *upload = move->to;
    return move->due;
}

bool cairn_up_upload_state_is_queued(enum cairn_up_upload_phase upload) {
    return upload == CAIRN_UP_UPLOAD_SENDING || upload == CAIRN_UP_UPLOAD_ENDING;
}

bool cairn_up_upload_state_has_ended(enum cairn_up_upload_phase upload) {
    return upload == CAIRN_UP_UPLOAD_DURABLE || upload == CAIRN_UP_UPLOAD_FAILED;
}
