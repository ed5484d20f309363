/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again races="full: as server/save and server/http, other requests" */
/* POST {C}/verify: what belongs to a committed version beside its shards' bytes (P13, P14). */
#include <stdio.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/server/world.h"

#define err world.err /* of the macros */

static struct cairn_version_place place_of(const struct cairn_hand_save *save) {
    return (struct cairn_version_place){{"llm", "seven"}, save->step, save->id};
}

static void path_in_store(const struct cairn_world *world, const struct cairn_key *key,
                          char ret[1400]) {
    snprintf(ret, 1400, "%s/%s", world->store_path, key->text);
}

static bool object_there(struct cairn_world *world, const struct cairn_key *key) {
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key->text};
    return !cairn_store_perform(world->worker, &head, NULL);
}

static enum cairn_code verify(struct cairn_world *world, const struct cairn_hand_save *save,
                              json_t **ret_answer) {
    char path[300];
    snprintf(path, sizeof(path), "%s/verify", save->path);
    return cairn_world_call(world, "POST", path, NULL, ret_answer);
}

/* Exactly one finding, of this kind, whose key ends so. */
static bool finds(struct cairn_world *world, const struct cairn_hand_save *save, const char *what,
                  const char *key_end, bool damaged) {
    CAIRN_AUTO_JSON json_t *answer = NULL;
    if (verify(world, save, &answer)) return false;
    json_t *findings = json_object_get(answer, "findings"), *one = json_array_get(findings, 0);
    const char *key = cairn_world_text(one, "key");
    size_t size = strlen(key), end = strlen(key_end);
    return json_array_size(findings) == 1 && !strcmp(cairn_world_text(one, "what"), what) &&
           size >= end && !strcmp(key + size - end, key_end) &&
           json_is_true(json_object_get(answer, "ok")) != damaged;
}

static bool finds_nothing(struct cairn_world *world, const struct cairn_hand_save *save) {
    CAIRN_AUTO_JSON json_t *answer = NULL;
    return !verify(world, save, &answer) && json_is_true(json_object_get(answer, "ok")) &&
           !json_array_size(json_object_get(answer, "findings"));
}

TEST(a_missing_committed_json_is_never_all_good_and_is_written_again_once_P13_P14) {
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 2));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 100, &save));
    EXPECT(finds_nothing(&world, &save));
    struct cairn_version_place place = place_of(&save);
    struct cairn_key record;
    cairn_key_committed(&place, &record);
    CAIRN_AUTO(buf) before = {0}, after = {0};
    REQUIRE_OK(cairn_store_get_small(world.worker, record.text, &before, &err));
    REQUIRE_OK(cairn_store_delete(world.worker, record.text, &err));
    CAIRN_AUTO_JSON json_t *answer = NULL;
    REQUIRE_OK(verify(&world, &save, &answer));
    EXPECT(json_is_true(json_object_get(answer, "record_rewritten")));
    EXPECT_EQ_U64(json_array_size(json_object_get(answer, "findings")), 1);
    EXPECT(cairn_daemon_logged(&world.server, "record.rewritten"));
    REQUIRE_OK(cairn_store_get_small(world.worker, record.text, &after, &err));
    EXPECT(before.size == after.size && !memcmp(before.data, after.data, before.size));
    EXPECT(finds_nothing(&world, &save));
    /* One that is there with other content is damage, and is left as it is. */
    REQUIRE_OK(cairn_store_delete(world.worker, record.text, &err));
    REQUIRE_OK(cairn_store_put_small(world.worker, record.text, CAIRN_VIEW("{}"), true, &err));
    EXPECT(finds(&world, &save, "record", "/committed.json", true));
}

static bool flip_last_byte(const char *path) {
    FILE *file = fopen(path, "r+b");
    if (!file) return false;
    bool done = !fseek(file, -1, SEEK_END);
    int byte = done ? fgetc(file) : EOF;
    done = byte != EOF && !fseek(file, -1, SEEK_END) && fputc(byte ^ 1, file) != EOF;
    return !fclose(file) && done;
}

