/* SPDX-License-Identifier: Apache-2.0 */
/*
 * socket: the thread that talks to the trainers of this node.
 *
 * Why:     a trainer waits for begin and seal while its GPUs stand still; this thread never waits
 *          for a disk, a network or another trainer.
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
 * Limits:  connections_max connections.
 * Threads: one of its own runs everything here, and carries out uploader/mail.h in its order; while
 *          it sleeps, another may say what is little in its place (mail.h, U11). The functions
 *          below are the main thread's.
 * Next:    uploader/trainers/session.h; api/wire/frame.h; docs/socket.md.
 */
#pragma once

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
