/* SPDX-License-Identifier: Apache-2.0 */
/* The families of server/metrics.def, and the values of their labels. */
#include "server/metrics.h"

#include <cairn/cairn.h>
#include <inttypes.h>

#include "common/process.h"
#include "server/copies/damage.h"
#include "server/http/request.h"
#include "server/ledger/policies.h"
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

size_t srv_metric_status(unsigned status) {
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
TEXTS(query_value, [SRV_QUERY_LOOK] = "look", [SRV_QUERY_CHANGE] = "change")
TEXTS(limit_value, "token", "address")
TEXTS(bound_value, [SRV_BOUND_ADDRESS] = "address", [SRV_BOUND_CONNECTIONS] = "connections")
TEXTS(scope_value, [SRV_SCOPE_RUN] = "run", [SRV_SCOPE_PROJECT] = "project",
      [SRV_SCOPE_SERVER] = "server", [SRV_SCOPE_NONE] = "by-hand")
TEXTS(result_value, [SRV_RESULT_DELIVERED] = "delivered", [SRV_RESULT_FAILED] = "failed",
      [SRV_RESULT_DEAD] = "dead")
TEXTS(wait_value, "requests")
TEXTS(run_value, "") /* no counters: written from the catalog */

static const char *state_value(size_t index, size_t label) {
    (void)label;
    return srv_kind_text(index);
}

static const struct cairn_metric_axis axis_NONE = {.count = 1},
                                      axis_VERSIONS = {1, 1, version_value},
                                      axis_ROUTES = {CAIRN_ROUTE_COUNT + 1, 2, route_value},
                                      axis_STATUSES = {CAIRN_COUNT(statuses), 1, status_value},
                                      axis_QUERIES = {SRV_QUERIES, 1, query_value},
                                      axis_BOUNDS = {SRV_BOUNDS, 1, bound_value},
                                      axis_LIMITS = {2, 1, limit_value},
                                      axis_RESULTS = {SRV_RESULTS, 1, result_value},
                                      axis_WAITS = {1, 1, wait_value},
                                      axis_RUNS = {1, 2, run_value},
                                      axis_SCOPES = {SRV_SCOPE_NONE + 1, 1, scope_value},
                                      axis_STATES = {SRV_KINDS, 1, state_value};

static const struct cairn_metric rows[] = {
#define METRIC(kind, name, labels, first, second, help)                                            \
    {CAIRN_METRIC_##kind, #name, labels, {&axis_##first, &axis_##second}, help},
#include "server/metrics.def"
#undef METRIC
};

enum cairn_code srv_metrics_new(struct cairn_metrics **ret, struct cairn_error *err) {
    CAIRN_TRY(cairn_metrics_new(rows, CAIRN_COUNT(rows), ret, err));
    cairn_metrics_set(*ret, SRV_METRIC(build_info), 1);
    return CAIRN_OK;
}

void srv_metrics_late(void *metrics) {
    const struct cairn_metric_at at = {.family = SRV_METRIC_late_waits_total};
    cairn_metrics_add(metrics, at, 1);
    cairn_late_tell(wait_value(0, 0));
}

/* ---- GET /metrics ----
 *
 * Counters, and gauges computed now: versions by kind, and freezes. */

#define COUNT_AGAIN_MS 60000 /* reads every row of a version that is not gone */

/* Several threads may answer scrapes at once; one of them counts. */
static bool is_due(struct srv *server) {
    uint64_t now_ms = srv_mono_ms(server), at_ms = server->counted_ms;
    if (at_ms && now_ms < at_ms + COUNT_AGAIN_MS) return false;
    return atomic_compare_exchange_strong(&server->counted_ms, &at_ms, now_ms ? now_ms : 1);
}

static void set(struct srv *server, enum srv_metric family, size_t at, uint64_t value) {
    cairn_metrics_set(server->metrics, (struct cairn_metric_at){family, at, 0}, (int64_t)value);
}

/* If the catalog is unreadable, gauges age and the scrape succeeds: other metrics matter most
 * then. */
static void count_versions(struct srv *server) {
    struct srv_kind_count kinds[SRV_KINDS] = {0};
    SRV_AUTO(look) look = {0};
    if (!is_due(server) || srv_look_begin(server->catalog, &look, NULL) ||
        srv_kinds_count(look.tx, kinds, NULL))
        return;
    for (size_t i = 0; i < SRV_KINDS; i++) {
        if (i == CAIRN_STATE_GONE) continue;
        set(server, SRV_METRIC_checkpoints, i, kinds[i].versions);
        set(server, SRV_METRIC_stored_bytes, i, kinds[i].bytes);
    }
}

/* ---- runs as labels, if configured ---- */

/* Names of projects and runs need no escaping. P16: any token may read the page; runs are limited
 * to the token's projects. */
static enum cairn_code print_runs(const struct srv_request *request, struct cairn_buf *ret,
                                  struct cairn_error *err) {
    size_t limit = request->server->settings->metrics_runs_max;
    if (!limit) return CAIRN_OK;
    SRV_LOOK(look, request->server->catalog, err);
    SRV_GET(rows, commits, srv_runs_last_commits(look.tx, limit, &commits, err));
    SQL_EACH(&commits, err) {
        const struct srv_last_commit row = srv_row_last_commit(&commits);
        if (!row.committed_ms) break;
        if (!srv_caller_may(&request->caller, CAIRN_SCOPE_READ, row.name.project)) continue;
        CAIRN_TRY(cairn_buf_printf(ret, err,
                                   "cairn_last_commit_timestamp_seconds{project=\"%s\",run=\"%s\"} "
                                   "%" PRId64 ".%03d\n",
                                   row.name.project, row.name.run, row.committed_ms / 1000,
                                   (int)(row.committed_ms % 1000)));
    }
    return CAIRN_OK;
}

_Static_assert(SRV_METRIC_last_commit_timestamp_seconds == SRV_METRIC_COUNT - 1,
               "its samples are written behind all others");

SRV_HANDLER(metrics) {
    struct srv *server = request->server;
    char damage[SRV_DAMAGE_BYTES];
    if (!server->metrics) return cairn_fail(err, CAIRN_UNSUPPORTED, "this server counts nothing");
    count_versions(server);
    set(server, SRV_METRIC_damaged_copies, 0, srv_damage_text(server, damage));
    set(server, SRV_METRIC_catalog_uncopied, 0, server->uncopied);
    set(server, SRV_METRIC_catalog_log_bytes, 0, srv_catalog_log_bytes(server->catalog));
    set(server, SRV_METRIC_catalog_frozen, 0, srv_thawed(server, NULL) != CAIRN_OK);
    set(server, SRV_METRIC_frozen_runs, 0, server->frozen_runs);
    reply->content_type = CAIRN_METRICS_TYPE;
    CAIRN_TRY(cairn_metrics_write(server->metrics, &reply->body, err));
    /* Of the page's last family; left out if the catalog cannot be read. */
    CAIRN_AUTO(buf) runs = {0};
    if (print_runs(request, &runs, NULL)) return CAIRN_OK;
    return cairn_buf_append(&reply->body, runs.data ? runs.data : "", runs.size, err);
}
