/* SPDX-License-Identifier: Apache-2.0 */
/*
 * damage: records in the catalog which copies of a version are damaged.
 *
 * Why:     reads fall back to another copy and sizes look right, so without a record the last good
 *          copy could be removed after damage of the other one was seen.
 * Promise: 1   damage stays known to every server of the catalog, through restarts, until a full
 *              read of the copy finds none, or the copy is gone (damage.c, 4).
 * Limits:  one catalog read for each finding, and one write if the finding is new.
 * Threads: any.
 * Next:    server/copies/verify.c, server/reads/tier_reads.c; used by server/copies/demote.c.
 */
#pragma once

#include "server/server.h"

struct srv_damage {
    const char *version, *store;
    uint64_t objects;   /* damaged or missing ones */
    bool all;           /* `objects` is exact: every object was read; false: a lower bound */
    int64_t changed_ms; /* changed_ms of the copy's row when the check began */
};
void srv_damage_note(struct srv *server, const struct srv_damage *damage);

/* Counts damaged copies and describes the first; 0 and "" if none, or the catalog cannot be
 * read. */
#define SRV_DAMAGE_BYTES 600
uint64_t srv_damage_text(struct srv *server, char ret[SRV_DAMAGE_BYTES]);
