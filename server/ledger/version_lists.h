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
 * Limits:  as each says; lists without a limit are of one run; SRV_LINEAGE_MAX versions; a
 *          reason of SRV_LEFT_REASON_BYTES.
 * Threads: inside a transaction.
 * Next:    server/db/predicates.h, server/sweep/sweep.c, server/versions/run_calls.c.
 */
#pragma once

#include "server/ledger/versions.h"

SRV_WORD srv_versions_open_of_run(struct srv_tx *tx, int64_t run_id, struct srv_ids *ret,
                                  struct cairn_error *err) {
    return srv_sql_ids(tx, SRV_ALL, ret, err, SQL(versions_open_of_run), SQL_I(run_id));
}
/* Counts moves of a run's versions into and out of the trash. */
SRV_WORD srv_versions_trash_changes(struct srv_tx *tx, const struct cairn_run_name *name,
                                    uint64_t *ret, struct cairn_error *err) {
    return srv_sql_u64(tx, ret, err, SQL(run_trash_changes), SQL_T(name->project),
                       SQL_T(name->run));
}
/* Committed, not recorded (Q24), by attempt, step and n. */
SRV_WORD srv_versions_unrecorded(struct srv_tx *tx, const struct cairn_run_name *name, size_t limit,
                                 struct srv_ids *ret, struct cairn_error *err) {
    return srv_sql_ids(tx, limit, ret, err, SQL(versions_unrecorded_of_run), SQL_T(name->project),
                       SQL_T(name->run));
}
/* Versions that this one supersedes if begun with on_exists = supersede (Q52). */
SRV_WORD srv_versions_older(struct srv_tx *tx, const struct srv_version *version, size_t limit,
                            struct srv_ids *ret, struct cairn_error *err) {
    return srv_sql_ids(tx, limit, ret, err, SQL(versions_older_of_step), SQL_I(version->run_id),
                       SQL_I(version->step), SQL_I(version->attempt), SQL_I(version->n));
}
/* Q4: supersedes committed versions beyond the choice (NULL: all); *ret lists them. */
enum cairn_code srv_versions_supersede_beyond(struct srv_tx *tx, int64_t run_id,
                                              const struct cairn_version_id *choice,
                                              uint64_t choice_step, struct srv_ids *ret,
                                              struct cairn_error *err) CAIRN_MUST_USE;
/* Q52: supersedes earlier committed versions of the same step. */
enum cairn_code srv_versions_supersede_step(struct srv_tx *tx, const struct srv_version *version,
                                            struct cairn_error *err) CAIRN_MUST_USE;

/* Kinds are the states, plus trashed, which committed does not include. */
#define SRV_KINDS (CAIRN_STATE_GONE + 2)
const char *srv_kind_text(size_t kind); /* "open", ..., "trashed" */
struct srv_kind_count {
    uint64_t versions, bytes;
};
/* Over all runs, without gone versions. */
enum cairn_code srv_kinds_count(struct srv_tx *tx, struct srv_kind_count ret[SRV_KINDS],
                                struct cairn_error *err) CAIRN_MUST_USE;

enum srv_round {
    SRV_ROUND_LEFT_OVER, /* whole, or committed without its record */
    SRV_ROUND_OPEN,      /* longest open first */
    SRV_ROUND_TRASHED,   /* grace over at tick_ms */
    SRV_ROUND_DEAD,      /* aborting or deleting, without objects known to be kept */
    SRV_ROUND_AGAIN,     /* gone, and due for another sweep at tick_ms (Q30) */
    SRV_ROUND_NOT_FREED, /* the store kept objects; retry due at tick_ms */
};
struct srv_round_query {
    enum srv_round round;
    uint64_t tick_ms;     /* catalog time */
    size_t limit, passed; /* passed: entries to skip at the start */
};
enum cairn_code srv_versions_round(struct srv_tx *tx, const struct srv_round_query *query,
                                   struct srv_ids *ret, struct cairn_error *err) CAIRN_MUST_USE;

