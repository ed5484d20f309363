/* SPDX-License-Identifier: Apache-2.0 */
#include "common/metrics.h"

#include "tests/harness.h"

static const char *word(size_t index, size_t label) {
    static const char *const words[] = {"plain", "with \"quotes\"", "back\\slash and\nline"};
    return label ? "GET" : words[index];
}

static const struct cairn_metric_axis none = {.count = 1}, words = {3, 2, word};
enum { HITS, LEVEL, WAITS, TOOK };
static const struct cairn_metric rows[] = {
    {CAIRN_METRIC_COUNTER, "hits_total", "word,method", {&words, &none}, "Of words."},
    {CAIRN_METRIC_GAUGE, "level", "", {&none, &none}, "How high."},
    {CAIRN_METRIC_HISTOGRAM, "wait_seconds", "", {&none, &none}, "How long."},
    {CAIRN_METRIC_HISTOGRAM, "took_seconds", "word,method", {&words, &none}, "How long."},
};

static bool written(struct cairn_metrics *metrics, struct cairn_buf *ret) {
    struct cairn_error err = {0};
    return EXPECT(cairn_metrics_write(metrics, ret, &err) == CAIRN_OK) && EXPECT(ret->size > 0);
}

static bool has_line(const struct cairn_buf *text, const char *line) {
    const char *at = text->data;
    size_t size = strlen(line);
    while ((at = strstr(at, line))) {
        if ((at == text->data || at[-1] == '\n') && at[size] == '\n') return true;
        at++;
    }
    return false;
}

TEST(what_nothing_has_happened_to_is_left_out_where_it_has_labels_and_is_zero_where_it_has_none) {
    struct cairn_metrics *metrics = NULL;
    struct cairn_error err = {0};
    CAIRN_AUTO(buf) text = {0};
    REQUIRE_OK(cairn_metrics_new(rows, CAIRN_COUNT(rows), &metrics, &err));
    if (written(metrics, &text)) {
        EXPECT(has_line(&text, "# TYPE cairn_hits_total counter"));
        EXPECT_HAS(text.data, "!cairn_hits_total{", "!\ncairn_level ");
        EXPECT(has_line(&text, "cairn_wait_seconds_bucket{le=\"+Inf\"} 0"));
        EXPECT(has_line(&text, "cairn_wait_seconds_sum 0.000000"));
        EXPECT(!strstr(text.data, "cairn_took_seconds_"));
    }
    cairn_metrics_free(metrics);
}

TEST(label_values_are_escaped_and_a_series_stands_once, err) {
    struct cairn_metrics *metrics = NULL;
    CAIRN_AUTO(buf) text = {0};
    REQUIRE_OK(cairn_metrics_new(rows, CAIRN_COUNT(rows), &metrics, &err));
    for (size_t i = 0; i < 3; i++)
        cairn_metrics_add(metrics, (struct cairn_metric_at){HITS, i, 0}, i + 1);
    cairn_metrics_add(metrics, (struct cairn_metric_at){HITS, 2, 0}, 4);
    if (written(metrics, &text)) {
        EXPECT(has_line(&text, "cairn_hits_total{word=\"plain\",method=\"GET\"} 1"));
        EXPECT(has_line(&text, "cairn_hits_total{word=\"with \\\"quotes\\\"\",method=\"GET\"} 2"));
        EXPECT(has_line(&text,
                        "cairn_hits_total{word=\"back\\\\slash and\\nline\",method=\"GET\"} 7"));
    }
    cairn_metrics_free(metrics);
}

TEST(a_duration_counts_in_its_bucket_and_all_above_and_in_the_sum, err) {
    struct cairn_metrics *metrics = NULL;
    CAIRN_AUTO(buf) text = {0};
    REQUIRE_OK(cairn_metrics_new(rows, CAIRN_COUNT(rows), &metrics, &err));
    const struct cairn_metric_at at = {.family = WAITS};
    cairn_metrics_observe(metrics, at, 1000); /* a bound belongs to its bucket */
    cairn_metrics_observe(metrics, at, 1001);
    cairn_metrics_observe(metrics, at, UINT64_C(4000000000));
    if (written(metrics, &text)) {
        EXPECT(has_line(&text, "cairn_wait_seconds_bucket{le=\"0.001\"} 1"));
        EXPECT(has_line(&text, "cairn_wait_seconds_bucket{le=\"0.005\"} 2"));
        EXPECT(has_line(&text, "cairn_wait_seconds_bucket{le=\"1800\"} 2"));
        EXPECT(has_line(&text, "cairn_wait_seconds_bucket{le=\"+Inf\"} 3"));
        EXPECT(has_line(&text, "cairn_wait_seconds_sum 4000.002001"));
        EXPECT(has_line(&text, "cairn_wait_seconds_count 3"));
    }
    cairn_metrics_free(metrics);
}

TEST(a_gauge_is_written_once_it_was_set_and_may_fall, err) {
    struct cairn_metrics *metrics = NULL;
    CAIRN_AUTO(buf) text = {0};
    REQUIRE_OK(cairn_metrics_new(rows, CAIRN_COUNT(rows), &metrics, &err));
    cairn_metrics_shift(metrics, (struct cairn_metric_at){.family = LEVEL}, 5);
    cairn_metrics_shift(metrics, (struct cairn_metric_at){.family = LEVEL}, -7);
    if (written(metrics, &text)) EXPECT(has_line(&text, "cairn_level -2"));
    cairn_metrics_free(metrics);
    cairn_metrics_shift(NULL, (struct cairn_metric_at){.family = LEVEL}, 1); /* metrics.h#1 */
}
