/* SPDX-License-Identifier: Apache-2.0 */
/* Two lists under one lock: who holds a place, oldest last, and who wants one back, oldest first;
 * see places.h. */
#include "server/places.h"

#include <stdlib.h>

#include "common/lock.h"

struct cairn_srv_places {
    struct cairn_lock lock;
    size_t capacity;
    struct {
        size_t held;
        struct cairn_srv_place *holders;
        struct cairn_srv_place *waiting, **waiting_end;
    } locked;
};

enum cairn_code cairn_srv_places_new(size_t capacity, struct cairn_srv_places **ret,
                                     struct cairn_error *err) {
    struct cairn_srv_places *places = calloc(1, sizeof(*places));
    if (!places) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the places of reads");
    cairn_lock_init(&places->lock, CAIRN_LOCK_server_places);
    places->capacity = capacity;
    places->locked.waiting_end = &places->locked.waiting;
    *ret = places;
    return CAIRN_OK;
}

void cairn_srv_places_free(struct cairn_srv_places *places) {
    if (!places) return;
    CAIRN_ASSERT(!places->locked.held);
    CAIRN_ASSERT(!places->locked.waiting);
    cairn_lock_release(&places->lock);
    free(places);
}

/* ---- with the lock held ---- */

static void take_out(struct cairn_srv_places *places, struct cairn_srv_place *place) {
    if (!place->at) return; /* it has lent its place and wants none yet */
    if (places->locked.waiting_end == &place->next) places->locked.waiting_end = place->at;
    *place->at = place->next;
    if (place->next) place->next->at = place->at;
    place->next = NULL;
    place->at = NULL;
}

static void hold(struct cairn_srv_places *places, struct cairn_srv_place *place) {
    CAIRN_ASSERT(places->locked.held < places->capacity); /* places.h#1 */
    places->locked.held++;
    place->held = true;
    place->next = places->locked.holders;
    place->at = &places->locked.holders;
    if (place->next) place->next->at = &place->next;
    places->locked.holders = place;
}

static void let_go(struct cairn_srv_places *places, struct cairn_srv_place *place) {
    take_out(places, place);
    places->locked.held -= place->held;
    place->held = false;
}

static bool borrow(struct cairn_srv_places *places) {
    for (struct cairn_srv_place *one = places->locked.holders; one; one = one->next) {
        if (!one->lend(one)) continue;
        let_go(places, one);
        return true;
    }
    return false;
}

/* places.h#2: owners that have lent a place come first. */
static void serve_waiting(struct cairn_srv_places *places) {
    for (struct cairn_srv_place *first; (first = places->locked.waiting);) {
        if (places->locked.held == places->capacity && !borrow(places)) return;
        take_out(places, first);
        hold(places, first);
        first->got(first);
    }
}

/* ---- from outside ---- */

bool cairn_srv_places_take(struct cairn_srv_places *places, struct cairn_srv_place *place) {
    CAIRN_HOLD(&places->lock);
    serve_waiting(places);
    if (places->locked.waiting) return false;
    if (places->locked.held == places->capacity && !borrow(places)) return false;
    hold(places, place);
    return true;
}

bool cairn_srv_places_want(struct cairn_srv_places *places, struct cairn_srv_place *place) {
    CAIRN_HOLD(&places->lock);
    if (place->held) return true; /* it was asked for, and not lent */
    CAIRN_ASSERT(!place->at);
    place->at = places->locked.waiting_end;
    *places->locked.waiting_end = place;
    places->locked.waiting_end = &place->next;
    serve_waiting(places);
    return false;
}

void cairn_srv_places_look(struct cairn_srv_places *places) {
    CAIRN_HOLD(&places->lock);
    serve_waiting(places);
}

void cairn_srv_places_leave(struct cairn_srv_places *places, struct cairn_srv_place *place) {
    CAIRN_HOLD(&places->lock);
    let_go(places, place);
    serve_waiting(places);
}
