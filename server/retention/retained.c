/* SPDX-License-Identifier: Apache-2.0 */
/* The newest saves, some of them in flight, come after the base. Each change of a version is an
 * event: from the oldest changed one after the base on the rows are read again, mostly one or two.
 * A change of the base itself ends it. See retained.h. */
#include "server/retention/retained.h"

#include <stdlib.h>

#include "common/buf.h"
#include "common/hash/hash.h"
#include "common/lock.h"
#include "plan/retention.h"
#include "server/ledger/events.h"
#include "server/ledger/runs.h"

#define NEWEST_KEPT 1         /* K of Q28 */
#define IN_FLIGHT_AMONG 64    /* newest ones: an older one that is in flight is part of the base */
#define EVENTS_AT_ONCE 1000   /* more of them since the last look: a new base */
#define AFTER_MAX 4           /* times the saves that may follow: with those that are not shown */

struct cairn_srv_retained_base {
    struct cairn_srv_retained_base *next;
    struct cairn_run_name name;
    uint8_t policy[CAIRN_SHA256_BYTES]; /* of its JSON */
    uint64_t event;                     /* the last one of the catalog that was looked at */
    struct cairn_plan_item newest;      /* of the base, in the order of Q25 */
    struct cairn_plan_base plan;
    struct cairn_version_id *ids;      /* of plan.waiting */
    struct cairn_srv_candidates after; /* the versions after the base */
    struct cairn_plan_item changed;    /* from here on they are not what was read */
};
struct cairn_srv_retained {
    size_t from;
    uint32_t saves_max;
    struct cairn_lock lock; /* server_retained */
    struct {
        struct cairn_srv_retained_base *first; /* the one that was put last */
    } locked;
};

/* ---- bases of runs ---- */

enum cairn_code cairn_srv_retained_new(size_t from, uint32_t saves_max,
                                       struct cairn_srv_retained **ret, struct cairn_error *err) {
    struct cairn_srv_retained *retained = calloc(1, sizeof(*retained));
    if (!retained) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for retention");
    retained->from = from;
    retained->saves_max = saves_max;
    cairn_lock_init(&retained->lock, CAIRN_LOCK_server_retained);
    *ret = retained;
    return CAIRN_OK;
}

static void free_base(struct cairn_srv_retained_base *base) {
    if (!base) return;
    cairn_plan_base_release(&base->plan);
    cairn_srv_candidates_release(&base->after);
    free(base->ids);
    free(base);
}

void cairn_srv_retained_free(struct cairn_srv_retained *retained) {
    if (!retained) return;
    while (retained->locked.first) {
        struct cairn_srv_retained_base *base = retained->locked.first;
        retained->locked.first = base->next;
        free_base(base);
    }
    cairn_lock_release(&retained->lock);
    free(retained);
}

void cairn_srv_leaving_release(struct cairn_srv_leaving *leaving) {
    free(leaving->ids);
    *leaving = (struct cairn_srv_leaving){0};
}

static bool is_of(const struct cairn_srv_retained_base *base, const struct cairn_run_name *name) {
    return !strcmp(base->name.project, name->project) && !strcmp(base->name.run, name->run);
}

struct cairn_srv_retained_base *cairn_srv_retained_take(struct cairn_srv_retained *retained,
                                                        const struct cairn_run_name *name) {
    if (!retained) return NULL;
    cairn_lock_take(&retained->lock);
    struct cairn_srv_retained_base **at = &retained->locked.first, *found = NULL;
    while (*at && !is_of(*at, name)) at = &(*at)->next;
    found = *at;
    if (found) *at = found->next;
    cairn_lock_give(&retained->lock);
    return found;
}

void cairn_srv_retained_put(struct cairn_srv_retained *retained,
                            struct cairn_srv_retained_base *take_base) {
    struct cairn_srv_retained_base *surplus = NULL;
    if (!take_base) return;
    cairn_lock_take(&retained->lock);
    take_base->next = retained->locked.first;
    retained->locked.first = take_base;
    /* Another one of the same run was put meanwhile, or there are too many: the older one goes. */
    struct cairn_srv_retained_base **at = &take_base->next;
    for (size_t i = 1; *at && i < CAIRN_SRV_RETAINED_MAX && !is_of(*at, &take_base->name); i++)
        at = &(*at)->next;
    surplus = *at;
    if (surplus) *at = surplus->next;
    cairn_lock_give(&retained->lock);
    free_base(surplus);
}

