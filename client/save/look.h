/* SPDX-License-Identifier: Apache-2.0 */
/*
 * look: what this rank's list of a replica group has at some places of it.
 *
 * Why:     a begin says one digest of a list, of up to a million tensors; only where two lists
 *          differ is it worth asking which tensor it is (Q10).
 * Promise: 1   a list can be looked at until its save is forgotten, also when its caller has freed
 *              the split.
 * Limits:  CAIRN_PLAN_SPLIT_PARTS digests, or one name, a look.
 * Threads: keep and drop: the save's; look: whoever takes in events, with the session's lock.
 * Next:    plan/split.h; uploader/server/outbox.h asks for looks, server/versions/list_calls.h compares.
 */
#pragma once

#include "client/save/save.h"

/* Does the uploader ask for looks? */
bool cairn_client_can_look(struct cairn_session *session);
/* The splits of save->shares. */
enum cairn_code cairn_client_lists_keep(struct cairn_save *save,
                                        struct cairn_error *err) CAIRN_MUST_USE;
void cairn_client_lists_drop(struct cairn_save *save);
/* Answers the event `look`. */
void cairn_client_look(struct cairn_save *save, const json_t *message);
