/* SPDX-License-Identifier: Apache-2.0 */
/* PUT, GET and DELETE {R}, GET /v1/runs, GET {C}/lineage. */
#include <stdio.h>

#include "api/wire/messages.h"
#include "api/wire/policy.h"
#include "server/http/request.h"
#include "server/intake/intake.h"
#include "server/ledger/runs.h"
#include "server/ledger/version_lists.h"
#include "server/retention/remove_run.h"
#include "server/versions/versions.h"

#define RUN_TEXT_BYTES (2 * CAIRN_NAME_BYTES_MAX + 2)
#define ROWS_MAX 2000 /* per request */
#define ROWS_AT_ONCE 200

struct run_call {
    struct cairn_srv_request *request;
    struct cairn_buf labels;
    bool made;
    json_t *json;
    /* the list */
    uint64_t limit;
    char project[CAIRN_NAME_BYTES_MAX + 1];
    struct cairn_run_name after; /* from the cursor; "": none */
    struct cairn_selector selector;
    json_t *next;
};

static enum cairn_code get_run(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct run_call *call = argument;
    CAIRN_AUTO(srv_run) run = {0};
    CAIRN_TRY(cairn_srv_run_get(tx, &call->request->params.run_name, &run, err));
    CAIRN_TRY(cairn_srv_run_there(&run, err));
    return cairn_srv_run_json(tx, call->request, &run, &call->json, err);
}

static enum cairn_code put_run(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct run_call *call = argument;
    const struct cairn_run_name *name = &call->request->params.run_name;
    {
        CAIRN_AUTO(srv_run) run = {0};
        int64_t wall_ms = cairn_srv_wall_ms(call->request->server);
        CAIRN_TRY(cairn_srv_run_make(tx, name, call->labels.data, wall_ms, &run, &call->made, err));
        /* If-None-Match is supported as `*` only: a run's tag cannot be known before its PUT. */
        if (!call->made && !strcmp(call->request->if_none_match, "*"))
            return cairn_fail(err, CAIRN_PRECONDITION, "run %s/%s is there already", name->project,
                              name->run);
        if (call->labels.data)
            CAIRN_TRY(cairn_srv_run_set_labels(tx, run.id, call->labels.data, err));
    }
    json_decref(call->json);
    call->json = NULL;
    return get_run(tx, call, err);
}

static enum cairn_code read_labels(struct run_call *call, const json_t *body,
                                   struct cairn_error *err) {
    struct cairn_msg_run_put msg = {0};
    CAIRN_TRY(cairn_msg_run_put_read(body, "", &msg, err));
    return msg.labels ? cairn_meta_check(msg.labels, "/labels", true, &call->labels, err)
                      : CAIRN_OK;
}

enum cairn_code cairn_srv_on_run_put(struct cairn_srv_request *request,
                                     struct cairn_srv_reply *reply, struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    CAIRN_AUTO_JSON json_t *body = NULL;
    if (request->body.size) CAIRN_TRY(cairn_srv_body(request, 2000, &body, err));
    struct run_call call = {.request = request};
    enum cairn_code code = body ? read_labels(&call, body, err) : CAIRN_OK;
    if (!code) code = cairn_srv_catalog_write(request->server->catalog, put_run, &call, err);
    if (!code) code = cairn_srv_reply_run(reply, call.made ? 201 : 200, CAIRN_TAKE(call.json), err);
    cairn_buf_release(&call.labels);
    json_decref(call.json);
    return code;
}

enum cairn_code cairn_srv_on_run_get(struct cairn_srv_request *request,
                                     struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct run_call call = {.request = request};
    CAIRN_TRY(cairn_srv_catalog_read(request->server->catalog, get_run, &call, err));
    return cairn_srv_reply_run(reply, 200, call.json, err);
}

static enum cairn_code remove_run(struct cairn_srv_tx *tx, void *argument,
                                  struct cairn_error *err) {
    const struct run_call *call = argument;
    CAIRN_AUTO(srv_run) run = {0};
    CAIRN_TRY(cairn_srv_run_get(tx, &call->request->params.run_name, &run, err));
    if (run.removed) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_tx_run_thawed(tx, run.id, err));
    return cairn_srv_run_remove(tx, &run, err);
}

static enum cairn_code read_dry_run(const struct cairn_srv_request *request, bool *ret,
                                    struct cairn_error *err) {
    const char *text = cairn_query_get(&request->query, "dry_run");
    *ret = text && !strcmp(text, "true");
    if (!text || *ret || !strcmp(text, "false")) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "dry_run must be true or false, not \"%s\"", text);
}

enum cairn_code cairn_srv_on_run_delete(struct cairn_srv_request *request,
                                        struct cairn_srv_reply *reply, struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    const struct cairn_run_name *name = &request->params.run_name;
    const char *confirm = cairn_query_get(&request->query, "confirm");
    struct run_call call = {.request = request};
    struct cairn_error why = {0};
    bool dry_run = false;
    CAIRN_TRY(read_dry_run(request, &dry_run, err));
    if (dry_run) return cairn_srv_run_removal_show(request, confirm, reply, err);
    if (confirm) return cairn_srv_run_delete_whole(request, confirm, reply, err);
    enum cairn_code code =
        cairn_srv_catalog_write(request->server->catalog, remove_run, &call, &why);
    if (code == CAIRN_IN_USE) return cairn_srv_run_delete_unconfirmed(request, reply, err);
    if (code && err) *err = why;
    if (code) return code;
    return cairn_srv_reply_json(
        reply, 200, CAIRN_PACK(run_hidden, .project = name->project, .run = name->run), err);
}

/* ---- the list ---- */

