/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon, and the steps of one request; see http.h. */

#include <arpa/inet.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/log.h"
#include "common/net.h"
#include "server/http/above.h"
#include "server/http/inside.h"

#define VALUES_COUNTED_FROM (16 * CAIRN_KIB)
#define ROOM_MADE_FROM (64 * CAIRN_KIB) /* a smaller body costs no more than announcing it */
#define MOVES_BYTES (64 * CAIRN_KIB)    /* a body that has grown by this has made progress */
#define CONTAINER_BYTES 240             /* an empty jansson object; measured */
#define VALUE_BYTES 64                  /* an integer with its place in a container; measured */
#define COUNTED_AT_ONCE 64              /* bytes per step of the vectorized count */
#define HEAVY_FROM CAIRN_MIB            /* size of parsed values: parsing takes milliseconds */
#define BUSY_ANSWER_MS 250 /* delay of the refusal of a body for which memory was lacking */
#define DROPPED_BYTES_MAX (64 * CAIRN_MIB) /* no body is larger */
#define LOOPS_MAX 4
#define SHARED_LOOK_MS 150 /* without notifications from other servers */
#define HEARD_LOOK_MS 1000 /* with them: in case one is lost */
/* TLS 1.2 with forward secrecy and authenticated ciphers only: no RSA key exchange, no CBC. */
#define TLS_PRIORITIES                                                                             \
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-RSA:-CIPHER-ALL:+AES-256-GCM:+AES-128-GCM:"       \
    "+CHACHA20-POLY1305"
#define FILES_RESERVED (160 + SRV_LOBBY_MAX) /* catalog, store workers, pools; callers */

static void run_handler(struct srv_exchange *exchange) {
    exchange->code = srv_handle(&exchange->request, &exchange->reply, &exchange->error);
}

/* ---- the pools' side ---- */

/* A change may hold its thread until others share its commit; reads never queue behind it. */
static bool push(struct srv_exchange *exchange) {
    const struct srv *server = exchange->http->server;
    const struct cairn_route *route = exchange->request.route;
    bool looks = !strcmp(route->method, "GET") || !strcmp(route->method, "HEAD");
    struct srv_pool *pool = looks ? server->looks : server->requests;
    if (route->plans) pool = server->plans;
    if (exchange->values_bytes >= HEAVY_FROM) pool = server->heavy;
    return srv_pool_push(pool, &exchange->task);
}

static void refuse_stopping(struct srv_exchange *exchange) {
    srv_reply_release(&exchange->reply);
    exchange->reply = (struct srv_reply){0};
    exchange->code = cairn_fail(&exchange->error, CAIRN_UNAVAILABLE, "the server is stopping");
    srv_exchange_finish(exchange);
}

static void wake_exchange(struct srv_waiter *waiter) {
    struct srv_exchange *exchange =
        (struct srv_exchange *)((char *)waiter - offsetof(struct srv_exchange, waiter));
    srv_parked_remove(exchange);
    if (!push(exchange)) refuse_stopping(exchange);
}

/* Another server's change wakes a request here when its notification arrives (catalog.h#6). */
static uint64_t look_again_ms(const struct srv_exchange *exchange) {
    const struct srv *server = exchange->http->server;
    uint64_t look_ms = srv_catalog_hears(server->catalog) ? HEARD_LOOK_MS : SHARED_LOOK_MS;
    if (!srv_catalog_is_shared(server->catalog)) return exchange->reply.park_until_ms;
    return cairn_min_u64(exchange->reply.park_until_ms, srv_mono_ms(server) + look_ms);
}

/* A timer ended a wait whose condition is met. With several servers on a catalog no notification is
 * required: their changes arrive late while the database is unreachable. */
static bool has_come(const struct srv_exchange *exchange) {
    const struct srv_reply *reply = &exchange->reply;
    bool vain = exchange->code || reply->park || reply->in_vain || reply->status == 304;
    return !vain && !srv_catalog_is_shared(exchange->http->server->catalog);
}

