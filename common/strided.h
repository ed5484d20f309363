/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strided: elements that lie apart in memory, moved to and from their row-major sequence.
 *
 * Why:     a view of a tensor (some of its columns, its transpose) is staged and restored without a
 *          contiguous copy of it, which would need as much memory again.
 * Promise: 1   any range of the sequence moves by itself: moving two that join is moving both.
 *          2   of a transposed plane the rows of a range are moved in tiles, so that a line of the
 *              cache that is read once serves all its elements which the range has.
 * Limits:  8 dimensions; elements of 1, 2, 4, 8 or 16 bytes; a range begins and ends with elements.
 * Threads: stateless; ranges that do not overlap may be moved at once.
 * Next:    client/save/copy.c.
 */
#pragma once

#include "common/base.h"

#define CAIRN_STRIDED_DIMENSIONS_MAX 8

/* Dimensions of one index are left out, and those that join are one; none: a single element. */
struct cairn_strided {
    unsigned dimension_count;
    size_t element_bytes;
    uint64_t count[CAIRN_STRIDED_DIMENSIONS_MAX];
    int64_t stride_bytes[CAIRN_STRIDED_DIMENSIONS_MAX];
};

/* Strides in elements. False: more dimensions or another width than the limits, or places beyond
 * 2^62 bytes of the first. */
bool cairn_strided_make(size_t element_bytes, unsigned dimension_count, const uint64_t *count,
                        const int64_t *stride, struct cairn_strided *ret) CAIRN_MUST_USE;
/* The sequence is `first` onwards as it stands. */
bool cairn_strided_is_contiguous(const struct cairn_strided *strided);
/* The sequence consists of rows that are contiguous each. */
bool cairn_strided_has_rows(const struct cairn_strided *strided);
/* Do two indices have one place? True also where that was not looked into further. */
bool cairn_strided_may_overlap(const struct cairn_strided *strided);
/* The bytes [at, at + size) of the sequence whose element 0 is at `first`. */
void cairn_strided_gather(const struct cairn_strided *strided, const void *first, uint64_t at,
                          void *to, size_t size);
void cairn_strided_scatter(const struct cairn_strided *strided, void *first, uint64_t at,
                           const void *from, size_t size);

/* Rows that a range of the sequence has of one plane: at one side they follow one another from
 * `dense` on (bytes from the range's begin), at the other the first element is at `place`. */
struct cairn_strided_rows {
    int64_t place; /* bytes from the first element of all */
    uint64_t dense, rows, columns;
    int64_t row_bytes, column_bytes; /* steps where it is apart */
};
/* Cut a range into such rows, in order, for those who move them by other means than memcpy. False:
 * a call has returned false. */
bool cairn_strided_cut(const struct cairn_strided *strided, uint64_t at, size_t size,
                       bool (*each)(void *owner, const struct cairn_strided_rows *rows),
                       void *owner);
