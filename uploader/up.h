/* SPDX-License-Identifier: Apache-2.0 */
/*
 * up: one uploader: its parts, and what they share under one lock.
 *
 * Why:     sessions, saves and slabs are looked at by the socket, the senders and whoever talks to
 *          the server; they stand in one place under one lock.
 * Promise: 1   every part is reached from here, and knows those alone whose room is below its own
 *              (tests/tidy/rules.c).
 * Limits:  see uploader/settings.def.
 * Threads: settings, places and the pointers are immutable after start; `locked` is locked by
 *          uploader_state. Nothing under that lock waits for a disk or a network.
 * Next:    uploader/README.md; uploader/saves/ for what is under the lock; uploader/daemon.h starts
 *          and stops the parts.
 */
#pragma once

#include <stdatomic.h>

#include <cairn/cairn.h>

#include "api/wire/rest.h"
#include "common/clock.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/process.h"
#include "store/named.h"
#include "store/store.h"
#include "uploader/alone.h"
#include "uploader/restores.h"
#include "uploader/settings.h"
#include "uploader/wakeup.h"

#define CAIRN_UP_VERSION CAIRN_VERSION

struct cairn_up_journal;
struct cairn_up_mail;
struct cairn_up_socket;
struct cairn_up_queue;
struct cairn_up_send;
struct cairn_up_outbox;
struct cairn_up_watch;
struct cairn_up_tasks;
struct cairn_up_lists;
struct cairn_up_held;
struct cairn_up_kept;
struct cairn_up_fetch;
struct cairn_up_save;
struct cairn_up_slab;
struct cairn_up_slab_request;
struct cairn_up_attempt_call;
struct cairn_up_attempt_batch;
struct cairn_up_attempt;
struct cairn_up_ended;
struct cairn_up_partner;
struct cairn_up_peers;
struct cairn_up_table;
struct cairn_up_scrape;
struct cairn_metrics;

struct cairn_up {
    struct cairn_up_settings settings;
    struct cairn_up_places places;
    char uuid[CAIRN_UUID_TEXT_BYTES]; /* of this process */
    char *token;                      /* for the server, or NULL */
    struct cairn_rest_seen servers_seen;
    struct cairn_up_claims claims;
    struct cairn_store *store;
    struct cairn_store *reads[CAIRN_STORES_MAX]; /* nearest first; store is one of them */
    _Atomic uint64_t reads_away_ms[CAIRN_STORES_MAX]; /* mono clock; until then asked last */
    size_t read_count;
    struct cairn_budget budget;
    struct cairn_up_journal *journal;
    struct cairn_up_mail *mail;
    struct cairn_up_socket *socket;
    struct cairn_up_queue *queue; /* of shards */
    struct cairn_up_send *send;
    struct cairn_up_outbox *outbox;
    struct cairn_up_wakeup outbox_work; /* something may have to be told to the server */
    struct cairn_up_watch *watch;
    struct cairn_up_lists *lists; /* NULL: saves end as they are told (tests) */
    struct cairn_up_tasks *tasks;
    struct cairn_up_peers *peers; /* NULL: peer_listen is empty */
    struct cairn_up_partner *partner;   /* NULL: no partner_memory */
    struct cairn_up_wakeup partner_work; /* a save may have to be given to it */
    struct cairn_up_fetch *fetch;
    atomic_ullong sent_bytes; /* of shards, that the store has acknowledged to this process */
    atomic_ullong answered_ms; /* when the store last answered, or nothing was asked of it */
    struct cairn_up_restores restores; /* that were last */
    struct cairn_metrics *metrics; /* NULL: nothing is counted (tests) */
    struct cairn_up_scrape *scrape;
    struct cairn_log_limit log_limit; /* what callers do wrong; of the socket's thread */
    struct cairn_lock lock;           /* uploader_state */
    struct cairn_condition changed;   /* slabs went back, saves ended */
    struct {
        struct cairn_up_save **saves; /* by journal entry, ascending */
        size_t save_count, save_capacity;
        struct cairn_up_slab *slabs;                    /* all that exist */
        struct cairn_up_kept *kept_copies;              /* of other nodes (saves/kept.h) */
        struct cairn_up_slab_request *slab_requests;    /* for memory, oldest first */
        struct cairn_up_attempt_call *attempt_calls;    /* that wait for the next request */
        struct cairn_up_attempt_batch *attempt_batches; /* requests under way */
        struct cairn_up_attempt *attempts;              /* with users, and stale ones without */
        struct cairn_up_table *tables;                  /* saves/tables.h */
        struct cairn_up_ended *ended;                   /* ranks that are connected no longer */
        char store_uuid[CAIRN_UUID_TEXT_BYTES];         /* "": store.json was not seen yet */
        char store_waits
            [256]; /* why nothing is sent now (send/store_check.h); "": nothing is wrong */
        uint64_t store_waits_since_ms;
        bool store_fails; /* it is the store of the grants, and answers no request as it should */
        char server_away[256]; /* why nothing is told now (server/outbox.c); "": it answers */
        uint64_t server_away_since_ms;
        uint64_t server_asked_ms; /* since when requests of the outbox have had no answer; or 0 */
        bool server_away_logged; /* by its heartbeat or its outbox, whichever saw it first */
        bool beaten;             /* the first heartbeat of this process is over, answered or not */
        bool offers_awaited;     /* of trainers of a process before this one (Q17) */
        uint64_t offers_left_ms, offers_ticked_ms; /* mono clock; uploader/README.md, UR1 */
        bool draining;
        bool ending; /* sessions end because the process does */
    } locked;
};

/* CAIRN_UNAVAILABLE while draining. */
enum cairn_code cairn_up_admits(struct cairn_up *up, struct cairn_error *err) CAIRN_MUST_USE;
