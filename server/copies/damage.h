/* SPDX-License-Identifier: Apache-2.0 */
/*
 * damage: what is found to be wrong with a copy of a version is kept with it.
 *
 * Why:     reads fall back and sizes look right, so the last good copy could be removed though
 *          somebody had just seen that the other one is damaged.
 * Promise: 1   damage that was found stays known to every server of the catalog, through restarts,
 *              until all of the copy was read and is right, or the copy is gone (damage.c, 4).
 * Limits:  a look at the catalog for each finding, and a change where it is news.
 * Threads: any.
 * Next:    server/copies/verify.c, server/reads/tier_reads.c; server/copies/demote.c heeds it.
 */
#pragma once

#include "server/server.h"

struct cairn_srv_damage {
    const char *version, *store;
    uint64_t objects;   /* that are damaged or missing */
    bool all;           /* every object was read: it is so many; else at least so many */
    int64_t changed_ms; /* of the copy's row when the look began */
};
void cairn_srv_damage_note(struct cairn_srv *server, const struct cairn_srv_damage *damage);

/* How many copies are known to be damaged, and the first of them in words; 0 and "" where none is,
 * or where the catalog cannot be read. */
#define CAIRN_SRV_DAMAGE_BYTES 600
uint64_t cairn_srv_damage_text(struct cairn_srv *server, char ret[CAIRN_SRV_DAMAGE_BYTES]);
