/* SPDX-License-Identifier: Apache-2.0 */
/* POST {R}/trash, many versions at once, and DELETE {R}?confirm=, a run with all that it has. Each
 * version is judged and moved by itself, in transactions of its own (Q27); what cannot go is
 * named. */
#include <inttypes.h>
#include <stdio.h>

#include "api/messages.h"
#include "common/log.h"
#include "common/text.h"
#include "common/utf8.h"
#include "server/catalog/frozen.h"
#include "server/catalog/members.h"
#include "server/catalog/version_lists.h"
#include "server/handlers/remove.h"
#include "server/handlers/runs_json.h"
#include "server/handlers/verdicts.h"
#include "server/jobs/jobs.h"
#include "server/nodes.h"
#include "server/waiters.h"

#define REFS_MAX 1000
#define ROUND_MAX 1000 /* versions of a run that one call removes */

/* ---- many versions ---- */

static enum cairn_code add_result(json_t *items, const char *ref, enum cairn_code code,
                                  const struct cairn_srv_trashed *gone,
                                  const struct cairn_error *why, struct cairn_error *err) {
    json_t *item = code ? CAIRN_PACK(trashed_row, .ref = ref, .code = cairn_code_info(code)->slug,
                                     .detail = why->message)
                        : CAIRN_PACK(trashed_row, .ref = ref, .version = gone->id.text,
                                     .trashed = true, .bytes = gone->bytes);
    if (!json_array_append_new(items, item)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
}

/* What is about one version is in the answer; what is about all ends the call. */
static bool is_its_own(enum cairn_code code) {
    return code == CAIRN_NOT_FOUND || code == CAIRN_IN_USE || code == CAIRN_NOT_COMMITTED ||
           code == CAIRN_DELETED || code == CAIRN_INVALID || code == CAIRN_ABORTED;
}

static enum cairn_code trash_all(struct cairn_srv_request *request, const json_t *refs,
                                 json_t *items, uint64_t *ret_bytes, struct cairn_error *err) {
    size_t index = 0;
    json_t *ref = NULL;
    json_array_foreach((json_t *)(uintptr_t)refs, index, ref) {
        struct cairn_srv_trashed gone = {0};
        struct cairn_error why = {0};
        const char *text = json_string_value(ref);
        if (!text || strlen(text) > CAIRN_REF_BYTES_MAX)
            return cairn_fail(err, CAIRN_INVALID, "/versions/%zu must be a step or an id", index);
        enum cairn_code code = !strcmp(text, "latest") || !strcmp(text, "best")
                                   ? cairn_fail(&why, CAIRN_INVALID,
                                                "`%s` means another one after each removal", text)
                                   : cairn_srv_trash_one(request, text, false, &gone, &why);
        if (code && !is_its_own(code)) {
            if (err) *err = why;
            return cairn_within(err, code, "/versions/%zu", index);
        }
        *ret_bytes += gone.bytes;
        CAIRN_TRY(add_result(items, text, code, &gone, &why, err));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_on_trash(struct cairn_srv_request *request, struct cairn_srv_reply *reply,
                                   struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *body = NULL, *items = json_array();
    struct cairn_msg_trash said = {0};
    uint64_t bytes = 0;
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    CAIRN_TRY(cairn_srv_body(request, 2 * REFS_MAX, &body, err));
    CAIRN_TRY(cairn_msg_trash_read(body, "", &said, err));
    if (!json_array_size(said.versions) || json_array_size(said.versions) > REFS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "/versions: 1 to %d of them", REFS_MAX);
    if (!items) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    CAIRN_TRY(trash_all(request, said.versions, items, &bytes, err));
    return cairn_srv_reply_json(reply, 200, CAIRN_PACK(trashed, .items = items, .bytes = bytes),
                                err);
}

/* ---- a run ---- */

struct removal {
    struct cairn_srv_request *request;
    struct cairn_srv_run run;
    struct cairn_srv_ids committed, open;
    uint64_t tick, bytes, removed, aborted, left;
    bool busy;
};

static void release(struct removal *removal) {
    cairn_srv_run_release(&removal->run);
    cairn_srv_ids_release(&removal->committed);
    cairn_srv_ids_release(&removal->open);
}

static void look_at_node(void *argument, const struct cairn_srv_node_mark *node) {
    struct removal *removal = argument;
    struct cairn_srv *server = removal->request->server;
    if (cairn_srv_node_silent_ms(server, node, removal->tick) < CAIRN_SRV_SILENT_MS)
        removal->busy |= cairn_srv_node_writes(server, node->node, &removal->run.name,
                                               removal->run.attempt);
}

static enum cairn_code add_version(struct cairn_srv_tx *tx, void *argument,
                                   const struct cairn_srv_version *version,
                                   struct cairn_error *err) {
    struct removal *removal = argument;
    (void)tx;
    if (version->state == CAIRN_STATE_OPEN)
        return cairn_srv_ids_add(&removal->open, &version->id, err);
    if (version->trashed || version->state != CAIRN_STATE_COMMITTED) return CAIRN_OK;
    if (removal->committed.count < ROUND_MAX)
        return cairn_srv_ids_add(&removal->committed, &version->id, err);
    removal->left++;
    return CAIRN_OK;
}

/* Nothing is begun where a job is at work, or something of the run is held. */
static enum cairn_code judge_run(struct cairn_srv_tx *tx, struct removal *removal,
                                 struct cairn_error *err) {
    const struct cairn_srv_run *run = &removal->run;
    struct cairn_version_id held;
    uint64_t step = 0;
    CAIRN_TRY(cairn_srv_run_there(run, err));
    CAIRN_TRY(cairn_srv_tx_run_thawed(tx, run->id, err));
    removal->tick = cairn_srv_tick(tx);
    removal->busy = false;
    CAIRN_TRY(cairn_srv_attempt_nodes(tx, run->id, run->attempt, look_at_node, removal, err));
    if (removal->busy)
        return cairn_fail(err, CAIRN_RUN_BUSY,
                          "trainers of attempt %" PRIu64 " are at work: end them", run->attempt);
    CAIRN_TRY(cairn_srv_run_held(tx, run->id, &held, &step, err));
    if (!held.text[0]) return CAIRN_OK;
    return cairn_fail(err, CAIRN_IN_USE,
                      "%s (step %" PRIu64 ") is pinned, leased or has an alias: nothing was "
                      "removed",
                      held.text, step);
}

static enum cairn_code look(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct removal *removal = argument;
    struct cairn_srv_page page = {.place = {INT64_MAX, INT64_MAX, INT64_MAX}};
    cairn_srv_run_release(&removal->run);
    removal->committed.count = removal->open.count = 0;
    removal->left = 0;
    CAIRN_TRY(cairn_srv_run_get(tx, &removal->request->params.run_name, &removal->run, err));
    CAIRN_TRY(judge_run(tx, removal, err));
    page.run_id = removal->run.id;
    page.state = -1;
    page.limit = 2 * ROUND_MAX;
    return cairn_srv_versions_page(tx, &page, add_version, removal, err);
}

static enum cairn_code give_up_open(struct cairn_srv_tx *tx, void *argument,
                                    struct cairn_error *err) {
    struct removal *removal = argument;
    removal->aborted = 0;
    for (size_t i = 0; i < removal->open.count; i++) {
        CAIRN_AUTO(srv_version) version = {0};
        CAIRN_TRY(cairn_srv_version_get(tx, removal->open.ids[i].text, &version, err));
        if (version.state != CAIRN_STATE_OPEN) continue;
        struct cairn_srv_move move = {CAIRN_EVENT_GIVE_UP, CAIRN_ABORTED, "the run was removed"};
        CAIRN_TRY(cairn_srv_version_move(tx, &version, &move, err));
        removal->aborted++;
    }
    return CAIRN_OK;
}

static enum cairn_code hide(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    const struct removal *removal = argument;
    return cairn_srv_run_hide(tx, removal->run.id, err);
}

static enum cairn_code remove_round(struct removal *removal, struct cairn_error *err) {
    struct cairn_srv *server = removal->request->server;
    CAIRN_TRY(cairn_srv_catalog_read(server->catalog, look, removal, err));
    if (removal->open.count) {
        CAIRN_TRY(cairn_srv_catalog_write(server->catalog, give_up_open, removal, err));
        for (size_t i = 0; i < removal->open.count; i++)
            cairn_srv_waiters_wake_version(server->waiters, &removal->open.ids[i],
                                           &removal->run.name);
        cairn_srv_jobs_sweep(server);
    }
    for (size_t i = 0; i < removal->committed.count; i++) {
        const char *id = removal->committed.ids[i].text;
        struct cairn_srv_trashed gone = {0};
        CAIRN_TRY(cairn_srv_trash_one(removal->request, id, true, &gone, err));
        removal->bytes += gone.bytes;
        removal->removed++;
    }
    return removal->left ? CAIRN_OK
                         : cairn_srv_catalog_write(server->catalog, hide, removal, err);
}

enum cairn_code cairn_srv_run_delete_whole(struct cairn_srv_request *request, const char *confirm,
                                           struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct removal removal = {.request = request};
    const struct cairn_run_name *name = &request->params.run_name;
    if (strcmp(confirm, name->run) != 0)
        return cairn_fail(err, CAIRN_INVALID, "confirm=%s: the run's name is %s",
                          cairn_short(confirm).text, name->run);
    enum cairn_code code = remove_round(&removal, err);
    if (!code) {
        cairn_log(INFO, "run.removed",
                  "run=%s/%s versions=%" PRIu64 " bytes=%" PRIu64 " aborted=%" PRIu64
                  " left=%" PRIu64,
                  name->project, name->run, removal.removed, removal.bytes, removal.aborted,
                  removal.left);
        code =
            cairn_srv_reply_json(reply, 202,
                                 CAIRN_PACK(run_removed, .project = name->project, .run = name->run,
                                            .removed = removal.removed, .bytes = removal.bytes,
                                            .aborted = removal.aborted, .left = removal.left),
                                 err);
    }
    release(&removal);
    return code;
}
