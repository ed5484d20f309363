/* SPDX-License-Identifier: Apache-2.0 */
/* left_out: non-tensor content of a checkpoint: values become objects, items become objects or are
 * left out; everything left out is reported with its reason. */
#include "cli/convert/inside.h"

#include <fnmatch.h>
#include <stdlib.h>

#include "api/table/dtype.h"
#include "cli/shell/output.h"
#include "common/text.h"
#include "formats/torch/dcp.h"
#include "formats/torch/torch_ranks.h"

/* By name suffix: DeepSpeed files whose values hold for all ranks; `taken`: values that
 * formats/zero/zero.h already uses. */
static const struct rule {
    const char *end;
    bool optimizer;   /* read only if optimizer state is wanted */
    bool tensors_too; /* also report tensors that zero.h does not use */
    const char *const *taken;
} rules[] = {
    {"mp_rank_00_model_states.pt", false, true,
     (const char *const[]){"module", "param_shapes", "frozen_param_shapes",
                           "frozen_param_fragments", "shared_params", "buffer_names",
                           "optimizer.state", NULL}},
    {"zero_pp_rank_0_mp_rank_00_optim_states.pt", true, false,
     (const char *const[]){"ds_config", "ds_version", "optimizer_state_dict.ds_version",
                           "optimizer_state_dict.param_slice_mappings",
                           "optimizer_state_dict.zero_stage", NULL}},
};

/* prefix: of a rank's file; else NULL. */
static enum cairn_code add_opened(struct cli_weights *weights, const struct cairn_torch *file,
                                  bool archives, const struct rule *rule, const char *prefix,
                                  struct cairn_error *err) {
    const struct cairn_torch_plain plain = {.file = file,
                                            .archives = archives,
                                            .ranks = prefix != NULL,
                                            .own_tensors = !rule,
                                            .prefix = prefix && *prefix ? prefix : NULL,
                                            .taken = rule ? rule->taken : NULL,
                                            .tensors_too = rule && rule->tensors_too};
    return cairn_torch_plain_add(&plain, &weights->assembly, err);
}

static enum cairn_code add_input(struct cli_weights *weights, const struct cairn_input *input,
                                 bool archives, const struct rule *rule, const char *prefix,
                                 struct cairn_error *err) {
    char first[16] = {0};
    size_t size = (size_t)cairn_min_u64(input->size_bytes, sizeof first);
    CAIRN_TRY(cairn_input_read(input, 0, first, size, err));
    if (!cairn_torch_begins((struct cairn_view){first, size})) return CAIRN_OK;
    CAIRN_TRY(CAIRN_ARRAY_ROOM(weights->unpacked, weights->unpacked_count,
                               weights->unpacked_capacity, SIZE_MAX, "files", err));
    struct cairn_torch *file = calloc(1, sizeof *file);
    if (!file) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a file");
    enum cairn_code code = cairn_torch_open(input, weights->strict, file, err);
    if (code == CAIRN_OK) code = add_opened(weights, file, archives, rule, prefix, err);
    /* Objects read a file's unpacked bytes through it. */
    if (code == CAIRN_OK && archives && file->unpacked) {
        weights->unpacked[weights->unpacked_count++] = file;
        return CAIRN_OK;
    }
    cairn_torch_release(file);
    free(file);
    return code;
}

static bool is_deepspeed(enum cairn_format format) {
    return format == CAIRN_FORMAT_ZERO || format == CAIRN_FORMAT_UNIVERSAL;
}

/* NULL: no such file, or another rank's. */
static const struct rule *rule_of(const struct cli_weights *weights, const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (size_t i = 0; i < CAIRN_COUNT(rules); i++) {
        size_t size = strlen(name), end = strlen(rules[i].end);
        if (size < end || strcmp(name + size - end, rules[i].end) != 0) continue;
        if (rules[i].optimizer && !weights->optimizer) continue;
        if (size == end || strcmp(name, "zero_pp_rank_0_mp_rank_00_model_states.pt") == 0 ||
            strcmp(name, "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt") == 0)
            return &rules[i];
    }
    return NULL;
}

/* ---- stored versions, whose layout has tensors only ---- */

