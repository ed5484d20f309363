/* SPDX-License-Identifier: Apache-2.0 */
/*
 * records: documents in the store that decide what counts: committed.json, marks, attempt records.
 *
 * Why:     until a version's record is in the store, only the catalog knows that it is committed;
 *          if the catalog is lost before, nobody may have relied on the version. A reader of the
 *          store without its server must not take a version for the newest that is in the trash,
 *          superseded by a later save, or left behind by a resume.
 * Promise: Q24  a version is shown, resumed from and counted only once its record is in the store.
 *          Q52  the transaction that makes a version recorded also supersedes older versions, so
 *               `latest` never goes back while a record is late.
 *          1    while a version is in the trash its trashed.json exists: it is put before the row
 *               changes and deleted before the row changes back. If they differ after a crash, or
 *               under a restored catalog, the row follows the store.
 *          2    a version that a save supersedes by `on_exists` has a mark of the save's attempt
 *               before the save's row says recorded.
 *          3    marks are only in the main store and outlive the copy there: they belong to the
 *               version and are deleted with it.
 *          Q5   an attempt's record is in the store before its call is answered, and so is that of
 *               every earlier attempt of the run, even if its job died unanswered. Its copy is,
 *               too, unless the store takes longer than two seconds: then each sweep retries, also
 *               after a restart.
 * Limits:  1,000 older versions of one step; one record in memory at a time.
 * Threads: any that owns the worker; concurrent writers of one record write the same bytes.
 * Next:    server/commit/commit.c, server/intake/attempt_calls.c, server/intake/verdicts.c,
 *          server/recovery/compare.c; docs/format.md.
 */
#pragma once

#include "server/guard/jobs.h"
#include "server/guard/stores.h"
#include "server/ledger/versions.h"

/* Puts the record of a committed version, marks it recorded and wakes its waiters. */
enum cairn_code srv_record_write(struct srv *server, struct cairn_store_worker *worker,
                                 const struct srv_version *version, struct srv_lease *lease,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* Drops the rows of shards, ranks and replica groups of a recorded version, after its waiters were
 * woken: with a thousand shards that is a third of a commit. A failure is logged: the sweep, or the
 * removal of the version, drops the rows. */
void srv_record_drop_rows(struct srv *server, const struct srv_version *version);
/* Q52: writes every missing record of this run; fails at the first that cannot be written. */
enum cairn_code srv_record_write_missing(struct srv *server, struct cairn_store_worker *worker,
                                         const struct cairn_run_name *name,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* In a transaction: supersedes older versions of the step, if the version does so. A save that
 * began later stays, since it supersedes this one. */
enum cairn_code srv_record_supersede(struct srv_tx *tx, const struct srv_version *version,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* The bytes of a committed version's record, a pure function of its row. */
enum cairn_code srv_record_text(const struct srv_version *version, struct cairn_buf *ret,
                                struct cairn_error *err) CAIRN_MUST_USE;

/* ---- marks beside committed.json ---- */

enum cairn_code srv_mark_trashed(struct cairn_store_worker *worker,
                                 const struct srv_version *version, bool trashed,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* After a change of the row, failed or not: makes the mark match it, whoever changes it
 * meanwhile. */
enum cairn_code srv_mark_settle(struct srv *server, struct cairn_store_worker *worker,
                                const char *id, struct cairn_error *err) CAIRN_MUST_USE;
/* Once, for a catalog older than marks: writes the marks of its trash, so that its rows do not look
 * undeleted. Not while an adopted store is ahead of the catalog. */
enum cairn_code srv_marks_write_missing(struct srv *server, struct cairn_store_worker *worker,
                                        struct srv_run_objects *objects,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Makes the rows of a run follow its store; objects: a complete listing. */
enum cairn_code srv_marks_follow(struct srv *server, const struct srv_run_objects *objects,
                                 struct cairn_error *err) CAIRN_MUST_USE;

/* ---- attempt records and their copies ---- */

/* Writes all missing ones of the run. Other content under a key freezes the run (Q36). */
enum cairn_code srv_attempt_records_write(struct srv *server, struct cairn_store_worker *worker,
                                          const struct cairn_run_name *name,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Writes late copies of one run. */
enum cairn_code srv_attempt_copies_write(struct srv *server, struct cairn_store_worker *worker,
                                         struct cairn_error *err) CAIRN_MUST_USE;
