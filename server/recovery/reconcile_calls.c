/* SPDX-License-Identifier: Apache-2.0 */
/* POST {R}/reconcile: requests it, waits while it goes on, and answers how it stands. */
#include "api/wire/messages.h"
#include "server/guard/jobs.h"
#include "server/http/request.h"
#include "server/http/waiters.h"
#include "server/ledger/frozen.h"

#define HOLD_MS 10000 /* less than proxies wait for an answer; it may be asked again */

struct reconciling {
    const struct cairn_run_name *name;
    bool frozen;
    char cause[CAIRN_SRV_CAUSE_BYTES], note[CAIRN_SRV_CAUSE_BYTES];
};

static enum cairn_code request_reconcile(struct cairn_srv_tx *tx, void *argument,
                                         struct cairn_error *err) {
    struct reconciling *reconciling = argument;
    CAIRN_AUTO(srv_run) run = {0};
    CAIRN_TRY(cairn_srv_run_get(tx, reconciling->name, &run, err));
    return cairn_srv_frozen_request(tx, run.id, &reconciling->frozen, reconciling->cause,
                                    reconciling->note, err);
}

enum cairn_code cairn_srv_on_reconcile(struct cairn_srv_request *request,
                                       struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct cairn_srv *server = request->server;
    struct reconciling reconciling = {.name = &request->params.run_name};
    CAIRN_TRY(cairn_srv_thawed(server, err));
    CAIRN_TRY(cairn_srv_catalog_write(server->catalog, request_reconcile, &reconciling, err));
    uint64_t until_ms = request->arrived_ms + HOLD_MS;
    if (reconciling.frozen && cairn_srv_mono_ms(server) < until_ms) {
        cairn_srv_jobs_sweep(server);
        reply->park = true;
        reply->park_key = cairn_srv_key_of_run(reconciling.name);
        reply->park_until_ms = until_ms;
        return CAIRN_OK;
    }
    return cairn_srv_reply_json(
        reply, reconciling.frozen ? 202 : 200,
        CAIRN_PACK(reconciled, .project = reconciling.name->project, .run = reconciling.name->run,
                   .frozen = reconciling.frozen,
                   .cause = reconciling.frozen ? reconciling.cause : NULL,
                   .note = reconciling.note[0] ? reconciling.note : NULL),
        err);
}
