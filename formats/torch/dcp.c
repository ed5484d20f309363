/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the metadata as a sorted list of pieces, and makes each tensor's pieces boxes. */
#include "formats/torch/dcp.h"

#include <inttypes.h>
#include <stdlib.h>

#include "api/table/dtype.h"
#include "common/buf.h"
#include "common/text.h"
#include "formats/torch/torch.h"
#include "formats/torch/torch_write.h"

#define STORED_MAX 16777216

/* A piece in the metadata: a tensor's box that begins at `start`, or an object. */
struct stored {
    struct cairn_view name;
    bool box; /* false: an object */
    unsigned dimension_count;
    uint64_t start[CAIRN_DIMENSIONS_MAX];
    cairn_pickle_ref info; /* its place */
};
struct reader {
    const struct cairn_zero_folder *folder;
    struct cairn_assembly *assembly;
    struct cairn_torch metadata; /* only its values */
    struct stored *stored;       /* sorted */
    size_t stored_count, stored_capacity;
};
/* A part of a file, as a file. */
struct window {
    const struct cairn_input *whole;
    uint64_t offset_bytes;
};

bool cairn_dcp_is(const struct cairn_zero_folder *folder) {
    return cairn_zero_folder_has(folder, CAIRN_DCP_METADATA);
}

static const struct cairn_pickle_value *value_at(const struct reader *reader,
                                                 cairn_pickle_ref ref) {
    return cairn_pickle_at(&reader->metadata.values, ref);
}

static bool member(const struct reader *reader, cairn_pickle_ref of, const char *name,
                   cairn_pickle_ref *ret) {
    const struct cairn_pickle_value *object = value_at(reader, of);
    return object->kind == CAIRN_PICKLE_OBJECT &&
           cairn_pickle_find(&reader->metadata.values, object->state, name, ret);
}

static enum cairn_code require_member(const struct reader *reader, cairn_pickle_ref of,
                                      const char *name, cairn_pickle_ref *ret,
                                      struct cairn_error *err) {
    return member(reader, of, name, ret)
               ? CAIRN_OK
               : cairn_fail(err, CAIRN_INVALID, "a record without its %s", name);
}

static bool is_class(const struct reader *reader, cairn_pickle_ref of, const char *name) {
    const struct cairn_torch_name *known =
        cairn_torch_maker(&reader->metadata.values, value_at(reader, of));
    return known && strcmp(known->name, name) == 0;
}

static enum cairn_code need_sizes(const struct reader *reader, cairn_pickle_ref of,
                                  const char *name, uint64_t ret[CAIRN_DIMENSIONS_MAX],
                                  unsigned *ret_count, struct cairn_error *err) {
    cairn_pickle_ref ref;
    memset(ret, 0, CAIRN_DIMENSIONS_MAX * sizeof *ret);
    CAIRN_TRY(require_member(reader, of, name, &ref, err));
    return cairn_torch_sizes(&reader->metadata, ref, ret, ret_count, err);
}

static enum cairn_code need_number(const struct reader *reader, cairn_pickle_ref of,
                                   const char *name, uint64_t *ret, struct cairn_error *err) {
    cairn_pickle_ref ref;
    CAIRN_TRY(require_member(reader, of, name, &ref, err));
    const struct cairn_pickle_value *value = value_at(reader, ref);
    if (value->kind != CAIRN_PICKLE_INTEGER || value->integer < 0)
        return cairn_fail(err, CAIRN_INVALID, "%s is no size", name);
    *ret = (uint64_t)value->integer;
    return CAIRN_OK;
}

