/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* Rules of hours and days, under a clock of the test: grace, silence, sweeps, jumps (Q26, Q30, Q34,
 * T01, T02, N05). */
#include <stdio.h>

#include "tests/server/world.h"

#define MINUTE_MS UINT64_C(60000)
#define HOUR_MS (60 * MINUTE_MS)
#define YEAR_MS (INT64_C(365) * 24 * 3600000)

static void shown_state(struct cairn_world *world, const struct cairn_hand_save *save,
                        char ret[64]) {
    CAIRN_AUTO_JSON json_t *version = NULL;
    enum cairn_code code = cairn_world_call(world, "GET", save->path, NULL, &version);
    snprintf(ret, 64, "%s",
             code ? cairn_code_info(code)->slug : cairn_world_text(version, "state"));
}

#define EXPECT_STATE(save, wanted)                                                                 \
    do {                                                                                           \
        char state[64];                                                                            \
        shown_state(&world, save, state);                                                          \
        EXPECT_EQ_TEXT(state, wanted);                                                             \
    } while (0)

static size_t objects_under(struct cairn_world *world, const struct cairn_hand_save *save) {
    struct cairn_version_place place = {{"llm", "seven"}, save->step, save->id};
    struct cairn_key prefix;
    cairn_key_version_prefix(&place, &prefix);
    struct cairn_store_listing listing = {0};
    struct cairn_store_request list = {
        .op = CAIRN_STORE_LIST, .key = prefix.text, .listing = &listing};
    size_t count = cairn_store_perform(world->worker, &list, &world->err) ? 999 : listing.count;
    cairn_store_listing_release(&listing);
    return count;
}

/* An object that arrives after its version was swept, as a paused process writes it. */
static void write_late(struct cairn_world *world, const struct cairn_hand_save *save) {
    CAIRN_AUTO_JSON json_t *shard =
        cairn_hand_shard(save, "rank-00000/late", 0, CAIRN_VIEW("late"));
    EXPECT(shard != NULL);
    EXPECT_EQ_U64(objects_under(world, save), 1);
}

static enum cairn_code heartbeat(struct cairn_hand *hand, const char *node) {
    char path[64];
    snprintf(path, sizeof(path), "/v1/nodes/%s", node);
    return cairn_world_call(hand->world, "PUT", path,
                            json_pack("{s:{s:s}, s:[{s:s, s:i}], s:[]}", "uploader", "version", "1",
                                      "attempts", "grant", hand->grant, "unsent", 0, "versions"),
                            NULL);
}

#define err world.err /* of the macros */

TEST(the_trash_is_emptied_when_its_grace_is_over_and_not_a_minute_before) /* P8, Q34 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, WORLD_ARGS("--trash-grace=1h")));
    struct cairn_hand hand;
    struct cairn_hand_save one, two;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &one));
    REQUIRE_OK(cairn_hand_save_all(&hand, 2, 1, "error", 10, &two));
    REQUIRE_OK(cairn_world_call(&world, "DELETE", two.path, NULL, NULL));
    cairn_inside_pass(&world.inside, 59 * MINUTE_MS);
    EXPECT_STATE(&two, "committed");
    EXPECT(objects_under(&world, &two) > 0);
    cairn_inside_pass(&world.inside, 2 * MINUTE_MS);
    EXPECT_STATE(&two, "checkpoint-deleted");
    EXPECT_EQ_U64(objects_under(&world, &two), 0);
    EXPECT_STATE(&one, "committed");
}

TEST(the_grace_begins_with_the_delete_and_not_with_the_sweep_before_it) /* P8 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, WORLD_ARGS("--trash-grace=1h")));
    struct cairn_hand hand;
    struct cairn_hand_save one, two;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &one));
    REQUIRE_OK(cairn_hand_save_all(&hand, 2, 1, "error", 10, &two));
    cairn_inside_round(&world.inside);
    world.inside.clock.boot_ms += 50000; /* no sweep has counted these */
    REQUIRE_OK(cairn_world_call(&world, "DELETE", two.path, NULL, NULL));
    world.inside.clock.boot_ms += 10000;
    cairn_inside_round(&world.inside);
    cairn_inside_pass(&world.inside, 59 * MINUTE_MS);
    EXPECT_STATE(&two, "committed");
    cairn_inside_pass(&world.inside, MINUTE_MS);
    EXPECT_STATE(&two, "checkpoint-deleted");
}

