/* SPDX-License-Identifier: Apache-2.0 */
/* Names of a layout, each a want of all its elements; the plan's pieces are the assembly's. */
#include "cli/stored_assembly.h"

#include <inttypes.h>
#include <stdlib.h>

#include "api/table/layout.h"
#include "formats/safetensors_assembly.h"
#include "plan/reads.h"

/* One tensor, or one rank's own. */
struct item {
    struct cairn_tensor tensor;
    uint32_t index; /* of its name in the layout */
    uint32_t rank;
    bool by_rank; /* other ranks have one of that name, too */
};
struct build {
    const struct cairn_cli_source *source;
    const struct cairn_cli_shard_inputs *inputs;
    const char *without;
    bool skipped;
    struct cairn_assembly *assembly;
    struct item *items;
    struct cairn_plan_want *wants; /* by item */
    size_t count;
    size_t *numbers; /* in the assembly, by the layout's name */
    uint32_t *inputs_of; /* number of the input + 1, by shard; 0: nothing lies in it */
    struct cairn_plan_pieces pieces;
};

/* ---- names: what is wanted, in the layout's order ---- */

static void add_item(struct build *build, uint32_t index, uint32_t ref, bool by_rank) {
    const struct cairn_layout *layout = &build->source->version.layout;
    struct item *item = &build->items[build->count];
    uint32_t table, tensor;
    cairn_layout_ref_at(layout, ref, &table, &tensor);
    cairn_table_tensor_at(&layout->tables[table], tensor, &item->tensor);
    item->index = index;
    item->rank = layout->tables[table].rank;
    item->by_rank = by_rank;
    build->wants[build->count] =
        (struct cairn_plan_want){.tensor = item->tensor.name, .local_rank = item->rank};
    if (item->tensor.kind != CAIRN_TENSOR_ALIAS) build->count++;
}

static void add_items(struct build *build) {
    const struct cairn_layout *layout = &build->source->version.layout;
    for (uint32_t i = 0; i < layout->name_count; i++) {
        struct cairn_view name;
        uint32_t first, count;
        cairn_layout_name_at(layout, i, &name, &first, &count);
        size_t before = build->count;
        add_item(build, i, first, false);
        if (build->count == before || build->items[before].tensor.kind != CAIRN_TENSOR_LOCAL)
            continue;
        build->items[before].by_rank = count > 1;
        for (uint32_t ref = 1; ref < count; ref++) add_item(build, i, first + ref, true);
    }
}

static enum cairn_code make_room(struct build *build, struct cairn_error *err) {
    const struct cairn_layout *layout = &build->source->version.layout;
    size_t most = 1, shards = build->source->version.manifest.shard_count;
    for (uint32_t i = 0; i < layout->name_count; i++) {
        struct cairn_view name;
        uint32_t first, count;
        cairn_layout_name_at(layout, i, &name, &first, &count);
        most += count;
    }
    build->items = calloc(most, sizeof *build->items);
    build->wants = calloc(most, sizeof *build->wants);
    build->numbers = calloc((size_t)layout->name_count + 1, sizeof *build->numbers);
    build->inputs_of = calloc(shards + 1, sizeof *build->inputs_of);
    return build->items && build->wants && build->numbers && build->inputs_of
               ? CAIRN_OK
               : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the version's tensors");
}

/* ---- the assembly ---- */

static bool is_wanted(const struct build *build, struct cairn_view name) {
    size_t size = build->without ? strlen(build->without) : 0;
    return !size || name.size < size || memcmp(name.data, build->without, size) != 0;
}

static enum cairn_code assemble_item(struct build *build, const struct item *item, size_t *piece,
                                     struct cairn_error *err) {
    CAIRN_AUTO(buf) name = {0};
    size_t want = (size_t)(item - build->items);
    CAIRN_TRY(cairn_buf_append(&name, item->tensor.name.data, item->tensor.name.size, err));
    if (item->by_rank) CAIRN_TRY(cairn_buf_printf(&name, err, "@rank-%05u", item->rank));
    bool wanted = is_wanted(build, item->tensor.name);
    build->numbers[item->index] = build->assembly->tensor_count;
    build->skipped |= !wanted;
    if (wanted)
        CAIRN_TRY(cairn_assembly_add_tensor(build->assembly, name.data, item->tensor.dtype,
                                            item->tensor.dimension_count, item->tensor.shape,
                                            err));
    for (; *piece < build->pieces.count && build->pieces.pieces[*piece].want == want; ++*piece) {
        const struct cairn_plan_piece *from = &build->pieces.pieces[*piece];
        uint32_t *input = &build->inputs_of[from->shard];
        if (!*input) {
            CAIRN_TRY(cairn_assembly_add_input(
                build->assembly, cairn_cli_shard_inputs_at(build->inputs, from->shard), input,
                err));
            ++*input;
        }
        if (wanted)
            CAIRN_TRY(cairn_assembly_add_piece(build->assembly, *input - 1, from->offset,
                                               from->bytes, err));
    }
    return CAIRN_OK;
}

