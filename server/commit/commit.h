/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commit: one version whose ranks have all sealed becomes a checkpoint.
 *
 * Why:     the proof and the documents take seconds of the store's time, and a death in the middle
 *          must leave something that the next try can finish.
 * Promise: Q22  a version is committed in one transaction, after its proof and its documents.
 *          Q23  what is written is a pure function of the version's rows, so every step may be
 *               repeated, and what is there already is compared.
 *          1    a version is committed only when every shard of its manifest is in this server's
 *               store with its size.
 *          2    CAIRN_CORRUPT about them is a verdict and names node, rank and shard. It is given
 *               only after the store was found to be this catalog's own (store.json of its uuid): a
 *               store that is away, or a mount that is gone, is CAIRN_UNAVAILABLE and ends no
 *               version.
 *          3    on S3 the commit waits for the listing only as long as it takes longer than the
 *               layout's object and checksums.bin, which are written meanwhile.
 *          4    replicated tensors that differ are silent corruption: each whose checksum differs
 *               between ranks is reported once, with the first rank and the first that differs from
 *               it; the commit goes on.
 * Limits:  those of a manifest (api/limits.h).
 * Threads: one version at a time (jobs.h#1).
 * Next:    server/guard/records.h for what follows the transaction;
 *          store/whole.h.
 */
#pragma once

#include "server/server.h"

/* Also writes a record that is missing. CAIRN_OK also when there was nothing to do. */
enum cairn_code cairn_srv_commit_run(struct cairn_srv *server, struct cairn_store_worker *worker,
                                     const char *version_id,
                                     struct cairn_error *err) CAIRN_MUST_USE;
