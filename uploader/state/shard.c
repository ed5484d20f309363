/* SPDX-License-Identifier: Apache-2.0 */
/* shard: makes a table of uploader/state/shard.def. */
#include "uploader/state/shard.h"

enum { /* the table's short names */
       NOTHING = CAIRN_UP_SHARD_DUE_NOTHING,
       DURABLE_MORE = CAIRN_UP_SHARD_DUE_DURABLE_MORE,
       DURABLE_LESS = CAIRN_UP_SHARD_DUE_DURABLE_LESS,
       REGISTERED_MORE = CAIRN_UP_SHARD_DUE_REGISTERED_MORE,
       REGISTERED_LESS = CAIRN_UP_SHARD_DUE_REGISTERED_LESS,
       LOOK = CAIRN_UP_SHARD_DUE_LOOK,
};
static const struct {
    enum cairn_up_shard_phase from;
    enum cairn_up_shard_event event;
    enum cairn_up_shard_phase to;
    uint32_t due;
} moves[] = {
#define MOVE(from, event, to, due, why)                                                            \
    {CAIRN_UP_SHARD_##from, CAIRN_UP_SHARD_EVENT_##event, CAIRN_UP_SHARD_##to, (due)},
#include "uploader/state/shard.def"
#undef MOVE
};

uint32_t cairn_up_shard_state_move(enum cairn_up_shard_phase *shard,
                                   enum cairn_up_shard_event event) {
    size_t row = 0;
    while (row < CAIRN_COUNT(moves) && (moves[row].from != *shard || moves[row].event != event))
        row++;
    CAIRN_ASSERT(row < CAIRN_COUNT(moves));
    *shard = moves[row].to;
    return moves[row].due;
}
