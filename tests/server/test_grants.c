/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again races="full: as server/save and server/http, other requests" */
/* Who may write what: grants of other attempts, other runs, other stores and other keys (Q6, Q49,
 * V33), and what a heartbeat that names such a grant does to its neighbours. */
#include "tests/server/world.h"

#define NODE "/v1/nodes/node-a"

/* The grant as a server with another key, or of another store, would have signed it. */
static void sign_again(const struct cairn_hand *hand, bool other_key, bool other_store,
                       char ret[CAIRN_GRANT_BYTES_MAX]) {
    struct cairn_grant grant;
    struct cairn_error ignored = {0};
    uint8_t key[CAIRN_GRANT_KEY_BYTES];
    memcpy(key, hand->world->inside.server.grant_key, sizeof(key));
    EXPECT(!cairn_grant_parse(hand->grant, &grant, &ignored));
    if (other_key) key[0] ^= 1;
    if (other_store) cairn_uuid_random(grant.store_uuid);
    cairn_grant_sign(&grant, key, ret);
}

static json_t *grant_item(const char *grant) {
    return json_pack("{s:s, s:i}", "grant", grant, "unsent", 0);
}

static json_t *beat(json_t *take_attempts) {
    return json_pack("{s:{s:s}, s:o, s:[]}", "uploader", "version", "1", "attempts", take_attempts,
                     "versions");
}

#define err world.err /* of the macros */

TEST(a_heartbeat_with_foreign_grants_is_heard_and_names_them) { /* V33, Q49 */
    INSIDE();
    struct cairn_hand old, hand;
    REQUIRE_OK(hand_open(&world, &old, "j1", 0, "latest", 1));
    REQUIRE_OK(hand_open(&world, &hand, "j2", 1, "latest", 1));
    BEGUN(save, 1);
    char unsigned_by_us[CAIRN_GRANT_BYTES_MAX], of_another_store[CAIRN_GRANT_BYTES_MAX];
    sign_again(&hand, true, false, unsigned_by_us);
    sign_again(&hand, false, true, of_another_store);
    /* For 20 minutes: were the heartbeats refused, the save would end for silence at 10. */
    for (int i = 0; i < 20; i++) {
        json_t *grants = json_pack("[o, o, o, o, o]", grant_item(unsigned_by_us),
                                   grant_item(old.grant), grant_item("cairn1:nonsense"),
                                   grant_item(of_another_store), grant_item(hand.grant));
        ASKED(answer, "PUT", NODE, beat(grants));
        const json_t *foreign = json_object_get(answer, "foreign");
        EXPECT_EQ_U64(json_array_size(foreign), 3);
        static const uint64_t places[] = {0, 2, 3};
        static const char *const codes[] = {"unauthorized", "unauthorized", "forbidden"};
        for (size_t k = 0; k < 3; k++) {
            EXPECT_EQ_U64(world_number(json_array_get(foreign, k), "index"), places[k]);
            EXPECT_EQ_TEXT(world_text(json_array_get(foreign, k), "code"), codes[k]);
        }
        const json_t *fenced = json_object_get(answer, "fenced");
        EXPECT_EQ_U64(json_array_size(fenced), 1);
        EXPECT_EQ_U64(world_number(json_array_get(fenced, 0), "attempt"), 1);
        const json_t *open = json_array_get(json_object_get(answer, "versions"), 0);
        EXPECT_SHOWS(open, "version", save.id.text, "state", "open");
        inside_pass(&world.inside, MINUTE_MS);
    }
    EXPECT_GET(save.path, "state", "open");
}

#undef err
/* What a write by this grant ends with, for each call that takes one. */
enum write { BEGIN, REGISTER, SEAL, FAIL, COMMIT, ABORT, WRITES };

static enum cairn_code try_write(const struct cairn_hand_save *save, enum write what,
                                 const char *grant) {
    struct cairn_world *world = save->hand->world;
    json_t *body = json_object();
    const char *path = TEXT("%s/%s", save->path,
                            what == FAIL     ? "fail"
                            : what == COMMIT ? "commit"
                            : what == ABORT  ? "abort"
                                             : "shards");
    if (what == BEGIN) {
        json_decref(body);
        body = hand_begin_body(save->hand, save->step, save->n, 0, "error");
        path = TEXT(WORLD_RUN "/checkpoints");
    }
    json_object_set_new(body, "grant", json_string(grant));
    if (what != COMMIT && what != ABORT) json_object_set_new(body, "node", json_string("node-a"));
    if (what == FAIL) {
        json_object_set_new(body, "rank", json_integer(0));
        json_object_set_new(body, "reason", json_string("a test"));
    }
    if (what == REGISTER) {
        json_t *shard = hand_shard(save, "x", 0, CAIRN_VIEW("1234"));
        json_object_set_new(body, "shards", json_pack("[o]", shard));
    }
    if (what == SEAL)
        json_object_set_new(body, "seals", json_pack("[o]", hand_seal(0, NULL, "x", 4)));
    return world_call(world, "POST", path, body, NULL);
}

