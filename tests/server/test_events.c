/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* Events: what they say of each change, in which order, by page, long poll and stream; who follows
 * and never reads costs nobody anything. */

#include "server/events/feed.h"
#include "tests/server/world.h"

#define EVENTS WORLD_RUN "/events"

#define NAMES(page) cairn_items(page, "items", "event")
#define EVENT(page, name) cairn_item(page, "items", "event", name)
#define err world.err /* of the macros */

TEST(each_change_of_a_version_is_an_event_with_its_reason_and_who_asked) { /* events.h#1 */
    STARTED(saves, 2);
    CHANGE("PATCH", saves[0].path, "{\"pinned\":true}");
    CHANGE("PATCH", saves[0].path,
           "{\"pinned\":false,\"metrics\":{\"loss\":1.5},\"labels\":{\"a\":\"b\"}}");
    SAY("DELETE", saves[0].path, NULL);
    SAY("DELETE", saves[0].path, NULL); /* again: no change */
    SAY("POST", TEXT("%s/undelete", saves[0].path), "{}");
    GOT(first, TEXT("%s/events", saves[0].path));
    EXPECT_EQ_TEXT(NAMES(first), "checkpoint.opened checkpoint.committed checkpoint.annotated "
                                 "checkpoint.annotated checkpoint.trashed checkpoint.undeleted");
    EXPECT_SHOWS(first, "items.2.reason", "pinned", "items.3.reason", "labels, metrics, unpinned");
    EXPECT_SHOWS(EVENT(first, "checkpoint.committed"), "actor", "server");
    EXPECT_SHOWS(EVENT(first, "checkpoint.trashed"), "address", "127.0.0.1", "step", "100",
                 "version", saves[0].id.text);

    BEGUN(open, 300);
    SAY("POST", TEXT("%s/abort", open.path), "{\"reason\":\"not wanted\"}");
    GOT(second, TEXT("%s/events", open.path));
    EXPECT_SHOWS(EVENT(second, "checkpoint.aborted"), "reason", "aborted: not wanted", "code",
                 "checkpoint-aborted");

    SAY("PUT", WORLD_RUN "/aliases/prod", "{\"ref\":\"100\"}");
    SAY("PUT", WORLD_RUN "/retention", "{\"keep\":{\"last\":7}}");
    CHANGE("DELETE", WORLD_RUN "/aliases/prod", NULL);
    GOT(run, EVENTS "?since=0&limit=1000");
    const char *made = strstr(NAMES(run), "run.created");
    EXPECT(made && !strstr(made + 1, "run.created")); /* none by the undelete: it was shown */
    EXPECT_SHOWS(EVENT(run, "attempt.opened"), "job", "j1");
    EXPECT_SHOWS(EVENT(run, "alias.set"), "alias", "prod", "reason", "prod");
    EXPECT(!json_object_get(EVENT(run, "alias.set"), "job"));
    EXPECT_SHOWS(EVENT(run, "alias.removed"), "reason", "prod");
    EXPECT_HAS(world_text(EVENT(run, "policy.set"), "reason"), "\"last\":7");
    uint64_t number = 0;
    size_t index = 0;
    json_t *item = NULL;
    json_array_foreach(json_object_get(run, "items"), index, item) {
        EXPECT(world_number(item, "id") > number);
        number = world_number(item, "id");
    }
    EXPECT_SAY(CAIRN_NOT_FOUND, "GET", "/v1/runs/llm/none/events", NULL);
    GOT(third, "/v1/events?limit=2");
    EXPECT_EQ_U64(json_array_size(json_object_get(third, "items")), 2); /* the newest */
    EXPECT(world_number(third, "since") >= number);
}

TEST(events_are_asked_for_by_kind_and_by_project) {
    STARTED(saves, 2);
    SAY("PUT", "/v1/runs/other/a", "{}");
    SAY("PUT", WORLD_RUN "/aliases/prod", "{\"ref\":\"100\"}");
    static const char *const cases[][2] = {
        {"/v1/events?since=0&kind=run.created", "run.created run.created"},
        {"/v1/events?since=0&kind=run&project=other", "run.created"},
        {"/v1/events?since=0&kind=alias,checkpoint.committed&project=llm",
         "checkpoint.committed checkpoint.committed alias.set"},
        {"/v1/events?limit=2&kind=checkpoint&project=llm",
         "checkpoint.opened checkpoint.committed"},
        {"/v1/events?limit=1&kind=attempt", "attempt.opened"},
        {"/v1/events?audit=true&kind=alias", "alias.set"},
        {"/v1/events?since=0&project=none", ""},
        {EVENTS "?since=0&kind=alias.set", "alias.set"},
        {EVENTS "?since=0&kind=token", ""},
    };
    for (size_t i = 0; i < CAIRN_COUNT(cases); i++) {
        GOT(page, cases[i][0]);
        EXPECT_EQ_TEXT(NAMES(page), cases[i][1]);
    }
    EACH_TEXT(text, "kind=", "kind=check", "kind=checkpoint.committed,",
              "kind=checkpoint.committed%20", "project=..") {
        EXPECT_SAY(CAIRN_INVALID, "GET", TEXT("/v1/events?%s", text), NULL);
    }
}

