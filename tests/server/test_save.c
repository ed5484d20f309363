/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan engines=both */
/* A save from begin to recorded, spoken by hand as an uploader speaks it. */
#include "tests/server/world.h"

static bool get_object(struct cairn_world *world, const char *key, struct cairn_buf *ret) {
    cairn_buf_clear(ret);
    return !cairn_store_get_small(world->worker, key, ret, &world->err);
}

#define err world.err /* of the macros */

TEST(a_save_commits_by_itself_when_all_ranks_sealed_and_all_shards_are_registered) { /* Q22 */
    JOB(2);
    EXPECT_EQ_U64(hand.attempt, 1);
    struct cairn_hand_save save;
    REQUIRE_OK(hand_save_all(&hand, 100, 1, "error", 3 * CAIRN_MIB + 7, &save));
    struct cairn_version_origin origin = {
        .name = {"llm", "seven"}, .attempt = 1, .step = 100, .n = 1};
    snprintf(origin.nonce, sizeof(origin.nonce), "%s", hand.nonce);
    struct cairn_version_id wanted;
    cairn_version_id_make(&origin, &wanted);
    EXPECT_EQ_TEXT(save.id.text, wanted.text); /* Q1: derived by each side for itself */
    GOT(version, WORLD_RUN "/checkpoints/latest");
    EXPECT_EQ_TEXT(world_text(version, "version"), save.id.text);
    EXPECT_EQ_U64(world_number(version, "bytes"), 2 * (3 * CAIRN_MIB + 7));
    EXPECT(json_is_true(json_object_get(version, "recorded")));
    EXPECT_GET(WORLD_RUN, "committed", "1");
}

TEST(the_store_alone_holds_manifest_checksums_and_record_of_a_committed_version) { /* P13, Q24 */
    struct cairn_hand_save save;
    JOB(2);
    REQUIRE_OK(hand_save_all(&hand, 7, 1, "error", CAIRN_MIB + 1, &save));
    struct cairn_version_place place = {{"llm", "seven"}, 7, save.id};
    struct cairn_key key;
    cairn_key_committed(&place, &key);
    WITH(buf, text, get_object(&world, key.text, &text));
    struct cairn_record record = {0};
    REQUIRE_OK(cairn_record_decode(cairn_buf_view(&text), &record, &err));
    cairn_key_manifest(&place, &key);
    REQUIRE(get_object(&world, key.text, &text));
    uint8_t digest[32];
    cairn_sha256_of(cairn_buf_view(&text), digest);
    EXPECT(!memcmp(digest, record.manifest_sha256, 32));
    WITH_OK(manifest, manifest, cairn_manifest_decode(cairn_buf_view(&text), &manifest, &err));
    EXPECT_ALL_U64(manifest.shard_count, 2, manifest.block_count, 4);
    EXPECT_EQ_TEXT(manifest.labels_json, "{\"kind\":\"test\"}");
    EXPECT_EQ_TEXT(manifest.meta_json, "{\"loss\":3}");
    WITH_OK(buf, served,
            cairn_rest_bytes(world.rest, "GET", TEXT("%s/manifest", save.path), NULL,
                             (struct cairn_view){0}, NULL, &served, &err));
    EXPECT(served.size == text.size && !memcmp(served.data, text.data, text.size));
    cairn_key_checksums(&place, &key);
    REQUIRE(get_object(&world, key.text, &text));
    EXPECT_EQ_U64(text.size, 16);
    cairn_sha256_of(cairn_buf_view(&text), digest);
    EXPECT(!memcmp(digest, manifest.checksums_sha256, 32));
    cairn_key_attempt(&place.name, 1, &key);
    REQUIRE(get_object(&world, key.text, &text)); /* Q5 */
}

TEST(c02_the_same_commit_sent_a_hundred_times_in_parallel_is_one_commit) { /* C02 */
    JOB(1);
    BEGUN(save, 5);
    uint8_t data[100] = {1};
    REQUIRE_OK(hand_put(&save, "x", 0, (struct cairn_view){data, sizeof(data)}));
    static struct cairn_calling commits[100];
    const char *path = TEXT("%s/commit", save.path);
    for (size_t i = 0; i < 100; i++)
        REQUIRE(calling_begin(&commits[i], &world, "POST", path,
                              json_pack("{s:s}", "grant", hand.grant)));
    for (size_t i = 0; i < 100; i++) {
        EXPECT_CODE(calling_end(&commits[i]), CAIRN_OK);
        EXPECT_SHOWS(commits[i].reply, "state", "committed");
        cairn_calling_release(&commits[i]);
    }
}

