/* SPDX-License-Identifier: Apache-2.0 */
/* Carries out the `copies` of a run's policy: what lies in which store.
 *  1  The plan is plan/retention.h over the catalog at one moment; each copy that it wants, and
 *     each that it does not, is judged again in a transaction of its own (promote.c, demote.c).
 *  2  It removes what a policy has made, and of the main store what lies elsewhere, too; a copy
 *     that was asked for by hand stays, and so does every last one.
 *  3  Carried out again it changes nothing; what a server left undone comes with the next commit,
 *     or when a copy was made.
 *  4  Up to the version behind which nothing was to do, nothing is read again while the run's
 *     events leave it as it was (server/events/since.h): a commit costs what it can change.
 * CAIRN_SRV_TIERING_ROUND changes a call; CAIRN_SRV_TIERED_MAX runs are remembered, others are read
 * whole. What is remembered is locked by server_retained. */
#include "server/copies/copies.h"

#include <stdlib.h>

#include "common/lock.h"
#include "common/log.h"
#include "plan/retention.h"
#include "server/events/since.h"
#include "server/guard/jobs.h"
#include "server/ledger/policies.h"
#include "server/ledger/runs.h"

struct cairn_srv_tiered {
    struct cairn_lock lock; /* server_retained */
    struct {
        struct cairn_srv_known runs[CAIRN_SRV_TIERED_MAX]; /* 4: up to `newest` all is settled */
        size_t next;                                       /* is forgotten for another run */
    } locked;
};

struct plan {
    struct cairn_srv *server;
    struct cairn_store_worker *worker;
    const struct cairn_run_name *name;
    struct cairn_policy policy;
    struct cairn_srv_candidates candidates;
    struct cairn_srv_run_copies rows;
    struct cairn_srv_known settled; /* as it was remembered; name "": it was not */
    struct cairn_srv_known found;   /* what is to be remembered */
    bool after;                     /* only what comes after settled.newest was read */
    bool *open;                     /* of each candidate: there was something to do */
    size_t changes;
    /* the wish at hand */
    const char *version, *store;
};

static void release(struct plan *plan) {
    cairn_srv_candidates_release(&plan->candidates);
    cairn_srv_run_copies_release(&plan->rows);
}

/* ---- how far a run is settled ---- */

enum cairn_code cairn_srv_tiered_new(struct cairn_srv_tiered **ret, struct cairn_error *err) {
    struct cairn_srv_tiered *tiered = calloc(1, sizeof(*tiered));
    if (!tiered) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for copies by policies");
    cairn_lock_init(&tiered->lock, CAIRN_LOCK_server_retained);
    *ret = tiered;
    return CAIRN_OK;
}

void cairn_srv_tiered_free(struct cairn_srv_tiered *tiered) {
    if (!tiered) return;
    cairn_lock_release(&tiered->lock);
    free(tiered);
}

/* The run's entry, or the entry to overwrite; the lock is held. */
static struct cairn_srv_known *place_of(struct cairn_srv_tiered *tiered,
                                        const struct cairn_run_name *name, bool *ret_there) {
    for (size_t i = 0; i < CAIRN_SRV_TIERED_MAX; i++) {
        *ret_there = cairn_srv_known_is_of(&tiered->locked.runs[i], name);
        if (*ret_there) return &tiered->locked.runs[i];
    }
    return &tiered->locked.runs[tiered->locked.next];
}

static void recall(struct plan *plan) {
    struct cairn_srv_tiered *tiered = plan->server->tiered;
    bool there = false;
    if (!tiered) return;
    CAIRN_HOLD(&tiered->lock);
    const struct cairn_srv_known *place = place_of(tiered, plan->name, &there);
    if (there) plan->settled = *place;
}

/* Keeps the entry of a later state of the catalog. */
static void remember(struct plan *plan) {
    struct cairn_srv_tiered *tiered = plan->server->tiered;
    bool there = false;
    if (!tiered || !plan->found.newest.attempt) return;
    plan->found.name = *plan->name;
    CAIRN_HOLD(&tiered->lock);
    struct cairn_srv_known *place = place_of(tiered, plan->name, &there);
    if (there && place->event > plan->found.event) return;
    *place = plan->found;
    if (!there) tiered->locked.next = (tiered->locked.next + 1) % CAIRN_SRV_TIERED_MAX;
}

