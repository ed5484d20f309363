/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=both */
/* What the commit finds in the store, and what is seen of it while its record is late. */
#include "tests/server/world.h"

/* Puts other bytes where an object is, as somebody would who works in the folder. */
static bool replace_file(struct cairn_world *world, const struct cairn_key *key,
                         struct cairn_view bytes) {
    const char *path = world_file(world, key);
    if (unlink(path)) return false;
    FILE *file = fopen(path, "w");
    if (!file) return false;
    bool good = fwrite(bytes.data, 1, bytes.size, file) == bytes.size;
    return !fclose(file) && good;
}

/* Two ranks on two nodes: rank 0's shard is registered and sealed, rank 1's is `spoil`ed in the
 * store after its registration and before its seal, which makes the version whole. */
static void register_spoil_seal(struct cairn_world *world, void (*spoil)(const char *path)) {
    struct cairn_hand hand;
    struct cairn_hand_save kept, save;
    if (!EXPECT(!hand_open(world, &hand, "j1", 0, "latest", 2)) ||
        !EXPECT(!hand_save_all(&hand, 4, 1, "error", 100, &kept)) ||
        !EXPECT(!hand_begin(&hand, 5, 1, "error", &save))) {
        printf("    %s\n", world->err.message);
        return;
    }
    struct cairn_view bytes = CAIRN_VIEW("the bytes of a shard");
    json_t *zero = hand_shard(&save, "rank-00000/x", 0, bytes);
    json_t *one = hand_shard(&save, "rank-00001/x", 1, bytes);
    EXPECT(!hand_send(&save, json_pack("[o, o]", zero, one),
                      json_pack("[o]", hand_seal(0, NULL, "rank-00000/x", bytes.size)), NULL));
    SHARD_KEY(key, &save, "rank-00001/x");
    const char *path = world_file(world, &key);
    spoil(path);
    EXPECT(!hand_seal_alone(&save, 1, "rank-00001/x", bytes.size));
    CAIRN_AUTO_JSON json_t *version = NULL, *latest = NULL;
    EXPECT(!hand_wait(&save, &version));
    EXPECT(strcmp(world_text(version, "state"), "committed"));
    EXPECT(strcmp(world_text(version, "state"), "open"));
    EXPECT_EQ_TEXT(world_text(version, "code"), "store-corrupt");
    const char *reason = world_text(version, "reason");
    printf("    %s\n", reason);
    EXPECT(strstr(reason, "node-a") && strstr(reason, "rank 1") && strstr(reason, "rank-00001/x"));
    EXPECT(!world_call(world, "GET", WORLD_RUN "/checkpoints/latest", NULL, &latest));
    EXPECT_EQ_TEXT(world_text(latest, "version"), kept.id.text); /* P10 */
}

static void remove_it(const char *path) {
    EXPECT(!unlink(path));
}
static void truncate_it(const char *path) {
    EXPECT(!truncate(path, 3));
}
static void lengthen_it(const char *path) {
    EXPECT(!truncate(path, 300));
}

#define err world.err /* of the macros */

TEST(a_shard_that_only_its_node_can_see_or_that_was_removed_commits_nothing_P2_P14) {
    WORLD();
    register_spoil_seal(&world, remove_it);
}

TEST(a_shard_that_is_truncated_between_registration_and_commit_commits_nothing_P2_P14) {
    WORLD();
    register_spoil_seal(&world, truncate_it);
}

TEST(a_shard_that_is_longer_than_registered_commits_nothing_P2) {
    WORLD();
    register_spoil_seal(&world, lengthen_it);
}

TEST(a_store_that_goes_away_before_the_commit_ends_no_version_and_its_return_commits_it_P2) {
    JOB(1, "--sweep-interval=50ms");
    BEGUN(save, 5);
    REQUIRE_OK(hand_register(&save, "x", 0, CAIRN_VIEW("abc")));
    /* What a mount leaves that is gone: an empty folder. */
    const char *inner = TEXT("%s/llm", world.store_path);
    const char *away = TEXT("%s/away", world.folder);
    const char *json = TEXT("%s/.cairn", world.store_path);
    const char *json_away = TEXT("%s/away.cairn", world.folder);
    REQUIRE(!rename(inner, away) && !rename(json, json_away));
    REQUIRE_OK(hand_seal_alone(&save, 0, "x", 3));
    AWAIT(cairn_daemon_logged(&world.server, "commit.delayed"));
    EXPECT_GET(save.path, "state", "open");
    (void)!rmdir(inner);
    (void)!rmdir(json);
    REQUIRE(!rename(away, inner) && !rename(json_away, json));
    EXPECT_WAITED(&save, "state", "committed");
}

