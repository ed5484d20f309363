/* SPDX-License-Identifier: Apache-2.0 */
/* Accepts connections and hands them to libmicrohttpd. The library's own loops, when accept fails
 * for want of descriptors, spin if they have no connection, and otherwise retry only after one of
 * theirs has ended, whatever was freed elsewhere (K08). Some connections first wait in the lobby:
 * those of trusted proxies until their PROXY header has arrived, and all while http_connections_max
 * is reached. Health checks leave it first, into reserved places, so that a busy server does not
 * look dead. With TLS the request cannot be read here, so health checks wait in order, too. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/log.h"
#include "common/net.h"
#include "server/http/inside.h"
#include "server/metrics.h"

#define LOBBY_MAX SRV_LOBBY_MAX
#define FULL_LOOK_MS 20
#define CLOSING_LOOK_MS 1 /* while connections are closing */
#define SPARE_MAX 32      /* places that idle connections vacate for new callers */
#define SPARE_IDLE_MS 500 /* a new connection without a request yet is not idle before */
#define PROBE_AFTER_S 60
#define PROBE_EVERY_S 15
#define PROBES 4
#define FULL_COUNT_ANEW_MS 1000
#define SAY_EVERY_MS 10000
#define HEADER_MS 5000 /* a proxy's time to send the PROXY header */
#define FIRST_BYTES 16 /* "GET /readyz HTTP" */

/* An accepted connection that is not handed over yet. */
struct guest {
    int fd;
    bool awaits_header; /* the PROXY header of its proxy */
    bool is_health;
    bool is_read;        /* its first bytes have arrived: is_health is known */
    uint64_t since_ms;   /* mono clock */
    uint64_t look_at_ms; /* a part of its header has come; not read again before this */
    struct sockaddr_storage address;
    socklen_t address_size;
};

struct srv_lobby {
    struct srv_http *http;
    struct guest guests[LOBBY_MAX]; /* in order of arrival */
    size_t count;
    uint64_t say_ms, anew_ms;
    struct cairn_log_limit limit;
    bool was_full;
};

/* Keepalive probes detect a vanished peer (a node without power, a lost route), also while its
 * request is handled and no deadline of ours runs. */
static void probe_peer(int fd) {
    int on = 1, after = PROBE_AFTER_S, every = PROBE_EVERY_S, count = PROBES;
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &after, sizeof after);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

/* The library closes a socket that it refuses. */
static void hand_over(struct srv_http *http, const struct guest *guest) {
    probe_peer(guest->fd);
    atomic_fetch_add(&http->connections, 1);
    if (MHD_add_connection(http->daemon, guest->fd, (const struct sockaddr *)&guest->address,
                           guest->address_size) != MHD_YES)
        atomic_fetch_sub(&http->connections, 1);
}

/* A connection for which the library had no memory never began, so its end is not notified. */
static void count_anew(struct srv_http *http) {
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);
    if (info) http->connections = info->num_connections;
}

/* Near the bound, closes the longest idle connection for each new caller, so that the caller need
 * not wait for a place. False: no connection is closing. */
static bool keep_spare(struct srv_http *http, uint64_t idle_ms) {
    uint32_t spare = (uint32_t)cairn_min_u64(SPARE_MAX, http->connections_max / 8);
    uint32_t idle_max = http->connections_max - spare, now = http->connections;
    return now > idle_max && srv_conn_make_room(http, now - idle_max, idle_ms);
}

static void leave(struct srv_lobby *lobby, size_t index) {
    lobby->count--;
    memmove(&lobby->guests[index], &lobby->guests[index + 1],
            (lobby->count - index) * sizeof(lobby->guests[0]));
}

static bool is_health(const char *first, size_t size) {
    static const char *const asks[] = {"GET /livez ", "GET /readyz ", "HEAD /livez ",
                                       "HEAD /readyz ", "GET /readyz?"};
    for (size_t i = 0; i < CAIRN_COUNT(asks); i++)
        if (size >= strlen(asks[i]) && !memcmp(first, asks[i], strlen(asks[i]))) return true;
    return false;
}

