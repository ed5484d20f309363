/* SPDX-License-Identifier: Apache-2.0 */
/* Reserving counts under the lock and makes the pages without it. */
#include "uploader/saves/slabs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "common/text.h"
#include "uploader/tasks.h"

/* What the memory of all ranks of this node comes to, one generation each. Every rank's part is
 * rounded up to whole units; where ranks differ, by as much as can be. */
static uint64_t node_generation(const struct cairn_up_slab_wish *wish) {
    uint64_t own = cairn_round_up(wish->bytes, CAIRN_SLAB_UNIT_BYTES);
    if (!wish->node_bytes || wish->node_bytes == wish->bytes * wish->local_world_size)
        return own * wish->local_world_size;
    return cairn_max_u64(own,
                         wish->node_bytes + wish->local_world_size * (CAIRN_SLAB_UNIT_BYTES - 1));
}

/* What the node's slabs come to, as one wish sees them. */
struct holdings {
    uint64_t own;        /* of the wish's attempt, for its sessions that live */
    uint64_t own_back;   /* of its attempt too, but no session has it any more */
    uint64_t other_back; /* of other attempts, without a session */
    uint64_t older;      /* of older attempts of its run, with a session or without */
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
        if (at->attempt == attempt)
            *(comes_back(at) ? &found.own_back : &found.own) += at->bytes;
        else if (comes_back(at))
            found.other_back += at->bytes;
        if (is_older(at->attempt, attempt)) found.older += at->bytes;
    }
    return found;
}

static uint64_t less(uint64_t bytes, uint64_t taken) {
    return bytes > taken ? bytes - taken : 0;
}

static uint64_t bytes_of(const struct cairn_up_slab_wish *wish) {
    return cairn_round_up(wish->bytes, CAIRN_SLAB_UNIT_BYTES);
}

/* How many generations a rank gets out of that, where its attempt holds `own` already. */
static uint32_t share(const struct cairn_up_slab_wish *wish, uint64_t own, uint64_t free_bytes) {
    uint64_t count =
        cairn_min_u64((own + free_bytes) / node_generation(wish), free_bytes / bytes_of(wish));
    return (uint32_t)cairn_min_u64(CAIRN_UP_GENERATIONS_MAX, count);
}

/* At most so many; 0: nothing was taken. */
static uint32_t take_budget(struct cairn_up *up, const struct cairn_up_slab_wish *wish,
                            uint32_t count) {
    char what[320];
    snprintf(what, sizeof(what), "slabs of %s rank %u", wish->attempt->run_text, wish->rank);
    while (count && cairn_budget_take(&up->budget, count * bytes_of(wish), what, NULL) != CAIRN_OK)
        count--;
    return count;
}

static enum cairn_code refuse(struct cairn_up *up, const struct cairn_up_slab_wish *wish,
                              uint64_t free_bytes, uint64_t kept_bytes, struct cairn_error *err) {
    char kept[80] = "";
    if (kept_bytes)
        snprintf(kept, sizeof(kept), ", %" PRIu64 " of them for ranks that asked before",
                 cairn_min_u64(kept_bytes, free_bytes));
    return cairn_fail(err, CAIRN_NO_MEMORY,
                      "one save of %s of this node needs %" PRIu64 " bytes (this rank %" PRIu64
                      "), the uploader's memory_budget is %" PRIu64 " of which %" PRIu64
                      " are free%s",
                      cairn_counted(wish->local_world_size, "rank").text, node_generation(wish),
                      wish->bytes, up->budget.total_bytes, free_bytes, kept);
}

static enum cairn_code check_wish(struct cairn_up *up, const struct cairn_up_slab_wish *wish,
                                  struct cairn_error *err) {
    /* Above these no sum below can wrap. */
    if (wish->bytes > UINT64_C(1) << 46 || wish->node_bytes > UINT64_C(1) << 60 ||
        !wish->local_world_size || wish->local_world_size > 65536)
        return cairn_fail(err, CAIRN_NO_MEMORY,
                          "%" PRIu64
                          " bytes a rank for %s; the uploader's memory_budget is %" PRIu64,
                          wish->bytes, cairn_counted(wish->local_world_size, "rank").text,
                          up->budget.total_bytes);
    if (node_generation(wish) > up->budget.total_bytes) /* whatever comes back */
        return refuse(up, wish, cairn_budget_free_bytes(&up->budget), 0, err);
    return CAIRN_OK;
}

