/* SPDX-License-Identifier: Apache-2.0 */
/* Deadlines of connections. The library only knows "idle", and a peer that moves one byte a second
 * is never idle. So a table has every connection with a deadline, and a thread resets expired ones.
 * An fd leaves the table before the library closes it, so a reused fd is never reset. The table
 * also records which connections are receiving or idle, and the count per address. At a bound the
 * oldest incomplete request is closed first, then the longest idle connection, so that silent
 * connections and partial requests cannot lock callers out (B05). */

#include <netinet/in.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/crc.h"
#include "common/hooks.h"
#include "common/log.h"
#include "common/net.h"
#include "server/http/above.h"
#include "server/http/inside.h"
#include "server/metrics.h"

#define LOOK_EVERY_MS 200
#define BEYOND_MAX 16
#define SAY_EVERY_MS 10000
#define ARRIVES_MS 500 /* a request younger than this is not yet stalled */
#define UNREAD_MS 5000 /* nor one with unread bytes, while another can be closed */
#define UNREAD_LOOKS_MAX 64
#define READ_MS 100 /* bytes that were read are parsed within this time */

struct srv_conn *srv_conn_of(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

void srv_conn_set(struct srv_conn *conn, uint64_t within_ms) {
    if (!conn) return;
    conn->deadline_ms = within_ms == UINT64_MAX ? UINT64_MAX : cairn_mono_ms() + within_ms;
}

/* ---- with the lock held ---- */

static void leave_line(struct srv_http *http, struct srv_conn *conn) {
    if (conn->line == SRV_LINE_NONE) return;
    TAILQ_REMOVE(&http->locked.lines[conn->line].conns, conn, line_place);
    http->locked.lines[conn->line].count--;
    conn->line = SRV_LINE_NONE;
}

static void join_line(struct srv_http *http, struct srv_conn *conn, enum srv_conn_line line) {
    leave_line(http, conn);
    if (line == SRV_LINE_NONE || conn->is_reset) return;
    conn->line = line;
    conn->line_ms = cairn_mono_ms();
    TAILQ_INSERT_TAIL(&http->locked.lines[line].conns, conn, line_place);
    http->locked.lines[line].count++;
}

/* The first conn of a line, of that peer (NULL: any), that has been in the line for ms. */
static struct srv_conn *first_of(const struct srv_http *http, enum srv_conn_line line,
                                 const struct srv_peer *peer, uint64_t ms) {
    struct srv_conn *one = TAILQ_FIRST(&http->locked.lines[line].conns);
    while (one && peer && one->peer != peer) one = TAILQ_NEXT(one, line_place);
    return one && cairn_mono_ms() - one->line_ms >= ms ? one : NULL;
}

static bool is_unread(const struct srv_conn *conn) {
    int bytes = 0;
    return !ioctl(conn->fd, FIONREAD, &bytes) && bytes > 0;
}

/* The first conn whose request is incomplete for ms. A peer with bytes waiting to be read has not
 * stalled: this server is late, as a busy one is with a health check. */
static struct srv_conn *first_arriving(const struct srv_http *http, const struct srv_peer *peer,
                                       uint64_t ms) {
    struct srv_conn *one = first_of(http, SRV_LINE_ARRIVING, peer, ms);
    uint64_t now_ms = cairn_mono_ms();
    for (unsigned looks = 0; one && looks < UNREAD_LOOKS_MAX; one = TAILQ_NEXT(one, line_place)) {
        if (peer && one->peer != peer) continue;
        if (now_ms - one->line_ms < ms) break; /* lines are sorted by age */
        if (!is_unread(one)) return one;
        looks++;
    }
    return first_of(http, SRV_LINE_ARRIVING, peer, UNREAD_MS);
}

/* The conn to close at a bound, of that peer or of all (NULL): the oldest incomplete request; else
 * the longest idle; else the oldest without any byte. Where incomplete requests are the majority,
 * only they are closed, even young ones. NULL: none. */
static struct srv_conn *next_to_go(const struct srv_http *http, const struct srv_peer *peer,
                                   uint64_t idle_ms) {
    size_t arriving = http->locked.lines[SRV_LINE_ARRIVING].count, all = http->connections;
    if (all > http->locked.conn_count) arriving += all - http->locked.conn_count;
    bool crowded = !peer && arriving > http->locked.lines[SRV_LINE_IDLE].count;
    struct srv_conn *half =
        first_arriving(http, peer, crowded ? cairn_max_u64(idle_ms, READ_MS) : ARRIVES_MS);
    if (half || crowded) return half;
    struct srv_conn *idle = first_of(http, SRV_LINE_IDLE, peer, idle_ms);
    if (idle) return idle;
    struct srv_conn *fresh = first_arriving(http, peer, idle_ms);
    return fresh && !fresh->is_begun ? fresh : NULL;
}

/* NULL: no memory; the connection is not counted. */
static struct srv_peer *join_peer(struct srv_http *http, const uint8_t address[16]) {
    uint32_t hash = cairn_crc32c(0, address, 16);
    struct srv_peers *bucket = &http->locked.peers[hash % SRV_PEER_BUCKETS];
    struct srv_peer *peer = NULL;
    LIST_FOREACH(peer, bucket, place)
        if (!memcmp(peer->address, address, 16)) break;
    if (!peer) {
        peer = calloc(1, sizeof(*peer));
        if (!peer) return NULL;
        memcpy(peer->address, address, 16);
        LIST_INSERT_HEAD(bucket, peer, place);
    }
    peer->connections++;
    return peer;
}

static void leave_peer(struct srv_peer *peer) {
    if (!peer || --peer->connections) return;
    LIST_REMOVE(peer, place);
    free(peer);
}

/* Linger 0: otherwise a slow reader would go on draining the kernel's buffer. */
static void reset_conn(struct srv_http *http, struct srv_conn *conn) {
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    (void)setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    (void)shutdown(conn->fd, SHUT_RDWR);
    conn->deadline_ms = UINT64_MAX;
    http->locked.resets += !conn->is_reset;
    conn->is_reset = true;
    leave_line(http, conn);
    leave_peer(CAIRN_TAKE(conn->peer));
}

/* An address at its bound loses the connection that next_to_go names. If all are being answered, a
 * few more are admitted, for health checks and refusals; beyond these, closes the new one and
 * returns true. */
static bool keep_bound(struct srv_http *http, struct srv_conn *fresh) {
    uint64_t bound = http->server->settings->connections_per_address;
    if (!fresh->peer || fresh->peer->connections <= bound) return false;
    struct srv_conn *next = next_to_go(http, fresh->peer, 0);
    bool lost = !next && fresh->peer->connections > bound + BEYOND_MAX;
    if (next || lost) reset_conn(http, next ? next : fresh);
    fresh->is_beyond = !lost && fresh->peer->connections > bound;
    return lost;
}

void srv_conn_bound(struct srv_http *http, unsigned bound, const char *from) {
    struct cairn_metric_at at = {SRV_METRIC_bounds_reached_total, bound, 0};
    uint64_t now_ms = cairn_mono_ms(), said_ms = http->bound_said_ms;
    cairn_metrics_add(http->server->metrics, at, 1);
    if (said_ms && now_ms - said_ms < SAY_EVERY_MS) return;
    if (!atomic_compare_exchange_strong(&http->bound_said_ms, &said_ms, now_ms)) return;
    cairn_log(WARN, "http.bound", "setting=%s from=\"%s\"",
              bound == SRV_BOUND_ADDRESS ? "connections_per_address" : "http_connections_max",
              from);
}

static bool takes_place(struct srv_exchange *exchange, const uint8_t caller[16]) {
    struct srv_http *http = exchange->http;
    struct srv_conn *conn = exchange->conn;
    uint64_t bound = http->server->settings->connections_per_address;
    CAIRN_HOLD(&http->lock);
    if (conn->is_proxy) {
        exchange->peer = join_peer(http, caller);
        return !exchange->peer || exchange->peer->connections <= bound;
    }
    if (conn->is_beyond && conn->peer) conn->is_beyond = conn->peer->connections > bound;
    return !conn->is_beyond;
}

enum cairn_code srv_conn_admit(struct srv_exchange *exchange, struct cairn_error *err) {
    uint8_t caller[16];
    if (exchange->request.route->unbounded) return CAIRN_OK;
    srv_proxied_caller(exchange, caller);
    if (takes_place(exchange, caller)) return CAIRN_OK;
    srv_conn_bound(exchange->http, SRV_BOUND_ADDRESS, exchange->request.from);
    return cairn_fail(err, CAIRN_BUSY,
                      "%s has as many calls under way as connections_per_address lets one address "
                      "have; a proxy belongs into trusted_proxies",
                      exchange->request.from);
}

void srv_conn_leave(struct srv_exchange *exchange) {
    CAIRN_HOLD(&exchange->http->lock);
    leave_peer(CAIRN_TAKE(exchange->peer));
}

/* ---- from outside ---- */

static const struct sockaddr *address_of(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    return info ? info->client_addr : NULL;
}

static bool enlist(struct srv_http *http, struct srv_conn *conn, const uint8_t address[16]) {
    CAIRN_HOLD(&http->lock);
    LIST_INSERT_HEAD(&http->locked.conns, conn, place);
    http->locked.conn_count++;
    conn->peer = conn->is_proxy ? NULL : join_peer(http, address);
    bool lost = keep_bound(http, conn);
    join_line(http, conn, SRV_LINE_ARRIVING);
    return lost;
}

static void add(struct srv_http *http, struct MHD_Connection *connection, void **socket_context) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct srv_conn *conn = info ? calloc(1, sizeof(*conn)) : NULL;
    uint8_t address[16];
    *socket_context = conn;
    if (!conn) return; /* the connection ends at its first request */
    conn->connection = connection;
    conn->fd = info->connect_fd;
    conn->moved_ms = UINT64_MAX;
    conn->line = SRV_LINE_NONE;
    cairn_net_caller(address_of(connection), address);
    conn->is_proxy = srv_proxied_is_proxy(http, address_of(connection));
    srv_conn_set(conn, http->server->settings->request_timeout_ms);
    if (enlist(http, conn, address)) srv_conn_bound(http, SRV_BOUND_ADDRESS, "who has just called");
}

