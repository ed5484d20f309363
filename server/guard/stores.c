/* SPDX-License-Identifier: Apache-2.0 */
/* Names, order and idle workers of stores, and the listing of one run in them; see stores.h. */

#include <stdio.h>
#include <stdlib.h>

#include "server/guard/identity.h"
#include "server/guard/stores.h"
#include "store/whole.h"

/* For each store; further returned workers are freed. */
#define IDLE_MAX 16

struct srv_idle {
    struct cairn_store_worker *worker;
    struct srv_idle *next;
};

enum cairn_code srv_tiers_new(struct srv *server,
                              enum cairn_code (*open)(struct srv *server, const char *url,
                                                      struct cairn_store **ret,
                                                      struct cairn_error *err),
                              struct srv_tiers **ret, struct cairn_error *err) {
    struct srv_tiers *tiers = calloc(1, sizeof(*tiers));
    if (!tiers) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the setting stores");
    cairn_lock_init(&tiers->lock, CAIRN_LOCK_server_tiers);
    struct cairn_stores named = {0};
    enum cairn_code code = cairn_stores_parse(server->settings->stores, &named, err);
    tiers->main = named.main;
    for (size_t i = 0; i < named.count && !code; i++) {
        struct srv_tier *tier = &tiers->tiers[tiers->count++];
        (void)cairn_text_copy(tier->name, sizeof(tier->name), named.items[i].name);
        if (!named.items[i].url)
            tier->store = server->store;
        else
            code = open(server, named.items[i].url, &tier->store, err);
        if (code) (void)cairn_within(err, code, "stores: %s", tier->name);
    }
    cairn_stores_release(&named);
    if (code)
        srv_tiers_free(tiers);
    else
        *ret = tiers;
    return code;
}

void srv_tiers_free(struct srv_tiers *tiers) {
    if (!tiers) return;
    CAIRN_ASSERT(!tiers->copying);
    for (size_t i = 0; i < tiers->count; i++) {
        struct srv_tier *tier = &tiers->tiers[i];
        while (tier->idle) {
            struct srv_idle *idle = tier->idle;
            tier->idle = idle->next;
            cairn_store_worker_free(idle->worker);
            free(idle);
        }
        if (i != tiers->main && tier->store) cairn_store_free(tier->store);
    }
    cairn_lock_release(&tiers->lock);
    free(tiers);
}

bool srv_tiers_any(const struct srv *server) {
    return server->tiers && server->tiers->count > 1;
}

struct srv_tier *srv_tier_find(const struct srv *server, const char *name) {
    struct srv_tiers *tiers = server->tiers;
    for (size_t i = 0; tiers && i < tiers->count; i++)
        if (!strcmp(tiers->tiers[i].name, name)) return &tiers->tiers[i];
    return NULL;
}

bool srv_tier_is_main(const struct srv *server, const struct srv_tier *tier) {
    return tier == &server->tiers->tiers[server->tiers->main];
}

enum cairn_code srv_tier_borrow(struct srv *server, struct srv_tier *tier,
                                struct cairn_store_worker **ret, struct cairn_error *err) {
    struct srv_idle *idle = NULL;
    {
        CAIRN_HOLD(&server->tiers->lock);
        idle = tier->idle;
        if (idle) tier->idle = idle->next;
    }
    if (!idle) return cairn_store_worker_new(tier->store, ret, err);
    *ret = idle->worker;
    free(idle);
    return CAIRN_OK;
}

void srv_tier_return(struct srv *server, struct srv_tier *tier, struct cairn_store_worker *worker) {
    struct srv_idle *idle = worker ? malloc(sizeof(*idle)) : NULL;
    if (idle) {
        size_t count = 0;
        CAIRN_HOLD(&server->tiers->lock);
        for (const struct srv_idle *at = tier->idle; at; at = at->next) count++;
        if (count < IDLE_MAX) {
            *idle = (struct srv_idle){worker, tier->idle};
            tier->idle = idle;
            return;
        }
    }
    free(idle);
    cairn_store_worker_free(worker);
}

/* ---- one run in one store ---- */

#define PAGES_MAX 1000000
#define ITEMS_MAX 1000000

void srv_run_objects_release(struct srv_run_objects *objects) {
    free(objects->versions);
    free(objects->marks);
    free(objects->attempts);
    free(objects->touched);
    *objects = (struct srv_run_objects){0};
}

/* ---- the listing ---- */

