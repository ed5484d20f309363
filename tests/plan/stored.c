/* SPDX-License-Identifier: Apache-2.0 */
/* stored: everything is done the slow, obvious way. */
#include "tests/plan/stored.h"

#include "tests/harness.h"

void cairn_stored_init(struct cairn_stored *stored, uint64_t seed, uint32_t rank_count) {
    *stored = (struct cairn_stored){.random = seed, .rank_count = rank_count};
    for (uint32_t i = 0; i < rank_count; i++) {
        struct cairn_error err = {0};
        stored->objects[i].limit = STORED_OBJECT_BYTES;
        EXPECT_CODE(cairn_table_builder_new(i, &stored->builders[i], &err), CAIRN_OK);
        const char *name = TEXT("rank-%05u.bin", i);
        uint32_t shard;
        struct cairn_table_shard row = {.name = cairn_view_of(name),
                                        .size_bytes = STORED_OBJECT_BYTES};
        EXPECT_CODE(cairn_table_add_shard(stored->builders[i], &row, &shard, &err), CAIRN_OK);
    }
}

void cairn_stored_release(struct cairn_stored *stored) {
    for (uint32_t i = 0; i < stored->tensor_count; i++) free(stored->tensors[i].bytes);
    for (uint32_t i = 0; i < stored->rank_count; i++) {
        cairn_table_builder_free(stored->builders[i]);
        cairn_buf_release(&stored->objects[i]);
        cairn_buf_release(&stored->tables[i]);
    }
    cairn_layout_release(&stored->layout);
    cairn_buf_release(&stored->layout_bytes);
    cairn_manifest_release(&stored->manifest);
    *stored = (struct cairn_stored){0};
}

uint64_t cairn_stored_below(struct cairn_stored *stored, uint64_t limit) {
    return cairn_test_random(&stored->random) % limit;
}

struct stored_tensor *cairn_stored_tensor(struct cairn_stored *stored, const char *name,
                                          unsigned dtype, enum cairn_tensor_kind kind,
                                          unsigned dimensions, const uint64_t *shape) {
    struct stored_tensor *tensor = &stored->tensors[stored->tensor_count++];
    uint64_t bytes = 0;
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    tensor->tensor = (struct cairn_tensor){
        .name = cairn_view_of(tensor->name),
        .dtype = dtype,
        .dimension_count = dimensions,
        .kind = kind,
    };
    memcpy(tensor->tensor.shape, shape, dimensions * sizeof *shape);
    bool sized = cairn_tensor_size(dtype, dimensions, shape, &tensor->elements, &bytes);
    EXPECT(sized);
    EXPECT(tensor->elements <= STORED_ELEMENTS_MAX);
    EXPECT(cairn_dtype_bits(dtype) <= 8 * STORED_WIDTH_MAX);
    tensor->bytes = malloc(bytes + 1);
    for (uint64_t i = 0; i < bytes; i++) {
        tensor->bytes[i] = (uint8_t)cairn_test_random(&stored->random);
    }
    return tensor;
}

void cairn_stored_copy(const struct stored_tensor *tensor, uint64_t element, uint8_t *buffer,
                       uint64_t to) {
    size_t width = cairn_dtype_bits(tensor->tensor.dtype) / 8;
    memcpy(buffer + to * width, tensor->bytes + element * width, width);
}

uint64_t cairn_stored_nth(const struct cairn_tensor *tensor, const uint64_t *start,
                          const uint64_t *count, uint64_t n) {
    uint64_t index = 0, stride = 1;
    for (unsigned d = tensor->dimension_count; d-- > 0;) {
        index += (start[d] + n % count[d]) * stride;
        n /= count[d];
        stride *= tensor->shape[d];
    }
    return index;
}

