/* SPDX-License-Identifier: Apache-2.0 */
/* PUT /v1/nodes/{node}, the heartbeat: keeps progress in memory and liveness in one row per node,
 * written at most once a minute (Q26); ends the saves of processes that it reports as ended (Q54,
 * Q56). The answer names the open versions of the node's attempts (Q12), their other nodes and the
 * partner (docs/peers.md, docs/partner.md), and the copies that this node is to finish (Q57). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/hooks.h"
#include "common/log.h"
#include "plan/divide.h"
#include "server/guard/jobs.h"
#include "server/http/waiters.h"
#include "server/ledger/attempts.h"
#include "server/ledger/policies.h"
#include "server/ledger/shards.h"
#include "server/nodes/nodes.h"
#include "server/recovery/recovery.h"
#include "server/versions/versions.h"

#define RUNS_MAX 4096
#define RESTORES_MAX 16
#define COPIES_MAX 4096 /* per heartbeat; further ones are ignored */
#define PEERS_MAX 1024
#define KEPT_RANKS_MAX 4096 /* of a run, in one node's memory */

/* take_item is dropped on failure, too; NULL (no memory) fails. */
static enum cairn_code add_fenced(json_t *fenced, const struct cairn_grant *grant,
                                  struct cairn_error *err) {
    return cairn_json_append(fenced,
                             CAIRN_PACK(node_fenced, .project = grant->name.project,
                                        .run = grant->name.run, .attempt = grant->attempt),
                             "the answer", err);
}

/* ---- processes that have ended (Q54, Q56) ---- */

struct ended {
    struct cairn_grant grant;
    const char *proc; /* borrowed from the body */
    uint32_t rank;
    size_t index; /* in the body's `ended` */
    enum srv_end end;
    bool possible, taken;
};
struct ends {
    struct srv_request *request;
    struct ended *items; /* owned */
    size_t count;
    struct srv_ids closed; /* versions given up */
};

/* Q49: a foreign grant does not stop the other entries; its report counts as taken. */
static enum cairn_code read_one(struct ends *ends, const json_t *item, size_t index,
                                bool same_catalog, struct cairn_error *err) {
    struct ended *one = &ends->items[ends->count];
    struct cairn_msg_node_ended said = {0};
    char pointer[32];
    snprintf(pointer, sizeof(pointer), "/ended/%zu", index);
    CAIRN_TRY(cairn_msg_node_ended_read(item, pointer, &said, err));
    one->index = index;
    one->rank = said.rank;
    one->proc = said.proc;
    one->end = said.settled && same_catalog ? SRV_END_SETTLED : SRV_END_SEEN;
    one->taken = srv_grant_judge(ends->request->server, said.grant, &one->grant, NULL) != CAIRN_OK;
    ends->count++;
    return CAIRN_OK;
}

/* list: the body's `ended`, or NULL. same_catalog: this catalog last answered the node. */
static enum cairn_code read_ends(struct ends *ends, const json_t *list, bool same_catalog,
                                 struct cairn_error *err) {
    size_t count = json_array_size(list);
    if (count > SRV_RANKS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "/ended: more than %d", SRV_RANKS_MAX);
    ends->items = calloc(count + 1, sizeof(*ends->items));
    if (!ends->items) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a heartbeat");
    for (size_t i = 0; i < count; i++)
        CAIRN_TRY(read_one(ends, json_array_get(list, i), i, same_catalog, err));
    return CAIRN_OK;
}

/* *ret_possible: the run is at this attempt, and may be written. */
static enum cairn_code admit_end(struct srv_tx *tx, const struct cairn_grant *grant,
                                 struct srv_run *ret, bool *ret_possible, bool *ret_stale,
                                 struct cairn_error *err) {
    struct cairn_error why = {0};
    *ret_possible = *ret_stale = false;
    enum cairn_code code = srv_admit(tx, grant, ret, &why);
    if (!code) code = srv_tx_run_thawed(tx, ret->id, &why);
    *ret_possible = !code;
    *ret_stale = code == CAIRN_STALE_ATTEMPT;
    if (!code || *ret_stale || code == CAIRN_NOT_FOUND || code == CAIRN_CATALOG_BEHIND)
        return CAIRN_OK;
    return cairn_pass(err, code, &why);
}

static struct srv_process process_of(const struct ends *ends, const struct ended *one,
                                     int64_t run_id) {
    return (struct srv_process){run_id, one->grant.attempt, one->rank, one->proc,
                                ends->request->params.node};
}

/* Adds the ended attempt to `fenced`; *unwritten: no row has this end yet. */
static enum cairn_code look_at_one(struct srv_tx *tx, const struct ends *ends, struct ended *one,
                                   json_t *fenced, bool *unwritten, struct cairn_error *err) {
    SRV_AUTO(run) run = {0};
    bool stale = false, known = false;
    enum srv_end end = SRV_END_NONE;
    CAIRN_TRY(admit_end(tx, &one->grant, &run, &one->possible, &stale, err));
    if (stale) {
        one->taken = true;
        return add_fenced(fenced, &one->grant, err);
    }
    if (!one->possible) return CAIRN_OK;
    struct srv_process process = process_of(ends, one, run.id);
    CAIRN_TRY(srv_member_end_get(tx, &process, &known, &end, err));
    if (known && end >= one->end)
        one->possible = false;
    else
        *unwritten = true;
    one->taken = known && end == SRV_END_SETTLED;
    return CAIRN_OK;
}

