/* SPDX-License-Identifier: Apache-2.0 */
/* One truth, any split. */
#include "tests/client/model.h"

#include "tests/client/stage.h"

#define ROWS MODEL_ROWS
#define COLUMNS MODEL_COLUMNS

void cairn_model_fill(struct cairn_model *model, uint64_t seed) {
    for (size_t i = 0; i < ROWS * COLUMNS; i++) model->flat[i] = (uint16_t)cairn_test_random(&seed);
    for (size_t i = 0; i < ROWS * COLUMNS; i++) model->box[i] = (uint32_t)cairn_test_random(&seed);
    for (size_t i = 0; i < 1000; i++) model->same[i] = (double)i + (double)(seed % 97);
}

/* The share of rank `rank`: [*ret_first, *ret_first + *ret_count) of `all`. */
static void share(uint64_t all, uint32_t rank, uint32_t ranks, uint64_t *ret_first,
                  uint64_t *ret_count) {
    *ret_first = all * rank / ranks;
    *ret_count = all * (rank + 1) / ranks - *ret_first;
}

static enum cairn_code describe_sharded(const struct cairn_model *model, struct cairn_save *save,
                                        uint32_t rank, uint32_t ranks, uint32_t *columns,
                                        struct cairn_error *err) {
    static const uint64_t shape[2] = {ROWS, COLUMNS};
    uint64_t start, count, corner[2] = {0}, extent[2] = {ROWS};
    share(ROWS * COLUMNS, rank, ranks, &start, &count);
    share(COLUMNS, rank, ranks, &corner[1], &extent[1]);
    for (size_t row = 0; row < ROWS; row++)
        memcpy(columns + row * extent[1], model->box + row * COLUMNS + corner[1], extent[1] * 4);
    const struct cairn_tensor_piece flat =
        SIZED(cairn_tensor_piece, .name = "flat", .dtype = "BF16", .dimension_count = 2,
              .shape = shape, .kind = CAIRN_SHARDED, .form = CAIRN_FLAT, .start = &start,
              .count = &count, .source = model->flat + start, .source_bytes = count * 2);
    const struct cairn_tensor_piece box =
        SIZED(cairn_tensor_piece, .name = "box", .dtype = "U32", .dimension_count = 2,
              .shape = shape, .kind = CAIRN_SHARDED, .form = CAIRN_BOX, .start = corner,
              .count = extent, .source = columns, .source_bytes = ROWS * extent[1] * 4);
    CAIRN_TRY(cairn_save_tensor(save, &flat, err));
    return cairn_save_tensor(save, &box, err);
}

static enum cairn_code describe_rest(const struct cairn_model *model, struct cairn_save *save,
                                     const uint32_t *rank, struct cairn_error *err) {
    static const uint64_t shape[2] = {ROWS, COLUMNS}, thousand[1] = {1000}, one[1] = {1}, none[1];
    const struct cairn_tensor_piece pieces[] = {
        SIZED(cairn_tensor_piece, .name = "same", .dtype = "F64", .dimension_count = 1,
              .shape = thousand, .kind = CAIRN_REPLICATED, .source = model->same,
              .source_bytes = sizeof model->same),
        SIZED(cairn_tensor_piece, .name = "own", .dtype = "U32", .dimension_count = 1, .shape = one,
              .kind = CAIRN_LOCAL, .source = rank, .source_bytes = 4),
        SIZED(cairn_tensor_piece, .name = "empty", .dtype = "F32", .dimension_count = 1,
              .shape = none, .kind = CAIRN_REPLICATED),
        SIZED(cairn_tensor_piece, .name = "tied", .dtype = "BF16", .dimension_count = 2,
              .shape = shape, .kind = CAIRN_ALIAS, .alias_of = "flat"),
    };
    for (size_t i = 0; i < CAIRN_COUNT(pieces); i++)
        CAIRN_TRY(cairn_save_tensor(save, &pieces[i], err));
    return cairn_save_raw(save, "rng.bin", rank, sizeof *rank, err);
}

/* Sources must live until the save is staged: one set per rank. */
static uint32_t columns_of[8][ROWS * COLUMNS];
static uint32_t rank_of[8];

enum cairn_code cairn_model_describe(const struct cairn_model *model, struct cairn_save *save,
                                     uint32_t rank, uint32_t ranks, struct cairn_error *err) {
    rank_of[rank % 8] = rank;
    CAIRN_TRY(describe_sharded(model, save, rank, ranks, columns_of[rank % 8], err));
    return describe_rest(model, save, &rank_of[rank % 8], err);
}

