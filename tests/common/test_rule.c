/* SPDX-License-Identifier: Apache-2.0 */
#include "common/hooks.h"

#include "tests/harness.h"

TEST(every_rule_holds_where_none_was_taken_out) {
    EXPECT(CAIRN_RULE(Q41));
    EXPECT(CAIRN_RULE(Q24));
}

#ifdef CAIRN_CRASHPOINTS
TEST(a_rule_that_was_taken_out_does_not_hold_and_the_others_do) {
    REQUIRE(cairn_rule_take_out("Q41,Q55"));
    EXPECT(!CAIRN_RULE(Q41));
    EXPECT(!CAIRN_RULE(Q55));
    EXPECT(CAIRN_RULE(Q42));
    REQUIRE(cairn_rule_take_out(""));
    EXPECT(CAIRN_RULE(Q41));
    REQUIRE(cairn_rule_take_out(NULL));
}

TEST(a_name_that_is_no_rule_is_refused_and_changes_nothing) {
    REQUIRE(cairn_rule_take_out("Q42"));
    EXPECT(!cairn_rule_take_out("Q41,Q99"));
    EXPECT(!cairn_rule_take_out("Q4"));
    EXPECT(CAIRN_RULE(Q41));
    EXPECT(!CAIRN_RULE(Q42));
    REQUIRE(cairn_rule_take_out(NULL));
}

TEST(the_variable_takes_a_rule_out) {
    REQUIRE(setenv("CAIRN_WITHOUT", "Q44", 1) == 0);
    REQUIRE(cairn_rule_take_out(NULL));
    EXPECT(!CAIRN_RULE(Q44));
    EXPECT(CAIRN_RULE(Q45));
    REQUIRE(unsetenv("CAIRN_WITHOUT") == 0);
    REQUIRE(cairn_rule_take_out(NULL));
    EXPECT(CAIRN_RULE(Q44));
}
#endif
