/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine: what a database does for the catalog, as one table of functions.
 *
 * Why:     the words of the catalog, its statements and its queue of changes are the same over
 *          every database; what is not the same is one file (or two) of functions below this table.
 * Promise: 1   commit answers CAIRN_OK when what was done is durable, and anything else when none
 *              of it is there; an engine that cannot know asks until it does.
 *          2   after undo, nothing since savepoint is there and the transaction goes on; where it
 *              cannot go on, is_open says so. So it does where something fails that was kept.
 *          3   a connection for looks can change nothing, and sees one state from begin to end.
 *          4   transactions that change run one after the other, of all processes: what one has
 *              looked at nobody changes before its end.
 *          5   rows of a query that was expected are those that it would give when they are asked
 *              for: what is changed in between makes it be asked again.
 * Limits:  one savepoint at a time; CAIRN_SRV_EXPECTED_MAX queries expected at a time.
 * Threads: a connection belongs to one thread at a time; a place is immutable after take.
 * Next:    server/db/catalog.c for who calls what when; engine_sqlite.h.
 */
#pragma once

#include "server/db/sql.h"

struct cairn_srv_engine;
struct cairn_srv_actor;  /* catalog.h */
struct cairn_srv_table;  /* copy_page.h */
struct cairn_srv_backup; /* copy.h */

#define CAIRN_SRV_CHECKED_BYTES 400
enum cairn_srv_checked {
    CAIRN_SRV_CHECKED_OK,
    CAIRN_SRV_CHECKED_NOT_YET,
    CAIRN_SRV_CHECKED_DAMAGED, /* nothing is written any more */
};

/* A connection; an engine's own struct begins with it. */
struct cairn_srv_tx {
    const struct cairn_srv_engine *engine;
    struct cairn_srv_tx *next;           /* of the idle ones for looks */
    const struct cairn_srv_actor *actor; /* of the change that runs; NULL: the server itself */
    int64_t wall_ms;                     /* of the transaction; for people only */
    uint64_t events;                     /* rows of events that it has made */
    struct cairn_error undone; /* why is_open says no; code CAIRN_OK: see what was asked last */
};

struct cairn_srv_engine {
    const char *name;

    /* ---- the catalog as a whole ---- */

    /* Does `where` name a catalog of this engine? */
    bool (*knows)(const char *where);
    /* What is known of a catalog without a connection; refuses a place that cannot hold one. */
    enum cairn_code (*take)(const char *where, void **ret_place, struct cairn_error *err);
    void (*leave)(void *place);
    const char *(*describe)(const void *place); /* for people; without secrets */
    const char *(*server)(const void *place);   /* a uuid: this life of the server, to others */
    bool shareable;                             /* several processes may change it */
    bool (*shared)(const void *place);          /* and another one has, since this one opened it */
    bool (*behind)(const void *place); /* the database has lost commits that were seen here */

    /* Inside a change: does another server live that has joined? lasting: so has this one, from
     * here on. */
    enum cairn_code (*join)(struct cairn_srv_tx *tx, bool lasting, bool *ret_others,
                            struct cairn_error *err);

    /* Inside a change: has that server joined, and not ended? */
    enum cairn_code (*lives)(struct cairn_srv_tx *tx, const char *server, bool *ret,
                             struct cairn_error *err);

    /* ---- connections ---- */

    enum cairn_code (*connect)(void *place, bool read_only, struct cairn_srv_tx **ret,
                               struct cairn_error *err);
    void (*disconnect)(struct cairn_srv_tx *tx);
    /* Over the connection for changes: bring the catalog to this program's schema; refuses a newer
     * one. A file is copied before that. */
    enum cairn_code (*migrate)(struct cairn_srv_tx *tx, struct cairn_srv_migrated *ret,
                               struct cairn_error *err);

    /* ---- transactions ---- */

    enum cairn_code (*begin_read)(struct cairn_srv_tx *tx, struct cairn_error *err);
    void (*end_read)(struct cairn_srv_tx *tx);
    enum cairn_code (*begin_write)(struct cairn_srv_tx *tx, struct cairn_error *err);
    enum cairn_code (*commit)(struct cairn_srv_tx *tx, struct cairn_error *err);
    void (*rollback)(struct cairn_srv_tx *tx); /* also where none is open */
    bool (*is_open)(struct cairn_srv_tx *tx);
    enum cairn_code (*savepoint)(struct cairn_srv_tx *tx, struct cairn_error *err);
    enum cairn_code (*keep)(struct cairn_srv_tx *tx, struct cairn_error *err); /* since savepoint */
    void (*undo)(struct cairn_srv_tx *tx);                                     /* since savepoint */

