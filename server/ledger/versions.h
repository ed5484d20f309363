/* SPDX-License-Identifier: Apache-2.0 */
/*
 * versions: rows of versions, their common rules, and aliases.
 *
 * Why:     one place decides which version `latest`, a step or an alias means, and what may change.
 *          A late begin must find its version ended before the first object is deleted (V12).
 * Promise: Q25  order is (line, step, attempt, n) over recorded, not superseded, untrashed
 *               versions.
 *          Q24  a committed version that is not recorded is shown as open.
 *          1   only srv_version_move changes a state, as api/lifecycle.def allows.
 *          2   an alias points at a committed version outside the trash, and keeps it there.
 *          3   of equal metrics the newer shown version (Q25) is the best (plan/retention.h#6).
 *          Q31  an id without a row gets one that is given up from the start; it counts as of the
 *               run's newest attempt, so that its id stays refused after the row is forgotten.
 *          Q30  a gone version gets an extra sweep only after its last regular one.
 * Limits:  labels, meta, warnings and reasons 1 MiB together; SRV_ALIASES_MAX aliases of a
 *          run, of SRV_ALIAS_BYTES_MAX.
 * Threads: inside a transaction; a struct belongs to its caller.
 * Next:    server/intake/verdicts.c, server/commit/commit.c, server/versions/annotate.c.
 */
#pragma once

#include "api/wire/policy.h"
#include "api/wire/words.h"
#include "server/ledger/runs.h"

#define SRV_REASON_BYTES 512

struct cairn_manifest;

enum srv_on_exists {
    SRV_EXISTS_ERROR,
    SRV_EXISTS_NEW_VERSION,
    SRV_EXISTS_SUPERSEDE,
};

