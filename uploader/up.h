/* SPDX-License-Identifier: Apache-2.0 */
/*
 * up: one uploader: its parts, and what they share under one lock.
 *
 * Why:     the socket, senders and threads that call the server share sessions, saves, slabs.
 * Promise: 1    struct cairn_up reaches every part; a part uses only lower rooms
 *               (tests/tidy/rules.c).
 *          Q15  this process is the only uploader of its node, a name within one server and its one
 *               store, on this machine. Startup claims the name under the server's address before
 *               it opens anything (the journal's lock covers only a shared state_dir), and under
 *               the store's uuid once that is read, since a server has several addresses. A process
 *               of another program that holds the name is logged and does not prevent the start.
 *          2    a raise of a wakeup is never lost: the next wait returns at once.
 *          3    no label of a metric holds the name of a run, a step, a version or a shard.
 *          4    restores: one item a version, which adds up; the latest CAIRN_UP_RESTORES_TOLD.
 * Limits:  claims: processes of one user, or root's, in one network namespace; they end with the
 *          process. One thread waits for a wakeup. See uploader/settings.def.
 * Threads: settings, places and pointers are immutable after start; `locked` is locked by
 *          uploader_state, under which nothing waits for a disk or a network. Claims: the main
 *          thread. Wakeups are locked by uploader_outbox, restores by uploader_restores.
 * Next:    uploader/README.md; uploader/daemon.h starts and stops the parts.
 */
#pragma once

#include <stdatomic.h>

#include <cairn/cairn.h>

#include "api/documents/keys.h"
#include "api/wire/rest.h"
#include "common/clock.h"
#include "common/error.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/process.h"
#include "store/open.h"
#include "store/store.h"
#include "uploader/settings.h"

enum cairn_up_metric {
#define METRIC(kind, name, labels, first, second, help) CAIRN_UP_METRIC_##name,
#include "uploader/metrics.def"
#undef METRIC
};
#define CAIRN_UP_METRIC(name) ((struct cairn_metric_at){.family = CAIRN_UP_METRIC_##name})

/* Label values of slab_bytes. */
enum cairn_up_slab_use {
    CAIRN_UP_SLAB_FREE,
    CAIRN_UP_SLAB_HELD,
    CAIRN_UP_SLAB_KEPT,
    CAIRN_UP_SLAB_USES
};

/* Label values of late_waits_total: a thread found work by its poll that no signal announced. */
enum cairn_up_wait {
    CAIRN_UP_WAIT_SENDERS,
    CAIRN_UP_WAIT_OUTBOX,
    CAIRN_UP_WAIT_WATCHERS,
    CAIRN_UP_WAIT_READERS,
    CAIRN_UP_WAIT_PEERS,
    CAIRN_UP_WAIT_PARTNERS,
    CAIRN_UP_WAITS
};

/* Label values of restore_duration_seconds. */
enum cairn_up_restore_end {
    CAIRN_UP_RESTORE_RELEASED,
    CAIRN_UP_RESTORE_LEFT,
    CAIRN_UP_RESTORE_ENDS
};

/* Counts an ended restore: its retries, and its failure if it failed. */
static inline void cairn_up_metrics_tell(struct cairn_metrics *metrics,
                                         const struct cairn_store_request *request) {
    for (size_t i = 0; i < CAIRN_RETRY_OUTCOMES; i++) {
        if (!request->retried[i]) continue;
        cairn_metrics_add(metrics, (struct cairn_metric_at){CAIRN_UP_METRIC_retries_total, i, 0},
                          request->retried[i]);
    }
    if (request->code && request->code != CAIRN_NOT_FOUND && request->code != CAIRN_CANCELLED)
        cairn_metrics_add(metrics,
                          (struct cairn_metric_at){CAIRN_UP_METRIC_store_errors_total, request->op,
                                                   request->code},
                          1);
}

