/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* What counts as newest (Q25): trainers, and who puts steps later that are older. */
#include "tests/server/world.h"

/* One save of an attempt of its own, as `cairn put` makes it. */
static enum cairn_code put(struct cairn_world *world, uint64_t after, const char *resume,
                           uint64_t step, struct cairn_hand_save *ret) {
    struct cairn_hand hand;
    CAIRN_TRY(
        hand_open(world, &hand, TEXT("put-%llu", (unsigned long long)after), after, resume, 1));
    return hand_save_all(&hand, step, 1, "new-version", 10, ret);
}

/* As text, "" for none: of latest the step, of a step the attempt. */
static void shown(struct cairn_world *world, const char *ref, const char *member, char ret[32]) {
    CAIRN_AUTO_JSON json_t *now = NULL;
    const char *path = TEXT(WORLD_RUN "/checkpoints/%s", ref);
    *ret = '\0';
    if (!world_call(world, "GET", path, NULL, &now))
        snprintf(ret, 32, "%lld", (long long)json_integer_value(json_object_get(now, member)));
}

#define EXPECT_LATEST(world, text)                                                                 \
    do {                                                                                           \
        char step_[32];                                                                            \
        shown(world, "latest", "step", step_);                                                     \
        EXPECT_EQ_TEXT(step_, text);                                                               \
    } while (0)

/* The steps that a policy would keep and remove, newest first: "900 400 | 100". */
static void planned(struct cairn_world *world, int last, char ret[400]) {
    CAIRN_AUTO_JSON json_t *plan = NULL;
    size_t used = 0;
    *ret = '\0';
    if (world_call(world, "POST", WORLD_RUN "/retention/preview",
                   json_pack("{s:{s:{s:i}}}", "policy", "keep", "last", last), &plan))
        return;
    json_t *versions = json_object_get(plan, "versions"), *one = NULL;
    size_t i = 0;
    bool removes = false;
    json_array_foreach(versions, i, one) {
        bool removed = !strcmp(world_text(one, "fate"), "remove");
        used += (size_t)snprintf(ret + used, 400 - used, "%s%s%lld", i ? " " : "",
                                 removed && !removes ? "| " : "",
                                 (long long)json_integer_value(json_object_get(one, "step")));
        removes |= removed;
    }
}

/* Of the record of an attempt, whether it joins; of a version's, its line. */
static bool stored(struct cairn_world *world, uint64_t attempt, const struct cairn_hand_save *save,
                   uint64_t step, bool *ret_joins, uint64_t *ret_line) {
    const struct cairn_run_name name = {"llm", "seven"};
    const struct cairn_version_place place = {name, step, save->id};
    CAIRN_AUTO(attempt_record) opened = {0};
    CAIRN_AUTO(buf) text = {0}, said = {0};
    struct cairn_record record = {0};
    struct cairn_key key;
    cairn_key_attempt(&name, attempt, &key);
    if (cairn_store_get_small(world->worker, key.text, &text, &world->err) ||
        cairn_attempt_record_decode(cairn_buf_view(&text), &opened, &world->err))
        return false;
    cairn_key_committed(&place, &key);
    if (cairn_store_get_small(world->worker, key.text, &said, &world->err) ||
        cairn_record_decode(cairn_buf_view(&said), &record, &world->err))
        return false;
    *ret_joins = opened.joins;
    *ret_line = record.line;
    return true;
}

#define err world.err /* of the macros */

TEST(the_store_says_of_an_older_step_that_was_put_later_where_it_stands) {
    struct cairn_hand_save saves[3];
    bool joins = false;
    uint64_t line = 0;
    WORLD();
    REQUIRE_OK(put(&world, 0, "latest", 900, &saves[0]));
    REQUIRE_OK(put(&world, 1, "keep", 100, &saves[1]));
    REQUIRE_OK(put(&world, 2, "ahead", 200, &saves[2]));
    REQUIRE(stored(&world, 1, &saves[0], 900, &joins, &line));
    EXPECT(!joins && !line); /* the bytes of older releases */
    REQUIRE(stored(&world, 2, &saves[1], 100, &joins, &line));
    EXPECT(joins);
    EXPECT_EQ_U64(line, 1);
    REQUIRE(stored(&world, 3, &saves[2], 200, &joins, &line));
    EXPECT(!joins && !line);
}

