/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert: converts elements between float types.
 *
 * Why:     a trainer keeps fp32 masters, and a model server needs bf16 or fp16.
 * Promise: 1   correctly rounded: to the nearest, ties to even; subnormals are kept, overflow
 *              becomes infinity, NaN stays a NaN with its sign.
 *          2   values that the target type can hold are converted exactly.
 * Limits:  F64, F32, BF16 and F16. F64 goes via F32: it is rounded twice. ITEM is copied like U8.
 * Threads: stateless.
 * Next:    cli/convert/export.c, client/restore/reads.c.
 */
#pragma once

#include "api/table/table.h"

/* True if the types are equal or convertible. */
bool cairn_convertible(unsigned from, unsigned to);
/* Counts finite elements that became infinite. */
size_t cairn_convert_overflows(unsigned from_dtype, const void *from, unsigned to_dtype,
                               const void *into, size_t elements);
/* True if an element is infinite. */
bool cairn_convert_has_infinity(unsigned dtype, const void *data, size_t elements);
/* into and from do not overlap; both are aligned to their elements. */
void cairn_convert(unsigned from_dtype, const void *from, unsigned to_dtype, void *into,
                   size_t elements);
