/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of not_freed; see not_freed.h. */
#include "server/ledger/not_freed.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/text.h"
#include "server/db/engine.h"
#include "server/ledger/events.h"

/* not_freed.h#2; the first one is Q30's second sweep, which may find it gone. */
static const uint64_t pauses_ms[] = {10000, 60000, 300000, 1800000, 7200000, 21600000, 86400000};

/* ---- a row ---- */

static void read_row(const struct cairn_srv_rows *rows, struct cairn_srv_not_freed *ret) {
    *ret = (struct cairn_srv_not_freed){.there = true,
                                        .left = {.code = (enum cairn_code)
                                                     cairn_srv_rows_i64(rows, 0),
                                                 .counted = cairn_srv_rows_i64(rows, 2) != 0,
                                                 .objects = cairn_srv_rows_u64(rows, 3),
                                                 .bytes = cairn_srv_rows_u64(rows, 4)},
                                        .since_ms = cairn_srv_rows_i64(rows, 5),
                                        .tried_ms = cairn_srv_rows_i64(rows, 6),
                                        .tries = cairn_srv_rows_u64(rows, 7),
                                        .next_tick = cairn_srv_rows_u64(rows, 8)};
    (void)cairn_text_copy(ret->left.reason, sizeof(ret->left.reason),
                          cairn_srv_rows_text(rows, 1));
}

enum cairn_code cairn_srv_not_freed_get(struct cairn_srv_tx *tx, const char *version,
                                        struct cairn_srv_not_freed *ret, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    bool found = false;
    *ret = (struct cairn_srv_not_freed){0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(not_freed_get), SQL_T(version)));
    CAIRN_TRY(cairn_srv_rows_next(&rows, &found, err));
    if (found) read_row(&rows, ret);
    return CAIRN_OK;
}

static enum cairn_code tell(struct cairn_srv_tx *tx, const char *version,
                            const struct cairn_srv_left *left, struct cairn_error *err) {
    char reason[CAIRN_SRV_LEFT_REASON_BYTES + 64], size[24];
    cairn_size_text(left->bytes, size);
    snprintf(reason, sizeof(reason), "%s%s: %s", left->counted ? "" : "at least ", size,
             left->reason);
    return cairn_srv_event_of_version(tx, CAIRN_SRV_EVENT_CHECKPOINT_NOT_FREED, version, left->code,
                                      reason, err);
}

enum cairn_code cairn_srv_not_freed_note(struct cairn_srv_tx *tx, const char *version,
                                         const struct cairn_srv_left *left,
                                         struct cairn_error *err) {
    struct cairn_srv_not_freed before;
    uint64_t objects = left->objects, bytes = left->bytes;
    CAIRN_ASSERT(left->code); /* nothing is left for no reason */
    CAIRN_TRY(cairn_srv_not_freed_get(tx, version, &before, err));
    /* What a later try cannot count was hidden by the first, which could. */
    if (!left->counted && before.left.objects > objects) objects = before.left.objects;
    if (!left->counted && before.left.bytes > bytes) bytes = before.left.bytes;
    size_t pause = (size_t)cairn_min_u64(before.tries, CAIRN_COUNT(pauses_ms) - 1);
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(not_freed_put), SQL_T(version),
                                SQL_I(left->code), SQL_T(left->reason), SQL_I(left->counted),
                                SQL_I(objects), SQL_I(bytes), SQL_I(tx->wall_ms),
                                SQL_I(before.tries + 1),
                                SQL_I(cairn_srv_tick(tx) + pauses_ms[pause])));
    return before.there ? CAIRN_OK : tell(tx, version, left, err);
}

enum cairn_code cairn_srv_not_freed_drop(struct cairn_srv_tx *tx, const char *version,
                                         struct cairn_error *err) {
    uint64_t changed = 0;
    CAIRN_TRY(cairn_srv_sql_run(tx, &changed, err, SQL(not_freed_drop), SQL_T(version)));
    if (!changed) return CAIRN_OK;
    return cairn_srv_event_of_version(tx, CAIRN_SRV_EVENT_CHECKPOINT_FREED, version, CAIRN_OK, NULL,
                                      err);
}

enum cairn_code cairn_srv_not_freed_hurry(struct cairn_srv_tx *tx, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(not_freed_hurry));
}

/* ---- all of them ---- */

enum cairn_code cairn_srv_not_freed_sum(struct cairn_srv_tx *tx,
                                        struct cairn_srv_not_freed_sum *ret,
                                        struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    bool found = false;
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(not_freed_sum)));
    CAIRN_TRY(cairn_srv_rows_next(&rows, &found, err));
    CAIRN_ASSERT(found); /* a count is one row */
    *ret = (struct cairn_srv_not_freed_sum){cairn_srv_rows_u64(&rows, 0),
                                            cairn_srv_rows_u64(&rows, 1)};
    return CAIRN_OK;
}

enum cairn_code cairn_srv_not_freed_each(
    struct cairn_srv_tx *tx, const char *after, uint64_t limit,
    enum cairn_code (*each)(const struct cairn_srv_not_freed_row *row, void *owner,
                            struct cairn_error *err),
    void *owner, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(not_freed_page), SQL_T(after), SQL_I(limit)));
    for (bool more = true;;) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) return CAIRN_OK;
        struct cairn_srv_not_freed_row row = {.step = cairn_srv_rows_u64(&rows, 12),
                                              .state = (enum cairn_state)
                                                  cairn_srv_rows_i64(&rows, 13)};
        read_row(&rows, &row.not_freed);
        (void)cairn_text_copy(row.version.text, sizeof(row.version.text),
                              cairn_srv_rows_text(&rows, 9));
        (void)cairn_text_copy(row.name.project, sizeof(row.name.project),
                              cairn_srv_rows_text(&rows, 10));
        (void)cairn_text_copy(row.name.run, sizeof(row.name.run), cairn_srv_rows_text(&rows, 11));
        CAIRN_TRY(each(&row, owner, err));
    }
}