static void abort_save(struct cairn_world *world, const struct cairn_hand_save *save) {
    char path[256];
    snprintf(path, sizeof(path), "%s/abort", save->path);
    EXPECT(!cairn_world_call(world, "POST", path, NULL, NULL));
}

TEST(writes_that_come_late_to_a_swept_version_are_swept_at_1_24_and_48_hours) /* Q30, V13 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_begin(&hand, 1, 1, "error", &save));
    abort_save(&world, &save);
    cairn_inside_pass(&world.inside, 30 * MINUTE_MS);
    EXPECT_STATE(&save, "gone");
    static const uint64_t hours[] = {1, 24, 48};
    uint64_t passed_ms = 30 * MINUTE_MS;
    for (size_t i = 0; i < CAIRN_COUNT(hours); i++) {
        write_late(&world, &save);
        uint64_t before_ms = hours[i] * HOUR_MS - 5 * MINUTE_MS - passed_ms;
        cairn_inside_pass(&world.inside, before_ms);
        EXPECT_EQ_U64(objects_under(&world, &save), 1);
        cairn_inside_pass(&world.inside, 10 * MINUTE_MS);
        EXPECT_EQ_U64(objects_under(&world, &save), 0);
        passed_ms += before_ms + 10 * MINUTE_MS;
    }
}

TEST(n05_a_rank_that_never_reports_leaves_the_save_open_for_24_hours_and_the_step_free) /* Q26 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save older, save, again;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 2));
    REQUIRE_OK(cairn_hand_save_all(&hand, 4, 1, "error", 10, &older));
    REQUIRE_OK(cairn_hand_begin(&hand, 5, 1, "error", &save));
    REQUIRE_OK(
        cairn_hand_send(&save, NULL, json_pack("[o]", cairn_hand_seal(0, NULL, "x", 4)), NULL));
    cairn_inside_pass(&world.inside, 24 * HOUR_MS - MINUTE_MS);
    EXPECT_STATE(&save, "open");
    cairn_inside_pass(&world.inside, 3 * MINUTE_MS);
    CAIRN_AUTO_JSON json_t *ended = NULL, *latest = NULL;
    REQUIRE_OK(cairn_world_call(&world, "GET", save.path, NULL, &ended));
    EXPECT(strcmp(cairn_world_text(ended, "state"), "open"));
    EXPECT(strstr(cairn_world_text(ended, "reason"), "open for more than 1d") ||
           strstr(cairn_world_text(ended, "reason"), "open for more than 24h"));
    REQUIRE_OK(cairn_world_call(&world, "GET", WORLD_RUN "/checkpoints/latest", NULL, &latest));
    EXPECT_EQ_TEXT(cairn_world_text(latest, "version"), older.id.text);
    REQUIRE_OK(cairn_hand_save_all(&hand, 5, 2, "error", 10, &again));
}

TEST(a_node_that_is_silent_for_10_minutes_ends_the_saves_that_need_it) /* Q26, V23 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save save, next;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(heartbeat(&hand, "node-a"));
    REQUIRE_OK(cairn_hand_begin(&hand, 1, 1, "error", &save));
    cairn_inside_pass(&world.inside, 9 * MINUTE_MS);
    EXPECT_STATE(&save, "open");
    REQUIRE_OK(heartbeat(&hand, "node-a")); /* heard again: counted from here */
    cairn_inside_pass(&world.inside, 9 * MINUTE_MS);
    EXPECT_STATE(&save, "open");
    cairn_inside_pass(&world.inside, 2 * MINUTE_MS);
    CAIRN_AUTO_JSON json_t *ended = NULL;
    REQUIRE_OK(cairn_world_call(&world, "GET", save.path, NULL, &ended));
    EXPECT(strstr(cairn_world_text(ended, "reason"), "node-a was not heard for"));
    /* A server that was away itself has heard nobody: silence begins at its start. */
    REQUIRE_OK(heartbeat(&hand, "node-a"));
    REQUIRE_OK(cairn_hand_begin(&hand, 2, 1, "error", &next));
    world.inside.clock.mono_ms += HOUR_MS;
    world.inside.clock.boot_ms += HOUR_MS;
    REQUIRE_OK(cairn_inside_restart(&world.inside));
    cairn_inside_pass(&world.inside, 9 * MINUTE_MS);
    EXPECT_STATE(&next, "open");
    cairn_inside_pass(&world.inside, 2 * MINUTE_MS);
    EXPECT_STATE(&next, "gone");
}

