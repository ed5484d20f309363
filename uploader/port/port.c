/* SPDX-License-Identifier: Apache-2.0 */
/* Two servers: one for uploaders of other nodes, a thread a connection; one for metrics. */
#include "uploader/port/port.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/net.h"
#include "common/text.h"

/* ---- listener: a socket, a thread that accepts, and a descriptor that stops it ---- */

struct listener {
    int listen_fd, stop_fd;
    struct cairn_up_thread thread;
};

static enum cairn_code listener_open(struct listener *listener, const char *address,
                                     const char *setting, uint16_t *ret_port,
                                     struct cairn_error *err) {
    *listener =
        (struct listener){.listen_fd = -1, .stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    enum cairn_code code = listener->stop_fd < 0 ? cairn_fail_errno(err, "eventfd") : CAIRN_OK;
    if (!code) code = cairn_net_listen_tcp(address, &listener->listen_fd, ret_port, err);
    return code ? cairn_within(err, code, "%s", setting) : CAIRN_OK;
}

/* -1: no connection, or accept failed; then it pauses, since poll would return at once (K08). */
static int listener_accept(const struct listener *listener) {
    struct pollfd stop = {.fd = listener->stop_fd, .events = POLLIN};
    struct cairn_error err = {0};
    int fd = -1;
    if (cairn_net_accept(listener->listen_fd, &fd, &err))
        (void)poll(&stop, 1, CAIRN_NET_ACCEPT_PAUSE_MS);
    return fd;
}

static void listener_stop(struct listener *listener) {
    const uint64_t one = 1;
    if (listener->stop_fd >= 0) (void)!write(listener->stop_fd, &one, sizeof(one));
    cairn_up_thread_join(&listener->thread);
}

static void listener_close(struct listener *listener) {
    if (listener->listen_fd >= 0) close(listener->listen_fd);
    if (listener->stop_fd >= 0) close(listener->stop_fd);
}

/* ---- heads of peers, read strictly ---- */

enum { SEEN_HOST = 1, SEEN_RANGE = 2, SEEN_LENGTH = 4, SEEN_RIGHT = 8, SEEN_NONCE = 16 };

struct reading {
    const char *at, *end;
    unsigned seen, lines;
};

/* Reads a line without its end; false: the text ends within it, or it has a forbidden character. */
static bool next_line(struct reading *reading, struct cairn_view *ret) {
    const char *from = reading->at, *at = from;
    while (at < reading->end && *at != '\r') {
        unsigned char c = (unsigned char)*at++;
        if ((c < 0x20 && c != '\t') || c >= 0x7f) return false;
    }
    if (reading->end - at < 2 || at[1] != '\n') return false;
    *ret = (struct cairn_view){from, (size_t)(at - from)};
    reading->at = at + 2;
    return true;
}

/* Reads up to the space, which is dropped; false: no space, or too long. */
static bool take_word(struct cairn_view *line, char *ret, size_t capacity) {
    const char *text = line->data;
    const char *space = memchr(text, ' ', line->size);
    size_t size = space ? (size_t)(space - text) : 0;
    if (!size || size >= capacity) return false;
    memcpy(ret, text, size);
    ret[size] = '\0';
    *line = (struct cairn_view){space + 1, line->size - size - 1};
    return true;
}

static bool is_path(const char *path) {
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/";
    return path[0] == '/' && !path[strspn(path, allowed)];
}

static int read_start(struct cairn_view line, struct cairn_up_request_head *ret) {
    if (!take_word(&line, ret->method, sizeof(ret->method))) return 400;
    if (!take_word(&line, ret->path, sizeof(ret->path)) || !is_path(ret->path)) return 400;
    if (line.size != 8 || memcmp(line.data, "HTTP/1.1", 8) != 0) return 505;
    return strcmp(ret->method, "GET") != 0 && strcmp(ret->method, "PUT") != 0 ? 405 : 0;
}

static bool is_named(struct cairn_view name, const char *wanted) {
    return name.size == strlen(wanted) && !strncasecmp(name.data, wanted, name.size);
}

static bool copy(struct cairn_view value, char *ret, size_t capacity) {
    if (!value.size || value.size >= capacity) return false;
    memcpy(ret, value.data, value.size);
    ret[value.size] = '\0';
    return true;
}

static bool read_number(struct cairn_view text, uint64_t *ret) {
    return text.size && text.size < 20 && !cairn_parse_u64(text, ret, NULL);
}

static bool read_range(struct cairn_view value, struct cairn_up_request_head *ret) {
    if (!copy(value, ret->range, sizeof(ret->range)) || !cairn_text_starts(ret->range, "bytes="))
        return false;
    const char *from = ret->range + 6, *dash = strchr(from, '-');
    if (!dash) return false;
    ret->has_range = true;
    return read_number((struct cairn_view){from, (size_t)(dash - from)}, &ret->first) &&
           read_number(cairn_view_of(dash + 1), &ret->last) && ret->first <= ret->last;
}

static bool read_nonce(struct cairn_view value, struct cairn_up_request_head *ret) {
    return value.size == sizeof(ret->nonce) - 1 && copy(value, ret->nonce, sizeof(ret->nonce)) &&
           strspn(ret->nonce, "0123456789abcdef") == value.size;
}

static bool first_time(struct reading *reading, unsigned what) {
    bool first = !(reading->seen & what);
    reading->seen |= what;
    return first;
}

static int read_header(struct reading *reading, struct cairn_view name, struct cairn_view value,
                       struct cairn_up_request_head *ret) {
    if (is_named(name, "Transfer-Encoding")) return 501;
    if (is_named(name, "Expect")) return 417;
    if (is_named(name, "Connection")) ret->closes = is_named(value, "close");
    if (is_named(name, "Host")) return first_time(reading, SEEN_HOST) ? 0 : 400;
    if (is_named(name, "Range"))
        return first_time(reading, SEEN_RANGE) && read_range(value, ret) ? 0 : 400;
    if (is_named(name, "Authorization"))
        return first_time(reading, SEEN_RIGHT) && copy(value, ret->right, sizeof(ret->right)) ? 0
                                                                                              : 400;
    if (is_named(name, CAIRN_PEER_NONCE_HEADER))
        return first_time(reading, SEEN_NONCE) && read_nonce(value, ret) ? 0 : 400;
    if (!is_named(name, "Content-Length")) return 0;
    ret->has_body = true;
    return first_time(reading, SEEN_LENGTH) && read_number(value, &ret->body_bytes) ? 0 : 400;
}

static bool is_token(struct cairn_view name) {
    const char *text = name.data;
    for (size_t i = 0; i < name.size; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", text[i]))
            return false;
    return name.size > 0;
}

static int read_line(struct reading *reading, struct cairn_view line,
                     struct cairn_up_request_head *ret) {
    const char *text = line.data, *colon = memchr(text, ':', line.size);
    if (!colon || ++reading->lines > CAIRN_UP_HEAD_LINES_MAX) return 400;
    struct cairn_view name = {text, (size_t)(colon - text)};
    struct cairn_view value = {colon + 1, line.size - name.size - 1};
    if (!is_token(name)) return 400;
    return read_header(reading, name, cairn_text_trimmed(value), ret);
}

int cairn_up_head_read(struct cairn_view text, struct cairn_up_request_head *ret) {
    struct reading reading = {.at = text.data, .end = (const char *)text.data + text.size};
    struct cairn_view line;
    *ret = (struct cairn_up_request_head){0};
    if (text.size > CAIRN_UP_HEAD_BYTES_MAX || !next_line(&reading, &line)) return 400;
    int status = read_start(line, ret);
    while (!status) {
        if (!next_line(&reading, &line)) return 400;
        if (!line.size) break;
        status = read_line(&reading, line, ret);
    }
    if (status) return status;
    if (!(reading.seen & SEEN_HOST) || reading.at != reading.end) return 400;
    bool is_put = !strcmp(ret->method, "PUT");
    if (is_put && !ret->has_body) return 411;
    if (is_put && ret->has_range) return 400;
    return !is_put && ret->body_bytes ? 400 : 0;
}

/* ---- uploaders of other nodes ---- */

#define STEP_BYTES CAIRN_MIB /* each has CAIRN_UP_PORT_MS */

struct cairn_up_connection {
    struct cairn_up_connection *next;
    struct cairn_up_port *port;
    pthread_t thread;
    int fd;
    bool over;   /* locked: its thread is about to return */
    size_t size; /* bytes read and not used yet: */
    char input[CAIRN_UP_HEAD_BYTES_MAX];
};
struct cairn_up_port {
    struct cairn_up_port_options options;
    char address[CAIRN_UP_ADDRESS_BYTES + 1];
    struct cairn_up_route routes[CAIRN_UP_ROUTES_MAX];
    size_t route_count;
    struct listener listener;
    struct cairn_lock lock; /* uploader_port */
    struct {
        struct cairn_up_connection *connections;
        size_t count;
        bool stopping;
        struct cairn_log_limit log_limit;
    } locked;
};

/* False: no bytes by the deadline, or the uploader stops. */
static bool wait_for(const struct cairn_up_port *port, int fd, uint64_t deadline_ms) {
    struct pollfd waiting[] = {{.fd = fd, .events = POLLIN},
                               {.fd = port->listener.stop_fd, .events = POLLIN}};
    for (;;) {
        uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, deadline_ms);
        int ready = poll(waiting, 2, (int)left_ms);
        if (waiting[1].revents || (!ready && !left_ms)) return false;
        if (ready > 0) return true;
        if (ready < 0 && errno != EINTR) return false;
    }
}

/* Waits for some bytes; 0: the peer closed, or the deadline is over. */
static size_t take_bytes(struct cairn_up_connection *connection, void *into, size_t room,
                         uint64_t deadline_ms) {
    while (wait_for(connection->port, connection->fd, deadline_ms)) {
        ssize_t got = read(connection->fd, into, room);
        if (got > 0) return (size_t)got;
        if (got == 0 || (errno != EAGAIN && errno != EINTR)) return 0;
    }
    return 0;
}

/* The size of the head in input with its empty line; 0: incomplete. */
static size_t head_size(const struct cairn_up_connection *connection) {
    const char *end = memmem(connection->input, connection->size, "\r\n\r\n", 4);
    return end ? (size_t)(end - connection->input) + 4 : 0;
}

/* False: close without an answer. *ret_size 0: the head is too long. */
static bool take_head(struct cairn_up_connection *connection, size_t *ret_size) {
    uint64_t now_ms = cairn_mono_ms();
    uint64_t deadline_ms = now_ms + (connection->size ? CAIRN_UP_PORT_MS : CAIRN_UP_PORT_QUIET_MS);
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

static enum cairn_code send_bytes(struct cairn_up_call *call, struct cairn_view bytes,
                                  struct cairn_error *err) {
    const char *at = bytes.data;
    if (call->broken) return cairn_fail(err, CAIRN_UNAVAILABLE, "the peer's connection is broken");
    for (size_t left = bytes.size; left;) {
        size_t size = (size_t)cairn_min_u64(left, STEP_BYTES);
        enum cairn_code code = cairn_net_send(call->connection->fd, (struct cairn_view){at, size},
                                              NULL, 0, cairn_mono_ms() + CAIRN_UP_PORT_MS, err);
        call->broken = code != CAIRN_OK;
        CAIRN_TRY(code);
        at += size;
        left -= size;
    }
    return CAIRN_OK;
}

enum cairn_code cairn_up_call_sign(struct cairn_up_call *call, struct cairn_error *err) {
    CAIRN_ASSERT(!call->answered);
    return send_bytes(call, cairn_view_of("HTTP/1.1 102 Processing\r\n\r\n"), err);
}

/* True when a quarter of the connections is left: quiet ones then close to make room. */
static bool is_crowded(struct cairn_up_port *port) {
    CAIRN_HOLD(&port->lock);
    return 4 * port->locked.count > 3 * port->options.connections_max;
}

/* The header with the answer's MAC; "" for a request that was not admitted or has no nonce. */
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
    /* The rest of an unwanted body is not read; the connection closes. */
    if (call->received_bytes < call->head.body_bytes) call->head.closes = true;
    if (is_crowded(call->port)) call->head.closes = true;
    prove(call, status, bytes, proof);
    int size =
        snprintf(text, sizeof(text), "HTTP/1.1 %d %s\r\nContent-Length: %" PRIu64 "\r\n%s%s%s\r\n",
                 status, status < 300 ? "OK" : "Refused", bytes, headers, proof,
                 call->head.closes ? "Connection: close\r\n" : "");
    CAIRN_ASSERT(size > 0);
    CAIRN_ASSERT((size_t)size < sizeof(text));
    return send_bytes(call, (struct cairn_view){text, (size_t)size}, err);
}

enum cairn_code cairn_up_call_send(struct cairn_up_call *call, struct cairn_view bytes,
                                   struct cairn_error *err) {
    CAIRN_ASSERT(call->answered);
    CAIRN_ASSERT(bytes.size <= call->owed_bytes);
    call->owed_bytes -= bytes.size;
    return send_bytes(call, bytes, err);
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
        size_t got = (size_t)cairn_min_u64(bytes, connection->size); /* arrived with the head */
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
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "this node does not hold attempt %" PRIu64 " of %s/%s",
                          call->right.attempt, call->right.run.project, call->right.run.run);
    call->admitted = cairn_peer_check(&call->right, &request, call->key);
    return call->admitted
               ? CAIRN_OK
               : cairn_fail(err, CAIRN_FORBIDDEN, "what node %s shows is not signed by its grant",
                            call->right.from);
}

