/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics: the metrics of this server, named in server/metrics.def.
 *
 * Why:     handlers, jobs and the catalog count; one table defines and prints all metrics.
 * Promise: 1   no label holds the name of a run, a step, a version or a shard: the size of the page
 *              does not grow with the catalog.
 * Limits:  as in server/metrics.def.
 * Threads: as common/metrics.h.
 * Next:    docs/metrics.md.
 */
#pragma once

#include "common/metrics.h"

enum cairn_srv_metric {
#define METRIC(kind, name, labels, first, second, help) CAIRN_SRV_METRIC_##name,
#include "server/metrics.def"
#undef METRIC
    CAIRN_SRV_METRIC_COUNT
};

enum cairn_srv_bound { CAIRN_SRV_BOUND_ADDRESS, CAIRN_SRV_BOUND_CONNECTIONS, CAIRN_SRV_BOUNDS };

enum cairn_srv_result {
    CAIRN_SRV_RESULT_DELIVERED,
    CAIRN_SRV_RESULT_FAILED,
    CAIRN_SRV_RESULT_DEAD,
    CAIRN_SRV_RESULTS
};

enum cairn_code cairn_srv_metrics_new(struct cairn_metrics **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Index of an HTTP status on its axis; unlisted ones share the last. */
size_t cairn_srv_metric_status(unsigned status);
/* Counts and logs a finding of waiters.h#5; each is a fault. */
void cairn_srv_metrics_late(void *metrics);
