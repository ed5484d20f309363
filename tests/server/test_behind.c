/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* A catalog that is behind its store, in one run or in all, and what ends that (Q35, Q36, V39,
 * V40). */
#include "tests/server/world.h"

#define OTHER_RUN "/v1/runs/llm/eight"

#define err world.err /* of the macros */

static struct cairn_run_name seven = {"llm", "seven"};

/* An attempt of the other run, which must go on whatever happens to the first. */
static enum cairn_code open_other(struct cairn_world *world, const char *job, uint64_t after) {
    return world_call(world, "POST", OTHER_RUN "/attempts",
                      json_pack("{s:s, s:i, s:s, s:I, s:i, s:[{s:i, s:s}], s:s}", "job", job,
                                "world_size", 1, "resume", "latest", "after", (json_int_t)after,
                                "wait_staged_ms", 1000, "ranks", "rank", 0, "proc", job, "node",
                                "node-b"),
                      NULL);
}

static enum cairn_code latest_of(struct cairn_world *world, char ret[64]) {
    CAIRN_AUTO_JSON json_t *latest = NULL;
    CAIRN_TRY(world_call(world, "GET", WORLD_RUN "/checkpoints/latest", NULL, &latest));
    snprintf(ret, 64, "%s", world_text(latest, "version"));
    return CAIRN_OK;
}

static void expect_frozen(struct cairn_world *world) {
    EACH_TEXT(one, WORLD_RUN, WORLD_RUN "/checkpoints", WORLD_RUN "/checkpoints/latest",
              WORLD_RUN "/checkpoints/1") {
        enum cairn_code code = world_call(world, "GET", one, NULL, NULL);
        if (!EXPECT(code == CAIRN_CATALOG_BEHIND)) printf("    %s\n", one);
    }
    struct cairn_hand next;
    EXPECT_EQ_U64(hand_open(world, &next, "a-later-job", 1, "latest", 1), CAIRN_CATALOG_BEHIND);
    EXPECT_HAS(world_check(world, "runs"), "llm/seven");
    EXPECT(!open_other(world, "other-2", 1)); /* other runs go on */
}

/* The rows of a save go back to what they were before it, as in a backup of the same life. */
static bool forget_versions_above(struct cairn_world *world) {
    return world_sql(world, "DELETE FROM shards WHERE version IN (SELECT version FROM "
                            "versions WHERE step > 2 AND run_id = 1)") &&
           world_sql(world, "DELETE FROM version_ranks WHERE version IN (SELECT version FROM "
                            "versions WHERE step > 2 AND run_id = 1)") &&
           world_sql(world, "DELETE FROM version_groups WHERE version IN (SELECT version "
                            "FROM versions WHERE step > 2 AND run_id = 1)") &&
           world_sql(world, "DELETE FROM versions WHERE step > 2 AND run_id = 1");
}

TEST(d07_a_backup_of_the_same_life_freezes_the_run_that_went_on_and_no_other_V39) { /* Q35, Q36 */
    struct cairn_hand_save saves[7];
    JOB_INSIDE(1);
    REQUIRE_OK(hand_saves(&hand, saves + 1, 6));
    REQUIRE_OK(open_other(&world, "other", 0));
    REQUIRE(forget_versions_above(&world));
    REQUIRE_OK(inside_restart(&world.inside));
    expect_frozen(&world);
    /* By id, what the catalog still knows is read. */
    ASK("GET", saves[1].path, NULL);
    /* Not even time and another start end it, and nothing is deleted. */
    inside_pass(&world.inside, 25 * 60 * MINUTE_MS);
    REQUIRE_OK(inside_restart(&world.inside));
    expect_frozen(&world);
    for (uint64_t step = 1; step <= 6; step++) {
        struct cairn_version_place place = {seven, step, saves[step].id};
        struct cairn_key record;
        cairn_key_committed(&place, &record);
        EXPECT(world_holds(&world, &record));
    }
}

TEST(a_version_that_the_backup_calls_open_is_not_swept_when_the_store_has_its_record_V39) /* Q32 */
{
    JOB_INSIDE(1);
    SAVED(save, 1);
    REQUIRE_OK(open_other(&world, "other", 0));
    REQUIRE(world_sql(&world, "UPDATE versions SET state = 0, recorded = 0, committed_ms = "
                              "0, manifest_sha256 = NULL WHERE run_id = 1"));
    REQUIRE_OK(inside_restart(&world.inside));
    inside_pass(&world.inside, 25 * 60 * MINUTE_MS);
    expect_frozen(&world);
    struct cairn_version_place place = {seven, 1, save.id};
    struct cairn_key record, shard;
    cairn_key_committed(&place, &record);
    cairn_key_shard(&place, CAIRN_VIEW("rank-00000/x"), &shard);
    EXPECT(world_holds(&world, &record) && world_holds(&world, &shard));
}

