/* SPDX-License-Identifier: Apache-2.0 */
/*
 * making: frames that have not wholly arrived, and how much memory they may take.
 *
 * Why:     a frame may have 65 MiB, its memory is not of the budget, and everybody who may connect
 *          can begin one on each of a thousand connections.
 * Promise: 1   a frame of up to CAIRN_UP_SMALL_FRAME_BYTES is read as it comes. No connection that
 *              has not said hello may begin a larger one.
 *          2   larger ones of one user take `bytes_max` together, by what they will have when they
 *              are whole. The next is not read before it fits, in the order of their beginning; one
 *              alone always fits. So two never wait for each other.
 *          3   a frame of which nothing comes in CAIRN_UP_FRAME_QUIET_LOOKS looks ends its
 *              connection, and so does one without a hello; one that waits for room does not.
 * Limits:  bytes_max is an eighth of memory_budget, a whole frame at least and
 *          CAIRN_UP_FRAMES_BYTES_MAX at most.
 * Threads: one owner, the socket's thread. A look is a second apart or more, counted while that
 *          thread runs: a machine that stood still ends nobody.
 * Next:    uploader/trainers/socket.c.
 */
#pragma once

#include <sys/types.h>

#include "api/wire/frame.h"

#define CAIRN_UP_SMALL_FRAME_BYTES (64 * CAIRN_KIB)
#define CAIRN_UP_FRAMES_BYTES_MAX (512 * CAIRN_MIB)
#define CAIRN_UP_FRAME_QUIET_LOOKS 30

struct cairn_up_making { /* of one connection */
    struct cairn_up_making *next;
    void *owner;
    uid_t uid;
    uint64_t reserved_bytes; /* of a large frame that is being read */
    uint64_t wanted_bytes;   /* of one that waits; 0: it does not */
    uint64_t turn;
    uint32_t quiet_looks;
};
struct cairn_up_makings {
    struct cairn_up_making *first;
    uint64_t bytes_max, turns;
};
void cairn_up_makings_init(struct cairn_up_makings *makings, uint64_t budget_bytes);
void cairn_up_making_add(struct cairn_up_makings *makings, struct cairn_up_making *making,
                         uid_t uid, void *owner);
void cairn_up_making_remove(struct cairn_up_makings *makings, struct cairn_up_making *making);
/* A frame of so many bytes may be read. False: it waits for its turn. */
bool cairn_up_making_begin(struct cairn_up_makings *makings, struct cairn_up_making *making,
                           uint64_t frame_bytes);
/* It was carried out. */
void cairn_up_making_end(struct cairn_up_making *making);
/* One that waited and may be read now; NULL: there is none. */
struct cairn_up_making *cairn_up_making_next(struct cairn_up_makings *makings);
/* True: nothing came for too long. under_way: a frame has begun, or hello is awaited. */
bool cairn_up_making_look(struct cairn_up_making *making, bool under_way);
