/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* What a policy removes after each commit by a base of the run is what it removes by a plan over
 * everything, whatever people do to versions in between. */
#include <stdio.h>

#include "plan/retention.h"
#include "server/retention/retain.h"
#include "tests/server/world.h"

#define SAVES 60
#define TEXT_BYTES 20000
#define err world->err /* of the macros */

static const struct cairn_run_name run_name = {"llm", "seven"};

static enum cairn_code call(struct cairn_world *world, const char *method, const char *path,
                            const char *body) {
    json_t *take_body = body ? json_loads(body, 0, NULL) : NULL;
    return cairn_world_call(world, method, path, take_body, NULL);
}

/* A line of the steps that are kept. */
static void note(struct cairn_world *world, char *text) {
    CAIRN_AUTO_JSON json_t *page = NULL;
    size_t index = 0, at = strlen(text);
    json_t *item = NULL;
    REQUIRE_OK(cairn_world_call(world, "GET",
                                WORLD_RUN "/checkpoints?trashed=false&state=committed&limit=100",
                                NULL, &page));
    json_array_foreach(json_object_get(page, "items"), index, item)
        at += (size_t)snprintf(text + at, TEXT_BYTES - at, "%" PRIu64 " ",
                               cairn_world_number(item, "step"));
    snprintf(text + at, TEXT_BYTES - at, "\n");
}

/* What people do between two commits; what is not there any more is refused, in both plays. */
static void meddle(struct cairn_world *world, const struct cairn_hand_save *saves, uint64_t i) {
    char path[300], body[100];
    snprintf(body, sizeof(body), "{\"metrics\":{\"loss\":%" PRIu64 "}}", i * 37 % 23);
    REQUIRE_OK(call(world, "PATCH", saves[i].path, body));
    if (i < 12) return;
    if (i % 7 == 0) (void)call(world, "PATCH", saves[i - 2].path, "{\"pinned\":true}");
    if (i % 14 == 6) (void)call(world, "PATCH", saves[i - 8].path, "{\"pinned\":false}");
    if (i % 11 == 0) (void)call(world, "DELETE", saves[i - 1].path, NULL);
    snprintf(path, sizeof(path), "%s/undelete", saves[i - 2].path);
    if (i % 11 == 1) (void)call(world, "POST", path, NULL);
    if (i % 13 == 0) (void)call(world, "PATCH", saves[i - 4].path, "{\"metrics\":{\"loss\":0.5}}");
    snprintf(body, sizeof(body), "{\"ref\":\"%s\"}", saves[i - 1].id.text);
    if (i % 9 == 0) (void)call(world, "PUT", WORLD_RUN "/aliases/good", body);
    if (i == 40) REQUIRE_OK(call(world, "PUT", WORLD_RUN "/retention", "{\"keep\":{\"last\":4}}"));
}

/* A step between older ones is put: it joins their line (Q25), and the job goes on behind it. */
static void put_older(struct cairn_world *world, uint64_t i, struct cairn_hand *hand) {
    struct cairn_hand put;
    struct cairn_hand_save save;
    char job[16];
    snprintf(job, sizeof(job), "put-%" PRIu64, i);
    REQUIRE_OK(cairn_hand_open(world, &put, job, hand->attempt, "keep", 1));
    REQUIRE_OK(cairn_hand_save_all(&put, i * 100 - 250, 1, "error", 10, &save));
    snprintf(job, sizeof(job), "go-on-%" PRIu64, i);
    REQUIRE_OK(cairn_hand_open(world, hand, job, put.attempt, "latest", 1));
}

static void play(struct cairn_world *world, size_t from, char *text, size_t *ret_with_base) {
    static struct cairn_hand_save saves[SAVES + 1];
    struct cairn_hand hand;
    REQUIRE(cairn_world_start_inside(world, NULL));
    if (from) REQUIRE_OK(cairn_srv_retained_new(from, 6, &world->inside.server.retained, &err));
    REQUIRE_OK(cairn_hand_open(world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(call(world, "PUT", WORLD_RUN "/retention",
                    "{\"keep\":{\"last\":5,\"every_steps\":400,\"hourly\":3,\"best\":[{\"count\":2,"
                    "\"metric\":\"loss\",\"order\":\"min\"}],\"unmeasured_grace_s\":0}}"));
    for (uint64_t i = 1; i <= SAVES; i++) {
        if (i == 30) REQUIRE_OK(cairn_hand_open(world, &hand, "j2", hand.attempt, "latest", 1));
        if (i > 12 && i % 8 == 4) put_older(world, i, &hand);
        REQUIRE_OK(cairn_hand_save_all(&hand, i * 100, 1, "error", 10, &saves[i]));
        cairn_inside_pass(&world->inside, UINT64_C(1000000));
        note(world, text);
        struct cairn_srv_retained_base *base =
            cairn_srv_retained_take(world->inside.server.retained, &run_name);
        *ret_with_base += base != NULL;
        cairn_srv_retained_put(world->inside.server.retained, base);
        meddle(world, saves, i);
    }
}
#undef err

TEST(by_a_base_the_same_versions_go_after_each_commit) { /* retain.h#4, #5 */
    static char whole[TEXT_BYTES], by_base[TEXT_BYTES];
    size_t without = 0, with = 0;
    CAIRN_AUTO(world) world = {0};
    play(&world, 0, whole, &without);
    REQUIRE(cairn_world_end(&world));
    play(&world, 8, by_base, &with);
    EXPECT_EQ_TEXT(by_base, whole);
    EXPECT_EQ_U64(without, 0);
    EXPECT(with > SAVES / 2);
    EXPECT(strlen(whole) > 1000);
}
