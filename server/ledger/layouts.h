/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layouts: rank tables by digest, and the version whose object holds a layout.
 *
 * Why:     a rank with an unchanged layout sends 32 bytes, and a version with a known layout
 *          references another version's object; both must exist while they are referenced (Q33).
 * Promise: 1   a swept layout is never referenced again (V20): its row stays.
 *          2   a table that an open version's rank has sealed is not dropped.
 * Limits:  CAIRN_SRV_LAYOUTS_MAX a round.
 * Threads: inside a transaction.
 * Next:    server/commit/commit.c, server/sweep/sweep_objects.c.
 */
#pragma once

#include "api/documents/keys.h"
#include "common/buf.h"
#include "server/db/catalog.h"
#include "server/db/sql.h"

#define CAIRN_SRV_LAYOUTS_MAX 100

/* *ret_made false: it exists already. */
enum cairn_code cairn_srv_table_keep(struct cairn_srv_tx *tx, const uint8_t digest[32],
                                     struct cairn_view bytes, bool *ret_made,
                                     struct cairn_error *err) CAIRN_MUST_USE;
CAIRN_SRV_WORD cairn_srv_table_there(struct cairn_srv_tx *tx, const uint8_t digest[32], bool *ret,
                                     struct cairn_error *err) {
    return cairn_srv_sql_found(tx, ret, err, SQL(table_there), SQL_D(digest));
}
enum cairn_code cairn_srv_table_get(struct cairn_srv_tx *tx, const uint8_t digest[32],
                                    struct cairn_buf *ret, bool *ret_there,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Part `part`, from 1 on, of a table sent in `of` parts: stored like a table, under a digest that
 * no rank's table has, so that incomplete tables are dropped likewise. */
struct cairn_srv_table_part {
    const uint8_t *table; /* 32 bytes */
    uint32_t part, of;
};
enum cairn_code cairn_srv_table_part_keep(struct cairn_srv_tx *tx,
                                          const struct cairn_srv_table_part *part,
                                          struct cairn_view bytes,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Concatenates all `of` parts; CAIRN_TABLE_UNKNOWN: one is missing. */
enum cairn_code cairn_srv_table_parts_get(struct cairn_srv_tx *tx,
                                          const struct cairn_srv_table_part *last,
                                          struct cairn_buf *ret,
                                          struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_table_parts_drop(struct cairn_srv_tx *tx,
                                           const struct cairn_srv_table_part *last,
                                           struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_table_use(struct cairn_srv_tx *tx, const uint8_t digest[32],
                                    struct cairn_error *err) CAIRN_MUST_USE;

/* A layout's object: run, digest, and the version that wrote it. */
struct cairn_srv_layout {
    int64_t run_id;
    struct cairn_run_name name; /* set in lists */
    uint8_t digest[32];
    struct cairn_version_id writer;
};
/* Stores in the version's row which object holds its layout: an existing one, or its own. */
CAIRN_SRV_WORD cairn_srv_layout_choose(struct cairn_srv_tx *tx, const char *version, int64_t run_id,
                                       const uint8_t digest[32], struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(version_choose_layout), SQL_T(version),
                             SQL_D(digest), SQL_I(run_id));
}
/* Q53: switches to another version's object, which the stored manifest names. */
CAIRN_SRV_WORD cairn_srv_layout_rechoose(struct cairn_srv_tx *tx, const char *version,
                                         const char *writer, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(version_set_layout_writer), SQL_T(version),
                             SQL_T(writer));
}
enum cairn_code cairn_srv_layout_there(struct cairn_srv_tx *tx,
                                       const struct cairn_srv_layout *layout, bool *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_layout_swept(struct cairn_srv_tx *tx,
                                       const struct cairn_srv_layout *layout, bool *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Its object may exist; no version references it yet. */
enum cairn_code cairn_srv_layout_add(struct cairn_srv_tx *tx, const struct cairn_srv_layout *layout,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* A committed version references it. */
enum cairn_code cairn_srv_layout_use(struct cairn_srv_tx *tx, const struct cairn_srv_layout *layout,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Reconcile: the store has it, whatever the catalog says. */
enum cairn_code cairn_srv_layout_take(struct cairn_srv_tx *tx,
                                      const struct cairn_srv_layout *layout,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* True when a row names this version as a layout's writer. */
CAIRN_SRV_WORD cairn_srv_layout_written_by(struct cairn_srv_tx *tx, int64_t run_id,
                                           const char *version, bool *ret,
                                           struct cairn_error *err) {
    return cairn_srv_sql_found(tx, ret, err, SQL(layout_of_writer), SQL_I(run_id), SQL_T(version));
}

/* Marks layouts that no version references, drops unused tables, and lists layouts unused for
 * unused_ms: no version references these any more. */
enum cairn_code cairn_srv_layouts_retire(struct cairn_srv_tx *tx, uint64_t unused_ms,
                                         struct cairn_srv_layout ret[CAIRN_SRV_LAYOUTS_MAX],
                                         size_t *ret_count, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_layouts_deleted(struct cairn_srv_tx *tx,
                                          const struct cairn_srv_layout *layouts, size_t count,
                                          struct cairn_error *err) CAIRN_MUST_USE;
