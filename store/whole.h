/* SPDX-License-Identifier: Apache-2.0 */
/*
 * whole: is what belongs to a version in its store, whole, and nothing else?
 *
 * Why:     a commit and a check of what was committed ask the same question of the store, and both
 *          would be wrong in the same expensive way if they took a listing for proof of absence. A
 *          restore from the store alone needs more than the shards: record, manifest, checksums,
 *          layout and the attempt's record; a check that reads the shards alone calls a version
 *          good that the next rebuild of the catalog would lose.
 * Promise: 1   an object is called missing or of another size only after a HEAD of its own said so;
 *              a listing alone proves presence, never absence. An object whose HEAD was not sent
 *              or not answered is never called missing: the look fails, or every object is known.
 *          2   one listing of the prefix, 1,000 keys a page (on a folder that is a stat of each);
 *              where the keys of this process may not list, a HEAD of each object, 32 at a time.
 *          3   what else the prefix holds is told only by a listing, so only when asked for.
 *          4   between start and finish the worker may do other requests: the first page of the
 *              listing is on its way meanwhile, so that a commit does not wait for it alone.
 *          5   an audit reads all documents (api/documents/committed.h), from the store and from
 *              nowhere else, and looks at every shard's presence, size and, where a HEAD tells it,
 *              CRC32C; and at what else is below the prefix.
 *          6   each finding has a kind, a key and a sentence; damage is told from what is only
 *              superfluous, and from what a newer release has written. A document that is damaged
 *              hides nothing that can be known without it: a manifest that the version's id proves
 *              is used without a record.
 * Limits:  one page of a listing in memory; 65,536 pages. An audit reads a shard only where a HEAD
 *          tells another CRC32C than the manifest; the rest is the caller's (cli/bucket/bucket.h).
 * Threads: one owner of the worker.
 * Next:    server/commit/commit.c, server/recovery/mend.c; cli/verbs/verify.c,
 *          server/copies/verify.c.
 */
#pragma once

#include "api/documents/committed.h"
#include "store/store.h"

/* The documents of committed versions, read from a store. tell_again: NULL, or hears of each second
 * look (S17), which has a worker of its own, and so connections of its own. */
struct cairn_document_source
cairn_store_documents(struct cairn_store_worker *worker,
                      void (*tell_again)(const char *key, const struct cairn_error *why));

/* ---- objects of one prefix ---- */

struct cairn_store_object {
    char *key; /* the caller's; sorted by strcmp over the whole list */
    uint64_t size_bytes;
    /* set by the look */
    bool known; /* a listing showed it with its size, or a HEAD was answered; else neither of the
                   next two says anything */
    bool there; /* with this size */
    bool found; /* an object is there, maybe with another size */
    uint64_t found_bytes;
    bool has_crc32c; /* the store keeps one with it, and it was asked for by a HEAD */
    uint32_t crc32c;
};
struct cairn_store_presence {
    const char *prefix; /* all keys begin with it; ends with '/' */
    struct cairn_store_object *objects;
    size_t count;
    bool ask_each; /* a HEAD of each as well, for the CRC32C that is kept with an object */
    /* Hears each key under the prefix that is none of the objects; NULL: nobody asks. */
    void (*stray)(void *owner, const char *key, uint64_t size_bytes);
    void *owner;
    /* set by the look */
    bool listed;        /* else strays are not known: these keys may not list */
    uint32_t requests;  /* that were sent */
    size_t there_count; /* objects that are there with their size */
    /* the look's own, between start and finish; it must not move */
    struct cairn_store_request list;
    struct cairn_store_listing listing;
    char *page; /* that was asked for; NULL: the first */
    bool list_ready;
};
/* After a look that was CAIRN_OK, which leaves every object known. CAIRN_CORRUPT: "it is missing"
 * or "it has N bytes, not M", where N and M differ. */
enum cairn_code cairn_store_object_check(const struct cairn_store_object *object,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Every start has one finish, on the same worker; `presence` stays where it is until then. */
void cairn_store_presence_start(struct cairn_store_presence *presence,
                                struct cairn_store_worker *worker);
enum cairn_code cairn_store_presence_finish(struct cairn_store_presence *presence,
                                            struct cairn_store_worker *worker,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* Both at once. */
enum cairn_code cairn_store_presence_look(struct cairn_store_presence *presence,
                                          struct cairn_store_worker *worker,
                                          struct cairn_error *err) CAIRN_MUST_USE;

/* ---- a committed version ---- */

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
