/* SPDX-License-Identifier: Apache-2.0 */
/*
 * versions: rows of versions, their common rules, and aliases.
 *
 * Why:     one place decides which version `latest`, a step or an alias means, and what may change.
 *          A late begin must find its version ended before the first object is deleted (V12).
 * Promise: Q25  order is (line, step, attempt, n) over recorded, not superseded, untrashed
 *               versions.
 *          Q24  a committed version that is not recorded is shown as open.
 *          1   only cairn_srv_version_move changes a state, as api/lifecycle.def allows.
 *          2   an alias points at a committed version outside the trash, and keeps it there.
 *          3   of equal metrics the newer shown version (Q25) is the best (plan/retention.h#6).
 *          Q31  an id without a row gets one that is given up from the start; it counts as of the
 *               run's newest attempt, so that its id stays refused after the row is forgotten.
 *          Q30  a gone version gets an extra sweep only after its last regular one.
 * Limits:  labels, meta, warnings and reasons 1 MiB together; CAIRN_SRV_ALIASES_MAX aliases of a
 *          run, of CAIRN_SRV_ALIAS_BYTES_MAX.
 * Threads: inside a transaction; a struct belongs to its caller.
 * Next:    server/intake/verdicts.c, server/commit/commit.c, server/versions/annotate.c.
 */
#pragma once

#include "api/wire/policy.h"
#include "api/wire/words.h"
#include "common/json.h"
#include "server/db/sql.h"
#include "server/ledger/runs.h"

#define CAIRN_SRV_REASON_BYTES 512

struct cairn_manifest;

enum cairn_srv_on_exists {
    CAIRN_SRV_EXISTS_ERROR,
    CAIRN_SRV_EXISTS_NEW_VERSION,
    CAIRN_SRV_EXISTS_SUPERSEDE,
};