static enum cairn_code add_aliases(struct build *build, struct cairn_error *err) {
    const struct cairn_layout *layout = &build->source->version.layout;
    for (uint32_t i = 0; i < layout->name_count; i++) {
        CAIRN_AUTO(buf) name = {0};
        struct cairn_tensor tensor;
        struct cairn_view text;
        uint32_t first, count, table, number, of;
        cairn_layout_name_at(layout, i, &text, &first, &count);
        cairn_layout_ref_at(layout, first, &table, &number);
        cairn_table_tensor_at(&layout->tables[table], number, &tensor);
        if (tensor.kind != CAIRN_TENSOR_ALIAS || !is_wanted(build, text)) continue;
        CAIRN_TRY(cairn_plan_resolve(layout, text, &of, err));
        CAIRN_TRY(cairn_buf_append(&name, text.data, text.size, err));
        cairn_layout_name_at(layout, of, &text, &first, &count);
        cairn_layout_ref_at(layout, first, &table, &number);
        cairn_table_tensor_at(&layout->tables[table], number, &tensor);
        if (tensor.kind == CAIRN_TENSOR_LOCAL && count > 1)
            CAIRN_TRY(cairn_assembly_leave_out(build->assembly, name.data,
                                               "another name of what each rank has its own of",
                                               err));
        else
            CAIRN_TRY(
                cairn_assembly_add_alias(build->assembly, name.data, build->numbers[of], err));
    }
    return CAIRN_OK;
}

/* ---- texts ---- */

/* Of the files in which tensors lie. What only looks like a safetensors file has none. */
static enum cairn_code add_texts(struct build *build, struct cairn_error *err) {
    const struct cairn_manifest *manifest = &build->source->version.manifest;
    for (uint32_t i = 0; i < manifest->shard_count; i++) {
        struct cairn_error why = {0};
        const char *name = manifest->shards[i].name, *dot = strrchr(name, '.');
        if (!build->inputs_of[i] || !dot || strcmp(dot, ".safetensors") != 0 ||
            !cairn_layout_keeps_file(&build->source->version.layout, manifest->shards[i].rank,
                                     cairn_view_of(name)))
            continue;
        enum cairn_code code = cairn_safetensors_add_texts(
            cairn_cli_shard_inputs_at(build->inputs, i), name, build->assembly, &why);
        if (code == CAIRN_OK || code == CAIRN_INVALID || code == CAIRN_UNSUPPORTED) continue;
        if (err) *err = why;
        return code;
    }
    return CAIRN_OK;
}

static enum cairn_code assemble(struct build *build, struct cairn_error *err) {
    const struct cairn_manifest *manifest = &build->source->version.manifest;
    size_t piece = 0;
    CAIRN_TRY(make_room(build, err));
    add_items(build);
    CAIRN_TRY(cairn_plan_reads(manifest, &build->source->version.layout, build->wants,
                               build->count, &build->pieces, err));
    for (size_t i = 0; i < build->count; i++)
        CAIRN_TRY(assemble_item(build, &build->items[i], &piece, err));
    CAIRN_ASSERT(piece == build->pieces.count);
    CAIRN_TRY(add_aliases(build, err));
    CAIRN_TRY(add_texts(build, err));
    if (build->skipped)
        CAIRN_TRY(cairn_assembly_leave_out(build->assembly, build->without,
                                           CAIRN_ASSEMBLY_WITHOUT_OPTIMIZER, err));
    for (uint32_t i = 0; i < manifest->shard_count; i++)
        if (!build->inputs_of[i])
            CAIRN_TRY(cairn_assembly_leave_out(build->assembly, manifest->shards[i].name,
                                               "a shard in which no tensor lies", err));
    return cairn_assembly_check(build->assembly, err);
}

enum cairn_code cairn_cli_stored_assemble(const struct cairn_cli_source *source,
                                          const struct cairn_cli_shard_inputs *inputs,
                                          const char *without, struct cairn_assembly *assembly,
                                          struct cairn_error *err) {
    struct build build = {
        .source = source, .inputs = inputs, .without = without, .assembly = assembly};
    enum cairn_code code = assemble(&build, err);
    cairn_plan_pieces_release(&build.pieces);
    free(build.items);
    free(build.wants);
    free(build.numbers);
    free(build.inputs_of);
    return code;
}
