/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* Many versions at once, and a run with all that it has. */
#include "tests/server/world.h"

#define err world.err /* of the macros */

TEST(many_versions_go_at_once_and_what_cannot_is_named) {
    JOB_INSIDE(1, "--trash-grace=10min");
    SAVES(saves, 3);
    SAY("POST", TEXT("%s/leases", saves[1].path), "{\"job\":\"reader\"}");
    SAID(done, "POST", WORLD_RUN "/trash", "{\"versions\":[\"1\",\"2\",\"7\",\"latest\"]}");
    const json_t *items = json_object_get(done, "items");
    EACH_TEXT(text, NULL, "in-use", "not-found", "invalid") {
        const json_t *item = json_array_get(items, AT_OF(text));
        const char *code = json_string_value(json_object_get(item, "code"));
        EXPECT(json_is_true(json_object_get(item, "trashed")) == !text);
        EXPECT_EQ_TEXT(code ? code : "", text ? text : "");
    }
    EXPECT_EQ_U64(world_number(done, "bytes"), 10);
    EXPECT_SAY(CAIRN_NOT_FOUND, "GET", WORLD_RUN "/checkpoints/1", NULL);
    SAY("GET", WORLD_RUN "/checkpoints/2", NULL);
    EXPECT_SAY(CAIRN_INVALID, "POST", WORLD_RUN "/trash", "{\"versions\":[]}");
}

TEST(a_list_with_an_entry_that_can_name_no_version_moves_none_and_is_refused_by_its_place) {
    JOB_INSIDE(1, "--trash-grace=10min");
    SAVES(saves, 2);
    EACH_TEXT(entry, "\"\"", "\"-1\"", "\"007\"", "\"1 \"", "\"Latest\"", "\"ckpt_1\"", "2", "null",
              "[\"2\"]", TEXT("\"%0200d\"", 1)) {
        EXPECT_FAILS(cairn_say(&world, "POST", WORLD_RUN "/trash",
                               TEXT("{\"versions\":[\"1\",\"9\",%s]}", entry), NULL),
                     CAIRN_INVALID, "/versions/2: want");
    }
    for (size_t i = 0; i < 2; i++) {
        GOT(version, saves[i].path);
        EXPECT(!json_is_true(json_object_get(version, "trashed")));
    }
}

TEST(a_run_at_which_trainers_are_at_work_is_not_removed_with_all_that_it_has) { /* run-busy */
    JOB_INSIDE(1, "--trash-grace=10min");
    SAVES(saves, 3);
    REQUIRE_OK(hand_beat(&hand, "node-a"));
    EXPECT_SAY(CAIRN_RUN_BUSY, "DELETE", WORLD_RUN "?confirm=seven", NULL);
    SAY("GET", WORLD_RUN "/checkpoints/1", NULL); /* nothing went */
    SAY("PUT", "/v1/nodes/node-a",
        "{\"uploader\":{\"version\":\"1\"},\"attempts\":[],\"versions\":[]}");
    SAY("DELETE", WORLD_RUN "?confirm=seven", NULL);
}

TEST(a_run_that_is_removed_is_an_event_and_a_lease_that_is_taken_and_dropped_is_none) {
    JOB_INSIDE(1, "--trash-grace=10min");
    SAVES(saves, 3);
    const char *path = TEXT("%s/leases", saves[1].path);
    SAID(lease, "POST", path, "{\"job\":\"reader\"}");
    SAY("POST", path, "{\"job\":\"reader\"}"); /* the same again */
    SAY("DELETE", TEXT("%s/leases/%s", saves[1].path, world_text(lease, "lease")), NULL);
    SAY("DELETE", WORLD_RUN "?confirm=seven", NULL);
    for (size_t i = 0; i < 2; i++) { /* the first one brings the run back */
        SAY("POST", TEXT("%s/undelete", saves[i].path), NULL);
    }
    GOT(events, "/v1/events?since=0&limit=1000");
    unsigned leases = 0, removed = 0, created = 0;
    size_t index = 0;
    json_t *item = NULL;
    json_array_foreach(json_object_get(events, "items"), index, item) {
        const char *event = world_text(item, "event");
        leases += !strncmp(event, "lease.", 6);
        removed += !strcmp(event, "run.removed");
        created += !strcmp(event, "run.created");
    }
    EXPECT_ALL_U64(leases, 0, removed, 1);
    EXPECT_EQ_U64(created, 2); /* at first, and by the undelete that found it removed */
}

