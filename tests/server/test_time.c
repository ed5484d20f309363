/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* Rules of hours and days, under a clock of the test: grace, silence, sweeps, jumps (Q26, Q30, Q34,
 * T01, T02, N05). */
#include "tests/server/world.h"

#define YEAR_MS (INT64_C(365) * 24 * 3600000)

/* An object that arrives after its version was swept, as a paused process writes it. */
static void write_late(const struct cairn_hand_save *save) {
    CAIRN_AUTO_JSON json_t *shard = hand_shard(save, "rank-00000/late", 0, CAIRN_VIEW("late"));
    EXPECT(shard != NULL);
    EXPECT_EQ_U64(hand_objects(save), 1);
}

#define err world.err /* of the macros */

TEST(the_trash_is_emptied_when_its_grace_is_over_and_not_a_minute_before) { /* P8, Q34 */
    JOB_INSIDE(1, "--trash-grace=1h");
    SAVED(one, 1);
    SAVED(two, 2);
    ASK("DELETE", two.path, NULL);
    inside_pass(&world.inside, 59 * MINUTE_MS);
    EXPECT_STATE(&two, "committed");
    EXPECT(hand_objects(&two) > 0);
    inside_pass(&world.inside, 2 * MINUTE_MS);
    EXPECT_STATE(&two, "checkpoint-deleted");
    EXPECT_EQ_U64(hand_objects(&two), 0);
    EXPECT_STATE(&one, "committed");
}

TEST(the_grace_begins_with_the_delete_and_not_with_the_sweep_before_it) { /* P8 */
    JOB_INSIDE(1, "--trash-grace=1h");
    SAVED(one, 1);
    SAVED(two, 2);
    inside_round(&world.inside);
    world.inside.clock.boot_ms += 50000; /* no sweep has counted these */
    ASK("DELETE", two.path, NULL);
    world.inside.clock.boot_ms += 10000;
    inside_round(&world.inside);
    inside_pass(&world.inside, 59 * MINUTE_MS);
    EXPECT_STATE(&two, "committed");
    inside_pass(&world.inside, MINUTE_MS);
    EXPECT_STATE(&two, "checkpoint-deleted");
}

TEST(writes_that_come_late_to_a_swept_version_are_swept_at_1_24_and_48_hours) { /* Q30, V13 */
    JOB_INSIDE(1);
    BEGUN(save, 1);
    EXPECT(!hand_post(&save, "abort", NULL, NULL));
    inside_pass(&world.inside, 30 * MINUTE_MS);
    EXPECT_STATE(&save, "gone");
    uint64_t passed_ms = 30 * MINUTE_MS;
    EACH_OF(uint64_t, number, 1, 24, 48) {
        write_late(&save);
        uint64_t before_ms = number * HOUR_MS - 5 * MINUTE_MS - passed_ms;
        inside_pass(&world.inside, before_ms);
        EXPECT_EQ_U64(hand_objects(&save), 1);
        inside_pass(&world.inside, 10 * MINUTE_MS);
        EXPECT_EQ_U64(hand_objects(&save), 0);
        passed_ms += before_ms + 10 * MINUTE_MS;
    }
}

TEST(n05_a_rank_that_never_reports_leaves_the_save_open_for_24_hours_and_the_step_free) { /* Q26 */
    struct cairn_hand_save again;
    JOB_INSIDE(2);
    SAVED(older, 4);
    BEGUN(save, 5);
    REQUIRE_OK(hand_seal_alone(&save, 0, "x", 4));
    inside_pass(&world.inside, 24 * HOUR_MS - MINUTE_MS);
    EXPECT_STATE(&save, "open");
    inside_pass(&world.inside, 3 * MINUTE_MS);
    GOT(ended, save.path);
    EXPECT(strcmp(world_text(ended, "state"), "open"));
    EXPECT(strstr(world_text(ended, "reason"), "open for more than 1d") ||
           strstr(world_text(ended, "reason"), "open for more than 24h"));
    EXPECT_GET(WORLD_RUN "/checkpoints/latest", "version", older.id.text);
    REQUIRE_OK(hand_save_all(&hand, 5, 2, "error", 10, &again));
}