static enum cairn_code open_shard(void *context, const char *name, const struct cairn_input **ret,
                                  struct cairn_error *err) {
    const struct cli_weights *weights = context;
    const struct cairn_manifest *manifest = &weights->source.version.manifest;
    for (uint32_t i = 0; i < manifest->shard_count; i++) {
        if (strcmp(manifest->shards[i].name, name) != 0) continue;
        *ret = cli_shard_inputs_at(weights->inputs, i);
        return CAIRN_OK;
    }
    return cairn_fail(err, CAIRN_NOT_FOUND, "%s is not there", cairn_short(name).text);
}

/* Adds objects of the first rank's files; see formats/torch/torch_ranks.h. */
static enum cairn_code add_ranks(struct cli_weights *weights,
                                 const struct cairn_zero_folder *folder, bool archives,
                                 struct cairn_error *err) {
    size_t model, optimizer;
    CAIRN_TRY(cairn_torch_ranks_first(folder, &model, &optimizer, err));
    CAIRN_TRY(add_input(weights, cli_shard_inputs_at(weights->inputs, (uint32_t)model), archives,
                        NULL, "", err));
    if (!weights->optimizer || optimizer == SIZE_MAX) return CAIRN_OK;
    return add_input(weights, cli_shard_inputs_at(weights->inputs, (uint32_t)optimizer), archives,
                     NULL, CAIRN_TORCH_RANKS_OPTIMIZER, err);
}

/* Adds the objects of the version's files by the rules for folders. */
static enum cairn_code add_folder(struct cli_weights *weights, bool dcp, bool archives,
                                  struct cairn_error *err) {
    const struct cairn_manifest *manifest = &weights->source.version.manifest;
    CAIRN_AUTO_HEAP const char **names = calloc(manifest->shard_count + 1, sizeof *names);
    if (!names) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for names");
    for (uint32_t i = 0; i < manifest->shard_count; i++) names[i] = manifest->shards[i].name;
    const struct cairn_zero_folder folder = {.context = weights,
                                             .names = names,
                                             .count = manifest->shard_count,
                                             .open = open_shard,
                                             .strict = weights->strict};
    if (dcp) {
        /* Adds objects of a DCP folder whose tensors are in the layout. */
        struct cairn_assembly *assembly = &weights->assembly, own = {0};
        if (!cairn_dcp_is(&folder)) return CAIRN_OK;
        enum cairn_code code = cairn_dcp_assemble(&folder, &own, err);
        for (size_t i = 0; code == CAIRN_OK && i < own.object_count; i++)
            code = cairn_assembly_copy_object(&own, i, assembly, err);
        cairn_assembly_release(&own);
        return code;
    }
    return cairn_torch_ranks_is(&folder) ? add_ranks(weights, &folder, archives, err) : CAIRN_OK;
}

/* A version's format is only a claim: if a file cannot be parsed, it is left out by name. */
static enum cairn_code add_or_leave_out(struct cli_weights *weights, const char *name,
                                        enum cairn_code code, const struct cairn_error *why,
                                        struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {0};
    if (code != CAIRN_UNSUPPORTED && code != CAIRN_INVALID && code != CAIRN_TOO_LARGE)
        return cairn_pass(err, code, why);
    CAIRN_TRY(cairn_buf_printf(&text, err, "what it holds beside tensors: %s", why->message));
    return cairn_assembly_leave_out(&weights->assembly, name, text.data, err);
}

