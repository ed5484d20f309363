/* SPDX-License-Identifier: Apache-2.0 */
/* Cut at the commas; each entry is judged alone, then against the ones before it. */
#include "api/servers.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/text.h"

void cairn_servers_release(struct cairn_servers *servers) {
    for (uint32_t i = 0; i < servers->count; i++) {
        free(servers->places[i].name);
        free(servers->places[i].base);
        free(servers->places[i].unix_socket);
    }
    *servers = (struct cairn_servers){0};
}

/* "the server's URL", or which of them. */
struct cairn_called {
    char text[48];
};
static struct cairn_called called(bool listed, uint32_t number) {
    struct cairn_called name = {"the server's URL"};
    if (listed) snprintf(name.text, sizeof name.text, "server %u of the list", number);
    return name;
}

static enum cairn_code judge(const char *text, bool listed, uint32_t number,
                             struct cairn_error *err) {
    struct cairn_url parts;
    struct cairn_called name = called(listed, number);
    if (!*text)
        return cairn_fail(err, CAIRN_INVALID, "%s is empty%s", name.text,
                          listed ? ": a comma too many" : "");
    if (listed && cairn_text_starts(text, "unix:"))
        return cairn_fail(err, CAIRN_INVALID,
                          "%s is a Unix socket: one stands alone, since its path may hold commas",
                          name.text);
    if (!cairn_text_starts(text, "unix:") && !cairn_url_split_http(text, &parts))
        return cairn_fail(err, CAIRN_INVALID, "%s must be http(s)://host[:port]%s", name.text,
                          listed ? "" : " or unix:PATH");
    if (strpbrk(text, "@?#"))
        return cairn_fail(err, CAIRN_INVALID, "%s takes no user, query or fragment", name.text);
    if (strpbrk(text, " \t\r\n"))
        return cairn_fail(err, CAIRN_INVALID, "%s holds a blank", name.text);
    return CAIRN_OK;
}

/* Owns what it has made, also where it fails. */
static enum cairn_code fill(const char *text, size_t size, struct cairn_server_place *ret,
                            struct cairn_error *err) {
    bool is_unix = size >= 5 && !strncmp(text, "unix:", 5);
    ret->name = strndup(text, size);
    ret->base = is_unix ? strdup("http://localhost") : strndup(text, size);
    ret->unix_socket = is_unix ? strndup(text + 5, size - 5) : NULL;
    if (!ret->name || !ret->base || (is_unix && !ret->unix_socket))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the server's URL");
    for (size_t left = strlen(ret->base); left && ret->base[left - 1] == '/'; left--)
        ret->base[left - 1] = '\0';
    return CAIRN_OK;
}

/* One certificate's name, one proxy's path: a list names the same API at several addresses. */
static enum cairn_code compare(const struct cairn_servers *servers, struct cairn_error *err) {
    uint32_t last = servers->count - 1;
    struct cairn_url first, own;
    for (uint32_t i = 0; i < last; i++)
        if (!strcmp(servers->places[i].base, servers->places[last].base))
            return cairn_fail(err, CAIRN_INVALID, "servers %u and %u of the list are the same",
                              i + 1, last + 1);
    if (!last) return CAIRN_OK;
    if (!cairn_url_split_http(servers->places[0].base, &first) ||
        !cairn_url_split_http(servers->places[last].base, &own))
        return cairn_fail(err, CAIRN_INVALID, "server %u of the list has no host", last + 1);
    if (first.scheme.size != own.scheme.size)
        return cairn_fail(err, CAIRN_INVALID,
                          "servers 1 and %u of the list have different schemes: http or https for "
                          "all",
                          last + 1);
    if (strcmp(first.path, own.path) != 0)
        return cairn_fail(err, CAIRN_INVALID, "servers 1 and %u of the list have different paths",
                          last + 1);
    return CAIRN_OK;
}

static enum cairn_code add(const char *text, size_t size, bool listed,
                           struct cairn_servers *servers, struct cairn_error *err) {
    if (servers->count == CAIRN_SERVERS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "more than %d servers in the list",
                          CAIRN_SERVERS_MAX);
    struct cairn_server_place *place = &servers->places[servers->count++];
    CAIRN_TRY(fill(text, size, place, err));
    CAIRN_TRY(judge(place->name, listed, servers->count, err));
    return compare(servers, err);
}

enum cairn_code cairn_servers_parse(const char *text, struct cairn_servers *ret,
                                    struct cairn_error *err) {
    CAIRN_AUTO(servers) servers = {0};
    bool is_unix = cairn_text_starts(text, "unix:");
    if (is_unix && (strstr(text, ",http") || strstr(text, ",unix:")))
        return cairn_fail(err, CAIRN_INVALID,
                          "a Unix socket stands alone: no list of servers begins with one");
    bool listed = !is_unix && strchr(text, ',');
    for (const char *at = text;;) {
        size_t size = listed ? strcspn(at, ",") : strlen(at);
        CAIRN_TRY(add(at, size, listed, &servers, err));
        if (!at[size]) break;
        at += size + 1;
    }
    *ret = servers;
    servers = (struct cairn_servers){0};
    return CAIRN_OK;
}
