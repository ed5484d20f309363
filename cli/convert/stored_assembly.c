/* SPDX-License-Identifier: Apache-2.0 */
/* stored_assembly: a version's shards as inputs and its layout as an assembly: each name is planned
 * as a read of all its elements, and the plan's pieces become the assembly's. */
#include "cli/convert/inside.h"

#include <stdlib.h>

#include "api/table/layout.h"
#include "common/lock.h"
#include "common/memory.h"
#include "formats/assembly/models.h"
#include "plan/reads.h"

/* A connection and the blocks last read over it. */
struct slot {
    struct slot *next;
    struct cairn_cli_reader *reader;
    char *chunk;
    const struct cairn_manifest_shard *shard; /* the chunk's shard; NULL: empty */
    uint64_t offset;
    size_t size;
};
struct shard_input {
    struct cli_shard_inputs *owner;
    const struct cairn_manifest_shard *shard;
    struct cairn_input input;
};
struct cli_shard_inputs {
    const struct cli_source *source;
    struct shard_input *items;
    struct cairn_lock lock;
    struct {
        struct slot *idle;
    } locked;
};

static void free_slot(struct slot *slot) {
    if (!slot) return;
    cairn_cli_reader_free(slot->reader);
    cairn_pages_unmap(slot->chunk, CLI_CHUNK_BYTES);
    free(slot);
}

static enum cairn_code new_slot(const struct cli_shard_inputs *inputs, struct slot **ret,
                                struct cairn_error *err) {
    struct slot *slot = calloc(1, sizeof *slot);
    if (!slot) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a reader");
    enum cairn_code code = cli_reader_new(inputs->source, &slot->reader, err);
    if (code == CAIRN_OK && !(slot->chunk = cairn_pages_map(CLI_CHUNK_BYTES)))
        code = cairn_fail(err, CAIRN_NO_MEMORY, "no memory for blocks of a shard");
    if (code == CAIRN_OK)
        *ret = slot;
    else
        free_slot(slot);
    return code;
}

static bool holds(const struct slot *slot, const struct cairn_manifest_shard *shard,
                  uint64_t offset) {
    return slot->shard == shard && offset >= slot->offset && offset - slot->offset < slot->size;
}

/* Takes the idle slot holding this byte, else the last used one; NULL: none is idle. */
static struct slot *take_slot(struct cli_shard_inputs *inputs,
                              const struct cairn_manifest_shard *shard, uint64_t offset) {
    CAIRN_HOLD(&inputs->lock);
    struct slot **at = &inputs->locked.idle;
    while (*at && !holds(*at, shard, offset)) at = &(*at)->next;
    if (!*at) at = &inputs->locked.idle;
    struct slot *slot = *at;
    if (slot) *at = slot->next;
    return slot;
}

static void give_slot(struct cli_shard_inputs *inputs, struct slot *slot) {
    CAIRN_HOLD(&inputs->lock);
    slot->next = inputs->locked.idle;
    inputs->locked.idle = slot;
}

static enum cairn_code read_range(struct slot *slot, const struct cairn_manifest_shard *shard,
                                  uint64_t offset, char *into, uint64_t size,
                                  struct cairn_error *err) {
    while (size) {
        uint64_t whole = offset + size == shard->size_bytes
                             ? size
                             : size / CAIRN_BLOCK_BYTES * CAIRN_BLOCK_BYTES;
        uint64_t some;
        if (offset % CAIRN_BLOCK_BYTES == 0 && whole >= CAIRN_BLOCK_BYTES &&
            !holds(slot, shard, offset)) {
            some = whole; /* without the chunk */
            CAIRN_TRY(cli_read(slot->reader, shard, offset, into, (size_t)some, err));
        } else {
            if (!holds(slot, shard, offset)) {
                /* Reads the blocks around offset and those after it, up to `size` and the chunk's
                 * capacity. */
                uint64_t begin = offset / CAIRN_BLOCK_BYTES * CAIRN_BLOCK_BYTES;
                uint64_t end = cairn_round_up(offset + size, CAIRN_BLOCK_BYTES);
                end = cairn_min_u64(cairn_min_u64(end, shard->size_bytes), begin + CLI_CHUNK_BYTES);
                slot->shard = NULL;
                CAIRN_TRY(
                    cli_read(slot->reader, shard, begin, slot->chunk, (size_t)(end - begin), err));
                slot->shard = shard;
                slot->offset = begin;
                slot->size = (size_t)(end - begin);
            }
            some = cairn_min_u64(slot->size - (offset - slot->offset), size);
            memcpy(into, slot->chunk + (offset - slot->offset), (size_t)some);
        }
        offset += some;
        into += some;
        size -= some;
    }
    return CAIRN_OK;
}

