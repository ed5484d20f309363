/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies: the stores that hold a version, and copies and removals under way.
 *
 * Why:     making or removing a copy takes minutes; if its server stops, the next one must find the
 *          rest, and a version must never lose its last copy.
 * Promise: 1   a version without rows is in the main store only, without known damage.
 *          2   a store gets its first object of a version only after its row says MAKING, and the
 *              row says GONE only after the last one is deleted.
 *          3   known damage stays until the whole copy was read intact or is gone, or a catalog is
 *              rebuilt.
 * Limits:  SRV_COPIES_MAX stores of a version.
 * Threads: inside a transaction.
 * Next:    server/guard/stores.h; docs/tiers.md.
 */
#pragma once

#include "plan/retention.h"
#include "server/ledger/events.h"
#include "server/ledger/rows.h"
#include "store/open.h"

#define SRV_TIERS_MAX CAIRN_STORES_MAX
#define SRV_TIER_NAME_BYTES CAIRN_STORE_NAME_BYTES
#define SRV_TIER_MAIN CAIRN_STORE_MAIN

enum srv_copy_state {
    SRV_COPY_MAKING,   /* wanted; may be incomplete */
    SRV_COPY_WHOLE,    /* complete, with its record */
    SRV_COPY_REMOVING, /* the record is deleted first */
    SRV_COPY_GONE,     /* deleted; late writes are swept with the version's */
};

struct srv_copy {
    char store[SRV_TIER_NAME_BYTES];
    enum srv_copy_state state;
    bool by_policy; /* made by a policy, which may remove it */
    int64_t changed_ms;
    uint64_t damaged;   /* damaged or missing objects; 0: none known */
    int64_t damaged_ms; /* when found */
};
#define SRV_COPIES_MAX SRV_TIERS_MAX
struct srv_copies {
    struct srv_copy copies[SRV_COPIES_MAX]; /* main, then by name */
    size_t count;
};
/* Includes main, which has a row only if it is not an intact copy. */
enum cairn_code srv_copies_get(struct srv_tx *tx, const char *version, struct srv_copies *ret,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* NULL: no such copy ever. */
const struct srv_copy *srv_copies_find(const struct srv_copies *copies, const char *store);
size_t srv_copies_whole(const struct srv_copies *copies);
/* WHOLE without known damage. */
bool srv_copy_sound(const struct srv_copy *copy);
/* A JSON array of copy_row (api/messages.def), without GONE copies. */
enum cairn_code srv_copies_json(const struct srv_copies *copies, json_t **ret,
                                struct cairn_error *err) CAIRN_MUST_USE;

/* Inserts or updates the row, with its event (copy.made, copy.removing, copy.removed) and wake. */
enum cairn_code srv_copy_put(struct srv_tx *tx, const char *version, const struct srv_copy *copy,
                             struct cairn_error *err) CAIRN_MUST_USE;
/* Stores damaged and damaged_ms of a WHOLE copy; event: NULL, or written with the store's name. */
enum cairn_code srv_copy_damage_put(struct srv_tx *tx, const char *version,
                                    const struct srv_copy *copy, const enum srv_event *event,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Copies MAKING or REMOVING in that store, at most `limit`. */
struct srv_copy_left {
    struct cairn_version_id version;
    struct srv_copy copy;
};
enum cairn_code srv_copies_unfinished(struct srv_tx *tx, const char *store, size_t limit,
                                      struct srv_copy_left *ret, size_t *ret_count,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Copies of all versions of a run that have rows. */
struct srv_run_copies {
    struct srv_copy_left *items; /* by version, then store; owned */
    size_t count, capacity;
};
void srv_run_copies_release(struct srv_run_copies *copies);
/* Open and committed versions outside the trash; after: only later ones in Q25 order. */
enum cairn_code srv_copies_of_run(struct srv_tx *tx, int64_t run_id,
                                  const struct cairn_plan_item *after, struct srv_run_copies *ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* NULL: no row. */
const struct srv_copy *srv_run_copies_find(const struct srv_run_copies *copies, const char *version,
                                           const char *store);
/* True when another store has a sound copy. */
bool srv_run_copies_elsewhere(const struct srv_run_copies *copies, const char *version,
                              const char *store);
/* Number of damaged copies, and the first one by version and store. */
struct srv_damaged_copies {
    uint64_t count, step, objects;
    struct cairn_run_name name;
    char store[SRV_TIER_NAME_BYTES];
};
SRV_WORD srv_copies_damaged(struct srv_tx *tx, struct srv_damaged_copies *ret,
                            struct cairn_error *err) {
    bool there = false; /* no row: rows of a version that is being forgotten */
    *ret = (struct srv_damaged_copies){.count = 0};
    CAIRN_TRY(srv_sql_u64(tx, &ret->count, err, SQL(copies_damaged_count)));
    if (!ret->count) return CAIRN_OK;
    return srv_sql_row(tx, ROW(damaged_copy), ret, &there, err, SQL(copies_damaged_first));
}
SRV_RUNS(copies_forget, (const char *version), copies_forget, SQL_T(version));

/* ---- ids of stores ---- */

/* "" for a store name never used. */
SRV_WORD srv_tier_uuid_get(struct srv_tx *tx, const char *store, char ret[CAIRN_UUID_TEXT_BYTES],
                           struct cairn_error *err) {
    return srv_sql_text(tx, ret, CAIRN_UUID_TEXT_BYTES, err, SQL(store_uuid), SQL_T(store));
}
/* Keeps the first uuid. CAIRN_FORBIDDEN: that store has another name here. */
enum cairn_code srv_tier_uuid_put(struct srv_tx *tx, const char *store, const char *uuid,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* True when the store was not compared with this catalog since it was rebuilt or restored. */
enum cairn_code srv_tier_unread_get(struct srv_tx *tx, const char *store, bool *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code srv_tier_unread_put(struct srv_tx *tx, const char *store, bool unread,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Marks all named stores. */
SRV_WORD srv_tiers_unread_put(struct srv_tx *tx, struct cairn_error *err) {
    return srv_sql_run(tx, NULL, err, SQL(stores_unread_put));
}
