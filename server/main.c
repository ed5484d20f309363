/* SPDX-License-Identifier: Apache-2.0 */
/* cairn-server: starts all parts in order, waits for a signal, takes them down in reverse. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <cairn/cairn.h>

#include "common/file.h"
#include "common/log.h"
#include "common/process.h"
#include "server/commit/commit.h"
#include "server/copies/copies.h"
#include "server/events/deliver.h"
#include "server/events/feed.h"
#include "server/guard/identity.h"
#include "server/health.h"
#include "server/http/http.h"
#include "server/http/waiters.h"
#include "server/metrics.h"
#include "server/nodes/nodes.h"
#include "server/reads/send.h"
#include "server/reads/stream.h"
#include "server/recovery/recovery.h"
#include "server/retention/retain.h"
#include "server/sweep/sweep.h"
#include "store/s3/start.h"

#define HEAVY_NICE 5
#define ALLOCATOR_ARENAS 256 /* more than there are threads */
#define READ_THREADS 4
#define DRAIN_LOOK_MS 20
#define LOOK_S 5 /* between checks which store features turned out missing */

/* must_work: without write access the start fails; other stores may become available later. */
static enum cairn_code start_store(struct srv *server, const char *url, bool must_work,
                                   struct cairn_store **ret, struct cairn_error *err) {
    struct cairn_store_s3_settings settings = {
#define CONFIG(type, name, fallback, min, max, why)                                                \
    CAIRN_STORE_S3_SETTING_OF(server->settings, type, name)
#include "store/s3/settings.def"
#undef CONFIG
    };
    struct cairn_store_start start = {.url = url,
                                      .s3 = &settings,
                                      .file_mode = server->settings->file_mode,
                                      .by = "server",
                                      .may_list = true,
                                      .must_work = must_work};
    return cairn_store_start(&start, ret, err);
}

static enum cairn_code start_tier(struct srv *server, const char *url, struct cairn_store **ret,
                                  struct cairn_error *err) {
    return start_store(server, url, false, ret, err);
}

static enum cairn_code open_catalog(struct srv *server, struct cairn_error *err) {
    const struct srv_settings *settings = server->settings;
    CAIRN_TRY(cairn_dir_make(settings->data_dir, 0700, err));
    CAIRN_TRY(cairn_dir_check_own(settings->data_dir, "data_dir", err));
    const char *where = settings->catalog[0] ? settings->catalog : settings->data_dir;
    srv_catalog_password_from(settings->catalog_password_file);
    CAIRN_TRY(srv_catalog_open(where, &server->catalog, err));
    srv_catalog_set_clock(server->catalog, server->clock);
    return srv_copy_is_over(server->catalog, err);
}

static enum cairn_code open_store(struct srv *server, struct cairn_error *err) {
    CAIRN_TRY(srv_metrics_new(&server->metrics, err));
    CAIRN_TRY(start_store(server, server->settings->store, true, &server->store, err));
    CAIRN_TRY(srv_tiers_new(server, start_tier, &server->tiers, err));
    CAIRN_TRY(open_catalog(server, err));
    srv_catalog_set_metrics(server->catalog, server->metrics, SRV_METRIC_db_query_duration_seconds);
    struct cairn_store_worker *worker = NULL;
    CAIRN_TRY(cairn_store_worker_new(server->store, &worker, err));
    enum cairn_code code = srv_identity_start(server, worker, err);
    if (!code) srv_revoked_look(server, worker); /* also if frozen, which still reads */
    cairn_store_worker_free(worker);
    if (code == CAIRN_OK && !server->frozen) cairn_store_start_keep(server->store);
    return code ? code : srv_tiers_start(server, err);
}

static void wake(void *owner, uint64_t key) {
    const struct srv *server = owner;
    if (key == SRV_NOTIFY_EVENTS || key == SRV_NOTIFY_ALL) srv_feed_look(server->feed);
    srv_access_notified(server->access, key);
    if (key != SRV_NOTIFY_EVENTS) srv_waiters_wake_key(server->waiters, key);
}

static enum cairn_code start_rates(struct srv *server, struct cairn_error *err) {
    const struct srv_rates_options options = {.per_second = server->settings->requests_per_second,
                                              .burst = server->settings->requests_burst,
                                              .random = server->random};
    return options.per_second ? srv_rates_new(&options, &server->rates, err) : CAIRN_OK;
}

