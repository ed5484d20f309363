/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the pickle of a dict of tensors, and the zip archive around it and its storages. */
#include "formats/torch/torch_write.h"

#include <stdio.h>
#include <stdlib.h>

#include "api/table/dtype.h"
#include "common/buf.h"
#include "common/crc.h"
#include "common/text.h"

#define ALIGN 64
#define RECORDS_MAX 1048576
#define LOCAL_BYTES 30
#define ZIP64_BYTES 20 /* header, size, stored size */
#define LARGE UINT32_MAX

/* The growing archive. */
struct archive {
    struct cairn_torch_plan *plan;
    struct cairn_buf directory;
    const char *stem;
    uint64_t base; /* its offset in the file */
    uint64_t at;   /* its size so far */
    uint64_t count;
};

void cairn_torch_plan_release(struct cairn_torch_plan *plan) {
    cairn_buf_release(&plan->head);
    free(plan->texts);
    *plan = (struct cairn_torch_plan){0};
}

/* An element type's storage class, or a byte storage with the type. */
struct type_names {
    const struct cairn_torch_name *storage, *dtype;
};

static bool find_type(unsigned dtype, struct type_names *ret) {
    const struct cairn_torch_name *name;
    *ret = (struct type_names){0};
    for (uint32_t i = 0; (name = cairn_torch_name_at(i)); i++) {
        if (name->dtype != dtype || dtype == CAIRN_DTYPE_NONE) continue;
        if (name->meaning == CAIRN_TORCH_STORAGE && !ret->storage) ret->storage = name;
        if (name->meaning == CAIRN_TORCH_DTYPE && !ret->dtype) ret->dtype = name;
    }
    return ret->dtype != NULL;
}

const struct cairn_torch_name *cairn_torch_write_dtype(unsigned dtype) {
    struct type_names type;
    return find_type(dtype, &type) ? type.dtype : NULL;
}

static enum cairn_code put_tensor(struct cairn_buf *ret,
                                  const struct cairn_safetensors_entry *entry, size_t number,
                                  struct cairn_error *err) {
    uint64_t stride[CAIRN_DIMENSIONS_MAX], total = 1;
    struct type_names type;
    if (!find_type(entry->dtype, &type))
        return cairn_fail(err, CAIRN_UNSUPPORTED, "torch has no element type %s in its files",
                          cairn_dtype_text(entry->dtype));
    for (unsigned d = entry->dimension_count; d-- > 0;) {
        stride[d] = total;
        total *= entry->shape[d] ? entry->shape[d] : 1;
    }
    CAIRN_TRY(cairn_buf_printf(ret, err, "ctorch._utils\n_rebuild_tensor_%s\n(",
                               type.storage ? "v2" : "v3"));
    static const struct cairn_torch_name bytes = {.module = "torch.storage",
                                                  .name = "UntypedStorage"};
    uint64_t width = type.storage ? cairn_dtype_bits(entry->dtype) / 8 : 1;
    CAIRN_TRY(cairn_pickle_put_storage(ret, type.storage ? type.storage : &bytes, number,
                                       entry->size_bytes / width, err));
    CAIRN_TRY(cairn_pickle_put_number(ret, 0, err));
    CAIRN_TRY(cairn_pickle_put_numbers(ret, entry->shape, entry->dimension_count, err));
    CAIRN_TRY(cairn_pickle_put_numbers(ret, stride, entry->dimension_count, err));
    CAIRN_TRY(cairn_buf_append_text(ret,
                                    "\x89"
                                    "ccollections\nOrderedDict\n)R",
                                    err));
    if (!type.storage)
        CAIRN_TRY(cairn_buf_printf(ret, err, "c%s\n%s\n", type.dtype->module, type.dtype->name));
    return cairn_buf_append(ret, "tR", 2, err);
}