static void run_exchange(struct srv_task *task, struct cairn_store_worker *worker) {
    struct srv_exchange *exchange = (struct srv_exchange *)task;
    struct srv_http *http = exchange->http;
    exchange->request.store = worker;
    bool due = exchange->waiter.timed_out && exchange->reply.rung;
    exchange->request.seen = srv_waiters_look(http->server->waiters);
    do { /* again if the server stops meanwhile: as after a time-out */
        exchange->request.wait_over = http->stopping;
        run_handler(exchange);
        due &= !exchange->request.wait_over;
        if (due && has_come(exchange)) srv_waiters_late(http->server->waiters, &exchange->waiter);
        if (exchange->code || !exchange->reply.park) {
            srv_exchange_finish(exchange);
            return;
        }
    } while (http->stopping && !exchange->request.wait_over);
    if (http->stopping) {
        refuse_stopping(exchange);
        return;
    }
    exchange->waiter = (struct srv_waiter){.key = exchange->reply.park_key,
                                           .seen = exchange->request.seen,
                                           .wake_ms = look_again_ms(exchange),
                                           .wake = wake_exchange};
    srv_parked_add(exchange);
    srv_waiters_park(http->server->waiters, &exchange->waiter);
}

/* ---- the event loop's side ---- */

static enum MHD_Result dispatch(struct srv_exchange *exchange) {
    struct srv *server = exchange->http->server;
    exchange->dispatched = true;
    atomic_fetch_add(&exchange->http->answering, 1);
    exchange->conn->moved_ms = UINT64_MAX; /* the peer need not move while its request is handled */
    exchange->request.body = cairn_buf_view(&exchange->body);
    exchange->request.arrived_ms = srv_mono_ms(server);
    if (exchange->request.route->on_loop) {
        run_handler(exchange);
        return srv_http_reply(exchange);
    }
    enum MHD_Result given;
    if (srv_http_reply_again(exchange, &given)) return given;
    exchange->task.run = run_exchange;
    srv_conn_set(exchange->conn, UINT64_MAX);
    MHD_suspend_connection(exchange->connection);
    if (!push(exchange)) refuse_stopping(exchange);
    return MHD_YES;
}

/* Takes `size` bytes of the share of memory that the request's body belongs to. */
static bool take_memory(struct srv_exchange *exchange, uint64_t size) {
    const struct cairn_route *route = exchange->request.route;
    bool of_save = route && route->of_save;
    return srv_memory_take(exchange, of_save ? SRV_MEMORY_BODIES_OF_SAVES : SRV_MEMORY_BODIES,
                           size);
}

/* Each MiB that has arrived adds a second: a slower body is an attack or useless. */
static void move_deadline(struct srv_exchange *exchange) {
    uint64_t allowed_ms = exchange->http->server->settings->request_timeout_ms;
    uint64_t used_ms = cairn_mono_ms() - exchange->begun_ms;
    allowed_ms += exchange->body.size / 1024;
    srv_conn_set(exchange->conn, allowed_ms > used_ms ? allowed_ms - used_ms : 0);
}

/* The peer's address, for events and rates; none for a Unix socket. */
static void note_peer(struct srv_exchange *exchange) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(exchange->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    char *to = exchange->request.from;
    size_t size = sizeof(exchange->request.from);
    if (!info || !info->client_addr) return;
    if (info->client_addr->sa_family == AF_INET)
        inet_ntop(AF_INET, &((const struct sockaddr_in *)info->client_addr)->sin_addr, to,
                  (socklen_t)size);
    if (info->client_addr->sa_family == AF_INET6)
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)info->client_addr)->sin6_addr, to,
                  (socklen_t)size);
}

static bool has_header(const struct srv_exchange *exchange, const char *name) {
    return MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND, name) != NULL;
}

/* True for a body: an immediate refusal would make the library close the connection with the body
 * unread, and the kernel reset it before the answer is read. Not with "100 Continue". */
static bool sends_body(const struct srv_exchange *exchange) {
    char length[32] = "";
    bool whole = srv_http_header(exchange, "Content-Length", length, sizeof(length), NULL);
    bool sends =
        !whole || (length[0] && strcmp(length, "0")) || has_header(exchange, "Transfer-Encoding");
    return sends && !has_header(exchange, "Expect");
}

