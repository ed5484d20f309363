/* SPDX-License-Identifier: Apache-2.0 */
/* Counters are 64-bit atomic cells; the text is made from them on request. */
#include "common/metrics.h"

#include <inttypes.h>
#include <stdlib.h>

#define UNSET INT64_MIN
#define LABELS_BYTES_MAX 512

/* Histogram buckets: from a catalog lookup to saving a large model over a slow link. */
static const struct {
    uint64_t us;
    const char *text;
} bounds[] = {{1000, "0.001"},  {5000, "0.005"},  {25000, "0.025"},   {100000, "0.1"},
              {250000, "0.25"}, {1000000, "1"},   {2500000, "2.5"},   {10000000, "10"},
              {30000000, "30"}, {60000000, "60"}, {300000000, "300"}, {1800000000, "1800"}};
#define BUCKETS (CAIRN_COUNT(bounds) + 1)
#define HISTOGRAM_CELLS (BUCKETS + 1) /* the last cell is the sum */

struct cairn_metrics {
    const struct cairn_metric *rows;
    size_t count;
    _Atomic uint64_t **cells; /* by row of the table */
};

const char *cairn_metric_kind_text(enum cairn_metric_kind kind) {
    static const char *const texts[] = {"counter", "gauge", "histogram"};
    return texts[kind];
}

static size_t axis_count(const struct cairn_metric *row, size_t axis) {
    return row->axes[axis] && row->axes[axis]->labels ? row->axes[axis]->count : 1;
}

static size_t cells_of(const struct cairn_metric *row) {
    return row->kind == CAIRN_METRIC_HISTOGRAM ? HISTOGRAM_CELLS : 1;
}

static size_t cell_count(const struct cairn_metric *row) {
    return axis_count(row, 0) * axis_count(row, 1) * cells_of(row);
}

enum cairn_code cairn_metrics_new(const struct cairn_metric *rows, size_t count,
                                  struct cairn_metrics **ret, struct cairn_error *err) {
    struct cairn_metrics *metrics = calloc(1, sizeof(*metrics));
    if (metrics) metrics->cells = calloc(count, sizeof(*metrics->cells));
    bool ok = metrics && metrics->cells;
    for (size_t i = 0; ok && i < count; i++) {
        metrics->count = i + 1;
        metrics->cells[i] = calloc(cell_count(&rows[i]), sizeof(*metrics->cells[i]));
        ok = metrics->cells[i] != NULL;
        for (size_t at = 0; ok && rows[i].kind == CAIRN_METRIC_GAUGE && at < cell_count(&rows[i]);
             at++)
            metrics->cells[i][at] = (uint64_t)UNSET;
    }
    if (!ok) {
        cairn_metrics_free(metrics);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the metrics");
    }
    metrics->rows = rows;
    *ret = metrics;
    return CAIRN_OK;
}

void cairn_metrics_free(struct cairn_metrics *metrics) {
    if (!metrics) return;
    for (size_t i = 0; i < metrics->count; i++) free(metrics->cells[i]);
    free(metrics->cells);
    free(metrics);
}

/* ---- counting ---- */

static _Atomic uint64_t *cell_at(struct cairn_metrics *metrics, struct cairn_metric_at at,
                                 enum cairn_metric_kind kind) {
    CAIRN_ASSERT(at.family < metrics->count);
    const struct cairn_metric *row = &metrics->rows[at.family];
    CAIRN_ASSERT(row->kind == kind);
    CAIRN_ASSERT(at.first < axis_count(row, 0));
    CAIRN_ASSERT(at.second < axis_count(row, 1));
    return metrics->cells[at.family] + (at.first * axis_count(row, 1) + at.second) * cells_of(row);
}

static void add(_Atomic uint64_t *cell, uint64_t more) {
    atomic_fetch_add_explicit(cell, more, memory_order_relaxed);
}

void cairn_metrics_add(struct cairn_metrics *metrics, struct cairn_metric_at at, uint64_t more) {
    if (metrics) add(cell_at(metrics, at, CAIRN_METRIC_COUNTER), more);
}

void cairn_metrics_set(struct cairn_metrics *metrics, struct cairn_metric_at at, int64_t value) {
    if (!metrics) return;
    atomic_store_explicit(cell_at(metrics, at, CAIRN_METRIC_GAUGE), (uint64_t)value,
                          memory_order_relaxed);
}

void cairn_metrics_shift(struct cairn_metrics *metrics, struct cairn_metric_at at, int64_t by) {
    if (!metrics) return;
    _Atomic uint64_t *cell = cell_at(metrics, at, CAIRN_METRIC_GAUGE);
    uint64_t unset = (uint64_t)UNSET;
    (void)atomic_compare_exchange_strong(cell, &unset, 0);
    add(cell, (uint64_t)by);
}

