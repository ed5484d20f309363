/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame: the encoding of messages between a trainer and its uploader over the Unix socket.
 *
 * Why:     both sides must read the same bytes the same way, wherever reads cut them.
 * Promise: 1   a frame is u32le json_bytes, u32le blob_bytes, JSON object, blob. A reader returns
 *              whole frames only; anything else is CAIRN_PROTOCOL and ends that session alone.
 *          2   fds travel with the first byte of their frame and are handed out with it.
 *          3   unknown fields are ignored, unknown message names are CAIRN_PROTOCOL; hello and
 *              welcome negotiate the version.
 * Limits:  1 MiB of JSON, 64 MiB of blob, 8 fds a frame.
 * Threads: one owner per reader.
 * Next:    docs/socket.md for every message; uploader/trainers/session.h, client/session/session.h.
 */
#pragma once

#include "common/json.h"
#include "common/net.h"

#define CAIRN_FRAME_JSON_BYTES_MAX CAIRN_MIB
#define CAIRN_FRAME_BLOB_BYTES_MAX (64 * CAIRN_MIB)
#define CAIRN_SOCKET_VERSION_MIN 2
#define CAIRN_SOCKET_VERSION_MAX 9 /* docs/socket.md: changes of each version */

struct cairn_frame {
    json_t *message;  /* owned: object with "t" */
    const char *name; /* message["t"] */
    struct cairn_buf blob;
    int fds[CAIRN_NET_FDS_MAX];
    size_t fd_count; /* closed by release; set a slot to -1 to take its fd */
};
void cairn_frame_release(struct cairn_frame *frame);

struct cairn_frame_reader {
    struct cairn_buf bytes;
    size_t bytes_max; /* limit of one frame's bytes to read; 0: none */
    int fds[CAIRN_NET_FDS_MAX];
    size_t fd_count;
};
void cairn_frame_reader_release(struct cairn_frame_reader *reader);
/* Reads what the socket has, up to the end of the frame (frame.h#2). *ret_closed: the peer closed
 * between two frames. No bytes is CAIRN_OK. Poll level-triggered: fill, take the frame with next,
 * poll again. A close within a frame is CAIRN_PROTOCOL. */
enum cairn_code cairn_frame_fill(struct cairn_frame_reader *reader, int fd, bool *ret_closed,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* Size of the frame in progress; 0: not known yet. */
size_t cairn_frame_under_way(const struct cairn_frame_reader *reader);
enum cairn_code cairn_frame_next(struct cairn_frame_reader *reader, struct cairn_frame *ret,
                                 bool *ret_ready, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_frame_encode(const json_t *message, struct cairn_view blob,
                                   struct cairn_buf *ret, struct cairn_error *err) CAIRN_MUST_USE;
/* CAIRN_TOO_LARGE: no reader accepts a frame with this member. */
enum cairn_code cairn_frame_holds(const json_t *member, struct cairn_error *err) CAIRN_MUST_USE;
