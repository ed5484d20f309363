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
 * Limits:  CAIRN_SRV_COPIES_MAX stores of a version.
 * Threads: inside a transaction.
 * Next:    server/guard/stores.h; docs/tiers.md.
 */
#pragma once

#include "common/json.h"
#include "common/trace.h"
#include "plan/retention.h"
#include "server/db/sql.h"
#include "server/ledger/events.h"
#include "store/open.h"

#define CAIRN_SRV_TIERS_MAX CAIRN_STORES_MAX
#define CAIRN_SRV_TIER_NAME_BYTES CAIRN_STORE_NAME_BYTES
#define CAIRN_SRV_TIER_MAIN CAIRN_STORE_MAIN

enum cairn_srv_copy_state {
    CAIRN_SRV_COPY_MAKING,   /* wanted; may be incomplete */
    CAIRN_SRV_COPY_WHOLE,    /* complete, with its record */
    CAIRN_SRV_COPY_REMOVING, /* the record is deleted first */
    CAIRN_SRV_COPY_GONE,     /* deleted; late writes are swept with the version's */
};

struct cairn_srv_copy {
    char store[CAIRN_SRV_TIER_NAME_BYTES];
    enum cairn_srv_copy_state state;
    bool by_policy; /* made by a policy, which may remove it */
    int64_t changed_ms;
    uint64_t damaged;   /* damaged or missing objects; 0: none known */
    int64_t damaged_ms; /* when found */
};
#define CAIRN_SRV_COPIES_MAX CAIRN_SRV_TIERS_MAX
struct cairn_srv_copies {
    struct cairn_srv_copy copies[CAIRN_SRV_COPIES_MAX]; /* main, then by name */
    size_t count;
};
/* Includes main, which has a row only if it is not an intact copy. */
enum cairn_code cairn_srv_copies_get(struct cairn_srv_tx *tx, const char *version,
                                     struct cairn_srv_copies *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* NULL: no such copy ever. */
const struct cairn_srv_copy *cairn_srv_copies_find(const struct cairn_srv_copies *copies,
                                                   const char *store);
size_t cairn_srv_copies_whole(const struct cairn_srv_copies *copies);
/* WHOLE without known damage. */
bool cairn_srv_copy_sound(const struct cairn_srv_copy *copy);
/* A JSON array of copy_row (api/messages.def), without GONE copies. */
enum cairn_code cairn_srv_copies_json(const struct cairn_srv_copies *copies, json_t **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;

/* Inserts or updates the row, with its event (copy.made, copy.removing, copy.removed) and wake. */
enum cairn_code cairn_srv_copy_put(struct cairn_srv_tx *tx, const char *version,
                                   const struct cairn_srv_copy *copy,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Stores damaged and damaged_ms of a WHOLE copy; event: NULL, or written with the store's name. */
enum cairn_code cairn_srv_copy_damage_put(struct cairn_srv_tx *tx, const char *version,
                                          const struct cairn_srv_copy *copy,
                                          const enum cairn_srv_event *event,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Copies MAKING or REMOVING in that store, at most `limit`. */
struct cairn_srv_copy_left {
    struct cairn_version_id version;
    struct cairn_srv_copy copy;
};
enum cairn_code cairn_srv_copies_unfinished(struct cairn_srv_tx *tx, const char *store,
                                            size_t limit, struct cairn_srv_copy_left *ret,
                                            size_t *ret_count,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* Copies of all versions of a run that have rows. */
struct cairn_srv_run_copies {
    struct cairn_srv_copy_left *items; /* by version, then store; owned */
    size_t count, capacity;
};
void cairn_srv_run_copies_release(struct cairn_srv_run_copies *copies);
/* Open and committed versions outside the trash; after: only later ones in Q25 order. */
enum cairn_code cairn_srv_copies_of_run(struct cairn_srv_tx *tx, int64_t run_id,
                                        const struct cairn_plan_item *after,
                                        struct cairn_srv_run_copies *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* NULL: no row. */
const struct cairn_srv_copy *cairn_srv_run_copies_find(const struct cairn_srv_run_copies *copies,
                                                       const char *version, const char *store);
/* True when another store has a sound copy. */
bool cairn_srv_run_copies_elsewhere(const struct cairn_srv_run_copies *copies, const char *version,
                                    const char *store);
/* Number of damaged copies, and the first one by version and store. */
struct cairn_srv_damaged_copies {
    uint64_t count, step, objects;
    struct cairn_run_name name;
    char store[CAIRN_SRV_TIER_NAME_BYTES];
};
enum cairn_code cairn_srv_copies_damaged(struct cairn_srv_tx *tx,
                                         struct cairn_srv_damaged_copies *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
CAIRN_SRV_WORD cairn_srv_copies_forget(struct cairn_srv_tx *tx, const char *version,
                                       struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(copies_forget), SQL_T(version));
}

/* ---- ids of stores ---- */

/* "" for a store name never used. */
enum cairn_code cairn_srv_tier_uuid_get(struct cairn_srv_tx *tx, const char *store,
                                        char ret[CAIRN_UUID_TEXT_BYTES],
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Keeps the first uuid. CAIRN_FORBIDDEN: that store has another name here. */
enum cairn_code cairn_srv_tier_uuid_put(struct cairn_srv_tx *tx, const char *store,
                                        const char *uuid, struct cairn_error *err) CAIRN_MUST_USE;
/* True when the store was not compared with this catalog since it was rebuilt or restored. */
enum cairn_code cairn_srv_tier_unread_get(struct cairn_srv_tx *tx, const char *store, bool *ret,
                                          struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_tier_unread_put(struct cairn_srv_tx *tx, const char *store, bool unread,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Marks all named stores. */
CAIRN_SRV_WORD cairn_srv_tiers_unread_put(struct cairn_srv_tx *tx, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(stores_unread_put));
}
