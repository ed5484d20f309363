/* SPDX-License-Identifier: Apache-2.0 */
/* Files, names and index of a model's folder; see model_folder.h. */
#include "formats/model_folder.h"

#include <stdio.h>

#include "api/dtype.h"
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

unsigned cairn_model_dtype(unsigned stored, unsigned wanted) {
    return wanted != CAIRN_DTYPE_NONE && cairn_convertible(stored, wanted) ? wanted : stored;
}

bool cairn_model_index_add(json_t *map, struct cairn_view tensor, const char *file) {
    return !json_object_setn_new(map, tensor.data, tensor.size, json_string(file));
}

json_t *cairn_model_index(json_t *map, uint64_t total_bytes) {
    return json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)total_bytes,
                     "weight_map", map);
}
