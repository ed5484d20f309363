/* SPDX-License-Identifier: Apache-2.0 */
/* Which cell is taken for what, and which is kept. */
#include "uploader/fetch/inside.h"

#include "tests/harness.h"
#include "uploader/saves/slabs.h"

#define CELL CAIRN_UP_CELL_BYTES

struct scene {
    struct cairn_budget budget;
    struct cairn_up_cells cells;
};
static void scene_release(struct scene *scene) {
    cairn_up_cells_release(&scene->cells);
    cairn_budget_release(&scene->budget);
}
#define SCENE(name) __attribute__((cleanup(scene_release))) struct scene name = {0}

static void start(struct scene *scene, uint64_t budget_bytes, uint64_t bytes_max) {
    cairn_budget_init(&scene->budget, budget_bytes);
    cairn_up_cells_init(&scene->cells, &scene->budget, bytes_max);
}

/* Cells compare their addresses and ask how many ranks of the node restore them. */
static struct cairn_up_version versions[2];
static struct cairn_up_version *version(int number) {
    return &versions[number];
}

/* Two may come for it. */
static struct cairn_up_cell *claim(struct scene *scene, uint64_t piece, bool careful) {
    struct cairn_up_cell *cell =
        cairn_up_cells_claim(&scene->cells, version(0), 3, piece * CELL, careful);
    if (cell) cell->expected = 2;
    return cell;
}

TEST(blocks_of_a_cell_are_bits_and_a_run_is_what_lies_together) {
    struct cairn_up_cell cell = {.offset = 2 * CELL};
    EXPECT_ALL_U64(cairn_up_cell_mask(2 * CELL, CELL), 0xff, cairn_up_cell_mask(2 * CELL, 1), 1,
                   cairn_up_cell_mask(2 * CELL + CAIRN_MIB, 2 * CAIRN_MIB), 6,
                   cairn_up_cell_mask(3 * CELL - CAIRN_MIB, 5), 0x80, cairn_up_cell_run(0x6e), 0x0e,
                   cairn_up_cell_run(0x80), 0x80, cairn_up_cell_run(0xff), 0xff,
                   cairn_up_cell_run_offset(&cell, 0x0e), 2 * CELL + CAIRN_MIB,
                   cairn_up_cell_run_bytes(&cell, 0x0e, 100 * CELL), 3 * CAIRN_MIB,
                   cairn_up_cell_run_bytes(&cell, 0xfe, 2 * CELL + CAIRN_MIB + 7), 7);
}

TEST(memory_is_a_quarter_of_the_budget_at_most_and_goes_back) {
    SCENE(small);
    SCENE(scene);
    start(&small, 15 * CELL, 100 * CELL);
    EXPECT_EQ_U64(small.cells.capacity, 0); /* three would be too few */
    EXPECT(claim(&small, 0, false) == NULL);
    start(&scene, 20 * CELL, 100 * CELL);
    EXPECT_EQ_U64(scene.cells.capacity, 5);
    for (uint64_t i = 0; i < 9; i++) REQUIRE(claim(&scene, i, false));
    EXPECT_EQ_U64(cairn_budget_free_bytes(&scene.budget), 15 * CELL);
    cairn_up_cells_forget(&scene.cells, version(0));
    cairn_up_cells_shrink(&scene.cells);
    EXPECT_EQ_U64(cairn_budget_free_bytes(&scene.budget), 20 * CELL);
}

TEST(where_the_budget_is_used_up_fewer_cells_do, err) {
    SCENE(scene);
    start(&scene, 20 * CELL, 5 * CELL);
    REQUIRE_OK(cairn_budget_take(&scene.budget, 18 * CELL, "a slab", &err));
    for (uint64_t i = 0; i < 9; i++) REQUIRE(claim(&scene, i, false));
    EXPECT_EQ_U64(scene.cells.count, 2);
}

