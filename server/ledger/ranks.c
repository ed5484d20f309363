/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of version_ranks and version_groups; see ranks.h. */
#include "server/ledger/ranks.h"

enum cairn_code cairn_srv_rank_join(struct cairn_srv_tx *tx, const char *version, uint64_t rank,
                                    const char *node, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(rank_insert), SQL_T(version), SQL_I(rank),
                             SQL_T(node));
}

enum cairn_code cairn_srv_rank_other(struct cairn_srv_tx *tx, const char *version, uint64_t rank,
                                     uint64_t *ret, struct cairn_error *err) {
    bool found = false;
    int64_t other = 0;
    CAIRN_TRY(cairn_srv_sql_number(tx, &found, &other, err, SQL(rank_first_other), SQL_T(version),
                                   SQL_I(rank)));
    *ret = (uint64_t)other;
    return CAIRN_OK;
}

enum cairn_code cairn_srv_group_join(struct cairn_srv_tx *tx, const char *version,
                                     const struct cairn_srv_group_said *said,
                                     struct cairn_buf *ret_words, uint64_t *ret_first,
                                     struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(group_insert), SQL_T(version), SQL_T(said->name),
                                SQL_T(said->words), SQL_I(said->rank)));
    CAIRN_AUTO(srv_rows) rows = {0};
    bool found = false;
    CAIRN_TRY(
        cairn_srv_sql_open(tx, &rows, err, SQL(group_get), SQL_T(version), SQL_T(said->name)));
    CAIRN_TRY(cairn_srv_rows_next(&rows, &found, err));
    CAIRN_ASSERT(found); /* put in above, or by an earlier begin */
    *ret_first = cairn_srv_rows_u64(&rows, 1);
    return cairn_buf_append_text(ret_words, cairn_srv_rows_text(&rows, 0), err);
}

enum cairn_code cairn_srv_dispute_get(struct cairn_srv_tx *tx, const char *version,
                                      struct cairn_buf *ret, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    bool found = false;
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(dispute_get), SQL_T(version)));
    CAIRN_TRY(cairn_srv_rows_next(&rows, &found, err));
    return found ? cairn_buf_append_text(ret, cairn_srv_rows_text(&rows, 0), err) : CAIRN_OK;
}

enum cairn_code cairn_srv_dispute_put(struct cairn_srv_tx *tx, const char *version,
                                      const char *words, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(dispute_put), SQL_T(version), SQL_T(words));
}

enum cairn_code cairn_srv_dispute_settle(struct cairn_srv_tx *tx, const char *version,
                                         const char *reason, struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(dispute_drop), SQL_T(version)));
    return cairn_srv_sql_run(tx, NULL, err, SQL(version_set_reason), SQL_T(version), SQL_T(reason));
}

enum cairn_code cairn_srv_ranks_sealed(
    struct cairn_srv_tx *tx, const char *version,
    enum cairn_code (*each)(void *argument, const struct cairn_srv_rank_sealed *rank,
                            struct cairn_error *err),
    void *argument, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(ranks_of_version), SQL_T(version)));
    for (bool more = true;;) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) return CAIRN_OK;
        struct cairn_view digest = cairn_srv_rows_blob(&rows, 1);
        struct cairn_srv_rank_sealed rank = {.rank = (uint32_t)cairn_srv_rows_i64(&rows, 0),
                                             .has_table = digest.size == sizeof(rank.table)};
        if (rank.has_table) memcpy(rank.table, digest.data, sizeof(rank.table));
        rank.replicated = cairn_srv_rows_text(&rows, 2);
        CAIRN_TRY(each(argument, &rank, err));
    }
}