static enum cairn_code read_shard(void *context, uint64_t offset, void *into, size_t size,
                                  struct cairn_error *err) {
    struct shard_input *item = context;
    struct slot *slot = take_slot(item->owner, item->shard, offset);
    if (!slot) CAIRN_TRY(new_slot(item->owner, &slot, err));
    enum cairn_code code = read_range(slot, item->shard, offset, into, size, err);
    give_slot(item->owner, slot);
    return code;
}

enum cairn_code cli_shard_inputs_new(const struct cli_source *source, struct cli_shard_inputs **ret,
                                     struct cairn_error *err) {
    const struct cairn_manifest *manifest = &source->version.manifest;
    struct cli_shard_inputs *inputs = calloc(1, sizeof *inputs);
    if (inputs) inputs->items = calloc(manifest->shard_count + 1, sizeof *inputs->items);
    if (!inputs || !inputs->items) {
        free(inputs);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list of shards");
    }
    inputs->source = source;
    cairn_lock_init(&inputs->lock, CAIRN_LOCK_client_session);
    for (uint32_t i = 0; i < manifest->shard_count; i++) {
        struct shard_input *item = &inputs->items[i];
        item->owner = inputs;
        item->shard = &manifest->shards[i];
        item->input = (struct cairn_input){
            .size_bytes = item->shard->size_bytes, .context = item, .read = read_shard};
    }
    *ret = inputs;
    return CAIRN_OK;
}

void cli_shard_inputs_free(struct cli_shard_inputs *inputs) {
    if (!inputs) return;
    while (inputs->locked.idle) {
        struct slot *slot = inputs->locked.idle;
        inputs->locked.idle = slot->next;
        free_slot(slot);
    }
    cairn_lock_release(&inputs->lock);
    free(inputs->items);
    free(inputs);
}

const struct cairn_input *cli_shard_inputs_at(const struct cli_shard_inputs *inputs,
                                              uint32_t shard) {
    CAIRN_ASSERT(shard < inputs->source->version.manifest.shard_count);
    return &inputs->items[shard].input;
}

/* One tensor, or one rank's own tensor. */
struct item {
    struct cairn_tensor tensor;
    uint32_t index; /* of its name in the layout */
    uint32_t rank;
    bool by_rank; /* other ranks have their own of that name */
};
struct build {
    const struct cli_source *source;
    const struct cli_shard_inputs *inputs;
    const char *without;
    bool skipped;
    struct cairn_assembly *assembly;
    struct item *items;
    struct cairn_plan_want *wants; /* by item */
    size_t count;
    size_t *numbers;     /* number in the assembly, by layout name */
    uint32_t *inputs_of; /* input + 1, by shard; 0: holds no tensor */
    struct cairn_plan_pieces pieces;
};

/* ---- the assembly: names in the layout's order, pieces, header texts ---- */

