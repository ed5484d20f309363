/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage: how the tests of a claim about saves stage them: in one call, or beside the training.
 *
 * Why:     what holds of a save that was staged in one call holds of one that a thread of the
 *          library copied and sealed; the same tests show both, the latter with CAIRN_TEST_BEHIND
 *          in their environment (a line `ctest: as=... env=CAIRN_TEST_BEHIND=1`).
 * Promise: 1   it returns what cairn_save_stage would: CAIRN_OK where the bytes are copied, and
 *              either an uploader has the seal or the save says that it is away.
 * Limits:  none of its own.
 * Threads: as cairn_save_stage.
 * Next:    include/cairn/stage.h.
 */
#pragma once

#include <cairn/find.h>
#include <cairn/inspect.h>
#include <cairn/items.h>
#include <cairn/pieces.h>
#include <cairn/poll.h>
#include <cairn/reads.h>
#include <cairn/runs.h>
#include <cairn/stage.h>

#include "tests/harness.h"

/* A struct of libcairn's with its size: SIZED(cairn_read, .tensor = "w", .into = found). */
#define SIZED(type, ...) ((struct type){.size = sizeof(struct type), __VA_ARGS__})

/* Handles that are freed at their scope's end: AUTO_SAVE *first = NULL, *second = NULL; */
#define AUTO_SAVE __attribute__((cleanup(cairn_test_save_release))) struct cairn_save
#define AUTO_RESTORE __attribute__((cleanup(cairn_test_restore_release))) struct cairn_restore
#define AUTO_READING __attribute__((cleanup(cairn_test_reading_release))) struct cairn_reading
#define AUTO_LIST __attribute__((cleanup(cairn_test_list_release))) struct cairn_checkpoint
#define RELEASE_OF(name, type, free_it)                                                            \
    static inline void cairn_test_##name##_release(type **handle) {                                \
        free_it(*handle);                                                                          \
    }
RELEASE_OF(save, struct cairn_save, cairn_save_free)
RELEASE_OF(restore, struct cairn_restore, cairn_restore_free)
RELEASE_OF(reading, struct cairn_reading, cairn_read_free)
RELEASE_OF(list, struct cairn_checkpoint, cairn_list_free)

/* Waits until the milestone or a final error; CAIRN_UPLOADER_GONE and CAIRN_TIMEOUT are neither. */
static inline enum cairn_code
cairn_test_reach(struct cairn_save *save, enum cairn_milestone milestone, struct cairn_error *err) {
    enum cairn_code code;
    (void)COMES((code = cairn_save_wait(save, milestone, 2000, err)) != CAIRN_UPLOADER_GONE &&
                code != CAIRN_TIMEOUT);
    return code;
}

/* Copied, and no uploader has it yet. */
static inline bool cairn_test_away(const struct cairn_save *save) {
    struct cairn_save_status status;
    cairn_save_status(save, &status);
    return status.away;
}

static inline enum cairn_code cairn_test_stage(struct cairn_save *save, struct cairn_error *err) {
    if (!getenv("CAIRN_TEST_BEHIND")) return cairn_save_stage(save, err);
    enum cairn_code code = cairn_save_stage_begin(save, err);
    bool over = false;
    if (!code) code = cairn_save_fence(save, HANG_MS, err);
    if (code) return code;
    (void)COMES(
        (over = cairn_save_over(save, NULL) != 0,
         code = cairn_save_wait(save, CAIRN_STAGED, 50, err),
         over || (code != CAIRN_TIMEOUT && code != CAIRN_UPLOADER_GONE) || cairn_test_away(save)));
    return !over && cairn_test_away(save) ? CAIRN_OK : code;
}
/* As above, while no uploader is there. */
#define EXPECT_STAGED_AWAY(save)                                                                   \
    do {                                                                                           \
        EXPECT_CODE(cairn_test_stage((save), &err), CAIRN_OK);                                     \
        EXPECT(cairn_test_away(save));                                                             \
    } while (0)
