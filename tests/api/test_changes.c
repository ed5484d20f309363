/* SPDX-License-Identifier: Apache-2.0 */
/* The table of routes that change something against those of routes and of events. */
#include "api/wire/routes.h"
#include "tests/harness.h"

static const struct row {
    enum cairn_route_id route;
    const char *events, *quiet; /* one of them is NULL */
} rows[] = {
#define CHANGES(id, events) {CAIRN_ROUTE_##id, events, NULL},
#define QUIET(id, why) {CAIRN_ROUTE_##id, NULL, why},
#include "api/changes.def"
#undef CHANGES
#undef QUIET
};
static const char *const events[] = {
#define EVENT(id, name, kept, about, ...) name,
#include "api/events.def"
#undef EVENT
};

static size_t rows_of(enum cairn_route_id route) {
    size_t count = 0;
    for (size_t i = 0; i < CAIRN_COUNT(rows); i++) count += rows[i].route == route;
    return count;
}

TEST(every_route_that_may_change_something_says_which_events_it_makes_or_why_none) {
    for (int id = 0; id < CAIRN_ROUTE_COUNT; id++) {
        const struct cairn_route *route = cairn_route_at((enum cairn_route_id)id);
        bool looks = !strcmp(route->method, "GET") || !strcmp(route->method, "HEAD");
        cairn_test_check(rows_of(route->id) == !looks, __FILE__, __LINE__,
                         "%s has %d row of api/changes.def", route->name, !looks);
    }
}

static bool is_event(struct cairn_view name) {
    for (size_t i = 0; i < CAIRN_COUNT(events); i++)
        if (strlen(events[i]) == name.size && !memcmp(events[i], name.data, name.size)) return true;
    return false;
}

TEST(events_of_that_table_are_events_of_the_api_and_its_reasons_are_said) {
    for (size_t i = 0; i < CAIRN_COUNT(rows); i++) {
        const char *at = rows[i].events;
        if (!at) EXPECT(strlen(rows[i].quiet) > 5);
        while (at) {
            size_t size = strcspn(at, ",");
            cairn_test_check(is_event((struct cairn_view){at, size}), __FILE__, __LINE__,
                             "%.*s is in api/events.def", (int)size, at);
            at = at[size] ? at + size + strspn(at + size, ", ") : NULL;
        }
    }
}
