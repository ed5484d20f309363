/* SPDX-License-Identifier: Apache-2.0 */
/* Settings' table, relations that span rows, and the list of cores. */
#include "uploader/settings.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "api/documents/keys.h"
#include "api/wire/rest.h"
#include "common/process.h"
#include "common/text.h"
#include "store/open.h"

#define CONFIG(type, name, fallback, min, max, why)                                                \
    CAIRN_CONFIG_ROW(cairn_up_settings, type, name, fallback, min, max, why)
const struct cairn_config_row cairn_up_settings_rows[] = {
#include "uploader/settings.def"
};
#undef CONFIG
const size_t cairn_up_settings_row_count = CAIRN_COUNT(cairn_up_settings_rows);

/* Invalid bytes of a host name are replaced; an operator's invalid name is refused. */
static enum cairn_code node_name(const char *wanted, char ret[65], struct cairn_error *err) {
    if (*wanted) {
        if (!cairn_name_valid(cairn_view_of(wanted)) || !cairn_text_copy(ret, 65, wanted))
            return cairn_fail(err, CAIRN_INVALID,
                              "node \"%s\": letters, digits, '.', '_' and '-' only, at most 64",
                              wanted);
        return CAIRN_OK;
    }
    char host[65] = "";
    if (gethostname(host, sizeof(host) - 1))
        return cairn_fail_errno(err, "asking for the host name");
    for (char *at = host; *at; at++) {
        bool plain = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ||
                     (*at >= '0' && *at <= '9') || *at == '-' || *at == '_' ||
                     (*at == '.' && at[1] != '.');
        if (!plain) *at = '-';
    }
    if (!cairn_name_valid(cairn_view_of(host)))
        return cairn_fail(err, CAIRN_INVALID, "the host name \"%s\" is no node name; set node",
                          host);
    (void)cairn_text_copy(ret, 65, host);
    return CAIRN_OK;
}

static enum cairn_code uid_list(const char *text, struct cairn_up_places *ret,
                                struct cairn_error *err) {
    ret->uids[ret->uid_count++] = 0;
    ret->uids[ret->uid_count++] = geteuid();
    if (!strcmp(text, "any")) {
        ret->any_uid = true;
        return CAIRN_OK;
    }
    while (*text) {
        size_t length = strcspn(text, ",");
        uint64_t uid = 0;
        enum cairn_code code = cairn_parse_u64((struct cairn_view){text, length}, &uid, err);
        if (code != CAIRN_OK) return cairn_within(err, code, "allow_uids");
        if (uid >= UINT32_MAX || ret->uid_count == CAIRN_UP_UIDS_MAX)
            return cairn_fail(err, CAIRN_INVALID,
                              "allow_uids: a user id above 2^32-2, or more than %d",
                              CAIRN_UP_UIDS_MAX);
        ret->uids[ret->uid_count++] = (uid_t)uid;
        text += length;
        if (*text == ',' && !*++text)
            return cairn_fail(err, CAIRN_INVALID, "allow_uids: ends with a comma");
    }
    return CAIRN_OK;
}

static enum cairn_code fill_path(char *to, size_t capacity, const char *what,
                                 struct cairn_error *err, const char *a, const char *b,
                                 const char *c) {
    int size = snprintf(to, capacity, "%s%s%s", a, b, c);
    if (size < 0 || (size_t)size >= capacity)
        return cairn_fail(err, CAIRN_INVALID, "%s is longer than %zu bytes: %s%s%s", what,
                          capacity - 1, a, b, c);
    return CAIRN_OK;
}

/* Slabs are charged to the uploader: beyond its limit the kernel kills it at the first save. */
static enum cairn_code choose_budget(const struct cairn_up_settings *settings, uint64_t *ret_bytes,
                                     struct cairn_error *err) {
    uint64_t limit_bytes = cairn_memory_limit("");
    char wanted[24], limit[24];
    *ret_bytes = settings->memory_budget_bytes ? settings->memory_budget_bytes : limit_bytes / 4;
    if (*ret_bytes <= limit_bytes) return CAIRN_OK;
    cairn_size_text(*ret_bytes, wanted);
    cairn_size_text(limit_bytes, limit);
    return cairn_fail(err, CAIRN_INVALID,
                      "memory_budget is %s, and this process may use %s (the memory limit of its "
                      "container or unit, else the machine's): lower it, or raise that limit to "
                      "the budget and 150 MiB for the uploader itself",
                      wanted, limit);
}

