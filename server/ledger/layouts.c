/* SPDX-License-Identifier: Apache-2.0 */
/* Rank tables and layouts as rows; see layouts.h. */
#include "server/ledger/layouts.h"

#include <endian.h>

#include "server/ledger/versions.h"

enum cairn_code srv_table_keep(struct srv_tx *tx, const uint8_t digest[32], struct cairn_view bytes,
                               bool *ret_made, struct cairn_error *err) {
    uint64_t changed = 0;
    CAIRN_TRY(srv_sql_run(tx, &changed, err, SQL(table_insert), SQL_D(digest), SQL_B(bytes),
                          SQL_I(srv_tick(tx))));
    CAIRN_ASSERT(changed <= 1);
    *ret_made = changed == 1;
    return CAIRN_OK;
}

enum cairn_code srv_table_get(struct srv_tx *tx, const uint8_t digest[32], struct cairn_buf *ret,
                              bool *ret_there, struct cairn_error *err) {
    SQL_FIRST(rows, ret_there, tx, err, SQL(table_get), SQL_D(digest));
    if (!*ret_there) return CAIRN_OK;
    struct cairn_view bytes = srv_rows_blob(&rows, 0);
    return cairn_buf_append(ret, bytes.data, bytes.size, err);
}

/* Hashed under a prefix that no table begins with. */
static void part_digest(const struct srv_table_part *part, uint8_t ret[32]) {
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

enum cairn_code srv_table_part_keep(struct srv_tx *tx, const struct srv_table_part *part,
                                    struct cairn_view bytes, struct cairn_error *err) {
    uint8_t digest[32];
    part_digest(part, digest);
    return srv_sql_run(tx, NULL, err, SQL(table_part_insert), SQL_D(digest), SQL_B(bytes),
                       SQL_I(srv_tick(tx)));
}

enum cairn_code srv_table_parts_get(struct srv_tx *tx, const struct srv_table_part *last,
                                    struct cairn_buf *ret, struct cairn_error *err) {
    struct srv_table_part part = *last;
    for (part.part = 1; part.part <= part.of; part.part++) {
        uint8_t digest[32];
        bool there = false;
        part_digest(&part, digest);
        CAIRN_TRY(srv_table_get(tx, digest, ret, &there, err));
        if (!there)
            return cairn_fail(err, CAIRN_TABLE_UNKNOWN,
                              "part %u of %u of this table is not here: send all of them again",
                              part.part, part.of);
    }
    return CAIRN_OK;
}

enum cairn_code srv_table_parts_drop(struct srv_tx *tx, const struct srv_table_part *last,
                                     struct cairn_error *err) {
    struct srv_table_part part = *last;
    for (part.part = 1; part.part <= part.of; part.part++) {
        uint8_t digest[32];
        part_digest(&part, digest);
        CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(table_part_delete), SQL_D(digest)));
    }
    return CAIRN_OK;
}

/* layouts.h#1: 1 = no new references, 2 = its object is deleted, too. */
static enum cairn_code set_deleted(struct srv_tx *tx, const struct srv_layout *layouts,
                                   size_t count, int64_t value, struct cairn_error *err) {
    for (size_t i = 0; i < count; i++)
        CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(layout_set_deleted), SQL_I(layouts[i].run_id),
                              SQL_D(layouts[i].digest), SQL_T(layouts[i].writer.text),
                              SQL_I(value)));
    return CAIRN_OK;
}

enum cairn_code srv_layouts_retire(struct srv_tx *tx, uint64_t unused_ms,
                                   struct srv_layout ret[SRV_LAYOUTS_MAX], size_t *ret_count,
                                   struct cairn_error *err) {
    uint64_t tick = srv_tick(tx);
    *ret_count = 0;
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(layouts_mark_used)));
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(layouts_mark_unused), SQL_I(tick)));
    if (tick < unused_ms) return CAIRN_OK;
    int64_t before = (int64_t)(tick - unused_ms);
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(tables_drop_unused), SQL_I(before)));
    {
        SQL_OPEN(rows, tx, err, SQL(layouts_unused), SQL_I(before));
        SQL_EACH(&rows, err) {
            if (*ret_count == SRV_LAYOUTS_MAX) break;
            (void)srv_rows_take(&rows, 0, ROW(layout), &ret[(*ret_count)++]);
        }
    }
    return set_deleted(tx, ret, *ret_count, 1, err);
}

enum cairn_code srv_layouts_deleted(struct srv_tx *tx, const struct srv_layout *layouts,
                                    size_t count, struct cairn_error *err) {
    return set_deleted(tx, layouts, count, 2, err);
}
