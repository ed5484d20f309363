/* SPDX-License-Identifier: Apache-2.0 */
/* One record a generation, made when its save is through with it. */
#include "uploader/saves/kept.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/log.h"
#include "common/text.h"
#include "uploader/saves/save.h"

struct kept_shard {
    char *name; /* owned */
    uint64_t offset, bytes;
};
struct cairn_up_kept {
    char run_text[2 * CAIRN_NAME_BYTES_MAX + 2];
    char version[CAIRN_VERSION_ID_BYTES];
    uint64_t attempt, step; /* with n: the order of versions (Q25) */
    uint32_t n;
    bool committed;
    uint64_t bytes; /* of all shards */
    size_t shard_count;
    struct kept_shard shards[]; /* by name */
};

static void kept_free(struct cairn_up_kept *kept) {
    for (size_t i = 0; kept && i < kept->shard_count; i++) free(kept->shards[i].name);
    free(kept);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct kept_shard *)a)->name, ((const struct kept_shard *)b)->name);
}

/* NULL: there is no memory to remember it. */
static struct cairn_up_kept *kept_of(const struct cairn_up_save *save) {
    struct cairn_up_kept *kept =
        calloc(1, sizeof(*kept) + save->stage_count * sizeof(kept->shards[0]));
    if (!kept) return NULL;
    (void)cairn_text_copy(kept->run_text, sizeof(kept->run_text), save->attempt->run_text);
    (void)cairn_text_copy(kept->version, sizeof(kept->version), save->place.id.text);
    kept->attempt = save->attempt->grant.attempt;
    kept->step = save->place.step;
    kept->n = save->n;
    kept->committed = save->end == CAIRN_UP_COMMITTED;
    for (size_t i = 0; i < save->stage_count; i++) {
        const struct cairn_up_shard *shard = save->shards[save->stage_first + i];
        struct kept_shard *to = &kept->shards[kept->shard_count++];
        *to = (struct kept_shard){strdup(shard->name), shard->slab_offset, shard->size_bytes};
        kept->bytes += shard->size_bytes;
        if (to->name) continue;
        kept_free(kept);
        return NULL;
    }
    qsort(kept->shards, kept->shard_count, sizeof(kept->shards[0]), by_name);
    return kept;
}

/* ---- in and out ---- */

void cairn_up_kept_forget_locked(struct cairn_up_slab *slab) {
    kept_free(CAIRN_TAKE(slab->kept));
    cairn_up_slab_state_forget(&slab->state);
}

void cairn_up_kept_give_locked(struct cairn_up *up, const struct cairn_up_save *save,
                               struct cairn_up_slab *slab) {
    CAIRN_ASSERT(!slab->kept);
    bool whole = save->state.phase == CAIRN_UP_PHASE_OVER
                     ? save->end == CAIRN_UP_COMMITTED
                     : cairn_up_save_state_is_durable(&save->state);
    if (whole && save->stage_count && up->settings.memory_tier_bytes) slab->kept = kept_of(save);
    if (slab->kept)
        cairn_up_slab_state_keep(&slab->state, save->state.owner);
    else
        cairn_up_slab_state_give(&slab->state, save->state.owner);
}

static bool is_newer(const struct cairn_up_kept *a, const struct cairn_up_kept *b) {
    if (a->attempt != b->attempt) return a->attempt > b->attempt;
    if (a->step != b->step) return a->step > b->step;
    return a->n > b->n;
}

static bool is_outdated(const struct cairn_up *up, const struct cairn_up_kept *kept) {
    for (const struct cairn_up_slab *at = up->locked.slabs; at; at = at->next)
        if (at->kept && at->kept->committed && is_newer(at->kept, kept) &&
            !strcmp(at->kept->run_text, kept->run_text))
            return true;
    return false;
}

void cairn_up_kept_ended_locked(struct cairn_up *up, const struct cairn_up_save *save) {
    bool sweeps = false;
    for (struct cairn_up_slab *at = up->locked.slabs; at; at = at->next) {
        if (!at->kept || strcmp(at->kept->version, save->place.id.text) != 0) continue;
        if (save->end == CAIRN_UP_COMMITTED)
            at->kept->committed = true;
        else
            cairn_up_kept_forget_locked(at);
        sweeps = true;
    }
    if (sweeps) cairn_up_slabs_sweep_locked(up);
}