static enum MHD_Result refuse(struct srv_exchange *exchange) {
    if (!sends_body(exchange)) return srv_http_reply(exchange);
    exchange->refused = true;
    srv_http_refuse(exchange);
    srv_conn_set(exchange->conn, exchange->http->server->settings->request_timeout_ms);
    return MHD_YES;
}

/* A refusal in the first callback closes the connection: right for malformed requests and unwanted
 * bodies. Other refusals wait for the second callback and keep the connection. */
static enum MHD_Result begin(struct srv_exchange *exchange, const char *method,
                             const char *version) {
    exchange->begun = true;
    exchange->begun_us = cairn_mono_us();
    exchange->begun_ms = exchange->begun_us / 1000;
    exchange->conn->arriving = NULL;
    exchange->code = srv_shape_check(exchange, method, version, &exchange->error);
    if (exchange->code) return refuse(exchange);
    note_peer(exchange);
    srv_proxied_note(exchange);
    exchange->code = srv_http_accept(exchange, method, &exchange->error);
    if (!exchange->code && !exchange->asks_only)
        exchange->code = srv_conn_admit(exchange, &exchange->error);
    if (exchange->code && (sends_body(exchange) || has_header(exchange, "Expect")))
        return refuse(exchange);
    if (!exchange->code && exchange->http->stopping)
        exchange->code = cairn_fail(&exchange->error, CAIRN_UNAVAILABLE, "the server is stopping");
    move_deadline(exchange);
    return MHD_YES;
}

/* Grows a long body in place: doubling would make the event loop copy it again and again. No
 * announced byte is touched before it arrives. */
static enum cairn_code keep_body(struct cairn_buf *body, const char *data, size_t size,
                                 struct cairn_error *err) {
    if (body->size >= ROOM_MADE_FROM)
        CAIRN_TRY(cairn_buf_reserve(body, body->limit - body->size, err));
    return cairn_buf_append(body, data, size, err);
}

/* A refused request takes no more memory: the rest of its body is read and dropped. */
static void take_body(struct srv_exchange *exchange, const char *data, size_t size) {
    if (exchange->code) return;
    if (!take_memory(exchange, size))
        exchange->code = cairn_fail(&exchange->error, CAIRN_BUSY,
                                    "too many request bodies are arriving; try again");
    else
        exchange->code = keep_body(&exchange->body, data, size, &exchange->error);
    move_deadline(exchange);
    if (exchange->body.size - exchange->lined_bytes >= MOVES_BYTES) {
        exchange->lined_bytes = exchange->body.size;
        srv_conn_line(exchange->http, exchange->conn, SRV_LINE_ARRIVING);
    }
    if (!exchange->code) return;
    cairn_buf_release(&exchange->body);
    srv_memory_give(exchange->http, exchange->conn);
}

/* Runs on the event loop, so it is branch-free, in blocks that the compiler vectorizes. */
static uint64_t values_bytes_of(const char *text, size_t size) {
    uint64_t containers = 0, values = 0;
    size_t i = 0;
    for (; i + COUNTED_AT_ONCE <= size; i += COUNTED_AT_ONCE) {
        uint8_t opening = 0, parting = 0;
        for (size_t k = 0; k < COUNTED_AT_ONCE; k++) {
            char c = text[i + k];
            opening = (uint8_t)(opening + (c == '{') + (c == '['));
            parting = (uint8_t)(parting + (c == ',') + (c == ':'));
        }
        containers += opening;
        values += parting;
    }
    for (; i < size; i++) {
        containers += text[i] == '{' || text[i] == '[';
        values += text[i] == ',' || text[i] == ':';
    }
    return containers * CONTAINER_BYTES + values * VALUE_BYTES;
}

/* Parsed values take many times their text ("{}," 80 times), so memory is taken before a worker
 * parses the body. Small bodies pass: at most one per worker. Characters in strings count, too. */
