/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a request's handler, with the checks before and after every handler, over HTTP and in tests.
 *
 * Promise: Q35  no handler of a run's route runs before that run was compared with its store.
 *          Q36  a frozen run allows only reconciles and reads by version id.
 */
#include "server/events/feed.h"
#include "server/guard/identity.h"
#include "server/http/above.h"
#include "server/nodes/nodes.h"
#include "server/reads/send.h"
#include "server/recovery/recovery.h"
#include "server/versions/versions.h"

typedef enum cairn_code handler_function(struct srv_request *request, struct srv_reply *reply,
                                         struct cairn_error *err);
static handler_function *const handlers[CAIRN_ROUTE_COUNT] = {
#define ROUTE(id, handler, method, need, template_text, query, ...)                                \
    [CAIRN_ROUTE_##id] = srv_on_##handler,
#include "api/routes.def"
#undef ROUTE
};

#define LOOK_AGAIN_MS 500 /* while another thread compares the run */

/* Q35, Q36: nothing is answered or done before the run was compared with its store, nor while the
 * store is ahead of the catalog. */
static enum cairn_code admit_run(struct srv_request *request, struct srv_reply *reply,
                                 struct cairn_error *err) {
    const struct cairn_run_name *name = &request->params.run_name;
    enum cairn_route_frozen frozen = request->route->frozen;
    bool all = request->route->all_runs, busy = false;
    /* Handlers report a freeze of the whole server themselves. */
    if (request->server->frozen || (!all && !name->run[0])) return CAIRN_OK;
    struct cairn_error why = {0};
    enum cairn_code code = all ? srv_compare_all(request->server, request->store, &busy, &why)
                               : srv_compare(request->server, request->store, name, &busy, &why);
    if (busy) {
        reply->park = true;
        reply->park_key = srv_key_of_run(name);
        reply->park_until_ms = srv_mono_ms(request->server) + LOOK_AGAIN_MS;
        return CAIRN_OK;
    }
    if (all && !code) return CAIRN_OK;
    if (!code || code == CAIRN_CATALOG_BEHIND) {
        bool by_id = cairn_version_id_valid(cairn_view_of(request->params.ref));
        if (frozen == CAIRN_FROZEN_OPEN || (frozen == CAIRN_FROZEN_BY_ID && by_id)) return CAIRN_OK;
        return srv_run_thawed(request->server, name, err);
    }
    if (err) *err = why;
    return cairn_within(err, code, "the catalog could not be compared with the store");
}

/* Q6: a grant that this catalog cannot have issued. */
static enum cairn_code freeze_run(const struct srv_request *request, struct cairn_error *err) {
    const struct cairn_run_name *name = &request->params.run_name;
    struct cairn_error why = *err;
    if (request->server->frozen || !name->run[0]) return CAIRN_CATALOG_BEHIND;
    if (srv_run_thawed(request->server, name, NULL)) return CAIRN_CATALOG_BEHIND;
    return srv_run_freeze(request->server, name, why.message, err);
}

static enum cairn_code tell_newest(const struct srv_request *request, struct srv_reply *reply) {
    SRV_LOOK(look, request->server->catalog, NULL);
    SRV_GET(run, run, srv_run_get(look.tx, &request->params.run_name, &run, NULL));
    srv_reply_extra(reply, "newest", json_integer((json_int_t)run.attempt));
    return CAIRN_OK;
}

/* A repeat of a call has the same method, path and body. */
static void read_idempotency(const struct srv_request *request, struct srv_idempotency *ret) {
    struct cairn_sha256 hash;
    const char *path = request->path ? request->path : "";
    *ret = (struct srv_idempotency){.caller = request->caller.who, .key = request->idempotency_key};
    cairn_sha256_init(&hash);
    cairn_sha256_update(&hash, request->route->method, strlen(request->route->method));
    cairn_sha256_update(&hash, path, strlen(path) + 1);
    cairn_sha256_update(&hash, request->body.data, request->body.size);
    cairn_sha256_final(&hash, ret->digest);
}

static enum cairn_code handle(struct srv_request *request, struct srv_reply *reply,
                              struct srv_idempotency *idempotency, struct cairn_error *err) {
    srv_reply_release(reply);
    *reply = (struct srv_reply){0};
    *err = (struct cairn_error){0};
    CAIRN_TRY(srv_judge(request, err)); /* again: it may have been parked for long */
    bool keyed = request->idempotency_key[0] && !strcmp(request->route->method, "POST");
    if (keyed) read_idempotency(request, idempotency);
    srv_actor_set(
        &(struct srv_actor){request->caller.who, request->from, keyed ? idempotency : NULL});
    CAIRN_TRY(admit_run(request, reply, err));
    if (reply->park) return CAIRN_OK;
    CAIRN_TRY(srv_changes_check(request, err));
    enum cairn_code code = handlers[request->route->id](request, reply, err);
    if (!code) code = srv_changes_judge(request, reply, err);
    if (code == CAIRN_CATALOG_BEHIND) code = freeze_run(request, err);
    if (code == CAIRN_STALE_ATTEMPT && !json_object_get(reply->extra, "newest"))
        (void)!tell_newest(request, reply);
    return code;
}

enum cairn_code srv_handle(struct srv_request *request, struct srv_reply *reply,
                           struct cairn_error *err) {
    cairn_trace_set(&request->trace);
    struct srv_idempotency idempotency;
    enum cairn_code code = handle(request, reply, &idempotency, err);
    if (code == CAIRN_CATALOG_BEHIND && request->params.run_name.run[0])
        reply->retry_s = srv_run_thaws_in_s(request->server, &request->params.run_name);
    cairn_trace_set(NULL);
    srv_actor_set(NULL);
    srv_trim_after(request->body.size > reply->body.size ? request->body.size : reply->body.size);
    return code;
}

void srv_end_flows(struct srv *server) {
    if (server->feed) srv_feed_stop(server->feed);
}

void srv_housekeep(struct srv *server) {
    srv_nodes_awake(server);
    srv_read_slots_look(server->read_slots);
    srv_chunks_look(server->chunks);
}
