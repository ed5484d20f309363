/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* Many versions at once, and a run with all that it has. */
#include <inttypes.h>
#include <stdio.h>

#include "tests/server/world.h"

static enum cairn_code call(struct cairn_world *world, const char *method, const char *path,
                            const char *body, json_t **ret) {
    return cairn_world_call(world, method, path, body ? json_loads(body, 0, NULL) : NULL, ret);
}

static bool start(struct cairn_world *world, struct cairn_hand *hand,
                  struct cairn_hand_save saves[3]) {
    if (!cairn_world_start_inside(world, WORLD_ARGS("--trash-grace=10min"))) return false;
    if (cairn_hand_open(world, hand, "j1", 0, "latest", 1)) return false;
    for (size_t i = 0; i < 3; i++)
        if (cairn_hand_save_all(hand, i + 1, 1, "error", 10, &saves[i])) return false;
    return true;
}

#define err world.err /* of the macros */

TEST(many_versions_go_at_once_and_what_cannot_is_named) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save saves[3];
    char path[300];
    CAIRN_AUTO_JSON json_t *done = NULL;
    REQUIRE(start(&world, &hand, saves));
    snprintf(path, sizeof(path), "%s/leases", saves[1].path);
    REQUIRE_OK(call(&world, "POST", path, "{\"job\":\"reader\"}", NULL));
    REQUIRE_OK(call(&world, "POST", WORLD_RUN "/trash",
                    "{\"versions\":[\"1\",\"2\",\"7\",\"latest\"]}", &done));
    const json_t *items = json_object_get(done, "items");
    static const char *const codes[] = {NULL, "in-use", "not-found", "invalid"};
    for (size_t i = 0; i < CAIRN_COUNT(codes); i++) {
        const json_t *item = json_array_get(items, i);
        const char *code = json_string_value(json_object_get(item, "code"));
        EXPECT(json_is_true(json_object_get(item, "trashed")) == !codes[i]);
        EXPECT_EQ_TEXT(code ? code : "", codes[i] ? codes[i] : "");
    }
    EXPECT_EQ_U64(cairn_world_number(done, "bytes"), 10);
    EXPECT_CODE(call(&world, "GET", WORLD_RUN "/checkpoints/1", NULL, NULL), CAIRN_NOT_FOUND);
    REQUIRE_OK(call(&world, "GET", WORLD_RUN "/checkpoints/2", NULL, NULL));
    EXPECT_CODE(call(&world, "POST", WORLD_RUN "/trash", "{\"versions\":[]}", NULL), CAIRN_INVALID);
}

TEST(a_run_at_which_trainers_are_at_work_is_not_removed_with_all_that_it_has) /* run-busy */
{
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save saves[3];
    REQUIRE(start(&world, &hand, saves));
    json_t *beat = json_pack("{s:{s:s}, s:[{s:s, s:i}], s:[]}", "uploader", "version", "1",
                             "attempts", "grant", hand.grant, "unsent", 0, "versions");
    REQUIRE_OK(cairn_world_call(&world, "PUT", "/v1/nodes/node-a", beat, NULL));
    EXPECT_CODE(call(&world, "DELETE", WORLD_RUN "?confirm=seven", NULL, NULL), CAIRN_RUN_BUSY);
    REQUIRE_OK(call(&world, "GET", WORLD_RUN "/checkpoints/1", NULL, NULL)); /* nothing went */
    beat = json_pack("{s:{s:s}, s:[], s:[]}", "uploader", "version", "1", "attempts", "versions");
    REQUIRE_OK(cairn_world_call(&world, "PUT", "/v1/nodes/node-a", beat, NULL));
    REQUIRE_OK(call(&world, "DELETE", WORLD_RUN "?confirm=seven", NULL, NULL));
}

TEST(a_run_that_is_removed_is_an_event_and_a_lease_that_is_taken_and_dropped_is_none) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save saves[3];
    char path[400];
    CAIRN_AUTO_JSON json_t *lease = NULL, *events = NULL;
    REQUIRE(start(&world, &hand, saves));
    snprintf(path, sizeof(path), "%s/leases", saves[1].path);
    REQUIRE_OK(call(&world, "POST", path, "{\"job\":\"reader\"}", &lease));
    REQUIRE_OK(call(&world, "POST", path, "{\"job\":\"reader\"}", NULL)); /* the same again */
    snprintf(path, sizeof(path), "%s/leases/%s", saves[1].path, cairn_world_text(lease, "lease"));
    REQUIRE_OK(call(&world, "DELETE", path, NULL, NULL));
    REQUIRE_OK(call(&world, "DELETE", WORLD_RUN "?confirm=seven", NULL, NULL));
    for (size_t i = 0; i < 2; i++) { /* the first one brings the run back */
        snprintf(path, sizeof(path), "%s/undelete", saves[i].path);
        REQUIRE_OK(call(&world, "POST", path, NULL, NULL));
    }
    REQUIRE_OK(call(&world, "GET", "/v1/events?since=0&limit=1000", NULL, &events));
    unsigned leases = 0, removed = 0, created = 0;
    size_t index = 0;
    json_t *item = NULL;
    json_array_foreach(json_object_get(events, "items"), index, item) {
        const char *event = cairn_world_text(item, "event");
        leases += !strncmp(event, "lease.", 6);
        removed += !strcmp(event, "run.removed");
        created += !strcmp(event, "run.created");
    }
    EXPECT_EQ_U64(leases, 0);
    EXPECT_EQ_U64(removed, 1);
    EXPECT_EQ_U64(created, 2); /* at first, and by the undelete that found it removed */
}

