/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server: what every part of the daemon can reach.
 *
 * Why:     no globals; who needs the store or the catalog is handed this.
 * Promise: 1   fields are set before the first request and not changed after it, but for the
 *              atomic ones.
 *          2   rules of time read the injected clock; only threads that wait read the system's.
 *          3   frozen never goes back while the process lives; it is the whole catalog that is
 *              behind its store (Q36). A single run is frozen by a row: server/guard/identity.h.
 * Limits:  one catalog; one store that checkpoints are saved to (others: server/guard/stores.h).
 * Threads: immutable after start; each pointed-to part says its own.
 * Next:    server/main.c builds and takes it down; server/README.md has the rules by number.
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

/* What this server has seen of catalog time; inside changes alone (server/guard/jobs.h). */
struct cairn_srv_ticks {
    _Atomic uint64_t seen_tick; /* of changes; others look at it */
    uint64_t seen_boot_ms;
};

enum cairn_srv_revocations { /* server/access/access.h */
                             CAIRN_SRV_REVOCATIONS_UNREAD,
                             CAIRN_SRV_REVOCATIONS_MISSED, /* it did not list them */
                             CAIRN_SRV_REVOCATIONS_READ
};

struct cairn_srv {
    const struct cairn_srv_settings *settings;
    const struct cairn_clock *clock;             /* of every rule of time */
    void (*random)(void *ret_data, size_t size); /* of nonces */
    struct cairn_store *store;
    struct cairn_srv_tiers *tiers; /* the stores by name; NULL: there is only that one (tests) */
    struct cairn_srv_catalog *catalog;
    uint8_t grant_key[CAIRN_GRANT_KEY_BYTES];
    char store_uuid[CAIRN_UUID_TEXT_BYTES];
    uint64_t generation;             /* of the catalog's life; in answers to uploaders (Q19) */
    uint64_t raised_from;            /* the store's, of this start */
    _Atomic uint64_t listening_ms;   /* clock's mono: since when it has heard what was sent */
    struct cairn_srv_pool *requests; /* handlers of what changes something */
    struct cairn_srv_pool *heavy;    /* handlers of large bodies: they are in nobody's way */
    struct cairn_srv_pool *plans;    /* handlers that read all versions of a run: a few at once */
    struct cairn_srv_pool *looks;    /* handlers of GET and HEAD: no change is in their way */
    struct cairn_srv_pool *reads;    /* blocks of shards that are being served */
    struct cairn_srv_waiters *waiters;
    struct cairn_srv_nodes *nodes;
    struct cairn_srv_restores *restores; /* as nodes have told them */
    struct cairn_srv_retained *retained; /* NULL: each plan is over everything (tests) */
    struct cairn_srv_tiered *tiered;     /* likewise */
    struct cairn_srv_cache *cache;
    struct cairn_srv_jobs *jobs;   /* commits and sweeps */
    struct cairn_srv_sweep *sweep; /* of the sweeping thread alone */
    struct cairn_srv_ticks ticks;
    struct cairn_srv_operations *operations; /* NULL: none are taken (tests) */
    struct cairn_srv_orphans *orphans;   /* what lies in the store and is nobody's; of the sweep */
    struct cairn_srv_uploads *uploads;   /* that no save will end; of the sweep */
    struct cairn_srv_webhooks *webhooks; /* NULL: nobody is told (tests) */
    struct cairn_srv_leases *leases;     /* NULL: none are renewed (tests) */
    struct cairn_srv_http *http;
    struct cairn_srv_compared *compared; /* runs that were compared with the store (Q35) */
    _Atomic uint64_t raising_to; /* the store's generation: the last that this server took */
    _Atomic bool leaving;  /* a signal came: /readyz says so, and nothing else is different yet */
    _Atomic bool stopping; /* a signal came: proofs end, and commits wait for the next start */
    _Atomic bool frozen;
    _Atomic uint64_t frozen_runs;                  /* rows of frozen_runs */
    struct cairn_srv_stream_leases *stream_leases; /* of what is being sent */
    struct cairn_srv_read_slots *read_slots;       /* of shards that are being read */
    struct cairn_srv_chunks *chunks;               /* memory of these */
    _Atomic unsigned ready_streams;         /* of these, those that take no chunks (stream.h#4) */
    struct cairn_srv_feed *feed;            /* NULL: nobody follows events (tests) */
    struct cairn_srv_access *access;        /* NULL: nobody is asked who he is (tests) */
    struct cairn_srv_rates *rates;          /* NULL: callers ask as often as they like */
    struct cairn_srv_health *health;        /* NULL: no thread checks now and then (tests) */
    struct cairn_metrics *metrics;          /* NULL: nothing is counted (tests) */
    _Atomic uint64_t recounted_ms;          /* when a project was, for its quota; 0: never */
    _Atomic uint64_t counted_ms;            /* when versions were counted for them; 0: never */
    _Atomic bool copies_missing;            /* some attempt's, perhaps; true at the start (Q5) */
    _Atomic bool uncopied;                  /* what people have said is not in the store */
    enum cairn_srv_revocations revocations; /* in the store; of the start, then of the sweep */
};

/* Q36: all of the catalog is older than the store. Logged once. One run: guard/identity.h. */
void cairn_srv_freeze(struct cairn_srv *server, const char *why);
/* CAIRN_CATALOG_BEHIND when frozen. */
enum cairn_code cairn_srv_thawed(struct cairn_srv *server, struct cairn_error *err) CAIRN_MUST_USE;
/* After work with a text of so many bytes, and the values that it was printed from: what the
 * allocator keeps of a large one is given back to the system, at most once a second; the sweep
 * gives back what was left. */
void cairn_srv_trim_after(size_t bytes);
void cairn_srv_trim_later(size_t bytes); /* for who may not wait for that */
void cairn_srv_trim_left(void);
/* Wall time, for people only. */
int64_t cairn_srv_wall_ms(const struct cairn_srv *server);
uint64_t cairn_srv_mono_ms(const struct cairn_srv *server);
