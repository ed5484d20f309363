/* SPDX-License-Identifier: Apache-2.0 */
/* What belongs to a version, looked at; see audit.h. */
#include "store/audit.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/table.h"
#include "common/crc32c.h"
#include "common/hash.h"
#include "common/text.h"
#include "store/presence.h"

const char *cairn_store_finding_text(enum cairn_store_finding finding) {
    static const char *const texts[] = {"record", "attempt", "object", "stray"};
    CAIRN_ASSERT((size_t)finding < CAIRN_COUNT(texts));
    return texts[finding];
}

CAIRN_PRINTF(4, 5)
static void tell(struct cairn_store_audit *audit, enum cairn_store_finding finding, const char *key,
                 const char *format, ...) {
    char text[300];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (finding == CAIRN_STORE_FINDING_STRAY)
        audit->strays++;
    else
        audit->damaged++;
    if (audit->found) audit->found(audit->owner, finding, key, text);
}

/* Missing and far too large are findings; what the store refuses is an error. */
static enum cairn_code load(struct cairn_store_worker *worker, const char *key,
                            struct cairn_buf *ret, enum cairn_code *ret_state,
                            struct cairn_error *err) {
    struct cairn_error why = {0};
    *ret_state = cairn_store_get_small(worker, key, ret, &why);
    if (!*ret_state || *ret_state == CAIRN_NOT_FOUND || *ret_state == CAIRN_TOO_LARGE)
        return CAIRN_OK;
    if (err) *err = why;
    return *ret_state;
}

/* What is wrong with a document, or NULL; *ret_code is an error that says nothing about it. */
typedef const char *judge_document(const struct cairn_store_audit *audit, struct cairn_view text,
                                   enum cairn_code *ret_code, struct cairn_error *err);

static const char *judge_record(const struct cairn_store_audit *audit, struct cairn_view text,
                                enum cairn_code *ret_code, struct cairn_error *err) {
    struct cairn_record record;
    *ret_code = cairn_record_decode(text, &record, err);
    if (*ret_code) return "it is no record";
    if (strcmp(record.id.text, audit->place.id.text) || record.step != audit->place.step ||
        record.attempt != audit->manifest->origin.attempt || record.n != audit->manifest->origin.n)
        return "it is of another version";
    bool same = memcmp(record.manifest_sha256, audit->manifest_sha256, 32) == 0;
    return same ? NULL : "it names another manifest";
}

static const char *judge_attempt(const struct cairn_store_audit *audit, struct cairn_view text,
                                 enum cairn_code *ret_code, struct cairn_error *err) {
    const struct cairn_version_origin *origin = &audit->manifest->origin;
    CAIRN_AUTO(attempt_record) record = {0};
    *ret_code = cairn_attempt_record_decode(text, &record, err);
    if (*ret_code) return "it is no attempt's record";
    bool same = record.attempt == origin->attempt && strcmp(record.nonce, origin->nonce) == 0;
    return same ? NULL : "it is of another attempt";
}

static const char *judge_digest(struct cairn_view text, const uint8_t wanted[32]) {
    uint8_t found[CAIRN_SHA256_BYTES];
    cairn_sha256_of(text, found);
    return memcmp(found, wanted, sizeof found) ? "its SHA-256 is another" : NULL;
}

static const char *judge_manifest(const struct cairn_store_audit *audit, struct cairn_view text,
                                  enum cairn_code *ret_code, struct cairn_error *err) {
    (void)ret_code, (void)err;
    return judge_digest(text, audit->manifest_sha256);
}

/* What has another size, or is not there, is told by the look at the objects. */
static const char *judge_checksums(const struct cairn_store_audit *audit, struct cairn_view text,
                                   enum cairn_code *ret_code, struct cairn_error *err) {
    (void)ret_code, (void)err;
    if (text.size != 4 * audit->manifest->block_count) return NULL;
    return judge_digest(text, audit->manifest->checksums_sha256);
}