static json_t *all_events(struct cairn_world *world, json_t *take_before) {
    json_t *page = NULL;
    json_decref(take_before);
    EXPECT(!cairn_say(world, "GET", EVENTS "?since=0&limit=1000", NULL, &page));
    return page;
}

TEST(what_a_policy_removes_and_what_is_superseded_says_why) {
    struct cairn_hand second;
    struct cairn_hand_save third;
    STARTED(saves, 2);
    CAIRN_AUTO_JSON json_t *run = NULL;
    SAY("PUT", "/v1/projects/llm/retention", "{\"keep\":{\"last\":2}}");
    REQUIRE_OK(hand_save_all(&hand, 300, 1, "error", 100, &third));
    REQUIRE_AWAIT((run = all_events(&world, run)) && EVENT(run, "checkpoint.trashed"));
    EXPECT_SHOWS(EVENT(run, "checkpoint.trashed"), "reason",
                 "by the retention policy of the project", "actor", "server", "step", "100");
    REQUIRE_OK(hand_open(&world, &second, "again", hand.attempt, "200", 1));
    GOT(then, EVENTS "?since=0&limit=1000");
    EXPECT_SHOWS(EVENT(then, "checkpoint.superseded"), "step", "300");
}

TEST(events_are_trimmed_from_the_oldest_on_by_count_and_by_age) { /* events.h#3 */
    INSIDE("--events-max=10", "--events-age=1h");
    for (int i = 0; i < 30; i++) {
        SAY("PUT", WORLD_RUN, TEXT("{\"labels\":{\"n\":\"%d\"}}", i));
    }
    inside_round(&world.inside);
    GOT(page, "/v1/events?since=0&limit=1000");
    EXPECT_EQ_U64(json_array_size(json_object_get(page, "items")), 10);
    EXPECT_SAY(CAIRN_CURSOR_EXPIRED, "GET", "/v1/events?since=3", NULL);
    EXPECT_SAY(CAIRN_CURSOR_EXPIRED, "GET", "/v1/events?since=900000", NULL);
    uint64_t last = world_number(page, "since");
    inside_pass(&world.inside, 3 * UINT64_C(3600000));
    GOT(empty, "/v1/events?since=0");
    EXPECT_EQ_U64(json_array_size(json_object_get(empty, "items")), 1); /* the newest stays */
    EXPECT_EQ_U64(world_number(empty, "since"), last);
    SAY("PUT", WORLD_RUN, "{\"labels\":{}}");
    GOT(next, TEXT("/v1/events?since=%" PRIu64, last));
    EXPECT_EQ_U64(world_number(next, "since"), last + 1); /* no number is given twice */
}

/* Longer than what a reason holds. */
#define WORD "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz01234567"
static const char long_policy[] =
    "{\"keep\":{\"labels\":[\"a=" WORD "\",\"b=" WORD "\",\"c=" WORD "\",\"d=" WORD "\",\"e=" WORD
    "\",\"f=" WORD "\",\"g=" WORD "\",\"h=" WORD "\"],\"last\":8}}";

static uint64_t last_of(const json_t *event, const char *which) {
    return world_number(json_object_get(json_object_get(event, which), "keep"), "last");
}

