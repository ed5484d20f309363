/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests and layouts in memory; see cache.h. Two that load the same at once both load it, and
 * the first to come back is kept: nothing is loaded under the lock. */
#include "server/reads/cache.h"

#include <inttypes.h>
#include <stdlib.h>

#include "api/table/layout.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/text.h"
#include "server/reads/tier_reads.h"

#define ENTRIES_MAX 64
#define IDLE_BYTES_MAX (512 * CAIRN_MIB)

struct cairn_srv_cache {
    struct cairn_lock lock;
    struct {
        struct cairn_srv_held *first;
        uint64_t clock;
    } locked;
};

enum cairn_code cairn_srv_cache_new(struct cairn_srv_cache **ret, struct cairn_error *err) {
    struct cairn_srv_cache *cache = calloc(1, sizeof(*cache));
    if (!cache) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the cache");
    cairn_lock_init(&cache->lock, CAIRN_LOCK_server_cache);
    *ret = cache;
    return CAIRN_OK;
}

static void free_held(struct cairn_srv_held *held) {
    cairn_manifest_release(&held->manifest);
    cairn_layout_release(&held->layout);
    cairn_buf_release(&held->text);
    cairn_buf_release(&held->checksums);
    free(held);
}

void cairn_srv_cache_free(struct cairn_srv_cache *cache) {
    if (!cache) return;
    while (cache->locked.first) {
        struct cairn_srv_held *held = cache->locked.first;
        cache->locked.first = held->next;
        free_held(held);
    }
    cairn_lock_release(&cache->lock);
    free(cache);
}

static uint64_t bytes_of(const struct cairn_srv_held *held) {
    return held->text.capacity + held->checksums.capacity +
           held->manifest.shard_count * (sizeof(*held->manifest.shards) + 64);
}

/* The idle entry that was used longest ago, when there are too many; the lock is held. */
static struct cairn_srv_held *take_surplus(struct cairn_srv_cache *cache) {
    uint64_t idle_bytes = 0;
    size_t count = 0;
    struct cairn_srv_held **oldest = NULL;
    for (struct cairn_srv_held **at = &cache->locked.first; *at; at = &(*at)->next) {
        count++;
        if ((*at)->holders) continue;
        idle_bytes += bytes_of(*at);
        if (!oldest || (*at)->used < (*oldest)->used) oldest = at;
    }
    if (!oldest || (count <= ENTRIES_MAX && idle_bytes <= IDLE_BYTES_MAX)) return NULL;
    struct cairn_srv_held *held = *oldest;
    *oldest = held->next;
    return held;
}

static struct cairn_srv_held *find(struct cairn_srv_cache *cache, const char *key) {
    CAIRN_HOLD(&cache->lock);
    struct cairn_srv_held *held = cache->locked.first;
    while (held && strcmp(held->key, key)) held = held->next;
    if (!held) return NULL;
    held->holders++;
    held->used = ++cache->locked.clock;
    return held;
}

/* Keeps what was loaded, or takes what another thread has kept meanwhile. */
static struct cairn_srv_held *keep(struct cairn_srv_cache *cache, struct cairn_srv_held *fresh) {
    struct cairn_srv_held *known = find(cache, fresh->key);
    if (known) {
        free_held(fresh);
        return known;
    }
    CAIRN_HOLD(&cache->lock);
    fresh->holders = 1;
    fresh->used = ++cache->locked.clock;
    fresh->next = cache->locked.first;
    cache->locked.first = fresh;
    return fresh;
}

void cairn_srv_cache_give(struct cairn_srv *server, struct cairn_srv_held *held) {
    if (!held) return;
    struct cairn_srv_held *surplus = NULL;
    {
        CAIRN_HOLD(&server->cache->lock);
        held->holders--;
        surplus = take_surplus(server->cache);
    }
    if (surplus) free_held(surplus);
}

struct cairn_srv_held *cairn_srv_cache_find(struct cairn_srv *server, const char *key) {
    return find(server->cache, key);
}

struct cairn_srv_held *cairn_srv_cache_keep(struct cairn_srv *server, const char *key,
                                            struct cairn_buf *take) {
    struct cairn_srv_held *held = calloc(1, sizeof(*held));
    if (!held) return NULL;
    (void)cairn_text_copy(held->key, sizeof(held->key), key);
    held->text = *take;
    *take = (struct cairn_buf){0};
    return keep(server->cache, held);
}

/* ---- loading ---- */

