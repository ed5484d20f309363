/* SPDX-License-Identifier: Apache-2.0 */
/* GET /v1/events, {R}/events and {C}/events: a page, a long poll, or, where the caller accepts
 * text/event-stream, a stream. */
#include "server/ledger/events.h"

#include <inttypes.h>
#include <stdio.h>
#include <strings.h>

#include "api/wire/messages.h"
#include "common/text.h"
#include "server/events/feed.h"
#include "server/http/request.h"
#include "server/http/waiters.h"
#include "server/ledger/versions.h"

struct call {
    struct cairn_srv_request *request;
    struct cairn_srv_follow follow;
    bool of_run, since_given, audit;
    uint64_t since, limit;
    uint64_t first, last; /* that are kept */
    uint64_t looked, last_looked; /* rows, and the number of the last of them */
    json_t *items;
};

/* ---- the question ---- */

static enum cairn_code read_number(const char *text, const char *name, uint64_t *ret,
                                   struct cairn_error *err) {
    enum cairn_code code = cairn_parse_u64(cairn_view_of(text), ret, err);
    if (!code && *ret > INT64_MAX) code = cairn_fail(err, CAIRN_INVALID, "it is too large");
    return code ? cairn_within(err, code, "%s", name) : CAIRN_OK;
}

/* Last-Event-ID is what a browser sends when it comes again, so it counts more. */
static enum cairn_code read_since(struct call *call, struct cairn_error *err) {
    const char *since = cairn_query_get(&call->request->query, "since");
    const char *header = call->request->last_event_id;
    call->since_given = since || header[0];
    if (header[0]) return read_number(header, "Last-Event-ID", &call->since, err);
    return since ? read_number(since, "since", &call->since, err) : CAIRN_OK;
}

/* One of the media types of Accept, without its parameters. */
static bool wants_stream(const struct cairn_srv_request *request) {
    static const char wanted[] = "text/event-stream";
    for (const char *at = request->accept; *at;) {
        at += strspn(at, " \t,");
        size_t size = strcspn(at, " \t,;");
        if (size == strlen(wanted) && !strncasecmp(at, wanted, size)) return true;
        at += strcspn(at, ",");
    }
    return false;
}

static enum cairn_code read_audit(struct call *call, struct cairn_error *err) {
    const char *text = cairn_query_get(&call->request->query, "audit");
    call->audit = text && !strcmp(text, "true");
    if (text && !call->audit && strcmp(text, "false") != 0)
        return cairn_fail(err, CAIRN_INVALID, "audit: want true or false");
    if (!call->audit || !wants_stream(call->request)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "audit: of pages alone; a stream has all events");
}

static enum cairn_code read_filters(struct call *call, struct cairn_error *err) {
    const struct cairn_query *query = &call->request->query;
    const char *kind = cairn_query_get(query, "kind"), *project = cairn_query_get(query, "project");
    if (kind) CAIRN_TRY(cairn_srv_event_kinds_parse(kind, &call->follow.kinds, err));
    if (!project) return CAIRN_OK;
    if (!cairn_name_valid(cairn_view_of(project)))
        return cairn_fail(err, CAIRN_INVALID, "project: " CAIRN_NAME_WANTED);
    (void)cairn_text_copy(call->follow.project, sizeof(call->follow.project), project);
    return CAIRN_OK;
}

static enum cairn_code find_scope(struct cairn_srv_tx *tx, struct call *call,
                                  struct cairn_error *err) {
    const struct cairn_srv_request *request = call->request;
    if (!call->of_run) return CAIRN_OK;
    call->follow.name = request->params.run_name;
    if (!request->params.ref[0]) {
        CAIRN_AUTO(srv_run) run = {0};
        return cairn_srv_run_get(tx, &call->follow.name, &run, err);
    }
    CAIRN_AUTO(srv_version) version = {0};
    struct cairn_srv_ref ref = {&request->params.run_name, request->params.ref, true};
    CAIRN_TRY(cairn_srv_version_find(tx, &ref, &version, err));
    call->follow.version = version.id;
    return CAIRN_OK;
}

/* A number that is trimmed, or that this catalog never gave: the caller has missed something. */
static enum cairn_code judge_since(const struct call *call, struct cairn_error *err) {
    /* Of the audit nothing is trimmed by count. */
    bool trimmed = !call->audit && call->since && call->since + 1 < call->first;
    if (!call->since_given || (!trimmed && call->since <= call->last)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CURSOR_EXPIRED,
                      "events %" PRIu64 " to %" PRIu64 " are kept, so what came after %" PRIu64
                      " is not known: read the runs again, then go on from %" PRIu64,
                      call->first, call->last, call->since, call->last);
}

/* ---- a page ---- */

