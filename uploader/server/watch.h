/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch: polls the server for the ends of versions, and sends this node's heartbeat.
 *
 * Why:     a trainer wants to know within moments that a checkpoint is committed; the server wants
 *          to know which nodes still work, and answers which attempts and versions are over.
 * Promise: 1    a heartbeat every `heartbeat`, at once when requested (an attempt call waits for
 *               it, Q3), on its own connection, so that nothing else delays it.
 *          2    fully reported versions are awaited by long polls, one per watcher, or by turns.
 *          Q3   `unsent` of an attempt counts saves with an unanswered begin, seal or fail.
 *          Q19  a version that the server calls unknown, or a catalog of another generation, causes
 *               a new report of everything, after a HEAD of every object.
 *          Q12  an open version whose (step, n) a rank of its attempt has counted, without a save
 *               of that rank here, is failed for that rank once two consecutive heartbeats' answers
 *               list it: a restored backup of the catalog forgets the fail that closed the save
 *               here, and its version would wait for the rank until it is a day old. The second
 *               heartbeat is sent after the first answer was applied, so that an end that overtook
 *               one answer is not reported twice. Uncounted steps are ignored: steps come in any
 *               order.
 * Limits:  CAIRN_UP_WATCHERS threads and one for the heartbeat; CAIRN_UP_MISSED_MAX abandoned
 *          versions at a time. A server that omits step and n of open versions gets no fails.
 * Threads: its own; any thread calls poke, beat and hurry. Missed: the heartbeat's thread.
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
/* A version may now be whole at the server: poll again. */
void cairn_up_watch_poke(struct cairn_up_watch *watch);
/* Makes the next heartbeat due now. */
void cairn_up_watch_beat(struct cairn_up_watch *watch);
/* Speeds heartbeats up while an attempt call of this node is in flight. */
void cairn_up_watch_hurry(struct cairn_up_watch *watch, bool begins);

/* Logs that the fail of an abandoned begin could not be journaled. */
void cairn_up_abandoned_unreported(uint64_t step, uint32_t n, const struct cairn_error *why);
