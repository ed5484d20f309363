/* SPDX-License-Identifier: Apache-2.0 */
/* Retention policies and label selectors: what is taken, what is refused and in which words. */
#include "api/wire/policy.h"

#include "tests/harness.h"

static struct cairn_error err;

static enum cairn_code read_text(const char *text, struct cairn_policy *ret) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    err = (struct cairn_error){0};
    CAIRN_TRY(cairn_json_parse(cairn_view_of(text), (struct cairn_json_limits){0}, &json, &err));
    return cairn_policy_read(json, "", ret, &err);
}

#define WHOLE                                                                                      \
    "{\"keep\":{\"best\":[{\"count\":2,\"metric\":\"eval/loss\",\"order\":\"min\"},"               \
    "{\"count\":1,\"metric\":\"acc@1\",\"order\":\"max\"}],\"daily\":7,\"every_steps\":1000,"      \
    "\"first\":1,\"hourly\":24,\"labels\":[\"team=nlp,tier!=tmp\",\"kept\"],\"last\":3,"           \
    "\"monthly\":12,\"weekly\":4,\"within_s\":5400}}"

TEST(a_policy_that_was_read_is_printed_as_it_was_given) { /* policy.h#1 */
    struct cairn_policy policy;
    CAIRN_AUTO_JSON json_t *json = NULL;
    CAIRN_AUTO(buf) text = {0}, words = {0};
    REQUIRE_OK(read_text(WHOLE, &policy));
    EXPECT_ALL_U64(policy.within_ms, 90 * 60 * 1000, policy.numbers[CAIRN_KEEP_EVERY_STEPS], 1000);
    EXPECT(!policy.best[0].largest && policy.best[1].largest && !cairn_policy_empty(&policy));
    REQUIRE_OK(cairn_policy_json(&policy, &json, &err));
    REQUIRE_OK(cairn_json_dump(json, &text, &err));
    EXPECT_EQ_TEXT(text.data, WHOLE);
    REQUIRE_OK(cairn_policy_text(&policy, &words, &err));
    EXPECT_EQ_TEXT(words.data,
                   "last 3 OR first 1 OR every 1000 steps OR hourly 24 OR daily 7 OR weekly 4 OR "
                   "monthly 12 OR best 2 by eval/loss (min) OR best 1 by acc@1 (max) OR within "
                   "90min of the newest OR labels team=nlp,tier!=tmp OR labels kept");
}

TEST(a_policy_without_a_rule_says_that_it_removes_nothing) { /* policy.h#3 */
    struct cairn_policy policy;
    REQUIRE_OK(read_text("{\"keep\":{\"last\":null}}", &policy));
    EXPECT(cairn_policy_empty(&policy));
    WITH_OK(buf, words, cairn_policy_text(&policy, &words, &err));
    EXPECT_EQ_TEXT(words.data, "no rule: removes nothing");
}

