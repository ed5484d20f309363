/* SPDX-License-Identifier: Apache-2.0 */
/* PUT /v1/nodes/{node}: a heartbeat. Progress is kept in memory, liveness in one row a node,
 * written at most once a minute (rule Q26). GET /v1/nodes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/messages.h"
#include "common/clock.h"
#include "common/rule.h"
#include "common/text.h"
#include "common/utf8.h"
#include "server/db/catalog.h"
#include "server/http/request.h"
#include "server/http/waiters.h"
#include "server/intake/ended.h"
#include "server/ledger/leases.h"
#include "server/ledger/runs.h"
#include "server/ledger/version_lists.h"
#include "server/nodes/node_copies.h"
#include "server/nodes/nodes.h"
#include "server/nodes/peers.h"
#include "server/nodes/restores.h"
#include "server/recovery/compare.h"
#include "server/versions/versions_json.h"

#define RUNS_MAX 4096
#define RESTORES_MAX 16
#define KEPT_RANKS_MAX 4096 /* of a run, in memory of one node */

/* ---- PUT /v1/nodes/{node} ---- */

struct beat {
    struct cairn_srv_request *request;
    struct cairn_msg_node_put said;
    struct cairn_buf uploader_text;
    struct cairn_grant *grants;           /* those that are ours (Q49) */
    struct cairn_srv_run_report *reports; /* one for each of them */
    size_t report_count;
    struct cairn_srv_version_report *versions;
    size_t version_report_count;
    struct cairn_srv_kept *kept;
    size_t kept_count;
    struct cairn_srv_ends ends;
    bool has_row, write_row, was_away, is_anothers;
    uint64_t asked, answered;                            /* by another server (Q3) */
    char projects[CAIRN_SRV_NODE_PROJECTS_BYTES];        /* of the grants that are ours */
    bool write_projects;
    char *said_to_others;                                /* what that is told; owned */
    struct wish {                                        /* for each of the grants */
        size_t index;
        bool peers, untold; /* untold: what it says of itself is not in the attempt's list yet */
        int64_t run_id;
        json_t *copies, *kept; /* borrowed */
        char *told; /* to the other nodes of the attempt: JSON; owned */
    } *wishes;
    json_t *fenced, *states, *unknown, *foreign, *taken, *peers, *finish; /* the answer */
};

/* Q49: a grant that is not ours is named in the answer and keeps none of the others. */
static enum cairn_code read_attempt(struct beat *beat, size_t index, struct cairn_error *err) {
    struct cairn_msg_node_attempt said = {0};
    struct cairn_srv_run_report *report = &beat->reports[beat->report_count];
    struct cairn_grant *grant = &beat->grants[beat->report_count];
    CAIRN_TRY(cairn_msg_node_attempt_read(json_array_get(beat->said.attempts, index), "/attempts",
                                          &said, err));
    struct cairn_error why = {0};
    enum cairn_code code = cairn_srv_grant_judge(beat->request->server, said.grant, grant, &why);
    if (code && !CAIRN_RULE(Q49)) return cairn_fail(err, code, "%s", why.message);
    if (code) {
        json_t *item = CAIRN_PACK(node_foreign, .index = index, .code = cairn_code_info(code)->slug,
                                  .detail = why.message);
        if (!json_array_append_new(beat->foreign, item)) return CAIRN_OK;
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    }
    beat->wishes[beat->report_count] =
        (struct wish){.index = index, .peers = said.peers, .copies = said.copies,
                      .kept = said.kept};
    report->unsent = said.unsent;
    report->run = grant->name;
    report->attempt = grant->attempt;
    beat->report_count++;
    return CAIRN_OK;
}

