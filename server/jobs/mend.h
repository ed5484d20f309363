/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mend: what a reconcile found, and the one transaction that takes it over.
 *
 * Why:     a run is thawed by the transaction that makes its rows say what its store says, or not
 *          at all.
 * Promise: 1   all rows and the end of the freeze in one transaction.
 *          2   a version moves by api/lifecycle.def; what the store calls committed and this
 *              catalog open or given up is taken over as committed.
 * Limits:  -
 * Threads: one owner.
 * Next:    server/jobs/reconcile.c.
 */
#pragma once

#include "api/records.h"
#include "server/jobs/run_objects.h"
#include "server/server.h"

struct cairn_srv_mend_attempt {
    uint64_t number;
    bool readable;
    struct cairn_attempt_record record;
    char cause[300];
};
struct cairn_srv_mend_version {
    struct cairn_version_place place;
    bool known;    /* committed in the catalog, now or once */
    bool verified; /* record, manifest and objects */
    bool damaged;  /* something is there that is not what it should be */
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
    struct cairn_srv_run_objects objects;
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
