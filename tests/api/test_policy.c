/* SPDX-License-Identifier: Apache-2.0 */
/* Retention policies and label selectors: what is taken, what is refused and in which words. */
#include "api/policy.h"

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
    "\"monthly\":12,\"weekly\":4,\"within\":\"90min\"}}"

TEST(a_policy_that_was_read_is_printed_as_it_was_given) { /* policy.h#1 */
    struct cairn_policy policy;
    CAIRN_AUTO_JSON json_t *json = NULL;
    CAIRN_AUTO(buf) text = {0}, words = {0};
    REQUIRE_OK(read_text(WHOLE, &policy));
    EXPECT_EQ_U64(policy.within_ms, 90 * 60 * 1000);
    EXPECT_EQ_U64(policy.numbers[CAIRN_KEEP_EVERY_STEPS], 1000);
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
    CAIRN_AUTO(buf) words = {0};
    REQUIRE_OK(read_text("{\"keep\":{\"last\":null}}", &policy));
    EXPECT(cairn_policy_empty(&policy));
    REQUIRE_OK(cairn_policy_text(&policy, &words, &err));
    EXPECT_EQ_TEXT(words.data, "no rule: removes nothing");
}

TEST(a_slip_in_a_policy_is_refused_with_its_pointer_and_what_is_wanted) { /* policy.h#2 */
    static const struct {
        const char *text, *said;
    } slips[] = {
        {"{\"keep\":{\"last\":0}}",
         "/keep/last: wanted a whole number from 1 to 1000000; without the rule, leave it out"},
        {"{\"keep\":{\"last\":-1}}", "/keep/last: wanted a whole"},
        {"{\"keep\":{\"daily\":\"7\"}}", "/keep/daily: wanted a whole"},
        {"{\"keep\":{\"daily\":7.0}}", "/keep/daily: wanted a whole"},
        {"{\"keep\":{\"every_steps\":true}}", "/keep/every_steps: wanted a whole"},
        {"{\"keep\":{\"latest\":3}}", "latest"},
        {"{\"last\":3}", "keep"},
        {"{}", "/keep: missing"},
        {"{\"keep\":{\"within\":\"6\"}}", "/keep/within: wanted a duration as \"6h\""},
        {"{\"keep\":{\"within\":\"0h\"}}", "/keep/within: wanted a duration"},
        {"{\"keep\":{\"within\":6}}", "/keep/within: wanted a duration"},
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
        {"{\"keep\":{\"labels\":\"a\"}}", "/keep/labels"},
    };
    for (size_t i = 0; i < CAIRN_COUNT(slips); i++) {
        struct cairn_policy policy = {.within_ms = 17};
        EXPECT_CODE(read_text(slips[i].text, &policy), CAIRN_INVALID);
        bool said = strstr(err.message, slips[i].said) != NULL;
        cairn_test_check(said, __FILE__, __LINE__, "%s: \"%s\" does not say \"%s\"", slips[i].text,
                         err.message, slips[i].said);
        EXPECT_EQ_U64(policy.within_ms, 17);
    }
}

TEST(a_best_rule_of_the_command_names_number_metric_and_order) {
    struct cairn_policy_best best;
    REQUIRE_OK(cairn_policy_best_parse(CAIRN_VIEW("3:eval:loss:max"), &best, &err));
    EXPECT(best.count == 3 && best.largest);
    EXPECT_EQ_TEXT(best.metric, "eval:loss");
    static const char *const slips[] = {"",         "1",          "1:loss",
                                        "loss:min", "0:loss:min", "1:loss:low",
                                        "1::min",   "x:loss:min", "1:a b:min"};
    for (size_t i = 0; i < CAIRN_COUNT(slips); i++)
        EXPECT_CODE(cairn_policy_best_parse(cairn_view_of(slips[i]), &best, &err), CAIRN_INVALID);
}

TEST(a_selector_chooses_what_holds_all_its_terms) { /* selector.h#1 */
    static const struct {
        const char *selector;
        bool chosen;
    } cases[] = {
        {"", true},
        {"team=nlp", true},
        {"team=cv", false},
        {"team!=cv", true},
        {"team!=nlp", false},
        {"tier!=tmp", true},
        {"team", true},
        {"tier", false},
        {"!tier", true},
        {"!team", false},
        {"note=", true},
        {"team=", false},
        {"team=nlp,!tier", true},
        {"team=nlp,tier", false},
        {"sum=a=b", true},
        {"tea=nlp", false},
    };
    CAIRN_AUTO_JSON json_t *labels =
        json_pack("{s:s, s:s, s:s}", "team", "nlp", "note", "", "sum", "a=b");
    for (size_t i = 0; i < CAIRN_COUNT(cases); i++) {
        struct cairn_selector selector;
        REQUIRE_OK(cairn_selector_parse(cairn_view_of(cases[i].selector), &selector, &err));
        cairn_test_check(cairn_selector_matches(&selector, labels) == cases[i].chosen, __FILE__,
                         __LINE__, "\"%s\" %s", cases[i].selector,
                         cases[i].chosen ? "does not choose" : "chooses");
        EXPECT_EQ_TEXT(selector.text, cases[i].selector); /* selector.h#3 */
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
    static const char *const bad[] = {
        "{\"keep\":{},\"copies\":[{\"store\":\"a\"}]}",
        "{\"keep\":{},\"copies\":[{\"store\":\"A\",\"last\":1}]}",
        "{\"keep\":{},\"copies\":[{\"last\":1}]}",
        "{\"keep\":{},\"copies\":[{\"store\":\"a\",\"last\":1},{\"store\":\"a\",\"last\":2}]}",
        "{\"keep\":{},\"copies\":[{\"store\":\"a\",\"newest\":1}]}"};
    for (size_t i = 0; i < CAIRN_COUNT(bad); i++)
        EXPECT_CODE(read_text(bad[i], &policy), CAIRN_INVALID);
    static const char *const wrong[] = {"a",          "a:last",   "a:last:0",
                                        "a:newest:3", "A:last:3", "a:last:x"};
    for (size_t i = 0; i < CAIRN_COUNT(wrong); i++)
        EXPECT_CODE(cairn_policy_copies_parse(cairn_view_of(wrong[i]), &other, &err),
                    CAIRN_INVALID);
}
