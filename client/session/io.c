/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The session's own thread: it takes in what comes while no call reads the socket (wire.h), sends
 * what calls could not, and when the uploader goes away it tries again until it is back. Only the
 * end of the socket makes it connect again, never a time-out: an uploader that is merely slow still
 * reads from the slabs (Q15). Signals are blocked here, so that the trainer's handlers run on the
 * trainer's threads.
 */
#include "client/session/io.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/session/alone.h"
#include "client/session/dispatch.h"
#include "client/session/wire.h"

#define RETRY_MS_MIN 20
#define RETRY_MS_MAX 1000
#define OFFER_MS 10000

/* more: also until the socket takes something again. */
static void sleep_until_woken(struct cairn_session *session, bool more, int timeout_ms) {
    uint64_t woken;
    struct pollfd wanted[2] = {{.fd = session->heard_fd, .events = POLLIN},
                               {.fd = session->link.fd, .events = POLLOUT}};
    if (poll(wanted, more ? 2 : 1, timeout_ms) > 0 && wanted[0].revents)
        if (read(session->wake_fd, &woken, sizeof woken) < 0) return;
}

static void serve(struct cairn_session *session) {
    bool more = false;
    if (cairn_client_wire_serve(session, &more)) {
        sleep_until_woken(session, more, -1);
        return;
    }
    cairn_client_wire_close(session);
    CAIRN_HOLD(&session->lock);
    cairn_client_link_ended(session);
}

/* K05: a refusal that a later try would get again. A full disk of the uploader's journal is not one
 * (Q45). */
static bool is_final(enum cairn_code code) {
    return code != CAIRN_OK && code != CAIRN_UPLOADER_GONE && code != CAIRN_CANCELLED &&
           code != CAIRN_PROTOCOL && code != CAIRN_IO && code != CAIRN_NO_MEMORY &&
           code != CAIRN_NO_SPACE && !cairn_code_info(code)->retryable;
}

static enum cairn_code connect_again(struct cairn_session *session, struct cairn_error *err) {
    uint64_t deadline_ms = cairn_deadline_in(&cairn_clock_real, OFFER_MS);
    bool left = false;
    CAIRN_TRY(cairn_client_link_open(session->socket, &session->link, &left, err));
    CAIRN_TRY(cairn_client_hello(session, deadline_ms, err));
    if (!session->read_only) CAIRN_TRY(session->sink->offer(session, deadline_ms, err));
    return cairn_client_wire_open(session, err);
}

/* CAIRN_OK: the state is UP again, or REFUSED. */
static enum cairn_code reconnect(struct cairn_session *session) {
    struct cairn_error why = {0};
    enum cairn_code code = connect_again(session, &why);
    if (code) cairn_client_link_close(&session->link);
    CAIRN_HOLD(&session->lock);
    /* An uploader that is not there is expected; a lack of descriptors is not, nor one that does
     * not take the session back. */
    session->locked.turned_away = code && !why.os_errno && code != CAIRN_UPLOADER_GONE;
    snprintf(session->locked.away_why, sizeof(session->locked.away_why), "%s",
             code && (why.os_errno || session->locked.turned_away) ? why.message : "");
    if (code && !is_final(code)) return code;
    if (code) {
        session->locked.refusal = why;
        session->locked.refusal.code = code;
        session->locked.state = CAIRN_CLIENT_REFUSED;
        session->sink->refused(session);
    } else {
        session->locked.state = CAIRN_CLIENT_UP;
        session->locked.epoch++;
        session->sink->up(session);
    }
    cairn_client_changed(session);
    return CAIRN_OK;
}

static void *run(void *argument) {
    struct cairn_session *session = argument;
    uint64_t retry_ms = RETRY_MS_MIN;
    for (;;) {
        cairn_lock_take(&session->lock);
        enum cairn_client_state state = session->locked.state;
        bool stop = session->locked.stop, leaving = session->locked.leaving;
        cairn_lock_give(&session->lock);
        if (stop) return NULL;
        if (state == CAIRN_CLIENT_UP) {
            retry_ms = RETRY_MS_MIN;
            serve(session);
        } else if (state == CAIRN_CLIENT_REFUSED || leaving) {
            sleep_until_woken(session, false, -1);
        } else if (reconnect(session) == CAIRN_OK) {
            session->sink->finish(session);
        } else {
            sleep_until_woken(session, false, (int)retry_ms);
            retry_ms = cairn_min_u64(retry_ms * 2, RETRY_MS_MAX);
        }
    }
}

static enum cairn_code open_bells(struct cairn_session *session, struct cairn_error *err) {
    session->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    session->heard_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    if (session->wake_fd < 0 || session->heard_fd < 0 ||
        epoll_ctl(session->heard_fd, EPOLL_CTL_ADD, session->wake_fd, &event))
        return cairn_fail_errno(err, "create an eventfd and an epoll descriptor");
    return cairn_client_wire_open(session, err);
}

enum cairn_code cairn_client_thread_start(struct cairn_session *session, struct cairn_error *err) {
    sigset_t all, before;
    CAIRN_TRY(open_bells(session, err));
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&session->thread, NULL, run, session);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return cairn_fail_at(err, CAIRN_NO_MEMORY, failed, CAIRN_ORIGIN,
                             "start the session's thread");
    session->thread_started = true;
    return CAIRN_OK;
}

void cairn_client_thread_stop(struct cairn_session *session) {
    cairn_lock_take(&session->lock);
    session->locked.stop = true;
    cairn_client_changed(session);
    cairn_lock_give(&session->lock);
    cairn_client_wake(session);
    if (session->thread_started) pthread_join(session->thread, NULL);
    session->thread_started = false;
}

void cairn_client_thread_release(struct cairn_session *session) {
    if (session->wake_fd >= 0) close(session->wake_fd);
    if (session->heard_fd >= 0) close(session->heard_fd);
    session->wake_fd = session->heard_fd = -1;
}