static enum cairn_code copy_name(struct cairn_view text, char ret[CAIRN_TENSOR_NAME_BYTES_MAX + 1],
                                 struct cairn_error *err) {
    size_t size = (size_t)cairn_min_u64(text.size, CAIRN_TENSOR_NAME_BYTES_MAX);
    if (!size) return cairn_fail(err, CAIRN_INVALID, "a name that is empty");
    memcpy(ret, text.data, size);
    ret[size] = '\0';
    if (memchr(text.data, 0, text.size)) {
        for (size_t i = 0; i < size; i++)
            if (!ret[i]) ret[i] = '?';
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          CAIRN_DCP_METADATA
                          ": tensor %s: its name has a NUL byte, here a question mark, which no "
                          "form can hold",
                          cairn_short(ret).text);
    }
    if (size == text.size) return CAIRN_OK;
    return cairn_fail(err, CAIRN_UNSUPPORTED,
                      CAIRN_DCP_METADATA
                      ": tensor %s: its name has %zu bytes, at most %d are taken",
                      cairn_short(ret).text, text.size, CAIRN_TENSOR_NAME_BYTES_MAX);
}

static int by_place(const void *a, const void *b) {
    const struct stored *x = a, *y = b;
    size_t size = x->name.size < y->name.size ? x->name.size : y->name.size;
    int order = size ? memcmp(x->name.data, y->name.data, size) : 0;
    if (order || x->name.size != y->name.size)
        return order ? order : x->name.size < y->name.size ? -1 : 1;
    for (unsigned d = 0; d < CAIRN_DIMENSIONS_MAX; d++)
        if (x->start[d] != y->start[d]) return x->start[d] < y->start[d] ? -1 : 1;
    return 0;
}

static enum cairn_code list_stored(struct reader *reader, struct cairn_error *err) {
    cairn_pickle_ref map, name, start;
    CAIRN_TRY(require_member(reader, reader->metadata.values.root, "storage_data", &map, err));
    const struct cairn_pickle_value *pairs = value_at(reader, map);
    if (pairs->kind != CAIRN_PICKLE_DICT)
        return cairn_fail(err, CAIRN_INVALID, "its storage_data is no map");
    for (uint32_t i = 0; i + 2 <= pairs->count; i += 2) {
        struct stored stored = {.info = pairs->items[i + 1]};
        CAIRN_TRY(require_member(reader, pairs->items[i], "fqn", &name, err));
        if (value_at(reader, name)->kind != CAIRN_PICKLE_TEXT)
            return cairn_fail(err, CAIRN_INVALID, "a name in storage_data is no text");
        stored.name = value_at(reader, name)->text;
        stored.box = member(reader, pairs->items[i], "offset", &start) &&
                     value_at(reader, start)->kind != CAIRN_PICKLE_NONE;
        if (stored.box)
            CAIRN_TRY(cairn_torch_sizes(&reader->metadata, start, stored.start,
                                        &stored.dimension_count, err));
        CAIRN_TRY(CAIRN_ARRAY_ROOM(reader->stored, reader->stored_count, reader->stored_capacity,
                                   STORED_MAX, "pieces of tensors", err));
        reader->stored[reader->stored_count++] = stored;
    }
    if (reader->stored_count)
        qsort(reader->stored, reader->stored_count, sizeof *reader->stored, by_place);
    return CAIRN_OK;
}

static enum cairn_code read_window(void *context, uint64_t offset, void *into, size_t size,
                                   struct cairn_error *err) {
    const struct window *window = context;
    return cairn_input_read(window->whole, window->offset_bytes + offset, into, size, err);
}

static enum cairn_code find_file(const struct reader *reader, struct cairn_view name,
                                 const struct cairn_input **ret, struct cairn_error *err) {
    for (size_t i = 0; i < reader->folder->count; i++) {
        const char *known = reader->folder->names[i];
        if (strlen(known) == name.size && memcmp(known, name.data, name.size) == 0)
            return reader->folder->open(reader->folder->context, known, ret, err);
    }
    return cairn_fail(err, CAIRN_NOT_FOUND, "its file %.*s is not there",
                      (int)(name.size < 200 ? name.size : 200), (const char *)name.data);
}

