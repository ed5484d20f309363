/* SPDX-License-Identifier: Apache-2.0 */
/* What was told last is kept in the save, by the thread that is in a call on its handle. */
#include "client/save/progress.h"

void cairn_client_progress_look(const struct cairn_save *save, struct cairn_save_status *ret) {
    bool staged = save->state.reached >= CAIRN_CLIENT_REACHED_STAGED;
    bool durable = save->state.reached >= CAIRN_CLIENT_REACHED_DURABLE;
    uint64_t sent_bytes = save->sent_bytes; /* of files some are sent before all are staged */
    if (staged) sent_bytes = cairn_min_u64(sent_bytes, save->total_bytes);
    *ret =
        (struct cairn_save_status){.step = save->step,
                                   .reached = (enum cairn_milestone)save->state.reached,
                                   .total_bytes = save->total_bytes,
                                   .staged_bytes = staged ? save->total_bytes : save->staged_bytes,
                                   .sent_bytes = sent_bytes,
                                   .durable_bytes = durable ? save->total_bytes : 0,
                                   .stall_us = save->stall_us,
                                   .wait_us = save->wait_us};
    memcpy(ret->version, save->version, sizeof ret->version);
}

/* durable_bytes goes with reached and total_bytes; times are no progress. */
static bool is_news(const struct cairn_save_status *now, const struct cairn_save_status *told) {
    return now->reached != told->reached || now->total_bytes != told->total_bytes ||
           now->staged_bytes != told->staged_bytes || now->sent_bytes != told->sent_bytes;
}

void cairn_client_progress_tell(struct cairn_save *save, uint64_t until_ms) {
    struct cairn_session *session = save->session;
    struct cairn_save_status now;
    if (!save->progress) return;
    do {
        cairn_client_progress_look(save, &now);
        if (!is_news(&now, &save->told)) return;
        save->told = now;
        cairn_lock_give(&session->lock);
        save->progress(save->progress_owner, &now);
        cairn_lock_take(&session->lock);
    } while (cairn_mono_ms() < until_ms);
}
