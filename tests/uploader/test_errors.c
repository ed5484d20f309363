/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: races="full: as uploader/restage" */
/* What the store says about one shard reaches the rank, the other ranks and the version, whole. */
#include "tests/uploader/trainer.h"
#include "uploader/server/calls.h"

#define CJK20 "検査点重量行列層番号破片順位一二三四五六"
#define NAME CJK20 CJK20 CJK20 /* 60 characters, 180 bytes */

static struct trainer_options rank_of(const struct cairn_up_world *world, uint32_t rank) {
    return (struct trainer_options){.socket = world->socket_path,
                                    .job = "job-1",
                                    .rank = rank,
                                    .world_size = 2,
                                    .local_world_size = 2};
}

static const char *text_of(const json_t *json, const char *key) {
    const char *text = json_string_value(json_object_get(json, key));
    return text ? text : "";
}

static void expect_whole(const json_t *json, const char *text_key) {
    EXPECT_EQ_TEXT(text_of(json, "code"), "forbidden");
    EXPECT_EQ_U64(json_integer_value(json_object_get(json, "http_status")), 403);
    EXPECT(!strncmp(text_of(json, "request_id"), "s3fault-", 8));
    const char *text = text_of(json, text_key);
    EXPECT(strstr(text, "shard rank-00000/検査点重量") != NULL);
    EXPECT(strstr(text, "403 AccessDenied") != NULL);
    EXPECT(cairn_utf8_valid(cairn_view_of(text)));
}

static bool save_of_both(struct cairn_trainer ranks[2], uint64_t step,
                         struct trainer_save ret_saves[2]) {
    return trainer_save(&ranks[0], step, (uint32_t)(step % ranks[0].slab_count), 1, 100000,
                        &ret_saves[0]) &&
           trainer_save(&ranks[1], step, (uint32_t)(step % ranks[1].slab_count), 1, 100000,
                        &ret_saves[1]);
}

static void two_ranks_and_a_refused_put(struct cairn_up_world *world,
                                        struct cairn_trainer ranks[2]) {
    for (uint32_t i = 0; i < 2; i++) {
        struct trainer_options options = rank_of(world, i);
        REQUIRE(trainer_open(&ranks[i], &options));
    }
    ranks[0].shard_name = "rank-00000/" NAME ".bin";
    struct trainer_save saves[2];
    REQUIRE(world_s3_rules(world, "op=put key=*.bin nth=1 : status=403/AccessDenied"));
    ranks[1].shard_name = "other";
    REQUIRE(save_of_both(ranks, 1, saves));
    for (uint32_t i = 0; i < 2; i++) {
        CAIRN_AUTO_JSON json_t *verdict =
            trainer_event(&ranks[i], "verdict", saves[i].number, HANG_MS);
        REQUIRE(verdict != NULL);
        EXPECT_EQ_TEXT(text_of(verdict, "state"), i ? "aborted" : "failed");
        expect_whole(verdict, "message");
    }
    const char *path = TEXT("/v1/runs/llm/seven/checkpoints/%s", saves[0].version);
    CAIRN_AUTO_JSON json_t *version = world_get(world, path);
    REQUIRE(version != NULL);
    EXPECT(strstr(text_of(version, "reason"), "rank 0 on node ") != NULL);
    expect_whole(version, "reason");
    for (uint64_t step = 2; step <= 3; step++) {
        REQUIRE(save_of_both(ranks, step, saves));
        EXPECT_STATE(world, saves[0].version, "committed");
    }
}

TEST(a_refused_put_of_a_shard_with_a_long_name_is_told_whole_and_the_rank_goes_on) {
    WORLD_WITH(.s3_rules = "");
    struct cairn_trainer ranks[2] = {{0}, {0}};
    two_ranks_and_a_refused_put(&world, ranks);
    for (uint32_t i = 0; i < 2; i++) cairn_trainer_release(&ranks[i]);
}

/* One rank cannot save; the other has staged and hears why. */
static void expect_told(struct cairn_trainer ranks[2], uint64_t step, json_t *take_message,
                        const char *code) {
    static const struct cairn_view none = {NULL, 0};
    char reason[sizeof(((struct cairn_error *)0)->message)];
    memset(reason, 'x', sizeof(reason)); /* as long as a message of libcairn can be */
    memcpy(reason, "順 no room ", strlen("順 no room "));
    reason[sizeof(reason) - 1] = '\0';
    SAVE(save, &ranks[0], step, (uint32_t)(step % ranks[0].slab_count), 1, 1000);
    json_object_set_new(take_message, "code", json_string(code));
    json_object_set_new(take_message, "reason", json_string(reason));
    json_object_set_new(take_message, "http_status", json_integer(507));
    json_object_set_new(take_message, "request_id", json_string("request-7"));
    EXPECT(trainer_ask(&ranks[1], take_message, none, NULL, 0, NULL) == CAIRN_OK);
    CAIRN_AUTO_JSON json_t *verdict = trainer_event(&ranks[0], "verdict", save.number, HANG_MS);
    REQUIRE(verdict != NULL);
    EXPECT_EQ_TEXT(text_of(verdict, "state"), "aborted");
    EXPECT(strstr(text_of(verdict, "message"), "順 no room") != NULL);
    EXPECT_EQ_U64(json_integer_value(json_object_get(verdict, "http_status")), 507);
    EXPECT_EQ_TEXT(text_of(verdict, "request_id"), "request-7");
    /* One that may be asked again would say that the save is not over. */
    EXPECT_EQ_TEXT(text_of(verdict, "code"), strcmp(code, "timeout") ? code : "checkpoint-aborted");
}

TEST(what_a_trainer_says_of_a_save_it_cannot_make_reaches_the_other_ranks_whole) { /* P9, Q8 */
    WORLD();
    struct cairn_trainer ranks[2] = {{0}, {0}};
    for (uint32_t i = 0; i < 2; i++) {
        struct trainer_options options = rank_of(&world, i);
        REQUIRE(trainer_open(&ranks[i], &options));
    }
    expect_told(ranks, 1, json_pack("{s:s, s:i, s:i}", "t", "count", "step", 1, "n", 1),
                "no-memory");
    BEGUN(save, &ranks[1], 2, 1);
    expect_told(ranks, 2, json_pack("{s:s, s:I}", "t", "fail", "save", (json_int_t)save.number),
                "source-changed");
    REQUIRE(trainer_begin(&ranks[1], 3, 1, &save));
    expect_told(ranks, 3, json_pack("{s:s, s:I}", "t", "fail", "save", (json_int_t)save.number),
                "timeout");
    for (uint32_t i = 0; i < 2; i++) cairn_trainer_release(&ranks[i]);
}

TEST(what_could_not_be_sent_is_failed_and_what_was_not_answered_is_sent_again) { /* Q6, P9 */
    EXPECT_EQ_U64(cairn_up_refusal_of(CAIRN_TOO_LARGE, 0, false), CAIRN_UP_MUST_FAIL);
    EXPECT_EQ_U64(cairn_up_refusal_of(CAIRN_TOO_LARGE, 413, false), CAIRN_UP_MUST_FAIL);
    EACH_OF(enum cairn_code, number, CAIRN_UNAVAILABLE, CAIRN_TIMEOUT, CAIRN_NO_MEMORY,
            CAIRN_PROTOCOL, CAIRN_INVALID)
        EXPECT_EQ_U64(cairn_up_refusal_of(number, 0, false), CAIRN_UP_PASSING);
}
