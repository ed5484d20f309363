/* SPDX-License-Identifier: Apache-2.0 */
/* Tries one store after the other until one gives verified bytes; caches what is used often. */
#include "server/reads/tier_reads.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/log.h"
#include "server/copies/damage.h"
#include "server/metrics.h"

/* ---- where a version lies ---- */

enum cairn_code srv_where_of(struct srv *server, const char *version, const char *except,
                             struct srv_where *ret, struct cairn_error *err) {
    struct srv_copies copies;
    struct srv_tiers *tiers = server->tiers;
    *ret = (struct srv_where){.count = 0};
    (void)cairn_text_copy(ret->version, sizeof(ret->version), version);
    if (!srv_tiers_any(server)) return CAIRN_OK;
    {
        SRV_LOOK(look, server->catalog, err);
        CAIRN_TRY(srv_copies_get(look.tx, version, &copies, err));
    }
    for (size_t i = 0; i < tiers->count; i++) {
        struct srv_tier *tier = &tiers->tiers[i];
        const struct srv_copy *copy = srv_copies_find(&copies, tier->name);
        bool whole = copy && copy->state == SRV_COPY_WHOLE;
        if (!whole || (except && !strcmp(except, tier->name))) continue;
        ret->damaged[ret->count] = copy->damaged > 0;
        ret->changed_ms[ret->count] = copy->changed_ms;
        ret->tiers[ret->count++] = tier;
    }
    if (ret->count) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NOT_FOUND,
                      "%s lies whole in no other store that the setting stores names", version);
}

/* ---- one store after the other ---- */

bool srv_tier_is_away(const struct srv_tier *tier) {
    return atomic_load(&tier->away_until_ms) > cairn_mono_ms();
}

/* Nearest first; sound copies before damaged ones, and both before stores that did not answer. */
static void order(const struct srv_where *where, size_t ret[SRV_TIERS_MAX]) {
    int turns[SRV_TIERS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < where->count; i++)
        turns[i] = 2 * srv_tier_is_away(where->tiers[i]) + where->damaged[i];
    for (int turn = 0; turn < 4; turn++)
        for (size_t i = 0; i < where->count; i++)
            if (turns[i] == turn) ret[count++] = i;
}

/* Marks the copy damaged, unless store.json is unreadable, too: then the store is unreachable or
 * not mounted, and its copy may be intact. worker: of that store. */
static void note_damage(struct srv *server, const struct srv_where *where, size_t at,
                        struct cairn_store_worker *worker) {
    struct cairn_key key;
    cairn_key_store_json(&key);
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key.text};
    if (where->damaged[at] || cairn_store_perform(worker, &head, NULL)) return;
    const struct srv_damage found = {.version = where->version,
                                     .store = where->count ? where->tiers[at]->name : SRV_TIER_MAIN,
                                     .objects = 1,
                                     .changed_ms = where->changed_ms[at]};
    srv_damage_note(server, &found);
}

static void note_away(struct srv_tier *tier, enum cairn_code code) {
    if (code == CAIRN_UNAVAILABLE || code == CAIRN_TIMEOUT || code == CAIRN_BUSY)
        atomic_store(&tier->away_until_ms, cairn_mono_ms() + SRV_TIER_SHUN_MS);
}

static void tell_fallback(const struct srv *server, const struct srv_tier *from, const char *key,
                          const struct cairn_error *why) {
    cairn_metrics_add(server->metrics, SRV_METRIC(read_fallbacks_total), 1);
    cairn_log(WARN, "read.fallback", "store=%s key=%s cause=\"%s\"", from->name, key, why->message);
}

/* The main store uses the caller's own worker. */
static enum cairn_code borrow(struct srv *server, struct srv_tier *tier,
                              struct cairn_store_worker *own, struct cairn_store_worker **ret,
                              struct cairn_error *err) {
    *ret = own;
    if (srv_tier_is_main(server, tier)) return CAIRN_OK;
    *ret = NULL;
    return srv_tier_borrow(server, tier, ret, err);
}

/* For the i-th try: only the last store is waited for as long as an only store. */
static uint32_t patience(const struct srv_where *where, size_t i) {
    return i + 1 < where->count ? CAIRN_STORE_ELSEWHERE_MS : 0;
}

