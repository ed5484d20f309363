/* SPDX-License-Identifier: Apache-2.0 */
/* Copy operations, the sweep's round over unfinished copies, POST {C}/promote and {C}/demote.
 *  1  Each sweep of any server begins an operation for each copy in state MAKING that no server is
 *     working on; after a failure it retries after a pause.
 *  2  The sweep deletes a copy in state REMOVING after the generation was raised (Q35).
 *  3  A caller's request, its operation and the event that names the caller are one transaction: a
 *     concurrent sweep sees all three or none.
 *  4  The limit of rows applies to each store, so a backlog in one store delays no other. Copies in
 *     a store that the setting `stores` does not name are left alone. */
#include "server/copies/copies.h"

#include <stdlib.h>

#include "api/wire/messages.h"
#include "common/log.h"
#include "server/guard/jobs.h"
#include "server/http/waiters.h"
#include "server/ledger/runs.h"
#include "server/operations/above.h"
#include "server/versions/versions.h"

#define PROMOTE "promote"

/* A version that another server works on, or a request that was withdrawn, is no failure. */
static void tell_delayed(const char *version, const char *store, const struct cairn_error *why) {
    enum cairn_code code = why->code;
    if (code == CAIRN_BUSY || code == CAIRN_ABORTED || code == CAIRN_CATALOG_BEHIND ||
        code == CAIRN_CANCELLED)
        return;
    cairn_log(WARN, "copy.delayed", "version=%s store=%s cause=\"%s\"", version, store,
              why->message);
}

/* Sets the copy REMOVING after a cancel; otherwise the sweep would resume it. */
static void take_back(const struct cairn_srv_promote *promote) {
    const struct cairn_srv_demote demote = {.server = promote->server,
                                            .worker = promote->worker,
                                            .version = promote->version,
                                            .store = promote->store};
    struct cairn_error why = {0};
    if (cairn_srv_demote_ask(&demote, &why) != CAIRN_OK)
        cairn_log(INFO, "copy.kept", "version=%s store=%s cause=\"%s\"", promote->version,
                  promote->store, why.message);
    cairn_srv_jobs_sweep(promote->server);
}

enum cairn_code cairn_srv_copies_unwish(struct cairn_srv_tx *tx, struct cairn_srv *server,
                                        const struct cairn_srv_operation *operation,
                                        struct cairn_error *err) {
    if (strcmp(operation->kind, PROMOTE) != 0) return CAIRN_OK;
    CAIRN_AUTO_JSON json_t *request =
        json_loadb(operation->request.data, operation->request.size, 0, NULL);
    const char *version = json_string_value(json_object_get(request, "version"));
    const char *store = json_string_value(json_object_get(request, "to"));
    struct cairn_srv_copies copies;
    if (!version || !store) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a request");
    CAIRN_TRY(cairn_srv_copies_get(tx, version, &copies, err));
    const struct cairn_srv_copy *found = cairn_srv_copies_find(&copies, store);
    if (!found || found->state != CAIRN_SRV_COPY_MAKING) return CAIRN_OK;
    /* An earlier attempt may have copied some objects, so the copy is REMOVING and not GONE. */
    return cairn_srv_copy_turn(tx, server, version, found, CAIRN_SRV_COPY_REMOVING, err);
}

struct named {
    const char *version;
    struct cairn_run_name name;
};

static enum cairn_code find_name(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct named *named = argument;
    CAIRN_AUTO(srv_version) version = {0};
    CAIRN_TRY(cairn_srv_version_get(tx, named->version, &version, err));
    named->name = version.name;
    return CAIRN_OK;
}

/* A finished copy may let the policy copy the version elsewhere, or remove it from a store. */
static void go_on_with_policy(struct cairn_srv *server, struct cairn_store_worker *worker,
                              const char *version) {
    struct named named = {.version = version};
    struct cairn_error why = {0};
    if (cairn_srv_catalog_read(server->catalog, find_name, &named, &why) == CAIRN_OK)
        (void)cairn_srv_tiering_run(server, worker, &named.name);
}

