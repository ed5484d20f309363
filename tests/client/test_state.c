/* SPDX-License-Identifier: Apache-2.0 */
/* The table of a save in libcairn, by itself. */
#include "client/save/save.h"
#include "tests/harness.h"

#define PHASES (CAIRN_CLIENT_PHASE_FAILED + 1)
#define EVENTS (CAIRN_CLIENT_EVENT_ANSWER + 1)

TEST(a_phase_and_an_event_stand_in_one_row_at_most) {
    static const struct {
        enum cairn_client_phase from;
        enum cairn_client_event event;
    } rows[] = {
#define MOVE(from, event, to, reached, why) {CAIRN_CLIENT_PHASE_##from, CAIRN_CLIENT_EVENT_##event},
#include "client/save/state.def"
#undef MOVE
    };
    uint32_t seen[PHASES][EVENTS] = {0};
    for (size_t i = 0; i < CAIRN_COUNT(rows); i++)
        EXPECT_EQ_U64(++seen[rows[i].from][rows[i].event], 1);
    for (size_t phase = 0; phase < PHASES; phase++) /* whatever was said before, a commit counts */
        EXPECT(phase == CAIRN_CLIENT_PHASE_COMMITTED || seen[phase][CAIRN_CLIENT_EVENT_COMMIT]);
}

TEST(v28_a_cancelled_save_ends_committed_when_the_commit_came_first) { /* Q40, Q44 */
    struct cairn_client_save_state save = {0};
    EXPECT(cairn_client_save_state_move(&save, CAIRN_CLIENT_EVENT_COPY));
    EXPECT(cairn_client_save_state_move(&save, CAIRN_CLIENT_EVENT_SEAL));
    EXPECT(cairn_client_save_state_move(&save, CAIRN_CLIENT_EVENT_FAIL));
    EXPECT(cairn_client_save_state_move(&save, CAIRN_CLIENT_EVENT_CANCEL));
    EXPECT(cairn_client_save_state_is_over(&save));
    EXPECT(!cairn_client_save_state_move(&save, CAIRN_CLIENT_EVENT_SEAL));
    EXPECT(cairn_client_save_state_move(&save, CAIRN_CLIENT_EVENT_COMMIT));
    EXPECT(save.reached == CAIRN_CLIENT_REACHED_COMMITTED);
    EXPECT(!cairn_client_save_state_move(&save, CAIRN_CLIENT_EVENT_FAIL));
}

TEST(random_words_of_an_uploader_never_take_a_milestone_back) {
    uint64_t seed = 88172645463325252u;
    for (int round = 0; round < 2000; round++) {
        struct cairn_client_save_state save = {0};
        for (int i = 0; i < 20; i++) {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            struct cairn_client_save_state before = save;
            (void)cairn_client_save_state_move(&save, (enum cairn_client_event)(seed % EVENTS));
            EXPECT(save.reached >= before.reached);
            EXPECT(before.phase != CAIRN_CLIENT_PHASE_COMMITTED || save.phase == before.phase);
            EXPECT((save.reached == CAIRN_CLIENT_REACHED_COMMITTED) ==
                   (save.phase == CAIRN_CLIENT_PHASE_COMMITTED));
        }
    }
}
