/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and reads back one row and one object at intervals; see health.h. */
#include "server/health.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "common/process.h"
#include "server/ledger/leases.h"
#include "store/open.h"

#define REQUEST_MS 5000
#define DEFAULT_INTERVAL_MS 30000 /* for signs without an interval */
#define AGAIN_MS 1000             /* between checks while calls fail */
#define TROUBLE_MS 5000           /* at most, after a failed check */
#define LATE_MS                                                                                    \
    (4 * REQUEST_MS) /* of a check: three requests of the store, and what is in their way */

struct look {
    enum cairn_code code;
    uint64_t at_ms;
    struct cairn_error why;
};
struct srv_health {
    struct srv *server;
    struct cairn_store_worker *worker;
    struct cairn_thread thread;
    struct cairn_lock lock;
    struct {
        struct look looks[SRV_CHECKS];
        struct look doubts[SRV_CHECKS]; /* a call that failed after the check began */
        uint64_t calls;
        bool stopped;
    } locked;
};

struct mark {
    const char *server;
    char text[CAIRN_UUID_TEXT_BYTES];
};

SRV_CHANGE(write_mark, struct mark *mark) {
    return srv_server_mark(tx, mark->server, mark->text, err);
}

static enum cairn_code look_at_catalog(struct srv *server, struct cairn_error *err) {
    struct mark mark = {.server = srv_catalog_server(server->catalog)};
    /* A server frozen at its start has not joined the catalog, and has no row to mark. */
    bool marks = !server->frozen, found = false;
    if (marks) cairn_uuid_random(mark.text);
    if (marks) CAIRN_TRY(srv_catalog_write(server->catalog, write_mark, &mark, err));
    SRV_LOOK(look, server->catalog, err);
    CAIRN_TRY(srv_server_mark_is(look.tx, mark.server, mark.text, &found, err));
    if (found || !marks) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CORRUPT, "a row that was just committed is not there");
}

static enum cairn_code store_request(struct cairn_store_worker *worker,
                                     struct cairn_store_request *request, struct cairn_error *err) {
    request->deadline_ms = cairn_mono_ms() + REQUEST_MS;
    return cairn_store_perform(worker, request, err);
}

/* The operator's remedy; no restart is needed. */
static const char *advice(const struct cairn_error *why) {
    if (why->code == CAIRN_NO_SPACE) return "make room there";
    if (why->os_errno == EROFS) return "mount it read-write";
    if (why->os_errno == EIO) return "see to its disk";
    return "cairn doctor says more";
}

static enum cairn_code within_store(const struct cairn_store_worker *worker, const char *what,
                                    enum cairn_code code, struct cairn_error *err) {
    code = cairn_within(err, code, "%s; %s", what, advice(err));
    return cairn_within(err, code, "store %s", cairn_store_url(worker->store));
}

static size_t write_sign(char ret[SRV_HEALTH_BYTES_MAX], uint64_t interval_ms,
                         uint64_t stopped_at) {
    char mark[CAIRN_UUID_TEXT_BYTES];
    cairn_uuid_random(mark);
    int size = snprintf(ret, SRV_HEALTH_BYTES_MAX,
                        "{\"cairn_health\":1,\"mark\":\"%s\",\"interval_ms\":%" PRIu64
                        ",\"stopped_at\":%" PRIu64 "}",
                        mark, interval_ms, stopped_at);
    return (size_t)size;
}

enum cairn_code srv_sign_read(struct cairn_store_worker *worker, struct srv_sign *ret,
                              struct cairn_error *err) {
    struct cairn_key health;
    CAIRN_AUTO(buf) text = {.limit = SRV_HEALTH_BYTES_MAX};
    CAIRN_AUTO_JSON json_t *json = NULL;
    cairn_key_health(&health);
    CAIRN_AUTO(store_listing) listing = {0};
    struct cairn_store_request list = {
        .op = CAIRN_STORE_LIST, .key = health.text, .listing = &listing};
    CAIRN_TRY(cairn_store_perform(worker, &list, err));
    if (!listing.count) return cairn_fail(err, CAIRN_NOT_FOUND, "there is no %s", health.text);
    CAIRN_TRY(cairn_store_get_small(worker, health.text, &text, err));
    CAIRN_TRY(cairn_json_parse(cairn_buf_view(&text), (struct cairn_json_limits){0}, &json, err));
    const char *mark = json_string_value(json_object_get(json, "mark"));
    json_int_t interval_ms = json_integer_value(json_object_get(json, "interval_ms"));
    json_int_t stopped_at = json_integer_value(json_object_get(json, "stopped_at"));
    *ret = (struct srv_sign){.interval_ms =
                                 interval_ms > 0 ? (uint64_t)interval_ms : DEFAULT_INTERVAL_MS,
                             .stopped_at = stopped_at > 0 ? (uint64_t)stopped_at : 0,
                             .modified_ms = listing.entries[0].modified_ms};
    if (mark && cairn_text_copy(ret->mark, sizeof(ret->mark), mark)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CORRUPT, "%s is none", health.text);
}