static void take_out(struct srv_http *http, struct srv_conn *conn) {
    srv_memory_give(http, conn);
    srv_exchange_free(conn->arriving);
    {
        CAIRN_HOLD(&http->lock);
        http->locked.conn_count--;
        LIST_REMOVE(conn, place);
        CAIRN_ASSERT(!conn->is_reset || http->locked.resets);
        http->locked.resets -= conn->is_reset;
        leave_line(http, conn);
        leave_peer(CAIRN_TAKE(conn->peer));
    }
    free(conn);
}

void srv_conn_line(struct srv_http *http, struct srv_conn *conn, enum srv_conn_line line) {
    if (!conn) return;
    CAIRN_HOLD(&http->lock);
    join_line(http, conn, line);
    conn->is_begun = line == SRV_LINE_ARRIVING;
}

bool srv_conn_make_room(struct srv_http *http, size_t count, uint64_t idle_ms) {
    CAIRN_HOLD(&http->lock);
    while (http->locked.resets < count) {
        struct srv_conn *next = next_to_go(http, NULL, idle_ms);
        if (!next) break;
        reset_conn(http, next);
    }
    return http->locked.resets > 0;
}

void srv_conn_notify(void *cls, struct MHD_Connection *connection, void **socket_context,
                     enum MHD_ConnectionNotificationCode what) {
    struct srv_http *http = cls;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        add(http, connection, socket_context);
        CAIRN_CRASHPOINT("server.http.connected");
    }
    if (what == MHD_CONNECTION_NOTIFY_CLOSED && *socket_context) take_out(http, *socket_context);
}

