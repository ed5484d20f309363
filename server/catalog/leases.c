/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of leases; see leases.h. */
#include "server/catalog/leases.h"

#include "server/catalog/servers.h"

/* Nobody's, over, or of a server that is gone? The fence that the next holder gets. */
static enum cairn_code is_free(struct cairn_srv_tx *tx, const struct cairn_srv_holder *holder,
                               bool *ret_free, uint64_t *ret_fence, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    bool there = false, lives = true;
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(lease_get), SQL_T(holder->job)));
    CAIRN_TRY(cairn_srv_rows_next(&rows, &there, err));
    *ret_free = true;
    *ret_fence = there ? cairn_srv_rows_u64(&rows, 1) + 1 : 1;
    if (!there || !strcmp(cairn_srv_rows_text(&rows, 0), holder->server)) return CAIRN_OK;
    if (cairn_srv_rows_u64(&rows, 2) <= cairn_srv_tick(tx)) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_server_lives(tx, cairn_srv_rows_text(&rows, 0), &lives, err));
    *ret_free = !lives;
    return CAIRN_OK;
}

enum cairn_code cairn_srv_lease_row_is_expect(struct cairn_srv_tx *tx,
                                              const struct cairn_srv_holder *holder,
                                              struct cairn_error *err) {
    return cairn_srv_sql_expect(tx, err, SQL(lease_is), SQL_T(holder->job), SQL_T(holder->server),
                                SQL_I(holder->fence));
}

enum cairn_code cairn_srv_lease_row_take(struct cairn_srv_tx *tx, struct cairn_srv_holder *holder,
                                         uint64_t until_tick, bool *ret_taken,
                                         struct cairn_error *err) {
    CAIRN_TRY(is_free(tx, holder, ret_taken, &holder->fence, err));
    if (!*ret_taken) return CAIRN_OK;
    return cairn_srv_sql_run(tx, NULL, err, SQL(lease_put), SQL_T(holder->job),
                             SQL_T(holder->server), SQL_I(holder->fence), SQL_I(until_tick));
}

enum cairn_code cairn_srv_lease_row_is(struct cairn_srv_tx *tx,
                                       const struct cairn_srv_holder *holder, bool *ret,
                                       struct cairn_error *err) {
    return cairn_srv_sql_found(tx, ret, err, SQL(lease_is), SQL_T(holder->job),
                               SQL_T(holder->server), SQL_I(holder->fence));
}

enum cairn_code cairn_srv_lease_row_drop(struct cairn_srv_tx *tx,
                                         const struct cairn_srv_holder *holder,
                                         struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(lease_drop), SQL_T(holder->job),
                             SQL_T(holder->server), SQL_I(holder->fence));
}

enum cairn_code cairn_srv_lease_rows_renew(struct cairn_srv_tx *tx, const char *server,
                                           uint64_t until_tick, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(leases_renew), SQL_T(server), SQL_I(until_tick));
}
