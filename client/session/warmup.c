/* SPDX-License-Identifier: Apache-2.0 */
/* The way of a save, gone once before the first one: the plug-in and its page-locked memory here,
 * and a probe in the store, which the uploader writes and the server looks for. */
#include "client/session/devices.h"
#include "client/session/options.h"
#include "client/session/session.h"

enum cairn_code cairn_session_weights(struct cairn_session *session, const uint32_t *ranks,
                                      size_t count, uint32_t *ret_weights,
                                      struct cairn_error *err) {
    CAIRN_CLIENT_CALL(session, err);
    if (count && (!ranks || !ret_weights)) return cairn_fail(err, CAIRN_INVALID, "no ranks");
    for (size_t i = 0; i < count; i++)
        if (ranks[i] >= session->world_size)
            return cairn_fail(err, CAIRN_INVALID, "rank %u of a world of %u", ranks[i],
                              session->world_size);
    for (size_t i = 0; i < count; i++)
        ret_weights[i] = session->weights ? (uint32_t)(session->weights[ranks[i]] - '0') : 1;
    return CAIRN_OK;
}

static enum cairn_code warm_device(struct cairn_session *session, enum cairn_memory memory,
                                   struct cairn_error *err) {
    if (memory == CAIRN_MEMORY_HOST) return CAIRN_OK;
    if (memory != CAIRN_MEMORY_CUDA)
        return cairn_fail(err, CAIRN_INVALID, "memory %d is unknown", (int)memory);
    CAIRN_TRY(cairn_client_device_need(session, NULL, err));
    for (uint32_t i = 0; i < session->slab_count; i++) {
        const struct cairn_slab *slab = &session->slabs[i];
        CAIRN_TRY(session->device.plugin->lock(session->device.handle, slab->data, slab->size_bytes,
                                               false, err));
    }
    return CAIRN_OK;
}

static enum cairn_code warm_store(struct cairn_session *session, uint64_t deadline_ms,
                                  struct cairn_error *err) {
    const struct cairn_client_request request = {
        CAIRN_CLIENT_REQUEST(warmup, .timeout_ms = cairn_client_left_ms(deadline_ms)),
        .waits = true, .deadline_ms = deadline_ms};
    return cairn_client_call(session, &request, NULL, err);
}

enum cairn_code cairn_warmup(struct cairn_session *session,
                             const struct cairn_warmup_options *options, struct cairn_error *err) {
    struct cairn_warmup_options wanted;
    CAIRN_CLIENT_CALL(session, err);
    CAIRN_TRY(CAIRN_CLIENT_OPTIONS(options, &wanted, err));
    if (session->read_only)
        return cairn_fail(err, CAIRN_INVALID, "a session that only reads has no way of saves");
    uint64_t deadline_ms = cairn_client_deadline(session, wanted.timeout_ms);
    enum cairn_code code = warm_device(session, (enum cairn_memory)wanted.memory, err);
    if (!code) code = warm_store(session, deadline_ms, err);
    return code ? cairn_within(err, code, "%s rank %u: warm-up", session->run, session->rank)
                : CAIRN_OK;
}
