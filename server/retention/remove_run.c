/* SPDX-License-Identifier: Apache-2.0 */
/* Removal by request: POST {R}/trash, for many versions at once; and a whole run, as an operation
 * in rounds (promises in remove_run.h). Each version is checked and moved in transactions of its
 * own (Q27); the answer names versions that stay. */

#include <inttypes.h>
#include <poll.h>

#include "common/log.h"
#include "server/guard/jobs.h"
#include "server/http/waiters.h"
#include "server/intake/intake.h"
#include "server/nodes/nodes.h"
#include "server/operations/operations.h"
#include "server/retention/remove_run.h"
#include "server/versions/versions.h"

#define REFS_MAX 1000
#define REMOVE_ROUND_MAX 100
#define RECORD_LOOK_MS 200 /* wait for the record of a version just committed */
#define RECORD_LOOKS 150

static enum cairn_code add_result(json_t *items, const char *ref, enum cairn_code code,
                                  const struct srv_trashed *gone, const struct cairn_error *why,
                                  struct cairn_error *err) {
    json_t *item = code ? CAIRN_PACK(trashed_row, .ref = ref, .code = cairn_code_info(code)->slug,
                                     .detail = why->message)
                        : CAIRN_PACK(trashed_row, .ref = ref, .version = gone->id.text,
                                     .trashed = true, .bytes = gone->bytes);
    return cairn_json_append(items, item, "the answer", err);
}

/* Errors of one version are part of the answer; others end the call. */
static bool is_its_own(enum cairn_code code) {
    return code == CAIRN_NOT_FOUND || code == CAIRN_IN_USE || code == CAIRN_NOT_COMMITTED ||
           code == CAIRN_DELETED || code == CAIRN_INVALID || code == CAIRN_ABORTED;
}

/* Every entry can name a version; checked before the first one is moved. */
static enum cairn_code check_refs(const json_t *refs, struct cairn_error *err) {
    size_t index = 0, count = json_array_size(refs);
    json_t *ref = NULL;
    if (!count || count > REFS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "/versions: 1 to %d of them", REFS_MAX);
    json_array_foreach((json_t *)(uintptr_t)refs, index, ref) {
        char place[32];
        const char *text = json_string_value(ref);
        if (!text)
            return cairn_fail(err, CAIRN_INVALID, "/versions/%zu: wanted a step or an id", index);
        snprintf(place, sizeof(place), "/versions/%zu", index);
        CAIRN_TRY(cairn_ref_check(text, place, err));
    }
    return CAIRN_OK;
}

static enum cairn_code trash_all(struct srv_request *request, const json_t *refs, json_t *items,
                                 uint64_t *ret_bytes, struct cairn_error *err) {
    size_t index = 0;
    json_t *ref = NULL;
    json_array_foreach((json_t *)(uintptr_t)refs, index, ref) {
        struct srv_trashed gone = {0};
        struct cairn_error why = {0};
        const char *text = json_string_value(ref);
        const struct srv_trash_one one = {.server = request->server,
                                          .worker = request->store,
                                          .name = &request->params.run_name,
                                          .ref = text,
                                          .reason = "by hand"};
        enum cairn_code code =
            !strcmp(text, "latest") || !strcmp(text, "best")
                ? cairn_fail(&why, CAIRN_INVALID, "`%s` means another one after each removal", text)
                : srv_trash_one(&one, &gone, &why);
        if (code && !is_its_own(code)) {
            if (err) *err = why;
            return cairn_within(err, code, "/versions/%zu", index);
        }
        *ret_bytes += gone.bytes;
        CAIRN_TRY(add_result(items, text, code, &gone, &why, err));
    }
    return CAIRN_OK;
}

SRV_HANDLER(trash) {
    CAIRN_AUTO_JSON json_t *body = NULL, *items = json_array();
    struct cairn_msg_trash said = {0};
    uint64_t bytes = 0;
    CAIRN_TRY(srv_thawed(request->server, err));
    CAIRN_TRY(srv_body(request, 2 * REFS_MAX, &body, err));
    CAIRN_TRY(cairn_msg_trash_read(body, "", &said, err));
    CAIRN_TRY(check_refs(said.versions, err));
    if (!items) return srv_no_memory(err);
    CAIRN_TRY(trash_all(request, said.versions, items, &bytes, err));
    return srv_reply_json(reply, 200, CAIRN_PACK(trashed, .items = items, .bytes = bytes), err);
}

