/* SPDX-License-Identifier: Apache-2.0 */
/* Shards, ranks and seals of an open version as rows; see shards.h. */
#include "server/catalog/shards.h"

#include <inttypes.h>
#include <stdio.h>

#include "api/manifest.h"
#include "api/shard_names.h"
#include "api/table.h"
#include "server/catalog/layouts.h"
#include "server/catalog/sql.h"

/* ---- one shard ---- */

static enum cairn_code check_rank(const struct cairn_srv_registration *batch, uint64_t rank,
                                  struct cairn_error *err) {
    if (rank < batch->version->world_size) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "rank %" PRIu64 " of a world of %u", rank,
                      batch->version->world_size);
}

enum cairn_code cairn_srv_rank_sealed(struct cairn_srv_tx *tx, const char *version, uint64_t rank,
                                      bool *ret, struct cairn_error *err) {
    return cairn_srv_sql_found(tx, ret, err, SQL(rank_sealed), SQL_T(version), SQL_I(rank));
}

/* What is there under this name against what is said now. */
static enum cairn_code compare_shard(const struct cairn_srv_rows *rows,
                                     const struct cairn_srv_shard_said *shard,
                                     struct cairn_error *err) {
    if (cairn_srv_rows_u64(rows, 0) != shard->msg.rank)
        return cairn_fail(err, CAIRN_SHARD_CONFLICT,
                          "shard \"%s\" is rank %" PRIu64 "'s, not rank %" PRIu64 "'s",
                          shard->msg.name, cairn_srv_rows_u64(rows, 0), shard->msg.rank);
    if (cairn_srv_rows_u64(rows, 2) != shard->msg.size)
        return cairn_fail(err, CAIRN_SHARD_CONFLICT,
                          "shard \"%s\" was said to have %" PRIu64 " bytes, now %" PRIu64,
                          shard->msg.name, cairn_srv_rows_u64(rows, 2), shard->msg.size);
    if (!cairn_srv_rows_i64(rows, 1)) return CAIRN_OK;
    struct cairn_view blocks = cairn_srv_rows_blob(rows, 4);
    if (cairn_srv_rows_u64(rows, 3) != shard->crc32c || blocks.size != shard->blocks.size ||
        (blocks.size && memcmp(blocks.data, shard->blocks.data, blocks.size)))
        return cairn_fail(err, CAIRN_SHARD_CONFLICT,
                          "shard \"%s\" was registered with checksum %08x, now %08x",
                          shard->msg.name, (unsigned)cairn_srv_rows_u64(rows, 3), shard->crc32c);
    return CAIRN_OK;
}

/* Is it a folder of another rank's shard, or one of those a folder of it? */
static enum cairn_code stands_alone(struct cairn_srv_tx *tx, const char *version, const char *name,
                                    struct cairn_error *err) {
    struct cairn_view whole = cairn_view_of(name), folder = {name, 0};
    char other[CAIRN_SHARD_NAME_BYTES_MAX + 2], past[CAIRN_SHARD_NAME_BYTES_MAX + 2];
    for (;;) {
        bool below = cairn_shard_name_folder(whole, &folder), found = false;
        CAIRN_AUTO(srv_rows) rows = {0};
        if (below) {
            snprintf(other, sizeof(other), "%.*s", (int)folder.size, name);
            CAIRN_TRY(
                cairn_srv_sql_open(tx, &rows, err, SQL(shard_named), SQL_T(version), SQL_T(other)));
        } else { /* '0' is the byte after '/' */
            snprintf(other, sizeof(other), "%s/", name);
            snprintf(past, sizeof(past), "%s0", name);
            CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(shard_between), SQL_T(version),
                                         SQL_T(other), SQL_T(past)));
        }
        CAIRN_TRY(cairn_srv_rows_next(&rows, &found, err));
        if (found)
            return cairn_fail(
                err, CAIRN_SHARD_CONFLICT,
                "shards \"%s\" and \"%s\" cannot stand beside each other: one name is "
                "a folder of the other",
                name, cairn_srv_rows_text(&rows, 0));
        if (!below) return CAIRN_OK;
    }
}

