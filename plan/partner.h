/* SPDX-License-Identifier: Apache-2.0 */
/*
 * partner: which node keeps a copy of what another one has staged.
 *
 * Why:     a copy is worth something where what takes the node away (its host, rack, power) leaves
 *          the copy there.
 * Promise: 1   a pure function of the nodes and their domains; their order does not matter.
 *          2   no node is its own partner, and where there is another domain the partner is in it.
 *          3   balanced: where no domain has more than half of the nodes each of them is the
 *              partner of exactly one; else those outside of it share it evenly, to within one.
 * Limits:  a node alone has none.
 * Threads: stateless; `nodes` is sorted in place.
 * Next:    server/nodes/node_calls.c tells it; docs/partner.md.
 */
#pragma once

#include "common/error.h"

struct cairn_plan_node {
    const char *name;   /* no two alike */
    const char *domain; /* what fails together; "": it is a domain of its own */
};
/* The name of the partner of the node of that name; NULL: it has none, or is not among them. */
const char *cairn_plan_partner(struct cairn_plan_node *nodes, size_t count, const char *name);
