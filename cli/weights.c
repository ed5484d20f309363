/* SPDX-License-Identifier: Apache-2.0 */
/* Finding out what a path is, and opening its files. */
#include "cli/weights.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/stored_assembly.h"
#include "common/array.h"
#include "common/text.h"
#include "formats/safetensors.h"
#include "formats/torch_assembly.h"

#define FILES_MAX 1048576
#define LATEST "latest"
#define FORMAT_ZERO "deepspeed-zero"

void cairn_cli_weights_release(struct cairn_cli_weights *weights) {
    cairn_torch_release(&weights->torch);
    if (weights->zero) cairn_zero_free(weights->zero);
    cairn_assembly_release(&weights->assembly);
    cairn_cli_shard_inputs_free(weights->inputs);
    if (weights->stored) cairn_cli_source_release(&weights->source);
    for (size_t i = 0; i < weights->count; i++) {
        cairn_file_release(&weights->files[i]->file);
        free(weights->files[i]->name);
        free(weights->files[i]);
    }
    free(weights->files);
    free(weights->names);
    *weights = (struct cairn_cli_weights){0};
}

/* ---- a folder's files ---- */

static enum cairn_code add_file(struct cairn_cli_weights *weights, const char *name,
                                size_t *capacity, struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(weights->files, weights->count, *capacity, FILES_MAX,
                               "files of a folder", err));
    struct cairn_cli_weights_file *file = calloc(1, sizeof *file);
    if (file) file->name = strdup(name);
    if (!file || !file->name) {
        free(file);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the names of files");
    }
    weights->files[weights->count++] = file;
    return CAIRN_OK;
}

static enum cairn_code list_folder(struct cairn_cli_weights *weights, struct cairn_error *err) {
    size_t capacity = 0;
    DIR *folder = opendir(weights->folder);
    if (!folder) return cairn_fail_errno(err, "%s", weights->folder);
    enum cairn_code code = CAIRN_OK;
    for (struct dirent *entry; code == CAIRN_OK && (entry = readdir(folder));)
        if (entry->d_name[0] != '.') code = add_file(weights, entry->d_name, &capacity, err);
    closedir(folder);
    return code;
}

static enum cairn_code list_names(struct cairn_cli_weights *weights, struct cairn_error *err) {
    weights->names = calloc(weights->count + 1, sizeof *weights->names);
    if (!weights->names) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for names");
    for (size_t i = 0; i < weights->count; i++) weights->names[i] = weights->files[i]->name;
    return CAIRN_OK;
}

static enum cairn_code open_path(const char *path, struct cairn_cli_weights_file *file,
                                 struct cairn_error *err) {
    CAIRN_TRY(cairn_file_open_read(AT_FDCWD, path, &file->file, err));
    return cairn_input_of_file(&file->file, &file->input, err);
}

static enum cairn_code open_by_name(void *context, const char *name, const struct cairn_input **ret,
                                    struct cairn_error *err) {
    struct cairn_cli_weights *weights = context;
    CAIRN_AUTO(buf) path = {0};
    for (size_t i = 0; i < weights->count; i++) {
        if (weights->files[i]->name != name) continue;
        if (weights->stored) {
            *ret = cairn_cli_shard_inputs_at(weights->inputs, weights->files[i]->shard);
            return CAIRN_OK;
        }
        CAIRN_TRY(cairn_buf_printf(&path, err, "%s/%s", weights->folder, name));
        CAIRN_TRY(open_path(path.data, weights->files[i], err));
        *ret = &weights->files[i]->input;
        return CAIRN_OK;
    }
    return cairn_fail(err, CAIRN_NOT_FOUND, "%s is not there", name);
}

/* Its files are listed. */
static enum cairn_code use_files(struct cairn_cli_weights *weights, struct cairn_error *err) {
    CAIRN_TRY(list_names(weights, err));
    struct cairn_zero_folder folder = {
        .context = weights, .names = weights->names, .count = weights->count, .open = open_by_name};
    if (!cairn_zero_is(&folder))
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "neither a DeepSpeed folder with its file `latest`, nor one with "
                          "*_model_states.pt");
    weights->format = FORMAT_ZERO;
    return cairn_zero_open(&folder, weights->optimizer, &weights->assembly, &weights->zero, err);
}

