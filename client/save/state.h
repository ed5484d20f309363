/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state: the life of a save in libcairn, as a table.
 *
 *     counted -> copying -> staged -> committed
 *                    \        /  \
 *                     copied      failed <-> cancelled
 *
 * Why:     the caller, the session's thread and the uploader each move a save; one table says what
 *          each of them may do to it.
 * Promise: 1   move changes a phase only by a row of client/save/state.def.
 *          2   a milestone that was reached stays reached, also when the save fails afterwards.
 * Limits:  none of its own.
 * Threads: the caller's; libcairn holds the session's lock.
 * Next:    client/save/save.h.
 */
#pragma once

#include "common/base.h"

enum cairn_client_phase {
#define PHASE(name, why) CAIRN_CLIENT_PHASE_##name,
#include "client/save/state.def"
#undef PHASE
};
enum cairn_client_event {
#define EVENT(name, why) CAIRN_CLIENT_EVENT_##name,
#include "client/save/state.def"
#undef EVENT
};
enum cairn_client_reached { /* as enum cairn_milestone */
                            CAIRN_CLIENT_REACHED_NOTHING,
                            CAIRN_CLIENT_REACHED_STAGED,
                            CAIRN_CLIENT_REACHED_DURABLE,
                            CAIRN_CLIENT_REACHED_COMMITTED
};
struct cairn_client_save_state {
    enum cairn_client_phase phase;
    enum cairn_client_reached reached;
};
/* False: nothing changed. */
bool cairn_client_save_state_move(struct cairn_client_save_state *save,
                                  enum cairn_client_event event);
/* Committed, failed or cancelled. */
bool cairn_client_save_state_is_over(const struct cairn_client_save_state *save);
/* An uploader holds its seal, and not every shard is durable yet. */
bool cairn_client_save_state_is_unsent(const struct cairn_client_save_state *save);
