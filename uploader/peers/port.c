/* SPDX-License-Identifier: Apache-2.0 */
/* Accepts, reads heads, checks rights and calls routes; see port.h. */
#include "uploader/peers/port.h"

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/net.h"
#include "common/text.h"
#include "uploader/peers/address.h"

#define STEP_BYTES CAIRN_MIB /* each has CAIRN_UP_PORT_MS */

struct cairn_up_connection {
    struct cairn_up_connection *next;
    struct cairn_up_port *port;
    pthread_t thread;
    int fd;
    bool over;                           /* locked: its thread only returns */
    size_t size;                         /* of what was read and not used yet: */
    char input[CAIRN_UP_HEAD_BYTES_MAX];
};
struct cairn_up_port {
    struct cairn_up_port_options options;
    char address[CAIRN_UP_ADDRESS_BYTES + 1];
    struct cairn_up_route routes[CAIRN_UP_ROUTES_MAX];
    size_t route_count;
    int listen_fd, stop_fd;
    bool started;
    pthread_t thread;
    struct cairn_lock lock; /* uploader_port */
    struct {
        struct cairn_up_connection *connections;
        size_t count;
        bool stopping;
        struct cairn_log_limit log_limit;
    } locked;
};

/* ---- one connection's bytes ---- */

/* False: nothing comes by then, or the uploader stops. */
static bool wait_for(const struct cairn_up_port *port, int fd, uint64_t deadline_ms) {
    struct pollfd waiting[] = {{.fd = fd, .events = POLLIN},
                               {.fd = port->stop_fd, .events = POLLIN}};
    for (;;) {
        uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, deadline_ms);
        int ready = poll(waiting, 2, (int)left_ms);
        if (waiting[1].revents || (!ready && !left_ms)) return false;
        if (ready > 0) return true;
        if (ready < 0 && errno != EINTR) return false;
    }
}

/* Some bytes, waited for; 0: the peer's end, or too late. */
static size_t take_bytes(struct cairn_up_connection *connection, void *into, size_t room,
                         uint64_t deadline_ms) {
    while (wait_for(connection->port, connection->fd, deadline_ms)) {
        ssize_t got = read(connection->fd, into, room);
        if (got > 0) return (size_t)got;
        if (got == 0 || (errno != EAGAIN && errno != EINTR)) return 0;
    }
    return 0;
}

/* The size of the head that stands in input, its empty line counted in; 0: none yet. */
static size_t head_size(const struct cairn_up_connection *connection) {
    const char *end = memmem(connection->input, connection->size, "\r\n\r\n", 4);
    return end ? (size_t)(end - connection->input) + 4 : 0;
}

/* False: it is to be closed without a word. *ret_size 0: the head is longer than it may be. */
static bool read_head(struct cairn_up_connection *connection, size_t *ret_size) {
    uint64_t now_ms = cairn_mono_ms();
    uint64_t deadline_ms =
        now_ms + (connection->size ? CAIRN_UP_PORT_MS : CAIRN_UP_PORT_QUIET_MS);
    while (!(*ret_size = head_size(connection))) {
        size_t room = sizeof(connection->input) - connection->size;
        if (!room) return true;
        size_t got =
            take_bytes(connection, connection->input + connection->size, room, deadline_ms);
        if (!got) return false;
        if (!connection->size) deadline_ms = cairn_mono_ms() + CAIRN_UP_PORT_MS;
        connection->size += got;
    }
    return true;
}

static void use_input(struct cairn_up_connection *connection, size_t size) {
    connection->size -= size;
    memmove(connection->input, connection->input + size, connection->size);
}

static enum cairn_code put(struct cairn_up_call *call, struct cairn_view bytes,
                           struct cairn_error *err) {
    const char *at = bytes.data;
    if (call->broken) return cairn_fail(err, CAIRN_UNAVAILABLE, "the peer's connection is broken");
    for (size_t left = bytes.size; left;) {
        size_t size = (size_t)cairn_min_u64(left, STEP_BYTES);
        enum cairn_code code =
            cairn_net_send(call->connection->fd, (struct cairn_view){at, size}, NULL, 0,
                           cairn_mono_ms() + CAIRN_UP_PORT_MS, err);
        call->broken = code != CAIRN_OK;
        CAIRN_TRY(code);
        at += size;
        left -= size;
    }
    return CAIRN_OK;
}

/* ---- what routes call ---- */

