/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors_assembly: the tensors of safetensors files as an assembly.
 *
 * Why:     torch's distributed checkpointing can write safetensors files in which each rank has its
 *          piece of a tensor under the tensor's own name, and says in the header where it belongs
 *          (DCP_SHARDING_INFO); a piece that is taken for the tensor is a wrong model.
 * Promise: 1   an entry whose file gives offsets is a part; parts of one name are put together by
 *              these offsets, and the tensor ends where its last part does. A gap, an overlap and
 *              parts of different types are CAIRN_CORRUPT, with the tensor's name.
 *          2   texts of the headers become the assembly's, but for those that describe pieces and
 *              those that formats/safetensors_write.c makes itself.
 * Limits:  as formats/assembly.h. Missing parts at the end of a tensor go unnoticed.
 * Threads: one owner.
 * Next:    formats/safetensors.h; cli/convert/weights.c, cli/tree/put.c.
 */
#pragma once

#include "formats/assembly.h"
#include "formats/safetensors.h"

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
