/* SPDX-License-Identifier: Apache-2.0 */
/* Checks objects and whole versions in a store; see whole.h. */
#include "store/whole.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/crc.h"
#include "common/text.h"

/* ---- each: one request per item of a list, several under way at once ---- */

/*
 * The loop's only condition is the number of items left. A loop that ended with no request under
 * way would end too early when one poll answers them all, and report unchecked objects as missing.
 * 1  CAIRN_OK: `ask` skipped each item, or `answer` took its answer. passed + answered == count and
 *    asked == answered; both are asserted.
 * 2  The first error of an answer or of the worker ends the run: no further requests are made,
 *    those under way are cancelled, and all have ended before it returns.
 * 3  Requests are made in the items' order; answers arrive in any order.
 */
struct each {
    size_t count;
    size_t at_once; /* requests under way, at least 1 */
    /* Fills operation, key and other inputs, not done and owner. False: skip this item. */
    bool (*ask)(void *owner, size_t item, struct cairn_store_request *request);
    enum cairn_code (*answer)(void *owner, size_t item, const struct cairn_store_request *request,
                              struct cairn_error *err);
    void *owner;
    /* results */
    size_t passed, asked, answered, cancelled;
};

struct slot {
    struct cairn_store_request request;
    size_t item;
    bool busy, ended;
};
struct run {
    struct each *each;
    struct cairn_store_worker *worker;
    struct slot *slots;
    size_t next; /* first item neither skipped nor requested */
};

static size_t items_left(const struct each *each) {
    return each->count - each->passed - each->answered;
}

static void request_done(struct cairn_store_request *request) {
    struct slot *slot = request->owner;
    CAIRN_ASSERT(slot->busy && !slot->ended);
    slot->ended = true;
}

/* False: every item was skipped or requested. */
static bool ask_next(struct run *run, struct slot *slot) {
    struct each *each = run->each;
    while (run->next < each->count) {
        *slot = (struct slot){.item = run->next++};
        if (!each->ask(each->owner, slot->item, &slot->request)) {
            each->passed++;
            continue;
        }
        slot->busy = true;
        slot->request.done = request_done;
        slot->request.owner = slot;
        each->asked++;
        cairn_store_submit(run->worker, &slot->request);
        return true;
    }
    return false;
}

static enum cairn_code take_answers(struct run *run, struct cairn_error *err) {
    struct each *each = run->each;
    for (size_t i = 0; i < each->at_once; i++) {
        struct slot *slot = &run->slots[i];
        if (!slot->busy || !slot->ended) continue;
        slot->busy = false;
        each->answered++;
        CAIRN_TRY(each->answer(each->owner, slot->item, &slot->request, err));
    }
    return CAIRN_OK;
}

static enum cairn_code run_all(struct run *run, struct cairn_error *err) {
    struct each *each = run->each;
    while (items_left(each)) {
        for (size_t i = 0; i < each->at_once; i++)
            if (!run->slots[i].busy && !ask_next(run, &run->slots[i])) break;
        if (!items_left(each)) break;
        CAIRN_ASSERT(each->asked > each->answered);
        CAIRN_TRY(cairn_store_poll(run->worker, 1000, err));
        CAIRN_TRY(take_answers(run, err));
    }
    CAIRN_ASSERT(run->next == each->count && each->asked == each->answered);
    return CAIRN_OK;
}

static void cancel_rest(struct run *run) {
    struct each *each = run->each;
    for (size_t i = 0; i < each->at_once; i++) {
        struct slot *slot = &run->slots[i];
        if (!slot->busy) continue;
        if (!slot->ended) cairn_store_cancel(run->worker, &slot->request);
        CAIRN_ASSERT(slot->ended);
        each->cancelled++;
    }
    CAIRN_ASSERT(each->asked == each->answered + each->cancelled);
}

static enum cairn_code each_run(struct each *each, struct cairn_store_worker *worker,
                                struct cairn_error *err) {
    CAIRN_ASSERT(each->at_once > 0);
    CAIRN_AUTO_HEAP struct slot *slots = calloc(each->at_once, sizeof *slots);
    if (!slots) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to ask about objects");
    struct run run = {.each = each, .worker = worker, .slots = slots};
    each->passed = each->asked = each->answered = each->cancelled = 0;
    enum cairn_code code = run_all(&run, err);
    cancel_rest(&run);
    return code;
}

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

static void take_entry(struct cairn_store_presence *presence,
                       const struct cairn_store_entry *entry) {
    struct cairn_store_object wanted = {.key = entry->key};
    struct cairn_store_object *object = presence->count
                                            ? bsearch(&wanted, presence->objects, presence->count,
                                                      sizeof *presence->objects, by_key)
                                            : NULL;
    if (object) {
        mark_found(object, entry->size_bytes);
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
        mark_found(object, request->object_bytes);
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
    struct each each = {.count = presence->count,
                        .at_once = HEADS_AT_ONCE,
                        .ask = ask_head,
                        .answer = take_head,
                        .owner = presence};
    return each_run(&each, worker, err);
}

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
        *ret_state != CAIRN_UNSUPPORTED) {
        if (err) *err = why;
        return *ret_state;
    }
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

static void release_objects(struct objects *objects) {
    for (size_t i = 0; objects->items && i < objects->count; i++) free(objects->items[i].key);
    free(objects->items);
    free(objects->shards);
}

/* In key order: "checksums.bin" comes before "data/...", whose names are sorted. */
static enum cairn_code fill_objects(struct objects *objects, const struct cairn_store_audit *audit,
                                    struct cairn_error *err) {
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
    return whole ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory to look at objects");
}

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

/* Some stores state wrong checksums, so the bytes decide. */
static enum cairn_code read_back(struct cairn_store_worker *worker,
                                 const struct cairn_store_object *object, uint32_t *ret_crc32c,
                                 struct cairn_error *err) {
    CAIRN_AUTO_HEAP uint8_t *into = malloc(READ_BYTES);
    if (!into) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to read an object back");
    *ret_crc32c = 0;
    for (uint64_t at = 0; at < object->size_bytes; at += READ_BYTES) {
        struct cairn_store_request get_document = {
            .op = CAIRN_STORE_GET,
            .key = object->key,
            .offset = at,
            .length = cairn_min_u64(READ_BYTES, object->size_bytes - at),
            .into = into,
            .wants_crc32c = true};
        CAIRN_TRY(cairn_store_perform(worker, &get_document, err));
        *ret_crc32c =
            cairn_crc32c_combine(*ret_crc32c, get_document.got_crc32c, get_document.length);
    }
    return CAIRN_OK;
}

static enum cairn_code look_at_checksum(struct cairn_store_audit *audit,
                                        struct cairn_store_worker *worker,
                                        const struct cairn_store_object *object,
                                        const struct cairn_manifest_shard *shard,
                                        struct cairn_error *err) {
    uint32_t found = 0;
    if (!object->has_crc32c || object->crc32c == shard->crc32c) return CAIRN_OK;
    CAIRN_TRY(read_back(worker, object, &found, err));
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
    CAIRN_TRY(fill_objects(objects, audit, err));
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
    release_objects(&objects);
    return code;
}
