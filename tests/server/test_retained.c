/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* What the server remembers between commits changes nothing of what it does: plays of many commits
 * with and without it, whatever people do to versions in between. */
#include "plan/retention.h"
#include "server/retention/retain.h"
#include "tests/server/world.h"

#define STEPS 60
#define TIERED_STEPS 44
#define ROUNDS 5 /* after them nothing changes any more */
#define TEXT_BYTES 60000

static const struct cairn_run_name run_name = {"llm", "seven"};

#define err world->err /* of the macros */

/* A line of each version that is there, with the stores that it lies in. */
static void note(struct cairn_world *world, char *text) {
    CAIRN_AUTO_JSON json_t *page = NULL;
    size_t index = 0, other = 0, at = strlen(text);
    json_t *item = NULL, *copy = NULL;
    REQUIRE_OK(world_call(world, "GET",
                          WORLD_RUN "/checkpoints?trashed=false&state=committed&limit=100", NULL,
                          &page));
    json_array_foreach(json_object_get(page, "items"), index, item) {
        at += (size_t)snprintf(text + at, TEXT_BYTES - at, "%" PRIu64 ":",
                               world_number(item, "step"));
        json_array_foreach(json_object_get(item, "copies"), other, copy)
            at += (size_t)snprintf(text + at, TEXT_BYTES - at, "%.1s%.1s",
                                   world_text(copy, "store"), world_text(copy, "state"));
        at += (size_t)snprintf(text + at, TEXT_BYTES - at, " ");
    }
    snprintf(text + at, TEXT_BYTES - at, "\n");
}

/* A step between older ones is put: it joins their line (Q25), and the job goes on behind it. */
static void put_older(struct cairn_world *world, uint64_t i, uint64_t step,
                      struct cairn_hand *hand) {
    struct cairn_hand put;
    struct cairn_hand_save save;
    REQUIRE_OK(hand_open(world, &put, TEXT("put-%" PRIu64, i), hand->attempt, "keep", 1));
    REQUIRE_OK(hand_save_all(&put, step, 1, "error", 10, &save));
    REQUIRE_OK(hand_open(world, hand, TEXT("go-on-%" PRIu64, i), put.attempt, "latest", 1));
}

/* ---- what a policy removes, by a base of the run or by a plan over everything ---- */

/* What people do between two commits; what is not there any more is refused, in both plays. */
static void meddle(struct cairn_world *world, const struct cairn_hand_save *saves, uint64_t i) {
    REQUIRE_OK(cairn_say(world, "PATCH", saves[i].path,
                         TEXT("{\"metrics\":{\"loss\":%" PRIu64 "}}", i * 37 % 23), NULL));
    if (i < 12) return;
    if (i % 7 == 0) (void)cairn_say(world, "PATCH", saves[i - 2].path, "{\"pinned\":true}", NULL);
    if (i % 14 == 6) (void)cairn_say(world, "PATCH", saves[i - 8].path, "{\"pinned\":false}", NULL);
    if (i % 11 == 0) (void)cairn_say(world, "DELETE", saves[i - 1].path, NULL, NULL);
    if (i % 11 == 1)
        (void)cairn_say(world, "POST", TEXT("%s/undelete", saves[i - 2].path), NULL, NULL);
    if (i % 13 == 0)
        (void)cairn_say(world, "PATCH", saves[i - 4].path, "{\"metrics\":{\"loss\":0.5}}", NULL);
    if (i % 9 == 0)
        (void)cairn_say(world, "PUT", WORLD_RUN "/aliases/good",
                        TEXT("{\"ref\":\"%s\"}", saves[i - 1].id.text), NULL);
    if (i == 40)
        REQUIRE_OK(
            cairn_say(world, "PUT", WORLD_RUN "/retention", "{\"keep\":{\"last\":4}}", NULL));
}