/* ---- waiting ---- */

/* Ranks of a run share what it gets, in their order. */
static bool is_behind(const struct cairn_up *up, const struct cairn_up_slab_wish *wish) {
    for (const struct cairn_up_slab_wish *at = up->locked.wishes; at != wish; at = at->next)
        if (!strcmp(at->attempt->run_text, wish->attempt->run_text)) return true;
    return false;
}

/* How many generations are worth its wait. A session keeps for its life what it gets now, so a rank
 * waits for both where memory of its own attempt comes back, and for one where any does. */
static uint32_t worth_waiting(const struct cairn_up_slab_wish *wish, const struct holdings *held,
                              uint64_t free_bytes, uint64_t kept_bytes) {
    uint32_t both = share(wish, held->own, less(free_bytes, kept_bytes) + held->own_back);
    if (both) return both;
    return share(wish, held->own, free_bytes + held->own_back + held->other_back) ? 1 : 0;
}

/* What a wish waits for is kept from those that came later, however little they ask for. What older
 * attempts of its run hold will be its own, so others may have what that is not needed for. */
static uint64_t kept_for(const struct cairn_up_slab_wish *wish, const struct holdings *held,
                         uint64_t free_bytes) {
    uint32_t count = share(wish, held->own, free_bytes + held->own_back + held->older);
    uint64_t wanted = cairn_max_u64(count, 1) * node_generation(wish);
    return less(wanted, held->own + held->older);
}

/* True: it is decided. The lock is held; kept_bytes are for the wishes before this one. */
static bool decide(struct cairn_up *up, struct cairn_up_slab_wish *wish, uint64_t *kept_bytes) {
    bool late = cairn_mono_ms() >= wish->deadline_ms || up->locked.draining;
    if (!late && is_behind(up, wish)) return false;
    struct holdings held = look(up, wish->attempt);
    uint64_t free_bytes = cairn_budget_free_bytes(&up->budget);
    uint32_t now = share(wish, held.own, less(free_bytes, *kept_bytes));
    if (!late && (held.older || now < worth_waiting(wish, &held, free_bytes, *kept_bytes))) {
        *kept_bytes += kept_for(wish, &held, less(free_bytes, *kept_bytes));
        return false;
    }
    wish->count = take_budget(up, wish, now);
    if (!wish->count) {
        wish->code = refuse(up, wish, free_bytes, *kept_bytes, &wish->error);
        return true;
    }
    wish->attempt->reserving_bytes += wish->count * bytes_of(wish);
    return true;
}

void cairn_up_slabs_serve(struct cairn_up *up) {
    struct cairn_up_slab_wish *decided = NULL, **end = &decided;
    uint64_t kept_bytes = 0;
    cairn_lock_take(&up->lock);
    for (struct cairn_up_slab_wish **at = &up->locked.wishes; *at;) {
        struct cairn_up_slab_wish *wish = *at;
        if (!decide(up, wish, &kept_bytes)) {
            at = &wish->next;
            continue;
        }
        *at = wish->next;
        wish->next = NULL;
        *end = wish;
        end = &wish->next;
    }
    cairn_lock_give(&up->lock);
    for (struct cairn_up_slab_wish *wish = decided, *next; wish; wish = next) {
        next = wish->next;
        wish->decided(wish);
    }
}

void cairn_up_slabs_wish(struct cairn_up *up, struct cairn_up_slab_wish *wish) {
    wish->code = check_wish(up, wish, &wish->error);
    if (wish->code != CAIRN_OK) {
        wish->decided(wish);
        return;
    }
    cairn_lock_take(&up->lock);
    struct cairn_up_slab_wish **end = &up->locked.wishes;
    while (*end) end = &(*end)->next;
    *end = wish;
    wish->next = NULL;
    cairn_lock_give(&up->lock);
    cairn_up_slabs_serve(up);
}

/* ---- making ---- */

void cairn_up_slabs_unmake(struct cairn_up *up, const struct cairn_up_slab_wish *wish) {
    cairn_lock_take(&up->lock);
    wish->attempt->reserving_bytes -= wish->count * bytes_of(wish);
    cairn_lock_give(&up->lock);
    cairn_budget_give(&up->budget, wish->count * bytes_of(wish));
    cairn_up_slabs_serve(up);
}

