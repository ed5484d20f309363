/* SPDX-License-Identifier: Apache-2.0 */
/*
 * whole: checks that a version's objects in its store are complete, and that nothing else is there.
 *
 * Why:     a commit and a later check must not take a listing for proof of absence. A restore from
 *          the store alone also needs record, manifest, checksums, layout and the attempt's record;
 *          a check of shards alone would pass a version that a rebuild of the catalog loses.
 * Promise: 1   an object is reported missing or of another size only after a HEAD of its own; a
 *              listing proves presence, never absence. Without an answer to its HEAD no object is
 *              reported missing: the check fails, or every object is known.
 *          2   one listing of the prefix, 1,000 keys a page (on a folder a stat of each object, and
 *              no folder is read unless strays are wanted); where the
 *              credentials may not list, a HEAD of each object, 32 at a time.
 *          3   other objects below the prefix need a listing, so they are reported only on request.
 *          4   between start and finish the worker may run other requests, with the first page of
 *              the listing under way, so that a commit does not wait for it alone.
 *          5   an audit reads all documents (api/documents/committed.h) from the store only, and
 *              checks every shard's presence, size and, if HEAD has it, CRC32C, and finds strays.
 *          6   each finding has a kind, a key and a sentence; damage, superfluous objects and
 *              documents of a newer release are distinct. A damaged document hides nothing provable
 *              without it: a manifest proven by the version's id is used without a record.
 * Limits:  one page of a listing in memory; 65,536 pages. An audit reads a shard only where HEAD
 *          and manifest disagree on the CRC32C; cli/bucket/bucket.h reads more.
 * Threads: one owner of the worker.
 * Next:    server/commit/commit.c, server/recovery/mend.c; cli/verbs/verify.c,
 *          server/copies/verify.c.
 */
#pragma once

#include "api/documents/committed.h"
#include "store/store.h"

/* The documents of committed versions, read from a store. tell_again: NULL, or called for each
 * second read (S17), which uses a worker, and so connections, of its own. */
struct cairn_document_source
cairn_store_documents(struct cairn_store_worker *worker,
                      void (*tell_again)(const char *key, const struct cairn_error *why));

/* ---- objects of one prefix ---- */

struct cairn_store_object {
    char *key; /* the caller's; sorted by strcmp over the whole list */
    uint64_t size_bytes;
    /* results of the check */
    bool known; /* listed with its size, or HEAD answered; else `there` and `found` mean nothing */
    bool there; /* with this size */
    bool found; /* an object exists, perhaps with another size */
    uint64_t found_bytes;
    bool has_crc32c; /* a HEAD returned a stored CRC32C */
    uint32_t crc32c;
};
struct cairn_store_presence {
    const char *prefix; /* all keys begin with it; ends with '/' */
    struct cairn_store_object *objects;
    size_t count;
    bool ask_each; /* also HEAD each object, for its stored CRC32C */
    /* Called for each other key under the prefix; NULL: strays are not wanted. */
    void (*stray)(void *owner, const char *key, uint64_t size_bytes);
    void *owner;
    /* results of the check */
    bool listed;        /* false: the credentials may not list, so strays are unknown */
    uint32_t requests;  /* requests sent */
    size_t there_count; /* objects present with the expected size */
    /* private between start and finish; must not move */
    struct cairn_store_request list;
    struct cairn_store_listing listing;
    char *page;  /* the page under way; NULL: the first */
    size_t next; /* the object behind the last one that was listed */
    bool list_ready;
};
/* Call after a check that was CAIRN_OK, which leaves every object known. CAIRN_CORRUPT: "it is
 * missing" or "it has N bytes, not M", where N and M differ. */
enum cairn_code cairn_store_object_check(const struct cairn_store_object *object,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Every start needs one finish on the same worker; `presence` must not move before it. */
void cairn_store_presence_start(struct cairn_store_presence *presence,
                                struct cairn_store_worker *worker);
enum cairn_code cairn_store_presence_finish(struct cairn_store_presence *presence,
                                            struct cairn_store_worker *worker,
                                            struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_store_presence_look(struct cairn_store_presence *presence,
                                          struct cairn_store_worker *worker,
                                          struct cairn_error *err) CAIRN_MUST_USE;

/* ---- a committed version ---- */

enum cairn_store_finding {
    CAIRN_STORE_FINDING_RECORD,  /* committed.json is missing or differs */
    CAIRN_STORE_FINDING_ATTEMPT, /* the attempt's record or its copy is missing or differs */
    CAIRN_STORE_FINDING_OBJECT,  /* shard, checksums.bin, manifest.json or layout */
    CAIRN_STORE_FINDING_STRAY,   /* an unknown object; harmless */
    CAIRN_STORE_FINDING_NEWER,   /* a document of a newer release: not read, no damage */
};
const char *cairn_store_finding_text(enum cairn_store_finding finding); /* "record", "stray", ... */

struct cairn_store_audit {
    /* The caller's: place and, if a catalog has it, manifest digest. Receives what was proven. */
    struct cairn_committed *committed;
    bool ask_each; /* HEAD each object: slower, but compares stored checksums */
    void (*found)(void *owner, enum cairn_store_finding finding, const char *key, const char *text);
    void *owner;
    /* results of the check */
    size_t damaged, strays, newer;
    bool record_missing; /* no record exists */
    bool listed;         /* false: strays are unknown */
    bool readable;       /* manifest and checksums are proven: shards can be read */
};
enum cairn_code cairn_store_audit_look(struct cairn_store_audit *audit,
                                       struct cairn_store_worker *worker,
                                       struct cairn_error *err) CAIRN_MUST_USE;
