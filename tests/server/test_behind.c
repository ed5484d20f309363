/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* A catalog that is behind its store, in one run or in all, and what ends that (Q35, Q36, V39,
 * V40). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/documents/manifest.h"
#include "api/documents/records.h"
#include "common/file.h"
#include "server/db/engine_sqlite.h"
#include "tests/server/world.h"
#include "tests/support/raw.h"

#define OTHER_RUN "/v1/runs/llm/eight"
#define MINUTE_MS UINT64_C(60000)

#define err world.err /* of the macros */

static struct cairn_run_name seven = {"llm", "seven"};

/* An attempt of the other run, which must go on whatever happens to the first. */
static enum cairn_code open_other(struct cairn_world *world, const char *job, uint64_t after) {
    return cairn_world_call(world, "POST", OTHER_RUN "/attempts",
                            json_pack("{s:s, s:i, s:s, s:I, s:i, s:[{s:i, s:s}], s:s}", "job", job,
                                      "world_size", 1, "resume", "latest", "after",
                                      (json_int_t)after, "wait_staged_ms", 1000, "ranks", "rank", 0,
                                      "proc", job, "node", "node-b"),
                            NULL);
}

static enum cairn_code latest_of(struct cairn_world *world, char ret[64]) {
    CAIRN_AUTO_JSON json_t *latest = NULL;
    CAIRN_TRY(cairn_world_call(world, "GET", WORLD_RUN "/checkpoints/latest", NULL, &latest));
    snprintf(ret, 64, "%s", cairn_world_text(latest, "version"));
    return CAIRN_OK;
}

static void check_of(struct cairn_world *world, const char *name, char ret[800]) {
    CAIRN_AUTO_JSON json_t *ready = NULL;
    EXPECT(!cairn_world_call(world, "GET", "/readyz", NULL, &ready));
    snprintf(ret, 800, "%s", cairn_world_text(json_object_get(ready, "checks"), name));
}

static bool object_there(struct cairn_world *world, const struct cairn_key *key) {
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key->text};
    return !cairn_store_perform(world->worker, &head, NULL);
}

static void expect_frozen(struct cairn_world *world) {
    static const char *const paths[] = {WORLD_RUN, WORLD_RUN "/checkpoints",
                                        WORLD_RUN "/checkpoints/latest",
                                        WORLD_RUN "/checkpoints/1"};
    for (size_t i = 0; i < CAIRN_COUNT(paths); i++) {
        enum cairn_code code = cairn_world_call(world, "GET", paths[i], NULL, NULL);
        if (!EXPECT(code == CAIRN_CATALOG_BEHIND)) printf("    %s\n", paths[i]);
    }
    struct cairn_hand next;
    EXPECT_EQ_U64(cairn_hand_open(world, &next, "a-later-job", 1, "latest", 1),
                  CAIRN_CATALOG_BEHIND);
    char text[800];
    check_of(world, "runs", text);
    EXPECT(strstr(text, "llm/seven"));
    EXPECT(!open_other(world, "other-2", 1)); /* other runs go on */
}

/* The rows of a save go back to what they were before it, as in a backup of the same life. */
static bool forget_versions_above(struct cairn_world *world) {
    return cairn_world_sql(world, "DELETE FROM shards WHERE version IN (SELECT version FROM "
                                  "versions WHERE step > 2 AND run_id = 1)") &&
           cairn_world_sql(world, "DELETE FROM version_ranks WHERE version IN (SELECT version FROM "
                                  "versions WHERE step > 2 AND run_id = 1)") &&
           cairn_world_sql(world, "DELETE FROM version_groups WHERE version IN (SELECT version "
                                  "FROM versions WHERE step > 2 AND run_id = 1)") &&
           cairn_world_sql(world, "DELETE FROM versions WHERE step > 2 AND run_id = 1");
}

