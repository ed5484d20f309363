/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert: elements of one float type as another.
 *
 * Why:     a trainer keeps fp32 masters, and who serves the model wants bf16 or fp16.
 * Promise: 1   correctly rounded: to the nearest, ties to even; subnormals are kept, too large
 *              becomes infinity, NaN stays a NaN with its sign.
 *          2   what the target type can hold exactly comes out exactly.
 * Limits:  F64, F32, BF16 and F16, among each other. F64 goes by way of F32: it is rounded twice.
 *          ITEM is U8, whose bytes it has.
 * Threads: stateless.
 * Next:    cli/convert/export.c, client/restore/reads.c.
 */
#pragma once

#include "api/table/table.h"

/* Can elements of `from` become elements of `to`? Always where they are the same. */
bool cairn_convertible(unsigned from, unsigned to);
/* Elements that are finite and became infinite, of what was converted. */
size_t cairn_convert_overflows(unsigned from_dtype, const void *from, unsigned to_dtype,
                               const void *into, size_t elements);
/* Is an element infinite? */
bool cairn_convert_has_infinity(unsigned dtype, const void *data, size_t elements);
/* into and from do not overlap; both are aligned to their elements. */
void cairn_convert(unsigned from_dtype, const void *from, unsigned to_dtype, void *into,
                   size_t elements);
