/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of servers, of leases of jobs and readers, and of nodes; see leases.h. */
#include "server/ledger/leases.h"

#include <inttypes.h>
#include <stdio.h>

#include "api/wire/messages.h"
#include "common/clock.h"
#include "common/hash/hash.h"
#include "common/text.h"
#include "server/db/engine.h"
#include "server/db/sql.h"
#include "server/ledger/events.h"

enum cairn_code cairn_srv_server_join(struct cairn_srv_tx *tx, struct cairn_error *err) {
    bool others = false;
    return tx->engine->join(tx, true, &others, err);
}

/* True when that server has joined and is alive. */
static enum cairn_code server_lives(struct cairn_srv_tx *tx, const char *server, bool *ret,
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

enum cairn_code cairn_srv_lease_row_find(struct cairn_srv_tx *tx, const char *job,
                                         struct cairn_srv_lease_row *ret, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    *ret = (struct cairn_srv_lease_row){0};
    CAIRN_TRY(cairn_srv_sql_first(tx, &rows, &ret->there, err, SQL(lease_get), SQL_T(job)));
    if (!ret->there) return CAIRN_OK;
    SQL_COPY(ret->server, &rows, 0);
    ret->fence = cairn_srv_rows_u64(&rows, 1);
    ret->until_tick = cairn_srv_rows_u64(&rows, 2);
    return CAIRN_OK;
}

/* True without a holder, after its end, or when its server is dead. */
static enum cairn_code is_free(struct cairn_srv_tx *tx, const struct cairn_srv_holder *holder,
                               const struct cairn_srv_lease_row *found, uint64_t now_tick,
                               bool *ret_free, struct cairn_error *err) {
    bool lives = true;
    *ret_free = true;
    if (!found->there || !strcmp(found->server, holder->server)) return CAIRN_OK;
    if (found->until_tick <= now_tick) return CAIRN_OK;
    CAIRN_TRY(server_lives(tx, found->server, &lives, err));
    *ret_free = !lives;
    return CAIRN_OK;
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

struct cairn_srv_node_mark cairn_srv_node_of(const struct cairn_srv_rows *rows) {
    return (struct cairn_srv_node_mark){.node = cairn_srv_rows_text(rows, 0),
                                        .last_tick = cairn_srv_rows_u64(rows, 1),
                                        .asked = cairn_srv_rows_u64(rows, 2),
                                        .answered = cairn_srv_rows_u64(rows, 3),
                                        .away = cairn_srv_rows_i64(rows, 4) != 0,
                                        .said = cairn_srv_rows_text(rows, 5),
                                        .projects = cairn_srv_rows_text(rows, 6)};
}

enum cairn_code cairn_srv_node_look(struct cairn_srv_tx *tx, const char *node,
                                    void (*each)(void *argument,
                                                 const struct cairn_srv_node_mark *mark,
                                                 const char *uploader, uint64_t tick),
                                    void *argument, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) marks = {0};
    CAIRN_AUTO(srv_rows) words = {0};
    bool there = false;
    CAIRN_TRY(cairn_srv_sql_first(tx, &marks, &there, err, SQL(node_get), SQL_T(node)));
    if (there) {
        CAIRN_TRY(cairn_srv_sql_first(tx, &words, &there, err, SQL(node_uploader), SQL_T(node)));
    }
    if (!there) return cairn_fail(err, CAIRN_NOT_FOUND, "node %s has no row", node);
    const struct cairn_srv_node_mark mark = cairn_srv_node_of(&marks);
    each(argument, &mark, cairn_srv_rows_text(&words, 0), cairn_srv_tick(tx));
    return CAIRN_OK;
}

enum cairn_code cairn_srv_node_drop(struct cairn_srv_tx *tx, const char *node, bool *ret_there,
                                    struct cairn_error *err) {
    uint64_t changed = 0;
    CAIRN_TRY(cairn_srv_sql_run(tx, &changed, err, SQL(node_drop), SQL_T(node)));
    *ret_there = changed > 0;
    if (!changed) return CAIRN_OK;
    static const struct cairn_run_name all;
    return cairn_srv_event_of_name(tx, CAIRN_SRV_EVENT_NODE_REMOVED, &all, node, err);
}

enum cairn_code cairn_srv_nodes_trim(struct cairn_srv_tx *tx, uint64_t tick_ms,
                                     struct cairn_error *err) {
    int64_t count = 0;
    bool found = false;
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(nodes_drop_silent), SQL_I(tick_ms)));
    CAIRN_TRY(cairn_srv_sql_number(tx, &found, &count, err, SQL(nodes_count)));
    if (count <= CAIRN_SRV_NODE_ROWS_MAX) return CAIRN_OK;
    return cairn_srv_sql_run(tx, NULL, err, SQL(nodes_drop_oldest),
                             SQL_I(count - CAIRN_SRV_NODE_ROWS_MAX));
}

