/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan,postgresql */
/* What one server hears of another one's changes, and how late: told, cut off, and behind a session
 * that is silently dead (catalog/notify.h). */
#include "tests/server/servers.h"
#include "tests/support/cut.h"

#define err failure /* of the macros */
static struct cairn_error failure;

/* ---- who waits at one server for what another one changes ---- */

static bool cut_listeners(const char *catalog) {
    return cairn_postgres_run(catalog,
                              "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
                              "application_name = 'cairn-listen'");
}

/* ---- by wait ---- */

enum listening { HEARD, CUT_OFF, DEAD };

/* A save over the first server, of whose commit both are asked: how much later than the first one
 * the second one answers. */
static void late_by(struct cairn_world *one, struct cairn_world *two, struct cairn_hand *hand,
                    uint64_t step, enum listening listening, uint64_t *ret_us) {
    struct cairn_hand_save save;
    REQUIRE_OK(hand_begin(hand, step, 1, "error", &save));
    REQUIRE_OK(hand_register(&save, "x", 0, CAIRN_VIEW("abc")));
    CAIRN_AUTO(calling) first = {0}, second = {0};
    REQUIRE(calling_wait(&first, one, save.path, 60000));
    REQUIRE(calling_wait(&second, two, save.path, 60000));
    for (uint64_t k = 0; k < 10 + step % 12; k++) {
        if (listening == CUT_OFF) EXPECT(cut_listeners(one->catalog));
        cairn_test_pause_ms(listening == DEAD ? 74 : 37); /* pause of chaos: between two looks */
    }
    EXPECT_CODE(hand_seal_alone(&save, 0, "x", 3), CAIRN_OK);
    EXPECT_CODE(calling_end(&first), CAIRN_OK);
    EXPECT_CODE(calling_end(&second), CAIRN_OK);
    EXPECT_SHOWS(first.reply, "state", "committed");
    EXPECT_SHOWS(second.reply, "state", "committed");
    *ret_us = second.answered_us - cairn_min_u64(first.answered_us, second.answered_us);
}

/* At most, but for one pause of the machine, and on average. */
struct late {
    uint64_t count, all_us, most_us, second_us;
};
static void add_late(struct late *late, uint64_t us) {
    late->count++;
    late->all_us += us;
    late->second_us = cairn_max_u64(late->second_us, cairn_min_u64(late->most_us, us));
    late->most_us = cairn_max_u64(late->most_us, us);
}

static uint64_t most_ms(const struct late *late) {
    return late->second_us / 1000;
}
static uint64_t mean_ms(const struct late *late) {
    return late->all_us / 1000 / cairn_max_u64(late->count, 1);
}
static void print_late(const char *how, const struct late *late) {
    printf("    %s: at most %" PRIu64 " ms, on average %" PRIu64 " ms of %" PRIu64 "\n", how,
           most_ms(late), mean_ms(late), late->count);
}

#define ROUNDS 12

static void measure(struct cairn_world *one, struct cairn_world *two, struct cairn_hand *hand,
                    uint64_t *step, enum listening listening, struct late *ret) {
    *ret = (struct late){0};
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t us = 0;
        late_by(one, two, hand, ++*step, listening, &us);
        add_late(ret, us);
    }
    print_late(listening == HEARD ? "heard" : "cut off", ret);
}

/* A busy machine makes them later, and none of them sooner: measured again until they are in time.
 * Of a server that only looks once a second never half as many were. */
static bool is_heard_in_time(struct cairn_world *one, struct cairn_world *two,
                             struct cairn_hand *hand, uint64_t *step, enum listening listening,
                             uint64_t most, uint64_t mean) {
    struct late late;
    return COMES((measure(one, two, hand, step, listening, &late),
                  most_ms(&late) <= most && mean_ms(&late) <= mean));
}

TEST(a_commit_on_one_server_ends_a_wait_on_another_within_200_ms_heard_or_not) { /* catalog.h#7 */
    TWO_SERVERS();
    struct cairn_hand hand;
    uint64_t step = 0;
    REQUIRE_OK(hand_open(&one, &hand, "j1", 0, "latest", 1));
    EXPECT(is_heard_in_time(&one, &two, &hand, &step, HEARD, 200, 50));
    EXPECT(is_heard_in_time(&one, &two, &hand, &step, CUT_OFF, 200, 200));
    EXPECT(cairn_daemon_logged(&two.server, "catalog.unheard"));
}

#define LOOK_MS 1000 /* of who waits meanwhile (http/http.c) */
#define SLACK_MS 500
#define PAUSE_MS                                                                                   \
    4000 /* of a machine that is busy; a dead session is noticed after 10 s (catalog.h#7) */

