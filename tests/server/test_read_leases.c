/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* What a reader leases stays until the lease ends: retention, trash and sweep (Q29, C03). */
#include "tests/server/world.h"

struct scene {
    struct cairn_world world;
    struct cairn_hand hand;
    struct cairn_hand_save saves[3];
    char path[400];
};
static void scene_release(struct scene *scene) {
    cairn_world_release(&scene->world);
}
#define SCENE(name) __attribute__((cleanup(scene_release))) struct scene name = {0}

/* Steps 1, 2 and 3, with a trash that is emptied a minute after. */
static bool start(struct scene *scene) {
    struct cairn_world *world = &scene->world;
    if (!world_start_inside(world, WORLD_ARGS("--trash-grace=1min"))) return false;
    if (hand_open(world, &scene->hand, "j1", 0, "latest", 1)) return false;
    return !hand_saves(&scene->hand, scene->saves, CAIRN_COUNT(scene->saves));
}

static bool start_over(struct scene *scene, const char *engine) {
    const char *before = getenv("CAIRN_TEST_CATALOG");
    if (!before) setenv("CAIRN_TEST_CATALOG", engine, 1);
    bool good = start(scene);
    if (!before) unsetenv("CAIRN_TEST_CATALOG");
    return good;
}

static enum cairn_code call(struct scene *scene, const char *method, const char *base,
                            const char *tail, const char *body, json_t **ret) {
    snprintf(scene->path, sizeof(scene->path), "%s%s", base, tail);
    return cairn_say(&scene->world, method, scene->path, body, ret);
}

static enum cairn_code lease(struct scene *scene, const char *base, const char *body,
                             char ret[128]) {
    CAIRN_AUTO_JSON json_t *taken = NULL;
    CAIRN_TRY(call(scene, "POST", base, "/leases", body, &taken));
    snprintf(ret, 128, "/leases/%s", world_text(taken, "lease"));
    return CAIRN_OK;
}

#define err scene.world.err /* of the macros */

TEST(what_is_leased_is_trashed_by_nobody_until_the_lease_ends) { /* Q29 */
    SCENE(scene);
    char tail[128];
    CAIRN_AUTO_JSON json_t *plan = NULL, *page = NULL, *after = NULL;
    REQUIRE(start(&scene));
    REQUIRE_OK(lease(&scene, scene.saves[0].path, "{\"job\":\"r1\",\"ttl_s\":600}", tail));
    EXPECT_CODE(call(&scene, "DELETE", scene.saves[0].path, "", NULL, NULL), CAIRN_IN_USE);
    REQUIRE_OK(call(&scene, "POST", WORLD_RUN, "/retention/preview",
                    "{\"policy\":{\"keep\":{\"last\":1}}}", &plan));
    EXPECT_SHOWS(plan, "remove", "1", "versions.2.reasons.0.rule", "leased");
    REQUIRE_OK(call(&scene, "PUT", WORLD_RUN, "/retention", "{\"keep\":{\"last\":1}}", NULL));
    REQUIRE_OK(call(&scene, "GET", scene.saves[0].path, "/leases", NULL, &page));
    EXPECT_SHOWS(page, "items.0.job", "r1", "items.0.expires_s", "600");
    inside_pass(&scene.world.inside, 9 * MINUTE_MS);
    EXPECT_CODE(call(&scene, "DELETE", scene.saves[0].path, "", NULL, NULL), CAIRN_IN_USE);
    REQUIRE_OK(call(&scene, "PUT", scene.saves[0].path, tail, "{\"ttl_s\":600}", NULL));
    inside_pass(&scene.world.inside, 9 * MINUTE_MS); /* 18 min after it was taken */
    EXPECT_CODE(call(&scene, "DELETE", scene.saves[0].path, "", NULL, NULL), CAIRN_IN_USE);
    inside_pass(&scene.world.inside, 2 * MINUTE_MS);
    REQUIRE_OK(call(&scene, "GET", scene.saves[0].path, "/leases", NULL, &after));
    EXPECT_EQ_U64(json_array_size(json_object_get(after, "items")), 0);
    EXPECT_CODE(call(&scene, "PUT", scene.saves[0].path, tail, NULL, NULL), CAIRN_NOT_FOUND);
    REQUIRE_OK(call(&scene, "DELETE", scene.saves[0].path, "", NULL, NULL));
}

