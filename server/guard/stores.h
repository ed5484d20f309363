/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stores: this server's stores by name, and what they have of one run: attempt records and
 * committed versions.
 *
 * Why:     copies of a version lie in several stores, since a fast one is small and a durable one
 *          slow; copying, reading and deleting find a store by name, nearest first. A catalog is
 *          compared with, and repaired from, one reading of its stores; a version that one store
 *          lacks is lost only if the others lack it, too.
 * Promise: 1   the main store is one of them, named "main", so that readers and copiers need no
 *              special case.
 *          2   the order is that of the setting `stores`, nearest first; main is first if not
 *              named.
 *          3   a borrowed worker belongs to its borrower until it is returned.
 *          4   keys are parsed strictly: a key that this program would not have written is no
 *              attempt and no version.
 *          5   an attempt's record that is missing or invalid is read from its copy.
 *          6   a version is read as committed if its record, and the manifest with the record's
 *              digest, exist and belong to it; otherwise the error says why.
 *          7   several stores are joined: a version, mark or attempt counts if any store has it.
 *          8   the main store is first, then the others, nearest first; a store whose identity
 *              differs from the catalog's is not read.
 *          9   an unreachable or unlistable store is an error that names it, never a store without
 *              the run.
 * Limits:  SRV_TIERS_MAX stores with main; those in S3 share its settings, except for parts
 *          of their URLs. 1,000,000 versions and attempts of a run; one page of a listing at a
 *          time.
 * Threads: tiers: immutable after start, except idle workers, which are locked by server_tiers; a
 *          listing has one owner.
 * Next:    server/guard/identity.h, server/recovery/compare.c, server/recovery/recovery.h;
 *          docs/tiers.md.
 */
#pragma once

#include "common/lock.h"
#include "server/ledger/copies.h"
#include "server/server.h"

struct srv_idle;
struct srv_copying;

struct srv_tier {
    char name[SRV_TIER_NAME_BYTES];
    struct cairn_store *store;
    struct srv_idle *idle;
    bool left_out;       /* a reindex does not contact it */
    _Atomic bool unread; /* its copies were not yet compared with the catalog since the start */
    _Atomic uint64_t away_until_ms; /* mono clock: skip until then, since it did not answer */
};
struct srv_tiers {
    struct srv_tier tiers[SRV_TIERS_MAX];
    size_t count, main; /* main: index of the main store */
    struct cairn_lock lock;
    struct srv_copying *copying; /* copies under way; locked */
};

/* server->store is open and becomes main; open is called for the others. */
enum cairn_code srv_tiers_new(struct srv *server,
                              enum cairn_code (*open)(struct srv *server, const char *url,
                                                      struct cairn_store **ret,
                                                      struct cairn_error *err),
                              struct srv_tiers **ret, struct cairn_error *err) CAIRN_MUST_USE;
void srv_tiers_free(struct srv_tiers *tiers); /* accepts NULL; keeps main open */

bool srv_tiers_any(const struct srv *server);
/* NULL: not in the settings. */
struct srv_tier *srv_tier_find(const struct srv *server, const char *name);
bool srv_tier_is_main(const struct srv *server, const struct srv_tier *tier);
enum cairn_code srv_tier_borrow(struct srv *server, struct srv_tier *tier,
                                struct cairn_store_worker **ret,
                                struct cairn_error *err) CAIRN_MUST_USE;
/* Accepts NULL. */
void srv_tier_return(struct srv *server, struct srv_tier *tier, struct cairn_store_worker *worker);

/* ---- one run in one store ---- */

struct srv_seen {
    struct cairn_version_id id;
    uint64_t step;
    bool trashed;           /* by a mark */
    uint64_t superseded_by; /* newest attempt of a mark; 0: none */
};
struct srv_run_objects {
    struct cairn_run_name name;
    struct srv_seen *versions; /* with a committed.json, by id; owned */
    size_t version_count, version_capacity;
    struct srv_seen *marks; /* owned */
    size_t mark_count, mark_capacity;
    uint64_t *attempts; /* attempt records, ascending; owned */
    size_t attempt_count, attempt_capacity;
    struct srv_seen *touched; /* with any object but marks, by id; owned */
    size_t touched_count, touched_capacity;
    uint64_t trash_changes; /* counter of the rows, read before the listing */
    bool listed;            /* false: listing is not permitted, nothing is known */
};
void srv_run_objects_release(struct srv_run_objects *objects);
const struct srv_seen *srv_run_objects_find(const struct srv_run_objects *objects, const char *id);
/* True if the store has any object of the version, with or without a record. */
bool srv_run_objects_touch(const struct srv_run_objects *objects, const char *id);
bool srv_run_objects_has_attempt(const struct srv_run_objects *objects, uint64_t number);
/* attempts_only: skips versions. */
enum cairn_code srv_run_objects_list(struct srv_run_objects *objects,
                                     struct cairn_store_worker *worker, bool attempts_only,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* CAIRN_CORRUPT: no valid record of that attempt. */
enum cairn_code srv_attempt_read(struct cairn_store_worker *worker,
                                 const struct cairn_run_name *name, uint64_t attempt,
                                 struct cairn_attempt_record *ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* Reads record and manifest of one version; CAIRN_CORRUPT or CAIRN_NOT_FOUND says what is wrong. */
enum cairn_code srv_committed_read(struct cairn_store_worker *worker,
                                   const struct cairn_version_place *place,
                                   struct cairn_record *ret_record,
                                   struct cairn_manifest *ret_manifest,
                                   struct cairn_error *err) CAIRN_MUST_USE;

/* ---- one run in all stores ---- */

struct srv_run_store {
    struct srv_tier *tier; /* NULL: main, without other stores */
    const char *name;
    struct cairn_store_worker *worker;
    bool borrowed;
    struct srv_run_objects objects;
};
struct srv_run_stores {
    struct srv *server;
    struct srv_run_store stores[SRV_TIERS_MAX];
    size_t count;
};
/* worker: of the main store, kept by the caller. Release also after a failure. */
enum cairn_code srv_run_stores_open(struct srv_run_stores *stores, struct srv *server,
                                    struct cairn_store_worker *worker,
                                    struct cairn_error *err) CAIRN_MUST_USE;
void srv_run_stores_release(struct srv_run_stores *stores);
enum cairn_code srv_run_stores_list(struct srv_run_stores *stores, struct srv_run_objects *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Adds the store's name to the error, if there are several stores. */
enum cairn_code srv_run_store_within(const struct srv_run_stores *stores, size_t index,
                                     enum cairn_code code, struct cairn_error *err);