/* Rate-limited: strangers could fill the disk with log lines. */
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
static bool serve_request(struct cairn_up_connection *connection, size_t size) {
    struct cairn_up_port *port = connection->port;
    struct cairn_up_call call = {.port = port, .connection = connection};
    struct cairn_error why = {0};
    int status =
        size ? cairn_up_head_read((struct cairn_view){connection->input, size}, &call.head) : 431;
    if (status) {
        call.head.closes = true; /* the start of the next request is unknown */
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
    while (take_head(connection, &size) && serve_request(connection, size)) continue;
    close(connection->fd);
    CAIRN_HOLD(&port->lock);
    connection->over = true;
    return NULL;
}

/* Joins ended threads (all: every thread) and frees their connections. No lock is held. */
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
    struct cairn_up_connection *connection = has_room(port) ? calloc(1, sizeof(*connection)) : NULL;
    if (!connection) {
        turn_away(fd);
        return;
    }
    connection->port = port;
    connection->fd = fd;
    CAIRN_HOLD(&port->lock); /* Under the lock: the thread may end before it is listed. */
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
        struct pollfd waiting[] = {{.fd = port->listener.listen_fd, .events = POLLIN},
                                   {.fd = port->listener.stop_fd, .events = POLLIN}};
        (void)poll(waiting, 2, -1);
        if (waiting[1].revents) return NULL;
        int fd = listener_accept(&port->listener);
        if (fd >= 0) take_in(port, fd);
    }
}

