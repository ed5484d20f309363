/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_raw put|get --peer HOST:PORT --bytes N [--part N] [--threads 2]
 *
 * The machine's limit with only sockets and CRC32C. put: each thread computes a part's checksum,
 * then send()s the part from the slab in 4 MiB pieces under a minimal UploadPart. get: each thread
 * recv()s a range into the slab and sums it piece by piece. No retry, state or copy.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/measure.h"
#include "common/buf.h"
#include "common/crc.h"
#include "common/memory.h"
#include "common/text.h"

#define THREADS_MAX 64
#define PIECE_BYTES (4 * CAIRN_MIB)
#define READ_BYTES (512 * CAIRN_KIB)

struct raw {
    struct cairn_slab slab;
    uint64_t bytes, part_bytes;
    uint32_t part_count, thread_count, *crcs;
    struct sockaddr_in peer;
    int fds[THREADS_MAX + 1]; /* the last one: create and complete */
    bool get;
    char upload[32];
    atomic_uint next_part, failed;
};

static int dial(const struct raw *raw) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bench_be_steady(fd);
    if (connect(fd, (const struct sockaddr *)&raw->peer, sizeof raw->peer) == 0) return fd;
    close(fd);
    return -1;
}

static bool send_all(int fd, const void *bytes, size_t size) {
    const char *at = bytes;
    while (size) {
        ssize_t sent = send(fd, at, cairn_min_u64(size, PIECE_BYTES), MSG_NOSIGNAL);
        if (sent <= 0) return false;
        at += sent;
        size -= (size_t)sent;
    }
    return true;
}

/* Reads a reply's header into text, NUL-terminated; *ret_body: body bytes already in text. */
static bool read_head(int fd, char *text, size_t capacity, char **ret_body, size_t *ret_size) {
    size_t have = 0;
    while (have + 1 < capacity) {
        ssize_t got = recv(fd, text + have, capacity - 1 - have, 0);
        if (got <= 0) return false;
        have += (size_t)got;
        text[have] = 0;
        char *end = strstr(text, "\r\n\r\n");
        if (!end) continue;
        *ret_body = end + 4;
        *ret_size = have - (size_t)(end + 4 - text);
        return !strncmp(text, "HTTP/1.1 20", 11);
    }
    return false;
}

static bool exchange(int fd, const char *head, const void *body, size_t size, char *reply,
                     size_t capacity) {
    char *rest;
    size_t rest_size;
    if (!send_all(fd, head, strlen(head)) || !send_all(fd, body, size)) return false;
    if (!read_head(fd, reply, capacity, &rest, &rest_size)) return false;
    const char *length = strstr(reply, "Content-Length: ");
    size_t wanted = length ? strtoull(length + 16, NULL, 10) : 0;
    while (rest_size < wanted && rest + rest_size + 1 < reply + capacity) {
        ssize_t got = recv(fd, rest + rest_size, wanted - rest_size, 0);
        if (got <= 0) return false;
        rest_size += (size_t)got;
        rest[rest_size] = 0;
    }
    return true;
}

static uint64_t size_of(const struct raw *raw, uint32_t part) {
    return cairn_min_u64(raw->part_bytes, raw->bytes - part * raw->part_bytes);
}

static bool put_part(struct raw *raw, int fd, uint32_t part) {
    const uint8_t *data = raw->slab.data + part * raw->part_bytes;
    uint64_t size = size_of(raw, part);
    char head[512], reply[4096];
    CAIRN_AUTO(buf) text = {0};
    raw->crcs[part] = cairn_crc32c(0, data, size);
    uint32_t big = __builtin_bswap32(raw->crcs[part]);
    if (cairn_base64_encode((struct cairn_view){&big, 4}, &text, NULL) != CAIRN_OK) return false;
    snprintf(head, sizeof head,
             "PUT /bench/raw?partNumber=%u&uploadId=%s HTTP/1.1\r\nHost: bench\r\n"
             "Content-Length: %llu\r\nx-amz-checksum-crc32c: %s\r\n\r\n",
             part + 1, raw->upload, (unsigned long long)size, text.data);
    return exchange(fd, head, data, size, reply, sizeof reply);
}

static bool get_part(struct raw *raw, int fd, uint32_t part) {
    uint64_t first = part * raw->part_bytes, size = size_of(raw, part), have;
    char head[512], reply[4096], *rest;
    snprintf(head, sizeof head,
             "GET /bench/served HTTP/1.1\r\nHost: bench\r\nRange: bytes=%llu-%llu\r\n\r\n",
             (unsigned long long)first, (unsigned long long)(first + size - 1));
    uint8_t *data = raw->slab.data + first;
    if (!send_all(fd, head, strlen(head)) || !read_head(fd, reply, sizeof reply, &rest, &have))
        return false;
    memcpy(data, rest, have);
    uint32_t crc32c = cairn_crc32c(0, data, have);
    while (have < size) {
        ssize_t got = recv(fd, data + have, cairn_min_u64(size - have, READ_BYTES), 0);
        if (got <= 0) return false;
        crc32c = cairn_crc32c(crc32c, data + have, (size_t)got);
        have += (uint64_t)got;
    }
    raw->crcs[part] = crc32c;
    return true;
}

