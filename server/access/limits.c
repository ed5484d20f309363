/* SPDX-License-Identifier: Apache-2.0 */
/* Judges calls by scope and by rate; serves the quotas of projects. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/wire/messages.h"
#include "common/log.h"
#include "common/net.h"
#include "common/process.h"
#include "server/http/above.h"
#include "server/ledger/policies.h"
#include "server/metrics.h"

/* ---- scopes ---- */

/* Of a run that the token may not see the answer is the same whether it exists or not (P16). */
static enum cairn_code hide(const struct srv_request *request, struct cairn_error *err) {
    const struct cairn_run_name *name = &request->params.run_name;
    const struct srv_caller *caller = &request->caller;
    char scopes[CAIRN_SCOPES_TEXT_BYTES];
    cairn_scopes_text(caller->scopes, scopes);
    return cairn_fail(err, CAIRN_NOT_FOUND,
                      "there is no %s %s%s%s that the token %s may see (projects: %s; scopes: %s)",
                      name->run[0] ? "run" : "project", name->project, name->run[0] ? "/" : "",
                      name->run, caller->who, caller->projects, scopes);
}

static enum cairn_code judge_scope(const struct srv_request *request, struct cairn_error *err) {
    const struct srv_caller *caller = &request->caller;
    const struct cairn_route_need *need = &request->route->need;
    const char *project = request->params.run_name.project;
    char scope[CAIRN_SCOPES_TEXT_BYTES];
    bool has_scope = !need->scope || (caller->scopes & need->scope);
    bool sees = srv_caller_may(caller, CAIRN_SCOPE_READ, project);
    bool inside = !need->project || cairn_project_pattern_fits(caller->projects, project);
    if (!inside || (need->project && !has_scope && !sees)) return hide(request, err);
    cairn_scopes_text(need->scope, scope);
    if (!has_scope)
        return cairn_fail(err, CAIRN_FORBIDDEN, "the token %s lacks the scope %s", caller->who,
                          scope);
    if (need->all && strcmp(caller->projects, "*") != 0)
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "this needs a token for all projects; %s is bound to %s", caller->who,
                          caller->projects);
    return CAIRN_OK;
}

/* A valid grant of the run in the path, or of any run where the path names none. */
static bool comes_with_grant(const struct srv_request *request) {
    const struct cairn_route_need *need = &request->route->need;
    struct cairn_grant grant;
    if (!need->grant || !request->grant[0]) return false;
    return (need->project
                ? srv_grant_read(request, request->grant, &grant, NULL)
                : srv_grant_judge(request->server, request->grant, &grant, NULL)) == CAIRN_OK;
}

enum cairn_code srv_judge(struct srv_request *request, struct cairn_error *err) {
    struct srv_access *access = request->server->access;
    struct srv_caller *caller = &request->caller;
    struct cairn_error why = {0};
    *caller = (struct srv_caller){.kind = SRV_EVERYBODY};
    bool asked = access && request->server->settings->require_token;
    if (!access || (!asked && !request->credential.there)) return CAIRN_OK;
    enum cairn_code code = srv_access_identify(access, &request->credential, caller, &why);
    if (!asked) {
        caller->kind = SRV_EVERYBODY;
        return CAIRN_OK;
    }
    if (!request->route->need.token) return CAIRN_OK;
    if (!code) code = judge_scope(request, &why);
    if (code && comes_with_grant(request)) {
        *caller = (struct srv_caller){.kind = SRV_GRANT, .who = "grant"};
        return CAIRN_OK;
    }
    return cairn_pass(err, code, &why);
}

/* ---- rates ---- */

/* Token buckets in sets of WAYS, in thousandths of a request: R per second is R per millisecond. */
#define WAYS 8
#define SETS (SRV_RATES_MAX / WAYS)
#define ONE 1000 /* request */

struct bucket {
    uint64_t caller; /* 0: free */
    uint64_t level, at_ms;
};
struct srv_rates {
    uint64_t per_second, full;
    uint8_t seed[16];
    struct cairn_lock lock;
    struct {
        struct bucket buckets[SETS][WAYS];
    } locked;
};

enum cairn_code srv_rates_new(const struct srv_rates_options *options, struct srv_rates **ret,
                              struct cairn_error *err) {
    CAIRN_ASSERT(options->per_second > 0);
    CAIRN_ASSERT(options->burst > 0);
    struct srv_rates *rates = calloc(1, sizeof(*rates));
    if (!rates) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for rates of callers");
    rates->per_second = options->per_second;
    rates->full = options->burst * ONE;
    options->random(rates->seed, sizeof(rates->seed));
    cairn_lock_init(&rates->lock, CAIRN_LOCK_server_rates);
    *ret = rates;
    return CAIRN_OK;
}

void srv_rates_free(struct srv_rates *rates) {
    if (!rates) return;
    cairn_lock_release(&rates->lock);
    free(rates);
}

