/* SPDX-License-Identifier: Apache-2.0 */
/*
 * records: objects beside the bytes that say what counts: committed.json, marks, and the records of
 * attempts.
 *
 * Why:     the catalog alone knows that a version is committed until its record is in the store; a
 *          catalog that is lost in between must not have been believed by anybody. A reader of the
 *          store without its server must not take for the newest a version that is in the trash,
 *          that a later save has superseded, or that a resume left behind.
 * Promise: Q24  a version is shown, resumed from and counted only once its record is in the store.
 *          Q52  what the version supersedes is superseded in the transaction that makes it
 *               recorded, so `latest` never goes back while a record is late.
 *          1    while a version is in the trash its trashed.json is there: it is put before the row
 *               changes and deleted before the row changes back. Where the two differ after a
 *               death, or under a catalog that was put back, the row follows the store.
 *          2    what a save supersedes by `on_exists` has a mark of its attempt before that save's
 *               row says recorded.
 *          3    marks are in the main store alone, and outlive the copy there: they are of the
 *               version, and go with it.
 *          Q5   an attempt's record is in the store before its call is answered; so is that of
 *               every earlier attempt of the run, also of one whose job died before its answer. Its
 *               copy is, too, unless the store does not take it within two seconds: then each sweep
 *               tries again, also after a restart.
 * Limits:  1,000 older versions of one step; one record in memory at a time.
 * Threads: any that owns the worker; two that write one record write the same bytes.
 * Next:    server/commit/commit.c, server/intake/attempt_calls.c, server/intake/verdicts.c,
 *          server/recovery/compare.c; docs/format.md.
 */
#pragma once

#include "server/guard/jobs.h"
#include "server/guard/stores.h"
#include "server/ledger/versions.h"
#include "server/server.h"

/* Of a committed version: puts the record, marks it recorded, wakes those that wait. */
enum cairn_code cairn_srv_record_write(struct cairn_srv *server, struct cairn_store_worker *worker,
                                       const struct cairn_srv_version *version,
                                       struct cairn_srv_lease *lease,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Of a version that has its record: drops its rows of shards, ranks and replica groups. Whoever
 * waits was told before, since of a thousand shards that is a third of a commit. A failure is
 * logged: the sweep drops what is left, and a version that is removed loses its rows with it. */
void cairn_srv_record_drop_rows(struct cairn_srv *server, const struct cairn_srv_version *version);
/* Q52: every record of this run that is missing; the first that cannot be written fails. */
enum cairn_code cairn_srv_record_write_missing(struct cairn_srv *server,
                                               struct cairn_store_worker *worker,
                                               const struct cairn_run_name *name,
                                               struct cairn_error *err) CAIRN_MUST_USE;
/* Inside a transaction, where the version supersedes: the older ones of its step. A save that was
 * begun later stays, since it is this one that it superseded. */
enum cairn_code cairn_srv_record_supersede(struct cairn_srv_tx *tx,
                                           const struct cairn_srv_version *version,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* The bytes of the record of a committed version: a pure function of its row. */
enum cairn_code cairn_srv_record_text(const struct cairn_srv_version *version,
                                      struct cairn_buf *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;

/* ---- marks beside committed.json ---- */

enum cairn_code cairn_srv_mark_trashed(struct cairn_store_worker *worker,
                                       const struct cairn_srv_version *version, bool trashed,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* After the row changed, or did not: the mark is made what the row says, whoever changes it
 * meanwhile. */
enum cairn_code cairn_srv_mark_settle(struct cairn_srv *server, struct cairn_store_worker *worker,
                                      const char *id, struct cairn_error *err) CAIRN_MUST_USE;
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

/* ---- attempt records and their copies ---- */

/* All of the run that are not there yet. Another content under a key freezes the run (Q36). */
enum cairn_code cairn_srv_attempt_records_write(struct cairn_srv *server,
                                                struct cairn_store_worker *worker,
                                                const struct cairn_run_name *name,
                                                struct cairn_error *err) CAIRN_MUST_USE;
/* Copies that were late, of one run. */
enum cairn_code cairn_srv_attempt_copies_write(struct cairn_srv *server,
                                               struct cairn_store_worker *worker,
                                               struct cairn_error *err) CAIRN_MUST_USE;
