/* SPDX-License-Identifier: Apache-2.0 */
/* Route, headers, lengths and types of a well-shaped request, before its body is buffered (B04). */

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "common/net.h"
#include "server/http/above.h"
#include "server/http/inside.h"

static bool takes_body(const char *method) {
    return !strcmp(method, "PUT") || !strcmp(method, "POST") || !strcmp(method, "PATCH");
}

bool srv_http_header(const struct srv_exchange *exchange, const char *name, char *ret,
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

static enum cairn_code copy_header(const struct srv_exchange *exchange, const char *name, char *to,
                                   size_t capacity, struct cairn_error *err) {
    if (srv_http_header(exchange, name, to, capacity, NULL)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "the header %s is longer than %zu bytes", name,
                      capacity - 1);
}

/* A proxy's compression turns our tag "x" into W/"x" or "x-gzip"; a client that sends it back means
 * our tag, so this restores it. No tag of this server has such a suffix. */
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

static enum cairn_code copy_headers(struct srv_exchange *exchange, struct cairn_error *err) {
    struct srv_request *request = &exchange->request;
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
    /* Browsers send long ones; a value that does not fit names no type that is served here. */
    (void)srv_http_header(exchange, "Accept", request->accept, sizeof(request->accept), NULL);
    (void)srv_http_header(exchange, "Accept-Encoding", request->accept_encoding,
                          sizeof(request->accept_encoding), NULL);
    (void)srv_http_header(exchange, "Prefer", request->prefer, sizeof(request->prefer), NULL);
    return CAIRN_OK;
}

/* The token's text is not kept: neither in the request nor on this stack. */
static void read_credential(struct srv_exchange *exchange) {
    struct srv_request *request = &exchange->request;
    char value[SRV_AUTHORIZATION_BYTES];
    bool there = false;
    bool fits = srv_http_header(exchange, "Authorization", value, sizeof(value), &there);
    if (there) srv_credential_read(fits ? value : "", &request->credential);
    cairn_wipe(value, sizeof(value));
}

/* A route with GET also accepts HEAD. */
static enum cairn_code match(struct srv_exchange *exchange, const char *method,
                             struct cairn_view path, struct cairn_error *err) {
    struct srv_request *request = &exchange->request;
    struct cairn_error first = {0};
    enum cairn_code code =
        cairn_route_match(method, path, &request->route, &request->params, &first);
    if (code == CAIRN_METHOD && request->head_only)
        code = cairn_route_match("GET", path, &request->route, &request->params, &first);
    if (code == CAIRN_METHOD) {
        char allow[CAIRN_ROUTE_ALLOW_BYTES];
        cairn_route_allow(path, allow);
        srv_reply_header(&exchange->reply, "Allow", "%s", allow);
    }
    if (code) *err = first;
    return code;
}

/* Ignores parameters. */
static bool is_type(const char *type, const char *wanted) {
    size_t size = strlen(wanted);
    return !strncasecmp(type, wanted, size) && (!type[size] || strchr("; \t", type[size]));
}

static enum cairn_code check_type(const struct srv_exchange *exchange, struct cairn_error *err) {
    char encoding[64], type[128];
    CAIRN_TRY(copy_header(exchange, "Content-Encoding", encoding, sizeof(encoding), err));
    CAIRN_TRY(copy_header(exchange, "Content-Type", type, sizeof(type), err));
    const struct cairn_route *route = exchange->request.route;
    const char *wanted = route->bytes ? "application/octet-stream" : "application/json";
    if (encoding[0] && strcasecmp(encoding, "identity"))
        return cairn_fail(err, CAIRN_MEDIA_TYPE, "Content-Encoding %s is not taken", encoding);
    if (is_type(type, wanted)) return CAIRN_OK;
    bool merges = !strcmp(route->method, "PATCH"); /* RFC 7396 */
    if (merges && is_type(type, "application/merge-patch+json")) return CAIRN_OK;
    return cairn_fail(err, CAIRN_MEDIA_TYPE, "Content-Type must be %s, not %s", wanted,
                      type[0] ? type : "absent");
}

static enum cairn_code check_body(struct srv_exchange *exchange, const char *method,
                                  struct cairn_error *err) {
    char text[32], expect[32];
    unsigned mib = exchange->request.route->body_mib;
    uint64_t size = 0, limit = (mib ? mib : 1) * CAIRN_MIB;
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

/* A header that comes twice is ignored: which one is meant is unknown. */
static void note_trace(struct srv_exchange *exchange) {
    char text[256];
    unsigned count = 0;
    (void)MHD_get_connection_values(exchange->connection, MHD_HEADER_KIND, count_one, &count);
    if (count == 1 && srv_http_header(exchange, "traceparent", text, sizeof(text), NULL))
        (void)cairn_trace_parse(cairn_view_of(text), &exchange->request.trace);
}

/* Authorizes the request before its body is buffered. */
static enum cairn_code judge(struct srv_exchange *exchange, struct cairn_error *err) {
    struct srv_request *request = &exchange->request;
    struct cairn_error why = {0};
    uint64_t wait_ms = 0;
    enum cairn_code judged = srv_judge(request, &why);
    enum cairn_code code = srv_judge_rate(request, judged, &wait_ms, err);
    if (code) {
        srv_reply_header(&exchange->reply, "Retry-After", "%" PRIu64, (wait_ms + 999) / 1000);
        srv_reply_extra(&exchange->reply, "retry_after_ms", json_integer((json_int_t)wait_ms));
        return code;
    }
    if (judged) *err = why;
    return judged;
}

/* Strips public_url's path where a proxy has passed it on. */
static void take_off_prefix(const struct srv_settings *settings, struct cairn_view *path) {
    const char *prefix = srv_public_path(settings);
    size_t size = strlen(prefix);
    const char *text = path->data;
    if (!size || path->size <= size || memcmp(text, prefix, size) || text[size] != '/') return;
    *path = (struct cairn_view){text + size, path->size - size};
}

enum cairn_code srv_http_accept(struct srv_exchange *exchange, const char *method,
                                struct cairn_error *err) {
    struct srv_request *request = &exchange->request;
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
    CAIRN_TRY(srv_site_check(exchange, method, err));
    if (exchange->asks_only) return CAIRN_OK;
    CAIRN_TRY(match(exchange, method, path, err));
    if (query.data) CAIRN_TRY(cairn_query_parse(query, &request->query, err));
    CAIRN_TRY(cairn_query_only(&request->query, request->route->query, err));
    CAIRN_TRY(copy_headers(exchange, err));
    read_credential(exchange);
    CAIRN_TRY(judge(exchange, err));
    return check_body(exchange, method, err);
}

/* ---- callers behind a proxy ----
 *
 * Anybody can write X-Forwarded-For or Forwarded (RFC 7239), so they count only from an address of
 * trusted_proxies. Each proxy appends the address that it saw, so the last address that is not a
 * trusted proxy is the caller; addresses before it are the caller's own claim. With trusted_header
 * PROXY, the header at the start of a trusted proxy's connection names the caller, and headers of
 * requests do not count.
 */

#define SAID_BYTES 2048 /* a longer one is cut at its start */
#define ADDRESS_BYTES 64
#define V1_BYTES_MAX 107
#define V2_HEAD_BYTES 16

struct srv_trusted {
    uint8_t address[16]; /* IPv4 as ::ffff:a.b.c.d */
    unsigned bits;
};

static bool parse_address(const char *text, uint8_t ret[16], bool *ret_four) {
    uint8_t four[4];
    *ret_four = inet_pton(AF_INET, text, four) == 1;
    if (!*ret_four) return inet_pton(AF_INET6, text, ret) == 1;
    memset(ret, 0, 10);
    memset(ret + 10, 0xff, 2);
    memcpy(ret + 12, four, sizeof(four));
    return true;
}

static bool is_within(const uint8_t address[16], const struct srv_trusted *net) {
    for (unsigned i = 0; i < net->bits; i++) {
        uint8_t mask = (uint8_t)(0x80 >> (i % 8));
        if ((address[i / 8] ^ net->address[i / 8]) & mask) return false;
    }
    return true;
}

static bool trusts(const struct srv_http *http, const char *text) {
    uint8_t address[16];
    bool four = false;
    if (!http->trusted_count || !parse_address(text, address, &four)) return false;
    for (size_t i = 0; i < http->trusted_count; i++)
        if (is_within(address, &http->trusted[i])) return true;
    return false;
}

/* "10.0.0.7", "10.0.0.0/8", "fd00::/8" */
static enum cairn_code parse_net(const char *text, struct srv_trusted *ret,
                                 struct cairn_error *err) {
    char address[ADDRESS_BYTES] = "";
    uint64_t bits = 0;
    bool four = false;
    size_t size = strcspn(text, "/");
    if (size < sizeof(address)) memcpy(address, text, size);
    bool good = parse_address(address, ret->address, &four);
    uint64_t most = four ? 32 : 128;
    if (!text[size]) bits = most;
    if (text[size] && cairn_parse_u64(cairn_view_of(text + size + 1), &bits, NULL)) good = false;
    if (!good || bits > most)
        return cairn_fail(err, CAIRN_INVALID,
                          "trusted-proxies: \"%.60s\" is no address and no network like 10.0.0.0/8",
                          text);
    ret->bits = (unsigned)(bits + 128 - most);
    return CAIRN_OK;
}

static bool is_by_proxy_protocol(const struct srv_http *http) {
    return !strcasecmp(http->server->settings->trusted_header, "PROXY");
}

static enum cairn_code check_header(const char *name, struct cairn_error *err) {
    static const char *const known[] = {"X-Forwarded-For", "Forwarded", "PROXY"};
    for (size_t i = 0; i < CAIRN_COUNT(known); i++)
        if (!strcasecmp(name, known[i])) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "trusted-header: want X-Forwarded-For, Forwarded or PROXY, not \"%.60s\"",
                      name);
}

enum cairn_code srv_proxied_open(struct srv_http *http, struct cairn_error *err) {
    const char *list = http->server->settings->trusted_proxies;
    http->trusted = calloc(strlen(list) / 2 + 1, sizeof(*http->trusted));
    if (!http->trusted) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for trusted proxies");
    CAIRN_TRY(check_header(http->server->settings->trusted_header, err));
    while (*(list += strspn(list, ", "))) {
        char one[ADDRESS_BYTES];
        size_t size = strcspn(list, ", ");
        snprintf(one, sizeof(one), "%.*s", (int)cairn_min_u64(size, sizeof(one) - 1), list);
        CAIRN_TRY(parse_net(one, &http->trusted[http->trusted_count], err));
        http->trusted_count++;
        list += size;
    }
    return CAIRN_OK;
}

struct said {
    const char *name;
    char text[SAID_BYTES]; /* all headers of that name, concatenated */
    size_t size;
};

static enum MHD_Result add_said(void *cls, enum MHD_ValueKind kind, const char *name,
                                const char *value) {
    struct said *said = cls;
    (void)kind;
    if (!value || strcasecmp(name, said->name) != 0) return MHD_YES;
    size_t size = strlen(value);
    if (size > SAID_BYTES / 2) value += size - SAID_BYTES / 2;
    if (said->size > SAID_BYTES / 2 - 2) {
        memmove(said->text, said->text + said->size - 16, 17);
        said->size = 16;
    }
    said->size += (size_t)snprintf(said->text + said->size, SAID_BYTES - said->size, ",%s", value);
    return MHD_YES;
}

/* Address in "a", "a:port", "[six]:port" or Forwarded's `for="[six]:port";by=...`; else "". */
static void address_in(const char *word, size_t size, bool forwarded, char ret[ADDRESS_BYTES]) {
    char text[256];
    snprintf(text, sizeof(text), "%.*s", (int)cairn_min_u64(size, sizeof(text) - 1), word);
    char *at = text;
    ret[0] = '\0';
    if (forwarded) {
        at = strcasestr(text, "for=");
        if (!at) return;
        at += 4;
        at[strcspn(at, ";")] = '\0';
    }
    at += strspn(at, " \t\"");
    at[strcspn(at, " \t\"")] = '\0';
    char *colon = strchr(at, ':');
    if (*at == '[') {
        at++;
        at[strcspn(at, "]")] = '\0';
    } else if (colon && !strchr(colon + 1, ':')) {
        *colon = '\0';
    }
    (void)cairn_text_copy(ret, ADDRESS_BYTES, at);
}

void srv_proxied_note(struct srv_exchange *exchange) {
    const struct srv_http *http = exchange->http;
    char *from = exchange->request.from;
    if (is_by_proxy_protocol(http) || !trusts(http, from)) return;
    bool forwarded = !strcasecmp(http->server->settings->trusted_header, "Forwarded");
    struct said said = {.name = forwarded ? "Forwarded" : "X-Forwarded-For"};
    (void)MHD_get_connection_values(exchange->connection, MHD_HEADER_KIND, add_said, &said);
    char *end = said.text + said.size;
    while (end > said.text) {
        char address[ADDRESS_BYTES];
        uint8_t bytes[16];
        bool four = false;
        char *start = end;
        while (start > said.text && start[-1] != ',') start--;
        address_in(start, (size_t)(end - start), forwarded, address);
        if (!parse_address(address, bytes, &four)) return; /* "unknown", "_hidden" */
        (void)cairn_text_copy(from, sizeof(exchange->request.from), address);
        if (!trusts(http, address)) return;
        end = start > said.text ? start - 1 : start;
    }
}

bool srv_proxied_is_proxy(const struct srv_http *http, const struct sockaddr *address) {
    char text[INET6_ADDRSTRLEN] = "";
    const void *at = NULL;
    if (address && address->sa_family == AF_INET)
        at = &((const struct sockaddr_in *)(const void *)address)->sin_addr;
    if (address && address->sa_family == AF_INET6)
        at = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    return at && inet_ntop(address->sa_family, at, text, sizeof(text)) && trusts(http, text);
}

/* ---- the PROXY protocol (haproxy's doc/proxy-protocol.txt) ---- */

bool srv_proxied_speaks(const struct srv_http *http, const struct sockaddr *address) {
    return http->trusted_count && is_by_proxy_protocol(http) && srv_proxied_is_proxy(http, address);
}

static void set_address(const uint8_t *address, bool four, uint16_t port,
                        struct sockaddr_storage *ret) {
    if (four) {
        struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
        memcpy(&in.sin_addr, address, sizeof(in.sin_addr));
        memcpy(ret, &in, sizeof(in));
        return;
    }
    struct sockaddr_in6 in = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    memcpy(&in.sin6_addr, address, sizeof(in.sin6_addr));
    memcpy(ret, &in, sizeof(in));
}

/* "PROXY TCP4 192.0.2.1 192.0.2.2 4711 7420\r\n" */
static enum srv_proxy_header read_first(const uint8_t *bytes, size_t size,
                                        struct sockaddr_storage *ret_address, size_t *ret_size) {
    const uint8_t *end = memchr(bytes, '\n', cairn_min_u64(size, V1_BYTES_MAX));
    char line[V1_BYTES_MAX + 1], kind[8] = "", address[48] = "";
    uint8_t parsed[16];
    bool four = false;
    if (!end) return size < V1_BYTES_MAX ? SRV_PROXY_HEADER_MORE : SRV_PROXY_HEADER_BROKEN;
    snprintf(line, sizeof(line), "%.*s", (int)(end - bytes), (const char *)bytes);
    *ret_size = (size_t)(end - bytes) + 1;
    bool said = sscanf(line, "PROXY %7s %47s", kind, address) >= 1;
    if (said && !strncmp(kind, "UNKNOWN", 7)) return SRV_PROXY_HEADER_WHOLE;
    if (!said || strncmp(kind, "TCP", 3) != 0 || end == bytes || end[-1] != '\r' ||
        !parse_address(address, parsed, &four) || four != !strcmp(kind, "TCP4"))
        return SRV_PROXY_HEADER_BROKEN;
    set_address(four ? parsed + 12 : parsed, four, 0, ret_address);
    return SRV_PROXY_HEADER_WHOLE;
}

/* A signature of 12 bytes, version and command, family, length, addresses, then extensions. */
static enum srv_proxy_header read_second(const uint8_t *bytes, size_t size,
                                         struct sockaddr_storage *ret_address, size_t *ret_size) {
    if (size < V2_HEAD_BYTES) return SRV_PROXY_HEADER_MORE;
    size_t length = (size_t)bytes[14] << 8 | bytes[15], whole = V2_HEAD_BYTES + length;
    unsigned command = bytes[12] & 0x0f, family = bytes[13] >> 4;
    if (bytes[12] >> 4 != 2 || command > 1 || whole > SRV_PROXY_HEADER_BYTES)
        return SRV_PROXY_HEADER_BROKEN;
    if (size < whole) return SRV_PROXY_HEADER_MORE;
    *ret_size = whole;
    if (!command || (family != 1 && family != 2)) return SRV_PROXY_HEADER_WHOLE;
    if (length < (family == 1 ? 12 : 36)) return SRV_PROXY_HEADER_BROKEN;
    set_address(bytes + V2_HEAD_BYTES, family == 1, 0, ret_address);
    return SRV_PROXY_HEADER_WHOLE;
}

enum srv_proxy_header srv_proxied_header(const uint8_t *bytes, size_t size,
                                         struct sockaddr_storage *ret_address, size_t *ret_size) {
    static const uint8_t second[] = "\r\n\r\n\0\r\nQUIT\n";
    size_t known = cairn_min_u64(size, sizeof(second) - 1);
    *ret_size = 0;
    if (size && !memcmp(bytes, "PROXY ", cairn_min_u64(size, 6)))
        return size < 6 ? SRV_PROXY_HEADER_MORE : read_first(bytes, size, ret_address, ret_size);
    if (size && !memcmp(bytes, second, known))
        return known < sizeof(second) - 1 ? SRV_PROXY_HEADER_MORE
                                          : read_second(bytes, size, ret_address, ret_size);
    return size ? SRV_PROXY_HEADER_WHOLE : SRV_PROXY_HEADER_MORE;
}

void srv_proxied_caller(const struct srv_exchange *exchange, uint8_t ret[16]) {
    union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } address = {0};
    const char *from = exchange->request.from;
    if (inet_pton(AF_INET, from, &address.four.sin_addr) == 1)
        address.any.sa_family = AF_INET;
    else if (inet_pton(AF_INET6, from, &address.six.sin6_addr) == 1)
        address.any.sa_family = AF_INET6;
    cairn_net_caller(&address.any, ret);
}
