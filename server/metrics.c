/* SPDX-License-Identifier: Apache-2.0 */
/* The families of server/metrics.def, and the values of their labels. */
#include "server/metrics.h"

#include <cairn/cairn.h>
#include <inttypes.h>

#include "api/wire/routes.h"
#include "common/process.h"
#include "server/copies/damage.h"
#include "server/db/catalog.h"
#include "server/http/request.h"
#include "server/ledger/policies.h"
#include "server/ledger/runs.h"
#include "server/ledger/version_lists.h"

static const char *version_value(size_t index, size_t label) {
    (void)index, (void)label;
    return CAIRN_VERSION;
}

/* The last value: requests refused before routing. */
static const char *route_value(size_t index, size_t label) {
    if (index == CAIRN_ROUTE_COUNT) return "none";
    const struct cairn_route *route = cairn_route_at((enum cairn_route_id)index);
    return label ? route->method : route->name;
}

static const struct {
    unsigned status;
    const char *text;
} statuses[] = {{200, "200"}, {201, "201"}, {202, "202"}, {204, "204"}, {206, "206"}, {304, "304"},
                {307, "307"}, {400, "400"}, {401, "401"}, {403, "403"}, {404, "404"}, {405, "405"},
                {408, "408"}, {409, "409"}, {410, "410"}, {411, "411"}, {412, "412"}, {413, "413"},
                {414, "414"}, {415, "415"}, {416, "416"}, {422, "422"}, {423, "423"}, {428, "428"},
                {429, "429"}, {431, "431"}, {500, "500"}, {501, "501"}, {502, "502"}, {503, "503"},
                {504, "504"}, {505, "505"}, {507, "507"}, {0, "other"}};

size_t cairn_srv_metric_status(unsigned status) {
    size_t i = 0;
    while (i + 1 < CAIRN_COUNT(statuses) && statuses[i].status != status) i++;
    return i;
}

static const char *status_value(size_t index, size_t label) {
    (void)label;
    return statuses[index].text;
}

#define TEXTS(name, ...)                                                                           \
    static const char *name(size_t index, size_t label) {                                          \
        static const char *const texts[] = {__VA_ARGS__};                                          \
        (void)label;                                                                               \
        return texts[index];                                                                       \
    }
TEXTS(query_value, [CAIRN_SRV_QUERY_LOOK] = "look", [CAIRN_SRV_QUERY_CHANGE] = "change")
TEXTS(limit_value, "token", "address")
TEXTS(bound_value, [CAIRN_SRV_BOUND_ADDRESS] = "address",
      [CAIRN_SRV_BOUND_CONNECTIONS] = "connections")
TEXTS(scope_value, [CAIRN_SRV_SCOPE_RUN] = "run", [CAIRN_SRV_SCOPE_PROJECT] = "project",
      [CAIRN_SRV_SCOPE_SERVER] = "server", [CAIRN_SRV_SCOPE_NONE] = "by-hand")
TEXTS(result_value, [CAIRN_SRV_RESULT_DELIVERED] = "delivered",
      [CAIRN_SRV_RESULT_FAILED] = "failed", [CAIRN_SRV_RESULT_DEAD] = "dead")
TEXTS(wait_value, "requests")
TEXTS(run_value, "") /* no counters: written from the catalog */

static const char *state_value(size_t index, size_t label) {
    (void)label;
    return cairn_srv_kind_text(index);
}

static const struct cairn_metric_axis axis_NONE = {.count = 1},
                                      axis_VERSIONS = {1, 1, version_value},
                                      axis_ROUTES = {CAIRN_ROUTE_COUNT + 1, 2, route_value},
                                      axis_STATUSES = {CAIRN_COUNT(statuses), 1, status_value},
                                      axis_QUERIES = {CAIRN_SRV_QUERIES, 1, query_value},
                                      axis_BOUNDS = {CAIRN_SRV_BOUNDS, 1, bound_value},
                                      axis_LIMITS = {2, 1, limit_value},
                                      axis_RESULTS = {CAIRN_SRV_RESULTS, 1, result_value},
                                      axis_WAITS = {1, 1, wait_value},
                                      axis_RUNS = {1, 2, run_value},
                                      axis_SCOPES = {CAIRN_SRV_SCOPE_NONE + 1, 1, scope_value},
                                      axis_STATES = {CAIRN_SRV_KINDS, 1, state_value};

