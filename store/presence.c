/* SPDX-License-Identifier: Apache-2.0 */
/* Which objects are there; see presence.h. */
#include "store/presence.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/text.h"
#include "store/each.h"

#define PAGES_MAX 65536
#define HEADS_AT_ONCE 32

static int by_key(const void *a, const void *b) {
    return strcmp(((const struct cairn_store_object *)a)->key,
                  ((const struct cairn_store_object *)b)->key);
}

static void mark(struct cairn_store_object *object, uint64_t bytes) {
    object->found = true;
    object->found_bytes = bytes;
    object->there = bytes == object->size_bytes;
}

static void check(const struct cairn_store_object *object) {
    CAIRN_ASSERT(object->known);
    CAIRN_ASSERT(object->found || !object->there);
    CAIRN_ASSERT(!object->found ||
                 object->there == (object->found_bytes == object->size_bytes));
}

enum cairn_code cairn_store_object_check(const struct cairn_store_object *object,
                                         struct cairn_error *err) {
    check(object);
    if (object->there) return CAIRN_OK;
    if (!object->found) return cairn_fail(err, CAIRN_CORRUPT, "it is missing");
    return cairn_fail(err, CAIRN_CORRUPT, "it has %" PRIu64 " bytes, not %" PRIu64,
                      object->found_bytes, object->size_bytes);
}

/* ---- one listing ---- */

static void take_entry(struct cairn_store_presence *presence,
                       const struct cairn_store_entry *entry) {
    struct cairn_store_object wanted = {.key = entry->key};
    struct cairn_store_object *object = presence->count
                                            ? bsearch(&wanted, presence->objects, presence->count,
                                                      sizeof *presence->objects, by_key)
                                            : NULL;
    if (object) {
        mark(object, entry->size_bytes);
        object->known = object->there && !presence->ask_each;
    } else if (presence->stray) {
        presence->stray(presence->owner, entry->key, entry->size_bytes);
    }
}

static void list_done(struct cairn_store_request *request) {
    ((struct cairn_store_presence *)request->owner)->list_ready = true;
}

static void ask_page(struct cairn_store_presence *presence, struct cairn_store_worker *worker,
                     char *take_page) {
    free(presence->page);
    presence->page = take_page;
    presence->list_ready = false;
    presence->list = (struct cairn_store_request){.op = CAIRN_STORE_LIST,
                                                  .key = presence->prefix,
                                                  .page = take_page,
                                                  .listing = &presence->listing,
                                                  .done = list_done,
                                                  .owner = presence};
    presence->requests++;
    cairn_store_submit(worker, &presence->list);
}

static enum cairn_code await_page(struct cairn_store_presence *presence,
                                  struct cairn_store_worker *worker, struct cairn_error *err) {
    while (!presence->list_ready) {
        enum cairn_code code = cairn_store_poll(worker, 1000, err);
        if (code == CAIRN_OK) continue;
        cairn_store_cancel(worker, &presence->list);
        return code;
    }
    if (presence->list.code != CAIRN_OK && err) *err = presence->list.error;
    return presence->list.code;
}

static enum cairn_code take_page(struct cairn_store_presence *presence, struct cairn_error *err) {
    const struct cairn_store_listing *listing = &presence->listing;
    for (size_t i = 0; i < listing->count; i++) {
        if (!cairn_text_starts(listing->entries[i].key, presence->prefix))
            return cairn_fail(err, CAIRN_STORE,
                              "the store listed %s, which is not below %s that was asked for",
                              listing->entries[i].key, presence->prefix);
        take_entry(presence, &listing->entries[i]);
    }
    return CAIRN_OK;
}

/* The first page was asked for by the start. */
static enum cairn_code list_all(struct cairn_store_presence *presence,
                                struct cairn_store_worker *worker, struct cairn_error *err) {
    for (size_t pages = 0; pages < PAGES_MAX; pages++) {
        CAIRN_TRY(await_page(presence, worker, err));
        CAIRN_TRY(take_page(presence, err));
        char *next = CAIRN_TAKE(presence->listing.next_page);
        cairn_store_listing_release(&presence->listing);
        if (!next) return CAIRN_OK;
        ask_page(presence, worker, next);
    }
    return cairn_fail(err, CAIRN_TOO_LARGE, "%s has more than %d pages of objects",
                      presence->prefix, PAGES_MAX);
}

/* ---- a HEAD each ---- */

static bool ask_head(void *owner, size_t item, struct cairn_store_request *request) {
    struct cairn_store_presence *presence = owner;
    const struct cairn_store_object *object = &presence->objects[item];
    if (object->known) return false;
    request->op = CAIRN_STORE_HEAD;
    request->key = object->key;
    presence->requests++;
    return true;
}

static enum cairn_code take_head(void *owner, size_t item,
                                 const struct cairn_store_request *request,
                                 struct cairn_error *err) {
    struct cairn_store_presence *presence = owner;
    struct cairn_store_object *object = &presence->objects[item];
    if (request->code == CAIRN_NOT_FOUND) {
        object->known = true;
        object->found = object->there = false;
        return CAIRN_OK;
    }
    if (request->code == CAIRN_OK) {
        mark(object, request->object_bytes);
        object->known = true;
        object->has_crc32c = request->object_has_crc32c;
        object->crc32c = request->object_crc32c;
    } else if (err) {
        *err = request->error;
    }
    return request->code;
}

static enum cairn_code head_rest(struct cairn_store_presence *presence,
                                 struct cairn_store_worker *worker, struct cairn_error *err) {
    struct cairn_store_each each = {.count = presence->count,
                                    .at_once = HEADS_AT_ONCE,
                                    .ask = ask_head,
                                    .answer = take_head,
                                    .owner = presence};
    return cairn_store_each_run(&each, worker, err);
}

/* ---- the look ---- */

void cairn_store_presence_start(struct cairn_store_presence *presence,
                                struct cairn_store_worker *worker) {
    presence->listed = false;
    presence->requests = 0;
    presence->there_count = 0;
    presence->listing = (struct cairn_store_listing){0};
    presence->page = NULL;
    for (size_t i = 0; i < presence->count; i++) {
        struct cairn_store_object *object = &presence->objects[i];
        CAIRN_ASSERT(cairn_text_starts(object->key, presence->prefix));
        CAIRN_ASSERT(!i || strcmp(object[-1].key, object->key) < 0);
        object->known = object->there = object->found = false;
    }
    ask_page(presence, worker, NULL);
}

enum cairn_code cairn_store_presence_finish(struct cairn_store_presence *presence,
                                            struct cairn_store_worker *worker,
                                            struct cairn_error *err) {
    struct cairn_error why = {0};
    enum cairn_code code = list_all(presence, worker, &why);
    cairn_store_listing_release(&presence->listing);
    free(CAIRN_TAKE(presence->page));
    presence->listed = code == CAIRN_OK;
    if (code != CAIRN_OK && code != CAIRN_FORBIDDEN && code != CAIRN_UNSUPPORTED) {
        if (err) *err = why;
        return code;
    }
    CAIRN_TRY(head_rest(presence, worker, err));
    for (size_t i = 0; i < presence->count; i++) {
        check(&presence->objects[i]);
        presence->there_count += presence->objects[i].there;
    }
    return CAIRN_OK;
}

enum cairn_code cairn_store_presence_look(struct cairn_store_presence *presence,
                                          struct cairn_store_worker *worker,
                                          struct cairn_error *err) {
    cairn_store_presence_start(presence, worker);
    return cairn_store_presence_finish(presence, worker, err);
}