static json_t *seal_said(uint32_t rank, const char *name, uint64_t size, int stall_ms) {
    json_t *seal = hand_seal(rank, NULL, name, size);
    if (stall_ms >= 0) json_object_set_new(seal, "stall_ms", json_integer(stall_ms));
    return seal;
}

TEST(a_version_says_its_longest_stall_and_when_it_was_staged_and_durable) {
    JOB(3);
    BEGUN(save, 5);
    uint8_t data[100] = {1};
    struct cairn_view bytes = {data, sizeof(data)};
    json_t *seals = json_pack("[o, o]", seal_said(0, "x", 100, 70), seal_said(1, "y", 100, 40));
    REQUIRE_OK(hand_send(
        &save,
        json_pack("[o, o]", hand_shard(&save, "x", 0, bytes), hand_shard(&save, "y", 1, bytes)),
        seals, NULL));
    GOT(open, save.path);
    EXPECT(json_is_null(json_object_get(open, "staged_at"))); /* rank 2 has not sealed */
    EXPECT_SHOWS(open, "durable_at", "null", "stall_ms", "70");
    REQUIRE_OK(hand_send(&save, NULL, json_pack("[o]", seal_said(2, "z", 100, -1)), NULL));
    GOT(staged, save.path);
    EXPECT(json_is_string(json_object_get(staged, "staged_at")));
    EXPECT(json_is_null(json_object_get(staged, "durable_at"))); /* z is not registered */
    /* A seal that is repeated is no longer stall. */
    REQUIRE_OK(hand_send(&save, json_pack("[o]", hand_shard(&save, "z", 2, bytes)),
                         json_pack("[o]", seal_said(0, "x", 100, 900)), NULL));
    WAITED(whole, &save);
    EXPECT_EQ_TEXT(world_text(whole, "staged_at"), world_text(staged, "staged_at"));
    EXPECT(strcmp(world_text(whole, "staged_at"), world_text(whole, "durable_at")) <= 0);
    EXPECT_EQ_U64(world_number(whole, "stall_ms"), 70);
}

TEST(a_commit_by_hand_names_what_is_missing) {
    JOB(3);
    BEGUN(save, 5);
    REQUIRE_OK(hand_seal_alone(&save, 1, "y", 10));
    EXPECT_REFUSED(CAIRN_INCOMPLETE, "POST", TEXT("%s/commit", save.path),
                   json_pack("{s:s}", "grant", hand.grant));
    const json_t *problem = cairn_rest_problem(world.rest);
    EXPECT_ALL_U64(world_number(problem, "expected"), 1, world_number(problem, "present"), 0);
    const json_t *missing = json_object_get(problem, "missing");
    EXPECT_EQ_U64(json_array_size(missing), 3);
    const json_t *shard = json_array_get(missing, 0), *rank = json_array_get(missing, 1);
    EXPECT_SHOWS(shard, "shard", "y", "state", "sealed");
    EXPECT_SHOWS(rank, "rank", "0", "node", "node-a", "state", "not sealed");
}

TEST(a_registration_repeated_is_no_change_and_other_content_is_a_conflict) {
    JOB(2);
    BEGUN(save, 5);
    uint8_t data[100] = {1};
    CAIRN_AUTO_JSON json_t *shard =
        hand_shard(&save, "x", 0, (struct cairn_view){data, sizeof(data)});
    REQUIRE_OK(hand_send(&save, json_pack("[O]", shard), NULL, NULL));
    REQUIRE_OK(hand_send(&save, json_pack("[O]", shard), NULL, NULL));
    CAIRN_AUTO_JSON json_t *other = json_deep_copy(shard);
    json_object_set_new(other, "rank", json_integer(1));
    EXPECT_CODE(hand_send(&save, json_pack("[O]", other), NULL, NULL), CAIRN_SHARD_CONFLICT);
    json_object_set_new(other, "rank", json_integer(0));
    json_object_set_new(other, "crc32c", json_string("00000000"));
    EXPECT_CODE(hand_send(&save, json_pack("[O]", other), NULL, NULL), CAIRN_INVALID);
    /* Seals are final, whatever comes after them. */
    REQUIRE_OK(hand_seal_alone(&save, 0, "x", 100));
    REQUIRE_OK(hand_seal_alone(&save, 0, "x", 100));
    EXPECT_CODE(hand_seal_alone(&save, 0, "x", 99), CAIRN_SHARD_CONFLICT);
    EXPECT_CODE(hand_seal_alone(&save, 0, "z", 100), CAIRN_SHARD_CONFLICT);
    EXPECT_CODE(hand_seal_alone(&save, 1, "x", 100), CAIRN_SHARD_CONFLICT);
}

