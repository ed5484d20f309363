/* SPDX-License-Identifier: Apache-2.0 */
/* POST {R}/retention/preview and /apply: what a policy keeps and removes, each with its reasons,
 * and removing exactly what was shown. */
#include <stdio.h>
#include <stdlib.h>

#include "api/wire/messages.h"
#include "common/text.h"
#include "server/retention/policy_json.h"

#define ASSUMED_MAX 10000

struct call {
    struct cairn_srv_request *request;
    struct cairn_srv_retain_query query;
    struct cairn_policy policy;
    struct cairn_plan_item *assumed; /* owned */
    const json_t *saves;             /* what they are read from, once the policy is known */
    struct cairn_srv_retain retain;
};

static void release(struct call *call) {
    cairn_srv_retain_release(&call->retain);
    free(call->assumed);
}

/* ---- saves to come ---- */

static enum cairn_code read_assumed(const json_t *json, size_t index, struct call *call,
                                    int64_t *at_ms, struct cairn_error *err) {
    struct cairn_msg_assumed said = {0};
    char pointer[48];
    snprintf(pointer, sizeof(pointer), "/assume/%zu", index);
    CAIRN_TRY(cairn_msg_assumed_read(json, pointer, &said, err));
    *at_ms += (int64_t)said.after_s * 1000;
    struct cairn_plan_item *item = &call->assumed[index];
    *item = (struct cairn_plan_item){
        .step = said.step, .n = 1, .bytes = said.bytes, .committed_ms = *at_ms};
    cairn_srv_candidate_judge(call->query.policy, said.labels, said.metrics, item);
    return CAIRN_OK;
}

/* Behind the newest that is there, as one job would go on. */
static enum cairn_code read_saves(struct call *call, struct cairn_error *err) {
    const struct cairn_srv_candidates *there = &call->retain.candidates;
    size_t count = json_array_size(call->saves);
    int64_t at_ms = 0;
    for (size_t i = 0; i < there->count; i++)
        if (there->items[i].committed_ms > at_ms) at_ms = there->items[i].committed_ms;
    if (!at_ms) at_ms = cairn_srv_wall_ms(call->request->server);
    free(call->assumed);
    call->assumed = calloc(count + 1, sizeof(*call->assumed));
    if (!call->assumed) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a retention plan");
    for (size_t i = 0; i < count; i++)
        CAIRN_TRY(read_assumed(json_array_get(call->saves, i), i, call, &at_ms, err));
    call->query.assumed = call->assumed;
    call->query.assumed_count = count;
    return CAIRN_OK;
}

static enum cairn_code plan(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct call *call = argument;
    call->query.assumed_count = 0;
    CAIRN_TRY(cairn_srv_retain_plan(tx, &call->query, &call->retain, err));
    if (!json_array_size(call->saves)) return CAIRN_OK;
    /* Their labels and metrics are asked by the policy that holds, and the tag is of no use. */
    enum cairn_srv_scope scope = call->retain.scope;
    call->policy = call->retain.policy;
    call->query.policy = &call->policy;
    CAIRN_TRY(read_saves(call, err));
    CAIRN_TRY(cairn_srv_retain_plan(tx, &call->query, &call->retain, err));
    call->retain.scope = scope;
    return CAIRN_OK;
}

static enum cairn_code start(struct call *call, const json_t *policy, bool allow_empty,
                             struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_thawed(call->request->server, err));
    if (policy) CAIRN_TRY(cairn_policy_read(policy, "/policy", &call->policy, err));
    call->query =
        (struct cairn_srv_retain_query){.name = &call->request->params.run_name,
                                        .policy = policy ? &call->policy : NULL,
                                        .allow_empty = allow_empty,
                                        .now_ms = cairn_srv_wall_ms(call->request->server)};
    return cairn_srv_catalog_read(call->request->server->catalog, plan, call, err);
}

/* ---- preview ---- */

static enum cairn_code preview(struct call *call, struct cairn_srv_reply *reply,
                               struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *body = NULL;
    struct cairn_msg_retention_preview said = {0};
    if (call->request->body.size) CAIRN_TRY(cairn_srv_body(call->request, 100000, &body, err));
    if (body) CAIRN_TRY(cairn_msg_retention_preview_read(body, "", &said, err));
    call->saves = said.assume;
    if (json_array_size(said.assume) > ASSUMED_MAX)
        return cairn_fail(err, CAIRN_INVALID, "/assume: more than %d saves", ASSUMED_MAX);
    CAIRN_TRY(start(call, said.policy, said.allow_empty, err));
    bool assumed = json_array_size(said.assume) > 0;
    return cairn_srv_reply_plan(reply, call->request->server, &call->retain, assumed, err);
}

enum cairn_code cairn_srv_on_retention_preview(struct cairn_srv_request *request,
                                               struct cairn_srv_reply *reply,
                                               struct cairn_error *err) {
    struct call call = {.request = request};
    enum cairn_code code = preview(&call, reply, err);
    release(&call);
    return code;
}

/* ---- apply ---- */

static enum cairn_code apply(struct call *call, struct cairn_srv_reply *reply,
                             struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *body = NULL;
    struct cairn_srv *server = call->request->server;
    struct cairn_msg_retention_apply said = {0};
    struct cairn_srv_retain_done done = {0};
    CAIRN_TRY(cairn_srv_body(call->request, 1000, &body, err));
    CAIRN_TRY(cairn_msg_retention_apply_read(body, "", &said, err));
    CAIRN_TRY(start(call, said.policy, said.allow_empty, err));
    if (strcmp(said.plan_etag, call->retain.tag) != 0)
        return cairn_fail(err, CAIRN_PRECONDITION,
                          "the plan is another by now: look at a new preview before applying it");
    CAIRN_TRY(cairn_srv_retain_carry_out(server, call->request->store, &call->retain,
                                         CAIRN_SRV_RETAIN_ROUND, &done, err));
    bool more = call->retain.plan.removed > CAIRN_SRV_RETAIN_ROUND;
    if (more) CAIRN_TRY(cairn_srv_catalog_read(server->catalog, plan, call, err));
    json_t *shown =
        CAIRN_PACK(retention_applied, .removed = done.removed, .removed_bytes = done.bytes,
                   .left = more ? call->retain.plan.removed : 0,
                   .plan_etag = more ? call->retain.tag : NULL);
    return cairn_srv_reply_json(reply, 200, shown, err);
}

enum cairn_code cairn_srv_on_retention_apply(struct cairn_srv_request *request,
                                             struct cairn_srv_reply *reply,
                                             struct cairn_error *err) {
    struct call call = {.request = request};
    enum cairn_code code = apply(&call, reply, err);
    release(&call);
    return code;
}
