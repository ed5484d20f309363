/* SPDX-License-Identifier: Apache-2.0 */
/* Turns are two flags under the session's lock; its thread sleeps on an epoll descriptor. */
#include "client/session/wire.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include "client/session/dispatch.h"

/* ---- turns; the lock is held ---- */

/* The session's thread hears the socket, or does not. */
static enum cairn_code set_heard(struct cairn_session *session, bool heard,
                                 struct cairn_error *err) {
    struct epoll_event event = {.events = EPOLLIN};
    if (!epoll_ctl(session->heard_fd, heard ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, session->link.fd,
                   &event))
        return CAIRN_OK;
    return cairn_fail_errno(err, "the uploader's socket in epoll");
}

static bool is_usable(const struct cairn_session *session) {
    return session->locked.state == CAIRN_CLIENT_UP && !session->locked.cut &&
           !session->locked.stop;
}

/* Whoever closes the link waits for the turns. */
static void given(struct cairn_session *session) {
    if (is_usable(session)) return;
    cairn_client_changed(session);
    cairn_client_wake(session);
}

static bool take_reading(struct cairn_session *session, bool by_call) {
    if (!is_usable(session) || session->locked.reading) return false;
    if (by_call && set_heard(session, false, NULL)) return false;
    session->locked.reading = true;
    return true;
}

static void give_reading(struct cairn_session *session, bool by_call, bool broken) {
    CAIRN_PROMISE(session->locked.reading, return);
    session->locked.reading = false;
    if (broken) session->locked.cut = true;
    if (by_call && set_heard(session, true, NULL)) session->locked.cut = true; /* nobody hears */
    given(session);
}

/* ---- reading ---- */

/* All that is there, up to that answer. */
static enum cairn_code receive(struct cairn_session *session,
                               const struct cairn_client_pending *answer) {
    for (;;) {
        CAIRN_AUTO(frame) frame = {0};
        bool ready = false;
        CAIRN_TRY(cairn_client_link_next(&session->link, &frame, &ready, NULL));
        if (!ready) return CAIRN_OK;
        CAIRN_HOLD(&session->lock);
        if (!cairn_client_dispatch(session, &frame)) return CAIRN_PROTOCOL; /* an unknown event */
        if (answer && answer->done) return CAIRN_OK;
    }
}

/* CAIRN_TIMEOUT, CAIRN_INTERRUPTED, or something may be there. */
static enum cairn_code wait_for_frame(struct cairn_session *session, uint64_t until_ms) {
    struct pollfd wanted = {.fd = session->link.fd, .events = POLLIN};
    uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, until_ms);
    int found = cairn_client_poll(&wanted, left_ms, NULL);
    if (found < 0 && errno == EINTR && session->interruptible) return CAIRN_INTERRUPTED;
    return found == 0 ? CAIRN_TIMEOUT : CAIRN_OK;
}

enum cairn_code cairn_client_wire_await(struct cairn_session *session,
                                        const struct cairn_client_pending *pending,
                                        uint64_t deadline_ms, struct cairn_error *err) {
    uint64_t until_ms = cairn_min_u64(deadline_ms, cairn_mono_ms() + CAIRN_CLIENT_SELF_MS);
    enum cairn_code code = CAIRN_OK;
    if (pending->done || !take_reading(session, true)) return CAIRN_OK;
    while (!code && !pending->done && is_usable(session)) {
        cairn_lock_give(&session->lock);
        code = wait_for_frame(session, until_ms);
        if (!code) code = receive(session, pending);
        cairn_lock_take(&session->lock);
    }
    bool late = code == CAIRN_TIMEOUT, interrupted = code == CAIRN_INTERRUPTED;
    give_reading(session, true, code && !late && !interrupted);
    if (!interrupted) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INTERRUPTED, "a signal came while libcairn waited");
}

/* ---- writing ---- */

bool cairn_client_wire_send(struct cairn_session *session) {
    struct cairn_client_message *message;
    enum cairn_code code = CAIRN_OK;
    bool done = true;
    CAIRN_HOLD(&session->lock);
    if (!is_usable(session) || session->locked.writing) return false;
    session->locked.writing = true;
    while (done && (message = STAILQ_FIRST(&session->locked.queue))) {
        cairn_lock_give(&session->lock);
        code = cairn_client_link_flush(&session->link, message, &done, NULL);
        cairn_lock_take(&session->lock);
        done = done && !code;
        if (!done) break;
        STAILQ_REMOVE_HEAD(&session->locked.queue, place);
        cairn_client_message_free(message);
    }
    session->locked.writing = false;
    if (code) session->locked.cut = true;
    given(session);
    return !done;
}

/* ---- the session's thread ---- */

enum cairn_code cairn_client_wire_open(struct cairn_session *session, struct cairn_error *err) {
    return set_heard(session, true, err);
}

bool cairn_client_wire_serve(struct cairn_session *session, bool *ret_more) {
    cairn_lock_take(&session->lock);
    bool mine = take_reading(session, false);
    cairn_lock_give(&session->lock);
    enum cairn_code code = mine ? receive(session, NULL) : CAIRN_OK;
    cairn_lock_take(&session->lock);
    if (mine) give_reading(session, false, code != CAIRN_OK);
    cairn_lock_give(&session->lock);
    *ret_more = cairn_client_wire_send(session);
    CAIRN_HOLD(&session->lock);
    return !session->locked.cut;
}

void cairn_client_wire_close(struct cairn_session *session) {
    cairn_lock_take(&session->lock);
    session->locked.cut = true;
    /* A call that waits on the socket sees its end. */
    if (session->locked.reading) (void)shutdown(session->link.fd, SHUT_RDWR);
    while (session->locked.reading || session->locked.writing)
        (void)cairn_condition_wait(&session->changed, &session->lock, UINT64_MAX);
    cairn_lock_give(&session->lock);
    if (session->link.fd >= 0 && session->heard_fd >= 0) (void)set_heard(session, false, NULL);
    cairn_client_link_close(&session->link);
}
