/* SPDX-License-Identifier: Apache-2.0 */
/* libmicrohttpd as far as server/http/ uses it: one event loop, connections that are suspended
 * and resumed, responses from memory and from a callback. A connection has one request. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "server/http/http.h"
#include "server/http/inside.h"
#include "tests/sim/net.h"

struct MHD_Response {
    size_t references;
    uint64_t size;
    void *data;
    bool must_free;
    MHD_ContentReaderCallback read;
    void *read_owner;
    MHD_ContentReaderFreeCallback read_free;
    char *names[SIM_REPLY_HEADERS_MAX], *values[SIM_REPLY_HEADERS_MAX];
    size_t header_count;
};

struct MHD_Connection {
    struct MHD_Daemon *daemon;
    struct sim_exchange *exchange;
    struct MHD_Connection *next;
    void *request; /* the server's */
    bool started, body_given, suspended, ready;
    struct MHD_Response *response;
    unsigned status;
    uint64_t read_bytes;
    void *context; /* the server's, of the connection */
    union MHD_ConnectionInfo info;
};

struct MHD_Daemon {
    struct sim_process *process;
    MHD_AccessHandlerCallback handle;
    void *handle_owner;
    void *(*log_target)(void *cls, const char *uri, struct MHD_Connection *connection);
    void *log_owner;
    MHD_RequestCompletedCallback completed;
    void *completed_owner;
    MHD_NotifyConnectionCallback notify;
    void *notify_owner;
    struct MHD_Connection *connections;
    bool quiet, stopping;
    struct sim_fiber *loop;
};
static struct MHD_Daemon *running;

/* ---- responses ---- */

struct MHD_Response *MHD_create_response_from_buffer(size_t size, void *buffer,
                                                     enum MHD_ResponseMemoryMode mode) {
    struct MHD_Response *response = calloc(1, sizeof *response);
    response->references = 1;
    response->size = size;
    response->data = buffer;
    response->must_free = mode == MHD_RESPMEM_MUST_FREE;
    return response;
}

struct MHD_Response *MHD_create_response_from_callback(uint64_t size, size_t block_size,
                                                       MHD_ContentReaderCallback read, void *owner,
                                                       MHD_ContentReaderFreeCallback release) {
    (void)block_size;
    struct MHD_Response *response = calloc(1, sizeof *response);
    response->references = 1;
    response->size = size;
    response->read = read;
    response->read_owner = owner;
    response->read_free = release;
    return response;
}

enum MHD_Result MHD_add_response_header(struct MHD_Response *response, const char *name,
                                        const char *value) {
    if (response->header_count == SIM_REPLY_HEADERS_MAX) return MHD_NO;
    response->names[response->header_count] = strdup(name);
    response->values[response->header_count++] = strdup(value);
    return MHD_YES;
}

void MHD_destroy_response(struct MHD_Response *response) {
    if (--response->references) return;
    if (response->must_free) free(response->data);
    if (response->read_free) response->read_free(response->read_owner);
    for (size_t i = 0; i < response->header_count; i++) {
        free(response->names[i]);
        free(response->values[i]);
    }
    free(response);
}

enum MHD_Result MHD_queue_response(struct MHD_Connection *connection, unsigned status,
                                   struct MHD_Response *response) {
    CAIRN_ASSERT(!connection->response);
    response->references++;
    connection->response = response;
    connection->status = status;
    return MHD_YES;
}

/* ---- what a handler asks of its connection ---- */

const union MHD_ConnectionInfo *MHD_get_connection_info(struct MHD_Connection *connection,
                                                        enum MHD_ConnectionInfoType type, ...) {
    if (type == MHD_CONNECTION_INFO_CONNECTION_FD)
        connection->info.connect_fd = -1; /* no socket: what is done to it does nothing */
    else if (type == MHD_CONNECTION_INFO_SOCKET_CONTEXT)
        connection->info.socket_context = connection->context;
    else
        return NULL;
    return &connection->info;
}

const char *MHD_lookup_connection_value(struct MHD_Connection *connection, enum MHD_ValueKind kind,
                                        const char *name) {
    const struct sim_exchange *exchange = connection->exchange;
    (void)kind;
    for (size_t i = 0; i < exchange->header_count; i++)
        if (!strcasecmp(exchange->headers[i], name)) return exchange->values[i];
    return NULL;
}