static enum cairn_code put_pickle(const struct cairn_safetensors_entry *entries, size_t count,
                                  const struct cairn_torch_alias *aliases, size_t alias_count,
                                  struct cairn_buf *ret, struct cairn_error *err) {
    CAIRN_TRY(cairn_buf_append(ret, "\x80\x02}(", 4, err));
    for (size_t i = 0; i < count + alias_count; i++) {
        size_t of = i < count ? i : aliases[i - count].of;
        struct cairn_view name = i < count ? entries[i].name : aliases[i - count].name;
        CAIRN_TRY(cairn_pickle_put_text(ret, name, err));
        enum cairn_code code = put_tensor(ret, &entries[of], of, err);
        if (code != CAIRN_OK)
            return cairn_within(err, code, "tensor %.*s", (int)cairn_min_u64(name.size, 200),
                                (const char *)name.data);
    }
    return cairn_buf_append(ret, "u.", 2, err);
}

static enum cairn_code put_u16(struct cairn_buf *ret, uint16_t number, struct cairn_error *err) {
    const uint8_t bytes[2] = {(uint8_t)number, (uint8_t)(number >> 8)};
    return cairn_buf_append(ret, bytes, sizeof bytes, err);
}

static uint32_t word_of(uint64_t number) {
    return number >= LARGE ? LARGE : (uint32_t)number;
}

/* The fields common to local header and directory, from "version needed" on. */
static enum cairn_code put_common(struct cairn_buf *ret, const struct cairn_buf *name,
                                  uint64_t size, uint32_t crc, uint64_t extra_bytes,
                                  struct cairn_error *err) {
    CAIRN_TRY(put_u16(ret, 45, err));
    CAIRN_TRY(put_u16(ret, 0x0800, err)); /* names are UTF-8 */
    CAIRN_TRY(put_u16(ret, 0, err));      /* stored */
    CAIRN_TRY(put_u16(ret, 0, err));      /* midnight ... */
    CAIRN_TRY(put_u16(ret, 0x21, err));   /* ... of the earliest day */
    CAIRN_TRY(cairn_buf_append_u32le(ret, crc, err));
    CAIRN_TRY(cairn_buf_append_u32le(ret, word_of(size), err));
    CAIRN_TRY(cairn_buf_append_u32le(ret, word_of(size), err));
    CAIRN_TRY(put_u16(ret, (uint16_t)name->size, err));
    return put_u16(ret, (uint16_t)extra_bytes, err);
}

/* Records bytes appended to head since `begin` at this offset; joins them to an adjacent text. */
static enum cairn_code note_text(struct cairn_torch_plan *plan, size_t begin, uint64_t offset,
                                 struct cairn_error *err) {
    struct cairn_torch_text *last = plan->text_count ? &plan->texts[plan->text_count - 1] : NULL;
    if (last && last->offset_bytes + last->size == offset && last->begin + last->size == begin) {
        last->size = plan->head.size - last->begin;
        return CAIRN_OK;
    }
    CAIRN_TRY(CAIRN_ARRAY_ROOM(plan->texts, plan->text_count, plan->text_capacity, RECORDS_MAX,
                               "entries of an archive", err));
    plan->texts[plan->text_count++] =
        (struct cairn_torch_text){offset, begin, plan->head.size - begin};
    return CAIRN_OK;
}

