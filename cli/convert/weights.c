/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weights: detects what a path is and opens its files as an assembly.
 *
 * Promise: 1   a DeepSpeed folder is read by `latest`, else `latest_universal`, or is the tag
 *              folder itself. In a folder of safetensors or torch files formats/assembly/models.h
 *              chooses the model's files; similar files are left out. An index stands for its
 *              folder. formats/torch/torch_ranks.h joins one file per rank. A tensor in two files
 *              is CAIRN_INVALID naming both.
 *          2   anything else is refused, naming what was looked for.
 *          3   project/run@step is a stored version unless such a file exists; its tensors come
 *              from its layout or, without one, from its files by the same rules.
 *          4   s3://bucket/path is the object of that name, else the objects below it, by the rules
 *              for local folders; cli/bucket/bucket.h says how they are read.
 *          5   local files are opened below their folder's descriptor, each once; with no_links
 *              without following links. No message quotes `latest`: it may be another file's text.
 *          6   every name of a stored version's layout is in the assembly: sharded and replicated
 *              tensors whole, aliases as aliases, per-rank tensors once per rank as
 *              name@rank-00003. Shards without tensors are left out. Header texts of unchanged
 *              safetensors files are included.
 *          P3  every byte returned lies in a block that matched its checksum. Ranges are widened to
 *              whole blocks; consecutive short ranges read their blocks once.
 *          7   names and objects left out are reported, plain values in one line.
 *          8   an item (include/cairn/items.h) that is a torch.save file becomes an object where
 *              objects are kept; other items are left out by name.
 * Limits:  one descriptor per local file; one chunk of memory per thread that reads a stored
 *          version; items of several pieces are left out.
 */
#include "cli/convert/inside.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/json.h"
#include "common/text.h"
#include "formats/assembly/models.h"
#include "formats/safetensors.h"
#include "formats/torch/dcp.h"
#include "formats/torch/torch_ranks.h"
#include "formats/zero/zero.h"
#include "store/s3/config.h"

#define FILES_MAX 1048576
#define LATEST "latest"
#define LATEST_UNIVERSAL "latest_universal"

void cli_weights_release(struct cli_weights *weights) {
    cairn_assembly_release(&weights->assembly);
    cli_shard_inputs_free(weights->inputs);
    if (weights->stored) cli_source_release(&weights->source);
    for (size_t i = 0; i < weights->count; i++) {
        cairn_torch_release(&weights->files[i]->torch);
        cairn_file_release(&weights->files[i]->file);
        free(weights->files[i]->name);
        free(weights->files[i]);
    }
    for (size_t i = 0; i < weights->unpacked_count; i++) {
        cairn_torch_release(weights->unpacked[i]);
        free(weights->unpacked[i]);
    }
    free(weights->unpacked);
    free(weights->files);
    free(weights->names);
    if (weights->has_folder) close(weights->folder_fd);
    cairn_cli_bucket_source_free(weights->bucket);
    *weights = (struct cli_weights){0};
}

static enum cairn_code add_file(struct cli_weights *weights, const char *name, size_t *capacity,
                                struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(weights->files, weights->count, *capacity, FILES_MAX,
                               "files of a folder", err));
    struct cli_weights_file *file = calloc(1, sizeof *file);
    if (file) file->name = strdup(name);
    if (!file || !file->name) {
        free(file);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the names of files");
    }
    weights->files[weights->count++] = file;
    return CAIRN_OK;
}

/* Lists the entries of a folder below, each named by its path. */
static enum cairn_code list_below(struct cli_weights *weights, const char *below, size_t *capacity,
                                  struct cairn_error *err) {
    const char *path = *below ? below : ".";
    CAIRN_AUTO_FD fd = cairn_open_below(weights->folder_fd, path, O_DIRECTORY, weights->links);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) return cairn_fail_errno(err, "folder %s", path);
    fd = -1; /* the stream closes it */
    enum cairn_code code = CAIRN_OK;
    for (struct dirent *entry; code == CAIRN_OK && (entry = readdir(folder));) {
        CAIRN_AUTO(buf) name = {0};
        if (entry->d_name[0] == '.' && strcmp(entry->d_name, CAIRN_DCP_METADATA) != 0) continue;
        code = cairn_buf_printf(&name, err, "%s%s", below, entry->d_name);
        if (code == CAIRN_OK) code = add_file(weights, name.data, capacity, err);
    }
    closedir(folder);
    return code;
}

static bool is_folder(const struct cli_weights *weights, const char *name) {
    CAIRN_AUTO_FD fd =
        cairn_open_below(weights->folder_fd, name, O_PATH | O_DIRECTORY, weights->links);
    return fd >= 0;
}

