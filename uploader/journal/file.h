/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file: the bytes of the journal: one record, a scan of all, an index of the live ones.
 *
 * Why:     kept apart from threads and fsync so that torn tails and flipped bits are tested on
 *          plain files.
 * Promise: 1   a record is u32le magic, u32le size, u32le CRC32C(size, payload), payload; payload
 *              is u64le entry, u32le flags, u32le json_bytes, JSON, blob.
 *          2   records stand in groups, one per fsync, each after a head (uploader/journal/head.h).
 *          3   scan hands out the records of whole groups in order and says where the valid part
 *              ends. Only the last group can be torn, in whatever order its blocks were written.
 *              Where groups are damaged that a later head of the file follows, it says which
 *              entries they concerned, and goes on there.
 *          4   nothing that does not fit its checksum is handed out.
 * Limits:  as in uploader/journal/journal.h.
 * Threads: one owner.
 * Next:    uploader/journal/journal.h.
 */
#pragma once

#include "uploader/journal/head.h"
#include "uploader/journal/journal.h"

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

/* One whole record of a scanned file. */
struct cairn_up_record_found {
    uint64_t entry;
    bool closes;
    struct cairn_up_journal_span span;
    struct cairn_view json, blob;
};
/* *ret_found false: no whole, valid record begins at offset. */
void cairn_up_record_at(struct cairn_view file, uint64_t offset, struct cairn_up_record_found *ret,
                        bool *ret_found);
