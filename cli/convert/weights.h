/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weights: what a person names as a checkpoint, opened as an assembly, and what of it has no place.
 *
 * Why:     a DeepSpeed folder, its tag folder, a file of torch or of safetensors, and a version
 *          that is stored are all "the model" to who exports it. What is dropped in silence is
 *          missed when it is too late: a step, a random state, an object of its own beside the
 *          tensors.
 * Promise: 1   a DeepSpeed folder is read by its `latest`, else by its `latest_universal`, or as
 *              the tag folder itself; in a folder of safetensors or torch files
 *              formats/model_choice.h says which of them are the model; what is like one of them
 *              and is none is left out. An index stands for its folder. Files of which each rank
 *              wrote one are put together by formats/torch_ranks.h. A tensor that two files have
 *              is CAIRN_INVALID, with both.
 *          2   what is none of these is refused with what was looked for.
 *          3   project/run@step is a stored version unless a file has that name; its tensors are
 *              those of its layout, or where it has none, what its files hold by the same rules.
 *          4   s3://bucket/path is the object of that name, else what lies below it, by the rules
 *              for local folders; cli/bucket/bucket.h says how it is read.
 *          5   local files are opened below the descriptor of their folder, each once; with
 *              no_links through no link. What `latest` holds stands in no message: it may be
 *              another file's text.
 *          6   of a stored version every name of the layout is in the assembly: sharded and
 *              replicated tensors whole, aliases as aliases; one that several ranks hold as their
 *              own is there once for each, as name@rank-00003. A shard in which no tensor lies is
 *              left out. Texts of safetensors files that are kept as they were put are the
 *              assembly's.
 *          P3  every byte of its shards that is handed out lies in a block that was compared with
 *              its checksum. A range is widened to whole blocks; short ranges that follow each
 *              other read their blocks once.
 *          7   each name that the assembly leaves out is told, and each of its objects where they
 *              have no place; plain values in one line.
 *          8   an item (include/cairn/items.h) that is a file of torch.save is an object of the
 *              assembly where objects are kept; every other one is left out, by name.
 * Limits:  one descriptor for each local file; a chunk of memory for each thread that reads a
 *          stored version; an item of several pieces is left out: an object is one range of a file.
 * Threads: one owner; the inputs may be read by several threads, each over its own connection.
 * Next:    formats/zero.h, formats/torch_assembly.h, plan/reads.h; cli/convert/export.h.
 */
#pragma once

#include "cli/bucket/bucket.h"
#include "common/file.h"
#include "common/hash.h"
#include "common/json.h"
#include "formats/assembly.h"
#include "formats/input.h"
#include "formats/safetensors_assembly.h"
#include "formats/zero.h"

#define CAIRN_CLI_CHUNK_BYTES (4 * CAIRN_MIB)

struct cairn_cli_shard_inputs;
/* source must outlive it. */
enum cairn_code cairn_cli_shard_inputs_new(const struct cairn_cli_source *source,
                                           struct cairn_cli_shard_inputs **ret,
                                           struct cairn_error *err) CAIRN_MUST_USE;
void cairn_cli_shard_inputs_free(struct cairn_cli_shard_inputs *inputs);
/* By the shard's place in the manifest; good as long as the inputs are. */
const struct cairn_input *cairn_cli_shard_inputs_at(const struct cairn_cli_shard_inputs *inputs,
                                                    uint32_t shard);

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
    bool has_folder; /* a local one: the descriptor is open */
    int folder_fd;
    bool optimizer;       /* the optimizer's state is wanted, too, where it has a file of its own */
    bool strict;          /* a class that is not known is refused */
    const char *tp_rules; /* of a person: formats/zero_told.h; NULL: none */
    bool stored;
    struct cairn_cli_source source; /* where it is stored */
    struct cairn_cli_shard_inputs *inputs;
    struct cairn_cli_bucket_source *bucket; /* where they are objects; NULL: they are not */
    char below[1026];   /* of objects: the folder in the bucket's, with its slash; "": none */
    const char **names; /* of the folder's files */
    struct cairn_cli_weights_file **files; /* each stands where its input points to */
    size_t count, capacity;                /* the latter of objects alone */
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

/* The source has its layout. without: the beginning of names that are not wanted, or NULL. */
enum cairn_code cairn_cli_stored_assemble(const struct cairn_cli_source *source,
                                          const struct cairn_cli_shard_inputs *inputs,
                                          const char *without, struct cairn_assembly *assembly,
                                          struct cairn_error *err) CAIRN_MUST_USE;

/* ---- what has no place ---- */

struct cairn_cli_left_out {
    const struct cairn_assembly *assembly;
    bool keeps_objects; /* as DCP does, whole files too */
    bool keeps_texts;   /* of headers of safetensors: as such files do, whole ones too */
    bool keeps_files;   /* as an import does: files of which no tensor is known stay files */
    const char *only;   /* a pattern of objects' names, as of a shell; NULL: all */
};
/* {"name", "why"} of each into rows, and of plain values the names alone into plain. */
enum cairn_code cairn_cli_left_out_rows(const struct cairn_cli_left_out *left_out, json_t *rows,
                                        json_t *plain, struct cairn_error *err) CAIRN_MUST_USE;
/* To people. */
void cairn_cli_left_out_note(const struct cairn_cli_left_out *left_out);

enum cairn_code cairn_cli_items_take(struct cairn_assembly *assembly, bool keeps_objects,
                                     struct cairn_error *err) CAIRN_MUST_USE;
