/* SPDX-License-Identifier: Apache-2.0 */
/*
 * purge: the bytes that deletes have left in a bucket with versioning.
 *
 * Why:     there a delete puts a marker before an object, and the object goes on costing money
 *          until it is deleted by its version id.
 * Promise: 1   only versions below the given prefix, or of exactly the given key, are deleted, and
 *              only after a listing of that prefix alone has named them.
 *          2   no delete marker goes while a version is left there: what a delete has hidden is
 *              never seen again, whatever order the store works in and wherever this ends.
 *          3   what is told to be left was listed after the deletions; a store that only says it
 *              has deleted is not believed.
 *          4   a version that may not be deleted (object lock, legal hold, no such right) keeps
 *              none of the others from going.
 * Limits:  one page of a listing in memory; two listings of the prefix.
 * Threads: one owner of the worker.
 * Next:    server/sweep/sweep_objects.c; tests/s3faults/test_versions.c.
 */
#pragma once

#include "store/store.h"

struct cairn_store_purge {
    const char *prefix; /* or, with is_key, one whole key */
    bool is_key;
    bool (*spares)(const char *key); /* these keep all their versions; NULL: none does */
    int64_t before_ms; /* only what is older, by the store's clock; 0: all */
    /* set by the purge */
    uint64_t freed_objects, freed_bytes;
    uint64_t left_objects, left_bytes; /* markers are none */
    bool uncounted; /* these keys may not list versions, or delete none: how much is not known */
    enum cairn_code why; /* of the first that was left; CAIRN_OK: nothing was */
    char reason[160];     /* as the store worded it */
};
/* Left or not, CAIRN_OK: the store has answered. Nothing is asked where cairn_store_keeps_versions
 * is false. */
enum cairn_code cairn_store_purge(struct cairn_store_worker *worker,
                                  struct cairn_store_purge *purge,
                                  struct cairn_error *err) CAIRN_MUST_USE;
