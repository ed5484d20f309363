/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: seconds=5 */
/* ctest: as=client_behind env=CAIRN_TEST_BEHIND=1 */
/* K07: a trainer whose memory is short loses a save, and never its process. */
#include "tests/client/rank.h"
#include "tests/torture/torture.h"

static enum cairn_code described(struct cairn_save *save, struct cairn_error *err) {
    static const float numbers[64] = {1, 2, 3};
    CAIRN_TRY(rank_add(save, "weights", numbers, CAIRN_COUNT(numbers), err));
    CAIRN_TRY(cairn_save_raw(save, "state", "0123456789", 10, err));
    return cairn_test_stage(save, err);
}

/* A session of its own each time: its memory in the uploader is not given back by the fake. */
static enum cairn_code opened_and_saved(void *context, struct cairn_error *err) {
    const struct cairn_rank *rank = context;
    struct cairn_open_options options = rank_options(rank);
    struct cairn_session *session = NULL;
    struct cairn_save *save = NULL;
    struct cairn_error late = {0};
    CAIRN_TRY(cairn_open(&options, &session, NULL, err));
    enum cairn_code code = cairn_save_begin(session, 1, NULL, &save, err);
    if (!code) code = described(save, err);
    if (!code) code = cairn_save_wait(save, CAIRN_STAGED, 0, err);
    cairn_save_free(save);
    enum cairn_code closed = cairn_close(session, &late);
    EXPECT(closed == CAIRN_OK || code != CAIRN_OK);
    return code;
}

static enum cairn_code listed(void *context, struct cairn_error *err) {
    struct cairn_checkpoint *list = NULL;
    size_t count = 0;
    CAIRN_TRY(cairn_list(context, &list, &count, err));
    cairn_list_free(list);
    return CAIRN_OK;
}

TEST(k07_a_save_for_which_there_is_no_memory_fails_and_its_trainer_goes_on, err) { /* P9 */
    WITH_OK(rank, rank, rank_uploader(&rank, 1, &err));
    cairn_torture("a save", opened_and_saved, &rank);
}

TEST(k07_a_list_for_which_there_is_no_memory_fails, err) {
    WITH_OK(rank, rank, rank_open(&rank, 1, &err));
    cairn_torture("a list", listed, rank.session);
}
