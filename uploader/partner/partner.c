/* SPDX-License-Identifier: Apache-2.0 */
/* Start, stop, and what heartbeats say and hear; see partner.h. */
#include "uploader/partner/partner.h"

#include <pthread.h>
#include <stdlib.h>

#include "api/wire/messages.h"
#include "common/log.h"
#include "uploader/partner/inside.h"

enum cairn_code cairn_up_partner_new(struct cairn_up *up, struct cairn_up_partner **ret,
                                     struct cairn_error *err) {
    uint64_t bytes = up->settings.partner_memory_bytes;
    if (!up->peers || !bytes) return CAIRN_OK;
    struct cairn_up_partner *partner = calloc(1, sizeof(*partner));
    if (!partner) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for copies of other nodes");
    partner->up = up;
    cairn_lock_init(&partner->lock, CAIRN_LOCK_uploader_partner);
    cairn_condition_init(&partner->changed);
    uint64_t reserved = bytes + CAIRN_UP_COPY_PIECE_BYTES;
    enum cairn_code code = cairn_budget_take(&up->budget, reserved, "partner_memory", err);
    if (!code) partner->reserved_bytes = reserved;
    if (!code && !(partner->buffer = malloc(CAIRN_UP_COPY_PIECE_BYTES)))
        code = cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a piece of a copy");
    if (code) {
        cairn_up_partner_free(partner);
        return code;
    }
    partner->free_bytes = bytes;
    cairn_up_port_route(up->peers->port, &(struct cairn_up_route){.method = "PUT",
                                                                  .path = CAIRN_UP_COPY_PATH,
                                                                  .serve = cairn_up_copies_serve,
                                                                  .owner = partner});
    *ret = partner;
    return CAIRN_OK;
}

enum cairn_code cairn_up_partner_start(struct cairn_up_partner *partner, struct cairn_error *err) {
    if (!partner) return CAIRN_OK;
    if (pthread_create(&partner->thread, NULL, cairn_up_partner_main, partner))
        return cairn_fail(err, CAIRN_INTERNAL, "no thread for copies to other nodes");
    partner->started = true;
    return CAIRN_OK;
}

void cairn_up_partner_stop(struct cairn_up_partner *partner) {
    if (!partner || !partner->started) return;
    cairn_lock_take(&partner->lock);
    partner->locked.stopping = true;
    cairn_condition_broadcast(&partner->changed);
    cairn_lock_give(&partner->lock);
    cairn_up_wakeup_stop(&partner->up->partner_work);
    pthread_join(partner->thread, NULL);
    partner->started = false;
}

void cairn_up_partner_free(struct cairn_up_partner *partner) {
    if (!partner) return;
    cairn_up_partner_stop(partner);
    {
        CAIRN_HOLD(&partner->up->lock);
        for (struct cairn_up_copy *at = partner->copies; at; at = at->next) at->over = true;
        for (struct cairn_up_copy *at = partner->copies; at; at = at->next) at->entry = 0;
        for (struct cairn_up_copy *at = partner->copies; at; at = at->next)
            if (at->kept) at->kept->gone = true;
        cairn_up_copies_sweep_locked(partner);
        CAIRN_ASSERT(!partner->copies);
    }
    cairn_budget_give(&partner->up->budget, partner->reserved_bytes);
    free(partner->buffer);
    cairn_condition_release(&partner->changed);
    cairn_lock_release(&partner->lock);
    free(partner);
}

void cairn_up_partner_tick(struct cairn_up_partner *partner) {
    if (!partner) return;
    CAIRN_HOLD(&partner->up->lock);
    cairn_up_copies_sweep_locked(partner);
}

void cairn_up_partner_listed(struct cairn_up *up, const char *grant) {
    if (!up->partner) return;
    CAIRN_HOLD(&up->lock);
    for (size_t i = 0; i < up->locked.save_count; i++) {
        struct cairn_up_save *save = up->locked.saves[i];
        if (!save->partner.handed && !strcmp(save->attempt->text, grant)) save->partner.next_ms = 0;
    }
    cairn_up_wakeup_raise(&up->partner_work);
}

/* ---- the heartbeat ---- */

json_t *cairn_up_partner_copies_locked(const struct cairn_up_partner *partner,
                                       const struct cairn_up_attempt *attempt) {
    json_t *array = NULL;
    for (const struct cairn_up_copy *at = partner ? partner->copies : NULL; at; at = at->next) {
        if (at->attempt != attempt || at->missing || at->over || at->entry) continue;
        if (!array && !(array = json_array())) return NULL;
        (void)json_array_append_new(array,
                                    CAIRN_PACK(node_copy, .version = at->version.text,
                                               .rank = at->rank, .node = at->node,
                                               .uploader = at->uploader));
    }
    return array;
}

void cairn_up_partner_over_locked(struct cairn_up_partner *partner, const char *version,
                                  bool committed) {
    if (!partner) return;
    for (struct cairn_up_copy *at = partner->copies; at; at = at->next) {
        if (strcmp(at->version.text, version) != 0) continue;
        if (committed && at->missing) continue; /* it still comes, for restores (5) */
        at->over = true;
        if (at->kept) at->kept->committed |= committed;
        if (at->kept) at->kept->gone |= !committed;
    }
}

enum cairn_code cairn_up_partner_finish(struct cairn_up_partner *partner, const char *version,
                                        uint32_t rank, struct cairn_error *err) {
    struct cairn_error why = {0};
    if (!partner) return cairn_fail(err, CAIRN_NOT_FOUND, "this node keeps no copies");
    CAIRN_HOLD(&partner->up->lock);
    struct cairn_up_copy *copy = cairn_up_copy_find_locked(partner, version, rank);
    if (!copy || copy->missing) return cairn_fail(err, CAIRN_NOT_FOUND, "there is no whole copy");
    if (copy->entry) return CAIRN_OK;
    enum cairn_code code = cairn_up_copy_finish_locked(partner->up, copy, &why);
    if (!code) return CAIRN_OK;
    cairn_log(ERROR, "partner.unfinished", "version=%s rank=%u node=%s cause=\"%s\"", version, rank,
              copy->node, why.message);
    return cairn_fail(err, CAIRN_UNAVAILABLE, "it cannot be sent from here now: %s", why.message);
}