/* Q35: a run that was not compared with its store in this server's life gives up no version. */
static void compare_runs(struct ends *ends) {
    for (size_t i = 0; i < ends->count; i++) {
        struct ended *one = &ends->items[i];
        struct cairn_error why = {0};
        bool busy = false;
        if (!one->possible || one->end != SRV_END_SETTLED) continue;
        enum cairn_code code =
            srv_compare(ends->request->server, ends->request->store, &one->grant.name, &busy, &why);
        if (code || busy) one->end = SRV_END_SEEN;
    }
}

static enum cairn_code close_open(struct srv_tx *tx, struct ends *ends, int64_t run_id,
                                  struct cairn_error *err) {
    SRV_GET(ids, open, srv_versions_open_of_run(tx, run_id, &open, err));
    for (size_t i = 0; i < open.count; i++) {
        char reason[SRV_REASON_BYTES];
        SRV_GET(version, version, srv_version_get(tx, open.ids[i].text, &version, err));
        CAIRN_TRY(srv_members_gone(tx, &version, reason, err));
        if (!reason[0]) continue;
        struct srv_move move = {CAIRN_EVENT_GIVE_UP, CAIRN_SOURCE_GONE, reason};
        CAIRN_TRY(srv_version_move(tx, &version, &move, err));
        CAIRN_TRY(srv_ids_add(&ends->closed, &version.id, err));
    }
    return CAIRN_OK;
}

SRV_CHANGE(write_all, struct ends *ends) {
    ends->closed.count = 0;
    for (size_t i = 0; i < ends->count; i++) {
        struct ended *one = &ends->items[i];
        SRV_AUTO(run) run = {0};
        bool stale = false;
        if (!one->possible) continue;
        CAIRN_TRY(admit_end(tx, &one->grant, &run, &one->possible, &stale, err));
        if (!one->possible) continue;
        struct srv_process process = process_of(ends, one, run.id);
        CAIRN_TRY(srv_member_end_put(tx, &process, one->end, err));
        if (one->end == SRV_END_SETTLED) CAIRN_TRY(close_open(tx, ends, run.id, err));
    }
    return CAIRN_OK;
}

static void announce_closed(struct ends *ends) {
    struct srv *server = ends->request->server;
    for (size_t i = 0; i < ends->closed.count; i++) {
        SRV_AUTO(version) version = {0};
        if (srv_version_look(server->catalog, ends->closed.ids[i].text, &version, NULL)) continue;
        cairn_log(WARN, "save.ended", "version=%s step=%" PRIu64 " reason=\"%s\"", version.id.text,
                  version.step, version.reason);
        srv_waiters_wake_version(server->waiters, &version.id, &version.name);
    }
    if (ends->closed.count) srv_jobs_sweep(server);
}

/* Writes new ends. `taken` gets indexes of reports that need no repeat, `fenced` ended attempts. */
static enum cairn_code take_ends(struct ends *ends, json_t *taken, json_t *fenced,
                                 struct cairn_error *err) {
    struct srv *server = ends->request->server;
    bool unwritten = false;
    if (!ends->count || server->frozen) return CAIRN_OK;
    SRV_LOOK(look, server->catalog, err);
    for (size_t i = 0; i < ends->count; i++)
        if (!ends->items[i].taken)
            CAIRN_TRY(look_at_one(look.tx, ends, &ends->items[i], fenced, &unwritten, err));
    srv_look_release(&look);
    if (unwritten) {
        compare_runs(ends);
        CAIRN_TRY(srv_catalog_write(server->catalog, write_all, ends, err));
        announce_closed(ends);
    }
    for (size_t i = 0; i < ends->count; i++) {
        const struct ended *one = &ends->items[i];
        bool settled = one->possible && one->end == SRV_END_SETTLED;
        if (one->taken || settled)
            CAIRN_TRY(
                cairn_json_append(taken, json_integer((json_int_t)one->index), "the answer", err));
    }
    return CAIRN_OK;
}

/* ---- a heartbeat ---- */

struct beat {
    struct srv_request *request;
    struct cairn_msg_node_put said;
    struct cairn_buf uploader_text;
    struct cairn_grant *grants; /* accepted grants (Q49) */
    struct srv_heartbeat heard; /* one report per grant; what is not taken is owned */
    struct ends ends;
    bool has_row, write_row, was_away, is_anothers;
    uint64_t asked, answered;               /* reports that other servers asked for (Q3) */
    char projects[SRV_NODE_PROJECTS_BYTES]; /* of the accepted grants */
    bool write_projects;
    char *said_to_others; /* reports for other servers; owned */
    struct wish {         /* one per grant */
        size_t index;
        bool peers, untold; /* untold: `told` is not in the attempt's list yet */
        int64_t run_id;
        json_t *copies, *kept; /* borrowed */
        char *told;            /* uploader JSON for the attempt's other nodes; owned */
    } * wishes;
    json_t *fenced, *states, *unknown, *foreign, *taken, *peers, *finish; /* the answer */
};

/* Once per id: versions may be named by grant, by copy and by id. */
static enum cairn_code add_state(struct beat *beat, const struct srv_version *version,
                                 struct cairn_error *err) {
    json_t *brief = srv_version_brief(version);
    if (brief && !json_object_set_new(beat->states, version->id.text, brief)) return CAIRN_OK;
    return srv_no_memory(err);
}

