/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mend: what a reconcile found, and the one transaction that takes it over.
 *
 * Why:     a run is thawed by the transaction that makes its rows say what its store says, or not
 *          at all.
 * Promise: 1   all rows and the end of the freeze in one transaction; rows of copies of versions
 *              that are known are put right before it (mend_copies.h#5).
 *          2   a version moves by api/lifecycle.def; what the store calls committed and this
 *              catalog open or given up is taken over as committed.
 * Limits:  -
 * Threads: one owner.
 * Next:    server/recovery/reconcile.c, server/recovery/mend_copies.h.
 */
#pragma once

#include "api/documents/records.h"
#include "server/guard/run_stores.h"
#include "server/server.h"

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
    /* NULL, or hears of each copy that is damaged (CAIRN_CORRUPT), or of a newer release
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
enum cairn_code cairn_srv_mend_find_missing(struct cairn_srv_mend *mend,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* The verified ones of [from, to), in a transaction of their own, before the rest is applied; their
 * manifests are let go. For a catalog that nobody uses meanwhile. */
enum cairn_code cairn_srv_mend_take(struct cairn_srv_mend *mend, size_t from, size_t to,
                                    struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_mend_apply(struct cairn_srv_mend *mend,
                                     struct cairn_error *err) CAIRN_MUST_USE;
