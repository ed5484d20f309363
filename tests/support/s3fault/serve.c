/* SPDX-License-Identifier: Apache-2.0 */
/* serve: accepts, and gives each connection a thread. */
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "tests/support/s3fault/server.h"

#define IDLE_S 120
#define STACK_BYTES (512 * 1024)

/* Faults before the first byte of a request; false: the connection was ended. */
static bool greet(struct s3f_connection *connection) {
    struct s3f_server *server = connection->server;
    struct s3f_wire *wire = &connection->wire;
    struct s3f_plan plan;
    struct s3f_subject subject = {.op = S3F_CONNECT, .key = "", .local = connection->local};
    cairn_lock_take(&server->lock);
    server->op_count[S3F_CONNECT]++;
    s3f_rules_match(server->rules, &subject, &plan);
    cairn_lock_give(&server->lock);
    for (size_t i = 0; i < plan.count; i++) {
        const struct s3f_action *action = &plan.actions[i];
        char first;
        /* A place above 0: the peer has said something, such as the first line of a handshake. */
        if (action->number > 0 && action->kind != S3F_DO_DELAY &&
            recv(wire->fd, &first, 1, MSG_PEEK) <= 0)
            return false;
        if (action->kind == S3F_DO_DELAY && !s3f_wire_hold(wire, (uint32_t)action->number))
            return false;
        if (action->kind == S3F_DO_STALL && !s3f_wire_hold(wire, action->ms)) return false;
        if (action->kind == S3F_DO_RST) s3f_wire_reset(wire);
        if (action->kind == S3F_DO_FIN) s3f_wire_finish(wire, false);
        if (wire->fd < 0) return false;
    }
    if (!server->tls) return true;
    wire->ssl = SSL_new(server->tls);
    return wire->ssl && SSL_set_fd(wire->ssl, wire->fd) == 1 && SSL_accept(wire->ssl) == 1;
}

static void *run_connection(void *argument) {
    struct s3f_connection *connection = argument;
    struct s3f_server *server = connection->server;
    struct s3f_wire *wire = &connection->wire;
    struct timeval idle = {.tv_sec = IDLE_S};
    setsockopt(wire->fd, SOL_SOCKET, SO_RCVTIMEO, &idle, sizeof idle);
    setsockopt(wire->fd, SOL_SOCKET, SO_SNDTIMEO, &idle, sizeof idle);
    setsockopt(wire->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (greet(connection))
        while (s3f_exchange(connection)) continue;
    s3f_wire_finish(wire, true);
    if (wire->ssl) SSL_free(wire->ssl);
    free(wire->buffer);
    free(connection->scrap);
    free(connection);
    CAIRN_HOLD(&server->lock);
    server->connections_now--;
    return NULL;
}

static void name_local(struct s3f_connection *connection) {
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    if (getsockname(connection->wire.fd, (struct sockaddr *)&address, &size) != 0 ||
        getnameinfo((struct sockaddr *)&address, size, connection->local, sizeof connection->local,
                    NULL, 0, NI_NUMERICHOST) != 0)
        connection->local[0] = '\0'; /* the peer is gone already */
}

static struct s3f_connection *connection_new(struct s3f_server *server, int fd) {
    struct s3f_connection *connection = calloc(1, sizeof *connection);
    if (!connection) abort();
    connection->server = server;
    connection->wire.fd = fd;
    name_local(connection);
    connection->wire.cap_bytes_per_s = server->options.cap_bytes_per_s;
    if (server->options.cap_all.bytes_per_s) connection->wire.all = &server->options.cap_all;
    connection->wire.buffer = malloc(S3F_HEAD_BYTES_MAX);
    connection->scrap = aligned_alloc(4096, S3F_SCRAP_BYTES);
    if (!connection->wire.buffer || !connection->scrap) abort();
    CAIRN_HOLD(&server->lock);
    connection->serial = ++server->connections;
    server->connections_now++;
    return connection;
}

static bool is_full(struct s3f_server *server) {
    CAIRN_HOLD(&server->lock);
    return server->connections_now >= S3F_CONNECTIONS_MAX;
}

bool s3f_leave(struct s3f_server *server, const char *address) {
    for (size_t i = 0; i < server->door_count; i++) {
        struct s3f_door *door = &server->doors[i];
        if (strcmp(door->address, address) != 0 || atomic_exchange(&door->left, true)) continue;
        shutdown(door->listener, SHUT_RDWR); /* wakes accept, which closes it */
        return true;
    }
    return false;
}

void s3f_serve(struct s3f_door *door) {
    struct s3f_server *server = door->server;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    for (;;) {
        while (is_full(server)) /* step of a poll */
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        int fd = accept4(door->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
        if (fd < 0) break;
        pthread_t thread;
        if (pthread_create(&thread, &attributes, run_connection, connection_new(server, fd)) != 0)
            abort();
    }
    pthread_attr_destroy(&attributes);
    close(door->listener);
}
