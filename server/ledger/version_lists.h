/* SPDX-License-Identifier: Apache-2.0 */
/*
 * version_lists: which versions a question is about, in the words of the question.
 *
 * Why:     what is open, shown, in the trash or to be swept is decided by predicates.h alone; who
 *          acts on a list checks each version again in its own transaction (Q27). What a checkpoint
 *          was trained from is asked long after the rows of its ancestors went; what a bucket keeps
 *          of deleted versions costs money, and must go by itself once it may.
 * Promise: Q36  nothing of a frozen run is in the lists that the sweep works from.
 *          1    the chain goes from a version to the one that its attempt resumed from, and so on;
 *               where the first attempt of a run resumed from nothing, to the version that the run
 *               says it began from (`from`), of whatever run.
 *          2    a version whose row was forgotten stands in it by id, run, attempt and step, and
 *               the chain goes on behind it.
 *          3    no version is met twice: runs that name each other end the chain.
 *          4    a row is there from the sweep that left something to the one that left nothing; its
 *               version's row stays as long, so that the sweep knows where to look.
 *          5    the pauses between two tries grow to a day: what is locked for years costs no round
 *               of the sweep more than a few requests a day.
 *          6    the first row and its end are events (checkpoint.not_freed, checkpoint.freed).
 * Limits:  as each says; lists without a limit are of one run; CAIRN_SRV_LINEAGE_MAX versions; a
 *          reason of CAIRN_SRV_LEFT_REASON_BYTES.
 * Threads: inside a transaction.
 * Next:    server/db/predicates.h, server/sweep/sweep.c, server/versions/run_calls.c;
 *          store/store.h.
 */
#pragma once

#include "common/json.h"
#include "server/db/sql.h"
#include "server/ledger/versions.h"

enum cairn_code cairn_srv_versions_open_of_run(struct cairn_srv_tx *tx, int64_t run_id,
                                               struct cairn_srv_ids *ret,
                                               struct cairn_error *err) CAIRN_MUST_USE;
/* How often one of a run was put into the trash, or taken out. */
enum cairn_code cairn_srv_versions_trash_changes(struct cairn_srv_tx *tx,
                                                 const struct cairn_run_name *name, uint64_t *ret,
                                                 struct cairn_error *err) CAIRN_MUST_USE;
/* Committed and not recorded (Q24), by attempt, step and n. */
enum cairn_code cairn_srv_versions_unrecorded(struct cairn_srv_tx *tx,
                                              const struct cairn_run_name *name, size_t limit,
                                              struct cairn_srv_ids *ret,
                                              struct cairn_error *err) CAIRN_MUST_USE;
