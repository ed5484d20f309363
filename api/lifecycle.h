/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lifecycle: the states of a version as a table.
 *
 *     open --COMMIT--> committed --DELETE--> deleting --SWEPT--> gone
 *       \--GIVE_UP--> aborting --SWEPT--> gone
 *     open, aborting, gone --TAKE_OVER--> committed, when the store alone knew that it was
 *
 * Why:     one function moves a version and refuses any move that api/lifecycle.def does not list.
 * Promise: 1   cairn_state_after returns false for every pair that is not a row of the table.
 * Limits:  recorded, trashed, superseded and pinned are attributes of committed, not states.
 * Threads: stateless.
 * Next:    api/lifecycle.def.
 */
#pragma once

#include "common/base.h"

/* As catalogs keep them; a number that was ever released keeps its meaning. */
#define CAIRN_STATE_NUMBER_OPEN 0
#define CAIRN_STATE_NUMBER_COMMITTED 1
#define CAIRN_STATE_NUMBER_DELETING 2
#define CAIRN_STATE_NUMBER_ABORTING 3
#define CAIRN_STATE_NUMBER_GONE 4
enum cairn_state {
    CAIRN_STATE_OPEN = CAIRN_STATE_NUMBER_OPEN,
    CAIRN_STATE_COMMITTED = CAIRN_STATE_NUMBER_COMMITTED,
    CAIRN_STATE_DELETING = CAIRN_STATE_NUMBER_DELETING,
    CAIRN_STATE_ABORTING = CAIRN_STATE_NUMBER_ABORTING,
    CAIRN_STATE_GONE = CAIRN_STATE_NUMBER_GONE
};
enum cairn_event {
    CAIRN_EVENT_COMMIT,
    CAIRN_EVENT_GIVE_UP,
    CAIRN_EVENT_DELETE,
    CAIRN_EVENT_SWEPT,
    CAIRN_EVENT_TAKE_OVER,
};
bool cairn_state_after(enum cairn_state from, enum cairn_event event, enum cairn_state *ret);
const char *cairn_state_text(enum cairn_state state); /* "open", "committed", ... */
bool cairn_state_parse(struct cairn_view text, enum cairn_state *ret);
