/* SPDX-License-Identifier: Apache-2.0 */
/* HOST:PORT out of two settings; see address.h. */
#include "uploader/peers/address.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>

#include "common/text.h"

/* Of an interface of this name; false: there is none, or it has no address. */
static bool address_of_interface(const char *name, char *ret, size_t capacity) {
    struct ifaddrs *list = NULL;
    bool found = false;
    if (getifaddrs(&list)) return false;
    for (const struct ifaddrs *at = list; at && !found; at = at->ifa_next) {
        if (strcmp(at->ifa_name, name) != 0 || !at->ifa_addr) continue;
        bool v4 = at->ifa_addr->sa_family == AF_INET;
        if (!v4 && at->ifa_addr->sa_family != AF_INET6) continue;
        char host[64];
        socklen_t size = v4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        if (getnameinfo(at->ifa_addr, size, host, sizeof(host), NULL, 0, NI_NUMERICHOST)) continue;
        if (strchr(host, '%')) continue; /* link-local: means something else on each node */
        found = snprintf(ret, capacity, v4 ? "%s" : "[%s]", host) < (int)capacity;
    }
    freeifaddrs(list);
    return found;
}

static bool is_any(const char *host) {
    static const char *const any[] = {"", "0.0.0.0", "[::]", "0", "[::0]", "*"};
    for (size_t i = 0; i < CAIRN_COUNT(any); i++)
        if (!strcmp(host, any[i])) return true;
    return false;
}

/* The colon in front of a port; NULL: it has none. */
static const char *port_of(const char *text) {
    const char *colon = strrchr(text, ':');
    return colon && !strchr(colon, ']') ? colon : NULL;
}

enum cairn_code cairn_up_address_told(const char *listen, const char *advertise, uint16_t port,
                                      char ret[CAIRN_UP_ADDRESS_BYTES + 1],
                                      struct cairn_error *err) {
    char host[CAIRN_UP_ADDRESS_BYTES + 1] = "", wanted[CAIRN_UP_ADDRESS_BYTES + 1];
    const char *given = *advertise ? advertise : listen, *colon = port_of(given);
    uint64_t number = port;
    if (!cairn_text_copy(wanted, sizeof(wanted), given))
        return cairn_fail(err, CAIRN_INVALID, "peer_advertise is longer than %d bytes",
                          CAIRN_UP_ADDRESS_BYTES);
    if (colon) wanted[colon - given] = '\0';
    if (colon && *advertise &&
        (cairn_parse_u64(cairn_view_of(colon + 1), &number, NULL) || !number || number > 65535))
        return cairn_fail(err, CAIRN_INVALID, "peer_advertise \"%s\": the port is 1 to 65535",
                          advertise);
    if (!address_of_interface(wanted, host, sizeof(host)))
        (void)cairn_text_copy(host, sizeof(host), wanted);
    if (is_any(host))
        return cairn_fail(err, CAIRN_INVALID,
                          "peer_listen %s is no address to tell other nodes; set peer_advertise",
                          listen);
    if (host[strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-[]:")])
        return cairn_fail(err, CAIRN_INVALID, "peer_advertise \"%s\" is no HOST or HOST:PORT",
                          advertise);
    if (snprintf(ret, CAIRN_UP_ADDRESS_BYTES + 1, "%s:%u", host, (unsigned)number) >
        CAIRN_UP_ADDRESS_BYTES)
        return cairn_fail(err, CAIRN_INVALID, "peer_advertise is longer than %d bytes",
                          CAIRN_UP_ADDRESS_BYTES);
    return CAIRN_OK;
}