static enum cairn_code add_attempt(struct srv_run_objects *objects, uint64_t number,
                                   struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(objects->attempts, objects->attempt_count, objects->attempt_capacity,
                               ITEMS_MAX, "records of a run", err));
    objects->attempts[objects->attempt_count++] = number;
    return CAIRN_OK;
}

static enum cairn_code add_version(struct srv_run_objects *objects, const struct srv_seen *seen,
                                   struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(objects->versions, objects->version_count, objects->version_capacity,
                               ITEMS_MAX, "records of a run", err));
    objects->versions[objects->version_count++] = *seen;
    return CAIRN_OK;
}

static enum cairn_code add_mark(struct srv_run_objects *objects, const struct srv_seen *seen,
                                struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(objects->marks, objects->mark_count, objects->mark_capacity,
                               ITEMS_MAX, "records of a run", err));
    objects->marks[objects->mark_count++] = *seen;
    return CAIRN_OK;
}

/* A store lists by key, so a version's keys are adjacent. */
static enum cairn_code add_touched(struct srv_run_objects *objects, const struct srv_seen *seen,
                                   struct cairn_error *err) {
    if (objects->touched_count &&
        !strcmp(objects->touched[objects->touched_count - 1].id.text, seen->id.text))
        return CAIRN_OK;
    CAIRN_TRY(CAIRN_ARRAY_ROOM(objects->touched, objects->touched_count, objects->touched_capacity,
                               ITEMS_MAX, "versions of a run", err));
    objects->touched[objects->touched_count++] = *seen;
    return CAIRN_OK;
}

static enum cairn_code take_key(struct srv_run_objects *objects, const char *rest,
                                struct cairn_error *err) {
    struct cairn_key_parts parts;
    cairn_key_read(rest, &parts);
    struct srv_seen seen = {.id = parts.id, .step = parts.step};
    switch (parts.kind) {
    case CAIRN_KEY_ATTEMPT:
    case CAIRN_KEY_ATTEMPT_COPY:
        return add_attempt(objects, parts.number, err);
    case CAIRN_KEY_COMMITTED:
        CAIRN_TRY(add_touched(objects, &seen, err));
        return add_version(objects, &seen, err);
    case CAIRN_KEY_TRASHED:
    case CAIRN_KEY_SUPERSEDED:
        seen.trashed = parts.kind == CAIRN_KEY_TRASHED;
        seen.superseded_by = parts.number;
        return add_mark(objects, &seen, err);
    case CAIRN_KEY_MANIFEST:
    case CAIRN_KEY_CONTENT:
        return add_touched(objects, &seen, err);
    default:
        return CAIRN_OK;
    }
}

