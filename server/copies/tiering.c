/* SPDX-License-Identifier: Apache-2.0 */
/* Applies the `copies` of a run's policy: which versions have a copy in which store.
 *  1  plan/retention.h plans over a snapshot of the catalog; each copy to make or remove is checked
 *     again in its own transaction (promote.c, demote.c).
 *  2  It removes copies that a policy made, and copies in the main store that exist elsewhere.
 *     Copies that a caller requested stay, and so does the last copy.
 *  3  A repeated call changes nothing; work that a server left undone is found after the next
 *     commit or finished copy.
 *  4  Versions up to a remembered one, which need no work, are not read again while the run's
 *     events leave them unchanged (server/ledger/events.h): the cost of a commit follows what it
 * changes. At most SRV_TIERING_ROUND changes a call; SRV_TIERED_MAX runs are
 * remembered, other runs are read in full. */
#include "server/copies/copies.h"

#include <stdlib.h>

#include "common/log.h"
#include "server/ledger/events.h"
#include "server/ledger/policies.h"

struct srv_tiered {
    struct cairn_lock lock;
    struct {
        struct srv_known runs[SRV_TIERED_MAX]; /* 4: needs no work up to `newest` */
        size_t next;                           /* the entry to overwrite next */
    } locked;
};

struct plan {
    struct srv *server;
    struct cairn_store_worker *worker;
    const struct cairn_run_name *name;
    struct cairn_policy policy;
    struct srv_candidates candidates;
    struct srv_run_copies rows;
    struct srv_known settled; /* the remembered entry; name "": none */
    struct srv_known found;
    bool after; /* only versions after settled.newest were read */
    bool *open; /* for each candidate: it needs work */
    size_t changes;
    const char *version, *store;
};

static void release(struct plan *plan) {
    srv_candidates_release(&plan->candidates);
    srv_run_copies_release(&plan->rows);
}

/* ---- remembered runs ---- */

enum cairn_code srv_tiered_new(struct srv_tiered **ret, struct cairn_error *err) {
    struct srv_tiered *tiered = calloc(1, sizeof(*tiered));
    if (!tiered) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for copies by policies");
    cairn_lock_init(&tiered->lock, CAIRN_LOCK_server_retained);
    *ret = tiered;
    return CAIRN_OK;
}

void srv_tiered_free(struct srv_tiered *tiered) {
    if (!tiered) return;
    cairn_lock_release(&tiered->lock);
    free(tiered);
}

/* The run's entry, or the entry to overwrite; the caller holds the lock. */
static struct srv_known *place_of(struct srv_tiered *tiered, const struct cairn_run_name *name,
                                  bool *ret_there) {
    for (size_t i = 0; i < SRV_TIERED_MAX; i++) {
        *ret_there = cairn_run_name_same(&tiered->locked.runs[i].name, name);
        if (*ret_there) return &tiered->locked.runs[i];
    }
    return &tiered->locked.runs[tiered->locked.next];
}

static void recall(struct plan *plan) {
    struct srv_tiered *tiered = plan->server->tiered;
    bool there = false;
    if (!tiered) return;
    CAIRN_HOLD(&tiered->lock);
    const struct srv_known *place = place_of(tiered, plan->name, &there);
    if (there) plan->settled = *place;
}

/* Keeps whichever entry is of the later state of the catalog. */
static void remember(struct plan *plan) {
    struct srv_tiered *tiered = plan->server->tiered;
    bool there = false;
    if (!tiered || !plan->found.newest.attempt) return;
    plan->found.name = *plan->name;
    CAIRN_HOLD(&tiered->lock);
    struct srv_known *place = place_of(tiered, plan->name, &there);
    if (there && place->event > plan->found.event) return;
    *place = plan->found;
    if (!there) tiered->locked.next = (tiered->locked.next + 1) % SRV_TIERED_MAX;
}

static enum cairn_code look_at_events(struct srv_tx *tx, struct plan *plan, bool *ret,
                                      struct cairn_error *err) {
    struct srv_since since = {
        .then = &plan->settled, .subject = SRV_OF_COPIES, .policy = plan->found.policy};
    *ret = false;
    CAIRN_TRY(srv_events_bounds(tx, &since.first, &since.last, err));
    plan->found.event = since.last;
    if (!plan->settled.newest.attempt) return CAIRN_OK;
    return srv_since_stands(tx, &since, ret, err);
}

static bool counts(const struct cairn_plan_item *item) {
    return !(item->marks & (CAIRN_PLAN_IN_FLIGHT | CAIRN_PLAN_SUPERSEDED));
}

/* *ret: the first candidate that a rule "newest N" may count. False: there are fewer than N. */
static bool newest_from(const struct plan *plan, size_t *ret) {
    const struct srv_candidates *candidates = &plan->candidates;
    uint64_t most = 0, found = 0;
    size_t from = candidates->count;
    for (uint32_t i = 0; i < plan->policy.copies_count; i++)
        most = cairn_max_u64(most, plan->policy.copies[i].last);
    while (from > 0 && found < most) found += counts(&candidates->items[--from]);
    *ret = from;
    return found == most;
}

/* True if the candidate may commit soon, which would change which versions need work. */
static bool comes_soon(const struct plan *plan, size_t i) {
    const struct srv_candidates *candidates = &plan->candidates;
    return candidates->items[i].marks & CAIRN_PLAN_IN_FLIGHT &&
           i + SRV_IN_FLIGHT_AMONG >= candidates->count;
}

/* Settles up to the first candidate that needs work, but not those of the newest N: when one of
 * these is deleted, older candidates count instead. */
