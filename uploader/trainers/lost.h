/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lost: ranks whose process has ended while other ranks of their attempt go on.
 *
 * Why:     nobody can take a rank's place inside its attempt (Q2), so a version that it had not
 *          begun can never become whole; the others would wait for it until their own deadlines.
 * Promise: L1   within a second of the end of a process that had an attempt here, every open
 *               version that other ranks of this node take part in, and that it had not begun, is
 *               begun and failed in its name (Q12), so that all ranks hear why.
 *          L2   the end of a connection says nothing: the process may come back. The kernel is
 *               asked about the process itself.
 *          Q40  the server decides: against a commit this fail loses as any other.
 * Limits:  a process that ended after its `bye`, or that this uploader cannot see (another PID
 *          namespace), is not noticed; neither is one that had not opened its attempt, whose place
 *          is still free. Nodes where no other rank saves are silent about it.
 * Threads: _locked: uploader_state is held; tick: the main thread.
 * Next:    uploader/trainers/session.h, uploader/save.h.
 */
#pragma once

#include <sys/types.h>

#include "common/json.h"
#include "uploader/attempt.h"

/* A descriptor that becomes readable with the end of that process; -1: it cannot be seen. */
int cairn_up_lost_watch(pid_t pid);
/* Its connection ended without a `bye`. Takes over one use of the attempt, and the descriptor. */
void cairn_up_lost_add_locked(struct cairn_up *up, struct cairn_up_attempt *take_attempt,
                              uint32_t rank, int take_process);
/* The rank is connected again. */
void cairn_up_lost_back_locked(struct cairn_up *up, const struct cairn_up_attempt *attempt,
                               uint32_t rank);
/* Ranks of that attempt whose process has ended (Q54), for the server; a new array. */
json_t *cairn_up_lost_ranks_locked(struct cairn_up *up, const struct cairn_up_attempt *attempt);
/* Looks at the processes and fails what they left; cheap when there are none. */
void cairn_up_lost_tick(struct cairn_up *up);
void cairn_up_lost_free(struct cairn_up *up);
