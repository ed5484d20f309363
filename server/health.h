/* SPDX-License-Identifier: Apache-2.0 */
/*
 * health: can catalog and store really be written and read now?
 *
 * Why:     a full disk, a read-only mount and an I/O error let every read through; the server
 *          called itself ready while no save could be committed.
 * Promise: 1    what is said is of a row that was committed and read back, and of an object that
 *              was put and read back, both made for this; the store's own store.json comes first,
 *              so that nothing is written where a mount is gone.
 *          2    a caller waits for no disk and no store: the answer is the last look's, with its
 *              age; a look that does not end is a failure once it is late.
 *          3    once the catalog or the store has failed a call, the last look counts no more:
 *               readyz says what failed until a look that began after it has ended.
 * Limits:  one look at a time, one each setting check-interval, and one a second while calls fail;
 *          requests of at most 5 s.
 * Threads: one of its own; locked by server_health.
 * Next:    server/system.c.
 */
#pragma once

#include "common/trace.h"
#include "server/server.h"

enum cairn_srv_check { CAIRN_SRV_CHECK_CATALOG, CAIRN_SRV_CHECK_STORE, CAIRN_SRV_CHECKS };

struct cairn_srv_found {
    bool ok;
    uint64_t age_ms; /* since the look ended */
    char text[400];  /* "ok", or what is wrong */
};

enum cairn_code cairn_srv_health_new(struct cairn_srv *server, struct cairn_srv_health **ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* No call makes a look any more; before the catalog closes. */
void cairn_srv_health_stop(struct cairn_srv_health *health); /* NULL is fine */
/* When nobody calls catalog or store any more, and before the store is freed. */
void cairn_srv_health_free(struct cairn_srv_health *health); /* NULL is fine */
/* The sign of life that a server puts into its store once an interval. */
#define CAIRN_SRV_HEALTH_BYTES_MAX 160
struct cairn_srv_sign {
    char mark[CAIRN_UUID_TEXT_BYTES]; /* another one each time */
    uint64_t interval_ms;             /* until the next one */
    uint64_t stopped_at;              /* the store's generation at a clean stop; 0: it goes on */
    int64_t modified_ms;              /* by the store's clock */
};
/* CAIRN_NOT_FOUND where no server has ever put one. */
enum cairn_code cairn_srv_sign_read(struct cairn_store_worker *worker, struct cairn_srv_sign *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;

/* What the last looks found. Without a thread (server->health is NULL) it looks now, by worker. */
void cairn_srv_health_last(struct cairn_srv *server, struct cairn_store_worker *worker,
                           struct cairn_srv_found ret[CAIRN_SRV_CHECKS]);
