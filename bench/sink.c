/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_sink --listen HOST:PORT [--serve BYTES] [--keep] [--warm BYTES] [--tls CERT KEY]
 *
 * One thread per connection: the cheapest way for a bench's 2 to 64 connections, and a paced or
 * late one delays no other. Bodies are read in pieces that stay in the L2 cache for their checksum.
 */
#include "bench/sink.h"

#include <fcntl.h>
#include <malloc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/measure.h"
#include "common/clock.h"
#include "common/crc.h"
#include "common/net.h"
#include "common/text.h"

/* A paced connection sleeps when this far ahead: fewer wake-ups than once a piece. */
#define PACE_US 16000
#define LINE_BYTES 1024 /* of a chunk's head or a trailer */

struct sink_state sink = {.lock = PTHREAD_MUTEX_INITIALIZER};
static SSL_CTX *tls;

/* all: waits for whole pieces, lest 64 paced connections wake for each packet. */
static ssize_t take_bytes(struct sink_connection *connection, void *bytes, size_t size, bool all) {
    if (!connection->tls) return recv(connection->fd, bytes, size, all ? MSG_WAITALL : 0);
    size_t got = 0; /* SSL_read returns one record; fill the piece to spare loop rounds */
    while (got < size) {
        int now =
            SSL_read(connection->tls, (char *)bytes + got, (int)cairn_min_u64(size - got, 1 << 30));
        if (now <= 0) return got ? (ssize_t)got : now;
        got += (size_t)now;
        if (!SSL_has_pending(connection->tls)) break;
    }
    return (ssize_t)got;
}