TEST(d07_a_backup_of_the_same_life_freezes_the_run_that_went_on_and_no_other_V39) /* Q35, Q36 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save saves[7];
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    for (uint64_t step = 1; step <= 6; step++)
        REQUIRE_OK(cairn_hand_save_all(&hand, step, 1, "error", 10, &saves[step]));
    REQUIRE_OK(open_other(&world, "other", 0));
    REQUIRE(forget_versions_above(&world));
    REQUIRE_OK(cairn_inside_restart(&world.inside));
    expect_frozen(&world);
    /* By id, what the catalog still knows is read. */
    REQUIRE_OK(cairn_world_call(&world, "GET", saves[1].path, NULL, NULL));
    /* Not even time and another start end it, and nothing is deleted. */
    cairn_inside_pass(&world.inside, 25 * 60 * MINUTE_MS);
    REQUIRE_OK(cairn_inside_restart(&world.inside));
    expect_frozen(&world);
    for (uint64_t step = 1; step <= 6; step++) {
        struct cairn_version_place place = {seven, step, saves[step].id};
        struct cairn_key record;
        cairn_key_committed(&place, &record);
        EXPECT(object_there(&world, &record));
    }
}

TEST(a_version_that_the_backup_calls_open_is_not_swept_when_the_store_has_its_record_V39) /* Q32 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &save));
    REQUIRE_OK(open_other(&world, "other", 0));
    REQUIRE(cairn_world_sql(&world, "UPDATE versions SET state = 0, recorded = 0, committed_ms = "
                                    "0, manifest_sha256 = NULL WHERE run_id = 1"));
    REQUIRE_OK(cairn_inside_restart(&world.inside));
    cairn_inside_pass(&world.inside, 25 * 60 * MINUTE_MS);
    expect_frozen(&world);
    struct cairn_version_place place = {seven, 1, save.id};
    struct cairn_key record, shard;
    cairn_key_committed(&place, &record);
    cairn_key_shard(&place, CAIRN_VIEW("rank-00000/x"), &shard);
    EXPECT(object_there(&world, &record) && object_there(&world, &shard));
}

TEST(a_version_that_the_backup_calls_unrecorded_is_latest_when_the_store_has_its_record_P7) {
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save older, newer;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &older));
    REQUIRE_OK(cairn_hand_save_all(&hand, 2, 1, "error", 10, &newer));
    REQUIRE(cairn_world_sql(&world, "UPDATE versions SET recorded = 0 WHERE step = 2"));
    REQUIRE_OK(cairn_inside_restart(&world.inside));
    char id[64];
    REQUIRE_OK(latest_of(&world, id));
    EXPECT_EQ_TEXT(id, newer.id.text);
}

static void put_attempt(struct cairn_world *world, uint64_t number, const char *text) {
    struct cairn_key key;
    cairn_key_attempt(&seven, number, &key);
    EXPECT(!cairn_store_put_small(world->worker, key.text, cairn_view_of(text), true, NULL));
}

TEST(one_foreign_attempt_record_freezes_its_run_and_no_other_and_a_restart_thaws_nothing_V40) {
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, NULL));
    struct cairn_hand hand, next;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &save));
    REQUIRE_OK(open_other(&world, "other", 0));
    /* In the way of the next attempt of a run that was compared long ago. */
    put_attempt(&world, 2, "{\"not\": \"ours\"}");
    EXPECT_CODE(cairn_hand_open(&world, &next, "j2", 1, "latest", 1), CAIRN_CATALOG_BEHIND);
    expect_frozen(&world);
    REQUIRE_OK(cairn_inside_restart(&world.inside));
    expect_frozen(&world);
}