static int by_number(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

static int by_id(const void *a, const void *b) {
    return strcmp(((const struct srv_seen *)a)->id.text, ((const struct srv_seen *)b)->id.text);
}

static void drop_twice(struct srv_seen *seen, size_t *count) {
    size_t kept = 0;
    if (*count) qsort(seen, *count, sizeof(*seen), by_id);
    for (size_t i = 0; i < *count; i++)
        if (!kept || by_id(&seen[kept - 1], &seen[i]) || seen[kept - 1].step != seen[i].step)
            seen[kept++] = seen[i];
    *count = kept;
}

/* Assigns marks to versions; merges attempts with their copies, and versions in several stores. */
static void put_together(struct srv_run_objects *objects) {
    size_t kept = 0;
    drop_twice(objects->versions, &objects->version_count);
    drop_twice(objects->touched, &objects->touched_count);
    for (size_t i = 0; objects->version_count && i < objects->mark_count; i++) {
        struct srv_seen *version =
            bsearch(&objects->marks[i], objects->versions, objects->version_count,
                    sizeof(*objects->versions), by_id);
        if (!version) continue;
        version->trashed |= objects->marks[i].trashed;
        version->superseded_by =
            cairn_max_u64(version->superseded_by, objects->marks[i].superseded_by);
    }
    if (objects->attempt_count)
        qsort(objects->attempts, objects->attempt_count, sizeof(*objects->attempts), by_number);
    for (size_t i = 0; i < objects->attempt_count; i++)
        if (!kept || objects->attempts[kept - 1] != objects->attempts[i])
            objects->attempts[kept++] = objects->attempts[i];
    objects->attempt_count = kept;
}

const struct srv_seen *srv_run_objects_find(const struct srv_run_objects *objects, const char *id) {
    struct srv_seen wanted = {0};
    if (!objects->version_count || !cairn_text_copy(wanted.id.text, sizeof(wanted.id.text), id))
        return NULL;
    return bsearch(&wanted, objects->versions, objects->version_count, sizeof(wanted), by_id);
}

bool srv_run_objects_touch(const struct srv_run_objects *objects, const char *id) {
    struct srv_seen wanted = {0};
    if (!objects->touched_count || !cairn_text_copy(wanted.id.text, sizeof(wanted.id.text), id))
        return false;
    return bsearch(&wanted, objects->touched, objects->touched_count, sizeof(wanted), by_id);
}

bool srv_run_objects_has_attempt(const struct srv_run_objects *objects, uint64_t number) {
    return objects->attempt_count &&
           bsearch(&number, objects->attempts, objects->attempt_count, sizeof(number), by_number);
}

static enum cairn_code join_objects(struct srv_run_objects *objects,
                                    const struct srv_run_objects *more, struct cairn_error *err) {
    for (size_t i = 0; i < more->version_count; i++)
        CAIRN_TRY(add_version(objects, &more->versions[i], err));
    for (size_t i = 0; i < more->mark_count; i++)
        CAIRN_TRY(add_mark(objects, &more->marks[i], err));
    for (size_t i = 0; i < more->attempt_count; i++)
        CAIRN_TRY(add_attempt(objects, more->attempts[i], err));
    for (size_t i = 0; i < more->touched_count; i++)
        CAIRN_TRY(add_touched(objects, &more->touched[i], err));
    put_together(objects);
    return CAIRN_OK;
}

static enum cairn_code list_all(struct srv_run_objects *objects, struct cairn_store_worker *worker,
                                const char *prefix, size_t run_size, struct cairn_error *err) {
    CAIRN_AUTO(store_pages) pages = {.list = {.op = CAIRN_STORE_LIST, .key = prefix}};
    while (!pages.ended && pages.count < PAGES_MAX) {
        CAIRN_TRY(cairn_store_pages_next(&pages, worker, err));
        for (size_t i = 0; i < pages.listing.count; i++) {
            const char *key = pages.listing.entries[i].key;
            if (!cairn_text_starts(key, prefix))
                return cairn_fail(err, CAIRN_STORE, "the store listed %s below %s", key, prefix);
            CAIRN_TRY(take_key(objects, key + run_size, err));
        }
    }
    if (pages.ended) return CAIRN_OK;
    return cairn_fail(err, CAIRN_TOO_LARGE, "%s has more than %d pages", prefix, PAGES_MAX);
}

enum cairn_code srv_run_objects_list(struct srv_run_objects *objects,
                                     struct cairn_store_worker *worker, bool attempts_only,
                                     struct cairn_error *err) {
    char prefix[2 * CAIRN_NAME_BYTES_MAX + 16];
    int size = snprintf(prefix, sizeof(prefix), "%s/%s/", objects->name.project, objects->name.run);
    if (attempts_only) snprintf(prefix + size, sizeof(prefix) - (size_t)size, "attempts/");
    struct cairn_error why = {0};
    enum cairn_code code = list_all(objects, worker, prefix, (size_t)size, &why);
    objects->listed = code == CAIRN_OK;
    if (code && code != CAIRN_FORBIDDEN && code != CAIRN_UNSUPPORTED)
        return cairn_pass(err, code, &why);
    put_together(objects);
    return CAIRN_OK;
}

/* ---- documents ---- */

/* CAIRN_CORRUPT: damaged; CAIRN_UNSUPPORTED: of a newer release. Either freezes only its run. */
static enum cairn_code not_so(enum cairn_code code, const char *key, struct cairn_error *err) {
    if (code == CAIRN_TOO_LARGE) code = CAIRN_CORRUPT;
    return cairn_within(err, code, "%s", key);
}

static enum cairn_code read_attempt_at(struct cairn_store_worker *worker, const char *key,
                                       const struct cairn_run_name *name, uint64_t attempt,
                                       struct cairn_attempt_record *ret, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = CAIRN_MANIFEST_BYTES_MAX};
    enum cairn_code code = cairn_store_get_small(worker, key, &text, err);
    if (!code) code = cairn_attempt_record_prove(cairn_buf_view(&text), name, attempt, ret, err);
    return not_so(code, key, err);
}