/* What this version supersedes when it was begun with on_exists = supersede (Q52). */
enum cairn_code cairn_srv_versions_older(struct cairn_srv_tx *tx,
                                         const struct cairn_srv_version *version, size_t limit,
                                         struct cairn_srv_ids *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;

/* What is counted: by state, and those in the trash apart from others that are committed. */
#define CAIRN_SRV_KINDS (CAIRN_STATE_GONE + 2)
const char *cairn_srv_kind_text(size_t kind); /* "open", ..., "trashed" */
struct cairn_srv_kind_count {
    uint64_t versions, bytes;
};
/* Of all runs; what is gone is not counted. */
enum cairn_code cairn_srv_kinds_count(struct cairn_srv_tx *tx,
                                      struct cairn_srv_kind_count ret[CAIRN_SRV_KINDS],
                                      struct cairn_error *err) CAIRN_MUST_USE;

/* What a round of the sweep looks at. */
enum cairn_srv_round {
    CAIRN_SRV_ROUND_LEFT_OVER, /* whole, or committed without its record */
    CAIRN_SRV_ROUND_OPEN,      /* the longest open first */
    CAIRN_SRV_ROUND_TRASHED,   /* whose grace was over at the time */
    CAIRN_SRV_ROUND_DEAD,      /* aborting or deleting, and the store has kept nothing yet */
    CAIRN_SRV_ROUND_AGAIN,     /* gone, and due for one more sweep at the time (Q30) */
    CAIRN_SRV_ROUND_NOT_FREED, /* the store kept something, and is tried again at the time */
};
struct cairn_srv_round_query {
    enum cairn_srv_round round;
    uint64_t tick_ms;     /* that time, in catalog time */
    size_t limit, passed; /* passed: so many of the first are left out */
};
enum cairn_code cairn_srv_versions_round(struct cairn_srv_tx *tx,
                                         const struct cairn_srv_round_query *query,
                                         struct cairn_srv_ids *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;

/* What a removal of the run still has to do, the oldest first; a list is filled anew. */
struct cairn_srv_to_remove {
    struct cairn_srv_ids committed, open;
    size_t unrecorded; /* committed ones that lack their record, and so are in neither list */
};
enum cairn_code cairn_srv_versions_to_remove(struct cairn_srv_tx *tx, int64_t run_id, size_t limit,
                                             struct cairn_srv_to_remove *ret,
                                             struct cairn_error *err) CAIRN_MUST_USE;

/* Gone for good at that time: no sweep of them is due any more, and no answer names them. */
enum cairn_code cairn_srv_versions_over(struct cairn_srv_tx *tx, uint64_t tick_ms, size_t limit,
                                        struct cairn_srv_ids *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Their rows go. The ids of the newest attempt are kept, since its processes could begin them once
 * more (Q11): a version id is never used for two saves. */
enum cairn_code cairn_srv_versions_forget(struct cairn_srv_tx *tx, const struct cairn_srv_ids *ids,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Is it one of those? */
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

/* In the order of lists: what was saved by the newest attempt, its highest step, stands first. */
struct cairn_srv_version_place {
    uint64_t attempt, step, n;
};
/* A page of a run's versions, in that order or from its other end, behind a place. */
struct cairn_srv_page {
    int64_t run_id;
    int state; /* enum cairn_state as it is shown (Q24), or -1: all but what is gone */
    bool rising;
    bool by_step; /* of a scan: by step, attempt and n instead */
    struct cairn_srv_version_place place;
    size_t limit;
};
enum cairn_code cairn_srv_versions_page(struct cairn_srv_tx *tx, const struct cairn_srv_page *page,
                                        cairn_srv_each_version *each, void *argument,
                                        struct cairn_error *err) CAIRN_MUST_USE;

/* Of such a page what filters ask of a row, for who looks at many and wants few: by an index of its
 * own where it is known whether the trash is meant. */
enum cairn_srv_trash { CAIRN_SRV_TRASH_OR_NOT, CAIRN_SRV_TRASH_ONLY, CAIRN_SRV_TRASH_NOT };
struct cairn_srv_version_brief {
    const char *id; /* the texts are valid during the call */
    struct cairn_srv_version_place place;
    enum cairn_state shown;
    bool trashed;
    int64_t at_ms; /* committed then, or begun where it is not committed */
    const char *labels;
};
/* *ret_go_on: false ends the list. */
typedef enum cairn_code cairn_srv_each_brief(void *argument,
                                             const struct cairn_srv_version_brief *row,
                                             bool *ret_go_on, struct cairn_error *err);
enum cairn_code cairn_srv_versions_scan(struct cairn_srv_tx *tx, const struct cairn_srv_page *page,
                                        enum cairn_srv_trash trash, cairn_srv_each_brief *each,
                                        void *argument, struct cairn_error *err) CAIRN_MUST_USE;

/* When the committed versions of a run's newest attempts were, in the order of lists. So many tell
 * when the last one was: a resume that went back commits lower steps of a higher attempt. */
#define CAIRN_SRV_COMMITS_LOOKED_AT 21
enum cairn_code cairn_srv_run_commits(struct cairn_srv_tx *tx, int64_t run_id, int64_t *ret_ms,
                                      size_t capacity, size_t *ret_count,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Recorded versions of a run, and whether their rows call them trashed. */
enum cairn_code
cairn_srv_versions_recorded(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                            enum cairn_code (*each)(void *argument, const char *id, uint64_t step,
                                                    bool trashed, struct cairn_error *err),
                            void *argument, struct cairn_error *err) CAIRN_MUST_USE;

/* ---- lineage ---- */

#define CAIRN_SRV_LINEAGE_MAX 1000

/* A JSON array, the version itself first. *ret_more: it is longer than is given. */
enum cairn_code cairn_srv_lineage(struct cairn_srv_tx *tx, const struct cairn_srv_version *version,
                                  json_t **ret, bool *ret_more,
                                  struct cairn_error *err) CAIRN_MUST_USE;

/* What a run says that it began from. */
struct cairn_srv_origin {
    struct cairn_run_name name; /* "" for none */
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

/* ---- deleted versions whose bytes the store keeps ---- */

#define CAIRN_SRV_LEFT_REASON_BYTES 200

/* What a sweep left. */
struct cairn_srv_left {
    enum cairn_code code;
    char reason[CAIRN_SRV_LEFT_REASON_BYTES]; /* as the store worded it */
    bool counted; /* false: the store does not tell; at least what the catalog knows of */
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
/* Nothing is left of it. */
enum cairn_code cairn_srv_not_freed_drop(struct cairn_srv_tx *tx, const char *version,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* The next round tries all of them. */
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
/* In the order of their ids, behind that one. */
enum cairn_code
cairn_srv_not_freed_each(struct cairn_srv_tx *tx, const char *after, uint64_t limit,
                         enum cairn_code (*each)(const struct cairn_srv_not_freed_row *row,
                                                 void *owner, struct cairn_error *err),
                         void *owner, struct cairn_error *err) CAIRN_MUST_USE;
