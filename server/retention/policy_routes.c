/* SPDX-License-Identifier: Apache-2.0 */
/* Retention policies over HTTP: GET, PUT and DELETE for a run, a project or the server; POST
 * {R}/retention/preview shows a plan, and /apply removes exactly what was shown.
 *  1  A plan lists each version, newest first, with its outcome and all reasons to keep it; a
 *     removed version has no reason.
 *  2  A plan needs memory for itself and for its text (64 MiB) only, however many versions. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "server/retention/retain.h"
#include "server/versions/versions.h"

#define ASSUMED_MAX 10000
#define PLAN_BYTES_MAX (64 * CAIRN_MIB) /* clients accept as much */

/* NULL: no policy is set. */
static const char *scope_text(enum srv_scope scope) {
    static const char *const names[] = {"run", "project", "server"};
    return scope < SRV_SCOPE_NONE ? names[scope] : NULL;
}

static enum cairn_code policy_json(const struct cairn_policy *policy, enum srv_scope scope,
                                   json_t **ret, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(cairn_policy_json(policy, &json, err));
    CAIRN_TRY(cairn_policy_text(policy, &text, err));
    *ret = CAIRN_PACK(retention, .policy = json, .from = scope_text(scope), .text = text.data);
    return *ret ? CAIRN_OK : srv_no_memory(err);
}

