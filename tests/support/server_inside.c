/* SPDX-License-Identifier: Apache-2.0 */
/* A server without HTTP and threads; see server_inside.h. */
#include "tests/support/server_inside.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/file.h"
#include "server/commit/commit.h"
#include "server/copies/copies.h"
#include "server/guard/identity.h"
#include "server/guard/jobs.h"
#include "server/http/above.h"
#include "server/http/waiters.h"
#include "server/nodes/nodes.h"
#include "server/reads/send.h"
#include "server/reads/tier_reads.h"
#include "server/recovery/recovery.h"
#include "server/retention/retain.h"
#include "server/sweep/sweep.h"
#include "store/open.h"
#include "tests/support/postgres.h"

#define ARGUMENTS_MAX 24
#define ROUND_MS 60000                       /* what one round may add to catalog time */
#define LEAP_MS UINT64_C(3540000)            /* over PostgreSQL, before a round of a long pass */
#define BEFORE_LEAPS_MS UINT64_C(1800000)    /* at its begin and its end is a round each minute */
#define BEHIND_LEAPS_MS UINT64_C(5400000)    /* what the last leap leaves of it */
#define START_WALL_MS INT64_C(1772445600000) /* 2026-03-02T10:00:00Z */

static uint64_t mono_ms(const struct cairn_clock *clock) {
    return ((const struct cairn_inside_clock *)clock)->mono_ms;
}

static uint64_t boot_ms(const struct cairn_clock *clock) {
    return ((const struct cairn_inside_clock *)clock)->boot_ms;
}

static int64_t wall_ms(const struct cairn_clock *clock) {
    return ((const struct cairn_inside_clock *)clock)->wall_ms;
}

static void go_on(struct cairn_inside *inside, uint64_t ms) {
    inside->clock.mono_ms += ms;
    inside->clock.boot_ms += ms;
    inside->clock.wall_ms += (int64_t)ms;
}

static enum cairn_code load_settings(struct cairn_inside *inside, const char *folder,
                                     const char *const *extra, struct cairn_error *err) {
    char store[400], data[400], name[] = "inside";
    snprintf(store, sizeof(store), "--store=%s/store", folder);
    snprintf(data, sizeof(data), "--data-dir=%s/data", folder);
    char *argv[ARGUMENTS_MAX] = {name, store, data};
    int argc = 3;
    for (; extra && extra[argc - 3] && argc < ARGUMENTS_MAX; argc++)
        memcpy(&argv[argc], &extra[argc - 3], sizeof(argv[0]));
    char folders[400];
    for (size_t i = 0; i < 2; i++) {
        snprintf(folders, sizeof(folders), "%s/%s", folder, i ? "data" : "store");
        CAIRN_TRY(cairn_dir_make(folders, 0700, err));
    }
    bool done = false;
    return srv_settings_load(argc, argv, &inside->config, &inside->settings, &done, err);
}

/* In PostgreSQL where the test runs over that: then changes have a thread of their own. */
static enum cairn_code choose_catalog(struct cairn_inside *inside, struct cairn_error *err) {
    struct srv_catalog **ret = &inside->server.catalog;
    char *url = inside->catalog;
    if (inside->on_disk) return srv_catalog_open(inside->settings.data_dir, ret, err);
    if (!cairn_postgres_wanted()) return srv_catalog_open_memory(ret, err);
    if (!url[0] && !cairn_postgres_catalog(url, sizeof(inside->catalog)))
        return cairn_fail(err, CAIRN_UNAVAILABLE, "no PostgreSQL for this test");
    return srv_catalog_open(url, ret, err);
}

static enum cairn_code open_catalog(struct cairn_inside *inside, struct cairn_error *err) {
    CAIRN_TRY(choose_catalog(inside, err));
    srv_catalog_set_clock(inside->server.catalog, inside->server.clock);
    return CAIRN_OK;
}

