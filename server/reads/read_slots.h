/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_slots: which reads may hold memory now, and which wait for it.
 *
 * Why:     reads through the server are bounded in memory, not in number: more readers than slots
 *          take turns, and one that takes nothing keeps no other out (stream.h#3).
 * Promise: 1    no more slots are held at once than there are.
 *          2    a holder that lends its slot gets one back, in the order of want(), before
 *               any newcomer does.
 *          3    got() is called exactly once for each want() that the owner does not take back by
 *               leave(), and never after leave() has returned.
 * Limits:  as many holders as settings say; who waits is bounded by connections.
 * Threads: any thread; the owner's functions are called with the lock held.
 * Next:    server/reads/stream.c.
 */
#pragma once

#include "common/error.h"

struct cairn_srv_read_slots;
struct cairn_srv_read_slot {
    /* Another reader needs it: an owner that can do without for now frees its memory and returns
     * true. */
    bool (*lend)(struct cairn_srv_read_slot *slot);
    void (*got)(struct cairn_srv_read_slot *slot); /* after want(): it is held again */
    struct cairn_srv_read_slot *next, **at;        /* of read_slots.c */
    bool held;
};

enum cairn_code cairn_srv_read_slots_new(size_t capacity, struct cairn_srv_read_slots **ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_read_slots_free(struct cairn_srv_read_slots *slots); /* NULL is fine; none is held */
/* A newcomer's: false when all are held and no holder lends one, or others wait already. */
bool cairn_srv_read_slots_take(struct cairn_srv_read_slots *slots,
                               struct cairn_srv_read_slot *slot) CAIRN_MUST_USE;
/* An owner that has lent its slot needs one again: true when it was not lent after all; otherwise
 * got() is called, now or later. */
bool cairn_srv_read_slots_want(struct cairn_srv_read_slots *slots,
                               struct cairn_srv_read_slot *slot) CAIRN_MUST_USE;
/* To be called now and then: holders become able to lend by time alone. */
void cairn_srv_read_slots_look(struct cairn_srv_read_slots *slots);
/* The owner ends, whether it holds a slot, has lent it or waits for one. */
void cairn_srv_read_slots_leave(struct cairn_srv_read_slots *slots,
                                struct cairn_srv_read_slot *slot);
