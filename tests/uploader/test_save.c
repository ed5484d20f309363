/* SPDX-License-Identifier: Apache-2.0 */
/* Saves with the real server behind, and what happens when it or the trainer is not there. */
#include "api/documents/records.h"
#include "tests/uploader/trainer.h"

TEST(a_save_of_two_shards_is_committed) {
    WORLD();
    TRAINER(trainer, .job = "job-1");
    EXPECT_EQ_U64(trainer.slab_count, 2);
    char state[32];
    COMMITTED(save, &trainer, 100, 0, 2, 1500000);
    EXPECT_EVENT(&trainer, "durable", save.number);
    EXPECT_EVENT(&trainer, "free", UINT32_MAX);
    EXPECT_EVENT(&trainer, "released", save.number);
    EXPECT_EQ_TEXT(world_state(&world, save.version, state), "committed");
    EXPECT(trainer_bye(&trainer));
    world_expect_drained(&world);
}

TEST(the_notice_of_a_commit_comes_without_a_heartbeat) { /* file.h#2 */
    WORLD_WITH(.uploader_args = ARGS("--heartbeat=60s"));
    TRAINER(trainer, .job = "job-1");
    uint64_t best_ms = UINT64_MAX;
    for (uint32_t i = 0; i < 4; i++) {
        SAVE(save, &trainer, 100 + i, i % 2, 1, 4096);
        uint64_t sealed_ms = cairn_mono_ms();
        EXPECT_VERDICT(&trainer, save.number, "committed");
        best_ms = cairn_min_u64(best_ms, cairn_mono_ms() - sealed_ms);
    }
    printf("  sealed to committed: %" PRIu64 " ms\n", best_ms);
    EXPECT(best_ms < 30000);
}

TEST(ranks_of_one_node_make_one_version) {
    WORLD();
    TRAINER(first, RANK_OF_TWO(0));
    TRAINER(second, RANK_OF_TWO(1));
    EXPECT_EQ_U64(first.attempt, second.attempt);
    char state[32];
    SAVE(a, &first, 7, 0, 1, 100000);
    EXPECT_EQ_TEXT(trainer_verdict(&first, a.number, 300, state), "none");
    SAVE(b, &second, 7, 0, 2, 3000000 / 2);
    EXPECT_EQ_TEXT(a.version, b.version);
    EXPECT_VERDICT(&first, a.number, "committed");
    EXPECT_VERDICT(&second, b.number, "committed");
}

TEST(a_save_may_hold_nothing_or_empty_shards) {
    WORLD();
    TRAINER(trainer, .job = "job-1");
    BEGUN(save, &trainer, 1, 1);
    SEAL_AND_COMMIT(save, &trainer);
    COMMIT(save, &trainer, 2, 0, 2, 0);
}

TEST(n06_a_server_that_is_away_costs_neither_a_stall_nor_a_save) /* uploader/saves/save.h#1, N06 */
{
    WORLD();
    TRAINER(trainer, .job = "job-1");
    world_server_kill(&world);
    struct trainer_save saves[3];
    for (uint32_t i = 0; i < 3; i++) {
        REQUIRE(trainer_save(&trainer, i, i % 2, 2, 300000, &saves[i]));
        EXPECT_EVENT(&trainer, "free", UINT32_MAX);
    }
    REQUIRE(world_server_start(&world));
    for (uint32_t i = 0; i < 3; i++) {
        EXPECT_VERDICT(&trainer, saves[i].number, "committed");
    }
}

TEST(k03_a_trainer_that_dies_before_the_seal_fails_its_save) { /* K03 */
    WORLD();
    TRAINER(trainer, .job = "job-1");
    BEGUN(save, &trainer, 1, 1);
    REQUIRE(trainer_stage(&trainer, &save, 0, 2, 1500000));
    trainer_hang_up(&trainer);
    EXPECT_STATE(&world, save.version, "aborting");
    world_expect_drained(&world);
}