static size_t reset_overdue(struct srv_http *http) {
    size_t count = 0;
    CAIRN_HOLD(&http->lock);
    uint64_t now_ms = cairn_mono_ms();
    struct srv_conn *one = NULL;
    LIST_FOREACH(one, &http->locked.conns, place) {
        if (one->deadline_ms > now_ms) continue;
        reset_conn(http, one);
        count++;
    }
    return count;
}

/* ---- callers of parked requests ----
 *
 * Detects callers of parked requests that disconnect. The library takes a suspended connection out
 * of its epoll and would notice only after the wait; here our own epoll watches it meanwhile. A
 * half-closed connection counts as gone: it looks the same until something is sent.
 */

#define TAKEN_MAX 64 /* per call, with the lock held */

enum cairn_code srv_parked_open(struct srv_http *http, struct cairn_error *err) {
    cairn_lock_init(&http->parked_lock, CAIRN_LOCK_server_parked);
    http->parked_fd = epoll_create1(EPOLL_CLOEXEC);
    return http->parked_fd < 0 ? cairn_fail_errno(err, "epoll") : CAIRN_OK;
}

void srv_parked_close(struct srv_http *http) {
    CAIRN_ASSERT(!http->parked.count);
    if (http->parked_fd >= 0) close(http->parked_fd);
    cairn_lock_release(&http->parked_lock);
}

