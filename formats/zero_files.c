/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a ZeRO checkpoint: which there are, whose they are, and their flat partitions. */
#include "formats/zero_inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/table/dtype.h"
#include "common/buf.h"

#define MODEL_STATES "_model_states.pt"
#define OPTIMIZER_STATES "_optim_states.pt"
#define FLAT_GROUPS "single_partition_of_fp32_groups" /* all that the BF16 optimizer tells */
#define RANKS_MAX 65536
#define GROUPS_MAX 1048576

static bool ends(const char *name, const char *end) {
    size_t size = strlen(name), tail = strlen(end);
    return size > tail && strcmp(name + size - tail, end) == 0;
}

/* The number behind `word` in a name; false: the word is not there. */
static bool number_behind(const char *name, const char *word, unsigned *ret) {
    const char *at = strstr(name, word);
    char *end;
    if (!at) return false;
    at += strlen(word);
    unsigned long number = strtoul(at, &end, 10);
    if (end == at || number >= RANKS_MAX) return false;
    *ret = (unsigned)number;
    return true;
}

bool cairn_zero_is(const struct cairn_zero_folder *folder) {
    for (size_t i = 0; i < folder->count; i++)
        if (ends(folder->names[i], MODEL_STATES) || ends(folder->names[i], OPTIMIZER_STATES))
            return true; /* without the one or the other it is incomplete */
    return false;
}

/* ---- which files ---- */

bool cairn_zero_model_rank(const char *name, unsigned *ret) {
    *ret = 0;
    if (strncmp(name, "layer_", 6) == 0 || strncmp(name, "expert_", 7) == 0 ||
        strncmp(name, "expp_rank_", 10) == 0 ||
        !(ends(name, MODEL_STATES) || ends(name, OPTIMIZER_STATES)))
        return false;
    number_behind(name, "mp_rank_", ret);
    return true;
}

static int by_rank(const void *a, const void *b) {
    const struct cairn_zero_file *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static enum cairn_code list(const struct cairn_zero_folder *folder, const char *end,
                            struct cairn_zero_file **ret, size_t *ret_count,
                            struct cairn_error *err) {
    size_t capacity = 0;
    for (size_t i = 0; i < folder->count; i++) {
        struct cairn_zero_file file = {.name = folder->names[i]};
        if (!ends(file.name, end)) continue;
        number_behind(file.name, "zero_pp_rank_", &file.rank);
        CAIRN_TRY(CAIRN_ARRAY_ROOM(*ret, *ret_count, capacity, RANKS_MAX, "ranks", err));
        (*ret)[(*ret_count)++] = file;
    }
    if (*ret_count) qsort(*ret, *ret_count, sizeof **ret, by_rank);
    for (size_t i = 0; i < *ret_count; i++) {
        if ((*ret)[i].rank == i) continue;
        return cairn_fail(err, CAIRN_INVALID, "of rank %zu no file *%s is there: the folder has %s",
                          i, end, (*ret)[i].name);
    }
    return CAIRN_OK;
}

static enum cairn_code open_all(const struct cairn_zero_folder *folder,
                                struct cairn_zero_file *files, size_t count,
                                struct cairn_error *err) {
    for (size_t i = 0; i < count; i++) {
        struct cairn_zero_file *file = &files[i];
        enum cairn_code code = folder->open(folder->context, file->name, &file->input, err);
        if (code == CAIRN_OK)
            code = cairn_torch_open(file->input, folder->strict, &file->torch, err);
        if (code == CAIRN_OK) code = cairn_torch_need_ranges(&file->torch, err);
        if (code != CAIRN_OK) return cairn_within(err, code, "%s", file->name);
    }
    return CAIRN_OK;
}

/* ---- values ---- */

enum cairn_code cairn_zero_field(const struct cairn_zero_file *file, cairn_pickle_ref of,
                                 const char *key, cairn_pickle_ref *ret, struct cairn_error *err) {
    if (cairn_pickle_find(&file->torch.values, of, key, ret)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "%s has no %s: DeepSpeed did not write it", file->name,
                      key);
}

enum cairn_code cairn_zero_range(const struct cairn_zero_file *file, cairn_pickle_ref ref,
                                 struct cairn_assembly *assembly, struct cairn_torch_tensor *ret,
                                 struct cairn_zero_flat *ret_range, struct cairn_error *err) {
    CAIRN_TRY(cairn_torch_tensor(&file->torch, ref, ret, err));
    struct cairn_seal seal;
    struct cairn_view name;
    unsigned flip;
    CAIRN_TRY(cairn_assembly_flips(ret->dtype, ret->conjugated, ret->negated, &flip, err));
    if (!ret->contiguous || flip)
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "a tensor that is not in row-major order, or negated");
    CAIRN_TRY(cairn_torch_storage_at(&file->torch, ret, &ret_range->offset_bytes, err));
    CAIRN_TRY(cairn_assembly_add_input(assembly, file->input, &ret_range->input, err));
    bool sealed = cairn_torch_seal(&file->torch, ret, ret_range->offset_bytes, &seal, &name);
    seal.input = ret_range->input;
    ret_range->offset_bytes += ret->offset_bytes;
    ret_range->elements = ret->elements;
    return sealed ? cairn_seals_add(&assembly->seals, &seal, name, err) : CAIRN_OK;
}

