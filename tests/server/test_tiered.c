/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* What the copies of a policy do after each commit where settled versions are not read again is
 * what they do where all are read, whatever people do in between. */
#include <stdio.h>

#include "server/copies/copies.h"
#include "tests/server/world.h"

#define SAVES 44
#define ROUNDS 5 /* after them nothing changes any more */
#define TEXT_BYTES 60000
#define err world->err /* of the macros */

static const struct cairn_run_name run_name = {"llm", "seven"};

static enum cairn_code call(struct cairn_world *world, const char *method, const char *path,
                            const char *body) {
    json_t *take_body = body ? json_loads(body, 0, NULL) : NULL;
    return cairn_world_call(world, method, path, take_body, NULL);
}

static void ask(struct cairn_world *world, const struct cairn_hand_save *save, const char *verb,
                const char *body) {
    char path[300];
    snprintf(path, sizeof(path), "%s/%s", save->path, verb);
    (void)call(world, "POST", path, body); /* refused, where it is not as wanted, in both plays */
}

/* A line of each version that is there, with the stores that it lies in. */
static void note(struct cairn_world *world, char *text) {
    CAIRN_AUTO_JSON json_t *page = NULL;
    size_t index = 0, other = 0, at = strlen(text);
    json_t *item = NULL, *copy = NULL;
    REQUIRE_OK(cairn_world_call(world, "GET",
                                WORLD_RUN "/checkpoints?trashed=false&state=committed&limit=100",
                                NULL, &page));
    json_array_foreach(json_object_get(page, "items"), index, item) {
        at += (size_t)snprintf(text + at, TEXT_BYTES - at, "%" PRIu64 ":",
                               cairn_world_number(item, "step"));
        json_array_foreach(json_object_get(item, "copies"), other, copy)
            at +=
                (size_t)snprintf(text + at, TEXT_BYTES - at, "%.1s%.1s",
                                 cairn_world_text(copy, "store"), cairn_world_text(copy, "state"));
        at += (size_t)snprintf(text + at, TEXT_BYTES - at, " ");
    }
    snprintf(text + at, TEXT_BYTES - at, "\n");
}

static void meddle(struct cairn_world *world, const struct cairn_hand_save *saves, uint64_t i) {
    if (i < 10) return;
    if (i % 6 == 0) ask(world, &saves[i - 7], "promote", "{\"to\":\"slow\"}");
    if (i % 6 == 2) ask(world, &saves[i - 9], "demote", "{\"from\":\"slow\"}");
    if (i % 6 == 4) ask(world, &saves[i - 8], "demote", "{\"from\":\"main\"}");
    /* Of the newest two go, so that older ones take their place. */
    if (i % 7 == 0) (void)call(world, "DELETE", saves[i].path, NULL);
    if (i % 7 == 0) (void)call(world, "DELETE", saves[i - 1].path, NULL);
    if (i % 7 == 1) (void)call(world, "DELETE", saves[i - 6].path, NULL);
    if (i % 7 == 3) ask(world, &saves[i - 8], "undelete", NULL);
    if (i % 5 == 0) (void)call(world, "PATCH", saves[i - 5].path, "{\"pinned\":true}");
    if (i == 30)
        REQUIRE_OK(call(world, "PUT", WORLD_RUN "/retention",
                        "{\"keep\":{},\"copies\":[{\"store\":\"slow\",\"last\":3}]}"));
    if (i == 36)
        REQUIRE_OK(call(world, "PUT", WORLD_RUN "/retention",
                        "{\"keep\":{},\"copies\":[{\"store\":\"slow\",\"every_steps\":20},"
                        "{\"store\":\"main\",\"last\":4}]}"));
}

/* A step between older ones is put: it joins their line (Q25), and the job goes on behind it. */
static void put_older(struct cairn_world *world, uint64_t i, struct cairn_hand *hand) {
    struct cairn_hand put;
    struct cairn_hand_save save;
    char job[16];
    snprintf(job, sizeof(job), "put-%" PRIu64, i);
    REQUIRE_OK(cairn_hand_open(world, &put, job, hand->attempt, "keep", 1));
    REQUIRE_OK(cairn_hand_save_all(&put, i * 10 - 65, 1, "error", 10, &save));
    snprintf(job, sizeof(job), "on-%" PRIu64, i);
    REQUIRE_OK(cairn_hand_open(world, hand, job, put.attempt, "latest", 1));
}

/* ret_read: how many versions a look after each save has read, in all. */
static void play(struct cairn_world *world, bool remembers, char *text, size_t *ret_read) {
    static struct cairn_hand_save saves[SAVES + 1];
    struct cairn_hand hand;
    char slow[400];
    snprintf(slow, sizeof(slow), "--stores=slow=%s/slow", cairn_test_folder());
    REQUIRE(cairn_world_start_inside(world, WORLD_ARGS(slow, "--trash-grace=1h")));
    struct cairn_srv *server = &world->inside.server;
    if (remembers) REQUIRE_OK(cairn_srv_tiered_new(&server->tiered, &err));
    REQUIRE_OK(cairn_hand_open(world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(call(world, "PUT", WORLD_RUN "/retention",
                    "{\"keep\":{},\"copies\":[{\"store\":\"slow\",\"every_steps\":20},{\"store\":"
                    "\"main\",\"last\":3}]}"));
    for (uint64_t i = 1; i <= SAVES; i++) {
        if (i == 20) REQUIRE_OK(cairn_hand_open(world, &hand, "j2", hand.attempt, "latest", 1));
        if (i > 12 && i % 8 == 4) put_older(world, i, &hand);
        REQUIRE_OK(cairn_hand_save_all(&hand, i * 10, 1, "error", 10, &saves[i]));
        for (int round = 0; round < ROUNDS; round++) cairn_inside_round(&world->inside);
        *ret_read += cairn_srv_tiering_run(server, world->worker, &run_name);
        note(world, text);
        meddle(world, saves, i);
    }
    cairn_srv_tiered_free(server->tiered);
    server->tiered = NULL;
}
#undef err

/* tiering.c, 4 */
TEST(where_settled_versions_are_not_read_again_the_same_copies_are_made_and_removed) {
    static char whole[TEXT_BYTES], remembered[TEXT_BYTES];
    size_t all = 0, some = 0;
    CAIRN_AUTO(world) world = {0};
    play(&world, false, whole, &all);
    REQUIRE(cairn_world_end(&world));
    play(&world, true, remembered, &some);
    EXPECT_EQ_TEXT(remembered, whole);
    EXPECT(strstr(whole, "mwsw") && strstr(whole, ":sw"));
    EXPECT(2 * some < all);
}
