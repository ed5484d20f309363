/* SPDX-License-Identifier: Apache-2.0 */
/* Two lists under one lock: who holds a slot, oldest last, and who wants one back, oldest first;
 * see read_slots.h. */
#include "server/reads/read_slots.h"

#include <stdlib.h>

#include "common/lock.h"

struct cairn_srv_read_slots {
    struct cairn_lock lock;
    size_t capacity;
    struct {
        size_t held;
        struct cairn_srv_read_slot *holders;
        struct cairn_srv_read_slot *waiting, **waiting_end;
    } locked;
};

enum cairn_code cairn_srv_read_slots_new(size_t capacity, struct cairn_srv_read_slots **ret,
                                         struct cairn_error *err) {
    struct cairn_srv_read_slots *slots = calloc(1, sizeof(*slots));
    if (!slots) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the slots of reads");
    cairn_lock_init(&slots->lock, CAIRN_LOCK_server_read_slots);
    slots->capacity = capacity;
    slots->locked.waiting_end = &slots->locked.waiting;
    *ret = slots;
    return CAIRN_OK;
}

void cairn_srv_read_slots_free(struct cairn_srv_read_slots *slots) {
    if (!slots) return;
    CAIRN_ASSERT(!slots->locked.held);
    CAIRN_ASSERT(!slots->locked.waiting);
    cairn_lock_release(&slots->lock);
    free(slots);
}

/* ---- with the lock held ---- */

static void take_out(struct cairn_srv_read_slots *slots, struct cairn_srv_read_slot *slot) {
    if (!slot->at) return; /* it has lent its slot and wants none yet */
    if (slots->locked.waiting_end == &slot->next) slots->locked.waiting_end = slot->at;
    *slot->at = slot->next;
    if (slot->next) slot->next->at = slot->at;
    slot->next = NULL;
    slot->at = NULL;
}

static void hold(struct cairn_srv_read_slots *slots, struct cairn_srv_read_slot *slot) {
    CAIRN_ASSERT(slots->locked.held < slots->capacity); /* read_slots.h#1 */
    slots->locked.held++;
    slot->held = true;
    slot->next = slots->locked.holders;
    slot->at = &slots->locked.holders;
    if (slot->next) slot->next->at = &slot->next;
    slots->locked.holders = slot;
}

static void let_go(struct cairn_srv_read_slots *slots, struct cairn_srv_read_slot *slot) {
    take_out(slots, slot);
    slots->locked.held -= slot->held;
    slot->held = false;
}

static bool borrow(struct cairn_srv_read_slots *slots) {
    for (struct cairn_srv_read_slot *one = slots->locked.holders; one; one = one->next) {
        if (!one->lend(one)) continue;
        let_go(slots, one);
        return true;
    }
    return false;
}

/* read_slots.h#2: owners that have lent a slot come first. */
static void serve_waiting(struct cairn_srv_read_slots *slots) {
    for (struct cairn_srv_read_slot *first; (first = slots->locked.waiting);) {
        if (slots->locked.held == slots->capacity && !borrow(slots)) return;
        take_out(slots, first);
        hold(slots, first);
        first->got(first);
    }
}

/* ---- from outside ---- */

bool cairn_srv_read_slots_take(struct cairn_srv_read_slots *slots,
                               struct cairn_srv_read_slot *slot) {
    CAIRN_HOLD(&slots->lock);
    serve_waiting(slots);
    if (slots->locked.waiting) return false;
    if (slots->locked.held == slots->capacity && !borrow(slots)) return false;
    hold(slots, slot);
    return true;
}

bool cairn_srv_read_slots_want(struct cairn_srv_read_slots *slots,
                               struct cairn_srv_read_slot *slot) {
    CAIRN_HOLD(&slots->lock);
    if (slot->held) return true; /* it was asked for, and not lent */
    CAIRN_ASSERT(!slot->at);
    slot->at = slots->locked.waiting_end;
    *slots->locked.waiting_end = slot;
    slots->locked.waiting_end = &slot->next;
    serve_waiting(slots);
    return false;
}

void cairn_srv_read_slots_look(struct cairn_srv_read_slots *slots) {
    CAIRN_HOLD(&slots->lock);
    serve_waiting(slots);
}

void cairn_srv_read_slots_leave(struct cairn_srv_read_slots *slots,
                                struct cairn_srv_read_slot *slot) {
    CAIRN_HOLD(&slots->lock);
    let_go(slots, slot);
    serve_waiting(slots);
}
