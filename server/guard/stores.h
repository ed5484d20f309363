/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stores: the stores of this server by name, and what they say of one run: attempt records and
 * committed versions.
 *
 * Why:     a fast store is small and a durable one slow; copies of a version lie in several, and
 *          who copies, reads or deletes must find a store by its name, and the nearest first. A
 *          catalog is compared with its stores, and mended from them, by one reading of them; what
 *          one store lacks is lost only where the others lack it too.
 * Promise: 1   the main store is one of them, by the name "main", so that no reader and no copier
 *              treats it as another kind.
 *          2   the order is that of the setting `stores`: nearest first; main is first where it is
 *              not named there.
 *          3   a worker that was borrowed is its borrower's alone until it is given back.
 *          4   keys are taken apart strictly: what this program would not have written is no
 *              attempt and no version.
 *          5   an attempt's record is read from its copy where it is not there or none itself.
 *          6   a version is read as committed when its record and the manifest of the record's
 *              digest are there and are of this version; anything less says why.
 *          7   what several stores say is joined: a version, a mark or an attempt that one of them
 *              has is there.
 *          8   the main store is first, then the others, nearest first; each is the store that the
 *              catalog knows by its name, or it is not read.
 *          9   a store that does not answer, or may not be listed, is a failure that names it,
 *              never a store without the run.
 * Limits:  CAIRN_SRV_TIERS_MAX stores with main; those in S3 share its settings, but for what their
 *          URLs say. 1,000,000 versions and attempts of a run; one page of a listing at a time.
 * Threads: tiers: immutable after start, but for idle workers, which are locked by server_tiers;
 *          what is listed has one owner.
 * Next:    server/guard/identity.h, server/recovery/compare.c, server/recovery/recovery.h;
 *          docs/tiers.md.
 */
#pragma once

#include "api/documents/manifest.h"
#include "api/documents/records.h"
#include "common/lock.h"
#include "server/ledger/copies.h"
#include "server/server.h"
#include "store/open.h"
#include "store/store.h"

struct cairn_srv_idle;
struct cairn_srv_copying;

struct cairn_srv_tier {
    char name[CAIRN_SRV_TIER_NAME_BYTES];
    struct cairn_store *store;
    struct cairn_srv_idle *idle; /* workers that nobody uses */
    bool left_out;               /* a reindex goes on without it: nothing is asked of it */
    _Atomic bool unread; /* its copies were not compared with the catalog yet (since the start) */
    _Atomic uint64_t away_until_ms; /* mono clock: it did not answer a reader just now */
};
struct cairn_srv_tiers {
    struct cairn_srv_tier tiers[CAIRN_SRV_TIERS_MAX]; /* nearest first */
    size_t count, main;                               /* main: the index of the main store */
    struct cairn_lock lock;
    struct cairn_srv_copying *copying; /* what is being copied now; locked */
};

/* server->store is open: it becomes main's. open is called for each of the others. */
enum cairn_code
cairn_srv_tiers_new(struct cairn_srv *server,
                    enum cairn_code (*open)(struct cairn_srv *server, const char *url,
                                            struct cairn_store **ret, struct cairn_error *err),
                    struct cairn_srv_tiers **ret, struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_tiers_free(struct cairn_srv_tiers *tiers); /* NULL is fine; main's is not freed */

/* Is there any store beside main? */
bool cairn_srv_tiers_any(const struct cairn_srv *server);
/* NULL: the settings name none so. */
struct cairn_srv_tier *cairn_srv_tier_find(const struct cairn_srv *server, const char *name);
bool cairn_srv_tier_is_main(const struct cairn_srv *server, const struct cairn_srv_tier *tier);
enum cairn_code cairn_srv_tier_borrow(struct cairn_srv *server, struct cairn_srv_tier *tier,
                                      struct cairn_store_worker **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* NULL is fine. */
void cairn_srv_tier_return(struct cairn_srv *server, struct cairn_srv_tier *tier,
                           struct cairn_store_worker *worker);

/* ---- one run in one store ---- */

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

/* ---- one run in all stores ---- */

struct cairn_srv_run_store {
    struct cairn_srv_tier *tier; /* NULL: the main store of a server that has no other */
    const char *name;
    struct cairn_store_worker *worker;
    bool borrowed;
    struct cairn_srv_run_objects objects;
};
struct cairn_srv_run_stores {
    struct cairn_srv *server;
    struct cairn_srv_run_store stores[CAIRN_SRV_TIERS_MAX]; /* [0]: main */
    size_t count;
};
/* worker: of the main store, the caller's. What was opened is released also after a failure. */
enum cairn_code cairn_srv_run_stores_open(struct cairn_srv_run_stores *stores,
                                          struct cairn_srv *server,
                                          struct cairn_store_worker *worker,
                                          struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_run_stores_release(struct cairn_srv_run_stores *stores);
/* Lists each; ret: all of them joined. */
enum cairn_code cairn_srv_run_stores_list(struct cairn_srv_run_stores *stores,
                                          struct cairn_srv_run_objects *ret,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* With the name of the store, where there are several. */
enum cairn_code cairn_srv_run_store_within(const struct cairn_srv_run_stores *stores, size_t index,
                                           enum cairn_code code, struct cairn_error *err);
