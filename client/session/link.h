/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link: one connection to the uploader: whole frames in, queued frames out.
 *
 * Why:     the socket cuts frames anywhere, and descriptors must leave with exactly their own
 *          frame; the session above handles whole messages.
 * Promise: 1   a queued frame is sent whole and in order, or the link ends.
 *          2   flush and next never wait; send and wait end at their deadline.
 * Limits:  as api/wire/frame.h.
 * Threads: one owner at a time: the thread that opens the session, then its I/O thread. A
 *          struct cairn_client_message belongs to whoever holds it.
 * Next:    client/session/session.h.
 */
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/queue.h>

#include "api/wire/frame.h"

struct cairn_client_message {
    STAILQ_ENTRY(cairn_client_message) place; /* in the session's queue */
    struct cairn_buf bytes;
    size_t sent;
    int fds[CAIRN_NET_FDS_MAX]; /* owned duplicates, closed once sent */
    size_t fd_count;
};
/* message is encoded and fds are duplicated, so the caller's may go. */
enum cairn_code cairn_client_message_new(const json_t *message, struct cairn_view blob,
                                         const int *fds, size_t fd_count,
                                         struct cairn_client_message **ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
void cairn_client_message_free(struct cairn_client_message *message);
CAIRN_DEFINE_AUTO_PTR(client_message);

struct cairn_client_link {
    int fd;                  /* -1: not connected */
    int pid;                 /* of the process that listens; 0: not known */
    bool interruptible;      /* wait ends with CAIRN_INTERRUPTED after a signal */
    const sigset_t *signals; /* blocked while it waits, instead of those of the thread; or NULL */
    struct cairn_frame_reader reader;
};
/* CAIRN_UPLOADER_GONE: nobody listens. *ret_left: the socket's file is there all the same, as a
 * killed uploader leaves it. */
enum cairn_code cairn_client_link_open(const char *path, struct cairn_client_link *ret,
                                       bool *ret_left, struct cairn_error *err) CAIRN_MUST_USE;
void cairn_client_link_close(struct cairn_client_link *link);
/* Send what the socket takes of one message; *ret_done when it went out whole. */
enum cairn_code cairn_client_link_flush(struct cairn_client_link *link,
                                        struct cairn_client_message *message, bool *ret_done,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* All of it, waiting for room up to deadline_ms: CAIRN_TIMEOUT, the rest may be sent later;
 * CAIRN_INTERRUPTED. */
enum cairn_code cairn_client_link_send(struct cairn_client_link *link,
                                       struct cairn_client_message *message, uint64_t deadline_ms,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* The next whole frame that is already here: *ret_ready. The peer's end is CAIRN_UPLOADER_GONE. */
enum cairn_code cairn_client_link_next(struct cairn_client_link *link, struct cairn_frame *ret,
                                       bool *ret_ready, struct cairn_error *err) CAIRN_MUST_USE;
/* The same, waiting up to deadline_ms on the mono clock: CAIRN_TIMEOUT; CAIRN_INTERRUPTED. */
enum cairn_code cairn_client_link_wait(struct cairn_client_link *link, uint64_t deadline_ms,
                                       struct cairn_frame *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* poll of one descriptor; signals: blocked for as long, instead of those of the thread, or NULL. */
int cairn_client_poll(struct pollfd *wanted, uint64_t ms, const sigset_t *signals);
/* What an answer says: CAIRN_OK when it is named `wanted`, the error that it carries, or
 * CAIRN_PROTOCOL. */
enum cairn_code cairn_client_answer_check(const struct cairn_frame *answer, const char *wanted,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Value of a text or integer field; NULL and false when it is not there. */
const char *cairn_client_text_of(const json_t *message, const char *field);
bool cairn_client_u64_of(const json_t *message, const char *field, uint64_t *ret);
