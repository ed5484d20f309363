/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format: the bytes of the journal: groups and their heads, records, a scan of a whole file.
 *
 * Why:     kept apart from threads and fsync so that torn tails and flipped bits are tested on
 *          plain files. Where a group is damaged, its own words about itself are gone too; the next
 *          head says which entries it concerned, so that the others need not suffer for it (Q45).
 * Promise: 1   a record is u32le magic, u32le size, u32le CRC32C(size, payload), payload; payload
 *              is u64le entry, u32le flags, u32le json_bytes, JSON, blob.
 *          2   records stand in groups, one per fsync, each after a head: u32le magic, u32le CRC32C
 *              of the rest of the head, u32le file, u32le CRC32C of the node's name, u64le
 *              sequence, u64le size of the records, u64le highest entry, u64le covers_from, u32le
 *              CRC32C of the records, u32le count, then count times u64le entry, u32le (groups ago
 *              * 2 + closed).
 *          3   scan hands out the records of whole groups in order and says where the valid part
 *              ends. Only the last group can be torn, in whatever order its blocks were written.
 *              Where groups are damaged that a later head of the file follows, it says which
 *              entries they concerned, and goes on there.
 *          4   nothing that does not fit its checksum is handed out.
 *          5   a head's list has every entry that the groups covers_from to sequence - 1 wrote a
 *              record of, with the last of these groups and whether that record closed it. The
 *              group right before is always covered, as long as there is memory.
 *          6   "file" is drawn when a file is made, so bytes of an older one are no head of it.
 *          7   the first group of a file has the head of format 2, its spare word being "file":
 *              programs before format 3 read it and refuse the file by its number, where they would
 *              take anything else for a torn file and cut it off.
 *          P15 formats 1 and 2 are read so that they can be written anew. 1: records one after the
 *              other, from the first byte. 2: groups, each with u32le magic, u32le CRC32C of the
 *              rest of the head, u64le sequence, u64le size, u32le CRC32C of the records, u32le 0,
 *              records. Nothing in them says what a damaged place concerned, so one that something
 *              whole follows refuses the file: CAIRN_CORRUPT with both offsets.
 * Limits:  64 groups and 64 entries are covered, and all entries of the group right before.
 * Threads: one owner.
 * Next:    uploader/journal/journal.h.
 */
#pragma once

#include "common/buf.h"
#include "uploader/journal/journal.h"

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
/* The next whole head at or after offset, of that file if id is not NULL, of that sequence or a
 * higher one. */
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
    bool damaged; /* records of it are lost; a rewrite says so in a record */
};
/* Which byte ranges belong to which live entry; entries ascend. */
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

/* Its records may not be all that were written. */
enum cairn_code cairn_up_journal_index_damage(struct cairn_up_journal_index *index, uint64_t entry,
                                              struct cairn_error *err) CAIRN_MUST_USE;
/* NULL: it is not alive. */
struct cairn_up_journal_entry *
cairn_up_journal_index_find(const struct cairn_up_journal_index *index, uint64_t entry);

enum cairn_code cairn_up_record_encode(const struct cairn_up_record *record, struct cairn_buf *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;

/* Records for one append or post, which owns their messages and the blobs that were taken. */
struct cairn_up_notes {
    struct cairn_up_record *records;
    struct cairn_buf *blobs;
    size_t count, capacity, blob_capacity;
};
/* A record without a message makes the append fail (no memory). */
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

/* Groups that are not there as they were written, between two places that are. */
struct cairn_up_damage {
    uint64_t offset, end; /* in the file */
    uint64_t first, last; /* sequences */
    bool known;           /* head lists all entries that they touched; else it may be any */
    uint64_t entry_last;
    const struct cairn_up_head *head; /* of the group after them */
};
struct cairn_up_scan_sink {
    enum cairn_code (*each)(void *owner, const struct cairn_up_record_found *found,
                            struct cairn_error *err);
    /* NULL: passed over in silence. */
    enum cairn_code (*damaged)(void *owner, const struct cairn_up_damage *damage,
                               struct cairn_error *err);
    void *owner;
};
struct cairn_up_scanned {
    uint64_t end;      /* of the valid part */
    uint64_t sequence; /* of its last group */
    bool before;       /* of format 1 or 2; the rest is not known then */
    bool damaged;
    struct cairn_up_file_id id;
    uint64_t entry_last;             /* that the heads name */
    struct cairn_up_touches touches; /* owned: what the next head says */
};
/* *ret: zero, or of a scan before. */
enum cairn_code cairn_up_journal_scan(struct cairn_view file, uint32_t node_crc,
                                      const struct cairn_up_scan_sink *sink,
                                      struct cairn_up_scanned *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;

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
