/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events: rows of what happened to which version, why and by whom; positions of webhooks.
 *
 * Why:     people ask why a checkpoint is missing and who deleted it; programs want notice of the
 *          next one without polling, and delivery must continue after a server restart. The cost
 *          of a full plan grows with the run; after most commits nothing that an earlier plan
 *          found has changed, and the run's events show that.
 * Promise: 1   an event is a row of the changing transaction: it exists exactly when the change
 *              does.
 *          2   numbers rise in commit order over all servers of a catalog, and are not reused while
 *              kept; a reader up to a number has missed nothing below it.
 *          3   rows are trimmed from the oldest on, by count and by age in catalog ticks (Q34),
 *              audit rows by age only; the newest always stays.
 *          4   a webhook's position only rises; each event up to it was delivered, not wanted, a
 *              dead letter, or trimmed and counted as missed.
 *          5   a column of api/events.def says what each kind of event leaves valid of what is
 *              known of a run; a kind that is not in it, such as one of a newer server,
 *              invalidates all.
 *          6   such knowledge is invalid under another policy, after trimmed events, after a
 *              restored catalog, or after 1,000 events.
 * Limits:  reasons of SRV_REASON_BYTES; a trim drops at most SRV_EVENTS_TRIM rows;
 *          SRV_LETTERS_MAX dead letters of a webhook, the oldest are dropped.
 * Threads: inside a transaction.
 * Next:    api/events.def, server/events/feed.h, server/events/feed.c, server/events/deliver.h.
 */
#pragma once

#include "common/hash/hash.h"
#include "common/json.h"
#include "plan/retention.h"
#include "server/db/sql.h"

#define SRV_EVENTS_TRIM 10000

enum srv_event {
#define EVENT(id, name, kept, about, ...) SRV_EVENT_##id,
#include "api/events.def"
#undef EVENT
    SRV_EVENT_COUNT
};