struct srv_version {
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
    enum srv_on_exists on_exists;
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
    char reason[SRV_REASON_BYTES];
    int http_status;     /* of the store's answer to the failed rank; 0: none */
    char request_id[48]; /* of the same answer; may be "" */
    int64_t created_ms, staged_ms, durable_ms, committed_ms;
    int64_t stall_ms; /* longest reported stall of a trainer; -1: none */
    uint64_t opened_tick, gone_tick, sweeps;
};
void srv_version_release(struct srv_version *version);
enum cairn_code srv_version_copy(const struct srv_version *version, struct srv_version *ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;

SRV_EXPECTS(version_expect, (const char *id), version_get, SQL_T(id));
/* CAIRN_NOT_FOUND: unknown id. */
enum cairn_code srv_version_get(struct srv_tx *tx, const char *id, struct srv_version *ret,
                                struct cairn_error *err) CAIRN_MUST_USE;
/* The same in a look of its own; releases *ret first. */
enum cairn_code srv_version_look(struct srv_catalog *catalog, const char *id,
                                 struct srv_version *ret, struct cairn_error *err) CAIRN_MUST_USE;
/* Reads a row with VERSION_COLUMNS. */
enum cairn_code srv_version_row(const struct srv_rows *rows, struct srv_version *ret,
                                struct cairn_error *err) CAIRN_MUST_USE;

/* Resolves a path's reference: a version id, a step, "latest", "best" or an alias. with_trash: a
 * step may name a trashed version. CAIRN_NOT_FOUND: none. */
struct srv_ref {
    const struct cairn_run_name *name;
    const char *text;
    bool with_trash;
};
enum cairn_code srv_version_find(struct srv_tx *tx, const struct srv_ref *ref,
                                 struct srv_version *ret, struct cairn_error *err) CAIRN_MUST_USE;
/* The newest failed save of a step without other versions; else CAIRN_NOT_FOUND. */
enum cairn_code srv_version_find_given_up(struct srv_tx *tx, const struct srv_ref *ref,
                                          struct srv_version *ret,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* The version that `latest` means; *ret_found false: none. */
enum cairn_code srv_latest(struct srv_tx *tx, int64_t run_id, bool *ret_found,
                           struct cairn_version_id *ret, uint64_t *ret_step,
                           struct cairn_error *err) CAIRN_MUST_USE;
SRV_EXPECTS(latest_expect, (int64_t run_id), version_latest, SQL_I(run_id));

/* The version that already has this step in the run: shown, or open with a lower n; "": none. */
SRV_READS_ID(version_at_step, (int64_t run_id, uint64_t step, uint64_t n), version_at_step,
             SQL_I(run_id), SQL_I(step), SQL_I(n));
SRV_EXPECTS(version_at_step_expect, (int64_t run_id, uint64_t step, uint64_t n), version_at_step,
            SQL_I(run_id), SQL_I(step), SQL_I(n));
/* Another open version of the attempt with an unsealed rank or unregistered shard; "": none. */
SRV_READS_ID(version_unfinished, (int64_t run_id, uint64_t attempt, const char *other),
             version_unfinished, SQL_I(run_id), SQL_I(attempt), SQL_T(other));
/* The version for a resume at this step: the shown one, else a superseded one (V6); "": none. */
SRV_READS_ID(version_resumable, (int64_t run_id, uint64_t step), version_resumable, SQL_I(run_id),
             SQL_I(step));
/* *ret_known: it was committed here; *ret_shown: clients may know (recorded, or gone). */
SRV_WORD srv_version_was_committed(struct srv_tx *tx, const char *id, bool *ret_known,
                                   bool *ret_shown, struct cairn_error *err) {
    int64_t shown = 0;
    CAIRN_TRY(srv_sql_number(tx, ret_known, &shown, err, SQL(version_was_committed), SQL_T(id)));
    *ret_shown = *ret_known && shown;
    return CAIRN_OK;
}

struct srv_version_new {
    struct cairn_version_id id;
    const struct srv_run *run; /* with its newest attempt */
    uint64_t step, n, world_size;
    enum srv_on_exists on_exists;
    bool skip;
    const char *format;
    int64_t wall_ms;
    bool buried; /* given up in the same transaction: no event for its opening */
};
enum cairn_code srv_version_insert(struct srv_tx *tx, const struct srv_version_new *opened,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Sets labels and meta, both canonical; after rank 0's seal a begin (Q19) changes nothing. */
SRV_RUNS(version_set_meta, (const char *id, const char *labels, const char *meta), version_set_meta,
         SQL_T(id), SQL_T(labels), SQL_T(meta));
/* Stores the commit's bytes, shards, digest and time from the version. */
enum cairn_code srv_version_set_committed(struct srv_tx *tx, const struct srv_version *version,
                                          const char *warnings,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Reconcile: a version complete in the store becomes committed and recorded in any case. */
struct srv_version_taken {
    int64_t run_id;
    const struct cairn_version_id *id;
    const struct cairn_manifest *manifest;
    const uint8_t *manifest_sha256; /* 32 bytes */
    uint64_t line;                  /* from its record */
    int64_t committed_ms;           /* not 0 */
};
enum cairn_code srv_version_take(struct srv_tx *tx, const struct srv_version_taken *taken,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* Reconcile: the record is missing. gone: all bytes, too; trashes it. Else waits for a record. */
enum cairn_code srv_version_settle_missing(struct srv_tx *tx, const char *id, bool gone,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* Sets the row's trash state from the store's mark; a grace period begins now. */
enum cairn_code srv_version_follow_mark(struct srv_tx *tx, const char *id, bool trashed,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* User annotations; labels of committed versions only: an open one's manifest is made from them. */
struct srv_annotations {
    const char *labels, *metrics, *note;
    bool pinned;
};
enum cairn_code srv_version_annotate(struct srv_tx *tx, const struct srv_version *version,
                                     const struct srv_annotations *said,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Asserts that the move is listed; GIVE_UP stores code, reason, http_status and request_id. */
struct srv_move {
    enum cairn_event event;
    enum cairn_code code;
    const char *reason;
};
enum cairn_code srv_version_move(struct srv_tx *tx, struct srv_version *version,
                                 const struct srv_move *move,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* Q22: true when all ranks are sealed and every sealed shard is registered. */
SRV_EXPECTS(version_whole_expect, (const char *id), version_whole, SQL_T(id));
SRV_WORD srv_version_whole(struct srv_tx *tx, const struct srv_version *version, bool *ret,
                           struct cairn_error *err) {
    uint64_t whole = 0;
    CAIRN_TRY(srv_sql_u64(tx, &whole, err, SQL(version_whole), SQL_T(version->id.text)));
    *ret = whole != 0;
    return CAIRN_OK;
}
/* True when all ranks are sealed. */
SRV_EXPECTS(version_sealed_expect, (const char *id), version_sealed, SQL_T(id));
SRV_FINDS(version_sealed, (const char *id), version_sealed, SQL_T(id));
/* Q29: the version that the newest attempt resumed from is needed until that attempt commits. */
SRV_FINDS(version_needed, (const struct srv_version *version), run_needs_version,
          SQL_I(version->run_id), SQL_T(version->id.text));
/* Trashes a committed version; a repeat changes nothing. reason, for the event, may be NULL. */
enum cairn_code srv_version_trash(struct srv_tx *tx, const struct srv_version *version,
                                  const char *reason, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code srv_version_untrash(struct srv_tx *tx, const struct srv_version *version,
                                    struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code srv_version_supersede(struct srv_tx *tx, const char *id,
                                      struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code srv_version_revive(struct srv_tx *tx, const char *id,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Q24: its record is in the store; *ret_changed false: already known. */
enum cairn_code srv_version_set_recorded(struct srv_tx *tx, const struct srv_version *version,
                                         bool *ret_changed, struct cairn_error *err) CAIRN_MUST_USE;
SRV_EXPECTS(version_set_recorded_expect, (const char *id), version_was_committed, SQL_T(id));
/* Q30: records one more sweep of a gone version's prefix; the first sets the later times. */
enum cairn_code srv_version_set_swept(struct srv_tx *tx, const struct srv_version *version,
                                      bool first, struct cairn_error *err) CAIRN_MUST_USE;
/* The displayed state: open until recorded (Q24). */
enum cairn_state srv_version_shown(const struct srv_version *version);
/* CAIRN_DELETED for a committed version that is no longer available, else CAIRN_OK. */
enum cairn_code srv_version_there(const struct srv_version *version,
                                  struct cairn_error *err) CAIRN_MUST_USE;
struct cairn_version_place srv_version_place(const struct srv_version *version);

#define SRV_ALIAS_BYTES_MAX 63
#define SRV_ALIASES_MAX 1000

/* "": none. */
SRV_READS_ID(alias_get, (int64_t run_id, const char *alias), alias_get, SQL_I(run_id),
             SQL_T(alias));
enum cairn_code srv_alias_put(struct srv_tx *tx, int64_t run_id, const char *alias,
                              const char *version, int64_t wall_ms,
                              struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code srv_alias_drop(struct srv_tx *tx, int64_t run_id, const char *alias,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* A JSON array of {alias, version, step, changed_at}, by name. */
enum cairn_code srv_aliases_of_run(struct srv_tx *tx, int64_t run_id, json_t **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* A JSON array of names. */
enum cairn_code srv_aliases_of_version(struct srv_tx *tx, const char *version, json_t **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
SRV_FINDS(version_aliased, (const char *version), aliases_of_version, SQL_T(version));

/* Replaces a version's metrics, an object of numbers. */
enum cairn_code srv_metrics_put(struct srv_tx *tx, const struct srv_version *version,
                                const json_t *metrics, struct cairn_error *err) CAIRN_MUST_USE;
SRV_RUNS(metrics_drop, (const char *version), metrics_drop, SQL_T(version));

/* ---- versions known only to the store ---- */

/* The catalog's knowledge of a version found in the store. */
struct srv_met {
    struct cairn_run_name name;
    struct cairn_version_id id;
    uint64_t step;
    bool known; /* ret: has a row, and will be swept if needed */
    bool gone;  /* ret: has a row and had its last sweep */
    bool run;   /* ret: its run has a row */
};
enum cairn_code srv_met_look(struct srv_tx *tx, struct srv_met *met,
                             struct cairn_error *err) CAIRN_MUST_USE;
/* *ret_done false: its state has changed. CAIRN_CATALOG_BEHIND: its run is frozen. */
enum cairn_code srv_met_bury(struct srv_tx *tx, struct srv_met *met, const char *reason,
                             int64_t wall_ms, bool *ret_done,
                             struct cairn_error *err) CAIRN_MUST_USE;
