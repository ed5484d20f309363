/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: shared by the sources of this room: a checkpoint as an assembly, and its export as files.
 *
 * Why:     export, import, inspect and diff accept the same names for a checkpoint: a DeepSpeed
 *          folder, its tag folder, a torch or safetensors file, and a stored version.
 * Promise: 1   cli/convert/weights.c defines the assembly; everything left out of it is reported.
 *          2   cli/convert/export.c defines the files of an export, in a folder or a bucket.
 * Limits:  as formats/assembly/assembly.h.
 * Threads: weights have one owner; several threads may read their inputs. Any worker calls _hand,
 *          _there and _write of a sink, for different windows; the rest has one owner.
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
/* source must outlive the inputs. */
enum cairn_code cairn_cli_shard_inputs_new(const struct cairn_cli_source *source,
                                           struct cairn_cli_shard_inputs **ret,
                                           struct cairn_error *err) CAIRN_MUST_USE;
void cairn_cli_shard_inputs_free(struct cairn_cli_shard_inputs *inputs);
/* shard: index in the manifest. Valid as long as the inputs. */
const struct cairn_input *cairn_cli_shard_inputs_at(const struct cairn_cli_shard_inputs *inputs,
                                                    uint32_t shard);

struct cairn_cli_weights_file {
    char *name;
    struct cairn_file file;   /* local files */
    struct cairn_input input; /* local files and objects */
    bool opened;              /* objects: size and ETag are known */
    char etag[128];
    uint32_t shard;           /* stored versions: index in the manifest */
    struct cairn_torch torch; /* torch files */
    bool used;                /* folders of model files: its tensors are in the assembly, */
    size_t first_tensor;      /* beginning here */
    const char *prefix;       /* a rank's file: prefix of its names; else NULL */
};
struct cairn_cli_weights {
    struct cairn_assembly assembly;
    const char *format; /* "deepspeed-zero", "deepspeed-universal", "hf-safetensors", "hf-torch",
                           "torch-dcp", "torch-ranks", "torch", "safetensors", "cairn" */
    char index[256];    /* the index named by the user; "": none */
    enum cairn_links links;
    bool has_folder; /* a local folder: folder_fd is open */
    int folder_fd;
    bool optimizer;       /* also read optimizer state that has its own files */
    bool strict;          /* refuse unknown classes */
    const char *tp_rules; /* the user's: formats/zero/zero_parallel.h; NULL: none */
    bool stored;
    struct cairn_cli_source source; /* stored versions */
    struct cairn_cli_shard_inputs *inputs;
    struct cairn_cli_bucket_source *bucket; /* NULL: not in a bucket */
    char below[1026];   /* objects: folder below the bucket's, with its slash; "": none */
    const char **names; /* of the folder's files */
    struct cairn_cli_weights_file **files; /* separately allocated: inputs point into them */
    size_t count, capacity;                /* capacity: objects only */
};
/* Whether text is a stored version, *ret (project/run@step), and not a file or a bucket. */
bool cairn_cli_weights_is_stored(const struct cairn_cli *cli, const char *text,
                                 struct cairn_cli_ref *ret);
