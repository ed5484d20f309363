/* SPDX-License-Identifier: Apache-2.0 */
/* A disk without room, for the journal or for the store, and a process without descriptors: who is
 * told what. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/uploader/trainer.h"

/* The uploader can write no file longer than its journal is now; the save is through with files. */
static bool fill(struct cairn_up_world *world, struct cairn_trainer *trainer,
                 const struct trainer_save *save, struct rlimit *ret_before) {
    struct stat status;
    CAIRN_AUTO_JSON json_t *durable = trainer_event(trainer, "durable", save->number, 5000);
    if (!durable) return false;
    if (stat(world->journal_path, &status)) return false;
    struct rlimit none = {(rlim_t)status.st_size + 16, RLIM_INFINITY};
    return !prlimit(world->uploader.pid, RLIMIT_FSIZE, &none, ret_before);
}

static bool drain(struct cairn_up_world *world, const struct rlimit *before) {
    return !prlimit(world->uploader.pid, RLIMIT_FSIZE, before, NULL);
}

static bool open_pair(struct cairn_up_world *world, struct cairn_trainer *one,
                      struct cairn_trainer *two) {
    struct trainer_options options = {
        .socket = world->socket_path, .job = "job-1", .world_size = 2, .local_world_size = 2};
    if (!trainer_open(one, &options)) return false;
    options.rank = 1;
    return trainer_open(two, &options);
}

TEST(a_begin_that_the_journal_has_no_room_for_fails_for_all_ranks_at_once) /* Q8, P9 */
{
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) one = {0};
    CAIRN_AUTO(trainer) two = {0};
    struct trainer_save first, second;
    struct rlimit before;
    char state[32];
    signal(SIGXFSZ, SIG_IGN); /* the daemons inherit it: a write fails instead */
    REQUIRE(world_open(&world, &(struct world_options){0}));
    REQUIRE(open_pair(&world, &one, &two));
    REQUIRE(trainer_save(&one, 1, 0, 1, 5000, &first));
    REQUIRE(fill(&world, &one, &first, &before));
    EXPECT(!trainer_begin(&two, 1, 1, &second));
    /* While the disk stays full. */
    EXPECT_EQ_TEXT(trainer_verdict(&one, first.number, 5000, state), "aborted");
    EXPECT(world_await_state(&world, first.version, "aborting", 2000));
    REQUIRE(drain(&world, &before));
    REQUIRE(trainer_save(&one, 2, 1, 1, 5000, &first));
    REQUIRE(trainer_save(&two, 2, 0, 1, 5000, &second));
    EXPECT_EQ_TEXT(trainer_verdict(&one, first.number, 10000, state), "committed");
    EXPECT_EQ_TEXT(trainer_verdict(&two, second.number, 10000, state), "committed");
}

TEST(a_begin_that_never_came_and_finds_no_room_fails_for_all_ranks_at_once) /* Q8 */
{
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) one = {0};
    CAIRN_AUTO(trainer) two = {0};
    struct trainer_save first;
    struct rlimit before;
    char state[32];
    signal(SIGXFSZ, SIG_IGN);
    REQUIRE(world_open(&world, &(struct world_options){0}));
    REQUIRE(open_pair(&world, &one, &two));
    REQUIRE(trainer_save(&one, 1, 0, 1, 5000, &first));
    REQUIRE(fill(&world, &one, &first, &before));
    json_t *answer = trainer_call(
        &two, json_pack("{s:s, s:i, s:i, s:s}", "t", "count", "step", 1, "n", 1, "reason", "none"));
    EXPECT(answer == NULL); /* nothing of it would outlive the uploader */
    EXPECT_EQ_TEXT(trainer_verdict(&one, first.number, 5000, state), "aborted");
    REQUIRE(drain(&world, &before));
}