TEST(a_wait_ends_within_a_second_behind_a_listening_session_that_is_dead_until_there_is_another) {
    /* catalog.h#7 */
    NEED_POSTGRES;
    CAIRN_AUTO(world) one = {0}, two = {0};
    REQUIRE(servers_first(&one, NULL, NULL));
    REQUIRE(cairn_cut_start(cairn_postgres_folder()));
    REQUIRE(servers_second_by(&one, &two, NULL, "&port=5433&sslmode=disable&gssencmode=disable"));
    struct cairn_hand hand;
    uint64_t step = 0;
    REQUIRE_OK(hand_open(&one, &hand, "j1", 0, "latest", 1));
    EXPECT(is_heard_in_time(&one, &two, &hand, &step, HEARD, 1000, 200));
    cairn_cut_silence();
    struct late late = {0};
    REQUIRE_AWAIT(({
        uint64_t us = 0;
        late_by(&one, &two, &hand, ++step, DEAD, &us);
        add_late(&late, us);
        cairn_daemon_logged(&two.server, "catalog.unheard");
    }));
    print_late("silently dead", &late);
    EXPECT(late.count >= 2);
    EXPECT(mean_ms(&late) > 100); /* nothing was heard */
    EXPECT(most_ms(&late) <= LOOK_MS + PAUSE_MS);
    EXPECT(cairn_daemon_logged(&two.server, "no answer within 5 s"));
    REQUIRE_AWAIT(cairn_daemon_logged(&two.server, "catalog.heard"));
    EXPECT(is_heard_in_time(&one, &two, &hand, &step, HEARD, 1000, 200));
    cairn_world_release(&two);
    two = (struct cairn_world){0};
    cairn_cut_stop();
}

/* ---- by event ---- */

#define EVENTS_OF_EACH 30
#define STREAM_LIMIT (4 * CAIRN_MIB)

static uint64_t last_event(struct cairn_world *world) {
    CAIRN_AUTO_JSON json_t *page = NULL;
    EXPECT(!world_call(world, "GET", "/v1/events?limit=1", NULL, &page));
    return world_number(page, "since");
}

static enum cairn_code change(struct cairn_world *world, const char *run, int number) {
    const char *path = TEXT("/v1/runs/llm/%s", run);
    const char *label = TEXT("%d", number);
    CAIRN_TRY(cairn_rest_set_if_match(world->rest, "*", NULL));
    return world_call(world, "PUT", path, json_pack("{s:{s:s}}", "labels", "n", label), NULL);
}

struct changing {
    struct cairn_world *world;
    const char *run;
    enum cairn_code code;
    pthread_t thread;
};
static void *change_often(void *argument) {
    struct changing *changing = argument;
    for (int i = 0; i < EVENTS_OF_EACH && !changing->code; i++)
        changing->code = change(changing->world, changing->run, i);
    return NULL;
}

/* The numbers of a stream's events are first, first + 1 ... last. */
static void expect_numbers(const struct cairn_buf *got, uint64_t first, uint64_t last) {
    uint64_t next = first;
    for (const char *at = got->data; at && (at = strstr(at, "\nid: ")); at += 5) {
        EXPECT_EQ_U64(strtoull(at + 5, NULL, 10), next);
        next++;
    }
    EXPECT_EQ_U64(next, last + 1);
}

static void read_up_to(struct cairn_raw *raw, struct cairn_buf *got, uint64_t last) {
    EXPECT(cairn_raw_until(raw, got, TEXT("\nid: %" PRIu64 "\n", last), HANG_MS));
}