TEST(a_version_that_the_backup_calls_unrecorded_is_latest_when_the_store_has_its_record_P7) {
    JOB_INSIDE(1);
    SAVED(older, 1);
    SAVED(newer, 2);
    REQUIRE(world_sql(&world, "UPDATE versions SET recorded = 0 WHERE step = 2"));
    REQUIRE_OK(inside_restart(&world.inside));
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
    struct cairn_hand next;
    JOB_INSIDE(1);
    SAVED(save, 1);
    REQUIRE_OK(open_other(&world, "other", 0));
    /* In the way of the next attempt of a run that was compared long ago. */
    put_attempt(&world, 2, "{\"not\": \"ours\"}");
    EXPECT_CODE(hand_open(&world, &next, "j2", 1, "latest", 1), CAIRN_CATALOG_BEHIND);
    expect_frozen(&world);
    REQUIRE_OK(inside_restart(&world.inside));
    expect_frozen(&world);
}

TEST(the_generation_is_raised_before_deletions_and_every_ten_minutes_Q35) {
    INSIDE();
    struct cairn_key key;
    struct cairn_store_record before = {0}, idle = {0}, after = {0}, swept = {0};
    cairn_key_store_json(&key);
    struct cairn_hand_save save;
    HAND(1);
    EACH(one, FIELDS(struct cairn_store_record * to), {&before}, {&idle}, {&after}, {&swept}) {
        WITH_OK(buf, text, cairn_store_get_small(world.worker, key.text, &text, &err));
        REQUIRE_OK(cairn_store_record_decode(cairn_buf_view(&text), one->to, &err));
        if (AT(one) == 0) inside_pass(&world.inside, 9 * MINUTE_MS);
        if (AT(one) == 1) inside_pass(&world.inside, 2 * MINUTE_MS);
        if (AT(one) == 2) {
            REQUIRE_OK(hand_begin(&hand, 1, 1, "error", &save));
            ASK("POST", TEXT("%s/abort", save.path), NULL);
            inside_pass(&world.inside, 1000);
        }
    }
    EXPECT_ALL_U64(idle.generation, before.generation, after.generation, before.generation + 1,
                   swept.generation, after.generation + 1);
    /* Uploaders get the start's, so that none repeats what it has sent because of it. */
    struct cairn_key number;
    cairn_key_generation(swept.generation, &number);
    EXPECT(world_holds(&world, &number));
    cairn_key_generation(after.generation, &number);
    EXPECT(!world_holds(&world, &number));
}

TEST(a_generation_that_another_server_took_freezes_before_anything_is_deleted_Q35) {
    JOB_INSIDE(1);
    BEGUN(save, 1);
    REQUIRE_OK(hand_register(&save, "x", 0, CAIRN_VIEW("abc")));
    struct cairn_key number, object;
    cairn_key_generation(world.inside.server.raising_to + 1, &number);
    REQUIRE_OK(cairn_store_put_small(world.worker, number.text, CAIRN_VIEW("theirs"), true, &err));
    ASK("POST", TEXT("%s/abort", save.path), NULL);
    inside_pass(&world.inside, MINUTE_MS);
    struct cairn_version_place place = {seven, 1, save.id};
    cairn_key_shard(&place, CAIRN_VIEW("x"), &object);
    EXPECT(world_holds(&world, &object));
    EXPECT_REFUSED(CAIRN_CATALOG_BEHIND, "GET", WORLD_RUN "/checkpoints/latest", NULL);
}

TEST(a_number_that_store_json_did_not_get_freezes_nothing_Q35) {
    INSIDE();
    struct cairn_key key, number, object;
    cairn_key_store_json(&key);
    HAND(1);
    WITH_OK(buf, before, cairn_store_get_small(world.worker, key.text, &before, &err));
    inside_pass(&world.inside, 11 * MINUTE_MS);
    cairn_key_generation(world.inside.server.raising_to, &number);
    REQUIRE(world_holds(&world, &number));
    /* As after a put of store.json that the store refused: number and catalog are ahead of it. */
    REQUIRE_OK(cairn_store_put_small(world.worker, key.text, cairn_buf_view(&before), false, &err));
    BEGUN(save, 1);
    REQUIRE_OK(hand_register(&save, "x", 0, CAIRN_VIEW("abc")));
    ASK("POST", TEXT("%s/abort", save.path), NULL);
    inside_pass(&world.inside, MINUTE_MS);
    struct cairn_version_place place = {seven, 1, save.id};
    cairn_key_shard(&place, CAIRN_VIEW("x"), &object);
    EXPECT(!world_holds(&world, &object));
    EXPECT_REFUSED(CAIRN_NOT_FOUND, "GET", WORLD_RUN "/checkpoints/latest", NULL);
}

