/* SPDX-License-Identifier: Apache-2.0 */
/* Plans a run's retention policy, applies it, and keeps bases that make the plan after a commit
 * cheap: without one, each commit took 115 ms of CPU at 54,750 versions. Promises in retain.h. */
#include "server/retention/retain.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/log.h"
#include "server/guard/records.h"
#include "server/http/waiters.h"
#include "server/ledger/events.h"
#include "server/metrics.h"

#define NEWEST_KEPT 1 /* K of Q28 */
#define AFTER_MAX 4   /* times saves_max: includes uncommitted versions */

void srv_retain_release(struct srv_retain *retain) {
    srv_candidates_release(&retain->candidates);
    cairn_plan_retention_release(&retain->plan);
}

/* retain.h#1; versions in the order of their rows, which is the order of Q25. */
static enum cairn_code make_tag(struct srv_retain *retain, struct cairn_error *err) {
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
    cairn_hex_encode(digest, (SRV_PLAN_TAG_BYTES - 1) / 2, retain->tag);
    return CAIRN_OK;
}

enum cairn_code srv_retain_plan(struct srv_tx *tx, const struct srv_retain_query *query,
                                struct srv_retain *ret, struct cairn_error *err) {
    srv_retain_release(ret);
    ret->allow_empty = query->allow_empty;
    ret->scope = SRV_SCOPE_NONE;
    SRV_GET(run, run, srv_run_get(tx, query->name, &run, err));
    if (query->policy)
        ret->policy = *query->policy;
    else
        CAIRN_TRY(srv_policy_get(tx, query->name, &ret->policy, &ret->scope, err));
    CAIRN_TRY(srv_candidates_load(tx, run.id, &ret->policy, NULL, &ret->candidates, err));
    for (size_t i = 0; i < query->assumed_count; i++) {
        const struct cairn_version_id none = {""};
        struct cairn_plan_item item = query->assumed[i];
        item.attempt = run.attempt;
        CAIRN_TRY(srv_candidates_add(&ret->candidates, &none, &item, err));
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

/* ---- applying a plan ---- */

static const char *const reasons[] = {
    [SRV_SCOPE_RUN] = "by the retention policy of the run",
    [SRV_SCOPE_PROJECT] = "by the retention policy of the project",
    [SRV_SCOPE_SERVER] = "by the retention policy of the server",
    [SRV_SCOPE_NONE] = "by a retention policy that was given by hand",
};

struct removal {
    struct srv *server;
    const char *id, *reason;
    bool allow_empty, away, may;
    struct srv_version version;
};

/* The version's position in the order of Q25. */
static struct cairn_plan_item place_of(const struct srv_version *version) {
    return (struct cairn_plan_item){
        .line = version->line, .step = version->step, .attempt = version->attempt, .n = version->n};
}

static enum cairn_code is_newest(struct srv_tx *tx, const struct srv_version *version, bool *ret,
                                 struct cairn_error *err) {
    struct cairn_version_id id;
    uint64_t step = 0;
    bool found = false;
    CAIRN_TRY(srv_latest(tx, version->run_id, &found, &id, &step, err));
    *ret = true;
    if (!found) return CAIRN_OK;
    SRV_GET(version, latest, srv_version_get(tx, id.text, &latest, err));
    const struct cairn_plan_item place = place_of(version), newest = place_of(&latest);
    *ret = cairn_plan_order(&place, &newest) >= 0;
    return CAIRN_OK;
}

/* retain.h#2. */
static enum cairn_code judge_removal(struct srv_tx *tx, struct removal *removal,
                                     struct cairn_error *err) {
    struct srv_version *version = &removal->version;
    bool needed = false, newest = false, aliased = false, leased = false;
    removal->may = false;
    srv_version_release(version);
    CAIRN_TRY(srv_version_get(tx, removal->id, version, err));
    CAIRN_TRY(srv_tx_run_thawed(tx, version->run_id, err));
    if (version->state != CAIRN_STATE_COMMITTED || !version->recorded || version->trashed ||
        version->pinned)
        return CAIRN_OK;
    CAIRN_TRY(srv_version_aliased(tx, version->id.text, &aliased, err));
    CAIRN_TRY(srv_version_leased(tx, version->id.text, &leased, err));
    CAIRN_TRY(srv_version_needed(tx, version, &needed, err));
    if (!removal->allow_empty) CAIRN_TRY(is_newest(tx, version, &newest, err));
    removal->may = !needed && !newest && !aliased && !leased;
    return CAIRN_OK;
}

SRV_CHANGE(put_away, struct removal *removal) {
    CAIRN_TRY(judge_removal(tx, removal, err));
    if (!removal->may) return CAIRN_OK;
    CAIRN_TRY(srv_ticks_advance(tx, removal->server, err)); /* P8: the grace period */
    return srv_version_trash(tx, &removal->version, removal->reason, err);
}

/* records.h#1: writes the mark, then the row, then corrects the mark to the row's final state. */
static enum cairn_code remove_one(struct srv *server, struct cairn_store_worker *worker,
                                  struct removal *removal, struct cairn_error *err) {
    struct cairn_error unused = {0};
    SRV_LOOK(look, server->catalog, err);
    CAIRN_TRY(judge_removal(look.tx, removal, err));
    srv_look_release(&look);
    if (!removal->may) return CAIRN_OK;
    enum cairn_code code = srv_mark_trashed(worker, &removal->version, true, err);
    if (!code) code = srv_catalog_write(server->catalog, put_away, removal, err);
    enum cairn_code settled = srv_mark_settle(server, worker, removal->id, code ? &unused : err);
    if (!code && removal->may) {
        cairn_log(INFO, "retention.trashed", "version=%s step=%" PRIu64 " bytes=%" PRIu64,
                  removal->id, removal->version.step, removal->version.bytes);
        srv_waiters_wake_version(server->waiters, &removal->version.id, &removal->version.name);
    }
    return code ? code : settled;
}

static enum cairn_code carry_out_one(struct srv *server, struct cairn_store_worker *worker,
                                     struct removal *removal, enum srv_scope scope,
                                     struct srv_retain_done *done, struct cairn_error *err) {
    removal->server = server;
    removal->reason = reasons[scope];
    CAIRN_ASSERT(removal->id[0]); /* plans with assumed saves are not applied */
    enum cairn_code code = remove_one(server, worker, removal, err);
    bool went = !code && removal->may;
    if (went)
        cairn_metrics_add(server->metrics,
                          (struct cairn_metric_at){SRV_METRIC_retention_deleted_total, scope, 0},
                          1);
    done->removed += went;
    done->bytes += went ? removal->version.bytes : 0;
    srv_version_release(&removal->version);
    return code ? cairn_within(err, code, "%s", removal->id) : CAIRN_OK;
}

enum cairn_code srv_retain_carry_out(struct srv *server, struct cairn_store_worker *worker,
                                     const struct srv_retain *retain, uint64_t most,
                                     struct srv_retain_done *ret, struct cairn_error *err) {
    uint64_t tried = 0;
    CAIRN_ASSERT(retain->plan.count == retain->candidates.count);
    for (size_t i = 0; i < retain->candidates.count && tried < most; i++) {
        if (!cairn_plan_removes(&retain->plan, i)) continue;
        struct removal removal = {.id = retain->candidates.ids[i].text,
                                  .allow_empty = retain->allow_empty};
        tried++;
        CAIRN_TRY(carry_out_one(server, worker, &removal, retain->scope, ret, err));
    }
    return CAIRN_OK;
}

/* ---- bases of runs ---- */

/* A base is the plan over a run's older versions. Later rows are read again from the oldest changed
 * one on, mostly one or two. A change within the base discards it. */
struct srv_retained_base {
    struct srv_retained_base *next;
    struct srv_known known; /* newest: the base's last version in the order of Q25 */
    struct cairn_plan_base plan;
    struct cairn_version_id *ids;
    struct srv_candidates after;
    struct cairn_plan_item changed; /* versions from here on are out of date */
};
struct srv_retained {
    size_t from;
    uint32_t saves_max;
    struct cairn_lock lock;
    struct {
        struct srv_retained_base *first;
        struct srv_retained_turn *turns; /* runs that are being planned */
    } locked;
};

enum cairn_code srv_retained_new(size_t from, uint32_t saves_max, struct srv_retained **ret,
                                 struct cairn_error *err) {
    struct srv_retained *retained = calloc(1, sizeof(*retained));
    if (!retained) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for retention");
    retained->from = from;
    retained->saves_max = saves_max;
    cairn_lock_init(&retained->lock, CAIRN_LOCK_server_retained);
    *ret = retained;
    return CAIRN_OK;
}

static void free_base(struct srv_retained_base *base) {
    if (!base) return;
    cairn_plan_base_release(&base->plan);
    srv_candidates_release(&base->after);
    free(base->ids);
    free(base);
}

void srv_retained_free(struct srv_retained *retained) {
    if (!retained) return;
    while (retained->locked.first) {
        struct srv_retained_base *base = retained->locked.first;
        retained->locked.first = base->next;
        free_base(base);
    }
    cairn_lock_release(&retained->lock);
    free(retained);
}

void srv_leaving_release(struct srv_leaving *leaving) {
    free(leaving->ids);
    *leaving = (struct srv_leaving){0};
}

bool srv_retained_take(struct srv_retained *retained, const struct cairn_run_name *name,
                       struct srv_retained_turn *ret) {
    *ret = (struct srv_retained_turn){.name = name};
    if (!retained) return true;
    CAIRN_HOLD(&retained->lock);
    struct srv_retained_turn *turn = retained->locked.turns;
    while (turn && !cairn_run_name_same(turn->name, name)) turn = turn->next;
    if (turn) turn->again = true;
    if (turn) return false;
    struct srv_retained_base **at = &retained->locked.first;
    while (*at && !cairn_run_name_same(&(*at)->known.name, name)) at = &(*at)->next;
    ret->base = *at;
    if (ret->base) *at = ret->base->next;
    ret->next = retained->locked.turns;
    retained->locked.turns = ret;
    return true;
}

bool srv_retained_put(struct srv_retained *retained, struct srv_retained_turn *turn) {
    struct srv_retained_base *surplus = NULL;
    if (!retained) return false;
    cairn_lock_take(&retained->lock);
    struct srv_retained_turn **of = &retained->locked.turns;
    while (*of && *of != turn) of = &(*of)->next;
    CAIRN_ASSERT(*of); /* taken, and not yet put */
    *of = turn->next;
    if (turn->base) {
        turn->base->next = retained->locked.first;
        retained->locked.first = turn->base;
        /* Frees the oldest base beyond the limit. */
        struct srv_retained_base **at = &turn->base->next;
        for (size_t i = 1; *at && i < SRV_RETAINED_MAX; i++) at = &(*at)->next;
        surplus = *at;
        if (surplus) *at = surplus->next;
    }
    bool again = turn->again;
    cairn_lock_give(&retained->lock);
    free_base(surplus);
    return again;
}

/* ---- planning in a transaction ---- */

struct look {
    struct srv_tx *tx;
    const struct srv_retained *retained;
    const struct cairn_run_name *name;
    int64_t run_id, now_ms;
    struct cairn_policy policy;
    uint8_t digest[CAIRN_SHA256_BYTES];
    uint64_t event;
    struct srv_leaving *leaving;
    struct cairn_error *err;
};

static struct cairn_plan_query plan_query_of(const struct look *look,
                                             const struct cairn_plan_item *items, size_t count) {
    return (struct cairn_plan_query){.policy = &look->policy,
                                     .items = items,
                                     .count = count,
                                     .newest = NEWEST_KEPT,
                                     .now_ms = look->now_ms};
}

static enum cairn_code add_leaving(const struct look *look, const struct cairn_version_id *id) {
    struct srv_leaving *leaving = look->leaving;
    CAIRN_TRY(CAIRN_ARRAY_ROOM(leaving->ids, leaving->count, leaving->capacity,
                               CAIRN_PLAN_ITEMS_MAX, "versions that a policy removes", look->err));
    leaving->ids[leaving->count++] = *id;
    return CAIRN_OK;
}

/* Drops the marks that are checked again before a removal (retain.h#2). */
static enum cairn_code add_after(struct srv_retained_base *base, const struct srv_candidates *rows,
                                 size_t from, struct cairn_error *err) {
    const unsigned asked = CAIRN_PLAN_ALIASED | CAIRN_PLAN_LEASED | CAIRN_PLAN_RESUMED;
    for (size_t i = from; i < rows->count; i++) {
        struct cairn_plan_item item = rows->items[i];
        item.marks &= ~asked;
        CAIRN_TRY(srv_candidates_add(&base->after, &rows->ids[i], &item, err));
    }
    return CAIRN_OK;
}

/* *ret_made: as cairn_plan_base_next. */
static enum cairn_code plan_next(const struct look *look, struct srv_retained_base *base,
                                 bool *ret_made) {
    const struct srv_candidates *after = &base->after;
    *ret_made = after->count <= AFTER_MAX * (size_t)base->plan.saves_max;
    if (!*ret_made) return CAIRN_OK;
    CAIRN_AUTO_HEAP bool *goes = calloc(after->count + 1, sizeof(*goes));
    if (!goes) return cairn_fail(look->err, CAIRN_NO_MEMORY, "no memory for a retention plan");
    struct cairn_plan_query query = plan_query_of(look, after->items, after->count);
    CAIRN_TRY(cairn_plan_base_next(&base->plan, &query, goes, ret_made, look->err));
    if (!*ret_made) return CAIRN_OK;
    for (size_t i = 0; i < base->plan.waiting_count; i++)
        if (base->plan.waiting[i].goes) CAIRN_TRY(add_leaving(look, &base->ids[i]));
    for (size_t i = 0; i < after->count; i++)
        if (goes[i]) CAIRN_TRY(add_leaving(look, &after->ids[i]));
    return CAIRN_OK;
}

/* ---- a full plan, and its base ---- */

/* The number of oldest versions in the base: all before the first one in flight. */
static size_t base_count(const struct srv_candidates *candidates) {
    size_t ret = candidates->count;
    for (size_t i = candidates->count; i-- > 0 && i + SRV_IN_FLIGHT_AMONG > candidates->count;)
        if (candidates->items[i].marks & CAIRN_PLAN_IN_FLIGHT) ret = i;
    return ret;
}

static enum cairn_code make_base(const struct look *look, const struct srv_candidates *candidates,
                                 size_t count, struct srv_retained_base **ret) {
    struct cairn_plan_query query = plan_query_of(look, candidates->items, count);
    CAIRN_AUTO(plan_retention) plan = {0};
    CAIRN_TRY(cairn_plan_retention(&query, &plan, look->err));
    CAIRN_AUTO(plan_base) made_base = {0};
    bool made = false;
    CAIRN_TRY(cairn_plan_base_make(&query, &plan, look->retained->saves_max, &made_base, &made,
                                   look->err));
    if (!made) return CAIRN_OK;
    struct srv_retained_base *base = calloc(1, sizeof(*base));
    if (base) base->ids = calloc(made_base.waiting_count + 1, sizeof(*base->ids));
    if (!base || !base->ids) {
        free_base(base);
        return cairn_fail(look->err, CAIRN_NO_MEMORY, "no memory for a retention plan");
    }
    base->known.name = *look->name;
    memcpy(base->known.policy, look->digest, sizeof(base->known.policy));
    base->known.event = look->event;
    base->known.newest = candidates->items[count - 1];
    for (size_t i = 0; i < made_base.waiting_count; i++)
        base->ids[i] = candidates->ids[made_base.waiting[i].item];
    base->plan = made_base;
    made_base = (struct cairn_plan_base){0};
    *ret = base;
    return CAIRN_OK;
}

static enum cairn_code plan_whole(const struct look *look,
                                  const struct srv_candidates *candidates) {
    struct cairn_plan_query query = plan_query_of(look, candidates->items, candidates->count);
    CAIRN_AUTO(plan_retention) plan = {0};
    CAIRN_TRY(cairn_plan_retention(&query, &plan, look->err));
    for (size_t i = 0; i < candidates->count; i++)
        if (cairn_plan_removes(&plan, i)) CAIRN_TRY(add_leaving(look, &candidates->ids[i]));
    return CAIRN_OK;
}

static enum cairn_code plan_anew(const struct look *look, struct srv_retained_base **ret) {
    SRV_AUTO(candidates) candidates = {0};
    bool made = false;
    CAIRN_TRY(
        srv_candidates_load(look->tx, look->run_id, &look->policy, NULL, &candidates, look->err));
    size_t count = base_count(&candidates);
    if (look->retained && count && candidates.count >= look->retained->from)
        CAIRN_TRY(make_base(look, &candidates, count, ret));
    if (*ret) CAIRN_TRY(add_after(*ret, &candidates, count, look->err));
    if (*ret) CAIRN_TRY(plan_next(look, *ret, &made));
    if (made) return CAIRN_OK;
    free_base(*ret);
    *ret = NULL;
    return plan_whole(look, &candidates);
}

/* ---- is a base still valid? ---- */

/* Marks a trashed version as over; true if the base had returned it for removal. */
static bool take_trashed(struct srv_retained_base *base, const char *version) {
    for (size_t i = 0; i < base->plan.waiting_count; i++) {
        if (strcmp(base->ids[i].text, version) != 0) continue;
        base->plan.waiting[i].over = true;
        return base->plan.waiting[i].handed;
    }
    return false;
}

/* retain.h#5: applies an event to a base. */
static bool judge_event(void *owner, const struct srv_event_short *event, bool newer) {
    struct srv_retained_base *base = owner;
    uint64_t line = event->line, step = event->step;
    if (newer) {
        bool first = !base->changed.line || !srv_is_before(&base->changed, line, step);
        if (first) base->changed = (struct cairn_plan_item){.line = line, .step = step};
        return true;
    }
    return event->event != SRV_EVENT_CHECKPOINT_TRASHED || take_trashed(base, event->version);
}

/* Attempts and n count from 1, so all saves of the changed step come after it. */
static enum cairn_code read_changed(const struct look *look, struct srv_retained_base *base) {
    struct srv_candidates *after = &base->after;
    const struct cairn_plan_item *changed = &base->changed;
    SRV_AUTO(candidates) rows = {0};
    if (!changed->line) return CAIRN_OK;
    while (after->count &&
           !srv_is_before(&after->items[after->count - 1], changed->line, changed->step))
        after->count--;
    CAIRN_TRY(
        srv_candidates_load(look->tx, look->run_id, &look->policy, changed, &rows, look->err));
    CAIRN_TRY(add_after(base, &rows, 0, look->err));
    base->changed = (struct cairn_plan_item){0};
    return CAIRN_OK;
}

static enum cairn_code plan_by_base(const struct look *look, uint64_t first_event,
                                    struct srv_retained_base *base, bool *ret_made) {
    struct srv_since since = {.then = &base->known,
                              .subject = SRV_OF_PLAN,
                              .policy = look->digest,
                              .first = first_event,
                              .last = look->event,
                              .judge = judge_event,
                              .owner = base};
    CAIRN_TRY(srv_since_stands(look->tx, &since, ret_made, look->err));
    if (!*ret_made) return CAIRN_OK;
    base->known.event = look->event;
    CAIRN_TRY(read_changed(look, base));
    return plan_next(look, base, ret_made);
}

enum cairn_code srv_retained_plan(struct srv_tx *tx, const struct srv_retained *retained,
                                  const struct cairn_run_name *name, int64_t now_ms,
                                  struct srv_retained_base **base, struct srv_leaving *ret,
                                  struct cairn_error *err) {
    struct look look = {
        .tx = tx, .retained = retained, .name = name, .now_ms = now_ms, .leaving = ret, .err = err};
    uint64_t first_event = 0;
    bool made = false;
    srv_leaving_release(ret);
    CAIRN_TRY(srv_policy_get(tx, name, &look.policy, &ret->scope, err));
    if (cairn_policy_empty(&look.policy)) return CAIRN_OK; /* retention.h#3, without reading rows */
    SRV_GET(run, run, srv_run_get(tx, name, &run, err));
    look.run_id = run.id;
    CAIRN_TRY(srv_policy_digest(&look.policy, look.digest, err));
    CAIRN_TRY(srv_events_bounds(tx, &first_event, &look.event, err));
    if (*base) {
        enum cairn_code code = plan_by_base(&look, first_event, *base, &made);
        if (!code && made) return CAIRN_OK;
        free_base(*base);
        *base = NULL;
        CAIRN_TRY(code);
    }
    return plan_anew(&look, base);
}

/* ---- after a commit ---- */

/* True: another commit came meanwhile. */
static bool retain_once(struct srv *server, struct cairn_store_worker *worker,
                        struct srv_retained_turn *turn) {
    const struct cairn_run_name *name = turn->name;
    int64_t now_ms = srv_wall_ms(server);
    SRV_AUTO(leaving) leaving = {0};
    SRV_AUTO(look) look = {0};
    struct cairn_error why = {0};
    struct srv_retain_done done = {0};
    enum cairn_code code = srv_look_begin(server->catalog, &look, &why);
    if (!code)
        code =
            srv_retained_plan(look.tx, server->retained, name, now_ms, &turn->base, &leaving, &why);
    srv_look_release(&look);
    bool again = srv_retained_put(server->retained, turn);
    for (size_t i = 0; !code && i < leaving.count && i < SRV_RETAIN_ROUND; i++) {
        struct removal removal = {.id = leaving.ids[i].text};
        code = carry_out_one(server, worker, &removal, leaving.scope, &done, &why);
    }
    if (done.removed)
        cairn_log(INFO, "retention.applied", "run=%s/%s removed=%" PRIu64 " bytes=%" PRIu64,
                  name->project, name->run, done.removed, done.bytes);
    if (code && code != CAIRN_CATALOG_BEHIND)
        cairn_log(WARN, "retention.delayed", "run=%s/%s cause=\"%s\"", name->project, name->run,
                  why.message);
    return again;
}

void srv_retain_after_commit(struct srv *server, struct cairn_store_worker *worker,
                             const struct cairn_run_name *name) {
    struct srv_retained_turn turn;
    bool again = true;
    while (again && srv_retained_take(server->retained, name, &turn))
        again = retain_once(server, worker, &turn);
}