TEST(attempt_records_shards_checksums_and_strays_are_looked_at_P14) {
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save one, two, three, four;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 2));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 100, &one));
    REQUIRE_OK(cairn_hand_save_all(&hand, 2, 1, "error", 100, &two));
    REQUIRE_OK(cairn_hand_save_all(&hand, 3, 1, "error", 100, &three));
    REQUIRE_OK(cairn_hand_save_all(&hand, 4, 1, "error", 100, &four));
    struct cairn_version_place place = place_of(&one);
    struct cairn_key key;
    char path[1400];
    cairn_key_shard(&place, CAIRN_VIEW("rank-00001/x"), &key); /* the last shard */
    path_in_store(&world, &key, path);
    REQUIRE(!truncate(path, 50));
    EXPECT(finds(&world, &one, "object", "rank-00001/x", true));
    REQUIRE(!unlink(path));
    EXPECT(finds(&world, &one, "object", "rank-00001/x", true));
    place = place_of(&two);
    cairn_key_checksums(&place, &key);
    REQUIRE_OK(cairn_store_delete(world.worker, key.text, &err));
    EXPECT(finds(&world, &two, "object", "/checksums.bin", true));
    cairn_key_manifest(&place, &key);
    REQUIRE_OK(cairn_store_delete(world.worker, key.text, &err));
    EXPECT(finds(&world, &two, "object", "/manifest.json", true));
    place = place_of(&three);
    cairn_key_shard(&place, CAIRN_VIEW("rank-00000/stranger"), &key);
    REQUIRE_OK(cairn_store_put_small(world.worker, key.text, CAIRN_VIEW("what?"), true, &err));
    EXPECT(finds(&world, &three, "stray", "rank-00000/stranger", false));
    place = place_of(&four);
    cairn_key_shard(&place, CAIRN_VIEW("rank-00000/x"), &key);
    path_in_store(&world, &key, path);
    /* The bytes decide: a wrong statement alone is no damage, with other bytes it is. */
    if (!setxattr(path, "user.cairn.crc32c", "00000001", 8, XATTR_REPLACE)) {
        CAIRN_AUTO_JSON json_t *stated = NULL;
        REQUIRE_OK(verify(&world, &four, &stated));
        EXPECT(json_is_true(json_object_get(stated, "ok")));
        REQUIRE(flip_last_byte(path));
        EXPECT(finds(&world, &four, "object", "rank-00000/x", true));
    }
    struct cairn_run_name name = {"llm", "seven"};
    cairn_key_attempt(&name, 1, &key);
    REQUIRE_OK(cairn_store_delete(world.worker, key.text, &err));
    CAIRN_AUTO_JSON json_t *answer = NULL;
    REQUIRE_OK(verify(&world, &three, &answer));
    EXPECT(!json_is_true(json_object_get(answer, "ok")));
    EXPECT_EQ_U64(cairn_world_number(answer, "damaged"), 1);
    EXPECT_EQ_U64(cairn_world_number(answer, "strays"), 1);
}

TEST(a_copy_of_an_attempt_record_that_is_damaged_or_differs_is_named_P14) {
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 100, &save));
    EXPECT(finds_nothing(&world, &save));
    struct cairn_run_name name = {"llm", "seven"};
    struct cairn_key copy;
    CAIRN_AUTO(buf) text = {0};
    cairn_key_attempt_copy(&name, 1, &copy);
    REQUIRE_OK(cairn_store_get_small(world.worker, copy.text, &text, &err));
    /* Another job is a record still, and no copy of this one. */
    char *job = memmem(text.data, text.size, "\"j1\"", 4);
    REQUIRE(job);
    job[2] = '2';
    REQUIRE_OK(cairn_store_delete(world.worker, copy.text, &err));
    EXPECT(finds_nothing(&world, &save)); /* as in a store of a release that wrote no copies */
    REQUIRE_OK(cairn_store_put_small(world.worker, copy.text, cairn_buf_view(&text), true, &err));
    EXPECT(finds(&world, &save, "attempt", "/000000000001.copy.json", true));
    REQUIRE_OK(cairn_store_delete(world.worker, copy.text, &err));
    REQUIRE_OK(cairn_store_put_small(world.worker, copy.text, CAIRN_VIEW("{}"), true, &err));
    EXPECT(finds(&world, &save, "attempt", "/000000000001.copy.json", true));
}

TEST(a_store_that_is_away_is_not_called_damaged_and_gets_no_record_P14) {
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 100, &save));
    struct cairn_version_place place = place_of(&save);
    struct cairn_key record, json;
    cairn_key_committed(&place, &record);
    cairn_key_store_json(&json);
    REQUIRE_OK(cairn_store_delete(world.worker, record.text, &err));
    REQUIRE_OK(cairn_store_delete(world.worker, json.text, &err));
    CAIRN_AUTO_JSON json_t *ignored = NULL;
    EXPECT_CODE(verify(&world, &save, &ignored), CAIRN_UNAVAILABLE);
    EXPECT(!object_there(&world, &record));
}
