/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weights: what a person names as a checkpoint of another program, opened as an assembly.
 *
 * Why:     a DeepSpeed folder, its tag folder, a file of torch or of safetensors are all "the
 *          model" to who exports it.
 * Promise: 1   a DeepSpeed folder is read by its `latest`, or as the tag folder itself.
 *          2   what is none of these is refused with what was looked for.
 * Limits:  local files; one descriptor for each.
 * Threads: one owner; the inputs may be read by several threads.
 * Next:    formats/zero.h, formats/torch_assembly.h; cli/export.h.
 */
#pragma once

#include "cli/verb.h"
#include "common/file.h"
#include "formats/zero.h"

struct cairn_cli_weights_file {
    char *name;
    struct cairn_file file;
    struct cairn_input input;
};
struct cairn_cli_weights {
    struct cairn_assembly assembly;
    const char *format; /* "deepspeed-zero", "torch", "safetensors" */
    char folder[4096];
    const char **names;                    /* of the folder's files */
    struct cairn_cli_weights_file **files; /* each stands where its input points to */
    size_t count;
    struct cairn_zero *zero;
    struct cairn_torch torch;
};
enum cairn_code cairn_cli_weights_open(const char *path, struct cairn_cli_weights *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
void cairn_cli_weights_release(struct cairn_cli_weights *weights);
