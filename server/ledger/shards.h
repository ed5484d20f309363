/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shards: the shards, ranks, replica groups and seals of an open version.
 *
 * Why:     what a node says of its shards is compared with all that was said before, in one
 *          transaction (Q16, Q33); ranks of one save are compared with the first that began (Q10);
 *          the commit, lists and progress read the same rows in the same order. From the commit on
 *          the manifest alone knows the shards.
 * Promise: 1   a batch is taken whole, or refused in words that name what does not hold.
 *          2   a seal is final and counted once a rank: the same again is no change, another one is
 *              a conflict.
 *          3   the cost of a batch does not depend on how many ranks and shards there are.
 *          4   all come in the order of the manifest: names by bytes.
 *          5   a rank that joins again changes nothing.
 * Limits:  lists of missing shards name 100; a page's limit is its caller's.
 * Threads: inside a transaction; texts and bytes of a row live during the call.
 * Next:    server/intake/register.c, server/intake/begin.c, server/ledger/layouts.h.
 */
#pragma once

#include "api/wire/messages.h"
#include "server/db/sql.h"
#include "server/ledger/versions.h"

/* As a node says it; the texts live as long as the call's body. */
struct cairn_srv_shard_said {
    struct cairn_msg_registration msg;
    uint32_t crc32c;
    struct cairn_buf blocks;
};
struct cairn_srv_seal_said {
    struct cairn_msg_rank_seal msg; /* table NULL: no tensors */
    uint8_t table[32];
    struct cairn_buf replicated_text;
    struct cairn_buf labels_text, meta_text; /* canonical; of no meaning where msg has none */
};
struct cairn_srv_registration {
    const struct cairn_srv_version *version; /* an open one */
    const char *node;
    int64_t wall_ms; /* now */
    const struct cairn_srv_shard_said *shards;
    size_t shard_count;
    const struct cairn_srv_seal_said *seals;
    size_t seal_count;
};
enum cairn_code cairn_srv_shards_register(struct cairn_srv_tx *tx,
                                          const struct cairn_srv_registration *batch,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* What register looks at first: said by its caller, together with what that looks at itself. */
enum cairn_code cairn_srv_shards_expect(struct cairn_srv_tx *tx, const char *version,
                                        const struct cairn_srv_shard_said *shards, size_t count,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* All of it is sealed and registered now. */
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
/* Appends {shard, rank, node, state} for those that are sealed and not registered. */
enum cairn_code cairn_srv_shards_missing(struct cairn_srv_tx *tx, const char *version, json_t *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Of a version that is no longer open: its shards, ranks and replica groups. */
enum cairn_code cairn_srv_shards_drop(struct cairn_srv_tx *tx, const char *version,
                                      struct cairn_error *err) CAIRN_MUST_USE;

/* ---- the shards as they are read ---- */

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
/* The rows of shards_all, and of ranks_sealed (shards.h). */
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

/* ---- ranks that have begun, and their groups ---- */

CAIRN_SRV_WORD cairn_srv_rank_join(struct cairn_srv_tx *tx, const char *version, uint64_t rank,
                                   const char *node, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(rank_insert), SQL_T(version), SQL_I(rank),
                             SQL_T(node));
}
/* The lowest rank that has begun, other than this one; 0 when there is none. */
enum cairn_code cairn_srv_rank_other(struct cairn_srv_tx *tx, const char *version, uint64_t rank,
                                     uint64_t *ret, struct cairn_error *err) CAIRN_MUST_USE;
/* What a group's first rank said of it stays; *ret_words is that, and *ret_first that rank. */
struct cairn_srv_group_said {
    const char *name, *words;
    uint64_t rank;
};
enum cairn_code cairn_srv_group_join(struct cairn_srv_tx *tx, const char *version,
                                     const struct cairn_srv_group_said *said,
                                     struct cairn_buf *ret_words, uint64_t *ret_first,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* What is known of two lists that differ, while it is sought in which tensor they do (see
 * server/versions/list_calls.h); it stays when the version's groups go. get: appends nothing where
 * there is none. settle: the version, which has ended, keeps these words as its reason. */
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
    bool has_table; /* it has tensors */
    uint8_t table[32];
    const char *replicated; /* JSON, "" for none */
};
/* Sealed ranks, rising. */
enum cairn_code cairn_srv_ranks_sealed(
    struct cairn_srv_tx *tx, const char *version,
    enum cairn_code (*each)(void *argument, const struct cairn_srv_rank_sealed *rank,
                            struct cairn_error *err),
    void *argument, struct cairn_error *err) CAIRN_MUST_USE;