static void wait_until_us(uint64_t when_us) {
    struct timespec when = {.tv_sec = (time_t)(when_us / 1000000),
                            .tv_nsec = (long)(when_us % 1000000 * 1000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR) continue;
}

/* sink.h#2: bodies start without credit; late wake-ups are caught up: the mean is the rate. */
static void pace(struct sink_connection *connection, size_t size) {
    uint64_t rate = sink.faults.bytes_per_second;
    if (!rate) return;
    connection->next_us += size * 1000000 / rate;
    if (connection->next_us > cairn_mono_us() + PACE_US) wait_until_us(connection->next_us);
}

bool sink_send(struct sink_connection *connection, const void *bytes, size_t size) {
    const char *at = bytes;
    uint64_t most = sink.faults.bytes_per_second ? SINK_CHUNK_BYTES : 4 * CAIRN_MIB;
    connection->next_us = cairn_max_u64(connection->next_us, cairn_mono_us());
    while (size) {
        size_t piece = cairn_min_u64(size, most);
        ssize_t sent = connection->tls ? SSL_write(connection->tls, at, (int)piece)
                                       : send(connection->fd, at, piece, MSG_NOSIGNAL);
        if (sent <= 0) return false;
        at += sent;
        size -= (size_t)sent;
        atomic_fetch_add(&sink.counters.sent_bytes, (uint64_t)sent);
        pace(connection, (size_t)sent);
    }
    return true;
}

static void reset_connection(struct sink_connection *connection) {
    struct linger linger = {.l_onoff = 1, .l_linger = 0};
    setsockopt(connection->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    connection->closing = true;
}

struct intake { /* one body */
    struct sink_connection *connection;
    uint64_t done, total;
    uint8_t *into; /* NULL: dropped */
    uint32_t crc32c;
    bool is_part, cut; /* cut: reset in the middle */
};

static bool take_piece(struct intake *intake, uint64_t left) {
    struct sink_connection *connection = intake->connection;
    uint8_t *bytes = intake->into ? intake->into + intake->done : connection->chunk;
    size_t buffered = connection->head_size - connection->head_used;
    size_t wanted = (size_t)cairn_min_u64(left, SINK_CHUNK_BYTES);
    ssize_t got = (ssize_t)cairn_min_u64(buffered, wanted);
    if (got) {
        memcpy(bytes, connection->head + connection->head_used, (size_t)got);
        connection->head_used += (size_t)got;
    } else {
        got = take_bytes(connection, bytes, wanted, sink.faults.bytes_per_second);
    }
    if (got <= 0) return false;
    intake->crc32c = cairn_crc32c(intake->crc32c, bytes, (size_t)got);
    intake->done += (uint64_t)got;
    if (intake->is_part) atomic_fetch_add(&sink.counters.body_bytes, (uint64_t)got);
    pace(connection, (size_t)got);
    if (!intake->cut || intake->done <= intake->total / 2) return true;
    atomic_fetch_add(&sink.part_counter, 1);
    atomic_fetch_add(&sink.counters.reset, 1);
    reset_connection(connection);
    return false;
}

static bool take_plain(struct intake *intake, uint64_t size) {
    uint64_t end = intake->done + size;
    if (end > intake->total) return false;
    while (intake->done < end)
        if (!take_piece(intake, end - intake->done)) return false;
    return true;
}

/* Reads a line without its end; bytes after it stay in head. */
static bool take_line(struct sink_connection *connection, char *line, size_t size) {
    for (size_t used = 0;; used++) {
        if (connection->head_used == connection->head_size) {
            ssize_t got = take_bytes(connection, connection->head, LINE_BYTES, false);
            if (got <= 0) return false;
            connection->head_used = 0;
            connection->head_size = (size_t)got;
        }
        char byte = connection->head[connection->head_used++];
        line[cairn_min_u64(used, size - 1)] = byte == '\r' || byte == '\n' ? 0 : byte;
        if (byte == '\n') return true;
    }
}

/* aws-chunked, unsigned: length, bytes, ..., 0, trailers. */
static bool take_chunks(struct intake *intake) {
    char line[LINE_BYTES];
    for (;;) {
        if (!take_line(intake->connection, line, sizeof line)) return false;
        uint64_t size = strtoull(line, NULL, 16);
        if (!size) break;
        if (!take_plain(intake, size)) return false;
        if (!take_line(intake->connection, line, sizeof line) || line[0]) return false;
    }
    do
        if (!take_line(intake->connection, line, sizeof line)) return false;
    while (line[0]);
    return intake->done == intake->total;
}

bool sink_read_body(struct sink_connection *connection, const struct sink_request *request,
                    bool is_part, uint32_t *ret_crc32c, uint8_t *into) {
    uint32_t every = sink.faults.reset_every;
    struct intake intake = {
        .connection = connection,
        .total = request->content_length,
        .into = into,
        .is_part = is_part,
        .cut = is_part && every &&
               atomic_load(&sink.part_counter) % every == every / 3, /* #2: not the parts of the
                                                                      * 503s */
    };
    if (request->expects_continue && intake.total &&
        !sink_send(connection, "HTTP/1.1 100 Continue\r\n\r\n", 25))
        return false;
    connection->next_us = cairn_max_u64(connection->next_us, cairn_mono_us());
    bool whole = request->chunked ? take_chunks(&intake) : take_plain(&intake, intake.total);
    *ret_crc32c = intake.crc32c;
    return whole;
}

/* ---- one request's header ---- */

static void take_header(struct sink_request *request, const char *name, const char *value) {
    if (!strcasecmp(name, "content-length")) request->content_length = strtoull(value, NULL, 10);
    if (!strcasecmp(name, "expect")) request->expects_continue = true;
    if (!strcasecmp(name, "transfer-encoding")) request->unreadable = true;
    if (!strcasecmp(name, "x-amz-content-sha256") && !strncmp(value, "STREAMING", 9)) {
        request->chunked = true;
        request->unreadable |= strcmp(value, "STREAMING-UNSIGNED-PAYLOAD-TRAILER") != 0;
    }
    if (!strcasecmp(name, "x-amz-decoded-content-length"))
        request->decoded_length = strtoull(value, NULL, 10);
    if (!strcasecmp(name, "if-none-match")) request->only_new = true;
    if (!strcasecmp(name, "if-match"))
        snprintf(request->if_match, sizeof request->if_match, "%s", value);
    if (!strcasecmp(name, "x-amz-copy-source")) /* with or without leading slash */
        snprintf(request->copied, sizeof request->copied, "%s%s", *value == '/' ? "" : "/", value);
    if (!strcasecmp(name, "range")) snprintf(request->range, sizeof request->range, "%s", value);
    size_t used = strlen(request->meta);
    if (!strncasecmp(name, "x-amz-meta-", 11))
        snprintf(request->meta + used, sizeof request->meta - used, "%s: %s\r\n", name, value);
    if (strcasecmp(name, "x-amz-checksum-crc32c")) return;
    CAIRN_AUTO(buf) bytes = {0};
    struct cairn_view text = {value, strlen(value)};
    if (cairn_base64_decode(text, &bytes, NULL) != CAIRN_OK || bytes.size != 4) return;
    request->has_crc32c = true;
    request->crc32c = __builtin_bswap32(cairn_load_u32le(bytes.data));
}

/* Percent-decodes text in place. */
static void decode(char *text, size_t size) {
    CAIRN_AUTO(buf) plain = {0};
    if (cairn_percent_decode(cairn_view_of(text), &plain, NULL) == CAIRN_OK)
        snprintf(text, size, "%s", plain.size ? plain.data : "");
}

static bool parse(char *head, struct sink_request *request) {
    *request = (struct sink_request){0};
    char *line = strchr(head, '\r');
    *line = 0;
    char target[3072];
    if (sscanf(head, "%15s %3071s", request->method, target) != 2) return false;
    char *question = strchr(target, '?');
    if (question) *question = 0;
    snprintf(request->path, sizeof request->path, "%.1023s", target);
    snprintf(request->query, sizeof request->query, "%.2047s", question ? question + 1 : "");
    for (line += 2; *line;) {
        char *end = strchr(line, '\r'), *colon = strchr(line, ':');
        if (!end || end == line) break;
        *end = 0;
        if (!colon) return false;
        *colon = 0;
        take_header(request, line, colon + 1 + strspn(colon + 1, " "));
        line = end + 2;
    }
    if (request->chunked) request->content_length = request->decoded_length;
    decode(request->path, sizeof request->path);
    decode(request->copied, sizeof request->copied);
    return true;
}

/* Body bytes that came with the header stay in head, after head_used. */
static bool read_head(struct sink_connection *connection, struct sink_request *request) {
    size_t left = connection->head_size - connection->head_used;
    memmove(connection->head, connection->head + connection->head_used, left);
    connection->head_size = left;
    connection->head_used = 0;
    for (;;) {
        connection->head[connection->head_size] = 0;
        char *end = strstr(connection->head, "\r\n\r\n");
        if (end) {
            connection->head_used = (size_t)(end - connection->head) + 4;
            end[2] = 0; /* keeps the last line's CR, replaces the empty line's */
            return parse(connection->head, request);
        }
        if (connection->head_size == SINK_KEPT_BYTES) return false;
        ssize_t got = take_bytes(connection, connection->head + connection->head_size,
                                 SINK_KEPT_BYTES - connection->head_size, false);
        if (got <= 0) return false;
        connection->head_size += (size_t)got;
    }
}

/* ---- connections ---- */

static bool start_tls(struct sink_connection *connection) {
    if (!tls) return true;
    connection->tls = SSL_new(tls);
    return connection->tls && SSL_set_fd(connection->tls, connection->fd) == 1 &&
           SSL_accept(connection->tls) == 1;
}

static void count_connection(int change) {
    uint64_t now = atomic_fetch_add(&sink.counters.connected, (uint64_t)change) + (uint64_t)change;
    uint64_t most = atomic_load(&sink.counters.connected_most);
    while (now > most && change > 0 &&
           !atomic_compare_exchange_weak(&sink.counters.connected_most, &most, now))
        continue;
}

static void *connection_main(void *argument) {
    struct sink_connection connection = {.fd = (int)(intptr_t)argument};
    connection.head = malloc(SINK_KEPT_BYTES + 1);
    connection.chunk = malloc(SINK_CHUNK_BYTES);
    struct sink_request request;
    count_connection(1);
    if (connection.head && connection.chunk && start_tls(&connection))
        while (!connection.closing && read_head(&connection, &request) &&
               sink_answer(&connection, &request))
            continue;
    count_connection(-1);
    if (connection.tls) SSL_free(connection.tls);
    close(connection.fd);
    free(connection.head);
    free(connection.chunk);
    return NULL;
}

static void serve(int listener) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 128 * CAIRN_KIB);
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC), on = 1;
        if (fd < 0) continue;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        int small = 2048 * 1024; /* a paced peer must block, not fill a receive window */
        if (sink.faults.bytes_per_second)
            setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        atomic_fetch_add(&sink.counters.connections, 1);
        pthread_t thread;
        if (pthread_create(&thread, &attributes, connection_main, (void *)(intptr_t)fd)) close(fd);
    }
}