static enum cairn_code promote_work(struct cairn_srv *server, struct cairn_store_worker *worker,
                                    const json_t *arguments, void *owner, json_t **ret_result,
                                    struct cairn_error *err) {
    struct cairn_srv_promote promote = {
        .server = server,
        .worker = worker,
        .version = json_string_value(json_object_get(arguments, "version")),
        .store = json_string_value(json_object_get(arguments, "to")),
        .tell = cairn_srv_operation_tell,
        .owner = owner};
    struct cairn_error why = {0};
    /* Ending the operation of a store that became unreachable frees a slot of operations. */
    if (!cairn_srv_copy_may_ask(server, promote.version, promote.store))
        return cairn_fail(err, CAIRN_BUSY, "store %s did not answer just now: the sweep goes on",
                          promote.store);
    enum cairn_code code = cairn_srv_promote_run(&promote, &why);
    if (code == CAIRN_CANCELLED && cairn_srv_operation_cancelled(owner)) take_back(&promote);
    if (code) tell_delayed(promote.version, promote.store, &why);
    if (code && err) *err = why;
    if (code) return code;
    go_on_with_policy(server, worker, promote.version);
    *ret_result = json_pack("{s:s, s:s, s:I}", "version", promote.version, "store", promote.store,
                            "copied_bytes", (json_int_t)promote.copied_bytes);
    return *ret_result ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
}

struct beginning {
    struct cairn_srv *server;
    const struct cairn_srv_copy_begin *begin;
};

static enum cairn_code wish_for(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    const struct beginning *beginning = argument;
    CAIRN_AUTO(srv_version) version = {0};
    struct cairn_srv_promote_wish wish = {.store = beginning->begin->store,
                                          .wall_ms = cairn_srv_wall_ms(beginning->server)};
    bool whole = false;
    CAIRN_TRY(cairn_srv_version_get(tx, beginning->begin->version, &version, err));
    return cairn_srv_promote_want(tx, &version, &wish, &whole, err);
}

/* Checks that the row is still MAKING: it may have changed since the sweep read it. */
static enum cairn_code wants_still(struct cairn_srv_tx *tx, void *argument,
                                   struct cairn_error *err) {
    const struct cairn_srv_copy_begin *begin = ((const struct beginning *)argument)->begin;
    struct cairn_srv_copies copies;
    CAIRN_TRY(cairn_srv_copies_get(tx, begin->version, &copies, err));
    const struct cairn_srv_copy *copy = cairn_srv_copies_find(&copies, begin->store);
    if (copy && copy->state == CAIRN_SRV_COPY_MAKING) return CAIRN_OK;
    return cairn_fail(err, CAIRN_ABORTED, "nobody wants a copy of %s in %s to be made any more",
                      begin->version, begin->store);
}

enum cairn_code cairn_srv_copies_begin(struct cairn_srv *server,
                                       const struct cairn_srv_copy_begin *begin,
                                       char ret_id[CAIRN_SRV_OPERATION_BYTES],
                                       struct cairn_error *err) {
    static const struct cairn_srv_caller own = {.who = "cairn-server"};
    CAIRN_AUTO_JSON json_t *request =
        json_pack("{s:s, s:s}", "version", begin->version, "to", begin->store);
    struct beginning beginning = {server, begin};
    bool made = false;
    ret_id[0] = '\0';
    /* a request implies that the store is back */
    if (begin->caller) cairn_srv_copy_asked(server, begin->store, CAIRN_OK);
    if (!server->operations)
        return cairn_srv_catalog_write(server->catalog, wish_for, &beginning, err);
    if (!request) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to copy a version");
    struct cairn_srv_operation_wish wish = {.kind = PROMOTE,
                                            .work = promote_work,
                                            .name = begin->name,
                                            .caller = begin->caller ? begin->caller : &own,
                                            .path = begin->store,
                                            .request = request,
                                            .arguments = request,
                                            .place.folder_fd = -1,
                                            .first = begin->caller ? wish_for : wants_still,
                                            .argument = &beginning};
    CAIRN_TRY(cairn_srv_operation_begin(server, &wish, ret_id, &made, err));
    if (made)
        cairn_log(INFO, "copy.begun", "operation=%s version=%s store=%s", ret_id, begin->version,
                  begin->store);
    return CAIRN_OK;
}

