/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_ask --port PORT --path PATH [--token TOKEN] [--connections N] [--ms N]
 *           [--patch PATH --field NAME]
 *
 * GETs one path over keep-alive connections, one request at a time on each; `bytes` is the number
 * of replies. With --patch another connection increments a label of that path ten times a second;
 * a reply with a number older than one acknowledged before its request was sent is a failure.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "bench/measure.h"
#include "common/clock.h"

#define REPLY_BYTES_MAX (64 * CAIRN_KIB)
#define PATCH_EVERY_MS 100

struct connection {
    int fd;
    uint64_t sent_number; /* acknowledged when the request was sent */
    size_t size;
    char reply[REPLY_BYTES_MAX];
};
struct asker {
    uint64_t port, connections, ms;
    const char *path, *token, *patch, *field;
    struct connection *all;
    char request[2048];
    int epoll_fd;
    _Atomic uint64_t acknowledged; /* newest number */
    atomic_bool stop;
    pthread_t patcher;
    uint64_t number;
};

static enum cairn_code fail(struct cairn_error *err, const char *what) {
    return cairn_fail(err, CAIRN_IO, "%s", what);
}

static int connect_to(uint64_t port) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        return -1;
    }
    bench_be_steady(fd);
    return fd;
}

static bool send_all(int fd, const char *text) {
    for (size_t size = strlen(text); size;) {
        ssize_t sent = write(fd, text, size);
        if (sent <= 0) return false;
        text += sent;
        size -= (size_t)sent;
    }
    return true;
}

/* Size of a complete reply; 0: incomplete. *ret_status: its status. */
static size_t whole(const struct connection *connection, int *ret_status) {
    const char *head_end = memmem(connection->reply, connection->size, "\r\n\r\n", 4);
    const char *length = strcasestr(connection->reply, "\r\nContent-Length:");
    if (!head_end || !length || length > head_end) return 0;
    size_t head = (size_t)(head_end + 4 - connection->reply);
    size_t bytes = head + strtoull(length + strlen("\r\nContent-Length:"), NULL, 10);
    *ret_status = (int)strtol(connection->reply + strlen("HTTP/1.1 "), NULL, 10);
    return bytes <= connection->size ? bytes : 0;
}

/* The label's number in a reply; 0: absent. */
static uint64_t number_in(const struct asker *asker, const char *reply) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, "\"%s\":\"", asker->field);
    const char *found = strstr(reply, wanted);
    return found ? strtoull(found + strlen(wanted), NULL, 10) : 0;
}

static enum cairn_code ask(struct asker *asker, struct connection *connection,
                           struct cairn_error *err) {
    connection->size = 0;
    connection->sent_number = atomic_load(&asker->acknowledged);
    return send_all(connection->fd, asker->request) ? CAIRN_OK : fail(err, "a request is not sent");
}

/* Reads available bytes; *ret_done: a complete reply with status 200. */
static enum cairn_code take(const struct asker *asker, struct connection *connection,
                            bool *ret_done, struct cairn_error *err) {
    size_t room = sizeof connection->reply - 1 - connection->size;
    ssize_t got = read(connection->fd, connection->reply + connection->size, room);
    int status = 0;
    if (got <= 0) return fail(err, "a connection ended, or a reply is too long");
    connection->size += (size_t)got;
    connection->reply[connection->size] = '\0';
    *ret_done = whole(connection, &status) > 0;
    if (!*ret_done) return CAIRN_OK;
    if (status != 200) return fail(err, connection->reply);
    if (asker->patch && number_in(asker, connection->reply) < connection->sent_number)
        return fail(err, "an answer is older than an acknowledged change");
    return CAIRN_OK;
}

