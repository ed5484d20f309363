/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weights: what a person names as a checkpoint, opened as an assembly.
 *
 * Why:     a DeepSpeed folder, its tag folder, a file of torch or of safetensors, and a version
 *          that is stored are all "the model" to who exports it.
 * Promise: 1   a DeepSpeed folder is read by its `latest`, else by its `latest_universal`, or as
 *              the tag folder itself; in a folder of
 *              safetensors or torch files formats/assembly/models.h says which of them are the model;
 *              what is like one of them and is none is in left_out. An index stands for its folder.
 *              Files of which each rank wrote one are put together by formats/torch/torch_ranks.h.
 *              A tensor that two files have is CAIRN_INVALID, with both.
 *          2   what is none of these is refused with what was looked for.
 *          3   project/run@step is a stored version unless a file has that name; its tensors are
 *              those of its layout, or where it has none, what its files hold by the same rules.
 *          4   s3://bucket/path is the object of that name, else what lies below it, by the rules
 *              for local folders; cli/bucket_source.h says how it is read.
 *          5   local files are opened below the descriptor of their folder; with no_links through
 *              no link. What `latest` holds stands in no message: it may be another file's text.
 * Limits:  one descriptor for each local file.
 * Threads: one owner; the inputs may be read by several threads.
 * Next:    formats/zero/zero.h, formats/torch/torch_assembly.h, cli/stored_assembly.h; cli/export.h.
 */
#pragma once

#include "cli/bucket_source.h"
#include "cli/shard_inputs.h"
#include "common/file.h"
#include "common/hash.h"
#include "formats/zero/zero.h"

struct cairn_cli_weights_file {
    char *name;
    struct cairn_file file;   /* of a local one */
    struct cairn_input input; /* of a local one, or of an object */
    bool opened;              /* an object: it was looked at, and has this ETag */
    char etag[128];
    uint32_t shard;           /* of a stored one: its place in the manifest */
    struct cairn_torch torch; /* where it is one of torch */
    bool used;                /* of a folder of model files: its tensors are in the assembly, */
    size_t first_tensor;      /* from this one on */
    const char *prefix;       /* of a rank's file: of the names of what it holds; else NULL */
};
struct cairn_cli_weights {
    struct cairn_assembly assembly;
    const char *format; /* "deepspeed-zero", "deepspeed-universal", "hf-safetensors", "hf-torch",
                           "torch-dcp", "torch-ranks", "torch", "safetensors", "cairn" */
    char index[256];    /* of model files that a person named by their index; "" */
    enum cairn_links links;
    bool has_folder;    /* a local one: the descriptor is open */
    int folder_fd;
    bool optimizer;     /* the optimizer's state is wanted, too, where it has a file of its own */
    bool strict;        /* a class that is not known is refused */
    const char *tp_rules; /* of a person: formats/zero/zero_parallel.h; NULL: none */
    bool stored;
    struct cairn_cli_source source; /* where it is stored */
    struct cairn_cli_shard_inputs *inputs;
    struct cairn_cli_bucket_source *bucket; /* where they are objects; NULL: they are not */
    char below[1026]; /* of objects: the folder in the bucket's, with its slash; "": none */
    const char **names;                    /* of the folder's files */
    struct cairn_cli_weights_file **files; /* each stands where its input points to */
    size_t count, capacity; /* the latter of objects alone */
};
/* Does text mean a stored version (project/run@step), and not a file or a bucket? Then *ret. */
bool cairn_cli_weights_is_stored(const struct cairn_cli *cli, const char *text,
                                 struct cairn_cli_ref *ret);
/* text: a path, s3://bucket/path, or project/run@step. */
enum cairn_code cairn_cli_weights_open(const struct cairn_cli *cli, const char *text,
                                       bool optimizer, struct cairn_cli_weights *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* A path or s3://bucket/path alone. */
enum cairn_code cairn_cli_weights_open_path(const struct cairn_cli *cli, const char *path,
                                            bool optimizer, struct cairn_cli_weights *ret,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* What tells this source from another, or from what it was before it was changed: the version's id;
 * of local files their names, sizes and times of change, of objects
 * their names, sizes and ETags; and with any the rules of a person. */
enum cairn_code cairn_cli_weights_digest(const struct cairn_cli_weights *weights,
                                         uint8_t ret[CAIRN_SHA256_BYTES],
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Before the assembly's seals are read: those of what no tensor has, too, since all of its files
 * are kept. */
enum cairn_code cairn_cli_weights_seal_all(struct cairn_cli_weights *weights,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* What its files hold beside tensors becomes objects of the assembly, with archives or by name;
 * once. Of DCP they are that as soon as it is open, but where it is stored. */
enum cairn_code cairn_cli_weights_add_plain(struct cairn_cli_weights *weights, bool archives,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* The name in its folder of the local file behind an input of the assembly; NULL: the input is no
 * file, but what was unpacked of one. */
const char *cairn_cli_weights_file_of(const struct cairn_cli_weights *weights, uint32_t input);
/* Is it one that --tp-rule is about? */
bool cairn_cli_weights_takes_rules(const struct cairn_cli_weights *weights);
void cairn_cli_weights_release(struct cairn_cli_weights *weights);