static void take_values(struct srv_exchange *exchange) {
    if (exchange->body.size < VALUES_COUNTED_FROM || exchange->request.route->bytes) return;
    exchange->values_bytes = values_bytes_of(exchange->body.data, exchange->body.size);
    if (!take_memory(exchange, exchange->values_bytes))
        exchange->code = cairn_fail(&exchange->error, CAIRN_BUSY,
                                    "too many large request bodies are being read; try again");
}

static void wake_refused(struct srv_waiter *waiter) {
    srv_exchange_finish(
        (struct srv_exchange *)((char *)waiter - offsetof(struct srv_exchange, waiter)));
}

/* Large bodies that are read in vain cost the event loops more than all other callers, and a client
 * may retry a refusal at once: so the refusal is delayed. */
static enum MHD_Result refuse_late(struct srv_exchange *exchange) {
    struct srv *server = exchange->http->server;
    cairn_buf_release(&exchange->body);
    srv_memory_give(exchange->http, exchange->conn);
    exchange->dispatched = true;
    atomic_fetch_add(&exchange->http->answering, 1);
    exchange->conn->moved_ms = UINT64_MAX;
    srv_conn_set(exchange->conn, UINT64_MAX);
    exchange->waiter = (struct srv_waiter){.key = srv_key_of("busy:"),
                                           .seen = srv_waiters_look(server->waiters),
                                           .wake_ms = srv_mono_ms(server) + BUSY_ANSWER_MS,
                                           .wake = wake_refused};
    MHD_suspend_connection(exchange->connection);
    srv_waiters_park(server->waiters, &exchange->waiter);
    return MHD_YES;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload_data,
                                  size_t *upload_data_size, void **req_cls) {
    struct srv_exchange *exchange = *req_cls;
    (void)cls, (void)connection, (void)url;
    if (!exchange || !exchange->conn) return MHD_NO;
    if (!exchange->begun) return begin(exchange, method, version);
    if (exchange->refused) {
        exchange->dropped_bytes += *upload_data_size;
        bool over = !*upload_data_size || exchange->dropped_bytes > DROPPED_BYTES_MAX;
        *upload_data_size = 0;
        return over ? MHD_NO : MHD_YES; /* the connection ends */
    }
    if (*upload_data_size) {
        take_body(exchange, upload_data, *upload_data_size);
        *upload_data_size = 0;
        return MHD_YES;
    }
    if (!exchange->dispatched) srv_conn_line(exchange->http, exchange->conn, SRV_LINE_NONE);
    if (exchange->asks_only && !exchange->code) {
        exchange->reply.status = MHD_HTTP_NO_CONTENT;
        return srv_http_reply(exchange);
    }
    if (!exchange->code && !exchange->dispatched) take_values(exchange);
    if (exchange->code == CAIRN_BUSY && !exchange->dispatched) return refuse_late(exchange);
    if (exchange->code && !exchange->dispatched) return srv_http_reply(exchange);
    if (!exchange->dispatched) return dispatch(exchange);
    return exchange->ready ? srv_http_reply(exchange) : MHD_YES;
}

/* Path and query of a target, on the heap. NULL: neither in the origin form nor in the absolute
 * form of RFC 9112, 3.2.2: "http://host:port/path?query", as a proxy is asked. */
static char *read_target(const char *uri, char ret_authority[SRV_HOST_BYTES_MAX]) {
    static const char *const schemes[] = {"http://", "https://"};
    ret_authority[0] = '\0';
    if (uri[0] == '/') return strdup(uri);
    for (size_t i = 0; i < CAIRN_COUNT(schemes); i++) {
        size_t scheme = strlen(schemes[i]);
        if (strncasecmp(uri, schemes[i], scheme) != 0) continue;
        const char *authority = uri + scheme;
        size_t size = strcspn(authority, "/?");
        const char *path = authority + size;
        /* A user before the host hides where a link leads (RFC 9110, 4.2.4). */
        if (!size || size >= SRV_HOST_BYTES_MAX || memchr(authority, '@', size)) return NULL;
        memcpy(ret_authority, authority, size);
        ret_authority[size] = '\0';
        char *target = NULL;
        return asprintf(&target, "%s%s", *path == '/' ? "" : "/", path) < 0 ? NULL : target;
    }
    return NULL;
}

