/* SPDX-License-Identifier: Apache-2.0 */
/*
 * marks: objects beside committed versions that say that those do not count.
 *
 * Why:     a reader of the store without its server must not take for the newest a version that is
 *          in the trash, or that a later save of the same step has superseded.
 * Promise: 1   while a version is in the trash its trashed.json is there: it is put before the row
 *              changes and deleted before the row changes back. Where the two differ after a
 *              death, or under a catalog that was put back, the row follows the store.
 *          2   what a save supersedes by `on_exists` has a mark of its attempt before that save's
 *              row says recorded.
 *          3   marks are in the main store alone, and outlive the copy there: they are of the
 *              version, and go with it.
 * Limits:  1,000 older versions of one step.
 * Threads: any that owns the worker.
 * Next:    server/intake/verdicts.c, server/recovery/compare.c; docs/format.md.
 */
#pragma once

#include "server/guard/run_objects.h"
#include "server/ledger/versions.h"
#include "server/server.h"

enum cairn_code cairn_srv_mark_trashed(struct cairn_store_worker *worker,
                                       const struct cairn_srv_version *version, bool trashed,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* After the row changed, or did not: the mark is made what the row says, whoever changes it
 * meanwhile. */
enum cairn_code cairn_srv_mark_settle(struct cairn_srv *server, struct cairn_store_worker *worker,
                                      const char *id, struct cairn_error *err) CAIRN_MUST_USE;
/* Of what a committed version supersedes, if it does. */
enum cairn_code cairn_srv_mark_superseded(struct cairn_srv *server,
                                          struct cairn_store_worker *worker,
                                          const struct cairn_srv_version *version,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Once in the life of a catalog that is older than marks: those of its trash are written, so that
 * the rows are not taken for undeleted. Not while a store is adopted that is ahead of it. */
enum cairn_code cairn_srv_marks_write_missing(struct cairn_srv *server,
                                              struct cairn_store_worker *worker,
                                              struct cairn_srv_run_objects *objects,
                                              struct cairn_error *err) CAIRN_MUST_USE;
/* The rows of a run after what its store says; objects were listed whole. */
enum cairn_code cairn_srv_marks_follow(struct cairn_srv *server,
                                       const struct cairn_srv_run_objects *objects,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Inside a transaction: one version's row. */
enum cairn_code cairn_srv_mark_take(struct cairn_srv_tx *tx, const struct cairn_srv_seen *seen,
                                    struct cairn_error *err) CAIRN_MUST_USE;