/* Lists its files and, if it has zero/, those of the folders in zero/. */
static enum cairn_code list_folder(struct cli_weights *weights, struct cairn_error *err) {
    size_t capacity = 0;
    CAIRN_TRY(list_below(weights, "", &capacity, err));
    if (!is_folder(weights, CAIRN_ZERO_UNIVERSAL)) return CAIRN_OK;
    size_t first = weights->count;
    CAIRN_TRY(list_below(weights, CAIRN_ZERO_UNIVERSAL, &capacity, err));
    for (size_t i = first, end = weights->count; i < end; i++) {
        CAIRN_AUTO(buf) below = {0};
        if (!is_folder(weights, weights->files[i]->name)) continue;
        CAIRN_TRY(cairn_buf_printf(&below, err, "%s/", weights->files[i]->name));
        CAIRN_TRY(list_below(weights, below.data, &capacity, err));
    }
    return CAIRN_OK;
}

static enum cairn_code open_path(const struct cli_weights *weights, int at_fd, const char *path,
                                 struct cli_weights_file *file, struct cairn_error *err) {
    CAIRN_TRY(cairn_file_open_below(at_fd, path, weights->links, &file->file, err));
    CAIRN_TRY(cairn_input_of_file(&file->file, &file->input, err));
    file->input.name = file->name;
    return CAIRN_OK;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Opens an object below the bucket's folder; "": the named object itself. */
static enum cairn_code open_object(struct cli_weights *weights, const char *name,
                                   struct cli_weights_file *file, struct cairn_error *err) {
    struct cli_object object;
    CAIRN_AUTO(buf) below = {0};
    CAIRN_TRY(cairn_buf_printf(&below, err, "%s%s", weights->below, name));
    CAIRN_TRY(cli_bucket_source_object(weights->bucket, below.data, &object, err));
    file->input = object.input;
    file->input.name = file->name;
    file->opened = true;
    memcpy(file->etag, object.etag, sizeof file->etag);
    return CAIRN_OK;
}

/* names are sorted by use_files. */
static enum cairn_code open_name(void *context, const char *name, const struct cairn_input **ret,
                                 struct cairn_error *err) {
    struct cli_weights *weights = context;
    const char **at =
        bsearch(&name, weights->names, weights->count, sizeof *weights->names, by_text);
    if (!at) return cairn_fail(err, CAIRN_NOT_FOUND, "%s is not there", name);
    struct cli_weights_file *file = weights->files[at - weights->names];
    if (weights->stored) {
        *ret = cli_shard_inputs_at(weights->inputs, file->shard);
        return CAIRN_OK;
    }
    *ret = &file->input;
    if (file->file.open || file->opened) return CAIRN_OK;
    if (weights->bucket) return open_object(weights, name, file, err);
    return open_path(weights, weights->folder_fd, name, file, err);
}

/* Reads the tag folder's name from `latest`. The file is untrusted, so no message quotes it. */
static enum cairn_code take_tag(const struct cairn_input *input, const char *latest, char ret[256],
                                struct cairn_error *err) {
    size_t size = (size_t)cairn_min_u64(input->size_bytes, 255);
    CAIRN_TRY(cairn_input_read(input, 0, ret, size, err));
    ret[size] = '\0';
    ret[strcspn(ret, "\r\n")] = '\0';
    for (size = strlen(ret); size && ret[size - 1] == ' '; size--) ret[size - 1] = '\0';
    bool name = size && *ret != '.' && cairn_utf8_valid(cairn_view_of(ret));
    for (const char *at = ret; *at; at++)
        name &= *at != '/' && (unsigned char)*at >= ' ' && *at != 0x7f;
    if (name) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CORRUPT, "its file `%s` names no folder in it", latest);
}

/* Enters the tag folder that `latest` names, or stays. */
static enum cairn_code choose_folder(struct cli_weights *weights, struct cairn_error *err) {
    static const char *const latest[] = {LATEST, LATEST_UNIVERSAL};
    for (size_t i = 0; i < CAIRN_COUNT(latest); i++) {
        CAIRN_AUTO(file) file = {0};
        struct cairn_input input;
        struct cairn_error why = {0};
        char tag[256];
        enum cairn_code code =
            cairn_file_open_below(weights->folder_fd, latest[i], weights->links, &file, &why);
        if (code == CAIRN_NOT_FOUND) continue;
        CAIRN_TRY(cairn_pass(err, code, &why));
        CAIRN_TRY(cairn_input_of_file(&file, &input, err));
        CAIRN_TRY(take_tag(&input, latest[i], tag, err));
        int fd = cairn_open_below(weights->folder_fd, tag, O_DIRECTORY, weights->links);
        if (fd < 0 && errno == ENOENT)
            return cairn_fail(err, CAIRN_NOT_FOUND,
                              "the folder in it that its file `%s` names is not there", latest[i]);
        if (fd < 0)
            return cairn_fail_errno(err, "the folder in it that its file `%s` names", latest[i]);
        close(weights->folder_fd);
        weights->folder_fd = fd;
        return CAIRN_OK;
    }
    return CAIRN_OK;
}

