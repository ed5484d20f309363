/* SPDX-License-Identifier: Apache-2.0 */
/* Builds an assembly piece by piece, and proves that its pieces make its tensors. */
#include "formats/assembly/assembly.h"

#include <inttypes.h>
#include <stdlib.h>

#include "api/table/dtype.h"
#include "common/buf.h"
#include "common/strided.h"
#include "common/text.h"

#define INPUTS_MAX 1048576
#define TENSORS_MAX 1048576
#define PIECES_MAX 16777216
#define BOXES_OF_A_TENSOR_MAX 65536
#define SCRATCH_BYTES (128 * 1024)
#define APART_BYTES CAIRN_MIB    /* bound of a span of strided elements */
#define SPAN_BYTES 4096          /* shorter spans are read whole */
#define REST_BYTES_MAX CAIRN_MIB /* of a range, read only for its checksum */
#define READ_BYTES (512 * 1024)  /* per read: still in the cache for the checksum */
#define RUNS_MAX 1048576

struct cairn_assembly_memory {
    struct cairn_assembly_memory *next;
    struct cairn_buf bytes;
    struct cairn_view view;
    struct cairn_input input;
};

void cairn_assembly_release(struct cairn_assembly *assembly) {
    for (size_t i = 0; i < assembly->tensor_count; i++) free(assembly->tensors[i].name);
    for (size_t i = 0; i < assembly->left_out_count; i++) {
        free(assembly->left_out[i].name);
        free(assembly->left_out[i].why);
        free(assembly->left_out[i].class);
    }
    for (size_t i = 0; i < assembly->object_count; i++) free(assembly->objects[i].name);
    cairn_names_release(&assembly->names);
    struct cairn_assembly_memory *memory = assembly->memory;
    while (memory) {
        struct cairn_assembly_memory *next = memory->next;
        cairn_buf_release(&memory->bytes);
        free(memory);
        memory = next;
    }
    json_decref(assembly->texts);
    free(assembly->objects);
    free(assembly->object_pieces);
    free(assembly->inputs);
    free(assembly->tensors);
    free(assembly->pieces);
    free(assembly->boxes);
    free(assembly->layouts);
    cairn_seals_release(&assembly->seals);
    free(assembly->left_out);
    *assembly = (struct cairn_assembly){0};
}

enum cairn_code cairn_assembly_add_input(struct cairn_assembly *assembly,
                                         const struct cairn_input *input, uint32_t *ret,
                                         struct cairn_error *err) {
    for (size_t i = assembly->input_count; i-- > 0;) {
        if (assembly->inputs[i] != input) continue;
        *ret = (uint32_t)i;
        return CAIRN_OK;
    }
    CAIRN_TRY(CAIRN_ARRAY_ROOM(assembly->inputs, assembly->input_count, assembly->input_capacity,
                               INPUTS_MAX, "files of a checkpoint", err));
    *ret = (uint32_t)assembly->input_count;
    assembly->inputs[assembly->input_count++] = input;
    return CAIRN_OK;
}

enum cairn_code cairn_assembly_add_memory(struct cairn_assembly *assembly, struct cairn_buf *bytes,
                                          uint32_t *ret, struct cairn_error *err) {
    struct cairn_assembly_memory *memory = calloc(1, sizeof *memory);
    if (!memory) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an input");
    memory->bytes = *bytes;
    memory->view = cairn_buf_view(bytes);
    memory->input = cairn_input_of_view(&memory->view);
    memory->next = assembly->memory;
    assembly->memory = memory;
    *bytes = (struct cairn_buf){0};
    return cairn_assembly_add_input(assembly, &memory->input, ret, err);
}

static enum cairn_code copy_text(const char *text, char **ret, struct cairn_error *err) {
    *ret = strdup(text);
    return *ret ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a name");
}

static enum cairn_code add_named(struct cairn_assembly *assembly, const char *name,
                                 struct cairn_assembly_tensor tensor, struct cairn_error *err) {
    if (strlen(name) > CAIRN_TENSOR_NAME_BYTES_MAX)
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "tensor %s: its name has %zu bytes, at most %d are taken",
                          cairn_short(name).text, strlen(name), CAIRN_TENSOR_NAME_BYTES_MAX);
    CAIRN_TRY(CAIRN_ARRAY_ROOM(assembly->tensors, assembly->tensor_count, assembly->tensor_capacity,
                               TENSORS_MAX, "tensors", err));
    CAIRN_TRY(copy_text(name, &tensor.name, err));
    uint32_t number = (uint32_t)assembly->tensor_count;
    enum cairn_code code =
        cairn_names_add(&assembly->names, cairn_view_of(tensor.name), &number, err);
    if (code == CAIRN_OK && number < assembly->tensor_count)
        code = cairn_fail(err, CAIRN_INVALID, "tensor %s is there twice", cairn_short(name).text);
    if (code != CAIRN_OK) {
        free(tensor.name);
        return code;
    }
    CAIRN_ASSERT(number == assembly->tensor_count); /* assembly.h#5 */
    tensor.piece_first = assembly->piece_count;
    assembly->tensors[assembly->tensor_count++] = tensor;
    return CAIRN_OK;
}

enum cairn_code cairn_assembly_add_tensor(struct cairn_assembly *assembly, const char *name,
                                          unsigned dtype, unsigned dimension_count,
                                          const uint64_t *shape, struct cairn_error *err) {
    struct cairn_assembly_tensor tensor = {
        .dtype = dtype, .dimension_count = dimension_count, .alias_of = CAIRN_ASSEMBLY_NO_ALIAS};
    uint64_t elements;
    memcpy(tensor.shape, shape, dimension_count * sizeof *shape);
    if (!cairn_tensor_size(dtype, dimension_count, shape, &elements, &tensor.size_bytes))
        return cairn_fail(err, CAIRN_INVALID, "tensor %s: its size cannot be represented",
                          cairn_short(name).text);
    return add_named(assembly, name, tensor, err);
}

