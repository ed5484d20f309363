/* SPDX-License-Identifier: Apache-2.0 */
/* One record a generation, made when its save is through with it, and one a copy that is whole. */
#include "uploader/saves/kept.h"

#include <inttypes.h>
#include <stdlib.h>

#include "api/wire/messages.h"
#include "common/log.h"
#include "common/text.h"
#include "uploader/saves/description.h"
#include "uploader/saves/save.h"

#define TOLD_MAX 4096 /* ranks of a run in one heartbeat */

void cairn_up_kept_free(struct cairn_up_kept *kept) {
    for (size_t i = 0; kept && i < kept->shard_count; i++) free(kept->shards[i].name);
    if (kept) cairn_buf_release(&kept->gift.head);
    free(kept);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct cairn_up_kept_shard *)a)->name,
                  ((const struct cairn_up_kept_shard *)b)->name);
}

static struct cairn_up_kept *kept_new(const struct cairn_up_attempt *attempt, size_t shards) {
    struct cairn_up_kept *kept = calloc(1, sizeof(*kept) + shards * sizeof(kept->shards[0]));
    if (!kept) return NULL;
    kept->run = attempt->grant.name;
    (void)cairn_text_copy(kept->run_text, sizeof(kept->run_text), attempt->run_text);
    kept->attempt = attempt->grant.attempt;
    return kept;
}

static bool add_shard(struct cairn_up_kept *kept, const struct cairn_up_kept_shard *shard) {
    struct cairn_up_kept_shard *to = &kept->shards[kept->shard_count];
    *to = *shard;
    to->name = strdup(shard->name);
    if (!to->name) return false;
    kept->shard_count++;
    kept->bytes += shard->bytes;
    return true;
}

/* One that its partner does not have: described now, since nobody can once the save is over.
 * Without memory for that it is not given. */
static void describe_gift(struct cairn_up *up, const struct cairn_up_save *save,
                          struct cairn_up_kept *kept) {
    if (!up->partner || save->partner.node[0] || save->file_count || save->abort_on_disconnect)
        return;
    if (cairn_up_save_describe_locked(up, save, &kept->gift.head, NULL))
        cairn_buf_release(&kept->gift.head);
    else
        cairn_up_wakeup_raise(&up->partner_work);
}

/* NULL: there is no memory to remember it. */
static struct cairn_up_kept *kept_of(struct cairn_up *up, const struct cairn_up_save *save) {
    struct cairn_up_kept *kept = kept_new(save->attempt, save->stage_count);
    if (!kept) return NULL;
    kept->version = save->place.id;
    kept->step = save->place.step;
    kept->n = save->n;
    kept->rank = save->rank;
    kept->committed = save->end == CAIRN_UP_COMMITTED;
    for (size_t i = 0; i < save->stage_count; i++) {
        size_t place = save->stage_first + i;
        const struct cairn_up_shard *shard = save->shards[place];
        const struct cairn_up_kept_shard wanted = {shard->name, shard->slab_offset,
                                                   shard->size_bytes, place};
        if (add_shard(kept, &wanted)) continue;
        cairn_up_kept_free(kept);
        return NULL;
    }
    describe_gift(up, save, kept);
    qsort(kept->shards, kept->shard_count, sizeof(kept->shards[0]), by_name);
    return kept;
}

/* ---- in and out ---- */

void cairn_up_kept_forget_locked(struct cairn_up_slab *slab) {
    cairn_up_kept_free(CAIRN_TAKE(slab->kept));
    cairn_up_slab_state_forget(&slab->state);
}

