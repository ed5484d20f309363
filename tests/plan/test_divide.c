/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/divide.h"

#include "tests/harness.h"

#define NODES_MAX 64
#define PIECES 20000

static uint64_t piece_hash(uint64_t piece) {
    return cairn_plan_place_hash("ckpt_0123456789abcdefghijklmnop", (uint32_t)(piece % 7), piece);
}

static void make_nodes(uint64_t *ret, size_t count) {
    for (size_t i = 0; i < count; i++) {
        ret[i] = cairn_plan_node_hash(TEXT("node-%zu", i));
    }
}

TEST(each_of_some_nodes_reads_about_the_same) {
    for (size_t count = 2; count <= NODES_MAX; count *= 2) {
        uint64_t nodes[NODES_MAX], shares[NODES_MAX] = {0};
        make_nodes(nodes, count);
        for (uint64_t i = 0; i < PIECES; i++)
            shares[cairn_plan_owner(nodes, count, piece_hash(i))]++;
        for (size_t i = 0; i < count; i++) {
            double share = (double)shares[i] * (double)count / PIECES;
            cairn_test_check(share > 0.75 && share < 1.25, __FILE__, __LINE__,
                             "node %zu of %zu has %.2f of its share", i, count, share);
        }
    }
}

TEST(the_owner_does_not_depend_on_the_order_of_the_nodes) {
    uint64_t nodes[5], turned[5];
    make_nodes(nodes, 5);
    for (size_t i = 0; i < 5; i++) turned[i] = nodes[(i + 2) % 5];
    for (uint64_t i = 0; i < PIECES; i++) {
        uint64_t one = nodes[cairn_plan_owner(nodes, 5, piece_hash(i))];
        uint64_t other = turned[cairn_plan_owner(turned, 5, piece_hash(i))];
        if (!EXPECT(one == other)) return;
    }
}

TEST(a_node_that_goes_moves_its_own_share_alone) {
    uint64_t nodes[5];
    size_t moved = 0;
    make_nodes(nodes, 5);
    for (uint64_t i = 0; i < PIECES; i++) {
        size_t before = cairn_plan_owner(nodes, 5, piece_hash(i));
        size_t after = cairn_plan_owner(nodes, 4, piece_hash(i));
        moved += before == 4;
        if (before != 4 && !EXPECT(before == after)) return;
    }
    EXPECT(moved > PIECES / 6);
    EXPECT(moved < PIECES / 4);
}

TEST(pieces_of_one_place_in_several_shards_or_versions_have_several_owners) {
    uint64_t nodes[8];
    size_t other_shard = 0, other_version = 0;
    make_nodes(nodes, 8);
    for (uint64_t i = 0; i < 1000; i++) {
        size_t one = cairn_plan_owner(nodes, 8, cairn_plan_place_hash("ckpt_a", 0, i));
        other_shard += one != cairn_plan_owner(nodes, 8, cairn_plan_place_hash("ckpt_a", 1, i));
        other_version += one != cairn_plan_owner(nodes, 8, cairn_plan_place_hash("ckpt_b", 0, i));
    }
    EXPECT(other_shard > 800);
    EXPECT(other_version > 800);
}

#define GIB (UINT64_C(1) << 30)
static const struct cairn_plan_measured fast = {.nodes = 4,
                                                .store_bytes = GIB,
                                                .store_us = 20000000, /* 50 MB/s */
                                                .peer_bytes = GIB,
                                                .peer_us = 5000000,
                                                .answers = 96,
                                                .shared = 75};

TEST(nodes_divide_what_they_have_in_common_where_the_network_is_faster) {
    EXPECT_EQ_U64(cairn_plan_choose(&fast), CAIRN_PLAN_DIVIDE);
    struct cairn_plan_measured changed = fast;
    changed.nodes = 1;
    EXPECT_EQ_U64(cairn_plan_choose(&changed), CAIRN_PLAN_ALONE);
    changed = fast;
    changed.peer_bytes = CAIRN_PLAN_DIVIDE_MEASURED_BYTES - 1;
    changed.peer_us = 1;
    EXPECT_EQ_U64(cairn_plan_choose(&changed), CAIRN_PLAN_TRY);
    changed = (struct cairn_plan_measured){.nodes = 2};
    EXPECT_EQ_U64(cairn_plan_choose(&changed), CAIRN_PLAN_TRY);
}