void srv_parked_add(struct srv_exchange *exchange) {
    struct srv_http *http = exchange->http;
    struct srv_conn *conn = exchange->conn;
    struct epoll_event event = {.events = EPOLLRDHUP, .data.ptr = conn};
    CAIRN_HOLD(&http->parked_lock);
    CAIRN_ASSERT(!conn->parked);
    if (conn->fd < 0 || epoll_ctl(http->parked_fd, EPOLL_CTL_ADD, conn->fd, &event)) return;
    conn->parked = exchange;
    http->parked.count++;
}

static void unwatch(struct srv_http *http, struct srv_conn *conn) {
    (void)epoll_ctl(http->parked_fd, EPOLL_CTL_DEL, conn->fd, NULL);
    conn->parked = NULL;
    http->parked.count--;
}

/* NULL: the request is being woken or about to be parked, and that thread handles it. */
static struct srv_exchange *take_if_parked(struct srv_http *http, struct srv_conn *conn) {
    struct srv_exchange *exchange = conn->parked;
    if (!exchange || !srv_waiters_cancel(http->server->waiters, &exchange->waiter)) return NULL;
    unwatch(http, conn);
    return exchange;
}

void srv_parked_remove(struct srv_exchange *exchange) {
    CAIRN_HOLD(&exchange->http->parked_lock);
    if (exchange->conn->parked) unwatch(exchange->http, exchange->conn);
}

/* Takes the requests of at most TAKEN_MAX closed connections; they no longer wait. */
static size_t take_gone_callers(struct srv_http *http, struct srv_exchange *ret[TAKEN_MAX]) {
    struct epoll_event events[TAKEN_MAX];
    size_t taken = 0;
    CAIRN_HOLD(&http->parked_lock);
    if (!http->parked.count) return 0;
    int count = epoll_wait(http->parked_fd, events, TAKEN_MAX, 0);
    for (int i = 0; i < count; i++) {
        struct srv_exchange *gone = take_if_parked(http, events[i].data.ptr);
        if (gone) ret[taken++] = gone;
    }
    return taken;
}

static void end_parked_of_gone_callers(struct srv_http *http) {
    struct srv_exchange *gone[TAKEN_MAX];
    size_t count;
    do {
        count = take_gone_callers(http, gone);
        for (size_t i = 0; i < count; i++) {
            srv_reply_release(&gone[i]->reply);
            gone[i]->reply = (struct srv_reply){0};
            gone[i]->code = cairn_fail(&gone[i]->error, CAIRN_CANCELLED, "the caller has gone");
            srv_exchange_finish(gone[i]);
        }
    } while (count);
}

static void conns_loop(struct cairn_thread *thread, void *owner) {
    struct srv_http *http = owner;
    do {
        srv_housekeep(http->server);
        end_parked_of_gone_callers(http);
        size_t count = reset_overdue(http);
        if (count) cairn_log(DEBUG, "http.cut", "connections=%zu", count);
    } while (cairn_thread_wait(thread, cairn_mono_ms() + LOOK_EVERY_MS));
}

enum cairn_code srv_conn_start(struct srv_http *http, struct cairn_error *err) {
    http->conns_thread =
        (struct cairn_thread){.name = "cairn-conn", .run = conns_loop, .owner = http};
    return cairn_thread_start(&http->conns_thread, err);
}

