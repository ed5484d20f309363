/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commit: turns a version whose ranks have all sealed into a checkpoint.
 *
 * Why:     proof and documents take seconds of store time, and a server that dies in between must
 *          leave a state that the next try can finish.
 * Promise: Q22  a version is committed in one transaction, after its proof and its documents.
 *          Q23  what is written is a pure function of the version's rows, so every step may be
 *               repeated, and what exists already is compared.
 *          1    a version is committed only with every shard in this server's store, in its size.
 *          2    CAIRN_CORRUPT about shards is a verdict and names node, rank and shard. It requires
 *               that the store is this catalog's own (store.json has its uuid): an unreachable
 *               store or missing mount is CAIRN_UNAVAILABLE and ends no version.
 *          3    on S3 the listing runs while the layout object and checksums.bin are written; the
 *               commit waits only for what it takes longer.
 *          4    differing replicated tensors are silent corruption: each is reported once, with the
 *               first rank and the first whose checksum differs; the commit goes on.
 * Limits:  those of a manifest (api/limits.h).
 * Threads: one version at a time (jobs.h#1).
 * Next:    server/guard/records.h writes the record after the transaction; store/whole.h.
 */
#pragma once

#include "server/server.h"

/* Also writes a missing record. CAIRN_OK also when nothing was to do. */
enum cairn_code srv_commit_run(struct srv *server, struct cairn_store_worker *worker,
                               const char *version_id, struct cairn_error *err) CAIRN_MUST_USE;
