/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a checkpoint. Experts are assembled in each order of ranks; the bytes then decide. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/table/dtype.h"
#include "common/text.h"
#include "formats/convert.h"
#include "formats/zero/inside.h"

#define WORD ".deepspeed_moe.experts.deepspeed_experts."
#define FIRST_ELEMENTS 256 /* of each piece, in a first comparison */
#define FIRST_TENSORS 4096
#define COMPARED_ELEMENTS 4096
#define ORDERS 2 /* ranks of one expert are adjacent or interleaved */

struct trial {
    struct cairn_assembly assembly;
    bool fits;
    const char *differs; /* a tensor that differs */
};
struct experts {
    struct cairn_zero *zero;
    const struct cairn_assembly *files;
    struct cairn_assembly *assembly;
    struct cairn_names layers; /* names up to an expert's number */
    uint64_t *totals;          /* experts by layer number */
    bool matters;              /* some group is cut over ranks of several expert sets */
    struct trial trials[ORDERS];
};

struct expert_name {
    struct cairn_view layer;
    uint64_t number;
    const char *tail;
};

static bool parse_expert_name(const char *name, struct expert_name *ret) {
    const char *at = NULL;
    for (const char *next = name; (next = strstr(next, WORD)); next++) at = next;
    if (!at) return false;
    at += strlen(WORD);
    size_t digits = strspn(at, "0123456789");
    ret->layer = (struct cairn_view){name, (size_t)(at - name)};
    ret->tail = at + digits;
    return cairn_parse_u64((struct cairn_view){at, digits}, &ret->number, NULL) == CAIRN_OK &&
           ret->number <= UINT32_MAX;
}

struct naming {
    const struct experts *experts;
    uint64_t rank, ranks; /* ranks: with different experts */
};

static enum cairn_code rename_expert(void *context, const char *local, struct cairn_buf *ret,
                                     struct cairn_error *err) {
    const struct naming *naming = context;
    struct expert_name name;
    uint32_t layer;
    if (!parse_expert_name(local, &name))
        return cairn_fail(err, CAIRN_UNSUPPORTED, "it is in a group of experts, and is of none");
    if (!cairn_names_find(&naming->experts->layers, name.layer, &layer))
        return cairn_fail(err, CAIRN_INVALID, "no file of an expert has one of its layer");
    uint64_t total = naming->experts->totals[layer], own = total / naming->ranks;
    if (total % naming->ranks || name.number >= own)
        return cairn_fail(err, CAIRN_INVALID,
                          "files of %" PRIu64 " experts of its layer are there, for %" PRIu64
                          " ranks that hold different ones",
                          total, naming->ranks);
    return cairn_buf_printf(ret, err, "%.*s%" PRIu64 "%s", (int)name.layer.size,
                            (const char *)name.layer.data, naming->rank * own + name.number,
                            name.tail);
}

/* Replaces the number by a star, as the ranks' own names are alike. */
static enum cairn_code mask_expert_number(const char *text, struct cairn_buf *ret,
                                          struct cairn_error *err) {
    struct expert_name name;
    ret->size = 0;
    if (!parse_expert_name(text, &name)) return cairn_buf_append_text(ret, text, err);
    return cairn_buf_printf(ret, err, "%.*s*%s", (int)name.layer.size,
                            (const char *)name.layer.data, name.tail);
}

static enum cairn_code build_group(struct experts *experts, unsigned order, size_t channel,
                                   uint32_t group, cairn_pickle_ref shapes,
                                   struct cairn_error *err) {
    struct cairn_zero *zero = experts->zero;
    uint64_t holders;
    CAIRN_TRY(cairn_zero_group_ranks(zero, group, &holders, err));
    if (zero->rank_count % holders)
        return cairn_fail(err, CAIRN_INVALID,
                          "it is cut over %" PRIu64 " ranks, of %zu that hold experts", holders,
                          zero->rank_count);
    uint64_t sets = zero->rank_count / holders;
    experts->matters |= sets > 1 && holders > 1;
    for (uint64_t e = 0; e < sets; e++) {
        struct naming naming = {experts, e, sets};
        struct cairn_zero_owners owners = {.first = order ? e * holders : e,
                                           .step = order ? 1 : sets,
                                           .count = holders,
                                           .rename = rename_expert,
                                           .context = &naming};
        enum cairn_code code = cairn_zero_merge_owned(zero, channel, group, shapes, &owners,
                                                      &experts->trials[order].assembly, err);
        if (code) return cairn_within(err, code, "experts of rank %zu", owners.first);
    }
    return CAIRN_OK;
}

