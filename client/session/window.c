/* SPDX-License-Identifier: Apache-2.0 */
/* The restore slab is asked for once a link, at half the size as long as memory is short. */
#include "client/session/window.h"

#include <sys/mman.h>

#include "client/session/process.h"

#define WINDOW_BYTES_MIN (8 * CAIRN_MIB)

void cairn_client_window_init(struct cairn_session *session) {
    session->window.slab.fd = -1;
}

void cairn_client_window_release(struct cairn_session *session) {
    for (size_t slot = 0; slot < CAIRN_CLIENT_SLOTS; slot++)
        if (session->window.busy[slot]) cairn_frame_release(&session->window.pending[slot].answer);
    memset(session->window.busy, 0, sizeof session->window.busy);
    if (session->window.epoch) {
        if (session->device.handle) /* else it was never page-locked */
            session->device.plugin->unlock(session->device.handle, session->window.slab.data);
        cairn_client_process_unwatch(session->window.slab.fd);
        cairn_slab_release(&session->window.slab);
    }
    session->window.epoch = 0;
    session->window.slab = (struct cairn_slab){.fd = -1};
}

enum cairn_code cairn_client_window_take(struct cairn_session *session, uint64_t deadline_ms,
                                         struct cairn_error *err) {
    CAIRN_HOLD(&session->lock);
    while (session->locked.window_taken) {
        enum cairn_code code = cairn_client_pause(session, deadline_ms, err);
        if (code == CAIRN_TIMEOUT)
            return cairn_fail(err, code, "another read of this session goes on");
        CAIRN_TRY(code);
    }
    session->locked.window_taken = true;
    return CAIRN_OK;
}

void cairn_client_window_give(struct cairn_session *session) {
    CAIRN_HOLD(&session->lock);
    session->locked.window_taken = false;
    cairn_client_changed(session);
}

static enum cairn_code map(struct cairn_session *session, uint32_t epoch,
                           struct cairn_frame *answer, struct cairn_error *err) {
    struct cairn_msg_window_given told = {0};
    if (cairn_msg_window_given_read(answer->message, "", &told, err) != CAIRN_OK ||
        answer->fd_count != 1 || told.bytes < CAIRN_SLAB_UNIT_BYTES)
        return cairn_fail(err, CAIRN_PROTOCOL, "window without its memory");
    int fd = answer->fds[0];
    answer->fds[0] = -1;
    CAIRN_TRY(cairn_slab_attach(fd, told.bytes, false, &session->window.slab, err));
    session->window.epoch = epoch;
    cairn_client_process_watch(session->window.slab.fd);
    (void)madvise(session->window.slab.data, session->window.slab.size_bytes, MADV_DONTFORK);
    return CAIRN_OK;
}

enum cairn_code cairn_client_window_open(struct cairn_session *session, uint32_t epoch,
                                         uint64_t wanted_bytes, uint64_t deadline_ms,
                                         struct cairn_error *err) {
    if (session->window.epoch == epoch) return CAIRN_OK;
    cairn_client_window_release(session);
    for (uint64_t bytes = wanted_bytes;; bytes /= 2) {
        CAIRN_AUTO(frame) answer = {0};
        const struct cairn_client_request request = {CAIRN_CLIENT_REQUEST(window, .bytes = bytes),
                                                     .epoch = epoch, .deadline_ms = deadline_ms};
        enum cairn_code code = cairn_client_call(session, &request, &answer, err);
        if (code == CAIRN_NO_MEMORY && bytes / 2 >= WINDOW_BYTES_MIN) continue;
        if (code) return cairn_within(err, code, "window for reading");
        return map(session, epoch, &answer, err);
    }
}
