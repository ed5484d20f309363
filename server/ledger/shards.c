/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of shards and ranks of open versions; see shards.h. */
#include "server/ledger/shards.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/documents/names.h"
#include "server/ledger/events.h"
#include "server/ledger/layouts.h"
#include "server/ledger/policies.h"

#define GROUP_MAX 64 /* shards compared together: half of the expected queries */

static enum cairn_code check_rank(const struct srv_registration *batch, uint64_t rank,
                                  struct cairn_error *err) {
    if (rank < batch->version->world_size) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "rank %" PRIu64 " of a world of %u", rank,
                      batch->version->world_size);
}

/* The columns of shard_look. */
enum { BELOW, NAME, RANK, REGISTERED_BY, SIZE, CRC32C, BLOCKS };

/* Compares the stored shard of this name with the reported one. */
static enum cairn_code compare_shard(const struct srv_rows *rows,
                                     const struct srv_shard_said *shard, bool registers,
                                     struct cairn_error *err) {
    if (srv_rows_u64(rows, RANK) != shard->msg.rank)
        return cairn_fail(err, CAIRN_SHARD_CONFLICT,
                          "shard \"%s\" is rank %" PRIu64 "'s, not rank %" PRIu64 "'s",
                          shard->msg.name, srv_rows_u64(rows, RANK), shard->msg.rank);
    if (srv_rows_u64(rows, SIZE) != shard->msg.bytes)
        return cairn_fail(err, CAIRN_SHARD_CONFLICT,
                          "shard \"%s\" was said to have %" PRIu64 " bytes, now %" PRIu64,
                          shard->msg.name, srv_rows_u64(rows, SIZE), shard->msg.bytes);
    if (!registers || !srv_rows_i64(rows, REGISTERED_BY)) return CAIRN_OK;
    struct cairn_view blocks = srv_rows_blob(rows, BLOCKS);
    if (srv_rows_u64(rows, CRC32C) != shard->crc32c || blocks.size != shard->blocks.size ||
        (blocks.size && memcmp(blocks.data, shard->blocks.data, blocks.size)))
        return cairn_fail(err, CAIRN_SHARD_CONFLICT,
                          "shard \"%s\" was registered with checksum %08x, now %08x",
                          shard->msg.name, (unsigned)srv_rows_u64(rows, CRC32C), shard->crc32c);
    return CAIRN_OK;
}

static enum cairn_code cannot_stand(const char *name, const char *other, struct cairn_error *err) {
    return cairn_fail(err, CAIRN_SHARD_CONFLICT,
                      "shards \"%s\" and \"%s\" cannot stand beside each other: one name is "
                      "a folder of the other",
                      name, other);
}

struct name_range {
    char from[CAIRN_SHARD_NAME_BYTES_MAX + 2], to[CAIRN_SHARD_NAME_BYTES_MAX + 2];
};

/* Names inside a folder of that name; '0' is the byte after '/'. */
static void range_below(const char *name, struct name_range *ret) {
    snprintf(ret->from, sizeof(ret->from), "%s/", name);
    snprintf(ret->to, sizeof(ret->to), "%s0", name);
}

/* True when the previous name is in `folder`, too, which was then checked already. */
static bool same_folder(struct cairn_view folder, const char *before) {
    return before && !strncmp(before, folder.data, folder.size) && before[folder.size] == '/';
}

/* Expects the queries of look_at; `before` is the previous name, or NULL. */
static enum cairn_code expect_look(struct srv_tx *tx, const char *version, const char *name,
                                   const char *before, struct cairn_error *err) {
    struct cairn_view whole = cairn_view_of(name), folder = {name, 0};
    struct name_range below;
    range_below(name, &below);
    CAIRN_TRY(srv_sql_expect(tx, err, SQL(shard_look), SQL_T(version), SQL_T(name),
                             SQL_T(below.from), SQL_T(below.to)));
    while (cairn_shard_name_folder(whole, &folder)) {
        char text[CAIRN_SHARD_NAME_BYTES_MAX + 1];
        if (same_folder(folder, before)) continue;
        snprintf(text, sizeof(text), "%.*s", (int)folder.size, name);
        CAIRN_TRY(srv_sql_expect(tx, err, SQL(shard_named), SQL_T(version), SQL_T(text)));
    }
    return CAIRN_OK;
}

