/* SPDX-License-Identifier: Apache-2.0 */
/*
 * said_copy: .cairn/catalog/<generation>.json, which keeps in the store what people have said.
 *
 * Why:     pins, aliases, metrics, policies, quotas and tokens stand in the catalog alone; its loss
 *          would take them along. One document of it was as large as a year of saves, and beyond 64
 *          MiB none was written.
 * Promise: 1   what was said is in the store a little after `catalog-copy-interval`, at the next
 *              round of the sweep, at a clean stop, or after the next start.
 *          2   the number is one of the store's generation that this server took for it (Q35): two
 *              servers never write one key, and a server that is frozen writes none.
 *          3   an older copy is deleted when two newer ones are there.
 *          4   no token that was revoked is taken over, however old the copy (revoked.h).
 *          5   where something was said of many versions, that is in objects of its own
 *              (said_copy.h), and a copy is taken over with all of them or not at all.
 *          6   a look takes a twentieth of the time: the next one waits for so long.
 *          7   a piece has the versions whose ids begin alike; its key is the SHA-256 of its bytes,
 *              so one that is there is not written again, and none is ever written over.
 *          8   a piece that a kept copy names is not deleted, nor is any where such a copy cannot
 *              be read.
 * Limits:  as server/ledger/said.h; a catalog with more to say logs that, and readyz says so. One
 *          piece in memory; 4,096 of them.
 * Threads: the sweeping thread; take by who reindexes.
 * Next:    server/ledger/said.h; docs/format.md, "The catalog's own words".
 */
#pragma once

#include "common/json.h"
#include "server/ledger/said.h"
#include "server/server.h"

struct cairn_srv_said_copy {
    uint64_t looked_ms, event; /* mono clock, number of the newest event; 0: never */
    bool too_large;            /* logged */
    uint64_t rest_ms;          /* until the next look, at least */
};
/* Where something was said since. */
enum cairn_code cairn_srv_said_copy_write(struct cairn_srv_said_copy *copy,
                                          struct cairn_srv *server,
                                          struct cairn_store_worker *worker,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* A copy into the catalog: 0 is the newest, 1 the one before. ret_key "": there is none; on
 * CAIRN_CORRUPT the one that is no copy, and nothing of it was taken. */
enum cairn_code cairn_srv_said_copy_take(struct cairn_srv *server,
                                         struct cairn_store_worker *worker, size_t before,
                                         struct cairn_key *ret_key, uint64_t *ret_rows,
                                         struct cairn_error *err) CAIRN_MUST_USE;
