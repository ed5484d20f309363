/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runs: rows of runs, and whose grant may write into one.
 *
 * Why:     a run's newest attempt decides who may write (Q6) and is compared by whoever changes
 *          anything in it.
 * Promise: Q6   an older attempt is CAIRN_STALE_ATTEMPT; a higher one than the catalog's, or the
 *               newest with another nonce, is CAIRN_CATALOG_BEHIND.
 * Limits:  labels 1 MiB.
 * Threads: inside a transaction; a struct belongs to its caller.
 * Next:    server/ledger/versions.h, server/ledger/attempts.h.
 */
#pragma once

#include "api/wire/rights.h"
#include "server/ledger/lists.h"

struct cairn_srv_run {
    int64_t id;
    struct cairn_run_name name;
    uint64_t attempt; /* newest; 0 = none was opened yet */
    char nonce[CAIRN_NONCE_TEXT_BYTES];
    int64_t created_ms;
    char *labels;  /* owned: JSON */
    char *note;    /* owned: "" for none */
    bool unmarked; /* its trash may be from before there were marks in the store */
    bool removed;  /* nobody is shown it until somebody makes it again or writes into it */
};
void cairn_srv_run_release(struct cairn_srv_run *run);

/* It will be got soon (sql.h, expect). */
enum cairn_code cairn_srv_run_expect(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                                     struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_run_get(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                                  struct cairn_srv_run *ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Gets it, or makes it with these labels (NULL: none) and this wall time. A removed run is made
 * anew (_renew), and counts as made. *ret_made may be NULL. */
enum cairn_code cairn_srv_run_make(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                                   const char *labels, int64_t wall_ms, struct cairn_srv_run *ret,
                                   bool *ret_made, struct cairn_error *err) CAIRN_MUST_USE;
/* For what rebuilds the catalog: gets it, or makes it; a removed run is shown again as it was. */
enum cairn_code cairn_srv_run_take(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                                   int64_t wall_ms, struct cairn_srv_run *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* A removed run is shown again without what was said of it before: labels, note, origin and policy
 * are those of a new run; its attempts count on (Q1), and its trash stays where it is. No change
 * and no event when it was not removed. */
enum cairn_code cairn_srv_run_renew(struct cairn_srv_tx *tx, const struct cairn_srv_run *run,
                                    const char *labels, int64_t wall_ms,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* A removed run is shown again as it was, since a version of it was taken out of the trash; no
 * change and no event when it was not removed. */
enum cairn_code cairn_srv_run_revive(struct cairn_srv_tx *tx, const struct cairn_srv_run *run,
                                     struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_run_set_marked(struct cairn_srv_tx *tx, int64_t run_id,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* It is shown no more; what it has in the trash goes by itself. */
enum cairn_code cairn_srv_run_hide(struct cairn_srv_tx *tx, int64_t run_id,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* A version that is pinned, leased or has an alias, and its step; "" where there is none. */
enum cairn_code cairn_srv_run_held(struct cairn_srv_tx *tx, int64_t run_id,
                                   struct cairn_version_id *ret, uint64_t *ret_step,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* CAIRN_IN_USE while it has versions that are not gone for good (Q30). Its attempt's number stays,
 * so that no grant of before is ever taken for a later one (Q6). */
enum cairn_code cairn_srv_run_remove(struct cairn_srv_tx *tx, const struct cairn_srv_run *run,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Q6; also CAIRN_NOT_FOUND when there is no such run. */
enum cairn_code cairn_srv_admit(struct cairn_srv_tx *tx, const struct cairn_grant *grant,
                                struct cairn_srv_run *ret, struct cairn_error *err) CAIRN_MUST_USE;

enum cairn_code cairn_srv_run_set_attempt(struct cairn_srv_tx *tx, int64_t run_id, uint64_t attempt,
                                          const char *nonce,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Q52: has the run a committed version that lacks its record? */
enum cairn_code cairn_srv_run_misses_record(struct cairn_srv_tx *tx, int64_t run_id, bool *ret,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* Q3 (a): has the run a version with all ranks sealed, or one whose record is being written? */
enum cairn_code cairn_srv_run_has_open(struct cairn_srv_tx *tx, int64_t run_id, bool *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_run_has_staged(struct cairn_srv_tx *tx, int64_t run_id, bool *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_run_set_labels(struct cairn_srv_tx *tx, int64_t run_id,
                                         const char *labels,
                                         struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_run_annotate(struct cairn_srv_tx *tx, int64_t run_id, const char *labels,
                                       const char *note, struct cairn_error *err) CAIRN_MUST_USE;
/* Its committed versions: how many, and their bytes. */
enum cairn_code cairn_srv_run_totals(struct cairn_srv_tx *tx, int64_t run_id,
                                     uint64_t *ret_versions, uint64_t *ret_bytes,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* What a removal of it takes away: what is neither in the trash nor on its way out. */
struct cairn_srv_run_removal {
    uint64_t versions, bytes; /* committed ones */
    uint64_t open;            /* saves that are given up */
};
enum cairn_code cairn_srv_run_removal(struct cairn_srv_tx *tx, int64_t run_id,
                                      struct cairn_srv_run_removal *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;

/* When its newest attempt was opened, 0 without one, and whether a save of it is open. */
enum cairn_code cairn_srv_run_opened(struct cairn_srv_tx *tx, int64_t run_id, uint64_t attempt,
                                     int64_t *ret_ms, bool *ret_saving,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* Those behind `after` in the order of their names; project "" means of every project. */
enum cairn_code cairn_srv_runs_page(struct cairn_srv_tx *tx, const char *project,
                                    const struct cairn_run_name *after, size_t limit,
                                    struct cairn_srv_run_names *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_runs_all(struct cairn_srv_tx *tx, struct cairn_srv_run_names *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* The newest commit of each, those that committed last first; of runs that have one. */
enum cairn_code cairn_srv_runs_last_commits(struct cairn_srv_tx *tx, size_t limit,
                                            enum cairn_code (*each)(void *argument,
                                                                    const char *project,
                                                                    const char *run,
                                                                    int64_t committed_ms,
                                                                    struct cairn_error *err),
                                            void *argument,
                                            struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_runs_count(struct cairn_srv_tx *tx, uint64_t *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_runs_any(struct cairn_srv_tx *tx, bool *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