/* Removes the PROXY header; the bytes behind it are the caller's. False: close the connection. */
static bool read_header(struct srv_lobby *lobby, struct guest *guest) {
    uint8_t bytes[SRV_PROXY_HEADER_BYTES];
    struct sockaddr_storage named = {0};
    size_t size = 0;
    uint64_t unsaid = 0;
    ssize_t came = recv(guest->fd, bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT);
    if (came < 0) return true;
    enum srv_proxy_header found = srv_proxied_header(bytes, (size_t)came, &named, &size);
    if (came && found == SRV_PROXY_HEADER_MORE) {
        guest->look_at_ms = cairn_mono_ms() + FULL_LOOK_MS;
        return true;
    }
    if (!came || found == SRV_PROXY_HEADER_BROKEN) {
        if (came &&
            cairn_log_limit_allows(&lobby->limit, "http.proxy_header", cairn_mono_ms(), &unsaid))
            cairn_log(WARN, "http.proxy_header",
                      "cause=\"what a trusted proxy sent begins like a PROXY header and is none\" "
                      "unsaid=%llu",
                      (unsigned long long)unsaid);
        return false;
    }
    if (size && recv(guest->fd, bytes, size, MSG_DONTWAIT) != (ssize_t)size) return false;
    guest->awaits_header = false;
    if (named.ss_family == AF_UNSPEC) return true; /* the proxy's own check, or no header */
    guest->address = named;
    guest->address_size =
        named.ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    return true;
}

/* False: the peer has disconnected. */
static bool look_at(struct srv_lobby *lobby, struct guest *guest) {
    char first[FIRST_BYTES];
    if (guest->awaits_header && !read_header(lobby, guest)) return false;
    if (guest->awaits_header) return true;
    ssize_t came = recv(guest->fd, first, sizeof(first), MSG_PEEK | MSG_DONTWAIT);
    if (!came) return false;
    if (came < 0) return true;
    guest->is_health = is_health(first, (size_t)came);
    guest->is_read = guest->is_health || (size_t)came == sizeof(first);
    if (!guest->is_read) guest->look_at_ms = cairn_mono_ms() + FULL_LOOK_MS;
    return true;
}

static bool has_room(const struct srv_http *http, const struct guest *guest) {
    uint32_t kept = guest->is_health ? SRV_HEALTH_PLACES : 0;
    return !guest->awaits_header && http->connections < http->connections_max + kept;
}

/* Hands over all that may enter, in order of arrival. */
static void let_in(struct srv_lobby *lobby) {
    uint64_t now_ms = cairn_mono_ms();
    for (size_t i = 0; i < lobby->count;) {
        struct guest guest = lobby->guests[i];
        bool late = guest.awaits_header && now_ms - guest.since_ms >= HEADER_MS;
        if (!late && !has_room(lobby->http, &guest)) {
            i++;
            continue;
        }
        leave(lobby, i);
        if (late)
            close(guest.fd);
        else
            hand_over(lobby->http, &guest);
    }
}

static void receive(struct srv_lobby *lobby) {
    struct srv_http *http = lobby->http;
    struct cairn_error error = {0};
    struct guest *guest = &lobby->guests[lobby->count];
    *guest = (struct guest){.fd = -1, .since_ms = cairn_mono_ms()};
    if (cairn_net_accept(http->listen_fd, &guest->fd, &error) == CAIRN_OK) {
        if (guest->fd < 0) return;
        guest->address_size = sizeof(guest->address);
        if (getpeername(guest->fd, (struct sockaddr *)&guest->address, &guest->address_size)) {
            close(guest->fd); /* it has disconnected already */
            return;
        }
        guest->awaits_header = srv_proxied_speaks(http, (struct sockaddr *)&guest->address);
        lobby->count++;
        return;
    }
    if (cairn_mono_ms() >= lobby->say_ms) {
        cairn_log(WARN, "http.accept", "cause=\"%s\"", error.message);
        lobby->say_ms = cairn_mono_ms() + SAY_EVERY_MS;
    }
    struct pollfd wake = {.fd = http->acceptor_wake_fd, .events = POLLIN};
    (void)poll(&wake, 1, CAIRN_NET_ACCEPT_PAUSE_MS);
}

