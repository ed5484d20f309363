/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtype: element types, and the size of tensors.
 *
 * Why:     tables store numbers of types, safetensors and DCP their names; both use one list.
 *          Readers of safetensors refuse types they do not know, and a shard with a tensor of such
 *          a type must still be a file that they open.
 * Promise: 1   a number that was ever stored keeps its meaning.
 *          2   a size is exact or refused: no overflow, no element that ends inside a byte.
 *          3   the type shown for an element type has the same bytes, and safetensors knows it.
 * Limits:  CAIRN_DIMENSIONS_MAX dimensions.
 * Threads: stateless.
 * Next:    api/table/table.h.
 */
#pragma once

#include "common/base.h"

#define CAIRN_DIMENSIONS_MAX 8

/* Element types: name, number, width in bits, and the type shown in safetensors' header: itself, if
 * safetensors has it. Numbers are stored: never change one. docs/format.md, "Rank table", gives the
 * names in torch and DLPack. */
/* clang-format off */
#define CAIRN_DTYPES(X)                                                                            \
    X(BOOL, 1, 8, BOOL) X(U8, 2, 8, U8) X(I8, 3, 8, I8)                                            \
    X(F8_E5M2, 4, 8, F8_E5M2) X(F8_E4M3, 5, 8, F8_E4M3) X(F8_E8M0, 6, 8, F8_E8M0)                  \
    X(I16, 7, 16, I16) X(U16, 8, 16, U16) X(F16, 9, 16, F16) X(BF16, 10, 16, BF16)                 \
    X(I32, 11, 32, I32) X(U32, 12, 32, U32) X(F32, 13, 32, F32)                                    \
    X(F64, 14, 64, F64) X(I64, 15, 64, I64) X(U64, 16, 64, U64) X(C64, 17, 64, C64)                \
    X(F4, 18, 4, F4) X(F6_E2M3, 19, 6, F6_E2M3) X(F6_E3M2, 20, 6, F6_E3M2)                         \
    X(F8_E4M3FNUZ, 21, 8, F8_E4M3FNUZ) X(F8_E5M2FNUZ, 22, 8, F8_E5M2FNUZ)                          \
    /* Complex numbers: real and imaginary part, as torch.view_as_real has them. */                \
    X(C32, 23, 32, F16) X(C128, 24, 128, F64)                                                      \
    X(I128, 25, 128, U8) X(U128, 26, 128, U8) X(F128, 27, 128, U8)                                 \
    X(F8_E3M4, 28, 8, U8) X(F8_E4M3_IEEE, 29, 8, U8) X(F8_E4M3B11FNUZ, 30, 8, U8)                  \
    /* Packed, several elements in a byte. */                                                      \
    X(I4, 31, 4, U8) X(U4, 32, 4, U8) X(I2, 33, 2, U8) X(U2, 34, 2, U8)                            \
    X(I1, 35, 1, U8) X(U1, 36, 1, U8) X(QU4X2, 37, 4, U8) X(QU2X4, 38, 2, U8)                      \
    /* torch's one-byte elements that pack several numbers. */                                     \
    X(F4X2, 39, 8, U8) X(BITS1X8, 40, 8, U8) X(BITS2X4, 41, 8, U8) X(BITS4X2, 42, 8, U8)           \
    X(BITS8, 43, 8, U8) X(BITS16, 44, 16, U16)                                                     \
    X(QI8, 45, 8, I8) X(QU8, 46, 8, U8) X(QI32, 47, 32, I32)                                       \
    /* torch's integers of fewer bits, each in a byte of its own. */                               \
    X(I1X1, 48, 8, I8) X(I2X1, 49, 8, I8) X(I3X1, 50, 8, I8) X(I4X1, 51, 8, I8)                    \
    X(I5X1, 52, 8, I8) X(I6X1, 53, 8, I8) X(I7X1, 54, 8, I8)                                       \
    X(U1X1, 55, 8, U8) X(U2X1, 56, 8, U8) X(U3X1, 57, 8, U8) X(U4X1, 58, 8, U8)                    \
    X(U5X1, 59, 8, U8) X(U6X1, 60, 8, U8) X(U7X1, 61, 8, U8)                                       \
    /* A named byte string, not a tensor (include/cairn/items.h); one dimension. */                \
    X(ITEM, 62, 8, U8)
/* clang-format on */
enum cairn_table_dtype {
    CAIRN_DTYPE_NONE = 0,
#define CAIRN_DTYPE_ENUM(name, number, bits, shown) CAIRN_DTYPE_##name = number,
    CAIRN_DTYPES(CAIRN_DTYPE_ENUM)
#undef CAIRN_DTYPE_ENUM
};
const char *cairn_dtype_text(unsigned dtype); /* "BF16"; NULL if unknown */
bool cairn_dtype_parse(struct cairn_view text, unsigned *ret);
/* Accepts names of element types and "fp64", "fp32", "bf16", "fp16", in any case. */
bool cairn_dtype_parse_word(struct cairn_view text, unsigned *ret);
unsigned cairn_dtype_bits(unsigned dtype); /* 0 if unknown */

/* A tensor as shown in safetensors' header: another type and shape for the same bytes. If an
 * element becomes several shown ones, a last dimension is added, or the last is multiplied if there
 * is no room. Elements of less than a byte are shown as bytes. */
struct cairn_dtype_shown {
    unsigned dtype, dimension_count;
    uint64_t shape[CAIRN_DIMENSIONS_MAX];
};
/* dtype and shape: of a tensor accepted by cairn_tensor_size. */
void cairn_dtype_shown(unsigned dtype, unsigned dimension_count, const uint64_t *shape,
                       struct cairn_dtype_shown *ret);
/* Does safetensors have a name for it? */
bool cairn_dtype_is_shown(unsigned dtype);

/* product(shape) and its bytes; false on overflow or if the last byte is not filled. */
bool cairn_tensor_size(unsigned dtype, unsigned dimension_count, const uint64_t *shape,
                       uint64_t *ret_elements, uint64_t *ret_bytes);
