/* SPDX-License-Identifier: Apache-2.0 */
/* Deadlines of connections. The library only knows "idle"; a peer that sends or takes one byte a
 * second is never idle. So every connection is in a table with a deadline, and a thread resets
 * those that are over. An fd leaves the table before the library closes it: no reuse race.
 *
 * The same table knows who is idle and how many connections an address has: at a bound the longest
 * idle is reset, so that connections without requests lock no caller out (B05). */
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "common/clock.h"
#include "common/crc32c.h"
#include "common/log.h"
#include "server/http/inside.h"
#include "server/nodes.h"
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

/* ---- with the lock held ---- */

static void unlink_idle(struct cairn_srv_http *http, struct cairn_srv_guard *guard) {
    if (!guard->idle_at) return;
    if (http->locked.idle_end == &guard->idle_next) http->locked.idle_end = guard->idle_at;
    *guard->idle_at = guard->idle_next;
    if (guard->idle_next) guard->idle_next->idle_at = guard->idle_at;
    guard->idle_next = NULL;
    guard->idle_at = NULL;
}

static void link_idle(struct cairn_srv_http *http, struct cairn_srv_guard *guard) {
    if (guard->idle_at || guard->is_reset) return;
    guard->idle_at = http->locked.idle_end;
    *http->locked.idle_end = guard;
    http->locked.idle_end = &guard->idle_next;
}

static struct cairn_srv_peer **bucket_of(struct cairn_srv_http *http, const uint8_t address[16]) {
    uint32_t hash = cairn_crc32c(0, address, 16);
    return &http->locked.peers[hash % CAIRN_SRV_PEER_BUCKETS];
}

/* NULL: no memory for it, so it is not counted. */
static struct cairn_srv_peer *join_peer(struct cairn_srv_http *http, const uint8_t address[16]) {
    struct cairn_srv_peer **at = bucket_of(http, address);
    while (*at && memcmp((*at)->address, address, 16) != 0) at = &(*at)->next;
    if (!*at) *at = calloc(1, sizeof(**at));
    if (!*at) return NULL;
    memcpy((*at)->address, address, 16);
    (*at)->connections++;
    return *at;
}

static void leave_peer(struct cairn_srv_http *http, struct cairn_srv_guard *guard) {
    struct cairn_srv_peer *peer = CAIRN_TAKE(guard->peer);
    if (!peer || --peer->connections) return;
    struct cairn_srv_peer **at = bucket_of(http, peer->address);
    while (*at != peer) at = &(*at)->next;
    *at = peer->next;
    free(peer);
}

/* Without linger 0 a slow reader would go on draining the kernel's buffer. */
void cairn_srv_guard_reset(struct cairn_srv_http *http, struct cairn_srv_guard *guard) {
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    (void)setsockopt(guard->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    (void)shutdown(guard->fd, SHUT_RDWR);
    guard->deadline_ms = UINT64_MAX;
    guard->is_reset = true;
    unlink_idle(http, guard);
    leave_peer(http, guard);
}

/* An address at its bound loses the connection that has been idle for longest, and where none is
 * idle the one that has just come. */
static void keep_bound(struct cairn_srv_http *http, struct cairn_srv_guard *fresh) {
    if (!fresh->peer) return;
    if (fresh->peer->connections <= http->server->settings->connections_per_address) return;
    struct cairn_srv_guard *idle = http->locked.idle;
    while (idle && idle->peer != fresh->peer) idle = idle->idle_next;
    cairn_srv_guard_reset(http, idle ? idle : fresh);
}

/* ---- from outside ---- */

static void address_of(struct MHD_Connection *connection, uint8_t ret[16]) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *any = info ? info->client_addr : NULL;
    memset(ret, 0, 16);
    if (any && any->sa_family == AF_INET6) {
        memcpy(ret, &((const struct sockaddr_in6 *)(const void *)any)->sin6_addr, 16);
    } else if (any && any->sa_family == AF_INET) {
        memset(ret + 10, 0xff, 2);
        memcpy(ret + 12, &((const struct sockaddr_in *)(const void *)any)->sin_addr, 4);
    }
}

static void add(struct cairn_srv_http *http, struct MHD_Connection *connection,
                void **socket_context) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct cairn_srv_guard *guard = info ? calloc(1, sizeof(*guard)) : NULL;
    uint8_t address[16];
    *socket_context = guard;
    if (!guard) return; /* its first request ends it */
    guard->fd = info->connect_fd;
    guard->moved_ms = UINT64_MAX;
    address_of(connection, address);
    cairn_srv_guard_set(guard, http->server->settings->request_timeout_ms);
    CAIRN_HOLD(&http->lock);
    guard->next = http->locked.guards;
    guard->at = &http->locked.guards;
    if (guard->next) guard->next->at = &guard->next;
    http->locked.guards = guard;
    guard->peer = join_peer(http, address);
    keep_bound(http, guard);
    link_idle(http, guard);
}

static void take_out(struct cairn_srv_http *http, struct cairn_srv_guard *guard) {
    cairn_srv_memory_give(http, guard);
    cairn_srv_exchange_free(guard->arriving);
    {
        CAIRN_HOLD(&http->lock);
        *guard->at = guard->next;
        if (guard->next) guard->next->at = guard->at;
        unlink_idle(http, guard);
        leave_peer(http, guard);
    }
    free(guard);
}

void cairn_srv_guard_idle(struct cairn_srv_http *http, struct cairn_srv_guard *guard, bool idle) {
    if (!guard) return;
    CAIRN_HOLD(&http->lock);
    if (idle)
        link_idle(http, guard);
    else
        unlink_idle(http, guard);
}

bool cairn_srv_guard_make_room(struct cairn_srv_http *http, size_t count) {
    CAIRN_HOLD(&http->lock);
    bool any = http->locked.idle != NULL;
    for (; count && http->locked.idle; count--) cairn_srv_guard_reset(http, http->locked.idle);
    return any;
}

void cairn_srv_guard_notify(void *cls, struct MHD_Connection *connection, void **socket_context,
                            enum MHD_ConnectionNotificationCode what) {
    struct cairn_srv_http *http = cls;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) add(http, connection, socket_context);
    if (what == MHD_CONNECTION_NOTIFY_CLOSED && *socket_context) take_out(http, *socket_context);
}

static size_t reset_overdue(struct cairn_srv_http *http) {
    size_t count = 0;
    CAIRN_HOLD(&http->lock);
    uint64_t now_ms = cairn_mono_ms();
    for (struct cairn_srv_guard *one = http->locked.guards; one; one = one->next) {
        if (one->deadline_ms > now_ms) continue;
        cairn_srv_guard_reset(http, one);
        count++;
    }
    return count;
}

static void guard_loop(struct cairn_thread *thread, void *owner) {
    struct cairn_srv_http *http = owner;
    do {
        cairn_srv_nodes_awake(http->server);
        cairn_srv_places_look(http->server->places);
        size_t count = reset_overdue(http);
        if (count) cairn_log(DEBUG, "http.cut", "connections=%zu", count);
    } while (cairn_thread_wait(thread, cairn_mono_ms() + LOOK_EVERY_MS));
}

enum cairn_code cairn_srv_guard_start(struct cairn_srv_http *http, struct cairn_error *err) {
    http->guard_thread =
        (struct cairn_thread){.name = "cairn-guard", .run = guard_loop, .owner = http};
    return cairn_thread_start(&http->guard_thread, err);
}

void cairn_srv_guard_stop(struct cairn_srv_http *http) {
    cairn_thread_stop(&http->guard_thread);
}
