/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit: is what belongs to a committed version in its store, and nothing else?
 *
 * Why:     a restore from the store alone needs more than the shards: record, manifest, checksums,
 *          layout and the attempt's record. A check that reads the shards alone calls a version
 *          good that the next rebuild of the catalog would lose.
 * Promise: 1   each finding has a kind, a key and a sentence; damage is told from what is only
 *              superfluous, and from what a newer release has written.
 *          2   read are all documents (api/documents/committed.h), from the store and from nowhere else;
 *              looked at are every shard's presence, size and, where a HEAD tells it, CRC32C; and
 *              what else is below the prefix.
 *          3   a document that is damaged hides nothing that can be known without it: a manifest
 *              that the version's id proves is used without a record.
 * Limits:  shards are read only where a HEAD tells another CRC32C than the manifest; the rest is
 *          the caller's (cli/fetch.h).
 * Threads: one owner of the worker.
 * Next:    server/copies/verify_calls.c, cli/verbs/verify.c.
 */
#pragma once

#include "api/documents/committed.h"
#include "store/store.h"

enum cairn_store_finding {
    CAIRN_STORE_FINDING_RECORD,  /* committed.json is missing or another one */
    CAIRN_STORE_FINDING_ATTEMPT, /* its record is missing or another one, or the copy is another */
    CAIRN_STORE_FINDING_OBJECT,  /* shard, checksums.bin, manifest.json or layout */
    CAIRN_STORE_FINDING_STRAY,   /* an object of nobody; harms nothing */
    CAIRN_STORE_FINDING_NEWER,   /* a document of a newer release: not read, and no damage */
};
const char *cairn_store_finding_text(enum cairn_store_finding finding); /* "record", "stray", ... */

struct cairn_store_audit {
    /* The caller's: its place, and the manifest's digest where a catalog knows it. What was proven
     * stays in it. */
    struct cairn_committed *committed;
    bool ask_each; /* a HEAD of each object: slower, and sees stored checksums */
    void (*found)(void *owner, enum cairn_store_finding finding, const char *key, const char *text);
    void *owner;
    /* set by the look */
    size_t damaged, strays, newer;
    bool record_missing; /* not there at all */
    bool listed;         /* else strays are not known */
    bool readable;       /* manifest and checksums are proven: shards can be read */
};
enum cairn_code cairn_store_audit_look(struct cairn_store_audit *audit,
                                       struct cairn_store_worker *worker,
                                       struct cairn_error *err) CAIRN_MUST_USE;