/* A stored shard passed the same check, so its folders are no shards. */
static enum cairn_code look_at_folders(struct srv_tx *tx, const char *version, const char *name,
                                       const char *before, struct cairn_error *err) {
    struct cairn_view whole = cairn_view_of(name), folder = {name, 0};
    while (cairn_shard_name_folder(whole, &folder)) {
        char text[CAIRN_SHARD_NAME_BYTES_MAX + 1];
        bool found = false;
        if (same_folder(folder, before)) continue;
        snprintf(text, sizeof(text), "%.*s", (int)folder.size, name);
        CAIRN_TRY(srv_sql_found(tx, &found, err, SQL(shard_named), SQL_T(version), SQL_T(text)));
        if (found) return cannot_stand(name, text, err);
    }
    return CAIRN_OK;
}

/* Compares with a stored shard; for a new one, checks that its name is allowed. */
static enum cairn_code look_at(struct srv_tx *tx, const char *version,
                               const struct srv_shard_said *shard, bool registers,
                               const char *before, bool *ret_known, struct cairn_error *err) {
    struct name_range below;
    range_below(shard->msg.name, &below);
    *ret_known = false;
    SQL_OPEN(rows, tx, err, SQL(shard_look), SQL_T(version), SQL_T(shard->msg.name),
             SQL_T(below.from), SQL_T(below.to));
    SQL_EACH(&rows, err) {
        if (srv_rows_i64(&rows, BELOW))
            return cannot_stand(shard->msg.name, srv_rows_text(&rows, NAME), err);
        *ret_known = true;
        CAIRN_TRY(compare_shard(&rows, shard, registers, err));
    }
    if (*ret_known) return CAIRN_OK;
    return look_at_folders(tx, version, shard->msg.name, before, err);
}

/* Equal names, or one inside the other: then the second must see the first's row. */
static bool names_clash(const char *one, const char *other) {
    size_t size = strlen(one), other_size = strlen(other);
    if (size > other_size) return names_clash(other, one);
    return !strncmp(one, other, size) && (!other[size] || other[size] == '/');
}

/* Number of shards that can be compared before any is written. */
static size_t group_size(const struct srv_shard_said *shards, size_t count) {
    for (size_t i = 1; i < count; i++) {
        if (i == GROUP_MAX) return i;
        for (size_t k = 0; k < i; k++)
            if (names_clash(shards[k].msg.name, shards[i].msg.name)) return i;
    }
    return count;
}

static const char *name_before(const struct srv_shard_said *shards, size_t i) {
    return i ? shards[i - 1].msg.name : NULL;
}

static enum cairn_code expect_group(struct srv_tx *tx, const char *version,
                                    const struct srv_shard_said *shards, size_t count,
                                    struct cairn_error *err) {
    for (size_t i = 0; i < count; i++) {
        CAIRN_TRY(expect_look(tx, version, shards[i].msg.name, name_before(shards, i), err));
        if (!i || shards[i - 1].msg.rank != shards[i].msg.rank)
            CAIRN_TRY(srv_sql_expect(tx, err, SQL(rank_sealed), SQL_T(version),
                                     SQL_I(shards[i].msg.rank)));
    }
    return CAIRN_OK;
}

static enum cairn_code compare_group(struct srv_tx *tx, const struct srv_registration *batch,
                                     const struct srv_shard_said *shards, size_t count,
                                     struct cairn_error *err) {
    const char *version = batch->version->id.text;
    bool sealed = false, known = false;
    for (size_t i = 0; i < count; i++) {
        const struct srv_shard_said *shard = &shards[i];
        CAIRN_TRY(check_rank(batch, shard->msg.rank, err));
        CAIRN_TRY(look_at(tx, version, shard, true, name_before(shards, i), &known, err));
        if (!i || shards[i - 1].msg.rank != shard->msg.rank)
            CAIRN_TRY(srv_rank_sealed(tx, version, shard->msg.rank, &sealed, err));
        if (!known && sealed)
            return cairn_fail(err, CAIRN_SHARD_CONFLICT,
                              "shard \"%s\" is not in the seal of rank %" PRIu64, shard->msg.name,
                              shard->msg.rank);
    }
    return CAIRN_OK;
}

