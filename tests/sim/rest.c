/* SPDX-License-Identifier: Apache-2.0 */
/* One word for what is held; NULL where nothing is. */
#include "tests/sim/rest.h"

#include "client/save/save.h"
#include "tests/sim/world.h"
#include "uploader/saves/ranks.h"
#include "uploader/saves/slabs.h"
#include "uploader/send/shards.h"
#include "uploader/up.h"

static const char *grant_held(struct cairn_up *up) {
    for (const struct cairn_up_attempt *at = up->locked.attempts; at; at = at->next) {
        if (cairn_up_ended_holds_locked(up, at)) return "a grant that no process uses";
        if (at->stale) return "a stale grant";
        if (at->reserving_bytes) return "a reservation";
    }
    return NULL;
}

static const char *held_by(struct cairn_up *up) {
    if (up->locked.save_count) return "a save";
    if (up->locked.slabs) return "a slab";
    if (up->locked.slab_requests) return "a request for memory";
    if (up->locked.attempt_calls || up->locked.attempt_batches) return "a call for an attempt";
    if (up->budget.locked.reserved_bytes != up->queue->pool.bytes) return "memory of its budget";
    return grant_held(up);
}

static const char *held_on(int node) {
    struct cairn_up *up = sim_world.up[node];
    return up ? held_by(up) : "nothing: it does not run";
}

bool sim_rest_is_reached(void) {
    for (int i = 0; i < SIM_NODES; i++)
        if (held_on(i)) return false;
    return true;
}

void sim_rest_check(void) {
    if (sim_check_is_frozen()) return; /* everything waits for the operator */
    for (int i = 0; i < SIM_NODES; i++)
        if (held_on(i)) sim_violation("leak: all is at rest, and node %d holds %s", i, held_on(i));
}

void sim_rest_check_session(uint32_t rank, struct cairn_session *session) {
    if (sim_check_is_frozen() || !sim_check_is_quiet()) return;
    CAIRN_HOLD(&session->lock);
    cairn_client_saves_sweep(session); /* as with the next event */
    const struct cairn_save *at;
    TAILQ_FOREACH(at, &session->saves->all, place)
        if (at->freed && cairn_client_save_over(at) && (at->problem_returned || !at->problem.code))
            sim_violation("leak: the session of rank %u keeps step %lu, which is over and told",
                          rank, (unsigned long)at->step);
    for (uint32_t i = 0; i < session->slab_count; i++)
        if (session->saves->generations[i].lent || session->saves->generations[i].held)
            sim_violation("leak: all is at rest, and generation %u of rank %u is %s", i, rank,
                          session->saves->generations[i].lent ? "lent" : "held");
}
