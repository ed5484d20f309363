/* SPDX-License-Identifier: Apache-2.0 */
/* Splits of random groups against the promises of plan/split.h: exact cover, balance, the same
 * answer whatever the order; and each rule by an example. */
#include "plan/split.h"

#include "api/table/dtype.h"
#include "plan/exact.h"
#include "tests/harness.h"

#define ITEMS_MOST 40
#define MEMBERS_MOST 12

static struct cairn_error err;
static uint64_t state;
static uint64_t below(uint64_t bound) {
    return cairn_test_random(&state) % bound;
}

struct world {
    struct cairn_plan_split_item items[ITEMS_MOST];
    char names[ITEMS_MOST][48];
    uint64_t shapes[ITEMS_MOST][3], starts[ITEMS_MOST][3], counts[ITEMS_MOST][3];
    uint32_t weights[MEMBERS_MOST];
    struct cairn_plan_group group;
};

/* Of all widths, from scalars and empty ones to some that are worth cutting; whole, flat and boxes;
 * named as models name them. */
static void make_item(struct world *world, size_t i) {
    static const unsigned dtypes[] = {CAIRN_DTYPE_F32,  CAIRN_DTYPE_BF16,    CAIRN_DTYPE_U8,
                                      CAIRN_DTYPE_F64,  CAIRN_DTYPE_F6_E2M3, CAIRN_DTYPE_F4,
                                      CAIRN_DTYPE_C128, CAIRN_DTYPE_QU2X4};
    struct cairn_plan_split_item *item = &world->items[i];
    unsigned dtype = dtypes[below(CAIRN_COUNT(dtypes))], dimensions = (unsigned)below(4);
    bool narrow = cairn_dtype_bits(dtype) < 8;
    if (narrow && !dimensions) dimensions = 1;
    snprintf(world->names[i], sizeof world->names[i],
             below(4) ? "layers.%u.part.%zu" : "part.%u.x%zu", (unsigned)below(6), i);
    for (unsigned d = 0; d < dimensions; d++) {
        world->shapes[i][d] = below(30) ? 1 + below(d ? 40 : 200) : 0;
        if (narrow) world->shapes[i][d] *= 4;
        world->starts[i][d] = world->shapes[i][d] ? below(world->shapes[i][d]) : 0;
        world->counts[i][d] =
            world->shapes[i][d] ? 1 + below(world->shapes[i][d] - world->starts[i][d]) : 0;
    }
    *item = (struct cairn_plan_split_item){.name = cairn_view_of(world->names[i]),
                                           .dtype = dtype,
                                           .dimension_count = dimensions,
                                           .shape = world->shapes[i],
                                           .start = world->starts[i],
                                           .count = world->counts[i]};
    if (!narrow && dimensions) item->form = (enum cairn_plan_form)below(3);
    for (unsigned d = 0; d < dimensions && item->form == CAIRN_PLAN_FLAT; d++)
        if (!world->shapes[i][d]) item->form = CAIRN_PLAN_WHOLE;
}

static void make_world(struct world *world) {
    size_t count = below(ITEMS_MOST + 1);
    for (size_t i = 0; i < count; i++) make_item(world, i);
    world->group = (struct cairn_plan_group){.by = (enum cairn_plan_split_by)(1 + below(3)),
                                             .members = (uint32_t)(1 + below(MEMBERS_MOST)),
                                             .items = world->items,
                                             .item_count = count};
    if (below(2)) return;
    uint64_t sum = 0;
    for (uint32_t m = 0; m < world->group.members; m++)
        sum += world->weights[m] = (uint32_t)(below(4) ? 1 + below(9) : 0);
    if (!sum) world->weights[0] = 1;
    world->group.weights = world->weights;
}

static struct cairn_plan_box region_of(const struct cairn_plan_split_item *item,
                                       uint64_t elements) {
    struct cairn_plan_box region = {0};
    bool box = item->form == CAIRN_PLAN_BOX && item->dimension_count;
    unsigned dimensions = box ? item->dimension_count : 1;
    for (unsigned d = 0; d < dimensions; d++) {
        region.low[d] =
            item->form == CAIRN_PLAN_WHOLE || !item->dimension_count ? 0 : item->start[d];
        region.high[d] = region.low[d] + (box ? item->count[d] : elements);
    }
    return region;
}

static uint64_t elements_of(const struct cairn_plan_split_item *item) {
    uint64_t elements = 1;
    if (item->form == CAIRN_PLAN_FLAT) return item->count[0];
    for (unsigned d = 0; d < item->dimension_count; d++)
        elements *= item->form == CAIRN_PLAN_BOX ? item->count[d] : item->shape[d];
    return elements;
}

