/* SPDX-License-Identifier: Apache-2.0 */
/* GET /metrics: what was counted, and what is counted now: versions by kind, and freezes. */
#include "server/metrics.h"

#include "server/catalog/version_lists.h"
#include "server/handlers/request.h"

#define COUNT_AGAIN_MS 60000 /* it looks at each row of a version that is not gone */

/* A scrape may be answered by several threads at once; one of them counts. */
static bool is_due(struct cairn_srv *server) {
    uint64_t now_ms = cairn_srv_mono_ms(server), at_ms = server->counted_ms;
    if (at_ms && now_ms < at_ms + COUNT_AGAIN_MS) return false;
    return atomic_compare_exchange_strong(&server->counted_ms, &at_ms, now_ms ? now_ms : 1);
}

static enum cairn_code count(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    return cairn_srv_kinds_count(tx, argument, err);
}

static void set(struct cairn_srv *server, enum cairn_srv_metric family, size_t at, uint64_t value) {
    cairn_metrics_set(server->metrics, (struct cairn_metric_at){family, at, 0}, (int64_t)value);
}

/* A catalog that cannot be read says so by the age of what it counted last, not by a failed
 * scrape: what else was counted is needed most then. */
static void count_versions(struct cairn_srv *server) {
    struct cairn_srv_kind_count kinds[CAIRN_SRV_KINDS] = {0};
    struct cairn_error unused = {0};
    if (!is_due(server)) return;
    if (cairn_srv_catalog_read(server->catalog, count, kinds, &unused)) return;
    for (size_t i = 0; i < CAIRN_SRV_KINDS; i++) {
        if (i == CAIRN_STATE_GONE) continue;
        set(server, CAIRN_SRV_METRIC_checkpoints, i, kinds[i].versions);
        set(server, CAIRN_SRV_METRIC_stored_bytes, i, kinds[i].bytes);
    }
}

enum cairn_code cairn_srv_on_metrics(struct cairn_srv_request *request,
                                     struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct cairn_srv *server = request->server;
    if (!server->metrics)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "this server counts nothing");
    count_versions(server);
    set(server, CAIRN_SRV_METRIC_catalog_frozen, 0, cairn_srv_thawed(server, NULL) != CAIRN_OK);
    set(server, CAIRN_SRV_METRIC_frozen_runs, 0, server->frozen_runs);
    reply->content_type = CAIRN_METRICS_TYPE;
    return cairn_metrics_write(server->metrics, &reply->body, err);
}
