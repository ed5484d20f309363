/* SPDX-License-Identifier: Apache-2.0 */
/* Whole tensors of safetensors files, and those that lie in several files by their offsets. */
#include "formats/safetensors_assembly.h"

#include <stdlib.h>

#include "common/buf.h"
#include "common/text.h"

#define SHARDING CAIRN_SAFETENSORS_SHARDING
#define OFFSETS "saved_offsets"
#define PARTS_MAX 16777216

void cairn_safetensors_parts_release(struct cairn_safetensors_parts *parts) {
    for (size_t i = 0; i < parts->count; i++) free(parts->items[i].name);
    free(parts->items);
    *parts = (struct cairn_safetensors_parts){0};
}

/* ---- parts ---- */

enum cairn_code cairn_safetensors_sharding(const struct cairn_safetensors *file, json_t **ret,
                                           struct cairn_error *err) {
    const char *text = json_string_value(
        json_object_get(json_object_get(file->document, "__metadata__"), SHARDING));
    *ret = NULL;
    if (!text) return CAIRN_OK;
    *ret = json_loads(text, 0, NULL);
    if (json_is_object(*ret)) return CAIRN_OK;
    json_decref(*ret);
    *ret = NULL;
    return cairn_fail(err, CAIRN_CORRUPT, SHARDING " in its header is not a JSON object");
}

static enum cairn_code read_box(const json_t *sharding, const struct cairn_safetensors_entry *entry,
                                struct cairn_box *ret, struct cairn_error *err) {
    const json_t *offsets = json_object_get(sharding, OFFSETS);
    bool sound = json_array_size(offsets) == entry->dimension_count && json_is_array(offsets);
    for (unsigned d = 0; sound && d < entry->dimension_count; d++) {
        json_int_t offset = json_integer_value(json_array_get(offsets, d));
        sound = json_is_integer(json_array_get(offsets, d)) && offset >= 0 &&
                entry->shape[d] <= (uint64_t)INT64_MAX - (uint64_t)offset;
        ret->start[d] = (uint64_t)offset;
        ret->count[d] = entry->shape[d];
    }
    if (sound) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CORRUPT, "tensor %.*s: " SHARDING " does not say where it lies",
                      (int)cairn_min_u64(entry->name.size, 200), (const char *)entry->name.data);
}

enum cairn_code cairn_safetensors_parts_add(struct cairn_safetensors_parts *parts,
                                            const json_t *sharding,
                                            const struct cairn_safetensors_entry *entry,
                                            size_t file, bool *ret, struct cairn_error *err) {
    struct cairn_safetensors_part part = {.dtype = entry->dtype,
                                          .dimension_count = entry->dimension_count,
                                          .file = file,
                                          .offset_bytes = entry->offset_bytes,
                                          .size_bytes = entry->size_bytes};
    const json_t *own = json_object_getn(sharding, entry->name.data, entry->name.size);
    *ret = own != NULL;
    if (!own) return CAIRN_OK;
    CAIRN_TRY(read_box(own, entry, &part.box, err));
    CAIRN_TRY(CAIRN_ARRAY_ROOM(parts->items, parts->count, parts->capacity, PARTS_MAX,
                               "pieces of tensors", err));
    part.name = strndup(entry->name.data, entry->name.size);
    if (!part.name) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a name");
    parts->items[parts->count++] = part;
    return CAIRN_OK;
}

static int by_name_and_file(const void *a, const void *b) {
    const struct cairn_safetensors_part *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->file > y->file) - (x->file < y->file);
}

void cairn_safetensors_parts_sort(struct cairn_safetensors_parts *parts) {
    if (parts->count) qsort(parts->items, parts->count, sizeof *parts->items, by_name_and_file);
}

/* Parts without elements are left out of the proof: ranks that hold nothing write such. */
static enum cairn_code prove(const struct cairn_safetensors_part *parts, size_t count,
                             const uint64_t *shape, struct cairn_error *err) {
    CAIRN_AUTO_HEAP struct cairn_box *boxes = calloc(count + 1, sizeof *boxes);
    size_t used = 0;
    if (!boxes) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for pieces of tensors");
    for (size_t i = 0; i < count; i++)
        if (parts[i].size_bytes) boxes[used++] = parts[i].box;
    if (!used) return CAIRN_OK;
    enum cairn_code code = cairn_boxes_prove(boxes, used, parts->dimension_count, shape, err);
    return code == CAIRN_INVALID ? cairn_within(err, CAIRN_CORRUPT, "%s of " SHARDING,
                                                cairn_counted(used, "piece").text)
                                 : code;
}