/* text: a path, s3://bucket/path, or project/run@step. */
enum cairn_code cairn_cli_weights_open(const struct cairn_cli *cli, const char *text,
                                       bool optimizer, struct cairn_cli_weights *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Like cairn_cli_weights_open, without stored versions. */
enum cairn_code cairn_cli_weights_open_path(const struct cairn_cli *cli, const char *path,
                                            bool optimizer, struct cairn_cli_weights *ret,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* Identifies the source and its state: the version's id; local files' names, sizes and change
 * times; objects' names, sizes and ETags; and the user's rules. */
enum cairn_code cairn_cli_weights_digest(const struct cairn_cli_weights *weights,
                                         uint8_t ret[CAIRN_SHA256_BYTES],
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* For an import, before reading the assembly's seals: seals the bytes outside tensors, too. */
enum cairn_code cairn_cli_weights_seal_all(struct cairn_cli_weights *weights,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* Adds non-tensor values as objects, with archives or by name; call once. An opened DCP folder has
 * them already, a stored one does not. */
enum cairn_code cairn_cli_weights_add_plain(struct cairn_cli_weights *weights, bool archives,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* Name of the local file behind an input; NULL: the input was unpacked from a file. */
const char *cairn_cli_weights_file_of(const struct cairn_cli_weights *weights, uint32_t input);
/* Whether --tp-rule applies to the format. */
bool cairn_cli_weights_takes_rules(const struct cairn_cli_weights *weights);
void cairn_cli_weights_release(struct cairn_cli_weights *weights);

/* The source's layout is loaded. without: prefix of names to skip, or NULL. */
enum cairn_code cairn_cli_stored_assemble(const struct cairn_cli_source *source,
                                          const struct cairn_cli_shard_inputs *inputs,
                                          const char *without, struct cairn_assembly *assembly,
                                          struct cairn_error *err) CAIRN_MUST_USE;

/* ---- what is left out ---- */

struct cairn_cli_left_out {
    const struct cairn_assembly *assembly;
    bool keeps_objects; /* DCP keeps objects, and so do whole files */
    bool keeps_texts;   /* header texts of safetensors: kept in such files and in whole ones */
    bool keeps_files;   /* import keeps files without known tensors */
    const char *only;   /* glob of object names; NULL: all */
};
/* Appends {"name", "why"} to rows, and names of plain values to plain. */
enum cairn_code cairn_cli_left_out_rows(const struct cairn_cli_left_out *left_out, json_t *rows,
                                        json_t *plain, struct cairn_error *err) CAIRN_MUST_USE;
void cairn_cli_left_out_note(const struct cairn_cli_left_out *left_out);

enum cairn_code cairn_cli_items_take(struct cairn_assembly *assembly, bool keeps_objects,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* ---- exporting an assembly as files ---- */

struct cairn_cli_names {
    char **names; /* owned; tensors by number, then objects */
    size_t count;
};
void cairn_cli_names_release(struct cairn_cli_names *names);
/* prefix, rules: the user's or NULL; both NULL: no names. wanted: whether `number` is exported. */
enum cairn_code cairn_cli_names_make(const struct cairn_assembly *assembly, const char *prefix,
                                     const char *rules,
                                     bool (*wanted)(const void *owner, size_t number),
                                     const void *owner, struct cairn_cli_names *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;

enum cairn_cli_export_form {
    CAIRN_CLI_EXPORT_SAFETENSORS,
    CAIRN_CLI_EXPORT_TORCH, /* torch.save */
    CAIRN_CLI_EXPORT_DCP,   /* torch.distributed.checkpoint */
};
struct cairn_cli_export {
    const struct cairn_cli *cli;
    const struct cairn_assembly *assembly;
    uint8_t source[CAIRN_SHA256_BYTES]; /* by cairn_cli_weights_digest */
    const char *folder;                 /* created if missing; or s3://bucket/prefix */
    unsigned dtype;                     /* target type of floats; CAIRN_DTYPE_NONE: unchanged */
    uint64_t shard_bytes_max;           /* 0: one file */
    enum cairn_cli_export_form form;
    bool exclude_frozen;
    bool copy_tied;   /* write each name of a tied tensor separately */
    bool same;        /* compare with an existing complete export, and succeed if equal */
    const char *only; /* glob of names; NULL: all */
    struct cairn_cli_names names; /* exported names; empty: the assembly's */
    /* Set by _run. */
    size_t file_count, tensor_count, filtered;
    uint64_t bytes;       /* of tensors, written */
    uint64_t *overflowed; /* by number: elements that became infinite; owned */
    bool *kept;           /* by number: written, but not of the wanted type; owned */
};
/* Whether a tensor, or an object (numbered after the tensors), gets bytes and a name of its own. */
bool cairn_cli_export_writes(const struct cairn_cli_export *job, size_t number);
const char *cairn_cli_export_name(const struct cairn_cli_export *job, size_t number);

/* ---- the plan: tensors per file, and all bytes outside tensors ---- */

/* Unit of work of one worker in an output file. */
#define CAIRN_CLI_EXPORT_WINDOW_BYTES (8 * CAIRN_MIB)

struct cairn_cli_export_shard {
    /* Sorted by offset. tag: number in the assembly; objects follow the tensors. */
    struct cairn_safetensors_entry *entries;
    struct cairn_cli_export_archive {
        uint64_t offset_bytes, size_bytes;
    } * archives; /* DCP: one per entry */
    size_t count;
    struct cairn_torch_alias *aliases;
    size_t alias_count, alias_capacity;
    struct cairn_torch_plan text; /* everything but tensors; in safetensors only the header */
    uint64_t bytes;
    uint64_t first_window; /* counted over all files */
    char name[CAIRN_MODEL_FILE_NAME_BYTES];
    /* Set by cli/convert/export.c. */
    struct cairn_file file;
    bool in_place;  /* an earlier export gave it its name */
    bool published; /* this export gave it its name */
};
/* "model.safetensors", "model-00001-of-00002.safetensors"; DCP: "__0_1.distcp", as of rank 0. */
struct cairn_cli_export_naming {
    const char *stem, *end, *index;
    bool always; /* an index even for one file */
};
const struct cairn_cli_export_naming *
cairn_cli_export_naming(const struct cairn_cli_export *export);

struct cairn_cli_export_plan {
    struct cairn_cli_export *export;
    struct cairn_cli_export_place {
        size_t shard, entry; /* + 1; 0: not written */
    } * places;              /* by number in the assembly */
    struct cairn_cli_export_shard *shards;
    size_t count, capacity;
    uint64_t window_count;
};
/* Also sets the counts of export. Release the plan after failures, too. */
enum cairn_code cairn_cli_export_plan_make(struct cairn_cli_export *export,
                                           struct cairn_cli_export_plan *plan,
                                           struct cairn_error *err) CAIRN_MUST_USE;
void cairn_cli_export_plan_release(struct cairn_cli_export_plan *plan);
/* An entry that is copied unchanged, no tensor. */
bool cairn_cli_export_is_object(const struct cairn_cli_export_plan *plan,
                                const struct cairn_safetensors_entry *entry);
enum cairn_code cairn_cli_export_plan_index(const struct cairn_cli_export_plan *plan,
                                            struct cairn_buf *ret,
                                            struct cairn_error *err) CAIRN_MUST_USE;
bool cairn_cli_export_has_index(const struct cairn_cli_export_plan *plan);
/* CAIRN_CONFLICT: a file of this name exists. */
enum cairn_code cairn_cli_export_already(const char *place, const char *name,
                                         struct cairn_error *err);
void cairn_cli_export_plan_digest(const struct cairn_cli_export_plan *plan,
                                  uint8_t ret[CAIRN_SHA256_BYTES]);

/* ---- resuming an earlier export ---- */

#define CAIRN_CLI_EXPORT_LOG ".cairn-export"

/* An export resumes only if source and plan are equal. */
struct cairn_cli_export_identity {
    uint8_t source[CAIRN_SHA256_BYTES], plan[CAIRN_SHA256_BYTES];
};
/* CAIRN_CONFLICT: `place` has another export. way_out: what to remove besides its log. */
enum cairn_code cairn_cli_export_identity_check(const struct cairn_cli_export_identity *found,
                                                const struct cairn_cli_export_identity *wanted,
                                                const char *place, const char *way_out,
                                                struct cairn_error *err) CAIRN_MUST_USE;

/* ---- sinks: a folder or a bucket ---- */

/* One window: [begin, begin + size) of a file. */
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
    bool fills; /* _there leaves the window's bytes in memory if it returns true */
    /* Creates one thread's state; NULL: there is none. */
    enum cairn_code (*hand)(struct cairn_cli_export_sink *sink, void **ret,
                            struct cairn_error *err);
    void (*hand_free)(void *hand);
    /* memory: span->size bytes. */
    bool (*there)(struct cairn_cli_export_sink *sink, void *hand,
                  const struct cairn_cli_export_span *span, void *memory);
    enum cairn_code (*write)(struct cairn_cli_export_sink *sink, void *hand,
                             const struct cairn_cli_export_span *span, const void *memory,
                             struct cairn_error *err);
    enum cairn_code (*publish)(struct cairn_cli_export_sink *sink, struct cairn_error *err);
    /* published: the export succeeded. keep: written windows stay, to be resumed. */
    void (*close)(struct cairn_cli_export_sink *sink, bool published, bool keep);
};
struct cairn_cli_export_sink {
    const struct cairn_cli_export_sink_vtable *vtable;
    struct cairn_cli_export_plan *plan;
    const char *place; /* as the user wrote it */
    bool resumed;      /* continues an earlier export */
    bool compares;     /* all files exist: bytes are compared, nothing is written */
    bool kept;         /* something can be resumed */
};

/* Both: close *ret after failures, too; NULL: no memory. */
enum cairn_code cairn_cli_export_bucket_open(struct cairn_cli_export_plan *plan,
                                             const struct cairn_cli_export_identity *identity,
                                             struct cairn_cli_export_sink **ret,
                                             struct cairn_error *err) CAIRN_MUST_USE;

enum cairn_code cairn_cli_export_folder_open(struct cairn_cli_export_plan *plan,
                                             const struct cairn_cli_export_identity *identity,
                                             struct cairn_cli_export_sink **ret,
                                             struct cairn_error *err) CAIRN_MUST_USE;
