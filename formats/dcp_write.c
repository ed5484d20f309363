/* SPDX-License-Identifier: Apache-2.0 */
/* One pickle of protocol 2: an instance of Metadata and its three maps. */
#include "formats/dcp_write.h"

#include "api/table/dtype.h"
#include "formats/pickle.h"
#include "formats/pickle_write.h"
#include "formats/torch_write.h"

/* What occurs in many records; put once, and by its number in the memo after that. */
enum word {
    METADATA,
    INDEX,
    TENSOR,
    BYTES,
    CHUNK,
    PROPERTIES,
    MEMORY_FORMAT,
    PLACE,
    SIZE,
    LAYOUT,
    PROPERTIES_KEY,
    SIZE_KEY,
    CHUNKS_KEY,
    OFFSETS_KEY,
    SIZES_KEY,
    NAME_KEY,
    OFFSET_KEY,
    NUMBER_KEY,
    PATH_KEY,
    LENGTH_KEY,
    WORDS,
};
#define OF_METADATA "torch.distributed.checkpoint.metadata"
static const struct {
    const char *module; /* NULL: a text */
    const char *name;
} words[WORDS] = {
    [METADATA] = {OF_METADATA, "Metadata"},
    [INDEX] = {OF_METADATA, "MetadataIndex"},
    [TENSOR] = {OF_METADATA, "TensorStorageMetadata"},
    [BYTES] = {OF_METADATA, "BytesStorageMetadata"},
    [CHUNK] = {OF_METADATA, "ChunkStorageMetadata"},
    [PROPERTIES] = {OF_METADATA, "TensorProperties"},
    [MEMORY_FORMAT] = {OF_METADATA, "_MEM_FORMAT_ENCODING"},
    [PLACE] = {"torch.distributed.checkpoint.filesystem", "_StorageInfo"},
    [SIZE] = {"torch", "Size"},
    [LAYOUT] = {"torch.serialization", "_get_layout"},
    [PROPERTIES_KEY] = {NULL, "properties"},
    [SIZE_KEY] = {NULL, "size"},
    [CHUNKS_KEY] = {NULL, "chunks"},
    [OFFSETS_KEY] = {NULL, "offsets"},
    [SIZES_KEY] = {NULL, "sizes"},
    [NAME_KEY] = {NULL, "fqn"},
    [OFFSET_KEY] = {NULL, "offset"},
    [NUMBER_KEY] = {NULL, "index"},
    [PATH_KEY] = {NULL, "relative_path"},
    [LENGTH_KEY] = {NULL, "length"},
};
struct writer {
    struct cairn_buf *ret;
    bool known[WORDS];
};

static enum cairn_code put(struct writer *writer, const char *opcodes, struct cairn_error *err) {
    return cairn_buf_append_text(writer->ret, opcodes, err);
}

static enum cairn_code put_word(struct writer *writer, enum word word, struct cairn_error *err) {
    const uint8_t number = (uint8_t)word;
    bool known = writer->known[word];
    writer->known[word] = true;
    if (!known && words[word].module)
        CAIRN_TRY(
            cairn_buf_printf(writer->ret, err, "c%s\n%s\n", words[word].module, words[word].name));
    else if (!known)
        CAIRN_TRY(cairn_pickle_put_text(writer->ret, cairn_view_of(words[word].name), err));
    CAIRN_TRY(put(writer, known ? "h" : "q", err));
    return cairn_buf_append(writer->ret, &number, 1, err);
}

/* An instance whose members follow, then "ub". */
static enum cairn_code begin_instance(struct writer *writer, enum word class,
                                      struct cairn_error *err) {
    CAIRN_TRY(put_word(writer, class, err));
    return put(writer, ")\x81}(", err);
}

static enum cairn_code put_sizes(struct writer *writer, enum word key, const uint64_t *sizes,
                                 unsigned count, struct cairn_error *err) {
    CAIRN_TRY(put_word(writer, key, err));
    CAIRN_TRY(put_word(writer, SIZE, err));
    CAIRN_TRY(cairn_pickle_put_numbers(writer->ret, sizes, count, err));
    return put(writer, "\x85R", err);
}

static enum cairn_code put_number(struct writer *writer, enum word key, uint64_t number,
                                  struct cairn_error *err) {
    CAIRN_TRY(put_word(writer, key, err));
    return cairn_pickle_put_number(writer->ret, number, err);
}

static const uint64_t origin[CAIRN_DIMENSIONS_MAX];

/* ---- state_dict_metadata ---- */