/* Of ranks that know nothing of each other: a bucket could hold both, a folder could not. */
TEST(shard_names_of_two_ranks_may_not_be_folders_of_each_other) {
    JOB(2);
    BEGUN(save, 5);
    CAIRN_AUTO_JSON json_t *shard = hand_shard(&save, "a/opt/state", 0, CAIRN_VIEW("1"));
    REQUIRE_OK(hand_send(&save, json_pack("[O]", shard), NULL, NULL));
    CAIRN_AUTO_JSON json_t *other = json_deep_copy(shard);
    json_object_set_new(other, "rank", json_integer(1));
    EACH_TEXT(text, "a/opt/state-2", "a/opt-1", "b") {
        json_object_set_new(other, "name", json_string(text));
        REQUIRE_OK(hand_send(&save, json_pack("[O]", other), NULL, NULL));
    }
    EACH_TEXT(one, "a", "a/opt", "a/opt/state/deep", "a/opt/state/deep/er") {
        json_object_set_new(other, "name", json_string(one));
        EXPECT_CODE(hand_send(&save, json_pack("[O]", other), NULL, NULL), CAIRN_SHARD_CONFLICT);
        EXPECT_CODE(hand_seal_alone(&save, 1, one, 1), CAIRN_SHARD_CONFLICT);
    }
}

/* As it is registered; its object is not there. */
static json_t *empty_shard(const char *name, int rank) {
    return json_pack("{s:s, s:i, s:i, s:s, s:s, s:i, s:s}", "name", name, "rank", rank, "bytes", 0,
                     "crc32c", "00000000", "blocks", "", "part_bytes", 0, "token",
                     "00000000-0000-4000-8000-000000000000");
}

/* Of ranks 0 and 1 in one call. */
static enum cairn_code send_both(const struct cairn_hand_save *save, const char *first,
                                 const char *second) {
    json_t *shards = json_pack("[o, o]", empty_shard(first, 0), empty_shard(second, 1));
    if (!shards) return CAIRN_NO_MEMORY;
    return hand_send(save, shards, NULL, NULL);
}

TEST(what_contradicts_itself_in_one_call_is_refused_whole) { /* shards.h#1 */
    JOB(2);
    BEGUN(save, 5);
    EXPECT_CODE(send_both(&save, "one", "one"), CAIRN_SHARD_CONFLICT);
    EXPECT_CODE(send_both(&save, "a/b", "a"), CAIRN_SHARD_CONFLICT);
    EXPECT_CODE(send_both(&save, "a", "a/b/c"), CAIRN_SHARD_CONFLICT);
    EXPECT_CODE(
        hand_send(&save, NULL,
                  json_pack("[o, o]", hand_seal(0, NULL, "a", 1), hand_seal(1, NULL, "a/b", 1)),
                  NULL),
        CAIRN_SHARD_CONFLICT);
    EXPECT_CODE(
        hand_send(&save, NULL,
                  json_pack("[o, o]", hand_seal(0, NULL, "a", 1), hand_seal(0, NULL, "b", 1)),
                  NULL),
        CAIRN_SHARD_CONFLICT);
    json_t *twice = json_pack("{s:i, s:[{s:s, s:i}, {s:s, s:i}], s:i}", "rank", 0, "shards", "name",
                              "a", "bytes", 1, "name", "a", "bytes", 1, "bytes", 2);
    EXPECT_CODE(hand_send(&save, NULL, json_pack("[o]", twice), NULL), CAIRN_SHARD_CONFLICT);
    /* Nothing of all that is there. */
    json_t *shards = json_pack("[o, o]", hand_shard(&save, "a/b", 0, CAIRN_VIEW("")),
                               hand_shard(&save, "one", 1, CAIRN_VIEW("")));
    REQUIRE(shards != NULL);
    EXPECT_CODE(hand_send(&save, shards, NULL, NULL), CAIRN_OK);
    EXPECT_CODE(
        hand_send(&save, NULL,
                  json_pack("[o, o]", hand_seal(0, NULL, "a/b", 0), hand_seal(1, NULL, "one", 0)),
                  NULL),
        CAIRN_OK);
    CAIRN_AUTO_JSON json_t *version = NULL;
    EXPECT_CODE(hand_wait(&save, &version), CAIRN_OK);
}