/* Versions that a removal must still delete, oldest first; replaces the lists. */
struct srv_to_remove {
    struct srv_ids committed, open;
    size_t unrecorded; /* committed without record, in neither list */
};
enum cairn_code srv_versions_to_remove(struct srv_tx *tx, int64_t run_id, size_t limit,
                                       struct srv_to_remove *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;

/* Versions to forget at that time: no sweep is due and no answer names them. */
SRV_WORD srv_versions_over(struct srv_tx *tx, uint64_t tick_ms, size_t limit, struct srv_ids *ret,
                           struct cairn_error *err) {
    return srv_sql_ids(tx, limit, ret, err, SQL(versions_over), SQL_I(tick_ms), SQL_I(limit));
}
/* Deletes their rows; keeps ids of the newest attempt, which could begin them again (Q11): no id
 * is used for two saves. */
enum cairn_code srv_versions_forget(struct srv_tx *tx, const struct srv_ids *ids,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* True for a kept id. */
SRV_FINDS(version_forgotten, (int64_t run_id, uint64_t attempt, const char *id), tombstone_there,
          SQL_I(run_id), SQL_I(attempt), SQL_T(id));
SRV_EXPECTS(version_forgotten_expect, (int64_t run_id, uint64_t attempt, const char *id),
            tombstone_there, SQL_I(run_id), SQL_I(attempt), SQL_T(id));

/* At most 1,000 rows; srv_version_row. */
SRV_OPENS(versions_open_of_attempt, (const struct cairn_run_name *name, uint64_t attempt),
          versions_open_of_attempt, SQL_T(name->project), SQL_T(name->run), SQL_I(attempt));

/* Position in lists: newest attempt first, then highest step. */
struct srv_version_place {
    uint64_t attempt, step, n;
};
/* Rows of a run's versions after a place, in list order or reversed; srv_version_row. */
struct srv_page {
    int64_t run_id;
    int state; /* shown state (enum cairn_state, Q24); -1: all but gone */
    bool rising;
    bool by_step; /* of a scan: order by step, attempt and n */
    struct srv_version_place place;
    size_t limit;
};
enum cairn_code srv_versions_page(struct srv_tx *tx, const struct srv_page *page,
                                  struct srv_rows *ret, struct cairn_error *err) CAIRN_MUST_USE;

/* A page of brief rows for filters; with a known trash state an index of its own serves it. */
enum srv_trash { SRV_TRASH_OR_NOT, SRV_TRASH_ONLY, SRV_TRASH_NOT };
struct srv_version_brief {
    const char *id; /* texts are valid during the call */
    struct srv_version_place place;
    enum cairn_state shown;
    bool trashed;
    int64_t at_ms; /* commit time, or creation time if not committed */
    const char *labels;
};
/* *ret_go_on: false ends the list. */
typedef enum cairn_code srv_each_brief(void *argument, const struct srv_version_brief *row,
                                       bool *ret_go_on, struct cairn_error *err);
enum cairn_code srv_versions_scan(struct srv_tx *tx, const struct srv_page *page,
                                  enum srv_trash trash, srv_each_brief *each, void *argument,
                                  struct cairn_error *err) CAIRN_MUST_USE;

/* Commit times of a run's newest attempts, in list order. This many contain the latest commit: a
 * resume from further back commits lower steps in a higher attempt. */
#define SRV_COMMITS_LOOKED_AT 21
enum cairn_code srv_run_commits(struct srv_tx *tx, int64_t run_id, int64_t *ret_ms, size_t capacity,
                                size_t *ret_count, struct cairn_error *err) CAIRN_MUST_USE;
/* A run's recorded versions; id: until the next row. */
struct srv_recorded_row {
    const char *id;
    uint64_t step;
    bool trashed;
};
SRV_OPENS(versions_recorded, (const struct cairn_run_name *name), versions_recorded_of_run,
          SQL_T(name->project), SQL_T(name->run));

#define SRV_LINEAGE_MAX 1000

/* A JSON array, the version itself first. *ret_more: truncated. */
enum cairn_code srv_lineage(struct srv_tx *tx, const struct srv_version *version, json_t **ret,
                            bool *ret_more, struct cairn_error *err) CAIRN_MUST_USE;

/* The origin that a run states. */
struct srv_origin {
    struct cairn_run_name name; /* "": none */
    struct cairn_version_id version;
    uint64_t attempt, step;
};
enum cairn_code srv_run_origin(struct srv_tx *tx, int64_t run_id, struct srv_origin *ret,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* version NULL: none. */
enum cairn_code srv_run_set_origin(struct srv_tx *tx, int64_t run_id,
                                   const struct srv_version *version,
                                   struct cairn_error *err) CAIRN_MUST_USE;

/* ---- objects that the store keeps of deleted versions ---- */

#define SRV_LEFT_REASON_BYTES 200

/* Result of a sweep that left objects. */
struct srv_left {
    enum cairn_code code;
    char reason[SRV_LEFT_REASON_BYTES]; /* the store's words */
    bool counted; /* false: the store gave no count; numbers are the catalog's minimum */
    uint64_t objects, bytes;
};
struct srv_not_freed {
    bool there;
    struct srv_left left;
    int64_t since_ms, tried_ms; /* wall clock */
    uint64_t tries, next_tick;
};
SRV_WORD srv_not_freed_get(struct srv_tx *tx, const char *version, struct srv_not_freed *ret,
                           struct cairn_error *err) {
    *ret = (struct srv_not_freed){.there = false};
    return srv_sql_row(tx, ROW(not_freed), ret, &ret->there, err, SQL(not_freed_get),
                       SQL_T(version));
}
enum cairn_code srv_not_freed_note(struct srv_tx *tx, const char *version,
                                   const struct srv_left *left,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* The store keeps nothing any more. */
enum cairn_code srv_not_freed_drop(struct srv_tx *tx, const char *version,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Makes all retries due now. */
SRV_WORD srv_not_freed_hurry(struct srv_tx *tx, struct cairn_error *err) {
    return srv_sql_run(tx, NULL, err, SQL(not_freed_hurry));
}

struct srv_not_freed_sum {
    uint64_t versions, bytes;
};
SRV_WORD srv_not_freed_sum(struct srv_tx *tx, struct srv_not_freed_sum *ret,
                           struct cairn_error *err) {
    bool found = false;
    CAIRN_TRY(srv_sql_row(tx, ROW(not_freed_sum), ret, &found, err, SQL(not_freed_sum)));
    CAIRN_ASSERT(found); /* a count has one row */
    return CAIRN_OK;
}
struct srv_not_freed_row {
    struct srv_not_freed not_freed;
    struct cairn_version_id version;
    struct cairn_run_name name;
    uint64_t step;
    enum cairn_state state;
};
/* Rows by id, after that one. */
SRV_OPENS(not_freed_open, (const char *after, uint64_t limit), not_freed_page, SQL_T(after),
          SQL_I(limit));
struct srv_not_freed_row srv_not_freed_row(const struct srv_rows *rows);
