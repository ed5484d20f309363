/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recovery: the catalog against the stores: compared, mended run by run, or made again from them.
 *
 * Why:     a backup of the catalog that is put back looks like a good catalog: it answers with an
 *          old `latest`, and in time it deletes what was acknowledged after it (V39); and a catalog
 *          that is lost with its backups must not take the checkpoints with it.
 * Promise: Q35  in the life of a server a run is compared before the first answer about it and
 *               before the first sweep in it; what is newer in the store freezes that run (Q36).
 *          Q37  a version is committed when one store has its record, the manifest of the record's
 *               digest, the layout, and every object with its length.
 *          1    a reconcile takes over what the stores say of a frozen run in one transaction,
 *               which ends the freeze; nothing is deleted, and no object is written.
 *          2    a store that does not answer is a failure, never a statement about a version.
 *          The numbered promises stand in compare.c, mend.c and reindex.c.
 * Limits:  as server/guard/run_stores.h: 1,000,000 versions and attempts of a run. A run's records
 *          are in memory at once.
 * Threads: compare: any, one thread at a time a run, the others get `busy`; reconcile: the sweeping
 *          thread; a mend and a reindex have one owner.
 * Next:    server/guard/freeze.h, server/guard/run_stores.h, server/ledger/frozen.h.
 */
#pragma once

#include "api/records.h"
#include "server/guard/run_stores.h"
#include "server/server.h"

/* ---- comparing (compare.c) ---- */

