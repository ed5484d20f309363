/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* Memory for saves that is told late, or grows: real server, real uploader. */
#include <inttypes.h>

#include "tests/client/team.h"

#define MIB(count) ((count)*CAIRN_MIB)

static uint8_t source[MIB(24)];

static void fill(uint8_t first) {
    for (size_t i = 0; i < sizeof source; i++) source[i] = (uint8_t)(first + i * 31 + i / 4096);
}

static enum cairn_code save(struct cairn_team *team, uint32_t rank, uint64_t step, uint64_t bytes,
                            struct cairn_error *err) {
    cairn_save_free(team->saves[rank]);
    team->saves[rank] = NULL;
    CAIRN_TRY(cairn_save_begin(team->sessions[rank], step, NULL, &team->saves[rank], err));
    CAIRN_TRY(cairn_save_raw(team->saves[rank], "x", source, bytes, err));
    return cairn_save_stage(team->saves[rank], err);
}

/* Rank 0's shard of that version is what `source` holds. */
static bool is_source(struct cairn_team *team, const char *ref, uint64_t bytes,
                      struct cairn_error *err) {
    CAIRN_AUTO_HEAP uint8_t *found = malloc(bytes);
    const struct cairn_read read = SIZED(cairn_read, .shard = "rank-00000/x", .bytes = UINT64_MAX,
                                         .into = found, .into_bytes = bytes);
    return found && team_restore(team, ref, err) == CAIRN_OK &&
           cairn_restore_read(team->restore, &read, 1, 0, err) == CAIRN_OK &&
           !memcmp(found, source, bytes);
}

/* A world of its own budget, whose ranks open with so many bytes. */
static enum cairn_code open_team(struct cairn_team *ret, const char *budget, uint32_t ranks,
                                 uint64_t bytes, struct cairn_error *err) {
    const struct cairn_world_options options = {.nodes = 1, .budget = budget};
    ret->ranks = ranks;
    CAIRN_TRY(cairn_world_open(&options, &ret->world, err));
    for (uint32_t rank = 0; rank < ranks; rank++) {
        struct cairn_open_options own = team_options(ret, rank);
        own.bytes = bytes;
        CAIRN_TRY(cairn_open(&own, &ret->sessions[rank], NULL, err));
    }
    return CAIRN_OK;
}
#define OPEN(budget, ranks, bytes)                                                                 \
    struct cairn_error err = {0};                                                                  \
    CAIRN_AUTO(team) team = {0};                                                                   \
    if (!cairn_world_possible()) SKIP("cairn-server and cairn-uploader are not built here");       \
    fill(1);                                                                                       \
    REQUIRE_OK(open_team(&team, (budget), (ranks), (bytes), &err))

TEST(a_session_that_was_opened_without_bytes_reserves_them_before_its_first_save) {
    OPEN(NULL, 1, 0);
    EXPECT_CODE(save(&team, 0, 1, MIB(3), &err), CAIRN_TOO_LARGE);
    REQUIRE_OK(cairn_session_reserve(team.sessions[0], MIB(3), 0, 0, &err));
    REQUIRE_OK(save(&team, 0, 2, MIB(3), &err));
    REQUIRE_OK(team_commit(&team, &err));
    EXPECT(is_source(&team, "2", MIB(3), &err));
}

TEST(memory_grows_between_two_saves_and_neither_is_harmed) { /* Q13, Q14 */
    OPEN(NULL, 1, MIB(4));
    struct cairn_save *first = NULL;
    REQUIRE_OK(save(&team, 0, 1, MIB(4), &err));
    first = team.saves[0];
    team.saves[0] = NULL;
    REQUIRE_OK(cairn_session_reserve(team.sessions[0], MIB(24), 0, 0, &err)); /* waits for it */
    REQUIRE_OK(save(&team, 0, 2, MIB(24), &err));
    REQUIRE_OK(save(&team, 0, 3, MIB(24), &err));
    REQUIRE_OK(team_commit(&team, &err));
    REQUIRE_OK(cairn_save_wait(first, CAIRN_COMMITTED, 0, &err));
    cairn_save_free(first);
    EXPECT(is_source(&team, "1", MIB(4), &err));
    EXPECT(is_source(&team, "3", MIB(24), &err));
    /* It may shrink as well. */
    REQUIRE_OK(cairn_session_reserve(team.sessions[0], MIB(1), 0, 0, &err));
    EXPECT_CODE(save(&team, 0, 4, MIB(24), &err), CAIRN_TOO_LARGE);
    REQUIRE_OK(save(&team, 0, 5, MIB(1), &err));
    REQUIRE_OK(team_commit(&team, &err));
}