static enum cairn_code write_shard(struct srv_tx *tx, const struct srv_registration *batch,
                                   const struct srv_shard_said *shard, struct cairn_error *err) {
    struct cairn_view blocks = cairn_buf_view(&shard->blocks);
    if (!blocks.data) blocks = CAIRN_VIEW("");
    return srv_sql_run(tx, NULL, err, SQL(shard_register), SQL_T(batch->version->id.text),
                       SQL_T(shard->msg.name), SQL_I(shard->msg.rank), SQL_I(shard->msg.bytes),
                       SQL_I(shard->crc32c), SQL_B(blocks), SQL_I(shard->msg.part_bytes),
                       SQL_T(shard->msg.token), SQL_T(batch->node));
}

static enum cairn_code register_shards(struct srv_tx *tx, const struct srv_registration *batch,
                                       struct cairn_error *err) {
    for (size_t from = 0, count = 0; from < batch->shard_count; from += count) {
        const struct srv_shard_said *shards = &batch->shards[from];
        count = group_size(shards, batch->shard_count - from);
        if (from) /* the caller has expected the first ones */
            CAIRN_TRY(expect_group(tx, batch->version->id.text, shards, count, err));
        CAIRN_TRY(compare_group(tx, batch, shards, count, err));
        for (size_t i = 0; i < count; i++) CAIRN_TRY(write_shard(tx, batch, &shards[i], err));
    }
    return CAIRN_OK;
}

/* ---- seals: their lists against the rank's rows ---- */

struct sealed {
    const char *name;
    uint64_t size;
    bool known;
};
struct seal {
    const struct srv_seal_said *said;
    struct sealed *shards; /* by name */
    size_t count, known_count;
    uint64_t bytes; /* at most SRV_SEALED_BYTES_MAX */
    bool repeated;  /* an equal seal exists */
};

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct sealed *)a)->name, ((const struct sealed *)b)->name);
}

/* Both are below 2^62. */
static uint64_t add_bytes(uint64_t sum, uint64_t more) {
    return cairn_min_u64(sum + more, SRV_SEALED_BYTES_MAX);
}

static enum cairn_code list_shards(const struct srv_seal_said *said, struct seal *ret,
                                   struct cairn_error *err) {
    *ret = (struct seal){.said = said, .count = json_array_size(said->msg.shards)};
    ret->shards = calloc(ret->count + 1, sizeof(*ret->shards));
    if (!ret->shards) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a seal");
    for (size_t i = 0; i < ret->count; i++) {
        const json_t *item = json_array_get(said->msg.shards, i);
        ret->shards[i].name = json_string_value(json_object_get(item, "name"));
        ret->shards[i].size = (uint64_t)json_integer_value(json_object_get(item, "bytes"));
        ret->bytes = add_bytes(ret->bytes, ret->shards[i].size);
    }
    qsort(ret->shards, ret->count, sizeof(*ret->shards), by_name);
    for (size_t i = 1; i < ret->count; i++)
        if (!strcmp(ret->shards[i - 1].name, ret->shards[i].name))
            return cairn_fail(err, CAIRN_SHARD_CONFLICT,
                              "the seal of rank %" PRIu64 " names shard \"%s\" twice",
                              said->msg.rank, ret->shards[i].name);
    return CAIRN_OK;
}

static struct sealed *find_sealed(const struct seal *seal, const char *name) {
    struct sealed key = {.name = name};
    return bsearch(&key, seal->shards, seal->count, sizeof(*seal->shards), by_name);
}

/* Each shard registered by the rank must be in its seal, with that size. */
static enum cairn_code compare_rank(struct srv_tx *tx, const char *version, struct seal *seal,
                                    struct cairn_error *err) {
    uint64_t rank = seal->said->msg.rank;
    SQL_OPEN(rows, tx, err, SQL(shards_of_rank), SQL_T(version), SQL_I(rank));
    SQL_EACH(&rows, err) {
        const char *name = srv_rows_text(&rows, 0);
        struct sealed *shard = find_sealed(seal, name);
        if (!shard)
            return cairn_fail(err, CAIRN_SHARD_CONFLICT,
                              "shard \"%s\" was registered and is not in the seal of rank %" PRIu64,
                              name, rank);
        if (srv_rows_u64(&rows, 1) != shard->size)
            return cairn_fail(err, CAIRN_SHARD_CONFLICT,
                              "shard \"%s\" was said to have %" PRIu64 " bytes, now %" PRIu64, name,
                              srv_rows_u64(&rows, 1), shard->size);
        shard->known = true;
        seal->known_count++;
    }
    return CAIRN_OK;
}