static void settle(struct plan *plan) {
    size_t newest = 0, i = 0;
    if (plan->after) plan->found.newest = plan->settled.newest;
    if (!newest_from(plan, &newest)) return;
    while (i < newest && !plan->open[i] && !comes_soon(plan, i)) i++;
    if (i > 0) plan->found.newest = plan->candidates.items[i - 1];
}

static enum cairn_code read_rows(struct srv_tx *tx, struct plan *plan, int64_t run_id,
                                 struct cairn_error *err) {
    const struct cairn_plan_item *after = plan->after ? &plan->settled.newest : NULL;
    release(plan);
    CAIRN_TRY(srv_candidates_load(tx, run_id, &plan->policy, after, &plan->candidates, err));
    return srv_copies_of_run(tx, run_id, after, &plan->rows, err);
}

static enum cairn_code load_plan(struct plan *plan, struct cairn_error *err) {
    enum srv_scope scope;
    SRV_LOOK(look, plan->server->catalog, err);
    CAIRN_TRY(srv_policy_get(look.tx, plan->name, &plan->policy, &scope, err));
    if (!plan->policy.copies_count) return CAIRN_OK;
    SRV_GET(run, run, srv_run_get(look.tx, plan->name, &run, err));
    CAIRN_TRY(srv_policy_digest(&plan->policy, plan->found.policy, err));
    CAIRN_TRY(look_at_events(look.tx, plan, &plan->after, err));
    CAIRN_TRY(read_rows(look.tx, plan, run.id, err));
    size_t newest = 0;
    if (!plan->after || newest_from(plan, &newest)) return CAIRN_OK;
    plan->after = false; /* a newest version was deleted: older ones count instead */
    return read_rows(look.tx, plan, run.id, err);
}

/* ---- applying one change ---- */

SRV_CHANGE(put_wish, struct plan *plan) {
    struct srv_promote_wish wish = {
        .store = plan->store, .by_policy = true, .wall_ms = srv_wall_ms(plan->server)};
    bool whole = false;
    SRV_GET(version, version, srv_version_get(tx, plan->version, &version, err));
    return srv_promote_want(tx, &version, &wish, &whole, err);
}

static enum cairn_code change_copy(struct plan *plan, bool wanted, struct cairn_error *err) {
    const struct srv_demote demote = {.server = plan->server,
                                      .worker = plan->worker,
                                      .version = plan->version,
                                      .store = plan->store,
                                      .by_policy = true};
    struct cairn_error why = {0};
    enum cairn_code code = wanted ? srv_catalog_write(plan->server->catalog, put_wish, plan, &why)
                                  : srv_demote_ask(&demote, &why);
    plan->changes += code == CAIRN_OK;
    bool held = code == CAIRN_IN_USE || code == CAIRN_NOT_COMMITTED || code == CAIRN_NOT_FOUND ||
                code == CAIRN_DELETED;
    if (!code || held) return CAIRN_OK; /* being read, or changed since: planned again next time */
    return cairn_pass(err, code, &why);
}

/* ---- planning against present copies ---- */

/* True if the store lacks a wanted copy or has an unwanted one. */
static bool differs(const struct plan *plan, const char *version, const char *store, bool wanted) {
    const struct srv_run_copies *rows = &plan->rows;
    const struct srv_copy *copy = srv_run_copies_find(rows, version, store);
    bool main = !strcmp(store, SRV_TIER_MAIN);
    enum srv_copy_state state = copy ? copy->state : main ? SRV_COPY_WHOLE : SRV_COPY_GONE;
    if (wanted) return state == SRV_COPY_GONE;
    if (state == SRV_COPY_MAKING) return copy->by_policy;
    if (state != SRV_COPY_WHOLE || (!main && !copy->by_policy)) return false;
    return srv_run_copies_elsewhere(rows, version, store);
}

static enum cairn_code carry_out(struct plan *plan, const struct cairn_policy_copies *rules,
                                 bool *wanted, struct cairn_error *err) {
    const struct srv_candidates *candidates = &plan->candidates;
    CAIRN_TRY(cairn_plan_copies(rules, candidates->items, candidates->count, wanted, err));
    plan->store = rules->store;
    if (!srv_tier_find(plan->server, rules->store)) {
        cairn_log(WARN, "tiering.unknown_store", "run=%s/%s store=%s", plan->name->project,
                  plan->name->run, rules->store);
        return CAIRN_OK;
    }
    for (size_t i = candidates->count; i > 0; i--) {
        plan->version = candidates->ids[i - 1].text;
        bool flying = candidates->items[i - 1].marks & CAIRN_PLAN_IN_FLIGHT;
        if (flying || !differs(plan, plan->version, plan->store, wanted[i - 1])) continue;
        plan->open[i - 1] = true;
        if (plan->changes < SRV_TIERING_ROUND) CAIRN_TRY(change_copy(plan, wanted[i - 1], err));
    }
    return CAIRN_OK;
}

static enum cairn_code run_plan(struct plan *plan, struct cairn_error *err) {
    recall(plan);
    CAIRN_TRY(load_plan(plan, err));
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

size_t srv_tiering_run(struct srv *server, struct cairn_store_worker *worker,
                       const struct cairn_run_name *name) {
    struct plan plan = {.server = server, .worker = worker, .name = name};
    struct cairn_error why = {0};
    if (!srv_tiers_any(server)) return 0;
    enum cairn_code code = run_plan(&plan, &why);
    if (code && code != CAIRN_CATALOG_BEHIND)
        cairn_log(WARN, "tiering.delayed", "run=%s/%s cause=\"%s\"", name->project, name->run,
                  why.message);
    if (plan.changes) srv_jobs_sweep(server);
    size_t read = plan.candidates.count;
    release(&plan);
    free(plan.open);
    return read;
}
