/* SPDX-License-Identifier: Apache-2.0 */
/* GET {R}/liveness: a run's last commit, its usual interval, and what its open saves wait for. GET
 * {C}/why: the same for one version, with its nodes' newest reports. Facts only: callers judge. */
#include <math.h>
#include <stdlib.h>

#include "server/guard/identity.h"
#include "server/guard/jobs.h"
#include "server/intake/intake.h"
#include "server/ledger/shards.h"
#include "server/nodes/nodes.h"
#include "server/versions/versions.h"

#define COMMITS_LOOKED_AT SRV_COMMITS_LOOKED_AT /* twenty intervals */
#define OPEN_MAX 8
#define RANKS_NAMED_MAX 16

/* ---- commits ---- */

static int by_time(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Between consecutive commits; a median, since restarts leave gaps. */
static double median_s(int64_t *times, size_t count) {
    int64_t intervals[COMMITS_LOOKED_AT];
    if (count < 2) return NAN;
    for (size_t i = 0; i + 1 < count; i++) intervals[i] = times[i + 1] - times[i];
    qsort(intervals, count - 1, sizeof(*intervals), by_time);
    return (double)intervals[(count - 1) / 2] / 1000;
}

/* ---- open saves ---- */

static enum cairn_code open_json(struct srv_tx *tx, const struct srv_version *version, json_t **ret,
                                 struct cairn_error *err) {
    uint32_t unsealed = 0;
    struct srv_progress progress = {0};
    char begun[32];
    const char *id = version->id.text;
    CAIRN_AUTO_JSON json_t *ranks = json_array(), *shards = json_array();
    if (version->state == CAIRN_STATE_OPEN) { /* a whole save lacks only its record (Q24) */
        CAIRN_TRY(srv_save_unsealed(tx, version, RANKS_NAMED_MAX, ranks, &unsealed, err));
        CAIRN_TRY(srv_shards_missing(tx, id, shards, err));
    }
    CAIRN_TRY(srv_version_progress(tx, id, &progress, err));
    cairn_time_text(version->created_ms, true, begun);
    CAIRN_ASSERT(progress.registered <= progress.shards);
    *ret =
        CAIRN_PACK(liveness_open, .version = id, .step = version->step, .attempt = version->attempt,
                   .n = version->n, .begun_at = begun, .world_size = version->world_size,
                   .ranks_sealed = progress.ranks_sealed, .shards = progress.shards,
                   .shards_registered = progress.registered, .bytes = progress.bytes,
                   .missing_ranks = ranks, .missing_rank_count = unsealed, .missing_shards = shards,
                   .missing_shard_count = progress.shards - progress.registered);
    return *ret ? CAIRN_OK : srv_no_memory(err);
}

SRV_HANDLER(run_liveness) {
    int64_t times[COMMITS_LOOKED_AT], now_ms = srv_wall_ms(request->server);
    size_t count = 0;
    char last_at[32];
    CAIRN_AUTO_JSON json_t *open = json_array();
    CAIRN_TRY(srv_thawed(request->server, err));
    if (!open) return srv_no_memory(err);
    SRV_LOOK(look, request->server->catalog, err);
    SRV_GET(run, run, srv_run_get(look.tx, &request->params.run_name, &run, err));
    CAIRN_TRY(srv_run_there(&run, err));
    CAIRN_TRY(srv_run_commits(look.tx, run.id, times, COMMITS_LOOKED_AT, &count, err));
    struct srv_page page = {.run_id = run.id,
                            .state = CAIRN_STATE_OPEN,
                            .place = {INT64_MAX, INT64_MAX, INT64_MAX},
                            .limit = OPEN_MAX};
    SRV_GET(rows, rows, srv_versions_page(look.tx, &page, &rows, err));
    SQL_EACH(&rows, err) {
        json_t *item = NULL;
        SRV_GET(version, version, srv_version_row(&rows, &version, err));
        CAIRN_TRY(open_json(look.tx, &version, &item, err));
        if (json_array_append_new(open, item)) return srv_no_memory(err);
    }
    qsort(times, count, sizeof(*times), by_time);
    int64_t last_ms = count ? times[count - 1] : 0;
    int64_t age_ms = now_ms > last_ms ? now_ms - last_ms : 0;
    cairn_time_text(last_ms, true, last_at);
    return srv_reply_json(reply, 200,
                          CAIRN_PACK(liveness, .last_commit_at = count ? last_at : NULL,
                                     .last_commit_age_s = count ? (double)age_ms / 1000 : NAN,
                                     .interval_s = median_s(times, count), .open = open),
                          err);
}

/* ---- why a version is not committed ---- */

struct why {
    struct srv_request *request;
    struct srv_version version;
    json_t *open, *nodes, *waited; /* waited: names of the nodes that the version waits for */
    bool failed;
};

static json_t *errors_json(struct why *why, const struct srv_version_report *said) {
    json_t *array = json_array();
    why->failed |= !array;
    for (size_t i = 0; i < said->error_count; i++) {
        const struct srv_shard_error *one = &said->errors[i];
        json_t *item = CAIRN_PACK(
            why_error, .shard = one->shard, .part = one->part ? one->part : CAIRN_MESSAGE_NONE,
            .rank = one->rank, .error = one->error, .tries = one->tries, .age_ms = one->age_ms);
        why->failed |= json_array_append_new(array, item) != 0;
    }
    return array;
}

static json_t *keeps_json(struct why *why, const char *node) {
    struct srv_kept kept[SRV_KEPT_MAX];
    size_t count = srv_node_keeps(why->request->server, node, why->version.id.text, kept);
    json_t *array = json_array();
    why->failed |= !array;
    for (size_t i = 0; i < count; i++) {
        json_t *item = CAIRN_PACK(why_kept, .rank = kept[i].rank, .node = kept[i].node);
        why->failed |= json_array_append_new(array, item) != 0;
    }
    return array;
}

static void add_node(struct why *why, const struct srv_node_mark *node, uint64_t tick) {
    struct srv *server = why->request->server;
    struct srv_version_report said = {.bytes_done = CAIRN_MESSAGE_NONE,
                                      .bytes_total = CAIRN_MESSAGE_NONE,
                                      .shards_done = CAIRN_MESSAGE_NONE,
                                      .shards_total = CAIRN_MESSAGE_NONE,
                                      .parts_done = CAIRN_MESSAGE_NONE,
                                      .parts_total = CAIRN_MESSAGE_NONE};
    char trouble[SRV_TROUBLE_BYTES] = "";
    (void)srv_node_said_of(server, node->node, why->version.id.text, &said);
    uint64_t silent_ms = srv_node_silent_ms(server, node, tick);
    srv_node_trouble(server, node->node, trouble);
    CAIRN_AUTO_JSON json_t *errors = errors_json(why, &said);
    CAIRN_AUTO_JSON json_t *keeps = keeps_json(why, node->node);
    json_t *item = CAIRN_PACK(
        why_node, .node = node->node, .errors = errors, .keeps = keeps,
        .waited_for = json_object_get(why->waited, node->node) != NULL, .silent_ms = silent_ms,
        .left = node->away, .done_bytes = said.bytes_done, .total_bytes = said.bytes_total,
        .shards_done = said.shards_done, .shards_total = said.shards_total,
        .parts_done = said.parts_done, .parts_total = said.parts_total,
        .error = said.error[0] ? said.error : NULL, .trouble = trouble[0] ? trouble : NULL);
    why->failed |= json_array_append_new(why->nodes, item) != 0;
}

static enum cairn_code look_why(struct why *why, struct cairn_error *err) {
    SRV_LOOK(look, why->request->server->catalog, err);
    struct srv_ref ref = {&why->request->params.run_name, why->request->params.ref, false};
    if (!why->nodes || !why->waited) return srv_no_memory(err);
    CAIRN_TRY(srv_version_find(look.tx, &ref, &why->version, err));
    CAIRN_TRY(srv_version_there(&why->version, err));
    uint64_t tick = srv_tick(look.tx);
    if (srv_version_shown(&why->version) != CAIRN_STATE_OPEN) return CAIRN_OK;
    CAIRN_TRY(open_json(look.tx, &why->version, &why->open, err));
    if (why->version.state != CAIRN_STATE_OPEN) return CAIRN_OK;
    SRV_GET(rows, needed, srv_version_needs_nodes(look.tx, &why->version, &needed, err));
    SQL_EACH(&needed, err) {
        const struct srv_node_mark node = srv_row_node_mark(&needed);
        why->failed |= json_object_set_new(why->waited, node.node, json_true()) != 0;
    }
    SRV_GET(rows, all,
            srv_attempt_nodes(look.tx, why->version.run_id, why->version.attempt, &all, err));
    SQL_EACH(&all, err) {
        const struct srv_node_mark node = srv_row_node_mark(&all);
        add_node(why, &node, tick);
    }
    return why->failed ? srv_no_memory(err) : CAIRN_OK;
}

/* A frozen run commits nothing, and the catalog may not know its newest save. */
static json_t *why_json(struct why *why, const struct cairn_error *frozen) {
    const struct srv_version *version = &why->version;
    char stuck[SRV_STUCK_BYTES] = "";
    bool is_stuck = why->open && srv_jobs_stuck_of(why->request->server, version->id.text, stuck);
    if (why->open && frozen->code) {
        (void)cairn_text_copy(stuck, sizeof(stuck), frozen->message);
        is_stuck = true;
    }
    CAIRN_AUTO_JSON json_t *restores =
        srv_restores_json(why->request->server->restores, &version->name, version->id.text);
    if (!restores) return NULL;
    return CAIRN_PACK(why, .version = version->id.text, .step = version->step,
                      .state = cairn_state_text(srv_version_shown(version)),
                      .reason = version->reason[0] ? version->reason : NULL, .open = why->open,
                      .commit = is_stuck ? stuck : NULL, .nodes = why->nodes, .restores = restores);
}

SRV_HANDLER(checkpoint_why) {
    CAIRN_TRY(srv_thawed(request->server, err));
    struct why why = {.request = request, .nodes = json_array(), .waited = json_object()};
    struct cairn_error frozen = {0};
    enum cairn_code code = look_why(&why, err);
    (void)!srv_run_thawed(request->server, &request->params.run_name, &frozen);
    if (code == CAIRN_NOT_FOUND && frozen.code) {
        code = frozen.code;
        if (err) *err = frozen;
    }
    if (!code) code = srv_reply_json(reply, 200, why_json(&why, &frozen), err);
    srv_version_release(&why.version);
    json_decref(why.open);
    json_decref(why.nodes);
    json_decref(why.waited);
    return code;
}