/* Expects the next queries of compare_others. */
static enum cairn_code expect_others(struct srv_tx *tx, const char *version,
                                     const struct seal *seal, size_t from, const char *before,
                                     struct cairn_error *err) {
    for (size_t i = from, sent = 0; i < seal->count && sent < GROUP_MAX; i++) {
        if (seal->shards[i].known) continue;
        CAIRN_TRY(expect_look(tx, version, seal->shards[i].name, before, err));
        before = seal->shards[i].name;
        sent++;
    }
    return CAIRN_OK;
}

/* A shard that the rank has not registered may belong to another rank. */
static enum cairn_code compare_others(struct srv_tx *tx, const char *version,
                                      const struct seal *seal, struct cairn_error *err) {
    const char *before = NULL;
    for (size_t i = 0, looked = 0; i < seal->count; i++) {
        struct srv_shard_said shard = {.msg = {.name = seal->shards[i].name,
                                               .rank = seal->said->msg.rank,
                                               .bytes = seal->shards[i].size}};
        bool known = false;
        if (seal->shards[i].known) continue;
        if (looked++ % GROUP_MAX == 0) CAIRN_TRY(expect_others(tx, version, seal, i, before, err));
        CAIRN_TRY(look_at(tx, version, &shard, false, before, &known, err));
        CAIRN_ASSERT(!known); /* a shard of this rank would be among its rows */
        before = seal->shards[i].name;
    }
    return CAIRN_OK;
}

/* The table's shards must be sealed by this rank with the table's sizes. */
static enum cairn_code check_table(const struct seal *seal, struct cairn_view bytes,
                                   struct cairn_error *err) {
    struct cairn_table table;
    uint64_t rank = seal->said->msg.rank;
    CAIRN_TRY(cairn_table_open(bytes, &table, err));
    if (table.rank != rank)
        return cairn_fail(err, CAIRN_TABLE_INVALID,
                          "the table of rank %" PRIu64 "'s seal is rank %u's", rank, table.rank);
    for (uint32_t i = 0; i < table.shard_count; i++) {
        struct cairn_table_shard shard;
        cairn_table_shard_at(&table, i, &shard);
        char name[CAIRN_SHARD_NAME_BYTES_MAX + 1];
        snprintf(name, sizeof(name), "%.*s", (int)shard.name.size, (const char *)shard.name.data);
        const struct sealed *found = find_sealed(seal, name);
        if (!found)
            return cairn_fail(err, CAIRN_SHARD_CONFLICT,
                              "the table of rank %" PRIu64 " names shard \"%s\", its seal does not",
                              rank, name);
        if (found->size != shard.size_bytes)
            return cairn_fail(err, CAIRN_SHARD_CONFLICT,
                              "shard \"%s\" has %" PRIu64 " bytes in the table, %" PRIu64
                              " in the seal",
                              name, shard.size_bytes, found->size);
    }
    return CAIRN_OK;
}

static enum cairn_code compare_table(struct srv_tx *tx, const struct seal *seal,
                                     struct cairn_error *err) {
    CAIRN_AUTO(buf) bytes = {.limit = CAIRN_TABLE_BYTES_MAX};
    const struct srv_seal_said *said = seal->said;
    bool there = false;
    CAIRN_TRY(srv_table_get(tx, said->table, &bytes, &there, err));
    if (!there)
        return cairn_fail(err, CAIRN_TABLE_UNKNOWN,
                          "the table %s of rank %" PRIu64
                          " is not here: PUT .../tables/%s, then seal again",
                          said->msg.table, said->msg.rank, said->msg.table);
    return check_table(seal, cairn_buf_view(&bytes), err);
}

