/* SPDX-License-Identifier: Apache-2.0 */
/* The REST forms of policies and plans; see policy_json.h. */
#include "server/handlers/policy_json.h"

#include "common/clock.h"

static enum cairn_code no_memory(struct cairn_error *err) {
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
}

static json_t *scope_json(enum cairn_srv_scope scope) {
    static const char *const names[] = {"run", "project", "server"};
    return scope < CAIRN_SRV_SCOPE_NONE ? json_string(names[scope]) : json_null();
}

enum cairn_code cairn_srv_policy_json(const struct cairn_policy *policy, enum cairn_srv_scope scope,
                                      json_t **ret, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(cairn_policy_json(policy, &json, err));
    CAIRN_TRY(cairn_policy_text(policy, &text, err));
    *ret =
        json_pack("{s:O, s:o, s:s}", "policy", json, "from", scope_json(scope), "text", text.data);
    return *ret ? CAIRN_OK : no_memory(err);
}

static json_t *reason_json(const struct cairn_srv_retain *retain,
                           const struct cairn_plan_reason *reason) {
    const struct cairn_policy *policy = &retain->policy;
    json_t *json = json_pack("{s:s}", "rule", cairn_keep_name(reason->why));
    int failed = !json;
    if (reason->place)
        failed |= json_object_set_new(json, "place", json_integer((json_int_t)reason->place)) |
                  json_object_set_new(json, "of", json_integer((json_int_t)reason->of));
    if (reason->why == CAIRN_KEEP_BEST) {
        double value = retain->candidates.items[reason->item].metrics[reason->which];
        const char *metric = policy->best[reason->which].metric;
        failed |= json_object_set_new(json, "metric", json_string(metric)) |
                  json_object_set_new(json, "value", json_real(value));
    }
    if (reason->why == CAIRN_KEEP_LABELS) {
        json_t *labels = json_string(policy->labels[reason->which].text);
        failed |= json_object_set_new(json, "labels", labels);
    }
    if (!failed) return json;
    json_decref(json);
    return NULL;
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
    return json_pack("{s:s?, s:I, s:I, s:I, s:I, s:s?, s:s, s:O}", "version", id[0] ? id : NULL,
                     "attempt", (json_int_t)item->attempt, "step", (json_int_t)item->step, "n",
                     (json_int_t)item->n, "bytes", (json_int_t)item->bytes, "committed_at",
                     flying ? NULL : time, "fate",
                     flying                         ? "skip"
                     : cairn_plan_removes(plan, at) ? "remove"
                                                    : "keep",
                     "reasons", reasons);
}

enum cairn_code cairn_srv_plan_json(const struct cairn_srv *server,
                                    const struct cairn_srv_retain *retain, bool assumed,
                                    json_t **ret, struct cairn_error *err) {
    const struct cairn_plan_retention *plan = &retain->plan;
    CAIRN_AUTO_JSON json_t *shown = NULL, *versions = json_array();
    CAIRN_TRY(cairn_srv_policy_json(&retain->policy, retain->scope, &shown, err));
    for (size_t i = plan->count; i > 0; i--)
        if (json_array_append_new(versions, version_json(retain, i - 1))) return no_memory(err);
    json_t *json = json_pack(
        "{s:s?, s:I, s:I, s:I, s:I, s:I, s:I, s:O}", "plan_etag", assumed ? NULL : retain->tag,
        "keep", (json_int_t)plan->kept, "keep_bytes", (json_int_t)plan->kept_bytes, "remove",
        (json_int_t)plan->removed, "remove_bytes", (json_int_t)plan->removed_bytes, "skip",
        (json_int_t)plan->in_flight, "trash_grace_ms", (json_int_t)server->settings->trash_grace_ms,
        "versions", versions);
    if (!json || json_object_update(json, shown)) {
        json_decref(json);
        return no_memory(err);
    }
    *ret = json;
    return CAIRN_OK;
}