TEST(policies_stay_in_the_audit_however_many_other_events_there_are_with_both_values_whole) {
    INSIDE("--events-max=10", "--events-age=1h");
    SAY("PUT", WORLD_RUN, "{}");
    SAY("PUT", WORLD_RUN "/retention", "{\"keep\":{\"last\":7}}");
    SAY("PUT", WORLD_RUN "/retention", long_policy);
    SAY("DELETE", WORLD_RUN "/retention", NULL);
    for (int i = 0; i < 30; i++) {
        SAY("PUT", WORLD_RUN, TEXT("{\"labels\":{\"n\":\"%d\"}}", i));
    }
    inside_round(&world.inside);
    EXPECT_SAY(CAIRN_CURSOR_EXPIRED, "GET", "/v1/events?since=1", NULL);
    GOT(audit, "/v1/events?since=1&audit=true");
    const json_t *items = json_object_get(audit, "items");
    EXPECT_EQ_U64(json_array_size(items), 3);
    EXPECT(!json_object_get(json_array_get(items, 0), "before"));
    EXPECT_EQ_U64(last_of(json_array_get(items, 0), "after"), 7);
    EXPECT_EQ_U64(last_of(json_array_get(items, 1), "before"), 7);
    EXPECT_EQ_U64(last_of(json_array_get(items, 1), "after"), 8);
    EXPECT_EQ_U64(last_of(json_array_get(items, 2), "before"), 8);
    EXPECT(!json_object_get(json_array_get(items, 2), "after"));
    inside_pass(&world.inside, 3 * UINT64_C(3600000)); /* their age is what ends them */
    GOT(old, "/v1/events?since=0&audit=true");
    EXPECT_EQ_U64(json_array_size(json_object_get(old, "items")), 0);
}

/* As one that is not mounted. */
TEST(events_are_trimmed_while_the_store_is_away) { /* sweep.h#3 */
    INSIDE("--events-max=10");
    REQUIRE(!unlink(TEXT("%s/.cairn/store.json", world.store_path)));
    inside_pass(&world.inside, 11 * UINT64_C(60000)); /* its generation is to be raised */
    for (int i = 0; i < 30; i++) {
        SAY("PUT", WORLD_RUN, TEXT("{\"labels\":{\"n\":\"%d\"}}", i));
    }
    inside_round(&world.inside);
    EXPECT_GET("/v1/events?since=0&limit=1000", "items.#", "10");
}

/* ---- long polls and streams ---- */

static uint64_t count_of(const struct cairn_buf *got, const char *text) {
    uint64_t count = 0;
    for (const char *at = got->data; at && (at = strstr(at, text)); at++) count++;
    return count;
}

TEST(a_long_poll_is_answered_by_the_next_event_and_not_by_its_time) {
    CAIRN_AUTO(calling) poll = {0};
    JOB(1, "--sweep-interval=50ms");
    GOT(now, EVENTS);
    const char *behind = TEXT(EVENTS "?since=%" PRIu64, world_number(now, "since"));
    REQUIRE(calling_wait(&poll, &world, behind, 60000));
    REQUIRE_AWAIT(calling_is_held(&poll));
    SAY("PUT", WORLD_RUN, "{\"labels\":{\"a\":\"b\"}}");
    EXPECT_CODE(calling_end(&poll), CAIRN_OK);
    EXPECT(poll.took_ms < 55000);
    EXPECT(EVENT(poll.reply, "run.annotated") != NULL);
}

TEST(a_stream_goes_on_behind_the_last_event_that_its_reader_knows) { /* feed.h#1 */
    CAIRN_AUTO(buf)
    old = {.limit = CAIRN_MIB}, new = {.limit = CAIRN_MIB}, other = {.limit = CAIRN_MIB};
    struct cairn_raw from_first, from_now, of_other;
    STARTED(saves, 2);
    SAY("PUT", "/v1/runs/llm/other", "{}");
    REQUIRE(cairn_raw_ask_events(&from_first, world.server.port, EVENTS, 1));
    REQUIRE(cairn_raw_ask_events(&from_now, world.server.port, "/v1/events", 0));
    REQUIRE(cairn_raw_ask_events(&of_other, world.server.port, "/v1/runs/llm/other/events", 0));
    EXPECT(cairn_raw_until(&from_first, &old, "checkpoint.committed", HANG_MS));
    EXPECT(strstr(old.data, "HTTP/1.1 200") && strstr(old.data, "text/event-stream"));
    EXPECT(strstr(old.data, "\nid: 2\n") || strstr(old.data, "id: 2\n"));
    EXPECT(!strstr(old.data, "id: 1\n"));
    EXPECT(cairn_raw_until(&from_now, &new, ": nothing new", HANG_MS)); /* it is open */
    EXPECT(cairn_raw_until(&of_other, &other, ": nothing new", HANG_MS));
    SAY("DELETE", saves[0].path, NULL);
    SAY("PUT", "/v1/runs/llm/other", "{\"labels\":{\"a\":\"b\"}}");
    EXPECT(cairn_raw_until(&from_first, &old, "event: checkpoint.trashed\n", HANG_MS));
    EXPECT(cairn_raw_until(&from_now, &new, "event: run.annotated\n", HANG_MS));
    EXPECT(cairn_raw_until(&of_other, &other, "event: run.annotated\n", HANG_MS));
    EXPECT_ALL_U64(count_of(&new, "event: checkpoint.trashed\n"), 1, count_of(&new, "event: "), 2,
                   count_of(&other, "event: "), 1, count_of(&old, "event: checkpoint.committed\n"),
                   2);
    CAIRN_AUTO(buf) refused = {.limit = CAIRN_MIB};
    struct cairn_raw late;
    REQUIRE(cairn_raw_ask_events(&late, world.server.port, EVENTS, 99999));
    EXPECT_EQ_U64(cairn_raw_reply(&late, HANG_MS, &refused), 410);
    cairn_raw_release(&late);
    cairn_raw_release(&from_first);
    cairn_raw_release(&from_now);
    cairn_raw_release(&of_other);
}

