/* SPDX-License-Identifier: Apache-2.0 */
/* PUT, GET and DELETE {R}, GET /v1/runs, GET {C}/lineage. */
#include <stdio.h>

#include "server/intake/intake.h"
#include "server/retention/remove_run.h"
#include "server/versions/versions.h"

#define ROWS_MAX 2000 /* per request */
#define ROWS_AT_ONCE 200

struct run_call {
    struct srv_request *request;
    struct cairn_buf labels;
    bool made;
    json_t *json;
};

static enum cairn_code get_run(struct srv_tx *tx, const struct srv_request *request, json_t **ret,
                               struct cairn_error *err) {
    SRV_GET(run, run, srv_run_get(tx, &request->params.run_name, &run, err));
    CAIRN_TRY(srv_run_there(&run, err));
    return srv_run_json(tx, request, &run, ret, err);
}

SRV_CHANGE(put_run, struct run_call *call) {
    const struct cairn_run_name *name = &call->request->params.run_name;
    {
        int64_t wall_ms = srv_wall_ms(call->request->server);
        SRV_GET(run, run,
                srv_run_make(tx, name, call->labels.data, wall_ms, &run, &call->made, err));
        /* If-None-Match is supported as `*` only: a run's tag cannot be known before its PUT. */
        if (!call->made && !strcmp(call->request->if_none_match, "*"))
            return cairn_fail(err, CAIRN_PRECONDITION, "run %s/%s is there already", name->project,
                              name->run);
        if (call->labels.data) CAIRN_TRY(srv_run_set_labels(tx, run.id, call->labels.data, err));
    }
    return get_run(tx, call->request, &call->json, err);
}

static enum cairn_code read_labels(struct run_call *call, const json_t *body,
                                   struct cairn_error *err) {
    struct cairn_msg_run_put msg = {0};
    CAIRN_TRY(cairn_msg_run_put_read(body, "", &msg, err));
    return msg.labels ? cairn_meta_check(msg.labels, "/labels", true, &call->labels, err)
                      : CAIRN_OK;
}

SRV_HANDLER(run_put) {
    CAIRN_TRY(srv_thawed(request->server, err));
    CAIRN_AUTO_JSON json_t *body = NULL;
    if (request->body.size) CAIRN_TRY(srv_body(request, 2000, &body, err));
    struct run_call call = {.request = request};
    enum cairn_code code = body ? read_labels(&call, body, err) : CAIRN_OK;
    if (!code) code = srv_catalog_write(request->server->catalog, put_run, &call, err);
    if (!code) code = srv_reply_run(reply, call.made ? 201 : 200, CAIRN_TAKE(call.json), err);
    cairn_buf_release(&call.labels);
    json_decref(call.json);
    return code;
}

SRV_HANDLER(run_get) {
    json_t *json = NULL;
    {
        SRV_LOOK(look, request->server->catalog, err);
        CAIRN_TRY(get_run(look.tx, request, &json, err));
    }
    return srv_reply_run(reply, 200, json, err);
}

SRV_CHANGE(remove_run, const struct run_call *call) {
    SRV_GET(run, run, srv_run_get(tx, &call->request->params.run_name, &run, err));
    if (run.removed) return CAIRN_OK;
    CAIRN_TRY(srv_tx_run_thawed(tx, run.id, err));
    return srv_run_remove(tx, &run, err);
}

static enum cairn_code read_dry_run(const struct srv_request *request, bool *ret,
                                    struct cairn_error *err) {
    const char *text = cairn_query_get(&request->query, "dry_run");
    *ret = text && !strcmp(text, "true");
    if (!text || *ret || !strcmp(text, "false")) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "dry_run must be true or false, not \"%s\"", text);
}

SRV_HANDLER(run_delete) {
    CAIRN_TRY(srv_thawed(request->server, err));
    const struct cairn_run_name *name = &request->params.run_name;
    const char *confirm = cairn_query_get(&request->query, "confirm");
    struct run_call call = {.request = request};
    struct cairn_error why = {0};
    bool dry_run = false;
    CAIRN_TRY(read_dry_run(request, &dry_run, err));
    if (dry_run) return srv_run_removal_show(request, confirm, reply, err);
    if (confirm) return srv_run_delete_whole(request, confirm, reply, err);
    enum cairn_code code = srv_catalog_write(request->server->catalog, remove_run, &call, &why);
    if (code == CAIRN_IN_USE) return srv_run_delete_unconfirmed(request, reply, err);
    CAIRN_TRY(cairn_pass(err, code, &why));
    return srv_reply_json(reply, 200,
                          CAIRN_PACK(run_hidden, .project = name->project, .run = name->run), err);
}

/* ---- the list ---- */

struct run_list {
    struct srv_list page;
    char project[CAIRN_NAME_BYTES_MAX + 1];
    struct cairn_run_name after; /* the last run looked at; "": none */
    struct cairn_selector selector;
};

