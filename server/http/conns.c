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
#include "common/net.h"
#include "server/chunks.h"
#include "server/http/inside.h"
#include "server/nodes.h"
#include "server/read_slots.h"

#define LOOK_EVERY_MS 200

struct cairn_srv_conn *cairn_srv_conn_of(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

void cairn_srv_conn_set(struct cairn_srv_conn *conn, uint64_t within_ms) {
    if (!conn) return;
    conn->deadline_ms = within_ms == UINT64_MAX ? UINT64_MAX : cairn_mono_ms() + within_ms;
}

/* ---- with the lock held ---- */

static void unlink_idle(struct cairn_srv_http *http, struct cairn_srv_conn *conn) {
    if (!conn->idle_at) return;
    if (http->locked.idle_end == &conn->idle_next) http->locked.idle_end = conn->idle_at;
    *conn->idle_at = conn->idle_next;
    if (conn->idle_next) conn->idle_next->idle_at = conn->idle_at;
    conn->idle_next = NULL;
    conn->idle_at = NULL;
}

static void link_idle(struct cairn_srv_http *http, struct cairn_srv_conn *conn) {
    if (conn->idle_at || conn->is_reset) return;
    conn->idle_ms = cairn_mono_ms();
    conn->idle_at = http->locked.idle_end;
    *http->locked.idle_end = conn;
    http->locked.idle_end = &conn->idle_next;
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

static void leave_peer(struct cairn_srv_http *http, struct cairn_srv_conn *conn) {
    struct cairn_srv_peer *peer = CAIRN_TAKE(conn->peer);
    if (!peer || --peer->connections) return;
    struct cairn_srv_peer **at = bucket_of(http, peer->address);
    while (*at != peer) at = &(*at)->next;
    *at = peer->next;
    free(peer);
}

/* Without linger 0 a slow reader would go on draining the kernel's buffer. */
void cairn_srv_conn_reset(struct cairn_srv_http *http, struct cairn_srv_conn *conn) {
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    (void)setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    (void)shutdown(conn->fd, SHUT_RDWR);
    conn->deadline_ms = UINT64_MAX;
    http->locked.resets += !conn->is_reset;
    conn->is_reset = true;
    unlink_idle(http, conn);
    leave_peer(http, conn);
}

/* An address at its bound loses the connection that has been idle for longest, and where none is
 * idle the one that has just come. */
static void keep_bound(struct cairn_srv_http *http, struct cairn_srv_conn *fresh) {
    if (!fresh->peer) return;
    if (fresh->peer->connections <= http->server->settings->connections_per_address) return;
    struct cairn_srv_conn *idle = http->locked.idle;
    while (idle && idle->peer != fresh->peer) idle = idle->idle_next;
    cairn_srv_conn_reset(http, idle ? idle : fresh);
}

/* ---- from outside ---- */

static void address_of(struct MHD_Connection *connection, uint8_t ret[16]) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    cairn_net_caller(info ? info->client_addr : NULL, ret);
}

static void add(struct cairn_srv_http *http, struct MHD_Connection *connection,
                void **socket_context) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct cairn_srv_conn *conn = info ? calloc(1, sizeof(*conn)) : NULL;
    uint8_t address[16];
    *socket_context = conn;
    if (!conn) return; /* its first request ends it */
    conn->connection = connection;
    conn->fd = info->connect_fd;
    conn->moved_ms = UINT64_MAX;
    address_of(connection, address);
    cairn_srv_conn_set(conn, http->server->settings->request_timeout_ms);
    CAIRN_HOLD(&http->lock);
    conn->next = http->locked.conns;
    conn->at = &http->locked.conns;
    if (conn->next) conn->next->at = &conn->next;
    http->locked.conns = conn;
    conn->peer = join_peer(http, address);
    keep_bound(http, conn);
    link_idle(http, conn);
}

static void take_out(struct cairn_srv_http *http, struct cairn_srv_conn *conn) {
    cairn_srv_memory_give(http, conn);
    cairn_srv_exchange_free(conn->arriving);
    {
        CAIRN_HOLD(&http->lock);
        *conn->at = conn->next;
        if (conn->next) conn->next->at = conn->at;
        CAIRN_ASSERT(!conn->is_reset || http->locked.resets);
        http->locked.resets -= conn->is_reset;
        unlink_idle(http, conn);
        leave_peer(http, conn);
    }
    free(conn);
}

void cairn_srv_conn_idle(struct cairn_srv_http *http, struct cairn_srv_conn *conn, bool idle) {
    if (!conn) return;
    CAIRN_HOLD(&http->lock);
    if (idle)
        link_idle(http, conn);
    else
        unlink_idle(http, conn);
}

bool cairn_srv_conn_make_room(struct cairn_srv_http *http, size_t count, uint64_t idle_ms) {
    CAIRN_HOLD(&http->lock);
    uint64_t now_ms = cairn_mono_ms();
    while (http->locked.resets < count && http->locked.idle &&
           now_ms - http->locked.idle->idle_ms >= idle_ms)
        cairn_srv_conn_reset(http, http->locked.idle);
    return http->locked.resets > 0;
}

void cairn_srv_conn_notify(void *cls, struct MHD_Connection *connection, void **socket_context,
                           enum MHD_ConnectionNotificationCode what) {
    struct cairn_srv_http *http = cls;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) add(http, connection, socket_context);
    if (what == MHD_CONNECTION_NOTIFY_CLOSED && *socket_context) take_out(http, *socket_context);
}

static size_t reset_overdue(struct cairn_srv_http *http) {
    size_t count = 0;
    CAIRN_HOLD(&http->lock);
    uint64_t now_ms = cairn_mono_ms();
    for (struct cairn_srv_conn *one = http->locked.conns; one; one = one->next) {
        if (one->deadline_ms > now_ms) continue;
        cairn_srv_conn_reset(http, one);
        count++;
    }
    return count;
}

static void conns_loop(struct cairn_thread *thread, void *owner) {
    struct cairn_srv_http *http = owner;
    do {
        cairn_srv_nodes_awake(http->server);
        cairn_srv_parked_end_gone(http);
        cairn_srv_read_slots_look(http->server->read_slots);
        cairn_srv_chunks_look(http->server->chunks);
        size_t count = reset_overdue(http);
        if (count) cairn_log(DEBUG, "http.cut", "connections=%zu", count);
    } while (cairn_thread_wait(thread, cairn_mono_ms() + LOOK_EVERY_MS));
}

enum cairn_code cairn_srv_conn_start(struct cairn_srv_http *http, struct cairn_error *err) {
    http->conns_thread =
        (struct cairn_thread){.name = "cairn-conn", .run = conns_loop, .owner = http};
    return cairn_thread_start(&http->conns_thread, err);
}

void cairn_srv_conn_stop(struct cairn_srv_http *http) {
    cairn_thread_stop(&http->conns_thread);
}
