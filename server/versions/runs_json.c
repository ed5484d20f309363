/* SPDX-License-Identifier: Apache-2.0 */
/* The REST form of a run; see runs_json.h. */
#include "server/versions/runs_json.h"

#include <inttypes.h>
#include <stdio.h>

#include "api/wire/messages.h"
#include "common/clock.h"
#include "server/http/waiters.h"
#include "server/ledger/lineage.h"
#include "server/ledger/members.h"
#include "server/ledger/version_lists.h"
#include "server/ledger/versions.h"
#include "server/nodes/nodes.h"

static enum cairn_code no_memory(struct cairn_error *err) {
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
}

struct nearest {
    struct cairn_srv *server;
    uint64_t ms, tick;
};
static void look_at_node(void *argument, const struct cairn_srv_node_mark *node) {
    struct nearest *nearest = argument;
    uint64_t ms = cairn_srv_node_silent_ms(nearest->server, node, nearest->tick);
    nearest->ms = cairn_min_u64(nearest->ms, ms);
}

/* The nearest heartbeat of the newest attempt's nodes; none where none was ever heard. */
static enum cairn_code look_at_nodes(struct cairn_srv_tx *tx, struct cairn_srv *server,
                                     const struct cairn_srv_run *run, uint64_t *ret_ms,
                                     struct cairn_error *err) {
    struct nearest nearest = {server, UINT64_MAX, cairn_srv_tick(tx)};
    CAIRN_TRY(cairn_srv_attempt_nodes(tx, run->id, run->attempt, look_at_node, &nearest, err));
    *ret_ms = nearest.ms == UINT64_MAX ? CAIRN_MESSAGE_NONE : nearest.ms;
    return CAIRN_OK;
}

static enum cairn_code look_at_latest(struct cairn_srv_tx *tx, const struct cairn_srv_run *run,
                                      json_t **ret, struct cairn_error *err) {
    bool found = false;
    struct cairn_version_id latest;
    uint64_t step = 0;
    CAIRN_TRY(cairn_srv_latest(tx, run->id, &found, &latest, &step, err));
    if (!found) return CAIRN_OK;
    *ret = CAIRN_PACK(run_latest, .version = latest.text, .step = step);
    return *ret ? CAIRN_OK : no_memory(err);
}

/* P16: as a lineage ends there, nothing is said of one in a project that he may not read. */
static enum cairn_code look_at_origin(struct cairn_srv_tx *tx,
                                      const struct cairn_srv_request *request,
                                      const struct cairn_srv_run *run, json_t **ret,
                                      struct cairn_error *err) {
    struct cairn_srv_origin from;
    CAIRN_TRY(cairn_srv_run_origin(tx, run->id, &from, err));
    if (!from.version.text[0] ||
        !cairn_srv_caller_may(&request->caller, CAIRN_SCOPE_READ, from.name.project))
        return CAIRN_OK;
    *ret = CAIRN_PACK(run_from, .project = from.name.project, .run = from.name.run,
                      .version = from.version.text, .step = from.step);
    return *ret ? CAIRN_OK : no_memory(err);
}

/* Of a run to which nothing has happened: no commit, no attempt. A save that is open is one that
 * somebody is at, however old the last commit is. */
struct idle {
    char committed_at[32]; /* "": nothing is committed */
    uint64_t seconds;      /* CAIRN_MESSAGE_NONE: it is being saved to */
};