/* ---- reading ---- */

/* Q49: a foreign grant is named in the answer and does not stop the other entries. */
static enum cairn_code read_attempt(struct beat *beat, size_t index, struct cairn_error *err) {
    struct cairn_msg_node_attempt said = {0};
    struct srv_run_report *report = &beat->heard.take_reports[beat->heard.report_count];
    struct cairn_grant *grant = &beat->grants[beat->heard.report_count];
    CAIRN_TRY(cairn_msg_node_attempt_read(json_array_get(beat->said.attempts, index), "/attempts",
                                          &said, err));
    struct cairn_error why = {0};
    enum cairn_code code = srv_grant_judge(beat->request->server, said.grant, grant, &why);
    if (code && !CAIRN_RULE(Q49)) return cairn_fail(err, code, "%s", why.message);
    if (code)
        return cairn_json_append(beat->foreign,
                                 CAIRN_PACK(node_foreign, .index = index,
                                            .code = cairn_code_info(code)->slug,
                                            .detail = why.message),
                                 "the answer", err);
    beat->wishes[beat->heard.report_count] = (struct wish){
        .index = index, .peers = said.peers, .copies = said.copies, .kept = said.kept};
    report->unsent = said.unsent;
    report->run = grant->name;
    report->attempt = grant->attempt;
    beat->heard.report_count++;
    return CAIRN_OK;
}

static enum cairn_code read_attempts(struct beat *beat, struct cairn_error *err) {
    size_t count = json_array_size(beat->said.attempts);
    if (count > RUNS_MAX || json_array_size(beat->said.versions) > RUNS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "at most %d attempts and versions", RUNS_MAX);
    beat->heard.take_reports = calloc(count + 1, sizeof(*beat->heard.take_reports));
    beat->grants = calloc(count + 1, sizeof(*beat->grants));
    beat->wishes = calloc(count + 1, sizeof(*beat->wishes));
    if (!beat->heard.take_reports || !beat->grants || !beat->wishes)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a heartbeat");
    for (size_t i = 0; i < count; i++) CAIRN_TRY(read_attempt(beat, i, err));
    return CAIRN_OK;
}

static void read_errors(const json_t *said, struct srv_version_report *report) {
    for (size_t i = 0; i < json_array_size(said); i++) {
        if (report->error_count == SRV_SHARD_ERRORS_MAX) return;
        struct srv_shard_error *one = &report->errors[report->error_count];
        struct cairn_msg_node_error error = {0};
        if (cairn_msg_node_error_read(json_array_get(said, i), "/errors", &error, NULL)) continue;
        cairn_utf8_shorten(one->shard, sizeof(one->shard), error.shard);
        cairn_utf8_shorten(one->error, sizeof(one->error), error.error);
        one->part = error.part;
        one->rank = error.rank;
        one->tries = error.tries;
        one->age_ms = error.age_ms;
        report->error_count++;
    }
}

/* Progress and errors for {C}/why. Skips malformed and surplus ones: the heartbeat counts. */
static enum cairn_code read_versions(struct beat *beat, struct cairn_error *err) {
    size_t count = cairn_min_u64(json_array_size(beat->said.versions), SRV_VERSION_REPORTS_MAX);
    beat->heard.take_versions = calloc(count + 1, sizeof(*beat->heard.take_versions));
    if (!beat->heard.take_versions)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a heartbeat");
    for (size_t i = 0; i < count; i++) {
        struct srv_version_report *report =
            &beat->heard.take_versions[beat->heard.version_report_count];
        struct cairn_msg_node_version said = {.shards_done = CAIRN_MESSAGE_NONE,
                                              .shards_total = CAIRN_MESSAGE_NONE,
                                              .parts_done = CAIRN_MESSAGE_NONE,
                                              .parts_total = CAIRN_MESSAGE_NONE};
        if (cairn_msg_node_version_read(json_array_get(beat->said.versions, i), "/versions", &said,
                                        NULL))
            continue;
        if (!cairn_text_copy(report->id.text, sizeof(report->id.text), said.version)) continue;
        report->bytes_done = said.done_bytes;
        report->bytes_total = said.total_bytes;
        report->shards_done = said.shards_done;
        report->shards_total = said.shards_total;
        report->parts_done = said.parts_done;
        report->parts_total = said.parts_total;
        if (said.error) cairn_utf8_shorten(report->error, sizeof(report->error), said.error);
        read_errors(said.errors, report);
        beat->heard.version_report_count++;
    }
    return CAIRN_OK;
}

static enum cairn_code read_kept(struct beat *beat, struct cairn_error *err) {
    beat->heard.take_kept = calloc(SRV_KEPT_MAX, sizeof(*beat->heard.take_kept));
    if (!beat->heard.take_kept)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a heartbeat");
    for (size_t i = 0; i < beat->heard.report_count; i++) {
        const json_t *copies = beat->wishes[i].copies;
        for (size_t k = 0; k < json_array_size(copies); k++) {
            struct srv_kept *kept = &beat->heard.take_kept[beat->heard.kept_count];
            struct cairn_msg_node_copy said = {0};
            if (beat->heard.kept_count == SRV_KEPT_MAX) return CAIRN_OK;
            if (cairn_msg_node_copy_read(json_array_get(copies, k), "/copies", &said, NULL) ||
                !cairn_text_copy(kept->version.text, sizeof(kept->version.text), said.version) ||
                !cairn_text_copy(kept->node, sizeof(kept->node), said.node))
                continue;
            kept->rank = said.rank;
            beat->heard.kept_count++;
        }
    }
    return CAIRN_OK;
}