TEST(no_cell_takes_what_the_windows_of_the_node_s_ranks_need, err) { /* inside.h#6 */
    EACH(row, FIELDS(uint64_t ranks, cells), {0, 5}, {1, 4}, {3, 2}, {4, 1}, {5, 0}) {
        SCENE(scene);
        start(&scene, 20 * CELL, 5 * CELL);
        REQUIRE_OK(cairn_budget_take(&scene.budget, 15 * CELL, "a slab", &err));
        versions[0].expected = (uint32_t)row->ranks;
        for (uint64_t i = 0; i < 5; i++) EXPECT(!claim(&scene, i, false) == !row->cells);
        versions[0].expected = 0;
        EXPECT_EQ_U64(scene.cells.count, row->cells);
        EXPECT(cairn_budget_free_bytes(&scene.budget) >= row->ranks * CAIRN_UP_WINDOW_BYTES_MIN);
    }
}

TEST(a_cell_is_found_again_by_version_shard_and_place_alone) {
    SCENE(scene);
    start(&scene, 40 * CELL, 10 * CELL);
    struct cairn_up_cell *cell = claim(&scene, 5, false);
    REQUIRE(cell);
    cell->present = 0x0f;
    EXPECT(claim(&scene, 5, false) == cell);
    EXPECT_EQ_U64(cell->present, 0x0f);
    EXPECT(cairn_up_cells_find(&scene.cells, version(0), 3, 5 * CELL) == cell);
    EXPECT(!cairn_up_cells_find(&scene.cells, version(0), 2, 5 * CELL));
    EXPECT(!cairn_up_cells_find(&scene.cells, version(0), 3, 6 * CELL));
    EXPECT(!cairn_up_cells_find(&scene.cells, version(1), 3, 5 * CELL));
    cairn_up_cells_forget(&scene.cells, version(0));
    EXPECT(!cairn_up_cells_find(&scene.cells, version(0), 3, 5 * CELL));
}

TEST(who_all_have_had_goes_first_then_the_one_used_longest_ago_and_never_one_in_use) {
    SCENE(scene);
    struct cairn_up_cell *cells[4];
    start(&scene, 16 * CELL, 4 * CELL);
    for (uint64_t i = 0; i < 4; i++) {
        cells[i] = claim(&scene, i, false);
        REQUIRE(cells[i]);
        cells[i]->present = 0xff;
    }
    cells[2]->had = 2;
    EXPECT(claim(&scene, 10, false) == cells[2]); /* though it is younger than two others */
    EXPECT_EQ_U64(cells[2]->present, 0);
    cairn_up_cells_used(&scene.cells, cells[0]);
    EXPECT(claim(&scene, 11, false) == cells[1]);
    for (uint64_t i = 0; i < 4; i++) cells[i]->users = i != 3;
    EXPECT(claim(&scene, 12, false) == cells[3]);
    cells[3]->flying = 1;
    EXPECT(claim(&scene, 13, false) == NULL);
    cells[3]->flying = 0;
    cells[3]->waiters = (struct cairn_up_want *)(void *)&versions[0];
    EXPECT(claim(&scene, 13, false) == NULL);
    cells[3]->waiters = NULL;
    for (uint64_t i = 0; i < 4; i++) cells[i]->users = 0;
}

TEST(who_is_careful_takes_no_cell_that_others_still_come_for) {
    SCENE(scene);
    start(&scene, 16 * CELL, 4 * CELL);
    for (uint64_t i = 0; i < 4; i++) {
        struct cairn_up_cell *cell = claim(&scene, i, true);
        REQUIRE(cell);
        cell->had = 1;
    }
    EXPECT(claim(&scene, 10, true) == NULL);
    struct cairn_up_cell *first = cairn_up_cells_find(&scene.cells, version(0), 3, 0);
    first->used_ms -= CAIRN_UP_CELL_HELD_MS; /* nobody came */
    EXPECT(claim(&scene, 10, true) == first);
    EXPECT(claim(&scene, 11, true) == NULL);
    EXPECT(claim(&scene, 11, false) != NULL);
}