/* ---- Q24, V9: between the transaction and the record ---- */

/* What a policy of the newest one alone would do with each version, newest first. */
static const char *fates_of_keep_last_1(struct cairn_world *world) {
    CAIRN_AUTO_JSON json_t *plan = NULL;
    if (cairn_say(world, "POST", WORLD_RUN "/retention/preview",
                  "{\"policy\":{\"keep\":{\"last\":1}}}", &plan))
        return "no preview";
    return cairn_items(plan, "versions", "fate");
}

TEST(nobody_sees_a_commit_whose_record_is_not_there_V9) { /* Q24 */
    WORLD_IN(world_points(), "CAIRN_CRASH_AT=server.commit.after_transaction:2:delay=4000");
    struct cairn_hand next;
    HAND(1);
    SAVED(one, 1);
    BEGUN(two, 2);
    REQUIRE_OK(hand_put(&two, "x", 0, CAIRN_VIEW("abc")));
    /* The rows of its shards go with the transaction. */
    char shards[260];
    snprintf(shards, sizeof(shards), "%s/shards", two.path);
    REQUIRE_AWAIT(world_passed("server.commit.after_transaction") == 2);
    KEY(record, committed, &two);
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = record.text};
    EXPECT_CODE(cairn_store_perform(world.worker, &head, NULL), CAIRN_NOT_FOUND);
    EXPECT_GET(WORLD_RUN "/checkpoints/latest", "version", one.id.text);
    EXPECT_GET(WORLD_RUN "/checkpoints?state=committed", "items.#", "1");
    GOT(by_id, two.path);
    EXPECT_EQ_TEXT(world_text(by_id, "state"), "open");
    EXPECT(!json_is_true(json_object_get(by_id, "latest")));
    EXPECT_GET(WORLD_RUN, "committed", "1");
    EXPECT_EQ_TEXT(fates_of_keep_last_1(&world), "skip keep"); /* V9b */
    const char *path = TEXT("%s/shards/x/data", two.path);
    CAIRN_AUTO(buf) bytes = {0};
    EXPECT_CODE(
        cairn_rest_bytes(world.rest, "GET", path, NULL, (struct cairn_view){0}, NULL, &bytes, &err),
        CAIRN_NOT_COMMITTED);
    EXPECT_REFUSED(CAIRN_NOT_COMMITTED, "DELETE", two.path, NULL);
    struct cairn_store_request again = {.op = CAIRN_STORE_HEAD, .key = record.text};
    EXPECT_CODE(cairn_store_perform(world.worker, &again, NULL), CAIRN_NOT_FOUND);
    /* Q52: a job that resumes now is given it, and its record is there before the answer. */
    REQUIRE_OK(hand_open(&world, &next, "j2", 1, "latest", 1));
    EXPECT_EQ_TEXT(next.resumed, two.id.text);
    struct cairn_store_request there = {.op = CAIRN_STORE_HEAD, .key = record.text};
    EXPECT_CODE(cairn_store_perform(world.worker, &there, NULL), CAIRN_OK);
}

/* ---- Q52 ---- */

static void committed_and_not_recorded(struct cairn_world *world, struct cairn_hand *hand,
                                       struct cairn_hand_save *older,
                                       struct cairn_hand_save *late) {
    EXPECT(!hand_open(world, hand, "j1", 0, "latest", 1));
    EXPECT(!hand_save_all(hand, 4, 1, "error", 10, older));
    EXPECT(!hand_begin(hand, 4, 2, "supersede", late));
    EXPECT(!hand_put(late, "x", 0, CAIRN_VIEW("abc")));
    AWAIT(world_passed("server.commit.after_transaction") == 2);
}