TEST(a_run_goes_with_all_that_it_has_when_its_name_is_said) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save saves[3], open;
    CAIRN_AUTO_JSON json_t *done = NULL, *runs = NULL, *back = NULL, *state = NULL;
    char path[300];
    REQUIRE(start(&world, &hand, saves));
    REQUIRE_OK(cairn_hand_begin(&hand, 9, 1, "error", &open));
    EXPECT_CODE(call(&world, "DELETE", WORLD_RUN, NULL, NULL), CAIRN_INVALID);
    EXPECT_EQ_U64(cairn_world_number(world.inside.extra, "versions"), 3);
    EXPECT_EQ_U64(cairn_world_number(world.inside.extra, "bytes"), 30);
    EXPECT_EQ_U64(cairn_world_number(world.inside.extra, "open"), 1);
    EXPECT_CODE(call(&world, "DELETE", WORLD_RUN "?confirm=eight", NULL, NULL), CAIRN_INVALID);
    REQUIRE(cairn_world_sql(&world, "UPDATE versions SET pinned = 1 WHERE step = 2"));
    EXPECT_CODE(call(&world, "DELETE", WORLD_RUN "?confirm=seven", NULL, NULL), CAIRN_IN_USE);
    REQUIRE_OK(call(&world, "GET", WORLD_RUN "/checkpoints/1", NULL, NULL)); /* nothing went */
    REQUIRE(cairn_world_sql(&world, "UPDATE versions SET pinned = 0"));
    REQUIRE_OK(call(&world, "DELETE", WORLD_RUN "?confirm=seven", NULL, &done));
    EXPECT_EQ_U64(cairn_world_number(done, "removed"), 3);
    EXPECT_EQ_U64(cairn_world_number(done, "bytes"), 30);
    EXPECT_EQ_U64(cairn_world_number(done, "aborted"), 1);
    EXPECT_CODE(call(&world, "GET", WORLD_RUN, NULL, NULL), CAIRN_NOT_FOUND);
    REQUIRE_OK(call(&world, "GET", "/v1/runs", NULL, &runs));
    EXPECT_EQ_U64(json_array_size(json_object_get(runs, "items")), 0);
    snprintf(path, sizeof(path), "%s/undelete", saves[2].path);
    REQUIRE_OK(call(&world, "POST", path, NULL, &back)); /* and the run is shown again */
    REQUIRE_OK(call(&world, "GET", WORLD_RUN, NULL, NULL));
    cairn_inside_pass(&world.inside, UINT64_C(15) * 60000);
    EXPECT_CODE(call(&world, "GET", saves[0].path, NULL, NULL), CAIRN_DELETED);
    REQUIRE_OK(call(&world, "GET", saves[2].path, NULL, &state));
    EXPECT_EQ_TEXT(cairn_world_text(state, "state"), "committed");
}

/* ---- a removed run that is made again ---- */

#define POLICY WORLD_RUN "/retention"

/* Who makes it again. */
enum way { BY_PUT, BY_TRAINER, BY_TRAINER_THAT_KNOWS_THE_NUMBER, BY_ITS_OLD_GRANT, WAYS };

static enum cairn_code describe_and_remove(struct cairn_world *world) {
    static const struct {
        const char *method, *path, *body;
    } calls[] = {
        {"PUT", POLICY, "{\"keep\":{\"last\":1}}"},
        {"PUT", WORLD_RUN, "{\"labels\":{\"of\":\"before\"}}"},
        {"DELETE", WORLD_RUN "?confirm=seven", NULL},
    };
    if (!cairn_world_sql(world, "UPDATE runs SET note = 'of before', from_run = 'llm/other', "
                                "from_version = 'ckpt_00000000-0000-8000-8000-000000000000'"))
        return CAIRN_INTERNAL;
    for (size_t i = 0; i < CAIRN_COUNT(calls); i++) {
        enum cairn_code code = call(world, calls[i].method, calls[i].path, calls[i].body, NULL);
        if (code) return code;
    }
    return CAIRN_OK;
}