const char *srv_event_name(enum srv_event event); /* of api/events.def */
enum srv_event srv_event_named(const char *name); /* _COUNT: unknown */
/* Parses event names and prefixes, as in "checkpoint.committed,policy", to one bit per kind. */
enum cairn_code srv_event_kinds_parse(const char *text, uint64_t *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;

/* ---- writing: inside a change ---- */

/* reason may be NULL. */
enum cairn_code srv_event_of_version(struct srv_tx *tx, enum srv_event event, const char *version,
                                     enum cairn_code why, const char *reason,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* attempt 0: none. */
enum cairn_code srv_event_of_run(struct srv_tx *tx, enum srv_event event, int64_t run_id,
                                 uint64_t attempt, const char *reason,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* For names without a row in runs: name->run "" for a project, both "" for all. */
enum cairn_code srv_event_of_name(struct srv_tx *tx, enum srv_event event,
                                  const struct cairn_run_name *name, const char *reason,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Also stores the old and new value, each JSON or "". */
enum cairn_code srv_event_of_change(struct srv_tx *tx, enum srv_event event,
                                    const struct cairn_run_name *name, const char *reason,
                                    const char *before, const char *after,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Drops rows older than tick `since`, and feed events except the newest `keep`. */
enum cairn_code srv_events_trim(struct srv_tx *tx, uint64_t keep, uint64_t since,
                                uint64_t *ret_dropped, struct cairn_error *err) CAIRN_MUST_USE;

/* ---- reading ---- */

/* Selects all events, those of a run, or those of a version. */
struct srv_events_query {
    const struct cairn_run_name *name; /* run "": all */
    const char *version;               /* "": all of the run */
    uint64_t after, limit;
    uint64_t kinds;      /* srv_event_kinds_parse; 0: all */
    const char *project; /* for all runs: this project only; NULL or "": every one */
    bool newest;         /* the last `limit` events, newest first */
    bool audit;          /* for all runs: audit events only, also beyond the bounds */
};
struct srv_event_row {
    uint64_t number;
    struct cairn_run_name name;
    struct cairn_version_id version; /* "": none */
    const char *event;               /* valid until the next row */
    json_t *json;                    /* the event as answered; borrowed */
};
/* In order of number; newest first where asked for. */
enum cairn_code srv_events_read(struct srv_tx *tx, const struct srv_events_query *query,
                                enum cairn_code (*each)(const struct srv_event_row *row,
                                                        void *owner, struct cairn_error *err),
                                void *owner, struct cairn_error *err) CAIRN_MUST_USE;
/* No feed event from *ret_first on is missing; audit events may be older. 0 and 0: no event yet. */
enum cairn_code srv_events_bounds(struct srv_tx *tx, uint64_t *ret_first, uint64_t *ret_last,
                                  struct cairn_error *err) CAIRN_MUST_USE;

/* ---- is what is known of a run still valid? ---- */

struct srv_event_short {
    enum srv_event event;
    const char *version; /* valid until the next; "": none */
    uint64_t line, step; /* line: where the version counts (Q25); 0: row gone */
};
/* A save in flight among this many newest versions counts as later, an older one as known. */
#define SRV_IN_FLIGHT_AMONG 64

/* What is known of a run; the caller keeps details beside it. */
struct srv_known {
    struct cairn_run_name name;
    uint8_t policy[CAIRN_SHA256_BYTES]; /* digest of its JSON */
    uint64_t event;                     /* the catalog's newest event then */
    struct cairn_plan_item newest;      /* the last known version; later ones are read anew */
};

enum srv_subject { SRV_OF_PLAN = 1, SRV_OF_COPIES = 2 };
struct srv_since {
    const struct srv_known *then;
    enum srv_subject subject;
    const uint8_t *policy;
    uint64_t first, last; /* srv_events_bounds */
    /* Called for each harmless event; newer: its version is later than `then`. Returns false to
     * invalidate. NULL: all harmless events pass. */
    bool (*judge)(void *owner, const struct srv_event_short *event, bool newer);
    void *owner;
};
enum cairn_code srv_since_stands(struct srv_tx *tx, const struct srv_since *since, bool *ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* True if `item` has an older line or step. */
bool srv_is_before(const struct cairn_plan_item *item, uint64_t line, uint64_t step);

/* ---- webhooks ---- */

#define SRV_LETTERS_MAX 1000
#define SRV_WEBHOOK_CAUSE_BYTES 200

struct srv_webhook_row {
    uint64_t position;     /* number of the last event that needs no delivery */
    uint64_t failures;     /* failed attempts at the next one */
    uint64_t failing_tick; /* of the first failure */
    uint64_t missed;       /* events trimmed before delivery */
    uint64_t delivered;
    uint64_t letters;
    int64_t tried_ms, delivered_ms;      /* wall clock; 0: never */
    char cause[SRV_WEBHOOK_CAUSE_BYTES]; /* of the last failure */
};
/* CAIRN_NOT_FOUND: no server has opened it. */
enum cairn_code srv_webhook_get(struct srv_tx *tx, const char *name, struct srv_webhook_row *ret,
                                struct cairn_error *err) CAIRN_MUST_USE;
/* Creates a missing row, which starts with the next event. */
enum cairn_code srv_webhook_open(struct srv_tx *tx, const char *name, struct srv_webhook_row *ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;
SRV_RUNS(webhook_put, (const char *name, const struct srv_webhook_row *row), webhook_put,
         SQL_T(name), SQL_I(row->position), SQL_I(row->failures), SQL_I(row->failing_tick),
         SQL_I(row->missed), SQL_I(row->delivered), SQL_I(row->tried_ms), SQL_I(row->delivered_ms),
         SQL_T(row->cause));

struct srv_letter {
    uint64_t number, tries;
    int64_t at_ms;
    char cause[SRV_WEBHOOK_CAUSE_BYTES];
    json_t *event; /* as in /v1/events; owned */
};
void srv_letter_release(struct srv_letter *letter);
enum cairn_code srv_letter_row(const struct srv_rows *rows, struct srv_letter *ret,
                               struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code srv_letter_put(struct srv_tx *tx, const char *name, const struct srv_letter *letter,
                               struct cairn_error *err) CAIRN_MUST_USE;
SRV_RUNS(letter_drop, (const char *name, uint64_t number), letter_drop, SQL_T(name), SQL_I(number));
/* Queues all for another attempt; *ret: how many. */
SRV_WORD srv_letters_again(struct srv_tx *tx, const char *name, uint64_t *ret,
                           struct cairn_error *err) {
    return srv_sql_run(tx, ret, err, SQL(letters_again), SQL_T(name));
}
/* The first one queued for another attempt. */
SRV_WORD srv_letter_next(struct srv_tx *tx, const char *name, bool *ret_found,
                         struct srv_letter *ret, struct cairn_error *err) {
    SQL_FIRST(rows, ret_found, tx, err, SQL(letter_next), SQL_T(name));
    return *ret_found ? srv_letter_row(&rows, ret, err) : CAIRN_OK;
}
/* Rows of letters, in order of number, after that one. */
SRV_OPENS(letters_open, (const char *name, uint64_t after, uint64_t limit), letters_page,
          SQL_T(name), SQL_I(after), SQL_I(limit));
