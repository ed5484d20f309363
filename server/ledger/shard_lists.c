/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the shards of a version that is not committed yet; see shards.h. */
#include "server/ledger/shard_lists.h"

#include "server/ledger/shards.h"

static enum cairn_code each_row(struct cairn_srv_rows *rows, cairn_srv_each_shard *each,
                                void *argument, struct cairn_error *err) {
    for (bool more = true;;) {
        CAIRN_TRY(cairn_srv_rows_next(rows, &more, err));
        if (!more) return CAIRN_OK;
        struct cairn_srv_shard_row row = {.name = cairn_srv_rows_text(rows, 0),
                                          .rank = cairn_srv_rows_u64(rows, 1),
                                          .size = cairn_srv_rows_u64(rows, 2),
                                          .crc32c = (uint32_t)cairn_srv_rows_i64(rows, 3),
                                          .registered = cairn_srv_rows_i64(rows, 4) != 0,
                                          .part_bytes = cairn_srv_rows_u64(rows, 5),
                                          .node = cairn_srv_rows_text(rows, 6),
                                          .blocks = cairn_srv_rows_blob(rows, 7)};
        CAIRN_TRY(each(argument, &row, err));
    }
}

enum cairn_code cairn_srv_shards_all_expect(struct cairn_srv_tx *tx, const char *version,
                                            struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_sql_expect(tx, err, SQL(shards_of_version), SQL_T(version)));
    return cairn_srv_sql_expect(tx, err, SQL(ranks_of_version), SQL_T(version));
}

enum cairn_code cairn_srv_shards_all(struct cairn_srv_tx *tx, const char *version,
                                     cairn_srv_each_shard *each, void *argument,
                                     struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(shards_of_version), SQL_T(version)));
    return each_row(&rows, each, argument, err);
}

enum cairn_code cairn_srv_shards_page(struct cairn_srv_tx *tx,
                                      const struct cairn_srv_shard_page *page,
                                      cairn_srv_each_shard *each, void *argument,
                                      struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(page->by_rank
                  ? cairn_srv_sql_open(tx, &rows, err, SQL(shards_page_of_rank),
                                       SQL_T(page->version), SQL_I(page->rank), SQL_T(page->after),
                                       SQL_I(page->limit))
                  : cairn_srv_sql_open(tx, &rows, err, SQL(shards_page), SQL_T(page->version),
                                       SQL_T(page->after), SQL_I(page->limit)));
    return each_row(&rows, each, argument, err);
}

enum cairn_code cairn_srv_shard_named(struct cairn_srv_tx *tx, const char *version,
                                      const char *name, cairn_srv_each_shard *each, void *argument,
                                      struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(shard_shown), SQL_T(version), SQL_T(name)));
    return each_row(&rows, each, argument, err);
}

enum cairn_code cairn_srv_version_weight(struct cairn_srv_tx *tx, const char *version,
                                         uint64_t *ret_bytes, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    bool more = false;
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(version_weight), SQL_T(version)));
    CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
    CAIRN_ASSERT(more); /* sums have a row, also over nothing */
    *ret_bytes = cairn_srv_rows_u64(&rows, 0) + cairn_srv_rows_u64(&rows, 1);
    return CAIRN_OK;
}

enum cairn_code cairn_srv_version_progress(struct cairn_srv_tx *tx, const char *version,
                                           struct cairn_srv_progress *ret,
                                           struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    bool more = false;
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(version_counts), SQL_T(version)));
    CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
    CAIRN_ASSERT(more); /* sums have a row, also over nothing */
    *ret = (struct cairn_srv_progress){.shards = cairn_srv_rows_u64(&rows, 0),
                                       .registered = cairn_srv_rows_u64(&rows, 1),
                                       .bytes = cairn_srv_rows_u64(&rows, 2),
                                       .ranks_sealed = cairn_srv_rows_u64(&rows, 3)};
    return CAIRN_OK;
}

enum cairn_code cairn_srv_shards_drop_left(struct cairn_srv_tx *tx, struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(shards_drop_left)));
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(ranks_drop_left)));
    return cairn_srv_sql_run(tx, NULL, err, SQL(groups_drop_left));
}
