/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=both */
/* What the commit finds in the store, and what is seen of it while its record is late. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "api/documents/manifest.h"
#include "common/clock.h"
#include "common/hash/hash.h"
#include "tests/server/world.h"

static struct cairn_version_place place_of(const struct cairn_hand_save *save) {
    return (struct cairn_version_place){{"llm", "seven"}, save->step, save->id};
}

static void path_in_store(const struct cairn_world *world, const struct cairn_key *key,
                          char ret[1400]) {
    snprintf(ret, 1400, "%s/%s", world->store_path, key->text);
}

/* Puts other bytes where an object is, as somebody would who works in the folder. */
static bool replace_file(struct cairn_world *world, const struct cairn_key *key,
                         struct cairn_view bytes) {
    char path[1400];
    path_in_store(world, key, path);
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
    if (!EXPECT(!cairn_hand_open(world, &hand, "j1", 0, "latest", 2)) ||
        !EXPECT(!cairn_hand_save_all(&hand, 4, 1, "error", 100, &kept)) ||
        !EXPECT(!cairn_hand_begin(&hand, 5, 1, "error", &save))) {
        printf("    %s\n", world->err.message);
        return;
    }
    struct cairn_view bytes = CAIRN_VIEW("the bytes of a shard");
    json_t *zero = cairn_hand_shard(&save, "rank-00000/x", 0, bytes);
    json_t *one = cairn_hand_shard(&save, "rank-00001/x", 1, bytes);
    EXPECT(!cairn_hand_send(&save, json_pack("[o, o]", zero, one),
                            json_pack("[o]", cairn_hand_seal(0, NULL, "rank-00000/x", bytes.size)),
                            NULL));
    struct cairn_version_place place = place_of(&save);
    struct cairn_key key;
    char path[1400];
    cairn_key_shard(&place, CAIRN_VIEW("rank-00001/x"), &key);
    path_in_store(world, &key, path);
    spoil(path);
    EXPECT(!cairn_hand_send(
        &save, NULL, json_pack("[o]", cairn_hand_seal(1, NULL, "rank-00001/x", bytes.size)), NULL));
    CAIRN_AUTO_JSON json_t *version = NULL, *latest = NULL;
    EXPECT(!cairn_hand_wait(&save, &version));
    EXPECT(strcmp(cairn_world_text(version, "state"), "committed"));
    EXPECT(strcmp(cairn_world_text(version, "state"), "open"));
    EXPECT_EQ_TEXT(cairn_world_text(version, "code"), "store-corrupt");
    const char *reason = cairn_world_text(version, "reason");
    printf("    %s\n", reason);
    EXPECT(strstr(reason, "node-a") && strstr(reason, "rank 1") && strstr(reason, "rank-00001/x"));
    EXPECT(!cairn_world_call(world, "GET", WORLD_RUN "/checkpoints/latest", NULL, &latest));
    EXPECT_EQ_TEXT(cairn_world_text(latest, "version"), kept.id.text); /* P10 */
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
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    register_spoil_seal(&world, remove_it);
}

TEST(a_shard_that_is_truncated_between_registration_and_commit_commits_nothing_P2_P14) {
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    register_spoil_seal(&world, truncate_it);
}

TEST(a_shard_that_is_longer_than_registered_commits_nothing_P2) {
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    register_spoil_seal(&world, lengthen_it);
}

TEST(a_store_that_goes_away_before_the_commit_ends_no_version_and_its_return_commits_it_P2) {
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, WORLD_ARGS("--sweep-interval=50ms"), NULL));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_begin(&hand, 5, 1, "error", &save));
    json_t *shard = cairn_hand_shard(&save, "x", 0, CAIRN_VIEW("abc"));
    REQUIRE_OK(cairn_hand_send(&save, json_pack("[o]", shard), NULL, NULL));
    /* What a mount leaves that is gone: an empty folder. */
    char inner[400], away[420];
    snprintf(inner, sizeof(inner), "%s/llm", world.store_path);
    snprintf(away, sizeof(away), "%s/away", world.folder);
    char json[400], json_away[420];
    snprintf(json, sizeof(json), "%s/.cairn", world.store_path);
    snprintf(json_away, sizeof(json_away), "%s/away.cairn", world.folder);
    REQUIRE(!rename(inner, away) && !rename(json, json_away));
    REQUIRE_OK(
        cairn_hand_send(&save, NULL, json_pack("[o]", cairn_hand_seal(0, NULL, "x", 3)), NULL));
    AWAIT(cairn_daemon_logged(&world.server, "commit.delayed"));
    CAIRN_AUTO_JSON json_t *open_one = NULL, *version = NULL;
    REQUIRE_OK(cairn_world_call(&world, "GET", save.path, NULL, &open_one));
    EXPECT_EQ_TEXT(cairn_world_text(open_one, "state"), "open");
    (void)!rmdir(inner);
    (void)!rmdir(json);
    REQUIRE(!rename(away, inner) && !rename(json_away, json));
    REQUIRE_OK(cairn_hand_wait(&save, &version));
    EXPECT_EQ_TEXT(cairn_world_text(version, "state"), "committed");
}

