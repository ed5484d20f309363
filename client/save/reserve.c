/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for saves of another size. What the session has goes back before it asks, so that no rank
 * holds memory while it waits for memory; and it waits between saves alone (Q13, Q14). */
#include <inttypes.h>
#include <stdlib.h>

#include "client/save/save.h"
#include "client/session/detached.h"
#include "client/session/open.h"

#define VERSION_OF_RESIZING 4
#define RESERVE_BEHIND_MS 600000 /* 40 GB are not filled within a minute everywhere */

/* The lock is held. */
static bool any_generation_used(const struct cairn_session *session) {
    for (uint32_t i = 0; i < session->slab_count; i++) {
        const struct cairn_client_generation *at = &session->saves->generations[i];
        if (at->held || at->lent) return true;
    }
    return false;
}

/* Waits for an uploader and until no save needs the memory, and takes it out of the session. From
 * here on an uploader that comes anew is offered none. The lock is held. */
static enum cairn_code take_all(struct cairn_session *session, uint64_t deadline_ms,
                                uint32_t *ret_epoch, struct cairn_client_slabs *ret,
                                struct cairn_error *err) {
    struct cairn_save *save;
    for (;;) {
        CAIRN_TRY(cairn_client_reach(session, true, deadline_ms, ret_epoch, err));
        if (!any_generation_used(session)) break;
        enum cairn_code code = cairn_client_pause(session, deadline_ms, err);
        if (code == CAIRN_TIMEOUT)
            return cairn_fail(err, code, "a save still needs the memory that the session has");
        CAIRN_TRY(code);
    }
    cairn_client_slabs_take(session, ret);
    memset(session->saves->generations, 0, sizeof session->saves->generations);
    TAILQ_FOREACH(save, &session->saves->all, place) save->generation = -1; /* it needed none */
    return CAIRN_OK;
}

/* They may be page-locked for a device; the lock is not held. */
static void release(struct cairn_session *session, struct cairn_client_slabs *slabs) {
    for (uint32_t i = 0; i < slabs->count && session->device.handle; i++)
        session->device.plugin->unlock(session->device.handle, slabs->slabs[i].data);
    cairn_client_slabs_unmap(slabs);
}

static enum cairn_code ask(struct cairn_session *session, uint32_t epoch, uint64_t deadline_ms,
                           struct cairn_client_slabs *ret, struct cairn_error *err) {
    CAIRN_AUTO(frame) answer = {0};
    uint64_t bytes = session->bytes + CAIRN_CLIENT_HEADER_BYTES;
    uint64_t node_bytes =
        session->node_bytes + session->local_world_size * CAIRN_CLIENT_HEADER_BYTES;
    uint64_t left_ms = cairn_client_left_ms(deadline_ms) / 4 * 3; /* it answers before ours ends */
    const struct cairn_client_request request = {
        CAIRN_CLIENT_REQUEST(slabs,
                             .wait_staged_ms = cairn_min_u64(session->wait_staged_ms, left_ms),
                             .bytes = bytes, .node_bytes = node_bytes),
        .epoch = epoch, .deadline_ms = deadline_ms};
    CAIRN_TRY(cairn_client_call(session, &request, &answer, err));
    CAIRN_TRY(cairn_client_slabs_map(&answer, session->bytes, ret, err));
    const struct cairn_client_request mapped = {CAIRN_CLIENT_REQUEST(mapped, 0), .epoch = epoch,
                                                .deadline_ms = deadline_ms};
    return cairn_client_call(session, &mapped, NULL, err);
}

/* The memory is the session's, unless the uploader that gave it is another by now. */
static enum cairn_code put(struct cairn_session *session, uint32_t epoch,
                           struct cairn_client_slabs *slabs, struct cairn_error *err) {
    CAIRN_HOLD(&session->lock);
    if (session->locked.state == CAIRN_CLIENT_UP && session->locked.epoch == epoch) {
        cairn_client_slabs_set(session, slabs);
        return CAIRN_OK;
    }
    return cairn_fail(err, CAIRN_UPLOADER_GONE, "the uploader at %s went away", session->socket);
}

