/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weights_inside: what the sources of cli/weights.h share.
 *
 * Why:     a folder of model files is one of several things that a path may be, and its files are
 *          opened like all others.
 * Promise: 1   a file of the folder is opened once, however often it is asked for.
 * Limits:  as cli/weights.h.
 * Threads: one owner.
 * Next:    cli/weights.c, cli/weights_models.c.
 */
#pragma once

#include "cli/weights.h"
#include "formats/assembly/models.h"

/* The file of this name in weights->names, which are sorted. */
enum cairn_code cairn_cli_weights_open_name(void *weights, const char *name,
                                            const struct cairn_input **ret,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* One file of torch or safetensors: its tensors are added to the assembly, pieces to the parts. */
enum cairn_code cairn_cli_weights_use_input(struct cairn_cli_weights *weights,
                                            struct cairn_cli_weights_file *file,
                                            const struct cairn_input *input,
                                            struct cairn_assembly *assembly,
                                            struct cairn_safetensors_parts *parts,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* A folder, or what is like one, that is none of DeepSpeed and DCP. */
enum cairn_code cairn_cli_weights_use_models(struct cairn_cli_weights *weights,
                                             const struct cairn_zero_folder *folder,
                                             struct cairn_error *err) CAIRN_MUST_USE;