TEST(the_generation_is_raised_before_deletions_and_every_ten_minutes_Q35) {
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, NULL));
    struct cairn_key key;
    struct cairn_store_record before = {0}, idle = {0}, after = {0}, swept = {0};
    struct {
        struct cairn_store_record *to;
    } reads[] = {{&before}, {&idle}, {&after}, {&swept}};
    cairn_key_store_json(&key);
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    for (size_t i = 0; i < CAIRN_COUNT(reads); i++) {
        CAIRN_AUTO(buf) text = {0};
        REQUIRE_OK(cairn_store_get_small(world.worker, key.text, &text, &err));
        REQUIRE_OK(cairn_store_record_decode(cairn_buf_view(&text), reads[i].to, &err));
        if (i == 0) cairn_inside_pass(&world.inside, 9 * MINUTE_MS);
        if (i == 1) cairn_inside_pass(&world.inside, 2 * MINUTE_MS);
        if (i == 2) {
            char path[256];
            REQUIRE_OK(cairn_hand_begin(&hand, 1, 1, "error", &save));
            snprintf(path, sizeof(path), "%s/abort", save.path);
            REQUIRE_OK(cairn_world_call(&world, "POST", path, NULL, NULL));
            cairn_inside_pass(&world.inside, 1000);
        }
    }
    EXPECT_EQ_U64(idle.generation, before.generation);
    EXPECT_EQ_U64(after.generation, before.generation + 1);
    EXPECT_EQ_U64(swept.generation, after.generation + 1);
    /* Uploaders get the start's, so that none repeats what it has sent because of it. */
    struct cairn_key number;
    cairn_key_generation(swept.generation, &number);
    EXPECT(object_there(&world, &number));
    cairn_key_generation(after.generation, &number);
    EXPECT(!object_there(&world, &number));
}

TEST(a_generation_that_another_server_took_freezes_before_anything_is_deleted_Q35) {
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_begin(&hand, 1, 1, "error", &save));
    json_t *shard = cairn_hand_shard(&save, "x", 0, CAIRN_VIEW("abc"));
    REQUIRE_OK(cairn_hand_send(&save, json_pack("[o]", shard), NULL, NULL));
    struct cairn_key number, object;
    cairn_key_generation(world.inside.server.raising_to + 1, &number);
    REQUIRE_OK(cairn_store_put_small(world.worker, number.text, CAIRN_VIEW("theirs"), true, &err));
    char path[256];
    snprintf(path, sizeof(path), "%s/abort", save.path);
    REQUIRE_OK(cairn_world_call(&world, "POST", path, NULL, NULL));
    cairn_inside_pass(&world.inside, MINUTE_MS);
    struct cairn_version_place place = {seven, 1, save.id};
    cairn_key_shard(&place, CAIRN_VIEW("x"), &object);
    EXPECT(object_there(&world, &object));
    EXPECT_CODE(cairn_world_call(&world, "GET", WORLD_RUN "/checkpoints/latest", NULL, NULL),
                CAIRN_CATALOG_BEHIND);
}

TEST(a_number_that_store_json_did_not_get_freezes_nothing_Q35) {
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    struct cairn_key key, number, object;
    cairn_key_store_json(&key);
    CAIRN_AUTO(buf) before = {0};
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_store_get_small(world.worker, key.text, &before, &err));
    cairn_inside_pass(&world.inside, 11 * MINUTE_MS);
    cairn_key_generation(world.inside.server.raising_to, &number);
    REQUIRE(object_there(&world, &number));
    /* As after a put of store.json that the store refused: number and catalog are ahead of it. */
    REQUIRE_OK(cairn_store_put_small(world.worker, key.text, cairn_buf_view(&before), false, &err));
    REQUIRE_OK(cairn_hand_begin(&hand, 1, 1, "error", &save));
    json_t *shard = cairn_hand_shard(&save, "x", 0, CAIRN_VIEW("abc"));
    REQUIRE_OK(cairn_hand_send(&save, json_pack("[o]", shard), NULL, NULL));
    char path[256];
    snprintf(path, sizeof(path), "%s/abort", save.path);
    REQUIRE_OK(cairn_world_call(&world, "POST", path, NULL, NULL));
    cairn_inside_pass(&world.inside, MINUTE_MS);
    struct cairn_version_place place = {seven, 1, save.id};
    cairn_key_shard(&place, CAIRN_VIEW("x"), &object);
    EXPECT(!object_there(&world, &object));
    EXPECT_CODE(cairn_world_call(&world, "GET", WORLD_RUN "/checkpoints/latest", NULL, NULL),
                CAIRN_NOT_FOUND);
}