/* data NULL: the bytes follow later, at *ret_offset. */
static enum cairn_code put_record(struct archive *archive, const char *name,
                                  const struct cairn_view *data, uint64_t size,
                                  uint64_t *ret_offset, struct cairn_error *err) {
    CAIRN_AUTO(buf) full = {0};
    uint64_t header = archive->at;
    size_t begin = archive->plan->head.size;
    uint32_t crc = data ? cairn_crc32(data->data, data->size) : 0;
    CAIRN_TRY(cairn_buf_printf(&full, err, "%s/%s", archive->stem, name));
    /* Writes 64-bit sizes where needed, then padding up to the data. */
    struct cairn_buf *head = &archive->plan->head;
    uint64_t large = size >= LARGE ? ZIP64_BYTES : 0;
    uint64_t bare = archive->at + LOCAL_BYTES + full.size + large + 4;
    uint64_t padding = cairn_round_up(bare, ALIGN) - bare;
    CAIRN_TRY(cairn_buf_append(head, "PK\3\4", 4, err));
    CAIRN_TRY(put_common(head, &full, size, crc, large + 4 + padding, err));
    CAIRN_TRY(cairn_buf_append(head, full.data, full.size, err));
    if (large) {
        CAIRN_TRY(put_u16(head, 1, err));
        CAIRN_TRY(put_u16(head, ZIP64_BYTES - 4, err));
        CAIRN_TRY(cairn_buf_append_u64le(head, size, err));
        CAIRN_TRY(cairn_buf_append_u64le(head, size, err));
    }
    CAIRN_TRY(cairn_buf_append(head, "FB", 2, err));
    CAIRN_TRY(put_u16(head, (uint16_t)padding, err));
    for (uint64_t i = 0; i < padding; i++) CAIRN_TRY(cairn_buf_append(head, "Z", 1, err));
    archive->at = bare + padding;
    if (data) CAIRN_TRY(cairn_buf_append(&archive->plan->head, data->data, data->size, err));
    if (ret_offset) *ret_offset = archive->base + archive->at;
    archive->at += size;
    CAIRN_TRY(note_text(archive->plan, begin, archive->base + header, err));
    struct cairn_buf *directory = &archive->directory;
    unsigned wide = (size >= LARGE ? 16u : 0) + (header >= LARGE ? 8u : 0);
    CAIRN_TRY(cairn_buf_append(directory, "PK\1\2", 4, err));
    CAIRN_TRY(put_u16(directory, 45, err));
    CAIRN_TRY(put_common(directory, &full, size, crc, wide ? wide + 4 : 0, err));
    CAIRN_TRY(cairn_buf_append(directory, "\0\0\0\0\0\0\0\0\0\0", 10, err));
    CAIRN_TRY(cairn_buf_append_u32le(directory, word_of(header), err));
    CAIRN_TRY(cairn_buf_append(directory, full.data, full.size, err));
    if (wide) {
        CAIRN_TRY(put_u16(directory, 1, err));
        CAIRN_TRY(put_u16(directory, (uint16_t)wide, err));
    }
    for (int i = 0; size >= LARGE && i < 2; i++)
        CAIRN_TRY(cairn_buf_append_u64le(directory, size, err));
    if (header >= LARGE) CAIRN_TRY(cairn_buf_append_u64le(directory, header, err));
    archive->count++;
    return CAIRN_OK;
}

static enum cairn_code put_small(struct archive *archive, const char *name, struct cairn_view data,
                                 struct cairn_error *err) {
    return put_record(archive, name, &data, data.size, NULL, err);
}

static enum cairn_code put_end(struct archive *archive, struct cairn_error *err) {
    struct cairn_buf *head = &archive->plan->head;
    size_t begin = head->size;
    uint64_t directory = archive->at, size = archive->directory.size, end = directory + size;
    uint16_t count = archive->count >= UINT16_MAX ? UINT16_MAX : (uint16_t)archive->count;
    CAIRN_TRY(cairn_buf_append(head, archive->directory.data, archive->directory.size, err));
    CAIRN_TRY(cairn_buf_append(head, "PK\6\6\x2c\0\0\0\0\0\0\0", 12, err));
    CAIRN_TRY(cairn_buf_append(head, "\x2d\0\x2d\0\0\0\0\0\0\0\0\0", 12, err));
    for (int i = 0; i < 2; i++) CAIRN_TRY(cairn_buf_append_u64le(head, archive->count, err));
    CAIRN_TRY(cairn_buf_append_u64le(head, size, err));
    CAIRN_TRY(cairn_buf_append_u64le(head, directory, err));
    CAIRN_TRY(cairn_buf_append(head, "PK\6\7\0\0\0\0", 8, err));
    CAIRN_TRY(cairn_buf_append_u64le(head, end, err));
    CAIRN_TRY(cairn_buf_append_u32le(head, 1, err));
    CAIRN_TRY(cairn_buf_append(head, "PK\5\6\0\0\0\0", 8, err));
    for (int i = 0; i < 2; i++) CAIRN_TRY(put_u16(head, count, err));
    CAIRN_TRY(cairn_buf_append_u32le(head, word_of(size), err));
    CAIRN_TRY(cairn_buf_append_u32le(head, word_of(directory), err));
    CAIRN_TRY(put_u16(head, 0, err));
    archive->plan->file_bytes = archive->base + archive->at + (head->size - begin);
    return note_text(archive->plan, begin, archive->base + directory, err);
}

