/* SPDX-License-Identifier: Apache-2.0 */
/* {R}/probes: before the first save of an attempt each rank writes a probe to the store, and this
 * server checks that the probe is readable. The attempt keeps each rank's result. */
#include <inttypes.h>
#include <stdio.h>

#include "api/documents/digest.h"
#include "api/wire/messages.h"
#include "server/http/request.h"
#include "server/ledger/attempts.h"

struct put {
    struct cairn_grant grant;
    struct srv_probe probe;
};

SRV_CHANGE(keep, struct put *put) {
    bool known = false;
    SRV_GET(run, run, srv_admit(tx, &put->grant, &run, err));
    CAIRN_TRY(srv_member_probed(tx, run.id, put->grant.attempt, &put->probe, &known, err));
    if (known) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NOT_FOUND,
                      "attempt %" PRIu64 " has no rank %" PRIu64 " on node %s", put->grant.attempt,
                      put->probe.rank, put->probe.node);
}

/* ret_why: CAIRN_OK if the probe is in the store as it was written. */
static void look(struct srv_request *request, const struct put *put, uint64_t bytes,
                 struct cairn_error *ret_why) {
    struct cairn_key key;
    const char *url = cairn_store_url(request->server->store);
    cairn_probe_key(&put->grant.name, put->grant.attempt, put->grant.nonce,
                    (uint32_t)put->probe.rank, &key);
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key.text};
    enum cairn_code code = cairn_store_perform(request->store, &head, ret_why);
    if (code == CAIRN_NOT_FOUND)
        (void)cairn_fail(ret_why, CAIRN_NOT_FOUND,
                         "the server does not find in %s what this node has written there: it is "
                         "another bucket, folder or endpoint (%s)",
                         url, key.text);
    else if (code)
        (void)cairn_within(ret_why, code, "the server looking into its store %s", url);
    else if (head.object_bytes != bytes)
        (void)cairn_fail(ret_why, CAIRN_CORRUPT,
                         "%s has %" PRIu64 " bytes for the server, and %" PRIu64
                         " were written: something between them changes what is sent",
                         key.text, head.object_bytes, bytes);
}

static json_t *row_json(const struct srv_probe *probe) {
    char at[32] = "";
    const char *text = probe->result ? probe->result : "";
    const char *space = strchr(text, ' ');
    char code[64] = "";
    if (probe->at_ms) cairn_time_text((int64_t)probe->at_ms, true, at);
    if (space) snprintf(code, sizeof(code), "%.*s", (int)(space - text), text);
    return CAIRN_PACK(probe_row, .rank = (uint32_t)probe->rank, .node = probe->node,
                      .probed_at = at[0] ? at : NULL, .ok = at[0] && !text[0],
                      .code = space ? code : NULL, .reason = space ? space + 1 : NULL);
}

SRV_HANDLER(probe_put) {
    struct put put = {0};
    struct cairn_error why = {0};
    char text[sizeof(why.message) + 64] = "";
    CAIRN_TRY(srv_thawed(request->server, err));
    SRV_BODY(body, probe_put, told, 20);
    CAIRN_TRY(srv_grant_read(request, told.grant, &put.grant, err));
    put.probe = (struct srv_probe){.rank = told.rank, .node = told.node, .result = text};
    SRV_LOOK(scope, request->server->catalog, err);
    SRV_GET(run, run, srv_admit(scope.tx, &put.grant, &run, err));
    srv_look_release(&scope);
    if (told.code)
        cairn_failure_get(body, "reason", &why);
    else
        look(request, &put, told.bytes, &why);
    if (why.code)
        snprintf(text, sizeof(text), "%s %s", cairn_code_info(why.code)->slug, why.message);
    put.probe.at_ms = srv_wall_ms(request->server);
    CAIRN_TRY(srv_catalog_write(request->server->catalog, keep, &put, err));
    return srv_reply_json(reply, 200, row_json(&put.probe), err);
}

SRV_HANDLER(probe_list) {
    uint64_t after = 0;
    SRV_GET(list, list, srv_list_open(request, &list, err));
    CAIRN_TRY(srv_list_after(&list, &after, err));
    SRV_LOOK(look, request->server->catalog, err);
    SRV_GET(run, run, srv_run_get(look.tx, &request->params.run_name, &run, err));
    struct srv_probe_page page = {run.id, run.attempt,
                                  list.after[0] ? (int64_t)cairn_min_u64(after, INT64_MAX) : -1,
                                  list.limit};
    SRV_GET(rows, rows, srv_probes_open(look.tx, &page, &rows, err));
    SQL_EACH(&rows, err) {
        const struct srv_probe probe = srv_row_probe(&rows);
        char place[24];
        snprintf(place, sizeof(place), "%" PRIu64, probe.rank);
        if (srv_list_takes(&list, place)) CAIRN_TRY(srv_list_add(&list, row_json(&probe), err));
    }
    list.more = list.count == list.limit;
    return srv_list_reply(&list, reply, err);
}
