/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of read_leases; see read_leases.h. A row that has ended protects nothing, and the next sweep
 * drops it. */
#include "server/ledger/read_leases.h"

#include <stdio.h>

#include "api/wire/messages.h"
#include "common/clock.h"
#include "common/hash/hash.h"
#include "common/text.h"
#include "server/db/values.h"
#include "server/ledger/events.h"

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
    CAIRN_TRY(cairn_srv_read_lease_renew(tx, lease->id, lease->version, lease->until_tick, &found,
                                         err));
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

enum cairn_code cairn_srv_version_leased(struct cairn_srv_tx *tx, const char *version, bool *ret,
                                         struct cairn_error *err) {
    return cairn_srv_sql_found(tx, ret, err, SQL(read_lease_holds), SQL_T(version),
                               SQL_I(cairn_srv_tick(tx)));
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

enum cairn_code cairn_srv_read_leases_trim(struct cairn_srv_tx *tx, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(read_leases_trim), SQL_I(cairn_srv_tick(tx)));
}
