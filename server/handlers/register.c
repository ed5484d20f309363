/* SPDX-License-Identifier: Apache-2.0 */
/* POST {C}/shards: a node's batch of durable shards and of seals (rules Q16, Q19, Q33). The whole
 * batch is one transaction: all of it holds, or none and the answer names what does not. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/manifest.h"
#include "api/shard_names.h"
#include "api/table.h"
#include "common/encode.h"
#include "common/id.h"
#include "server/jobs/jobs.h"
#include "server/handlers/saves.h"

#define SHARDS_MAX 4096
#define SEALED_MAX 65536
#define SIZE_MAX_BYTES (UINT64_C(1) << 62)

struct shard {
    const char *name, *crc_text, *blocks_text, *token;
    uint64_t rank, size, part_bytes;
    uint32_t crc32c;
    struct cairn_buf blocks;
};
struct seal {
    uint64_t rank, bytes;
    const char *table_text;
    uint8_t table[32];
    json_t *shards, *replicated;
    struct cairn_buf replicated_text;
};
struct batch {
    struct cairn_srv_request *request;
    struct cairn_grant grant;
    const char *node;
    struct shard *shards;
    size_t shard_count;
    struct seal *seals;
    size_t seal_count;
    /* the answer */
    struct cairn_srv_version version;
    bool whole;
};

static void release_batch(struct batch *batch) {
    for (size_t i = 0; i < batch->shard_count; i++) cairn_buf_release(&batch->shards[i].blocks);
    for (size_t i = 0; i < batch->seal_count; i++)
        cairn_buf_release(&batch->seals[i].replicated_text);
    free(batch->shards);
    free(batch->seals);
    cairn_srv_version_release(&batch->version);
}

/* ---- reading ---- */

