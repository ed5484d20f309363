/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/quotas, /v1/quota, /v1/projects/P/quota: what versions take up, and how much they may. */
#include "server/ledger/quotas.h"

#include "api/wire/messages.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/text.h"
#include "server/http/request.h"

struct call {
    struct cairn_srv_request *request;
    const struct cairn_srv_quota *quota; /* of a change; NULL: none any more */
    bool change;
    struct cairn_srv_project project; /* as it stands now */
    uint64_t limit;
    char after[CAIRN_NAME_BYTES_MAX + 1];
    size_t looked;
    json_t *items, *days;
};

static enum cairn_code days_of(struct cairn_srv_tx *tx, const char *project, json_t **ret,
                               struct cairn_error *err) {
    struct cairn_srv_usage_day days[CAIRN_SRV_USAGE_DAYS];
    size_t count = 0;
    CAIRN_AUTO_JSON json_t *list = json_array();
    if (project[0]) CAIRN_TRY(cairn_srv_usage_days(tx, project, days, &count, err));
    for (size_t i = 0; i < count; i++) {
        char at[32];
        cairn_time_text(days[i].at_ms, true, at);
        if (json_array_append_new(list, CAIRN_PACK(usage_day, .at = at,
                                                   .versions = days[i].used.versions,
                                                   .bytes = days[i].used.bytes)))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the days of a project");
    }
    *ret = CAIRN_TAKE(list);
    return CAIRN_OK;
}

/* Of the default of all: nothing is used, and it has no name. */
static json_t *row_json(const struct cairn_srv_project *one, json_t *days) {
    static const char *const scopes[] = {"run", "project", "server"};
    bool named = one->name[0] != '\0';
    return CAIRN_PACK(quota_row, .project = named ? one->name : NULL,
                      .limit_versions = one->quota.versions,
                      .used_versions = named ? one->used.versions : CAIRN_MESSAGE_NONE,
                      .limit_bytes = one->quota.bytes,
                      .used_bytes = named ? one->used.bytes : CAIRN_MESSAGE_NONE, .days = days,
                      .from = one->scope < CAIRN_SRV_SCOPE_NONE ? scopes[one->scope] : NULL);
}

static enum cairn_code look(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct call *call = argument;
    struct cairn_srv_project *one = &call->project;
    const char *project = call->request->params.run_name.project;
    (void)cairn_text_copy(one->name, sizeof(one->name), project);
    if (call->change) CAIRN_TRY(cairn_srv_quota_put(tx, project, call->quota, err));
    CAIRN_TRY(cairn_srv_quota_get(tx, project, &one->quota, &one->scope, err));
    CAIRN_TRY(cairn_srv_usage_get(tx, project, &one->used, err));
    json_decref(call->days);
    call->days = NULL;
    return days_of(tx, project, &call->days, err);
}

/* Who is bound to some projects does not say how much of the store is theirs. */
static enum cairn_code may_change(const struct cairn_srv_request *request,
                                  struct cairn_error *err) {
    const struct cairn_srv_caller *caller = &request->caller;
    if (caller->kind == CAIRN_SRV_EVERYBODY || !strcmp(caller->projects, "*")) return CAIRN_OK;
    return cairn_fail(err, CAIRN_FORBIDDEN,
                      "a quota is set with a token for all projects; %s is bound to %s",
                      caller->who, caller->projects);
}

static enum cairn_code serve(struct call *call, struct cairn_srv_reply *reply,
                             struct cairn_error *err) {
    struct cairn_srv *server = call->request->server;
    CAIRN_TRY(cairn_srv_thawed(server, err));
    if (call->change) CAIRN_TRY(may_change(call->request, err));
    enum cairn_code code = call->change
                               ? cairn_srv_catalog_write(server->catalog, look, call, err)
                               : cairn_srv_catalog_read(server->catalog, look, call, err);
    CAIRN_AUTO_JSON json_t *days = call->days;
    if (code) return code;
    if (call->change)
        cairn_log(INFO, "quota.changed", "project=\"%s\" set=%d", call->project.name,
                  call->quota != NULL);
    return cairn_srv_reply_json(reply, 200, row_json(&call->project, days), err);
}

