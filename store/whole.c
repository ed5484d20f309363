/* SPDX-License-Identifier: Apache-2.0 */
/* Checks objects and whole versions in a store; see whole.h. */
#include "store/whole.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/crc.h"
#include "common/text.h"

static enum cairn_code get_document(void *owner, enum cairn_document document, const char *key,
                                    bool again, struct cairn_buf *ret, struct cairn_error *err) {
    struct cairn_store_worker *worker = owner;
    CAIRN_AUTO_PTR(store_worker) other = NULL;
    (void)document;
    if (again) CAIRN_TRY(cairn_store_worker_new(worker->store, &other, err));
    return cairn_store_get_small(again ? other : worker, key, ret, err);
}

struct cairn_document_source
cairn_store_documents(struct cairn_store_worker *worker,
                      void (*tell_again)(const char *key, const struct cairn_error *why)) {
    return (struct cairn_document_source){
        .get = get_document, .tell_again = tell_again, .owner = worker};
}

/* ---- presence ---- */

#define PAGES_MAX 65536
#define HEADS_AT_ONCE 32

static int by_key(const void *a, const void *b) {
    return strcmp(((const struct cairn_store_object *)a)->key,
                  ((const struct cairn_store_object *)b)->key);
}

static void mark_found(struct cairn_store_object *object, uint64_t bytes) {
    object->found = true;
    object->found_bytes = bytes;
    object->there = bytes == object->size_bytes;
}

static void check_consistent(const struct cairn_store_object *object) {
    CAIRN_ASSERT(object->known);
    CAIRN_ASSERT(object->found || !object->there);
    CAIRN_ASSERT(!object->found || object->there == (object->found_bytes == object->size_bytes));
}

enum cairn_code cairn_store_object_check(const struct cairn_store_object *object,
                                         struct cairn_error *err) {
    check_consistent(object);
    if (object->there) return CAIRN_OK;
    if (!object->found) return cairn_fail(err, CAIRN_CORRUPT, "it is missing");
    return cairn_fail(err, CAIRN_CORRUPT, "it has %" PRIu64 " bytes, not %" PRIu64,
                      object->found_bytes, object->size_bytes);
}

/* Both lists are sorted, so the next object mostly is the one. */
static struct cairn_store_object *find_object(struct cairn_store_presence *presence,
                                              const char *key) {
    struct cairn_store_object *objects = presence->objects,
                              wanted = {.key = (char *)(uintptr_t)key};
    size_t next = presence->next;
    if (!presence->count) return NULL;
    struct cairn_store_object *found =
        next < presence->count && !strcmp(objects[next].key, key)
            ? &objects[next]
            : bsearch(&wanted, objects, presence->count, sizeof *objects, by_key);
    if (found) presence->next = (size_t)(found - objects) + 1;
    return found;
}

static void list_done(struct cairn_store_request *request) {
    ((struct cairn_store_presence *)request->owner)->list_ready = true;
}

static const char *key_at(const void *owner, size_t at) {
    return ((const struct cairn_store_presence *)owner)->objects[at].key;
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
                                                  .only = presence->stray ? NULL : key_at,
                                                  .only_owner = presence,
                                                  .only_count = presence->count,
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
        const struct cairn_store_entry *entry = &listing->entries[i];
        struct cairn_store_object *object = find_object(presence, entry->key);
        if (object) {
            mark_found(object, entry->size_bytes);
            object->known = object->there && !presence->ask_each;
        } else if (presence->stray) {
            presence->stray(presence->owner, entry->key, entry->size_bytes);
        }
    }
    return CAIRN_OK;
}

/* The first page is under way since the start. */
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

/* ---- a HEAD of each object that the listing left open, several under way at once ---- */

struct slot {
    struct cairn_store_request request;
    struct cairn_store_object *object;
    bool busy, ended;
};
struct heads {
    struct cairn_store_presence *presence;
    struct cairn_store_worker *worker;
    struct slot *slots;
    size_t next; /* first object neither known nor requested */
    size_t passed, asked, answered;
};

static size_t objects_left(const struct heads *heads) {
    return heads->presence->count - heads->passed - heads->answered;
}

static void head_done(struct cairn_store_request *request) {
    struct slot *slot = request->owner;
    CAIRN_ASSERT(slot->busy && !slot->ended);
    slot->ended = true;
}