void cairn_stored_place(struct cairn_stored *stored, const struct stored_tensor *tensor,
                        uint32_t rank, struct cairn_fragment *fragment) {
    struct cairn_error err = {0};
    size_t width = cairn_dtype_bits(tensor->tensor.dtype) / 8;
    uint64_t elements = 1;
    bool flat = fragment->form == CAIRN_FRAGMENT_FLAT;
    if (flat) elements = fragment->count[0];
    for (unsigned d = 0; !flat && d < tensor->tensor.dimension_count; d++) {
        elements *= fragment->count[d];
    }
    struct cairn_buf *object = &stored->objects[rank];
    static const uint8_t gap[64];
    EXPECT_CODE(cairn_buf_append(object, gap, cairn_stored_below(stored, 3) * width, &err),
                CAIRN_OK);
    fragment->shard = 0;
    fragment->offset_bytes = object->size;
    fragment->size_bytes = elements * width;
    for (uint64_t i = 0; i < elements; i++) {
        uint8_t element[STORED_WIDTH_MAX];
        uint64_t index =
            flat ? fragment->start[0] + i
                 : cairn_stored_nth(&tensor->tensor, fragment->start, fragment->count, i);
        cairn_stored_copy(tensor, index, element, 0);
        EXPECT_CODE(cairn_buf_append(object, element, width, &err), CAIRN_OK);
    }
}

void cairn_stored_list(struct cairn_stored *stored, const struct stored_tensor *tensor,
                       uint32_t rank, const struct cairn_fragment *fragments, size_t count) {
    struct cairn_error err = {0};
    EXPECT_CODE(
        cairn_table_add_tensor(stored->builders[rank], &tensor->tensor, fragments, count, &err),
        CAIRN_OK);
}

bool cairn_stored_finish(struct cairn_stored *stored) {
    struct cairn_error err = {0};
    struct cairn_table tables[STORED_RANKS_MAX];
    struct cairn_buf manifest = {0};
    stored->manifest = (struct cairn_manifest){.world_size = stored->rank_count};
    stored->manifest.origin.n = 1;
    stored->manifest.shards = calloc(stored->rank_count, sizeof *stored->manifest.shards);
    for (uint32_t i = 0; i < stored->rank_count; i++) {
        struct cairn_manifest_shard *shard = &stored->manifest.shards[i];
        shard->name = strdup(TEXT("rank-%05u.bin", i));
        shard->rank = i;
        shard->size_bytes = STORED_OBJECT_BYTES;
        stored->manifest.shard_count++;
        EXPECT_CODE(cairn_table_finish(stored->builders[i], &stored->tables[i], &err), CAIRN_OK);
        enum cairn_code code =
            cairn_table_open(cairn_buf_view(&stored->tables[i]), &tables[i], &err);
        EXPECT_CODE(code, CAIRN_OK);
        if (code != CAIRN_OK) return false;
    }
    enum cairn_code code =
        cairn_layout_build(tables, stored->rank_count, &stored->layout_bytes, &err);
    EXPECT_CODE(code, CAIRN_OK);
    if (code == CAIRN_OK) {
        code = cairn_layout_open(cairn_buf_view(&stored->layout_bytes), &stored->layout, &err);
    }
    EXPECT_CODE(code, CAIRN_OK);
    cairn_buf_release(&manifest);
    return code == CAIRN_OK;
}

uint32_t cairn_stored_cuts(struct cairn_stored *stored, const struct cairn_plan_box *region,
                           unsigned dimensions, struct cairn_plan_box *ret, uint32_t capacity) {
    unsigned d = (unsigned)cairn_stored_below(stored, dimensions);
    uint64_t width = region->high[d] - region->low[d];
    if (capacity < 2 || width < 2 || cairn_stored_below(stored, 5) == 0) {
        ret[0] = *region;
        return 1;
    }
    struct cairn_plan_box low = *region, high = *region;
    low.high[d] = high.low[d] = region->low[d] + 1 + cairn_stored_below(stored, width - 1);
    uint32_t count = cairn_stored_cuts(stored, &low, dimensions, ret, capacity / 2);
    return count +
           cairn_stored_cuts(stored, &high, dimensions, ret + count, capacity - capacity / 2);
}
