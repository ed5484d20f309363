/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model: the tensors of a small training job, how its ranks save them, and how others read them.
 *
 * Why:     the same content is saved by any number of ranks and read by any other number, so that
 *          every way of splitting is compared with one truth.
 * Promise: check reads whole tensors, flat slices, rows, inner boxes, aliases, replicated, local,
 *          raw and empty ones, and returns what went wrong first.
 * Limits:  up to 8 ranks.
 * Threads: main thread.
 * Next:    tests/client/test_restore.c, tests/client/test_world.c.
 */
#pragma once

#include <cairn/cairn.h>

#include "common/error.h"

#define MODEL_ROWS 64
#define MODEL_COLUMNS 3000
#define MODEL_RANK_BYTES (4 * CAIRN_MIB)

struct cairn_model {
    uint16_t flat[MODEL_ROWS * MODEL_COLUMNS]; /* "flat": each rank a flat range */
    uint32_t box[MODEL_ROWS * MODEL_COLUMNS];  /* "box": each rank some of the columns */
    double same[1000];                         /* "same": replicated */
};
void cairn_model_fill(struct cairn_model *model, uint64_t seed);
/* Pieces of rank `rank` of `ranks`: flat, box, same, own (local), empty, tied (alias of flat), and
 * the raw shard rng.bin. */
enum cairn_code cairn_model_describe(const struct cairn_model *model, struct cairn_save *save,
                                     uint32_t rank, uint32_t ranks,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Begin, describe, stage. CAIRN_OK with a save: its bytes are copied. */
enum cairn_code cairn_model_save(const struct cairn_model *model, struct cairn_session *session,
                                 uint64_t step, uint32_t rank, uint32_t ranks,
                                 struct cairn_save **ret, struct cairn_error *err) CAIRN_MUST_USE;
/* What reader `rank` of `ranks` wants, compared with the truth. saved_by: ranks of the save. */
enum cairn_code cairn_model_check(const struct cairn_model *model, struct cairn_restore *restore,
                                  uint32_t rank, uint32_t ranks, uint32_t saved_by,
                                  struct cairn_error *err) CAIRN_MUST_USE;
