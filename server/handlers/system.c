/* SPDX-License-Identifier: Apache-2.0 */
/* /livez, /readyz, /version and /openapi.yaml: what machines and people ask about the server. */
#include <cairn/cairn.h>

#include <stdatomic.h>
#include <time.h>

#include "common/clock.h"
#include "common/log.h"
#include "server/catalog/values.h"
#include "server/jobs/freeze.h"
#include "server/jobs/jobs.h"
#include "server/request.h"

/* The hand-written API document, as it was at build time. */
__asm__(".section .rodata\n"
        ".global cairn_srv_openapi_begin\n"
        ".global cairn_srv_openapi_end\n"
        "cairn_srv_openapi_begin:\n"
        ".incbin \"" CAIRN_OPENAPI_FILE "\"\n"
        "cairn_srv_openapi_end:\n"
        ".byte 0\n"
        ".previous\n");
extern const char cairn_srv_openapi_begin[], cairn_srv_openapi_end[];

int64_t cairn_srv_wall_ms(const struct cairn_srv *server) {
    return server->clock->wall_ms(server->clock);
}

uint64_t cairn_srv_mono_ms(const struct cairn_srv *server) {
    return server->clock->mono_ms(server->clock);
}

void cairn_srv_freeze(struct cairn_srv *server, const char *why) {
    if (atomic_exchange(&server->frozen, true)) return;
    cairn_log(ERROR, "catalog.behind",
              "cause=\"%s\" effect=\"attempts, lists, begins, commits and "
              "sweeps are refused until an operator has reconciled\"",
              why);
}

enum cairn_code cairn_srv_thawed(struct cairn_srv *server, struct cairn_error *err) {
    if (!server->frozen) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CATALOG_BEHIND,
                      "the catalog is behind its store; the server's log says why");
}

enum cairn_code cairn_srv_on_livez(struct cairn_srv_request *request, struct cairn_srv_reply *reply,
                                   struct cairn_error *err) {
    (void)request;
    return cairn_srv_reply_json(reply, 200, json_pack("{s:s}", "status", "alive"), err);
}

static enum cairn_code look(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    return cairn_srv_tick_get(tx, argument, err);
}

static enum cairn_code check_store(struct cairn_srv_request *request, struct cairn_error *err) {
    struct cairn_key key;
    cairn_key_store_json(&key);
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key.text};
    head.deadline_ms = cairn_mono_ms() + 5000;
    return cairn_store_perform(request->store, &head, err);
}

enum cairn_code cairn_srv_on_readyz(struct cairn_srv_request *request,
                                    struct cairn_srv_reply *reply, struct cairn_error *err) {
    int64_t tick = 0;
    struct cairn_error catalog = {0}, store = {0}, generation = {0};
    bool ready = !cairn_srv_catalog_read(request->server->catalog, look, &tick, &catalog);
    if (ready) ready = !cairn_srv_catalog_writable(request->server->catalog, &catalog);
    ready &= !check_store(request, &store);
    ready &= !cairn_srv_thawed(request->server, &generation);
    /* One run's trouble takes the server away from no other, so it does not count as not ready. */
    char stuck[CAIRN_SRV_STUCK_BYTES];
    bool any_stuck = cairn_srv_jobs_stuck(request->server, stuck) > 0;
    char frozen[CAIRN_SRV_FROZEN_BYTES];
    bool any_frozen = cairn_srv_frozen_text(request->server, frozen) > 0;
    json_t *checks =
        json_pack("{s:s, s:s, s:s, s:s, s:s}", "catalog", catalog.code ? catalog.message : "ok",
                  "store", store.code ? store.message : "ok", "generation",
                  generation.code ? generation.message : "ok", "commits", any_stuck ? stuck : "ok",
                  "runs", any_frozen ? frozen : "ok");
    return cairn_srv_reply_json(reply, ready ? 200 : 503,
                                json_pack("{s:b, s:o}", "ready", (int)ready, "checks", checks),
                                err);
}

enum cairn_code cairn_srv_on_version(struct cairn_srv_request *request,
                                     struct cairn_srv_reply *reply, struct cairn_error *err) {
    (void)request;
    return cairn_srv_reply_json(reply, 200,
                                json_pack("{s:s, s:i, s:s}", "version", CAIRN_VERSION, "schema",
                                          (int)cairn_srv_catalog_schema(), "api", "v1"),
                                err);
}

enum cairn_code cairn_srv_on_openapi(struct cairn_srv_request *request,
                                     struct cairn_srv_reply *reply, struct cairn_error *err) {
    (void)request;
    reply->content_type = "application/yaml";
    return cairn_buf_append(&reply->body, cairn_srv_openapi_begin,
                            (size_t)(cairn_srv_openapi_end - cairn_srv_openapi_begin), err);
}
