/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mend: what the stores say of one run, read and verified for the catalog, and its taking over.
 *
 * Why:     a reconcile of a run and a reindex of a bucket believe the same things.
 * Promise: Q37  a version is verified when in one store its record, the manifest of the record's
 *               digest, the layout, and every object with its length are there; else `cause` says
 *               what is not so, `damaged` and `newer` whether that is damage or a newer release's;
 *               with neither it is the rest of a deletion.
 *          1    what is taken over and the end of the freeze are one transaction (mend.c).
 * Limits:  as server/guard/stores.h; a copy that its row calls whole is not verified again.
 * Threads: one owner.
 * Next:    server/recovery/mend.c, server/recovery/reindex.c, server/recovery/compare.c.
 */
#pragma once

#include "api/documents/records.h"
#include "server/guard/stores.h"

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