static enum cairn_code use_input(struct cli_weights *weights, struct cli_weights_file *file,
                                 const struct cairn_input *input, struct cairn_assembly *assembly,
                                 struct cairn_safetensors_parts *parts, struct cairn_error *err) {
    const struct cairn_reading reading = {input,    file->name, weights->strict,
                                          assembly, parts,      &file->torch};
    CAIRN_TRY(cairn_format_of_file(input, file->name, &weights->format, err));
    return cairn_damaged(cairn_format_read_file(weights->format, &reading, err), err);
}

/* torch's DCP writer names rank files "shard-..."; entries beginning at 0 may be pieces, too. */
static enum cairn_code check_parts(const struct cli_weights_file *file,
                                   const struct cairn_safetensors_parts *parts,
                                   struct cairn_error *err) {
    if (!parts->count || !cairn_text_starts(file->name, "shard-")) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "it holds one rank's pieces of tensors, as torch.distributed.checkpoint "
                      "(DCP) writes them: give the folder instead, with the files of all ranks");
}

static enum cairn_code use_only(struct cli_weights *weights, const struct cairn_input *input,
                                struct cairn_error *err) {
    struct cli_weights_file *file = weights->files[0];
    struct cairn_safetensors_parts parts = {0};
    enum cairn_code code = use_input(weights, file, input, &weights->assembly, &parts, err);
    if (code == CAIRN_OK) code = check_parts(file, &parts, err);
    if (code == CAIRN_OK) code = cairn_safetensors_join(&parts, &weights->assembly, err);
    cairn_safetensors_parts_release(&parts);
    return code ? code : cairn_assembly_check(&weights->assembly, err);
}

/* ---- a folder of model files, or of one file per rank ---- */

struct models {
    struct cli_weights *weights;
    const struct cairn_zero_folder *folder;
    struct cairn_model_choice choice;
    struct cairn_safetensors_parts parts;
};

/* The tensor's file: files are used in order. */
static const char *file_of(const struct cli_weights *weights, size_t tensor) {
    const char *found = "";
    for (size_t i = 0; i < weights->count; i++)
        if (weights->files[i]->used && weights->files[i]->first_tensor <= tensor)
            found = weights->files[i]->name;
    return found;
}

/* False if the index takes the tensor from another file, which may have other values for it. */
static bool is_taken_from(const struct models *models, const char *file, const char *tensor) {
    const char *own = json_string_value(json_object_get(models->choice.map, tensor));
    return !models->choice.map || (own && strcmp(own, file) == 0);
}

/* The index gives each tensor's file; a tensor it does not name there is not the model's. */
static enum cairn_code keep_if_indexed(struct models *models, const char *file, const char *tensor,
                                       bool *ret, struct cairn_error *err) {
    CAIRN_AUTO(buf) name = {0};
    CAIRN_AUTO(buf) why = {0};
    *ret = is_taken_from(models, file, tensor);
    if (*ret) return CAIRN_OK;
    const char *own = json_string_value(json_object_get(models->choice.map, tensor));
    CAIRN_TRY(cairn_buf_printf(&name, err, "%s of %s", tensor, file));
    CAIRN_TRY(cairn_buf_printf(&why, err, own ? "%s takes it from %s" : "%s does not name it",
                               models->choice.index, own));
    return cairn_assembly_leave_out(&models->weights->assembly, name.data, why.data, err);
}

static enum cairn_code take_tensors(struct models *models, const char *file,
                                    struct cairn_assembly *own, struct cairn_error *err) {
    struct cairn_assembly *assembly = &models->weights->assembly;
    for (size_t i = 0; i < own->tensor_count; i++) {
        const char *name = own->tensors[i].name;
        size_t there, source = own->tensors[i].alias_of;
        bool named;
        CAIRN_TRY(keep_if_indexed(models, file, name, &named, err));
        if (!named) continue;
        if (source != CAIRN_ASSEMBLY_NO_ALIAS &&
            !is_taken_from(models, file, own->tensors[source].name))
            cairn_assembly_untie(own, i);
        if (cairn_assembly_find(assembly, name, &there))
            return cairn_fail(err, CAIRN_INVALID,
                              "tensor %s is in %s and in %s, and no index says which is meant: "
                              "name the one file instead of the folder",
                              cairn_short(name).text, file_of(models->weights, there), file);
        CAIRN_TRY(cairn_assembly_take(own, i, assembly, err));
    }
    return CAIRN_OK;
}

static enum cairn_code take_texts(const char *file, const struct cairn_assembly *own,
                                  struct cairn_assembly *assembly, struct cairn_error *err) {
    const char *key;
    json_t *text;
    json_object_foreach(own->texts, key, text) {
        CAIRN_TRY(cairn_assembly_add_text(assembly, key, json_string_value(text), file, err));
    }
    return CAIRN_OK;
}

