/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_choice: which files of a folder are its model.
 *
 * Why:     folders of Hugging Face's libraries hold variants, other programs' copies of the
 *          weights, files of an earlier split and halves of downloads beside the model; merging
 *          all of them, or those that happen to be there, makes another model.
 * Promise: 1   an index (*.safetensors.index.json, *.bin.index.json, variants of either) decides,
 *              whatever its name. Each file that it names is there, or CAIRN_NOT_FOUND names the
 *              file, the index and a tensor of the file. Of several the one by the name that
 *              loaders look for first decides; where none has such a name, CAIRN_INVALID names two.
 *          2   without an index a file by the name that loaders look for first is the model; else
 *              all files of one kind are. NAME-0000i-of-0000N says how many there must be, and
 *              FILE.incomplete without FILE that one is missing: CAIRN_NOT_FOUND, by name.
 *          3   safetensors files go before torch's.
 * Limits:  an index of CAIRN_SAFETENSORS_HEADER_BYTES_MAX bytes; the folder's names are sorted.
 * Threads: one owner.
 * Next:    cli/convert/weights.c.
 */
#pragma once

#include "common/json.h"
#include "formats/zero.h"

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
