/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frozen: rows of runs of which the store knows more than the catalog, and of objects that a
 * reconcile has set aside.
 *
 * Why:     a run that is frozen stays so over restarts, until a reconcile has read the store.
 * Promise: Q36  a run has one row at most; what is done in a run looks for it in its own
 *               transaction.
 * Limits:  causes and notes of CAIRN_SRV_CAUSE_BYTES.
 * Threads: inside a transaction.
 * Next:    server/guard/freeze.h, server/recovery/recovery.h.
 */
#pragma once

#include "server/ledger/runs.h"

#define CAIRN_SRV_CAUSE_BYTES 400

enum cairn_code cairn_srv_frozen_count(struct cairn_srv_tx *tx, uint64_t *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* asked: its reconcile is requested with it. *ret_made is false when it was frozen already. */
enum cairn_code cairn_srv_frozen_put(struct cairn_srv_tx *tx, int64_t run_id, const char *cause,
                                     int64_t wall_ms, bool asked, bool *ret_made,
                                     struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_frozen_cause(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                                       bool *ret_frozen, char ret[CAIRN_SRV_CAUSE_BYTES],
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* *ret_ends: the reconcile of this frozen run was requested, so it ends by itself; *ret_due_tick as
 * in cairn_srv_frozen_set_note. */
enum cairn_code cairn_srv_frozen_ends(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                                      bool *ret_ends, uint64_t *ret_due_tick,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* CAIRN_CATALOG_BEHIND when it is frozen: for what must not slip in between. */
enum cairn_code cairn_srv_tx_run_thawed(struct cairn_srv_tx *tx, int64_t run_id,
                                        struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_tx_run_thawed_expect(struct cairn_srv_tx *tx, int64_t run_id,
                                               struct cairn_error *err) CAIRN_MUST_USE;
/* The one that is frozen for longest. */
enum cairn_code cairn_srv_frozen_first(struct cairn_srv_tx *tx, bool *ret_found,
                                       struct cairn_run_name *ret,
                                       char ret_cause[CAIRN_SRV_CAUSE_BYTES],
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Requests its reconcile; *ret_frozen is false when it needs none. */
enum cairn_code cairn_srv_frozen_request(struct cairn_srv_tx *tx, int64_t run_id, bool *ret_frozen,
                                         char ret_cause[CAIRN_SRV_CAUSE_BYTES],
                                         char ret_note[CAIRN_SRV_CAUSE_BYTES],
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* How a reconcile goes, for people, and when it may read the store (catalog tick; 0: not known). */
enum cairn_code cairn_srv_frozen_set_note(struct cairn_srv_tx *tx, int64_t run_id, const char *note,
                                          uint64_t due_tick,
                                          struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_frozen_drop(struct cairn_srv_tx *tx, int64_t run_id,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Those whose reconcile was requested, the longest frozen first. */
#define CAIRN_SRV_RECONCILES_MAX 16
struct cairn_srv_reconcile_request {
    struct cairn_run_name name;
    int64_t run_id;
    uint64_t due_tick;
};
enum cairn_code
cairn_srv_frozen_requests(struct cairn_srv_tx *tx,
                          struct cairn_srv_reconcile_request ret[CAIRN_SRV_RECONCILES_MAX],
                          size_t *ret_count, struct cairn_error *err) CAIRN_MUST_USE;

/* Objects of the store that a reconcile has set aside: a comparison passes over them. */
enum cairn_code cairn_srv_aside_there(struct cairn_srv_tx *tx, const char *key, bool *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_aside_put(struct cairn_srv_tx *tx, const char *key, const char *cause,
                                    int64_t wall_ms, struct cairn_error *err) CAIRN_MUST_USE;