void cairn_srv_read_log_retry(const char *key, const struct cairn_error *why) {
    cairn_log(WARN, "read.again", "key=%s cause=\"%s\"", key, why->message);
}

static enum cairn_code load_manifest(const struct cairn_document_source *source,
                                     const struct cairn_srv_version *version,
                                     struct cairn_srv_held *held, struct cairn_error *err) {
    CAIRN_AUTO(committed)
    committed = {.place = cairn_srv_version_place(version), .has_digest = true};
    memcpy(committed.manifest_sha256, version->manifest_sha256, sizeof(committed.manifest_sha256));
    CAIRN_TRY(cairn_committed_load(
        &committed, source, CAIRN_DOCUMENT_BIT(MANIFEST) | CAIRN_DOCUMENT_BIT(CHECKSUMS), err));
    held->manifest = committed.manifest;
    held->text = committed.manifest_text;
    held->checksums = committed.checksums;
    committed = (struct cairn_committed){0};
    return CAIRN_OK;
}

/* The catalog knows which layout it is, so no manifest is read for it. */
static enum cairn_code load_layout(const struct cairn_document_source *source,
                                   const struct cairn_srv_version *version,
                                   struct cairn_srv_held *held, struct cairn_error *err) {
    CAIRN_AUTO(committed)
    committed = {.place = cairn_srv_version_place(version),
                 .manifest = {.has_layout = true, .layout_writer = version->layout_writer}};
    memcpy(committed.manifest.layout_digest, version->layout,
           sizeof(committed.manifest.layout_digest));
    held->is_layout = true;
    CAIRN_TRY(cairn_committed_load(&committed, source, CAIRN_DOCUMENT_BIT(LAYOUT), err));
    held->layout = committed.layout;
    held->text = committed.layout_text;
    committed = (struct cairn_committed){0};
    return CAIRN_OK;
}

static enum cairn_code load(struct cairn_srv *server, struct cairn_store_worker *worker,
                            const struct cairn_srv_version *version, const char *key,
                            bool is_layout, struct cairn_srv_held **ret, struct cairn_error *err) {
    struct cairn_srv_where where;
    CAIRN_TRY(cairn_srv_where_of(server, version->id.text, NULL, &where, err));
    struct cairn_srv_tier_documents from = {server, worker, &where};
    struct cairn_srv_held *held = calloc(1, sizeof(*held));
    if (!held) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the cache");
    (void)cairn_text_copy(held->key, sizeof(held->key), key);
    struct cairn_document_source source =
        cairn_srv_tier_documents(&from, cairn_srv_read_log_retry);
    enum cairn_code code = is_layout ? load_layout(&source, version, held, err)
                                     : load_manifest(&source, version, held, err);
    if (code) {
        free_held(held);
        return cairn_within(err, code, "run %s/%s step %" PRIu64, version->name.project,
                            version->name.run, version->step);
    }
    *ret = held;
    return CAIRN_OK;
}

static enum cairn_code get(struct cairn_srv *server, struct cairn_store_worker *worker,
                           const struct cairn_srv_version *version, const char *key, bool is_layout,
                           struct cairn_srv_held **ret, struct cairn_error *err) {
    struct cairn_srv_held *held = find(server->cache, key);
    if (held) {
        *ret = held;
        return CAIRN_OK;
    }
    CAIRN_TRY(load(server, worker, version, key, is_layout, &held, err));
    *ret = keep(server->cache, held);
    return CAIRN_OK;
}

enum cairn_code cairn_srv_cache_manifest(struct cairn_srv *server,
                                         struct cairn_store_worker *worker,
                                         const struct cairn_srv_version *version,
                                         struct cairn_srv_held **ret, struct cairn_error *err) {
    struct cairn_version_place place = cairn_srv_version_place(version);
    struct cairn_key key;
    cairn_key_manifest(&place, &key);
    return get(server, worker, version, key.text, false, ret, err);
}

enum cairn_code cairn_srv_cache_layout(struct cairn_srv *server, struct cairn_store_worker *worker,
                                       const struct cairn_srv_version *version,
                                       struct cairn_srv_held **ret, struct cairn_error *err) {
    if (!version->has_layout)
        return cairn_fail(err, CAIRN_NOT_FOUND, "%s has no tensors, so it has no layout",
                          version->id.text);
    struct cairn_key key;
    cairn_key_layout(&version->name, version->layout, &version->layout_writer, &key);
    return get(server, worker, version, key.text, true, ret, err);
}
