/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_postgres: the catalog in a PostgreSQL database, through libpq.
 *
 * Why:     transactions, statements and session start share sending, receiving and lost
 *          connections.
 * Promise: 1   no call waits for an answer longer than SRV_POSTGRES_ANSWER_MS (a migration:
 *              an hour); a connection that does not answer by then is closed.
 *          2   a changing transaction holds the catalog's advisory lock from begin to end, and
 *              never runs on a standby (engine.h#4). If its server stops, the database ends it
 *              after SRV_POSTGRES_STOPPED_TEXT, or, if it was exchanging data with that
 *              server, another server does after waiting SRV_POSTGRES_LOCK_TEXT for the lock.
 *          3   a COMMIT whose answer was lost is settled by a row that its transaction wrote; an
 *              error says when that is impossible for SRV_POSTGRES_SETTLE_MS.
 *          4   commits are durable whatever the database's default: synchronous_commit is not off,
 *              and a database with fsync or full_page_writes off is refused.
 *          5   no password stands in the settings, in a log or in an error.
 *          6   each changing transaction increments the catalog's position. If a database has a
 *              lower one than this process has seen (restored, or a standby that lacks commits),
 *              this process makes no more changes, and behind reports it.
 *          7   from join on the writing session holds a lock with this server's id, by which others
 *              see that it lives; not in a database that has gone back.
 *          8   a database with PostgreSQL's protocol but without notifications or session advisory
 *              locks is refused at the first writing session, by product name where known.
 *          9   of statements.def and migrations.def only parameters change: ?1, ?2 become $1, $2.
 *          10  a migration's types hold the same values and sort them the same way: TEXT by bytes,
 *              INTEGER in 64 bits; a key that SQLite generates PostgreSQL generates, too.
 *          11  text in quotes is not translated.
 * Limits:  256 prepared statements a connection; results are held in memory; 512 commands in
 *          flight.
 * Threads: a connection belongs to one thread at a time.
 * Next:    server/db/engine.h; engine_postgres_open.c; engine_postgres_wire.c.
 */
#pragma once

#include <libpq-fe.h>

#include "server/db/engine.h"

#define SRV_POSTGRES_RELEASE_MIN 14 /* the first libpq release with pipelines */
#define SRV_POSTGRES_KEPT_MAX 256
#define SRV_POSTGRES_AHEAD_MAX 512
/* Flush threshold: the database waits for a sync without a time-out, and libpq flushes at 8 KiB. */
#define SRV_POSTGRES_UNENDED_BYTES 4096
#define SRV_POSTGRES_LARGE_BYTES (64 * 1024) /* one statement; may take seconds to send */
#define SRV_POSTGRES_NOTIFY_MAX 400          /* a notification holds 8,000 bytes */
#define SRV_POSTGRES_ANSWER_MS 40000         /* longer than statement_timeout, which fires first */
#define SRV_POSTGRES_SETTLE_MS 30000
#define SRV_POSTGRES_STOPPED_TEXT "5s"
#define SRV_POSTGRES_LOCK_TEXT "12s" /* longer: a stopped server only delays others */

struct srv_postgres_place {
    char *url;                          /* as in the setting; without a password */
    char server[CAIRN_UUID_TEXT_BYTES]; /* this process's id in the table servers */
    _Atomic uint64_t seen;              /* highest committed position (#6) */
    _Atomic bool behind;                /* a lower one was found later (#6) */
    _Atomic uint64_t mine;              /* position of this process's last change; 0: none */
    _Atomic bool shared;                /* another server's position lay between two of ours */
    _Atomic bool joined;                /* writing sessions hold this server's lock (#7) */
    _Atomic bool proved;                /* confirmed as PostgreSQL (#8) */
};

struct srv_postgres {
    struct srv_tx tx;
    struct srv_postgres_place *place;
    PGconn *conn; /* NULL: lost, or not connected yet */
    bool read_only;
    uint64_t answer_ms; /* engine_postgres.h#1 */
    uint64_t batch;     /* of the transaction; its row settles a lost COMMIT */
    uint64_t position;  /* of the catalog, in this transaction; 0: not received */
    uint64_t since;     /* highest position seen before it began (#6) */
    const char *kept[SRV_POSTGRES_KEPT_MAX]; /* prepared statements, named c0, c1, ... */
    size_t kept_count;
    /* Sent, not answered: 'c' a command, 'p' one that returns the catalog's position, 'n' one that
     * increments it, 'e' an expected query, 's' a sync: commands up to it fail together. */
    char ahead[2 * SRV_POSTGRES_AHEAD_MAX];
    size_t ahead_count, unended_bytes;
    size_t kept_ahead;                        /* the first of them, of kept changes */
    uint64_t notify[SRV_POSTGRES_NOTIFY_MAX]; /* of this transaction; full: first is ALL */
    size_t notify_count, notify_before;       /* all, and those before the savepoint */
    struct srv_postgres_expected *expected;   /* in the order sent */
    size_t expected_count, expected_heard, expected_next;
};
static inline struct srv_postgres *srv_postgres_of(struct srv_tx *tx) {
    return (struct srv_postgres *)tx;
}

/* ---- engine_postgres_wire.c ---- */

/* Sends a statement without waiting; its result comes with the next answer. */
enum cairn_code srv_postgres_send(struct srv_postgres *own, const struct srv_statement *statement,
                                  const struct srv_value *values,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Sends a statement that returns the catalog's position. counts: it increments it, uncommitted. */
enum cairn_code srv_postgres_send_position(struct srv_postgres *own, bool counts,
                                           const struct srv_statement *statement,
                                           const struct srv_value *values,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* Flushes what was sent without waiting; the next hear also receives those results. */
enum cairn_code srv_postgres_leave_to_it(struct srv_postgres *own,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Receives all results: the first failure, or the last result for PQclear (ret may be NULL). */
enum cairn_code srv_postgres_hear(struct srv_postgres *own, PGresult **ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code srv_postgres_query(struct srv_postgres *own, const struct srv_statement *statement,
                                   const struct srv_value *values, PGresult **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* At a session's start, before anything was sent: plain statements, several of them allowed. */
enum cairn_code srv_postgres_exec(struct srv_postgres *own, const char *sql, PGresult **ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Outside of the pipeline: waits until the next result is ready. */
enum cairn_code srv_postgres_wait(struct srv_postgres *own, struct cairn_error *err) CAIRN_MUST_USE;
/* True when the server has closed the idle connection. */
bool srv_postgres_is_lost(struct srv_postgres *own);
void srv_postgres_drop(struct srv_postgres *own); /* a later call may reconnect */
/* Error of a failed connection, or of the database without a result. */
enum cairn_code srv_postgres_fail(const PGconn *conn, const PGresult *result, const char *what,
                                  struct cairn_error *err) CAIRN_MUST_USE;

enum cairn_code srv_postgres_expect(struct srv_tx *tx, const struct srv_statement *statement,
                                    const struct srv_value *values,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* *ret NULL: not expected. */
enum cairn_code srv_postgres_take_expected(struct srv_postgres *own,
                                           const struct srv_statement *statement,
                                           const struct srv_value *values, PGresult **ret,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* Drops expected queries: data changed, or the transaction ended. */
void srv_postgres_expect_no_more(struct srv_postgres *own);
void srv_postgres_expected_release(struct srv_postgres *own);
bool srv_postgres_only_looks(const struct srv_statement *statement);

/* ---- engine_postgres_open.c ---- */

bool srv_postgres_knows(const char *where);
enum cairn_code srv_postgres_take(const char *where, void **ret_place,
                                  struct cairn_error *err) CAIRN_MUST_USE;
void srv_postgres_leave(void *place);
enum cairn_code srv_postgres_connect(void *place, bool read_only, struct srv_tx **ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
void srv_postgres_disconnect(struct srv_tx *tx);
enum cairn_code srv_postgres_migrate(struct srv_tx *tx, struct srv_migrated *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code srv_postgres_join(struct srv_tx *tx, bool lasting, bool *ret_others,
                                  struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code srv_postgres_lives(struct srv_tx *tx, const char *server, bool *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code srv_postgres_alone(struct srv_tx *tx, struct cairn_error *err) CAIRN_MUST_USE;
/* Takes the catalog's lock for the transaction. */
extern const struct srv_statement srv_postgres_take_lock;
extern const struct srv_statement srv_postgres_read_position;
/* Ends the session that holds the lock while its server is stopped or gone. */
extern const struct srv_statement srv_postgres_end_holder;
/* Reconnects a lost connection. */
enum cairn_code srv_postgres_reconnect(struct srv_postgres *own,
                                       struct cairn_error *err) CAIRN_MUST_USE;

/* ---- engine_postgres.c ---- */

void srv_postgres_notify(struct srv_tx *tx, uint64_t key);

/* ---- translation of statements.def and migrations.def (engine_postgres_open.c) ----
 *
 * Keywords are in upper case, as in the two tables; the text has no comments. */

enum cairn_code srv_dialect_statement(const char *sql, struct cairn_buf *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code srv_dialect_schema(const char *sql, struct cairn_buf *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