static enum cairn_code look_at_events(struct cairn_srv_tx *tx, struct plan *plan, bool *ret,
                                      struct cairn_error *err) {
    struct cairn_srv_since since = {
        .then = &plan->settled, .subject = CAIRN_SRV_OF_COPIES, .policy = plan->found.policy};
    *ret = false;
    CAIRN_TRY(cairn_srv_events_bounds(tx, &since.first, &since.last, err));
    plan->found.event = since.last;
    if (!plan->settled.newest.attempt) return CAIRN_OK;
    return cairn_srv_since_stands(tx, &since, ret, err);
}

static bool counts(const struct cairn_plan_item *item) {
    return !(item->marks & (CAIRN_PLAN_IN_FLIGHT | CAIRN_PLAN_SUPERSEDED));
}

/* *ret: the first of those that a rule of the newest may count. False: there are not as many. */
static bool newest_from(const struct plan *plan, size_t *ret) {
    const struct cairn_srv_candidates *candidates = &plan->candidates;
    uint64_t most = 0, found = 0;
    size_t from = candidates->count;
    for (uint32_t i = 0; i < plan->policy.copies_count; i++)
        most = cairn_max_u64(most, plan->policy.copies[i].last);
    while (from > 0 && found < most) found += counts(&candidates->items[--from]);
    *ret = from;
    return found == most;
}

/* Is it one that will be committed soon? That would be a change of what is settled. */
static bool comes_soon(const struct plan *plan, size_t i) {
    const struct cairn_srv_candidates *candidates = &plan->candidates;
    return candidates->items[i].marks & CAIRN_PLAN_IN_FLIGHT &&
           i + CAIRN_SRV_IN_FLIGHT_AMONG >= candidates->count;
}

/* Up to where there was nothing to do; older ones of the newest may count when one of them goes. */
static void settle(struct plan *plan) {
    size_t newest = 0, i = 0;
    if (plan->after) plan->found.newest = plan->settled.newest;
    if (!newest_from(plan, &newest)) return;
    while (i < newest && !plan->open[i] && !comes_soon(plan, i)) i++;
    if (i > 0) plan->found.newest = plan->candidates.items[i - 1];
}

static enum cairn_code read_rows(struct cairn_srv_tx *tx, struct plan *plan, int64_t run_id,
                                 struct cairn_error *err) {
    const struct cairn_plan_item *after = plan->after ? &plan->settled.newest : NULL;
    release(plan);
    CAIRN_TRY(cairn_srv_candidates_load(tx, run_id, &plan->policy, after, &plan->candidates, err));
    return cairn_srv_copies_of_run(tx, run_id, after, &plan->rows, err);
}

static enum cairn_code load_plan(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct plan *plan = argument;
    CAIRN_AUTO(srv_run) run = {0};
    enum cairn_srv_scope scope;
    release(plan);
    CAIRN_TRY(cairn_srv_policy_get(tx, plan->name, &plan->policy, &scope, err));
    if (!plan->policy.copies_count) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_run_get(tx, plan->name, &run, err));
    CAIRN_TRY(cairn_srv_policy_digest(&plan->policy, plan->found.policy, err));
    CAIRN_TRY(look_at_events(tx, plan, &plan->after, err));
    CAIRN_TRY(read_rows(tx, plan, run.id, err));
    size_t newest = 0;
    if (!plan->after || newest_from(plan, &newest)) return CAIRN_OK;
    plan->after = false; /* some of the newest went: older ones count instead */
    return read_rows(tx, plan, run.id, err);
}

/* ---- one change ---- */

static enum cairn_code put_wish(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct plan *plan = argument;
    CAIRN_AUTO(srv_version) version = {0};
    struct cairn_srv_promote_wish wish = {
        .store = plan->store, .by_policy = true, .wall_ms = cairn_srv_wall_ms(plan->server)};
    bool whole = false;
    CAIRN_TRY(cairn_srv_version_get(tx, plan->version, &version, err));
    return cairn_srv_promote_want(tx, &version, &wish, &whole, err);
}

