/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of a layout, put into files in the order of their names. */
#include "server/reads/model_files.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/table/dtype.h"
#include "common/buf.h"
#include "common/text.h"
#include "formats/assembly.h"

#define STEM "model"
#define END "safetensors"

void cairn_srv_model_release(struct cairn_srv_model *model) {
    free(model->entries);
    free(model->files);
    json_decref(model->texts);
    *model = (struct cairn_srv_model){0};
}

void cairn_srv_model_stored(const struct cairn_layout *layout, size_t tag,
                            struct cairn_tensor *ret) {
    struct cairn_view name;
    uint32_t first, count, table, number;
    cairn_layout_name_at(layout, (uint32_t)tag, &name, &first, &count);
    cairn_layout_ref_at(layout, first, &table, &number);
    cairn_table_tensor_at(&layout->tables[table], number, ret);
}

/* Names are kept without a NUL. */
static enum cairn_code is_named(const struct cairn_srv_model_options *options,
                                struct cairn_view name, bool *ret, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(cairn_buf_append(&text, name.data, name.size, err));
    *ret = fnmatch(options->only, text.data, 0) == 0;
    return CAIRN_OK;
}

static enum cairn_code is_wanted(struct cairn_srv_model *model,
                                 const struct cairn_srv_model_options *options,
                                 const struct cairn_tensor *tensor, bool *ret,
                                 struct cairn_error *err) {
    static const struct cairn_view optimizer = {CAIRN_ASSEMBLY_OPTIMIZER,
                                                sizeof CAIRN_ASSEMBLY_OPTIMIZER - 1};
    bool of_optimizer = tensor->name.size >= optimizer.size &&
                        memcmp(tensor->name.data, optimizer.data, optimizer.size) == 0;
    *ret = false;
    if (options->only) {
        CAIRN_TRY(is_named(options, tensor->name, ret, err));
        model->only += !*ret;
    } else {
        *ret = !of_optimizer;
        model->optimizer += of_optimizer;
    }
    if (!*ret) return CAIRN_OK;
    bool item = tensor->dtype == CAIRN_DTYPE_ITEM;
    model->items += item;
    model->aliases += !item && tensor->kind == CAIRN_TENSOR_ALIAS;
    model->local += !item && tensor->kind == CAIRN_TENSOR_LOCAL;
    *ret = !item && tensor->kind != CAIRN_TENSOR_ALIAS && tensor->kind != CAIRN_TENSOR_LOCAL;
    return CAIRN_OK;
}

static enum cairn_code add_entry(struct cairn_srv_model *model,
                                 const struct cairn_srv_model_options *options, uint32_t index,
                                 const struct cairn_tensor *tensor, struct cairn_model_split *split,
                                 struct cairn_error *err) {
    struct cairn_safetensors_entry *entry = &model->entries[model->entry_count];
    uint64_t elements = 0, bytes = 0;
    *entry = (struct cairn_safetensors_entry){
        .name = tensor->name,
        .dtype = cairn_model_dtype(tensor->name, tensor->dtype, options->dtype),
        .dimension_count = tensor->dimension_count,
        .tag = index};
    memcpy(entry->shape, tensor->shape, sizeof(entry->shape));
    if (cairn_dtype_bits(entry->dtype) < 8)
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "tensor %.*s has elements of less than a byte; its own route gives it: "
                          ".../tensors/NAME/data",
                          (int)cairn_min_u64(tensor->name.size, 200),
                          (const char *)tensor->name.data);
    if (!cairn_tensor_size(entry->dtype, entry->dimension_count, entry->shape, &elements, &bytes))
        return cairn_fail(err, CAIRN_CORRUPT, "the layout has a tensor of no size");
    if (cairn_model_split_begins(split, bytes)) {
        CAIRN_TRY(CAIRN_ARRAY_ROOM(model->files, model->file_count, model->file_capacity,
                                   CAIRN_MODEL_FILES_MAX, "files of a model", err));
        model->files[model->file_count++] =
            (struct cairn_srv_model_file){.first = model->entry_count};
    }
    model->files[model->file_count - 1].count++;
    model->entry_count++;
    model->total_bytes += bytes;
    return CAIRN_OK;
}

static enum cairn_code make(const struct cairn_layout *layout,
                            const struct cairn_srv_model_options *options,
                            struct cairn_srv_model *model, struct cairn_error *err) {
    struct cairn_model_split split = {.file_bytes_max = options->file_bytes_max};
    model->entries = calloc((size_t)layout->name_count + 1, sizeof(*model->entries));
    if (!model->entries) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for tensors' names");
    for (uint32_t i = 0; i < layout->name_count; i++) {
        struct cairn_tensor tensor;
        bool wanted = false;
        cairn_srv_model_stored(layout, i, &tensor);
        CAIRN_TRY(is_wanted(model, options, &tensor, &wanted, err));
        if (wanted) CAIRN_TRY(add_entry(model, options, i, &tensor, &split, err));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_model_make(const struct cairn_layout *layout,
                                     const struct cairn_srv_model_options *options,
                                     struct cairn_srv_model *ret, struct cairn_error *err) {
    *ret = (struct cairn_srv_model){0};
    enum cairn_code code = make(layout, options, ret, err);
    if (code) cairn_srv_model_release(ret);
    return code;
}

void cairn_srv_model_name(const struct cairn_srv_model *model, size_t file,
                          char ret[CAIRN_MODEL_FILE_NAME_BYTES]) {
    cairn_model_file_name(STEM, END, file, model->file_count, ret);
}

bool cairn_srv_model_find(const struct cairn_srv_model *model, const char *name, size_t *ret_file) {
    char own[CAIRN_MODEL_FILE_NAME_BYTES];
    for (size_t i = 0; i < model->file_count; i++) {
        cairn_srv_model_name(model, i, own);
        if (strcmp(own, name) != 0) continue;
        *ret_file = i;
        return true;
    }
    return false;
}

enum cairn_code cairn_srv_model_head(struct cairn_srv_model *model, size_t file,
                                     struct cairn_buf *ret, uint64_t *ret_file_bytes,
                                     struct cairn_error *err) {
    const struct cairn_srv_model_file *own = &model->files[file];
    ret->limit = CAIRN_SAFETENSORS_HEADER_BYTES_MAX + CAIRN_SAFETENSORS_ALIGN;
    return cairn_safetensors_write_texts(&model->entries[own->first], own->count, model->texts, ret,
                                         ret_file_bytes, err);
}

json_t *cairn_srv_model_index(const struct cairn_srv_model *model) {
    CAIRN_AUTO_JSON json_t *map = json_object();
    for (size_t i = 0; map && i < model->file_count; i++) {
        const struct cairn_srv_model_file *file = &model->files[i];
        char name[CAIRN_MODEL_FILE_NAME_BYTES];
        cairn_srv_model_name(model, i, name);
        for (size_t k = file->first; k < file->first + file->count; k++) {
            if (!cairn_model_index_add(map, model->entries[k].name, name)) return NULL;
        }
    }
    return cairn_model_index(map, model->total_bytes);
}
