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

enum srv_metric {
#define METRIC(kind, name, labels, first, second, help) SRV_METRIC_##name,
#include "server/metrics.def"
#undef METRIC
    SRV_METRIC_COUNT
};
/* Where a metric without labels is counted. */
#define SRV_METRIC(name) ((struct cairn_metric_at){.family = SRV_METRIC_##name})

enum srv_bound { SRV_BOUND_ADDRESS, SRV_BOUND_CONNECTIONS, SRV_BOUNDS };

enum srv_result { SRV_RESULT_DELIVERED, SRV_RESULT_FAILED, SRV_RESULT_DEAD, SRV_RESULTS };

enum cairn_code srv_metrics_new(struct cairn_metrics **ret, struct cairn_error *err) CAIRN_MUST_USE;
/* Index of an HTTP status on its axis; unlisted ones share the last. */
size_t srv_metric_status(unsigned status);
/* Counts and logs a finding of waiters.h#5; each is a fault. */
void srv_metrics_late(void *metrics);