/* *hand, of the newest attempt, becomes the trainer that saves to it from then on. */
static enum cairn_code make_again(struct cairn_world *world, enum way way,
                                  struct cairn_hand *hand) {
    char job[32];
    uint64_t newest = hand->attempt;
    snprintf(job, sizeof(job), "after %" PRIu64, newest);
    if (way == BY_ITS_OLD_GRANT) return CAIRN_OK; /* by its first save */
    if (way == BY_PUT) {
        enum cairn_code code = call(world, "PUT", WORLD_RUN, "{\"labels\":{\"of\":\"now\"}}", NULL);
        return code ? code : cairn_hand_open(world, hand, job, newest, "latest", 1);
    }
    return cairn_hand_open(world, hand, job, way == BY_TRAINER ? 0 : newest, "latest", 1);
}

static void expect_empty(struct cairn_world *world, enum way way) {
    CAIRN_AUTO_JSON json_t *run = NULL, *policy = NULL;
    EXPECT(call(world, "GET", WORLD_RUN, NULL, &run) == CAIRN_OK);
    EXPECT(call(world, "GET", POLICY, NULL, &policy) == CAIRN_OK);
    const json_t *labels = json_object_get(run, "labels");
    EXPECT_EQ_U64(json_object_size(labels), way == BY_PUT);
    if (way == BY_PUT) EXPECT_EQ_TEXT(cairn_world_text(labels, "of"), "now");
    EXPECT(json_is_null(json_object_get(run, "note")));
    EXPECT(json_is_null(json_object_get(run, "from")));
    EXPECT(json_is_null(json_object_get(policy, "from")));
}

TEST(a_removed_run_that_is_made_again_is_empty_whoever_makes_it_and_keeps_what_it_saves) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save saves[3];
    REQUIRE(start(&world, &hand, saves));
    for (unsigned i = 0; i < 2 * WAYS; i++) {
        enum way way = (enum way)(i % WAYS);
        uint64_t hours = i < WAYS ? 0 : 60, newest = hand.attempt; /* 60: the trash is emptied */
        REQUIRE_OK(describe_and_remove(&world));
        cairn_inside_pass(&world.inside, hours * 3600000);
        REQUIRE_OK(make_again(&world, way, &hand));
        EXPECT_EQ_U64(hand.attempt, newest + (way != BY_ITS_OLD_GRANT)); /* it counts on (Q1) */
        if (way != BY_ITS_OLD_GRANT) expect_empty(&world, way);
        for (uint64_t step = 10; step < 13; step++)
            REQUIRE_OK(cairn_hand_save_all(&hand, 100 * i + step, 1, "error", 10, saves));
        cairn_inside_pass(&world.inside, 60000);
        expect_empty(&world, way);
        EXPECT_EQ_U64(cairn_world_count(&world, "SELECT count(*) FROM versions WHERE state <> 4 "
                                                "AND trashed_tick IS NULL AND step >= 10"),
                      3);
    }
}

TEST(a_removed_run_that_an_undelete_brings_back_is_as_it_was) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save saves[3];
    CAIRN_AUTO_JSON json_t *run = NULL, *policy = NULL;
    char path[300];
    REQUIRE(start(&world, &hand, saves));
    REQUIRE_OK(describe_and_remove(&world));
    EXPECT_CODE(call(&world, "GET", POLICY, NULL, NULL), CAIRN_NOT_FOUND);
    EXPECT_CODE(call(&world, "PUT", POLICY, "{\"keep\":{\"last\":2}}", NULL), CAIRN_NOT_FOUND);
    snprintf(path, sizeof(path), "%s/undelete", saves[1].path);
    REQUIRE_OK(call(&world, "POST", path, NULL, NULL));
    REQUIRE_OK(call(&world, "GET", WORLD_RUN, NULL, &run));
    REQUIRE_OK(call(&world, "GET", POLICY, NULL, &policy));
    EXPECT_EQ_TEXT(cairn_world_text(json_object_get(run, "labels"), "of"), "before");
    EXPECT_EQ_TEXT(cairn_world_text(run, "note"), "of before");
    EXPECT_EQ_TEXT(cairn_world_text(policy, "from"), "run");
    EXPECT_EQ_TEXT(cairn_world_text(policy, "text"), "last 1");
}

/* Q2 */
TEST(of_two_jobs_that_make_a_removed_run_again_only_the_first_has_seen_the_newest_attempt) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand, next, late;
    struct cairn_hand_save saves[3];
    REQUIRE(start(&world, &hand, saves));
    REQUIRE_OK(describe_and_remove(&world));
    EXPECT_CODE(cairn_hand_open(&world, &late, "j3", 7, "latest", 1), CAIRN_ATTEMPT_MOVED);
    REQUIRE_OK(cairn_hand_open(&world, &next, "j2", 0, "latest", 1));
    EXPECT_EQ_TEXT(next.resumed, "(none)");
    EXPECT_CODE(cairn_hand_open(&world, &late, "j3", 0, "latest", 1), CAIRN_ATTEMPT_MOVED);
    EXPECT_CODE(call(&world, "GET", WORLD_RUN, NULL, NULL), CAIRN_OK);
}
