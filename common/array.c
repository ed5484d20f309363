/* SPDX-License-Identifier: Apache-2.0 */
/* Capacities double from 64 items on, up to the bound. */
#include "common/array.h"

#include <stdlib.h>

#define FIRST_CAPACITY 64

enum cairn_code cairn_array_room(void *items, size_t item_bytes, size_t count, size_t more,
                                 size_t *capacity, size_t max, const char *what,
                                 struct cairn_error *err) {
    void *now = NULL;
    CAIRN_PROMISE(count <= *capacity,
                  return cairn_fail(err, CAIRN_INTERNAL, "%zu of %zu %s", count, *capacity, what));
    if (count > max || more > max - count)
        return cairn_fail(err, CAIRN_TOO_LARGE, "more than %zu %s", max, what);
    if (more <= *capacity - count) return CAIRN_OK;
    size_t doubled = *capacity > max / 2 ? max : 2 * *capacity;
    size_t wanted =
        cairn_max_u64(cairn_max_u64(doubled, count + more), cairn_min_u64(FIRST_CAPACITY, max));
    memcpy(&now, items, sizeof now); /* whatever it points to */
    void *grown = wanted > PTRDIFF_MAX / item_bytes ? NULL : realloc(now, wanted * item_bytes);
    if (!grown) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for %zu %s", wanted, what);
    memcpy(items, &grown, sizeof grown);
    *capacity = wanted;
    return CAIRN_OK;
}
