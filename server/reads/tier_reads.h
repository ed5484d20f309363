/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier_reads: bytes and documents of a version, from memory or the nearest store that has it whole.
 *
 * Why:     a copy that is damaged or away must not fail a restore that another copy could serve,
 *          and readers of shards, tensors, manifests and copiers must fall back alike. A committed
 *          version has no shard rows: each ranged read needs its manifest, and a store request per
 *          range would double the latency. A repair must know which copy is damaged, which a read
 *          that falls back never says.
 * Promise: P3   what is handed out was proven, whichever store it came from: blocks by their
 *               checksums, documents by the manifest's digest.
 *          1    the nearest store is asked first, those whose copy is known to be damaged behind
 *               the others; one that did not answer is asked last for CAIRN_SRV_TIER_SHUN_MS.
 *          2    where no store has a whole range right, each block of it is looked for by itself.
 *          3    a copy of which a wrong block was read, or an object was missing though its store
 *               is there, is known to be damaged from then on (damage.h), also the only one.
 *          4    the cache hands out a manifest only when its SHA-256 is the one that the commit's
 *               transaction kept, and its checksums' the one that the manifest names; a missing or
 *               different one is CAIRN_CORRUPT naming run and step.
 *          5    what the cache handed out stays until it is given back, also when it forgets it.
 *          6    a check reads every block of a shard from the given store and no other, and
 *               compares it with checksums.bin; what is wrong is read once more before it counts
 *               (S17). An object that is missing or of another size is CAIRN_CORRUPT, also one of 0
 *               bytes; what the store does not answer or refuses stays that.
 * Limits:  a borrowed worker a call and store. In the cache 64 entries and 512 MiB that are not
 *          held. A check has CAIRN_SRV_CHECK_BYTES of memory and one range under way.
 * Threads: any, with the main store's worker of its own; the cache is locked by server_cache, and
 *          what it handed out is immutable.
 * Next:    server/guard/stores.h, server/reads/source.h, server/copies/verify.c.
 */
#pragma once

#include "api/documents/committed.h"
#include "api/documents/manifest.h"
#include "api/table/layout.h"
#include "server/guard/stores.h"
#include "server/ledger/versions.h"
#include "server/server.h"
#include "store/range.h"
#include "store/whole.h"

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

/* ---- the cache: manifests with checksums, layouts and texts about versions in use ---- */

struct cairn_srv_held {
    struct cairn_buf text;      /* manifest.json or the layout, as stored; or what was kept */
    struct cairn_buf checksums; /* of a manifest */
    struct cairn_manifest manifest;
    struct cairn_layout layout;
    bool is_layout;
    /* the cache's own */
    char key[CAIRN_KEY_BYTES_MAX + 1];
    uint32_t holders;
    uint64_t used;
    struct cairn_srv_held *next;
};

enum cairn_code cairn_srv_cache_new(struct cairn_srv_cache **ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_cache_free(struct cairn_srv_cache *cache); /* NULL is fine; nothing is held */
enum cairn_code cairn_srv_cache_manifest(struct cairn_srv *server,
                                         struct cairn_store_worker *worker,
                                         const struct cairn_srv_version *version,
                                         struct cairn_srv_held **ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* CAIRN_NOT_FOUND when the version has none. */
enum cairn_code cairn_srv_cache_layout(struct cairn_srv *server, struct cairn_store_worker *worker,
                                       const struct cairn_srv_version *version,
                                       struct cairn_srv_held **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* What else was found out about a version, as a text under a key; given back as the others. NULL:
 * nothing is kept under it, or no memory. */
struct cairn_srv_held *cairn_srv_cache_find(struct cairn_srv *server, const char *key);
struct cairn_srv_held *cairn_srv_cache_keep(struct cairn_srv *server, const char *key,
                                            struct cairn_buf *take);
/* What came wrong is read once more (S17). */
void cairn_srv_read_log_retry(const char *key, const struct cairn_error *why);
void cairn_srv_cache_give(struct cairn_srv *server, struct cairn_srv_held *held); /* NULL is fine */

/* ---- is every block of one shard right in one store? ---- */

#define CAIRN_SRV_CHECK_BYTES (8 * CAIRN_MIB)

struct cairn_srv_shard_check {
    const struct cairn_committed *version; /* with manifest and checksums */
    struct cairn_store_worker *worker;     /* of the store that is looked at */
    uint8_t *buffer;                       /* CAIRN_SRV_CHECK_BYTES */
    /* After each range, with how many bytes were read; false: end here, by CAIRN_CANCELLED. */
    bool (*goes_on)(void *owner, uint64_t bytes);
    void *owner;
};
enum cairn_code cairn_srv_shard_check(const struct cairn_srv_shard_check *check, size_t shard,
                                      struct cairn_error *err) CAIRN_MUST_USE;
