/* SPDX-License-Identifier: Apache-2.0 */
/* What a node restores is leased for as long, and no longer (Q29). */
#include "tests/uploader/trainer.h"

static const struct cairn_view none = {NULL, 0};

#define HOUR_MS UINT64_C(3600000)

struct scene {
    struct cairn_passing passing;
    struct cairn_up_world world;
    struct cairn_trainer trainer;
    struct trainer_save save;
    char path[200], leases[220];
};
static void scene_release(struct scene *scene) {
    cairn_trainer_release(&scene->trainer);
    cairn_up_world_release(&scene->world);
    cairn_passing_release(&scene->passing);
}
#define SCENE(name) __attribute__((cleanup(scene_release))) struct scene name = {0}

static bool start(struct scene *scene) {
    char state[32];
    struct trainer_options options = {
        .socket = scene->world.socket_path, .job = "job-1", .bytes = CAIRN_MIB};
    if (!cairn_passing_open(&scene->passing) ||
        !world_open(&scene->world,
                    &(struct world_options){.uploader_args = ARGS("--restore-lease=1h"),
                                            .passing = &scene->passing}))
        return false;
    if (!trainer_open(&scene->trainer, &options)) return false;
    if (!trainer_save(&scene->trainer, 1, 0, 1, 1000, &scene->save)) return false;
    snprintf(scene->path, sizeof(scene->path), "/v1/runs/llm/seven/checkpoints/%s",
             scene->save.version);
    snprintf(scene->leases, sizeof(scene->leases), "%s/leases", scene->path);
    return !strcmp(trainer_verdict(&scene->trainer, scene->save.number, HANG_MS, state),
                   "committed");
}

static int64_t restore(struct scene *scene) {
    CAIRN_AUTO(frame) frame = {0};
    if (trainer_ask(&scene->trainer, json_pack("{s:s, s:s}", "t", "restore", "ref", "latest"), none,
                    NULL, 0, &frame))
        return 0;
    return json_integer_value(json_object_get(frame.message, "restore"));
}

static size_t lease_count(struct scene *scene) {
    CAIRN_AUTO_JSON json_t *page = NULL;
    if (world_call(&scene->world, "GET", scene->leases, NULL, &page)) return 999;
    return json_array_size(json_object_get(page, "items"));
}

static enum cairn_code end_restore(struct scene *scene, int64_t number) {
    return trainer_ask(&scene->trainer,
                       json_pack("{s:s, s:I}", "t", "release", "restore", (json_int_t)number), none,
                       NULL, 0, NULL);
}

/* Catalog time goes on with a sweep, or with a lease that somebody takes. */
static bool pass_time(struct scene *scene) {
    CAIRN_AUTO_JSON json_t *taken = world_post(&scene->world, scene->leases,
                                               json_pack("{s:s, s:i}", "job", "clock", "ttl_s", 1));
    if (!taken) return false;
    const char *path =
        TEXT("%s/%s", scene->leases, json_string_value(json_object_get(taken, "lease")));
    return !world_call(&scene->world, "DELETE", path, NULL, NULL);
}

#define err scene.world.err /* of the macros */

TEST(what_is_restored_is_leased_until_the_last_restore_of_the_node_ends) { /* Q29, C03 */
    SCENE(scene);
    REQUIRE(start(&scene));
    int64_t one = restore(&scene), two = restore(&scene);
    REQUIRE(one && two);
    EXPECT_EQ_U64(lease_count(&scene), 1);
    for (int i = 0; i < 6; i++) { /* for more than twice the life of the lease */
        uint64_t renewed = world_answered(&scene.world, "lease_renew");
        cairn_passing_pass(&scene.passing, HOUR_MS * 5 / 12);
        REQUIRE_AWAIT(world_answered(&scene.world, "lease_renew") > renewed);
    }
    REQUIRE(pass_time(&scene));
    EXPECT_CODE(world_call(&scene.world, "DELETE", scene.path, NULL, NULL), CAIRN_IN_USE);
    REQUIRE_OK(end_restore(&scene, one));
    uint64_t renewed = world_answered(&scene.world, "lease_renew");
    cairn_passing_pass(&scene.passing, HOUR_MS * 5 / 12); /* its thread has looked after that end */
    REQUIRE_AWAIT(world_answered(&scene.world, "lease_renew") > renewed);
    EXPECT_CODE(world_call(&scene.world, "DELETE", scene.path, NULL, NULL), CAIRN_IN_USE);
    REQUIRE_OK(end_restore(&scene, two));
    REQUIRE_AWAIT(lease_count(&scene) == 0); /* given back: it would last for an hour */
    REQUIRE_OK(world_call(&scene.world, "DELETE", scene.path, NULL, NULL));
}

TEST(a_trainer_that_dies_in_a_restore_leaves_no_lease) {
    SCENE(scene);
    REQUIRE(start(&scene));
    REQUIRE(restore(&scene));
    EXPECT_EQ_U64(lease_count(&scene), 1);
    cairn_trainer_release(&scene.trainer);
    scene.trainer = (struct cairn_trainer){0};
    AWAIT(lease_count(&scene) == 0);
}

TEST(a_lease_that_ended_while_the_server_was_away_is_taken_again) {
    SCENE(scene);
    REQUIRE(start(&scene));
    REQUIRE(restore(&scene));
    CAIRN_AUTO_JSON json_t *page = NULL;
    REQUIRE_OK(world_call(&scene.world, "GET", scene.leases, NULL, &page));
    const json_t *item = json_array_get(json_object_get(page, "items"), 0);
    const char *path =
        TEXT("%s/%s", scene.leases, json_string_value(json_object_get(item, "lease")));
    REQUIRE_OK(world_call(&scene.world, "DELETE", path, NULL, NULL)); /* as if it were forgotten */
    cairn_passing_pass(&scene.passing, HOUR_MS / 2);                  /* it is renewed */
    AWAIT(lease_count(&scene) == 1);
}

TEST(a_look_at_a_version_takes_no_lease_and_no_place_of_a_restore) {
    SCENE(scene);
    if (!start(&scene)) return;
    CAIRN_AUTO(frame) frame = {0};
    REQUIRE(!trainer_ask(&scene.trainer,
                         json_pack("{s:s, s:s, s:b}", "t", "restore", "ref", "latest", "look", 1),
                         none, NULL, 0, &frame));
    EXPECT_EQ_U64((uint64_t)json_integer_value(json_object_get(frame.message, "restore")), 0);
    EXPECT(json_integer_value(json_object_get(frame.message, "manifest_bytes")) > 0);
    EXPECT_ALL_U64(frame.fd_count, 1, lease_count(&scene), 0);
    int64_t number = restore(&scene);
    EXPECT(number > 0);
    EXPECT_EQ_U64(lease_count(&scene), 1);
    EXPECT(!end_restore(&scene, number));
}
