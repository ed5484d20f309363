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

#include "common/log.h"
#include "server/http/waiters.h"
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
static void take_back(const struct srv_promote *promote) {
    const struct srv_demote demote = {.server = promote->server,
                                      .worker = promote->worker,
                                      .version = promote->version,
                                      .store = promote->store};
    struct cairn_error why = {0};
    if (srv_demote_ask(&demote, &why) != CAIRN_OK)
        cairn_log(INFO, "copy.kept", "version=%s store=%s cause=\"%s\"", promote->version,
                  promote->store, why.message);
    srv_jobs_sweep(promote->server);
}

enum cairn_code srv_copies_unwish(struct srv_tx *tx, struct srv *server,
                                  const struct srv_operation *operation, struct cairn_error *err) {
    if (strcmp(operation->kind, PROMOTE) != 0) return CAIRN_OK;
    CAIRN_AUTO_JSON json_t *request =
        json_loadb(operation->request.data, operation->request.size, 0, NULL);
    const char *version = json_string_value(json_object_get(request, "version"));
    const char *store = json_string_value(json_object_get(request, "to"));
    struct srv_copies copies;
    if (!version || !store) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a request");
    CAIRN_TRY(srv_copies_get(tx, version, &copies, err));
    const struct srv_copy *found = srv_copies_find(&copies, store);
    if (!found || found->state != SRV_COPY_MAKING) return CAIRN_OK;
    /* An earlier attempt may have copied some objects, so the copy is REMOVING and not GONE. */
    return srv_copy_turn(tx, server, version, found, SRV_COPY_REMOVING, err);
}

static enum cairn_code look_at_version(struct srv *server, const char *id, struct srv_version *ret,
                                       struct cairn_error *err) {
    SRV_LOOK(look, server->catalog, err);
    return srv_version_get(look.tx, id, ret, err);
}

/* A finished copy may let the policy copy the version elsewhere, or remove it from a store. */
static void go_on_with_policy(struct srv *server, struct cairn_store_worker *worker,
                              const char *version) {
    SRV_AUTO(version) row = {0};
    if (!look_at_version(server, version, &row, NULL))
        (void)srv_tiering_run(server, worker, &row.name);
}

static enum cairn_code promote_work(struct srv *server, struct cairn_store_worker *worker,
                                    const json_t *arguments, void *owner, json_t **ret_result,
                                    struct cairn_error *err) {
    struct srv_promote promote = {.server = server,
                                  .worker = worker,
                                  .version =
                                      json_string_value(json_object_get(arguments, "version")),
                                  .store = json_string_value(json_object_get(arguments, "to")),
                                  .tell = srv_operation_tell,
                                  .owner = owner};
    struct cairn_error why = {0};
    /* Ending the operation of a store that became unreachable frees a slot of operations. */
    if (!srv_copy_may_ask(server, promote.version, promote.store))
        return cairn_fail(err, CAIRN_BUSY, "store %s did not answer just now: the sweep goes on",
                          promote.store);
    enum cairn_code code = srv_promote_run(&promote, &why);
    if (code == CAIRN_CANCELLED && srv_operation_cancelled(owner)) take_back(&promote);
    if (code) tell_delayed(promote.version, promote.store, &why);
    CAIRN_TRY(cairn_pass(err, code, &why));
    go_on_with_policy(server, worker, promote.version);
    *ret_result = json_pack("{s:s, s:s, s:I}", "version", promote.version, "store", promote.store,
                            "copied_bytes", (json_int_t)promote.copied_bytes);
    return *ret_result ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
}

struct beginning {
    struct srv *server;
    const struct srv_copy_begin *begin;
};

SRV_CHANGE(wish_for, const struct beginning *beginning) {
    struct srv_promote_wish wish = {.store = beginning->begin->store,
                                    .wall_ms = srv_wall_ms(beginning->server)};
    bool whole = false;
    SRV_GET(version, version, srv_version_get(tx, beginning->begin->version, &version, err));
    return srv_promote_want(tx, &version, &wish, &whole, err);
}

