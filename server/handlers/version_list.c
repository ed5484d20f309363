/* SPDX-License-Identifier: Apache-2.0 */
/* GET {R}/checkpoints: a page of a run's versions, in the order of Q25, by any filter. What state
 * means is the statement's; the other filters are asked of each row, of ROWS_MAX rows at most, and
 * the cursor says where the next page looks on. */
#include <inttypes.h>
#include <stdio.h>

#include "api/selector.h"
#include "common/text.h"
#include "server/catalog/version_lists.h"
#include "server/handlers/versions_json.h"
#include "store/time.h"

#define ROWS_MAX 10000 /* that one request looks at */
#define ROWS_AT_ONCE 200

struct filter {
    struct cairn_selector labels;
    uint64_t step_ge, step_lt, attempt;
    bool of_attempt, by_trash, trashed;
    int64_t since_ms;
};
struct list {
    struct cairn_srv_request *request;
    uint64_t limit;
    int64_t state; /* -1: all but gone */
    bool rising;
    struct filter filter;
    uint64_t attempt, step, n; /* of the last row, or of the cursor, else before the first */
    uint64_t rows;             /* seen of this chunk */
    bool full;                 /* the page; there is at least one more */
    json_t *items;
    struct cairn_srv_newest newest;
};

static enum cairn_code is_wanted(const struct filter *filter,
                                 const struct cairn_srv_version *version, bool *ret,
                                 struct cairn_error *err) {
    int64_t at_ms = version->committed_ms ? version->committed_ms : version->created_ms;
    *ret = version->step >= filter->step_ge && version->step < filter->step_lt &&
           at_ms >= filter->since_ms &&
           (!filter->of_attempt || version->attempt == filter->attempt) &&
           (!filter->by_trash || version->trashed == filter->trashed);
    if (!*ret || !filter->labels.count) return CAIRN_OK;
    CAIRN_AUTO_JSON json_t *labels = json_loads(version->labels, 0, NULL);
    if (!labels) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
    *ret = cairn_selector_matches(&filter->labels, labels);
    return CAIRN_OK;
}

static enum cairn_code add_item(struct cairn_srv_tx *tx, void *argument,
                                const struct cairn_srv_version *version, struct cairn_error *err) {
    struct list *list = argument;
    bool wanted = false;
    list->rows++;
    if (list->full) return CAIRN_OK;
    CAIRN_TRY(is_wanted(&list->filter, version, &wanted, err));
    if (wanted && json_array_size(list->items) == list->limit) {
        list->full = true;
        return CAIRN_OK;
    }
    list->attempt = version->attempt;
    list->step = version->step;
    list->n = version->n;
    if (!wanted) return CAIRN_OK;
    json_t *json = NULL;
    CAIRN_TRY(cairn_srv_version_json_among(tx, version, &list->newest, &json, err));
    if (json_array_append_new(list->items, json))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
    return CAIRN_OK;
}

static enum cairn_code look_at_list(struct cairn_srv_tx *tx, void *argument,
                                    struct cairn_error *err) {
    struct list *list = argument;
    CAIRN_AUTO(srv_run) run = {0};
    CAIRN_TRY(cairn_srv_run_get(tx, &list->request->params.run_name, &run, err));
    CAIRN_TRY(cairn_srv_latest_expect(tx, run.id, err));
    for (uint64_t seen = 0; seen < ROWS_MAX && !list->full; seen += list->rows) {
        /* One more than is wanted, to know of a next page. */
        struct cairn_srv_page page = {.run_id = run.id,
                                      .state = (int)list->state,
                                      .rising = list->rising,
                                      .attempt = list->attempt,
                                      .step = list->step,
                                      .n = list->n,
                                      .limit = list->limit + 1 - json_array_size(list->items)};
        if (seen) page.limit = cairn_max_u64(page.limit, ROWS_AT_ONCE);
        list->rows = 0;
        CAIRN_TRY(cairn_srv_versions_page(tx, &page, add_item, list, err));
        if (list->rows < page.limit && !list->full) return CAIRN_OK; /* that was all */
        if (seen + list->rows >= ROWS_MAX) list->full = true;
    }
    return CAIRN_OK;
}

/* ---- what is asked ---- */

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

static enum cairn_code parse_number(const struct cairn_query *query, const char *name,
                                    bool *ret_there, uint64_t *ret, struct cairn_error *err) {
    const char *text = cairn_query_get(query, name);
    if (ret_there) *ret_there = text != NULL;
    if (!text) return CAIRN_OK;
    enum cairn_code code = cairn_parse_u64(cairn_view_of(text), ret, err);
    return code ? cairn_within(err, code, "%s", name) : CAIRN_OK;
}

static enum cairn_code parse_filter(const struct cairn_query *query, struct filter *filter,
                                    struct cairn_error *err) {
    const char *labels = cairn_query_get(query, "l"), *since = cairn_query_get(query, "since");
    const char *trashed = cairn_query_get(query, "trashed");
    filter->step_lt = UINT64_MAX;
    filter->since_ms = INT64_MIN;
    CAIRN_TRY(parse_number(query, "step_ge", NULL, &filter->step_ge, err));
    CAIRN_TRY(parse_number(query, "step_lt", NULL, &filter->step_lt, err));
    CAIRN_TRY(parse_number(query, "attempt", &filter->of_attempt, &filter->attempt, err));
    if (since && cairn_s3_time_iso(since, &filter->since_ms, NULL))
        return cairn_fail(err, CAIRN_INVALID, "since: wanted a time as 2026-03-02T10:14:07Z");
    filter->by_trash = trashed != NULL;
    filter->trashed = trashed && !strcmp(trashed, "true");
    if (trashed && !filter->trashed && strcmp(trashed, "false"))
        return cairn_fail(err, CAIRN_INVALID, "trashed must be true or false, not \"%s\"", trashed);
    return labels ? cairn_selector_parse(cairn_view_of(labels), &filter->labels, err) : CAIRN_OK;
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
    CAIRN_TRY(parse_filter(query, &list->filter, err));
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
        return code;
    }
    char text[96];
    snprintf(text, sizeof(text), "%" PRIu64 ".%" PRIu64 ".%" PRIu64, list.attempt, list.step,
             list.n);
    return cairn_srv_reply_page(reply, list.items, list.full ? cairn_srv_cursor_write(text) : NULL,
                                err);
}
