/* SPDX-License-Identifier: Apache-2.0 */
/* Replies and problems onto the wire, and the stream of a shard's bytes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/encode.h"
#include "common/log.h"
#include "server/http/kept.h"
#include "server/metrics.h"

#define PAGE_BLOCK_BYTES (64 * CAIRN_KIB)
#define SMALL_REPLY_BYTES_MAX (16 * CAIRN_KIB) /* of as many connections as there may be: 128 MiB */

/* ---- problems ---- */

static const char *path_of(const struct cairn_srv_exchange *exchange) {
    return exchange->request.path ? exchange->request.path : "";
}

enum cairn_code cairn_srv_http_problem(struct cairn_srv_exchange *exchange,
                                       struct cairn_error *err) {
    struct cairn_srv_reply *reply = &exchange->reply;
    char instance[CAIRN_ROUTE_PATH_BYTES_MAX + 520];
    snprintf(instance, sizeof(instance), "%s%s",
             cairn_srv_public_path(exchange->http->server->settings), path_of(exchange));
    CAIRN_AUTO_JSON json_t *problem =
        cairn_srv_problem(exchange->code, &exchange->error, instance);
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
    CAIRN_TRY(cairn_srv_reply_json(reply, status, json_incref(problem), err));
    reply->content_type = "application/problem+json";
    /* RFC 9110, 11.6.1 and RFC 6750, 3. */
    if (status == 401 && reply->header_count < CAIRN_COUNT(reply->headers))
        cairn_srv_reply_header(reply, "WWW-Authenticate", "Bearer realm=\"cairn\"%s",
                               exchange->request.credential.there ? ", error=\"invalid_token\""
                                                                  : "");
    /* A freeze that waits for an operator is not to be asked about again and again. */
    bool waits = exchange->code == CAIRN_CATALOG_BEHIND && !reply->retry_s;
    if (status == 503 && !waits && reply->header_count < CAIRN_COUNT(reply->headers))
        cairn_srv_reply_header(reply, "Retry-After", "%" PRIu32,
                               reply->retry_s ? reply->retry_s : 1);
    return CAIRN_OK;
}

/* ---- flows ---- */

struct flow {
    struct MHD_Connection *connection;
    struct cairn_srv_conn *conn;
    struct cairn_srv_flow flow;
    uint64_t timeout_ms;
};

static void pause_flow(void *owner) {
    struct flow *flow = owner;
    cairn_srv_conn_set(flow->conn, UINT64_MAX);
    MHD_suspend_connection(flow->connection);
}

static void wake_flow(void *owner) {
    struct flow *flow = owner;
    cairn_srv_conn_set(flow->conn, flow->timeout_ms);
    MHD_resume_connection(flow->connection);
}

static bool is_endless(const struct cairn_srv_flow *flow) {
    return flow->size_bytes == UINT64_MAX;
}

static ssize_t read_flow(void *cls, uint64_t position, char *to, size_t capacity) {
    struct flow *flow = cls;
    struct cairn_srv_flow_hooks hooks = {pause_flow, wake_flow, flow};
    cairn_srv_conn_set(flow->conn, flow->timeout_ms);
    ssize_t got = flow->flow.take(flow->flow.owner, position, to, capacity, &hooks);
    if (got >= 0) return got;
    /* P3: the connection is broken in the middle, never ended cleanly. */
    return is_endless(&flow->flow) ? MHD_CONTENT_READER_END_OF_STREAM
                                   : MHD_CONTENT_READER_END_WITH_ERROR;
}

static void free_flow(void *cls) {
    struct flow *flow = cls;
    flow->flow.free(flow->flow.owner);
    free(flow);
}

/* What a reader of events does not take stays with the system: little of it, or a thousand that
 * never read hold megabytes each (feed.h#2). */