TEST(events_of_two_servers_that_change_at_once_come_from_each_in_one_order_without_a_gap) {
    /* events.h#2, feed.h#1 */
    NEED_POSTGRES;
    CAIRN_AUTO(world) one = {0}, two = {0};
    struct cairn_raw raws[3] = {{-1}, {-1}, {-1}};
    CAIRN_AUTO(buf)
    first = {.limit = STREAM_LIMIT}, second = {.limit = STREAM_LIMIT},
    later = {.limit = STREAM_LIMIT};
    REQUIRE(servers_first(&one, NULL, NULL));
    REQUIRE(servers_second(&one, &two, NULL));
    REQUIRE_OK(change(&one, "a", -1));
    REQUIRE_OK(change(&two, "b", -1));
    uint64_t from = last_event(&one);
    REQUIRE(cairn_raw_ask_events(&raws[0], one.server.port, "/v1/events", from));
    REQUIRE(cairn_raw_ask_events(&raws[1], two.server.port, "/v1/events", from));
    struct changing both[2] = {{.world = &one, .run = "a"}, {.world = &two, .run = "b"}};
    for (int i = 0; i < 2; i++)
        REQUIRE(!pthread_create(&both[i].thread, NULL, change_often, &both[i]));
    for (int i = 0; i < 2; i++) pthread_join(both[i].thread, NULL);
    for (int i = 0; i < 2; i++) EXPECT_CODE(both[i].code, CAIRN_OK);
    uint64_t last = last_event(&two);
    EXPECT_EQ_U64(last_event(&one), last); /* a page, at once */
    EXPECT_EQ_U64(last - from, 2 * EVENTS_OF_EACH);
    read_up_to(&raws[0], &first, last);
    read_up_to(&raws[1], &second, last);
    expect_numbers(&first, from + 1, last);
    expect_numbers(&second, from + 1, last);
    /* What the first server's reader knows the second server goes on behind. */
    uint64_t known = from + EVENTS_OF_EACH;
    REQUIRE(cairn_raw_ask_events(&raws[2], two.server.port, "/v1/events", known));
    EXPECT_CODE(change(&one, "a", EVENTS_OF_EACH), CAIRN_OK);
    read_up_to(&raws[2], &later, last + 1);
    expect_numbers(&later, known + 1, last + 1);
    for (size_t i = 0; i < CAIRN_COUNT(raws); i++) cairn_raw_release(&raws[i]);
}

static int by_size(const void *a, const void *b) {
    uint64_t first = *(const uint64_t *)a, second = *(const uint64_t *)b;
    return (first > second) - (first < second);
}

/* From the answer to a change at the second server to its event in a stream of the first one. */
static void measure_events(struct cairn_world *two, struct cairn_raw *raw, uint64_t from,
                           const char *how, uint64_t *ret_middle_ms, uint64_t *ret_most_ms) {
    uint64_t us[ROUNDS] = {0};
    CAIRN_AUTO(buf) got = {.limit = STREAM_LIMIT};
    for (int i = 0; i < ROUNDS; i++) {
        cairn_test_pause_ms(100 + 37 * (unsigned)i); /* pause of chaos: between two looks */
        EXPECT_CODE(change(two, "a", i), CAIRN_OK);
        uint64_t answered_us = cairn_mono_us();
        read_up_to(raw, &got, from + 1 + (uint64_t)i);
        us[i] = cairn_mono_us() - answered_us;
    }
    qsort(us, ROUNDS, sizeof(us[0]), by_size);
    *ret_middle_ms = us[ROUNDS / 2] / 1000;
    *ret_most_ms = us[ROUNDS - 2] / 1000; /* but for one pause of the machine */
    printf("    %s: at most %" PRIu64 " ms, half of them within %" PRIu64 " ms\n", how,
           *ret_most_ms, *ret_middle_ms);
}

/* Does a long poll at the first server hear a change at the second one, before a look? */
static bool poll_hears(struct cairn_world *one, struct cairn_world *two, int number) {
    CAIRN_AUTO(calling) waits = {0};
    const char *behind = TEXT("/v1/events?since=%" PRIu64, last_event(one));
    if (!EXPECT(calling_wait(&waits, one, behind, 60000)) || !AWAIT(calling_is_held(&waits)))
        return false;
    EXPECT_CODE(change(two, "a", number), CAIRN_OK);
    uint64_t answered_us = cairn_mono_us();
    EXPECT_CODE(calling_end(&waits), CAIRN_OK);
    return waits.answered_us < answered_us + (LOOK_MS + SLACK_MS) * UINT64_C(1000);
}

TEST(a_stream_and_a_long_poll_hear_an_event_of_another_server_and_do_not_wait_for_a_look) {
    /* feed.h#4 */
    NEED_POSTGRES;
    CAIRN_AUTO(world) one = {0}, two = {0};
    struct cairn_raw raw;
    uint64_t middle_ms = 0, most_ms = 0;
    int number = ROUNDS;
    REQUIRE(servers_first(&one, NULL, NULL));
    REQUIRE(servers_second(&one, &two, NULL));
    REQUIRE_OK(change(&one, "a", -1));
    REQUIRE_OK(change(&two, "a", -2));
    uint64_t from = last_event(&one);
    REQUIRE(cairn_raw_ask_events(&raw, one.server.port, "/v1/events", from));
    AWAIT((measure_events(&two, &raw, from, "stream", &middle_ms, &most_ms), from += ROUNDS,
           middle_ms <= 200 && most_ms <= LOOK_MS + SLACK_MS));
    cairn_raw_release(&raw);
    AWAIT(poll_hears(&one, &two, ++number));
}
