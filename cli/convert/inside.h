/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: what the sources of this room share: a checkpoint as an assembly, and its files.
 *
 * Why:     export, import, inspect and diff all take what a person names as a checkpoint: a
 *          DeepSpeed folder, its tag folder, a file of torch or of safetensors, and a version that
 *          is stored.
 * Promise: 1   an assembly is what cli/convert/weights.c says, and what of it has no place is told.
 *          2   an export's files are what cli/convert/export.c says, in a folder or in a bucket.
 * Limits:  as formats/assembly/assembly.h.
 * Threads: weights have one owner, and their inputs may be read by several threads. _hand, _there
 *          and _write of a sink are called by any worker, of different windows; the rest has one
 *          owner.
 * Next:    cli/convert/weights.c, cli/convert/export.c; formats/assembly/assembly.h.
 */
#pragma once

#include "cli/bucket/bucket.h"
#include "common/error.h"
#include "common/file.h"
#include "common/hash/hash.h"
#include "common/json.h"
#include "formats/assembly/assembly.h"
#include "formats/assembly/models.h"
#include "formats/input.h"
#include "formats/safetensors.h"
#include "formats/torch/torch_write.h"
#include "formats/zero/zero.h"

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
    const char *tp_rules; /* of a person: formats/zero/zero_parallel.h; NULL: none */
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

/* ---- an assembly written as files ---- */

struct cairn_cli_names {
    char **names; /* owned; of the tensors by number, then of the objects */
    size_t count;
};
void cairn_cli_names_release(struct cairn_cli_names *names);
/* prefix, rules: of a person; NULL: none. Without both no names are made. wanted: is this one, a
 * number as above, written? */