void srv_conn_stop(struct srv_http *http) {
    cairn_thread_stop(&http->conns_thread);
}

/* ---- memory ----
 *
 * Memory that peers make the server hold: bodies as they arrive, and replies until they are sent.
 * Counted when used, not when announced (B10). When it runs out, the connection that is stalled for
 * longest is reset.
 */

#define STALLED_MS 2000
#define SHARE_OF_SAVES 4 /* a quarter of bodies-max */

static uint64_t bound_of(const struct srv_http *http, enum srv_memory kind) {
    const struct srv_settings *settings = http->server->settings;
    uint64_t share = settings->bodies_max_bytes / SHARE_OF_SAVES;
    if (kind == SRV_MEMORY_REPLIES) return settings->replies_max_bytes;
    return kind == SRV_MEMORY_BODIES ? settings->bodies_max_bytes - share : share;
}

/* The conn stalled for longest among those that hold memory of that kind; the lock is held. */
static struct srv_conn *longest_still(struct srv_http *http, enum srv_memory kind) {
    struct srv_conn *found = NULL, *one = NULL;
    uint64_t before_ms = cairn_mono_ms() - STALLED_MS;
    LIST_FOREACH(one, &http->locked.conns, place) {
        if (one->is_reset || one->held_kind != (int)kind || !one->held_bytes) continue;
        if (one->moved_ms > before_ms) continue;
        if (!found || one->moved_ms < found->moved_ms) found = one;
    }
    return found;
}

/* A reset connection's memory is freed within a moment, so it is subtracted at once. */
static bool reset_still(struct srv_http *http, enum srv_memory kind) {
    uint64_t held_bytes = 0;
    {
        CAIRN_HOLD(&http->lock);
        struct srv_conn *conn = longest_still(http, kind);
        if (!conn) return false;
        reset_conn(http, conn);
        held_bytes = atomic_exchange(&conn->held_bytes, 0);
        atomic_fetch_sub(&http->memory[kind], held_bytes);
    }
    cairn_log(DEBUG, "http.memory_taken_back", "bytes=%llu of=%s", (unsigned long long)held_bytes,
              kind == SRV_MEMORY_REPLIES ? "replies" : "bodies");
    return true;
}

bool srv_memory_take(struct srv_exchange *exchange, enum srv_memory kind, uint64_t bytes) {
    struct srv_http *http = exchange->http;
    struct srv_conn *conn = exchange->conn;
    uint64_t bound = bound_of(http, kind);
    uint64_t held_bytes = conn->held_bytes;
    CAIRN_ASSERT(!held_bytes || conn->held_kind == (int)kind);
    uint64_t all = atomic_fetch_add(&http->memory[kind], bytes) + bytes;
    /* A single body or reply is taken whatever the bound. */
    while (all > bound && all > held_bytes + bytes) {
        if (!reset_still(http, kind)) {
            atomic_fetch_sub(&http->memory[kind], bytes);
            return false;
        }
        all = http->memory[kind];
    }
    conn->held_kind = (int)kind;
    conn->moved_ms = cairn_mono_ms();
    atomic_fetch_add(&conn->held_bytes, bytes);
    return true;
}

void srv_memory_give(struct srv_http *http, struct srv_conn *conn) {
    if (!conn) return;
    uint64_t held_bytes = atomic_exchange(&conn->held_bytes, 0);
    if (held_bytes) atomic_fetch_sub(&http->memory[conn->held_kind], held_bytes);
}

/* Called at the request's end, or at the connection's if the library refused the request. */
void srv_exchange_free(struct srv_exchange *exchange) {
    if (!exchange) return;
    cairn_buf_release(&exchange->body);
    if (exchange->reply.flow.owner) exchange->reply.flow.free(exchange->reply.flow.owner);
    srv_trim_later(exchange->reply.body.size);
    srv_reply_release(&exchange->reply);
    free(exchange->request.path);
    free(exchange->target);
    free(exchange);
}

void srv_exchange_finish(struct srv_exchange *exchange) {
    exchange->ready = true;
    MHD_resume_connection(exchange->connection);
}