enum cairn_code cairn_assembly_add_alias(struct cairn_assembly *assembly, const char *name,
                                         size_t of, struct cairn_error *err) {
    CAIRN_ASSERT(of < assembly->tensor_count);
    struct cairn_assembly_tensor tensor = assembly->tensors[of];
    tensor.piece_count = 0;
    tensor.boxed = false;
    tensor.alias_of = tensor.alias_of == CAIRN_ASSEMBLY_NO_ALIAS ? of : tensor.alias_of;
    return add_named(assembly, name, tensor, err);
}

static bool pieces_join(const struct cairn_assembly_piece *last,
                        const struct cairn_assembly_piece *next) {
    return last->input == next->input && last->flip == next->flip &&
           last->offset_bytes + last->size_bytes == next->offset_bytes;
}

/* With the signs to flip. */
static enum cairn_code add_run(struct cairn_assembly *assembly,
                               const struct cairn_assembly_piece *piece, struct cairn_error *err) {
    CAIRN_ASSERT(assembly->tensor_count && piece->input < assembly->input_count);
    struct cairn_assembly_tensor *tensor = &assembly->tensors[assembly->tensor_count - 1];
    struct cairn_assembly_piece *last =
        tensor->piece_count ? &assembly->pieces[assembly->piece_count - 1] : NULL;
    if (piece->size_bytes == 0) return CAIRN_OK;
    if (last && pieces_join(last, piece)) {
        last->size_bytes += piece->size_bytes;
        return CAIRN_OK;
    }
    CAIRN_TRY(CAIRN_ARRAY_ROOM(assembly->pieces, assembly->piece_count, assembly->piece_capacity,
                               PIECES_MAX, "pieces of tensors", err));
    assembly->pieces[assembly->piece_count++] = *piece;
    tensor->piece_count++;
    return CAIRN_OK;
}

enum cairn_code cairn_assembly_add_piece(struct cairn_assembly *assembly, uint32_t input,
                                         uint64_t offset_bytes, uint64_t size_bytes,
                                         struct cairn_error *err) {
    const struct cairn_assembly_piece piece = {
        .input = input, .offset_bytes = offset_bytes, .size_bytes = size_bytes};
    return add_run(assembly, &piece, err);
}

enum cairn_code cairn_assembly_add_box(struct cairn_assembly *assembly,
                                       const struct cairn_assembly_piece *piece,
                                       const struct cairn_box *box, uint64_t first,
                                       struct cairn_error *err) {
    CAIRN_ASSERT(assembly->tensor_count && piece->input < assembly->input_count);
    struct cairn_assembly_tensor *tensor = &assembly->tensors[assembly->tensor_count - 1];
    CAIRN_ASSERT(tensor->boxed || !tensor->piece_count);
    uint64_t width = cairn_dtype_bits(tensor->dtype) / 8, elements;
    unsigned dimensions = tensor->dimension_count;
    struct cairn_box cut[2 * CAIRN_DIMENSIONS_MAX];
    struct cairn_assembly_piece part = *piece;
    if (cairn_dtype_bits(tensor->dtype) % 8)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "tensor %s: elements of less than a byte, cut",
                          cairn_short(tensor->name).text);
    tensor->boxed = true;
    if (part.size_bytes == 0) return CAIRN_OK;
    elements = part.size_bytes / width;
    if (part.size_bytes % width || !cairn_box_fits(box, dimensions, tensor->shape) ||
        first > cairn_box_elements(box, dimensions) ||
        elements > cairn_box_elements(box, dimensions) - first)
        return cairn_fail(err, CAIRN_INVALID, "tensor %s: a piece leaves the tensor",
                          cairn_short(tensor->name).text);
    unsigned count = cairn_box_cut(box, dimensions, first, elements, cut);
    for (unsigned i = 0; i < count; i++) {
        part.size_bytes = cairn_box_elements(&cut[i], dimensions) * width;
        CAIRN_TRY(CAIRN_ARRAY_ROOM(assembly->pieces, assembly->piece_count,
                                   assembly->piece_capacity, PIECES_MAX, "pieces of tensors", err));
        CAIRN_TRY(CAIRN_ARRAY_ROOM(assembly->boxes, assembly->box_count, assembly->box_capacity,
                                   PIECES_MAX, "pieces of tensors", err));
        if (tensor->piece_count >= BOXES_OF_A_TENSOR_MAX)
            return cairn_fail(err, CAIRN_TOO_LARGE, "tensor %s: more than %d pieces",
                              cairn_short(tensor->name).text, BOXES_OF_A_TENSOR_MAX);
        if (!tensor->piece_count++) tensor->box_first = assembly->box_count;
        assembly->pieces[assembly->piece_count++] = part;
        assembly->boxes[assembly->box_count++] = cut[i];
        part.offset_bytes += part.size_bytes;
    }
    return CAIRN_OK;
}

/* 0: contiguous. */
static enum cairn_code add_layout(struct cairn_assembly *assembly, unsigned dimensions,
                                  const struct cairn_box *box, const uint64_t *stride,
                                  uint32_t *ret, struct cairn_error *err) {
    struct cairn_assembly_layout layout = {0};
    uint64_t expected = 1;
    bool apart = false;
    for (unsigned d = dimensions; d-- > 0;) {
        layout.stride[d] = stride[d];
        apart |= box->count[d] > 1 && stride[d] != expected;
        expected *= box->count[d];
    }
    *ret = 0;
    if (!apart) return CAIRN_OK;
    size_t first = assembly->layout_count == 0; /* index 0 is none */
    CAIRN_TRY(CAIRN_ARRAY_ROOM_FOR(assembly->layouts, assembly->layout_count, 1 + first,
                                   assembly->layout_capacity, PIECES_MAX, "pieces of tensors",
                                   err));
    assembly->layout_count += first;
    *ret = (uint32_t)assembly->layout_count;
    assembly->layouts[assembly->layout_count++] = layout;
    return CAIRN_OK;
}

