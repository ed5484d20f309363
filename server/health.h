/* SPDX-License-Identifier: Apache-2.0 */
/*
 * health: checks that catalog and store can be written and read now.
 *
 * Why:     with a full disk, a read-only mount or an I/O error reads may still work, and the server
 *          would be ready while no save can be committed.
 * Promise: 1    a check commits a row and reads it back, and puts an object and reads it back,
 *              after the store's own store.json, so that nothing is written if a mount is gone.
 *          2    a caller waits for no disk and no store: it gets the last check's result with its
 *              age; an overdue check counts as failed.
 *          3    once a call to catalog or store has failed, readyz reports that failure until a
 *               check that began later has ended.
 * Limits:  one check at a time, each check-interval, each second while calls fail; requests of at
 *          most
 *          5 s.
 * Threads: one of its own; locked by server_health.
 * Next:    server/system.c.
 */
#pragma once

#include "server/server.h"

enum srv_check { SRV_CHECK_CATALOG, SRV_CHECK_STORE, SRV_CHECKS };

struct srv_found {
    bool ok;
    uint64_t age_ms;
    char text[400];
};

enum cairn_code srv_health_new(struct srv *server, struct srv_health **ret,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* Ends the checks; before the catalog closes. */
void srv_health_stop(struct srv_health *health); /* accepts NULL */
/* After the last call to catalog or store, before the store is freed. */
void srv_health_free(struct srv_health *health); /* accepts NULL */
/* The sign of life that a server puts into its store each interval. */
#define SRV_HEALTH_BYTES_MAX 160
struct srv_sign {
    char mark[CAIRN_UUID_TEXT_BYTES];
    uint64_t interval_ms;
    uint64_t stopped_at; /* the store's generation at a clean stop; 0: running */
    int64_t modified_ms; /* by the store's clock */
};
/* CAIRN_NOT_FOUND: no sign yet. */
enum cairn_code srv_sign_read(struct cairn_store_worker *worker, struct srv_sign *ret,
                              struct cairn_error *err) CAIRN_MUST_USE;

/* The last results. Without a thread (server->health is NULL), checks now with worker. */
void srv_health_last(struct srv *server, struct cairn_store_worker *worker,
                     struct srv_found ret[SRV_CHECKS]);