static void give(struct srv *server, struct srv_tier *tier, const struct cairn_store_worker *own,
                 struct cairn_store_worker *worker) {
    if (worker) worker->patience_ms = 0;
    if (worker != own) srv_tier_return(server, tier, worker);
}

/* ---- ranges ---- */

size_t srv_tier_tags(size_t shards) {
    return shards * SRV_TIERS_MAX;
}

static enum cairn_code read_from(struct cairn_store_worker *worker, size_t tier,
                                 const struct srv_tier_range *range, struct cairn_error *err) {
    struct cairn_store_range one = {.request = {.key = range->key,
                                                .offset = range->offset,
                                                .length = range->length,
                                                .into = range->into},
                                    .tags = range->tags,
                                    .object = tier * range->object_count +
                                              range->object, /* ETags differ between stores */
                                    .object_bytes = range->object_bytes,
                                    .checksums = range->checksums,
                                    .wait_ms = range->wait_ms};
    return cairn_store_range_read(&one, worker, range->again, range->owner, err);
}

static enum cairn_code read_from_any(struct srv *server, struct cairn_store_worker *own,
                                     const struct srv_where *where,
                                     const struct srv_tier_range *range, struct cairn_error *err) {
    size_t turns[SRV_TIERS_MAX];
    struct cairn_error first = {0};
    enum cairn_code code = CAIRN_OK, told = CAIRN_OK;
    order(where, turns);
    for (size_t i = 0; i < where->count; i++) {
        struct srv_tier *tier = where->tiers[turns[i]];
        struct cairn_store_worker *worker = NULL;
        struct cairn_error why = {0};
        size_t index = (size_t)(tier - server->tiers->tiers);
        code = borrow(server, tier, own, &worker, &why);
        if (!code) worker->patience_ms = patience(where, i);
        if (!code) code = read_from(worker, index, range, &why);
        if (code == CAIRN_CORRUPT) note_damage(server, where, turns[i], worker);
        give(server, tier, own, worker);
        if (!code || code == CAIRN_NO_MEMORY) break;
        note_away(tier, code);
        if (i + 1 < where->count) tell_fallback(server, tier, range->key, &why);
        /* If one copy is damaged and another store unreachable, the damage is reported. */
        if (told && (told == CAIRN_CORRUPT || code != CAIRN_CORRUPT)) continue;
        told = code;
        first = why;
    }
    if (!code) return CAIRN_OK;
    if (err) *err = first;
    return told ? told : code;
}

/* tier_reads.h#2: two copies with damage in different blocks give all blocks together. */
static enum cairn_code read_blocks(struct srv *server, struct cairn_store_worker *worker,
                                   const struct srv_where *where,
                                   const struct srv_tier_range *range, struct cairn_error *err) {
    struct srv_tier_range block = *range;
    for (uint64_t at = 0; at < range->length; at += CAIRN_BLOCK_BYTES) {
        block.offset = range->offset + at;
        block.length = cairn_min_u64(CAIRN_BLOCK_BYTES, range->length - at);
        block.into = (uint8_t *)range->into + at;
        block.checksums = (const uint8_t *)range->checksums + 4 * (at / CAIRN_BLOCK_BYTES);
        CAIRN_TRY(read_from_any(server, worker, where, &block, err));
    }
    return CAIRN_OK;
}

enum cairn_code srv_tier_read(struct srv *server, struct cairn_store_worker *worker,
                              const struct srv_where *where, const struct srv_tier_range *range,
                              struct cairn_error *err) {
    struct cairn_error why = {0};
    enum cairn_code code = where->count ? read_from_any(server, worker, where, range, &why)
                                        : read_from(worker, 0, range, &why);
    if (code == CAIRN_CORRUPT && !where->count) note_damage(server, where, 0, worker);
    bool pieces = where->count > 1 && range->length > CAIRN_BLOCK_BYTES;
    if (code == CAIRN_CORRUPT && pieces) code = read_blocks(server, worker, where, range, &why);
    return cairn_pass(err, code, &why);
}

/* ---- reading one version ---- */

struct srv_reading {
    struct srv *server;
    struct srv_where where;
    struct cairn_store_tags *tags;
    size_t object_count;
};

