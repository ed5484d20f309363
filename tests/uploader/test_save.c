/* SPDX-License-Identifier: Apache-2.0 */
/* Saves with the real server behind, and what happens when it or the trainer is not there. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/documents/records.h"
#include "common/clock.h"
#include "common/file.h"
#include "tests/uploader/trainer.h"

static const struct cairn_view none = {NULL, 0};

static bool say_bye(struct cairn_trainer *trainer) {
    CAIRN_AUTO_JSON json_t *ok = trainer_call(trainer, json_pack("{s:s}", "t", "bye"));
    return ok && trainer_is_cut(trainer, 2000);
}

TEST(a_save_of_two_shards_is_committed) {
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    REQUIRE(world_open(&world, &(struct world_options){0}));
    REQUIRE(trainer_open(&trainer,
                         &(struct trainer_options){.socket = world.socket_path, .job = "job-1"}));
    EXPECT_EQ_U64(trainer.slab_count, 2);
    struct trainer_save save;
    char state[32];
    REQUIRE(trainer_save(&trainer, 100, 0, 2, 1500000, &save));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 10000, state), "committed");
    CAIRN_AUTO_JSON json_t *durable = trainer_event(&trainer, "durable", save.number, 100);
    CAIRN_AUTO_JSON json_t *freed = trainer_event(&trainer, "free", UINT32_MAX, 100);
    CAIRN_AUTO_JSON json_t *released = trainer_event(&trainer, "released", save.number, 100);
    EXPECT(durable != NULL);
    EXPECT(freed != NULL);
    EXPECT(released != NULL);
    EXPECT_EQ_TEXT(world_state(&world, save.version, state), "committed");
    EXPECT(say_bye(&trainer));
    EXPECT_EQ_U64(world_uploader_stop(&world), 0);
    EXPECT(world_await_no_temporaries(&world));
    EXPECT_EQ_U64(world_open_entries(&world), 0);
}

TEST(the_notice_of_a_commit_comes_within_moments) /* file.h#2 */
{
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    REQUIRE(world_open(&world, &(struct world_options){0}));
    REQUIRE(trainer_open(&trainer,
                         &(struct trainer_options){.socket = world.socket_path, .job = "job-1"}));
    uint64_t best_ms = UINT64_MAX;
    for (uint32_t i = 0; i < 4; i++) {
        struct trainer_save save;
        char state[32];
        REQUIRE(trainer_save(&trainer, 100 + i, i % 2, 1, 4096, &save));
        uint64_t sealed_ms = cairn_mono_ms();
        EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 10000, state), "committed");
        best_ms = cairn_min_u64(best_ms, cairn_mono_ms() - sealed_ms);
    }
    printf("  sealed to committed: %" PRIu64 " ms\n", best_ms);
    EXPECT(best_ms < 500); /* about 50 without sanitizers */
}

TEST(ranks_of_one_node_make_one_version) {
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) first = {0};
    CAIRN_AUTO(trainer) second = {0};
    REQUIRE(world_open(&world, &(struct world_options){0}));
    struct trainer_options options = {
        .socket = world.socket_path, .job = "job-1", .world_size = 2, .local_world_size = 2};
    REQUIRE(trainer_open(&first, &options));
    options.rank = 1;
    REQUIRE(trainer_open(&second, &options));
    EXPECT_EQ_U64(first.attempt, second.attempt);
    struct trainer_save a, b;
    char state[32];
    REQUIRE(trainer_save(&first, 7, 0, 1, 100000, &a));
    EXPECT_EQ_TEXT(trainer_verdict(&first, a.number, 300, state), "none");
    REQUIRE(trainer_save(&second, 7, 0, 2, 3000000 / 2, &b));
    EXPECT_EQ_TEXT(a.version, b.version);
    EXPECT_EQ_TEXT(trainer_verdict(&first, a.number, 10000, state), "committed");
    EXPECT_EQ_TEXT(trainer_verdict(&second, b.number, 10000, state), "committed");
}