/* Another server of the store may replace the object between the put and the read. */
static enum cairn_code look_at_store(const struct srv *server, struct cairn_store_worker *worker,
                                     struct cairn_error *err) {
    struct cairn_key store_json, health;
    char text[SRV_HEALTH_BYTES_MAX], back[sizeof(text)] = "";
    cairn_key_store_json(&store_json);
    cairn_key_health(&health);
    size_t size = write_sign(text, server->settings->check_interval_ms, 0);
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = store_json.text};
    struct cairn_store_request put = {
        .op = CAIRN_STORE_PUT, .key = health.text, .body = {text, size}};
    struct cairn_store_request get = {
        .op = CAIRN_STORE_GET, .key = health.text, .length = size, .into = back};
    enum cairn_code code = store_request(worker, &head, err);
    if (code) return within_store(worker, "its .cairn/store.json cannot be read", code, err);
    code = store_request(worker, &put, err);
    if (code) return within_store(worker, "it cannot be written", code, err);
    code = store_request(worker, &get, err);
    if (code) return within_store(worker, "it cannot be read", code, err);
    if (!strncmp(back, text, 26)) return CAIRN_OK;
    code = cairn_fail(err, CAIRN_CORRUPT, "what was just put into it comes back changed");
    return within_store(worker, "it is damaged", code, err);
}

static enum cairn_code look(struct srv *server, struct cairn_store_worker *worker,
                            enum srv_check check, struct cairn_error *err) {
    return check == SRV_CHECK_CATALOG ? look_at_catalog(server, err)
                                      : look_at_store(server, worker, err);
}

static const char *const names[SRV_CHECKS] = {"catalog", "store"};

/* calls: failed calls when the check began; a later failure requires another check. */
static void note(struct srv_health *health, enum srv_check check, const struct look *found,
                 uint64_t calls) {
    bool changed = false;
    {
        CAIRN_HOLD(&health->lock);
        changed = health->locked.looks[check].code != found->code;
        health->locked.looks[check] = *found;
        if (health->locked.calls == calls) health->locked.doubts[check] = (struct look){0};
    }
    if (changed && found->code)
        cairn_log(WARN, "health.failed", "check=%s cause=\"%s\"", names[check], found->why.message);
    else if (changed)
        cairn_log(INFO, "health.well", "check=%s", names[check]);
}

/* True on the checking thread, whose failed calls are the check's own result. */
static _Thread_local bool looking;

static void doubt(struct srv_health *health, enum srv_check check, const struct cairn_error *why) {
    if (looking) return;
    CAIRN_HOLD(&health->lock);
    if (health->locked.stopped) return;
    health->locked.doubts[check] =
        (struct look){.code = why->code, .at_ms = cairn_mono_ms(), .why = *why};
    health->locked.calls++;
    cairn_thread_wake(&health->thread);
}

static void doubt_catalog(void *owner, const struct cairn_error *why) {
    doubt(owner, SRV_CHECK_CATALOG, why);
}

/* A missing, existing, larger or different object is no fault of the store. */
static void doubt_store(void *owner, const struct cairn_error *why) {
    bool failed = why->code == CAIRN_UNAVAILABLE || why->code == CAIRN_TIMEOUT ||
                  why->code == CAIRN_NO_SPACE || why->code == CAIRN_IO ||
                  why->code == CAIRN_FORBIDDEN || why->code == CAIRN_STORE;
    if (failed) doubt(owner, SRV_CHECK_STORE, why);
}

static uint64_t failed_calls(struct srv_health *health) {
    CAIRN_HOLD(&health->lock);
    return health->locked.calls;
}

static void look_at_all(struct srv_health *health) {
    for (int i = 0; i < SRV_CHECKS; i++) {
        struct look found = {0};
        enum srv_check check = (enum srv_check)i;
        uint64_t calls = failed_calls(health);
        found.code = look(health->server, health->worker, check, &found.why);
        found.at_ms = cairn_mono_ms();
        note(health, check, &found, calls);
    }
}

