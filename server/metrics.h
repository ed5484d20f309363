/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics: what this server counts, by the names of server/metrics.def.
 *
 * Why:     handlers, jobs and the catalog count; one table says what, and makes the page.
 * Promise: 1   no label holds the name of a run, a step, a version or a shard: what a server
 *              answers does not grow with its catalog.
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

/* Which bound of http/ was met. */
enum cairn_srv_bound { CAIRN_SRV_BOUND_ADDRESS, CAIRN_SRV_BOUND_CONNECTIONS, CAIRN_SRV_BOUNDS };

/* What became of telling a webhook of an event. */
enum cairn_srv_result {
    CAIRN_SRV_RESULT_DELIVERED,
    CAIRN_SRV_RESULT_FAILED,
    CAIRN_SRV_RESULT_DEAD,
    CAIRN_SRV_RESULTS
};

enum cairn_code cairn_srv_metrics_new(struct cairn_metrics **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* The place of an answer on the axis of codes; those without one share the last. */
size_t cairn_srv_metric_status(unsigned status);
/* A finding of waiters.h#5: counted, and in the log, since each is a fault. */
void cairn_srv_metrics_late(void *metrics);