/* The fragments of all shares, put together by the proof that a commit makes, are the item. */
static void expect_cover(const struct world *world, const struct cairn_plan_split *split,
                         size_t of) {
    static struct cairn_plan_box boxes[MEMBERS_MOST * CAIRN_PLAN_SPLIT_MAX];
    const struct cairn_plan_split_item *item = &world->items[of];
    uint64_t elements = elements_of(item);
    bool box = item->form == CAIRN_PLAN_BOX && item->dimension_count;
    uint32_t count = 0, shares = 0;
    for (uint32_t s = 0; s < split->first[split->members]; s++) {
        struct cairn_fragment parts[CAIRN_PLAN_SPLIT_FRAGMENTS_MAX];
        if (split->shares[s].item != of) continue;
        shares++;
        unsigned made = cairn_plan_share_fragments(item, &split->shares[s], parts);
        for (unsigned p = 0; p < made; p++, count++)
            for (unsigned d = 0; d < (box ? item->dimension_count : 1); d++) {
                boxes[count].low[d] = parts[p].start[d];
                boxes[count].high[d] = parts[p].start[d] + parts[p].count[d];
            }
    }
    if (!elements) {
        EXPECT_EQ_U64(shares, 1);
        return;
    }
    struct cairn_plan_box region = region_of(item, elements);
    struct cairn_plan_proof proof;
    REQUIRE_OK(cairn_plan_exact(NULL, &region, box ? item->dimension_count : 1, boxes, count,
                                &proof, &err));
    EXPECT_EQ_U64(proof.finding, CAIRN_PLAN_FOUND_NOTHING);
}

static void expect_balance(const struct world *world, const struct cairn_plan_split *split) {
    const struct cairn_plan_group *group = &world->group;
    uint64_t total = 0, sum = 0, largest = 0, layers[6] = {0};
    for (uint32_t m = 0; m < group->members; m++) {
        total += split->bytes[m];
        sum += group->weights ? group->weights[m] : 1;
    }
    for (size_t i = 0; i < group->item_count; i++) {
        uint64_t bytes =
            elements_of(&group->items[i]) * cairn_dtype_bits(group->items[i].dtype) / 8;
        unsigned layer = 0;
        if (sscanf(world->names[i], "layers.%u.", &layer) == 1 ||
            sscanf(world->names[i], "part.%u.", &layer) == 1)
            layers[layer] += bytes; /* of both kinds: an upper bound of the unit */
        largest =
            cairn_max_u64(largest, group->by == CAIRN_PLAN_SPLIT_LAYER ? layers[layer] : bytes);
    }
    for (uint32_t m = 0; m < group->members; m++) {
        uint64_t weight = group->weights ? group->weights[m] : 1;
        double ideal = (double)total * (double)weight / (double)sum;
        double off = (double)split->bytes[m] - ideal;
        if (!weight) EXPECT_EQ_U64(split->first[m + 1] - split->first[m], 0);
        if (group->by == CAIRN_PLAN_SPLIT_SLICE)
            EXPECT(off <= CAIRN_PLAN_SPLIT_BLOCK_BYTES / 2 + 1 &&
                   off >= -CAIRN_PLAN_SPLIT_BLOCK_BYTES / 2 - 1);
        else if (!group->weights)
            EXPECT(off <= (double)largest);
    }
}

TEST(shares_hold_each_element_once_and_are_balanced) {
    state = cairn_test_seed();
    for (int round = 0; round < 2000; round++) {
        struct world world;
        struct cairn_plan_split split;
        make_world(&world);
        REQUIRE_OK(cairn_plan_split(&world.group, &split, &err));
        for (size_t i = 0; i < world.group.item_count; i++) expect_cover(&world, &split, i);
        expect_balance(&world, &split);
        cairn_plan_split_release(&split);
    }
}

TEST(the_order_of_the_list_changes_nothing) {
    state = cairn_test_seed();
    for (int round = 0; round < 500; round++) {
        struct world world;
        struct cairn_plan_split first, second;
        make_world(&world);
        REQUIRE_OK(cairn_plan_split(&world.group, &first, &err));
        size_t count = world.group.item_count, turn = count ? below(count) : 0;
        struct cairn_plan_split_item turned[ITEMS_MOST];
        for (size_t i = 0; i < count; i++) turned[i] = world.items[(i + turn) % count];
        world.group.items = turned;
        REQUIRE_OK(cairn_plan_split(&world.group, &second, &err));
        EXPECT(!memcmp(first.digest, second.digest, sizeof first.digest));
        REQUIRE(first.first[first.members] == second.first[second.members]);
        for (uint32_t s = 0; s < first.first[first.members]; s++) {
            EXPECT_EQ_U64(first.shares[s].item, (second.shares[s].item + turn) % count);
            EXPECT_EQ_U64(first.shares[s].start, second.shares[s].start);
            EXPECT_EQ_U64(first.shares[s].count, second.shares[s].count);
        }
        cairn_plan_split_release(&first);
        cairn_plan_split_release(&second);
    }
}

