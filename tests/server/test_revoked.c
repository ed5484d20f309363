/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* What the store says of revoked tokens: longer than any copy that could hold them, and whatever
 * the copy says that a catalog is made again from. */
#include "tests/server/world.h"

#define err world.err /* of the macros */
#define TOKENS world_count(&world, "SELECT count(*) FROM tokens")
#define DAY_S (24 * 3600)

static enum cairn_code make(struct cairn_world *world, char ret_id[CAIRN_TOKEN_ID_BYTES]) {
    CAIRN_AUTO_JSON json_t *made = NULL;
    CAIRN_TRY(
        world_call(world, "POST", "/v1/tokens", json_pack("{s:[s]}", "scopes", "read"), &made));
    snprintf(ret_id, CAIRN_TOKEN_ID_BYTES, "%s", world_text(made, "id"));
    return CAIRN_OK;
}

/* *ret_stored: what the answer says. */
static enum cairn_code end_token(struct cairn_world *world, const char *id, bool *ret_stored) {
    CAIRN_AUTO_JSON json_t *revoked = NULL;
    CAIRN_TRY(world_call(world, "DELETE", TEXT("/v1/tokens/%s", id), NULL, &revoked));
    *ret_stored = json_is_true(json_object_get(revoked, "stored"));
    return CAIRN_OK;
}

/* A copy of what was said is due. */
static void copy(struct cairn_world *world) {
    inside_pass(&world->inside, 2 * UINT64_C(60000));
}

static void path_of(const struct cairn_world *world, const char *id, char ret[500]) {
    snprintf(ret, 500, "%s/.cairn/revoked/%s.json", world->store_path, id);
}

static bool is_there(const struct cairn_world *world, const char *id) {
    char path[500];
    path_of(world, id, path);
    return !access(path, F_OK);
}

TEST(no_copy_of_before_a_revocation_brings_the_token_back) { /* access.h#6 */
    char one[CAIRN_TOKEN_ID_BYTES], two[CAIRN_TOKEN_ID_BYTES];
    struct cairn_key key;
    uint64_t rows = 0;
    bool stored = false;
    INSIDE();
    REQUIRE_OK(make(&world, one));
    REQUIRE_OK(make(&world, two));
    copy(&world);
    REQUIRE_OK(end_token(&world, one, &stored));
    EXPECT(stored);
    REQUIRE_OK(srv_said_copy_take(&world.inside.server, world.inside.worker, 0, &key, &rows, &err));
    EXPECT(key.text[0]); /* there is one */
    EXPECT_ALL_U64(rows, 1, TOKENS, 1);
    REQUIRE_OK(end_token(&world, two, &stored)); /* it is the other one */
    EXPECT_EQ_U64(TOKENS, 0);
}

TEST(a_store_that_is_away_keeps_no_revocation_and_its_answer_says_so) {
    char id[CAIRN_TOKEN_ID_BYTES];
    bool stored = true;
    INSIDE();
    REQUIRE_OK(make(&world, id));
    REQUIRE_OK(cairn_file_replace(TEXT("%s/.cairn/revoked", world.store_path),
                                  CAIRN_VIEW("no folder"), 0600, &err));
    REQUIRE_OK(end_token(&world, id, &stored));
    EXPECT(!stored);
    EXPECT_EQ_U64(TOKENS, 0);
}

/* The rows of before, as a backup of the database has them; then a start of the server. */
static void put_back(struct cairn_world *world) {
    EXPECT(world_sql(world, "INSERT INTO tokens SELECT * FROM backup"));
    world->inside.server.revocations = SRV_REVOCATIONS_UNREAD;
}

TEST(a_catalog_that_is_put_back_drops_what_the_store_calls_revoked_when_it_is_listed) { /* #3 */
    char ended[CAIRN_TOKEN_ID_BYTES], kept[CAIRN_TOKEN_ID_BYTES];
    bool stored = false;
    INSIDE();
    REQUIRE_OK(make(&world, ended));
    REQUIRE(world_sql(&world, "CREATE TABLE backup AS SELECT * FROM tokens"));
    REQUIRE_OK(make(&world, kept));
    REQUIRE_OK(end_token(&world, ended, &stored));
    put_back(&world);
    EXPECT_EQ_U64(TOKENS, 2);
    inside_round(&world.inside);
    EXPECT_EQ_U64(TOKENS, 1);
    const char *path = TEXT("%s/.cairn/store.json", world.store_path);
    const char *away = TEXT("%s.away", path);
    REQUIRE(!rename(path, away));
    put_back(&world);
    inside_round(&world.inside);
    EXPECT_EQ_U64(TOKENS, 2);
    EXPECT(world.inside.server.revocations == SRV_REVOCATIONS_MISSED);
    REQUIRE(!rename(away, path));
    inside_round(&world.inside);
    EXPECT_EQ_U64(TOKENS, 1);
    REQUIRE_OK(end_token(&world, kept, &stored)); /* it is the other one */
    EXPECT_EQ_U64(TOKENS, 0);
}

/* Of two marks one is made older than what is kept, which the other one is not. */
TEST(a_revocation_is_forgotten_after_400_days_when_two_copies_were_read_after_it) { /* access.h#7 */
    char old[CAIRN_TOKEN_ID_BYTES], fresh[CAIRN_TOKEN_ID_BYTES], more[CAIRN_TOKEN_ID_BYTES];
    char path[500];
    struct stat status;
    bool stored = false;
    INSIDE();
    REQUIRE_OK(make(&world, old));
    REQUIRE_OK(make(&world, fresh));
    REQUIRE_OK(end_token(&world, old, &stored));
    REQUIRE_OK(end_token(&world, fresh, &stored));
    path_of(&world, old, path);
    REQUIRE(!stat(path, &status));
    struct timespec times[2] = {status.st_mtim, status.st_mtim};
    times[0].tv_sec -= 401 * DAY_S;
    times[1].tv_sec -= 401 * DAY_S;
    REQUIRE(!utimensat(AT_FDCWD, path, times, 0));
    path_of(&world, fresh, path);
    times[0].tv_sec += 2 * DAY_S;
    times[1].tv_sec += 2 * DAY_S;
    REQUIRE(!utimensat(AT_FDCWD, path, times, 0));
    for (int copies = 1; copies <= 3; copies++) {
        EXPECT(is_there(&world, old));
        EXPECT(is_there(&world, fresh));
        REQUIRE_OK(make(&world, more)); /* so that there is something to copy */
        copy(&world);
    }
    EXPECT(!is_there(&world, old));
    EXPECT(is_there(&world, fresh));
}