static enum cairn_code add_item(const struct cairn_srv_event_row *row, void *owner,
                                struct cairn_error *err) {
    struct call *call = owner;
    call->looked++;
    call->last_looked = row->number;
    if (!cairn_srv_caller_may(&call->request->caller, CAIRN_SCOPE_READ, row->name.project) &&
        !call->of_run)
        return CAIRN_OK;
    size_t at = call->since_given ? json_array_size(call->items) : 0;
    if (!json_array_insert(call->items, at, row->json)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
}

static enum cairn_code look(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct call *call = argument;
    json_decref(call->items);
    call->items = json_array();
    call->looked = 0;
    CAIRN_TRY(find_scope(tx, call, err));
    CAIRN_TRY(cairn_srv_events_bounds(tx, &call->first, &call->last, err));
    CAIRN_TRY(judge_since(call, err));
    struct cairn_srv_events_query query = {.name = &call->follow.name,
                                           .version = call->follow.version.text,
                                           .after = call->since,
                                           .limit = call->limit,
                                           .kinds = call->follow.kinds,
                                           .project = call->follow.project,
                                           .newest = !call->since_given,
                                           .audit = call->audit};
    return call->limit ? cairn_srv_events_read(tx, &query, add_item, call, err) : CAIRN_OK;
}

static void park(const struct call *call, struct cairn_srv_reply *reply, uint64_t until_ms) {
    char key[CAIRN_SRV_EVENTS_KEY_BYTES];
    if (call->follow.version.text[0])
        cairn_srv_events_key_of_version(&call->follow.version, key);
    else
        cairn_srv_events_key_of_run(&call->follow.name, key);
    reply->park = reply->rung = true;
    reply->park_key = cairn_srv_key_of(key);
    reply->park_until_ms = until_ms;
}

static enum cairn_code serve_page(struct call *call, struct cairn_srv_reply *reply,
                                  struct cairn_error *err) {
    struct cairn_srv_request *request = call->request;
    const char *wait = cairn_query_get(&request->query, "wait");
    uint64_t wait_ms = 0;
    enum cairn_code code =
        wait ? cairn_parse_duration(cairn_view_of(wait), &wait_ms, err) : CAIRN_OK;
    if (code) return cairn_within(err, code, "wait");
    CAIRN_TRY(cairn_srv_query_limit(request, &call->limit, err));
    CAIRN_TRY(cairn_srv_catalog_read(request->server->catalog, look, call, err));
    uint64_t until_ms = request->arrived_ms + cairn_min_u64(wait_ms, CAIRN_WAIT_MS_MAX);
    if (request->wait_over) wait_ms = 0;
    bool full = call->since_given && call->looked == call->limit;
    if (!json_array_size(call->items) && !full && call->since_given && wait_ms &&
        cairn_srv_mono_ms(request->server) < until_ms) {
        park(call, reply, until_ms);
        return CAIRN_OK;
    }
    reply->in_vain = !json_array_size(call->items);
    /* A full page may have more behind it; else everything up to the newest was looked at. */
    uint64_t next = full ? call->last_looked : call->last;
    return cairn_srv_reply_json(reply, 200,
                                CAIRN_PACK(event_page, .items = call->items, .since = next), err);
}

/* ---- a stream ---- */

static enum cairn_code serve_stream(struct call *call, struct cairn_srv_reply *reply,
                                    struct cairn_error *err) {
    struct cairn_srv *server = call->request->server;
    if (!server->feed)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "this server has no streams of events");
    CAIRN_TRY(cairn_srv_catalog_read(server->catalog, look, call, err));
    call->follow.after = call->since_given ? call->since : call->last;
    call->follow.credential = call->request->credential;
    call->follow.caller = call->request->caller;
    (void)cairn_text_copy(call->follow.from, sizeof(call->follow.from), call->request->from);
    CAIRN_TRY(cairn_srv_follower_new(server->feed, &call->follow, &reply->follower, err));
    reply->content_type = "text/event-stream";
    cairn_srv_reply_header(reply, "X-Accel-Buffering", "no");
    return CAIRN_OK;
}

static enum cairn_code serve(struct cairn_srv_request *request, struct cairn_srv_reply *reply,
                             bool of_run, struct cairn_error *err) {
    struct call call = {.request = request, .of_run = of_run};
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    CAIRN_TRY(read_since(&call, err));
    CAIRN_TRY(read_audit(&call, err));
    CAIRN_TRY(read_filters(&call, err));
    enum cairn_code code = wants_stream(request) ? serve_stream(&call, reply, err)
                                                 : serve_page(&call, reply, err);
    json_decref(call.items);
    return code;
}

enum cairn_code cairn_srv_on_event_list(struct cairn_srv_request *request,
                                        struct cairn_srv_reply *reply, struct cairn_error *err) {
    return serve(request, reply, false, err);
}

enum cairn_code cairn_srv_on_run_events(struct cairn_srv_request *request,
                                        struct cairn_srv_reply *reply, struct cairn_error *err) {
    return serve(request, reply, true, err);
}

enum cairn_code cairn_srv_on_checkpoint_events(struct cairn_srv_request *request,
                                               struct cairn_srv_reply *reply,
                                               struct cairn_error *err) {
    return serve(request, reply, true, err);
}