/* (dtype, layout, requires_grad, memory format, pin_memory) */
static enum cairn_code put_properties(struct writer *writer, unsigned dtype,
                                      struct cairn_error *err) {
    const struct cairn_torch_name *name = cairn_torch_write_dtype(dtype);
    if (!name)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "torch has no element type %s in its files",
                          cairn_dtype_text(dtype));
    CAIRN_TRY(put_word(writer, PROPERTIES_KEY, err));
    CAIRN_TRY(put_word(writer, PROPERTIES, err));
    CAIRN_TRY(put(writer, ")\x81(", err));
    CAIRN_TRY(cairn_buf_printf(writer->ret, err, "c%s\n%s\n", name->module, name->name));
    CAIRN_TRY(put_word(writer, LAYOUT, err));
    CAIRN_TRY(cairn_pickle_put_text(writer->ret, CAIRN_VIEW("torch.strided"), err));
    CAIRN_TRY(put(writer, "\x85R\x89", err));
    CAIRN_TRY(put_word(writer, MEMORY_FORMAT, err));
    CAIRN_TRY(cairn_pickle_put_number(writer->ret, 0, err)); /* contiguous */
    return put(writer, "\x85R\x89tb", err);
}

static enum cairn_code put_tensor(struct writer *writer, const struct cairn_dcp_item *item,
                                  struct cairn_error *err) {
    CAIRN_TRY(begin_instance(writer, TENSOR, err));
    CAIRN_TRY(put_properties(writer, item->dtype, err));
    CAIRN_TRY(put_sizes(writer, SIZE_KEY, item->shape, item->dimension_count, err));
    CAIRN_TRY(put_word(writer, CHUNKS_KEY, err));
    CAIRN_TRY(put(writer, "]", err));
    CAIRN_TRY(begin_instance(writer, CHUNK, err));
    CAIRN_TRY(put_sizes(writer, OFFSETS_KEY, origin, item->dimension_count, err));
    CAIRN_TRY(put_sizes(writer, SIZES_KEY, item->shape, item->dimension_count, err));
    return put(writer, "ubaub", err);
}

static enum cairn_code put_value(struct writer *writer, const struct cairn_dcp_item *item,
                                 struct cairn_error *err) {
    CAIRN_TRY(cairn_pickle_put_text(writer->ret, item->name, err));
    if (!item->object) return put_tensor(writer, item, err);
    CAIRN_TRY(put_word(writer, BYTES, err));
    return put(writer, ")\x81", err);
}

/* ---- planner_data: by which keys a name is found in the state dict ---- */

static enum cairn_code put_path(struct writer *writer, const struct cairn_dcp_item *item,
                                struct cairn_error *err) {
    CAIRN_TRY(cairn_pickle_put_text(writer->ret, item->name, err));
    CAIRN_TRY(cairn_pickle_put_text(writer->ret, item->name, err));
    return put(writer, "\x85", err);
}

/* ---- storage_data ---- */

static enum cairn_code put_place(struct writer *writer, const struct cairn_dcp_item *item,
                                 struct cairn_error *err) {
    CAIRN_TRY(begin_instance(writer, INDEX, err));
    CAIRN_TRY(put_word(writer, NAME_KEY, err));
    CAIRN_TRY(cairn_pickle_put_text(writer->ret, item->name, err));
    if (!item->object) {
        CAIRN_TRY(put_sizes(writer, OFFSET_KEY, origin, item->dimension_count, err));
        CAIRN_TRY(put_number(writer, NUMBER_KEY, 0, err));
    }
    CAIRN_TRY(put(writer, "ub", err));
    CAIRN_TRY(begin_instance(writer, PLACE, err));
    CAIRN_TRY(put_word(writer, PATH_KEY, err));
    CAIRN_TRY(cairn_pickle_put_text(writer->ret, cairn_view_of(item->file), err));
    CAIRN_TRY(put_number(writer, OFFSET_KEY, item->offset_bytes, err));
    CAIRN_TRY(put_number(writer, LENGTH_KEY, item->size_bytes, err));
    return put(writer, "ub", err);
}

/* ---- all ---- */

static const struct {
    const char *name;
    enum cairn_code (*item)(struct writer *writer, const struct cairn_dcp_item *item,
                            struct cairn_error *err);
} maps[] = {
    {"state_dict_metadata", put_value}, {"planner_data", put_path}, {"storage_data", put_place}};

enum cairn_code cairn_dcp_write(const struct cairn_dcp_item *items, size_t count,
                                struct cairn_buf *ret, struct cairn_error *err) {
    struct writer writer = {.ret = ret};
    ret->limit = CAIRN_PICKLE_BYTES_MAX;
    CAIRN_TRY(put(&writer, "\x80\x02", err));
    CAIRN_TRY(begin_instance(&writer, METADATA, err));
    for (size_t m = 0; m < CAIRN_COUNT(maps); m++) {
        CAIRN_TRY(cairn_pickle_put_text(ret, cairn_view_of(maps[m].name), err));
        CAIRN_TRY(put(&writer, "}(", err));
        for (size_t i = 0; i < count; i++) {
            enum cairn_code code = maps[m].item(&writer, &items[i], err);
            if (code != CAIRN_OK)
                return cairn_within(err, code, "%.*s", (int)cairn_min_u64(items[i].name.size, 200),
                                    (const char *)items[i].name.data);
        }
        CAIRN_TRY(put(&writer, "u", err));
    }
    CAIRN_TRY(cairn_pickle_put_text(ret, CAIRN_VIEW("version"), err));
    CAIRN_TRY(cairn_pickle_put_text(ret, CAIRN_VIEW("1.0.0"), err));
    return put(&writer, "ub.", err);
}
