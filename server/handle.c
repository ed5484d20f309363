/* SPDX-License-Identifier: Apache-2.0 */
/* Which handler answers which route, and what holds for all of them; see request.h. */
#include "server/request.h"
#include "server/versions.h"

typedef enum cairn_code handler_function(struct cairn_srv_request *request,
                                         struct cairn_srv_reply *reply, struct cairn_error *err);
static handler_function *const handlers[CAIRN_ROUTE_COUNT] = {
#define ROUTE(id, handler, method, template_text) [CAIRN_ROUTE_##id] = cairn_srv_on_##handler,
#include "api/routes.def"
#undef ROUTE
};

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

enum cairn_code cairn_srv_handle(struct cairn_srv_request *request, struct cairn_srv_reply *reply,
                                 struct cairn_error *err) {
    struct cairn_srv *server = request->server;
    cairn_srv_reply_release(reply);
    *reply = (struct cairn_srv_reply){0};
    *err = (struct cairn_error){0};
    enum cairn_code code = handlers[request->route->id](request, reply, err);
    if (code == CAIRN_CATALOG_BEHIND) cairn_srv_freeze(server, err->message);
    if (code == CAIRN_STALE_ATTEMPT && !json_object_get(reply->extra, "newest")) {
        struct newest newest = {request, reply};
        (void)!cairn_srv_catalog_read(server->catalog, look_at_newest, &newest, NULL);
    }
    return code;
}
