/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_folder: how a model lies in a folder of few files, as Hugging Face's libraries read it.
 *
 * Why:     `cairn export` writes such a folder and the server shows one; a reader of either must
 *          find the same tensor in the same file of the same name.
 * Promise: 1   a tensor begins a file when the one before would grow beyond its bound; so one that
 *              is larger than the bound has a file of its own.
 *          2   of one file the name is "STEM.END", of more "STEM-00001-of-00002.END".
 *          3   floats become the dtype that is wanted, where they can; all else stays as it is, and
 *              so do the scales and maps of quantised weights, which are known by their names.
 * Limits:  CAIRN_MODEL_FILES_MAX files.
 * Threads: stateless; a split and an index have one owner.
 * Next:    cli/convert/inside.h, server/reads/hf.c; formats/safetensors.h.
 */
#pragma once

#include "common/json.h"

#define CAIRN_MODEL_FILES_MAX 100000
#define CAIRN_MODEL_FILE_NAME_BYTES 64

struct cairn_model_split {
    uint64_t file_bytes_max; /* of its tensors; 0: none */
    uint64_t used_bytes;     /* of the file that is being filled */
    size_t file_count;
};
/* The next tensor is of so many bytes: does it begin a file? */
bool cairn_model_split_begins(struct cairn_model_split *split, uint64_t bytes);

/* index from 0. */
void cairn_model_file_name(const char *stem, const char *end, size_t index, size_t count,
                           char ret[CAIRN_MODEL_FILE_NAME_BYTES]);

/* wanted CAIRN_DTYPE_NONE: as stored. */
unsigned cairn_model_dtype(struct cairn_view name, unsigned stored, unsigned wanted);
/* By its name what a quantised weight is multiplied with or looked up in: *_scale*, scales, absmax,
 * quant_map and their nested kind. */
bool cairn_model_is_scale(struct cairn_view name);

/* The index says which tensor is in which file: each is told to a map, of which it is made last.
 * False, NULL: no memory. */
bool cairn_model_index_add(json_t *map, struct cairn_view tensor, const char *file);
json_t *cairn_model_index(json_t *map, uint64_t total_bytes);