struct raw_thread {
    struct raw *raw;
    int fd;
};

static void *thread_main(void *argument) {
    struct raw_thread *thread = argument;
    struct raw *raw = thread->raw;
    for (;;) {
        uint32_t part = atomic_fetch_add(&raw->next_part, 1);
        if (part >= raw->part_count) return NULL;
        bool good = raw->get ? get_part(raw, thread->fd, part) : put_part(raw, thread->fd, part);
        if (good) continue;
        atomic_store(&raw->failed, 1);
        return NULL;
    }
}

static bool create(struct raw *raw, int fd) {
    char reply[4096];
    const char *head = "POST /bench/raw?uploads HTTP/1.1\r\nHost: bench\r\n\r\n";
    if (!exchange(fd, head, "", 0, reply, sizeof reply)) return false;
    const char *id = strstr(reply, "<UploadId>");
    return id && sscanf(id + 10, "%31[^<]", raw->upload) == 1;
}

static bool complete(struct raw *raw, int fd) {
    CAIRN_AUTO(buf) body = {0};
    char head[256], reply[4096];
    for (uint32_t i = 0; i < raw->part_count; i++)
        if (cairn_buf_printf(&body, NULL, "<Part><PartNumber>%u</PartNumber></Part>", i + 1) !=
            CAIRN_OK)
            return false;
    snprintf(head, sizeof head,
             "POST /bench/raw?uploadId=%s HTTP/1.1\r\nHost: bench\r\nContent-Length: %zu\r\n\r\n",
             raw->upload, body.size);
    return exchange(fd, head, body.data, body.size, reply, sizeof reply);
}

static enum cairn_code once(void *owner, struct bench_result *ret, struct cairn_error *err) {
    struct raw *raw = owner;
    pthread_t threads[THREADS_MAX];
    struct raw_thread arguments[THREADS_MAX];
    int control = raw->fds[THREADS_MAX];
    atomic_store(&raw->next_part, 0);
    atomic_store(&raw->failed, 0);
    bool good = raw->get || create(raw, control);
    for (uint32_t i = 0; good && i < raw->thread_count; i++) {
        arguments[i] = (struct raw_thread){raw, raw->fds[i]};
        good = pthread_create(&threads[i], NULL, thread_main, &arguments[i]) == 0;
    }
    for (uint32_t i = 0; good && i < raw->thread_count; i++) pthread_join(threads[i], NULL);
    good = good && !atomic_load(&raw->failed) && (raw->get || complete(raw, control));
    if (!good) return cairn_fail(err, CAIRN_UNAVAILABLE, "the raw transfer failed");
    uint32_t crc32c = 0;
    for (uint32_t i = 0; i < raw->part_count; i++)
        crc32c = cairn_crc32c_combine(crc32c, raw->crcs[i], size_of(raw, i));
    *ret = (struct bench_result){.bytes = raw->bytes, .crc32c = crc32c};
    return CAIRN_OK;
}

static enum cairn_code prepare(struct raw *raw, int count, char **values, struct cairn_error *err) {
    char host[64];
    const char *peer = bench_flag(count, values, "--peer", "");
    const char *colon = strrchr(peer, ':');
    if (count < 2 || !colon || (size_t)(colon - peer) >= sizeof host)
        return cairn_fail(err, CAIRN_INVALID, "put or get, and --peer HOST:PORT, are needed");
    raw->get = !strcmp(values[1], "get");
    snprintf(host, sizeof host, "%.*s", (int)(colon - peer), peer);
    raw->peer = (struct sockaddr_in){.sin_family = AF_INET,
                                     .sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10))};
    if (inet_pton(AF_INET, host, &raw->peer.sin_addr) != 1)
        return cairn_fail(err, CAIRN_INVALID, "%s is no address", host);
    raw->bytes = bench_flag_number(count, values, "--bytes", CAIRN_MIB * 1024);
    raw->part_bytes = bench_flag_number(count, values, "--part", 64 * CAIRN_MIB);
    raw->thread_count =
        (uint32_t)cairn_min_u64(THREADS_MAX, bench_flag_number(count, values, "--threads", 2));
    raw->part_count = (uint32_t)cairn_div_up(raw->bytes, raw->part_bytes);
    raw->crcs = calloc(raw->part_count, sizeof *raw->crcs);
    if (!raw->crcs) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for checksums");
    CAIRN_TRY(cairn_slab_create("bench-raw", raw->bytes, false, &raw->slab, err));
    bench_pattern(raw->slab.data, raw->get ? 0 : raw->bytes);
    for (uint32_t i = 0; i <= THREADS_MAX; i++) {
        if (i >= raw->thread_count && i < THREADS_MAX) continue;
        raw->fds[i] = dial(raw);
        if (raw->fds[i] < 0) return cairn_fail_errno(err, "connect to %s", peer);
    }
    return CAIRN_OK;
}

int main(int count, char **values) {
    static struct raw raw;
    struct cairn_error error = {0};
    if (prepare(&raw, count, values, &error) != CAIRN_OK) {
        fprintf(stderr, "bench_raw: %s\n", error.message);
        return 2;
    }
    return bench_loop(once, &raw);
}
