/* SPDX-License-Identifier: Apache-2.0 */
/* Who asks, where a proxy stands before us. X-Forwarded-For, or Forwarded (RFC 7239), is believed
 * from an address of trusted_proxies alone: anybody can write one. Each proxy adds the address that
 * it saw to the end, so the last one that is no trusted proxy is the caller; what stands before it
 * is his own word. With trusted_header PROXY, what stands before all else on a connection of such a
 * proxy names its caller, and headers of requests name nobody. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "common/net.h"
#include "common/text.h"
#include "server/http/inside.h"

#define SAID_BYTES 2048 /* what is longer is cut at its begin */
#define ADDRESS_BYTES 64
#define V1_BYTES_MAX 107
#define V2_HEAD_BYTES 16

struct cairn_srv_trusted {
    uint8_t address[16]; /* IPv4 as ::ffff:a.b.c.d */
    unsigned bits;
};

/* ---- addresses ---- */

static bool parse_address(const char *text, uint8_t ret[16], bool *ret_four) {
    uint8_t four[4];
    *ret_four = inet_pton(AF_INET, text, four) == 1;
    if (!*ret_four) return inet_pton(AF_INET6, text, ret) == 1;
    memset(ret, 0, 10);
    memset(ret + 10, 0xff, 2);
    memcpy(ret + 12, four, sizeof(four));
    return true;
}

static bool is_within(const uint8_t address[16], const struct cairn_srv_trusted *net) {
    for (unsigned i = 0; i < net->bits; i++) {
        uint8_t mask = (uint8_t)(0x80 >> (i % 8));
        if ((address[i / 8] ^ net->address[i / 8]) & mask) return false;
    }
    return true;
}

static bool trusts(const struct cairn_srv_http *http, const char *text) {
    uint8_t address[16];
    bool four = false;
    if (!http->trusted_count || !parse_address(text, address, &four)) return false;
    for (size_t i = 0; i < http->trusted_count; i++)
        if (is_within(address, &http->trusted[i])) return true;
    return false;
}

/* "10.0.0.7", "10.0.0.0/8", "fd00::/8" */
static enum cairn_code parse_net(const char *text, struct cairn_srv_trusted *ret,
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

static bool is_by_proxy_protocol(const struct cairn_srv_http *http) {
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

enum cairn_code cairn_srv_proxied_open(struct cairn_srv_http *http, struct cairn_error *err) {
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

/* ---- headers ---- */

struct said {
    const char *name;
    char text[SAID_BYTES]; /* all headers of that name, one after the other */
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

/* Of "a", "a:port", "[six]:port"; of Forwarded `for="[six]:port";by=...`, else "". */
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

void cairn_srv_proxied_note(struct cairn_srv_exchange *exchange) {
    const struct cairn_srv_http *http = exchange->http;
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

bool cairn_srv_proxied_is_proxy(const struct cairn_srv_http *http, const struct sockaddr *address) {
    char text[INET6_ADDRSTRLEN] = "";
    const void *at = NULL;
    if (address && address->sa_family == AF_INET)
        at = &((const struct sockaddr_in *)(const void *)address)->sin_addr;
    if (address && address->sa_family == AF_INET6)
        at = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    return at && inet_ntop(address->sa_family, at, text, sizeof(text)) && trusts(http, text);
}

/* ---- the PROXY protocol (haproxy's doc/proxy-protocol.txt) ---- */

bool cairn_srv_proxied_speaks(const struct cairn_srv_http *http, const struct sockaddr *address) {
    return http->trusted_count && is_by_proxy_protocol(http) &&
           cairn_srv_proxied_is_proxy(http, address);
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
static enum cairn_srv_proxy_header read_first(const uint8_t *bytes, size_t size,
                                              struct sockaddr_storage *ret_address,
                                              size_t *ret_size) {
    const uint8_t *end = memchr(bytes, '\n', cairn_min_u64(size, V1_BYTES_MAX));
    char line[V1_BYTES_MAX + 1], kind[8] = "", address[48] = "";
    uint8_t parsed[16];
    bool four = false;
    if (!end)
        return size < V1_BYTES_MAX ? CAIRN_SRV_PROXY_HEADER_MORE : CAIRN_SRV_PROXY_HEADER_BROKEN;
    snprintf(line, sizeof(line), "%.*s", (int)(end - bytes), (const char *)bytes);
    *ret_size = (size_t)(end - bytes) + 1;
    bool said = sscanf(line, "PROXY %7s %47s", kind, address) >= 1;
    if (said && !strncmp(kind, "UNKNOWN", 7)) return CAIRN_SRV_PROXY_HEADER_WHOLE;
    if (!said || strncmp(kind, "TCP", 3) != 0 || end == bytes || end[-1] != '\r' ||
        !parse_address(address, parsed, &four) || four != !strcmp(kind, "TCP4"))
        return CAIRN_SRV_PROXY_HEADER_BROKEN;
    set_address(four ? parsed + 12 : parsed, four, 0, ret_address);
    return CAIRN_SRV_PROXY_HEADER_WHOLE;
}

/* A signature of 12 bytes, version and command, family, length, then addresses and more. */
static enum cairn_srv_proxy_header read_second(const uint8_t *bytes, size_t size,
                                               struct sockaddr_storage *ret_address,
                                               size_t *ret_size) {
    if (size < V2_HEAD_BYTES) return CAIRN_SRV_PROXY_HEADER_MORE;
    size_t length = (size_t)bytes[14] << 8 | bytes[15], whole = V2_HEAD_BYTES + length;
    unsigned command = bytes[12] & 0x0f, family = bytes[13] >> 4;
    if (bytes[12] >> 4 != 2 || command > 1 || whole > CAIRN_SRV_PROXY_HEADER_BYTES)
        return CAIRN_SRV_PROXY_HEADER_BROKEN;
    if (size < whole) return CAIRN_SRV_PROXY_HEADER_MORE;
    *ret_size = whole;
    if (!command || (family != 1 && family != 2)) return CAIRN_SRV_PROXY_HEADER_WHOLE;
    if (length < (family == 1 ? 12 : 36)) return CAIRN_SRV_PROXY_HEADER_BROKEN;
    set_address(bytes + V2_HEAD_BYTES, family == 1, 0, ret_address);
    return CAIRN_SRV_PROXY_HEADER_WHOLE;
}

enum cairn_srv_proxy_header cairn_srv_proxied_header(const uint8_t *bytes, size_t size,
                                                     struct sockaddr_storage *ret_address,
                                                     size_t *ret_size) {
    static const uint8_t second[] = "\r\n\r\n\0\r\nQUIT\n";
    size_t known = cairn_min_u64(size, sizeof(second) - 1);
    *ret_size = 0;
    if (size && !memcmp(bytes, "PROXY ", cairn_min_u64(size, 6)))
        return size < 6 ? CAIRN_SRV_PROXY_HEADER_MORE
                        : read_first(bytes, size, ret_address, ret_size);
    if (size && !memcmp(bytes, second, known))
        return known < sizeof(second) - 1 ? CAIRN_SRV_PROXY_HEADER_MORE
                                          : read_second(bytes, size, ret_address, ret_size);
    return size ? CAIRN_SRV_PROXY_HEADER_WHOLE : CAIRN_SRV_PROXY_HEADER_MORE;
}

void cairn_srv_proxied_caller(const struct cairn_srv_exchange *exchange, uint8_t ret[16]) {
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
