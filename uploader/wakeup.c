/* SPDX-License-Identifier: Apache-2.0 */
/* A flag under a lock, and a condition for whoever waits for it. */
#include "uploader/wakeup.h"

void cairn_up_wakeup_init(struct cairn_up_wakeup *wakeup) {
    *wakeup = (struct cairn_up_wakeup){0};
    cairn_lock_init(&wakeup->lock, CAIRN_LOCK_uploader_outbox);
    cairn_condition_init(&wakeup->work);
}

void cairn_up_wakeup_release(struct cairn_up_wakeup *wakeup) {
    cairn_condition_release(&wakeup->work);
    cairn_lock_release(&wakeup->lock);
}

void cairn_up_wakeup_raise(struct cairn_up_wakeup *wakeup) {
    cairn_late_ring(&wakeup->bell);
    cairn_lock_take(&wakeup->lock);
    wakeup->locked.raised = true;
    cairn_condition_signal(&wakeup->work);
    cairn_lock_give(&wakeup->lock);
}

void cairn_up_wakeup_stop(struct cairn_up_wakeup *wakeup) {
    cairn_lock_take(&wakeup->lock);
    wakeup->locked.stopping = true;
    cairn_condition_signal(&wakeup->work);
    cairn_lock_give(&wakeup->lock);
}

bool cairn_up_wakeup_wait(struct cairn_up_wakeup *wakeup, uint64_t until_ms, bool backing_off) {
    CAIRN_HOLD(&wakeup->lock);
    while (!wakeup->locked.stopping && (backing_off || !wakeup->locked.raised)) {
        if (!cairn_condition_wait(&wakeup->work, &wakeup->lock, until_ms)) break;
    }
    wakeup->locked.raised = false;
    return !wakeup->locked.stopping;
}
