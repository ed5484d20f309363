/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_strided copy|staged rows|turned --bytes N
 *
 * An F32 matrix of which a rank saves the left half of the columns (rows) or the transpose
 * (turned). copy only moves the elements to a slab in row-major order, in tiles; staged also sums
 * each block, like cairn_save_stage with one thread.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/documents/manifest.h"
#include "bench/measure.h"
#include "client/save/copy.h"
#include "common/memory.h"

struct matrix {
    struct cairn_slab slab;
    uint8_t *source;
    uint32_t *blocks;
    uint64_t bytes; /* staged bytes */
    struct cairn_strided strided;
    struct cairn_client_piece piece;
    bool staged;
};

static enum cairn_code ignore(void *owner, uint64_t bytes, struct cairn_error *err) {
    (void)owner;
    (void)bytes;
    (void)err;
    return CAIRN_OK;
}

static enum cairn_code once(void *owner, struct bench_result *ret, struct cairn_error *err) {
    struct matrix *matrix = owner;
    const struct cairn_client_run run = {matrix->source, 0, matrix->bytes, &matrix->piece};
    const struct cairn_client_copy copy = {.runs = &run,
                                           .run_count = 1,
                                           .bytes = matrix->bytes,
                                           .to = matrix->slab.data,
                                           .blocks = matrix->blocks,
                                           .threads = 1,
                                           .copied = ignore};
    ret->bytes = matrix->bytes;
    if (matrix->staged) return cairn_client_copy(&copy, err);
    cairn_strided_gather(&matrix->strided, matrix->source, 0, matrix->slab.data,
                         (size_t)matrix->bytes);
    return CAIRN_OK;
}

/* Square, sides a multiple of 16. */
static bool describe(struct matrix *matrix, bool turned, uint64_t bytes, uint64_t *ret_held) {
    uint64_t side = (uint64_t)sqrt((double)(turned ? bytes : 2 * bytes) / 4) / 16 * 16;
    const uint64_t count[2] = {side, turned ? side : side / 2};
    const int64_t stride[2] = {turned ? 1 : (int64_t)side, turned ? (int64_t)side : 1};
    matrix->bytes = count[0] * count[1] * 4;
    *ret_held = side * side * 4;
    matrix->piece =
        (struct cairn_client_piece){.kind = CAIRN_TENSOR_SHARDED, .strided = &matrix->strided};
    return side && cairn_strided_make(4, 2, count, stride, &matrix->strided);
}

int main(int count, char **values) {
    static struct matrix matrix;
    struct cairn_error error = {0};
    uint64_t held = 0, bytes = bench_flag_number(count, values, "--bytes", CAIRN_MIB * 1024);
    bool turned = count > 2 && !strcmp(values[2], "turned");
    matrix.staged = count > 1 && !strcmp(values[1], "staged");
    if (!describe(&matrix, turned, bytes, &held)) return 2;
    matrix.source = bench_memory(held);
    matrix.blocks = calloc((size_t)cairn_block_count(matrix.bytes), sizeof *matrix.blocks);
    if (!matrix.source || !matrix.blocks ||
        cairn_slab_create("bench-strided", matrix.bytes, false, &matrix.slab, &error) != CAIRN_OK) {
        fprintf(stderr, "bench_strided: %s\n", error.message);
        return 2;
    }
    bench_pattern(matrix.slab.data, matrix.bytes);
    return bench_loop(once, &matrix);
}
