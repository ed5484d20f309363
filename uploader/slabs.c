/* SPDX-License-Identifier: Apache-2.0 */
/* Reserving counts under the lock and makes the pages without it. */
#include "uploader/slabs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "uploader/tasks.h"

/* What the memory of all ranks of this node comes to, one generation each. */
static uint64_t node_generation(const struct cairn_up_slab_wish *wish) {
    uint64_t own = cairn_round_up(wish->bytes, CAIRN_SLAB_UNIT_BYTES);
    if (!wish->node_bytes) return own * wish->local_world_size;
    return cairn_max_u64(own, wish->node_bytes);
}

static uint64_t held_by(struct cairn_up *up, const struct cairn_up_attempt *attempt) {
    uint64_t bytes = attempt->reserving_bytes;
    for (struct cairn_up_slab *at = up->locked.slabs; at; at = at->next) {
        if (at->attempt == attempt) bytes += at->memory.size_bytes;
    }
    return bytes;
}

static bool older_hold(struct cairn_up *up, const struct cairn_up_attempt *attempt) {
    for (struct cairn_up_slab *at = up->locked.slabs; at; at = at->next) {
        if (!strcmp(at->attempt->run_text, attempt->run_text) &&
            at->attempt->grant.attempt < attempt->grant.attempt)
            return true;
    }
    return false;
}

/* 0: nothing was taken. */
static uint32_t take_budget(struct cairn_up *up, const struct cairn_up_slab_wish *wish) {
    uint64_t slab = cairn_round_up(wish->bytes, CAIRN_SLAB_UNIT_BYTES);
    uint64_t free_bytes = cairn_budget_free_bytes(&up->budget);
    uint64_t available = free_bytes + held_by(up, wish->attempt);
    uint64_t count = cairn_min_u64(CAIRN_UP_GENERATIONS_MAX, available / node_generation(wish));
    char what[320];
    snprintf(what, sizeof(what), "slabs of %s rank %u", wish->attempt->run_text, wish->rank);
    while (count && cairn_budget_take(&up->budget, count * slab, what, NULL) != CAIRN_OK) count--;
    return (uint32_t)count;
}

static enum cairn_code refuse(struct cairn_up *up, const struct cairn_up_slab_wish *wish,
                              struct cairn_error *err) {
    return cairn_fail(err, CAIRN_NO_MEMORY,
                      "one save of the %u ranks of this node needs %" PRIu64
                      " bytes (this rank %" PRIu64 "), the uploader's memory_budget is %" PRIu64
                      " of which %" PRIu64 " are free",
                      wish->local_world_size, node_generation(wish), wish->bytes,
                      up->budget.total_bytes, cairn_budget_free_bytes(&up->budget));
}

static enum cairn_code take_count(struct cairn_up *up, const struct cairn_up_slab_wish *wish,
                                  uint32_t *ret_count, struct cairn_error *err) {
    CAIRN_HOLD(&up->lock);
    for (;;) {
        bool late = cairn_mono_ms() >= wish->deadline_ms || up->locked.draining;
        if (late || !older_hold(up, wish->attempt)) {
            uint32_t count = take_budget(up, wish);
            if (!count) return refuse(up, wish, err);
            wish->attempt->reserving_bytes +=
                count * cairn_round_up(wish->bytes, CAIRN_SLAB_UNIT_BYTES);
            *ret_count = count;
            return CAIRN_OK;
        }
        (void)cairn_condition_wait(&up->changed, &up->lock, wish->deadline_ms);
    }
}

static enum cairn_code check_wish(struct cairn_up *up, const struct cairn_up_slab_wish *wish,
                                  struct cairn_error *err) {
    /* Above these no sum below can wrap. */
    if (wish->bytes > UINT64_C(1) << 46 || wish->node_bytes > UINT64_C(1) << 60 ||
        !wish->local_world_size || wish->local_world_size > 65536)
        return cairn_fail(err, CAIRN_NO_MEMORY,
                          "%" PRIu64
                          " bytes a rank for %u ranks; the uploader's memory_budget is %" PRIu64,
                          wish->bytes, wish->local_world_size, up->budget.total_bytes);
    return CAIRN_OK;
}