TEST(a_save_may_hold_nothing_or_empty_shards) {
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    REQUIRE(world_open(&world, &(struct world_options){0}));
    REQUIRE(trainer_open(&trainer,
                         &(struct trainer_options){.socket = world.socket_path, .job = "job-1"}));
    struct trainer_save save;
    char state[32];
    REQUIRE(trainer_begin(&trainer, 1, 1, &save));
    REQUIRE(trainer_seal(&trainer, &save));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 10000, state), "committed");
    REQUIRE(trainer_save(&trainer, 2, 0, 2, 0, &save));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 10000, state), "committed");
}

TEST(n06_a_server_that_is_away_costs_neither_a_stall_nor_a_save) /* uploader/saves/save.h#1, N06 */
{
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    REQUIRE(world_open(&world, &(struct world_options){0}));
    REQUIRE(trainer_open(&trainer,
                         &(struct trainer_options){.socket = world.socket_path, .job = "job-1"}));
    world_server_kill(&world);
    struct trainer_save saves[3];
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t from_ms = cairn_mono_ms();
        REQUIRE(trainer_save(&trainer, i, i % 2, 2, 300000, &saves[i]));
        EXPECT(cairn_mono_ms() - from_ms < 2000);
        CAIRN_AUTO_JSON json_t *freed = trainer_event(&trainer, "free", UINT32_MAX, 5000);
        EXPECT(freed != NULL);
    }
    REQUIRE(world_server_start(&world));
    for (uint32_t i = 0; i < 3; i++) {
        char state[32];
        EXPECT_EQ_TEXT(trainer_verdict(&trainer, saves[i].number, 15000, state), "committed");
    }
}

TEST(k03_a_trainer_that_dies_before_the_seal_fails_its_save) /* K03 */
{
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    REQUIRE(world_open(&world, &(struct world_options){0}));
    REQUIRE(trainer_open(&trainer,
                         &(struct trainer_options){.socket = world.socket_path, .job = "job-1"}));
    struct trainer_save save;
    REQUIRE(trainer_begin(&trainer, 1, 1, &save));
    REQUIRE(trainer_stage(&trainer, &save, 0, 2, 1500000));
    trainer_hang_up(&trainer);
    EXPECT(world_await_state(&world, save.version, "aborting", 5000));
    EXPECT_EQ_U64(world_uploader_stop(&world), 0);
    EXPECT_EQ_U64(world_open_entries(&world), 0);
}

TEST(k03_a_trainer_that_dies_after_the_seal_loses_nothing) /* K03 */
{
    NEEDS_POINTS();
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    REQUIRE(world_open(&world, &(struct world_options){.fault = "part:*:1:delay@300"}));
    REQUIRE(trainer_open(&trainer,
                         &(struct trainer_options){.socket = world.socket_path, .job = "job-1"}));
    struct trainer_save save;
    REQUIRE(trainer_save(&trainer, 1, 0, 2, 2000000, &save));
    cairn_trainer_release(&trainer);
    trainer = (struct cairn_trainer){0};
    EXPECT(world_await_state(&world, save.version, "committed", 10000));
    EXPECT_EQ_U64(world_uploader_stop(&world), 0);
    EXPECT_EQ_U64(world_open_entries(&world), 0);
}

TEST(a_save_given_up_after_its_seal_is_aborted_for_all) /* Q40 */
{
    NEEDS_POINTS();
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    REQUIRE(world_open(&world, &(struct world_options){.fault = "part:*:*:delay@500"}));
    REQUIRE(trainer_open(&trainer,
                         &(struct trainer_options){.socket = world.socket_path, .job = "job-1"}));
    struct trainer_save save;
    char state[32];
    REQUIRE(trainer_save(&trainer, 1, 0, 1, 3000000, &save));
    CAIRN_AUTO_JSON json_t *ok =
        trainer_call(&trainer, json_pack("{s:s, s:I, s:s}", "t", "fail", "save",
                                         (json_int_t)save.number, "reason", "no more"));
    EXPECT(ok != NULL);
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 10000, state), "failed");
    CAIRN_AUTO_JSON json_t *freed = trainer_event(&trainer, "free", UINT32_MAX, 5000);
    EXPECT(freed != NULL);
    EXPECT(world_await_state(&world, save.version, "aborting", 5000));
}