static enum cairn_code read_buffers(struct cairn_zero_file *model, struct cairn_error *err) {
    const struct cairn_pickle *values = &model->torch.values;
    cairn_pickle_ref names;
    uint32_t number;
    if (!cairn_pickle_find(values, values->root, "buffer_names", &names)) return CAIRN_OK;
    const struct cairn_pickle_value *list_of = cairn_zero_value(model, names);
    for (uint32_t i = 0; list_of->kind == CAIRN_PICKLE_LIST && i < list_of->count; i++) {
        const struct cairn_pickle_value *text = cairn_zero_value(model, list_of->items[i]);
        if (text->kind == CAIRN_PICKLE_TEXT)
            CAIRN_TRY(cairn_names_add(&model->buffers, text->text, &number, err));
    }
    return CAIRN_OK;
}

bool cairn_zero_is_buffer(const struct cairn_zero_file *model, const char *name) {
    return cairn_names_has(&model->buffers, cairn_view_of(name));
}

int64_t cairn_zero_integer(const struct cairn_zero_file *file, cairn_pickle_ref ref) {
    const struct cairn_pickle_value *value = cairn_zero_value(file, ref);
    if (value->kind == CAIRN_PICKLE_OBJECT) {
        const struct cairn_pickle_value *arguments = cairn_zero_value(file, value->arguments);
        if (arguments->count != 1) return -1;
        value = cairn_zero_value(file, arguments->items[0]);
    }
    return value->kind == CAIRN_PICKLE_INTEGER ? value->integer : -1;
}

/* ---- the partitions ---- */

enum cairn_code cairn_zero_channel_begin(struct cairn_zero *zero,
                                         struct cairn_zero_channel *channel,
                                         struct cairn_error *err) {
    channel->partitions = calloc(zero->rank_count, sizeof *channel->partitions);
    return channel->partitions ? CAIRN_OK
                               : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for partitions");
}

void cairn_zero_channel_release(const struct cairn_zero *zero,
                                struct cairn_zero_channel *channel) {
    for (size_t r = 0; channel->partitions && r < zero->rank_count; r++)
        free(channel->partitions[r].flats);
    free(channel->partitions);
    *channel = (struct cairn_zero_channel){0};
}

static enum cairn_code read_flat(struct cairn_zero_channel *channel,
                                 const struct cairn_zero_file *file, cairn_pickle_ref ref,
                                 struct cairn_assembly *assembly, struct cairn_zero_flat *ret,
                                 struct cairn_error *err) {
    struct cairn_torch_tensor tensor;
    CAIRN_TRY(cairn_zero_range(file, ref, assembly, &tensor, ret, err));
    if (channel->dtype == CAIRN_DTYPE_NONE) {
        channel->dtype = tensor.dtype;
        channel->width = cairn_dtype_bits(tensor.dtype) / 8;
    }
    if (tensor.dtype == channel->dtype) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "partitions of %s and of %s",
                      cairn_dtype_text(channel->dtype), cairn_dtype_text(tensor.dtype));
}

