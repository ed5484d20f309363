/* SPDX-License-Identifier: Apache-2.0 */
/* Callers of parked requests that go away. The library takes a suspended connection out of its
 * epoll, so its end would be noticed when the wait is over; here the connection is in an epoll of
 * ours for as long. A caller that only shuts its sending side down has gone, too: the two look the
 * same until something is sent. */
#include <sys/epoll.h>
#include <unistd.h>

#include "server/http/inside.h"

#define TAKEN_MAX 64 /* at once, with the lock held */

enum cairn_code cairn_srv_parked_open(struct cairn_srv_http *http, struct cairn_error *err) {
    cairn_lock_init(&http->parked_lock, CAIRN_LOCK_server_parked);
    http->parked_fd = epoll_create1(EPOLL_CLOEXEC);
    return http->parked_fd < 0 ? cairn_fail_errno(err, "epoll") : CAIRN_OK;
}

void cairn_srv_parked_close(struct cairn_srv_http *http) {
    CAIRN_ASSERT(!http->parked.count);
    if (http->parked_fd >= 0) close(http->parked_fd);
    cairn_lock_release(&http->parked_lock);
}

void cairn_srv_parked_add(struct cairn_srv_exchange *exchange) {
    struct cairn_srv_http *http = exchange->http;
    struct cairn_srv_conn *conn = exchange->conn;
    struct epoll_event event = {.events = EPOLLRDHUP, .data.ptr = conn};
    CAIRN_HOLD(&http->parked_lock);
    CAIRN_ASSERT(!conn->parked);
    if (conn->fd < 0 || epoll_ctl(http->parked_fd, EPOLL_CTL_ADD, conn->fd, &event)) return;
    conn->parked = exchange;
    http->parked.count++;
}

/* ---- with the lock held ---- */

static void leave(struct cairn_srv_http *http, struct cairn_srv_conn *conn) {
    (void)epoll_ctl(http->parked_fd, EPOLL_CTL_DEL, conn->fd, NULL);
    conn->parked = NULL;
    http->parked.count--;
}

/* NULL: it is being woken, or about to be parked; who does that takes it from here. */
static struct cairn_srv_exchange *take_gone(struct cairn_srv_http *http,
                                            struct cairn_srv_conn *conn) {
    struct cairn_srv_exchange *exchange = conn->parked;
    if (!exchange || !cairn_srv_waiters_cancel(http->server->waiters, &exchange->waiter))
        return NULL;
    leave(http, conn);
    return exchange;
}

/* ---- from outside ---- */

void cairn_srv_parked_remove(struct cairn_srv_exchange *exchange) {
    CAIRN_HOLD(&exchange->http->parked_lock);
    if (exchange->conn->parked) leave(exchange->http, exchange->conn);
}

/* Of at most TAKEN_MAX connections; their requests wait for nothing any more. */
static size_t take_some(struct cairn_srv_http *http, struct cairn_srv_exchange *ret[TAKEN_MAX]) {
    struct epoll_event events[TAKEN_MAX];
    size_t taken = 0;
    CAIRN_HOLD(&http->parked_lock);
    if (!http->parked.count) return 0;
    int count = epoll_wait(http->parked_fd, events, TAKEN_MAX, 0);
    for (int i = 0; i < count; i++) {
        struct cairn_srv_exchange *gone = take_gone(http, events[i].data.ptr);
        if (gone) ret[taken++] = gone;
    }
    return taken;
}

void cairn_srv_parked_end_gone(struct cairn_srv_http *http) {
    struct cairn_srv_exchange *gone[TAKEN_MAX];
    size_t count;
    do {
        count = take_some(http, gone);
        for (size_t i = 0; i < count; i++) {
            cairn_srv_reply_release(&gone[i]->reply);
            gone[i]->reply = (struct cairn_srv_reply){0};
            gone[i]->code = cairn_fail(&gone[i]->error, CAIRN_CANCELLED, "the caller has gone");
            cairn_srv_exchange_finish(gone[i]);
        }
    } while (count);
}
