/* SPDX-License-Identifier: Apache-2.0 */
/* /livez, /readyz, /version, /openapi.yaml and /openapi.json: the server's state. */
#include <cairn/cairn.h>

#include "api/wire/messages.h"
#include "server/copies/damage.h"
#include "server/guard/identity.h"
#include "server/guard/jobs.h"
#include "server/health.h"
#include "server/http/request.h"
#include "server/nodes/nodes.h"

/* The hand-written API document, as it was at build time. */
__asm__(".section .rodata\n"
        ".global srv_openapi_begin\n"
        ".global srv_openapi_end\n"
        "srv_openapi_begin:\n"
        ".incbin \"api/openapi.yaml\"\n"
        "srv_openapi_end:\n"
        ".byte 0\n"
        ".previous\n");
extern const char srv_openapi_begin[], srv_openapi_end[];

SRV_HANDLER(livez) {
    (void)request;
    return srv_reply_json(reply, 200, CAIRN_PACK(alive, .status = "alive"), err);
}

/* P16: callers without a token for all projects learn only that there is a problem. */
static const char *named(const struct srv_request *request, bool any, const char *text) {
    const struct srv_caller *caller = &request->caller;
    bool all = caller->kind == SRV_TOKEN && (caller->scopes & CAIRN_SCOPE_READ) &&
               !strcmp(caller->projects, "*");
    if (!any) return "ok";
    return all || !request->server->settings->require_token
               ? text
               : "not ok: a token of scope read for all projects is told what";
}

SRV_HANDLER(readyz) {
    struct srv *server = request->server;
    struct srv_found found[SRV_CHECKS];
    const struct srv_found *catalog = &found[SRV_CHECK_CATALOG];
    const struct srv_found *store = &found[SRV_CHECK_STORE];
    struct cairn_error change = {0}, generation = {0};
    /* ahead of its health check */
    bool ready = !srv_catalog_writable(server->catalog, &change);
    srv_health_last(server, request->store, found);
    ready &= catalog->ok && store->ok && !srv_thawed(server, &generation);
    bool leaving = server->leaving;
    char file[SRV_CHECKED_BYTES];
    ready &= srv_catalog_checked(server->catalog, file, sizeof(file)) && !leaving;
    /* The trouble of one run or one node does not make the server unready for others. */
    char stuck[SRV_STUCK_BYTES], frozen[SRV_FROZEN_BYTES], nodes[SRV_TROUBLE_BYTES],
        copies[SRV_DAMAGE_BYTES];
    bool any_stuck = srv_jobs_stuck(server, stuck) > 0;
    bool any_frozen = srv_frozen_text(server, frozen) > 0;
    bool any_node = srv_nodes_trouble(server, nodes) > 0;
    /* Health checks wait for a catalog that does not answer; this request does not. */
    bool any_damage = catalog->ok && !change.code && srv_damage_text(server, copies) > 0;
    CAIRN_AUTO_JSON json_t *checks = CAIRN_PACK(
        ready_checks, .server = leaving ? "it is stopping: ask another one" : "ok",
        .catalog = change.code ? change.message : catalog->text, .store = store->text,
        .generation = generation.code ? generation.message : "ok",
        .commits = named(request, any_stuck, stuck), .runs = named(request, any_frozen, frozen),
        .nodes = named(request, any_node, nodes), .copies = named(request, any_damage, copies),
        .said = server->uncopied ? "what people have said is too much for its copy in "
                                   "the store (catalog.uncopied)"
                                 : "ok",
        .file = file);
    CAIRN_AUTO_JSON json_t *ages =
        CAIRN_PACK(ready_ages, .catalog = catalog->age_ms, .store = store->age_ms);
    return srv_reply_json(
        reply, ready ? 200 : 503,
        checks && ages ? CAIRN_PACK(readiness, .ready = ready, .checks = checks, .age_ms = ages)
                       : NULL,
        err);
}

SRV_HANDLER(version) {
    (void)request;
    return srv_reply_json(
        reply, 200,
        CAIRN_PACK(program, .version = CAIRN_VERSION, .schema = srv_catalog_schema(), .api = "v1"),
        err);
}

static struct cairn_view openapi(void) {
    return (struct cairn_view){srv_openapi_begin, (size_t)(srv_openapi_end - srv_openapi_begin)};
}

SRV_HANDLER(openapi) {
    (void)request;
    struct cairn_view text = openapi();
    reply->content_type = "application/yaml";
    return cairn_buf_append(&reply->body, text.data, text.size, err);
}

SRV_HANDLER(openapi_json) {
    json_t *document = NULL;
    (void)request;
    CAIRN_TRY(cairn_yaml_json(openapi(), &document, err));
    return srv_reply_json(reply, 200, document, err);
}
