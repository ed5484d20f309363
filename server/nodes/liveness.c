/* SPDX-License-Identifier: Apache-2.0 */
/* GET {R}/liveness: a run's last commit, its usual interval, and what its open saves wait for. GET
 * {C}/why: the same for one version, with its nodes' newest reports. Facts only: callers judge. */
#include <math.h>
#include <stdlib.h>

#include "api/wire/messages.h"
#include "common/clock.h"
#include "common/text.h"
#include "server/guard/identity.h"
#include "server/guard/jobs.h"
#include "server/http/request.h"
#include "server/intake/intake.h"
#include "server/ledger/attempts.h"
#include "server/ledger/shards.h"
#include "server/ledger/version_lists.h"
#include "server/nodes/nodes.h"
#include "server/versions/versions.h"

#define COMMITS_LOOKED_AT CAIRN_SRV_COMMITS_LOOKED_AT /* twenty intervals */
#define OPEN_MAX 8
#define RANKS_NAMED_MAX 16

struct call {
    struct cairn_srv_request *request;
    struct cairn_srv_run run;
    bool has_commits;
    char last_at[32];
    double age_s, interval_s; /* NAN: none */
    json_t *open;
};

static enum cairn_code no_memory(struct cairn_error *err) {
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
}

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

static enum cairn_code look_at_commits(struct cairn_srv_tx *tx, struct call *call,
                                       struct cairn_error *err) {
    int64_t times[COMMITS_LOOKED_AT], now_ms = cairn_srv_wall_ms(call->request->server);
    size_t count = 0;
    CAIRN_TRY(cairn_srv_run_commits(tx, call->run.id, times, COMMITS_LOOKED_AT, &count, err));
    qsort(times, count, sizeof(*times), by_time);
    int64_t last_ms = count ? times[count - 1] : 0;
    int64_t age_ms = now_ms > last_ms ? now_ms - last_ms : 0;
    cairn_time_text(last_ms, true, call->last_at);
    call->has_commits = count > 0;
    call->age_s = count ? (double)age_ms / 1000 : NAN;
    call->interval_s = median_s(times, count);
    return CAIRN_OK;
}

/* ---- open saves ---- */

static enum cairn_code open_json(struct cairn_srv_tx *tx, const struct cairn_srv_version *version,
                                 json_t **ret, struct cairn_error *err) {
    uint32_t unsealed = 0;
    struct cairn_srv_progress progress = {0};
    char begun[32];
    const char *id = version->id.text;
    CAIRN_AUTO_JSON json_t *ranks = json_array(), *shards = json_array();
    if (version->state == CAIRN_STATE_OPEN) { /* a whole save lacks only its record (Q24) */
        CAIRN_TRY(cairn_srv_save_unsealed(tx, version, RANKS_NAMED_MAX, ranks, &unsealed, err));
        CAIRN_TRY(cairn_srv_shards_missing(tx, id, shards, err));
    }
    CAIRN_TRY(cairn_srv_version_progress(tx, id, &progress, err));
    cairn_time_text(version->created_ms, true, begun);
    CAIRN_ASSERT(progress.registered <= progress.shards);
    *ret =
        CAIRN_PACK(liveness_open, .version = id, .step = version->step, .attempt = version->attempt,
                   .n = version->n, .begun_at = begun, .world_size = version->world_size,
                   .ranks_sealed = progress.ranks_sealed, .shards = progress.shards,
                   .shards_registered = progress.registered, .bytes = progress.bytes,
                   .missing_ranks = ranks, .missing_rank_count = unsealed, .missing_shards = shards,
                   .missing_shard_count = progress.shards - progress.registered);
    return *ret ? CAIRN_OK : no_memory(err);
}

static enum cairn_code add_open(struct cairn_srv_tx *tx, void *argument,
                                const struct cairn_srv_version *version, struct cairn_error *err) {
    struct call *call = argument;
    json_t *item = NULL;
    CAIRN_TRY(open_json(tx, version, &item, err));
    return json_array_append_new(call->open, item) ? no_memory(err) : CAIRN_OK;
}

static enum cairn_code look(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct call *call = argument;
    cairn_srv_run_release(&call->run);
    json_decref(call->open);
    call->open = json_array();
    if (!call->open) return no_memory(err);
    CAIRN_TRY(cairn_srv_run_get(tx, &call->request->params.run_name, &call->run, err));
    CAIRN_TRY(cairn_srv_run_there(&call->run, err));
    CAIRN_TRY(look_at_commits(tx, call, err));
    struct cairn_srv_page page = {.run_id = call->run.id,
                                  .state = CAIRN_STATE_OPEN,
                                  .place = {INT64_MAX, INT64_MAX, INT64_MAX},
                                  .limit = OPEN_MAX};
    return cairn_srv_versions_page(tx, &page, add_open, call, err);
}

enum cairn_code cairn_srv_on_run_liveness(struct cairn_srv_request *request,
                                          struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct call call = {.request = request};
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    enum cairn_code code = cairn_srv_catalog_read(request->server->catalog, look, &call, err);
    if (!code)
        code = cairn_srv_reply_json(
            reply, 200,
            CAIRN_PACK(liveness, .last_commit_at = call.has_commits ? call.last_at : NULL,
                       .last_commit_age_s = call.age_s, .interval_s = call.interval_s,
                       .open = call.open),
            err);
    cairn_srv_run_release(&call.run);
    json_decref(call.open);
    return code;
}

/* ---- why a version is not committed ---- */

