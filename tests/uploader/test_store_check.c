/* SPDX-License-Identifier: Apache-2.0 */
/* Q55: nothing is sent to a store that was not checked under this mount or prefix. The mount that
 * is away is an empty folder in its place. */
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "tests/uploader/trainer.h"

/* ---- the mount ---- */

static bool mount_goes(const struct cairn_up_world *world) {
    char away[340];
    snprintf(away, sizeof(away), "%s.away", world->store_path);
    return EXPECT(rename(world->store_path, away) == 0) &&
           EXPECT(mkdir(world->store_path, 0777) == 0);
}

static unsigned files;
static int count_file(const char *path, const struct stat *status, int kind, struct FTW *place) {
    (void)path, (void)status, (void)place;
    files += kind != FTW_D;
    return 0;
}
static unsigned files_in(const char *folder) {
    files = 0;
    return nftw(folder, count_file, 8, FTW_PHYS) ? UINT32_MAX : files;
}

static bool mount_comes(const struct cairn_up_world *world) {
    char away[340];
    snprintf(away, sizeof(away), "%s.away", world->store_path);
    EXPECT_EQ_U64(files_in(world->store_path), 0); /* nothing went to the wrong place */
    return EXPECT(rmdir(world->store_path) == 0) && EXPECT(rename(away, world->store_path) == 0);
}

/* What the node's last heartbeat says of its store; NULL: nothing is wrong. The caller frees it. */
static json_t *told_by_heartbeat(struct cairn_up_world *world) {
    CAIRN_AUTO_JSON json_t *reply = world_get(world, "/v1/nodes");
    const json_t *nodes = json_object_get(reply, "items");
    const json_t *uploader = json_object_get(json_array_get(nodes, 0), "uploader");
    return json_incref(json_object_get(uploader, "store_waits"));
}

static bool says_that_it_waits(void *owner) {
    CAIRN_AUTO_JSON json_t *told = told_by_heartbeat(owner);
    return json_is_string(told);
}
static bool says_nothing(void *owner) {
    return !says_that_it_waits(owner);
}

/* ---- folder ---- */

TEST(q55_a_restart_while_the_mount_is_away_waits_and_sends_nothing) /* A, P2 */
{
    NEEDS_POINTS();
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_options options = {.job = "job-1"};
    REQUIRE(world_open(&world, &(struct world_options){.fault = "create:*:*:hang;put:*:*:hang"}));
    options.socket = world.socket_path;
    REQUIRE(trainer_open(&trainer, &options));
    struct trainer_save save;
    char states[1][32], state[32];
    REQUIRE(trainer_save(&trainer, 1, 0, 2, 1500000, &save));
    world_uploader_kill(&world);
    REQUIRE(mount_goes(&world));
    REQUIRE(world_uploader_start(&world, NULL, NULL));
    REQUIRE(trainer_offer(&trainer, &options, &save, 1, true, states));
    EXPECT(world_await(says_that_it_waits, &world, 5000));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 1000, state), "none");
    EXPECT(cairn_daemon_logged(&world.uploader, "store.not_ready"));
    REQUIRE(mount_comes(&world));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 10000, state), "committed");
    EXPECT(world_await(says_nothing, &world, 5000));
}

TEST(q55_a_mount_that_goes_away_while_it_runs_is_noticed_and_waited_for) {
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_options options = {.job = "job-1"};
    REQUIRE(world_open(&world, &(struct world_options){0}));
    options.socket = world.socket_path;
    REQUIRE(trainer_open(&trainer, &options));
    struct trainer_save save;
    char state[32];
    REQUIRE(trainer_save(&trainer, 1, 0, 1, 1500000, &save));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 10000, state), "committed");
    for (uint64_t step = 2; step < 5; step++) { /* again and again */
        REQUIRE(mount_goes(&world));
        REQUIRE(trainer_save(&trainer, step, 0, 2, 1500000, &save));
        EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 700, state), "none");
        REQUIRE(mount_comes(&world));
        EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 10000, state), "committed");
    }
}

TEST(q55_a_trainer_hears_that_the_store_is_away_and_that_it_is_back) /* Q43 */
{
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    REQUIRE(world_open(&world, &(struct world_options){0}));
    struct trainer_options options = {.job = "job-1", .socket = world.socket_path};
    REQUIRE(trainer_open(&trainer, &options));
    struct trainer_save save;
    char state[32];
    REQUIRE(mount_goes(&world));
    REQUIRE(trainer_save(&trainer, 1, 0, 1, 1500000, &save));
    CAIRN_AUTO_JSON json_t *away = trainer_event(&trainer, "problem", UINT32_MAX, 10000);
    const char *text = json_string_value(json_object_get(away, "message"));
    EXPECT(text && strstr(text, "node n1 sends nothing") && strstr(text, "store"));
    EXPECT_EQ_TEXT(json_string_value(json_object_get(away, "code")), "unavailable");
    CAIRN_AUTO_JSON json_t *twice = trainer_event(&trainer, "problem", UINT32_MAX, 2500);
    EXPECT(twice == NULL);
    REQUIRE(mount_comes(&world));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 10000, state), "committed");
    CAIRN_AUTO_JSON json_t *back = trainer_event(&trainer, "problem", UINT32_MAX, 5000);
    EXPECT_EQ_TEXT(json_string_value(json_object_get(back, "code")), "ok");
}

static char unfinished[600];
static int note_unfinished(const char *path, const struct stat *status, int kind,
                           struct FTW *place) {
    (void)status;
    if (kind == FTW_F && strstr(path + place->base, ".tmp"))
        snprintf(unfinished, sizeof(unfinished), "%s", path);
    return 0;
}

