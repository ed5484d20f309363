/* SPDX-License-Identifier: Apache-2.0 */
/*
 * feed: events as they come, to everybody who follows them.
 *
 * Why:     a thousand pages that are open must cost one look at the catalog for each event, and one
 *          that never reads must cost nothing but its connection.
 * Promise: 1   a follower gets every event that it asked for, in order and once, from the number on
 *              at which it began: from memory while it keeps up, from the catalog where it does
 *              not; where rows that it needs were trimmed its stream ends.
 *          2   a follower holds CAIRN_SRV_FEED_TEXT_BYTES at most that its reader has not taken.
 *          3   after CAIRN_SRV_FEED_BEAT_MS without an event there is a comment, so that a reader
 *              that has gone is found out and a proxy does not close the connection.
 *          P16  a follower is told of what its token may read, and its stream ends within
 *              CAIRN_SRV_FEED_BEAT_MS after that was revoked.
 *          4   an event of this server wakes its followers at once, one of another server when it
 *              is heard (db/catalog.h); where listening is lost, within CAIRN_SRV_FEED_LOOK_MS,
 *              and behind a session that is silently dead within CAIRN_SRV_FEED_HEARD_MS. Hundreds
 *              are woken within some tens of milliseconds, a few at a time, so that other callers
 *              have the event loops in between.
 * Limits:  the last CAIRN_SRV_FEED_KEPT events in memory; settings event-streams-max and
 *          event-streams-per-caller, CAIRN_BUSY beyond.
 * Threads: one of its own; take and close from the connection's event loop; locked by server_feed.
 * Next:    server/events/feed.c, server/http/reply.c, server/ledger/events.h.
 */
#pragma once

#include "server/http/request.h"
#include "server/ledger/events.h"

#define CAIRN_SRV_FEED_KEPT 1024
#define CAIRN_SRV_FEED_TEXT_BYTES (16 * CAIRN_KIB)
#define CAIRN_SRV_FEED_BEAT_MS 10000 /* less than proxies take for idle */
#define CAIRN_SRV_FEED_LOOK_MS 150
#define CAIRN_SRV_FEED_HEARD_MS 1000
/* The key of waiters of all events; of a run's or version's it is followed by its name. */
#define CAIRN_SRV_EVENTS_KEY "events:"
#define CAIRN_SRV_EVENTS_KEY_BYTES (2 * CAIRN_NAME_BYTES_MAX + 16)
/* "events:ckpt_..."; run "" below: of all runs. */
void cairn_srv_events_key_of_version(const struct cairn_version_id *id,
                                     char ret[CAIRN_SRV_EVENTS_KEY_BYTES]);
void cairn_srv_events_key_of_run(const struct cairn_run_name *name,
                                 char ret[CAIRN_SRV_EVENTS_KEY_BYTES]);

enum cairn_code cairn_srv_feed_new(struct cairn_srv *server, struct cairn_srv_feed **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* There may be events of another server. */
void cairn_srv_feed_look(struct cairn_srv_feed *feed);
/* Every stream ends; from here on none begins. */
void cairn_srv_feed_stop(struct cairn_srv_feed *feed);
void cairn_srv_feed_free(struct cairn_srv_feed *feed); /* stops; NULL is fine */

/* What is followed: all (run ""), a run, or a version of it (""  : all of the run). */
struct cairn_srv_follow {
    struct cairn_run_name name;
    struct cairn_version_id version;
    uint64_t after;                         /* the first is the one behind this number */
    uint64_t kinds;                         /* of these alone; 0: all (server/ledger/events.h) */
    char project[CAIRN_NAME_BYTES_MAX + 1]; /* of all: of this one alone; "": of every one */
    struct cairn_srv_credential credential; /* the stream ends when it is good no more */
    struct cairn_srv_caller caller;
    char from[64]; /* the caller's address; "": of a Unix socket */
};
/* The flow of these events; the first comes at once, without an event. */
enum cairn_code cairn_srv_feed_follow(struct cairn_srv_feed *feed,
                                      const struct cairn_srv_follow *follow,
                                      struct cairn_srv_flow *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
