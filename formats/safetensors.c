/* SPDX-License-Identifier: Apache-2.0 */
/* Strict reading of safetensors headers: nothing of the file is used unchecked. */
#include "formats/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/table/dtype.h"
#include "common/text.h"
#include "formats/convert.h"
#include "formats/input.h"

#define METADATA "__metadata__"

/* An entry is eight JSON values; 100,000,000 bytes of real entries hold fewer. */
#define NODES_MAX 16000000
/* A parsed entry takes 3 KB, of which 100 bytes are kept: so only this many are parsed at once. */
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

/* "C128 [2,3]", with exactly one space. */
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

/* A tool may have changed the tensor and kept the metadata, and a later release may add types: a
 * tag counts only if the tensor has the form that the tag implies. */
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

/* Copies the name to *at, since the JSON is freed. */
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

/* ---- members of the header, parsed in batches ---- */

struct members {
    struct cairn_view text;
    size_t at; /* after the brace or comma before the next members */
    bool over; /* the closing brace was reached */
};

static size_t behind_string(struct cairn_view text, size_t at) {
    const char *data = text.data;
    for (at++; at < text.size && data[at] != '"'; at++)
        if (data[at] == '\\') at++;
    return at + 1;
}

/* The text of up to `most` members. The parser checks all but these commas and the last brace. */
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

static enum cairn_code count_members(struct cairn_view text, size_t *ret, struct cairn_error *err) {
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
        const struct cairn_json_limits limits = {CAIRN_SAFETENSORS_HEADER_BYTES_MAX + 2, NODES_MAX};
        buffer.limit = CAIRN_SAFETENSORS_HEADER_BYTES_MAX + 3;
        cairn_buf_clear(&buffer);
        CAIRN_TRY(cairn_buf_append(&buffer, "{", 1, err));
        CAIRN_TRY(cairn_buf_append(&buffer, some.data, some.size, err));
        CAIRN_TRY(cairn_buf_append(&buffer, "}", 1, err));
        CAIRN_TRY(cairn_json_parse(cairn_buf_view(&buffer), limits, &object, err));
        if (!first && !json_object_size(object))
            return cairn_fail(err, CAIRN_INVALID, "JSON: nothing behind a comma");
        const char *name;
        json_t *value;
        json_object_foreach(object, name, value) {
            if (strcmp(name, METADATA) != 0) {
                CAIRN_TRY(add_entry(file, name, value, data_bytes, &at, err));
                continue;
            }
            CAIRN_TRY(check_metadata(value, err));
            if (json_object_get(file->document, METADATA))
                return cairn_fail(err, CAIRN_INVALID, "JSON: " METADATA " is there twice");
            if (json_object_set(file->document, METADATA, value))
                return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the header");
        }
    }
    return CAIRN_OK;
}

