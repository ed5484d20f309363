/* SPDX-License-Identifier: Apache-2.0 */
/* What each operation does to the objects, as S3 says it. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/crc.h"
#include "tests/sim/bucket.h"
#include "tests/sim/check.h"

#define OBJECTS_MAX 100000
#define WALL_START_MS INT64_C(1790000000000)

static int64_t now_ms(void) {
    return WALL_START_MS + (int64_t)(sim_now_us() / 1000);
}

static void answer(struct sim_answer *ret, enum cairn_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void answer(struct sim_answer *ret, enum cairn_code code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(ret->why, sizeof ret->why, format, arguments);
    va_end(arguments);
    ret->code = code;
}

/* ---- objects ---- */

static struct sim_object *find(const struct sim_bucket *bucket, const char *key) {
    for (size_t i = 0; i < bucket->object_count; i++)
        if (!strcmp(bucket->objects[i].key, key)) return &bucket->objects[i];
    return NULL;
}

const struct sim_object *sim_bucket_find(const struct sim_bucket *bucket, const char *key) {
    return find(bucket, key);
}

static struct sim_object *add(struct sim_bucket *bucket, const char *key) {
    if (bucket->object_count == bucket->object_capacity) {
        bucket->object_capacity = bucket->object_capacity ? 2 * bucket->object_capacity : 64;
        CAIRN_ASSERT(bucket->object_capacity <= OBJECTS_MAX);
        bucket->objects =
            realloc(bucket->objects, bucket->object_capacity * sizeof *bucket->objects);
        CAIRN_ASSERT(bucket->objects);
    }
    size_t at = 0;
    while (at < bucket->object_count && strcmp(bucket->objects[at].key, key) < 0) at++;
    memmove(&bucket->objects[at + 1], &bucket->objects[at],
            (bucket->object_count++ - at) * sizeof *bucket->objects);
    bucket->objects[at] = (struct sim_object){.key = strdup(key)};
    return &bucket->objects[at];
}

/* Only these are written more than once. */
static bool may_change(const char *key) {
    return strstr(key, ".cairn/") != NULL;
}

static void publish(struct sim_bucket *bucket, const char *key, const char *token, uint8_t *take,
                    uint64_t size) {
    struct sim_object *object = find(bucket, key);
    bool same = object && object->size == size && (!size || !memcmp(object->bytes, take, size));
    if (object && !same && !may_change(key))
        sim_violation("R1: %s was written again with other bytes", key);
    if (!object) object = add(bucket, key);
    free(object->bytes);
    object->bytes = take;
    object->size = size;
    object->crc32c = cairn_crc32c(0, take, size);
    object->modified_ms = now_ms();
    snprintf(object->token, sizeof object->token, "%s", token);
}

static uint8_t *copy_bytes(const uint8_t *bytes, uint64_t size) {
    uint8_t *copy = malloc(size + 1);
    CAIRN_ASSERT(copy);
    if (size) memcpy(copy, bytes, size);
    return copy;
}

void sim_bucket_meddle(const char *key, const void *bytes, uint64_t size) {
    struct sim_object *object = find(&sim_bucket, key);
    if (object) {
        free(object->key);
        free(object->bytes);
        size_t at = (size_t)(object - sim_bucket.objects);
        memmove(object, object + 1, (--sim_bucket.object_count - at) * sizeof *object);
    }
    sim_note("somebody %s %s", bytes ? "writes" : "removes", key);
    if (bytes) publish(&sim_bucket, key, "", copy_bytes(bytes, size), size);
}

static void etag_of(const struct sim_object *object, char ret[128]) {
    snprintf(ret, 128, "%08" PRIx32 "-%" PRIx64, object->crc32c, object->size);
}

static bool wrong_bytes(const struct sim_sent *sent, struct sim_answer *ret) {
    uint32_t found = cairn_crc32c(0, sent->body, sent->body_bytes);
    if (!sent->has_crc32c || found == sent->crc32c) return false;
    sim_note("the bytes of %s changed on the way", sent->key);
    if (!sim_store_faults.checks_crc) return false;
    answer(ret, CAIRN_CORRUPT, "the bytes have checksum %08" PRIx32 ", sent was %08" PRIx32, found,
           sent->crc32c);
    return true;
}

static void put(struct sim_bucket *bucket, const struct sim_sent *sent, struct sim_answer *ret) {
    if (wrong_bytes(sent, ret)) return;
    if (sent->create && sim_store_faults.create_only && find(bucket, sent->key)) {
        answer(ret, CAIRN_PRECONDITION, "it is already there");
        return;
    }
    publish(bucket, sent->key, sent->token, copy_bytes(sent->body, sent->body_bytes),
            sent->body_bytes);
    etag_of(find(bucket, sent->key), ret->etag);
}

static void describe(const struct sim_object *object, struct sim_answer *ret) {
    etag_of(object, ret->etag);
    ret->object_bytes = object->size;
    if (sim_store_faults.keeps_tokens) memcpy(ret->token, object->token, sizeof ret->token);
    ret->has_crc32c = sim_store_faults.checks_crc;
    ret->crc32c = object->crc32c;
}

