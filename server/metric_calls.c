/* SPDX-License-Identifier: Apache-2.0 */
/* GET /metrics: what was counted, and what is counted now: versions by kind, and freezes. */
#include "server/metrics.h"

#include <inttypes.h>

#include "server/copies/damage.h"
#include "server/http/request.h"
#include "server/ledger/runs.h"
#include "server/ledger/version_lists.h"

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

/* ---- runs, where the operator wants them as labels ---- */

struct runs {
    const struct cairn_srv_caller *caller;
    struct cairn_buf text;
    size_t limit;
};

/* Names of projects and runs hold nothing that has to be escaped. P16: a token is enough for the
 * page, and shows of the runs those of its projects. */
static enum cairn_code add_run(void *argument, const char *project, const char *run,
                               int64_t committed_ms, struct cairn_error *err) {
    struct runs *runs = argument;
    if (!cairn_srv_caller_may(runs->caller, CAIRN_SCOPE_READ, project)) return CAIRN_OK;
    return cairn_buf_printf(&runs->text, err,
                            "cairn_last_commit_timestamp_seconds{project=\"%s\",run=\"%s\"} "
                            "%" PRId64 ".%03d\n",
                            project, run, committed_ms / 1000, (int)(committed_ms % 1000));
}

static enum cairn_code look_at_runs(struct cairn_srv_tx *tx, void *argument,
                                    struct cairn_error *err) {
    struct runs *runs = argument;
    cairn_buf_clear(&runs->text);
    return cairn_srv_runs_last_commits(tx, runs->limit, add_run, runs, err);
}

/* Behind the page's last family, which is theirs. A catalog that cannot be read leaves them out. */
static enum cairn_code write_runs(const struct cairn_srv_request *request, struct cairn_buf *ret,
                                  struct cairn_error *err) {
    struct cairn_srv *server = request->server;
    struct runs runs = {.caller = &request->caller, .limit = server->settings->metrics_runs_max};
    struct cairn_error unused = {0};
    enum cairn_code code = CAIRN_OK;
    if (runs.limit && !cairn_srv_catalog_read(server->catalog, look_at_runs, &runs, &unused))
        code = cairn_buf_append(ret, runs.text.data ? runs.text.data : "", runs.text.size, err);
    cairn_buf_release(&runs.text);
    return code;
}

_Static_assert(CAIRN_SRV_METRIC_last_commit_timestamp_seconds == CAIRN_SRV_METRIC_COUNT - 1,
               "its samples are written behind all others");

enum cairn_code cairn_srv_on_metrics(struct cairn_srv_request *request,
                                     struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct cairn_srv *server = request->server;
    char damage[CAIRN_SRV_DAMAGE_BYTES];
    if (!server->metrics)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "this server counts nothing");
    count_versions(server);
    set(server, CAIRN_SRV_METRIC_damaged_copies, 0, cairn_srv_damage_text(server, damage));
    set(server, CAIRN_SRV_METRIC_catalog_uncopied, 0, server->uncopied);
    set(server, CAIRN_SRV_METRIC_catalog_log_bytes, 0,
        cairn_srv_catalog_log_bytes(server->catalog));
    set(server, CAIRN_SRV_METRIC_catalog_frozen, 0, cairn_srv_thawed(server, NULL) != CAIRN_OK);
    set(server, CAIRN_SRV_METRIC_frozen_runs, 0, server->frozen_runs);
    reply->content_type = CAIRN_METRICS_TYPE;
    CAIRN_TRY(cairn_metrics_write(server->metrics, &reply->body, err));
    return write_runs(request, &reply->body, err);
}
