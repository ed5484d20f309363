/* SPDX-License-Identifier: Apache-2.0 */
/* Each file of a parameter's folder holds one tensor, alone or with a description of its cut. The
 * models' files have shapes, and tensors without optimizer state. */
#include "formats/zero/zero.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/text.h"
#include "formats/zero/inside.h"

#define VALUES "fp32"

#define STATE CAIRN_ZERO_UNIVERSAL "optimizer_state.pt"
#define PARTITIONED "zero_pp_rank_" /* begins stage 3 models' file names */

struct universal {
    const struct cairn_zero_folder *folder;
    bool optimizer;
    struct cairn_assembly *assembly;
    struct cairn_zero_part *parts; /* models' files, by model parallel rank */
    size_t part_count;
    cairn_pickle_ref shapes; /* in the first part's first file; valid if part_count > 0 */
    bool flat;               /* only the models' files have shapes */
};
struct parsed {
    char parameter[CAIRN_TENSOR_NAME_BYTES_MAX + 1], what[64];
};

static bool parse(const char *name, struct parsed *ret) {
    size_t head = strlen(CAIRN_ZERO_UNIVERSAL), size = strlen(name);
    const char *slash = strrchr(name, '/');
    if (!cairn_text_starts(name, CAIRN_ZERO_UNIVERSAL) || slash <= name + head ||
        !cairn_text_ends(name, ".pt"))
        return false;
    size_t parameter = (size_t)(slash - name) - head, what = size - 3 - (size_t)(slash + 1 - name);
    if (parameter >= sizeof ret->parameter || what >= sizeof ret->what) return false;
    memcpy(ret->parameter, name + head, parameter);
    memcpy(ret->what, slash + 1, what);
    ret->parameter[parameter] = ret->what[what] = '\0';
    return true;
}

bool cairn_zero_universal_is(const struct cairn_zero_folder *folder) {
    struct parsed parsed;
    for (size_t i = 0; i < folder->count; i++)
        if (parse(folder->names[i], &parsed) && strcmp(parsed.what, VALUES) == 0) return true;
    return false;
}

/* The file's only tensor, or the one named `param`; NULL: none. */
static const struct cairn_assembly_tensor *choose(const struct cairn_assembly *own) {
    size_t at;
    if (cairn_assembly_find(own, "param", &at)) return &own->tensors[at];
    return own->tensor_count == 1 ? &own->tensors[0] : NULL;
}

/* The converter leaves stage 3 tensors flat: the models' files have their shapes. */
static enum cairn_code find_shape(const struct universal *universal, const char *parameter,
                                  const struct cairn_assembly_tensor *tensor, uint64_t *ret_shape,
                                  unsigned *ret_count, struct cairn_error *err) {
    const struct cairn_torch *model = &universal->parts[0].zero->models[0].torch;
    const struct cairn_pickle_value *groups = cairn_pickle_at(&model->values, universal->shapes);
    cairn_pickle_ref shape;
    uint64_t elements, bytes = 0;
    bool found = false;
    for (uint32_t g = 0; !found && groups->kind == CAIRN_PICKLE_LIST && g < groups->count; g++)
        found = cairn_pickle_find(&model->values, groups->items[g], parameter, &shape);
    if (!found)
        return cairn_fail(err, CAIRN_CORRUPT, "%s does not tell the shape of %s",
                          universal->parts[0].zero->models[0].name, cairn_short(parameter).text);
    CAIRN_TRY(cairn_torch_sizes(model, shape, ret_shape, ret_count, err));
    if (cairn_tensor_size(tensor->dtype, *ret_count, ret_shape, &elements, &bytes) &&
        bytes == tensor->size_bytes)
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_CORRUPT,
                      "it has %" PRIu64 " bytes, of the shape in %s it would have %" PRIu64,
                      tensor->size_bytes, universal->parts[0].zero->models[0].name, bytes);
}

static enum cairn_code add_tensor(const struct universal *universal, const char *parameter,
                                  const char *name, const struct cairn_torch *file, bool values,
                                  struct cairn_assembly *own, struct cairn_error *err) {
    uint64_t shape[CAIRN_DIMENSIONS_MAX] = {0};
    CAIRN_TRY(cairn_torch_assemble(file, "", own, err));
    CAIRN_TRY(cairn_assembly_check(own, err));
    CAIRN_TRY(cairn_assembly_copy_seals(universal->assembly, own, err));
    const struct cairn_assembly_tensor *tensor = choose(own);
    if (!tensor && !values)
        return cairn_assembly_leave_out(universal->assembly, name, "it is no tensor", err);
    if (!tensor) return cairn_fail(err, CAIRN_INVALID, "it holds no tensor `param`");
    unsigned count = tensor->dimension_count;
    memcpy(shape, tensor->shape, sizeof shape);
    if (universal->flat && count == 1) {
        CAIRN_TRY(cairn_assembly_unroll(own, (size_t)(tensor - own->tensors), err));
        CAIRN_TRY(find_shape(universal, parameter, tensor, shape, &count, err));
    }
    CAIRN_TRY(
        cairn_assembly_add_tensor(universal->assembly, name, tensor->dtype, count, shape, err));
    return cairn_assembly_copy_pieces(own, tensor, universal->assembly, err);
}