static enum cairn_code parse_crc(const char *text, const char *pointer, uint32_t *ret,
                                 struct cairn_error *err) {
    uint8_t bytes[4];
    enum cairn_code code = cairn_hex_decode(cairn_view_of(text), bytes, sizeof(bytes), err);
    if (code) return cairn_within(err, CAIRN_INVALID, "%s/crc32c", pointer);
    *ret = (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
    return CAIRN_OK;
}

/* The block checksums must be as many as the size asks for and combine to the shard's. */
static enum cairn_code parse_blocks(struct shard *shard, const char *pointer,
                                    struct cairn_error *err) {
    shard->blocks.limit = 32 * CAIRN_MIB;
    enum cairn_code code =
        cairn_base64_decode(cairn_view_of(shard->blocks_text), &shard->blocks, err);
    if (code) return cairn_within(err, CAIRN_INVALID, "%s/blocks", pointer);
    uint64_t count = cairn_block_count(shard->size);
    if (shard->blocks.size % 4 || shard->blocks.size / 4 != count)
        return cairn_fail(err, CAIRN_INVALID,
                          "%s/blocks holds %zu bytes; %" PRIu64 " blocks of 4 are due", pointer,
                          shard->blocks.size, count);
    CAIRN_AUTO_HEAP uint32_t *blocks = calloc((size_t)count + 1, sizeof(*blocks));
    if (!blocks) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for block checksums");
    for (size_t i = 0; i < count; i++) blocks[i] = cairn_load_u32le(shard->blocks.data + 4 * i);
    uint32_t combined = cairn_blocks_combine(blocks, shard->size);
    if (combined != shard->crc32c)
        return cairn_fail(err, CAIRN_INVALID, "%s/crc32c is %08x, its blocks combine to %08x",
                          pointer, shard->crc32c, combined);
    return CAIRN_OK;
}

static enum cairn_code parse_shard(const json_t *item, const char *pointer, struct shard *shard,
                                   struct cairn_error *err) {
    struct cairn_json_field fields[] = {
        {"name", CAIRN_JSON_TEXT, true, &shard->name, CAIRN_SHARD_NAME_BYTES_MAX},
        {"rank", CAIRN_JSON_U64, true, &shard->rank, UINT32_MAX},
        {"size", CAIRN_JSON_U64, true, &shard->size, SIZE_MAX_BYTES},
        {"crc32c", CAIRN_JSON_TEXT, true, &shard->crc_text, 8},
        {"blocks", CAIRN_JSON_TEXT, true, &shard->blocks_text, 32 * CAIRN_MIB},
        {"part_bytes", CAIRN_JSON_U64, false, &shard->part_bytes, SIZE_MAX_BYTES},
        {"token", CAIRN_JSON_TEXT, true, &shard->token, CAIRN_UUID_TEXT_BYTES - 1},
    };
    CAIRN_TRY(cairn_json_read(item, pointer, fields, CAIRN_COUNT(fields), false, err));
    enum cairn_code code = cairn_shard_name_check(cairn_view_of(shard->name), err);
    if (code) return cairn_within(err, CAIRN_INVALID, "%s/name", pointer);
    if (!cairn_uuid_text_valid(cairn_view_of(shard->token)))
        return cairn_fail(err, CAIRN_INVALID, "%s/token is not a UUID", pointer);
    CAIRN_TRY(parse_crc(shard->crc_text, pointer, &shard->crc32c, err));
    return parse_blocks(shard, pointer, err);
}

static enum cairn_code parse_replicated(const struct seal *seal, const char *pointer,
                                        struct cairn_error *err) {
    for (size_t i = 0; i < json_array_size(seal->replicated); i++) {
        const char *name = NULL, *crc = NULL;
        uint32_t value = 0;
        struct cairn_json_field fields[] = {
            {"name", CAIRN_JSON_TEXT, true, &name, CAIRN_TENSOR_NAME_BYTES_MAX},
            {"crc32c", CAIRN_JSON_TEXT, true, &crc, 8},
        };
        CAIRN_TRY(cairn_json_read(json_array_get(seal->replicated, i), pointer, fields,
                                  CAIRN_COUNT(fields), false, err));
        CAIRN_TRY(parse_crc(crc, pointer, &value, err));
    }
    return CAIRN_OK;
}

static enum cairn_code parse_seal(const json_t *item, const char *pointer, struct seal *seal,
                                  struct cairn_error *err) {
    struct cairn_json_field fields[] = {
        {"rank", CAIRN_JSON_U64, true, &seal->rank, UINT32_MAX},
        {"table", CAIRN_JSON_TEXT, false, &seal->table_text, 64},
        {"shards", CAIRN_JSON_ARRAY, true, &seal->shards, 0},
        {"bytes", CAIRN_JSON_U64, true, &seal->bytes, SIZE_MAX_BYTES},
        {"replicated", CAIRN_JSON_ARRAY, false, &seal->replicated, 0},
    };
    CAIRN_TRY(cairn_json_read(item, pointer, fields, CAIRN_COUNT(fields), false, err));
    if (seal->table_text) {
        enum cairn_code code =
            cairn_hex_decode(cairn_view_of(seal->table_text), seal->table, 32, err);
        if (code) return cairn_within(err, CAIRN_INVALID, "%s/table", pointer);
    }
    if (json_array_size(seal->shards) > SEALED_MAX)
        return cairn_fail(err, CAIRN_INVALID, "%s/shards names more than %d", pointer, SEALED_MAX);
    uint64_t sum = 0;
    CAIRN_AUTO(shard_names) names = {0};
    for (size_t i = 0; i < json_array_size(seal->shards); i++) {
        const char *name = NULL;
        uint64_t size = 0;
        struct cairn_json_field pair[] = {
            {"name", CAIRN_JSON_TEXT, true, &name, CAIRN_SHARD_NAME_BYTES_MAX},
            {"size", CAIRN_JSON_U64, true, &size, SIZE_MAX_BYTES},
        };
        CAIRN_TRY(cairn_json_read(json_array_get(seal->shards, i), pointer, pair, CAIRN_COUNT(pair),
                                  false, err));
        CAIRN_TRY(cairn_shard_name_check(cairn_view_of(name), err));
        CAIRN_TRY(cairn_shard_names_add(&names, cairn_view_of(name), err));
        if (cairn_add_overflows(sum, size, &sum) || sum > SIZE_MAX_BYTES)
            return cairn_fail(err, CAIRN_INVALID, "%s/shards: the sizes overflow", pointer);
    }
    if (sum != seal->bytes)
        return cairn_fail(err, CAIRN_INVALID, "%s/bytes is %" PRIu64 ", the shards have %" PRIu64,
                          pointer, seal->bytes, sum);
    CAIRN_TRY(parse_replicated(seal, pointer, err));
    seal->replicated_text.limit = 32 * CAIRN_MIB;
    if (!seal->replicated) return cairn_buf_append_text(&seal->replicated_text, "[]", err);
    return cairn_json_dump(seal->replicated, &seal->replicated_text, err);
}

static enum cairn_code parse_lists(struct batch *batch, const json_t *shards, const json_t *seals,
                                   struct cairn_error *err) {
    size_t shard_count = json_array_size(shards), seal_count = json_array_size(seals);
    if (shard_count > SHARDS_MAX || seal_count > SHARDS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "at most %d shards and seals in one call",
                          SHARDS_MAX);
    batch->shards = calloc(shard_count + 1, sizeof(*batch->shards));
    batch->seals = calloc(seal_count + 1, sizeof(*batch->seals));
    if (!batch->shards || !batch->seals)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the batch");
    char pointer[32];
    for (size_t i = 0; i < shard_count; i++) {
        snprintf(pointer, sizeof(pointer), "/shards/%zu", i);
        batch->shard_count++;
        CAIRN_TRY(parse_shard(json_array_get(shards, i), pointer, &batch->shards[i], err));
    }
    for (size_t i = 0; i < seal_count; i++) {
        snprintf(pointer, sizeof(pointer), "/seals/%zu", i);
        batch->seal_count++;
        CAIRN_TRY(parse_seal(json_array_get(seals, i), pointer, &batch->seals[i], err));
    }
    return CAIRN_OK;
}

/* ---- one shard ---- */

static enum cairn_code check_rank(const struct batch *batch, uint64_t rank,
                                  struct cairn_error *err) {
    if (rank < batch->version.world_size) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "rank %" PRIu64 " of a world of %u", rank,
                      batch->version.world_size);
}

