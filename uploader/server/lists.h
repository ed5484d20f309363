/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lists: a save that ended because the lists of two ranks differ is told in which tensor.
 *
 * Why:     a begin says one digest of a list; which tensor of a million differs is found by looks
 *          at both lists (server/versions/list_calls.h), and then the save's end can name it.
 * Promise: 1   such an end waits until the tensor is known, or the server no longer says what is to
 *              be looked at; at the latest CAIRN_UP_LISTS_HOLD_MS after it last said something new.
 *              There are at most five looks (of 2^20 tensors 32 parts each time, and the name).
 *          2   every other end, and that of a save whose trainer is gone or of a release before, is
 *              told at once; so is one where the server cannot be asked.
 * Limits:  one request each CAIRN_UP_LISTS_EVERY_MS for each save that waits.
 * Threads: one of its own; hold and looked by any. What is held is guarded by uploader_state.
 * Next:    client/save/look.h answers.
 */
#pragma once

#include "api/wire/messages.h"
#include "uploader/saves/save.h"

#define CAIRN_UP_LISTS_HOLD_MS 10000
#define CAIRN_UP_LISTS_EVERY_MS 100

enum cairn_code cairn_up_lists_new(struct cairn_up *up, struct cairn_up_lists **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_lists_start(struct cairn_up_lists *lists,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* up->locked.ending is set. NULL is fine for both. */
void cairn_up_lists_stop(struct cairn_up_lists *lists);
void cairn_up_lists_free(struct cairn_up_lists *lists);
/* True: it ends later. */
bool cairn_up_lists_hold_locked(struct cairn_up *up, struct cairn_up_save *save,
                                enum cairn_up_end end, const struct cairn_error *why);
/* What a trainer says of its list. */
void cairn_up_lists_looked(struct cairn_up *up, uint64_t conn, const struct cairn_msg_looked *told);