TEST(a_digest_tells_every_difference) {
    uint64_t shape[] = {64, 32}, other_shape[] = {32, 64}, start[] = {0, 0}, count[] = {64, 32};
    uint32_t equal[] = {1, 1}, unequal[] = {1, 2};
    struct cairn_plan_split_item items[] = {
        {CAIRN_VIEW("a"), CAIRN_DTYPE_F32, 2, shape, CAIRN_PLAN_WHOLE, start, count},
        {CAIRN_VIEW("b"), CAIRN_DTYPE_F32, 2, shape, CAIRN_PLAN_WHOLE, start, count}};
    struct cairn_plan_group group = {CAIRN_PLAN_SPLIT_SLICE, 2, NULL, items, 2}, changed = group;
    struct cairn_plan_split splits[9];
    size_t made = 0;
    REQUIRE_OK(cairn_plan_split(&group, &splits[made++], &err));
    changed.by = CAIRN_PLAN_SPLIT_TENSOR;
    REQUIRE_OK(cairn_plan_split(&changed, &splits[made++], &err));
    changed = group, changed.members = 3;
    REQUIRE_OK(cairn_plan_split(&changed, &splits[made++], &err));
    changed = group, changed.weights = unequal;
    REQUIRE_OK(cairn_plan_split(&changed, &splits[made++], &err));
    changed = group, changed.item_count = 1;
    REQUIRE_OK(cairn_plan_split(&changed, &splits[made++], &err));
    items[1].name = CAIRN_VIEW("c");
    REQUIRE_OK(cairn_plan_split(&group, &splits[made++], &err));
    items[1].name = CAIRN_VIEW("b"), items[1].dtype = CAIRN_DTYPE_I32;
    REQUIRE_OK(cairn_plan_split(&group, &splits[made++], &err));
    items[1].dtype = CAIRN_DTYPE_F32, items[1].shape = other_shape;
    REQUIRE_OK(cairn_plan_split(&group, &splits[made++], &err));
    items[1].shape = shape, items[1].form = CAIRN_PLAN_BOX;
    REQUIRE_OK(cairn_plan_split(&group, &splits[made++], &err));
    for (size_t a = 0; a < made; a++)
        for (size_t b = 0; b < a; b++)
            EXPECT(memcmp(splits[a].digest, splits[b].digest, sizeof splits[a].digest) != 0);
    items[1].form = CAIRN_PLAN_WHOLE, group.weights = equal;
    struct cairn_plan_split same;
    REQUIRE_OK(cairn_plan_split(&group, &same, &err));
    EXPECT(!memcmp(same.digest, splits[0].digest, sizeof same.digest)); /* NULL means equal */
    cairn_plan_split_release(&same);
    for (size_t i = 0; i < made; i++) cairn_plan_split_release(&splits[i]);
}

TEST(whole_layers_stay_together) {
    uint64_t shape[] = {1000};
    struct cairn_plan_split_item items[] = {
        {CAIRN_VIEW("model.layers.0.q"), CAIRN_DTYPE_F32, 1, shape, 0, NULL, NULL},
        {CAIRN_VIEW("model.layers.1.q"), CAIRN_DTYPE_F32, 1, shape, 0, NULL, NULL},
        {CAIRN_VIEW("model.layers.0.mlp.2.w"), CAIRN_DTYPE_F32, 1, shape, 0, NULL, NULL},
        {CAIRN_VIEW("model.layers.10.q"), CAIRN_DTYPE_F32, 1, shape, 0, NULL, NULL},
        {CAIRN_VIEW("model.layers.1.k"), CAIRN_DTYPE_F32, 1, shape, 0, NULL, NULL},
        {CAIRN_VIEW("head.weight"), CAIRN_DTYPE_F32, 1, shape, 0, NULL, NULL},
        {CAIRN_VIEW("head.bias"), CAIRN_DTYPE_F32, 1, shape, 0, NULL, NULL}};
    static const unsigned unit[] = {0, 1, 0, 2, 1, 3, 3};
    struct cairn_plan_group group = {CAIRN_PLAN_SPLIT_LAYER, 4, NULL, items, CAIRN_COUNT(items)};
    struct cairn_plan_split split;
    uint32_t owner[4] = {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX};
    REQUIRE_OK(cairn_plan_split(&group, &split, &err));
    for (uint32_t m = 0; m < 4; m++)
        for (uint32_t s = split.first[m]; s < split.first[m + 1]; s++) {
            uint32_t *of = &owner[unit[split.shares[s].item]];
            EXPECT(*of == UINT32_MAX || *of == m);
            *of = m;
        }
    for (unsigned a = 0; a < 4; a++)
        for (unsigned b = 0; b < a; b++) EXPECT(owner[a] != owner[b]);
    cairn_plan_split_release(&split);
}