enum cairn_code cairn_cli_names_make(const struct cairn_assembly *assembly, const char *prefix,
                                     const char *rules,
                                     bool (*wanted)(const void *owner, size_t number),
                                     const void *owner, struct cairn_cli_names *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;

enum cairn_cli_export_form {
    CAIRN_CLI_EXPORT_SAFETENSORS,
    CAIRN_CLI_EXPORT_TORCH, /* files of torch.save */
    CAIRN_CLI_EXPORT_DCP,   /* a folder of torch.distributed.checkpoint */
};
struct cairn_cli_export {
    const struct cairn_cli *cli;
    const struct cairn_assembly *assembly;
    uint8_t source[CAIRN_SHA256_BYTES]; /* which tensors these are; cli/convert/inside.h */
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
    uint64_t bytes;       /* of tensors, written */
    uint64_t *overflowed; /* by number in the assembly: elements that became infinite; owned */
    bool *kept;           /* likewise: it is written, and its type is not the one that is wanted */
};
/* Is it written, under a name of its own? By number of a tensor, or behind these of an object. */
bool cairn_cli_export_writes(const struct cairn_cli_export *job, size_t number);
/* The name by which it is written. */
const char *cairn_cli_export_name(const struct cairn_cli_export *job, size_t number);

/* ---- which tensor goes into which file, and every byte that is no tensor's ---- */

/* Of an output file, filled and written by one worker. */
#define CAIRN_CLI_EXPORT_WINDOW_BYTES (8 * CAIRN_MIB)

/* One file that is written. */
struct cairn_cli_export_shard {
    /* By place. tag: number in the assembly; of an object behind those of the tensors. */
    struct cairn_safetensors_entry *entries;
    struct cairn_cli_export_archive {
        uint64_t offset_bytes, size_bytes;
    } * archives; /* of DCP: of each entry */
    size_t count;
    struct cairn_torch_alias *aliases;
    size_t alias_count, alias_capacity;
    struct cairn_torch_plan text; /* all but the tensors; of safetensors its head alone */
    uint64_t bytes;               /* of the file */
    uint64_t first_window;        /* of all files' windows */
    char name[CAIRN_MODEL_FILE_NAME_BYTES];
    /* By cli/convert/export.c. */
    struct cairn_file file;
    bool in_place;  /* an earlier export gave it its name */
    bool published; /* this one did */
};
/* How files are called: "model.safetensors", "model-00001-of-00002.safetensors"; those of DCP as if
 * rank 0 had written them, "__0_1.distcp". */
struct cairn_cli_export_naming {
    const char *stem, *end, *index;
    bool always; /* the index is written for one file, too */
};
const struct cairn_cli_export_naming *
cairn_cli_export_naming(const struct cairn_cli_export *export);

struct cairn_cli_export_plan {
    struct cairn_cli_export *export;
    struct cairn_cli_export_place {
        size_t shard, entry; /* + 1: 0 is nowhere */
    } * places;              /* by number in the assembly */
    struct cairn_cli_export_shard *shards;
    size_t count, capacity;
    uint64_t window_count;
};
/* Fills the counts of export, too. To be released also after a failure. */
enum cairn_code cairn_cli_export_plan_make(struct cairn_cli_export *export,
                                           struct cairn_cli_export_plan *plan,
                                           struct cairn_error *err) CAIRN_MUST_USE;
void cairn_cli_export_plan_release(struct cairn_cli_export_plan *plan);
/* No tensor: a range that is copied as it is. */
bool cairn_cli_export_is_object(const struct cairn_cli_export_plan *plan,
                                const struct cairn_safetensors_entry *entry);
/* The bytes of the index. */
enum cairn_code cairn_cli_export_plan_index(const struct cairn_cli_export_plan *plan,
                                            struct cairn_buf *ret,
                                            struct cairn_error *err) CAIRN_MUST_USE;
bool cairn_cli_export_has_index(const struct cairn_cli_export_plan *plan);
/* CAIRN_CONFLICT: a file of this name is in the way. */
enum cairn_code cairn_cli_export_already(const char *place, const char *name,
                                         struct cairn_error *err);
void cairn_cli_export_plan_digest(const struct cairn_cli_export_plan *plan,
                                  uint8_t ret[CAIRN_SHA256_BYTES]);

/* ---- what an earlier export left ---- */

#define CAIRN_CLI_EXPORT_LOG ".cairn-export"

/* Of the same source and the same plan, an export goes on. */
struct cairn_cli_export_identity {
    uint8_t source[CAIRN_SHA256_BYTES], plan[CAIRN_SHA256_BYTES];
};
/* CAIRN_CONFLICT: what an earlier export left in `place` is of another one. way_out: what there is
 * to remove beside its log. */
enum cairn_code cairn_cli_export_identity_check(const struct cairn_cli_export_identity *found,
                                                const struct cairn_cli_export_identity *wanted,
                                                const char *place, const char *way_out,
                                                struct cairn_error *err) CAIRN_MUST_USE;

/* ---- where the files are written: a folder, or a bucket ---- */

/* One window of a file: its bytes are [begin, begin + size). */
struct cairn_cli_export_span {
    struct cairn_cli_export_shard *shard;
    uint64_t begin;
    size_t size;
};
static inline uint64_t cairn_cli_export_window_of(const struct cairn_cli_export_span *span) {
    return span->shard->first_window + span->begin / CAIRN_CLI_EXPORT_WINDOW_BYTES;
}

struct cairn_cli_export_sink;
struct cairn_cli_export_sink_vtable {
    bool fills; /* _there leaves the window's bytes in memory where it is true */
    /* What one thread needs for itself; NULL where it needs nothing. */
    enum cairn_code (*hand)(struct cairn_cli_export_sink *sink, void **ret,
                            struct cairn_error *err);
    void (*hand_free)(void *hand);
    /* memory: of the span's size. */
    bool (*there)(struct cairn_cli_export_sink *sink, void *hand,
                  const struct cairn_cli_export_span *span, void *memory);
    enum cairn_code (*write)(struct cairn_cli_export_sink *sink, void *hand,
                             const struct cairn_cli_export_span *span, const void *memory,
                             struct cairn_error *err);
    enum cairn_code (*publish)(struct cairn_cli_export_sink *sink, struct cairn_error *err);
    /* published: it ended well. keep: what was written stays for the same command. */
    void (*close)(struct cairn_cli_export_sink *sink, bool published, bool keep);
};
struct cairn_cli_export_sink {
    const struct cairn_cli_export_sink_vtable *vtable;
    struct cairn_cli_export_plan *plan;
    const char *place; /* as a person wrote it */
    bool resumed;      /* an earlier export was ended here */
    bool compares;     /* all files are there, and each byte is compared: nothing is written */
    bool kept;         /* something is there that the same command would go on from */
};

/* *ret is to be closed also after a failure; NULL: there was no memory. */
enum cairn_code cairn_cli_export_bucket_open(struct cairn_cli_export_plan *plan,
                                             const struct cairn_cli_export_identity *identity,
                                             struct cairn_cli_export_sink **ret,
                                             struct cairn_error *err) CAIRN_MUST_USE;

/* *ret is to be closed also after a failure; NULL: there was no memory. */
enum cairn_code cairn_cli_export_folder_open(struct cairn_cli_export_plan *plan,
                                             const struct cairn_cli_export_identity *identity,
                                             struct cairn_cli_export_sink **ret,
                                             struct cairn_error *err) CAIRN_MUST_USE;