static enum cairn_code build_trial(struct experts *experts, unsigned order,
                                   struct cairn_error *err) {
    const struct cairn_zero_file *model = &experts->zero->models[0];
    struct cairn_assembly *assembly = &experts->trials[order].assembly;
    cairn_pickle_ref shapes;
    uint32_t number;
    for (size_t i = 0; i < experts->assembly->input_count; i++) /* numbered as inputs */
        CAIRN_TRY(cairn_assembly_add_input(assembly, experts->assembly->inputs[i], &number, err));
    CAIRN_TRY(cairn_zero_field(model, model->torch.values.root, "param_shapes", &shapes, err));
    const struct cairn_pickle_value *groups = cairn_zero_value(model, shapes);
    for (size_t c = 0; c < experts->zero->channel_count; c++)
        for (uint32_t g = 0; g < groups->count; g++) {
            if (!cairn_zero_holds_experts(model, groups->items[g])) continue;
            enum cairn_code code = build_group(experts, order, c, g, groups->items[g], err);
            if (code) return cairn_within(err, code, "parameter group %u", g);
        }
    experts->trials[order].fits = true;
    return cairn_assembly_check(assembly, err);
}

static bool is_state(const char *name) {
    return cairn_text_starts(name, CAIRN_ASSEMBLY_OPTIMIZER);
}

/* Memory for comparing floats: as stored, rounded, and each as F32. */
struct compared {
    double masters[COMPARED_ELEMENTS], own[COMPARED_ELEMENTS], rounded[COMPARED_ELEMENTS];
    float a[COMPARED_ELEMENTS], b[COMPARED_ELEMENTS];
};

static bool same_values(struct compared *bytes, unsigned from, unsigned to, size_t count) {
    bool same = true;
    cairn_convert(from, bytes->masters, to, bytes->rounded, count);
    cairn_convert(to, bytes->rounded, CAIRN_DTYPE_F32, bytes->a, count);
    cairn_convert(to, bytes->own, CAIRN_DTYPE_F32, bytes->b, count);
    for (size_t i = 0; same && i < count; i++)
        same = bytes->a[i] == bytes->b[i] || (isnan(bytes->a[i]) && isnan(bytes->b[i]));
    return same;
}

/* Compares `most` elements of each piece of the masters. */
static enum cairn_code compare_tensor(const struct experts *experts,
                                      const struct cairn_assembly *assembly,
                                      const struct cairn_assembly_tensor *masters,
                                      const struct cairn_assembly_tensor *own, uint64_t most,
                                      struct compared *bytes, bool *ret, struct cairn_error *err) {
    uint64_t width = cairn_dtype_bits(masters->dtype) / 8, first = 0;
    uint64_t own_width = cairn_dtype_bits(own->dtype) / 8;
    *ret = true;
    for (size_t p = 0; *ret && p < masters->piece_count; p++) {
        uint64_t elements = assembly->pieces[masters->piece_first + p].size_bytes / width;
        uint64_t end = first + cairn_min_u64(elements, most), some;
        for (uint64_t at = first; *ret && at < end; at += some) {
            some = cairn_min_u64(end - at, COMPARED_ELEMENTS);
            CAIRN_TRY(cairn_assembly_read(assembly, masters, at * width, (char *)bytes->masters,
                                          some * width, err));
            CAIRN_TRY(cairn_assembly_read(experts->files, own, at * own_width, (char *)bytes->own,
                                          some * own_width, err));
            *ret = same_values(bytes, masters->dtype, own->dtype, some);
        }
        first += elements;
    }
    return CAIRN_OK;
}

static enum cairn_code compare_trial(const struct experts *experts, struct trial *trial, bool all,
                                     struct cairn_error *err) {
    const struct cairn_assembly *assembly = &trial->assembly;
    CAIRN_AUTO_HEAP struct compared *bytes = malloc(sizeof *bytes);
    size_t step = all ? 1 : assembly->tensor_count / FIRST_TENSORS + 1;
    if (!bytes) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to compare tensors");
    for (size_t i = 0; trial->fits && i < assembly->tensor_count; i++) {
        const struct cairn_assembly_tensor *masters = &assembly->tensors[i];
        if (is_state(masters->name)) continue;
        size_t at;
        if (!cairn_assembly_find(experts->files, masters->name, &at))
            return cairn_fail(err, CAIRN_INVALID, "no file of an expert has %s",
                              cairn_short(masters->name).text);
        const struct cairn_assembly_tensor *own = &experts->files->tensors[at];
        if (own->dimension_count != masters->dimension_count ||
            memcmp(own->shape, masters->shape, sizeof masters->shape) != 0 ||
            !cairn_convertible(masters->dtype, CAIRN_DTYPE_F32) ||
            !cairn_convertible(own->dtype, CAIRN_DTYPE_F32))
            return cairn_fail(err, CAIRN_INVALID, "%s has another form in its expert's file",
                              cairn_short(masters->name).text);
        if (i % step) continue;
        enum cairn_code code =
            compare_tensor(experts, assembly, masters, own, all ? UINT64_MAX : FIRST_ELEMENTS,
                           bytes, &trial->fits, err);
        if (code) return cairn_within(err, code, "%s", cairn_short(masters->name).text);
        if (!trial->fits) trial->differs = masters->name;
    }
    return CAIRN_OK;
}

