/* SPDX-License-Identifier: Apache-2.0 */
/* Tags of answers, and who waits for another one. */
#include "server/versions/changes.h"

#include <inttypes.h>
#include <stdio.h>
#include <strings.h>

#include "server/db/catalog.h"
#include "server/events/feed.h"

#define LOOK_AGAIN_MS 1000

/* What moves with the clock alone: no answer is another one for it. */
static const char *const ages[] = {
    "age_ms",   "expires_s", "idle_s",         "last_commit_age_s",
    "heard_at", "silent_ms", "nodes_silent_ms"};

static bool looks(const struct cairn_srv_request *request) {
    return request->route->wait == CAIRN_WAIT_LOOK;
}

static bool has_tag(const struct cairn_srv_request *request) {
    return request->route->wait == CAIRN_WAIT_EVENT || looks(request);
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

/* Of a text in JSON, from its first quote on: where it ends. */
static const char *end_of_text(const char *at) {
    for (at++; *at && *at != '"'; at++)
        if (*at == '\\' && at[1]) at++;
    return *at ? at + 1 : at;
}

static bool is_age(const char *key, const char *end) {
    if (*end != ':') return false; /* a value */
    size_t size = (size_t)(end - key) - 2;
    for (size_t i = 0; i < CAIRN_COUNT(ages); i++)
        if (strlen(ages[i]) == size && !memcmp(ages[i], key + 1, size)) return true;
    return false;
}

/* The body as the server writes it, without the values of its ages. */
static enum cairn_code drop_ages(const char *body, struct cairn_buf *ret, struct cairn_error *err) {
    const char *from = body;
    for (const char *at = body; *at;) {
        if (*at != '"') {
            at++;
            continue;
        }
        const char *end = end_of_text(at);
        bool age = is_age(at, end);
        at = end;
        if (!age) continue;
        CAIRN_TRY(cairn_buf_append(ret, from, (size_t)(at - from), err));
        at++;
        at = *at == '"' ? end_of_text(at) : at + strcspn(at, ",}");
        from = at;
    }
    return cairn_buf_append_text(ret, from, err);
}

static enum cairn_code key_of_body(const struct cairn_srv_request *request,
                                   const struct cairn_srv_reply *reply, uint64_t *ret,
                                   struct cairn_error *err) {
    const char *body = reply->body.data ? reply->body.data : "";
    CAIRN_AUTO(buf) text = {.limit = reply->body.size + 1};
    if (looks(request)) CAIRN_TRY(drop_ages(body, &text, err));
    *ret = cairn_srv_key_of(looks(request) ? text.data : body);
    return CAIRN_OK;
}

static struct cairn_srv_header *tag_header(struct cairn_srv_reply *reply) {
    for (size_t i = 0; i < reply->header_count; i++)
        if (!strcasecmp(reply->headers[i].name, "ETag")) return &reply->headers[i];
    return NULL;
}

/* *ret with its quotes, and without what says that it is weak. A handler's tag may be that of what
 * people change alone (a run's labels and note): then what else has changed is said behind it. */
static enum cairn_code tag_of(const struct cairn_srv_request *request,
                              struct cairn_srv_reply *reply, const char **ret,
                              struct cairn_error *err) {
    struct cairn_srv_header *header = tag_header(reply);
    uint64_t key = 0;
    if (!header || looks(request)) CAIRN_TRY(key_of_body(request, reply, &key, err));
    if (!header) {
        cairn_srv_reply_header(reply, "ETag", "W/\"%016" PRIx64 "\"", key);
        header = tag_header(reply);
    } else if (looks(request)) {
        size_t size = strlen(header->value);
        CAIRN_ASSERT(size > 1);
        snprintf(header->value + size - 1, sizeof(header->value) - size + 1, ".%016" PRIx64 "\"",
                 key);
    }
    *ret = header->value[0] == 'W' ? header->value + 2 : header->value;
    return CAIRN_OK;
}

/* Of what belongs to no run any event may be the one. */
static uint64_t key_of_events(const struct cairn_run_name *name) {
    char key[CAIRN_SRV_EVENTS_KEY_BYTES];
    cairn_srv_events_key_of_run(name, key);
    return cairn_srv_key_of(key);
}

enum cairn_code cairn_srv_changes_judge(const struct cairn_srv_request *request,
                                        struct cairn_srv_reply *reply, struct cairn_error *err) {
    uint64_t until_ms = 0;
    const char *tag = NULL;
    if (!has_tag(request) || reply->park) return CAIRN_OK;
    CAIRN_TRY(tag_of(request, reply, &tag, err));
    if (!cairn_srv_tag_listed(request->if_none_match, tag, true)) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_query_wait(request, &until_ms, err));
    if (until_ms) {
        reply->park = true;
        reply->rung = !looks(request);
        reply->park_key = key_of_events(&request->params.run_name);
        reply->park_until_ms = until_ms;
        if (looks(request))
            reply->park_until_ms = cairn_min_u64(
                until_ms, cairn_srv_mono_ms(request->server) + LOOK_AGAIN_MS);
        return CAIRN_OK;
    }
    reply->status = 304;
    cairn_buf_clear(&reply->body);
    return CAIRN_OK;
}
