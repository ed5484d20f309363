/* SPDX-License-Identifier: Apache-2.0 */
/* Finds a ZeRO checkpoint's files, reads their partitions, and makes parameters of them. */
#include "formats/zero/zero.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/table/dtype.h"
#include "common/buf.h"
#include "common/text.h"
#include "formats/zero/inside.h"

#define MODEL_STATES "_model_states.pt"
#define OPTIMIZER_STATES "_optim_states.pt"
#define FLAT_GROUPS "single_partition_of_fp32_groups" /* all that the BF16 optimizer states */
#define RANKS_MAX 65536
#define GROUPS_MAX 1048576

/* The number after `word` in a name; false: no such word. */
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
        if (cairn_text_ends(folder->names[i], MODEL_STATES) ||
            cairn_text_ends(folder->names[i], OPTIMIZER_STATES))
            return true; /* incomplete without the other kind */
    return false;
}

bool cairn_zero_model_rank(const char *name, unsigned *ret) {
    *ret = 0;
    if (strncmp(name, "layer_", 6) == 0 || strncmp(name, "expert_", 7) == 0 ||
        strncmp(name, "expp_rank_", 10) == 0 ||
        !(cairn_text_ends(name, MODEL_STATES) || cairn_text_ends(name, OPTIMIZER_STATES)))
        return false;
    number_behind(name, "mp_rank_", ret);
    return true;
}