/* *ret_full: the run passes, but the page is full. */
static enum cairn_code add_run(struct cairn_srv_tx *tx, struct run_call *call,
                               const struct cairn_run_name *name, bool *ret_full,
                               struct cairn_error *err) {
    CAIRN_AUTO(srv_run) run = {0};
    json_t *json = NULL;
    if (!cairn_srv_caller_may(&call->request->caller, CAIRN_SCOPE_READ, name->project))
        return CAIRN_OK;
    CAIRN_TRY(cairn_srv_run_get(tx, name, &run, err));
    if (call->selector.count) {
        CAIRN_AUTO_JSON json_t *labels = json_loads(run.labels, 0, NULL);
        if (!cairn_selector_matches(&call->selector, labels)) return CAIRN_OK;
    }
    *ret_full = json_array_size(call->json) == call->limit;
    if (*ret_full) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_run_json(tx, call->request, &run, &json, err));
    if (json_array_append_new(call->json, json))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
    return CAIRN_OK;
}

/* Reads runs in pages of their own, so that a selective filter still fills this page. */
static enum cairn_code list_runs(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct run_call *call = argument;
    size_t seen = 0;
    for (bool full = false; !full;) {
        CAIRN_AUTO(srv_run_names) page = {0};
        size_t wanted = seen ? ROWS_AT_ONCE : call->limit + 1; /* one more: is there a next page? */
        CAIRN_TRY(cairn_srv_runs_page(tx, call->project, &call->after, wanted, &page, err));
        for (size_t i = 0; i < page.count && !full; i++) {
            CAIRN_TRY(add_run(tx, call, &page.names[i], &full, err));
            if (!full) call->after = page.names[i];
        }
        seen += page.count;
        if (page.count < wanted && !full) return CAIRN_OK; /* the last page */
        full = full || seen >= ROWS_MAX;
    }
    char text[RUN_TEXT_BYTES];
    snprintf(text, sizeof(text), "%s/%s", call->after.project, call->after.run);
    call->next = cairn_srv_cursor_write(call->request->server, text);
    return CAIRN_OK;
}

static enum cairn_code read_cursor(struct run_call *call, struct cairn_error *err) {
    char text[RUN_TEXT_BYTES];
    CAIRN_TRY(cairn_srv_cursor_read(call->request, text, sizeof(text), err));
    size_t size = strcspn(text, "/");
    if (!text[0]) return CAIRN_OK;
    if (!text[size] || size >= sizeof(call->after.project))
        return cairn_fail(err, CAIRN_INVALID, "cursor is not one that this server gave out");
    snprintf(call->after.project, sizeof(call->after.project), "%.*s", (int)size, text);
    snprintf(call->after.run, sizeof(call->after.run), "%.*s", CAIRN_NAME_BYTES_MAX,
             text + size + 1);
    return CAIRN_OK;
}

enum cairn_code cairn_srv_on_run_list(struct cairn_srv_request *request,
                                      struct cairn_srv_reply *reply, struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    struct run_call call = {.request = request};
    CAIRN_TRY(cairn_srv_query_limit(request, &call.limit, err));
    CAIRN_TRY(read_cursor(&call, err));
    const char *labels = cairn_query_get(&request->query, "l");
    if (labels) CAIRN_TRY(cairn_selector_parse(cairn_view_of(labels), &call.selector, err));
    const char *project = cairn_query_get(&request->query, "project");
    if (project && !cairn_name_valid(cairn_view_of(project)))
        return cairn_fail(err, CAIRN_INVALID, "project: " CAIRN_NAME_WANTED);
    snprintf(call.project, sizeof(call.project), "%s", project ? project : "");
    call.json = json_array();
    enum cairn_code code = cairn_srv_catalog_read(request->server->catalog, list_runs, &call, err);
    if (code) {
        json_decref(call.json);
        json_decref(call.next);
        return code;
    }
    return cairn_srv_reply_page(reply, call.json, call.next, err);
}

/* ---- GET {C}/lineage: a version's ancestors, attempt by attempt and across runs ---- */

struct lineage_call {
    struct cairn_srv_request *request;
    json_t *items;
    bool more;
};

static enum cairn_code look_at_lineage(struct cairn_srv_tx *tx, void *argument,
                                       struct cairn_error *err) {
    struct lineage_call *call = argument;
    CAIRN_AUTO(srv_version) version = {0};
    struct cairn_srv_ref ref = {&call->request->params.run_name, call->request->params.ref, true};
    json_decref(call->items);
    call->items = NULL;
    CAIRN_TRY(cairn_srv_version_find(tx, &ref, &version, err));
    return cairn_srv_lineage(tx, &version, &call->items, &call->more, err);
}

/* P16: the chain ends before a project that the caller may not read. */
static void cut_at_hidden(struct lineage_call *call) {
    for (size_t i = 0; i < json_array_size(call->items); i++) {
        const char *project =
            json_string_value(json_object_get(json_array_get(call->items, i), "project"));
        if (!project || !project[0] ||
            cairn_srv_caller_may(&call->request->caller, CAIRN_SCOPE_READ, project))
            continue;
        while (json_array_size(call->items) > i)
            (void)json_array_remove(call->items, json_array_size(call->items) - 1);
        call->more = true;
    }
}

enum cairn_code cairn_srv_on_lineage(struct cairn_srv_request *request,
                                     struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct lineage_call call = {.request = request};
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    enum cairn_code code =
        cairn_srv_catalog_read(request->server->catalog, look_at_lineage, &call, err);
    if (!code) cut_at_hidden(&call);
    if (!code)
        code = cairn_srv_reply_json(
            reply, 200, CAIRN_PACK(lineage, .items = call.items, .more = call.more), err);
    json_decref(call.items);
    return code;
}
