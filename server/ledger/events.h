/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events: what has happened, as rows: what, when, to which run and version, why, by whom; and how
 * far each webhook has been told.
 *
 * Why:     people ask why a checkpoint is not there and who deleted it; programs want to hear of
 *          the next one without asking again and again, and a server that starts again goes on
 *          telling them where the last one was.
 * Promise: 1   an event is a row of the transaction that makes the change: it is there exactly when
 *              the change is.
 *          2   numbers rise in the order of the commits, over all servers of a catalog, and none is
 *              given twice while it is kept; who has read up to a number has missed nothing below.
 *          3   rows are trimmed from the oldest on, by count and by age in catalog ticks (Q34),
 *              those of the audit by age alone; the newest one always stays.
 *          4   a webhook's position only rises; what is below it was delivered, is not wanted, is a
 *              dead letter, or was trimmed and counted as missed.
 * Limits:  reasons of CAIRN_SRV_REASON_BYTES; a trim drops at most CAIRN_SRV_EVENTS_TRIM rows;
 *          CAIRN_SRV_LETTERS_MAX dead letters of a webhook, the oldest go first.
 * Threads: inside a transaction.
 * Next:    api/events.def, server/events/feed.h, server/events/feed.c,
 *          server/events/deliver.h.
 */
#pragma once

#include "api/documents/keys.h"
#include "common/json.h"
#include "server/db/sql.h"

#define CAIRN_SRV_EVENTS_TRIM 10000

enum cairn_srv_event {
#define EVENT(id, name, kept, about, what) CAIRN_SRV_EVENT_##id,
#include "api/events.def"
#undef EVENT
    CAIRN_SRV_EVENT_COUNT
};

const char *cairn_srv_event_name(enum cairn_srv_event event); /* of api/events.def */
enum cairn_srv_event cairn_srv_event_named(const char *name); /* _COUNT: there is none */
/* "checkpoint.committed,policy": names, and what names begin with up to a dot. A bit for each. */
enum cairn_code cairn_srv_event_kinds_parse(const char *text, uint64_t *ret,
                                            struct cairn_error *err) CAIRN_MUST_USE;

/* ---- inside a change ---- */

/* reason may be NULL. */
enum cairn_code cairn_srv_event_of_version(struct cairn_srv_tx *tx, enum cairn_srv_event event,
                                           const char *version, enum cairn_code why,
                                           const char *reason,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* attempt 0: it is of none. */
enum cairn_code cairn_srv_event_of_run(struct cairn_srv_tx *tx, enum cairn_srv_event event,
                                       int64_t run_id, uint64_t attempt, const char *reason,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Of what has no row in runs: name->run "" for a project, both for all. */
enum cairn_code cairn_srv_event_of_name(struct cairn_srv_tx *tx, enum cairn_srv_event event,
                                        const struct cairn_run_name *name, const char *reason,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* The same with what held before and after, each as JSON or "". */
enum cairn_code cairn_srv_event_of_change(struct cairn_srv_tx *tx, enum cairn_srv_event event,
                                          const struct cairn_run_name *name, const char *reason,
                                          const char *before, const char *after,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Drops what is older than tick `since`, and of the feed all but the newest `keep`. */
enum cairn_code cairn_srv_events_trim(struct cairn_srv_tx *tx, uint64_t keep, uint64_t since,
                                      uint64_t *ret_dropped,
                                      struct cairn_error *err) CAIRN_MUST_USE;

/* ---- looking ---- */

/* What somebody asks for: all, those of a run, or those of a version. */
struct cairn_srv_events_query {
    const struct cairn_run_name *name; /* run "": all */
    const char *version;               /* "": all of the run */
    uint64_t after, limit;
    uint64_t kinds;      /* cairn_srv_event_kinds_parse; 0: all */
    const char *project; /* of all runs: of this project alone; NULL or "": of every one */
    bool newest;         /* the last `limit` ones instead of the first after a number */
    bool audit;          /* of all, those of the audit alone, also behind the bounds */
};
struct cairn_srv_event_row {
    uint64_t number;
    struct cairn_run_name name;
    struct cairn_version_id version; /* "": of none */
    const char *event;               /* until the next row */
    json_t *json;                    /* as it is answered; borrowed */
};
/* Each in the order of its number; the newest ones first where those were asked for. */
enum cairn_code cairn_srv_events_read(struct cairn_srv_tx *tx,
                                      const struct cairn_srv_events_query *query,
                                      enum cairn_code (*each)(const struct cairn_srv_event_row *row,
                                                              void *owner, struct cairn_error *err),
                                      void *owner, struct cairn_error *err) CAIRN_MUST_USE;
/* What has happened to a run after a number, in short, at most `limit` of it. */
struct cairn_srv_event_short {
    enum cairn_srv_event event;
    const char *version; /* until the next one; "": of none */
    uint64_t line, step; /* line: where the version counts (Q25); 0: its row has gone */
};
enum cairn_code cairn_srv_events_since(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                                       uint64_t after, size_t limit,
                                       void (*each)(const struct cairn_srv_event_short *event,
                                                    void *owner),
                                       void *owner, struct cairn_error *err) CAIRN_MUST_USE;
/* From the first one on none is missing; the audit may have older ones. 0 and 0: there is none
 * yet. */
enum cairn_code cairn_srv_events_bounds(struct cairn_srv_tx *tx, uint64_t *ret_first,
                                        uint64_t *ret_last, struct cairn_error *err) CAIRN_MUST_USE;

/* ---- webhooks ---- */

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
CAIRN_SRV_WORD cairn_srv_webhook_put(struct cairn_srv_tx *tx, const char *name,
                                     const struct cairn_srv_webhook_row *row,
                                     struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(webhook_put), SQL_T(name), SQL_I(row->position),
                             SQL_I(row->failures), SQL_I(row->failing_tick), SQL_I(row->missed),
                             SQL_I(row->delivered), SQL_I(row->tried_ms), SQL_I(row->delivered_ms),
                             SQL_T(row->cause));
}

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
CAIRN_SRV_WORD cairn_srv_letter_drop(struct cairn_srv_tx *tx, const char *name, uint64_t number,
                                     struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(letter_drop), SQL_T(name), SQL_I(number));
}
/* All of them are to be tried once more; *ret: how many. */
CAIRN_SRV_WORD cairn_srv_letters_again(struct cairn_srv_tx *tx, const char *name, uint64_t *ret,
                                       struct cairn_error *err) {
    return cairn_srv_sql_run(tx, ret, err, SQL(letters_again), SQL_T(name));
}
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
