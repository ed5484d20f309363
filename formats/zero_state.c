/* SPDX-License-Identifier: Apache-2.0 */
/* What the optimizer keeps of each flat group, as further channels of the checkpoint. */
#include <stdio.h>
#include <stdlib.h>

#include "api/table/dtype.h"
#include "formats/zero_inside.h"

/* The state by group: {0: {"step": 2, "exp_avg": tensor}, 1: ...}. */
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
static enum cairn_code read_group(const struct cairn_zero *zero,
                                  struct cairn_zero_channel *channel, size_t rank, size_t group,
                                  struct cairn_assembly *assembly, bool *ret_fits,
                                  struct cairn_error *err) {
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
    CAIRN_TRY(cairn_zero_range(file, ref, assembly, &tensor, flat, err));
    if (!channel->dtype) {
        channel->dtype = tensor.dtype;
        channel->width = cairn_dtype_bits(tensor.dtype) / 8;
    }
    *ret_fits = tensor.dtype == channel->dtype &&
                (channel->scalar ? flat->elements == 1 : flat->elements >= values->elements);
    if (!channel->scalar) flat->elements = values->elements; /* what is behind them is padding */
    return CAIRN_OK;
}

static enum cairn_code read_channel(struct cairn_zero *zero, struct cairn_zero_channel *channel,
                                    struct cairn_assembly *assembly, bool *ret_fits,
                                    struct cairn_error *err) {
    size_t ranks = channel->scalar && !zero->experts ? 1 : zero->rank_count;
    *ret_fits = true;
    CAIRN_TRY(cairn_zero_channel_begin(zero, channel, err));
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

/* A kind of state that rank 0 has of its first group. */
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
    cairn_zero_channel_release(zero, &channel);
    return code ? code
                : cairn_assembly_leave_out(assembly, left_out,
                                           "it is not cut like the parameters", err);
}

enum cairn_code cairn_zero_state_read(struct cairn_zero *zero, struct cairn_assembly *assembly,
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
            continue; /* a plain value: it is no tensor */
        CAIRN_TRY(cairn_torch_tensor(&file->torch, map->items[i + 1], &tensor, err));
        bool scalar = tensor.elements == 1 && (elements != 1 || tensor.dimension_count == 0);
        CAIRN_TRY(add_channel(zero, key->text, scalar, assembly, err));
    }
    return CAIRN_OK;
}