TEST(a_fail_after_the_commit_is_told_that_it_is_too_late) /* Q40 */
{
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    REQUIRE(world_open(&world, &(struct world_options){0}));
    REQUIRE(trainer_open(&trainer,
                         &(struct trainer_options){.socket = world.socket_path, .job = "job-1"}));
    struct trainer_save save;
    char state[32];
    REQUIRE(trainer_save(&trainer, 1, 0, 1, 30000, &save));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 10000, state), "committed");
    EXPECT(trainer_call(&trainer, json_pack("{s:s, s:I}", "t", "fail", "save",
                                            (json_int_t)save.number)) == NULL);
    EXPECT(trainer.err.code == CAIRN_ALREADY_COMMITTED || trainer.err.code == CAIRN_NOT_FOUND);
}

TEST(a_step_that_exists_is_refused_and_the_slab_comes_back) {
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    REQUIRE(world_open(&world, &(struct world_options){0}));
    REQUIRE(trainer_open(&trainer,
                         &(struct trainer_options){.socket = world.socket_path, .job = "job-1"}));
    struct trainer_save save, again;
    char state[32];
    REQUIRE(trainer_save(&trainer, 1, 0, 1, 30000, &save));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 10000, state), "committed");
    CAIRN_AUTO_JSON json_t *freed = trainer_event(&trainer, "free", UINT32_MAX, 5000);
    EXPECT(freed != NULL);
    REQUIRE(trainer_begin(&trainer, 1, 2, &again));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, again.number, 10000, state), "refused");
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
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    REQUIRE(world_open(&world, &(struct world_options){0}));
    REQUIRE(trainer_open(&trainer,
                         &(struct trainer_options){.socket = world.socket_path, .job = "job-1"}));
    for (uint32_t n = 1; n <= 20; n++) {
        struct trainer_save save;
        uint64_t until_ms = cairn_mono_ms() + 10000;
        bool known = true;
        REQUIRE(trainer_begin(&trainer, 1, n, &save));
        while (known && cairn_mono_ms() < until_ms) {
            CAIRN_AUTO_JSON json_t *ok =
                trainer_call(&trainer, json_pack("{s:s, s:I, s:s}", "t", "fail", "save",
                                                 (json_int_t)save.number, "reason", "no more"));
            known = ok != NULL;
        }
        EXPECT(!known);
        EXPECT(trainer.err.code == CAIRN_NOT_FOUND);
        EXPECT(has_verdict(&trainer, save.number));
    }
}

TEST(begins_that_a_rank_abandoned_are_failed_for_it) /* Q12 */
{
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    CAIRN_AUTO(trainer) other = {0};
    REQUIRE(world_open(&world, &(struct world_options){0}));
    struct trainer_options options = {
        .socket = world.socket_path, .job = "job-1", .world_size = 2, .local_world_size = 2};
    REQUIRE(trainer_open(&trainer, &options));
    options.rank = 1;
    REQUIRE(trainer_open(&other, &options));
    struct trainer_save a1, a2, b2, b3;
    char state[32];
    REQUIRE(trainer_begin(&trainer, 5, 1, &a1));
    REQUIRE(trainer_save(&other, 5, 0, 1, 1000, &b2)); /* n is 1 there too */
    CAIRN_AUTO_JSON json_t *ok =
        trainer_call(&trainer, json_pack("{s:s, s:I, s:s}", "t", "fail", "save",
                                         (json_int_t)a1.number, "reason", "x"));
    EXPECT(ok != NULL);
    EXPECT_EQ_TEXT(trainer_verdict(&other, b2.number, 10000, state), "aborted");
    /* Rank 0 goes on to n 3; nobody ever hears of its n 2. */
    REQUIRE(trainer_begin(&other, 5, 2, &b3));
    REQUIRE(trainer_begin(&trainer, 5, 3, &a2));
    EXPECT_EQ_TEXT(trainer_verdict(&other, b3.number, 10000, state), "aborted");
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

TEST(a_rank_whose_process_ended_before_its_begin_is_not_waited_for) /* Q12, P9 */
{
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    REQUIRE(world_open(&world, &(struct world_options){0}));
    struct trainer_options options = {.socket = world.socket_path,
                                      .job = "job-1",
                                      .world_size = 2,
                                      .local_world_size = 2,
                                      .rank = 1};
    pid_t child = open_in_child(&options);
    REQUIRE(child > 0);
    options.rank = 0;
    REQUIRE(trainer_open(&trainer, &options));
    struct trainer_save before, after;
    REQUIRE(trainer_save(&trainer, 1, 0, 1, 1000, &before));
    EXPECT(world_await_state(&world, before.version, "open", 5000));
    kill(child, SIGKILL);
    CAIRN_AUTO_JSON json_t *verdict = trainer_event(&trainer, "verdict", before.number, 3000);
    EXPECT_EQ_TEXT(json_string_value(json_object_get(verdict, "state")), "aborted");
    const char *why = json_string_value(json_object_get(verdict, "message"));
    EXPECT(why && strstr(why, "rank 1") && strstr(why, "has ended"));
    REQUIRE(trainer_begin(&trainer, 2, 1, &after));
    char state[32];
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, after.number, 3000, state), "aborted");
    waitpid(child, NULL, 0); /* nobody had waited for it: it was a zombie until now */
}