/* Opens the range as a torch.save file; an error names what it is instead. */
static enum cairn_code open_range(const struct reader *reader, const struct window *window,
                                  const struct cairn_input *input, struct cairn_torch *ret,
                                  struct cairn_error *err) {
    uint64_t all = window->whole->size_bytes;
    if (window->offset_bytes > all || input->size_bytes > all - window->offset_bytes) {
        CAIRN_TRY(cairn_input_lost(window->whole, err));
        return cairn_fail(err, CAIRN_INVALID,
                          "%" PRIu64 " bytes from byte %" PRIu64 " leave it: it is cut short",
                          input->size_bytes, window->offset_bytes);
    }
    struct cairn_error why = {0};
    enum cairn_code code = cairn_torch_open(input, reader->folder->strict, ret, &why);
    if (code) CAIRN_TRY(cairn_input_lost(input, err));
    return cairn_pass(err, code, &why);
}

/* Opens a piece as a torch.save file; *ret_window must live as long. */
static enum cairn_code open_stored(const struct reader *reader, const struct stored *stored,
                                   struct window *ret_window, struct cairn_input *ret_input,
                                   struct cairn_torch *ret, struct cairn_error *err) {
    cairn_pickle_ref path, transformed;
    uint64_t offset, size;
    CAIRN_TRY(require_member(reader, stored->info, "relative_path", &path, err));
    CAIRN_TRY(need_number(reader, stored->info, "offset", &offset, err));
    CAIRN_TRY(need_number(reader, stored->info, "length", &size, err));
    if (member(reader, stored->info, "transform_descriptors", &transformed) &&
        value_at(reader, transformed)->kind != CAIRN_PICKLE_NONE &&
        value_at(reader, transformed)->count)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "it was written through a transformation");
    if (value_at(reader, path)->kind != CAIRN_PICKLE_TEXT)
        return cairn_fail(err, CAIRN_INVALID, "relative_path is no text");
    CAIRN_TRY(find_file(reader, value_at(reader, path)->text, &ret_window->whole, err));
    struct cairn_view file = value_at(reader, path)->text;
    ret_window->offset_bytes = offset;
    *ret_input =
        (struct cairn_input){.size_bytes = size, .context = ret_window, .read = read_window};
    enum cairn_code code = open_range(reader, ret_window, ret_input, ret, err);
    return cairn_within(err, code, "its file %.*s", (int)file.size, (const char *)file.data);
}

/* Adds the tensor of a piece's file as a part of the last tensor, by its strides. */
static enum cairn_code add_piece(struct reader *reader, const struct cairn_torch *file,
                                 const struct cairn_torch_tensor *found,
                                 const struct window *window, uint64_t storage,
                                 const struct cairn_box *box, struct cairn_error *err) {
    struct cairn_assembly *assembly = reader->assembly;
    struct cairn_assembly_piece piece = {.size_bytes = found->size_bytes};
    struct cairn_seal seal;
    struct cairn_view name;
    uint32_t input = 0;
    unsigned flip;
    CAIRN_TRY(cairn_assembly_add_input(assembly, window->whole, &input, err));
    CAIRN_TRY(cairn_assembly_flips(found->dtype, found->conjugated, found->negated, &flip, err));
    piece.input = input;
    piece.flip = flip & 3u;
    piece.offset_bytes = window->offset_bytes + storage + found->offset_bytes;
    if (cairn_torch_seal(file, found, window->offset_bytes + storage, &seal, &name)) {
        seal.input = input;
        CAIRN_TRY(cairn_seals_add(&assembly->seals, &seal, name, err));
    }
    return cairn_assembly_add_view(assembly, &piece, found->stride, box, err);
}