/* ---- peers (Q57) ----
 *
 * Only a caller with the attempt's grant gets its nodes: the same list for all, sorted by name.
 * With partner_copies it also gets its partner (plan/divide.h) once every rank has joined, chosen
 * among nodes that have partner_memory and are not silent. */

struct peers {
    json_t *nodes;
    struct cairn_plan_node partners[PEERS_MAX]; /* nodes that keep copies; texts owned */
    size_t partner_count;
    char silent[PEERS_MAX][CAIRN_NAME_BYTES_MAX + 1]; /* never chosen as partner */
    size_t silent_count;
};

static bool is_silent(const struct peers *peers, const char *node) {
    for (size_t i = 0; i < peers->silent_count; i++)
        if (!strcmp(peers->silent[i], node)) return true;
    return false;
}

/* The uploader's JSON is stored as it came; without a `peer` address it has no peer port. */
static enum cairn_code add_peer(struct peers *peers, const char *node, const char *uploader,
                                struct cairn_error *err) {
    struct cairn_msg_attempt_uploader said = {0};
    CAIRN_AUTO_JSON json_t *json = NULL;
    if (cairn_json_parse(cairn_view_of(uploader), (struct cairn_json_limits){0}, &json, NULL) ||
        cairn_msg_attempt_uploader_read(json, "", &said, NULL) || !said.peer || !*said.peer)
        return CAIRN_OK;
    CAIRN_TRY(cairn_json_append(
        peers->nodes, CAIRN_PACK(node_peer, .node = node, .address = said.peer, .kept = said.kept),
        "the answer", err));
    if (!said.partner_memory_bytes || is_silent(peers, node)) return CAIRN_OK;
    char *name = strdup(node), *domain = strdup(said.failure_domain ? said.failure_domain : "");
    peers->partners[peers->partner_count++] = (struct cairn_plan_node){name, domain};
    return name && domain ? CAIRN_OK : srv_no_memory(err);
}

static void free_peers(struct peers **peers) {
    for (size_t i = 0; *peers && i < (*peers)->partner_count; i++) {
        free((char *)(*peers)->partners[i].name);
        free((char *)(*peers)->partners[i].domain);
    }
    if (*peers) json_decref((*peers)->nodes);
    free(*peers);
}

static enum cairn_code add_peers(struct srv_tx *tx, struct beat *beat, const struct srv_run *run,
                                 const struct wish *wish, struct cairn_error *err) {
    if (!wish->peers) return CAIRN_OK;
    CAIRN_RELEASED(free_peers) struct peers *peers = calloc(1, sizeof(*peers));
    if (peers) peers->nodes = json_array();
    if (!peers || !peers->nodes) return srv_no_memory(err);
    struct srv *server = beat->request->server;
    uint64_t tick = srv_tick(tx);
    struct cairn_policy policy; /* the run's policy decides, else the server's setting */
    enum srv_scope scope;
    CAIRN_TRY(srv_policy_get(tx, &run->name, &policy, &scope, err));
    bool complete = false;
    bool copies =
        (policy.says_partner_copies ? policy.partner_copies : server->settings->partner_copies) > 0;
    if (copies) {
        SRV_GET(rows, rows, srv_attempt_nodes(tx, run->id, run->attempt, &rows, err));
        SQL_EACH(&rows, err) {
            const struct srv_node_mark node = srv_row_node_mark(&rows);
            if (peers->silent_count < PEERS_MAX &&
                srv_node_silent_ms(server, &node, tick) >= SRV_SILENT_MS)
                (void)cairn_text_copy(peers->silent[peers->silent_count++],
                                      CAIRN_NAME_BYTES_MAX + 1, node.node);
        }
    }
    SRV_GET(rows, rows, srv_attempt_peers(tx, run, PEERS_MAX, &complete, &rows, err));
    SQL_EACH(&rows, err) {
        const struct srv_attempt_uploader row = srv_row_attempt_peer(&rows);
        CAIRN_TRY(add_peer(peers, row.node, row.uploader, err));
    }
    const char *partner = NULL;
    if (copies && complete)
        partner =
            cairn_plan_partner(peers->partners, peers->partner_count, beat->request->params.node);
    return cairn_json_append(beat->peers,
                             CAIRN_PACK(node_peers, .index = wish->index, .complete = complete,
                                        .nodes = peers->nodes, .partner = partner),
                             "the answer", err);
}

/* ---- copies that the node keeps for others (Q57) ----
 *
 * A lost node cannot say what it had staged; the server knows which nodes are silent and which keep
 * copies. A keeper finishes a copy once the giver is silent for partner_finish, has no row, or runs
 * another process that does not know the version. Each heartbeat repeats this while the version is
 * open; two senders do no harm, since they send the same object under the same token. */

struct giver { /* the node whose rank is copied */
    struct srv *server;
    const struct cairn_run_name *name;
    const char *uploader; /* uuid of the process that gave the copy */
    const char *version;
    bool gone;
};

/* A newer process of the giver that has the version in its journal hands it over or fails it. */
static bool knows(const struct giver *giver, const char *node) {
    struct srv_version_report ignored;
    return srv_node_said_of(giver->server, node, giver->version, &ignored) ||
           srv_node_unsent(giver->server, node, giver->name, 0);
}

