/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kept: what the node's slabs still hold of the newest versions, for restores.
 *
 * Why:     a job that starts again mostly wants what its processes staged minutes ago, and the
 *          uploader, which outlives them, has it in memory; the store is far.
 * Promise: 1   a generation that is free holds the bytes of the save before it until another save
 *              takes it; a trainer that is connected gives up nothing for that.
 *          2   when its trainer has gone, the newest committed version of each run is kept, and
 *              what may be it; for memory_tier_time, within memory_tier. Whoever needs memory goes
 *              before it: a rank's slabs and the windows of restores have it given back. (They do
 *              not take it over: no other process can ever map it for writing, common/slab.h.)
 *          3   what is read here is a claim: trainers may write into the memory at any moment. The
 *              reader copies it and compares the copy with the version's checksums.
 *          4   a save that fails or does not become committed leaves nothing.
 * Limits:  slabs alone, no files; nothing outlives this process.
 * Threads: _locked and is_spare: uploader_state is held; the others take it.
 * Next:    uploader/saves/slabs.h; uploader/fetch/kept.c reads it.
 */
#pragma once

#include "uploader/saves/slabs.h"

struct cairn_up_save;

/* Kept, and no trainer has it. */
bool cairn_up_kept_is_spare(const struct cairn_up_slab *slab);
/* Give back at least so many bytes, if there are as many. Returns how many are on their way. */
uint64_t cairn_up_kept_evict_locked(struct cairn_up *up, uint64_t bytes);

/* The save needs its generation no longer: free, and kept where that is worth it. */
void cairn_up_kept_give_locked(struct cairn_up *up, const struct cairn_up_save *save,
                               struct cairn_up_slab *slab);
/* How it ended is known. */
void cairn_up_kept_ended_locked(struct cairn_up *up, const struct cairn_up_save *save);
void cairn_up_kept_forget_locked(struct cairn_up_slab *slab);
/* Forget what is kept no longer (2); the pages are given back by the sweep that calls it. */
void cairn_up_kept_trim_locked(struct cairn_up *up);
/* Now and then: time passes. */
void cairn_up_kept_tick(struct cairn_up *up);
uint64_t cairn_up_kept_bytes_locked(const struct cairn_up *up); /* of shards */

/* ---- reading ---- */

struct cairn_up_kept_bytes {
    struct cairn_up_slab *slab;
    uint64_t kept; /* whose they are */
    const uint8_t *data;
};
/* False: this node does not hold that shard. What was pinned must be unpinned soon. */
bool cairn_up_kept_pin(struct cairn_up *up, const char *version, const char *shard,
                       uint64_t shard_bytes, struct cairn_up_kept_bytes *ret);
/* same: the bytes were right. Wrong ones are not kept, unless a new save has them by now. */
void cairn_up_kept_unpin(struct cairn_up *up, const struct cairn_up_kept_bytes *bytes, bool same);
