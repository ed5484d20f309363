/* SPDX-License-Identifier: Apache-2.0 */
/* Strict reading of safetensors headers; nothing of the file is believed before it was checked. */
#include "formats/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>

#include "api/dtype.h"
#include "common/text.h"
#include "formats/input.h"

/* An entry is eight JSON values; this is more than 100,000,000 bytes of real entries hold. */
#define NODES_MAX 16000000

void cairn_safetensors_release(struct cairn_safetensors *file) {
    json_decref(file->document);
    free(file->entries);
    *file = (struct cairn_safetensors){0};
}

enum cairn_code cairn_safetensors_head_bytes(struct cairn_view first, uint64_t file_bytes,
                                             uint64_t *ret_bytes, struct cairn_error *err) {
    if (first.size < 8 || file_bytes < 10)
        return cairn_fail(err, CAIRN_INVALID, "too short for a safetensors file");
    uint64_t json_bytes = cairn_load_u64le(first.data);
    if (json_bytes < 2 || json_bytes > CAIRN_SAFETENSORS_HEADER_BYTES_MAX ||
        json_bytes > file_bytes - 8)
        return cairn_fail(err, CAIRN_INVALID,
                          "safetensors header of %" PRIu64 " bytes in a file of %" PRIu64,
                          json_bytes, file_bytes);
    *ret_bytes = 8 + json_bytes;
    return CAIRN_OK;
}

static enum cairn_code read_shape(const json_t *shape, struct cairn_safetensors_entry *ret,
                                  struct cairn_error *err) {
    if (json_array_size(shape) > CAIRN_DIMENSIONS_MAX)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "%zu dimensions, at most %d are supported",
                          json_array_size(shape), CAIRN_DIMENSIONS_MAX);
    ret->dimension_count = (unsigned)json_array_size(shape);
    for (unsigned d = 0; d < ret->dimension_count; d++) {
        const json_t *extent = json_array_get(shape, d);
        if (!json_is_integer(extent) || json_integer_value(extent) < 0)
            return cairn_fail(err, CAIRN_INVALID, "shape[%u] is not a size", d);
        ret->shape[d] = (uint64_t)json_integer_value(extent);
    }
    return CAIRN_OK;
}

static enum cairn_code read_offsets(const json_t *offsets, uint64_t data_bytes, uint64_t *ret_begin,
                                    uint64_t *ret_end, struct cairn_error *err) {
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin) ||
        (uint64_t)json_integer_value(end) > data_bytes)
        return cairn_fail(err, CAIRN_INVALID,
                          "data_offsets are not a range in the %" PRIu64 " data bytes", data_bytes);
    *ret_begin = (uint64_t)json_integer_value(begin);
    *ret_end = (uint64_t)json_integer_value(end);
    return CAIRN_OK;
}

static enum cairn_code read_entry(const json_t *value, uint64_t data_bytes,
                                  struct cairn_safetensors_entry *ret, struct cairn_error *err) {
    const char *dtype = NULL;
    json_t *shape = NULL, *offsets = NULL;
    const struct cairn_json_field fields[] = {
        {"dtype", CAIRN_JSON_TEXT, true, &dtype, 32},
        {"shape", CAIRN_JSON_ARRAY, true, &shape, 0},
        {"data_offsets", CAIRN_JSON_ARRAY, true, &offsets, 0},
    };
    uint64_t elements = 0, size = 0, begin = 0, end = 0;
    CAIRN_TRY(cairn_json_read(value, "", fields, CAIRN_COUNT(fields), false, err));
    if (!cairn_dtype_parse(cairn_view_of(dtype), &ret->dtype) || !cairn_dtype_is_shown(ret->dtype))
        return cairn_fail(err, CAIRN_INVALID, "unknown dtype %s", dtype);
    CAIRN_TRY(read_shape(shape, ret, err));
    CAIRN_TRY(read_offsets(offsets, data_bytes, &begin, &end, err));
    if (!cairn_tensor_size(ret->dtype, ret->dimension_count, ret->shape, &elements, &size) ||
        size != end - begin)
        return cairn_fail(err, CAIRN_INVALID,
                          "shape and dtype do not give the %" PRIu64 " bytes of its range",
                          end - begin);
    ret->offset_bytes = begin;
    ret->size_bytes = size;
    return CAIRN_OK;
}

