/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again races="full: as server/save and server/http, other requests" */
/* POST {C}/verify: what belongs to a committed version beside its shards' bytes (P13, P14). */
#include <sys/xattr.h>

#include "tests/server/world.h"

#define err world.err /* of the macros */

static enum cairn_code verify(struct cairn_world *world, const struct cairn_hand_save *save,
                              json_t **ret_answer) {
    const char *path = TEXT("%s/verify", save->path);
    return world_call(world, "POST", path, NULL, ret_answer);
}

/* Exactly one finding, of this kind, whose key ends so. */
static bool finds(struct cairn_world *world, const struct cairn_hand_save *save, const char *what,
                  const char *key_end, bool damaged) {
    CAIRN_AUTO_JSON json_t *answer = NULL;
    if (verify(world, save, &answer)) return false;
    json_t *findings = json_object_get(answer, "findings"), *one = json_array_get(findings, 0);
    const char *key = world_text(one, "key");
    size_t size = strlen(key), end = strlen(key_end);
    return json_array_size(findings) == 1 && !strcmp(world_text(one, "what"), what) &&
           size >= end && !strcmp(key + size - end, key_end) &&
           json_is_true(json_object_get(answer, "ok")) != damaged;
}

static bool finds_nothing(struct cairn_world *world, const struct cairn_hand_save *save) {
    CAIRN_AUTO_JSON json_t *answer = NULL;
    return !verify(world, save, &answer) && json_is_true(json_object_get(answer, "ok")) &&
           !json_array_size(json_object_get(answer, "findings"));
}

TEST(a_missing_committed_json_is_never_all_good_and_is_written_again_once_P13_P14) {
    struct cairn_hand_save save;
    JOB(2);
    REQUIRE_OK(hand_save_all(&hand, 1, 1, "error", 100, &save));
    EXPECT(finds_nothing(&world, &save));
    KEY(record, committed, &save);
    CAIRN_AUTO(buf) before = {0}, after = {0};
    REQUIRE_OK(cairn_store_get_small(world.worker, record.text, &before, &err));
    REQUIRE_OK(cairn_store_delete(world.worker, record.text, &err));
    CAIRN_AUTO_JSON json_t *answer = NULL;
    REQUIRE_OK(verify(&world, &save, &answer));
    EXPECT_SHOWS(answer, "record_rewritten", "true", "findings.#", "1");
    EXPECT(cairn_daemon_logged(&world.server, "record.rewritten"));
    REQUIRE_OK(cairn_store_get_small(world.worker, record.text, &after, &err));
    EXPECT(before.size == after.size && !memcmp(before.data, after.data, before.size));
    EXPECT(finds_nothing(&world, &save));
    /* One that is there with other content is damage, and is left as it is. */
    REQUIRE_OK(cairn_store_delete(world.worker, record.text, &err));
    REQUIRE_OK(cairn_store_put_small(world.worker, record.text, CAIRN_VIEW("{}"), true, &err));
    EXPECT(finds(&world, &save, "record", "/committed.json", true));
}

TEST(attempt_records_shards_checksums_and_strays_are_looked_at_P14) {
    struct cairn_hand_save one, two, three, four;
    JOB(2);
    REQUIRE_OK(hand_save_all(&hand, 1, 1, "error", 100, &one));
    REQUIRE_OK(hand_save_all(&hand, 2, 1, "error", 100, &two));
    REQUIRE_OK(hand_save_all(&hand, 3, 1, "error", 100, &three));
    REQUIRE_OK(hand_save_all(&hand, 4, 1, "error", 100, &four));
    struct cairn_version_place place = hand_place(&one);
    struct cairn_key key;
    cairn_key_shard(&place, CAIRN_VIEW("rank-00001/x"), &key); /* the last shard */
    const char *path = world_file(&world, &key);
    REQUIRE(!truncate(path, 50));
    EXPECT(finds(&world, &one, "object", "rank-00001/x", true));
    REQUIRE(!unlink(path));
    EXPECT(finds(&world, &one, "object", "rank-00001/x", true));
    place = hand_place(&two);
    cairn_key_checksums(&place, &key);
    REQUIRE_OK(cairn_store_delete(world.worker, key.text, &err));
    EXPECT(finds(&world, &two, "object", "/checksums.bin", true));
    cairn_key_manifest(&place, &key);
    REQUIRE_OK(cairn_store_delete(world.worker, key.text, &err));
    EXPECT(finds(&world, &two, "object", "/manifest.json", true));
    place = hand_place(&three);
    cairn_key_shard(&place, CAIRN_VIEW("rank-00000/stranger"), &key);
    REQUIRE_OK(cairn_store_put_small(world.worker, key.text, CAIRN_VIEW("what?"), true, &err));
    EXPECT(finds(&world, &three, "stray", "rank-00000/stranger", false));
    place = hand_place(&four);
    cairn_key_shard(&place, CAIRN_VIEW("rank-00000/x"), &key);
    path = world_file(&world, &key);
    /* The bytes decide: a wrong statement alone is no damage, with other bytes it is. */
    if (!setxattr(path, "user.cairn.crc32c", "00000001", 8, XATTR_REPLACE)) {
        CAIRN_AUTO_JSON json_t *stated = NULL;
        REQUIRE_OK(verify(&world, &four, &stated));
        EXPECT(json_is_true(json_object_get(stated, "ok")));
        REQUIRE(cairn_flip_byte(path, -1));
        EXPECT(finds(&world, &four, "object", "rank-00000/x", true));
    }
    struct cairn_run_name name = {"llm", "seven"};
    cairn_key_attempt(&name, 1, &key);
    REQUIRE_OK(cairn_store_delete(world.worker, key.text, &err));
    CAIRN_AUTO_JSON json_t *answer = NULL;
    REQUIRE_OK(verify(&world, &three, &answer));
    EXPECT(!json_is_true(json_object_get(answer, "ok")));
    EXPECT_SHOWS(answer, "damaged", "1", "strays", "1");
}

TEST(a_copy_of_an_attempt_record_that_is_damaged_or_differs_is_named_P14) {
    struct cairn_hand_save save;
    JOB(1);
    REQUIRE_OK(hand_save_all(&hand, 1, 1, "error", 100, &save));
    EXPECT(finds_nothing(&world, &save));
    struct cairn_run_name name = {"llm", "seven"};
    struct cairn_key copy;
    cairn_key_attempt_copy(&name, 1, &copy);
    WITH_OK(buf, text, cairn_store_get_small(world.worker, copy.text, &text, &err));
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
    struct cairn_hand_save save;
    JOB(1);
    REQUIRE_OK(hand_save_all(&hand, 1, 1, "error", 100, &save));
    struct cairn_key json;
    KEY(record, committed, &save);
    cairn_key_store_json(&json);
    REQUIRE_OK(cairn_store_delete(world.worker, record.text, &err));
    REQUIRE_OK(cairn_store_delete(world.worker, json.text, &err));
    CAIRN_AUTO_JSON json_t *ignored = NULL;
    EXPECT_CODE(verify(&world, &save, &ignored), CAIRN_UNAVAILABLE);
    EXPECT(!world_holds(&world, &record));
}
