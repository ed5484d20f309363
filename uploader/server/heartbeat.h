/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heartbeat: one report of this node and what the answer changes.
 *
 * Why:     liveness, progress and "nothing unsent" go one way, fences and aborts the other.
 * Promise: Q3   `unsent` of an attempt counts the saves whose begin, seal or fail the server has
 *               not answered.
 *          Q12  versions the answer names as over are over here at once; those that it names as
 *               open and that a rank has abandoned are failed (uploader/server/abandoned.h).
 * Limits:  as many versions as this node has open.
 * Threads: the heartbeat's thread.
 * Next:    uploader/server/watch.h.
 */
#pragma once

#include <stdbool.h>

struct cairn_up_watch;
/* last: the uploader stops; says so when it has nothing to report, and is waited for no more. */
void cairn_up_heartbeat(struct cairn_up_watch *watch, bool last);
