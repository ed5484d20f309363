/* SPDX-License-Identifier: Apache-2.0 */
/* Q55: nothing is sent to a store that was not checked under this mount or prefix. The mount that
 * is away is an empty folder in its place. */

#include "tests/uploader/trainer.h"

/* ---- the mount ---- */

static bool mount_goes(const struct cairn_up_world *world) {
    const char *away = TEXT("%s.away", world->store_path);
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
    const char *away = TEXT("%s.away", world->store_path);
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

TEST(q55_a_restart_while_the_mount_is_away_waits_and_sends_nothing) { /* A, P2 */
    FAULTY_WORLD("create:*:*:hang;put:*:*:hang");
    TRAINER(trainer, .job = "job-1");
    char states[1][32], state[32];
    SAVE(save, &trainer, 1, 0, 2, 1500000);
    world_uploader_kill(&world);
    REQUIRE(mount_goes(&world));
    REQUIRE(world_uploader_start(&world, NULL, NULL));
    REQUIRE(trainer_offer(&trainer, &save, 1, true, states));
    AWAIT(says_that_it_waits(&world));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 1000, state), "none");
    EXPECT(cairn_daemon_logged(&world.uploader, "store.not_ready"));
    REQUIRE(mount_comes(&world));
    EXPECT_VERDICT(&trainer, save.number, "committed");
    AWAIT(says_nothing(&world));
}

TEST(q55_a_mount_that_goes_away_while_it_runs_is_noticed_and_waited_for) {
    WORLD();
    TRAINER(trainer, .job = "job-1");
    char state[32];
    COMMITTED(save, &trainer, 1, 0, 1, 1500000);
    for (uint64_t step = 2; step < 5; step++) { /* again and again */
        REQUIRE(mount_goes(&world));
        REQUIRE(trainer_save(&trainer, step, 0, 2, 1500000, &save));
        EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 700, state), "none");
        REQUIRE(mount_comes(&world));
        EXPECT_VERDICT(&trainer, save.number, "committed");
    }
}