static enum cairn_code add_chunk(struct reader *reader, struct cairn_view name,
                                 const struct cairn_assembly_tensor *tensor, cairn_pickle_ref chunk,
                                 struct cairn_error *err) {
    struct stored wanted = {.name = name};
    struct cairn_box box = {0};
    unsigned dimensions;
    CAIRN_TRY(need_sizes(reader, chunk, "offsets", wanted.start, &wanted.dimension_count, err));
    CAIRN_TRY(need_sizes(reader, chunk, "sizes", box.count, &dimensions, err));
    memcpy(box.start, wanted.start, sizeof box.start);
    if (wanted.dimension_count != tensor->dimension_count || dimensions != tensor->dimension_count)
        return cairn_fail(err, CAIRN_INVALID, "a piece of another number of dimensions");
    for (unsigned d = 0; d < dimensions; d++)
        if (box.count[d] == 0) return CAIRN_OK;
    if (!cairn_box_fits(&box, dimensions, tensor->shape))
        return cairn_fail(err, CAIRN_INVALID, "a piece leaves the tensor");
    const struct stored *stored = reader->stored_count
                                      ? bsearch(&wanted, reader->stored, reader->stored_count,
                                                sizeof *reader->stored, by_place)
                                      : NULL;
    if (!stored) return cairn_fail(err, CAIRN_INVALID, "no file is named for a piece of it");

    struct cairn_torch file;
    struct cairn_torch_tensor found;
    struct cairn_input input;
    struct window window;
    uint64_t storage = 0;
    CAIRN_TRY(open_stored(reader, stored, &window, &input, &file, err));
    enum cairn_code code = cairn_torch_need_ranges(&file, err);
    if (code == CAIRN_OK) code = cairn_torch_tensor(&file, file.values.root, &found, err);
    if (code == CAIRN_OK &&
        (found.dtype != tensor->dtype || found.dimension_count != tensor->dimension_count ||
         memcmp(found.shape, box.count, found.dimension_count * sizeof *box.count) != 0))
        code = cairn_fail(err, CAIRN_INVALID, "its file holds another shape or element type");
    if (code == CAIRN_OK) code = cairn_torch_storage_at(&file, &found, &storage, err);
    if (code == CAIRN_OK) code = add_piece(reader, &file, &found, &window, storage, &box, err);
    cairn_torch_release(&file);
    return code;
}

static enum cairn_code read_dtype(const struct reader *reader, cairn_pickle_ref of, unsigned *ret,
                                  struct cairn_error *err) {
    cairn_pickle_ref properties, dtype = 0;
    CAIRN_TRY(require_member(reader, of, "properties", &properties, err));
    const struct cairn_pickle_value *object = value_at(reader, properties);
    if (object->kind == CAIRN_PICKLE_OBJECT) {
        const struct cairn_pickle_value *state = value_at(reader, object->state);
        if (state->kind == CAIRN_PICKLE_TUPLE && state->count)
            dtype = state->items[0];
        else
            (void)cairn_pickle_find(&reader->metadata.values, object->state, "dtype", &dtype);
    }
    const struct cairn_torch_name *name = cairn_torch_name_of(&reader->metadata.values, dtype);
    if (!name || name->meaning != CAIRN_TORCH_DTYPE)
        return cairn_fail(err, CAIRN_INVALID, "it has no element type");
    *ret = name->dtype;
    return CAIRN_OK;
}

static enum cairn_code add_tensor(struct reader *reader, const char *name, struct cairn_view view,
                                  cairn_pickle_ref ref, struct cairn_error *err) {
    uint64_t shape[CAIRN_DIMENSIONS_MAX];
    unsigned dtype = 0, dimensions = 0; /* gcc 12's optimiser misses that both are set */
    cairn_pickle_ref chunks;
    CAIRN_TRY(read_dtype(reader, ref, &dtype, err));
    CAIRN_TRY(need_sizes(reader, ref, "size", shape, &dimensions, err));
    CAIRN_TRY(require_member(reader, ref, "chunks", &chunks, err));
    CAIRN_TRY(cairn_assembly_add_tensor(reader->assembly, name, dtype, dimensions, shape, err));
    const struct cairn_assembly_tensor tensor =
        reader->assembly->tensors[reader->assembly->tensor_count - 1];
    const struct cairn_pickle_value *list = value_at(reader, chunks);
    if (list->kind != CAIRN_PICKLE_LIST)
        return cairn_fail(err, CAIRN_INVALID, "its chunks are no list");
    for (uint32_t i = 0; i < list->count; i++)
        CAIRN_TRY(add_chunk(reader, view, &tensor, list->items[i], err));
    return CAIRN_OK;
}