static enum cairn_code reserve(struct cairn_session *session, uint64_t deadline_ms,
                               struct cairn_error *err) {
    struct cairn_client_slabs slabs = {0};
    uint32_t epoch = 0;
    cairn_lock_take(&session->lock);
    enum cairn_code code = take_all(session, deadline_ms, &epoch, &slabs, err);
    cairn_lock_give(&session->lock);
    CAIRN_TRY(code);
    release(session, &slabs);
    code = ask(session, epoch, deadline_ms, &slabs, err);
    if (!code) code = put(session, epoch, &slabs, err);
    release(session, &slabs); /* what was mapped and is not the session's */
    return code;
}

static bool begin_reserving(struct cairn_session *session) {
    CAIRN_HOLD(&session->lock);
    if (session->saves->reserving) return false;
    return session->saves->reserving = true;
}

static enum cairn_code check(struct cairn_session *session, uint64_t bytes, uint64_t *node_bytes,
                             struct cairn_error *err) {
    if (session->read_only || !bytes)
        return cairn_fail(err, CAIRN_INVALID, "%s: bytes are for sessions that save, and not 0",
                          session->run);
    CAIRN_TRY(cairn_client_bytes_check(session, bytes, node_bytes, err));
    CAIRN_TRY(cairn_client_speaks(session, VERSION_OF_RESIZING, "memory of another size", err));
    if (!begin_reserving(session))
        return cairn_fail(err, CAIRN_BUSY, "%s: another call reserves memory", session->run);
    return CAIRN_OK;
}

/* Begun by begin_reserving; ends it. */
static enum cairn_code reserve_all(struct cairn_session *session, uint64_t bytes,
                                   uint64_t node_bytes, uint64_t deadline_ms,
                                   struct cairn_error *err) {
    uint64_t before = session->bytes, node_before = session->node_bytes;
    session->bytes = bytes;
    session->node_bytes = node_bytes;
    enum cairn_code code = reserve(session, deadline_ms, err);
    if (code) (void)cairn_within(err, code, "%s rank %u", session->run, session->rank);
    cairn_lock_take(&session->lock);
    session->saves->reserving = false;
    if (session->slab_count && code) { /* as it was: nothing was given back */
        session->bytes = before;
        session->node_bytes = node_before;
    }
    session->saves->unreserved = (struct cairn_error){0};
    if (code && !session->slab_count && err) session->saves->unreserved = *err;
    cairn_client_changed(session);
    cairn_lock_give(&session->lock);
    return code;
}

enum cairn_code cairn_session_reserve(struct cairn_session *session, uint64_t bytes,
                                      uint64_t node_bytes, uint32_t timeout_ms,
                                      struct cairn_error *err) {
    struct cairn_error own = {0};
    CAIRN_CLIENT_CALL(session, err);
    CAIRN_TRY(check(session, bytes, &node_bytes, err));
    uint64_t deadline_ms =
        cairn_client_deadline(session, timeout_ms) + (timeout_ms ? 0 : session->wait_staged_ms);
    return reserve_all(session, bytes, node_bytes, deadline_ms, err ? err : &own);
}

/* ---- beside the training ---- */

struct wanted {
    struct cairn_session *session;
    uint64_t bytes, node_bytes;
};

/* What fails is said by cairn_session_problem, and by a save that needs the memory. */
static void *reserve_behind(void *owner) {
    struct wanted wanted = *(struct wanted *)owner;
    struct cairn_session *session = wanted.session;
    struct cairn_error why = {0};
    free(owner);
    uint64_t deadline_ms = cairn_client_deadline(session, RESERVE_BEHIND_MS);
    if (reserve_all(session, wanted.bytes, wanted.node_bytes, deadline_ms, &why)) {
        CAIRN_HOLD(&session->lock);
        session->saves->notice = why;
    }
    cairn_client_leave(session);
    return NULL;
}

enum cairn_code cairn_session_reserve_begin(struct cairn_session *session, uint64_t bytes,
                                            uint64_t node_bytes, struct cairn_error *err) {
    CAIRN_CLIENT_CALL(session, err);
    struct wanted *wanted = malloc(sizeof *wanted);
    if (!wanted) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to reserve");
    enum cairn_code code = check(session, bytes, &node_bytes, err);
    *wanted = (struct wanted){session, bytes, node_bytes};
    if (!code && cairn_client_detached(session, reserve_behind, wanted)) return CAIRN_OK;
    free(wanted);
    if (code) return code;
    return reserve_all(session, bytes, node_bytes, cairn_client_deadline(session, 0), err);
}