TEST(a_run_goes_with_all_that_it_has_when_its_name_is_said) {
    JOB_INSIDE(1, "--trash-grace=10min");
    SAVES(saves, 3);
    BEGUN(open, 9);
    EXPECT_SAY(CAIRN_INVALID, "DELETE", WORLD_RUN, NULL);
    EXPECT_ALL_U64(world_number(world.inside.extra, "versions"), 3,
                   world_number(world.inside.extra, "bytes"), 30,
                   world_number(world.inside.extra, "open"), 1);
    EXPECT_SAY(CAIRN_INVALID, "DELETE", WORLD_RUN "?confirm=eight", NULL);
    REQUIRE(world_sql(&world, "UPDATE versions SET pinned = 1 WHERE step = 2"));
    EXPECT_SAY(CAIRN_IN_USE, "DELETE", WORLD_RUN "?confirm=seven", NULL);
    SAY("GET", WORLD_RUN "/checkpoints/1", NULL); /* nothing went */
    REQUIRE(world_sql(&world, "UPDATE versions SET pinned = 0"));
    SAID(done, "DELETE", WORLD_RUN "?confirm=seven", NULL);
    EXPECT_SHOWS(done, "removed", "3", "bytes", "30", "aborted", "1");
    EXPECT_SAY(CAIRN_NOT_FOUND, "GET", WORLD_RUN, NULL);
    GOT(runs, "/v1/runs");
    EXPECT_EQ_U64(json_array_size(json_object_get(runs, "items")), 0);
    SAID(back, "POST", TEXT("%s/undelete", saves[2].path), NULL); /* and the run is shown again */
    SAY("GET", WORLD_RUN, NULL);
    inside_pass(&world.inside, UINT64_C(15) * 60000);
    EXPECT_SAY(CAIRN_DELETED, "GET", saves[0].path, NULL);
    EXPECT_GET(saves[2].path, "state", "committed");
}

/* ---- a removed run that is made again ---- */

#define POLICY WORLD_RUN "/retention"

/* Who makes it again. */
enum way { BY_PUT, BY_TRAINER, BY_TRAINER_THAT_KNOWS_THE_NUMBER, BY_ITS_OLD_GRANT, WAYS };

static enum cairn_code describe_and_remove(struct cairn_world *world) {
    if (!world_sql(world, "UPDATE runs SET note = 'of before', from_run = 'llm/other', "
                          "from_version = 'ckpt_00000000-0000-8000-8000-000000000000'"))
        return CAIRN_INTERNAL;
    EACH(one, FIELDS(const char *method, *path, *body), {"PUT", POLICY, "{\"keep\":{\"last\":1}}"},
         {"PUT", WORLD_RUN, "{\"labels\":{\"of\":\"before\"}}"},
         {"DELETE", WORLD_RUN "?confirm=seven", NULL}) {
        enum cairn_code code = cairn_say(world, one->method, one->path, one->body, NULL);
        if (code) return code;
    }
    return CAIRN_OK;
}

/* *hand, of the newest attempt, becomes the trainer that saves to it from then on. */
static enum cairn_code make_again(struct cairn_world *world, enum way way,
                                  struct cairn_hand *hand) {
    uint64_t newest = hand->attempt;
    const char *job = TEXT("after %" PRIu64, newest);
    if (way == BY_ITS_OLD_GRANT) return CAIRN_OK; /* by its first save */
    if (way == BY_PUT) {
        enum cairn_code code =
            cairn_say(world, "PUT", WORLD_RUN, "{\"labels\":{\"of\":\"now\"}}", NULL);
        return code ? code : hand_open(world, hand, job, newest, "latest", 1);
    }
    return hand_open(world, hand, job, way == BY_TRAINER ? 0 : newest, "latest", 1);
}

