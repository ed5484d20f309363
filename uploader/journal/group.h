/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group: records that go to the disk with one write and one fsync, and who waits for them.
 *
 * Why:     while one group is being written the next one gathers; a record whose entry broke in
 *          between must not be written after all (Q45).
 * Promise: 1   all records of a call are in one group, or none is.
 *          2   after drop, the bytes hold no record of a broken entry but its closing one, and the
 *              calls that lost a record are known.
 * Limits:  CAIRN_UP_GROUP_BYTES_MAX of bytes.
 * Threads: the pending one is locked by journal; a taken one is the writing thread's.
 * Next:    uploader/journal/journal.c.
 */
#pragma once

#include "uploader/journal/file.h"

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
