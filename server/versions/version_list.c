/* SPDX-License-Identifier: Apache-2.0 */
/* GET {R}/checkpoints: a page of a run's versions, by attempt or by step, with filters. A list of a
 * million versions is read in index order: SQL filters by state, jumps cover filters on the order,
 * and the others are evaluated for each row, of at most COST_MAX, so a filtered page costs about as
 * much as an unfiltered one. The cursor says where the next page goes on. */
#include "server/versions/inside.h"

#include <inttypes.h>
#include <stdio.h>

#include "server/versions/versions.h"
#include "store/time.h"

#define MOST INT64_MAX /* the largest number in the catalog */
#define COST_OF_LABELS 4

void srv_version_filter_release(struct srv_version_filter *filter) {
    cairn_buf_release(&filter->seen_labels);
}

/* ---- filters: parsing ---- */

static enum cairn_code parse_number(const struct cairn_query *query, const char *name,
                                    bool *ret_there, uint64_t *ret, struct cairn_error *err) {
    const char *text = cairn_query_get(query, name);
    if (ret_there) *ret_there = text != NULL;
    if (!text) return CAIRN_OK;
    enum cairn_code code = cairn_parse_u64(cairn_view_of(text), ret, err);
    return code ? cairn_within(err, code, "%s", name) : CAIRN_OK;
}

static enum cairn_code parse_state(const char *text, int64_t *ret, struct cairn_error *err) {
    enum cairn_state value = CAIRN_STATE_OPEN;
    *ret = -1;
    if (!text) return CAIRN_OK;
    if (!cairn_state_parse(cairn_view_of(text), &value))
        return cairn_fail(err, CAIRN_INVALID,
                          "state must be open, committed, deleting, aborting or gone, not \"%s\"",
                          text);
    *ret = (int64_t)value;
    return CAIRN_OK;
}