/* Large bodies use half of the cores, and leave the rest to other callers. */
static uint32_t half_of_cores(void) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores >= 4 ? (uint32_t)(cores / 2) : 1;
}

static enum cairn_code start_parts(struct srv *server, struct cairn_error *err) {
    uint32_t workers = (uint32_t)server->settings->request_workers;
    const struct srv_pool_options requests = {server->store, workers, "work", 0};
    const struct srv_pool_options heavy = {server->store, half_of_cores(), "heavy", HEAVY_NICE};
    const struct srv_pool_options plans = {server->store, half_of_cores() + 1, "plan", HEAVY_NICE};
    const struct srv_pool_options looks = {server->store, workers, "look", 0};
    const struct srv_pool_options reads = {server->store, READ_THREADS, "read", 0};
    CAIRN_TRY(srv_nodes_new(&server->nodes, err));
    CAIRN_TRY(srv_restores_new(&server->restores, err));
    CAIRN_TRY(srv_compared_new(&server->compared, err));
    CAIRN_TRY(srv_cache_new(&server->cache, err));
    CAIRN_TRY(srv_retained_new(SRV_RETAINED_FROM, CAIRN_PLAN_SAVES_MAX, &server->retained, err));
    CAIRN_TRY(srv_tiered_new(&server->tiered, err));
    CAIRN_TRY(srv_waiters_new(&server->waiters, err));
    srv_waiters_on_late(server->waiters, srv_metrics_late, server->metrics);
    CAIRN_TRY(srv_access_first(server, err));
    CAIRN_TRY(srv_access_new(server, &server->access, err));
    CAIRN_TRY(srv_access_start(server->access, err));
    CAIRN_TRY(start_rates(server, err));
    CAIRN_TRY(srv_feed_new(server, &server->feed, err));
    CAIRN_TRY(srv_catalog_listen(server->catalog, wake, server, err));
    CAIRN_TRY(srv_stream_leases_new(&server->stream_leases, err));
    CAIRN_TRY(srv_read_slots_new(server->settings->streams_max, &server->read_slots, err));
    CAIRN_TRY(srv_chunks_new(SRV_STREAM_CHUNK_BYTES, 2 * (size_t)server->settings->streams_max,
                             &server->chunks, err));
    CAIRN_TRY(srv_pool_new(&requests, &server->requests, err));
    CAIRN_TRY(srv_pool_new(&heavy, &server->heavy, err));
    CAIRN_TRY(srv_pool_new(&plans, &server->plans, err));
    CAIRN_TRY(srv_pool_new(&looks, &server->looks, err));
    CAIRN_TRY(srv_pool_new(&reads, &server->reads, err));
    CAIRN_TRY(srv_sweep_new(server, &server->sweep, err));
    CAIRN_TRY(srv_leases_new(server, &server->leases, err));
    CAIRN_TRY(srv_operations_new(server, &server->operations, err));
    CAIRN_TRY(srv_webhooks_new(server, &server->webhooks, err));
    struct srv_work work = {srv_commit_run, srv_sweep_run, srv_sweep_leave};
    CAIRN_TRY(srv_jobs_new(server, &work, &server->jobs, err));
    return srv_health_new(server, &server->health, err);
}

static enum cairn_code announce(const struct srv *server, uint16_t port, struct cairn_error *err) {
    cairn_log(INFO, "server.ready",
              "version=%s port=%u store=%s generation=%" PRIu64 " data_dir=\"%s\"", CAIRN_VERSION,
              port, cairn_store_url(server->store), server->generation, server->settings->data_dir);
    char text[16];
    snprintf(text, sizeof(text), "%u\n", port);
    if (server->settings->port_file[0])
        CAIRN_TRY(cairn_file_replace(server->settings->port_file, cairn_view_of(text), 0644, err));
    cairn_manager_tell("READY=1");
    return CAIRN_OK;
}

static bool is_stop(int signal) {
    return signal == SIGTERM || signal == SIGINT;
}

/* Serves as before, except that /readyz sends load balancers away. False: a second signal came. */
static bool give_notice(struct srv *server, const sigset_t *signals) {
    uint64_t until_ms = cairn_mono_ms() + server->settings->stop_notice_ms;
    server->leaving = true;
    for (uint64_t now_ms = cairn_mono_ms(); now_ms < until_ms; now_ms = cairn_mono_ms()) {
        uint64_t left_ms = until_ms - now_ms;
        const struct timespec left = {.tv_sec = (time_t)(left_ms / 1000),
                                      .tv_nsec = (long)(left_ms % 1000) * 1000000L};
        if (is_stop(sigtimedwait(signals, NULL, &left))) return false;
    }
    return true;
}

