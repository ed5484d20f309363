/* SPDX-License-Identifier: Apache-2.0 */
/*
 * journal: what this node must remember when its uploader dies, in one append-only file.
 *
 * Why:     a trainer continues once its save is staged; from then on only this file maps bytes to
 *          their version, token and upload id.
 * Promise: 1   when append returns CAIRN_OK (or done() is called with it), its records and all
 *              posted before are durable. A call's records are replayed together, in order.
 *          2   replay returns every whole record of every open entry, in order. A torn last group
 *              is cut off, in whatever order its blocks reached the disk. Damage before a later
 *              group is logged by name and offset; each entry that may have lost a record gets a
 *              last record CAIRN_UP_RECORD_DAMAGED, other entries are unaffected. Affected are the
 *              entries of the lost groups, or all open then if more than 64 groups or entries are
 *              lost. The damaged file stays as "<path>.damaged".
 *          3   a failed fsync is final: every later call fails, and nothing is acknowledged any
 *              more. A failed write leaves the file unchanged; a full disk is retried for two
 *              seconds, then only that group is lost.
 *          4   an entry ends with its closing record. When no entry is live, or most of the file is
 *              dead, the live entries are written to a new file, which is renamed to the journal.
 *          5   one process per journal: flock on "<path>.lock".
 *          6   an entry that lost a record takes only its closing record (Q45); `lost` is called
 *              for it before done() of any lost record.
 *          7   a record without a waiting caller is written with an awaited one or within 10 ms.
 * Limits:  a record: 1 MiB of JSON and 64 MiB of blob; 256 MiB waiting for the disk.
 * Threads: append, post and the counters: any thread, locked by journal. The journal's own thread
 *          writes and calls done(), which must not block or call append.
 * Next:    uploader/README.md for the records and their readers; uploader/journal/recover.h.
 */
#pragma once

#include "common/buf.h"
#include "common/json.h"

#define CAIRN_UP_JOURNAL_REWRITE_BYTES (64 * CAIRN_MIB) /* half dead above this: rewrite */
#define CAIRN_UP_JOURNAL_EMPTY_BYTES CAIRN_MIB          /* nothing live above this: rewrite */

#define CAIRN_UP_JOURNAL_FORMAT 4         /* older formats are read, and rewritten at once */
#define CAIRN_UP_RECORD_DAMAGED "damaged" /* "t" of journal.h#2's record */

struct cairn_up_journal;
struct cairn_up_places;

struct cairn_up_record {
    uint64_t entry;        /* from cairn_up_journal_entry_new */
    bool closes;           /* the last record of its entry */
    const json_t *message; /* object with "t"; NULL: no memory to encode it */
    struct cairn_view blob;
};
struct cairn_up_replayed {
    uint64_t entry;
    json_t *message;  /* owned by the caller of the callback */
    const char *name; /* message["t"] */
    struct cairn_view blob;
};
struct cairn_up_journal_options {
    const char *path;
    const char *node; /* stored in the file; another node's journal is refused */
    /* Called by open, in file order, for the records of live entries. */
    enum cairn_code (*replay)(void *owner, const struct cairn_up_replayed *record,
                              struct cairn_error *err);
    /* A record of the entry was not written. Called on the writing thread; must not block. */
    void (*lost)(void *owner, uint64_t entry, const struct cairn_error *why);
    void *owner, *lost_owner;
    uint64_t rewrite_bytes; /* 0 = CAIRN_UP_JOURNAL_REWRITE_BYTES */
};

/* CAIRN_CONFLICT: another process holds the journal. CAIRN_CORRUPT: a journal of format 1 or 2 is
 * damaged, whose groups do not list their entries. */
enum cairn_code cairn_up_journal_open(const struct cairn_up_journal_options *options,
                                      struct cairn_up_journal **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Writes posted records, then ends the thread. NULL is allowed. */
void cairn_up_journal_free(struct cairn_up_journal *journal);
/* Returns a number unused by entries of this process and file. */
uint64_t cairn_up_journal_entry_new(struct cairn_up_journal *journal);
/* Blocks until durable. */
enum cairn_code cairn_up_journal_append(struct cairn_up_journal *journal,
                                        const struct cairn_up_record *records, size_t count,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* done NULL: the records are durable with the next awaited record, and written within a few
 * hundredths of a second. A failed post does not call done. */
enum cairn_code cairn_up_journal_post(struct cairn_up_journal *journal,
                                      const struct cairn_up_record *records, size_t count,
                                      void (*done)(void *owner, enum cairn_code code,
                                                   const struct cairn_error *why),
                                      void *owner, struct cairn_error *err) CAIRN_MUST_USE;
/* Posts without a caller: failures are logged (`journal.post`); a restart repeats the action. */
void cairn_up_journal_note(struct cairn_up_journal *journal, const struct cairn_up_record *records,
                           size_t count);
/* Posts the entry's last record as a note. */
void cairn_up_journal_close(struct cairn_up_journal *journal, uint64_t entry, json_t *take_message);
/* Writes posted records now, as if a caller waited. */
void cairn_up_journal_hurry(struct cairn_up_journal *journal);
/* CAIRN_OK, or why writes fail: a broken journal or a full disk, which is probed once a second. */
enum cairn_code cairn_up_journal_trouble(struct cairn_up_journal *journal, struct cairn_error *ret);
uint64_t cairn_up_journal_live_count(struct cairn_up_journal *journal);
uint64_t cairn_up_journal_bytes(struct cairn_up_journal *journal);

/* Logs each non-empty journal of the folder that no process holds, when our own journal is new:
 * after a node was renamed, what it staged lies in a file that no uploader opens. Several nodes may
 * share a folder. named: `node` is set; else it is the host's name. */
struct cairn_up_journal_own {
    const char *path, *node, *host;
    bool named;
};
void cairn_up_journal_tell_others(const char *folder, const struct cairn_up_journal_own *own);

/* Prints the open entries of a stopped uploader's journal, one JSON line per record in file order;
 * changes only a torn tail. CAIRN_CONFLICT: the uploader of that node runs. */
enum cairn_code cairn_up_show_journal(const struct cairn_up_places *places,
                                      struct cairn_error *err) CAIRN_MUST_USE;