/* Zeros where the first part was: it was acknowledged, and died in the memory of the old mount. */
static bool lose_first_part(const struct cairn_up_world *world, size_t bytes) {
    char away[340];
    CAIRN_AUTO_HEAP char *zeros = calloc(1, bytes);
    snprintf(away, sizeof(away), "%s.away", world->store_path);
    unfinished[0] = '\0';
    if (nftw(away, note_unfinished, 16, FTW_PHYS) || !unfinished[0] || !zeros) return false;
    CAIRN_AUTO_FD fd = open(unfinished, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && pwrite(fd, zeros, bytes, 0) == (ssize_t)bytes;
}

TEST(q55_what_was_acknowledged_before_a_gap_is_looked_at_before_the_upload_goes_on) /* P2 */
{
    NEEDS_POINTS();
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_options options = {.job = "job-1"};
    REQUIRE(world_open(&world, &(struct world_options){.fault = "part:*:2:delay@3000"}));
    options.socket = world.socket_path;
    REQUIRE(trainer_open(&trainer, &options));
    struct trainer_save save;
    char state[32], path[900];
    REQUIRE(trainer_save(&trainer, 1, 0, 1, 2 * CAIRN_MIB, &save));
    CAIRN_AUTO_JSON json_t *released = trainer_event(&trainer, "released", save.number, 5000);
    REQUIRE(json_integer_value(json_object_get(released, "offset")) == 0);
    REQUIRE(mount_goes(&world));
    REQUIRE(lose_first_part(&world, CAIRN_MIB));
    EXPECT(world_await(says_that_it_waits, &world, 5000));
    REQUIRE(mount_comes(&world));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 20000, state), "committed");
    CAIRN_AUTO(buf) stored = {0};
    snprintf(path, sizeof(path), "%s/llm/seven/%012d/%s/data/%s", world.store_path, 1, save.version,
             save.shards[0].name);
    REQUIRE(cairn_file_load(path, &stored, &world.err) == CAIRN_OK);
    EXPECT_EQ_U64(stored.size, 2 * CAIRN_MIB);
    EXPECT(!memcmp(stored.data, trainer.slabs[0].data, 2 * CAIRN_MIB));
}

TEST(q55_a_mistyped_folder_takes_no_attempt_and_no_byte) {
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    REQUIRE(world_open(&world, &(struct world_options){0}));
    world_uploader_kill(&world);
    char other[340], folder[300];
    snprintf(folder, sizeof(folder), "%s/elsewhere", world.folder);
    snprintf(other, sizeof(other), "--store=%s", folder);
    const char *const args[] = {other, NULL};
    world.uploader_args = args;
    REQUIRE(world_uploader_start(&world, NULL, NULL));
    EXPECT(!trainer_open(
        &trainer,
        &(struct trainer_options){.socket = world.socket_path, .job = "job-1", .no_slabs = true}));
    EXPECT(trainer.err.code == CAIRN_UNAVAILABLE);
    EXPECT(strstr(trainer.err.message, "store.json") != NULL);
    EXPECT_EQ_U64(files_in(folder), 0);
}

/* ---- S3 ---- */

/* How often the first rule has acted. */
static uint64_t refused_looks(struct cairn_up_world *world) {
    struct cairn_rest_options options = {.url = world->s3.url, .timeout_ms = 5000};
    CAIRN_AUTO_PTR(rest) rest = NULL;
    CAIRN_AUTO(buf) text = {.limit = 16 * CAIRN_MIB};
    if (!EXPECT(!cairn_rest_new(&options, &rest, &world->err)) ||
        !EXPECT(!cairn_rest_bytes(rest, "GET", "/-/state", NULL, (struct cairn_view){0}, NULL,
                                  &text, &world->err)))
        return 0;
    CAIRN_AUTO_JSON json_t *state = json_loadb(text.data, text.size, 0, NULL);
    EXPECT(state != NULL);
    const json_t *rule = json_array_get(json_object_get(state, "rules"), 0);
    return (uint64_t)json_integer_value(json_object_get(rule, "acted"));
}

TEST(q55_a_prefix_without_its_record_after_a_restart_is_waited_for) {
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_options options = {.job = "job-1"};
    REQUIRE(world_open(&world, &(struct world_options){
                                   .s3_rules = "op=put|create key=*rank-* : status=503/SlowDown; "
                                               "op=put key=*.copy.json : stall@0/60000"}));
    options.socket = world.socket_path;
    REQUIRE(trainer_open(&trainer, &options));
    struct trainer_save save;
    char states[1][32], state[32];
    REQUIRE(trainer_save(&trainer, 1, 0, 2, 300000, &save));
    world_uploader_kill(&world);
    REQUIRE(world_s3_rules(&world, "op=head|get key=*store.json : status=404/NoSuchKey; "
                                   "op=put|create key=*rank-* : status=400/InvalidArgument"));
    REQUIRE(world_uploader_start(&world, NULL, NULL));
    REQUIRE(trainer_offer(&trainer, &options, &save, 1, true, states));
    EXPECT(world_await(says_that_it_waits, &world, 5000));
    uint64_t looks = refused_looks(&world); /* a put would fail the save for good */
    REQUIRE_AWAIT(refused_looks(&world) >= looks + 3);
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 100, state), "none");
    REQUIRE(world_s3_rules(&world, ""));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 10000, state), "committed");
}