TEST(k03_a_trainer_that_dies_after_the_seal_loses_nothing) { /* K03 */
    FAULTY_WORLD("part:*:1:delay@300");
    TRAINER(trainer, .job = "job-1");
    SAVE(save, &trainer, 1, 0, 2, 2000000);
    trainer_drop(&trainer);
    EXPECT_STATE(&world, save.version, "committed");
    world_expect_drained(&world);
}

TEST(a_save_given_up_after_its_seal_is_aborted_for_all) { /* Q40 */
    FAULTY_WORLD("part:*:*:delay@500");
    TRAINER(trainer, .job = "job-1");
    SAVE(save, &trainer, 1, 0, 1, 3000000);
    EXPECT(trainer_fail(&trainer, save.number, "no more"));
    EXPECT_VERDICT(&trainer, save.number, "failed");
    EXPECT_EVENT(&trainer, "free", UINT32_MAX);
    EXPECT_STATE(&world, save.version, "aborting");
}

TEST(a_fail_after_the_commit_is_told_that_it_is_too_late) { /* Q40 */
    WORLD();
    TRAINER(trainer, .job = "job-1");
    COMMITTED(save, &trainer, 1, 0, 1, 30000);
    EXPECT(!trainer_fail(&trainer, save.number, "too late"));
    EXPECT(trainer.err.code == CAIRN_ALREADY_COMMITTED || trainer.err.code == CAIRN_NOT_FOUND);
}

TEST(a_step_that_exists_is_refused_and_the_slab_comes_back) {
    WORLD();
    TRAINER(trainer, .job = "job-1");
    COMMITTED(save, &trainer, 1, 0, 1, 30000);
    EXPECT_EVENT(&trainer, "free", UINT32_MAX);
    BEGUN(again, &trainer, 1, 2);
    EXPECT_VERDICT(&trainer, again.number, "refused");
}

static bool has_verdict(const struct cairn_trainer *trainer, uint32_t save) {
    size_t index;
    json_t *event;
    json_array_foreach(trainer->events, index, event) {
        const char *name = json_string_value(json_object_get(event, "t"));
        if (name && !strcmp(name, "verdict") &&
            json_integer_value(json_object_get(event, "save")) == save)
            return true;
    }
    return false;
}

TEST(not_found_about_a_save_that_ended_comes_behind_its_verdict) {
    WORLD();
    TRAINER(trainer, .job = "job-1");
    for (uint32_t n = 1; n <= 20; n++) {
        BEGUN(save, &trainer, 1, n);
        AWAIT(!trainer_fail(&trainer, save.number, "no more"));
        EXPECT(trainer.err.code == CAIRN_NOT_FOUND);
        EXPECT(has_verdict(&trainer, save.number));
    }
}

TEST(begins_that_a_rank_abandoned_are_failed_for_it) { /* Q12 */
    WORLD();
    CAIRN_AUTO(trainer) trainer = {0}, other = {0};
    struct trainer_options options = {
        .socket = world.socket_path, .job = "job-1", .world_size = 2, .local_world_size = 2};
    REQUIRE(trainer_open(&trainer, &options));
    options.rank = 1;
    REQUIRE(trainer_open(&other, &options));
    BEGUN(a1, &trainer, 5, 1);
    SAVE(b2, &other, 5, 0, 1, 1000); /* n is 1 there too */
    EXPECT(trainer_fail(&trainer, a1.number, "x"));
    EXPECT_VERDICT(&other, b2.number, "aborted");
    /* Rank 0 goes on to n 3; nobody ever hears of its n 2. */
    BEGUN(b3, &other, 5, 2);
    BEGUN(a2, &trainer, 5, 3);
    EXPECT_VERDICT(&other, b3.number, "aborted");
}