static enum cairn_code add_file(const struct universal *universal, const char *path,
                                const struct parsed *parsed, struct cairn_error *err) {
    bool values = strcmp(parsed->what, VALUES) == 0;
    const struct cairn_input *input;
    CAIRN_AUTO(buf) name = {0};
    struct cairn_assembly own = {0};
    struct cairn_torch file;
    if (!values && !universal->optimizer) return CAIRN_OK;
    CAIRN_TRY(cairn_buf_printf(&name, err, "%s%s%s%s", values ? "" : CAIRN_ASSEMBLY_OPTIMIZER,
                               parsed->parameter, values ? "" : ".", values ? "" : parsed->what));
    CAIRN_TRY(universal->folder->open(universal->folder->context, path, &input, err));
    CAIRN_TRY(cairn_torch_open(input, universal->folder->strict, &file, err));
    enum cairn_code code = cairn_torch_need_ranges(&file, err);
    if (code == CAIRN_OK)
        code = add_tensor(universal, parsed->parameter, name.data, &file, values, &own, err);
    cairn_assembly_release(&own);
    cairn_torch_release(&file);
    return code;
}

/* Checks the previous parameter, whose files are complete since names are sorted. */
static enum cairn_code check_values(const struct parsed *last, bool has_values,
                                    struct cairn_error *err) {
    if (has_values || !last->parameter[0]) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, CAIRN_ZERO_UNIVERSAL "%s has no " VALUES ".pt",
                      cairn_short(last->parameter).text);
}

static enum cairn_code add_all(const struct universal *universal, struct cairn_error *err) {
    const struct cairn_zero_folder *folder = universal->folder;
    struct parsed last = {0}, parsed;
    bool has_values = false;
    for (size_t i = 0; i < folder->count; i++) {
        const char *path = folder->names[i];
        if (!cairn_text_starts(path, CAIRN_ZERO_UNIVERSAL)) continue;
        bool below = strchr(path + strlen(CAIRN_ZERO_UNIVERSAL), '/') != NULL;
        if (!below && !cairn_text_ends(path, ".pt")) continue; /* a parameter's folder, listed */
        if (!parse(path, &parsed)) {
            CAIRN_TRY(cairn_assembly_leave_out(universal->assembly, path,
                                               "a file that belongs to no parameter", err));
            continue;
        }
        if (strcmp(last.parameter, parsed.parameter) != 0) {
            CAIRN_TRY(check_values(&last, has_values, err));
            has_values = false;
        }
        last = parsed;
        has_values |= strcmp(parsed.what, VALUES) == 0;
        enum cairn_code code = add_file(universal, path, &parsed, err);
        if (code) return cairn_within(err, code, "%s", path);
    }
    CAIRN_TRY(check_values(&last, has_values, err));
    if (universal->optimizer) return CAIRN_OK;
    return cairn_assembly_leave_out(universal->assembly, CAIRN_ASSEMBLY_OPTIMIZER,
                                    CAIRN_ASSEMBLY_WITHOUT_OPTIMIZER, err);
}

/* Opens the files of one model parallel rank; the converter copies none of layers and experts. */
static enum cairn_code open_part(struct universal *universal, unsigned rank,
                                 struct cairn_error *err) {
    const struct cairn_zero_folder *folder = universal->folder;
    CAIRN_AUTO_HEAP const char **names = calloc(folder->count + 1, sizeof *names);
    struct cairn_zero_folder own = {
        .context = folder->context, .names = names, .open = folder->open};
    struct cairn_zero *zero = calloc(1, sizeof *zero);
    if (!names || !zero) {
        free(zero);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the models' files");
    }
    universal->parts[rank].zero = zero;
    for (size_t i = 0; i < folder->count; i++) {
        unsigned part;
        if (strchr(folder->names[i], '/') || !cairn_zero_model_rank(folder->names[i], &part) ||
            part != rank)
            continue;
        names[own.count++] = folder->names[i];
        if (strncmp(folder->names[i], PARTITIONED, strlen(PARTITIONED)) == 0) zero->stage = 3;
    }
    CAIRN_TRY(cairn_zero_models_open(&own, zero, err));
    return zero->model_count
               ? CAIRN_OK
               : cairn_fail(err, CAIRN_NOT_FOUND,
                            "of model parallel rank %u no *_model_states.pt is there", rank);
}