/* Both orders fit the files: the configuration decides, if it matters. */
static enum cairn_code choose_by_config(const struct experts *experts, unsigned *ret,
                                        struct cairn_error *err) {
    const struct cairn_zero_file *model = &experts->zero->models[0];
    const struct cairn_pickle *values = &model->torch.values;
    const struct cairn_assembly *a = &experts->trials[0].assembly;
    const struct cairn_assembly *b = &experts->trials[1].assembly;
    const char *differs = NULL;
    cairn_pickle_ref config, flag;
    for (size_t i = 0; !differs && i < a->tensor_count; i++) {
        bool same = false;
        size_t at;
        if (cairn_assembly_find(b, a->tensors[i].name, &at))
            CAIRN_TRY(cairn_zero_same(a, &a->tensors[i], b, &b->tensors[at], &same, err));
        if (!same) differs = a->tensors[i].name;
    }
    *ret = 0;
    if (!differs) return CAIRN_OK;
    if (!cairn_pickle_find(values, values->root, "ds_config", &config) ||
        cairn_zero_value(model, config)->kind != CAIRN_PICKLE_DICT)
        return cairn_fail(err, CAIRN_INVALID,
                          "%s: which ranks hold the same experts is not known: their values fit "
                          "two orders of the ranks, and %s has no ds_config that tells which",
                          cairn_short(differs).text, model->name);
    if (cairn_pickle_find(values, config, "use_data_before_expert_parallelism", &flag)) {
        const struct cairn_pickle_value *value = cairn_zero_value(model, flag);
        *ret = value->kind == CAIRN_PICKLE_BOOL && value->truth;
    }
    return CAIRN_OK;
}

static enum cairn_code choose_order(struct experts *experts, unsigned *ret,
                                    struct cairn_error *err) {
    struct trial *trials = experts->trials;
    for (unsigned all = 0; all < 2; all++) {
        for (unsigned order = 0; order < ORDERS; order++)
            if (trials[order].fits) CAIRN_TRY(compare_trial(experts, &trials[order], all, err));
        if (!trials[0].fits || !trials[1].fits) break;
    }
    *ret = trials[0].fits ? 0 : 1;
    if (trials[0].fits && trials[1].fits) return choose_by_config(experts, ret, err);
    if (trials[0].fits || trials[1].fits) return CAIRN_OK;
    const char *name = trials[0].differs ? trials[0].differs : trials[1].differs;
    return cairn_fail(err, CAIRN_INVALID,
                      "%s: its fp32 values, rounded, are not those in its expert's file, in no "
                      "order that the ranks may have",
                      cairn_short(name).text);
}

/* Partitions that fail in one order may fit in the other. */
static enum cairn_code build_all(struct experts *experts, struct cairn_error *err) {
    struct cairn_error other = {0};
    enum cairn_code first = build_trial(experts, 0, err), second = CAIRN_INVALID;
    if (first && first != CAIRN_INVALID) return first;
    experts->trials[0].fits = !first;
    if (experts->matters) second = build_trial(experts, 1, first ? &other : err);
    experts->trials[1].fits = !second;
    if (second && second != CAIRN_INVALID) return second;
    return first && second ? first : CAIRN_OK;
}

static enum cairn_code add_tensor(struct experts *experts, const struct cairn_assembly *from,
                                  const struct cairn_assembly_tensor *tensor,
                                  struct cairn_error *err) {
    CAIRN_TRY(cairn_assembly_add_tensor(experts->assembly, tensor->name, tensor->dtype,
                                        tensor->dimension_count, tensor->shape, err));
    return cairn_assembly_copy_pieces(from, tensor, experts->assembly, err);
}

static enum cairn_code mask_buffers(const struct experts *experts, struct cairn_names *ret,
                                    struct cairn_error *err) {
    const struct cairn_names *buffers = &experts->zero->models[0].buffers;
    CAIRN_AUTO(buf) name = {0};
    CAIRN_AUTO(buf) masked = {0};
    uint32_t number;
    for (uint32_t i = 0; i < buffers->count; i++) {
        name.size = 0;
        CAIRN_TRY(cairn_buf_printf(&name, err, "%.*s", (int)buffers->views[i].size,
                                   (const char *)buffers->views[i].data));
        CAIRN_TRY(mask_expert_number(name.data, &masked, err));
        CAIRN_TRY(cairn_names_add(ret, cairn_buf_view(&masked), &number, err));
    }
    return CAIRN_OK;
}

