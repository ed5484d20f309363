/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests and layouts in memory; see cache.h. Two that load the same at once both load it, and
 * the first to come back is kept: nothing is loaded under the lock. */
#include "server/cache.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/hash.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/text.h"

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

/* Keep what was loaded, or take what somebody else kept meanwhile. */
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

/* ---- loading ---- */

static enum cairn_code load_object(struct cairn_store_worker *worker, const char *key,
                                   uint64_t limit, struct cairn_buf *ret, struct cairn_error *err) {
    ret->limit = limit;
    enum cairn_code code = cairn_store_get_small(worker, key, ret, err);
    if (code == CAIRN_NOT_FOUND || code == CAIRN_TOO_LARGE)
        return cairn_fail(err, CAIRN_CORRUPT, "%s is missing or far too large", key);
    return code;
}

static enum cairn_code check_digest(const struct cairn_buf *text, const uint8_t digest[32],
                                    const char *key, struct cairn_error *err) {
    uint8_t found[32];
    cairn_sha256_of(cairn_buf_view(text), found);
    if (!memcmp(found, digest, 32)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CORRUPT, "%s does not have the SHA-256 that it was committed with",
                      key);
}

static enum cairn_code load_manifest(struct cairn_store_worker *worker,
                                     const struct cairn_srv_version *version,
                                     struct cairn_srv_held *held, struct cairn_error *err) {
    CAIRN_TRY(load_object(worker, held->key, CAIRN_MANIFEST_BYTES_MAX, &held->text, err));
    CAIRN_TRY(check_digest(&held->text, version->manifest_sha256, held->key, err));
    CAIRN_TRY(cairn_manifest_decode(cairn_buf_view(&held->text), &held->manifest, err));
    if (strcmp(held->manifest.id.text, version->id.text))
        return cairn_fail(err, CAIRN_CORRUPT, "%s is of version %s", held->key,
                          held->manifest.id.text);
    struct cairn_version_place place = cairn_srv_version_place(version);
    struct cairn_key key;
    cairn_key_checksums(&place, &key);
    CAIRN_TRY(
        load_object(worker, key.text, 4 * held->manifest.block_count + 1, &held->checksums, err));
    CAIRN_TRY(check_digest(&held->checksums, held->manifest.checksums_sha256, key.text, err));
    if (held->checksums.size == 4 * held->manifest.block_count) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CORRUPT, "%s has %zu bytes, not 4 for each of %" PRIu64 " blocks",
                      key.text, held->checksums.size, held->manifest.block_count);
}

/* The layout's own digest is over its tables, so it is computed from them again. */
static enum cairn_code check_layout(const struct cairn_layout *layout, const uint8_t wanted[32],
                                    const char *key, struct cairn_error *err) {
    size_t count = layout->table_count;
    CAIRN_AUTO_HEAP uint32_t *ranks = calloc(count + 1, sizeof(*ranks));
    CAIRN_AUTO_HEAP uint8_t(*digests)[32] = calloc(count + 1, sizeof(*digests));
    if (!ranks || !digests) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a layout");
    for (size_t i = 0; i < count; i++) {
        ranks[i] = layout->tables[i].rank;
        cairn_table_digest(layout->tables[i].bytes, digests[i]);
    }
    uint8_t found[32];
    cairn_layout_digest(ranks, (const uint8_t(*)[32])digests, count, found);
    if (!memcmp(found, wanted, 32)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CORRUPT, "%s is not the layout of that digest", key);
}

static enum cairn_code load_layout(struct cairn_store_worker *worker,
                                   const struct cairn_srv_version *version,
                                   struct cairn_srv_held *held, struct cairn_error *err) {
    held->is_layout = true;
    CAIRN_TRY(load_object(worker, held->key, CAIRN_LAYOUT_BYTES_MAX, &held->text, err));
    if (cairn_layout_open(cairn_buf_view(&held->text), &held->layout, err))
        return cairn_within(err, CAIRN_CORRUPT, "%s", held->key);
    return check_layout(&held->layout, version->layout, held->key, err);
}

static enum cairn_code load(struct cairn_store_worker *worker,
                            const struct cairn_srv_version *version, const char *key,
                            bool is_layout, struct cairn_srv_held **ret, struct cairn_error *err) {
    struct cairn_srv_held *held = calloc(1, sizeof(*held));
    if (!held) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the cache");
    (void)cairn_text_copy(held->key, sizeof(held->key), key);
    enum cairn_code code = is_layout ? load_layout(worker, version, held, err)
                                     : load_manifest(worker, version, held, err);
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
    struct cairn_error why = {0};
    enum cairn_code code = load(worker, version, key, is_layout, &held, &why);
    if (code == CAIRN_CORRUPT) { /* S17: once more, over connections of its own */
        CAIRN_AUTO_PTR(store_worker) other = NULL;
        cairn_log(WARN, "read.again", "cause=\"%s\"", why.message);
        code = cairn_store_worker_new(server->store, &other, &why);
        if (!code) code = load(other, version, key, is_layout, &held, &why);
    }
    if (code) {
        if (err) *err = why;
        return code;
    }
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
