/* SPDX-License-Identifier: Apache-2.0 */
/* GET {R}/checkpoints: a page of a run's versions, by attempt or by step, by any filter.
 * What state means is the statement's; what other filters say of the order is jumped to
 * (version_filter.h), and the rest is asked of each row, of so many that a page costs about what
 * one without a filter does. The cursor says where the next page looks on. */
#include <inttypes.h>
#include <stdio.h>

#include "common/text.h"
#include "server/versions/version_filter.h"
#include "server/versions/versions_json.h"

/* What one request looks at, in rows; a statement of its own costs as much as some of them. */
#define COST_MAX 3000
#define COST_OF_A_LOOK 20
#define ROWS_FIRST 64 /* of a look, then more: where there is much to jump over few are needed */
#define ROWS_AT_ONCE 2048
#define TEXTS_BYTES_MAX (4 * CAIRN_MIB) /* of a page; one more version may go beyond it */

struct list {
    struct cairn_srv_request *request;
    uint64_t limit;
    bool rising;
    struct cairn_srv_version_filter filter;
    struct cairn_srv_version_place begin; /* of the cursor, else before all */
    struct cairn_srv_version_place place; /* of the last row, or where to look on */
    bool full;                            /* the page; there may be at least one more */
    bool elsewhere;                       /* the last look ended at a row to jump from */
    uint64_t cost, rows;                  /* of this page; of the last look */
    uint64_t texts_bytes;                 /* of what people said of its versions */
    struct cairn_srv_ids wanted;
    json_t *items;
    struct cairn_srv_newest newest;
};

/* ---- without filters: whole rows at once ---- */

/* A thousand versions of 64 KiB of meta and as much of labels would be an answer of 128 MiB, and
 * some times that while it is made. */
static uint64_t texts_of(const struct cairn_srv_version *version) {
    const char *const texts[] = {version->labels, version->meta, version->metrics,
                                 version->warnings, version->note};
    uint64_t bytes = 0;
    for (size_t i = 0; i < CAIRN_COUNT(texts); i++)
        if (texts[i]) bytes += strlen(texts[i]);
    return bytes;
}

static enum cairn_code add_item(struct cairn_srv_tx *tx, void *argument,
                                const struct cairn_srv_version *version, struct cairn_error *err) {
    struct list *list = argument;
    json_t *json = NULL;
    list->full = json_array_size(list->items) == list->limit ||
                 list->texts_bytes >= TEXTS_BYTES_MAX;
    if (list->full) return CAIRN_OK;
    list->texts_bytes += texts_of(version);
    list->place = (struct cairn_srv_version_place){version->attempt, version->step, version->n};
    CAIRN_TRY(cairn_srv_version_json_among(tx, version, &list->newest, &json, err));
    if (json_array_append_new(list->items, json))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
    return CAIRN_OK;
}

static struct cairn_srv_page page_of(const struct list *list, int64_t run_id, uint64_t limit) {
    return (struct cairn_srv_page){.run_id = run_id,
                                   .state = (int)list->filter.state,
                                   .rising = list->rising,
                                   .by_step = list->filter.by_step,
                                   .place = list->place,
                                   .limit = limit};
}

/* ---- with filters: which rows, then these ---- */

static enum cairn_code judge(void *argument, const struct cairn_srv_version_brief *row,
                             bool *ret_go_on, struct cairn_error *err) {
    struct list *list = argument;
    enum cairn_srv_wanted wanted = CAIRN_SRV_UNWANTED;
    struct cairn_version_id id;
    uint64_t cost = 0;
    CAIRN_TRY(cairn_srv_version_filter_wants(&list->filter, row, &wanted, &cost, err));
    list->rows++;
    list->cost += cost;
    list->elsewhere = wanted == CAIRN_SRV_ELSEWHERE;
    list->full = wanted == CAIRN_SRV_WANTED && list->wanted.count == list->limit;
    *ret_go_on = !list->elsewhere && !list->full && list->cost < COST_MAX;
    if (list->full) return CAIRN_OK;
    list->place = row->place;
    if (wanted != CAIRN_SRV_WANTED) return CAIRN_OK;
    (void)cairn_text_copy(id.text, sizeof(id.text), row->id);
    return cairn_srv_ids_add(&list->wanted, &id, err);
}

static enum cairn_srv_trash trash_of(const struct cairn_srv_version_filter *filter) {
    if (!filter->by_trash) return CAIRN_SRV_TRASH_OR_NOT;
    return filter->trashed ? CAIRN_SRV_TRASH_ONLY : CAIRN_SRV_TRASH_NOT;
}