enum cairn_code cairn_up_call_sign(struct cairn_up_call *call, struct cairn_error *err) {
    CAIRN_ASSERT(!call->answered);
    return put(call, cairn_view_of("HTTP/1.1 102 Processing\r\n\r\n"), err);
}

/* The last quarter of the connections is kept by nobody between two requests: who comes next would
 * be turned away for one that is quiet. */
static bool is_crowded(struct cairn_up_port *port) {
    CAIRN_HOLD(&port->lock);
    return 4 * port->locked.count > 3 * port->options.connections_max;
}

/* The header that proves the answer; "" where the request was not admitted, or has no nonce. */
static void prove(const struct cairn_up_call *call, int status, uint64_t bytes, char ret[96]) {
    char mac[CAIRN_PEER_ANSWER_TEXT_BYTES];
    const struct cairn_peer_answer answer = {status, bytes, call->head.nonce};
    ret[0] = '\0';
    if (!call->admitted || !call->head.nonce[0]) return;
    cairn_peer_answer_sign(&call->right, &answer, call->key, mac);
    snprintf(ret, 96, CAIRN_PEER_ANSWER_HEADER ": %s\r\n", mac);
}

enum cairn_code cairn_up_call_answer(struct cairn_up_call *call, int status, const char *headers,
                                     uint64_t bytes, struct cairn_error *err) {
    char text[512], proof[96];
    CAIRN_ASSERT(!call->answered);
    call->answered = true;
    call->owed_bytes = bytes;
    /* What is left of a body that nobody wants is not read to its end. */
    if (call->received_bytes < call->head.body_bytes) call->head.closes = true;
    if (is_crowded(call->port)) call->head.closes = true;
    prove(call, status, bytes, proof);
    int size = snprintf(text, sizeof(text),
                        "HTTP/1.1 %d %s\r\nContent-Length: %" PRIu64 "\r\n%s%s%s\r\n", status,
                        status < 300 ? "OK" : "Refused", bytes, headers, proof,
                        call->head.closes ? "Connection: close\r\n" : "");
    CAIRN_ASSERT(size > 0);
    CAIRN_ASSERT((size_t)size < sizeof(text));
    return put(call, (struct cairn_view){text, (size_t)size}, err);
}

enum cairn_code cairn_up_call_send(struct cairn_up_call *call, struct cairn_view bytes,
                                   struct cairn_error *err) {
    CAIRN_ASSERT(call->answered);
    CAIRN_ASSERT(bytes.size <= call->owed_bytes);
    call->owed_bytes -= bytes.size;
    return put(call, bytes, err);
}

static void refuse(struct cairn_up_call *call, int status, const char *slug) {
    char text[128];
    struct cairn_error ignored = {0};
    int size = snprintf(text, sizeof(text), "{\"code\": \"%s\"}", slug);
    CAIRN_ASSERT(size > 0);
    if (cairn_up_call_answer(call, status, "Content-Type: application/json\r\n", (uint64_t)size,
                             &ignored))
        return;
    (void)!cairn_up_call_send(call, (struct cairn_view){text, (size_t)size}, &ignored);
}

void cairn_up_call_refuse(struct cairn_up_call *call, enum cairn_code code) {
    const struct cairn_code_info *info = cairn_code_info(code);
    refuse(call, info->http_status, info->slug);
}

enum cairn_code cairn_up_call_receive(struct cairn_up_call *call, void *into, uint64_t bytes,
                                      struct cairn_error *err) {
    struct cairn_up_connection *connection = call->connection;
    CAIRN_ASSERT(bytes <= call->head.body_bytes - call->received_bytes);
    char *at = into;
    uint64_t deadline_ms = cairn_mono_ms() + CAIRN_UP_PORT_MS, step_bytes = 0;
    while (bytes && !call->broken) {
        size_t got = (size_t)cairn_min_u64(bytes, connection->size); /* came with the head */
        if (got) {
            memcpy(at, connection->input, got);
            use_input(connection, got);
        } else {
            got = take_bytes(connection, at, (size_t)bytes, deadline_ms);
        }
        call->broken = !got;
        at += got;
        bytes -= got;
        call->received_bytes += got;
        step_bytes += got;
        if (step_bytes < STEP_BYTES) continue;
        deadline_ms = cairn_mono_ms() + CAIRN_UP_PORT_MS;
        step_bytes = 0;
    }
    if (call->broken) return cairn_fail(err, CAIRN_UNAVAILABLE, "the peer's body has ended");
    return CAIRN_OK;
}

/* ---- one request ---- */

