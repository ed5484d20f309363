/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: the opened files of a ZeRO checkpoint, and each rank's contents; for this room alone.
 *
 * Why:     all stages share the finding of files and the reading of their pickles; only the way
 *          from partitions to parameters differs. Each rank trains some experts of its own and
 *          numbers them 0, 1, ...; their groups are cut over ranks with the same experts, not named
 *          in files. Each rank of tensor parallelism writes a checkpoint of its own slices, under
 *          the same names; only the accompanying lists of patterns (universal_checkpoint_info)
 *          distinguish rows, columns and copies; a wrong guess is a wrong model without an error.
 * Promise: 1   ranks are complete and without gaps, or the missing file is named.
 *          2   a flat partition is one contiguous range of its file.
 *          3   an expert is named by its number among those of all ranks, as in its own file.
 *          4   the bytes decide which ranks hold the same experts: DeepSpeed counts ranks in one of
 *              two orders, and in the right one the masters, rounded, equal the values in the
 *              experts' files. If neither fits it is CAIRN_INVALID. If both fit and differ, the
 *              configuration in the files decides, or without one it is CAIRN_INVALID.
 *          5   a master without its expert's file, and the reverse, are CAIRN_INVALID, by name.
 *          6   each tensor of rank 0 is joined from the slices of all ranks by its rule; one that a
 *              rank lacks, or has in another form, is CAIRN_INVALID, by name.
 *          7   tensors that all ranks hold whole are compared byte by byte; a difference is
 *              refused, since an average would equal none of them.
 *          8   without patterns, and where the user gives a rule, the user's rule or that of
 *              Megatron's names applies. A tensor with neither is taken only if all ranks have the
 *              same bytes and not one single value, which a cut bias of zeros has too. All else is
 *              CAIRN_UNSUPPORTED, with its name and the flag for a rule.
 *          9   rows beyond the vocabulary are padding and not in the assembly.
 *          10  a name gets the rule that DeepSpeed's converter to universal checkpoints follows; a
 *              rule unknown here is CAIRN_UNSUPPORTED, with its name.
 *          11  a pattern is matched from the first byte of the name on, as Python's re.match does.
 *              What POSIX expressions lack (groups with `?`, lazy repeats) is CAIRN_UNSUPPORTED.
 *          12  a user's rules are GLOB=RULE, separated by commas; RULE is a dimension, 0:ROWS (the
 *              tensor has the first ROWS rows, the rest is padding), halves or replicated. The
 *              first rule that matches a name applies. Another RULE, and a rule that matches no
 *              name, are CAIRN_INVALID, quoted.
 *          13  of Megatron's names only those cut in one way by all releases have a rule; a
 *              condition on model or version is in `need`.
 * Limits:  as formats/zero/zero.h; 4,096 patterns and 256 rules, of 1,024 bytes each. Of experts
 *          the first 256 elements of each piece of 4,096 tensors are compared; all elements only if
 *          those fit both orders.
 * Threads: one owner.
 * Next:    formats/zero/zero.c, formats/zero/zero_open.c, formats/zero/zero_parallel.c.
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

/* ---- slices of tensor parallel ranks ---- */

/* A user's rules: how ranks cut parameters where the checkpoint does not say. */
struct cairn_zero_told_rule;
struct cairn_zero_told {
    struct cairn_zero_told_rule *rules;
    size_t count, capacity;
};
/* text: NULL means no rules. */
enum cairn_code cairn_zero_told_parse(const char *text, struct cairn_zero_told *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_zero_told_release(struct cairn_zero_told *told);
/* Call after the last name: CAIRN_INVALID if a rule matched none. */
enum cairn_code cairn_zero_told_check(const struct cairn_zero_told *told,
                                      struct cairn_error *err) CAIRN_MUST_USE;

/* The checkpoint of one rank; its assembly's tensors have no boxes. */
struct cairn_zero_part {
    struct cairn_zero *zero;
    struct cairn_assembly assembly;
};
enum cairn_code cairn_zero_parallel_join(const struct cairn_zero_part *parts, size_t count,
                                         struct cairn_zero_told *told,
                                         struct cairn_assembly *assembly,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* True if the tensors of two assemblies hold the same bytes. */
enum cairn_code cairn_zero_same(const struct cairn_assembly *a,
                                const struct cairn_assembly_tensor *of_a,
                                const struct cairn_assembly *b,
                                const struct cairn_assembly_tensor *of_b, bool *ret,
                                struct cairn_error *err) CAIRN_MUST_USE;
