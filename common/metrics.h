/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics: counters, gauges and histograms of a daemon, as text for Prometheus.
 *
 * Why:     a stall in a log is found only by reading logs; a scraped histogram raises an alert.
 *          One table per daemon defines the series, their documentation and their test.
 * Promise: 1   counting takes no lock, allocates nothing and never waits; a NULL table counts
 *              nothing.
 *          2   the output is text format 0.0.4: each family once, with its HELP and TYPE, its
 *              samples together, no series twice; the count of a histogram is its last bucket.
 *          3   label values come from axes of fixed size, so the number of series is bounded by the
 *              table.
 * Limits:  two axes a family, three labels; values are integers, durations counted in microseconds.
 * Threads: counting and writing from any thread.
 * Next:    server/metrics.def, uploader/metrics.def; docs/metrics.md.
 */
#pragma once

#include <stdatomic.h>

#include "common/buf.h"

#define CAIRN_METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

enum cairn_metric_kind { CAIRN_METRIC_COUNTER, CAIRN_METRIC_GAUGE, CAIRN_METRIC_HISTOGRAM };
const char *cairn_metric_kind_text(enum cairn_metric_kind kind);

/* One label, or several that vary together. */
struct cairn_metric_axis {
    size_t count;  /* number of values */
    size_t labels; /* number of labels; 0: no axis */
    const char *(*value)(size_t index, size_t label);
};
struct cairn_metric {
    enum cairn_metric_kind kind;
    const char *name;   /* without the prefix "cairn_" */
    const char *labels; /* comma-separated names, those of the first axis first */
    const struct cairn_metric_axis *axes[2];
    const char *help;
};
struct cairn_metrics;

enum cairn_code cairn_metrics_new(const struct cairn_metric *rows, size_t count,
                                  struct cairn_metrics **ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
void cairn_metrics_free(struct cairn_metrics *metrics); /* NULL is fine */

/* One series: a family and an index on each of its axes, 0 if there is none. */
struct cairn_metric_at {
    size_t family, first, second;
};
/* For a counter. */
void cairn_metrics_add(struct cairn_metrics *metrics, struct cairn_metric_at at, uint64_t more);
/* For gauges; a gauge that was never set is omitted. */
void cairn_metrics_set(struct cairn_metrics *metrics, struct cairn_metric_at at, int64_t value);
void cairn_metrics_shift(struct cairn_metrics *metrics, struct cairn_metric_at at, int64_t by);
/* For a histogram. */
void cairn_metrics_observe(struct cairn_metrics *metrics, struct cairn_metric_at at,
                           uint64_t duration_us);
enum cairn_code cairn_metrics_write(struct cairn_metrics *metrics, struct cairn_buf *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