TEST(a_slip_in_a_policy_is_refused_with_its_pointer_and_what_is_wanted) { /* policy.h#2 */
    EACH(one, FIELDS(const char *text, *said),
         {"{\"keep\":{\"last\":0}}",
          "/keep/last: wanted a whole number from 1 to 1000000; without the rule, leave it out"},
         {"{\"keep\":{\"last\":-1}}", "/keep/last: wanted a whole"},
         {"{\"keep\":{\"daily\":\"7\"}}", "/keep/daily: wanted a whole"},
         {"{\"keep\":{\"daily\":7.0}}", "/keep/daily: wanted a whole"},
         {"{\"keep\":{\"every_steps\":true}}", "/keep/every_steps: wanted a whole"},
         {"{\"keep\":{\"latest\":3}}", "latest"}, {"{\"last\":3}", "keep"},
         {"{}", "/keep: missing"},
         {"{\"keep\":{\"within_s\":\"6h\"}}", "/keep/within_s: wanted whole seconds from 1 on"},
         {"{\"keep\":{\"within_s\":0}}", "/keep/within_s: wanted whole seconds"},
         {"{\"keep\":{\"within_s\":3162240001}}", "/keep/within_s: wanted whole seconds"},
         {"{\"keep\":{\"unmeasured_grace_s\":-1}}",
          "/keep/unmeasured_grace_s: wanted whole seconds from 0 on"},
         {"{\"keep\":{\"within\":\"6h\"}}", "within"},
         {"{\"keep\":{\"best\":[{\"count\":1,\"metric\":\"loss\"}]}}",
          "/keep/best/0/order: missing"},
         {"{\"keep\":{\"best\":[{\"count\":1,\"metric\":\"loss\",\"order\":\"low\"}]}}",
          "/keep/best/0/order: wanted \"min\" or \"max\""},
         {"{\"keep\":{\"best\":[{\"count\":0,\"metric\":\"loss\",\"order\":\"min\"}]}}",
          "/keep/best/0/count: wanted at least 1"},
         {"{\"keep\":{\"best\":[{\"count\":1,\"metric\":\"a b\",\"order\":\"min\"}]}}",
          "/keep/best/0/metric: \"a b\" names no metric"},
         {"{\"keep\":{\"labels\":[\"\"]}}", "/keep/labels/0: wanted a label selector"},
         {"{\"keep\":{\"labels\":[\"a,,b\"]}}", "/keep/labels/0: label selector: a term is empty"},
         {"{\"keep\":{\"labels\":[\"a=b,\"]}}", "/keep/labels/0: label selector"},
         {"{\"keep\":{\"labels\":[\"a==b\"]}}", "two '='"},
         {"{\"keep\":{\"labels\":[\"=b\"]}}", "has no key"},
         {"{\"keep\":{\"labels\":\"a\"}}", "/keep/labels"}) {
        struct cairn_policy policy = {.within_ms = 17};
        EXPECT_CODE(read_text(one->text, &policy), CAIRN_INVALID);
        bool said = strstr(err.message, one->said) != NULL;
        cairn_test_check(said, __FILE__, __LINE__, "%s: \"%s\" does not say \"%s\"", one->text,
                         err.message, one->said);
        EXPECT_EQ_U64(policy.within_ms, 17);
    }
}

TEST(a_best_rule_of_the_command_names_number_metric_and_order) {
    struct cairn_policy_best best;
    REQUIRE_OK(cairn_policy_best_parse(CAIRN_VIEW("3:eval:loss:max"), &best, &err));
    EXPECT(best.count == 3 && best.largest);
    EXPECT_EQ_TEXT(best.metric, "eval:loss");
    EACH_TEXT(text, "", "1", "1:loss", "loss:min", "0:loss:min", "1:loss:low", "1::min",
              "x:loss:min", "1:a b:min")
        EXPECT_CODE(cairn_policy_best_parse(cairn_view_of(text), &best, &err), CAIRN_INVALID);
}

TEST(a_selector_chooses_what_holds_all_its_terms) { /* policy.h#5 */
    CAIRN_AUTO_JSON json_t *labels =
        json_pack("{s:s, s:s, s:s}", "team", "nlp", "note", "", "sum", "a=b");
    EACH(one, FIELDS(const char *selector; bool chosen), {"", true}, {"team=nlp", true},
         {"team=cv", false}, {"team!=cv", true}, {"team!=nlp", false}, {"tier!=tmp", true},
         {"team", true}, {"tier", false}, {"!tier", true}, {"!team", false}, {"note=", true},
         {"team=", false}, {"team=nlp,!tier", true}, {"team=nlp,tier", false}, {"sum=a=b", true},
         {"tea=nlp", false}) {
        struct cairn_selector selector;
        REQUIRE_OK(cairn_selector_parse(cairn_view_of(one->selector), &selector, &err));
        cairn_test_check(cairn_selector_matches(&selector, labels) == one->chosen, __FILE__,
                         __LINE__, "\"%s\" %s", one->selector,
                         one->chosen ? "does not choose" : "chooses");
        EXPECT_EQ_TEXT(selector.text, one->selector); /* policy.h#7 */
    }
    struct cairn_selector none;
    REQUIRE_OK(cairn_selector_parse(CAIRN_VIEW("a"), &none, &err));
    EXPECT(!cairn_selector_matches(&none, NULL));
}