TEST(ranks_grow_one_after_the_other_where_old_and_new_do_not_fit_together) { /* Q13 */
    OPEN("64MiB", 2, MIB(8)); /* 2 generations of 10 MiB each: 40 MiB */
    for (uint32_t rank = 0; rank < 2; rank++)
        REQUIRE_OK(cairn_session_reserve(team.sessions[rank], MIB(20), 0, 0, &err));
    for (uint32_t rank = 0; rank < 2; rank++) REQUIRE_OK(save(&team, rank, 1, MIB(20), &err));
    REQUIRE_OK(team_commit(&team, &err));
    EXPECT(is_source(&team, "1", MIB(20), &err));
}

TEST(what_does_not_fit_is_refused_with_the_numbers_and_less_may_be_asked_for) { /* Q13 */
    OPEN("64MiB", 1, MIB(4));
    EXPECT_FAILS(cairn_session_reserve(team.sessions[0], MIB(100), 0, 0, &err), CAIRN_NO_MEMORY,
                 "memory_budget");
    EXPECT_CODE(cairn_session_reserve(team.sessions[0], MIB(8), MIB(4), 0, &err), CAIRN_INVALID);
    REQUIRE_OK(cairn_session_reserve(team.sessions[0], MIB(16), 0, 0, &err));
    REQUIRE_OK(save(&team, 0, 2, MIB(16), &err));
    REQUIRE_OK(team_commit(&team, &err));
}

TEST(memory_that_a_save_needs_is_not_taken_from_it) {
    OPEN(NULL, 1, MIB(4));
    REQUIRE_OK(cairn_save_begin(team.sessions[0], 1, NULL, &team.saves[0], &err));
    EXPECT_FAILS(cairn_session_reserve(team.sessions[0], MIB(8), 0, 200, &err), CAIRN_TIMEOUT,
                 "still needs the memory");
    REQUIRE_OK(cairn_save_raw(team.saves[0], "x", source, MIB(4), &err));
    REQUIRE_OK(team_finish(&team, &err));
    EXPECT(is_source(&team, "1", MIB(4), &err));
}

TEST(an_uploader_that_comes_back_is_offered_the_memory_that_was_reserved) { /* Q41 */
    OPEN(NULL, 1, MIB(1));
    REQUIRE_OK(cairn_session_reserve(team.sessions[0], MIB(12), 0, 0, &err));
    cairn_world_server_kill(&team.world);
    REQUIRE_OK(save(&team, 0, 1, MIB(12), &err));
    REQUIRE_OK(cairn_world_uploader_again(&team.world, 0, &err));
    REQUIRE_OK(cairn_world_server_start(&team.world, &err));
    REQUIRE_OK(team_commit(&team, &err));
    EXPECT(is_source(&team, "1", MIB(12), &err));
    /* And memory is reserved with that one, too. */
    REQUIRE_OK(cairn_session_reserve(team.sessions[0], MIB(16), 0, 0, &err));
    REQUIRE_OK(save(&team, 0, 2, MIB(16), &err));
    REQUIRE_OK(team_commit(&team, &err));
}

/* ---- beside the training ---- */