/* Counts and logs a missed wake-up, since each is a bug (common/process.h). metrics may be NULL. */
void cairn_up_metrics_late(struct cairn_metrics *metrics, enum cairn_up_wait wait);
enum cairn_code cairn_up_metrics_new(struct cairn_metrics **ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;

enum cairn_up_claim { CAIRN_UP_CLAIM_SERVER, CAIRN_UP_CLAIM_STORE };
struct cairn_up_claims {
    int fds[2]; /* by enum cairn_up_claim; descriptor + 1; 0: none */
};
struct cairn_up;
/* Replaces the claim of that kind. CAIRN_CONFLICT: another uploader of the node runs. */
enum cairn_code cairn_up_claim(struct cairn_up *up, enum cairn_up_claim kind, const char *scope,
                               struct cairn_error *err) CAIRN_MUST_USE;
void cairn_up_claims_tick(struct cairn_up *up);
void cairn_up_claims_release(struct cairn_up *up);

/* A thread, joined if it was started. */
struct cairn_up_thread {
    pthread_t id;
    bool started;
};
/* whose: the thread's name for the error, such as "the outbox". */
enum cairn_code cairn_up_thread_start(struct cairn_up_thread *thread, void *(*run)(void *owner),
                                      void *owner, const char *whose,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_up_thread_join(struct cairn_up_thread *thread);

struct cairn_up_wakeup {
    struct cairn_lock lock; /* uploader_outbox */
    struct cairn_condition work;
    struct cairn_late_bell bell;
    struct {
        bool raised, stopping;
    } locked;
};
void cairn_up_wakeup_init(struct cairn_up_wakeup *wakeup);
void cairn_up_wakeup_release(struct cairn_up_wakeup *wakeup);
void cairn_up_wakeup_raise(struct cairn_up_wakeup *wakeup);
/* From now on every wait returns at once. */
void cairn_up_wakeup_stop(struct cairn_up_wakeup *wakeup);
/* Waits for a raise or until until_ms; backing_off: a raise does not end the wait. False: stop. */
bool cairn_up_wakeup_wait(struct cairn_up_wakeup *wakeup, uint64_t until_ms, bool backing_off);

#define CAIRN_UP_RESTORES_TOLD 16

struct cairn_up_restore_note {
    struct cairn_version_id version;
    char run[2 * CAIRN_NAME_BYTES_MAX + 2];
    const char *choice; /* static: how the version is read, and why */
    /* since the last note */
    uint64_t store_bytes, shared_bytes, peer_bytes, memory_bytes;
    uint64_t noted; /* ascending number of the note; 0: the place is free */
};
struct cairn_up_restores {
    struct cairn_lock lock; /* uploader_restores */
    struct {
        struct cairn_up_restore_note items[CAIRN_UP_RESTORES_TOLD];
        uint64_t noted;
    } locked;
};
void cairn_up_restores_note(struct cairn_up_restores *restores,
                            const struct cairn_up_restore_note *note);
size_t cairn_up_restores_get(struct cairn_up_restores *restores,
                             struct cairn_up_restore_note ret[CAIRN_UP_RESTORES_TOLD]);

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
    struct cairn_store *reads[CAIRN_STORES_MAX];      /* nearest first; includes store */
    _Atomic uint64_t reads_away_ms[CAIRN_STORES_MAX]; /* mono clock; tried last until then */
    size_t read_count;
    struct cairn_budget budget;
    _Atomic uint64_t restoring_bytes; /* of the budget, for windows and cells of restores */
    _Atomic uint64_t readers_bytes;   /* what readers will take of it for the first restore */
    struct cairn_up_journal *journal;
    struct cairn_up_mail *mail;
    struct cairn_up_socket *socket;
    struct cairn_up_queue *queue; /* of shards */
    struct cairn_up_send *send;
    struct cairn_up_outbox *outbox;
    struct cairn_up_wakeup outbox_work; /* raised when a report to the server may be due */
    struct cairn_up_watch *watch;
    struct cairn_up_lists *lists; /* NULL: saves end without a check of lists (tests) */
    struct cairn_up_tasks *tasks;
    struct cairn_up_peers *peers;        /* NULL: peer_listen is empty */
    struct cairn_up_partner *partner;    /* NULL: no partner_memory */
    struct cairn_up_wakeup partner_work; /* raised when a copy may be due */
    struct cairn_up_fetch *fetch;
    atomic_ullong sent_bytes;          /* shard bytes that the store acknowledged to this process */
    atomic_ullong answered_ms;         /* when the store last answered or last had no request */
    struct cairn_up_restores restores; /* the most recent restores */
    struct cairn_metrics *metrics;     /* NULL: no metrics (tests) */
    struct cairn_up_scrape *scrape;
    struct cairn_log_limit log_limit; /* for callers' errors; used by the socket's thread */
    struct cairn_lock lock;           /* uploader_state */
    struct cairn_condition changed;   /* a slab was given back or a save ended */
    struct {
        struct cairn_up_save **saves; /* ascending by journal entry */
        size_t save_count, save_capacity;
        struct cairn_up_slab *slabs;                    /* all slabs */
        struct cairn_up_kept *kept_copies;              /* copies for other nodes (saves/slabs.h) */
        struct cairn_up_slab_request *slab_requests;    /* requests for memory, oldest first */
        struct cairn_up_attempt_call *attempt_calls;    /* calls that wait for the next request */
        struct cairn_up_attempt_batch *attempt_batches; /* requests in flight */
        struct cairn_up_attempt *attempts;              /* also stale ones without users */
        struct cairn_up_table *tables;                  /* saves/save.h */
        struct cairn_up_ended *ended;                   /* disconnected ranks */
        char store_uuid[CAIRN_UUID_TEXT_BYTES];         /* "": store.json was not read yet */
        char store_waits
            [256]; /* why sending is paused (send/send.h); "": sending is not paused at all */
        uint64_t store_waits_since_ms;
        bool store_fails;      /* the right store, but its answers are wrong */
        char server_away[256]; /* why reports fail (server/outbox.c); "": the server answers */
        uint64_t server_away_since_ms;
        uint64_t server_asked_ms; /* since when the outbox's requests get no answer; 0: they do */
        bool server_away_logged;  /* by the heartbeat or the outbox, whichever fails first */
        bool beaten;              /* the first heartbeat of this process ended, answered or not */
        bool offers_awaited;      /* offers from trainers of an earlier uploader process (Q17) */
        uint64_t offers_left_ms, offers_ticked_ms; /* mono clock; uploader/README.md, UR1 */
        bool draining;
        bool ending; /* sessions end because this process stops */
    } locked;
};

/* Opens a connection to the server; timeout_ms 0: that of api/wire/rest.h. */
enum cairn_code cairn_up_rest_new(struct cairn_up *up, uint32_t timeout_ms, struct cairn_rest **ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* CAIRN_UNAVAILABLE while draining. */
enum cairn_code cairn_up_admits(struct cairn_up *up, struct cairn_error *err) CAIRN_MUST_USE;