/* ---- memory that others need ---- */

bool cairn_up_kept_is_spare(const struct cairn_up_slab *slab) {
    return slab->state.kept && !slab->conn && !slab->leaving;
}

/* The one that has been without a trainer for longest. */
static struct cairn_up_slab *oldest(struct cairn_up *up) {
    struct cairn_up_slab *found = NULL;
    for (struct cairn_up_slab *at = up->locked.slabs; at; at = at->next) {
        if (!cairn_up_kept_is_spare(at)) continue;
        if (!found || at->left_ms < found->left_ms) found = at;
    }
    return found;
}

uint64_t cairn_up_kept_evict_locked(struct cairn_up *up, uint64_t bytes) {
    uint64_t back = 0;
    for (struct cairn_up_slab *slab; back < bytes && (slab = oldest(up));) {
        cairn_up_kept_forget_locked(slab);
        slab->evicted = true;
        back += slab->bytes;
    }
    if (back) cairn_up_slabs_sweep_locked(up);
    return back;
}

void cairn_up_kept_trim_locked(struct cairn_up *up) {
    uint64_t now_ms = cairn_mono_ms(), bytes = 0;
    for (struct cairn_up_slab *at = up->locked.slabs; at; at = at->next) {
        if (!cairn_up_kept_is_spare(at)) continue;
        bytes += at->bytes;
        if (now_ms < at->left_ms + up->settings.memory_tier_time_ms && !is_outdated(up, at->kept))
            continue;
        bytes -= at->bytes;
        cairn_up_kept_forget_locked(at);
    }
    while (bytes > up->settings.memory_tier_bytes) {
        struct cairn_up_slab *slab = oldest(up);
        bytes -= slab->bytes;
        cairn_up_kept_forget_locked(slab);
    }
}

void cairn_up_kept_tick(struct cairn_up *up) {
    CAIRN_HOLD(&up->lock);
    bool spare = false;
    for (const struct cairn_up_slab *at = up->locked.slabs; at; at = at->next)
        spare |= cairn_up_kept_is_spare(at);
    if (spare) cairn_up_slabs_sweep_locked(up);
}

uint64_t cairn_up_kept_bytes_locked(const struct cairn_up *up) {
    uint64_t bytes = 0;
    for (const struct cairn_up_slab *at = up->locked.slabs; at; at = at->next)
        if (at->kept) bytes += at->kept->bytes;
    return bytes;
}

/* ---- reading ---- */

static const struct kept_shard *find(const struct cairn_up_slab *slab, const char *version,
                                     char *shard, uint64_t shard_bytes) {
    const struct kept_shard wanted = {.name = shard};
    if (!slab->kept || strcmp(slab->kept->version, version) != 0) return NULL;
    const struct kept_shard *found = bsearch(&wanted, slab->kept->shards, slab->kept->shard_count,
                                             sizeof(wanted), by_name);
    return found && found->bytes == shard_bytes ? found : NULL;
}

bool cairn_up_kept_pin(struct cairn_up *up, const char *version, const char *shard,
                       uint64_t shard_bytes, struct cairn_up_kept_bytes *ret) {
    CAIRN_HOLD(&up->lock);
    for (struct cairn_up_slab *at = up->locked.slabs; at; at = at->next) {
        const struct kept_shard *found = find(at, version, (char *)shard, shard_bytes);
        if (!found) continue;
        at->pins++;
        *ret = (struct cairn_up_kept_bytes){at, at->state.kept, at->memory.data + found->offset};
        return true;
    }
    return false;
}

void cairn_up_kept_unpin(struct cairn_up *up, const struct cairn_up_kept_bytes *bytes, bool same) {
    CAIRN_HOLD(&up->lock);
    struct cairn_up_slab *slab = bytes->slab;
    CAIRN_ASSERT(slab->pins > 0);
    slab->pins--;
    if (!same && slab->kept && slab->state.kept == bytes->kept) {
        cairn_log(WARN, "kept.differs", "run=%s step=%" PRIu64 " version=%s", slab->kept->run_text,
                  slab->kept->step, slab->kept->version);
        cairn_up_kept_forget_locked(slab);
    }
    if (!slab->conn && !slab->pins) cairn_up_slabs_sweep_locked(up);
}
