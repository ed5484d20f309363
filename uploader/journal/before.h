/* SPDX-License-Identifier: Apache-2.0 */
/*
 * before: journals of formats 1 and 2, read so that they can be written anew (P15).
 *
 * Why:     a node is updated while its journal holds saves that are not over.
 * Promise: 1   format 1: records one after the other, from the first byte. Format 2: groups, each
 *              with u32le magic, u32le CRC32C of the rest of the head, u64le sequence, u64le size,
 *              u32le CRC32C of the records, u32le 0, records.
 *          2   nothing in them says what a damaged place concerned, so one that something whole
 *              follows refuses the file: CAIRN_CORRUPT with both offsets.
 * Limits:  as in uploader/journal/journal.h.
 * Threads: one owner.
 * Next:    uploader/journal/head.h for the groups of today.
 */
#pragma once

#include "uploader/journal/file.h"
#include "uploader/journal/scan.h"

#define CAIRN_UP_GROUP2_HEAD_BYTES 32

void cairn_up_group2_head(uint64_t sequence, uint32_t spare, struct cairn_view records,
                          uint8_t ret[CAIRN_UP_GROUP2_HEAD_BYTES]);
struct cairn_up_group2 {
    uint64_t sequence;
    uint32_t spare; /* of the first group of format 3: its file */
    struct cairn_view records;
};
/* False: no whole group with a head of format 2 begins there. */
bool cairn_up_group2_at(struct cairn_view file, uint64_t offset, struct cairn_up_group2 *ret);
/* Is it of format 1? Else its groups are read as those of format 2. */
bool cairn_up_is_format1(struct cairn_view file);
enum cairn_code cairn_up_scan_before(struct cairn_view file, const struct cairn_up_scan_sink *sink,
                                     struct cairn_up_scanned *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
