/* SPDX-License-Identifier: Apache-2.0 */
/*
 * saves: what several handlers of one save share.
 *
 * Why:     begin, registration, fail and abort all end in "the version changed; see whether it is
 *          whole now, and tell who waits".
 * Promise: S1  a version that became whole is handed to the commit worker after the transaction
 *              that made it whole, never before.
 *          Q40 give-up and commit are decided by one transaction; whoever loses is told.
 * Limits:  -
 * Threads: any pool thread.
 * Next:    begin.c, register.c and verdicts.c beside this file; server/jobs/commit.c.
 */
#pragma once

#include "server/request.h"
#include "server/catalog/versions.h"

/* The version that a write's path names: by id, of this run. */
enum cairn_code cairn_srv_save_version(struct cairn_srv_tx *tx,
                                       const struct cairn_srv_request *request,
                                       struct cairn_srv_version *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* A grant that may still write to this version: newest attempt (Q6), and the version's own. */
enum cairn_code cairn_srv_save_admit(struct cairn_srv_tx *tx, const struct cairn_grant *grant,
                                     const struct cairn_srv_version *version,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* After the transaction: wake who waits for this version or its run. */
void cairn_srv_save_changed(struct cairn_srv *server, const struct cairn_srv_version *version);
