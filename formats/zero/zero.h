/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero: the whole weights that a DeepSpeed ZeRO checkpoint holds in the partitions of its ranks.
 *
 * Why:     each rank saves its slice of flat fp32 groups; what a parameter is must be put together
 *          from all of them, by rules that differ by stage.
 * Promise: 1   stages 1, 2 and 3, the BF16 optimizer and no ZeRO at all, several parameter groups
 *              and sub-groups, frozen parameters, buffers and shared parameters; every partition is
 *              used to its last element but for padding (also between parameters, where
 *              parameter_alignment put it), and what does not fit exactly is
 *              CAIRN_INVALID with the names.
 *          2   of a tensor parallel model whole tensors (formats/zero/zero_parallel.h), of a
 *              pipeline all stages, also where each is cut over tensor parallel ranks, of experts
 *              each file; one that is missing is CAIRN_INVALID, by name. Experts that tensor
 *              parallel ranks share out, those of AutoEP, of stage 3 and of a pipeline that is cut,
 *              too, and cuts that no rule tells, are CAIRN_UNSUPPORTED; never a silent part.
 *              Experts have their fp32 values (formats/zero/inside.h); without ZeRO, and where they
 *              are frozen, those of their own files.
 *          3   a parameter of which no file has bytes is in the assembly's left_out.
 *          4   the optimizer's state, where it is wanted, is cut like the parameters; each of its
 *              tensors is optimizer.state.<parameter>.<what>, and numbers of a whole group (step)
 *              stand at each parameter. What is cut otherwise is left out, by name.
 *          5   of a universal checkpoint (ds_to_universal makes a folder zero/<parameter> of each
 *              parameter, with a file of torch for its values, fp32.pt, and for each thing that the
 *              optimizer keeps of it) every parameter that has a folder is in the assembly, in the
 *              shape that its file has; of ZeRO stage 3, whose files are flat, in the shape that
 *              the models' files beside zero/ tell. One without fp32.pt is CAIRN_INVALID, by name.
 *          6   there, what the optimizer keeps is optimizer.state.<parameter>.<file>, where it is
 *              wanted; a plain number, and files of no parameter, are in left_out. What has no
 *              folder and is in the models' files (frozen parameters, buffers, further names) is in
 *              the assembly or in left_out. Without these files a checkpoint of stage 3 is
 *              CAIRN_NOT_FOUND.
 * Limits:  65,536 ranks; as formats/torch/torch.h for each file.
 * Threads: one owner.
 * Next:    formats/assembly/assembly.h; cli/convert/inside.h.
 */
#pragma once

#include "formats/assembly/assembly.h"
#include "formats/torch/torch.h"

/* Of a folder of files: what a person gave as the checkpoint's tag folder. */
struct cairn_zero_folder {
    void *context;
    const char *const *names; /* of its files */
    size_t count;
    /* The input is good until the folder is closed. */
    enum cairn_code (*open)(void *context, const char *name, const struct cairn_input **ret,
                            struct cairn_error *err);
    bool strict; /* as formats/torch/torch.h has it */
};
static inline bool cairn_zero_folder_has(const struct cairn_zero_folder *folder, const char *name) {
    for (size_t i = 0; i < folder->count; i++)
        if (strcmp(folder->names[i], name) == 0) return true;
    return false;
}
/* Is it a DeepSpeed checkpoint's? By the names of its files alone. */
bool cairn_zero_is(const struct cairn_zero_folder *folder);

struct cairn_zero_options {
    bool optimizer; /* its state is wanted, too */
    /* zero_parallel.h#7; NULL: none. CAIRN_INVALID: nothing is cut so. */
    const char *tp_rules;
};
/* Fills the assembly, whose inputs are the folder's. */
enum cairn_code cairn_zero_open(const struct cairn_zero_folder *folder,
                                const struct cairn_zero_options *options,
                                struct cairn_assembly *assembly,
                                struct cairn_error *err) CAIRN_MUST_USE;

/* ---- universal checkpoints ---- */

#define CAIRN_ZERO_UNIVERSAL "zero/"

/* Is it one? By the names of its files, those of the folders below zero/ with their path. */
bool cairn_zero_universal_is(const struct cairn_zero_folder *folder);
/* Adds to the assembly, whose inputs are the folder's; its names are sorted. */
enum cairn_code cairn_zero_universal_open(const struct cairn_zero_folder *folder, bool optimizer,
                                          struct cairn_assembly *assembly,
                                          struct cairn_error *err) CAIRN_MUST_USE;
