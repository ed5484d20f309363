/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attempt_records: the record of an attempt in the store, written before its call is answered.
 *
 * Why:     a reader of the store alone finds out by these records which versions still count; one
 *          that is missing or damaged would silently bring back what a resume left behind.
 * Promise: Q5  an attempt's record is in the store before its call is answered; so is that of every
 *              earlier attempt of the run, also of one whose job died before its answer. Its copy
 *              is, too, unless the store does not take it within two seconds: then each sweep
 *              tries again, also after a restart.
 * Limits:  one record in memory at a time.
 * Threads: any that owns the worker; two that write one record write the same bytes.
 * Next:    server/intake/attempt_calls.c, docs/format.md.
 */
#pragma once

#include "server/server.h"

/* All of the run that are not there yet. Another content under a key freezes the run (Q36). */
enum cairn_code cairn_srv_attempt_records_write(struct cairn_srv *server,
                                                struct cairn_store_worker *worker,
                                                const struct cairn_run_name *name,
                                                struct cairn_error *err) CAIRN_MUST_USE;
/* Copies that were late, of one run. */
enum cairn_code cairn_srv_attempt_copies_write(struct cairn_srv *server,
                                               struct cairn_store_worker *worker,
                                               struct cairn_error *err) CAIRN_MUST_USE;