static const struct cairn_up_route *find_route(const struct cairn_up_port *port,
                                               struct cairn_up_call *call) {
    for (size_t i = 0; i < port->route_count; i++) {
        const struct cairn_up_route *route = &port->routes[i];
        if (strcmp(call->head.method, route->method) != 0) continue;
        if (!cairn_text_starts(call->head.path, route->path)) continue;
        call->rest = call->head.path + strlen(route->path);
        return route;
    }
    return NULL;
}

static enum cairn_code admit(struct cairn_up_port *port, struct cairn_up_call *call,
                             struct cairn_error *err) {
    if (!call->head.right[0]) return cairn_fail(err, CAIRN_UNAUTHORIZED, "no right is shown");
    if (cairn_peer_parse(call->head.right, &call->right, err)) return CAIRN_UNAUTHORIZED;
    struct cairn_peer_request request = {.to = port->options.node,
                                         .method = call->head.method,
                                         .path = call->head.path,
                                         .range = call->head.range,
                                         .body_bytes = call->head.body_bytes};
    if (!cairn_up_members_key(port->options.members, &call->right.run, call->right.attempt,
                               call->key))
        return cairn_fail(err, CAIRN_FORBIDDEN, "this node does not hold attempt %" PRIu64
                          " of %s/%s", call->right.attempt, call->right.run.project,
                          call->right.run.run);
    call->admitted = cairn_peer_check(&call->right, &request, call->key);
    return call->admitted
               ? CAIRN_OK
               : cairn_fail(err, CAIRN_FORBIDDEN, "what node %s shows is not signed by its grant",
                            call->right.from);
}

/* Strangers may come as often as they like: a line for each would fill the disk. */
static void log_refusal(struct cairn_up_port *port, const struct cairn_up_call *call,
                        const struct cairn_error *why) {
    uint64_t unsaid = 0;
    bool says = false;
    {
        CAIRN_HOLD(&port->lock);
        says = cairn_log_limit_allows(&port->locked.log_limit, cairn_code_info(why->code)->slug,
                                      cairn_mono_ms(), &unsaid);
    }
    if (says)
        cairn_log(WARN, "peers.refused", "path=%s cause=\"%s\" unsaid=%" PRIu64, call->head.path,
                  why->message, unsaid);
}

/* True: another request may follow. */
static bool serve(struct cairn_up_connection *connection, size_t size) {
    struct cairn_up_port *port = connection->port;
    struct cairn_up_call call = {.port = port, .connection = connection};
    struct cairn_error why = {0};
    int status = size ? cairn_up_head_read((struct cairn_view){connection->input, size}, &call.head)
                      : 431;
    if (status) {
        call.head.closes = true; /* where the next one begins is not known */
        call.head.body_bytes = 0;
        refuse(&call, status, "invalid");
        return false;
    }
    use_input(connection, size);
    enum cairn_code code = admit(port, &call, &why);
    if (code) log_refusal(port, &call, &why);
    const struct cairn_up_route *route = code ? NULL : find_route(port, &call);
    if (route)
        route->serve(&call, route->owner);
    else
        cairn_up_call_refuse(&call, code ? code : CAIRN_NOT_FOUND);
    CAIRN_ASSERT(call.answered || call.broken);
    cairn_wipe(call.key, sizeof(call.key));
    return !call.broken && !call.head.closes && !call.owed_bytes;
}

static void *connection_main(void *argument) {
    struct cairn_up_connection *connection = argument;
    struct cairn_up_port *port = connection->port;
    size_t size = 0;
    pthread_setname_np(pthread_self(), "peer");
    while (read_head(connection, &size) && serve(connection, size)) continue;
    close(connection->fd);
    CAIRN_HOLD(&port->lock);
    connection->over = true;
    return NULL;
}

/* ---- who comes ---- */

/* Those whose thread is over, or all; the lock is not held. */
static void join_connections(struct cairn_up_port *port, bool all) {
    struct cairn_up_connection *ended = NULL;
    cairn_lock_take(&port->lock);
    for (struct cairn_up_connection **at = &port->locked.connections; *at;) {
        struct cairn_up_connection *connection = *at;
        if (!all && !connection->over) {
            at = &connection->next;
            continue;
        }
        *at = connection->next;
        connection->next = ended;
        ended = connection;
        port->locked.count--;
    }
    cairn_lock_give(&port->lock);
    while (ended) {
        struct cairn_up_connection *connection = ended;
        ended = ended->next;
        pthread_join(connection->thread, NULL);
        free(connection);
    }
}

static bool has_room(struct cairn_up_port *port) {
    CAIRN_HOLD(&port->lock);
    return port->locked.count < port->options.connections_max;
}

