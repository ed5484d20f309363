/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_objects: what the store itself says of one run: attempt records and committed versions.
 *
 * Why:     a catalog is compared with its store, and mended from it, by the same reading of it.
 * Promise: 1   keys are taken apart strictly: what this program would not have written is no
 *              attempt and no version.
 *          2   an attempt's record is read from its copy where it is not there or none itself.
 *          3   a version is read as committed when its record and the manifest of the record's
 *              digest are there and are of this version; anything less says why.
 *          4   what several stores say is joined: a version, a mark or an attempt that one of them
 *              has is there.
 * Limits:  1,000,000 versions and attempts of a run; one page of a listing at a time.
 * Threads: one owner.
 * Next:    server/guard/run_stores.h, server/recovery/compare.c.
 */
#pragma once

#include "api/documents/manifest.h"
#include "api/documents/records.h"
#include "store/store.h"

struct cairn_srv_seen {
    struct cairn_version_id id;
    uint64_t step;
    bool trashed;           /* a mark says so */
    uint64_t superseded_by; /* the newest attempt that a mark names; 0: none */
};
struct cairn_srv_run_objects {
    struct cairn_run_name name;
    struct cairn_srv_seen *versions; /* with a committed.json, by id; owned */
    size_t version_count, version_capacity;
    struct cairn_srv_seen *marks; /* one by one; owned */
    size_t mark_count, mark_capacity;
    uint64_t *attempts; /* numbers of the attempt records, rising; owned */
    size_t attempt_count, attempt_capacity;
    struct cairn_srv_seen *touched; /* of which there is anything but marks, by id; owned */
    size_t touched_count, touched_capacity;
    uint64_t trash_changes; /* of the rows, before it was listed */
    bool listed;            /* false: these keys may not list, nothing is known */
};
void cairn_srv_run_objects_release(struct cairn_srv_run_objects *objects);
const struct cairn_srv_seen *cairn_srv_run_objects_find(const struct cairn_srv_run_objects *objects,
                                                        const char *id);
/* Does anything of that version stand there, its record or not? */
bool cairn_srv_run_objects_touch(const struct cairn_srv_run_objects *objects, const char *id);
bool cairn_srv_run_objects_has_attempt(const struct cairn_srv_run_objects *objects,
                                       uint64_t number);
/* Adds what another store has of the same run. */
enum cairn_code cairn_srv_run_objects_join(struct cairn_srv_run_objects *objects,
                                           const struct cairn_srv_run_objects *more,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* attempts_only: the versions are left out. */
enum cairn_code cairn_srv_run_objects_list(struct cairn_srv_run_objects *objects,
                                           struct cairn_store_worker *worker, bool attempts_only,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* CAIRN_CORRUPT: not a record of that attempt. */
enum cairn_code cairn_srv_attempt_read(struct cairn_store_worker *worker,
                                       const struct cairn_run_name *name, uint64_t attempt,
                                       struct cairn_attempt_record *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Record and manifest of one version; CAIRN_CORRUPT or CAIRN_NOT_FOUND says what is not so. */
enum cairn_code cairn_srv_committed_read(struct cairn_store_worker *worker,
                                         const struct cairn_version_place *place,
                                         struct cairn_record *ret_record,
                                         struct cairn_manifest *ret_manifest,
                                         struct cairn_error *err) CAIRN_MUST_USE;
