/* SPDX-License-Identifier: Apache-2.0 */
/* {C}/leases: who reads a version keeps it from being deleted meanwhile (Q29). */
#include "server/reads/read_lease_calls.h"

#include <inttypes.h>

#include "api/wire/messages.h"
#include "common/log.h"
#include "common/text.h"
#include "server/guard/ticks.h"
#include "server/ledger/versions.h"

struct call {
    struct cairn_srv_request *request;
    struct cairn_srv_leased leased;
    bool drop;
    json_t *items;
};

json_t *cairn_srv_leased_json(const struct cairn_srv_leased *leased) {
    return CAIRN_PACK(lease_row, .lease = leased->id, .version = leased->version.text,
                      .step = leased->step, .job = leased->job, .expires_s = leased->ttl_s);
}

static enum cairn_code find(struct cairn_srv_tx *tx, struct call *call, const char *ref,
                            struct cairn_error *err) {
    CAIRN_AUTO(srv_version) version = {0};
    struct cairn_srv_ref place = {&call->request->params.run_name, ref, false};
    CAIRN_TRY(cairn_srv_version_find(tx, &place, &version, err));
    CAIRN_TRY(cairn_srv_version_there(&version, err));
    if (cairn_srv_version_shown(&version) != CAIRN_STATE_COMMITTED)
        return cairn_fail(err, CAIRN_NOT_COMMITTED,
                          "%s (step %" PRIu64 ") is %s: what is committed can be leased",
                          version.id.text, version.step,
                          cairn_state_text(cairn_srv_version_shown(&version)));
    call->leased.version = version.id;
    call->leased.step = version.step;
    return CAIRN_OK;
}

/* Catalog time as of now: a tick that is a sweep's interval old would end the lease so much sooner.
 */
static enum cairn_code end_of(struct cairn_srv_tx *tx, struct call *call, uint64_t *ret_tick,
                              struct cairn_error *err) {
    struct cairn_srv *server = call->request->server;
    CAIRN_TRY(cairn_srv_ticks_advance(tx, server, err));
    *ret_tick = cairn_srv_ticks_now(server) + call->leased.ttl_s * 1000;
    return CAIRN_OK;
}

/* ---- taking ---- */

static enum cairn_code take(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct call *call = argument;
    struct cairn_srv_leased *leased = &call->leased;
    CAIRN_TRY(find(tx, call, leased->ref, err));
    struct cairn_srv_read_lease lease = {.version = leased->version.text,
                                         .job = leased->job,
                                         .wall_ms = cairn_srv_wall_ms(call->request->server)};
    cairn_srv_read_lease_name(lease.version, lease.job, lease.id);
    (void)cairn_text_copy(leased->id, sizeof(leased->id), lease.id);
    CAIRN_TRY(end_of(tx, call, &lease.until_tick, err));
    return cairn_srv_read_lease_take(tx, &lease, &leased->made, err);
}

enum cairn_code cairn_srv_read_lease(struct cairn_srv_request *request,
                                     struct cairn_srv_leased *leased, struct cairn_error *err) {
    struct call call = {.request = request, .leased = *leased};
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    if (!call.leased.ttl_s) call.leased.ttl_s = CAIRN_SRV_READ_LEASE_S;
    CAIRN_TRY(cairn_srv_catalog_write(request->server->catalog, take, &call, err));
    *leased = call.leased;
    if (leased->made)
        cairn_log(INFO, "lease.taken", "version=%s lease=%s job=%s ttl_s=%" PRIu64,
                  leased->version.text, leased->id, leased->job, leased->ttl_s);
    return CAIRN_OK;
}

enum cairn_code cairn_srv_on_lease_take(struct cairn_srv_request *request,
                                        struct cairn_srv_reply *reply, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *body = NULL;
    struct cairn_msg_lease_take said = {0};
    CAIRN_TRY(cairn_srv_body(request, 100, &body, err));
    CAIRN_TRY(cairn_msg_lease_take_read(body, "", &said, err));
    struct cairn_srv_leased leased = {request->params.ref, said.job, .ttl_s = said.ttl_s};
    if (!said.job[0]) return cairn_fail(err, CAIRN_INVALID, "/job: who reads is not empty");
    CAIRN_TRY(cairn_srv_read_lease(request, &leased, err));
    return cairn_srv_reply_json(reply, leased.made ? 201 : 200, cairn_srv_leased_json(&leased),
                                err);
}

/* ---- one that is there ---- */

static enum cairn_code change(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct call *call = argument;
    struct cairn_srv_leased *leased = &call->leased;
    const char *id = call->request->params.node;
    bool found = false;
    uint64_t until_tick = 0;
    CAIRN_TRY(find(tx, call, call->request->params.ref, err));
    if (call->drop) {
        CAIRN_TRY(cairn_srv_read_lease_drop(tx, id, leased->version.text, &found, err));
    } else {
        CAIRN_TRY(end_of(tx, call, &until_tick, err));
        CAIRN_TRY(
            cairn_srv_read_lease_renew(tx, id, leased->version.text, until_tick, &found, err));
    }
    if (found) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NOT_FOUND, "%s has no lease %s: it has ended, or was given back",
                      leased->version.text, id);
}

static enum cairn_code serve_change(struct call *call, struct cairn_srv_reply *reply,
                                    struct cairn_error *err) {
    struct cairn_srv *server = call->request->server;
    const char *id = call->request->params.node;
    CAIRN_TRY(cairn_srv_thawed(server, err));
    CAIRN_TRY(cairn_srv_catalog_write(server->catalog, change, call, err));
    if (call->drop)
        cairn_log(INFO, "lease.given_back", "version=%s lease=%s", call->leased.version.text, id);
    return cairn_srv_reply_json(
        reply, 200,
        CAIRN_PACK(lease_row, .lease = id, .version = call->leased.version.text,
                   .step = call->leased.step, .expires_s = call->drop ? 0 : call->leased.ttl_s),
        err);
}

enum cairn_code cairn_srv_on_lease_renew(struct cairn_srv_request *request,
                                         struct cairn_srv_reply *reply, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *body = NULL;
    struct cairn_msg_lease_renew said = {0};
    if (request->body.size) CAIRN_TRY(cairn_srv_body(request, 100, &body, err));
    if (body) CAIRN_TRY(cairn_msg_lease_renew_read(body, "", &said, err));
    struct call call = {.request = request};
    call.leased.ttl_s = said.ttl_s ? said.ttl_s : CAIRN_SRV_READ_LEASE_S;
    return serve_change(&call, reply, err);
}

enum cairn_code cairn_srv_on_lease_drop(struct cairn_srv_request *request,
                                        struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct call call = {.request = request, .drop = true};
    return serve_change(&call, reply, err);
}

static enum cairn_code list(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct call *call = argument;
    json_decref(call->items);
    call->items = NULL;
    CAIRN_TRY(find(tx, call, call->request->params.ref, err));
    return cairn_srv_read_leases_of(tx, call->leased.version.text, call->leased.step, &call->items,
                                    err);
}

enum cairn_code cairn_srv_on_lease_list(struct cairn_srv_request *request,
                                        struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct call call = {.request = request};
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    enum cairn_code code = cairn_srv_catalog_read(request->server->catalog, list, &call, err);
    if (code) json_decref(call.items);
    if (code) return code;
    return cairn_srv_reply_page(reply, call.items, NULL, err);
}