TEST(a_limit_of_file_sizes_refuses_a_begin_and_ends_no_uploader) /* P9 */
{
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_options options = {.job = "job-1"};
    struct trainer_save save, refused;
    struct rlimit before;
    char state[32];
    signal(SIGXFSZ, SIG_DFL); /* as a shell leaves it */
    REQUIRE(world_open(&world, &(struct world_options){0}));
    options.socket = world.socket_path;
    REQUIRE(trainer_open(&trainer, &options));
    REQUIRE(trainer_save(&trainer, 1, 0, 1, 5000, &save));
    REQUIRE(fill(&world, &trainer, &save, &before));
    EXPECT(!trainer_begin(&trainer, 2, 1, &refused));
    EXPECT(!cairn_daemon_ended(&world.uploader, 100));
    REQUIRE(drain(&world, &before));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 10000, state), "committed");
    REQUIRE(trainer_save(&trainer, 3, 1, 1, 5000, &save));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 10000, state), "committed");
}

/* ---- the store ---- */

#define NO_PAUSE "uploader.send.pause:0:fail" /* more than a minute of pauses, left out */

static bool save_into_full(struct cairn_up_world *world, struct cairn_trainer *trainer,
                           const char *fault, struct trainer_save *ret) {
    struct world_options full = {.fault = fault, .crash_at = NO_PAUSE};
    if (!world_open(world, &full)) return false;
    struct trainer_options options = {.socket = world->socket_path, .job = "job-1"};
    return trainer_open(trainer, &options) && trainer_begin(trainer, 1, 1, ret) &&
           trainer_stage(trainer, ret, 0, 1, 1000);
}

TEST(a_put_that_a_full_store_refuses_twenty_times_is_put_off_and_committed) /* P9, N04 */
{
    NEEDS_POINTS();
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_save save;
    char state[32];
    REQUIRE(save_into_full(&world, &trainer, "put:*part-0*:1-20:no_space", &save));
    REQUIRE(trainer_seal(&trainer, &save));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 20000, state), "committed");
}

TEST(a_store_that_stays_full_fails_the_save_by_name_and_takes_the_next_one) /* P9, N04 */
{
    NEEDS_POINTS();
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_save save;
    char state[32];
    REQUIRE(save_into_full(&world, &trainer, "put:*part-0*:1-21:no_space", &save));
    (void)trainer_seal(&trainer, &save); /* it may have failed by then, since nothing pauses */
    CAIRN_AUTO_JSON json_t *verdict = trainer_event(&trainer, "verdict", save.number, 20000);
    REQUIRE(verdict != NULL);
    EXPECT_EQ_TEXT(json_string_value(json_object_get(verdict, "state")), "failed");
    EXPECT_EQ_TEXT(json_string_value(json_object_get(verdict, "code")), "no-space");
    const char *text = json_string_value(json_object_get(verdict, "message"));
    EXPECT(text && strstr(text, "shard rank-00000/part-0"));
    EXPECT(world_await_state(&world, save.version, "aborting", 5000));
    REQUIRE(trainer_save(&trainer, 2, 1, 1, 1000, &save));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 20000, state), "committed");
}

/* ---- K08: no descriptor for what the store opens ---- */

TEST(k08_a_save_waits_while_the_uploader_has_no_descriptors_and_is_committed_when_it_has) /* P9 */
{
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_save save;
    char state[32];
    REQUIRE(world_open(&world, &(struct world_options){0}));
    struct trainer_options options = {.socket = world.socket_path, .job = "job-1"};
    REQUIRE(trainer_open(&trainer, &options));
    REQUIRE(trainer_save(&trainer, 1, 0, 1, 1500000, &save)); /* the server's connection is open */
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 10000, state), "committed");
    REQUIRE(cairn_daemon_spare_files(&world.uploader, 0));
    REQUIRE(trainer_save(&trainer, 2, 1, 1, 1500000, &save));
    CAIRN_AUTO_JSON json_t *early = trainer_event(&trainer, "verdict", save.number, 3000);
    EXPECT(early == NULL);
    EXPECT(cairn_daemon_logged(&world.uploader, "RLIMIT_NOFILE"));
    REQUIRE(cairn_daemon_spare_files(&world.uploader, -1));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 20000, state), "committed");
}