/* ---- Q24, V9: between the transaction and the record ---- */

/* What a policy of the newest one alone would do with each version, newest first. */
static const char *fates_of_keep_last_1(struct cairn_world *world) {
    static char text[100];
    CAIRN_AUTO_JSON json_t *plan = NULL;
    size_t index = 0, at = 0;
    json_t *item = NULL;
    json_t *body = json_loads("{\"policy\":{\"keep\":{\"last\":1}}}", 0, NULL);
    if (cairn_world_call(world, "POST", WORLD_RUN "/retention/preview", body, &plan))
        return "no preview";
    *text = '\0';
    json_array_foreach(json_object_get(plan, "versions"), index, item)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s ", cairn_world_text(item, "fate"));
    return text;
}

TEST(nobody_sees_a_commit_whose_record_is_not_there_V9) /* Q24 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(
        &world, NULL,
        WORLD_ARGS(cairn_world_points(),
                   "CAIRN_CRASH_AT=server.commit.after_transaction:2:delay=4000")));
    struct cairn_hand hand, next;
    struct cairn_hand_save one, two;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &one));
    REQUIRE_OK(cairn_hand_begin(&hand, 2, 1, "error", &two));
    json_t *shard = cairn_hand_shard(&two, "x", 0, CAIRN_VIEW("abc"));
    REQUIRE_OK(cairn_hand_send(&two, json_pack("[o]", shard),
                               json_pack("[o]", cairn_hand_seal(0, NULL, "x", 3)), NULL));
    /* The rows of its shards go with the transaction. */
    char shards[260];
    snprintf(shards, sizeof(shards), "%s/shards", two.path);
    struct cairn_version_place place = place_of(&two);
    REQUIRE_AWAIT(cairn_world_passed("server.commit.after_transaction") == 2);
    struct cairn_key record;
    cairn_key_committed(&place, &record);
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = record.text};
    EXPECT_CODE(cairn_store_perform(world.worker, &head, NULL), CAIRN_NOT_FOUND);
    CAIRN_AUTO_JSON json_t *latest = NULL, *list = NULL, *by_id = NULL, *run = NULL;
    REQUIRE_OK(cairn_world_call(&world, "GET", WORLD_RUN "/checkpoints/latest", NULL, &latest));
    EXPECT_EQ_TEXT(cairn_world_text(latest, "version"), one.id.text);
    REQUIRE_OK(
        cairn_world_call(&world, "GET", WORLD_RUN "/checkpoints?state=committed", NULL, &list));
    EXPECT_EQ_U64(json_array_size(json_object_get(list, "items")), 1);
    REQUIRE_OK(cairn_world_call(&world, "GET", two.path, NULL, &by_id));
    EXPECT_EQ_TEXT(cairn_world_text(by_id, "state"), "open");
    EXPECT(!json_is_true(json_object_get(by_id, "latest")));
    REQUIRE_OK(cairn_world_call(&world, "GET", WORLD_RUN, NULL, &run));
    EXPECT_EQ_U64(cairn_world_number(run, "committed"), 1);
    EXPECT_EQ_TEXT(fates_of_keep_last_1(&world), "skip keep "); /* V9b */
    char path[300];
    snprintf(path, sizeof(path), "%s/shards/x/data", two.path);
    CAIRN_AUTO(buf) bytes = {0};
    EXPECT_CODE(
        cairn_rest_bytes(world.rest, "GET", path, NULL, (struct cairn_view){0}, NULL, &bytes, &err),
        CAIRN_NOT_COMMITTED);
    EXPECT_CODE(cairn_world_call(&world, "DELETE", two.path, NULL, NULL), CAIRN_NOT_COMMITTED);
    struct cairn_store_request again = {.op = CAIRN_STORE_HEAD, .key = record.text};
    EXPECT_CODE(cairn_store_perform(world.worker, &again, NULL), CAIRN_NOT_FOUND);
    /* Q52: a job that resumes now is given it, and its record is there before the answer. */
    REQUIRE_OK(cairn_hand_open(&world, &next, "j2", 1, "latest", 1));
    EXPECT_EQ_TEXT(next.resumed, two.id.text);
    struct cairn_store_request there = {.op = CAIRN_STORE_HEAD, .key = record.text};
    EXPECT_CODE(cairn_store_perform(world.worker, &there, NULL), CAIRN_OK);
}

