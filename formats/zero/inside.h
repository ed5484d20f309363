/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: the files of a ZeRO checkpoint, opened, and what each rank's says; for this room alone.
 *
 * Why:     finding the files and reading their pickles is the same for all stages; only how the
 *          partitions make parameters differs. Of experts each rank trains some of its own and
 *          calls them 0, 1, ...; their groups are cut over those ranks alone that hold the same
 *          ones, and the files do not name these.
 * Promise: 1   ranks are complete and without gaps, or the missing file is named.
 *          2   a flat partition is one contiguous range of its file.
 *          3   an expert is named by its number among those of all ranks, as its own file names it.
 *          4   which ranks hold the same experts is what their bytes say: DeepSpeed counts ranks in
 *              one of two orders, and in the right one the masters, rounded, are the values in the
 *              experts' files. Where neither is so it is CAIRN_INVALID. Where both are so and it
 *              makes a difference, the order is that of the configuration in the files; where there
 *              is none it is CAIRN_INVALID.
 *          5   a master without its expert's file, and the values of an expert that is trained in
 *              a file without a master, are CAIRN_INVALID, by name.
 * Limits:  as formats/zero/zero.h. Of experts the first 256 elements of each piece of 4,096 tensors
 *          are compared; all elements only where those leave both orders.
 * Threads: one owner.
 * Next:    formats/zero/zero.c, formats/zero/zero_open.c.
 */
#pragma once

#include "formats/zero/zero.h"

struct cairn_zero_file {
    const char *name; /* in the folder */
    unsigned rank;
    const struct cairn_input *input;
    struct cairn_torch torch;
    struct cairn_names buffers; /* of a model's file: names that are no parameters */
};
/* One flat tensor of one rank. */
struct cairn_zero_flat {
    uint32_t input; /* in the assembly */
    uint64_t offset_bytes, elements;
};
struct cairn_zero_partition {
    struct cairn_zero_flat *flats; /* by group */
    size_t count;
};
/* What is cut in one way: the fp32 values first, then each kind of state of the optimizer. */
struct cairn_zero_channel {
    char name[64];         /* "exp_avg"; "" of the values */
    unsigned dtype, width; /* of its flat tensors; width in bytes */
    bool scalar;           /* one number for each group, of the first rank that holds it */
    struct cairn_zero_partition *partitions; /* by rank */
};
#define CAIRN_ZERO_CHANNELS_MAX 16
struct cairn_zero {
    struct cairn_zero_file *models, *optimizers; /* by rank */
    size_t model_count, rank_count;
    unsigned stage; /* 0: its weights are not partitioned */
    bool experts;   /* they have files of their own, and their groups fewer owners than ranks */
    struct cairn_zero_channel channels[CAIRN_ZERO_CHANNELS_MAX];
    size_t channel_count;
};

void cairn_zero_free(struct cairn_zero *zero);
/* What one model parallel rank has; false: a file of a layer, of an expert, or another one. */
bool cairn_zero_model_rank(const char *name, unsigned *ret);
/* The files of one model parallel rank, merged; the assembly is not yet checked. */
enum cairn_code cairn_zero_merge(const struct cairn_zero_folder *folder, bool optimizer,
                                 bool experts, struct cairn_assembly *assembly,
                                 struct cairn_zero **ret, struct cairn_error *err) CAIRN_MUST_USE;
/* Ranks first, first + step, ... hold one array, each the next part of it. */
struct cairn_zero_owners {
    size_t first, step, count;
    /* The name in the assembly of a parameter; NULL: its own. */
    enum cairn_code (*rename)(void *context, const char *name, struct cairn_buf *ret,
                              struct cairn_error *err);
    void *context;
};
/* Stages 1 and 2: the parameters of a group, or what a further channel keeps of them. */
enum cairn_code cairn_zero_merge_owned(struct cairn_zero *zero, size_t channel, uint32_t group,
                                       cairn_pickle_ref shapes,
                                       const struct cairn_zero_owners *owners,
                                       struct cairn_assembly *assembly,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* A group of each rank's own experts: others' are cut over other ranks, under the same names. */
bool cairn_zero_holds_experts(const struct cairn_zero_file *model, cairn_pickle_ref shapes);
/* Over how many ranks a group is cut, of which all ranks say the same. */
enum cairn_code cairn_zero_group_ranks(const struct cairn_zero *zero, uint32_t group, uint64_t *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* The models' files alone; there may be none. */
enum cairn_code cairn_zero_models_open(const struct cairn_zero_folder *folder,
                                       struct cairn_zero *zero,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Of models that are open, what no optimizer holds: frozen parameters, buffers and further names.
 * Names of `known` are passed over. */
enum cairn_code cairn_zero_merge_rest(struct cairn_zero *zero, const struct cairn_assembly *known,
                                      struct cairn_assembly *assembly,
                                      struct cairn_error *err) CAIRN_MUST_USE;

/* ---- looking into a file's values ---- */
/* The value of a key that must be there; the error names file and key. */
enum cairn_code cairn_zero_field(const struct cairn_zero_file *file, cairn_pickle_ref of,
                                 const char *key, cairn_pickle_ref *ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* Does the model's file name it among its buffers, which are no parameters? */
bool cairn_zero_is_buffer(const struct cairn_zero_file *model, const char *name);
/* An integer, or an enumeration that is made of one; -1: neither. */
int64_t cairn_zero_integer(const struct cairn_zero_file *file, cairn_pickle_ref ref);
static inline const struct cairn_pickle_value *cairn_zero_value(const struct cairn_zero_file *file,
                                                                cairn_pickle_ref ref) {
    return cairn_pickle_at(&file->torch.values, ref);
}