struct cairn_srv_version {
    struct cairn_version_id id;
    int64_t run_id;
    struct cairn_run_name name;
    uint64_t attempt, step;
    uint32_t n;
    uint64_t line; /* the attempt in whose line it counts (Q25); 0: its own */
    char nonce[CAIRN_NONCE_TEXT_BYTES];
    enum cairn_state state;
    bool recorded, superseded, trashed;
    uint64_t trashed_tick;
    uint32_t world_size;
    enum cairn_srv_on_exists on_exists;
    bool skip;
    char format[CAIRN_NAME_BYTES_MAX + 1];
    char *labels, *meta, *warnings; /* owned: JSON */
    char *metrics;                  /* owned: JSON, numbers by name */
    char *note;                     /* owned: "" for none */
    bool pinned, aliased;
    bool copied; /* has rows of copies (copies.h) */
    uint64_t bytes, shards;
    bool has_layout, has_writer, has_manifest;
    uint8_t layout[32];
    struct cairn_version_id layout_writer;
    uint8_t manifest_sha256[32];
    /* Why it was given up: a rank's failure, a refused begin, a failed check; else CAIRN_OK. */
    enum cairn_code code;
    char reason[CAIRN_SRV_REASON_BYTES];
    int http_status;     /* of the store's answer to the failed rank; 0: none */
    char request_id[48]; /* of the same answer; may be "" */
    int64_t created_ms, staged_ms, durable_ms, committed_ms;
    int64_t stall_ms; /* longest reported stall of a trainer; -1: none */
    uint64_t opened_tick, gone_tick, sweeps;
};
void cairn_srv_version_release(struct cairn_srv_version *version);
enum cairn_code cairn_srv_version_copy(const struct cairn_srv_version *version,
                                       struct cairn_srv_version *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;

CAIRN_SRV_WORD cairn_srv_version_expect(struct cairn_srv_tx *tx, const char *id,
                                        struct cairn_error *err) {
    return cairn_srv_sql_expect(tx, err, SQL(version_get), SQL_T(id));
}
/* CAIRN_NOT_FOUND: unknown id. */
enum cairn_code cairn_srv_version_get(struct cairn_srv_tx *tx, const char *id,
                                      struct cairn_srv_version *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Reads a row with VERSION_COLUMNS. */
enum cairn_code cairn_srv_version_row(const struct cairn_srv_rows *rows,
                                      struct cairn_srv_version *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;

/* Resolves a path's reference: a version id, a step, "latest", "best" or an alias. with_trash: a
 * step may name a trashed version. CAIRN_NOT_FOUND: none. */
struct cairn_srv_ref {
    const struct cairn_run_name *name;
    const char *text;
    bool with_trash;
};
enum cairn_code cairn_srv_version_find(struct cairn_srv_tx *tx, const struct cairn_srv_ref *ref,
                                       struct cairn_srv_version *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* The newest failed save of a step without other versions; else CAIRN_NOT_FOUND. */
enum cairn_code cairn_srv_version_find_given_up(struct cairn_srv_tx *tx,
                                                const struct cairn_srv_ref *ref,
                                                struct cairn_srv_version *ret,
                                                struct cairn_error *err) CAIRN_MUST_USE;
/* The version that `latest` means; *ret_found false: none. */
enum cairn_code cairn_srv_latest(struct cairn_srv_tx *tx, int64_t run_id, bool *ret_found,
                                 struct cairn_version_id *ret, uint64_t *ret_step,
                                 struct cairn_error *err) CAIRN_MUST_USE;
CAIRN_SRV_WORD cairn_srv_latest_expect(struct cairn_srv_tx *tx, int64_t run_id,
                                       struct cairn_error *err) {
    return cairn_srv_sql_expect(tx, err, SQL(version_latest), SQL_I(run_id));
}

/* The version that already has this step in the run: shown, or open with a lower n; "": none. */
enum cairn_code cairn_srv_version_at_step(struct cairn_srv_tx *tx, int64_t run_id, uint64_t step,
                                          uint64_t n, struct cairn_version_id *ret,
                                          struct cairn_error *err) CAIRN_MUST_USE;
CAIRN_SRV_WORD cairn_srv_version_at_step_expect(struct cairn_srv_tx *tx, int64_t run_id,
                                                uint64_t step, uint64_t n,
                                                struct cairn_error *err) {
    return cairn_srv_sql_expect(tx, err, SQL(version_at_step), SQL_I(run_id), SQL_I(step),
                                SQL_I(n));
}
/* Another open version of the attempt with an unsealed rank or unregistered shard; "": none. */
enum cairn_code cairn_srv_version_unfinished(struct cairn_srv_tx *tx, int64_t run_id,
                                             uint64_t attempt, const char *other,
                                             struct cairn_version_id *ret,
                                             struct cairn_error *err) CAIRN_MUST_USE;
/* The version for a resume at this step: the shown one, else a superseded one (V6); "": none. */
enum cairn_code cairn_srv_version_resumable(struct cairn_srv_tx *tx, int64_t run_id, uint64_t step,
                                            struct cairn_version_id *ret,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* *ret_known: it was committed here; *ret_shown: clients may know (recorded, or gone). */
enum cairn_code cairn_srv_version_was_committed(struct cairn_srv_tx *tx, const char *id,
                                                bool *ret_known, bool *ret_shown,
                                                struct cairn_error *err) CAIRN_MUST_USE;

struct cairn_srv_version_new {
    struct cairn_version_id id;
    const struct cairn_srv_run *run; /* with its newest attempt */
    uint64_t step, n, world_size;
    enum cairn_srv_on_exists on_exists;
    bool skip;
    const char *format;
    int64_t wall_ms;
    bool buried; /* given up in the same transaction: no event for its opening */
};
enum cairn_code cairn_srv_version_insert(struct cairn_srv_tx *tx,
                                         const struct cairn_srv_version_new *opened,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Sets labels and meta, both canonical; after rank 0's seal a begin (Q19) changes nothing. */
CAIRN_SRV_WORD cairn_srv_version_set_meta(struct cairn_srv_tx *tx, const char *id,
                                          const char *labels, const char *meta,
                                          struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(version_set_meta), SQL_T(id), SQL_T(labels),
                             SQL_T(meta));
}
/* Stores the commit's bytes, shards, digest and time from the version. */
enum cairn_code cairn_srv_version_set_committed(struct cairn_srv_tx *tx,
                                                const struct cairn_srv_version *version,
                                                const char *warnings,
                                                struct cairn_error *err) CAIRN_MUST_USE;
/* Reconcile: a version complete in the store becomes committed and recorded in any case. */
struct cairn_srv_version_taken {
    int64_t run_id;
    const struct cairn_version_id *id;
    const struct cairn_manifest *manifest;
    const uint8_t *manifest_sha256; /* 32 bytes */
    uint64_t line;                  /* from its record */
    int64_t committed_ms;           /* not 0 */
};
enum cairn_code cairn_srv_version_take(struct cairn_srv_tx *tx,
                                       const struct cairn_srv_version_taken *taken,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Reconcile: the record is missing. gone: all bytes, too; trashes it. Else waits for a record. */
enum cairn_code cairn_srv_version_settle_missing(struct cairn_srv_tx *tx, const char *id, bool gone,
                                                 struct cairn_error *err) CAIRN_MUST_USE;
/* Sets the row's trash state from the store's mark; a grace period begins now. */
enum cairn_code cairn_srv_version_follow_mark(struct cairn_srv_tx *tx, const char *id, bool trashed,
                                              struct cairn_error *err) CAIRN_MUST_USE;
/* Q4: supersedes committed versions beyond the choice (NULL: all); *ret lists them. */
enum cairn_code cairn_srv_versions_supersede_beyond(struct cairn_srv_tx *tx, int64_t run_id,
                                                    const struct cairn_version_id *choice,
                                                    uint64_t choice_step, struct cairn_srv_ids *ret,
                                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Q52: supersedes earlier committed versions of the same step. */
enum cairn_code cairn_srv_versions_supersede_step(struct cairn_srv_tx *tx,
                                                  const struct cairn_srv_version *version,
                                                  struct cairn_error *err) CAIRN_MUST_USE;
/* User annotations; labels of committed versions only: an open one's manifest is made from them. */
struct cairn_srv_annotations {
    const char *labels, *metrics, *note;
    bool pinned;
};
enum cairn_code cairn_srv_version_annotate(struct cairn_srv_tx *tx,
                                           const struct cairn_srv_version *version,
                                           const struct cairn_srv_annotations *said,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* Asserts that the move is listed; GIVE_UP stores code, reason, http_status and request_id. */
struct cairn_srv_move {
    enum cairn_event event;
    enum cairn_code code;
    const char *reason;
};
enum cairn_code cairn_srv_version_move(struct cairn_srv_tx *tx, struct cairn_srv_version *version,
                                       const struct cairn_srv_move *move,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Q22: true when all ranks are sealed and every sealed shard is registered. */
CAIRN_SRV_WORD cairn_srv_version_whole_expect(struct cairn_srv_tx *tx, const char *id,
                                              struct cairn_error *err) {
    return cairn_srv_sql_expect(tx, err, SQL(version_whole), SQL_T(id));
}
enum cairn_code cairn_srv_version_whole(struct cairn_srv_tx *tx,
                                        const struct cairn_srv_version *version, bool *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* True when all ranks are sealed. */
CAIRN_SRV_WORD cairn_srv_version_sealed_expect(struct cairn_srv_tx *tx, const char *id,
                                               struct cairn_error *err) {
    return cairn_srv_sql_expect(tx, err, SQL(version_sealed), SQL_T(id));
}
CAIRN_SRV_WORD cairn_srv_version_sealed(struct cairn_srv_tx *tx, const char *id, bool *ret,
                                        struct cairn_error *err) {
    return cairn_srv_sql_found(tx, ret, err, SQL(version_sealed), SQL_T(id));
}
/* Q29: the version that the newest attempt resumed from is needed until that attempt commits. */
CAIRN_SRV_WORD cairn_srv_version_needed(struct cairn_srv_tx *tx,
                                        const struct cairn_srv_version *version, bool *ret,
                                        struct cairn_error *err) {
    return cairn_srv_sql_found(tx, ret, err, SQL(run_needs_version), SQL_I(version->run_id),
                               SQL_T(version->id.text));
}
/* Trashes a committed version; a repeat changes nothing. reason, for the event, may be NULL. */
enum cairn_code cairn_srv_version_trash(struct cairn_srv_tx *tx,
                                        const struct cairn_srv_version *version, const char *reason,
                                        struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_version_untrash(struct cairn_srv_tx *tx,
                                          const struct cairn_srv_version *version,
                                          struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_version_supersede(struct cairn_srv_tx *tx, const char *id,
                                            struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_version_revive(struct cairn_srv_tx *tx, const char *id,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Q24: its record is in the store; *ret_changed false: already known. */
enum cairn_code cairn_srv_version_set_recorded(struct cairn_srv_tx *tx,
                                               const struct cairn_srv_version *version,
                                               bool *ret_changed,
                                               struct cairn_error *err) CAIRN_MUST_USE;
CAIRN_SRV_WORD cairn_srv_version_set_recorded_expect(struct cairn_srv_tx *tx, const char *id,
                                                     struct cairn_error *err) {
    return cairn_srv_sql_expect(tx, err, SQL(version_was_committed), SQL_T(id));
}
/* Q30: records one more sweep of a gone version's prefix; the first sets the later times. */
enum cairn_code cairn_srv_version_set_swept(struct cairn_srv_tx *tx,
                                            const struct cairn_srv_version *version, bool first,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* The displayed state: open until recorded (Q24). */
enum cairn_state cairn_srv_version_shown(const struct cairn_srv_version *version);
/* CAIRN_DELETED for a committed version that is no longer available, else CAIRN_OK. */
enum cairn_code cairn_srv_version_there(const struct cairn_srv_version *version,
                                        struct cairn_error *err) CAIRN_MUST_USE;
struct cairn_version_place cairn_srv_version_place(const struct cairn_srv_version *version);

#define CAIRN_SRV_ALIAS_BYTES_MAX 63
#define CAIRN_SRV_ALIASES_MAX 1000

/* "": none. */
enum cairn_code cairn_srv_alias_get(struct cairn_srv_tx *tx, int64_t run_id, const char *alias,
                                    struct cairn_version_id *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_alias_put(struct cairn_srv_tx *tx, int64_t run_id, const char *alias,
                                    const char *version, int64_t wall_ms,
                                    struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_alias_drop(struct cairn_srv_tx *tx, int64_t run_id, const char *alias,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* A JSON array of {alias, version, step, changed_at}, by name. */
enum cairn_code cairn_srv_aliases_of_run(struct cairn_srv_tx *tx, int64_t run_id, json_t **ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* A JSON array of names. */
enum cairn_code cairn_srv_aliases_of_version(struct cairn_srv_tx *tx, const char *version,
                                             json_t **ret, struct cairn_error *err) CAIRN_MUST_USE;
CAIRN_SRV_WORD cairn_srv_version_aliased(struct cairn_srv_tx *tx, const char *version, bool *ret,
                                         struct cairn_error *err) {
    return cairn_srv_sql_found(tx, ret, err, SQL(aliases_of_version), SQL_T(version));
}

/* Replaces a version's metrics, an object of numbers. */
struct cairn_srv_version;
enum cairn_code cairn_srv_metrics_put(struct cairn_srv_tx *tx,
                                      const struct cairn_srv_version *version,
                                      const json_t *metrics,
                                      struct cairn_error *err) CAIRN_MUST_USE;
CAIRN_SRV_WORD cairn_srv_metrics_drop(struct cairn_srv_tx *tx, const char *version,
                                      struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(metrics_drop), SQL_T(version));
}
/* The best by the policy's first metric; "": none. CAIRN_NOT_FOUND: no policy names a metric. */
enum cairn_code cairn_srv_best(struct cairn_srv_tx *tx, int64_t run_id,
                               const struct cairn_policy *policy, struct cairn_version_id *ret,
                               struct cairn_error *err) CAIRN_MUST_USE;

/* ---- versions known only to the store ---- */

/* The catalog's knowledge of a version found in the store. */
struct cairn_srv_met {
    struct cairn_run_name name;
    struct cairn_version_id id;
    uint64_t step;
    bool known; /* ret: has a row, and will be swept if needed */
    bool gone;  /* ret: has a row and had its last sweep */
    bool run;   /* ret: its run has a row */
};
enum cairn_code cairn_srv_met_look(struct cairn_srv_tx *tx, struct cairn_srv_met *met,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* *ret_done false: its state has changed. CAIRN_CATALOG_BEHIND: its run is frozen. */
enum cairn_code cairn_srv_met_bury(struct cairn_srv_tx *tx, struct cairn_srv_met *met,
                                   const char *reason, int64_t wall_ms, bool *ret_done,
                                   struct cairn_error *err) CAIRN_MUST_USE;