/* Rank 1 in a process of its own: opens its attempt, says so, and waits for its end. */
static pid_t open_in_child(const struct trainer_options *options) {
    int ready[2];
    char byte = 0;
    if (pipe(ready)) return -1;
    pid_t pid = fork();
    if (pid == 0) {
        struct cairn_trainer trainer = {0};
        if (!trainer_open(&trainer, options) || write(ready[1], &byte, 1) != 1) _exit(1);
        for (;;) pause();
    }
    close(ready[1]);
    bool opened = pid > 0 && read(ready[0], &byte, 1) == 1;
    close(ready[0]);
    return opened ? pid : -1;
}

TEST(a_rank_whose_process_ended_before_its_begin_is_not_waited_for) { /* Q12, P9 */
    WORLD();
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_options options = {.socket = world.socket_path,
                                      .job = "job-1",
                                      .world_size = 2,
                                      .local_world_size = 2,
                                      .rank = 1};
    pid_t child = open_in_child(&options);
    REQUIRE(child > 0);
    options.rank = 0;
    REQUIRE(trainer_open(&trainer, &options));
    SAVE(before, &trainer, 1, 0, 1, 1000);
    EXPECT_STATE(&world, before.version, "open");
    kill(child, SIGKILL);
    CAIRN_AUTO_JSON json_t *verdict = trainer_event(&trainer, "verdict", before.number, HANG_MS);
    EXPECT_EQ_TEXT(json_string_value(json_object_get(verdict, "state")), "aborted");
    const char *why = json_string_value(json_object_get(verdict, "message"));
    EXPECT(why && strstr(why, "rank 1") && strstr(why, "has ended"));
    BEGUN(after, &trainer, 2, 1);
    EXPECT_VERDICT(&trainer, after.number, "aborted");
    waitpid(child, NULL, 0); /* nobody had waited for it: it was a zombie until now */
}

TEST(v38_a_rank_that_ended_before_the_others_of_its_start_is_not_waited_for) { /* Q12, Q54, P9 */
    WORLD();
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_options options = {.socket = world.socket_path,
                                      .job = "job-1",
                                      .incarnation = "start-1",
                                      .world_size = 2,
                                      .local_world_size = 2,
                                      .rank = 1};
    pid_t child = open_in_child(&options);
    REQUIRE(child > 0);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    REQUIRE_AWAIT(cairn_daemon_logged(&world.uploader, "session.lost"));
    options.rank = 0;
    {
        CAIRN_AUTO(trainer) stranger = {0}; /* of another start: V38 */
        struct trainer_options other = options;
        other.incarnation = "start-2";
        EXPECT(!trainer_open(&stranger, &other));
        EXPECT(stranger.err.code == CAIRN_JOB_REUSED);
    }
    REQUIRE(trainer_open(&trainer, &options));
    BEGUN(save, &trainer, 1, 1);
    EXPECT_VERDICT(&trainer, save.number, "aborted");
}

TEST(a_connection_that_ended_is_waited_for_while_its_process_lives) { /* Q15, K04 */
    WORLD();
    CAIRN_AUTO(trainer) trainer = {0}, other = {0};
    struct trainer_options options = {
        .socket = world.socket_path, .job = "job-1", .world_size = 2, .local_world_size = 2};
    REQUIRE(trainer_open(&trainer, &options));
    options.rank = 1;
    REQUIRE(trainer_open(&other, &options));
    char state[32], states[1][32];
    SAVE(save, &trainer, 1, 0, 1, 1000);
    trainer_hang_up(&other);
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 1000, state), "none");
    REQUIRE(trainer_offer(&other, NULL, 0, false, states));
    SAVE(late, &other, 1, 0, 1, 1000);
    EXPECT_VERDICT(&trainer, save.number, "committed");
    EXPECT_VERDICT(&other, late.number, "committed");
}

TEST(a_file_larger_than_the_buffers_is_a_shard) { /* uploader/send/send.h#2 */
    WORLD();
    TRAINER(trainer, .job = "job-1", .no_slabs = true);
    uint64_t bytes = 13 * CAIRN_MIB + 77;
    const char *path = TEXT("%s/big.bin", world.folder);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    uint8_t *data = malloc(bytes);
    for (uint64_t i = 0; i < bytes; i++) data[i] = trainer_byte(99, i);
    EXPECT(write(fd, data, bytes) == (ssize_t)bytes);
    free(data);
    BEGUN(save, &trainer, 1, 1);
    EXPECT(trainer_file(&trainer, save.number, "tree/big.bin", fd, bytes) == CAIRN_OK);
    close(fd);
    SEAL_AND_COMMIT(save, &trainer);
}