static const struct cairn_metric rows[] = {
#define METRIC(kind, name, labels, first, second, help)                                            \
    {CAIRN_METRIC_##kind, #name, labels, {&axis_##first, &axis_##second}, help},
#include "server/metrics.def"
#undef METRIC
};

enum cairn_code cairn_srv_metrics_new(struct cairn_metrics **ret, struct cairn_error *err) {
    CAIRN_TRY(cairn_metrics_new(rows, CAIRN_COUNT(rows), ret, err));
    cairn_metrics_set(*ret, (struct cairn_metric_at){.family = CAIRN_SRV_METRIC_build_info}, 1);
    return CAIRN_OK;
}

void cairn_srv_metrics_late(void *metrics) {
    const struct cairn_metric_at at = {.family = CAIRN_SRV_METRIC_late_waits_total};
    cairn_metrics_add(metrics, at, 1);
    cairn_late_tell(wait_value(0, 0));
}

/* ---- GET /metrics ----
 *
 * Counters, and gauges computed now: versions by kind, and freezes. */

#define COUNT_AGAIN_MS 60000 /* reads every row of a version that is not gone */

/* Several threads may answer scrapes at once; one of them counts. */
static bool is_due(struct cairn_srv *server) {
    uint64_t now_ms = cairn_srv_mono_ms(server), at_ms = server->counted_ms;
    if (at_ms && now_ms < at_ms + COUNT_AGAIN_MS) return false;
    return atomic_compare_exchange_strong(&server->counted_ms, &at_ms, now_ms ? now_ms : 1);
}

static enum cairn_code count(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    return cairn_srv_kinds_count(tx, argument, err);
}

static void set(struct cairn_srv *server, enum cairn_srv_metric family, size_t at, uint64_t value) {
    cairn_metrics_set(server->metrics, (struct cairn_metric_at){family, at, 0}, (int64_t)value);
}

/* If the catalog is unreadable, gauges age and the scrape succeeds: other metrics matter most
 * then. */
static void count_versions(struct cairn_srv *server) {
    struct cairn_srv_kind_count kinds[CAIRN_SRV_KINDS] = {0};
    struct cairn_error unused = {0};
    if (!is_due(server)) return;
    if (cairn_srv_catalog_read(server->catalog, count, kinds, &unused)) return;
    for (size_t i = 0; i < CAIRN_SRV_KINDS; i++) {
        if (i == CAIRN_STATE_GONE) continue;
        set(server, CAIRN_SRV_METRIC_checkpoints, i, kinds[i].versions);
        set(server, CAIRN_SRV_METRIC_stored_bytes, i, kinds[i].bytes);
    }
}

/* ---- runs as labels, if configured ---- */

struct runs {
    const struct cairn_srv_caller *caller;
    struct cairn_buf text;
    size_t limit;
};

/* Names of projects and runs need no escaping. P16: any token may read the page; runs are limited
 * to the token's projects. */
static enum cairn_code add_run(void *argument, const char *project, const char *run,
                               int64_t committed_ms, struct cairn_error *err) {
    struct runs *runs = argument;
    if (!cairn_srv_caller_may(runs->caller, CAIRN_SCOPE_READ, project)) return CAIRN_OK;
    return cairn_buf_printf(&runs->text, err,
                            "cairn_last_commit_timestamp_seconds{project=\"%s\",run=\"%s\"} "
                            "%" PRId64 ".%03d\n",
                            project, run, committed_ms / 1000, (int)(committed_ms % 1000));
}

static enum cairn_code look_at_runs(struct cairn_srv_tx *tx, void *argument,
                                    struct cairn_error *err) {
    struct runs *runs = argument;
    cairn_buf_clear(&runs->text);
    return cairn_srv_runs_last_commits(tx, runs->limit, add_run, runs, err);
}

/* Appended to the page's last family, theirs; left out if the catalog cannot be read. */
static enum cairn_code write_runs(const struct cairn_srv_request *request, struct cairn_buf *ret,
                                  struct cairn_error *err) {
    struct cairn_srv *server = request->server;
    struct runs runs = {.caller = &request->caller, .limit = server->settings->metrics_runs_max};
    struct cairn_error unused = {0};
    enum cairn_code code = CAIRN_OK;
    if (runs.limit && !cairn_srv_catalog_read(server->catalog, look_at_runs, &runs, &unused))
        code = cairn_buf_append(ret, runs.text.data ? runs.text.data : "", runs.text.size, err);
    cairn_buf_release(&runs.text);
    return code;
}

_Static_assert(CAIRN_SRV_METRIC_last_commit_timestamp_seconds == CAIRN_SRV_METRIC_COUNT - 1,
               "its samples are written behind all others");

enum cairn_code cairn_srv_on_metrics(struct cairn_srv_request *request,
                                     struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct cairn_srv *server = request->server;
    char damage[CAIRN_SRV_DAMAGE_BYTES];
    if (!server->metrics) return cairn_fail(err, CAIRN_UNSUPPORTED, "this server counts nothing");
    count_versions(server);
    set(server, CAIRN_SRV_METRIC_damaged_copies, 0, cairn_srv_damage_text(server, damage));
    set(server, CAIRN_SRV_METRIC_catalog_uncopied, 0, server->uncopied);
    set(server, CAIRN_SRV_METRIC_catalog_log_bytes, 0,
        cairn_srv_catalog_log_bytes(server->catalog));
    set(server, CAIRN_SRV_METRIC_catalog_frozen, 0, cairn_srv_thawed(server, NULL) != CAIRN_OK);
    set(server, CAIRN_SRV_METRIC_frozen_runs, 0, server->frozen_runs);
    reply->content_type = CAIRN_METRICS_TYPE;
    CAIRN_TRY(cairn_metrics_write(server->metrics, &reply->body, err));
    return write_runs(request, &reply->body, err);
}