static enum cairn_code parse_filter(const struct cairn_query *query,
                                    struct srv_version_filter *filter, struct cairn_error *err) {
    const char *labels = cairn_query_get(query, "l"), *since = cairn_query_get(query, "since");
    const char *trashed = cairn_query_get(query, "trashed");
    filter->step_lt = UINT64_MAX;
    filter->since_ms = INT64_MIN;
    CAIRN_TRY(parse_state(cairn_query_get(query, "state"), &filter->state, err));
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

static bool has_steps(const struct srv_version_filter *filter) {
    return filter->step_ge || filter->step_lt <= MOST;
}

/* Has filters besides the state, or another order? */
static bool is_narrowed(const struct srv_version_filter *filter) {
    return filter->labels.count || has_steps(filter) || filter->of_attempt || filter->by_trash ||
           filter->since_ms != INT64_MIN || filter->by_step;
}

/* ---- filters: does a row pass? ---- */

static enum cairn_code match_labels(struct srv_version_filter *filter, const char *text, bool *ret,
                                    uint64_t *ret_cost, struct cairn_error *err) {
    if (!filter->seen || strcmp(filter->seen_labels.data, text) != 0) {
        CAIRN_AUTO_JSON json_t *labels = json_loads(text, 0, NULL);
        if (!labels) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
        filter->seen = false;
        filter->seen_labels.size = 0;
        CAIRN_TRY(cairn_buf_append(&filter->seen_labels, text, strlen(text) + 1, err));
        filter->seen_matches = cairn_selector_matches(&filter->labels, labels);
        filter->seen = true;
        *ret_cost += COST_OF_LABELS;
    }
    *ret = filter->seen_matches;
    return CAIRN_OK;
}

enum cairn_code srv_version_filter_wants(struct srv_version_filter *filter,
                                         const struct srv_version_brief *row, enum srv_wanted *ret,
                                         uint64_t *ret_cost, struct cairn_error *err) {
    bool wanted = row->at_ms >= filter->since_ms &&
                  (filter->state < 0 || row->shown == (enum cairn_state)filter->state) &&
                  (!filter->by_trash || row->trashed == filter->trashed);
    bool elsewhere = row->place.step < filter->step_ge || row->place.step >= filter->step_lt ||
                     (filter->of_attempt && row->place.attempt != filter->attempt);
    *ret_cost = 1;
    *ret = elsewhere ? SRV_ELSEWHERE : SRV_UNWANTED;
    if (elsewhere || !wanted) return CAIRN_OK;
    if (filter->labels.count) CAIRN_TRY(match_labels(filter, row->labels, &wanted, ret_cost, err));
    if (wanted) *ret = SRV_WANTED;
    return CAIRN_OK;
}

/* ---- filters: jumps ---- */

static bool jump_falling(const struct srv_version_filter *filter, struct srv_version_place *place) {
    bool bounded = filter->step_lt <= MOST;
    uint64_t step = bounded ? filter->step_lt : MOST, n = bounded ? 0 : MOST;
    if (filter->of_attempt && place->attempt > filter->attempt)
        *place = (struct srv_version_place){filter->attempt, MOST, MOST};
    if (filter->of_attempt && place->attempt < filter->attempt) return false;
    if (!has_steps(filter)) return true;
    if (bounded && (place->step > step || (place->step == step && place->n > 0)))
        *place = (struct srv_version_place){place->attempt, step, 0};
    bool more = place->step > filter->step_ge || (place->step == filter->step_ge && place->n > 0);
    if (more) return true;
    if (filter->of_attempt || !place->attempt) return false;
    *place = (struct srv_version_place){place->attempt - 1, step, n};
    return filter->step_ge < filter->step_lt;
}

static bool jump_rising(const struct srv_version_filter *filter, struct srv_version_place *place) {
    if (filter->of_attempt && place->attempt > filter->attempt) return false;
    if (filter->of_attempt && place->attempt < filter->attempt && filter->attempt)
        *place = (struct srv_version_place){filter->attempt - 1, MOST, MOST};
    if (!has_steps(filter) || (place->step == MOST && place->n == MOST)) return true;
    if (filter->step_ge > MOST || filter->step_ge >= filter->step_lt) return false;
    if (place->step < filter->step_ge)
        *place = (struct srv_version_place){place->attempt, filter->step_ge - 1, MOST};
    if (place->step < filter->step_lt) return true;
    *place = (struct srv_version_place){place->attempt, MOST, MOST};
    return !filter->of_attempt || place->attempt < filter->attempt;
}

/* By step there is one range, of all attempts. */
static bool jump_steps(const struct srv_version_filter *filter, bool rising,
                       struct srv_version_place *place) {
    if (filter->step_ge > MOST || filter->step_ge >= filter->step_lt) return false;
    if (!rising && place->step >= filter->step_lt)
        *place = (struct srv_version_place){0, filter->step_lt, 0};
    if (rising && place->step < filter->step_ge)
        *place = (struct srv_version_place){MOST, filter->step_ge - 1, MOST};
    return rising ? place->step < filter->step_lt : place->step >= filter->step_ge;
}

bool srv_version_filter_jump(const struct srv_version_filter *filter, bool rising,
                             struct srv_version_place *place) {
    if (filter->by_step) return jump_steps(filter, rising, place);
    return rising ? jump_rising(filter, place) : jump_falling(filter, place);
}

/* ---- the list ---- */

/* Cost of one request, in rows; a statement costs as much as several rows. */
#define COST_MAX 3000
#define COST_OF_A_LOOK 20
#define COST_BY_STEP 4 /* of a row: versions of one step lie far apart in the catalog's file */
#define ROWS_FIRST 64  /* of a statement; more later: jumps need few rows */
#define ROWS_AT_ONCE 2048
#define TEXTS_BYTES_MAX (4 * CAIRN_MIB) /* of a page; exceeded by at most one version */

struct list {
    struct srv_list page;
    bool rising;
    struct srv_version_filter filter;
    struct srv_version_place place; /* from the cursor; then of the last row, or where to go on */
    bool full;                      /* the page is full; there may be more rows */
    bool elsewhere;                 /* the last statement ended at a row to jump from */
    uint64_t cost, rows;            /* of this page; of the last statement */
    uint64_t texts_bytes;           /* labels, meta, metrics, warnings and notes so far */
    struct srv_ids wanted;
    struct srv_newest newest;
};

/* ---- without filters: whole rows in one statement ---- */

/* A thousand versions with 128 KiB of texts make 128 MiB, several times that while it is built. */
static uint64_t texts_of(const struct srv_version *version) {
    const char *const texts[] = {version->labels, version->meta, version->metrics,
                                 version->warnings, version->note};
    uint64_t bytes = 0;
    for (size_t i = 0; i < CAIRN_COUNT(texts); i++)
        if (texts[i]) bytes += strlen(texts[i]);
    return bytes;
}

static enum cairn_code add_item(struct srv_tx *tx, struct list *list,
                                const struct srv_version *version, struct cairn_error *err) {
    json_t *json = NULL;
    list->full = list->texts_bytes >= TEXTS_BYTES_MAX || !srv_list_takes(&list->page, "");
    if (list->full) return CAIRN_OK;
    list->texts_bytes += texts_of(version);
    list->place = (struct srv_version_place){version->attempt, version->step, version->n};
    CAIRN_TRY(srv_version_json(tx, version, &list->newest, &json, err));
    return srv_list_add(&list->page, json, err);
}

static struct srv_page page_of(const struct list *list, int64_t run_id, uint64_t limit) {
    return (struct srv_page){.run_id = run_id,
                             .state = (int)list->filter.state,
                             .rising = list->rising,
                             .by_step = list->filter.by_step,
                             .place = list->place,
                             .limit = limit};
}

/* ---- with filters: finds the ids, then reads the versions ---- */

static enum cairn_code judge_row(void *argument, const struct srv_version_brief *row,
                                 bool *ret_go_on, struct cairn_error *err) {
    struct list *list = argument;
    enum srv_wanted wanted = SRV_UNWANTED;
    struct cairn_version_id id;
    uint64_t cost = 0;
    CAIRN_TRY(srv_version_filter_wants(&list->filter, row, &wanted, &cost, err));
    list->rows++;
    list->cost += list->filter.by_step ? COST_BY_STEP * cost : cost;
    list->elsewhere = wanted == SRV_ELSEWHERE;
    list->full = wanted == SRV_WANTED && list->wanted.count == list->page.limit;
    *ret_go_on = !list->elsewhere && !list->full && list->cost < COST_MAX;
    if (list->full) return CAIRN_OK;
    list->place = row->place;
    if (wanted != SRV_WANTED) return CAIRN_OK;
    (void)cairn_text_copy(id.text, sizeof(id.text), row->id);
    return srv_ids_add(&list->wanted, &id, err);
}

static enum srv_trash trash_of(const struct srv_version_filter *filter) {
    if (!filter->by_trash) return SRV_TRASH_OR_NOT;
    return filter->trashed ? SRV_TRASH_ONLY : SRV_TRASH_NOT;
}

static enum cairn_code find_wanted(struct srv_tx *tx, struct list *list, int64_t run_id,
                                   struct cairn_error *err) {
    uint64_t some = ROWS_FIRST;
    for (;;) {
        if (!srv_version_filter_jump(&list->filter, list->rising, &list->place)) return CAIRN_OK;
        list->full = list->cost >= COST_MAX;
        if (list->full) return CAIRN_OK;
        struct srv_page page = page_of(list, run_id, some);
        list->rows = 0;
        list->elsewhere = false;
        list->cost += COST_OF_A_LOOK;
        CAIRN_TRY(srv_versions_scan(tx, &page, trash_of(&list->filter), judge_row, list, err));
        if (list->full) return CAIRN_OK;
        some = list->elsewhere ? ROWS_FIRST : cairn_min_u64(4 * some, ROWS_AT_ONCE);
        if (!list->elsewhere && list->cost < COST_MAX && list->rows < page.limit)
            return CAIRN_OK; /* the last rows */
    }
}

static enum cairn_code add_wanted(struct srv_tx *tx, struct list *list, struct cairn_error *err) {
    struct srv_version_place place = list->place;
    bool full = list->full;
    for (size_t i = 0; i < list->wanted.count; i++)
        CAIRN_TRY(srv_version_expect(tx, list->wanted.ids[i].text, err));
    for (size_t i = 0; i < list->wanted.count; i++) {
        SRV_GET(version, version, srv_version_get(tx, list->wanted.ids[i].text, &version, err));
        CAIRN_TRY(add_item(tx, list, &version, err));
        if (list->full) return CAIRN_OK; /* the next page begins behind the version before */
    }
    list->place = place;
    list->full = full;
    return CAIRN_OK;
}

static enum cairn_code look_at_list(struct list *list, struct cairn_error *err) {
    SRV_LOOK(look, list->page.request->server->catalog, err);
    SRV_GET(run, run, srv_run_get(look.tx, &list->page.request->params.run_name, &run, err));
    CAIRN_TRY(srv_latest_expect(look.tx, run.id, err));
    if (is_narrowed(&list->filter)) {
        CAIRN_TRY(find_wanted(look.tx, list, run.id, err));
        return add_wanted(look.tx, list, err);
    }
    struct srv_page page = page_of(list, run.id, list->page.limit + 1); /* is there a next one? */
    SRV_GET(rows, rows, srv_versions_page(look.tx, &page, &rows, err));
    SQL_EACH(&rows, err) {
        SRV_GET(version, version, srv_version_row(&rows, &version, err));
        CAIRN_TRY(add_item(look.tx, list, &version, err));
    }
    return CAIRN_OK;
}

/* ---- the call ---- */

static enum cairn_code parse_cursor(struct list *list, struct cairn_error *err) {
    const char *at = list->page.after;
    uint64_t before = list->rising ? 0 : INT64_MAX;
    list->place = (struct srv_version_place){before, before, before};
    uint64_t *numbers[] = {&list->place.attempt, &list->place.step, &list->place.n};
    for (size_t i = 0; *list->page.after && i < CAIRN_COUNT(numbers); i++) {
        size_t size = strcspn(at, ".");
        if (cairn_parse_u64((struct cairn_view){at, size}, numbers[i], NULL))
            return cairn_fail(err, CAIRN_INVALID, "cursor is not one that this server gave out");
        at += size + (at[size] == '.');
    }
    return CAIRN_OK;
}

static enum cairn_code serve_list(struct list *list, const struct srv_request *request,
                                  struct srv_reply *reply, struct cairn_error *err) {
    const struct srv_version_place *place = &list->place;
    CAIRN_TRY(srv_list_open(request, &list->page, err));
    const char *order = cairn_query_get(&request->query, "order");
    const char *by = order ? order + (order[0] == '-') : "attempt";
    if (strcmp(by, "step") != 0 && strcmp(by, "attempt") != 0)
        return cairn_fail(err, CAIRN_INVALID,
                          "order must be step, -step, attempt or -attempt, not %s", order);
    list->rising = order && order[0] != '-';
    CAIRN_TRY(parse_filter(&request->query, &list->filter, err));
    list->filter.by_step = !strcmp(by, "step") && !list->filter.of_attempt; /* the same in one */
    CAIRN_TRY(parse_cursor(list, err));
    CAIRN_TRY(look_at_list(list, err));
    list->page.more = list->full;
    snprintf(list->page.place, sizeof(list->page.place), "%" PRIu64 ".%" PRIu64 ".%" PRIu64,
             place->attempt, place->step, place->n);
    return srv_list_reply(&list->page, reply, err);
}

SRV_HANDLER(checkpoint_list) {
    CAIRN_TRY(srv_thawed(request->server, err));
    struct list list = {.rising = false};
    enum cairn_code code = serve_list(&list, request, reply, err);
    srv_list_release(&list.page);
    srv_ids_release(&list.wanted);
    srv_version_filter_release(&list.filter);
    return code;
}
