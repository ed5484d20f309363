/* SPDX-License-Identifier: Apache-2.0 */
/*
 * socket: the thread that talks to the trainers of this node.
 *
 * Why:     a trainer waits for begin and seal while its GPUs stand still; this thread never waits
 *          for a disk, a network or another trainer.
 * Promise: U01  a broken frame ends that session alone; nothing it sent is believed afterwards.
 *          U02  descriptors are closed unless a message takes them.
 *          U03  only root, the uploader's own user and the listed ones may connect (SO_PEERCRED);
 *               a peer that does not read is dropped at CAIRN_UP_OUT_BYTES_MAX or after
 *               CAIRN_UP_OUT_STALL_MS.
 *          U04  a message for which there is no memory ends its connection, which is logged; the
 *               trainer comes back and offers what it has (K07).
 *          K11  what comes from another thread for a connection that ended is dropped.
 * Limits:  connections_max connections.
 * Threads: one of its own runs everything here; post and call may be used by any thread and are
 *          carried out in their order (locked by uploader_mail).
 * Next:    uploader/trainers/session.h; api/frame.h; docs/socket.md.
 */
#pragma once

#include "api/frame.h"
#include "uploader/daemon.h"

#define CAIRN_UP_OUT_BYTES_MAX (64 * CAIRN_MIB)
#define CAIRN_UP_OUT_STALL_MS 30000

struct cairn_up_session;

enum cairn_code cairn_up_socket_new(struct cairn_up *up, struct cairn_up_socket **ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Listen; from here on trainers are heard. */
enum cairn_code cairn_up_socket_start(struct cairn_up_socket *socket,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* No new connections; the old ones go on. */
void cairn_up_socket_close_door(struct cairn_up_socket *socket);
/* End the thread and all sessions; mail is still taken, and dropped by free. NULL is allowed. */
void cairn_up_socket_stop(struct cairn_up_socket *socket);
void cairn_up_socket_free(struct cairn_up_socket *socket);

/* take_fds are duplicated by nobody: they are closed after they were sent. take_message NULL: there
 * was no memory to make it (U04). */
void cairn_up_socket_post(struct cairn_up_socket *socket, uint64_t conn, json_t *take_message);
void cairn_up_socket_post_fds(struct cairn_up_socket *socket, uint64_t conn, json_t *take_message,
                              const int *take_fds, size_t fd_count);
/* On the socket thread: run(owner, session), session NULL when that connection ended. The letter is
 * the caller's until run begins: what somebody waits for must not fail for want of memory. */
struct cairn_up_letter {
    struct cairn_up_letter *next;
    uint64_t conn;
    void (*run)(void *owner, struct cairn_up_session *session);
    void *owner;
};
void cairn_up_socket_call(struct cairn_up_socket *socket, uint64_t conn,
                          void (*run)(void *owner, struct cairn_up_session *session), void *owner,
                          struct cairn_up_letter *letter);
/* Answers: {t, id} with more fields already in take_message (NULL: none), or the error. */
void cairn_up_socket_answer(struct cairn_up_socket *socket, uint64_t conn, int64_t request,
                            const char *name, json_t *take_message);
void cairn_up_socket_refuse(struct cairn_up_socket *socket, uint64_t conn, int64_t request,
                            const struct cairn_error *why);
/* End the connection once what was posted before is out. */
void cairn_up_socket_hang_up(struct cairn_up_socket *socket, uint64_t conn);