static void look_at_giver(void *argument, const struct srv_node_mark *mark, const char *uploader,
                          uint64_t tick) {
    struct giver *giver = argument;
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_msg_node_uploader said = {0};
    uint64_t silent_ms = srv_node_silent_ms(giver->server, mark, tick);
    bool other =
        !cairn_json_parse(cairn_view_of(uploader), (struct cairn_json_limits){0}, &json, NULL) &&
        !cairn_msg_node_uploader_read(json, "", &said, NULL) && said.uuid &&
        strcmp(said.uuid, giver->uploader) != 0;
    giver->gone = silent_ms >= giver->server->settings->partner_finish_ms ||
                  (other && !knows(giver, mark->node));
}

static enum cairn_code add_finish(struct srv_tx *tx, struct beat *beat,
                                  const struct cairn_run_name *name,
                                  const struct cairn_msg_node_copy *said, struct cairn_error *err) {
    struct giver giver = {.server = beat->request->server,
                          .name = name,
                          .uploader = said->uploader,
                          .version = said->version};
    enum cairn_code code = srv_node_look(tx, said->node, look_at_giver, &giver, err);
    if (code && code != CAIRN_NOT_FOUND) return code;
    if (!giver.gone && !code) return CAIRN_OK;
    return cairn_json_append(beat->finish,
                             CAIRN_PACK(node_finish, .version = said->version, .rank = said->rank),
                             "the answer", err);
}

/* A version that the server does not know has no other uploader: it waits for its keeper. */
static enum cairn_code answer_copy(struct srv_tx *tx, struct beat *beat, size_t place,
                                   const struct cairn_msg_node_copy *said,
                                   struct cairn_error *err) {
    const struct cairn_run_name *name = &beat->grants[place].name;
    SRV_AUTO(version) version = {0};
    bool sealed = false;
    enum cairn_code code = srv_version_get(tx, said->version, &version, err);
    if (code && code != CAIRN_NOT_FOUND) return code;
    if (!code && !cairn_run_name_same(&version.name, name))
        return CAIRN_OK; /* P16: this grant covers another run */
    if (!code) CAIRN_TRY(add_state(beat, &version, err));
    if (!code && version.state != CAIRN_STATE_OPEN) return CAIRN_OK;
    if (!code) CAIRN_TRY(srv_rank_sealed(tx, said->version, said->rank, &sealed, err));
    beat->heard.take_reports[place].unsent += !sealed; /* Q3 */
    return add_finish(tx, beat, name, said, err);
}

/* Also while the run is frozen: what the keeper sends is judged on arrival. */
static enum cairn_code answer_copies(struct srv_tx *tx, struct beat *beat, size_t place,
                                     struct cairn_error *err) {
    const json_t *copies = beat->wishes[place].copies;
    size_t count = cairn_min_u64(json_array_size(copies), COPIES_MAX);
    for (size_t i = 0; i < count; i++) {
        struct cairn_msg_node_copy said = {0};
        CAIRN_TRY(
            cairn_msg_node_copy_read(json_array_get(copies, i), "/attempts/copies", &said, err));
        CAIRN_TRY(answer_copy(tx, beat, place, &said, err));
    }
    return CAIRN_OK;
}

/* ---- the answer ---- */

/* Q58: only a caller with the attempt's grant changes how its nodes see this node. */
static enum cairn_code look_at_told(struct srv_tx *tx, struct beat *beat, int64_t run_id,
                                    size_t place, struct cairn_error *err) {
    struct wish *wish = &beat->wishes[place];
    const struct srv_attempt_uploader said = {run_id, beat->grants[place].attempt,
                                              beat->request->params.node, wish->told};
    bool same = false;
    CAIRN_TRY(srv_attempt_uploader_is(tx, &said, &same, err));
    wish->run_id = run_id;
    wish->untold = !same;
    return CAIRN_OK;
}

static enum cairn_code write_told(struct srv_tx *tx, struct beat *beat, struct cairn_error *err) {
    for (size_t i = 0; i < beat->heard.report_count; i++) {
        const struct srv_attempt_uploader said = {beat->wishes[i].run_id, beat->grants[i].attempt,
                                                  beat->request->params.node, beat->wishes[i].told};
        if (beat->wishes[i].untold) CAIRN_TRY(srv_attempt_uploader_put(tx, &said, err));
    }
    return CAIRN_OK;
}

/* Names no open version of a run that is frozen or not compared with its store yet: a version that
 * is open in this catalog may be committed in the store (Q35, Q36). */
static enum cairn_code answer_grant(struct srv_tx *tx, struct beat *beat, size_t place,
                                    struct cairn_error *err) {
    const struct cairn_grant *grant = &beat->grants[place];
    SRV_AUTO(run) run = {0};
    struct cairn_error ignored = {0};
    enum cairn_code code = srv_admit(tx, grant, &run, &ignored);
    if (code == CAIRN_STALE_ATTEMPT) return add_fenced(beat->fenced, grant, err);
    if (!code) CAIRN_TRY(look_at_told(tx, beat, run.id, place, err));
    if (!code) CAIRN_TRY(add_peers(tx, beat, &run, &beat->wishes[place], err));
    if (!code) CAIRN_TRY(answer_copies(tx, beat, place, err));
    if (code || srv_tx_run_thawed(tx, run.id, &ignored)) return CAIRN_OK;
    if (beat->request->server->frozen) return CAIRN_OK;
    if (!srv_is_compared(beat->request->server, &grant->name)) return CAIRN_OK;
    /* Q12: also versions that the node did not ask about. */
    SRV_GET(rows, rows, srv_versions_open_of_attempt(tx, &grant->name, grant->attempt, &rows, err));
    SQL_EACH(&rows, err) {
        SRV_GET(version, version, srv_version_row(&rows, &version, err));
        CAIRN_TRY(add_state(beat, &version, err));
    }
    return CAIRN_OK;
}

