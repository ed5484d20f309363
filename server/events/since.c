/* SPDX-License-Identifier: Apache-2.0 */
/* What each kind of event leaves unchanged, and the check of a run's events; see since.h. */
#include "server/events/since.h"

#define EVENTS_AT_ONCE 1000

/* For known versions: subjects that an event cannot change. Other events change everything. */
static const unsigned leaves[CAIRN_SRV_EVENT_COUNT] = {
#define BOTH (CAIRN_SRV_OF_PLAN | CAIRN_SRV_OF_COPIES)
    [CAIRN_SRV_EVENT_CHECKPOINT_TRASHED] = BOTH,  /* a plan judges which version */
    [CAIRN_SRV_EVENT_CHECKPOINT_DELETING] = BOTH, /* trashed came first */
    [CAIRN_SRV_EVENT_CHECKPOINT_GONE] = BOTH,
    [CAIRN_SRV_EVENT_CHECKPOINT_NOT_FREED] = BOTH,
    [CAIRN_SRV_EVENT_CHECKPOINT_FREED] = BOTH,
    [CAIRN_SRV_EVENT_CHECKPOINT_STALE] = BOTH,
    [CAIRN_SRV_EVENT_CHECKPOINT_ANNOTATED] = CAIRN_SRV_OF_COPIES,
    [CAIRN_SRV_EVENT_COPY_MADE] = CAIRN_SRV_OF_PLAN,
    [CAIRN_SRV_EVENT_COPY_REMOVING] = CAIRN_SRV_OF_PLAN,
    [CAIRN_SRV_EVENT_COPY_REMOVED] = CAIRN_SRV_OF_PLAN,
    [CAIRN_SRV_EVENT_COPY_MENDED] = CAIRN_SRV_OF_PLAN,
    [CAIRN_SRV_EVENT_COPY_DAMAGED] = CAIRN_SRV_OF_PLAN,
    [CAIRN_SRV_EVENT_COPY_SOUND] = CAIRN_SRV_OF_PLAN,
    [CAIRN_SRV_EVENT_ALIAS_SET] = BOTH, /* retention.h#11 */
    [CAIRN_SRV_EVENT_ALIAS_REMOVED] = BOTH,
    [CAIRN_SRV_EVENT_RUN_ANNOTATED] = BOTH,
    [CAIRN_SRV_EVENT_OPERATION_BEGUN] = BOTH,
    [CAIRN_SRV_EVENT_OPERATION_CANCELLING] = BOTH,
    [CAIRN_SRV_EVENT_OPERATION_ENDED] = BOTH,
#undef BOTH
};

bool cairn_srv_known_is_of(const struct cairn_srv_known *known, const struct cairn_run_name *name) {
    return !strcmp(known->name.project, name->project) && !strcmp(known->name.run, name->run);
}

bool cairn_srv_is_before(const struct cairn_plan_item *item, uint64_t line, uint64_t step) {
    return line != cairn_plan_line(item) ? line > cairn_plan_line(item) : step > item->step;
}

struct seen {
    const struct cairn_srv_since *since;
    size_t count;
    bool stands;
};

/* An event of a version without a row has line 0 and is judged as of a known version. */
static void see_event(const struct cairn_srv_event_short *event, void *owner) {
    struct seen *seen = owner;
    const struct cairn_srv_since *since = seen->since;
    bool newer =
        event->version[0] && cairn_srv_is_before(&since->then->newest, event->line, event->step);
    if (!seen->stands) return;
    seen->stands = ++seen->count < EVENTS_AT_ONCE &&
                   (newer || (event->event < CAIRN_SRV_EVENT_COUNT &&
                              leaves[event->event] & since->subject)) &&
                   (!since->judge || since->judge(since->owner, event, newer));
}

enum cairn_code cairn_srv_since_stands(struct cairn_srv_tx *tx, const struct cairn_srv_since *since,
                                       bool *ret, struct cairn_error *err) {
    const struct cairn_srv_known *then = since->then;
    struct seen seen = {.since = since};
    seen.stands = then->event <= since->last && since->first <= then->event + 1 &&
                  !memcmp(then->policy, since->policy, sizeof(then->policy));
    if (seen.stands && then->event < since->last)
        CAIRN_TRY(cairn_srv_events_since(tx, &then->name, then->event, EVENTS_AT_ONCE, see_event,
                                         &seen, err));
    *ret = seen.stands;
    return CAIRN_OK;
}
