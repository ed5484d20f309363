/* SPDX-License-Identifier: Apache-2.0 */
/* Filters of a list, of a row and of a place; see version_filter.h. */
#include "server/versions/version_filter.h"

#include "common/text.h"
#include "store/time.h"

#define MOST INT64_MAX /* of a number in the catalog */
#define COST_OF_LABELS 4

void cairn_srv_version_filter_release(struct cairn_srv_version_filter *filter) {
    cairn_buf_release(&filter->seen_labels);
}

/* ---- what is asked ---- */

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

enum cairn_code cairn_srv_version_filter_parse(const struct cairn_query *query,
                                               struct cairn_srv_version_filter *filter,
                                               struct cairn_error *err) {
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

static bool has_steps(const struct cairn_srv_version_filter *filter) {
    return filter->step_ge || filter->step_lt <= MOST;
}

bool cairn_srv_version_filter_narrows(const struct cairn_srv_version_filter *filter) {
    return filter->labels.count || has_steps(filter) || filter->of_attempt || filter->by_trash ||
           filter->since_ms != INT64_MIN || filter->by_step;
}

/* ---- a row ---- */

static enum cairn_code match_labels(struct cairn_srv_version_filter *filter, const char *text,
                                    bool *ret, uint64_t *ret_cost, struct cairn_error *err) {
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

enum cairn_code cairn_srv_version_filter_wants(struct cairn_srv_version_filter *filter,
                                               const struct cairn_srv_version_brief *row,
                                               enum cairn_srv_wanted *ret, uint64_t *ret_cost,
                                               struct cairn_error *err) {
    bool wanted = row->at_ms >= filter->since_ms &&
                  (filter->state < 0 || row->shown == (enum cairn_state)filter->state) &&
                  (!filter->by_trash || row->trashed == filter->trashed);
    bool other_attempt = filter->of_attempt && row->place.attempt != filter->attempt;
    bool elsewhere = row->place.step < filter->step_ge || row->place.step >= filter->step_lt ||
                     (other_attempt && !filter->by_step);
    wanted &= !other_attempt;
    *ret_cost = 1;
    *ret = elsewhere ? CAIRN_SRV_ELSEWHERE : CAIRN_SRV_UNWANTED;
    if (elsewhere || !wanted) return CAIRN_OK;
    if (filter->labels.count) CAIRN_TRY(match_labels(filter, row->labels, &wanted, ret_cost, err));
    if (wanted) *ret = CAIRN_SRV_WANTED;
    return CAIRN_OK;
}

/* ---- a place ---- */

static bool is_place(const struct cairn_srv_version_place *place, uint64_t attempt, uint64_t step,
                     uint64_t n) {
    return place->attempt == attempt && place->step == step && place->n == n;
}

/* What follows is below it. */
static bool jump_falling(const struct cairn_srv_version_filter *filter,
                         struct cairn_srv_version_place *place) {
    bool bounded = filter->step_lt <= MOST;
    uint64_t step = bounded ? filter->step_lt : MOST, n = bounded ? 0 : MOST;
    if (filter->of_attempt && place->attempt > filter->attempt)
        *place = (struct cairn_srv_version_place){filter->attempt, MOST, MOST};
    if (filter->of_attempt && place->attempt < filter->attempt) return false;
    if (!has_steps(filter)) return true;
    if (bounded && (place->step > step || (place->step == step && place->n > 0)))
        *place = (struct cairn_srv_version_place){place->attempt, step, 0};
    bool more = place->step > filter->step_ge || (place->step == filter->step_ge && place->n > 0);
    if (more) return true;
    if (filter->of_attempt || !place->attempt) return false;
    *place = (struct cairn_srv_version_place){place->attempt - 1, step, n};
    return filter->step_ge < filter->step_lt;
}

/* What follows is above it. */
static bool jump_rising(const struct cairn_srv_version_filter *filter,
                        struct cairn_srv_version_place *place) {
    if (filter->of_attempt && place->attempt > filter->attempt) return false;
    if (filter->of_attempt && place->attempt < filter->attempt && filter->attempt)
        *place = (struct cairn_srv_version_place){filter->attempt - 1, MOST, MOST};
    if (!has_steps(filter) || is_place(place, place->attempt, MOST, MOST)) return true;
    if (filter->step_ge > MOST || filter->step_ge >= filter->step_lt) return false;
    if (place->step < filter->step_ge)
        *place = (struct cairn_srv_version_place){place->attempt, filter->step_ge - 1, MOST};
    if (place->step < filter->step_lt) return true;
    *place = (struct cairn_srv_version_place){place->attempt, MOST, MOST};
    return !filter->of_attempt || place->attempt < filter->attempt;
}

/* By step there is one range, and no way around other attempts. */
static bool jump_steps(const struct cairn_srv_version_filter *filter, bool rising,
                       struct cairn_srv_version_place *place) {
    if (filter->step_ge > MOST || filter->step_ge >= filter->step_lt) return false;
    if (!rising && place->step >= filter->step_lt)
        *place = (struct cairn_srv_version_place){0, filter->step_lt, 0};
    if (rising && place->step < filter->step_ge)
        *place = (struct cairn_srv_version_place){MOST, filter->step_ge - 1, MOST};
    return rising ? place->step < filter->step_lt : place->step >= filter->step_ge;
}

bool cairn_srv_version_filter_jump(const struct cairn_srv_version_filter *filter, bool rising,
                                   struct cairn_srv_version_place *place) {
    if (filter->by_step) return jump_steps(filter, rising, place);
    return rising ? jump_rising(filter, place) : jump_falling(filter, place);
}
