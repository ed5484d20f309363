/* SPDX-License-Identifier: Apache-2.0 */
/* The words of what can be waited for. */
#include "api/wire/words.h"

#include "tests/harness.h"

TEST(every_state_is_read_back_and_only_promoted_has_a_store) {
    for (int i = 0; i < CAIRN_AWAITED_COUNT; i++) {
        struct cairn_awaited what = {0};
        struct cairn_error err = {0};
        struct cairn_view word = cairn_awaited_word((enum cairn_awaited_state)i);
        bool of_store = i == CAIRN_AWAITED_PROMOTED;
        EXPECT_CODE(cairn_awaited_parse(TEXT("%.*s%s", (int)word.size, (const char *)word.data,
                                             of_store ? ":a-1" : ""),
                                        &what, &err),
                    CAIRN_OK);
        EXPECT_EQ_U64(what.state, (uint64_t)i);
        EXPECT_EQ_TEXT(what.store, of_store ? "a-1" : "");
        EXPECT_CODE(cairn_awaited_parse(TEXT("%.*s%s", (int)word.size, (const char *)word.data,
                                             of_store ? "" : ":a-1"),
                                        &what, &err),
                    CAIRN_INVALID);
    }
}

TEST(a_word_that_is_none_is_refused_with_all_that_are) {
    EACH_TEXT(text, "", ":", "Begun", "begu", "begunn", "begun ", "promoted:", "promoted:-",
              "promoted:a:b", "promoted:A") {
        struct cairn_awaited what = {0};
        struct cairn_error err = {0};
        EXPECT_CODE(cairn_awaited_parse(text, &what, &err), CAIRN_INVALID);
        EXPECT(strchr(text, ':') || strstr(err.message, "begun, decided, staged, durable"));
    }
}

TEST(outcomes_are_read_back_and_others_are_no_answer, err) {
    enum cairn_outcome found = CAIRN_OUTCOME_NOT_YET;
    EACH_OF(enum cairn_outcome, number, CAIRN_OUTCOME_NOT_YET, CAIRN_OUTCOME_REACHED,
            CAIRN_OUTCOME_NEVER) {
        EXPECT_CODE(cairn_outcome_parse(cairn_outcome_text(number), &found, &err), CAIRN_OK);
        EXPECT_EQ_U64(found, number);
    }
    EXPECT_CODE(cairn_outcome_parse("", &found, &err), CAIRN_PROTOCOL);
}

TEST(only_the_eight_listed_moves_exist) {
    unsigned moves = 0;
    for (int from = CAIRN_STATE_OPEN; from <= CAIRN_STATE_GONE; from++) {
        for (int event = CAIRN_EVENT_COMMIT; event <= CAIRN_EVENT_TAKE_OVER; event++) {
            enum cairn_state to = CAIRN_STATE_OPEN;
            if (!cairn_state_after((enum cairn_state)from, (enum cairn_event)event, &to)) continue;
            moves++;
            EXPECT(to != CAIRN_STATE_OPEN);
        }
    }
    EXPECT_EQ_U64(moves, 8);
    enum cairn_state to;
    EXPECT(cairn_state_after(CAIRN_STATE_OPEN, CAIRN_EVENT_COMMIT, &to));
    EXPECT_EQ_U64(to, CAIRN_STATE_COMMITTED);
    EXPECT(!cairn_state_after(CAIRN_STATE_ABORTING, CAIRN_EVENT_COMMIT, &to));
    EXPECT(!cairn_state_after(CAIRN_STATE_COMMITTED, CAIRN_EVENT_GIVE_UP, &to));
}

TEST(states_have_one_text_each) {
    for (int i = CAIRN_STATE_OPEN; i <= CAIRN_STATE_GONE; i++) {
        enum cairn_state back;
        const char *text = cairn_state_text((enum cairn_state)i);
        REQUIRE(cairn_state_parse(cairn_view_of(text), &back));
        EXPECT_EQ_U64(back, i);
    }
    enum cairn_state state;
    EXPECT(!cairn_state_parse(CAIRN_VIEW("Open"), &state));
    EXPECT(!cairn_state_parse(CAIRN_VIEW("opening"), &state));
    EXPECT(!cairn_state_parse(CAIRN_VIEW(""), &state));
}
