/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine: the functions that a database provides to the catalog, as one table.
 *
 * Why:     catalog, statements and change queue are the same over every database; each engine's
 *          differences are one or two files behind this table.
 * Promise: 1   commit returns CAIRN_OK when the transaction is durable, and anything else when none
 *              of it is stored; an engine that cannot know retries until it does.
 *          2   undo reverts everything since savepoint and the transaction continues; where it
 *              cannot, is_open says so, as when a statement fails that was kept.
 *          3   a connection for reads can change nothing, and sees one state from begin to end.
 *          4   changing transactions of all processes are serial: data read stays unchanged until
 *              the end.
 *          5   an expected query runs again if a change came between: its rows are never stale.
 * Limits:  one savepoint at a time; SRV_EXPECTED_MAX expected queries at a time.
 * Threads: a connection belongs to one thread at a time; a place is immutable after take.
 * Next:    server/db/catalog.c (the caller); engine_sqlite.h.
 */
#pragma once

#include "server/db/sql.h"

struct srv_table;
struct srv_backup;

#define SRV_CHECKED_BYTES 400
enum srv_checked {
    SRV_CHECKED_OK,
    SRV_CHECKED_NOT_YET,
    SRV_CHECKED_DAMAGED, /* writes are refused */
};

/* A connection; an engine's own struct begins with it. */
struct srv_tx {
    const struct srv_engine *engine;
    struct srv_tx *next;           /* list of idle reading connections */
    const struct srv_actor *actor; /* of the running change; NULL: the server itself */
    int64_t wall_ms;               /* of the transaction; for display only */
    uint64_t events;               /* events written by it */
    struct cairn_error undone;     /* why is_open is false; code CAIRN_OK: see the last call */
    struct cairn_error broken;     /* the first failure of the database in a look; CAIRN_OK: none */
};

struct srv_engine {
    const char *name;

    /* ---- the catalog as a whole ---- */

    /* True when `where` names a place of this engine. */
    bool (*knows)(const char *where);
    /* Prepares a place without a connection; refuses one that cannot hold a catalog. */
    enum cairn_code (*take)(const char *where, void **ret_place, struct cairn_error *err);
    void (*leave)(void *place);
    const char *(*describe)(const void *place); /* for display; without secrets */
    const char *(*server)(const void *place);   /* uuid of this server process */
    bool shareable;                             /* several processes may change it */
    bool (*shared)(const void *place);          /* another process has changed it since open */
    bool (*behind)(const void *place);          /* the database lost commits seen here */

    /* Inside a change: is another joined server alive? lasting: this server joins, too. */
    enum cairn_code (*join)(struct srv_tx *tx, bool lasting, bool *ret_others,
                            struct cairn_error *err);

    /* Inside a change: true when that server has joined and is alive. */
    enum cairn_code (*lives)(struct srv_tx *tx, const char *server, bool *ret,
                             struct cairn_error *err);

    enum cairn_code (*connect)(void *place, bool read_only, struct srv_tx **ret,
                               struct cairn_error *err);
    void (*disconnect)(struct srv_tx *tx);
    /* On the writing connection: migrates to this program's schema; refuses a newer one. */
    enum cairn_code (*migrate)(struct srv_tx *tx, struct srv_migrated *ret,
                               struct cairn_error *err);

    enum cairn_code (*begin_read)(struct srv_tx *tx, struct cairn_error *err);
    void (*end_read)(struct srv_tx *tx);
    enum cairn_code (*begin_write)(struct srv_tx *tx, struct cairn_error *err);
    enum cairn_code (*commit)(struct srv_tx *tx, struct cairn_error *err);
    void (*rollback)(struct srv_tx *tx); /* also without an open transaction */
    bool (*is_open)(struct srv_tx *tx);
    enum cairn_code (*savepoint)(struct srv_tx *tx, struct cairn_error *err);
    enum cairn_code (*keep)(struct srv_tx *tx, struct cairn_error *err); /* since savepoint */
    void (*undo)(struct srv_tx *tx);                                     /* since savepoint */

    /* Runs a statement without its rows. With ret_changed NULL its failure may surface in a later
     * change or in commit, and undoes the whole transaction. */
    enum cairn_code (*run)(struct srv_tx *tx, const struct srv_statement *statement,
                           const struct srv_value *values, uint64_t *ret_changed,
                           struct cairn_error *err);
    /* Announces that this query will be started soon with these values, unless a failure comes
     * first. NULL for an engine without a network. */
    enum cairn_code (*expect)(struct srv_tx *tx, const struct srv_statement *statement,
                              const struct srv_value *values, struct cairn_error *err);
    /* One value per type of the statement; they must live until finish. */
    enum cairn_code (*start)(struct srv_tx *tx, const struct srv_statement *statement,
                             const struct srv_value *values, void **ret_running,
                             struct cairn_error *err);
    enum cairn_code (*next)(struct srv_tx *tx, void *running, bool *ret_more,
                            struct cairn_error *err);
    void (*finish)(struct srv_tx *tx, void *running);
    bool (*is_null)(void *running, int column);
    int64_t (*number)(void *running, int column);
    const char *(*text)(void *running, int column);
    struct cairn_view (*bytes)(void *running, int column);

    /* ---- notifications (catalog.h) ---- */

    /* Inside a change. NULL, like listen, for an engine with one process. */
    void (*notify)(struct srv_tx *tx, uint64_t key);
    /* A session only for listen_for and disconnect. */
    enum cairn_code (*listen)(void *place, struct srv_tx **ret, struct cairn_error *err);
    /* Waits for a notification, wake_fd or wait_ms, then checks that the session is alive. */
    enum cairn_code (*listen_for)(struct srv_tx *tx, int wake_fd, uint32_t wait_ms,
                                  void (*heard)(void *owner, uint64_t key), void *owner,
                                  struct cairn_error *err);

    /* ---- copies (copy.h) ---- */

    bool in_folder;                      /* a folder, in which grant.key may be */
    bool (*is_there)(const char *where); /* false: take and connect would create one */
    /* From here on no other process may have a connection for changes. CAIRN_CONFLICT: one has. */
    enum cairn_code (*alone)(struct srv_tx *tx, struct cairn_error *err);
    /* Loads rows (copy_page.h) into a table in one transaction. */
    enum cairn_code (*load)(struct srv_tx *tx, const struct srv_table *table,
                            struct cairn_view rows, struct cairn_error *err);
    /* After the last load: sets the table's next row number. */
    enum cairn_code (*loaded)(struct srv_tx *tx, const struct srv_table *table,
                              struct cairn_error *err);

    /* Size of the log beside the file; NULL: the database manages it. */
    uint64_t (*log_bytes)(const void *place);

    /* Result of the file's integrity check; NULL: none here. ret: "ok" or a description. */
    enum srv_checked (*checked)(const void *place, char ret[SRV_CHECKED_BYTES]);

    /* Copies one state into a new file while a server may change the catalog, reads it back and
     * syncs it. NULL: use the database's own tools. */
    enum cairn_code (*backup)(const char *where, const char *file, struct srv_backup *ret,
                              struct cairn_error *err);
};

extern const struct srv_engine srv_engine_sqlite;
extern const struct srv_engine srv_engine_postgres;
void srv_postgres_password_from(const char *path);

struct srv_migration {
    unsigned number;
    const char *sql;
};
extern const struct srv_migration srv_migrations[];
extern const size_t srv_migration_count;