static uint64_t pause_ms(struct srv_health *health) {
    uint64_t pause = health->server->settings->check_interval_ms;
    CAIRN_HOLD(&health->lock);
    for (int i = 0; i < SRV_CHECKS; i++) {
        if (health->locked.looks[i].code) pause = cairn_min_u64(pause, TROUBLE_MS);
        if (health->locked.doubts[i].code) pause = cairn_min_u64(pause, AGAIN_MS);
    }
    return pause;
}

static void run(struct cairn_thread *thread, void *owner) {
    struct srv_health *health = owner;
    looking = true;
    for (bool on = true; on;) {
        look_at_all(health);
        uint64_t looked_ms = cairn_mono_ms();
        while (on && cairn_mono_ms() < looked_ms + pause_ms(health))
            on = cairn_thread_wait(thread, looked_ms + pause_ms(health));
    }
}

enum cairn_code srv_health_new(struct srv *server, struct srv_health **ret,
                               struct cairn_error *err) {
    struct srv_health *health = calloc(1, sizeof(*health));
    if (!health) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the checks");
    health->server = server;
    cairn_lock_init(&health->lock, CAIRN_LOCK_server_health);
    /* Startup has just probed catalog and store, so the first check is due one interval from
     * now. */
    for (int i = 0; i < SRV_CHECKS; i++) health->locked.looks[i].at_ms = cairn_mono_ms();
    health->thread = (struct cairn_thread){.name = "cairn-health", .run = run, .owner = health};
    enum cairn_code code = cairn_store_worker_new(server->store, &health->worker, err);
    if (!code) code = cairn_thread_start(&health->thread, err);
    if (code) {
        srv_health_free(health);
        return code;
    }
    srv_catalog_set_failed(server->catalog, doubt_catalog, health);
    cairn_store_set_failed(server->store, doubt_store, health);
    *ret = health;
    return CAIRN_OK;
}

void srv_health_stop(struct srv_health *health) {
    if (!health) return;
    {
        CAIRN_HOLD(&health->lock);
        health->locked.stopped = true;
    }
    cairn_thread_stop(&health->thread);
}

/* Spares a reindex the wait for the sign of a stopped server; best effort. */
static void say_stopped(const struct srv_health *health) {
    char text[SRV_HEALTH_BYTES_MAX];
    struct cairn_store_record record;
    struct cairn_key key;
    struct cairn_error why = {0};
    if (cairn_store_record_get(health->worker, 0, &record, &why)) return;
    cairn_key_health(&key);
    size_t size = write_sign(text, health->server->settings->check_interval_ms, record.generation);
    struct cairn_store_request put = {.op = CAIRN_STORE_PUT, .key = key.text, .body = {text, size}};
    if (store_request(health->worker, &put, &why))
        cairn_log(DEBUG, "health.stop_unsaid", "cause=\"%s\"", why.message);
}

void srv_health_free(struct srv_health *health) {
    if (!health) return;
    bool well = !health->locked.looks[SRV_CHECK_STORE].code;
    srv_health_stop(health);
    if (well && health->worker) say_stopped(health);
    if (health->worker) cairn_store_worker_free(health->worker);
    cairn_lock_release(&health->lock);
    free(health);
}

/* doubt: a call that failed since; code CAIRN_OK: none. */
static void describe(const struct look *found, const struct look *doubt, uint64_t late_ms,
                     struct srv_found *ret) {
    if (!found->code && doubt->code) found = doubt;
    ret->age_ms = cairn_passed_ms(cairn_mono_ms(), found->at_ms);
    ret->ok = !found->code && ret->age_ms <= late_ms;
    (void)cairn_text_copy(ret->text, sizeof(ret->text), found->code ? found->why.message : "ok");
    if (found->code || ret->ok) return;
    snprintf(ret->text, sizeof(ret->text), "the check has not ended for %" PRIu64 " s",
             ret->age_ms / 1000);
}

void srv_health_last(struct srv *server, struct cairn_store_worker *worker,
                     struct srv_found ret[SRV_CHECKS]) {
    for (int i = 0; i < SRV_CHECKS; i++) {
        struct look found = {0}, doubted = {0};
        if (server->health) {
            CAIRN_HOLD(&server->health->lock);
            found = server->health->locked.looks[i];
            doubted = server->health->locked.doubts[i];
        } else {
            found.code = look(server, worker, (enum srv_check)i, &found.why);
            found.at_ms = cairn_mono_ms();
        }
        describe(&found, &doubted, server->settings->check_interval_ms + LATE_MS, &ret[i]);
    }
}
