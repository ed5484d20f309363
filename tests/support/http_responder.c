/* SPDX-License-Identifier: Apache-2.0 */
/* Plain sockets and one thread per connection; nothing here is clever. */
#include "tests/support/http_responder.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define CONNECTIONS_MAX 256

struct connection {
    struct cairn_responder *responder;
    int fd;
    uint32_t index;
    pthread_t thread;
};

struct cairn_responder {
    struct cairn_responder_options options;
    int listener;
    char url[64];
    pthread_t acceptor;
    atomic_uint requests;
    atomic_uint connections;
    atomic_bool stopping;
    struct connection all[CONNECTIONS_MAX];
};

void cairn_responder_send(struct cairn_responder_request *request, const void *bytes, size_t size) {
    for (const char *at = bytes; size;) {
        ssize_t sent = send(request->fd, at, size, MSG_NOSIGNAL);
        if (sent <= 0) return;
        at += sent;
        size -= (size_t)sent;
    }
}

void cairn_responder_say(struct cairn_responder_request *request, const char *format, ...) {
    char text[65536];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (size > 0)
        cairn_responder_send(request, text, cairn_min_u64((uint64_t)size, sizeof text - 1));
}

void cairn_responder_reply(struct cairn_responder_request *request, int status, const char *headers,
                           const char *body) {
    bool is_head = !strcmp(request->method, "HEAD");
    cairn_responder_say(request, "HTTP/1.1 %d Scripted\r\nContent-Length: %zu\r\n%s\r\n%s", status,
                        strlen(body), headers, is_head ? "" : body);
}

bool cairn_responder_header(const struct cairn_responder_request *request, const char *name,
                            char ret_value[512]) {
    size_t size = strlen(name);
    for (const char *line = strstr(request->head, "\r\n"); line; line = strstr(line + 2, "\r\n")) {
        const char *at = line + 2;
        if (strncasecmp(at, name, size) != 0 || at[size] != ':') continue;
        at += size + 1 + strspn(at + size + 1, " ");
        snprintf(ret_value, 512, "%.*s", (int)strcspn(at, "\r"), at);
        return true;
    }
    return false;
}

uint64_t cairn_responder_drain(struct cairn_responder_request *request, uint64_t size) {
    char bytes[65536];
    uint64_t drained = 0;
    while (drained < size) {
        ssize_t got = recv(request->fd, bytes, cairn_min_u64(sizeof bytes, size - drained), 0);
        if (got <= 0) break;
        drained += (uint64_t)got;
    }
    return drained;
}

/* One byte at a time: a test server may be slow, and so never reads into the body. */
static bool read_head(struct cairn_responder_request *request) {
    size_t size = 0;
    while (size + 1 < sizeof request->head) {
        if (recv(request->fd, request->head + size, 1, 0) != 1) return false;
        request->head[++size] = '\0';
        if (size >= 4 && !memcmp(request->head + size - 4, "\r\n\r\n", 4)) return true;
    }
    return false;
}

static bool read_body(struct cairn_responder_request *request, char **body) {
    if (!request->body_bytes) return true;
    *body = malloc(request->body_bytes + 1);
    uint64_t got = 0;
    while (*body && got < request->body_bytes) {
        ssize_t size = recv(request->fd, *body + got, request->body_bytes - got, 0);
        if (size <= 0) return false;
        got += (uint64_t)size;
    }
    if (!*body) return false;
    (*body)[got] = '\0';
    request->body = (struct cairn_view){*body, got};
    return true;
}

static bool serve_one(struct connection *connection, bool *ret_reset) {
    struct cairn_responder *responder = connection->responder;
    struct cairn_responder_request *request = calloc(1, sizeof *request);
    char *body = NULL, length[512];
    bool go_on = false;
    if (!request) return false;
    request->responder = responder;
    request->owner = responder->options.owner;
    request->fd = connection->fd;
    request->connection = connection->index;
    if (read_head(request) &&
        sscanf(request->head, "%15s %8191s", request->method, request->target) == 2) {
        if (cairn_responder_header(request, "Content-Length", length))
            request->body_bytes = strtoull(length, NULL, 10);
        if (responder->options.early || read_body(request, &body)) {
            request->index = atomic_fetch_add(&responder->requests, 1);
            responder->options.answer(request);
            go_on = !request->close && !request->reset;
        }
    }
    *ret_reset = request->reset;
    free(body);
    free(request);
    return go_on;
}