/* Accepts no connection, answers parked requests with 503; answers under way have http_drain. */
static void drain(struct srv *server, const sigset_t *signals) {
    const struct timespec look = {.tv_nsec = DRAIN_LOOK_MS * 1000000L};
    uint64_t until_ms = cairn_mono_ms() + server->settings->http_drain_ms;
    server->stopping = true;
    srv_http_close(server->http);
    while (!srv_http_is_quiet(server->http) && cairn_mono_ms() < until_ms) {
        if (is_stop(sigtimedwait(signals, NULL, &look))) return;
    }
}

static enum cairn_code serve_until_signal(struct srv *server, const sigset_t *signals,
                                          struct cairn_error *err) {
    uint16_t port = 0;
    CAIRN_TRY(open_store(server, err));
    CAIRN_TRY(start_parts(server, err));
    CAIRN_TRY(srv_http_start(server, &server->http, &port, err));
    srv_operations_listen(server->operations, port);
    CAIRN_TRY(srv_webhooks_start(server->webhooks, err));
    CAIRN_TRY(srv_http_self_test(server->settings->listen, port, err));
    CAIRN_TRY(announce(server, port, err));
    const struct timespec look = {.tv_sec = LOOK_S};
    struct cairn_store_watch watch = {0};
    int got = 0;
    while (!is_stop(got)) {
        cairn_manager_alive();
        cairn_store_watch_look(&watch, server->store, !server->frozen);
        got = sigtimedwait(signals, NULL, &look);
        if (got != SIGHUP) continue;
        srv_http_reload(server->http);
        srv_webhooks_reload(server->webhooks);
    }
    cairn_log(INFO, "server.stopping", "signal=%d", got);
    cairn_manager_tell("STOPPING=1");
    bool in_time = give_notice(server, signals);
    /* while commands reach this server */
    srv_operations_stop(server->operations);
    if (in_time) drain(server, signals);
    return CAIRN_OK;
}

static void take_down(struct srv *server) {
    if (server->catalog) srv_catalog_unlisten(server->catalog);
    srv_http_stop(server->http);
    srv_operations_free(server->operations);
    srv_webhooks_free(server->webhooks);
    srv_health_stop(server->health);
    srv_jobs_free(server->jobs);
    srv_leases_free(server->leases);
    srv_feed_free(server->feed); /* after the last change */
    srv_pool_free(server->requests);
    srv_pool_free(server->heavy);
    srv_pool_free(server->plans);
    srv_pool_free(server->looks);
    srv_pool_free(server->reads);
    srv_sweep_free(server->sweep); /* handlers read its findings */
    srv_read_slots_free(server->read_slots);
    srv_stream_leases_free(server->stream_leases);
    srv_chunks_free(server->chunks);
    srv_access_free(server->access);
    srv_rates_free(server->rates);
    srv_waiters_free(server->waiters);
    srv_cache_free(server->cache);
    srv_nodes_free(server->nodes);
    srv_retained_free(server->retained);
    srv_tiered_free(server->tiered);
    srv_restores_free(server->restores);
    srv_compared_free(server->compared);
    if (server->catalog) srv_catalog_free(server->catalog);
    srv_health_free(server->health);
    srv_copies_forget_failures(server);
    srv_tiers_free(server->tiers);
    if (server->store) cairn_store_free(server->store);
    cairn_metrics_free(server->metrics);
}

/* Opening a catalog migrates it; a folder without one is probably mistyped. */
static enum cairn_code migrate(struct srv *server, struct cairn_error *err) {
    const struct srv_settings *settings = server->settings;
    const char *where = settings->catalog[0] ? settings->catalog : settings->data_dir;
    if (!srv_catalog_is_there(where))
        return cairn_fail(err, CAIRN_NOT_FOUND,
                          "there is no catalog in %s, and --migrate makes none: is data_dir right? "
                          "A start of the server makes a new one",
                          where);
    CAIRN_TRY(open_catalog(server, err));
    const struct srv_migrated *migrated = srv_catalog_migrated(server->catalog);
    if (printf("the catalog has schema %u\n", srv_catalog_schema()) < 0 ||
        (migrated->from &&
         printf("it had %u%s%s\n", migrated->from,
                migrated->before[0] ? "; as it was it is in " : "", migrated->before) < 0))
        return cairn_fail_errno(err, "standard output");
    return CAIRN_OK;
}

