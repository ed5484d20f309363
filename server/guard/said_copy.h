/* SPDX-License-Identifier: Apache-2.0 */
/*
 * said_copy: .cairn/catalog/<generation>.json, the store's copy of user metadata: pins, aliases,
 * metrics, policies, quotas and tokens.
 *
 * Why:     the catalog alone holds this data, and its loss would lose it. A single document would
 *          be as large as a year of saves, and beyond 64 MiB none could be written.
 * Promise: 1   new metadata is in the store soon after `catalog-copy-interval`, at the next round
 *              of the sweep, at a clean stop, or after the next start.
 *          2   the number is a generation of the store that this server took for the copy (Q35):
 *              two servers never write one key, and a frozen server writes none.
 *          3   an older copy is deleted when two newer ones exist.
 *          4   no revoked token is imported, however old the copy (revoked.h).
 *          5   metadata of many versions is in objects of its own (pieces); a copy is imported with
 *              all of them or not at all.
 *          6   a copy takes at most a twentieth of the time: the next one waits accordingly.
 *          7   a piece has the versions whose ids share a prefix; its key is the SHA-256 of its
 *              bytes, so an existing piece is neither written again nor overwritten.
 *          8   a piece that a kept copy names is not deleted, nor is any piece while such a copy is
 *              unreadable.
 * Limits:  as server/ledger/said.h; a larger catalog is logged and reported by readyz. One piece in
 *          memory; 4,096 of them.
 * Threads: the sweeping thread; take: the reindex.
 * Next:    server/ledger/said.h; docs/format.md, "Copies of annotations, policies and tokens".
 */
#pragma once

#include "server/ledger/said.h"
#include "server/server.h"

struct srv_said_copy {
    uint64_t looked_ms, event; /* mono clock; number of the newest event; 0: never */
    bool too_large;
    uint64_t rest_ms; /* least time until the next look */
};
enum cairn_code srv_said_copy_write(struct srv_said_copy *copy, struct srv *server,
                                    struct cairn_store_worker *worker,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Imports a copy into the catalog: before 0 is the newest, 1 its predecessor. ret_key "": no copy;
 * on CAIRN_CORRUPT the damaged copy, of which nothing was imported. */
enum cairn_code srv_said_copy_take(struct srv *server, struct cairn_store_worker *worker,
                                   size_t before, struct cairn_key *ret_key, uint64_t *ret_rows,
                                   struct cairn_error *err) CAIRN_MUST_USE;