static enum cairn_code register_shard(struct cairn_srv_tx *tx,
                                      const struct cairn_srv_registration *batch,
                                      const struct cairn_srv_shard_said *shard,
                                      struct cairn_error *err) {
    const char *version = batch->version->id.text;
    CAIRN_TRY(check_rank(batch, shard->msg.rank, err));
    bool known = false;
    {
        CAIRN_AUTO(srv_rows) rows = {0};
        CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(shard_get), SQL_T(version),
                                     SQL_T(shard->msg.name)));
        CAIRN_TRY(cairn_srv_rows_next(&rows, &known, err));
        if (known) CAIRN_TRY(compare_shard(&rows, shard, err));
    }
    if (!known) CAIRN_TRY(stands_alone(tx, version, shard->msg.name, err));
    bool sealed = false;
    CAIRN_TRY(cairn_srv_rank_sealed(tx, version, shard->msg.rank, &sealed, err));
    if (!known && sealed)
        return cairn_fail(err, CAIRN_SHARD_CONFLICT,
                          "shard \"%s\" is not in the seal of rank %" PRIu64, shard->msg.name,
                          shard->msg.rank);
    struct cairn_view blocks = cairn_buf_view(&shard->blocks);
    if (!blocks.data) blocks = CAIRN_VIEW("");
    return cairn_srv_sql_run(tx, NULL, err, SQL(shard_register), SQL_T(version),
                             SQL_T(shard->msg.name), SQL_I(shard->msg.rank), SQL_I(shard->msg.size),
                             SQL_I(shard->crc32c), SQL_B(blocks), SQL_I(shard->msg.part_bytes),
                             SQL_T(shard->msg.token), SQL_T(batch->node));
}

/* ---- one seal ---- */

static enum cairn_code seal_shard(struct cairn_srv_tx *tx,
                                  const struct cairn_srv_registration *batch,
                                  const struct cairn_srv_seal_said *seal, const json_t *item,
                                  struct cairn_error *err) {
    struct cairn_srv_shard_said shard = {
        .msg = {.name = json_string_value(json_object_get(item, "name")),
                .rank = seal->msg.rank,
                .size = (uint64_t)json_integer_value(json_object_get(item, "size"))}};
    bool known = false;
    {
        CAIRN_AUTO(srv_rows) rows = {0};
        CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(shard_get_seal),
                                     SQL_T(batch->version->id.text), SQL_T(shard.msg.name)));
        CAIRN_TRY(cairn_srv_rows_next(&rows, &known, err));
        if (known) CAIRN_TRY(compare_shard(&rows, &shard, err));
        if (known && cairn_srv_rows_i64(&rows, 3))
            return cairn_fail(err, CAIRN_SHARD_CONFLICT,
                              "the seal of rank %" PRIu64 " names shard \"%s\" twice",
                              seal->msg.rank, shard.msg.name);
    }
    if (!known) CAIRN_TRY(stands_alone(tx, batch->version->id.text, shard.msg.name, err));
    return cairn_srv_sql_run(tx, NULL, err, SQL(shard_seal), SQL_T(batch->version->id.text),
                             SQL_T(shard.msg.name), SQL_I(shard.msg.rank), SQL_I(shard.msg.size),
                             SQL_T(batch->node));
}

static enum cairn_code no_strangers(struct cairn_srv_tx *tx,
                                    const struct cairn_srv_registration *batch,
                                    const struct cairn_srv_seal_said *seal,
                                    struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(shard_unsealed),
                                 SQL_T(batch->version->id.text), SQL_I(seal->msg.rank)));
    bool more = false;
    CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
    if (!more) return CAIRN_OK;
    return cairn_fail(err, CAIRN_SHARD_CONFLICT,
                      "shard \"%s\" was registered and is not in the seal of rank %" PRIu64,
                      cairn_srv_rows_text(&rows, 0), seal->msg.rank);
}

