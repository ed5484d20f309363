/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mend: reads and verifies one run in all stores, and imports it into the catalog.
 *
 * Why:     a reconcile of a run and a reindex of a bucket must believe the same.
 * Promise: Q37  a version is verified if one store has its record, the manifest with the record's
 *               digest, the layout, and every object with its length; otherwise `cause` says what
 *               is wrong, `damaged` or `newer` (of a newer release) why; with neither it is the
 *               remains of a deletion.
 *          1    one transaction imports a run and ends its freeze (mend.c).
 * Limits:  as server/guard/stores.h; a copy that its row calls whole is not verified again.
 * Threads: one owner.
 * Next:    server/recovery/mend.c, server/recovery/reindex.c, server/recovery/compare.c.
 */
#pragma once

#include "server/guard/stores.h"

struct srv_mend_attempt {
    uint64_t number;
    bool readable;
    bool newer; /* unreadable, since a newer release wrote it */
    struct cairn_attempt_record record;
    char cause[300];
};
/* State of a version's copy in one store. */
enum srv_copy_seen {
    SRV_SEEN_NOTHING,
    SRV_SEEN_OBJECTS, /* no record: an unfinished copy or removal */
    SRV_SEEN_REMAINS, /* a record alone: remains of a deletion */
    SRV_SEEN_DAMAGED,
    SRV_SEEN_NEWER, /* of a newer release: not judged */
    SRV_SEEN_WHOLE,
    SRV_SEEN_RECORD, /* has a record and a row; not verified */
};
struct srv_mend_version {
    struct cairn_version_place place;
    bool known;    /* was ever committed in the catalog */
    bool verified; /* record, manifest and objects, in one store */
    bool damaged;  /* a store has it damaged */
    bool newer;    /* a store has it from a newer release; never set aside */
    enum srv_copy_seen copies[SRV_TIERS_MAX];
    struct cairn_record record;
    struct cairn_manifest manifest;
    char cause[300];
};
struct srv_mend_missing {
    struct cairn_version_id id;
    uint64_t step;
    bool gone; /* the manifest is missing, too */
};
struct srv_mend {
    struct srv *server;
    struct srv_run_stores stores;
    struct srv_run_objects objects;
    /* NULL, or called for a damaged copy (CAIRN_CORRUPT) or a newer release's
     * (CAIRN_UNSUPPORTED). */
    void (*tell)(void *owner, const char *store, const char *key, enum cairn_code code,
                 const char *cause);
    void *owner;
    struct srv_mend_attempt *attempts;
    size_t attempt_count;
    struct srv_mend_version *versions;
    size_t version_count;
    /* recorded in the catalog, not in the store */
    struct srv_mend_missing *missing;
    size_t missing_count, missing_capacity;
    size_t taken, set_aside, trashed;
    uint64_t given_up;
};
/* Opens and lists the stores. server and objects.name are set; worker: of the main store. */
enum cairn_code srv_mend_open(struct srv_mend *mend, struct cairn_store_worker *worker,
                              struct cairn_error *err) CAIRN_MUST_USE;
void srv_mend_release(struct srv_mend *mend);
enum cairn_code srv_mend_is_known(const struct srv_mend *mend, const struct cairn_version_id *id,
                                  bool *ret, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code srv_mend_read_attempts(struct srv_mend *mend,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Allocates all versions, to be read by index. */
enum cairn_code srv_mend_versions_new(struct srv_mend *mend,
                                      struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code srv_mend_read_version(struct srv_mend *mend, size_t index,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Reads an unknown version in each store with its record, nearest first; sets all of `one` but
 * known. */
enum cairn_code srv_mend_look_at_copies(const struct srv_mend *mend, struct srv_mend_version *one,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* True if the rows of a known version differ from its stores; verifies and writes nothing. */
enum cairn_code srv_mend_copies_differ(const struct srv_mend *mend, struct srv_mend_version *one,
                                       bool *ret, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code srv_mend_find_missing(struct srv_mend *mend,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Imports the verified versions of [from, to) in a transaction of their own, before apply, and
 * frees their manifests. Only for a catalog without other users. */
enum cairn_code srv_mend_take(struct srv_mend *mend, size_t from, size_t to,
                              struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code srv_mend_apply(struct srv_mend *mend, struct cairn_error *err) CAIRN_MUST_USE;
