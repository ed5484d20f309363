/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier_reads: bytes and documents of a version, from the nearest store that has it whole.
 *
 * Why:     a copy that is damaged or away must not fail a restore that another copy could serve,
 *          and readers of shards, tensors, manifests and copiers must fall back alike.
 * Promise: P3   what is handed out was proven, whichever store it came from: blocks by their
 *               checksums, documents by the manifest's digest.
 *          1    the nearest store is asked first, those whose copy is known to be damaged behind
 *               the others; one that did not answer is asked last for CAIRN_SRV_TIER_SHUN_MS.
 *          2    where no store has a whole range right, each block of it is looked for by itself.
 *          3    a copy of which a wrong block was read, or an object was missing though its store
 *               is there, is known to be damaged from then on (damage.h), also the only one.
 * Limits:  a borrowed worker a call and store.
 * Threads: any, with the main store's worker of its own.
 * Next:    server/guard/tiers.h, server/reads/source.c, server/reads/cache.c, server/copies/promote.c.
 */
#pragma once

#include "server/guard/tiers.h"
#include "store/documents.h"
#include "store/range.h"

#define CAIRN_SRV_TIER_SHUN_MS 10000

/* Where a version lies whole, nearest first; empty: in the main store alone. */
struct cairn_srv_where {
    char version[CAIRN_VERSION_ID_BYTES];
    struct cairn_srv_tier *tiers[CAIRN_SRV_TIERS_MAX];
    bool damaged[CAIRN_SRV_TIERS_MAX];       /* that copy is known to be */
    int64_t changed_ms[CAIRN_SRV_TIERS_MAX]; /* of its row */
    size_t count;
};
/* Looks at the catalog, where there is a store beside main. CAIRN_NOT_FOUND: the settings name none
 * of the stores that have it. except: NULL, or a store to leave out. */
enum cairn_code cairn_srv_where_of(struct cairn_srv *server, const char *version,
                                   const char *except, struct cairn_srv_where *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;

/* It did not answer a reader within the last CAIRN_SRV_TIER_SHUN_MS. */
bool cairn_srv_tier_is_away(const struct cairn_srv_tier *tier);

/* How many tags a version of that many shards needs: one for each object of each store. */
size_t cairn_srv_tier_tags(size_t shards);

struct cairn_srv_tier_range {
    const char *key;
    uint64_t offset, length;
    void *into;
    struct cairn_store_tags *tags; /* of cairn_srv_tier_tags(object_count) */
    size_t object, object_count;
    uint64_t object_bytes;
    const void *checksums; /* of the range's blocks */
    uint32_t wait_ms;
    void (*again)(void *owner, const struct cairn_error *why); /* store/range.h */
    void *owner;
};
enum cairn_code cairn_srv_tier_read(struct cairn_srv *server, struct cairn_store_worker *worker,
                                    const struct cairn_srv_where *where,
                                    const struct cairn_srv_tier_range *range,
                                    struct cairn_error *err) CAIRN_MUST_USE;

/* One version that is being read: where it lies, and the tags of its objects. Several threads may
 * read at once. */
struct cairn_srv_reading;
enum cairn_code cairn_srv_reading_new(struct cairn_srv *server, const char *version,
                                      size_t object_count, struct cairn_srv_reading **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_reading_free(struct cairn_srv_reading *reading); /* NULL is fine */
/* The one that a read would ask first now. */
struct cairn_store *cairn_srv_reading_nearest(const struct cairn_srv_reading *reading);
/* tags and object_count of range are the reading's. */
enum cairn_code cairn_srv_reading_read(struct cairn_srv_reading *reading,
                                       struct cairn_store_worker *worker,
                                       struct cairn_srv_tier_range *range,
                                       struct cairn_error *err) CAIRN_MUST_USE;

/* A source of documents for api/documents/committed.h; it must outlive its use. */
struct cairn_srv_tier_documents {
    struct cairn_srv *server;
    struct cairn_store_worker *worker;
    const struct cairn_srv_where *where;
};
struct cairn_document_source
cairn_srv_tier_documents(struct cairn_srv_tier_documents *documents,
                         void (*tell_again)(const char *key, const struct cairn_error *why));