/* The table's shards must be sealed by this rank with the table's sizes. */
static enum cairn_code check_table(struct cairn_srv_tx *tx,
                                   const struct cairn_srv_registration *batch,
                                   const struct cairn_srv_seal_said *seal, struct cairn_view bytes,
                                   struct cairn_error *err) {
    struct cairn_table table;
    CAIRN_TRY(cairn_table_open(bytes, &table, err));
    if (table.rank != seal->msg.rank)
        return cairn_fail(err, CAIRN_TABLE_INVALID,
                          "the table of rank %" PRIu64 "'s seal is rank %u's", seal->msg.rank,
                          table.rank);
    for (uint32_t i = 0; i < table.shard_count; i++) {
        struct cairn_table_shard shard;
        cairn_table_shard_at(&table, i, &shard);
        char name[CAIRN_SHARD_NAME_BYTES_MAX + 1];
        snprintf(name, sizeof(name), "%.*s", (int)shard.name.size, (const char *)shard.name.data);
        bool found = false;
        int64_t size = 0;
        CAIRN_TRY(cairn_srv_sql_number(tx, &found, &size, err, SQL(shard_sealed_size),
                                       SQL_T(batch->version->id.text), SQL_T(name),
                                       SQL_I(seal->msg.rank)));
        if (!found)
            return cairn_fail(err, CAIRN_SHARD_CONFLICT,
                              "the table of rank %" PRIu64 " names shard \"%s\", its seal does not",
                              seal->msg.rank, name);
        if ((uint64_t)size != shard.size_bytes)
            return cairn_fail(err, CAIRN_SHARD_CONFLICT,
                              "shard \"%s\" has %" PRIu64 " bytes in the table, %" PRId64
                              " in the seal",
                              name, shard.size_bytes, size);
    }
    return CAIRN_OK;
}

/* Q33: the reference is taken here, in the seal's transaction. */
static enum cairn_code take_table(struct cairn_srv_tx *tx,
                                  const struct cairn_srv_registration *batch,
                                  const struct cairn_srv_seal_said *seal, struct cairn_error *err) {
    CAIRN_AUTO(buf) bytes = {.limit = CAIRN_TABLE_BYTES_MAX};
    bool there = false;
    CAIRN_TRY(cairn_srv_table_get(tx, seal->table, &bytes, &there, err));
    if (!there)
        return cairn_fail(err, CAIRN_TABLE_UNKNOWN,
                          "the table %s of rank %" PRIu64
                          " is not here: PUT .../tables/%s, then seal again",
                          seal->msg.table, seal->msg.rank, seal->msg.table);
    CAIRN_TRY(check_table(tx, batch, seal, cairn_buf_view(&bytes), err));
    return cairn_srv_table_use(tx, seal->table, err);
}

static enum cairn_code repeated_shards(struct cairn_srv_tx *tx,
                                       const struct cairn_srv_registration *batch,
                                       const struct cairn_srv_seal_said *seal, bool *ret_same,
                                       struct cairn_error *err) {
    *ret_same = false;
    for (size_t i = 0; i < json_array_size(seal->msg.shards); i++) {
        const json_t *item = json_array_get(seal->msg.shards, i);
        bool found = false;
        int64_t size = 0;
        CAIRN_TRY(cairn_srv_sql_number(
            tx, &found, &size, err, SQL(shard_sealed_size), SQL_T(batch->version->id.text),
            SQL_T(json_string_value(json_object_get(item, "name"))), SQL_I(seal->msg.rank)));
        if (!found || size != json_integer_value(json_object_get(item, "size"))) return CAIRN_OK;
    }
    bool found = false;
    int64_t count = 0;
    CAIRN_TRY(cairn_srv_sql_number(tx, &found, &count, err, SQL(shards_count_of_rank),
                                   SQL_T(batch->version->id.text), SQL_I(seal->msg.rank)));
    *ret_same = (size_t)count == json_array_size(seal->msg.shards);
    return CAIRN_OK;
}

