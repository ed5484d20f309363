/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies: rows that say in which stores a version lies, and what is under way there.
 *
 * Why:     a copy is made in minutes and removed in minutes; what a server left in the middle must
 *          be found by the next one, and a version must never lose its last copy.
 * Promise: 1   without a row a version lies in the main store, and there alone, and nothing is
 *              known to be wrong with it.
 *          2   a store gets its first object of a version only after its row says MAKING, and the
 *              row says GONE only after the last one is deleted.
 *          3   what was found damaged of a copy stays known until all of it was read and is
 *              right, or the copy is gone. A catalog that is made again does not know it.
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
    CAIRN_SRV_COPY_MAKING,   /* wanted; objects may be there, a whole copy is not promised */
    CAIRN_SRV_COPY_WHOLE,    /* all of it, its record too */
    CAIRN_SRV_COPY_REMOVING, /* the record goes first, then the rest */
    CAIRN_SRV_COPY_GONE,     /* it was there: late writes are swept with the version's */
};

struct cairn_srv_copy {
    char store[CAIRN_SRV_TIER_NAME_BYTES];
    enum cairn_srv_copy_state state;
    bool by_policy; /* a policy made it, and may remove it */
    int64_t changed_ms;
    uint64_t damaged;   /* objects that were found damaged or missing; 0: none is known to be */
    int64_t damaged_ms; /* when */
};
#define CAIRN_SRV_COPIES_MAX CAIRN_SRV_TIERS_MAX
struct cairn_srv_copies {
    struct cairn_srv_copy copies[CAIRN_SRV_COPIES_MAX]; /* main, then by name */
    size_t count;
};
/* With main, which has a row only where it is not simply there. */
enum cairn_code cairn_srv_copies_get(struct cairn_srv_tx *tx, const char *version,
                                     struct cairn_srv_copies *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* NULL: it was never there. */
const struct cairn_srv_copy *cairn_srv_copies_find(const struct cairn_srv_copies *copies,
                                                   const char *store);
size_t cairn_srv_copies_whole(const struct cairn_srv_copies *copies);
/* Whole, and not known to be damaged. */
bool cairn_srv_copy_sound(const struct cairn_srv_copy *copy);
/* A JSON array of copy_row (api/messages.def): those that are not gone. */
enum cairn_code cairn_srv_copies_json(const struct cairn_srv_copies *copies, json_t **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;

/* Makes the row, or changes it; with its event, where somebody must hear of it (copy.made,
 * copy.removing, copy.removed). Wakes who waits for the version. */
enum cairn_code cairn_srv_copy_put(struct cairn_srv_tx *tx, const char *version,
                                   const struct cairn_srv_copy *copy,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* damaged and damaged_ms of a copy that is WHOLE were changed, and nothing else; event: NULL or
 * what is told of it, with the store as its reason. */
enum cairn_code cairn_srv_copy_damage_put(struct cairn_srv_tx *tx, const char *version,
                                          const struct cairn_srv_copy *copy,
                                          const enum cairn_srv_event *event,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* What is MAKING or REMOVING in that store, at most `limit`. */
struct cairn_srv_copy_left {
    struct cairn_version_id version;
    struct cairn_srv_copy copy;
};
enum cairn_code cairn_srv_copies_unfinished(struct cairn_srv_tx *tx, const char *store,
                                            size_t limit, struct cairn_srv_copy_left *ret,
                                            size_t *ret_count,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* Those of all versions of a run that have rows. */
struct cairn_srv_run_copies {
    struct cairn_srv_copy_left *items; /* by version, then store; owned */
    size_t count, capacity;
};
void cairn_srv_run_copies_release(struct cairn_srv_run_copies *copies);
/* Of what is open or committed and not in the trash. after: of versions after this one alone, in
 * the order of Q25; NULL: of all. */
enum cairn_code cairn_srv_copies_of_run(struct cairn_srv_tx *tx, int64_t run_id,
                                        const struct cairn_plan_item *after,
                                        struct cairn_srv_run_copies *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* NULL: there is no row. */
const struct cairn_srv_copy *cairn_srv_run_copies_find(const struct cairn_srv_run_copies *copies,
                                                       const char *version, const char *store);
/* Is there a sound copy of it in another store than this one? */
bool cairn_srv_run_copies_elsewhere(const struct cairn_srv_run_copies *copies, const char *version,
                                    const char *store);
/* Copies that are known to be damaged, and the first of them by version and store; step, store and
 * objects are set where count is not 0. */
struct cairn_srv_damaged_copies {
    uint64_t count, step, objects;
    struct cairn_run_name name;
    char store[CAIRN_SRV_TIER_NAME_BYTES];
};
enum cairn_code cairn_srv_copies_damaged(struct cairn_srv_tx *tx,
                                         struct cairn_srv_damaged_copies *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* With the version's row. */
CAIRN_SRV_WORD cairn_srv_copies_forget(struct cairn_srv_tx *tx, const char *version,
                                       struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(copies_forget), SQL_T(version));
}

/* ---- whose stores they are ---- */

/* "" where no store of that name was ever used. */
enum cairn_code cairn_srv_tier_uuid_get(struct cairn_srv_tx *tx, const char *store,
                                        char ret[CAIRN_UUID_TEXT_BYTES],
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Keeps the first that was given. CAIRN_FORBIDDEN: that store has another name here. */
enum cairn_code cairn_srv_tier_uuid_put(struct cairn_srv_tx *tx, const char *store,
                                        const char *uuid, struct cairn_error *err) CAIRN_MUST_USE;
/* What lies there was not compared with this catalog yet: the catalog was made again without it, or
 * is an old one. */
enum cairn_code cairn_srv_tier_unread_get(struct cairn_srv_tx *tx, const char *store, bool *ret,
                                          struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_tier_unread_put(struct cairn_srv_tx *tx, const char *store, bool unread,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Of all that have a name here. */
CAIRN_SRV_WORD cairn_srv_tiers_unread_put(struct cairn_srv_tx *tx, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(stores_unread_put));
}