/* The tag folder that `latest` names, or the folder itself. */
static enum cairn_code choose_folder(const char *path, struct cairn_cli_weights *weights,
                                     struct cairn_error *err) {
    CAIRN_AUTO(buf) latest = {0};
    CAIRN_AUTO(buf) tag = {.limit = 1024};
    int size = snprintf(weights->folder, sizeof weights->folder, "%s", path);
    CAIRN_TRY(cairn_buf_printf(&latest, err, "%s/" LATEST, path));
    if (size > 0 && access(latest.data, F_OK) == 0) {
        CAIRN_TRY(cairn_file_load_line(latest.data, &tag, err));
        if (!tag.size || strchr(tag.data, '/') || tag.data[0] == '.')
            return cairn_fail(err, CAIRN_INVALID, "its file `latest` names no folder in it");
        size = snprintf(weights->folder, sizeof weights->folder, "%s/%s", path, tag.data);
    }
    if (size < 0 || (size_t)size >= sizeof weights->folder)
        return cairn_fail(err, CAIRN_INVALID, "its path is too long");
    return CAIRN_OK;
}

/* ---- one file ---- */

static enum cairn_code use_safetensors(struct cairn_cli_weights *weights,
                                       const struct cairn_input *input, struct cairn_error *err) {
    CAIRN_AUTO(buf) head = {0};
    CAIRN_AUTO(safetensors) file = {0};
    uint32_t number;
    weights->format = "safetensors";
    CAIRN_TRY(cairn_safetensors_load(input, &head, &file, err));
    CAIRN_TRY(cairn_assembly_add_input(&weights->assembly, input, &number, err));
    for (size_t i = 0; i < file.count; i++) {
        const struct cairn_safetensors_entry *entry = &file.entries[i];
        CAIRN_AUTO(buf) name = {0};
        CAIRN_TRY(cairn_buf_append(&name, entry->name.data, entry->name.size, err));
        CAIRN_TRY(cairn_assembly_add_tensor(&weights->assembly, name.data, entry->dtype,
                                            entry->dimension_count, entry->shape, err));
        CAIRN_TRY(cairn_assembly_add_piece(&weights->assembly, number, entry->offset_bytes,
                                           entry->size_bytes, err));
    }
    return cairn_assembly_check(&weights->assembly, err);
}

static enum cairn_code use_input(struct cairn_cli_weights *weights,
                                 const struct cairn_input *input, struct cairn_error *err) {
    char first[16] = {0};
    size_t size = (size_t)cairn_min_u64(input->size_bytes, sizeof first);
    CAIRN_TRY(cairn_input_read(input, 0, first, size, err));
    if (size > 8 && first[8] == '{') return use_safetensors(weights, input, err);
    if (!cairn_torch_begins((struct cairn_view){first, size}))
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "neither a file of torch.save nor a safetensors file, by how it begins");
    weights->format = "torch";
    CAIRN_TRY(cairn_torch_open(input, &weights->torch, err));
    return cairn_torch_assemble(&weights->torch, "", &weights->assembly, err);
}

static enum cairn_code use_file(const char *path, struct cairn_cli_weights *weights,
                                struct cairn_error *err) {
    size_t capacity = 0;
    CAIRN_TRY(add_file(weights, path, &capacity, err));
    CAIRN_TRY(open_path(path, weights->files[0], err));
    return use_input(weights, &weights->files[0]->input, err);
}

static enum cairn_code use_path(const char *path, struct cairn_cli_weights *weights,
                                struct cairn_error *err) {
    struct stat status;
    if (stat(path, &status) != 0)
        return errno == ENOENT ? cairn_fail(err, CAIRN_NOT_FOUND, "no such file or folder")
                               : cairn_fail_errno(err, "cannot be looked at");
    if (!S_ISDIR(status.st_mode)) return use_file(path, weights, err);
    CAIRN_TRY(choose_folder(path, weights, err));
    CAIRN_TRY(list_folder(weights, err));
    return use_files(weights, err);
}

