/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_postgres: the catalog in a database of PostgreSQL, by libpq.
 *
 * Why:     what reaches the database, what comes back and what is lost on the way is the same for
 *          transactions, for statements and for the start of a session.
 * Promise: 1   no call waits for an answer longer than CAIRN_SRV_POSTGRES_ANSWER_MS (a migration:
 *              an hour); a connection that does not answer by then is closed.
 *          2   a session for changes holds the catalog's advisory lock from its first statement to
 *              its end, and is never one of a standby (engine.h#4).
 *          3   a COMMIT whose answer was lost is settled by a row that its transaction wrote; where
 *              the database cannot be asked within CAIRN_SRV_POSTGRES_SETTLE_MS, that is said.
 *          4   commits are durable whatever the database's default: synchronous_commit is not off,
 *              and a database with fsync or full_page_writes off is refused.
 *          5   no password stands in the settings, in a log or in an error.
 * Limits:  256 statements are kept per connection; a result is held in memory as a whole; 64
 *          commands on their way at once.
 * Threads: a connection belongs to one thread at a time.
 * Next:    server/catalog/engine.h; engine_postgres_open.c for a session's start,
 *          engine_postgres_wire.c for what goes over it.
 */
#pragma once

#include <libpq-fe.h>

#include "server/catalog/engine.h"

#define CAIRN_SRV_POSTGRES_RELEASE_MIN 14 /* the oldest that libpq's pipeline came with */
#define CAIRN_SRV_POSTGRES_KEPT_MAX 256
#define CAIRN_SRV_POSTGRES_AHEAD_MAX 64
#define CAIRN_SRV_POSTGRES_ANSWER_MS 40000 /* longer than statement_timeout, which names itself */
#define CAIRN_SRV_POSTGRES_SETTLE_MS 30000

struct cairn_srv_postgres_place {
    char *url;       /* as in the setting; without a password */
    char writer[40]; /* of this life of the server, in the row that settles a COMMIT */
};

struct cairn_srv_postgres {
    struct cairn_srv_tx tx;
    const struct cairn_srv_postgres_place *place;
    PGconn *conn; /* NULL: lost, or not there yet */
    bool read_only;
    uint64_t answer_ms; /* engine_postgres.h#1 */
    uint64_t batch;     /* of the transaction, in the row that settles its COMMIT */
    const char *kept[CAIRN_SRV_POSTGRES_KEPT_MAX]; /* texts prepared in this session, as c0, c1 */
    size_t kept_count;
    /* Sent, and not answered yet: 'c' a command, 's' an end of commands that fail together. */
    char ahead[2 * CAIRN_SRV_POSTGRES_AHEAD_MAX];
    size_t ahead_count;
};
static inline struct cairn_srv_postgres *cairn_srv_postgres_of(struct cairn_srv_tx *tx) {
    return (struct cairn_srv_postgres *)tx; /* its first member */
}

/* ---- engine_postgres_wire.c ---- */

/* Send a statement and go on; what becomes of it is heard with the next answer. */
enum cairn_code cairn_srv_postgres_send(struct cairn_srv_postgres *own,
                                        const struct cairn_srv_statement *statement,
                                        const struct cairn_srv_value *values,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Hear what became of all that was sent: the first failure, or the last command's result, for
 * PQclear (ret may be NULL). */
enum cairn_code cairn_srv_postgres_hear(struct cairn_srv_postgres *own, PGresult **ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Both. */
enum cairn_code cairn_srv_postgres_ask(struct cairn_srv_postgres *own,
                                       const struct cairn_srv_statement *statement,
                                       const struct cairn_srv_value *values, PGresult **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* At a session's start, before anything was sent: plain statements, several of them allowed. */
enum cairn_code cairn_srv_postgres_exec(struct cairn_srv_postgres *own, const char *sql,
                                        PGresult **ret, struct cairn_error *err) CAIRN_MUST_USE;
/* Outside of the pipeline: until the next result can be taken without waiting. */
enum cairn_code cairn_srv_postgres_wait(struct cairn_srv_postgres *own,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Has the other side closed it while nothing was asked? */
bool cairn_srv_postgres_is_lost(struct cairn_srv_postgres *own);
void cairn_srv_postgres_drop(struct cairn_srv_postgres *own); /* it may connect again */
/* A connection that could not be made, or a message of the database without a result. */
enum cairn_code cairn_srv_postgres_fail(const PGconn *conn, const PGresult *result,
                                        const char *what, struct cairn_error *err) CAIRN_MUST_USE;

/* ---- engine_postgres_remedy.c ---- */

/* Why there is no connection, and what to do about it. */
enum cairn_code cairn_srv_postgres_explain(const PGconn *conn,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* Refuses a server of a release that is older than CAIRN_SRV_POSTGRES_RELEASE_MIN. */
enum cairn_code cairn_srv_postgres_release(const PGconn *conn,
                                           struct cairn_error *err) CAIRN_MUST_USE;

/* ---- engine_postgres_open.c ---- */

/* As in engine.h. */
bool cairn_srv_postgres_knows(const char *where);
enum cairn_code cairn_srv_postgres_take(const char *where, void **ret_place,
                                        struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_postgres_leave(void *place);
enum cairn_code cairn_srv_postgres_connect(void *place, bool read_only, struct cairn_srv_tx **ret,
                                           struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_postgres_disconnect(struct cairn_srv_tx *tx);
enum cairn_code cairn_srv_postgres_migrate(struct cairn_srv_tx *tx,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* Again, where the connection was lost. */
enum cairn_code cairn_srv_postgres_reconnect(struct cairn_srv_postgres *own,
                                             struct cairn_error *err) CAIRN_MUST_USE;

/* engine_postgres_load.c; as in engine.h. */
bool cairn_srv_postgres_is_there(const char *where);
enum cairn_code cairn_srv_postgres_load(struct cairn_srv_tx *tx,
                                        const struct cairn_srv_table *table, struct cairn_view rows,
                                        struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_postgres_loaded(struct cairn_srv_tx *tx,
                                          const struct cairn_srv_table *table,
                                          struct cairn_error *err) CAIRN_MUST_USE;