struct cairn_srv_compared;
enum cairn_code cairn_srv_compared_new(struct cairn_srv_compared **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_compared_free(struct cairn_srv_compared *compared); /* NULL is fine */
/* CAIRN_OK: compared now or before. *ret_busy: another thread compares it, nothing is known yet.
 * CAIRN_CATALOG_BEHIND: the run was found to be ahead, and is frozen. */
enum cairn_code cairn_srv_compare(struct cairn_srv *server, struct cairn_store_worker *worker,
                                  const struct cairn_run_name *name, bool *ret_busy,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Was it compared in this life of the server, with whatever end? */
bool cairn_srv_is_compared(struct cairn_srv *server, const struct cairn_run_name *name);
/* Every run of the catalog that was not compared yet. One that was found ahead is no failure. */
enum cairn_code cairn_srv_compare_all(struct cairn_srv *server, struct cairn_store_worker *worker,
                                      bool *ret_busy, struct cairn_error *err) CAIRN_MUST_USE;

/* ---- mending (mend.c) ---- */

/* Takes up the frozen runs for which a reconcile was requested. */
void cairn_srv_reconcile_requested(struct cairn_srv *server, struct cairn_store_worker *worker);

struct cairn_srv_mend_attempt {
    uint64_t number;
    bool readable;
    bool newer; /* not readable, because a newer release wrote it */
    struct cairn_attempt_record record;
    char cause[300];
};
/* What one store has of a version. */
enum cairn_srv_copy_seen {
    CAIRN_SRV_SEEN_NOTHING,
    CAIRN_SRV_SEEN_OBJECTS, /* without a record: a copy half made, or half removed */
    CAIRN_SRV_SEEN_REMAINS, /* a record alone: the rest of a deletion */
    CAIRN_SRV_SEEN_DAMAGED,
    CAIRN_SRV_SEEN_NEWER, /* a newer release wrote it, so this one cannot tell */
    CAIRN_SRV_SEEN_WHOLE,
    CAIRN_SRV_SEEN_RECORD, /* its record; the catalog knows the copy, so it was not verified */
};
struct cairn_srv_mend_version {
    struct cairn_version_place place;
    bool known;    /* committed in the catalog, now or once */
    bool verified; /* record, manifest and objects, in some store */
    bool damaged;  /* in some store something is there that is not what it should be */
    bool newer;    /* in some store it is of a newer release; never set aside */
    enum cairn_srv_copy_seen copies[CAIRN_SRV_TIERS_MAX]; /* by the index of the store */
    struct cairn_record record;
    struct cairn_manifest manifest;
    char cause[300];
};
struct cairn_srv_mend_missing {
    struct cairn_version_id id;
    uint64_t step;
    bool gone; /* the manifest, too */
};
struct cairn_srv_mend {
    struct cairn_srv *server;
    struct cairn_srv_run_stores stores;
    struct cairn_srv_run_objects objects; /* of all of them */
    /* NULL, or called for each copy that is damaged (CAIRN_CORRUPT), or of a newer release
     * (CAIRN_UNSUPPORTED). */
    void (*tell)(void *owner, const char *store, const char *key, enum cairn_code code,
                 const char *cause);
    void *owner;
    struct cairn_srv_mend_attempt *attempts; /* by number */
    size_t attempt_count;
    struct cairn_srv_mend_version *versions;
    size_t version_count;
    struct cairn_srv_mend_missing *missing; /* recorded in the catalog, no record in the store */
    size_t missing_count, missing_capacity;
    /* what was done */
    size_t taken, set_aside, trashed;
    uint64_t given_up;
};
/* server and objects.name are set. Opens the stores and lists them. worker: of the main one. */
enum cairn_code cairn_srv_mend_open(struct cairn_srv_mend *mend, struct cairn_store_worker *worker,
                                    struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_mend_release(struct cairn_srv_mend *mend);
enum cairn_code cairn_srv_mend_is_known(const struct cairn_srv_mend *mend,
                                        const struct cairn_version_id *id, bool *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* After it was opened. */
enum cairn_code cairn_srv_mend_read_attempts(struct cairn_srv_mend *mend,
                                             struct cairn_error *err) CAIRN_MUST_USE;
/* Room for all versions; then each is read by its index. */
enum cairn_code cairn_srv_mend_versions_new(struct cairn_srv_mend *mend,
                                            struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_mend_read_version(struct cairn_srv_mend *mend, size_t index,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* Of a version that the catalog does not know: each store that has its record, the nearest first;
 * sets all of `one` but known. */
enum cairn_code cairn_srv_mend_look_at_copies(const struct cairn_srv_mend *mend,
                                              struct cairn_srv_mend_version *one,
                                              struct cairn_error *err) CAIRN_MUST_USE;
/* Of a known version: do its rows differ from its stores? Nothing is verified or written. */
enum cairn_code cairn_srv_mend_copies_differ(const struct cairn_srv_mend *mend,
                                             struct cairn_srv_mend_version *one, bool *ret,
                                             struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_mend_find_missing(struct cairn_srv_mend *mend,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* The verified ones of [from, to), in a transaction of their own, before the rest is applied; their
 * manifests are let go. For a catalog that has no other user meanwhile. */
enum cairn_code cairn_srv_mend_take(struct cairn_srv_mend *mend, size_t from, size_t to,
                                    struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_mend_apply(struct cairn_srv_mend *mend,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* ---- cairn-server --reindex, which is what `cairn reindex` runs (reindex.c) ---- */

struct cairn_srv_reindexing {
    bool wanted, dry, json, json_progress, quiet, force;
    const char *without; /* NULL, or further stores to leave out, with commas between */
};
/* Takes --reindex, --dry-run, --json, --progress=none, --progress=json and --without=NAMES out of
 * argv. */
void cairn_srv_reindexing_take(int *argc, char **argv, struct cairn_srv_reindexing *ret);
/* server has settings, clock, random and its open stores; what is made besides is the caller's to
 * take down. settings: the same as the server's. */
enum cairn_code cairn_srv_reindexing_run(const struct cairn_srv_reindexing *asked,
                                         struct cairn_srv *server,
                                         struct cairn_srv_settings *settings,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Says the failure in the form that was asked for. */
void cairn_srv_reindexing_tell(const struct cairn_srv_reindexing *asked,
                               const struct cairn_error *why);
