/* SPDX-License-Identifier: Apache-2.0 */
/* GET {C} with its long poll, and GET {R}/checkpoints: what versions there are (Q24, Q25). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/text.h"
#include "server/catalog/version_lists.h"
#include "server/handlers/saves.h"
#include "server/handlers/versions_json.h"
#include "server/jobs/jobs.h"
#include "server/waiters.h"

struct shown {
    struct cairn_srv_request *request;
    struct cairn_srv_version version;
    json_t *json;
};

static enum cairn_code look(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct shown *shown = argument;
    struct cairn_srv_ref ref = {&shown->request->params.run_name, shown->request->params.ref,
                                false};
    CAIRN_TRY(cairn_srv_version_find(tx, &ref, &shown->version, err));
    CAIRN_TRY(cairn_srv_version_there(&shown->version, err));
    return cairn_srv_version_json(tx, &shown->version, &shown->json, err);
}

/* ?wait=30s&for=committed: still to be waited for? */
static enum cairn_code must_wait(const struct cairn_srv_request *request,
                                 const struct cairn_srv_version *version, uint64_t *ret_until_ms,
                                 struct cairn_error *err) {
    const char *wait = cairn_query_get(&request->query, "wait");
    const char *what = cairn_query_get(&request->query, "for");
    if (what && strcmp(what, "committed"))
        return cairn_fail(err, CAIRN_INVALID, "for=%s: only committed can be waited for", what);
    uint64_t wait_ms = 0;
    enum cairn_code code =
        wait ? cairn_parse_duration(cairn_view_of(wait), &wait_ms, err) : CAIRN_OK;
    if (code) return cairn_within(err, code, "wait");
    if (cairn_srv_version_shown(version) != CAIRN_STATE_OPEN) return CAIRN_OK;
    uint64_t until_ms = request->arrived_ms + cairn_min_u64(wait_ms, CAIRN_WAIT_MS_MAX);
    if (wait_ms && cairn_srv_mono_ms(request->server) < until_ms) *ret_until_ms = until_ms;
    return CAIRN_OK;
}

