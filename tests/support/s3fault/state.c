/* SPDX-License-Identifier: Apache-2.0 */
/* state: sorted tables, counted bodies. */
#include "tests/support/s3fault/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "common/clock.h"
#include "tests/support/s3fault/versions.h"

#define COMPLETED_MAX 1024

static void *must(void *memory) {
    if (!memory) abort();
    return memory;
}

int64_t s3f_now_ms(const struct s3f_state *state) {
    return cairn_clock_real.wall_ms(&cairn_clock_real) + state->clock_offset_ms;
}

bool s3f_has_bucket(const struct s3f_state *state, const char *bucket) {
    for (size_t i = 0; i < state->bucket_count; i++)
        if (!strcmp(state->buckets[i], bucket)) return true;
    return false;
}

/* ---- bodies ---- */

struct s3f_body *s3f_body_new(struct s3f_state *state, uint64_t size, bool keep) {
    uint64_t mapped = keep ? cairn_round_up(size + 1, 4096) : 0;
    if (mapped && state->memory_bytes + mapped > state->memory_max) return NULL;
    struct s3f_body *body = must(calloc(1, sizeof *body));
    body->size = size;
    body->references = 1;
    if (mapped < CAIRN_MIB) {
        if (mapped) body->bytes = malloc(mapped);
    } else {
        void *at = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at != MAP_FAILED) {
            madvise(at, mapped, MADV_HUGEPAGE);
            body->bytes = at;
        }
    }
    if (mapped && !body->bytes) {
        free(body);
        return NULL;
    }
    body->mapped = mapped;
    state->memory_bytes += mapped;
    return body;
}

void s3f_body_drop(struct s3f_state *state, struct s3f_body *body) {
    if (!body || --body->references) return;
    state->memory_bytes -= body->mapped;
    if (body->mapped < CAIRN_MIB)
        free(body->bytes);
    else
        munmap(body->bytes, body->mapped);
    free(body);
}

/* ---- objects ---- */

struct s3f_object *s3f_object_new(const char *bucket, const char *key, const char *metadata,
                                  size_t body_count) {
    struct s3f_object *object = must(calloc(1, sizeof *object));
    object->bucket = must(strdup(bucket));
    object->key = must(strdup(key));
    object->metadata = must(strdup(metadata));
    object->bodies = must(calloc(body_count + 1, sizeof *object->bodies));
    object->body_count = body_count;
    object->checksum_type = "FULL_OBJECT";
    object->references = 1;
    return object;
}

void s3f_object_drop(struct s3f_state *state, struct s3f_object *object) {
    if (!object || --object->references) return;
    for (size_t i = 0; i < object->body_count; i++) s3f_body_drop(state, object->bodies[i]);
    free(object->bodies);
    free(object->bucket);
    free(object->key);
    free(object->metadata);
    free(object);
}

static int order(const struct s3f_object *object, const char *bucket, const char *key) {
    int result = strcmp(object->bucket, bucket);
    return result ? result : strcmp(object->key, key);
}