static enum cairn_code read_partition(struct cairn_zero *zero, struct cairn_zero_file *file,
                                      cairn_pickle_ref optimizer, struct cairn_assembly *assembly,
                                      struct cairn_error *err) {
    struct cairn_zero_channel *values = &zero->channels[0];
    struct cairn_zero_partition *partition = &values->partitions[file->rank];
    const char *key = zero->stage == 3 ? "fp32_flat_groups" : FLAT_GROUPS;
    cairn_pickle_ref groups;
    CAIRN_TRY(cairn_zero_field(file, optimizer, key, &groups, err));
    const struct cairn_pickle_value *list_of = cairn_zero_value(file, groups);
    if (list_of->kind != CAIRN_PICKLE_LIST || list_of->count > GROUPS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "%s: %s is no list", file->name, key);
    partition->flats = calloc(list_of->count + 1, sizeof *partition->flats);
    if (!partition->flats) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for partitions");
    partition->count = list_of->count;
    for (uint32_t i = 0; i < list_of->count; i++) {
        enum cairn_code code = read_flat(values, file, cairn_zero_value(file, groups)->items[i],
                                         assembly, &partition->flats[i], err);
        if (code != CAIRN_OK) return cairn_within(err, code, "%s: %s.%u", file->name, key, i);
    }
    return CAIRN_OK;
}

/* How many ranks the optimizer's state was cut for: a number, or the largest of a list. */
static enum cairn_code check_rank_count(const struct cairn_zero *zero,
                                        const struct cairn_zero_file *file,
                                        cairn_pickle_ref optimizer, struct cairn_error *err) {
    cairn_pickle_ref count;
    CAIRN_TRY(cairn_zero_field(file, optimizer, "partition_count", &count, err));
    const struct cairn_pickle_value *value = cairn_zero_value(file, count);
    int64_t most = cairn_zero_integer(file, count);
    for (uint32_t i = 0; value->kind == CAIRN_PICKLE_LIST && i < value->count; i++) {
        int64_t of_group = cairn_zero_integer(file, value->items[i]);
        if (of_group > most) most = of_group;
    }
    if (most == (int64_t)zero->rank_count) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "%s was written by %" PRId64 " ranks, and %zu optimizer files are there",
                      file->name, most, zero->rank_count);
}

enum cairn_code cairn_zero_group_ranks(const struct cairn_zero *zero, uint32_t group, uint64_t *ret,
                                       struct cairn_error *err) {
    cairn_pickle_ref optimizer, count;
    for (size_t r = 0; r < zero->rank_count; r++) {
        const struct cairn_zero_file *file = &zero->optimizers[r];
        CAIRN_TRY(cairn_zero_field(file, file->torch.values.root, "optimizer_state_dict",
                                   &optimizer, err));
        CAIRN_TRY(cairn_zero_field(file, optimizer, "partition_count", &count, err));
        const struct cairn_pickle_value *value = cairn_zero_value(file, count);
        bool list_of = value->kind == CAIRN_PICKLE_LIST;
        int64_t ranks = !list_of               ? cairn_zero_integer(file, count)
                        : group < value->count ? cairn_zero_integer(file, value->items[group])
                                               : -1;
        if (ranks < 1 || (r && (uint64_t)ranks != *ret))
            return cairn_fail(err, CAIRN_INVALID,
                              "%s: partition_count says %" PRId64 " for group %u%s", file->name,
                              ranks, group, ranks < 1 ? "" : ", and rank 0 another");
        *ret = (uint64_t)ranks;
    }
    return CAIRN_OK;
}

/* A list's element; false: it is no list, or shorter. */
static bool at_place(const struct cairn_zero_file *file, cairn_pickle_ref of, size_t place,
                     cairn_pickle_ref *ret) {
    const struct cairn_pickle_value *value = cairn_zero_value(file, of);
    if (value->kind != CAIRN_PICKLE_LIST || place >= value->count) return false;
    *ret = value->items[place];
    return true;
}

enum cairn_code cairn_zero_padding(const struct cairn_zero *zero, size_t rank, size_t group,
                                   size_t parameter, uint64_t *ret, struct cairn_error *err) {
    const struct cairn_zero_file *file = &zero->optimizers[rank];
    const struct cairn_pickle *values = &file->torch.values;
    cairn_pickle_ref optimizer, paddings, of_group, padding;
    *ret = 0;
    if (!cairn_pickle_find(values, values->root, "optimizer_state_dict", &optimizer) ||
        !cairn_pickle_find(values, optimizer, "param_alignment_paddings", &paddings))
        return CAIRN_OK;
    int64_t elements = -1;
    if (at_place(file, paddings, group, &of_group) &&
        at_place(file, of_group, parameter, &padding))
        elements = cairn_zero_integer(file, padding);
    if (elements < 0)
        return cairn_fail(err, CAIRN_INVALID, "%s: param_alignment_paddings has none of it",
                          file->name);
    *ret = (uint64_t)elements;
    return CAIRN_OK;
}

