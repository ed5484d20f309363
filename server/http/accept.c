/* SPDX-License-Identifier: Apache-2.0 */
/* Route, headers, lengths and types of a well-shaped request, before its body is buffered (B04). */
#include <inttypes.h>
#include <strings.h>

#include "common/hash.h"
#include "common/text.h"
#include "server/http/inside.h"
#include "server/http/request.h"

static uint64_t body_limit(enum cairn_route_id id) {
    switch (id) {
    case CAIRN_ROUTE_TABLE_PUT:
        return 64 * CAIRN_MIB;
    case CAIRN_ROUTE_SHARD_REGISTER:
        return 32 * CAIRN_MIB;
    case CAIRN_ROUTE_CHECKPOINT_BEGIN:
        return 8 * CAIRN_MIB;
    case CAIRN_ROUTE_ATTEMPT_OPEN:
    case CAIRN_ROUTE_NODE_PUT:
        return 4 * CAIRN_MIB;
    default:
        return CAIRN_MIB;
    }
}

static bool takes_body(const char *method) {
    return !strcmp(method, "PUT") || !strcmp(method, "POST") || !strcmp(method, "PATCH");
}

bool cairn_srv_http_header(const struct cairn_srv_exchange *exchange, const char *name, char *ret,
                           size_t capacity, bool *ret_there) {
    const char *value = MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND, name);
    size_t size = value ? strlen(value) : 0;
    while (size && (value[size - 1] == ' ' || value[size - 1] == '\t')) size--;
    if (ret_there) *ret_there = value != NULL;
    ret[0] = '\0';
    if (size >= capacity) return false;
    if (size) memcpy(ret, value, size);
    ret[size] = '\0';
    return true;
}

static enum cairn_code copy_header(const struct cairn_srv_exchange *exchange, const char *name,
                                   char *to, size_t capacity, struct cairn_error *err) {
    if (cairn_srv_http_header(exchange, name, to, capacity, NULL)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "the header %s is longer than %zu bytes", name,
                      capacity - 1);
}

/* Compression on the way back has made W/"x" or "x-gzip" of our tag "x"; who sends that again means
 * ours, and so it is written here as ours. No tag of this server ends like that. */
static void restore_tags(char *list) {
    static const char *const ends[] = {"--gzip", "-gzip", ";gzip", "-br", "-zstd", "-deflate"};
    char *to = list;
    bool within = false;
    for (const char *from = list; *from; from++) {
        if (!within && from[0] == 'W' && from[1] == '/' && from[2] == '"') from += 2;
        bool closes = within && *from == '"';
        for (size_t i = 0; closes && i < CAIRN_COUNT(ends); i++) {
            size_t size = strlen(ends[i]);
            if ((size_t)(to - list) <= size || memcmp(to - size, ends[i], size) != 0) continue;
            to -= size;
            break;
        }
        within ^= *from == '"';
        *to++ = *from;
    }
    *to = '\0';
}

static enum cairn_code copy_headers(struct cairn_srv_exchange *exchange, struct cairn_error *err) {
    struct cairn_srv_request *request = &exchange->request;
    struct {
        const char *name;
        char *to;
        size_t capacity;
    } wanted[] = {
        {"Range", request->range, sizeof(request->range)},
        {"If-Range", request->if_range, sizeof(request->if_range)},
        {"If-Match", request->if_match, sizeof(request->if_match)},
        {"If-None-Match", request->if_none_match, sizeof(request->if_none_match)},
        {"Last-Event-ID", request->last_event_id, sizeof(request->last_event_id)},
        {"Idempotency-Key", request->idempotency_key, sizeof(request->idempotency_key)},
        {"X-Cairn-Grant", request->grant, sizeof(request->grant)},
    };
    for (size_t i = 0; i < CAIRN_COUNT(wanted); i++)
        CAIRN_TRY(copy_header(exchange, wanted[i].name, wanted[i].to, wanted[i].capacity, err));
    restore_tags(request->if_match);
    restore_tags(request->if_none_match);
    /* Browsers send long ones, and what does not fit asks for nothing that is served here. */
    (void)cairn_srv_http_header(exchange, "Accept", request->accept, sizeof(request->accept), NULL);
    (void)cairn_srv_http_header(exchange, "Accept-Encoding", request->accept_encoding,
                                sizeof(request->accept_encoding), NULL);
    (void)cairn_srv_http_header(exchange, "Prefer", request->prefer, sizeof(request->prefer), NULL);
    return CAIRN_OK;
}

