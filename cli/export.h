/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export: an assembly written as safetensors, torch or DCP files, in parallel and in bounded
 *         memory.
 *
 * Why:     merging the shards of a large model in memory takes as much of it as the model has
 *          bytes; their ranges are known, so each byte can go straight to its place.
 * Promise: 1   files have their names only when all of them are whole and on the disk; the index
 *              comes last. What is there already is never replaced.
 *          2   memory is workers * 2 windows, whatever the size of the model.
 *          3   the same tensors give the same bytes, whatever the number of workers.
 *          4   of tensors that are the same bytes one is written, as readers of safetensors files
 *              expect; in torch and DCP files the others are there by name and share its bytes.
 *              With copy_tied each name has bytes of its own.
 *          5   of DCP every tensor is one archive in a file, and `.metadata` is its index: without
 *              it nothing can be loaded. What is no tensor is copied as it is.
 *          6   of tensors whose type changes, the elements that were finite and became infinite are
 *              counted, each once, also where an earlier export wrote them.
 *          7   an export that was killed goes on: what it noted as written and
 *              is still so is not written again, and the files are those of an export in one go.
 *              What fails leaves nothing, unless a server that was away is to blame.
 * Limits:  shards of at least one tensor each, however large it is.
 * Threads: starts its workers and joins them.
 * Next:    cli/export_plan.h, cli/export_sink.h; formats/assembly/assembly.h.
 */
#pragma once

#include "cli/progress.h"
#include "cli/rename.h"
#include "common/hash.h"
#include "formats/assembly/assembly.h"
#include "formats/safetensors.h"

enum cairn_cli_export_form {
    CAIRN_CLI_EXPORT_SAFETENSORS,
    CAIRN_CLI_EXPORT_TORCH, /* files of torch.save */
    CAIRN_CLI_EXPORT_DCP,   /* a folder of torch.distributed.checkpoint */
};
struct cairn_cli_export {
    const struct cairn_cli *cli;
    const struct cairn_assembly *assembly;
    uint8_t source[CAIRN_SHA256_BYTES]; /* which tensors these are; cli/weights.h */
    const char *folder;                 /* made where it is not there; or s3://bucket/prefix */
    unsigned dtype;           /* what floats become; CAIRN_DTYPE_NONE: they stay as they are */
    uint64_t shard_bytes_max; /* 0: one file */
    enum cairn_cli_export_form form;
    bool exclude_frozen;
    bool copy_tied;   /* a tensor of several names is written under each of them */
    bool same;        /* a folder in which all files are is compared, and done if it is so */
    const char *only; /* a pattern of names, as of a shell; NULL: all */
    struct cairn_cli_names names; /* by which they are written; none: by those of the assembly */
    /* By _run. */
    size_t file_count, tensor_count, filtered;
    uint64_t bytes; /* of tensors, written */
    uint64_t *overflowed; /* by number in the assembly: elements that became infinite; owned */
    bool *kept;           /* likewise: it is written, and its type is not the one that is wanted */
};
/* Is it written, under a name of its own? By number of a tensor, or behind these of an object. */
bool cairn_cli_export_writes(const struct cairn_cli_export *job, size_t number);
/* The name by which it is written. */
const char *cairn_cli_export_name(const struct cairn_cli_export *job, size_t number);
void cairn_cli_export_release(struct cairn_cli_export *job);
enum cairn_code cairn_cli_export_run(struct cairn_cli_export *job,
                                     struct cairn_error *err) CAIRN_MUST_USE;
