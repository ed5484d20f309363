/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* Uploads that no save will end are shown, and ended where nobody can need them (P8, P8b). */
#include <stdio.h>

#include "server/copies/copies.h"
#include "tests/server/world.h"

#define HOUR_MS UINT64_C(3600000)
#define NOBODYS "ckpt_0f0f1c1e-5a55-8c6b-9d4b-0b3f6a5f9f01"

static struct cairn_version_place place_of(const struct cairn_hand_save *save) {
    return (struct cairn_version_place){{"llm", "seven"}, save->step, save->id};
}

/* An upload that its uploader has begun and will never end. */
static enum cairn_code begin_upload(struct cairn_world *world,
                                    const struct cairn_version_place *place) {
    struct cairn_key key;
    cairn_key_shard(place, CAIRN_VIEW("rank-00007/late"), &key);
    struct cairn_store_request create = {.op = CAIRN_STORE_UPLOAD_CREATE,
                                         .key = key.text,
                                         .token = "6f0f1c1e-5a55-4c6b-9d4b-0b3f6a5f9f01",
                                         .length = 10 * CAIRN_MIB};
    return cairn_store_perform(world->worker, &create, &world->err);
}

static uint64_t uploads_under(struct cairn_world *world, const struct cairn_version_place *place) {
    struct cairn_store_listing listing = {0};
    struct cairn_key prefix;
    cairn_key_version_prefix(place, &prefix);
    struct cairn_store_request list = {
        .op = CAIRN_STORE_UPLOADS, .key = prefix.text, .listing = &listing};
    uint64_t count = cairn_store_perform(world->worker, &list, NULL) ? 999 : listing.count;
    cairn_store_listing_release(&listing);
    return count;
}

/* What GET /v1/uploads says the version is; "" where it names none, "failed" without an answer. */
static void shown_as(struct cairn_world *world, const char *version, char ret[32]) {
    CAIRN_AUTO_JSON json_t *page = NULL;
    size_t index = 0;
    json_t *item = NULL;
    snprintf(ret, 32, "failed");
    if (cairn_world_call(world, "GET", "/v1/uploads", NULL, &page)) return;
    ret[0] = '\0';
    json_array_foreach(json_object_get(page, "items"), index, item) {
        if (strcmp(cairn_world_text(item, "version"), version) != 0) continue;
        snprintf(ret, 32, "%s", cairn_world_text(item, "state"));
    }
}

#define err world.err /* of the macros */

TEST(uploads_below_what_is_committed_or_gone_are_shown_and_ended_at_the_second_look) /* P8b */
{
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save kept, lost;
    char state[32];
    REQUIRE(cairn_world_start_inside(&world, WORLD_ARGS("--trash-grace=1min")));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &lost));
    REQUIRE_OK(cairn_hand_save_all(&hand, 2, 1, "error", 10, &kept));
    REQUIRE_OK(cairn_world_call(&world, "DELETE", lost.path, NULL, NULL));
    cairn_inside_pass(&world.inside, 50 * HOUR_MS); /* gone, and swept for the last time */
    struct cairn_version_place of_kept = place_of(&kept), of_lost = place_of(&lost);
    REQUIRE_OK(begin_upload(&world, &of_kept));
    REQUIRE_OK(begin_upload(&world, &of_lost));
    state[0] = '\0';
    for (int i = 0; i < 62 && !state[0]; i++) { /* until the next look, and not the one behind it */
        cairn_inside_pass(&world.inside, HOUR_MS / 60);
        shown_as(&world, kept.id.text, state);
    }
    EXPECT_EQ_TEXT(state, "committed");
    shown_as(&world, lost.id.text, state);
    EXPECT_EQ_TEXT(state, "gone");
    EXPECT_EQ_U64(uploads_under(&world, &of_kept), 1); /* seen once: nothing is ended */
    EXPECT_EQ_U64(uploads_under(&world, &of_lost), 1);
    cairn_inside_pass(&world.inside, HOUR_MS + HOUR_MS / 60);
    EXPECT_EQ_U64(uploads_under(&world, &of_kept), 0);
    EXPECT_EQ_U64(uploads_under(&world, &of_lost), 0);
    cairn_inside_pass(&world.inside, HOUR_MS + HOUR_MS / 60);
    shown_as(&world, kept.id.text, state);
    EXPECT_EQ_TEXT(state, "");
    CAIRN_AUTO_JSON json_t *version = NULL; /* and what is committed is whole */
    REQUIRE_OK(cairn_world_call(&world, "GET", kept.path, NULL, &version));
    EXPECT_EQ_TEXT(cairn_world_text(version, "state"), "committed");
}