void cairn_up_kept_give_locked(struct cairn_up *up, const struct cairn_up_save *save,
                               struct cairn_up_slab *slab) {
    CAIRN_ASSERT(!slab->kept);
    bool whole = save->state.phase == CAIRN_UP_PHASE_OVER
                     ? save->end == CAIRN_UP_COMMITTED
                     : cairn_up_save_state_is_durable(&save->state);
    if (whole && save->stage_count && up->settings.memory_tier_bytes)
        slab->kept = kept_of(up, save);
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

static bool replaces(const struct cairn_up_kept *newer, const struct cairn_up_kept *kept) {
    return newer && newer->committed && is_newer(newer, kept) &&
           !strcmp(newer->run_text, kept->run_text);
}

bool cairn_up_kept_is_outdated_locked(const struct cairn_up *up, const struct cairn_up_kept *kept) {
    for (const struct cairn_up_slab *at = up->locked.slabs; at; at = at->next)
        if (replaces(at->kept, kept)) return true;
    for (const struct cairn_up_kept *at = up->locked.kept_copies; at; at = at->next)
        if (replaces(at, kept)) return true;
    return false;
}

void cairn_up_kept_ended_locked(struct cairn_up *up, const struct cairn_up_save *save) {
    bool sweeps = false, committed = save->end == CAIRN_UP_COMMITTED;
    for (struct cairn_up_kept *at = up->locked.kept_copies; at; at = at->next) {
        if (strcmp(at->version.text, save->place.id.text) != 0) continue;
        at->committed |= committed;
        at->gone |= !committed;
    }
    for (struct cairn_up_slab *at = up->locked.slabs; at; at = at->next) {
        if (!at->kept || strcmp(at->kept->version.text, save->place.id.text) != 0) continue;
        if (committed)
            at->kept->committed = true;
        else
            cairn_up_kept_forget_locked(at);
        sweeps = true;
    }
    if (sweeps) cairn_up_slabs_sweep_locked(up);
}

/* ---- copies of other nodes ---- */

struct cairn_up_kept *cairn_up_kept_copy_new(const struct cairn_up *up,
                                             const struct cairn_up_kept_copy *copy) {
    if (!up->settings.memory_tier_bytes) return NULL;
    struct cairn_up_kept *kept = kept_new(copy->attempt, copy->shard_count);
    if (!kept) return NULL;
    kept->version = *copy->version;
    kept->step = copy->step;
    kept->n = copy->n;
    kept->rank = copy->rank;
    kept->data = copy->data;
    return kept;
}

bool cairn_up_kept_copy_name(struct cairn_up_kept *kept, const char *shard, uint64_t offset,
                             uint64_t bytes) {
    const struct cairn_up_kept_shard wanted = {(char *)shard, offset, bytes, kept->shard_count};
    return add_shard(kept, &wanted);
}

void cairn_up_kept_copy_add_locked(struct cairn_up *up, struct cairn_up_kept *take_kept) {
    qsort(take_kept->shards, take_kept->shard_count, sizeof(take_kept->shards[0]), by_name);
    take_kept->left_ms = cairn_mono_ms();
    take_kept->next = up->locked.kept_copies;
    up->locked.kept_copies = take_kept;
}

void cairn_up_kept_copy_remove_locked(struct cairn_up *up, struct cairn_up_kept *kept) {
    if (!kept) return;
    CAIRN_ASSERT(!kept->pins);
    struct cairn_up_kept **at = &up->locked.kept_copies;
    while (*at && *at != kept) at = &(*at)->next;
    CAIRN_ASSERT(*at);
    *at = kept->next;
    cairn_up_kept_free(kept);
}

bool cairn_up_kept_copy_stays_locked(const struct cairn_up *up, struct cairn_up_kept *kept) {
    uint64_t now_ms = cairn_mono_ms();
    for (const struct cairn_up_attempt *at = up->locked.attempts; at; at = at->next)
        if (at->users && !strcmp(at->run_text, kept->run_text)) kept->left_ms = now_ms;
    return !kept->gone && now_ms < kept->left_ms + up->settings.memory_tier_time_ms &&
           !cairn_up_kept_is_outdated_locked(up, kept);
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
        if (now_ms < at->left_ms + up->settings.memory_tier_time_ms && 
            !cairn_up_kept_is_outdated_locked(up, at->kept))
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
    for (const struct cairn_up_kept *at = up->locked.kept_copies; at; at = at->next)
        if (!at->gone) bytes += at->bytes;
    return bytes;
}

/* ---- the heartbeat ---- */

static int newest_first(const void *a, const void *b) {
    const struct cairn_up_kept *one = *(struct cairn_up_kept *const *)a;
    const struct cairn_up_kept *other = *(struct cairn_up_kept *const *)b;
    if (is_newer(one, other)) return -1;
    if (is_newer(other, one)) return 1;
    return one->rank < other->rank ? -1 : one->rank > other->rank;
}

static void note(const struct cairn_up *up, const char *run_text, const struct cairn_up_kept *kept,
                 const struct cairn_up_kept **notes, size_t *count) {
    if (!kept || kept->gone || *count == TOLD_MAX || strcmp(kept->run_text, run_text) != 0 ||
        cairn_up_kept_is_outdated_locked(up, kept))
        return;
    notes[(*count)++] = kept;
}

static json_t *ranks_of(const struct cairn_up_kept *const *notes, size_t count, size_t *at) {
    const char *version = notes[*at]->version.text;
    json_t *ranks = json_array();
    for (; *at < count && !strcmp(notes[*at]->version.text, version); (*at)++)
        (void)json_array_append_new(ranks, json_integer(notes[*at]->rank));
    return ranks;
}

json_t *cairn_up_kept_json_locked(const struct cairn_up *up, const char *run_text) {
    CAIRN_AUTO_HEAP const struct cairn_up_kept **notes = calloc(TOLD_MAX, sizeof(*notes));
    size_t count = 0;
    if (!notes) return NULL;
    for (const struct cairn_up_slab *at = up->locked.slabs; at; at = at->next)
        note(up, run_text, at->kept, notes, &count);
    for (const struct cairn_up_kept *at = up->locked.kept_copies; at; at = at->next)
        note(up, run_text, at, notes, &count);
    qsort(notes, count, sizeof(*notes), newest_first);
    json_t *array = count ? json_array() : NULL;
    for (size_t i = 0; i < count;) {
        const char *version = notes[i]->version.text;
        CAIRN_AUTO_JSON json_t *ranks = ranks_of(notes, count, &i);
        (void)json_array_append_new(array,
                                    CAIRN_PACK(node_kept, .version = version, .ranks = ranks));
    }
    return array;
}

/* ---- reading ---- */

static const struct cairn_up_kept_shard *find(const struct cairn_up_kept *kept, const char *version,
                                              char *shard, uint64_t shard_bytes) {
    const struct cairn_up_kept_shard wanted = {.name = shard};
    if (!kept || kept->gone || strcmp(kept->version.text, version) != 0) return NULL;
    const struct cairn_up_kept_shard *found =
        bsearch(&wanted, kept->shards, kept->shard_count, sizeof(wanted), by_name);
    return found && found->bytes == shard_bytes ? found : NULL;
}

bool cairn_up_kept_pin(struct cairn_up *up, const char *version, const char *shard,
                       uint64_t shard_bytes, struct cairn_up_kept_bytes *ret) {
    CAIRN_HOLD(&up->lock);
    for (struct cairn_up_slab *at = up->locked.slabs; at; at = at->next) {
        const struct cairn_up_kept_shard *found =
            find(at->kept, version, (char *)shard, shard_bytes);
        if (!found) continue;
        at->pins++;
        *ret = (struct cairn_up_kept_bytes){
            .slab = at, .kept = at->state.kept, .data = at->memory.data + found->offset};
        return true;
    }
    for (struct cairn_up_kept *at = up->locked.kept_copies; at; at = at->next) {
        const struct cairn_up_kept_shard *found = find(at, version, (char *)shard, shard_bytes);
        if (!found) continue;
        at->pins++;
        *ret = (struct cairn_up_kept_bytes){.copy = at, .data = at->data + found->offset};
        return true;
    }
    return false;
}

static void complain(const struct cairn_up_kept *kept) {
    cairn_log(WARN, "kept.differs", "run=%s step=%" PRIu64 " version=%s rank=%u", kept->run_text,
              kept->step, kept->version.text, kept->rank);
}

static void unpin_copy(struct cairn_up_kept *copy, bool same) {
    CAIRN_ASSERT(copy->pins > 0);
    copy->pins--;
    if (same || copy->gone) return;
    complain(copy);
    copy->gone = true; /* its memory goes with uploader/partner's next sweep */
}

void cairn_up_kept_unpin(struct cairn_up *up, const struct cairn_up_kept_bytes *bytes, bool same) {
    CAIRN_HOLD(&up->lock);
    struct cairn_up_slab *slab = bytes->slab;
    if (!slab) {
        unpin_copy(bytes->copy, same);
        return;
    }
    CAIRN_ASSERT(slab->pins > 0);
    slab->pins--;
    if (!same && slab->kept && slab->state.kept == bytes->kept) {
        complain(slab->kept);
        cairn_up_kept_forget_locked(slab);
    }
    if (!slab->conn && !slab->pins) cairn_up_slabs_sweep_locked(up);
}
