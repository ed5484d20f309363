/* SPDX-License-Identifier: Apache-2.0 */
/* Further stores: whose they are, what is refused, and what a catalog that was rebuilt knows. */
#include "server/guard/identity.h"
#include "tests/server/world.h"

static const char *said(const struct cairn_world *world) {
    return world->inside.err.message;
}

#define err world.err /* of the macros */
#define MADE(store)                                                                                \
    world_count(&world, "SELECT count(*) FROM copies WHERE phase = 1 AND store = '" store "'")

static enum cairn_code parse(const char *text, struct cairn_stores *ret, struct cairn_error *why) {
    *ret = (struct cairn_stores){0};
    return cairn_stores_parse(text, ret, why);
}

TEST(the_setting_stores_names_stores_in_the_order_in_which_they_are_read) {
    struct cairn_stores tiers;
    struct cairn_error why = {0};
    EACH(one, FIELDS(const char *text, *first, *second; size_t count, main), {"", "main", "", 1, 0},
         {"slow=/a", "main", "slow", 2, 0}, {"fast=/a,main,slow=s3://b/c", "fast", "main", 3, 1},
         {"main", "main", "", 1, 0}) {
        EXPECT(parse(one->text, &tiers, &why) == CAIRN_OK);
        EXPECT_ALL_U64(tiers.count, one->count, tiers.main, one->main);
        EXPECT_ALL_TEXT(tiers.items[0].name, one->first, tiers.items[1].name, one->second);
        cairn_stores_release(&tiers);
    }
    EACH_TEXT(word, "slow", "slow=", "=/a", "Slow=/a", "main=/a", "a=/x,a=/y", "a=/x,,b=/y",
              "main,main", "a b=/x", "9a=/x") {
        EXPECT(parse(word, &tiers, &why) == CAIRN_INVALID);
        cairn_stores_release(&tiers);
    }
}

static void record_path(char ret[400]) {
    snprintf(ret, 400, "%s/slow/.cairn/store.json", cairn_test_folder());
}

static enum cairn_code read_record(struct cairn_store_record *ret, struct cairn_error *why) {
    char path[400];
    CAIRN_AUTO(buf) text = {.limit = CAIRN_MIB};
    record_path(path);
    CAIRN_TRY(cairn_file_load(path, &text, why));
    return cairn_store_record_decode(cairn_buf_view(&text), ret, why);
}

static enum cairn_code put_record(const struct cairn_store_record *record,
                                  struct cairn_error *why) {
    char path[400];
    CAIRN_AUTO(buf) text = {0};
    record_path(path);
    CAIRN_TRY(cairn_store_record_encode(record, &text, why));
    return cairn_file_replace(path, cairn_buf_view(&text), 0600, why);
}

TEST(a_new_further_store_gets_a_record_of_its_own_that_names_the_main_one) {
    struct cairn_store_record record = {0};
    WITH(world, world, world_start_inside(&world, WORLD_ARGS(SLOW_STORE)));
    REQUIRE_OK(read_record(&record, &err));
    EXPECT_ALL_TEXT(record.copies_of, world.inside.server.store_uuid, record.owner, "cairn");
    EXPECT(strcmp(record.uuid, world.inside.server.store_uuid) != 0);
    EXPECT_ROWS(1, "stores WHERE name = 'slow'");
}

TEST(a_further_store_of_another_uuid_or_of_another_main_store_ends_the_start) {
    struct cairn_store_record record = {0}, other;
    WITH(world, world, world_start_inside(&world, WORLD_ARGS(SLOW_STORE)));
    REQUIRE_OK(read_record(&record, &err));
    other = record;
    cairn_uuid_random(other.uuid); /* it names our main store, but is not the one that we know */
    REQUIRE_OK(put_record(&other, &err));
    EXPECT(inside_restart(&world.inside) == CAIRN_FORBIDDEN);
    EXPECT(strstr(said(&world), "this catalog knows"));
    EXPECT(world_sql(&world, "DELETE FROM stores")); /* a rebuilt catalog knows none */
    cairn_uuid_random(other.copies_of);
    REQUIRE_OK(put_record(&other, &err));
    EXPECT(inside_restart(&world.inside) == CAIRN_FORBIDDEN);
    EXPECT(strstr(said(&world), "holds no copies of the versions of"));
    other.copies_of[0] = '\0'; /* somebody's main store */
    REQUIRE_OK(put_record(&other, &err));
    EXPECT(inside_restart(&world.inside) == CAIRN_FORBIDDEN);
    REQUIRE_OK(put_record(&record, &err));
    EXPECT(inside_restart(&world.inside) == CAIRN_OK); /* and takes ours back */
    EXPECT_ROWS(1, "stores");
}