enum cairn_code cairn_safetensors_parts_group(const struct cairn_safetensors_parts *parts,
                                              size_t first, size_t *ret_count,
                                              uint64_t ret_shape[CAIRN_DIMENSIONS_MAX],
                                              struct cairn_error *err) {
    const struct cairn_safetensors_part *group = &parts->items[first];
    size_t count = 0;
    memset(ret_shape, 0, CAIRN_DIMENSIONS_MAX * sizeof *ret_shape);
    while (first + count < parts->count && strcmp(group[count].name, group->name) == 0) count++;
    *ret_count = count;
    enum cairn_code code = CAIRN_OK;
    for (size_t i = 0; code == CAIRN_OK && i < count; i++) {
        if (group[i].dtype != group->dtype || group[i].dimension_count != group->dimension_count)
            code = cairn_fail(err, CAIRN_CORRUPT, "its pieces differ in type or dimensions");
        for (unsigned d = 0; code == CAIRN_OK && d < group->dimension_count; d++)
            ret_shape[d] =
                cairn_max_u64(ret_shape[d], group[i].box.start[d] + group[i].box.count[d]);
    }
    if (code == CAIRN_OK) code = prove(group, count, ret_shape, err);
    return code ? cairn_within(err, code, "tensor %s", cairn_short(group->name).text) : CAIRN_OK;
}

/* ---- assemblies ---- */

static enum cairn_code add_texts(const struct cairn_safetensors *file, const char *name,
                                 struct cairn_assembly *assembly, struct cairn_error *err) {
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(file->document, "__metadata__"), key, value) {
        if (!cairn_safetensors_is_carried(key)) continue;
        CAIRN_TRY(cairn_assembly_add_text(assembly, key, json_string_value(value), name, err));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_safetensors_add_texts(const struct cairn_input *input, const char *name,
                                            struct cairn_assembly *assembly,
                                            struct cairn_error *err) {
    CAIRN_AUTO(buf) head = {0};
    CAIRN_AUTO(safetensors) file = {0};
    CAIRN_TRY(cairn_safetensors_load(input, &head, &file, err));
    return add_texts(&file, name, assembly, err);
}

static enum cairn_code add_entries(const struct cairn_input *input,
                                   const struct cairn_safetensors *file, const json_t *sharding,
                                   struct cairn_assembly *assembly,
                                   struct cairn_safetensors_parts *parts, struct cairn_error *err) {
    uint32_t number;
    size_t before = parts->count;
    CAIRN_TRY(cairn_assembly_add_input(assembly, input, &number, err));
    for (size_t i = 0; i < file->count; i++) {
        const struct cairn_safetensors_entry *entry = &file->entries[i];
        CAIRN_AUTO(buf) name = {0};
        bool part;
        CAIRN_TRY(cairn_safetensors_parts_add(parts, sharding, entry, before, &part, err));
        if (part) parts->items[parts->count - 1].input = input;
        if (part) continue;
        CAIRN_TRY(cairn_buf_append(&name, entry->name.data, entry->name.size, err));
        CAIRN_TRY(cairn_assembly_add_tensor(assembly, name.data, entry->dtype,
                                            entry->dimension_count, entry->shape, err));
        CAIRN_TRY(cairn_assembly_add_piece(assembly, number, entry->offset_bytes, entry->size_bytes,
                                           err));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_safetensors_assemble(const struct cairn_input *input, const char *name,
                                           struct cairn_assembly *assembly,
                                           struct cairn_safetensors_parts *parts,
                                           struct cairn_error *err) {
    CAIRN_AUTO(buf) head = {0};
    CAIRN_AUTO(safetensors) file = {0};
    CAIRN_AUTO_JSON json_t *sharding = NULL;
    CAIRN_TRY(cairn_safetensors_load(input, &head, &file, err));
    CAIRN_TRY(cairn_safetensors_sharding(&file, &sharding, err));
    CAIRN_TRY(add_texts(&file, name, assembly, err));
    return add_entries(input, &file, sharding, assembly, parts, err);
}

static enum cairn_code join_group(const struct cairn_safetensors_part *parts, size_t count,
                                  const uint64_t *shape, struct cairn_assembly *assembly,
                                  struct cairn_error *err) {
    CAIRN_TRY(cairn_assembly_add_tensor(assembly, parts->name, parts->dtype, parts->dimension_count,
                                        shape, err));
    for (size_t i = 0; i < count; i++) {
        struct cairn_assembly_piece piece = {.offset_bytes = parts[i].offset_bytes,
                                             .size_bytes = parts[i].size_bytes};
        CAIRN_TRY(cairn_assembly_add_input(assembly, parts[i].input, &piece.input, err));
        CAIRN_TRY(cairn_assembly_add_box(assembly, &piece, &parts[i].box, 0, err));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_safetensors_join(struct cairn_safetensors_parts *parts,
                                       struct cairn_assembly *assembly, struct cairn_error *err) {
    size_t count;
    cairn_safetensors_parts_sort(parts);
    for (size_t first = 0; first < parts->count; first += count) {
        uint64_t shape[CAIRN_DIMENSIONS_MAX];
        CAIRN_TRY(cairn_safetensors_parts_group(parts, first, &count, shape, err));
        CAIRN_TRY(join_group(&parts->items[first], count, shape, assembly, err));
    }
    return CAIRN_OK;
}
