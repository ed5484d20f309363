/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format: the bytes of the journal: groups and their heads, records, a scan of a whole file.
 *
 * Why:     separate from threads and fsync, so that plain files test torn tails and flipped bits.
 *          The next head names a damaged group's entries, so that others need not fail (Q45).
 * Promise: 1   a record is u32le magic, u32le size, u32le CRC32C(size, payload), payload; payload
 *              is u64le entry, u32le flags, u32le json_bytes, JSON, blob.
 *          2   records stand in groups, one per fsync, each after a head: u32le magic, u32le CRC32C
 *              of the rest of the head, u32le file, u32le CRC32C of the node's name, u64le
 *              sequence, u64le size of the records, u64le highest entry, u64le covers_from, u32le
 *              CRC32C of the records, u32le count, then count times u64le entry, u32le (groups ago
 *              * 2 + closed).
 *          3   scan returns the records of whole groups in order, and where the valid part ends.
 *              Only the last group can be torn, in whatever order its blocks were written. Scan
 *              reports the entries of damaged groups before a later head, and continues there.
 *          4   bytes that do not match their checksum are never returned.
 *          5   a head lists every entry with a record in the groups covers_from to sequence - 1,
 *              with the last such group and whether that record closed the entry. The preceding
 *              group is always covered, unless memory is short.
 *          6   "file" is random per file, so bytes of an older file never match as a head.
 *          7   the first group of a file has the head of format 2, with "file" in its spare word:
 *              older programs refuse the file by its number instead of cutting it.
 *          P15 formats 1 and 2 are read, to be rewritten. 1: consecutive records from the first
 *              byte. 2: groups, each with u32le magic, u32le CRC32C of the rest of the head, u64le
 *              sequence, u64le size, u32le CRC32C of the records, u32le 0, records. Without lists,
 *              damage before whole data refuses the file: CAIRN_CORRUPT with both offsets.
 * Limits:  a head covers 64 groups and 64 entries, and all entries of the preceding group.
 * Threads: one owner.
 * Next:    uploader/journal/journal.h.
 */
#pragma once

#include "common/buf.h"
#include "uploader/journal/journal.h"

struct cairn_up_touched {
    uint64_t entry, sequence; /* of the last group with a record of the entry */
    bool closed;
};
/* Ascending by sequence; each entry at most once. */
struct cairn_up_touches {
    struct cairn_up_touched *items; /* owned */
    size_t count, capacity;
    uint64_t covers_from;
};
void cairn_up_touches_release(struct cairn_up_touches *touches);
/* Notes that group `sequence` has a record of the entry. Without memory coverage shrinks. */
void cairn_up_touches_add(struct cairn_up_touches *touches, uint64_t sequence, uint64_t entry,
                          bool closed);
/* Drops what the head of the group after `sequence` need not list. */
void cairn_up_touches_trim(struct cairn_up_touches *touches, uint64_t sequence);

