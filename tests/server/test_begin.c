/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=both races="full: as server/save and server/http, other requests" */
/* Begin is a join, and every verdict is a row, the same for all (Q8-Q11). */
#include "tests/server/world.h"

static enum cairn_code begin(struct cairn_hand *hand, json_t *take_body, json_t **ret_reply) {
    return world_call(hand->world, "POST", WORLD_RUN "/checkpoints", take_body, ret_reply);
}

#define err world.err /* of the macros */

TEST(ranks_that_begin_the_same_save_join_it) {
    JOB(2);
    CAIRN_AUTO_JSON json_t *first = NULL, *second = NULL, *again = NULL;
    REQUIRE_OK(begin(&hand, hand_begin_body(&hand, 5, 1, 0, "error"), &first));
    REQUIRE_OK(begin(&hand, hand_begin_body(&hand, 5, 1, 1, "error"), &second));
    REQUIRE_OK(begin(&hand, hand_begin_body(&hand, 5, 1, 1, "error"), &again));
    EXPECT_EQ_TEXT(world_text(first, "version"), world_text(second, "version"));
    EXPECT_EQ_TEXT(world_text(again, "state"), "open");
}

TEST(ranks_that_count_differently_get_two_versions_and_no_mixture) { /* V3 */
    JOB(2);
    CAIRN_AUTO_JSON json_t *first = NULL, *second = NULL;
    REQUIRE_OK(begin(&hand, hand_begin_body(&hand, 5, 1, 0, "new-version"), &first));
    REQUIRE_OK(begin(&hand, hand_begin_body(&hand, 5, 2, 1, "new-version"), &second));
    EXPECT(strcmp(world_text(first, "version"), world_text(second, "version")));
}

TEST(ranks_that_describe_a_save_differently_abort_it_for_all) { /* Q10 */
    JOB(2);
    CAIRN_AUTO_JSON json_t *other = hand_begin_body(&hand, 5, 1, 1, "error");
    json_object_set_new(other, "format", json_string("test-2"));
    REQUIRE_OK(begin(&hand, hand_begin_body(&hand, 5, 1, 0, "error"), NULL));
    EXPECT_FAILS(begin(&hand, json_incref(other), NULL), CAIRN_BEGIN_DIFFERS,
                 "rank 0 and rank 1 differ in format");
    EXPECT_CODE(begin(&hand, hand_begin_body(&hand, 5, 1, 0, "error"), NULL),
                CAIRN_BEGIN_DIFFERS); /* the rank that was first hears it too */
}

TEST(the_digest_of_a_replica_group_is_fixed_by_its_first_rank) {
    JOB(3);
    char digest[65];
    for (uint32_t rank = 0; rank < 3; rank++) {
        memset(digest, rank == 2 ? 'b' : 'a', 64);
        digest[64] = 0;
        json_t *body = hand_begin_body(&hand, 5, 1, rank, "error");
        json_object_set_new(body, "splits",
                            json_pack("[{s:s, s:s}]", "group", "dp", "digest", digest));
        EXPECT_CODE(begin(&hand, body, NULL), rank == 2 ? CAIRN_BEGIN_DIFFERS : CAIRN_OK);
    }
}

TEST(a_step_that_exists_is_refused_for_all_ranks_for_ever) { /* Q11, V24 */
    JOB(2);
    SAVED(save, 5);
    EXPECT_CODE(begin(&hand, hand_begin_body(&hand, 5, 2, 0, "error"), NULL), CAIRN_STEP_EXISTS);
    /* The obstacle goes; the verdict stays. */
    ASK("DELETE", save.path, NULL);
    EXPECT_CODE(begin(&hand, hand_begin_body(&hand, 5, 2, 1, "error"), NULL), CAIRN_STEP_EXISTS);
    REQUIRE_OK(begin(&hand, hand_begin_body(&hand, 5, 3, 0, "error"), NULL));
}