enum cairn_code cairn_model_save(const struct cairn_model *model, struct cairn_session *session,
                                 uint64_t step, uint32_t rank, uint32_t ranks,
                                 struct cairn_save **ret, struct cairn_error *err) {
    struct cairn_save *save = NULL;
    CAIRN_TRY(cairn_save_begin(session, step, NULL, &save, err));
    enum cairn_code code = cairn_model_describe(model, save, rank, ranks, err);
    if (!code) code = cairn_test_stage(save, err);
    if (code)
        cairn_save_free(save);
    else
        *ret = save;
    return code;
}

/* ---- reading ---- */

struct wanted {
    uint16_t whole[ROWS * COLUMNS], part[ROWS * COLUMNS];
    uint32_t rows[ROWS * COLUMNS], inner[20 * 1500], own, raw;
    double same[1000];
};

static enum cairn_code compare(bool equal, const char *what, struct cairn_error *err) {
    return equal ? CAIRN_OK
                 : cairn_fail(err, CAIRN_CORRUPT, "%s differs from what was saved", what);
}

static enum cairn_code read_all(const struct cairn_model *model, struct cairn_restore *restore,
                                uint32_t rank, uint32_t ranks, uint32_t saved_by,
                                struct wanted *got, struct cairn_error *err) {
    uint64_t part, part_count, first[2] = {0}, rows[2] = {0, COLUMNS};
    const uint64_t corner[2] = {30, 700}, extent[2] = {20, 1500};
    char shard[32];
    share(ROWS * COLUMNS, rank, ranks, &part, &part_count);
    share(ROWS, rank, ranks, &first[0], &rows[0]);
    snprintf(shard, sizeof shard, "rank-%05" PRIu32 "/rng.bin", rank % saved_by);
    const struct cairn_read reads[] = {
        SIZED(cairn_read, .tensor = "tied", .into = got->whole, .into_bytes = sizeof got->whole),
        SIZED(cairn_read, .tensor = "flat", .form = CAIRN_FLAT, .start = &part,
              .count = &part_count, .into = got->part, .into_bytes = part_count * 2),
        SIZED(cairn_read, .tensor = "box", .form = CAIRN_BOX, .start = first, .count = rows,
              .into = got->rows, .into_bytes = rows[0] * COLUMNS * 4),
        SIZED(cairn_read, .tensor = "box", .form = CAIRN_BOX, .start = corner, .count = extent,
              .into = got->inner, .into_bytes = sizeof got->inner),
        SIZED(cairn_read, .tensor = "own", .local_rank_of = rank % saved_by, .into = &got->own,
              .into_bytes = 4),
        SIZED(cairn_read, .tensor = "same", .into = got->same, .into_bytes = sizeof got->same),
        SIZED(cairn_read, .tensor = "empty"),
        SIZED(cairn_read, .shard = shard, .bytes = UINT64_MAX, .into = &got->raw, .into_bytes = 4),
    };
    CAIRN_TRY(cairn_restore_read(restore, reads, CAIRN_COUNT(reads), 0, err));
    CAIRN_TRY(compare(!memcmp(got->whole, model->flat, sizeof got->whole), "tied", err));
    CAIRN_TRY(compare(!memcmp(got->part, model->flat + part, part_count * 2), "flat", err));
    CAIRN_TRY(compare(!memcmp(got->rows, model->box + first[0] * COLUMNS, rows[0] * COLUMNS * 4),
                      "rows of box", err));
    for (size_t row = 0; row < 20; row++)
        CAIRN_TRY(compare(
            !memcmp(got->inner + row * 1500, model->box + (30 + row) * COLUMNS + 700, 1500 * 4),
            "inner box", err));
    CAIRN_TRY(compare(!memcmp(got->same, model->same, sizeof got->same), "same", err));
    CAIRN_TRY(compare(got->own == rank % saved_by, "own", err));
    return compare(got->raw == rank % saved_by, "rng.bin", err);
}

enum cairn_code cairn_model_check(const struct cairn_model *model, struct cairn_restore *restore,
                                  uint32_t rank, uint32_t ranks, uint32_t saved_by,
                                  struct cairn_error *err) {
    CAIRN_AUTO_HEAP struct wanted *got = calloc(1, sizeof *got);
    if (!got) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory");
    return read_all(model, restore, rank, ranks, saved_by, got, err);
}
