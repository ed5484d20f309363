/* SPDX-License-Identifier: Apache-2.0 */
/* One TCP connection, byte by byte; see raw.h. */
#include "tests/support/raw.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/harness.h"

bool cairn_raw_open(struct cairn_raw *raw, uint16_t port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    raw->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int now = 1;
    (void)setsockopt(raw->fd, IPPROTO_TCP, TCP_NODELAY, &now, sizeof(now));
    return raw->fd >= 0 && !connect(raw->fd, (struct sockaddr *)&to, sizeof(to));
}

void cairn_raw_release(struct cairn_raw *raw) {
    if (raw->fd > 0) close(raw->fd);
    raw->fd = 0;
}

bool cairn_raw_send(struct cairn_raw *raw, const void *data, size_t size) {
    const char *at = data;
    while (size) {
        ssize_t sent = send(raw->fd, at, size, MSG_NOSIGNAL);
        if (sent <= 0) return false;
        at += sent;
        size -= (size_t)sent;
    }
    return true;
}

bool cairn_raw_text(struct cairn_raw *raw, const char *text) {
    return cairn_raw_send(raw, text, strlen(text));
}

static bool readable(struct cairn_raw *raw, uint64_t deadline_ms) {
    uint64_t left = cairn_deadline_left_ms(&cairn_clock_real, deadline_ms);
    struct pollfd one = {.fd = raw->fd, .events = POLLIN};
    return poll(&one, 1, (int)left) > 0;
}

/* Is a whole reply there? By its Content-Length, where it has one. */
static bool whole(const struct cairn_buf *reply) {
    const char *end = reply->size ? strstr(reply->data, "\r\n\r\n") : NULL;
    if (!end) return false;
    if (!strncmp(reply->data, "HTTP/1.1 204", 12)) return true; /* it has no body */
    const char *length = strcasestr(reply->data, "\r\nContent-Length:");
    if (!length || length > end) return false;
    size_t body = strtoul(length + 17, NULL, 10);
    return reply->size >= (size_t)(end + 4 - reply->data) + body;
}

/* Number of bytes; 0 at the end; -1 when nothing came in time. */
static ssize_t append_next(struct cairn_raw *raw, uint64_t deadline_ms, struct cairn_buf *ret) {
    char piece[64 * 1024];
    if (!readable(raw, deadline_ms)) return -1;
    ssize_t got = recv(raw->fd, piece, sizeof(piece), 0);
    if (got <= 0) return 0;
    return cairn_buf_append(ret, piece, (size_t)got, NULL) ? -1 : got;
}

bool cairn_raw_more(struct cairn_raw *raw, uint32_t wait_ms, struct cairn_buf *ret) {
    return append_next(raw, cairn_mono_ms() + wait_ms, ret) > 0;
}

int cairn_raw_reply(struct cairn_raw *raw, uint32_t wait_ms, struct cairn_buf *ret) {
    uint64_t deadline_ms = cairn_mono_ms() + wait_ms;
    cairn_buf_clear(ret);
    while (!whole(ret)) {
        ssize_t got = append_next(raw, deadline_ms, ret);
        if (got < 0) return -1;
        if (!got) break;
    }
    if (ret->size < 12 || strncmp(ret->data, "HTTP/1.1 ", 9)) return 0;
    return (int)strtol(ret->data + 9, NULL, 10);
}

bool cairn_raw_closed(struct cairn_raw *raw, uint32_t wait_ms) {
    uint64_t deadline_ms = cairn_mono_ms() + wait_ms;
    char piece[4096];
    for (;;) {
        if (!readable(raw, deadline_ms)) return false;
        if (recv(raw->fd, piece, sizeof(piece), 0) <= 0) return true;
    }
}

bool cairn_raw_ask_events(struct cairn_raw *raw, uint16_t port, const char *path, uint64_t after) {
    char text[400];
    raw->fd = -1;
    if (!cairn_raw_open(raw, port)) return false;
    int size =
        snprintf(text, sizeof(text),
                 "GET %s HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n", path);
    if (after)
        size += snprintf(text + size, sizeof(text) - (size_t)size, "Last-Event-ID: %" PRIu64 "\r\n",
                         after);
    snprintf(text + size, sizeof(text) - (size_t)size, "\r\n");
    return cairn_raw_text(raw, text);
}

bool cairn_raw_until(struct cairn_raw *raw, struct cairn_buf *got, const char *text,
                     uint32_t within_ms) {
    uint64_t until_ms = cairn_mono_ms() + within_ms;
    while (!got->data || !strstr(got->data, text)) {
        uint64_t now_ms = cairn_mono_ms();
        if (now_ms >= until_ms || !cairn_raw_more(raw, (uint32_t)(until_ms - now_ms), got))
            return false;
    }
    return true;
}

int cairn_raw_exchange(uint16_t port, const void *request, size_t size, struct cairn_buf *ret) {
    CAIRN_AUTO(raw) raw = {0};
    if (!cairn_raw_open(&raw, port)) return -1;
    (void)cairn_raw_send(&raw, request, size);
    return cairn_raw_reply(&raw, HANG_MS, ret);
}

uint16_t cairn_raw_port(const struct cairn_raw *raw) {
    struct sockaddr_in own = {0};
    socklen_t size = sizeof(own);
    return getsockname(raw->fd, (struct sockaddr *)&own, &size) ? 0 : ntohs(own.sin_port);
}

/* Fields of /proc/net/tcp: sl, local, remote, state, queues, timer:when; state 1 is
 * established, 8 closed by the peer alone. */
struct tcp_row {
    unsigned local, remote, state;
    struct cairn_raw_queues queues;
};
static bool next_row(FILE *file, struct tcp_row *ret) {
    char line[512];
    while (fgets(line, sizeof(line), file))
        if (sscanf(line, " %*d: %*8x:%x %*8x:%x %x %x:%x %x:", &ret->local, &ret->remote,
                   &ret->state, &ret->queues.sending, &ret->queues.unread, &ret->queues.timer) == 6)
            return true;
    return false;
}

bool cairn_raw_queues(uint16_t from, uint16_t to, struct cairn_raw_queues *ret) {
    FILE *file = fopen("/proc/net/tcp", "re");
    struct tcp_row row = {0};
    bool found = false;
    while (file && !found && next_row(file, &row))
        found = row.state == 1 && row.local == from && row.remote == to;
    if (file) fclose(file);
    if (found) *ret = row.queues;
    return found;
}

bool cairn_raw_all_read(uint16_t server) {
    FILE *file = fopen("/proc/net/tcp", "re");
    struct tcp_row row = {0};
    bool all = file != NULL;
    while (file && all && next_row(file, &row)) {
        if (row.state != 1) continue;
        if (row.local == server) all = !row.queues.unread;
        if (row.remote == server) all = all && !row.queues.sending;
    }
    if (file) fclose(file);
    return all;
}

unsigned cairn_raw_held(uint16_t server) {
    FILE *file = fopen("/proc/net/tcp", "re");
    struct tcp_row row = {0};
    unsigned count = 0;
    while (file && next_row(file, &row))
        count += row.local == server && (row.state == 1 || row.state == 8);
    if (file) fclose(file);
    return count;
}
