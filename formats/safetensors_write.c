/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a tensors shard: sorted entries, contiguous offsets, padding to 4 KiB. */
#include "formats/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>

#include "api/table/dtype.h"
#include "common/text.h"

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

/* JSON needs escapes for the quote, the backslash and control bytes; UTF-8 stays as it is. */
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

static enum cairn_code check_names(const struct cairn_safetensors_entry *entries, size_t count,
                                   struct cairn_error *err) {
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

static enum cairn_code measure(struct cairn_safetensors_entry *entries, size_t count,
                               uint64_t *ret_data_bytes, struct cairn_error *err) {
    uint64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        struct cairn_safetensors_entry *entry = &entries[i];
        uint64_t elements, end;
        if (!cairn_tensor_size(entry->dtype, entry->dimension_count, entry->shape, &elements,
                               &entry->size_bytes) ||
            cairn_add_overflows(at, entry->size_bytes, &end) || end > UINT64_MAX / 4)
            return cairn_fail(err, CAIRN_INVALID, "tensor %.*s: its size cannot be represented",
                              (int)entry->name.size, (const char *)entry->name.data);
        entry->offset_bytes = at;
        at = end;
    }
    *ret_data_bytes = at;
    return CAIRN_OK;
}

/* Offsets are relative to the data while the header is written, since its size is not known. */
static enum cairn_code write_json(const struct cairn_safetensors_entry *entries, size_t count,
                                  const json_t *texts, struct cairn_buf *ret,
                                  struct cairn_error *err) {
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
    return cairn_buf_append(ret, "}", 1, err);
}

static enum cairn_code pad(struct cairn_buf *ret, size_t start, struct cairn_error *err) {
    size_t written = ret->size - start;
    size_t padded = (size_t)cairn_round_up(written, CAIRN_SAFETENSORS_ALIGN);
    CAIRN_TRY(cairn_buf_reserve(ret, padded - written, err));
    while (ret->size - start < padded) CAIRN_TRY(cairn_buf_append(ret, " ", 1, err));
    cairn_store_u64le(ret->data + start, padded - 8);
    return CAIRN_OK;
}

enum cairn_code cairn_safetensors_write_texts(struct cairn_safetensors_entry *entries, size_t count,
                                              const json_t *texts, struct cairn_buf *ret,
                                              uint64_t *ret_file_bytes, struct cairn_error *err) {
    size_t start = ret->size;
    uint64_t data_bytes = 0;
    if (!ret->limit) ret->limit = start + CAIRN_SAFETENSORS_HEADER_BYTES_MAX;
    if (count) qsort(entries, count, sizeof *entries, entry_order);
    CAIRN_TRY(check_names(entries, count, err));
    CAIRN_TRY(cairn_buf_append_u64le(ret, 0, err));
    CAIRN_TRY(measure(entries, count, &data_bytes, err));
    CAIRN_TRY(write_json(entries, count, texts, ret, err));
    CAIRN_TRY(pad(ret, start, err));
    uint64_t header_bytes = ret->size - start;
    for (size_t i = 0; i < count; i++) entries[i].offset_bytes += header_bytes;
    *ret_file_bytes = header_bytes + data_bytes;
    return CAIRN_OK;
}

enum cairn_code cairn_safetensors_write(struct cairn_safetensors_entry *entries, size_t count,
                                        struct cairn_buf *ret, uint64_t *ret_file_bytes,
                                        struct cairn_error *err) {
    return cairn_safetensors_write_texts(entries, count, NULL, ret, ret_file_bytes, err);
}