enum cairn_code cli_weights_add_plain(struct cli_weights *weights, bool archives,
                                      struct cairn_error *err) {
    if (weights->stored && weights->source.version.layout.name_count) {
        const struct cairn_manifest *manifest = &weights->source.version.manifest;
        enum cairn_format format = cairn_format_of_tag(manifest->format_tag);
        bool zero = is_deepspeed(format), dcp = format == CAIRN_FORMAT_DCP;
        struct cairn_error why = {0};
        if (dcp || format == CAIRN_FORMAT_RANKS) {
            enum cairn_code code = add_folder(weights, dcp, archives, &why);
            const char *name = dcp ? CAIRN_DCP_METADATA : manifest->format_tag;
            return add_or_leave_out(weights, name, code, &why, err);
        }
        if (!zero && format != CAIRN_FORMAT_TORCH && format != CAIRN_FORMAT_HF_TORCH)
            return CAIRN_OK;
        for (uint32_t i = 0; i < manifest->shard_count; i++) {
            const char *name = manifest->shards[i].name;
            const struct rule *rule = zero ? rule_of(weights, name) : NULL;
            if (zero && !rule) continue;
            /* As in local folders: training_args.bin is no model. */
            bool model = cairn_text_starts(name, "pytorch_model") && cairn_text_ends(name, ".bin");
            if (format == CAIRN_FORMAT_HF_TORCH && !model) continue;
            enum cairn_code code = add_input(weights, cli_shard_inputs_at(weights->inputs, i),
                                             archives, rule, NULL, &why);
            CAIRN_TRY(add_or_leave_out(weights, name, code, &why, err));
        }
        return CAIRN_OK;
    }
    bool zero = is_deepspeed(weights->format);
    for (size_t i = 0; i < weights->count; i++) {
        struct cli_weights_file *file = weights->files[i];
        const struct rule *rule = zero ? rule_of(weights, file->name) : NULL;
        const struct cairn_input *input =
            weights->stored ? cli_shard_inputs_at(weights->inputs, file->shard) : &file->input;
        enum cairn_code code = CAIRN_OK;
        if (rule)
            code = add_input(weights, input, archives, rule, NULL, err);
        else if (!zero && file->torch.input)
            code = add_opened(weights, &file->torch, archives, NULL, file->prefix, err);
        if (code) return cairn_within(err, code, "%s", cairn_short(file->name).text);
    }
    return CAIRN_OK;
}

/* ---- rows and notes ---- */

#define NO_TENSOR                                                                                  \
    "an item: bytes by name, no tensor; cairn_restore_read and .../tensors/NAME/data give it"
#define NO_ARCHIVE "an item that is no file of torch.save"

/* A file of torch.save is a zip; torch itself tests for that. */
static enum cairn_code is_archive(const struct cairn_assembly *assembly,
                                  const struct cairn_assembly_tensor *item, bool *ret,
                                  struct cairn_error *err) {
    char first[4];
    *ret = false;
    if (item->piece_count != 1 || item->boxed || item->size_bytes < sizeof first) return CAIRN_OK;
    CAIRN_TRY(cairn_assembly_read(assembly, item, 0, first, sizeof first, err));
    *ret = memcmp(first, "PK\3\4", sizeof first) == 0;
    return CAIRN_OK;
}

enum cairn_code cli_items_take(struct cairn_assembly *assembly, bool keeps_objects,
                               struct cairn_error *err) {
    for (size_t i = 0; i < assembly->tensor_count; i++) {
        const struct cairn_assembly_tensor *item = &assembly->tensors[i];
        bool archive = false;
        if (item->dtype != CAIRN_DTYPE_ITEM) continue;
        if (keeps_objects) CAIRN_TRY(is_archive(assembly, item, &archive, err));
        if (archive) {
            CAIRN_TRY(cairn_assembly_add_object(assembly, item->name, false, err));
            CAIRN_TRY(cairn_assembly_add_object_piece(assembly, assembly->object_count - 1,
                                                      &assembly->pieces[item->piece_first], err));
        } else
            CAIRN_TRY(cairn_assembly_leave_out(assembly, item->name,
                                               keeps_objects ? NO_ARCHIVE : NO_TENSOR, err));
    }
    return CAIRN_OK;
}

#define OPAQUE_SHOWN 8 /* named in text */
#define OF_TENSORS "an object that holds tensors of its own"
#define PLAIN "a plain value, which --to dcp keeps"
#define TEXT "a text of a safetensors header, which --to safetensors keeps"
#define LINE_BYTES 900
#define FORMAT "format" /* "pt" in every file; no reader needs it */

static bool is_left_out(const struct cli_left_out *left_out,
                        const struct cairn_assembly_object *object) {
    if (left_out->keeps_objects) return false;
    return !left_out->only || fnmatch(left_out->only, object->name, 0) == 0;
}