/* The layout's own digest is over its tables, so it is computed from them again. */
static const char *judge_layout(const struct cairn_store_audit *audit, struct cairn_view text,
                                enum cairn_code *ret_code, struct cairn_error *err) {
    struct cairn_layout layout = {0};
    uint8_t found[CAIRN_SHA256_BYTES];
    *ret_code = cairn_layout_open(text, &layout, err);
    if (*ret_code) return "it is no layout";
    size_t count = layout.table_count;
    CAIRN_AUTO_HEAP uint32_t *ranks = calloc(count + 1, sizeof *ranks);
    CAIRN_AUTO_HEAP uint8_t(*digests)[32] = calloc(count + 1, sizeof *digests);
    if (!ranks || !digests) *ret_code = cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a layout");
    for (size_t i = 0; !*ret_code && i < count; i++) {
        ranks[i] = layout.tables[i].rank;
        cairn_table_digest(layout.tables[i].bytes, digests[i]);
    }
    cairn_layout_release(&layout);
    if (*ret_code) return "no memory";
    cairn_layout_digest(ranks, (const uint8_t(*)[32])digests, count, found);
    return memcmp(found, audit->manifest->layout_digest, sizeof found) ? "it is another layout"
                                                                        : NULL;
}

/* What does not match is read once more before it counts as damage (S17): the bytes may have come
 * wrong. *ret_fault NULL: it is as it should be. */
static enum cairn_code look_at_document(struct cairn_store_audit *audit,
                                        struct cairn_store_worker *worker, const char *key,
                                        size_t limit, judge_document *judge, const char **ret_fault,
                                        bool *ret_missing, struct cairn_error *err) {
    for (int look = 0; look < 2; look++) {
        CAIRN_AUTO(buf) text = {.limit = limit};
        enum cairn_code state = CAIRN_OK, code = CAIRN_OK;
        struct cairn_error why = {0};
        CAIRN_TRY(load(worker, key, &text, &state, err));
        *ret_missing = state == CAIRN_NOT_FOUND;
        *ret_fault = state ? (*ret_missing ? "it is missing" : "it is far too large")
                           : judge(audit, cairn_buf_view(&text), &code, &why);
        if (code == CAIRN_NO_MEMORY) {
            if (err) *err = why;
            return code;
        }
        if (!*ret_fault) return CAIRN_OK;
    }
    return CAIRN_OK;
}

static enum cairn_code look_at_record(struct cairn_store_audit *audit,
                                      struct cairn_store_worker *worker, struct cairn_error *err) {
    struct cairn_key key;
    const char *fault = NULL;
    cairn_key_committed(&audit->place, &key);
    CAIRN_TRY(look_at_document(audit, worker, key.text, CAIRN_MIB, judge_record, &fault,
                               &audit->record_missing, err));
    if (fault) tell(audit, CAIRN_STORE_FINDING_RECORD, key.text, "%s", fault);
    return CAIRN_OK;
}

static enum cairn_code look_at_attempt(struct cairn_store_audit *audit,
                                       struct cairn_store_worker *worker, struct cairn_error *err) {
    struct cairn_key key;
    const char *fault = NULL;
    bool missing = false;
    cairn_key_attempt(&audit->place.name, audit->manifest->origin.attempt, &key);
    CAIRN_TRY(look_at_document(audit, worker, key.text, CAIRN_MANIFEST_BYTES_MAX, judge_attempt,
                               &fault, &missing, err));
    if (fault) tell(audit, CAIRN_STORE_FINDING_ATTEMPT, key.text, "%s", fault);
    return CAIRN_OK;
}

static enum cairn_code look_at_object(struct cairn_store_audit *audit,
                                      struct cairn_store_worker *worker,
                                      const struct cairn_key *key, size_t limit,
                                      judge_document *judge, struct cairn_error *err) {
    const char *fault = NULL;
    bool missing = false;
    CAIRN_TRY(look_at_document(audit, worker, key->text, limit, judge, &fault, &missing, err));
    if (fault && !(missing && judge == judge_checksums))
        tell(audit, CAIRN_STORE_FINDING_OBJECT, key->text, "%s", fault);
    return CAIRN_OK;
}

static enum cairn_code look_at_documents(struct cairn_store_audit *audit,
                                         struct cairn_store_worker *worker,
                                         struct cairn_error *err) {
    const struct cairn_manifest *manifest = audit->manifest;
    struct cairn_key key;
    cairn_key_manifest(&audit->place, &key);
    CAIRN_TRY(look_at_object(audit, worker, &key, CAIRN_MANIFEST_BYTES_MAX, judge_manifest, err));
    cairn_key_checksums(&audit->place, &key);
    CAIRN_TRY(look_at_object(audit, worker, &key, CAIRN_GIB, judge_checksums, err));
    if (!manifest->has_layout) return CAIRN_OK;
    cairn_key_layout(&audit->place.name, manifest->layout_digest, &manifest->layout_writer, &key);
    return look_at_object(audit, worker, &key, CAIRN_LAYOUT_BYTES_MAX, judge_layout, err);
}

/* ---- shards, checksums.bin and what else there is ---- */

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