static enum cairn_code note_tensor(void *context, const char *path, enum cairn_torch_kind kind,
                                   cairn_pickle_ref ref, struct cairn_error *err) {
    bool *holds = context;
    (void)path, (void)ref, (void)err;
    *holds |= kind == CAIRN_TORCH_LEAF_TENSOR;
    return CAIRN_OK;
}

static enum cairn_code look_at_object(struct reader *reader, const char *name,
                                      struct cairn_view view, struct cairn_error *err) {
    const struct stored wanted = {.name = view};
    const struct stored *stored = reader->stored_count
                                      ? bsearch(&wanted, reader->stored, reader->stored_count,
                                                sizeof *reader->stored, by_place)
                                      : NULL;
    struct cairn_torch file;
    struct cairn_input input;
    struct window window;
    struct cairn_assembly_piece piece = {0};
    bool holds = false;
    if (!stored) return cairn_fail(err, CAIRN_INVALID, "no file is named for it");
    CAIRN_TRY(open_stored(reader, stored, &window, &input, &file, err));
    if (file.values.unknown_count) {
        /* Leaves out a value that needs an unknown class; closes the file. */
        CAIRN_AUTO(buf) why = {0};
        char class[CAIRN_TORCH_CLASS_BYTES];
        cairn_torch_unknown_text(&file.values.unknown[0], class);
        cairn_torch_release(&file);
        CAIRN_TRY(
            cairn_buf_printf(&why, err, "a value that needs %s, a class that is not known", class));
        return cairn_assembly_leave_out_opaque(reader->assembly, name, class, why.data, err);
    }
    enum cairn_code code = cairn_torch_walk(&file, note_tensor, &holds, err);
    cairn_torch_release(&file);
    piece.offset_bytes = window.offset_bytes;
    piece.size_bytes = input.size_bytes;
    if (code == CAIRN_OK)
        code = cairn_assembly_add_input(reader->assembly, window.whole, &piece.input, err);
    if (code == CAIRN_OK) code = cairn_assembly_add_object(reader->assembly, name, holds, err);
    return code ? code
                : cairn_assembly_add_object_piece(reader->assembly,
                                                  reader->assembly->object_count - 1, &piece, err);
}

/* True for an object whose name no form can hold; such an object hides no tensors. */
static bool is_without_name(const struct reader *reader, struct cairn_view name,
                            cairn_pickle_ref ref) {
    return (name.size > CAIRN_TENSOR_NAME_BYTES_MAX || memchr(name.data, 0, name.size)) &&
           is_class(reader, ref, "BytesStorageMetadata");
}

static enum cairn_code leave_out_name(struct reader *reader, struct cairn_view name,
                                      struct cairn_error *err) {
    CAIRN_AUTO(buf) shown = {0};
    bool nul = memchr(name.data, 0, name.size) != NULL;
    CAIRN_TRY(cairn_buf_append(&shown, name.data, name.size, err));
    for (size_t i = 0; i < shown.size; i++)
        if (!shown.data[i]) shown.data[i] = '?';
    return cairn_assembly_leave_out(reader->assembly, shown.data,
                                    nul ? "a value whose name has a NUL byte, here a question mark"
                                        : "a value with a name of more than 1,024 bytes",
                                    err);
}

