/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wakeup: one thread waits until somebody has work for it.
 *
 * Why:     whoever moves a save may have something for the outbox, and the outbox moves saves: with
 *          this between them neither calls the other.
 * Promise: a raise is never lost: the next wait returns at once.
 * Limits:  one waiting thread.
 * Threads: locked by uploader_outbox; raise and stop may be called by any.
 * Next:    uploader/server/outbox.c waits, uploader/saves/save.c raises.
 */
#pragma once

#include "common/lock.h"
#include "common/process.h"

struct cairn_up_wakeup {
    struct cairn_lock lock; /* uploader_outbox */
    struct cairn_condition work;
    struct cairn_late_bell bell;
    struct {
        bool raised, stopping;
    } locked;
};
void cairn_up_wakeup_init(struct cairn_up_wakeup *wakeup);
void cairn_up_wakeup_release(struct cairn_up_wakeup *wakeup);
void cairn_up_wakeup_raise(struct cairn_up_wakeup *wakeup);
/* Every wait ends at once from here on. */
void cairn_up_wakeup_stop(struct cairn_up_wakeup *wakeup);
/* Until it is raised, or until then; backing_off: until then in any case. False: stop. */
bool cairn_up_wakeup_wait(struct cairn_up_wakeup *wakeup, uint64_t until_ms, bool backing_off);
