/* SPDX-License-Identifier: Apache-2.0 */
/* The list of cores, and handing it to the kernel. */
#include "uploader/cores.h"

#include <sys/resource.h>

#include "common/text.h"

static enum cairn_code bad_list(const char *text, struct cairn_error *err) {
    return cairn_fail(err, CAIRN_INVALID,
                      "cpu_list is \"%s\"; it holds core numbers and ranges, such as 0-3,8", text);
}

/* "3" or "3-5"; true when it is one of both and every core of it has a bit. */
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
