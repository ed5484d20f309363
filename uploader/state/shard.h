/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard: a save's state of one of its shards, as a table of phases and events.
 *
 *     sending <-> durable <-> registered
 *         \
 *          failed
 *
 * Why:     senders, the server's answers and a server that lost its state each move a shard; its
 *          save counts durable and registered shards.
 * Promise: 1   move changes a phase only by a row of uploader/state/shard.def, with the change of
 *              counts.
 * Limits:  none of its own.
 * Threads: the caller's; the daemon holds uploader_state.
 * Next:    uploader/state/save.h counts; uploader/state/upload.h: the same shard's upload.
 */
#pragma once

#include "common/base.h"

enum cairn_up_shard_phase {
#define PHASE(name, why) CAIRN_UP_SHARD_##name,
#include "uploader/state/shard.def"
#undef PHASE
};
enum cairn_up_shard_event {
#define EVENT(name, why) CAIRN_UP_SHARD_EVENT_##name,
#include "uploader/state/shard.def"
#undef EVENT
};
#define CAIRN_UP_SHARD_PHASES (CAIRN_UP_SHARD_FAILED + 1)
#define CAIRN_UP_SHARD_EVENTS (CAIRN_UP_SHARD_EVENT_LOOK + 1)

enum cairn_up_shard_due { /* a set of them is a uint32_t */
                          CAIRN_UP_SHARD_DUE_NOTHING = 0,
                          CAIRN_UP_SHARD_DUE_DURABLE_MORE = 1 << 0,
                          CAIRN_UP_SHARD_DUE_DURABLE_LESS = 1 << 1,
                          CAIRN_UP_SHARD_DUE_REGISTERED_MORE = 1 << 2,
                          CAIRN_UP_SHARD_DUE_REGISTERED_LESS = 1 << 3,
                          CAIRN_UP_SHARD_DUE_LOOK = 1 << 4 /* the senders HEAD it again */
};
uint32_t cairn_up_shard_state_move(enum cairn_up_shard_phase *shard,
                                   enum cairn_up_shard_event event);
