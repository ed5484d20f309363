/* SPDX-License-Identifier: Apache-2.0 */
/*
 * abandoned: versions that the server calls open and that a rank of this node will not finish.
 *
 * Why:     a save that a rank gave up is closed here once the server has taken the fail. A backup
 *          of the catalog that is put back forgets that fail, the other ranks tell the save again,
 *          and its version would wait for this rank until it is a day old.
 * Promise: Q12  a version that two answers to heartbeats in a row call open, whose (step, n) a rank
 *               of its attempt has counted, and of which this node has no save of that rank, is
 *               failed for that rank. The second answer was asked for after the first was taken in,
 *               so that an end which overtook one of them is not told twice.
 *          1    nothing is concluded of a step that the rank has not counted, whatever other steps
 *               it has begun since: steps come in any order.
 * Limits:  CAIRN_UP_MISSED_MAX at a time, the others with later answers. A server that does not say
 *          step and n of what is open is not answered.
 * Threads: the heartbeat's thread.
 * Next:    uploader/saves/attempt.h has the counts; client/session/process.h, where they come from.
 */
#pragma once

#include "common/json.h"
#include "uploader/up.h"

#define CAIRN_UP_MISSED_MAX 256

/* What the answer before has called open, and this node has not. */
struct cairn_up_missed {
    struct {
        char version[CAIRN_VERSION_ID_BYTES];
        uint32_t rank;
    } at[CAIRN_UP_MISSED_MAX];
    size_t count;
};
/* The fail of a begin that a rank has abandoned could not be journaled. */
void cairn_up_abandoned_unreported(uint64_t step, uint32_t n, const struct cairn_error *why);
/* versions: of the answer; NULL is allowed. */
void cairn_up_abandoned_look(struct cairn_up *up, const json_t *versions,
                             struct cairn_up_missed *missed);
