/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layouts: rank tables by digest, and the version whose object holds a layout.
 *
 * Why:     a rank with an unchanged layout sends 32 bytes, and a version with a known layout
 *          references another version's object; both must exist while they are referenced (Q33).
 * Promise: 1   a swept layout is never referenced again (V20): its row stays.
 *          2   a table that an open version's rank has sealed is not dropped.
 * Limits:  SRV_LAYOUTS_MAX a round.
 * Threads: inside a transaction.
 * Next:    server/commit/commit.c, server/sweep/sweep_objects.c.
 */
#pragma once

#include "server/db/sql.h"

#define SRV_LAYOUTS_MAX 100

/* *ret_made false: it exists already. */
enum cairn_code srv_table_keep(struct srv_tx *tx, const uint8_t digest[32], struct cairn_view bytes,
                               bool *ret_made, struct cairn_error *err) CAIRN_MUST_USE;
SRV_FINDS(table_there, (const uint8_t digest[32]), table_there, SQL_D(digest));
enum cairn_code srv_table_get(struct srv_tx *tx, const uint8_t digest[32], struct cairn_buf *ret,
                              bool *ret_there, struct cairn_error *err) CAIRN_MUST_USE;
/* Part `part`, from 1 on, of a table sent in `of` parts: stored like a table, under a digest that
 * no rank's table has, so that incomplete tables are dropped likewise. */
struct srv_table_part {
    const uint8_t *table; /* 32 bytes */
    uint32_t part, of;
};
enum cairn_code srv_table_part_keep(struct srv_tx *tx, const struct srv_table_part *part,
                                    struct cairn_view bytes,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Concatenates all `of` parts; CAIRN_TABLE_UNKNOWN: one is missing. */
enum cairn_code srv_table_parts_get(struct srv_tx *tx, const struct srv_table_part *last,
                                    struct cairn_buf *ret, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code srv_table_parts_drop(struct srv_tx *tx, const struct srv_table_part *last,
                                     struct cairn_error *err) CAIRN_MUST_USE;
SRV_WORD srv_table_use(struct srv_tx *tx, const uint8_t digest[32], struct cairn_error *err) {
    uint64_t changed = 0;
    CAIRN_TRY(srv_sql_run(tx, &changed, err, SQL(table_use), SQL_D(digest), SQL_I(srv_tick(tx))));
    CAIRN_ASSERT(changed == 1); /* layouts.h#2: the caller has read it in this transaction */
    return CAIRN_OK;
}

/* A layout's object: run, digest, and the version that wrote it. */
struct srv_layout {
    int64_t run_id;
    struct cairn_run_name name; /* set in lists */
    uint8_t digest[32];
    struct cairn_version_id writer;
};
/* Stores in the version's row which object holds its layout: an existing one, or its own. */
SRV_RUNS(layout_choose, (const char *version, int64_t run_id, const uint8_t digest[32]),
         version_choose_layout, SQL_T(version), SQL_D(digest), SQL_I(run_id));
/* Q53: switches to another version's object, which the stored manifest names. */
SRV_RUNS(layout_rechoose, (const char *version, const char *writer), version_set_layout_writer,
         SQL_T(version), SQL_T(writer));
/* The values that name a layout to a statement. */
static inline const char *srv_layout_writer(const struct srv_layout *layout) {
    CAIRN_ASSERT(layout->writer.text[0]);
    return layout->writer.text;
}
#define SRV_LAYOUT_KEY                                                                             \
    SQL_I(layout->run_id), SQL_D(layout->digest), SQL_T(srv_layout_writer(layout))
SRV_FINDS(layout_there, (const struct srv_layout *layout), layout_there, SRV_LAYOUT_KEY);
SRV_FINDS(layout_swept, (const struct srv_layout *layout), layout_swept, SRV_LAYOUT_KEY);
/* Its object may exist; no version references it yet. */
SRV_RUNS(layout_add, (const struct srv_layout *layout), layout_insert, SRV_LAYOUT_KEY);
/* A committed version references it. */
SRV_RUNS(layout_use, (const struct srv_layout *layout), layout_use, SRV_LAYOUT_KEY);
/* Reconcile: the store has it, whatever the catalog says. */
SRV_RUNS(layout_take, (const struct srv_layout *layout), layout_take, SRV_LAYOUT_KEY);
/* True when a row names this version as a layout's writer. */
SRV_FINDS(layout_written_by, (int64_t run_id, const char *version), layout_of_writer, SQL_I(run_id),
          SQL_T(version));

/* Marks layouts that no version references, drops unused tables, and lists layouts unused for
 * unused_ms: no version references these any more. */
enum cairn_code srv_layouts_retire(struct srv_tx *tx, uint64_t unused_ms,
                                   struct srv_layout ret[SRV_LAYOUTS_MAX], size_t *ret_count,
                                   struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code srv_layouts_deleted(struct srv_tx *tx, const struct srv_layout *layouts,
                                    size_t count, struct cairn_error *err) CAIRN_MUST_USE;
