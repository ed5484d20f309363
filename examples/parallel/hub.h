/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hub: communication within a group of ranks, through pipes to their parent process.
 *
 * Why:     the example needs no network library; one central process suffices to sum gradients and
 *          gather weights.
 * Promise: 1   reduce gives each member the sums over its group; gather gives each the parts of its
 *              group, by member.
 * Limits:  every rank makes the same calls in the same order.
 * Threads: one per process.
 * Next:    job.c.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct hub_rank { /* the rank's side */
    int in, out;
};
/* Returns 0 on success. values: `count` inputs, replaced by the sums. */
int hub_reduce(const struct hub_rank *hub, float *values, uint64_t count);
/* all: the group's `total` values; this rank's own are at all + start. */
int hub_gather(const struct hub_rank *hub, float *all, uint64_t total, uint64_t start,
               uint64_t count);

struct hub_member { /* the hub's side */
    uint32_t group, member;
    int in, out;
};
/* Serves `rounds` pairs of reduce and gather; 0: every rank got all. */
int hub_serve(const struct hub_member *ranks, uint32_t rank_count, uint64_t rounds,
              uint64_t elements);
