/* SPDX-License-Identifier: Apache-2.0 */
/* Each tensor once, its slices as boxes. */
#include "formats/zero_parallel.h"

#include <stdio.h>
#include <stdlib.h>

#include "api/table/dtype.h"
#include "common/text.h"

#define COMPARED_BYTES (64 * 1024)

struct join {
    const struct cairn_zero_part *parts;
    size_t count;
    struct cairn_zero_rules *rules; /* NULL: the checkpoint has none */
    struct cairn_zero_told *told;
    struct cairn_zero_cut *cuts; /* that were found, by the number of the parameter in rank 0 */
    struct cairn_assembly *assembly;
    const struct cairn_assembly_tensor **slices; /* of one tensor, by rank */
};

enum cairn_code cairn_zero_same(const struct cairn_assembly *a,
                                const struct cairn_assembly_tensor *of_a,
                                const struct cairn_assembly *b,
                                const struct cairn_assembly_tensor *of_b, bool *ret,
                                struct cairn_error *err) {
    CAIRN_AUTO_HEAP char *bytes = malloc(2 * COMPARED_BYTES);
    if (!bytes) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to compare tensors");
    *ret = of_a->dtype == of_b->dtype && of_a->dimension_count == of_b->dimension_count &&
           memcmp(of_a->shape, of_b->shape, sizeof of_a->shape) == 0;
    for (uint64_t at = 0; *ret && at < of_a->size_bytes; at += COMPARED_BYTES) {
        uint64_t some = cairn_min_u64(of_a->size_bytes - at, COMPARED_BYTES);
        CAIRN_TRY(cairn_assembly_read(a, of_a, at, bytes, some, err));
        CAIRN_TRY(cairn_assembly_read(b, of_b, at, bytes + COMPARED_BYTES, some, err));
        *ret = memcmp(bytes, bytes + COMPARED_BYTES, some) == 0;
    }
    return CAIRN_OK;
}

/* ---- the slices of one tensor ---- */

/* Elements [from, from + elements of the box) of a slice become the box of the whole. */
static enum cairn_code add_box(struct join *join, size_t rank, uint64_t from,
                               const struct cairn_box *box, struct cairn_error *err) {
    const struct cairn_assembly_tensor *slice = join->slices[rank];
    const struct cairn_assembly *assembly = &join->parts[rank].assembly;
    uint64_t width = cairn_dtype_bits(slice->dtype) / 8, first = 0, skip = from * width;
    uint64_t left = cairn_box_elements(box, slice->dimension_count) * width;
    CAIRN_ASSERT(!slice->boxed);
    for (size_t p = 0; p < slice->piece_count && left; p++) {
        struct cairn_assembly_piece piece = assembly->pieces[slice->piece_first + p];
        if (skip >= piece.size_bytes) {
            skip -= piece.size_bytes;
            continue;
        }
        CAIRN_TRY(cairn_assembly_add_input(join->assembly, assembly->inputs[piece.input],
                                           &piece.input, err));
        piece.offset_bytes += skip;
        piece.size_bytes = cairn_min_u64(piece.size_bytes - skip, left);
        CAIRN_TRY(cairn_assembly_add_box(join->assembly, &piece, box, first / width, err));
        first += piece.size_bytes;
        left -= piece.size_bytes;
        skip = 0;
    }
    return CAIRN_OK;
}

/* Slices that follow each other in one dimension, in `layers` layers one behind the other. */
static enum cairn_code add_slices(struct join *join, unsigned dimension, unsigned layers,
                                  const uint64_t *whole, struct cairn_error *err) {
    uint64_t at = 0;
    for (unsigned layer = 0; layer < layers; layer++) {
        for (size_t r = 0; r < join->count && at < whole[dimension]; r++) {
            const struct cairn_assembly_tensor *slice = join->slices[r];
            struct cairn_box box = {0};
            memcpy(box.count, slice->shape, sizeof box.count);
            box.count[dimension] /= layers;
            uint64_t from = layer * cairn_box_elements(&box, slice->dimension_count);
            box.start[dimension] = at;
            at += box.count[dimension];
            if (at > whole[dimension]) box.count[dimension] -= at - whole[dimension];
            if (slice->size_bytes) CAIRN_TRY(add_box(join, r, from, &box, err));
        }
    }
    return CAIRN_OK;
}

