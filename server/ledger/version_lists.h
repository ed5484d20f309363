/* SPDX-License-Identifier: Apache-2.0 */
/*
 * version_lists: lists of versions for the sweep, for queries and for lineage.
 *
 * Why:     predicates.h alone decides what is open, shown, trashed or to be swept; code that acts
 *          on a list checks each version again in its own transaction (Q27). Lineage outlives the
 *          ancestors' rows. Bytes kept of deleted versions cost money, so they are retried until
 *          they are gone.
 * Promise: Q36  the sweep's lists contain nothing of a frozen run.
 *          1   lineage goes from a version to the one that its attempt resumed from, and so on;
 *              from a run's first attempt to the version in the run's `from`, of any run.
 *          2   a forgotten version is listed by id, run, attempt and step, and the chain continues.
 *          3   no version occurs twice: runs that name each other end the chain.
 *          4   a not_freed row exists from the sweep that left objects to the one that left none;
 *              the version's row stays as long, so that the sweep finds its prefix.
 *          5   pauses grow to a day: objects locked for years cost few requests a day.
 *          6   creation and end of the row are events (checkpoint.not_freed, checkpoint.freed).
 * Limits:  as each says; lists without a limit are of one run; CAIRN_SRV_LINEAGE_MAX versions; a
 *          reason of CAIRN_SRV_LEFT_REASON_BYTES.
 * Threads: inside a transaction.
 * Next:    server/db/predicates.h, server/sweep/sweep.c, server/versions/run_calls.c.
 */
#pragma once

#include "common/json.h"
#include "server/db/sql.h"
#include "server/ledger/versions.h"

enum cairn_code cairn_srv_versions_open_of_run(struct cairn_srv_tx *tx, int64_t run_id,
                                               struct cairn_srv_ids *ret,
                                               struct cairn_error *err) CAIRN_MUST_USE;
/* Counts moves of a run's versions into and out of the trash. */
enum cairn_code cairn_srv_versions_trash_changes(struct cairn_srv_tx *tx,
                                                 const struct cairn_run_name *name, uint64_t *ret,
                                                 struct cairn_error *err) CAIRN_MUST_USE;
/* Committed, not recorded (Q24), by attempt, step and n. */
enum cairn_code cairn_srv_versions_unrecorded(struct cairn_srv_tx *tx,
                                              const struct cairn_run_name *name, size_t limit,
                                              struct cairn_srv_ids *ret,
                                              struct cairn_error *err) CAIRN_MUST_USE;
