/* SPDX-License-Identifier: Apache-2.0 */
/* wire: receive and send with pacing, and the ways a connection ends. */
#include "tests/support/s3fault/wire.h"

#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"

#define PACED_BYTES (256 * CAIRN_KIB) /* most at once under a cap, so that pauses stay short */
#define HOLD_MS_MAX 600000

static void wait_us(uint64_t us) {
    struct timespec span = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
    nanosleep(&span, NULL); /* pause of a stand-in: as its rules say */
}

/* Idle time earns nothing beyond 20 ms of credit. */
static void pace(struct s3f_wire *wire, int direction, size_t size) {
    if (!wire->cap_bytes_per_s) return;
    uint64_t now = cairn_mono_us(), *until = &wire->owed_until_us[direction];
    if (*until + 20000 < now) *until = now - 20000;
    *until += size * UINT64_C(1000000) / wire->cap_bytes_per_s;
    if (*until > now) wait_us(*until - now);
}

/* The same for all connections, each of which waits for its place behind the others. */
static void pace_all(struct s3f_cap *all, size_t size) {
    if (!all) return;
    uint64_t until = 0, now = cairn_mono_us(), before = atomic_load(&all->owed_until_us);
    do {
        until = before + 20000 < now ? now - 20000 : before;
        until += size * UINT64_C(1000000) / all->bytes_per_s;
    } while (!atomic_compare_exchange_weak(&all->owed_until_us, &before, until));
    if (until > now) wait_us(until - now);
}

static ssize_t receive_raw(struct s3f_wire *wire, void *to, size_t size) {
    if (wire->cap_bytes_per_s && size > PACED_BYTES) size = PACED_BYTES;
    if (wire->cap_bytes_per_s && size > wire->cap_bytes_per_s / 10 + 1)
        size = wire->cap_bytes_per_s / 10 + 1;
    ssize_t got;
    if (wire->ssl) {
        got = SSL_read(wire->ssl, to, size > INT32_MAX ? INT32_MAX : (int)size);
        if (got < 0) got = -1;
    } else {
        do {
            got = recv(wire->fd, to, size, 0);
        } while (got < 0 && errno == EINTR);
    }
    if (got > 0) pace(wire, 0, (size_t)got);
    return got;
}

ssize_t s3f_wire_receive(struct s3f_wire *wire, void *to, size_t size) {
    size_t kept = wire->buffer_size - wire->buffer_from;
    if (kept == 0) return receive_raw(wire, to, size);
    if (kept > size) kept = size;
    memcpy(to, wire->buffer + wire->buffer_from, kept);
    wire->buffer_from += kept;
    return (ssize_t)kept;
}

bool s3f_wire_fill(struct s3f_wire *wire) {
    if (wire->buffer_from) {
        memmove(wire->buffer, wire->buffer + wire->buffer_from,
                wire->buffer_size - wire->buffer_from);
        wire->buffer_size -= wire->buffer_from;
        wire->buffer_from = 0;
    }
    size_t room = S3F_HEAD_BYTES_MAX - wire->buffer_size;
    if (room == 0) return false;
    /* Heads are short: little is read here, so that bodies go straight to their place. */
    if (room > 4096) room = 4096;
    ssize_t got = receive_raw(wire, wire->buffer + wire->buffer_size, room);
    if (got <= 0) return false;
    wire->buffer_size += (size_t)got;
    return true;
}

static ssize_t send_raw(struct s3f_wire *wire, const char *data, size_t size, bool more) {
    if (wire->ssl) return SSL_write(wire->ssl, data, size > INT32_MAX ? INT32_MAX : (int)size);
    ssize_t sent;
    do {
        sent = send(wire->fd, data, size, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
    } while (sent < 0 && errno == EINTR);
    return sent;
}

bool s3f_wire_send(struct s3f_wire *wire, const void *data, size_t size, bool more) {
    const char *at = data;
    while (size) {
        size_t piece = size;
        uint64_t cap = wire->cap_bytes_per_s;
        if ((cap || wire->all) && piece > PACED_BYTES) piece = PACED_BYTES;
        if (cap && piece > cap / 10 + 1) piece = cap / 10 + 1;
        ssize_t sent = send_raw(wire, at, piece, more && piece == size);
        if (sent <= 0) return false;
        wire->sent_bytes += (uint64_t)sent;
        pace(wire, 1, (size_t)sent);
        pace_all(wire->all, (size_t)sent);
        at += sent;
        size -= (size_t)sent;
    }
    return true;
}

bool s3f_wire_hold(struct s3f_wire *wire, uint32_t ms) {
    uint64_t end = cairn_mono_ms() + (ms ? ms : HOLD_MS_MAX);
    for (;;) {
        uint64_t now = cairn_mono_ms();
        if (now >= end) return ms != 0;
        struct pollfd wait = {.fd = wire->fd, .events = POLLRDHUP};
        int ready = poll(&wait, 1, end - now > 1000 ? 1000 : (int)(end - now));
        if (ready > 0 && wait.revents & (POLLRDHUP | POLLHUP | POLLERR)) return false;
    }
}

static void forget(struct s3f_wire *wire) {
    if (wire->ssl) SSL_free(wire->ssl);
    wire->ssl = NULL;
    if (wire->fd >= 0) close(wire->fd);
    wire->fd = -1;
}

void s3f_wire_reset(struct s3f_wire *wire) {
    if (wire->fd < 0) return;
    wait_us(10000); /* RST takes away what the peer has not read; it gets the time to read it. */
    struct linger now = {.l_onoff = 1};
    setsockopt(wire->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    forget(wire);
}

/* Closing with bytes unread would send RST; so they are read for a moment. */
void s3f_wire_finish(struct s3f_wire *wire, bool politely) {
    if (wire->fd < 0) return;
    if (wire->ssl && politely) SSL_shutdown(wire->ssl);
    shutdown(wire->fd, SHUT_WR);
    char scrap[4096];
    uint64_t end = cairn_mono_ms() + 2000;
    while (cairn_mono_ms() < end) {
        struct pollfd wait = {.fd = wire->fd, .events = POLLIN};
        if (poll(&wait, 1, 100) > 0 && recv(wire->fd, scrap, sizeof scrap, MSG_DONTWAIT) <= 0)
            break;
    }
    forget(wire);
}