/* The size of the whole along the dimension that is cut; all else must be the same. */
static enum cairn_code sum_sizes(const struct join *join, unsigned dimension, unsigned layers,
                                 uint64_t *whole, struct cairn_error *err) {
    const struct cairn_assembly_tensor *first = join->slices[0];
    if (dimension >= first->dimension_count)
        return cairn_fail(err, CAIRN_INVALID, "it has no dimension %u to be cut in", dimension);
    memcpy(whole, first->shape, sizeof first->shape);
    whole[dimension] = 0;
    for (size_t r = 0; r < join->count; r++) {
        const struct cairn_assembly_tensor *slice = join->slices[r];
        bool fits = slice->dtype == first->dtype &&
                    slice->dimension_count == first->dimension_count &&
                    slice->shape[dimension] % layers == 0 &&
                    slice->shape[dimension] <= UINT64_MAX - whole[dimension];
        for (unsigned d = 0; fits && d < first->dimension_count; d++)
            fits = d == dimension || slice->shape[d] == first->shape[d];
        if (!fits)
            return cairn_fail(err, CAIRN_INVALID, "tensor parallel rank %zu has another form of it",
                              r);
        whole[dimension] += slice->shape[dimension];
    }
    return CAIRN_OK;
}

/* ---- one tensor ---- */

/* *ret: the first rank that has other bytes than rank 0; 0: none has. */
static enum cairn_code find_other(const struct join *join, size_t *ret, struct cairn_error *err) {
    bool same = true;
    for (*ret = 1; *ret < join->count; (*ret)++) {
        CAIRN_TRY(cairn_zero_same(&join->parts[0].assembly, join->slices[0],
                                  &join->parts[*ret].assembly, join->slices[*ret], &same, err));
        if (!same) return CAIRN_OK;
    }
    *ret = 0;
    return CAIRN_OK;
}

static enum cairn_code take_first(struct join *join, struct cairn_error *err) {
    const struct cairn_assembly_tensor *first = join->slices[0];
    CAIRN_TRY(cairn_assembly_add_tensor(join->assembly, first->name, first->dtype,
                                        first->dimension_count, first->shape, err));
    return cairn_assembly_copy_pieces(&join->parts[0].assembly, first, join->assembly, err);
}

static enum cairn_code take_one(struct join *join, const char *what, struct cairn_error *err) {
    size_t other;
    CAIRN_TRY(find_other(join, &other, err));
    if (!other) return take_first(join, err);
    return cairn_fail(err, CAIRN_UNSUPPORTED,
                      "tensor parallel ranks 0 and %zu differ in it, and it is %s", other, what);
}

/* Are all elements of it one value? */
static enum cairn_code is_constant(const struct cairn_assembly *assembly,
                                   const struct cairn_assembly_tensor *tensor, bool *ret,
                                   struct cairn_error *err) {
    CAIRN_AUTO_HEAP char *bytes = malloc(COMPARED_BYTES);
    size_t width = cairn_dtype_bits(tensor->dtype) / 8;
    char value[16];
    if (!bytes) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to compare tensors");
    *ret = width > 0 && width <= sizeof value;
    for (uint64_t at = 0; *ret && at < tensor->size_bytes; at += COMPARED_BYTES) {
        uint64_t some = cairn_min_u64(tensor->size_bytes - at, COMPARED_BYTES);
        CAIRN_TRY(cairn_assembly_read(assembly, tensor, at, bytes, some, err));
        if (at == 0) memcpy(value, bytes, width);
        for (uint64_t i = 0; *ret && i < some; i += width)
            *ret = memcmp(bytes + i, value, width) == 0;
    }
    return CAIRN_OK;
}

/* ---- where neither patterns nor a person tell how it is cut ---- */

static enum cairn_code not_told(const char *why, struct cairn_error *err) {
    return cairn_fail(err, CAIRN_UNSUPPORTED,
                      "without universal_checkpoint_info nobody says how tensor ranks cut it: %s. "
                      "--tp-rule NAME=RULE does: RULE is the dimension, halves or replicated",
                      why);
}

/* A gated layer has two matrices in one: twice the rows that the next layer has columns. */
static bool has_no_gate(const struct join *join, const char *parameter) {
    static const char word[] = "dense_h_to_4h.";
    const struct cairn_assembly *assembly = &join->parts[0].assembly;
    const char *at = strstr(parameter, word);
    char mate[CAIRN_TENSOR_NAME_BYTES_MAX + 1];
    size_t own, next;
    snprintf(mate, sizeof mate, "%.*sdense_4h_to_h.weight", (int)(at - parameter), parameter);
    return cairn_assembly_find(assembly, parameter, &own) &&
           cairn_assembly_find(assembly, mate, &next) &&
           assembly->tensors[next].dimension_count == 2 &&
           assembly->tensors[next].shape[1] == assembly->tensors[own].shape[0];
}