static enum cairn_code repeated_shards(struct srv_tx *tx, const struct srv_registration *batch,
                                       const struct srv_seal_said *seal, bool *ret_same,
                                       struct cairn_error *err) {
    *ret_same = false;
    for (size_t i = 0; i < json_array_size(seal->msg.shards); i++) {
        const json_t *item = json_array_get(seal->msg.shards, i);
        bool found = false;
        int64_t size = 0;
        CAIRN_TRY(srv_sql_number(
            tx, &found, &size, err, SQL(shard_sealed_size), SQL_T(batch->version->id.text),
            SQL_T(json_string_value(json_object_get(item, "name"))), SQL_I(seal->msg.rank)));
        if (!found || size != json_integer_value(json_object_get(item, "bytes"))) return CAIRN_OK;
    }
    uint64_t count = 0;
    CAIRN_TRY(srv_sql_u64(tx, &count, err, SQL(shards_count_of_rank),
                          SQL_T(batch->version->id.text), SQL_I(seal->msg.rank)));
    *ret_same = count == json_array_size(seal->msg.shards);
    return CAIRN_OK;
}

/* Seals are final: a repeat is no change, a different one is a conflict. */
static enum cairn_code repeated(struct srv_tx *tx, const struct srv_registration *batch,
                                const struct srv_seal_said *seal, struct cairn_error *err) {
    bool same = false;
    {
        bool more = false;
        SQL_FIRST(rows, &more, tx, err, SQL(rank_digest), SQL_T(batch->version->id.text),
                  SQL_I(seal->msg.rank));
        struct cairn_view digest = srv_rows_blob(&rows, 0);
        same = digest.size == 32 && seal->msg.table ? !memcmp(digest.data, seal->table, 32)
                                                    : !digest.size == !seal->msg.table;
    }
    if (same) CAIRN_TRY(repeated_shards(tx, batch, seal, &same, err));
    if (same) return CAIRN_OK;
    return cairn_fail(err, CAIRN_SHARD_CONFLICT,
                      "rank %" PRIu64 " has sealed already, with another table or other shards",
                      seal->msg.rank);
}

/* ---- seals: comparing, then writing ---- */

static enum cairn_code compare_seal(struct srv_tx *tx, const struct srv_registration *batch,
                                    struct seal *seal, struct cairn_error *err) {
    const char *version = batch->version->id.text;
    CAIRN_TRY(check_rank(batch, seal->said->msg.rank, err));
    CAIRN_TRY(srv_rank_sealed(tx, version, seal->said->msg.rank, &seal->repeated, err));
    if (seal->repeated) return repeated(tx, batch, seal->said, err);
    CAIRN_TRY(compare_rank(tx, version, seal, err));
    CAIRN_TRY(compare_others(tx, version, seal, err));
    return seal->said->msg.table ? compare_table(tx, seal, err) : CAIRN_OK;
}

/* Labels and meta are rank 0's; its seal replaces those of its begin. Written before the rank's
 * row, after which they are fixed (version_set_meta). */
static enum cairn_code write_meta(struct srv_tx *tx, const struct srv_registration *batch,
                                  const struct srv_seal_said *said, struct cairn_error *err) {
    const struct srv_version *version = batch->version;
    if (said->msg.rank != 0 || (!said->msg.labels && !said->msg.meta)) return CAIRN_OK;
    return srv_version_set_meta(tx, version->id.text,
                                said->msg.labels ? said->labels_text.data : version->labels,
                                said->msg.meta ? said->meta_text.data : version->meta, err);
}

static enum cairn_code write_seal(struct srv_tx *tx, const struct srv_registration *batch,
                                  const struct seal *seal, struct cairn_error *err) {
    const char *version = batch->version->id.text;
    const struct srv_seal_said *said = seal->said;
    if (seal->known_count)
        CAIRN_TRY(
            srv_sql_run(tx, NULL, err, SQL(shards_seal), SQL_T(version), SQL_I(said->msg.rank)));
    for (size_t i = 0; i < seal->count; i++)
        if (!seal->shards[i].known)
            CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(shard_seal), SQL_T(version),
                                  SQL_T(seal->shards[i].name), SQL_I(said->msg.rank),
                                  SQL_I(seal->shards[i].size), SQL_T(batch->node)));
    /* Q33: references the table in the seal's transaction. */
    if (said->msg.table) CAIRN_TRY(srv_table_use(tx, said->table, err));
    CAIRN_TRY(write_meta(tx, batch, said, err));
    return srv_sql_run(tx, NULL, err, SQL(rank_seal), SQL_T(version), SQL_I(said->msg.rank),
                       SQL_T(batch->node), SQL_D(said->msg.table ? said->table : NULL),
                       SQL_I(said->msg.bytes), SQL_T(said->replicated_text.data));
}