/* ---- what ends it ---- */

TEST(what_was_to_be_swept_behind_the_version_that_froze_its_run_stays_Q36) {
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save saves[2];
    char path[256];
    struct cairn_key record, shard;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    for (uint32_t i = 0; i < 2; i++) {
        REQUIRE_OK(cairn_hand_begin(&hand, i + 1, 1, "error", &saves[i]));
        json_decref(cairn_hand_shard(&saves[i], "rank-00000/x", 0, CAIRN_VIEW("bytes")));
        cairn_inside_pass(&world.inside, MINUTE_MS); /* it is swept behind the first */
    }
    struct cairn_version_place first = {seven, 1, saves[0].id}, second = {seven, 2, saves[1].id};
    cairn_key_committed(&first, &record);
    cairn_key_shard(&second, CAIRN_VIEW("rank-00000/x"), &shard);
    REQUIRE_OK(cairn_store_put_small(world.worker, record.text, CAIRN_VIEW("{}"), true, &err));
    for (uint32_t i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/abort", saves[i].path);
        REQUIRE_OK(cairn_world_call(&world, "POST", path, NULL, NULL));
    }
    cairn_inside_round(&world.inside);
    EXPECT_CODE(cairn_world_call(&world, "GET", WORLD_RUN, NULL, NULL), CAIRN_CATALOG_BEHIND);
    EXPECT(object_there(&world, &shard));
}

static enum cairn_code reconcile(struct cairn_world *world, bool *ret_frozen) {
    CAIRN_AUTO_JSON json_t *answer = NULL;
    (void)!cairn_world_call(world, "POST", WORLD_RUN "/reconcile", NULL, NULL);
    cairn_inside_pass(&world->inside, 2 * MINUTE_MS);
    CAIRN_TRY(cairn_world_call(world, "POST", WORLD_RUN "/reconcile", NULL, &answer));
    *ret_frozen = json_is_true(json_object_get(answer, "frozen"));
    return CAIRN_OK;
}

/* Each once, and one after the other. */
static void expect_told(const json_t *events, const char *first, const char *second) {
    uint64_t at[2] = {0}, times[2] = {0};
    size_t index = 0;
    json_t *item = NULL;
    json_array_foreach(events, index, item) {
        for (int i = 0; i < 2; i++) {
            if (strcmp(cairn_world_text(item, "event"), i ? second : first) != 0) continue;
            at[i] = cairn_world_number(item, "id");
            times[i]++;
        }
    }
    EXPECT_EQ_U64(times[0], 1);
    EXPECT_EQ_U64(times[1], 1);
    EXPECT(at[0] < at[1]);
}