static void add_item(struct build *build, uint32_t index, uint32_t ref, bool by_rank) {
    const struct cairn_layout *layout = &build->source->version.layout;
    struct item *item = &build->items[build->count];
    item->index = index;
    item->rank = cairn_layout_tensor_at(layout, ref, &item->tensor)->rank;
    item->by_rank = by_rank;
    build->wants[build->count] =
        (struct cairn_plan_want){.tensor = item->tensor.name, .local_rank = item->rank};
    if (item->tensor.kind != CAIRN_TENSOR_ALIAS) build->count++;
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
                                            item->tensor.dimension_count, item->tensor.shape, err));
    for (; *piece < build->pieces.count && build->pieces.pieces[*piece].want == want; ++*piece) {
        const struct cairn_plan_piece *from = &build->pieces.pieces[*piece];
        uint32_t *input = &build->inputs_of[from->shard];
        if (!*input) {
            CAIRN_TRY(cairn_assembly_add_input(
                build->assembly, cli_shard_inputs_at(build->inputs, from->shard), input, err));
            ++*input;
        }
        if (wanted)
            CAIRN_TRY(cairn_assembly_add_piece(build->assembly, *input - 1, from->offset,
                                               from->bytes, err));
    }
    return CAIRN_OK;
}

/* Adds header texts of files that hold tensors; an invalid safetensors file has none. */
static enum cairn_code add_texts(struct build *build, struct cairn_error *err) {
    const struct cairn_manifest *manifest = &build->source->version.manifest;
    for (uint32_t i = 0; i < manifest->shard_count; i++) {
        struct cairn_error why = {0};
        const char *name = manifest->shards[i].name, *dot = strrchr(name, '.');
        if (!build->inputs_of[i] || !dot || strcasecmp(dot, ".safetensors") != 0 ||
            !cairn_layout_keeps_file(&build->source->version.layout, manifest->shards[i].rank,
                                     cairn_view_of(name)))
            continue;
        enum cairn_code code = cairn_safetensors_add_texts(cli_shard_inputs_at(build->inputs, i),
                                                           name, build->assembly, &why);
        if (code == CAIRN_OK || code == CAIRN_INVALID || code == CAIRN_UNSUPPORTED) continue;
        return cairn_pass(err, code, &why);
    }
    return CAIRN_OK;
}

static enum cairn_code assemble(struct build *build, struct cairn_error *err) {
    const struct cairn_manifest *manifest = &build->source->version.manifest;
    size_t piece = 0;
    CAIRN_TRY(make_room(build, err));
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
    CAIRN_TRY(cairn_plan_reads(manifest, &build->source->version.layout, build->wants, build->count,
                               &build->pieces, err));
    for (size_t i = 0; i < build->count; i++)
        CAIRN_TRY(assemble_item(build, &build->items[i], &piece, err));
    CAIRN_ASSERT(piece == build->pieces.count);
    for (uint32_t i = 0; i < layout->name_count; i++) {
        CAIRN_AUTO(buf) name = {0};
        struct cairn_tensor tensor;
        struct cairn_view text;
        uint32_t first, count, of;
        cairn_layout_name_at(layout, i, &text, &first, &count);
        (void)cairn_layout_tensor_at(layout, first, &tensor);
        if (tensor.kind != CAIRN_TENSOR_ALIAS || !is_wanted(build, text)) continue;
        CAIRN_TRY(cairn_plan_resolve(layout, text, &of, err));
        CAIRN_TRY(cairn_buf_append(&name, text.data, text.size, err));
        cairn_layout_name_at(layout, of, &text, &first, &count);
        (void)cairn_layout_tensor_at(layout, first, &tensor);
        if (tensor.kind == CAIRN_TENSOR_LOCAL && count > 1)
            CAIRN_TRY(cairn_assembly_leave_out(
                build->assembly, name.data, "another name of what each rank has its own of", err));
        else
            CAIRN_TRY(
                cairn_assembly_add_alias(build->assembly, name.data, build->numbers[of], err));
    }
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

enum cairn_code cli_stored_assemble(const struct cli_source *source,
                                    const struct cli_shard_inputs *inputs, const char *without,
                                    struct cairn_assembly *assembly, struct cairn_error *err) {
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