static enum cairn_code read_attempts(struct beat *beat, struct cairn_error *err) {
    size_t count = json_array_size(beat->said.attempts);
    if (count > RUNS_MAX || json_array_size(beat->said.versions) > RUNS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "at most %d attempts and versions", RUNS_MAX);
    beat->reports = calloc(count + 1, sizeof(*beat->reports));
    beat->grants = calloc(count + 1, sizeof(*beat->grants));
    beat->wishes = calloc(count + 1, sizeof(*beat->wishes));
    if (!beat->reports || !beat->grants || !beat->wishes)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a heartbeat");
    for (size_t i = 0; i < count; i++) CAIRN_TRY(read_attempt(beat, i, err));
    return CAIRN_OK;
}

/* What is no error of a shard is left out. */
static void read_errors(const json_t *said, struct cairn_srv_version_report *report) {
    for (size_t i = 0; i < json_array_size(said); i++) {
        if (report->error_count == CAIRN_SRV_SHARD_ERRORS_MAX) return;
        struct cairn_srv_shard_error *one = &report->errors[report->error_count];
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

/* Progress and errors, for whoever asks what a version waits for; what does not fit, or says no
 * run, is not kept: a heartbeat is worth more than what people read in it. */
static enum cairn_code read_versions(struct beat *beat, struct cairn_error *err) {
    size_t count = cairn_min_u64(json_array_size(beat->said.versions),
                                 CAIRN_SRV_VERSION_REPORTS_MAX);
    beat->versions = calloc(count + 1, sizeof(*beat->versions));
    if (!beat->versions) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a heartbeat");
    for (size_t i = 0; i < count; i++) {
        struct cairn_srv_version_report *report = &beat->versions[beat->version_report_count];
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
        beat->version_report_count++;
    }
    return CAIRN_OK;
}

/* For people, as progress is. */
static enum cairn_code read_kept(struct beat *beat, struct cairn_error *err) {
    beat->kept = calloc(CAIRN_SRV_KEPT_MAX, sizeof(*beat->kept));
    if (!beat->kept) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a heartbeat");
    for (size_t i = 0; i < beat->report_count; i++) {
        const json_t *copies = beat->wishes[i].copies;
        for (size_t k = 0; k < json_array_size(copies); k++) {
            struct cairn_srv_kept *kept = &beat->kept[beat->kept_count];
            struct cairn_msg_node_copy said = {0};
            if (beat->kept_count == CAIRN_SRV_KEPT_MAX) return CAIRN_OK;
            if (cairn_msg_node_copy_read(json_array_get(copies, k), "/copies", &said, NULL) ||
                !cairn_text_copy(kept->version.text, sizeof(kept->version.text), said.version) ||
                !cairn_text_copy(kept->node, sizeof(kept->node), said.node))
                continue;
            kept->rank = said.rank;
            beat->kept_count++;
        }
    }
    return CAIRN_OK;
}

static bool has_grant(const struct beat *beat, const struct cairn_run_name *name) {
    for (size_t i = 0; i < beat->report_count; i++)
        if (!strcmp(beat->grants[i].name.project, name->project) &&
            !strcmp(beat->grants[i].name.run, name->run))
            return true;
    return false;
}

static enum cairn_code add_fenced(struct beat *beat, const struct cairn_grant *grant,
                                  struct cairn_error *err) {
    if (json_array_append_new(beat->fenced,
                              CAIRN_PACK(node_fenced, .project = grant->name.project,
                                         .run = grant->name.run, .attempt = grant->attempt)))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    return CAIRN_OK;
}

/* Q12: every open version of the grant's attempt is named, asked for or not. */
static enum cairn_code add_open(struct cairn_srv_tx *tx, void *argument,
                                const struct cairn_srv_version *version, struct cairn_error *err) {
    struct beat *beat = argument;
    (void)tx;
    json_t *brief = cairn_srv_version_brief(version);
    if (!brief || json_object_set_new(beat->states, version->id.text, brief))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    return CAIRN_OK;
}

static enum cairn_code add_peers(struct cairn_srv_tx *tx, struct beat *beat,
                                 const struct cairn_srv_run *run, const struct wish *wish,
                                 struct cairn_error *err) {
    json_t *item = NULL;
    const struct cairn_srv_peers_ask ask = {.server = beat->request->server,
                                            .run = run,
                                            .index = wish->index,
                                            .node = beat->request->params.node};
    if (!wish->peers) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_peers_json(tx, &ask, &item, err));
    if (!json_array_append_new(beat->peers, item)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
}

/* Also of a run that is ahead: what is sent for it is judged when it comes. */
static enum cairn_code answer_copies(struct cairn_srv_tx *tx, struct beat *beat, size_t place,
                                     struct cairn_error *err) {
    struct cairn_srv_copies copies = {.server = beat->request->server,
                                      .name = &beat->grants[place].name,
                                      .said = beat->wishes[place].copies,
                                      .states = beat->states,
                                      .finish = beat->finish};
    uint64_t unsent = 0;
    CAIRN_TRY(cairn_srv_copies_answer(tx, &copies, &unsent, err));
    beat->reports[place].unsent += unsent;
    return CAIRN_OK;
}

/* Q58: what the nodes of an attempt are told of this one comes with the attempt's grant alone. */
static enum cairn_code look_at_told(struct cairn_srv_tx *tx, struct beat *beat, int64_t run_id,
                                    size_t place, struct cairn_error *err) {
    struct wish *wish = &beat->wishes[place];
    const struct cairn_srv_attempt_uploader said = {run_id, beat->grants[place].attempt,
                                                    beat->request->params.node, wish->told};
    bool same = false;
    CAIRN_TRY(cairn_srv_attempt_uploader_is(tx, &said, &same, err));
    wish->run_id = run_id;
    wish->untold = !same;
    return CAIRN_OK;
}

static enum cairn_code write_told(struct cairn_srv_tx *tx, struct beat *beat,
                                  struct cairn_error *err) {
    for (size_t i = 0; i < beat->report_count; i++) {
        const struct cairn_srv_attempt_uploader said = {
            beat->wishes[i].run_id, beat->grants[i].attempt, beat->request->params.node,
            beat->wishes[i].told};
        if (beat->wishes[i].untold) CAIRN_TRY(cairn_srv_attempt_uploader_put(tx, &said, err));
    }
    return CAIRN_OK;
}

/* A run that is ahead in its store, or was not compared with it yet, has no open versions to name:
 * what this catalog calls open there may be committed (Q35, Q36). */
static enum cairn_code answer_grant(struct cairn_srv_tx *tx, struct beat *beat, size_t place,
                                    struct cairn_error *err) {
    const struct cairn_grant *grant = &beat->grants[place];
    CAIRN_AUTO(srv_run) run = {0};
    struct cairn_error ignored = {0};
    enum cairn_code code = cairn_srv_admit(tx, grant, &run, &ignored);
    if (code == CAIRN_STALE_ATTEMPT) return add_fenced(beat, grant, err);
    if (!code) CAIRN_TRY(look_at_told(tx, beat, run.id, place, err));
    if (!code) CAIRN_TRY(add_peers(tx, beat, &run, &beat->wishes[place], err));
    if (!code) CAIRN_TRY(answer_copies(tx, beat, place, err));
    if (code || cairn_srv_tx_run_thawed(tx, run.id, &ignored)) return CAIRN_OK;
    if (beat->request->server->frozen) return CAIRN_OK;
    if (!cairn_srv_is_compared(beat->request->server, &grant->name)) return CAIRN_OK;
    return cairn_srv_versions_open_of_attempt(tx, &grant->name, grant->attempt, add_open, beat,
                                              err);
}

/* P16: of a version that neither his token nor one of his grants is about he hears nothing. */
static bool may_know(const struct beat *beat, const struct cairn_run_name *name) {
    const struct cairn_srv_caller *caller = &beat->request->caller;
    bool known = cairn_srv_caller_may(caller, CAIRN_SCOPE_READ, name->project) ||
                 cairn_srv_caller_may(caller, CAIRN_SCOPE_WRITE, name->project);
    return known || has_grant(beat, name);
}

static bool run_of(const struct cairn_msg_node_restore *said, struct cairn_run_name *ret) {
    (void)cairn_text_copy(ret->project, sizeof(ret->project), said->project);
    (void)cairn_text_copy(ret->run, sizeof(ret->run), said->run);
    return cairn_name_valid(cairn_view_of(said->project)) &&
           cairn_name_valid(cairn_view_of(said->run));
}

/* For whoever asks how a version was restored; of a run that is not its own nothing is kept. */
static void hear_restores(const struct beat *beat) {
    size_t count = cairn_min_u64(json_array_size(beat->said.restores), RESTORES_MAX);
    for (size_t i = 0; i < count; i++) {
        struct cairn_msg_node_restore said = {0};
        struct cairn_srv_restore restore = {0};
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
        cairn_srv_restores_hear(beat->request->server->restores, &restore);
    }
}

static enum cairn_code add_version(struct cairn_srv_tx *tx, struct beat *beat, const json_t *item,
                                   struct cairn_error *err) {
    const char *id = json_string_value(json_object_get(item, "version"));
    if (!id || !cairn_version_id_valid(cairn_view_of(id)))
        return cairn_fail(err, CAIRN_INVALID, "/versions: a version id is needed");
    CAIRN_AUTO(srv_version) version = {0};
    enum cairn_code code = cairn_srv_version_get(tx, id, &version, err);
    if (code == CAIRN_NOT_FOUND || (!code && !may_know(beat, &version.name))) {
        if (!json_array_append_new(beat->unknown, json_string(id))) return CAIRN_OK;
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    }
    if (code) return code;
    json_t *brief = cairn_srv_version_brief(&version);
    if (!brief || json_object_set_new(beat->states, id, brief))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    return CAIRN_OK;
}

/* Q58: does the caller's token, or one of the grants, belong to a project of the node? */
static bool has_project_of(const struct beat *beat, const char *projects) {
    const struct cairn_srv_caller *caller = &beat->request->caller;
    for (const char *at = projects; *at;) {
        struct cairn_run_name name = {0};
        size_t size = strcspn(at, ",");
        memcpy(name.project, at, cairn_min_u64(size, sizeof(name.project) - 1));
        if (cairn_srv_caller_may(caller, CAIRN_SCOPE_WRITE, name.project)) return true;
        for (size_t i = 0; i < beat->report_count; i++)
            if (!strcmp(beat->grants[i].name.project, name.project)) return true;
        at += size + (at[size] == ',');
    }
    return !*projects;
}

/* A name that nobody has used for as long as saves wait for it is free again. */
static void look_at_mark(void *argument, const struct cairn_srv_node_mark *mark,
                         const char *uploader, uint64_t tick) {
    struct beat *beat = argument;
    struct cairn_srv *server = beat->request->server;
    (void)uploader;
    bool is_free = mark->away || cairn_srv_node_silent_ms(server, mark, tick) >=
                                     server->settings->silence_max_ms;
    beat->has_row = true;
    beat->asked = mark->asked;
    beat->answered = mark->answered;
    beat->was_away = mark->away;
    beat->is_anothers = !is_free && !has_project_of(beat, mark->projects);
    beat->write_projects = strcmp(beat->projects, mark->projects) != 0 &&
                           (beat->projects[0] || !has_project_of(beat, mark->projects));
}

static enum cairn_code answer_beat(struct cairn_srv_tx *tx, void *argument,
                                   struct cairn_error *err) {
    struct beat *beat = argument;
    const char *node = beat->request->params.node;
    beat->has_row = beat->is_anothers = false;
    beat->write_projects = beat->projects[0];
    enum cairn_code code = cairn_srv_node_look(tx, node, look_at_mark, beat, err);
    if (code && code != CAIRN_NOT_FOUND) return code;
    if (beat->is_anothers)
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "node %s works for another project: this uploader shows neither a grant "
                          "nor a token of it. Give it another node name; this one is free %" PRIu64
                          " s after its uploader was heard last",
                          node, beat->request->server->settings->silence_max_ms / 1000);
    for (size_t i = 0; i < beat->report_count; i++)
        CAIRN_TRY(answer_grant(tx, beat, i, err));
    for (size_t i = 0; i < json_array_size(beat->said.versions); i++)
        CAIRN_TRY(add_version(tx, beat, json_array_get(beat->said.versions, i), err));
    return CAIRN_OK;
}

/* It owes nothing, and its name is never used again. */
static bool is_over(const struct beat *beat) {
    return beat->said.leaving && beat->said.one_shot;
}

static enum cairn_code write_row(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct beat *beat = argument;
    const char *node = beat->request->params.node;
    if (is_over(beat)) return cairn_srv_node_end(tx, node, err);
    CAIRN_TRY(cairn_srv_node_put(tx, node, beat->uploader_text.data,
                                 cairn_srv_wall_ms(beat->request->server), beat->said.leaving,
                                 err));
    if (beat->write_projects)
        CAIRN_TRY(cairn_srv_node_put_projects(tx, node, beat->projects, err));
    CAIRN_TRY(write_told(tx, beat, err));
    if (!beat->said_to_others) return CAIRN_OK;
    for (size_t i = 0; i < beat->report_count; i++) cairn_srv_notify_run(tx, &beat->grants[i].name);
    return cairn_srv_node_answer(tx, node, beat->asked, beat->said_to_others, err);
}

/* The row is for other servers, too: at once where one has asked, or the node comes or goes. */
static enum cairn_code look_at_row(struct beat *beat, struct cairn_error *err) {
    for (size_t i = 0; i < beat->report_count; i++) beat->write_row |= beat->wishes[i].untold;
    if (!beat->has_row) return CAIRN_OK;
    beat->write_row |=
        beat->write_projects || beat->was_away != beat->said.leaving || is_over(beat);
    if (beat->asked <= beat->answered) return CAIRN_OK;
    CAIRN_AUTO_JSON json_t *said =
        cairn_srv_node_said(beat->request->server, beat->request->params.node);
    beat->said_to_others = said ? json_dumps(said, JSON_COMPACT) : NULL;
    if (!beat->said_to_others) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a heartbeat");
    beat->write_row = true;
    return CAIRN_OK;
}

static enum cairn_code reply_to(struct beat *beat, struct cairn_srv_reply *reply,
                                struct cairn_error *err) {
    struct cairn_srv *server = beat->request->server;
    CAIRN_AUTO_JSON json_t *versions = json_array();
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(beat->states, key, value) {
        if (json_array_append(versions, value))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    }
    return cairn_srv_reply_json(reply, 200,
                                CAIRN_PACK(node_told, .catalog = server->store_uuid,
                                           .generation = server->generation, .fenced = beat->fenced,
                                           .versions = versions, .unknown = beat->unknown,
                                           .foreign = beat->foreign, .ended = beat->taken,
                                           .peers = beat->peers, .finish = beat->finish),
                                err);
}

/* Was it this catalog that answered the node last? */
static enum cairn_code is_ours(const struct cairn_srv *server, const json_t *heard, bool *ret,
                               struct cairn_error *err) {
    struct cairn_msg_node_heard said = {0};
    *ret = false;
    if (!heard) return CAIRN_OK;
    CAIRN_TRY(cairn_msg_node_heard_read(heard, "/heard", &said, err));
    *ret = said.generation == server->generation && !strcmp(said.catalog, server->store_uuid);
    return CAIRN_OK;
}

/* What it says of itself, "" for what it does not. */
static const char *word_of(const struct beat *beat, const char *name) {
    const char *text = json_string_value(json_object_get(beat->said.uploader, name));
    return text ? text : "";
}

/* The journal first: what it holds is lost with the process. */
static const char *trouble_of(const struct beat *beat) {
    const char *journal = word_of(beat, "journal");
    const char *store = word_of(beat, "store_waits");
    return journal[0] ? journal : store[0] ? store : word_of(beat, "server_fails");
}

/* What is well formed, as far as there is room for it: a hint for restores, and no more. */
static enum cairn_code read_kept_of(const json_t *said, json_t *ret, struct cairn_error *err) {
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(said); i++) {
        struct cairn_msg_node_kept kept = {0};
        if (cairn_msg_node_kept_read(json_array_get(said, i), "/kept", &kept, NULL) ||
            !cairn_version_id_valid(cairn_view_of(kept.version)))
            continue;
        count += json_array_size(kept.ranks);
        if (count > KEPT_RANKS_MAX) return CAIRN_OK;
        if (json_array_append_new(ret, CAIRN_PACK(node_kept, .version = kept.version,
                                                  .ranks = kept.ranks)))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a heartbeat");
    }
    return CAIRN_OK;
}