/* Sets page.more where the run passes, but the page is full. */
static enum cairn_code add_run(struct srv_tx *tx, struct run_list *list,
                               const struct cairn_run_name *name, struct cairn_error *err) {
    const struct srv_request *request = list->page.request;
    json_t *json = NULL;
    if (!srv_caller_may(&request->caller, CAIRN_SCOPE_READ, name->project)) return CAIRN_OK;
    SRV_GET(run, run, srv_run_get(tx, name, &run, err));
    if (list->selector.count) {
        CAIRN_AUTO_JSON json_t *labels = json_loads(run.labels, 0, NULL);
        if (!cairn_selector_matches(&list->selector, labels)) return CAIRN_OK;
    }
    if (!srv_list_takes(&list->page, "")) return CAIRN_OK;
    CAIRN_TRY(srv_run_json(tx, request, &run, &json, err));
    return srv_list_add(&list->page, json, err);
}

/* Reads runs in pages of their own, so that a selective filter still fills this page. */
static enum cairn_code list_runs(struct run_list *list, struct cairn_error *err) {
    size_t seen = 0;
    bool *more = &list->page.more;
    SRV_LOOK(look, list->page.request->server->catalog, err);
    while (!*more) {
        size_t wanted = seen ? ROWS_AT_ONCE : list->page.limit + 1;
        SRV_GET(run_names, names,
                srv_runs_page(look.tx, list->project, &list->after, wanted, &names, err));
        for (size_t i = 0; i < names.count && !*more; i++) {
            CAIRN_TRY(add_run(look.tx, list, &names.names[i], err));
            if (!*more) list->after = names.names[i];
        }
        seen += names.count;
        if (names.count < wanted) break; /* the last ones */
        *more |= seen >= ROWS_MAX;
    }
    snprintf(list->page.place, sizeof(list->page.place), "%s/%s", list->after.project,
             list->after.run);
    return CAIRN_OK;
}

static enum cairn_code read_cursor(const char *text, struct cairn_run_name *ret,
                                   struct cairn_error *err) {
    size_t size = strcspn(text, "/");
    if (!text[0]) return CAIRN_OK;
    if (!text[size] || size >= sizeof(ret->project))
        return cairn_fail(err, CAIRN_INVALID, "cursor is not one that this server gave out");
    snprintf(ret->project, sizeof(ret->project), "%.*s", (int)size, text);
    snprintf(ret->run, sizeof(ret->run), "%.*s", CAIRN_NAME_BYTES_MAX, text + size + 1);
    return CAIRN_OK;
}

static enum cairn_code serve_list(struct run_list *list, const struct srv_request *request,
                                  struct srv_reply *reply, struct cairn_error *err) {
    CAIRN_TRY(srv_list_open(request, &list->page, err));
    CAIRN_TRY(read_cursor(list->page.after, &list->after, err));
    const char *labels = cairn_query_get(&request->query, "l");
    if (labels) CAIRN_TRY(cairn_selector_parse(cairn_view_of(labels), &list->selector, err));
    const char *project = cairn_query_get(&request->query, "project");
    if (project && !cairn_name_valid(cairn_view_of(project)))
        return cairn_fail(err, CAIRN_INVALID, "project: " CAIRN_NAME_WANTED);
    snprintf(list->project, sizeof(list->project), "%s", project ? project : "");
    CAIRN_TRY(list_runs(list, err));
    return srv_list_reply(&list->page, reply, err);
}

SRV_HANDLER(run_list) {
    CAIRN_TRY(srv_thawed(request->server, err));
    struct run_list list = {.project = ""};
    enum cairn_code code = serve_list(&list, request, reply, err);
    srv_list_release(&list.page);
    return code;
}

/* ---- GET {C}/lineage: a version's ancestors, attempt by attempt and across runs ---- */

/* P16: the chain ends before a project that the caller may not read. */
static void cut_at_hidden(const struct srv_caller *caller, json_t *items, bool *ret_more) {
    for (size_t i = 0; i < json_array_size(items); i++) {
        const char *project =
            json_string_value(json_object_get(json_array_get(items, i), "project"));
        if (!project || !project[0] || srv_caller_may(caller, CAIRN_SCOPE_READ, project)) continue;
        while (json_array_size(items) > i)
            (void)json_array_remove(items, json_array_size(items) - 1);
        *ret_more = true;
    }
}

SRV_HANDLER(lineage) {
    CAIRN_TRY(srv_thawed(request->server, err));
    struct srv_ref ref = {&request->params.run_name, request->params.ref, true};
    CAIRN_AUTO_JSON json_t *items = NULL;
    bool more = false;
    {
        SRV_LOOK(look, request->server->catalog, err);
        SRV_GET(version, version, srv_version_find(look.tx, &ref, &version, err));
        CAIRN_TRY(srv_lineage(look.tx, &version, &items, &more, err));
    }
    cut_at_hidden(&request->caller, items, &more);
    return srv_reply_json(reply, 200, CAIRN_PACK(lineage, .items = items, .more = more), err);
}