/* False: every object is known or requested. */
static bool ask_next(struct heads *heads, struct slot *slot) {
    while (heads->next < heads->presence->count) {
        struct cairn_store_object *object = &heads->presence->objects[heads->next++];
        if (object->known) {
            heads->passed++;
            continue;
        }
        *slot = (struct slot){.object = object, .busy = true};
        slot->request = (struct cairn_store_request){
            .op = CAIRN_STORE_HEAD, .key = object->key, .done = head_done, .owner = slot};
        heads->asked++;
        heads->presence->requests++;
        cairn_store_submit(heads->worker, &slot->request);
        return true;
    }
    return false;
}

static enum cairn_code take_head(struct cairn_store_object *object,
                                 const struct cairn_store_request *request,
                                 struct cairn_error *err) {
    if (request->code == CAIRN_NOT_FOUND) {
        object->known = true;
        object->found = object->there = false;
        return CAIRN_OK;
    }
    if (request->code == CAIRN_OK) {
        mark_found(object, request->object_bytes);
        object->known = true;
        object->has_crc32c = request->object_has_crc32c;
        object->crc32c = request->object_crc32c;
    } else if (err) {
        *err = request->error;
    }
    return request->code;
}

/* The loop's only condition is the number of objects left: a loop that ended with no request under
 * way would end too early when one poll answers them all, and report unchecked objects as missing.
 * The first error of an answer or of the worker ends it. */
static enum cairn_code head_each(struct heads *heads, struct cairn_error *err) {
    while (objects_left(heads)) {
        for (size_t i = 0; i < HEADS_AT_ONCE; i++)
            if (!heads->slots[i].busy && !ask_next(heads, &heads->slots[i])) break;
        if (!objects_left(heads)) break;
        CAIRN_ASSERT(heads->asked > heads->answered);
        CAIRN_TRY(cairn_store_poll(heads->worker, 1000, err));
        for (size_t i = 0; i < HEADS_AT_ONCE; i++) {
            struct slot *slot = &heads->slots[i];
            if (!slot->busy || !slot->ended) continue;
            slot->busy = false;
            heads->answered++;
            CAIRN_TRY(take_head(slot->object, &slot->request, err));
        }
    }
    CAIRN_ASSERT(heads->next == heads->presence->count && heads->asked == heads->answered);
    return CAIRN_OK;
}

/* After a failure the requests under way are cancelled; all have ended before it returns. */
static enum cairn_code head_rest(struct cairn_store_presence *presence,
                                 struct cairn_store_worker *worker, struct cairn_error *err) {
    CAIRN_AUTO_HEAP struct slot *slots = calloc(HEADS_AT_ONCE, sizeof *slots);
    if (!slots) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to ask about objects");
    struct heads heads = {.presence = presence, .worker = worker, .slots = slots};
    enum cairn_code code = head_each(&heads, err);
    size_t cancelled = 0;
    for (size_t i = 0; i < HEADS_AT_ONCE; i++) {
        if (!slots[i].busy) continue;
        if (!slots[i].ended) cairn_store_cancel(worker, &slots[i].request);
        CAIRN_ASSERT(slots[i].ended);
        cancelled++;
    }
    CAIRN_ASSERT(heads.asked == heads.answered + cancelled);
    return code;
}