/* Of what it says of itself the part that the other nodes of an attempt work with. */
static enum cairn_code read_told(struct beat *beat, struct cairn_error *err) {
    struct cairn_msg_node_uploader said = {0};
    if (cairn_msg_node_uploader_read(beat->said.uploader, "/uploader", &said, NULL))
        said = (struct cairn_msg_node_uploader){0}; /* it has no port then, and is heard */
    for (size_t i = 0; i < beat->report_count; i++) {
        struct wish *wish = &beat->wishes[i];
        CAIRN_AUTO_JSON json_t *kept = json_array();
        CAIRN_TRY(read_kept_of(wish->kept, kept, err));
        CAIRN_AUTO_JSON json_t *told = CAIRN_PACK(
            attempt_uploader, .peer = said.peer, .failure_domain = said.failure_domain,
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

/* Those that do not fit are left out: one of them is enough to be known by. */
static void note_projects(struct beat *beat) {
    size_t used = 0;
    for (size_t i = 0; i < beat->report_count; i++) {
        const char *project = beat->grants[i].name.project;
        if (has_word(beat->projects, project) ||
            used + strlen(project) + 2 > sizeof(beat->projects))
            continue;
        used += (size_t)snprintf(beat->projects + used, sizeof(beat->projects) - used, "%s%s",
                                 used ? "," : "", project);
    }
}

static enum cairn_code serve_beat(struct beat *beat, const json_t *body,
                                  struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct cairn_srv *server = beat->request->server;
    bool same_catalog = false;
    CAIRN_TRY(cairn_msg_node_put_read(body, "", &beat->said, err));
    CAIRN_TRY(is_ours(server, beat->said.heard, &same_catalog, err));
    CAIRN_TRY(cairn_srv_ends_read(&beat->ends, beat->said.ended, same_catalog, err));
    beat->uploader_text.limit = 4096;
    CAIRN_TRY(cairn_json_dump(beat->said.uploader, &beat->uploader_text, err));
    CAIRN_TRY(read_attempts(beat, err));
    CAIRN_TRY(read_told(beat, err));
    note_projects(beat);
    CAIRN_TRY(read_versions(beat, err));
    CAIRN_TRY(read_kept(beat, err));
    hear_restores(beat);
    CAIRN_TRY(cairn_srv_catalog_read(server->catalog, answer_beat, beat, err));
    struct cairn_srv_heartbeat heard_now = {.node = beat->request->params.node,
                                            .uploader = cairn_buf_view(&beat->uploader_text),
                                            .take_reports = CAIRN_TAKE(beat->reports),
                                            .report_count = beat->report_count,
                                            .version_count = json_array_size(beat->said.versions),
                                            .take_versions = CAIRN_TAKE(beat->versions),
                                            .version_report_count = beat->version_report_count,
                                            .take_kept = CAIRN_TAKE(beat->kept),
                                            .kept_count = beat->kept_count,
                                            .uuid = word_of(beat, "uuid"),
                                            .trouble = trouble_of(beat),
                                            .known = beat->report_count || beat->has_row,
                                            .has_row = beat->has_row,
                                            .leaving = beat->said.leaving};
    beat->write_row = cairn_srv_nodes_hear(server, &heard_now);
    beat->reports = heard_now.take_reports;
    beat->versions = heard_now.take_versions;
    beat->kept = heard_now.take_kept;
    CAIRN_TRY(look_at_row(beat, err));
    for (size_t i = 0; i < beat->report_count; i++)
        cairn_srv_waiters_wake_run(server->waiters, &beat->grants[i].name);
    CAIRN_TRY(cairn_srv_ends_take(&beat->ends, beat->taken, beat->fenced, err));
    if (beat->write_row) CAIRN_TRY(cairn_srv_catalog_write(server->catalog, write_row, beat, err));
    bool was_there = false;
    if (is_over(beat)) (void)!cairn_srv_node_forget(server, beat->request->params.node, &was_there);
    for (size_t i = 0; i < beat->report_count && beat->said_to_others; i++)
        cairn_srv_waiters_wake_run(server->waiters, &beat->grants[i].name);
    return reply_to(beat, reply, err);
}

enum cairn_code cairn_srv_on_node_put(struct cairn_srv_request *request,
                                      struct cairn_srv_reply *reply, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *body = NULL;
    CAIRN_TRY(cairn_srv_body(request, 100000, &body, err));
    struct beat beat = {.request = request,
                        .fenced = json_array(),
                        .states = json_object(),
                        .unknown = json_array(),
                        .foreign = json_array(),
                        .taken = json_array(),
                        .peers = json_array(),
                        .finish = json_array(),
                        .ends.request = request};
    enum cairn_code code = serve_beat(&beat, body, reply, err);
    cairn_buf_release(&beat.uploader_text);
    free(beat.said_to_others);
    free(beat.reports);
    free(beat.versions);
    free(beat.kept);
    json_decref(beat.fenced);
    json_decref(beat.states);
    json_decref(beat.unknown);
    json_decref(beat.foreign);
    json_decref(beat.peers);
    json_decref(beat.finish);
    for (size_t i = 0; i < beat.report_count; i++) free(beat.wishes[i].told);
    free(beat.grants);
    free(beat.wishes);
    json_decref(beat.taken);
    cairn_srv_ends_release(&beat.ends);
    return code;
}

/* ---- GET /v1/nodes ---- */

struct list {
    struct cairn_srv_request *request;
    uint64_t limit;
    char after[CAIRN_NAME_BYTES_MAX + 1], last[CAIRN_NAME_BYTES_MAX + 1];
    json_t *items, *next;
    struct cairn_srv_strangers strangers;
    size_t stranger; /* the next of them */
};

static json_t *node_json(struct cairn_srv *server, const struct cairn_srv_node_row *row) {
    uint64_t heard_ms = 0;
    size_t versions = 0;
    int64_t wall_ms = row->wall_ms;
    if (cairn_srv_node_last_heard(server, row->node, &heard_ms, &versions)) {
        int64_t here_ms =
            cairn_srv_wall_ms(server) - (int64_t)(cairn_srv_mono_ms(server) - heard_ms);
        wall_ms = here_ms > wall_ms ? here_ms : wall_ms;
    }
    char heard_at[32], trouble[CAIRN_SRV_TROUBLE_BYTES];
    cairn_time_text(wall_ms, true, heard_at);
    cairn_srv_node_trouble(server, row->node, trouble);
    CAIRN_AUTO_JSON json_t *uploader = json_loads(row->uploader, JSON_DECODE_ANY, NULL);
    return CAIRN_PACK(node_row, .node = row->node, .heard_at = heard_at,
                      .uploader = json_is_null(uploader) ? NULL : uploader, .versions = versions,
                      .trouble = trouble[0] ? trouble : NULL);
}

static enum cairn_code add_item(struct list *list, const struct cairn_srv_node_row *row,
                                struct cairn_error *err) {
    if (list->next) return CAIRN_OK;
    if (json_array_size(list->items) == list->limit) {
        list->next = cairn_srv_cursor_write(list->request->server, list->last);
        return CAIRN_OK;
    }
    (void)cairn_text_copy(list->last, sizeof(list->last), row->node);
    if (json_array_append_new(list->items, node_json(list->request->server, row)))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
    return CAIRN_OK;
}

/* Nodes without a row stand among the others, up to this name; NULL: all of them. */
static enum cairn_code add_strangers(struct list *list, const char *before,
                                     struct cairn_error *err) {
    for (; list->stranger < list->strangers.count; list->stranger++) {
        const struct cairn_srv_stranger *one = &list->strangers.items[list->stranger];
        if (before && strcmp(one->node, before) >= 0) return CAIRN_OK;
        if (!strcmp(one->node, list->last)) continue; /* its row has been written meanwhile */
        struct cairn_srv_node_row row = {.node = one->node, .uploader = one->uploader};
        CAIRN_TRY(add_item(list, &row, err));
    }
    return CAIRN_OK;
}

static enum cairn_code add_node(void *argument, const struct cairn_srv_node_row *row,
                                struct cairn_error *err) {
    struct list *list = argument;
    CAIRN_TRY(add_strangers(list, row->node, err));
    return add_item(list, row, err);
}

static enum cairn_code list_nodes(struct cairn_srv_tx *tx, void *argument,
                                  struct cairn_error *err) {
    struct list *list = argument; /* one more than are shown, to know of a next page */
    CAIRN_TRY(cairn_srv_nodes_page(tx, list->after, list->limit + 1, add_node, list, err));
    return add_strangers(list, NULL, err);
}

enum cairn_code cairn_srv_on_node_list(struct cairn_srv_request *request,
                                       struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct list list = {.request = request};
    CAIRN_TRY(cairn_srv_query_limit(request, &list.limit, err));
    CAIRN_TRY(cairn_srv_cursor_read(request, list.after, sizeof(list.after), err));
    CAIRN_TRY(cairn_srv_nodes_strangers(request->server, list.after, &list.strangers, err));
    list.items = json_array();
    enum cairn_code code = cairn_srv_catalog_read(request->server->catalog, list_nodes, &list, err);
    cairn_srv_strangers_release(&list.strangers);
    if (code) {
        json_decref(list.items);
        json_decref(list.next);
        return code;
    }
    return cairn_srv_reply_page(reply, list.items, list.next, err);
}

/* ---- DELETE /v1/nodes/{node} ---- */

struct drop {
    const char *node;
    bool there;
};

static enum cairn_code drop_row(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct drop *drop = argument;
    return cairn_srv_node_drop(tx, drop->node, &drop->there, err);
}

enum cairn_code cairn_srv_on_node_delete(struct cairn_srv_request *request,
                                         struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct drop drop = {.node = request->params.node};
    bool heard = false;
    if (!cairn_srv_node_forget(request->server, drop.node, &heard))
        return cairn_fail(err, CAIRN_IN_USE, "node %s was heard a moment ago: stop its uploader",
                          drop.node);
    CAIRN_TRY(cairn_srv_catalog_write(request->server->catalog, drop_row, &drop, err));
    if (!drop.there && !heard)
        return cairn_fail(err, CAIRN_NOT_FOUND, "there is no node %s", drop.node);
    return cairn_srv_reply_json(reply, 200, CAIRN_PACK(node_dropped, .node = drop.node), err);
}