enum cairn_code cairn_up_port_new(const struct cairn_up_port_options *options,
                                  struct cairn_up_port **ret, struct cairn_error *err) {
    struct cairn_up_port *port = calloc(1, sizeof(*port));
    uint16_t number = 0;
    if (!port) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the port of peers");
    port->options = *options;
    cairn_lock_init(&port->lock, CAIRN_LOCK_uploader_port);
    enum cairn_code code =
        listener_open(&port->listener, options->listen, "peer_listen", &number, err);
    if (!code)
        code =
            cairn_up_address_told(options->listen, options->advertise, number, port->address, err);
    if (code) {
        cairn_up_port_free(port);
        return code;
    }
    *ret = port;
    return CAIRN_OK;
}

void cairn_up_port_route(struct cairn_up_port *port, const struct cairn_up_route *route) {
    CAIRN_ASSERT(!port->listener.thread.started);
    CAIRN_ASSERT(port->route_count < CAIRN_UP_ROUTES_MAX);
    port->routes[port->route_count++] = *route;
}

enum cairn_code cairn_up_port_start(struct cairn_up_port *port, struct cairn_error *err) {
    CAIRN_TRY(
        cairn_up_thread_start(&port->listener.thread, port_main, port, "the port of peers", err));
    cairn_log(INFO, "peers.listening", "address=%s told=%s", port->options.listen, port->address);
    return CAIRN_OK;
}

