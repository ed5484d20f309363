/* SPDX-License-Identifier: Apache-2.0 */
/*
 * history: which committed version a reference means, by what the store alone says.
 *
 * Why:     with the server down the same version must come back that the server would give; what
 *          counts is told by attempt records and marks, not by the highest step.
 * Promise: 1   latest and a step mean what the server means (Q25): superseded and revived versions
 *              by replaying the attempts, what is in the trash left out.
 *          2   a version id needs its own objects alone.
 *          3   an attempt's record that is lost is read from its copy; where both are lost, that
 *              is said on standard error, with what may be wrong about the answer.
 *          4   damage of what would be the answer is CAIRN_CORRUPT, never an older answer.
 *          5   a list shows of committed versions what the server's shows.
 * Limits:  1,000,000 versions and attempts of a run.
 * Threads: one owner of the worker.
 * Next:    cli/source.c reads what was found; docs/format.md has the same as text.
 */
#pragma once

#include "api/documents/committed.h"
#include "api/documents/records.h"
#include "cli/ref.h"
#include "store/store.h"

/* damaged_too: also a version whose record or manifest is damaged or missing, to look at it; else
 * that is CAIRN_CORRUPT, or CAIRN_NOT_COMMITTED where a version id has no record. */
enum cairn_code cairn_cli_history_find(struct cairn_store_worker *worker,
                                       const struct cairn_cli_ref *ref, bool damaged_too,
                                       struct cairn_version_place *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;

/* One committed version of a run. */
struct cairn_cli_history_item {
    struct cairn_version_place place;
    struct cairn_record record; /* of a damaged one what is known of it */
    uint64_t bytes;             /* of its shards, as they are listed */
    bool latest, superseded, trashed;
    bool damaged; /* its committed.json is no record of it */
    bool newer;   /* a newer release wrote its committed.json */
};
/* All of them, by attempt, step and n, the highest first; *ret is the caller's to free.
 * CAIRN_NOT_FOUND: there is no such run in the store. *ret_attempt: the newest attempt that the
 * store knows. */
enum cairn_code cairn_cli_history_list(struct cairn_store_worker *worker,
                                       const struct cairn_run_name *name,
                                       struct cairn_cli_history_item **ret, size_t *ret_count,
                                       uint64_t *ret_attempt,
                                       struct cairn_error *err) CAIRN_MUST_USE;
