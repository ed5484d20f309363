/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seals: checksums of ranges of files, compared while the ranges are read.
 *
 * Why:     a zip entry's CRC-32 is over all of its bytes, which several threads read in windows and
 *          in any order; a second pass over them would cost as much as the first.
 * Promise: 1   once each byte of a range was noted at least once, its checksum has been compared:
 *              the note that was the last says CAIRN_CORRUPT where it does not match.
 *          2   a byte that is noted again changes nothing.
 * Limits:  16,777,216 ranges; of one range 8,192 parts that do not join, beyond which it is given
 *          up and cairn_seal_check has to read it.
 * Threads: notes may come from several at once, after cairn_seals_sort.
 * Next:    formats/assembly.c.
 */
#pragma once

#include "common/lock.h"
#include "formats/input.h"

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