/* ---- may a whole run go? ---- */

static enum cairn_code judge_run(struct srv_tx *tx, struct srv *server, const struct srv_run *run,
                                 struct cairn_error *err) {
    struct cairn_version_id held;
    uint64_t step = 0, tick = srv_tick(tx);
    SRV_GET(rows, rows, srv_attempt_nodes(tx, run->id, run->attempt, &rows, err));
    SQL_EACH(&rows, err) {
        const struct srv_node_mark node = srv_row_node_mark(&rows);
        if (srv_node_silent_ms(server, &node, tick) < SRV_SILENT_MS &&
            srv_node_writes(server, node.node, &run->name, run->attempt))
            return cairn_fail(err, CAIRN_RUN_BUSY,
                              "trainers of attempt %" PRIu64 " are at work: end them",
                              run->attempt);
    }
    CAIRN_TRY(srv_run_held(tx, run->id, &held, &step, err));
    if (!held.text[0]) return CAIRN_OK;
    return cairn_fail(err, CAIRN_IN_USE, "%s (step %" PRIu64 ") is pinned, leased or has an alias",
                      held.text, step);
}

/* ---- the operation ---- */

struct removal {
    const struct srv_remove_run *wish;
    struct srv_to_remove round;
    size_t next;
    uint64_t removed, bytes, aborted;
    uint64_t aborted_now;
    bool hidden;
};

static enum cairn_code get_run(struct srv_tx *tx, const struct removal *removal,
                               struct srv_run *ret, struct cairn_error *err) {
    const struct srv_remove_run *wish = removal->wish;
    if (wish->check) CAIRN_TRY(wish->check(tx, wish->owner, err));
    CAIRN_TRY(srv_run_get(tx, wish->name, ret, err));
    CAIRN_TRY(srv_run_there(ret, err));
    CAIRN_TRY(srv_tx_run_thawed(tx, ret->id, err));
    if (ret->attempt == wish->attempt) return CAIRN_OK;
    return cairn_fail(err, CAIRN_RUN_BUSY, "attempt %" PRIu64 " was opened meanwhile: end it first",
                      ret->attempt);
}

static enum cairn_code still_ours(struct srv_tx *tx, void *argument, struct cairn_error *err) {
    SRV_AUTO(run) run = {0};
    return get_run(tx, argument, &run, err);
}

static enum cairn_code read_round(struct removal *removal, struct cairn_error *err) {
    SRV_LOOK(look, removal->wish->server->catalog, err);
    SRV_AUTO(run) run = {0};
    CAIRN_TRY(get_run(look.tx, removal, &run, err));
    CAIRN_TRY(judge_run(look.tx, removal->wish->server, &run, err));
    removal->next = 0;
    return srv_versions_to_remove(look.tx, run.id, REMOVE_ROUND_MAX, &removal->round, err);
}

SRV_CHANGE(give_up_open, struct removal *removal) {
    removal->aborted_now = 0;
    CAIRN_TRY(still_ours(tx, removal, err));
    for (size_t i = 0; i < removal->round.open.count; i++) {
        SRV_GET(version, version,
                srv_version_get(tx, removal->round.open.ids[i].text, &version, err));
        if (version.state != CAIRN_STATE_OPEN) continue;
        struct srv_move move = {CAIRN_EVENT_GIVE_UP, CAIRN_ABORTED, "the run was removed"};
        CAIRN_TRY(srv_version_move(tx, &version, &move, err));
        removal->aborted_now++;
    }
    return CAIRN_OK;
}

/* Hides the run unless a version was added since the last round. */
SRV_CHANGE(hide_run, struct removal *removal) {
    SRV_AUTO(run) run = {0};
    removal->hidden = false;
    CAIRN_TRY(get_run(tx, removal, &run, err));
    CAIRN_TRY(srv_versions_to_remove(tx, run.id, 1, &removal->round, err));
    removal->next = 0;
    if (removal->round.open.count || removal->round.committed.count || removal->round.unrecorded)
        return CAIRN_OK;
    removal->hidden = true;
    return srv_run_hide(tx, run.id, err);
}

