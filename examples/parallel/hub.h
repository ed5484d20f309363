/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hub: what the ranks of a group say to each other, through pipes to the process that made them.
 *
 * Why:     the example has no network library; one process in the middle is enough to add up
 *          gradients and to put weights together.
 * Promise: 1   reduce gives each member the sums over its group; gather gives each the parts of its
 *              group, by member.
 * Limits:  every rank makes the same calls in the same order.
 * Threads: one a process.
 * Next:    job.c.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct hub_rank { /* in the rank */
    int in, out;
};
/* 0: done. values: in and out, `count` of them. */
int hub_reduce(const struct hub_rank *hub, float *values, uint64_t count);
/* all: the group's `total` values, of which the own ones stand at all + start. */
int hub_gather(const struct hub_rank *hub, float *all, uint64_t total, uint64_t start,
               uint64_t count);

struct hub_member { /* of a rank, in the process in the middle */
    uint32_t group, member;
    int in, out;
};
/* Serves `rounds` times a reduce and a gather; 0: all ranks had theirs. */
int hub_serve(const struct hub_member *ranks, uint32_t rank_count, uint64_t rounds,
              uint64_t elements);