/* True when the second seal can only be compared after the first is written. */
static bool seals_clash(const struct seal *one, const struct seal *other) {
    if (one->said->msg.rank == other->said->msg.rank) return true;
    for (size_t i = 0; i < one->count; i++)
        for (size_t k = 0; k < other->count; k++)
            if (names_clash(one->shards[i].name, other->shards[k].name)) return true;
    return false;
}

/* Number of seals from `from` on in a group: few shards in all, or a single seal. */
static size_t seal_group_size(const struct seal *seals, size_t from, size_t count) {
    size_t shards = seals[from].count;
    for (size_t i = from + 1; i < count; i++) {
        shards += seals[i].count;
        if (shards > GROUP_MAX || i - from == GROUP_MAX) return i - from;
        for (size_t k = from; k < i; k++)
            if (seals_clash(&seals[k], &seals[i])) return i - from;
    }
    return count - from;
}

struct sum {
    uint64_t seals, bytes;
    int64_t stall_ms; /* the longest; -1: none reported */
};

static enum cairn_code write_stale_event(struct srv_tx *tx, const struct srv_registration *batch,
                                         const struct cairn_msg_rank_seal *said,
                                         struct cairn_error *err) {
    char reason[256];
    snprintf(reason, sizeof(reason), "rank %" PRIu64 ": %s", said->rank, said->stale);
    return srv_event_of_version(tx, SRV_EVENT_CHECKPOINT_STALE, batch->version->id.text, CAIRN_OK,
                                reason, err);
}

static enum cairn_code register_group(struct srv_tx *tx, const struct srv_registration *batch,
                                      struct seal *seals, size_t count, struct sum *sum,
                                      struct cairn_error *err) {
    const char *version = batch->version->id.text;
    for (size_t i = 0; i < count; i++) {
        CAIRN_TRY(srv_sql_expect(tx, err, SQL(rank_sealed), SQL_T(version),
                                 SQL_I(seals[i].said->msg.rank)));
        CAIRN_TRY(srv_sql_expect(tx, err, SQL(shards_of_rank), SQL_T(version),
                                 SQL_I(seals[i].said->msg.rank)));
    }
    for (size_t i = 0; i < count; i++) CAIRN_TRY(compare_seal(tx, batch, &seals[i], err));
    for (size_t i = 0; i < count; i++) {
        if (seals[i].repeated) {
            /* Q57: the node that reports the rank now becomes its node. */
            CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(rank_moved), SQL_T(version),
                                  SQL_I(seals[i].said->msg.rank), SQL_T(batch->node)));
            continue;
        }
        CAIRN_TRY(write_seal(tx, batch, &seals[i], err));
        if (seals[i].said->msg.stale)
            CAIRN_TRY(write_stale_event(tx, batch, &seals[i].said->msg, err));
        sum->seals++;
        sum->bytes = add_bytes(sum->bytes, seals[i].bytes);
        uint64_t stall_ms = seals[i].said->msg.stall_ms;
        if (stall_ms != CAIRN_MESSAGE_NONE && (int64_t)stall_ms > sum->stall_ms)
            sum->stall_ms = (int64_t)stall_ms;
    }
    return CAIRN_OK;
}

static enum cairn_code register_all(struct srv_tx *tx, const struct srv_registration *batch,
                                    struct seal *seals, struct cairn_error *err) {
    const char *version = batch->version->id.text;
    struct sum sum = {.stall_ms = -1};
    uint64_t changed = 0;
    for (size_t i = 0; i < batch->seal_count; i++)
        CAIRN_TRY(list_shards(&batch->seals[i], &seals[i], err));
    for (size_t from = 0, count = 0; from < batch->seal_count; from += count) {
        count = seal_group_size(seals, from, batch->seal_count);
        CAIRN_TRY(register_group(tx, batch, &seals[from], count, &sum, err));
    }
    if (!sum.seals) return CAIRN_OK;
    CAIRN_TRY(srv_usage_leave(tx, version, err));
    CAIRN_TRY(srv_sql_run(tx, &changed, err, SQL(version_count_seals), SQL_T(version),
                          SQL_I(sum.seals), SQL_I(sum.bytes), SQL_I(batch->wall_ms),
                          SQL_I(sum.stall_ms)));
    CAIRN_ASSERT(changed == 1); /* seals are final, so each rank counts once */
    return srv_usage_enter(tx, version, err);
}

