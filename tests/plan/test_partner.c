/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/divide.h"

#include "tests/harness.h"

#define NODES_MAX 48

struct cluster {
    char names[NODES_MAX][32], domains[NODES_MAX][32];
    size_t count, domain_count;
};

static uint32_t draw(uint64_t *seed, uint32_t below) {
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % below;
}

static void make(uint64_t *seed, struct cluster *ret) {
    *ret = (struct cluster){.count = 1 + draw(seed, NODES_MAX)};
    uint32_t domains = 1 + draw(seed, 6);
    for (size_t i = 0; i < ret->count; i++) {
        uint32_t domain = draw(seed, 1 + draw(seed, domains)); /* some are larger */
        snprintf(ret->names[i], sizeof(ret->names[i]), "node-%zu", i);
        if (draw(seed, 5)) snprintf(ret->domains[i], sizeof(ret->domains[i]), "rack-%u", domain);
    }
}

static size_t fill(const struct cluster *cluster, size_t turn,
                   struct cairn_plan_node ret[NODES_MAX]) {
    for (size_t i = 0; i < cluster->count; i++) {
        size_t from = (i + turn) % cluster->count;
        ret[i] = (struct cairn_plan_node){cluster->names[from], cluster->domains[from]};
    }
    return cluster->count;
}

static size_t partner_of(const struct cluster *cluster, size_t node, size_t turn) {
    struct cairn_plan_node nodes[NODES_MAX];
    size_t count = fill(cluster, turn, nodes);
    const char *name = cairn_plan_partner(nodes, count, cluster->names[node]);
    return name ? strtoul(name + sizeof("node-") - 1, NULL, 10) : NODES_MAX;
}

/* How many nodes fail with this one, itself among them. */
static size_t domain_size(const struct cluster *cluster, size_t node) {
    size_t size = 0;
    for (size_t i = 0; i < cluster->count; i++)
        size += i == node ||
                (cluster->domains[node][0] && !strcmp(cluster->domains[i], cluster->domains[node]));
    return size;
}

static void check(const struct cluster *cluster) {
    size_t of[NODES_MAX] = {0}, largest = 0, most = 0, least = SIZE_MAX;
    for (size_t i = 0; i < cluster->count; i++) {
        size_t partner = partner_of(cluster, i, 0), size = domain_size(cluster, i);
        if (size > largest) largest = size;
        if (cluster->count == 1) {
            EXPECT_EQ_U64(partner, NODES_MAX);
            continue;
        }
        REQUIRE(partner < cluster->count);
        EXPECT(partner != i);
        EXPECT_EQ_U64(partner_of(cluster, i, 1 + i % 7), partner);
        bool same =
            cluster->domains[i][0] && !strcmp(cluster->domains[i], cluster->domains[partner]);
        EXPECT(!same || size == cluster->count);
        of[partner]++;
    }
    for (size_t i = 0; i < cluster->count; i++) {
        bool crowded = 2 * largest > cluster->count && largest < cluster->count;
        if (cluster->count > 1 && !crowded) EXPECT_EQ_U64(of[i], 1);
        if (!crowded || domain_size(cluster, i) == largest) continue;
        if (of[i] > most) most = of[i];
        if (of[i] < least) least = of[i];
    }
    EXPECT(least == SIZE_MAX || most - least <= 1);
}

TEST(partners_are_in_other_domains_and_shared_evenly) {
    uint64_t seed = 1;
    for (int round = 0; round < 3000; round++) {
        struct cluster cluster;
        make(&seed, &cluster);
        check(&cluster);
    }
}

TEST(a_node_alone_or_unknown_has_no_partner) {
    struct cairn_plan_node one[] = {{"a", ""}}, two[] = {{"a", "x"}, {"b", "x"}};
    EXPECT(cairn_plan_partner(one, 1, "a") == NULL);
    EXPECT(cairn_plan_partner(two, 2, "c") == NULL);
    EXPECT_EQ_TEXT(cairn_plan_partner(two, 2, "a"), "b"); /* no other domain is there */
}