/* ---- what ends it ---- */

TEST(what_was_to_be_swept_behind_the_version_that_froze_its_run_stays_Q36) {
    struct cairn_hand_save saves[2];
    struct cairn_key record, shard;
    JOB_INSIDE(1);
    for (uint32_t i = 0; i < 2; i++) {
        REQUIRE_OK(hand_begin(&hand, i + 1, 1, "error", &saves[i]));
        json_decref(hand_shard(&saves[i], "rank-00000/x", 0, CAIRN_VIEW("bytes")));
        inside_pass(&world.inside, MINUTE_MS); /* it is swept behind the first */
    }
    struct cairn_version_place first = {seven, 1, saves[0].id}, second = {seven, 2, saves[1].id};
    cairn_key_committed(&first, &record);
    cairn_key_shard(&second, CAIRN_VIEW("rank-00000/x"), &shard);
    REQUIRE_OK(cairn_store_put_small(world.worker, record.text, CAIRN_VIEW("{}"), true, &err));
    for (uint32_t i = 0; i < 2; i++) {
        ASK("POST", TEXT("%s/abort", saves[i].path), NULL);
    }
    inside_round(&world.inside);
    EXPECT_REFUSED(CAIRN_CATALOG_BEHIND, "GET", WORLD_RUN, NULL);
    EXPECT(world_holds(&world, &shard));
}

static enum cairn_code reconcile(struct cairn_world *world, bool *ret_frozen) {
    CAIRN_AUTO_JSON json_t *answer = NULL;
    (void)!world_call(world, "POST", WORLD_RUN "/reconcile", NULL, NULL);
    inside_pass(&world->inside, 2 * MINUTE_MS);
    CAIRN_TRY(world_call(world, "POST", WORLD_RUN "/reconcile", NULL, &answer));
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
            if (strcmp(world_text(item, "event"), i ? second : first) != 0) continue;
            at[i] = world_number(item, "id");
            times[i]++;
        }
    }
    EXPECT_ALL_U64(times[0], 1, times[1], 1);
    EXPECT(at[0] < at[1]);
}

TEST(a_reconcile_takes_over_what_verifies_and_the_run_goes_on_V39) { /* Q36, Q37 */
    struct cairn_hand next;
    struct cairn_hand_save saves[7];
    JOB_INSIDE(1);
    REQUIRE_OK(hand_saves(&hand, saves + 1, 6));
    REQUIRE_OK(open_other(&world, "other", 0));
    REQUIRE(forget_versions_above(&world));
    /* Of step 5 a shard is lost meanwhile: it must not be taken over. */
    struct cairn_version_place damaged = {seven, 5, saves[5].id};
    struct cairn_key shard;
    cairn_key_shard(&damaged, CAIRN_VIEW("rank-00000/x"), &shard);
    REQUIRE_OK(cairn_store_delete(world.worker, shard.text, &err));
    REQUIRE_OK(inside_restart(&world.inside));
    expect_frozen(&world);
    bool frozen = true;
    REQUIRE_OK(reconcile(&world, &frozen));
    EXPECT(!frozen);
    char id[64];
    REQUIRE_OK(latest_of(&world, id));
    EXPECT_EQ_TEXT(id, saves[6].id.text);
    CAIRN_AUTO_JSON json_t *events = NULL; /* asked for several times, told once */
    REQUIRE_OK(world_call(&world, "GET", WORLD_RUN "/events?since=0", NULL, &events));
    expect_told(json_object_get(events, "items"), "run.frozen", "run.reconciling");
    expect_told(json_object_get(events, "items"), "run.reconciling", "run.reconciled");
    EXPECT_EQ_TEXT(world_check(&world, "runs"), "ok");
    EXPECT_GET(WORLD_RUN "/checkpoints?state=committed", "items.#", "5");
    EXPECT_GET(saves[6].path, "shards", "1");
    /* Thawed for good: the next start finds nothing new, and jobs go on from there. */
    REQUIRE_OK(inside_restart(&world.inside));
    REQUIRE_OK(hand_open(&world, &next, "j2", 1, "latest", 1));
    EXPECT_EQ_TEXT(next.resumed, saves[6].id.text);
}

