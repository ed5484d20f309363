/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shards: the shards, ranks, replica groups and seals of an open version.
 *
 * Why:     a node's report is compared with all earlier ones in one transaction (Q16, Q33), and a
 *          rank with the first that began (Q10); commit, lists and progress read the same rows in
 *          one order. After the commit only the manifest lists the shards.
 * Promise: 1   a batch is accepted whole, or refused with a message that names the conflict.
 *          2   a seal is final and counted once: a repeat is no change, a different one a conflict.
 *          3   the cost of a batch is independent of the number of ranks and shards.
 *          4   rows come in the manifest's order: names by bytes.
 *          5   a rank that joins again changes nothing.
 * Limits:  lists of missing shards name 100; a page's limit is its caller's.
 * Threads: inside a transaction; texts and bytes of a row live during the call.
 * Next:    server/intake/register.c, server/intake/begin.c, server/ledger/layouts.h.
 */
#pragma once

#include "api/wire/messages.h"
#include "server/db/sql.h"
#include "server/ledger/versions.h"

/* A node's report of a shard; texts live as long as the request body. */
struct cairn_srv_shard_said {
    struct cairn_msg_registration msg;
    uint32_t crc32c;
    struct cairn_buf blocks;
};
struct cairn_srv_seal_said {
    struct cairn_msg_rank_seal msg; /* table NULL: no tensors */
    uint8_t table[32];
    struct cairn_buf replicated_text;
    struct cairn_buf labels_text, meta_text; /* canonical; ignored where msg has none */
};
struct cairn_srv_registration {
    const struct cairn_srv_version *version; /* must be open */
    const char *node;
    int64_t wall_ms;
    const struct cairn_srv_shard_said *shards;
    size_t shard_count;
    const struct cairn_srv_seal_said *seals;
    size_t seal_count;
};
enum cairn_code cairn_srv_shards_register(struct cairn_srv_tx *tx,
                                          const struct cairn_srv_registration *batch,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* cairn_srv_sql_expect for the first reads of register. */
enum cairn_code cairn_srv_shards_expect(struct cairn_srv_tx *tx, const char *version,
                                        const struct cairn_srv_shard_said *shards, size_t count,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* All shards are sealed and registered. */
CAIRN_SRV_WORD cairn_srv_version_set_durable(struct cairn_srv_tx *tx, const char *version,
                                             int64_t wall_ms, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(version_set_durable), SQL_T(version),
                             SQL_I(wall_ms));
}
CAIRN_SRV_WORD cairn_srv_rank_sealed(struct cairn_srv_tx *tx, const char *version, uint64_t rank,
                                     bool *ret, struct cairn_error *err) {
    return cairn_srv_sql_found(tx, ret, err, SQL(rank_sealed), SQL_T(version), SQL_I(rank));
}
enum cairn_code cairn_srv_shards_count(struct cairn_srv_tx *tx, const char *version,
                                       uint64_t *ret_known, uint64_t *ret_registered,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Appends {shard, rank, node, state} for sealed shards that are not registered. */
enum cairn_code cairn_srv_shards_missing(struct cairn_srv_tx *tx, const char *version, json_t *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Drops shards, ranks and replica groups of a version that is no longer open. */
enum cairn_code cairn_srv_shards_drop(struct cairn_srv_tx *tx, const char *version,
                                      struct cairn_error *err) CAIRN_MUST_USE;

/* A shard of an uncommitted version; texts and bytes live during the call. */
struct cairn_srv_shard_row {
    const char *name, *node;
    uint64_t rank, size, part_bytes;
    uint32_t crc32c;
    bool registered;
    struct cairn_view blocks; /* empty in pages */
};
typedef enum cairn_code cairn_srv_each_shard(void *argument, const struct cairn_srv_shard_row *row,
                                             struct cairn_error *err);
enum cairn_code cairn_srv_shards_all_expect(struct cairn_srv_tx *tx, const char *version,
                                            struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_shards_all(struct cairn_srv_tx *tx, const char *version,
                                     cairn_srv_each_shard *each, void *argument,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Shards after a name, of one rank or of all. */
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
/* The shard of this name; each is not called without one. */
enum cairn_code cairn_srv_shard_named(struct cairn_srv_tx *tx, const char *version,
                                      const char *name, cairn_srv_each_shard *each, void *argument,
                                      struct cairn_error *err) CAIRN_MUST_USE;
struct cairn_srv_progress {
    uint64_t shards, registered, bytes, ranks_sealed;
};
enum cairn_code cairn_srv_version_progress(struct cairn_srv_tx *tx, const char *version,
                                           struct cairn_srv_progress *ret,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* Estimates the memory for its rows and rank tables. */
enum cairn_code cairn_srv_version_weight(struct cairn_srv_tx *tx, const char *version,
                                         uint64_t *ret_bytes,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Drops leftover rows of all recorded versions, whose servers died before cairn_srv_shards_drop. */
enum cairn_code cairn_srv_shards_drop_left(struct cairn_srv_tx *tx,
                                           struct cairn_error *err) CAIRN_MUST_USE;

/* ---- ranks that have begun, and their replica groups ---- */

CAIRN_SRV_WORD cairn_srv_rank_join(struct cairn_srv_tx *tx, const char *version, uint64_t rank,
                                   const char *node, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(rank_insert), SQL_T(version), SQL_I(rank),
                             SQL_T(node));
}
/* The lowest other rank that has begun; 0: none. */
enum cairn_code cairn_srv_rank_other(struct cairn_srv_tx *tx, const char *version, uint64_t rank,
                                     uint64_t *ret, struct cairn_error *err) CAIRN_MUST_USE;
/* The first rank's words for a group stay; returned in *ret_words, its rank in *ret_first. */
struct cairn_srv_group_said {
    const char *name, *words;
    uint64_t rank;
};
enum cairn_code cairn_srv_group_join(struct cairn_srv_tx *tx, const char *version,
                                     const struct cairn_srv_group_said *said,
                                     struct cairn_buf *ret_words, uint64_t *ret_first,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* Text about two differing lists while the differing tensor is sought
 * (server/versions/list_calls.h); survives the version's groups. get appends nothing if there is
 * none. settle makes it the ended version's reason. */
enum cairn_code cairn_srv_dispute_get(struct cairn_srv_tx *tx, const char *version,
                                      struct cairn_buf *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
CAIRN_SRV_WORD cairn_srv_dispute_put(struct cairn_srv_tx *tx, const char *version,
                                     const char *words, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(dispute_put), SQL_T(version), SQL_T(words));
}
enum cairn_code cairn_srv_dispute_settle(struct cairn_srv_tx *tx, const char *version,
                                         const char *reason,
                                         struct cairn_error *err) CAIRN_MUST_USE;

/* A sealed rank; the text lives during the call. */
struct cairn_srv_rank_sealed {
    uint32_t rank;
    bool has_table; /* false: no tensors */
    uint8_t table[32];
    const char *replicated; /* JSON, "" for none */
};
/* Sealed ranks in ascending order. */
enum cairn_code cairn_srv_ranks_sealed(
    struct cairn_srv_tx *tx, const char *version,
    enum cairn_code (*each)(void *argument, const struct cairn_srv_rank_sealed *rank,
                            struct cairn_error *err),
    void *argument, struct cairn_error *err) CAIRN_MUST_USE;