static uint64_t number_of(const struct srv_rates *rates, const char *caller) {
    uint8_t digest[32];
    uint64_t number = 0;
    char text[16 + 256] = "";
    size_t size = strnlen(caller, sizeof(text) - sizeof(rates->seed));
    memcpy(text, rates->seed, sizeof(rates->seed));
    memcpy(text + sizeof(rates->seed), caller, size);
    cairn_sha256_of((struct cairn_view){text, sizeof(rates->seed) + size}, digest);
    memcpy(&number, digest, sizeof(number));
    return number ? number : 1;
}

/* The caller's bucket, or the longest idle bucket of its set, which it evicts. */
static struct bucket *find_bucket(struct srv_rates *rates, uint64_t number, uint64_t now_ms) {
    struct bucket *set = rates->locked.buckets[number % SETS], *oldest = &set[0];
    for (size_t i = 0; i < WAYS; i++) {
        if (set[i].caller == number) return &set[i];
        if (oldest->caller && (!set[i].caller || set[i].at_ms < oldest->at_ms)) oldest = &set[i];
    }
    *oldest = (struct bucket){.caller = number, .level = rates->full, .at_ms = now_ms};
    return oldest;
}

bool srv_rates_take(struct srv_rates *rates, const char *caller, uint64_t now_ms,
                    uint64_t *ret_wait_ms) {
    uint64_t number = number_of(rates, caller);
    CAIRN_HOLD(&rates->lock);
    struct bucket *own = find_bucket(rates, number, now_ms);
    uint64_t passed_ms = now_ms > own->at_ms ? now_ms - own->at_ms : 0;
    uint64_t missing = rates->full - own->level;
    bool refilled = passed_ms > missing / rates->per_second; /* else the product cannot overflow */
    own->level = refilled ? rates->full : own->level + passed_ms * rates->per_second;
    own->at_ms = cairn_max_u64(own->at_ms, now_ms);
    CAIRN_ASSERT(own->level <= rates->full);
    *ret_wait_ms = 0;
    if (own->level >= ONE) {
        own->level -= ONE;
        return true;
    }
    *ret_wait_ms = (ONE - own->level + rates->per_second - 1) / rates->per_second;
    return false;
}

static bool costs_nothing(const struct srv_request *request, enum cairn_code judged) {
    if (!request->route->need.token) return true;
    return !judged && (request->route->unrated || comes_with_grant(request));
}

enum cairn_code srv_judge_rate(const struct srv_request *request, enum cairn_code judged,
                               uint64_t *ret_wait_ms, struct cairn_error *err) {
    const struct srv *server = request->server;
    bool by_token = request->caller.kind == SRV_TOKEN;
    char caller[128], address[64];
    if (!server->rates || costs_nothing(request, judged)) return CAIRN_OK;
    cairn_net_caller_text(request->from, address, sizeof(address));
    snprintf(caller, sizeof(caller), "%s %s", by_token ? "token" : "address",
             by_token ? request->caller.id : address);
    if (srv_rates_take(server->rates, caller, srv_mono_ms(server), ret_wait_ms)) return CAIRN_OK;
    struct cairn_metric_at limited = {SRV_METRIC_requests_limited_total, !by_token, 0};
    cairn_metrics_add(server->metrics, limited, 1);
    return cairn_fail(err, CAIRN_RATE_LIMITED,
                      "the %s has asked too often: %" PRIu64 " requests a second, come again in "
                      "%" PRIu64 " ms",
                      caller, server->rates->per_second, *ret_wait_ms);
}

/* ---- quotas ---- */

struct quota_call {
    struct srv_request *request;
    const struct srv_quota *quota; /* the new quota; NULL removes it */
    bool change;
    struct srv_project project; /* the state after the change */
    json_t **days;              /* of its use */
};

static enum cairn_code days_of(struct srv_tx *tx, const char *project, json_t **ret,
                               struct cairn_error *err) {
    struct srv_usage_day days[SRV_USAGE_DAYS];
    size_t count = 0;
    CAIRN_AUTO_JSON json_t *list = json_array();
    if (project[0]) CAIRN_TRY(srv_usage_days(tx, project, days, &count, err));
    for (size_t i = 0; i < count; i++) {
        char at[32];
        cairn_time_text(days[i].at_ms, true, at);
        CAIRN_TRY(
            cairn_json_append(list,
                              CAIRN_PACK(usage_day, .at = at, .versions = days[i].used.versions,
                                         .bytes = days[i].used.bytes),
                              "the days of a project", err));
    }
    *ret = CAIRN_TAKE(list);
    return CAIRN_OK;
}

/* The default quota has no name and no usage. */
static json_t *quota_json(const struct srv_project *one, json_t *days) {
    static const char *const scopes[] = {"run", "project", "server"};
    bool named = one->name[0] != '\0';
    return CAIRN_PACK(
        quota_row, .project = named ? one->name : NULL, .limit_versions = one->quota.versions,
        .used_versions = named ? one->used.versions : CAIRN_MESSAGE_NONE,
        .limit_bytes = one->quota.bytes, .used_bytes = named ? one->used.bytes : CAIRN_MESSAGE_NONE,
        .days = days, .from = one->scope < SRV_SCOPE_NONE ? scopes[one->scope] : NULL);
}