TEST(an_earlier_save_of_the_step_that_is_still_open_counts_as_existing) { /* Q11 */
    JOB(1);
    REQUIRE_OK(begin(&hand, hand_begin_body(&hand, 5, 2, 0, "error"), NULL));
    EXPECT_CODE(begin(&hand, hand_begin_body(&hand, 5, 3, 0, "error"), NULL), CAIRN_STEP_EXISTS);
    /* A lower n was begun earlier, whatever order the calls came in. */
    REQUIRE_OK(begin(&hand, hand_begin_body(&hand, 5, 1, 0, "error"), NULL));
}

TEST(supersede_takes_effect_when_the_new_version_commits_and_not_before) { /* V8 */
    struct cairn_hand_save fresh, begun;
    JOB(1);
    SAVED(old, 5);
    REQUIRE_OK(hand_begin(&hand, 5, 2, "supersede", &begun));
    EXPECT_GET(WORLD_RUN "/checkpoints/5", "version", old.id.text);
    REQUIRE_OK(hand_save_all(&hand, 5, 3, "supersede", 10, &fresh));
    EXPECT_GET(WORLD_RUN "/checkpoints/5", "version", fresh.id.text);
    EXPECT_GET(old.path, "superseded", "true");
}

TEST(skip_applies_while_an_earlier_save_is_not_wholly_registered) {
    JOB(1);
    BEGUN(save, 5);
    json_t *body = hand_begin_body(&hand, 6, 1, 0, "error");
    json_object_set_new(body, "skip", json_true());
    EXPECT_CODE(begin(&hand, body, NULL), CAIRN_SKIPPED);
    REQUIRE_OK(hand_save_all(&hand, 7, 1, "error", 10, &save));
}

TEST(a_batch_of_begins_is_answered_in_its_order) {
    JOB(2);
    json_t *begins = json_array();
    for (uint32_t i = 0; i < 3; i++) {
        json_t *one = hand_begin_body(&hand, 5, i == 2 ? 0 : 1, i % 2, "error");
        json_object_del(one, "grant");
        json_object_del(one, "node");
        json_array_append_new(begins, one);
    }
    CAIRN_AUTO_JSON json_t *reply = NULL;
    REQUIRE_OK(
        begin(&hand,
              json_pack("{s:s, s:s, s:o}", "grant", hand.grant, "node", "node-a", "begins", begins),
              &reply));
    static const uint64_t wanted[] = {201, 200, 400};
    for (size_t i = 0; i < 3; i++) {
        const json_t *one = json_array_get(json_object_get(reply, "results"), i);
        EXPECT_EQ_U64(world_number(one, "status"), wanted[i]);
    }
}

TEST(begins_of_several_steps_in_one_call_are_several_versions_and_one_that_differs_ends_its_own) {
    JOB(3);
    json_t *begins = json_array();
    for (uint32_t i = 0; i < 6; i++) { /* three ranks of step 5, then of step 6 */
        json_t *one = hand_begin_body(&hand, 5 + i / 3, 1, i % 3, "error");
        json_object_del(one, "grant");
        json_object_del(one, "node");
        if (i == 4) json_object_set_new(one, "format", json_string("other"));
        json_array_append_new(begins, one);
    }
    CAIRN_AUTO_JSON json_t *reply = NULL;
    REQUIRE_OK(
        begin(&hand,
              json_pack("{s:s, s:s, s:o}", "grant", hand.grant, "node", "node-a", "begins", begins),
              &reply));
    const json_t *results = json_object_get(reply, "results");
    EACH_OF(uint64_t, number, 201, 200, 200, 201, 409, 409) {
        const json_t *one = json_array_get(results, AT_OF(number));
        EXPECT_EQ_U64(world_number(one, "status"), number);
        EXPECT_EQ_U64(world_number(one, "step"), 5 + AT_OF(number) / 3);
    }
}

