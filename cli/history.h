/* SPDX-License-Identifier: Apache-2.0 */
/*
 * history: which committed version a reference means, by what the store alone says.
 *
 * Why:     with the server down the same version must come back that the server would give; what
 *          counts is told by attempt records and marks, not by the highest step.
 * Promise: H1  latest and a step mean what the server means (Q25): superseded and revived versions
 *              by replaying the attempts, what is in the trash left out.
 *          H2  a version id needs its own objects alone.
 *          H3  an attempt's record that is lost is read from its copy; where both are lost, that
 *              is said on standard error, with what may be wrong about the answer.
 *          H4  damage of what would be the answer is CAIRN_CORRUPT, never an older answer.
 * Limits:  1,000,000 versions and attempts of a run.
 * Threads: one owner of the worker.
 * Next:    cli/source_store.c reads what was found; docs/format.md has the same as text.
 */
#pragma once

#include "api/manifest.h"
#include "cli/ref.h"
#include "store/store.h"

enum cairn_code cairn_cli_history_find(struct cairn_store_worker *worker,
                                       const struct cairn_cli_ref *ref, struct cairn_record *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Reads a small document; its key is named in the error. */
enum cairn_code cairn_cli_document_load(struct cairn_store_worker *worker, const char *key,
                                        size_t limit, struct cairn_buf *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