/* P16: a version outside of the caller's token and grants is reported as unknown. */
static bool may_know(const struct beat *beat, const struct cairn_run_name *name) {
    const struct srv_caller *caller = &beat->request->caller;
    if (srv_caller_may(caller, CAIRN_SCOPE_READ, name->project) ||
        srv_caller_may(caller, CAIRN_SCOPE_WRITE, name->project))
        return true;
    for (size_t i = 0; i < beat->heard.report_count; i++)
        if (cairn_run_name_same(&beat->grants[i].name, name)) return true;
    return false;
}

static bool run_of(const struct cairn_msg_node_restore *said, struct cairn_run_name *ret) {
    (void)cairn_text_copy(ret->project, sizeof(ret->project), said->project);
    (void)cairn_text_copy(ret->run, sizeof(ret->run), said->run);
    return cairn_name_valid(cairn_view_of(said->project)) &&
           cairn_name_valid(cairn_view_of(said->run));
}

/* What is no object is refused; an object of another release may be skipped. */
static enum cairn_code are_objects(const json_t *list, const char *pointer,
                                   struct cairn_error *err) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_object(json_array_get(list, i)))
            return cairn_fail(err, CAIRN_INVALID, "%s/%zu: wanted an object", pointer, i);
    return CAIRN_OK;
}

/* For {C}/why; skips runs that the caller may not know. */
static void hear_restores(const struct beat *beat) {
    size_t count = cairn_min_u64(json_array_size(beat->said.restores), RESTORES_MAX);
    for (size_t i = 0; i < count; i++) {
        struct cairn_msg_node_restore said = {0};
        struct srv_restore restore = {0};
        if (cairn_msg_node_restore_read(json_array_get(beat->said.restores, i), "", &said, NULL) ||
            !run_of(&said, &restore.run) || !may_know(beat, &restore.run))
            continue;
        (void)cairn_text_copy(restore.node, sizeof(restore.node), beat->request->params.node);
        (void)cairn_text_copy(restore.version.text, sizeof(restore.version.text), said.version);
        (void)cairn_text_copy(restore.choice, sizeof(restore.choice), said.choice);
        restore.store_bytes = said.store_bytes;
        restore.shared_bytes = said.shared_bytes;
        restore.peer_bytes = said.peer_bytes;
        restore.memory_bytes = said.memory_bytes;
        srv_restores_hear(beat->request->server->restores, &restore);
    }
}

static enum cairn_code add_version(struct srv_tx *tx, struct beat *beat, const json_t *item,
                                   struct cairn_error *err) {
    const char *id = json_string_value(json_object_get(item, "version"));
    if (!id || !cairn_version_id_valid(cairn_view_of(id)))
        return cairn_fail(err, CAIRN_INVALID, "/versions: a version id is needed");
    SRV_AUTO(version) version = {0};
    enum cairn_code code = srv_version_get(tx, id, &version, err);
    if (code == CAIRN_NOT_FOUND || (!code && !may_know(beat, &version.name)))
        return cairn_json_append(beat->unknown, json_string(id), "the answer", err);
    return code ? code : add_state(beat, &version, err);
}

/* Q58: does the caller's token, or one of the grants, cover a project of the node? */
static bool has_project_of(const struct beat *beat, const char *projects) {
    const struct srv_caller *caller = &beat->request->caller;
    for (const char *at = projects; *at;) {
        struct cairn_run_name name = {0};
        size_t size = strcspn(at, ",");
        memcpy(name.project, at, cairn_min_u64(size, sizeof(name.project) - 1));
        if (srv_caller_may(caller, CAIRN_SCOPE_WRITE, name.project)) return true;
        for (size_t i = 0; i < beat->heard.report_count; i++)
            if (!strcmp(beat->grants[i].name.project, name.project)) return true;
        at += size + (at[size] == ',');
    }
    return !*projects;
}

/* A name that was silent for silence_max is free for another project. */
static void look_at_mark(void *argument, const struct srv_node_mark *mark, const char *uploader,
                         uint64_t tick) {
    struct beat *beat = argument;
    struct srv *server = beat->request->server;
    (void)uploader;
    bool is_free =
        mark->away || srv_node_silent_ms(server, mark, tick) >= server->settings->silence_max_ms;
    beat->has_row = true;
    beat->asked = mark->asked;
    beat->answered = mark->answered;
    beat->was_away = mark->away;
    beat->is_anothers = !is_free && !has_project_of(beat, mark->projects);
    beat->write_projects = strcmp(beat->projects, mark->projects) != 0 &&
                           (beat->projects[0] || !has_project_of(beat, mark->projects));
}

