/* SPDX-License-Identifier: Apache-2.0 */
/*
 * values: what the catalog knows about itself: whose store it describes, the store's generation as
 * it was last raised, and catalog time.
 *
 * Why:     rules of time count in a clock that goes on with the catalog and stands while no server
 *          runs (Q34), and a catalog must know which store it belongs to (Q35).
 * Promise: Q34  catalog time is one row, raised by compare-and-set.
 * Limits:  -
 * Threads: inside a transaction.
 * Next:    server/guard/identity.h, server/sweep/sweep.c.
 */
#pragma once

#include "common/trace.h"
#include "server/db/sql.h"

enum cairn_code cairn_srv_tick_get(struct cairn_srv_tx *tx, int64_t *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_tick_expect(struct cairn_srv_tx *tx,
                                      struct cairn_error *err) CAIRN_MUST_USE; /* sql.h */
uint64_t cairn_srv_tick(struct cairn_srv_tx *tx); /* catalog time in ms; 0 when unreadable */
/* From seen_ms, which this change has read, to seen_ms + step_ms. */
enum cairn_code cairn_srv_tick_raise(struct cairn_srv_tx *tx, uint64_t seen_ms, uint64_t step_ms,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* One text by its name; "" where there is none. */
enum cairn_code cairn_srv_value_get(struct cairn_srv_tx *tx, const char *name, char *ret,
                                    size_t capacity, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_value_put(struct cairn_srv_tx *tx, const char *name, const char *value,
                                    struct cairn_error *err) CAIRN_MUST_USE;

struct cairn_srv_store_seen {
    char uuid[CAIRN_UUID_TEXT_BYTES]; /* "" in a new catalog */
    uint64_t generation;
};
enum cairn_code cairn_srv_store_seen_get(struct cairn_srv_tx *tx, struct cairn_srv_store_seen *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_store_seen_put(struct cairn_srv_tx *tx,
                                         const struct cairn_srv_store_seen *seen,
                                         struct cairn_error *err) CAIRN_MUST_USE;
