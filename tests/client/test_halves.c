/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* Copy and seal apart, and slots that the caller writes: real server, real uploader. */
#include "tests/client/team.h"

#define ELEMENTS 300000 /* of F32: more than one block of checksums */

static float weights[ELEMENTS], moments[ELEMENTS];

static void fill(float *to, float first) {
    for (size_t i = 0; i < ELEMENTS; i++) to[i] = first + (float)i;
}

static struct cairn_tensor_piece local(const char *name, const void *source, uint64_t bytes,
                                       const uint64_t *shape) {
    return SIZED(cairn_tensor_piece, .name = name, .dtype = bytes % 4 ? "U8" : "F32",
                 .dimension_count = 1, .shape = shape, .kind = CAIRN_LOCAL, .source = source,
                 .source_bytes = bytes);
}

static enum cairn_code add(struct cairn_save *save, const char *name, const float *source,
                           struct cairn_error *err) {
    const uint64_t shape = ELEMENTS;
    const struct cairn_tensor_piece piece = local(name, source, sizeof weights, &shape);
    return cairn_save_tensor(save, &piece, err);
}

/* Is tensor `name` of rank 0 what starts with `first`? */
static bool is(struct cairn_team *team, const char *name, float first, struct cairn_error *err) {
    static float found[ELEMENTS];
    const struct cairn_read read = {
        .size = sizeof read, .tensor = name, .into = found, .into_bytes = sizeof found};
    if (cairn_restore_read(team->restore, &read, 1, 0, err)) return false;
    for (size_t i = 0; i < ELEMENTS; i++)
        if (found[i] != first + (float)i) return false;
    return true;
}

TEST(what_is_added_after_the_copy_is_committed_with_the_rest) {
    TEAM(2);
    static const char note[] = "all ranks have written";
    char found[sizeof note] = "";
    for (uint32_t rank = 0; rank < 2; rank++) {
        fill(weights, (float)rank);
        if (!rank) REQUIRE_OK(team_begin(&team, 5, NULL, &err));
        REQUIRE_OK(add(team.saves[rank], "w", weights, &err));
        REQUIRE_OK(cairn_save_copy(team.saves[rank], &err));
    }
    fill(weights, -1); /* they may be changed now */
    fill(moments, 7);
    REQUIRE_OK(add(team.saves[0], "late", moments, &err));
    REQUIRE_OK(cairn_save_raw(team.saves[0], "metadata", note, sizeof note, &err));
    REQUIRE_OK(cairn_save_set_meta(team.saves[0], "{\"kind\":\"late\"}", NULL, &err));
    for (uint32_t rank = 0; rank < 2; rank++) REQUIRE_OK(cairn_save_seal(team.saves[rank], &err));
    REQUIRE_OK(team_commit_and_restore(&team, &err));
    EXPECT(is(&team, "w", 0, &err));
    EXPECT(is(&team, "late", 7, &err));
    const struct cairn_read raw =
        SIZED(cairn_read, .shard = "rank-00000/metadata", .bytes = UINT64_MAX, .into = found,
              .into_bytes = sizeof found);
    REQUIRE_OK(cairn_restore_read(team.restore, &raw, 1, 0, &err));
    EXPECT_EQ_TEXT(found, note);
    EXPECT_EQ_TEXT(cairn_restore_labels(team.restore), "{\"kind\":\"late\"}");
}

TEST(a_rank_that_copied_nothing_may_add_all_of_it_before_its_seal) {
    TEAM(1);
    REQUIRE_OK(team_begin(&team, 5, NULL, &err));
    REQUIRE_OK(cairn_save_copy(team.saves[0], &err));
    fill(moments, 3);
    REQUIRE_OK(add(team.saves[0], "w", moments, &err));
    REQUIRE_OK(cairn_save_stage(team.saves[0], &err)); /* what is left of it */
    REQUIRE_OK(team_commit_and_restore(&team, &err));
    EXPECT(is(&team, "w", 3, &err));
}

TEST(an_uploader_that_dies_between_copy_and_seal_costs_nothing) { /* Q15, Q17 */
    TEAM(1);
    fill(weights, 1);
    fill(moments, 2);
    REQUIRE_OK(team_begin(&team, 5, NULL, &err));
    REQUIRE_OK(add(team.saves[0], "w", weights, &err));
    REQUIRE_OK(cairn_save_copy(team.saves[0], &err));
    REQUIRE_OK(cairn_world_uploader_again(&team.world, 0, &err));
    fill(weights, -1);
    REQUIRE_OK(add(team.saves[0], "late", moments, &err));
    EXPECT_CODE(cairn_save_seal(team.saves[0], &err), CAIRN_OK); /* away: the session seals it */
    REQUIRE_OK(team_commit_and_restore(&team, &err));
    EXPECT(is(&team, "w", 1, &err));
    EXPECT(is(&team, "late", 2, &err));
}

