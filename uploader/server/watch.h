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
 *          Q3   `unsent` of an attempt counts the saves whose begin, seal or fail the server has
 *               not answered.
 *          Q19  a version that the server calls unknown, or a catalog of another generation, makes
 *               everything be told again, after a fresh look at every object.
 *          Q12  a version that two answers to heartbeats in a row call open, whose (step, n) a rank
 *               of its attempt has counted, and of which this node has no save of that rank, is
 *               failed for that rank: a backup of the catalog that is put back forgets the fail
 *               that closed the save here, and its version would wait for this rank until it is a
 *               day old. The second answer was asked for after the first was taken in, so that an
 *               end which overtook one of them is not told twice. Nothing is concluded of a step
 *               that the rank has not counted: steps come in any order.
 * Limits:  CAIRN_UP_WATCHERS threads and one for the heartbeat; CAIRN_UP_MISSED_MAX abandoned
 *          versions at a time. A server that does not say step and n of what is open is not
 *          answered.
 * Threads: its own; poke, beat and hurry may be called by any. Missed: the heartbeat's thread.
 * Next:    uploader/server/calls.h; uploader/saves/ranks.h has the counts.
 */
#pragma once

#include "common/json.h"
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

/* The fail of a begin that a rank has abandoned could not be journaled. */
void cairn_up_abandoned_unreported(uint64_t step, uint32_t n, const struct cairn_error *why);