/* The text of a token is kept by nobody: not by the request, and not on this stack. */
static void read_credential(struct cairn_srv_exchange *exchange) {
    struct cairn_srv_request *request = &exchange->request;
    char value[CAIRN_SRV_AUTHORIZATION_BYTES];
    bool there = false;
    bool fits = cairn_srv_http_header(exchange, "Authorization", value, sizeof(value), &there);
    if (there) cairn_srv_credential_read(fits ? value : "", &request->credential);
    cairn_wipe(value, sizeof(value));
}

/* HEAD is taken wherever GET is. */
static enum cairn_code match(struct cairn_srv_exchange *exchange, const char *method,
                             struct cairn_view path, struct cairn_error *err) {
    struct cairn_srv_request *request = &exchange->request;
    struct cairn_error first = {0};
    enum cairn_code code =
        cairn_route_match(method, path, &request->route, &request->params, &first);
    if (code == CAIRN_METHOD && request->head_only)
        code = cairn_route_match("GET", path, &request->route, &request->params, &first);
    if (code == CAIRN_METHOD) {
        char allow[CAIRN_ROUTE_ALLOW_BYTES];
        cairn_route_allow(path, allow);
        cairn_srv_reply_header(&exchange->reply, "Allow", "%s", allow);
    }
    if (code) *err = first;
    return code;
}

/* Whatever its parameters are. */
static bool is_type(const char *type, const char *wanted) {
    size_t size = strlen(wanted);
    return !strncasecmp(type, wanted, size) && (!type[size] || strchr("; \t", type[size]));
}

static enum cairn_code check_type(const struct cairn_srv_exchange *exchange,
                                  struct cairn_error *err) {
    char encoding[64], type[128];
    CAIRN_TRY(copy_header(exchange, "Content-Encoding", encoding, sizeof(encoding), err));
    CAIRN_TRY(copy_header(exchange, "Content-Type", type, sizeof(type), err));
    bool bytes = exchange->request.route->id == CAIRN_ROUTE_TABLE_PUT;
    const char *wanted = bytes ? "application/octet-stream" : "application/json";
    if (encoding[0] && strcasecmp(encoding, "identity"))
        return cairn_fail(err, CAIRN_MEDIA_TYPE, "Content-Encoding %s is not taken", encoding);
    if (is_type(type, wanted)) return CAIRN_OK;
    bool merges = !strcmp(exchange->request.route->method, "PATCH"); /* RFC 7396 */
    if (merges && is_type(type, "application/merge-patch+json")) return CAIRN_OK;
    return cairn_fail(err, CAIRN_MEDIA_TYPE, "Content-Type must be %s, not %s", wanted,
                      type[0] ? type : "absent");
}

static enum cairn_code check_body(struct cairn_srv_exchange *exchange, const char *method,
                                  struct cairn_error *err) {
    char text[32], expect[32];
    uint64_t size = 0, limit = body_limit(exchange->request.route->id);
    CAIRN_TRY(copy_header(exchange, "Content-Length", text, sizeof(text), err));
    CAIRN_TRY(copy_header(exchange, "Expect", expect, sizeof(expect), err));
    enum cairn_code code = text[0] ? cairn_parse_u64(cairn_view_of(text), &size, err) : CAIRN_OK;
    if (code) return cairn_within(err, code, "Content-Length");
    if (expect[0] && strcasecmp(expect, "100-continue"))
        return cairn_fail(err, CAIRN_INVALID, "Expect: %s is not known", expect);
    if (!size) return CAIRN_OK;
    if (!takes_body(method))
        return cairn_fail(err, CAIRN_INVALID, "%s does not take a body", method);
    CAIRN_TRY(check_type(exchange, err));
    if (size > limit)
        return cairn_fail(err, CAIRN_TOO_LARGE,
                          "the body has %" PRIu64 " bytes, this path takes %" PRIu64, size, limit);
    exchange->body.limit = (size_t)size;
    return CAIRN_OK;
}

