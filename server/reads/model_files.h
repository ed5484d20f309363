/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_files: the safetensors files that a version's tensors would be.
 *
 * Why:     what reads Hugging Face's folders wants a few files by fixed names, and a version has
 *          the pieces of many ranks; names, sizes and headers follow from the layout alone.
 * Promise: 1   the same layout and the same options give the same files, those of `cairn export`.
 *          2   a tensor that has several names is there once; what is each rank's own, items
 *              (bytes by name, which are no tensors) and, unless it is asked for, the optimizer's
 *              state are not, and are counted.
 *          3   every element begins in its file at a multiple of its own size.
 * Limits:  CAIRN_MODEL_FILES_MAX files. Elements of less than a byte are CAIRN_UNSUPPORTED.
 * Threads: stateless; what was made is immutable.
 * Next:    server/reads/hf.c, server/reads/source.h; cli/export_plan.h.
 */
#pragma once

#include "api/table/layout.h"
#include "formats/model_folder.h"
#include "formats/safetensors.h"

#define CAIRN_SRV_MODEL_INDEX "model.safetensors.index.json"

struct cairn_srv_model_options {
    unsigned dtype;          /* of floats; CAIRN_DTYPE_NONE: as stored */
    uint64_t file_bytes_max; /* of tensors; one that is larger has a file of its own */
    const char *only;        /* a pattern of names, as of a shell; NULL: all but the optimizer's */
};
struct cairn_srv_model {
    struct cairn_safetensors_entry *entries; /* tag: of its name in the layout */
    size_t entry_count;
    struct cairn_srv_model_file {
        size_t first, count; /* entries */
    } * files;
    size_t file_count, file_capacity;
    uint64_t total_bytes;                            /* of tensors */
    uint64_t aliases, items, local, optimizer, only; /* that are left out */
    json_t *texts; /* of __metadata__, owned; NULL: none. By server/reads/model_texts.h */
    uint64_t texts_dropped;
};
/* Names are views into the layout. */
enum cairn_code cairn_srv_model_make(const struct cairn_layout *layout,
                                     const struct cairn_srv_model_options *options,
                                     struct cairn_srv_model *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_model_release(struct cairn_srv_model *model);
void cairn_srv_model_name(const struct cairn_srv_model *model, size_t file,
                          char ret[CAIRN_MODEL_FILE_NAME_BYTES]);
/* Which file has this name; false: none. */
bool cairn_srv_model_find(const struct cairn_srv_model *model, const char *name, size_t *ret_file);
/* Its first bytes, and how many it has; its entries are put into the order of their offsets. */
enum cairn_code cairn_srv_model_head(struct cairn_srv_model *model, size_t file,
                                     struct cairn_buf *ret, uint64_t *ret_file_bytes,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* The index: which tensor is in which file. NULL: no memory. */
json_t *cairn_srv_model_index(const struct cairn_srv_model *model);
/* As it is stored: the tensor of an entry. */
void cairn_srv_model_stored(const struct cairn_layout *layout, size_t tag,
                            struct cairn_tensor *ret);
