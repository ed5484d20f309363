/* SPDX-License-Identifier: Apache-2.0 */
/* Plans from rows, and their removals; see retain.h. */
#include "server/retention/retain.h"

#include <inttypes.h>

#include "common/encode.h"
#include "common/hash.h"
#include "common/log.h"
#include "server/guard/jobs.h"
#include "server/guard/records.h"
#include "server/http/waiters.h"
#include "server/ledger/leases.h"
#include "server/ledger/runs.h"
#include "server/ledger/versions.h"
#include "server/metrics.h"
#include "server/retention/retained.h"

#define NEWEST_KEPT 1 /* K of Q28 */

void cairn_srv_retain_release(struct cairn_srv_retain *retain) {
    cairn_srv_candidates_release(&retain->candidates);
    cairn_plan_retention_release(&retain->plan);
}

/* retain.h#1; versions in the order of their rows, which is that of Q25. */
static enum cairn_code make_tag(struct cairn_srv_retain *retain, struct cairn_error *err) {
    struct cairn_sha256 sha;
    uint8_t digest[CAIRN_SHA256_BYTES];
    CAIRN_AUTO_JSON json_t *json = NULL;
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(cairn_policy_json(&retain->policy, &json, err));
    CAIRN_TRY(cairn_json_dump(json, &text, err));
    cairn_sha256_init(&sha);
    cairn_sha256_update(&sha, text.data, text.size);
    cairn_sha256_update(&sha, retain->allow_empty ? "1" : "0", 1);
    for (size_t i = 0; i < retain->candidates.count; i++) {
        const char *id = retain->candidates.ids[i].text;
        if (cairn_plan_removes(&retain->plan, i)) cairn_sha256_update(&sha, id, strlen(id));
    }
    cairn_sha256_final(&sha, digest);
    cairn_sha256_release(&sha);
    cairn_hex_encode(digest, (CAIRN_SRV_PLAN_TAG_BYTES - 1) / 2, retain->tag);
    return CAIRN_OK;
}

enum cairn_code cairn_srv_retain_plan(struct cairn_srv_tx *tx,
                                      const struct cairn_srv_retain_query *query,
                                      struct cairn_srv_retain *ret, struct cairn_error *err) {
    CAIRN_AUTO(srv_run) run = {0};
    cairn_srv_retain_release(ret);
    ret->allow_empty = query->allow_empty;
    ret->scope = CAIRN_SRV_SCOPE_NONE;
    CAIRN_TRY(cairn_srv_run_get(tx, query->name, &run, err));
    if (query->policy)
        ret->policy = *query->policy;
    else
        CAIRN_TRY(cairn_srv_policy_get(tx, query->name, &ret->policy, &ret->scope, err));
    CAIRN_TRY(cairn_srv_candidates_load(tx, run.id, &ret->policy, NULL, &ret->candidates, err));
    for (size_t i = 0; i < query->assumed_count; i++) {
        const struct cairn_version_id none = {""};
        struct cairn_plan_item item = query->assumed[i];
        item.attempt = run.attempt;
        CAIRN_TRY(cairn_srv_candidates_add(&ret->candidates, &none, &item, err));
    }
    struct cairn_plan_query question = {.policy = &ret->policy,
                                        .items = ret->candidates.items,
                                        .count = ret->candidates.count,
                                        .newest = NEWEST_KEPT,
                                        .now_ms = query->now_ms,
                                        .allow_empty = query->allow_empty};
    CAIRN_TRY(cairn_plan_retention(&question, &ret->plan, err));
    CAIRN_ASSERT(ret->plan.count == ret->candidates.count);
    CAIRN_ASSERT(ret->plan.kept + ret->plan.removed + ret->plan.in_flight == ret->plan.count);
    return make_tag(ret, err);
}

/* ---- carrying it out ---- */

