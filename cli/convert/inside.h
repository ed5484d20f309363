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

#define CLI_CHUNK_BYTES (4 * CAIRN_MIB)

/* Rows of flags that several of these verbs have. */
/* clang-format off */
#define CLI_FLAG_STRICT \
    {"strict", 0, CLI_SWITCH, CLI_AT(strict), 0, NULL, \
     "Refuse files that hold a value of a class that is not known, instead of leaving it out."}
#define CLI_FLAG_TP_RULE \
    {"tp-rule", 0, CLI_TEXT, CLI_AT(tp_rules), 0, "RULES", \
     "How DeepSpeed's tensor parallel ranks cut parameters: GLOB=RULE,...; RULE is the " \
     "dimension, 0:ROWS, halves or replicated."}
/* clang-format on */

struct cli_shard_inputs;
/* source must outlive the inputs. */
enum cairn_code cli_shard_inputs_new(const struct cli_source *source, struct cli_shard_inputs **ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
void cli_shard_inputs_free(struct cli_shard_inputs *inputs);
/* shard: index in the manifest. Valid as long as the inputs. */
const struct cairn_input *cli_shard_inputs_at(const struct cli_shard_inputs *inputs,
                                              uint32_t shard);

struct cli_weights_file {
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
struct cli_weights {
    struct cairn_assembly assembly;
    enum cairn_format format;
    char index[256]; /* the index named by the user; "": none */
    enum cairn_links links;
    bool has_folder; /* a local folder: folder_fd is open */
    int folder_fd;
    bool optimizer;       /* also read optimizer state that has its own files */
    bool strict;          /* refuse unknown classes */
    const char *tp_rules; /* the user's: formats/zero/zero_parallel.c; NULL: none */
    bool stored;
    struct cli_source source; /* stored versions */
    struct cli_shard_inputs *inputs;
    struct cairn_cli_bucket_source *bucket; /* NULL: not in a bucket */
    char below[1026];   /* objects: folder below the bucket's, with its slash; "": none */
    const char **names; /* of the folder's files */
    struct cli_weights_file **files; /* separately allocated: inputs point into them */
    size_t count, capacity;          /* capacity: objects only */
    struct cairn_torch **unpacked;   /* deflated files whose storages are in objects; owned */
    size_t unpacked_count, unpacked_capacity;
};
/* Whether text is a stored version, *ret (project/run@step), and not a file or a bucket. */
bool cli_weights_is_stored(const struct cli *cli, const char *text, struct cli_ref *ret);
/* text: a path, s3://bucket/path, or project/run@step. */
enum cairn_code cli_weights_open(const struct cli *cli, const char *text, bool optimizer,
                                 struct cli_weights *ret, struct cairn_error *err) CAIRN_MUST_USE;
/* Like cli_weights_open, without stored versions. */
enum cairn_code cli_weights_open_path(const struct cli *cli, const char *path, bool optimizer,
                                      struct cli_weights *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Identifies the source and its state: the version's id; local files' names, sizes and change
 * times; objects' names, sizes and ETags; and the user's rules. */
enum cairn_code cli_weights_digest(const struct cli_weights *weights,
                                   uint8_t ret[CAIRN_SHA256_BYTES],
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* For an import, before reading the assembly's seals: seals the bytes outside tensors, too. */
enum cairn_code cli_weights_seal_all(struct cli_weights *weights,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Adds non-tensor values as objects, with archives or by name; call once. An opened DCP folder has
 * them already, a stored one does not. */
enum cairn_code cli_weights_add_plain(struct cli_weights *weights, bool archives,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Name of the local file behind an input; NULL: the input was unpacked from a file. */
const char *cli_weights_file_of(const struct cli_weights *weights, uint32_t input);
void cli_weights_release(struct cli_weights *weights);

/* The source's layout is loaded. without: prefix of names to skip, or NULL. */
enum cairn_code cli_stored_assemble(const struct cli_source *source,
                                    const struct cli_shard_inputs *inputs, const char *without,
                                    struct cairn_assembly *assembly,
                                    struct cairn_error *err) CAIRN_MUST_USE;

/* ---- what is left out ---- */

struct cli_left_out {
    const struct cairn_assembly *assembly;
    bool keeps_objects; /* DCP keeps objects, and so do whole files */
    bool keeps_texts;   /* header texts of safetensors: kept in such files and in whole ones */
    bool keeps_files;   /* import keeps files without known tensors */
    const char *only;   /* glob of object names; NULL: all */
};
/* Appends {"name", "why"} to rows, and names of plain values to plain. */
enum cairn_code cli_left_out_rows(const struct cli_left_out *left_out, json_t *rows, json_t *plain,
                                  struct cairn_error *err) CAIRN_MUST_USE;
void cli_left_out_note(const struct cli_left_out *left_out);

enum cairn_code cli_items_take(struct cairn_assembly *assembly, bool keeps_objects,
                               struct cairn_error *err) CAIRN_MUST_USE;

/* ---- exporting an assembly as files ---- */

struct cli_names {
    char **names; /* owned; tensors by number, then objects */
    size_t count;
};
void cli_names_release(struct cli_names *names);
/* prefix, rules: the user's or NULL; both NULL: no names. wanted: whether `number` is exported. */
enum cairn_code cli_names_make(const struct cairn_assembly *assembly, const char *prefix,
                               const char *rules, bool (*wanted)(const void *owner, size_t number),
                               const void *owner, struct cli_names *ret,
                               struct cairn_error *err) CAIRN_MUST_USE;

enum cli_export_form {
#define EXPORT_FORM(id, word, stem, end, index, always) CLI_EXPORT_##id,
#include "formats/formats.def"
};
struct cli_export {
    const struct cli *cli;
    const struct cairn_assembly *assembly;
    uint8_t source[CAIRN_SHA256_BYTES]; /* by cli_weights_digest */
    const char *folder;                 /* created if missing; or s3://bucket/prefix */
    unsigned dtype;                     /* target type of floats; CAIRN_DTYPE_NONE: unchanged */
    uint64_t shard_bytes_max;           /* 0: one file */
    enum cli_export_form form;
    bool exclude_frozen;
    bool copy_tied;         /* write each name of a tied tensor separately */
    bool same;              /* compare with an existing complete export, and succeed if equal */
    const char *only;       /* glob of names; NULL: all */
    struct cli_names names; /* exported names; empty: the assembly's */
    /* Set by _run. */
    size_t file_count, tensor_count, filtered;
    uint64_t bytes;       /* of tensors, written */
    uint64_t *overflowed; /* by number: elements that became infinite; owned */
    bool *kept;           /* by number: written, but not of the wanted type; owned */
};
/* Whether a tensor, or an object (numbered after the tensors), gets bytes and a name of its own. */
bool cli_export_writes(const struct cli_export *job, size_t number);
const char *cli_export_name(const struct cli_export *job, size_t number);

/* ---- the plan: tensors per file, and all bytes outside tensors ---- */

/* Unit of work of one worker in an output file. */
#define CLI_EXPORT_WINDOW_BYTES (8 * CAIRN_MIB)

struct cli_export_shard {
    /* Sorted by offset. tag: number in the assembly; objects follow the tensors. */
    struct cairn_safetensors_entry *entries;
    struct cli_export_archive {
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
struct cli_export_naming {
    const char *stem, *end, *index;
    bool always; /* an index even for one file */
};
const struct cli_export_naming *cli_export_naming(const struct cli_export *export);

struct cli_export_plan {
    struct cli_export *export;
    struct cli_export_place {
        size_t shard, entry; /* + 1; 0: not written */
    } * places;              /* by number in the assembly */
    struct cli_export_shard *shards;
    size_t count, capacity;
    uint64_t window_count;
};
/* Also sets the counts of export. Release the plan after failures, too. */
enum cairn_code cli_export_plan_make(struct cli_export *export, struct cli_export_plan *plan,
                                     struct cairn_error *err) CAIRN_MUST_USE;
void cli_export_plan_release(struct cli_export_plan *plan);
/* An entry that is copied unchanged, no tensor. */
bool cli_export_is_object(const struct cli_export_plan *plan,
                          const struct cairn_safetensors_entry *entry);
enum cairn_code cli_export_plan_index(const struct cli_export_plan *plan, struct cairn_buf *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
bool cli_export_has_index(const struct cli_export_plan *plan);
/* CAIRN_CONFLICT: a file of this name exists. */
enum cairn_code cli_export_already(const char *place, const char *name, struct cairn_error *err);
void cli_export_plan_digest(const struct cli_export_plan *plan, uint8_t ret[CAIRN_SHA256_BYTES]);

/* ---- resuming an earlier export ---- */

#define CLI_EXPORT_LOG ".cairn-export"

/* An export resumes only if source and plan are equal. */
struct cli_export_identity {
    uint8_t source[CAIRN_SHA256_BYTES], plan[CAIRN_SHA256_BYTES];
};
/* CAIRN_CONFLICT: `place` has another export. way_out: what to remove besides its log. */
enum cairn_code cli_export_identity_check(const struct cli_export_identity *found,
                                          const struct cli_export_identity *wanted,
                                          const char *place, const char *way_out,
                                          struct cairn_error *err) CAIRN_MUST_USE;

/* ---- sinks: a folder or a bucket ---- */

/* One window: [begin, begin + size) of a file. */
struct cli_export_span {
    struct cli_export_shard *shard;
    uint64_t begin;
    size_t size;
};
static inline uint64_t cli_export_window_of(const struct cli_export_span *span) {
    return span->shard->first_window + span->begin / CLI_EXPORT_WINDOW_BYTES;
}

struct cli_export_sink;
struct cli_export_sink_vtable {
    bool fills; /* _there leaves the window's bytes in memory if it returns true */
    /* Creates one thread's state; NULL: there is none. */
    enum cairn_code (*hand)(struct cli_export_sink *sink, void **ret, struct cairn_error *err);
    void (*hand_free)(void *hand);
    /* memory: span->size bytes. */
    bool (*there)(struct cli_export_sink *sink, void *hand, const struct cli_export_span *span,
                  void *memory);
    enum cairn_code (*write)(struct cli_export_sink *sink, void *hand,
                             const struct cli_export_span *span, const void *memory,
                             struct cairn_error *err);
    enum cairn_code (*publish)(struct cli_export_sink *sink, struct cairn_error *err);
    /* published: the export succeeded. keep: written windows stay, to be resumed. */
    void (*close)(struct cli_export_sink *sink, bool published, bool keep);
};
struct cli_export_sink {
    const struct cli_export_sink_vtable *vtable;
    struct cli_export_plan *plan;
    const char *place; /* as the user wrote it */
    bool resumed;      /* continues an earlier export */
    bool compares;     /* all files exist: bytes are compared, nothing is written */
    bool kept;         /* something can be resumed */
};

/* Both: close *ret after failures, too; NULL: no memory. */
enum cairn_code cli_export_bucket_open(struct cli_export_plan *plan,
                                       const struct cli_export_identity *identity,
                                       struct cli_export_sink **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;

enum cairn_code cli_export_folder_open(struct cli_export_plan *plan,
                                       const struct cli_export_identity *identity,
                                       struct cli_export_sink **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