TEST(an_uploader_that_dies_after_it_heard_of_late_shards_has_them_in_its_journal) { /* Q17 */
    TEAM(1);
    fill(weights, 1);
    fill(moments, 2);
    cairn_world_server_kill(&team.world);
    REQUIRE_OK(team_begin(&team, 5, NULL, &err));
    REQUIRE_OK(add(team.saves[0], "w", weights, &err));
    REQUIRE_OK(cairn_save_copy(team.saves[0], &err));
    REQUIRE_OK(add(team.saves[0], "late", moments, &err));
    REQUIRE_OK(cairn_save_seal(team.saves[0], &err));
    REQUIRE_OK(cairn_world_uploader_again(&team.world, 0, &err));
    REQUIRE_OK(cairn_world_server_start(&team.world, &err));
    REQUIRE_OK(team_commit_and_restore(&team, &err));
    EXPECT(is(&team, "w", 1, &err));
    EXPECT(is(&team, "late", 2, &err));
}

TEST(calls_in_another_order_are_refused_and_change_nothing) {
    TEAM(1);
    fill(weights, 1);
    int fd = fileno(stdin);
    struct cairn_save_slot slot;
    REQUIRE_OK(team_begin(&team, 5, NULL, &err));
    struct cairn_save *save = team.saves[0];
    EXPECT_CODE(cairn_save_seal(save, &err), CAIRN_INVALID);
    REQUIRE_OK(add(save, "w", weights, &err));
    REQUIRE_OK(cairn_save_copy(save, &err));
    EXPECT_CODE(cairn_save_copy(save, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_save_wait(save, CAIRN_STAGED, 0, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_save_slot_at(save, 0, &slot, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_save_file(save, "f", fd, 0, &err), CAIRN_INVALID);
    REQUIRE_OK(cairn_save_seal(save, &err));
    EXPECT_CODE(cairn_save_seal(save, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_save_stage(save, &err), CAIRN_INVALID);
    REQUIRE_OK(team_commit_and_restore(&team, &err));
    EXPECT(is(&team, "w", 1, &err));
}

TEST(a_copied_save_that_is_freed_or_cancelled_gives_its_memory_back) {
    TEAM(1);
    fill(weights, 1);
    for (uint64_t step = 1; step <= 4; step++) { /* more than there are generations */
        REQUIRE_OK(team_begin(&team, step, NULL, &err));
        REQUIRE_OK(add(team.saves[0], "w", weights, &err));
        REQUIRE_OK(cairn_save_copy(team.saves[0], &err));
        if (step % 2) REQUIRE_OK(cairn_save_cancel(team.saves[0], "enough", &err));
        if (step % 2) EXPECT_CODE(cairn_save_seal(team.saves[0], &err), CAIRN_CANCELLED);
    }
    REQUIRE_OK(team_begin(&team, 5, NULL, &err));
    REQUIRE_OK(add(team.saves[0], "w", weights, &err));
    REQUIRE_OK(team_finish(&team, &err));
}

TEST(slots_are_written_by_the_caller_and_saved_with_the_rest) {
    TEAM(1);
    const uint64_t shape = ELEMENTS, none = 0;
    struct cairn_save_slot slot;
    fill(weights, 1);
    REQUIRE_OK(team_begin(&team, 5, NULL, &err));
    struct cairn_save *save = team.saves[0];
    struct cairn_tensor_piece piece = local("mine", NULL, 0, &shape);
    piece.by_caller = 1;
    piece.dtype = "F32";
    REQUIRE_OK(cairn_save_tensor(save, &piece, &err));
    REQUIRE_OK(add(save, "w", weights, &err));
    piece.name = "nothing";
    piece.shape = &none;
    REQUIRE_OK(cairn_save_tensor(save, &piece, &err));
    piece.source = weights;
    EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_INVALID);
    REQUIRE_OK(cairn_save_slot_at(save, 1, &slot, &err));
    EXPECT_EQ_TEXT(slot.name, "nothing");
    EXPECT_EQ_U64(slot.bytes, 0);
    EXPECT_CODE(cairn_save_slot_at(save, 2, &slot, &err), CAIRN_NOT_FOUND);
    REQUIRE_OK(cairn_save_slot_at(save, 0, &slot, &err));
    EXPECT_EQ_U64(slot.bytes, sizeof weights);
    fill(slot.to, 9);
    EXPECT_CODE(add(save, "between", weights, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_save_stage(save, &err), CAIRN_INVALID); /* it was not said to be written */
    REQUIRE_OK(cairn_save_written(save, 0, &err));
    REQUIRE_OK(team_finish_and_restore(&team, &err));
    EXPECT(is(&team, "mine", 9, &err));
    EXPECT(is(&team, "w", 1, &err));
}