TEST(a_silent_node_whose_shards_are_all_there_ends_nothing) /* Q26 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 2));
    REQUIRE_OK(heartbeat(&hand, "node-a"));
    CAIRN_AUTO_JSON json_t *other = NULL;
    /* Rank 1 lives on a node that was never heard, so that the save stays open. */
    REQUIRE_OK(cairn_hand_begin(&hand, 1, 1, "error", &save));
    REQUIRE(cairn_world_sql(&world, "UPDATE attempt_ranks SET node = 'node-b' WHERE rank = 1"));
    json_t *shard = cairn_hand_shard(&save, "a", 0, CAIRN_VIEW("1234"));
    REQUIRE_OK(cairn_hand_send(&save, json_pack("[o]", shard),
                               json_pack("[o]", cairn_hand_seal(0, NULL, "a", 4)), &other));
    cairn_inside_pass(&world.inside, HOUR_MS);
    EXPECT_STATE(&save, "open");
}

TEST(a_wall_clock_that_jumps_10_years_deletes_and_ends_nothing) /* T01, P12 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, WORLD_ARGS("--trash-grace=1h")));
    struct cairn_hand hand;
    struct cairn_hand_save kept, trashed, open, after;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(heartbeat(&hand, "node-a"));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &kept));
    REQUIRE_OK(cairn_hand_save_all(&hand, 2, 1, "error", 10, &trashed));
    REQUIRE_OK(cairn_hand_begin(&hand, 3, 1, "error", &open));
    REQUIRE_OK(cairn_world_call(&world, "DELETE", trashed.path, NULL, NULL));
    static const int64_t jumps[] = {10, -20, 10};
    uint64_t step = 10;
    for (size_t i = 0; i < CAIRN_COUNT(jumps); i++) {
        world.inside.clock.wall_ms += jumps[i] * YEAR_MS;
        cairn_inside_pass(&world.inside, 2 * MINUTE_MS);
        EXPECT_STATE(&trashed, "committed");
        EXPECT_STATE(&open, "open");
        EXPECT_EQ_U64(objects_under(&world, &trashed), 5);
        /* What is saved under such a clock is in its place by attempt and step, not by time. */
        REQUIRE_OK(cairn_hand_save_all(&hand, ++step, 1, "error", 10, &after));
        CAIRN_AUTO_JSON json_t *latest = NULL;
        REQUIRE_OK(cairn_world_call(&world, "GET", WORLD_RUN "/checkpoints/latest", NULL, &latest));
        EXPECT_EQ_TEXT(cairn_world_text(latest, "version"), after.id.text);
    }
    EXPECT_STATE(&kept, "committed");
}

TEST(a_machine_that_slept_for_3_hours_counts_them_as_one_minute) /* T01, Q34 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, WORLD_ARGS("--trash-grace=10min")));
    struct cairn_hand hand;
    struct cairn_hand_save trashed, open;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(heartbeat(&hand, "node-a"));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &trashed));
    REQUIRE_OK(cairn_hand_begin(&hand, 2, 1, "error", &open));
    REQUIRE_OK(cairn_world_call(&world, "DELETE", trashed.path, NULL, NULL));
    cairn_inside_round(&world.inside);
    world.inside.clock.boot_ms += 3 * HOUR_MS;
    world.inside.clock.wall_ms += (int64_t)(3 * HOUR_MS); /* the mono clock slept too */
    cairn_inside_round(&world.inside);
    EXPECT_STATE(&trashed, "committed");
    EXPECT_STATE(&open, "open");
    cairn_inside_pass(&world.inside, 8 * MINUTE_MS);
    EXPECT_STATE(&trashed, "committed");
    cairn_inside_pass(&world.inside, 2 * MINUTE_MS);
    EXPECT_STATE(&trashed, "checkpoint-deleted");
}

TEST(catalog_time_goes_on_with_the_boot_clock_and_with_no_other) /* Q34 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, NULL));
    cairn_inside_round(&world.inside); /* this server has now seen the value */
    cairn_inside_round(&world.inside);
    uint64_t from = cairn_world_tick(&world);
    world.inside.clock.wall_ms += YEAR_MS;
    world.inside.clock.mono_ms += HOUR_MS;
    cairn_inside_round(&world.inside);
    EXPECT_EQ_U64(cairn_world_tick(&world), from);
    world.inside.clock.boot_ms += 7000;
    cairn_inside_round(&world.inside);
    EXPECT_EQ_U64(cairn_world_tick(&world), from + 7000);
    world.inside.clock.boot_ms += HOUR_MS;
    cairn_inside_round(&world.inside);
    EXPECT_EQ_U64(cairn_world_tick(&world), from + 7000 + MINUTE_MS);
    /* Another server's addition is not counted a second time by this one. */
    REQUIRE(cairn_world_sql(&world, "UPDATE ticks SET value = value + 30000"));
    world.inside.clock.boot_ms += 30000;
    cairn_inside_round(&world.inside);
    EXPECT_EQ_U64(cairn_world_tick(&world), from + 7000 + MINUTE_MS + 30000);
    /* The time that nobody ran is not counted at all. */
    world.inside.clock.boot_ms += 40000;
    REQUIRE_OK(cairn_inside_restart(&world.inside));
    cairn_inside_round(&world.inside);
    EXPECT_EQ_U64(cairn_world_tick(&world), from + 7000 + MINUTE_MS + 30000);
}

