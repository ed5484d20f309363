/* SPDX-License-Identifier: Apache-2.0 */
/* The shape check (B03). The library parses in place and tolerates much: bare LF, folded lines,
 * NUL, doubled lengths. If every line was exactly "Name:", spaces or tabs, "value CRLF", then
 * method, target, version and each name and value are adjacent in its buffer, and the last ends
 * where the header ends. Any other pointer means that the library tolerated an error, and the
 * request is refused. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/http/inside.h"

struct walk {
    const char *end; /* of the checked bytes; a line end must follow */
    bool ok;
    bool trims; /* the library strips spaces behind a value, and overwrites the first */
    unsigned content_lengths, transfer_encodings, hosts, authorizations, grants;
};

static bool is_token(const char *text, size_t size) {
    static const char marks[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && (!c || !strchr(marks, c))) return false;
    }
    return size > 0;
}

static bool is_field_text(const char *text, size_t size) {
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f) return false;
    }
    return !size || (text[0] != ' ' && text[0] != '\t');
}

/* RFC 9112, 5.1: any number of spaces and tabs behind the colon, which the library overwrites. */
static bool is_gap(const char *from, const char *to) {
    if (to <= from) return false;
    for (from++; from < to; from++)
        if (*from != ' ' && *from != '\t') return false;
    return true;
}

/* Exactly one CRLF, which the library may have overwritten, lies between walk->end and `to`.
 * Release 1.0 of the library ends a value before trailing spaces, 0.9 includes them. */
static bool is_line_end(const struct walk *walk, const char *to) {
    if (to - walk->end < 2) return false;
    for (const char *at = walk->end; at < to - 2; at++) {
        bool space = *at == ' ' || *at == '\t' || (!*at && at == walk->end);
        if (!walk->trims || !space) return false;
    }
    return true;
}

static bool named(const char *name, size_t size, const char *wanted) {
    return size == strlen(wanted) && !strncasecmp(name, wanted, size);
}

static enum MHD_Result check_line(void *cls, enum MHD_ValueKind kind, const char *key,
                                  size_t key_size, const char *value, size_t value_size) {
    struct walk *walk = cls;
    (void)kind;
    walk->ok = walk->ok && value && is_line_end(walk, key) && is_token(key, key_size) &&
               is_gap(key + key_size, value) && is_field_text(value, value_size);
    walk->content_lengths += named(key, key_size, "Content-Length");
    walk->transfer_encodings += named(key, key_size, "Transfer-Encoding");
    walk->hosts += named(key, key_size, "Host");
    walk->authorizations += named(key, key_size, "Authorization");
    walk->grants += named(key, key_size, "X-Cairn-Grant");
    if (walk->ok) walk->end = value + value_size;
    return MHD_YES;
}

