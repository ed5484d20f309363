/* SPDX-License-Identifier: Apache-2.0 */
/* What belongs to a version, looked at; see audit.h. */
#include "store/audit.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/crc.h"
#include "common/text.h"
#include "store/documents.h"
#include "store/presence.h"

const char *cairn_store_finding_text(enum cairn_store_finding finding) {
    static const char *const texts[] = {"record", "attempt", "object", "stray", "newer"};
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
    else if (finding == CAIRN_STORE_FINDING_NEWER)
        audit->newer++;
    else
        audit->damaged++;
    if (audit->found) audit->found(audit->owner, finding, key, text);
}

/* What is wrong with a document is a finding; what the store refuses is an error. A copy that is
 * missing is none: releases that wrote no copies have stores, too. */
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
    tell(audit, finding, key.text, "%s", why.message);
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
    if (!audit->readable) return CAIRN_OK; /* nothing else is known by name */
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
        struct cairn_store_request get = {.op = CAIRN_STORE_GET,
                                          .key = object->key,
                                          .offset = at,
                                          .length =
                                              cairn_min_u64(READ_BYTES, object->size_bytes - at),
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
    if (!object->has_crc32c || object->crc32c == shard->crc32c) return CAIRN_OK;
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
        if (!shard) continue; /* checksums.bin was read */
        if (cairn_store_object_check(object, &why))
            tell(audit, CAIRN_STORE_FINDING_OBJECT, object->key, "%s", why.message);
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
