/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=s3 */
/* S08: a store that says in its reply when it wants to be asked again, as seconds or as a date. */
#include "tests/s3faults/cases.h"

/* One put that the store refuses once, with a clock of our own, so that nobody has to wait. */
struct queued {
    struct cairn_s3world *world;
    struct cairn_store_request put;
    bool done;
};
static void mark_done(struct cairn_store_request *request) {
    ((struct queued *)request->owner)->done = true;
}

static bool poll_once(struct queued *queued) {
    struct cairn_s3world *world = queued->world;
    return EXPECT(cairn_store_poll(world->worker, 20, &world->error) == CAIRN_OK);
}

/* An HTTP date as a rule wants it written. */
static const char *date_at(time_t at) {
    static char text[64];
    struct tm parts;
    gmtime_r(&at, &parts);
    strftime(text, sizeof text, "%a%%2C %d %b %Y %H:%M:%S GMT", &parts);
    return text;
}
/* By the server's clock, which is the machine's; and by the store's, which a test puts forward. */
static const char *date_in(int seconds) {
    return date_at(time(NULL) + seconds);
}
static const char *our_date_in(const struct cairn_s3world *world, int seconds) {
    const struct cairn_clock *clock = &world->clock.clock;
    return date_at((time_t)(clock->wall_ms(clock) / 1000) + seconds);
}

static void submit_refused(struct queued *queued, const char *retry_after, const char *more) {
    cairn_s3world_rules(
        queued->world,
        TEXT("op=put nth=1 : status=503/SlowDown, header=Retry-After:%s%s", retry_after, more));
    queued->put = (struct cairn_store_request){.op = CAIRN_STORE_PUT,
                                               .key = "asked",
                                               .body = CAIRN_VIEW("bytes"),
                                               .done = mark_done,
                                               .owner = queued};
    cairn_store_submit(queued->world->worker, &queued->put);
    AWAIT(poll_once(queued) && cairn_case_is_refused(queued->world));
}

/* Is it sent again between these two moments, in seconds after the refusal? */
static bool waits(struct cairn_s3world *world, const char *retry_after, const char *more,
                  unsigned at_least_s, unsigned at_most_s) {
    struct queued queued = {.world = world};
    submit_refused(&queued, retry_after, more);
    if (at_least_s) {
        cairn_clock_virtual_advance(&world->clock, at_least_s * UINT64_C(1000));
        for (int i = 0; i < 5 && !queued.done; i++) (void)poll_once(&queued);
    }
    bool early = at_least_s && queued.done;
    cairn_clock_virtual_advance(&world->clock, (at_most_s - at_least_s) * UINT64_C(1000));
    bool late = !COMES(poll_once(&queued) && queued.done);
    if (late) cairn_store_cancel(world->worker, &queued.put);
    if (early || late)
        fprintf(stderr, "Retry-After: %s was %s\n", retry_after,
                early ? "not waited for" : "waited for too long");
    return !early && !late && queued.put.code == CAIRN_OK;
}

#define PATIENT .virtual_clock = true, .s3 = {.deadline_ms = 3600000}

TEST(s08_retry_after_as_a_date_is_waited_for_like_one_in_seconds) {
    WORLD(PATIENT);
    EXPECT(waits(&world, "30", "", 25, 31));
    cairn_s3world_post(&world, "reset", "");
    REQUIRE_OK(cairn_s3world_open(&world, &world_options));
    EXPECT(waits(&world, date_in(30), "", 25, 32));
}

/* The store's clock is ten minutes ahead: its date is held against its own Date. */
TEST(s08_a_date_is_of_the_stores_clock_and_not_of_ours) {
    WORLD(PATIENT);
    cairn_s3world_post(&world, "clock", "600");
    EXPECT(waits(&world, date_in(600 + 30), "", 25, 32));
    cairn_s3world_post(&world, "reset", "");
    cairn_s3world_post(&world, "clock", "-600");
    REQUIRE_OK(cairn_s3world_open(&world, &world_options));
    EXPECT(waits(&world, date_in(-600 + 30), "", 25, 32));
}

TEST(s08_without_a_date_of_the_reply_ours_is_taken) {
    WORLD(PATIENT);
    EXPECT(waits(&world, our_date_in(&world, 30), ", drop-header=Date", 25, 33));
    cairn_s3world_post(&world, "reset", "");
    REQUIRE_OK(cairn_s3world_open(&world, &world_options));
    /* A cache's Date is old. */
    static const char old[] = ", header=Age:3000, header=Date:Fri%2C 24 May 2013 00:00:00 GMT";
    EXPECT(waits(&world, our_date_in(&world, 30), old, 25, 33));
}

TEST(s08_what_is_past_malformed_or_beyond_all_reason_is_bounded) {
    WORLD(PATIENT);
    EACH(one, FIELDS(const char *text; unsigned at_least_s, at_most_s),
         {"Fri%2C 24 May 2013 00:00:00 GMT", 0, 1}, {"soon", 0, 1}, {"-5", 0, 1},
         {"Fri%2C 24 May 2109 00:00:00 GMT", 55, 61}, {"86400", 55, 61},
         {"99999999999999999999999", 55, 61}) {
        cairn_s3world_post(&world, "reset", "");
        REQUIRE_OK(cairn_s3world_open(&world, &world_options));
        EXPECT(waits(&world, one->text, "", one->at_least_s, one->at_most_s));
    }
}
