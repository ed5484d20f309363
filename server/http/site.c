/* SPDX-License-Identifier: Apache-2.0 */
/* What a browser can be made to send to this server by a page of somebody else. There is no login,
 * so two things stand between such a page and the checkpoints (B08):
 * - a name that its owner lets point here (DNS rebinding) is not a name of this server. An address
 *   is: a page cannot make a browser send another address than the one it connects to. Checks of
 *   health are answered to any name;
 * - a POST without a body, or with a type that a form can have, is sent by browsers without a
 *   question. So a POST carries Content-Type: application/json (or octet-stream) or a header
 *   X-Cairn-..., for which a browser first asks with OPTIONS, which is refused here but for pages
 *   of allowed_origins. It asks before PUT and DELETE by itself. */
#include <arpa/inet.h>
#include <stdio.h>
#include <strings.h>
#include <unistd.h>

#include "common/text.h"
#include "server/http/inside.h"

#define HOST_BYTES_MAX 262 /* a name of 255 bytes, a colon, a port */

/* The host of "host", "host:port", "[v6]:port"; "" when it is none. */
static void host_of(const char *authority, char ret[HOST_BYTES_MAX]) {
    bool six = authority[0] == '[';
    const char *end = six ? strchr(authority, ']') : authority + strcspn(authority, ":");
    ret[0] = '\0';
    if (!end) return;
    const char *port = end + six;
    if (*port && (*port != ':' || strspn(port + 1, "0123456789") != strlen(port + 1))) return;
    size_t size = (size_t)(end - authority) - six;
    if (size >= HOST_BYTES_MAX) return;
    memcpy(ret, authority + six, size);
    ret[size] = '\0';
    if (!six && size && ret[size - 1] == '.') ret[size - 1] = '\0';
}

static bool is_address(const char *host) {
    uint8_t bytes[16];
    return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

/* Names in a list with commas or spaces between them; "*" is every name. */
static bool is_listed(const char *list, const char *host) {
    while (*list) {
        list += strspn(list, ", ");
        size_t size = strcspn(list, ", ");
        if (size == 1 && *list == '*') return true;
        if (size && size == strlen(host) && !strncasecmp(list, host, size)) return true;
        list += size;
    }
    return false;
}

/* That of public_url, by which callers of a proxy know this server. */
static bool is_public_name(const struct cairn_srv_http *http, const char *host) {
    char authority[HOST_BYTES_MAX], public[HOST_BYTES_MAX];
    const char *url = strstr(http->server->settings->public_url, "://");
    if (!url) return false;
    snprintf(authority, sizeof(authority), "%.*s", (int)strcspn(url + 3, "/"), url + 3);
    host_of(authority, public);
    return public[0] && !strcasecmp(host, public);
}

static bool is_our_name(const struct cairn_srv_http *http, const char *authority) {
    char host[HOST_BYTES_MAX], listen[HOST_BYTES_MAX];
    host_of(authority, host);
    host_of(http->server->settings->listen, listen);
    if (!host[0]) return false;
    bool listens = !is_address(listen) && !strcasecmp(host, listen);
    return !strcasecmp(host, "localhost") || listens ||
           !strcasecmp(host, http->hostname) || is_public_name(http, host) ||
           is_listed(http->server->settings->allowed_hosts, host);
}

static bool is_ours(const struct cairn_srv_http *http, const char *authority) {
    char host[HOST_BYTES_MAX];
    host_of(authority, host);
    return is_address(host) || is_our_name(http, authority);
}

/* Anybody may serve a page at an address; at ours, and our port, nobody but this server does. */
static bool is_same_address(const char *authority, const char *asked) {
    char host[HOST_BYTES_MAX];
    host_of(authority, host);
    return is_address(host) && !strcasecmp(authority, asked);
}

void cairn_srv_site_init(struct cairn_srv_http *http) {
    if (gethostname(http->hostname, sizeof(http->hostname) - 1)) http->hostname[0] = '\0';
}

/* Kept for the answer where it is one of allowed_origins. */
static void note_origin(struct cairn_srv_exchange *exchange) {
    char origin[sizeof(exchange->origin)];
    bool there = false;
    bool fits = cairn_srv_http_header(exchange, "Origin", origin, sizeof(origin), &there);
    const char *list = exchange->http->server->settings->allowed_origins;
    if (there && fits && strcmp(origin, "*") != 0 && is_listed(list, origin))
        memcpy(exchange->origin, origin, sizeof(origin));
}

const struct cairn_srv_cors *cairn_srv_site_cors(const struct cairn_srv_exchange *exchange) {
    static const struct cairn_srv_cors none[] = {{NULL, NULL}};
    static const struct cairn_srv_cors answers[] = {
        {"Access-Control-Allow-Origin", NULL},
        {"Vary", "Origin"},
        {"Access-Control-Expose-Headers",
         "ETag, Location, Link, Retry-After, Content-Range, Accept-Ranges, WWW-Authenticate"},
        {NULL, NULL}};
    static const struct cairn_srv_cors asks[] = {
        {"Access-Control-Allow-Origin", NULL},
        {"Vary", "Origin"},
        {"Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE"},
        {"Access-Control-Allow-Headers",
         "Authorization, Content-Type, If-Match, If-None-Match, If-Range, Range, Prefer, "
         "Idempotency-Key, Last-Event-ID, X-Cairn, X-Cairn-Grant, traceparent"},
        {"Access-Control-Max-Age", "600"},
        {NULL, NULL}};
    if (!exchange->origin[0]) return none;
    return exchange->asks_only ? asks : answers;
}

/* RFC 6454: "scheme://host:port", or "null" of a page that has no site. */
static enum cairn_code check_origin(const struct cairn_srv_exchange *exchange, const char *asked,
                                    struct cairn_error *err) {
    char origin[HOST_BYTES_MAX + 16];
    bool there = false;
    bool fits = cairn_srv_http_header(exchange, "Origin", origin, sizeof(origin), &there);
    if (!there || exchange->origin[0]) return CAIRN_OK;
    const char *authority = strstr(origin, "://");
    if (fits && authority &&
        (is_our_name(exchange->http, authority + 3) || is_same_address(authority + 3, asked)))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_FORBIDDEN,
                      "a page of another site (Origin: %.200s) may change nothing here",
                      fits ? origin : "of too many bytes");
}

