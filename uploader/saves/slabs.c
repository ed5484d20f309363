/* SPDX-License-Identifier: Apache-2.0 */
/* Reserving counts under the lock and makes the pages without it. */
#include "uploader/saves/slabs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "common/text.h"
#include "uploader/saves/kept.h"
#include "uploader/tasks.h"

/* How long a request waits for pages that are being given back, whatever its own limit. */
#define PAGES_BACK_MS 5000

/* What the memory of all ranks of this node comes to, one generation each. Every rank's part is
 * rounded up to whole units; where ranks differ, by as much as can be. */
static uint64_t node_generation(const struct cairn_up_slab_request *request) {
    uint64_t own = cairn_round_up(request->bytes, CAIRN_SLAB_UNIT_BYTES);
    if (!request->node_bytes || request->node_bytes == request->bytes * request->local_world_size)
        return own * request->local_world_size;
    return cairn_max_u64(own, request->node_bytes +
                                  request->local_world_size * (CAIRN_SLAB_UNIT_BYTES - 1));
}

/* What the node's slabs come to, as one request sees them. */
struct holdings {
    uint64_t own;        /* of the request's attempt, for its sessions that live */
    uint64_t own_back;   /* of its attempt too, but no session has it any more */
    uint64_t other_back; /* of other attempts, without a session */
    uint64_t older;      /* of older attempts of its run, with a session or without */
    uint64_t spare;      /* kept for restores, which it goes before */
    uint64_t evicted;    /* what was, until some request needed it: its pages are on their way */
};

/* Its trainer has gone: once its bytes are sent and its pages released, the budget has it again. */
static bool comes_back(const struct cairn_up_slab *slab) {
    return slab->leaving || !slab->conn;
}

static bool is_older(const struct cairn_up_attempt *at, const struct cairn_up_attempt *than) {
    return at->grant.attempt < than->grant.attempt && !strcmp(at->run_text, than->run_text);
}

