/* SPDX-License-Identifier: Apache-2.0 */
/* Files, names and index of a model's folder; see model_folder.h. */
#include "formats/model_folder.h"

#include <stdio.h>

#include "api/table/dtype.h"
#include "formats/convert.h"

bool cairn_model_split_begins(struct cairn_model_split *split, uint64_t bytes) {
    uint64_t most = split->file_bytes_max, used = split->used_bytes;
    bool full = most && used && (bytes > most || used > most - bytes);
    bool begins = !split->file_count || full;
    split->file_count += begins;
    split->used_bytes = begins ? bytes : used + bytes;
    return begins;
}

void cairn_model_file_name(const char *stem, const char *end, size_t index, size_t count,
                           char ret[CAIRN_MODEL_FILE_NAME_BYTES]) {
    CAIRN_ASSERT(index < count);
    if (count == 1)
        snprintf(ret, CAIRN_MODEL_FILE_NAME_BYTES, "%s.%s", stem, end);
    else
        snprintf(ret, CAIRN_MODEL_FILE_NAME_BYTES, "%s-%05zu-of-%05zu.%s", stem, index + 1, count,
                 end);
}

bool cairn_model_is_scale(struct cairn_view name) {
    static const char *const last[] = {"scales", "absmax", "nested_absmax", "quant_map",
                                       "nested_quant_map"};
    const char *text = name.data, *dot = name.size ? memrchr(text, '.', name.size) : NULL;
    size_t begin = dot ? (size_t)(dot - text) + 1 : 0, size = name.size - begin;
    if (name.size && memmem(text, name.size, "_scale", 6)) return true;
    for (size_t i = 0; i < CAIRN_COUNT(last); i++)
        if (size == strlen(last[i]) && memcmp(text + begin, last[i], size) == 0) return true;
    return false;
}

unsigned cairn_model_dtype(struct cairn_view name, unsigned stored, unsigned wanted) {
    bool converts = wanted != CAIRN_DTYPE_NONE && cairn_convertible(stored, wanted);
    return converts && !cairn_model_is_scale(name) ? wanted : stored;
}

bool cairn_model_index_add(json_t *map, struct cairn_view tensor, const char *file) {
    return !json_object_setn_new(map, tensor.data, tensor.size, json_string(file));
}

json_t *cairn_model_index(json_t *map, uint64_t total_bytes) {
    return json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)total_bytes,
                     "weight_map", map);
}
