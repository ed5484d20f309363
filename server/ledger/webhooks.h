/* SPDX-License-Identifier: Apache-2.0 */
/*
 * webhooks: how far each receiver of events has been told, and what it could not be told.
 *
 * Why:     a server that starts again, or another one, goes on where the last one was.
 * Promise: 1   a webhook's position only rises; what is below it was delivered, is not wanted, is a
 *              dead letter, or was trimmed and counted as missed.
 * Limits:  CAIRN_SRV_LETTERS_MAX dead letters of a webhook; the oldest go first.
 * Threads: inside a transaction.
 * Next:    server/events/deliver.h.
 */
#pragma once

#include "common/json.h"
#include "server/db/sql.h"

#define CAIRN_SRV_LETTERS_MAX 1000
#define CAIRN_SRV_WEBHOOK_CAUSE_BYTES 200

struct cairn_srv_webhook_row {
    uint64_t position;     /* number of the last event that needs no delivery any more */
    uint64_t failures;     /* tries of the next one that failed */
    uint64_t failing_tick; /* of the first of them */
    uint64_t missed;       /* events that were trimmed before they could be delivered */
    uint64_t delivered;
    uint64_t letters;
    int64_t tried_ms, delivered_ms;            /* wall clock; 0: never */
    char cause[CAIRN_SRV_WEBHOOK_CAUSE_BYTES]; /* why the last try failed */
};
/* CAIRN_NOT_FOUND: no server has begun with it. */
enum cairn_code cairn_srv_webhook_get(struct cairn_srv_tx *tx, const char *name,
                                      struct cairn_srv_webhook_row *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Makes it where it is not there: it begins with the next event. */
enum cairn_code cairn_srv_webhook_open(struct cairn_srv_tx *tx, const char *name,
                                       struct cairn_srv_webhook_row *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* The row as it is now. */
enum cairn_code cairn_srv_webhook_put(struct cairn_srv_tx *tx, const char *name,
                                      const struct cairn_srv_webhook_row *row,
                                      struct cairn_error *err) CAIRN_MUST_USE;

/* ---- dead letters ---- */

struct cairn_srv_letter {
    uint64_t number, tries;
    int64_t at_ms;
    char cause[CAIRN_SRV_WEBHOOK_CAUSE_BYTES];
    json_t *event; /* as /v1/events has it; owned */
};
void cairn_srv_letter_release(struct cairn_srv_letter *letter);
enum cairn_code cairn_srv_letter_put(struct cairn_srv_tx *tx, const char *name,
                                     const struct cairn_srv_letter *letter,
                                     struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_letter_drop(struct cairn_srv_tx *tx, const char *name, uint64_t number,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* All of them are to be tried once more; *ret: how many. */
enum cairn_code cairn_srv_letters_again(struct cairn_srv_tx *tx, const char *name, uint64_t *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* The first that is to be tried once more. */
enum cairn_code cairn_srv_letter_next(struct cairn_srv_tx *tx, const char *name, bool *ret_found,
                                      struct cairn_srv_letter *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* In the order of their numbers, behind that one. */
enum cairn_code
cairn_srv_letters_each(struct cairn_srv_tx *tx, const char *name, uint64_t after, uint64_t limit,
                       enum cairn_code (*each)(const struct cairn_srv_letter *letter, void *owner,
                                               struct cairn_error *err),
                       void *owner, struct cairn_error *err) CAIRN_MUST_USE;