/* ---- Q52 ---- */

static void committed_and_not_recorded(struct cairn_world *world, struct cairn_hand *hand,
                                       struct cairn_hand_save *older,
                                       struct cairn_hand_save *late) {
    EXPECT(!cairn_hand_open(world, hand, "j1", 0, "latest", 1));
    EXPECT(!cairn_hand_save_all(hand, 4, 1, "error", 10, older));
    EXPECT(!cairn_hand_begin(hand, 4, 2, "supersede", late));
    json_t *shard = cairn_hand_shard(late, "x", 0, CAIRN_VIEW("abc"));
    EXPECT(!cairn_hand_send(late, json_pack("[o]", shard),
                            json_pack("[o]", cairn_hand_seal(0, NULL, "x", 3)), NULL));
    AWAIT(cairn_world_passed("server.commit.after_transaction") == 2);
}

TEST(what_a_save_supersedes_stays_latest_until_the_save_is_recorded_V36) /* Q52 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(
        &world, NULL,
        WORLD_ARGS(cairn_world_points(),
                   "CAIRN_CRASH_AT=server.commit.after_transaction:2:delay=3000")));
    struct cairn_hand hand;
    struct cairn_hand_save older, late;
    committed_and_not_recorded(&world, &hand, &older, &late);
    CAIRN_AUTO_JSON json_t *latest = NULL, *ended = NULL, *now = NULL, *was = NULL;
    REQUIRE_OK(cairn_world_call(&world, "GET", WORLD_RUN "/checkpoints/latest", NULL, &latest));
    EXPECT_EQ_TEXT(cairn_world_text(latest, "version"), older.id.text);
    REQUIRE_OK(cairn_hand_wait(&late, &ended));
    EXPECT_EQ_TEXT(cairn_world_text(ended, "state"), "committed");
    REQUIRE_OK(cairn_world_call(&world, "GET", WORLD_RUN "/checkpoints/latest", NULL, &now));
    EXPECT_EQ_TEXT(cairn_world_text(now, "version"), late.id.text);
    REQUIRE_OK(cairn_world_call(&world, "GET", older.path, NULL, &was));
    EXPECT(json_is_true(json_object_get(was, "superseded")));
}

TEST(a_resume_while_a_record_is_late_first_writes_it_and_never_goes_back_V36) /* Q52 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(
        &world, NULL,
        WORLD_ARGS(cairn_world_points(), "CAIRN_CRASH_AT=server.commit.after_transaction:2:kill")));
    struct cairn_hand hand, next;
    struct cairn_hand_save older, late;
    committed_and_not_recorded(&world, &hand, &older, &late);
    REQUIRE(cairn_daemon_ended(&world.server, 20000));
    /* The commit thread of the new server never comes as far as the record. */
    REQUIRE(cairn_world_restart(&world, NULL, NULL));
    REQUIRE_OK(cairn_hand_open(&world, &next, "j2", 1, "latest", 1));
    EXPECT_EQ_TEXT(next.resumed, late.id.text);
    CAIRN_AUTO_JSON json_t *latest = NULL;
    REQUIRE_OK(cairn_world_call(&world, "GET", WORLD_RUN "/checkpoints/latest", NULL, &latest));
    EXPECT_EQ_TEXT(cairn_world_text(latest, "version"), late.id.text);
}

/* ---- Q53 ---- */

static bool stop_after_manifest(struct cairn_world *world, struct cairn_hand *hand,
                                struct cairn_hand_save *save, struct cairn_key *ret_manifest) {
    if (!cairn_world_start(world, NULL, WORLD_ARGS("CAIRN_CRASH_AT=server.commit.after_manifest")))
        return false;
    if (cairn_hand_open(world, hand, "j1", 0, "latest", 1)) return false;
    (void)!cairn_hand_save_all(hand, 3, 1, "error", 100, save);
    struct cairn_version_place place = place_of(save);
    cairn_key_manifest(&place, ret_manifest);
    return cairn_daemon_ended(&world->server, 20000);
}

