/* SPDX-License-Identifier: Apache-2.0 */
#include "api/wire/words.h"

#include "tests/harness.h"

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