/* ---- unfinished copies ---- */

struct left {
    const char *store;
    struct cairn_srv_copy_left *items;
    size_t count;
    const struct cairn_srv_copy_left *item;
    struct cairn_run_name name;
    bool due;
};

static enum cairn_code find_unfinished(struct cairn_srv_tx *tx, void *argument,
                                       struct cairn_error *err) {
    struct left *left = argument;
    return cairn_srv_copies_unfinished(tx, left->store, CAIRN_SRV_COPIES_LOOK_MAX, left->items,
                                       &left->count, err);
}

/* Skips a version that is trashed or being deleted: the sweep deletes all its copies anyway. */
static enum cairn_code judge_unfinished(struct cairn_srv_tx *tx, void *argument,
                                        struct cairn_error *err) {
    struct left *left = argument;
    CAIRN_AUTO(srv_version) version = {0};
    bool making = left->item->copy.state == CAIRN_SRV_COPY_MAKING;
    CAIRN_TRY(cairn_srv_version_get(tx, left->item->version.text, &version, err));
    CAIRN_TRY(cairn_srv_tx_run_thawed(tx, version.run_id, err));
    left->name = version.name;
    left->due =
        version.state == CAIRN_STATE_COMMITTED && version.recorded && !(making && version.trashed);
    return CAIRN_OK;
}

static enum cairn_code go_on_making(const struct cairn_srv_copies_round *round,
                                    const struct left *left, struct cairn_error *err) {
    struct cairn_srv *server = round->server;
    const char *version = left->item->version.text, *store = left->item->copy.store;
    char id[CAIRN_SRV_OPERATION_BYTES];
    const struct cairn_srv_copy_begin begin = {
        .name = &left->name, .version = version, .store = store};
    if (server->operations) return cairn_srv_copies_begin(server, &begin, id, err);
    struct cairn_srv_promote promote = {
        .server = server, .worker = round->worker, .version = version, .store = store};
    CAIRN_TRY(cairn_srv_promote_run(&promote, err));
    go_on_with_policy(server, round->worker, version);
    return CAIRN_OK;
}

static enum cairn_code finish_copy(const struct cairn_srv_copies_round *round, struct left *left,
                                   struct cairn_error *err) {
    struct cairn_srv *server = round->server;
    const char *version = left->item->version.text, *store = left->store;
    if (cairn_srv_copy_is_held(server, version) || !cairn_srv_copy_may_try(server, version, store))
        return CAIRN_OK;
    CAIRN_TRY(cairn_srv_catalog_read(server->catalog, judge_unfinished, left, err));
    if (!left->due || !cairn_srv_copy_may_ask(server, version, store)) return CAIRN_OK;
    if (left->item->copy.state == CAIRN_SRV_COPY_MAKING) return go_on_making(round, left, err);
    CAIRN_TRY(round->raise(round->owner, err));
    return cairn_srv_demote_run(server, round->worker, version, store, err);
}