TEST(a_table_that_no_seal_names_is_kept_for_48_hours) /* Q33 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, NULL));
    cairn_inside_round(&world.inside);
    cairn_inside_round(&world.inside);
    REQUIRE(cairn_world_sql(&world, cairn_postgres_wanted()
                                        ? "INSERT INTO tables(digest, bytes, used_tick) SELECT "
                                          "'a'::bytea, 'a'::bytea, value FROM ticks"
                                        : "INSERT INTO tables(digest, bytes, used_tick) SELECT "
                                          "x'00', x'00', value FROM ticks"));
    cairn_inside_pass(&world.inside, 48 * HOUR_MS - MINUTE_MS);
    EXPECT_EQ_U64(cairn_world_count(&world, "SELECT count(*) FROM tables"), 1);
    cairn_inside_pass(&world.inside, 3 * MINUTE_MS);
    EXPECT_EQ_U64(cairn_world_count(&world, "SELECT count(*) FROM tables"), 0);
}

TEST(the_newest_step_is_the_highest_number_whatever_it_looks_like) /* T02, Q25 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    /* As texts 9 is above 10, and 203801190314 looks like a date of 2038. */
    static const uint64_t steps[] = {9, 10, 203801190314, CAIRN_STEP_MAX, 11};
    uint64_t highest = 0;
    for (size_t i = 0; i < CAIRN_COUNT(steps); i++) {
        world.inside.clock.wall_ms -= YEAR_MS; /* each one older than the one before, by the wall */
        REQUIRE_OK(cairn_hand_save_all(&hand, steps[i], 1, "error", 10, &save));
        highest = cairn_max_u64(highest, steps[i]);
        CAIRN_AUTO_JSON json_t *latest = NULL;
        REQUIRE_OK(cairn_world_call(&world, "GET", WORLD_RUN "/checkpoints/latest", NULL, &latest));
        EXPECT_EQ_U64(cairn_world_number(latest, "step"), highest);
    }
    static const char *const refused[] = {"-1", "2026-03-02", "0x10", "1e3",
                                          "99999999999999999999"};
    for (size_t i = 0; i < CAIRN_COUNT(refused); i++) {
        char path[128];
        snprintf(path, sizeof(path), WORLD_RUN "/checkpoints/%s", refused[i]);
        EXPECT_CODE(cairn_world_call(&world, "GET", path, NULL, NULL), CAIRN_INVALID);
    }
    json_t *body = cairn_hand_begin_body(&hand, 0, 1, 0, "error");
    json_object_set_new(body, "step", json_integer(-1));
    EXPECT_CODE(cairn_world_call(&world, "POST", WORLD_RUN "/checkpoints", body, NULL),
                CAIRN_INVALID);
}

TEST(no_event_is_dated_before_the_one_before_it_when_the_clock_is_set_back) /* P12 */
{
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE(cairn_world_start_inside(&world, NULL));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    for (uint64_t step = 1; step <= 3; step++) {
        REQUIRE_OK(cairn_hand_save_all(&hand, step, 1, "error", 10, &save));
        world.inside.clock.wall_ms -= (int64_t)HOUR_MS;
    }
    EXPECT(cairn_world_count(&world, "SELECT count(*) FROM events") > 6);
    EXPECT_EQ_U64(
        cairn_world_count(&world, "SELECT count(*) FROM events a JOIN events b ON b.seq = a.seq + "
                                  "1 WHERE b.at_ms < a.at_ms"),
        0);
    EXPECT_EQ_U64(/* the clock did go back */
                  cairn_world_count(&world,
                                    "SELECT count(*) FROM versions a JOIN versions b ON b.step = "
                                    "a.step + 1 WHERE b.committed_ms < a.committed_ms"),
                  2);
}