enum cairn_code srv_reading_new(struct srv *server, const char *version, size_t object_count,
                                struct srv_reading **ret, struct cairn_error *err) {
    struct srv_reading *reading = calloc(1, sizeof(*reading));
    if (!reading) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a read");
    *reading = (struct srv_reading){.server = server, .object_count = object_count};
    enum cairn_code code = srv_where_of(server, version, NULL, &reading->where, err);
    size_t tags = reading->where.count ? srv_tier_tags(object_count) : object_count;
    if (!code) code = cairn_store_tags_new(tags, &reading->tags, err);
    if (code)
        srv_reading_free(reading);
    else
        *ret = reading;
    return code;
}

void srv_reading_free(struct srv_reading *reading) {
    if (!reading) return;
    cairn_store_tags_free(reading->tags);
    free(reading);
}

struct cairn_store *srv_reading_nearest(const struct srv_reading *reading) {
    size_t turns[SRV_TIERS_MAX];
    if (!reading->where.count) return reading->server->store;
    order(&reading->where, turns);
    return reading->where.tiers[turns[0]]->store;
}

enum cairn_code srv_reading_read(struct srv_reading *reading, struct cairn_store_worker *worker,
                                 struct srv_tier_range *range, struct cairn_error *err) {
    range->tags = reading->tags;
    range->object_count = reading->object_count;
    return srv_tier_read(reading->server, worker, &reading->where, range, err);
}

/* ---- documents ---- */

/* A repeat (`again`) begins at the next store, if there is one. */
static enum cairn_code get_document(void *owner, enum cairn_document document, const char *key,
                                    bool again, struct cairn_buf *ret, struct cairn_error *err) {
    const struct srv_tier_documents *own = owner;
    const struct srv_where *where = own->where;
    size_t turns[SRV_TIERS_MAX];
    struct cairn_error first = {0};
    enum cairn_code code = CAIRN_OK, told = CAIRN_OK;
    size_t before = ret->size, skipped = again && where->count > 1;
    order(where, turns);
    for (size_t i = 0; i < where->count; i++) {
        struct srv_tier *tier = where->tiers[turns[(i + skipped) % where->count]];
        struct cairn_store_worker *worker = NULL;
        struct cairn_error why = {0};
        code = borrow(own->server, tier, own->worker, &worker, &why);
        if (!code) {
            worker->patience_ms = patience(where, i);
            struct cairn_document_source source = cairn_store_documents(worker, NULL);
            code = source.get(source.owner, document, key, again && !skipped, ret, &why);
        }
        give(own->server, tier, own->worker, worker);
        if (!code || code == CAIRN_NO_MEMORY || code == CAIRN_TOO_LARGE) break;
        note_away(tier, code);
        if (i + 1 < where->count) tell_fallback(own->server, tier, key, &why);
        ret->size = before;
        if (told) continue;
        told = code;
        first = why;
    }
    if (!code) return CAIRN_OK;
    if (err) *err = first;
    return told ? told : code;
}

struct cairn_document_source srv_tier_documents(struct srv_tier_documents *documents,
                                                void (*tell_again)(const char *key,
                                                                   const struct cairn_error *why)) {
    if (!documents->where->count) return cairn_store_documents(documents->worker, tell_again);
    return (struct cairn_document_source){
        .get = get_document, .tell_again = tell_again, .owner = documents};
}

/* ---- the cache: nothing is loaded under its lock; of two equal loads the first is kept ---- */

#define ENTRIES_MAX 64
#define IDLE_BYTES_MAX (512 * CAIRN_MIB)

struct srv_cache {
    struct cairn_lock lock;
    struct {
        struct srv_held *first;
        uint64_t clock;
    } locked;
};

enum cairn_code srv_cache_new(struct srv_cache **ret, struct cairn_error *err) {
    struct srv_cache *cache = calloc(1, sizeof(*cache));
    if (!cache) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the cache");
    cairn_lock_init(&cache->lock, CAIRN_LOCK_server_cache);
    *ret = cache;
    return CAIRN_OK;
}

static void free_held(struct srv_held *held) {
    cairn_manifest_release(&held->manifest);
    cairn_layout_release(&held->layout);
    cairn_buf_release(&held->text);
    cairn_buf_release(&held->checksums);
    free(held);
}

void srv_cache_free(struct srv_cache *cache) {
    if (!cache) return;
    while (cache->locked.first) {
        struct srv_held *held = cache->locked.first;
        cache->locked.first = held->next;
        free_held(held);
    }
    cairn_lock_release(&cache->lock);
    free(cache);
}

