/* SPDX-License-Identifier: Apache-2.0 */
/*
 * promote: a version is copied whole to another store, under its own keys.
 *
 * Why:     the fast store is small and the durable one slow; and one store alone can be lost.
 * Promise: 1   the copy is wanted by a row (MAKING) before its first object is there, so a server
 *              that dies leaves nothing that the next one does not find and finish.
 *          2   order: shards, layout, the attempt's records, checksums.bin, manifest.json, a look
 *              at all of it, committed.json last: a copy that reads as whole is whole, whenever
 *              this process ends.
 *          3   the version is looked at again in each step that matters: one that is trashed or
 *              deleted meanwhile, or whose copy is to be removed, gets no committed.json.
 *          4   repeated, it sends what is not there yet, and nothing that is.
 *          5    within one S3 the store copies the parts itself (copy_shard.h#3).
 * Limits:  one shard after the other; copy_shard.h's memory and that of the documents.
 * Threads: any with a worker of the main store.
 * Next:    server/copies/copying_now.h, server/copies/copy_shard.h; docs/tiers.md.
 */
#pragma once

#include "server/guard/stores.h"
#include "server/ledger/versions.h"

/* Inside a change: the version shall lie there. *ret_whole: it does. CAIRN_NOT_COMMITTED,
 * CAIRN_IN_USE: it is being removed there. */
struct cairn_srv_promote_wish {
    const char *store;
    bool by_policy;
    int64_t wall_ms;
};
enum cairn_code cairn_srv_promote_want(struct cairn_srv_tx *tx,
                                       const struct cairn_srv_version *version,
                                       const struct cairn_srv_promote_wish *wish, bool *ret_whole,
                                       struct cairn_error *err) CAIRN_MUST_USE;

struct cairn_srv_promote {
    struct cairn_srv *server;
    struct cairn_store_worker *worker; /* of the main store */
    const char *version, *store;
    /* Now and then, in bytes; false: end here (CAIRN_CANCELLED), and the row stays as it is. */
    bool (*tell)(void *owner, uint64_t done, uint64_t total);
    void *owner;
    /* set */
    uint64_t copied_bytes; /* that were not there before */
    uint64_t within_bytes; /* of them, that one S3 has copied by itself */
};
/* What a row wants. CAIRN_OK also where it is whole already; CAIRN_ABORTED: nobody wants it any
 * more; CAIRN_BUSY: somebody else is at it. */
enum cairn_code cairn_srv_promote_run(struct cairn_srv_promote *promote,
                                      struct cairn_error *err) CAIRN_MUST_USE;
