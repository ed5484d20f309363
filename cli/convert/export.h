/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export: an assembly written as safetensors, torch or DCP files, in parallel and in bounded
 *         memory.
 *
 * Why:     merging the shards of a large model in memory takes as much of it as the model has
 *          bytes; their ranges are known, so each byte can go straight to its place. Once each has
 *          one, windows can be written in any order, by any number of threads, and some another
 *          day.
 * Promise: 1   files have their names only when all of them are whole and on the disk; the index
 *              comes last. What is there already is never replaced: CAIRN_CONFLICT.
 *          2   memory is workers * 2 windows, whatever the size of the model.
 *          3   the same tensors give the same bytes, whatever the number of workers.
 *          4   of tensors that are the same bytes one is written, as readers of safetensors files
 *              expect; in torch and DCP files the others are there by name and share its bytes.
 *              With copy_tied each name has bytes of its own. An alias is written where what it
 *              stands for is not wanted.
 *          5   of DCP every tensor is one archive in a file, and `.metadata` is its index: without
 *              it nothing can be loaded. What is no tensor is copied as it is.
 *          6   of tensors whose type changes, the elements that were finite and became infinite are
 *              counted, each once, also where an earlier export wrote them.
 *          7   an export of the same source and plan that was killed goes on: what it noted as
 *              written and is still so is not written again, and the files are those of an export
 *              in one go. One of another source or plan is CAIRN_CONFLICT with the way out, and
 *              nothing is changed. What fails leaves nothing, unless a server that was away is to
 *              blame.
 *          8   plans that write the same files have the same digest, others have another one.
 *          9   --strip-prefix takes a beginning away where a name has it; then the first rule of
 *              --rename that is like the name makes another of it. OLD=NEW is one name; with one *
 *              in both, which stands for any text, as many as are like it. Of
 *              optimizer.state.<parameter>.<what> the parameter is renamed. A prefix and a rule
 *              that fit no name are CAIRN_INVALID, and so are two names of the source that become
 *              one, and a name that becomes none, with the names.
 * Limits:  CAIRN_MODEL_FILES_MAX files of at least one tensor each, however large it is; one export
 *          into a place at a time; 256 rules of 1,024 bytes.
 * Threads: starts its workers and joins them, which read the plan. _hand, _there and _write of a
 *          sink are called by any, of different windows; the rest has one owner.
 * Next:    cli/convert/export.c, cli/convert/export_plan.c; formats/assembly.h.
 */
#pragma once

#include "cli/shell/progress.h"
#include "common/error.h"
#include "common/file.h"
#include "common/hash.h"
#include "formats/assembly.h"
#include "formats/model_folder.h"
#include "formats/safetensors.h"
#include "formats/torch_write.h"

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
    uint8_t source[CAIRN_SHA256_BYTES]; /* which tensors these are; cli/convert/weights.h */
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