static enum cairn_code rank_sealed(struct cairn_srv_tx *tx, const char *version, uint64_t rank,
                                   bool *ret, struct cairn_error *err) {
    int64_t sealed = 0;
    CAIRN_TRY(
        cairn_srv_sql_number(tx, ret, &sealed, err, SQL(rank_sealed), SQL_T(version), SQL_I(rank)));
    return CAIRN_OK;
}

/* What is there under this name against what is said now. */
static enum cairn_code compare_shard(const struct cairn_srv_rows *rows, const struct shard *shard,
                                     struct cairn_error *err) {
    if (cairn_srv_rows_u64(rows, 0) != shard->rank)
        return cairn_fail(err, CAIRN_SHARD_CONFLICT,
                          "shard \"%s\" is rank %" PRIu64 "'s, not rank %" PRIu64 "'s", shard->name,
                          cairn_srv_rows_u64(rows, 0), shard->rank);
    if (cairn_srv_rows_u64(rows, 2) != shard->size)
        return cairn_fail(err, CAIRN_SHARD_CONFLICT,
                          "shard \"%s\" was said to have %" PRIu64 " bytes, now %" PRIu64,
                          shard->name, cairn_srv_rows_u64(rows, 2), shard->size);
    if (!cairn_srv_rows_i64(rows, 1)) return CAIRN_OK;
    struct cairn_view blocks = cairn_srv_rows_blob(rows, 4);
    if (cairn_srv_rows_u64(rows, 3) != shard->crc32c || blocks.size != shard->blocks.size ||
        (blocks.size && memcmp(blocks.data, shard->blocks.data, blocks.size)))
        return cairn_fail(err, CAIRN_SHARD_CONFLICT,
                          "shard \"%s\" was registered with checksum %08x, now %08x", shard->name,
                          (unsigned)cairn_srv_rows_u64(rows, 3), shard->crc32c);
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

static enum cairn_code register_shard(struct cairn_srv_tx *tx, const struct batch *batch,
                                      const struct shard *shard, struct cairn_error *err) {
    const char *version = batch->version.id.text;
    CAIRN_TRY(check_rank(batch, shard->rank, err));
    bool known = false;
    {
        CAIRN_AUTO(srv_rows) rows = {0};
        CAIRN_TRY(
            cairn_srv_sql_open(tx, &rows, err, SQL(shard_get), SQL_T(version), SQL_T(shard->name)));
        CAIRN_TRY(cairn_srv_rows_next(&rows, &known, err));
        if (known) CAIRN_TRY(compare_shard(&rows, shard, err));
    }
    if (!known) CAIRN_TRY(stands_alone(tx, version, shard->name, err));
    bool sealed = false;
    CAIRN_TRY(rank_sealed(tx, version, shard->rank, &sealed, err));
    if (!known && sealed)
        return cairn_fail(err, CAIRN_SHARD_CONFLICT,
                          "shard \"%s\" is not in the seal of rank %" PRIu64, shard->name,
                          shard->rank);
    struct cairn_view blocks = cairn_buf_view(&shard->blocks);
    if (!blocks.data) blocks = CAIRN_VIEW("");
    return cairn_srv_sql_run(tx, NULL, err, SQL(shard_register), SQL_T(version), SQL_T(shard->name),
                             SQL_I(shard->rank), SQL_I(shard->size), SQL_I(shard->crc32c),
                             SQL_B(blocks), SQL_I(shard->part_bytes), SQL_T(shard->token),
                             SQL_T(batch->node));
}

/* ---- one seal ---- */

static enum cairn_code seal_shard(struct cairn_srv_tx *tx, const struct batch *batch,
                                  const struct seal *seal, const json_t *item,
                                  struct cairn_error *err) {
    struct shard shard = {.name = json_string_value(json_object_get(item, "name")),
                          .rank = seal->rank,
                          .size = (uint64_t)json_integer_value(json_object_get(item, "size"))};
    bool known = false;
    {
        CAIRN_AUTO(srv_rows) rows = {0};
        CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(shard_get_seal),
                                     SQL_T(batch->version.id.text), SQL_T(shard.name)));
        CAIRN_TRY(cairn_srv_rows_next(&rows, &known, err));
        if (known) CAIRN_TRY(compare_shard(&rows, &shard, err));
        if (known && cairn_srv_rows_i64(&rows, 3))
            return cairn_fail(err, CAIRN_SHARD_CONFLICT,
                              "the seal of rank %" PRIu64 " names shard \"%s\" twice", seal->rank,
                              shard.name);
    }
    if (!known) CAIRN_TRY(stands_alone(tx, batch->version.id.text, shard.name, err));
    return cairn_srv_sql_run(tx, NULL, err, SQL(shard_seal), SQL_T(batch->version.id.text),
                             SQL_T(shard.name), SQL_I(shard.rank), SQL_I(shard.size),
                             SQL_T(batch->node));
}