static enum cairn_code put_all(struct archive *archive, struct cairn_safetensors_entry *entries,
                               size_t count, struct cairn_view pickle, struct cairn_error *err) {
    CAIRN_TRY(put_small(archive, "data.pkl", pickle, err));
    CAIRN_TRY(put_small(archive, ".format_version", CAIRN_VIEW("1"), err));
    CAIRN_TRY(put_small(archive, ".storage_alignment", CAIRN_VIEW("64"), err));
    CAIRN_TRY(put_small(archive, "byteorder", CAIRN_VIEW("little"), err));
    for (size_t i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "data/%zu", i);
        CAIRN_TRY(
            put_record(archive, name, NULL, entries[i].size_bytes, &entries[i].offset_bytes, err));
    }
    CAIRN_TRY(put_small(archive, "version", CAIRN_VIEW("3\n"), err));
    return put_end(archive, err);
}

static enum cairn_code set_size(struct cairn_safetensors_entry *entry, struct cairn_error *err) {
    uint64_t elements;
    return cairn_tensor_size(entry->dtype, entry->dimension_count, entry->shape, &elements,
                             &entry->size_bytes)
               ? CAIRN_OK
               : cairn_fail(err, CAIRN_INVALID, "a tensor's size cannot be represented");
}

enum cairn_code cairn_torch_write(struct cairn_safetensors_entry *entries, size_t count,
                                  const struct cairn_torch_alias *aliases, size_t alias_count,
                                  const char *stem, struct cairn_torch_plan *ret,
                                  struct cairn_error *err) {
    CAIRN_AUTO(buf) pickle = {.limit = CAIRN_PICKLE_BYTES_MAX};
    struct archive archive = {.plan = ret, .stem = stem, .directory.limit = CAIRN_GIB};
    ret->head.limit = CAIRN_GIB;
    for (size_t i = 0; i < count; i++) CAIRN_TRY(set_size(&entries[i], err));
    CAIRN_TRY(put_pickle(entries, count, aliases, alias_count, &pickle, err));
    enum cairn_code code = put_all(&archive, entries, count, cairn_buf_view(&pickle), err);
    cairn_buf_release(&archive.directory);
    return code;
}

/* Appends zeros up to the next archive. */
static enum cairn_code put_padding(struct cairn_torch_plan *plan, struct cairn_error *err) {
    uint64_t end = plan->file_bytes, padding = cairn_round_up(end, ALIGN) - end;
    size_t begin = plan->head.size;
    plan->head.limit = CAIRN_GIB;
    if (!padding) return CAIRN_OK;
    for (uint64_t i = 0; i < padding; i++) CAIRN_TRY(cairn_buf_append(&plan->head, "", 1, err));
    plan->file_bytes += padding;
    return note_text(plan, begin, end, err);
}