TEST(a_node_that_is_silent_for_10_minutes_ends_the_saves_that_need_it) { /* Q26, V23 */
    JOB_INSIDE(1);
    REQUIRE_OK(hand_beat(&hand, "node-a"));
    BEGUN(save, 1);
    inside_pass(&world.inside, 9 * MINUTE_MS);
    EXPECT_STATE(&save, "open");
    REQUIRE_OK(hand_beat(&hand, "node-a")); /* heard again: counted from here */
    inside_pass(&world.inside, 9 * MINUTE_MS);
    EXPECT_STATE(&save, "open");
    inside_pass(&world.inside, 2 * MINUTE_MS);
    GOT(ended, save.path);
    EXPECT(strstr(world_text(ended, "reason"), "node-a was not heard for"));
    /* A server that was away itself has heard nobody: silence begins at its start. */
    REQUIRE_OK(hand_beat(&hand, "node-a"));
    BEGUN(next, 2);
    world.inside.clock.mono_ms += HOUR_MS;
    world.inside.clock.boot_ms += HOUR_MS;
    REQUIRE_OK(inside_restart(&world.inside));
    inside_pass(&world.inside, 9 * MINUTE_MS);
    EXPECT_STATE(&next, "open");
    inside_pass(&world.inside, 2 * MINUTE_MS);
    EXPECT_STATE(&next, "gone");
}

TEST(a_silent_node_whose_shards_are_all_there_ends_nothing) { /* Q26 */
    JOB_INSIDE(2);
    REQUIRE_OK(hand_beat(&hand, "node-a"));
    CAIRN_AUTO_JSON json_t *other = NULL;
    /* Rank 1 lives on a node that was never heard, so that the save stays open. */
    BEGUN(save, 1);
    REQUIRE(world_sql(&world, "UPDATE attempt_ranks SET node = 'node-b' WHERE rank = 1"));
    json_t *shard = hand_shard(&save, "a", 0, CAIRN_VIEW("1234"));
    REQUIRE_OK(hand_send(&save, json_pack("[o]", shard),
                         json_pack("[o]", hand_seal(0, NULL, "a", 4)), &other));
    inside_pass(&world.inside, HOUR_MS);
    EXPECT_STATE(&save, "open");
}

TEST(a_wall_clock_that_jumps_10_years_deletes_and_ends_nothing) { /* T01, P12 */
    struct cairn_hand_save after;
    JOB_INSIDE(1, "--trash-grace=1h");
    REQUIRE_OK(hand_beat(&hand, "node-a"));
    SAVED(kept, 1);
    SAVED(trashed, 2);
    BEGUN(open, 3);
    ASK("DELETE", trashed.path, NULL);
    uint64_t step = 10;
    EACH_OF(int64_t, one, 10, -20, 10) {
        world.inside.clock.wall_ms += one * YEAR_MS;
        inside_pass(&world.inside, 2 * MINUTE_MS);
        EXPECT_STATE(&trashed, "committed");
        EXPECT_STATE(&open, "open");
        EXPECT_EQ_U64(hand_objects(&trashed), 5);
        /* What is saved under such a clock is in its place by attempt and step, not by time. */
        REQUIRE_OK(hand_save_all(&hand, ++step, 1, "error", 10, &after));
        EXPECT_GET(WORLD_RUN "/checkpoints/latest", "version", after.id.text);
    }
    EXPECT_STATE(&kept, "committed");
}

TEST(a_machine_that_slept_for_3_hours_counts_them_as_one_minute) { /* T01, Q34 */
    JOB_INSIDE(1, "--trash-grace=10min");
    REQUIRE_OK(hand_beat(&hand, "node-a"));
    SAVED(trashed, 1);
    BEGUN(open, 2);
    ASK("DELETE", trashed.path, NULL);
    inside_round(&world.inside);
    world.inside.clock.boot_ms += 3 * HOUR_MS;
    world.inside.clock.wall_ms += (int64_t)(3 * HOUR_MS); /* the mono clock slept too */
    inside_round(&world.inside);
    EXPECT_STATE(&trashed, "committed");
    EXPECT_STATE(&open, "open");
    inside_pass(&world.inside, 8 * MINUTE_MS);
    EXPECT_STATE(&trashed, "committed");
    inside_pass(&world.inside, 2 * MINUTE_MS);
    EXPECT_STATE(&trashed, "checkpoint-deleted");
}