static bool commits_are_ok(struct cairn_world *world) {
    CAIRN_AUTO_JSON json_t *ready = NULL;
    return EXPECT(!cairn_world_call(world, "GET", "/readyz", NULL, &ready)) &&
           !strcmp(cairn_world_text(json_object_get(ready, "checks"), "commits"), "ok");
}

TEST(a_manifest_with_other_bytes_leaves_the_version_open_and_readyz_says_so_V37) /* Q53 */
{
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    struct cairn_key manifest;
    REQUIRE(stop_after_manifest(&world, &hand, &save, &manifest));
    CAIRN_AUTO(buf) good = {.limit = CAIRN_MIB};
    REQUIRE_OK(cairn_store_get_small(world.worker, manifest.text, &good, &err));
    REQUIRE(replace_file(&world, &manifest, CAIRN_VIEW("{\"some\": \"other thing\"}")));
    REQUIRE(cairn_world_restart(&world, WORLD_ARGS("--sweep-interval=50ms"), NULL));
    AWAIT(cairn_daemon_logged(&world.server, "commit.manifest_differs"));
    CAIRN_AUTO_JSON json_t *open_one = NULL, *ready = NULL, *version = NULL;
    REQUIRE_OK(cairn_world_call(&world, "GET", save.path, NULL, &open_one));
    EXPECT_EQ_TEXT(cairn_world_text(open_one, "state"), "open");
    REQUIRE_OK(cairn_world_call(&world, "GET", "/readyz", NULL, &ready));
    EXPECT(strstr(cairn_world_text(json_object_get(ready, "checks"), "commits"), save.id.text));
    /* Nothing was deleted: with the right manifest back, it commits. */
    REQUIRE(replace_file(&world, &manifest, cairn_buf_view(&good)));
    REQUIRE_OK(cairn_hand_wait(&save, &version));
    EXPECT_EQ_TEXT(cairn_world_text(version, "state"), "committed");
    /* The waiter may hear of the commit before the commit's thread has put its complaint away. */
    AWAIT(commits_are_ok(&world));
}

TEST(a_whole_version_that_waits_for_its_commit_is_not_ended_by_the_limit_on_open_ones_V37) /* Q53 */
{
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save, unfinished;
    struct cairn_key manifest;
    REQUIRE(stop_after_manifest(&world, &hand, &save, &manifest));
    CAIRN_AUTO(buf) good = {.limit = CAIRN_MIB};
    REQUIRE_OK(cairn_store_get_small(world.worker, manifest.text, &good, &err));
    REQUIRE(replace_file(&world, &manifest, CAIRN_VIEW("{\"some\": \"other thing\"}")));
    REQUIRE(
        cairn_world_restart(&world, WORLD_ARGS("--sweep-interval=50ms", "--open-max=1s"), NULL));
    REQUIRE_OK(cairn_hand_begin(&hand, 4, 1, "error", &unfinished));
    CAIRN_AUTO_JSON json_t *ended = NULL, *open_one = NULL, *version = NULL;
    /* The limit is over: what is not whole was given up. */
    REQUIRE_OK(cairn_hand_wait(&unfinished, &ended));
    EXPECT(strstr(cairn_world_text(ended, "reason"), "open for more than"));
    REQUIRE_OK(cairn_world_call(&world, "GET", save.path, NULL, &open_one));
    EXPECT_EQ_TEXT(cairn_world_text(open_one, "state"), "open");
    REQUIRE(replace_file(&world, &manifest, cairn_buf_view(&good)));
    REQUIRE_OK(cairn_hand_wait(&save, &version));
    EXPECT_EQ_TEXT(cairn_world_text(version, "state"), "committed");
}

