/* SPDX-License-Identifier: Apache-2.0 */
/* One mark is enough: it is waited for before anything is put behind it. */
#include "client/restore/landing.h"

#include "client/session/devices.h"
#include "common/crc.h"

enum cairn_code cairn_client_landing_begin(struct cairn_session *session,
                                           const struct cairn_read *reads, size_t count,
                                           struct cairn_client_landing *ret,
                                           struct cairn_error *err) {
    *ret = (struct cairn_client_landing){.device = &session->device};
    for (size_t i = 0; i < count; i++) {
        if (reads[i].memory == CAIRN_MEMORY_HOST || !reads[i].into_bytes) continue;
        const char *name = reads[i].tensor ? reads[i].tensor : reads[i].shard;
        enum cairn_code code = CAIRN_OK;
        if (reads[i].memory != CAIRN_MEMORY_CUDA)
            code = cairn_fail(err, CAIRN_INVALID, "memory %d is unknown", (int)reads[i].memory);
        if (!code) code = cairn_client_device_need(session, reads[i].into, err);
        if (!code && !ret->job)
            code = ret->device->plugin->begin(
                ret->device->handle, &(struct cairn_device_job_options){.mark_count = 1},
                &ret->job, err);
        if (!code)
            code = ret->device->plugin->follow(ret->job, reads[i].into, reads[i].stream, err);
        if (code) return cairn_within(err, code, "read %zu, of %.300s", i, name);
    }
    return CAIRN_OK;
}

enum cairn_code cairn_client_landing_put(struct cairn_client_landing *landing,
                                         const struct cairn_read *read,
                                         struct cairn_client_target *target, uint64_t at,
                                         struct cairn_view from, struct cairn_error *err) {
    if (!target->plain) {
        if (cairn_client_target_put(target, read->into, at, from.data, from.size)) return CAIRN_OK;
        return cairn_fail(err, CAIRN_INTERNAL, "the bytes of an element came out of order");
    }
    if (read->memory == CAIRN_MEMORY_HOST) {
        /* It streams past the cache, which memcpy does not at these sizes; the sum is free. */
        (void)cairn_crc32c_copy(0, (uint8_t *)read->into + at, from.data, from.size);
        return CAIRN_OK;
    }
    const struct cairn_device_part part = {.memory = read->into,
                                           .at = at,
                                           .bytes = from.size,
                                           .host = (uint8_t *)(uintptr_t)from.data,
                                           .into_device = true};
    landing->put = true;
    return landing->device->plugin->copy(landing->job, &part, err);
}

enum cairn_code cairn_client_landing_settle(struct cairn_client_landing *landing,
                                            struct cairn_error *err) {
    if (!landing->put) return CAIRN_OK;
    landing->put = false;
    CAIRN_TRY(landing->device->plugin->mark(landing->job, 0, err));
    return landing->device->plugin->await(landing->job, 0, err);
}

void cairn_client_landing_end(struct cairn_client_landing *landing) {
    if (landing->job) landing->device->plugin->end(landing->job);
    landing->job = NULL;
}