/* In the order of keys: "checksums.bin" comes before "data/...", whose names are sorted. */
static enum cairn_code fill(struct objects *objects, const struct cairn_store_audit *audit,
                            struct cairn_error *err) {
    struct cairn_key key;
    objects->count = audit->manifest->shard_count + 1;
    objects->items = calloc(objects->count, sizeof *objects->items);
    objects->shards = calloc(objects->count, sizeof *objects->shards);
    bool whole = objects->items && objects->shards;
    for (size_t i = 0; whole && i < objects->count; i++) {
        const struct cairn_manifest_shard *shard = i ? &audit->manifest->shards[i - 1] : NULL;
        if (shard)
            cairn_key_shard(&audit->place, cairn_view_of(shard->name), &key);
        else
            cairn_key_checksums(&audit->place, &key);
        objects->shards[i] = shard;
        objects->items[i] = (struct cairn_store_object){
            .key = strdup(key.text),
            .size_bytes = shard ? shard->size_bytes : 4 * audit->manifest->block_count};
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
    cairn_key_version_prefix(&audit->place, &prefix);
    cairn_key_manifest(&audit->place, &manifest);
    cairn_key_committed(&audit->place, &record);
    const char *name = key + strlen(prefix.text);
    if (!strcmp(key, manifest.text) || !strcmp(key, record.text) || is_mark(name)) return;
    tell(audit, CAIRN_STORE_FINDING_STRAY, key, "an object of %llu bytes that nothing names",
         (unsigned long long)size_bytes);
}

#define READ_BYTES (4 * CAIRN_MIB)

/* A stated checksum is the store's word alone, and some are wrong; the bytes decide. */
static enum cairn_code read_back(struct cairn_store_worker *worker,
                                 const struct cairn_store_object *object, uint32_t *ret_crc32c,
                                 struct cairn_error *err) {
    CAIRN_AUTO_HEAP uint8_t *into = malloc(READ_BYTES);
    if (!into) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to read an object back");
    *ret_crc32c = 0;
    for (uint64_t at = 0; at < object->size_bytes; at += READ_BYTES) {
        struct cairn_store_request get = {
            .op = CAIRN_STORE_GET,
            .key = object->key,
            .offset = at,
            .length = cairn_min_u64(READ_BYTES, object->size_bytes - at),
            .into = into,
            .wants_crc32c = true};
        CAIRN_TRY(cairn_store_perform(worker, &get, err));
        *ret_crc32c = cairn_crc32c_combine(*ret_crc32c, get.got_crc32c, get.length);
    }
    return CAIRN_OK;
}

static enum cairn_code look_at_checksum(struct cairn_store_audit *audit,
                                        struct cairn_store_worker *worker,
                                        const struct cairn_store_object *object,
                                        const struct cairn_manifest_shard *shard,
                                        struct cairn_error *err) {
    uint32_t found = 0;
    if (!shard || !object->has_crc32c || object->crc32c == shard->crc32c) return CAIRN_OK;
    CAIRN_TRY(read_back(worker, object, &found, err));
    if (found != shard->crc32c)
        tell(audit, CAIRN_STORE_FINDING_OBJECT, object->key,
             "its bytes have the CRC32C %08x, the manifest says %08x", found, shard->crc32c);
    return CAIRN_OK;
}

static enum cairn_code look_at_objects(struct cairn_store_audit *audit,
                                       struct cairn_store_worker *worker, struct objects *objects,
                                       struct cairn_error *err) {
    struct cairn_key prefix;
    CAIRN_TRY(fill(objects, audit, err));
    cairn_key_version_prefix(&audit->place, &prefix);
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
        if (!object->found)
            tell(audit, CAIRN_STORE_FINDING_OBJECT, object->key, "it is missing");
        else if (!object->there)
            tell(audit, CAIRN_STORE_FINDING_OBJECT, object->key, "it has %llu bytes, not %llu",
                 (unsigned long long)object->found_bytes, (unsigned long long)object->size_bytes);
        else
            CAIRN_TRY(look_at_checksum(audit, worker, object, shard, err));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_store_audit_look(struct cairn_store_audit *audit,
                                       struct cairn_store_worker *worker, struct cairn_error *err) {
    struct objects objects = {0};
    audit->damaged = audit->strays = 0;
    CAIRN_TRY(look_at_record(audit, worker, err));
    CAIRN_TRY(look_at_attempt(audit, worker, err));
    CAIRN_TRY(look_at_documents(audit, worker, err));
    enum cairn_code code = look_at_objects(audit, worker, &objects, err);
    release_objects(&objects);
    return code;
}
