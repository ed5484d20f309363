/* SPDX-License-Identifier: Apache-2.0 */
/*
 * begin: how a save comes to be, or is counted as one that never will; and what describes it to
 *        another node.
 *
 * Why:     the same begin may come twice, from a trainer that had no answer or from one that came
 *          back, and a rank may go on without one that the other ranks wait for. A partner compares
 *          what it keeps with the checksums of the staging, and may have to tell begin and seal and
 *          to send under the same tokens (Q57).
 * Promise: Q8   the journal alone answers; where it cannot take a begin, its rank is refused and
 *               the server hears from memory that the rank gives the save up.
 *          Q44  what this process knows is cancelled by a count, also after its seal.
 *          1    a description is `copy` of api/messages.def: begin, seal, table, tokens, checksums.
 * Limits:  see uploader/saves/save.h; CAIRN_UP_DESCRIPTION_BYTES_MAX.
 * Threads: any; uploader_state is taken, or held where the name says so.
 * Next:    uploader/trainers/session.c, uploader/server/watch.c; uploader/partner/keep.c.
 */
#pragma once

#include "uploader/saves/save.h"

/* What a begin says of its save, wherever it stands: frames begin and count, the journal's record.
 * Who begins (attempt, rank, connection) is left as it was; texts and objects are borrowed. */
enum cairn_code cairn_up_begin_read(const json_t *json, const char *pointer,
                                    struct cairn_up_begin *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;

/* Each answers the request itself when the journal has it (save.h#1), unless it fails at once. */
enum cairn_code cairn_up_save_begin(struct cairn_up *up, const struct cairn_up_begin *begin,
                                    struct cairn_up_reply reply,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* A begin that never came: begin and fail in one. */
enum cairn_code cairn_up_save_count(struct cairn_up *up, const struct cairn_up_begin *begin,
                                    const struct cairn_error *why, struct cairn_up_reply reply,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Q12: this node has nothing of that save, the server calls its version open, and the rank will not
 * begin it: a new save that fails. */
enum cairn_code cairn_up_save_abandoned_locked(struct cairn_up *up,
                                               const struct cairn_up_begin *begin,
                                               const struct cairn_error *why,
                                               struct cairn_error *err) CAIRN_MUST_USE;

#define CAIRN_UP_DESCRIPTION_BYTES_MAX (16 * CAIRN_MIB)

/* CAIRN_NOT_FOUND: not all of it is staged here, or it has files. */
enum cairn_code cairn_up_save_describe_locked(struct cairn_up *up, const struct cairn_up_save *save,
                                              struct cairn_buf *ret,
                                              struct cairn_error *err) CAIRN_MUST_USE;
