/* SPDX-License-Identifier: Apache-2.0 */
/* The REST forms of policies and plans; see policy_json.h. */
#include "server/retention/policy_json.h"

#include <math.h>

#include "api/wire/messages.h"
#include "common/clock.h"

#define PLAN_BYTES_MAX (64 * CAIRN_MIB) /* as much as clients take */

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

/* Values of a plan's versions take up ten times their text, so each is written and given back. Keys
 * are sorted, and that of the versions is the last: an empty list is what they are put into. */
#define LIST_END "]}"
#define LIST_BEGIN "\"versions\":["

static enum cairn_code put_versions(const struct cairn_srv_retain *retain, struct cairn_buf *ret,
                                    struct cairn_error *err) {
    for (size_t i = retain->plan.count; i > 0; i--) {
        CAIRN_AUTO_JSON json_t *version = version_json(retain, i - 1);
        if (!version) return no_memory(err);
        if (i < retain->plan.count) CAIRN_TRY(cairn_buf_append_text(ret, ",", err));
        CAIRN_TRY(cairn_json_show(version, ret, err));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_reply_plan(struct cairn_srv_reply *reply, const struct cairn_srv *server,
                                     const struct cairn_srv_retain *retain, bool assumed,
                                     struct cairn_error *err) {
    const struct cairn_plan_retention *plan = &retain->plan;
    CAIRN_AUTO_JSON json_t *policy = NULL, *versions = json_array();
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(cairn_policy_json(&retain->policy, &policy, err));
    CAIRN_TRY(cairn_policy_text(&retain->policy, &text, err));
    CAIRN_AUTO_JSON json_t *json =
        CAIRN_PACK(retention_plan, .policy = policy, .from = scope_text(retain->scope),
                   .text = text.data, .plan_etag = assumed ? NULL : retain->tag,
                   .keep = plan->kept, .keep_bytes = plan->kept_bytes, .remove = plan->removed,
                   .remove_bytes = plan->removed_bytes, .skip = plan->in_flight,
                   .trash_grace_ms = server->settings->trash_grace_ms, .versions = versions);
    if (!json) return no_memory(err);
    struct cairn_buf *body = &reply->body;
    cairn_buf_clear(body);
    body->limit = PLAN_BYTES_MAX;
    CAIRN_TRY(cairn_json_show(json, body, err));
    const size_t end = sizeof LIST_END - 1, begin = sizeof LIST_BEGIN - 1;
    CAIRN_ASSERT(body->size > begin + end);
    CAIRN_ASSERT(!memcmp(body->data + body->size - begin - end, LIST_BEGIN LIST_END, begin + end));
    body->size -= end;
    CAIRN_TRY(put_versions(retain, body, err));
    return cairn_buf_append_text(body, LIST_END "\n", err);
}