/* Checks that the row is still MAKING: it may have changed since the sweep read it. */
static enum cairn_code wants_still(struct srv_tx *tx, void *argument, struct cairn_error *err) {
    const struct srv_copy_begin *begin = ((const struct beginning *)argument)->begin;
    struct srv_copies copies;
    CAIRN_TRY(srv_copies_get(tx, begin->version, &copies, err));
    const struct srv_copy *copy = srv_copies_find(&copies, begin->store);
    if (copy && copy->state == SRV_COPY_MAKING) return CAIRN_OK;
    return cairn_fail(err, CAIRN_ABORTED, "nobody wants a copy of %s in %s to be made any more",
                      begin->version, begin->store);
}

enum cairn_code srv_copies_begin(struct srv *server, const struct srv_copy_begin *begin,
                                 char ret_id[SRV_OPERATION_BYTES], struct cairn_error *err) {
    static const struct srv_caller own = {.who = "cairn-server"};
    CAIRN_AUTO_JSON json_t *request =
        json_pack("{s:s, s:s}", "version", begin->version, "to", begin->store);
    struct beginning beginning = {server, begin};
    bool made = false;
    ret_id[0] = '\0';
    /* a request implies that the store is back */
    if (begin->caller) srv_copy_asked(server, begin->store, CAIRN_OK);
    if (!server->operations) return srv_catalog_write(server->catalog, wish_for, &beginning, err);
    if (!request) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to copy a version");
    struct srv_operation_wish wish = {.kind = PROMOTE,
                                      .work = promote_work,
                                      .name = begin->name,
                                      .caller = begin->caller ? begin->caller : &own,
                                      .path = begin->store,
                                      .request = request,
                                      .arguments = request,
                                      .place.folder_fd = -1,
                                      .first = begin->caller ? wish_for : wants_still,
                                      .argument = &beginning};
    CAIRN_TRY(srv_operation_begin(server, &wish, ret_id, &made, err));
    if (made)
        cairn_log(INFO, "copy.begun", "operation=%s version=%s store=%s", ret_id, begin->version,
                  begin->store);
    return CAIRN_OK;
}

/* ---- unfinished copies ---- */

struct left {
    const char *store;
    struct srv_copy_left *items;
    size_t count;
    const struct srv_copy_left *item;
    struct cairn_run_name name;
    bool due;
};

/* Skips a version that is trashed or being deleted: the sweep deletes all its copies anyway. */
static enum cairn_code judge_unfinished(struct srv *server, struct left *left,
                                        struct cairn_error *err) {
    bool making = left->item->copy.state == SRV_COPY_MAKING;
    SRV_LOOK(look, server->catalog, err);
    SRV_GET(version, version, srv_version_get(look.tx, left->item->version.text, &version, err));
    CAIRN_TRY(srv_tx_run_thawed(look.tx, version.run_id, err));
    left->name = version.name;
    left->due =
        version.state == CAIRN_STATE_COMMITTED && version.recorded && !(making && version.trashed);
    return CAIRN_OK;
}

static enum cairn_code go_on_making(const struct srv_copies_round *round, const struct left *left,
                                    struct cairn_error *err) {
    struct srv *server = round->server;
    const char *version = left->item->version.text, *store = left->item->copy.store;
    char id[SRV_OPERATION_BYTES];
    const struct srv_copy_begin begin = {.name = &left->name, .version = version, .store = store};
    if (server->operations) return srv_copies_begin(server, &begin, id, err);
    struct srv_promote promote = {
        .server = server, .worker = round->worker, .version = version, .store = store};
    CAIRN_TRY(srv_promote_run(&promote, err));
    go_on_with_policy(server, round->worker, version);
    return CAIRN_OK;
}