/* ---- links between names ---- */

static bool is_same_file(const struct cli_weights_file *a, const struct cli_weights_file *b) {
    struct stat first, second;
    return a->file.open && b->file.open && fstat(a->file.fd, &first) == 0 &&
           fstat(b->file.fd, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

/* Without an index, two names of one file are one file. */
static enum cairn_code find_twin(struct models *models, size_t number, const char **ret,
                                 struct cairn_error *err) {
    struct cli_weights *weights = models->weights;
    const struct cairn_input *input;
    *ret = NULL;
    if (models->choice.map || !weights->has_folder) return CAIRN_OK;
    CAIRN_TRY(open_name(weights, weights->names[number], &input, err));
    for (size_t i = 0; i < number && !*ret; i++)
        if (weights->files[i]->used && is_same_file(weights->files[i], weights->files[number]))
            *ret = weights->names[i];
    return CAIRN_OK;
}

static enum cairn_code leave_out(struct models *models, const char *name, const char *why,
                                 const char *which, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(cairn_buf_printf(&text, err, why, which));
    return cairn_assembly_leave_out_file(&models->weights->assembly, name, text.data, err);
}

static enum cairn_code use_or_leave_out(struct models *models, size_t number,
                                        struct cairn_error *err) {
    const struct cairn_model_choice *choice = &models->choice;
    const char *name = models->weights->names[number], *twin;
    if (choice->taken[number]) {
        CAIRN_TRY(find_twin(models, number, &twin, err));
        if (twin) return leave_out(models, name, "another name of the file %s", twin, err);
        struct cli_weights *weights = models->weights;
        struct cli_weights_file *file = weights->files[number];
        struct cairn_assembly own = {0};
        const struct cairn_input *input;
        CAIRN_TRY(open_name(weights, file->name, &input, err));
        enum cairn_code code = use_input(weights, file, input, &own, &models->parts, err);
        file->used = true;
        file->first_tensor = weights->assembly.tensor_count;
        if (code == CAIRN_OK) code = take_tensors(models, file->name, &own, err);
        if (code == CAIRN_OK) code = take_texts(file->name, &own, &weights->assembly, err);
        if (code == CAIRN_OK) code = cairn_assembly_take_rest(&own, &weights->assembly, err);
        cairn_assembly_release(&own);
        return cairn_within(err, code, "%s", cairn_short(file->name).text);
    }
    if (!cairn_model_is_like(name) || (choice->index && !strcmp(name, choice->index)))
        return CAIRN_OK;
    if (choice->index)
        return leave_out(models, name, "a file beside the model: %s does not name it",
                         choice->index, err);
    if (choice->single)
        return leave_out(models, name, "a file beside the model, which is %s", choice->single, err);
    return leave_out(models, name, "no file of the model (%s)", cairn_format_tag(choice->format),
                     err);
}

/* ---- one file per rank ---- */

/* Opens the first rank's file, whose non-tensor content holds for all ranks. */
static enum cairn_code open_first(struct models *models, size_t number, const char *prefix,
                                  struct cairn_error *err) {
    struct cli_weights_file *file = models->weights->files[number];
    const struct cairn_input *input;
    CAIRN_TRY(open_name(models->weights, file->name, &input, err));
    file->prefix = prefix;
    return cairn_torch_open(input, models->weights->strict, &file->torch, err);
}

/* torch writes .metadata last: without it the DCP folder is incomplete. */
static bool is_half_dcp(const struct cairn_zero_folder *folder) {
    for (size_t i = 0; i < folder->count; i++)
        if (cairn_text_ends(folder->names[i], ".distcp")) return true;
    return false;
}

/* Nothing says how large a tensor is: pieces that begin at 0 would pass for the tensor. */
static enum cairn_code check_ranks(const struct models *models, struct cairn_error *err) {
    const struct cli_weights *weights = models->weights;
    const char *first = NULL;
    if (!models->parts.count) return CAIRN_OK;
    for (size_t i = 0; i < weights->count; i++) {
        if (!weights->files[i]->used) continue;
        if (!first) first = weights->files[i]->name;
        if (!cairn_model_is_same_rank(first, weights->files[i]->name)) return CAIRN_OK;
    }
    return cairn_fail(err, CAIRN_NOT_FOUND, "%s: " CAIRN_MODEL_ONE_RANK, cairn_short(first).text);
}

static enum cairn_code use_choice(struct models *models, struct cairn_error *err) {
    struct cli_weights *weights = models->weights;
    if (!models->choice.format && cairn_torch_ranks_is(models->folder)) {
        size_t first, optimizer;
        weights->format = CAIRN_FORMAT_RANKS;
        CAIRN_TRY(cairn_damaged(
            cairn_torch_ranks_assemble(models->folder, weights->optimizer, &weights->assembly, err),
            err));
        CAIRN_TRY(cairn_torch_ranks_first(models->folder, &first, &optimizer, err));
        CAIRN_TRY(open_first(models, first, "", err));
        return !weights->optimizer || optimizer == SIZE_MAX
                   ? CAIRN_OK
                   : open_first(models, optimizer, CAIRN_TORCH_RANKS_OPTIMIZER, err);
    }
    if (!models->choice.format && is_half_dcp(models->folder))
        return cairn_fail(err, CAIRN_NOT_FOUND,
                          ".metadata (DCP) is not there: the save of its *.distcp has not ended, "
                          "or it was not copied along");
    if (!models->choice.format)
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "neither a DeepSpeed folder with its file `latest`, nor one with "
                          "*_model_states.pt, .metadata (DCP), *.safetensors, pytorch_model*.bin, "
                          "diffusion_pytorch_model*.bin, adapter_model*.bin or *rank_0.pt");
    for (size_t i = 0; i < weights->count; i++) CAIRN_TRY(use_or_leave_out(models, i, err));
    CAIRN_TRY(cairn_safetensors_join(&models->parts, &weights->assembly, err));
    CAIRN_TRY(check_ranks(models, err));
    weights->format = models->choice.format;
    CAIRN_TRY(cairn_assembly_check(&weights->assembly, err));
    /* An existing file may lack a tensor that the index lists. */
    const char *name;
    json_t *file;
    size_t at;
    json_object_foreach(models->choice.map, name, file) {
        if (!cairn_assembly_find(&models->weights->assembly, name, &at))
            return cairn_fail(err, CAIRN_NOT_FOUND, "tensor %s is not in %s, where %s has it",
                              cairn_short(name).text, json_string_value(file),
                              models->choice.index);
    }
    return CAIRN_OK;
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(struct cli_weights_file *const *)a)->name,
                  (*(struct cli_weights_file *const *)b)->name);
}