void cairn_up_port_stop(struct cairn_up_port *port) {
    if (!port) return;
    cairn_lock_take(&port->lock);
    port->locked.stopping = true;
    cairn_lock_give(&port->lock);
    listener_stop(&port->listener);
    join_connections(port, true);
}

void cairn_up_port_free(struct cairn_up_port *port) {
    if (!port) return;
    cairn_up_port_stop(port);
    listener_close(&port->listener);
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

/* ---- metrics ---- */

#define HEAD_BYTES_MAX 8192
#define CALLERS_MAX CAIRN_UP_SCRAPE_CALLERS_MAX
#define PAGE_BYTES_MAX (4 * CAIRN_MIB)

/* fd -1: a free place. answer: empty until the request's head is whole. */
struct caller {
    int fd;
    uint64_t since_ms; /* mono clock: when it connected, or its answer was made */
    char head[HEAD_BYTES_MAX + 1];
    size_t head_size;
    struct cairn_buf answer;
    size_t sent;
};

struct cairn_up_scrape {
    struct listener listener;
    enum cairn_code (*write_page)(void *owner, struct cairn_buf *ret, struct cairn_error *err);
    void *owner;
    struct caller callers[CALLERS_MAX]; /* the thread's */
};

static const char *status_of(const char *head) {
    if (cairn_text_starts(head, "GET /metrics HTTP/1.")) return "200 OK";
    if (cairn_text_starts(head, "GET /")) return "404 Not Found";
    return "405 Method Not Allowed\r\nAllow: GET";
}

static void drop_caller(struct caller *caller) {
    if (caller->fd >= 0) close(caller->fd);
    cairn_buf_release(&caller->answer);
    *caller = (struct caller){.fd = -1};
}

static enum cairn_code write_answer(struct cairn_up_scrape *scrape, struct caller *caller,
                                    struct cairn_error *err) {
    CAIRN_AUTO(buf) page = {.limit = PAGE_BYTES_MAX};
    const char *status = status_of(caller->head);
    caller->answer.limit = PAGE_BYTES_MAX + HEAD_BYTES_MAX;
    caller->since_ms = cairn_mono_ms();
    if (*status == '2') CAIRN_TRY(scrape->write_page(scrape->owner, &page, err));
    CAIRN_TRY(cairn_buf_printf(&caller->answer, err,
                               "HTTP/1.1 %s\r\nContent-Type: " CAIRN_METRICS_TYPE
                               "\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n"
                               "Connection: close\r\n\r\n",
                               status, page.size));
    return cairn_buf_append(&caller->answer, page.data, page.size, err);
}

/* Reads a request's head and ignores a body. False: the caller is done. */
static bool read_caller(struct cairn_up_scrape *scrape, struct caller *caller) {
    struct cairn_error err = {0};
    ssize_t got =
        read(caller->fd, caller->head + caller->head_size, HEAD_BYTES_MAX - caller->head_size);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (!got) return false;
    caller->head_size += (size_t)got;
    caller->head[caller->head_size] = '\0';
    if (!strstr(caller->head, "\r\n\r\n")) return caller->head_size < HEAD_BYTES_MAX;
    if (!write_answer(scrape, caller, &err)) return true;
    cairn_log(DEBUG, "metrics.unanswered", "cause=\"%s\"", err.message);
    return false;
}

static bool send_answer(struct caller *caller) {
    ssize_t sent = send(caller->fd, caller->answer.data + caller->sent,
                        caller->answer.size - caller->sent, MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    caller->sent += (size_t)sent;
    return caller->sent < caller->answer.size;
}

/* Reads or writes as much as possible without blocking. */
static void serve_caller(struct cairn_up_scrape *scrape, struct caller *caller) {
    bool open = true;
    if (!caller->answer.size) open = read_caller(scrape, caller);
    if (open && caller->answer.size) open = send_answer(caller);
    if (!open) drop_caller(caller);
}

static struct caller *make_place(struct cairn_up_scrape *scrape) {
    for (size_t i = 0; i < CALLERS_MAX; i++)
        if (scrape->callers[i].fd < 0) return &scrape->callers[i];
    /* Picks the caller to replace: the oldest incomplete head, else the oldest unread answer. */
    struct caller *found = &scrape->callers[0];
    for (size_t i = 1; i < CALLERS_MAX; i++) {
        struct caller *one = &scrape->callers[i];
        bool answered = one->answer.size, before = found->answer.size;
        if (answered == before ? one->since_ms < found->since_ms : before) found = one;
    }
    drop_caller(found);
    return found;
}

/* Accepts a caller and serves it at once, since its request may have arrived. */
static void take_caller(struct cairn_up_scrape *scrape) {
    int fd = listener_accept(&scrape->listener);
    if (fd < 0) return;
    struct caller *caller = make_place(scrape);
    caller->fd = fd;
    caller->since_ms = cairn_mono_ms();
    serve_caller(scrape, caller);
}

/* Drops overdue callers; returns the time until the next is overdue, -1: none. */
static int cut_overdue(struct cairn_up_scrape *scrape) {
    uint64_t now_ms = cairn_mono_ms(), left_ms = UINT64_MAX;
    for (size_t i = 0; i < CALLERS_MAX; i++) {
        struct caller *one = &scrape->callers[i];
        if (one->fd < 0) continue;
        uint64_t until_ms = one->since_ms + CAIRN_UP_SCRAPE_MS;
        if (until_ms <= now_ms)
            drop_caller(one);
        else
            left_ms = cairn_min_u64(left_ms, until_ms - now_ms);
    }
    return left_ms == UINT64_MAX ? -1 : (int)left_ms;
}

static void *scrape_main(void *argument) {
    struct cairn_up_scrape *scrape = argument;
    pthread_setname_np(pthread_self(), "scrape");
    for (;;) {
        struct pollfd waiting[2 + CALLERS_MAX] = {
            {.fd = scrape->listener.stop_fd, .events = POLLIN},
            {.fd = scrape->listener.listen_fd, .events = POLLIN}};
        int left_ms = cut_overdue(scrape);
        for (size_t i = 0; i < CALLERS_MAX; i++)
            waiting[2 + i] =
                (struct pollfd){.fd = scrape->callers[i].fd,
                                .events = scrape->callers[i].answer.size ? POLLOUT : POLLIN};
        (void)poll(waiting, CAIRN_COUNT(waiting), left_ms);
        if (waiting[0].revents) return NULL;
        for (size_t i = 0; i < CALLERS_MAX; i++)
            if (waiting[2 + i].revents) serve_caller(scrape, &scrape->callers[i]);
        if (waiting[1].revents) take_caller(scrape);
    }
}

enum cairn_code cairn_up_scrape_start(
    const char *address,
    enum cairn_code (*write_page)(void *owner, struct cairn_buf *ret, struct cairn_error *err),
    void *owner, struct cairn_up_scrape **ret, struct cairn_error *err) {
    uint16_t port = 0;
    if (!*address) return CAIRN_OK;
    struct cairn_up_scrape *scrape = calloc(1, sizeof(*scrape));
    if (!scrape) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for metrics");
    scrape->write_page = write_page;
    scrape->owner = owner;
    for (size_t i = 0; i < CALLERS_MAX; i++) scrape->callers[i].fd = -1;
    enum cairn_code code = listener_open(&scrape->listener, address, "metrics_listen", &port, err);
    if (!code)
        code = cairn_up_thread_start(&scrape->listener.thread, scrape_main, scrape, "metrics", err);
    if (code) {
        cairn_up_scrape_stop(scrape);
        return code;
    }
    cairn_log(INFO, "metrics.listening", "address=%s port=%u", address, port);
    *ret = scrape;
    return CAIRN_OK;
}

void cairn_up_scrape_stop(struct cairn_up_scrape *scrape) {
    if (!scrape) return;
    listener_stop(&scrape->listener);
    for (size_t i = 0; i < CALLERS_MAX; i++) drop_caller(&scrape->callers[i]);
    listener_close(&scrape->listener);
    free(scrape);
}
