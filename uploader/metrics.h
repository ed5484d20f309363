/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics: what this uploader counts, by the names of uploader/metrics.def.
 *
 * Why:     saves, senders and readers count; one table says what, and makes the page.
 * Promise: 1   no label holds the name of a run, a step, a version or a shard.
 * Limits:  as in uploader/metrics.def.
 * Threads: as common/metrics.h.
 * Next:    uploader/port/port.h; docs/metrics.md.
 */
#pragma once

#include "common/metrics.h"
#include "store/store.h"

enum cairn_up_metric {
#define METRIC(kind, name, labels, first, second, help) CAIRN_UP_METRIC_##name,
#include "uploader/metrics.def"
#undef METRIC
};
#define CAIRN_UP_METRIC(name) ((struct cairn_metric_at){.family = CAIRN_UP_METRIC_##name})

/* Of slab_bytes. */
enum cairn_up_slab_use {
    CAIRN_UP_SLAB_FREE,
    CAIRN_UP_SLAB_HELD,
    CAIRN_UP_SLAB_KEPT,
    CAIRN_UP_SLAB_USES
};

/* Of late_waits_total: threads that are woken when they have work, and look now and then anyway. */
enum cairn_up_wait {
    CAIRN_UP_WAIT_SENDERS,
    CAIRN_UP_WAIT_OUTBOX,
    CAIRN_UP_WAIT_WATCHERS,
    CAIRN_UP_WAIT_READERS,
    CAIRN_UP_WAIT_PEERS,
    CAIRN_UP_WAIT_PARTNERS,
    CAIRN_UP_WAITS
};

/* Of restore_duration_seconds. */
enum cairn_up_restore_end {
    CAIRN_UP_RESTORE_RELEASED,
    CAIRN_UP_RESTORE_LEFT,
    CAIRN_UP_RESTORE_ENDS
};

/* Of one that has ended: its repeated tries, and the failure where it is one. */
static inline void cairn_up_metrics_tell(struct cairn_metrics *metrics,
                                         const struct cairn_store_request *request) {
    for (size_t i = 0; i < CAIRN_RETRY_OUTCOMES; i++) {
        if (!request->retried[i]) continue;
        cairn_metrics_add(metrics, (struct cairn_metric_at){CAIRN_UP_METRIC_retries_total, i, 0},
                          request->retried[i]);
    }
    if (request->code && request->code != CAIRN_NOT_FOUND && request->code != CAIRN_CANCELLED)
        cairn_metrics_add(metrics,
                          (struct cairn_metric_at){CAIRN_UP_METRIC_store_errors_total, request->op,
                                                   request->code},
                          1);
}

/* Counted, and in the log, since each is a fault (common/late.h). metrics may be NULL. */
void cairn_up_metrics_late(struct cairn_metrics *metrics, enum cairn_up_wait wait);
enum cairn_code cairn_up_metrics_new(struct cairn_metrics **ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
