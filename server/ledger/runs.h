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
 * Limits:  labels 1 MiB; causes and notes of SRV_CAUSE_BYTES.
 * Threads: inside a transaction; a struct belongs to its caller.
 * Next:    server/ledger/versions.h, server/ledger/attempts.h, server/guard/identity.h.
 */
#pragma once

#include "api/wire/rights.h"
#include "server/ledger/rows.h"

struct srv_run {
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
void srv_run_release(struct srv_run *run);

SRV_EXPECTS(run_expect, (const struct cairn_run_name *name), run_get, SQL_T(name->project),
            SQL_T(name->run));
enum cairn_code srv_run_get(struct srv_tx *tx, const struct cairn_run_name *name,
                            struct srv_run *ret, struct cairn_error *err) CAIRN_MUST_USE;
/* Gets, renews (if removed) or creates the run; labels NULL: none. *ret_made may be NULL. */
enum cairn_code srv_run_make(struct srv_tx *tx, const struct cairn_run_name *name,
                             const char *labels, int64_t wall_ms, struct srv_run *ret,
                             bool *ret_made, struct cairn_error *err) CAIRN_MUST_USE;
/* For rebuilding the catalog: gets or creates the run; a removed run reappears unchanged. */
enum cairn_code srv_run_take(struct srv_tx *tx, const struct cairn_run_name *name, int64_t wall_ms,
                             struct srv_run *ret, struct cairn_error *err) CAIRN_MUST_USE;
/* A removed run reappears with labels, note, origin and policy of a new run; its attempt numbers
 * continue (Q1), and its trash stays. Otherwise no change and no event. */
enum cairn_code srv_run_renew(struct srv_tx *tx, const struct srv_run *run, const char *labels,
                              int64_t wall_ms, struct cairn_error *err) CAIRN_MUST_USE;
/* A removed run reappears unchanged, with a version from its trash; else no change or event. */
enum cairn_code srv_run_revive(struct srv_tx *tx, const struct srv_run *run,
                               struct cairn_error *err) CAIRN_MUST_USE;
SRV_RUNS(run_set_marked, (int64_t run_id), run_set_marked, SQL_I(run_id));
/* Hides the run; its trash is deleted as usual. */
enum cairn_code srv_run_hide(struct srv_tx *tx, int64_t run_id,
                             struct cairn_error *err) CAIRN_MUST_USE;
/* Finds a version that is pinned, leased or has an alias, and its step; "": none. */
enum cairn_code srv_run_held(struct srv_tx *tx, int64_t run_id, struct cairn_version_id *ret,
                             uint64_t *ret_step, struct cairn_error *err) CAIRN_MUST_USE;
/* CAIRN_IN_USE until all its versions are gone (Q30). Keeps the attempt number, so that old grants
 * stay invalid (Q6). */
enum cairn_code srv_run_remove(struct srv_tx *tx, const struct srv_run *run,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* Q6; also CAIRN_NOT_FOUND for an unknown run. */
enum cairn_code srv_admit(struct srv_tx *tx, const struct cairn_grant *grant, struct srv_run *ret,
                          struct cairn_error *err) CAIRN_MUST_USE;

SRV_WORD srv_run_set_attempt(struct srv_tx *tx, int64_t run_id, uint64_t attempt, const char *nonce,
                             struct cairn_error *err) {
    uint64_t changed = 0;
    CAIRN_TRY(srv_sql_run(tx, &changed, err, SQL(run_set_attempt), SQL_I(run_id), SQL_I(attempt),
                          SQL_T(nonce)));
    CAIRN_ASSERT(changed == 1);
    return CAIRN_OK;
}
/* Q52: true with a committed version that lacks its record. */
SRV_FINDS(run_misses_record, (int64_t run_id), run_owes_record, SQL_I(run_id));
/* Q3 (a): true with a version that has all ranks sealed, or whose record is being written. */
SRV_FINDS(run_has_open, (int64_t run_id), run_has_open, SQL_I(run_id));
SRV_FINDS(run_has_staged, (int64_t run_id), run_has_staged, SQL_I(run_id));
enum cairn_code srv_run_set_labels(struct srv_tx *tx, int64_t run_id, const char *labels,
                                   struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code srv_run_annotate(struct srv_tx *tx, int64_t run_id, const char *labels,
                                 const char *note, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code srv_run_totals(struct srv_tx *tx, int64_t run_id, uint64_t *ret_versions,
                               uint64_t *ret_bytes, struct cairn_error *err) CAIRN_MUST_USE;

/* Versions that a removal deletes: neither in the trash nor being deleted. */
struct srv_run_removal {
    uint64_t versions, bytes; /* committed ones */
    uint64_t open;            /* saves that are given up */
};
SRV_WORD srv_run_removal(struct srv_tx *tx, int64_t run_id, struct srv_run_removal *ret,
                         struct cairn_error *err) {
    bool found = false;
    CAIRN_TRY(srv_sql_row(tx, ROW(run_removal), ret, &found, err, SQL(run_removal), SQL_I(run_id)));
    CAIRN_ASSERT(found);
    return CAIRN_OK;
}

/* Opening time of the newest attempt, 0: none, and whether it has an open save. */
enum cairn_code srv_run_opened(struct srv_tx *tx, int64_t run_id, uint64_t attempt, int64_t *ret_ms,
                               bool *ret_saving, struct cairn_error *err) CAIRN_MUST_USE;

/* Runs after `after`, by name; project "": of every project. */
enum cairn_code srv_runs_page(struct srv_tx *tx, const char *project,
                              const struct cairn_run_name *after, size_t limit,
                              struct srv_run_names *ret, struct cairn_error *err) CAIRN_MUST_USE;
SRV_WORD srv_runs_all(struct srv_tx *tx, struct srv_run_names *ret, struct cairn_error *err) {
    SQL_OPEN(rows, tx, err, SQL(runs_names));
    return srv_run_names_read(&rows, SRV_ALL, ret, err);
}
/* Each run's newest commit, latest first; committed_ms 0: it and those behind it have none. */
struct srv_last_commit {
    struct cairn_run_name name;
    int64_t committed_ms;
};
SRV_OPENS(runs_last_commits, (size_t limit), runs_last_commits, SQL_I(limit));
SRV_WORD srv_runs_count(struct srv_tx *tx, uint64_t *ret, struct cairn_error *err) {
    return srv_sql_u64(tx, ret, err, SQL(runs_count));
}
SRV_WORD srv_runs_any(struct srv_tx *tx, bool *ret, struct cairn_error *err) {
    return srv_sql_found(tx, ret, err, SQL(runs_any));
}

/* ---- frozen runs, and objects that a reconcile has set aside ---- */

#define SRV_CAUSE_BYTES 400

SRV_WORD srv_frozen_count(struct srv_tx *tx, uint64_t *ret, struct cairn_error *err) {
    return srv_sql_u64(tx, ret, err, SQL(frozen_count));
}
/* asked: also requests a reconcile. *ret_made false: already frozen. */
enum cairn_code srv_frozen_put(struct srv_tx *tx, int64_t run_id, const char *cause,
                               int64_t wall_ms, bool asked, bool *ret_made,
                               struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code srv_frozen_cause(struct srv_tx *tx, const struct cairn_run_name *name,
                                 bool *ret_frozen, char ret[SRV_CAUSE_BYTES],
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* *ret_ends: a reconcile will end the freeze; *ret_due_tick as in srv_frozen_set_note. */
SRV_WORD srv_frozen_ends(struct srv_tx *tx, const struct cairn_run_name *name, bool *ret_ends,
                         uint64_t *ret_due_tick, struct cairn_error *err) {
    int64_t due = 0;
    CAIRN_TRY(srv_sql_number(tx, ret_ends, &due, err, SQL(frozen_ends), SQL_T(name->project),
                             SQL_T(name->run)));
    *ret_due_tick = *ret_ends ? (uint64_t)due : 0;
    return CAIRN_OK;
}
/* CAIRN_CATALOG_BEHIND when frozen; call it in the transaction of the change. */
enum cairn_code srv_tx_run_thawed(struct srv_tx *tx, int64_t run_id,
                                  struct cairn_error *err) CAIRN_MUST_USE;
SRV_EXPECTS(tx_run_thawed_expect, (int64_t run_id), frozen_is, SQL_I(run_id));
/* The run that is frozen for longest. */
enum cairn_code srv_frozen_first(struct srv_tx *tx, bool *ret_found, struct cairn_run_name *ret,
                                 char ret_cause[SRV_CAUSE_BYTES],
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* Requests a reconcile; *ret_frozen false: not frozen. */
enum cairn_code srv_frozen_request(struct srv_tx *tx, int64_t run_id, bool *ret_frozen,
                                   char ret_cause[SRV_CAUSE_BYTES], char ret_note[SRV_CAUSE_BYTES],
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Progress of a reconcile, for display, and when it may read the store (tick; 0: unknown). */
SRV_RUNS(frozen_set_note, (int64_t run_id, const char *note, uint64_t due_tick), frozen_set_note,
         SQL_I(run_id), SQL_T(note), SQL_I(due_tick));
enum cairn_code srv_frozen_drop(struct srv_tx *tx, int64_t run_id,
                                struct cairn_error *err) CAIRN_MUST_USE;
/* Runs with a requested reconcile, longest frozen first. */
#define SRV_RECONCILES_MAX 16
struct srv_reconcile_request {
    struct cairn_run_name name;
    int64_t run_id;
    uint64_t due_tick;
};
enum cairn_code srv_frozen_requests(struct srv_tx *tx,
                                    struct srv_reconcile_request ret[SRV_RECONCILES_MAX],
                                    size_t *ret_count, struct cairn_error *err) CAIRN_MUST_USE;

/* Store objects that a reconcile has set aside: comparisons skip them. */
SRV_FINDS(aside_there, (const char *key), aside_there, SQL_T(key));
SRV_RUNS(aside_put, (const char *key, const char *cause, int64_t wall_ms), aside_put, SQL_T(key),
         SQL_T(cause), SQL_I(wall_ms));
