/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_postgres: the catalog in a database of PostgreSQL, by libpq.
 *
 * Why:     what reaches the database, what comes back and what is lost on the way is the same for
 *          transactions, for statements and for the start of a session.
 * Promise: 1   no call waits for an answer longer than CAIRN_SRV_POSTGRES_ANSWER_MS (a migration:
 *              an hour); a connection that does not answer by then is closed.
 *          2   a transaction that changes holds the catalog's advisory lock from its begin to its
 *              end, and is never one of a standby (engine.h#4). One whose server stopped in it ends
 *              after CAIRN_SRV_POSTGRES_STOPPED_TEXT, or, where the database was reading from that
 *              server or writing to it, when another one has waited for the lock for
 *              CAIRN_SRV_POSTGRES_LOCK_TEXT and ends that session.
 *          3   a COMMIT whose answer was lost is settled by a row of this server that its
 *              transaction wrote; where the database cannot be asked within
 *              CAIRN_SRV_POSTGRES_SETTLE_MS, that is said.
 *          4   commits are durable whatever the database's default: synchronous_commit is not off,
 *              and a database with fsync or full_page_writes off is refused.
 *          5   no password stands in the settings, in a log or in an error.
 *          6   each transaction that changes counts the catalog's position up. A database in which
 *              it is lower than this process has seen or heard it (restored, or a standby that
 *              lacks commits) takes no more changes of this process, and behind says so.
 *          7   from join on the session for changes holds a lock that bears this server's id, by
 *              which others see that it lives; not in a database that has gone back.
 *          8   a database that speaks PostgreSQL's protocol and lacks what Cairn is built on
 *              (notifications, advisory locks of sessions) is refused at the first session for
 *              changes, by its name where it says one.
 *          9   of statements.def and migrations.def, which stand once, a statement's parameters ?1,
 *              ?2 become $1, $2, and nothing else changes.
 *          10  a migration's types hold the same values and sort them the same way: TEXT by bytes,
 *              INTEGER in 64 bits; a key that SQLite hands out by itself PostgreSQL hands out, too.
 *          11  what stands in quotes is left alone.
 * Limits:  256 statements are kept per connection; a result is held in memory as a whole; 512
 *          commands on their way at once.
 * Threads: a connection belongs to one thread at a time.
 * Next:    server/db/engine.h; engine_postgres_open.c for a session's start,
 *          engine_postgres_wire.c for what goes over it.
 */
#pragma once

#include <libpq-fe.h>

#include "common/buf.h"
#include "common/trace.h"
#include "server/db/engine.h"

#define CAIRN_SRV_POSTGRES_RELEASE_MIN 14 /* the oldest that libpq's pipeline came with */
#define CAIRN_SRV_POSTGRES_KEPT_MAX 256
#define CAIRN_SRV_POSTGRES_AHEAD_MAX 512
/* Sent without an end behind it, up to which the database waits for more without a time-out. libpq
 * keeps 8 KiB back before it sends by itself. */
#define CAIRN_SRV_POSTGRES_UNENDED_BYTES 4096
#define CAIRN_SRV_POSTGRES_LARGE_BYTES (64 * 1024) /* of one statement: may take seconds to send */
#define CAIRN_SRV_POSTGRES_NOTIFY_MAX 400          /* a notification has room for 8,000 bytes */
#define CAIRN_SRV_POSTGRES_ANSWER_MS 40000 /* longer than statement_timeout, which names itself */
#define CAIRN_SRV_POSTGRES_SETTLE_MS 30000
#define CAIRN_SRV_POSTGRES_STOPPED_TEXT "5s"
#define CAIRN_SRV_POSTGRES_LOCK_TEXT "12s" /* longer: who is stopped delays others, no more */

struct cairn_srv_postgres_place {
    char *url;                          /* as in the setting; without a password */
    char server[CAIRN_UUID_TEXT_BYTES]; /* this life of the server, in the table servers */
    _Atomic uint64_t seen;              /* the highest position that was committed (#6) */
    _Atomic bool behind;                /* and it was lower after that */
    _Atomic uint64_t mine;              /* the position of this process's last change; 0: none */
    _Atomic bool shared;                /* one has been counted between two of them */
    _Atomic bool joined;                /* sessions for changes hold this server's own lock */
    _Atomic bool proved;                /* it is PostgreSQL (#8) */
};

struct cairn_srv_postgres {
    struct cairn_srv_tx tx;
    struct cairn_srv_postgres_place *place;
    PGconn *conn; /* NULL: lost, or not there yet */
    bool read_only;
    uint64_t answer_ms; /* engine_postgres.h#1 */
    uint64_t batch;     /* of the transaction, in the row that settles its COMMIT */
    uint64_t position;  /* of the catalog, in this transaction; 0: not heard yet */
    uint64_t since;     /* the highest that was seen before it began (engine_postgres.h#6) */
    const char *kept[CAIRN_SRV_POSTGRES_KEPT_MAX]; /* texts prepared in this session, as c0, c1 */
    size_t kept_count;
    /* Sent, and not answered yet: 'c' a command, 'p' one that tells the catalog's position, 'n'
     * one that counts it up, 'e' a query whose rows will be asked for, 's' an end of commands that
     * fail together. */
    char ahead[2 * CAIRN_SRV_POSTGRES_AHEAD_MAX];
    size_t ahead_count, unended_bytes;
    size_t kept_ahead; /* the first of them belong to changes that were kept */
    uint64_t notify[CAIRN_SRV_POSTGRES_NOTIFY_MAX]; /* keys of this transaction; the first is ALL
                                                       where it is full (catalog.h) */
    size_t notify_count, notify_before;             /* in all, and before the savepoint */
    struct cairn_srv_postgres_expected *expected;   /* in the order in which they were sent */
    size_t expected_count, expected_heard, expected_next;
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
/* The same, of a statement that gives the catalog's position; counts: that of this transaction,
 * which is not committed yet. */
enum cairn_code cairn_srv_postgres_send_position(struct cairn_srv_postgres *own, bool counts,
                                                 const struct cairn_srv_statement *statement,
                                                 const struct cairn_srv_value *values,
                                                 struct cairn_error *err) CAIRN_MUST_USE;
/* What was sent goes out, and nobody waits for it: the next answer is heard behind it. */
enum cairn_code cairn_srv_postgres_leave_to_it(struct cairn_srv_postgres *own,
                                               struct cairn_error *err) CAIRN_MUST_USE;
/* Hear what became of all that was sent: the first failure, or the last command's result, for
 * PQclear (ret may be NULL). */
enum cairn_code cairn_srv_postgres_hear(struct cairn_srv_postgres *own, PGresult **ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Both. */
enum cairn_code cairn_srv_postgres_query(struct cairn_srv_postgres *own,
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

/* As in engine.h. */
enum cairn_code cairn_srv_postgres_expect(struct cairn_srv_tx *tx,
                                          const struct cairn_srv_statement *statement,
                                          const struct cairn_srv_value *values,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* *ret NULL: it is not expected. */
enum cairn_code cairn_srv_postgres_take_expected(struct cairn_srv_postgres *own,
                                                 const struct cairn_srv_statement *statement,
                                                 const struct cairn_srv_value *values,
                                                 PGresult **ret,
                                                 struct cairn_error *err) CAIRN_MUST_USE;
/* Something is changed, or the change or look is over. */
void cairn_srv_postgres_expect_no_more(struct cairn_srv_postgres *own);
void cairn_srv_postgres_expected_release(struct cairn_srv_postgres *own);
bool cairn_srv_postgres_only_looks(const struct cairn_srv_statement *statement);

/* ---- engine_postgres_open.c ---- */

/* As in engine.h. */
bool cairn_srv_postgres_knows(const char *where);
enum cairn_code cairn_srv_postgres_take(const char *where, void **ret_place,
                                        struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_postgres_leave(void *place);
enum cairn_code cairn_srv_postgres_connect(void *place, bool read_only, struct cairn_srv_tx **ret,
                                           struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_postgres_disconnect(struct cairn_srv_tx *tx);
enum cairn_code cairn_srv_postgres_migrate(struct cairn_srv_tx *tx, struct cairn_srv_migrated *ret,
                                           struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_postgres_join(struct cairn_srv_tx *tx, bool lasting, bool *ret_others,
                                        struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_postgres_lives(struct cairn_srv_tx *tx, const char *server, bool *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_postgres_alone(struct cairn_srv_tx *tx,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* The catalog's lock, for the transaction. */
extern const struct cairn_srv_statement cairn_srv_postgres_take_lock;
extern const struct cairn_srv_statement cairn_srv_postgres_read_position;
/* Ends the session that holds it and waits for its server, which is stopped or gone. */
extern const struct cairn_srv_statement cairn_srv_postgres_end_holder;
/* Again, where the connection was lost. */
enum cairn_code cairn_srv_postgres_reconnect(struct cairn_srv_postgres *own,
                                             struct cairn_error *err) CAIRN_MUST_USE;

/* ---- engine_postgres.c ---- */

/* As in engine.h. */
void cairn_srv_postgres_notify(struct cairn_srv_tx *tx, uint64_t key);

/* ---- statements.def and migrations.def in PostgreSQL's words (engine_postgres_open.c) ----
 *
 * Words are in upper case, as the two tables write them; there are no comments in the text. */

enum cairn_code cairn_srv_dialect_statement(const char *sql, struct cairn_buf *ret,
                                            struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_dialect_schema(const char *sql, struct cairn_buf *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