enum cairn_code cairn_assembly_add_view(struct cairn_assembly *assembly,
                                        const struct cairn_assembly_piece *piece,
                                        const uint64_t *stride, const struct cairn_box *box,
                                        struct cairn_error *err) {
    const struct cairn_assembly_tensor *tensor = &assembly->tensors[assembly->tensor_count - 1];
    struct cairn_assembly_piece view = *piece;
    uint32_t layout;
    CAIRN_TRY(add_layout(assembly, tensor->dimension_count, box, stride, &layout, err));
    view.layout = layout & 0x3fffffffu;
    return cairn_assembly_add_box(assembly, &view, box, 0, err);
}

static bool is_strided(const struct cairn_assembly *assembly,
                       const struct cairn_assembly_tensor *tensor) {
    for (size_t p = 0; p < tensor->piece_count; p++)
        if (assembly->pieces[tensor->piece_first + p].layout) return true;
    return false;
}

/* The first dimension from which the elements are one run; *ret_elements: its length. */
static unsigned run_of(const struct cairn_assembly_layout *layout, const struct cairn_box *box,
                       unsigned dimensions, uint64_t *ret_elements) {
    unsigned outer = dimensions;
    *ret_elements = 1;
    while (outer && (layout->stride[outer - 1] == *ret_elements || box->count[outer - 1] == 1))
        *ret_elements *= box->count[--outer];
    return outer;
}

/* Appends the runs of one piece after all pieces and boxes; there is room for them. */
static void append_runs(struct cairn_assembly *assembly, const struct cairn_assembly_tensor *tensor,
                        size_t p) {
    struct cairn_assembly_piece piece = assembly->pieces[tensor->piece_first + p];
    struct cairn_box box = assembly->boxes[tensor->box_first + p];
    const struct cairn_box whole = box;
    const uint64_t first_bytes = piece.offset_bytes;
    const struct cairn_assembly_layout *layout = &assembly->layouts[piece.layout];
    uint64_t width = cairn_dtype_bits(tensor->dtype) / 8, run, at[CAIRN_DIMENSIONS_MAX] = {0};
    unsigned outer = run_of(layout, &whole, tensor->dimension_count, &run);
    uint64_t runs = cairn_box_elements(&whole, tensor->dimension_count) / run;
    piece.layout = 0;
    piece.size_bytes = run * width;
    for (uint64_t i = 0; i < runs; i++) {
        uint64_t element = 0;
        for (unsigned d = 0; d < outer; d++) {
            element += at[d] * layout->stride[d];
            box.start[d] = whole.start[d] + at[d];
            box.count[d] = 1;
        }
        piece.offset_bytes = first_bytes + element * width;
        assembly->pieces[assembly->piece_count++] = piece;
        assembly->boxes[assembly->box_count++] = box;
        for (unsigned d = outer; d-- > 0 && ++at[d] == whole.count[d];) at[d] = 0;
    }
}

static enum cairn_code unroll_tensor(struct cairn_assembly *assembly,
                                     struct cairn_assembly_tensor *tensor,
                                     struct cairn_error *err) {
    size_t first = assembly->piece_count, box_first = assembly->box_count;
    uint64_t runs = 0; /* of the tensor's pieces */
    for (size_t p = 0; p < tensor->piece_count; p++) {
        const struct cairn_assembly_piece *piece = &assembly->pieces[tensor->piece_first + p];
        const struct cairn_box *box = &assembly->boxes[tensor->box_first + p];
        uint64_t run = 1, elements = cairn_box_elements(box, tensor->dimension_count);
        if (piece->layout)
            (void)run_of(&assembly->layouts[piece->layout], box, tensor->dimension_count, &run);
        runs += piece->layout ? elements / run : 1;
        if (runs > RUNS_MAX)
            return cairn_fail(err, CAIRN_UNSUPPORTED,
                              "its strides cut it into more than %d runs, which are too many to be "
                              "named",
                              RUNS_MAX);
    }
    CAIRN_TRY(CAIRN_ARRAY_ROOM_FOR(assembly->pieces, assembly->piece_count, (size_t)runs,
                                   assembly->piece_capacity, PIECES_MAX, "pieces of tensors", err));
    CAIRN_TRY(CAIRN_ARRAY_ROOM_FOR(assembly->boxes, assembly->box_count, (size_t)runs,
                                   assembly->box_capacity, PIECES_MAX, "pieces of tensors", err));
    for (size_t p = 0; p < tensor->piece_count; p++) {
        if (assembly->pieces[tensor->piece_first + p].layout) {
            append_runs(assembly, tensor, p);
            continue;
        }
        assembly->pieces[assembly->piece_count++] = assembly->pieces[tensor->piece_first + p];
        assembly->boxes[assembly->box_count++] = assembly->boxes[tensor->box_first + p];
    }
    if (tensor->piece_count == 1) tensor->boxed = false; /* its runs are consecutive */
    tensor->piece_first = first;
    tensor->box_first = box_first;
    tensor->piece_count = (size_t)runs;
    return CAIRN_OK;
}

enum cairn_code cairn_assembly_unroll(struct cairn_assembly *assembly, size_t number,
                                      struct cairn_error *err) {
    struct cairn_assembly_tensor *tensor = &assembly->tensors[number];
    return is_strided(assembly, tensor) ? unroll_tensor(assembly, tensor, err) : CAIRN_OK;
}