static enum cairn_code reindex(const struct srv_reindexing *asked, struct srv *server,
                               struct srv_settings *settings, struct cairn_error *err) {
    settings->test_store &= !asked->dry; /* the probe writes */
    CAIRN_TRY(start_store(server, server->settings->store, true, &server->store, err));
    settings->test_store = false; /* other stores are only read */
    CAIRN_TRY(srv_tiers_new(server, start_tier, &server->tiers, err));
    return srv_reindexing_run(asked, server, settings, err);
}

/* A key readable by a group may be intended, or an oversight. */
static void warn_of_shared(const struct srv_settings *settings) {
    const char *const files[] = {settings->tls_key, settings->webhooks_file,
                                 settings->admin_token_file, settings->grant_key_file,
                                 settings->catalog_password_file};
    for (size_t i = 0; i < CAIRN_COUNT(files); i++)
        if (cairn_file_is_shared(files[i]))
            cairn_log(WARN, "settings.secret_shared",
                      "file=\"%s\" cause=\"its group can read or write it; chmod 600 it unless "
                      "that is meant\"",
                      files[i]);
}

static enum cairn_code start(int argc, char **argv, struct cairn_config *config,
                             struct srv_settings *settings, const sigset_t *signals,
                             const struct srv_reindexing *reindexing, struct cairn_error *err) {
    bool done = false, only_migrate = cairn_config_take(&argc, argv, "--migrate");
    CAIRN_TRY(srv_settings_load(argc, argv, config, settings, &done, err));
    if (done) return CAIRN_OK;
    enum cairn_log_level level = CAIRN_LOG_INFO;
    CAIRN_TRY(cairn_log_level_parse(settings->log_level, &level, err));
    if (reindexing->wanted && level == CAIRN_LOG_INFO) level = CAIRN_LOG_WARN;
    enum cairn_log_format format = CAIRN_LOG_TEXT;
    CAIRN_TRY(cairn_log_format_parse(settings->log_format, &format, err));
    cairn_log_write_as(format);
    cairn_log_start("cairn-server", level, STDERR_FILENO);
    CAIRN_TRY(cairn_parent_follow(settings->parent, err));
    if (!settings->core_dumps) CAIRN_TRY(cairn_start_hide_memory(err));
    warn_of_shared(settings);
    struct srv server = {.settings = settings,
                         .clock = &cairn_clock_real,
                         .random = cairn_random,
                         .listening_ms = cairn_mono_ms()};
    enum cairn_code code = reindexing->wanted ? reindex(reindexing, &server, settings, err)
                           : only_migrate     ? migrate(&server, err)
                                              : serve_until_signal(&server, signals, err);
    take_down(&server);
    return code;
}

/* Parsing and freeing a large body holds the lock of the thread's arena for milliseconds. With the
 * default of 8 arenas a core, threads would share arenas on few cores. */
static void keep_arenas_apart(void) {
#ifdef M_ARENA_MAX
    (void)mallopt(M_ARENA_MAX, ALLOCATOR_ARENAS);
#endif
}

int main(int argc, char **argv) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* threads inherit it */
    cairn_start_signals();
    keep_arenas_apart();
    cairn_json_watch_memory();
    if (argc > 1 && !strcmp(argv[1], "--copy-catalog")) {
        pthread_sigmask(SIG_UNBLOCK, &signals, NULL); /* may be interrupted and resumed */
        return srv_copying_main(argc - 2, argv + 2);
    }
    if (argc > 1 && !strcmp(argv[1], "--backup-catalog")) {
        pthread_sigmask(SIG_UNBLOCK, &signals, NULL); /* the next backup cleans up */
        return srv_backup_main(argc - 2, argv + 2, srv_settings_data_dir);
    }
    struct cairn_error err = {0};
    struct cairn_config config = {0};
    struct srv_settings settings = {0};
    struct srv_reindexing reindexing;
    srv_reindexing_take(&argc, argv, &reindexing);
    /* may be interrupted and resumed */
    if (reindexing.wanted) pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
    enum cairn_code code = start(argc, argv, &config, &settings, &signals, &reindexing, &err);
    err.code = code;
    if (code && reindexing.wanted)
        srv_reindexing_tell(&reindexing, &err);
    else if (code)
        cairn_log_failed("cairn-server", settings.log_format, err.message);
    cairn_config_release(&config);
    return cairn_code_info(code)->exit_status;
}