TEST(a_further_store_that_is_not_mounted_is_left_alone_and_does_not_keep_the_server_from_starting) {
    char path[400];
    struct cairn_store_record record = {0};
    WITH(world, world, world_start_inside(&world, WORLD_ARGS(SLOW_STORE)));
    REQUIRE_OK(read_record(&record, &err));
    record_path(path);
    REQUIRE(!unlink(path));
    EXPECT(inside_restart(&world.inside) == CAIRN_OK);
    EXPECT(access(path, F_OK) != 0); /* an empty mount point gets no record */
    struct srv *server = &world.inside.server;
    struct srv_tier *tier = srv_tier_find(server, "slow");
    struct cairn_store_worker *worker = NULL;
    REQUIRE(tier != NULL);
    REQUIRE_OK(srv_tier_borrow(server, tier, &worker, &err));
    EXPECT(srv_tier_ready(server, tier, worker, &err) == CAIRN_UNAVAILABLE);
    REQUIRE_OK(put_record(&record, &err));
    EXPECT(srv_tier_ready(server, tier, worker, &err) == CAIRN_OK);
    srv_tier_return(server, tier, worker);
}

static enum cairn_code promote(struct cairn_world *world, const struct cairn_hand_save *save,
                               const char *store) {
    CAIRN_TRY(world_call(world, "POST", TEXT("%s/promote", save->path),
                         json_pack("{s:s}", "to", store), NULL));
    inside_round(&world->inside);
    return CAIRN_OK;
}

TEST(a_store_that_is_away_keeps_nothing_from_being_swept_but_what_has_copies_there) {
    struct cairn_hand_save saves[3];
    struct cairn_store_record record = {0};
    char path[400];
    JOB_INSIDE(
        1, TEXT("--stores=slow=%s/slow,other=%s/other", cairn_test_folder(), cairn_test_folder()),
        "--trash-grace=1min");
    REQUIRE_OK(hand_saves(&hand, saves, 3));
    REQUIRE_OK(promote(&world, &saves[0], "slow"));
    REQUIRE_OK(read_record(&record, &err));
    record_path(path);
    REQUIRE(!unlink(path));
    for (uint32_t i = 0; i < 2; i++)
        REQUIRE_OK(world_call(&world, "DELETE", saves[i].path, NULL, NULL));
    inside_pass(&world.inside, 3 * UINT64_C(3600000));
    /* at once, after ten seconds and after an hour (Q30) */
    EXPECT_ROWS(1, "versions WHERE step = 2 AND state = 4 AND sweeps = 3");
    EXPECT_ROWS(1, "versions WHERE step = 1 AND state = 2");
    REQUIRE_OK(promote(&world, &saves[2], "other")); /* copies are made behind the sweeps */
    EXPECT_ROWS(1, "copies WHERE store = 'other' AND phase = 1");
    REQUIRE_OK(put_record(&record, &err));
    inside_round(&world.inside);
    EXPECT_ROWS(1, "versions WHERE step = 1 AND state = 4");
}

TEST(however_many_versions_wait_for_a_store_that_is_named_no_more_others_are_swept) {
    struct cairn_hand_save saves[2];
    JOB_INSIDE(1, SLOW_STORE, "--trash-grace=1min");
    REQUIRE_OK(hand_saves(&hand, saves, 2));
    REQUIRE(world_sql(
        &world, "WITH RECURSIVE k(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < 1001) "
                "INSERT INTO versions(version, run_id, attempt, step, n, nonce, state, world_size, "
                "on_exists, skip, format, labels, meta, created_ms, opened_tick) SELECT 'ckpt_' || "
                "(10000000 + i) || '-5a55-8c6b-9d4b-0b3f6a5f9f01', 1, 1, 1000 + i, 1, '', 2, 1, 0, "
                "0, '', '{}', '{}', 1, 0 FROM k"));
    REQUIRE(world_sql(&world, "INSERT INTO copies(version, store, phase, by_policy, "
                              "changed_ms) SELECT version, 'lost', 1, 0, 1 FROM versions "
                              "WHERE state = 2"));
    ASK("DELETE", saves[0].path, NULL);
    inside_pass(&world.inside, 3 * UINT64_C(60000));
    EXPECT_ROWS(1, "versions WHERE step = 1 AND state = 4");
    EXPECT_ROWS(1001, "versions WHERE state = 2");
}

TEST(copies_that_were_wanted_of_what_is_gone_keep_no_other_one_from_being_made) {
    JOB_INSIDE(1, SLOW_STORE);
    SAVED(save, 1);
    REQUIRE(world_sql(
        &world, "WITH RECURSIVE k(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < 1001) "
                "INSERT INTO versions(version, run_id, attempt, step, n, nonce, state, world_size, "
                "on_exists, skip, format, labels, meta, created_ms, opened_tick) SELECT 'ckpt_' || "
                "(i - 100000) || '-5a55-8c6b-9d4b-0b3f6a5f9f01', 1, 1, 1000 + i, 1, '', 4, 1, 0, "
                "0, '', '{}', '{}', 1, 0 FROM k"));
    REQUIRE(world_sql(&world, "INSERT INTO copies(version, store, phase, by_policy, "
                              "changed_ms) SELECT version, 'slow', 0, 0, 1 FROM versions "
                              "WHERE state = 4"));
    REQUIRE_OK(promote(&world, &save, "slow"));
    EXPECT_ROWS(1, "copies WHERE phase = 1");
}