void MHD_suspend_connection(struct MHD_Connection *connection) {
    connection->suspended = true;
}

void MHD_resume_connection(struct MHD_Connection *connection) {
    connection->suspended = false;
    connection->ready = true;
    sim_wake_all(connection->daemon);
}

/* ---- the event loop ---- */

static void finish(struct MHD_Connection *connection, bool broken) {
    struct sim_exchange *exchange = connection->exchange;
    struct MHD_Daemon *daemon = connection->daemon;
    struct MHD_Response *response = connection->response;
    for (size_t i = 0; response && i < response->header_count; i++) {
        exchange->reply_names[i] = strdup(response->names[i]);
        exchange->reply_values[i] = strdup(response->values[i]);
        exchange->reply_header_count = i + 1;
    }
    exchange->status = (int)connection->status;
    exchange->broken = broken;
    if (response) MHD_destroy_response(response);
    daemon->completed(daemon->completed_owner, connection, &connection->request,
                      broken ? MHD_REQUEST_TERMINATED_WITH_ERROR
                             : MHD_REQUEST_TERMINATED_COMPLETED_OK);
    daemon->notify(daemon->notify_owner, connection, &connection->context,
                   MHD_CONNECTION_NOTIFY_CLOSED);
    for (struct MHD_Connection **at = &daemon->connections; *at; at = &(*at)->next) {
        if (*at != connection) continue;
        *at = connection->next;
        break;
    }
    free(connection);
    exchange->done = true;
    sim_wake_all(exchange);
}

/* The body of an answer; true when there is nothing more to do for now. */
static void give_reply(struct MHD_Connection *connection) {
    struct MHD_Response *response = connection->response;
    struct sim_exchange *exchange = connection->exchange;
    bool head = !strcmp(exchange->method, "HEAD");
    uint64_t size = head ? 0 : response->size;
    if (!exchange->reply) exchange->reply = malloc(size + 1);
    if (!response->read) {
        memcpy(exchange->reply, response->data, size);
        exchange->reply_bytes = size;
    }
    while (response->read && exchange->reply_bytes < size) {
        ssize_t got = response->read(response->read_owner, exchange->reply_bytes,
                                     (char *)exchange->reply + exchange->reply_bytes,
                                     size - exchange->reply_bytes);
        if (got < 0) {
            finish(connection, true);
            return;
        }
        exchange->reply_bytes += (size_t)got;
        if (!got && connection->suspended) return;
    }
    finish(connection, false);
}

static enum MHD_Result call(struct MHD_Connection *connection, const char *data, size_t *size) {
    struct MHD_Daemon *daemon = connection->daemon;
    const struct sim_exchange *exchange = connection->exchange;
    return daemon->handle(daemon->handle_owner, connection, exchange->target, exchange->method,
                          "HTTP/1.1", data, size, &connection->request);
}

/* One turn of a connection, as the library does it: first call, body, last call. */
static void serve(struct MHD_Connection *connection) {
    const struct sim_exchange *exchange = connection->exchange;
    size_t none = 0;
    enum MHD_Result result = MHD_YES;
    connection->ready = false;
    if (!connection->started) {
        connection->started = true;
        connection->daemon->notify(connection->daemon->notify_owner, connection,
                                   &connection->context, MHD_CONNECTION_NOTIFY_STARTED);
        connection->request = connection->daemon->log_target(connection->daemon->log_owner,
                                                             exchange->target, connection);
        result = call(connection, NULL, &none);
    }
    if (result == MHD_YES && !connection->response && !connection->body_given) {
        connection->body_given = true;
        size_t size = exchange->body_bytes;
        if (size) result = call(connection, (const char *)exchange->body, &size);
    }
    if (result == MHD_YES && !connection->response) result = call(connection, NULL, &none);
    if (result != MHD_YES)
        finish(connection, true);
    else if (connection->response)
        give_reply(connection);
}

static void *loop(void *argument) {
    struct MHD_Daemon *daemon = argument;
    while (!daemon->stopping || daemon->connections) {
        struct MHD_Connection *next = daemon->connections;
        while (next && (next->suspended || !next->ready)) next = next->next;
        if (next)
            serve(next);
        else
            (void)sim_wait(daemon, UINT64_MAX);
    }
    return NULL;
}

