/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero: whole tensors from the partitions of a DeepSpeed ZeRO checkpoint.
 *
 * Why:     each rank saves its slice of flat fp32 groups; a parameter must be assembled from all
 *          ranks, by rules that differ by stage.
 * Promise: 1   stages 1, 2 and 3, the BF16 optimizer and no ZeRO at all, several parameter groups
 *              and sub-groups, frozen parameters, buffers and shared parameters; every partition is
 *              used to its last element except padding (also between parameters, by
 *              parameter_alignment), and any misfit is CAIRN_INVALID with the names.
 *          2   of a tensor parallel model whole tensors (formats/zero/zero_parallel.c), of a
 *              pipeline all stages, also with tensor parallel ranks, of experts each file; a
 *              missing one is CAIRN_INVALID, by name. Experts split over tensor parallel ranks, of
 *              AutoEP, of stage 3 or of a cut pipeline, and cuts without a rule, are
 *              CAIRN_UNSUPPORTED; never a silent part. Experts get their fp32 values
 *              (formats/zero/inside.h); without ZeRO, or frozen, those of their own files.
 *          3   a parameter without bytes in any file is in the assembly's left_out.
 *          4   the optimizer's state, if wanted, is cut like the parameters; its tensors are named
 *              optimizer.state.<parameter>.<what>, and a group's numbers (step) appear at each
 *              parameter. State cut otherwise is left out, by name.
 *          5   of a universal checkpoint (ds_to_universal makes a folder zero/<parameter> with
 *              fp32.pt for the values and a torch file for each kind of optimizer state) every
 *              parameter with a folder is in the assembly, in its file's shape; of ZeRO stage 3,
 *              whose files are flat, in the shape from the models' files beside zero/. A folder
 *              without fp32.pt is CAIRN_INVALID, by name.
 *          6   there, optimizer state is optimizer.state.<parameter>.<file>, if wanted; a plain
 *              number, and files of no parameter, are in left_out. Parts without a folder (frozen
 *              parameters, buffers, further names) come from the models' files, or are in left_out.
 *              Without these files stage 3 is CAIRN_NOT_FOUND.
 * Limits:  65,536 ranks; as formats/torch/torch.h for each file.
 * Threads: one owner.
 * Next:    formats/assembly/assembly.h; cli/convert/inside.h.
 */
#pragma once

#include "formats/assembly/assembly.h"
#include "formats/torch/torch.h"

/* A folder of files: the checkpoint's tag folder, given by the user. */
struct cairn_zero_folder {
    void *context;
    const char *const *names; /* of its files */
    size_t count;
    /* The input is valid until the folder is closed. */
    enum cairn_code (*open)(void *context, const char *name, const struct cairn_input **ret,
                            struct cairn_error *err);
    bool strict; /* as in formats/torch/torch.h */
};
static inline bool cairn_zero_folder_has(const struct cairn_zero_folder *folder, const char *name) {
    for (size_t i = 0; i < folder->count; i++)
        if (strcmp(folder->names[i], name) == 0) return true;
    return false;
}
/* True if the names of the files are those of a DeepSpeed checkpoint. */
bool cairn_zero_is(const struct cairn_zero_folder *folder);

struct cairn_zero_options {
    bool optimizer; /* include its state */
    /* inside.h#12; NULL: none. CAIRN_INVALID: the checkpoint is not cut that way. */
    const char *tp_rules;
};
/* Fills the assembly with the folder's inputs. */
enum cairn_code cairn_zero_open(const struct cairn_zero_folder *folder,
                                const struct cairn_zero_options *options,
                                struct cairn_assembly *assembly,
                                struct cairn_error *err) CAIRN_MUST_USE;

#define CAIRN_ZERO_UNIVERSAL "zero/"

/* True if the names of the files, with those below zero/ by path, are a universal checkpoint's. */
bool cairn_zero_universal_is(const struct cairn_zero_folder *folder);
/* Adds to the assembly, whose inputs are the folder's; its names must be sorted. */
enum cairn_code cairn_zero_universal_open(const struct cairn_zero_folder *folder, bool optimizer,
                                          struct cairn_assembly *assembly,
                                          struct cairn_error *err) CAIRN_MUST_USE;