TEST(a_manifest_that_another_release_wrote_of_the_same_rows_is_taken_as_it_is_V37) /* Q53 */
{
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    struct cairn_key manifest;
    REQUIRE(stop_after_manifest(&world, &hand, &save, &manifest));
    CAIRN_AUTO(buf) good = {.limit = CAIRN_MIB}, other = {.limit = CAIRN_MIB};
    REQUIRE_OK(cairn_store_get_small(world.worker, manifest.text, &good, &err));
    REQUIRE(good.size > 2 && good.data[0] == '{');
    REQUIRE_OK(cairn_buf_printf(&other, &err, "{\"a_later_field\": 7, %s", (char *)good.data + 1));
    REQUIRE(replace_file(&world, &manifest, cairn_buf_view(&other)));
    REQUIRE(cairn_world_restart(&world, WORLD_ARGS("--sweep-interval=50ms"), NULL));
    CAIRN_AUTO_JSON json_t *version = NULL;
    REQUIRE_OK(cairn_hand_wait(&save, &version));
    EXPECT_EQ_TEXT(cairn_world_text(version, "state"), "committed");
    char path[300];
    CAIRN_AUTO(buf) served = {0};
    snprintf(path, sizeof(path), "%s/manifest", save.path);
    REQUIRE_OK(cairn_rest_bytes(world.rest, "GET", path, NULL, (struct cairn_view){0}, NULL,
                                &served, &err));
    EXPECT(served.size == other.size && !memcmp(served.data, other.data, other.size));
}

TEST(checksums_with_other_bytes_leave_the_version_open_V37) /* Q53 */
{
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    struct cairn_key manifest, checksums;
    REQUIRE(stop_after_manifest(&world, &hand, &save, &manifest));
    struct cairn_version_place place = place_of(&save);
    cairn_key_checksums(&place, &checksums);
    CAIRN_AUTO(buf) good = {.limit = CAIRN_MIB};
    REQUIRE_OK(cairn_store_get_small(world.worker, checksums.text, &good, &err));
    REQUIRE(replace_file(&world, &checksums, CAIRN_VIEW("1234")));
    REQUIRE(cairn_world_restart(&world, WORLD_ARGS("--sweep-interval=50ms"), NULL));
    AWAIT(cairn_daemon_logged(&world.server, "commit.manifest_differs"));
    CAIRN_AUTO_JSON json_t *open_one = NULL, *version = NULL;
    REQUIRE_OK(cairn_world_call(&world, "GET", save.path, NULL, &open_one));
    EXPECT_EQ_TEXT(cairn_world_text(open_one, "state"), "open");
    REQUIRE(replace_file(&world, &checksums, cairn_buf_view(&good)));
    REQUIRE_OK(cairn_hand_wait(&save, &version));
    EXPECT_EQ_TEXT(cairn_world_text(version, "state"), "committed");
}

#define ROWS                                                                                       \
    "SELECT (SELECT count(*) FROM shards) + (SELECT count(*) FROM version_ranks) + (SELECT "       \
    "count(*) FROM version_groups)"

TEST(a_committed_version_keeps_no_rows_and_what_a_death_has_left_of_it_goes_and_no_others) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save committed, open_one;
    REQUIRE(cairn_world_start_inside(&world, NULL));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 2));
    REQUIRE_OK(cairn_hand_save_all(&hand, 3, 1, "error", 100, &committed));
    AWAIT(!cairn_world_count(&world, ROWS)); /* whoever waits is told before */
    REQUIRE(cairn_world_sql(
        &world, "INSERT INTO shards(version, name, rank, sealed, registered, size) SELECT version, "
                "'left', 0, 1, 1, 4 FROM versions"));
    REQUIRE(cairn_world_sql(&world, "INSERT INTO version_groups(version, name, digest, rank) "
                                    "SELECT version, 'left', '', 0 FROM versions"));
    REQUIRE_OK(cairn_hand_begin(&hand, 4, 1, "error", &open_one));
    json_t *shard = cairn_hand_shard(&open_one, "rank-00000/x", 0, CAIRN_VIEW("1234"));
    json_t *seal = cairn_hand_seal(0, NULL, "rank-00000/x", 4);
    REQUIRE_OK(cairn_hand_send(&open_one, json_pack("[o]", shard), json_pack("[o]", seal), NULL));
    EXPECT_EQ_U64(cairn_world_count(&world, "SELECT count(*) FROM shards"), 2);
    uint64_t rows = cairn_world_count(&world, ROWS);
    REQUIRE_OK(cairn_inside_restart(&world.inside));
    cairn_inside_round(&world.inside); /* the first one of a server tidies */
    EXPECT_EQ_U64(cairn_world_count(&world, ROWS), rows - 2);
    EXPECT_EQ_U64(cairn_world_count(&world, "SELECT count(*) FROM shards WHERE name <> 'left'"), 1);
    EXPECT_EQ_U64(cairn_world_count(&world, "SELECT count(*) FROM shards"), 1);
}