TEST(the_same_job_has_one_lease_and_it_never_becomes_shorter) { /* leases.h#7, #2 */
    SCENE(scene);
    char one[128], again[128], other[128];
    CAIRN_AUTO_JSON json_t *page = NULL;
    REQUIRE(start(&scene));
    REQUIRE_OK(
        lease(&scene, WORLD_RUN "/checkpoints/latest", "{\"job\":\"r1\",\"ttl_s\":600}", one));
    REQUIRE_OK(lease(&scene, scene.saves[2].path, "{\"job\":\"r1\",\"ttl_s\":1}", again));
    EXPECT_EQ_TEXT(again, one);
    REQUIRE_OK(lease(&scene, scene.saves[2].path, "{\"job\":\"r2\"}", other));
    REQUIRE_OK(call(&scene, "GET", scene.saves[2].path, "/leases", NULL, &page));
    const json_t *items = json_object_get(page, "items");
    EXPECT_EQ_U64(json_array_size(items), 2);
    EXPECT_EQ_U64(world_number(json_array_get(items, 0), "expires_s"), 600);
    EXPECT(json_is_integer(json_object_get(json_array_get(items, 0), "step")));
    EXPECT_EQ_U64(world_number(json_array_get(items, 1), "expires_s"), 300);
    REQUIRE_OK(call(&scene, "DELETE", scene.saves[2].path, one, NULL, NULL));
    EXPECT_CODE(call(&scene, "DELETE", scene.saves[2].path, one, NULL, NULL), CAIRN_NOT_FOUND);
    EXPECT_CODE(call(&scene, "PUT", scene.saves[1].path, other, NULL, NULL), CAIRN_NOT_FOUND);
    EXPECT_CODE(call(&scene, "DELETE", scene.saves[2].path, "", NULL, NULL), CAIRN_IN_USE);
    REQUIRE_OK(call(&scene, "DELETE", scene.saves[2].path, other, NULL, NULL));
    REQUIRE_OK(call(&scene, "DELETE", scene.saves[2].path, "", NULL, NULL));
}

TEST(a_lease_on_what_is_in_the_trash_holds_it_there_and_deleting_takes_none) { /* Q29, V15, C03 */
    SCENE(scene);
    char tail[128];
    REQUIRE(start(&scene));
    REQUIRE_OK(call(&scene, "DELETE", scene.saves[0].path, "", NULL, NULL));
    REQUIRE_OK(lease(&scene, scene.saves[0].path, "{\"job\":\"r1\",\"ttl_s\":600}", tail));
    inside_pass(&scene.world.inside, 9 * MINUTE_MS); /* the grace was over long ago */
    EXPECT_EQ_U64(hand_objects(&scene.saves[0]), 5);
    inside_pass(&scene.world.inside, 2 * MINUTE_MS);
    EXPECT_EQ_U64(hand_objects(&scene.saves[0]), 0);
    EXPECT_CODE(lease(&scene, scene.saves[0].path, "{\"job\":\"r1\"}", tail), CAIRN_DELETED);
    struct cairn_hand_save open;
    REQUIRE_OK(hand_begin(&scene.hand, 9, 1, "error", &open));
    EXPECT_CODE(lease(&scene, open.path, "{\"job\":\"r1\"}", tail), CAIRN_NOT_COMMITTED);
    EXPECT_CODE(lease(&scene, scene.saves[1].path, "{\"job\":\"\"}", tail), CAIRN_INVALID);
    EXPECT_CODE(lease(&scene, scene.saves[1].path, "{\"job\":\"r\",\"ttl_s\":3601}", tail),
                CAIRN_INVALID);
}

TEST(a_lease_outlasts_a_time_in_which_no_server_ran) { /* Q34, T01 */
    SCENE(scene);
    char tail[128];
    REQUIRE(start(&scene));
    REQUIRE_OK(lease(&scene, scene.saves[0].path, "{\"job\":\"r1\",\"ttl_s\":300}", tail));
    scene.world.inside.clock.boot_ms += 600 * MINUTE_MS;
    scene.world.inside.clock.wall_ms += (int64_t)(600 * MINUTE_MS);
    REQUIRE_OK(inside_restart(&scene.world.inside));
    inside_round(&scene.world.inside);
    EXPECT_CODE(call(&scene, "DELETE", scene.saves[0].path, "", NULL, NULL), CAIRN_IN_USE);
    REQUIRE_OK(call(&scene, "PUT", scene.saves[0].path, tail, NULL, NULL));
}

TEST(time_that_another_server_has_not_yet_counted_ends_no_lease) { /* Q34, Q29 */
    NEED_POSTGRES;
    SCENE(scene);
    char tail[128];
    REQUIRE(start_over(&scene, "postgresql"));
    struct cairn_inside *inside = &scene.world.inside;
    inside_round(inside);
    REQUIRE(world_sql(&scene.world, "UPDATE ticks SET value = value + 1")); /* another one, now */
    inside->clock.boot_ms += 20000;
    REQUIRE_OK(lease(&scene, scene.saves[0].path, "{\"job\":\"r1\",\"ttl_s\":60}", tail));
    REQUIRE(world_sql(&scene.world, "UPDATE ticks SET value = value + 20000")); /* it looks again */
    inside_round(inside);
    inside_pass(inside, MINUTE_MS - 1000);
    EXPECT_CODE(call(&scene, "DELETE", scene.saves[0].path, "", NULL, NULL), CAIRN_IN_USE);
    inside_pass(inside, MINUTE_MS);
    REQUIRE_OK(call(&scene, "DELETE", scene.saves[0].path, "", NULL, NULL));
}

