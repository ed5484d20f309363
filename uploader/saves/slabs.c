/* SPDX-License-Identifier: Apache-2.0 */
/* Slabs: requests for memory, pages made and given back by helpers, and kept bytes. */
#include "uploader/saves/slabs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/wire/messages.h"
#include "common/text.h"
#include "uploader/mail.h"
#include "uploader/saves/save.h"

#define TOLD_MAX 4096 /* ranks of a run in one heartbeat */

static void kept_free(struct cairn_up_kept *kept) {
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

/* Describes a save for its partner while the save exists; without memory there is no copy. */
static void describe_gift(struct cairn_up *up, const struct cairn_up_save *save,
                          struct cairn_up_kept *kept) {
    if (!up->partner || save->partner.node[0] || save->file_count || save->stream_count ||
        save->abort_on_disconnect)
        return; /* streams' memory is not kept */
    if (cairn_up_save_describe_locked(up, save, &kept->gift.head, NULL))
        cairn_buf_release(&kept->gift.head);
    else
        cairn_up_wakeup_raise(&up->partner_work);
}

/* Records the generation's contents; NULL: no memory. */
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
        kept_free(kept);
        return NULL;
    }
    describe_gift(up, save, kept);
    qsort(kept->shards, kept->shard_count, sizeof(kept->shards[0]), by_name);
    return kept;
}

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

struct cairn_up_kept *cairn_up_kept_copy_add_locked(struct cairn_up *up,
                                                    const struct cairn_up_kept_copy *copy) {
    if (!up->settings.memory_tier_bytes) return NULL;
    struct cairn_up_kept *kept = kept_new(copy->attempt, copy->shard_count);
    if (!kept) return NULL;
    kept->version = *copy->version;
    kept->step = copy->step;
    kept->n = copy->n;
    kept->rank = copy->rank;
    kept->data = copy->data;
    for (size_t i = 0; i < copy->shard_count; i++) {
        struct cairn_up_kept_shard wanted = copy->shards[i];
        wanted.place = i;
        if (add_shard(kept, &wanted)) continue;
        kept_free(kept);
        return NULL;
    }
    qsort(kept->shards, kept->shard_count, sizeof(kept->shards[0]), by_name);
    kept->left_ms = cairn_mono_ms();
    kept->next = up->locked.kept_copies;
    up->locked.kept_copies = kept;
    return kept;
}

void cairn_up_kept_copy_remove_locked(struct cairn_up *up, struct cairn_up_kept *kept) {
    if (!kept) return;
    CAIRN_ASSERT(!kept->pins);
    struct cairn_up_kept **at = &up->locked.kept_copies;
    while (*at && *at != kept) at = &(*at)->next;
    CAIRN_ASSERT(*at);
    *at = kept->next;
    kept_free(kept);
}

bool cairn_up_kept_copy_stays_locked(const struct cairn_up *up, struct cairn_up_kept *kept) {
    uint64_t now_ms = cairn_mono_ms();
    for (const struct cairn_up_attempt *at = up->locked.attempts; at; at = at->next)
        if (at->users && !strcmp(at->run_text, kept->run_text)) kept->left_ms = now_ms;
    return !kept->gone && now_ms < kept->left_ms + up->settings.memory_tier_time_ms &&
           !cairn_up_kept_is_outdated_locked(up, kept);
}

bool cairn_up_kept_is_spare(const struct cairn_up_slab *slab) {
    return slab->state.kept && !slab->conn && !slab->leaving;
}

/* The spare slab whose trainer left first. */
static struct cairn_up_slab *oldest(struct cairn_up *up) {
    struct cairn_up_slab *found = NULL;
    for (struct cairn_up_slab *at = up->locked.slabs; at; at = at->next) {
        if (!cairn_up_kept_is_spare(at)) continue;
        if (!found || at->left_ms < found->left_ms) found = at;
    }
    return found;
}