static enum cairn_code check_metadata(const json_t *metadata, struct cairn_error *err) {
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return cairn_fail(err, CAIRN_INVALID, "__metadata__ is not an object");
    json_object_foreach((json_t *)(uintptr_t)metadata, key, value) {
        if (!json_is_string(value))
            return cairn_fail(err, CAIRN_INVALID, "__metadata__ %s is not text", key);
    }
    return CAIRN_OK;
}

bool cairn_safetensors_is_carried(const char *key) {
    return strcmp(key, CAIRN_SAFETENSORS_SHARDING) != 0 && strcmp(key, "DCP_VERSION") != 0 &&
           strcmp(key, CAIRN_SAFETENSORS_OWN) != 0 &&
           !cairn_text_starts(key, CAIRN_SAFETENSORS_TAG);
}

/* ---- tags ---- */

/* "C128 [2,3]", as it is written: one space, no other. */
static bool parse_tag(const char *tag, struct cairn_safetensors_entry *ret) {
    const char *at = strchr(tag, ' ');
    if (!at || !cairn_dtype_parse((struct cairn_view){tag, (size_t)(at - tag)}, &ret->dtype))
        return false;
    ret->dimension_count = 0;
    if (strcmp(at, " []") == 0) return true;
    for (const char *before = " ["; *at != ']'; before = ",") {
        size_t skip = strlen(before);
        if (strncmp(at, before, skip) != 0 || ret->dimension_count == CAIRN_DIMENSIONS_MAX)
            return false;
        at += skip;
        struct cairn_view digits = {at, strspn(at, "0123456789")};
        if (cairn_parse_u64(digits, &ret->shape[ret->dimension_count++], NULL)) return false;
        at += digits.size;
    }
    return at[1] == '\0';
}

/* A tool may have changed the tensor and kept the metadata, and a later release may know more
 * types: what the tag says counts where the tensor is what it would be shown as. */
static void apply_tag(const char *tag, struct cairn_safetensors_entry *entry) {
    struct cairn_safetensors_entry said = *entry;
    struct cairn_dtype_shown shown;
    uint64_t elements = 0, size = 0;
    if (!tag || !parse_tag(tag, &said) ||
        !cairn_tensor_size(said.dtype, said.dimension_count, said.shape, &elements, &size))
        return;
    cairn_dtype_shown(said.dtype, said.dimension_count, said.shape, &shown);
    if (size == entry->size_bytes && shown.dtype == entry->dtype &&
        shown.dimension_count == entry->dimension_count &&
        memcmp(shown.shape, entry->shape, shown.dimension_count * sizeof *shown.shape) == 0)
        *entry = said;
}

static enum cairn_code read_tag(const json_t *metadata, struct cairn_safetensors_entry *entry,
                                struct cairn_error *err) {
    CAIRN_AUTO(buf) key = {0};
    if (json_object_size(metadata) == 0) return CAIRN_OK;
    CAIRN_TRY(cairn_buf_append_text(&key, CAIRN_SAFETENSORS_TAG, err));
    CAIRN_TRY(cairn_buf_append(&key, entry->name.data, entry->name.size, err));
    apply_tag(json_string_value(json_object_getn(metadata, key.data, key.size)), entry);
    return CAIRN_OK;
}

static enum cairn_code read_entries(struct cairn_safetensors *file, uint64_t data_bytes,
                                    struct cairn_error *err) {
    const char *name;
    json_t *value;
    json_object_foreach(file->document, name, value) {
        if (strcmp(name, "__metadata__") == 0) {
            CAIRN_TRY(check_metadata(value, err));
            continue;
        }
        struct cairn_safetensors_entry *entry = &file->entries[file->count];
        enum cairn_code code = read_entry(value, data_bytes, entry, err);
        if (code) return cairn_within(err, code, "tensor %s", name);
        entry->name = cairn_view_of(name);
        CAIRN_TRY(read_tag(json_object_get(file->document, "__metadata__"), entry, err));
        file->count++;
    }
    return CAIRN_OK;
}