static enum cairn_code look_at_commits(struct cairn_srv_tx *tx, const struct cairn_srv *server,
                                       const struct cairn_srv_run *run, struct idle *ret,
                                       struct cairn_error *err) {
    int64_t times[CAIRN_SRV_COMMITS_LOOKED_AT], last_ms = 0, opened_ms = 0;
    size_t count = 0;
    bool saving = false;
    CAIRN_TRY(cairn_srv_run_commits(tx, run->id, times, CAIRN_COUNT(times), &count, err));
    CAIRN_TRY(cairn_srv_run_opened(tx, run->id, run->attempt, &opened_ms, &saving, err));
    for (size_t i = 0; i < count; i++)
        if (times[i] > last_ms) last_ms = times[i];
    ret->committed_at[0] = '\0';
    if (last_ms) cairn_time_text(last_ms, true, ret->committed_at);
    if (opened_ms > last_ms) last_ms = opened_ms;
    if (run->created_ms > last_ms) last_ms = run->created_ms;
    int64_t age_ms = cairn_srv_wall_ms(server) - last_ms;
    ret->seconds = age_ms > 0 ? (uint64_t)age_ms / 1000 : 0;
    if (saving) ret->seconds = CAIRN_MESSAGE_NONE;
    return CAIRN_OK;
}

enum cairn_code cairn_srv_run_json(struct cairn_srv_tx *tx, const struct cairn_srv_request *request,
                                   const struct cairn_srv_run *run, json_t **ret,
                                   struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *latest = NULL, *from = NULL;
    CAIRN_AUTO_JSON json_t *labels = json_loads(run->labels, 0, NULL);
    uint64_t versions = 0, bytes = 0, heard_ms = CAIRN_MESSAGE_NONE;
    char created[32];
    struct idle idle;
    CAIRN_TRY(look_at_latest(tx, run, &latest, err));
    CAIRN_TRY(cairn_srv_run_totals(tx, run->id, &versions, &bytes, err));
    CAIRN_TRY(look_at_origin(tx, request, run, &from, err));
    CAIRN_TRY(look_at_nodes(tx, request->server, run, &heard_ms, err));
    CAIRN_TRY(look_at_commits(tx, request->server, run, &idle, err));
    cairn_time_text(run->created_ms, true, created);
    *ret = CAIRN_PACK(run_row, .project = run->name.project, .run = run->name.run, .labels = labels,
                      .note = run->note[0] ? run->note : NULL, .from = from, .created_at = created,
                      .attempt = run->attempt, .nodes_silent_ms = heard_ms,
                      .committed = versions, .bytes = bytes, .latest = latest,
                      .last_commit_at = idle.committed_at[0] ? idle.committed_at : NULL,
                      .idle_s = idle.seconds);
    return *ret ? CAIRN_OK : no_memory(err);
}

enum cairn_code cairn_srv_run_there(const struct cairn_srv_run *run, struct cairn_error *err) {
    if (!run->removed) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NOT_FOUND, "run %s/%s was removed", run->name.project,
                      run->name.run);
}

enum cairn_code cairn_srv_run_tag(const json_t *shown, char ret[CAIRN_SRV_RUN_TAG_BYTES],
                                  struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = CAIRN_MIB};
    /* What the tag is of, and nobody sees: no row of messages.def. */
    CAIRN_AUTO_JSON json_t *said =
        json_pack("{s:O, s:O, s:O, s:O}", "from", json_object_get(shown, "from"), "labels",
                  json_object_get(shown, "labels"), "note", json_object_get(shown, "note"),
                  "created_at", json_object_get(shown, "created_at"));
    if (!said) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a tag");
    CAIRN_TRY(cairn_json_dump(said, &text, err));
    snprintf(ret, CAIRN_SRV_RUN_TAG_BYTES, "\"%016" PRIx64 "\"", cairn_srv_key_of(text.data));
    return CAIRN_OK;
}

enum cairn_code cairn_srv_reply_run(struct cairn_srv_reply *reply, int status, json_t *take_shown,
                                    struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *shown = take_shown;
    char tag[CAIRN_SRV_RUN_TAG_BYTES];
    CAIRN_TRY(cairn_srv_run_tag(shown, tag, err));
    CAIRN_TRY(cairn_srv_reply_json(reply, status, json_incref(shown), err));
    cairn_srv_reply_header(reply, "ETag", "%s", tag);
    return CAIRN_OK;
}
