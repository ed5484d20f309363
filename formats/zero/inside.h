/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: the opened files of a ZeRO checkpoint, and each rank's contents; for this room alone.
 *
 * Why:     all stages share the finding of files and the reading of their pickles; only the way
 *          from partitions to parameters differs. Each rank trains some experts of its own and
 *          numbers them 0, 1, ...; their groups are cut over ranks with the same experts, not named
 *          in files.
 * Promise: 1   ranks are complete and without gaps, or the missing file is named.
 *          2   a flat partition is one contiguous range of its file.
 *          3   an expert is named by its number among those of all ranks, as in its own file.
 *          4   the bytes decide which ranks hold the same experts: DeepSpeed counts ranks in one of
 *              two orders, and in the right one the masters, rounded, equal the values in the
 *              experts' files. If neither fits it is CAIRN_INVALID. If both fit and differ, the
 *              configuration in the files decides, or without one it is CAIRN_INVALID.
 *          5   a master without its expert's file, and the reverse, are CAIRN_INVALID, by name.
 * Limits:  as formats/zero/zero.h. Of experts the first 256 elements of each piece of 4,096 tensors
 *          are compared; all elements only if those fit both orders.
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
    struct cairn_names buffers; /* names of buffers in a model's file */
};
struct cairn_zero_flat {
    uint32_t input; /* index in the assembly's inputs */
    uint64_t offset_bytes, elements;
};
struct cairn_zero_partition {
    struct cairn_zero_flat *flats; /* by group */
    size_t count;
};
/* Flat tensors cut alike: first the fp32 values, then each kind of optimizer state. */
struct cairn_zero_channel {
    char name[64];                           /* "exp_avg"; "" for the values */
    unsigned dtype, width;                   /* of the flat tensors; width in bytes */
    bool scalar;                             /* one number per group, from the first rank with it */
    struct cairn_zero_partition *partitions; /* by rank */
};
#define CAIRN_ZERO_CHANNELS_MAX 16
struct cairn_zero {
    struct cairn_zero_file *models, *optimizers; /* by rank */
    size_t model_count, rank_count;
    unsigned stage; /* 0: weights are not partitioned */
    bool experts;   /* they have files of their own, and groups cut over fewer ranks */
    struct cairn_zero_channel channels[CAIRN_ZERO_CHANNELS_MAX];
    size_t channel_count;
};

void cairn_zero_free(struct cairn_zero *zero);
/* False: not a model parallel rank's file, but a layer's, an expert's or another. */
bool cairn_zero_model_rank(const char *name, unsigned *ret);
/* Merges the files of one model parallel rank; the assembly is not yet checked. */
enum cairn_code cairn_zero_merge(const struct cairn_zero_folder *folder, bool optimizer,
                                 bool experts, struct cairn_assembly *assembly,
                                 struct cairn_zero **ret, struct cairn_error *err) CAIRN_MUST_USE;
/* Ranks first, first + step, ... hold consecutive parts of one array. */
struct cairn_zero_owners {
    size_t first, step, count;
    /* Names a parameter in the assembly; NULL: unchanged. */
    enum cairn_code (*rename)(void *context, const char *name, struct cairn_buf *ret,
                              struct cairn_error *err);
    void *context;
};
/* Stages 1 and 2: merges a group's parameters, or a further channel's state of them. */
enum cairn_code cairn_zero_merge_owned(struct cairn_zero *zero, size_t channel, uint32_t group,
                                       cairn_pickle_ref shapes,
                                       const struct cairn_zero_owners *owners,
                                       struct cairn_assembly *assembly,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* True for a group of each rank's own experts: other ranks use the same names for other experts. */
bool cairn_zero_holds_experts(const struct cairn_zero_file *model, cairn_pickle_ref shapes);
/* How many ranks a group is cut over; all ranks must agree. */
enum cairn_code cairn_zero_group_ranks(const struct cairn_zero *zero, uint32_t group, uint64_t *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Opens the models' files only; there may be none. */
enum cairn_code cairn_zero_models_open(const struct cairn_zero_folder *folder,
                                       struct cairn_zero *zero,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Adds the models' frozen parameters, buffers and further names, except those in `known`. */
enum cairn_code cairn_zero_merge_rest(struct cairn_zero *zero, const struct cairn_assembly *known,
                                      struct cairn_assembly *assembly,
                                      struct cairn_error *err) CAIRN_MUST_USE;

/* The value of a required key; the error names file and key. */
enum cairn_code cairn_zero_field(const struct cairn_zero_file *file, cairn_pickle_ref of,
                                 const char *key, cairn_pickle_ref *ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* True if the model's file lists the name among its buffers, which are no parameters. */
bool cairn_zero_is_buffer(const struct cairn_zero_file *model, const char *name);
/* The value of an integer, or of an enumeration's integer; -1: neither. */
int64_t cairn_zero_integer(const struct cairn_zero_file *file, cairn_pickle_ref ref);
static inline const struct cairn_pickle_value *cairn_zero_value(const struct cairn_zero_file *file,
                                                                cairn_pickle_ref ref) {
    return cairn_pickle_at(&file->torch.values, ref);
}