/* Keeps the raw target, before the library decodes or cuts it. */
static void *on_target(void *cls, const char *uri, struct MHD_Connection *connection) {
    struct srv_exchange *exchange = calloc(1, sizeof(*exchange));
    if (!exchange) return NULL;
    exchange->http = cls;
    exchange->connection = connection;
    exchange->uri = uri;
    exchange->uri_size = strlen(uri);
    bool ok = true;
    for (size_t i = 0; i < exchange->uri_size; i++) {
        if (uri[i] < 0x21 || uri[i] > 0x7e || uri[i] == '#') ok = false;
    }
    exchange->target = ok ? read_target(uri, exchange->authority) : NULL;
    exchange->conn = srv_conn_of(connection);
    srv_conn_set(exchange->conn, exchange->http->server->settings->request_timeout_ms);
    srv_conn_line(exchange->http, exchange->conn, SRV_LINE_ARRIVING);
    if (exchange->conn) {
        srv_exchange_free(exchange->conn->arriving);
        exchange->conn->arriving = exchange;
    }
    return exchange;
}

static size_t keep_escapes(void *cls, struct MHD_Connection *connection, char *text) {
    (void)cls, (void)connection;
    return strlen(text);
}

static void on_completed(void *cls, struct MHD_Connection *connection, void **req_cls,
                         enum MHD_RequestTerminationCode why) {
    struct srv_http *http = cls;
    struct srv_exchange *exchange = *req_cls;
    (void)connection, (void)why;
    *req_cls = NULL;
    if (!exchange) return;
    srv_refuse_working_on(exchange->conn);
    if (exchange->conn) exchange->conn->arriving = NULL;
    srv_memory_give(http, exchange->conn);
    srv_conn_set(exchange->conn, http->server->settings->idle_timeout_ms);
    srv_conn_line(http, exchange->conn, SRV_LINE_IDLE);
    if (exchange->dispatched) atomic_fetch_sub(&http->answering, 1);
    srv_conn_leave(exchange);
    srv_exchange_free(exchange);
}

static void on_connection(void *cls, struct MHD_Connection *connection, void **socket_context,
                          enum MHD_ConnectionNotificationCode what) {
    struct srv_http *http = cls;
    srv_conn_notify(http, connection, socket_context, what);
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) atomic_fetch_sub(&http->connections, 1);
}

/* Lowers the limit to the process's file limit; logged at start. */
static unsigned connection_limit(const struct srv_settings *settings) {
    struct rlimit files = {0};
    if (!getrlimit(RLIMIT_NOFILE, &files) && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
        (void)getrlimit(RLIMIT_NOFILE, &files);
    }
    uint64_t reserved = FILES_RESERVED + settings->ready_streams_max; /* one file each */
    uint64_t room = files.rlim_cur > 2 * reserved ? files.rlim_cur - reserved : reserved;
    uint64_t limit = cairn_min_u64(settings->http_connections_max, room);
    cairn_log(INFO, "http.limits", "connections=%llu", (unsigned long long)limit);
    return (unsigned)limit;
}