/* Also changes it. */
SRV_CHANGE(get_quota, struct quota_call *call) {
    struct srv_project *one = &call->project;
    const char *project = call->request->params.run_name.project;
    (void)cairn_text_copy(one->name, sizeof(one->name), project);
    if (call->change) CAIRN_TRY(srv_quota_put(tx, project, call->quota, err));
    CAIRN_TRY(srv_quota_get(tx, project, &one->quota, &one->scope, err));
    CAIRN_TRY(srv_usage_get(tx, project, &one->used, err));
    return days_of(tx, project, call->days, err);
}

/* A token bound to some projects must not decide their share of the store. */
static enum cairn_code may_change_quotas(const struct srv_request *request,
                                         struct cairn_error *err) {
    const struct srv_caller *caller = &request->caller;
    if (caller->kind == SRV_EVERYBODY || !strcmp(caller->projects, "*")) return CAIRN_OK;
    return cairn_fail(err, CAIRN_FORBIDDEN,
                      "a quota is set with a token for all projects; %s is bound to %s",
                      caller->who, caller->projects);
}

static enum cairn_code serve_quota(struct quota_call *call, struct srv_reply *reply,
                                   struct cairn_error *err) {
    struct srv *server = call->request->server;
    CAIRN_AUTO_JSON json_t *days = NULL;
    call->days = &days;
    CAIRN_TRY(srv_thawed(server, err));
    if (call->change) CAIRN_TRY(may_change_quotas(call->request, err));
    if (call->change) {
        CAIRN_TRY(srv_catalog_write(server->catalog, get_quota, call, err));
    } else {
        SRV_LOOK(look, server->catalog, err);
        CAIRN_TRY(get_quota(look.tx, call, err));
    }
    if (call->change)
        cairn_log(INFO, "quota.changed", "project=\"%s\" set=%d", call->project.name,
                  call->quota != NULL);
    return srv_reply_json(reply, 200, quota_json(&call->project, days), err);
}

SRV_HANDLER(quota_get) {
    struct quota_call call = {.request = request};
    return serve_quota(&call, reply, err);
}

SRV_HANDLER(quota_put) {
    CAIRN_AUTO_JSON json_t *body = NULL;
    struct cairn_msg_quota_put said = {CAIRN_MESSAGE_NONE, CAIRN_MESSAGE_NONE}; /* as null */
    CAIRN_TRY(srv_body(request, 10, &body, err));
    CAIRN_TRY(cairn_msg_quota_put_read(body, "", &said, err));
    if (said.versions == CAIRN_MESSAGE_NONE && said.bytes == CAIRN_MESSAGE_NONE)
        return cairn_fail(err, CAIRN_INVALID,
                          "name /versions, /bytes or both; DELETE takes a quota away");
    struct srv_quota quota = {said.versions, said.bytes};
    struct quota_call call = {.request = request, .quota = &quota, .change = true};
    return serve_quota(&call, reply, err);
}

SRV_HANDLER(quota_delete) {
    struct quota_call call = {.request = request, .change = true};
    return serve_quota(&call, reply, err);
}

SRV_HANDLED_AS(project_quota_get, quota_get)
SRV_HANDLED_AS(project_quota_put, quota_put)
SRV_HANDLED_AS(project_quota_delete, quota_delete)

/* ---- GET /v1/quotas ---- */

/* Skips projects that the caller may not read, so a short page may have a next page. */
static enum cairn_code add_project(const struct srv_project *one, void *owner,
                                   struct cairn_error *err) {
    struct srv_list *list = owner;
    CAIRN_AUTO_JSON json_t *none = json_array(); /* set after the listing */
    bool taken = srv_list_takes(list, one->name);
    if (!taken || !srv_caller_may(&list->request->caller, CAIRN_SCOPE_READ, one->name))
        return CAIRN_OK;
    return srv_list_add(list, quota_json(one, none), err);
}

SRV_HANDLER(quota_list) {
    SRV_GET(list, list, srv_list_open(request, &list, err));
    CAIRN_TRY(srv_thawed(request->server, err));
    SRV_LOOK(look, request->server->catalog, err);
    CAIRN_TRY(srv_projects_each(look.tx, list.after, list.limit, add_project, &list, err));
    CAIRN_JSON_EACH(row, list.items) {
        const char *project = json_string_value(json_object_get(row, "project"));
        json_t *days = NULL;
        CAIRN_TRY(days_of(look.tx, project, &days, err));
        if (json_object_set_new(row, "days", days))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
    }
    list.more = list.count == list.limit;
    return srv_list_reply(&list, reply, err);
}
