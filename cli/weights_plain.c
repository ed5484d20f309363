/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a checkpoint hold beside tensors. */
#include <stdlib.h>

#include "cli/weights.h"
#include "common/utf8.h"
#include "formats/dcp.h"
#include "formats/torch_plain.h"

/* What zero_to_fp32 and formats/zero.h take of a file of model states. */
static const char *const zero_taken[] = {
    "module",        "param_shapes", "frozen_param_shapes", "frozen_param_fragments",
    "shared_params", "buffer_names", "optimizer",           NULL};
/* Those of the first rank speak for all. */
static const char *const zero_files[] = {"mp_rank_00_model_states.pt",
                                         "zero_pp_rank_0_mp_rank_00_model_states.pt"};

static enum cairn_code add_opened(struct cairn_cli_weights *weights, const struct cairn_torch *file,
                                  bool archives, const char *const *taken,
                                  struct cairn_error *err) {
    const struct cairn_torch_plain plain = {.file = file, .archives = archives, .taken = taken};
    return cairn_torch_plain_add(&plain, &weights->assembly, err);
}

static enum cairn_code add_input(struct cairn_cli_weights *weights, const struct cairn_input *input,
                                 bool archives, const char *const *taken, struct cairn_error *err) {
    struct cairn_torch file;
    char first[16] = {0};
    size_t size = (size_t)cairn_min_u64(input->size_bytes, sizeof first);
    CAIRN_TRY(cairn_input_read(input, 0, first, size, err));
    if (!cairn_torch_begins((struct cairn_view){first, size})) return CAIRN_OK;
    CAIRN_TRY(cairn_torch_open(input, &file, err));
    enum cairn_code code = add_opened(weights, &file, archives, taken, err);
    cairn_torch_release(&file);
    return code;
}

static bool is_of_zero(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (size_t i = 0; i < CAIRN_COUNT(zero_files); i++)
        if (strcmp(name, zero_files[i]) == 0) return true;
    return false;
}

/* ---- a stored version, whose layout names tensors alone ---- */

struct stored {
    const struct cairn_cli_weights *weights;
    const char **names; /* of its shards, in their order */
};

static enum cairn_code open_shard(void *context, const char *name, const struct cairn_input **ret,
                                  struct cairn_error *err) {
    const struct stored *stored = context;
    const struct cairn_manifest *manifest = &stored->weights->source.version.manifest;
    for (uint32_t i = 0; i < manifest->shard_count; i++) {
        if (strcmp(manifest->shards[i].name, name) != 0) continue;
        *ret = cairn_cli_shard_inputs_at(stored->weights->inputs, i);
        return CAIRN_OK;
    }
    return cairn_fail(err, CAIRN_NOT_FOUND, "%s is not there", cairn_short(name).text);
}

/* The objects of a DCP folder whose tensors the layout has. */
static enum cairn_code add_dcp(struct cairn_cli_weights *weights, struct cairn_error *err) {
    const struct cairn_manifest *manifest = &weights->source.version.manifest;
    struct cairn_assembly *assembly = &weights->assembly, own = {0};
    CAIRN_AUTO_HEAP const char **names = calloc(manifest->shard_count + 1, sizeof *names);
    if (!names) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for names");
    struct stored stored = {weights, names};
    for (uint32_t i = 0; i < manifest->shard_count; i++) names[i] = manifest->shards[i].name;
    const struct cairn_zero_folder folder = {
        .context = &stored, .names = names, .count = manifest->shard_count, .open = open_shard};
    if (!cairn_dcp_is(&folder)) return CAIRN_OK;
    enum cairn_code code = cairn_dcp_assemble(&folder, &own, err);
    for (size_t i = 0; code == CAIRN_OK && i < own.object_count; i++) {
        struct cairn_assembly_piece piece = own.objects[i].piece;
        code = cairn_assembly_add_input(assembly, own.inputs[piece.input], &piece.input, err);
        if (code == CAIRN_OK)
            code = cairn_assembly_add_object(assembly, own.objects[i].name, &piece,
                                             own.objects[i].holds_tensors, err);
    }
    cairn_assembly_release(&own);
    return code;
}

static enum cairn_code add_stored(struct cairn_cli_weights *weights, bool archives,
                                  struct cairn_error *err) {
    const struct cairn_manifest *manifest = &weights->source.version.manifest;
    const char *tag = manifest->format_tag ? manifest->format_tag : "";
    bool zero = strcmp(tag, "deepspeed-zero") == 0;
    if (strcmp(tag, "torch-dcp") == 0) return add_dcp(weights, err);
    if (!zero && strcmp(tag, "torch") != 0 && strcmp(tag, "hf-torch") != 0) return CAIRN_OK;
    for (uint32_t i = 0; i < manifest->shard_count; i++) {
        const char *name = manifest->shards[i].name;
        if (zero && !is_of_zero(name)) continue;
        enum cairn_code code = add_input(weights, cairn_cli_shard_inputs_at(weights->inputs, i),
                                         archives, zero ? zero_taken : NULL, err);
        if (code) return cairn_within(err, code, "%s", cairn_short(name).text);
    }
    return CAIRN_OK;
}

/* ---- all ---- */

enum cairn_code cairn_cli_weights_add_plain(struct cairn_cli_weights *weights, bool archives,
                                            struct cairn_error *err) {
    if (weights->stored && weights->source.version.layout.name_count)
        return add_stored(weights, archives, err);
    bool zero = strcmp(weights->format, "deepspeed-zero") == 0;
    for (size_t i = 0; i < weights->count; i++) {
        struct cairn_cli_weights_file *file = weights->files[i];
        const struct cairn_input *input =
            weights->stored ? cairn_cli_shard_inputs_at(weights->inputs, file->shard)
                            : &file->input;
        enum cairn_code code = CAIRN_OK;
        if (zero && is_of_zero(file->name))
            code = add_input(weights, input, archives, zero_taken, err);
        else if (!zero && file->torch.input)
            code = add_opened(weights, &file->torch, archives, NULL, err);
        if (code) return cairn_within(err, code, "%s", cairn_short(file->name).text);
    }
    return CAIRN_OK;
}