TEST(where_versions_lie_is_read_from_json_and_from_words_and_printed_as_it_was_given) {
    static const char text[] =
        "{\"copies\":[{\"every_steps\":1000,\"store\":\"archive\"},{\"every_steps\":10,\"last\":3,"
        "\"store\":\"main\"}],\"keep\":{}}";
    struct cairn_policy policy, other = {0};
    CAIRN_AUTO_JSON json_t *json = NULL, *again = NULL;
    CAIRN_AUTO(buf) printed = {0}, words = {0}, reprinted = {0};
    REQUIRE_OK(read_text(text, &policy));
    EXPECT(cairn_policy_empty(&policy)); /* it removes nothing */
    REQUIRE_OK(cairn_policy_json(&policy, &json, &err));
    REQUIRE_OK(cairn_json_dump(json, &printed, &err));
    EXPECT_EQ_TEXT(printed.data, text);
    REQUIRE_OK(cairn_policy_text(&policy, &words, &err));
    EXPECT_EQ_TEXT(words.data, "no rule: removes nothing; in archive every 1000 steps; in main "
                               "last 3 OR every 10 steps");
    struct cairn_view given = CAIRN_VIEW("archive:every:1000,main:last:3,main:every:10");
    REQUIRE_OK(cairn_policy_copies_parse(given, &other, &err));
    REQUIRE_OK(cairn_policy_json(&other, &again, &err));
    REQUIRE_OK(cairn_json_dump(again, &reprinted, &err));
    EXPECT_EQ_TEXT(reprinted.data, text);
    EACH_TEXT(
        one, "{\"keep\":{},\"copies\":[{\"store\":\"a\"}]}",
        "{\"keep\":{},\"copies\":[{\"store\":\"A\",\"last\":1}]}",
        "{\"keep\":{},\"copies\":[{\"last\":1}]}",
        "{\"keep\":{},\"copies\":[{\"store\":\"a\",\"last\":1},{\"store\":\"a\",\"last\":2}]}",
        "{\"keep\":{},\"copies\":[{\"store\":\"a\",\"newest\":1}]}")
        EXPECT_CODE(read_text(one, &policy), CAIRN_INVALID);
    EACH_TEXT(name, "a", "a:last", "a:last:0", "a:newest:3", "A:last:3", "a:last:x")
        EXPECT_CODE(cairn_policy_copies_parse(cairn_view_of(name), &other, &err), CAIRN_INVALID);
}

/* Absent is not 0: a policy of a server without the member, and one that is kept in a store, say
 * what they said. */