static bool has_version_2(const struct join *join) {
    const struct cairn_pickle *values = &join->parts[0].zero->models[0].torch.values;
    cairn_pickle_ref ref;
    if (!cairn_pickle_find(values, values->root, "checkpoint_version", &ref)) return false;
    const struct cairn_pickle_value *version = cairn_pickle_at(values, ref);
    return version->kind == CAIRN_PICKLE_REAL      ? version->real >= 2
           : version->kind == CAIRN_PICKLE_INTEGER ? version->integer >= 2
                                                   : false;
}

/* Of a parameter by its name and by what its ranks hold. */
static enum cairn_code learn(struct join *join, const char *parameter, struct cairn_zero_cut *ret,
                             struct cairn_error *err) {
    enum cairn_zero_need need = CAIRN_ZERO_NEEDS_NOTHING;
    size_t other = 0;
    bool constant = false;
    if (cairn_zero_megatron_find(parameter, ret, &need)) {
        if (need == CAIRN_ZERO_NEEDS_VERSION && !has_version_2(join))
            return not_told("no checkpoint_version of 2 or more says in which order its "
                            "rows are", err);
        if (need == CAIRN_ZERO_NEEDS_MATE && !has_no_gate(join, parameter))
            return not_told("it may be two matrices of a gated layer", err);
        return CAIRN_OK;
    }
    CAIRN_TRY(find_other(join, &other, err));
    if (other) return not_told("the ranks differ in it", err);
    CAIRN_TRY(is_constant(&join->parts[0].assembly, join->slices[0], &constant, err));
    if (constant)
        return not_told("all its elements are one value, so equal slices say nothing",
                        err);
    *ret = (struct cairn_zero_cut){.rule = CAIRN_ZERO_SAME};
    return CAIRN_OK;
}

/* What the optimizer keeps of a parameter comes behind it, and is cut as that was. */
static enum cairn_code learn_once(struct join *join, const char *parameter,
                                  struct cairn_zero_cut *ret, struct cairn_error *err) {
    size_t at;
    bool found = cairn_assembly_find(&join->parts[0].assembly, parameter, &at);
    if (found && join->cuts[at].rule) {
        *ret = join->cuts[at];
        return CAIRN_OK;
    }
    CAIRN_TRY(learn(join, parameter, ret, err));
    if (found) join->cuts[at] = *ret;
    return CAIRN_OK;
}

/* The parameter to which a tensor belongs: what the optimizer keeps is cut like it. */
static void name_of_parameter(const char *name, char ret[CAIRN_TENSOR_NAME_BYTES_MAX + 1]) {
    size_t size = strlen(CAIRN_ASSEMBLY_OPTIMIZER);
    bool state = strncmp(name, CAIRN_ASSEMBLY_OPTIMIZER, size) == 0;
    snprintf(ret, CAIRN_TENSOR_NAME_BYTES_MAX + 1, "%s", state ? name + size : name);
    char *dot = state ? strrchr(ret, '.') : NULL;
    if (dot) *dot = '\0';
}

static enum cairn_code join_slices(struct join *join, struct cairn_error *err) {
    const struct cairn_assembly_tensor *first = join->slices[0];
    char parameter[CAIRN_TENSOR_NAME_BYTES_MAX + 1];
    uint64_t whole[CAIRN_DIMENSIONS_MAX];
    struct cairn_zero_cut cut = {0};
    name_of_parameter(first->name, parameter);
    if (first->dimension_count == 0) return take_one(join, "a number that is not cut", err);
    bool told = cairn_zero_told_find(join->told, parameter, &cut);
    if (!told && cairn_zero_is_buffer(&join->parts[0].zero->models[0], parameter))
        return take_one(join, "a buffer, of which no rule says how it is cut", err);
    if (!told && join->rules) CAIRN_TRY(cairn_zero_rules_find(join->rules, parameter, &cut, err));
    if (!told && !join->rules) CAIRN_TRY(learn_once(join, parameter, &cut, err));
    if (cut.rule == CAIRN_ZERO_SAME) return take_one(join, "told to be the same", err);
    if (cut.rule == CAIRN_ZERO_AVERAGE) return take_one(join, "told to be averaged", err);
    unsigned dimension = cut.dimension, layers = 1 + (cut.rule == CAIRN_ZERO_HALVES);
    CAIRN_TRY(sum_sizes(join, dimension, layers, whole, err));
    if (cut.rows && (dimension || layers > 1))
        return cairn_fail(err, CAIRN_UNSUPPORTED, "a vocabulary that is not cut in its rows");
    if (cut.rows && cut.rows < whole[0]) whole[0] = cut.rows;
    CAIRN_TRY(cairn_assembly_add_tensor(join->assembly, first->name, first->dtype,
                                        first->dimension_count, whole, err));
    return add_slices(join, dimension, layers, whole, err);
}