/* What lives in memory only. */
static enum cairn_code wake(struct cairn_inside *inside, struct cairn_error *err) {
    struct srv *server = &inside->server;
    server->listening_ms = inside->clock.mono_ms;
    CAIRN_TRY(srv_identity_start(server, inside->worker, err));
    if (server->tiers) CAIRN_TRY(srv_tiers_start(server, err));
    CAIRN_TRY(srv_nodes_new(&server->nodes, err));
    CAIRN_TRY(srv_restores_new(&server->restores, err));
    CAIRN_TRY(srv_compared_new(&server->compared, err));
    CAIRN_TRY(srv_cache_new(&server->cache, err));
    CAIRN_TRY(srv_waiters_new(&server->waiters, err));
    CAIRN_TRY(srv_read_slots_new(server->settings->streams_max, &server->read_slots, err));
    CAIRN_TRY(srv_sweep_new(server, &server->sweep, err));
    struct srv_work work = {srv_commit_run, srv_sweep_run, NULL};
    return srv_jobs_new_idle(server, &work, &server->jobs, err);
}

static void forget(struct cairn_inside *inside) {
    struct srv *server = &inside->server;
    srv_jobs_free(server->jobs);
    srv_sweep_free(server->sweep);
    srv_read_slots_free(server->read_slots);
    srv_waiters_free(server->waiters);
    srv_cache_free(server->cache);
    srv_retained_free(server->retained);
    server->retained = NULL;
    srv_nodes_free(server->nodes);
    srv_restores_free(server->restores);
    srv_compared_free(server->compared);
    server->restores = NULL;
    server->sweep = NULL;
    server->jobs = NULL;
    server->waiters = NULL;
    server->read_slots = NULL;
    server->cache = NULL;
    server->nodes = NULL;
    server->compared = NULL;
    server->frozen = false;
}

static enum cairn_code open_tier(struct srv *server, const char *url, struct cairn_store **ret,
                                 struct cairn_error *err) {
    struct cairn_store_options options = {.url = url};
    (void)server;
    return cairn_store_open(&options, ret, err);
}

enum cairn_code inside_start(struct cairn_inside *inside, const char *folder,
                             const char *const *extra) {
    struct cairn_error *err = &inside->err;
    struct srv *server = &inside->server;
    inside->clock = (struct cairn_inside_clock){.clock = {mono_ms, boot_ms, wall_ms},
                                                .mono_ms = 1000000,
                                                .boot_ms = 2000000,
                                                .wall_ms = START_WALL_MS};
    CAIRN_TRY(load_settings(inside, folder, extra, err));
    server->settings = &inside->settings;
    server->clock = &inside->clock.clock;
    server->random = cairn_random;
    struct cairn_store_options options = {.url = inside->settings.store};
    CAIRN_TRY(cairn_store_open(&options, &server->store, err));
    CAIRN_TRY(cairn_store_worker_new(server->store, &inside->worker, err));
    if (inside->settings.stores[0])
        CAIRN_TRY(srv_tiers_new(server, open_tier, &server->tiers, err));
    CAIRN_TRY(open_catalog(inside, err));
    return wake(inside, err);
}

enum cairn_code inside_restart(struct cairn_inside *inside) {
    forget(inside);
    return wake(inside, &inside->err);
}

void cairn_inside_release(struct cairn_inside *inside) {
    forget(inside);
    if (inside->server.catalog) srv_catalog_free(inside->server.catalog);
    srv_copies_forget_failures(&inside->server);
    srv_tiers_free(inside->server.tiers);
    if (inside->worker) cairn_store_worker_free(inside->worker);
    if (inside->server.store) cairn_store_free(inside->server.store);
    json_decref(inside->extra);
    cairn_config_release(&inside->config);
    *inside = (struct cairn_inside){0};
}

void inside_commit(struct cairn_inside *inside) {
    for (int i = 0; i < 8; i++) {
        if (!srv_jobs_step(inside->server.jobs, inside->worker)) return;
    }
}

void inside_round(struct cairn_inside *inside) {
    srv_sweep_run(inside->server.sweep, inside->worker);
    inside_commit(inside);
}

static enum cairn_code raise_tick(struct srv_tx *tx, void *argument, struct cairn_error *err) {
    (void)argument;
    return srv_tick_raise(tx, srv_tick(tx), LEAP_MS, err);
}