TEST(a_policy_says_one_partner_copy_or_none_or_nothing_and_is_printed_as_it_was_given) {
    EACH(row, FIELDS(const char *text, *words; bool said; uint32_t copies),
         {"{\"keep\":{\"last\":3}}", "last 3", false, 0},
         {"{\"keep\":{},\"partner_copies\":1}", "no rule: removes nothing; partner copies 1", true,
          1},
         {"{\"keep\":{\"last\":3},\"partner_copies\":0}", "last 3; partner copies 0", true, 0}) {
        struct cairn_policy policy = {.says_partner_copies = true, .partner_copies = 7};
        CAIRN_AUTO_JSON json_t *json = NULL;
        CAIRN_AUTO(buf) printed = {0}, words = {0};
        REQUIRE_OK(read_text(row->text, &policy));
        EXPECT(policy.says_partner_copies == row->said);
        EXPECT_EQ_U64(policy.partner_copies, row->copies);
        REQUIRE_OK(cairn_policy_json(&policy, &json, &err));
        REQUIRE_OK(cairn_json_dump(json, &printed, &err));
        EXPECT_EQ_TEXT(printed.data, row->text);
        REQUIRE_OK(cairn_policy_text(&policy, &words, &err));
        EXPECT_EQ_TEXT(words.data, row->words);
    }
    struct cairn_policy policy;
    EACH_TEXT(name, "2", "-1", "1.0", "true", "\"1\"", "[]") {
        EXPECT_CODE(read_text(TEXT("{\"keep\":{},\"partner_copies\":%s}", name), &policy),
                    CAIRN_INVALID);
        EXPECT_EQ_TEXT(err.message, "/partner_copies: wanted a whole number from 0 to 1");
    }
    struct cairn_policy given = {0};
    REQUIRE_OK(cairn_policy_partner_copies_parse(CAIRN_VIEW("0"), &given, &err));
    EXPECT(given.says_partner_copies && !given.partner_copies);
    REQUIRE_OK(cairn_policy_partner_copies_parse(CAIRN_VIEW("1"), &given, &err));
    EXPECT_EQ_U64(given.partner_copies, 1);
    EXPECT_CODE(cairn_policy_partner_copies_parse(CAIRN_VIEW("2"), &given, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_policy_partner_copies_parse(CAIRN_VIEW("on"), &given, &err), CAIRN_INVALID);
}

/* ---- any policy ---- */

static uint64_t up_to(uint64_t *state, uint64_t most) {
    return cairn_test_random(state) % (most + 1);
}

static bool by_chance(uint64_t *state) {
    return cairn_test_random(state) & 1;
}

static void draw_rules(uint64_t *state, struct cairn_policy *policy) {
    for (size_t i = 0; i < CAIRN_KEEP_NUMBERS; i++)
        if (by_chance(state)) policy->numbers[i] = 1 + up_to(state, 999999);
    if (by_chance(state))
        policy->within_ms = 1000 * (1 + up_to(state, UINT64_C(1) << up_to(state, 31)));
    policy->best_count = (uint32_t)up_to(state, CAIRN_POLICY_BEST_MAX);
    for (uint32_t i = 0; i < policy->best_count; i++) {
        struct cairn_policy_best *best = &policy->best[i];
        best->count = 1 + up_to(state, 999999);
        best->largest = by_chance(state);
        snprintf(best->metric, sizeof(best->metric), "m%u/%.*s", i, (int)up_to(state, 9),
                 "loss@:+-._");
    }
    policy->labels_count = (uint32_t)up_to(state, CAIRN_POLICY_LABELS_MAX);
    for (uint32_t i = 0; i < policy->labels_count; i++) {
        EXPECT(!cairn_selector_parse(cairn_view_of(TEXT("%skey%u%s", by_chance(state) ? "!" : "", i,
                                                        by_chance(state) ? ",team!=nlp" : "")),
                                     &policy->labels[i], &err));
    }
}

static void draw_places(uint64_t *state, struct cairn_policy *policy) {
    policy->copies_count = (uint32_t)up_to(state, CAIRN_POLICY_COPIES_MAX);
    for (uint32_t i = 0; i < policy->copies_count; i++) {
        struct cairn_policy_copies *copies = &policy->copies[i];
        snprintf(copies->store, sizeof(copies->store), "store-%u", i);
        if (by_chance(state)) copies->last = 1 + up_to(state, 999999);
        if (!copies->last || by_chance(state)) copies->every_steps = 1 + up_to(state, 999999);
    }
    policy->says_partner_copies = by_chance(state);
    if (policy->says_partner_copies)
        policy->partner_copies = (uint32_t)up_to(state, CAIRN_PARTNER_COPIES_MAX);
}

static bool same_places(const struct cairn_policy *one, const struct cairn_policy *other) {
    bool same = one->copies_count == other->copies_count &&
                one->says_partner_copies == other->says_partner_copies &&
                one->partner_copies == other->partner_copies;
    for (uint32_t i = 0; same && i < one->copies_count; i++)
        same = !strcmp(one->copies[i].store, other->copies[i].store) &&
               one->copies[i].last == other->copies[i].last &&
               one->copies[i].every_steps == other->copies[i].every_steps;
    return same;
}

static bool same_policy(const struct cairn_policy *one, const struct cairn_policy *other) {
    bool same = !memcmp(one->numbers, other->numbers, sizeof(one->numbers)) &&
                one->within_ms == other->within_ms && one->best_count == other->best_count &&
                one->labels_count == other->labels_count;
    for (uint32_t i = 0; same && i < one->best_count; i++)
        same = one->best[i].count == other->best[i].count &&
               one->best[i].largest == other->best[i].largest &&
               !strcmp(one->best[i].metric, other->best[i].metric);
    for (uint32_t i = 0; same && i < one->labels_count; i++)
        same = !strcmp(one->labels[i].text, other->labels[i].text);
    return same && same_places(one, other);
}

TEST(any_policy_that_is_printed_is_read_again_as_the_same) { /* policy.h#1 */
    uint64_t state = cairn_test_seed();
    for (int i = 0; i < 500; i++) {
        static struct cairn_policy drawn, again; /* tens of KiB each */
        CAIRN_AUTO_JSON json_t *json = NULL;
        CAIRN_AUTO(buf) printed = {0}, words = {0};
        memset(&drawn, 0, sizeof(drawn));
        draw_rules(&state, &drawn);
        draw_places(&state, &drawn);
        REQUIRE_OK(cairn_policy_json(&drawn, &json, &err));
        REQUIRE_OK(cairn_json_dump(json, &printed, &err));
        REQUIRE_OK(read_text(printed.data, &again));
        cairn_test_check(same_policy(&drawn, &again), __FILE__, __LINE__, "read as another one: %s",
                         printed.data);
        REQUIRE_OK(cairn_policy_text(&again, &words, &err));
        EXPECT(!strstr(words.data, "partner copies") == !again.says_partner_copies);
    }
}