TEST(a_restore_plan_with_a_job_is_bound_to_its_lease) {
    SCENE(scene);
    CAIRN_AUTO_JSON json_t *plan = NULL, *again = NULL, *without = NULL;
    REQUIRE(start(&scene));
    REQUIRE_OK(call(&scene, "POST", WORLD_RUN, "/checkpoints/latest/restore-plans",
                    "{\"job\":\"r1\",\"ttl_s\":120}", &plan));
    const json_t *first = json_object_get(plan, "lease");
    EXPECT_SHOWS(first, "version", scene.saves[2].id.text, "job", "r1");
    EXPECT_CODE(call(&scene, "DELETE", scene.saves[2].path, "", NULL, NULL), CAIRN_IN_USE);
    inside_pass(&scene.world.inside, MINUTE_MS);
    REQUIRE_OK(call(&scene, "POST", scene.saves[2].path, "/restore-plans",
                    "{\"job\":\"r1\",\"ttl_s\":120}", &again));
    EXPECT_EQ_TEXT(world_text(json_object_get(again, "lease"), "lease"),
                   world_text(first, "lease"));
    EXPECT(json_equal(json_object_get(plan, "objects"), json_object_get(again, "objects")));
    inside_pass(&scene.world.inside, MINUTE_MS + MINUTE_MS / 2);
    EXPECT_CODE(call(&scene, "DELETE", scene.saves[2].path, "", NULL, NULL), CAIRN_IN_USE);
    inside_pass(&scene.world.inside, MINUTE_MS);
    REQUIRE_OK(call(&scene, "DELETE", scene.saves[2].path, "", NULL, NULL));
    REQUIRE_OK(call(&scene, "POST", scene.saves[1].path, "/restore-plans", "{}", &without));
    EXPECT(json_is_null(json_object_get(without, "lease")));
    /* The default of the API's page may be sent: without a job there is nothing that it bounds. */
    REQUIRE_OK(call(&scene, "POST", scene.saves[1].path, "/restore-plans", "{\"ttl_s\":5}", NULL));
    REQUIRE_OK(call(&scene, "DELETE", scene.saves[1].path, "", NULL, NULL));
}

#define DOWNLOAD_BYTES (40 * CAIRN_MIB) /* more than the buffers of a connection hold */
#define DROPPED_MS 20000

/* Of a version that is being downloaded. */
static size_t leases_of(struct scene *scene, const struct cairn_hand_save *save) {
    CAIRN_AUTO_JSON json_t *list = NULL;
    if (call(scene, "GET", save->path, "/leases", NULL, &list)) return 999;
    return json_array_size(json_object_get(list, "items"));
}

TEST(what_the_server_sends_is_leased_until_it_was_sent_and_no_longer) { /* Q29 */
    SCENE(scene);
    struct cairn_world *world = &scene.world;
    struct cairn_hand_save *save = &scene.saves[0];
    CAIRN_AUTO(raw) raw = {0}, other = {0};
    CAIRN_AUTO(buf) reply = {.limit = CAIRN_GIB};
    CAIRN_AUTO(buf) part = {.limit = CAIRN_GIB};
    REQUIRE(world_start(world, WORLD_ARGS("--trash-grace=0ms"), NULL));
    REQUIRE_OK(hand_open(world, &scene.hand, "j1", 0, "latest", 1));
    REQUIRE_OK(hand_save_all(&scene.hand, 1, 1, "error", DOWNLOAD_BYTES, save));
    const char *request = hand_download(save);
    REQUIRE(cairn_raw_open(&raw, world->server.port) && cairn_raw_open(&other, world->server.port));
    REQUIRE(cairn_raw_text(&raw, request) && cairn_raw_text(&other, request));
    REQUIRE(cairn_raw_more(&raw, HANG_MS, &reply)); /* both have begun */
    REQUIRE(cairn_raw_more(&other, HANG_MS, &part));
    EXPECT_EQ_U64(leases_of(&scene, save), 1);
    EXPECT_CODE(call(&scene, "DELETE", save->path, "", NULL, NULL), CAIRN_IN_USE);
    uint16_t its = cairn_raw_port(&other);
    cairn_raw_release(&other); /* one of two readers goes in the middle */
    struct cairn_raw_queues row;
    REQUIRE_AWAIT(!cairn_raw_queues(world->server.port, its, &row)); /* the server has noticed */
    EXPECT_EQ_U64(leases_of(&scene, save), 1);
    while (cairn_raw_more(&raw, HANG_MS, &reply)) continue;
    EXPECT(reply.size > DOWNLOAD_BYTES);
    AWAIT(!leases_of(&scene, save));
    REQUIRE_OK(call(&scene, "DELETE", save->path, "", NULL, NULL));
}