TEST(v38_a_rank_that_ended_before_the_others_of_its_start_is_not_waited_for) /* Q12, Q54, P9 */
{
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    REQUIRE(world_open(&world, &(struct world_options){0}));
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
    struct trainer_save save;
    char state[32];
    REQUIRE(trainer_begin(&trainer, 1, 1, &save));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 3000, state), "aborted");
}

TEST(a_connection_that_ended_is_waited_for_while_its_process_lives) /* Q15, K04 */
{
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    CAIRN_AUTO(trainer) other = {0};
    REQUIRE(world_open(&world, &(struct world_options){0}));
    struct trainer_options options = {
        .socket = world.socket_path, .job = "job-1", .world_size = 2, .local_world_size = 2};
    REQUIRE(trainer_open(&trainer, &options));
    options.rank = 1;
    REQUIRE(trainer_open(&other, &options));
    struct trainer_save save, late;
    char state[32], states[1][32];
    REQUIRE(trainer_save(&trainer, 1, 0, 1, 1000, &save));
    trainer_hang_up(&other);
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 1000, state), "none");
    REQUIRE(trainer_offer(&other, &options, NULL, 0, false, states));
    REQUIRE(trainer_save(&other, 1, 0, 1, 1000, &late));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 10000, state), "committed");
    EXPECT_EQ_TEXT(trainer_verdict(&other, late.number, 10000, state), "committed");
}

TEST(a_file_larger_than_the_buffers_is_a_shard) /* uploader/send/send.h#2 */
{
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    REQUIRE(world_open(&world, &(struct world_options){0}));
    REQUIRE(trainer_open(
        &trainer,
        &(struct trainer_options){.socket = world.socket_path, .job = "job-1", .no_slabs = true}));
    char path[300];
    uint64_t bytes = 13 * CAIRN_MIB + 77;
    snprintf(path, sizeof(path), "%s/big.bin", world.folder);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    uint8_t *data = malloc(bytes);
    for (uint64_t i = 0; i < bytes; i++) data[i] = trainer_byte(99, i);
    EXPECT(write(fd, data, bytes) == (ssize_t)bytes);
    free(data);
    struct trainer_save save;
    char state[32];
    REQUIRE(trainer_begin(&trainer, 1, 1, &save));
    CAIRN_AUTO(frame) frame = {0};
    EXPECT(
        trainer_ask(&trainer,
                    json_pack("{s:s, s:I, s:s, s:I}", "t", "file", "save", (json_int_t)save.number,
                              "name", "tree/big.bin", "bytes", (json_int_t)bytes),
                    none, &fd, 1, &frame) == CAIRN_OK);
    close(fd);
    REQUIRE(trainer_seal(&trainer, &save));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 15000, state), "committed");
}

