/* SPDX-License-Identifier: Apache-2.0 */
/* A few places; see restores.h. */
#include "uploader/restores.h"

void cairn_up_restores_init(struct cairn_up_restores *restores) {
    cairn_lock_init(&restores->lock, CAIRN_LOCK_uploader_restores);
}

void cairn_up_restores_release(struct cairn_up_restores *restores) {
    cairn_lock_release(&restores->lock);
}

static bool is_same(const struct cairn_up_restore_note *one,
                    const struct cairn_up_restore_note *other) {
    return !strcmp(one->version.text, other->version.text) && !strcmp(one->run, other->run);
}

void cairn_up_restores_note(struct cairn_up_restores *restores,
                            const struct cairn_up_restore_note *note) {
    CAIRN_HOLD(&restores->lock);
    struct cairn_up_restore_note *place = restores->locked.items;
    for (size_t i = 0; i < CAIRN_UP_RESTORES_TOLD; i++) {
        struct cairn_up_restore_note *at = &restores->locked.items[i];
        bool same = is_same(at, note);
        if (same || at->noted < place->noted) place = at;
        if (same) break;
    }
    struct cairn_up_restore_note sum = *note;
    if (is_same(place, note)) {
        sum.store_bytes += place->store_bytes;
        sum.shared_bytes += place->shared_bytes;
        sum.peer_bytes += place->peer_bytes;
        sum.memory_bytes += place->memory_bytes;
    }
    sum.noted = ++restores->locked.noted;
    *place = sum;
}

size_t cairn_up_restores_get(struct cairn_up_restores *restores,
                             struct cairn_up_restore_note ret[CAIRN_UP_RESTORES_TOLD]) {
    size_t count = 0;
    CAIRN_HOLD(&restores->lock);
    for (size_t i = 0; i < CAIRN_UP_RESTORES_TOLD; i++)
        if (restores->locked.items[i].noted) ret[count++] = restores->locked.items[i];
    return count;
}