/* ---- the daemon ---- */

static void take_options(struct MHD_Daemon *daemon, const struct MHD_OptionItem *items) {
    for (; items->option != MHD_OPTION_END; items++) {
        if (items->option == MHD_OPTION_URI_LOG_CALLBACK) {
            daemon->log_target =
                (void *(*)(void *, const char *, struct MHD_Connection *))items->value;
            daemon->log_owner = items->ptr_value;
        } else if (items->option == MHD_OPTION_NOTIFY_COMPLETED) {
            daemon->completed = (MHD_RequestCompletedCallback)items->value;
            daemon->completed_owner = items->ptr_value;
        } else if (items->option == MHD_OPTION_NOTIFY_CONNECTION) {
            daemon->notify = (MHD_NotifyConnectionCallback)items->value;
            daemon->notify_owner = items->ptr_value;
        }
    }
}

struct MHD_Daemon *MHD_start_daemon(unsigned flags, uint16_t port, MHD_AcceptPolicyCallback accepts,
                                    void *accepts_owner, MHD_AccessHandlerCallback handle,
                                    void *handle_owner, ...) {
    (void)flags, (void)port, (void)accepts, (void)accepts_owner;
    struct MHD_Daemon *daemon = calloc(1, sizeof *daemon);
    daemon->process = sim_self();
    daemon->handle = handle;
    daemon->handle_owner = handle_owner;
    va_list arguments;
    va_start(arguments, handle_owner);
    if (va_arg(arguments, enum MHD_OPTION) == MHD_OPTION_ARRAY)
        take_options(daemon, va_arg(arguments, struct MHD_OptionItem *));
    va_end(arguments);
    daemon->loop = sim_spawn(sim_self(), loop, daemon);
    running = daemon;
    return daemon;
}

void MHD_stop_daemon(struct MHD_Daemon *daemon) {
    daemon->quiet = daemon->stopping = true;
    sim_wake_all(daemon);
    (void)sim_join(daemon->loop);
    if (running == daemon) running = NULL;
    free(daemon);
}

bool sim_mhd_submit(struct sim_exchange *exchange) {
    if (!running || running->quiet || !running->process->alive) return false;
    struct MHD_Connection *connection = calloc(1, sizeof *connection);
    connection->daemon = running;
    connection->exchange = exchange;
    connection->ready = true;
    struct MHD_Connection **last = &running->connections;
    while (*last) last = &(*last)->next;
    *last = connection;
    sim_wake_all(running);
    return true;
}

void sim_mhd_killed(const struct sim_process *process) {
    if (!running || running->process != process) return;
    struct MHD_Connection *connections = running->connections;
    running = NULL;
    for (; connections; connections = connections->next) {
        connections->exchange->broken = connections->exchange->done = true;
        sim_wake_all(connections->exchange);
    }
}

/* ---- what server/http/http.c has beside the library ---- */

/* Requests come without a socket, see sim_mhd_submit. */
enum cairn_code srv_acceptor_open(struct srv_http *http, struct cairn_error *err) {
    (void)http, (void)err;
    return CAIRN_OK;
}

void srv_acceptor_close(struct srv_http *http) {
    if (http->daemon) http->daemon->quiet = true;
}

/* The bytes of a request never lay in memory as they came, so there is nothing to prove. */
enum cairn_code srv_shape_check(struct srv_exchange *exchange, const char *method,
                                const char *version, struct cairn_error *err) {
    (void)exchange, (void)method, (void)version, (void)err;
    return CAIRN_OK;
}

/* Nor does a request come from a browser. */
enum cairn_code srv_site_check(struct srv_exchange *exchange, const char *method,
                               struct cairn_error *err) {
    (void)exchange, (void)method, (void)err;
    return CAIRN_OK;
}

const struct srv_cors *srv_site_cors(const struct srv_exchange *exchange) {
    static const struct srv_cors none[] = {{NULL, NULL}};
    (void)exchange;
    return none;
}

void srv_site_init(struct srv_http *http) {
    (void)http;
}

enum cairn_code srv_http_self_test(const char *listen, uint16_t port, struct cairn_error *err) {
    (void)listen, (void)port, (void)err;
    return CAIRN_OK;
}