static enum cairn_code look_at_store(const struct cairn_srv_copies_round *round, struct left *left,
                                     struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_catalog_read(round->server->catalog, find_unfinished, left, err));
    for (size_t i = 0; i < left->count && !round->server->stopping; i++) {
        struct cairn_error why = {0};
        left->item = &left->items[i];
        if (finish_copy(round, left, &why))
            tell_delayed(left->item->version.text, left->store, &why);
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_copies_look(const struct cairn_srv_copies_round *round,
                                      struct cairn_error *err) {
    struct cairn_srv *server = round->server;
    if (!cairn_srv_tiers_any(server)) return CAIRN_OK;
    CAIRN_AUTO_HEAP struct cairn_srv_copy_left *items =
        calloc(CAIRN_SRV_COPIES_LOOK_MAX, sizeof(*items));
    if (!items) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to look at copies");
    struct left left = {.items = items};
    for (size_t i = 0; i < server->tiers->count; i++) {
        left.store = server->tiers->tiers[i].name;
        CAIRN_TRY(look_at_store(round, &left, err));
    }
    return CAIRN_OK;
}

/* ---- POST {C}/promote and {C}/demote ---- */

struct call {
    struct cairn_srv_request *request;
    struct cairn_srv_version version;
    json_t *shown;
};

static void release(struct call *call) {
    cairn_srv_version_release(&call->version);
    json_decref(call->shown);
}

static enum cairn_code check_store(const struct cairn_srv *server, const char *store,
                                   struct cairn_error *err) {
    if (cairn_srv_tier_find(server, store)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "the server's setting stores names no store \"%s\"",
                      store);
}

static enum cairn_code find_version(struct cairn_srv_tx *tx, void *argument,
                                    struct cairn_error *err) {
    struct call *call = argument;
    struct cairn_srv_ref ref = {&call->request->params.run_name, call->request->params.ref, false};
    cairn_srv_version_release(&call->version);
    return cairn_srv_version_find(tx, &ref, &call->version, err);
}

static enum cairn_code promote(struct call *call, const char *store, struct cairn_srv_reply *reply,
                               struct cairn_error *err) {
    struct cairn_srv_request *request = call->request;
    char id[CAIRN_SRV_OPERATION_BYTES];
    CAIRN_TRY(check_store(request->server, store, err));
    CAIRN_TRY(cairn_srv_catalog_read(request->server->catalog, find_version, call, err));
    struct cairn_srv_copy_begin begin = {.name = &call->version.name,
                                         .caller = &request->caller,
                                         .version = call->version.id.text,
                                         .store = store};
    CAIRN_TRY(cairn_srv_copies_begin(request->server, &begin, id, err));
    if (!id[0]) return cairn_srv_reply_json(reply, 202, json_object(), err);
    return cairn_srv_reply_begun(request, id, reply, err);
}

enum cairn_code cairn_srv_on_promote(struct cairn_srv_request *request,
                                     struct cairn_srv_reply *reply, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *body = NULL;
    struct cairn_msg_promote said = {0};
    struct call call = {.request = request};
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    CAIRN_TRY(cairn_srv_body(request, 10, &body, err));
    CAIRN_TRY(cairn_msg_promote_read(body, "", &said, err));
    enum cairn_code code = promote(&call, said.to, reply, err);
    release(&call);
    return code;
}

static enum cairn_code show(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct call *call = argument;
    struct cairn_version_id id = call->version.id;
    cairn_srv_version_release(&call->version);
    CAIRN_TRY(cairn_srv_version_get(tx, id.text, &call->version, err));
    json_decref(call->shown);
    call->shown = NULL;
    return cairn_srv_version_json(tx, &call->version, &call->shown, err);
}

static enum cairn_code demote(struct call *call, const char *store, struct cairn_srv_reply *reply,
                              struct cairn_error *err) {
    struct cairn_srv *server = call->request->server;
    CAIRN_TRY(check_store(server, store, err));
    CAIRN_TRY(cairn_srv_catalog_read(server->catalog, find_version, call, err));
    struct cairn_srv_demote asked = {.server = server,
                                     .worker = call->request->store,
                                     .version = call->version.id.text,
                                     .store = store};
    CAIRN_TRY(cairn_srv_demote_ask(&asked, err));
    cairn_log(INFO, "copy.removing", "version=%s store=%s", asked.version, asked.store);
    cairn_srv_jobs_sweep(server);
    CAIRN_TRY(cairn_srv_catalog_read(server->catalog, show, call, err));
    return cairn_srv_reply_json(reply, 202, CAIRN_TAKE(call->shown), err);
}

enum cairn_code cairn_srv_on_demote(struct cairn_srv_request *request,
                                    struct cairn_srv_reply *reply, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *body = NULL;
    struct cairn_msg_demote said = {0};
    struct call call = {.request = request};
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    CAIRN_TRY(cairn_srv_body(request, 10, &body, err));
    CAIRN_TRY(cairn_msg_demote_read(body, "", &said, err));
    enum cairn_code code = demote(&call, said.from, reply, err);
    release(&call);
    return code;
}