static uint64_t total_of(const struct removal *removal) {
    uint64_t done = removal->removed + removal->aborted;
    uint64_t left = removal->round.committed.count - removal->next + removal->round.open.count;
    return cairn_max_u64(removal->wish->versions, done + left);
}

static enum cairn_code tell_progress(const struct removal *removal, struct cairn_error *err) {
    const struct srv_remove_run *wish = removal->wish;
    uint64_t done = removal->removed + removal->aborted;
    if (!wish->tell || wish->tell(wish->owner, done, total_of(removal))) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CANCELLED, "it was cancelled");
}

static enum cairn_code end_open(struct removal *removal, struct cairn_error *err) {
    struct srv *server = removal->wish->server;
    struct srv_ids *open = &removal->round.open;
    if (!open->count) return CAIRN_OK;
    CAIRN_TRY(srv_catalog_write(server->catalog, give_up_open, removal, err));
    for (size_t i = 0; i < open->count; i++)
        srv_waiters_wake_version(server->waiters, &open->ids[i], removal->wish->name);
    removal->aborted += removal->aborted_now;
    open->count = 0;
    srv_jobs_sweep(server);
    return CAIRN_OK;
}

static enum cairn_code trash_next(struct removal *removal, struct cairn_error *err) {
    const struct srv_remove_run *wish = removal->wish;
    struct srv_trashed gone = {0};
    struct cairn_error why = {0};
    const struct srv_trash_one one = {.server = wish->server,
                                      .worker = wish->worker,
                                      .name = wish->name,
                                      .ref = removal->round.committed.ids[removal->next].text,
                                      .reason = "with its run",
                                      .with_run = true,
                                      .first = still_ours,
                                      .argument = removal};
    enum cairn_code code = srv_trash_one(&one, &gone, &why);
    if (code == CAIRN_DELETED) code = CAIRN_OK; /* deleted from the trash meanwhile */
    CAIRN_TRY(cairn_pass(err, code, &why));
    removal->next++;
    if (!gone.changed) return CAIRN_OK;
    removal->removed++;
    removal->bytes += gone.bytes;
    return CAIRN_OK;
}

static enum cairn_code wait_for_records(const struct removal *removal, unsigned looks,
                                        struct cairn_error *err) {
    if (looks >= RECORD_LOOKS)
        return cairn_fail(err, CAIRN_NOT_COMMITTED,
                          "%zu versions are being committed: the store has not got their records",
                          removal->round.unrecorded);
    CAIRN_TRY(tell_progress(removal, err));
    (void)poll(NULL, 0, RECORD_LOOK_MS);
    return CAIRN_OK;
}

static enum cairn_code remove_all(struct removal *removal, struct cairn_error *err) {
    struct srv *server = removal->wish->server;
    unsigned looks = 0;
    while (!removal->hidden) {
        CAIRN_TRY(srv_thawed(server, err));
        CAIRN_TRY(read_round(removal, err));
        bool does = removal->round.open.count || removal->round.committed.count;
        if (does) {
            CAIRN_TRY(tell_progress(removal, err));
            CAIRN_TRY(end_open(removal, err));
        }
        while (removal->next < removal->round.committed.count) {
            CAIRN_TRY(tell_progress(removal, err));
            CAIRN_TRY(trash_next(removal, err));
        }
        if (does) {
            looks = 0;
        } else if (removal->round.unrecorded) {
            CAIRN_TRY(wait_for_records(removal, looks++, err));
        } else {
            CAIRN_TRY(srv_catalog_write(server->catalog, hide_run, removal, err));
        }
    }
    return CAIRN_OK;
}

