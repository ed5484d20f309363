/* SPDX-License-Identifier: Apache-2.0 */
/* A plan from rows, and its changes one by one; see tiering.h. */
#include "server/jobs/tiering.h"

#include <stdlib.h>

#include "common/log.h"
#include "common/text.h"
#include "plan/copies.h"
#include "server/catalog/policies.h"
#include "server/catalog/runs.h"
#include "server/jobs/demote.h"
#include "server/jobs/jobs.h"
#include "server/jobs/promote.h"

struct plan {
    struct cairn_srv *server;
    struct cairn_store_worker *worker;
    const struct cairn_run_name *name;
    struct cairn_policy policy;
    struct cairn_srv_candidates candidates;
    struct cairn_srv_run_copies rows;
    size_t changes;
    /* the wish at hand */
    const char *version, *store;
};

static void release(struct plan *plan) {
    cairn_srv_candidates_release(&plan->candidates);
    cairn_srv_run_copies_release(&plan->rows);
}

static enum cairn_code load(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct plan *plan = argument;
    CAIRN_AUTO(srv_run) run = {0};
    enum cairn_srv_scope scope;
    release(plan);
    CAIRN_TRY(cairn_srv_policy_get(tx, plan->name, &plan->policy, &scope, err));
    if (!plan->policy.copies_count) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_run_get(tx, plan->name, &run, err));
    CAIRN_TRY(cairn_srv_candidates_load(tx, run.id, &plan->policy, NULL, &plan->candidates, err));
    return cairn_srv_copies_of_run(tx, run.id, &plan->rows, err);
}

/* ---- one change ---- */

static enum cairn_code want(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct plan *plan = argument;
    CAIRN_AUTO(srv_version) version = {0};
    struct cairn_srv_promote_wish wish = {.store = plan->store,
                                          .by_policy = true,
                                          .wall_ms = cairn_srv_wall_ms(plan->server)};
    bool whole = false;
    CAIRN_TRY(cairn_srv_version_get(tx, plan->version, &version, err));
    return cairn_srv_promote_want(tx, &version, &wish, &whole, err);
}

static enum cairn_code change(struct plan *plan, bool wanted, struct cairn_error *err) {
    const struct cairn_srv_demote demote = {.server = plan->server,
                                            .worker = plan->worker,
                                            .version = plan->version,
                                            .store = plan->store,
                                            .by_policy = true};
    struct cairn_error why = {0};
    enum cairn_code code = wanted
                               ? cairn_srv_catalog_write(plan->server->catalog, want, plan, &why)
                               : cairn_srv_demote_ask(&demote, &why);
    plan->changes += code == CAIRN_OK;
    bool held = code == CAIRN_IN_USE || code == CAIRN_NOT_COMMITTED || code == CAIRN_NOT_FOUND ||
                code == CAIRN_DELETED;
    if (!code || held) return CAIRN_OK; /* it is read, or has changed since: the next time */
    if (err) *err = why;
    return code;
}

/* ---- what is there ---- */

/* Of a version in a store: is there something to do? */
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
    for (size_t i = candidates->count; i > 0 && plan->changes < CAIRN_SRV_TIERING_ROUND; i--) {
        plan->version = candidates->ids[i - 1].text;
        bool flying = candidates->items[i - 1].marks & CAIRN_PLAN_IN_FLIGHT;
        if (flying || !differs(plan, plan->version, plan->store, wanted[i - 1])) continue;
        CAIRN_TRY(change(plan, wanted[i - 1], err));
    }
    return CAIRN_OK;
}

static enum cairn_code run(struct plan *plan, struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_catalog_read(plan->server->catalog, load, plan, err));
    if (!plan->policy.copies_count) return CAIRN_OK;
    CAIRN_AUTO_HEAP bool *wanted = calloc(plan->candidates.count + 1, sizeof(*wanted));
    if (!wanted) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to plan copies");
    for (uint32_t i = 0; i < plan->policy.copies_count; i++)
        CAIRN_TRY(carry_out(plan, &plan->policy.copies[i], wanted, err));
    return CAIRN_OK;
}

void cairn_srv_tiering_run(struct cairn_srv *server, struct cairn_store_worker *worker,
                           const struct cairn_run_name *name) {
    struct plan plan = {.server = server, .worker = worker, .name = name};
    struct cairn_error why = {0};
    if (!cairn_srv_tiers_any(server)) return;
    enum cairn_code code = run(&plan, &why);
    if (code && code != CAIRN_CATALOG_BEHIND)
        cairn_log(WARN, "tiering.delayed", "run=%s/%s cause=\"%s\"", name->project, name->run,
                  why.message);
    if (plan.changes) cairn_srv_jobs_sweep(server); /* which begins, and removes */
    release(&plan);
}