TEST(a_file_that_changes_while_it_is_sent_fails_the_save) /* uploader/send/send.h#3, P4 */
{
    NEEDS_POINTS();
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    REQUIRE(
        world_open(&world, &(struct world_options){.fault = "part:*:1:delay@400; part:*:1:busy"}));
    REQUIRE(trainer_open(
        &trainer,
        &(struct trainer_options){.socket = world.socket_path, .job = "job-1", .no_slabs = true}));
    char path[300];
    snprintf(path, sizeof(path), "%s/changing.bin", world.folder);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    uint64_t bytes = 40 * CAIRN_MIB;
    EXPECT(ftruncate(fd, (off_t)bytes) == 0);
    struct trainer_save save;
    REQUIRE(trainer_begin(&trainer, 1, 1, &save));
    CAIRN_AUTO(frame) frame = {0};
    EXPECT(
        trainer_ask(&trainer,
                    json_pack("{s:s, s:I, s:s, s:I}", "t", "file", "save", (json_int_t)save.number,
                              "name", "changing.bin", "bytes", (json_int_t)bytes),
                    none, &fd, 1, &frame) == CAIRN_OK);
    EXPECT(pwrite(fd, "x", 1, 39 * (off_t)CAIRN_MIB) == 1);
    close(fd);
    (void)trainer_seal(&trainer, &save);
    CAIRN_AUTO_JSON json_t *verdict = trainer_event(&trainer, "verdict", save.number, 15000);
    EXPECT_EQ_TEXT(json_string_value(json_object_get(verdict, "state")), "failed");
    EXPECT_EQ_TEXT(json_string_value(json_object_get(verdict, "code")), "source-changed");
}

TEST(n07_a_slab_that_is_written_while_it_is_sent_fails_the_save) /* N07, P4 */
{
    NEEDS_POINTS();
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    REQUIRE(world_open(&world, &(struct world_options){.fault = "create:*:1:delay@400"}));
    REQUIRE(trainer_open(&trainer,
                         &(struct trainer_options){.socket = world.socket_path, .job = "job-1"}));
    struct trainer_save save;
    REQUIRE(trainer_save(&trainer, 1, 0, 1, 3000000, &save));
    trainer.slabs[0].data[2999999] ^= 1;
    CAIRN_AUTO_JSON json_t *verdict = trainer_event(&trainer, "verdict", save.number, 10000);
    EXPECT_EQ_TEXT(json_string_value(json_object_get(verdict, "state")), "failed");
    EXPECT_EQ_TEXT(json_string_value(json_object_get(verdict, "code")), "source-changed");
    EXPECT(world_await_state(&world, save.version, "aborting", 5000));
}

TEST(a_budget_that_is_too_small_is_refused_with_the_numbers) /* Q13, R9 */
{
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    CAIRN_AUTO(trainer) one = {0};
    REQUIRE(world_open(&world, &(struct world_options){0}));
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

TEST(memory_of_a_job_that_ended_is_there_for_the_next) /* Q13, P8b, V22 */
{
    CAIRN_AUTO(up_world) world = {0};
    REQUIRE(world_open(&world, &(struct world_options){0}));
    for (int i = 0; i < 4; i++) {
        CAIRN_AUTO(trainer) trainer = {0};
        char job[16];
        snprintf(job, sizeof(job), "job-%d", i);
        REQUIRE(trainer_open(&trainer, &(struct trainer_options){.socket = world.socket_path,
                                                                 .job = job,
                                                                 .bytes = 40 * CAIRN_MIB}));
        EXPECT_EQ_U64(trainer.attempt, (uint64_t)i + 1);
    }
}

TEST(a_newer_attempt_fences_the_older_one) /* Q6 */
{
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) old = {0};
    CAIRN_AUTO(trainer) young = {0};
    REQUIRE(world_open(&world, &(struct world_options){0}));
    REQUIRE(
        trainer_open(&old, &(struct trainer_options){.socket = world.socket_path, .job = "job-1"}));
    struct trainer_save save;
    char state[32];
    REQUIRE(trainer_begin(&old, 1, 1, &save));
    REQUIRE(trainer_open(
        &young,
        &(struct trainer_options){.socket = world.socket_path, .job = "job-2", .no_slabs = true}));
    EXPECT_EQ_TEXT(trainer_verdict(&old, save.number, 10000, state), "aborted");
    struct trainer_save late;
    EXPECT(!trainer_begin(&old, 2, 1, &late));
    EXPECT(old.err.code == CAIRN_STALE_ATTEMPT);
}