TEST(a_begin_after_another_rank_has_failed_gets_its_reason) { /* P9 */
    JOB(2);
    BEGUN(save, 5);
    ASK("POST", TEXT("%s/fail", save.path),
        json_pack("{s:s, s:s, s:i, s:s}", "grant", hand.grant, "node", "node-a", "rank", 0,
                  "reason", "the disk is full"));
    json_t *one = hand_begin_body(&hand, 5, 1, 1, "error");
    json_object_del(one, "grant");
    json_object_del(one, "node");
    CAIRN_AUTO_JSON json_t *reply = NULL;
    REQUIRE_OK(begin(
        &hand, json_pack("{s:s, s:s, s:[o]}", "grant", hand.grant, "node", "node-b", "begins", one),
        &reply));
    const json_t *result = json_array_get(json_object_get(reply, "results"), 0);
    EXPECT(strstr(world_text(result, "reason"), "the disk is full") != NULL);
    EXPECT_EQ_TEXT(world_text(result, "code"), "checkpoint-aborted");
}

/* What the answer to a batch of one says. */
static enum cairn_code begin_in_batch(struct cairn_hand *hand, json_t *take_body,
                                      json_t **ret_reply) {
    json_object_del(take_body, "grant");
    json_object_del(take_body, "node");
    return world_call(
        hand->world, "POST", WORLD_RUN "/checkpoints",
        json_pack("{s:s, s:s, s:[o]}", "grant", hand->grant, "node", "node-a", "begins", take_body),
        ret_reply);
}

TEST(a_begin_that_is_refused_fails_the_save_for_all_ranks) { /* V34, Q50 */
    JOB_INSIDE(2);
    /* Rank 1 was there before, rank 0 is refused: in a batch at step 5, alone at step 6. */
    for (uint64_t step = 5; step <= 6; step++) {
        json_t *bad = hand_begin_body(&hand, step, 1, 0, "error");
        json_object_set_new(bad, "labels", json_pack("{s:i}", "team", 7));
        CAIRN_AUTO_JSON json_t *first = NULL, *refused = NULL, *again = NULL;
        REQUIRE_OK(begin(&hand, hand_begin_body(&hand, step, 1, 1, "error"), &first));
        if (step == 5) {
            REQUIRE_OK(begin_in_batch(&hand, bad, &refused));
            const json_t *result = json_array_get(json_object_get(refused, "results"), 0);
            EXPECT_SHOWS(result, "status", "400", "version", world_text(first, "version"));
        } else {
            EXPECT_CODE(begin(&hand, bad, NULL), CAIRN_INVALID);
        }
        GOT(shown, TEXT(WORLD_RUN "/checkpoints/%s", world_text(first, "version")));
        EXPECT_EQ_TEXT(world_text(shown, "state"), "aborting");
        EXPECT(strstr(world_text(shown, "reason"), "rank 0's begin was refused"));
        EXPECT(strstr(world_text(shown, "reason"), "team"));
        /* Also for the rank that was there, and for ever. */
        REQUIRE_OK(begin(&hand, hand_begin_body(&hand, step, 1, 1, "error"), &again));
        EXPECT_EQ_TEXT(world_text(again, "state"), "aborting");
    }
    /* A rank that is refused first leaves a row that says so to whoever comes later. */
    json_t *bad = hand_begin_body(&hand, 7, 1, 0, "perhaps");
    EXPECT_CODE(begin(&hand, bad, NULL), CAIRN_INVALID);
    CAIRN_AUTO_JSON json_t *late = NULL;
    REQUIRE_OK(begin(&hand, hand_begin_body(&hand, 7, 1, 1, "error"), &late));
    EXPECT_EQ_TEXT(world_text(late, "state"), "aborting");
    EXPECT(strstr(world_text(late, "reason"), "on_exists"));
    /* One whose place is unknown leaves nothing. */
    json_t *nowhere = hand_begin_body(&hand, 8, 1, 2, "error"); /* rank 2 of 2 */
    EXPECT_CODE(begin(&hand, nowhere, NULL), CAIRN_INVALID);
    EXPECT_ROWS(0, "versions WHERE step = 8");
}