static uint64_t rss_kib(pid_t pid) {
    char line[200];
    uint64_t kib = 0;
    FILE *file = fopen(TEXT("/proc/%d/status", pid), "r");
    while (file && fgets(line, sizeof(line), file))
        if (!strncmp(line, "VmRSS:", 6)) kib = strtoull(line + 6, NULL, 10);
    if (file) fclose(file);
    return kib;
}

#define STREAMS 1000
#define ROUNDS 60

static bool opens(const struct cairn_world *world, struct cairn_raw *raw, in_addr_t from,
                  unsigned long status) {
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(from)};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(world->server.port)};
    CAIRN_AUTO(buf) got = {.limit = CAIRN_MIB};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    raw->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return raw->fd >= 0 && !bind(raw->fd, (struct sockaddr *)&own, sizeof(own)) &&
           !connect(raw->fd, (struct sockaddr *)&to, sizeof(to)) &&
           cairn_raw_text(raw, "GET /v1/events HTTP/1.1\r\nHost: localhost\r\n"
                               "Accept: text/event-stream\r\n\r\n") &&
           cairn_raw_until(raw, &got, "\r\n\r\n", HANG_MS) &&
           strtoul(got.data + sizeof("HTTP/1.1 ") - 1, NULL, 10) == status;
}

static bool change_label(struct cairn_world *world, int n) {
    const char *body = TEXT("{\"labels\":{\"n\":\"%d\"}}", n);
    return EXPECT(!cairn_say(world, "PUT", WORLD_RUN, body, NULL));
}

static bool opens_again(struct cairn_world *world, struct cairn_raw *raw) {
    bool opened = opens(world, raw, INADDR_LOOPBACK, 200);
    if (!opened) cairn_raw_release(raw);
    return opened;
}

TEST(a_caller_has_no_more_streams_than_one_may_have_and_leaves_others_theirs) {
    struct cairn_raw raws[5] = {0};
    WORLD("--event-streams-per-caller=2");
    EXPECT(opens(&world, &raws[0], INADDR_LOOPBACK, 200));
    EXPECT(opens(&world, &raws[1], INADDR_LOOPBACK, 200));
    EXPECT(opens(&world, &raws[2], INADDR_LOOPBACK, 503));
    EXPECT(opens(&world, &raws[3], INADDR_LOOPBACK + 1, 200));
    cairn_raw_release(&raws[0]); /* it is missed when it is told something */
    int n = 0;
    AWAIT(change_label(&world, n++) && opens_again(&world, &raws[4]));
    for (size_t i = 0; i < CAIRN_COUNT(raws); i++) cairn_raw_release(&raws[i]);
}