TEST(weights_of_slow_nodes_give_them_less) {
    uint64_t shape[] = {1 << 20};
    uint32_t weights[] = {3, 0, 1};
    struct cairn_plan_split_item item = {CAIRN_VIEW("w"), CAIRN_DTYPE_F32, 1, shape, 0, NULL, NULL};
    struct cairn_plan_group group = {CAIRN_PLAN_SPLIT_SLICE, 3, weights, &item, 1};
    struct cairn_plan_split split;
    REQUIRE_OK(cairn_plan_split(&group, &split, &err));
    EXPECT_ALL_U64(split.bytes[0], 3 << 20, split.bytes[1], 0, split.bytes[2], 1 << 20);
    cairn_plan_split_release(&split);
}

TEST(what_cannot_be_split_is_refused_by_name) {
    uint64_t shape[] = {8}, start[] = {4}, count[] = {5};
    uint32_t none[] = {0, 0};
    struct cairn_plan_split_item items[] = {
        {CAIRN_VIEW("twice"), CAIRN_DTYPE_F32, 1, shape, 0, NULL, NULL},
        {CAIRN_VIEW("twice"), CAIRN_DTYPE_F32, 1, shape, 0, NULL, NULL}};
    struct cairn_plan_group group = {CAIRN_PLAN_SPLIT_SLICE, 2, NULL, items, 2};
    struct cairn_plan_split split;
    EXPECT_EQ_U64(cairn_plan_split(&group, &split, &err), CAIRN_INVALID);
    EXPECT(strstr(err.message, "\"twice\" is listed twice"));
    items[1] = (struct cairn_plan_split_item){CAIRN_VIEW("out"), CAIRN_DTYPE_F32, 1,    shape,
                                              CAIRN_PLAN_FLAT,   start,           count};
    EXPECT_EQ_U64(cairn_plan_split(&group, &split, &err), CAIRN_INVALID);
    EXPECT(strstr(err.message, "\"out\": 5 elements from 4 on are not in the 8"));
    group.item_count = 1, group.weights = none;
    EXPECT_EQ_U64(cairn_plan_split(&group, &split, &err), CAIRN_INVALID);
    EXPECT(strstr(err.message, "weights"));
    group.weights = NULL, group.members = 0;
    EXPECT_EQ_U64(cairn_plan_split(&group, &split, &err), CAIRN_INVALID);
    EXPECT(!split.shares && !split.first && !split.bytes);
}

struct numbered { /* names in order; `missing` is left out */
    size_t count, missing;
    char name[16];
    uint64_t shape[1];
};

static struct cairn_plan_split_item numbered_at(const void *owner, size_t place) {
    struct numbered *list = (struct numbered *)(uintptr_t)owner;
    snprintf(list->name, sizeof list->name, "x.%07zu", place + (place >= list->missing));
    return (struct cairn_plan_split_item){.name = cairn_view_of(list->name),
                                          .dtype = CAIRN_DTYPE_U8,
                                          .dimension_count = 1,
                                          .shape = list->shape};
}

TEST(looks_at_parts_of_two_lists_find_the_first_place_that_differs) {
    state = cairn_test_seed();
    for (int i = 0; i < 60; i++) {
        size_t count = 1 + below(i % 10 ? 2000 : 100000), at = below(count + 1);
        struct numbered a = {.count = count, .missing = SIZE_MAX, .shape = {1}}, b = a;
        b.missing = at; /* at the end: it has one more */
        b.count = at < count ? count - 1 : count + 1;
        if (at == count) b.missing = SIZE_MAX;
        const struct cairn_plan_split_list lists[2] = {{a.count, numbered_at, &a},
                                                       {b.count, numbered_at, &b}};
        uint32_t from = 0, to = CAIRN_PLAN_SPLIT_ITEMS_MAX;
        int rounds = 0;
        for (; to - from > 1; rounds++) {
            uint64_t found[2][CAIRN_PLAN_SPLIT_PARTS];
            uint32_t part = cairn_plan_split_part(from, to);
            unsigned parts = cairn_plan_split_look(&lists[0], from, to, found[0]), k = 0;
            REQUIRE(cairn_plan_split_look(&lists[1], from, to, found[1]) == parts);
            while (k < parts && found[0][k] == found[1][k]) k++;
            REQUIRE(k < parts);
            from += k * part;
            to = (uint32_t)cairn_min_u64(from + part, to);
        }
        EXPECT_ALL_U64(from, at, (uint64_t)rounds, 4);
    }
}