/* No form and no request without a question of the browser has one of these. */
static bool is_deliberate(const struct cairn_srv_exchange *exchange) {
    static const char *const types[] = {"application/json", "application/octet-stream"};
    char type[128], other[8];
    bool there = false;
    if (!cairn_srv_http_header(exchange, "Content-Type", type, sizeof(type), NULL)) return false;
    for (size_t i = 0; i < CAIRN_COUNT(types); i++)
        if (!strncasecmp(type, types[i], strlen(types[i]))) return true;
    (void)cairn_srv_http_header(exchange, "X-Cairn-Grant", other, sizeof(other), &there);
    if (!there) (void)cairn_srv_http_header(exchange, "X-Cairn", other, sizeof(other), &there);
    return there;
}

/* Load balancers ask them by the name of their own group of servers; no secret is in the answer. */
static bool is_health(const struct cairn_srv_exchange *exchange) {
    return !strcmp(exchange->request.path, "/livez") || !strcmp(exchange->request.path, "/readyz");
}

/* No browser sends a request without Host, so none that has no Host was made by a page. */
static bool is_for_us(const struct cairn_srv_exchange *exchange, char host[HOST_BYTES_MAX]) {
    bool there = false;
    bool fits = cairn_srv_http_header(exchange, "Host", host, HOST_BYTES_MAX, &there);
    return is_health(exchange) || !there || (fits && is_ours(exchange->http, host));
}

enum cairn_code cairn_srv_site_check(struct cairn_srv_exchange *exchange, const char *method,
                                     struct cairn_error *err) {
    char host[HOST_BYTES_MAX];
    if (!is_for_us(exchange, host)) {
        exchange->title = "This server is not asked by that name.";
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "\"%.200s\" is not a name of this server: ask by its address, let a "
                          "proxy pass on the Host of its caller, or name it in allowed-hosts",
                          host);
    }
    note_origin(exchange);
    exchange->asks_only = exchange->origin[0] && !strcmp(method, "OPTIONS");
    if (exchange->asks_only || !strcmp(method, "GET") || !strcmp(method, "HEAD")) return CAIRN_OK;
    CAIRN_TRY(check_origin(exchange, host, err));
    if (strcmp(method, "POST") != 0 || is_deliberate(exchange)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_MEDIA_TYPE,
                      "a POST needs Content-Type: application/json, also without a body");
}