static void look(struct sim_bucket *bucket, const struct sim_sent *sent, struct sim_answer *ret) {
    const struct sim_object *object = find(bucket, sent->key);
    if (!object) {
        answer(ret, CAIRN_NOT_FOUND, "nothing is there");
        return;
    }
    describe(object, ret);
    if (sent->op == CAIRN_STORE_HEAD) return;
    if (sent->etag[0] && strcmp(sent->etag, ret->etag) != 0)
        answer(ret, CAIRN_PRECONDITION, "it is another one now");
    else if (sent->offset + (sent->up_to ? 0 : sent->length) > object->size)
        answer(ret, CAIRN_RANGE, "beyond the end");
    else
        ret->bytes = copy_bytes(object->bytes + sent->offset,
                                cairn_min_u64(sent->length, object->size - sent->offset));
}

static void delete_one(struct sim_bucket *bucket, const char *key) {
    struct sim_object *object = find(bucket, key);
    if (!object) return;
    sim_check_deleted(key);
    free(object->key);
    free(object->bytes);
    size_t at = (size_t)(object - bucket->objects);
    memmove(object, object + 1, (--bucket->object_count - at) * sizeof *object);
}

/* ---- uploads ---- */

static struct sim_upload *find_upload(const struct sim_bucket *bucket,
                                      const struct sim_sent *sent) {
    for (size_t i = 0; i < bucket->upload_count; i++)
        if (!strcmp(bucket->uploads[i].id, sent->upload_id) &&
            !strcmp(bucket->uploads[i].key, sent->key))
            return &bucket->uploads[i];
    return NULL;
}

static void upload_create(struct sim_bucket *bucket, const struct sim_sent *sent,
                          struct sim_answer *ret) {
    if (bucket->upload_count == bucket->upload_capacity) {
        bucket->upload_capacity = bucket->upload_capacity ? 2 * bucket->upload_capacity : 16;
        bucket->uploads =
            realloc(bucket->uploads, bucket->upload_capacity * sizeof *bucket->uploads);
        CAIRN_ASSERT(bucket->uploads);
    }
    struct sim_upload *upload = &bucket->uploads[bucket->upload_count++];
    *upload = (struct sim_upload){.key = strdup(sent->key), .modified_ms = now_ms()};
    snprintf(upload->id, sizeof upload->id, "upload-%" PRIu64, ++bucket->upload_last);
    memcpy(upload->token, sent->token, sizeof upload->token);
    memcpy(ret->upload_id, upload->id, sizeof upload->id);
}

static void upload_part(struct sim_upload *upload, const struct sim_sent *sent,
                        struct sim_answer *ret) {
    if (wrong_bytes(sent, ret)) return;
    size_t at = 0;
    while (at < upload->part_count && upload->parts[at].number < sent->part_number) at++;
    if (at == upload->part_count || upload->parts[at].number != sent->part_number) {
        upload->parts = realloc(upload->parts, (upload->part_count + 1) * sizeof *upload->parts);
        CAIRN_ASSERT(upload->parts);
        memmove(&upload->parts[at + 1], &upload->parts[at],
                (upload->part_count++ - at) * sizeof *upload->parts);
    } else {
        free(upload->parts[at].bytes);
    }
    uint32_t crc32c = cairn_crc32c(0, sent->body, sent->body_bytes);
    upload->parts[at] = (struct sim_part){copy_bytes(sent->body, sent->body_bytes),
                                          sent->body_bytes, sent->part_number, crc32c};
    snprintf(ret->etag, sizeof ret->etag, "%08" PRIx32, crc32c);
}

static void upload_forget(struct sim_bucket *bucket, struct sim_upload *upload) {
    for (size_t i = 0; i < upload->part_count; i++) free(upload->parts[i].bytes);
    free(upload->parts);
    free(upload->key);
    size_t at = (size_t)(upload - bucket->uploads);
    memmove(upload, upload + 1, (--bucket->upload_count - at) * sizeof *upload);
}

static void upload_complete(struct sim_bucket *bucket, struct sim_upload *upload,
                            const struct sim_sent *sent, struct sim_answer *ret) {
    uint64_t size = 0, at = 0;
    for (size_t i = 0; i < sent->part_count; i++) {
        char etag[16] = "";
        if (i < upload->part_count)
            snprintf(etag, sizeof etag, "%08" PRIx32, upload->parts[i].crc32c);
        if (i >= upload->part_count || upload->parts[i].number != sent->parts[i].number ||
            strcmp(etag, sent->parts[i].etag) != 0) {
            answer(ret, CAIRN_INCOMPLETE, "part %" PRIu32 " is not there", sent->parts[i].number);
            return;
        }
        size += upload->parts[i].size;
    }
    if (sent->create && sim_store_faults.create_only && find(bucket, sent->key)) {
        answer(ret, CAIRN_PRECONDITION, "it is already there");
        return;
    }
    uint8_t *bytes = malloc(size + 1);
    CAIRN_ASSERT(bytes);
    for (size_t i = 0; i < sent->part_count; at += upload->parts[i++].size)
        memcpy(bytes + at, upload->parts[i].bytes, upload->parts[i].size);
    publish(bucket, sent->key, upload->token, bytes, size);
    etag_of(find(bucket, sent->key), ret->etag);
    upload_forget(bucket, upload);
}