TEST(what_a_save_supersedes_stays_latest_until_the_save_is_recorded_V36) { /* Q52 */
    WORLD_IN(world_points(), "CAIRN_CRASH_AT=server.commit.after_transaction:2:delay=3000");
    struct cairn_hand hand;
    struct cairn_hand_save older, late;
    committed_and_not_recorded(&world, &hand, &older, &late);
    EXPECT_GET(WORLD_RUN "/checkpoints/latest", "version", older.id.text);
    EXPECT_WAITED(&late, "state", "committed");
    EXPECT_GET(WORLD_RUN "/checkpoints/latest", "version", late.id.text);
    EXPECT_GET(older.path, "superseded", "true");
}

TEST(a_resume_while_a_record_is_late_first_writes_it_and_never_goes_back_V36) { /* Q52 */
    WORLD_IN(world_points(), "CAIRN_CRASH_AT=server.commit.after_transaction:2:kill");
    struct cairn_hand hand, next;
    struct cairn_hand_save older, late;
    committed_and_not_recorded(&world, &hand, &older, &late);
    REQUIRE(cairn_daemon_ended(&world.server, HANG_MS));
    /* The commit thread of the new server never comes as far as the record. */
    REQUIRE(world_restart(&world, NULL, NULL));
    REQUIRE_OK(hand_open(&world, &next, "j2", 1, "latest", 1));
    EXPECT_EQ_TEXT(next.resumed, late.id.text);
    EXPECT_GET(WORLD_RUN "/checkpoints/latest", "version", late.id.text);
}

/* ---- Q53 ---- */

static bool stop_after_manifest(struct cairn_world *world, struct cairn_hand *hand,
                                struct cairn_hand_save *save, struct cairn_key *ret_manifest) {
    if (!world_start(world, NULL, WORLD_ARGS("CAIRN_CRASH_AT=server.commit.after_manifest")))
        return false;
    if (hand_open(world, hand, "j1", 0, "latest", 1)) return false;
    (void)!hand_save_all(hand, 3, 1, "error", 100, save);
    struct cairn_version_place place = hand_place(save);
    cairn_key_manifest(&place, ret_manifest);
    return cairn_daemon_ended(&world->server, HANG_MS);
}

#define AFTER_MANIFEST()                                                                           \
    struct cairn_hand hand;                                                                        \
    struct cairn_hand_save save;                                                                   \
    struct cairn_key manifest;                                                                     \
    WITH(world, world, stop_after_manifest(&world, &hand, &save, &manifest))

TEST(a_manifest_with_other_bytes_leaves_the_version_open_and_readyz_says_so_V37) { /* Q53 */
    AFTER_MANIFEST();
    CAIRN_AUTO(buf) good = {.limit = CAIRN_MIB};
    REQUIRE_OK(cairn_store_get_small(world.worker, manifest.text, &good, &err));
    REQUIRE(replace_file(&world, &manifest, CAIRN_VIEW("{\"some\": \"other thing\"}")));
    REQUIRE(world_restart(&world, WORLD_ARGS("--sweep-interval=50ms"), NULL));
    AWAIT(cairn_daemon_logged(&world.server, "commit.manifest_differs"));
    EXPECT_GET(save.path, "state", "open");
    EXPECT_HAS(world_check(&world, "commits"), save.id.text);
    /* Nothing was deleted: with the right manifest back, it commits. */
    REQUIRE(replace_file(&world, &manifest, cairn_buf_view(&good)));
    EXPECT_WAITED(&save, "state", "committed");
    /* The waiter may hear of the commit before the commit's thread has put its complaint away. */
    AWAIT(!strcmp(world_check(&world, "commits"), "ok"));
}

