/* SPDX-License-Identifier: Apache-2.0 */
/* One store after the other, until one gives what is proven; see tier_reads.h. */
#include "server/reads/tier_reads.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "common/log.h"
#include "common/text.h"
#include "server/copies/damage.h"
#include "server/metrics.h"

/* ---- where ---- */

struct looking {
    const char *version;
    struct cairn_srv_copies copies;
};

static enum cairn_code look(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct looking *looking = argument;
    return cairn_srv_copies_get(tx, looking->version, &looking->copies, err);
}

enum cairn_code cairn_srv_where_of(struct cairn_srv *server, const char *version,
                                   const char *except, struct cairn_srv_where *ret,
                                   struct cairn_error *err) {
    struct looking looking = {.version = version};
    struct cairn_srv_tiers *tiers = server->tiers;
    *ret = (struct cairn_srv_where){.count = 0};
    (void)cairn_text_copy(ret->version, sizeof(ret->version), version);
    if (!cairn_srv_tiers_any(server)) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_catalog_read(server->catalog, look, &looking, err));
    for (size_t i = 0; i < tiers->count; i++) {
        struct cairn_srv_tier *tier = &tiers->tiers[i];
        const struct cairn_srv_copy *copy = cairn_srv_copies_find(&looking.copies, tier->name);
        bool whole = copy && copy->state == CAIRN_SRV_COPY_WHOLE;
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

bool cairn_srv_tier_is_away(const struct cairn_srv_tier *tier) {
    return atomic_load(&tier->away_until_ms) > cairn_mono_ms();
}

/* The nearest that answers, behind the sound ones those that are damaged, then likewise those that
 * did not answer just now. */
static void order(const struct cairn_srv_where *where, size_t ret[CAIRN_SRV_TIERS_MAX]) {
    int turns[CAIRN_SRV_TIERS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < where->count; i++)
        turns[i] = 2 * cairn_srv_tier_is_away(where->tiers[i]) + where->damaged[i];
    for (int turn = 0; turn < 4; turn++)
        for (size_t i = 0; i < where->count; i++)
            if (turns[i] == turn) ret[count++] = i;
}

/* Where the store's own .cairn/store.json cannot be read either, the store is not mounted, or away:
 * its copy may be right. worker: of that store. */
static void note_damage(struct cairn_srv *server, const struct cairn_srv_where *where, size_t at,
                        struct cairn_store_worker *worker) {
    struct cairn_key key;
    cairn_key_store_json(&key);
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key.text};
    if (where->damaged[at] || cairn_store_perform(worker, &head, NULL)) return;
    const struct cairn_srv_damage found = {
        .version = where->version,
        .store = where->count ? where->tiers[at]->name : CAIRN_SRV_TIER_MAIN,
        .objects = 1,
        .changed_ms = where->changed_ms[at]};
    cairn_srv_damage_note(server, &found);
}

static void note_away(struct cairn_srv_tier *tier, enum cairn_code code) {
    if (code == CAIRN_UNAVAILABLE || code == CAIRN_TIMEOUT || code == CAIRN_BUSY)
        atomic_store(&tier->away_until_ms, cairn_mono_ms() + CAIRN_SRV_TIER_SHUN_MS);
}

static void tell_fallback(const struct cairn_srv *server, const struct cairn_srv_tier *from,
                          const char *key, const struct cairn_error *why) {
    cairn_metrics_add(server->metrics,
                      (struct cairn_metric_at){.family = CAIRN_SRV_METRIC_read_fallbacks_total}, 1);
    cairn_log(WARN, "read.fallback", "store=%s key=%s cause=\"%s\"", from->name, key,
              why->message);
}

/* The main store by the caller's own worker. */
static enum cairn_code borrow(struct cairn_srv *server, struct cairn_srv_tier *tier,
                              struct cairn_store_worker *own, struct cairn_store_worker **ret,
                              struct cairn_error *err) {
    *ret = own;
    if (cairn_srv_tier_is_main(server, tier)) return CAIRN_OK;
    *ret = NULL;
    return cairn_srv_tier_borrow(server, tier, ret, err);
}

/* Of the i-th that is asked: the last one is waited for as if it were the only one. */
static uint32_t patience(const struct cairn_srv_where *where, size_t i) {
    return i + 1 < where->count ? CAIRN_STORE_ELSEWHERE_MS : 0;
}

static void give(struct cairn_srv *server, struct cairn_srv_tier *tier,
                 const struct cairn_store_worker *own, struct cairn_store_worker *worker) {
    if (worker) worker->patience_ms = 0;
    if (worker != own) cairn_srv_tier_return(server, tier, worker);
}

/* ---- ranges ---- */

size_t cairn_srv_tier_tags(size_t shards) {
    return shards * CAIRN_SRV_TIERS_MAX;
}

static enum cairn_code read_from(struct cairn_store_worker *worker, size_t tier,
                                 const struct cairn_srv_tier_range *range,
                                 struct cairn_error *err) {
    struct cairn_store_range one = {
        .request = {.key = range->key,
                    .offset = range->offset,
                    .length = range->length,
                    .into = range->into},
        .tags = range->tags,
        .object = tier * range->object_count + range->object, /* ETags are a store's own */
        .object_bytes = range->object_bytes,
        .checksums = range->checksums,
        .wait_ms = range->wait_ms};
    return cairn_store_range_read(&one, worker, range->again, range->owner, err);
}