enum cairn_code cairn_torch_write_tensor(struct cairn_safetensors_entry *entry,
                                         struct cairn_torch_plan *plan, uint64_t *ret_offset,
                                         struct cairn_error *err) {
    CAIRN_AUTO(buf) pickle = {0};
    CAIRN_TRY(put_padding(plan, err));
    struct archive archive = {.plan = plan, .stem = "archive", .base = plan->file_bytes};
    CAIRN_TRY(set_size(entry, err));
    CAIRN_TRY(cairn_buf_append(&pickle, "\x80\x02", 2, err));
    CAIRN_TRY(put_tensor(&pickle, entry, 0, err));
    CAIRN_TRY(cairn_buf_append(&pickle, ".", 1, err));
    enum cairn_code code = put_all(&archive, entry, 1, cairn_buf_view(&pickle), err);
    cairn_buf_release(&archive.directory);
    *ret_offset = archive.base;
    return code;
}

enum cairn_code cairn_torch_write_value(struct cairn_view pickle,
                                        struct cairn_safetensors_entry *storages, size_t count,
                                        struct cairn_torch_plan *plan, uint64_t *ret_offset,
                                        struct cairn_error *err) {
    CAIRN_TRY(put_padding(plan, err));
    struct archive archive = {
        .plan = plan, .stem = "archive", .directory.limit = CAIRN_GIB, .base = plan->file_bytes};
    enum cairn_code code = put_all(&archive, storages, count, pickle, err);
    cairn_buf_release(&archive.directory);
    *ret_offset = archive.base;
    return code;
}

enum cairn_code cairn_torch_write_room(uint64_t size_bytes, struct cairn_torch_plan *plan,
                                       uint64_t *ret_offset, struct cairn_error *err) {
    CAIRN_TRY(put_padding(plan, err));
    *ret_offset = plan->file_bytes;
    plan->file_bytes += size_bytes;
    return CAIRN_OK;
}

#define DEPTH_MAX 64

enum cairn_code cairn_pickle_put_text(struct cairn_buf *ret, struct cairn_view text,
                                      struct cairn_error *err) {
    CAIRN_TRY(cairn_buf_append(ret, "X", 1, err));
    CAIRN_TRY(cairn_buf_append_u32le(ret, (uint32_t)text.size, err));
    return cairn_buf_append(ret, text.data, text.size, err);
}

enum cairn_code cairn_pickle_put_number(struct cairn_buf *ret, uint64_t number,
                                        struct cairn_error *err) {
    if (number <= INT32_MAX) {
        CAIRN_TRY(cairn_buf_append(ret, "J", 1, err));
        return cairn_buf_append_u32le(ret, (uint32_t)number, err);
    }
    CAIRN_TRY(cairn_buf_append(ret, "\x8a\x09", 2, err)); /* nine bytes: never negative */
    CAIRN_TRY(cairn_buf_append_u64le(ret, number, err));
    return cairn_buf_append(ret, "", 1, err);
}

enum cairn_code cairn_pickle_put_numbers(struct cairn_buf *ret, const uint64_t *numbers,
                                         unsigned count, struct cairn_error *err) {
    CAIRN_TRY(cairn_buf_append(ret, "(", 1, err));
    for (unsigned i = 0; i < count; i++) CAIRN_TRY(cairn_pickle_put_number(ret, numbers[i], err));
    return cairn_buf_append(ret, "t", 1, err);
}

enum cairn_code cairn_pickle_put_storage(struct cairn_buf *ret, const struct cairn_torch_name *type,
                                         size_t key, uint64_t elements, struct cairn_error *err) {
    char text[24];
    snprintf(text, sizeof text, "%zu", key);
    CAIRN_TRY(cairn_buf_append(ret, "(", 1, err));
    CAIRN_TRY(cairn_pickle_put_text(ret, CAIRN_VIEW("storage"), err));
    CAIRN_TRY(cairn_buf_printf(ret, err, "c%s\n%s\n", type->module, type->name));
    CAIRN_TRY(cairn_pickle_put_text(ret, cairn_view_of(text), err));
    CAIRN_TRY(cairn_pickle_put_text(ret, CAIRN_VIEW("cpu"), err));
    CAIRN_TRY(cairn_pickle_put_number(ret, elements, err));
    return cairn_buf_append(ret, "tQ", 2, err);
}