static enum cairn_code find_wanted(struct cairn_srv_tx *tx, struct list *list, int64_t run_id,
                                   struct cairn_error *err) {
    uint64_t some = ROWS_FIRST;
    for (;;) {
        if (!cairn_srv_version_filter_jump(&list->filter, list->rising, &list->place))
            return CAIRN_OK;
        list->full = list->cost >= COST_MAX;
        if (list->full) return CAIRN_OK;
        struct cairn_srv_page page = page_of(list, run_id, some);
        list->rows = 0;
        list->elsewhere = false;
        list->cost += COST_OF_A_LOOK;
        CAIRN_TRY(cairn_srv_versions_scan(tx, &page, trash_of(&list->filter), judge, list, err));
        if (list->full) return CAIRN_OK;
        some = list->elsewhere ? ROWS_FIRST : cairn_min_u64(4 * some, ROWS_AT_ONCE);
        if (!list->elsewhere && list->cost < COST_MAX && list->rows < page.limit)
            return CAIRN_OK; /* that was all */
    }
}

static enum cairn_code add_wanted(struct cairn_srv_tx *tx, struct list *list,
                                  struct cairn_error *err) {
    struct cairn_srv_version_place place = list->place;
    bool full = list->full;
    for (size_t i = 0; i < list->wanted.count; i++)
        CAIRN_TRY(cairn_srv_version_expect(tx, list->wanted.ids[i].text, err));
    for (size_t i = 0; i < list->wanted.count; i++) {
        CAIRN_AUTO(srv_version) version = {0};
        CAIRN_TRY(cairn_srv_version_get(tx, list->wanted.ids[i].text, &version, err));
        CAIRN_TRY(add_item(tx, list, &version, err));
        if (list->full) return CAIRN_OK; /* the next page begins behind the version before */
    }
    list->place = place;
    list->full = full;
    return CAIRN_OK;
}

static enum cairn_code look_at_list(struct cairn_srv_tx *tx, void *argument,
                                    struct cairn_error *err) {
    struct list *list = argument;
    CAIRN_AUTO(srv_run) run = {0};
    json_array_clear(list->items); /* a look may be made again */
    list->place = list->begin;
    list->wanted.count = 0;
    list->cost = list->texts_bytes = 0;
    list->full = false;
    CAIRN_TRY(cairn_srv_run_get(tx, &list->request->params.run_name, &run, err));
    CAIRN_TRY(cairn_srv_latest_expect(tx, run.id, err));
    if (cairn_srv_version_filter_narrows(&list->filter)) {
        CAIRN_TRY(find_wanted(tx, list, run.id, err));
        return add_wanted(tx, list, err);
    }
    struct cairn_srv_page page = page_of(list, run.id, list->limit + 1); /* is there a next one? */
    return cairn_srv_versions_page(tx, &page, add_item, list, err);
}

/* ---- what is asked ---- */

static enum cairn_code parse_cursor(struct list *list, struct cairn_error *err) {
    char text[96];
    CAIRN_TRY(cairn_srv_cursor_read(list->request, text, sizeof(text), err));
    uint64_t before = list->rising ? 0 : INT64_MAX;
    list->begin = (struct cairn_srv_version_place){before, before, before};
    if (!text[0]) return CAIRN_OK;
    uint64_t *numbers[] = {&list->begin.attempt, &list->begin.step, &list->begin.n};
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
    const char *order = cairn_query_get(query, "order");
    const char *by = order ? order + (order[0] == '-') : "attempt";
    if (strcmp(by, "step") != 0 && strcmp(by, "attempt") != 0)
        return cairn_fail(err, CAIRN_INVALID,
                          "order must be step, -step, attempt or -attempt, not %s", order);
    list->rising = order && order[0] != '-';
    CAIRN_TRY(cairn_srv_version_filter_parse(query, &list->filter, err));
    list->filter.by_step = !strcmp(by, "step");
    return parse_cursor(list, err);
}

static enum cairn_code answer(struct list *list, struct cairn_srv_reply *reply,
                              struct cairn_error *err) {
    const struct cairn_srv_version_place *place = &list->place;
    char text[96];
    list->items = json_array();
    CAIRN_TRY(cairn_srv_catalog_read(list->request->server->catalog, look_at_list, list, err));
    snprintf(text, sizeof(text), "%" PRIu64 ".%" PRIu64 ".%" PRIu64, place->attempt, place->step,
             place->n);
    json_t *next = list->full ? cairn_srv_cursor_write(list->request->server, text) : NULL;
    return cairn_srv_reply_page(reply, CAIRN_TAKE(list->items), next, err);
}

enum cairn_code cairn_srv_on_checkpoint_list(struct cairn_srv_request *request,
                                             struct cairn_srv_reply *reply,
                                             struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    struct list list = {.request = request};
    enum cairn_code code = parse_list(&list, err);
    if (!code) code = answer(&list, reply, err);
    json_decref(list.items);
    cairn_srv_ids_release(&list.wanted);
    cairn_srv_version_filter_release(&list.filter);
    return code;
}
