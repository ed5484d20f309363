/* SPDX-License-Identifier: Apache-2.0 */
/*
 * divide: which node reads which bytes of a version that several nodes restore, whether that pays,
 * and which node holds the copy of another node's staged bytes.
 *
 * Why:     a store's total bandwidth is limited; nodes that want the same bytes get them sooner if
 *          each reads its share once and passes it on. A partner's copy helps only if it survives
 *          what takes the node down (host, rack, power).
 * Promise: 1   owner is the same on every node that knows the same names, in any order (rendezvous
 *              hashing); a node that joins or leaves moves only its own share.
 *          2   choose is a pure function of the measurements: nodes divide by default, and stop if
 *              the network is the slower path or if the nodes want different bytes: shown by their
 *              answers, or because this node waits (for others, for their answers, or for them to
 *              take what it holds) and almost nothing is shared.
 *          3   the partner is a pure function of the nodes and their domains, in any order. No node
 *              is its own partner, and if another domain exists the partner is in it.
 *          4   partners are balanced: if no domain has more than half of the nodes, each node is
 *              the partner of exactly one; else the nodes outside that domain share the load to
 *              within one.
 * Limits:  rates of 2^53 bytes per second; a single node has no partner.
 * Threads: stateless.
 * Next:    uploader/fetch/divide.c; server/nodes/node_calls.c announces the partner;
 *          docs/partner.md.
 */
#pragma once

#include "common/error.h"

uint64_t cairn_plan_node_hash(const char *node);
/* piece: any number that identifies the piece within the version. */
uint64_t cairn_plan_place_hash(const char *version, uint32_t shard, uint64_t piece);
/* A node's score for a piece: higher is better, and equal on every node. */
uint64_t cairn_plan_score(uint64_t node_hash, uint64_t place_hash);
/* Index of the node that reads a piece; count is at least 1. */
size_t cairn_plan_owner(const uint64_t *node_hashes, size_t count, uint64_t place_hash);

#define CAIRN_PLAN_DIVIDE_MEASURED_BYTES (64 * CAIRN_MIB) /* until then a rate does not count */
#define CAIRN_PLAN_DIVIDE_ANSWERS_MIN 24                  /* until then `shared` does not count */
/* Half of the time that a cell is kept for others (uploader/fetch/inside.h): nodes of one attempt
 * start their restores closer together. */
#define CAIRN_PLAN_DIVIDE_WAITED_MS 1000

struct cairn_plan_measured {
    size_t nodes; /* nodes with the attempt that answer requests, including this one */
    uint64_t store_bytes, store_us; /* time with at least one request under way */
    uint64_t peer_bytes, peer_us;
    uint64_t answers, shared;       /* answers to and from peers; those for bytes both had */
    uint64_t waited_ms;             /* all shared memory was held for peers that did not come */
    uint64_t asked_bytes, asked_us; /* of this version, from the request on, including waits */
};
enum cairn_plan_choice {
    CAIRN_PLAN_ALONE,     /* no other node to ask */
    CAIRN_PLAN_TRY,       /* dividing, not enough measured */
    CAIRN_PLAN_DIVIDE,    /* dividing, it pays */
    CAIRN_PLAN_NETWORK,   /* the network is the slower path */
    CAIRN_PLAN_NOT_COMMON /* the nodes want different bytes */
};
enum cairn_plan_choice cairn_plan_choose(const struct cairn_plan_measured *measured);
bool cairn_plan_divides(enum cairn_plan_choice choice);
const char *cairn_plan_choice_text(enum cairn_plan_choice choice);

struct cairn_plan_node {
    const char *name;   /* unique */
    const char *domain; /* failure domain; "": a domain of its own */
};
/* Name of the node's partner; NULL: it has none, or is not in `nodes`, which is sorted in place. */
const char *cairn_plan_partner(struct cairn_plan_node *nodes, size_t count, const char *name);
