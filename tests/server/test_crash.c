/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* kill -9 at each named point of attempt, commit and sweep, then a restart (P1, P2, K02). */
#include "tests/server/world.h"

/* And what the store holds there; server.commit.after_layout is in test_layout.c. */
static const struct commit_point {
    const char *name;
    bool checksums, manifest, record;
} commit_points[] = {
    {"server.commit.before_proof", false, false, false},
    {"server.commit.after_checksums", true, false, false},
    {"server.commit.after_manifest", true, true, false},
    {"server.commit.after_transaction", true, true, false},
    {"server.commit.before_record", true, true, false},
    {"server.commit.after_record", true, true, true},
    {"server.commit.after_recorded", true, true, true},
};

struct killer {
    pid_t pid;
    uint64_t after_us;
};
static void *kill_later(void *argument) {
    const struct killer *killer = argument;
    struct timespec wait = {(time_t)(killer->after_us / 1000000),
                            (long)(killer->after_us % 1000000) * 1000};
    nanosleep(&wait, NULL); /* pause of chaos: the moment of its death */
    kill(killer->pid, SIGKILL);
    return NULL;
}

/* While the server is dead: a reader of the store alone sees a record only behind all it names. */
static void look_at_store(struct cairn_world *world, const struct cairn_version_place *place,
                          const struct commit_point *point) {
    struct cairn_key checksums, manifest, record, shard;
    cairn_key_checksums(place, &checksums);
    cairn_key_manifest(place, &manifest);
    cairn_key_committed(place, &record);
    cairn_key_shard(place, CAIRN_VIEW("rank-00000/x"), &shard);
    EXPECT(world_holds(world, &shard));
    EXPECT(world_holds(world, &checksums) == point->checksums);
    EXPECT(world_holds(world, &manifest) == point->manifest);
    EXPECT(world_holds(world, &record) == point->record);
}

/* The first answers of the next server: whatever says committed has its record (P1, Q24). */
static void look_at_answers(struct cairn_world *world, const struct cairn_hand_save *save,
                            const struct cairn_key *record) {
    CAIRN_AUTO_JSON json_t *latest = NULL, *list = NULL, *version = NULL;
    enum cairn_code code = world_call(world, "GET", WORLD_RUN "/checkpoints/latest", NULL, &latest);
    EXPECT(code == CAIRN_NOT_FOUND || (!code && world_holds(world, record)));
    EXPECT(!world_call(world, "GET", WORLD_RUN "/checkpoints", NULL, &list));
    const json_t *shown = json_array_get(json_object_get(list, "items"), 0);
    EXPECT(strcmp(world_text(shown, "state"), "committed") || world_holds(world, record));
    EXPECT(!world_call(world, "GET", save->path, NULL, &version));
    EXPECT(strcmp(world_text(version, "state"), "committed") || world_holds(world, record));
}

#define err world.err /* of the macros */

TEST(k02_a_server_killed_at_any_point_of_a_commit_finishes_it_after_its_restart) {
    for (size_t i = 0; i < CAIRN_COUNT(commit_points); i++) {
        printf("    %s\n", commit_points[i].name);
        WITH(world, world, world_start_to_die(&world, NULL, commit_points[i].name));
        struct cairn_hand_save save;
        HAND(1);
        (void)!hand_save_all(&hand, 3, 1, "error", 100, &save);
        REQUIRE(world_died(&world));
        struct cairn_version_place place = {{"llm", "seven"}, 3, save.id};
        struct cairn_key key;
        cairn_key_committed(&place, &key);
        look_at_store(&world, &place, &commit_points[i]);
        REQUIRE(world_restart(&world, NULL, NULL));
        look_at_answers(&world, &save, &key);
        EXPECT_WAITED(&save, "state", "committed");
        EXPECT(world_holds(&world, &key));
        ASK("GET", WORLD_RUN "/checkpoints/latest", NULL);
        REQUIRE(world_end(&world));
    }
}

TEST(a_record_that_a_death_left_out_is_written_by_the_next_server) { /* Q24 */
    WITH(world, world, world_start_to_die(&world, NULL, "server.commit.after_transaction"));
    struct cairn_hand_save save;
    HAND(1);
    (void)!hand_save_all(&hand, 3, 1, "error", 100, &save);
    REQUIRE(world_died(&world));
    struct cairn_version_place place = {{"llm", "seven"}, 3, save.id};
    struct cairn_key key;
    cairn_key_committed(&place, &key);
    EXPECT(!world_holds(&world, &key));
    REQUIRE(world_restart(&world, NULL, NULL));
    EXPECT_WAITED(&save, "state", "committed");
    EXPECT(world_holds(&world, &key));
}

