/* SPDX-License-Identifier: Apache-2.0 */
/* Rendezvous hashing, the choice whether to divide, and partners. */
#include "plan/divide.h"

#include <stdlib.h>
#include <string.h>

/* FNV-1a; mix follows it. */
static uint64_t hash_text(uint64_t hash, const char *text) {
    for (; *text; text++) hash = (hash ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    return hash;
}

/* MurmurHash3's finaliser: each input bit affects each output bit. */
static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 33)) * UINT64_C(0xff51afd7ed558ccd);
    x = (x ^ (x >> 33)) * UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ (x >> 33);
}

uint64_t cairn_plan_node_hash(const char *node) {
    return mix(hash_text(UINT64_C(0xcbf29ce484222325), node));
}

uint64_t cairn_plan_place_hash(const char *version, uint32_t shard, uint64_t piece) {
    uint64_t hash = mix(hash_text(UINT64_C(0xcbf29ce484222325), version) ^ shard);
    return mix(hash + piece);
}

uint64_t cairn_plan_score(uint64_t node_hash, uint64_t place_hash) {
    return mix(node_hash ^ place_hash);
}

size_t cairn_plan_owner(const uint64_t *node_hashes, size_t count, uint64_t place_hash) {
    size_t owner = 0;
    uint64_t best = 0;
    CAIRN_ASSERT(count > 0);
    for (size_t i = 0; i < count; i++) {
        uint64_t score = cairn_plan_score(node_hashes[i], place_hash);
        /* Only equal hashes have equal scores: mix and xor are invertible. */
        if (i && score <= best) continue;
        best = score;
        owner = i;
    }
    return owner;
}

/* Divided, a node reads a 1/n share from the store while the other n-1 come over the network; alone
 * it reads everything. Dividing must win by a tenth, because measurements are rough. */
static bool is_network_slower(const struct cairn_plan_measured *measured) {
    if (measured->store_bytes < CAIRN_PLAN_DIVIDE_MEASURED_BYTES ||
        measured->peer_bytes < CAIRN_PLAN_DIVIDE_MEASURED_BYTES || !measured->store_us ||
        !measured->peer_us)
        return false;
    double store = (double)measured->store_bytes / (double)measured->store_us;
    double peer = (double)measured->peer_bytes / (double)measured->peer_us;
    double share = (double)(measured->nodes - 1) / (double)measured->nodes;
    return share / peer > 0.9 / store;
}

/* Nodes that want the same bytes receive n-1 bytes from each other per byte from the store, however
 * slow the store is; nodes that want different bytes make each other read more from the store. */
static bool is_waiting(const struct cairn_plan_measured *measured) {
    if (measured->waited_ms >= CAIRN_PLAN_DIVIDE_WAITED_MS) return true;
    if (measured->asked_us < CAIRN_PLAN_DIVIDE_WAITED_MS * UINT64_C(1000) || !measured->store_us)
        return false;
    double store = (double)measured->store_bytes / (double)measured->store_us;
    double asked = (double)measured->asked_bytes / (double)measured->asked_us;
    double share = (double)(measured->nodes - 1) / (double)measured->nodes;
    return share * store > 0.9 * asked;
}

enum cairn_plan_choice cairn_plan_choose(const struct cairn_plan_measured *measured) {
    if (measured->nodes < 2) return CAIRN_PLAN_ALONE;
    /* Of n nodes with the same wants the first asker finds nothing and the others do; the node
     * ahead of all gets only misses, but serves the others. An eighth is far below either. */
    if (measured->answers >= CAIRN_PLAN_DIVIDE_ANSWERS_MIN &&
        measured->shared < measured->answers / 8)
        return CAIRN_PLAN_NOT_COMMON;
    if (measured->shared <= measured->answers / 8 && is_waiting(measured))
        return CAIRN_PLAN_NOT_COMMON;
    if (is_network_slower(measured)) return CAIRN_PLAN_NETWORK;
    return measured->peer_bytes < CAIRN_PLAN_DIVIDE_MEASURED_BYTES ? CAIRN_PLAN_TRY
                                                                   : CAIRN_PLAN_DIVIDE;
}

bool cairn_plan_divides(enum cairn_plan_choice choice) {
    return choice == CAIRN_PLAN_TRY || choice == CAIRN_PLAN_DIVIDE;
}

const char *cairn_plan_choice_text(enum cairn_plan_choice choice) {
    static const char *const texts[] = {
        [CAIRN_PLAN_ALONE] = "no other node of the attempt can be asked",
        [CAIRN_PLAN_TRY] = "divided among the nodes; not measured yet",
        [CAIRN_PLAN_DIVIDE] = "divided among the nodes",
        [CAIRN_PLAN_NETWORK] = "not divided: the network is slower than the store",
        [CAIRN_PLAN_NOT_COMMON] = "not divided: the nodes want different bytes"};
    CAIRN_ASSERT((size_t)choice < CAIRN_COUNT(texts));
    return texts[choice];
}

/* ---- partners ---- */

/* Nodes are sorted by domain; a node's partner is as many places further on as the largest domain
 * has nodes, which no domain spans. If that domain has more than half of all nodes, its nodes and
 * the others become each other's partners. */
static int by_place(const void *one, const void *other) {
    const struct cairn_plan_node *a = one, *b = other;
    int order = strcmp(a->domain, b->domain);
    return order ? order : strcmp(a->name, b->name);
}

/* Finds the first node of the largest domain; returns the domain's size. */
static size_t largest(const struct cairn_plan_node *nodes, size_t count, size_t *ret_first) {
    size_t most = 0;
    for (size_t first = 0, next; first < count; first = next) {
        next = first + 1;
        const char *domain = nodes[first].domain;
        while (next < count && domain[0] && !strcmp(domain, nodes[next].domain)) next++;
        if (next - first <= most) continue;
        most = next - first;
        *ret_first = first;
    }
    return most;
}

const char *cairn_plan_partner(struct cairn_plan_node *nodes, size_t count, const char *name) {
    size_t first = 0, own = 0;
    if (count < 2) return NULL;
    qsort(nodes, count, sizeof(*nodes), by_place);
    while (own < count && strcmp(nodes[own].name, name) != 0) own++;
    if (own == count) return NULL;
    size_t size = largest(nodes, count, &first), others = count - size;
    if (!others) return nodes[(own + 1) % count].name;
    if (size <= others) return nodes[(own + size) % count].name;
    bool inside = own >= first && own < first + size;
    if (!inside) return nodes[first + (own < first ? own : own - size)].name;
    size_t other = (own - first) % others; /* counts the nodes outside the largest domain */
    return nodes[other < first ? other : other + size].name;
}