static int by_rank(const void *a, const void *b) {
    const struct cairn_zero_file *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static enum cairn_code list_files(const struct cairn_zero_folder *folder, const char *end,
                                  struct cairn_zero_file **ret, size_t *ret_count,
                                  struct cairn_error *err) {
    size_t capacity = 0;
    for (size_t i = 0; i < folder->count; i++) {
        struct cairn_zero_file file = {.name = folder->names[i]};
        if (!cairn_text_ends(file.name, end)) continue;
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

enum cairn_code cairn_zero_field(const struct cairn_zero_file *file, cairn_pickle_ref of,
                                 const char *key, cairn_pickle_ref *ret, struct cairn_error *err) {
    if (cairn_pickle_find(&file->torch.values, of, key, ret)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "%s has no %s: DeepSpeed did not write it", file->name,
                      key);
}

/* The range of a contiguous tensor in the assembly's input. */
static enum cairn_code range_of(const struct cairn_zero_file *file, cairn_pickle_ref ref,
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

static enum cairn_code begin_channel(struct cairn_zero *zero, struct cairn_zero_channel *channel,
                                     struct cairn_error *err) {
    channel->partitions = calloc(zero->rank_count, sizeof *channel->partitions);
    return channel->partitions ? CAIRN_OK
                               : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for partitions");
}

static void channel_release(const struct cairn_zero *zero, struct cairn_zero_channel *channel) {
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
    CAIRN_TRY(range_of(file, ref, assembly, &tensor, ret, err));
    if (channel->dtype == CAIRN_DTYPE_NONE) {
        channel->dtype = tensor.dtype;
        channel->width = cairn_dtype_bits(tensor.dtype) / 8;
    }
    if (tensor.dtype == channel->dtype) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "partitions of %s and of %s",
                      cairn_dtype_text(channel->dtype), cairn_dtype_text(tensor.dtype));
}

/* The number of ranks in the optimizer's state: a number, or the largest of a list. */
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

/* A list's element; false: no list, or too short. */
static bool at_place(const struct cairn_zero_file *file, cairn_pickle_ref of, size_t place,
                     cairn_pickle_ref *ret) {
    const struct cairn_pickle_value *value = cairn_zero_value(file, of);
    if (value->kind != CAIRN_PICKLE_LIST || place >= value->count) return false;
    *ret = value->items[place];
    return true;
}

/* Padding after a group's parameter if each begins at a multiple of 16 bytes; else 0. */
static enum cairn_code padding_of(const struct cairn_zero *zero, size_t rank, size_t group,
                                  size_t parameter, uint64_t *ret, struct cairn_error *err) {
    const struct cairn_zero_file *file = &zero->optimizers[rank];
    const struct cairn_pickle *values = &file->torch.values;
    cairn_pickle_ref optimizer, paddings, of_group, padding;
    *ret = 0;
    if (!cairn_pickle_find(values, values->root, "optimizer_state_dict", &optimizer) ||
        !cairn_pickle_find(values, optimizer, "param_alignment_paddings", &paddings))
        return CAIRN_OK;
    int64_t elements = -1;
    if (at_place(file, paddings, group, &of_group) && at_place(file, of_group, parameter, &padding))
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

/* Without partitions the model's own file must have the weights. */
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
    CAIRN_TRY(list_files(folder, MODEL_STATES, &zero->models, &zero->model_count, err));
    CAIRN_TRY(open_all(folder, zero->models, zero->model_count, err));
    for (size_t i = 0; i < zero->model_count; i++) CAIRN_TRY(read_buffers(&zero->models[i], err));
    return CAIRN_OK;
}

static enum cairn_code open_files(const struct cairn_zero_folder *folder,
                                  struct cairn_assembly *assembly, struct cairn_zero *zero,
                                  struct cairn_error *err) {
    CAIRN_TRY(list_files(folder, OPTIMIZER_STATES, &zero->optimizers, &zero->rank_count, err));
    CAIRN_TRY(cairn_zero_models_open(folder, zero, err));
    if (zero->model_count == 0)
        return cairn_fail(err, CAIRN_INVALID, "no file *%s of it is there", MODEL_STATES);
    if (zero->rank_count == 0) return check_unpartitioned(&zero->models[0], err);
    CAIRN_TRY(open_all(folder, zero->optimizers, zero->rank_count, err));
    zero->channel_count = 1;
    CAIRN_TRY(begin_channel(zero, &zero->channels[0], err));
    for (size_t i = 0; i < zero->rank_count; i++)
        CAIRN_TRY(read_optimizer(zero, &zero->optimizers[i], assembly, err));
    if (zero->stage == 3 && zero->model_count != zero->rank_count)
        return cairn_fail(err, CAIRN_INVALID, "%zu model files of %zu ranks are there",
                          zero->model_count, zero->rank_count);
    return CAIRN_OK;
}

/* ---- optimizer state of each flat group, as further channels ---- */

/* State by group: {0: {"step": 2, "exp_avg": tensor}, 1: ...}. */
static bool find_state(const struct cairn_zero *zero, const struct cairn_zero_file *file,
                       cairn_pickle_ref *ret) {
    const struct cairn_pickle *values = &file->torch.values;
    cairn_pickle_ref optimizer, base;
    return cairn_pickle_find(values, values->root, "optimizer_state_dict", &optimizer) &&
           cairn_pickle_find(values, optimizer,
                             zero->stage == 3 ? "optimizer_state_dict" : "base_optimizer_state",
                             &base) &&
           cairn_pickle_find(values, base, "state", ret) &&
           cairn_zero_value(file, *ret)->kind == CAIRN_PICKLE_DICT;
}

static bool find_group(const struct cairn_zero_file *file, cairn_pickle_ref state, size_t group,
                       cairn_pickle_ref *ret) {
    const struct cairn_pickle_value *map = cairn_zero_value(file, state);
    bool found = false;
    for (uint32_t i = 0; i + 2 <= map->count; i += 2) {
        const struct cairn_pickle_value *key = cairn_zero_value(file, map->items[i]);
        if (key->kind != CAIRN_PICKLE_INTEGER || key->integer != (int64_t)group) continue;
        *ret = map->items[i + 1];
        found = true;
    }
    return found;
}

/* One group of one rank; *ret_fits false: it is not cut like the values. */
static enum cairn_code read_group(const struct cairn_zero *zero, struct cairn_zero_channel *channel,
                                  size_t rank, size_t group, struct cairn_assembly *assembly,
                                  bool *ret_fits, struct cairn_error *err) {
    const struct cairn_zero_file *file = &zero->optimizers[rank];
    const struct cairn_zero_flat *values = &zero->channels[0].partitions[rank].flats[group];
    struct cairn_zero_flat *flat = &channel->partitions[rank].flats[group];
    struct cairn_torch_tensor tensor;
    cairn_pickle_ref state, of_group, ref;
    *ret_fits = false;
    if (!find_state(zero, file, &state) || !find_group(file, state, group, &of_group) ||
        !cairn_pickle_find(&file->torch.values, of_group, channel->name, &ref) ||
        !cairn_torch_is_tensor(&file->torch, ref))
        return CAIRN_OK;
    CAIRN_TRY(range_of(file, ref, assembly, &tensor, flat, err));
    if (!channel->dtype) {
        channel->dtype = tensor.dtype;
        channel->width = cairn_dtype_bits(tensor.dtype) / 8;
    }
    *ret_fits = tensor.dtype == channel->dtype &&
                (channel->scalar ? flat->elements == 1 : flat->elements >= values->elements);
    if (!channel->scalar) flat->elements = values->elements; /* the rest is padding */
    return CAIRN_OK;
}

static enum cairn_code read_channel(struct cairn_zero *zero, struct cairn_zero_channel *channel,
                                    struct cairn_assembly *assembly, bool *ret_fits,
                                    struct cairn_error *err) {
    size_t ranks = channel->scalar && !zero->experts ? 1 : zero->rank_count;
    *ret_fits = true;
    CAIRN_TRY(begin_channel(zero, channel, err));
    for (size_t r = 0; r < ranks; r++) {
        size_t groups = zero->channels[0].partitions[r].count;
        struct cairn_zero_partition *partition = &channel->partitions[r];
        partition->flats = calloc(groups + 1, sizeof *partition->flats);
        if (!partition->flats) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for partitions");
        partition->count = groups;
        for (size_t g = 0; g < groups && *ret_fits; g++) {
            enum cairn_code code = read_group(zero, channel, r, g, assembly, ret_fits, err);
            if (code)
                return cairn_within(err, code, "%s: the optimizer's %s of group %zu",
                                    zero->optimizers[r].name, channel->name, g);
        }
    }
    return CAIRN_OK;
}

/* Adds a kind of state found in rank 0's first group. */
static enum cairn_code add_channel(struct cairn_zero *zero, struct cairn_view name, bool scalar,
                                   struct cairn_assembly *assembly, struct cairn_error *err) {
    struct cairn_zero_channel channel = {.scalar = scalar};
    char left_out[128];
    bool fits = false;
    snprintf(channel.name, sizeof channel.name, "%.*s", (int)name.size, (const char *)name.data);
    snprintf(left_out, sizeof left_out, CAIRN_ASSEMBLY_OPTIMIZER "*.%s", channel.name);
    enum cairn_code code = CAIRN_OK;
    if (name.size < sizeof channel.name && zero->channel_count < CAIRN_ZERO_CHANNELS_MAX)
        code = read_channel(zero, &channel, assembly, &fits, err);
    if (code == CAIRN_OK && fits) {
        zero->channels[zero->channel_count++] = channel;
        return CAIRN_OK;
    }
    channel_release(zero, &channel);
    return code ? code
                : cairn_assembly_leave_out(assembly, left_out, "it is not cut like the parameters",
                                           err);
}

static enum cairn_code read_state(struct cairn_zero *zero, struct cairn_assembly *assembly,
                                  struct cairn_error *err) {
    const struct cairn_zero_file *file = &zero->optimizers[0];
    cairn_pickle_ref state, group;
    if (!zero->channels[0].partitions[0].count || !find_state(zero, file, &state) ||
        !find_group(file, state, 0, &group))
        return cairn_assembly_leave_out(assembly, CAIRN_ASSEMBLY_OPTIMIZER,
                                        "the files hold none that is cut by groups", err);
    uint64_t elements = zero->channels[0].partitions[0].flats[0].elements;
    uint32_t count = cairn_zero_value(file, group)->count;
    for (uint32_t i = 0; i + 2 <= count; i += 2) {
        const struct cairn_pickle_value *map = cairn_zero_value(file, group);
        const struct cairn_pickle_value *key = cairn_zero_value(file, map->items[i]);
        struct cairn_torch_tensor tensor;
        if (key->kind != CAIRN_PICKLE_TEXT ||
            !cairn_torch_is_tensor(&file->torch, map->items[i + 1]))
            continue; /* a plain value */
        CAIRN_TRY(cairn_torch_tensor(&file->torch, map->items[i + 1], &tensor, err));
        bool scalar = tensor.elements == 1 && (elements != 1 || tensor.dimension_count == 0);
        CAIRN_TRY(add_channel(zero, key->text, scalar, assembly, err));
    }
    return CAIRN_OK;
}

/* Parameters out of partitions: stages 1 and 2 cut a group over the ranks, 3 each parameter *. */

void cairn_zero_free(struct cairn_zero *zero) {
    for (size_t i = 0; i < zero->model_count; i++) {
        cairn_names_release(&zero->models[i].buffers);
        cairn_torch_release(&zero->models[i].torch);
    }
    for (size_t i = 0; i < zero->rank_count; i++) cairn_torch_release(&zero->optimizers[i].torch);
    for (size_t c = 0; c < zero->channel_count; c++) channel_release(zero, &zero->channels[c]);
    free(zero->models);
    free(zero->optimizers);
    free(zero);
}

/* ---- flow: several flat tensors as one array, consumed from its front ---- */

struct flow {
    const struct cairn_zero_flat *flats;
    size_t count, at;
    uint64_t used; /* elements of flats[at] */
};

static uint64_t flow_left(const struct flow *flow) {
    uint64_t left = 0;
    for (size_t i = flow->at; i < flow->count; i++) left += flow->flats[i].elements;
    return left - flow->used;
}

static void flow_skip(struct flow *flow) {
    while (flow->at < flow->count && flow->used == flow->flats[flow->at].elements) {
        flow->at++;
        flow->used = 0;
    }
}

/* The next elements become pieces of the last tensor, or are skipped as padding. */
static enum cairn_code flow_take(struct flow *flow, uint64_t elements, bool padding, unsigned width,
                                 struct cairn_assembly *assembly, struct cairn_error *err) {
    while (elements) {
        flow_skip(flow);
        if (flow->at == flow->count)
            return cairn_fail(err, CAIRN_INVALID,
                              "the partitions end %" PRIu64 " elements before the parameter does",
                              elements);
        const struct cairn_zero_flat *flat = &flow->flats[flow->at];
        uint64_t some = flat->elements - flow->used;
        if (some > elements) some = elements;
        if (!padding)
            CAIRN_TRY(cairn_assembly_add_piece(
                assembly, flat->input, flat->offset_bytes + flow->used * width, some * width, err));
        flow->used += some;
        elements -= some;
    }
    return CAIRN_OK;
}

/* Called for each (name, value) of a map. */
typedef enum cairn_code each_entry(void *context, const char *name, cairn_pickle_ref value,
                                   struct cairn_error *err);

static enum cairn_code for_each(const struct cairn_zero_file *file, cairn_pickle_ref map,
                                each_entry *each, void *context, struct cairn_error *err) {
    const struct cairn_pickle_value *entries = cairn_zero_value(file, map);
    char name[CAIRN_TENSOR_NAME_BYTES_MAX + 1];
    if (entries->kind == CAIRN_PICKLE_NONE) return CAIRN_OK;
    if (entries->kind != CAIRN_PICKLE_DICT && entries->kind != CAIRN_PICKLE_OBJECT)
        return cairn_fail(err, CAIRN_INVALID, "%s: no map of names where one is expected",
                          file->name);
    for (uint32_t i = 0; i + 2 <= entries->count; i += 2) {
        const struct cairn_pickle_value *key = cairn_zero_value(file, entries->items[i]);
        if (key->kind != CAIRN_PICKLE_TEXT || key->text.size >= sizeof name)
            return cairn_fail(err, CAIRN_INVALID, "%s: a parameter without a name", file->name);
        memcpy(name, key->text.data, key->text.size);
        name[key->text.size] = '\0';
        enum cairn_code code = each(context, name, entries->items[i + 1], err);
        if (code != CAIRN_OK) return cairn_within(err, code, "%s", cairn_short(name).text);
    }
    return CAIRN_OK;
}

struct merge {
    struct cairn_zero *zero;
    const struct cairn_zero_channel *channel; /* source of the parameters */
    size_t group;                             /* stages 1 and 2: the parameter's */
    struct cairn_zero_owners owners;          /* ranks that hold the group */
    size_t parameter;                         /* its index in the group */
    struct cairn_assembly *assembly;
    struct flow *flows;
    size_t flow_count;
    cairn_pickle_ref module;
    size_t known_count;                 /* tensors added before the present map */
    const struct cairn_assembly *known; /* further tensors; NULL: none */
};

static enum cairn_code add_shaped(struct merge *merge, const char *name, cairn_pickle_ref shape,
                                  unsigned dtype, uint64_t *ret_elements, struct cairn_error *err) {
    uint64_t sizes[CAIRN_DIMENSIONS_MAX] = {0};
    unsigned count = 0;
    CAIRN_TRY(cairn_torch_sizes(&merge->zero->models[0].torch, shape, sizes, &count, err));
    CAIRN_TRY(cairn_assembly_add_tensor(merge->assembly, name, dtype, count, sizes, err));
    const struct cairn_assembly_tensor *added =
        &merge->assembly->tensors[merge->assembly->tensor_count - 1];
    *ret_elements = added->size_bytes / (cairn_dtype_bits(dtype) / 8);
    return CAIRN_OK;
}

/* Adds the channel's next tensor, or the group's number. */
static enum cairn_code add_parameter(struct merge *merge, const char *name, cairn_pickle_ref shape,
                                     size_t group, uint64_t *ret_elements,
                                     struct cairn_error *err) {
    const struct cairn_zero_channel *channel = merge->channel;
    CAIRN_AUTO(buf) full = {0};
    uint64_t sizes[CAIRN_DIMENSIONS_MAX] = {0}, bytes;
    unsigned count = 0;
    if (!channel->name[0]) return add_shaped(merge, name, shape, channel->dtype, ret_elements, err);
    CAIRN_TRY(cairn_buf_printf(&full, err, CAIRN_ASSEMBLY_OPTIMIZER "%s.%s", name, channel->name));
    if (!channel->scalar)
        return add_shaped(merge, full.data, shape, channel->dtype, ret_elements, err);
    CAIRN_TRY(cairn_torch_sizes(&merge->zero->models[0].torch, shape, sizes, &count, err));
    if (!cairn_tensor_size(channel->dtype, count, sizes, ret_elements, &bytes))
        return cairn_fail(err, CAIRN_INVALID, "its size cannot be represented");
    const struct cairn_zero_partition *partition = &channel->partitions[merge->owners.first];
    if (group >= partition->count)
        return cairn_fail(err, CAIRN_INVALID, "the optimizer has no %s of group %zu", channel->name,
                          group);
    const struct cairn_zero_flat *flat = &partition->flats[group];
    CAIRN_TRY(cairn_assembly_add_tensor(merge->assembly, full.data, channel->dtype, 0, sizes, err));
    return cairn_assembly_add_piece(merge->assembly, flat->input, flat->offset_bytes,
                                    channel->width, err);
}

/* The partitions to walk: a group's number follows the values. */
static const struct cairn_zero_partition *partitions_of(const struct merge *merge) {
    return merge->channel->scalar ? merge->zero->channels[0].partitions
                                  : merge->channel->partitions;
}

static enum cairn_code take_whole(void *context, const char *name, cairn_pickle_ref shape,
                                  struct cairn_error *err) {
    struct merge *merge = context;
    CAIRN_AUTO(buf) global = {0};
    uint64_t elements;
    if (merge->owners.rename) {
        CAIRN_TRY(merge->owners.rename(merge->owners.context, name, &global, err));
        name = global.data;
    }
    uint64_t padding;
    CAIRN_TRY(add_parameter(merge, name, shape, merge->group, &elements, err));
    CAIRN_TRY(flow_take(&merge->flows[0], elements, merge->channel->scalar, merge->channel->width,
                        merge->assembly, err));
    CAIRN_TRY(padding_of(merge->zero, merge->owners.first, merge->group, merge->parameter++,
                         &padding, err));
    return flow_take(&merge->flows[0], padding, true, 0, merge->assembly, err);
}

static enum cairn_code merge_group(struct merge *merge, uint32_t group, cairn_pickle_ref shapes,
                                   struct cairn_error *err) {
    struct cairn_zero *zero = merge->zero;
    const struct cairn_zero_owners *owners = &merge->owners;
    CAIRN_AUTO_HEAP struct cairn_zero_flat *flats = calloc(owners->count, sizeof *flats);
    if (!flats) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for partitions");
    for (size_t i = 0; i < owners->count; i++) {
        size_t rank = owners->first + i * owners->step;
        const struct cairn_zero_partition *partition = &partitions_of(merge)[rank];
        if (group >= partition->count)
            return cairn_fail(err, CAIRN_INVALID, "%s has no partition of group %u",
                              zero->optimizers[rank].name, group);
        flats[i] = partition->flats[group];
    }
    struct flow flow = {.flats = flats, .count = owners->count};
    uint64_t total = flow_left(&flow);
    merge->flows = &flow;
    merge->group = group;
    merge->parameter = 0;
    CAIRN_TRY(for_each(&zero->models[0], shapes, take_whole, merge, err));
    /* The rest after a group's last parameter is padding to a multiple of 2 a rank. */
    uint64_t left = flow_left(&flow);
    uint64_t unit = 2 * merge->owners.count;
    if (cairn_round_up(total - left, unit) == cairn_round_up(total, unit)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "the partitions have %" PRIu64 " elements that no parameter uses", left);
}

enum cairn_code cairn_zero_merge_owned(struct cairn_zero *zero, size_t channel, uint32_t group,
                                       cairn_pickle_ref shapes,
                                       const struct cairn_zero_owners *owners,
                                       struct cairn_assembly *assembly, struct cairn_error *err) {
    struct merge merge = {
        .zero = zero, .channel = &zero->channels[channel], .owners = *owners, .assembly = assembly};
    return merge_group(&merge, group, shapes, err);
}

/* Merges a group that all ranks hold. */
static enum cairn_code merge_common(struct merge *merge, uint32_t group, cairn_pickle_ref shapes,
                                    struct cairn_error *err) {
    uint64_t ranks;
    CAIRN_TRY(cairn_zero_group_ranks(merge->zero, group, &ranks, err));
    if (ranks != merge->zero->rank_count)
        return cairn_fail(err, CAIRN_INVALID,
                          "it is cut over %" PRIu64 " of %zu ranks, and holds no experts", ranks,
                          merge->zero->rank_count);
    return merge_group(merge, group, shapes, err);
}

static enum cairn_code take_slices(void *context, const char *name, cairn_pickle_ref shape,
                                   struct cairn_error *err) {
    struct merge *merge = context;
    uint64_t elements, ranks = merge->zero->rank_count;
    flow_skip(&merge->flows[0]);
    CAIRN_TRY(add_parameter(merge, name, shape, merge->flows[0].at, &elements, err));
    uint64_t slice = (elements + ranks - 1) / ranks;
    for (size_t r = 0; r < ranks; r++) {
        uint64_t own = elements < slice ? elements : slice;
        struct flow *flow = &merge->flows[r];
        elements -= own;
        CAIRN_TRY(flow_take(flow, own, merge->channel->scalar, merge->channel->width,
                            merge->assembly, err));
        CAIRN_TRY(flow_take(flow, slice - own, true, 0, merge->assembly, err));
    }
    return CAIRN_OK;
}

bool cairn_zero_holds_experts(const struct cairn_zero_file *model, cairn_pickle_ref shapes) {
    static const char word[] = ".deepspeed_moe.experts.";
    const struct cairn_pickle_value *entries = cairn_zero_value(model, shapes);
    bool map = entries->kind == CAIRN_PICKLE_DICT || entries->kind == CAIRN_PICKLE_OBJECT;
    for (uint32_t i = 0; map && i + 2 <= entries->count; i += 2) {
        const struct cairn_pickle_value *key = cairn_zero_value(model, entries->items[i]);
        if (key->kind == CAIRN_PICKLE_TEXT &&
            memmem(key->text.data, key->text.size, word, sizeof word - 1))
            return true;
    }
    return false;
}

static enum cairn_code merge_parameters(struct merge *merge, struct cairn_error *err) {
    struct cairn_zero_file *model = &merge->zero->models[0];
    cairn_pickle_ref shapes;
    CAIRN_TRY(cairn_zero_field(model, model->torch.values.root, "param_shapes", &shapes, err));
    const struct cairn_pickle_value *groups = cairn_zero_value(model, shapes);
    if (groups->kind != CAIRN_PICKLE_LIST)
        return cairn_fail(err, CAIRN_INVALID, "%s: param_shapes is no list", model->name);
    if (merge->zero->stage == 3) {
        struct cairn_zero *zero = merge->zero;
        CAIRN_AUTO_HEAP struct flow *flows = calloc(zero->rank_count, sizeof *flows);
        if (!flows) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for partitions");
        for (size_t r = 0; r < zero->rank_count; r++)
            flows[r] = (struct flow){.flats = partitions_of(merge)[r].flats,
                                     .count = partitions_of(merge)[r].count};
        merge->flows = flows;
        for (uint32_t g = 0; g < groups->count; g++)
            CAIRN_TRY(for_each(&zero->models[0], groups->items[g], take_slices, merge, err));
        for (size_t r = 0; r < zero->rank_count; r++)
            if (flow_left(&flows[r]))
                return cairn_fail(err, CAIRN_INVALID,
                                  "%s has %" PRIu64 " elements that no parameter uses",
                                  zero->optimizers[r].name, flow_left(&flows[r]));
        return CAIRN_OK;
    }
    for (uint32_t g = 0; g < groups->count; g++) {
        if (merge->zero->experts && cairn_zero_holds_experts(model, groups->items[g]))
            continue; /* formats/zero/inside.h */
        enum cairn_code code = merge_common(merge, g, groups->items[g], err);
        if (code != CAIRN_OK) return cairn_within(err, code, "parameter group %u", g);
    }
    return CAIRN_OK;
}

/* ---- parameters without optimizer: frozen parameters, buffers, further names ---- */

static bool is_known(const struct merge *merge, const char *name) {
    size_t at;
    return (merge->known && cairn_assembly_find(merge->known, name, &at)) ||
           (cairn_assembly_find(merge->assembly, name, &at) && at < merge->known_count);
}

static enum cairn_code take_fragments(void *context, const char *name, cairn_pickle_ref shape,
                                      struct cairn_error *err) {
    struct merge *merge = context;
    uint64_t left = 0;
    if (is_known(merge, name)) return CAIRN_OK;
    for (size_t m = 0; m < merge->zero->model_count; m++) {
        const struct cairn_zero_file *file = &merge->zero->models[m];
        struct cairn_torch_tensor tensor;
        struct cairn_zero_flat range;
        cairn_pickle_ref fragments, fragment;
        CAIRN_TRY(cairn_zero_field(file, file->torch.values.root, "frozen_param_fragments",
                                   &fragments, err));
        CAIRN_TRY(cairn_zero_field(file, fragments, name, &fragment, err));
        CAIRN_TRY(range_of(file, fragment, merge->assembly, &tensor, &range, err));
        if (m == 0) {
            CAIRN_TRY(add_shaped(merge, name, shape, tensor.dtype, &left, err));
            merge->assembly->tensors[merge->assembly->tensor_count - 1].frozen = true;
        }
        uint64_t some = range.elements < left ? range.elements : left;
        CAIRN_TRY(cairn_assembly_add_piece(merge->assembly, range.input, range.offset_bytes,
                                           some * (cairn_dtype_bits(tensor.dtype) / 8), err));
        left -= some;
    }
    if (left == 0) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "its fragments lack %" PRIu64 " elements", left);
}

static enum cairn_code take_shared(void *context, const char *name, cairn_pickle_ref source,
                                   struct cairn_error *err) {
    struct merge *merge = context;
    const struct cairn_pickle_value *value = cairn_zero_value(&merge->zero->models[0], source);
    char text[CAIRN_TENSOR_NAME_BYTES_MAX + 1] = "";
    size_t of;
    if (value->kind == CAIRN_PICKLE_TEXT && value->text.size < sizeof text)
        memcpy(text, value->text.data, value->text.size);
    if (is_known(merge, name)) return CAIRN_OK;
    if (!cairn_assembly_find(merge->assembly, text, &of))
        return cairn_assembly_leave_out(merge->assembly, name,
                                        "it shares what the checkpoint does not hold", err);
    return cairn_assembly_add_alias(merge->assembly, name, of, err);
}

/* Takes from the module's state: buffers, and with stages 1 and 2 all frozen parameters. */
static enum cairn_code take_of_module(void *context, const char *name, cairn_pickle_ref ref,
                                      struct cairn_error *err) {
    struct merge *merge = context;
    const struct cairn_zero_file *file = &merge->zero->models[0];
    struct cairn_torch_tensor tensor;
    struct cairn_zero_flat range;
    if (is_known(merge, name)) return CAIRN_OK;
    if (!cairn_torch_is_tensor(&file->torch, ref))
        return cairn_assembly_leave_out(merge->assembly, name, "it is no tensor", err);
    CAIRN_TRY(range_of(file, ref, merge->assembly, &tensor, &range, err));
    if (merge->zero->stage == 3 && tensor.elements == 0)
        return cairn_assembly_leave_out(
            merge->assembly, name,
            "a placeholder: no file holds its elements, as of a shared parameter in stage 3", err);
    CAIRN_TRY(cairn_assembly_add_tensor(merge->assembly, name, tensor.dtype, tensor.dimension_count,
                                        tensor.shape, err));
    merge->assembly->tensors[merge->assembly->tensor_count - 1].frozen =
        !cairn_zero_is_buffer(file, name);
    return cairn_assembly_add_piece(merge->assembly, range.input, range.offset_bytes,
                                    tensor.size_bytes, err);
}

static enum cairn_code merge_rest(struct merge *merge, struct cairn_error *err) {
    const struct cairn_zero_file *model = &merge->zero->models[0];
    cairn_pickle_ref root = model->torch.values.root, frozen, shared, module;
    CAIRN_TRY(cairn_zero_field(model, root, "module", &module, err));
    if (cairn_pickle_find(&model->torch.values, root, "frozen_param_shapes", &frozen))
        CAIRN_TRY(for_each(model, frozen, take_fragments, merge, err));
    merge->known_count = merge->assembly->tensor_count;
    if (cairn_pickle_find(&model->torch.values, root, "shared_params", &shared))
        CAIRN_TRY(for_each(model, shared, take_shared, merge, err));
    merge->known_count = merge->assembly->tensor_count;
    return for_each(model, module, take_of_module, merge, err);
}

enum cairn_code cairn_zero_merge_rest(struct cairn_zero *zero, const struct cairn_assembly *known,
                                      struct cairn_assembly *assembly, struct cairn_error *err) {
    struct merge merge = {.zero = zero,
                          .assembly = assembly,
                          .known = known == assembly ? NULL : known,
                          .known_count = assembly->tensor_count};
    return merge_rest(&merge, err);
}

/* Merges the values, then the state cut like them. */
static enum cairn_code merge_channels(struct merge *merge, struct cairn_error *err) {
    struct cairn_zero *zero = merge->zero;
    if (!zero->rank_count) return merge_rest(merge, err);
    merge->assembly->knows_frozen = true; /* trained parameters are in the partitions */
    for (size_t c = 0; c < zero->channel_count; c++) {
        merge->channel = &zero->channels[c];
        enum cairn_code code = merge_parameters(merge, err);
        if (code == CAIRN_OK && c == 0) code = merge_rest(merge, err);
        if (code && c) code = cairn_within(err, code, "optimizer's %s", zero->channels[c].name);
        CAIRN_TRY(code);
    }
    return CAIRN_OK;
}

/* Leaves out unused optimizer state: all of it, if not wanted or not cut by groups. */
static enum cairn_code leave_out_state(const struct cairn_zero *zero, bool optimizer,
                                       struct cairn_assembly *assembly, struct cairn_error *err) {
    if (!optimizer)
        return cairn_assembly_leave_out(assembly, CAIRN_ASSEMBLY_OPTIMIZER,
                                        CAIRN_ASSEMBLY_WITHOUT_OPTIMIZER, err);
    if (!zero->rank_count)
        return cairn_assembly_leave_out(assembly, CAIRN_ASSEMBLY_OPTIMIZER,
                                        "without ZeRO it is kept by number, not by name", err);
    return CAIRN_OK;
}

/* Without expert files no group may be an expert's: it would be merged as a common one. */
static enum cairn_code check_no_experts(const struct cairn_zero *zero, struct cairn_error *err) {
    const struct cairn_zero_file *model = &zero->models[0];
    const struct cairn_pickle *values = &model->torch.values;
    cairn_pickle_ref counts;
    int64_t experts = 0;
    if (!cairn_pickle_find(values, values->root, "num_experts", &counts)) return CAIRN_OK;
    const struct cairn_pickle_value *list = cairn_pickle_at(values, counts);
    for (uint32_t i = 0; list->kind == CAIRN_PICKLE_LIST && i < list->count; i++) {
        const struct cairn_pickle_value *count = cairn_pickle_at(values, list->items[i]);
        if (count->kind == CAIRN_PICKLE_INTEGER && count->integer > 0) experts++;
    }
    if (!experts) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "%s speaks of experts in %" PRId64 " layers, and no file of an expert is "
                      "there: they would be left out",
                      model->name, experts);
}

/* AutoEP keeps all experts of a rank in one tensor, under the same name on each rank. */
static enum cairn_code check_no_autoep(const struct cairn_zero *zero, struct cairn_error *err) {
    const struct cairn_zero_file *model = &zero->models[0];
    const struct cairn_pickle *values = &model->torch.values;
    cairn_pickle_ref layers;
    if (!cairn_pickle_find(values, values->root, "ds_autoep_layers", &layers)) return CAIRN_OK;
    const struct cairn_pickle_value *value = cairn_pickle_at(values, layers);
    if (value->kind == CAIRN_PICKLE_NONE) return CAIRN_OK;
    return cairn_fail(err, CAIRN_UNSUPPORTED,
                      "%s: ds_autoep_layers names experts of AutoEP, whose ranks have parts of one "
                      "tensor",
                      model->name);
}

enum cairn_code cairn_zero_merge(const struct cairn_zero_folder *folder, bool optimizer,
                                 bool experts, struct cairn_assembly *assembly,
                                 struct cairn_zero **ret, struct cairn_error *err) {
    struct cairn_zero *zero = calloc(1, sizeof *zero);
    if (!zero) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a checkpoint");
    zero->experts = experts;
    enum cairn_code code = open_files(folder, assembly, zero, err);
    struct merge merge = {
        .zero = zero, .owners = {.step = 1, .count = zero->rank_count}, .assembly = assembly};
    if (code == CAIRN_OK) code = check_no_autoep(zero, err);
    if (code == CAIRN_OK && experts && zero->stage == 3)
        code = cairn_fail(err, CAIRN_UNSUPPORTED, "experts of ZeRO stage 3");
    if (code == CAIRN_OK && !experts) code = check_no_experts(zero, err);
    if (code == CAIRN_OK && optimizer && zero->rank_count) code = read_state(zero, assembly, err);
    if (code == CAIRN_OK) code = merge_channels(&merge, err);
    if (code == CAIRN_OK) code = leave_out_state(zero, optimizer, assembly, err);
    if (code != CAIRN_OK) {
        cairn_zero_free(zero);
        return code;
    }
    *ret = zero;
    return CAIRN_OK;
}
