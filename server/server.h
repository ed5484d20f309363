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
#include "common/clock.h"
#include "server/db/catalog.h"
#include "server/settings.h"
#include "store/store.h"

struct cairn_srv_pool;
struct cairn_srv_waiters;
struct cairn_srv_nodes;
struct cairn_srv_cache;
struct cairn_srv_http;
struct cairn_srv_jobs;
struct cairn_srv_sweep;
struct cairn_srv_orphans;
struct cairn_srv_restores;
struct cairn_srv_retained;
struct cairn_srv_tiered;
struct cairn_srv_uploads;
struct cairn_srv_webhooks;
struct cairn_srv_leases;
struct cairn_srv_compared;
struct cairn_srv_read_slots;
struct cairn_srv_stream_leases;
struct cairn_srv_chunks;
struct cairn_srv_health;
struct cairn_srv_feed;
struct cairn_srv_access;
struct cairn_srv_operations;
struct cairn_srv_tiers;
struct cairn_metrics;

/* Catalog time as this server last saw it; changed inside transactions (server/guard/jobs.h). */
struct cairn_srv_ticks {
    _Atomic uint64_t seen_tick;
    uint64_t seen_boot_ms;
};

enum cairn_srv_revocations { /* server/access/access.h */
                             CAIRN_SRV_REVOCATIONS_UNREAD,
                             CAIRN_SRV_REVOCATIONS_MISSED, /* the store did not list them */
                             CAIRN_SRV_REVOCATIONS_READ
};

struct cairn_srv {
    const struct cairn_srv_settings *settings;
    const struct cairn_clock *clock;
    void (*random)(void *ret_data, size_t size);
    struct cairn_store *store;
    struct cairn_srv_tiers *tiers; /* stores by name; NULL: the main store alone (tests) */
    struct cairn_srv_catalog *catalog;
    uint8_t grant_key[CAIRN_GRANT_KEY_BYTES];
    char store_uuid[CAIRN_UUID_TEXT_BYTES];
    uint64_t generation;             /* of the catalog's life; sent to uploaders (Q19) */
    uint64_t raised_from;            /* the store's generation at this start */
    _Atomic uint64_t listening_ms;   /* mono clock: listening for notifications since */
    struct cairn_srv_pool *requests; /* handlers that change data */
    struct cairn_srv_pool *heavy;    /* handlers of large bodies, apart from others */
    struct cairn_srv_pool *plans;    /* handlers that read all versions of a run: a few at once */
    struct cairn_srv_pool *looks;    /* handlers of GET and HEAD, apart from changes */
    struct cairn_srv_pool *reads;    /* blocks of shards for readers */
    struct cairn_srv_waiters *waiters;
    struct cairn_srv_nodes *nodes;
    struct cairn_srv_restores *restores; /* as reported by nodes */
    struct cairn_srv_retained *retained; /* NULL: always full plans (tests) */
    struct cairn_srv_tiered *tiered;     /* NULL: always full plans (tests) */
    struct cairn_srv_cache *cache;
    struct cairn_srv_jobs *jobs;
    struct cairn_srv_sweep *sweep;
    struct cairn_srv_ticks ticks;
    struct cairn_srv_operations *operations; /* NULL: no operations (tests) */
    struct cairn_srv_orphans *orphans;       /* objects of unknown versions; used by the sweep */
    struct cairn_srv_uploads *uploads;       /* abandoned uploads; used by the sweep */
    struct cairn_srv_webhooks *webhooks;     /* NULL: no webhooks (tests) */
    struct cairn_srv_leases *leases;         /* NULL: no renewal (tests) */
    struct cairn_srv_http *http;
    struct cairn_srv_compared *compared; /* runs compared with the store (Q35) */
    _Atomic uint64_t raising_to; /* the last generation of the store that this server took */
    _Atomic bool leaving;        /* a signal came: only /readyz differs yet */
    /* a signal came: proofs end, and commits wait for the next start */
    _Atomic bool stopping;
    _Atomic bool frozen;
    _Atomic uint64_t frozen_runs;
    struct cairn_srv_stream_leases *stream_leases; /* on versions being streamed */
    struct cairn_srv_read_slots *read_slots;       /* for shards being read */
    struct cairn_srv_chunks *chunks;               /* buffers of reads */
    _Atomic unsigned ready_streams;                /* streams that take no chunks (stream.h#4) */
    struct cairn_srv_feed *feed;                   /* NULL: no followers (tests) */
    struct cairn_srv_access *access;               /* NULL: no authentication (tests) */
    struct cairn_srv_rates *rates;                 /* NULL: no rate limits */
    struct cairn_srv_health *health;               /* NULL: no health thread (tests) */
    struct cairn_metrics *metrics;                 /* NULL: no metrics (tests) */
    _Atomic uint64_t recounted_ms;          /* last recount of a project for its quota; 0: never */
    _Atomic uint64_t counted_ms;            /* last count of versions for metrics; 0: never */
    _Atomic bool copies_missing;            /* attempt copies may be missing; true at start (Q5) */
    _Atomic bool uncopied;                  /* user metadata is not yet copied to the store */
    enum cairn_srv_revocations revocations; /* state of the store's revocations */
};

/* Q36: freezes the whole server and logs it once. For one run: guard/identity.h. */
void cairn_srv_freeze(struct cairn_srv *server, const char *why);
/* CAIRN_CATALOG_BEHIND if frozen. */
enum cairn_code cairn_srv_thawed(struct cairn_srv *server, struct cairn_error *err) CAIRN_MUST_USE;
/* After work on a text of so many bytes: returns the allocator's memory to the system, at most once
 * a second; the sweep returns the rest. */
void cairn_srv_trim_after(size_t bytes);
void cairn_srv_trim_later(size_t bytes); /* for callers that may not wait */
void cairn_srv_trim_left(void);
/* Wall time, for display only. */
int64_t cairn_srv_wall_ms(const struct cairn_srv *server);
uint64_t cairn_srv_mono_ms(const struct cairn_srv *server);