TEST(a_reconcile_takes_over_what_verifies_and_the_run_goes_on_V39) /* Q36, Q37 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, NULL));
    struct cairn_hand hand, next;
    struct cairn_hand_save saves[7];
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    for (uint64_t step = 1; step <= 6; step++)
        REQUIRE_OK(cairn_hand_save_all(&hand, step, 1, "error", 10, &saves[step]));
    REQUIRE_OK(open_other(&world, "other", 0));
    REQUIRE(forget_versions_above(&world));
    /* Of step 5 a shard is lost meanwhile: it must not be taken over. */
    struct cairn_version_place damaged = {seven, 5, saves[5].id};
    struct cairn_key shard;
    cairn_key_shard(&damaged, CAIRN_VIEW("rank-00000/x"), &shard);
    REQUIRE_OK(cairn_store_delete(world.worker, shard.text, &err));
    REQUIRE_OK(cairn_inside_restart(&world.inside));
    expect_frozen(&world);
    bool frozen = true;
    REQUIRE_OK(reconcile(&world, &frozen));
    EXPECT(!frozen);
    char id[64], text[800];
    REQUIRE_OK(latest_of(&world, id));
    EXPECT_EQ_TEXT(id, saves[6].id.text);
    CAIRN_AUTO_JSON json_t *events = NULL; /* asked for several times, told once */
    REQUIRE_OK(cairn_world_call(&world, "GET", WORLD_RUN "/events?since=0", NULL, &events));
    expect_told(json_object_get(events, "items"), "run.frozen", "run.reconciling");
    expect_told(json_object_get(events, "items"), "run.reconciling", "run.reconciled");
    check_of(&world, "runs", text);
    EXPECT_EQ_TEXT(text, "ok");
    CAIRN_AUTO_JSON json_t *list = NULL, *six = NULL;
    REQUIRE_OK(
        cairn_world_call(&world, "GET", WORLD_RUN "/checkpoints?state=committed", NULL, &list));
    EXPECT_EQ_U64(json_array_size(json_object_get(list, "items")), 5);
    REQUIRE_OK(cairn_world_call(&world, "GET", saves[6].path, NULL, &six));
    EXPECT_EQ_U64(cairn_world_number(six, "shards"), 1);
    /* Thawed for good: the next start finds nothing new, and jobs go on from there. */
    REQUIRE_OK(cairn_inside_restart(&world.inside));
    REQUIRE_OK(cairn_hand_open(&world, &next, "j2", 1, "latest", 1));
    EXPECT_EQ_TEXT(next.resumed, saves[6].id.text);
}

TEST(a_reconcile_leaves_the_newest_attempt_and_what_it_has_open_as_they_are) /* Q2, Q26 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, NULL));
    struct cairn_hand hand, again;
    struct cairn_hand_save saves[4], open;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    for (uint64_t step = 1; step <= 3; step++)
        REQUIRE_OK(cairn_hand_save_all(&hand, step, 1, "error", 10, &saves[step]));
    REQUIRE(forget_versions_above(&world));
    REQUIRE_OK(cairn_hand_begin(&hand, 9, 1, "error", &open));
    REQUIRE_OK(cairn_inside_restart(&world.inside));
    EXPECT_CODE(cairn_world_call(&world, "GET", WORLD_RUN "/checkpoints/latest", NULL, NULL),
                CAIRN_CATALOG_BEHIND);
    bool frozen = true;
    REQUIRE_OK(reconcile(&world, &frozen));
    EXPECT(!frozen);
    CAIRN_AUTO_JSON json_t *shown = NULL;
    REQUIRE_OK(cairn_world_call(&world, "GET", open.path, NULL, &shown));
    EXPECT_EQ_TEXT(cairn_world_text(shown, "state"), "open");
    REQUIRE_OK(cairn_hand_open(&world, &again, "j1", 0, "latest", 1));
    EXPECT_EQ_U64(again.attempt, hand.attempt);
    EXPECT_CODE(cairn_hand_open(&world, &again, "j1", 0, "none", 1), CAIRN_ATTEMPT_DIFFERS);
}

TEST(a_version_given_up_here_and_committed_in_the_store_is_taken_over_Q32) {
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &save));
    REQUIRE(cairn_world_sql(&world, "UPDATE versions SET state = 3, recorded = 0, committed_ms = "
                                    "0, manifest_sha256 = NULL"));
    REQUIRE_OK(cairn_inside_restart(&world.inside));
    cairn_inside_pass(&world.inside, MINUTE_MS);
    bool frozen = true;
    REQUIRE_OK(reconcile(&world, &frozen));
    EXPECT(!frozen);
    char id[64];
    REQUIRE_OK(latest_of(&world, id));
    EXPECT_EQ_TEXT(id, save.id.text);
}

TEST(a_reconcile_steps_over_a_foreign_attempt_record_V40) {
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, NULL));
    struct cairn_hand hand, next;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &save));
    put_attempt(&world, 7, "{\"not\": \"ours\"}");
    REQUIRE_OK(cairn_inside_restart(&world.inside));
    EXPECT_CODE(cairn_hand_open(&world, &next, "j2", 1, "latest", 1), CAIRN_CATALOG_BEHIND);
    bool frozen = true;
    REQUIRE_OK(reconcile(&world, &frozen));
    EXPECT(!frozen);
    REQUIRE_OK(cairn_hand_open(&world, &next, "j2", 7, "latest", 1));
    EXPECT_EQ_U64(next.attempt, 8);
    EXPECT_EQ_TEXT(next.resumed, save.id.text);
    REQUIRE_OK(cairn_inside_restart(&world.inside));
    char id[64];
    REQUIRE_OK(latest_of(&world, id));
}

TEST(after_a_lost_catalog_adopting_takes_over_each_run_that_is_asked_for_and_freezes_none_V40) {
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    struct cairn_hand hand, next;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &save));
    REQUIRE_OK(open_other(&world, "other", 0));
    cairn_daemon_end(&world.server);
    REQUIRE(cairn_world_lose_catalog(&world));
    REQUIRE(cairn_world_restart(
        &world, WORLD_ARGS("--adopt-store=true", "--reconcile-wait=0ms", "--sweep-interval=50ms"),
        NULL));
    /* As uploaders do: again until there is an answer. */
    enum cairn_code code = CAIRN_CATALOG_BEHIND;
    AWAIT((code = cairn_hand_open(&world, &next, "j2", 1, "latest", 1)) != CAIRN_CATALOG_BEHIND);
    REQUIRE_OK(code);
    EXPECT_EQ_U64(next.attempt, 2);
    EXPECT_EQ_TEXT(next.resumed, save.id.text);
    AWAIT((code = open_other(&world, "other-2", 1)) != CAIRN_CATALOG_BEHIND);
    EXPECT_CODE(code, CAIRN_OK);
}