TEST(looks_that_were_asked_for_show_an_upload_and_end_none) /* uploads.c, 2 */
{
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save kept;
    char state[32];
    REQUIRE(cairn_world_start_inside(&world, NULL));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &kept));
    cairn_inside_pass(&world.inside, HOUR_MS / 60); /* the first hourly look is over */
    struct cairn_version_place place = place_of(&kept);
    REQUIRE_OK(begin_upload(&world, &place));
    for (int i = 0; i < 5; i++) {
        CAIRN_AUTO_JSON json_t *asked = NULL;
        cairn_inside_pass(&world.inside, 5000); /* one that has just ended is not begun again */
        REQUIRE_OK(cairn_world_call(&world, "POST", "/v1/uploads", NULL, &asked));
        EXPECT(json_is_true(json_object_get(asked, "looking")));
        cairn_inside_pass(&world.inside, HOUR_MS / 60);
        shown_as(&world, kept.id.text, state);
        EXPECT_EQ_TEXT(state, "committed");
        EXPECT_EQ_U64(uploads_under(&world, &place), 1);
    }
    cairn_inside_pass(&world.inside, HOUR_MS); /* found by one hourly look */
    EXPECT_EQ_U64(uploads_under(&world, &place), 1);
    cairn_inside_pass(&world.inside, HOUR_MS + HOUR_MS / 60); /* and by another one */
    EXPECT_EQ_U64(uploads_under(&world, &place), 0);
}

TEST(an_upload_of_a_copy_that_is_being_made_or_mended_is_no_orphan) /* P8 */
{
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    struct cairn_srv_copy_hold hold;
    char stores[400], path[100];
    snprintf(stores, sizeof(stores), "--stores=slow=%s/slow", cairn_test_folder());
    REQUIRE(cairn_world_start_inside(&world, WORLD_ARGS(stores)));
    struct cairn_srv *server = &world.inside.server;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &save));
    struct cairn_version_place place = place_of(&save);
    REQUIRE_OK(begin_upload(&world, &place)); /* as a repair has, or a promotion to main */
    REQUIRE_OK(cairn_srv_copy_hold_take(&hold, server, save.id.text, &err));
    snprintf(path, sizeof(path), "/v1/uploads/%s", save.id.text);
    EXPECT_CODE(cairn_world_call(&world, "DELETE", path, NULL, NULL), CAIRN_IN_USE);
    cairn_inside_pass(&world.inside, 4 * HOUR_MS);
    EXPECT_EQ_U64(uploads_under(&world, &place), 1);
    cairn_srv_copy_hold_end(&hold);
    cairn_inside_pass(&world.inside, 2 * HOUR_MS);
    EXPECT_EQ_U64(uploads_under(&world, &place), 0);
}

TEST(an_upload_of_an_open_save_is_no_orphan_and_one_of_an_unknown_version_is_left_alone) /* P8 */
{
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    char state[32];
    REQUIRE(cairn_world_start_inside(&world, WORLD_ARGS("--silence-max=20h")));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_begin(&hand, 5, 1, "error", &save));
    struct cairn_version_place open = place_of(&save), unknown = open;
    snprintf(unknown.id.text, sizeof(unknown.id.text), "%s", NOBODYS);
    REQUIRE_OK(begin_upload(&world, &open));
    REQUIRE_OK(begin_upload(&world, &unknown));
    cairn_inside_pass(&world.inside, 5 * HOUR_MS);
    shown_as(&world, save.id.text, state);
    EXPECT_EQ_TEXT(state, "");
    shown_as(&world, NOBODYS, state);
    EXPECT_EQ_TEXT(state, "unknown");
    EXPECT_EQ_U64(uploads_under(&world, &open), 1);
    EXPECT_EQ_U64(uploads_under(&world, &unknown), 1);
}