static uint64_t bytes_of(const struct srv_held *held) {
    return held->text.capacity + held->checksums.capacity +
           held->manifest.shard_count * (sizeof(*held->manifest.shards) + 64);
}

/* Removes the least recently used idle entry if there are too many; needs the lock. */
static struct srv_held *take_surplus(struct srv_cache *cache) {
    uint64_t idle_bytes = 0;
    size_t count = 0;
    struct srv_held **oldest = NULL;
    for (struct srv_held **at = &cache->locked.first; *at; at = &(*at)->next) {
        count++;
        if ((*at)->holders) continue;
        idle_bytes += bytes_of(*at);
        if (!oldest || (*at)->used < (*oldest)->used) oldest = at;
    }
    if (!oldest || (count <= ENTRIES_MAX && idle_bytes <= IDLE_BYTES_MAX)) return NULL;
    struct srv_held *held = *oldest;
    *oldest = held->next;
    return held;
}

static struct srv_held *find_held(struct srv_cache *cache, const char *key) {
    CAIRN_HOLD(&cache->lock);
    struct srv_held *held = cache->locked.first;
    while (held && strcmp(held->key, key)) held = held->next;
    if (!held) return NULL;
    held->holders++;
    held->used = ++cache->locked.clock;
    return held;
}

/* Caches *fresh, or frees it for an entry that another thread has cached in between. */
static struct srv_held *keep_held(struct srv_cache *cache, struct srv_held *fresh) {
    struct srv_held *known = find_held(cache, fresh->key);
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

void srv_cache_give(struct srv *server, struct srv_held *held) {
    if (!held) return;
    struct srv_held *surplus = NULL;
    {
        CAIRN_HOLD(&server->cache->lock);
        held->holders--;
        surplus = take_surplus(server->cache);
    }
    if (surplus) free_held(surplus);
}

struct srv_held *srv_cache_find(struct srv *server, const char *key) {
    return find_held(server->cache, key);
}

struct srv_held *srv_cache_keep(struct srv *server, const char *key, struct cairn_buf *take) {
    struct srv_held *held = calloc(1, sizeof(*held));
    if (!held) return NULL;
    (void)cairn_text_copy(held->key, sizeof(held->key), key);
    held->text = *take;
    *take = (struct cairn_buf){0};
    return keep_held(server->cache, held);
}

/* ---- loading ---- */

void srv_read_log_retry(const char *key, const struct cairn_error *why) {
    cairn_log(WARN, "read.again", "key=%s cause=\"%s\"", key, why->message);
}

static enum cairn_code load_manifest(const struct cairn_document_source *source,
                                     const struct srv_version *version, struct srv_held *held,
                                     struct cairn_error *err) {
    CAIRN_AUTO(committed)
    committed = {.place = srv_version_place(version), .has_digest = true};
    memcpy(committed.manifest_sha256, version->manifest_sha256, sizeof(committed.manifest_sha256));
    CAIRN_TRY(cairn_committed_load(
        &committed, source, CAIRN_DOCUMENT_BIT(MANIFEST) | CAIRN_DOCUMENT_BIT(CHECKSUMS), err));
    held->manifest = committed.manifest;
    held->text = committed.manifest_text;
    held->checksums = committed.checksums;
    committed = (struct cairn_committed){0};
    return CAIRN_OK;
}

/* The catalog row names the layout, so no manifest is read. */
static enum cairn_code load_layout(const struct cairn_document_source *source,
                                   const struct srv_version *version, struct srv_held *held,
                                   struct cairn_error *err) {
    CAIRN_AUTO(committed)
    committed = {.place = srv_version_place(version),
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

static enum cairn_code load_held(struct srv *server, struct cairn_store_worker *worker,
                                 const struct srv_version *version, const char *key, bool is_layout,
                                 struct srv_held **ret, struct cairn_error *err) {
    struct srv_where where;
    CAIRN_TRY(srv_where_of(server, version->id.text, NULL, &where, err));
    struct srv_tier_documents from = {server, worker, &where};
    struct srv_held *held = calloc(1, sizeof(*held));
    if (!held) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the cache");
    (void)cairn_text_copy(held->key, sizeof(held->key), key);
    struct cairn_document_source source = srv_tier_documents(&from, srv_read_log_retry);
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

static enum cairn_code get_held(struct srv *server, struct cairn_store_worker *worker,
                                const struct srv_version *version, const char *key, bool is_layout,
                                struct srv_held **ret, struct cairn_error *err) {
    struct srv_held *held = find_held(server->cache, key);
    if (held) {
        *ret = held;
        return CAIRN_OK;
    }
    CAIRN_TRY(load_held(server, worker, version, key, is_layout, &held, err));
    *ret = keep_held(server->cache, held);
    return CAIRN_OK;
}

enum cairn_code srv_cache_manifest(struct srv *server, struct cairn_store_worker *worker,
                                   const struct srv_version *version, struct srv_held **ret,
                                   struct cairn_error *err) {
    struct cairn_version_place place = srv_version_place(version);
    struct cairn_key key;
    cairn_key_manifest(&place, &key);
    return get_held(server, worker, version, key.text, false, ret, err);
}

enum cairn_code srv_cache_layout(struct srv *server, struct cairn_store_worker *worker,
                                 const struct srv_version *version, struct srv_held **ret,
                                 struct cairn_error *err) {
    if (!version->has_layout)
        return cairn_fail(err, CAIRN_NOT_FOUND, "%s has no tensors, so it has no layout",
                          version->id.text);
    struct cairn_key key;
    cairn_key_layout(&version->name, version->layout, &version->layout_writer, &key);
    return get_held(server, worker, version, key.text, true, ret, err);
}

/* ---- verifying one shard: a HEAD, then its ranges ---- */

#define READ_MS_MAX 60000

/* A HEAD finds a wrong size at once, and is all there is to check of 0 bytes. */
static enum cairn_code look_at_size(const struct srv_shard_check *check, const char *key,
                                    uint64_t size_bytes, struct cairn_error *err) {
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key};
    enum cairn_code code = cairn_store_perform(check->worker, &head, err);
    if (code == CAIRN_NOT_FOUND) return cairn_fail(err, CAIRN_CORRUPT, "it is missing");
    CAIRN_TRY(code);
    if (head.object_bytes == size_bytes) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CORRUPT, "it has %" PRIu64 " bytes, not %" PRIu64,
                      head.object_bytes, size_bytes);
}

static void log_again(void *owner, const struct cairn_error *why) {
    const char *key = owner;
    cairn_log(WARN, "verify.read_again", "key=%s cause=\"%s\"", key, why->message);
}

static enum cairn_code check_blocks(const struct srv_shard_check *check, struct cairn_key *key,
                                    const struct cairn_manifest_shard *shard,
                                    struct cairn_store_tags *tags, struct cairn_error *err) {
    const uint8_t *checksums = (const uint8_t *)check->version->checksums.data;
    for (uint64_t at = 0; at < shard->size_bytes; at += SRV_CHECK_BYTES) {
        uint64_t length = cairn_min_u64(SRV_CHECK_BYTES, shard->size_bytes - at);
        struct cairn_store_range range = {
            .request = {.key = key->text, .offset = at, .length = length, .into = check->buffer},
            .tags = tags,
            .object_bytes = shard->size_bytes,
            .checksums = checksums + 4 * (shard->first_block + at / CAIRN_BLOCK_BYTES),
            .wait_ms = READ_MS_MAX};
        CAIRN_TRY(cairn_store_range_read(&range, check->worker, log_again, key->text, err));
        if (!check->goes_on(check->owner, length))
            return cairn_fail(err, CAIRN_CANCELLED, "it was ended");
    }
    return CAIRN_OK;
}

enum cairn_code srv_shard_check(const struct srv_shard_check *check, size_t shard,
                                struct cairn_error *err) {
    const struct cairn_manifest_shard *one = &check->version->manifest.shards[shard];
    struct cairn_store_tags *tags = NULL;
    struct cairn_key key;
    cairn_key_shard(&check->version->place, cairn_view_of(one->name), &key);
    CAIRN_TRY(look_at_size(check, key.text, one->size_bytes, err));
    CAIRN_TRY(cairn_store_tags_new(1, &tags, err)); /* for this check only */
    enum cairn_code code = check_blocks(check, &key, one, tags, err);
    cairn_store_tags_free(tags);
    return code;
}
