/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtype: element types, and how many bytes a tensor of them takes.
 *
 * Why:     tables store their numbers, safetensors and DCP their names; both come from one list.
 * Promise: 1   a number that was stored once keeps its meaning.
 *          2   a size is exact, or it is refused: no overflow, no element that ends inside a byte.
 * Limits:  CAIRN_DIMENSIONS_MAX dimensions (api/table.h).
 * Threads: stateless.
 * Next:    api/table.h.
 */
#pragma once

#include "common/base.h"

/* Element types, safetensors' names; width in bits. Numbers are stored: never change one. */
/* clang-format off */
#define CAIRN_DTYPES(X)                                                                            \
    X(BOOL, 1, 8) X(U8, 2, 8) X(I8, 3, 8) X(F8_E5M2, 4, 8) X(F8_E4M3, 5, 8) X(F8_E8M0, 6, 8)       \
    X(I16, 7, 16) X(U16, 8, 16) X(F16, 9, 16) X(BF16, 10, 16) X(I32, 11, 32) X(U32, 12, 32)        \
    X(F32, 13, 32) X(F64, 14, 64) X(I64, 15, 64) X(U64, 16, 64) X(C64, 17, 64)                     \
    X(F4, 18, 4) X(F6_E2M3, 19, 6) X(F6_E3M2, 20, 6) X(F8_E4M3FNUZ, 21, 8) X(F8_E5M2FNUZ, 22, 8)
/* clang-format on */
enum cairn_table_dtype {
    CAIRN_DTYPE_NONE = 0,
#define CAIRN_DTYPE_ENUM(name, number, bits) CAIRN_DTYPE_##name = number,
    CAIRN_DTYPES(CAIRN_DTYPE_ENUM)
#undef CAIRN_DTYPE_ENUM
};
const char *cairn_dtype_text(unsigned dtype); /* "BF16"; NULL if unknown */
bool cairn_dtype_parse(struct cairn_view text, unsigned *ret);
/* Those names, and "fp64", "fp32", "bf16", "fp16", as people and `cairn export` say it. */
bool cairn_dtype_parse_word(struct cairn_view text, unsigned *ret);
unsigned cairn_dtype_bits(unsigned dtype); /* 0 if unknown */

/* product(shape) and its bytes; false on overflow or when sub-byte elements do not fill bytes. */
bool cairn_tensor_size(unsigned dtype, unsigned dimension_count, const uint64_t *shape,
                       uint64_t *ret_elements, uint64_t *ret_bytes);
