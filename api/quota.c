/* SPDX-License-Identifier: Apache-2.0 */
/* One sentence, written and read; see quota.h. */
#include "api/quota.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/text.h"

static const char *const resources[] = {"versions", "bytes"};

void cairn_quota_excess_text(const struct cairn_quota_excess *excess, const char *project,
                             char *ret, size_t capacity) {
    snprintf(ret, capacity,
             "quota of %s: limit %" PRIu64 ", used %" PRIu64 ", asked %" PRIu64
             "; project %s has no room for another save until some are deleted and gone, or its "
             "quota is raised",
             excess->resource, excess->limit, excess->used, excess->asked, project);
}

/* What stands before, then a number. */
static bool take_number(const char **at, const char *before, uint64_t *ret) {
    size_t size = strlen(before);
    if (strncmp(*at, before, size) != 0) return false;
    *at += size;
    size_t digits = strspn(*at, "0123456789");
    struct cairn_view number = {*at, digits};
    *at += digits;
    return cairn_parse_u64(number, ret, NULL) == CAIRN_OK;
}

bool cairn_quota_excess_read(const char *text, struct cairn_quota_excess *ret) {
    static const char head[] = "quota of ";
    struct cairn_quota_excess read = {0};
    if (strncmp(text, head, sizeof(head) - 1) != 0) return false;
    const char *at = text + sizeof(head) - 1;
    for (size_t i = 0; i < CAIRN_COUNT(resources) && !read.resource; i++)
        if (!strncmp(at, resources[i], strlen(resources[i]))) read.resource = resources[i];
    if (!read.resource) return false;
    at += strlen(read.resource);
    if (!take_number(&at, ": limit ", &read.limit) || !take_number(&at, ", used ", &read.used) ||
        !take_number(&at, ", asked ", &read.asked) || *at != ';')
        return false;
    *ret = read;
    return true;
}

bool cairn_quota_excess_put(json_t *object, const struct cairn_quota_excess *excess) {
    int refused = json_object_set_new(object, "resource", json_string(excess->resource)) |
                  json_object_set_new(object, "limit", json_integer((json_int_t)excess->limit)) |
                  json_object_set_new(object, "used", json_integer((json_int_t)excess->used)) |
                  json_object_set_new(object, "asked", json_integer((json_int_t)excess->asked));
    return !refused;
}

void cairn_quota_text(uint64_t versions, uint64_t bytes, char *ret, size_t capacity) {
    bool both = versions != CAIRN_QUOTA_NONE && bytes != CAIRN_QUOTA_NONE;
    char count[40] = "", size[40] = "";
    if (versions != CAIRN_QUOTA_NONE)
        snprintf(count, sizeof(count), "%" PRIu64 " version%s", versions, versions == 1 ? "" : "s");
    if (bytes != CAIRN_QUOTA_NONE)
        snprintf(size, sizeof(size), "%" PRIu64 " byte%s", bytes, bytes == 1 ? "" : "s");
    snprintf(ret, capacity, "%s%s%s", count, both ? ", " : "", size);
    if (!ret[0]) snprintf(ret, capacity, "no bound");
}
