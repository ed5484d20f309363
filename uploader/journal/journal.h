/* SPDX-License-Identifier: Apache-2.0 */
/*
 * journal: what this node must remember when its uploader dies, in one append-only file.
 *
 * Why:     a trainer goes on training as soon as its save is staged; from then on only this file
 *          knows which bytes belong to which version, under which token and upload id.
 * Promise: 1   when append returns CAIRN_OK (or done() is called with it), the records and all that
 *              were posted before them are on the disk. Records of one call are written together
 *              and come back in order.
 *          2   replay gives every whole record of every entry that is not closed, in order. A torn
 *              last group of records is cut off, in whatever order its blocks reached the disk.
 *              Damage before a later group is logged by name and offset; to each entry that may
 *              have lost a record by it a last record CAIRN_UP_RECORD_DAMAGED is added, and the
 *              others are as if nothing had happened. These are the entries of the lost groups, or
 *              all that were open there when more than 64 groups or entries are lost. The damaged
 *              file stays as "<path>.damaged".
 *          3   a failed fsync is final: every later call fails, nothing is ever acknowledged again.
 *              A failed write leaves the file as it was; a full disk is tried again for two
 *              seconds, then that group alone is lost.
 *          4   an entry ends with its closing record; the file is rewritten with the live entries
 *              alone when none is left or when most of it is dead, by a new file and a rename.
 *          5   one process per journal: flock on "<path>.lock".
 *          6   an entry of which a record was lost takes no more records but its closing one (Q45);
 *              `lost` is called for it before any of the lost records' done().
 *          7   a record that nobody waits for is written with the next that somebody waits for, and
 *              after about 10 ms at the latest.
 * Limits:  a record: 1 MiB of JSON and 64 MiB of blob; 256 MiB waiting for the disk.
 * Threads: append, post and the counters: any thread, locked by journal. One thread of its own
 *          writes; done() is called on it and must not block or call append.
 * Next:    uploader/README.md for the records and who needs them; uploader/journal/recover.h.
 */
#pragma once

#include "common/buf.h"
#include "common/json.h"

#define CAIRN_UP_JOURNAL_REWRITE_BYTES (64 * CAIRN_MIB) /* above this, half of it dead: rewrite */
#define CAIRN_UP_JOURNAL_EMPTY_BYTES CAIRN_MIB          /* above this, nothing alive: rewrite */

#define CAIRN_UP_JOURNAL_FORMAT 4         /* earlier ones are read, and written anew at once */
#define CAIRN_UP_RECORD_DAMAGED "damaged" /* "t" of journal.h#2's record */

struct cairn_up_journal;
struct cairn_up_places;

struct cairn_up_record {
    uint64_t entry;        /* from cairn_up_journal_entry_new */
    bool closes;           /* the last record of its entry */
    const json_t *message; /* object with "t"; NULL: there was no memory to make it */
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
    const char *node; /* written into the file; another node's journal is refused */
    /* Called by open, in file order, for the records of entries that are still live. */
    enum cairn_code (*replay)(void *owner, const struct cairn_up_replayed *record,
                              struct cairn_error *err);
    /* A record of that entry was not written. On the writing thread; must not block. */
    void (*lost)(void *owner, uint64_t entry, const struct cairn_error *why);
    void *owner, *lost_owner;
    uint64_t rewrite_bytes; /* 0 = CAIRN_UP_JOURNAL_REWRITE_BYTES */
};

/* CAIRN_CONFLICT: another process holds it. CAIRN_CORRUPT: one of an earlier format is
 * damaged; its groups do not say what they concern. */
enum cairn_code cairn_up_journal_open(const struct cairn_up_journal_options *options,
                                      struct cairn_up_journal **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Writes what was posted, then ends the thread. NULL is allowed. */
void cairn_up_journal_free(struct cairn_up_journal *journal);
/* A number that no live or closed entry of this process or file has. */
uint64_t cairn_up_journal_entry_new(struct cairn_up_journal *journal);
/* Blocks until durable. */
enum cairn_code cairn_up_journal_append(struct cairn_up_journal *journal,
                                        const struct cairn_up_record *records, size_t count,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* done may be NULL: then the records are durable with the next that somebody waits for, and written
 * within a few hundredths of a second. When this fails, done is not called. */
enum cairn_code cairn_up_journal_post(struct cairn_up_journal *journal,
                                      const struct cairn_up_record *records, size_t count,
                                      void (*done)(void *owner, enum cairn_code code,
                                                   const struct cairn_error *why),
                                      void *owner, struct cairn_error *err) CAIRN_MUST_USE;
/* The same for what nobody waits for: a failure is logged (`journal.post`) and what the records say
 * is done once more after a restart. */
void cairn_up_journal_note(struct cairn_up_journal *journal, const struct cairn_up_record *records,
                           size_t count);
/* The last record of an entry, as a note. */
void cairn_up_journal_close(struct cairn_up_journal *journal, uint64_t entry, json_t *take_message);
/* What was posted so far is written now, as if somebody waited for it. */
void cairn_up_journal_hurry(struct cairn_up_journal *journal);
/* CAIRN_OK, or why records cannot be written: the journal is broken, or its last write failed (a
 * full disk) and there is no room yet. Whether there is room again is tried once a second. */
enum cairn_code cairn_up_journal_trouble(struct cairn_up_journal *journal, struct cairn_error *ret);
uint64_t cairn_up_journal_live_count(struct cairn_up_journal *journal);
uint64_t cairn_up_journal_bytes(struct cairn_up_journal *journal);

/* Logs each journal of that folder that is not empty and that no process holds: a node whose name
 * was changed starts with an empty one, and what it had staged lies in a file that nobody opens any
 * more. Said where our own journal is new; several nodes may share a folder on purpose. named: the
 * setting `node` gives the name; else it is the host's, which a container gets anew each time. */
struct cairn_up_journal_own {
    const char *path, *node, *host;
    bool named;
};
void cairn_up_journal_tell_others(const char *folder, const struct cairn_up_journal_own *own);

/* What the journal of a stopped uploader still holds, one JSON line per record in file order;
 * changes nothing but a torn tail. CAIRN_CONFLICT: the uploader of that node runs. */
enum cairn_code cairn_up_show_journal(const struct cairn_up_places *places,
                                      struct cairn_error *err) CAIRN_MUST_USE;
