/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recover: what a restarted uploader makes of its journal.
 *
 * Why:     the trainers go on without noticing, or are gone too; what was staged must become
 *          durable if the bytes are anywhere, and fail by name if they are not.
 * Promise: Q17  every shard of a sealed save is looked at first (HEAD), then its parts; only when
 *               bytes are missing the trainer's slab is waited for, `offer_wait` long; then the
 *               upload is aborted and the save fails, naming node and rank.
 *          1    a save that was not sealed goes on only if nothing of it was ever sent; else it
 *               fails, since its objects may hold bytes of the first staging.
 *          2    `offer_wait` is counted in ticks of a second at most, so that an uploader that is
 *               suspended right after its start gives nothing up before it could be called.
 *          3    an entry with a record that cannot be read is kept, with the reason, so that the
 *               server hears of its save.
 * Limits:  the journal's live entries.
 * Threads: replay and build before any thread runs; tick from the main thread.
 * Next:    uploader/trainers/attempts.c; uploader/journal/journal.h.
 */
#pragma once

#include "uploader/journal/journal.h"
#include "uploader/up.h"

struct cairn_up_recovery;
enum cairn_code cairn_up_recovery_new(struct cairn_up_recovery **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_up_recovery_free(struct cairn_up_recovery *recovery);
/* For struct cairn_up_journal_options. owner is the recovery. */
enum cairn_code cairn_up_recovery_replay(void *owner, const struct cairn_up_replayed *record,
                                         struct cairn_error *err) CAIRN_MUST_USE;

/* Make saves and rights of what was replayed. */
enum cairn_code cairn_up_recovery_build(struct cairn_up_recovery *recovery, struct cairn_up *up,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Ends the wait for offers when its time has come; cheap. */
void cairn_up_recovery_tick(struct cairn_up *up);