TEST(catalog_time_goes_on_with_the_boot_clock_and_with_no_other) { /* Q34 */
    INSIDE();
    inside_round(&world.inside); /* this server has now seen the value */
    inside_round(&world.inside);
    uint64_t from = world_tick(&world);
    world.inside.clock.wall_ms += YEAR_MS;
    world.inside.clock.mono_ms += HOUR_MS;
    inside_round(&world.inside);
    EXPECT_EQ_U64(world_tick(&world), from);
    world.inside.clock.boot_ms += 7000;
    inside_round(&world.inside);
    EXPECT_EQ_U64(world_tick(&world), from + 7000);
    world.inside.clock.boot_ms += HOUR_MS;
    inside_round(&world.inside);
    EXPECT_EQ_U64(world_tick(&world), from + 7000 + MINUTE_MS);
    /* Another server's addition is not counted a second time by this one. */
    REQUIRE(world_sql(&world, "UPDATE ticks SET value = value + 30000"));
    world.inside.clock.boot_ms += 30000;
    inside_round(&world.inside);
    EXPECT_EQ_U64(world_tick(&world), from + 7000 + MINUTE_MS + 30000);
    /* The time that nobody ran is not counted at all. */
    world.inside.clock.boot_ms += 40000;
    REQUIRE_OK(inside_restart(&world.inside));
    inside_round(&world.inside);
    EXPECT_EQ_U64(world_tick(&world), from + 7000 + MINUTE_MS + 30000);
}

TEST(a_table_that_no_seal_names_is_kept_for_48_hours) { /* Q33 */
    INSIDE();
    inside_round(&world.inside);
    inside_round(&world.inside);
    REQUIRE(world_sql(&world, cairn_postgres_wanted()
                                  ? "INSERT INTO tables(digest, bytes, used_tick) SELECT "
                                    "'a'::bytea, 'a'::bytea, value FROM ticks"
                                  : "INSERT INTO tables(digest, bytes, used_tick) SELECT "
                                    "x'00', x'00', value FROM ticks"));
    inside_pass(&world.inside, 48 * HOUR_MS - MINUTE_MS);
    EXPECT_ROWS(1, "tables");
    inside_pass(&world.inside, 3 * MINUTE_MS);
    EXPECT_ROWS(0, "tables");
}

TEST(the_newest_step_is_the_highest_number_whatever_it_looks_like) { /* T02, Q25 */
    struct cairn_hand_save save;
    JOB_INSIDE(1);
    /* As texts 9 is above 10, and 203801190314 looks like a date of 2038. */
    uint64_t highest = 0;
    EACH_OF(uint64_t, number, 9, 10, 203801190314, CAIRN_STEP_MAX, 11) {
        world.inside.clock.wall_ms -= YEAR_MS; /* each one older than the one before, by the wall */
        REQUIRE_OK(hand_save_all(&hand, number, 1, "error", 10, &save));
        highest = cairn_max_u64(highest, number);
        GOT(latest, WORLD_RUN "/checkpoints/latest");
        EXPECT_EQ_U64(world_number(latest, "step"), highest);
    }
    EACH_TEXT(text, "-1", "2026-03-02", "0x10", "1e3", "99999999999999999999") {
        EXPECT_REFUSED(CAIRN_INVALID, "GET", TEXT(WORLD_RUN "/checkpoints/%s", text), NULL);
    }
    json_t *body = hand_begin_body(&hand, 0, 1, 0, "error");
    json_object_set_new(body, "step", json_integer(-1));
    EXPECT_REFUSED(CAIRN_INVALID, "POST", WORLD_RUN "/checkpoints", body);
}

TEST(no_event_is_dated_before_the_one_before_it_when_the_clock_is_set_back) { /* P12 */
    struct cairn_hand_save save;
    JOB_INSIDE(1);
    for (uint64_t step = 1; step <= 3; step++) {
        REQUIRE_OK(hand_save_all(&hand, step, 1, "error", 10, &save));
        world.inside.clock.wall_ms -= (int64_t)HOUR_MS;
    }
    EXPECT(world_count(&world, "SELECT count(*) FROM events") > 6);
    EXPECT_ROWS(0, "events a JOIN events b ON b.seq = a.seq + 1 WHERE b.at_ms < a.at_ms");
    EXPECT_ROWS(2, "versions a JOIN versions b ON b.step = a.step + 1 "
                   "WHERE b.committed_ms < a.committed_ms");
}