static struct MHD_Response *flow_response(struct cairn_srv_exchange *exchange) {
    struct flow *flow = calloc(1, sizeof(*flow));
    if (!flow) return NULL;
    flow->connection = exchange->connection;
    flow->conn = exchange->conn;
    flow->timeout_ms = exchange->http->server->settings->request_timeout_ms;
    flow->flow = exchange->reply.flow;
    exchange->reply.flow = (struct cairn_srv_flow){0};
    uint64_t size = is_endless(&flow->flow) ? MHD_SIZE_UNKNOWN : flow->flow.size_bytes;
    const int bytes = (int)flow->flow.step_bytes;
    if (is_endless(&flow->flow))
        (void)setsockopt(flow->conn->fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    struct MHD_Response *response = MHD_create_response_from_callback(
        size, flow->flow.step_bytes, read_flow, flow, free_flow);
    if (!response) free_flow(flow);
    return response;
}

static ssize_t read_nothing(void *cls, uint64_t position, char *to, size_t capacity) {
    (void)cls, (void)position, (void)to, (void)capacity;
    return MHD_CONTENT_READER_END_WITH_ERROR;
}

/* ---- large replies ---- */

/* A reply in memory of which one can see whether it is taken (B10). */
struct page {
    struct cairn_buf body;
    struct cairn_srv_conn *conn;
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

static bool is_large(const struct cairn_srv_exchange *exchange) {
    const struct cairn_srv_reply *reply = &exchange->reply;
    return !reply->flow.owner && reply->body.size > SMALL_REPLY_BYTES_MAX;
}

static struct MHD_Response *page_response(struct cairn_srv_exchange *exchange) {
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

/* ---- responses ---- */

static struct MHD_Response *make_response(struct cairn_srv_exchange *exchange) {
    struct cairn_srv_reply *reply = &exchange->reply;
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

/* RFC 8288: the same question with the cursor of the next page, relative to the request's path. */
static enum cairn_code write_link(const struct cairn_srv_exchange *exchange,
                                  struct cairn_buf *ret, struct cairn_error *err) {
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

static bool add_link(struct MHD_Response *response, const struct cairn_srv_exchange *exchange) {
    CAIRN_AUTO(buf) link = {0};
    if (!exchange->reply.next.size) return true;
    return !write_link(exchange, &link, NULL) &&
           MHD_add_response_header(response, "Link", link.data) == MHD_YES;
}

/* B07: the library refuses CR and LF by its answer alone, so the answer is looked at. */
static bool add_headers(struct MHD_Response *response, const struct cairn_srv_reply *reply) {
    const char *type = reply->content_type ? reply->content_type : "application/json";
    bool ok =
        reply->status == 304 || reply->status == 204 ||
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

/* Of a page that allowed_origins names: its browser may show it the answer. */
static bool add_origin(struct MHD_Response *response, const struct cairn_srv_exchange *exchange) {
    const struct cairn_srv_cors *cors = cairn_srv_site_cors(exchange);
    for (; cors->name; cors++) {
        const char *value = cors->value ? cors->value : exchange->origin;
        if (MHD_add_response_header(response, cors->name, value) != MHD_YES) return false;
    }
    return true;
}

/* A proxy that keeps connections sends nothing more on one of a server that stops. */
static bool add_end(struct MHD_Response *response, const struct cairn_srv_exchange *exchange) {
    return !exchange->http->stopping ||
           MHD_add_response_header(response, "Connection", "close") == MHD_YES;
}

static void log_failure(const struct cairn_srv_exchange *exchange) {
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

/* One line a request. What its caller samples is written at info: somebody looks for it. */
static void log_answer(const struct cairn_srv_exchange *exchange) {
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

/* The request's body is not needed any more, so a connection holds one of both. */
static void reserve(struct cairn_srv_exchange *exchange) {
    struct cairn_srv_reply *reply = &exchange->reply;
    cairn_buf_release(&exchange->body);
    cairn_srv_memory_give(exchange->http, exchange->conn);
    if (exchange->code || !is_large(exchange)) return;
    if (cairn_srv_memory_take(exchange, CAIRN_SRV_MEMORY_REPLIES, reply->body.size)) return;
    cairn_srv_reply_release(reply);
    *reply = (struct cairn_srv_reply){0};
    exchange->code = cairn_fail(&exchange->error, CAIRN_BUSY,
                                "too many replies are waiting to be taken; try again");
}

static void measure(const struct cairn_srv_exchange *exchange) {
    const struct cairn_route *route = exchange->request.route;
    unsigned status = exchange->reply.status ? (unsigned)exchange->reply.status : 200;
    struct cairn_metric_at at = {CAIRN_SRV_METRIC_http_request_duration_seconds,
                                 route ? route->id : CAIRN_ROUTE_COUNT,
                                 cairn_srv_metric_status(status)};
    if (exchange->begun_us)
        cairn_metrics_observe(exchange->http->server->metrics, at,
                              cairn_mono_us() - exchange->begun_us);
}

static enum MHD_Result reply_to(struct cairn_srv_exchange *exchange) {
    struct cairn_error err = {0};
    reserve(exchange);
    if (exchange->code) {
        log_failure(exchange);
        if (cairn_srv_http_problem(exchange, &err)) return MHD_NO;
    }
    measure(exchange);
    log_answer(exchange);
    struct cairn_srv_reply *reply = &exchange->reply;
    uint64_t size = reply->body.size; /* make_response takes the body over */
    struct MHD_Response *response = make_response(exchange);
    if (!response) return MHD_NO;
    enum MHD_Result result = MHD_NO;
    bool kept = false;
    if (add_headers(response, reply) && add_link(response, exchange) &&
        add_end(response, exchange) && add_origin(response, exchange)) {
        uint64_t timeout_ms = exchange->http->server->settings->request_timeout_ms;
        cairn_srv_conn_set(exchange->conn, timeout_ms + size / 1024);
        result = MHD_queue_response(exchange->connection,
                                    (unsigned)(reply->status ? reply->status : 200), response);
        kept = cairn_srv_kept_keep(exchange, response, size);
    } else {
        cairn_log(ERROR, "http.header_refused", "path=%s", path_of(exchange));
    }
    if (!kept) MHD_destroy_response(response);
    return result;
}

void cairn_srv_http_refuse(struct cairn_srv_exchange *exchange) {
    cairn_trace_set(&exchange->request.trace);
    log_failure(exchange);
    cairn_srv_refuse_send(exchange);
    measure(exchange);
    log_answer(exchange);
    cairn_trace_set(NULL);
}

bool cairn_srv_http_reply_again(struct cairn_srv_exchange *exchange, enum MHD_Result *ret) {
    uint64_t size = 0;
    if (!cairn_srv_kept_give(exchange, ret, &size)) return false;
    cairn_trace_set(&exchange->request.trace);
    measure(exchange);
    log_answer(exchange);
    cairn_trace_set(NULL);
    cairn_srv_conn_set(exchange->conn,
                       exchange->http->server->settings->request_timeout_ms + size / 1024);
    return true;
}

enum MHD_Result cairn_srv_http_reply(struct cairn_srv_exchange *exchange) {
    cairn_trace_set(&exchange->request.trace);
    enum MHD_Result result = reply_to(exchange);
    cairn_trace_set(NULL);
    return result;
}