void cairn_store_presence_start(struct cairn_store_presence *presence,
                                struct cairn_store_worker *worker) {
    presence->listed = false;
    presence->requests = 0;
    presence->there_count = 0;
    presence->next = 0;
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
    if (code != CAIRN_OK && code != CAIRN_FORBIDDEN && code != CAIRN_UNSUPPORTED)
        return cairn_pass(err, code, &why);
    CAIRN_TRY(head_rest(presence, worker, err));
    for (size_t i = 0; i < presence->count; i++) {
        check_consistent(&presence->objects[i]);
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

/* ---- audit ---- */

const char *cairn_store_finding_text(enum cairn_store_finding finding) {
    static const char *const texts[] = {"record", "attempt", "object", "stray", "newer"};
    CAIRN_ASSERT((size_t)finding < CAIRN_COUNT(texts));
    return texts[finding];
}

CAIRN_PRINTF(4, 5)
static void report_finding(struct cairn_store_audit *audit, enum cairn_store_finding finding,
                           const char *key, const char *format, ...) {
    char text[300];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (finding == CAIRN_STORE_FINDING_STRAY)
        audit->strays++;
    else if (finding == CAIRN_STORE_FINDING_NEWER)
        audit->newer++;
    else
        audit->damaged++;
    if (audit->found) audit->found(audit->owner, finding, key, text);
}

/* Damage is a finding, a store's refusal an error, a missing copy neither (old releases). */
static enum cairn_code look_at(struct cairn_store_audit *audit, struct cairn_store_worker *worker,
                               enum cairn_document document, enum cairn_store_finding finding,
                               enum cairn_code *ret_state, struct cairn_error *err) {
    struct cairn_document_source source = cairn_store_documents(worker, NULL);
    struct cairn_error why = {0};
    struct cairn_key key;
    *ret_state = cairn_committed_read(audit->committed, &source, document, &why);
    if (!*ret_state) return CAIRN_OK;
    if (*ret_state == CAIRN_NOT_FOUND && document == CAIRN_DOCUMENT_ATTEMPT_COPY) return CAIRN_OK;
    if (*ret_state != CAIRN_NOT_FOUND && *ret_state != CAIRN_CORRUPT &&
        *ret_state != CAIRN_UNSUPPORTED)
        return cairn_pass(err, *ret_state, &why);
    cairn_committed_key(audit->committed, document, &key);
    if (*ret_state == CAIRN_UNSUPPORTED) finding = CAIRN_STORE_FINDING_NEWER;
    report_finding(audit, finding, key.text, "%s", why.message);
    return CAIRN_OK;
}

static enum cairn_code look_at_documents(struct cairn_store_audit *audit,
                                         struct cairn_store_worker *worker,
                                         struct cairn_error *err) {
    enum cairn_code state = CAIRN_OK;
    CAIRN_TRY(
        look_at(audit, worker, CAIRN_DOCUMENT_RECORD, CAIRN_STORE_FINDING_RECORD, &state, err));
    audit->record_missing = state == CAIRN_NOT_FOUND;
    CAIRN_TRY(
        look_at(audit, worker, CAIRN_DOCUMENT_MANIFEST, CAIRN_STORE_FINDING_OBJECT, &state, err));
    audit->readable = state == CAIRN_OK;
    if (!audit->readable) return CAIRN_OK; /* no other names are known */
    CAIRN_TRY(
        look_at(audit, worker, CAIRN_DOCUMENT_ATTEMPT, CAIRN_STORE_FINDING_ATTEMPT, &state, err));
    CAIRN_TRY(look_at(audit, worker, CAIRN_DOCUMENT_ATTEMPT_COPY, CAIRN_STORE_FINDING_ATTEMPT,
                      &state, err));
    CAIRN_TRY(
        look_at(audit, worker, CAIRN_DOCUMENT_CHECKSUMS, CAIRN_STORE_FINDING_OBJECT, &state, err));
    audit->readable = state == CAIRN_OK;
    if (!audit->committed->manifest.has_layout) return CAIRN_OK;
    return look_at(audit, worker, CAIRN_DOCUMENT_LAYOUT, CAIRN_STORE_FINDING_OBJECT, &state, err);
}

/* ---- shards, checksums.bin and strays ---- */

struct objects {
    struct cairn_store_object *items;
    const struct cairn_manifest_shard **shards; /* by item; NULL: checksums.bin */
    size_t count;
};

static bool is_mark(const char *name) {
    return !strcmp(name, "trashed.json") || cairn_text_starts(name, "superseded-");
}

static void take_stray(void *owner, const char *key, uint64_t size_bytes) {
    struct cairn_store_audit *audit = owner;
    struct cairn_key manifest, record, prefix;
    cairn_key_version_prefix(&audit->committed->place, &prefix);
    cairn_key_manifest(&audit->committed->place, &manifest);
    cairn_key_committed(&audit->committed->place, &record);
    const char *name = key + strlen(prefix.text);
    if (!strcmp(key, manifest.text) || !strcmp(key, record.text) || is_mark(name)) return;
    report_finding(audit, CAIRN_STORE_FINDING_STRAY, key,
                   "an object of %llu bytes that nothing names", (unsigned long long)size_bytes);
}

#define READ_BYTES (4 * CAIRN_MIB)

static enum cairn_code look_at_checksum(struct cairn_store_audit *audit,
                                        struct cairn_store_worker *worker,
                                        const struct cairn_store_object *object,
                                        const struct cairn_manifest_shard *shard,
                                        struct cairn_error *err) {
    if (!object->has_crc32c || object->crc32c == shard->crc32c) return CAIRN_OK;
    /* Some stores state wrong checksums, so the bytes decide. */
    CAIRN_AUTO_HEAP uint8_t *into = malloc(READ_BYTES);
    if (!into) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to read an object back");
    uint32_t found = 0;
    for (uint64_t at = 0; at < object->size_bytes; at += READ_BYTES) {
        struct cairn_store_request get_document = {
            .op = CAIRN_STORE_GET,
            .key = object->key,
            .offset = at,
            .length = cairn_min_u64(READ_BYTES, object->size_bytes - at),
            .into = into,
            .wants_crc32c = true};
        CAIRN_TRY(cairn_store_perform(worker, &get_document, err));
        found = cairn_crc32c_combine(found, get_document.got_crc32c, get_document.length);
    }
    if (found != shard->crc32c)
        report_finding(audit, CAIRN_STORE_FINDING_OBJECT, object->key,
                       "its bytes have the CRC32C %08x, the manifest says %08x", found,
                       shard->crc32c);
    return CAIRN_OK;
}

static enum cairn_code look_at_objects(struct cairn_store_audit *audit,
                                       struct cairn_store_worker *worker, struct objects *objects,
                                       struct cairn_error *err) {
    struct cairn_key prefix;
    /* In key order: "checksums.bin" comes before "data/...", whose names are sorted. */
    struct cairn_key key;
    objects->count = audit->committed->manifest.shard_count + 1;
    objects->items = calloc(objects->count, sizeof *objects->items);
    objects->shards = calloc(objects->count, sizeof *objects->shards);
    bool whole = objects->items && objects->shards;
    for (size_t i = 0; whole && i < objects->count; i++) {
        const struct cairn_manifest_shard *shard =
            i ? &audit->committed->manifest.shards[i - 1] : NULL;
        if (shard)
            cairn_key_shard(&audit->committed->place, cairn_view_of(shard->name), &key);
        else
            cairn_key_checksums(&audit->committed->place, &key);
        objects->shards[i] = shard;
        objects->items[i] = (struct cairn_store_object){
            .key = strdup(key.text),
            .size_bytes = shard ? shard->size_bytes : 4 * audit->committed->manifest.block_count};
        whole = objects->items[i].key != NULL;
    }
    CAIRN_TRY(whole ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory to look at objects"));
    cairn_key_version_prefix(&audit->committed->place, &prefix);
    struct cairn_store_presence presence = {.prefix = prefix.text,
                                            .objects = objects->items,
                                            .count = objects->count,
                                            .ask_each = audit->ask_each,
                                            .stray = take_stray,
                                            .owner = audit};
    CAIRN_TRY(cairn_store_presence_look(&presence, worker, err));
    audit->listed = presence.listed;
    for (size_t i = 0; i < objects->count; i++) {
        const struct cairn_store_object *object = &objects->items[i];
        const struct cairn_manifest_shard *shard = objects->shards[i];
        struct cairn_error why = {0};
        if (!shard) continue; /* checksums.bin was read already */
        if (cairn_store_object_check(object, &why))
            report_finding(audit, CAIRN_STORE_FINDING_OBJECT, object->key, "%s", why.message);
        else
            CAIRN_TRY(look_at_checksum(audit, worker, object, shard, err));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_store_audit_look(struct cairn_store_audit *audit,
                                       struct cairn_store_worker *worker, struct cairn_error *err) {
    struct objects objects = {0};
    audit->damaged = audit->strays = audit->newer = 0;
    audit->listed = false;
    CAIRN_TRY(look_at_documents(audit, worker, err));
    if (!audit->committed->manifest_text.size) return CAIRN_OK;
    enum cairn_code code = look_at_objects(audit, worker, &objects, err);
    for (size_t i = 0; objects.items && i < objects.count; i++) free(objects.items[i].key);
    free(objects.items);
    free(objects.shards);
    return code;
}
