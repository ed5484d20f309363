/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events: what has happened, as rows: what, when, to which run and version, why, by whom.
 *
 * Why:     people ask why a checkpoint is not there and who deleted it; programs want to hear of
 *          the next one without asking again and again.
 * Promise: 1   an event is a row of the transaction that makes the change: it is there exactly when
 *              the change is.
 *          2   numbers rise in the order of the commits, over all servers of a catalog, and none is
 *              given twice while it is kept; who has read up to a number has missed nothing below.
 *          3   rows are trimmed from the oldest on, by count and by age in catalog ticks (Q34),
 *              those of the audit by age alone; the newest one always stays.
 * Limits:  reasons of CAIRN_SRV_REASON_BYTES; a trim drops at most CAIRN_SRV_EVENTS_TRIM rows.
 * Threads: inside a transaction.
 * Next:    api/events.def, server/events/feed.h, server/events/event_calls.c.
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
    bool newest; /* the last `limit` ones instead of the first after a number */
    bool audit;  /* of all, those of the audit alone, also behind the bounds */
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