/* No write by this grant is taken, and the save is as it was. */
static void expect_refused(const struct cairn_hand_save *save, const char *grant,
                           enum cairn_code wanted) {
    struct cairn_world *world = save->hand->world;
    for (enum write what = BEGIN; what < WRITES; what++) {
        if (what == BEGIN && wanted == CAIRN_FORBIDDEN) continue; /* it names no version */
        enum cairn_code code = try_write(save, what, grant);
        cairn_test_check(code == wanted, __FILE__, __LINE__, "write %d is %s, wanted %s: %s", what,
                         cairn_code_info(code)->name, cairn_code_info(wanted)->name,
                         world->err.message);
    }
    EXPECT_ALL_U64(world_count(world, "SELECT count(*) FROM shards"), 0,
                   world_count(world, "SELECT count(*) FROM version_ranks WHERE sealed > 0"), 0,
                   world_count(world, "SELECT count(*) FROM versions WHERE state = 0"), 1);
}

#define err world.err
TEST(only_the_grant_of_a_versions_own_attempt_writes_to_it) { /* P6, C01, Q6 */
    INSIDE();
    struct cairn_hand old, hand;
    char foreign[CAIRN_GRANT_BYTES_MAX];
    REQUIRE_OK(hand_open(&world, &old, "j1", 0, "latest", 1));
    REQUIRE_OK(hand_open(&world, &hand, "j2", 1, "latest", 1));
    BEGUN(save, 1);
    expect_refused(&save, old.grant, CAIRN_STALE_ATTEMPT);
    sign_again(&hand, true, false, foreign);
    expect_refused(&save, foreign, CAIRN_UNAUTHORIZED);
    sign_again(&hand, false, true, foreign);
    for (enum write what = BEGIN; what < WRITES; what++)
        EXPECT_CODE(try_write(&save, what, foreign), CAIRN_FORBIDDEN);
    /* A version of attempt 2 that is still open while attempt 3 is the newest: no call makes one,
     * and were there one, the grant of attempt 3 must not write to it. */
    struct cairn_hand newest;
    REQUIRE_OK(hand_open(&world, &newest, "j3", 2, "latest", 1));
    REQUIRE(world_sql(&world, "UPDATE versions SET state = 0, code = 0, reason = NULL"));
    expect_refused(&save, newest.grant, CAIRN_FORBIDDEN);
    expect_refused(&save, hand.grant, CAIRN_STALE_ATTEMPT);
}

TEST(a_grant_of_another_run_writes_nothing) { /* P6 */
    JOB_INSIDE(1);
    BEGUN(save, 1);
    struct cairn_grant grant;
    char other[CAIRN_GRANT_BYTES_MAX];
    REQUIRE(!cairn_grant_parse(hand.grant, &grant, NULL));
    snprintf(grant.name.run, sizeof(grant.name.run), "eight");
    cairn_grant_sign(&grant, world.inside.server.grant_key, other);
    for (enum write what = BEGIN; what < WRITES; what++)
        EXPECT_CODE(try_write(&save, what, other), CAIRN_FORBIDDEN);
    EXPECT_ROWS(1, "versions WHERE state = 0");
}

TEST(a_whole_save_of_an_attempt_that_is_no_longer_the_newest_is_not_committed) { /* Q23, C04 */
    JOB_INSIDE(1);
    BEGUN(save, 1);
    REQUIRE_OK(hand_put(&save, "x", 0, CAIRN_VIEW("1234")));
    /* The commit is under way: its transaction comes after another attempt's. */
    REQUIRE(world_sql(&world, "UPDATE runs SET attempt = 2"));
    inside_commit(&world.inside);
    EXPECT_ROWS(0, "versions WHERE state = 1");
    REQUIRE(world_sql(&world, "UPDATE runs SET attempt = 1"));
    inside_round(&world.inside);
    EXPECT_ROWS(1, "versions WHERE state = 1");
}