static enum cairn_code add(struct experts *experts, struct cairn_names *trained,
                           struct cairn_names *buffers, struct cairn_error *err) {
    unsigned order = 0;
    if (experts->zero->rank_count) {
        /* Counts the experts of each layer by their files. */
        const struct cairn_assembly *files = experts->files;
        struct expert_name name;
        uint32_t layer;
        experts->totals = calloc(files->tensor_count + 1, sizeof *experts->totals);
        if (!experts->totals) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for experts");
        for (size_t i = 0; i < files->tensor_count; i++) {
            if (!parse_expert_name(files->tensors[i].name, &name)) continue;
            CAIRN_TRY(cairn_names_add(&experts->layers, name.layer, &layer, err));
            if (name.number >= experts->totals[layer]) experts->totals[layer] = name.number + 1;
        }
        CAIRN_TRY(build_all(experts, err));
        CAIRN_TRY(choose_order(experts, &order, err));
        const struct cairn_assembly *from = &experts->trials[order].assembly;
        CAIRN_AUTO(buf) masked = {0};
        uint32_t number;
        CAIRN_TRY(cairn_assembly_copy_seals(experts->assembly, from, err));
        for (size_t k = 0; k < from->tensor_count; k++) {
            CAIRN_TRY(add_tensor(experts, from, &from->tensors[k], err));
            if (is_state(from->tensors[k].name)) continue;
            CAIRN_TRY(mask_expert_number(from->tensors[k].name, &masked, err));
            CAIRN_TRY(cairn_names_add(trained, cairn_buf_view(&masked), &number, err));
        }
        CAIRN_TRY(mask_buffers(experts, buffers, err));
    }
    /* Tensors that only the experts' files have: frozen ones and buffers; all, without ZeRO. */
    const struct cairn_assembly *files = experts->files;
    CAIRN_AUTO(buf) masked = {0};
    size_t at;
    CAIRN_TRY(cairn_assembly_copy_seals(experts->assembly, files, err));
    for (size_t i = 0; i < files->tensor_count; i++) {
        const struct cairn_assembly_tensor *tensor = &files->tensors[i];
        if (cairn_assembly_find(experts->assembly, tensor->name, &at)) continue;
        CAIRN_TRY(mask_expert_number(tensor->name, &masked, err));
        if (cairn_names_has(trained, cairn_buf_view(&masked)))
            return cairn_fail(err, CAIRN_INVALID,
                              "%s is trained, and no partition has its fp32 values",
                              cairn_short(tensor->name).text);
        CAIRN_TRY(add_tensor(experts, files, tensor, err));
        experts->assembly->tensors[experts->assembly->tensor_count - 1].frozen =
            experts->zero->rank_count && !cairn_names_has(buffers, cairn_buf_view(&masked));
    }
    return CAIRN_OK;
}

/* Adds the experts' groups to the assembly, whose inputs are zero's. `files` has the tensors of all
 * experts' files; untrained ones are added unchanged. */
static enum cairn_code add_masters_of(struct cairn_zero *zero, const struct cairn_assembly *files,
                                      struct cairn_assembly *assembly, struct cairn_error *err) {
    struct experts experts = {.zero = zero, .files = files, .assembly = assembly};
    struct cairn_names trained = {.copy = true}, buffers = {.copy = true};
    enum cairn_code code = add(&experts, &trained, &buffers, err);
    for (unsigned order = 0; order < ORDERS; order++)
        cairn_assembly_release(&experts.trials[order].assembly);
    cairn_names_release(&experts.layers);
    cairn_names_release(&trained);
    cairn_names_release(&buffers);
    free(experts.totals);
    return code;
}

/* Opening: file names tell how the model was cut; each model parallel rank is read, then joined. */
#define RANKS_MAX 65536
#define EXPERT_FILE "layer_%u_expert_%u_mp_rank_%02u_model_states.pt"

struct open_work {
    const struct cairn_zero_folder *folder;
    bool optimizer;
    struct cairn_zero_told told;
    struct cairn_assembly *assembly;
    struct cairn_zero_part *parts; /* by model parallel rank */
    size_t part_count;
    size_t pipeline_files, expert_files;
    struct cairn_names files; /* of the folder; searched for experts */
    size_t width;             /* tensor parallel ranks per pipeline stage */
};

/* The text after `word` and its number; NULL: it begins otherwise. */
static const char *behind_number(const char *text, const char *word) {
    size_t size = strlen(word);
    size_t digits = strncmp(text, word, size) == 0 ? strspn(text + size, "0123456789") : 0;
    return digits ? text + size + digits : NULL;
}
static bool is_layer(const char *name) {
    const char *end = behind_number(name, "layer_");
    return end && *end == '-';
}
/* The tensor parallel rank in layer_03-model_01-model_states.pt; NULL: none. */
static const char *rank_of_layer(const char *name) {
    const char *rank = behind_number(name, "layer_");
    return rank && behind_number(rank, "-model_") ? rank + strlen("-model_") : NULL;
}
/* NULL: not an expert's file. */
static const char *behind_expert(const char *name) {
    const char *end = behind_number(name, "layer_");
    return end ? behind_number(end, "_expert_") : NULL;
}
/* The model parallel rank in the text after the expert's number. */
static unsigned long rank_of_expert(const char *end) {
    const char *digits = behind_number(end, "_mp_rank_") ? end + strlen("_mp_rank_") : "0";
    return strtoul(digits, NULL, 10);
}

