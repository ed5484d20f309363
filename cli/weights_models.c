/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of model files: those that formats/assembly/models.h chooses, each tensor from one file;
 * or files of which each rank wrote one. */
#include <sys/stat.h>

#include "cli/weights_inside.h"
#include "common/utf8.h"
#include "formats/assembly/models.h"
#include "formats/torch/torch_ranks.h"

struct models {
    struct cairn_cli_weights *weights;
    const struct cairn_zero_folder *folder;
    struct cairn_model_choice choice;
    struct cairn_safetensors_parts parts;
};

/* The file that the tensor came from: files are used in their order. */
static const char *file_of(const struct cairn_cli_weights *weights, size_t tensor) {
    const char *found = "";
    for (size_t i = 0; i < weights->count; i++)
        if (weights->files[i]->used && weights->files[i]->first_tensor <= tensor)
            found = weights->files[i]->name;
    return found;
}

/* ---- one file ---- */

/* The index gives each tensor one file; what it does not name there is not of the model. */
static enum cairn_code check_named(struct models *models, const char *file, const char *tensor,
                                   bool *ret, struct cairn_error *err) {
    CAIRN_AUTO(buf) name = {0};
    CAIRN_AUTO(buf) why = {0};
    const char *own = json_string_value(json_object_get(models->choice.map, tensor));
    *ret = !models->choice.map || (own && strcmp(own, file) == 0);
    if (*ret) return CAIRN_OK;
    CAIRN_TRY(cairn_buf_printf(&name, err, "%s of %s", tensor, file));
    CAIRN_TRY(cairn_buf_printf(&why, err, own ? "%s takes it from %s" : "%s does not name it",
                               models->choice.index, own));
    return cairn_assembly_leave_out(&models->weights->assembly, name.data, why.data, err);
}

static enum cairn_code take_tensors(struct models *models, const char *file,
                                    const struct cairn_assembly *own, struct cairn_error *err) {
    struct cairn_assembly *assembly = &models->weights->assembly;
    for (size_t i = 0; i < own->tensor_count; i++) {
        const char *name = own->tensors[i].name;
        bool named;
        size_t there;
        CAIRN_TRY(check_named(models, file, name, &named, err));
        if (!named) continue;
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

static enum cairn_code use_file(struct models *models, size_t number, struct cairn_error *err) {
    struct cairn_cli_weights *weights = models->weights;
    struct cairn_cli_weights_file *file = weights->files[number];
    struct cairn_assembly own = {0};
    const struct cairn_input *input;
    CAIRN_TRY(cairn_cli_weights_open_name(weights, file->name, &input, err));
    enum cairn_code code =
        cairn_cli_weights_use_input(weights, file, input, &own, &models->parts, err);
    file->used = true;
    file->first_tensor = weights->assembly.tensor_count;
    if (code == CAIRN_OK) code = take_tensors(models, file->name, &own, err);
    if (code == CAIRN_OK) code = take_texts(file->name, &own, &weights->assembly, err);
    if (code == CAIRN_OK) code = cairn_assembly_take_rest(&own, &weights->assembly, err);
    cairn_assembly_release(&own);
    return code ? cairn_within(err, code, "%s", cairn_short(file->name).text) : CAIRN_OK;
}

/* ---- a name that is a link to another one ---- */

static bool is_same_file(const struct cairn_cli_weights_file *a,
                         const struct cairn_cli_weights_file *b) {
    struct stat first, second;
    return a->file.open && b->file.open && fstat(a->file.fd, &first) == 0 &&
           fstat(b->file.fd, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

/* Without an index: two names of one file are one file. */
static enum cairn_code find_twin(struct models *models, size_t number, const char **ret,
                                 struct cairn_error *err) {
    struct cairn_cli_weights *weights = models->weights;
    const struct cairn_input *input;
    *ret = NULL;
    if (models->choice.map || !weights->has_folder) return CAIRN_OK;
    CAIRN_TRY(cairn_cli_weights_open_name(weights, weights->names[number], &input, err));
    for (size_t i = 0; i < number && !*ret; i++)
        if (weights->files[i]->used && is_same_file(weights->files[i], weights->files[number]))
            *ret = weights->names[i];
    return CAIRN_OK;
}

/* ---- the folder ---- */

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
        return use_file(models, number, err);
    }
    if (!cairn_model_is_like(name) || (choice->index && !strcmp(name, choice->index)))
        return CAIRN_OK;
    if (choice->index)
        return leave_out(models, name, "a file beside the model: %s does not name it",
                         choice->index, err);
    if (choice->single)
        return leave_out(models, name, "a file beside the model, which is %s", choice->single, err);
    return leave_out(models, name, "no file of the model (%s)", choice->format, err);
}

/* A file may be there and not hold what the index says of it. */
static enum cairn_code check_index(const struct models *models, struct cairn_error *err) {
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

/* ---- a file for each rank ---- */

/* What a rank's file holds beside tensors is that of all. */
static enum cairn_code open_first(struct models *models, size_t number, const char *prefix,
                                  struct cairn_error *err) {
    struct cairn_cli_weights_file *file = models->weights->files[number];
    const struct cairn_input *input;
    CAIRN_TRY(cairn_cli_weights_open_name(models->weights, file->name, &input, err));
    file->prefix = prefix;
    return cairn_torch_open(input, models->weights->strict, &file->torch, err);
}

static enum cairn_code use_ranks(struct models *models, struct cairn_error *err) {
    struct cairn_cli_weights *weights = models->weights;
    size_t first, optimizer;
    weights->format = CAIRN_TORCH_RANKS_FORMAT;
    CAIRN_TRY(cairn_damaged(cairn_torch_ranks_assemble(models->folder, weights->optimizer,
                                                       &weights->assembly, err),
                            err));
    CAIRN_TRY(cairn_torch_ranks_first(models->folder, &first, &optimizer, err));
    CAIRN_TRY(open_first(models, first, "", err));
    return !weights->optimizer || optimizer == SIZE_MAX
               ? CAIRN_OK
               : open_first(models, optimizer, CAIRN_TORCH_RANKS_OPTIMIZER, err);
}

/* torch writes the metadata last. */
static bool is_half_dcp(const struct cairn_zero_folder *folder) {
    static const char end[] = ".distcp";
    for (size_t i = 0; i < folder->count; i++) {
        size_t size = strlen(folder->names[i]);
        if (size > strlen(end) && !strcmp(folder->names[i] + size - strlen(end), end)) return true;
    }
    return false;
}

static enum cairn_code use_choice(struct models *models, struct cairn_error *err) {
    struct cairn_cli_weights *weights = models->weights;
    if (!models->choice.format && cairn_torch_ranks_is(models->folder))
        return use_ranks(models, err);
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
    weights->format = models->choice.format;
    CAIRN_TRY(cairn_assembly_check(&weights->assembly, err));
    return check_index(models, err);
}

enum cairn_code cairn_cli_weights_use_models(struct cairn_cli_weights *weights,
                                             const struct cairn_zero_folder *folder,
                                             struct cairn_error *err) {
    struct models models = {.weights = weights, .folder = folder};
    const char *index = *weights->index ? weights->index : NULL;
    CAIRN_TRY(cairn_model_choose(folder, index, &models.choice, err));
    enum cairn_code code = use_choice(&models, err);
    cairn_safetensors_parts_release(&models.parts);
    cairn_model_choice_release(&models.choice);
    return code;
}
