/* SPDX-License-Identifier: Apache-2.0 */
/* Positions of webhooks and their dead letters; see webhooks.h. */
#include "server/ledger/webhooks.h"

#include <stdio.h>

#include "server/ledger/events.h"

/* ---- positions ---- */

static enum cairn_code get(struct cairn_srv_tx *tx, const char *name, bool *ret_found,
                           struct cairn_srv_webhook_row *ret, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    *ret = (struct cairn_srv_webhook_row){0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(webhook_get), SQL_T(name)));
    CAIRN_TRY(cairn_srv_rows_next(&rows, ret_found, err));
    if (!*ret_found) return CAIRN_OK;
    ret->position = cairn_srv_rows_u64(&rows, 0);
    ret->failures = cairn_srv_rows_u64(&rows, 1);
    ret->failing_tick = cairn_srv_rows_u64(&rows, 2);
    ret->missed = cairn_srv_rows_u64(&rows, 3);
    ret->delivered = cairn_srv_rows_u64(&rows, 4);
    ret->tried_ms = cairn_srv_rows_i64(&rows, 5);
    ret->delivered_ms = cairn_srv_rows_i64(&rows, 6);
    snprintf(ret->cause, sizeof(ret->cause), "%s", cairn_srv_rows_text(&rows, 7));
    ret->letters = cairn_srv_rows_u64(&rows, 8);
    return CAIRN_OK;
}

enum cairn_code cairn_srv_webhook_get(struct cairn_srv_tx *tx, const char *name,
                                      struct cairn_srv_webhook_row *ret, struct cairn_error *err) {
    bool found = false;
    CAIRN_TRY(get(tx, name, &found, ret, err));
    return found ? CAIRN_OK
                 : cairn_fail(err, CAIRN_NOT_FOUND, "webhook %s was not begun yet", name);
}

enum cairn_code cairn_srv_webhook_open(struct cairn_srv_tx *tx, const char *name,
                                       struct cairn_srv_webhook_row *ret, struct cairn_error *err) {
    bool found = false;
    uint64_t first = 0, last = 0;
    CAIRN_TRY(get(tx, name, &found, ret, err));
    if (found) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_events_bounds(tx, &first, &last, err));
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(webhook_open), SQL_T(name), SQL_I(last)));
    ret->position = last;
    return CAIRN_OK;
}

enum cairn_code cairn_srv_webhook_put(struct cairn_srv_tx *tx, const char *name,
                                      const struct cairn_srv_webhook_row *row,
                                      struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(webhook_put), SQL_T(name), SQL_I(row->position),
                             SQL_I(row->failures), SQL_I(row->failing_tick), SQL_I(row->missed),
                             SQL_I(row->delivered), SQL_I(row->tried_ms), SQL_I(row->delivered_ms),
                             SQL_T(row->cause));
}

/* ---- dead letters ---- */

void cairn_srv_letter_release(struct cairn_srv_letter *letter) {
    json_decref(letter->event);
    *letter = (struct cairn_srv_letter){0};
}

static enum cairn_code read_letter(const struct cairn_srv_rows *rows, struct cairn_srv_letter *ret,
                                   struct cairn_error *err) {
    *ret = (struct cairn_srv_letter){.number = cairn_srv_rows_u64(rows, 0),
                                     .tries = cairn_srv_rows_u64(rows, 1),
                                     .at_ms = cairn_srv_rows_i64(rows, 2)};
    snprintf(ret->cause, sizeof(ret->cause), "%s", cairn_srv_rows_text(rows, 3));
    return cairn_json_parse(cairn_view_of(cairn_srv_rows_text(rows, 4)),
                            (struct cairn_json_limits){0}, &ret->event, err);
}

enum cairn_code cairn_srv_letter_put(struct cairn_srv_tx *tx, const char *name,
                                     const struct cairn_srv_letter *letter,
                                     struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(cairn_json_dump(letter->event, &text, err));
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(letter_put), SQL_T(name), SQL_I(letter->number),
                                SQL_I(letter->tries), SQL_I(letter->at_ms), SQL_T(letter->cause),
                                SQL_T(text.data)));
    return cairn_srv_sql_run(tx, NULL, err, SQL(letters_trim), SQL_T(name),
                             SQL_I(CAIRN_SRV_LETTERS_MAX));
}

enum cairn_code cairn_srv_letter_drop(struct cairn_srv_tx *tx, const char *name, uint64_t number,
                                      struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(letter_drop), SQL_T(name), SQL_I(number));
}

enum cairn_code cairn_srv_letters_again(struct cairn_srv_tx *tx, const char *name, uint64_t *ret,
                                        struct cairn_error *err) {
    return cairn_srv_sql_run(tx, ret, err, SQL(letters_again), SQL_T(name));
}

enum cairn_code cairn_srv_letter_next(struct cairn_srv_tx *tx, const char *name, bool *ret_found,
                                      struct cairn_srv_letter *ret, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(letter_next), SQL_T(name)));
    CAIRN_TRY(cairn_srv_rows_next(&rows, ret_found, err));
    return *ret_found ? read_letter(&rows, ret, err) : CAIRN_OK;
}

enum cairn_code
cairn_srv_letters_each(struct cairn_srv_tx *tx, const char *name, uint64_t after, uint64_t limit,
                       enum cairn_code (*each)(const struct cairn_srv_letter *letter, void *owner,
                                               struct cairn_error *err),
                       void *owner, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    bool more = false;
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(letters_page), SQL_T(name), SQL_I(after),
                                 SQL_I(limit)));
    for (;;) {
        CAIRN_AUTO(srv_letter) letter = {0};
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) return CAIRN_OK;
        CAIRN_TRY(read_letter(&rows, &letter, err));
        CAIRN_TRY(each(&letter, owner, err));
    }
}