/* Logs a reached bound once until there is room again. */
static void note_bound(struct srv_lobby *lobby) {
    struct srv_http *http = lobby->http;
    bool full = lobby->count && http->connections >= http->connections_max;
    if (full && !lobby->was_full) {
        srv_conn_bound(http, SRV_BOUND_CONNECTIONS, "all");
        lobby->anew_ms = cairn_mono_ms() + FULL_COUNT_ANEW_MS;
    }
    lobby->was_full = full;
    if (!full || cairn_mono_ms() < lobby->anew_ms) return;
    count_anew(http);
    lobby->anew_ms = cairn_mono_ms() + FULL_COUNT_ANEW_MS;
}

/* Time to the next scheduled check without a new caller; -1: the lobby is empty. */
static int pause_ms(struct srv_lobby *lobby) {
    struct srv_http *http = lobby->http;
    if (!lobby->count) return -1;
    bool full = http->connections >= http->connections_max;
    return full && keep_spare(http, 0) ? CLOSING_LOOK_MS : FULL_LOOK_MS;
}

/* Waits for the next event and handles it. False: the acceptor is closed. */
static bool turn(struct srv_lobby *lobby) {
    struct srv_http *http = lobby->http;
    struct pollfd fds[LOBBY_MAX + 2];
    size_t known = lobby->count;
    uint64_t now_ms = cairn_mono_ms();
    for (size_t i = 0; i < known; i++) {
        const struct guest *guest = &lobby->guests[i];
        bool looks = !guest->is_read && now_ms >= guest->look_at_ms;
        fds[i] = (struct pollfd){.fd = guest->fd, .events = looks ? POLLIN : 0};
    }
    fds[known] = (struct pollfd){.fd = http->acceptor_wake_fd, .events = POLLIN};
    fds[known + 1] = (struct pollfd){.fd = http->listen_fd, .events = POLLIN};
    bool full = known == LOBBY_MAX;
    (void)poll(fds, known + (full ? 1 : 2), pause_ms(lobby));
    if (http->stopping) return false;
    for (size_t i = known; i-- > 0;) {
        if (!fds[i].revents) continue;
        bool gone = !(fds[i].revents & POLLIN) || !look_at(lobby, &lobby->guests[i]);
        if (!gone) continue;
        close(lobby->guests[i].fd);
        leave(lobby, i);
    }
    if (!full && fds[known + 1].revents) receive(lobby);
    let_in(lobby);
    note_bound(lobby);
    (void)keep_spare(http, SPARE_IDLE_MS);
    return true;
}

/* The thread waits in poll, so an eventfd stops it and not its bell. */
static void acceptor_loop(struct cairn_thread *thread, void *owner) {
    struct srv_lobby *lobby = owner;
    (void)thread;
    while (turn(lobby)) continue;
    while (lobby->count) close(lobby->guests[--lobby->count].fd);
}

enum cairn_code srv_acceptor_open(struct srv_http *http, struct cairn_error *err) {
    http->acceptor_wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (http->acceptor_wake_fd < 0) return cairn_fail_errno(err, "an eventfd");
    http->lobby = calloc(1, sizeof(*http->lobby));
    if (!http->lobby) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for callers");
    http->lobby->http = http;
    http->acceptor_thread =
        (struct cairn_thread){.name = "cairn-acceptor", .run = acceptor_loop, .owner = http->lobby};
    return cairn_thread_start(&http->acceptor_thread, err);
}

void srv_acceptor_close(struct srv_http *http) {
    CAIRN_ASSERT(http->stopping);
    if (http->acceptor_wake_fd < 0) return;
    (void)eventfd_write(http->acceptor_wake_fd, 1);
    cairn_thread_stop(&http->acceptor_thread);
    close(http->acceptor_wake_fd);
    http->acceptor_wake_fd = -1;
    free(CAIRN_TAKE(http->lobby));
}