/* As if there had been rounds in which nothing was due. */
static void leap(struct cairn_inside *inside) {
    struct srv *server = &inside->server;
    if (srv_catalog_write(server->catalog, raise_tick, NULL, &inside->err)) return;
    server->ticks.seen_tick += LEAP_MS;
    server->ticks.seen_boot_ms += LEAP_MS;
    go_on(inside, LEAP_MS);
}

void inside_pass(struct cairn_inside *inside, uint64_t ms) {
    bool leaps = cairn_postgres_wanted() && !inside->on_disk;
    for (uint64_t passed_ms = 0; passed_ms < ms;) {
        uint64_t began_ms = inside->clock.mono_ms;
        if (leaps && passed_ms >= BEFORE_LEAPS_MS && ms - passed_ms >= LEAP_MS + BEHIND_LEAPS_MS)
            leap(inside);
        go_on(inside, cairn_min_u64(ms - passed_ms, ROUND_MS));
        inside_round(inside);
        passed_ms += inside->clock.mono_ms - began_ms;
    }
}

static enum cairn_code run(struct cairn_inside *inside, struct srv_request *request,
                           struct srv_reply *reply) {
    for (;;) {
        CAIRN_TRY(srv_handle(request, reply, &inside->err));
        if (!reply->park) return CAIRN_OK;
        inside_commit(inside);
        if (reply->park_until_ms > inside->clock.mono_ms)
            go_on(inside, reply->park_until_ms - inside->clock.mono_ms);
    }
}

enum cairn_code inside_call(struct cairn_inside *inside, const char *method, const char *target,
                            json_t *take_body, json_t **ret_reply) {
    CAIRN_AUTO_JSON json_t *body = take_body;
    CAIRN_AUTO(buf) text = {.limit = 64 * CAIRN_MIB};
    struct srv_request request = {.server = &inside->server, .store = inside->worker};
    struct srv_reply reply = {0};
    struct cairn_view path, query;
    inside->err = (struct cairn_error){0};
    if (body) CAIRN_TRY(cairn_json_dump(body, &text, &inside->err));
    cairn_route_split(cairn_view_of(target), &path, &query);
    CAIRN_TRY(cairn_route_match(method, path, &request.route, &request.params, &inside->err));
    if (query.data) CAIRN_TRY(cairn_query_parse(query, &request.query, &inside->err));
    request.path = strndup(path.data, path.size);
    request.body = cairn_buf_view(&text);
    if (!strcmp(method, "PATCH"))
        (void)cairn_text_copy(request.if_match, sizeof(request.if_match), "*");
    request.arrived_ms = inside->clock.mono_ms;
    enum cairn_code code = run(inside, &request, &reply);
    inside->status = reply.status ? reply.status : 200;
    json_decref(inside->extra);
    inside->extra = CAIRN_TAKE(reply.extra);
    struct cairn_json_limits limits = {.bytes = 64 * CAIRN_MIB, .nodes = 1000000};
    if (!code && ret_reply)
        code = cairn_json_parse(cairn_buf_view(&reply.body), limits, ret_reply, &inside->err);
    srv_reply_release(&reply);
    free(request.path);
    return code;
}

enum cairn_code inside_bytes(struct cairn_inside *inside, const char *method, const char *target,
                             const char *grant, struct cairn_view body) {
    struct srv_request request = {.server = &inside->server, .store = inside->worker, .body = body};
    struct srv_reply reply = {0};
    inside->err = (struct cairn_error){0};
    CAIRN_TRY(cairn_route_match(method, cairn_view_of(target), &request.route, &request.params,
                                &inside->err));
    (void)cairn_text_copy(request.grant, sizeof(request.grant), grant);
    request.path = strdup(target);
    request.arrived_ms = inside->clock.mono_ms;
    enum cairn_code code = run(inside, &request, &reply);
    inside->status = reply.status ? reply.status : 200;
    srv_reply_release(&reply);
    free(request.path);
    return code;
}