static enum cairn_code get(struct cairn_srv_request *request, struct cairn_srv_reply *reply,
                           struct cairn_error *err) {
    struct call call = {.request = request};
    return serve(&call, reply, err);
}

static enum cairn_code put(struct cairn_srv_request *request, struct cairn_srv_reply *reply,
                           struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *body = NULL;
    struct cairn_msg_quota_put said = {CAIRN_MESSAGE_NONE, CAIRN_MESSAGE_NONE}; /* as of null */
    CAIRN_TRY(cairn_srv_body(request, 10, &body, err));
    CAIRN_TRY(cairn_msg_quota_put_read(body, "", &said, err));
    if (said.versions == CAIRN_MESSAGE_NONE && said.bytes == CAIRN_MESSAGE_NONE)
        return cairn_fail(err, CAIRN_INVALID,
                          "name /versions, /bytes or both; DELETE takes a quota away");
    struct cairn_srv_quota quota = {said.versions, said.bytes};
    struct call call = {.request = request, .quota = &quota, .change = true};
    return serve(&call, reply, err);
}

static enum cairn_code drop(struct cairn_srv_request *request, struct cairn_srv_reply *reply,
                            struct cairn_error *err) {
    struct call call = {.request = request, .change = true};
    return serve(&call, reply, err);
}

#define HANDLER(name, what)                                                                        \
    enum cairn_code cairn_srv_on_##name(struct cairn_srv_request *request,                         \
                                        struct cairn_srv_reply *reply, struct cairn_error *err) {  \
        return what(request, reply, err);                                                          \
    }
HANDLER(project_quota_get, get)
HANDLER(project_quota_put, put)
HANDLER(project_quota_delete, drop)
HANDLER(quota_get, get)
HANDLER(quota_put, put)
HANDLER(quota_delete, drop)

/* ---- GET /v1/quotas ---- */

/* Rows of others are passed over, so a page may be short and have a next one. */
static enum cairn_code add_row(const struct cairn_srv_project *one, void *owner,
                               struct cairn_error *err) {
    struct call *call = owner;
    CAIRN_AUTO_JSON json_t *none = json_array(); /* their days are looked up behind the list */
    call->looked++;
    (void)cairn_text_copy(call->project.name, sizeof(call->project.name), one->name);
    if (!cairn_srv_caller_may(&call->request->caller, CAIRN_SCOPE_READ, one->name) ||
        !json_array_append_new(call->items, row_json(one, none)))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
}

static enum cairn_code list(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct call *call = argument;
    json_array_clear(call->items);
    call->looked = 0;
    CAIRN_TRY(cairn_srv_projects_each(tx, call->after, call->limit, add_row, call, err));
    for (size_t i = 0; i < json_array_size(call->items); i++) {
        json_t *row = json_array_get(call->items, i), *days = NULL;
        CAIRN_TRY(days_of(tx, json_string_value(json_object_get(row, "project")), &days, err));
        if (json_object_set_new(row, "days", days))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_on_quota_list(struct cairn_srv_request *request,
                                        struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct call call = {.request = request};
    json_t *next = NULL;
    CAIRN_TRY(cairn_srv_query_limit(request, &call.limit, err));
    CAIRN_TRY(cairn_srv_cursor_read(request, call.after, sizeof(call.after), err));
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    call.items = json_array();
    enum cairn_code code = cairn_srv_catalog_read(request->server->catalog, list, &call, err);
    if (code) json_decref(call.items);
    if (code) return code;
    if (call.looked == call.limit)
        next = cairn_srv_cursor_write(request->server, call.project.name);
    return cairn_srv_reply_page(reply, call.items, next, err);
}
