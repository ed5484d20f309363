/* SPDX-License-Identifier: Apache-2.0 */
/* Rank tables and layouts as rows; see layouts.h. */
#include "server/ledger/layouts.h"

#include <endian.h>

#include "common/hash/hash.h"
#include "server/db/sql.h"
#include "server/ledger/versions.h"

enum cairn_code cairn_srv_table_keep(struct cairn_srv_tx *tx, const uint8_t digest[32],
                                     struct cairn_view bytes, bool *ret_made,
                                     struct cairn_error *err) {
    uint64_t changed = 0;
    CAIRN_TRY(cairn_srv_sql_run(tx, &changed, err, SQL(table_insert), SQL_D(digest), SQL_B(bytes),
                                SQL_I(cairn_srv_tick(tx))));
    CAIRN_ASSERT(changed <= 1);
    *ret_made = changed == 1;
    return CAIRN_OK;
}

enum cairn_code cairn_srv_table_get(struct cairn_srv_tx *tx, const uint8_t digest[32],
                                    struct cairn_buf *ret, bool *ret_there,
                                    struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_first(tx, &rows, ret_there, err, SQL(table_get), SQL_D(digest)));
    if (!*ret_there) return CAIRN_OK;
    struct cairn_view bytes = cairn_srv_rows_blob(&rows, 0);
    return cairn_buf_append(ret, bytes.data, bytes.size, err);
}

/* Hashed under a prefix that no table begins with. */
static void part_digest(const struct cairn_srv_table_part *part, uint8_t ret[32]) {
    static const char what[] = "part of a rank table";
    uint32_t numbers[] = {htole32(part->part), htole32(part->of)};
    struct cairn_sha256 sha;
    cairn_sha256_init(&sha);
    cairn_sha256_update(&sha, what, sizeof(what));
    cairn_sha256_update(&sha, part->table, 32);
    cairn_sha256_update(&sha, numbers, sizeof(numbers));
    cairn_sha256_final(&sha, ret);
    cairn_sha256_release(&sha);
}

enum cairn_code cairn_srv_table_part_keep(struct cairn_srv_tx *tx,
                                          const struct cairn_srv_table_part *part,
                                          struct cairn_view bytes, struct cairn_error *err) {
    uint8_t digest[32];
    part_digest(part, digest);
    return cairn_srv_sql_run(tx, NULL, err, SQL(table_part_insert), SQL_D(digest), SQL_B(bytes),
                             SQL_I(cairn_srv_tick(tx)));
}