/* Gives back spare slabs of at least `bytes`, if there are enough; returns the bytes given back. */
static uint64_t kept_evict_locked(struct cairn_up *up, uint64_t bytes) {
    uint64_t back = 0;
    for (struct cairn_up_slab *slab; back < bytes && (slab = oldest(up));) {
        cairn_up_kept_forget_locked(slab);
        slab->evicted = true;
        back += slab->bytes;
    }
    if (back) cairn_up_slabs_sweep_locked(up);
    return back;
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

static int newest_first(const void *a, const void *b) {
    const struct cairn_up_kept *one = *(struct cairn_up_kept *const *)a;
    const struct cairn_up_kept *other = *(struct cairn_up_kept *const *)b;
    if (is_newer(one, other)) return -1;
    if (is_newer(other, one)) return 1;
    return one->rank < other->rank ? -1 : one->rank > other->rank;
}

static void note_kept(const struct cairn_up *up, const char *run_text,
                      const struct cairn_up_kept *kept, const struct cairn_up_kept **notes,
                      size_t *count) {
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
        note_kept(up, run_text, at->kept, notes, &count);
    for (const struct cairn_up_kept *at = up->locked.kept_copies; at; at = at->next)
        note_kept(up, run_text, at, notes, &count);
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

static const struct cairn_up_kept_shard *find_kept_shard(const struct cairn_up_kept *kept,
                                                         const char *version, char *shard,
                                                         uint64_t shard_bytes) {
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
            find_kept_shard(at->kept, version, (char *)shard, shard_bytes);
        if (!found) continue;
        at->pins++;
        *ret = (struct cairn_up_kept_bytes){
            .slab = at, .kept = at->state.kept, .data = at->memory.data + found->offset};
        return true;
    }
    for (struct cairn_up_kept *at = up->locked.kept_copies; at; at = at->next) {
        const struct cairn_up_kept_shard *found =
            find_kept_shard(at, version, (char *)shard, shard_bytes);
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
    copy->gone = true; /* uploader/partner's next sweep frees its memory */
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

/* How long a request waits for pages being given back, regardless of its own timeout. */
#define PAGES_BACK_MS 5000

/* An upper bound of one generation of all ranks of this node: each rank's part is rounded up to
 * whole units, by the maximum where ranks differ. */
static uint64_t node_generation(const struct cairn_up_slab_request *request) {
    uint64_t own = cairn_round_up(request->bytes, CAIRN_SLAB_UNIT_BYTES);
    if (!request->node_bytes || request->node_bytes == request->bytes * request->local_world_size)
        return own * request->local_world_size;
    return cairn_max_u64(own, request->node_bytes +
                                  request->local_world_size * (CAIRN_SLAB_UNIT_BYTES - 1));
}

/* The node's slabs, as one request counts them. */
struct holdings {
    uint64_t own;        /* its attempt's, with a session */
    uint64_t own_back;   /* its attempt's, without a session */
    uint64_t other_back; /* other attempts', without a session */
    uint64_t older;      /* older attempts' of its run, with or without a session */
    uint64_t spare;      /* kept for restores; requests take precedence */
    uint64_t evicted;    /* formerly spare, being given back for a request */
    uint64_t restoring;  /* windows and cells of restores; they come back when these end */
};

/* True when the trainer disconnected: its bytes return to the budget once sent and released. */
static bool comes_back(const struct cairn_up_slab *slab) {
    return slab->leaving || !slab->conn;
}

static bool is_older(const struct cairn_up_attempt *at, const struct cairn_up_attempt *than) {
    return at->grant.attempt < than->grant.attempt && !strcmp(at->run_text, than->run_text);
}

static struct holdings sum_holdings(const struct cairn_up *up,
                                    const struct cairn_up_attempt *attempt) {
    struct holdings found = {.own = attempt->reserving_bytes,
                             .restoring = atomic_load(&up->restoring_bytes)};
    for (const struct cairn_up_slab *at = up->locked.slabs; at; at = at->next) {
        if (cairn_up_kept_is_spare(at) || at->evicted) {
            *(at->evicted ? &found.evicted : &found.spare) += at->bytes;
            continue;
        }
        if (at->attempt == attempt)
            *(comes_back(at) ? &found.own_back : &found.own) += at->bytes;
        else if (comes_back(at))
            found.other_back += at->bytes;
        if (at->attempt && is_older(at->attempt, attempt)) found.older += at->bytes;
    }
    return found;
}

static uint64_t less(uint64_t bytes, uint64_t taken) {
    return bytes > taken ? bytes - taken : 0;
}

static uint64_t bytes_of(const struct cairn_up_slab_request *request) {
    return cairn_round_up(request->bytes, CAIRN_SLAB_UNIT_BYTES);
}

/* Generations for a rank out of `free_bytes`, when its attempt already holds `own`. */
static uint64_t generations(const struct cairn_up_slab_request *request, uint64_t own,
                            uint64_t free_bytes) {
    return cairn_min_u64((own + free_bytes) / node_generation(request),
                         free_bytes / bytes_of(request));
}

/* The same, when what is beyond the first generation must leave room for restores. */
static uint32_t share(const struct cairn_up_slab_request *request, uint64_t own,
                      uint64_t free_bytes) {
    uint64_t all = generations(request, own, less(free_bytes, request->restores_bytes));
    return (uint32_t)cairn_min_u64(
        CAIRN_UP_GENERATIONS_MAX,
        cairn_max_u64(all, cairn_min_u64(1, generations(request, own, free_bytes))));
}

static enum cairn_code refuse(struct cairn_up *up, const struct cairn_up_slab_request *request,
                              uint64_t free_bytes, uint64_t kept_bytes, struct cairn_error *err) {
    char kept[80] = "", restoring[80] = "";
    uint64_t restoring_bytes = atomic_load(&up->restoring_bytes);
    if (kept_bytes)
        snprintf(kept, sizeof(kept), ", %" PRIu64 " of them for ranks that asked before",
                 cairn_min_u64(kept_bytes, free_bytes));
    if (restoring_bytes)
        snprintf(restoring, sizeof(restoring), "; %" PRIu64 " serve restores that are open",
                 restoring_bytes);
    return cairn_fail(
        err, CAIRN_NO_MEMORY,
        "one save of %s of this node needs %" PRIu64 " bytes (this rank %" PRIu64
        "), the uploader's memory_budget is %" PRIu64 " of which %" PRIu64 " are free%s%s",
        cairn_counted(request->local_world_size, "rank").text, node_generation(request),
        request->bytes, up->budget.total_bytes, free_bytes, kept, restoring);
}

static enum cairn_code check_request(struct cairn_up *up,
                                     const struct cairn_up_slab_request *request,
                                     struct cairn_error *err) {
    /* Within these bounds no sum below overflows. */
    if (request->bytes > UINT64_C(1) << 46 || request->node_bytes > UINT64_C(1) << 60 ||
        !request->local_world_size || request->local_world_size > 65536)
        return cairn_fail(err, CAIRN_NO_MEMORY,
                          "%" PRIu64
                          " bytes a rank for %s; the uploader's memory_budget is %" PRIu64,
                          request->bytes, cairn_counted(request->local_world_size, "rank").text,
                          up->budget.total_bytes);
    if (node_generation(request) > up->budget.total_bytes) /* even when all memory comes back */
        return refuse(up, request, cairn_budget_free_bytes(&up->budget), 0, err);
    return CAIRN_OK;
}

/* True when an earlier request of the same run waits: a run's ranks are served in order. */
static bool is_behind(const struct cairn_up *up, const struct cairn_up_slab_request *request) {
    for (const struct cairn_up_slab_request *at = up->locked.slab_requests; at != request;
         at = at->next)
        if (!strcmp(at->attempt->run_text, request->attempt->run_text)) return true;
    return false;
}

/* Generations worth waiting for. A session keeps what it gets now for life, so a rank waits for
 * both generations when memory of its own attempt returns, for one when any does. */
static uint32_t worth_waiting(const struct cairn_up_slab_request *request,
                              const struct holdings *held, uint64_t free_bytes,
                              uint64_t kept_bytes) {
    uint64_t back = held->own_back + held->evicted;
    uint32_t both = share(request, held->own, less(free_bytes, kept_bytes) + back);
    if (both) return both;
    uint64_t any = held->other_back + held->restoring;
    return share(request, held->own, free_bytes + back + any) ? 1 : 0;
}

/* Memory withheld from later requests, however small. Deducts slabs of its run's older attempts. */
static uint64_t kept_for(const struct cairn_up_slab_request *request, const struct holdings *held,
                         uint64_t free_bytes) {
    uint32_t count = share(request, held->own, free_bytes + held->own_back + held->older);
    uint64_t wanted = cairn_max_u64(count, 1) * node_generation(request);
    return less(wanted, held->own + held->older);
}

/* False: kept pages are being given back for the request, even past its deadline. */
static bool make_room(struct cairn_up *up, const struct cairn_up_slab_request *request,
                      uint32_t count, const struct holdings *held, uint64_t free_bytes) {
    uint64_t missing = less(count * bytes_of(request), free_bytes), back = held->evicted;
    if (!missing || up->locked.draining || cairn_mono_ms() >= request->deadline_ms + PAGES_BACK_MS)
        return true;
    if (back < missing) back += kept_evict_locked(up, missing - back);
    return !back;
}

/* True: decided. The lock is held; kept_bytes are withheld for earlier requests. */
static bool decide(struct cairn_up *up, struct cairn_up_slab_request *request,
                   uint64_t *kept_bytes) {
    bool late = cairn_mono_ms() >= request->deadline_ms || up->locked.draining;
    if (!late && is_behind(up, request)) return false;
    struct holdings held = sum_holdings(up, request->attempt);
    uint64_t unused_bytes = cairn_budget_free_bytes(&up->budget);
    uint64_t free_bytes = unused_bytes + held.spare;
    uint32_t now = share(request, held.own, less(free_bytes, *kept_bytes));
    if ((!late && (held.older || now < worth_waiting(request, &held, free_bytes, *kept_bytes))) ||
        !make_room(up, request, now, &held, less(unused_bytes, *kept_bytes))) {
        *kept_bytes += kept_for(request, &held, less(free_bytes, *kept_bytes));
        return false;
    }
    /* Reserves up to `now` generations in the budget. */
    char what[320];
    snprintf(what, sizeof(what), "slabs of %s rank %u", request->attempt->run_text, request->rank);
    request->count = now;
    while (request->count && cairn_budget_take(&up->budget, request->count * bytes_of(request),
                                               what, NULL) != CAIRN_OK)
        request->count--;
    if (!request->count) {
        request->code = refuse(up, request, free_bytes, *kept_bytes, &request->error);
        return true;
    }
    request->attempt->reserving_bytes += request->count * bytes_of(request);
    return true;
}

void cairn_up_slabs_serve(struct cairn_up *up) {
    struct cairn_up_slab_request *decided = NULL, **end = &decided;
    uint64_t kept_bytes = 0;
    cairn_lock_take(&up->lock);
    for (struct cairn_up_slab_request **at = &up->locked.slab_requests; *at;) {
        struct cairn_up_slab_request *request = *at;
        if (!decide(up, request, &kept_bytes)) {
            at = &request->next;
            continue;
        }
        *at = request->next;
        request->next = NULL;
        *end = request;
        end = &request->next;
    }
    cairn_lock_give(&up->lock);
    for (struct cairn_up_slab_request *request = decided, *next; request; request = next) {
        next = request->next;
        request->decided(request);
    }
}

void cairn_up_slabs_request(struct cairn_up *up, struct cairn_up_slab_request *request) {
    request->code = check_request(up, request, &request->error);
    if (request->code != CAIRN_OK) {
        request->decided(request);
        return;
    }
    request->restores_bytes =
        atomic_load(&up->readers_bytes) + request->local_world_size * CAIRN_UP_WINDOW_BYTES_MIN;
    cairn_lock_take(&up->lock);
    struct cairn_up_slab_request **end = &up->locked.slab_requests;
    while (*end) end = &(*end)->next;
    *end = request;
    request->next = NULL;
    cairn_lock_give(&up->lock);
    cairn_up_slabs_serve(up);
}

void cairn_up_slabs_unmake(struct cairn_up *up, const struct cairn_up_slab_request *request) {
    cairn_lock_take(&up->lock);
    request->attempt->reserving_bytes -= request->count * bytes_of(request);
    cairn_lock_give(&up->lock);
    cairn_budget_give(&up->budget, request->count * bytes_of(request));
    cairn_up_slabs_serve(up);
}

static enum cairn_code make_one(const struct cairn_up_slab_request *request, uint32_t index,
                                struct cairn_up_slab **ret, struct cairn_error *err) {
    struct cairn_up_slab *made = calloc(1, sizeof(*made));
    if (!made) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a slab's record");
    *ret = made;
    made->memory.fd = -1;
    made->conn = request->conn;
    made->index = index;
    made->attempt = request->attempt;
    made->bytes = bytes_of(request);
    return cairn_slab_create_at("cairn-slab", bytes_of(request), request->numa_node, &made->memory,
                                err);
}

enum cairn_code cairn_up_slabs_make(struct cairn_up *up,
                                    const struct cairn_up_slab_request *request,
                                    struct cairn_up_slab *ret[CAIRN_UP_GENERATIONS_MAX],
                                    struct cairn_error *err) {
    struct cairn_up_slab *made[CAIRN_UP_GENERATIONS_MAX] = {0};
    enum cairn_code code = CAIRN_OK;
    CAIRN_ASSERT(request->count <= CAIRN_UP_GENERATIONS_MAX);
    for (uint32_t i = 0; code == CAIRN_OK && i < request->count; i++)
        code = make_one(request, i, &made[i], err);
    if (code != CAIRN_OK) {
        for (uint32_t i = 0; i < request->count; i++) {
            if (made[i] && made[i]->memory.data) cairn_slab_release(&made[i]->memory);
            free(made[i]);
        }
        cairn_up_slabs_unmake(up, request);
        return code;
    }
    CAIRN_HOLD(&up->lock);
    request->attempt->reserving_bytes -= request->count * bytes_of(request);
    for (uint32_t i = 0; i < request->count; i++) {
        request->attempt->users++;
        made[i]->next = up->locked.slabs;
        up->locked.slabs = made[i];
        ret[i] = made[i];
    }
    return CAIRN_OK;
}

enum cairn_code cairn_up_slabs_no_room(struct cairn_up *up, uint64_t bytes,
                                       struct cairn_error *err) {
    char slab[24], budget[24], unused[24];
    cairn_size_text(bytes, slab);
    cairn_size_text(up->budget.total_bytes, budget);
    cairn_size_text(cairn_budget_free_bytes(&up->budget), unused);
    return cairn_fail(err, CAIRN_NO_MEMORY,
                      "its memory_budget of %s, %s of it free, does not hold the %s that this "
                      "trainer has from the uploader before; raise it, or restart the job",
                      budget, unused, slab);
}

enum cairn_code cairn_up_slabs_adopt_locked(struct cairn_up *up, uint64_t conn, uint32_t index,
                                            struct cairn_up_attempt *attempt,
                                            struct cairn_slab *take_memory,
                                            struct cairn_up_slab **ret, struct cairn_error *err) {
    for (struct cairn_up_slab *at = up->locked.slabs; at; at = at->next) {
        if (at->leaving || at->memory.device != take_memory->device ||
            at->memory.inode != take_memory->inode)
            continue;
        cairn_slab_release(take_memory); /* only the trainer's connection ended; the slab stayed */
        if (at->conn)
            return cairn_fail(err, CAIRN_CONFLICT, "that slab is in use by another session");
        if (!at->attempt) attempt->users++; /* the slab was kept */
        if (!at->attempt) at->attempt = attempt;
        at->conn = conn;
        at->index = index;
        *ret = at;
        return CAIRN_OK;
    }
    struct cairn_up_slab *made = calloc(1, sizeof(*made));
    enum cairn_code code =
        made ? cairn_budget_take(&up->budget, take_memory->size_bytes, "a slab offered again", NULL)
             : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a slab's record");
    if (code != CAIRN_OK) {
        if (made) code = cairn_up_slabs_no_room(up, take_memory->size_bytes, err);
        cairn_slab_release(take_memory);
        free(made);
        return code;
    }
    *made = (struct cairn_up_slab){
        .next = up->locked.slabs,
        .conn = conn,
        .index = index,
        .attempt = attempt,
        .bytes = take_memory->size_bytes,
        .memory = *take_memory,
    };
    attempt->users++;
    up->locked.slabs = made;
    *ret = made;
    return CAIRN_OK;
}

struct cairn_up_slab *cairn_up_slab_of_locked(struct cairn_up *up, uint64_t conn, uint32_t index) {
    for (struct cairn_up_slab *at = up->locked.slabs; at; at = at->next) {
        if (at->conn == conn && at->index == index) return at;
    }
    return NULL;
}

void cairn_up_slabs_orphan_locked(struct cairn_up *up, uint64_t conn) {
    for (struct cairn_up_slab *at = up->locked.slabs; at; at = at->next) {
        if (at->conn != conn) continue;
        at->conn = 0;
        at->left_ms = cairn_mono_ms();
    }
    cairn_up_slabs_sweep_locked(up);
}

/* Releases pages, then the budget, then the place in the list: until then it counts (Q13). */
static void give_back(struct cairn_up *up, struct cairn_up_slab *slab) {
    cairn_slab_release(&slab->memory);
    cairn_budget_give(&up->budget, slab->bytes);
    cairn_lock_take(&up->lock);
    cairn_up_kept_forget_locked(slab);
    struct cairn_up_slab **at = &up->locked.slabs;
    while (*at && *at != slab) at = &(*at)->next;
    if (*at) *at = slab->next;
    cairn_up_attempt_leave(up, slab->attempt);
    cairn_condition_broadcast(&up->changed);
    cairn_lock_give(&up->lock);
    free(slab);
}

static struct cairn_up_slab *take_leaving_locked(struct cairn_up *up) {
    for (struct cairn_up_slab *at = up->locked.slabs; at; at = at->next) {
        if (!at->leaving || at->conn || at->pins) continue;
        at->conn = UINT64_MAX; /* claimed by this helper */
        return at;
    }
    return NULL;
}

static struct cairn_up_slab *take_leaving(struct cairn_up *up) {
    CAIRN_HOLD(&up->lock);
    return take_leaving_locked(up);
}

static void give_back_task(struct cairn_up_helper *helper, void *owner) {
    (void)owner;
    struct cairn_up_slab *slab = take_leaving(helper->up);
    while (slab) {
        give_back(helper->up, slab);
        slab = take_leaving(helper->up);
    }
    cairn_up_slabs_serve(helper->up);
}

void cairn_up_slabs_sweep_locked(struct cairn_up *up) {
    bool any = false;
    struct cairn_error error;
    if (!up->tasks) return; /* the process stops; cairn_up_slabs_free_all follows */
    /* Drops expired contents (2); their pages are given back below. */
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
    for (struct cairn_up_slab *at = up->locked.slabs; at; at = at->next) {
        if (at->conn || at->state.owner) continue;
        if (at->state.kept) { /* kept for the run; holding the attempt would extend it (Q7) */
            cairn_up_attempt_leave(up, CAIRN_TAKE(at->attempt));
            continue;
        }
        any = at->leaving = true; /* also after a sweep that found no helper */
    }
    if (any && cairn_up_tasks_add(up->tasks, give_back_task, NULL, NULL, &error) != CAIRN_OK)
        cairn_log(WARN, "slabs.kept", "cause=\"%s\"", error.message);
}

static uint64_t evicted_bytes(const struct cairn_up *up) {
    uint64_t bytes = 0;
    for (const struct cairn_up_slab *at = up->locked.slabs; at; at = at->next)
        if (at->evicted) bytes += at->bytes;
    return bytes;
}

uint64_t cairn_up_slabs_room(struct cairn_up *up) {
    CAIRN_HOLD(&up->lock);
    uint64_t room = cairn_budget_free_bytes(&up->budget) + evicted_bytes(up);
    for (const struct cairn_up_slab *at = up->locked.slabs; at; at = at->next)
        if (cairn_up_kept_is_spare(at)) room += at->bytes;
    return room;
}

/* False: no more room can be made. *ret_slab: the slab to give back; NULL: other helpers do it. */
static bool find_room(struct cairn_up *up, uint64_t bytes, uint64_t deadline_ms,
                      struct cairn_up_slab **ret_slab) {
    CAIRN_HOLD(&up->lock);
    uint64_t room = cairn_budget_free_bytes(&up->budget), back = evicted_bytes(up);
    if (room >= bytes || cairn_mono_ms() >= deadline_ms) return false;
    if (room + back < bytes) back += kept_evict_locked(up, bytes - room - back);
    if (!back) return false;
    *ret_slab = take_leaving_locked(up);
    if (!*ret_slab) (void)cairn_condition_wait(&up->changed, &up->lock, deadline_ms);
    return true;
}

void cairn_up_slabs_make_room(struct cairn_up *up, uint64_t bytes) {
    uint64_t deadline_ms = cairn_mono_ms() + PAGES_BACK_MS;
    struct cairn_up_slab *slab = NULL;
    if (bytes > up->budget.total_bytes) return;
    while (find_room(up, bytes, deadline_ms, &slab))
        if (slab) give_back(up, CAIRN_TAKE(slab));
}

void cairn_up_slabs_free_all(struct cairn_up *up) {
    while (up->locked.slabs) give_back(up, up->locked.slabs);
}
