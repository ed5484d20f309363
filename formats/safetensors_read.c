/* SPDX-License-Identifier: Apache-2.0 */
/* Strict reading of safetensors headers; nothing of the file is believed before it was checked. */
#include "formats/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>

#include "api/table/dtype.h"
#include "common/text.h"
#include "formats/input.h"

#define METADATA "__metadata__"

/* An entry is eight JSON values; this is more than 100,000,000 bytes of real entries hold. */
#define NODES_MAX 16000000
/* Parsed, an entry takes 3 KB, of which 100 bytes are kept: so many are taken apart at once. */
#define MEMBERS_AT_ONCE 4096

void cairn_safetensors_release(struct cairn_safetensors *file) {
    json_decref(file->document);
    free(file->entries);
    free(file->names);
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
        return cairn_fail(err, CAIRN_INVALID, METADATA " is not an object");
    json_object_foreach((json_t *)(uintptr_t)metadata, key, value) {
        if (!json_is_string(value))
            return cairn_fail(err, CAIRN_INVALID, METADATA " %s is not text", key);
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

/* Its name stays when the JSON is gone: *at is where the next one is put. */
static enum cairn_code add_entry(struct cairn_safetensors *file, const char *name,
                                 const json_t *value, uint64_t data_bytes, char **at,
                                 struct cairn_error *err) {
    struct cairn_safetensors_entry *entry = &file->entries[file->count];
    size_t size = strlen(name);
    enum cairn_code code = read_entry(value, data_bytes, entry, err);
    if (code) return cairn_within(err, code, "tensor %s", name);
    memcpy(*at, name, size + 1);
    entry->name = (struct cairn_view){*at, size};
    *at += size + 1;
    file->count++;
    return CAIRN_OK;
}

/* ---- members of the header, some at a time ---- */

struct members {
    struct cairn_view text;
    size_t at; /* behind the brace, or the comma, before the next ones */
    bool over; /* the brace behind the last one was met */
};

static size_t behind_string(struct cairn_view text, size_t at) {
    const char *data = text.data;
    for (at++; at < text.size && data[at] != '"'; at++)
        if (data[at] == '\\') at++;
    return at + 1;
}

/* The text of up to `most` members. Whether it is one is left to the parser, which gets each byte
 * of the header but these commas and the last brace. */
static enum cairn_code next_members(struct members *members, size_t most, struct cairn_view *ret,
                                    size_t *ret_count, struct cairn_error *err) {
    const char *data = members->text.data;
    size_t from = members->at, depth = 0, at = from;
    *ret_count = 1;
    for (; at < members->text.size; at++) {
        char c = data[at];
        if (c == '"') at = behind_string(members->text, at) - 1;
        if (c == '{' || c == '[') depth++;
        if ((c == '}' || c == ']') && !depth--) break;
        if (c == ',' && !depth && (*ret_count)++ == most) break;
    }
    if (at >= members->text.size)
        return cairn_fail(err, CAIRN_INVALID, "JSON: the object has no end");
    members->over = data[at] != ',';
    *ret_count -= !members->over;
    members->at = at + 1;
    *ret = (struct cairn_view){data + from, at - from};
    while (members->over && at + 1 < members->text.size && strchr(" \t\r\n", data[at + 1]) &&
           data[at + 1])
        at++;
    if (members->over && (data[members->at - 1] != '}' || at + 1 < members->text.size))
        return cairn_fail(err, CAIRN_INVALID, "JSON: byte %zu does not end the object", at);
    return CAIRN_OK;
}

static enum cairn_code parse_members(struct cairn_view text, struct cairn_buf *buffer,
                                     json_t **ret, struct cairn_error *err) {
    const struct cairn_json_limits limits = {CAIRN_SAFETENSORS_HEADER_BYTES_MAX + 2, NODES_MAX};
    buffer->limit = CAIRN_SAFETENSORS_HEADER_BYTES_MAX + 3;
    cairn_buf_clear(buffer);
    CAIRN_TRY(cairn_buf_append(buffer, "{", 1, err));
    CAIRN_TRY(cairn_buf_append(buffer, text.data, text.size, err));
    CAIRN_TRY(cairn_buf_append(buffer, "}", 1, err));
    return cairn_json_parse(cairn_buf_view(buffer), limits, ret, err);
}

static enum cairn_code take_members(struct cairn_safetensors *file, json_t *object,
                                    uint64_t data_bytes, char **at, struct cairn_error *err) {
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value) {
        if (strcmp(name, METADATA) != 0) {
            CAIRN_TRY(add_entry(file, name, value, data_bytes, at, err));
            continue;
        }
        CAIRN_TRY(check_metadata(value, err));
        if (json_object_get(file->document, METADATA))
            return cairn_fail(err, CAIRN_INVALID, "JSON: " METADATA " is there twice");
        if (json_object_set(file->document, METADATA, value))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the header");
    }
    return CAIRN_OK;
}

static enum cairn_code count_members(struct cairn_view text, size_t *ret,
                                     struct cairn_error *err) {
    struct members members = {.text = text, .at = 1};
    struct cairn_view some;
    *ret = 0;
    while (!members.over) {
        size_t count = 0;
        CAIRN_TRY(next_members(&members, MEMBERS_AT_ONCE, &some, &count, err));
        *ret += count;
    }
    return CAIRN_OK;
}

static enum cairn_code read_members(struct cairn_safetensors *file, struct cairn_view text,
                                    uint64_t data_bytes, struct cairn_error *err) {
    CAIRN_AUTO(buf) buffer = {0};
    struct members members = {.text = text, .at = 1};
    char *at = file->names;
    for (bool first = true; !members.over; first = false) {
        CAIRN_AUTO_JSON json_t *object = NULL;
        struct cairn_view some;
        size_t count = 0;
        CAIRN_TRY(next_members(&members, MEMBERS_AT_ONCE, &some, &count, err));
        CAIRN_TRY(parse_members(some, &buffer, &object, err));
        if (!first && !json_object_size(object))
            return cairn_fail(err, CAIRN_INVALID, "JSON: nothing behind a comma");
        CAIRN_TRY(take_members(file, object, data_bytes, &at, err));
    }
    return CAIRN_OK;
}

static int by_name(const void *a, const void *b) {
    const struct cairn_safetensors_entry *x = a, *y = b;
    return strcmp(x->name.data, y->name.data);
}

/* Of those that were parsed apart. */
static enum cairn_code check_names(struct cairn_safetensors *file, struct cairn_error *err) {
    if (file->count < MEMBERS_AT_ONCE) return CAIRN_OK;
    qsort(file->entries, file->count, sizeof *file->entries, by_name);
    for (size_t i = 1; i < file->count; i++)
        if (!by_name(&file->entries[i - 1], &file->entries[i]))
            return cairn_fail(err, CAIRN_INVALID, "JSON: %s is there twice",
                              cairn_short(file->entries[i].name.data).text);
    return CAIRN_OK;
}

static enum cairn_code read_tags(struct cairn_safetensors *file, struct cairn_error *err) {
    const json_t *metadata = json_object_get(file->document, METADATA);
    for (size_t i = 0; metadata && i < file->count; i++)
        CAIRN_TRY(read_tag(metadata, &file->entries[i], err));
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
    size_t count = 0;
    CAIRN_TRY(count_members(text, &count, err));
    ret->document = json_object();
    ret->entries = calloc(count + 1, sizeof *ret->entries);
    ret->names = malloc(text.size + 1); /* no name is longer than its text */
    if (!ret->document || !ret->entries || !ret->names)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the entries");
    CAIRN_TRY(read_members(ret, text, data_bytes, err));
    CAIRN_TRY(check_names(ret, err));
    CAIRN_TRY(read_tags(ret, err));
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