static enum cairn_code make_one(const struct cairn_up_slab_wish *wish, uint32_t index,
                                struct cairn_up_slab **ret, struct cairn_error *err) {
    struct cairn_up_slab *made = calloc(1, sizeof(*made));
    if (!made) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a slab's record");
    *ret = made;
    made->memory.fd = -1;
    made->conn = wish->conn;
    made->index = index;
    made->attempt = wish->attempt;
    made->bytes = bytes_of(wish);
    return cairn_slab_create("cairn-slab", bytes_of(wish), false, &made->memory, err);
}

enum cairn_code cairn_up_slabs_make(struct cairn_up *up, const struct cairn_up_slab_wish *wish,
                                    struct cairn_up_slab *ret[CAIRN_UP_GENERATIONS_MAX],
                                    struct cairn_error *err) {
    struct cairn_up_slab *made[CAIRN_UP_GENERATIONS_MAX] = {0};
    enum cairn_code code = CAIRN_OK;
    CAIRN_ASSERT(wish->count <= CAIRN_UP_GENERATIONS_MAX);
    for (uint32_t i = 0; code == CAIRN_OK && i < wish->count; i++)
        code = make_one(wish, i, &made[i], err);
    if (code != CAIRN_OK) {
        for (uint32_t i = 0; i < wish->count; i++) {
            if (made[i] && made[i]->memory.data) cairn_slab_release(&made[i]->memory);
            free(made[i]);
        }
        cairn_up_slabs_unmake(up, wish);
        return code;
    }
    CAIRN_HOLD(&up->lock);
    wish->attempt->reserving_bytes -= wish->count * bytes_of(wish);
    for (uint32_t i = 0; i < wish->count; i++) {
        wish->attempt->users++;
        made[i]->next = up->locked.slabs;
        up->locked.slabs = made[i];
        ret[i] = made[i];
    }
    return CAIRN_OK;
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
        at->conn = conn;
        at->index = index;
        *ret = at;
        return CAIRN_OK;
    }
    struct cairn_up_slab *made = calloc(1, sizeof(*made));
    enum cairn_code code =
        made ? cairn_budget_take(&up->budget, take_memory->size_bytes, "a slab offered again", err)
             : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a slab's record");
    if (code != CAIRN_OK) {
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
        if (at->conn == conn) at->conn = 0;
    }
    cairn_up_slabs_sweep_locked(up);
}

/* ---- giving back ---- */

static void unlink_slab(struct cairn_up *up, const struct cairn_up_slab *slab) {
    for (struct cairn_up_slab **at = &up->locked.slabs; *at; at = &(*at)->next) {
        if (*at != slab) continue;
        *at = slab->next;
        return;
    }
}

/* Pages first, then the budget, then its place in the list: until then it counts (Q13). */
static void give_back(struct cairn_up *up, struct cairn_up_slab *slab) {
    cairn_slab_release(&slab->memory);
    cairn_budget_give(&up->budget, slab->bytes);
    cairn_lock_take(&up->lock);
    unlink_slab(up, slab);
    cairn_up_attempt_leave(up, slab->attempt);
    cairn_condition_broadcast(&up->changed);
    cairn_lock_give(&up->lock);
    free(slab);
}

static struct cairn_up_slab *take_leaving(struct cairn_up *up) {
    CAIRN_HOLD(&up->lock);
    for (struct cairn_up_slab *at = up->locked.slabs; at; at = at->next) {
        if (!at->leaving || at->conn) continue;
        at->conn = UINT64_MAX; /* this helper's */
        return at;
    }
    return NULL;
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
    for (struct cairn_up_slab *at = up->locked.slabs; at; at = at->next) {
        if (at->conn || at->state.owner) continue;
        any = at->leaving = true; /* also one of a sweep that found no helper */
    }
    if (any && cairn_up_tasks_add(up->tasks, give_back_task, NULL, NULL, &error) != CAIRN_OK)
        cairn_log(WARN, "slabs.kept", "cause=\"%s\"", error.message);
}

void cairn_up_slabs_free_all(struct cairn_up *up) {
    while (up->locked.slabs) give_back(up, up->locked.slabs);
}
