/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compare: the catalog against the store, run by run, before anything is said or done about a run.
 *
 * Why:     a backup of the catalog that is put back looks like a good catalog: it answers with an
 *          old `latest`, and in time it deletes what was acknowledged after it (V39).
 * Promise: Q35  in the life of a server a run is compared before the first answer about it and
 *               before the first sweep in it: the newest attempt record, and every committed.json,
 *               of which the catalog must know. What is newer in the store freezes that run (Q36).
 *          1   the store is read first and the catalog after it, so that what goes on meanwhile
 *              never looks like a catalog that is behind.
 *               A version whose record is in the store and not in its row is recorded first: a
 *               reader may have been told of it, so `latest` must not begin below it.
 *          2   a record that is no record of this run's, or has no manifest, freezes nothing by
 *              being there; an attempt record that cannot be read does, since its number is taken.
 * Limits:  two listings of a run's prefix; where keys may not list, a HEAD of the next attempt.
 * Threads: any; one thread at a time compares a run, the others get `busy`.
 * Next:    server/guard/identity.h, server/recovery/reconcile.h.
 */
#pragma once

#include "server/ledger/versions.h"
#include "server/server.h"

struct cairn_srv_compared;
enum cairn_code cairn_srv_compared_new(struct cairn_srv_compared **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_compared_free(struct cairn_srv_compared *compared); /* NULL is fine */

/* CAIRN_OK: compared now or before. *ret_busy: another thread is at it, nothing is known yet.
 * CAIRN_CATALOG_BEHIND: the run was found to be ahead, and is frozen. */
enum cairn_code cairn_srv_compare(struct cairn_srv *server, struct cairn_store_worker *worker,
                                  const struct cairn_run_name *name, bool *ret_busy,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Was it compared in this life of the server, with whatever end? */
bool cairn_srv_is_compared(struct cairn_srv *server, const struct cairn_run_name *name);
/* Every run of the catalog that was not compared yet. One that was found ahead is no failure. */
enum cairn_code cairn_srv_compare_all(struct cairn_srv *server, struct cairn_store_worker *worker,
                                      bool *ret_busy, struct cairn_error *err) CAIRN_MUST_USE;
