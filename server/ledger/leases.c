/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of servers, of leases of jobs and readers, and of nodes; see leases.h. */
#include "server/ledger/leases.h"

#include <inttypes.h>
#include <stdio.h>

#include "api/wire/messages.h"
#include "common/clock.h"
#include "server/db/engine.h"
#include "server/ledger/events.h"

enum cairn_code srv_server_join(struct srv_tx *tx, struct cairn_error *err) {
    bool others = false;
    return tx->engine->join(tx, true, &others, err);
}

enum cairn_code srv_servers_others(struct srv_tx *tx, bool *ret, struct cairn_error *err) {
    return tx->engine->join(tx, false, ret, err);
}

enum cairn_code srv_life_join(struct srv_tx *tx, bool goes_on, uint64_t *ret,
                              struct cairn_error *err) {
    char number[32] = "";
    if (goes_on) CAIRN_TRY(srv_value_get(tx, "life", number, sizeof(number), err));
    if (number[0] && !cairn_parse_u64(cairn_view_of(number), ret, NULL)) return CAIRN_OK;
    snprintf(number, sizeof(number), "%" PRIu64, *ret);
    return srv_value_put(tx, "life", number, err);
}

/* True without a holder, after its end, or when its server is dead. */
static enum cairn_code is_free(struct srv_tx *tx, const struct srv_holder *holder,
                               const struct srv_lease_row *found, uint64_t now_tick, bool *ret_free,
                               struct cairn_error *err) {
    bool lives = true;
    *ret_free = true;
    if (!found->there || !strcmp(found->server, holder->server)) return CAIRN_OK;
    if (found->until_tick <= now_tick) return CAIRN_OK;
    CAIRN_TRY(tx->engine->lives(tx, found->server, &lives, err));
    *ret_free = !lives;
    return CAIRN_OK;
}

enum cairn_code srv_lease_row_take(struct srv_tx *tx, struct srv_holder *holder,
                                   const struct srv_lease_row *found, uint64_t now_tick,
                                   uint64_t until_tick, bool *ret_taken, struct cairn_error *err) {
    CAIRN_TRY(is_free(tx, holder, found, now_tick, ret_taken, err));
    holder->fence = found->fence + 1;
    if (!*ret_taken) return CAIRN_OK;
    return srv_sql_run(tx, NULL, err, SQL(lease_put), SQL_T(holder->job), SQL_T(holder->server),
                       SQL_I(holder->fence), SQL_I(until_tick));
}

enum cairn_code srv_node_look(struct srv_tx *tx, const char *node,
                              void (*each)(void *argument, const struct srv_node_mark *mark,
                                           const char *uploader, uint64_t tick),
                              void *argument, struct cairn_error *err) {
    SRV_AUTO(rows) words = {0};
    bool there = false;
    SQL_FIRST(marks, &there, tx, err, SQL(node_get), SQL_T(node));
    if (there) CAIRN_TRY(srv_sql_first(tx, &words, &there, err, SQL(node_uploader), SQL_T(node)));
    if (!there) return cairn_fail(err, CAIRN_NOT_FOUND, "node %s has no row", node);
    const struct srv_node_mark mark = srv_row_node_mark(&marks);
    each(argument, &mark, srv_rows_text(&words, 0), srv_tick(tx));
    return CAIRN_OK;
}

enum cairn_code srv_node_drop(struct srv_tx *tx, const char *node, bool *ret_there,
                              struct cairn_error *err) {
    CAIRN_TRY(srv_sql_changed(tx, ret_there, err, SQL(node_drop), SQL_T(node)));
    if (!*ret_there) return CAIRN_OK;
    static const struct cairn_run_name all;
    return srv_event_of_name(tx, SRV_EVENT_NODE_REMOVED, &all, node, err);
}

enum cairn_code srv_nodes_trim(struct srv_tx *tx, uint64_t tick_ms, struct cairn_error *err) {
    uint64_t count = 0;
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(nodes_drop_silent), SQL_I(tick_ms)));
    CAIRN_TRY(srv_sql_u64(tx, &count, err, SQL(nodes_count)));
    if (count <= SRV_NODE_ROWS_MAX) return CAIRN_OK;
    return srv_sql_run(tx, NULL, err, SQL(nodes_drop_oldest), SQL_I(count - SRV_NODE_ROWS_MAX));
}

/* An ended row protects nothing; the next sweep drops it. */

void srv_read_lease_name(const char *version, const char *job, char ret[SRV_READ_LEASE_BYTES]) {
    struct cairn_sha256 sha;
    uint8_t digest[CAIRN_SHA256_BYTES];
    char hex[33];
    cairn_sha256_init(&sha);
    cairn_sha256_update(&sha, version, strlen(version) + 1);
    cairn_sha256_update(&sha, job, strlen(job));
    cairn_sha256_final(&sha, digest);
    cairn_sha256_release(&sha);
    cairn_hex_encode(digest, 16, hex);
    snprintf(ret, SRV_READ_LEASE_BYTES, "lease_%s", hex);
}

static enum cairn_code check_room(struct srv_tx *tx, const char *version, struct cairn_error *err) {
    uint64_t count = 0;
    CAIRN_TRY(srv_sql_u64(tx, &count, err, SQL(read_leases_count), SQL_T(version)));
    if (count < SRV_READ_LEASES_MAX) return CAIRN_OK;
    return cairn_fail(err, CAIRN_BUSY,
                      "%s has %" PRIu64
                      " read leases: processes of one job share one, by the same job",
                      version, count);
}

enum cairn_code srv_read_lease_take(struct srv_tx *tx, const struct srv_read_lease *lease,
                                    bool *ret_made, struct cairn_error *err) {
    bool found = false;
    *ret_made = false;
    CAIRN_TRY(srv_read_lease_renew(tx, lease->id, lease->version, lease->until_tick, &found, err));
    if (found) return CAIRN_OK;
    CAIRN_TRY(check_room(tx, lease->version, err));
    *ret_made = true;
    return srv_sql_run(tx, NULL, err, SQL(read_lease_put), SQL_T(lease->id), SQL_T(lease->version),
                       SQL_T(lease->job), SQL_I(lease->until_tick), SQL_I(lease->wall_ms));
}

enum cairn_code srv_read_leases_of(struct srv_tx *tx, const char *version, uint64_t step,
                                   json_t **ret, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *array = json_array();
    uint64_t tick = srv_tick(tx);
    SQL_OPEN(rows, tx, err, SQL(read_leases_of_version), SQL_T(version), SQL_I(tick));
    SQL_EACH(&rows, err) {
        char taken[32];
        cairn_time_text(srv_rows_i64(&rows, 3), true, taken);
        uint64_t left_ms = srv_rows_u64(&rows, 2) - tick;
        CAIRN_TRY(cairn_json_append(
            array,
            CAIRN_PACK(lease_row, .lease = srv_rows_text(&rows, 0), .version = version,
                       .step = step, .job = srv_rows_text(&rows, 1),
                       .expires_s = (left_ms + 999) / 1000, .taken_at = taken),
            "the answer", err));
    }
    *ret = CAIRN_TAKE(array);
    return CAIRN_OK;
}
