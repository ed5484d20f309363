/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch: polls the server for the ends of versions, and reports that this node lives.
 *
 * Why:     a trainer wants to know within moments that a checkpoint is committed; the server wants
 *          to know which nodes still work, and says in return what was fenced or given up.
 * Promise: 1    a heartbeat every `heartbeat`, at once when asked (an attempt call waits for it,
 *               Q3), on a connection of its own, so that nothing else delays it.
 *          2    versions of which this node has told everything are waited for by long polls, as
 *               many at a time as there are watchers; with more of them they take turns.
 *          Q19  a version that the server calls unknown, or a catalog of another generation, makes
 *               everything be told again, after a fresh look at every object.
 * Limits:  CAIRN_UP_WATCHERS threads and one for the heartbeat.
 * Threads: its own; poke and hurry may be called by any.
 * Next:    uploader/server/outcome.h.
 */
#pragma once

#include "uploader/up.h"

#define CAIRN_UP_WATCHERS 4

enum cairn_code cairn_up_watch_new(struct cairn_up *up, struct cairn_up_watch **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_watch_start(struct cairn_up_watch *watch,
                                     struct cairn_error *err) CAIRN_MUST_USE;
void cairn_up_watch_stop(struct cairn_up_watch *watch);
void cairn_up_watch_free(struct cairn_up_watch *watch);
/* Something may be whole at the server now. */
void cairn_up_watch_poke(struct cairn_up_watch *watch);
/* The next heartbeat is due now. */
void cairn_up_watch_beat(struct cairn_up_watch *watch);
/* Heartbeats come quickly while any attempt call of this node is under way. */
void cairn_up_watch_hurry(struct cairn_up_watch *watch, bool begins);