enum cairn_code srv_remove_run(const struct srv_remove_run *wish, json_t **ret_result,
                               struct cairn_error *err) {
    struct removal removal = {.wish = wish};
    const struct srv_actor *before = srv_actor_get();
    const struct srv_actor actor = {.who = wish->who, .from = wish->from};
    srv_actor_set(&actor);
    enum cairn_code code = remove_all(&removal, err);
    srv_actor_set(before);
    uint64_t done = removal.removed + removal.aborted, total = total_of(&removal);
    srv_ids_release(&removal.round.committed);
    srv_ids_release(&removal.round.open);
    cairn_log(INFO, "run.removed",
              "run=%s/%s versions=%" PRIu64 " bytes=%" PRIu64 " aborted=%" PRIu64 " code=%s",
              wish->name->project, wish->name->run, removal.removed, removal.bytes, removal.aborted,
              cairn_code_info(code)->slug);
    *ret_result = CAIRN_PACK(run_removed, .removed = removal.removed, .bytes = removal.bytes,
                             .aborted = removal.aborted);
    if (code)
        return cairn_within(err, code,
                            "%" PRIu64 " of %" PRIu64 " versions are gone, the others stay; ask "
                            "for it again to go on",
                            done, total);
    return *ret_result ? CAIRN_OK : srv_no_memory(err);
}

static enum cairn_code remove_work(struct srv *server, struct cairn_store_worker *worker,
                                   const json_t *arguments, void *owner, json_t **ret_result,
                                   struct cairn_error *err) {
    struct cairn_run_name name = {0};
    (void)cairn_text_copy(name.project, sizeof(name.project),
                          json_string_value(json_object_get(arguments, "project")));
    (void)cairn_text_copy(name.run, sizeof(name.run),
                          json_string_value(json_object_get(arguments, "run")));
    const struct srv_remove_run wish = {
        .server = server,
        .worker = worker,
        .name = &name,
        .attempt = (uint64_t)json_integer_value(json_object_get(arguments, "attempt")),
        .versions = (uint64_t)json_integer_value(json_object_get(arguments, "versions")),
        .who = json_string_value(json_object_get(arguments, "who")),
        .from = json_string_value(json_object_get(arguments, "from")),
        .tell = owner ? srv_operation_tell : NULL,
        .check = owner ? srv_operation_check : NULL,
        .owner = owner};
    return srv_remove_run(&wish, ret_result, err);
}

/* ---- DELETE {R} ---- */

struct call {
    struct srv_request *request;
    uint64_t attempt;
    struct srv_run_removal plan;
    char running[SRV_OPERATION_BYTES];
    struct cairn_error refused; /* why the removal is refused now */
};

static enum cairn_code read_plan(struct call *call, struct cairn_error *err) {
    SRV_LOOK(look, call->request->server->catalog, err);
    const struct cairn_run_name *name = &call->request->params.run_name;
    struct cairn_error why = {0};
    call->refused = why;
    SRV_GET(run, run, srv_run_get(look.tx, name, &run, err));
    CAIRN_TRY(srv_run_there(&run, err));
    CAIRN_TRY(srv_tx_run_thawed(look.tx, run.id, err));
    CAIRN_TRY(srv_operation_of_run(look.tx, SRV_REMOVE, name, call->running, err));
    CAIRN_TRY(srv_run_removal(look.tx, run.id, &call->plan, err));
    call->attempt = run.attempt;
    enum cairn_code code = judge_run(look.tx, call->request->server, &run, &why);
    if (code == CAIRN_RUN_BUSY || code == CAIRN_IN_USE)
        call->refused = why;
    else if (code && err)
        *err = why;
    return call->refused.code ? CAIRN_OK : code;
}

SRV_CHANGE(begin_in, const struct call *call) {
    SRV_GET(run, run, srv_run_get(tx, &call->request->params.run_name, &run, err));
    CAIRN_TRY(srv_run_there(&run, err));
    CAIRN_TRY(srv_tx_run_thawed(tx, run.id, err));
    return judge_run(tx, call->request->server, &run, err);
}

