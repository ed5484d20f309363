/* SPDX-License-Identifier: Apache-2.0 */
/* Each kind goes by the key or an index of its own; see over.h. */
#include "server/ledger/over.h"

enum cairn_code cairn_srv_over_attempt(struct cairn_srv_tx *tx, int64_t run_id, uint64_t newest,
                                       struct cairn_error *err) {
    if (newest < 2) return CAIRN_OK;
    return cairn_srv_sql_run(tx, NULL, err, SQL(members_drop_before), SQL_I(run_id),
                             SQL_I(newest - 1));
}

enum cairn_code cairn_srv_over_ended(struct cairn_srv_tx *tx, int64_t run_id, uint64_t attempt,
                                     struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(tombstones_drop_of_ended), SQL_I(run_id),
                             SQL_I(attempt));
}

static enum cairn_code find_removed(struct cairn_srv_tx *tx, uint64_t before,
                                    int64_t ret[CAIRN_SRV_OVER_ROUND], size_t *ret_count,
                                    struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    *ret_count = 0;
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(runs_removed_before), SQL_I(before),
                                 SQL_I(CAIRN_SRV_OVER_ROUND)));
    for (bool more = true; *ret_count < CAIRN_SRV_OVER_ROUND;) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) return CAIRN_OK;
        ret[(*ret_count)++] = cairn_srv_rows_i64(&rows, 0);
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_over_forget(struct cairn_srv_tx *tx, uint64_t before,
                                      struct cairn_error *err) {
    static const enum cairn_srv_statement_number drops[] = {
        CAIRN_SRV_STATEMENT_run_drop_tombstones, CAIRN_SRV_STATEMENT_run_drop_uploaders,
        CAIRN_SRV_STATEMENT_run_drop_ranks, CAIRN_SRV_STATEMENT_run_drop_attempts,
        CAIRN_SRV_STATEMENT_run_set_forgotten};
    int64_t runs[CAIRN_SRV_OVER_ROUND];
    size_t count = 0;
    CAIRN_TRY(find_removed(tx, before, runs, &count, err));
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < CAIRN_COUNT(drops); k++)
            CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, &cairn_srv_statements[drops[k]],
                                        SQL_I(runs[i])));
    return CAIRN_OK;
}