/* ---- a look ---- */

struct look {
    struct cairn_srv_tx *tx;
    const struct cairn_srv_retained *retained;
    const struct cairn_run_name *name;
    int64_t run_id, now_ms;
    struct cairn_policy policy;
    uint8_t digest[CAIRN_SHA256_BYTES];
    uint64_t event; /* the last one of the catalog */
    struct cairn_srv_leaving *leaving;
    struct cairn_error *err;
};

static struct cairn_plan_query query_of(const struct look *look,
                                        const struct cairn_plan_item *items, size_t count) {
    return (struct cairn_plan_query){.policy = &look->policy,
                                     .items = items,
                                     .count = count,
                                     .newest = NEWEST_KEPT,
                                     .now_ms = look->now_ms};
}

static enum cairn_code add_leaving(const struct look *look, const struct cairn_version_id *id) {
    struct cairn_srv_leaving *leaving = look->leaving;
    CAIRN_TRY(CAIRN_ARRAY_ROOM(leaving->ids, leaving->count, leaving->capacity,
                               CAIRN_PLAN_ITEMS_MAX, "versions that a policy removes", look->err));
    leaving->ids[leaving->count++] = *id;
    return CAIRN_OK;
}

/* Without what is asked again before a removal (retain.h#2). */
static enum cairn_code add_after(struct cairn_srv_retained_base *base,
                                 const struct cairn_srv_candidates *rows, size_t from,
                                 struct cairn_error *err) {
    const unsigned asked = CAIRN_PLAN_ALIASED | CAIRN_PLAN_LEASED | CAIRN_PLAN_RESUMED;
    for (size_t i = from; i < rows->count; i++) {
        struct cairn_plan_item item = rows->items[i];
        item.marks &= ~asked;
        CAIRN_TRY(cairn_srv_candidates_add(&base->after, &rows->ids[i], &item, err));
    }
    return CAIRN_OK;
}

/* *ret_made: as cairn_plan_base_next. */
static enum cairn_code plan_next(const struct look *look, struct cairn_srv_retained_base *base,
                                 bool *ret_made) {
    const struct cairn_srv_candidates *after = &base->after;
    *ret_made = after->count <= AFTER_MAX * (size_t)base->plan.saves_max;
    if (!*ret_made) return CAIRN_OK;
    CAIRN_AUTO_HEAP bool *goes = calloc(after->count + 1, sizeof(*goes));
    if (!goes) return cairn_fail(look->err, CAIRN_NO_MEMORY, "no memory for a retention plan");
    struct cairn_plan_query query = query_of(look, after->items, after->count);
    CAIRN_TRY(cairn_plan_base_next(&base->plan, &query, goes, ret_made, look->err));
    if (!*ret_made) return CAIRN_OK;
    for (size_t i = 0; i < base->plan.waiting_count; i++)
        if (base->plan.waiting[i].goes) CAIRN_TRY(add_leaving(look, &base->ids[i]));
    for (size_t i = 0; i < after->count; i++)
        if (goes[i]) CAIRN_TRY(add_leaving(look, &after->ids[i]));
    look->leaving->by_base = true;
    return CAIRN_OK;
}

/* ---- a plan over everything, and a base of it ---- */

/* How many of the oldest are the base: all before those that are in flight. */
static size_t base_count(const struct cairn_srv_candidates *candidates) {
    size_t ret = candidates->count;
    for (size_t i = candidates->count; i-- > 0 && i + IN_FLIGHT_AMONG > candidates->count;)
        if (candidates->items[i].marks & CAIRN_PLAN_IN_FLIGHT) ret = i;
    return ret;
}

