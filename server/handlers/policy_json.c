/* SPDX-License-Identifier: Apache-2.0 */
/* The REST forms of policies and plans; see policy_json.h. */
#include "server/handlers/policy_json.h"

#include <math.h>

#include "api/messages.h"
#include "common/clock.h"

static enum cairn_code no_memory(struct cairn_error *err) {
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
}

/* NULL: of nowhere. */
static const char *scope_text(enum cairn_srv_scope scope) {
    static const char *const names[] = {"run", "project", "server"};
    return scope < CAIRN_SRV_SCOPE_NONE ? names[scope] : NULL;
}

enum cairn_code cairn_srv_policy_json(const struct cairn_policy *policy, enum cairn_srv_scope scope,
                                      json_t **ret, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(cairn_policy_json(policy, &json, err));
    CAIRN_TRY(cairn_policy_text(policy, &text, err));
    *ret = CAIRN_PACK(retention, .policy = json, .from = scope_text(scope), .text = text.data);
    return *ret ? CAIRN_OK : no_memory(err);
}

static json_t *reason_json(const struct cairn_srv_retain *retain,
                           const struct cairn_plan_reason *reason) {
    const struct cairn_policy *policy = &retain->policy;
    bool best = reason->why == CAIRN_KEEP_BEST, labels = reason->why == CAIRN_KEEP_LABELS;
    bool metric = best || reason->why == CAIRN_KEEP_UNMEASURED;
    CAIRN_ASSERT(reason->place <= reason->of);
    CAIRN_ASSERT(!metric || reason->which < policy->best_count);
    return CAIRN_PACK(
        retention_reason, .rule = cairn_keep_name(reason->why), .place = reason->place,
        .of = reason->of, .metric = metric ? policy->best[reason->which].metric : NULL,
        .value = best ? retain->candidates.items[reason->item].metrics[reason->which] : NAN,
        .labels = labels ? policy->labels[reason->which].text : NULL);
}

static json_t *version_json(const struct cairn_srv_retain *retain, size_t at) {
    const struct cairn_plan_item *item = &retain->candidates.items[at];
    const struct cairn_plan_retention *plan = &retain->plan;
    const char *id = retain->candidates.ids[at].text;
    bool flying = item->marks & CAIRN_PLAN_IN_FLIGHT;
    CAIRN_AUTO_JSON json_t *reasons = json_array();
    char time[32];
    for (uint32_t i = plan->first[at]; i < plan->first[at + 1]; i++)
        if (json_array_append_new(reasons, reason_json(retain, &plan->reasons[i]))) return NULL;
    cairn_time_text(item->committed_ms, true, time);
    const char *fate = cairn_plan_removes(plan, at) ? "remove" : "keep";
    return CAIRN_PACK(retention_version, .version = id[0] ? id : NULL, .attempt = item->attempt,
                      .step = item->step, .n = item->n, .bytes = item->bytes,
                      .committed_at = flying ? NULL : time, .fate = flying ? "skip" : fate,
                      .reasons = reasons);
}

enum cairn_code cairn_srv_plan_json(const struct cairn_srv *server,
                                    const struct cairn_srv_retain *retain, bool assumed,
                                    json_t **ret, struct cairn_error *err) {
    const struct cairn_plan_retention *plan = &retain->plan;
    CAIRN_AUTO_JSON json_t *policy = NULL, *versions = json_array();
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(cairn_policy_json(&retain->policy, &policy, err));
    CAIRN_TRY(cairn_policy_text(&retain->policy, &text, err));
    for (size_t i = plan->count; i > 0; i--)
        if (json_array_append_new(versions, version_json(retain, i - 1))) return no_memory(err);
    *ret = CAIRN_PACK(retention_plan, .policy = policy, .from = scope_text(retain->scope),
                      .text = text.data, .plan_etag = assumed ? NULL : retain->tag,
                      .keep = plan->kept, .keep_bytes = plan->kept_bytes, .remove = plan->removed,
                      .remove_bytes = plan->removed_bytes, .skip = plan->in_flight,
                      .trash_grace_ms = server->settings->trash_grace_ms, .versions = versions);
    return *ret ? CAIRN_OK : no_memory(err);
}