struct writer {
    struct cairn_buf *ret;
    const struct cairn_pickle_writing *how;
    const struct cairn_pickle *from; /* how->from */
    unsigned depth;
};

static enum cairn_code put_value(struct writer *writer, cairn_pickle_ref ref,
                                 struct cairn_error *err);

static enum cairn_code put_op(struct writer *writer, const char *op, struct cairn_error *err) {
    return cairn_buf_append_text(writer->ret, op, err);
}

static enum cairn_code put_integer(struct writer *writer, int64_t number, struct cairn_error *err) {
    if (number >= INT32_MIN && number <= INT32_MAX) {
        CAIRN_TRY(put_op(writer, "J", err));
        return cairn_buf_append_u32le(writer->ret, (uint32_t)number, err);
    }
    CAIRN_TRY(put_op(writer, "\x8a\x08", err));
    return cairn_buf_append_u64le(writer->ret, (uint64_t)number, err);
}

/* Two's complement, lowest byte first. */
static enum cairn_code put_long(struct writer *writer, struct cairn_view bytes,
                                struct cairn_error *err) {
    CAIRN_TRY(put_op(writer, "\x8b", err));
    CAIRN_TRY(cairn_buf_append_u32le(writer->ret, (uint32_t)bytes.size, err));
    return cairn_buf_append(writer->ret, bytes.data, bytes.size, err);
}

static enum cairn_code put_real(struct writer *writer, double number, struct cairn_error *err) {
    uint64_t bits;
    char text[9] = "G";
    memcpy(&bits, &number, sizeof bits);
    for (unsigned i = 0; i < 8; i++) text[1 + i] = (char)(bits >> (56 - 8 * i));
    return cairn_buf_append(writer->ret, text, sizeof text, err);
}

/* Python's form in pickles without bytes: a text of as many characters. */
static enum cairn_code put_bytes(struct writer *writer, struct cairn_view bytes,
                                 struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = writer->ret->limit};
    const uint8_t *at = bytes.data;
    for (size_t i = 0; i < bytes.size; i++) {
        const char two[2] = {(char)(0xc0 | at[i] >> 6), (char)(0x80 | (at[i] & 0x3f))};
        if (at[i] < 0x80)
            CAIRN_TRY(cairn_buf_append(&text, &at[i], 1, err));
        else
            CAIRN_TRY(cairn_buf_append(&text, two, 2, err));
    }
    CAIRN_TRY(put_op(writer, "c_codecs\nencode\n(", err));
    CAIRN_TRY(cairn_pickle_put_text(writer->ret, cairn_buf_view(&text), err));
    CAIRN_TRY(cairn_pickle_put_text(writer->ret, CAIRN_VIEW("latin1"), err));
    return put_op(writer, "tR", err);
}

static enum cairn_code put_items(struct writer *writer, const struct cairn_pickle_value *value,
                                 const char *before, const char *after, struct cairn_error *err) {
    CAIRN_TRY(put_op(writer, before, err));
    for (uint32_t i = 0; i < value->count; i++) CAIRN_TRY(put_value(writer, value->items[i], err));
    return put_op(writer, after, err);
}

static enum cairn_code refuse_unknown(const struct writer *writer,
                                      const struct cairn_pickle_value *name,
                                      struct cairn_error *err) {
    const struct cairn_pickle_unknown *unknown = cairn_pickle_unknown_at(writer->from, name);
    if (!unknown)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "its constructor is no class or function");
    return cairn_fail(
        err, CAIRN_UNSUPPORTED, "it needs %.*s.%.*s", (int)cairn_min_u64(unknown->module.size, 100),
        (const char *)unknown->module.data, (int)cairn_min_u64(unknown->name.size, 100),
        (const char *)unknown->name.data);
}