static enum cairn_code begin_removal(struct call *call, const char *confirm,
                                     struct srv_reply *reply, struct cairn_error *err) {
    struct srv_request *request = call->request;
    struct srv *server = request->server;
    const struct cairn_run_name *name = &request->params.run_name;
    const struct srv_run_removal *plan = &call->plan;
    char id[SRV_OPERATION_BYTES];
    bool made = false;
    CAIRN_AUTO_JSON json_t *asked = json_pack(
        "{s:s, s:I, s:I, s:I}", "confirm", confirm, "versions", (json_int_t)plan->versions, "bytes",
        (json_int_t)plan->bytes, "open", (json_int_t)plan->open);
    CAIRN_AUTO_JSON json_t *arguments = json_pack(
        "{s:s, s:s, s:I, s:I, s:s, s:s}", "project", name->project, "run", name->run, "attempt",
        (json_int_t)call->attempt, "versions", (json_int_t)(plan->versions + plan->open), "who",
        request->caller.who, "from", request->from);
    if (!asked || !arguments) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to remove a run");
    if (!server->operations) {
        json_t *result = NULL;
        enum cairn_code code = remove_work(server, request->store, arguments, NULL, &result, err);
        if (!code) return srv_reply_json(reply, 200, result, err);
        json_decref(result);
        return code;
    }
    struct srv_operation_wish wish = {.kind = SRV_REMOVE,
                                      .alone = true,
                                      .work = remove_work,
                                      .name = name,
                                      .caller = &request->caller,
                                      .path = name->run,
                                      .request = asked,
                                      .arguments = arguments,
                                      .place.folder_fd = -1,
                                      .first = begin_in,
                                      .argument = call};
    CAIRN_TRY(srv_operation_begin(server, &wish, id, &made, err));
    if (made)
        cairn_log(INFO, "run.removal_begun", "operation=%s run=%s/%s versions=%" PRIu64, id,
                  name->project, name->run, plan->versions);
    return srv_reply_begun(request, id, reply, err);
}

static enum cairn_code check_name(const struct srv_request *request, const char *confirm,
                                  struct cairn_error *err) {
    const char *run = request->params.run_name.run;
    if (!strcmp(confirm, run)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "confirm=%s: the run's name is %s",
                      cairn_short(confirm).text, run);
}

static void say_plan(const struct call *call, struct srv_reply *reply) {
    srv_reply_extra(reply, "versions", json_integer((json_int_t)call->plan.versions));
    srv_reply_extra(reply, "bytes", json_integer((json_int_t)call->plan.bytes));
    srv_reply_extra(reply, "open", json_integer((json_int_t)call->plan.open));
}

enum cairn_code srv_run_delete_whole(struct srv_request *request, const char *confirm,
                                     struct srv_reply *reply, struct cairn_error *err) {
    struct call call = {.request = request};
    CAIRN_TRY(check_name(request, confirm, err));
    CAIRN_TRY(read_plan(&call, err));
    if (call.running[0]) return srv_reply_begun(request, call.running, reply, err);
    if (!call.refused.code) return begin_removal(&call, confirm, reply, err);
    say_plan(&call, reply);
    if (err) *err = call.refused;
    return cairn_within(err, call.refused.code, "nothing was removed");
}

enum cairn_code srv_run_removal_show(struct srv_request *request, const char *confirm,
                                     struct srv_reply *reply, struct cairn_error *err) {
    const struct cairn_run_name *name = &request->params.run_name;
    struct call call = {.request = request};
    const struct cairn_error *refused = &call.refused;
    if (confirm) CAIRN_TRY(check_name(request, confirm, err));
    CAIRN_TRY(read_plan(&call, err));
    return srv_reply_json(
        reply, 200,
        CAIRN_PACK(run_removal, .project = name->project, .run = name->run,
                   .versions = call.plan.versions, .bytes = call.plan.bytes, .open = call.plan.open,
                   .code = refused->code ? cairn_code_info(refused->code)->slug : NULL,
                   .detail = refused->code ? refused->message : NULL),
        err);
}

enum cairn_code srv_run_delete_unconfirmed(struct srv_request *request, struct srv_reply *reply,
                                           struct cairn_error *err) {
    const struct cairn_run_name *name = &request->params.run_name;
    struct call call = {.request = request};
    CAIRN_TRY(read_plan(&call, err));
    say_plan(&call, reply);
    return cairn_fail(err, CAIRN_INVALID,
                      "confirm is missing: %s/%s has %" PRIu64 " versions of %" PRIu64
                      " bytes and %" PRIu64 " open saves besides what is in the trash; confirm=%s "
                      "removes it with them, dry_run=true only shows them",
                      name->project, name->run, call.plan.versions, call.plan.bytes, call.plan.open,
                      name->run);
}
