/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier_reads: a version's bytes and documents, from memory or the nearest store that has it whole.
 *
 * Why:     a damaged or unreachable copy must not fail a restore that another copy could serve, and
 *          all readers must fall back alike. Each ranged read of a committed version needs its
 *          manifest, and a store request for it would double the latency. A repair must know which
 *          copy is damaged, which a read with fallback hides.
 * Promise: P3   only verified bytes are handed out: blocks by checksum, documents by digest.
 *          1    the nearest store comes first, stores with a copy known to be damaged after the
 *               others, and a store that did not answer last for SRV_TIER_SHUN_MS.
 *          2    where no store has a whole range intact, each block is looked for by itself.
 *          3    a copy with a wrong block, or with an object missing although its store answers, is
 *               marked damaged from then on (damage.h), also if it is the only copy.
 *          4    the cache hands out a manifest only with the SHA-256 that the commit's transaction
 *               stored, and checksums only with the one that the manifest names; a missing or
 *               different one is CAIRN_CORRUPT naming run and step.
 *          5    an entry handed out by the cache stays valid until it is given back.
 *          6    a check compares every block of a shard in the given store, and no other, with
 *               checksums.bin; a wrong block is read once more before it counts (S17). A missing
 *               object or wrong size, also for 0 bytes, is CAIRN_CORRUPT; a store's failure stays.
 * Limits:  one borrowed worker per call and store. 64 cache entries and 512 MiB that nobody holds.
 *          A check has SRV_CHECK_BYTES of memory and one range under way.
 * Threads: any, with its own worker of the main store; server_cache locks the cache. Its entries
 *          are immutable.
 * Next:    server/guard/stores.h, server/reads/source.h, server/copies/verify.c.
 */
#pragma once

#include "server/guard/stores.h"
#include "server/ledger/versions.h"
#include "store/range.h"
#include "store/whole.h"

#define SRV_TIER_SHUN_MS 10000

/* The stores that have a version whole, nearest first; empty: the main store only. */
struct srv_where {
    char version[CAIRN_VERSION_ID_BYTES];
    struct srv_tier *tiers[SRV_TIERS_MAX];
    bool damaged[SRV_TIERS_MAX];       /* known to be damaged */
    int64_t changed_ms[SRV_TIERS_MAX]; /* change time of the copy's row */
    size_t count;
};
/* Reads the catalog if there are stores besides main. CAIRN_NOT_FOUND: no store of the settings has
 * the version. except: NULL, or a store to leave out. */
enum cairn_code srv_where_of(struct srv *server, const char *version, const char *except,
                             struct srv_where *ret, struct cairn_error *err) CAIRN_MUST_USE;

/* True for SRV_TIER_SHUN_MS after the store failed to answer. */
bool srv_tier_is_away(const struct srv_tier *tier);

/* Tags for a version of that many shards: one per object and store. */
size_t srv_tier_tags(size_t shards);

struct srv_tier_range {
    const char *key;
    uint64_t offset, length;
    void *into;
    struct cairn_store_tags *tags; /* srv_tier_tags(object_count) of them */
    size_t object, object_count;
    uint64_t object_bytes;
    const void *checksums; /* of the range's blocks */
    uint32_t wait_ms;
    void (*again)(void *owner, const struct cairn_error *why); /* store/range.h */
    void *owner;
};
enum cairn_code srv_tier_read(struct srv *server, struct cairn_store_worker *worker,
                              const struct srv_where *where, const struct srv_tier_range *range,
                              struct cairn_error *err) CAIRN_MUST_USE;

/* A version being read: its stores and its objects' tags. Several threads may read at once. */
struct srv_reading;
enum cairn_code srv_reading_new(struct srv *server, const char *version, size_t object_count,
                                struct srv_reading **ret, struct cairn_error *err) CAIRN_MUST_USE;
void srv_reading_free(struct srv_reading *reading); /* NULL is fine */
/* The store that a read would try first now. */
struct cairn_store *srv_reading_nearest(const struct srv_reading *reading);
/* Sets range's tags and object_count. */
enum cairn_code srv_reading_read(struct srv_reading *reading, struct cairn_store_worker *worker,
                                 struct srv_tier_range *range,
                                 struct cairn_error *err) CAIRN_MUST_USE;

/* A source for api/documents/committed.h; *documents must outlive it. */
struct srv_tier_documents {
    struct srv *server;
    struct cairn_store_worker *worker;
    const struct srv_where *where;
};
struct cairn_document_source srv_tier_documents(struct srv_tier_documents *documents,
                                                void (*tell_again)(const char *key,
                                                                   const struct cairn_error *why));

/* ---- the cache: manifests with checksums, layouts, and texts about versions ---- */

struct srv_held {
    struct cairn_buf text;      /* manifest.json or the layout, as stored; or a kept text */
    struct cairn_buf checksums; /* of a manifest */
    struct cairn_manifest manifest;
    struct cairn_layout layout;
    bool is_layout;
    /* used by the cache only */
    char key[CAIRN_KEY_BYTES_MAX + 1];
    uint32_t holders;
    uint64_t used;
    struct srv_held *next;
};

enum cairn_code srv_cache_new(struct srv_cache **ret, struct cairn_error *err) CAIRN_MUST_USE;
void srv_cache_free(struct srv_cache *cache); /* NULL is fine; nothing is held */
enum cairn_code srv_cache_manifest(struct srv *server, struct cairn_store_worker *worker,
                                   const struct srv_version *version, struct srv_held **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* CAIRN_NOT_FOUND when the version has no layout. */
enum cairn_code srv_cache_layout(struct srv *server, struct cairn_store_worker *worker,
                                 const struct srv_version *version, struct srv_held **ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* Texts about a version, cached by key; given back like other entries. NULL: none or no memory. */
struct srv_held *srv_cache_find(struct srv *server, const char *key);
struct srv_held *srv_cache_keep(struct srv *server, const char *key, struct cairn_buf *take);
/* Logs that a wrong answer is read once more (S17). */
void srv_read_log_retry(const char *key, const struct cairn_error *why);
void srv_cache_give(struct srv *server, struct srv_held *held); /* NULL is fine */

/* ---- verifying one shard in one store ---- */

#define SRV_CHECK_BYTES (8 * CAIRN_MIB)

struct srv_shard_check {
    const struct cairn_committed *version; /* with manifest and checksums */
    struct cairn_store_worker *worker;     /* of the store to check */
    uint8_t *buffer;                       /* SRV_CHECK_BYTES */
    /* Called after each range with the bytes read; false ends the check with CAIRN_CANCELLED. */
    bool (*goes_on)(void *owner, uint64_t bytes);
    void *owner;
};
enum cairn_code srv_shard_check(const struct srv_shard_check *check, size_t shard,
                                struct cairn_error *err) CAIRN_MUST_USE;