static enum cairn_code make_base(const struct look *look,
                                 const struct cairn_srv_candidates *candidates, size_t count,
                                 struct cairn_srv_retained_base **ret) {
    struct cairn_plan_query query = query_of(look, candidates->items, count);
    CAIRN_AUTO(plan_retention) plan = {0};
    CAIRN_TRY(cairn_plan_retention(&query, &plan, look->err));
    CAIRN_AUTO(plan_base) made_base = {0};
    bool made = false;
    CAIRN_TRY(cairn_plan_base_make(&query, &plan, look->retained->saves_max, &made_base, &made,
                                   look->err));
    if (!made) return CAIRN_OK;
    struct cairn_srv_retained_base *base = calloc(1, sizeof(*base));
    if (base) base->ids = calloc(made_base.waiting_count + 1, sizeof(*base->ids));
    if (!base || !base->ids) {
        free_base(base);
        return cairn_fail(look->err, CAIRN_NO_MEMORY, "no memory for a retention plan");
    }
    base->name = *look->name;
    memcpy(base->policy, look->digest, sizeof(base->policy));
    base->event = look->event;
    base->newest = candidates->items[count - 1];
    for (size_t i = 0; i < made_base.waiting_count; i++)
        base->ids[i] = candidates->ids[made_base.waiting[i].item];
    base->plan = made_base;
    made_base = (struct cairn_plan_base){0};
    *ret = base;
    return CAIRN_OK;
}

static enum cairn_code plan_whole(const struct look *look,
                                  const struct cairn_srv_candidates *candidates) {
    struct cairn_plan_query query = query_of(look, candidates->items, candidates->count);
    CAIRN_AUTO(plan_retention) plan = {0};
    CAIRN_TRY(cairn_plan_retention(&query, &plan, look->err));
    for (size_t i = 0; i < candidates->count; i++)
        if (cairn_plan_removes(&plan, i)) CAIRN_TRY(add_leaving(look, &candidates->ids[i]));
    return CAIRN_OK;
}