TEST(an_older_step_that_is_put_later_is_not_latest_and_one_that_is_put_ahead_is) {
    struct cairn_hand_save save;
    char attempt[32];
    WORLD();
    REQUIRE_OK(put(&world, 0, "keep", 900, &save));
    EXPECT_LATEST(&world, "900");
    REQUIRE_OK(put(&world, 1, "keep", 100, &save));
    EXPECT_LATEST(&world, "900");
    shown(&world, "100", "line", attempt);
    EXPECT_EQ_TEXT(attempt, "1");
    REQUIRE_OK(put(&world, 2, "ahead", 200, &save));
    EXPECT_LATEST(&world, "200");
    REQUIRE_OK(put(&world, 3, "keep", 150, &save)); /* below what is latest now */
    EXPECT_LATEST(&world, "200");
    REQUIRE_OK(put(&world, 4, "keep", 300, &save)); /* above it */
    EXPECT_LATEST(&world, "300");
}

TEST(a_step_that_is_put_once_more_is_the_newer_one_also_below_latest) {
    struct cairn_hand_save save;
    char attempt[32];
    WORLD();
    REQUIRE_OK(put(&world, 0, "keep", 900, &save));
    REQUIRE_OK(put(&world, 1, "keep", 900, &save));
    shown(&world, "latest", "attempt", attempt);
    EXPECT_EQ_TEXT(attempt, "2");
    REQUIRE_OK(put(&world, 2, "ahead", 100, &save));
    REQUIRE_OK(put(&world, 3, "keep", 500, &save));
    REQUIRE_OK(put(&world, 4, "keep", 100, &save));
    EXPECT_LATEST(&world, "500");
    shown(&world, "100", "attempt", attempt);
    EXPECT_EQ_TEXT(attempt, "5");
}

TEST(a_history_is_put_in_any_order_and_its_highest_step_is_latest) {
    struct cairn_hand_save save;
    char plan[400];
    WORLD();
    EACH_OF(uint64_t, number, 300, 100, 200, 50, 250)
        REQUIRE_OK(put(&world, AT_OF(number), "keep", number, &save));
    EXPECT_LATEST(&world, "300");
    planned(&world, 3, plan);
    EXPECT_EQ_TEXT(plan, "300 250 200 | 100 50");
}

/* The older step's attempt is the newest one, which keeps nothing. */
TEST(a_policy_removes_an_older_step_that_was_put_later) {
    struct cairn_hand_save save;
    char shown_as[32];
    WORLD();
    REQUIRE_OK(put(&world, 0, "keep", 900, &save));
    ASK("PUT", WORLD_RUN "/retention", json_pack("{s:{s:i}}", "keep", "last", 1));
    REQUIRE_OK(put(&world, 1, "keep", 100, &save));
    EXPECT(AWAIT((shown(&world, "100", "step", shown_as), !shown_as[0])));
    EXPECT_LATEST(&world, "900");
}

TEST(a_history_that_is_put_into_a_run_stands_between_its_attempts_by_its_steps) {
    char plan[400];
    JOB(1);
    SAVED(save, 100);
    REQUIRE_OK(hand_save_all(&hand, 400, 1, "error", 10, &save));
    REQUIRE_OK(hand_open(&world, &hand, "j2", 1, "latest", 1));
    REQUIRE_OK(hand_save_all(&hand, 500, 1, "error", 10, &save));
    REQUIRE_OK(put(&world, 2, "keep", 450, &save));
    REQUIRE_OK(put(&world, 3, "keep", 50, &save));
    REQUIRE_OK(put(&world, 4, "keep", 200, &save));
    EXPECT_LATEST(&world, "500");
    planned(&world, 3, plan);
    EXPECT_EQ_TEXT(plan, "500 450 400 | 200 100 50");
}

