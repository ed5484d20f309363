/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strided: moves elements of a strided tensor to and from their row-major sequence.
 *
 * Why:     a view of a tensor (some of its columns, its transpose) is staged and restored without a
 *          contiguous copy, which would need as much memory again.
 * Promise: 1   moving two adjacent ranges equals moving their union.
 *          2   rows of a transposed plane are moved in tiles, so that a cache line is read once for
 *              all its elements in the range.
 * Limits:  8 dimensions; elements of 1, 2, 4, 8 or 16 bytes; a range begins and ends with elements.
 * Threads: stateless; ranges that do not overlap may be moved concurrently.
 * Next:    client/save/copy.c.
 */
#pragma once

#include "common/base.h"

#define CAIRN_STRIDED_DIMENSIONS_MAX 8

/* Dimensions of size 1 are dropped and contiguous ones merged; a scalar has none. */
struct cairn_strided {
    unsigned dimension_count;
    size_t element_bytes;
    uint64_t count[CAIRN_STRIDED_DIMENSIONS_MAX];
    int64_t stride_bytes[CAIRN_STRIDED_DIMENSIONS_MAX];
};

/* Strides in elements. False: too many dimensions, an unsupported element size, or addresses beyond
 * 2^62 bytes of the first. */
bool cairn_strided_make(size_t element_bytes, unsigned dimension_count, const uint64_t *count,
                        const int64_t *stride, struct cairn_strided *ret) CAIRN_MUST_USE;
bool cairn_strided_is_contiguous(const struct cairn_strided *strided);
/* Is each row contiguous? */
bool cairn_strided_has_rows(const struct cairn_strided *strided);
/* May two indices share an address? Also true if that was not decided. */
bool cairn_strided_may_overlap(const struct cairn_strided *strided);
/* Copies bytes [at, at + size) of the sequence to `to`; element 0 is at `first`. */
void cairn_strided_gather(const struct cairn_strided *strided, const void *first, uint64_t at,
                          void *to, size_t size);
void cairn_strided_scatter(const struct cairn_strided *strided, void *first, uint64_t at,
                           const void *from, size_t size);

/* Rows of one plane within a range: contiguous from `dense` (bytes from the range's start) in the
 * sequence, strided from `place` in the tensor. */
struct cairn_strided_rows {
    int64_t place; /* bytes from element 0 */
    uint64_t dense, rows, columns;
    int64_t row_bytes, column_bytes; /* strides in the tensor */
};
/* Cuts a range into such rows, in order, to move without memcpy. False: a call returned false. */
bool cairn_strided_cut(const struct cairn_strided *strided, uint64_t at, size_t size,
                       bool (*each)(void *owner, const struct cairn_strided_rows *rows),
                       void *owner);