static void upload_parts(const struct sim_upload *upload, struct sim_answer *ret) {
    ret->parts = calloc(upload->part_count + 1, sizeof *ret->parts);
    CAIRN_ASSERT(ret->parts);
    ret->part_count = upload->part_count;
    for (size_t i = 0; i < upload->part_count; i++) {
        const struct sim_part *part = &upload->parts[i];
        ret->parts[i] = (struct cairn_store_part){.number = part->number,
                                                  .size_bytes = part->size,
                                                  .has_crc32c = sim_store_faults.checks_crc,
                                                  .crc32c = part->crc32c};
        snprintf(ret->parts[i].etag, sizeof ret->parts[i].etag, "%08" PRIx32, part->crc32c);
    }
}

static void of_upload(struct sim_bucket *bucket, const struct sim_sent *sent,
                      struct sim_answer *ret) {
    struct sim_upload *upload = find_upload(bucket, sent);
    if (!upload) {
        if (sent->op != CAIRN_STORE_UPLOAD_ABORT) answer(ret, CAIRN_NOT_FOUND, "no such upload");
        return;
    }
    if (sent->op == CAIRN_STORE_UPLOAD_PART) upload_part(upload, sent, ret);
    if (sent->op == CAIRN_STORE_UPLOAD_COMPLETE) upload_complete(bucket, upload, sent, ret);
    if (sent->op == CAIRN_STORE_UPLOAD_ABORT) upload_forget(bucket, upload);
    if (sent->op == CAIRN_STORE_UPLOAD_PARTS) upload_parts(upload, ret);
}

/* ---- listings ---- */

static void list_entry(struct cairn_store_listing *listing, const char *key, const char *upload_id,
                       uint64_t size, int64_t modified_ms) {
    if (listing->count == listing->capacity) {
        listing->capacity = listing->capacity ? 2 * listing->capacity : 16;
        listing->entries = realloc(listing->entries, listing->capacity * sizeof *listing->entries);
        CAIRN_ASSERT(listing->entries);
    }
    listing->entries[listing->count++] =
        (struct cairn_store_entry){.key = strdup(key),
                                   .upload_id = upload_id ? strdup(upload_id) : NULL,
                                   .size_bytes = size,
                                   .modified_ms = modified_ms};
}

static bool has_prefix(const char *key, const char *prefix) {
    return !strncmp(key, prefix, strlen(prefix));
}

static void list(const struct sim_bucket *bucket, const struct sim_sent *sent,
                 struct sim_answer *ret) {
    for (size_t i = 0; i < bucket->object_count; i++) {
        const struct sim_object *object = &bucket->objects[i];
        if (!has_prefix(object->key, sent->key)) continue;
        if (sent->page && strcmp(object->key, sent->page) <= 0) continue;
        if (ret->listing.count == bucket->page_entries) {
            ret->listing.next_page = strdup(ret->listing.entries[ret->listing.count - 1].key);
            return;
        }
        list_entry(&ret->listing, object->key, NULL, object->size, object->modified_ms);
    }
}

static void list_uploads(const struct sim_bucket *bucket, const struct sim_sent *sent,
                         struct sim_answer *ret) {
    for (size_t i = 0; i < bucket->upload_count; i++) {
        const struct sim_upload *upload = &bucket->uploads[i];
        if (has_prefix(upload->key, sent->key))
            list_entry(&ret->listing, upload->key, upload->id, 0, upload->modified_ms);
    }
}

void sim_bucket_apply(struct sim_bucket *bucket, const struct sim_sent *sent,
                      struct sim_answer *ret) {
    switch (sent->op) {
    case CAIRN_STORE_PUT:
        put(bucket, sent, ret);
        break;
    case CAIRN_STORE_GET:
    case CAIRN_STORE_HEAD:
        look(bucket, sent, ret);
        break;
    case CAIRN_STORE_DELETE:
        delete_one(bucket, sent->key);
        break;
    case CAIRN_STORE_DELETE_MANY:
        for (size_t i = 0; i < sent->deletion_count; i++) delete_one(bucket, sent->deletions[i]);
        break;
    case CAIRN_STORE_LIST:
        list(bucket, sent, ret);
        break;
    case CAIRN_STORE_UPLOADS:
        list_uploads(bucket, sent, ret);
        break;
    case CAIRN_STORE_UPLOAD_CREATE:
        upload_create(bucket, sent, ret);
        break;
    default:
        of_upload(bucket, sent, ret);
    }
}
