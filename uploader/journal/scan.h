/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan: all whole records of a journal's file, in order, and what is damaged.
 *
 * Why:     a restart, a rewrite and --print-journal read the same file by the same rules.
 * Promise: 1   records of whole groups are handed out in order; file.h#3 says what a torn or
 *              damaged group means.
 * Limits:  as uploader/journal/journal.h.
 * Threads: one owner.
 * Next:    uploader/journal/file.h, uploader/journal/head.h.
 */
#pragma once

#include "uploader/journal/file.h"

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
/* Records one after the other, from offset to end; *ret_end: where the first bad one begins. */
enum cairn_code cairn_up_scan_records(struct cairn_view file, uint64_t offset, uint64_t end,
                                      const struct cairn_up_scan_sink *sink, uint64_t *ret_end,
                                      struct cairn_error *err) CAIRN_MUST_USE;