static enum cairn_code patch_once(struct asker *asker, struct connection *connection,
                                  struct cairn_error *err) {
    char body[96], request[2048];
    bool done = false;
    int status = 0;
    snprintf(body, sizeof body, "{\"labels\":{\"%s\":\"%" PRIu64 "\"}}", asker->field,
             ++asker->number);
    snprintf(request, sizeof request,
             "PATCH %s HTTP/1.1\r\nHost: 127.0.0.1\r\nIf-Match: *\r\nAuthorization: Bearer %s\r\n"
             "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
             asker->patch, asker->token, strlen(body), body);
    connection->size = 0;
    if (!send_all(connection->fd, request)) return fail(err, "a change is not sent");
    while (!done) {
        ssize_t got = read(connection->fd, connection->reply + connection->size,
                           sizeof connection->reply - 1 - connection->size);
        if (got <= 0) return fail(err, "the writer's connection ended");
        connection->size += (size_t)got;
        connection->reply[connection->size] = '\0';
        done = whole(connection, &status) > 0;
    }
    if (status != 200) return fail(err, connection->reply);
    atomic_store(&asker->acknowledged, asker->number);
    return CAIRN_OK;
}

static void *patch(void *argument) {
    struct asker *asker = argument;
    struct cairn_error err = {0};
    static struct connection connection;
    connection.fd = connect_to(asker->port);
    while (connection.fd >= 0 && !atomic_load(&asker->stop)) {
        if (patch_once(asker, &connection, &err)) {
            fprintf(stderr, "bench_ask: %s\n", err.message);
            exit(2); /* without the writer the figure would be too good */
        }
        poll(NULL, 0, PATCH_EVERY_MS);
    }
    close(connection.fd);
    return NULL;
}

static enum cairn_code open_all(struct asker *asker, struct cairn_error *err) {
    asker->all = calloc(asker->connections, sizeof *asker->all);
    asker->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (!asker->all || asker->epoll_fd < 0) return fail(err, "no memory for connections");
    for (size_t i = 0; i < asker->connections; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &asker->all[i]};
        asker->all[i].fd = connect_to(asker->port);
        if (asker->all[i].fd < 0) return fail(err, "nobody listens there");
        epoll_ctl(asker->epoll_fd, EPOLL_CTL_ADD, asker->all[i].fd, &event);
    }
    return CAIRN_OK;
}

static enum cairn_code once(void *owner, struct bench_result *ret, struct cairn_error *err) {
    struct asker *asker = owner;
    uint64_t until_ms = cairn_mono_ms() + asker->ms, under_way = asker->connections;
    for (size_t i = 0; i < asker->connections; i++) CAIRN_TRY(ask(asker, &asker->all[i], err));
    while (under_way) {
        struct epoll_event events[64];
        int count = epoll_wait(asker->epoll_fd, events, CAIRN_COUNT(events), 5000);
        if (count <= 0) return fail(err, "no answer within 5 s");
        bool over = cairn_mono_ms() >= until_ms;
        for (int i = 0; i < count; i++) {
            bool done = false;
            CAIRN_TRY(take(asker, events[i].data.ptr, &done, err));
            ret->bytes += done;
            under_way -= done && over;
            if (done && !over) CAIRN_TRY(ask(asker, events[i].data.ptr, err));
        }
    }
    return CAIRN_OK;
}

int main(int count, char **values) {
    static struct asker asker;
    struct cairn_error error = {0};
    asker.port = bench_flag_number(count, values, "--port", 7420);
    asker.connections = bench_flag_number(count, values, "--connections", 32);
    asker.ms = bench_flag_number(count, values, "--ms", 1000);
    asker.path = bench_flag(count, values, "--path", "/");
    asker.token = bench_flag(count, values, "--token", "none");
    asker.patch = bench_flag(count, values, "--patch", NULL);
    asker.field = bench_flag(count, values, "--field", "number");
    snprintf(asker.request, sizeof asker.request,
             "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n\r\n", asker.path,
             asker.token);
    enum cairn_code code = open_all(&asker, &error);
    if (!code && asker.patch && pthread_create(&asker.patcher, NULL, patch, &asker) != 0)
        code = fail(&error, "no thread");
    if (code) {
        fprintf(stderr, "bench_ask: %s\n", error.message);
        return 2;
    }
    int status = bench_loop(once, &asker);
    atomic_store(&asker.stop, true);
    if (asker.patch) pthread_join(asker.patcher, NULL);
    return status;
}