static enum cairn_code finish_copy(const struct srv_copies_round *round, struct left *left,
                                   struct cairn_error *err) {
    struct srv *server = round->server;
    const char *version = left->item->version.text, *store = left->store;
    if (srv_copy_is_held(server, version) || !srv_copy_may_try(server, version, store))
        return CAIRN_OK;
    CAIRN_TRY(judge_unfinished(server, left, err));
    if (!left->due || !srv_copy_may_ask(server, version, store)) return CAIRN_OK;
    if (left->item->copy.state == SRV_COPY_MAKING) return go_on_making(round, left, err);
    CAIRN_TRY(round->raise(round->owner, err));
    return srv_demote_run(server, round->worker, version, store, err);
}

static enum cairn_code look_at_store(const struct srv_copies_round *round, struct left *left,
                                     struct cairn_error *err) {
    {
        SRV_LOOK(look, round->server->catalog, err);
        CAIRN_TRY(srv_copies_unfinished(look.tx, left->store, SRV_COPIES_LOOK_MAX, left->items,
                                        &left->count, err));
    }
    for (size_t i = 0; i < left->count && !round->server->stopping; i++) {
        struct cairn_error why = {0};
        left->item = &left->items[i];
        if (finish_copy(round, left, &why))
            tell_delayed(left->item->version.text, left->store, &why);
    }
    return CAIRN_OK;
}

enum cairn_code srv_copies_look(const struct srv_copies_round *round, struct cairn_error *err) {
    struct srv *server = round->server;
    if (!srv_tiers_any(server)) return CAIRN_OK;
    CAIRN_AUTO_HEAP struct srv_copy_left *items = calloc(SRV_COPIES_LOOK_MAX, sizeof(*items));
    if (!items) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to look at copies");
    struct left left = {.items = items};
    for (size_t i = 0; i < server->tiers->count; i++) {
        left.store = server->tiers->tiers[i].name;
        CAIRN_TRY(look_at_store(round, &left, err));
    }
    return CAIRN_OK;
}

/* ---- POST {C}/promote and {C}/demote ---- */

static enum cairn_code check_store(const struct srv *server, const char *member, const char *store,
                                   struct cairn_error *err) {
    if (srv_tier_find(server, store)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "%s: the server's setting stores names no store \"%s\"",
                      member, store);
}

static enum cairn_code find_version(const struct srv_request *request, struct srv_version *ret,
                                    struct cairn_error *err) {
    struct srv_ref ref = {&request->params.run_name, request->params.ref, false};
    SRV_LOOK(look, request->server->catalog, err);
    return srv_version_find(look.tx, &ref, ret, err);
}

SRV_HANDLER(promote) {
    SRV_AUTO(version) version = {0};
    char id[SRV_OPERATION_BYTES];
    CAIRN_TRY(srv_thawed(request->server, err));
    SRV_BODY(body, promote, said, 10);
    CAIRN_TRY(check_store(request->server, "/to", said.to, err));
    CAIRN_TRY(find_version(request, &version, err));
    const struct srv_copy_begin begin = {.name = &version.name,
                                         .caller = &request->caller,
                                         .version = version.id.text,
                                         .store = said.to};
    CAIRN_TRY(srv_copies_begin(request->server, &begin, id, err));
    if (!id[0]) return srv_reply_json(reply, 202, json_object(), err);
    return srv_reply_begun(request, id, reply, err);
}

SRV_HANDLER(demote) {
    struct srv *server = request->server;
    SRV_AUTO(version) version = {0};
    json_t *shown = NULL;
    CAIRN_TRY(srv_thawed(server, err));
    SRV_BODY(body, demote, said, 10);
    CAIRN_TRY(check_store(server, "/from", said.from, err));
    CAIRN_TRY(find_version(request, &version, err));
    const struct srv_demote asked = {
        .server = server, .worker = request->store, .version = version.id.text, .store = said.from};
    CAIRN_TRY(srv_demote_ask(&asked, err));
    cairn_log(INFO, "copy.removing", "version=%s store=%s", asked.version, asked.store);
    srv_jobs_sweep(server);
    {
        SRV_LOOK(look, server->catalog, err);
        SRV_GET(version, now, srv_version_get(look.tx, version.id.text, &now, err));
        CAIRN_TRY(srv_version_json(look.tx, &now, NULL, &shown, err));
    }
    return srv_reply_json(reply, 202, shown, err);
}
