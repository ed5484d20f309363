/* SPDX-License-Identifier: Apache-2.0 */
/* A save that has ended since two ranks' lists differ, and whose trainer goes away while the server
 * is asked in which tensor (Q10, uploader/server/outbox.h). Rank 1 is of another node. */
#include "tests/uploader/other.h"
#include "tests/uploader/trainer.h"

#define DIFFERS_MS 60000 /* it comes; how long a busy machine takes is another thing */

static json_t *split_of(char digit) {
    char digest[65] = {0};
    memset(digest, digit, 64);
    return json_pack("[{s:s, s:s, s:b}]", "group", "dp", "digest", digest, "finer", 1);
}

static bool other_begins(const struct world_other *other) {
    CAIRN_AUTO_JSON json_t *reply = world_post(
        other->world, OTHER_RUN "/checkpoints",
        json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:o}", "grant", other->grant, "node", "n2",
                  "step", 5, "n", 1, "rank", 1, "world_size", 2, "splits", split_of('b')));
    return reply != NULL;
}

static bool is_over(void *owner) {
    struct cairn_up_world *world = owner;
    return cairn_daemon_logged(&world->uploader, "save.over");
}

/* Nobody is left who could look at the list, so the next answer is the last one: without that the
 * server is asked ten times a second until the time for looks is over. */
TEST(a_save_whose_trainer_went_away_ends_with_the_next_answer_about_its_list) { /* Q10, lists.h */
    CAIRN_AUTO(passing) passing = {0};
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct world_other other;
    REQUIRE(cairn_passing_open(&passing));
    REQUIRE(world_open(&world, &(struct world_options){.passing = &passing}));
    const struct trainer_options options = {
        .socket = world.socket_path, .job = "job-1", .world_size = 2};
    REQUIRE(trainer_open(&trainer, &options));
    REQUIRE(world_other_open(&world, &other));
    REQUIRE(other_begins(&other));
    CAIRN_AUTO_JSON json_t *begun = trainer_call(
        &trainer, json_pack("{s:s, s:i, s:i, s:s, s:b, s:o}", "t", "begin", "step", 5, "n", 1,
                            "on_exists", "error", "skip", 0, "splits", split_of('a')));
    REQUIRE(begun != NULL);
    REQUIRE_EVENT(&trainer, "look", UINT32_MAX);
    uint64_t before = world_answered(&world, "lists_look");
    trainer_hang_up(&trainer);
    while (!is_over(&world)) {
        uint64_t asked = world_answered(&world, "lists_look");
        REQUIRE(EXPECT(asked <= before + 2)); /* one may have been on its way */
        cairn_passing_pass(&passing, 1000);
        REQUIRE(cairn_passing_looked(&passing, world.uploader.pid));
    }
    EXPECT(world_answered(&world, "lists_look") <= before + 2);
}
