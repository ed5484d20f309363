/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel knows when the peer last acknowledged anything. */
#include "common/http/half_open.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "common/clock.h"
#include "common/http/link.h"

#define AGAIN_US 250000
#define RETRANSMISSIONS_MIN 2
#define ROUNDING_US 10000 /* the kernel counts in its own ticks */

void cairn_http_half_open_add(struct cairn_http_engine *engine, int fd) {
    if (engine->socket_count < engine->socket_room) engine->sockets[engine->socket_count++] = fd;
}

void cairn_http_half_open_remove(struct cairn_http_engine *engine, int fd) {
    for (uint32_t i = 0; i < engine->socket_count; i++) {
        if (engine->sockets[i] != fd) continue;
        engine->sockets[i] = engine->sockets[--engine->socket_count];
        return;
    }
}

static uint16_t port_of(int fd) {
    struct sockaddr_storage own = {0};
    socklen_t size = sizeof own;
    const void *any = &own;
    if (getsockname(fd, (struct sockaddr *)&own, &size) != 0) return 0;
    if (own.ss_family == AF_INET6) return ntohs(((const struct sockaddr_in6 *)any)->sin6_port);
    return own.ss_family == AF_INET ? ntohs(((const struct sockaddr_in *)any)->sin_port) : 0;
}

static int socket_of(const struct cairn_http_transfer *transfer) {
    const struct cairn_http_engine *engine = transfer->engine;
    if (transfer->direct) return transfer->link ? transfer->link->fd : -1;
    for (uint32_t i = 0; i < engine->socket_count; i++)
        if (transfer->local_port && port_of(engine->sockets[i]) == transfer->local_port)
            return engine->sockets[i];
    return -1;
}

uint64_t cairn_http_half_open_due_us(const struct cairn_http_transfer *transfer) {
    if (!transfer->on_kept || transfer->resent || transfer->request->reply_at_us) return UINT64_MAX;
    if (transfer->heard && (transfer->direct || transfer->request->sent_at_us)) return UINT64_MAX;
    return cairn_max_u64(transfer->half_open_check_us,
                         transfer->started_us + CAIRN_HTTP_HALF_OPEN_US);
}

/* libcurl stops reading at the peer's FIN and goes on sending, into a window that stays full. */
static bool peer_has_ended(const struct cairn_http_transfer *transfer, int fd,
                           const struct tcp_info *info) {
    int unread = 0;
    return !transfer->direct && !transfer->request->sent_at_us &&
           info->tcpi_state == TCP_CLOSE_WAIT && ioctl(fd, FIONREAD, &unread) == 0 && !unread;
}

bool cairn_http_half_open_check(struct cairn_http_transfer *transfer) {
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    uint64_t now = cairn_mono_us(), passed_us = now - transfer->started_us;
    int fd = socket_of(transfer);
    transfer->half_open_check_us = now + AGAIN_US;
    if (fd < 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
        transfer->heard = true; /* a Unix socket: its peer's end is always told */
        return false;
    }
    uint64_t silent_us = (uint64_t)info.tcpi_last_ack_recv * 1000 + ROUNDING_US;
    if (peer_has_ended(transfer, fd, &info)) return true;
    transfer->heard = !info.tcpi_unacked || silent_us < passed_us;
    return !transfer->heard && info.tcpi_retransmits >= RETRANSMISSIONS_MIN;
}
