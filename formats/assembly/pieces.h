/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pieces: the parts of assembled tensors: boxes, checksums of ranges, sign changes.
 *
 * Why:     tensor parallelism cuts columns, and FSDP cuts rows of those: a part is one range of its
 *          file and many runs of the tensor, in row-major order in both. A zip entry's CRC-32
 *          covers all its bytes, which threads read in windows and in any order; a second pass
 *          costs as much. torch saves a lazily conjugated or negated tensor with a flag.
 * Promise: 1   the elements of a box before some element of the tensor are the first ones of the
 *              box, so any range of the tensor is one range of each box.
 *          2   CAIRN_OK of _prove means that each element of the tensor is in exactly one box; else
 *              CAIRN_INVALID with the first element in none, or in two.
 *          3   a range of a box is at most 2 * dimensions - 1 boxes.
 *          4   once each byte of a sealed range has been noted, its checksum is compared: the last
 *              note returns CAIRN_CORRUPT on a mismatch. Noting a byte again changes nothing.
 *          5   of floats the sign bit is flipped, also of zeros and NaN, as torch does; integers
 *              are subtracted from 0 and wrap; of complex numbers the requested parts are flipped.
 * Limits:  8 dimensions; the proof takes 2^28 steps, then CAIRN_TOO_LARGE. Boxes lie in the tensor
 *          and are not empty. 16,777,216 sealed ranges; 8,192 disjoint parts of a range; beyond,
 *          cairn_seal_check reads it.
 * Threads: stateless; several threads may note after cairn_seals_sort.
 * Next:    formats/assembly/assembly.h.
 */
#pragma once

#include "api/table/table.h"
#include "common/base.h"
#include "common/lock.h"
#include "formats/input.h"

struct cairn_box {
    uint64_t start[CAIRN_DIMENSIONS_MAX], count[CAIRN_DIMENSIONS_MAX];
};
uint64_t cairn_box_elements(const struct cairn_box *box, unsigned dimensions);
/* True if the box is in the tensor and not empty. */
bool cairn_box_fits(const struct cairn_box *box, unsigned dimensions, const uint64_t *shape);
/* Counts the box's elements before this element of the tensor. */
uint64_t cairn_box_before(const struct cairn_box *box, unsigned dimensions, const uint64_t *shape,
                          uint64_t element);
/* The tensor's element for an element of the box. */
uint64_t cairn_box_place(const struct cairn_box *box, unsigned dimensions, const uint64_t *shape,
                         uint64_t element);
/* Length of runs that are contiguous in box and tensor: each multiple begins a run. */
uint64_t cairn_box_run(const struct cairn_box *box, unsigned dimensions, const uint64_t *shape);
/* Splits elements [first, first + elements) of a box into boxes, in order; returns their number. */
unsigned cairn_box_cut(const struct cairn_box *box, unsigned dimensions, uint64_t first,
                       uint64_t elements, struct cairn_box ret[2 * CAIRN_DIMENSIONS_MAX]);

enum cairn_code cairn_boxes_prove(const struct cairn_box *boxes, size_t count, unsigned dimensions,
                                  const uint64_t *shape, struct cairn_error *err) CAIRN_MUST_USE;

struct cairn_seal {
    uint32_t input; /* the caller's number of the file */
    uint32_t crc32;
    uint64_t offset_bytes, size_bytes;
    char *name; /* of the zip entry */
    /* Guarded by the lock of all seals. */
    uint32_t sum; /* of the noted bytes, each shifted to its place */
    uint64_t noted_bytes;
    struct cairn_seal_part {
        uint64_t begin, end;
    } * parts; /* noted, sorted; adjacent parts are joined */
    size_t part_count, part_capacity;
    bool given_up;
};
struct cairn_seals {
    struct cairn_seal *seals;
    size_t count, capacity;
    bool sorted;
    struct cairn_lock lock;
};
void cairn_seals_release(struct cairn_seals *seals);
/* Ignores empty ranges, and a checksum of 0, which means that the writer made none. */
enum cairn_code cairn_seals_add(struct cairn_seals *seals, const struct cairn_seal *seal,
                                struct cairn_view name, struct cairn_error *err) CAIRN_MUST_USE;
/* Call after the last range, and again after further ones; merges duplicates. */
void cairn_seals_sort(struct cairn_seals *seals);
/* Records that these bytes of a file were read. input: the file, for its name. */
enum cairn_code cairn_seals_note(struct cairn_seals *seals, uint32_t number,
                                 const struct cairn_input *input, uint64_t offset_bytes,
                                 const void *bytes, size_t size,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* Reads a range and compares its checksum. scratch: of `size` bytes. */
enum cairn_code cairn_seal_check(const struct cairn_seal *seal, const struct cairn_input *input,
                                 void *scratch, size_t size,
                                 struct cairn_error *err) CAIRN_MUST_USE;

/* Signs to flip on reading: FLIP_REAL for all numbers, complex ones in their first part. */
#define CAIRN_ASSEMBLY_FLIP_REAL 1u
#define CAIRN_ASSEMBLY_FLIP_IMAGINARY 2u
/* parts: CAIRN_ASSEMBLY_FLIP_*; 0 changes nothing. False: this type has no sign. */
bool cairn_flip(unsigned dtype, void *bytes, size_t size, unsigned parts);
/* The flips for a lazily conjugated or negated tensor; CAIRN_UNSUPPORTED: elements without sign. */
enum cairn_code cairn_assembly_flips(unsigned dtype, bool conjugated, bool negated, unsigned *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
