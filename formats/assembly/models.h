/* SPDX-License-Identifier: Apache-2.0 */
/*
 * models: the tensors of safetensors files as an assembly, and which files of a folder are a model.
 *
 * Why:     torch's distributed checkpointing can write safetensors files in which each rank has its
 *          piece of a tensor under the tensor's own name, and says in the header where it belongs
 *          (DCP_SHARDING_INFO); a piece that is taken for the tensor is a wrong model. Folders of
 *          Hugging Face's libraries hold variants, other programs' copies of the weights, files of
 *          an earlier split and halves of downloads beside the model; merging all of them, or those
 *          that happen to be there, makes another model.
 * Promise: 1   an entry whose file gives offsets is a part; parts of one name are put together by
 *              these offsets, and the tensor ends where its last part does. A gap, an overlap and
 *              parts of different types are CAIRN_CORRUPT, with the tensor's name.
 *          2   texts of the headers become the assembly's, but for those that describe pieces and
 *              those that formats/safetensors.c makes itself.
 *          3   an index (*.safetensors.index.json, *.bin.index.json, variants of either) decides,
 *              whatever its name. Each file that it names is there, or CAIRN_NOT_FOUND names the
 *              file, the index and a tensor of the file. Of several the one by the name that
 *              loaders look for first decides; where none has such a name, CAIRN_INVALID names two.
 *          4   without an index a file by the name that loaders look for first is the model; else
 *              all files of one kind are, safetensors before torch's. NAME-0000i-of-0000N says how
 *              many there must be, and FILE.incomplete without FILE that one is missing:
 *              CAIRN_NOT_FOUND, by name.
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
    const struct cairn_input *input; /* of cairn_safetensors_assemble; else NULL */
    size_t file;                     /* the caller's number of its file */
    uint64_t offset_bytes, size_bytes;
};
struct cairn_safetensors_parts {
    struct cairn_safetensors_part *items;
    size_t count, capacity;
};
void cairn_safetensors_parts_release(struct cairn_safetensors_parts *parts);

/* What the header says of pieces; *ret: NULL where it says nothing, else the caller's. */
enum cairn_code cairn_safetensors_sharding(const struct cairn_safetensors *file, json_t **ret,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* Adds an entry where `sharding`, which may be NULL, names it; *ret tells. */
enum cairn_code cairn_safetensors_parts_add(struct cairn_safetensors_parts *parts,
                                            const json_t *sharding,
                                            const struct cairn_safetensors_entry *entry,
                                            size_t file, bool *ret,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* After the last: parts of one name follow each other. */
void cairn_safetensors_parts_sort(struct cairn_safetensors_parts *parts);
/* Those of the name of `first`: how many, and the shape of their tensor, of which they are proven
 * to be each element once. *ret_count is set also after an error. */
enum cairn_code cairn_safetensors_parts_group(const struct cairn_safetensors_parts *parts,
                                              size_t first, size_t *ret_count,
                                              uint64_t ret_shape[CAIRN_DIMENSIONS_MAX],
                                              struct cairn_error *err) CAIRN_MUST_USE;

/* One file: its tensors and texts are added to the assembly, its pieces to the parts. */
enum cairn_code cairn_safetensors_assemble(const struct cairn_input *input, const char *name,
                                           struct cairn_assembly *assembly,
                                           struct cairn_safetensors_parts *parts,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* The texts of one file alone. */
enum cairn_code cairn_safetensors_add_texts(const struct cairn_input *input, const char *name,
                                            struct cairn_assembly *assembly,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* After the last file: the tensors of which there are parts. */
enum cairn_code cairn_safetensors_join(struct cairn_safetensors_parts *parts,
                                       struct cairn_assembly *assembly,
                                       struct cairn_error *err) CAIRN_MUST_USE;

/* ---- which files of a folder are its model ---- */

struct cairn_model_choice {
    const char *format; /* "hf-safetensors" or "hf-torch"; NULL: there is no file of a model */
    const char *index;  /* the folder's name of the one that decides; NULL: none */
    json_t *map;        /* owned: tensor to file, of the index */
    const char *single; /* the file that is taken by its name alone; NULL: none */
    bool *taken;        /* owned, by the number of a file in the folder */
};
void cairn_model_choice_release(struct cairn_model_choice *choice);
/* index: of a person, a name of the folder; NULL: none is named. */
enum cairn_code cairn_model_choose(const struct cairn_zero_folder *folder, const char *index,
                                   struct cairn_model_choice *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
bool cairn_model_is_index(const char *name);
/* By its name a file that holds weights or other tensors, of whatever program. */
bool cairn_model_is_like(const char *name);
