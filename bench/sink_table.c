/* SPDX-License-Identifier: Apache-2.0 */
/* The sink's objects, open uploads, and shared bodies. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/sink.h"
#include "common/text.h"

#define HUGE_BYTES (2 * CAIRN_MIB)

/* First touches of small pages cost more than receiving. */
uint8_t *sink_room(uint64_t bytes) {
    if (bytes < HUGE_BYTES) return malloc(bytes + 1);
    size_t size = (size_t)cairn_round_up(bytes, HUGE_BYTES);
    uint8_t *room = aligned_alloc(HUGE_BYTES, size);
    if (room) madvise(room, size, MADV_HUGEPAGE);
    return room;
}

struct sink_body *sink_body_new(size_t piece_count) {
    struct sink_body *body = calloc(1, sizeof *body + piece_count * sizeof *body->pieces);
    if (!body) return NULL;
    body->users = 1;
    body->piece_count = piece_count;
    return body;
}

void sink_body_leave(struct sink_body *body) {
    if (!body || --body->users) return;
    for (size_t i = 0; i < body->piece_count; i++) free(body->pieces[i].data);
    free(body);
}

struct sink_object *sink_object_find(const char *key) {
    for (uint32_t i = 0; i < sink.object_count; i++)
        if (!strcmp(sink.objects[i].key, key)) return &sink.objects[i];
    return NULL;
}

struct sink_object *sink_object_make(const char *key) {
    struct sink_object *object = sink_object_find(key);
    if (!object && sink.object_count < SINK_OBJECTS_MAX)
        object = &sink.objects[sink.object_count++];
    if (!object) return NULL;
    sink_body_leave(object->body);
    *object = (struct sink_object){0};
    (void)cairn_text_copy(object->key, sizeof object->key, key);
    return object;
}

void sink_object_drop(struct sink_object *object) {
    sink_body_leave(object->body);
    *object = sink.objects[--sink.object_count];
    sink.objects[sink.object_count] = (struct sink_object){0};
}

struct sink_upload *sink_upload_find(uint64_t id) {
    for (uint32_t i = 0; id && i < SINK_UPLOADS_MAX; i++)
        if (sink.uploads[i].id == id) return &sink.uploads[i];
    return NULL;
}

struct sink_upload *sink_upload_make(void) {
    for (uint32_t i = 0; i < SINK_UPLOADS_MAX; i++) {
        struct sink_upload *upload = &sink.uploads[i];
        if (upload->parts) continue;
        upload->parts = calloc(SINK_PARTS_MAX, sizeof *upload->parts);
        if (!upload->parts) return NULL;
        upload->id = ++sink.upload_ids;
        return upload;
    }
    return NULL;
}

void sink_upload_drop(struct sink_upload *upload) {
    for (uint32_t i = 0; upload->parts && i < SINK_PARTS_MAX; i++) free(upload->parts[i].data);
    free(upload->parts);
    *upload = (struct sink_upload){0};
}