/* Needs the list of files. */
static enum cairn_code use_files(struct cli_weights *weights, struct cairn_error *err) {
    if (weights->count) qsort(weights->files, weights->count, sizeof *weights->files, by_name);
    weights->names = calloc(weights->count + 1, sizeof *weights->names);
    if (!weights->names) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for names");
    for (size_t i = 0; i < weights->count; i++) weights->names[i] = weights->files[i]->name;
    struct cairn_zero_folder folder = {.context = weights,
                                       .names = weights->names,
                                       .count = weights->count,
                                       .open = open_name,
                                       .strict = weights->strict};
    if (cairn_dcp_is(&folder)) {
        weights->format = CAIRN_FORMAT_DCP;
        return cairn_damaged(cairn_dcp_assemble(&folder, &weights->assembly, err), err);
    }
    if (cairn_zero_universal_is(&folder)) {
        weights->format = CAIRN_FORMAT_UNIVERSAL;
        return cairn_damaged(
            cairn_zero_universal_open(&folder, weights->optimizer, &weights->assembly, err), err);
    }
    if (!cairn_zero_is(&folder)) {
        /* Reads a folder that is neither DeepSpeed nor DCP. */
        struct models models = {.weights = weights, .folder = &folder};
        const char *index = *weights->index ? weights->index : NULL;
        CAIRN_TRY(cairn_model_choose(&folder, index, &models.choice, err));
        enum cairn_code code = use_choice(&models, err);
        cairn_safetensors_parts_release(&models.parts);
        cairn_model_choice_release(&models.choice);
        return code;
    }
    weights->format = CAIRN_FORMAT_ZERO;
    const struct cairn_zero_options options = {weights->optimizer, weights->tp_rules};
    enum cairn_code code = cairn_zero_open(&folder, &options, &weights->assembly, err);
    return weights->tp_rules ? code : cairn_damaged(code, err); /* a rule may be the cause */
}

/* ---- objects of a bucket ---- */

/* Lists the objects that list_folder would list as files. */
static enum cairn_code add_object(void *owner, const char *name, struct cairn_error *err) {
    struct cli_weights *weights = owner;
    if (strchr(name, '/') && !cairn_text_starts(name, CAIRN_ZERO_UNIVERSAL)) return CAIRN_OK;
    if (name[0] == '.' && strcmp(name, CAIRN_DCP_METADATA) != 0) return CAIRN_OK;
    return add_file(weights, name, &weights->capacity, err);
}

/* Enters the tag folder that an object `latest` names, if any. */
static enum cairn_code choose_below(struct cli_weights *weights, struct cairn_error *err) {
    static const char *const latest[] = {LATEST, LATEST_UNIVERSAL};
    for (size_t i = 0; i < CAIRN_COUNT(latest); i++) {
        struct cli_object object;
        char tag[256];
        enum cairn_code code = cli_bucket_source_object(weights->bucket, latest[i], &object, err);
        if (code == CAIRN_NOT_FOUND) continue;
        if (code) return code;
        CAIRN_TRY(take_tag(&object.input, latest[i], tag, err));
        snprintf(weights->below, sizeof weights->below, "%s/", tag);
        return CAIRN_OK;
    }
    return CAIRN_OK;
}

