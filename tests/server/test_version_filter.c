/* SPDX-License-Identifier: Apache-2.0 */
/* A list that jumps shows what one shows that looks at every row. */
#include "server/versions/inside.h"
#include "tests/harness.h"

#define ROWS 120
#define CASES 4000

struct rows {
    struct srv_version_brief at[ROWS];
    size_t count;
};

static int compare(const void *a, const void *b) {
    const struct srv_version_place *x = &((const struct srv_version_brief *)a)->place;
    const struct srv_version_place *y = &((const struct srv_version_brief *)b)->place;
    if (x->attempt != y->attempt) return x->attempt < y->attempt ? -1 : 1;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    return x->n < y->n ? -1 : x->n > y->n;
}

static void make_rows(uint64_t *random, struct rows *rows) {
    static const char *const labels[] = {"{}", "{\"tier\":\"gold\"}", "{\"tier\":\"tmp\"}"};
    uint64_t attempts = 1 + cairn_test_random(random) % 9;
    rows->count = cairn_test_random(random) % ROWS;
    for (size_t i = 0; i < rows->count; i++)
        rows->at[i] = (struct srv_version_brief){
            .id = "v",
            .place = {1 + 2 * (cairn_test_random(random) % attempts),
                      cairn_test_random(random) % 12, 1 + i},
            .shown = cairn_test_random(random) % 8 ? CAIRN_STATE_COMMITTED : CAIRN_STATE_OPEN,
            .trashed = cairn_test_random(random) % 4 == 0,
            .at_ms = (int64_t)(cairn_test_random(random) % 50),
            .labels = labels[cairn_test_random(random) % 3]};
    qsort(rows->at, rows->count, sizeof rows->at[0], compare);
}

static void make_filter(uint64_t *random, struct srv_version_filter *filter) {
    static const char *const texts[] = {"tier=gold", "tier!=gold", "!tier", "tier,tier!=tmp"};
    *filter =
        (struct srv_version_filter){.step_lt = UINT64_MAX, .since_ms = INT64_MIN, .state = -1};
    if (cairn_test_random(random) % 3 == 0) {
        filter->of_attempt = true;
        filter->attempt = cairn_test_random(random) % 20;
    }
    if (cairn_test_random(random) % 2) filter->step_ge = cairn_test_random(random) % 14;
    if (cairn_test_random(random) % 2) filter->step_lt = cairn_test_random(random) % 14;
    if (cairn_test_random(random) % 4 == 0)
        filter->since_ms = (int64_t)(cairn_test_random(random) % 50);
    if (cairn_test_random(random) % 4 == 0) filter->state = CAIRN_STATE_COMMITTED;
    filter->by_trash = cairn_test_random(random) % 4 == 0;
    filter->trashed = cairn_test_random(random) % 2;
    if (cairn_test_random(random) % 4 == 0) {
        const char *text = texts[cairn_test_random(random) % CAIRN_COUNT(texts)];
        EXPECT(!cairn_selector_parse(cairn_view_of(text), &filter->labels, NULL));
    }
}

/* The filters in the words of the page, asked of one row. */
static bool is_meant(const struct srv_version_filter *filter, const struct srv_version_brief *row) {
    if (filter->of_attempt && row->place.attempt != filter->attempt) return false;
    if (row->place.step < filter->step_ge) return false;
    if (row->place.step >= filter->step_lt) return false;
    if (row->at_ms < filter->since_ms) return false;
    if (filter->by_trash && filter->trashed != row->trashed) return false;
    if (filter->state >= 0 && row->shown != (enum cairn_state)filter->state) return false;
    if (!filter->labels.count) return true;
    CAIRN_AUTO_JSON json_t *labels = json_loads(row->labels, 0, NULL);
    return cairn_selector_matches(&filter->labels, labels);
}

/* The row behind a place, or NULL. */
static const struct srv_version_brief *next_row(const struct rows *rows, bool rising,
                                                const struct srv_version_place *place) {
    struct srv_version_brief at = {.place = *place};
    const struct srv_version_brief *found = NULL;
    for (size_t i = 0; i < rows->count; i++) {
        int order = compare(&rows->at[i], &at);
        if (rising && order > 0) return &rows->at[i];
        if (!rising && order < 0) found = &rows->at[i];
    }
    return found;
}

/* As the list looks: row by row, and a jump where a row is elsewhere. */
static size_t walk(const struct rows *rows, bool rising, struct srv_version_filter *filter,
                   const struct srv_version_brief **ret, size_t *ret_looks) {
    uint64_t before = rising ? 0 : INT64_MAX, cost;
    struct srv_version_place place = {before, before, before};
    enum srv_wanted wanted = SRV_ELSEWHERE;
    size_t count = 0;
    for (*ret_looks = 0; *ret_looks < 3 * ROWS; ++*ret_looks) {
        if (wanted == SRV_ELSEWHERE && !srv_version_filter_jump(filter, rising, &place))
            return count;
        const struct srv_version_brief *row = next_row(rows, rising, &place);
        if (!row) return count;
        EXPECT(!srv_version_filter_wants(filter, row, &wanted, &cost, NULL));
        place = row->place;
        if (wanted == SRV_WANTED) ret[count++] = row;
    }
    EXPECT(*ret_looks < 3 * ROWS); /* the walk ends */
    return count;
}

TEST(jumps_pass_no_row_that_is_wanted) /* server/versions/inside.h#1, server/versions/inside.h#2 */
{
    uint64_t random = cairn_test_seed();
    for (int i = 0; i < CASES; i++) {
        const struct srv_version_brief *found[ROWS];
        struct rows rows;
        SRV_AUTO(version_filter) filter = {0};
        size_t looks = 0, meant = 0;
        make_rows(&random, &rows);
        make_filter(&random, &filter);
        bool rising = cairn_test_random(&random) % 2;
        size_t count = walk(&rows, rising, &filter, found, &looks);
        for (size_t r = 0; r < rows.count; r++) {
            const struct srv_version_brief *row = &rows.at[rising ? r : rows.count - 1 - r];
            if (!is_meant(&filter, row)) continue;
            EXPECT(meant < count && found[meant] == row);
            meant++;
        }
        EXPECT_EQ_U64(count, meant);
    }
}

TEST(rows_of_other_steps_are_jumped_over_attempt_by_attempt) { /* version_filter.h */
    const struct srv_version_brief *found[ROWS];
    struct rows rows = {.count = 100};
    for (size_t i = 0; i < rows.count; i++)
        rows.at[i] =
            (struct srv_version_brief){.id = "v", .place = {1 + i / 50, i % 50, 1}, .labels = "{}"};
    for (int rising = 0; rising < 2; rising++) {
        SRV_AUTO(version_filter)
        filter = {.step_ge = 20, .step_lt = 22, .since_ms = INT64_MIN, .state = -1};
        size_t looks = 0;
        EXPECT_EQ_U64(walk(&rows, rising, &filter, found, &looks), 4);
        EXPECT(looks <= 10);
    }
}
