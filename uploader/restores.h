/* SPDX-License-Identifier: Apache-2.0 */
/*
 * restores: the last restores of this node, for the server and the people who ask it.
 *
 * Why:     what was read of the store, and what need not be, is told with heartbeats, also of a
 *          restore that is over by then.
 * Promise: 1   one item a version; one that is noted again keeps its place and adds up.
 *          2   the item that was noted the longest time ago goes first.
 * Limits:  CAIRN_UP_RESTORES_TOLD.
 * Threads: any; locked by uploader_restores.
 * Next:    uploader/fetch/version.c notes, uploader/server/heartbeat.c tells.
 */
#pragma once

#include "api/documents/keys.h"
#include "common/lock.h"

#define CAIRN_UP_RESTORES_TOLD 16

struct cairn_up_restore_note {
    struct cairn_version_id version;
    char run[2 * CAIRN_NAME_BYTES_MAX + 2];
    const char *choice; /* static: how it is read, and why */
    /* since the note before */
    uint64_t store_bytes, shared_bytes, peer_bytes, memory_bytes;
    uint64_t noted; /* a number that rises; 0: a free place */
};
struct cairn_up_restores {
    struct cairn_lock lock; /* uploader_restores */
    struct {
        struct cairn_up_restore_note items[CAIRN_UP_RESTORES_TOLD];
        uint64_t noted;
    } locked;
};
void cairn_up_restores_init(struct cairn_up_restores *restores);
void cairn_up_restores_release(struct cairn_up_restores *restores);
void cairn_up_restores_note(struct cairn_up_restores *restores,
                            const struct cairn_up_restore_note *note);
/* Copies; how many there are. */
size_t cairn_up_restores_get(struct cairn_up_restores *restores,
                             struct cairn_up_restore_note ret[CAIRN_UP_RESTORES_TOLD]);
