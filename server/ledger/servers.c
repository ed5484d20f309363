/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of servers, and what they agree on; see servers.h. */
#include "server/ledger/servers.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/text.h"
#include "server/db/engine.h"

enum cairn_code cairn_srv_server_put(struct cairn_srv_tx *tx, const char *server, const char *name,
                                     int64_t wall_ms, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(server_put), SQL_T(server), SQL_T(name),
                             SQL_I(wall_ms), SQL_I(cairn_srv_tick(tx)));
}

enum cairn_code cairn_srv_server_seen(struct cairn_srv_tx *tx, const char *server,
                                      struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(server_seen), SQL_T(server),
                             SQL_I(cairn_srv_tick(tx)));
}

enum cairn_code cairn_srv_server_there(struct cairn_srv_tx *tx, const char *server, bool *ret,
                                       struct cairn_error *err) {
    return cairn_srv_sql_found(tx, ret, err, SQL(server_there), SQL_T(server));
}

enum cairn_code cairn_srv_servers_trim(struct cairn_srv_tx *tx, const char *server,
                                       uint64_t tick_ms, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(servers_drop_silent), SQL_T(server),
                             SQL_I(tick_ms));
}

enum cairn_code cairn_srv_server_mark(struct cairn_srv_tx *tx, const char *server, const char *mark,
                                      struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(server_mark), SQL_T(server), SQL_T(mark));
}

enum cairn_code cairn_srv_server_mark_is(struct cairn_srv_tx *tx, const char *server,
                                         const char *mark, bool *ret, struct cairn_error *err) {
    return cairn_srv_sql_found(tx, ret, err, SQL(server_mark_is), SQL_T(server), SQL_T(mark));
}

enum cairn_code cairn_srv_server_join(struct cairn_srv_tx *tx, struct cairn_error *err) {
    bool others = false;
    return tx->engine->join(tx, true, &others, err);
}

enum cairn_code cairn_srv_server_lives(struct cairn_srv_tx *tx, const char *server, bool *ret,
                                       struct cairn_error *err) {
    return tx->engine->lives(tx, server, ret, err);
}

enum cairn_code cairn_srv_servers_others(struct cairn_srv_tx *tx, bool *ret,
                                         struct cairn_error *err) {
    return tx->engine->join(tx, false, ret, err);
}

enum cairn_code cairn_srv_generation_take(struct cairn_srv_tx *tx, uint64_t at_least,
                                          struct cairn_srv_store_seen *seen,
                                          struct cairn_error *err) {
    struct cairn_srv_store_seen now = {0};
    CAIRN_TRY(cairn_srv_store_seen_get(tx, &now, err));
    seen->generation = cairn_max_u64(now.generation, at_least) + 1;
    return cairn_srv_store_seen_put(tx, seen, err);
}

enum cairn_code cairn_srv_life_join(struct cairn_srv_tx *tx, bool goes_on, uint64_t *ret,
                                    struct cairn_error *err) {
    char number[32] = "";
    if (goes_on) CAIRN_TRY(cairn_srv_value_get(tx, "life", number, sizeof(number), err));
    if (number[0] && !cairn_parse_u64(cairn_view_of(number), ret, NULL)) return CAIRN_OK;
    snprintf(number, sizeof(number), "%" PRIu64, *ret);
    return cairn_srv_value_put(tx, "life", number, err);
}

enum cairn_code cairn_srv_key_digest_get(struct cairn_srv_tx *tx,
                                         char ret[CAIRN_SRV_KEY_DIGEST_BYTES],
                                         struct cairn_error *err) {
    return cairn_srv_value_get(tx, "grant_key_digest", ret, CAIRN_SRV_KEY_DIGEST_BYTES, err);
}

enum cairn_code cairn_srv_key_digest_put(struct cairn_srv_tx *tx, const char *digest,
                                         struct cairn_error *err) {
    return cairn_srv_value_put(tx, "grant_key_digest", digest, err);
}