/* Versions that this one supersedes if begun with on_exists = supersede (Q52). */
enum cairn_code cairn_srv_versions_older(struct cairn_srv_tx *tx,
                                         const struct cairn_srv_version *version, size_t limit,
                                         struct cairn_srv_ids *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;

/* Kinds are the states, plus trashed, which committed does not include. */
#define CAIRN_SRV_KINDS (CAIRN_STATE_GONE + 2)
const char *cairn_srv_kind_text(size_t kind); /* "open", ..., "trashed" */
struct cairn_srv_kind_count {
    uint64_t versions, bytes;
};
/* Over all runs, without gone versions. */
enum cairn_code cairn_srv_kinds_count(struct cairn_srv_tx *tx,
                                      struct cairn_srv_kind_count ret[CAIRN_SRV_KINDS],
                                      struct cairn_error *err) CAIRN_MUST_USE;

enum cairn_srv_round {
    CAIRN_SRV_ROUND_LEFT_OVER, /* whole, or committed without its record */
    CAIRN_SRV_ROUND_OPEN,      /* longest open first */
    CAIRN_SRV_ROUND_TRASHED,   /* grace over at tick_ms */
    CAIRN_SRV_ROUND_DEAD,      /* aborting or deleting, without objects known to be kept */
    CAIRN_SRV_ROUND_AGAIN,     /* gone, and due for another sweep at tick_ms (Q30) */
    CAIRN_SRV_ROUND_NOT_FREED, /* the store kept objects; retry due at tick_ms */
};
struct cairn_srv_round_query {
    enum cairn_srv_round round;
    uint64_t tick_ms;     /* catalog time */
    size_t limit, passed; /* passed: entries to skip at the start */
};
enum cairn_code cairn_srv_versions_round(struct cairn_srv_tx *tx,
                                         const struct cairn_srv_round_query *query,
                                         struct cairn_srv_ids *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;

/* Versions that a removal must still delete, oldest first; replaces the lists. */
struct cairn_srv_to_remove {
    struct cairn_srv_ids committed, open;
    size_t unrecorded; /* committed without record, in neither list */
};
enum cairn_code cairn_srv_versions_to_remove(struct cairn_srv_tx *tx, int64_t run_id, size_t limit,
                                             struct cairn_srv_to_remove *ret,
                                             struct cairn_error *err) CAIRN_MUST_USE;

/* Versions to forget at that time: no sweep is due and no answer names them. */
enum cairn_code cairn_srv_versions_over(struct cairn_srv_tx *tx, uint64_t tick_ms, size_t limit,
                                        struct cairn_srv_ids *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Deletes their rows; keeps ids of the newest attempt, which could begin them again (Q11): no id
 * is used for two saves. */
enum cairn_code cairn_srv_versions_forget(struct cairn_srv_tx *tx, const struct cairn_srv_ids *ids,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* True for a kept id. */
CAIRN_SRV_WORD cairn_srv_version_forgotten(struct cairn_srv_tx *tx, int64_t run_id,
                                           uint64_t attempt, const char *id, bool *ret,
                                           struct cairn_error *err) {
    return cairn_srv_sql_found(tx, ret, err, SQL(tombstone_there), SQL_I(run_id), SQL_I(attempt),
                               SQL_T(id));
}
CAIRN_SRV_WORD cairn_srv_version_forgotten_expect(struct cairn_srv_tx *tx, int64_t run_id,
                                                  uint64_t attempt, const char *id,
                                                  struct cairn_error *err) {
    return cairn_srv_sql_expect(tx, err, SQL(tombstone_there), SQL_I(run_id), SQL_I(attempt),
                                SQL_T(id));
}

typedef enum cairn_code cairn_srv_each_version(struct cairn_srv_tx *tx, void *argument,
                                               const struct cairn_srv_version *version,
                                               struct cairn_error *err);
/* At most 1,000. */
enum cairn_code cairn_srv_versions_open_of_attempt(struct cairn_srv_tx *tx,
                                                   const struct cairn_run_name *name,
                                                   uint64_t attempt, cairn_srv_each_version *each,
                                                   void *argument,
                                                   struct cairn_error *err) CAIRN_MUST_USE;

/* Position in lists: newest attempt first, then highest step. */
struct cairn_srv_version_place {
    uint64_t attempt, step, n;
};
/* A page of a run's versions after a place, in list order or reversed. */
struct cairn_srv_page {
    int64_t run_id;
    int state; /* shown state (enum cairn_state, Q24); -1: all but gone */
    bool rising;
    bool by_step; /* of a scan: order by step, attempt and n */
    struct cairn_srv_version_place place;
    size_t limit;
};
enum cairn_code cairn_srv_versions_page(struct cairn_srv_tx *tx, const struct cairn_srv_page *page,
                                        cairn_srv_each_version *each, void *argument,
                                        struct cairn_error *err) CAIRN_MUST_USE;

/* A page of brief rows for filters; with a known trash state an index of its own serves it. */
enum cairn_srv_trash { CAIRN_SRV_TRASH_OR_NOT, CAIRN_SRV_TRASH_ONLY, CAIRN_SRV_TRASH_NOT };
struct cairn_srv_version_brief {
    const char *id; /* texts are valid during the call */
    struct cairn_srv_version_place place;
    enum cairn_state shown;
    bool trashed;
    int64_t at_ms; /* commit time, or creation time if not committed */
    const char *labels;
};
/* *ret_go_on: false ends the list. */
typedef enum cairn_code cairn_srv_each_brief(void *argument,
                                             const struct cairn_srv_version_brief *row,
                                             bool *ret_go_on, struct cairn_error *err);
enum cairn_code cairn_srv_versions_scan(struct cairn_srv_tx *tx, const struct cairn_srv_page *page,
                                        enum cairn_srv_trash trash, cairn_srv_each_brief *each,
                                        void *argument, struct cairn_error *err) CAIRN_MUST_USE;

/* Commit times of a run's newest attempts, in list order. This many contain the latest commit: a
 * resume from further back commits lower steps in a higher attempt. */
#define CAIRN_SRV_COMMITS_LOOKED_AT 21
enum cairn_code cairn_srv_run_commits(struct cairn_srv_tx *tx, int64_t run_id, int64_t *ret_ms,
                                      size_t capacity, size_t *ret_count,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* A run's recorded versions and their trashed flags. */
enum cairn_code
cairn_srv_versions_recorded(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                            enum cairn_code (*each)(void *argument, const char *id, uint64_t step,
                                                    bool trashed, struct cairn_error *err),
                            void *argument, struct cairn_error *err) CAIRN_MUST_USE;

#define CAIRN_SRV_LINEAGE_MAX 1000

/* A JSON array, the version itself first. *ret_more: truncated. */
enum cairn_code cairn_srv_lineage(struct cairn_srv_tx *tx, const struct cairn_srv_version *version,
                                  json_t **ret, bool *ret_more,
                                  struct cairn_error *err) CAIRN_MUST_USE;

/* The origin that a run states. */
struct cairn_srv_origin {
    struct cairn_run_name name; /* "": none */
    struct cairn_version_id version;
    uint64_t attempt, step;
};
enum cairn_code cairn_srv_run_origin(struct cairn_srv_tx *tx, int64_t run_id,
                                     struct cairn_srv_origin *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* version NULL: none. */
enum cairn_code cairn_srv_run_set_origin(struct cairn_srv_tx *tx, int64_t run_id,
                                         const struct cairn_srv_version *version,
                                         struct cairn_error *err) CAIRN_MUST_USE;

/* ---- objects that the store keeps of deleted versions ---- */

#define CAIRN_SRV_LEFT_REASON_BYTES 200

/* Result of a sweep that left objects. */
struct cairn_srv_left {
    enum cairn_code code;
    char reason[CAIRN_SRV_LEFT_REASON_BYTES]; /* the store's words */
    bool counted; /* false: the store gave no count; numbers are the catalog's minimum */
    uint64_t objects, bytes;
};
struct cairn_srv_not_freed {
    bool there;
    struct cairn_srv_left left;
    int64_t since_ms, tried_ms; /* wall clock */
    uint64_t tries, next_tick;
};
enum cairn_code cairn_srv_not_freed_get(struct cairn_srv_tx *tx, const char *version,
                                        struct cairn_srv_not_freed *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_not_freed_note(struct cairn_srv_tx *tx, const char *version,
                                         const struct cairn_srv_left *left,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* The store keeps nothing any more. */
enum cairn_code cairn_srv_not_freed_drop(struct cairn_srv_tx *tx, const char *version,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Makes all retries due now. */
CAIRN_SRV_WORD cairn_srv_not_freed_hurry(struct cairn_srv_tx *tx, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(not_freed_hurry));
}

struct cairn_srv_not_freed_sum {
    uint64_t versions, bytes;
};
enum cairn_code cairn_srv_not_freed_sum(struct cairn_srv_tx *tx,
                                        struct cairn_srv_not_freed_sum *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
struct cairn_srv_not_freed_row {
    struct cairn_srv_not_freed not_freed;
    struct cairn_version_id version;
    struct cairn_run_name name;
    uint64_t step;
    enum cairn_state state;
};
/* By id, after that one. */
enum cairn_code
cairn_srv_not_freed_each(struct cairn_srv_tx *tx, const char *after, uint64_t limit,
                         enum cairn_code (*each)(const struct cairn_srv_not_freed_row *row,
                                                 void *owner, struct cairn_error *err),
                         void *owner, struct cairn_error *err) CAIRN_MUST_USE;