/* Seals are final: the same again is no change, another one is a conflict. */
static enum cairn_code repeated(struct cairn_srv_tx *tx, const struct cairn_srv_registration *batch,
                                const struct cairn_srv_seal_said *seal, struct cairn_error *err) {
    bool same = false;
    {
        CAIRN_AUTO(srv_rows) rows = {0};
        CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(rank_digest),
                                     SQL_T(batch->version->id.text), SQL_I(seal->msg.rank)));
        bool more = false;
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        struct cairn_view digest = cairn_srv_rows_blob(&rows, 0);
        same = digest.size == 32 && seal->msg.table ? !memcmp(digest.data, seal->table, 32)
                                                    : !digest.size == !seal->msg.table;
    }
    if (same) CAIRN_TRY(repeated_shards(tx, batch, seal, &same, err));
    if (same) return CAIRN_OK;
    return cairn_fail(err, CAIRN_SHARD_CONFLICT,
                      "rank %" PRIu64 " has sealed already, with another table or other shards",
                      seal->msg.rank);
}

static enum cairn_code register_seal(struct cairn_srv_tx *tx,
                                     const struct cairn_srv_registration *batch,
                                     const struct cairn_srv_seal_said *seal,
                                     struct cairn_error *err) {
    CAIRN_TRY(check_rank(batch, seal->msg.rank, err));
    bool sealed = false;
    CAIRN_TRY(cairn_srv_rank_sealed(tx, batch->version->id.text, seal->msg.rank, &sealed, err));
    if (sealed) return repeated(tx, batch, seal, err);
    for (size_t i = 0; i < json_array_size(seal->msg.shards); i++)
        CAIRN_TRY(seal_shard(tx, batch, seal, json_array_get(seal->msg.shards, i), err));
    CAIRN_TRY(no_strangers(tx, batch, seal, err));
    if (seal->msg.table) CAIRN_TRY(take_table(tx, batch, seal, err));
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(rank_seal), SQL_T(batch->version->id.text),
                                SQL_I(seal->msg.rank), SQL_T(batch->node),
                                SQL_D(seal->msg.table ? seal->table : NULL), SQL_I(seal->msg.bytes),
                                SQL_T(seal->replicated_text.data)));
    uint64_t counted = 0;
    CAIRN_TRY(cairn_srv_sql_run(tx, &counted, err, SQL(version_count_seal),
                                SQL_T(batch->version->id.text)));
    CAIRN_ASSERT(counted == 1); /* seals are final, so no rank is counted twice */
    return CAIRN_OK;
}

/* ---- the batch ---- */

enum cairn_code cairn_srv_shards_register(struct cairn_srv_tx *tx,
                                          const struct cairn_srv_registration *batch,
                                          struct cairn_error *err) {
    CAIRN_ASSERT(batch->version->state == CAIRN_STATE_OPEN);
    for (size_t i = 0; i < batch->shard_count; i++)
        CAIRN_TRY(register_shard(tx, batch, &batch->shards[i], err));
    for (size_t i = 0; i < batch->seal_count; i++)
        CAIRN_TRY(register_seal(tx, batch, &batch->seals[i], err));
    return CAIRN_OK;
}

/* ---- all of a version's ---- */

enum cairn_code cairn_srv_shards_count(struct cairn_srv_tx *tx, const char *version,
                                       uint64_t *ret_known, uint64_t *ret_registered,
                                       struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(shards_counts), SQL_T(version)));
    bool more = false;
    CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
    *ret_known = cairn_srv_rows_u64(&rows, 0);
    *ret_registered = cairn_srv_rows_u64(&rows, 1);
    CAIRN_ASSERT(*ret_registered <= *ret_known);
    return CAIRN_OK;
}

enum cairn_code cairn_srv_shards_missing(struct cairn_srv_tx *tx, const char *version, json_t *ret,
                                         struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(shards_missing), SQL_T(version)));
    for (bool more = true;;) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) return CAIRN_OK;
        json_t *item = json_pack("{s:s, s:I, s:s, s:s}", "shard", cairn_srv_rows_text(&rows, 0),
                                 "rank", (json_int_t)cairn_srv_rows_i64(&rows, 1), "node",
                                 cairn_srv_rows_text(&rows, 2), "state", "sealed");
        if (json_array_append_new(ret, item))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    }
}

enum cairn_code cairn_srv_shards_drop(struct cairn_srv_tx *tx, const char *version,
                                      struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(shards_drop), SQL_T(version)));
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(ranks_drop), SQL_T(version)));
    return cairn_srv_sql_run(tx, NULL, err, SQL(groups_drop), SQL_T(version));
}
