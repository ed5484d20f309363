/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a request's handler, with the checks before and after every handler, over HTTP and in tests.
 *
 * Promise: Q35  no handler of a run's route runs before that run was compared with its store.
 *          Q36  a frozen run allows only reconciles and reads by version id.
 */
#include "server/db/catalog.h"
#include "server/events/feed.h"
#include "server/guard/identity.h"
#include "server/http/above.h"
#include "server/nodes/nodes.h"
#include "server/reads/send.h"
#include "server/recovery/recovery.h"
#include "server/versions/versions.h"

typedef enum cairn_code handler_function(struct cairn_srv_request *request,
                                         struct cairn_srv_reply *reply, struct cairn_error *err);
static handler_function *const handlers[CAIRN_ROUTE_COUNT] = {
#define ROUTE(id, handler, method, need, template_text, query, wait)                               \
    [CAIRN_ROUTE_##id] = cairn_srv_on_##handler,
#include "api/routes.def"
#undef ROUTE
};

#define LOOK_AGAIN_MS 500 /* while another thread compares the run */

/* Routes open while frozen. Q36: reads by version id; cairn_srv_readable then checks the record in
 * the store. */
static bool goes_on_frozen(const struct cairn_srv_request *request) {
    switch (request->route->id) {
    case CAIRN_ROUTE_RECONCILE:
        return true;
    case CAIRN_ROUTE_CHECKPOINT_GET:
    case CAIRN_ROUTE_MANIFEST_GET:
    case CAIRN_ROUTE_CHECKSUMS_GET:
    case CAIRN_ROUTE_LAYOUT_GET:
    case CAIRN_ROUTE_TENSOR_LIST:
    case CAIRN_ROUTE_TENSOR_NAMED:
    case CAIRN_ROUTE_TENSOR_NAMED_DATA:
    case CAIRN_ROUTE_TENSOR_NAMED_DATA_HEAD:
    case CAIRN_ROUTE_TENSOR_GET:
    case CAIRN_ROUTE_TENSOR_DATA:
    case CAIRN_ROUTE_TENSOR_DATA_HEAD:
    case CAIRN_ROUTE_HF_LIST:
    case CAIRN_ROUTE_HF_FILE:
    case CAIRN_ROUTE_HF_FILE_HEAD:
    case CAIRN_ROUTE_RESTORE_PLAN:
    case CAIRN_ROUTE_SHARD_LIST:
    case CAIRN_ROUTE_SHARD_GET:
    case CAIRN_ROUTE_SHARD_DATA:
    case CAIRN_ROUTE_SHARD_DATA_HEAD:
    case CAIRN_ROUTE_VERIFY:
        return cairn_version_id_valid(cairn_view_of(request->params.ref));
    default:
        return false;
    }
}

/* Q35, Q36: nothing is answered or done before the run was compared with its store, nor while the
 * store is ahead of the catalog. */
static enum cairn_code admit_run(struct cairn_srv_request *request, struct cairn_srv_reply *reply,
                                 struct cairn_error *err) {
    const struct cairn_run_name *name = &request->params.run_name;
    bool all = request->route->id == CAIRN_ROUTE_RUN_LIST, busy = false;
    /* Handlers report a freeze of the whole server themselves. */
    if (request->server->frozen || (!all && !name->run[0])) return CAIRN_OK;
    struct cairn_error why = {0};
    enum cairn_code code =
        all ? cairn_srv_compare_all(request->server, request->store, &busy, &why)
            : cairn_srv_compare(request->server, request->store, name, &busy, &why);
    if (busy) {
        reply->park = true;
        reply->park_key = cairn_srv_key_of_run(name);
        reply->park_until_ms = cairn_srv_mono_ms(request->server) + LOOK_AGAIN_MS;
        return CAIRN_OK;
    }
    if (all && !code) return CAIRN_OK;
    if (!code || code == CAIRN_CATALOG_BEHIND) {
        if (goes_on_frozen(request)) return CAIRN_OK;
        return cairn_srv_run_thawed(request->server, name, err);
    }
    if (err) *err = why;
    return cairn_within(err, code, "the catalog could not be compared with the store");
}

/* Q6: a grant that this catalog cannot have issued. */
static enum cairn_code freeze_run(const struct cairn_srv_request *request,
                                  struct cairn_error *err) {
    const struct cairn_run_name *name = &request->params.run_name;
    struct cairn_error why = *err;
    if (request->server->frozen || !name->run[0]) return CAIRN_CATALOG_BEHIND;
    if (cairn_srv_run_thawed(request->server, name, NULL)) return CAIRN_CATALOG_BEHIND;
    return cairn_srv_run_freeze(request->server, name, why.message, err);
}

struct newest {
    const struct cairn_srv_request *request;
    struct cairn_srv_reply *reply;
};

static enum cairn_code look_at_newest(struct cairn_srv_tx *tx, void *argument,
                                      struct cairn_error *err) {
    const struct newest *newest = argument;
    CAIRN_AUTO(srv_run) run = {0};
    CAIRN_TRY(cairn_srv_run_get(tx, &newest->request->params.run_name, &run, err));
    cairn_srv_reply_extra(newest->reply, "newest", json_integer((json_int_t)run.attempt));
    return CAIRN_OK;
}

/* A repeat of a call has the same method, path and body. */
static void read_idempotency(const struct cairn_srv_request *request,
                             struct cairn_srv_idempotency *ret) {
    struct cairn_sha256 hash;
    const char *path = request->path ? request->path : "";
    *ret = (struct cairn_srv_idempotency){.caller = request->caller.who,
                                          .key = request->idempotency_key};
    cairn_sha256_init(&hash);
    cairn_sha256_update(&hash, request->route->method, strlen(request->route->method));
    cairn_sha256_update(&hash, path, strlen(path) + 1);
    cairn_sha256_update(&hash, request->body.data, request->body.size);
    cairn_sha256_final(&hash, ret->digest);
}

static enum cairn_code handle(struct cairn_srv_request *request, struct cairn_srv_reply *reply,
                              struct cairn_srv_idempotency *idempotency, struct cairn_error *err) {
    struct cairn_srv *server = request->server;
    cairn_srv_reply_release(reply);
    *reply = (struct cairn_srv_reply){0};
    *err = (struct cairn_error){0};
    CAIRN_TRY(cairn_srv_judge(request, err)); /* again: it may have been parked for long */
    bool keyed = request->idempotency_key[0] && !strcmp(request->route->method, "POST");
    if (keyed) read_idempotency(request, idempotency);
    cairn_srv_actor_set(
        &(struct cairn_srv_actor){request->caller.who, request->from, keyed ? idempotency : NULL});
    CAIRN_TRY(admit_run(request, reply, err));
    if (reply->park) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_changes_check(request, err));
    enum cairn_code code = handlers[request->route->id](request, reply, err);
    if (!code) code = cairn_srv_changes_judge(request, reply, err);
    if (code == CAIRN_CATALOG_BEHIND) code = freeze_run(request, err);
    if (code == CAIRN_STALE_ATTEMPT && !json_object_get(reply->extra, "newest")) {
        struct newest newest = {request, reply};
        (void)!cairn_srv_catalog_read(server->catalog, look_at_newest, &newest, NULL);
    }
    return code;
}

enum cairn_code cairn_srv_handle(struct cairn_srv_request *request, struct cairn_srv_reply *reply,
                                 struct cairn_error *err) {
    cairn_trace_set(&request->trace);
    struct cairn_srv_idempotency idempotency;
    enum cairn_code code = handle(request, reply, &idempotency, err);
    if (code == CAIRN_CATALOG_BEHIND && request->params.run_name.run[0])
        reply->retry_s = cairn_srv_run_thaws_in_s(request->server, &request->params.run_name);
    cairn_trace_set(NULL);
    cairn_srv_actor_set(NULL);
    cairn_srv_trim_after(request->body.size > reply->body.size ? request->body.size
                                                               : reply->body.size);
    return code;
}

void cairn_srv_end_flows(struct cairn_srv *server) {
    if (server->feed) cairn_srv_feed_stop(server->feed);
}

void cairn_srv_housekeep(struct cairn_srv *server) {
    cairn_srv_nodes_awake(server);
    cairn_srv_read_slots_look(server->read_slots);
    cairn_srv_chunks_look(server->chunks);
}
