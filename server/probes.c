/* SPDX-License-Identifier: Apache-2.0 */
/* {R}/probes: before the first save of an attempt each rank writes a probe to the store, and this
 * server checks that the probe is readable. The attempt keeps each rank's result. */
#include <inttypes.h>
#include <stdio.h>

#include "api/documents/digest.h"
#include "api/wire/messages.h"
#include "common/clock.h"
#include "common/text.h"
#include "server/http/request.h"
#include "server/ledger/attempts.h"
#include "server/ledger/runs.h"

struct put {
    struct cairn_srv_request *request;
    struct cairn_grant grant;
    struct cairn_srv_probe probe;
    int64_t run_id;
    bool known;
};

static enum cairn_code admit(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct put *put = argument;
    CAIRN_AUTO(srv_run) run = {0};
    CAIRN_TRY(cairn_srv_admit(tx, &put->grant, &run, err));
    put->run_id = run.id;
    return CAIRN_OK;
}

static enum cairn_code keep(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct put *put = argument;
    CAIRN_TRY(admit(tx, argument, err));
    CAIRN_TRY(cairn_srv_member_probed(tx, put->run_id, put->grant.attempt, &put->probe, &put->known,
                                      err));
    if (put->known) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NOT_FOUND,
                      "attempt %" PRIu64 " has no rank %" PRIu64 " on node %s", put->grant.attempt,
                      put->probe.rank, put->probe.node);
}

/* ret_why: CAIRN_OK if the probe is in the store as it was written. */
static void look(struct cairn_srv_request *request, const struct put *put, uint64_t bytes,
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

static json_t *row_json(const struct cairn_srv_probe *probe) {
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

enum cairn_code cairn_srv_on_probe_put(struct cairn_srv_request *request,
                                       struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct put put = {.request = request};
    struct cairn_msg_probe_put told = {0};
    struct cairn_error why = {0};
    CAIRN_AUTO_JSON json_t *body = NULL;
    char text[sizeof(why.message) + 64] = "";
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    CAIRN_TRY(cairn_srv_body(request, 20, &body, err));
    CAIRN_TRY(cairn_msg_probe_put_read(body, "", &told, err));
    CAIRN_TRY(cairn_srv_grant_read(request, told.grant, &put.grant, err));
    put.probe = (struct cairn_srv_probe){.rank = told.rank, .node = told.node, .result = text};
    CAIRN_TRY(cairn_srv_catalog_read(request->server->catalog, admit, &put, err));
    if (told.code)
        cairn_failure_get(body, "reason", &why);
    else
        look(request, &put, told.bytes, &why);
    if (why.code)
        snprintf(text, sizeof(text), "%s %s", cairn_code_info(why.code)->slug, why.message);
    put.probe.at_ms = cairn_srv_wall_ms(request->server);
    CAIRN_TRY(cairn_srv_catalog_write(request->server->catalog, keep, &put, err));
    return cairn_srv_reply_json(reply, 200, row_json(&put.probe), err);
}

struct list {
    struct cairn_srv_request *request;
    int64_t after;
    uint64_t limit, count, last;
    json_t *items;
};

static enum cairn_code add_row(void *owner, const struct cairn_srv_probe *probe,
                               struct cairn_error *err) {
    struct list *list = owner;
    list->count++;
    list->last = probe->rank;
    if (!json_array_append_new(list->items, row_json(probe))) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
}

static enum cairn_code list_all(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct list *list = argument;
    CAIRN_AUTO(srv_run) run = {0};
    json_array_clear(list->items);
    list->count = 0;
    CAIRN_TRY(cairn_srv_run_get(tx, &list->request->params.run_name, &run, err));
    return cairn_srv_members_probed(
        tx, &(struct cairn_srv_probe_page){run.id, run.attempt, list->after, list->limit}, add_row,
        list, err);
}

enum cairn_code cairn_srv_on_probe_list(struct cairn_srv_request *request,
                                        struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct list list = {.request = request, .after = -1};
    char place[24] = "";
    uint64_t from = 0;
    json_t *next = NULL;
    CAIRN_TRY(cairn_srv_query_limit(request, &list.limit, err));
    CAIRN_TRY(cairn_srv_cursor_read(request, place, sizeof(place), err));
    if (place[0]) CAIRN_TRY(cairn_parse_u64(cairn_view_of(place), &from, err));
    if (place[0]) list.after = (int64_t)cairn_min_u64(from, INT64_MAX);
    list.items = json_array();
    enum cairn_code code = cairn_srv_catalog_read(request->server->catalog, list_all, &list, err);
    if (code) {
        json_decref(list.items);
        return code;
    }
    if (list.count == list.limit) {
        snprintf(place, sizeof(place), "%" PRIu64, list.last);
        next = cairn_srv_cursor_write(request->server, place);
    }
    return cairn_srv_reply_page(reply, list.items, next, err);
}