static int by_name(const void *a, const void *b) {
    const struct cairn_safetensors_entry *x = a, *y = b;
    return strcmp(x->name.data, y->name.data);
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
    ret->names = malloc(text.size + 1); /* names are shorter than their text */
    if (!ret->document || !ret->entries || !ret->names)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the entries");
    CAIRN_TRY(read_members(ret, text, data_bytes, err));
    /* Checks names across batches. */
    if (ret->count >= MEMBERS_AT_ONCE) {
        qsort(ret->entries, ret->count, sizeof *ret->entries, by_name);
        for (size_t i = 1; i < ret->count; i++)
            if (!by_name(&ret->entries[i - 1], &ret->entries[i]))
                return cairn_fail(err, CAIRN_INVALID, "JSON: %s is there twice",
                                  cairn_short(ret->entries[i].name.data).text);
    }
    const json_t *metadata = json_object_get(ret->document, METADATA);
    for (size_t i = 0; metadata && i < ret->count; i++)
        CAIRN_TRY(read_tag(metadata, &ret->entries[i], err));
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

#define FORMAT "format"

static int entry_order(const void *a, const void *b) {
    const struct cairn_safetensors_entry *x = a, *y = b;
    unsigned x_bits = cairn_dtype_bits(x->dtype), y_bits = cairn_dtype_bits(y->dtype);
    if (x_bits != y_bits) return x_bits > y_bits ? -1 : 1;
    size_t common = x->name.size < y->name.size ? x->name.size : y->name.size;
    int order = common ? memcmp(x->name.data, y->name.data, common) : 0;
    if (order) return order;
    return x->name.size < y->name.size ? -1 : x->name.size > y->name.size;
}

/* Escapes quote, backslash and control bytes; UTF-8 is unchanged. */
static enum cairn_code append_quoted(struct cairn_buf *ret, const char *before,
                                     struct cairn_view text, struct cairn_error *err) {
    const uint8_t *bytes = text.data;
    size_t clean = 0;
    CAIRN_TRY(cairn_buf_printf(ret, err, "\"%s", before));
    for (size_t i = 0; i < text.size; i++) {
        if (bytes[i] >= 0x20 && bytes[i] != '"' && bytes[i] != '\\') continue;
        CAIRN_TRY(cairn_buf_append(ret, bytes + clean, i - clean, err));
        CAIRN_TRY(cairn_buf_printf(ret, err, "\\u%04x", bytes[i]));
        clean = i + 1;
    }
    if (clean < text.size) CAIRN_TRY(cairn_buf_append(ret, bytes + clean, text.size - clean, err));
    return cairn_buf_append(ret, "\"", 1, err);
}

static enum cairn_code append_key(struct cairn_buf *ret, const char *before, struct cairn_view text,
                                  struct cairn_error *err) {
    CAIRN_TRY(cairn_buf_append(ret, ",", 1, err));
    CAIRN_TRY(append_quoted(ret, before, text, err));
    return cairn_buf_append(ret, ":", 1, err);
}

static enum cairn_code append_shape(struct cairn_buf *ret, const uint64_t *shape, unsigned count,
                                    struct cairn_error *err) {
    CAIRN_TRY(cairn_buf_append(ret, "[", 1, err));
    for (unsigned d = 0; d < count; d++)
        CAIRN_TRY(cairn_buf_printf(ret, err, "%s%" PRIu64, d ? "," : "", shape[d]));
    return cairn_buf_append(ret, "]", 1, err);
}

static enum cairn_code append_tag(struct cairn_buf *ret,
                                  const struct cairn_safetensors_entry *entry,
                                  struct cairn_error *err) {
    CAIRN_TRY(append_key(ret, CAIRN_SAFETENSORS_TAG, entry->name, err));
    CAIRN_TRY(cairn_buf_printf(ret, err, "\"%s ", cairn_dtype_text(entry->dtype)));
    CAIRN_TRY(append_shape(ret, entry->shape, entry->dimension_count, err));
    return cairn_buf_append(ret, "\"", 1, err);
}

static enum cairn_code append_entry(struct cairn_buf *ret,
                                    const struct cairn_safetensors_entry *entry, uint64_t begin,
                                    struct cairn_error *err) {
    struct cairn_dtype_shown shown;
    cairn_dtype_shown(entry->dtype, entry->dimension_count, entry->shape, &shown);
    CAIRN_TRY(append_key(ret, "", entry->name, err));
    CAIRN_TRY(
        cairn_buf_printf(ret, err, "{\"dtype\":\"%s\",\"shape\":", cairn_dtype_text(shown.dtype)));
    CAIRN_TRY(append_shape(ret, shown.shape, shown.dimension_count, err));
    return cairn_buf_printf(ret, err, ",\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin,
                            begin + entry->size_bytes);
}

static enum cairn_code check_written_names(const struct cairn_safetensors_entry *entries,
                                           size_t count, struct cairn_error *err) {
    for (size_t i = 0; i < count; i++) {
        struct cairn_view name = entries[i].name;
        if (!cairn_utf8_valid(name) || memchr(name.data, 0, name.size))
            return cairn_fail(err, CAIRN_INVALID, "tensor name is not UTF-8 text");
        if (name.size == 12 && memcmp(name.data, "__metadata__", 12) == 0)
            return cairn_fail(err, CAIRN_INVALID,
                              "a tensor cannot be named __metadata__ in a safetensors file");
        if (i && entry_order(&entries[i - 1], &entries[i]) == 0)
            return cairn_fail(err, CAIRN_INVALID, "tensor %.*s is there twice", (int)name.size,
                              (const char *)name.data);
    }
    return CAIRN_OK;
}

enum cairn_code cairn_safetensors_write(struct cairn_safetensors_entry *entries, size_t count,
                                        const json_t *texts, struct cairn_buf *ret,
                                        uint64_t *ret_file_bytes, struct cairn_error *err) {
    size_t start = ret->size;
    uint64_t data_bytes = 0; /* of the entries so far */
    if (!ret->limit) ret->limit = start + CAIRN_SAFETENSORS_HEADER_BYTES_MAX;
    if (count) qsort(entries, count, sizeof *entries, entry_order);
    CAIRN_TRY(check_written_names(entries, count, err));
    CAIRN_TRY(cairn_buf_append_u64le(ret, 0, err));
    for (size_t i = 0; i < count; i++) {
        struct cairn_safetensors_entry *entry = &entries[i];
        uint64_t elements, end;
        if (!cairn_tensor_size(entry->dtype, entry->dimension_count, entry->shape, &elements,
                               &entry->size_bytes) ||
            cairn_add_overflows(data_bytes, entry->size_bytes, &end) || end > UINT64_MAX / 4)
            return cairn_fail(err, CAIRN_INVALID, "tensor %.*s: its size cannot be represented",
                              (int)entry->name.size, (const char *)entry->name.data);
        entry->offset_bytes = data_bytes;
        data_bytes = end;
    }
    /* Offsets are relative to the data, since the header's size is not known yet. */
    const char *format = json_string_value(json_object_get(texts, FORMAT)), *key;
    json_t *value;
    CAIRN_TRY(cairn_buf_append_text(ret, "{\"__metadata__\":{\"" FORMAT "\":", err));
    CAIRN_TRY(append_quoted(ret, "", cairn_view_of(format ? format : "pt"), err));
    CAIRN_TRY(cairn_buf_append_text(ret, ",\"" CAIRN_SAFETENSORS_OWN "\":\"1\"", err));
    json_object_foreach((json_t *)(uintptr_t)texts, key, value) {
        if (strcmp(key, FORMAT) == 0) continue;
        CAIRN_TRY(append_key(ret, "", cairn_view_of(key), err));
        CAIRN_TRY(append_quoted(ret, "", cairn_view_of(json_string_value(value)), err));
    }
    for (size_t i = 0; i < count; i++)
        if (!cairn_dtype_is_shown(entries[i].dtype)) CAIRN_TRY(append_tag(ret, &entries[i], err));
    CAIRN_TRY(cairn_buf_append(ret, "}", 1, err));
    for (size_t i = 0; i < count; i++)
        CAIRN_TRY(append_entry(ret, &entries[i], entries[i].offset_bytes, err));
    CAIRN_TRY(cairn_buf_append(ret, "}", 1, err));
    size_t written = ret->size - start;
    size_t padded = (size_t)cairn_round_up(written, CAIRN_SAFETENSORS_ALIGN);
    CAIRN_TRY(cairn_buf_reserve(ret, padded - written, err));
    while (ret->size - start < padded) CAIRN_TRY(cairn_buf_append(ret, " ", 1, err));
    cairn_store_u64le(ret->data + start, padded - 8);
    uint64_t header_bytes = ret->size - start;
    for (size_t i = 0; i < count; i++) entries[i].offset_bytes += header_bytes;
    *ret_file_bytes = header_bytes + data_bytes;
    return CAIRN_OK;
}

/* ---- a model's folder ---- */

bool cairn_model_split_begins(struct cairn_model_split *split, uint64_t bytes) {
    uint64_t most = split->file_bytes_max, used = split->used_bytes;
    bool full = most && used && (bytes > most || used > most - bytes);
    bool begins = !split->file_count || full;
    split->file_count += begins;
    split->used_bytes = begins ? bytes : used + bytes;
    return begins;
}

void cairn_model_file_name(const char *stem, const char *end, size_t index, size_t count,
                           char ret[CAIRN_MODEL_FILE_NAME_BYTES]) {
    CAIRN_PROMISE(index < count, return );
    if (count == 1)
        snprintf(ret, CAIRN_MODEL_FILE_NAME_BYTES, "%s.%s", stem, end);
    else
        snprintf(ret, CAIRN_MODEL_FILE_NAME_BYTES, "%s-%05zu-of-%05zu.%s", stem, index + 1, count,
                 end);
}

/* Names of quantisation scales and maps: *_scale*, scales, absmax, quant_map and nested forms, and
 * SCB of bitsandbytes' int8. */
static bool is_scale(struct cairn_view name) {
    static const char *const last[] = {"scales",    "absmax",           "nested_absmax",
                                       "quant_map", "nested_quant_map", "SCB"};
    const char *text = name.data, *dot = name.size ? memrchr(text, '.', name.size) : NULL;
    size_t begin = dot ? (size_t)(dot - text) + 1 : 0, size = name.size - begin;
    if (name.size && memmem(text, name.size, "_scale", 6)) return true;
    for (size_t i = 0; i < CAIRN_COUNT(last); i++)
        if (size == strlen(last[i]) && memcmp(text + begin, last[i], size) == 0) return true;
    return false;
}

unsigned cairn_model_dtype(struct cairn_view name, unsigned stored, unsigned wanted) {
    bool converts = wanted != CAIRN_DTYPE_NONE && cairn_convertible(stored, wanted);
    return converts && !is_scale(name) ? wanted : stored;
}

bool cairn_model_index_add(json_t *map, struct cairn_view tensor, const char *file) {
    return !json_object_setn_new(map, tensor.data, tensor.size, json_string(file));
}

json_t *cairn_model_index(json_t *map, uint64_t total_bytes) {
    return json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)total_bytes,
                     "weight_map", map);
}