static enum cairn_code start_daemon(struct srv_http *http, struct cairn_error *err) {
    const struct srv_settings *settings = http->server->settings;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned loops = (unsigned)cairn_min_u64((uint64_t)(cores > 1 ? cores : 1), LOOPS_MAX);
    http->connections_max = connection_limit(settings);
    struct MHD_OptionItem options[] = {
        {MHD_OPTION_EXTERNAL_LOGGER, (intptr_t)srv_refuse_log, http},
        {MHD_OPTION_STRICT_FOR_CLIENT, 1, NULL},
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, SRV_CONNECTION_MEMORY_BYTES, NULL},
        /* The acceptor enforces the limit; the library gives each loop its share of this number. */
        {MHD_OPTION_CONNECTION_LIMIT,
         (intptr_t)(loops * (http->connections_max + SRV_HEALTH_PLACES)), NULL},
        {MHD_OPTION_UNESCAPE_CALLBACK, (intptr_t)keep_escapes, NULL},
        {MHD_OPTION_URI_LOG_CALLBACK, (intptr_t)on_target, http},
        {MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)on_completed, http},
        {MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)on_connection, http},
        /* One loop is the library's default; it warns about a pool of one. */
        {loops > 1 ? MHD_OPTION_THREAD_POOL_SIZE : MHD_OPTION_END, (intptr_t)loops, NULL},
        {MHD_OPTION_END, 0, NULL},
    };
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_CERT_CALLBACK, 0, srv_tls_picker()},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)TLS_PRIORITIES},
        {MHD_OPTION_END, 0, NULL},
    };
    if (!http->tls) tls[0] = tls[2];
    http->daemon = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME |
                                        MHD_USE_ITC | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG |
                                        (http->tls ? MHD_USE_TLS : 0),
                                    0, NULL, NULL, on_request, http, MHD_OPTION_ARRAY, options,
                                    MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
    if (!http->daemon) return cairn_fail(err, CAIRN_IO, "the HTTP server did not start");
    return CAIRN_OK;
}

enum cairn_code srv_http_start(struct srv *server, struct srv_http **ret, uint16_t *ret_port,
                               struct cairn_error *err) {
    struct srv_http *http = calloc(1, sizeof(*http));
    if (!http) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the HTTP server");
    http->server = server;
    http->listen_fd = http->acceptor_wake_fd = http->parked_fd = -1;
    for (size_t i = 0; i < SRV_LINES; i++) TAILQ_INIT(&http->locked.lines[i].conns);
    srv_site_init(http);
    cairn_lock_init(&http->lock, CAIRN_LOCK_server_http);
    enum cairn_code code = srv_parked_open(http, err);
    if (!code) code = srv_proxied_open(http, err);
    if (!code) code = srv_kept_new(&http->kept, err);
    if (!code)
        code = cairn_net_listen_tcp(server->settings->listen, &http->listen_fd, ret_port, err);
    if (!code) code = srv_tls_load(http, err);
    if (!code) code = srv_conn_start(http, err);
    if (!code) code = start_daemon(http, err);
    if (!code) code = srv_acceptor_open(http, err);
    if (code) {
        srv_http_stop(http);
        return code;
    }
    *ret = http;
    return CAIRN_OK;
}

void srv_http_reload(struct srv_http *http) {
    struct cairn_error why = {0};
    const struct srv_tls *before = http->tls;
    if (!before) return;
    if (srv_tls_load(http, &why))
        cairn_log(WARN, "tls.kept", "cause=\"%s\"", why.message);
    else
        cairn_log(INFO, "tls.loaded", "changed=%d", http->tls != before);
}

void srv_http_close(struct srv_http *http) {
    http->stopping = true;
    srv_acceptor_close(http);
    srv_end_flows(http->server);
    /* Answers parked requests: suspended connections must be resumed before the daemon stops. */
    if (http->server->waiters) srv_waiters_stop(http->server->waiters);
}

bool srv_http_is_quiet(const struct srv_http *http) {
    return !http->answering;
}

void srv_http_stop(struct srv_http *http) {
    if (!http) return;
    srv_http_close(http);
    if (http->server->requests) srv_pool_stop(http->server->requests);
    if (http->server->heavy) srv_pool_stop(http->server->heavy);
    if (http->server->plans) srv_pool_stop(http->server->plans);
    if (http->server->looks) srv_pool_stop(http->server->looks);
    if (http->server->reads) srv_pool_stop(http->server->reads);
    if (http->daemon) MHD_stop_daemon(http->daemon);
    srv_conn_stop(http);
    srv_tls_free(http);
    srv_parked_close(http);
    srv_kept_free(http->kept);
    free(http->trusted);
    if (http->listen_fd >= 0) close(http->listen_fd);
    cairn_lock_release(&http->lock);
    free(http);
}