static enum cairn_code read_optimizer(struct cairn_zero *zero, struct cairn_zero_file *file,
                                      struct cairn_assembly *assembly, struct cairn_error *err) {
    cairn_pickle_ref optimizer, stage;
    CAIRN_TRY(
        cairn_zero_field(file, file->torch.values.root, "optimizer_state_dict", &optimizer, err));
    int64_t number = 1;
    if (cairn_pickle_find(&file->torch.values, optimizer, "zero_stage", &stage))
        number = cairn_zero_integer(file, stage);
    else if (!cairn_pickle_find(&file->torch.values, optimizer, FLAT_GROUPS, &stage))
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "%s has neither a zero_stage nor " FLAT_GROUPS
                          ": its optimizer is none that partitions",
                          file->name);
    if (number < 1 || number > 3)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "%s: ZeRO stage %" PRId64, file->name, number);
    if (zero->stage && zero->stage != (unsigned)number)
        return cairn_fail(err, CAIRN_INVALID, "%s is of stage %" PRId64 ", rank 0's of %u",
                          file->name, number, zero->stage);
    zero->stage = (unsigned)number;
    CAIRN_TRY(check_rank_count(zero, file, optimizer, err));
    return read_partition(zero, file, optimizer, assembly, err);
}

/* Without a file of partitions the model's own must have the weights. */
static enum cairn_code check_unpartitioned(const struct cairn_zero_file *model,
                                           struct cairn_error *err) {
    const struct cairn_pickle *values = &model->torch.values;
    cairn_pickle_ref config, zero, stage;
    bool stated = cairn_pickle_find(values, values->root, "ds_config", &config) &&
                  cairn_pickle_find(values, config, "zero_optimization", &zero) &&
                  cairn_pickle_find(values, zero, "stage", &stage);
    if (!stated || cairn_zero_integer(model, stage) == 0) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "no file *%s is there, and %s was written with ZeRO of stage %" PRId64,
                      OPTIMIZER_STATES, model->name, cairn_zero_integer(model, stage));
}

enum cairn_code cairn_zero_models_open(const struct cairn_zero_folder *folder,
                                       struct cairn_zero *zero, struct cairn_error *err) {
    CAIRN_TRY(list(folder, MODEL_STATES, &zero->models, &zero->model_count, err));
    CAIRN_TRY(open_all(folder, zero->models, zero->model_count, err));
    for (size_t i = 0; i < zero->model_count; i++) CAIRN_TRY(read_buffers(&zero->models[i], err));
    return CAIRN_OK;
}

enum cairn_code cairn_zero_files_open(const struct cairn_zero_folder *folder,
                                      struct cairn_assembly *assembly, struct cairn_zero *zero,
                                      struct cairn_error *err) {
    CAIRN_TRY(list(folder, OPTIMIZER_STATES, &zero->optimizers, &zero->rank_count, err));
    CAIRN_TRY(cairn_zero_models_open(folder, zero, err));
    if (zero->model_count == 0)
        return cairn_fail(err, CAIRN_INVALID, "no file *%s of it is there", MODEL_STATES);
    if (zero->rank_count == 0) return check_unpartitioned(&zero->models[0], err);
    CAIRN_TRY(open_all(folder, zero->optimizers, zero->rank_count, err));
    zero->channel_count = 1;
    CAIRN_TRY(cairn_zero_channel_begin(zero, &zero->channels[0], err));
    for (size_t i = 0; i < zero->rank_count; i++)
        CAIRN_TRY(read_optimizer(zero, &zero->optimizers[i], assembly, err));
    if (zero->stage == 3 && zero->model_count != zero->rank_count)
        return cairn_fail(err, CAIRN_INVALID, "%zu model files of %zu ranks are there",
                          zero->model_count, zero->rank_count);
    return CAIRN_OK;
}