enum cairn_code cairn_srv_table_parts_get(struct cairn_srv_tx *tx,
                                          const struct cairn_srv_table_part *last,
                                          struct cairn_buf *ret, struct cairn_error *err) {
    struct cairn_srv_table_part part = *last;
    for (part.part = 1; part.part <= part.of; part.part++) {
        uint8_t digest[32];
        bool there = false;
        part_digest(&part, digest);
        CAIRN_TRY(cairn_srv_table_get(tx, digest, ret, &there, err));
        if (!there)
            return cairn_fail(err, CAIRN_TABLE_UNKNOWN,
                              "part %u of %u of this table is not here: send all of them again",
                              part.part, part.of);
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_table_parts_drop(struct cairn_srv_tx *tx,
                                           const struct cairn_srv_table_part *last,
                                           struct cairn_error *err) {
    struct cairn_srv_table_part part = *last;
    for (part.part = 1; part.part <= part.of; part.part++) {
        uint8_t digest[32];
        part_digest(&part, digest);
        CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(table_part_delete), SQL_D(digest)));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_table_use(struct cairn_srv_tx *tx, const uint8_t digest[32],
                                    struct cairn_error *err) {
    uint64_t changed = 0;
    CAIRN_TRY(cairn_srv_sql_run(tx, &changed, err, SQL(table_use), SQL_D(digest),
                                SQL_I(cairn_srv_tick(tx))));
    CAIRN_ASSERT(changed == 1); /* layouts.h#2: the caller has read it in this transaction */
    return CAIRN_OK;
}

static enum cairn_code change(struct cairn_srv_tx *tx, const struct cairn_srv_statement *statement,
                              const struct cairn_srv_layout *layout, struct cairn_error *err) {
    CAIRN_ASSERT(layout->writer.text[0]);
    return cairn_srv_sql_run(tx, NULL, err, statement, SQL_I(layout->run_id), SQL_D(layout->digest),
                             SQL_T(layout->writer.text));
}

static enum cairn_code ask(struct cairn_srv_tx *tx, const struct cairn_srv_statement *statement,
                           const struct cairn_srv_layout *layout, bool *ret,
                           struct cairn_error *err) {
    CAIRN_ASSERT(layout->writer.text[0]);
    return cairn_srv_sql_found(tx, ret, err, statement, SQL_I(layout->run_id),
                               SQL_D(layout->digest), SQL_T(layout->writer.text));
}

enum cairn_code cairn_srv_layout_there(struct cairn_srv_tx *tx,
                                       const struct cairn_srv_layout *layout, bool *ret,
                                       struct cairn_error *err) {
    return ask(tx, SQL(layout_there), layout, ret, err);
}

enum cairn_code cairn_srv_layout_swept(struct cairn_srv_tx *tx,
                                       const struct cairn_srv_layout *layout, bool *ret,
                                       struct cairn_error *err) {
    return ask(tx, SQL(layout_swept), layout, ret, err);
}

enum cairn_code cairn_srv_layout_add(struct cairn_srv_tx *tx, const struct cairn_srv_layout *layout,
                                     struct cairn_error *err) {
    return change(tx, SQL(layout_insert), layout, err);
}

enum cairn_code cairn_srv_layout_use(struct cairn_srv_tx *tx, const struct cairn_srv_layout *layout,
                                     struct cairn_error *err) {
    return change(tx, SQL(layout_use), layout, err);
}

enum cairn_code cairn_srv_layout_take(struct cairn_srv_tx *tx,
                                      const struct cairn_srv_layout *layout,
                                      struct cairn_error *err) {
    return change(tx, SQL(layout_take), layout, err);
}

/* Updates only rows whose mark changes. */
static enum cairn_code mark_unused(struct cairn_srv_tx *tx, uint64_t tick,
                                   struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(layouts_mark_used)));
    return cairn_srv_sql_run(tx, NULL, err, SQL(layouts_mark_unused), SQL_I(tick));
}

static enum cairn_code list_unused(struct cairn_srv_tx *tx, int64_t before,
                                   struct cairn_srv_layout ret[CAIRN_SRV_LAYOUTS_MAX],
                                   size_t *ret_count, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(layouts_unused), SQL_I(before)));
    for (bool more = true; *ret_count < CAIRN_SRV_LAYOUTS_MAX; (*ret_count)++) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) break;
        struct cairn_srv_layout *one = &ret[*ret_count];
        one->run_id = cairn_srv_rows_i64(&rows, 0);
        cairn_srv_rows_name(&rows, 1, &one->name);
        struct cairn_view digest = cairn_srv_rows_blob(&rows, 3);
        if (digest.size == 32) memcpy(one->digest, digest.data, 32);
        SQL_COPY(one->writer.text, &rows, 4);
    }
    return CAIRN_OK;
}

/* layouts.h#1: 1 = no new references, 2 = its object is deleted, too. */
static enum cairn_code set_deleted(struct cairn_srv_tx *tx, const struct cairn_srv_layout *layouts,
                                   size_t count, int64_t value, struct cairn_error *err) {
    for (size_t i = 0; i < count; i++)
        CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(layout_set_deleted),
                                    SQL_I(layouts[i].run_id), SQL_D(layouts[i].digest),
                                    SQL_T(layouts[i].writer.text), SQL_I(value)));
    return CAIRN_OK;
}

enum cairn_code cairn_srv_layouts_retire(struct cairn_srv_tx *tx, uint64_t unused_ms,
                                         struct cairn_srv_layout ret[CAIRN_SRV_LAYOUTS_MAX],
                                         size_t *ret_count, struct cairn_error *err) {
    uint64_t tick = cairn_srv_tick(tx);
    *ret_count = 0;
    CAIRN_TRY(mark_unused(tx, tick, err));
    if (tick < unused_ms) return CAIRN_OK;
    int64_t before = (int64_t)(tick - unused_ms);
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(tables_drop_unused), SQL_I(before)));
    CAIRN_TRY(list_unused(tx, before, ret, ret_count, err));
    return set_deleted(tx, ret, *ret_count, 1, err);
}

enum cairn_code cairn_srv_layouts_deleted(struct cairn_srv_tx *tx,
                                          const struct cairn_srv_layout *layouts, size_t count,
                                          struct cairn_error *err) {
    return set_deleted(tx, layouts, count, 2, err);
}