static enum cairn_code answer_beat(struct beat *beat, struct cairn_error *err) {
    SRV_LOOK(look, beat->request->server->catalog, err);
    const char *node = beat->request->params.node;
    beat->has_row = beat->is_anothers = false;
    beat->write_projects = beat->projects[0];
    enum cairn_code code = srv_node_look(look.tx, node, look_at_mark, beat, err);
    if (code && code != CAIRN_NOT_FOUND) return code;
    if (beat->is_anothers)
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "node %s works for another project: this uploader shows neither a grant "
                          "nor a token of it. Give it another node name; this one is free %" PRIu64
                          " s after its uploader was heard last",
                          node, beat->request->server->settings->silence_max_ms / 1000);
    for (size_t i = 0; i < beat->heard.report_count; i++)
        CAIRN_TRY(answer_grant(look.tx, beat, i, err));
    for (size_t i = 0; i < json_array_size(beat->said.versions); i++)
        CAIRN_TRY(add_version(look.tx, beat, json_array_get(beat->said.versions, i), err));
    return CAIRN_OK;
}

/* A one-shot uploader that leaves has nothing unsent, and its name is never used again. */
static bool is_over(const struct beat *beat) {
    return beat->said.leaving && beat->said.one_shot;
}

SRV_CHANGE(write_row, struct beat *beat) {
    const char *node = beat->request->params.node;
    if (is_over(beat)) return srv_node_end(tx, node, err);
    CAIRN_TRY(srv_node_put(tx, node, beat->uploader_text.data, srv_wall_ms(beat->request->server),
                           beat->said.leaving, err));
    if (beat->write_projects) CAIRN_TRY(srv_node_put_projects(tx, node, beat->projects, err));
    CAIRN_TRY(write_told(tx, beat, err));
    if (!beat->said_to_others) return CAIRN_OK;
    for (size_t i = 0; i < beat->heard.report_count; i++) srv_notify_run(tx, &beat->grants[i].name);
    return srv_node_answer(tx, node, beat->asked, beat->said_to_others, err);
}

/* Other servers read the row: written at once when one has asked, or the node comes or goes. */
static enum cairn_code look_at_row(struct beat *beat, struct cairn_error *err) {
    for (size_t i = 0; i < beat->heard.report_count; i++) beat->write_row |= beat->wishes[i].untold;
    if (!beat->has_row) return CAIRN_OK;
    beat->write_row |=
        beat->write_projects || beat->was_away != beat->said.leaving || is_over(beat);
    if (beat->asked <= beat->answered) return CAIRN_OK;
    CAIRN_AUTO_JSON json_t *said = srv_node_said(beat->request->server, beat->request->params.node);
    beat->said_to_others = said ? json_dumps(said, JSON_COMPACT) : NULL;
    if (!beat->said_to_others) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a heartbeat");
    beat->write_row = true;
    return CAIRN_OK;
}

static enum cairn_code reply_to(struct beat *beat, struct srv_reply *reply,
                                struct cairn_error *err) {
    struct srv *server = beat->request->server;
    CAIRN_AUTO_JSON json_t *versions = json_array();
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(beat->states, key, value) {
        if (json_array_append(versions, value)) return srv_no_memory(err);
    }
    return srv_reply_json(reply, 200,
                          CAIRN_PACK(node_told, .catalog = server->store_uuid,
                                     .generation = server->generation, .fenced = beat->fenced,
                                     .versions = versions, .unknown = beat->unknown,
                                     .foreign = beat->foreign, .ended = beat->taken,
                                     .peers = beat->peers, .finish = beat->finish),
                          err);
}

/* *ret: this catalog last answered the node. */
static enum cairn_code is_ours(const struct srv *server, const json_t *heard, bool *ret,
                               struct cairn_error *err) {
    struct cairn_msg_node_heard said = {0};
    *ret = false;
    if (!heard) return CAIRN_OK;
    CAIRN_TRY(cairn_msg_node_heard_read(heard, "/heard", &said, err));
    *ret = said.generation == server->generation && !strcmp(said.catalog, server->store_uuid);
    return CAIRN_OK;
}

/* A field of the uploader's JSON; "": absent. */
static const char *word_of(const struct beat *beat, const char *name) {
    const char *text = json_string_value(json_object_get(beat->said.uploader, name));
    return text ? text : "";
}

/* The journal comes first: what it cannot write is lost with the process. */
static const char *trouble_of(const struct beat *beat) {
    const char *journal = word_of(beat, "journal");
    const char *store = word_of(beat, "store_waits");
    return journal[0] ? journal : store[0] ? store : word_of(beat, "server_fails");
}

/* Skips malformed entries and stops at KEPT_RANKS_MAX: the list is only a hint for restores. */
static enum cairn_code read_kept_of(const json_t *said, json_t *ret, struct cairn_error *err) {
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(said); i++) {
        struct cairn_msg_node_kept kept = {0};
        if (cairn_msg_node_kept_read(json_array_get(said, i), "/kept", &kept, NULL) ||
            !cairn_version_id_valid(cairn_view_of(kept.version)))
            continue;
        count += json_array_size(kept.ranks);
        if (count > KEPT_RANKS_MAX) return CAIRN_OK;
        CAIRN_TRY(cairn_json_append(
            ret, CAIRN_PACK(node_kept, .version = kept.version, .ranks = kept.ranks), "a heartbeat",
            err));
    }
    return CAIRN_OK;
}

