/* SPDX-License-Identifier: Apache-2.0 */
/* Doubling, from 64 items on, up to a bound. */
#include "common/array.h"

#include <stdlib.h>

#define FIRST_CAPACITY 64

enum cairn_code cairn_array_room(void *items, size_t item_bytes, size_t count, size_t *capacity,
                                 size_t max, const char *what, struct cairn_error *err) {
    void *now = NULL;
    CAIRN_ASSERT(count <= *capacity);
    if (count >= max) return cairn_fail(err, CAIRN_TOO_LARGE, "more than %zu %s", max, what);
    if (count < *capacity) return CAIRN_OK;
    size_t wanted = *capacity ? 2 * *capacity : FIRST_CAPACITY;
    if (wanted > max || wanted < *capacity) wanted = max;
    memcpy(&now, items, sizeof now); /* whatever it points to */
    void *grown = wanted > PTRDIFF_MAX / item_bytes ? NULL : realloc(now, wanted * item_bytes);
    if (!grown) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for %zu %s", wanted, what);
    memcpy(items, &grown, sizeof grown);
    *capacity = wanted;
    return CAIRN_OK;
}