static enum cairn_code read_metadata(struct reader *reader, struct cairn_error *err) {
    const struct cairn_input *input;
    CAIRN_TRY(find_file(reader, cairn_view_of(CAIRN_DCP_METADATA), &input, err));
    if (input->size_bytes > CAIRN_PICKLE_BYTES_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "it has more than %" PRIu64 " bytes",
                          (uint64_t)CAIRN_PICKLE_BYTES_MAX);
    reader->metadata.pickled.limit = CAIRN_PICKLE_BYTES_MAX + 1;
    struct cairn_buf *bytes = &reader->metadata.pickled;
    CAIRN_TRY(cairn_buf_reserve(bytes, (size_t)input->size_bytes, err));
    CAIRN_TRY(cairn_input_read(input, 0, bytes->data, (size_t)input->size_bytes, err));
    bytes->size = (size_t)input->size_bytes;
    struct cairn_error why = {0};
    enum cairn_code code = cairn_torch_read_pickle(cairn_buf_view(bytes), reader->folder->strict,
                                                   &reader->metadata.values, &why);
    if (code) CAIRN_TRY(cairn_input_lost(input, err));
    if (code && err) *err = why;
    return code ? code : list_stored(reader, err);
}

static enum cairn_code assemble_all(struct reader *reader, struct cairn_error *err) {
    char name[CAIRN_TENSOR_NAME_BYTES_MAX + 1];
    cairn_pickle_ref map = 0;
    enum cairn_code code = read_metadata(reader, err);
    if (code == CAIRN_OK)
        code =
            require_member(reader, reader->metadata.values.root, "state_dict_metadata", &map, err);
    if (code != CAIRN_OK) return cairn_within(err, code, CAIRN_DCP_METADATA);
    const struct cairn_pickle_value *pairs = value_at(reader, map);
    for (uint32_t i = 0; i + 2 <= pairs->count; i += 2) {
        const struct cairn_pickle_value *key = value_at(reader, pairs->items[i]);
        cairn_pickle_ref ref = pairs->items[i + 1];
        if (pairs->kind != CAIRN_PICKLE_DICT || key->kind != CAIRN_PICKLE_TEXT)
            return cairn_fail(err, CAIRN_INVALID, CAIRN_DCP_METADATA ": a name is no text");
        if (is_without_name(reader, key->text, ref)) {
            CAIRN_TRY(leave_out_name(reader, key->text, err));
            continue;
        }
        CAIRN_TRY(copy_name(key->text, name, err));
        code = is_class(reader, ref, "TensorStorageMetadata")
                   ? add_tensor(reader, name, key->text, ref, err)
               : is_class(reader, ref, "BytesStorageMetadata")
                   ? look_at_object(reader, name, key->text, err)
                   : cairn_fail(err, CAIRN_INVALID, "neither a tensor nor an object");
        if (code != CAIRN_OK) return cairn_within(err, code, "%s", cairn_short(name).text);
    }
    CAIRN_TRY(cairn_assembly_check(reader->assembly, err));
    return cairn_assembly_join_same(reader->assembly, err);
}

enum cairn_code cairn_dcp_assemble(const struct cairn_zero_folder *folder,
                                   struct cairn_assembly *assembly, struct cairn_error *err) {
    struct reader reader = {.folder = folder, .assembly = assembly};
    enum cairn_code code = assemble_all(&reader, err);
    cairn_torch_release(&reader.metadata);
    free(reader.stored);
    return code;
}

/* ---- writing: an instance of Metadata and its three maps, in protocol 2 ---- */

/* Frequent values: names of modules and, without a module, texts; each is written once, then by
 * its memo number. */
