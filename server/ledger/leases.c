/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of leases; see leases.h. */
#include "server/ledger/leases.h"

#include "common/text.h"
#include "server/ledger/servers.h"

enum cairn_code cairn_srv_lease_row_find(struct cairn_srv_tx *tx, const char *job,
                                         struct cairn_srv_lease_row *ret,
                                         struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    *ret = (struct cairn_srv_lease_row){0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(lease_get), SQL_T(job)));
    CAIRN_TRY(cairn_srv_rows_next(&rows, &ret->there, err));
    if (!ret->there) return CAIRN_OK;
    (void)cairn_text_copy(ret->server, sizeof(ret->server), cairn_srv_rows_text(&rows, 0));
    ret->fence = cairn_srv_rows_u64(&rows, 1);
    ret->until_tick = cairn_srv_rows_u64(&rows, 2);
    return CAIRN_OK;
}

enum cairn_code cairn_srv_lease_row_expect(struct cairn_srv_tx *tx, const char *job,
                                           struct cairn_error *err) {
    return cairn_srv_sql_expect(tx, err, SQL(lease_get), SQL_T(job));
}

/* Nobody's, over, or of a server that is gone? */
static enum cairn_code is_free(struct cairn_srv_tx *tx, const struct cairn_srv_holder *holder,
                               const struct cairn_srv_lease_row *found, uint64_t now_tick,
                               bool *ret_free, struct cairn_error *err) {
    bool lives = true;
    *ret_free = true;
    if (!found->there || !strcmp(found->server, holder->server)) return CAIRN_OK;
    if (found->until_tick <= now_tick) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_server_lives(tx, found->server, &lives, err));
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
                                         const struct cairn_srv_lease_row *found, uint64_t now_tick,
                                         uint64_t until_tick, bool *ret_taken,
                                         struct cairn_error *err) {
    CAIRN_TRY(is_free(tx, holder, found, now_tick, ret_taken, err));
    holder->fence = found->fence + 1;
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
