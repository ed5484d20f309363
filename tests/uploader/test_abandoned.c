/* SPDX-License-Identifier: Apache-2.0 */
/* Versions that the server calls open and that rank 0 has abandoned, since a backup of the catalog
 * that was put back has forgotten how they ended (Q12, V42). Rank 1 is of another node. */
#include "tests/uploader/other.h"
#include "tests/uploader/trainer.h"

static void copy(struct cairn_up_world *world, const char *from_name, const char *to_name) {
    char from[400], to[400];
    CAIRN_AUTO(buf) bytes = {.limit = 64 * CAIRN_MIB};
    snprintf(from, sizeof(from), "%s/%s", world->folder, from_name);
    snprintf(to, sizeof(to), "%s/%s", world->folder, to_name);
    if (cairn_file_load(from, &bytes, NULL) != CAIRN_OK)
        (void)unlink(to);
    else
        EXPECT(!cairn_file_replace(to, cairn_buf_view(&bytes), 0600, NULL));
}

/* Of a server that does not run. */
static bool keep_backup(struct cairn_up_world *world) {
    world_server_kill(world);
    copy(world, "server/catalog.db", "backup.db");
    copy(world, "server/catalog.db-wal", "backup.db-wal");
    return world_server_start(world);
}

static bool put_backup_back(struct cairn_up_world *world) {
    world_server_kill(world);
    copy(world, "backup.db", "server/catalog.db");
    copy(world, "backup.db-wal", "server/catalog.db-wal");
    copy(world, "there is none", "server/catalog.db-shm");
    return world_server_start(world);
}

/* Rank 0 has begun step 5 and rank 1 too; the backup has that. Then rank 0 gives it up, the server
 * takes that, and the uploader has nothing of it any more. */
struct scene {
    struct cairn_up_world world;
    struct cairn_trainer trainer;
    struct world_other other;
    struct trainer_options options;
    char version[48];
};

static void scene_release_at(struct scene *scene) {
    cairn_trainer_release(&scene->trainer);
    cairn_up_world_release(&scene->world);
}
#define SCENE __attribute__((cleanup(scene_release_at))) struct scene

static bool is_forgotten(void *owner) {
    struct scene *scene = owner;
    const char *line = TEXT("version=%s end=", scene->version);
    return cairn_daemon_logged(&scene->world.uploader, line);
}

static bool set_up(struct scene *scene) {
    struct trainer_save save;
    if (!world_open(&scene->world, &(struct world_options){0})) return false;
    scene->options = (struct trainer_options){
        .socket = scene->world.socket_path, .job = "job-1", .world_size = 2};
    if (!trainer_open(&scene->trainer, &scene->options) ||
        !trainer_begin(&scene->trainer, 5, 1, &save) ||
        !world_other_open(&scene->world, &scene->other) ||
        !world_other_begin(&scene->other, 5, scene->version) || !keep_backup(&scene->world))
        return false;
    EXPECT_EQ_TEXT(scene->version, save.version);
    if (!trainer_fail(&scene->trainer, save.number, "no more") ||
        !world_await_state(&scene->world, scene->version, "aborting", HANG_MS) ||
        !world_await(is_forgotten, scene, HANG_MS))
        return false;
    /* The closing record is posted with that line and synced with the next group; a killed uploader
     * that has not synced it would rightly tell the end again. */
    return AWAIT(world_entries_written(&scene->world) <= 1); /* the session's */
}

static void expect_told_again(struct scene *scene) {
    world_expect_aborted(&scene->world, scene->version,
                         "rank 0 on node n1: the rank went on without this save", "");
}

/* Begins of step 5, by the nonce of the attempt. */
static json_t *counted(const struct scene *scene, int n) {
    return json_pack("{s:[[i, i], [i, i]]}", scene->trainer.nonce, 3, 1, 5, n);
}

static bool uploader_again(struct cairn_up_world *world) {
    world_uploader_kill(world);
    return world_uploader_start(world, NULL, NULL);
}

