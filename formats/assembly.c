/* SPDX-License-Identifier: Apache-2.0 */
/* Building an assembly piece by piece, and the proof that its pieces make its tensors. */
#include "formats/assembly.h"

#include <inttypes.h>
#include <stdlib.h>

#include "api/dtype.h"
#include "common/array.h"
#include "common/utf8.h"

#define INPUTS_MAX 1048576
#define TENSORS_MAX 1048576
#define PIECES_MAX 16777216

void cairn_assembly_release(struct cairn_assembly *assembly) {
    for (size_t i = 0; i < assembly->tensor_count; i++) free(assembly->tensors[i].name);
    for (size_t i = 0; i < assembly->left_out_count; i++) {
        free(assembly->left_out[i].name);
        free(assembly->left_out[i].why);
    }
    free(assembly->inputs);
    free(assembly->tensors);
    free(assembly->pieces);
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

static enum cairn_code copy_text(const char *text, char **ret, struct cairn_error *err) {
    *ret = strdup(text);
    return *ret ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a name");
}

static enum cairn_code add(struct cairn_assembly *assembly, const char *name,
                           struct cairn_assembly_tensor tensor, struct cairn_error *err) {
    if (strlen(name) > CAIRN_TENSOR_NAME_BYTES_MAX)
        return cairn_fail(err, CAIRN_INVALID, "tensor %s: a name of more than %d bytes",
                          cairn_short(name).text, CAIRN_TENSOR_NAME_BYTES_MAX);
    CAIRN_TRY(CAIRN_ARRAY_ROOM(assembly->tensors, assembly->tensor_count, assembly->tensor_capacity,
                               TENSORS_MAX, "tensors", err));
    CAIRN_TRY(copy_text(name, &tensor.name, err));
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
    return add(assembly, name, tensor, err);
}

enum cairn_code cairn_assembly_add_alias(struct cairn_assembly *assembly, const char *name,
                                         size_t of, struct cairn_error *err) {
    CAIRN_ASSERT(of < assembly->tensor_count);
    struct cairn_assembly_tensor tensor = assembly->tensors[of];
    tensor.piece_count = 0;
    tensor.alias_of = tensor.alias_of == CAIRN_ASSEMBLY_NO_ALIAS ? of : tensor.alias_of;
    return add(assembly, name, tensor, err);
}

enum cairn_code cairn_assembly_add_piece(struct cairn_assembly *assembly, uint32_t input,
                                         uint64_t offset_bytes, uint64_t size_bytes,
                                         struct cairn_error *err) {
    CAIRN_ASSERT(assembly->tensor_count && input < assembly->input_count);
    struct cairn_assembly_tensor *tensor = &assembly->tensors[assembly->tensor_count - 1];
    struct cairn_assembly_piece *last =
        tensor->piece_count ? &assembly->pieces[assembly->piece_count - 1] : NULL;
    if (size_bytes == 0) return CAIRN_OK;
    if (last && last->input == input && last->offset_bytes + last->size_bytes == offset_bytes) {
        last->size_bytes += size_bytes;
        return CAIRN_OK;
    }
    CAIRN_TRY(CAIRN_ARRAY_ROOM(assembly->pieces, assembly->piece_count, assembly->piece_capacity,
                               PIECES_MAX, "pieces of tensors", err));
    assembly->pieces[assembly->piece_count++] =
        (struct cairn_assembly_piece){input, offset_bytes, size_bytes};
    tensor->piece_count++;
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

bool cairn_assembly_find(const struct cairn_assembly *assembly, const char *name, size_t *ret) {
    for (size_t i = 0; i < assembly->tensor_count; i++) {
        if (strcmp(assembly->tensors[i].name, name) != 0) continue;
        *ret = i;
        return true;
    }
    return false;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum cairn_code check_names(const struct cairn_assembly *assembly, struct cairn_error *err) {
    CAIRN_AUTO_HEAP const char **names = calloc(assembly->tensor_count + 1, sizeof *names);
    if (!names) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for names");
    for (size_t i = 0; i < assembly->tensor_count; i++) names[i] = assembly->tensors[i].name;
    qsort(names, assembly->tensor_count, sizeof *names, by_text);
    for (size_t i = 1; i < assembly->tensor_count; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            return cairn_fail(err, CAIRN_INVALID, "tensor %s is there twice",
                              cairn_short(names[i]).text);
    return CAIRN_OK;
}

enum cairn_code cairn_assembly_check(const struct cairn_assembly *assembly,
                                     struct cairn_error *err) {
    for (size_t i = 0; i < assembly->tensor_count; i++) {
        const struct cairn_assembly_tensor *tensor = &assembly->tensors[i];
        uint64_t bytes = 0;
        for (size_t p = 0; p < tensor->piece_count; p++) {
            const struct cairn_assembly_piece *piece = &assembly->pieces[tensor->piece_first + p];
            uint64_t file_bytes = assembly->inputs[piece->input]->size_bytes;
            if (piece->offset_bytes > file_bytes ||
                piece->size_bytes > file_bytes - piece->offset_bytes)
                return cairn_fail(err, CAIRN_INVALID, "tensor %s: a piece leaves its file",
                                  cairn_short(tensor->name).text);
            bytes += piece->size_bytes;
        }
        if (tensor->alias_of == CAIRN_ASSEMBLY_NO_ALIAS && bytes != tensor->size_bytes)
            return cairn_fail(err, CAIRN_INVALID,
                              "tensor %s: its pieces have %" PRIu64 " of its %" PRIu64 " bytes",
                              cairn_short(tensor->name).text, bytes, tensor->size_bytes);
    }
    return check_names(assembly, err);
}

enum cairn_code cairn_assembly_read(const struct cairn_assembly *assembly,
                                    const struct cairn_assembly_tensor *tensor, uint64_t from,
                                    char *into, uint64_t size, struct cairn_error *err) {
    for (size_t p = 0; p < tensor->piece_count && size; p++) {
        const struct cairn_assembly_piece *piece = &assembly->pieces[tensor->piece_first + p];
        if (from >= piece->size_bytes) {
            from -= piece->size_bytes;
            continue;
        }
        uint64_t some = cairn_min_u64(piece->size_bytes - from, size);
        CAIRN_TRY(cairn_input_read(assembly->inputs[piece->input], piece->offset_bytes + from, into,
                                   (size_t)some, err));
        into += some;
        size -= some;
        from = 0;
    }
    CAIRN_ASSERT(size == 0); /* assembly.h#1 */
    return CAIRN_OK;
}
