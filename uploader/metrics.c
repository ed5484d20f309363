/* SPDX-License-Identifier: Apache-2.0 */
/* The families of uploader/metrics.def, and the values of their labels. */
#include "uploader/metrics.h"

#include "common/process.h"
#include "uploader/state/save.h"
#include "uploader/up.h"

static const char *version_value(size_t index, size_t label) {
    (void)index, (void)label;
    return CAIRN_UP_VERSION;
}

static const char *end_value(size_t index, size_t label) {
    (void)label;
    return cairn_up_end_text((enum cairn_up_end)index);
}

static const char *code_value(size_t index, size_t label) {
    (void)label;
    return cairn_code_info((enum cairn_code)index)->slug;
}

static const char *op_value(size_t index, size_t label) {
    (void)label;
    return cairn_store_op_word((enum cairn_store_op)index);
}

static const char *slab_value(size_t index, size_t label) {
    (void)label;
    return ((const char *[CAIRN_UP_SLAB_USES]){"free", "held", "kept"})[index];
}

static const char *cause_value(size_t index, size_t label) {
    (void)label;
    return cairn_retry_cause_text((enum cairn_retry_outcome)index);
}

static const char *restore_end_value(size_t index, size_t label) {
    (void)label;
    return ((const char *[CAIRN_UP_RESTORE_ENDS]){"released", "left"})[index];
}

static const char *wait_value(size_t index, size_t label) {
    (void)label;
    static const char *const words[CAIRN_UP_WAITS] = {"senders", "outbox", "watchers", "readers",
                                                      "peers",   "partners"};
    return words[index];
}

static const struct cairn_metric_axis axis_NONE = {.count = 1},
                                      axis_VERSIONS = {1, 1, version_value},
                                      axis_ENDS = {CAIRN_UP_FAILED + 1, 1, end_value},
                                      axis_CODES = {CAIRN_CODE_COUNT, 1, code_value},
                                      axis_OPS = {CAIRN_STORE_OP_COUNT, 1, op_value},
                                      axis_CAUSES = {CAIRN_RETRY_OUTCOMES, 1, cause_value},
                                      axis_RESTORE_ENDS = {CAIRN_UP_RESTORE_ENDS, 1,
                                                           restore_end_value},
                                      axis_WAITS = {CAIRN_UP_WAITS, 1, wait_value},
                                      axis_SLABS = {CAIRN_UP_SLAB_USES, 1, slab_value};

static const struct cairn_metric rows[] = {
#define METRIC(kind, name, labels, first, second, help)                                            \
    {CAIRN_METRIC_##kind, #name, labels, {&axis_##first, &axis_##second}, help},
#include "uploader/metrics.def"
#undef METRIC
};

void cairn_up_metrics_late(struct cairn_metrics *metrics, enum cairn_up_wait wait) {
    cairn_metrics_add(metrics, (struct cairn_metric_at){CAIRN_UP_METRIC_late_waits_total, wait, 0},
                      1);
    cairn_late_tell(wait_value(wait, 0));
}

enum cairn_code cairn_up_metrics_new(struct cairn_metrics **ret, struct cairn_error *err) {
    CAIRN_TRY(cairn_metrics_new(rows, CAIRN_COUNT(rows), ret, err));
    cairn_metrics_set(*ret, CAIRN_UP_METRIC(build_info), 1);
    cairn_metrics_set(*ret, CAIRN_UP_METRIC(inflight_bytes), 0);
    cairn_metrics_set(*ret, CAIRN_UP_METRIC(restores_open), 0);
    return CAIRN_OK;
}