size_t s3f_object_place(const struct s3f_state *state, const char *bucket, const char *key) {
    size_t low = 0, high = state->object_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (order(state->objects[middle], bucket, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_at(const struct s3f_state *state, size_t place, const char *bucket,
                  const char *key) {
    return place < state->object_count && order(state->objects[place], bucket, key) == 0;
}

struct s3f_object *s3f_object_find(const struct s3f_state *state, const char *bucket,
                                   const char *key) {
    size_t place = s3f_object_place(state, bucket, key);
    return is_at(state, place, bucket, key) ? state->objects[place] : NULL;
}

void s3f_object_show(struct s3f_state *state, struct s3f_object *take_object) {
    size_t place = s3f_object_place(state, take_object->bucket, take_object->key);
    if (is_at(state, place, take_object->bucket, take_object->key)) {
        s3f_object_drop(state, state->objects[place]);
        state->objects[place] = take_object;
        return;
    }
    if (state->object_count == state->object_capacity) {
        state->object_capacity = state->object_capacity * 2 + 64;
        state->objects =
            must(realloc(state->objects, state->object_capacity * sizeof *state->objects));
    }
    memmove(state->objects + place + 1, state->objects + place,
            (state->object_count - place) * sizeof *state->objects);
    state->objects[place] = take_object;
    state->object_count++;
}

void s3f_object_hide(struct s3f_state *state, const char *bucket, const char *key) {
    size_t place = s3f_object_place(state, bucket, key);
    if (!is_at(state, place, bucket, key)) return;
    s3f_object_drop(state, state->objects[place]);
    state->object_count--;
    memmove(state->objects + place, state->objects + place + 1,
            (state->object_count - place) * sizeof *state->objects);
}

/* ---- uploads ---- */

/* Ids hold what must be escaped in a query, so that a client that forgets it is found out. */
static void name_upload(struct s3f_state *state, char *ret, size_t capacity) {
    uint64_t z = state->seed + ++state->serial * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    snprintf(ret, capacity, "up+%llu/%016llx==", (unsigned long long)state->serial,
             (unsigned long long)(z ^ z >> 31));
}

struct s3f_upload *s3f_upload_new(struct s3f_state *state, const char *bucket, const char *key,
                                  const char *metadata) {
    if (state->upload_count == state->upload_capacity) {
        state->upload_capacity = state->upload_capacity * 2 + 64;
        state->uploads =
            must(realloc(state->uploads, state->upload_capacity * sizeof *state->uploads));
    }
    struct s3f_upload *upload = must(calloc(1, sizeof *upload));
    name_upload(state, upload->id, sizeof upload->id);
    upload->bucket = must(strdup(bucket));
    upload->key = must(strdup(key));
    upload->metadata = must(strdup(metadata));
    upload->begun_ms = s3f_now_ms(state);
    size_t place = 0;
    while (place < state->upload_count) {
        const struct s3f_upload *other = state->uploads[place];
        int result = strcmp(other->bucket, bucket);
        if (result == 0) result = strcmp(other->key, key);
        if (result > 0) break;
        place++;
    }
    memmove(state->uploads + place + 1, state->uploads + place,
            (state->upload_count - place) * sizeof *state->uploads);
    state->uploads[place] = upload;
    state->upload_count++;
    return upload;
}

struct s3f_upload *s3f_upload_find(const struct s3f_state *state, const char *bucket,
                                   const char *key, const char *id) {
    for (size_t i = 0; i < state->upload_count; i++) {
        struct s3f_upload *upload = state->uploads[i];
        if (!strcmp(upload->id, id) && !strcmp(upload->key, key) && !strcmp(upload->bucket, bucket))
            return upload;
    }
    return NULL;
}

static void drop_parts(struct s3f_state *state, struct s3f_upload *upload) {
    for (size_t i = 0; i < upload->part_count; i++) s3f_body_drop(state, upload->parts[i].body);
    free(upload->parts);
    upload->parts = NULL;
    upload->part_count = upload->part_capacity = 0;
}

void s3f_upload_remove(struct s3f_state *state, struct s3f_upload *upload) {
    for (size_t i = 0; i < state->upload_count; i++) {
        if (state->uploads[i] != upload) continue;
        state->upload_count--;
        memmove(state->uploads + i, state->uploads + i + 1,
                (state->upload_count - i) * sizeof *state->uploads);
        break;
    }
    if (upload->completed) state->completed_count--;
    drop_parts(state, upload);
    free(upload->bucket);
    free(upload->key);
    free(upload->metadata);
    free(upload);
}

void s3f_upload_complete(struct s3f_state *state, struct s3f_upload *upload) {
    drop_parts(state, upload);
    upload->completed = true;
    if (++state->completed_count <= COMPLETED_MAX) return;
    for (size_t i = 0; i < state->upload_count; i++) {
        if (!state->uploads[i]->completed || state->uploads[i] == upload) continue;
        s3f_upload_remove(state, state->uploads[i]);
        return;
    }
}

/* Parts stand in order of number. */
static size_t part_place(const struct s3f_upload *upload, uint32_t number) {
    size_t low = 0, high = upload->part_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (upload->parts[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct s3f_part *s3f_part_find(const struct s3f_upload *upload, uint32_t number) {
    size_t place = part_place(upload, number);
    bool there = place < upload->part_count && upload->parts[place].number == number;
    return there ? &upload->parts[place] : NULL;
}

void s3f_part_store(struct s3f_state *state, struct s3f_upload *upload, uint32_t number,
                    struct s3f_body *take_body, bool has_checksum) {
    struct s3f_part *part = s3f_part_find(upload, number);
    if (part) {
        s3f_body_drop(state, part->body);
    } else {
        if (upload->part_count == upload->part_capacity) {
            upload->part_capacity = upload->part_capacity * 2 + 16;
            upload->parts =
                must(realloc(upload->parts, upload->part_capacity * sizeof *upload->parts));
        }
        size_t place = part_place(upload, number);
        part = &upload->parts[place];
        memmove(part + 1, part, (upload->part_count - place) * sizeof *part);
        upload->part_count++;
    }
    *part = (struct s3f_part){.number = number,
                              .body = take_body,
                              .has_checksum = has_checksum,
                              .modified_ms = s3f_now_ms(state)};
}

void s3f_state_clear(struct s3f_state *state) {
    while (state->upload_count) s3f_upload_remove(state, state->uploads[state->upload_count - 1]);
    s3f_versions_clear(state);
    for (size_t i = 0; i < state->object_count; i++) s3f_object_drop(state, state->objects[i]);
    free(state->objects);
    free(state->uploads);
    state->objects = NULL;
    state->uploads = NULL;
    state->object_count = state->object_capacity = state->upload_capacity = 0;
    cairn_buf_release(&state->lifecycle);
    cairn_buf_release(&state->versioning);
    cairn_buf_release(&state->object_lock);
    cairn_buf_release(&state->hold);
    cairn_buf_release(&state->policy);
}
