/* SPDX-License-Identifier: Apache-2.0 */
/*
 * models: the formats of checkpoints, safetensors files as an assembly, and the files of a model.
 *
 * Why:     torch's distributed checkpointing writes each rank's piece under the tensor's own name,
 *          with its place in the header (DCP_SHARDING_INFO). Hugging Face folders also hold
 *          variants, other programs' copies of the weights, files of an earlier split and partial
 *          downloads. Either mistaken for the model makes a wrong one.
 * Promise: 1   an entry with offsets in its file is a part; parts of one name are joined by
 *              offsets, and the tensor ends with its last part. A gap, an overlap and parts of
 *              different types are CAIRN_CORRUPT, with the tensor's name.
 *          2   the headers' texts become the assembly's, except those that describe pieces and
 *              those that formats/safetensors.c makes itself.
 *          3   an index (*.safetensors.index.json, *.bin.index.json, variants of either) decides,
 *              whatever its name and case. CAIRN_NOT_FOUND names an absent file, the index and a
 *              tensor of the file. Of several indexes the one by the name that loaders try first
 *              decides; without such a name CAIRN_INVALID names two.
 *          4   without an index the model is the file by the name that loaders try first, else all
 *              files of one kind, safetensors before torch's. NAME-0000i-of-0000N gives the number
 *              of files; an absent one, and FILE.incomplete alone, are CAIRN_NOT_FOUND, by name.
 *              Two such sets of one NAME (NAME.fp16-0000i-of-0000N beside it) are CAIRN_INVALID.
 * Limits:  as formats/assembly/assembly.h. Missing parts at the end of a tensor go unnoticed. An
 *          index of CAIRN_SAFETENSORS_HEADER_BYTES_MAX bytes; the folder's names are sorted.
 * Threads: one owner.
 * Next:    formats/safetensors.h; cli/convert/weights.c, cli/tree/put.c.
 */
#pragma once

#include "formats/assembly/assembly.h"
#include "formats/safetensors.h"
#include "formats/zero/zero.h"

struct cairn_safetensors_part {
    char *name; /* owned */
    unsigned dtype, dimension_count;
    struct cairn_box box;
    const struct cairn_input *input; /* from cairn_safetensors_assemble; else NULL */
    size_t file;                     /* the caller's number of the file */
    uint64_t offset_bytes, size_bytes;
};
struct cairn_safetensors_parts {
    struct cairn_safetensors_part *items;
    size_t count, capacity;
};
void cairn_safetensors_parts_release(struct cairn_safetensors_parts *parts);

/* The header's description of pieces; *ret: NULL for none, else owned by the caller. */
enum cairn_code cairn_safetensors_sharding(const struct cairn_safetensors *file, json_t **ret,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* Adds an entry if `sharding` (or NULL) names it; *ret: whether it did. */
enum cairn_code cairn_safetensors_parts_add(struct cairn_safetensors_parts *parts,
                                            const json_t *sharding,
                                            const struct cairn_safetensors_entry *entry,
                                            size_t file, bool *ret,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* Call after the last part: makes parts of one name adjacent. */
void cairn_safetensors_parts_sort(struct cairn_safetensors_parts *parts);
/* Counts the parts with the name of `first` and proves that they cover each element of their
 * tensor, whose shape is returned, once. *ret_count is set also after an error. */
enum cairn_code cairn_safetensors_parts_group(const struct cairn_safetensors_parts *parts,
                                              size_t first, size_t *ret_count,
                                              uint64_t ret_shape[CAIRN_DIMENSIONS_MAX],
                                              struct cairn_error *err) CAIRN_MUST_USE;
/* Adds only the texts of one file. */
enum cairn_code cairn_safetensors_add_texts(const struct cairn_input *input, const char *name,
                                            struct cairn_assembly *assembly,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* Call after the last file: adds the tensors made of parts. */
enum cairn_code cairn_safetensors_join(struct cairn_safetensors_parts *parts,
                                       struct cairn_assembly *assembly,
                                       struct cairn_error *err) CAIRN_MUST_USE;

/* ---- formats, and files of one ---- */

enum cairn_format {
    CAIRN_FORMAT_NONE,
    CAIRN_FORMAT_CAIRN, /* a version whose layout has its tensors */
#define FOLDER_FORMAT(id, tag, kind) CAIRN_FORMAT_##id,
#define FILE_FORMAT(id, tag, kind, name) CAIRN_FORMAT_##id,
#include "formats/formats.def"
};
const char *cairn_format_tag(enum cairn_format format);
/* CAIRN_FORMAT_NONE: no such tag, or NULL. */
enum cairn_format cairn_format_of_tag(const char *tag);
/* By the first bytes of a file; others are refused (cairn_input_refuse). */
enum cairn_code cairn_format_of_file(const struct cairn_input *input, const char *name,
                                     enum cairn_format *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;

struct cairn_reading {
    const struct cairn_input *input;
    const char *name;                      /* of the file */
    bool strict;                           /* as in formats/torch/torch.h */
    struct cairn_assembly *assembly;       /* gets the tensors and texts */
    struct cairn_safetensors_parts *parts; /* gets pieces of tensors */
    struct cairn_torch *torch;             /* stays open: its other values are read later */
};
#define FILE_FORMAT(id, tag, kind, name)                                                           \
    bool cairn_##name##_begins(struct cairn_view first);                                           \
    enum cairn_code cairn_##name##_read_file(const struct cairn_reading *reading,                  \
                                             struct cairn_error *err) CAIRN_MUST_USE;
#include "formats/formats.def"
/* format: the file's. */
enum cairn_code cairn_format_read_file(enum cairn_format format,
                                       const struct cairn_reading *reading,
                                       struct cairn_error *err) CAIRN_MUST_USE;

/* ---- the files of a folder's model ---- */

struct cairn_model_choice {
    enum cairn_format format; /* HF_SAFETENSORS or HF_TORCH; NONE: no model */
    const char *index;        /* name of the deciding index in the folder; NULL: none */
    json_t *map;              /* owned: the index's map of tensor to file */
    const char *single;       /* a model file found by its name; NULL: none */
    bool *taken;              /* owned, by index of the file in the folder */
};
/* The end of the file that aria2 keeps beside one which it has begun to download. */
#define CAIRN_MODEL_BEGUN ".aria2"
void cairn_model_choice_release(struct cairn_model_choice *choice);
/* index: name in the folder, given by the user; NULL: none. */
enum cairn_code cairn_model_choose(const struct cairn_zero_folder *folder, const char *index,
                                   struct cairn_model_choice *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
bool cairn_model_is_index(const char *name);
/* Why pieces that all lie in one rank's files are no tensors. */
#define CAIRN_MODEL_ONE_RANK                                                                       \
    "its pieces of tensors are one rank's (DCP), and no other rank's file is there: what the "     \
    "others saved is missing. If one rank wrote all, give it another name, as model.safetensors"
/* True if both names say that the same rank wrote the file, as shard-00003-model-... does. */
bool cairn_model_is_same_rank(const char *name, const char *other);
/* True for an index, and for a name that tells of other files: NAME-0000i-of-0000N, and what a
 * download has not ended. */
bool cairn_model_is_telling(const char *name);
/* True if a file's name suggests weights or other tensors, of any program. */
bool cairn_model_is_like(const char *name);