TEST(nodes_read_alone_where_the_network_is_the_slower_way) {
    struct cairn_plan_measured changed = fast;
    changed.peer_us = 30000000;
    EXPECT_EQ_U64(cairn_plan_choose(&changed), CAIRN_PLAN_NETWORK);
    /* Of two nodes each gets half over the network: half the rate is the border, less a tenth. */
    changed.nodes = 2;
    changed.peer_us = 35900000;
    EXPECT_EQ_U64(cairn_plan_choose(&changed), CAIRN_PLAN_DIVIDE);
    changed.peer_us = 36100000;
    EXPECT_EQ_U64(cairn_plan_choose(&changed), CAIRN_PLAN_NETWORK);
}

TEST(nodes_that_want_different_bytes_do_not_divide_them) {
    struct cairn_plan_measured changed = fast;
    changed.shared = 11;
    EXPECT_EQ_U64(cairn_plan_choose(&changed), CAIRN_PLAN_NOT_COMMON);
    changed.shared = 12;
    EXPECT_EQ_U64(cairn_plan_choose(&changed), CAIRN_PLAN_DIVIDE);
    changed.answers = CAIRN_PLAN_DIVIDE_ANSWERS_MIN - 1;
    changed.shared = 0;
    EXPECT_EQ_U64(cairn_plan_choose(&changed), CAIRN_PLAN_DIVIDE);
}

TEST(nodes_stop_dividing_when_one_waited_for_others_that_did_not_come) {
    struct cairn_plan_measured changed = {.nodes = 2, .answers = 3, .waited_ms = 999};
    EXPECT_EQ_U64(cairn_plan_choose(&changed), CAIRN_PLAN_TRY);
    changed.waited_ms = CAIRN_PLAN_DIVIDE_WAITED_MS;
    EXPECT_EQ_U64(cairn_plan_choose(&changed), CAIRN_PLAN_NOT_COMMON);
    /* Others that are merely late have shared something before the memory was full. */
    changed.shared = 1;
    EXPECT_EQ_U64(cairn_plan_choose(&changed), CAIRN_PLAN_TRY);
    changed = fast;
    changed.waited_ms = 60000;
    EXPECT_EQ_U64(cairn_plan_choose(&changed), CAIRN_PLAN_DIVIDE);
}

TEST(nodes_stop_dividing_when_they_wait_for_answers_of_bytes_that_no_other_wants) {
    /* Of two nodes each reads its half and, for the other, half of that one's. */
    struct cairn_plan_measured changed = {.nodes = 2,
                                          .store_bytes = 80000000,
                                          .store_us = 1000000,
                                          .answers = 5,
                                          .asked_bytes = 40000000,
                                          .asked_us = 999999};
    EXPECT_EQ_U64(cairn_plan_choose(&changed), CAIRN_PLAN_TRY);
    changed.asked_us = 1000000;
    EXPECT_EQ_U64(cairn_plan_choose(&changed), CAIRN_PLAN_NOT_COMMON);
    changed.asked_bytes = 0; /* no answer at all */
    EXPECT_EQ_U64(cairn_plan_choose(&changed), CAIRN_PLAN_NOT_COMMON);
    /* Of four that want the same each gets three bytes while it reads one, of a slow store, too. */
    changed = (struct cairn_plan_measured){.nodes = 4,
                                           .store_bytes = 1000000,
                                           .store_us = 5000000,
                                           .asked_bytes = 3000000,
                                           .asked_us = 5000000};
    EXPECT_EQ_U64(cairn_plan_choose(&changed), CAIRN_PLAN_TRY);
}

TEST(each_choice_is_told_in_words_and_says_whether_it_divides) {
    for (int i = CAIRN_PLAN_ALONE; i <= CAIRN_PLAN_NOT_COMMON; i++)
        EXPECT(cairn_plan_choice_text((enum cairn_plan_choice)i)[0] != '\0');
    EXPECT(cairn_plan_divides(CAIRN_PLAN_TRY));
    EXPECT(cairn_plan_divides(CAIRN_PLAN_DIVIDE));
    EXPECT(!cairn_plan_divides(CAIRN_PLAN_NETWORK));
    EXPECT(!cairn_plan_divides(CAIRN_PLAN_NOT_COMMON));
    EXPECT(!cairn_plan_divides(CAIRN_PLAN_ALONE));
}