TEST(a_file_that_changes_while_it_is_sent_fails_the_save) { /* uploader/send/send.h#3, P4 */
    FAULTY_WORLD("part:*:1:delay@400; part:*:1:busy");
    TRAINER(trainer, .job = "job-1", .no_slabs = true);
    const char *path = TEXT("%s/changing.bin", world.folder);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    uint64_t bytes = 40 * CAIRN_MIB;
    EXPECT(ftruncate(fd, (off_t)bytes) == 0);
    BEGUN(save, &trainer, 1, 1);
    EXPECT(trainer_file(&trainer, save.number, "changing.bin", fd, bytes) == CAIRN_OK);
    EXPECT(pwrite(fd, "x", 1, 39 * (off_t)CAIRN_MIB) == 1);
    close(fd);
    (void)trainer_seal(&trainer, &save);
    CAIRN_AUTO_JSON json_t *verdict = trainer_event(&trainer, "verdict", save.number, HANG_MS);
    EXPECT_EQ_TEXT(json_string_value(json_object_get(verdict, "state")), "failed");
    EXPECT_EQ_TEXT(json_string_value(json_object_get(verdict, "code")), "source-changed");
}

TEST(n07_a_slab_that_is_written_while_it_is_sent_fails_the_save) { /* N07, P4 */
    FAULTY_WORLD("create:*:1:delay@400");
    TRAINER(trainer, .job = "job-1");
    SAVE(save, &trainer, 1, 0, 1, 3000000);
    trainer.slabs[0].data[2999999] ^= 1;
    CAIRN_AUTO_JSON json_t *verdict = trainer_event(&trainer, "verdict", save.number, HANG_MS);
    EXPECT_EQ_TEXT(json_string_value(json_object_get(verdict, "state")), "failed");
    EXPECT_EQ_TEXT(json_string_value(json_object_get(verdict, "code")), "source-changed");
    EXPECT_STATE(&world, save.version, "aborting");
}

TEST(a_budget_that_is_too_small_is_refused_with_the_numbers) { /* Q13, R9 */
    WORLD();
    CAIRN_AUTO(trainer) trainer = {0}, one = {0};
    EXPECT(!trainer_open(&trainer, &(struct trainer_options){.socket = world.socket_path,
                                                             .job = "job-1",
                                                             .bytes = CAIRN_GIB}));
    EXPECT(trainer.err.code == CAIRN_NO_MEMORY);
    EXPECT(strstr(trainer.err.message, "1073741824") != NULL);
    EXPECT(strstr(trainer.err.message, "100663296") != NULL);
    /* 60 of 96 MiB: one generation, not two. */
    REQUIRE(trainer_open(&one, &(struct trainer_options){.socket = world.socket_path,
                                                         .job = "job-2",
                                                         .bytes = 60 * CAIRN_MIB}));
    EXPECT_EQ_U64(one.slab_count, 1);
}

TEST(memory_of_a_job_that_ended_is_there_for_the_next) { /* Q13, P8b, V22 */
    WORLD();
    for (int i = 0; i < 4; i++) {
        char job[16];
        snprintf(job, sizeof(job), "job-%d", i);
        TRAINER(trainer, .job = job, .bytes = 40 * CAIRN_MIB);
        EXPECT_EQ_U64(trainer.attempt, (uint64_t)i + 1);
    }
}

TEST(a_newer_attempt_fences_the_older_one) { /* Q6 */
    WORLD();
    TRAINER(old, .job = "job-1");
    BEGUN(save, &old, 1, 1);
    TRAINER(young, .job = "job-2", .no_slabs = true);
    EXPECT_VERDICT(&old, save.number, "aborted");
    struct trainer_save late;
    EXPECT(!trainer_begin(&old, 2, 1, &late));
    EXPECT(old.err.code == CAIRN_STALE_ATTEMPT);
}