enum cairn_code cairn_assembly_copy_seals(struct cairn_assembly *assembly,
                                          const struct cairn_assembly *from,
                                          struct cairn_error *err) {
    for (size_t i = 0; i < from->seals.count; i++) {
        struct cairn_seal seal = from->seals.seals[i];
        seal = (struct cairn_seal){.crc32 = seal.crc32,
                                   .offset_bytes = seal.offset_bytes,
                                   .size_bytes = seal.size_bytes,
                                   .input = seal.input,
                                   .name = seal.name};
        CAIRN_TRY(cairn_assembly_add_input(assembly, from->inputs[seal.input], &seal.input, err));
        CAIRN_TRY(cairn_seals_add(&assembly->seals, &seal, cairn_view_of(seal.name), err));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_assembly_add_object(struct cairn_assembly *assembly, const char *name,
                                          bool holds_tensors, struct cairn_error *err) {
    struct cairn_assembly_object object = {.holds_tensors = holds_tensors};
    CAIRN_TRY(CAIRN_ARRAY_ROOM(assembly->objects, assembly->object_count, assembly->object_capacity,
                               TENSORS_MAX, "objects", err));
    CAIRN_TRY(copy_text(name, &object.name, err));
    assembly->objects[assembly->object_count++] = object;
    return CAIRN_OK;
}

enum cairn_code cairn_assembly_add_object_piece(struct cairn_assembly *assembly, size_t number,
                                                const struct cairn_assembly_piece *piece,
                                                struct cairn_error *err) {
    struct cairn_assembly_object *object = &assembly->objects[number];
    CAIRN_ASSERT(number < assembly->object_count);
    if (!piece->size_bytes) return CAIRN_OK;
    CAIRN_ASSERT(piece->input < assembly->input_count);
    CAIRN_TRY(CAIRN_ARRAY_ROOM(assembly->object_pieces, assembly->object_piece_count,
                               assembly->object_piece_capacity, PIECES_MAX, "pieces of objects",
                               err));
    if (!object->piece_count) object->piece_first = assembly->object_piece_count;
    CAIRN_ASSERT(object->piece_first + object->piece_count == assembly->object_piece_count);
    assembly->object_pieces[assembly->object_piece_count++] = *piece;
    object->piece_count++;
    object->size_bytes += piece->size_bytes;
    return CAIRN_OK;
}

enum cairn_code cairn_assembly_copy_object(const struct cairn_assembly *from, size_t number,
                                           struct cairn_assembly *into, struct cairn_error *err) {
    const struct cairn_assembly_object *object = &from->objects[number];
    CAIRN_TRY(cairn_assembly_add_object(into, object->name, object->holds_tensors, err));
    for (size_t p = 0; p < object->piece_count; p++) {
        struct cairn_assembly_piece piece = from->object_pieces[object->piece_first + p];
        CAIRN_TRY(cairn_assembly_add_input(into, from->inputs[piece.input], &piece.input, err));
        CAIRN_TRY(cairn_assembly_add_object_piece(into, into->object_count - 1, &piece, err));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_assembly_leave_out(struct cairn_assembly *assembly, const char *name,
                                         const char *why, struct cairn_error *err) {
    struct cairn_assembly_left_out left = {0};
    CAIRN_TRY(CAIRN_ARRAY_ROOM(assembly->left_out, assembly->left_out_count,
                               assembly->left_out_capacity, TENSORS_MAX, "what is left out", err));
    CAIRN_TRY(copy_text(name, &left.name, err));
    enum cairn_code code = copy_text(why, &left.why, err);
    if (code != CAIRN_OK) {
        free(left.name);
        return code;
    }
    assembly->left_out[assembly->left_out_count++] = left;
    return CAIRN_OK;
}

enum cairn_code cairn_assembly_leave_out_file(struct cairn_assembly *assembly, const char *name,
                                              const char *why, struct cairn_error *err) {
    CAIRN_TRY(cairn_assembly_leave_out(assembly, name, why, err));
    assembly->left_out[assembly->left_out_count - 1].file = true;
    return CAIRN_OK;
}

enum cairn_code cairn_assembly_add_text(struct cairn_assembly *assembly, const char *key,
                                        const char *text, const char *file,
                                        struct cairn_error *err) {
    CAIRN_AUTO(buf) name = {0};
    if (!assembly->texts) assembly->texts = json_object();
    const char *there = json_string_value(json_object_get(assembly->texts, key));
    if (there && strcmp(there, text) == 0) return CAIRN_OK;
    if (!there)
        return json_object_set_new(assembly->texts, key, json_string(text)) == 0
                   ? CAIRN_OK
                   : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the text %s",
                                cairn_short(key).text);
    CAIRN_TRY(cairn_buf_printf(&name, err, CAIRN_ASSEMBLY_TEXT "%s of %s", key, file));
    return cairn_assembly_leave_out(assembly, name.data,
                                    "the header of a file before it has another text under this "
                                    "key, which is kept",
                                    err);
}

enum cairn_code cairn_assembly_copy_pieces(const struct cairn_assembly *from,
                                           const struct cairn_assembly_tensor *tensor,
                                           struct cairn_assembly *into, struct cairn_error *err) {
    for (size_t p = 0; p < tensor->piece_count; p++) {
        struct cairn_assembly_piece piece = from->pieces[tensor->piece_first + p];
        CAIRN_TRY(cairn_assembly_add_input(into, from->inputs[piece.input], &piece.input, err));
        if (piece.layout)
            CAIRN_TRY(cairn_assembly_add_view(into, &piece, from->layouts[piece.layout].stride,
                                              &from->boxes[tensor->box_first + p], err));
        else if (tensor->boxed)
            CAIRN_TRY(
                cairn_assembly_add_box(into, &piece, &from->boxes[tensor->box_first + p], 0, err));
        else
            CAIRN_TRY(add_run(into, &piece, err));
    }
    return CAIRN_OK;
}

void cairn_assembly_untie(struct cairn_assembly *assembly, size_t number) {
    struct cairn_assembly_tensor *tensor = &assembly->tensors[number];
    CAIRN_ASSERT(tensor->alias_of < assembly->tensor_count);
    const struct cairn_assembly_tensor *source = &assembly->tensors[tensor->alias_of];
    CAIRN_ASSERT(source->alias_of == CAIRN_ASSEMBLY_NO_ALIAS);
    tensor->alias_of = CAIRN_ASSEMBLY_NO_ALIAS;
    tensor->piece_first = source->piece_first;
    tensor->piece_count = source->piece_count;
    tensor->box_first = source->box_first;
    tensor->boxed = source->boxed;
}

enum cairn_code cairn_assembly_retie(struct cairn_assembly *assembly, struct cairn_error *err) {
    /* By tensor: the first of its other names that is in no object, + 1. */
    CAIRN_AUTO_HEAP size_t *first = calloc(assembly->tensor_count + 1, sizeof *first);
    if (!first) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the names of tensors");
    for (size_t i = 0; i < assembly->tensor_count; i++) {
        struct cairn_assembly_tensor *tensor = &assembly->tensors[i];
        size_t of = tensor->alias_of;
        if (tensor->in_object || of == CAIRN_ASSEMBLY_NO_ALIAS || !assembly->tensors[of].in_object)
            continue;
        if (first[of]) {
            tensor->alias_of = first[of] - 1;
            continue;
        }
        cairn_assembly_untie(assembly, i);
        first[of] = i + 1;
    }
    return CAIRN_OK;
}

enum cairn_code cairn_assembly_take(const struct cairn_assembly *from, size_t number,
                                    struct cairn_assembly *into, struct cairn_error *err) {
    const struct cairn_assembly_tensor *tensor = &from->tensors[number], *source = tensor;
    size_t there;
    if (tensor->alias_of != CAIRN_ASSEMBLY_NO_ALIAS) {
        source = &from->tensors[tensor->alias_of];
        if (cairn_assembly_find(into, source->name, &there))
            return cairn_assembly_add_alias(into, tensor->name, there, err);
    }
    CAIRN_TRY(cairn_assembly_add_tensor(into, tensor->name, tensor->dtype, tensor->dimension_count,
                                        tensor->shape, err));
    into->tensors[into->tensor_count - 1].frozen = tensor->frozen;
    return cairn_assembly_copy_pieces(from, source, into, err);
}

enum cairn_code cairn_assembly_take_rest(struct cairn_assembly *from, struct cairn_assembly *into,
                                         struct cairn_error *err) {
    struct cairn_assembly_memory **last = &into->memory;
    while (*last) last = &(*last)->next;
    *last = from->memory;
    from->memory = NULL;
    for (size_t i = 0; i < from->left_out_count; i++) {
        const struct cairn_assembly_left_out *left = &from->left_out[i];
        CAIRN_TRY(cairn_assembly_leave_out(into, left->name, left->why, err));
        into->left_out[into->left_out_count - 1].file = left->file;
        if (left->class)
            CAIRN_TRY(copy_text(left->class, &into->left_out[into->left_out_count - 1].class, err));
    }
    CAIRN_TRY(cairn_assembly_copy_seals(into, from, err));
    for (size_t i = 0; i < from->object_count; i++)
        CAIRN_TRY(cairn_assembly_copy_object(from, i, into, err));
    return CAIRN_OK;
}

enum cairn_code cairn_assembly_leave_out_opaque(struct cairn_assembly *assembly, const char *name,
                                                const char *class, const char *why,
                                                struct cairn_error *err) {
    CAIRN_TRY(cairn_assembly_leave_out(assembly, name, why, err));
    return copy_text(class, &assembly->left_out[assembly->left_out_count - 1].class, err);
}

bool cairn_assembly_find(const struct cairn_assembly *assembly, const char *name, size_t *ret) {
    uint32_t number;
    if (!cairn_names_find(&assembly->names, cairn_view_of(name), &number)) return false;
    *ret = number;
    return true;
}

/* A box that is one run of its tensor, with its place. */
struct run {
    uint64_t place;
    struct cairn_assembly_piece piece;
};

static int by_place(const void *a, const void *b) {
    const struct run *x = a, *y = b;
    return (x->place > y->place) - (x->place < y->place);
}

/* If all boxes are runs, their pieces are sorted into the tensor's order and need no boxes. */
static enum cairn_code make_runs(struct cairn_assembly *assembly,
                                 struct cairn_assembly_tensor *tensor, struct cairn_error *err) {
    struct cairn_assembly_piece *pieces = &assembly->pieces[tensor->piece_first];
    const struct cairn_box *boxes = &assembly->boxes[tensor->box_first];
    unsigned dimensions = tensor->dimension_count;
    size_t count = tensor->piece_count;
    CAIRN_AUTO_HEAP struct run *runs = calloc(count + 1, sizeof *runs);
    if (!runs) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for pieces of tensors");
    for (size_t i = 0; i < count; i++) {
        if (pieces[i].layout || cairn_box_run(&boxes[i], dimensions, tensor->shape) !=
                                    cairn_box_elements(&boxes[i], dimensions))
            return CAIRN_OK;
        runs[i] = (struct run){cairn_box_place(&boxes[i], dimensions, tensor->shape, 0), pieces[i]};
    }
    if (count) qsort(runs, count, sizeof *runs, by_place);
    tensor->boxed = false;
    tensor->piece_count = 0;
    for (size_t i = 0; i < count; i++) {
        struct cairn_assembly_piece *last =
            tensor->piece_count ? &pieces[tensor->piece_count - 1] : NULL;
        if (last && pieces_join(last, &runs[i].piece))
            last->size_bytes += runs[i].piece.size_bytes;
        else
            pieces[tensor->piece_count++] = runs[i].piece;
    }
    return CAIRN_OK;
}

static enum cairn_code check_boxes(struct cairn_assembly *assembly,
                                   struct cairn_assembly_tensor *tensor, struct cairn_error *err) {
    enum cairn_code code =
        tensor->size_bytes || tensor->piece_count
            ? cairn_boxes_prove(&assembly->boxes[tensor->box_first], tensor->piece_count,
                                tensor->dimension_count, tensor->shape, err)
            : CAIRN_OK;
    if (code != CAIRN_OK)
        return cairn_within(err, code, "tensor %s", cairn_short(tensor->name).text);
    return make_runs(assembly, tensor, err);
}

/* Bytes from the first to the end of the last element of a piece; false: overflow. */
static bool extent_of(const struct cairn_assembly *assembly,
                      const struct cairn_assembly_tensor *tensor, size_t p, uint64_t *ret) {
    const struct cairn_assembly_piece *piece = &assembly->pieces[tensor->piece_first + p];
    uint64_t width = cairn_dtype_bits(tensor->dtype) / 8, last = 0, step;
    *ret = piece->size_bytes;
    if (!piece->layout) return true;
    const struct cairn_box *box = &assembly->boxes[tensor->box_first + p];
    for (unsigned d = 0; d < tensor->dimension_count; d++)
        if (cairn_mul_overflows(box->count[d] - 1, assembly->layouts[piece->layout].stride[d],
                                &step) ||
            cairn_add_overflows(last, step, &last))
            return false;
    return !cairn_add_overflows(last, (uint64_t)1, &last) && !cairn_mul_overflows(last, width, ret);
}

static enum cairn_code check_tensor(struct cairn_assembly *assembly,
                                    struct cairn_assembly_tensor *tensor, struct cairn_error *err) {
    uint64_t bytes = 0;
    if (tensor->boxed) CAIRN_TRY(check_boxes(assembly, tensor, err));
    for (size_t p = 0; p < tensor->piece_count; p++) {
        const struct cairn_assembly_piece *piece = &assembly->pieces[tensor->piece_first + p];
        uint64_t file_bytes = assembly->inputs[piece->input]->size_bytes, extent;
        if (!extent_of(assembly, tensor, p, &extent) || piece->offset_bytes > file_bytes ||
            extent > file_bytes - piece->offset_bytes)
            return cairn_fail(err, CAIRN_INVALID, "tensor %s: a piece leaves its file",
                              cairn_short(tensor->name).text);
        bytes += piece->size_bytes;
    }
    if (tensor->alias_of == CAIRN_ASSEMBLY_NO_ALIAS && bytes != tensor->size_bytes)
        return cairn_fail(err, CAIRN_INVALID,
                          "tensor %s: its pieces have %" PRIu64 " of its %" PRIu64 " bytes",
                          cairn_short(tensor->name).text, bytes, tensor->size_bytes);
    return CAIRN_OK;
}

enum cairn_code cairn_assembly_check(struct cairn_assembly *assembly, struct cairn_error *err) {
    for (size_t i = 0; i < assembly->tensor_count; i++)
        CAIRN_TRY(check_tensor(assembly, &assembly->tensors[i], err));
    if (!assembly->seals.sorted) cairn_seals_sort(&assembly->seals);
    return CAIRN_OK;
}

/* A tensor that is one range, with its place. */
struct placed {
    struct cairn_assembly_piece piece;
    size_t index;
};

static int by_range(const void *a, const void *b) {
    const struct placed *x = a, *y = b;
    if (x->piece.input != y->piece.input) return x->piece.input < y->piece.input ? -1 : 1;
    if (x->piece.offset_bytes != y->piece.offset_bytes)
        return x->piece.offset_bytes < y->piece.offset_bytes ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static bool is_same(const struct cairn_assembly *assembly, const struct placed *one,
                    const struct placed *other) {
    const struct cairn_assembly_tensor *a = &assembly->tensors[one->index];
    const struct cairn_assembly_tensor *b = &assembly->tensors[other->index];
    return one->piece.input == other->piece.input &&
           one->piece.offset_bytes == other->piece.offset_bytes &&
           one->piece.flip == other->piece.flip && a->dtype == b->dtype &&
           a->dimension_count == b->dimension_count &&
           memcmp(a->shape, b->shape, sizeof a->shape) == 0;
}

enum cairn_code cairn_assembly_join_same(struct cairn_assembly *assembly, struct cairn_error *err) {
    CAIRN_AUTO_HEAP struct placed *placed = calloc(assembly->tensor_count + 1, sizeof *placed);
    size_t count = 0;
    if (!placed) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the tensors' places");
    for (size_t i = 0; i < assembly->tensor_count; i++)
        if (assembly->tensors[i].piece_count == 1 && !assembly->tensors[i].boxed)
            placed[count++] =
                (struct placed){assembly->pieces[assembly->tensors[i].piece_first], i};
    if (count) qsort(placed, count, sizeof *placed, by_range);
    for (size_t i = 1, first = 0; i < count; i++) {
        if (!is_same(assembly, &placed[first], &placed[i])) {
            first = i;
            continue;
        }
        assembly->tensors[placed[i].index].alias_of = placed[first].index;
        assembly->tensors[placed[i].index].piece_count = 0;
    }
    return CAIRN_OK;
}

/* The wanted elements of a tensor: [first, first + size / width). */
struct wanted {
    const struct cairn_assembly *assembly;
    const struct cairn_assembly_tensor *tensor;
    uint64_t first, width;
    char *into;
    char *scratch, *gathered;
};

/* Every byte read of a tensor passes through here. */
static enum cairn_code read_bytes(const struct cairn_assembly *assembly, uint32_t number,
                                  uint64_t offset, void *into, size_t size,
                                  struct cairn_error *err) {
    const struct cairn_input *input = assembly->inputs[number];
    /* Notes change under their own lock; all else is immutable. */
    struct cairn_seals *seals = (struct cairn_seals *)(uintptr_t)&assembly->seals;
    if (!seals->count) return cairn_input_read(input, offset, into, size, err);
    for (size_t done = 0; done < size; done += READ_BYTES) {
        size_t some = (size_t)cairn_min_u64(READ_BYTES, size - done);
        char *to = (char *)into + done;
        CAIRN_TRY(cairn_input_read(input, offset + done, to, some, err));
        CAIRN_TRY(cairn_seals_note(seals, number, input, offset + done, to, some, err));
    }
    return CAIRN_OK;
}

/* A mostly read range is read to its end: padding would leave its checksum unchecked. */
static bool has_small_rest(const struct cairn_seal *seal) {
    uint64_t rest = seal->size_bytes - seal->noted_bytes;
    return rest && rest <= seal->noted_bytes && rest <= REST_BYTES_MAX;
}

static enum cairn_code read_rest(const struct cairn_assembly *assembly,
                                 const struct cairn_seal *seal, char *scratch,
                                 struct cairn_error *err) {
    while (!seal->given_up && seal->noted_bytes < seal->size_bytes) {
        uint64_t begin = seal->offset_bytes, end = begin + seal->size_bytes;
        if (seal->parts[0].begin > begin) {
            end = seal->parts[0].begin;
        } else {
            begin = seal->parts[0].end;
            if (seal->part_count > 1) end = seal->parts[1].begin;
        }
        size_t some = (size_t)cairn_min_u64(READ_BYTES, end - begin);
        CAIRN_TRY(read_bytes(assembly, seal->input, begin, scratch, some, err));
    }
    return CAIRN_OK;
}

const char *cairn_assembly_tensor_in(const struct cairn_assembly *assembly,
                                     const struct cairn_seal *seal) {
    for (size_t i = 0; i < assembly->tensor_count; i++) {
        const struct cairn_assembly_tensor *tensor = &assembly->tensors[i];
        for (size_t p = 0; p < tensor->piece_count; p++) {
            const struct cairn_assembly_piece *piece = &assembly->pieces[tensor->piece_first + p];
            if (piece->input == seal->input && piece->offset_bytes >= seal->offset_bytes &&
                piece->offset_bytes < seal->offset_bytes + seal->size_bytes)
                return tensor->name;
        }
    }
    return NULL;
}

enum cairn_code cairn_assembly_settle(const struct cairn_assembly *assembly,
                                      struct cairn_error *err) {
    const struct cairn_seals *seals = &assembly->seals;
    CAIRN_AUTO_HEAP char *scratch = NULL;
    for (size_t i = 0; i < seals->count; i++) {
        const struct cairn_seal *seal = &seals->seals[i];
        if (!seal->given_up && !has_small_rest(seal)) continue;
        if (!scratch) scratch = malloc(READ_BYTES);
        if (!scratch) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a part of a file");
        enum cairn_code code =
            seal->given_up
                ? cairn_seal_check(seal, assembly->inputs[seal->input], scratch, READ_BYTES, err)
                : read_rest(assembly, seal, scratch, err);
        const char *tensor = NULL;
        if (code == CAIRN_CORRUPT) tensor = cairn_assembly_tensor_in(assembly, seal);
        if (tensor) return cairn_within(err, code, "tensor %s", cairn_short(tensor).text);
        if (code) return code;
    }
    return CAIRN_OK;
}

/* Reads elements of a box, the first at `offset`, whose span is small enough. */
static enum cairn_code read_span(const struct wanted *wanted,
                                 const struct cairn_assembly_piece *piece,
                                 const struct cairn_box *box, uint64_t offset, uint64_t span,
                                 struct cairn_error *err) {
    const struct cairn_assembly_tensor *tensor = wanted->tensor;
    const struct cairn_assembly_layout *layout = &wanted->assembly->layouts[piece->layout];
    unsigned dimensions = tensor->dimension_count;
    size_t width = (size_t)wanted->width;
    size_t size = (size_t)cairn_box_elements(box, dimensions) * width;
    int64_t from[CAIRN_DIMENSIONS_MAX], to[CAIRN_DIMENSIONS_MAX], step = 1;
    struct cairn_strided source, target;
    for (unsigned d = dimensions; d-- > 0; step *= (int64_t)tensor->shape[d]) {
        from[d] = (int64_t)layout->stride[d];
        to[d] = step;
    }
    CAIRN_TRY(read_bytes(wanted->assembly, piece->input, offset, wanted->scratch,
                         (size_t)span * width, err));
    bool made = cairn_strided_make(width, dimensions, box->count, from, &source) &&
                cairn_strided_make(width, dimensions, box->count, to, &target);
    if (!made) return cairn_fail(err, CAIRN_UNSUPPORTED, "strides that reach too far");
    uint64_t place = cairn_box_place(box, dimensions, tensor->shape, 0);
    cairn_strided_gather(&source, wanted->scratch, 0, wanted->gathered, size);
    (void)cairn_flip(tensor->dtype, wanted->gathered, size, piece->flip);
    cairn_strided_scatter(&target, wanted->into + (place - wanted->first) * width, 0,
                          wanted->gathered, size);
    return CAIRN_OK;
}

/* Reads strided elements of a box: a dense span at once; else halves it at the widest stride. */
static enum cairn_code read_apart(const struct wanted *wanted,
                                  const struct cairn_assembly_piece *piece,
                                  const struct cairn_box *box, uint64_t offset,
                                  struct cairn_error *err) {
    const struct cairn_assembly_layout *layout = &wanted->assembly->layouts[piece->layout];
    unsigned dimensions = wanted->tensor->dimension_count, widest = 0;
    uint64_t span = 1, elements = cairn_box_elements(box, dimensions), farthest = 0;
    for (unsigned d = 0; d < dimensions; d++) {
        span += (box->count[d] - 1) * layout->stride[d];
        if (box->count[d] > 1 && layout->stride[d] >= farthest) {
            farthest = layout->stride[d];
            widest = d;
        }
    }
    if (elements * wanted->width <= APART_BYTES && span * wanted->width <= APART_BYTES &&
        (span / 4 <= elements || span * wanted->width <= SPAN_BYTES))
        return read_span(wanted, piece, box, offset, span, err);
    struct cairn_box first = *box, second = *box;
    first.count[widest] = box->count[widest] / 2;
    second.start[widest] += first.count[widest];
    second.count[widest] -= first.count[widest];
    CAIRN_TRY(read_apart(wanted, piece, &first, offset, err));
    return read_apart(wanted, piece, &second,
                      offset + first.count[widest] * layout->stride[widest] * wanted->width, err);
}

/* Reads elements [from, to) of one box, all of them wanted. */
static enum cairn_code read_box(const struct wanted *wanted,
                                const struct cairn_assembly_piece *piece,
                                const struct cairn_box *box, uint64_t from, uint64_t to,
                                struct cairn_error *err) {
    const struct cairn_assembly_tensor *tensor = wanted->tensor;
    if (piece->layout) {
        /* Reads elements [from, to) of a strided box. */
        const struct cairn_assembly_layout *layout = &wanted->assembly->layouts[piece->layout];
        unsigned dimensions = wanted->tensor->dimension_count;
        struct cairn_box cut[2 * CAIRN_DIMENSIONS_MAX];
        unsigned count = from < to ? cairn_box_cut(box, dimensions, from, to - from, cut) : 0;
        for (unsigned i = 0; i < count; i++) {
            uint64_t element = 0;
            for (unsigned d = 0; d < dimensions; d++)
                element += (cut[i].start[d] - box->start[d]) * layout->stride[d];
            CAIRN_TRY(read_apart(wanted, piece, &cut[i],
                                 piece->offset_bytes + element * wanted->width, err));
        }
        return CAIRN_OK;
    }
    uint64_t width = wanted->width;
    uint64_t run = cairn_box_run(box, tensor->dimension_count, tensor->shape);
    bool direct = run * width >= SCRATCH_BYTES;
    while (from < to) {
        uint64_t most = direct ? run - from % run : SCRATCH_BYTES / width;
        uint64_t some = cairn_min_u64(most, to - from);
        uint64_t place = cairn_box_place(box, tensor->dimension_count, tensor->shape, from);
        char *into = direct ? wanted->into + (place - wanted->first) * width : wanted->scratch;
        CAIRN_TRY(read_bytes(wanted->assembly, piece->input, piece->offset_bytes + from * width,
                             into, (size_t)(some * width), err));
        (void)cairn_flip(tensor->dtype, into, (size_t)(some * width), piece->flip);
        for (uint64_t done = 0; !direct && done < some;) {
            uint64_t together = cairn_min_u64(run - (from + done) % run, some - done);
            place = cairn_box_place(box, tensor->dimension_count, tensor->shape, from + done);
            memcpy(wanted->into + (place - wanted->first) * width, into + done * width,
                   (size_t)(together * width));
            done += together;
        }
        from += some;
    }
    return CAIRN_OK;
}

/* Pieces one behind the other: a tensor's, or an object's, whose bytes stay as they are. */
struct sequence {
    const struct cairn_assembly_piece *pieces;
    size_t count;
    unsigned dtype; /* for pieces that are flipped */
};

static enum cairn_code read_sequence(const struct cairn_assembly *assembly,
                                     const struct sequence *sequence, uint64_t from, char *into,
                                     uint64_t size, struct cairn_error *err) {
    for (size_t p = 0; p < sequence->count && size; p++) {
        const struct cairn_assembly_piece *piece = &sequence->pieces[p];
        if (from >= piece->size_bytes) {
            from -= piece->size_bytes;
            continue;
        }
        uint64_t some = cairn_min_u64(piece->size_bytes - from, size);
        CAIRN_TRY(read_bytes(assembly, piece->input, piece->offset_bytes + from, into, (size_t)some,
                             err));
        (void)cairn_flip(sequence->dtype, into, (size_t)some, piece->flip);
        into += some;
        size -= some;
        from = 0;
    }
    CAIRN_ASSERT(size == 0); /* assembly.h#1 */
    return CAIRN_OK;
}

enum cairn_code cairn_assembly_read(const struct cairn_assembly *assembly,
                                    const struct cairn_assembly_tensor *tensor, uint64_t from,
                                    char *into, uint64_t size, struct cairn_error *err) {
    if (tensor->boxed) {
        bool apart = is_strided(assembly, tensor);
        CAIRN_AUTO_HEAP char *scratch = malloc(apart ? APART_BYTES : SCRATCH_BYTES);
        CAIRN_AUTO_HEAP char *gathered = malloc(apart ? APART_BYTES : 1);
        uint64_t width = cairn_dtype_bits(tensor->dtype) / 8, done_bytes = 0;
        struct wanted wanted = {assembly, tensor, from / width, width, into, scratch, gathered};
        CAIRN_ASSERT(from % width == 0 && size % width == 0);
        if (!scratch || !gathered)
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a piece of a tensor");
        for (size_t p = 0; p < tensor->piece_count; p++) {
            const struct cairn_assembly_piece *piece = &assembly->pieces[tensor->piece_first + p];
            const struct cairn_box *box = &assembly->boxes[tensor->box_first + p];
            uint64_t first =
                cairn_box_before(box, tensor->dimension_count, tensor->shape, wanted.first);
            uint64_t end = cairn_box_before(box, tensor->dimension_count, tensor->shape,
                                            wanted.first + size / width);
            CAIRN_TRY(read_box(&wanted, piece, box, first, end, err));
            done_bytes += (end - first) * width;
        }
        CAIRN_ASSERT(done_bytes == size); /* assembly.h#1 */
        return CAIRN_OK;
    }
    const struct sequence whole = {&assembly->pieces[tensor->piece_first], tensor->piece_count,
                                   tensor->dtype};
    return read_sequence(assembly, &whole, from, into, size, err);
}

enum cairn_code cairn_assembly_read_object(const struct cairn_assembly *assembly,
                                           const struct cairn_assembly_object *object,
                                           uint64_t from, char *into, uint64_t size,
                                           struct cairn_error *err) {
    const struct sequence whole = {&assembly->object_pieces[object->piece_first],
                                   object->piece_count, CAIRN_DTYPE_U8};
    return read_sequence(assembly, &whole, from, into, size, err);
}