static void *serve(void *argument) {
    struct connection *connection = argument;
    bool reset = false;
    while (!atomic_load(&connection->responder->stopping) && serve_one(connection, &reset)) {
    }
    struct linger none = {1, 0};
    if (reset) setsockopt(connection->fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    /* Closed here for the peer's sake; the number is kept until _stop so that it cannot be shut
     * down after reuse. */
    if (reset) {
        int spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
        dup2(spare, connection->fd);
        close(spare);
    } else {
        shutdown(connection->fd, SHUT_RDWR);
    }
    return NULL;
}

static void *accept_all(void *argument) {
    struct cairn_responder *responder = argument;
    while (!atomic_load(&responder->stopping)) {
        int fd = accept4(responder->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) continue;
        uint32_t index = atomic_load(&responder->connections);
        if (index == CONNECTIONS_MAX || atomic_load(&responder->stopping)) {
            close(fd);
            continue;
        }
        struct connection *connection = &responder->all[index];
        *connection = (struct connection){.responder = responder, .fd = fd, .index = index};
        /* Counted before it is served: a test may ask as soon as it has its reply. */
        atomic_fetch_add(&responder->connections, 1);
        if (pthread_create(&connection->thread, NULL, serve, connection) != 0) {
            atomic_fetch_sub(&responder->connections, 1);
            close(fd);
        }
    }
    return NULL;
}

static bool listen_tcp(struct cairn_responder *responder) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons(responder->options.port)};
    socklen_t size = sizeof address;
    int reuse = responder->options.port != 0;
    responder->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(responder->listener, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
    if (bind(responder->listener, (struct sockaddr *)&address, size) != 0) return false;
    if (getsockname(responder->listener, (struct sockaddr *)&address, &size) != 0) return false;
    snprintf(responder->url, sizeof responder->url, "http://127.0.0.1:%u", ntohs(address.sin_port));
    return listen(responder->listener, 128) == 0;
}

static bool listen_unix(struct cairn_responder *responder, const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    unlink(path);
    responder->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return bind(responder->listener, (struct sockaddr *)&address, sizeof address) == 0 &&
           listen(responder->listener, 128) == 0;
}

struct cairn_responder *cairn_responder_start(const struct cairn_responder_options *options) {
    struct cairn_responder *responder = calloc(1, sizeof *responder);
    if (!responder) return NULL;
    responder->options = *options;
    bool listening =
        options->unix_socket ? listen_unix(responder, options->unix_socket) : listen_tcp(responder);
    if (!listening || pthread_create(&responder->acceptor, NULL, accept_all, responder) != 0) {
        close(responder->listener);
        free(responder);
        return NULL;
    }
    return responder;
}

void cairn_responder_stop(struct cairn_responder *responder) {
    if (!responder) return;
    atomic_store(&responder->stopping, true);
    shutdown(responder->listener, SHUT_RDWR);
    pthread_join(responder->acceptor, NULL);
    close(responder->listener);
    uint32_t count = atomic_load(&responder->connections);
    for (uint32_t i = 0; i < count; i++) shutdown(responder->all[i].fd, SHUT_RDWR);
    for (uint32_t i = 0; i < count; i++) {
        pthread_join(responder->all[i].thread, NULL);
        close(responder->all[i].fd);
    }
    free(responder);
}

const char *cairn_responder_url(const struct cairn_responder *responder) {
    return responder->url;
}
uint32_t cairn_responder_requests(const struct cairn_responder *responder) {
    return atomic_load(&responder->requests);
}
uint32_t cairn_responder_connections(const struct cairn_responder *responder) {
    return atomic_load(&responder->connections);
}