static enum cairn_code use_bucket(const struct cli *cli, const char *url,
                                  struct cli_weights *weights, struct cairn_error *err) {
    struct cli_weights_file itself = {0};
    CAIRN_TRY(cli_bucket_source_open(cli, url, &weights->bucket, err));
    bool index = cairn_model_is_index(cli_bucket_source_base(weights->bucket));
    if (index) {
        /* The URL names an index: opens its folder. */
        CAIRN_AUTO(buf) beside = {0};
        size_t size = cairn_s3_url_place_size(url), folder = size;
        const char *name = cli_bucket_source_base(weights->bucket);
        if (!cairn_text_copy(weights->index, sizeof weights->index, name))
            return cairn_fail(err, CAIRN_INVALID, "its name is too long");
        while (folder && url[folder - 1] != '/') folder--;
        CAIRN_TRY(cairn_buf_printf(&beside, err, "%.*s%s", (int)folder - 1, url, url + size));
        cairn_cli_bucket_source_free(weights->bucket);
        weights->bucket = NULL;
        CAIRN_TRY(cli_bucket_source_open(cli, beside.data, &weights->bucket, err));
    }
    struct cairn_error why = {0};
    enum cairn_code code = index ? CAIRN_NOT_FOUND : open_object(weights, "", &itself, &why);
    if (code == CAIRN_OK) {
        const char *name = cli_bucket_source_base(weights->bucket);
        CAIRN_TRY(add_file(weights, name, &weights->capacity, err));
        struct cli_weights_file *file = weights->files[0];
        file->input = itself.input;
        file->opened = true;
        memcpy(file->etag, itself.etag, sizeof file->etag);
        return use_only(weights, &file->input, err);
    }
    if (code != CAIRN_NOT_FOUND) return cairn_pass(err, code, &why);
    if (!index) CAIRN_TRY(choose_below(weights, err));
    CAIRN_TRY(cli_bucket_source_list(weights->bucket, weights->below, add_object, weights, err));
    if (!weights->count)
        return cairn_fail(err, CAIRN_NOT_FOUND,
                          "no such object, and no file of a checkpoint lies "
                          "below it");
    return use_files(weights, err);
}

static bool find_index(const char *path, struct cli_weights *weights) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return cairn_model_is_index(name) &&
           cairn_text_copy(weights->index, sizeof weights->index, name);
}

/* Opens at_fd itself or, with a file's path, the file's folder. */
static enum cairn_code open_folder(int at_fd, const char *file, struct cli_weights *weights,
                                   struct cairn_error *err) {
    CAIRN_AUTO(buf) path = {0};
    const char *slash = file ? strrchr(file, '/') : NULL;
    if (slash) CAIRN_TRY(cairn_buf_append(&path, file, (size_t)(slash - file) + 1, err));
    weights->folder_fd =
        cairn_open_below(at_fd, slash ? path.data : ".", O_DIRECTORY, weights->links);
    if (weights->folder_fd < 0) return cairn_fail_errno(err, "its folder cannot be read");
    weights->has_folder = true;
    return CAIRN_OK;
}

static enum cairn_code use_path(const char *path, struct cli_weights *weights,
                                struct cairn_error *err) {
    struct stat status;
    CAIRN_AUTO_FD fd = cairn_open_below(AT_FDCWD, path, O_PATH, weights->links);
    if (fd < 0 && errno == ENOENT)
        return cairn_fail(err, CAIRN_NOT_FOUND, "no such file or folder");
    if (fd < 0 || fstat(fd, &status) != 0) return cairn_fail_errno(err, "cannot be looked at");
    bool is_folder = S_ISDIR(status.st_mode);
    if (!is_folder && !find_index(path, weights)) {
        const char *slash = strrchr(path, '/');
        size_t capacity = 0;
        CAIRN_TRY(add_file(weights, slash ? slash + 1 : path, &capacity, err));
        struct cli_weights_file *file = weights->files[0];
        CAIRN_AUTO(buf) begun = {0};
        CAIRN_TRY(cairn_buf_printf(&begun, err, "%s" CAIRN_MODEL_BEGUN, path));
        if (access(begun.data, F_OK) == 0)
            return cairn_fail(err, CAIRN_NOT_FOUND, "its download has not ended (%s)",
                              cairn_short(begun.data).text);
        CAIRN_TRY(open_path(weights, AT_FDCWD, path, file, err));
        return use_only(weights, &file->input, err);
    }
    CAIRN_TRY(open_folder(is_folder ? fd : AT_FDCWD, is_folder ? NULL : path, weights, err));
    if (is_folder) CAIRN_TRY(choose_folder(weights, err));
    CAIRN_TRY(list_folder(weights, err));
    return use_files(weights, err);
}