TEST(a_whole_version_that_waits_for_its_commit_is_not_ended_by_the_limit_on_open_ones_V37) /* Q53 */
{
    AFTER_MANIFEST();
    CAIRN_AUTO(buf) good = {.limit = CAIRN_MIB};
    REQUIRE_OK(cairn_store_get_small(world.worker, manifest.text, &good, &err));
    REQUIRE(replace_file(&world, &manifest, CAIRN_VIEW("{\"some\": \"other thing\"}")));
    REQUIRE(world_restart(&world, WORLD_ARGS("--sweep-interval=50ms", "--open-max=1s"), NULL));
    BEGUN(unfinished, 4);
    /* The limit is over: what is not whole was given up. */
    WAITED(ended, &unfinished);
    EXPECT(strstr(world_text(ended, "reason"), "open for more than"));
    EXPECT_GET(save.path, "state", "open");
    REQUIRE(replace_file(&world, &manifest, cairn_buf_view(&good)));
    EXPECT_WAITED(&save, "state", "committed");
}

TEST(a_manifest_that_another_release_wrote_of_the_same_rows_is_taken_as_it_is_V37) { /* Q53 */
    AFTER_MANIFEST();
    CAIRN_AUTO(buf) good = {.limit = CAIRN_MIB}, other = {.limit = CAIRN_MIB};
    REQUIRE_OK(cairn_store_get_small(world.worker, manifest.text, &good, &err));
    REQUIRE(good.size > 2 && good.data[0] == '{');
    REQUIRE_OK(cairn_buf_printf(&other, &err, "{\"a_later_field\": 7, %s", (char *)good.data + 1));
    REQUIRE(replace_file(&world, &manifest, cairn_buf_view(&other)));
    REQUIRE(world_restart(&world, WORLD_ARGS("--sweep-interval=50ms"), NULL));
    EXPECT_WAITED(&save, "state", "committed");
    WITH_OK(buf, served,
            cairn_rest_bytes(world.rest, "GET", TEXT("%s/manifest", save.path), NULL,
                             (struct cairn_view){0}, NULL, &served, &err));
    EXPECT(served.size == other.size && !memcmp(served.data, other.data, other.size));
}

TEST(checksums_with_other_bytes_leave_the_version_open_V37) { /* Q53 */
    AFTER_MANIFEST();
    KEY(checksums, checksums, &save);
    CAIRN_AUTO(buf) good = {.limit = CAIRN_MIB};
    REQUIRE_OK(cairn_store_get_small(world.worker, checksums.text, &good, &err));
    REQUIRE(replace_file(&world, &checksums, CAIRN_VIEW("1234")));
    REQUIRE(world_restart(&world, WORLD_ARGS("--sweep-interval=50ms"), NULL));
    AWAIT(cairn_daemon_logged(&world.server, "commit.manifest_differs"));
    EXPECT_GET(save.path, "state", "open");
    REQUIRE(replace_file(&world, &checksums, cairn_buf_view(&good)));
    EXPECT_WAITED(&save, "state", "committed");
}

#define ROWS                                                                                       \
    "SELECT (SELECT count(*) FROM shards) + (SELECT count(*) FROM version_ranks) + (SELECT "       \
    "count(*) FROM version_groups)"

TEST(a_committed_version_keeps_no_rows_and_what_a_death_has_left_of_it_goes_and_no_others) {
    struct cairn_hand_save committed;
    JOB_INSIDE(2);
    REQUIRE_OK(hand_save_all(&hand, 3, 1, "error", 100, &committed));
    AWAIT(!world_count(&world, ROWS)); /* whoever waits is told before */
    REQUIRE(world_sql(
        &world, "INSERT INTO shards(version, name, rank, sealed, registered, size) SELECT version, "
                "'left', 0, 1, 1, 4 FROM versions"));
    REQUIRE(world_sql(&world, "INSERT INTO version_groups(version, name, digest, rank) "
                              "SELECT version, 'left', '', 0 FROM versions"));
    BEGUN(open_one, 4);
    REQUIRE_OK(hand_put(&open_one, "rank-00000/x", 0, CAIRN_VIEW("1234")));
    EXPECT_ROWS(2, "shards");
    uint64_t rows = world_count(&world, ROWS);
    REQUIRE_OK(inside_restart(&world.inside));
    inside_round(&world.inside); /* the first one of a server tidies */
    EXPECT_EQ_U64(world_count(&world, ROWS), rows - 2);
    EXPECT_EQ_U64(world_count(&world, "SELECT count(*) FROM shards WHERE name <> 'left'"), 1);
    EXPECT_EQ_U64(world_count(&world, "SELECT count(*) FROM shards"), 1);
}