#define OF_METADATA "torch.distributed.checkpoint.metadata"
/* clang-format off */
#define ALL_WORDS(WORD) \
    WORD(METADATA, OF_METADATA, "Metadata") \
    WORD(INDEX, OF_METADATA, "MetadataIndex") \
    WORD(TENSOR, OF_METADATA, "TensorStorageMetadata") \
    WORD(BYTES, OF_METADATA, "BytesStorageMetadata") \
    WORD(CHUNK, OF_METADATA, "ChunkStorageMetadata") \
    WORD(PROPERTIES, OF_METADATA, "TensorProperties") \
    WORD(MEMORY_FORMAT, OF_METADATA, "_MEM_FORMAT_ENCODING") \
    WORD(PLACE, "torch.distributed.checkpoint.filesystem", "_StorageInfo") \
    WORD(SIZE, "torch", "Size") \
    WORD(LAYOUT, "torch.serialization", "_get_layout") \
    WORD(PROPERTIES_KEY, NULL, "properties") WORD(SIZE_KEY, NULL, "size") \
    WORD(CHUNKS_KEY, NULL, "chunks") WORD(OFFSETS_KEY, NULL, "offsets") \
    WORD(SIZES_KEY, NULL, "sizes") WORD(NAME_KEY, NULL, "fqn") \
    WORD(OFFSET_KEY, NULL, "offset") WORD(NUMBER_KEY, NULL, "index") \
    WORD(PATH_KEY, NULL, "relative_path") WORD(LENGTH_KEY, NULL, "length")
/* clang-format on */
#define IDENTIFIER(id, module, name) id,
enum word { ALL_WORDS(IDENTIFIER) WORDS };
#define TEXT(id, module, name) [id] = {module, name},
static const struct {
    const char *module; /* NULL: a text */
    const char *name;
} words[WORDS] = {ALL_WORDS(TEXT)};
struct writer {
    struct cairn_buf *ret;
    bool known[WORDS];
};

static enum cairn_code put_opcodes(struct writer *writer, const char *opcodes,
                                   struct cairn_error *err) {
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
    CAIRN_TRY(put_opcodes(writer, known ? "h" : "q", err));
    return cairn_buf_append(writer->ret, &number, 1, err);
}

/* Begins an instance; its members follow, then "ub". */
static enum cairn_code begin_instance(struct writer *writer, enum word class,
                                      struct cairn_error *err) {
    CAIRN_TRY(put_word(writer, class, err));
    return put_opcodes(writer, ")\x81}(", err);
}

static enum cairn_code put_sizes(struct writer *writer, enum word key, const uint64_t *sizes,
                                 unsigned count, struct cairn_error *err) {
    CAIRN_TRY(put_word(writer, key, err));
    CAIRN_TRY(put_word(writer, SIZE, err));
    CAIRN_TRY(cairn_pickle_put_numbers(writer->ret, sizes, count, err));
    return put_opcodes(writer, "\x85R", err);
}

static enum cairn_code put_number(struct writer *writer, enum word key, uint64_t number,
                                  struct cairn_error *err) {
    CAIRN_TRY(put_word(writer, key, err));
    return cairn_pickle_put_number(writer->ret, number, err);
}

static const uint64_t origin[CAIRN_DIMENSIONS_MAX];

static enum cairn_code put_tensor(struct writer *writer, const struct cairn_dcp_item *item,
                                  struct cairn_error *err) {
    CAIRN_TRY(begin_instance(writer, TENSOR, err));
    /* (dtype, layout, requires_grad, memory format, pin_memory) */
    const struct cairn_torch_name *name = cairn_torch_write_dtype(item->dtype);
    if (!name)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "torch has no element type %s in its files",
                          cairn_dtype_text(item->dtype));
    CAIRN_TRY(put_word(writer, PROPERTIES_KEY, err));
    CAIRN_TRY(put_word(writer, PROPERTIES, err));
    CAIRN_TRY(put_opcodes(writer, ")\x81(", err));
    CAIRN_TRY(cairn_buf_printf(writer->ret, err, "c%s\n%s\n", name->module, name->name));
    CAIRN_TRY(put_word(writer, LAYOUT, err));
    CAIRN_TRY(cairn_pickle_put_text(writer->ret, CAIRN_VIEW("torch.strided"), err));
    CAIRN_TRY(put_opcodes(writer, "\x85R\x89", err));
    CAIRN_TRY(put_word(writer, MEMORY_FORMAT, err));
    CAIRN_TRY(cairn_pickle_put_number(writer->ret, 0, err)); /* contiguous */
    CAIRN_TRY(put_opcodes(writer, "\x85R\x89tb", err));
    CAIRN_TRY(put_sizes(writer, SIZE_KEY, item->shape, item->dimension_count, err));
    CAIRN_TRY(put_word(writer, CHUNKS_KEY, err));
    CAIRN_TRY(put_opcodes(writer, "]", err));
    CAIRN_TRY(begin_instance(writer, CHUNK, err));
    CAIRN_TRY(put_sizes(writer, OFFSETS_KEY, origin, item->dimension_count, err));
    CAIRN_TRY(put_sizes(writer, SIZES_KEY, item->shape, item->dimension_count, err));
    return put_opcodes(writer, "ubaub", err);
}