/* ---- a stored version ---- */

/* The folder that a stored `latest` names, with its slash; "" where there is no such file. */
static enum cairn_code stored_folder(const struct cairn_cli_weights *weights, char ret[1024],
                                     struct cairn_error *err) {
    const struct cairn_manifest *manifest = &weights->source.version.manifest;
    char tag[512] = "";
    ret[0] = '\0';
    for (uint32_t i = 0; i < manifest->shard_count; i++) {
        if (strcmp(manifest->shards[i].name, LATEST) != 0) continue;
        const struct cairn_input *input = cairn_cli_shard_inputs_at(weights->inputs, i);
        size_t size = (size_t)cairn_min_u64(input->size_bytes, sizeof tag - 1);
        CAIRN_TRY(cairn_input_read(input, 0, tag, size, err));
        tag[strcspn(tag, "\r\n")] = '\0';
        if (!*tag || strchr(tag, '/') || *tag == '.')
            return cairn_fail(err, CAIRN_INVALID, "its file `latest` names no folder in it");
        snprintf(ret, 1024, "%s/", tag);
    }
    return CAIRN_OK;
}

/* A version without tensors by name: what its files are, by the rules for local ones. */
static enum cairn_code use_stored_files(struct cairn_cli_weights *weights,
                                        struct cairn_error *err) {
    const struct cairn_manifest *manifest = &weights->source.version.manifest;
    size_t capacity = 0;
    char folder[1024];
    CAIRN_TRY(stored_folder(weights, folder, err));
    if (manifest->shard_count == 1)
        return use_input(weights, cairn_cli_shard_inputs_at(weights->inputs, 0), err);
    for (uint32_t i = 0; i < manifest->shard_count; i++) {
        const char *name = manifest->shards[i].name;
        if (strncmp(name, folder, strlen(folder)) != 0) continue;
        CAIRN_TRY(add_file(weights, name + strlen(folder), &capacity, err));
        weights->files[weights->count - 1]->shard = i;
    }
    return use_files(weights, err);
}

static enum cairn_code use_stored(struct cairn_cli_weights *weights, struct cairn_error *err) {
    CAIRN_TRY(cairn_cli_source_load_layout(&weights->source, err));
    CAIRN_TRY(cairn_cli_shard_inputs_new(&weights->source, &weights->inputs, err));
    if (weights->source.version.layout.name_count == 0) return use_stored_files(weights, err);
    const char *tag = weights->source.version.manifest.format_tag;
    bool zero = tag && strcmp(tag, FORMAT_ZERO) == 0;
    weights->format = zero ? FORMAT_ZERO : "cairn";
    return cairn_cli_stored_assemble(&weights->source, weights->inputs,
                                     zero && !weights->optimizer ? CAIRN_ASSEMBLY_OPTIMIZER : NULL,
                                     &weights->assembly, err);
}

enum cairn_code cairn_cli_weights_open(const struct cairn_cli *cli, const char *text,
                                       bool optimizer, struct cairn_cli_weights *ret,
                                       struct cairn_error *err) {
    struct cairn_cli_ref ref;
    *ret = (struct cairn_cli_weights){.optimizer = optimizer};
    bool stored = strchr(text, '@') && cairn_cli_ref_parse(text, &ref, NULL) == CAIRN_OK &&
                  (cli->store || access(text, F_OK) != 0);
    if (stored) CAIRN_TRY(cairn_cli_source_open(cli, &ref, &ret->source, err));
    ret->stored = stored;
    enum cairn_code code = stored ? use_stored(ret, err) : use_path(text, ret, err);
    if (code == CAIRN_OK) return CAIRN_OK;
    cairn_cli_weights_release(ret);
    return cairn_within(err, code, "%s", text);
}