static enum cairn_code read_from_any(struct cairn_srv *server, struct cairn_store_worker *own,
                                     const struct cairn_srv_where *where,
                                     const struct cairn_srv_tier_range *range,
                                     struct cairn_error *err) {
    size_t turns[CAIRN_SRV_TIERS_MAX];
    struct cairn_error first = {0};
    enum cairn_code code = CAIRN_OK, told = CAIRN_OK;
    order(where, turns);
    for (size_t i = 0; i < where->count; i++) {
        struct cairn_srv_tier *tier = where->tiers[turns[i]];
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
        /* Damage is the answer, where one is damaged and another away. */
        if (told && (told == CAIRN_CORRUPT || code != CAIRN_CORRUPT)) continue;
        told = code;
        first = why;
    }
    if (!code) return CAIRN_OK;
    if (err) *err = first;
    return told ? told : code;
}

/* tier_reads.h#2: of two copies that are damaged each in another block all can be had. */
static enum cairn_code read_blocks(struct cairn_srv *server, struct cairn_store_worker *worker,
                                   const struct cairn_srv_where *where,
                                   const struct cairn_srv_tier_range *range,
                                   struct cairn_error *err) {
    struct cairn_srv_tier_range block = *range;
    for (uint64_t at = 0; at < range->length; at += CAIRN_BLOCK_BYTES) {
        block.offset = range->offset + at;
        block.length = cairn_min_u64(CAIRN_BLOCK_BYTES, range->length - at);
        block.into = (uint8_t *)range->into + at;
        block.checksums = (const uint8_t *)range->checksums + 4 * (at / CAIRN_BLOCK_BYTES);
        CAIRN_TRY(read_from_any(server, worker, where, &block, err));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_tier_read(struct cairn_srv *server, struct cairn_store_worker *worker,
                                    const struct cairn_srv_where *where,
                                    const struct cairn_srv_tier_range *range,
                                    struct cairn_error *err) {
    struct cairn_error why = {0};
    enum cairn_code code = where->count ? read_from_any(server, worker, where, range, &why)
                                        : read_from(worker, 0, range, &why);
    if (code == CAIRN_CORRUPT && !where->count) note_damage(server, where, 0, worker);
    bool pieces = where->count > 1 && range->length > CAIRN_BLOCK_BYTES;
    if (code == CAIRN_CORRUPT && pieces)
        code = read_blocks(server, worker, where, range, &why);
    if (code && err) *err = why;
    return code;
}

/* ---- one version that is read ---- */

struct cairn_srv_reading {
    struct cairn_srv *server;
    struct cairn_srv_where where;
    struct cairn_store_tags *tags;
    size_t object_count;
};

enum cairn_code cairn_srv_reading_new(struct cairn_srv *server, const char *version,
                                      size_t object_count, struct cairn_srv_reading **ret,
                                      struct cairn_error *err) {
    struct cairn_srv_reading *reading = calloc(1, sizeof(*reading));
    if (!reading) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a read");
    *reading = (struct cairn_srv_reading){.server = server, .object_count = object_count};
    enum cairn_code code = cairn_srv_where_of(server, version, NULL, &reading->where, err);
    size_t tags = reading->where.count ? cairn_srv_tier_tags(object_count) : object_count;
    if (!code) code = cairn_store_tags_new(tags, &reading->tags, err);
    if (code)
        cairn_srv_reading_free(reading);
    else
        *ret = reading;
    return code;
}

void cairn_srv_reading_free(struct cairn_srv_reading *reading) {
    if (!reading) return;
    cairn_store_tags_free(reading->tags);
    free(reading);
}

struct cairn_store *cairn_srv_reading_nearest(const struct cairn_srv_reading *reading) {
    size_t turns[CAIRN_SRV_TIERS_MAX];
    if (!reading->where.count) return reading->server->store;
    order(&reading->where, turns);
    return reading->where.tiers[turns[0]]->store;
}

enum cairn_code cairn_srv_reading_read(struct cairn_srv_reading *reading,
                                       struct cairn_store_worker *worker,
                                       struct cairn_srv_tier_range *range,
                                       struct cairn_error *err) {
    range->tags = reading->tags;
    range->object_count = reading->object_count;
    return cairn_srv_tier_read(reading->server, worker, &reading->where, range, err);
}

/* ---- documents ---- */

/* What came wrong is asked for at the next store, if there is one. */
static enum cairn_code get(void *owner, enum cairn_document document, const char *key, bool again,
                           struct cairn_buf *ret, struct cairn_error *err) {
    const struct cairn_srv_tier_documents *own = owner;
    const struct cairn_srv_where *where = own->where;
    size_t turns[CAIRN_SRV_TIERS_MAX];
    struct cairn_error first = {0};
    enum cairn_code code = CAIRN_OK, told = CAIRN_OK;
    size_t before = ret->size, skipped = again && where->count > 1;
    order(where, turns);
    for (size_t i = 0; i < where->count; i++) {
        struct cairn_srv_tier *tier = where->tiers[turns[(i + skipped) % where->count]];
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

struct cairn_document_source
cairn_srv_tier_documents(struct cairn_srv_tier_documents *documents,
                         void (*tell_again)(const char *key, const struct cairn_error *why)) {
    if (!documents->where->count) return cairn_store_documents(documents->worker, tell_again);
    return (struct cairn_document_source){.get = get, .tell_again = tell_again, .owner = documents};
}