static enum cairn_code count_parts(struct open_work *work, struct cairn_error *err) {
    work->part_count = work->width = 1;
    for (size_t i = 0; i < work->folder->count; i++) {
        const char *name = work->folder->names[i];
        unsigned part = 0;
        if (cairn_zero_model_rank(name, &part) && part >= work->part_count)
            work->part_count = (size_t)part + 1;
        work->pipeline_files += is_layer(name);
        work->expert_files += behind_expert(name) != NULL;
        const char *rank = rank_of_layer(name);
        unsigned long number = rank ? strtoul(rank, NULL, 10) : 0;
        if (number >= RANKS_MAX) return cairn_fail(err, CAIRN_INVALID, "%s: too many ranks", name);
        if (number >= work->width) work->width = number + 1;
        if (strncmp(name, "expert_", 7) == 0)
            return cairn_fail(err, CAIRN_UNSUPPORTED,
                              "%s: experts as DeepSpeed wrote them before it numbered their layers",
                              name);
    }
    if (work->part_count % work->width)
        return cairn_fail(err, CAIRN_INVALID,
                          "layers are cut over %zu tensor parallel ranks, and files of %zu model "
                          "parallel ranks are there",
                          work->width, work->part_count);
    for (size_t i = 0; i < work->folder->count; i++) {
        const char *end = behind_expert(work->folder->names[i]);
        if (end && rank_of_expert(end) >= work->part_count)
            return cairn_fail(err, CAIRN_INVALID,
                              "%s is there, and no other file of that model parallel rank",
                              work->folder->names[i]);
    }
    if (work->expert_files && work->pipeline_files)
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "files of experts beside files of a pipeline's layers");
    return CAIRN_OK;
}

static enum cairn_code open_part(struct open_work *work, unsigned rank,
                                 struct cairn_assembly *assembly, struct cairn_zero **ret,
                                 struct cairn_error *err) {
    const struct cairn_zero_folder *folder = work->folder;
    CAIRN_AUTO_HEAP const char **names = calloc(folder->count + 1, sizeof *names);
    struct cairn_zero_folder own = {
        .context = folder->context, .names = names, .open = folder->open, .strict = folder->strict};
    if (!names) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for names");
    for (size_t i = 0; i < folder->count; i++) {
        unsigned part;
        if (cairn_zero_model_rank(folder->names[i], &part) && part == rank)
            names[own.count++] = folder->names[i];
    }
    enum cairn_code code =
        cairn_zero_merge(&own, work->optimizer, work->expert_files, assembly, ret, err);
    if (code && work->part_count > 1)
        return cairn_within(err, code, "model parallel rank %u", rank);
    return code;
}

/* Adds a file's tensors under a prefix, except known names. */
static enum cairn_code add_tensors(const struct open_work *work, const struct cairn_torch *file,
                                   const char *prefix, struct cairn_assembly *own,
                                   struct cairn_assembly *into, struct cairn_error *err) {
    CAIRN_TRY(cairn_torch_assemble(file, "", own, err));
    CAIRN_TRY(cairn_assembly_check(own, err));
    CAIRN_TRY(cairn_assembly_copy_seals(into, own, err));
    for (size_t i = 0; i < own->tensor_count; i++) {
        enum cairn_code code = cairn_assembly_unroll(own, i, err);
        if (code)
            return cairn_within(err, code, "tensor %s", cairn_short(own->tensors[i].name).text);
        const struct cairn_assembly_tensor *tensor = &own->tensors[i];
        CAIRN_AUTO(buf) full = {0};
        size_t at;
        CAIRN_TRY(cairn_buf_printf(&full, err, "%s%s", prefix, tensor->name));
        if (cairn_assembly_find(work->assembly, full.data, &at)) continue;
        if (tensor->alias_of != CAIRN_ASSEMBLY_NO_ALIAS) tensor = &own->tensors[tensor->alias_of];
        CAIRN_TRY(cairn_assembly_add_tensor(into, full.data, tensor->dtype, tensor->dimension_count,
                                            tensor->shape, err));
        CAIRN_TRY(cairn_assembly_copy_pieces(own, tensor, into, err));
    }
    return CAIRN_OK;
}

static enum cairn_code add_file(const struct open_work *work, const char *name, const char *prefix,
                                struct cairn_assembly *into, struct cairn_error *err) {
    const struct cairn_input *input;
    struct cairn_assembly own = {0};
    struct cairn_torch file;
    enum cairn_code code = work->folder->open(work->folder->context, name, &input, err);
    if (code == CAIRN_OK) code = cairn_torch_open(input, work->folder->strict, &file, err);
    if (code != CAIRN_OK) return cairn_within(err, code, "%s", name);
    code = cairn_torch_need_ranges(&file, err);
    if (code == CAIRN_OK) code = add_tensors(work, &file, prefix, &own, into, err);
    cairn_assembly_release(&own);
    cairn_torch_release(&file);
    return cairn_within(err, code, "%s", name);
}

/* ---- pipelines: each rank has its own layers, and tied ones shared with others ---- */

static enum cairn_code add_all(struct open_work *work, const struct cairn_assembly *from,
                               struct cairn_error *err) {
    CAIRN_TRY(cairn_assembly_copy_seals(work->assembly, from, err));
    for (size_t i = 0; i < from->tensor_count; i++) {
        const struct cairn_assembly_tensor *tensor = &from->tensors[i];
        bool alias = tensor->alias_of != CAIRN_ASSEMBLY_NO_ALIAS, same = false;
        size_t at, of = 0;
        if (cairn_assembly_find(work->assembly, tensor->name, &at)) {
            if (!alias)
                CAIRN_TRY(cairn_zero_same(work->assembly, &work->assembly->tensors[at], from,
                                          tensor, &same, err));
            if (alias || same) continue;
            return cairn_fail(err, CAIRN_INVALID, "%s differs between stages of the pipeline",
                              cairn_short(tensor->name).text);
        }
        if (alias &&
            cairn_assembly_find(work->assembly, from->tensors[tensor->alias_of].name, &of)) {
            CAIRN_TRY(cairn_assembly_add_alias(work->assembly, tensor->name, of, err));
            continue;
        }
        CAIRN_TRY(cairn_assembly_add_tensor(work->assembly, tensor->name, tensor->dtype,
                                            tensor->dimension_count, tensor->shape, err));
        CAIRN_TRY(cairn_assembly_copy_pieces(from, tensor, work->assembly, err));
    }
    return CAIRN_OK;
}