static enum cairn_code plan_anew(const struct look *look, struct cairn_srv_retained_base **ret) {
    CAIRN_AUTO(srv_candidates) candidates = {0};
    bool made = false;
    CAIRN_TRY(cairn_srv_candidates_load(look->tx, look->run_id, &look->policy, NULL, &candidates,
                                        look->err));
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

/* ---- is a base still what it was? ---- */

/* Is `item` of an older line or step? */
static bool is_before(const struct cairn_plan_item *item, uint64_t line, uint64_t step) {
    return line != cairn_plan_line(item) ? line > cairn_plan_line(item) : step > item->step;
}

/* Only what the base handed out went. */
static bool take_trashed(struct cairn_srv_retained_base *base, const char *version) {
    for (size_t i = 0; i < base->plan.waiting_count; i++) {
        if (strcmp(base->ids[i].text, version) != 0) continue;
        base->plan.waiting[i].over = true;
        return base->plan.waiting[i].handed;
    }
    return false;
}

/* retained.h#2. Of a version whose row has gone the line is 0: it is judged as one of the base. */
static bool base_stands(struct cairn_srv_retained_base *base,
                        const struct cairn_srv_event_short *event) {
    const char *version = event->version;
    uint64_t line = event->line, step = event->step;
    if (version[0] && is_before(&base->newest, line, step)) {
        bool first = !base->changed.line || !is_before(&base->changed, line, step);
        if (first) base->changed = (struct cairn_plan_item){.line = line, .step = step};
        return true;
    }
    switch (event->event) {
    case CAIRN_SRV_EVENT_CHECKPOINT_TRASHED:
        return take_trashed(base, version);
    case CAIRN_SRV_EVENT_CHECKPOINT_DELETING: /* the row went with trashed */
    case CAIRN_SRV_EVENT_CHECKPOINT_GONE:
    case CAIRN_SRV_EVENT_CHECKPOINT_NOT_FREED:
    case CAIRN_SRV_EVENT_CHECKPOINT_FREED:
    case CAIRN_SRV_EVENT_CHECKPOINT_STALE:
    case CAIRN_SRV_EVENT_COPY_MADE:
    case CAIRN_SRV_EVENT_COPY_REMOVING:
    case CAIRN_SRV_EVENT_COPY_REMOVED:
    case CAIRN_SRV_EVENT_COPY_MENDED:
    case CAIRN_SRV_EVENT_COPY_DAMAGED:
    case CAIRN_SRV_EVENT_COPY_SOUND:
    case CAIRN_SRV_EVENT_ALIAS_SET: /* retention.h#11 */
    case CAIRN_SRV_EVENT_ALIAS_REMOVED:
    case CAIRN_SRV_EVENT_RUN_ANNOTATED:
    case CAIRN_SRV_EVENT_OPERATION_BEGUN:
    case CAIRN_SRV_EVENT_OPERATION_CANCELLING:
    case CAIRN_SRV_EVENT_OPERATION_ENDED:
        return true;
    default:
        return false;
    }
}

struct seen {
    struct cairn_srv_retained_base *base;
    size_t count;
    bool stands;
};

static void see_event(const struct cairn_srv_event_short *event, void *owner) {
    struct seen *seen = owner;
    seen->count++;
    seen->stands = seen->stands && seen->count < EVENTS_AT_ONCE && base_stands(seen->base, event);
}

static enum cairn_code look_at_events(const struct look *look, uint64_t first,
                                      struct cairn_srv_retained_base *base, bool *ret) {
    struct seen seen = {.base = base, .stands = true};
    *ret = base->event <= look->event && first <= base->event + 1 &&
           !memcmp(base->policy, look->digest, sizeof(base->policy));
    if (!*ret) return CAIRN_OK;
    if (base->event < look->event)
        CAIRN_TRY(cairn_srv_events_since(look->tx, look->name, base->event, EVENTS_AT_ONCE,
                                         see_event, &seen, look->err));
    *ret = seen.stands;
    base->event = look->event;
    return CAIRN_OK;
}

/* Attempts and n count from 1, so all saves of the changed step come after it. */
static enum cairn_code read_changed(const struct look *look, struct cairn_srv_retained_base *base) {
    struct cairn_srv_candidates *after = &base->after;
    const struct cairn_plan_item *changed = &base->changed;
    CAIRN_AUTO(srv_candidates) rows = {0};
    if (!changed->line) return CAIRN_OK;
    while (after->count &&
           !is_before(&after->items[after->count - 1], changed->line, changed->step))
        after->count--;
    CAIRN_TRY(cairn_srv_candidates_load(look->tx, look->run_id, &look->policy, changed, &rows,
                                        look->err));
    CAIRN_TRY(add_after(base, &rows, 0, look->err));
    base->changed = (struct cairn_plan_item){0};
    return CAIRN_OK;
}

static enum cairn_code plan_by_base(const struct look *look, uint64_t first_event,
                                    struct cairn_srv_retained_base *base, bool *ret_made) {
    CAIRN_TRY(look_at_events(look, first_event, base, ret_made));
    if (!*ret_made) return CAIRN_OK;
    CAIRN_TRY(read_changed(look, base));
    return plan_next(look, base, ret_made);
}

enum cairn_code cairn_srv_retained_plan(struct cairn_srv_tx *tx,
                                        const struct cairn_srv_retained *retained,
                                        const struct cairn_run_name *name, int64_t now_ms,
                                        struct cairn_srv_retained_base **base,
                                        struct cairn_srv_leaving *ret, struct cairn_error *err) {
    struct look look = {.tx = tx,
                        .retained = retained,
                        .name = name,
                        .now_ms = now_ms,
                        .leaving = ret,
                        .err = err};
    CAIRN_AUTO(srv_run) run = {0};
    uint64_t first_event = 0;
    bool made = false;
    cairn_srv_leaving_release(ret);
    CAIRN_TRY(cairn_srv_policy_get(tx, name, &look.policy, &ret->scope, err));
    if (cairn_policy_empty(&look.policy)) return CAIRN_OK; /* retention.h#3, without rows */
    CAIRN_TRY(cairn_srv_run_get(tx, name, &run, err));
    look.run_id = run.id;
    CAIRN_TRY(cairn_srv_policy_digest(&look.policy, look.digest, err));
    CAIRN_TRY(cairn_srv_events_bounds(tx, &first_event, &look.event, err));
    if (*base) {
        enum cairn_code code = plan_by_base(&look, first_event, *base, &made);
        if (!code && made) return CAIRN_OK;
        free_base(*base);
        *base = NULL;
        CAIRN_TRY(code);
    }
    return plan_anew(&look, base);
}