static enum MHD_Result count_one(void *cls, enum MHD_ValueKind kind, const char *name,
                                 const char *value) {
    unsigned *count = cls;
    (void)kind, (void)value;
    *count += !strcasecmp(name, "traceparent");
    return MHD_YES;
}

/* One that comes twice is none: nobody could say which of them is meant. */
static void note_trace(struct cairn_srv_exchange *exchange) {
    char text[256];
    unsigned count = 0;
    (void)MHD_get_connection_values(exchange->connection, MHD_HEADER_KIND, count_one, &count);
    if (count == 1 && cairn_srv_http_header(exchange, "traceparent", text, sizeof(text), NULL))
        (void)cairn_trace_parse(cairn_view_of(text), &exchange->request.trace);
}

/* Before its body is there. */
static enum cairn_code judge(struct cairn_srv_exchange *exchange, struct cairn_error *err) {
    struct cairn_srv_request *request = &exchange->request;
    struct cairn_error why = {0};
    uint64_t wait_ms = 0;
    enum cairn_code judged = cairn_srv_judge(request, &why);
    enum cairn_code code = cairn_srv_judge_rate(request, judged, &wait_ms, err);
    if (code) {
        cairn_srv_reply_header(&exchange->reply, "Retry-After", "%" PRIu64,
                               (wait_ms + 999) / 1000);
        cairn_srv_reply_extra(&exchange->reply, "retry_after_ms",
                              json_integer((json_int_t)wait_ms));
        return code;
    }
    if (judged) *err = why;
    return judged;
}

/* Of public_url, where a proxy has passed it on. */
static void take_off_prefix(const struct cairn_srv_settings *settings, struct cairn_view *path) {
    const char *prefix = cairn_srv_public_path(settings);
    size_t size = strlen(prefix);
    const char *text = path->data;
    if (!size || path->size <= size || memcmp(text, prefix, size) || text[size] != '/') return;
    *path = (struct cairn_view){text + size, path->size - size};
}

enum cairn_code cairn_srv_http_accept(struct cairn_srv_exchange *exchange, const char *method,
                                      struct cairn_error *err) {
    struct cairn_srv_request *request = &exchange->request;
    struct cairn_view path, query;
    note_trace(exchange);
    cairn_route_split(cairn_view_of(exchange->target), &path, &query);
    if (path.size > CAIRN_ROUTE_PATH_BYTES_MAX) {
        exchange->status = 414;
        return cairn_fail(err, CAIRN_INVALID, "the path is longer than %d bytes",
                          CAIRN_ROUTE_PATH_BYTES_MAX);
    }
    request->server = exchange->http->server;
    take_off_prefix(request->server->settings, &path);
    request->path = strndup(path.data, path.size);
    if (!request->path) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a path");
    request->head_only = !strcmp(method, "HEAD");
    CAIRN_TRY(cairn_srv_site_check(exchange, method, err));
    if (exchange->asks_only) return CAIRN_OK;
    CAIRN_TRY(match(exchange, method, path, err));
    if (query.data) CAIRN_TRY(cairn_query_parse(query, &request->query, err));
    CAIRN_TRY(cairn_query_only(&request->query, request->route->query, err));
    CAIRN_TRY(copy_headers(exchange, err));
    read_credential(exchange);
    CAIRN_TRY(judge(exchange, err));
    return check_body(exchange, method, err);
}
