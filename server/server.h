/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server: the state shared by every part of the daemon.
 *
 * Why:     no globals; functions that need store or catalog get this struct.
 * Promise: 1   fields are set before the first request and not changed after it, except atomic
 *              ones.
 *          2   time rules read the injected clock; only waiting threads read the system's.
 *          3   `frozen` stays true while the process lives: the whole catalog is behind its store
 *              (Q36). A single run is frozen by a row: server/guard/identity.h.
 * Limits:  one catalog; one store to save to (others: server/guard/stores.h).
 * Threads: immutable after start; each part states its own.
 * Next:    server/main.c starts and stops it; server/README.md lists the rules.
 */
#pragma once

#include "api/wire/rights.h"
#include "server/settings.h"
#include "store/store.h"

struct srv_pool;
struct srv_waiters;
struct srv_nodes;
struct srv_cache;
struct srv_http;
struct srv_jobs;
struct srv_sweep;
struct srv_orphans;
struct srv_restores;
struct srv_retained;
struct srv_tiered;
struct srv_uploads;
struct srv_webhooks;
struct srv_leases;
struct srv_compared;
struct srv_read_slots;
struct srv_stream_leases;
struct srv_chunks;
struct srv_health;
struct srv_feed;
struct srv_access;
struct srv_operations;
struct srv_tiers;

/* Catalog time as this server last saw it; changed inside transactions (server/guard/jobs.h). */
struct srv_ticks {
    _Atomic uint64_t seen_tick;
    uint64_t seen_boot_ms;
    uint64_t uncounted_ms; /* of the time before now, what another server may still add */
};

enum srv_revocations { /* server/access/access.h */
                       SRV_REVOCATIONS_UNREAD,
                       SRV_REVOCATIONS_MISSED, /* the store did not list them */
                       SRV_REVOCATIONS_READ
};

struct srv {
    const struct srv_settings *settings;
    const struct cairn_clock *clock;
    void (*random)(void *ret_data, size_t size);
    struct cairn_store *store;
    struct srv_tiers *tiers; /* stores by name; NULL: the main store alone (tests) */
    struct srv_catalog *catalog;
    uint8_t grant_key[CAIRN_GRANT_KEY_BYTES];
    char store_uuid[CAIRN_UUID_TEXT_BYTES];
    uint64_t generation;           /* of the catalog's life; sent to uploaders (Q19) */
    uint64_t raised_from;          /* the store's generation at this start */
    _Atomic uint64_t listening_ms; /* mono clock: listening for notifications since */
    struct srv_pool *requests;     /* handlers that change data */
    struct srv_pool *heavy;        /* handlers of large bodies, apart from others */
    struct srv_pool *plans;        /* handlers that read all versions of a run: a few at once */
    struct srv_pool *looks;        /* handlers of GET and HEAD, apart from changes */
    struct srv_pool *reads;        /* blocks of shards for readers */
    struct srv_waiters *waiters;
    struct srv_nodes *nodes;
    struct srv_restores *restores; /* as reported by nodes */
    struct srv_retained *retained; /* NULL: always full plans (tests) */
    struct srv_tiered *tiered;     /* NULL: always full plans (tests) */
    struct srv_cache *cache;
    struct srv_jobs *jobs;
    struct srv_sweep *sweep;
    struct srv_ticks ticks;
    struct srv_operations *operations; /* NULL: no operations (tests) */
    struct srv_orphans *orphans;       /* objects of unknown versions; used by the sweep */
    struct srv_uploads *uploads;       /* abandoned uploads; used by the sweep */
    struct srv_webhooks *webhooks;     /* NULL: no webhooks (tests) */
    struct srv_leases *leases;         /* NULL: no renewal (tests) */
    struct srv_http *http;
    struct srv_compared *compared; /* runs compared with the store (Q35) */
    _Atomic uint64_t raising_to;   /* the last generation of the store that this server took */
    _Atomic bool leaving;          /* a signal came: only /readyz differs yet */
    /* a signal came: proofs end, and commits wait for the next start */
    _Atomic bool stopping;
    _Atomic bool frozen;
    _Atomic uint64_t frozen_runs;
    struct srv_stream_leases *stream_leases; /* on versions being streamed */
    struct srv_read_slots *read_slots;       /* for shards being read */
    struct srv_chunks *chunks;               /* buffers of reads */
    _Atomic unsigned ready_streams;          /* streams that take no chunks (stream.h#4) */
    struct srv_feed *feed;                   /* NULL: no followers (tests) */
    struct srv_access *access;               /* NULL: no authentication (tests) */
    struct srv_rates *rates;                 /* NULL: no rate limits */
    struct srv_health *health;               /* NULL: no health thread (tests) */
    struct cairn_metrics *metrics;           /* NULL: no metrics (tests) */
    _Atomic uint64_t recounted_ms;           /* last recount of a project for its quota; 0: never */
    _Atomic uint64_t counted_ms;             /* last count of versions for metrics; 0: never */
    _Atomic bool copies_missing;             /* attempt copies may be missing; true at start (Q5) */
    _Atomic bool uncopied;                   /* user metadata is not yet copied to the store */
    enum srv_revocations revocations;        /* state of the store's revocations */
};

/* Q36: freezes the whole server and logs it once. For one run: guard/identity.h. */
void srv_freeze(struct srv *server, const char *why);
/* CAIRN_CATALOG_BEHIND if frozen. */
enum cairn_code srv_thawed(struct srv *server, struct cairn_error *err) CAIRN_MUST_USE;
/* After work on a text of so many bytes: returns the allocator's memory to the system, at most once
 * a second; the sweep returns the rest. */
void srv_trim_after(size_t bytes);
void srv_trim_later(size_t bytes); /* for callers that may not wait */
void srv_trim_left(void);
/* Wall time, for display only. */
int64_t srv_wall_ms(const struct srv *server);
uint64_t srv_mono_ms(const struct srv *server);