static enum cairn_code no_strangers(struct cairn_srv_tx *tx, const struct batch *batch,
                                    const struct seal *seal, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(shard_unsealed), SQL_T(batch->version.id.text),
                                 SQL_I(seal->rank)));
    bool more = false;
    CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
    if (!more) return CAIRN_OK;
    return cairn_fail(err, CAIRN_SHARD_CONFLICT,
                      "shard \"%s\" was registered and is not in the seal of rank %" PRIu64,
                      cairn_srv_rows_text(&rows, 0), seal->rank);
}

/* The table's shards must be sealed by this rank with the table's sizes. */
static enum cairn_code check_table(struct cairn_srv_tx *tx, const struct batch *batch,
                                   const struct seal *seal, struct cairn_view bytes,
                                   struct cairn_error *err) {
    struct cairn_table table;
    CAIRN_TRY(cairn_table_open(bytes, &table, err));
    if (table.rank != seal->rank)
        return cairn_fail(err, CAIRN_TABLE_INVALID,
                          "the table of rank %" PRIu64 "'s seal is rank %u's", seal->rank,
                          table.rank);
    for (uint32_t i = 0; i < table.shard_count; i++) {
        struct cairn_table_shard shard;
        cairn_table_shard_at(&table, i, &shard);
        char name[CAIRN_SHARD_NAME_BYTES_MAX + 1];
        snprintf(name, sizeof(name), "%.*s", (int)shard.name.size, (const char *)shard.name.data);
        bool found = false;
        int64_t size = 0;
        CAIRN_TRY(cairn_srv_sql_number(tx, &found, &size, err, SQL(shard_sealed_size),
                                       SQL_T(batch->version.id.text), SQL_T(name),
                                       SQL_I(seal->rank)));
        if (!found)
            return cairn_fail(err, CAIRN_SHARD_CONFLICT,
                              "the table of rank %" PRIu64 " names shard \"%s\", its seal does not",
                              seal->rank, name);
        if ((uint64_t)size != shard.size_bytes)
            return cairn_fail(err, CAIRN_SHARD_CONFLICT,
                              "shard \"%s\" has %" PRIu64 " bytes in the table, %" PRId64
                              " in the seal",
                              name, shard.size_bytes, size);
    }
    return CAIRN_OK;
}

