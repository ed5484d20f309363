/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache: manifests with their checksums, layouts and texts about versions, kept in memory while
 *        they are in use.
 *
 * Why:     a committed version has no shard rows; each ranged read needs its manifest, and a store
 *          request per range would double the latency.
 * Promise: 1   a manifest is only handed out when its SHA-256 is the one that the commit's
 *              transaction kept, and its checksums' the one that the manifest names; a missing or
 *              different one is CAIRN_CORRUPT naming run and step.
 *          2   what was handed out stays until it is given back, also when the cache forgets it.
 * Limits:  64 entries and 512 MiB that are not held.
 * Threads: locked by server_cache; what is handed out is immutable.
 * Next:    server/reads/reads.c, server/reads/stream.c.
 */
#pragma once

#include "api/documents/manifest.h"
#include "api/table/layout.h"
#include "api/table/table.h"
#include "server/ledger/versions.h"
#include "server/server.h"

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