/* A virtual machine's host allocates pages at first touch, ten times slower than receiving them.
 * Pages touched here stay with the kernel for later bodies. */
static enum cairn_code warm(uint64_t bytes, struct cairn_error *err) {
    if (!bytes) return CAIRN_OK;
    uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory of %llu bytes for bodies",
                          (unsigned long long)bytes);
    madvise(memory, bytes, MADV_HUGEPAGE);
    for (uint64_t at = 0; at < bytes; at += 4096) memory[at] = 1;
    munmap(memory, bytes);
    return CAIRN_OK;
}

static enum cairn_code prepare(int count, char **values, const char **ret_listen,
                               struct cairn_error *err) {
    uint64_t bytes = 0;
    for (int i = 1; i < count; i++) {
        if (!strcmp(values[i], "--listen") && i + 1 < count) {
            *ret_listen = values[++i];
        } else if (!strcmp(values[i], "--serve") && i + 1 < count) {
            bytes = strtoull(values[++i], NULL, 10);
        } else if (!strcmp(values[i], "--keep")) {
            sink.keeps_all = true;
            mallopt(M_MMAP_THRESHOLD, CAIRN_MIB); /* a freed body returns its memory */
        } else if (!strcmp(values[i], "--warm") && i + 1 < count) {
            CAIRN_TRY(warm(strtoull(values[++i], NULL, 10), err));
        } else if (!strcmp(values[i], "--tls") && i + 2 < count) {
            tls = SSL_CTX_new(TLS_server_method());
            if (!tls || SSL_CTX_use_certificate_chain_file(tls, values[i + 1]) != 1 ||
                SSL_CTX_use_PrivateKey_file(tls, values[i + 2], SSL_FILETYPE_PEM) != 1)
                return cairn_fail(err, CAIRN_INVALID, "no certificate in %s", values[i + 1]);
            i += 2;
        } else {
            return cairn_fail(err, CAIRN_INVALID, "what is %s?", values[i]);
        }
    }
    if (!*ret_listen) return cairn_fail(err, CAIRN_INVALID, "--listen HOST:PORT is needed");
    if (!bytes) return CAIRN_OK;
    CAIRN_TRY(cairn_slab_create("bench-sink", bytes, false, &sink.served, err));
    bench_pattern(sink.served.data, bytes);
    sink.served_bytes = bytes;
    sink.served_crc32c = cairn_crc32c(0, sink.served.data, bytes);
    sink.served_body = sink_body_new(1);
    if (!sink.served_body) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a body");
    *sink.served_body->pieces = (struct sink_piece){bytes, sink.served.data};
    return CAIRN_OK;
}

int main(int count, char **values) {
    struct cairn_error error = {0};
    const char *listen_at = NULL;
    int listener = -1;
    uint16_t port = 0;
    signal(SIGPIPE, SIG_IGN);
    enum cairn_code code = prepare(count, values, &listen_at, &error);
    if (code == CAIRN_OK) code = cairn_net_listen_tcp(listen_at, &listener, &port, &error);
    if (code != CAIRN_OK) {
        fprintf(stderr, "bench_sink: %s\n", error.message);
        return 2;
    }
    fcntl(listener, F_SETFL, fcntl(listener, F_GETFL) & ~O_NONBLOCK); /* accept must block */
    bench_be_steady(listener);
    printf("{\"ready\":true,\"port\":%u,\"crc32c\":\"%08x\"}\n", port, sink.served_crc32c);
    fflush(stdout);
    serve(listener);
    return 0;
}