TEST(a_job_string_cannot_be_used_by_two_processes_of_one_rank) /* Q2 */
{
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) first = {0};
    CAIRN_AUTO(trainer) second = {0};
    REQUIRE(world_open(&world, &(struct world_options){0}));
    struct trainer_options options = {
        .socket = world.socket_path, .job = "job-1", .no_slabs = true};
    REQUIRE(trainer_open(&first, &options));
    EXPECT(!trainer_open(&second, &options));
    EXPECT(second.err.code == CAIRN_JOB_REUSED);
}

TEST(k06_a_drain_finishes_what_was_staged) /* K06 */
{
    NEEDS_POINTS();
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    REQUIRE(world_open(&world, &(struct world_options){.fault = "part:*:1:delay@500"}));
    REQUIRE(trainer_open(&trainer,
                         &(struct trainer_options){.socket = world.socket_path, .job = "job-1"}));
    struct trainer_save save;
    char state[32];
    REQUIRE(trainer_save(&trainer, 1, 0, 2, 2000000, &save));
    EXPECT_EQ_U64(world_uploader_stop(&world), 0);
    EXPECT(world_await_state(&world, save.version, "committed", 5000));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 1000, state), "committed");
}

TEST(a_restarted_server_is_told_everything_again) /* Q19, V16 */
{
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) first = {0};
    CAIRN_AUTO(trainer) second = {0};
    REQUIRE(world_open(&world, &(struct world_options){0}));
    struct trainer_options options = {
        .socket = world.socket_path, .job = "job-1", .world_size = 2, .local_world_size = 2};
    REQUIRE(trainer_open(&first, &options));
    options.rank = 1;
    REQUIRE(trainer_open(&second, &options));
    struct trainer_save a, b;
    char state[32];
    REQUIRE(trainer_save(&first, 7, 0, 2, 1500000, &a));
    CAIRN_AUTO_JSON json_t *durable = trainer_event(&first, "durable", a.number, 5000);
    EXPECT(durable != NULL);
    EXPECT_EQ_TEXT(trainer_verdict(&first, a.number, 500, state), "none");
    world_server_kill(&world);
    REQUIRE(world_server_start(&world));
    REQUIRE(trainer_save(&second, 7, 0, 1, 1000, &b));
    EXPECT_EQ_TEXT(trainer_verdict(&first, a.number, 15000, state), "committed");
    EXPECT_EQ_TEXT(trainer_verdict(&second, b.number, 15000, state), "committed");
}

TEST(k06_what_a_drain_cannot_finish_goes_on_with_the_next_start) /* K06 */
{
    static const char *const brief[] = {"--drain-timeout=300ms", NULL};
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    REQUIRE(world_open(&world, &(struct world_options){.uploader_args = brief}));
    REQUIRE(trainer_open(&trainer,
                         &(struct trainer_options){.socket = world.socket_path, .job = "job-1"}));
    world_server_kill(&world);
    struct trainer_save save;
    REQUIRE(trainer_save(&trainer, 1, 0, 2, 1500000, &save));
    CAIRN_AUTO_JSON json_t *durable = trainer_event(&trainer, "durable", save.number, 5000);
    EXPECT(durable != NULL);
    EXPECT_EQ_U64(world_uploader_stop(&world), 0);
    cairn_trainer_release(&trainer);
    trainer = (struct cairn_trainer){0};
    REQUIRE(world_server_start(&world));
    REQUIRE(world_uploader_start(&world, NULL, NULL));
    EXPECT(world_await_state(&world, save.version, "committed", 10000));
}

TEST(an_uploader_that_finds_another_store_than_its_journal_names_ends) {
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    REQUIRE(world_open(&world, &(struct world_options){0}));
    REQUIRE(trainer_open(
        &trainer,
        &(struct trainer_options){.socket = world.socket_path, .job = "job-1", .no_slabs = true}));
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
    char file[400];
    snprintf(file, sizeof(file), "%s/elsewhere/.cairn/store.json", world.folder);
    REQUIRE(cairn_store_record_encode(&record, &text, &world.err) == CAIRN_OK);
    REQUIRE(cairn_file_replace(file, cairn_buf_view(&text), 0644, &world.err) == CAIRN_OK);
    EXPECT(cairn_daemon_ended(&world.uploader, 5000));
    EXPECT(cairn_daemon_logged(&world.uploader, "11111111-1111-4111-8111-111111111111"));
}