/* Without models' files the optimizer's state tells the stage. */
static enum cairn_code check_stage(const struct universal *universal, struct cairn_error *err) {
    const struct cairn_zero_folder *folder = universal->folder;
    struct cairn_zero_file file = {.name = STATE};
    int64_t stage = 0;
    if (!cairn_zero_folder_has(folder, STATE)) return CAIRN_OK;
    CAIRN_TRY(folder->open(folder->context, STATE, &file.input, err));
    CAIRN_TRY(cairn_torch_open(file.input, universal->folder->strict, &file.torch, err));
    cairn_pickle_ref value;
    if (cairn_pickle_find(&file.torch.values, file.torch.values.root, "zero_stage", &value))
        stage = cairn_zero_integer(&file, value);
    cairn_torch_release(&file.torch);
    if (stage != 3) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NOT_FOUND,
                      "no file " PARTITIONED "*_model_states.pt is there, which has the shapes of "
                      "parameters and what was not trained: it is of ZeRO stage 3");
}

static enum cairn_code open_parts(struct universal *universal, struct cairn_error *err) {
    const struct cairn_zero_folder *folder = universal->folder;
    size_t count = 0;
    for (size_t i = 0; i < folder->count; i++) {
        unsigned part;
        if (strchr(folder->names[i], '/') || !cairn_zero_model_rank(folder->names[i], &part))
            continue;
        if (part >= count) count = (size_t)part + 1;
    }
    if (!count) return check_stage(universal, err);
    universal->parts = calloc(count, sizeof *universal->parts);
    if (!universal->parts) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for ranks");
    universal->part_count = count;
    for (size_t i = 0; i < count; i++) CAIRN_TRY(open_part(universal, (unsigned)i, err));
    const struct cairn_zero *first = universal->parts[0].zero;
    const struct cairn_pickle *values = &first->models[0].torch.values;
    universal->flat = first->stage == 3 && count == 1 &&
                      cairn_pickle_find(values, values->root, "param_shapes", &universal->shapes);
    universal->assembly->knows_frozen = universal->flat; /* trained parameters have a folder */
    return CAIRN_OK;
}

/* Joins the ranks' slices by their rule; without a rule they are left out. */
static enum cairn_code join_rest(struct universal *universal, struct cairn_error *err) {
    struct cairn_assembly whole = {0};
    struct cairn_zero_told told = {0};
    struct cairn_error why = {0};
    const struct cairn_assembly *first = &universal->parts[0].assembly;
    for (size_t i = 0; i < universal->part_count; i++)
        CAIRN_TRY(cairn_zero_merge_rest(universal->parts[i].zero, universal->assembly,
                                        &universal->parts[i].assembly, err));
    enum cairn_code code =
        cairn_zero_parallel_join(universal->parts, universal->part_count, &told, &whole, &why);
    if (code == CAIRN_OK) {
        for (size_t i = 0; code == CAIRN_OK && i < whole.tensor_count; i++)
            code = cairn_assembly_take(&whole, i, universal->assembly, err);
        if (code == CAIRN_OK) code = cairn_assembly_take_rest(&whole, universal->assembly, err);
    } else if (code == CAIRN_UNSUPPORTED || code == CAIRN_INVALID) {
        code = CAIRN_OK;
        for (size_t i = 0; code == CAIRN_OK && i < first->tensor_count; i++)
            code = cairn_assembly_leave_out(universal->assembly, first->tensors[i].name,
                                            why.message, err);
    } else if (err) {
        *err = why;
    }
    cairn_assembly_release(&whole);
    return code;
}

static enum cairn_code add_rest(struct universal *universal, struct cairn_error *err) {
    cairn_pickle_ref module;
    if (!universal->part_count) return CAIRN_OK;
    const struct cairn_pickle *values = &universal->parts[0].zero->models[0].torch.values;
    /* For a pipeline it is in the layers' files, which the converter does not copy. */
    if (!cairn_pickle_find(values, values->root, "module", &module) ||
        cairn_pickle_at(values, module)->kind == CAIRN_PICKLE_NONE)
        return CAIRN_OK;
    if (universal->part_count > 1) return join_rest(universal, err);
    return cairn_zero_merge_rest(universal->parts[0].zero, universal->assembly, universal->assembly,
                                 err);
}

enum cairn_code cairn_zero_universal_open(const struct cairn_zero_folder *folder, bool optimizer,
                                          struct cairn_assembly *assembly,
                                          struct cairn_error *err) {
    struct universal universal = {.folder = folder, .optimizer = optimizer, .assembly = assembly};
    enum cairn_code code = open_parts(&universal, err);
    if (code == CAIRN_OK) code = add_all(&universal, err);
    if (code == CAIRN_OK) code = add_rest(&universal, err);
    for (size_t i = 0; i < universal.part_count; i++) {
        if (universal.parts[i].zero) cairn_zero_free(universal.parts[i].zero);
        cairn_assembly_release(&universal.parts[i].assembly);
    }
    free(universal.parts);
    return code ? code : cairn_assembly_check(assembly, err);
}
