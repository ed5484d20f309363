/* SPDX-License-Identifier: Apache-2.0 */
/* A table that is searched from end to end: restores are rare. */
#include "server/nodes/restores.h"

#include <stdlib.h>

#include "api/wire/messages.h"
#include "common/lock.h"

struct cairn_srv_restores {
    struct cairn_lock lock; /* server_restores */
    struct {
        struct cairn_srv_restore items[CAIRN_SRV_RESTORES_MAX];
        uint64_t heard;
    } locked;
};

enum cairn_code cairn_srv_restores_new(struct cairn_srv_restores **ret, struct cairn_error *err) {
    struct cairn_srv_restores *restores = calloc(1, sizeof(*restores));
    if (!restores) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for restores");
    cairn_lock_init(&restores->lock, CAIRN_LOCK_server_restores);
    *ret = restores;
    return CAIRN_OK;
}

void cairn_srv_restores_free(struct cairn_srv_restores *restores) {
    if (!restores) return;
    cairn_lock_release(&restores->lock);
    free(restores);
}

static bool is_run(const struct cairn_run_name *one, const struct cairn_run_name *other) {
    return !strcmp(one->run, other->run) && !strcmp(one->project, other->project);
}

void cairn_srv_restores_hear(struct cairn_srv_restores *restores,
                             const struct cairn_srv_restore *restore) {
    CAIRN_HOLD(&restores->lock);
    struct cairn_srv_restore *place = restores->locked.items;
    for (size_t i = 0; i < CAIRN_SRV_RESTORES_MAX; i++) {
        struct cairn_srv_restore *at = &restores->locked.items[i];
        bool same = !strcmp(at->node, restore->node) && is_run(&at->run, &restore->run) &&
                    !strcmp(at->version.text, restore->version.text);
        if (same || at->heard < place->heard) place = at;
        if (same) break;
    }
    *place = *restore;
    place->heard = ++restores->locked.heard;
}

json_t *cairn_srv_restores_json(struct cairn_srv_restores *restores,
                                const struct cairn_run_name *run, const char *version) {
    CAIRN_AUTO_JSON json_t *items = json_array();
    CAIRN_HOLD(&restores->lock);
    for (size_t i = 0; items && i < CAIRN_SRV_RESTORES_MAX; i++) {
        const struct cairn_srv_restore *at = &restores->locked.items[i];
        if (!at->heard || strcmp(at->version.text, version) != 0 || !is_run(&at->run, run))
            continue;
        json_t *item = CAIRN_PACK(why_restore, .node = at->node, .choice = at->choice,
                                  .store_bytes = at->store_bytes, .shared_bytes = at->shared_bytes,
                                  .peer_bytes = at->peer_bytes,
                                  .memory_bytes = at->memory_bytes);
        if (json_array_append_new(items, item)) return NULL;
    }
    return CAIRN_TAKE(items);
}
