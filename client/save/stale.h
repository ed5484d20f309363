/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stale: a save whose bytes do not follow the training.
 *
 * Why:     a framework that saves a cached state again and again loses every step since, and each
 *          of its saves is whole, durable and committed: nothing else in Cairn can see it.
 * Promise: 1   where at least half of the blocks that had changed from each save to the next, three
 *              saves long, are those of the save before, the save is stale: it is sealed as ever,
 *              its seal says so, and the first of a row of such saves is a warning of the session.
 *          2   blocks that are the same in some save (a frozen layer) are compared no more.
 * Limits:  blocks of 1 MiB in memory of the session; files are not compared. Five bytes a block.
 *          A save of another size begins the comparison anew.
 * Threads: by the session's lock.
 * Next:    client/save/stage.c, which calls it before the seal; client/save/late.c returns the
 *          warning.
 */
#pragma once

#include "client/save/save.h"

#define CAIRN_CLIENT_STALE_TEXT_BYTES 160

/* After the copy. ret_text: what is to be said of the save, or "". */
void cairn_client_stale_look(struct cairn_save *save, const uint32_t *blocks, size_t count,
                             char ret_text[CAIRN_CLIENT_STALE_TEXT_BYTES]);
void cairn_client_stale_release(struct cairn_client_stale *stale);
