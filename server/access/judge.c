/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judge: may this caller make this call? What a route needs against what the caller has, before the
 * body of a request is there, and again before its handler runs, also when that was parked.
 *
 * Promise: P16  outside of a token's projects, and where it may not read, a call is 404 in the
 *               words of a run that is not there; 403 is for who may see and not change.
 *          1    who comes with a grant needs no token for the calls of a save that is under way
 *               (routes.def), so that uploaders finish while tokens change.
 *          2    it is judged from memory: nobody waits for the catalog.
 *          3    a call costs its token one request of its rate, one without a good token its
 *               address; a call that shows a good grant, a heartbeat and the life of a reader's
 *               lease cost nothing, so no save and no restore starves; nor do those that need
 *               nothing, /livez and the like.
 * Threads: the event loop's, or one pool thread.
 */
#include <inttypes.h>
#include <stdio.h>

#include "common/net.h"
#include "server/access/rates.h"
#include "server/http/above.h"
#include "server/metrics.h"

/* As the catalog says it of a run that is not there (P16). */
static enum cairn_code hide(const struct cairn_srv_request *request, struct cairn_error *err) {
    const struct cairn_run_name *name = &request->params.run_name;
    return cairn_fail(err, CAIRN_NOT_FOUND, "there is no run %s/%s", name->project, name->run);
}

static enum cairn_code judge_scope(const struct cairn_srv_request *request,
                                   struct cairn_error *err) {
    const struct cairn_srv_caller *caller = &request->caller;
    const struct cairn_route_need *need = &request->route->need;
    const char *project = request->params.run_name.project;
    char scope[CAIRN_SCOPES_TEXT_BYTES];
    bool has_scope = !need->scope || (caller->scopes & need->scope);
    bool sees = cairn_srv_caller_may(caller, CAIRN_SCOPE_READ, project);
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

/* Of the run in the path; of any run where the path has none. */
static bool comes_with_grant(const struct cairn_srv_request *request) {
    const struct cairn_route_need *need = &request->route->need;
    struct cairn_grant grant;
    if (!need->grant || !request->grant[0]) return false;
    return (need->project ? cairn_srv_grant_read(request, request->grant, &grant, NULL)
                          : cairn_srv_grant_judge(request->server, request->grant, &grant, NULL)) ==
           CAIRN_OK;
}

enum cairn_code cairn_srv_judge(struct cairn_srv_request *request, struct cairn_error *err) {
    struct cairn_srv_access *access = request->server->access;
    struct cairn_srv_caller *caller = &request->caller;
    struct cairn_error why = {0};
    *caller = (struct cairn_srv_caller){.kind = CAIRN_SRV_EVERYBODY};
    bool asked = access && request->server->settings->require_token;
    if (!access || (!asked && !request->credential.there)) return CAIRN_OK;
    enum cairn_code code = cairn_srv_access_identify(access, &request->credential, caller, &why);
    if (!asked) {
        caller->kind = CAIRN_SRV_EVERYBODY;
        return CAIRN_OK;
    }
    if (!request->route->need.token) return CAIRN_OK;
    if (!code) code = judge_scope(request, &why);
    if (code && comes_with_grant(request)) {
        *caller = (struct cairn_srv_caller){.kind = CAIRN_SRV_GRANT, .who = "grant"};
        return CAIRN_OK;
    }
    if (code && err) *err = why;
    return code;
}

/* ---- how often ---- */

static bool costs_nothing(const struct cairn_srv_request *request, enum cairn_code judged) {
    if (!request->route->need.token) return true;
    if (judged) return false;
    switch (request->route->id) {
    case CAIRN_ROUTE_NODE_PUT:
    case CAIRN_ROUTE_LEASE_RENEW:
    case CAIRN_ROUTE_LEASE_DROP:
        return true;
    default:
        return comes_with_grant(request);
    }
}

enum cairn_code cairn_srv_judge_rate(const struct cairn_srv_request *request,
                                     enum cairn_code judged, uint64_t *ret_wait_ms,
                                     struct cairn_error *err) {
    const struct cairn_srv *server = request->server;
    bool by_token = request->caller.kind == CAIRN_SRV_TOKEN;
    char caller[128], address[64];
    if (!server->rates || costs_nothing(request, judged)) return CAIRN_OK;
    cairn_net_caller_text(request->from, address, sizeof(address));
    snprintf(caller, sizeof(caller), "%s %s", by_token ? "token" : "address",
             by_token ? request->caller.id : address);
    if (cairn_srv_rates_take(server->rates, caller, cairn_srv_mono_ms(server), ret_wait_ms))
        return CAIRN_OK;
    struct cairn_metric_at limited = {CAIRN_SRV_METRIC_requests_limited_total, !by_token, 0};
    cairn_metrics_add(server->metrics, limited, 1);
    return cairn_fail(err, CAIRN_RATE_LIMITED,
                      "the %s has asked too often: %" PRIu64 " requests a second, come again in "
                      "%" PRIu64 " ms",
                      caller, cairn_srv_rates_per_second(server->rates), *ret_wait_ms);
}