/* Joins the tensor parallel ranks of a stage or layer, then adds the tensors. */
static enum cairn_code add_joined(struct open_work *work, const struct cairn_zero_part *parts,
                                  struct cairn_error *err) {
    struct cairn_assembly joined = {0};
    enum cairn_code code = cairn_zero_parallel_join(parts, work->width, &work->told, &joined, err);
    if (code == CAIRN_OK) code = cairn_assembly_check(&joined, err);
    if (code == CAIRN_OK) code = add_all(work, &joined, err);
    cairn_assembly_release(&joined);
    return code;
}

/* A stage's ranks are consecutive. */
static enum cairn_code add_stage(struct open_work *work, size_t number, struct cairn_error *err) {
    const struct cairn_zero_part *parts = &work->parts[number * work->width];
    const struct cairn_assembly *first = &parts->assembly;
    enum cairn_code code =
        work->width == 1 ? add_all(work, first, err) : add_joined(work, parts, err);
    if (code) return cairn_within(err, code, "stage %zu of the pipeline", number);
    for (size_t i = 0; number == 0 && i < first->left_out_count; i++)
        CAIRN_TRY(cairn_assembly_leave_out(work->assembly, first->left_out[i].name,
                                           first->left_out[i].why, err));
    return CAIRN_OK;
}

static enum cairn_code name_files(struct open_work *work, struct cairn_error *err) {
    uint32_t number;
    for (size_t i = 0; i < work->folder->count; i++)
        CAIRN_TRY(
            cairn_names_add(&work->files, cairn_view_of(work->folder->names[i]), &number, err));
    return CAIRN_OK;
}

/* The same layer's file of another tensor parallel rank. */
static enum cairn_code find_layer(const struct open_work *work, const char *name, size_t rank,
                                  const char **ret, struct cairn_error *err) {
    const char *at = rank_of_layer(name);
    CAIRN_AUTO(buf) other = {0};
    uint32_t number;
    CAIRN_TRY(cairn_buf_printf(&other, err, "%.*s%02zu%s", (int)(at - name), name, rank,
                               at + strspn(at, "0123456789")));
    if (!cairn_names_find(&work->files, cairn_buf_view(&other), &number))
        return cairn_fail(err, CAIRN_INVALID, "%s is not there, and %s is", other.data, name);
    *ret = work->files.views[number].data;
    return CAIRN_OK;
}

/* The stage that lists a tensor of the layer as a buffer; else the first. */
static struct cairn_zero *stage_of(const struct open_work *work,
                                   const struct cairn_assembly *layer) {
    for (size_t s = 0; s < work->part_count; s += work->width)
        for (size_t i = 0; i < layer->tensor_count; i++)
            if (cairn_zero_is_buffer(&work->parts[s].zero->models[0], layer->tensors[i].name))
                return work->parts[s].zero;
    return work->parts[0].zero;
}

static enum cairn_code read_layer(const struct open_work *work, const char *name,
                                  const char *prefix, struct cairn_zero_part *parts,
                                  struct cairn_error *err) {
    for (size_t r = 0; r < work->width; r++) {
        const char *own = name;
        CAIRN_TRY(find_layer(work, name, r, &own, err));
        CAIRN_TRY(add_file(work, own, prefix, &parts[r].assembly, err));
    }
    parts[0].zero = stage_of(work, &parts[0].assembly);
    return CAIRN_OK;
}

/* Adds a cut layer, starting from its first rank's file. */
static enum cairn_code add_cut_layer(struct open_work *work, const char *name, const char *prefix,
                                     struct cairn_error *err) {
    CAIRN_AUTO_HEAP struct cairn_zero_part *parts = calloc(work->width, sizeof *parts);
    const char *first;
    if (!parts) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for ranks");
    if (!rank_of_layer(name))
        return cairn_fail(err, CAIRN_INVALID, "%s is of no tensor parallel rank, others are", name);
    CAIRN_TRY(find_layer(work, name, 0, &first, err));
    if (strcmp(first, name) != 0) return CAIRN_OK;
    enum cairn_code code = read_layer(work, name, prefix, parts, err);
    if (code == CAIRN_OK) {
        code = add_joined(work, parts, err);
        if (code) code = cairn_within(err, code, "%s", name);
    }
    for (size_t r = 0; r < work->width; r++) cairn_assembly_release(&parts[r].assembly);
    return code;
}