enum cairn_code srv_shards_expect(struct srv_tx *tx, const char *version,
                                  const struct srv_shard_said *shards, size_t count,
                                  struct cairn_error *err) {
    return expect_group(tx, version, shards, group_size(shards, count), err);
}

enum cairn_code srv_shards_register(struct srv_tx *tx, const struct srv_registration *batch,
                                    struct cairn_error *err) {
    CAIRN_ASSERT(batch->version->state == CAIRN_STATE_OPEN);
    CAIRN_TRY(register_shards(tx, batch, err));
    struct seal *seals = calloc(batch->seal_count + 1, sizeof(*seals));
    if (!seals) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the seals");
    enum cairn_code code = register_all(tx, batch, seals, err);
    for (size_t i = 0; i < batch->seal_count; i++) free(seals[i].shards);
    free(seals);
    return code;
}

enum cairn_code srv_shards_count(struct srv_tx *tx, const char *version, uint64_t *ret_known,
                                 uint64_t *ret_registered, struct cairn_error *err) {
    bool more = false;
    SQL_FIRST(rows, &more, tx, err, SQL(shards_counts), SQL_T(version));
    *ret_known = srv_rows_u64(&rows, 0);
    *ret_registered = srv_rows_u64(&rows, 1);
    CAIRN_ASSERT(*ret_registered <= *ret_known);
    return CAIRN_OK;
}

enum cairn_code srv_shards_missing(struct srv_tx *tx, const char *version, json_t *ret,
                                   struct cairn_error *err) {
    SQL_OPEN(rows, tx, err, SQL(shards_missing), SQL_T(version));
    SQL_EACH(&rows, err)
        CAIRN_TRY(cairn_json_append(ret,
                                    CAIRN_PACK(missing_shard, .shard = srv_rows_text(&rows, 0),
                                               .rank = srv_rows_u64(&rows, 1),
                                               .node = srv_rows_text(&rows, 2), .state = "sealed"),
                                    "the answer", err));
    return CAIRN_OK;
}

enum cairn_code srv_version_weight(struct srv_tx *tx, const char *version, uint64_t *ret_bytes,
                                   struct cairn_error *err) {
    bool more = false;
    SQL_FIRST(rows, &more, tx, err, SQL(version_weight), SQL_T(version));
    CAIRN_ASSERT(more); /* sums always have a row */
    *ret_bytes = srv_rows_u64(&rows, 0) + srv_rows_u64(&rows, 1);
    return CAIRN_OK;
}

/* ---- ranks that have begun, and their replica groups ---- */

enum cairn_code srv_group_join(struct srv_tx *tx, const char *version,
                               const struct srv_group_said *said, struct cairn_buf *ret_words,
                               uint64_t *ret_first, struct cairn_error *err) {
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(group_insert), SQL_T(version), SQL_T(said->name),
                          SQL_T(said->words), SQL_I(said->rank)));
    bool found = false;
    SQL_FIRST(rows, &found, tx, err, SQL(group_get), SQL_T(version), SQL_T(said->name));
    CAIRN_ASSERT(found); /* inserted above, or by an earlier begin */
    *ret_first = srv_rows_u64(&rows, 1);
    return cairn_buf_append_text(ret_words, srv_rows_text(&rows, 0), err);
}

enum cairn_code srv_dispute_get(struct srv_tx *tx, const char *version, struct cairn_buf *ret,
                                struct cairn_error *err) {
    bool found = false;
    SQL_FIRST(rows, &found, tx, err, SQL(dispute_get), SQL_T(version));
    return found ? cairn_buf_append_text(ret, srv_rows_text(&rows, 0), err) : CAIRN_OK;
}
