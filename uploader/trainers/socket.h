/* SPDX-License-Identifier: Apache-2.0 */
/*
 * socket: the thread that talks to the trainers of this node.
 *
 * Why:     a trainer waits for begin and seal while its GPUs stand still; this thread never waits
 *          for a disk, a network or another trainer. A frame may have 65 MiB that are not of the
 *          budget, and everybody who may connect can begin one on each of a thousand connections.
 * Promise: U01  a broken frame ends that session alone; nothing it sent is believed afterwards.
 *          U02  descriptors are closed unless a message takes them.
 *          U03  only root, the uploader's own user and the listed ones may connect (SO_PEERCRED);
 *               another one is told so and cut off, unread; a peer that does not read is dropped at
 *               CAIRN_UP_OUT_BYTES_MAX or after CAIRN_UP_OUT_STALL_MS.
 *          1    a connection that mail.h ends for want of memory is logged; its trainer comes back
 *               and offers what it has (K07).
 *          U06  a socket whose name somebody deleted is made again within a second or two; sessions
 *               notice nothing.
 *          U07  what callers do wrong is said once a minute for each cause, with the number of
 *               times between (common/log.h).
 *          2    what comes from another thread for a connection that ended is dropped.
 *          3    a frame of up to CAIRN_UP_SMALL_FRAME_BYTES is read as it comes. No connection that
 *               has not said hello may begin a larger one.
 *          4    larger ones of one user take `bytes_max` together, by what they will have when they
 *               are whole. The next is not read before it fits, in the order of their beginning;
 *               one alone always fits. So two never wait for each other.
 *          5    a frame of which nothing comes in CAIRN_UP_FRAME_QUIET_LOOKS looks ends its
 *               connection, and so does one without a hello; one that waits for room does not.
 * Limits:  connections_max connections; bytes_max is an eighth of memory_budget, a whole frame at
 *          least and CAIRN_UP_FRAMES_BYTES_MAX at most.
 * Threads: one of its own runs everything here, and carries out uploader/mail.h in its order; while
 *          it sleeps, another may say what is little in its place (mail.h, U11). Looks are a second
 *          apart or more, counted while it runs: a machine that stood still ends nobody. new,
 *          start, stop: the main thread.
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
/* Listen; from here on trainers are heard. */
enum cairn_code cairn_up_socket_start(struct cairn_up_socket *socket,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Those that said hello; of the socket's thread. */
uint64_t cairn_up_socket_sessions(const struct cairn_up_socket *socket);
/* No new connections; the old ones go on. */
void cairn_up_socket_stop_accepting(struct cairn_up_socket *socket);
/* End the thread and all sessions; nobody reads the mail any more. NULL is allowed. */
void cairn_up_socket_stop(struct cairn_up_socket *socket);
void cairn_up_socket_free(struct cairn_up_socket *socket);

/* ---- frames that have not wholly arrived ---- */

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