enum cairn_code cairn_up_settings_derive(const struct cairn_up_settings *settings,
                                         struct cairn_up_places *ret, struct cairn_error *err) {
    struct cairn_up_places places = {0};
    CAIRN_TRY(node_name(settings->node, places.node, err));
    (void)gethostname(places.host, sizeof(places.host) - 1);
    if (!*settings->store)
        return cairn_fail(err, CAIRN_INVALID, "store is not set: a folder or s3://BUCKET/PREFIX");
    CAIRN_AUTO(stores) stores = {0};
    CAIRN_TRY(cairn_stores_parse(settings->stores, &stores, err));
    CAIRN_AUTO(servers) servers = {0};
    enum cairn_code code = cairn_servers_parse(settings->server, &servers, err);
    if (code != CAIRN_OK) return cairn_within(err, code, "server");
    if (*settings->socket) {
        CAIRN_TRY(fill_path(places.socket_path, sizeof(places.socket_path), "socket", err,
                            settings->socket, "", ""));
    } else {
        CAIRN_TRY(fill_path(places.socket_path, sizeof(places.socket_path),
                            "the path of the socket", err, settings->run_dir, "/uploader.sock",
                            ""));
    }
    char file[80];
    CAIRN_TRY(fill_path(file, sizeof(file), "node", err, "/", places.node, ".journal"));
    CAIRN_TRY(fill_path(places.journal_path, sizeof(places.journal_path), "the path of the journal",
                        err, settings->state_dir, file, ""));
    CAIRN_TRY(choose_budget(settings, &places.budget_bytes, err));
    if (strcmp(settings->peer_restore, "on") != 0 && strcmp(settings->peer_restore, "off") != 0 &&
        strcmp(settings->peer_restore, "auto") != 0)
        return cairn_fail(err, CAIRN_INVALID, "peer_restore is on, off or auto, not \"%s\"",
                          settings->peer_restore);
    if (settings->partner_memory_bytes && !*settings->peer_listen)
        return cairn_fail(err, CAIRN_INVALID,
                          "partner_memory needs peer_listen: copies come to that port");
    if (*settings->failure_domain && !cairn_name_valid(cairn_view_of(settings->failure_domain)))
        return cairn_fail(err, CAIRN_INVALID,
                          "failure_domain \"%s\": letters, digits, '.', '_' and '-' only",
                          settings->failure_domain);
    code = cairn_log_level_parse(settings->log_level, &places.log_level, err);
    if (code != CAIRN_OK) return cairn_within(err, code, "log_level");
    code = cairn_log_format_parse(settings->log_format, &places.log_format, err);
    if (code != CAIRN_OK) return cairn_within(err, code, "log_format");
    CAIRN_TRY(uid_list(settings->allow_uids, &places, err));
    *ret = places;
    return CAIRN_OK;
}

static enum cairn_code bad_list(const char *text, struct cairn_error *err) {
    return cairn_fail(err, CAIRN_INVALID,
                      "cpu_list is \"%s\"; it holds core numbers and ranges, such as 0-3,8", text);
}

/* Parses "3" or "3-5"; false unless well-formed and within the bits of cpu_set_t. */
static bool add_range(const char *from, size_t size, cpu_set_t *set) {
    const char *dash = memchr(from, '-', size);
    size_t first_size = dash ? (size_t)(dash - from) : size;
    uint64_t first, last;
    if (cairn_parse_u64((struct cairn_view){from, first_size}, &first, NULL) != CAIRN_OK)
        return false;
    last = first;
    if (dash && cairn_parse_u64((struct cairn_view){dash + 1, size - first_size - 1}, &last,
                                NULL) != CAIRN_OK)
        return false;
    if (last < first || last >= CPU_SETSIZE) return false;
    for (uint64_t core = first; core <= last; core++) CPU_SET((size_t)core, set);
    return true;
}

enum cairn_code cairn_up_cores_parse(const char *text, cpu_set_t *ret, struct cairn_error *err) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const char *at = text;; at++) {
        size_t size = strcspn(at, ",");
        if (!add_range(at, size, &set)) return bad_list(text, err);
        at += size;
        if (!*at) break;
    }
    *ret = set;
    return CAIRN_OK;
}

enum cairn_code cairn_up_cores_apply(const struct cairn_up_settings *settings,
                                     struct cairn_error *err) {
    cpu_set_t set;
    if (*settings->cpu_list) {
        CAIRN_TRY(cairn_up_cores_parse(settings->cpu_list, &set, err));
        if (sched_setaffinity(0, sizeof set, &set))
            return cairn_fail_errno(err, "cpu_list %s", settings->cpu_list);
    }
    if (settings->nice && setpriority(PRIO_PROCESS, 0, (int)settings->nice))
        return cairn_fail_errno(err, "nice %d", (int)settings->nice);
    return CAIRN_OK;
}

uint32_t cairn_up_cores_shared(const struct cairn_up_settings *settings) {
    cpu_set_t set;
    bool parted = settings->cpu_list && *settings->cpu_list;
    if (parted || sched_getaffinity(0, sizeof set, &set)) return UINT32_MAX;
    return (uint32_t)CPU_COUNT(&set);
}