/* Q33: the reference is taken here, in the seal's transaction. */
static enum cairn_code take_table(struct cairn_srv_tx *tx, const struct batch *batch,
                                  const struct seal *seal, struct cairn_error *err) {
    struct cairn_view digest = {seal->table, 32};
    {
        CAIRN_AUTO(srv_rows) rows = {0};
        CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(table_get), SQL_B(digest)));
        bool more = false;
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more)
            return cairn_fail(err, CAIRN_TABLE_UNKNOWN,
                              "the table %s of rank %" PRIu64
                              " is not here: PUT .../tables/%s, then seal again",
                              seal->table_text, seal->rank, seal->table_text);
        CAIRN_TRY(check_table(tx, batch, seal, cairn_srv_rows_blob(&rows, 0), err));
    }
    return cairn_srv_sql_run(tx, NULL, err, SQL(table_use), SQL_B(digest),
                             SQL_I(cairn_srv_tick(tx)));
}

static enum cairn_code repeated_shards(struct cairn_srv_tx *tx, const struct batch *batch,
                                       const struct seal *seal, bool *ret_same,
                                       struct cairn_error *err) {
    *ret_same = false;
    for (size_t i = 0; i < json_array_size(seal->shards); i++) {
        const json_t *item = json_array_get(seal->shards, i);
        bool found = false;
        int64_t size = 0;
        CAIRN_TRY(cairn_srv_sql_number(
            tx, &found, &size, err, SQL(shard_sealed_size), SQL_T(batch->version.id.text),
            SQL_T(json_string_value(json_object_get(item, "name"))), SQL_I(seal->rank)));
        if (!found || size != json_integer_value(json_object_get(item, "size"))) return CAIRN_OK;
    }
    bool found = false;
    int64_t count = 0;
    CAIRN_TRY(cairn_srv_sql_number(tx, &found, &count, err, SQL(shards_count_of_rank),
                                   SQL_T(batch->version.id.text), SQL_I(seal->rank)));
    *ret_same = (size_t)count == json_array_size(seal->shards);
    return CAIRN_OK;
}

/* Seals are final: the same again is no change, another one is a conflict. */
static enum cairn_code repeated(struct cairn_srv_tx *tx, const struct batch *batch,
                                const struct seal *seal, struct cairn_error *err) {
    bool same = false;
    {
        CAIRN_AUTO(srv_rows) rows = {0};
        CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(rank_digest),
                                     SQL_T(batch->version.id.text), SQL_I(seal->rank)));
        bool more = false;
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        struct cairn_view digest = cairn_srv_rows_blob(&rows, 0);
        same = digest.size == 32 && seal->table_text ? !memcmp(digest.data, seal->table, 32)
                                                     : !digest.size == !seal->table_text;
    }
    if (same) CAIRN_TRY(repeated_shards(tx, batch, seal, &same, err));
    if (same) return CAIRN_OK;
    return cairn_fail(err, CAIRN_SHARD_CONFLICT,
                      "rank %" PRIu64 " has sealed already, with another table or other shards",
                      seal->rank);
}