/* Builds the part of the uploader's JSON that the attempt's other nodes use. */
static enum cairn_code read_told(struct beat *beat, struct cairn_error *err) {
    struct cairn_msg_node_uploader said = {0};
    if (cairn_msg_node_uploader_read(beat->said.uploader, "/uploader", &said, NULL))
        said = (struct cairn_msg_node_uploader){0}; /* malformed: no peer port */
    for (size_t i = 0; i < beat->heard.report_count; i++) {
        struct wish *wish = &beat->wishes[i];
        CAIRN_AUTO_JSON json_t *kept = json_array();
        CAIRN_TRY(read_kept_of(wish->kept, kept, err));
        CAIRN_AUTO_JSON json_t *told =
            CAIRN_PACK(attempt_uploader, .peer = said.peer, .failure_domain = said.failure_domain,
                       .partner_memory_bytes = said.partner_memory_bytes,
                       .kept = json_array_size(kept) ? kept : NULL);
        wish->told = told ? json_dumps(told, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
        if (!wish->told) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a heartbeat");
    }
    return CAIRN_OK;
}

static bool has_word(const char *list, const char *word) {
    size_t size = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += size)
        if ((at == list || at[-1] == ',') && (at[size] == ',' || !at[size])) return true;
    return false;
}

/* Skips projects that do not fit: one is enough to recognise the node (Q58). */
static void note_projects(struct beat *beat) {
    size_t used = 0;
    for (size_t i = 0; i < beat->heard.report_count; i++) {
        const char *project = beat->grants[i].name.project;
        if (has_word(beat->projects, project) ||
            used + strlen(project) + 2 > sizeof(beat->projects))
            continue;
        used += (size_t)snprintf(beat->projects + used, sizeof(beat->projects) - used, "%s%s",
                                 used ? "," : "", project);
    }
}

static enum cairn_code serve_beat(struct beat *beat, const json_t *body, struct srv_reply *reply,
                                  struct cairn_error *err) {
    struct srv *server = beat->request->server;
    bool same_catalog = false;
    CAIRN_TRY(cairn_msg_node_put_read(body, "", &beat->said, err));
    CAIRN_TRY(is_ours(server, beat->said.heard, &same_catalog, err));
    CAIRN_TRY(are_objects(beat->said.restores, "/restores", err));
    CAIRN_TRY(read_ends(&beat->ends, beat->said.ended, same_catalog, err));
    beat->uploader_text.limit = 4096;
    CAIRN_TRY(cairn_json_dump(beat->said.uploader, &beat->uploader_text, err));
    CAIRN_TRY(read_attempts(beat, err));
    CAIRN_TRY(read_told(beat, err));
    note_projects(beat);
    CAIRN_TRY(read_versions(beat, err));
    CAIRN_TRY(read_kept(beat, err));
    hear_restores(beat);
    CAIRN_TRY(answer_beat(beat, err));
    struct srv_heartbeat *heard = &beat->heard;
    heard->node = beat->request->params.node;
    heard->uploader = cairn_buf_view(&beat->uploader_text);
    heard->version_count = json_array_size(beat->said.versions);
    heard->uuid = word_of(beat, "uuid");
    heard->trouble = trouble_of(beat);
    heard->known = heard->report_count || beat->has_row;
    heard->has_row = beat->has_row;
    heard->leaving = beat->said.leaving;
    beat->write_row = srv_nodes_hear(server, heard);
    CAIRN_TRY(look_at_row(beat, err));
    for (size_t i = 0; i < beat->heard.report_count; i++)
        srv_waiters_wake_run(server->waiters, &beat->grants[i].name);
    CAIRN_TRY(take_ends(&beat->ends, beat->taken, beat->fenced, err));
    enum cairn_code code = CAIRN_OK;
    if (beat->write_row) code = srv_catalog_write(server->catalog, write_row, beat, err);
    if (code) srv_node_row_failed(server, beat->request->params.node);
    if (code) return code;
    bool was_there = false;
    if (is_over(beat)) (void)!srv_node_forget(server, beat->request->params.node, &was_there);
    for (size_t i = 0; i < beat->heard.report_count && beat->said_to_others; i++)
        srv_waiters_wake_run(server->waiters, &beat->grants[i].name);
    return reply_to(beat, reply, err);
}

static void release_beat(struct beat *beat) {
    json_t *const answer[] = {beat->fenced, beat->states, beat->unknown, beat->foreign,
                              beat->taken,  beat->peers,  beat->finish};
    for (size_t i = 0; i < CAIRN_COUNT(answer); i++) json_decref(answer[i]);
    for (size_t i = 0; i < beat->heard.report_count; i++) free(beat->wishes[i].told);
    cairn_buf_release(&beat->uploader_text);
    free(beat->said_to_others);
    free(beat->heard.take_reports);
    free(beat->heard.take_versions);
    free(beat->heard.take_kept);
    free(beat->grants);
    free(beat->wishes);
    free(beat->ends.items);
    srv_ids_release(&beat->ends.closed);
}

SRV_HANDLER(node_put) {
    CAIRN_AUTO_JSON json_t *body = NULL;
    CAIRN_TRY(srv_body(request, 100000, &body, err));
    CAIRN_RELEASED(release_beat)
    struct beat beat = {.request = request,
                        .fenced = json_array(),
                        .states = json_object(),
                        .unknown = json_array(),
                        .foreign = json_array(),
                        .taken = json_array(),
                        .peers = json_array(),
                        .finish = json_array(),
                        .ends.request = request};
    return serve_beat(&beat, body, reply, err);
}
