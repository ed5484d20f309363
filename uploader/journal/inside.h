/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: the file that open.c finds and replaces, and journal.c writes to.
 *
 * Why:     opening, writing and rewriting are different work on one file.
 * Promise: 1   a file's size, sequence and index count a group once it was taken: its head, each of
 *              its records, its end, in this order.
 * Limits:  CAIRN_UP_GROUP_BYTES_MAX of records wait for the disk.
 * Threads: `own` is the writing thread's, and open's before that thread starts; the pending group
 *          is locked by journal, a taken one is the writing thread's.
 * Next:    uploader/journal/open.c, uploader/journal/journal.c.
 */
#pragma once

#include "common/lock.h"
#include "uploader/journal/format.h"

#define CAIRN_UP_GROUP_BYTES_MAX (256 * CAIRN_MIB)

struct cairn_up_noted { /* one record of the bytes, for the index once it is on the disk */
    uint64_t entry;
    bool closes, dropped;
    uint64_t bytes;
};
struct cairn_up_waiter { /* one call */
    struct cairn_up_waiter *next;
    void (*done)(void *owner, enum cairn_code code, const struct cairn_error *why);
    void *owner;
    size_t first, count; /* its records among the noted */
    bool blocking, finished;
    enum cairn_code code;
    struct cairn_error error;
};
struct cairn_up_group {
    struct cairn_buf bytes;
    struct cairn_up_noted *noted; /* owned */
    size_t noted_count, noted_capacity;
    struct cairn_up_waiter *first, **last;
};
/* Entries of which a record was not written. */
struct cairn_up_broken {
    uint64_t *entries; /* owned */
    size_t count, capacity;
    bool all; /* no memory, or too many, to tell them apart */
};
void cairn_up_group_init(struct cairn_up_group *ret);
void cairn_up_group_release(struct cairn_up_group *group);
enum cairn_code cairn_up_group_add(struct cairn_up_group *group,
                                   const struct cairn_up_record *records, size_t count,
                                   struct cairn_error *err) CAIRN_MUST_USE;
void cairn_up_group_wait(struct cairn_up_group *group, struct cairn_up_waiter *waiter);
void cairn_up_group_drop(struct cairn_up_group *group, const struct cairn_up_broken *broken);
/* Did the call lose a record? */
bool cairn_up_group_lost(const struct cairn_up_group *group, const struct cairn_up_waiter *waiter);

void cairn_up_broken_release(struct cairn_up_broken *broken);
bool cairn_up_broken_has(const struct cairn_up_broken *broken, uint64_t entry);
/* False: it was there. */
bool cairn_up_broken_add(struct cairn_up_broken *broken, uint64_t entry);
void cairn_up_broken_remove(struct cairn_up_broken *broken, uint64_t entry);

/* A file that groups are appended to. */
struct cairn_up_file {
    int fd;
    uint64_t size, sequence; /* of the last group */
    struct cairn_up_file_id id;
    struct cairn_up_touches touches; /* for the next head */
    struct cairn_up_journal_index index;
};

struct cairn_up_journal {
    char *path, *node;
    uint64_t rewrite_bytes;
    int lock_fd, dir_fd;
    pthread_t thread;
    struct cairn_lock lock;
    struct cairn_condition work, progress;
    struct {
        struct cairn_up_group pending;
        struct cairn_up_broken lost; /* journal.h#6 */
        bool stopping;
        bool dozing;            /* its thread sleeps until it is signalled */
        bool hurried;           /* what is noted is written now */
        bool broken;            /* journal.h#3 */
        bool failing;           /* the last write failed, and there was no room since */
        struct cairn_error why; /* the last failure */
        uint64_t entry_last, live_count, file_bytes;
    } locked;
    struct cairn_up_file own;
    void (*lost)(void *owner, uint64_t entry, const struct cairn_error *why);
    void *owner;
    bool started;
};

void cairn_up_file_release(struct cairn_up_file *file);
uint32_t cairn_up_node_crc(const char *node);
/* The first group, for an empty file; draws its id. Not synced. */
enum cairn_code cairn_up_file_begin(struct cairn_up_file *file, const char *node,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Head and records after the last group; the caller counts them in once they count. Not synced. */
enum cairn_code cairn_up_file_put(const struct cairn_up_file *file, struct cairn_view records,
                                  uint64_t *ret_head_bytes, struct cairn_error *err) CAIRN_MUST_USE;
/* The group that was put: its head, then each of its records, then its end. */
void cairn_up_file_took_head(struct cairn_up_file *file, uint64_t head_bytes);
enum cairn_code cairn_up_file_took_record(struct cairn_up_file *file, uint64_t entry, bool closes,
                                          uint64_t bytes, struct cairn_error *err) CAIRN_MUST_USE;
void cairn_up_file_took_group(struct cairn_up_file *file);

/* Reads, or makes, the file of journal->path, and replays it. */
enum cairn_code cairn_up_journal_read(struct cairn_up_journal *journal,
                                      const struct cairn_up_journal_options *options,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* The live entries alone, in a new file of that name. */
enum cairn_code cairn_up_journal_rewrite(struct cairn_up_journal *journal, bool *ret_renamed,
                                         struct cairn_error *err) CAIRN_MUST_USE;