/* Of this name in every rank's assembly, where they mostly have the same place. */
static enum cairn_code find_slices(struct join *join, size_t index, struct cairn_error *err) {
    const char *name = join->parts[0].assembly.tensors[index].name;
    for (size_t r = 0; r < join->count; r++) {
        const struct cairn_assembly *assembly = &join->parts[r].assembly;
        size_t at = index;
        if ((at >= assembly->tensor_count || strcmp(assembly->tensors[at].name, name) != 0) &&
            !cairn_assembly_find(assembly, name, &at))
            return cairn_fail(err, CAIRN_INVALID, "tensor parallel rank %zu has none", r);
        join->slices[r] = &assembly->tensors[at];
        bool alias = join->slices[r]->alias_of != CAIRN_ASSEMBLY_NO_ALIAS;
        if (alias != (join->slices[0]->alias_of != CAIRN_ASSEMBLY_NO_ALIAS))
            return cairn_fail(err, CAIRN_INVALID, "tensor parallel rank %zu shares it otherwise",
                              r);
    }
    return CAIRN_OK;
}

static enum cairn_code join_all(struct join *join, struct cairn_error *err) {
    const struct cairn_assembly *first = &join->parts[0].assembly;
    for (size_t r = 1; r < join->count; r++)
        if (join->parts[r].assembly.tensor_count != first->tensor_count)
            return cairn_fail(err, CAIRN_INVALID,
                              "tensor parallel rank %zu has %zu tensors, rank 0 has %zu", r,
                              join->parts[r].assembly.tensor_count, first->tensor_count);
    for (size_t i = 0; i < first->tensor_count; i++) {
        const struct cairn_assembly_tensor *tensor = &first->tensors[i];
        enum cairn_code code = find_slices(join, i, err);
        if (code == CAIRN_OK)
            code = tensor->alias_of == CAIRN_ASSEMBLY_NO_ALIAS
                       ? join_slices(join, err)
                       : cairn_assembly_add_alias(join->assembly, tensor->name, tensor->alias_of,
                                                  err);
        if (code) return cairn_within(err, code, "%s", cairn_short(tensor->name).text);
        join->assembly->tensors[join->assembly->tensor_count - 1].frozen = tensor->frozen;
    }
    join->assembly->knows_frozen = first->knows_frozen;
    for (size_t i = 0; i < first->left_out_count; i++)
        CAIRN_TRY(cairn_assembly_leave_out(join->assembly, first->left_out[i].name,
                                           first->left_out[i].why, err));
    return CAIRN_OK;
}

enum cairn_code cairn_zero_parallel_join(const struct cairn_zero_part *parts, size_t count,
                                         struct cairn_zero_told *told,
                                         struct cairn_assembly *assembly,
                                         struct cairn_error *err) {
    struct join join = {.parts = parts, .count = count, .told = told, .assembly = assembly};
    CAIRN_AUTO_HEAP const struct cairn_assembly_tensor **slices = calloc(count, sizeof *slices);
    if (!slices) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for ranks");
    join.slices = slices;
    CAIRN_AUTO_HEAP struct cairn_zero_cut *cuts =
        calloc(parts[0].assembly.tensor_count + 1, sizeof *cuts);
    if (!cuts) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for tensors");
    join.cuts = cuts;
    for (size_t r = 0; r < count; r++)
        CAIRN_TRY(cairn_assembly_copy_seals(assembly, &parts[r].assembly, err));
    enum cairn_code code = cairn_zero_rules_read(parts[0].zero, &join.rules, err);
    if (code == CAIRN_OK) code = join_all(&join, err);
    cairn_zero_rules_free(join.rules);
    return code;
}
