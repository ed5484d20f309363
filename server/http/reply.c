/* SPDX-License-Identifier: Apache-2.0 */
/* Writes answers: problems, streamed bodies, pages, and our own text for the library's refusals. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "common/log.h"
#include "server/http/inside.h"
#include "server/metrics.h"

#define PAGE_BLOCK_BYTES (64 * CAIRN_KIB)
#define SMALL_REPLY_BYTES_MAX (16 * CAIRN_KIB) /* times all connections: 128 MiB */

static const char *path_of(const struct srv_exchange *exchange) {
    return exchange->request.path ? exchange->request.path : "";
}

static enum cairn_code make_problem(struct srv_exchange *exchange, struct cairn_error *err) {
    struct srv_reply *reply = &exchange->reply;
    char instance[CAIRN_ROUTE_PATH_BYTES_MAX + 520];
    snprintf(instance, sizeof(instance), "%s%s", srv_public_path(exchange->http->server->settings),
             path_of(exchange));
    CAIRN_AUTO_JSON json_t *problem =
        srv_problem(exchange->code, &exchange->error, instance, exchange->pointer_bytes);
    if (problem && exchange->title &&
        json_object_set_new(problem, "title", json_string(exchange->title)))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a problem");
    if (problem && reply->extra && json_object_update_missing(problem, reply->extra))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a problem");
    if (problem && reply->retry_s && json_object_set_new(problem, "retryable", json_true()))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a problem");
    if (problem && reply->hint[0] && json_object_set_new(problem, "hint", json_string(reply->hint)))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a problem");
    int status = (int)exchange->status;
    if (!status) status = cairn_code_info(exchange->code)->http_status;
    const char *trace = exchange->request.trace.id;
    if (problem && trace[0] && json_object_set_new(problem, "trace_id", json_string(trace)))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a problem");
    if (problem && json_object_set_new(problem, "status", json_integer(status)))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a problem");
    CAIRN_TRY(srv_reply_json(reply, status, json_incref(problem), err));
    reply->content_type = "application/problem+json";
    /* RFC 9110, 11.6.1 and RFC 6750, 3. */
    if (status == 401 && reply->header_count < CAIRN_COUNT(reply->headers))
        srv_reply_header(reply, "WWW-Authenticate", "Bearer realm=\"cairn\"%s",
                         exchange->request.credential.there ? ", error=\"invalid_token\"" : "");
    /* A freeze that waits for an operator gets no Retry-After: polling is useless. */
    bool waits = exchange->code == CAIRN_CATALOG_BEHIND && !reply->retry_s;
    if (status == 503 && !waits && reply->header_count < CAIRN_COUNT(reply->headers))
        srv_reply_header(reply, "Retry-After", "%" PRIu32, reply->retry_s ? reply->retry_s : 1);
    return CAIRN_OK;
}

struct flow {
    struct MHD_Connection *connection;
    struct srv_conn *conn;
    struct srv_flow flow;
    uint64_t timeout_ms;
};

static void pause_flow(void *owner) {
    struct flow *flow = owner;
    srv_conn_set(flow->conn, UINT64_MAX);
    MHD_suspend_connection(flow->connection);
}

static void wake_flow(void *owner) {
    struct flow *flow = owner;
    srv_conn_set(flow->conn, flow->timeout_ms);
    MHD_resume_connection(flow->connection);
}

static bool is_endless(const struct srv_flow *flow) {
    return flow->size_bytes == UINT64_MAX;
}

static ssize_t read_flow(void *cls, uint64_t position, char *to, size_t capacity) {
    struct flow *flow = cls;
    struct srv_flow_hooks hooks = {pause_flow, wake_flow, flow};
    srv_conn_set(flow->conn, flow->timeout_ms);
    ssize_t got = flow->flow.take(flow->flow.owner, position, to, capacity, &hooks);
    if (got >= 0) return got;
    /* P3: breaks the connection, so that a truncated body never looks complete. */
    return is_endless(&flow->flow) ? MHD_CONTENT_READER_END_OF_STREAM
                                   : MHD_CONTENT_READER_END_WITH_ERROR;
}

static void free_flow(void *cls) {
    struct flow *flow = cls;
    flow->flow.free(flow->flow.owner);
    free(flow);
}

/* A small send buffer: events that a reader does not take stay in the kernel, and a thousand
 * stalled readers would otherwise hold megabytes each (feed.h#2). */