static enum cairn_code join_pipeline(struct open_work *work, struct cairn_error *err) {
    CAIRN_TRY(name_files(work, err));
    for (size_t s = 0; s < work->part_count / work->width; s++) CAIRN_TRY(add_stage(work, s, err));
    for (size_t i = 0; i < work->folder->count; i++) {
        const char *name = work->folder->names[i];
        char prefix[32];
        if (!is_layer(name)) continue;
        snprintf(prefix, sizeof prefix, "%lu.", strtoul(name + strlen("layer_"), NULL, 10));
        if (work->width == 1)
            CAIRN_TRY(add_file(work, name, prefix, work->assembly, err));
        else
            CAIRN_TRY(add_cut_layer(work, name, prefix, err));
    }
    return CAIRN_OK;
}

/* ---- experts: the number of each layer's is in its first rank ---- */

static enum cairn_code add_expert(struct open_work *work, unsigned layer, unsigned expert,
                                  unsigned rank, struct cairn_assembly *into,
                                  struct cairn_error *err) {
    char name[96];
    uint32_t number;
    snprintf(name, sizeof name, EXPERT_FILE, layer, expert, rank);
    if (cairn_names_find(&work->files, cairn_view_of(name), &number))
        return add_file(work, work->files.views[number].data, "", into, err);
    return cairn_fail(err, CAIRN_INVALID, "%s is not there: that expert would be left out", name);
}

/* Counts a model parallel rank's expert files. */
static size_t count_expert_files(const struct open_work *work, unsigned rank) {
    size_t count = 0;
    for (size_t i = 0; i < work->folder->count; i++) {
        const char *end = behind_expert(work->folder->names[i]);
        count += end && rank_of_expert(end) == rank;
    }
    return count;
}

static enum cairn_code read_experts(struct open_work *work, const struct cairn_zero *zero,
                                    unsigned rank, struct cairn_assembly *into,
                                    struct cairn_error *err) {
    const struct cairn_zero_file *model = &zero->models[0];
    size_t found = 0, files = count_expert_files(work, rank);
    cairn_pickle_ref counts;
    CAIRN_TRY(name_files(work, err));
    CAIRN_TRY(cairn_zero_field(model, model->torch.values.root, "num_experts", &counts, err));
    const struct cairn_pickle_value *list = cairn_zero_value(model, counts);
    if (list->kind != CAIRN_PICKLE_LIST)
        return cairn_fail(err, CAIRN_INVALID, "%s: num_experts is no list", model->name);
    for (uint32_t layer = 0; layer < list->count; layer++) {
        const struct cairn_pickle_value *count = cairn_zero_value(model, list->items[layer]);
        if (count->kind != CAIRN_PICKLE_INTEGER || count->integer < 0 ||
            (uint64_t)count->integer > files)
            return cairn_fail(
                err, CAIRN_INVALID,
                "%s: layer %u has %lld experts, and files of %zu experts are there", model->name,
                layer, (long long)(count->kind == CAIRN_PICKLE_INTEGER ? count->integer : -1),
                files);
        for (unsigned expert = 0; expert < (uint64_t)count->integer; expert++, found++)
            CAIRN_TRY(add_expert(work, layer, expert, rank, into, err));
    }
    if (found == files) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "%s speaks of %zu experts, and files of %zu experts are there", model->name,
                      found, files);
}

static enum cairn_code add_experts(struct open_work *work, struct cairn_zero *zero, unsigned rank,
                                   struct cairn_assembly *assembly, struct cairn_error *err) {
    struct cairn_assembly experts = {0};
    enum cairn_code code = read_experts(work, zero, rank, &experts, err);
    if (code == CAIRN_OK) code = cairn_assembly_check(&experts, err);
    if (code == CAIRN_OK) code = add_masters_of(zero, &experts, assembly, err);
    cairn_assembly_release(&experts);
    return code;
}

/* A degree of parallelism in the model's file; -1: not stated. */
static int64_t degree_of(const struct cairn_zero_file *model, const char *which) {
    const struct cairn_pickle *values = &model->torch.values;
    cairn_pickle_ref degrees, degree;
    if (!cairn_pickle_find(values, values->root, "checkpoint_parallel_dimensions", &degrees) ||
        !cairn_pickle_find(values, degrees, which, &degree))
        return -1;
    const struct cairn_pickle_value *value = cairn_pickle_at(values, degree);
    return value->kind == CAIRN_PICKLE_INTEGER ? value->integer : -1;
}

/* Without expert tensor parallelism each expert belongs to one rank, so it has one file. */
static enum cairn_code check_cut_experts(const struct open_work *work, struct cairn_error *err) {
    size_t alone = 0;
    for (size_t i = 0; i < work->folder->count; i++) {
        const char *name = work->folder->names[i], *end = behind_expert(name);
        CAIRN_AUTO(buf) other = {0};
        uint32_t number;
        bool own = true;
        if (!end) continue;
        for (unsigned r = 0; r < work->part_count; r++) {
            other.size = 0;
            CAIRN_TRY(cairn_buf_printf(&other, err, "%.*s_mp_rank_%02u_model_states.pt",
                                       (int)(end - name), name, r));
            own &= strcmp(other.data, name) == 0 ||
                   !cairn_names_find(&work->files, cairn_buf_view(&other), &number);
        }
        alone += own;
    }
    if (alone != work->expert_files) return CAIRN_OK;
    return cairn_fail(err, CAIRN_UNSUPPORTED,
                      "experts that tensor parallel ranks do not cut but share out: each has a "
                      "file of one of %zu ranks",
                      work->part_count);
}