TEST(what_a_trainer_saves_is_newest_whatever_its_step) {
    JOB(1);
    SAVED(save, 900);
    REQUIRE_OK(hand_open(&world, &hand, "j2", 1, "latest", 1)); /* counts anew */
    REQUIRE_OK(hand_save_all(&hand, 10, 1, "error", 10, &save));
    EXPECT_LATEST(&world, "10");
    REQUIRE_OK(put(&world, 2, "keep", 5, &save));
    EXPECT_LATEST(&world, "10");
    REQUIRE_OK(hand_open(&world, &hand, "j4", 3, "latest", 1));
    REQUIRE_OK(hand_save_all(&hand, 20, 1, "error", 10, &save));
    EXPECT_LATEST(&world, "20");
}

TEST(a_resume_of_latest_supersedes_no_older_step_that_was_put_later) {
    struct cairn_hand hand;
    struct cairn_hand_save newest, save;
    char attempt[32];
    WORLD();
    REQUIRE_OK(put(&world, 0, "keep", 900, &newest));
    REQUIRE_OK(put(&world, 1, "keep", 100, &save));
    REQUIRE_OK(hand_open(&world, &hand, "j3", 2, "latest", 1));
    EXPECT_EQ_TEXT(hand.resumed, newest.id.text);
    shown(&world, "100", "attempt", attempt);
    EXPECT_EQ_TEXT(attempt, "2");
    REQUIRE_OK(hand_open(&world, &hand, "j4", 3, "100", 1));
    EXPECT_EQ_TEXT(hand.resumed, save.id.text);
    EXPECT_LATEST(&world, "100");
    REQUIRE_OK(hand_save_all(&hand, 120, 1, "error", 10, &save));
    EXPECT_LATEST(&world, "120");
}

TEST(latest_goes_to_the_next_one_by_that_order_and_comes_back) {
    struct cairn_hand_save newest, older, save;
    WORLD();
    REQUIRE_OK(put(&world, 0, "keep", 800, &older));
    REQUIRE_OK(put(&world, 1, "keep", 900, &newest));
    REQUIRE_OK(put(&world, 2, "keep", 100, &save));
    ASK("DELETE", newest.path, NULL);
    EXPECT_LATEST(&world, "800");
    ASK("DELETE", older.path, NULL);
    EXPECT_LATEST(&world, "100");
    ASK("POST", TEXT("%s/undelete", newest.path), NULL);
    EXPECT_LATEST(&world, "900");
}

TEST(of_equal_metrics_the_newest_is_best_and_not_the_older_step_that_was_put_later) {
    struct cairn_hand_save saves[3];
    char step[32], attempt[32];
    WORLD();
    REQUIRE_OK(put(&world, 0, "keep", 900, &saves[0]));
    REQUIRE_OK(put(&world, 1, "keep", 100, &saves[1]));
    REQUIRE_OK(put(&world, 2, "keep", 100, &saves[2]));
    ASK("PUT", WORLD_RUN "/retention",
        json_pack("{s:{s:[{s:s, s:i, s:s}]}}", "keep", "best", "metric", "loss", "count", 1,
                  "order", "min"));
    REQUIRE_OK(cairn_rest_set_if_match(world.rest, "*", &err));
    for (size_t i = 0; i < CAIRN_COUNT(saves); i++)
        REQUIRE_OK(world_call(&world, "PATCH", saves[i].path,
                              json_pack("{s:{s:f}}", "metrics", "loss", 1.5), NULL));
    REQUIRE_OK(cairn_rest_set_if_match(world.rest, NULL, &err));
    shown(&world, "best", "step", step);
    EXPECT_EQ_TEXT(step, "900");
    ASK("DELETE", saves[0].path, NULL);
    shown(&world, "best", "attempt", attempt);
    EXPECT_EQ_TEXT(attempt, "3");
}