/* Half of them never read. */
TEST(a_thousand_streams_of_which_half_never_read_hold_little_and_hinder_nobody) { /* feed.h#2 */
    struct cairn_raw *raws = calloc(STREAMS, sizeof(*raws));
    struct rlimit files = {4096, 4096};
    char filler[700];
    REQUIRE(raws && !setrlimit(RLIMIT_NOFILE, &files));
    WORLD("--event-streams-max=1000", "--event-streams-per-caller=2000");
    SAY("PUT", WORLD_RUN, "{}");
    uint64_t before_kib = rss_kib(world.server.pid);
    size_t open = 0;
    for (; open < STREAMS; open++)
        if (!cairn_raw_ask_events(&raws[open], world.server.port, "/v1/events", 1)) break;
    REQUIRE(open == STREAMS);
    for (size_t i = 0; i < STREAMS; i += 2) {
        CAIRN_AUTO(buf) first = {.limit = CAIRN_MIB};
        EXPECT(cairn_raw_until(&raws[i], &first, ": nothing new", HANG_MS));
    }
    memset(filler, 'x', sizeof(filler) - 1);
    filler[sizeof(filler) - 1] = '\0';
    uint64_t slowest_ms = 0;
    for (int i = 0; i < ROUNDS; i++) {
        const char *body = TEXT("{\"labels\":{\"n\":\"%d\"}}", i);
        uint64_t began_ms = cairn_mono_ms();
        SAY("PUT", WORLD_RUN, body);
        slowest_ms = cairn_max_u64(slowest_ms, cairn_mono_ms() - began_ms);
    }
    uint64_t all = 0;
    for (size_t i = 0; i < STREAMS; i += 2) { /* the others never read */
        CAIRN_AUTO(buf) got = {.limit = CAIRN_MIB};
        if (cairn_raw_until(&raws[i], &got, TEXT("id: %d\n", 1 + ROUNDS), HANG_MS)) all++;
        if (count_of(&got, "event: run.annotated\n") != ROUNDS) all--;
    }
    EXPECT_EQ_U64(all, STREAMS / 2);
    struct cairn_raw more;
    CAIRN_AUTO(buf) refused = {.limit = CAIRN_MIB};
    REQUIRE(cairn_raw_ask_events(&more, world.server.port, "/v1/events", 0));
    EXPECT_EQ_U64(cairn_raw_reply(&more, HANG_MS, &refused), 503);
    cairn_raw_release(&more);
    uint64_t held_kib = rss_kib(world.server.pid) - before_kib;
    printf("slowest change %" PRIu64 " ms, held %" PRIu64 " MiB\n", slowest_ms, held_kib / 1024);
    /* 32 MiB are the connections' own; most of the rest is what ASan keeps of freed memory.
     * ThreadSanitizer keeps several words for each. */
#ifndef __SANITIZE_THREAD__
    EXPECT(held_kib < 256 * 1024);
#endif
    for (size_t i = 0; i < STREAMS; i++) cairn_raw_release(&raws[i]);
    free(raws);
}

#define FOLLOWERS 80
#define AT_ONCE 32   /* feed.c */
#define PAUSE_US 900 /* a millisecond, by a clock that counts microseconds */

struct woken {
    _Atomic size_t count;
    uint64_t at_us[FOLLOWERS]; /* by the feed's thread, before it counts */
};

static void pause_none(void *owner) {
    (void)owner;
}

static void note_woken(void *owner) {
    struct woken *woken = owner;
    woken->at_us[woken->count] = cairn_mono_us();
    woken->count++;
}

static enum cairn_code find_last(struct srv_tx *tx, void *argument, struct cairn_error *why) {
    uint64_t first = 0;
    return srv_events_bounds(tx, &first, argument, why);
}

/* Follows all from that number on, and waits; its first comment is taken. */
static struct srv_flow follow(struct srv_feed *feed, uint64_t after, struct woken *woken) {
    const struct srv_flow_hooks hooks = {pause_none, note_woken, woken};
    const struct srv_follow all = {.after = after, .caller = {.kind = SRV_EVERYBODY}};
    struct srv_flow flow = {0};
    char text[200];
    EXPECT(srv_feed_follow(feed, &all, &flow, NULL) == CAIRN_OK);
    if (!flow.owner) return flow;
    EXPECT(flow.take(flow.owner, 0, text, sizeof(text), &hooks) > 0);
    EXPECT(flow.take(flow.owner, 0, text, sizeof(text), &hooks) == 0);
    return flow;
}

/* The event loops are free for others between one group and the next. */
TEST(followers_of_one_event_are_woken_a_few_at_a_time) { /* feed.h#4 */
    CAIRN_AUTO(world) world = {.inside = {.on_disk = true}};
    static struct woken woken;
    struct srv_flow followers[FOLLOWERS] = {0};
    struct srv_feed *feed = NULL;
    REQUIRE(world_start_inside(&world, NULL));
    uint64_t last = 0;
    REQUIRE_OK(look_by(world.inside.server.catalog, find_last, &last, &err));
    REQUIRE_OK(srv_feed_new(&world.inside.server, &feed, &err));
    woken.count = 0;
    for (size_t i = 0; i < FOLLOWERS; i++) followers[i] = follow(feed, last, &woken);
    EXPECT_EQ_U64(woken.count, 0);
    EXPECT_CODE(world_call(&world, "PUT", WORLD_RUN, NULL, NULL), CAIRN_OK);
    AWAIT(woken.count >= FOLLOWERS);
    EXPECT_EQ_U64(woken.count, FOLLOWERS);
    for (size_t i = AT_ONCE; i < FOLLOWERS && woken.count == FOLLOWERS; i += AT_ONCE)
        EXPECT(woken.at_us[i] - woken.at_us[i - 1] >= PAUSE_US);
    srv_feed_stop(feed);
    for (size_t i = 0; i < FOLLOWERS; i++)
        if (followers[i].owner) followers[i].free(followers[i].owner);
    srv_feed_free(feed);
}
