/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pieces: the parts that tensors are assembled of: boxes, checksums of ranges, changed signs.
 *
 * Why:     tensor parallelism cuts columns, and FSDP cuts rows of that: a part is one range of its
 *          file and many runs of the tensor; what both have in common is row-major order. A zip
 *          entry's CRC-32 is over all of its bytes, which several threads read in windows and in
 *          any order; a second pass over them would cost as much as the first. torch saves a lazily
 *          conjugated or negated tensor as the bytes of the other one, and a flag.
 * Promise: 1   the elements of a box that lie before some element of the tensor are the first ones
 *              of the box, so any range of the tensor is one range of each box.
 *          2   CAIRN_OK of _prove means that each element of the tensor is in exactly one box; else
 *              CAIRN_INVALID with the first element that is in none, or in two.
 *          3   a range of a box is at most 2 * dimensions - 1 boxes.
 *          4   once each byte of a sealed range was noted at least once, its checksum has been
 *              compared: the note that was the last says CAIRN_CORRUPT where it does not match. A
 *              byte that is noted again changes nothing.
 *          5   of flipped floats the sign bit is changed, also of zeros and of what is not a
 *              number, as torch does it; integers are subtracted from 0 and wrap; of complex
 *              numbers the parts that are asked for are changed.
 * Limits:  8 dimensions; the proof takes 2^28 steps, then CAIRN_TOO_LARGE. Boxes lie in the tensor
 *          and are not empty. 16,777,216 sealed ranges; of one range 8,192 parts that do not join,
 *          beyond which it is given up and cairn_seal_check has to read it.
 * Threads: stateless; notes may come from several at once, after cairn_seals_sort.
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
/* Is it in the tensor, and not empty? */
bool cairn_box_fits(const struct cairn_box *box, unsigned dimensions, const uint64_t *shape);
/* How many elements of the box lie before this element of the tensor. */
uint64_t cairn_box_before(const struct cairn_box *box, unsigned dimensions, const uint64_t *shape,
                          uint64_t element);
/* Which element of the tensor an element of the box is. */
uint64_t cairn_box_place(const struct cairn_box *box, unsigned dimensions, const uint64_t *shape,
                         uint64_t element);
/* Elements that follow each other in the box and in the tensor: each multiple begins a run. */
uint64_t cairn_box_run(const struct cairn_box *box, unsigned dimensions, const uint64_t *shape);
/* Elements [first, first + elements) of a box as boxes of the tensor, in order; returns how many.
 */
unsigned cairn_box_cut(const struct cairn_box *box, unsigned dimensions, uint64_t first,
                       uint64_t elements, struct cairn_box ret[2 * CAIRN_DIMENSIONS_MAX]);

enum cairn_code cairn_boxes_prove(const struct cairn_box *boxes, size_t count, unsigned dimensions,
                                  const uint64_t *shape, struct cairn_error *err) CAIRN_MUST_USE;

/* ---- seals ---- */

struct cairn_seal {
    uint32_t input; /* number of the file, as the caller counts them */
    uint32_t crc32;
    uint64_t offset_bytes, size_bytes;
    char *name; /* of the zip entry */
    /* By the lock of all. */
    uint32_t sum; /* remainders of what was noted, each shifted to its place */
    uint64_t noted_bytes;
    struct cairn_seal_part {
        uint64_t begin, end;
    } * parts; /* noted, sorted; parts that join are one */
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
/* A range of no bytes is left out, and a checksum of 0, which says that its writer made none. */
enum cairn_code cairn_seals_add(struct cairn_seals *seals, const struct cairn_seal *seal,
                                struct cairn_view name, struct cairn_error *err) CAIRN_MUST_USE;
/* After the last, again after further ones; ranges that were added twice become one. */
void cairn_seals_sort(struct cairn_seals *seals);
/* These bytes of a file were read. input: of the file, for its name. */
enum cairn_code cairn_seals_note(struct cairn_seals *seals, uint32_t number,
                                 const struct cairn_input *input, uint64_t offset_bytes,
                                 const void *bytes, size_t size,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* Read a range and compare it. scratch: of `size` bytes. */
enum cairn_code cairn_seal_check(const struct cairn_seal *seal, const struct cairn_input *input,
                                 void *scratch, size_t size,
                                 struct cairn_error *err) CAIRN_MUST_USE;

/* ---- signs ---- */

/* Signs that are changed when a piece is read: of all numbers but complex ones the first. */
#define CAIRN_ASSEMBLY_FLIP_REAL 1u
#define CAIRN_ASSEMBLY_FLIP_IMAGINARY 2u
/* parts: CAIRN_ASSEMBLY_FLIP_*; 0 changes nothing. False: elements of this type have no sign, and
 * nothing was changed. */
bool cairn_flip(unsigned dtype, void *bytes, size_t size, unsigned parts);
/* What is to be changed to read a lazily conjugated or negated tensor; CAIRN_UNSUPPORTED: its
 * elements have no sign. */
enum cairn_code cairn_assembly_flips(unsigned dtype, bool conjugated, bool negated, unsigned *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