/* ---- a stored version ---- */

/* Reads a version without described tensors by the rules for local files. */
static enum cairn_code use_stored_files(struct cli_weights *weights, struct cairn_error *err) {
    const struct cairn_manifest *manifest = &weights->source.version.manifest;
    size_t capacity = 0;
    char folder[1024];
    /* The folder that a stored `latest` names, with its slash; "": no such file. */
    char tag[256];
    folder[0] = '\0';
    for (uint32_t i = 0; i < manifest->shard_count; i++) {
        if (strcmp(manifest->shards[i].name, LATEST) != 0) continue;
        CAIRN_TRY(take_tag(cli_shard_inputs_at(weights->inputs, i), LATEST, tag, err));
        snprintf(folder, sizeof folder, "%s/", tag);
    }
    /* One of the files that its name tells of is read as a folder, which says what is missing. */
    if (manifest->shard_count == 1 && !cairn_model_is_telling(manifest->shards[0].name)) {
        CAIRN_TRY(add_file(weights, manifest->shards[0].name, &capacity, err));
        enum cairn_code code = use_only(weights, cli_shard_inputs_at(weights->inputs, 0), err);
        return cairn_within(err, code, "%s", cairn_short(manifest->shards[0].name).text);
    }
    for (uint32_t i = 0; i < manifest->shard_count; i++) {
        const char *name = manifest->shards[i].name;
        if (strncmp(name, folder, strlen(folder)) != 0) continue;
        CAIRN_TRY(add_file(weights, name + strlen(folder), &capacity, err));
        weights->files[weights->count - 1]->shard = i;
    }
    return use_files(weights, err);
}

/* Each rank has files of its own, with its state of the optimizer. */
static bool has_rank_files(const struct cli_weights *weights) {
    return weights->format == CAIRN_FORMAT_ZERO || weights->format == CAIRN_FORMAT_UNIVERSAL ||
           weights->format == CAIRN_FORMAT_RANKS;
}

static enum cairn_code use_stored(struct cli_weights *weights, struct cairn_error *err) {
    CAIRN_TRY(cli_source_load_layout(&weights->source, err));
    CAIRN_TRY(cli_shard_inputs_new(&weights->source, &weights->inputs, err));
    if (weights->source.version.layout.name_count == 0) return use_stored_files(weights, err);
    weights->format = cairn_format_of_tag(weights->source.version.manifest.format_tag);
    if (!has_rank_files(weights)) weights->format = CAIRN_FORMAT_CAIRN;
    bool skips = has_rank_files(weights) && !weights->optimizer;
    const char *without = skips ? CAIRN_ASSEMBLY_OPTIMIZER : NULL;
    return cli_stored_assemble(&weights->source, weights->inputs, without, &weights->assembly, err);
}

/* --tp-rule is an error for formats that ignore it. */
static enum cairn_code check_rules(const struct cli *cli, const struct cli_weights *weights,
                                   struct cairn_error *err) {
    if (!weights->tp_rules || cli->tp_rules_of_any || weights->format == CAIRN_FORMAT_ZERO)
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "--tp-rule is for DeepSpeed's files, and this is %s",
                      cairn_format_tag(weights->format));
}

enum cairn_code cli_weights_open_path(const struct cli *cli, const char *path, bool optimizer,
                                      struct cli_weights *ret, struct cairn_error *err) {
    *ret = (struct cli_weights){.optimizer = optimizer,
                                .tp_rules = cli->tp_rules,
                                .strict = cli->strict,
                                .links = cli->no_links ? CAIRN_LINKS_NONE : CAIRN_LINKS_FOLLOWED};
    bool bucket = cli_is_bucket(path);
    struct cairn_error why = {0};
    enum cairn_code code = bucket ? use_bucket(cli, path, ret, &why) : use_path(path, ret, &why);
    if (code == CAIRN_OK) code = check_rules(cli, ret, &why);
    if (code == CAIRN_OK) return CAIRN_OK;
    cli_weights_release(ret);
    if (err) *err = why;
    /* Messages about an object begin with its URL, without options. */
    bool told = bucket && !strncmp(why.message, path, cairn_s3_url_place_size(path));
    return told ? code : cairn_within(err, code, "%s", path);
}

bool cli_weights_is_stored(const struct cli *cli, const char *text, struct cli_ref *ret) {
    return !cli_is_bucket(text) && strchr(text, '@') &&
           cli_ref_parse(text, ret, NULL) == CAIRN_OK && (cli->store || access(text, F_OK) != 0);
}