static void expect_empty(struct cairn_world *world, enum way way) {
    CAIRN_AUTO_JSON json_t *run = NULL, *policy = NULL;
    EXPECT(cairn_say(world, "GET", WORLD_RUN, NULL, &run) == CAIRN_OK);
    EXPECT(cairn_say(world, "GET", POLICY, NULL, &policy) == CAIRN_OK);
    const json_t *labels = json_object_get(run, "labels");
    EXPECT_EQ_U64(json_object_size(labels), way == BY_PUT);
    if (way == BY_PUT) EXPECT_EQ_TEXT(world_text(labels, "of"), "now");
    EXPECT_SHOWS(run, "note", "null", "from", "null");
    EXPECT(json_is_null(json_object_get(policy, "from")));
}

TEST(a_removed_run_that_is_made_again_is_empty_whoever_makes_it_and_keeps_what_it_saves) {
    JOB_INSIDE(1, "--trash-grace=10min");
    SAVES(saves, 3);
    for (unsigned i = 0; i < 2 * WAYS; i++) {
        enum way way = (enum way)(i % WAYS);
        uint64_t hours = i < WAYS ? 0 : 60, newest = hand.attempt; /* 60: the trash is emptied */
        REQUIRE_OK(describe_and_remove(&world));
        inside_pass(&world.inside, hours * 3600000);
        REQUIRE_OK(make_again(&world, way, &hand));
        EXPECT_EQ_U64(hand.attempt, newest + (way != BY_ITS_OLD_GRANT)); /* it counts on (Q1) */
        if (way != BY_ITS_OLD_GRANT) expect_empty(&world, way);
        for (uint64_t step = 10; step < 13; step++)
            REQUIRE_OK(hand_save_all(&hand, 100 * i + step, 1, "error", 10, saves));
        inside_pass(&world.inside, 60000);
        expect_empty(&world, way);
        EXPECT_ROWS(3, "versions WHERE state <> 4 AND trashed_tick IS NULL AND step >= 10");
    }
}

TEST(a_removed_run_that_an_undelete_brings_back_is_as_it_was) {
    JOB_INSIDE(1, "--trash-grace=10min");
    SAVES(saves, 3);
    REQUIRE_OK(describe_and_remove(&world));
    EXPECT_SAY(CAIRN_NOT_FOUND, "GET", POLICY, NULL);
    EXPECT_SAY(CAIRN_NOT_FOUND, "PUT", POLICY, "{\"keep\":{\"last\":2}}");
    SAY("POST", TEXT("%s/undelete", saves[1].path), NULL);
    GOT(run, WORLD_RUN);
    GOT(policy, POLICY);
    EXPECT_SHOWS(run, "labels.of", "before", "note", "of before");
    EXPECT_SHOWS(policy, "from", "run", "text", "last 1");
}

/* Q2 */
TEST(of_two_jobs_that_make_a_removed_run_again_only_the_first_has_seen_the_newest_attempt) {
    struct cairn_hand next, late;
    JOB_INSIDE(1, "--trash-grace=10min");
    SAVES(saves, 3);
    REQUIRE_OK(describe_and_remove(&world));
    EXPECT_CODE(hand_open(&world, &late, "j3", 7, "latest", 1), CAIRN_ATTEMPT_MOVED);
    REQUIRE_OK(hand_open(&world, &next, "j2", 0, "latest", 1));
    EXPECT_EQ_TEXT(next.resumed, "(none)");
    EXPECT_CODE(hand_open(&world, &late, "j3", 0, "latest", 1), CAIRN_ATTEMPT_MOVED);
    EXPECT_SAY(CAIRN_OK, "GET", WORLD_RUN, NULL);
}