TEST(a_reconcile_leaves_the_newest_attempt_and_what_it_has_open_as_they_are) { /* Q2, Q26 */
    struct cairn_hand again;
    struct cairn_hand_save saves[4];
    JOB_INSIDE(1);
    REQUIRE_OK(hand_saves(&hand, saves + 1, 3));
    REQUIRE(forget_versions_above(&world));
    BEGUN(open, 9);
    REQUIRE_OK(inside_restart(&world.inside));
    EXPECT_REFUSED(CAIRN_CATALOG_BEHIND, "GET", WORLD_RUN "/checkpoints/latest", NULL);
    bool frozen = true;
    REQUIRE_OK(reconcile(&world, &frozen));
    EXPECT(!frozen);
    EXPECT_GET(open.path, "state", "open");
    REQUIRE_OK(hand_open(&world, &again, "j1", 0, "latest", 1));
    EXPECT_EQ_U64(again.attempt, hand.attempt);
    EXPECT_CODE(hand_open(&world, &again, "j1", 0, "none", 1), CAIRN_ATTEMPT_DIFFERS);
}

TEST(a_version_given_up_here_and_committed_in_the_store_is_taken_over_Q32) {
    JOB_INSIDE(1);
    SAVED(save, 1);
    REQUIRE(world_sql(&world, "UPDATE versions SET state = 3, recorded = 0, committed_ms = "
                              "0, manifest_sha256 = NULL"));
    REQUIRE_OK(inside_restart(&world.inside));
    inside_pass(&world.inside, MINUTE_MS);
    bool frozen = true;
    REQUIRE_OK(reconcile(&world, &frozen));
    EXPECT(!frozen);
    char id[64];
    REQUIRE_OK(latest_of(&world, id));
    EXPECT_EQ_TEXT(id, save.id.text);
}

TEST(a_reconcile_steps_over_a_foreign_attempt_record_V40) {
    struct cairn_hand next;
    JOB_INSIDE(1);
    SAVED(save, 1);
    put_attempt(&world, 7, "{\"not\": \"ours\"}");
    REQUIRE_OK(inside_restart(&world.inside));
    EXPECT_CODE(hand_open(&world, &next, "j2", 1, "latest", 1), CAIRN_CATALOG_BEHIND);
    bool frozen = true;
    REQUIRE_OK(reconcile(&world, &frozen));
    EXPECT(!frozen);
    REQUIRE_OK(hand_open(&world, &next, "j2", 7, "latest", 1));
    EXPECT_EQ_U64(next.attempt, 8);
    EXPECT_EQ_TEXT(next.resumed, save.id.text);
    REQUIRE_OK(inside_restart(&world.inside));
    char id[64];
    REQUIRE_OK(latest_of(&world, id));
}

TEST(after_a_lost_catalog_adopting_takes_over_each_run_that_is_asked_for_and_freezes_none_V40) {
    struct cairn_hand next;
    JOB(1);
    SAVED(save, 1);
    REQUIRE_OK(open_other(&world, "other", 0));
    cairn_daemon_end(&world.server);
    REQUIRE(world_lose_catalog(&world));
    REQUIRE(world_restart(
        &world, WORLD_ARGS("--adopt-store=true", "--reconcile-wait=0ms", "--sweep-interval=50ms"),
        NULL));
    /* As uploaders do: again until there is an answer. */
    enum cairn_code code = CAIRN_CATALOG_BEHIND;
    AWAIT((code = hand_open(&world, &next, "j2", 1, "latest", 1)) != CAIRN_CATALOG_BEHIND);
    REQUIRE_OK(code);
    EXPECT_EQ_U64(next.attempt, 2);
    EXPECT_EQ_TEXT(next.resumed, save.id.text);
    AWAIT((code = open_other(&world, "other-2", 1)) != CAIRN_CATALOG_BEHIND);
    EXPECT_CODE(code, CAIRN_OK);
}