static const char *const reasons[] = {
    [CAIRN_SRV_SCOPE_RUN] = "by the retention policy of the run",
    [CAIRN_SRV_SCOPE_PROJECT] = "by the retention policy of the project",
    [CAIRN_SRV_SCOPE_SERVER] = "by the retention policy of the server",
    [CAIRN_SRV_SCOPE_NONE] = "by a retention policy that was given by hand",
};

struct removal {
    struct cairn_srv *server;
    const char *id, *reason;
    bool allow_empty, away, may;
    struct cairn_srv_version version;
};

/* Its place in the order of Q25. */
static struct cairn_plan_item place_of(const struct cairn_srv_version *version) {
    return (struct cairn_plan_item){.line = version->line,
                                    .step = version->step,
                                    .attempt = version->attempt,
                                    .n = version->n};
}

/* Is it the newest that is shown, or newer than that? */
static enum cairn_code is_newest(struct cairn_srv_tx *tx, const struct cairn_srv_version *version,
                                 bool *ret, struct cairn_error *err) {
    struct cairn_version_id id;
    uint64_t step = 0;
    bool found = false;
    CAIRN_AUTO(srv_version) latest = {0};
    CAIRN_TRY(cairn_srv_latest(tx, version->run_id, &found, &id, &step, err));
    *ret = true;
    if (!found) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_version_get(tx, id.text, &latest, err));
    const struct cairn_plan_item place = place_of(version), newest = place_of(&latest);
    *ret = cairn_plan_order(&place, &newest) >= 0;
    return CAIRN_OK;
}

/* retain.h#2 */
static enum cairn_code judge(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct removal *removal = argument;
    struct cairn_srv_version *version = &removal->version;
    bool needed = false, newest = false, aliased = false, leased = false;
    removal->may = false;
    cairn_srv_version_release(version);
    CAIRN_TRY(cairn_srv_version_get(tx, removal->id, version, err));
    CAIRN_TRY(cairn_srv_tx_run_thawed(tx, version->run_id, err));
    if (version->state != CAIRN_STATE_COMMITTED || !version->recorded || version->trashed ||
        version->pinned)
        return CAIRN_OK;
    CAIRN_TRY(cairn_srv_version_aliased(tx, version->id.text, &aliased, err));
    CAIRN_TRY(cairn_srv_version_leased(tx, version->id.text, &leased, err));
    CAIRN_TRY(cairn_srv_version_needed(tx, version, &needed, err));
    if (!removal->allow_empty) CAIRN_TRY(is_newest(tx, version, &newest, err));
    removal->may = !needed && !newest && !aliased && !leased;
    return CAIRN_OK;
}

static enum cairn_code put_away(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct removal *removal = argument;
    CAIRN_TRY(judge(tx, removal, err));
    if (!removal->may) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_ticks_advance(tx, removal->server, err)); /* P8: the grace */
    return cairn_srv_version_trash(tx, &removal->version, removal->reason, err);
}

/* records.h#1: the mark first, then the row; the mark is made what the row says in the end. */
static enum cairn_code remove_one(struct cairn_srv *server, struct cairn_store_worker *worker,
                                  struct removal *removal, struct cairn_error *err) {
    struct cairn_error unused = {0};
    CAIRN_TRY(cairn_srv_catalog_read(server->catalog, judge, removal, err));
    if (!removal->may) return CAIRN_OK;
    enum cairn_code code = cairn_srv_mark_trashed(worker, &removal->version, true, err);
    if (!code) code = cairn_srv_catalog_write(server->catalog, put_away, removal, err);
    enum cairn_code settled =
        cairn_srv_mark_settle(server, worker, removal->id, code ? &unused : err);
    if (!code && removal->may) {
        cairn_log(INFO, "retention.trashed", "version=%s step=%" PRIu64 " bytes=%" PRIu64,
                  removal->id, removal->version.step, removal->version.bytes);
        cairn_srv_waiters_wake_version(server->waiters, &removal->version.id,
                                       &removal->version.name);
    }
    return code ? code : settled;
}