static json_t *reason_json(const struct srv_retain *retain,
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

static json_t *version_json(const struct srv_retain *retain, size_t at) {
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

/* JSON values take ten times the memory of their text, so each version is encoded and freed at
 * once. Keys are sorted and "versions" is the last: the text goes into its empty list. */
#define LIST_END "]}"
#define LIST_BEGIN "\"versions\":["

static enum cairn_code put_versions(const struct srv_retain *retain, struct cairn_buf *ret,
                                    struct cairn_error *err) {
    for (size_t i = retain->plan.count; i > 0; i--) {
        CAIRN_AUTO_JSON json_t *version = version_json(retain, i - 1);
        if (!version) return srv_no_memory(err);
        if (i < retain->plan.count) CAIRN_TRY(cairn_buf_append_text(ret, ",", err));
        CAIRN_TRY(cairn_json_show(version, ret, err));
    }
    return CAIRN_OK;
}

/* assumed: the plan includes future saves and cannot be applied. */
static enum cairn_code reply_plan(struct srv_reply *reply, const struct srv *server,
                                  const struct srv_retain *retain, bool assumed,
                                  struct cairn_error *err) {
    const struct cairn_plan_retention *plan = &retain->plan;
    CAIRN_AUTO_JSON json_t *policy = NULL, *versions = json_array();
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(cairn_policy_json(&retain->policy, &policy, err));
    CAIRN_TRY(cairn_policy_text(&retain->policy, &text, err));
    CAIRN_AUTO_JSON json_t *json =
        CAIRN_PACK(retention_plan, .policy = policy, .from = scope_text(retain->scope),
                   .text = text.data, .plan_etag = assumed ? NULL : retain->tag, .keep = plan->kept,
                   .keep_bytes = plan->kept_bytes, .remove = plan->removed,
                   .remove_bytes = plan->removed_bytes, .skip = plan->in_flight,
                   .trash_grace_ms = server->settings->trash_grace_ms, .versions = versions);
    if (!json) return srv_no_memory(err);
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

struct policy_call {
    struct srv_request *request;
    const struct cairn_policy *policy;
    bool change;
    struct cairn_policy holds;
    enum srv_scope scope;
};

SRV_CHANGE(change_policy, struct policy_call *call) {
    const struct cairn_run_name *name = &call->request->params.run_name;
    if (name->run[0]) { /* projects and the server may have a policy before their first run */
        SRV_GET(run, run, srv_run_get(tx, name, &run, err));
        CAIRN_TRY(srv_run_there(&run, err));
    }
    if (call->change) CAIRN_TRY(srv_policy_put(tx, name, call->policy, err));
    return srv_policy_get(tx, name, &call->holds, &call->scope, err);
}

static enum cairn_code look_at_policy(struct policy_call *call, struct cairn_error *err) {
    SRV_LOOK(look, call->request->server->catalog, err);
    return change_policy(look.tx, call, err);
}

static enum cairn_code serve_policy(struct policy_call *call, struct srv_reply *reply,
                                    struct cairn_error *err) {
    struct srv *server = call->request->server;
    const struct cairn_run_name *name = &call->request->params.run_name;
    CAIRN_TRY(srv_thawed(server, err));
    CAIRN_TRY(call->change ? srv_catalog_write(server->catalog, change_policy, call, err)
                           : look_at_policy(call, err));
    if (call->change)
        cairn_log(INFO, "retention.policy", "project=\"%s\" run=\"%s\" set=%d", name->project,
                  name->run, call->policy != NULL);
    CAIRN_AUTO_JSON json_t *json = NULL;
    CAIRN_TRY(policy_json(&call->holds, call->scope, &json, err));
    return srv_reply_json(reply, 200, CAIRN_TAKE(json), err);
}

SRV_HANDLER(retention_get) {
    struct policy_call call = {.request = request};
    return serve_policy(&call, reply, err);
}

SRV_HANDLER(retention_put) {
    CAIRN_AUTO_JSON json_t *body = NULL;
    struct cairn_policy policy;
    CAIRN_TRY(srv_body(request, 1000, &body, err));
    CAIRN_TRY(cairn_policy_read(body, "", &policy, err));
    struct policy_call call = {.request = request, .policy = &policy, .change = true};
    return serve_policy(&call, reply, err);
}

SRV_HANDLER(retention_delete) {
    struct policy_call call = {.request = request, .change = true};
    return serve_policy(&call, reply, err);
}

SRV_HANDLED_AS(run_retention_get, retention_get)
SRV_HANDLED_AS(run_retention_put, retention_put)
SRV_HANDLED_AS(run_retention_delete, retention_delete)
SRV_HANDLED_AS(project_retention_get, retention_get)
SRV_HANDLED_AS(project_retention_put, retention_put)
SRV_HANDLED_AS(project_retention_delete, retention_delete)

/* ---- plans ---- */

struct plan_call {
    struct srv_request *request;
    struct srv_retain_query query;
    struct cairn_policy policy;
    struct cairn_plan_item *assumed;
    const json_t *saves; /* JSON of assumed saves, parsed once the policy is known */
    struct srv_retain retain;
};

static void release(struct plan_call *call) {
    srv_retain_release(&call->retain);
    free(call->assumed);
}

static enum cairn_code read_assumed(const json_t *json, size_t index, struct plan_call *call,
                                    int64_t *at_ms, struct cairn_error *err) {
    struct cairn_msg_assumed said = {0};
    char pointer[48];
    snprintf(pointer, sizeof(pointer), "/assume/%zu", index);
    CAIRN_TRY(cairn_msg_assumed_read(json, pointer, &said, err));
    *at_ms += (int64_t)said.after_s * 1000;
    struct cairn_plan_item *item = &call->assumed[index];
    *item = (struct cairn_plan_item){
        .step = said.step, .n = 1, .bytes = said.bytes, .committed_ms = *at_ms};
    srv_candidate_judge(call->query.policy, said.labels, said.metrics, item);
    return CAIRN_OK;
}

/* Future saves follow the newest version, as of one job. */
static enum cairn_code read_saves(struct plan_call *call, struct cairn_error *err) {
    const struct srv_candidates *there = &call->retain.candidates;
    size_t count = json_array_size(call->saves);
    int64_t at_ms = 0;
    for (size_t i = 0; i < there->count; i++)
        if (there->items[i].committed_ms > at_ms) at_ms = there->items[i].committed_ms;
    if (!at_ms) at_ms = srv_wall_ms(call->request->server);
    free(call->assumed);
    call->assumed = calloc(count + 1, sizeof(*call->assumed));
    if (!call->assumed) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a retention plan");
    for (size_t i = 0; i < count; i++)
        CAIRN_TRY(read_assumed(json_array_get(call->saves, i), i, call, &at_ms, err));
    call->query.assumed = call->assumed;
    call->query.assumed_count = count;
    return CAIRN_OK;
}

static enum cairn_code make_plan(struct plan_call *call, struct cairn_error *err) {
    SRV_LOOK(look, call->request->server->catalog, err);
    call->query.assumed_count = 0;
    CAIRN_TRY(srv_retain_plan(look.tx, &call->query, &call->retain, err));
    if (!json_array_size(call->saves)) return CAIRN_OK;
    /* The policy in force says which labels and metrics to read; the tag is not used. */
    enum srv_scope scope = call->retain.scope;
    call->policy = call->retain.policy;
    call->query.policy = &call->policy;
    CAIRN_TRY(read_saves(call, err));
    CAIRN_TRY(srv_retain_plan(look.tx, &call->query, &call->retain, err));
    call->retain.scope = scope;
    return CAIRN_OK;
}

static enum cairn_code read_question(struct plan_call *call, const json_t *policy, bool allow_empty,
                                     struct cairn_error *err) {
    CAIRN_TRY(srv_thawed(call->request->server, err));
    if (policy) CAIRN_TRY(cairn_policy_read(policy, "/policy", &call->policy, err));
    call->query = (struct srv_retain_query){.name = &call->request->params.run_name,
                                            .policy = policy ? &call->policy : NULL,
                                            .allow_empty = allow_empty,
                                            .now_ms = srv_wall_ms(call->request->server)};
    return make_plan(call, err);
}

SRV_HANDLER(retention_preview) {
    CAIRN_RELEASED(release) struct plan_call call = {.request = request};
    CAIRN_AUTO_JSON json_t *body = NULL;
    struct cairn_msg_retention_preview said = {0};
    if (request->body.size) CAIRN_TRY(srv_body(request, 100000, &body, err));
    if (body) CAIRN_TRY(cairn_msg_retention_preview_read(body, "", &said, err));
    call.saves = said.assume;
    if (json_array_size(said.assume) > ASSUMED_MAX)
        return cairn_fail(err, CAIRN_INVALID, "/assume: more than %d saves", ASSUMED_MAX);
    CAIRN_TRY(read_question(&call, said.policy, said.allow_empty, err));
    bool assumed = json_array_size(said.assume) > 0;
    return reply_plan(reply, request->server, &call.retain, assumed, err);
}

SRV_HANDLER(retention_apply) {
    CAIRN_RELEASED(release) struct plan_call call = {.request = request};
    struct srv *server = request->server;
    struct srv_retain_done done = {0};
    SRV_BODY(body, retention_apply, said, 1000);
    CAIRN_TRY(read_question(&call, said.policy, said.allow_empty, err));
    if (strcmp(said.plan_etag, call.retain.tag) != 0)
        return cairn_fail(err, CAIRN_PRECONDITION,
                          "the plan is another by now: look at a new preview before applying it");
    CAIRN_TRY(
        srv_retain_carry_out(server, request->store, &call.retain, SRV_RETAIN_ROUND, &done, err));
    bool more = call.retain.plan.removed > SRV_RETAIN_ROUND;
    if (more) CAIRN_TRY(make_plan(&call, err));
    json_t *shown = CAIRN_PACK(
        retention_applied, .removed = done.removed, .removed_bytes = done.bytes,
        .left = more ? call.retain.plan.removed : 0, .plan_etag = more ? call.retain.tag : NULL);
    return srv_reply_json(reply, 200, shown, err);
}
