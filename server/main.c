/* SPDX-License-Identifier: Apache-2.0 */
/* cairn-server: build everything in order, wait for a signal, take it down in reverse. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <cairn/cairn.h>

#include "common/clock.h"
#include "common/file.h"
#include "common/id.h"
#include "common/json.h"
#include "common/log.h"
#include "common/parent.h"
#include "server/cache.h"
#include "server/health.h"
#include "server/http/http.h"
#include "server/jobs/compare.h"
#include "server/jobs/identity.h"
#include "server/jobs/jobs.h"
#include "server/nodes.h"
#include "server/places.h"
#include "server/pool.h"
#include "server/waiters.h"
#include "store/s3/settings.h"

#define READ_THREADS 4
#define DRAIN_LOOK_MS 20
#define LOOK_S 5 /* between two looks at what the store turned out not to do */

static enum cairn_code meet_store(struct cairn_srv *server, struct cairn_error *err) {
    struct cairn_store_s3_meeting meeting = {.by = "server", .may_list = true};
    char from[160];
    CAIRN_TRY(cairn_store_s3_meet(server->store, &meeting, from, err));
    cairn_log(INFO, "store.known", "url=%s from=\"%s\"", cairn_store_url(server->store), from);
    return CAIRN_OK;
}

/* For those who may find out less, or come later. Without it they find out for themselves. */
static void save_profile(struct cairn_srv *server) {
    struct cairn_error why = {0};
    bool written = false;
    if (strcmp(cairn_store_profile(server->store)->kind, "s3") != 0 || server->frozen) return;
    if (cairn_store_s3_profile_save(server->store, &written, &why) != CAIRN_OK)
        cairn_log(WARN, "store.profile_unwritten", "url=%s cause=\"%s\"",
                  cairn_store_url(server->store), why.message);
    else if (written)
        cairn_log(INFO, "store.profile_written", "url=%s", cairn_store_url(server->store));
}

/* What the store turns out not to do is said once, and put right in profile.json. */
static void look_at_store(struct cairn_srv *server, bool *told) {
    char text[256];
    if (*told || !cairn_store_s3_degraded(server->store, text)) return;
    *told = true;
    cairn_log(WARN, "store.degraded", "url=%s note=\"%s\"", cairn_store_url(server->store), text);
    if (!cairn_store_s3_profile_wrong(server->store)) return;
    cairn_log(WARN, "store.profile_wrong", "url=%s", cairn_store_url(server->store));
    save_profile(server);
}

/* A store that the server cannot write is of no use, so that ends the start. */
static enum cairn_code test_store(struct cairn_srv *server, struct cairn_error *err) {
    const struct cairn_store_profile *profile = cairn_store_profile(server->store);
    if (!strcmp(profile->kind, "s3")) {
        char keys[224], exposed[540];
        CAIRN_TRY(cairn_store_s3_credentials(server->store, keys, err));
        cairn_log(INFO, "store.keys", "from=\"%s\"", keys);
        if (cairn_store_s3_exposed(server->store, exposed))
            cairn_log(WARN, "store.keys_exposed", "cause=\"%s\"", exposed);
        if (server->settings->test_store) CAIRN_TRY(meet_store(server, err));
    }
    if (*profile->note)
        cairn_log(WARN, "store.profile", "url=%s note=\"%s\"", cairn_store_url(server->store),
                  profile->note);
    return CAIRN_OK;
}

static enum cairn_code choose_store(struct cairn_srv *server, struct cairn_error *err) {
    struct cairn_store_s3_settings settings = {
#define CONFIG(type, name, fallback, min, max, why)                                                \
    CAIRN_STORE_S3_SETTING_OF(server->settings, type, name)
#include "store/s3/settings.def"
#undef CONFIG
    };
    struct cairn_store_s3_choice choice;
    CAIRN_TRY(cairn_store_s3_choose(&settings, &choice, err));
    struct cairn_store_options options = {.url = server->settings->store, .s3 = &choice.options};
    cairn_store_register_s3(cairn_store_s3_open);
    return cairn_store_open(&options, &server->store, err);
}

static enum cairn_code open_store(struct cairn_srv *server, struct cairn_error *err) {
    CAIRN_TRY(choose_store(server, err));
    CAIRN_TRY(test_store(server, err));
    CAIRN_TRY(cairn_srv_catalog_open(server->settings->data_dir, &server->catalog, err));
    struct cairn_store_worker *worker = NULL;
    CAIRN_TRY(cairn_store_worker_new(server->store, &worker, err));
    enum cairn_code code = cairn_srv_identity_start(server, worker, err);
    cairn_store_worker_free(worker);
    if (code == CAIRN_OK) save_profile(server);
    return code;
}

