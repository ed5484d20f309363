/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: the handlers of requests that session.c calls in the other files of this room.
 *
 * Why:     a session finds the handler of a frame; each file has those of one subject. Descriptions
 *          and checksums of another process must fit slab, file and earlier messages.
 * Promise: 1    an error is answered to the request; CAIRN_PROTOCOL ends the session.
 *          U05  a refusal leaves the save unchanged.
 *          U10  files of one trainer leave descriptors to the others and to the uploader: beyond
 *               FILES_HELD of all trainers a file is closed and reopened when read, if possible.
 *          Q15  the checksums of all blocks are journaled with the seal.
 * Limits:  see docs/socket.md and uploader/saves/save.h.
 * Threads: the socket's thread alone.
 * Next:    staging.c, attempts.c, requests.c.
 */
#pragma once

#include "uploader/saves/save.h"
#include "uploader/trainers/session.h"

/* Reports pending problems to the rank; called at intervals. */
void cairn_up_session_tick(struct cairn_up_session *session);

struct cairn_up_request {
    int64_t id;
    struct cairn_frame *frame;
};
typedef enum cairn_code cairn_up_handler(struct cairn_up_session *session,
                                         const struct cairn_up_request *request,
                                         struct cairn_error *err);
cairn_up_handler cairn_up_on_attempt, cairn_up_on_slabs, cairn_up_on_offer, cairn_up_on_list,
    cairn_up_on_warmup, cairn_up_on_remove, cairn_up_on_annotate, cairn_up_on_alias,
    cairn_up_on_restore, cairn_up_on_window, cairn_up_on_read, cairn_up_on_release, cairn_up_on_why;
void cairn_up_session_drop_restores(struct cairn_up_session *session);

enum cairn_code cairn_up_save_stage(struct cairn_up *up, uint64_t conn, const json_t *message,
                                    struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_save_file(struct cairn_up *up, uint64_t conn, const json_t *message,
                                   int take_fd, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_save_stream(struct cairn_up *up, uint64_t conn, const json_t *message,
                                     struct cairn_view crcs, int take_fd,
                                     struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_save_staged(struct cairn_up *up, uint64_t conn, const json_t *message,
                                     struct cairn_view crcs,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Both answer the request once journaled (uploader/saves/save.h#1), unless they fail at once.
 * in_known: the table of the session's last seal, or NULL. */
enum cairn_code cairn_up_save_seal(struct cairn_up *up, const json_t *message,
                                   struct cairn_view table, struct cairn_up_table **in_known,
                                   struct cairn_up_reply reply,
                                   struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_save_fail(struct cairn_up *up, uint32_t number,
                                   const struct cairn_error *why, struct cairn_up_reply reply,
                                   struct cairn_error *err) CAIRN_MUST_USE;