TEST(a_begin_that_is_told_again_changes_nothing_that_the_seal_said) { /* Q10, Q19 */
    JOB_INSIDE(2);
    BEGUN(save, 5);
    json_t *seal = hand_seal(0, NULL, "x", 4), *other = hand_seal(1, NULL, "y", 4);
    json_object_set_new(seal, "labels", json_pack("{s:s}", "kind", "sealed"));
    json_object_set_new(seal, "meta", json_pack("{s:i}", "loss", 2));
    /* Another rank's are not taken. */
    json_object_set_new(other, "labels", json_pack("{s:s}", "kind", "other"));
    REQUIRE_OK(hand_send(&save, json_array(), json_pack("[o]", other), NULL));
    GOT(before, save.path);
    EXPECT(strcmp(world_text(json_object_get(before, "labels"), "kind"), "other") != 0);
    REQUIRE_OK(hand_send(&save, json_array(), json_pack("[o]", seal), NULL));
    json_t *again = hand_begin_body(&hand, 5, 1, 0, "error");
    json_object_set_new(again, "labels", json_pack("{s:s}", "kind", "begun"));
    CAIRN_AUTO_JSON json_t *begun = NULL;
    REQUIRE_OK(begin(&hand, again, &begun));
    json_t *shards = json_pack("[oo]", hand_shard(&save, "x", 0, CAIRN_VIEW("1234")),
                               hand_shard(&save, "y", 1, CAIRN_VIEW("5678")));
    REQUIRE_OK(hand_send(&save, shards, json_array(), NULL));
    WAITED(version, &save);
    EXPECT_SHOWS(version, "state", "committed", "labels.kind", "sealed", "meta.loss", "2");
    /* What a begin may not say, a seal may not say either. */
    REQUIRE_OK(hand_begin(&hand, 6, 1, "error", &save));
    json_t *bad = hand_seal(0, NULL, "x", 4);
    json_object_set_new(bad, "labels", json_pack("{s:i}", "kind", 1));
    EXPECT_CODE(hand_send(&save, json_array(), json_pack("[o]", bad), NULL), CAIRN_INVALID);
}

TEST(meta_of_the_largest_size_and_depth_is_taken_in_a_batch_and_committed) { /* V34, Q50 */
    struct cairn_hand_save save;
    JOB_INSIDE(1);
    json_t *deep = json_pack("{s:i}", "a", 1);
    for (int i = 2; i < CAIRN_META_DEPTH_MAX; i++) deep = json_pack("{s:o}", "a", deep);
    char *text = calloc(1, CAIRN_META_BYTES_MAX);
    REQUIRE(text != NULL);
    json_t *meta = json_pack("{s:o, s:s}", "deep", deep, "text", text);
    WITH_OK(buf, canonical, cairn_meta_check(meta, "meta", false, &canonical, &err));
    memset(text, 'x', CAIRN_META_BYTES_MAX - canonical.size);
    json_object_set_new(meta, "text", json_string(text));
    free(text);
    json_t *body = hand_begin_body(&hand, 5, 1, 0, "error");
    json_object_set_new(body, "meta", json_incref(meta));
    CAIRN_AUTO_JSON json_t *reply = NULL;
    REQUIRE_OK(begin_in_batch(&hand, body, &reply));
    const json_t *result = json_array_get(json_object_get(reply, "results"), 0);
    EXPECT_EQ_U64(world_number(result, "status"), 201);
    save = (struct cairn_hand_save){.hand = &hand, .step = 5, .n = 1};
    snprintf(save.id.text, sizeof(save.id.text), "%s", world_text(result, "version"));
    snprintf(save.path, sizeof(save.path), WORLD_RUN "/checkpoints/%s", save.id.text);
    REQUIRE_OK(hand_put(&save, "x", 0, CAIRN_VIEW("1234")));
    WAITED(version, &save);
    EXPECT_EQ_TEXT(world_text(version, "state"), "committed");
    EXPECT(json_equal(json_object_get(version, "meta"), meta));
    json_decref(meta);
}
