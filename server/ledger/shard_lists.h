/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard_lists: the shards of a version that is not committed yet, read.
 *
 * Why:     the commit, lists and progress read the same rows in the same order.
 * Promise: 1   all come in the order of the manifest: names by bytes.
 * Limits:  a page's limit is its caller's; texts and bytes live during the call.
 * Threads: as the transaction.
 * Next:    server/ledger/shards.h writes them.
 */
#pragma once

#include "server/db/sql.h"

/* A shard of a version that is not committed yet; texts and bytes live during the call. */
struct cairn_srv_shard_row {
    const char *name, *node;
    uint64_t rank, size, part_bytes;
    uint32_t crc32c;
    bool registered;
    struct cairn_view blocks; /* empty in pages */
};
typedef enum cairn_code cairn_srv_each_shard(void *argument, const struct cairn_srv_shard_row *row,
                                             struct cairn_error *err);
/* The rows of shards_all, and of ranks_sealed (ranks.h). */
enum cairn_code cairn_srv_shards_all_expect(struct cairn_srv_tx *tx, const char *version,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* All of them in the order of the manifest: names by bytes. */
enum cairn_code cairn_srv_shards_all(struct cairn_srv_tx *tx, const char *version,
                                     cairn_srv_each_shard *each, void *argument,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Those behind a name, of one rank or of all. */
struct cairn_srv_shard_page {
    const char *version, *after;
    bool by_rank;
    uint64_t rank;
    size_t limit;
};
enum cairn_code cairn_srv_shards_page(struct cairn_srv_tx *tx,
                                      const struct cairn_srv_shard_page *page,
                                      cairn_srv_each_shard *each, void *argument,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* The one of this name; each is not called when there is none. */
enum cairn_code cairn_srv_shard_named(struct cairn_srv_tx *tx, const char *version,
                                      const char *name, cairn_srv_each_shard *each, void *argument,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Of a version that is not committed yet. */
struct cairn_srv_progress {
    uint64_t shards, registered, bytes, ranks_sealed;
};
enum cairn_code cairn_srv_version_progress(struct cairn_srv_tx *tx, const char *version,
                                           struct cairn_srv_progress *ret,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* About how much memory its rows and its rank tables need. */
enum cairn_code cairn_srv_version_weight(struct cairn_srv_tx *tx, const char *version,
                                         uint64_t *ret_bytes,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Drops what all versions that have their record left of shards, ranks and replica groups: of
 * servers that died before they did (cairn_srv_shards_drop). */
enum cairn_code cairn_srv_shards_drop_left(struct cairn_srv_tx *tx,
                                           struct cairn_error *err) CAIRN_MUST_USE;
