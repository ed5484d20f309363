/* SPDX-License-Identifier: Apache-2.0 */
/* Connections are accepted here and handed to the library. Its own loops, when accept has no
 * descriptor to give, try again without pause if they have no connection, and otherwise not before
 * one of theirs has ended, whatever was freed elsewhere (K08). */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/net.h"
#include "server/metrics.h"
#include "server/http/inside.h"

#define FULL_LOOK_MS 20
#define CLOSING_LOOK_MS 1 /* while some are on their way out */
#define SPARE_MAX 32      /* places that idle connections leave to who comes next */
#define SPARE_IDLE_MS 500 /* who has just come, and not asked yet, is not idle for that */
#define PROBE_AFTER_S 60
#define PROBE_EVERY_S 15
#define PROBES 4
#define FULL_COUNT_ANEW_MS 1000
#define SAY_EVERY_MS 10000

/* Until the acceptor is closed, a caller waits (for_callers), or ms are over (-1: no end). False:
 * it is closed. */
static bool stay(const struct cairn_srv_http *http, bool for_callers, int ms) {
    struct pollfd fds[] = {{.fd = http->acceptor_wake_fd, .events = POLLIN},
                           {.fd = http->listen_fd, .events = POLLIN}};
    (void)poll(fds, for_callers ? 2 : 1, ms);
    return !http->stopping;
}

static bool is_called(const struct cairn_srv_http *http) {
    struct pollfd one = {.fd = http->listen_fd, .events = POLLIN};
    return poll(&one, 1, 0) > 0;
}

/* A peer that has vanished (a node without power, a lost route) is noticed by probes, also while
 * its request is being worked on and no deadline of ours runs. */
static void probe_peer(int fd) {
    int on = 1, after = PROBE_AFTER_S, every = PROBE_EVERY_S, count = PROBES;
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &after, sizeof after);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

/* The library closes a socket that it does not take. */
static void hand_over(struct cairn_srv_http *http, int fd) {
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    if (getpeername(fd, (struct sockaddr *)&address, &size)) {
        close(fd); /* it has gone again */
        return;
    }
    probe_peer(fd);
    atomic_fetch_add(&http->connections, 1);
    if (MHD_add_connection(http->daemon, fd, (struct sockaddr *)&address, size) != MHD_YES)
        atomic_fetch_sub(&http->connections, 1);
}

/* A connection for which the library had no memory was never begun, so its end calls nothing. */
static void count_anew(struct cairn_srv_http *http) {
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);
    if (info) http->connections = info->num_connections;
}

/* Near the bound, who has been idle for longest is closed for each that comes, so that a caller
 * finds a place without waiting until another's is free. False: nobody is on his way out. */
static bool keep_spare(struct cairn_srv_http *http, uint64_t idle_ms) {
    uint32_t spare = (uint32_t)cairn_min_u64(SPARE_MAX, http->connections_max / 8);
    uint32_t idle_max = http->connections_max - spare, now = http->connections;
    return now > idle_max && cairn_srv_conn_make_room(http, now - idle_max, idle_ms);
}

/* At the bound callers wait in the kernel's queue, for long only while all are busy. False: it is
 * closed. */
static bool wait_for_room(struct cairn_srv_http *http) {
    uint64_t anew_ms = cairn_mono_ms() + FULL_COUNT_ANEW_MS;
    if (http->connections >= http->connections_max)
        cairn_srv_conn_bound(http, CAIRN_SRV_BOUND_CONNECTIONS, "all");
    while (http->connections >= http->connections_max) {
        bool closing = is_called(http) && keep_spare(http, 0);
        if (!stay(http, false, closing ? CLOSING_LOOK_MS : FULL_LOOK_MS)) return false;
        if (cairn_mono_ms() < anew_ms) continue;
        count_anew(http);
        anew_ms = cairn_mono_ms() + FULL_COUNT_ANEW_MS;
    }
    return true;
}

/* It waits for callers, in poll, so what stops it is an eventfd and not the bell of its thread. */
static void acceptor_loop(struct cairn_thread *thread, void *owner) {
    struct cairn_srv_http *http = owner;
    uint64_t say_ms = 0;
    (void)thread;
    while (wait_for_room(http) && stay(http, true, -1)) {
        int fd = -1;
        struct cairn_error error = {0};
        if (cairn_net_accept(http->listen_fd, &fd, &error) == CAIRN_OK) {
            if (fd >= 0) hand_over(http, fd);
            (void)keep_spare(http, SPARE_IDLE_MS);
            continue;
        }
        if (cairn_mono_ms() >= say_ms) {
            cairn_log(WARN, "http.accept", "cause=\"%s\"", error.message);
            say_ms = cairn_mono_ms() + SAY_EVERY_MS;
        }
        (void)stay(http, false, CAIRN_NET_ACCEPT_PAUSE_MS);
    }
}

enum cairn_code cairn_srv_acceptor_open(struct cairn_srv_http *http, struct cairn_error *err) {
    http->acceptor_wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (http->acceptor_wake_fd < 0) return cairn_fail_errno(err, "an eventfd");
    http->acceptor_thread =
        (struct cairn_thread){.name = "cairn-acceptor", .run = acceptor_loop, .owner = http};
    return cairn_thread_start(&http->acceptor_thread, err);
}

void cairn_srv_acceptor_close(struct cairn_srv_http *http) {
    CAIRN_ASSERT(http->stopping);
    if (http->acceptor_wake_fd < 0) return;
    (void)eventfd_write(http->acceptor_wake_fd, 1);
    cairn_thread_stop(&http->acceptor_thread);
    close(http->acceptor_wake_fd);
    http->acceptor_wake_fd = -1;
}
