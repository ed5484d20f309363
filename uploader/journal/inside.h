/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: what open.c finds, journal.c goes on with and rewrite.c replaces.
 *
 * Why:     opening, writing and rewriting are different work on one file.
 * Promise: 1   a file's size, sequence and index count a group once it was taken: its head, each of
 *              its records, its end, in this order.
 * Limits:  see uploader/journal/journal.h.
 * Threads: `own` is the writing thread's, and open's before that thread starts.
 * Next:    uploader/journal/open.c, uploader/journal/journal.c, uploader/journal/rewrite.c.
 */
#pragma once

#include "common/lock.h"
#include "uploader/journal/group.h"

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
