/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage: how the tests of a claim about saves stage them: in one call, or beside the training.
 *
 * Why:     what holds of a save that was staged in one call holds of one that a thread of the
 *          library copied and sealed; the same tests show both, the latter with CAIRN_TEST_BEHIND
 *          in their environment (a line `ctest: as=... env=CAIRN_TEST_BEHIND=1`).
 * Promise: 1   it returns what cairn_save_stage would, CAIRN_UPLOADER_GONE where the bytes are
 *              copied and no uploader has the seal.
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

#define HANG_MS ((uint32_t)cairn_test_hang_ms())
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

static inline enum cairn_code cairn_test_stage(struct cairn_save *save, struct cairn_error *err) {
    if (!getenv("CAIRN_TEST_BEHIND")) return cairn_save_stage(save, err);
    enum cairn_code code = cairn_save_stage_begin(save, err);
    if (!code) code = cairn_save_fence(save, HANG_MS, err);
    if (code) return code;
    code = cairn_save_wait(save, CAIRN_STAGED, 5000, err); /* it ends where none answers */
    if (code != CAIRN_TIMEOUT && code != CAIRN_UPLOADER_GONE) return code;
    return cairn_fail(err, CAIRN_UPLOADER_GONE, "the bytes are copied; %s", err->message);
}