static void turn_away(int fd) {
    static const char full[] = "HTTP/1.1 503 Refused\r\nContent-Length: 0\r\n"
                               "Connection: close\r\n\r\n";
    (void)!cairn_net_send(fd, cairn_view_of(full), NULL, 0, cairn_mono_ms(), NULL);
    close(fd);
}

static void take_in(struct cairn_up_port *port, int fd) {
    join_connections(port, false);
    struct cairn_up_connection *connection =
        has_room(port) ? calloc(1, sizeof(*connection)) : NULL;
    if (!connection) {
        turn_away(fd);
        return;
    }
    connection->port = port;
    connection->fd = fd;
    CAIRN_HOLD(&port->lock); /* its thread may be over before it stands in the list */
    if (pthread_create(&connection->thread, NULL, connection_main, connection)) {
        free(connection);
        turn_away(fd);
        return;
    }
    connection->next = port->locked.connections;
    port->locked.connections = connection;
    port->locked.count++;
}

static void *port_main(void *argument) {
    struct cairn_up_port *port = argument;
    pthread_setname_np(pthread_self(), "peers");
    for (;;) {
        struct pollfd waiting[] = {{.fd = port->listen_fd, .events = POLLIN},
                                   {.fd = port->stop_fd, .events = POLLIN}};
        struct cairn_error err = {0};
        int fd = -1;
        (void)poll(waiting, 2, -1);
        if (waiting[1].revents) return NULL;
        if (cairn_net_accept(port->listen_fd, &fd, &err)) /* K08: poll would return at once */
            (void)poll(&waiting[1], 1, CAIRN_NET_ACCEPT_PAUSE_MS);
        if (fd >= 0) take_in(port, fd);
    }
}

/* ---- life ---- */

enum cairn_code cairn_up_port_new(const struct cairn_up_port_options *options,
                                  struct cairn_up_port **ret, struct cairn_error *err) {
    struct cairn_up_port *port = calloc(1, sizeof(*port));
    uint16_t number = 0;
    if (!port) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the port of peers");
    port->options = *options;
    port->listen_fd = -1;
    port->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    cairn_lock_init(&port->lock, CAIRN_LOCK_uploader_port);
    enum cairn_code code =
        port->stop_fd < 0 ? cairn_fail_errno(err, "the port of peers") : CAIRN_OK;
    if (!code) code = cairn_net_listen_tcp(options->listen, &port->listen_fd, &number, err);
    if (code) code = cairn_within(err, code, "peer_listen");
    if (!code)
        code = cairn_up_address_told(options->listen, options->advertise, number, port->address,
                                     err);
    if (code) {
        cairn_up_port_free(port);
        return code;
    }
    *ret = port;
    return CAIRN_OK;
}

void cairn_up_port_route(struct cairn_up_port *port, const struct cairn_up_route *route) {
    CAIRN_ASSERT(!port->started);
    CAIRN_ASSERT(port->route_count < CAIRN_UP_ROUTES_MAX);
    port->routes[port->route_count++] = *route;
}

enum cairn_code cairn_up_port_start(struct cairn_up_port *port, struct cairn_error *err) {
    errno = pthread_create(&port->thread, NULL, port_main, port);
    if (errno) return cairn_fail_errno(err, "a thread for the port of peers");
    port->started = true;
    cairn_log(INFO, "peers.listening", "address=%s told=%s", port->options.listen, port->address);
    return CAIRN_OK;
}

void cairn_up_port_stop(struct cairn_up_port *port) {
    const uint64_t one = 1;
    if (!port) return;
    cairn_lock_take(&port->lock);
    port->locked.stopping = true;
    cairn_lock_give(&port->lock);
    if (port->stop_fd >= 0) (void)!write(port->stop_fd, &one, sizeof(one));
    if (port->started) pthread_join(port->thread, NULL);
    port->started = false;
    join_connections(port, true);
}

void cairn_up_port_free(struct cairn_up_port *port) {
    if (!port) return;
    cairn_up_port_stop(port);
    if (port->listen_fd >= 0) close(port->listen_fd);
    if (port->stop_fd >= 0) close(port->stop_fd);
    cairn_lock_release(&port->lock);
    free(port);
}

const char *cairn_up_port_address(const struct cairn_up_port *port) {
    return port->address;
}

bool cairn_up_port_stopping(struct cairn_up_port *port) {
    CAIRN_HOLD(&port->lock);
    return port->locked.stopping;
}