static enum cairn_code change_copy(struct plan *plan, bool wanted, struct cairn_error *err) {
    const struct cairn_srv_demote demote = {.server = plan->server,
                                            .worker = plan->worker,
                                            .version = plan->version,
                                            .store = plan->store,
                                            .by_policy = true};
    struct cairn_error why = {0};
    enum cairn_code code =
        wanted ? cairn_srv_catalog_write(plan->server->catalog, put_wish, plan, &why)
               : cairn_srv_demote_ask(&demote, &why);
    plan->changes += code == CAIRN_OK;
    bool held = code == CAIRN_IN_USE || code == CAIRN_NOT_COMMITTED || code == CAIRN_NOT_FOUND ||
                code == CAIRN_DELETED;
    if (!code || held) return CAIRN_OK; /* it is read, or has changed since: the next time */
    if (err) *err = why;
    return code;
}

/* ---- what is there ---- */

/* Does this store lack a copy that is wanted, or have one that is not? */
static bool differs(const struct plan *plan, const char *version, const char *store, bool wanted) {
    const struct cairn_srv_run_copies *rows = &plan->rows;
    const struct cairn_srv_copy *copy = cairn_srv_run_copies_find(rows, version, store);
    bool main = !strcmp(store, CAIRN_SRV_TIER_MAIN);
    enum cairn_srv_copy_state state = copy   ? copy->state
                                      : main ? CAIRN_SRV_COPY_WHOLE
                                             : CAIRN_SRV_COPY_GONE;
    if (wanted) return state == CAIRN_SRV_COPY_GONE;
    if (state == CAIRN_SRV_COPY_MAKING) return copy->by_policy;
    if (state != CAIRN_SRV_COPY_WHOLE || (!main && !copy->by_policy)) return false;
    return cairn_srv_run_copies_elsewhere(rows, version, store);
}

static enum cairn_code carry_out(struct plan *plan, const struct cairn_policy_copies *rules,
                                 bool *wanted, struct cairn_error *err) {
    const struct cairn_srv_candidates *candidates = &plan->candidates;
    CAIRN_TRY(cairn_plan_copies(rules, candidates->items, candidates->count, wanted, err));
    plan->store = rules->store;
    if (!cairn_srv_tier_find(plan->server, rules->store)) {
        cairn_log(WARN, "tiering.unknown_store", "run=%s/%s store=%s", plan->name->project,
                  plan->name->run, rules->store);
        return CAIRN_OK;
    }
    for (size_t i = candidates->count; i > 0; i--) {
        plan->version = candidates->ids[i - 1].text;
        bool flying = candidates->items[i - 1].marks & CAIRN_PLAN_IN_FLIGHT;
        if (flying || !differs(plan, plan->version, plan->store, wanted[i - 1])) continue;
        plan->open[i - 1] = true;
        if (plan->changes < CAIRN_SRV_TIERING_ROUND)
            CAIRN_TRY(change_copy(plan, wanted[i - 1], err));
    }
    return CAIRN_OK;
}

static enum cairn_code run_plan(struct plan *plan, struct cairn_error *err) {
    recall(plan);
    CAIRN_TRY(cairn_srv_catalog_read(plan->server->catalog, load_plan, plan, err));
    if (!plan->policy.copies_count) return CAIRN_OK;
    CAIRN_AUTO_HEAP bool *wanted = calloc(plan->candidates.count + 1, sizeof(*wanted));
    plan->open = calloc(plan->candidates.count + 1, sizeof(*plan->open));
    if (!wanted || !plan->open) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to plan copies");
    for (uint32_t i = 0; i < plan->policy.copies_count; i++)
        CAIRN_TRY(carry_out(plan, &plan->policy.copies[i], wanted, err));
    settle(plan);
    remember(plan);
    return CAIRN_OK;
}

size_t cairn_srv_tiering_run(struct cairn_srv *server, struct cairn_store_worker *worker,
                             const struct cairn_run_name *name) {
    struct plan plan = {.server = server, .worker = worker, .name = name};
    struct cairn_error why = {0};
    if (!cairn_srv_tiers_any(server)) return 0;
    enum cairn_code code = run_plan(&plan, &why);
    if (code && code != CAIRN_CATALOG_BEHIND)
        cairn_log(WARN, "tiering.delayed", "run=%s/%s cause=\"%s\"", name->project, name->run,
                  why.message);
    if (plan.changes) cairn_srv_jobs_sweep(server); /* which begins, and removes */
    size_t read = plan.candidates.count;
    release(&plan);
    free(plan.open);
    return read;
}