static enum cairn_code serve(struct shown *shown, struct cairn_srv_reply *reply,
                             struct cairn_error *err) {
    struct cairn_srv_request *request = shown->request;
    if (!cairn_version_id_valid(cairn_view_of(request->params.ref)))
        CAIRN_TRY(cairn_srv_thawed(request->server, err));
    CAIRN_TRY(cairn_srv_catalog_read(request->server->catalog, look, shown, err));
    /* Q24: a question about a version has its missing record written. */
    if (shown->version.state == CAIRN_STATE_COMMITTED && !shown->version.recorded)
        cairn_srv_jobs_commit(request->server, shown->version.id.text);
    uint64_t until_ms = 0;
    CAIRN_TRY(must_wait(request, &shown->version, &until_ms, err));
    if (until_ms) {
        reply->park = true;
        reply->park_key = cairn_srv_key_of(shown->version.id.text);
        reply->park_until_ms = until_ms;
        return CAIRN_OK;
    }
    CAIRN_TRY(cairn_srv_reply_json(reply, 200, CAIRN_TAKE(shown->json), err));
    uint64_t mark = cairn_srv_key_of(reply->body.data);
    char tag[40];
    snprintf(tag, sizeof(tag), "\"%016" PRIx64 "\"", mark);
    cairn_srv_reply_header(reply, "ETag", "%s", tag);
    cairn_srv_reply_header(reply, "Cache-Control", "private, no-cache"); /* its state changes */
    if (cairn_srv_tag_listed(request->if_none_match, tag, true)) {
        reply->status = 304;
        cairn_buf_clear(&reply->body);
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_on_checkpoint_get(struct cairn_srv_request *request,
                                            struct cairn_srv_reply *reply,
                                            struct cairn_error *err) {
    struct shown shown = {.request = request};
    enum cairn_code code = serve(&shown, reply, err);
    cairn_srv_version_release(&shown.version);
    json_decref(shown.json);
    return code;
}

/* ---- the list ---- */

struct list {
    struct cairn_srv_request *request;
    uint64_t limit;
    int64_t state; /* -1: all but gone */
    bool rising;
    uint64_t attempt, step, n; /* of the cursor, else before the first */
    json_t *items, *next;
};

static enum cairn_code add_item(struct cairn_srv_tx *tx, void *argument,
                                const struct cairn_srv_version *version, struct cairn_error *err) {
    struct list *list = argument;
    if (json_array_size(list->items) == list->limit) {
        char text[96];
        snprintf(text, sizeof(text), "%" PRIu64 ".%" PRIu64 ".%" PRIu64, list->attempt, list->step,
                 list->n);
        list->next = cairn_srv_cursor_write(text);
        return CAIRN_OK;
    }
    list->attempt = version->attempt;
    list->step = version->step;
    list->n = version->n;
    json_t *json = NULL;
    CAIRN_TRY(cairn_srv_version_json(tx, version, &json, err));
    if (json_array_append_new(list->items, json))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
    return CAIRN_OK;
}

static enum cairn_code look_at_list(struct cairn_srv_tx *tx, void *argument,
                                    struct cairn_error *err) {
    struct list *list = argument;
    CAIRN_AUTO(srv_run) run = {0};
    CAIRN_TRY(cairn_srv_run_get(tx, &list->request->params.run_name, &run, err));
    struct cairn_srv_page page = {.run_id = run.id,
                                  .state = (int)list->state,
                                  .rising = list->rising,
                                  .attempt = list->attempt,
                                  .step = list->step,
                                  .n = list->n,
                                  .limit = list->limit + 1}; /* to know of a next page */
    return cairn_srv_versions_page(tx, &page, add_item, list, err);
}

static enum cairn_code parse_cursor(struct list *list, struct cairn_error *err) {
    char text[96];
    CAIRN_TRY(cairn_srv_cursor_read(list->request, text, sizeof(text), err));
    if (!list->rising) list->attempt = list->step = list->n = INT64_MAX;
    if (!text[0]) return CAIRN_OK;
    uint64_t *numbers[] = {&list->attempt, &list->step, &list->n};
    const char *at = text;
    for (size_t i = 0; i < CAIRN_COUNT(numbers); i++) {
        size_t size = strcspn(at, ".");
        if (cairn_parse_u64((struct cairn_view){at, size}, numbers[i], NULL))
            return cairn_fail(err, CAIRN_INVALID, "cursor is not one that this server gave out");
        at += size + (at[size] == '.');
    }
    return CAIRN_OK;
}

static enum cairn_code parse_list(struct list *list, struct cairn_error *err) {
    const struct cairn_query *query = &list->request->query;
    CAIRN_TRY(cairn_srv_query_limit(list->request, &list->limit, err));
    const char *order = cairn_query_get(query, "order"), *state = cairn_query_get(query, "state");
    if (order && strcmp(order, "-step") && strcmp(order, "step"))
        return cairn_fail(err, CAIRN_INVALID, "order must be step or -step, not %s", order);
    list->rising = order && order[0] != '-';
    enum cairn_state value = CAIRN_STATE_OPEN;
    if (state && !cairn_state_parse(cairn_view_of(state), &value))
        return cairn_fail(err, CAIRN_INVALID,
                          "state must be open, committed, deleting, aborting or gone, not \"%s\"",
                          state);
    list->state = state ? (int64_t)value : -1;
    return parse_cursor(list, err);
}

enum cairn_code cairn_srv_on_checkpoint_list(struct cairn_srv_request *request,
                                             struct cairn_srv_reply *reply,
                                             struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    struct list list = {.request = request};
    CAIRN_TRY(parse_list(&list, err));
    list.items = json_array();
    enum cairn_code code =
        cairn_srv_catalog_read(request->server->catalog, look_at_list, &list, err);
    if (code) {
        json_decref(list.items);
        json_decref(list.next);
        return code;
    }
    return cairn_srv_reply_json(
        reply, 200, json_pack("{s:o, s:o?}", "items", list.items, "next_cursor", list.next), err);
}
