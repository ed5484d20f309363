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

#include <stdlib.h>

#include <cairn/stage.h>

#include "common/error.h"

static inline enum cairn_code cairn_test_stage(struct cairn_save *save, struct cairn_error *err) {
    if (!getenv("CAIRN_TEST_BEHIND")) return cairn_save_stage(save, err);
    enum cairn_code code = cairn_save_stage_begin(save, err);
    if (!code) code = cairn_save_fence(save, 0, err);
    if (code) return code;
    code = cairn_save_wait(save, CAIRN_STAGED, 0, err);
    if (code != CAIRN_TIMEOUT && code != CAIRN_UPLOADER_GONE) return code;
    return cairn_fail(err, CAIRN_UPLOADER_GONE, "the bytes are copied; %s", err->message);
}