/* One of a plan; counted where it went. */
static enum cairn_code carry_out_one(struct cairn_srv *server, struct cairn_store_worker *worker,
                                     struct removal *removal, enum cairn_srv_scope scope,
                                     struct cairn_srv_retain_done *done, struct cairn_error *err) {
    removal->server = server;
    removal->reason = reasons[scope];
    CAIRN_ASSERT(removal->id[0]); /* a plan with assumed saves is carried out by nobody */
    enum cairn_code code = remove_one(server, worker, removal, err);
    bool went = !code && removal->may;
    if (went)
        cairn_metrics_add(
            server->metrics,
            (struct cairn_metric_at){CAIRN_SRV_METRIC_retention_deleted_total, scope, 0}, 1);
    done->removed += went;
    done->bytes += went ? removal->version.bytes : 0;
    cairn_srv_version_release(&removal->version);
    return code ? cairn_within(err, code, "%s", removal->id) : CAIRN_OK;
}

enum cairn_code cairn_srv_retain_carry_out(struct cairn_srv *server,
                                           struct cairn_store_worker *worker,
                                           const struct cairn_srv_retain *retain, uint64_t most,
                                           struct cairn_srv_retain_done *ret,
                                           struct cairn_error *err) {
    uint64_t tried = 0;
    CAIRN_ASSERT(retain->plan.count == retain->candidates.count); /* by its own index */
    for (size_t i = 0; i < retain->candidates.count && tried < most; i++) {
        if (!cairn_plan_removes(&retain->plan, i)) continue;
        struct removal removal = {.id = retain->candidates.ids[i].text,
                                  .allow_empty = retain->allow_empty};
        tried++;
        CAIRN_TRY(carry_out_one(server, worker, &removal, retain->scope, ret, err));
    }
    return CAIRN_OK;
}

/* ---- by itself ---- */

struct own {
    struct cairn_srv *server;
    const struct cairn_run_name *name;
    int64_t now_ms;
    struct cairn_srv_retained_base *base;
    struct cairn_srv_leaving leaving;
};

static enum cairn_code plan_own(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct own *own = argument;
    return cairn_srv_retained_plan(tx, own->server->retained, own->name, own->now_ms, &own->base,
                                   &own->leaving, err);
}

static enum cairn_code carry_out_own(struct own *own, struct cairn_store_worker *worker,
                                     struct cairn_srv_retain_done *done, struct cairn_error *err) {
    const struct cairn_srv_leaving *leaving = &own->leaving;
    for (size_t i = 0; i < leaving->count && i < CAIRN_SRV_RETAIN_ROUND; i++) {
        struct removal removal = {.id = leaving->ids[i].text};
        CAIRN_TRY(carry_out_one(own->server, worker, &removal, leaving->scope, done, err));
    }
    return CAIRN_OK;
}

void cairn_srv_retain_after_commit(struct cairn_srv *server, struct cairn_store_worker *worker,
                                   const struct cairn_run_name *name) {
    struct own own = {.server = server,
                      .name = name,
                      .now_ms = cairn_srv_wall_ms(server),
                      .base = cairn_srv_retained_take(server->retained, name)};
    struct cairn_error why = {0};
    struct cairn_srv_retain_done done = {0};
    enum cairn_code code = cairn_srv_catalog_read(server->catalog, plan_own, &own, &why);
    cairn_srv_retained_put(server->retained, own.base);
    if (!code) code = carry_out_own(&own, worker, &done, &why);
    if (done.removed)
        cairn_log(INFO, "retention.applied", "run=%s/%s removed=%" PRIu64 " bytes=%" PRIu64,
                  name->project, name->run, done.removed, done.bytes);
    if (code && code != CAIRN_CATALOG_BEHIND)
        cairn_log(WARN, "retention.delayed", "run=%s/%s cause=\"%s\"", name->project, name->run,
                  why.message);
    cairn_srv_leaving_release(&own.leaving);
}