/* The identity that all heads of a file share. */
struct cairn_up_file_id {
    uint32_t file, node_crc;
};
struct cairn_up_head {
    struct cairn_up_file_id id;
    uint64_t sequence, size, entry_last, covers_from;
    uint32_t records_crc;
    uint64_t bytes;      /* of the head */
    const uint8_t *list; /* the entries, encoded */
    size_t count;
};
enum cairn_code cairn_up_head_encode(const struct cairn_up_head *head,
                                     const struct cairn_up_touches *touches, struct cairn_buf *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Finds the next whole head from offset, of that file (id NULL: any) and at least that sequence. */
bool cairn_up_head_after(struct cairn_view file, uint64_t offset, const struct cairn_up_file_id *id,
                         uint64_t sequence, uint64_t *ret_where, struct cairn_up_head *ret);
void cairn_up_head_touched(const struct cairn_up_head *head, size_t index,
                           struct cairn_up_touched *ret);

#define CAIRN_UP_RECORD_MAGIC UINT32_C(0x314a5243) /* "CRJ1" */
#define CAIRN_UP_RECORD_HEAD_BYTES 12
#define CAIRN_UP_RECORD_BYTES_MAX (66 * CAIRN_MIB)

struct cairn_up_journal_span {
    uint64_t offset, bytes;
};
struct cairn_up_journal_entry {
    uint64_t entry;
    struct cairn_up_journal_span *spans; /* owned */
    size_t count, capacity;
    bool damaged; /* some records are lost; a rewrite journals that */
};
/* Byte ranges of each live entry; entries ascend. */
struct cairn_up_journal_index {
    struct cairn_up_journal_entry *entries; /* owned */
    size_t count, capacity;
    uint64_t live_bytes;
    uint64_t entry_last; /* highest number ever seen */
};
void cairn_up_journal_index_release(struct cairn_up_journal_index *index);
enum cairn_code cairn_up_journal_index_add(struct cairn_up_journal_index *index, uint64_t entry,
                                           bool closes, struct cairn_up_journal_span span,
                                           struct cairn_error *err) CAIRN_MUST_USE;

/* Marks the entry as missing records. */
enum cairn_code cairn_up_journal_index_damage(struct cairn_up_journal_index *index, uint64_t entry,
                                              struct cairn_error *err) CAIRN_MUST_USE;
/* NULL: the entry is not live. */
struct cairn_up_journal_entry *
cairn_up_journal_index_find(const struct cairn_up_journal_index *index, uint64_t entry);

enum cairn_code cairn_up_record_encode(const struct cairn_up_record *record, struct cairn_buf *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;

/* Records of one append or post; owns their messages and the blobs that were taken. */
struct cairn_up_notes {
    struct cairn_up_record *records;
    struct cairn_buf *blobs;
    size_t count, capacity, blob_capacity;
};
/* A record without a message fails the append (no memory). */
enum cairn_code cairn_up_notes_add(struct cairn_up_notes *notes, uint64_t entry,
                                   json_t *take_message, struct cairn_view blob,
                                   struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_notes_add_buf(struct cairn_up_notes *notes, uint64_t entry,
                                       json_t *take_message, struct cairn_buf *take_blob,
                                       struct cairn_error *err) CAIRN_MUST_USE;
void cairn_up_notes_release(struct cairn_up_notes *notes);

/* One whole record of a scanned file. */
struct cairn_up_record_found {
    uint64_t entry;
    bool closes;
    struct cairn_up_journal_span span;
    struct cairn_view json, blob;
};

/* Damaged groups between two valid places. */
struct cairn_up_damage {
    uint64_t offset, end; /* in the file */
    uint64_t first, last; /* sequences */
    bool known;           /* head lists all entries of the damage; false: any may be */
    uint64_t entry_last;
    const struct cairn_up_head *head; /* of the group after the damage */
};
struct cairn_up_scan_sink {
    enum cairn_code (*each)(void *owner, const struct cairn_up_record_found *found,
                            struct cairn_error *err);
    /* NULL: damage is skipped silently. */
    enum cairn_code (*damaged)(void *owner, const struct cairn_up_damage *damage,
                               struct cairn_error *err);
    void *owner;
};
struct cairn_up_scanned {
    uint64_t end;      /* of the valid part */
    uint64_t sequence; /* of its last group */
    bool before;       /* the file has format 1 or 2, and the fields below are unset */
    bool damaged;
    struct cairn_up_file_id id;
    uint64_t entry_last;             /* the highest entry that heads name */
    struct cairn_up_touches touches; /* owned: the list of the next head */
};
/* *ret is zero or the result of an earlier scan. */
enum cairn_code cairn_up_journal_scan(struct cairn_view file, uint32_t node_crc,
                                      const struct cairn_up_scan_sink *sink,
                                      struct cairn_up_scanned *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;

#define CAIRN_UP_GROUP2_HEAD_BYTES 32

void cairn_up_group2_head(uint64_t sequence, uint32_t spare, struct cairn_view records,
                          uint8_t ret[CAIRN_UP_GROUP2_HEAD_BYTES]);
struct cairn_up_group2 {
    uint64_t sequence;
    uint32_t spare; /* in the first group of format 3: the file */
    struct cairn_view records;
};
/* False: no whole group of format 2 begins at offset. */
bool cairn_up_group2_at(struct cairn_view file, uint64_t offset, struct cairn_up_group2 *ret);