TEST(a_job_string_cannot_be_used_by_two_processes_of_one_rank) { /* Q2 */
    WORLD();
    CAIRN_AUTO(trainer) first = {0}, second = {0};
    struct trainer_options options = {
        .socket = world.socket_path, .job = "job-1", .no_slabs = true};
    REQUIRE(trainer_open(&first, &options));
    EXPECT(!trainer_open(&second, &options));
    EXPECT(second.err.code == CAIRN_JOB_REUSED);
}

TEST(k06_a_drain_finishes_what_was_staged) { /* K06 */
    FAULTY_WORLD("part:*:1:delay@500");
    TRAINER(trainer, .job = "job-1");
    SAVE(save, &trainer, 1, 0, 2, 2000000);
    EXPECT_EQ_U64(world_uploader_stop(&world), 0);
    EXPECT_STATE(&world, save.version, "committed");
    EXPECT_VERDICT(&trainer, save.number, "committed");
}

TEST(a_restarted_server_is_told_everything_again) { /* Q19, V16 */
    WORLD();
    TRAINER(first, RANK_OF_TWO(0));
    TRAINER(second, RANK_OF_TWO(1));
    char state[32];
    SAVE(a, &first, 7, 0, 2, 1500000);
    EXPECT_EVENT(&first, "durable", a.number);
    EXPECT_EQ_TEXT(trainer_verdict(&first, a.number, 500, state), "none");
    REQUIRE(world_server_restart(&world));
    SAVE(b, &second, 7, 0, 1, 1000);
    EXPECT_VERDICT(&first, a.number, "committed");
    EXPECT_VERDICT(&second, b.number, "committed");
}

TEST(k06_what_a_drain_cannot_finish_goes_on_with_the_next_start) { /* K06 */
    WORLD_WITH(.uploader_args = ARGS("--drain-timeout=300ms"));
    TRAINER(trainer, .job = "job-1");
    world_server_kill(&world);
    SAVE(save, &trainer, 1, 0, 2, 1500000);
    EXPECT_EVENT(&trainer, "durable", save.number);
    EXPECT_EQ_U64(world_uploader_stop(&world), 0);
    trainer_drop(&trainer);
    REQUIRE(world_server_start(&world));
    REQUIRE(world_uploader_start(&world, NULL, NULL));
    EXPECT_STATE(&world, save.version, "committed");
}

TEST(an_uploader_that_finds_another_store_than_its_journal_names_ends) {
    WORLD();
    TRAINER(trainer, .job = "job-1", .no_slabs = true);
    world_uploader_kill(&world); /* its journal names the store */
    char other[300];
    snprintf(other, sizeof(other), "--store=%s/elsewhere", world.folder);
    const char *const args[] = {other, NULL};
    world.uploader_args = args;
    REQUIRE(world_uploader_start(&world, NULL, NULL)); /* nothing is there yet: it waits */
    snprintf(other, sizeof(other), "%s/elsewhere/.cairn", world.folder);
    EXPECT(mkdir(other, 0755) == 0);
    struct cairn_store_record record = {
        .uuid = "11111111-1111-4111-8111-111111111111", .owner = "x", .format = 1, .generation = 1};
    CAIRN_AUTO(buf) text = {0};
    const char *file = TEXT("%s/elsewhere/.cairn/store.json", world.folder);
    REQUIRE(cairn_store_record_encode(&record, &text, &world.err) == CAIRN_OK);
    REQUIRE(cairn_file_replace(file, cairn_buf_view(&text), 0644, &world.err) == CAIRN_OK);
    EXPECT(cairn_daemon_ended(&world.uploader, HANG_MS));
    EXPECT(cairn_daemon_logged(&world.uploader, "11111111-1111-4111-8111-111111111111"));
}
