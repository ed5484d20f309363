/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runs: rows of runs: admission of grants by attempt, and frozen runs.
 *
 * Why:     a run's newest attempt decides which grants may write (Q6); a frozen run stays frozen
 *          over restarts, until a reconcile has read the store.
 * Promise: Q6  an older attempt is CAIRN_STALE_ATTEMPT; a higher one than the catalog's, or the
 *              newest with another nonce, is CAIRN_CATALOG_BEHIND.
 *          Q36  a run has at most one frozen row; each action in a run checks it in its
 *               transaction.
 * Limits:  labels 1 MiB; causes and notes of CAIRN_SRV_CAUSE_BYTES.
 * Threads: inside a transaction; a struct belongs to its caller.
 * Next:    server/ledger/versions.h, server/ledger/attempts.h, server/guard/identity.h.
 */
#pragma once

#include "api/wire/rights.h"
#include "server/db/sql.h"

struct cairn_srv_run {
    int64_t id;
    struct cairn_run_name name;
    uint64_t attempt; /* newest; 0: none opened yet */
    char nonce[CAIRN_NONCE_TEXT_BYTES];
    int64_t created_ms;
    char *labels;  /* owned: JSON */
    char *note;    /* owned: "" for none */
    bool unmarked; /* its trash may predate trash marks in the store */
    bool removed;  /* hidden until it is made again or written to */
};
void cairn_srv_run_release(struct cairn_srv_run *run);