static int by_offset(const void *a, const void *b) {
    const struct cairn_safetensors_entry *x = a, *y = b;
    if (x->offset_bytes != y->offset_bytes) return x->offset_bytes < y->offset_bytes ? -1 : 1;
    return x->size_bytes < y->size_bytes ? -1 : x->size_bytes > y->size_bytes;
}

static enum cairn_code check_contiguous(struct cairn_safetensors *file, uint64_t data_bytes,
                                        struct cairn_error *err) {
    uint64_t at = 0;
    for (size_t i = 0; i < file->count; i++) {
        struct cairn_safetensors_entry *entry = &file->entries[i];
        if (entry->offset_bytes != at)
            return cairn_fail(err, CAIRN_INVALID,
                              "tensor %.*s begins at %" PRIu64 ", the one before ends at %" PRIu64,
                              (int)entry->name.size, (const char *)entry->name.data,
                              entry->offset_bytes, at);
        at += entry->size_bytes;
        entry->offset_bytes += file->header_bytes;
    }
    if (at != data_bytes)
        return cairn_fail(err, CAIRN_INVALID,
                          "the tensors end after %" PRIu64 " of %" PRIu64 " data bytes", at,
                          data_bytes);
    return CAIRN_OK;
}

static enum cairn_code open_header(struct cairn_view text, uint64_t data_bytes,
                                   struct cairn_safetensors *ret, struct cairn_error *err) {
    const struct cairn_json_limits limits = {CAIRN_SAFETENSORS_HEADER_BYTES_MAX, NODES_MAX};
    CAIRN_TRY(cairn_json_parse(text, limits, &ret->document, err));
    if (!json_is_object(ret->document))
        return cairn_fail(err, CAIRN_INVALID, "the header is not a JSON object");
    ret->entries = calloc(json_object_size(ret->document) + 1, sizeof *ret->entries);
    if (!ret->entries) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the entries");
    CAIRN_TRY(read_entries(ret, data_bytes, err));
    if (ret->count) qsort(ret->entries, ret->count, sizeof *ret->entries, by_offset);
    return check_contiguous(ret, data_bytes, err);
}

enum cairn_code cairn_safetensors_open(struct cairn_view head, uint64_t file_bytes,
                                       struct cairn_safetensors *ret, struct cairn_error *err) {
    CAIRN_AUTO(safetensors) file = {0};
    CAIRN_TRY(cairn_safetensors_head_bytes(head, file_bytes, &file.header_bytes, err));
    if (head.size < file.header_bytes)
        return cairn_fail(err, CAIRN_INVALID, "%zu bytes of a %" PRIu64 " byte header", head.size,
                          file.header_bytes);
    struct cairn_view text = {(const char *)head.data + 8, (size_t)file.header_bytes - 8};
    if (*(const char *)text.data != '{')
        return cairn_fail(err, CAIRN_INVALID, "the header does not begin with '{'");
    while (((const char *)text.data)[text.size - 1] == ' ') text.size--;
    enum cairn_code code = open_header(text, file_bytes - file.header_bytes, &file, err);
    if (code == CAIRN_TOO_LARGE || code == CAIRN_PROTOCOL) code = CAIRN_INVALID;
    if (code) return cairn_within(err, code, "safetensors header");
    *ret = file;
    file = (struct cairn_safetensors){0};
    return CAIRN_OK;
}

enum cairn_code cairn_safetensors_load(const struct cairn_input *input, struct cairn_buf *head,
                                       struct cairn_safetensors *ret, struct cairn_error *err) {
    uint64_t wanted = 0;
    head->limit = CAIRN_SAFETENSORS_HEADER_BYTES_MAX + 8;
    CAIRN_TRY(cairn_buf_reserve(head, 8, err));
    CAIRN_TRY(cairn_input_read(input, 0, head->data, 8, err));
    head->size = 8;
    CAIRN_TRY(cairn_safetensors_head_bytes(cairn_buf_view(head), input->size_bytes, &wanted, err));
    CAIRN_TRY(cairn_buf_reserve(head, (size_t)wanted - 8, err));
    CAIRN_TRY(cairn_input_read(input, 8, head->data + 8, (size_t)wanted - 8, err));
    head->size = (size_t)wanted;
    return cairn_safetensors_open(cairn_buf_view(head), input->size_bytes, ret, err);
}
