/* SPDX-License-Identifier: Apache-2.0 */
/* Tags of answers, and who waits for another one. */
#include "server/handlers/changes.h"

#include <inttypes.h>
#include <stdio.h>
#include <strings.h>

#include "server/catalog/notify.h"
#include "server/feed.h"

/* Reads of one run whose every change has an event. A run's own row is none of them: it has ages,
 * so that it is another each second. */
static bool has_tag(const struct cairn_srv_request *request) {
    switch (request->route->id) {
    case CAIRN_ROUTE_CHECKPOINT_GET:
    case CAIRN_ROUTE_CHECKPOINT_LIST:
    case CAIRN_ROUTE_LINEAGE:
    case CAIRN_ROUTE_ALIAS_LIST:
    case CAIRN_ROUTE_ALIAS_GET:
    case CAIRN_ROUTE_RUN_RETENTION_GET:
        return true;
    default:
        return false;
    }
}

enum cairn_code cairn_srv_changes_check(const struct cairn_srv_request *request,
                                        struct cairn_error *err) {
    uint64_t until_ms = 0;
    if (!has_tag(request)) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_query_wait(request, &until_ms, err));
    bool other = request->route->id == CAIRN_ROUTE_CHECKPOINT_GET; /* it waits for its end, too */
    if (other || request->if_none_match[0] || !cairn_query_get(&request->query, "wait"))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "wait: for a change of what? Send the ETag of the answer that you have as "
                      "If-None-Match");
}

/* With its quotes, and without what says that it is weak. */
static const char *tag_of(struct cairn_srv_reply *reply) {
    for (size_t i = 0; i < reply->header_count; i++) {
        const char *value = reply->headers[i].value;
        if (strcasecmp(reply->headers[i].name, "ETag") != 0) continue;
        return value[0] == 'W' ? value + 2 : value;
    }
    const char *body = reply->body.data ? reply->body.data : "";
    cairn_srv_reply_header(reply, "ETag", "W/\"%016" PRIx64 "\"", cairn_srv_key_of(body));
    return reply->headers[reply->header_count - 1].value + 2;
}

static uint64_t key_of_events(const struct cairn_run_name *name) {
    char key[CAIRN_SRV_EVENTS_KEY_BYTES];
    snprintf(key, sizeof(key), "%s%s/%s", CAIRN_SRV_EVENTS_KEY, name->project, name->run);
    return cairn_srv_key_of(key);
}

enum cairn_code cairn_srv_changes_judge(const struct cairn_srv_request *request,
                                        struct cairn_srv_reply *reply, struct cairn_error *err) {
    uint64_t until_ms = 0;
    if (!has_tag(request) || reply->park) return CAIRN_OK;
    const char *tag = tag_of(reply);
    if (!cairn_srv_tag_listed(request->if_none_match, tag, true)) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_query_wait(request, &until_ms, err));
    if (until_ms) {
        reply->park = true;
        reply->park_key = key_of_events(&request->params.run_name);
        reply->park_until_ms = until_ms;
        return CAIRN_OK;
    }
    reply->status = 304;
    cairn_buf_clear(&reply->body);
    return CAIRN_OK;
}
