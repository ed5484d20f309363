/* SPDX-License-Identifier: Apache-2.0 */
/* The newest is put in front; see shard_errors.h. */
#include "uploader/saves/shard_errors.h"

#include <string.h>

#include "common/text.h"

void cairn_up_errors_add(struct cairn_up_errors *errors, const char *shard, uint32_t part,
                         const char *text, uint64_t now_ms) {
    struct cairn_up_shard_error one = {.part = part, .tries = 1, .at_ms = now_ms};
    cairn_utf8_shorten(one.shard, sizeof(one.shard), shard);
    cairn_utf8_shorten(one.text, sizeof(one.text), text);
    size_t at = 0;
    for (; at < errors->count; at++)
        if (errors->items[at].part == part && !strcmp(errors->items[at].shard, one.shard)) break;
    if (at < errors->count) one.tries += errors->items[at].tries;
    if (at == errors->count && at < CAIRN_UP_ERRORS_MAX) errors->count++;
    if (at == CAIRN_UP_ERRORS_MAX) at--; /* the one that is longest ago */
    memmove(&errors->items[1], &errors->items[0], at * sizeof(errors->items[0]));
    errors->items[0] = one;
    CAIRN_ASSERT(errors->count <= CAIRN_UP_ERRORS_MAX);
}
