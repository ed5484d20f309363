/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalog: transactions over the database, notifications to other servers, actors of changes.
 *
 * Why:     only this room knows which database runs a transaction. Notifications spare requests
 *          that wait for another server's change from polling, which costs a query each and is
 *          late. The actor belongs to the thread, so no call between handler and event row passes
 *          it on.
 * Promise: 1   a change is durable when srv_catalog_write returns CAIRN_OK, and has no effect
 *              otherwise. If the outcome of COMMIT stays unknown, the message says so.
 *          2   changes of all servers run one after the other, those of this server on one thread;
 *              changes queued during a commit share the next one, each in its own savepoint.
 *          3   while the catalog is not writable (disk full, I/O error) each change fails with the
 *              reason, reads continue, and srv_catalog_writable reports it.
 *          4   a read sees one state of the whole catalog and can neither write nor checkpoint.
 *          5   open refuses a network file system, a standby, a newer schema, a weaker durability
 *              setting, and a second process on the same SQLite file.
 *          6   a change's notifications reach each other listening server once the change is
 *              committed and visible; those of an undone change reach none.
 *          7   while hears() is true a session listens and was alive within the last 10 s. When it
 *              is lost or restored, changed() is called with SRV_NOTIFY_ALL.
 *          8   a server's own notifications do not call its changed().
 *          9   a change carries the actor of the thread that requested it.
 *          10  a thread has one look at a time and requests no change within it; else it aborts.
 * Limits:  4,096 queued changes; 256 changes a commit, all begun within a second; 16 connections
 *          for looks, for which further looks wait (hence #10).
 *          Notifications are hints: a waiting request also polls (server/http/http.c); 400 keys a
 *          transaction, more become ALL.
 * Threads: any thread (in memory: one); a struct srv_tx lives inside its callback or its
 *          look, and a look stays on the thread that began it; changed()
 *          runs on the listener's thread; an actor belongs to the thread that sets it.
 * Next:    server/db/sql.h; server/db/engine.h; server/http/waiters.h; E2 in server/README.md.
 */
#pragma once

#include "api/documents/keys.h"

/* CAIRN_AUTO for the server's structs: SRV_AUTO(run) run = {0}; */
#define SRV_AUTO(type) __attribute__((cleanup(srv_##type##_release))) struct srv_##type

/* Declares what a call fills, to be released at the end of the scope, and tries the call:
 * SRV_GET(run, run, srv_run_get(tx, name, &run, err)); */
#define SRV_GET(type, name, call)                                                                  \
    SRV_AUTO(type) name = {0};                                                                     \
    CAIRN_TRY(call)

struct srv_catalog;
struct srv_tx;

/* where: a folder for SQLite, or postgresql://... as libpq takes it. */
enum cairn_code srv_catalog_open(const char *where, struct srv_catalog **ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* Password file, read for each session; "" or NULL: none. Call before threads start. */
void srv_catalog_password_from(const char *path);
/* The migration that opening has run. */
struct srv_migrated {
    unsigned from;     /* schema before; 0: new catalog, or no migration */
    char before[1100]; /* backup of the file as it was; "": PostgreSQL has none */
};
const struct srv_migrated *srv_catalog_migrated(const struct srv_catalog *catalog);
/* True when the folder holds a catalog; always true for PostgreSQL. */
bool srv_catalog_is_there(const char *where);
/* One in-memory connection, for simulations: changes and reads run on the calling thread. */
enum cairn_code srv_catalog_open_memory(struct srv_catalog **ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
void srv_catalog_free(struct srv_catalog *catalog); /* no caller may be inside */
/* This server process's id in the table servers. */
const char *srv_catalog_server(const struct srv_catalog *catalog);
/* Increases with each transaction of this server, before its notifications. A read that began after
 * the count had a value is current while it stays, unless another server writes. Never 0. */
uint64_t srv_catalog_changes(const struct srv_catalog *catalog);
/* is_shareable: several processes may change it. is_shared: another one has since open. */
bool srv_catalog_is_shareable(const struct srv_catalog *catalog);
bool srv_catalog_is_shared(const struct srv_catalog *catalog);
/* A PostgreSQL database that has lost commits which this process has seen. */
bool srv_catalog_is_behind(const struct srv_catalog *catalog);
/* Size of the log beside the catalog's file; 0: none, or the database manages it. */
uint64_t srv_catalog_log_bytes(const struct srv_catalog *catalog);
/* Until unlisten, changed() is called for notifications of other servers. */
enum cairn_code srv_catalog_listen(struct srv_catalog *catalog,
                                   void (*changed)(void *owner, uint64_t key), void *owner,
                                   struct cairn_error *err) CAIRN_MUST_USE;
void srv_catalog_unlisten(struct srv_catalog *catalog);
/* True while their notifications arrive (#7). */
bool srv_catalog_hears(const struct srv_catalog *catalog);
const struct srv_engine *srv_engine_of(const char *where);

/* Runs change() on the writing thread; a code other than CAIRN_OK undoes it. It must not wait, log
 * or do other I/O: every other change waits for it. */
enum cairn_code srv_catalog_write(struct srv_catalog *catalog,
                                  enum cairn_code (*change)(struct srv_tx *tx, void *argument,
                                                            struct cairn_error *err),
                                  void *argument, struct cairn_error *err) CAIRN_MUST_USE;
/* Begins the definition of a static change() with a typed argument, in whose body tx and err are:
 * SRV_CHANGE(drop_row, struct drop *drop) { ... } */
#define SRV_CHANGE(name, argument)                                                                 \
    static enum cairn_code name##_typed(struct srv_tx *tx, argument, struct cairn_error *err);     \
    static enum cairn_code name(struct srv_tx *tx, void *cairn_argument,                           \
                                struct cairn_error *err) {                                         \
        return name##_typed(tx, cairn_argument, err);                                              \
    }                                                                                              \
    static enum cairn_code name##_typed(struct srv_tx *tx, argument, struct cairn_error *err)
/* Clock for event times, the system's by default; set it before the first change. */
struct cairn_clock;
void srv_catalog_set_clock(struct srv_catalog *catalog, const struct cairn_clock *clock);
/* happened() is called on the writing thread after each commit with events (events.h), and may only
 * wake another thread. NULL removes it; call that only while no change is under way. */
void srv_catalog_set_watcher(struct srv_catalog *catalog, void (*happened)(void *owner),
                             void *owner);
/* Called on the thread that sees a transaction rejected by the database, or a read that could not
 * begin or that the database broke off. Set once; it may only wake another thread. */
typedef void srv_catalog_failed(void *owner, const struct cairn_error *why);
void srv_catalog_set_failed(struct srv_catalog *catalog, srv_catalog_failed *failed, void *owner);
enum srv_query { SRV_QUERY_LOOK, SRV_QUERY_CHANGE, SRV_QUERIES };
/* Counts durations there, with the kind of query as first label. */
struct cairn_metrics;
void srv_catalog_set_metrics(struct srv_catalog *catalog, struct cairn_metrics *metrics,
                             size_t family);
/* Integrity check. ret: "ok" or a description (engine.h). False: damaged and read-only. */
bool srv_catalog_checked(const struct srv_catalog *catalog, char *ret, size_t capacity);
/* CAIRN_OK, or why the last change could not be written. */
enum cairn_code srv_catalog_writable(struct srv_catalog *catalog,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* A look: reads of one snapshot (#4) on the calling thread, from begin to the end of the scope.
 *
 *     SRV_LOOK(look, catalog, err);
 *     CAIRN_TRY(srv_version_find(look.tx, &ref, &version, err));
 *
 * It holds one of few connections and keeps SQLite's log from being begun anew (S1a), so nothing
 * within it waits, calls the store or looks again (#10): an inner block, or release, ends it before
 * that. Rows (sql.h) and texts of rows end before it. begin opens a lost session anew; a session
 * that is lost later fails the query, and nothing is read twice. A failure to begin, and each query
 * that fails by CAIRN_IO or CAIRN_UNAVAILABLE, is reported to failed(), also where the caller goes
 * on without its result. */
struct srv_look {
    struct srv_catalog *catalog;
    struct srv_tx *tx; /* NULL: not begun, or ended */
    uint64_t from_us;
};
enum cairn_code srv_look_begin(struct srv_catalog *catalog, struct srv_look *ret,
                               struct cairn_error *err) CAIRN_MUST_USE;
void srv_look_release(struct srv_look *look); /* again, or unbegun: does nothing */
#define SRV_LOOK(name, catalog, err) SRV_GET(look, name, srv_look_begin(catalog, &name, err))

/* ---- notifications ---- */

#define SRV_NOTIFY_ALL UINT64_C(0)
#define SRV_NOTIFY_EVENTS UINT64_C(1) /* new rows of events */

/* The key by which all servers know a text. */
uint64_t srv_key_of(const char *text);
uint64_t srv_key_of_run(const struct cairn_run_name *name);

/* Inside a change: wakes requests at other servers that wait for it. */
void srv_notify_events(struct srv_tx *tx);
void srv_notify_text(struct srv_tx *tx, const char *text);
void srv_notify_run(struct srv_tx *tx, const struct cairn_run_name *name);
/* Notifies of a version and of its run. */
void srv_notify_version(struct srv_tx *tx, const struct cairn_version_id *id,
                        const struct cairn_run_name *name);

struct srv_engine;

/* ---- actors ---- */

struct srv_idempotency;

struct srv_actor {
    const char *who; /* "" if unknown */
    const char *from;
    const struct srv_idempotency *idempotency; /* of a POST with a key; else NULL */
};
/* NULL, the default of a thread: the server itself. The struct must live until the next call. */
void srv_actor_set(const struct srv_actor *actor);
const struct srv_actor *srv_actor_get(void);