TEST(a_lost_store_json_is_written_again_on_request_and_never_into_another_store_D4) {
    struct cairn_hand next;
    JOB(1);
    SAVED(save, 1);
    struct cairn_key key;
    cairn_key_store_json(&key);
    REQUIRE_OK(cairn_store_delete(world.worker, key.text, &err));
    /* While it runs no answer says that a run is not there. */
    EXPECT_CODE(hand_open(&world, &next, "j2", 1, "latest", 1), CAIRN_UNAVAILABLE);
    cairn_daemon_end(&world.server);
    EXPECT(!world_restart(&world, NULL, NULL));
    /* Another store, or an empty mount point, is never claimed. */
    const char *run = TEXT("%s/llm", world.store_path);
    const char *away = TEXT("%s/away", world.folder);
    REQUIRE(!rename(run, away));
    EXPECT(!world_restart(&world, WORLD_ARGS("--adopt-store=true"), NULL));
    EXPECT(!world_holds(&world, &key));
    REQUIRE(!rename(away, run));
    REQUIRE(world_restart(&world, WORLD_ARGS("--adopt-store=true"), NULL));
    EXPECT(world_holds(&world, &key));
    EXPECT(cairn_daemon_logged(&world.server, "store.json_rewritten"));
    REQUIRE_OK(hand_open(&world, &next, "j2", 1, "latest", 1));
    EXPECT_EQ_TEXT(next.resumed, save.id.text);
}

/* ---- the same with files and processes ---- */

static bool copy_catalog(const char *from, const char *to) {
    if (mkdir(to, 0700) && errno != EEXIST) return false;
    EACH_TEXT(text, "catalog.db", "catalog.db-wal", "grant.key") {
        CAIRN_AUTO(buf) bytes = {.limit = 64 * CAIRN_MIB};
        const char *source = TEXT("%s/%s", from, text);
        const char *target = TEXT("%s/%s", to, text);
        (void)unlink(target);
        enum cairn_code code = cairn_file_load(source, &bytes, NULL);
        if (code == CAIRN_NOT_FOUND) continue;
        if (code || cairn_file_replace(target, cairn_buf_view(&bytes), 0600, NULL)) return false;
    }
    return true;
}

TEST(a_backup_of_the_catalogs_files_that_is_put_back_answers_503_and_says_so_V39) {
    NEED_SQLITE;
    struct cairn_hand_save saves[7];
    JOB(1);
    REQUIRE_OK(hand_save_all(&hand, 1, 1, "error", 10, &saves[1]));
    REQUIRE_OK(hand_save_all(&hand, 2, 1, "error", 10, &saves[2]));
    REQUIRE_OK(open_other(&world, "other", 0));
    const char *backup = TEXT("%s/backup", world.folder);
    REQUIRE(copy_catalog(world.data_path, backup)); /* nobody writes now */
    for (uint64_t step = 3; step <= 6; step++)
        REQUIRE_OK(hand_save_all(&hand, step, 1, "error", 10, &saves[step]));
    cairn_daemon_end(&world.server);
    REQUIRE(copy_catalog(backup, world.data_path));
    REQUIRE(world_restart(&world, WORLD_ARGS("--sweep-interval=50ms"), NULL));
    expect_frozen(&world);
    EXPECT(cairn_daemon_logged(&world.server, "run.frozen"));
    char id[64];
    EXPECT_CODE(latest_of(&world, id), CAIRN_CATALOG_BEHIND);
}

/* What a caller hears of `latest`: the headers and the problem. */
static bool says(struct cairn_world *world, bool ends) {
    CAIRN_AUTO(buf) reply = {0};
    return world_ask(world, "GET", WORLD_RUN "/checkpoints/latest", "", NULL, &reply) == 503 &&
           strstr(reply.data, "catalog-behind") &&
           !strstr(reply.data, "Retry-After: 30") == !ends &&
           !strstr(reply.data, "Retry-After: ") == !ends &&
           strstr(reply.data, ends ? "\"retryable\":true" : "\"retryable\":false");
}

TEST(a_freeze_that_ends_by_itself_says_when_to_come_again_and_one_that_waits_for_people_does_not) {
    NEED_SQLITE;
    struct srv_tx *shell = NULL;
    JOB(1, "--reconcile-wait=1h");
    SAVED(save, 1);
    REQUIRE_OK(srv_sqlite_open(TEXT("%s/catalog.db", world.data_path), false, &shell, &err));
    REQUIRE_OK(srv_sqlite_exec(
        shell, "INSERT INTO frozen_runs(run_id, cause, since_ms) VALUES(1, 'of a test', 1)", &err));
    REQUIRE(world_restart(&world, WORLD_ARGS("--reconcile-wait=1h"), NULL));
    EXPECT(says(&world, false));
    /* Somebody asked for its reconcile: it waits for reconcile-wait, and then ends. */
    REQUIRE_OK(
        srv_sqlite_exec(shell, "UPDATE frozen_runs SET asked = 1, due_tick = 1000000000000", &err));
    srv_sqlite_free(shell);
    EXPECT(says(&world, true));
}
