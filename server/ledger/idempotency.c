/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of idempotency; see idempotency.h. */
#include "server/ledger/idempotency.h"

#include "common/text.h"
#include "server/db/actor.h"
#include "server/db/engine.h"

static const struct cairn_srv_idempotency *asked(const struct cairn_srv_tx *tx) {
    return tx->actor ? tx->actor->idempotency : NULL;
}

enum cairn_code cairn_srv_idempotency_find(struct cairn_srv_tx *tx,
                                           char ret_subject[CAIRN_SRV_SUBJECT_BYTES],
                                           struct cairn_error *err) {
    const struct cairn_srv_idempotency *call = asked(tx);
    CAIRN_AUTO(srv_rows) rows = {0};
    bool found = false;
    ret_subject[0] = '\0';
    if (!call) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(idempotency_get), SQL_T(call->caller),
                                 SQL_T(call->key),
                                 SQL_I(tx->wall_ms - CAIRN_SRV_IDEMPOTENCY_KEPT_MS)));
    CAIRN_TRY(cairn_srv_rows_next(&rows, &found, err));
    if (!found) return CAIRN_OK;
    struct cairn_view digest = cairn_srv_rows_blob(&rows, 0);
    if (digest.size != sizeof(call->digest) ||
        memcmp(digest.data, call->digest, sizeof(call->digest)) != 0)
        return cairn_fail(err, CAIRN_KEY_REUSED,
                          "Idempotency-Key \"%.64s\" was sent with another call: make a new one",
                          call->key);
    (void)cairn_text_copy(ret_subject, CAIRN_SRV_SUBJECT_BYTES, cairn_srv_rows_text(&rows, 1));
    return CAIRN_OK;
}

enum cairn_code cairn_srv_idempotency_keep(struct cairn_srv_tx *tx, const char *subject,
                                           struct cairn_error *err) {
    const struct cairn_srv_idempotency *call = asked(tx);
    if (!call) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(idempotency_drop_old),
                                SQL_I(tx->wall_ms - CAIRN_SRV_IDEMPOTENCY_KEPT_MS)));
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(idempotency_drop_many), SQL_T(call->caller),
                                SQL_I(CAIRN_SRV_IDEMPOTENCY_MAX - 1)));
    return cairn_srv_sql_run(tx, NULL, err, SQL(idempotency_put), SQL_T(call->caller),
                             SQL_T(call->key), SQL_D(call->digest), SQL_T(subject),
                             SQL_I(tx->wall_ms));
}