TEST(a_lost_store_json_is_written_again_on_request_and_never_into_another_store_D4) {
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    struct cairn_hand hand, next;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &save));
    struct cairn_key key;
    cairn_key_store_json(&key);
    REQUIRE_OK(cairn_store_delete(world.worker, key.text, &err));
    /* While it runs no answer says that a run is not there. */
    EXPECT_CODE(cairn_hand_open(&world, &next, "j2", 1, "latest", 1), CAIRN_UNAVAILABLE);
    cairn_daemon_end(&world.server);
    EXPECT(!cairn_world_restart(&world, NULL, NULL));
    /* Another store, or an empty mount point, is never claimed. */
    char run[500], away[500];
    snprintf(run, sizeof(run), "%s/llm", world.store_path);
    snprintf(away, sizeof(away), "%s/away", world.folder);
    REQUIRE(!rename(run, away));
    EXPECT(!cairn_world_restart(&world, WORLD_ARGS("--adopt-store=true"), NULL));
    EXPECT(!object_there(&world, &key));
    REQUIRE(!rename(away, run));
    REQUIRE(cairn_world_restart(&world, WORLD_ARGS("--adopt-store=true"), NULL));
    EXPECT(object_there(&world, &key));
    EXPECT(cairn_daemon_logged(&world.server, "store.json_rewritten"));
    REQUIRE_OK(cairn_hand_open(&world, &next, "j2", 1, "latest", 1));
    EXPECT_EQ_TEXT(next.resumed, save.id.text);
}

/* ---- the same with files and processes ---- */

