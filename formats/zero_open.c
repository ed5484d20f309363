/* SPDX-License-Identifier: Apache-2.0 */
/* Which files a folder has tells how the model was cut; each model parallel rank is read by itself,
 * and what they hold is put together. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/text.h"
#include "formats/torch_assembly.h"
#include "formats/zero_experts.h"
#include "formats/zero_parallel.h"

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
    struct cairn_names files; /* of the folder, where experts are looked for */
    size_t width; /* tensor parallel ranks of each stage of a pipeline */
};

/* ---- which files there are ---- */

/* The number behind `word` at the begin of a text; NULL: it does not begin so. */
static const char *behind_number(const char *text, const char *word) {
    size_t size = strlen(word);
    size_t digits = strncmp(text, word, size) == 0 ? strspn(text + size, "0123456789") : 0;
    return digits ? text + size + digits : NULL;
}
static bool is_layer(const char *name) {
    const char *end = behind_number(name, "layer_");
    return end && *end == '-';
}
/* Where the tensor parallel rank stands in layer_03-model_01-model_states.pt; NULL: it has none. */
static const char *rank_of_layer(const char *name) {
    const char *rank = behind_number(name, "layer_");
    return rank && behind_number(rank, "-model_") ? rank + strlen("-model_") : NULL;
}
/* NULL: it is no file of an expert. */
static const char *behind_expert(const char *name) {
    const char *end = behind_number(name, "layer_");
    return end ? behind_number(end, "_expert_") : NULL;
}
/* The model parallel rank in what is behind it. */
static unsigned long rank_of_expert(const char *end) {
    const char *digits = behind_number(end, "_mp_rank_") ? end + strlen("_mp_rank_") : "0";
    return strtoul(digits, NULL, 10);
}

static enum cairn_code look(struct open_work *work, struct cairn_error *err) {
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

/* ---- one model parallel rank ---- */

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

/* ---- files of layers and of experts ---- */

/* Its tensors under a prefix, but those whose names are known; into an assembly. */
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
        CAIRN_TRY(cairn_assembly_add_tensor(into, full.data, tensor->dtype,
                                            tensor->dimension_count, tensor->shape, err));
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
    return code ? cairn_within(err, code, "%s", name) : CAIRN_OK;
}

/* ---- a pipeline: each rank has layers of its own, and tied ones that others have, too ---- */

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

/* What tensor parallel ranks hold of a stage or of a layer, put together and then added. */
static enum cairn_code add_joined(struct open_work *work, const struct cairn_zero_part *parts,
                                  struct cairn_error *err) {
    struct cairn_assembly joined = {0};
    enum cairn_code code =
        cairn_zero_parallel_join(parts, work->width, &work->told, &joined, err);
    if (code == CAIRN_OK) code = cairn_assembly_check(&joined, err);
    if (code == CAIRN_OK) code = add_all(work, &joined, err);
    cairn_assembly_release(&joined);
    return code;
}

/* The ranks of a stage follow each other. */
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
        CAIRN_TRY(cairn_names_add(&work->files, cairn_view_of(work->folder->names[i]), &number,
                                  err));
    return CAIRN_OK;
}

/* The file of the same layer that another tensor parallel rank wrote. */
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

/* The stage that names a tensor of the layer among its buffers; else the first. */
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

/* By the file of its first rank. */
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
    for (size_t s = 0; s < work->part_count / work->width; s++)
        CAIRN_TRY(add_stage(work, s, err));
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

/* ---- experts: of each layer as many as the first of its ranks says ---- */

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

/* Files of experts that a model parallel rank has. */
static size_t count_experts(const struct open_work *work, unsigned rank) {
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
    size_t found = 0, files = count_experts(work, rank);
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
    if (code == CAIRN_OK) code = cairn_zero_experts_add(zero, &experts, assembly, err);
    cairn_assembly_release(&experts);
    return code;
}

/* A degree of the model's cut, as its first file says; -1: it does not. */
static int64_t degree_of(const struct cairn_zero_file *model, const char *which) {
    const struct cairn_pickle *values = &model->torch.values;
    cairn_pickle_ref degrees, degree;
    if (!cairn_pickle_find(values, values->root, "checkpoint_parallel_dimensions", &degrees) ||
        !cairn_pickle_find(values, degrees, which, &degree))
        return -1;
    const struct cairn_pickle_value *value = cairn_pickle_at(values, degree);
    return value->kind == CAIRN_PICKLE_INTEGER ? value->integer : -1;
}

/* Without expert tensor parallelism each expert is of one rank alone, and so has one file. */
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

/* Each stage of a pipeline has experts of its own, and tensor parallel ranks have parts of all. */
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

/* ---- all ---- */

static enum cairn_code open_parts(struct open_work *work, struct cairn_error *err) {
    work->parts = calloc(work->part_count, sizeof *work->parts);
    if (!work->parts) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for ranks");
    for (size_t i = 0; i < work->part_count; i++) {
        struct cairn_zero_part *part = &work->parts[i];
        CAIRN_TRY(open_part(work, (unsigned)i, &part->assembly, &part->zero, err));
        if (i == 0 && work->expert_files) CAIRN_TRY(check_stages(work, err));
        if (work->expert_files) {
            enum cairn_code code =
                add_experts(work, part->zero, (unsigned)i, &part->assembly, err);
            if (code) return cairn_within(err, code, "model parallel rank %zu", i);
        }
        CAIRN_TRY(cairn_assembly_check(&part->assembly, err));
    }
    return CAIRN_OK;
}

/* Files of the last ranks may be missing altogether. */
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
    CAIRN_TRY(look(work, err));
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