enum cairn_code cairn_up_slabs_reserve(struct cairn_up *up, const struct cairn_up_slab_wish *wish,
                                       struct cairn_up_slab *ret[CAIRN_UP_GENERATIONS_MAX],
                                       uint32_t *ret_count, struct cairn_error *err) {
    CAIRN_TRY(check_wish(up, wish, err));
    uint32_t count = 0;
    CAIRN_TRY(take_count(up, wish, &count, err));
    uint64_t bytes = cairn_round_up(wish->bytes, CAIRN_SLAB_UNIT_BYTES);
    struct cairn_up_slab *made[CAIRN_UP_GENERATIONS_MAX] = {0};
    enum cairn_code code = CAIRN_OK;
    for (uint32_t i = 0; code == CAIRN_OK && i < count; i++) {
        made[i] = calloc(1, sizeof(*made[i]));
        if (!made[i]) {
            code = cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a slab's record");
            break;
        }
        made[i]->memory.fd = -1;
        code = cairn_slab_create("cairn-slab", bytes, false, &made[i]->memory, err);
        made[i]->conn = wish->conn;
        made[i]->index = i;
        made[i]->attempt = wish->attempt;
    }
    if (code != CAIRN_OK) {
        cairn_lock_take(&up->lock);
        wish->attempt->reserving_bytes -= count * bytes;
        cairn_lock_give(&up->lock);
        for (uint32_t i = 0; i < count; i++) {
            if (made[i] && made[i]->memory.data) cairn_slab_release(&made[i]->memory);
            free(made[i]);
        }
        cairn_budget_give(&up->budget, count * bytes);
        return code;
    }
    CAIRN_HOLD(&up->lock);
    wish->attempt->reserving_bytes -= count * bytes;
    for (uint32_t i = 0; i < count; i++) {
        wish->attempt->users++;
        made[i]->next = up->locked.slabs;
        up->locked.slabs = made[i];
        ret[i] = made[i];
    }
    *ret_count = count;
    return CAIRN_OK;
}

enum cairn_code cairn_up_slabs_adopt_locked(struct cairn_up *up, uint64_t conn, uint32_t index,
                                            struct cairn_up_attempt *attempt,
                                            struct cairn_slab *take_memory,
                                            struct cairn_up_slab **ret, struct cairn_error *err) {
    for (struct cairn_up_slab *at = up->locked.slabs; at; at = at->next) {
        if (at->memory.device != take_memory->device || at->memory.inode != take_memory->inode)
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

struct leaving {
    struct cairn_up *up;
    struct cairn_up_slab *slabs;
};

static void give_back(struct cairn_up *up, struct cairn_up_slab *slabs) {
    for (struct cairn_up_slab *at = slabs, *next; at; at = next) {
        next = at->next;
        uint64_t bytes = at->memory.size_bytes;
        cairn_slab_release(&at->memory);
        cairn_budget_give(&up->budget, bytes);
        cairn_lock_take(&up->lock);
        cairn_up_attempt_leave(up, at->attempt);
        cairn_condition_broadcast(&up->changed);
        cairn_lock_give(&up->lock);
        free(at);
    }
}

static void give_back_task(struct cairn_up_helper *helper, void *owner) {
    struct leaving *leaving = owner;
    give_back(helper->up, leaving->slabs);
    free(leaving);
}

static void give_back_late(void *owner) {
    struct leaving *leaving = owner;
    give_back(leaving->up, leaving->slabs);
    free(leaving);
}

void cairn_up_slabs_sweep_locked(struct cairn_up *up) {
    struct leaving *leaving = NULL;
    if (!up->tasks) return; /* the process ends; cairn_up_slabs_free_all follows */
    struct cairn_up_slab **at = &up->locked.slabs;
    while (*at) {
        struct cairn_up_slab *slab = *at;
        if (slab->conn || slab->state.owner) {
            at = &slab->next;
            continue;
        }
        if (!leaving) leaving = calloc(1, sizeof(*leaving));
        if (!leaving) return; /* the next sweep does it */
        leaving->up = up;
        *at = slab->next;
        slab->next = leaving->slabs;
        leaving->slabs = slab;
    }
    struct cairn_error error;
    if (!leaving ||
        cairn_up_tasks_add(up->tasks, give_back_task, give_back_late, leaving, &error) == CAIRN_OK)
        return;
    /* No helper: put them back for the next sweep. */
    while (leaving->slabs) {
        struct cairn_up_slab *slab = leaving->slabs;
        leaving->slabs = slab->next;
        slab->next = up->locked.slabs;
        up->locked.slabs = slab;
    }
    free(leaving);
    cairn_log(WARN, "slabs.kept", "cause=\"%s\"", error.message);
}

void cairn_up_slabs_free_all(struct cairn_up *up) {
    cairn_lock_take(&up->lock);
    struct cairn_up_slab *slabs = up->locked.slabs;
    up->locked.slabs = NULL;
    cairn_lock_give(&up->lock);
    give_back(up, slabs);
}
