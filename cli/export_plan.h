/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export_plan: which tensor goes into which file of an export, and every byte that is no tensor's.
 *
 * Why:     once each byte has its place, windows of the files can be written in any order, by any
 *          number of threads, and some of them another day.
 * Promise: 1   entries and texts of a file follow each other without a gap, up to its last byte.
 *          2   plans that write the same files have the same digest, others have another one.
 *          3   an alias is written where what it stands for is not wanted, or copies are.
 * Limits:  CAIRN_MODEL_FILES_MAX files of at least one tensor each, however large it is.
 * Threads: one owner; the plan is read by several threads.
 * Next:    cli/export.c writes it.
 */
#pragma once

#include "cli/export.h"
#include "common/file.h"
#include "formats/safetensors.h"
#include "formats/torch/torch_write.h"

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
    /* By cli/export.c. */
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