struct why {
    struct cairn_srv_request *request;
    struct cairn_srv_version version;
    json_t *open, *nodes, *waited; /* waited: names of the nodes that the version waits for */
    uint64_t tick;
    bool failed;
};

static void note_waited(void *argument, const struct cairn_srv_node_mark *node) {
    struct why *why = argument;
    why->failed |= json_object_set_new(why->waited, node->node, json_true()) != 0;
}

static json_t *errors_json(struct why *why, const struct cairn_srv_version_report *said) {
    json_t *array = json_array();
    why->failed |= !array;
    for (size_t i = 0; i < said->error_count; i++) {
        const struct cairn_srv_shard_error *one = &said->errors[i];
        json_t *item = CAIRN_PACK(
            why_error, .shard = one->shard, .part = one->part ? one->part : CAIRN_MESSAGE_NONE,
            .rank = one->rank, .error = one->error, .tries = one->tries, .age_ms = one->age_ms);
        why->failed |= json_array_append_new(array, item) != 0;
    }
    return array;
}

static json_t *keeps_json(struct why *why, const char *node) {
    struct cairn_srv_kept kept[CAIRN_SRV_KEPT_MAX];
    size_t count = cairn_srv_node_keeps(why->request->server, node, why->version.id.text, kept);
    json_t *array = json_array();
    why->failed |= !array;
    for (size_t i = 0; i < count; i++) {
        json_t *item = CAIRN_PACK(why_kept, .rank = kept[i].rank, .node = kept[i].node);
        why->failed |= json_array_append_new(array, item) != 0;
    }
    return array;
}

static void add_node(void *argument, const struct cairn_srv_node_mark *node) {
    struct why *why = argument;
    struct cairn_srv *server = why->request->server;
    struct cairn_srv_version_report said = {.bytes_done = CAIRN_MESSAGE_NONE,
                                            .bytes_total = CAIRN_MESSAGE_NONE,
                                            .shards_done = CAIRN_MESSAGE_NONE,
                                            .shards_total = CAIRN_MESSAGE_NONE,
                                            .parts_done = CAIRN_MESSAGE_NONE,
                                            .parts_total = CAIRN_MESSAGE_NONE};
    char trouble[CAIRN_SRV_TROUBLE_BYTES] = "";
    (void)cairn_srv_node_said_of(server, node->node, why->version.id.text, &said);
    uint64_t silent_ms = cairn_srv_node_silent_ms(server, node, why->tick);
    cairn_srv_node_trouble(server, node->node, trouble);
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

static enum cairn_code look_why(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct why *why = argument;
    struct cairn_srv_ref ref = {&why->request->params.run_name, why->request->params.ref, false};
    cairn_srv_version_release(&why->version);
    json_decref(why->open);
    json_decref(why->nodes);
    why->open = NULL;
    why->failed = false;
    why->nodes = json_array();
    if (!why->nodes || json_object_clear(why->waited)) return no_memory(err);
    CAIRN_TRY(cairn_srv_version_find(tx, &ref, &why->version, err));
    CAIRN_TRY(cairn_srv_version_there(&why->version, err));
    why->tick = cairn_srv_tick(tx);
    if (cairn_srv_version_shown(&why->version) != CAIRN_STATE_OPEN) return CAIRN_OK;
    CAIRN_TRY(open_json(tx, &why->version, &why->open, err));
    if (why->version.state != CAIRN_STATE_OPEN) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_version_needs_nodes(tx, &why->version, note_waited, why, err));
    CAIRN_TRY(
        cairn_srv_attempt_nodes(tx, why->version.run_id, why->version.attempt, add_node, why, err));
    return why->failed ? no_memory(err) : CAIRN_OK;
}

/* A frozen run commits nothing, and the catalog may not know its newest save. */
static json_t *why_json(struct why *why, const struct cairn_error *frozen) {
    const struct cairn_srv_version *version = &why->version;
    char stuck[CAIRN_SRV_STUCK_BYTES] = "";
    bool is_stuck =
        why->open && cairn_srv_jobs_stuck_of(why->request->server, version->id.text, stuck);
    if (why->open && frozen->code) {
        (void)cairn_text_copy(stuck, sizeof(stuck), frozen->message);
        is_stuck = true;
    }
    CAIRN_AUTO_JSON json_t *restores =
        cairn_srv_restores_json(why->request->server->restores, &version->name, version->id.text);
    if (!restores) return NULL;
    return CAIRN_PACK(why, .version = version->id.text, .step = version->step,
                      .state = cairn_state_text(cairn_srv_version_shown(version)),
                      .reason = version->reason[0] ? version->reason : NULL, .open = why->open,
                      .commit = is_stuck ? stuck : NULL, .nodes = why->nodes, .restores = restores);
}

enum cairn_code cairn_srv_on_checkpoint_why(struct cairn_srv_request *request,
                                            struct cairn_srv_reply *reply,
                                            struct cairn_error *err) {
    struct why why = {.request = request, .waited = json_object()};
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    struct cairn_error frozen = {0};
    enum cairn_code code = cairn_srv_catalog_read(request->server->catalog, look_why, &why, err);
    (void)!cairn_srv_run_thawed(request->server, &request->params.run_name, &frozen);
    if (code == CAIRN_NOT_FOUND && frozen.code) {
        code = frozen.code;
        if (err) *err = frozen;
    }
    if (!code) code = cairn_srv_reply_json(reply, 200, why_json(&why, &frozen), err);
    cairn_srv_version_release(&why.version);
    json_decref(why.open);
    json_decref(why.nodes);
    json_decref(why.waited);
    return code;
}
