/* SPDX-License-Identifier: Apache-2.0 */
/* The catalog's single values; see values.h. */
#include "server/db/values.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/text.h"

enum cairn_code cairn_srv_tick_get(struct cairn_srv_tx *tx, int64_t *ret, struct cairn_error *err) {
    bool found = false;
    CAIRN_TRY(cairn_srv_sql_number(tx, &found, ret, err, SQL(tick)));
    CAIRN_ASSERT(found); /* the first migration made the row */
    return CAIRN_OK;
}

enum cairn_code cairn_srv_tick_expect(struct cairn_srv_tx *tx, struct cairn_error *err) {
    return cairn_srv_sql_expect(tx, err, SQL(tick));
}

uint64_t cairn_srv_tick(struct cairn_srv_tx *tx) {
    int64_t value = 0;
    return cairn_srv_tick_get(tx, &value, NULL) ? 0 : (uint64_t)value;
}

enum cairn_code cairn_srv_tick_raise(struct cairn_srv_tx *tx, uint64_t seen_ms, uint64_t step_ms,
                                     struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(tick_raise), SQL_I(step_ms), SQL_I(seen_ms));
}

enum cairn_code cairn_srv_value_get(struct cairn_srv_tx *tx, const char *name, char *ret,
                                    size_t capacity, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(meta_get), SQL_T(name)));
    bool more = false;
    CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
    (void)cairn_text_copy(ret, capacity, more ? cairn_srv_rows_text(&rows, 0) : "");
    return CAIRN_OK;
}

enum cairn_code cairn_srv_value_put(struct cairn_srv_tx *tx, const char *name, const char *value,
                                    struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(meta_put), SQL_T(name), SQL_T(value));
}

enum cairn_code cairn_srv_store_seen_get(struct cairn_srv_tx *tx, struct cairn_srv_store_seen *ret,
                                         struct cairn_error *err) {
    char number[32];
    CAIRN_TRY(cairn_srv_value_get(tx, "store_uuid", ret->uuid, sizeof(ret->uuid), err));
    CAIRN_TRY(cairn_srv_value_get(tx, "generation", number, sizeof(number), err));
    ret->generation = strtoull(number, NULL, 10);
    return CAIRN_OK;
}

enum cairn_code cairn_srv_store_seen_put(struct cairn_srv_tx *tx,
                                         const struct cairn_srv_store_seen *seen,
                                         struct cairn_error *err) {
    char number[32];
    snprintf(number, sizeof(number), "%" PRIu64, seen->generation);
    CAIRN_TRY(cairn_srv_value_put(tx, "store_uuid", seen->uuid, err));
    return cairn_srv_value_put(tx, "generation", number, err);
}
