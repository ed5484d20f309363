/* SPDX-License-Identifier: Apache-2.0 */
/* In each of the orders that ranks may have, all experts are put together; the bytes then say which
 * of them it was. */
#include "formats/zero_experts.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "api/table/dtype.h"
#include "common/text.h"
#include "formats/convert.h"
#include "formats/zero_parallel.h"

#define WORD ".deepspeed_moe.experts.deepspeed_experts."
#define FIRST_ELEMENTS 256 /* of each piece, that are compared at first */
#define FIRST_TENSORS 4096
#define COMPARED_ELEMENTS 4096
#define ORDERS 2 /* ranks of one expert follow each other with others' between, or without */

struct trial {
    struct cairn_assembly assembly;
    bool fits;
    const char *differs; /* the tensor that does not */
};
struct experts {
    struct cairn_zero *zero;
    const struct cairn_assembly *files;
    struct cairn_assembly *assembly;
    struct cairn_names layers; /* names up to an expert's number */
    uint64_t *totals;          /* of experts, by the layer's number */
    bool matters;              /* some group is cut over several ranks of several sets of experts */
    struct trial trials[ORDERS];
};

/* ---- names ---- */

struct expert_name {
    struct cairn_view layer;
    uint64_t number;
    const char *tail;
};

static bool parse(const char *name, struct expert_name *ret) {
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

/* How many experts each layer has, by the files of all of them. */
static enum cairn_code count_experts(struct experts *experts, struct cairn_error *err) {
    const struct cairn_assembly *files = experts->files;
    struct expert_name name;
    uint32_t layer;
    experts->totals = calloc(files->tensor_count + 1, sizeof *experts->totals);
    if (!experts->totals) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for experts");
    for (size_t i = 0; i < files->tensor_count; i++) {
        if (!parse(files->tensors[i].name, &name)) continue;
        CAIRN_TRY(cairn_names_add(&experts->layers, name.layer, &layer, err));
        if (name.number >= experts->totals[layer]) experts->totals[layer] = name.number + 1;
    }
    return CAIRN_OK;
}

struct naming {
    const struct experts *experts;
    uint64_t rank, ranks; /* of those that hold different experts */
};

static enum cairn_code rename_expert(void *context, const char *local, struct cairn_buf *ret,
                                     struct cairn_error *err) {
    const struct naming *naming = context;
    struct expert_name name;
    uint32_t layer;
    if (!parse(local, &name))
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

/* With a star for the number, as the ranks' own names are alike. */
static enum cairn_code mask(const char *text, struct cairn_buf *ret, struct cairn_error *err) {
    struct expert_name name;
    ret->size = 0;
    if (!parse(text, &name)) return cairn_buf_append_text(ret, text, err);
    return cairn_buf_printf(ret, err, "%.*s*%s", (int)name.layer.size,
                            (const char *)name.layer.data, name.tail);
}

/* ---- all experts, in one order of the ranks ---- */

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

static enum cairn_code build(struct experts *experts, unsigned order, struct cairn_error *err) {
    const struct cairn_zero_file *model = &experts->zero->models[0];
    struct cairn_assembly *assembly = &experts->trials[order].assembly;
    cairn_pickle_ref shapes;
    uint32_t number;
    for (size_t i = 0; i < experts->assembly->input_count; i++) /* which the partitions number */
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

/* ---- is it the right one? ---- */

static bool is_state(const char *name) {
    return cairn_text_starts(name, CAIRN_ASSEMBLY_OPTIMIZER);
}

/* Memory to compare elements of floats: as they are stored, rounded, and both as F32. */
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

/* `most` elements of each piece of the masters. */
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

/* The tensor of the expert's own file. */
static enum cairn_code find_own(const struct experts *experts,
                                const struct cairn_assembly_tensor *masters,
                                const struct cairn_assembly_tensor **ret, struct cairn_error *err) {
    size_t at;
    if (!cairn_assembly_find(experts->files, masters->name, &at))
        return cairn_fail(err, CAIRN_INVALID, "no file of an expert has %s",
                          cairn_short(masters->name).text);
    *ret = &experts->files->tensors[at];
    if ((*ret)->dimension_count != masters->dimension_count ||
        memcmp((*ret)->shape, masters->shape, sizeof masters->shape) != 0 ||
        !cairn_convertible(masters->dtype, CAIRN_DTYPE_F32) ||
        !cairn_convertible((*ret)->dtype, CAIRN_DTYPE_F32))
        return cairn_fail(err, CAIRN_INVALID, "%s has another form in its expert's file",
                          cairn_short(masters->name).text);
    return CAIRN_OK;
}

static enum cairn_code compare(const struct experts *experts, struct trial *trial, bool all,
                               struct cairn_error *err) {
    const struct cairn_assembly *assembly = &trial->assembly;
    CAIRN_AUTO_HEAP struct compared *bytes = malloc(sizeof *bytes);
    size_t step = all ? 1 : assembly->tensor_count / FIRST_TENSORS + 1;
    if (!bytes) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to compare tensors");
    for (size_t i = 0; trial->fits && i < assembly->tensor_count; i++) {
        const struct cairn_assembly_tensor *masters = &assembly->tensors[i], *own = NULL;
        if (is_state(masters->name)) continue;
        CAIRN_TRY(find_own(experts, masters, &own, err));
        if (i % step) continue;
        enum cairn_code code =
            compare_tensor(experts, assembly, masters, own, all ? UINT64_MAX : FIRST_ELEMENTS,
                           bytes, &trial->fits, err);
        if (code) return cairn_within(err, code, "%s", cairn_short(masters->name).text);
        if (!trial->fits) trial->differs = masters->name;
    }
    return CAIRN_OK;
}

/* ---- which of the orders ---- */

/* Both are like the files: by the configuration, unless it makes no difference. */
static enum cairn_code settle(const struct experts *experts, unsigned *ret,
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

static enum cairn_code choose(struct experts *experts, unsigned *ret, struct cairn_error *err) {
    struct trial *trials = experts->trials;
    for (unsigned all = 0; all < 2; all++) {
        for (unsigned order = 0; order < ORDERS; order++)
            if (trials[order].fits) CAIRN_TRY(compare(experts, &trials[order], all, err));
        if (!trials[0].fits || !trials[1].fits) break;
    }
    *ret = trials[0].fits ? 0 : 1;
    if (trials[0].fits && trials[1].fits) return settle(experts, ret, err);
    if (trials[0].fits || trials[1].fits) return CAIRN_OK;
    const char *name = trials[0].differs ? trials[0].differs : trials[1].differs;
    return cairn_fail(err, CAIRN_INVALID,
                      "%s: its fp32 values, rounded, are not those in its expert's file, in no "
                      "order that the ranks may have",
                      cairn_short(name).text);
}

/* Partitions that make no parameters in one order may do so in the other. */
static enum cairn_code build_all(struct experts *experts, struct cairn_error *err) {
    struct cairn_error other = {0};
    enum cairn_code first = build(experts, 0, err), second = CAIRN_INVALID;
    if (first && first != CAIRN_INVALID) return first;
    experts->trials[0].fits = !first;
    if (experts->matters) second = build(experts, 1, first ? &other : err);
    experts->trials[1].fits = !second;
    if (second && second != CAIRN_INVALID) return second;
    return first && second ? first : CAIRN_OK;
}

/* ---- into the assembly ---- */

static enum cairn_code add_tensor(struct experts *experts, const struct cairn_assembly *from,
                                  const struct cairn_assembly_tensor *tensor,
                                  struct cairn_error *err) {
    CAIRN_TRY(cairn_assembly_add_tensor(experts->assembly, tensor->name, tensor->dtype,
                                        tensor->dimension_count, tensor->shape, err));
    return cairn_assembly_copy_pieces(from, tensor, experts->assembly, err);
}

static enum cairn_code add_masters(struct experts *experts, const struct cairn_assembly *from,
                                   struct cairn_names *trained, struct cairn_error *err) {
    CAIRN_AUTO(buf) masked = {0};
    uint32_t number;
    CAIRN_TRY(cairn_assembly_copy_seals(experts->assembly, from, err));
    for (size_t i = 0; i < from->tensor_count; i++) {
        CAIRN_TRY(add_tensor(experts, from, &from->tensors[i], err));
        if (is_state(from->tensors[i].name)) continue;
        CAIRN_TRY(mask(from->tensors[i].name, &masked, err));
        CAIRN_TRY(cairn_names_add(trained, cairn_buf_view(&masked), &number, err));
    }
    return CAIRN_OK;
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
        CAIRN_TRY(mask(name.data, &masked, err));
        CAIRN_TRY(cairn_names_add(ret, cairn_buf_view(&masked), &number, err));
    }
    return CAIRN_OK;
}

/* What only the experts' files have: what is frozen, and buffers; all, without ZeRO. */
static enum cairn_code add_rest(struct experts *experts, const struct cairn_names *trained,
                                const struct cairn_names *buffers, struct cairn_error *err) {
    const struct cairn_assembly *files = experts->files;
    CAIRN_AUTO(buf) masked = {0};
    size_t at;
    CAIRN_TRY(cairn_assembly_copy_seals(experts->assembly, files, err));
    for (size_t i = 0; i < files->tensor_count; i++) {
        const struct cairn_assembly_tensor *tensor = &files->tensors[i];
        if (cairn_assembly_find(experts->assembly, tensor->name, &at)) continue;
        CAIRN_TRY(mask(tensor->name, &masked, err));
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

static enum cairn_code add(struct experts *experts, struct cairn_names *trained,
                           struct cairn_names *buffers, struct cairn_error *err) {
    unsigned order = 0;
    if (experts->zero->rank_count) {
        CAIRN_TRY(count_experts(experts, err));
        CAIRN_TRY(build_all(experts, err));
        CAIRN_TRY(choose(experts, &order, err));
        CAIRN_TRY(add_masters(experts, &experts->trials[order].assembly, trained, err));
        CAIRN_TRY(mask_buffers(experts, buffers, err));
    }
    return add_rest(experts, trained, buffers, err);
}

enum cairn_code cairn_zero_experts_add(struct cairn_zero *zero, const struct cairn_assembly *files,
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