static struct MHD_Response *flow_response(struct srv_exchange *exchange) {
    struct flow *flow = calloc(1, sizeof(*flow));
    if (!flow) return NULL;
    flow->connection = exchange->connection;
    flow->conn = exchange->conn;
    flow->timeout_ms = exchange->http->server->settings->request_timeout_ms;
    flow->flow = exchange->reply.flow;
    exchange->reply.flow = (struct srv_flow){0};
    uint64_t size = is_endless(&flow->flow) ? MHD_SIZE_UNKNOWN : flow->flow.size_bytes;
    const int bytes = (int)flow->flow.step_bytes;
    if (is_endless(&flow->flow))
        (void)setsockopt(flow->conn->fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    struct MHD_Response *response =
        MHD_create_response_from_callback(size, flow->flow.step_bytes, read_flow, flow, free_flow);
    if (!response) free_flow(flow);
    return response;
}

static ssize_t read_nothing(void *cls, uint64_t position, char *to, size_t capacity) {
    (void)cls, (void)position, (void)to, (void)capacity;
    return MHD_CONTENT_READER_END_WITH_ERROR;
}

/* A reply in memory that counts how much the peer has taken (B10). */
struct page {
    struct cairn_buf body;
    struct srv_conn *conn;
};

static ssize_t read_page(void *cls, uint64_t position, char *to, size_t capacity) {
    struct page *page = cls;
    uint64_t size = cairn_min_u64(page->body.size - position, capacity);
    page->conn->moved_ms = cairn_mono_ms();
    memcpy(to, page->body.data + position, (size_t)size);
    return (ssize_t)size;
}

static void free_page(void *cls) {
    struct page *page = cls;
    cairn_buf_release(&page->body);
    free(page);
}

static bool is_large(const struct srv_exchange *exchange) {
    const struct srv_reply *reply = &exchange->reply;
    return !reply->flow.owner && reply->body.size > SMALL_REPLY_BYTES_MAX;
}

static struct MHD_Response *page_response(struct srv_exchange *exchange) {
    struct page *page = calloc(1, sizeof(*page));
    if (!page) return NULL;
    page->conn = exchange->conn;
    page->body = exchange->reply.body;
    exchange->reply.body = (struct cairn_buf){0};
    struct MHD_Response *response = MHD_create_response_from_callback(
        page->body.size, PAGE_BLOCK_BYTES, read_page, page, free_page);
    if (!response) free_page(page);
    return response;
}

/* ---- cache of answers ----
 *
 * Every node of every job polls `latest`, and the answer is the same until the catalog changes: a
 * query, its JSON and two thread switches cost five times as much as sending the bytes. So answers
 * to paths without a query are cached by the path's hash and reused on the event loop, for callers
 * whose own token was just authorized (request.h#4). An answer is valid only while the catalog's
 * change count is the one from before its query; none is where other servers change the same
 * catalog, nor while anything is frozen (Q36). */

#define KEPT_MAX 512 /* a newer answer replaces an older one of the same hash */
#define BODY_BYTES_MAX (16 * CAIRN_KIB)

struct answer {
    char *path; /* owned; NULL: free entry */
    uint64_t holds_for, body_bytes;
    struct MHD_Response *response; /* our reference */
};
struct srv_kept {
    struct cairn_lock lock;
    struct {
        struct answer answers[KEPT_MAX];
    } locked;
};

static void release_answer(struct answer *answer) {
    if (answer->response) MHD_destroy_response(answer->response);
    free(answer->path);
    *answer = (struct answer){0};
}

enum cairn_code srv_kept_new(struct srv_kept **ret, struct cairn_error *err) {
    *ret = calloc(1, sizeof(**ret));
    if (!*ret) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for answers");
    cairn_lock_init(&(*ret)->lock, CAIRN_LOCK_server_kept);
    return CAIRN_OK;
}

void srv_kept_free(struct srv_kept *kept) {
    if (!kept) return;
    for (size_t i = 0; i < KEPT_MAX; i++) release_answer(&kept->locked.answers[i]);
    cairn_lock_release(&kept->lock);
    free(kept);
}

static bool may_be_kept(const struct srv_exchange *exchange) {
    const struct srv *server = exchange->http->server;
    const struct srv_request *request = &exchange->request;
    return request->route->kept && !request->head_only && !request->query.count &&
           !exchange->origin[0] && !request->if_none_match[0] && !server->frozen &&
           !server->frozen_runs && !srv_catalog_is_shared(server->catalog);
}

static struct answer *place_of(struct srv_kept *kept, const char *path) {
    return &kept->locked.answers[srv_key_of(path) % KEPT_MAX];
}

/* true: the table has taken over the caller's reference to response. */
static bool keep_answer(const struct srv_exchange *exchange, struct MHD_Response *response,
                        uint64_t body_bytes) {
    const struct srv_reply *reply = &exchange->reply;
    struct srv_kept *kept = exchange->http->kept;
    if (!reply->holds_for || exchange->code || body_bytes > BODY_BYTES_MAX) return false;
    if ((reply->status && reply->status != 200) || !may_be_kept(exchange)) return false;
    char *path = strdup(exchange->request.path);
    if (!path) return false;
    CAIRN_HOLD(&kept->lock);
    struct answer *answer = place_of(kept, path);
    release_answer(answer);
    *answer = (struct answer){path, reply->holds_for, body_bytes, response};
    return true;
}

static bool give_kept_answer(const struct srv_exchange *exchange, enum MHD_Result *ret,
                             uint64_t *ret_body_bytes) {
    struct srv_kept *kept = exchange->http->kept;
    if (!may_be_kept(exchange)) return false;
    uint64_t changes = srv_catalog_changes(exchange->http->server->catalog);
    CAIRN_HOLD(&kept->lock);
    const struct answer *answer = place_of(kept, exchange->request.path);
    if (!answer->path || answer->holds_for != changes ||
        strcmp(answer->path, exchange->request.path) != 0)
        return false;
    *ret_body_bytes = answer->body_bytes;
    *ret = MHD_queue_response(exchange->connection, MHD_HTTP_OK, answer->response);
    return true;
}

/* ---- refusals of the library ----
 *
 * Requests that libmicrohttpd refuses before it calls us: a malformed or oversized first line or
 * header, another version, no Host, a Content-Length that is no number. Its own answer is an HTML
 * page, and release 0.9.75 sometimes sends two header blocks, since it goes on as if nothing had
 * been queued. It logs the refusal on the event loop before it queues anything; so our log callback
 * sends the problem and shuts the connection's sending side, which suppresses the library's answer.
 *
 * The log does not name the connection. An event loop works on one connection until nothing is left
 * to do for it: either the one that it read from last, or one whose answer has just ended and whose
 * next request had already arrived. The library reads with recv(2), which links to the one below.
 */

static _Thread_local int working_fd = -1;

/* recv(2), also for the library. The asm label avoids a clash with fortified headers. */
CAIRN_EXPORT ssize_t srv_refuse_recv(int fd, void *to, size_t size, int flags) __asm__("recv");

ssize_t srv_refuse_recv(int fd, void *to, size_t size, int flags) {
    working_fd = fd;
    return recvfrom(fd, to, size, flags, NULL, NULL);
}

void srv_refuse_working_on(const struct srv_conn *conn) {
    working_fd = conn ? conn->fd : -1;
}

/* The result stays valid: only its event loop, this thread, ends it. */
static struct srv_conn *find_refused(struct srv_http *http) {
    CAIRN_HOLD(&http->lock);
    struct srv_conn *one = NULL;
    LIST_FOREACH(one, &http->locked.conns, place)
        if (one->fd == working_fd) break;
    return one;
}

/* Why the library refuses headers that it has read. */
static enum cairn_code judge_headers(struct srv_exchange *exchange, unsigned status) {
    struct cairn_error *err = &exchange->error;
    char value[32];
    bool host = false, coding = false, length = false;
    (void)srv_http_header(exchange, "Host", value, sizeof(value), &host);
    (void)srv_http_header(exchange, "Transfer-Encoding", value, sizeof(value), &coding);
    bool fits = srv_http_header(exchange, "Content-Length", value, sizeof(value), &length);
    bool number = fits && value[0] && strspn(value, "0123456789") == strlen(value);
    if (coding)
        return cairn_fail(err, CAIRN_LENGTH_REQUIRED,
                          "Transfer-Encoding is not taken: send Content-Length");
    if (!host) return cairn_fail(err, CAIRN_INVALID, "exactly one Host is needed");
    if (length && status == 413)
        return cairn_fail(err, CAIRN_TOO_LARGE,
                          "Content-Length is larger than any number of bytes");
    if (length && !number)
        return cairn_fail(err, CAIRN_INVALID, "Content-Length is not a number of bytes");
    exchange->status = 431;
    return cairn_fail(err, CAIRN_INVALID, "%s", SRV_HEAD_TOO_LONG);
}

/* Derives the refusal from the status with which the library was about to answer. */
static enum cairn_code judge_refused(struct srv_exchange *exchange, unsigned status) {
    struct cairn_error *err = &exchange->error;
    bool in_headers = exchange->connection != NULL;
    if (in_headers &&
        MHD_get_connection_info(exchange->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE))
        return judge_headers(exchange, status);
    if (status >= 500 && status != 505)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a request");
    exchange->status = status == 413 ? 431 : status;
    if (status == 505)
        return cairn_fail(err, CAIRN_INVALID, "only HTTP/1.1 and HTTP/1.0 are spoken here");
    if (status == 414)
        return cairn_fail(err, CAIRN_INVALID, SRV_TARGET_TOO_LONG, SRV_TARGET_BYTES_MAX);
    if (status != 400) return cairn_fail(err, CAIRN_INVALID, "%s", SRV_HEAD_TOO_LONG);
    if (in_headers)
        return cairn_fail(err, CAIRN_INVALID, "a line of the headers is not \"Name: value\"");
    return cairn_fail(err, CAIRN_INVALID, "the first line is not \"METHOD /path HTTP/1.1\"");
}

/* Does not block: nothing else is being sent on this connection. */
static enum cairn_code write_problem(const struct srv_exchange *exchange, struct cairn_buf *text,
                                     struct cairn_error *err) {
    const struct srv_reply *reply = &exchange->reply;
    unsigned status = (unsigned)reply->status;
    CAIRN_TRY(cairn_buf_printf(text, err,
                               "HTTP/1.1 %u %s\r\nContent-Type: %s\r\n"
                               "X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n"
                               "Connection: close\r\nContent-Length: %zu\r\n",
                               status, MHD_get_reason_phrase_for(status), reply->content_type,
                               reply->body.size));
    for (size_t i = 0; i < reply->header_count; i++)
        CAIRN_TRY(cairn_buf_printf(text, err, "%s: %s\r\n", reply->headers[i].name,
                                   reply->headers[i].value));
    for (const struct srv_cors *cors = srv_site_cors(exchange); cors->name; cors++)
        CAIRN_TRY(cairn_buf_printf(text, err, "%s: %s\r\n", cors->name,
                                   cors->value ? cors->value : exchange->origin));
    return cairn_buf_printf(text, err, "\r\n%s", reply->body.data);
}

static void send_refusal(struct srv_exchange *exchange) {
    struct cairn_error err = {0};
    CAIRN_AUTO(buf) text = {0};
    if (make_problem(exchange, &err) || write_problem(exchange, &text, &err)) return;
    if (srv_tls_is_on())
        (void)!srv_tls_send(exchange->conn->connection, text.data, text.size);
    else
        (void)!send(exchange->conn->fd, text.data, text.size, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)shutdown(exchange->conn->fd, SHUT_WR);
}

void srv_refuse_log(void *cls, const char *format, va_list arguments) {
    static const char refusal[] = "Error processing request";
    struct srv_http *http = cls;
    if (strncmp(format, refusal, sizeof(refusal) - 1) != 0) return;
    unsigned status = va_arg(arguments, unsigned);
    struct srv_conn *conn = find_refused(http);
    if (!conn) return;
    struct srv_exchange exchange = {.http = http, .conn = conn};
    if (conn->arriving) exchange.connection = conn->arriving->connection;
    exchange.code = judge_refused(&exchange, status);
    send_refusal(&exchange);
    srv_reply_release(&exchange.reply);
}

static struct MHD_Response *make_response(struct srv_exchange *exchange) {
    struct srv_reply *reply = &exchange->reply;
    if (reply->flow.owner) return flow_response(exchange);
    if (reply->head_bytes)
        return MHD_create_response_from_callback(reply->head_bytes, 1024, read_nothing, NULL, NULL);
    if (is_large(exchange)) return page_response(exchange);
    void *data = reply->body.data;
    struct MHD_Response *response =
        data ? MHD_create_response_from_buffer(reply->body.size, data, MHD_RESPMEM_MUST_FREE)
             : MHD_create_response_from_buffer(0, (void *)(uintptr_t) "", MHD_RESPMEM_PERSISTENT);
    if (response) reply->body = (struct cairn_buf){0};
    return response;
}

/* RFC 8288: the same query with the next page's cursor, relative to the request's path. */
static enum cairn_code write_link(const struct srv_exchange *exchange, struct cairn_buf *ret,
                                  struct cairn_error *err) {
    const struct cairn_query *query = &exchange->request.query;
    CAIRN_TRY(cairn_buf_printf(ret, err, "<?cursor="));
    CAIRN_TRY(cairn_percent_encode(cairn_buf_view(&exchange->reply.next), false, ret, err));
    for (size_t i = 0; i < query->count; i++) {
        if (!strcmp(query->params[i].name, "cursor")) continue;
        CAIRN_TRY(cairn_buf_printf(ret, err, "&%s=", query->params[i].name));
        CAIRN_TRY(cairn_percent_encode(cairn_view_of(query->params[i].value), false, ret, err));
    }
    return cairn_buf_printf(ret, err, ">; rel=\"next\"");
}

static bool add_link(struct MHD_Response *response, const struct srv_exchange *exchange) {
    CAIRN_AUTO(buf) link = {0};
    if (!exchange->reply.next.size) return true;
    return !write_link(exchange, &link, NULL) &&
           MHD_add_response_header(response, "Link", link.data) == MHD_YES;
}

/* B07: the library reports CR and LF in a header only by its result, so the result is checked. */
static bool add_headers(struct MHD_Response *response, const struct srv_reply *reply) {
    const char *type = reply->content_type ? reply->content_type : "application/json";
    bool ok = reply->status == 304 || reply->status == 204 ||
              MHD_add_response_header(response, "Content-Type", type) == MHD_YES;
    ok = ok && MHD_add_response_header(response, "X-Content-Type-Options", "nosniff") == MHD_YES;
    bool cached = false;
    for (size_t i = 0; i < reply->header_count; i++) {
        ok = ok && MHD_add_response_header(response, reply->headers[i].name,
                                           reply->headers[i].value) == MHD_YES;
        cached = cached || !strcmp(reply->headers[i].name, "Cache-Control");
    }
    if (reply->location.size)
        ok = ok && MHD_add_response_header(response, "Location", reply->location.data) == MHD_YES;
    return ok &&
           (cached || MHD_add_response_header(response, "Cache-Control", "no-store") == MHD_YES);
}

/* CORS: lets the browser show the answer to a page of allowed_origins. */
static bool add_origin(struct MHD_Response *response, const struct srv_exchange *exchange) {
    const struct srv_cors *cors = srv_site_cors(exchange);
    for (; cors->name; cors++) {
        const char *value = cors->value ? cors->value : exchange->origin;
        if (MHD_add_response_header(response, cors->name, value) != MHD_YES) return false;
    }
    return true;
}

/* Makes a proxy with persistent connections send nothing more to a stopping server. */
static bool add_end(struct MHD_Response *response, const struct srv_exchange *exchange) {
    return !exchange->http->stopping ||
           MHD_add_response_header(response, "Connection", "close") == MHD_YES;
}

static void log_failure(const struct srv_exchange *exchange) {
    int status = cairn_code_info(exchange->code)->http_status;
    if (status < 500 || exchange->code == CAIRN_QUOTA_EXCEEDED) {
        cairn_log(DEBUG, "http.refused", "path=%s status=%d cause=\"%s\"", path_of(exchange),
                  status, exchange->error.message);
    } else if (exchange->code == CAIRN_BUSY || exchange->code == CAIRN_UNAVAILABLE ||
               exchange->code == CAIRN_CATALOG_BEHIND) {
        cairn_log(INFO, "http.unavailable", "path=%s cause=\"%s\"", path_of(exchange),
                  exchange->error.message);
    } else if (exchange->code == CAIRN_CORRUPT) {
        cairn_log(ERROR, "read.refused", "path=%s cause=\"%s\"", path_of(exchange),
                  exchange->error.message);
    } else {
        cairn_log(WARN, "http.failed", "path=%s status=%d cause=\"%s\"", path_of(exchange), status,
                  exchange->error.message);
    }
}

/* Logs one line a request. A request that its caller samples for tracing is logged at info. */
static void log_answer(const struct srv_exchange *exchange) {
    const struct cairn_route *route = exchange->request.route;
    int status = exchange->reply.status ? exchange->reply.status : 200;
    bool sampled =
        exchange->request.trace.id[0] && exchange->request.trace.flags & CAIRN_TRACE_SAMPLED;
    enum cairn_log_level level = sampled ? CAIRN_LOG_INFO : CAIRN_LOG_DEBUG;
    if (exchange->begun_us && cairn_log_enabled(level))
        cairn_log_write(level, "http.answered",
                        "route=%s path=%s status=%d from=%s took_us=%" PRIu64,
                        route ? route->name : "none", path_of(exchange), status,
                        exchange->request.from, cairn_mono_us() - exchange->begun_us);
}

/* Frees the request's body first, so a connection never holds body and reply at once. */
static void reserve(struct srv_exchange *exchange) {
    struct srv_reply *reply = &exchange->reply;
    if (exchange->code == CAIRN_INVALID)
        exchange->pointer_bytes =
            srv_pointer_bytes(exchange->error.message, cairn_buf_view(&exchange->body));
    cairn_buf_release(&exchange->body);
    srv_memory_give(exchange->http, exchange->conn);
    if (exchange->code || !is_large(exchange)) return;
    if (srv_memory_take(exchange, SRV_MEMORY_REPLIES, reply->body.size)) return;
    srv_reply_release(reply);
    *reply = (struct srv_reply){0};
    exchange->code = cairn_fail(&exchange->error, CAIRN_BUSY,
                                "too many replies are waiting to be taken; try again");
}

static void measure_answer(const struct srv_exchange *exchange) {
    const struct cairn_route *route = exchange->request.route;
    unsigned status = exchange->reply.status ? (unsigned)exchange->reply.status : 200;
    struct cairn_metric_at at = {SRV_METRIC_http_request_duration_seconds,
                                 route ? route->id : CAIRN_ROUTE_COUNT, srv_metric_status(status)};
    if (exchange->begun_us)
        cairn_metrics_observe(exchange->http->server->metrics, at,
                              cairn_mono_us() - exchange->begun_us);
}

static enum MHD_Result reply_to(struct srv_exchange *exchange) {
    struct cairn_error err = {0};
    reserve(exchange);
    if (exchange->code) {
        log_failure(exchange);
        if (make_problem(exchange, &err)) return MHD_NO;
    }
    measure_answer(exchange);
    log_answer(exchange);
    struct srv_reply *reply = &exchange->reply;
    uint64_t size = reply->body.size; /* make_response takes the body */
    struct MHD_Response *response = make_response(exchange);
    if (!response) return MHD_NO;
    enum MHD_Result result = MHD_NO;
    bool kept = false;
    if (add_headers(response, reply) && add_link(response, exchange) &&
        add_end(response, exchange) && add_origin(response, exchange)) {
        uint64_t timeout_ms = exchange->http->server->settings->request_timeout_ms;
        srv_conn_set(exchange->conn, timeout_ms + size / 1024);
        result = MHD_queue_response(exchange->connection,
                                    (unsigned)(reply->status ? reply->status : 200), response);
        kept = keep_answer(exchange, response, size);
    } else {
        cairn_log(ERROR, "http.header_refused", "path=%s", path_of(exchange));
    }
    if (!kept) MHD_destroy_response(response);
    return result;
}

void srv_http_refuse(struct srv_exchange *exchange) {
    cairn_trace_set(&exchange->request.trace);
    log_failure(exchange);
    send_refusal(exchange);
    measure_answer(exchange);
    log_answer(exchange);
    cairn_trace_set(NULL);
}

bool srv_http_reply_again(struct srv_exchange *exchange, enum MHD_Result *ret) {
    uint64_t size = 0;
    if (!give_kept_answer(exchange, ret, &size)) return false;
    cairn_trace_set(&exchange->request.trace);
    measure_answer(exchange);
    log_answer(exchange);
    cairn_trace_set(NULL);
    srv_conn_set(exchange->conn,
                 exchange->http->server->settings->request_timeout_ms + size / 1024);
    return true;
}

enum MHD_Result srv_http_reply(struct srv_exchange *exchange) {
    cairn_trace_set(&exchange->request.trace);
    enum MHD_Result result = reply_to(exchange);
    cairn_trace_set(NULL);
    return result;
}