static struct holdings look(const struct cairn_up *up, const struct cairn_up_attempt *attempt) {
    struct holdings found = {.own = attempt->reserving_bytes};
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

/* How many generations a rank gets out of that, where its attempt holds `own` already. */
static uint32_t share(const struct cairn_up_slab_request *request, uint64_t own,
                      uint64_t free_bytes) {
    uint64_t count = cairn_min_u64((own + free_bytes) / node_generation(request),
                                   free_bytes / bytes_of(request));
    return (uint32_t)cairn_min_u64(CAIRN_UP_GENERATIONS_MAX, count);
}

/* At most so many; 0: nothing was taken. */
static uint32_t take_budget(struct cairn_up *up, const struct cairn_up_slab_request *request,
                            uint32_t count) {
    char what[320];
    snprintf(what, sizeof(what), "slabs of %s rank %u", request->attempt->run_text, request->rank);
    while (count &&
           cairn_budget_take(&up->budget, count * bytes_of(request), what, NULL) != CAIRN_OK)
        count--;
    return count;
}

static enum cairn_code refuse(struct cairn_up *up, const struct cairn_up_slab_request *request,
                              uint64_t free_bytes, uint64_t kept_bytes, struct cairn_error *err) {
    char kept[80] = "";
    if (kept_bytes)
        snprintf(kept, sizeof(kept), ", %" PRIu64 " of them for ranks that asked before",
                 cairn_min_u64(kept_bytes, free_bytes));
    return cairn_fail(
        err, CAIRN_NO_MEMORY,
        "one save of %s of this node needs %" PRIu64 " bytes (this rank %" PRIu64
        "), the uploader's memory_budget is %" PRIu64 " of which %" PRIu64 " are free%s",
        cairn_counted(request->local_world_size, "rank").text, node_generation(request),
        request->bytes, up->budget.total_bytes, free_bytes, kept);
}

static enum cairn_code check_request(struct cairn_up *up,
                                     const struct cairn_up_slab_request *request,
                                     struct cairn_error *err) {
    /* Above these no sum below can wrap. */
    if (request->bytes > UINT64_C(1) << 46 || request->node_bytes > UINT64_C(1) << 60 ||
        !request->local_world_size || request->local_world_size > 65536)
        return cairn_fail(err, CAIRN_NO_MEMORY,
                          "%" PRIu64
                          " bytes a rank for %s; the uploader's memory_budget is %" PRIu64,
                          request->bytes, cairn_counted(request->local_world_size, "rank").text,
                          up->budget.total_bytes);
    if (node_generation(request) > up->budget.total_bytes) /* whatever comes back */
        return refuse(up, request, cairn_budget_free_bytes(&up->budget), 0, err);
    return CAIRN_OK;
}

/* ---- waiting ---- */

/* Ranks of a run share what it gets, in their order. */
static bool is_behind(const struct cairn_up *up, const struct cairn_up_slab_request *request) {
    for (const struct cairn_up_slab_request *at = up->locked.slab_requests; at != request;
         at = at->next)
        if (!strcmp(at->attempt->run_text, request->attempt->run_text)) return true;
    return false;
}

/* How many generations are worth its wait. A session keeps for its life what it gets now, so a rank
 * waits for both where memory of its own attempt comes back, and for one where any does. */
static uint32_t worth_waiting(const struct cairn_up_slab_request *request,
                              const struct holdings *held, uint64_t free_bytes,
                              uint64_t kept_bytes) {
    uint64_t back = held->own_back + held->evicted;
    uint32_t both = share(request, held->own, less(free_bytes, kept_bytes) + back);
    if (both) return both;
    return share(request, held->own, free_bytes + back + held->other_back) ? 1 : 0;
}

/* What a request waits for is kept from those that came later, however little they ask for. What
 * older attempts of its run hold will be its own, so less need be kept. */
static uint64_t kept_for(const struct cairn_up_slab_request *request, const struct holdings *held,
                         uint64_t free_bytes) {
    uint32_t count = share(request, held->own, free_bytes + held->own_back + held->older);
    uint64_t wanted = cairn_max_u64(count, 1) * node_generation(request);
    return less(wanted, held->own + held->older);
}

/* False: pages that are kept are given back for it, which takes a moment, also after its deadline.
 * free_bytes are for this request. */
static bool make_room(struct cairn_up *up, const struct cairn_up_slab_request *request,
                      uint32_t count, const struct holdings *held, uint64_t free_bytes) {
    uint64_t missing = less(count * bytes_of(request), free_bytes), back = held->evicted;
    if (!missing || up->locked.draining ||
        cairn_mono_ms() >= request->deadline_ms + PAGES_BACK_MS)
        return true;
    if (back < missing) back += cairn_up_kept_evict_locked(up, missing - back);
    return !back;
}

/* True: it is decided. The lock is held; kept_bytes are for the requests before this one. */
static bool decide(struct cairn_up *up, struct cairn_up_slab_request *request,
                   uint64_t *kept_bytes) {
    bool late = cairn_mono_ms() >= request->deadline_ms || up->locked.draining;
    if (!late && is_behind(up, request)) return false;
    struct holdings held = look(up, request->attempt);
    uint64_t unused_bytes = cairn_budget_free_bytes(&up->budget);
    uint64_t free_bytes = unused_bytes + held.spare;
    uint32_t now = share(request, held.own, less(free_bytes, *kept_bytes));
    if ((!late && (held.older || now < worth_waiting(request, &held, free_bytes, *kept_bytes))) ||
        !make_room(up, request, now, &held, less(unused_bytes, *kept_bytes))) {
        *kept_bytes += kept_for(request, &held, less(free_bytes, *kept_bytes));
        return false;
    }
    request->count = take_budget(up, request, now);
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
    cairn_lock_take(&up->lock);
    struct cairn_up_slab_request **end = &up->locked.slab_requests;
    while (*end) end = &(*end)->next;
    *end = request;
    request->next = NULL;
    cairn_lock_give(&up->lock);
    cairn_up_slabs_serve(up);
}

/* ---- making ---- */

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
    return cairn_slab_create("cairn-slab", bytes_of(request), false, &made->memory, err);
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
        cairn_slab_release(take_memory); /* it never left: only its trainer's connection did */
        if (at->conn)
            return cairn_fail(err, CAIRN_CONFLICT, "that slab is in use by another session");
        if (!at->attempt) attempt->users++; /* it was kept */
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

/* ---- giving back ---- */

/* Pages first, then the budget, then its place in the list: until then it counts (Q13). */
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
        at->conn = UINT64_MAX; /* this helper's */
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
    if (!up->tasks) return; /* the process ends; cairn_up_slabs_free_all follows */
    cairn_up_kept_trim_locked(up);
    for (struct cairn_up_slab *at = up->locked.slabs; at; at = at->next) {
        if (at->conn || at->state.owner) continue;
        if (at->state.kept) { /* for its run, not for the attempt, which nobody holds by it (Q7) */
            cairn_up_attempt_leave(up, CAIRN_TAKE(at->attempt));
            continue;
        }
        any = at->leaving = true; /* also one of a sweep that found no helper */
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

/* False: there is as much room as can be had. *ret_slab: one to give back, NULL: others do it. */
static bool find_room(struct cairn_up *up, uint64_t bytes, uint64_t deadline_ms,
                      struct cairn_up_slab **ret_slab) {
    CAIRN_HOLD(&up->lock);
    uint64_t room = cairn_budget_free_bytes(&up->budget), back = evicted_bytes(up);
    if (room >= bytes || cairn_mono_ms() >= deadline_ms) return false;
    if (room + back < bytes) back += cairn_up_kept_evict_locked(up, bytes - room - back);
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