enum cairn_code cairn_srv_nodes_page(struct cairn_srv_tx *tx, const char *after, size_t limit,
                                     enum cairn_code (*each)(void *argument,
                                                             const struct cairn_srv_node_row *row,
                                                             struct cairn_error *err),
                                     void *argument, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(nodes_page), SQL_T(after), SQL_I(limit)));
    for (bool more = true;;) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) return CAIRN_OK;
        struct cairn_srv_node_row row = {.node = cairn_srv_rows_text(&rows, 0),
                                         .uploader = cairn_srv_rows_text(&rows, 1),
                                         .wall_ms = cairn_srv_rows_i64(&rows, 2)};
        CAIRN_TRY(each(argument, &row, err));
    }
}

/* An ended row protects nothing; the next sweep drops it. */

void cairn_srv_read_lease_name(const char *version, const char *job,
                               char ret[CAIRN_SRV_READ_LEASE_BYTES]) {
    struct cairn_sha256 sha;
    uint8_t digest[CAIRN_SHA256_BYTES];
    char hex[33];
    cairn_sha256_init(&sha);
    cairn_sha256_update(&sha, version, strlen(version) + 1);
    cairn_sha256_update(&sha, job, strlen(job));
    cairn_sha256_final(&sha, digest);
    cairn_sha256_release(&sha);
    cairn_hex_encode(digest, 16, hex);
    snprintf(ret, CAIRN_SRV_READ_LEASE_BYTES, "lease_%s", hex);
}

static enum cairn_code check_room(struct cairn_srv_tx *tx, const char *version,
                                  struct cairn_error *err) {
    int64_t count = 0;
    bool found = false;
    CAIRN_TRY(
        cairn_srv_sql_number(tx, &found, &count, err, SQL(read_leases_count), SQL_T(version)));
    if (count < CAIRN_SRV_READ_LEASES_MAX) return CAIRN_OK;
    return cairn_fail(err, CAIRN_BUSY,
                      "%s has %lld read leases: processes of one job share one, by the same job",
                      version, (long long)count);
}

enum cairn_code cairn_srv_read_lease_take(struct cairn_srv_tx *tx,
                                          const struct cairn_srv_read_lease *lease, bool *ret_made,
                                          struct cairn_error *err) {
    bool found = false;
    *ret_made = false;
    CAIRN_TRY(
        cairn_srv_read_lease_renew(tx, lease->id, lease->version, lease->until_tick, &found, err));
    if (found) return CAIRN_OK;
    CAIRN_TRY(check_room(tx, lease->version, err));
    *ret_made = true;
    return cairn_srv_sql_run(tx, NULL, err, SQL(read_lease_put), SQL_T(lease->id),
                             SQL_T(lease->version), SQL_T(lease->job), SQL_I(lease->until_tick),
                             SQL_I(lease->wall_ms));
}

enum cairn_code cairn_srv_read_lease_renew(struct cairn_srv_tx *tx, const char *id,
                                           const char *version, uint64_t until_tick,
                                           bool *ret_found, struct cairn_error *err) {
    uint64_t changed = 0;
    CAIRN_TRY(cairn_srv_sql_run(tx, &changed, err, SQL(read_lease_renew), SQL_T(id), SQL_T(version),
                                SQL_I(until_tick)));
    *ret_found = changed > 0;
    return CAIRN_OK;
}

enum cairn_code cairn_srv_read_lease_drop(struct cairn_srv_tx *tx, const char *id,
                                          const char *version, bool *ret_found,
                                          struct cairn_error *err) {
    uint64_t changed = 0;
    CAIRN_TRY(
        cairn_srv_sql_run(tx, &changed, err, SQL(read_lease_drop), SQL_T(id), SQL_T(version)));
    *ret_found = changed > 0;
    return CAIRN_OK;
}

enum cairn_code cairn_srv_read_leases_of(struct cairn_srv_tx *tx, const char *version,
                                         uint64_t step, json_t **ret, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_AUTO_JSON json_t *array = json_array();
    uint64_t tick = cairn_srv_tick(tx);
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(read_leases_of_version), SQL_T(version),
                                 SQL_I(tick)));
    for (bool more = true;;) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) break;
        char taken[32];
        cairn_time_text(cairn_srv_rows_i64(&rows, 3), true, taken);
        uint64_t left_ms = cairn_srv_rows_u64(&rows, 2) - tick;
        json_t *item =
            CAIRN_PACK(lease_row, .lease = cairn_srv_rows_text(&rows, 0), .version = version,
                       .step = step, .job = cairn_srv_rows_text(&rows, 1),
                       .expires_s = (left_ms + 999) / 1000, .taken_at = taken);
        if (json_array_append_new(array, item))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    }
    *ret = CAIRN_TAKE(array);
    return CAIRN_OK;
}
