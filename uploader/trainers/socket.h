/* SPDX-License-Identifier: Apache-2.0 */
/*
 * socket: the thread that serves the trainers of this node.
 *
 * Why:     a trainer's GPUs idle during begin and seal, so this thread never waits for a disk, a
 *          network or another trainer. A frame may take 65 MiB outside the budget, and any local
 *          user allowed to connect can begin one on each of a thousand connections.
 * Promise: U01  a broken frame ends only its session; its later bytes are dropped.
 *          U02  descriptors are closed unless a message takes them.
 *          U03  only root, the uploader's own user and the listed ones may connect (SO_PEERCRED);
 *               others get an error and are cut off, unread; a peer that does not read is dropped
 *               at CAIRN_UP_OUT_BYTES_MAX or after CAIRN_UP_OUT_STALL_MS.
 *          1    an end for want of memory (mail.h) is logged; the trainer comes back (K07).
 *          U06  a deleted socket file is made again within a second or two, unnoticed by sessions.
 *          U07  callers' errors are logged once a minute a cause, with a count (common/log.h).
 *          2    mail of other threads for an ended connection is dropped.
 *          3    a frame of up to CAIRN_UP_SMALL_FRAME_BYTES is read as it comes, a larger one only
 *               after hello.
 *          4    larger frames of one user share `bytes_max` by their whole sizes. The next one
 *               waits, in order, until it fits; one alone always fits, so none waits for ever.
 *          5    a frame without bytes, or a connection without hello, for
 *               CAIRN_UP_FRAME_QUIET_LOOKS checks ends the connection, unless it waits for room.
 * Limits:  connections_max connections; bytes_max is an eighth of memory_budget, at least a whole
 *          frame and at most CAIRN_UP_FRAMES_BYTES_MAX.
 * Threads: its own thread runs everything here and carries out uploader/mail.h in order; while it
 *          sleeps, another may send in its place (mail.h, U11). Checks are a second apart or more
 *          of its running time: suspension ends no connection. new, start, stop: the main thread.
 * Next:    uploader/trainers/session.h; api/wire/frame.h; docs/socket.md.
 */
#pragma once

#include <sys/types.h>

#include "api/wire/frame.h"
#include "uploader/up.h"

#define CAIRN_UP_OUT_BYTES_MAX (64 * CAIRN_MIB)
#define CAIRN_UP_OUT_STALL_MS 30000

enum cairn_code cairn_up_socket_new(struct cairn_up *up, struct cairn_up_socket **ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_socket_start(struct cairn_up_socket *socket,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Sessions that said hello; called on the socket's thread. */
uint64_t cairn_up_socket_sessions(const struct cairn_up_socket *socket);
/* Accepts no new connections; open ones continue. */
void cairn_up_socket_stop_accepting(struct cairn_up_socket *socket);
/* Ends the thread and all sessions; mail is no longer read. NULL is allowed. */
void cairn_up_socket_stop(struct cairn_up_socket *socket);
void cairn_up_socket_free(struct cairn_up_socket *socket);

/* ---- incomplete frames ---- */

#define CAIRN_UP_SMALL_FRAME_BYTES (64 * CAIRN_KIB)
#define CAIRN_UP_FRAMES_BYTES_MAX (512 * CAIRN_MIB)
#define CAIRN_UP_FRAME_QUIET_LOOKS 30

struct cairn_up_making { /* of one connection */
    struct cairn_up_making *next;
    void *owner;
    uid_t uid;
    uint64_t reserved_bytes; /* of a large frame being read */
    uint64_t wanted_bytes;   /* of a frame that waits; 0: none */
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
/* True: a frame of so many bytes may be read now. False: it waits for its turn. */
bool cairn_up_making_begin(struct cairn_up_makings *makings, struct cairn_up_making *making,
                           uint64_t frame_bytes);
void cairn_up_making_end(struct cairn_up_making *making);
/* Returns a waiting frame that may be read now; NULL: none. */
struct cairn_up_making *cairn_up_making_next(struct cairn_up_makings *makings);
/* True: quiet for too long. under_way: a frame has begun, or hello is awaited. */
bool cairn_up_making_look(struct cairn_up_making *making, bool under_way);
