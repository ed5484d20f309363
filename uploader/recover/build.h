/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build: saves and rights out of what a restart has replayed.
 *
 * Why:     reading records and judging what they come to are different work.
 * Promise: recover.h#1 and Q17 are kept here.
 * Limits:  the journal's live entries.
 * Threads: build before any thread runs; tick from the main thread.
 * Next:    uploader/recover/recover.h.
 */
#pragma once

#include "uploader/recover/recover.h"

/* Make saves and rights of what was replayed. */
enum cairn_code cairn_up_recovery_build(struct cairn_up_recovery *recovery, struct cairn_up *up,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Ends the wait for offers when its time has come; cheap. */
void cairn_up_recovery_tick(struct cairn_up *up);