static void play(struct cairn_world *world, size_t from, char *text, size_t *ret_with_base) {
    static struct cairn_hand_save saves[STEPS + 1];
    struct cairn_hand hand;
    REQUIRE(world_start_inside(world, NULL));
    if (from) REQUIRE_OK(srv_retained_new(from, 6, &world->inside.server.retained, &err));
    REQUIRE_OK(hand_open(world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(
        cairn_say(world, "PUT", WORLD_RUN "/retention",
                  "{\"keep\":{\"last\":5,\"every_steps\":400,\"hourly\":3,\"best\":[{\"count\":2,"
                  "\"metric\":\"loss\",\"order\":\"min\"}],\"unmeasured_grace_s\":0}}",
                  NULL));
    for (uint64_t i = 1; i <= STEPS; i++) {
        if (i == 30) REQUIRE_OK(hand_open(world, &hand, "j2", hand.attempt, "latest", 1));
        if (i > 12 && i % 8 == 4) put_older(world, i, i * 100 - 250, &hand);
        REQUIRE_OK(hand_save_all(&hand, i * 100, 1, "error", 10, &saves[i]));
        inside_pass(&world->inside, UINT64_C(1000000));
        note(world, text);
        struct srv_retained_turn turn;
        REQUIRE(srv_retained_take(world->inside.server.retained, &run_name, &turn));
        *ret_with_base += turn.base != NULL;
        EXPECT(!srv_retained_put(world->inside.server.retained, &turn));
        meddle(world, saves, i);
    }
}
TEST(by_a_base_the_same_versions_go_after_each_commit) { /* retain.h#4, #5 */
    static char whole[TEXT_BYTES], by_base[TEXT_BYTES];
    size_t without = 0, with = 0;
    CAIRN_AUTO(world) world = {0};
    play(&world, 0, whole, &without);
    REQUIRE(world_end(&world));
    play(&world, 8, by_base, &with);
    EXPECT_EQ_TEXT(by_base, whole);
    EXPECT_EQ_U64(without, 0);
    EXPECT(with > STEPS / 2);
    EXPECT(strlen(whole) > 1000);
}

static const char *listed_after(struct cairn_world *world, struct cairn_hand *hand, uint64_t step) {
    struct cairn_hand_save save;
    char text[TEXT_BYTES] = "";
    EXPECT_CODE(hand_save_all(hand, step, 1, "error", 10, &save), CAIRN_OK);
    inside_commit(&world->inside);
    note(world, text);
    return TEXT("%s", text);
}

/* retain.h#6: as during another thread's plan over everything, which takes a while. */
TEST(commits_of_a_run_that_is_being_planned_leave_one_more_plan_to_the_thread_that_plans) {
    static const struct cairn_run_name other_run = {"llm", "eight"};
    struct srv_retained_turn turn, other;
    struct cairn_hand hand;
    CAIRN_AUTO(world) world_here = {0};
    struct cairn_world *world = &world_here;
    REQUIRE(world_start_inside(world, NULL));
    struct srv *server = &world->inside.server;
    REQUIRE_OK(srv_retained_new(1, 6, &server->retained, &err));
    REQUIRE_OK(hand_open(world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_say(world, "PUT", WORLD_RUN "/retention", "{\"keep\":{\"last\":2}}", NULL));
    for (uint64_t step = 100; step < 400; step += 100) (void)listed_after(world, &hand, step);
    EXPECT_HAS(listed_after(world, &hand, 400), "400:", "300:", "!200:");
    REQUIRE(srv_retained_take(server->retained, &run_name, &turn));
    EXPECT(turn.base != NULL);
    REQUIRE(srv_retained_take(server->retained, &other_run, &other));
    EXPECT(!srv_retained_put(server->retained, &other)); /* another run's turn is its own */
    EXPECT_HAS(listed_after(world, &hand, 500), "500:", "400:", "300:");
    EXPECT_HAS(listed_after(world, &hand, 600), "600:", "500:", "400:", "300:");
    EXPECT(srv_retained_put(server->retained, &turn));
    EXPECT_HAS(listed_after(world, &hand, 700), "700:", "600:", "!500:", "!400:", "!300:");
    REQUIRE(srv_retained_take(server->retained, &run_name, &turn));
    EXPECT(turn.base != NULL);
    EXPECT(!srv_retained_put(server->retained, &turn)); /* nobody came meanwhile */
}

/* ---- the copies of a policy, where settled versions are not read again ---- */

static void ask(struct cairn_world *world, const struct cairn_hand_save *save, const char *verb,
                const char *body) {
    (void)cairn_say(world, "POST", TEXT("%s/%s", save->path, verb), body,
                    NULL); /* refused, where it is not as wanted, in both plays */
}

static void meddle_with_copies(struct cairn_world *world, const struct cairn_hand_save *saves,
                               uint64_t i) {
    if (i < 10) return;
    if (i % 6 == 0) ask(world, &saves[i - 7], "promote", "{\"to\":\"slow\"}");
    if (i % 6 == 2) ask(world, &saves[i - 9], "demote", "{\"from\":\"slow\"}");
    if (i % 6 == 4) ask(world, &saves[i - 8], "demote", "{\"from\":\"main\"}");
    /* Of the newest two go, so that older ones take their place. */
    if (i % 7 == 0) (void)cairn_say(world, "DELETE", saves[i].path, NULL, NULL);
    if (i % 7 == 0) (void)cairn_say(world, "DELETE", saves[i - 1].path, NULL, NULL);
    if (i % 7 == 1) (void)cairn_say(world, "DELETE", saves[i - 6].path, NULL, NULL);
    if (i % 7 == 3) ask(world, &saves[i - 8], "undelete", NULL);
    if (i % 5 == 0) (void)cairn_say(world, "PATCH", saves[i - 5].path, "{\"pinned\":true}", NULL);
    if (i == 30)
        REQUIRE_OK(cairn_say(world, "PUT", WORLD_RUN "/retention",
                             "{\"keep\":{},\"copies\":[{\"store\":\"slow\",\"last\":3}]}", NULL));
    if (i == 36)
        REQUIRE_OK(cairn_say(world, "PUT", WORLD_RUN "/retention",
                             "{\"keep\":{},\"copies\":[{\"store\":\"slow\",\"every_steps\":20},"
                             "{\"store\":\"main\",\"last\":4}]}",
                             NULL));
}

/* ret_read: how many versions a look after each save has read, in all. */
static void play_with_copies(struct cairn_world *world, bool remembers, char *text,
                             size_t *ret_read) {
    static struct cairn_hand_save saves[TIERED_STEPS + 1];
    struct cairn_hand hand;
    REQUIRE(world_start_inside(world, WORLD_ARGS(SLOW_STORE, "--trash-grace=1h")));
    struct srv *server = &world->inside.server;
    if (remembers) REQUIRE_OK(srv_tiered_new(&server->tiered, &err));
    REQUIRE_OK(hand_open(world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(
        cairn_say(world, "PUT", WORLD_RUN "/retention",
                  "{\"keep\":{},\"copies\":[{\"store\":\"slow\",\"every_steps\":20},{\"store\":"
                  "\"main\",\"last\":3}]}",
                  NULL));
    for (uint64_t i = 1; i <= TIERED_STEPS; i++) {
        if (i == 20) REQUIRE_OK(hand_open(world, &hand, "j2", hand.attempt, "latest", 1));
        if (i > 12 && i % 8 == 4) put_older(world, i, i * 10 - 65, &hand);
        REQUIRE_OK(hand_save_all(&hand, i * 10, 1, "error", 10, &saves[i]));
        for (int round = 0; round < ROUNDS; round++) inside_round(&world->inside);
        *ret_read += srv_tiering_run(server, world->worker, &run_name);
        note(world, text);
        meddle_with_copies(world, saves, i);
    }
    srv_tiered_free(server->tiered);
    server->tiered = NULL;
}
/* tiering.c, 4 */
TEST(where_settled_versions_are_not_read_again_the_same_copies_are_made_and_removed) {
    static char whole[TEXT_BYTES], remembered[TEXT_BYTES];
    size_t all = 0, some = 0;
    CAIRN_AUTO(world) world = {0};
    play_with_copies(&world, false, whole, &all);
    REQUIRE(world_end(&world));
    play_with_copies(&world, true, remembered, &some);
    EXPECT_EQ_TEXT(remembered, whole);
    EXPECT(strstr(whole, "mwsw") && strstr(whole, ":sw"));
    EXPECT(2 * some < all);
}