TEST(however_many_copies_wait_for_a_store_that_is_away_those_for_another_one_are_made) {
    char path[400];
    JOB_INSIDE(
        1, TEXT("--stores=slow=%s/slow,other=%s/other", cairn_test_folder(), cairn_test_folder()));
    SAVED(save, 1);
    inside_round(&world.inside);
    REQUIRE(world_sql(
        &world, "WITH RECURSIVE k(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < 1001) "
                "INSERT INTO versions(version, run_id, attempt, step, n, nonce, state, recorded, "
                "world_size, on_exists, skip, format, labels, meta, created_ms, opened_tick) "
                "SELECT 'ckpt_' || (i - 100000) || '-5a55-8c6b-9d4b-0b3f6a5f9f01', 1, 1, 1000 + i, "
                "1, '', 1, 1, 1, 0, 0, '', '{}', '{}', 1, 0 FROM k"));
    REQUIRE(world_sql(&world, "INSERT INTO copies(version, store, phase, by_policy, "
                              "changed_ms) SELECT version, 'slow', 0, 1, 1 FROM versions "
                              "WHERE step > 1000"));
    record_path(path);
    REQUIRE(!unlink(path)); /* as where it is not mounted */
    REQUIRE_OK(promote(&world, &save, "other"));
    EXPECT_ALL_U64(MADE("other"), 1, MADE("slow"), 0);
}

TEST(the_pause_after_a_failed_copy_holds_up_no_copy_of_the_version_in_another_store) {
    char path[400];
    JOB_INSIDE(
        1, TEXT("--stores=slow=%s/slow,other=%s/other", cairn_test_folder(), cairn_test_folder()));
    SAVED(save, 1);
    record_path(path);
    REQUIRE(!unlink(path));
    REQUIRE_OK(promote(&world, &save, "slow"));
    EXPECT_EQ_U64(MADE("slow"), 0);
    REQUIRE_OK(promote(&world, &save, "other")); /* at once: no time passes */
    EXPECT_EQ_U64(MADE("other"), 1);
}

TEST(a_store_that_is_away_is_asked_for_one_version_a_minute) { /* damage.c, 3 */
    WITH(world, world, world_start_inside(&world, WORLD_ARGS(SLOW_STORE)));
    struct srv *server = &world.inside.server;
    EXPECT(srv_copy_may_ask(server, "one", "slow"));
    EXPECT(srv_copy_may_ask(server, "two", "slow"));
    srv_copy_asked(server, "slow", CAIRN_CORRUPT); /* it has answered */
    EXPECT(srv_copy_may_ask(server, "one", "slow"));
    srv_copy_asked(server, "slow", CAIRN_UNAVAILABLE);
    EXPECT(!srv_copy_may_ask(server, "one", "slow"));
    EXPECT(srv_copy_may_ask(server, "one", "other"));
    inside_pass(&world.inside, 60000);
    EXPECT(srv_copy_may_ask(server, "one", "slow"));
    EXPECT(!srv_copy_may_ask(server, "two", "slow"));
    EXPECT(srv_copy_may_ask(server, "one", "slow")); /* where its turn has come */
    srv_copy_asked(server, "slow", CAIRN_UNAVAILABLE);
    inside_pass(&world.inside, 60000);
    EXPECT(srv_copy_may_ask(server, "two", "slow"));
    EXPECT(!srv_copy_may_ask(server, "one", "slow"));
    srv_copy_asked(server, "slow", CAIRN_OK);
    EXPECT(srv_copy_may_ask(server, "one", "slow"));
}

TEST(a_store_of_copies_is_no_servers_main_store_unless_it_is_adopted) {
    struct cairn_store_record record = {0};
    struct cairn_error why = {0};
    {
        WITH(world, world, world_start_inside(&world, WORLD_ARGS(SLOW_STORE)));
    }
    CAIRN_AUTO(world) world = {0};
    const char *store = TEXT("--store=%s/slow", cairn_test_folder());
    EXPECT(!world_start_inside(&world, WORLD_ARGS(store)));
    EXPECT(strstr(err.message, "holds copies of the versions of"));
    cairn_world_release(&world);
    EXPECT(world_start_inside(&world, WORLD_ARGS(store, "--adopt-store=true")));
    REQUIRE(read_record(&record, &why) == CAIRN_OK);
    EXPECT_EQ_TEXT(record.copies_of, "");
}
