/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/webhooks: who is told of events, how far, and what could not be told. */
#include "server/events/webhooks_job.h"

#include <inttypes.h>
#include <stdio.h>

#include "api/wire/messages.h"
#include "common/clock.h"
#include "common/text.h"
#include "server/http/request.h"
#include "server/ledger/events.h"
#include "server/ledger/webhooks.h"

struct call {
    struct cairn_srv_request *request;
    json_t *items;
    uint64_t after, limit, last; /* numbers of letters; last: events there are */
    size_t count;
    bool more;
};

/* ---- GET /v1/webhooks ---- */

static json_t *row_of(const struct cairn_srv_webhook *hook, const struct cairn_srv_webhook_row *row,
                      uint64_t last) {
    char tried[32], delivered[32];
    cairn_time_text(row->tried_ms, true, tried);
    cairn_time_text(row->delivered_ms, true, delivered);
    return CAIRN_PACK(webhook_row, .name = hook->name, .host = hook->host, .project = hook->project,
                      .position = row->position,
                      .behind = last > row->position ? last - row->position : 0,
                      .delivered = row->delivered, .failures = row->failures,
                      .cause = row->cause[0] ? row->cause : NULL, .missed = row->missed,
                      .dead_letters = row->letters, .tried_at = row->tried_ms ? tried : NULL,
                      .delivered_at = row->delivered_ms ? delivered : NULL);
}

static enum cairn_code list(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct call *call = argument;
    const struct cairn_srv_webhook_file *file =
        cairn_srv_webhooks_file(call->request->server->webhooks);
    uint64_t first = 0;
    json_array_clear(call->items);
    CAIRN_TRY(cairn_srv_events_bounds(tx, &first, &call->last, err));
    for (size_t i = 0; i < file->count; i++) {
        struct cairn_srv_webhook_row row = {0};
        struct cairn_error why = {0};
        enum cairn_code code = cairn_srv_webhook_get(tx, file->hooks[i].name, &row, &why);
        if (code && code != CAIRN_NOT_FOUND) return cairn_fail(err, code, "%s", why.message);
        if (code) row.position = call->last; /* it begins with the next event */
        json_t *item = row_of(&file->hooks[i], &row, call->last);
        if (json_array_append_new(call->items, item))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list of webhooks");
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_on_webhook_list(struct cairn_srv_request *request,
                                          struct cairn_srv_reply *reply, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *items = json_array();
    struct call call = {.request = request, .items = items};
    CAIRN_TRY(cairn_srv_query_limit(request, &call.limit, err));
    if (request->server->webhooks)
        CAIRN_TRY(cairn_srv_catalog_read(request->server->catalog, list, &call, err));
    return cairn_srv_reply_page(reply, CAIRN_TAKE(items), NULL, err);
}

/* ---- GET /v1/webhooks/{webhook}/dead-letters ---- */

static enum cairn_code hook_of(const struct cairn_srv_request *request, struct cairn_error *err) {
    const struct cairn_srv_webhooks *webhooks = request->server->webhooks;
    const char *name = request->params.node;
    if (webhooks && cairn_srv_webhooks_find(webhooks, name)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NOT_FOUND, "there is no webhook %s", name);
}

static enum cairn_code take_letter(const struct cairn_srv_letter *letter, void *owner,
                                   struct cairn_error *err) {
    struct call *call = owner;
    char at[32];
    if (call->count++ == call->limit) {
        call->more = true;
        return CAIRN_OK;
    }
    cairn_time_text(letter->at_ms, true, at);
    call->last = letter->number;
    json_t *item = CAIRN_PACK(letter_row, .id = letter->number, .tries = letter->tries,
                              .tried_at = at, .cause = letter->cause, .event = letter->event);
    if (!json_array_append_new(call->items, item)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list of dead letters");
}

static enum cairn_code letters(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct call *call = argument;
    json_array_clear(call->items);
    call->count = 0;
    call->more = false;
    return cairn_srv_letters_each(tx, call->request->params.node, call->after, call->limit + 1,
                                  take_letter, call, err);
}

enum cairn_code cairn_srv_on_letter_list(struct cairn_srv_request *request,
                                         struct cairn_srv_reply *reply, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *items = json_array();
    struct call call = {.request = request, .items = items};
    char place[24] = "";
    CAIRN_TRY(hook_of(request, err));
    CAIRN_TRY(cairn_srv_query_limit(request, &call.limit, err));
    CAIRN_TRY(cairn_srv_cursor_read(request, place, sizeof(place), err));
    if (place[0]) CAIRN_TRY(cairn_parse_u64(cairn_view_of(place), &call.after, err));
    CAIRN_TRY(cairn_srv_catalog_read(request->server->catalog, letters, &call, err));
    snprintf(place, sizeof(place), "%" PRIu64, call.last);
    json_t *next = call.more ? cairn_srv_cursor_write(request->server, place) : NULL;
    return cairn_srv_reply_page(reply, CAIRN_TAKE(items), next, err);
}

/* ---- POST /v1/webhooks/{webhook}/redeliver ---- */

static enum cairn_code again(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct call *call = argument;
    const struct cairn_run_name all = {0};
    const char *name = call->request->params.node;
    CAIRN_TRY(cairn_srv_letters_again(tx, name, &call->last, err));
    return cairn_srv_event_of_name(tx, CAIRN_SRV_EVENT_WEBHOOK_REDELIVERED, &all, name, err);
}

enum cairn_code cairn_srv_on_webhook_redeliver(struct cairn_srv_request *request,
                                               struct cairn_srv_reply *reply,
                                               struct cairn_error *err) {
    struct call call = {.request = request};
    CAIRN_TRY(hook_of(request, err));
    CAIRN_TRY(cairn_srv_catalog_write(request->server->catalog, again, &call, err));
    cairn_srv_webhooks_wake(request->server->webhooks, request->params.node);
    return cairn_srv_reply_json(
        reply, 202,
        CAIRN_PACK(redelivered, .name = request->params.node, .dead_letters = call.last), err);
}