CAIRN_SRV_WORD cairn_srv_run_expect(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                                    struct cairn_error *err) {
    return cairn_srv_sql_expect(tx, err, SQL(run_get), SQL_T(name->project), SQL_T(name->run));
}
enum cairn_code cairn_srv_run_get(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                                  struct cairn_srv_run *ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Gets, renews (if removed) or creates the run; labels NULL: none. *ret_made may be NULL. */
enum cairn_code cairn_srv_run_make(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                                   const char *labels, int64_t wall_ms, struct cairn_srv_run *ret,
                                   bool *ret_made, struct cairn_error *err) CAIRN_MUST_USE;
/* For rebuilding the catalog: gets or creates the run; a removed run reappears unchanged. */
enum cairn_code cairn_srv_run_take(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                                   int64_t wall_ms, struct cairn_srv_run *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* A removed run reappears with labels, note, origin and policy of a new run; its attempt numbers
 * continue (Q1), and its trash stays. Otherwise no change and no event. */
enum cairn_code cairn_srv_run_renew(struct cairn_srv_tx *tx, const struct cairn_srv_run *run,
                                    const char *labels, int64_t wall_ms,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* A removed run reappears unchanged, with a version from its trash; else no change or event. */
enum cairn_code cairn_srv_run_revive(struct cairn_srv_tx *tx, const struct cairn_srv_run *run,
                                     struct cairn_error *err) CAIRN_MUST_USE;
CAIRN_SRV_WORD cairn_srv_run_set_marked(struct cairn_srv_tx *tx, int64_t run_id,
                                        struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(run_set_marked), SQL_I(run_id));
}
/* Hides the run; its trash is deleted as usual. */
enum cairn_code cairn_srv_run_hide(struct cairn_srv_tx *tx, int64_t run_id,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Finds a version that is pinned, leased or has an alias, and its step; "": none. */
enum cairn_code cairn_srv_run_held(struct cairn_srv_tx *tx, int64_t run_id,
                                   struct cairn_version_id *ret, uint64_t *ret_step,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* CAIRN_IN_USE until all its versions are gone (Q30). Keeps the attempt number, so that old grants
 * stay invalid (Q6). */
enum cairn_code cairn_srv_run_remove(struct cairn_srv_tx *tx, const struct cairn_srv_run *run,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Q6; also CAIRN_NOT_FOUND for an unknown run. */
enum cairn_code cairn_srv_admit(struct cairn_srv_tx *tx, const struct cairn_grant *grant,
                                struct cairn_srv_run *ret, struct cairn_error *err) CAIRN_MUST_USE;

enum cairn_code cairn_srv_run_set_attempt(struct cairn_srv_tx *tx, int64_t run_id, uint64_t attempt,
                                          const char *nonce,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Q52: true with a committed version that lacks its record. */
CAIRN_SRV_WORD cairn_srv_run_misses_record(struct cairn_srv_tx *tx, int64_t run_id, bool *ret,
                                           struct cairn_error *err) {
    return cairn_srv_sql_found(tx, ret, err, SQL(run_owes_record), SQL_I(run_id));
}
/* Q3 (a): true with a version that has all ranks sealed, or whose record is being written. */
CAIRN_SRV_WORD cairn_srv_run_has_open(struct cairn_srv_tx *tx, int64_t run_id, bool *ret,
                                      struct cairn_error *err) {
    return cairn_srv_sql_found(tx, ret, err, SQL(run_has_open), SQL_I(run_id));
}
CAIRN_SRV_WORD cairn_srv_run_has_staged(struct cairn_srv_tx *tx, int64_t run_id, bool *ret,
                                        struct cairn_error *err) {
    return cairn_srv_sql_found(tx, ret, err, SQL(run_has_staged), SQL_I(run_id));
}
enum cairn_code cairn_srv_run_set_labels(struct cairn_srv_tx *tx, int64_t run_id,
                                         const char *labels,
                                         struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_run_annotate(struct cairn_srv_tx *tx, int64_t run_id, const char *labels,
                                       const char *note, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_run_totals(struct cairn_srv_tx *tx, int64_t run_id,
                                     uint64_t *ret_versions, uint64_t *ret_bytes,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* Versions that a removal deletes: neither in the trash nor being deleted. */
struct cairn_srv_run_removal {
    uint64_t versions, bytes; /* committed ones */
    uint64_t open;            /* saves that are given up */
};
enum cairn_code cairn_srv_run_removal(struct cairn_srv_tx *tx, int64_t run_id,
                                      struct cairn_srv_run_removal *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;

/* Opening time of the newest attempt, 0: none, and whether it has an open save. */
enum cairn_code cairn_srv_run_opened(struct cairn_srv_tx *tx, int64_t run_id, uint64_t attempt,
                                     int64_t *ret_ms, bool *ret_saving,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* Runs after `after`, by name; project "": of every project. */
enum cairn_code cairn_srv_runs_page(struct cairn_srv_tx *tx, const char *project,
                                    const struct cairn_run_name *after, size_t limit,
                                    struct cairn_srv_run_names *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_runs_all(struct cairn_srv_tx *tx, struct cairn_srv_run_names *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Each run's newest commit, latest first; only runs with a commit. */
enum cairn_code cairn_srv_runs_last_commits(
    struct cairn_srv_tx *tx, size_t limit,
    enum cairn_code (*each)(void *argument, const char *project, const char *run,
                            int64_t committed_ms, struct cairn_error *err),
    void *argument, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_runs_count(struct cairn_srv_tx *tx, uint64_t *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
CAIRN_SRV_WORD cairn_srv_runs_any(struct cairn_srv_tx *tx, bool *ret, struct cairn_error *err) {
    return cairn_srv_sql_found(tx, ret, err, SQL(runs_any));
}

/* ---- frozen runs, and objects that a reconcile has set aside ---- */

#define CAIRN_SRV_CAUSE_BYTES 400

enum cairn_code cairn_srv_frozen_count(struct cairn_srv_tx *tx, uint64_t *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* asked: also requests a reconcile. *ret_made false: already frozen. */
enum cairn_code cairn_srv_frozen_put(struct cairn_srv_tx *tx, int64_t run_id, const char *cause,
                                     int64_t wall_ms, bool asked, bool *ret_made,
                                     struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_frozen_cause(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                                       bool *ret_frozen, char ret[CAIRN_SRV_CAUSE_BYTES],
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* *ret_ends: a reconcile will end the freeze; *ret_due_tick as in cairn_srv_frozen_set_note. */
enum cairn_code cairn_srv_frozen_ends(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                                      bool *ret_ends, uint64_t *ret_due_tick,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* CAIRN_CATALOG_BEHIND when frozen; call it in the transaction of the change. */
enum cairn_code cairn_srv_tx_run_thawed(struct cairn_srv_tx *tx, int64_t run_id,
                                        struct cairn_error *err) CAIRN_MUST_USE;
CAIRN_SRV_WORD cairn_srv_tx_run_thawed_expect(struct cairn_srv_tx *tx, int64_t run_id,
                                              struct cairn_error *err) {
    return cairn_srv_sql_expect(tx, err, SQL(frozen_is), SQL_I(run_id));
}
/* The run that is frozen for longest. */
enum cairn_code cairn_srv_frozen_first(struct cairn_srv_tx *tx, bool *ret_found,
                                       struct cairn_run_name *ret,
                                       char ret_cause[CAIRN_SRV_CAUSE_BYTES],
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Requests a reconcile; *ret_frozen false: not frozen. */
enum cairn_code cairn_srv_frozen_request(struct cairn_srv_tx *tx, int64_t run_id, bool *ret_frozen,
                                         char ret_cause[CAIRN_SRV_CAUSE_BYTES],
                                         char ret_note[CAIRN_SRV_CAUSE_BYTES],
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Progress of a reconcile, for display, and when it may read the store (tick; 0: unknown). */
CAIRN_SRV_WORD cairn_srv_frozen_set_note(struct cairn_srv_tx *tx, int64_t run_id, const char *note,
                                         uint64_t due_tick, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(frozen_set_note), SQL_I(run_id), SQL_T(note),
                             SQL_I(due_tick));
}
enum cairn_code cairn_srv_frozen_drop(struct cairn_srv_tx *tx, int64_t run_id,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Runs with a requested reconcile, longest frozen first. */
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

/* Store objects that a reconcile has set aside: comparisons skip them. */
CAIRN_SRV_WORD cairn_srv_aside_there(struct cairn_srv_tx *tx, const char *key, bool *ret,
                                     struct cairn_error *err) {
    return cairn_srv_sql_found(tx, ret, err, SQL(aside_there), SQL_T(key));
}
CAIRN_SRV_WORD cairn_srv_aside_put(struct cairn_srv_tx *tx, const char *key, const char *cause,
                                   int64_t wall_ms, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(aside_put), SQL_T(key), SQL_T(cause),
                             SQL_I(wall_ms));
}
