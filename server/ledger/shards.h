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
#include "server/ledger/versions.h"

/* A node's report of a shard; texts live as long as the request body. */
struct srv_shard_said {
    struct cairn_msg_registration msg;
    uint32_t crc32c;
    struct cairn_buf blocks;
};
struct srv_seal_said {
    struct cairn_msg_rank_seal msg; /* table NULL: no tensors */
    uint8_t table[32];
    struct cairn_buf replicated_text;
    struct cairn_buf labels_text, meta_text; /* canonical; ignored where msg has none */
};
struct srv_registration {
    const struct srv_version *version; /* must be open */
    const char *node;
    int64_t wall_ms;
    const struct srv_shard_said *shards;
    size_t shard_count;
    const struct srv_seal_said *seals;
    size_t seal_count;
};
enum cairn_code srv_shards_register(struct srv_tx *tx, const struct srv_registration *batch,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* srv_sql_expect for the first reads of register. */
enum cairn_code srv_shards_expect(struct srv_tx *tx, const char *version,
                                  const struct srv_shard_said *shards, size_t count,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* All shards are sealed and registered. */
SRV_RUNS(version_set_durable, (const char *version, int64_t wall_ms), version_set_durable,
         SQL_T(version), SQL_I(wall_ms));
SRV_FINDS(rank_sealed, (const char *version, uint64_t rank), rank_sealed, SQL_T(version),
          SQL_I(rank));
enum cairn_code srv_shards_count(struct srv_tx *tx, const char *version, uint64_t *ret_known,
                                 uint64_t *ret_registered, struct cairn_error *err) CAIRN_MUST_USE;
/* Appends {shard, rank, node, state} for sealed shards that are not registered. */
enum cairn_code srv_shards_missing(struct srv_tx *tx, const char *version, json_t *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Drops shards, ranks and replica groups of a version that is no longer open. */
SRV_WORD srv_shards_drop(struct srv_tx *tx, const char *version, struct cairn_error *err) {
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(shards_drop), SQL_T(version)));
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(ranks_drop), SQL_T(version)));
    return srv_sql_run(tx, NULL, err, SQL(groups_drop), SQL_T(version));
}

/* A shard of an uncommitted version; texts and bytes live until the next row. */
struct srv_shard_row {
    const char *name, *node;
    uint64_t rank, size, part_bytes;
    uint32_t crc32c;
    bool registered;
    struct cairn_view blocks; /* empty in pages */
};
SRV_WORD srv_shards_all_expect(struct srv_tx *tx, const char *version, struct cairn_error *err) {
    CAIRN_TRY(srv_sql_expect(tx, err, SQL(shards_of_version), SQL_T(version)));
    return srv_sql_expect(tx, err, SQL(ranks_of_version), SQL_T(version));
}
SRV_OPENS(shards_all, (const char *version), shards_of_version, SQL_T(version));
/* Shards after a name, of one rank or of all. */
struct srv_shard_page {
    const char *version, *after;
    bool by_rank;
    uint64_t rank;
    size_t limit;
};
SRV_WORD srv_shards_page(struct srv_tx *tx, const struct srv_shard_page *page, struct srv_rows *ret,
                         struct cairn_error *err) {
    return page->by_rank
               ? srv_sql_open(tx, ret, err, SQL(shards_page_of_rank), SQL_T(page->version),
                              SQL_I(page->rank), SQL_T(page->after), SQL_I(page->limit))
               : srv_sql_open(tx, ret, err, SQL(shards_page), SQL_T(page->version),
                              SQL_T(page->after), SQL_I(page->limit));
}
/* The shard of this name; no row without one. */
SRV_OPENS(shard_named, (const char *version, const char *name), shard_shown, SQL_T(version),
          SQL_T(name));
struct srv_progress {
    uint64_t shards, registered, bytes, ranks_sealed;
};
SRV_WORD srv_version_progress(struct srv_tx *tx, const char *version, struct srv_progress *ret,
                              struct cairn_error *err) {
    bool found = false;
    CAIRN_TRY(
        srv_sql_row(tx, ROW(progress), ret, &found, err, SQL(version_counts), SQL_T(version)));
    CAIRN_ASSERT(found);
    return CAIRN_OK;
}
/* Estimates the memory for its rows and rank tables. */
enum cairn_code srv_version_weight(struct srv_tx *tx, const char *version, uint64_t *ret_bytes,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Drops leftover rows of all recorded versions, whose servers died before srv_shards_drop. */
SRV_WORD srv_shards_drop_left(struct srv_tx *tx, struct cairn_error *err) {
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(shards_drop_left)));
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(ranks_drop_left)));
    return srv_sql_run(tx, NULL, err, SQL(groups_drop_left));
}

/* ---- ranks that have begun, and their replica groups ---- */

SRV_RUNS(rank_join, (const char *version, uint64_t rank, const char *node), rank_insert,
         SQL_T(version), SQL_I(rank), SQL_T(node));
/* The lowest other rank that has begun; 0: none. */
SRV_WORD srv_rank_other(struct srv_tx *tx, const char *version, uint64_t rank, uint64_t *ret,
                        struct cairn_error *err) {
    return srv_sql_u64(tx, ret, err, SQL(rank_first_other), SQL_T(version), SQL_I(rank));
}
/* The first rank's words for a group stay; returned in *ret_words, its rank in *ret_first. */
struct srv_group_said {
    const char *name, *words;
    uint64_t rank;
};
enum cairn_code srv_group_join(struct srv_tx *tx, const char *version,
                               const struct srv_group_said *said, struct cairn_buf *ret_words,
                               uint64_t *ret_first, struct cairn_error *err) CAIRN_MUST_USE;

/* Text about two differing lists while the differing tensor is sought
 * (server/intake/begin.c); survives the version's groups. get appends nothing if there is
 * none. settle makes it the ended version's reason. */
enum cairn_code srv_dispute_get(struct srv_tx *tx, const char *version, struct cairn_buf *ret,
                                struct cairn_error *err) CAIRN_MUST_USE;
SRV_RUNS(dispute_put, (const char *version, const char *words), dispute_put, SQL_T(version),
         SQL_T(words));
SRV_WORD srv_dispute_settle(struct srv_tx *tx, const char *version, const char *reason,
                            struct cairn_error *err) {
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(dispute_drop), SQL_T(version)));
    return srv_sql_run(tx, NULL, err, SQL(version_set_reason), SQL_T(version), SQL_T(reason));
}

/* A sealed rank; the text lives until the next row. */
struct srv_rank_sealed {
    uint32_t rank;
    bool has_table; /* false: no tensors */
    uint8_t table[32];
    const char *replicated; /* JSON, "" for none */
};
/* Rows of sealed ranks in ascending order. */
SRV_OPENS(ranks_sealed, (const char *version), ranks_of_version, SQL_T(version));