static enum cairn_code register_seal(struct cairn_srv_tx *tx, const struct batch *batch,
                                     const struct seal *seal, struct cairn_error *err) {
    CAIRN_TRY(check_rank(batch, seal->rank, err));
    bool sealed = false;
    CAIRN_TRY(rank_sealed(tx, batch->version.id.text, seal->rank, &sealed, err));
    if (sealed) return repeated(tx, batch, seal, err);
    for (size_t i = 0; i < json_array_size(seal->shards); i++)
        CAIRN_TRY(seal_shard(tx, batch, seal, json_array_get(seal->shards, i), err));
    CAIRN_TRY(no_strangers(tx, batch, seal, err));
    if (seal->table_text) CAIRN_TRY(take_table(tx, batch, seal, err));
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(rank_seal), SQL_T(batch->version.id.text),
                                SQL_I(seal->rank), SQL_T(batch->node),
                                SQL_D(seal->table_text ? seal->table : NULL), SQL_I(seal->bytes),
                                SQL_T(seal->replicated_text.data)));
    uint64_t counted = 0;
    CAIRN_TRY(cairn_srv_sql_run(tx, &counted, err, SQL(version_count_seal),
                                SQL_T(batch->version.id.text)));
    CAIRN_ASSERT(counted == 1); /* seals are final, so no rank is counted twice */
    return CAIRN_OK;
}

/* ---- the call ---- */

static enum cairn_code apply(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct batch *batch = argument;
    cairn_srv_version_release(&batch->version);
    CAIRN_TRY(cairn_srv_save_version(tx, batch->request, &batch->version, err));
    /* A version that is over takes nothing and compares nothing; its end is the answer. */
    if (batch->version.state != CAIRN_STATE_OPEN) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_save_admit(tx, &batch->grant, &batch->version, err));
    for (size_t i = 0; i < batch->shard_count; i++)
        CAIRN_TRY(register_shard(tx, batch, &batch->shards[i], err));
    for (size_t i = 0; i < batch->seal_count; i++)
        CAIRN_TRY(register_seal(tx, batch, &batch->seals[i], err));
    return cairn_srv_save_whole(tx, &batch->version, &batch->whole, err);
}

static enum cairn_code serve(struct batch *batch, struct cairn_srv_reply *reply,
                             struct cairn_error *err) {
    struct cairn_srv *server = batch->request->server;
    CAIRN_TRY(cairn_srv_catalog_write(server->catalog, apply, batch, err));
    bool unrecorded = batch->version.state == CAIRN_STATE_COMMITTED && !batch->version.recorded;
    if (batch->whole || unrecorded) cairn_srv_jobs_commit(server, batch->version.id.text);
    return cairn_srv_reply_json(reply, 200, cairn_srv_version_brief(&batch->version), err);
}

enum cairn_code cairn_srv_on_shard_register(struct cairn_srv_request *request,
                                            struct cairn_srv_reply *reply,
                                            struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    CAIRN_AUTO_JSON json_t *body = NULL;
    CAIRN_TRY(cairn_srv_body(request, 600000, &body, err));
    struct batch batch = {.request = request};
    const char *grant = NULL;
    json_t *shards = NULL, *seals = NULL;
    struct cairn_json_field fields[] = {
        {"grant", CAIRN_JSON_TEXT, true, &grant, CAIRN_GRANT_BYTES_MAX - 1},
        {"node", CAIRN_JSON_TEXT, true, &batch.node, CAIRN_NAME_BYTES_MAX},
        {"shards", CAIRN_JSON_ARRAY, false, &shards, 0},
        {"seals", CAIRN_JSON_ARRAY, false, &seals, 0},
    };
    CAIRN_TRY(cairn_json_read(body, "", fields, CAIRN_COUNT(fields), false, err));
    if (!cairn_name_valid(cairn_view_of(batch.node)))
        return cairn_fail(err, CAIRN_INVALID, "/node is not a valid name");
    CAIRN_TRY(cairn_srv_grant_read(request, grant, &batch.grant, err));
    enum cairn_code code = parse_lists(&batch, shards, seals, err);
    if (!code) code = serve(&batch, reply, err);
    release_batch(&batch);
    return code;
}