    /* ---- statements ---- */

    /* A statement that gives no rows, or whose rows nobody asks for. Where ret_changed is NULL its
     * failure may be told with a later statement, or with commit: then by that of a later change,
     * or of none, and all of the transaction is undone. */
    enum cairn_code (*run)(struct cairn_srv_tx *tx, const struct cairn_srv_statement *statement,
                           const struct cairn_srv_value *values, uint64_t *ret_changed,
                           struct cairn_error *err);
    /* This query will be started soon with these values, unless something fails before. An engine
     * that is not asked over a network has none. */
    enum cairn_code (*expect)(struct cairn_srv_tx *tx, const struct cairn_srv_statement *statement,
                              const struct cairn_srv_value *values, struct cairn_error *err);
    /* As many values as the statement has types; they live until finish. */
    enum cairn_code (*start)(struct cairn_srv_tx *tx, const struct cairn_srv_statement *statement,
                             const struct cairn_srv_value *values, void **ret_running,
                             struct cairn_error *err);
    enum cairn_code (*next)(struct cairn_srv_tx *tx, void *running, bool *ret_more,
                            struct cairn_error *err);
    void (*finish)(struct cairn_srv_tx *tx, void *running);
    bool (*is_null)(void *running, int column);
    int64_t (*number)(void *running, int column);
    const char *(*text)(void *running, int column);
    struct cairn_view (*bytes)(void *running, int column);

    /* ---- what other processes are told (catalog.h) ---- */

    /* Inside a change; NULL, as listen: nobody else is there. */
    void (*notify)(struct cairn_srv_tx *tx, uint64_t key);
    /* A session for listen_for and disconnect alone. */
    enum cairn_code (*listen)(void *place, struct cairn_srv_tx **ret, struct cairn_error *err);
    /* Until something is told, or wake_fd can be read, or for wait_ms, after which the session is
     * asked whether it is there; a failure: it is not. */
    enum cairn_code (*listen_for)(struct cairn_srv_tx *tx, int wake_fd, uint32_t wait_ms,
                                  void (*heard)(void *owner, uint64_t key), void *owner,
                                  struct cairn_error *err);

    /* ---- copies (copy.h) ---- */

    bool in_folder;                      /* `where` is a folder, in which grant.key may lie, too */
    bool (*is_there)(const char *where); /* false: take and connect would begin a new one */
    /* From here to its end this is the only connection for changes, of all processes.
     * CAIRN_CONFLICT: another one is there. */
    enum cairn_code (*alone)(struct cairn_srv_tx *tx, struct cairn_error *err);
    /* Rows (copy_page.h) into a table: one transaction; all of them, or none. */
    enum cairn_code (*load)(struct cairn_srv_tx *tx, const struct cairn_srv_table *table,
                            struct cairn_view rows, struct cairn_error *err);
    /* After the last of them: what numbers the table's next row. */
    enum cairn_code (*loaded)(struct cairn_srv_tx *tx, const struct cairn_srv_table *table,
                              struct cairn_error *err);

    /* Of what the database keeps beside its file for those who read; NULL: it sees to that. */
    uint64_t (*log_bytes)(const void *place);

    /* Whether the file is whole, which may be found only after the start; NULL: the database sees
     * to that. ret: "ok", or what there is to say. */
    enum cairn_srv_checked (*checked)(const void *place, char ret[CAIRN_SRV_CHECKED_BYTES]);

    /* As of one moment into a file that is new, while a server may change the catalog; read again
     * and synced. NULL: by means of the database's own. */
    enum cairn_code (*backup)(const char *where, const char *file, struct cairn_srv_backup *ret,
                              struct cairn_error *err);
};

extern const struct cairn_srv_engine cairn_srv_engine_sqlite;
extern const struct cairn_srv_engine cairn_srv_engine_postgres;
/* As in catalog.h; of PostgreSQL. */
void cairn_srv_postgres_password_from(const char *path);

struct cairn_srv_migration {
    unsigned number;
    const char *sql;
};
extern const struct cairn_srv_migration cairn_srv_migrations[];
extern const size_t cairn_srv_migration_count;