static bool copy_catalog(const char *from, const char *to) {
    static const char *const names[] = {"catalog.db", "catalog.db-wal", "grant.key"};
    if (mkdir(to, 0700) && errno != EEXIST) return false;
    for (size_t i = 0; i < CAIRN_COUNT(names); i++) {
        char source[500], target[500];
        CAIRN_AUTO(buf) bytes = {.limit = 64 * CAIRN_MIB};
        snprintf(source, sizeof(source), "%s/%s", from, names[i]);
        snprintf(target, sizeof(target), "%s/%s", to, names[i]);
        (void)unlink(target);
        enum cairn_code code = cairn_file_load(source, &bytes, NULL);
        if (code == CAIRN_NOT_FOUND) continue;
        if (code || cairn_file_replace(target, cairn_buf_view(&bytes), 0600, NULL)) return false;
    }
    return true;
}

TEST(a_backup_of_the_catalogs_files_that_is_put_back_answers_503_and_says_so_V39) {
    NEED_SQLITE;
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save saves[7];
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &saves[1]));
    REQUIRE_OK(cairn_hand_save_all(&hand, 2, 1, "error", 10, &saves[2]));
    REQUIRE_OK(open_other(&world, "other", 0));
    char backup[400];
    snprintf(backup, sizeof(backup), "%s/backup", world.folder);
    REQUIRE(copy_catalog(world.data_path, backup)); /* nobody writes now */
    for (uint64_t step = 3; step <= 6; step++)
        REQUIRE_OK(cairn_hand_save_all(&hand, step, 1, "error", 10, &saves[step]));
    cairn_daemon_end(&world.server);
    REQUIRE(copy_catalog(backup, world.data_path));
    REQUIRE(cairn_world_restart(&world, WORLD_ARGS("--sweep-interval=50ms"), NULL));
    expect_frozen(&world);
    EXPECT(cairn_daemon_logged(&world.server, "run.frozen"));
    char id[64];
    EXPECT_CODE(latest_of(&world, id), CAIRN_CATALOG_BEHIND);
}

/* What a caller hears of `latest`: the headers and the problem. */
static bool says(struct cairn_world *world, bool ends) {
    CAIRN_AUTO(raw) raw = {0};
    CAIRN_AUTO(buf) reply = {0};
    if (!cairn_raw_open(&raw, world->server.port) ||
        !cairn_raw_text(&raw, "GET " WORLD_RUN "/checkpoints/latest HTTP/1.1\r\nHost: localhost"
                              "\r\n\r\n"))
        return false;
    return cairn_raw_reply(&raw, 3000, &reply) == 503 && strstr(reply.data, "catalog-behind") &&
           !strstr(reply.data, "Retry-After: 30") == !ends &&
           !strstr(reply.data, "Retry-After: ") == !ends &&
           strstr(reply.data, ends ? "\"retryable\":true" : "\"retryable\":false");
}

TEST(a_freeze_that_ends_by_itself_says_when_to_come_again_and_one_that_waits_for_people_does_not) {
    NEED_SQLITE;
    CAIRN_AUTO(world) world = {0};
    struct cairn_srv_tx *shell = NULL;
    struct cairn_hand hand;
    struct cairn_hand_save save;
    char path[600];
    REQUIRE(cairn_world_start(&world, WORLD_ARGS("--reconcile-wait=1h"), NULL));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &save));
    snprintf(path, sizeof(path), "%s/catalog.db", world.data_path);
    REQUIRE_OK(cairn_srv_sqlite_open(path, false, &shell, &err));
    REQUIRE_OK(cairn_srv_sqlite_exec(
        shell, "INSERT INTO frozen_runs(run_id, cause, since_ms) VALUES(1, 'of a test', 1)", &err));
    REQUIRE(cairn_world_restart(&world, WORLD_ARGS("--reconcile-wait=1h"), NULL));
    EXPECT(says(&world, false));
    /* Somebody asked for its reconcile: it waits for reconcile-wait, and then ends. */
    REQUIRE_OK(cairn_srv_sqlite_exec(
        shell, "UPDATE frozen_runs SET asked = 1, due_tick = 1000000000000", &err));
    cairn_srv_sqlite_free(shell);
    EXPECT(says(&world, true));
}
