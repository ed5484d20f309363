/* SPDX-License-Identifier: Apache-2.0 */
/*
 * other: rank 1 of two, on a node of its own, played by requests to the server.
 *
 * Why:     what rank 0 and its uploader owe the others is seen from the others' side: a version
 *          that waits for rank 0 stays open, or is given up with a reason.
 * Promise: 1   it belongs to the attempt that rank 0 opened as job-1 of llm/seven.
 * Limits:  it begins and never seals.
 * Threads: main thread only.
 * Next:    tests/uploader/world.h.
 */
#pragma once

#include "tests/uploader/world.h"

#define OTHER_RUN "/v1/runs/llm/seven"

struct world_other {
    struct cairn_up_world *world;
    char grant[600];
};
bool world_other_open(struct cairn_up_world *world, struct world_other *ret);
bool world_other_begin(const struct world_other *other, uint64_t step, char ret_version[48]);
/* Is it still open after some heartbeats? */
bool world_stays_open(struct cairn_up_world *world, const char *version);
/* It is given up, and its reason has both texts. */
void world_expect_aborted(struct cairn_up_world *world, const char *version, const char *reason,
                          const char *where);