TEST(q55_a_trainer_hears_that_the_store_is_away_and_that_it_is_back) { /* Q43 */
    WORLD();
    TRAINER(trainer, .job = "job-1");
    REQUIRE(mount_goes(&world));
    SAVE(save, &trainer, 1, 0, 1, 1500000);
    CAIRN_AUTO_JSON json_t *away = trainer_event(&trainer, "problem", UINT32_MAX, HANG_MS);
    const char *text = json_string_value(json_object_get(away, "message"));
    EXPECT(text && strstr(text, "node n1 sends nothing") && strstr(text, "store"));
    EXPECT_EQ_TEXT(json_string_value(json_object_get(away, "code")), "unavailable");
    CAIRN_AUTO_JSON json_t *twice = trainer_event(&trainer, "problem", UINT32_MAX, 2500);
    EXPECT(twice == NULL);
    REQUIRE(mount_comes(&world));
    EXPECT_VERDICT(&trainer, save.number, "committed");
    CAIRN_AUTO_JSON json_t *back = trainer_event(&trainer, "problem", UINT32_MAX, HANG_MS);
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
    CAIRN_AUTO_HEAP char *zeros = calloc(1, bytes);
    const char *away = TEXT("%s.away", world->store_path);
    unfinished[0] = '\0';
    if (nftw(away, note_unfinished, 16, FTW_PHYS) || !unfinished[0] || !zeros) return false;
    CAIRN_AUTO_FD fd = open(unfinished, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && pwrite(fd, zeros, bytes, 0) == (ssize_t)bytes;
}

TEST(q55_what_was_acknowledged_before_a_gap_is_looked_at_before_the_upload_goes_on) { /* P2 */
    FAULTY_WORLD("part:*:2:delay@3000");
    TRAINER(trainer, .job = "job-1");
    SAVE(save, &trainer, 1, 0, 1, 2 * CAIRN_MIB);
    CAIRN_AUTO_JSON json_t *released = trainer_event(&trainer, "released", save.number, HANG_MS);
    REQUIRE(json_integer_value(json_object_get(released, "offset")) == 0);
    REQUIRE(mount_goes(&world));
    REQUIRE(lose_first_part(&world, CAIRN_MIB));
    AWAIT(says_that_it_waits(&world));
    REQUIRE(mount_comes(&world));
    EXPECT_VERDICT(&trainer, save.number, "committed");
    CAIRN_AUTO(buf) stored = {0};
    const char *path = TEXT("%s/llm/seven/%012d/%s/data/%s", world.store_path, 1, save.version,
                            save.shards[0].name);
    REQUIRE(cairn_file_load(path, &stored, &world.err) == CAIRN_OK);
    EXPECT_EQ_U64(stored.size, 2 * CAIRN_MIB);
    EXPECT(!memcmp(stored.data, trainer.slabs[0].data, 2 * CAIRN_MIB));
}

TEST(q55_a_mistyped_folder_takes_no_attempt_and_no_byte) {
    WORLD();
    CAIRN_AUTO(trainer) trainer = {0};
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
    CAIRN_AUTO(buf) text = {.limit = 16 * CAIRN_MIB};
    if (!world_page(world, world->s3.url, "/-/state", &text)) return 0;
    CAIRN_AUTO_JSON json_t *state = json_loadb(text.data, text.size, 0, NULL);
    EXPECT(state != NULL);
    const json_t *rule = json_array_get(json_object_get(state, "rules"), 0);
    return (uint64_t)json_integer_value(json_object_get(rule, "acted"));
}

TEST(a_request_that_ends_when_a_look_is_due_is_no_forgotten_wake) {
    CAIRN_AUTO(passing) passing = {0};
    REQUIRE(cairn_passing_open(&passing));
    WORLD_WITH(.s3_rules = "op=create key=*rank-* : held",
               .uploader_args = ARGS("--workers=1", "--part-size=5MiB"), .passing = &passing);
    TRAINER(trainer, .job = "job-1", .bytes = 16 * CAIRN_MIB);
    SAVE(save, &trainer, 1, 0, 1, 12000000);
    REQUIRE_AWAIT(refused_looks(&world) == 1);
    kill(world.uploader.pid, SIGSTOP); /* its sender waits for the answer */
    REQUIRE(world_s3_rules(&world, "op=part key=*rank-* : held"));
    cairn_passing_pass(&passing, 2000);
    kill(world.uploader.pid, SIGCONT);
    REQUIRE_AWAIT(refused_looks(&world) > 0); /* the answer has made work */
    for (int i = 0; i < 3; i++) {
        cairn_passing_pass(&passing, 2000);
        REQUIRE(cairn_passing_looked(&passing, world.uploader.pid));
    }
    REQUIRE(world_s3_rules(&world, ""));
    EXPECT_VERDICT(&trainer, save.number, "committed"); /* and at its end no wait was late */
}

TEST(q55_a_prefix_without_its_record_after_a_restart_is_waited_for) {
    WORLD_WITH(.s3_rules = "op=put|create key=*rank-* : status=503/SlowDown; "
                           "op=put key=*.copy.json : stall@0/60000");
    TRAINER(trainer, .job = "job-1");
    char states[1][32], state[32];
    SAVE(save, &trainer, 1, 0, 2, 300000);
    world_uploader_kill(&world);
    REQUIRE(world_s3_rules(&world, "op=head|get key=*store.json : status=404/NoSuchKey; "
                                   "op=put|create key=*rank-* : status=400/InvalidArgument"));
    REQUIRE(world_uploader_start(&world, NULL, NULL));
    REQUIRE(trainer_offer(&trainer, &save, 1, true, states));
    AWAIT(says_that_it_waits(&world));
    uint64_t looks = refused_looks(&world); /* a put would fail the save for good */
    REQUIRE_AWAIT(refused_looks(&world) >= looks + 3);
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 100, state), "none");
    REQUIRE(world_s3_rules(&world, ""));
    EXPECT_VERDICT(&trainer, save.number, "committed");
}
