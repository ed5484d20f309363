/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: races="full: as uploader/restage" */
/* Q46, V30: whose an object is where the store keeps no token. The journal's word `durable` stands
 * for it; without that, length and bytes of what is there are compared by reading it. */
#include <sys/mount.h>

#include "tests/uploader/trainer.h"

/* A file system without user attributes under the store's folder, seen by this process and those
 * that it starts, and gone with them. What it could not do is in ret_why. */
static bool mount_plain(char ret_why[200]) {
    const char *folder = TEXT("%s/store", cairn_test_folder());
    const char *step = "a mount namespace";
    bool ok = unshare(geteuid() ? CLONE_NEWUSER | CLONE_NEWNS : CLONE_NEWNS) == 0;
    if (ok) step = "a private mount tree";
    ok = ok && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
    if (ok) step = "a mount of ramfs";
    ok = ok && (mkdir(folder, 0777) == 0 || errno == EEXIST) &&
         mount("none", folder, "ramfs", 0, NULL) == 0;
    if (!ok) snprintf(ret_why, 200, "%s cannot be had here: %s", step, strerror(errno));
    return ok;
}
static void unmount(const bool *mounted) {
    const char *folder = TEXT("%s/store", cairn_test_folder());
    if (*mounted) umount2(folder, MNT_DETACH);
}
/* First in a test, so that it goes away last. */
#define NEEDS_PLAIN_STORE()                                                                        \
    char why_not[200];                                                                             \
    __attribute__((cleanup(unmount))) const bool mounted = mount_plain(why_not);                   \
    if (!mounted) SKIP(why_not)

TEST(v30_a_server_restart_fails_no_durable_save_where_no_token_is_kept) { /* Q19 */
    NEEDS_PLAIN_STORE();
    WORLD();
    TRAINER(first, RANK_OF_TWO(0));
    TRAINER(second, RANK_OF_TWO(1));
    char state[32];
    SAVE(a, &first, 7, 0, 2, 1500000);
    EXPECT_EVENT(&first, "durable", a.number);
    EXPECT_EQ_TEXT(trainer_verdict(&first, a.number, 500, state), "none");
    REQUIRE(world_server_restart(&world));
    EXPECT_EQ_TEXT(trainer_verdict(&first, a.number, 1500, state), "none"); /* asked again since */
    SAVE(b, &second, 7, 0, 1, 1000);
    EXPECT_VERDICT(&first, a.number, "committed");
    EXPECT_VERDICT(&second, b.number, "committed");
}

static bool has_ended(void *owner) {
    struct cairn_up_world *world = owner;
    return cairn_daemon_ended(&world->uploader, 0);
}

/* So that the seal is in the journal before the object has its name. */
#define LATE "complete:*:1:delay@300;put:*:1:delay@300"

/* crash_at: behind the moment when the object got its name. */
static void recovers_what_has_its_name(const char *crash_at, uint64_t bytes) {
    WORLD_WITH(.crash_at = crash_at, .fault = LATE);
    TRAINER(trainer, .job = "job-1", .bytes = 16 * CAIRN_MIB);
    SAVE(save, &trainer, 1, 0, 1, bytes);
    REQUIRE_AWAIT(has_ended(&world));
    world_uploader_kill(&world);
    cairn_trainer_release(&trainer); /* nobody brings the bytes again */
    trainer = (struct cairn_trainer){0};
    REQUIRE(world_uploader_start(&world, NULL, NULL));
    EXPECT_STATE(&world, save.version, "committed");
}

TEST(v30_what_was_completed_before_a_death_is_read_and_is_durable) {
    NEEDS_POINTS();
    NEEDS_PLAIN_STORE();
    recovers_what_has_its_name("uploader.complete.done", 9000000);
}
TEST(v30_what_was_put_at_once_before_a_death_is_read_and_is_durable) {
    NEEDS_POINTS();
    NEEDS_PLAIN_STORE();
    recovers_what_has_its_name("uploader.part.done", 300000);
}

static char *largest_path;
static off_t largest_bytes;
static int look_at(const char *path, const struct stat *status, int kind, struct FTW *place) {
    (void)place;
    if (kind != FTW_F || status->st_size < largest_bytes) return 0;
    largest_bytes = status->st_size;
    snprintf(largest_path, 600, "%s", path);
    return 0;
}
/* The shard: no other object is that large. */
static bool largest_file(const char *folder, char ret_path[600]) {
    largest_path = ret_path;
    largest_bytes = CAIRN_MIB;
    ret_path[0] = '\0';
    return nftw(folder, look_at, 8, FTW_PHYS) == 0 && ret_path[0];
}

TEST(v30_other_bytes_of_the_same_length_are_not_taken_for_ours) {
    NEEDS_POINTS();
    NEEDS_PLAIN_STORE();
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_options options = {.job = "job-1", .bytes = 16 * CAIRN_MIB};
    REQUIRE(world_open(
        &world, &(struct world_options){.crash_at = "uploader.complete.done", .fault = LATE}));
    options.socket = world.socket_path;
    REQUIRE(trainer_open(&trainer, &options));
    SAVE(save, &trainer, 1, 0, 1, 9000000);
    REQUIRE_AWAIT(has_ended(&world));
    world_uploader_kill(&world);
    char path[600];
    REQUIRE(largest_file(world.store_path, path));
    CAIRN_AUTO_FD fd = open(path, O_WRONLY);
    REQUIRE(pwrite(fd, "X", 1, 8500000) == 1);
    trainer_drop(&trainer);
    REQUIRE(world_uploader_start(&world, NULL, NULL));
    EXPECT_STATE(&world, save.version, "aborting");
}

/* How long is said by store/multipart.c; after that it fails by name (store/multipart). */
TEST(n04_a_store_that_becomes_read_only_is_waited_for_and_what_was_staged_is_committed) {
    NEEDS_PLAIN_STORE();
    JOB();
    REQUIRE(mount("none", world.store_path, "ramfs", MS_REMOUNT | MS_RDONLY, NULL) == 0);
    SAVE(save, &trainer, 1, 0, 1, 1500000);
    CAIRN_AUTO_JSON json_t *early = trainer_event(&trainer, "verdict", save.number, 2000);
    EXPECT(early == NULL);
    REQUIRE(mount("none", world.store_path, "ramfs", MS_REMOUNT, NULL) == 0);
    EXPECT_VERDICT(&trainer, save.number, "committed");
    COMMIT(save, &trainer, 2, 0, 1, 1500000);
}
