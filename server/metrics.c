/* SPDX-License-Identifier: Apache-2.0 */
/* The families of server/metrics.def, and the values of their labels. */
#include "server/metrics.h"

#include <cairn/cairn.h>

#include "api/wire/routes.h"
#include "common/process.h"
#include "server/db/catalog.h"
#include "server/ledger/policies.h"
#include "server/ledger/version_lists.h"

static const char *version_value(size_t index, size_t label) {
    (void)index, (void)label;
    return CAIRN_VERSION;
}

/* The last stands for requests that were refused before they had a route. */
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

static const char *query_value(size_t index, size_t label) {
    (void)label;
    return index == CAIRN_SRV_QUERY_LOOK ? "look" : "change";
}

static const char *limit_value(size_t index, size_t label) {
    (void)label;
    return index ? "address" : "token";
}

static const char *bound_value(size_t index, size_t label) {
    (void)label;
    return index == CAIRN_SRV_BOUND_ADDRESS ? "address" : "connections";
}

static const char *scope_value(size_t index, size_t label) {
    static const char *const texts[] = {[CAIRN_SRV_SCOPE_RUN] = "run",
                                        [CAIRN_SRV_SCOPE_PROJECT] = "project",
                                        [CAIRN_SRV_SCOPE_SERVER] = "server",
                                        [CAIRN_SRV_SCOPE_NONE] = "by-hand"};
    (void)label;
    return texts[index];
}

static const char *state_value(size_t index, size_t label) {
    (void)label;
    return cairn_srv_kind_text(index);
}

static const char *result_value(size_t index, size_t label) {
    static const char *const texts[] = {[CAIRN_SRV_RESULT_DELIVERED] = "delivered",
                                        [CAIRN_SRV_RESULT_FAILED] = "failed",
                                        [CAIRN_SRV_RESULT_DEAD] = "dead"};
    (void)label;
    return texts[index];
}

static const char *wait_value(size_t index, size_t label) {
    (void)index, (void)label;
    return "requests";
}

/* Nothing is counted there: the page is written from the catalog. */
static const char *run_value(size_t index, size_t label) {
    (void)index, (void)label;
    return "";
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
