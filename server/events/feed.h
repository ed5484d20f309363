/* SPDX-License-Identifier: Apache-2.0 */
/*
 * feed: streams events to followers as they occur.
 *
 * Why:     a thousand open pages must cost one read of the catalog for each event, and a page that
 *          never reads must cost only its connection.
 * Promise: 1   a follower gets every event that it selects, in order and once, from its start
 *              number on: from memory while it keeps up, otherwise from the catalog; if rows that
 *              it needs were trimmed, its stream ends.
 *          2   a follower holds at most SRV_FEED_TEXT_BYTES that its reader has not taken.
 *          3   after SRV_FEED_BEAT_MS without an event a comment is sent, which detects dead
 *              readers and keeps proxies from closing the connection.
 *          P16  a follower gets only events that its token may read; its stream ends within
 *              SRV_FEED_BEAT_MS after the token was revoked.
 *          4   an event of this server wakes its followers at once, an event of another server on
 *              its notification (db/catalog.h); without notifications within
 *              SRV_FEED_LOOK_MS, on a silently dead session within SRV_FEED_HEARD_MS.
 *              Hundreds are woken within tens of milliseconds, a few at a time, so that other
 *              callers get the event loops in between.
 * Limits:  the last SRV_FEED_KEPT events in memory; settings event-streams-max and
 *          event-streams-per-caller, CAIRN_BUSY beyond.
 * Threads: one of its own; take and close from the connection's event loop; locked by server_feed.
 * Next:    server/events/feed.c, server/http/reply.c, server/ledger/events.h.
 */
#pragma once

#include "server/http/request.h"
#include "server/ledger/events.h"

#define SRV_FEED_KEPT 1024
#define SRV_FEED_TEXT_BYTES (16 * CAIRN_KIB)
#define SRV_FEED_BEAT_MS 10000 /* below the idle timeouts of proxies */
#define SRV_FEED_LOOK_MS 150
#define SRV_FEED_HEARD_MS 1000
/* Waiter key of all events; for a run or version its name is appended. */
#define SRV_EVENTS_KEY "events:"
#define SRV_EVENTS_KEY_BYTES (2 * CAIRN_NAME_BYTES_MAX + 16)
/* "events:ckpt_..."; run "": all runs. */
void srv_events_key_of_version(const struct cairn_version_id *id, char ret[SRV_EVENTS_KEY_BYTES]);
void srv_events_key_of_run(const struct cairn_run_name *name, char ret[SRV_EVENTS_KEY_BYTES]);

enum cairn_code srv_feed_new(struct srv *server, struct srv_feed **ret,
                             struct cairn_error *err) CAIRN_MUST_USE;
/* Another server may have added events. */
void srv_feed_look(struct srv_feed *feed);
/* Ends every stream and refuses new ones. */
void srv_feed_stop(struct srv_feed *feed);
void srv_feed_free(struct srv_feed *feed);

/* The followed events: all (run ""), of a run, or of one version. */
struct srv_follow {
    struct cairn_run_name name;
    struct cairn_version_id version;
    uint64_t after;                         /* start behind this number */
    uint64_t kinds;                         /* select these; 0: all (server/ledger/events.h) */
    char project[CAIRN_NAME_BYTES_MAX + 1]; /* with run "": select this project; "": all */
    struct srv_credential credential;       /* the stream ends when it becomes invalid */
    struct srv_caller caller;
    char from[64]; /* the caller's address; "": a Unix socket */
};
/* *ret: the flow of the events; a comment is sent at once. */
enum cairn_code srv_feed_follow(struct srv_feed *feed, const struct srv_follow *follow,
                                struct srv_flow *ret, struct cairn_error *err) CAIRN_MUST_USE;