TEST(a_save_begins_when_the_memory_that_is_reserved_beside_it_is_there) {
    OPEN(NULL, 1, 0);
    for (uint64_t step = 1; step <= 3; step++) { /* it grows */
        struct cairn_save_status status;
        REQUIRE_OK(cairn_session_reserve_begin(team.sessions[0], MIB(8 * step), 0, &err));
        REQUIRE_OK(save(&team, 0, step, MIB(8 * step), &err));
        cairn_save_status(team.saves[0], &status);
        EXPECT(status.stall_us >= status.wait_us);
        REQUIRE_OK(team_commit(&team, &err));
    }
    EXPECT(is_source(&team, "3", MIB(24), &err));
    EXPECT_CODE(cairn_session_problem(team.sessions[0], &err), CAIRN_OK);
}

/* KiB of this field of all slabs that are mapped here. */
static uint64_t slabs_have(const char *field) {
    char line[300];
    bool slab = false;
    uint64_t kib = 0, one;
    FILE *file = fopen("/proc/self/smaps", "re");
    while (file && fgets(line, sizeof line, file)) {
        if (strchr("0123456789abcdef", line[0])) slab = strstr(line, "memfd:cairn-slab") != NULL;
        if (slab && !strncmp(line, field, strlen(field)) &&
            sscanf(line + strlen(field), ": %" SCNu64, &one) == 1)
            kib += one;
    }
    if (file) fclose(file);
    return kib;
}

/* Else the first copy into each half of the memory would meet a fault at each page. */
TEST(memory_that_is_reserved_beside_the_training_is_mapped_whole_before_the_first_copy) {
    OPEN(NULL, 1, 0);
    AUTO_SAVE *first = NULL;
    REQUIRE_OK(cairn_session_reserve_begin(team.sessions[0], MIB(24), 0, &err));
    REQUIRE_OK(cairn_save_begin(team.sessions[0], 1, NULL, &first, &err));
    EXPECT(slabs_have("Size") >= 2 * 24 * 1024); /* its two halves */
    EXPECT_EQ_U64(slabs_have("Rss"), slabs_have("Size"));
}

TEST(a_rank_that_saves_little_takes_one_unit_of_memory_for_a_save) {
    OPEN(NULL, 1, 256 * CAIRN_KIB);
    EXPECT_EQ_U64(slabs_have("Size"), 2 * 2048); /* one for each of two saves */
    REQUIRE_OK(save(&team, 0, 1, 256 * CAIRN_KIB, &err));
    REQUIRE_OK(team_commit(&team, &err));
    EXPECT(is_source(&team, "1", 256 * CAIRN_KIB, &err));
    REQUIRE_OK(cairn_session_reserve(team.sessions[0], 257 * CAIRN_KIB, 0, 0, &err));
    EXPECT_EQ_U64(slabs_have("Size"), 2 * 4096);
}

TEST(memory_that_is_not_to_be_had_beside_the_training_is_said_by_the_session_and_the_stage) {
    OPEN("32MiB", 1, 0);
    enum cairn_code code = CAIRN_OK;
    REQUIRE_OK(cairn_session_reserve_begin(team.sessions[0], MIB(500), 0, &err));
    AWAIT((code = cairn_session_problem(team.sessions[0], &err)) != CAIRN_OK);
    EXPECT_FAILS(code, CAIRN_UNAVAILABLE, "budget");
    const char *named = strstr(err.message, " rank 0: ");
    EXPECT(named && !strstr(named + 1, " rank 0: ")); /* once */
    EXPECT_FAILS(save(&team, 0, 1, MIB(3), &err), CAIRN_NO_MEMORY, "there is no memory to stage");
    REQUIRE_OK(cairn_session_reserve_begin(team.sessions[0], MIB(3), 0, &err)); /* with less */
    REQUIRE_OK(save(&team, 0, 2, MIB(3), &err));
    REQUIRE_OK(team_commit(&team, &err));
    EXPECT(is_source(&team, "2", MIB(3), &err));
}

TEST(a_session_is_closed_while_memory_is_reserved_beside_the_training) {
    OPEN(NULL, 1, 0);
    REQUIRE_OK(cairn_session_reserve_begin(team.sessions[0], MIB(24), 0, &err));
    EXPECT_CODE(cairn_close(team.sessions[0], &err), CAIRN_OK);
    team.sessions[0] = NULL;
}