static enum cairn_code put_object(struct writer *writer, const struct cairn_pickle_value *object,
                                  struct cairn_error *err) {
    const struct cairn_pickle_value *callable = cairn_pickle_at(writer->from, object->callable);
    if (callable->kind != CAIRN_PICKLE_GLOBAL || cairn_pickle_unknown_at(writer->from, callable))
        return refuse_unknown(writer, callable, err);
    const struct cairn_pickle_global global = writer->how->global_of(callable->global);
    if (object->count && !global.pairs)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "items are put into a %s", global.name);
    CAIRN_TRY(put_value(writer, object->callable, err));
    CAIRN_TRY(put_value(writer, object->arguments, err));
    CAIRN_TRY(put_op(writer, global.bare ? "\x81" : "R", err));
    if (object->count) CAIRN_TRY(put_items(writer, object, "(", "u", err));
    if (cairn_pickle_at(writer->from, object->state)->kind == CAIRN_PICKLE_NONE) return CAIRN_OK;
    CAIRN_TRY(put_value(writer, object->state, err));
    return put_op(writer, "b", err);
}

static enum cairn_code put_kind(struct writer *writer, const struct cairn_pickle_value *value,
                                struct cairn_error *err) {
    struct cairn_pickle_global global;
    switch (value->kind) {
    case CAIRN_PICKLE_NONE:
        return put_op(writer, "N", err);
    case CAIRN_PICKLE_BOOL:
        return put_op(writer, value->truth ? "\x88" : "\x89", err);
    case CAIRN_PICKLE_INTEGER:
        return put_integer(writer, value->integer, err);
    case CAIRN_PICKLE_LONG:
        return put_long(writer, value->text, err);
    case CAIRN_PICKLE_REAL:
        return put_real(writer, value->real, err);
    case CAIRN_PICKLE_TEXT:
        return cairn_pickle_put_text(writer->ret, value->text, err);
    case CAIRN_PICKLE_BYTES:
        return put_bytes(writer, value->text, err);
    case CAIRN_PICKLE_TUPLE:
        return put_items(writer, value, "(", "t", err);
    case CAIRN_PICKLE_LIST:
        return put_items(writer, value, "](", "e", err);
    case CAIRN_PICKLE_SET:
        return put_items(writer, value,
                         value->state ? "c__builtin__\nfrozenset\n](" : "c__builtin__\nset\n](",
                         "e\x85R", err);
    case CAIRN_PICKLE_DICT:
        return put_items(writer, value, "}(", "u", err);
    case CAIRN_PICKLE_GLOBAL:
        if (cairn_pickle_unknown_at(writer->from, value)) return refuse_unknown(writer, value, err);
        global = writer->how->global_of(value->global);
        if (global.refused)
            return cairn_fail(err, CAIRN_UNSUPPORTED, "it needs %s.%s", global.module, global.name);
        return cairn_buf_printf(writer->ret, err, "c%s\n%s\n", global.module, global.name);
    case CAIRN_PICKLE_OBJECT:
        return put_object(writer, value, err);
    case CAIRN_PICKLE_PERSISTENT:
        if (writer->how->put_outside)
            return writer->how->put_outside(writer->how->context, writer->ret,
                                            (cairn_pickle_ref)(value - writer->from->values), err);
        break;
    }
    return cairn_fail(err, CAIRN_UNSUPPORTED, "it holds a storage");
}

static enum cairn_code put_value(struct writer *writer, cairn_pickle_ref ref,
                                 struct cairn_error *err) {
    if (writer->depth == DEPTH_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "more than %d levels deep, or it holds itself",
                          DEPTH_MAX);
    writer->depth++;
    CAIRN_TRY(put_kind(writer, cairn_pickle_at(writer->from, ref), err));
    writer->depth--;
    return CAIRN_OK;
}

enum cairn_code cairn_pickle_put_value(struct cairn_buf *ret,
                                       const struct cairn_pickle_writing *how,
                                       cairn_pickle_ref value, struct cairn_error *err) {
    struct writer writer = {.ret = ret, .how = how, .from = how->from};
    return put_value(&writer, value, err);
}