TEST(v42_a_fail_that_a_backup_of_the_catalog_has_forgotten_is_told_again) { /* Q12 */
    SCENE scene = {0};
    REQUIRE(set_up(&scene));
    REQUIRE(put_backup_back(&scene.world));
    expect_told_again(&scene);
    /* And so often as it is forgotten. */
    REQUIRE(put_backup_back(&scene.world));
    expect_told_again(&scene);
    EXPECT_EQ_U64(world_uploader_stop(&scene.world), 0);
    EXPECT(world_open_entries(&scene.world) <= 1); /* the session's */
}

TEST(an_uploader_that_was_started_again_is_told_by_the_offer_what_the_rank_has_counted) { /* Q12 */
    SCENE scene = {0};
    REQUIRE(set_up(&scene));
    REQUIRE(uploader_again(&scene.world));
    REQUIRE(put_backup_back(&scene.world));
    REQUIRE(trainer_offer(&scene.trainer, NULL, 0, false, NULL));
    EXPECT(world_stays_open(&scene.world, scene.version)); /* of a libcairn that does not say it */
    REQUIRE(uploader_again(&scene.world));
    CAIRN_AUTO_JSON json_t *counts = counted(&scene, 1);
    scene.trainer.counts = counts;
    REQUIRE(trainer_offer(&scene.trainer, NULL, 0, false, NULL));
    expect_told_again(&scene);
}

TEST(a_process_that_opens_its_attempt_again_tells_what_it_has_counted_there) { /* Q12 */
    SCENE scene = {0};
    REQUIRE(set_up(&scene));
    CAIRN_AUTO_JSON json_t *bye = trainer_call(&scene.trainer, json_pack("{s:s}", "t", "bye"));
    REQUIRE(bye && trainer_is_cut(&scene.trainer, HANG_MS));
    trainer_hang_up(&scene.trainer);
    REQUIRE(uploader_again(&scene.world));
    REQUIRE(put_backup_back(&scene.world));
    CAIRN_AUTO_JSON json_t *counts = counted(&scene, 1);
    scene.trainer.counts = counts;
    scene.options.no_slabs = true;
    REQUIRE(trainer_open(&scene.trainer, &scene.options));
    expect_told_again(&scene);
}

/* Steps come in any order: what a rank has begun of others says nothing of this one. */
TEST(a_save_that_its_rank_has_not_counted_is_waited_for) { /* Q12, Q8 */
    SCENE scene = {0};
    struct trainer_save later, save;
    char version[48];
    REQUIRE(set_up(&scene));
    CAIRN_AUTO_JSON json_t *counts = counted(&scene, 1);
    scene.trainer.counts = counts;
    REQUIRE(uploader_again(&scene.world));
    REQUIRE(trainer_offer(&scene.trainer, NULL, 0, false, NULL));
    REQUIRE(world_other_begin(&scene.other, 4, version)); /* 3 and 5 are counted */
    REQUIRE(trainer_begin(&scene.trainer, 6, 1, &later));
    EXPECT(world_stays_open(&scene.world, version));
    REQUIRE(trainer_begin(&scene.trainer, 4, 1, &save));
    EXPECT_EQ_TEXT(save.version, version);
    EXPECT(world_stays_open(&scene.world, version));
    EXPECT(world_stays_open(&scene.world, later.version)); /* begun, and under way */
}

TEST(what_a_process_has_counted_in_another_attempt_says_nothing_of_this_one) { /* Q12 */
    SCENE scene = {0};
    char version[48];
    REQUIRE(set_up(&scene));
    CAIRN_AUTO_JSON json_t *counts =
        json_pack("{s:[[i, i]]}", "0123456789abcdef0123456789abcdef", 8, 1);
    scene.trainer.counts = counts;
    REQUIRE(uploader_again(&scene.world));
    REQUIRE(trainer_offer(&scene.trainer, NULL, 0, false, NULL));
    REQUIRE(world_other_begin(&scene.other, 8, version));
    EXPECT(world_stays_open(&scene.world, version));
}
