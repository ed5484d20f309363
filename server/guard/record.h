/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record: committed.json, and what takes effect with it.
 *
 * Why:     the catalog alone knows that a version is committed until its record is in the store; a
 *          catalog that is lost in between must not have been believed by anybody.
 * Promise: Q24  a version is shown, resumed from and counted only once its record is in the store.
 *          Q52  what the version supersedes is superseded in the transaction that makes it
 *               recorded, so `latest` never goes back while a record is late.
 * Limits:  -
 * Threads: any that owns the worker; two that write one record write the same bytes.
 * Next:    server/commit/commit.c, server/intake/attempt_calls.c.
 */
#pragma once

#include "server/guard/lease.h"
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