enum cairn_code srv_attempt_read(struct cairn_store_worker *worker,
                                 const struct cairn_run_name *name, uint64_t attempt,
                                 struct cairn_attempt_record *ret, struct cairn_error *err) {
    struct cairn_key key;
    struct cairn_error why = {0}, unused = {0};
    cairn_key_attempt(name, attempt, &key);
    enum cairn_code code = read_attempt_at(worker, key.text, name, attempt, ret, &why);
    if (code != CAIRN_CORRUPT && code != CAIRN_NOT_FOUND) return cairn_pass(err, code, &why);
    cairn_key_attempt_copy(name, attempt, &key);
    enum cairn_code copied = read_attempt_at(worker, key.text, name, attempt, ret, &unused);
    if (!copied) return CAIRN_OK;
    if (code == CAIRN_NOT_FOUND) why = unused;
    if (err) *err = why;
    return code == CAIRN_NOT_FOUND ? copied : code;
}

enum cairn_code srv_committed_read(struct cairn_store_worker *worker,
                                   const struct cairn_version_place *place,
                                   struct cairn_record *ret_record,
                                   struct cairn_manifest *ret_manifest, struct cairn_error *err) {
    static const enum cairn_document documents[] = {CAIRN_DOCUMENT_RECORD, CAIRN_DOCUMENT_MANIFEST};
    struct cairn_document_source source = cairn_store_documents(worker, NULL);
    CAIRN_AUTO(committed) committed = {.place = *place};
    for (size_t i = 0; i < CAIRN_COUNT(documents); i++) {
        struct cairn_key key;
        enum cairn_code code = cairn_committed_read(&committed, &source, documents[i], err);
        cairn_committed_key(&committed, documents[i], &key);
        if (code) return not_so(code, key.text, err);
    }
    *ret_record = committed.record;
    *ret_manifest = committed.manifest;
    committed.manifest = (struct cairn_manifest){0};
    return CAIRN_OK;
}

/* ---- one run in all stores ---- */

enum cairn_code srv_run_store_within(const struct srv_run_stores *stores, size_t index,
                                     enum cairn_code code, struct cairn_error *err) {
    if (!code || stores->count < 2) return code;
    return cairn_within(err, code, "store %s", stores->stores[index].name);
}

static enum cairn_code open_one(struct srv_run_stores *stores, struct srv_tier *tier,
                                struct cairn_error *err) {
    struct srv *server = stores->server;
    CAIRN_ASSERT(stores->count < SRV_TIERS_MAX);
    struct srv_run_store *one = &stores->stores[stores->count++];
    *one = (struct srv_run_store){.tier = tier, .name = tier->name};
    CAIRN_TRY(srv_tier_borrow(server, tier, &one->worker, err));
    one->borrowed = true;
    return srv_tier_ready(server, tier, one->worker, err);
}

enum cairn_code srv_run_stores_open(struct srv_run_stores *stores, struct srv *server,
                                    struct cairn_store_worker *worker, struct cairn_error *err) {
    struct srv_tiers *tiers = server->tiers;
    *stores = (struct srv_run_stores){.server = server, .count = 1};
    stores->stores[0] = (struct srv_run_store){
        .tier = tiers ? &tiers->tiers[tiers->main] : NULL, .name = SRV_TIER_MAIN, .worker = worker};
    for (size_t i = 0; tiers && i < tiers->count; i++)
        if (i != tiers->main && !tiers->tiers[i].left_out)
            CAIRN_TRY(open_one(stores, &tiers->tiers[i], err));
    return CAIRN_OK;
}

void srv_run_stores_release(struct srv_run_stores *stores) {
    for (size_t i = 0; i < stores->count; i++) {
        struct srv_run_store *one = &stores->stores[i];
        if (one->borrowed) srv_tier_return(stores->server, one->tier, one->worker);
        srv_run_objects_release(&one->objects);
    }
    *stores = (struct srv_run_stores){0};
}

enum cairn_code srv_run_stores_list(struct srv_run_stores *stores, struct srv_run_objects *ret,
                                    struct cairn_error *err) {
    for (size_t i = 0; i < stores->count; i++) {
        struct srv_run_store *one = &stores->stores[i];
        one->objects.name = ret->name;
        enum cairn_code code = srv_run_objects_list(&one->objects, one->worker, false, err);
        if (!code && !one->objects.listed)
            code = cairn_fail(err, CAIRN_FORBIDDEN, "these keys may not list the store");
        if (!code) code = join_objects(ret, &one->objects, err);
        if (code) return srv_run_store_within(stores, i, code, err);
    }
    ret->listed = true;
    return CAIRN_OK;
}
