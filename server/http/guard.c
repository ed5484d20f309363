/* SPDX-License-Identifier: Apache-2.0 */
/* Deadlines of connections. The library only knows "idle"; a peer that sends or takes one byte a
 * second is never idle. So every connection is in a table with a deadline, and a thread resets
 * those that are over. An fd leaves the table before the library closes it: no reuse race. */
#include <stdlib.h>
#include <sys/socket.h>

#include "common/clock.h"
#include "common/log.h"
#include "server/nodes.h"
#include "server/http/inside.h"
#include "server/places.h"

#define LOOK_EVERY_MS 200

struct cairn_srv_guard *cairn_srv_guard_of(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

void cairn_srv_guard_set(struct cairn_srv_guard *guard, uint64_t within_ms) {
    if (!guard) return;
    guard->deadline_ms = within_ms == UINT64_MAX ? UINT64_MAX : cairn_mono_ms() + within_ms;
}

static void add(struct cairn_srv_http *http, struct MHD_Connection *connection,
                void **socket_context) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct cairn_srv_guard *guard = calloc(1, sizeof(*guard));
    *socket_context = guard;
    if (!guard || !info) return;
    guard->fd = info->connect_fd;
    cairn_srv_guard_set(guard, http->server->settings->request_timeout_ms);
    CAIRN_HOLD(&http->lock);
    guard->next = http->locked.guards;
    guard->at = &http->locked.guards;
    if (guard->next) guard->next->at = &guard->next;
    http->locked.guards = guard;
}

static void take_out(struct cairn_srv_http *http, struct cairn_srv_guard *guard) {
    {
        CAIRN_HOLD(&http->lock);
        if (guard->at) *guard->at = guard->next;
        if (guard->next) guard->next->at = guard->at;
    }
    free(guard);
}

void cairn_srv_guard_notify(void *cls, struct MHD_Connection *connection, void **socket_context,
                            enum MHD_ConnectionNotificationCode what) {
    struct cairn_srv_http *http = cls;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) add(http, connection, socket_context);
    if (what == MHD_CONNECTION_NOTIFY_CLOSED && *socket_context) take_out(http, *socket_context);
}

/* Without linger 0 a slow reader would go on draining the kernel's buffer. */
static void reset(struct cairn_srv_guard *guard) {
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    (void)setsockopt(guard->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    (void)shutdown(guard->fd, SHUT_RDWR);
    guard->deadline_ms = UINT64_MAX;
}

static void *guard_loop(void *argument) {
    struct cairn_srv_http *http = argument;
    pthread_setname_np(pthread_self(), "cairn-guard");
    for (;;) {
        size_t count = 0;
        cairn_srv_nodes_awake(http->server);
        cairn_srv_places_look(http->server->places);
        {
            CAIRN_HOLD(&http->lock);
            if (http->locked.stopping) return NULL;
            uint64_t now_ms = cairn_mono_ms();
            for (struct cairn_srv_guard *one = http->locked.guards; one; one = one->next) {
                if (one->deadline_ms > now_ms) continue;
                reset(one);
                count++;
            }
            if (!count)
                (void)cairn_condition_wait(&http->work, &http->lock, now_ms + LOOK_EVERY_MS);
        }
        if (count) cairn_log(DEBUG, "http.cut", "connections=%zu", count);
    }
}

enum cairn_code cairn_srv_guard_start(struct cairn_srv_http *http, struct cairn_error *err) {
    if (pthread_create(&http->guard_thread, NULL, guard_loop, http))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no thread for deadlines");
    http->guarded = true;
    return CAIRN_OK;
}

void cairn_srv_guard_stop(struct cairn_srv_http *http) {
    if (!http->guarded) return;
    {
        CAIRN_HOLD(&http->lock);
        http->locked.stopping = true;
        cairn_condition_signal(&http->work);
    }
    pthread_join(http->guard_thread, NULL);
    http->guarded = false;
}
