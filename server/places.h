/* SPDX-License-Identifier: Apache-2.0 */
/*
 * places: which reads may hold memory now, and which wait for it.
 *
 * Why:     reads through the server are bounded in memory, not in number: more readers than places
 *          take turns, and one that takes nothing keeps no other out (stream.h#3).
 * Promise: 1    no more places are held at once than there are.
 *          2    a holder that lends its place gets one back, in the order of want(), before
 *               any newcomer does.
 *          3    got() is called exactly once for each want() that the owner does not take back by
 *               leave(), and never after leave() has returned.
 * Limits:  as many holders as settings say; who waits is bounded by connections.
 * Threads: any thread; the owner's functions are called with the lock held.
 * Next:    server/handlers/stream.c.
 */
#pragma once

#include "common/error.h"

struct cairn_srv_places;
struct cairn_srv_place {
    /* Another reader needs it: an owner that can do without for now frees its memory and returns
     * true. */
    bool (*lend)(struct cairn_srv_place *place);
    void (*got)(struct cairn_srv_place *place); /* after want(): it is held again */
    struct cairn_srv_place *next, **at;         /* of places.c */
    bool held;
};

enum cairn_code cairn_srv_places_new(size_t capacity, struct cairn_srv_places **ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_places_free(struct cairn_srv_places *places); /* NULL is fine; none is held */
/* A newcomer's: false when all are held and no holder lends one, or others wait already. */
bool cairn_srv_places_take(struct cairn_srv_places *places,
                           struct cairn_srv_place *place) CAIRN_MUST_USE;
/* An owner that has lent its place needs one again: true when it was not lent after all; otherwise
 * got() is called, now or later. */
bool cairn_srv_places_want(struct cairn_srv_places *places,
                           struct cairn_srv_place *place) CAIRN_MUST_USE;
/* To be called now and then: holders become able to lend by time alone. */
void cairn_srv_places_look(struct cairn_srv_places *places);
/* The owner ends, whether it holds a place, has lent it or waits for one. */
void cairn_srv_places_leave(struct cairn_srv_places *places, struct cairn_srv_place *place);