enum cairn_code cli_weights_open(const struct cli *cli, const char *text, bool optimizer,
                                 struct cli_weights *ret, struct cairn_error *err) {
    struct cli_ref ref;
    if (!cli_weights_is_stored(cli, text, &ref))
        return cli_weights_open_path(cli, text, optimizer, ret, err);
    *ret = (struct cli_weights){
        .optimizer = optimizer, .tp_rules = cli->tp_rules, .strict = cli->strict};
    CAIRN_TRY(cli_source_open(cli, &ref, &ret->source, err));
    ret->stored = true;
    struct cairn_error why = {0};
    enum cairn_code code = use_stored(ret, &why);
    if (code == CAIRN_OK) code = check_rules(cli, ret, &why);
    if (code == CAIRN_OK) return CAIRN_OK;
    /* Neither the layout nor the beginning of any file says what tensors there are. */
    if (code == CAIRN_UNSUPPORTED && !ret->format)
        (void)cairn_fail(&why, code,
                         "%s. Its content is opaque: `cairn get %s -d FOLDER` gives it "
                         "back as it was put",
                         why.message, text);
    cli_weights_release(ret);
    if (err) *err = why;
    return cairn_within(err, code, "%s", text);
}

const char *cli_weights_file_of(const struct cli_weights *weights, uint32_t input) {
    size_t at = 0;
    while (at < weights->count && &weights->files[at]->input != weights->assembly.inputs[input])
        at++;
    return at < weights->count ? weights->files[at]->name : NULL;
}

enum cairn_code cli_weights_digest(const struct cli_weights *weights,
                                   uint8_t ret[CAIRN_SHA256_BYTES], struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = CAIRN_GIB};
    struct stat status;
    if (weights->stored)
        CAIRN_TRY(cairn_buf_append_text(&text, weights->source.version.place.id.text, err));
    if (weights->tp_rules) CAIRN_TRY(cairn_buf_printf(&text, err, "%s/", weights->tp_rules));
    for (size_t i = 0; i < weights->count; i++) {
        const struct cli_weights_file *file = weights->files[i];
        if (file->opened)
            CAIRN_TRY(cairn_buf_printf(&text, err, "%s/%llu/%s/", file->name,
                                       (unsigned long long)file->input.size_bytes, file->etag));
        if (!file->file.open) continue;
        if (fstat(file->file.fd, &status) != 0) return cairn_fail_errno(err, "%s", file->name);
        CAIRN_TRY(cairn_buf_printf(&text, err, "%s/%lld/%lld.%09ld/", file->name,
                                   (long long)status.st_size, (long long)status.st_mtim.tv_sec,
                                   status.st_mtim.tv_nsec));
    }
    cairn_sha256_of(cairn_buf_view(&text), ret);
    return CAIRN_OK;
}

/* ---- checksums of all that is kept ---- */

/* Seals the entries of an archive whose file is not open; an unreadable one stays unsealed. */
static enum cairn_code seal_archive(struct cli_weights *weights, const char *name,
                                    struct cairn_error *err) {
    struct cairn_assembly *assembly = &weights->assembly;
    const struct cairn_input *input;
    struct cairn_zip zip;
    uint32_t number;
    CAIRN_TRY(open_name(weights, name, &input, err));
    if (cairn_zip_open(input, &zip, NULL)) return CAIRN_OK;
    enum cairn_code code = cairn_assembly_add_input(assembly, input, &number, err);
    for (size_t i = 0; i < zip.count && code == CAIRN_OK; i++) {
        const struct cairn_zip_entry *entry = &zip.entries[i];
        struct cairn_seal seal = {
            .input = number, .crc32 = entry->crc32, .size_bytes = entry->size_bytes};
        if (entry->deflated) continue;
        code = cairn_zip_data_at(input, entry, &seal.offset_bytes, err);
        if (code == CAIRN_OK) code = cairn_seals_add(&assembly->seals, &seal, entry->name, err);
    }
    cairn_zip_release(&zip);
    return code;
}

enum cairn_code cli_weights_seal_all(struct cli_weights *weights, struct cairn_error *err) {
    struct cairn_assembly *assembly = &weights->assembly;
    bool ranks = has_rank_files(weights);
    for (size_t i = 0; i < weights->count; i++) {
        const struct cairn_torch *torch = &weights->files[i]->torch;
        uint32_t input;
        if (!torch->input && ranks && cairn_text_ends(weights->files[i]->name, ".pt"))
            CAIRN_TRY(seal_archive(weights, weights->files[i]->name, err));
        if (!torch->input) continue;
        CAIRN_TRY(cairn_assembly_add_input(assembly, cairn_torch_data(torch), &input, err));
        CAIRN_TRY(cairn_torch_seal_all(torch, input, &assembly->seals, err));
    }
    if (!assembly->seals.sorted) cairn_seals_sort(&assembly->seals);
    return CAIRN_OK;
}
