/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* Saves whose bytes do not follow the training (client/save/stager.h), with real daemons. */
#include "tests/client/team.h"

#define ELEMENTS (3 * CAIRN_MIB)

/* One tensor; `step` tells its bytes where it does not stand still. The last MiB are frozen. */
static enum cairn_code save(struct cairn_team *team, uint8_t *bytes, uint64_t step, uint8_t fill,
                            struct cairn_error *err) {
    const uint64_t shape = ELEMENTS;
    const struct cairn_tensor_piece piece =
        SIZED(cairn_tensor_piece, .name = "w", .dtype = "U8", .dimension_count = 1, .shape = &shape,
              .kind = CAIRN_LOCAL, .source = bytes, .source_bytes = ELEMENTS);
    memset(bytes, fill, ELEMENTS - CAIRN_MIB);
    CAIRN_TRY(team_begin(team, step, NULL, err));
    CAIRN_TRY(cairn_save_tensor(team->saves[0], &piece, err));
    return team_finish(team, err);
}

TEST(a_save_of_what_the_last_one_held_is_a_warning_once_for_a_row_of_them) {
    TEAM(1);
    CAIRN_AUTO_HEAP uint8_t *bytes = calloc(1, ELEMENTS);
    REQUIRE(bytes != NULL);
    EACH(one, FIELDS(uint8_t fill; bool warns), {1, false}, {2, false}, {2, false}, {3, false},
         {4, false}, {5, false}, {6, false}, {6, true}, {6, false}, {7, false}, {8, false},
         {8, true}) {
        if (AT(one) == 3) { /* what stood still once is watched no more: a session of its own */
            cairn_team_leave(&team);
            struct cairn_open_options options = team_options(&team, 0);
            options.job = "job-2";
            REQUIRE_OK(cairn_open(&options, &team.sessions[0], NULL, &err));
        }
        REQUIRE_OK(save(&team, bytes, AT(one) + 1, one->fill, &err));
        enum cairn_code code = cairn_session_warning(team.sessions[0], &err);
        enum cairn_code wanted = one->warns ? CAIRN_UNAVAILABLE : CAIRN_OK;
        cairn_test_check(code == wanted, __FILE__, __LINE__, "save %zu: %s", AT(one) + 1,
                         code ? err.message : "no warning");
        if (!code) continue;
        const char *step = TEXT("step %zu may be stale", AT(one) + 1);
        EXPECT(strstr(err.message, step) != NULL);
        EXPECT_CODE(cairn_session_warning(team.sessions[0], &err), CAIRN_OK);
    }
}

TEST(the_same_step_saved_again_is_not_stale) {
    TEAM(1);
    CAIRN_AUTO_HEAP uint8_t *bytes = calloc(1, ELEMENTS);
    REQUIRE(bytes != NULL);
    for (uint8_t step = 1; step <= 4; step++) REQUIRE_OK(save(&team, bytes, step, step, &err));
    const struct cairn_save_options again =
        SIZED(cairn_save_options, .on_exists = CAIRN_EXISTS_NEW_VERSION);
    const uint64_t shape = ELEMENTS;
    const struct cairn_tensor_piece piece =
        SIZED(cairn_tensor_piece, .name = "w", .dtype = "U8", .dimension_count = 1, .shape = &shape,
              .kind = CAIRN_LOCAL, .source = bytes, .source_bytes = ELEMENTS);
    REQUIRE_OK(team_begin(&team, 4, &again, &err));
    REQUIRE_OK(cairn_save_tensor(team.saves[0], &piece, &err));
    REQUIRE_OK(team_finish(&team, &err));
    EXPECT_CODE(cairn_session_warning(team.sessions[0], &err), CAIRN_OK);
}