TEST(an_attempt_whose_answer_was_lost_is_answered_again_with_its_record_there) { /* Q5, P5 */
    EACH_TEXT(text, "server.attempt.after_transaction", "server.attempt.after_record") {
        WITH(world, world, world_start_to_die(&world, NULL, text));
        struct cairn_hand hand;
        EXPECT(hand_open(&world, &hand, "j1", 0, "latest", 1) != CAIRN_OK);
        REQUIRE(world_died(&world));
        REQUIRE(world_restart(&world, NULL, NULL));
        REQUIRE_OK(hand_open(&world, &hand, "j1", 0, "latest", 1));
        EXPECT_EQ_U64(hand.attempt, 1);
        struct cairn_run_name name = {"llm", "seven"};
        struct cairn_key key;
        cairn_key_attempt(&name, 1, &key);
        EXPECT(world_holds(&world, &key));
        REQUIRE(world_end(&world));
    }
}

TEST(an_attempt_whose_job_died_before_its_answer_has_its_record_before_the_next) { /* Q5 */
    WITH(world, world, world_start_to_die(&world, NULL, "server.attempt.after_transaction"));
    struct cairn_hand hand;
    struct cairn_run_name name = {"llm", "seven"};
    struct cairn_key keys[3];
    EXPECT(hand_open(&world, &hand, "j1", 0, "latest", 1) != CAIRN_OK);
    REQUIRE(world_died(&world));
    REQUIRE(world_restart(&world, NULL, NULL));
    REQUIRE_OK(hand_open(&world, &hand, "j2", 1, "latest", 1));
    EXPECT_EQ_U64(hand.attempt, 2);
    cairn_key_attempt(&name, 1, &keys[0]);
    cairn_key_attempt_copy(&name, 1, &keys[1]);
    cairn_key_attempt(&name, 2, &keys[2]);
    for (size_t i = 0; i < CAIRN_COUNT(keys); i++) EXPECT(world_holds(&world, &keys[i]));
}

TEST(c05_a_sweep_that_was_killed_goes_on_and_takes_the_record_first) { /* Q30, C05 */
    EACH_TEXT(text, "server.sweep.after_record", "server.sweep.after_manifest",
              "server.sweep.before_gone") {
        struct cairn_hand_save save;
        JOB(1);
        REQUIRE_OK(hand_save_all(&hand, 3, 1, "error", 100, &save));
        struct cairn_version_place place = {{"llm", "seven"}, 3, save.id};
        struct cairn_key record, manifest, shard;
        cairn_key_committed(&place, &record);
        cairn_key_manifest(&place, &manifest);
        cairn_key_shard(&place, CAIRN_VIEW("rank-00000/x"), &shard);
        ASK("DELETE", save.path, NULL);
        /* It may die before it listens: the first round runs at start. */
        (void)world_restart(&world, WORLD_ARGS("--trash-grace=0ms", "--sweep-interval=50ms"),
                            WORLD_ARGS(TEXT("CAIRN_CRASH_AT=%s", text)));
        if (world.server.pid) REQUIRE(world_died(&world));
        EXPECT(!world_holds(&world, &record));
        EXPECT(world_holds(&world, &manifest) == (AT_OF(text) == 0));
        EXPECT(world_holds(&world, &shard) == (AT_OF(text) < 2));
        REQUIRE(
            world_restart(&world, WORLD_ARGS("--trash-grace=0ms", "--sweep-interval=50ms"), NULL));
        AWAIT(cairn_daemon_logged(&world.server, "version.gone"));
        EXPECT(!world_holds(&world, &shard));
        EXPECT_REFUSED(CAIRN_DELETED, "GET", save.path, NULL);
        REQUIRE(world_end(&world));
    }
}

TEST(k02_a_server_killed_at_random_moments_loses_no_acknowledged_commit) { /* P2, P5, K02 */
    JOB(1);
    static struct cairn_hand_save acked[400];
    size_t acked_count = 0;
    uint64_t step = 0, state = cairn_test_seed();
    for (int round = 0; round < 12; round++) {
        struct killer killer = {world.server.pid, cairn_test_random(&state) % 60000};
        pthread_t thread;
        REQUIRE(!pthread_create(&thread, NULL, kill_later, &killer));
        struct cairn_hand_save save;
        while (acked_count < 400 && !hand_save_all(&hand, ++step, 1, "error", 50, &save))
            acked[acked_count++] = save;
        pthread_join(thread, NULL);
        REQUIRE(world_died(&world));
        REQUIRE(world_restart(&world, NULL, NULL));
    }
    printf("    %zu acknowledged\n", acked_count);
    for (size_t i = 0; i < acked_count; i++) {
        WITH_OK(buf, text,
                cairn_rest_bytes(world.rest, "GET", TEXT("%s/manifest", acked[i].path), NULL,
                                 (struct cairn_view){0}, NULL, &text, &err));
        KEY(key, committed, &acked[i]);
        EXPECT(world_holds(&world, &key));
    }
}