TEST(a_call_of_more_shards_than_are_compared_together_is_kept_whole) { /* shards.h#1 */
    JOB(1);
    BEGUN(save, 5);
    CAIRN_AUTO_JSON json_t *shards = json_array(), *listed = json_array();
    for (int i = 0; i < 300; i++) {
        const char *name = TEXT("d-%d/%d", i % 7, i);
        json_array_append_new(shards, hand_shard(&save, name, 0, CAIRN_VIEW("")));
        json_array_append_new(listed, json_pack("{s:s, s:i}", "name", name, "bytes", 0));
    }
    /* The seal first, as of a rank that has staged; then half of them, then all. */
    json_t *seal = json_pack("{s:i, s:O, s:i}", "rank", 0, "shards", listed, "bytes", 0);
    REQUIRE_OK(hand_send(&save, NULL, json_pack("[o]", seal), NULL));
    REQUIRE_OK(hand_send(&save, json_pack("[O]", json_array_get(shards, 170)), NULL, NULL));
    REQUIRE_OK(hand_send(&save, json_deep_copy(shards), NULL, NULL));
    WAITED(version, &save);
    EXPECT_EQ_U64(json_integer_value(json_object_get(version, "shards")), 300);
}

TEST(after_the_end_of_a_version_a_registration_is_answered_with_its_state) {
    JOB(1);
    SAVED(save, 5);
    CAIRN_AUTO_JSON json_t *reply = NULL;
    REQUIRE_OK(hand_send(&save, NULL, json_pack("[o]", hand_seal(0, NULL, "other", 1)), &reply));
    EXPECT_SHOWS(reply, "state", "committed", "recorded", "true");
}

TEST(one_ranks_fail_aborts_for_all_and_loses_against_a_commit) { /* Q12, Q40 */
    struct cairn_hand_save done;
    JOB(1);
    BEGUN(save, 5);
    ASK("POST", TEXT("%s/fail", save.path),
        json_pack("{s:s, s:s, s:i, s:s}", "grant", hand.grant, "node", "node-a", "rank", 0,
                  "reason", "the disk\nis full"));
    WAITED(version, &save);
    EXPECT(strcmp(world_text(version, "state"), "open"));
    EXPECT_EQ_TEXT(world_text(version, "reason"), "rank 0 on node node-a: the disk\nis full");
    REQUIRE_OK(hand_save_all(&hand, 5, 2, "error", 10, &done)); /* P10: may be saved again */
    EXPECT_REFUSED(CAIRN_ALREADY_COMMITTED, "POST", TEXT("%s/fail", done.path),
                   json_pack("{s:s, s:s, s:i, s:s}", "grant", hand.grant, "node", "node-a", "rank",
                             0, "reason", "late"));
}

#undef err

/* A registration of one shard and its seal, of which one member is another; NULL: it is missing. */
static void expect_named(const struct cairn_hand_save *save, const char *list, const char *member,
                         const char *value, const char *named) {
    struct cairn_world *world = save->hand->world;
    json_t *shard =
        json_pack("{s:s, s:i, s:i, s:s, s:s, s:i, s:s}", "name", "rank-00000/x", "rank", 0, "bytes",
                  2, "crc32c", "00000000", "blocks", "AAAAAA==", "part_bytes", 0, "token",
                  "8d0b4bb1-6c4e-4b3f-8f0d-0f8f3c1c2a11");
    json_t *seal = hand_seal(0, NULL, "rank-00000/x", 2);
    json_t *changed = !strcmp(list, "shards") ? shard : seal;
    if (value)
        (void)json_object_set_new(changed, member, json_string(value));
    else
        (void)json_object_del(changed, member);
    EXPECT(hand_send(save, json_pack("[o]", shard), json_pack("[o]", seal), NULL) == CAIRN_INVALID);
    cairn_test_check(strstr(world->err.message, named) != NULL, __FILE__, __LINE__, "%s: %s", named,
                     world->err.message);
}

TEST(m06_digests_and_fields_that_are_unknown_are_refused_by_name) {
    struct cairn_hand hand;
    struct cairn_hand_save save;
    INSIDE();
    REQUIRE(!hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE(!hand_begin(&hand, 1, 1, "error", &save));
    EACH_TEXT(text, "", "0000000", "000000000", "ABCDEF01", "0000000g", "0x000000")
        expect_named(&save, "shards", "crc32c", text, "/shards/0/crc32c");
    EACH_TEXT(one, "", "00", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b85",
              "E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855",
              "g3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
        expect_named(&save, "seals", "table", one, "/seals/0/table");
    expect_named(&save, "shards", "token", "8d0b4bb16c4e4b3f8f0d0f8f3c1c2a11", "/shards/0/token");
    expect_named(&save, "shards", "sha256", "00", "/shards/0/sha256: unknown field");
    expect_named(&save, "shards", "token", NULL, "/shards/0/token: missing");
    expect_named(&save, "seals", "bytes", NULL, "/seals/0/bytes: missing");
}
