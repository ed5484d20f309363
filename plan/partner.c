/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes in a row, domain by domain: each takes the one that stands so many places further on as the
 * largest domain has nodes, since no domain reaches that far. One with more than half of all nodes
 * has too few others for that; these and it take each other. */
#include "plan/partner.h"

#include <stdlib.h>
#include <string.h>

static bool same_domain(const struct cairn_plan_node *one, const struct cairn_plan_node *other) {
    return one->domain[0] && !strcmp(one->domain, other->domain);
}

static int by_place(const void *one, const void *other) {
    const struct cairn_plan_node *a = one, *b = other;
    int order = strcmp(a->domain, b->domain);
    return order ? order : strcmp(a->name, b->name);
}

/* The largest domain: where it begins; returns how many it has. */
static size_t largest(const struct cairn_plan_node *nodes, size_t count, size_t *ret_first) {
    size_t most = 0;
    for (size_t first = 0, next; first < count; first = next) {
        next = first + 1;
        while (next < count && same_domain(&nodes[first], &nodes[next])) next++;
        if (next - first <= most) continue;
        most = next - first;
        *ret_first = first;
    }
    return most;
}

/* Place k among the nodes outside of those `size` from `first` on. */
static size_t outside(size_t first, size_t size, size_t k) {
    return k < first ? k : k + size;
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
    if (inside) return nodes[outside(first, size, (own - first) % others)].name;
    return nodes[first + (own < first ? own : own - size)].name;
}