void cairn_metrics_observe(struct cairn_metrics *metrics, struct cairn_metric_at at,
                           uint64_t duration_us) {
    if (!metrics) return;
    _Atomic uint64_t *cells = cell_at(metrics, at, CAIRN_METRIC_HISTOGRAM);
    size_t bucket = 0;
    while (bucket < CAIRN_COUNT(bounds) && duration_us > bounds[bucket].us) bucket++;
    add(&cells[bucket], 1);
    add(&cells[BUCKETS], duration_us);
}

/* ---- the text ---- */

/* route="livez",method="GET",code="200" */
static enum cairn_code write_labels(const struct cairn_metric *row, const size_t index[2],
                                    struct cairn_buf *ret, struct cairn_error *err) {
    const char *name = row->labels;
    for (size_t axis = 0; axis < 2; axis++) {
        size_t labels = row->axes[axis] ? row->axes[axis]->labels : 0;
        for (size_t label = 0; label < labels; label++) {
            size_t size = strcspn(name, ",");
            CAIRN_TRY(
                cairn_buf_printf(ret, err, "%s%.*s=\"", ret->size ? "," : "", (int)size, name));
            for (const char *c = row->axes[axis]->value(index[axis], label); *c; c++) {
                if (*c == '\n')
                    CAIRN_TRY(cairn_buf_append(ret, "\\n", 2, err));
                else if (*c == '"' || *c == '\\')
                    CAIRN_TRY(cairn_buf_printf(ret, err, "\\%c", *c));
                else
                    CAIRN_TRY(cairn_buf_append(ret, c, 1, err));
            }
            CAIRN_TRY(cairn_buf_append(ret, "\"", 1, err));
            name += size + (name[size] == ',');
        }
    }
    return CAIRN_OK;
}

static uint64_t load(const _Atomic uint64_t *cell) {
    return atomic_load_explicit(cell, memory_order_relaxed);
}

/* A labelled series without events is omitted: the table of routes and answers has thousands. */
static bool is_shown(const struct cairn_metric *row, const _Atomic uint64_t *cells) {
    if (row->kind == CAIRN_METRIC_GAUGE) return (int64_t)load(cells) != UNSET;
    bool any = !*row->labels;
    size_t count = row->kind == CAIRN_METRIC_HISTOGRAM ? BUCKETS : 1;
    for (size_t i = 0; i < count; i++) any |= load(&cells[i]) > 0;
    return any;
}

static enum cairn_code write_series(const struct cairn_metric *row, const size_t index[2],
                                    const _Atomic uint64_t *cells, struct cairn_buf *ret,
                                    struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = LABELS_BYTES_MAX};
    CAIRN_TRY(write_labels(row, index, &text, err));
    const char *labels = text.size ? text.data : "";
    if (row->kind == CAIRN_METRIC_HISTOGRAM) {
        const char *comma = *labels ? "," : "", *open = *labels ? "{" : "",
                   *close = *labels ? "}" : "";
        uint64_t sum_us = load(&cells[BUCKETS]), count = 0;
        for (size_t i = 0; i < BUCKETS; i++) {
            count += load(&cells[i]);
            CAIRN_TRY(cairn_buf_printf(ret, err, "cairn_%s_bucket{%s%sle=\"%s\"} %" PRIu64 "\n",
                                       row->name, labels, comma,
                                       i < CAIRN_COUNT(bounds) ? bounds[i].text : "+Inf", count));
        }
        CAIRN_TRY(cairn_buf_printf(ret, err, "cairn_%s_sum%s%s%s %" PRIu64 ".%06" PRIu64 "\n",
                                   row->name, open, labels, close, sum_us / 1000000,
                                   sum_us % 1000000));
        return cairn_buf_printf(ret, err, "cairn_%s_count%s%s%s %" PRIu64 "\n", row->name, open,
                                labels, close, count);
    }
    CAIRN_TRY(cairn_buf_printf(ret, err, "cairn_%s%s%s%s ", row->name, *labels ? "{" : "", labels,
                               *labels ? "}" : ""));
    if (row->kind == CAIRN_METRIC_GAUGE)
        return cairn_buf_printf(ret, err, "%" PRId64 "\n", (int64_t)load(cells));
    return cairn_buf_printf(ret, err, "%" PRIu64 "\n", load(cells));
}

enum cairn_code cairn_metrics_write(struct cairn_metrics *metrics, struct cairn_buf *ret,
                                    struct cairn_error *err) {
    for (size_t i = 0; i < metrics->count; i++) {
        const struct cairn_metric *row = &metrics->rows[i];
        const _Atomic uint64_t *cells = metrics->cells[i];
        CAIRN_TRY(cairn_buf_printf(ret, err, "# HELP cairn_%s %s\n# TYPE cairn_%s %s\n", row->name,
                                   row->help, row->name, cairn_metric_kind_text(row->kind)));
        for (size_t first = 0; first < axis_count(row, 0); first++)
            for (size_t second = 0; second < axis_count(row, 1); second++, cells += cells_of(row)) {
                const size_t index[2] = {first, second};
                if (is_shown(row, cells)) CAIRN_TRY(write_series(row, index, cells, ret, err));
            }
    }
    return CAIRN_OK;
}
