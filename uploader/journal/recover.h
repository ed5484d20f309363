/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recover: builds a restarted uploader's state from its journal.
 *
 * Why:     trainers continue unaware, or died too; what was staged must become durable if its bytes
 *          exist anywhere, and fail by name if not.
 * Promise: Q17  every shard of a sealed save is checked by HEAD, then by its parts; only when bytes
 *               are missing, the trainer's slab is awaited for `offer_wait`; then the upload is
 *               aborted and the save fails, naming node and rank.
 *          1    an unsealed save continues only if nothing of it was ever sent; otherwise it fails,
 *               since its objects may hold bytes of the first staging.
 *          2    `offer_wait` is counted in ticks of at most a second, so that an uploader suspended
 *               right after its start does not give up before trainers can connect.
 *          3    an entry with an unreadable record is kept with the reason, for the server.
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
/* The callback of struct cairn_up_journal_options; owner is the recovery. */
enum cairn_code cairn_up_recovery_replay(void *owner, const struct cairn_up_replayed *record,
                                         struct cairn_error *err) CAIRN_MUST_USE;

enum cairn_code cairn_up_recovery_build(struct cairn_up_recovery *recovery, struct cairn_up *up,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Ends the wait for offers when offer_wait is over; cheap. */
void cairn_up_recovery_tick(struct cairn_up *up);