static enum cairn_code put_value(struct writer *writer, const struct cairn_dcp_item *item,
                                 struct cairn_error *err) {
    CAIRN_TRY(cairn_pickle_put_text(writer->ret, item->name, err));
    if (!item->object) return put_tensor(writer, item, err);
    CAIRN_TRY(put_word(writer, BYTES, err));
    return put_opcodes(writer, ")\x81", err);
}

/* ---- planner_data: a name's keys in the state dict ---- */

static enum cairn_code put_path(struct writer *writer, const struct cairn_dcp_item *item,
                                struct cairn_error *err) {
    CAIRN_TRY(cairn_pickle_put_text(writer->ret, item->name, err));
    CAIRN_TRY(cairn_pickle_put_text(writer->ret, item->name, err));
    return put_opcodes(writer, "\x85", err);
}

static enum cairn_code put_place(struct writer *writer, const struct cairn_dcp_item *item,
                                 struct cairn_error *err) {
    CAIRN_TRY(begin_instance(writer, INDEX, err));
    CAIRN_TRY(put_word(writer, NAME_KEY, err));
    CAIRN_TRY(cairn_pickle_put_text(writer->ret, item->name, err));
    if (!item->object) {
        CAIRN_TRY(put_sizes(writer, OFFSET_KEY, origin, item->dimension_count, err));
        CAIRN_TRY(put_number(writer, NUMBER_KEY, 0, err));
    }
    CAIRN_TRY(put_opcodes(writer, "ub", err));
    CAIRN_TRY(begin_instance(writer, PLACE, err));
    CAIRN_TRY(put_word(writer, PATH_KEY, err));
    CAIRN_TRY(cairn_pickle_put_text(writer->ret, cairn_view_of(item->file), err));
    CAIRN_TRY(put_number(writer, OFFSET_KEY, item->offset_bytes, err));
    CAIRN_TRY(put_number(writer, LENGTH_KEY, item->size_bytes, err));
    return put_opcodes(writer, "ub", err);
}

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
    CAIRN_TRY(put_opcodes(&writer, "\x80\x02", err));
    CAIRN_TRY(begin_instance(&writer, METADATA, err));
    for (size_t m = 0; m < CAIRN_COUNT(maps); m++) {
        CAIRN_TRY(cairn_pickle_put_text(ret, cairn_view_of(maps[m].name), err));
        CAIRN_TRY(put_opcodes(&writer, "}(", err));
        for (size_t i = 0; i < count; i++) {
            enum cairn_code code = maps[m].item(&writer, &items[i], err);
            if (code != CAIRN_OK)
                return cairn_within(err, code, "%.*s", (int)cairn_min_u64(items[i].name.size, 200),
                                    (const char *)items[i].name.data);
        }
        CAIRN_TRY(put_opcodes(&writer, "u", err));
    }
    CAIRN_TRY(cairn_pickle_put_text(ret, CAIRN_VIEW("version"), err));
    CAIRN_TRY(cairn_pickle_put_text(ret, CAIRN_VIEW("1.0.0"), err));
    return put_opcodes(&writer, "ub.", err);
}