static enum cairn_code start_parts(struct cairn_srv *server, struct cairn_error *err) {
    struct cairn_srv_pool_options requests = {server->store,
                                              (uint32_t)server->settings->request_workers, "work"};
    struct cairn_srv_pool_options looks = {server->store,
                                           (uint32_t)server->settings->request_workers, "look"};
    struct cairn_srv_pool_options reads = {server->store, READ_THREADS, "read"};
    CAIRN_TRY(cairn_srv_nodes_new(&server->nodes, err));
    CAIRN_TRY(cairn_srv_compared_new(&server->compared, err));
    CAIRN_TRY(cairn_srv_cache_new(&server->cache, err));
    CAIRN_TRY(cairn_srv_waiters_new(&server->waiters, err));
    CAIRN_TRY(cairn_srv_places_new(server->settings->streams_max, &server->places, err));
    CAIRN_TRY(cairn_srv_pool_new(&requests, &server->requests, err));
    CAIRN_TRY(cairn_srv_pool_new(&looks, &server->looks, err));
    CAIRN_TRY(cairn_srv_pool_new(&reads, &server->reads, err));
    CAIRN_TRY(cairn_srv_jobs_new(server, &server->jobs, err));
    return cairn_srv_health_new(server, &server->health, err);
}

static enum cairn_code announce(const struct cairn_srv *server, uint16_t port,
                                struct cairn_error *err) {
    cairn_log(INFO, "server.ready", "version=%s port=%u store=%s generation=%" PRIu64,
              CAIRN_VERSION, port, cairn_store_url(server->store), server->generation);
    if (!server->settings->port_file[0]) return CAIRN_OK;
    char text[16];
    snprintf(text, sizeof(text), "%u\n", port);
    return cairn_file_replace(server->settings->port_file, cairn_view_of(text), 0644, err);
}

/* Nobody comes in and who waits is told so; answers that have begun end within http_drain. */
static void drain(struct cairn_srv *server, const sigset_t *signals) {
    const struct timespec look = {.tv_nsec = DRAIN_LOOK_MS * 1000000L};
    uint64_t until_ms = cairn_mono_ms() + server->settings->http_drain_ms;
    server->stopping = true;
    cairn_srv_http_close(server->http);
    while (!cairn_srv_http_is_quiet(server->http) && cairn_mono_ms() < until_ms) {
        int got = sigtimedwait(signals, NULL, &look);
        if (got == SIGTERM || got == SIGINT) return;
    }
}

static enum cairn_code run(struct cairn_srv *server, const sigset_t *signals,
                           struct cairn_error *err) {
    uint16_t port = 0;
    CAIRN_TRY(open_store(server, err));
    CAIRN_TRY(start_parts(server, err));
    CAIRN_TRY(cairn_srv_http_start(server, &server->http, &port, err));
    CAIRN_TRY(cairn_srv_http_self_test(server->settings->listen, port, err));
    CAIRN_TRY(announce(server, port, err));
    const struct timespec look = {.tv_sec = LOOK_S};
    bool told = false;
    int got = 0;
    while (got != SIGTERM && got != SIGINT) {
        look_at_store(server, &told);
        got = sigtimedwait(signals, NULL, &look);
    }
    cairn_log(INFO, "server.stopping", "signal=%d", got);
    drain(server, signals);
    return CAIRN_OK;
}

static void take_down(struct cairn_srv *server) {
    cairn_srv_http_stop(server->http);
    cairn_srv_health_free(server->health);
    cairn_srv_jobs_free(server->jobs);
    cairn_srv_pool_free(server->requests);
    cairn_srv_pool_free(server->looks);
    cairn_srv_pool_free(server->reads);
    cairn_srv_places_free(server->places);
    cairn_srv_waiters_free(server->waiters);
    cairn_srv_cache_free(server->cache);
    cairn_srv_nodes_free(server->nodes);
    cairn_srv_compared_free(server->compared);
    if (server->catalog) cairn_srv_catalog_free(server->catalog);
    if (server->store) cairn_store_free(server->store);
}

static enum cairn_code start(int argc, char **argv, struct cairn_config *config,
                             struct cairn_srv_settings *settings, const sigset_t *signals,
                             struct cairn_error *err) {
    bool done = false;
    CAIRN_TRY(cairn_srv_settings_load(argc, argv, config, settings, &done, err));
    if (done) return CAIRN_OK;
    enum cairn_log_level level = CAIRN_LOG_INFO;
    CAIRN_TRY(cairn_log_level_parse(settings->log_level, &level, err));
    cairn_log_start("cairn-server", level, STDERR_FILENO);
    CAIRN_TRY(cairn_parent_follow(settings->parent, err));
    struct cairn_srv server = {.settings = settings,
                               .clock = &cairn_clock_real,
                               .random = cairn_random,
                               .listening_ms = cairn_mono_ms()};
    enum cairn_code code = run(&server, signals, err);
    take_down(&server);
    return code;
}

int main(int argc, char **argv) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* before any thread: they inherit it */
    signal(SIGPIPE, SIG_IGN);
    cairn_json_watch_memory();
    struct cairn_error err = {0};
    struct cairn_config config = {0};
    struct cairn_srv_settings settings = {0};
    enum cairn_code code = start(argc, argv, &config, &settings, &signals, &err);
    if (code) fprintf(stderr, "cairn-server: %s\n", err.message);
    cairn_config_release(&config);
    return cairn_code_info(code)->exit_status;
}
