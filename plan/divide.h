/* SPDX-License-Identifier: Apache-2.0 */
/*
 * divide: which node reads what of a version that several nodes restore, whether that pays, and
 * which node keeps a copy of what another one has staged.
 *
 * Why:     a store gives so much in all; nodes that want the same bytes get them sooner when each
 *          reads its share once and passes it on. A partner's copy is worth something where what
 *          takes the node away (its host, rack, power) leaves the copy there.
 * Promise: 1   owner is the same on every node that knows the same names, whatever their order
 *              (rendezvous hashing); a node that comes or goes moves its own share alone.
 *          2   choose is a pure function of what was measured: nodes divide as long as nothing
 *              speaks against it, and no longer when the network is the slower way, or when the
 *              nodes turn out to want different bytes: by their answers, or because this node waits
 *              for others, for what it asked them or for them to fetch what it keeps, and nearly
 *              nothing was shared.
 *          3   the partner is a pure function of the nodes and their domains; their order does not
 *              matter. No node is its own partner, and where there is another domain the partner is
 *              in it.
 *          4   partners are balanced: where no domain has more than half of the nodes each of them
 *              is the partner of exactly one; else those outside of it share it evenly, to within
 *              one.
 * Limits:  rates of 2^53 bytes a second; a node alone has no partner.
 * Threads: stateless.
 * Next:    uploader/fetch/divide.c; server/nodes/node_calls.c tells the partner; docs/partner.md.
 */
#pragma once

#include "common/error.h"

uint64_t cairn_plan_node_hash(const char *node);
/* Of a piece of one version: any number that names it there. */
uint64_t cairn_plan_place_hash(const char *version, uint32_t shard, uint64_t piece);
/* How good a node is for a piece: the higher the better, and the same on every node. */
uint64_t cairn_plan_score(uint64_t node_hash, uint64_t place_hash);
/* The index of the node, of at least one, that reads a piece. */
size_t cairn_plan_owner(const uint64_t *node_hashes, size_t count, uint64_t place_hash);

#define CAIRN_PLAN_DIVIDE_MEASURED_BYTES (64 * CAIRN_MIB) /* before a rate counts */
#define CAIRN_PLAN_DIVIDE_ANSWERS_MIN 24                  /* before what is in common counts */
/* Half of what a cell is kept for others (uploader/fetch/inside.h): nodes of one attempt begin to
 * restore within less. */
#define CAIRN_PLAN_DIVIDE_WAITED_MS 1000

struct cairn_plan_measured {
    size_t nodes; /* that hold the attempt and can be asked, this one among them */
    uint64_t store_bytes, store_us; /* while at least one request was under way */
    uint64_t peer_bytes, peer_us;
    uint64_t answers, shared; /* of peers and to them, and those of bytes that others had, too */
    uint64_t waited_ms;       /* all memory that is shared was kept for others that did not come */
    uint64_t asked_bytes, asked_us; /* of this version, from the request on, with its waits */
};
enum cairn_plan_choice {
    CAIRN_PLAN_ALONE,     /* no other node can be asked */
    CAIRN_PLAN_TRY,       /* divided; too little is measured yet */
    CAIRN_PLAN_DIVIDE,    /* divided; it pays */
    CAIRN_PLAN_NETWORK,   /* the network is the slower way */
    CAIRN_PLAN_NOT_COMMON /* the nodes want different bytes */
};
enum cairn_plan_choice cairn_plan_choose(const struct cairn_plan_measured *measured);
bool cairn_plan_divides(enum cairn_plan_choice choice);
const char *cairn_plan_choice_text(enum cairn_plan_choice choice);

struct cairn_plan_node {
    const char *name;   /* no two alike */
    const char *domain; /* what fails together; "": it is a domain of its own */
};
/* The name of the partner of the node of that name; NULL: it has none, or is not among them.
 * `nodes` is sorted in place. */
const char *cairn_plan_partner(struct cairn_plan_node *nodes, size_t count, const char *name);