static enum cairn_code add_row(json_t *rows, const char *name, const char *why,
                               struct cairn_error *err) {
    json_t *row = why ? json_pack("{s:s, s:s}", "name", name, "why", why) : json_string(name);
    return json_array_append_new(rows, row) == 0
               ? CAIRN_OK
               : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list of what is left out");
}

enum cairn_code cli_left_out_rows(const struct cli_left_out *left_out, json_t *rows, json_t *plain,
                                  struct cairn_error *err) {
    const struct cairn_assembly *assembly = left_out->assembly;
    for (size_t i = 0; i < assembly->left_out_count; i++) {
        const struct cairn_assembly_left_out *left = &assembly->left_out[i];
        CAIRN_TRY(add_row(rows, left->name, left->why, err));
        json_t *row = json_array_get(rows, json_array_size(rows) - 1);
        if (left->class && json_object_set_new(row, "class", json_string(left->class)) != 0)
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list of what is left out");
    }
    for (size_t i = 0; i < assembly->object_count; i++) {
        const struct cairn_assembly_object *object = &assembly->objects[i];
        if (!is_left_out(left_out, object)) continue;
        CAIRN_TRY(object->holds_tensors ? add_row(rows, object->name, OF_TENSORS, err)
                                        : add_row(plain, object->name, NULL, err));
    }
    const char *key;
    json_t *text;
    if (left_out->keeps_texts) return CAIRN_OK;
    json_object_foreach(left_out->assembly->texts, key, text) {
        CAIRN_AUTO(buf) name = {0};
        if (strcmp(key, FORMAT) == 0) continue;
        CAIRN_TRY(cairn_buf_printf(&name, err, CAIRN_ASSEMBLY_TEXT "%s", key));
        CAIRN_TRY(add_row(rows, name.data, TEXT, err));
    }
    return CAIRN_OK;
}

static void note_some_texts(struct cairn_buf *names) {
    if (names->size)
        cli_note("left out: of __metadata__, which --to safetensors keeps: %s", names->data);
    names->size = 0;
}

/* One line for all: LoRA files have a hundred texts. */
static enum cairn_code note_texts(const struct cli_left_out *left_out, struct cairn_error *err) {
    CAIRN_AUTO(buf) names = {0};
    const char *key;
    json_t *text;
    if (left_out->keeps_texts) return CAIRN_OK;
    json_object_foreach(left_out->assembly->texts, key, text) {
        if (strcmp(key, FORMAT) == 0) continue;
        if (names.size + strlen(key) > LINE_BYTES) note_some_texts(&names);
        CAIRN_TRY(cairn_buf_printf(&names, err, "%s%s", names.size ? ", " : "", key));
    }
    note_some_texts(&names);
    return CAIRN_OK;
}

void cli_left_out_note(const struct cli_left_out *left_out) {
    const struct cairn_assembly *assembly = left_out->assembly;
    const char *first = NULL;
    size_t plain = 0, opaque = 0;
    for (size_t i = 0; i < assembly->left_out_count; i++) {
        const struct cairn_assembly_left_out *left = &assembly->left_out[i];
        if (left->class && opaque++ >= OPAQUE_SHOWN) continue;
        cli_note(left_out->keeps_files && left->file ? "kept as a file alone: %s: %s"
                                                     : "left out: %s: %s",
                 left->name, left->why);
    }
    if (opaque > OPAQUE_SHOWN)
        cli_note("left out: %zu values of classes that are not known; --json names each", opaque);
    if (note_texts(left_out, NULL)) cli_note("left out: further texts of __metadata__");
    for (size_t i = 0; i < assembly->object_count; i++) {
        const struct cairn_assembly_object *object = &assembly->objects[i];
        if (!is_left_out(left_out, object)) continue;
        if (object->holds_tensors) cli_note("left out: %s: " OF_TENSORS, object->name);
        if (!object->holds_tensors && plain++ == 0) first = object->name;
    }
    if (plain == 1) cli_note("left out: %s: " PLAIN, first);
    if (plain > 1)
        cli_note("left out: %zu plain values, as %s; --to dcp keeps them, --json names each", plain,
                 first);
}
