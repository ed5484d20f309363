/* SPDX-License-Identifier: Apache-2.0 */
/*
 * head: what stands before the records of a group: whose file it is, which group, and what the
 * groups before it touched.
 *
 * Why:     where a group is damaged, its own words about itself are gone too. The next head says
 *          which entries it concerned, so that the others need not suffer for it (Q45).
 * Promise: 1   a head is u32le magic, u32le CRC32C of the rest of the head, u32le file, u32le
 *              CRC32C of the node's name, u64le sequence, u64le size of the records, u64le highest
 *              entry, u64le covers_from, u32le CRC32C of the records, u32le count, then count times
 *              u64le entry, u32le (groups ago * 2 + closed).
 *          2   the list has every entry that the groups covers_from to sequence - 1 wrote a record
 *              of, with the last of these groups and whether that record closed it. The group right
 *              before is always covered, as long as there is memory.
 *          3   "file" is drawn when a file is made, so bytes of an older one are no head of it.
 *          4   the first group of a file has the head of format 2 (uploader/journal/before.h), its
 *              spare word being "file": programs before format 3 read it and refuse the file by
 *              its number, where they would take anything else for a torn file and cut it off.
 * Limits:  64 groups and 64 entries are covered, and all entries of the group right before.
 * Threads: one owner.
 * Next:    uploader/journal/file.h.
 */
#pragma once

#include "common/buf.h"

struct cairn_up_touched {
    uint64_t entry, sequence; /* of the last group that wrote of it */
    bool closed;
};
/* Ascending by sequence; an entry stands there once. */
struct cairn_up_touches {
    struct cairn_up_touched *items; /* owned */
    size_t count, capacity;
    uint64_t covers_from;
};
void cairn_up_touches_release(struct cairn_up_touches *touches);
/* That group wrote a record of the entry. Without memory it is covered no longer. */
void cairn_up_touches_add(struct cairn_up_touches *touches, uint64_t sequence, uint64_t entry,
                          bool closed);
/* Forgets what the head of the group after `sequence` need not say. */
void cairn_up_touches_trim(struct cairn_up_touches *touches, uint64_t sequence);

/* Which file: all its heads say the same. */
struct cairn_up_file_id {
    uint32_t file, node_crc;
};
struct cairn_up_head {
    struct cairn_up_file_id id;
    uint64_t sequence, size, entry_last, covers_from;
    uint32_t records_crc;
    uint64_t bytes;      /* of the head */
    const uint8_t *list; /* of the entries, in the file */
    size_t count;
};
enum cairn_code cairn_up_head_encode(const struct cairn_up_head *head,
                                     const struct cairn_up_touches *touches, struct cairn_buf *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* False: no whole head begins there. */
bool cairn_up_head_at(struct cairn_view file, uint64_t offset, struct cairn_up_head *ret);
/* The next whole head at or after offset, of that file if id is not NULL, of that sequence or a
 * higher one. */
bool cairn_up_head_after(struct cairn_view file, uint64_t offset, const struct cairn_up_file_id *id,
                         uint64_t sequence, uint64_t *ret_where, struct cairn_up_head *ret);
/* *ret_whole: the head's records are there, and as they were written. */
struct cairn_view cairn_up_head_records(struct cairn_view file, uint64_t offset,
                                        const struct cairn_up_head *head, bool *ret_whole);
void cairn_up_head_touched(const struct cairn_up_head *head, size_t index,
                           struct cairn_up_touched *ret);