enum cairn_code srv_shape_check(struct srv_exchange *exchange, const char *method,
                                const char *version, struct cairn_error *err) {
    static const char doubt[] = "the request is not exactly what RFC 9112 asks for (one CRLF after "
                                "each line, no space before a colon and no folded lines)";
    const char *uri = exchange->uri;
    struct walk walk = {.ok = exchange->target != NULL, .trims = MHD_get_version()[0] != '0'};
    walk.ok = walk.ok && is_token(method, strlen(method)) && method + strlen(method) + 1 == uri &&
              uri + exchange->uri_size + 1 == version && strlen(version) == 8;
    walk.end = version + 8;
    MHD_get_connection_values_n(exchange->connection, MHD_HEADER_KIND, check_line, &walk);
    if ((exchange->target ? strlen(exchange->target) : exchange->uri_size) > SRV_TARGET_BYTES_MAX) {
        exchange->status = 414;
        return cairn_fail(err, CAIRN_INVALID, SRV_TARGET_TOO_LONG, SRV_TARGET_BYTES_MAX);
    }
    if (walk.transfer_encodings)
        return cairn_fail(err, CAIRN_LENGTH_REQUIRED,
                          "Transfer-Encoding is not taken: send Content-Length");
    if (walk.content_lengths > 1) return cairn_fail(err, CAIRN_INVALID, "two Content-Length");
    /* HTTP/1.0 has no Host; health checks often use it. */
    if (walk.hosts != 1 && (walk.hosts || strcmp(version, "HTTP/1.0") != 0))
        return cairn_fail(err, CAIRN_INVALID, "exactly one Host is needed");
    /* A proxy before this server may have read the other one. */
    if (walk.authorizations > 1 || walk.grants > 1)
        return cairn_fail(err, CAIRN_INVALID, "two Authorization or X-Cairn-Grant");
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(exchange->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    if (!walk.ok || !info || !is_line_end(&walk, method + info->header_size - 2))
        return cairn_fail(err, CAIRN_INVALID, "%s", doubt);
    return CAIRN_OK;
}

/* ---- pages of other sites ----
 *
 * Requests that another site's page can make a browser send to this server. There is no login, so
 * two checks protect the checkpoints (B08):
 * - DNS rebinding: a name whose owner points it here is not a name of this server. An IP address
 *   is accepted: a page cannot make a browser send another address than the one it connects to.
 *   Health checks are answered for any name;
 * - browsers send a POST without a body, or with a form's content type, without a preflight. So a
 *   POST needs Content-Type: application/json (or octet-stream) or a header X-Cairn-..., for which
 *   the browser first sends OPTIONS, refused here except for pages of allowed_origins. PUT and
 *   DELETE always have a preflight.
 */

/* The host of "host", "host:port", "[v6]:port"; "" when malformed. */
static void host_of(const char *authority, char ret[SRV_HOST_BYTES_MAX]) {
    bool six = authority[0] == '[';
    const char *end = six ? strchr(authority, ']') : authority + strcspn(authority, ":");
    ret[0] = '\0';
    if (!end) return;
    const char *port = end + six;
    if (*port && (*port != ':' || strspn(port + 1, "0123456789") != strlen(port + 1))) return;
    size_t size = (size_t)(end - authority) - six;
    if (size >= SRV_HOST_BYTES_MAX) return;
    memcpy(ret, authority + six, size);
    ret[size] = '\0';
    if (!six && size && ret[size - 1] == '.') ret[size - 1] = '\0';
}

static bool is_address(const char *host) {
    uint8_t bytes[16];
    return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

/* `list` has names with commas or spaces between them; "*" matches every name. */
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

/* The name in public_url, under which a proxy's callers know this server. */
static bool is_public_name(const struct srv_http *http, const char *host) {
    char authority[SRV_HOST_BYTES_MAX], public[SRV_HOST_BYTES_MAX];
    const char *url = strstr(http->server->settings->public_url, "://");
    if (!url) return false;
    snprintf(authority, sizeof(authority), "%.*s", (int)strcspn(url + 3, "/"), url + 3);
    host_of(authority, public);
    return public[0] && !strcasecmp(host, public);
}

static bool is_our_name(const struct srv_http *http, const char *authority) {
    char host[SRV_HOST_BYTES_MAX], listen[SRV_HOST_BYTES_MAX];
    host_of(authority, host);
    host_of(http->server->settings->listen, listen);
    if (!host[0]) return false;
    bool listens = !is_address(listen) && !strcasecmp(host, listen);
    return !strcasecmp(host, "localhost") || listens || !strcasecmp(host, http->hostname) ||
           is_public_name(http, host) || is_listed(http->server->settings->allowed_hosts, host);
}

static bool is_ours(const struct srv_http *http, const char *authority) {
    char host[SRV_HOST_BYTES_MAX];
    host_of(authority, host);
    return is_address(host) || is_our_name(http, authority);
}

/* Anybody may serve a page at an IP address, but at our address and port only this server does. */
static bool is_same_address(const char *authority, const char *asked) {
    char host[SRV_HOST_BYTES_MAX];
    host_of(authority, host);
    return is_address(host) && !strcasecmp(authority, asked);
}

void srv_site_init(struct srv_http *http) {
    if (gethostname(http->hostname, sizeof(http->hostname) - 1)) http->hostname[0] = '\0';
}

/* Keeps an Origin of allowed_origins for the answer. */
static void note_origin(struct srv_exchange *exchange) {
    char origin[sizeof(exchange->origin)];
    bool there = false;
    bool fits = srv_http_header(exchange, "Origin", origin, sizeof(origin), &there);
    const char *list = exchange->http->server->settings->allowed_origins;
    if (there && fits && strcmp(origin, "*") != 0 && is_listed(list, origin))
        memcpy(exchange->origin, origin, sizeof(origin));
}

const struct srv_cors *srv_site_cors(const struct srv_exchange *exchange) {
    static const struct srv_cors none[] = {{NULL, NULL}};
    static const struct srv_cors answers[] = {
        {"Access-Control-Allow-Origin", NULL},
        {"Vary", "Origin"},
        {"Access-Control-Expose-Headers",
         "ETag, Location, Link, Retry-After, Content-Range, Accept-Ranges, WWW-Authenticate"},
        {NULL, NULL}};
    static const struct srv_cors asks[] = {
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
static enum cairn_code check_origin(const struct srv_exchange *exchange, const char *asked,
                                    struct cairn_error *err) {
    char origin[SRV_HOST_BYTES_MAX + 16];
    bool there = false;
    bool fits = srv_http_header(exchange, "Origin", origin, sizeof(origin), &there);
    if (!there || exchange->origin[0]) return CAIRN_OK;
    const char *authority = strstr(origin, "://");
    if (fits && authority &&
        (is_our_name(exchange->http, authority + 3) || is_same_address(authority + 3, asked)))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_FORBIDDEN,
                      "a page of another site (Origin: %.200s) may change nothing here",
                      fits ? origin : "of too many bytes");
}

/* True for headers that no form and no request without a preflight can have. */
static bool is_deliberate(const struct srv_exchange *exchange) {
    static const char *const types[] = {"application/json", "application/octet-stream"};
    char type[128], other[8];
    bool there = false;
    if (!srv_http_header(exchange, "Content-Type", type, sizeof(type), NULL)) return false;
    for (size_t i = 0; i < CAIRN_COUNT(types); i++)
        if (!strncasecmp(type, types[i], strlen(types[i]))) return true;
    (void)srv_http_header(exchange, "X-Cairn-Grant", other, sizeof(other), &there);
    if (!there) (void)srv_http_header(exchange, "X-Cairn", other, sizeof(other), &there);
    return there;
}

/* Load balancers send the name of their server group; these answers hold no secret. */
static bool is_health(const struct srv_exchange *exchange) {
    return !strcmp(exchange->request.path, "/livez") || !strcmp(exchange->request.path, "/readyz");
}

/* A request without Host cannot come from a page: every browser sends Host. An authority in the
 * target counts in its place (RFC 9112, 3.2.2). */
static bool is_for_us(const struct srv_exchange *exchange, char host[SRV_HOST_BYTES_MAX]) {
    bool there = exchange->authority[0] != '\0', fits = there;
    if (there)
        memcpy(host, exchange->authority, SRV_HOST_BYTES_MAX);
    else
        fits = srv_http_header(exchange, "Host", host, SRV_HOST_BYTES_MAX, &there);
    return is_health(exchange) || !there || (fits && is_ours(exchange->http, host));
}

enum cairn_code srv_site_check(struct srv_exchange *exchange, const char *method,
                               struct cairn_error *err) {
    char host[SRV_HOST_BYTES_MAX];
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

/* ---- the self-test at start (http.h) ---- */

static enum cairn_code connect_to(const char *listen, uint16_t port, int *ret_fd,
                                  struct cairn_error *err) {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } to = {0};
    bool six = listen[0] == '[';
    if (six) {
        to.v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(port)};
        to.v6.sin6_addr = in6addr_loopback;
    } else {
        to.v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
        to.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        char host[64];
        snprintf(host, sizeof(host), "%.*s", (int)strcspn(listen, ":"), listen);
        struct in_addr given;
        /* A socket bound to one address answers only there. */
        if (inet_pton(AF_INET, host, &given) == 1 && given.s_addr != htonl(INADDR_ANY))
            to.v4.sin_addr = given;
    }
    CAIRN_AUTO_FD fd = socket(to.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return cairn_fail_errno(err, "self-test socket");
    struct timeval timeout = {.tv_sec = 10};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    if (connect(fd, &to.any, six ? sizeof(to.v6) : sizeof(to.v4)))
        return cairn_fail_errno(err, "self-test connection");
    *ret_fd = fd;
    fd = -1;
    return CAIRN_OK;
}

/* Reads the first 12 bytes of the answer. */
static enum cairn_code ask_plain(int fd, const char *text, char *answer, struct cairn_error *err) {
    if (send(fd, text, strlen(text), MSG_NOSIGNAL) != (ssize_t)strlen(text))
        return cairn_fail_errno(err, "self-test request");
    size_t size = 0;
    while (size < 12) {
        ssize_t got = recv(fd, answer + size, 12 - size, 0);
        if (got <= 0) break;
        size += (size_t)got;
    }
    answer[size] = 0;
    return CAIRN_OK;
}

static enum cairn_code expect_answer(const char *listen, uint16_t port, const char *text,
                                     const char *wanted, struct cairn_error *err) {
    int fd_value = -1;
    CAIRN_TRY(connect_to(listen, port, &fd_value, err));
    CAIRN_AUTO_FD fd = fd_value;
    char answer[64] = "";
    if (srv_tls_is_on())
        CAIRN_TRY(srv_tls_ask(fd, text, answer, 13, err));
    else
        CAIRN_TRY(ask_plain(fd, text, answer, err));
    if (!strcmp(answer, wanted)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_UNSUPPORTED,
                      "self-test: \"%s\" instead of \"%s\": this libmicrohttpd is not the one that "
                      "the checks of requests were made for",
                      answer, wanted);
}

enum cairn_code srv_http_self_test(const char *listen, uint16_t port, struct cairn_error *err) {
    CAIRN_TRY(expect_answer(listen, port,
                            "GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
                            "HTTP/1.1 200", err));
    return expect_answer(listen, port,
                         "GET /livez HTTP/1.1\r\nHost: localhost\nConnection: close\r\n\r\n",
                         "HTTP/1.1 400", err);
}