/* Pipeline stages have their own experts, and tensor parallel ranks parts of all. */
static enum cairn_code check_stages(struct open_work *work, struct cairn_error *err) {
    const struct cairn_zero_file *model = &work->parts[0].zero->models[0];
    int64_t stages = degree_of(model, "pp_degree"), width = degree_of(model, "tp_degree");
    if (stages < 1 || width < 1)
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "%s has no checkpoint_parallel_dimensions that say whether its %zu model "
                          "parallel ranks are stages of a pipeline, and there are experts",
                          model->name, work->part_count);
    if (stages > 1 && width > 1)
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "experts of a pipeline of %" PRId64 " stages that are cut over %" PRId64
                          " tensor parallel ranks, too",
                          stages, width);
    if (stages * width != (int64_t)work->part_count)
        return cairn_fail(err, CAIRN_INVALID,
                          "%s was written by %" PRId64 " model parallel ranks, and files of %zu "
                          "are there",
                          model->name, stages * width, work->part_count);
    work->width = (size_t)width;
    CAIRN_TRY(name_files(work, err));
    return width > 1 ? check_cut_experts(work, err) : CAIRN_OK;
}

static enum cairn_code open_parts(struct open_work *work, struct cairn_error *err) {
    work->parts = calloc(work->part_count, sizeof *work->parts);
    if (!work->parts) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for ranks");
    for (size_t i = 0; i < work->part_count; i++) {
        struct cairn_zero_part *part = &work->parts[i];
        CAIRN_TRY(open_part(work, (unsigned)i, &part->assembly, &part->zero, err));
        if (i == 0 && work->expert_files) CAIRN_TRY(check_stages(work, err));
        if (work->expert_files) {
            enum cairn_code code = add_experts(work, part->zero, (unsigned)i, &part->assembly, err);
            if (code) return cairn_within(err, code, "model parallel rank %zu", i);
        }
        CAIRN_TRY(cairn_assembly_check(&part->assembly, err));
    }
    return CAIRN_OK;
}

/* The last ranks' files may be missing entirely. */
static enum cairn_code check_parts(const struct open_work *work, const struct cairn_zero *zero,
                                   struct cairn_error *err) {
    const struct cairn_pickle *values = &zero->models[0].torch.values;
    cairn_pickle_ref ref;
    if (!cairn_pickle_find(values, values->root, "mp_world_size", &ref)) return CAIRN_OK;
    const struct cairn_pickle_value *count = cairn_pickle_at(values, ref);
    if (count->kind != CAIRN_PICKLE_INTEGER || count->integer == (int64_t)work->part_count)
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "%s was written by %lld model parallel ranks, and files of %zu are there",
                      zero->models[0].name, (long long)count->integer, work->part_count);
}

static enum cairn_code open_whole(struct open_work *work, struct cairn_zero **ret,
                                  struct cairn_error *err) {
    CAIRN_TRY(count_parts(work, err));
    if (work->part_count == 1 && !work->pipeline_files) {
        CAIRN_TRY(open_part(work, 0, work->assembly, ret, err));
        CAIRN_TRY(check_parts(work, *ret, err));
        return work->expert_files ? add_experts(work, *ret, 0, work->assembly, err) : CAIRN_OK;
    }
    CAIRN_TRY(open_parts(work, err));
    CAIRN_TRY(check_parts(work, work->parts[0].zero, err));
    return work->pipeline_files || (work->expert_files && work->width == 1)
               ? join_pipeline(work, err)
               : cairn_zero_parallel_join(work->parts, work->part_count, &work->told,
                                          work->assembly, err);
}

enum cairn_code cairn_zero_open(const struct cairn_zero_folder *folder,
                                const struct cairn_zero_options *options,
                                struct cairn_assembly *assembly, struct cairn_error *err) {
    struct open_work work = {
        .folder = folder, .optimizer = options->optimizer, .assembly = assembly};
    struct cairn_zero *zero = NULL;
    enum cairn_code code = cairn_zero_told_parse(options->tp_rules, &work.told, err);
    if (code == CAIRN_OK) code = open_whole(&work, &zero, err);
    if (code == CAIRN_OK) code = cairn_zero_told_check(&work.told, err);
    if (code == CAIRN_OK) code = cairn_assembly_check(assembly, err);
    for (size_t i = 0; work.parts && i < work.part_count; i++) {
        if (work.parts[i].zero) cairn_zero_free(work.parts[i].zero);
        cairn_assembly_release(&work.parts[i].assembly);
    }
    if (zero) cairn_zero_free(zero);
    cairn_zero_told_release(&work.told);
    cairn_names_release(&work.files);
    free(work.parts);
    return code;
}
